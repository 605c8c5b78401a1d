//! The pooler's login at a server: from the connected socket to its first `ReadyForQuery`, or to
//! the end of a cancel request.
//!
//! Pure, like [`login`](super::login). The server may be hostile, or an attacker may intercept the
//! connection: a cleartext password is sent only where the recipient is known, the amount of
//! hashing that the server requests is bounded, and unencrypted messages from a server that
//! offers TLS are not trusted.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-START-UP>
//! - <https://www.postgresql.org/docs/current/libpq-ssl.html>

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wire::pg::frame::{self, PgHeader};
use wire::pg::message::frontend;
use wire::pg::notice::ServerNotice;
use wire::pg::scram::{
    self, ChannelBinding, ITERATIONS_DEFAULT, NONCE_BYTES, ScramClient, ScramError,
};
use wire::pg::startup::ProtocolVersion;

use crate::link::FailureStage;

pub use credentials::{PgCredentials, PgCredentialsError};

mod credentials;

/// Maximum length of a server's message during a login.
const MESSAGE_BYTES_MAX: usize = 65_536;

/// Maximum bytes that a server may send until it is ready.
const GREETING_BYTES_MAX: usize = 1 << 20;

/// Lengths of cancel keys, by protocol version 3.2.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 4..=256;

/// Demand for encryption. The handshake decides which certificates are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsRequest {
    /// Never. Always the case over Unix sockets.
    Never,
    /// If the server offers it.
    IfOffered,
    /// Required; otherwise the connection fails.
    Must,
}

/// Knowledge about the peer at a server's address before it has proved anything, which decides
/// whether a cleartext password may be sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerAssurance {
    /// A Unix socket: the connection cannot be intercepted.
    Private,
    /// The TLS handshake verifies that the peer is the server.
    Verified,
    /// The peer's key is not verified, but the operator trusts it (`trust_server_key`).
    Trusted,
    /// An attacker on the path could answer instead of the server, with TLS as well.
    Unknown,
}

impl ServerAssurance {
    /// Allows a cleartext password, or returns the setting that would allow it.
    ///
    /// # Errors
    /// If another party could read it.
    pub fn show_password(self, is_encrypted: bool) -> Result<(), UnverifiedPeer> {
        match (self, is_encrypted) {
            (ServerAssurance::Private, _)
            | (ServerAssurance::Verified | ServerAssurance::Trusted, true) => Ok(()),
            (ServerAssurance::Unknown, true) => Err(UnverifiedPeer(VERIFY_OR_TRUST)),
            (ServerAssurance::Trusted, false) => Err(UnverifiedPeer("`tls = \"require\"`")),
            (ServerAssurance::Verified | ServerAssurance::Unknown, false) => {
                Err(UnverifiedPeer("`tls = \"verify-full\"`"))
            }
        }
    }
}

/// Remedy if the server's key is not known.
pub(crate) const VERIFY_OR_TRUST: &str =
    "`tls = \"verify-full\"`, or else `trust_server_key = true`,";

/// Error of a login whose cleartext password an unknown party could read. It names the setting to
/// change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server asks for the password itself, and could be anybody: {0} is missing in its table of \
     `bouncer.servers`"
)]
pub struct UnverifiedPeer(pub(crate) &'static str);

/// Method by which a PostgreSQL server authenticates the pooler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ServerAuth {
    /// SCRAM-SHA-256, bound to the certificate if possible.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// A hash of the password and a salt.
    #[serde(rename = "md5")]
    Md5,
    /// The cleartext password.
    #[serde(rename = "password")]
    Password,
    /// None: the server trusts the pooler, or accepts its certificate.
    #[serde(rename = "none")]
    None,
}

impl fmt::Display for ServerAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServerAuth::ScramSha256 => "scram-sha-256",
            ServerAuth::Md5 => "md5",
            ServerAuth::Password => "password",
            ServerAuth::None => "none",
        })
    }
}

