//! The contract between Cove and its callers: request and response types, ids and error codes.
//!
//! `openapi.json` is generated from these types. This crate knows nothing of HTTP, async or
//! storage, and has no behaviour beyond converting between names and values, because everything
//! else rebuilds when it changes.
//!
//! Principal types: [`ExecutionRequest`] goes in, [`Execution`] with a [`Verdict`] comes out,
//! [`ErrorBody`] when there is nothing to run.
#![forbid(unsafe_code)]

mod agent;
mod conversation;
mod error;
mod execution;
mod grant;
mod job;
mod language;
mod object;
mod session;
mod tenant;
mod workspace;

pub use agent::{
    Agent, AgentFile, AgentList, AgentOptions, AgentRuntime, AgentSettings, AgentUpdate,
    AgentVersion, AgentVersionList, DeployRequest, SessionLimits,
};
pub use conversation::{
    Interrupted, MessageAnswer, SessionEventList, SessionLogLine, SessionLogs, SessionMessage,
    SessionMessageList, TurnUsage, Usage, UsageReport,
};
pub use error::{ErrorBody, ErrorCode, ErrorDetail};
pub use execution::{
    Companion, Comparison, Encoding, Execution, ExecutionId, ExecutionRequest, LimitHit, LimitSpec,
    Mode, Outcome, OutputFile, SourceFile, Stage, StageName, TerminalSize, TestCase, TestResult,
    Truncated, Verdict, Webhook,
};
pub use grant::{
    AuditEvent, AuditOutcome, AuditRecord, AuditRecordList, CatalogGrant, DatabaseGrant,
    DatabaseGrantLimits, Grant, GrantAccess, HeaderSource, HttpEffect, HttpGrant, HttpGrantLimits,
    HttpRule, ModelGrant,
};
pub use job::{
    BatchAnswer, BatchRequest, Chunk, ClientMessage, Event, EventKind, ExecutionList,
    ExecutionRecord, QueueChange, QueueStats, State, WebhookSecret,
};
pub use language::{Language, LanguageList};
pub use session::{
    CreateSession, Credential, FileEntry, MessageContent, MessageRequest, OnDisconnect,
    SandboxCounts, SandboxState, Session, SessionEvent, SessionEventKind, SessionExec,
    SessionExecResult, SessionList, SessionMetrics, SessionState, Snapshot, UpdateSession,
};
pub use tenant::{
    AuthQuerySpec, BouncerClient, BouncerClientList, BouncerReloaded, BouncerServer,
    BouncerServerList, Percentiles, PoolMode, Tenant, TenantAdmission, TenantDefaults,
    TenantEngine, TenantHealth, TenantHealthReport, TenantLimitsSpec, TenantList, TenantOrigin,
    TenantSpec, TenantStats, TenantUserSpec, TlsMode, Transport, UserAuth, Verify,
};
pub use workspace::{
    AgentFileEntry, AgentFileList, ArchiveImported, CreateCredential, CredentialList, FileChange,
    FileList, ForkRequest, MoveFile, SessionAttachment, SessionAttachmentList, SessionExecEvent,
    SnapshotList, SnapshotRequest,
};
