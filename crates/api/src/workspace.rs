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
        /// Id to attach to it again; only of a terminal that was opened with `detach_s`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<String>,
    },
    /// Attached to a terminal that runs already. Its output follows, from byte `from` on.
    Attached {
        /// Process id inside the sandbox.
        pid: u32,
        /// Id of the terminal.
        terminal: String,
        /// Bytes that the program wrote before the first one that follows.
        from: u64,
        /// Bytes that the program has written so far: `to - from` of them are repeated.
        to: u64,
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

/// Terminal that outlives its WebSocket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "SessionTerminal"))]
pub struct SessionTerminalView {
    /// Names it: `tm_…`.
    pub id: String,
    /// Process id inside the sandbox.
    pub pid: u32,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// State of the terminal.
    pub state: SessionTerminalState,
    /// Seconds that it is kept without a client.
    pub detach_s: u32,
    /// When it was opened (RFC 3339, UTC).
    pub created_at: String,
    /// When it is given up unless a client attaches; absent while one is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Bytes that its program has written.
    pub output_bytes: u64,
    /// Bytes of them that a client can still have repeated.
    pub kept_bytes: u64,
}

/// State of a terminal that outlives its WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionTerminalState {
    /// A client is attached.
    Attached,
    /// The program runs without a client.
    Detached,
    /// The program has ended; its last output and its end are kept for a client.
    Ended,
}

/// Answer of `GET /v1/sessions/{id}/terminals`: oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionTerminalList {
    /// Terminals that a client can attach to.
    pub terminals: Vec<SessionTerminalView>,
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
