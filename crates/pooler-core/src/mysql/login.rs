//! A client's login: from the greeting to its authentication.
//!
//! Pure, like [`pg::login`](crate::pg::login), whose types for policies, refusals and transports it
//! uses. In MySQL the server sends first, before anything is known of the client, so that version,
//! capabilities and the nonce are the same for all tenants.
//!
//! ```text
//! greet ─► input ─► More ─► … ─► StartTls ─► tls_started ─► … ─► Route
//!                                                   Route ─► routed ─► … ─► Done ─► welcome
//! ```
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase.html>

use std::sync::Arc;

use wire::mysql::auth::{
    self, AuthNonce, AuthPlugin, FastAuthResult, MysqlVerifier, NativeKey, Sha2Key,
};
use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::frame::{self, PacketHeader};
use wire::mysql::handshake::{self, ChangeUser, FirstReply, HandshakeError, ServerHello};
use wire::mysql::packet::{self, OkPacket};
use wire::pg::secret::PlainPassword;

use super::COLLATION;
use super::own_key::{KeyPair, OwnKey};
use crate::pg::login::{CleartextPolicy, ClientTransport, PgLoginRefusal, TlsFacts, TlsPolicy};

mod check;
mod errors;
mod requested;

pub use check::{PasswordCheck, PasswordCheckResult};
pub use errors::{errno_of, put_refusal, put_refusal_unasked};
pub use requested::MysqlLoginRequest;

/// Maximum packet of an unauthenticated client. Cloud tokens are passwords of some kilobytes, and
/// drivers send many attributes.
pub const PACKET_BYTES_MAX: usize = 64 << 10;

/// Capabilities that every client is offered: without compression, which would hide packets from
/// the relay, and without changes of the result format that not all servers support.
pub const OFFERED: CapabilityFlags = CapabilityFlags::LONG_PASSWORD
    .union(CapabilityFlags::LONG_FLAG)
    .union(CapabilityFlags::CONNECT_WITH_DB)
    .union(CapabilityFlags::PROTOCOL_41)
    .union(CapabilityFlags::INTERACTIVE)
    .union(CapabilityFlags::IGNORE_SPACE)
    .union(CapabilityFlags::TRANSACTIONS)
    .union(CapabilityFlags::SECURE_CONNECTION)
    .union(CapabilityFlags::MULTI_STATEMENTS)
    .union(CapabilityFlags::MULTI_RESULTS)
    .union(CapabilityFlags::PS_MULTI_RESULTS)
    .union(CapabilityFlags::PLUGIN_AUTH)
    .union(CapabilityFlags::PLUGIN_AUTH_LENENC_CLIENT_DATA)
    .union(CapabilityFlags::CONNECT_ATTRS)
    .union(CapabilityFlags::SESSION_TRACK)
    .union(CapabilityFlags::DEPRECATE_EOF);

/// Policy for all clients of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MysqlLoginPolicy {
    /// Encryption over TCP. Unix sockets need none and are offered none.
    pub tls: TlsPolicy,
    /// Rule on where cleartext passwords may be requested.
    pub cleartext: CleartextPolicy,
    /// The method of the greeting, [`AuthPlugin::Native`] or [`AuthPlugin::CachingSha2`]. Users
    /// whose secret is for the other one get a second request.
    pub plugin: AuthPlugin,
    /// Capabilities beyond [`OFFERED`]: `FOUND_ROWS`, `LOCAL_FILES`.
    pub more: CapabilityFlags,
}

/// Proof that a client of a tenant has to give.
#[derive(Clone, Debug)]
pub enum MysqlProof {
    /// None, or one that was given already: by a certificate, by a user id.
    Nothing,
    /// A password.
    Password {
        /// Verifier of its proof.
        verifier: Arc<MysqlVerifier>,
        /// Method by which the password is requested.
        method: MysqlPasswordMethod,
        /// Key for clients that send the password itself over an unencrypted connection.
        key: Arc<OwnKey>,
    },
}

