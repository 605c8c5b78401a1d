//! A client's way in: from its first byte to `AuthenticationOk`.
//!
//! Pure: bytes go in, bytes and a decision come out, and whoever has the socket does what the
//! decision says. It never reads a clock, an address or a configuration, and it hashes for no more
//! than microseconds: secrets come prepared ([`Verifier`]). What was not consumed is presented
//! again, with more behind it.
//!
//! ```text
//! input ─► More ─► … ─► StartTls ─► tls_started ─► … ─► Route ─► routed ─► … ─► Done ─► welcome
//! ```

use std::sync::Arc;

use wire::pg::frame::{self, Header, TransactionStatus};
use wire::pg::message::{ErrorFields, backend};
use wire::pg::scram::{self, Channel, NONCE_BYTES, ScramError, ScramKeys};
use wire::pg::secret::{PASSWORD_BYTES_MAX, Password, Secret, Verifier};
use wire::pg::startup::{self, First, TLS_HANDSHAKE, Version};

mod requested;

pub use requested::{Replication, Requested};

/// Requests for encryption that a client may make before it begins: one for TLS, one for GSSAPI,
/// and one more for the forgetful.
const ENCRYPTION_REQUESTS_MAX: u8 = 3;

/// The longest message with a password or a part of SASL, its head included.
const PASSWORD_MESSAGE_BYTES_MAX: usize = PASSWORD_BYTES_MAX + 64;

/// The newest minor version of protocol 3 that is spoken.
const MINOR_MAX: u16 = 2;

/// What holds for all clients of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginPolicy {
    /// Encryption over TCP. Unix sockets need none and are offered none, as in PostgreSQL.
    pub tls: TlsPolicy,
    /// Where a password may be asked for as it is.
    pub cleartext: CleartextPolicy,
}

/// Encryption of clients' TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPolicy {
    /// Whoever asks is told that there is none.
    Absent,
    /// Whoever asks gets it.
    Offered,
    /// Whoever does not ask is sent away.
    Required,
}

/// Where a password may be asked for as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleartextPolicy {
    /// Over TLS and Unix sockets.
    Protected,
    /// Anywhere: for those who had it so and know what they do.
    Anywhere,
}

/// How the client reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Over TCP.
    Tcp,
    /// Over a Unix socket, with the user id of the process at the other end.
    Unix {
        /// Absent when the kernel would not say.
        uid: Option<u32>,
    },
}

/// What the TLS handshake with a client gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// The server name that the client asked for.
    pub server_name: Option<String>,
    /// Whether both agreed by ALPN on `postgresql`; direct TLS demands it.
    pub is_postgresql: bool,
    /// The hash of our certificate, for binding SCRAM to the channel; absent when its signature
    /// has no hash that is defined for that.
    pub end_point: Option<Vec<u8>>,
    /// The common name in the certificate that the client showed and an authority vouched for.
    pub client_name: Option<String>,
}

/// Random bytes for one login; never used twice.
#[derive(Clone, Copy, Debug)]
pub struct Entropy {
    /// Our part of SCRAM's nonce.
    pub nonce: [u8; NONCE_BYTES],
    /// The salt of an MD5 challenge.
    pub salt: [u8; 4],
}

impl Entropy {
    /// From the kernel.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn random() -> std::io::Result<Entropy> {
        let mut entropy = Entropy { nonce: [0; NONCE_BYTES], salt: [0; 4] };
        getrandom::fill(&mut entropy.nonce).map_err(std::io::Error::from)?;
        getrandom::fill(&mut entropy.salt).map_err(std::io::Error::from)?;
        Ok(entropy)
    }
}

/// How a client that was led to a tenant proves who it is.
#[derive(Clone, Debug)]
pub struct RouteAuth {
    /// The proof.
    pub proof: Proof,
    /// Whether a connection for replication may be had: only where it gets a server connection of
    /// its own.
    pub replication: ReplicationPolicy,
}

/// What a client has to prove.
#[derive(Clone, Debug)]
pub enum Proof {
    /// Nothing, or it has proved it already: by its certificate, by its user id.
    Nothing,
    /// A password.
    Password(Arc<Verifier>, Method),
}

