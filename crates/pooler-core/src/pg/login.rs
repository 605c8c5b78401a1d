//! A client's login: from its first byte to `AuthenticationOk`.
//!
//! Pure: the input is bytes, the output bytes and a decision, which the owner of the socket
//! executes. A login never reads a clock, an address or a configuration, and it hashes for no more
//! than microseconds: secrets are prepared ([`PgVerifier`]). Unconsumed input is presented again,
//! with more bytes.
//!
//! ```text
//! input ─► More ─► … ─► StartTls ─► tls_started ─► … ─► Route ─► routed ─► … ─► Done ─► welcome
//! ```
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-START-UP>
//! - <https://www.postgresql.org/docs/current/sasl-authentication.html>

use std::sync::Arc;

use wire::pg::frame::{self, PgHeader, TransactionStatus};
use wire::pg::message::{ErrorFields, backend};
use wire::pg::scram::{self, ChannelBinding, NONCE_BYTES, ScramError, ScramKeys};
use wire::pg::secret::{PASSWORD_BYTES_MAX, PgSecret, PgVerifier, PlainPassword};
use wire::pg::startup::{self, FirstPacket, ProtocolVersion, TLS_HANDSHAKE};

mod requested;

pub use requested::{PgStartupRequest, ReplicationMode};

/// Maximum requests for encryption of a client before its startup message: one for TLS, one for
/// GSSAPI, and one repetition.
const ENCRYPTION_REQUESTS_MAX: u8 = 3;

/// Maximum message with a password or a part of SASL, including its header.
const PASSWORD_MESSAGE_BYTES_MAX: usize = PASSWORD_BYTES_MAX + 64;

/// The newest supported minor version of protocol 3.
const MINOR_MAX: u16 = 2;

/// Policy for all clients of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgLoginPolicy {
    /// Encryption over TCP. Unix sockets need none and are offered none, as in PostgreSQL.
    pub tls: TlsPolicy,
    /// Rule on where cleartext passwords may be requested.
    pub cleartext: CleartextPolicy,
}

/// Encryption of clients' TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPolicy {
    /// Not available.
    Absent,
    /// Offered to clients that request it.
    Offered,
    /// Required: clients that do not request it are refused.
    Required,
}

/// Rule on where cleartext passwords may be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleartextPolicy {
    /// Over TLS and Unix sockets.
    Protected,
    /// Anywhere: for compatibility with existing installations, at the operator's risk.
    Anywhere,
}

/// Transport of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientTransport {
    /// Over TCP.
    Tcp,
    /// Over a Unix socket, with the user id of the process at the other end.
    Unix {
        /// `None` if the kernel does not report it.
        uid: Option<u32>,
    },
}

/// Result of the TLS handshake with a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// The server name that the client requested.
    pub server_name: Option<String>,
    /// True if both agreed by ALPN on `postgresql`, which direct TLS requires.
    pub is_postgresql: bool,
    /// Hash of the server-side certificate, for SCRAM's channel binding; `None` if its signature
    /// has no hash that is defined for that.
    pub end_point: Option<Vec<u8>>,
    /// The common name in the client's certificate, if an authority verified it.
    pub client_name: Option<String>,
}

/// Random bytes for one login; never used twice.
#[derive(Clone, Copy, Debug)]
pub struct LoginEntropy {
    /// The server's part of SCRAM's nonce.
    pub nonce: [u8; NONCE_BYTES],
    /// The salt of an MD5 challenge.
    pub salt: [u8; 4],
}

impl LoginEntropy {
    /// Returns random bytes of the kernel.
    ///
    /// # Errors
    /// If the kernel provides none.
    pub fn random() -> std::io::Result<LoginEntropy> {
        let mut entropy = LoginEntropy { nonce: [0; NONCE_BYTES], salt: [0; 4] };
        getrandom::fill(&mut entropy.nonce).map_err(std::io::Error::from)?;
        getrandom::fill(&mut entropy.salt).map_err(std::io::Error::from)?;
        Ok(entropy)
    }
}

/// Authentication of a client of a tenant.
#[derive(Clone, Debug)]
pub struct RouteAuth {
    /// The proof.
    pub proof: PgProof,
    /// Rule on replication connections, which are possible only if the client gets a server
    /// connection of its own.
    pub replication: ReplicationPolicy,
}

