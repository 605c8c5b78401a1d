//! Records beside sessions: secrets, attachments, usage, and what faces keep.

use api::CredentialView;
use bytes::Bytes;
use node::clock;
use serde_json::Value;

use super::environment::LaunchEnvironment;
use super::storage::StorageRequest;
use super::{Sessions, SessionsInner, time};
use crate::error::SessionError;
use crate::store::PAGE_MAX;
use crate::store::rows::{AttachmentRow, CredentialRow, DocumentFilter, DocumentRow, UsageFilter};

/// Credentials of one tenant.
const CREDENTIALS_MAX: u64 = 1000;
/// Bytes of a credential's secret and of its label.
const SECRET_BYTES_MAX: usize = 16 << 10;
const LABEL_BYTES_MAX: usize = 200;
/// Attachments of one session, and bytes of one.
const ATTACHMENTS_MAX: u64 = 1000;
/// Bytes of an attachment.
pub const ATTACHMENT_BYTES_MAX: usize = 50 << 20;
/// Bytes of a name.
const NAME_BYTES_MAX: usize = 500;
/// Bytes of one document of a face.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// The kinds of credentials, and the variables in which an agent gets the secret; none for the key
/// of the model, which is added on the way and never enters a sandbox.
const KINDS: [(&str, &[&str]); 4] = [
    ("anthropic", &[]),
    ("openai", &["OPENAI_API_KEY"]),
    ("bedrock", &["AWS_BEARER_TOKEN_BEDROCK"]),
    // The second one is Ash's name for it.
    ("custom", &["CREDENTIAL", "ASH_CUSTOM_API_KEY"]),
];
/// Variable that makes Claude use Bedrock.
const USE_BEDROCK: &str = "CLAUDE_CODE_USE_BEDROCK";
/// The variables of a key of Bedrock that is an object, by its fields.
const BEDROCK: [(&str, &str); 4] = [
    ("accessKeyId", "AWS_ACCESS_KEY_ID"),
    ("secretAccessKey", "AWS_SECRET_ACCESS_KEY"),
    ("region", "AWS_REGION"),
    ("sessionToken", "AWS_SESSION_TOKEN"),
];

/// A file given along with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAttachment {
    /// `att_…`.
    pub id: String,
    /// The session's.
    pub session: String,
    /// Name of the file.
    pub name: String,
    /// Media type.
    pub media_type: Option<String>,
    /// Bytes.
    pub bytes: u64,
    /// When it was added (milliseconds since 1970).
    pub created_ms: u64,
}

/// Filter of usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// Session that used it.
    pub session: Option<String>,
    /// Name of the agent that used it.
    pub agent: Option<String>,
    /// Not before (milliseconds since 1970).
    pub from_ms: Option<u64>,
    /// Before.
    pub to_ms: Option<u64>,
}

impl From<UsageQuery> for UsageFilter {
    fn from(query: UsageQuery) -> UsageFilter {
        let UsageQuery { session, agent, from_ms, to_ms } = query;
        UsageFilter { session, agent, from_ms, to_ms }
    }
}

/// Usage of turns, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct UsageTotal {
    /// Number of turns.
    pub turns: u64,
    /// Tokens that the model read, without those from its cache.
    pub input_tokens: u64,
    /// Tokens that it wrote.
    pub output_tokens: u64,
    /// Tokens that came from its cache.
    pub cache_read_tokens: u64,
    /// Tokens that were put there.
    pub cache_write_tokens: u64,
    /// In US dollars, as agents reckon it.
    pub cost_usd: f64,
    /// Calls of tools.
    pub tool_calls: u64,
    /// Milliseconds.
    pub duration_ms: u64,
}

/// Usage of one turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnUsageRecord {
    /// The session's.
    pub session: String,
    /// The turn's.
    pub turn: String,
    /// Name of the agent.
    pub agent: Option<String>,
    /// The model that was asked for.
    pub model: Option<String>,
    /// When the turn ended (milliseconds since 1970).
    pub at_ms: u64,
    /// Usage of this turn alone.
    pub used: UsageTotal,
}