/// Proofs that a server may request. An attacker at its address receives them, and can test
/// passwords against them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoginRules {
    /// The methods; all if empty.
    pub methods: Vec<ServerAuth>,
    /// Minimum iterations of SCRAM where the server is not verified.
    pub scram_iterations_min: u32,
}

impl Default for LoginRules {
    fn default() -> LoginRules {
        // The default of servers without `scram_iterations`.
        LoginRules { methods: Vec::new(), scram_iterations_min: ITERATIONS_DEFAULT }
    }
}

impl LoginRules {
    fn check(&self, method: ServerAuth) -> Result<(), PgDialError> {
        match self.methods.is_empty() || self.methods.contains(&method) {
            true => Ok(()),
            false => Err(PgDialError::Method(method)),
        }
    }
}

/// Parameters of a login to a server.
#[derive(Clone, Debug)]
pub struct PgDialParams {
    /// The role.
    pub user: String,
    /// The database; `None` for physical replication.
    pub database: Option<String>,
    /// Credentials of the role.
    pub credentials: Arc<PgCredentials>,
    /// Other startup parameters: settings and `replication`.
    pub parameters: Vec<(String, String)>,
    /// Encryption.
    pub tls: TlsRequest,
    /// Rule on where the password may be sent.
    pub assurance: ServerAssurance,
    /// Proofs that the server may request.
    pub rules: LoginRules,
    /// [`ProtocolVersion::V3_0`], which all servers support, or [`ProtocolVersion::V3_2`] for long
    /// keys; servers since PostgreSQL 9.3 that do not support it negotiate 3.0.
    pub version: ProtocolVersion,
}

impl PgDialParams {
    /// Checks the iterations that a server requests for SCRAM. Derived keys have one salt and one
    /// number of iterations, so they prove nothing to a server that requests others.
    fn check_iterations(&self, iterations: u32) -> Result<(), PgDialError> {
        let is_known =
            matches!(self.assurance, ServerAssurance::Private | ServerAssurance::Verified);
        let is_password = matches!(*self.credentials, PgCredentials::Password(..));
        match is_password && !is_known && iterations < self.rules.scram_iterations_min {
            true => Err(PgDialError::Iterations(iterations)),
            false => Ok(()),
        }
    }
}

/// Purpose of a connection.
#[derive(Debug)]
enum PgDialPurpose {
    LogIn(Box<PgDialParams>),
    Cancel { pid: u32, key: Vec<u8> },
}

/// Why a login at a server failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PgDialError {
    /// The server refused it.
    #[error("{message}")]
    Refused {
        /// SQLSTATE.
        code: String,
        /// Message.
        message: String,
    },
    /// The server has no TLS, which is required.
    #[error("the server does not offer TLS")]
    NoTls,
    /// Another protocol, or an attacker on the path.
    #[error("the server violates the protocol: {0}")]
    Protocol(&'static str),
    /// The proof of the password fails; the server may be an impostor.
    #[error("log in by SCRAM")]
    Scram(#[from] ScramError),
    /// The server requests something that is not supported.
    #[error("the server asks for {0}, which Cove does not support")]
    Unsupported(&'static str),
    /// There are no suitable credentials.
    #[error(transparent)]
    Credentials(#[from] PgCredentialsError),
    /// An unverified server requests the password itself.
    #[error(transparent)]
    Unverified(#[from] UnverifiedPeer),
    /// The server requests a proof that the operator does not permit.
    #[error("the server asks for `{0}`, which `require_auth` of its table does not permit")]
    Method(ServerAuth),
    /// The requested proof allows fast guessing, and the server is not verified.
    #[error(
        "the server asks for SCRAM of {0} iterations, which is less than `scram_iterations_min` of \
         its table allows without TLS that verifies it"
    )]
    Iterations(u32),
}

impl PgDialError {
    /// Returns the SQLSTATE for a client that waits for this connection.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            PgDialError::Refused { code, .. } => code,
            PgDialError::Scram(_)
            | PgDialError::Unsupported(_)
            | PgDialError::Credentials(_)
            | PgDialError::Unverified(_)
            | PgDialError::Method(_)
            | PgDialError::Iterations(_) => "28000",
            PgDialError::NoTls | PgDialError::Protocol(_) => "08001",
        }
    }

    /// Returns the stage that the login reached.
    pub fn stage(&self) -> FailureStage {
        match self {
            // `cannot_connect_now`: it is starting, recovering or stopping.
            PgDialError::Refused { code, .. } if code == "57P03" => FailureStage::Connect,
            PgDialError::Refused { .. } => FailureStage::Refused,
            PgDialError::Scram(_)
            | PgDialError::Unsupported(_)
            | PgDialError::Credentials(_)
            | PgDialError::Unverified(_)
            | PgDialError::Method(_)
            | PgDialError::Iterations(_) => FailureStage::Login,
            PgDialError::NoTls | PgDialError::Protocol(_) => FailureStage::Connect,
        }
    }
}