impl RouteAuth {
    /// Creates the rule for a client that does not replicate.
    #[must_use]
    pub fn of(proof: PgProof) -> RouteAuth {
        RouteAuth { proof, replication: ReplicationPolicy::Refused }
    }
}

/// Proof that a client has to give.
#[derive(Clone, Debug)]
pub enum PgProof {
    /// None, or one that was given already: by a certificate, by a user id.
    Nothing,
    /// A password.
    Password(Arc<PgVerifier>, PgPasswordMethod),
}

/// Method by which a password is requested. A user with a SCRAM secret is always asked by SCRAM,
/// the only cheap method for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PgPasswordMethod {
    /// By SCRAM, or by MD5 if there is only an MD5 secret.
    #[default]
    Best,
    /// By SCRAM.
    Scram,
    /// By MD5.
    Md5,
    /// Cleartext.
    Cleartext,
}

/// Rule on replication connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicationPolicy {
    /// Server connections are shared.
    #[default]
    Refused,
    /// The client gets a server connection of its own.
    Dedicated,
}

/// Why a client is refused, as reported to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgLoginRefusal {
    /// SQLSTATE.
    pub code: &'static str,
    /// Message.
    pub message: String,
    /// Hint for the client.
    pub hint: Option<String>,
    /// Cause, for the log only.
    pub cause: Option<String>,
}

impl PgLoginRefusal {
    /// Creates a refusal without a hint.
    #[must_use]
    pub fn new(code: &'static str, message: impl Into<String>) -> PgLoginRefusal {
        PgLoginRefusal { code, message: message.into(), hint: None, cause: None }
    }

    /// Creates the refusal of a client whose proof was wrong, or whose user does not exist.
    #[must_use]
    pub fn wrong_password(user: &str, cause: impl Into<String>) -> PgLoginRefusal {
        let message = format!("password authentication failed for user \"{user}\"");
        PgLoginRefusal { cause: Some(cause.into()), ..PgLoginRefusal::new("28P01", message) }
    }

    /// Appends the refusal as a fatal `ErrorResponse`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let fields = ErrorFields::fatal(self.code, &self.message);
        backend::error(out, &ErrorFields { hint: self.hint.as_deref(), ..fields });
    }
}

/// Next step. The content of `out` must be sent first.
#[derive(Debug)]
pub enum PgLoginNext {
    /// Present more bytes.
    More,
    /// Perform the TLS handshake, beginning with the unconsumed input; then call
    /// [`PgLogin::tls_started`].
    StartTls,
    /// Resolve the tenant of [`PgLogin::requested`], which may take any time; then call
    /// [`PgLogin::routed`].
    Route,
    /// The client is authenticated. It waits for [`welcome`], or for an error.
    Done(Box<PgAuthenticatedClient>),
    /// A cancel request instead of a login. Close at once: there is no reply.
    Cancel {
        /// Process id to cancel.
        pid: u32,
        /// Key that authorizes the request.
        key: Vec<u8>,
    },
    /// Close. The client received the error, unless it left by itself.
    Fail(PgLoginRefusal),
}

/// Result of presenting input.
#[derive(Debug)]
#[must_use]
pub struct PgLoginStep {
    /// Bytes of the input that were processed.
    pub consumed: usize,
    /// Next step.
    pub next: PgLoginNext,
}

impl PgLoginStep {
    fn new(consumed: usize, next: PgLoginNext) -> PgLoginStep {
        PgLoginStep { consumed, next }
    }
}

/// An authenticated client.
#[derive(Debug)]
pub struct PgAuthenticatedClient {
    /// Request.
    pub requested: PgStartupRequest,
    /// Secret that its proof disclosed, for tenants whose users are the same on the server.
    pub shown: PgDisclosedSecret,
    /// Verifier of its proof, if it had to give one.
    pub verifier: Option<Arc<PgVerifier>>,
}

/// Secret that a client's proof disclosed. It suffices to log in to a server as the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PgDisclosedSecret {
    /// None.
    Nothing,
    /// Keys for servers that hold the same SCRAM secret.
    Keys(ScramKeys),
    /// The password.
    Password(PlainPassword),
}

