//! Subjects of requests, and the lookup of their owners.

use crate::auth::TokenPrincipal;
use crate::cluster::placement::WorkKind;
use crate::http::FastHead;
use crate::task::Boxed;

/// Thing that one node has, and that a request is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestSubject {
    /// A session, by its id.
    Session(String),
    /// The events of an execution, by its id, which are at the node that runs it. Whoever attaches
    /// has to be there.
    Execution {
        /// Id of the execution.
        id: String,
        /// True if the caller asks for a WebSocket, by which he may attach.
        is_socket: bool,
        /// True if he says that he attaches.
        attaches: bool,
    },
    /// A node itself, by its id.
    Node(String),
    /// New work, which goes where there is room; with what is the same for work that should be at
    /// the same nodes.
    Work(WorkKind, String),
    /// New work that the node does which is asked, unless a limit of its caller lives elsewhere.
    LimitedWork(WorkKind),
    /// Thing that no store knows the node of: which one has it, they say themselves, at this path
    /// that is for nodes alone.
    Asked(String),
    /// The body says it, if it is short.
    InBody,
}

/// Owner of what a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectOwner {
    /// This node may answer.
    This,
    /// This node has it.
    Node(String),
    /// Another node has it: which one, they say themselves, at this path that is for nodes alone.
    Other(String),
}

/// Knows which node has what.
pub trait RequestLocator: Send + Sync {
    /// Thing that a request at the listener of this name is about, if one node alone can answer it.
    fn subject(&self, listener: &str, head: FastHead<'_>) -> Option<RequestSubject>;

    /// Thing that a request is about whose body says it.
    fn subject_in(&self, path: &str, body: &[u8]) -> Option<RequestSubject>;

    /// Returns the homes of the limit that work of a caller counts in: none where that is none, or
    /// lives at every node. It must not block.
    fn limit_homes(&self, kind: WorkKind, caller: &TokenPrincipal) -> Option<Vec<String>>;

    /// Node that has it. `is_fresh` asks the store, also where an answer is remembered.
    fn owner<'a>(&'a self, subject: &'a RequestSubject, is_fresh: bool) -> Boxed<'a, SubjectOwner>;
}
