//! Credentials: secrets of tenants for their agents.

use node::store::{Row, StoreError};

use super::SessionStore;
use super::rows::{CredentialRow, SealedBlob};
use super::schema::{Columns, number, text};
use crate::error::Error;

const CREDENTIAL: &str = "id, tenant, kind, label, secret, created_ms, last_used_ms";

impl SessionStore {
    /// Keeps a credential.
    ///
    /// # Errors
    /// `TooMany` when its tenant has `count_max`.
    pub(crate) async fn insert_credential(
        &self,
        row: CredentialRow,
        count_max: u64,
    ) -> Result<(), Error> {
        self.write("credentials.insert", move |it| {
            let count = "SELECT COUNT(*) FROM session_credentials WHERE tenant = $1";
            let count = it.query_one(count, &[text(&row.tenant)])?;
            if count.map_or(Ok(0), |row| row.get::<u64>(0))? >= count_max {
                let message = format!("a tenant may have {count_max} credentials");
                return Err(StoreError::refuse(Error::TooMany(message)));
            }
            let sql = "INSERT INTO session_credentials \
                (id, tenant, kind, label, secret, created_ms) VALUES ($1, $2, $3, $4, $5, $6)";
            let parameters = [
                text(&row.id),
                text(&row.tenant),
                text(&row.kind),
                text(&row.label),
                row.secret.0.clone().into(),
                number(row.created_ms),
            ];
            it.execute(sql, &parameters).map(drop)
        })
        .await
    }

    /// A credential of a tenant.
    pub(crate) async fn credential(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Option<CredentialRow>, Error> {
        let sql =
            format!("SELECT {CREDENTIAL} FROM session_credentials WHERE tenant = $1 AND id = $2");
        let parameters = [text(tenant), text(id)];
        self.read("credentials.get", move |it| {
            it.query_one(&sql, &parameters)?.map(|found| credential(&found)).transpose()
        })
        .await
    }

    /// All credentials of a tenant, oldest first.
    pub(crate) async fn credentials(&self, tenant: &str) -> Result<Vec<CredentialRow>, Error> {
        let sql =
            format!("SELECT {CREDENTIAL} FROM session_credentials WHERE tenant = $1 ORDER BY id");
        let parameters = [text(tenant)];
        self.read("credentials.list", move |it| {
            it.query(&sql, &parameters)?.iter().map(credential).collect()
        })
        .await
    }

    /// Notes that a session used a credential.
    pub(crate) async fn touch_credential(
        &self,
        tenant: &str,
        id: &str,
        now_ms: u64,
    ) -> Result<(), Error> {
        let parameters = [text(tenant), text(id), number(now_ms)];
        self.write_again("credentials.touch", move |it| {
            let sql = "UPDATE session_credentials SET last_used_ms = $3 \
                WHERE tenant = $1 AND id = $2";
            it.execute(sql, &parameters).map(drop)
        })
        .await
    }

    /// Removes a credential. Whether there was one.
    pub(crate) async fn delete_credential(&self, tenant: &str, id: &str) -> Result<bool, Error> {
        let parameters = [text(tenant), text(id)];
        self.write("credentials.delete", move |it| {
            let sql = "DELETE FROM session_credentials WHERE tenant = $1 AND id = $2";
            Ok(it.execute(sql, &parameters)? == 1)
        })
        .await
    }
}

fn credential(row: &Row) -> Result<CredentialRow, StoreError> {
    let mut columns = Columns::of(row);
    Ok(CredentialRow {
        id: columns.text()?,
        tenant: columns.text()?,
        kind: columns.text()?,
        label: columns.text()?,
        secret: SealedBlob(columns.take()?),
        created_ms: columns.take()?,
        last_used_ms: columns.take()?,
    })
}