/// The login of one client.
#[derive(Debug)]
pub struct PgLogin {
    policy: PgLoginPolicy,
    reached: ClientTransport,
    entropy: LoginEntropy,
    requests: u8,
    tls: Option<TlsFacts>,
    requested: Option<PgStartupRequest>,
    state: PgLoginState,
}

/// State of a login: the expected message.
#[derive(Debug)]
enum PgLoginState {
    /// A first packet.
    First,
    /// The end of a handshake; `direct` if the client started it without a request.
    Handshake { direct: bool },
    /// The result of [`PgLogin::routed`].
    Routing,
    /// A message with a proof.
    Proof(Arc<PgVerifier>, ScramExchange),
    /// Finished.
    Over,
}

#[derive(Debug)]
enum ScramExchange {
    Cleartext,
    Md5,
    SaslFirst,
    SaslLast(Box<scram::ScramServer>),
}

impl PgLogin {
    /// Starts the login of a client that has just connected.
    #[must_use]
    pub fn new(policy: PgLoginPolicy, reached: ClientTransport, entropy: LoginEntropy) -> PgLogin {
        let (tls, requested, state) = (None, None, PgLoginState::First);
        PgLogin { policy, reached, entropy, requests: 0, tls, requested, state }
    }

    /// Returns the client's request; available from [`PgLoginNext::Route`] to
    /// [`PgLoginNext::Done`].
    #[must_use]
    pub fn requested(&self) -> Option<&PgStartupRequest> {
        self.requested.as_ref()
    }

