//! Credentials: secrets of tenants for the programs of their sessions.

use std::sync::Arc;

use api::CredentialView;
use node::clock::rfc3339_of_ms as time;
use node::clock::{self, IdGenerator};
use serde_json::Value;

use super::environment::LaunchEnvironment;
use super::shared::SharedParts;
use crate::error::SessionError;
use crate::store::rows::CredentialRow;
use crate::store::{CredentialTable, SecretStore};

/// Maximum number of credentials of one tenant.
const CREDENTIALS_MAX: u64 = 1000;
/// Maximum bytes of a credential's secret and of its label.
const SECRET_BYTES_MAX: usize = 16 << 10;
const LABEL_BYTES_MAX: usize = 200;

/// Kinds of credentials, with the variables that contain the secret; none for the model's key,
/// which the relay adds and which never enters a sandbox.
const KINDS: [(&str, &[&str]); 4] = [
    ("anthropic", &[]),
    ("openai", &["OPENAI_API_KEY"]),
    ("bedrock", &["AWS_BEARER_TOKEN_BEDROCK"]),
    // The second name is Ash's.
    ("custom", &["CREDENTIAL", "ASH_CUSTOM_API_KEY"]),
];
/// Variable that makes Claude use Bedrock.
const USE_BEDROCK: &str = "CLAUDE_CODE_USE_BEDROCK";
/// Variables for a Bedrock key in object form, by its fields.
const BEDROCK: [(&str, &str); 4] = [
    ("accessKeyId", "AWS_ACCESS_KEY_ID"),
    ("secretAccessKey", "AWS_SECRET_ACCESS_KEY"),
    ("region", "AWS_REGION"),
    ("sessionToken", "AWS_SESSION_TOKEN"),
];

/// Credentials of tenants.
#[derive(Debug)]
pub struct CredentialVault {
    table: CredentialTable,
    secrets: SecretStore,
    ids: Arc<IdGenerator>,
}

impl CredentialVault {
    pub(super) fn new(shared: &SharedParts) -> Arc<CredentialVault> {
        Arc::new(CredentialVault {
            table: shared.store.credentials.clone(),
            secrets: shared.secrets.clone(),
            ids: Arc::clone(&shared.ids),
        })
    }

    /// Stores a secret for agents.
    ///
    /// # Errors
    /// If the request is invalid; `TooMany` if the tenant has too many.
    pub async fn create(
        &self,
        tenant: &str,
        kind: &str,
        label: &str,
        secret: &str,
    ) -> Result<CredentialView, SessionError> {
        if !KINDS.iter().any(|(known, _)| *known == kind) {
            let message = "must be `anthropic`, `openai`, `bedrock` or `custom`";
            return Err(SessionError::invalid("kind", message));
        }
        if label.len() > LABEL_BYTES_MAX {
            return Err(SessionError::invalid(
                "label",
                format!("more than {LABEL_BYTES_MAX} bytes"),
            ));
        }
        if secret.is_empty() || secret.len() > SECRET_BYTES_MAX || secret.contains('\0') {
            let message = format!("must have 1 to {SECRET_BYTES_MAX} bytes, and no NUL");
            return Err(SessionError::invalid("secret", message));
        }
        let id = self.ids.next("cred_");
        let sealed = self.secrets.seal_credential(tenant, &id, secret.as_bytes())?;
        let row = CredentialRow {
            id,
            tenant: tenant.to_owned(),
            kind: kind.to_owned(),
            label: label.to_owned(),
            secret: sealed,
            created_ms: clock::wall_ms(),
            last_used_ms: None,
        };
        let shown = credential(row.clone());
        self.table.insert(row, CREDENTIALS_MAX).await?;
        Ok(shown)
    }

    /// Returns the credentials of a tenant, without their secrets.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(&self, tenant: &str) -> Result<Vec<CredentialView>, SessionError> {
        let rows = self.table.list(tenant).await?;
        Ok(rows.into_iter().map(credential).collect())
    }

    /// Removes a credential. Running agents keep it.
    ///
    /// # Errors
    /// If there is no such credential.
    pub async fn delete(&self, tenant: &str, id: &str) -> Result<(), SessionError> {
        match self.table.delete(tenant, id).await? {
            true => Ok(()),
            false => Err(SessionError::NotFound("credential")),
        }
    }

    /// Adds a credential to a launch environment.
    pub(super) async fn add_to(
        &self,
        tenant: &str,
        id: &str,
        launch: &mut LaunchEnvironment,
    ) -> Result<(), SessionError> {
        let row = self.table.find(tenant, id).await?;
        let row = row.ok_or(SessionError::NotFound("credential"))?;
        let plain = self.secrets.open_credential(&row)?;
        let secret = plain.expose_text().unwrap_or_default().to_owned();
        match variables(&row.kind, &secret) {
            variables if variables.is_empty() => launch.model_key = Some(secret),
            variables => launch.env.extend(variables),
        }
        self.table.touch(tenant, id, clock::wall_ms()).await
    }
}

/// Returns the environment variables of a credential.
fn variables(kind: &str, secret: &str) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    let mut add = |name: &str, value: &str| variables.push((name.to_owned(), value.to_owned()));
    if kind == "bedrock" {
        add(USE_BEDROCK, "1");
        if let Ok(Value::Object(fields)) = serde_json::from_str(secret) {
            for (field, name) in BEDROCK {
                if let Some(value) = fields.get(field).and_then(Value::as_str) {
                    add(name, value);
                }
            }
            return variables;
        }
    }
    let names = KINDS.iter().find(|(known, _)| *known == kind).map_or(&[][..], |(_, names)| names);
    for name in names {
        add(name, secret);
    }
    variables
}

fn credential(row: CredentialRow) -> CredentialView {
    CredentialView {
        id: row.id,
        kind: row.kind,
        label: row.label,
        created_at: time(row.created_ms),
        last_used_at: row.last_used_ms.map(time),
    }
}

#[cfg(test)]
mod tests {
    //! Variables with secrets.

    use super::*;

    #[test]
    fn secrets_are_where_programs_look_for_them() {
        let check = |kind: &str, secret: &str, expected: &[(&str, &str)]| {
            let found = variables(kind, secret);
            let found: Vec<_> =
                found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(found, expected, "{kind}");
        };
        check("anthropic", "k", &[]);
        check("openai", "k", &[("OPENAI_API_KEY", "k")]);
        check("custom", "k", &[("CREDENTIAL", "k"), ("ASH_CUSTOM_API_KEY", "k")]);
        let bedrock = (USE_BEDROCK, "1");
        check("bedrock", "k", &[bedrock, ("AWS_BEARER_TOKEN_BEDROCK", "k")]);
        let key = r#"{"accessKeyId": "a", "secretAccessKey": "b", "region": "c", "more": 1}"#;
        let expected = [
            bedrock,
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_REGION", "c"),
        ];
        check("bedrock", key, &expected);
    }
}
