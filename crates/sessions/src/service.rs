//! Every operation on agents and sessions, independent of HTTP.
//!
//! [`Sessions`] is the service's interface for callers. It consists (`compose.rs`) of components,
//! each with its own state and its dependencies; a handler takes a component from it and calls
//! that: `sessions.templates()?.list(tenant)`. Each component receives its dependencies when it is
//! created, so none of them knows the whole service.
//!
//! | component | state and purpose |
//! |---|---|
//! | `directory.rs` | sessions in use on this server; their rows, written behind |
//! | `cluster.rs` | the lease, the other nodes, and the successors of sessions |
//! | `books.rs`, `admission.rs` | places of sandboxes, and evictions for them |
//! | `factory.rs`, `starts.rs` | sandboxes: made over a disk, and ended |
//! | `gates.rs`, `grant_authority.rs` | grants of sandboxes, and the right to give them |
//! | `credentials.rs` | secrets of tenants |
//! | `launch.rs`, `start_command.rs` | the agent of a session, and its template's start command |
//! | `prewarm.rs` | sandboxes prepared in advance |
//! | `disk_archive.rs`, `prefetch.rs` | files in the object store, and prefetched ones |
//! | `storage.rs`, `objects.rs` | limits on tenants' storage; folders and archives |
//! | `lifecycle.rs` | transitions of one session, its sandbox and its turns |
//! | `create.rs`, `fork.rs` | new sessions, copies and snapshots |
//! | `queries.rs` | read-only queries about sessions, which claim nothing |
//! | `conversations.rs`, `exec.rs`, `terminals.rs`, `grants.rs` | callers' work in a session |
//! | `agents.rs`, `templates.rs` | agents with their versions; templates with their builds |
//! | `attachments.rs`, `documents.rs`, `usage.rs` | records related to sessions |
//! | `backup.rs` | files of sessions in a backup of the server |
//! | `background.rs` | background work: `lease_keeper.rs`, `takeover.rs`, `drain.rs`, |
//! | | `sweeps.rs`, and `recover.rs` at the start |
//!
//! A session in use on this server is a `SessionEntry` in the directory, which is authoritative.
//! Other sessions exist only as rows; a server claims a session before it uses it.

mod activity;
mod admission;
mod agents;
mod archive_queue;
mod attachments;
mod background;
mod backup;
mod base;
mod books;
mod cluster;
mod compose;
pub(crate) mod contexts;
mod conversations;
mod create;
mod credentials;
mod detached;
mod directory;
mod disk_archive;
mod documents;
mod drain;
mod entry;
mod environment;
mod exec;
mod factory;
mod fence;
mod files;
mod fork;
mod gates;
mod grant_authority;
mod grants;
mod launch;
mod lease_keeper;
mod lifecycle;
mod limits;
mod logs;
mod objects;
mod open_turns;
mod operations;
#[cfg(test)]
mod overhead;
mod parts;
mod prefetch;
mod prewarm;
mod programs;
mod queries;
mod recover;
mod requests;
mod sessions;
mod shared;
mod start_command;
mod starts;
mod storage;
mod streams;
mod sweeps;
mod takeover;
pub(crate) mod templates;
mod terminals;
mod usage;
mod views;
mod wanted;

pub use self::activity::SessionActivity;
pub use self::agents::AgentService;
pub use self::agents::folder::FolderEntry;
pub use self::attachments::{ATTACHMENT_BYTES_MAX, SessionAttachments, StoredAttachment};
pub use self::backup::{SessionBackup, SessionFileNames, move_to_server};
pub use self::conversations::{ConversationMessage, SessionConversations};
pub use self::credentials::CredentialVault;
pub use self::documents::{FaceDocument, FaceDocuments};
pub use self::exec::{ExecEvent, ExecStream, SessionCommands};
pub(crate) use self::fence::SessionFence;
pub use self::files::{SandboxGuard, SessionFiles};
pub use self::fork::SessionCopies;
pub use self::grant_authority::GrantAuthority;
pub use self::grants::GrantReaders;
pub(crate) use self::grants::deployed_grants;
pub use self::logs::{AgentLogLine, LogLevel};
pub use self::parts::{HandoverTerms, ReadyNodes, SessionParts};
pub use self::queries::SessionQueries;
pub use self::requests::{CreateExtras, DeadlineAction, ListQuery, SessionUpdate};
pub use self::sessions::Sessions;
pub use self::streams::{EventStream, MessageStream};
pub use self::templates::{SelectedTemplate, TemplateService};
pub use self::usage::{TurnUsageRecord, UsageQuery, UsageReports, UsageTotal};
pub use self::views::{KeptExtras, ListedPage, ListedSession};