/// Method by which a password is requested. Users with a stored secret are asked by the method of
/// the secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MysqlPasswordMethod {
    /// The method of the greeting, or the client's own if that is suitable.
    #[default]
    Best,
    /// Cleartext, by `mysql_clear_password`.
    Cleartext,
}

/// Next step. The content of `out` must be sent first.
#[derive(Debug)]
pub enum MysqlLoginNext {
    /// Present more bytes.
    More,
    /// Perform the TLS handshake, beginning with the unconsumed input; then call
    /// [`MysqlLogin::tls_started`].
    StartTls,
    /// Resolve the tenant of [`MysqlLogin::requested`], which may take any time; then call
    /// [`MysqlLogin::routed`].
    Route,
    /// Run this check where it delays nothing else; then call [`MysqlLogin::checked`].
    Check(Box<PasswordCheck>),
    /// The client is authenticated. It waits for [`welcome`], or for [`put_refusal`].
    Done(Box<MysqlAuthenticatedClient>),
    /// Close, or refuse the change of the user and close. The client received the error, unless it
    /// left by itself.
    Fail(PgLoginRefusal),
}

/// Result of presenting input.
#[derive(Debug)]
#[must_use]
pub struct MysqlLoginStep {
    /// Bytes of the input that were processed.
    pub consumed: usize,
    /// Next step.
    pub next: MysqlLoginNext,
}

impl MysqlLoginStep {
    fn new(consumed: usize, next: MysqlLoginNext) -> MysqlLoginStep {
        MysqlLoginStep { consumed, next }
    }
}

/// An authenticated client.
#[derive(Debug)]
pub struct MysqlAuthenticatedClient {
    /// Request.
    pub requested: MysqlLoginRequest,
    /// Secret that its proof disclosed, for tenants whose users are the same on the server.
    pub shown: MysqlDisclosedSecret,
    /// Verifier of its proof, if it had to give one.
    pub verifier: Option<Arc<MysqlVerifier>>,
    /// Sequence number of the packet that the client waits for.
    pub seq: u8,
}

/// Secret that a client's proof disclosed. It suffices to log in to a server as the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MysqlDisclosedSecret {
    /// None.
    Nothing,
    /// Key for `mysql_native_password`.
    Native(NativeKey),
    /// Key for `caching_sha2_password` at a server that has the password in its cache.
    Sha2(Sha2Key),
    /// The password.
    Password(PlainPassword),
}

/// The login of one client.
#[derive(Debug)]
pub struct MysqlLogin {
    policy: MysqlLoginPolicy,
    reached: ClientTransport,
    nonce: AuthNonce,
    /// Sequence number of the next packet from either side.
    seq: u8,
    tls: Option<TlsFacts>,
    requested: Option<MysqlLoginRequest>,
    /// The proof that was sent with the name, without a request.
    given: Option<ClientProof>,
    state: MysqlLoginState,
}

/// A proof with its method; `None` for unsupported methods.
#[derive(Debug)]
struct ClientProof {
    plugin: Option<AuthPlugin>,
    answer: Vec<u8>,
}

/// State of a login: the expected packet.
#[derive(Debug)]
enum MysqlLoginState {
    /// The first packet: a login, or a request for TLS.
    First,
    /// The end of a handshake.
    Handshake,
    /// The result of [`MysqlLogin::routed`].
    Routing,
    /// A proof by this method. It is ignored if no proof is required.
    Proof(AuthPlugin, Option<ExpectedProof>),
    /// The password, possibly encrypted; with the key for that, if it was sent.
    Full(ExpectedProof, Option<Arc<KeyPair>>),
    /// The result of [`MysqlLogin::checked`].
    Checking(ExpectedProof),
    /// Finished.
    Over,
}

/// Expected proof.
#[derive(Clone, Debug)]
struct ExpectedProof {
    verifier: Arc<MysqlVerifier>,
    key: Arc<OwnKey>,
}

