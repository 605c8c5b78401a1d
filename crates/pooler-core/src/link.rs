//! The interface between the relay and the protocols' links.
//!
//! A link is pure and stands between a client's session and a server connection's. The relay owns
//! the sockets and knows of the protocols what is here, and nothing else.

mod dialer;
mod errors;
mod legs;
mod login;

use wire::pg::exchange::ExchangeError;
use wire::pg::frame::FrameError;
use wire::prohibitions::TextProhibitions;

pub use dialer::{FailureStage, ServerCredentials, ServerDialNext, ServerDialer, ServerGreeting};
pub use errors::{ERROR_CODES_MAX, ErrorTally, ServerErrorCode};
pub use legs::{ClientLink, ProtocolLinks, ServerLink, put_mysql_error};
pub use login::{
    ClientLoginNext, ClientLoginStep, ClientProofRequest, LoggedInClient, LoginMachine,
    MYSQL_PLUGIN, UnresolvedLogin,
};

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

/// Limits and rules of links.
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

/// Buffers that a link writes to.
#[derive(Debug)]
pub struct LinkOutputs<'a> {
    /// Appended to: what the client is to get.
    pub to_client: &'a mut Vec<u8>,
    /// Appended to: what the server is to get.
    pub to_server: &'a mut Vec<u8>,
}

/// Result of presenting a client's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromClient {
    /// Bytes that are dealt with. The rest is to be presented again.
    pub consumed: usize,
    /// With fewer unconsumed bytes than this nothing will happen.
    pub want: usize,
    /// Next step.
    pub next: ClientNext,
}

/// Next step for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientNext {
    /// Read on.
    Read,
    /// Present the rest again after the server has said something; reading on makes no progress.
    Wait,
    /// Answered much without a server: present the rest again once it has taken that.
    Drain,
    /// Needs a server connection: attach one, then present the rest.
    NeedServer,
    /// The relay's listener has to hear the session's `wanted_channels` first; then present the
    /// rest.
    NeedListener,
    /// Asks to end another client's statement or connection. The session's `kill_answered` is due,
    /// then the rest.
    Kill {
        /// The client that is meant, as it was told.
        id: u32,
        /// True if its connection is to end, not just what it does.
        connection: bool,
    },
    /// Logs in anew on the same connection: the session keeps what it said of that.
    ChangeUser,
    /// Has given its server connection back, which is idle. Present the rest again.
    Released,
    /// Ended its session.
    Terminate,
    /// Refused with an error: close it once that is sent.
    Refuse,
}

/// Result of presenting a server's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromServer {
    /// Bytes that are dealt with. The rest is to be presented again, with more.
    pub consumed: usize,
    /// Next step.
    pub next: ServerNext,
}

/// Next step for a server connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerNext {
    /// Read on.
    Read,
    /// Released by its client, and idle.
    Released,
    /// Held by no client, and clean now.
    Idle,
    /// Failed its client, which got an error: close both, once that is sent.
    Failed,
    /// No longer usable.
    Broken(ServerFailure),
}

/// Why a server connection cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerFailure {
    /// Bytes that are no message.
    #[error("read a message of the server")]
    Frame(#[from] FrameError),
    /// A message out of order.
    #[error("follow the server's replies")]
    Exchange(#[from] ExchangeError),
    /// A message that the protocol does not allow there.
    #[error("{0}")]
    Protocol(Box<str>),
    /// A malformed message.
    #[error("read a message of type {tag:#04x} and {bytes} bytes of the server")]
    Malformed {
        /// The message's first byte.
        tag: u8,
        /// Length.
        bytes: usize,
    },
    /// The server announced that it closes.
    #[error("the server closes the connection: {message}")]
    Closing {
        /// The code of the error.
        code: Box<str>,
        /// Text of the server.
        message: Box<str>,
    },
    /// The probe for session state failed.
    #[error("learn what is left behind at the server connection: {message}")]
    Probe {
        /// Text of the server, or what is wrong with it.
        message: Box<str>,
    },
    /// Session state of a client could not be reset.
    #[error("reset the server connection: {message}")]
    Reset {
        /// Text of the server.
        message: Box<str>,
    },
}

/// Task of the sockets' owner for a server connection whose client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureAction {
    /// A statement runs, of which nobody wants the result: cancel it, then read on until the
    /// connection is idle.
    Cancel,
    /// Read on until it is idle.
    Draining,
    /// Idle.
    Idle,
    /// Cannot be reset: close it.
    Close,
}
