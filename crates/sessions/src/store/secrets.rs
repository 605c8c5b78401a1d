//! Secrets: environments, and credentials of tenants for their agents.
//!
//! Both are sealed for their tenant and the id of their row: a copy in another row cannot be
//! opened. Code that derives a row from another one, such as a fork, opens and seals again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use node::sealed::{PlainSecret, SECRET_BYTES_MAX, SealError, Sealer};
use node::store::{SqlRow, SqlStoreError};

use super::access::TableAccess;
use super::rows::{CredentialRow, SealedBlob};
use super::schema::{SessionColumns, number, text};
use crate::error::SessionError;

const CREDENTIAL: &str = "id, tenant, kind, label, secret, created_ms, last_used_ms";

/// Seals and opens secrets. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SecretStore(Arc<Sealer>);

impl fmt::Debug for SecretStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

impl SecretStore {
    pub(crate) fn new(sealer: Sealer) -> SecretStore {
        SecretStore(Arc::new(sealer))
    }

    /// Derives a key for another purpose.
    pub(crate) fn derived_key(&self, purpose: &str) -> [u8; 32] {
        self.0.derived_key(purpose)
    }

    /// Seals the environment of the agent or session `id`. Returns `None` for an empty one.
    ///
    /// # Errors
    /// `Refused` at `env` if it is too large.
    pub(crate) fn seal_env(
        &self,
        tenant: &str,
        id: &str,
        env: &BTreeMap<String, String>,
    ) -> Result<Option<SealedBlob>, SessionError> {
        if env.is_empty() {
            return Ok(None);
        }
        let json = serde_json::to_vec(env).map_err(SessionError::internal)?;
        self.seal(&json, &about("env", tenant, id), "env").map(Some)
    }

    /// Opens the environment of the agent or session `id`.
    ///
    /// # Errors
    /// `Internal` if it was sealed for another row or with another key.
    pub(crate) fn open_env(
        &self,
        tenant: &str,
        id: &str,
        sealed: Option<&SealedBlob>,
    ) -> Result<BTreeMap<String, String>, SessionError> {
        let Some(sealed) = sealed else { return Ok(BTreeMap::new()) };
        let plain =
            self.0.open(&sealed.0, &about("env", tenant, id)).map_err(SessionError::internal)?;
        serde_json::from_slice(plain.expose()).map_err(SessionError::internal)
    }

    /// Seals the secret of the credential `id`.
    ///
    /// # Errors
    /// `Refused` at `value` if it is too large.
    pub(crate) fn seal_credential(
        &self,
        tenant: &str,
        id: &str,
        secret: &[u8],
    ) -> Result<SealedBlob, SessionError> {
        self.seal(secret, &about("credential", tenant, id), "value")
    }

    /// Opens the secret of a credential.
    ///
    /// # Errors
    /// `Internal` if it was sealed for another row or with another key.
    pub(crate) fn open_credential(&self, row: &CredentialRow) -> Result<PlainSecret, SessionError> {
        let about = about("credential", &row.tenant, &row.id);
        self.0.open(&row.secret.0, &about).map_err(SessionError::internal)
    }

    fn seal(&self, secret: &[u8], about: &str, field: &str) -> Result<SealedBlob, SessionError> {
        match self.0.seal(secret, about) {
            Ok(sealed) => Ok(SealedBlob(sealed)),
            Err(SealError::TooLong) => Err(SessionError::invalid(
                field,
                format!("it is longer than {SECRET_BYTES_MAX} bytes"),
            )),
            Err(error) => Err(SessionError::internal(error)),
        }
    }
}

/// Returns the unique context for which a secret is sealed; ids cannot make two contexts equal.
fn about(what: &str, tenant: &str, id: &str) -> String {
    format!("sessions/{what}/{}/{tenant}/{id}", tenant.len())
}

/// Sealed credentials of tenants.
#[derive(Clone, Debug)]
pub(crate) struct CredentialTable(pub(super) TableAccess);

impl CredentialTable {
    /// Stores a credential.
    ///
    /// # Errors
    /// `TooMany` if its tenant has `count_max` credentials.
    pub(crate) async fn insert(
        &self,
        row: CredentialRow,
        count_max: u64,
    ) -> Result<(), SessionError> {
        self.0
            .write("credentials.insert", move |it| {
                let count = "SELECT COUNT(*) FROM session_credentials WHERE tenant = $1";
                let count = it.query_one(count, &[text(&row.tenant)])?;
                if count.map_or(Ok(0), |row| row.get::<u64>(0))? >= count_max {
                    let message = format!("a tenant may have {count_max} credentials");
                    return Err(SqlStoreError::refuse(SessionError::TooMany(message)));
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

    /// Returns a credential of a tenant.
    pub(crate) async fn find(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Option<CredentialRow>, SessionError> {
        let sql =
            format!("SELECT {CREDENTIAL} FROM session_credentials WHERE tenant = $1 AND id = $2");
        let parameters = [text(tenant), text(id)];
        self.0
            .read("credentials.get", move |it| {
                it.query_one(&sql, &parameters)?.map(|found| credential(&found)).transpose()
            })
            .await
    }

    /// Returns all credentials of a tenant, oldest first.
    pub(crate) async fn list(&self, tenant: &str) -> Result<Vec<CredentialRow>, SessionError> {
        let sql =
            format!("SELECT {CREDENTIAL} FROM session_credentials WHERE tenant = $1 ORDER BY id");
        let parameters = [text(tenant)];
        self.0
            .read("credentials.list", move |it| {
                it.query(&sql, &parameters)?.iter().map(credential).collect()
            })
            .await
    }

    /// Records that a session used a credential.
    pub(crate) async fn touch(
        &self,
        tenant: &str,
        id: &str,
        now_ms: u64,
    ) -> Result<(), SessionError> {
        let parameters = [text(tenant), text(id), number(now_ms)];
        self.0
            .write_again("credentials.touch", move |it| {
                let sql = "UPDATE session_credentials SET last_used_ms = $3 \
                WHERE tenant = $1 AND id = $2";
                it.execute(sql, &parameters).map(drop)
            })
            .await
    }

    /// Removes a credential. Returns whether it existed.
    pub(crate) async fn delete(&self, tenant: &str, id: &str) -> Result<bool, SessionError> {
        let parameters = [text(tenant), text(id)];
        self.0
            .write("credentials.delete", move |it| {
                let sql = "DELETE FROM session_credentials WHERE tenant = $1 AND id = $2";
                Ok(it.execute(sql, &parameters)? == 1)
            })
            .await
    }
}

fn credential(row: &SqlRow) -> Result<CredentialRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
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
