//! Every operation on agents and sessions, without a word of HTTP.
//!
//! [`Sessions`] is what callers have. It is composed (`compose.rs`) of owners, each with its own
//! state and what it needs of others; handlers take an owner from it and call that:
//! `sessions.templates()?.list(tenant)`. What an owner needs is given to it when it is made, so
//! that none of them knows the whole.
//!
//! | owner | state, and what it is asked for |
//! |---|---|
//! | `directory.rs` | sessions that this server works with; their rows, written behind |
//! | `cluster.rs` | the lease, the other nodes, and who goes on with what |
//! | `books.rs`, `admission.rs` | places of sandboxes, and who gives way for them |
//! | `factory.rs`, `starts.rs` | sandboxes: made over a disk, and ended |
//! | `gates.rs`, `grant_authority.rs` | grants of sandboxes, and who may give them |
//! | `credentials.rs` | secrets of tenants |
//! | `launch.rs`, `start_command.rs` | the agent of a session, and what its template starts |
//! | `prewarm.rs` | sandboxes that are made before anybody asks |
//! | `disk_archive.rs`, `prefetch.rs` | files in the object store, and those fetched ahead |
//! | `storage.rs`, `objects.rs` | bounds of what tenants keep; folders and archives |
//! | `lifecycle.rs` | transitions of one session, its sandbox and its turns |
//! | `create.rs`, `fork.rs` | new sessions, copies and snapshots |
//! | `queries.rs` | answers about sessions, which claim and change nothing |
//! | `conversations.rs`, `exec.rs`, `terminals.rs`, `grants.rs` | what callers do in a session |
//! | `agents.rs`, `templates.rs` | agents with their versions; templates with their builds |
//! | `attachments.rs`, `documents.rs`, `usage.rs` | records beside sessions |
//! | `backup.rs` | files of sessions in a backup of the server |
//! | `background.rs` | work that goes on by itself: `lease_keeper.rs`, `takeover.rs`, `drain.rs`, |
//! | | `sweeps.rs`, and `recover.rs` at the start |
//!
//! A session that this server works with is a `SessionEntry` in the directory, which is the truth
//! of it. Sessions that nobody works with are rows, and whoever wants to work with one claims it
//! first.

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