/// A session that continues as another user.
#[derive(Clone, Debug)]
pub struct ChangeOf {
    /// Policy of its listener.
    pub policy: MysqlLoginPolicy,
    /// Transport.
    pub reached: ClientTransport,
    /// Result of its TLS handshake.
    pub tls: Option<TlsFacts>,
    /// Capabilities of both sides, as agreed on at its first login.
    pub capabilities: CapabilityFlags,
    /// The collation of its former session.
    pub collation: u16,
    /// Random, and never used before.
    pub nonce: AuthNonce,
}

impl MysqlLogin {
    /// Starts the login of a client that has just connected. `nonce` is random and never used
    /// twice.
    #[must_use]
    pub fn new(policy: MysqlLoginPolicy, reached: ClientTransport, nonce: AuthNonce) -> MysqlLogin {
        let (tls, requested, given, state) = (None, None, None, MysqlLoginState::First);
        MysqlLogin { policy, reached, nonce, seq: 0, tls, requested, given, state }
    }

    /// Creates the login of a client that has authenticated elsewhere, and waits for the packet of
    /// this number.
    #[must_use]
    pub fn proved(reached: ClientTransport, seq: u8) -> MysqlLogin {
        let policy = MysqlLoginPolicy {
            tls: TlsPolicy::Absent,
            cleartext: CleartextPolicy::Protected,
            plugin: AuthPlugin::Native,
            more: CapabilityFlags::NONE,
        };
        let login = MysqlLogin::new(policy, reached, AuthNonce::new([0; auth::NONCE_BYTES]));
        MysqlLogin { seq, state: MysqlLoginState::Over, ..login }
    }

    /// Appends the greeting: the version, and the client's connection number.
    pub fn greet(&mut self, thread_id: u32, server_version: &str, out: &mut Vec<u8>) {
        let hello = ServerHello {
            version: server_version.as_bytes(),
            thread_id,
            nonce: self.nonce,
            capabilities: self.offered(),
            collation: COLLATION,
            status: StatusFlags::AUTOCOMMIT,
            plugin: self.policy.plugin.name().as_bytes(),
        };
        let mut payload = Vec::new();
        hello.write(&mut payload);
        frame::put_packet(out, &mut self.seq, &payload);
    }

    /// Starts again from a `COM_CHANGE_USER`, including the command's byte. The client then waits
    /// for the same packets as at a login.
    pub fn change_user(
        of: ChangeOf,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> (MysqlLogin, MysqlLoginNext) {
        let mut login = MysqlLogin::new(of.policy, of.reached, of.nonce);
        login.seq = 1;
        login.tls = of.tls.clone();
        let read = ChangeUser::parse(payload, of.capabilities).map_err(|it| bad_handshake(&it));
        let requested = read.and_then(|change| {
            MysqlLoginRequest::of_change(&change, of.capabilities, of.collation, of.reached, of.tls)
        });
        match requested {
            Ok(requested) => {
                login.requested = Some(requested);
                login.state = MysqlLoginState::Routing;
                (login, MysqlLoginNext::Route)
            }
            Err(refusal) => {
                let next = login.fail(0, refusal, out).next;
                (login, next)
            }
        }
    }

    /// Returns the client's request; available from [`MysqlLoginNext::Route`] to
    /// [`MysqlLoginNext::Done`].
    #[must_use]
    pub fn requested(&self) -> Option<&MysqlLoginRequest> {
        self.requested.as_ref()
    }

    /// Returns the sequence number of the next packet from either side.
    #[must_use]
    pub fn seq(&self) -> u8 {
        self.seq
    }

    /// Processes input from the client that was not consumed before.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> MysqlLoginStep {
        if matches!(
            self.state,
            MysqlLoginState::Handshake
                | MysqlLoginState::Routing
                | MysqlLoginState::Checking(_)
                | MysqlLoginState::Over
        ) {
            return MysqlLoginStep::new(0, MysqlLoginNext::More);
        }
        let Some(header) = PacketHeader::parse(bytes) else {
            return MysqlLoginStep::new(0, MysqlLoginNext::More);
        };
        if header.len > PACKET_BYTES_MAX {
            let refusal = PgLoginRefusal::new("08P01", "a packet too long for a login");
            return self.fail(0, refusal, out);
        }
        let Some(payload) = bytes.get(frame::HEADER_BYTES..header.total()) else {
            return MysqlLoginStep::new(0, MysqlLoginNext::More);
        };
        if header.seq != self.seq {
            return self.fail(0, PgLoginRefusal::new("08P01", "packets out of order"), out);
        }
        self.seq = self.seq.wrapping_add(1);
        match std::mem::replace(&mut self.state, MysqlLoginState::Over) {
            MysqlLoginState::First => self.first(payload, header.total(), out),
            MysqlLoginState::Proof(plugin, expected) => {
                self.proof(plugin, expected, payload, header.total(), out)
            }
            MysqlLoginState::Full(expected, pair) => {
                self.full(expected, pair, payload, header.total(), out)
            }
            MysqlLoginState::Handshake
            | MysqlLoginState::Routing
            | MysqlLoginState::Checking(_)
            | MysqlLoginState::Over => MysqlLoginStep::new(0, MysqlLoginNext::More),
        }
    }

