//! Stored clients, roles and grants. Every change increments a version, by which servers that share
//! the store notice it.

mod audit;
mod catalog_roles;
mod entity_queries;
mod keys;
mod objects;
mod policies;
mod roles;
mod tokens;

use std::time::Duration;

use iceberg::ident::{NamespaceIdent, SEPARATOR};
use node::store::{SqlRow, SqlStore, SqlStoreError, SqlValue, StoreTransaction};

use super::catalog_roles::CatalogRoleRecord;
use super::clients::{CLIENTS_MAX, StoredClient};
use super::grants::{GRANTS_MAX, PrincipalGrant, RightSet};
use super::keys::ApiKey;
use super::policies::PolicyRecord;
use super::random::Hash;
use super::roles::RoleRecord;
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::store::{EntityKey, Properties, broken, entities, rights_changed};

type Stored<T> = std::result::Result<T, SqlStoreError>;

/// Stored clients and grants. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct AccessStore(CatalogDatabase);

/// Complete state of access control, as of one version.
#[derive(Debug)]
pub(super) struct StoredAccess {
    pub(super) version: u64,
    pub(super) clients: Vec<StoredClient>,
    pub(super) keys: Vec<ApiKey>,
    pub(super) roles: Vec<RoleRecord>,
    pub(super) catalog_roles: Vec<CatalogRoleRecord>,
    /// Hashes of access tokens that were revoked before they expired.
    pub(super) revoked: Vec<Hash>,
    /// Policies, each with the id of its warehouse.
    pub(super) policies: Vec<(Box<str>, PolicyRecord)>,
    /// Grants, each with the id of its warehouse.
    pub(super) grants: Vec<(Box<str>, PrincipalGrant)>,
}

/// Number of changes so far.
const VERSION: &str = "SELECT version FROM catalog_access WHERE id = 1";

impl AccessStore {
    pub(super) async fn open(store: SqlStore) -> Result<AccessStore> {
        let database = CatalogDatabase::new(store);
        crate::store::migrate(&database).await?;
        Ok(AccessStore(database))
    }

    /// Returns the number of changes, as of at most `age_max` ago.
    pub(super) async fn version(&self, age_max: Duration) -> Result<u64> {
        let missing = || CatalogError::internal("the version of access is missing");
        self.0.counter(VERSION, age_max).await?.ok_or_else(missing)
    }

    pub(super) async fn load(&self) -> Result<StoredAccess> {
        let read = self.0.read("catalog.access", |it| {
            let version = version(it)?;
            let sql = "SELECT id, name, operator, secret, previous, previous_until_ms, created_ms \
                FROM catalog_clients ORDER BY id";
            let clients = it.query(sql, &[])?.iter().map(client).collect::<Stored<_>>()?;
            // By the present names of objects.
            let sql = "SELECT r.warehouse, r.principal, r.kind, r.object, r.rights, t.namespace, \
                t.name FROM catalog_rights r LEFT JOIN catalog_tables t \
                ON r.kind = 'relation' AND t.id = r.object \
                WHERE r.kind <> 'relation' OR t.id IS NOT NULL \
                ORDER BY r.principal, r.warehouse, r.kind, r.object";
            let grants = it.query(sql, &[])?.iter().map(grant).collect::<Stored<_>>()?;
            let (keys, roles) = (keys::all(it)?, roles::all(it)?);
            let (policies, catalog_roles) = (policies::all(it)?, catalog_roles::all(it)?);
            let revoked = tokens::revoked(it)?;
            Ok(StoredAccess {
                version,
                clients,
                keys,
                roles,
                catalog_roles,
                revoked,
                policies,
                grants,
            })
        });
        read.await
    }

