//! Connections between the nodes of a cluster: HTTP/2 for requests and streams, HTTP/1.1 for each
//! request that takes its connection over, both within TLS 1.3.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9113>
//! - <https://www.rfc-editor.org/rfc/rfc7301>

mod body;
mod client;
mod failures;
mod forward;
mod key;
mod listener;
mod moved;
mod place;
mod protocol;
mod refusal;
mod request;
mod resume;
mod routing;
mod streams;
mod subject;
mod watch;

pub use self::forward::{PeerAnswer, PeerForwarder};
pub use self::key::{ClusterKey, ClusterKeyError};
pub use self::listener::PeerListener;
pub use self::moved::SubjectMoved;
pub use self::protocol::PEER_LISTENER;
pub use self::streams::{OfferedStream, PeerStream, PeerStreamError};
pub use self::subject::{RequestLocator, RequestSubject, SubjectOwner};