/// How a password is asked for. A user with a SCRAM secret is always asked by SCRAM: it is the only
/// way that costs little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// By SCRAM, or by MD5 if there is nothing but an MD5 secret.
    #[default]
    Best,
    /// By SCRAM.
    Scram,
    /// By MD5.
    Md5,
    /// As it is.
    Cleartext,
}

/// Whether replication is possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicationPolicy {
    /// Server connections are shared.
    #[default]
    Refused,
    /// The client gets a server connection of its own.
    Dedicated,
}

/// Why a client is sent away, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// SQLSTATE.
    pub code: &'static str,
    /// One sentence.
    pub message: String,
    /// What can be done about it.
    pub hint: Option<String>,
    /// What only we need to know.
    pub cause: Option<String>,
}

impl Refusal {
    /// Without a hint.
    #[must_use]
    pub fn new(code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into(), hint: None, cause: None }
    }

    /// The same for somebody whose proof was wrong, or who does not exist.
    #[must_use]
    pub fn wrong_password(user: &str, cause: impl Into<String>) -> Refusal {
        let message = format!("password authentication failed for user \"{user}\"");
        Refusal { cause: Some(cause.into()), ..Refusal::new("28P01", message) }
    }

    /// Appends it as a fatal `ErrorResponse`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let fields = ErrorFields::fatal(self.code, &self.message);
        backend::error(out, &ErrorFields { hint: self.hint.as_deref(), ..fields });
    }
}

/// What to do now. First, what is in `out` is sent.
#[derive(Debug)]
pub enum LoginNext {
    /// Present more bytes.
    More,
    /// Shake hands, beginning with what was not consumed; then call [`Login::tls_started`].
    StartTls,
    /// Lead [`Login::requested`] to a tenant, in whatever time that takes; then call
    /// [`Login::routed`].
    Route,
    /// The client is who it says. It waits for [`welcome`], or for an error.
    Done(Box<Authenticated>),
    /// Not a client but a request to cancel what another one does. Close at once: there is no
    /// answer.
    Cancel {
        /// Whose.
        pid: u32,
        /// Proves that it may.
        key: Vec<u8>,
    },
    /// Close. The client was told, unless it left by itself.
    Fail(Refusal),
}

/// What became of the input.
#[derive(Debug)]
#[must_use]
pub struct LoginStep {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// What to do now.
    pub next: LoginNext,
}

impl LoginStep {
    fn new(consumed: usize, next: LoginNext) -> LoginStep {
        LoginStep { consumed, next }
    }
}

/// A client that has proved who it is.
#[derive(Debug)]
pub struct Authenticated {
    /// What it asked for.
    pub requested: Requested,
    /// What its proof gave away, for tenants whose users are on the server who they are here.
    pub shown: Shown,
    /// What its proof was held against, if it had to prove anything.
    pub verifier: Option<Arc<Verifier>>,
}

/// What a client's proof gave away. Enough to log in to a server in its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing.
    Nothing,
    /// Keys for servers that hold the same SCRAM secret.
    Keys(ScramKeys),
    /// The password.
    Password(Password),
}

/// The login of one client.
#[derive(Debug)]
pub struct Login {
    policy: LoginPolicy,
    reached: Reached,
    entropy: Entropy,
    requests: u8,
    tls: Option<TlsFacts>,
    requested: Option<Requested>,
    state: State,
}

/// What is awaited.
#[derive(Debug)]
enum State {
    /// A first packet.
    First,
    /// The end of a handshake; `direct` when it was begun without asking.
    Handshake { direct: bool },
    /// An answer of [`Login::routed`].
    Routing,
    /// A message with a proof.
    Proof(Arc<Verifier>, Exchange),
    /// Nothing any more.
    Over,
}

#[derive(Debug)]
enum Exchange {
    Cleartext,
    Md5,
    SaslFirst,
    SaslLast(Box<scram::Server>),
}

impl Login {
    /// Of somebody who has just connected.
    #[must_use]
    pub fn new(policy: LoginPolicy, reached: Reached, entropy: Entropy) -> Login {
        let (tls, requested, state) = (None, None, State::First);
        Login { policy, reached, entropy, requests: 0, tls, requested, state }
    }

    /// What the client asks for; there from [`LoginNext::Route`] on, until [`LoginNext::Done`].
    #[must_use]
    pub fn requested(&self) -> Option<&Requested> {
        self.requested.as_ref()
    }

