//! Every operation on agents and sessions, without a word of HTTP.
//!
//! [`Sessions`] has them; each begins by looking for what it is about among what the caller's
//! tenant has. A session that this server works with is an `Entry` in memory, which is the truth
//! of it; its row is written behind by its log. Sessions that nobody works with are rows, and
//! whoever wants to work with one claims it first.
//!
//! Who does what: `books` says who has a place; `body` makes and ends sandboxes; `lifecycle` moves
//! a session from state to state; `create`, `fork`, `turns`, `exec`, `files` are what callers
//! want; `prewarm`, `sweeps`, `drain` and `recover` go on by themselves.

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

pub use self::activity::SessionActivity;
pub use self::agents::AgentService;
pub use self::agents::folder::FolderEntry;
pub use self::attachments::{ATTACHMENT_BYTES_MAX, SessionAttachments, StoredAttachment};
pub use self::backup::SessionFileNames;
pub use self::conversations::{ConversationMessage, SessionConversations};
pub use self::credentials::CredentialVault;
pub use self::documents::{FaceDocument, FaceDocuments};
pub use self::exec::{ExecEvent, ExecStream};
pub(crate) use self::fence::SessionFence;
pub use self::files::{SandboxGuard, SessionFiles};
pub use self::fork::SessionCopies;
pub use self::logs::{AgentLogLine, LogLevel};
pub use self::parts::{HandoverTerms, ReadyNodes, SessionParts};
pub use self::requests::{CreateExtras, DeadlineAction, ListQuery, SessionUpdate};
pub use self::sessions::Sessions;
pub use self::streams::{EventStream, MessageStream};
pub use self::templates::{SelectedTemplate, TemplateService};
pub use self::usage::{TurnUsageRecord, UsageQuery, UsageReports, UsageTotal};
pub use self::views::{KeptExtras, ListedPage, ListedSession};
