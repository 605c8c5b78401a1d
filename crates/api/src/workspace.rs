//! Content of a session's sandbox (files, commands, terminals) and what is kept beside it.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::session::{CredentialView, FileEntry, SessionExecResult, SnapshotView};

/// Answer of `GET /v1/sessions/{id}/files`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct FileList {
    /// By path.
    pub entries: Vec<FileEntry>,
    /// There is more than was asked for.
    pub truncated: bool,
}

/// Body of `POST /v1/sessions/{id}/files/move`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    /// Path of what is moved.
    pub from: String,
    /// Destination path; an existing file is replaced.
    pub to: String,
}

/// Answer of `PUT /v1/sessions/{id}/archive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ArchiveImported {
    /// Files, directories and links that were unpacked.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// Change of a watched file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct FileChange {
    /// `create`, `write`, `remove`, `rename`, `chmod`; `overflow` when some were lost.
    #[serde(rename = "type")]
    pub kind: String,
    /// From the watched directory on; empty for itself.
    pub path: String,
}

/// Event of a command or a terminal while it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionExecEvent {
    /// Started.
    Started {
        /// Process id inside the sandbox.
        pid: u32,
    },
    /// Output on standard output. Terminals send this as binary messages instead.
    Stdout {
        /// The bytes, in Base64 (RFC 4648 §4).
        data_base64: String,
    },
    /// Output on standard error.
    Stderr {
        /// The bytes, in Base64.
        data_base64: String,
    },
    /// Ended; its output is not repeated here. The last event.
    Ended(SessionExecResult),
    /// No longer available, because its sandbox is gone. The last event.
    Error {
        /// Why.
        error: String,
    },
}

/// Body of `POST /v1/sessions/{id}/fork`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ForkRequest {
    /// Number of copies; one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// Body of `POST /v1/sessions/{id}/snapshots`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SnapshotRequest {
    /// Name of the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Answer of `GET /v1/snapshots` and `GET /v1/sessions/{id}/snapshots`: newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SnapshotList {
    /// This page.
    pub snapshots: Vec<SnapshotView>,
    /// Value of `cursor` for the next page; none on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Body of `POST /v1/credentials`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateCredential {
    /// `anthropic`: the key for the model, which never enters a sandbox. `openai`, `bedrock`,
    /// `custom`: agents get it as `OPENAI_API_KEY`, `AWS_BEARER_TOKEN_BEDROCK`, `CREDENTIAL`.
    pub kind: String,
    /// Label of the credential.
    #[serde(default)]
    pub label: String,
    /// The secret. Stored encrypted, never shown.
    pub secret: String,
}

/// Without the secret, so that no log has it.
impl std::fmt::Debug for CreateCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("CreateCredential");
        text.field("kind", &self.kind).field("label", &self.label).finish_non_exhaustive()
    }
}

/// Answer of `GET /v1/credentials`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct CredentialList {
    /// All of the tenant.
    pub credentials: Vec<CredentialView>,
}

/// A file given along with a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionAttachment {
    /// Names it: `att_…`.
    pub id: String,
    /// The session.
    pub session: String,
    /// Name of the file.
    pub name: String,
    /// Media type of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Bytes.
    pub bytes: u64,
    /// When it was added (milliseconds since 1970).
    pub created_ms: u64,
}

/// Answer of `GET /v1/sessions/{id}/attachments`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionAttachmentList {
    /// All of the session.
    pub attachments: Vec<SessionAttachment>,
}

/// A file of an agent's folder, without its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AgentFileEntry {
    /// Relative, `/`-separated.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Mode 0755 rather than 0644.
    pub executable: bool,
}

/// Answer of `GET /v1/agents/{name}/files`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AgentFileList {
    /// By path.
    pub files: Vec<AgentFileEntry>,
}