    /// Continues after the TLS handshake. From now on the decrypted input is presented.
    pub fn tls_started(&mut self, facts: TlsFacts, out: &mut Vec<u8>) -> MysqlLoginStep {
        if !matches!(self.state, MysqlLoginState::Handshake) {
            return self.fail(0, PgLoginRefusal::new("08P01", "TLS was not asked for"), out);
        }
        self.tls = Some(facts);
        self.state = MysqlLoginState::First;
        MysqlLoginStep::new(0, MysqlLoginNext::More)
    }

    /// Answers [`MysqlLoginNext::Route`].
    pub fn routed(
        &mut self,
        answer: Result<MysqlProof, PgLoginRefusal>,
        out: &mut Vec<u8>,
    ) -> MysqlLoginStep {
        let MysqlLoginState::Routing = std::mem::replace(&mut self.state, MysqlLoginState::Over)
        else {
            return self.fail(0, PgLoginRefusal::new("XX000", "nobody asked for a route"), out);
        };
        match answer {
            Ok(MysqlProof::Nothing) => self.prove_nothing(out),
            Ok(MysqlProof::Password { verifier, method, key }) => {
                self.ask(ExpectedProof { verifier, key }, method, out)
            }
            Err(refusal) => self.fail(0, refusal, out),
        }
    }

    /// Answers [`MysqlLoginNext::Check`].
    pub fn checked(&mut self, answer: PasswordCheckResult, out: &mut Vec<u8>) -> MysqlLoginStep {
        let MysqlLoginState::Checking(expected) =
            std::mem::replace(&mut self.state, MysqlLoginState::Over)
        else {
            return self.fail(0, PgLoginRefusal::new("XX000", "nobody asked for a check"), out);
        };
        match answer {
            PasswordCheckResult::Key(pair) => self.give_key(expected, pair, 0, out),
            PasswordCheckResult::Proof(Some(shown)) => {
                self.done(0, shown, Some(expected.verifier), out)
            }
            PasswordCheckResult::Proof(None) => self.denied(0, true, out),
            PasswordCheckResult::Refused(refusal) => self.fail(0, refusal, out),
        }
    }

    /// Returns the capabilities that this client is offered.
    fn offered(&self) -> CapabilityFlags {
        let has_tls = self.reached == ClientTransport::Tcp && self.policy.tls != TlsPolicy::Absent;
        let tls = if has_tls { CapabilityFlags::SSL } else { CapabilityFlags::NONE };
        OFFERED.union(self.policy.more).union(tls)
    }