/// Small document that a face keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct FaceDocument {
    /// Kind: `ash.eval_case`.
    pub kind: String,
    /// Names it among its kind.
    pub id: String,
    /// Parent that it belongs to.
    pub parent: Option<String>,
    /// Content.
    pub body: Value,
    /// When it was made (milliseconds since 1970).
    pub created_ms: u64,
    /// When it was changed last.
    pub updated_ms: u64,
}

/// Returns what an agent finds of a credential in its environment.
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

impl SessionsInner {
    /// Adds what a credential gives to what programs are started with.
    pub(super) async fn add_credential(
        &self,
        tenant: &str,
        id: &str,
        launch: &mut LaunchEnvironment,
    ) -> Result<(), SessionError> {
        let row = self.store.credentials.find(tenant, id).await?;
        let row = row.ok_or(SessionError::NotFound("credential"))?;
        let plain = self.secrets.open_credential(&row)?;
        let secret = plain.expose_text().unwrap_or_default().to_owned();
        match variables(&row.kind, &secret) {
            variables if variables.is_empty() => launch.model_key = Some(secret),
            variables => launch.env.extend(variables),
        }
        self.store.credentials.touch(tenant, id, clock::wall_ms()).await
    }

    /// Removes what was given along with a session.
    pub(super) async fn remove_attachments(
        &self,
        tenant: &str,
        session: &str,
    ) -> Result<(), SessionError> {
        for row in self.store.attachments.of_session(tenant, session).await? {
            if let Some(row) = self.store.attachments.delete(tenant, &row.id).await? {
                self.remove_object(&row.object).await;
            }
        }
        Ok(())
    }

    pub(super) async fn remove_object(&self, key: &str) {
        if let Err(error) = self.objects.delete(key).await {
            tracing::warn!(
                key,
                error = &error as &dyn std::error::Error,
                "an object that nobody needs could not be removed"
            );
        }
    }
}

impl Sessions {
    /// Keeps a secret for agents.
    ///
    /// # Errors
    /// What is wrong with the request; `TooMany` when the tenant has too many.
    pub async fn create_credential(
        &self,
        tenant: &str,
        kind: &str,
        label: &str,
        secret: &str,
    ) -> Result<CredentialView, SessionError> {
        let inner = self.ready()?;
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
        let id = inner.ids.next("cred_");
        let sealed = inner.secrets.seal_credential(tenant, &id, secret.as_bytes())?;
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
        inner.store.credentials.insert(row, CREDENTIALS_MAX).await?;
        Ok(shown)
    }