/// Greeting in which a server describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgServerGreeting {
    /// Process id.
    pub pid: u32,
    /// Key that cancels this process's statements; empty if the server sends none.
    pub key: Vec<u8>,
    /// Parameters that it reports, in their order.
    pub parameters: Vec<(String, String)>,
    /// The negotiated version.
    pub version: ProtocolVersion,
    /// True if the connection is encrypted; a cancel request for it must be as well.
    pub is_encrypted: bool,
}

/// Next step of a login. The content of `out` must be sent first.
#[derive(Debug)]
pub enum PgDialNext {
    /// Present more bytes.
    More,
    /// Perform the TLS handshake; then call [`PgDial::tls_started`].
    StartTls,
    /// Logged in and idle.
    Ready(Box<PgServerGreeting>),
    /// The cancel request is in `out`. Once it is sent, wait for the server to close the
    /// connection: by then it has sent the signal.
    Cancelled,
    /// Close.
    Fail(PgDialError),
}

/// Result of feeding input to a login.
#[derive(Debug)]
#[must_use]
pub struct PgDialStep {
    /// Bytes of the input that were processed.
    pub consumed: usize,
    /// Next step.
    pub next: PgDialNext,
}

/// A connection to a server that is being opened.
#[derive(Debug)]
pub struct PgDial {
    errand: PgDialPurpose,
    tls: TlsRequest,
    nonce: [u8; NONCE_BYTES],
    is_encrypted: bool,
    /// Hash of the server's certificate, for SCRAM's channel binding.
    end_point: Option<Vec<u8>>,
    received: usize,
    greeting: PgServerGreeting,
    state: PgDialState,
}

#[derive(Debug)]
enum PgDialState {
    /// Waits for the byte that says whether there is TLS.
    TlsAnswer,
    /// Waits for the end of a handshake.
    Handshake,
    /// Waits for the authentication request.
    Challenge,
    /// Waits for the SCRAM challenge.
    ScramChallenge(Box<ScramClient>),
    /// Waits for the server's own proof.
    ScramFinal(scram::ExpectedSignature),
    /// Waits for `AuthenticationOk`.
    Verdict,
    /// Waits for parameters, a key, `ReadyForQuery`.
    Greeting,
    /// Finished.
    Over,
}

/// Consequence of a message.
enum PgDialFlow {
    Go(PgDialState),
    Stay,
    Ready,
}

impl PgDial {
    /// Creates a login. `nonce` is random and never used twice.
    #[must_use]
    pub fn new(params: PgDialParams, nonce: [u8; NONCE_BYTES]) -> PgDial {
        let (tls, version) = (params.tls, params.version);
        PgDial::of(PgDialPurpose::LogIn(Box::new(params)), tls, version, nonce)
    }

