//! Clients and grants at rest. Every change moves a version, by which servers that share the store
//! learn of it.

use node::store::{Dialect, Migration, Row, Store, StoreError, Transaction, Value};

use super::clients::{CLIENTS_MAX, Client};
use super::grants::{GRANTS_MAX, Grant, Rights};
use crate::error::{Error, Kind, Result};
use crate::ident::{NamespaceIdent, SEPARATOR};

/// Whose tables they are.
const SERVICE: &str = "catalog-access";

/// What brings the tables to their newest version; only ever added to.
const MIGRATIONS: &[Migration] = &[
    Migration::Same(
        "CREATE TABLE catalog_clients (
            id TEXT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            operator BIGINT NOT NULL,
            secret BYTEA NOT NULL,
            previous BYTEA,
            previous_until_ms BIGINT NOT NULL,
            created_ms BIGINT NOT NULL
        )",
    ),
    Migration::Same(
        "CREATE TABLE catalog_grants (
            principal TEXT NOT NULL,
            warehouse TEXT NOT NULL,
            namespace TEXT NOT NULL,
            relation TEXT NOT NULL,
            rights BIGINT NOT NULL,
            PRIMARY KEY (principal, warehouse, namespace, relation)
        )",
    ),
    Migration::Same(
        "CREATE TABLE catalog_access (
            id BIGINT NOT NULL PRIMARY KEY,
            version BIGINT NOT NULL
        );
        INSERT INTO catalog_access (id, version) VALUES (1, 1)",
    ),
];

type Stored<T> = std::result::Result<T, StoreError>;

/// Clients and grants at rest. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct AccessStore(Store);

/// Everything, as of one version.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) version: u64,
    pub(super) clients: Vec<Client>,
    /// With the id of the warehouse of each.
    pub(super) grants: Vec<(Box<str>, Grant)>,
}

impl AccessStore {
    pub(super) async fn open(store: Store) -> Result<AccessStore> {
        store.migrate(SERVICE, MIGRATIONS).await?;
        Ok(AccessStore(store))
    }

    /// Whether other servers may change it.
    pub(super) fn is_shared_by_servers(&self) -> bool {
        match self.0.dialect() {
            Dialect::Sqlite => false,
            Dialect::Postgres => true,
        }
    }

    /// Counts changes.
    pub(super) async fn version(&self) -> Result<u64> {
        Ok(self.0.read("catalog.access_version", |it| version(it)).await?)
    }

    pub(super) async fn load(&self) -> Result<Kept> {
        let read = self.0.read("catalog.access", |it| {
            let version = version(it)?;
            let sql = "SELECT id, name, operator, secret, previous, previous_until_ms, created_ms \
                FROM catalog_clients ORDER BY id";
            let clients = it.query(sql, &[])?.iter().map(client).collect::<Stored<_>>()?;
            let sql = "SELECT warehouse, principal, namespace, relation, rights \
                FROM catalog_grants ORDER BY principal, warehouse, namespace, relation";
            let grants = it.query(sql, &[])?.iter().map(grant).collect::<Stored<_>>()?;
            Ok(Kept { version, clients, grants })
        });
        Ok(read.await?)
    }

    /// Keeps a new client.
    pub(super) async fn insert_client(&self, client: Client) -> Result<()> {
        let written = self.0.transact("catalog.insert_client", move |it| {
            require_room(it, "SELECT COUNT(*) FROM catalog_clients", CLIENTS_MAX, "clients")?;
            let sql = "INSERT INTO catalog_clients \
                (id, name, operator, secret, previous, previous_until_ms, created_ms) \
                VALUES ($1, $2, $3, $4, NULL, 0, $5)";
            let parameters = [
                Value::from(&*client.id),
                Value::from(&*client.name),
                Value::Int(i64::from(client.operator)),
                Value::from(&client.secret[..]),
                ms(client.created_ms)?,
            ];
            it.execute(sql, &parameters)?;
            changed(it)
        });
        Ok(written.await?)
    }

    /// Gives a client another secret. Answers whether there is one.
    pub(super) async fn rotate_client(
        &self,
        id: &str,
        secret: [u8; 32],
        until_ms: u64,
    ) -> Result<bool> {
        let id = id.to_owned();
        let written = self.0.transact("catalog.rotate_client", move |it| {
            let sql = "UPDATE catalog_clients \
                SET previous = secret, previous_until_ms = $2, secret = $3 WHERE id = $1";
            let parameters = [Value::from(&id), ms(until_ms)?, Value::from(&secret[..])];
            let count = it.execute(sql, &parameters)?;
            changed(it)?;
            Ok(count > 0)
        });
        Ok(written.await?)
    }

    /// Removes a client and what was granted to it. Answers whether there was one.
    pub(super) async fn delete_client(&self, id: &str, principal: &str) -> Result<bool> {
        let (id, principal) = (id.to_owned(), principal.to_owned());
        let written = self.0.transact("catalog.delete_client", move |it| {
            let sql = "DELETE FROM catalog_clients WHERE id = $1";
            let count = it.execute(sql, &[Value::from(&id)])?;
            let sql = "DELETE FROM catalog_grants WHERE principal = $1";
            it.execute(sql, &[Value::from(&principal)])?;
            changed(it)?;
            Ok(count > 0)
        });
        Ok(written.await?)
    }