    fn first(&mut self, payload: &[u8], consumed: usize, out: &mut Vec<u8>) -> MysqlLoginStep {
        match FirstReply::parse(payload, self.tls.is_some()) {
            Ok(FirstReply::Ssl { .. }) if self.offered().contains(CapabilityFlags::SSL) => {
                self.state = MysqlLoginState::Handshake;
                MysqlLoginStep::new(consumed, MysqlLoginNext::StartTls)
            }
            Ok(FirstReply::Ssl { .. }) => {
                let refusal = PgLoginRefusal::new("08P01", "TLS was not offered");
                self.fail(consumed, refusal, out)
            }
            Ok(FirstReply::Response(response)) => match self.response(&response) {
                Ok(()) => {
                    self.state = MysqlLoginState::Routing;
                    MysqlLoginStep::new(consumed, MysqlLoginNext::Route)
                }
                Err(refusal) => self.fail(consumed, refusal, out),
            },
            Err(error) => self.fail(consumed, bad_handshake(&error), out),
        }
    }

    fn response(
        &mut self,
        response: &handshake::HandshakeResponse<'_>,
    ) -> Result<(), PgLoginRefusal> {
        let needs_tls =
            self.policy.tls == TlsPolicy::Required && self.reached == ClientTransport::Tcp;
        if needs_tls && self.tls.is_none() {
            return Err(PgLoginRefusal::new(
                errors::TLS_ONLY,
                "this server takes connections with TLS only",
            ));
        }
        let known = response.capabilities.intersection(self.offered());
        self.requested =
            Some(MysqlLoginRequest::of_response(response, known, self.reached, self.tls.clone())?);
        self.given = Some(ClientProof {
            plugin: match response.plugin {
                Some(name) => AuthPlugin::of(name),
                None => Some(AuthPlugin::Native), // the client names no plugin
            },
            answer: response.answer.to_vec(),
        });
        Ok(())
    }

    /// Admits a client that needs no proof, once its initial method is complete.
    fn prove_nothing(&mut self, out: &mut Vec<u8>) -> MysqlLoginStep {
        match self.given.take() {
            Some(given) => {
                if given.plugin == Some(AuthPlugin::CachingSha2) && !is_empty(&given.answer) {
                    self.more(&[auth::FAST_RIGHT], out);
                }
                self.done(0, MysqlDisclosedSecret::Nothing, None, out)
            }
            // A client that changes its user expects a nonce in any case.
            None => {
                self.switch(AuthPlugin::Native, out);
                self.state = MysqlLoginState::Proof(AuthPlugin::Native, None);
                MysqlLoginStep::new(0, MysqlLoginNext::More)
            }
        }
    }

    /// Checks the proof that was sent already, or requests another one.
    fn ask(
        &mut self,
        expected: ExpectedProof,
        method: MysqlPasswordMethod,
        out: &mut Vec<u8>,
    ) -> MysqlLoginStep {
        let preferred = match method {
            MysqlPasswordMethod::Best => self.policy.plugin,
            MysqlPasswordMethod::Cleartext if self.is_protected() => AuthPlugin::Clear,
            MysqlPasswordMethod::Cleartext => {
                let message = "password authentication requires TLS or a Unix socket";
                return self.fail(0, PgLoginRefusal::new("28000", message), out);
            }
        };
        let wanted = expected.verifier.plugin(preferred);
        let knows_plugins = self
            .requested
            .as_ref()
            .is_some_and(|it| it.capabilities.contains(CapabilityFlags::PLUGIN_AUTH));
        match self.given.take() {
            Some(ClientProof { plugin: Some(plugin), answer })
                if self.is_fit(plugin, wanted, &expected) =>
            {
                // A client that prefers another method may have sent only its name.
                if plugin == self.policy.plugin || !answer.is_empty() || !knows_plugins {
                    return self.proof(plugin, Some(expected), &answer, 0, out);
                }
            }
            Some(_) if !knows_plugins => {
                let message = format!("the client does not know {}", wanted.name());
                return self.fail(0, PgLoginRefusal::new(errors::METHOD, message), out);
            }
            Some(_) | None => {}
        }
        self.switch(wanted, out);
        self.state = MysqlLoginState::Proof(wanted, Some(expected));
        MysqlLoginStep::new(0, MysqlLoginNext::More)
    }