    /// Stores a new client. One with properties has a unique name.
    pub(super) async fn insert_client(
        &self,
        client: StoredClient,
        properties: Option<Properties>,
    ) -> Result<()> {
        let written = self.0.transact("catalog.insert_client", move |it| {
            if let Some(properties) = &properties {
                let sql = "SELECT 1 FROM catalog_clients WHERE name = $1 LIMIT 1";
                if it.query_one(sql, &[SqlValue::from(&*client.name)])?.is_some() {
                    let message = format!("Client already exists: {}", client.name);
                    return Err(SqlStoreError::refuse(CatalogError::new(
                        ErrorReason::AlreadyExists,
                        message,
                    )));
                }
                let key = EntityKey::client(&client.id);
                entities::made(it, &key, properties, client.created_ms)?;
            }
            require_room(it, "SELECT COUNT(*) FROM catalog_clients", CLIENTS_MAX, "clients")?;
            let sql = "INSERT INTO catalog_clients \
                (id, name, operator, secret, previous, previous_until_ms, created_ms) \
                VALUES ($1, $2, $3, $4, NULL, 0, $5)";
            let parameters = [
                SqlValue::from(&*client.id),
                SqlValue::from(&*client.name),
                SqlValue::Int(i64::from(client.operator)),
                SqlValue::from(&client.secret[..]),
                ms(client.created_ms)?,
            ];
            it.execute(sql, &parameters)?;
            rights_changed(it)
        });
        written.await
    }

    /// Replaces a client's secret. Returns whether the client exists.
    pub(super) async fn rotate_client(
        &self,
        id: &str,
        secret: Hash,
        until_ms: u64,
    ) -> Result<bool> {
        let id = id.to_owned();
        let written = self.0.transact("catalog.rotate_client", move |it| {
            let sql = "UPDATE catalog_clients \
                SET previous = secret, previous_until_ms = $2, secret = $3 WHERE id = $1";
            let parameters = [SqlValue::from(&id), ms(until_ms)?, SqlValue::from(&secret[..])];
            let count = it.execute(sql, &parameters)?;
            rights_changed(it)?;
            Ok(count > 0)
        });
        written.await
    }

    /// Removes a client, its tokens and keys, and the grants to it. Returns whether it existed.
    pub(super) async fn delete_client(&self, id: &str, principal: &str) -> Result<bool> {
        let (id, principal) = (id.to_owned(), principal.to_owned());
        let written = self.0.transact("catalog.delete_client", move |it| {
            let sql = "DELETE FROM catalog_clients WHERE id = $1";
            let count = it.execute(sql, &[SqlValue::from(&id)])?;
            for sql in [
                "DELETE FROM catalog_tokens WHERE client = $1",
                "DELETE FROM catalog_api_keys WHERE client = $1",
            ] {
                it.execute(sql, &[SqlValue::from(&id)])?;
            }
            let sql = "DELETE FROM catalog_role_members WHERE member = $1";
            it.execute(sql, &[SqlValue::from(&principal)])?;
            roles::forget_principal(it, &principal)?;
            entities::delete(it, &EntityKey::client(&id))?;
            rights_changed(it)?;
            Ok(count > 0)
        });
        written.await
    }

    /// Adds rights to the granted ones.
    pub(super) async fn grant(&self, warehouse: &str, grant: &PrincipalGrant) -> Result<()> {
        let (warehouse, grant, rights) = (warehouse.to_owned(), grant.clone(), grant.rights);
        let written = self.0.transact("catalog.grant", move |it| {
            roles::require_principal(it, &warehouse, &grant.principal)?;
            let place = objects::place(it, &warehouse, &grant)?;
            let found = granted_rights(it, &place)?;
            if found.is_none() {
                require_room(it, "SELECT COUNT(*) FROM catalog_rights", GRANTS_MAX, "grants")?;
            }
            put(it, &place, found.is_some(), found.unwrap_or_default().and(rights))
        });
        written.await
    }

    /// Revokes rights: the granted ones are replaced by the result of `left`.
    pub(super) async fn revoke(
        &self,
        warehouse: &str,
        grant: &PrincipalGrant,
        left: impl Fn(RightSet, RightSet) -> Result<RightSet> + Send + 'static,
    ) -> Result<()> {
        let (warehouse, grant, rights) = (warehouse.to_owned(), grant.clone(), grant.rights);
        let written = self.0.transact("catalog.revoke", move |it| {
            let place = objects::place(it, &warehouse, &grant)?;
            let refuse =
                |message| SqlStoreError::refuse(CatalogError::new(ErrorReason::NotFound, message));
            let Some(found) = granted_rights(it, &place)? else {
                return Err(refuse("nothing was granted to this principal on this"));
            };
            let left = left(found, rights).map_err(SqlStoreError::refuse)?;
            if left == found {
                return Err(refuse("none of these was granted to this principal on this"));
            }
            if left != RightSet::NONE {
                return put(it, &place, true, left);
            }
            let sql = "DELETE FROM catalog_rights \
                WHERE principal = $1 AND warehouse = $2 AND kind = $3 AND object = $4";
            it.execute(sql, &place)?;
            rights_changed(it)
        });
        written.await
    }
}