    /// Processes input from the client that was not consumed before.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> PgLoginStep {
        match &self.state {
            PgLoginState::First if bytes.first() == Some(&TLS_HANDSHAKE) => self.direct_tls(out),
            PgLoginState::First => self.first(bytes, out),
            PgLoginState::Handshake { .. } | PgLoginState::Routing | PgLoginState::Over => {
                PgLoginStep::new(0, PgLoginNext::More)
            }
            PgLoginState::Proof(..) => self.proof(bytes, out),
        }
    }

    /// Continues after the TLS handshake. From now on the decrypted input is presented.
    pub fn tls_started(&mut self, facts: TlsFacts, out: &mut Vec<u8>) -> PgLoginStep {
        let PgLoginState::Handshake { direct } = self.state else {
            return self.fail(0, PgLoginRefusal::new("08P01", "TLS was not asked for"), out);
        };
        if direct && !facts.is_postgresql {
            // Otherwise a client of another protocol could be redirected to this server (ALPACA
            // attack).
            let message = "direct TLS connection without the ALPN protocol \"postgresql\"";
            return self.fail(0, PgLoginRefusal::new("08P01", message), out);
        }
        self.tls = Some(facts);
        self.state = PgLoginState::First;
        PgLoginStep::new(0, PgLoginNext::More)
    }

    /// Answers [`PgLoginNext::Route`].
    pub fn routed(
        &mut self,
        answer: Result<RouteAuth, PgLoginRefusal>,
        out: &mut Vec<u8>,
    ) -> PgLoginStep {
        let Some(requested) = self.requested.as_ref() else {
            return self.fail(0, PgLoginRefusal::new("XX000", "nobody asked for a route"), out);
        };
        let auth = match answer {
            Ok(auth) => auth,
            Err(refusal) => return self.fail(0, refusal, out),
        };
        if requested.replication != ReplicationMode::None
            && auth.replication == ReplicationPolicy::Refused
        {
            let message = "replication connections need a tenant in session mode";
            return self.fail(0, PgLoginRefusal::new("0A000", message), out);
        }
        match auth.proof {
            PgProof::Nothing => self.done(0, PgDisclosedSecret::Nothing, None, out),
            PgProof::Password(verifier, method) => match self.exchange(&verifier, method) {
                Ok(exchange) => {
                    self.challenge(&exchange, out);
                    self.state = PgLoginState::Proof(verifier, exchange);
                    PgLoginStep::new(0, PgLoginNext::More)
                }
                Err(refusal) => self.fail(0, refusal, out),
            },
        }
    }

    fn direct_tls(&mut self, out: &mut Vec<u8>) -> PgLoginStep {
        let possible = self.reached == ClientTransport::Tcp && self.policy.tls != TlsPolicy::Absent;
        if !possible || self.tls.is_some() || self.requests > 0 {
            return self.fail(0, PgLoginRefusal::new("08P01", "unexpected TLS handshake"), out);
        }
        self.state = PgLoginState::Handshake { direct: true };
        PgLoginStep::new(0, PgLoginNext::StartTls)
    }

    fn first(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> PgLoginStep {
        let (first, total) = match startup::parse(bytes) {
            Ok(None) => return PgLoginStep::new(0, PgLoginNext::More),
            Ok(Some(found)) => found,
            Err(error) => {
                return self.fail(0, PgLoginRefusal::new("08P01", error.to_string()), out);
            }
        };
        match first {
            FirstPacket::Ssl | FirstPacket::Gss => {
                self.requests = self.requests.saturating_add(1);
                let is_last = bytes.len() == total;
                self.encryption(first == FirstPacket::Ssl, is_last, total, out)
            }
            FirstPacket::Cancel { pid, key } => {
                self.state = PgLoginState::Over;
                PgLoginStep::new(total, PgLoginNext::Cancel { pid, key: key.to_vec() })
            }
            FirstPacket::Startup(startup) => match self.startup(&startup, out) {
                Ok(()) => {
                    self.state = PgLoginState::Routing;
                    PgLoginStep::new(total, PgLoginNext::Route)
                }
                Err(refusal) => self.fail(total, refusal, out),
            },
        }
    }

    /// Answers a request for encryption.
    fn encryption(
        &mut self,
        is_tls: bool,
        is_last: bool,
        consumed: usize,
        out: &mut Vec<u8>,
    ) -> PgLoginStep {
        if self.requests > ENCRYPTION_REQUESTS_MAX {
            let refusal = PgLoginRefusal::new("08P01", "too many requests for encryption");
            return self.fail(consumed, refusal, out);
        }
        if !is_last {
            // An attacker on the path could have inserted the data, to pass it as the client's
            // after the handshake (CVE-2021-23214, CVE-2021-3935).
            let refusal =
                PgLoginRefusal::new("08P01", "received unencrypted data after a request for TLS");
            return self.fail(consumed, refusal, out);
        }
        let possible = self.reached == ClientTransport::Tcp && self.policy.tls != TlsPolicy::Absent;
        if is_tls && possible && self.tls.is_none() {
            out.push(b'S');
            self.state = PgLoginState::Handshake { direct: false };
            return PgLoginStep::new(consumed, PgLoginNext::StartTls);
        }
        out.push(b'N');
        PgLoginStep::new(consumed, PgLoginNext::More)
    }

    fn startup(
        &mut self,
        startup: &startup::StartupMessage<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), PgLoginRefusal> {
        let minor = startup.version.minor.min(MINOR_MAX);
        let version = ProtocolVersion { major: startup.version.major, minor };
        let unknown: Vec<&str> = startup
            .parameters()
            .map(|(name, _)| name)
            .filter(|it| it.starts_with("_pq_."))
            .collect();
        if version != startup.version || !unknown.is_empty() {
            // Sent only here, and so once.
            backend::negotiate_protocol_version(out, minor, &unknown);
        }
        if self.policy.tls == TlsPolicy::Required
            && self.reached == ClientTransport::Tcp
            && self.tls.is_none()
        {
            return Err(PgLoginRefusal::new(
                "28000",
                "this server takes connections with TLS only",
            ));
        }
        let requested = PgStartupRequest::read(startup, version, self.reached, self.tls.clone())?;
        self.requested = Some(requested);
        Ok(())
    }

    /// Returns the password exchange for this user.
    fn exchange(
        &self,
        verifier: &PgVerifier,
        method: PgPasswordMethod,
    ) -> Result<ScramExchange, PgLoginRefusal> {
        let is_md5 = matches!(verifier.secret(), Some(PgSecret::Md5(_)));
        let is_scram = matches!(verifier.secret(), Some(PgSecret::Scram(_)));
        let is_protected = self.reached != ClientTransport::Tcp
            || self.tls.is_some()
            || self.policy.cleartext == CleartextPolicy::Anywhere;
        match method {
            PgPasswordMethod::Best if is_md5 => Ok(ScramExchange::Md5),
            PgPasswordMethod::Best | PgPasswordMethod::Scram => Ok(ScramExchange::SaslFirst),
            PgPasswordMethod::Md5 | PgPasswordMethod::Cleartext if is_scram => {
                Ok(ScramExchange::SaslFirst)
            }
            PgPasswordMethod::Md5 => Ok(ScramExchange::Md5),
            PgPasswordMethod::Cleartext if is_protected => Ok(ScramExchange::Cleartext),
            PgPasswordMethod::Cleartext => {
                let message = "password authentication requires TLS or a Unix socket";
                Err(PgLoginRefusal::new("28000", message))
            }
        }
    }

    /// Returns the channel binding for SCRAM.
    fn channel(&self) -> ChannelBinding<'_> {
        match self.tls.as_ref().and_then(|tls| tls.end_point.as_deref()) {
            Some(hash) => ChannelBinding::EndPoint(hash),
            None => ChannelBinding::Unbound,
        }
    }

    fn challenge(&self, exchange: &ScramExchange, out: &mut Vec<u8>) {
        match exchange {
            ScramExchange::Cleartext => backend::authentication_cleartext(out),
            ScramExchange::Md5 => backend::authentication_md5(out, self.entropy.salt),
            ScramExchange::SaslFirst | ScramExchange::SaslLast(_) => match self.channel() {
                ChannelBinding::EndPoint(_) => {
                    let mechanisms = [scram::MECHANISM_PLUS, scram::MECHANISM];
                    backend::authentication_sasl(out, &mechanisms);
                }
                ChannelBinding::Unbound | ChannelBinding::NotOffered => {
                    backend::authentication_sasl(out, &[scram::MECHANISM]);
                }
            },
        }
    }

    /// Handles a message with a proof.
    fn proof(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> PgLoginStep {
        let header = match PgHeader::parse(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => return PgLoginStep::new(0, PgLoginNext::More),
            Err(error) => {
                return self.fail(0, PgLoginRefusal::new("08P01", error.to_string()), out);
            }
        };
        if header.tag == frame::frontend::TERMINATE {
            self.state = PgLoginState::Over;
            let refusal = PgLoginRefusal::new("08006", "the client left instead of logging in");
            return PgLoginStep::new(bytes.len(), PgLoginNext::Fail(refusal));
        }
        if header.tag != frame::frontend::PASSWORD || header.total > PASSWORD_MESSAGE_BYTES_MAX {
            let refusal = PgLoginRefusal::new("08P01", "expected a password");
            return self.fail(0, refusal, out);
        }
        let Some(body) = bytes.get(frame::HEADER_BYTES..header.total) else {
            return PgLoginStep::new(0, PgLoginNext::More);
        };
        let PgLoginState::Proof(verifier, exchange) =
            std::mem::replace(&mut self.state, PgLoginState::Over)
        else {
            return PgLoginStep::new(0, PgLoginNext::More);
        };
        match self.check(&verifier, exchange, body, out) {
            Ok(PgProofOutcome::Challenged(server)) => {
                self.state = PgLoginState::Proof(verifier, ScramExchange::SaslLast(server));
                PgLoginStep::new(header.total, PgLoginNext::More)
            }
            Ok(PgProofOutcome::Right(shown)) => self.done(header.total, shown, Some(verifier), out),
            Err(refusal) => self.fail(header.total, refusal, out),
        }
    }

    fn check(
        &self,
        verifier: &PgVerifier,
        exchange: ScramExchange,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<PgProofOutcome, PgLoginRefusal> {
        let user = self.requested.as_ref().map_or("", |requested| requested.user.as_str());
        match exchange {
            ScramExchange::SaslFirst => {
                let malformed = || PgLoginRefusal::new("08P01", "malformed SASL message");
                let (mechanism, data) = sasl_initial(body).ok_or_else(malformed)?;
                let (secret, nonce) = (verifier.scram(), self.entropy.nonce);
                let (server, challenge) =
                    scram::ScramServer::first(secret, self.channel(), mechanism, data, nonce)
                        .map_err(|error| scram_refusal(user, error))?;
                backend::authentication_sasl_continue(out, challenge.as_bytes());
                Ok(PgProofOutcome::Challenged(Box::new(server)))
            }
            ScramExchange::SaslLast(server) => {
                let secret = verifier.scram();
                let accepted =
                    server.last(secret, body).map_err(|error| scram_refusal(user, error))?;
                backend::authentication_sasl_final(out, accepted.message.as_bytes());
                Ok(PgProofOutcome::Right(PgDisclosedSecret::Keys(secret.keys(accepted.client_key))))
            }
            ScramExchange::Md5 | ScramExchange::Cleartext => {
                let malformed = || PgLoginRefusal::new("08P01", "malformed password message");
                let Some((0, given)) = body.split_last() else { return Err(malformed()) };
                let right = match exchange {
                    ScramExchange::Md5 => verifier.accepts_md5(user, self.entropy.salt, given),
                    _ => verifier.accepts_password(given),
                };
                if !right {
                    return Err(PgLoginRefusal::wrong_password(
                        user,
                        "the password does not match",
                    ));
                }
                Ok(PgProofOutcome::Right(match (exchange, std::str::from_utf8(given)) {
                    (ScramExchange::Cleartext, Ok(text)) => {
                        PgDisclosedSecret::Password(PlainPassword::new(text.to_owned()))
                    }
                    _ => PgDisclosedSecret::Nothing,
                }))
            }
        }
    }

    fn done(
        &mut self,
        consumed: usize,
        shown: PgDisclosedSecret,
        verifier: Option<Arc<PgVerifier>>,
        out: &mut Vec<u8>,
    ) -> PgLoginStep {
        let Some(requested) = self.requested.take() else {
            return self.fail(
                consumed,
                PgLoginRefusal::new("XX000", "nobody asked for a route"),
                out,
            );
        };
        self.state = PgLoginState::Over;
        backend::authentication_ok(out);
        let authenticated = PgAuthenticatedClient { requested, shown, verifier };
        PgLoginStep::new(consumed, PgLoginNext::Done(Box::new(authenticated)))
    }

    fn fail(&mut self, consumed: usize, refusal: PgLoginRefusal, out: &mut Vec<u8>) -> PgLoginStep {
        self.state = PgLoginState::Over;
        refusal.write(out);
        PgLoginStep::new(consumed, PgLoginNext::Fail(refusal))
    }
}

/// Result of a message with a proof.
enum PgProofOutcome {
    Challenged(Box<scram::ScramServer>),
    Right(PgDisclosedSecret),
}

/// Returns the mechanism and the data of a `SASLInitialResponse`.
fn sasl_initial(body: &[u8]) -> Option<(&str, &[u8])> {
    let end = body.iter().position(|byte| *byte == 0)?;
    let (mechanism, rest) = body.split_at_checked(end)?;
    let (length, data) = rest.get(1..)?.split_first_chunk()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    (length == data.len()).then_some(())?;
    Some((std::str::from_utf8(mechanism).ok()?, data))
}

/// Returns the refusal after a SCRAM error: without details for a wrong proof, with details for a
/// violation of the protocol.
fn scram_refusal(user: &str, error: ScramError) -> PgLoginRefusal {
    match error {
        ScramError::Proof => PgLoginRefusal::wrong_password(user, error.to_string()),
        ScramError::ChannelBinding => PgLoginRefusal::new("28000", error.to_string()),
        ScramError::Malformed(_)
        | ScramError::Unsupported(_)
        | ScramError::Nonce
        | ScramError::Signature
        | ScramError::Iterations(_)
        | ScramError::Refused => PgLoginRefusal::new("08P01", error.to_string()),
    }
}

/// Appends the messages after `AuthenticationOk`: the parameters of the client's server, the
/// process id and cancel key that were generated for the client, and `ReadyForQuery`.
pub fn welcome<'a>(
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    pid: u32,
    key: &[u8],
    out: &mut Vec<u8>,
) {
    for (name, value) in parameters {
        backend::parameter_status(out, name, value);
    }
    backend::backend_key_data(out, pid, key);
    backend::ready_for_query(out, TransactionStatus::Idle);
}

#[cfg(test)]
mod tests;