    /// Returns whether an unrequested proof by `plugin` is acceptable where `wanted` is preferred.
    fn is_fit(&self, plugin: AuthPlugin, wanted: AuthPlugin, expected: &ExpectedProof) -> bool {
        let is_proof = plugin != AuthPlugin::Clear && wanted != AuthPlugin::Clear;
        is_proof && expected.verifier.takes(plugin)
    }

    /// Handles a proof.
    fn proof(
        &mut self,
        plugin: AuthPlugin,
        expected: Option<ExpectedProof>,
        answer: &[u8],
        consumed: usize,
        out: &mut Vec<u8>,
    ) -> MysqlLoginStep {
        let Some(expected) = expected else {
            return self.done(consumed, MysqlDisclosedSecret::Nothing, None, out);
        };
        let verifier = Arc::clone(&expected.verifier);
        let shown = match plugin {
            AuthPlugin::Native => {
                verifier.accepts_native(&self.nonce, answer).map(MysqlDisclosedSecret::Native)
            }
            AuthPlugin::CachingSha2 if is_empty(answer) => None,
            AuthPlugin::CachingSha2 => match verifier.accepts_sha2(&self.nonce, answer) {
                FastAuthResult::Right(key) => {
                    self.more(&[auth::FAST_RIGHT], out);
                    Some(MysqlDisclosedSecret::Sha2(key))
                }
                FastAuthResult::Wrong => None,
                FastAuthResult::Unknown => {
                    self.more(&[auth::FULL], out);
                    self.state = MysqlLoginState::Full(expected, None);
                    return MysqlLoginStep::new(consumed, MysqlLoginNext::More);
                }
            },
            AuthPlugin::Clear => {
                let check = PasswordCheck::password(&expected, answer);
                return self.check(consumed, check, expected);
            }
        };
        match shown {
            Some(shown) => self.done(consumed, shown, Some(verifier), out),
            None => self.denied(consumed, !is_empty(answer), out),
        }
    }

    /// Handles the password of `caching_sha2_password`, or sends the key to encrypt it with.
    fn full(
        &mut self,
        expected: ExpectedProof,
        pair: Option<Arc<KeyPair>>,
        payload: &[u8],
        consumed: usize,
        out: &mut Vec<u8>,
    ) -> MysqlLoginStep {
        let is_secret = self.reached != ClientTransport::Tcp || self.tls.is_some();
        match (payload, pair) {
            _ if is_secret => {
                let check = PasswordCheck::password(&expected, payload);
                self.check(consumed, check, expected)
            }
            // A client that repeats the request without reading would make the pooler buffer all
            // replies.
            ([auth::PUBLIC_KEY], Some(_)) => {
                let refusal = PgLoginRefusal::new("08P01", "the public key was sent already");
                self.fail(consumed, refusal, out)
            }
            ([auth::PUBLIC_KEY], None) => match expected.key.current() {
                Some(pair) => self.give_key(expected, pair, consumed, out),
                None => {
                    let check = PasswordCheck::key(&expected);
                    self.check(consumed, check, expected)
                }
            },
            // Some clients have the key already, from a file.
            (payload, pair) => match pair.or_else(|| expected.key.current()) {
                Some(pair) => {
                    let check = PasswordCheck::hidden(&expected, pair, self.nonce, payload);
                    self.check(consumed, check, expected)
                }
                None => self.denied(consumed, true, out),
            },
        }
    }

    fn give_key(
        &mut self,
        expected: ExpectedProof,
        pair: Arc<KeyPair>,
        consumed: usize,
        out: &mut Vec<u8>,
    ) -> MysqlLoginStep {
        self.more(pair.public_pem().as_bytes(), out);
        self.state = MysqlLoginState::Full(expected, Some(pair));
        MysqlLoginStep::new(consumed, MysqlLoginNext::More)
    }