    /// The secrets of a tenant, without their values.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn credentials(&self, tenant: &str) -> Result<Vec<CredentialView>, SessionError> {
        let rows = self.ready()?.store.credentials.list(tenant).await?;
        Ok(rows.into_iter().map(credential).collect())
    }

    /// Removes a secret. Agents that run keep what they have.
    ///
    /// # Errors
    /// When there is no such credential.
    pub async fn delete_credential(&self, tenant: &str, id: &str) -> Result<(), SessionError> {
        match self.ready()?.store.credentials.delete(tenant, id).await? {
            true => Ok(()),
            false => Err(SessionError::NotFound("credential")),
        }
    }

    /// Keeps a file with a session.
    ///
    /// # Errors
    /// When it is too large, there are too many, or there is no such session.
    pub async fn add_attachment(
        &self,
        tenant: &str,
        session: &str,
        name: &str,
        media_type: Option<&str>,
        content: Bytes,
    ) -> Result<StoredAttachment, SessionError> {
        let inner = self.ready()?;
        if inner.directory.here(tenant, session).is_none() {
            inner.directory.row(tenant, session).await?;
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
            let message = format!("must have 1 to {NAME_BYTES_MAX} bytes, and no NUL");
            return Err(SessionError::invalid("name", message));
        }
        if content.len() > ATTACHMENT_BYTES_MAX {
            let message = format!("more than {ATTACHMENT_BYTES_MAX} bytes");
            return Err(SessionError::invalid("content", message));
        }
        let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        inner.check_storage(tenant, StorageRequest { stored: bytes, declared: 0 }).await?;
        let id = inner.ids.next("att_");
        let row = AttachmentRow {
            object: format!("attachments/{id}"),
            id,
            tenant: tenant.to_owned(),
            session: session.to_owned(),
            name: name.to_owned(),
            media_type: media_type.map(str::to_owned),
            bytes,
            created_ms: clock::wall_ms(),
        };
        inner.objects.put(&row.object, content).await.map_err(objects)?;
        if let Err(error) = inner.store.attachments.insert(row.clone(), ATTACHMENTS_MAX).await {
            inner.remove_object(&row.object).await;
            return Err(error);
        }
        Ok(attachment(row))
    }

    /// Returns what was given along with a session.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn attachments(
        &self,
        tenant: &str,
        session: &str,
    ) -> Result<Vec<StoredAttachment>, SessionError> {
        let rows = self.ready()?.store.attachments.of_session(tenant, session).await?;
        Ok(rows.into_iter().map(attachment).collect())
    }

    /// An attachment and its content.
    ///
    /// # Errors
    /// When there is no such attachment.
    pub async fn attachment(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<(StoredAttachment, Bytes), SessionError> {
        let inner = self.ready()?;
        let row = inner.store.attachments.find(tenant, id).await?;
        let row = row.ok_or(SessionError::NotFound("attachment"))?;
        let content = inner.objects.get(&row.object).await.map_err(objects)?;
        let content = content.ok_or(SessionError::NotFound("attachment"))?;
        Ok((attachment(row), content))
    }

    /// Removes an attachment.
    ///
    /// # Errors
    /// When there is no such attachment.
    pub async fn delete_attachment(&self, tenant: &str, id: &str) -> Result<(), SessionError> {
        let inner = self.ready()?;
        let row = inner.store.attachments.delete(tenant, id).await?;
        let row = row.ok_or(SessionError::NotFound("attachment"))?;
        inner.remove_object(&row.object).await;
        Ok(())
    }

    /// Returns what turns of a tenant used, together.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn usage_total(
        &self,
        tenant: &str,
        query: UsageQuery,
    ) -> Result<UsageTotal, SessionError> {
        let sum = self.ready()?.store.usage.sum(tenant, query.into()).await?;
        Ok(UsageTotal {
            turns: sum.turns,
            input_tokens: sum.input_tokens,
            output_tokens: sum.output_tokens,
            cache_read_tokens: sum.cache_read_tokens,
            cache_write_tokens: sum.cache_write_tokens,
            cost_usd: sum.cost_usd,
            tool_calls: sum.tool_calls,
            duration_ms: sum.duration_ms,
        })
    }

    /// Returns what turns of a tenant used, one by one, the latest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn usage(
        &self,
        tenant: &str,
        query: UsageQuery,
        limit: usize,
    ) -> Result<Vec<TurnUsageRecord>, SessionError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let rows = self.ready()?.store.usage.list(tenant, query.into(), limit).await?;
        let turn = |row: crate::store::rows::UsageRow| TurnUsageRecord {
            session: row.session,
            turn: row.turn,
            agent: row.agent,
            model: row.model,
            at_ms: row.at_ms,
            used: UsageTotal {
                turns: 1,
                input_tokens: row.input_tokens,
                output_tokens: row.output_tokens,
                cache_read_tokens: row.cache_read_tokens,
                cache_write_tokens: row.cache_write_tokens,
                cost_usd: row.cost_usd,
                tool_calls: row.tool_calls,
                duration_ms: row.duration_ms,
            },
        };
        Ok(rows.into_iter().map(turn).collect())
    }

    /// Keeps something for a face, in place of what it had under this kind and id.
    ///
    /// # Errors
    /// When it is too large.
    pub async fn put_document(
        &self,
        tenant: &str,
        kind: &str,
        id: &str,
        parent: Option<&str>,
        body: Value,
    ) -> Result<(), SessionError> {
        let inner = self.ready()?;
        let text = serde_json::to_string(&body).map_err(SessionError::internal)?;
        if text.len() > DOCUMENT_BYTES_MAX {
            return Err(SessionError::invalid(
                "body",
                format!("more than {DOCUMENT_BYTES_MAX} bytes"),
            ));
        }
        let now_ms = clock::wall_ms();
        let row = DocumentRow {
            tenant: tenant.to_owned(),
            kind: kind.to_owned(),
            id: id.to_owned(),
            parent: parent.map(str::to_owned),
            body,
            created_ms: now_ms,
            updated_ms: now_ms,
        };
        inner.store.documents.put(row).await
    }

    /// Changes something that a face keeps, unless somebody else has changed it meanwhile: then
    /// there is none to go on with.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub(crate) async fn replace_document(
        &self,
        tenant: &str,
        known: &FaceDocument,
        parent: Option<&str>,
        body: Value,
    ) -> Result<Option<FaceDocument>, SessionError> {
        let inner = self.ready()?;
        let updated_ms = clock::wall_ms().max(known.updated_ms + 1);
        let parent = parent.map(str::to_owned);
        let changed = FaceDocument { parent, body, updated_ms, ..known.clone() };
        let row = DocumentRow {
            tenant: tenant.to_owned(),
            kind: changed.kind.clone(),
            id: changed.id.clone(),
            parent: changed.parent.clone(),
            body: changed.body.clone(),
            created_ms: changed.created_ms,
            updated_ms,
        };
        let is_done = inner.store.documents.replace(row, known.updated_ms).await?;
        Ok(is_done.then_some(changed))
    }

    /// Returns how many things a face keeps of one kind: of one parent or of all.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn count_documents(
        &self,
        tenant: &str,
        kind: &str,
        parent: Option<&str>,
    ) -> Result<u64, SessionError> {
        self.ready()?.store.documents.count(tenant, kind, parent).await
    }

    /// Returns whose things of one kind belong to one parent.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn tenants_of_documents(
        &self,
        kind: &str,
        parent: &str,
    ) -> Result<Vec<String>, SessionError> {
        self.ready()?.store.documents.tenants(kind, parent).await
    }

    /// Returns what a face keeps.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn document(
        &self,
        tenant: &str,
        kind: &str,
        id: &str,
    ) -> Result<Option<FaceDocument>, SessionError> {
        Ok(self.ready()?.store.documents.find(tenant, kind, id).await?.map(document))
    }

    /// Returns what a face keeps of one kind, by id: of one parent or of all, after one id.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn documents(
        &self,
        tenant: &str,
        kind: &str,
        parent: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<FaceDocument>, SessionError> {
        let filter = DocumentFilter {
            kind: kind.to_owned(),
            parent: parent.map(str::to_owned),
            after: after.map(str::to_owned),
            limit: limit.clamp(1, PAGE_MAX),
        };
        let rows = self.ready()?.store.documents.list(tenant, filter).await?;
        Ok(rows.into_iter().map(document).collect())
    }

    /// Removes what a face keeps. Whether there was something.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn delete_document(
        &self,
        tenant: &str,
        kind: &str,
        id: &str,
    ) -> Result<bool, SessionError> {
        self.ready()?.store.documents.delete(tenant, kind, id).await
    }
}

pub(super) fn objects(error: node::objects::ObjectsError) -> SessionError {
    SessionError::Unavailable(Box::new(error))
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

fn attachment(row: AttachmentRow) -> StoredAttachment {
    StoredAttachment {
        id: row.id,
        session: row.session,
        name: row.name,
        media_type: row.media_type,
        bytes: row.bytes,
        created_ms: row.created_ms,
    }
}

fn document(row: DocumentRow) -> FaceDocument {
    FaceDocument {
        kind: row.kind,
        id: row.id,
        parent: row.parent,
        body: row.body,
        created_ms: row.created_ms,
        updated_ms: row.updated_ms,
    }
}

#[cfg(test)]
mod tests {
    //! Variables in which programs find secrets.

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
