//! Subjects of requests, and the lookup of their owners.

use crate::auth::TokenPrincipal;
use crate::cluster::placement::WorkKind;
use crate::http::FastHead;
use crate::task::Boxed;

/// Subject of a request that one node owns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestSubject {
    /// A session, by its id.
    Session(String),
    /// The events of an execution, by its id, which are at the node that runs it. Attaching is
    /// possible only there.
    Execution {
        /// Id of the execution.
        id: String,
        /// True if the caller asks for a WebSocket, by which it may attach.
        is_socket: bool,
        /// True if the caller asks to attach.
        attaches: bool,
    },
    /// A node itself, by its id.
    Node(String),
    /// New work, which goes where there is room; with a key that is the same for work that should
    /// be at the same nodes.
    Work(WorkKind, String),
    /// New work that the receiving node does, unless a limit of its caller has its homes elsewhere.
    LimitedWork(WorkKind),
    /// Subject whose owner is not stored: the nodes are queried at this internal path.
    Asked(String),
    /// The body names it, if it is short.
    InBody,
}

/// Owner of a request's subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectOwner {
    /// This node may answer.
    This,
    /// This node owns it.
    Node(String),
    /// Another node owns it: the nodes are queried at this internal path.
    Other(String),
}

/// Finds the owners of subjects.
pub trait RequestLocator: Send + Sync {
    /// Returns the subject of a request at the named listener, if only one node can answer it.
    fn subject(&self, listener: &str, head: FastHead<'_>) -> Option<RequestSubject>;

    /// Returns the subject that a request's body names.
    fn subject_in(&self, path: &str, body: &[u8]) -> Option<RequestSubject>;

    /// Returns the homes of the limit that work of a caller counts towards; none if there is no
    /// such limit, or it has a part at every node. It must not block.
    fn limit_homes(&self, kind: WorkKind, caller: &TokenPrincipal) -> Option<Vec<String>>;

    /// Returns the owner of a subject. `is_fresh` queries the store even if an owner is cached.
    fn owner<'a>(&'a self, subject: &'a RequestSubject, is_fresh: bool) -> Boxed<'a, SubjectOwner>;
}
