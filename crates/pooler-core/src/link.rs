//! The interface between the relay and the protocols' links.
//!
//! A link is pure and stands between a client's session and a server connection's. The relay owns
//! the sockets and knows nothing of the protocols beyond this module.

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

/// Prohibitions of a text that is too long to be parsed: such texts of read-only clients are
/// refused for other reasons.
pub(crate) const OF_UNSEEN_TEXTS: TextProhibitions =
    TextProhibitions { for_sandboxes: Some("a text of more than 1 MiB"), ..TextProhibitions::NONE };

/// Returns the message that refuses `what` to a read-only client.
pub(crate) fn not_for_readers(what: &str) -> String {
    format!(
        "the tenant is read-only: {what} is refused, which a read-only transaction would not stop; \
         it needs access to write"
    )
}

/// Returns the message that refuses `what` to code in a sandbox.
pub(crate) fn not_for_sandboxes(what: &str) -> String {
    format!(
        "{what} is refused in sandboxes, which see no passwords and no statements of others; \
         run it from outside"
    )
}

/// Identifies a client in the process; also the process id that is sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub u32);

/// Limits and rules of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Maximum statements that a server connection keeps prepared.
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
    /// Output for the client, which is appended.
    pub to_client: &'a mut Vec<u8>,
    /// Output for the server, which is appended.
    pub to_server: &'a mut Vec<u8>,
}

/// Result of presenting a client's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromClient {
    /// Bytes that were processed. The rest must be presented again.
    pub consumed: usize,
    /// With fewer unconsumed bytes than this no progress is possible.
    pub want: usize,
    /// Next step.
    pub next: ClientNext,
}

/// Next step for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientNext {
    /// Read more.
    Read,
    /// Present the rest again after output of the server; reading more makes no progress.
    Wait,
    /// Many replies were generated without a server: present the rest again once the client has
    /// read them.
    Drain,
    /// Needs a server connection: attach one, then present the rest.
    NeedServer,
    /// The relay's listener must process the session's `wanted_channels` first; then present the
    /// rest.
    NeedListener,
    /// Ends another client's statement or connection: call the session's `kill_answered`, then
    /// present the rest.
    Kill {
        /// Connection number of the target client, as sent to that client.
        id: u32,
        /// True to end its connection, and not only its statement.
        connection: bool,
    },
    /// Logs in again on the same connection: the session has the payload of that request.
    ChangeUser,
    /// Has returned its server connection, which is idle. Present the rest again.
    Released,
    /// Ended its session.
    Terminate,
    /// Refused with an error: close it once that is sent.
    Refuse,
}

/// Result of presenting a server's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromServer {
    /// Bytes that were processed. The rest must be presented again, with more.
    pub consumed: usize,
    /// Next step.
    pub next: ServerNext,
}

/// Next step for a server connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerNext {
    /// Read more.
    Read,
    /// Released by its client, and idle.
    Released,
    /// Held by no client, and reset.
    Idle,
    /// Its client could not be served and got an error: close both, once that is sent.
    Failed,
    /// No longer usable.
    Broken(ServerFailure),
}

/// Why a server connection cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerFailure {
    /// Input that is not a message.
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
        /// Message of the server.
        message: Box<str>,
    },
    /// The probe for session state failed.
    #[error("learn what is left behind at the server connection: {message}")]
    Probe {
        /// Message of the server, or a description of the error.
        message: Box<str>,
    },
    /// Session state of a client could not be reset.
    #[error("reset the server connection: {message}")]
    Reset {
        /// Message of the server.
        message: Box<str>,
    },
}

/// Action that the relay must take on a server connection whose client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureAction {
    /// A statement runs whose result is not needed: cancel it, then read until the connection is
    /// idle.
    Cancel,
    /// Read until the connection is idle.
    Draining,
    /// Idle.
    Idle,
    /// Cannot be reset: close it.
    Close,
}
