//! What a relay and the links of the protocols tell each other.
//!
//! A link is pure and stands between a client's session and a server connection's. The relay owns
//! the sockets and knows of the protocols what is here, and nothing else.

mod dialer;
mod door;
mod legs;

use wire::pg::exchange::ExchangeError;
use wire::pg::frame::FrameError;
use wire::prohibitions::TextProhibitions;

pub use dialer::{ServerCredentials, ServerDialNext, ServerDialer, ServerGreeting};
pub(crate) use door::MYSQL_PLUGIN;
pub use door::{
    AuthRequirement, AuthenticatedClient, ClientLoginNext, ClientLoginStep, ClientProofRequest,
    LoginMachine, ProtocolKeyrings, UnresolvedLogin,
};
pub(crate) use legs::put_mysql_error;
pub use legs::{ClientLink, ProtocolLinks, ServerLink};

/// Prohibitions of a text that is too long to be read: readers are refused such texts for other
/// reasons.
pub(crate) const OF_UNSEEN_TEXTS: TextProhibitions =
    TextProhibitions { for_sandboxes: Some("a text of more than 1 MiB"), ..TextProhibitions::NONE };

/// Tells a client that may only read why `what` is not let through.
pub(crate) fn not_for_readers(what: &str) -> String {
    format!(
        "the tenant is read-only: {what} is refused, which a read-only transaction would not stop; \
         it needs access to write"
    )
}

/// Tells code in a sandbox why `what` is not let through.
pub(crate) fn not_for_sandboxes(what: &str) -> String {
    format!(
        "{what} is refused in sandboxes, which see no passwords and no statements of others; \
         run it from outside"
    )
}

/// A client, for the whole process; also the process number that it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub u32);

/// How links behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Statements that a server connection keeps prepared.
    pub prepared_statements_max: usize,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self { prepared_statements_max: 200 }
    }
}

/// Where bytes go.
#[derive(Debug)]
pub struct LinkOutputs<'a> {
    /// Appended to: what the client is to get.
    pub to_client: &'a mut Vec<u8>,
    /// Appended to: what the server is to get.
    pub to_server: &'a mut Vec<u8>,
}

/// What became of a client's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromClient {
    /// Bytes that are dealt with. The rest is to be presented again.
    pub consumed: usize,
    /// With fewer unconsumed bytes than this nothing will happen.
    pub want: usize,
    /// What to do.
    pub next: ClientNext,
}

/// What to do about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientNext {
    /// Read on.
    Read,
    /// Present the rest again after the server has said something; reading on makes no progress.
    Wait,
    /// Answered much without a server: present the rest again once it has taken that.
    Drain,
    /// It needs a server connection: attach one, then present the rest.
    NeedServer,
    /// The relay's listener has to hear the session's `wanted_channels` first; then present the
    /// rest.
    NeedListener,
    /// It wants what another client does to end. The session's `kill_answered` is due, then the
    /// rest.
    Kill {
        /// The client that is meant, as it was told.
        id: u32,
        /// True if its connection is to end, not just what it does.
        connection: bool,
    },
    /// It logs in anew on the same connection: the session keeps what it said of that.
    ChangeUser,
    /// It does not hold its server connection any more, which is idle. Present the rest again.
    Released,
    /// It said good bye.
    Terminate,
    /// It was told why it cannot stay: close it once that is sent.
    Refuse,
}

/// What became of a server's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromServer {
    /// Bytes that are dealt with. The rest is to be presented again, with more.
    pub consumed: usize,
    /// What to do.
    pub next: ServerNext,
}

/// What to do about a server connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerNext {
    /// Read on.
    Read,
    /// Its client does not hold it any more. It is idle.
    Released,
    /// Nobody held it, and now it is clean.
    Idle,
    /// It failed its client, who was told why: close both, once that is sent.
    Failed,
    /// It cannot be used any more.
    Broken(ServerFailure),
}

/// Why a server connection cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerFailure {
    /// It sent what is no message.
    #[error("read a message of the server")]
    Frame(#[from] FrameError),
    /// It sent a message that does not follow.
    #[error("follow the server's replies")]
    Exchange(#[from] ExchangeError),
    /// It sent what does not belong there.
    #[error("{0}")]
    Protocol(Box<str>),
    /// It sent a message that is not as it has to be.
    #[error("read a message of type {tag:#04x} and {bytes} bytes of the server")]
    Malformed {
        /// The message's first byte.
        tag: u8,
        /// Length.
        bytes: usize,
    },
    /// It said that it closes.
    #[error("the server closes the connection: {message}")]
    Closing {
        /// The code of the error.
        code: Box<str>,
        /// What it said.
        message: Box<str>,
    },
    /// What its client may have left behind cannot be told.
    #[error("learn what is left behind at the server connection: {message}")]
    Probe {
        /// What the server said, or what is wrong with it.
        message: Box<str>,
    },
    /// What a client left behind could not be taken away.
    #[error("reset the server connection: {message}")]
    Reset {
        /// What the server said.
        message: Box<str>,
    },
}

/// What the owner of the sockets has to do for a server connection whose client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureAction {
    /// A statement runs, of which nobody wants the result: cancel it, then read on until the
    /// connection is idle.
    Cancel,
    /// Read on until it is idle.
    Draining,
    /// Idle.
    Idle,
    /// It cannot be brought back to where it was: close it.
    Close,
}
