//! The contract between Cove and its callers: request and response types, ids and error codes, and
//! the [operations] of the HTTP interface.
//!
//! `openapi.json` is generated from these types and tables. This crate knows no HTTP library, async
//! or storage, and has no behaviour beyond converting between names and values, because everything
//! else rebuilds when it changes.
//!
//! Principal types: [`ExecutionRequest`] goes in, [`Execution`] with a [`Verdict`] comes out,
//! [`ErrorBody`] when there is nothing to run.
#![forbid(unsafe_code)]

mod agent;
mod console;
mod context;
mod conversation;
mod data;
mod doctor;
mod error;
mod execution;
mod grant;
mod history;
mod job;
pub mod json_message;
mod language;
mod live;
mod node;
mod object;
mod offer;
pub mod operations;
mod scope;
mod session;
mod settings;
mod template;
mod tenant;
mod workspace;

pub use agent::{
    AgentFile, AgentList, AgentOptions, AgentRuntime, AgentSettings, AgentUpdate, AgentVersion,
    AgentVersionList, AgentView, DeployRequest, SessionLimits,
};
pub use console::{
    ConsoleCodeRequest, ConsoleCodeView, ConsoleLogin, ConsoleLoginAnswer, CredentialKind,
    EnabledServices, WhoamiView,
};
pub use context::{
    CellEnd, CellEvent, CellFailure, CellReport, CellResult, CodeContextList, CodeContextState,
    CodeContextView, CreateCodeContext, ExecuteCell, ForkCodeContext,
};
pub use conversation::{
    InterruptAnswer, MessageAnswer, SessionEventList, SessionLogLine, SessionLogs, SessionMessage,
    SessionMessageList, SessionUsage, TurnUsage, UsageReport,
};
pub use data::{
    DataColumn, DataObject, GrantDescription, GrantQuery, GrantQueryResult, QueryColumn,
    QueryLimit, SnapshotFacts,
};
pub use doctor::{CheckStatus, DoctorCheck, DoctorReport, DoctorRun, DoctorView};
pub use error::{ErrorBody, ErrorCode, ErrorDetail};
pub use execution::{
    BytesEncoding, Execution, ExecutionId, ExecutionMode, ExecutionRequest, JudgeProgram, LimitHit,
    LimitSpec, OutputComparison, OutputFile, SourceFile, StageName, StageOutcome, StageResult,
    TerminalSize, TestCase, TestResult, TruncatedStreams, Verdict, WebhookTarget,
};
pub use grant::{
    AuditEvent, AuditOutcome, AuditRecord, AuditRecordList, AuditSummaryGroup, AuditSummaryKey,
    AuditSummaryReport, CatalogGrant, DatabaseGrant, DatabaseGrantLimits, Grant, GrantAccess,
    GrantSummary, HeaderSource, HttpEffect, HttpGrant, HttpGrantLimits, HttpRule, ModelGrant,
};
pub use history::{HistoryReport, HistorySeries, HistoryUnit};
pub use job::{
    BatchAnswer, BatchRequest, ClientMessage, EventBytes, EventKind, ExecutionEvent, ExecutionList,
    ExecutionRecord, ExecutionState, QueueChange, QueueStats, WebhookSecret,
};
pub use language::{LanguageList, LanguageView};
pub use live::{LiveClientMessage, LiveServerMessage, LiveSubscribe};
pub use node::{NodeDrainView, NodeList, NodeLoadView, NodeStatus, NodeView};
pub use offer::{
    CheckedGrant, GrantCheckReport, GrantCheckRequest, GrantOfferLimits, GrantOfferList,
    GrantRefusal, OfferedDatabase, OfferedGrant, OfferedHosts, OfferedModel, OfferedWarehouse,
};
pub use scope::{TokenScope, UnknownScope};
pub use session::{
    CreateSession, CredentialView, FileEntry, MessageContent, MessageRequest, OnDisconnect,
    SandboxCounts, SandboxState, SessionEvent, SessionEventKind, SessionExec, SessionExecResult,
    SessionList, SessionMetrics, SessionState, SessionView, SnapshotView, UpdateSession,
};
pub use settings::{
    ConfigReloaded, ConfigView, SECRET_ADDRESS, SECRET_SETTING, SettingOrigin, SettingOriginKind,
    SettingView, TokenList, TokenView, secret_address, secret_setting,
};
pub use template::{
    BuildTemplate, TagTemplate, TemplateArchive, TemplateBuildList, TemplateBuildStatus,
    TemplateBuildView, TemplateFailure, TemplateList, TemplateLogLine, TemplateLogList,
    TemplateStep, TemplateStepResult, TemplateView,
};
pub use tenant::{
    AuthQuerySpec, BouncerClient, BouncerClientList, BouncerReloaded, BouncerServer,
    BouncerServerList, ClientTransportMode, Percentiles, PoolMode, TenantAdmission, TenantDefaults,
    TenantEngine, TenantHealth, TenantHealthReport, TenantLimitsSpec, TenantList, TenantOrigin,
    TenantSpec, TenantStats, TenantStatsList, TenantUserSpec, TenantView, TlsMode, UserAuth,
    VerifyMode,
};
pub use workspace::{
    AgentFileEntry, AgentFileList, ArchiveImported, CreateCredential, CredentialList, FileChange,
    FileList, ForkRequest, MoveFile, SessionAttachment, SessionAttachmentList, SessionExecEvent,
    SessionTerminalList, SessionTerminalState, SessionTerminalView, SnapshotList, SnapshotRequest,
};