    /// Adds rights to those that were given.
    pub(super) async fn grant(&self, warehouse: &str, grant: &Grant) -> Result<()> {
        let (place, rights) = (place(warehouse, grant), grant.rights);
        let written = self.0.transact("catalog.grant", move |it| {
            let found = given(it, &place)?;
            if found.is_none() {
                require_room(it, "SELECT COUNT(*) FROM catalog_grants", GRANTS_MAX, "grants")?;
            }
            put(it, &place, found.is_some(), found.unwrap_or_default().and(rights))
        });
        Ok(written.await?)
    }

    /// Takes rights back.
    pub(super) async fn revoke(&self, warehouse: &str, grant: &Grant) -> Result<()> {
        let (place, rights) = (place(warehouse, grant), grant.rights);
        let written = self.0.transact("catalog.revoke", move |it| {
            let Some(found) = given(it, &place)? else {
                let message = "nothing was granted to this principal on this";
                return Err(StoreError::refuse(Error::new(Kind::NotFound, message)));
            };
            let left = found.without(rights);
            if left != Rights::NONE {
                return put(it, &place, true, left);
            }
            let sql = "DELETE FROM catalog_grants \
                WHERE principal = $1 AND warehouse = $2 AND namespace = $3 AND relation = $4";
            it.execute(sql, &place)?;
            changed(it)
        });
        Ok(written.await?)
    }
}

fn version(it: &mut dyn Transaction) -> Stored<u64> {
    let row = it.query_one("SELECT version FROM catalog_access WHERE id = 1", &[])?;
    row.ok_or_else(|| broken("the version of access is missing"))?.get(0)
}

fn changed(it: &mut dyn Transaction) -> Stored<()> {
    it.execute("UPDATE catalog_access SET version = version + 1 WHERE id = 1", &[]).map(drop)
}

fn require_room(it: &mut dyn Transaction, sql: &str, most: usize, what: &str) -> Stored<()> {
    let count: u64 = it.query_one(sql, &[])?.ok_or_else(|| broken("no count"))?.get(0)?;
    if usize::try_from(count).is_ok_and(|count| count < most) {
        return Ok(());
    }
    let message = format!("there are {most} {what} already");
    Err(StoreError::refuse(Error::new(Kind::BadRequest, message)))
}

fn given(it: &mut dyn Transaction, place: &[Value; 4]) -> Stored<Option<Rights>> {
    let sql = "SELECT rights FROM catalog_grants \
        WHERE principal = $1 AND warehouse = $2 AND namespace = $3 AND relation = $4";
    it.query_one(sql, place)?.map(|row| rights(&row, 0)).transpose()
}

fn put(it: &mut dyn Transaction, place: &[Value; 4], is_there: bool, all: Rights) -> Stored<()> {
    let sql = match is_there {
        true => {
            "UPDATE catalog_grants SET rights = $5 \
             WHERE principal = $1 AND warehouse = $2 AND namespace = $3 AND relation = $4"
        }
        false => {
            "INSERT INTO catalog_grants (principal, warehouse, namespace, relation, rights) \
             VALUES ($1, $2, $3, $4, $5)"
        }
    };
    let [principal, warehouse, namespace, relation] = place.clone();
    it.execute(sql, &[principal, warehouse, namespace, relation, Value::Int(all.bits())])?;
    changed(it)
}

/// What a grant is to: nothing stands for the whole of it.
fn place(warehouse: &str, grant: &Grant) -> [Value; 4] {
    let namespace = grant.namespace.as_ref().map(NamespaceIdent::key).unwrap_or_default();
    let relation = grant.name.as_deref().unwrap_or_default();
    [Value::from(&grant.principal), warehouse.into(), namespace.into(), relation.into()]
}

fn client(row: &Row) -> Stored<Client> {
    let previous: Option<Vec<u8>> = row.get(4)?;
    let until_ms: u64 = row.get(5)?;
    let previous = previous.map(|bytes| digest(&bytes).map(|hash| (hash, until_ms))).transpose()?;
    Ok(Client {
        id: row.get::<String>(0)?.into(),
        name: row.get::<String>(1)?.into(),
        operator: row.get(2)?,
        secret: digest(&row.get::<Vec<u8>>(3)?)?,
        previous,
        created_ms: row.get(6)?,
    })
}

fn grant(row: &Row) -> Stored<(Box<str>, Grant)> {
    let (namespace, relation): (String, String) = (row.get(2)?, row.get(3)?);
    let namespace =
        (!namespace.is_empty()).then(|| NamespaceIdent::new(namespace.split(SEPARATOR)));
    let grant = Grant {
        principal: row.get(1)?,
        namespace: namespace.transpose().map_err(StoreError::refuse)?,
        name: (!relation.is_empty()).then_some(relation),
        rights: rights(row, 4)?,
    };
    Ok((row.get::<String>(0)?.into(), grant))
}

fn rights(row: &Row, index: usize) -> Stored<Rights> {
    Rights::of_bits(row.get(index)?).ok_or_else(|| broken("rights that there are not"))
}

fn digest(bytes: &[u8]) -> Stored<[u8; 32]> {
    bytes.try_into().map_err(|_| broken("a secret's hash has another length"))
}

fn ms(ms: u64) -> Stored<Value> {
    i64::try_from(ms).map(Value::Int).map_err(|_| broken("a time beyond all times"))
}

fn broken(what: &'static str) -> StoreError {
    StoreError::refuse(Error::internal(what))
}