fn version(it: &mut dyn StoreTransaction) -> Stored<u64> {
    let row = it.query_one(VERSION, &[])?;
    row.ok_or_else(|| broken("the version of access is missing"))?.get(0)
}

fn require_room(it: &mut dyn StoreTransaction, sql: &str, most: usize, what: &str) -> Stored<()> {
    let count: u64 = it.query_one(sql, &[])?.ok_or_else(|| broken("no count"))?.get(0)?;
    if usize::try_from(count).is_ok_and(|count| count < most) {
        return Ok(());
    }
    let message = format!("there are {most} {what} already");
    Err(SqlStoreError::refuse(CatalogError::new(ErrorReason::BadRequest, message)))
}

fn granted_rights(
    it: &mut dyn StoreTransaction,
    place: &[SqlValue; 4],
) -> Stored<Option<RightSet>> {
    let sql = "SELECT rights FROM catalog_rights \
        WHERE principal = $1 AND warehouse = $2 AND kind = $3 AND object = $4";
    it.query_one(sql, place)?.map(|row| rights(&row, 0)).transpose()
}

fn put(
    it: &mut dyn StoreTransaction,
    place: &[SqlValue; 4],
    is_there: bool,
    all: RightSet,
) -> Stored<()> {
    let sql = match is_there {
        true => {
            "UPDATE catalog_rights SET rights = $5 \
             WHERE principal = $1 AND warehouse = $2 AND kind = $3 AND object = $4"
        }
        false => {
            "INSERT INTO catalog_rights (principal, warehouse, kind, object, rights) \
             VALUES ($1, $2, $3, $4, $5)"
        }
    };
    let [principal, warehouse, kind, object] = place.clone();
    it.execute(sql, &[principal, warehouse, kind, object, SqlValue::Int(all.bits())])?;
    rights_changed(it)
}

fn client(row: &SqlRow) -> Stored<StoredClient> {
    let previous: Option<Vec<u8>> = row.get(4)?;
    let until_ms: u64 = row.get(5)?;
    let previous = previous.map(|bytes| digest(&bytes).map(|hash| (hash, until_ms))).transpose()?;
    Ok(StoredClient {
        id: row.get::<String>(0)?.into(),
        name: row.get::<String>(1)?.into(),
        operator: row.get(2)?,
        secret: digest(&row.get::<Vec<u8>>(3)?)?,
        previous,
        created_ms: row.get(6)?,
    })
}

fn grant(row: &SqlRow) -> Stored<(Box<str>, PrincipalGrant)> {
    let (kind, object): (String, String) = (row.get(2)?, row.get(3)?);
    let (namespace, name) = match &*kind {
        objects::WAREHOUSE => (None, None),
        objects::NAMESPACE => (Some(object), None),
        _ => (row.get(5)?, row.get(6)?),
    };
    let namespace = namespace.map(|path| NamespaceIdent::new(path.split(SEPARATOR)));
    let grant = PrincipalGrant {
        principal: row.get(1)?,
        namespace: namespace.transpose().map_err(SqlStoreError::refuse)?,
        name,
        rights: rights(row, 4)?,
    };
    Ok((row.get::<String>(0)?.into(), grant))
}

fn rights(row: &SqlRow, index: usize) -> Stored<RightSet> {
    RightSet::of_bits(row.get(index)?).ok_or_else(|| broken("rights that there are not"))
}

fn digest(bytes: &[u8]) -> Stored<Hash> {
    bytes.try_into().map_err(|_| broken("a secret's hash has another length"))
}

fn ms(ms: u64) -> Stored<SqlValue> {
    i64::try_from(ms).map(SqlValue::Int).map_err(|_| broken("a time beyond all times"))
}