    /// Creates a cancel request for a process of the server, encrypted like that process's
    /// connection.
    #[must_use]
    pub fn cancel(pid: u32, key: Vec<u8>, tls: TlsRequest) -> PgDial {
        PgDial::of(PgDialPurpose::Cancel { pid, key }, tls, ProtocolVersion::V3_0, [0; NONCE_BYTES])
    }

    fn of(
        errand: PgDialPurpose,
        tls: TlsRequest,
        version: ProtocolVersion,
        nonce: [u8; NONCE_BYTES],
    ) -> PgDial {
        let (pid, key, parameters) = (0, Vec::new(), Vec::new());
        let greeting = PgServerGreeting { pid, key, parameters, version, is_encrypted: false };
        let (end_point, state) = (None, PgDialState::TlsAnswer);
        PgDial { errand, tls, nonce, is_encrypted: false, end_point, received: 0, greeting, state }
    }

    /// Starts, once connected.
    pub fn start(&mut self, out: &mut Vec<u8>) -> PgDialNext {
        if self.tls == TlsRequest::Never {
            return self.begin(out);
        }
        frontend::ssl_request(out);
        self.state = PgDialState::TlsAnswer;
        PgDialNext::More
    }

    /// Processes input from the server that was not consumed before.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> PgDialStep {
        let mut consumed = 0;
        loop {
            let rest = bytes.get(consumed..).unwrap_or_default();
            let step = match &self.state {
                PgDialState::Handshake | PgDialState::Over => Ok((0, Some(PgDialNext::More))),
                PgDialState::TlsAnswer => self.tls_answer(rest, out),
                _ => self.message(rest, out),
            };
            match step {
                Ok((more, Some(next))) => return PgDialStep { consumed: consumed + more, next },
                Ok((more, None)) => consumed += more,
                Err(error) => {
                    self.state = PgDialState::Over;
                    return PgDialStep { consumed, next: PgDialNext::Fail(error) };
                }
            }
        }
    }

    /// Continues after the TLS handshake. `end_point` is the hash of the server's certificate by
    /// `tls-server-end-point`, if its signature has one.
    pub fn tls_started(&mut self, end_point: Option<Vec<u8>>, out: &mut Vec<u8>) -> PgDialNext {
        self.is_encrypted = true;
        self.end_point = end_point;
        self.begin(out)
    }

    fn begin(&mut self, out: &mut Vec<u8>) -> PgDialNext {
        match &self.errand {
            PgDialPurpose::Cancel { pid, key } => {
                frontend::cancel_request(out, *pid, key);
                self.state = PgDialState::Over;
                PgDialNext::Cancelled
            }
            PgDialPurpose::LogIn(params) => {
                let database = params.database.as_deref().map(|name| ("database", name));
                let others = params.parameters.iter().map(|(name, value)| (&**name, &**value));
                let all: Vec<(&str, &str)> =
                    [("user", &*params.user)].into_iter().chain(database).chain(others).collect();
                frontend::startup(out, params.version, &all);
                self.state = PgDialState::Challenge;
                PgDialNext::More
            }
        }
    }

    fn tls_answer(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<PgDialNext>), PgDialError> {
        match (bytes, self.tls) {
            ([], _) => Ok((0, Some(PgDialNext::More))),
            ([b'S'], _) => {
                self.state = PgDialState::Handshake;
                Ok((1, Some(PgDialNext::StartTls)))
            }
            // An attacker on the path could have inserted the data, to pass it as the server's
            // after the handshake (CVE-2021-23222).
            ([b'S', ..], _) => Err(PgDialError::Protocol("data follows its offer of TLS")),
            ([b'N', ..], TlsRequest::Must) => Err(PgDialError::NoTls),
            ([b'N', ..], TlsRequest::IfOffered | TlsRequest::Never) => {
                Ok((1, Some(self.begin(out))))
            }
            // An unencrypted error cannot be attributed to the server (CVE-2024-10977).
            ([_, ..], _) => Err(PgDialError::Protocol("no answer to the request for TLS")),
        }
    }

    fn message(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<PgDialNext>), PgDialError> {
        let header = PgHeader::parse(bytes).map_err(|_| PgDialError::Protocol("a length"))?;
        let Some(header) = header else { return Ok((0, Some(PgDialNext::More))) };
        if header.total > MESSAGE_BYTES_MAX {
            return Err(PgDialError::Protocol("a message that is too long"));
        }
        let Some(body) = bytes.get(frame::HEADER_BYTES..header.total) else {
            return Ok((0, Some(PgDialNext::More)));
        };
        self.received = self.received.saturating_add(header.total);
        if self.received > GREETING_BYTES_MAX {
            return Err(PgDialError::Protocol("too much before it is ready"));
        }
        match self.take(header.tag, body, out)? {
            PgDialFlow::Stay => {}
            PgDialFlow::Go(state) => self.state = state,
            PgDialFlow::Ready => {
                self.state = PgDialState::Over;
                self.greeting.is_encrypted = self.is_encrypted;
                let ready = PgDialNext::Ready(Box::new(self.greeting.clone()));
                return Ok((header.total, Some(ready)));
            }
        }
        Ok((header.total, None))
    }

    fn take(&mut self, tag: u8, body: &[u8], out: &mut Vec<u8>) -> Result<PgDialFlow, PgDialError> {
        match tag {
            frame::backend::ERROR => {
                let notice = ServerNotice::parse(body);
                let (code, message) = (notice.code().to_owned(), notice.message().into_owned());
                Err(PgDialError::Refused { code, message })
            }
            frame::backend::NOTICE => Ok(PgDialFlow::Stay),
            frame::backend::NEGOTIATE_PROTOCOL_VERSION => self.negotiated(body),
            frame::backend::AUTHENTICATION => self.authentication(body, out),
            _ => match self.state {
                PgDialState::Greeting => self.greet(tag, body),
                _ => Err(PgDialError::Protocol("a message before it let us in")),
            },
        }
    }

    /// Handles a server that supports only an older version.
    fn negotiated(&mut self, body: &[u8]) -> Result<PgDialFlow, PgDialError> {
        let bad = PgDialError::Protocol("a version that was not asked for");
        let (PgDialState::Challenge, Some((code, rest))) = (&self.state, body.split_first_chunk())
        else {
            return Err(bad);
        };
        // Servers before PostgreSQL 18 send only the minor version.
        let code = u32::from_be_bytes(*code);
        let offered = match ProtocolVersion::from_code(code) {
            ProtocolVersion { major: 0, minor } => ProtocolVersion { major: 3, minor },
            version => version,
        };
        let unknown = rest.first_chunk().map(|count| u32::from_be_bytes(*count));
        let is_less = offered.major == 3 && offered < self.greeting.version;
        if !is_less || unknown != Some(0) {
            return Err(bad);
        }
        self.greeting.version = offered;
        Ok(PgDialFlow::Stay)
    }

    fn authentication(
        &mut self,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<PgDialFlow, PgDialError> {
        let PgDialPurpose::LogIn(params) = &self.errand else { return Ok(PgDialFlow::Stay) };
        let malformed = PgDialError::Protocol("an authentication request");
        let (kind, data) = body.split_first_chunk().ok_or(malformed.clone())?;
        let state = std::mem::replace(&mut self.state, PgDialState::Over);
        match (u32::from_be_bytes(*kind), state) {
            (0, PgDialState::Challenge) => {
                params.rules.check(ServerAuth::None)?;
                Ok(PgDialFlow::Go(PgDialState::Greeting))
            }
            (0, PgDialState::Verdict) => Ok(PgDialFlow::Go(PgDialState::Greeting)),
            (3, PgDialState::Challenge) => {
                params.rules.check(ServerAuth::Password)?;
                params.assurance.show_password(self.is_encrypted)?;
                frontend::password(out, params.credentials.password()?.as_bytes());
                Ok(PgDialFlow::Go(PgDialState::Verdict))
            }
            (5, PgDialState::Challenge) => {
                params.rules.check(ServerAuth::Md5)?;
                let salt = data.try_into().map_err(|_| malformed)?;
                let secret = params.credentials.md5(&params.user)?;
                frontend::password(out, &secret.answer(salt));
                Ok(PgDialFlow::Go(PgDialState::Verdict))
            }
            (10, PgDialState::Challenge) => {
                params.rules.check(ServerAuth::ScramSha256)?;
                let client = self.scram_client(data)?;
                let first = client.first();
                frontend::sasl_initial_response(out, client.mechanism(), first.as_bytes());
                Ok(PgDialFlow::Go(PgDialState::ScramChallenge(Box::new(client))))
            }
            (11, PgDialState::ScramChallenge(client)) => {
                let challenge = client.challenge(data)?;
                params.check_iterations(challenge.iterations)?;
                let keys = params.credentials.scram(&challenge.salt, challenge.iterations)?;
                let (last, expected) = challenge.answer(&keys);
                frontend::sasl_response(out, last.as_bytes());
                Ok(PgDialFlow::Go(PgDialState::ScramFinal(expected)))
            }
            (12, PgDialState::ScramFinal(expected)) => {
                expected.check(data)?;
                Ok(PgDialFlow::Go(PgDialState::Verdict))
            }
            (2 | 7 | 8 | 9, PgDialState::Challenge) => Err(PgDialError::Unsupported("Kerberos")),
            // Includes `AuthenticationOk` in the middle of SCRAM, from an impostor that does not
            // know the secret.
            _ => Err(malformed),
        }
    }

    /// Starts an exchange by the best of the offered mechanisms.
    fn scram_client(&self, offered: &[u8]) -> Result<ScramClient, PgDialError> {
        let has = |name: &str| offered.split(|byte| *byte == 0).any(|it| it == name.as_bytes());
        let channel = match (&self.end_point, has(scram::MECHANISM_PLUS)) {
            (Some(hash), true) => ChannelBinding::EndPoint(hash),
            // The pooler could bind: a server that could as well learns that its offer did not
            // arrive.
            (Some(_), false) => ChannelBinding::NotOffered,
            (None, _) => ChannelBinding::Unbound,
        };
        let client = ScramClient::new(channel, self.nonce);
        if has(client.mechanism()) {
            Ok(client)
        } else {
            Err(PgDialError::Unsupported("an unknown SASL mechanism"))
        }
    }

    fn greet(&mut self, tag: u8, body: &[u8]) -> Result<PgDialFlow, PgDialError> {
        match tag {
            frame::backend::PARAMETER_STATUS => {
                let mut parts = body.split(|byte| *byte == 0).map(String::from_utf8_lossy);
                let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
                    return Err(PgDialError::Protocol("a parameter"));
                };
                let (name, value) = (name.into_owned(), value.into_owned());
                let known = self.greeting.parameters.iter_mut().find(|(one, _)| *one == name);
                match known {
                    Some((_, old)) => *old = value,
                    None => self.greeting.parameters.push((name, value)),
                }
                Ok(PgDialFlow::Stay)
            }
            frame::backend::BACKEND_KEY_DATA => {
                let bad = PgDialError::Protocol("a key for cancelling");
                let (pid, key) = body.split_first_chunk().ok_or(bad.clone())?;
                if !KEY_BYTES.contains(&key.len()) {
                    return Err(bad);
                }
                self.greeting.pid = u32::from_be_bytes(*pid);
                self.greeting.key = key.to_vec();
                Ok(PgDialFlow::Stay)
            }
            frame::backend::READY_FOR_QUERY if body == b"I" => Ok(PgDialFlow::Ready),
            _ => Err(PgDialError::Protocol("a message before it is ready")),
        }
    }
}

#[cfg(test)]
mod tests;