    /// Waits for a password check on another thread.
    fn check(
        &mut self,
        consumed: usize,
        check: PasswordCheck,
        expected: ExpectedProof,
    ) -> MysqlLoginStep {
        self.state = MysqlLoginState::Checking(expected);
        MysqlLoginStep::new(consumed, MysqlLoginNext::Check(Box::new(check)))
    }

    /// Returns whether a cleartext password may be requested.
    fn is_protected(&self) -> bool {
        self.reached != ClientTransport::Tcp
            || self.tls.is_some()
            || self.policy.cleartext == CleartextPolicy::Anywhere
    }

    fn switch(&mut self, plugin: AuthPlugin, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        handshake::put_switch(&mut payload, plugin.name(), &self.nonce);
        frame::put_packet(out, &mut self.seq, &payload);
    }

    fn more(&mut self, data: &[u8], out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        handshake::put_more(&mut payload, data);
        frame::put_packet(out, &mut self.seq, &payload);
    }

    fn done(
        &mut self,
        consumed: usize,
        shown: MysqlDisclosedSecret,
        verifier: Option<Arc<MysqlVerifier>>,
        out: &mut Vec<u8>,
    ) -> MysqlLoginStep {
        let Some(requested) = self.requested.take() else {
            return self.fail(
                consumed,
                PgLoginRefusal::new("XX000", "nobody asked for a route"),
                out,
            );
        };
        self.state = MysqlLoginState::Over;
        let authenticated = MysqlAuthenticatedClient { requested, shown, verifier, seq: self.seq };
        MysqlLoginStep::new(consumed, MysqlLoginNext::Done(Box::new(authenticated)))
    }

    /// Refuses a client whose proof was wrong, or whose user does not exist.
    fn denied(
        &mut self,
        consumed: usize,
        with_password: bool,
        out: &mut Vec<u8>,
    ) -> MysqlLoginStep {
        let user = self.requested.as_ref().map_or("", |requested| requested.user.as_str());
        let with = if with_password { "YES" } else { "NO" };
        let message = format!("Access denied for user '{user}' (using password: {with})");
        let cause = Some("the password does not match".to_owned());
        self.fail(consumed, PgLoginRefusal { cause, ..PgLoginRefusal::new("28P01", message) }, out)
    }

    fn fail(
        &mut self,
        consumed: usize,
        refusal: PgLoginRefusal,
        out: &mut Vec<u8>,
    ) -> MysqlLoginStep {
        self.state = MysqlLoginState::Over;
        put_refusal(out, &mut self.seq, &refusal);
        MysqlLoginStep::new(consumed, MysqlLoginNext::Fail(refusal))
    }
}

/// Returns the secret that a correct password discloses. It ends with a NUL, which clients send.
fn accepts(verifier: &MysqlVerifier, given: &[u8]) -> Option<MysqlDisclosedSecret> {
    let given = given.strip_suffix(&[0])?;
    let text = std::str::from_utf8(given).ok().filter(|_| verifier.accepts_password(given))?;
    Some(MysqlDisclosedSecret::Password(PlainPassword::new(text.to_owned())))
}

/// Returns whether a proof is that of an empty password.
fn is_empty(answer: &[u8]) -> bool {
    matches!(answer, [] | [0])
}

fn bad_handshake(error: &HandshakeError) -> PgLoginRefusal {
    PgLoginRefusal::new("08P01", error.to_string())
}

/// Appends the confirmation of a login. The session begins with this status.
pub fn welcome(authenticated: &MysqlAuthenticatedClient, status: StatusFlags, out: &mut Vec<u8>) {
    let mut seq = authenticated.seq;
    let ok = OkPacket {
        affected_rows: 0,
        last_insert_id: 0,
        status,
        warnings: 0,
        info: b"",
        changes: b"",
    };
    packet::put_ok(out, &mut seq, &ok, authenticated.requested.capabilities);
}

#[cfg(test)]
mod tests;