    /// Takes what the client has sent and was not consumed before.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> LoginStep {
        match &self.state {
            State::First if bytes.first() == Some(&TLS_HANDSHAKE) => self.direct_tls(out),
            State::First => self.first(bytes, out),
            State::Handshake { .. } | State::Routing | State::Over => {
                LoginStep::new(0, LoginNext::More)
            }
            State::Proof(..) => self.proof(bytes, out),
        }
    }

    /// Continues behind TLS. What was encrypted is presented from now on.
    pub fn tls_started(&mut self, facts: TlsFacts, out: &mut Vec<u8>) -> LoginStep {
        let State::Handshake { direct } = self.state else {
            return self.fail(0, Refusal::new("08P01", "TLS was not asked for"), out);
        };
        if direct && !facts.is_postgresql {
            // Otherwise a client of another protocol could be made to speak to us (ALPACA attack).
            let message = "direct TLS connection without the ALPN protocol \"postgresql\"";
            return self.fail(0, Refusal::new("08P01", message), out);
        }
        self.tls = Some(facts);
        self.state = State::First;
        LoginStep::new(0, LoginNext::More)
    }

    /// Answers [`LoginNext::Route`].
    pub fn routed(&mut self, answer: Result<RouteAuth, Refusal>, out: &mut Vec<u8>) -> LoginStep {
        let Some(requested) = self.requested.as_ref() else {
            return self.fail(0, Refusal::new("XX000", "nobody asked for a route"), out);
        };
        let auth = match answer {
            Ok(auth) => auth,
            Err(refusal) => return self.fail(0, refusal, out),
        };
        if requested.replication != Replication::None
            && auth.replication == ReplicationPolicy::Refused
        {
            let message = "replication connections need a tenant in session mode";
            return self.fail(0, Refusal::new("0A000", message), out);
        }
        match auth.proof {
            Proof::Nothing => self.done(0, Shown::Nothing, None, out),
            Proof::Password(verifier, method) => match self.exchange(&verifier, method) {
                Ok(exchange) => {
                    self.challenge(&exchange, out);
                    self.state = State::Proof(verifier, exchange);
                    LoginStep::new(0, LoginNext::More)
                }
                Err(refusal) => self.fail(0, refusal, out),
            },
        }
    }

    fn direct_tls(&mut self, out: &mut Vec<u8>) -> LoginStep {
        let possible = self.reached == Reached::Tcp && self.policy.tls != TlsPolicy::Absent;
        if !possible || self.tls.is_some() || self.requests > 0 {
            return self.fail(0, Refusal::new("08P01", "unexpected TLS handshake"), out);
        }
        self.state = State::Handshake { direct: true };
        LoginStep::new(0, LoginNext::StartTls)
    }

    fn first(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> LoginStep {
        let (first, total) = match startup::parse(bytes) {
            Ok(None) => return LoginStep::new(0, LoginNext::More),
            Ok(Some(found)) => found,
            Err(error) => return self.fail(0, Refusal::new("08P01", error.to_string()), out),
        };
        match first {
            First::Ssl | First::Gss => {
                self.requests = self.requests.saturating_add(1);
                let is_last = bytes.len() == total;
                self.encryption(first == First::Ssl, is_last, total, out)
            }
            First::Cancel { pid, key } => {
                self.state = State::Over;
                LoginStep::new(total, LoginNext::Cancel { pid, key: key.to_vec() })
            }
            First::Startup(startup) => match self.startup(&startup, out) {
                Ok(()) => {
                    self.state = State::Routing;
                    LoginStep::new(total, LoginNext::Route)
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
    ) -> LoginStep {
        if self.requests > ENCRYPTION_REQUESTS_MAX {
            let refusal = Refusal::new("08P01", "too many requests for encryption");
            return self.fail(consumed, refusal, out);
        }
        if !is_last {
            // Whoever is in between could have put it there, to be taken for the client's after
            // the handshake (CVE-2021-23214, CVE-2021-3935).
            let refusal =
                Refusal::new("08P01", "received unencrypted data after a request for TLS");
            return self.fail(consumed, refusal, out);
        }
        let possible = self.reached == Reached::Tcp && self.policy.tls != TlsPolicy::Absent;
        if is_tls && possible && self.tls.is_none() {
            out.push(b'S');
            self.state = State::Handshake { direct: false };
            return LoginStep::new(consumed, LoginNext::StartTls);
        }
        out.push(b'N');
        LoginStep::new(consumed, LoginNext::More)
    }

    fn startup(
        &mut self,
        startup: &startup::Startup<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let minor = startup.version.minor.min(MINOR_MAX);
        let version = Version { major: startup.version.major, minor };
        let unknown: Vec<&str> = startup
            .parameters()
            .map(|(name, _)| name)
            .filter(|it| it.starts_with("_pq_."))
            .collect();
        if version != startup.version || !unknown.is_empty() {
            // Here and nowhere else, so once.
            backend::negotiate_protocol_version(out, minor, &unknown);
        }
        if self.policy.tls == TlsPolicy::Required
            && self.reached == Reached::Tcp
            && self.tls.is_none()
        {
            return Err(Refusal::new("28000", "this server takes connections with TLS only"));
        }
        let requested = Requested::read(startup, version, self.reached, self.tls.clone())?;
        self.requested = Some(requested);
        Ok(())
    }

    /// How this user is asked for a password.
    fn exchange(&self, verifier: &Verifier, method: Method) -> Result<Exchange, Refusal> {
        let is_md5 = matches!(verifier.secret(), Some(Secret::Md5(_)));
        let is_scram = matches!(verifier.secret(), Some(Secret::Scram(_)));
        let is_protected = self.reached != Reached::Tcp
            || self.tls.is_some()
            || self.policy.cleartext == CleartextPolicy::Anywhere;
        match method {
            Method::Best if is_md5 => Ok(Exchange::Md5),
            Method::Best | Method::Scram => Ok(Exchange::SaslFirst),
            Method::Md5 | Method::Cleartext if is_scram => Ok(Exchange::SaslFirst),
            Method::Md5 => Ok(Exchange::Md5),
            Method::Cleartext if is_protected => Ok(Exchange::Cleartext),
            Method::Cleartext => {
                let message = "a password is asked for over TLS or a Unix socket only";
                Err(Refusal::new("28000", message))
            }
        }
    }

    /// What SCRAM can be bound to.
    fn channel(&self) -> Channel<'_> {
        match self.tls.as_ref().and_then(|tls| tls.end_point.as_deref()) {
            Some(hash) => Channel::EndPoint(hash),
            None => Channel::Unbound,
        }
    }

    fn challenge(&self, exchange: &Exchange, out: &mut Vec<u8>) {
        match exchange {
            Exchange::Cleartext => backend::authentication_cleartext(out),
            Exchange::Md5 => backend::authentication_md5(out, self.entropy.salt),
            Exchange::SaslFirst | Exchange::SaslLast(_) => match self.channel() {
                Channel::EndPoint(_) => {
                    let mechanisms = [scram::MECHANISM_PLUS, scram::MECHANISM];
                    backend::authentication_sasl(out, &mechanisms);
                }
                Channel::Unbound | Channel::NotOffered => {
                    backend::authentication_sasl(out, &[scram::MECHANISM]);
                }
            },
        }
    }

    /// Takes a message with a proof.
    fn proof(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> LoginStep {
        let header = match Header::parse(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => return LoginStep::new(0, LoginNext::More),
            Err(error) => return self.fail(0, Refusal::new("08P01", error.to_string()), out),
        };
        if header.tag == frame::frontend::TERMINATE {
            self.state = State::Over;
            let refusal = Refusal::new("08006", "the client left instead of logging in");
            return LoginStep::new(bytes.len(), LoginNext::Fail(refusal));
        }
        if header.tag != frame::frontend::PASSWORD || header.total > PASSWORD_MESSAGE_BYTES_MAX {
            let refusal = Refusal::new("08P01", "expected a password");
            return self.fail(0, refusal, out);
        }
        let Some(body) = bytes.get(frame::HEADER_BYTES..header.total) else {
            return LoginStep::new(0, LoginNext::More);
        };
        let State::Proof(verifier, exchange) = std::mem::replace(&mut self.state, State::Over)
        else {
            return LoginStep::new(0, LoginNext::More);
        };
        match self.check(&verifier, exchange, body, out) {
            Ok(Checked::Challenged(server)) => {
                self.state = State::Proof(verifier, Exchange::SaslLast(server));
                LoginStep::new(header.total, LoginNext::More)
            }
            Ok(Checked::Right(shown)) => self.done(header.total, shown, Some(verifier), out),
            Err(refusal) => self.fail(header.total, refusal, out),
        }
    }

    fn check(
        &self,
        verifier: &Verifier,
        exchange: Exchange,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Checked, Refusal> {
        let user = self.requested.as_ref().map_or("", |requested| requested.user.as_str());
        match exchange {
            Exchange::SaslFirst => {
                let malformed = || Refusal::new("08P01", "malformed SASL message");
                let (mechanism, data) = sasl_initial(body).ok_or_else(malformed)?;
                let (secret, nonce) = (verifier.scram(), self.entropy.nonce);
                let (server, challenge) =
                    scram::Server::first(secret, self.channel(), mechanism, data, nonce)
                        .map_err(|error| scram_refusal(user, error))?;
                backend::authentication_sasl_continue(out, challenge.as_bytes());
                Ok(Checked::Challenged(Box::new(server)))
            }
            Exchange::SaslLast(server) => {
                let secret = verifier.scram();
                let accepted =
                    server.last(secret, body).map_err(|error| scram_refusal(user, error))?;
                backend::authentication_sasl_final(out, accepted.message.as_bytes());
                Ok(Checked::Right(Shown::Keys(secret.keys(accepted.client_key))))
            }
            Exchange::Md5 | Exchange::Cleartext => {
                let malformed = || Refusal::new("08P01", "malformed password message");
                let Some((0, given)) = body.split_last() else { return Err(malformed()) };
                let right = match exchange {
                    Exchange::Md5 => verifier.accepts_md5(user, self.entropy.salt, given),
                    _ => verifier.accepts_password(given),
                };
                if !right {
                    return Err(Refusal::wrong_password(user, "the password does not match"));
                }
                Ok(Checked::Right(match (exchange, std::str::from_utf8(given)) {
                    (Exchange::Cleartext, Ok(text)) => {
                        Shown::Password(Password::new(text.to_owned()))
                    }
                    _ => Shown::Nothing,
                }))
            }
        }
    }

    fn done(
        &mut self,
        consumed: usize,
        shown: Shown,
        verifier: Option<Arc<Verifier>>,
        out: &mut Vec<u8>,
    ) -> LoginStep {
        let Some(requested) = self.requested.take() else {
            return self.fail(consumed, Refusal::new("XX000", "nobody asked for a route"), out);
        };
        self.state = State::Over;
        backend::authentication_ok(out);
        let authenticated = Authenticated { requested, shown, verifier };
        LoginStep::new(consumed, LoginNext::Done(Box::new(authenticated)))
    }

    fn fail(&mut self, consumed: usize, refusal: Refusal, out: &mut Vec<u8>) -> LoginStep {
        self.state = State::Over;
        refusal.write(out);
        LoginStep::new(consumed, LoginNext::Fail(refusal))
    }
}

/// What a message with a proof led to.
enum Checked {
    Challenged(Box<scram::Server>),
    Right(Shown),
}

/// The mechanism and the data of a `SASLInitialResponse`.
fn sasl_initial(body: &[u8]) -> Option<(&str, &[u8])> {
    let end = body.iter().position(|byte| *byte == 0)?;
    let (mechanism, rest) = body.split_at_checked(end)?;
    let (length, data) = rest.get(1..)?.split_first_chunk()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    (length == data.len()).then_some(())?;
    Some((std::str::from_utf8(mechanism).ok()?, data))
}

/// A client whose proof is wrong is told no more than that; one that does not speak properly is.
fn scram_refusal(user: &str, error: ScramError) -> Refusal {
    match error {
        ScramError::Proof => Refusal::wrong_password(user, error.to_string()),
        ScramError::ChannelBinding => Refusal::new("28000", error.to_string()),
        ScramError::Malformed(_)
        | ScramError::Unsupported(_)
        | ScramError::Nonce
        | ScramError::Signature
        | ScramError::Iterations(_)
        | ScramError::Refused => Refusal::new("08P01", error.to_string()),
    }
}

/// Appends what follows `AuthenticationOk`: the parameters of the client's server, the process id
/// and key for cancelling that we made for it, and that it may begin.
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
