//! The pooler's login at a server of MySQL or MariaDB: from the connected socket to a session with
//! the standard setup, or to the end of a connection that only kills a statement of another
//! session.
//!
//! Pure, like [`pg::dial`](crate::pg::dial), whose types for encryption it uses. The server may be
//! hostile, or an attacker may intercept the connection: a cleartext password is sent only where
//! the recipient is known, and nothing that the server sends before encryption can disable
//! encryption.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase.html>

use std::collections::VecDeque;
use std::sync::Arc;

use wire::mysql::auth::{self, AuthNonce, AuthPlugin};
use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::command::Command;
use wire::mysql::frame::{self, PacketHeader};
use wire::mysql::handshake::{
    self, AuthChallenge, ConnectionAttributes, HandshakeError, HandshakeResponse, ServerHello,
};
use wire::mysql::lenenc::PacketReader;
use wire::mysql::packet::{ErrPacket, OkPacket};
use wire::mysql::reply::{CommandReplyState, ReplyEvent, ReplyKind};

pub use credentials::{MysqlCredentials, MysqlCredentialsError};

use super::own_key::{RsaKeyError, encrypt};
use crate::link::FailureStage;
use crate::pg::dial::{ServerAssurance, TlsRequest, UnverifiedPeer, VERIFY_OR_TRUST};

mod credentials;

/// Maximum length of a server's packet during a login.
const PACKET_BYTES_MAX: usize = 65_536;

/// Maximum packets that a server may send before its verdict. MariaDB tries the methods of a user
/// one after the other, and there are few.
const CHALLENGES_MAX: u8 = 16;

/// Announced maximum length of packets: that of all packets, because they are forwarded.
const CLIENT_PACKET_MAX: u32 = 1 << 30;

/// Capabilities that are requested from every server.
pub const WANTED: CapabilityFlags = CapabilityFlags::LONG_PASSWORD
    .union(CapabilityFlags::LONG_FLAG)
    .union(CapabilityFlags::PROTOCOL_41)
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

/// Makes the server report in OK packets the session state that a statement leaves behind, beyond
/// its default reports. A reset disables that.
///
/// Source: MySQL 8.4, "Server Tracking of Client Session State"; MariaDB has the same variables.
pub const TRACK: &str = "SET session_track_schema=1,session_track_state_change=1,\
                         session_track_system_variables='*',\
                         session_track_transaction_info='STATE'";

/// Makes a session read-only; a reset disables that. The underlying variable's name differs between
/// servers.
pub const READ_ONLY: &str = "SET SESSION TRANSACTION READ ONLY";

/// Query for the server's default `sql_mode`.
const ASK_MODE: &str = "SELECT @@sql_mode";

/// Parameters of a login.
#[derive(Clone, Debug)]
pub struct MysqlDialParams {
    /// The user.
    pub user: String,
    /// Initial schema.
    pub database: Option<String>,
    /// Credentials of the user.
    pub credentials: Arc<MysqlCredentials>,
    /// Encryption.
    pub tls: TlsRequest,
    /// Rule on where the password may be sent, and whether it may be encrypted with a key that the
    /// server sends over a connection without TLS.
    pub assurance: ServerAssurance,
    /// Capabilities beyond [`WANTED`]: `FOUND_ROWS`, `LOCAL_FILES`.
    pub more: CapabilityFlags,
    /// Initial collation, which implies the character set.
    pub collation: u8,
    /// Connection attributes that the server shows.
    pub attributes: Vec<(String, String)>,
    /// Statements that are run before the connection is used; any reply other than OK fails the
    /// login.
    pub statements: Vec<String>,
}

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MysqlDialPurpose {
    LogIn,
    /// Cancels the statement of a thread.
    Cancel(u32),
}

/// Why a login at a server failed.
#[derive(Debug, thiserror::Error)]
pub enum MysqlDialError {
    /// The server refused it.
    #[error("{message} ({errno})")]
    Refused {
        /// Error number of MySQL.
        errno: u16,
        /// SQLSTATE.
        state: [u8; 5],
        /// Message.
        message: String,
    },
    /// The server has no TLS, which is required.
    #[error("the server does not offer TLS")]
    NoTls,
    /// Another protocol, or an attacker on the path.
    #[error("the server violates the protocol: {0}")]
    Protocol(&'static str),
    /// An unsupported version.
    #[error("read the server's greeting")]
    Greeting(#[from] HandshakeError),
    /// A request of the server that cannot be met.
    #[error("the server asks for {0}, which Cove does not support")]
    Unsupported(String),
    /// There are no suitable credentials.
    #[error(transparent)]
    Credentials(#[from] MysqlCredentialsError),
    /// The server's key is unusable.
    #[error("encrypt the password")]
    Key(#[from] RsaKeyError),
    /// An unverified server requests the password itself.
    #[error(transparent)]
    Unverified(#[from] UnverifiedPeer),
}

impl MysqlDialError {
    /// Returns the SQLSTATE for a client that waits for this connection, as
    /// [`login::put_refusal`](super::login::put_refusal) expects it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            MysqlDialError::Refused { errno, .. } => match errno {
                1040 | 1203 => "53300",
                1226 => "53400",
                1044 | 1045 | 1129 | 1130 | 1251 | 1396 | 1698 | 1820 | 1862 | 3118 | 4151 => {
                    "28000"
                }
                1049 => "3D000",
                1053 => "57P01",
                _ => "08006",
            },
            MysqlDialError::Unsupported(_)
            | MysqlDialError::Credentials(_)
            | MysqlDialError::Key(_)
            | MysqlDialError::Unverified(_) => "28000",
            MysqlDialError::NoTls | MysqlDialError::Protocol(_) | MysqlDialError::Greeting(_) => {
                "08001"
            }
        }
    }

    /// Returns the stage that the login reached.
    pub fn stage(&self) -> FailureStage {
        match self {
            MysqlDialError::Refused { .. } => FailureStage::Refused,
            MysqlDialError::Unsupported(_)
            | MysqlDialError::Credentials(_)
            | MysqlDialError::Key(_)
            | MysqlDialError::Unverified(_) => FailureStage::Login,
            MysqlDialError::NoTls | MysqlDialError::Protocol(_) | MysqlDialError::Greeting(_) => {
                FailureStage::Connect
            }
        }
    }

    /// Returns whether the server requires a secret that only clients have: it is alive.
    #[must_use]
    pub fn is_about_secrets(&self) -> bool {
        matches!(self, MysqlDialError::Credentials(_)) || self.code() == "28000"
    }
}

/// Greeting of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlServerGreeting {
    /// Number for the connection, which `KILL` takes.
    pub thread_id: u32,
    /// Version, as reported by the server, including MariaDB's prefix for old replicas.
    pub version: String,
    /// Capabilities of both sides.
    pub capabilities: CapabilityFlags,
    /// Status of the session.
    pub status: StatusFlags,
    /// Initial collation of the session.
    pub collation: u8,
    /// Initial SQL mode of the session.
    pub sql_mode: String,
    /// True if OK packets report the session state that a statement leaves behind.
    pub tracks: bool,
    /// True if the connection is encrypted.
    pub is_encrypted: bool,
}

/// Next step. The content of `out` must be sent first.
#[derive(Debug)]
pub enum MysqlDialNext {
    /// Present more bytes.
    More,
    /// Perform the TLS handshake; then call [`MysqlDial::tls_started`].
    StartTls,
    /// Logged in, set up and idle.
    Ready(Box<MysqlServerGreeting>),
    /// The cancel request was delivered. Close.
    Cancelled,
    /// Close.
    Fail(MysqlDialError),
}

/// Result of presenting input.
#[derive(Debug)]
#[must_use]
pub struct MysqlDialStep {
    /// Bytes of the input that were processed.
    pub consumed: usize,
    /// Next step.
    pub next: MysqlDialNext,
}

/// A connection to a server that is being opened.
#[derive(Debug)]
pub struct MysqlDial {
    params: MysqlDialParams,
    errand: MysqlDialPurpose,
    /// Sequence number of the next packet from either side.
    seq: u8,
    challenges: u8,
    greeting: MysqlServerGreeting,
    /// State of the current reply, if it has rows.
    reply: Option<CommandReplyState>,
    state: MysqlDialState,
}

#[derive(Debug)]
enum MysqlDialState {
    /// Waits for the greeting of the server.
    Hello,
    /// Waits for the end of a handshake.
    Handshake(AuthOffer),
    /// Waits for the verdict on a proof.
    Verdict(AuthOffer),
    /// Waits for a public key, to encrypt the password with.
    PublicKey(AuthNonce),
    /// Waits for replies to statements.
    Answers(VecDeque<PendingStatement>),
    /// Waits for the reply to `KILL`.
    Killed,
    /// Finished.
    Over,
}

/// Authentication that a server offers.
#[derive(Clone, Copy, Debug)]
struct AuthOffer {
    plugin: AuthPlugin,
    nonce: AuthNonce,
}

/// A statement that waits for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingStatement {
    /// Enables the trackers, which the server may not have.
    Track,
    /// Queries the SQL mode.
    Mode,
    /// A statement of the parameters.
    Statement,
}

impl MysqlDial {
    /// Creates a login.
    #[must_use]
    pub fn new(params: MysqlDialParams) -> MysqlDial {
        MysqlDial::of(params, MysqlDialPurpose::LogIn)
    }

    /// Creates a connection that cancels the statement of a server thread, as that thread's user.
    #[must_use]
    pub fn cancel(params: MysqlDialParams, thread_id: u32) -> MysqlDial {
        MysqlDial::of(params, MysqlDialPurpose::Cancel(thread_id))
    }

    fn of(params: MysqlDialParams, errand: MysqlDialPurpose) -> MysqlDial {
        let greeting = MysqlServerGreeting {
            thread_id: 0,
            version: String::new(),
            capabilities: CapabilityFlags::NONE,
            status: StatusFlags::NONE,
            collation: params.collation,
            sql_mode: String::new(),
            tracks: false,
            is_encrypted: false,
        };
        let (reply, state) = (None, MysqlDialState::Hello);
        MysqlDial { params, errand, seq: 0, challenges: 0, greeting, reply, state }
    }

    /// Starts, once connected: the server sends first.
    pub fn start(&mut self, _out: &mut Vec<u8>) -> MysqlDialNext {
        MysqlDialNext::More
    }

    /// Processes input from the server that was not consumed before.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> MysqlDialStep {
        let mut consumed = 0;
        loop {
            let rest = bytes.get(consumed..).unwrap_or_default();
            match self.packet(rest, out) {
                Ok((more, next)) => {
                    consumed += more;
                    if let Some(next) = next {
                        return MysqlDialStep { consumed, next };
                    }
                }
                Err(error) => {
                    self.state = MysqlDialState::Over;
                    return MysqlDialStep { consumed, next: MysqlDialNext::Fail(error) };
                }
            }
        }
    }

    /// Continues after the TLS handshake.
    pub fn tls_started(&mut self, out: &mut Vec<u8>) -> MysqlDialNext {
        match std::mem::replace(&mut self.state, MysqlDialState::Over) {
            MysqlDialState::Handshake(offer) => {
                self.greeting.is_encrypted = true;
                match self.respond(offer, out) {
                    Ok(()) => MysqlDialNext::More,
                    Err(error) => MysqlDialNext::Fail(error),
                }
            }
            _ => MysqlDialNext::Fail(MysqlDialError::Protocol("TLS that was not asked for")),
        }
    }

    /// Processes one packet, if it is complete.
    fn packet(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<MysqlDialNext>), MysqlDialError> {
        let waits = Ok((0, Some(MysqlDialNext::More)));
        if matches!(self.state, MysqlDialState::Handshake(_) | MysqlDialState::Over) {
            return waits;
        }
        let Some(header) = PacketHeader::parse(bytes) else { return waits };
        if header.len > PACKET_BYTES_MAX {
            return Err(MysqlDialError::Protocol("a packet that is too long"));
        }
        let Some(payload) = bytes.get(frame::HEADER_BYTES..header.total()) else { return waits };
        if header.seq != self.seq {
            return Err(MysqlDialError::Protocol("packets out of order"));
        }
        self.seq = self.seq.wrapping_add(1);
        if let Some(error) = ErrPacket::parse(payload) {
            return Ok((header.total(), self.refused(&error, out)?));
        }
        let is_last = bytes.len() == header.total();
        let next = match std::mem::replace(&mut self.state, MysqlDialState::Over) {
            MysqlDialState::Hello => self.hello(payload, is_last, out)?,
            MysqlDialState::Verdict(offer) => self.verdict(offer, payload, out)?,
            MysqlDialState::PublicKey(nonce) => self.public_key(nonce, payload, out)?,
            MysqlDialState::Answers(asked) => self.answered(asked, payload)?,
            MysqlDialState::Killed => {
                OkPacket::parse(payload, self.greeting.capabilities)
                    .ok_or(MysqlDialError::Protocol("an answer to KILL"))?;
                Some(MysqlDialNext::Cancelled)
            }
            MysqlDialState::Handshake(_) | MysqlDialState::Over => Some(MysqlDialNext::More),
        };
        Ok((header.total(), next))
    }

    /// Handles an error from the server.
    fn refused(
        &mut self,
        error: &ErrPacket<'_>,
        _out: &mut Vec<u8>,
    ) -> Result<Option<MysqlDialNext>, MysqlDialError> {
        match &mut self.state {
            // The server has no trackers.
            MysqlDialState::Answers(asked) if asked.front() == Some(&PendingStatement::Track) => {
                asked.pop_front();
                self.greeting.tracks = false;
                self.seq = 1;
                Ok(self.ready_if_done())
            }
            // The thread no longer exists, nor does its statement.
            MysqlDialState::Killed => {
                self.state = MysqlDialState::Over;
                Ok(Some(MysqlDialNext::Cancelled))
            }
            _ => {
                let message = String::from_utf8_lossy(error.message).into_owned();
                Err(MysqlDialError::Refused { errno: error.code, state: error.state, message })
            }
        }
    }

    fn hello(
        &mut self,
        payload: &[u8],
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<MysqlDialNext>, MysqlDialError> {
        let hello = ServerHello::parse(payload)?;
        let mut wanted = WANTED.union(self.params.more);
        if self.params.database.is_some() {
            wanted = wanted.union(CapabilityFlags::CONNECT_WITH_DB);
        }
        // MariaDB omits it to announce that it has capabilities of its own, none of which is used.
        let offered = hello.capabilities.union(CapabilityFlags::LONG_PASSWORD);
        self.greeting.capabilities = wanted.intersection(offered);
        self.greeting.thread_id = hello.thread_id;
        self.greeting.version = String::from_utf8_lossy(hello.version).into_owned();
        let plugin = self.params.credentials.plugin(AuthPlugin::of(hello.plugin));
        let offer = AuthOffer { plugin, nonce: hello.nonce };
        let has_tls = hello.capabilities.contains(CapabilityFlags::SSL);
        match (self.params.tls, has_tls) {
            (TlsRequest::Must, false) => Err(MysqlDialError::NoTls),
            (TlsRequest::Must | TlsRequest::IfOffered, true) => {
                if !is_last {
                    // An attacker on the path could have inserted the data, to pass it as the
                    // server's after the handshake.
                    return Err(MysqlDialError::Protocol("data follows its greeting"));
                }
                let mut payload = Vec::new();
                let capabilities = self.greeting.capabilities;
                let collation = self.params.collation;
                handshake::put_ssl_request(
                    &mut payload,
                    capabilities,
                    CLIENT_PACKET_MAX,
                    collation,
                );
                frame::put_packet(out, &mut self.seq, &payload);
                self.state = MysqlDialState::Handshake(offer);
                Ok(Some(MysqlDialNext::StartTls))
            }
            (TlsRequest::Never, _) | (TlsRequest::IfOffered, false) => {
                self.respond(offer, out)?;
                Ok(None)
            }
        }
    }

    /// Sends the handshake response with a proof.
    fn respond(&mut self, offer: AuthOffer, out: &mut Vec<u8>) -> Result<(), MysqlDialError> {
        let answer = self.params.credentials.answer(offer.plugin, &offer.nonce)?;
        let mut attributes = Vec::new();
        for (name, value) in &self.params.attributes {
            ConnectionAttributes::put(&mut attributes, name, value);
        }
        let tls = match self.greeting.is_encrypted {
            true => CapabilityFlags::SSL,
            false => CapabilityFlags::NONE,
        };
        let response = HandshakeResponse {
            capabilities: self.greeting.capabilities.union(tls),
            packet_max: CLIENT_PACKET_MAX,
            collation: self.params.collation,
            user: self.params.user.as_bytes(),
            answer: &answer,
            database: self.params.database.as_deref().map(str::as_bytes),
            plugin: Some(offer.plugin.name().as_bytes()),
            attributes: ConnectionAttributes::new(&attributes),
        };
        let mut payload = Vec::new();
        response.write(&mut payload);
        frame::put_packet(out, &mut self.seq, &payload);
        self.state = MysqlDialState::Verdict(offer);
        Ok(())
    }

    /// Handles the server's verdict on a proof.
    fn verdict(
        &mut self,
        offer: AuthOffer,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<MysqlDialNext>, MysqlDialError> {
        self.challenges = self.challenges.saturating_add(1);
        if self.challenges > CHALLENGES_MAX {
            return Err(MysqlDialError::Protocol("too many questions"));
        }
        match AuthChallenge::parse(payload) {
            Some(AuthChallenge::Switch { plugin, data }) => self.switched(plugin, data, out)?,
            Some(AuthChallenge::OldPassword) => {
                return Err(MysqlDialError::Unsupported("mysql_old_password".to_owned()));
            }
            Some(AuthChallenge::More(data)) => match (offer.plugin, data) {
                (AuthPlugin::CachingSha2, [auth::FAST_RIGHT]) => {
                    self.state = MysqlDialState::Verdict(offer)
                }
                (AuthPlugin::CachingSha2, [auth::FULL]) => self.show_password(offer, out)?,
                _ => return Err(MysqlDialError::Protocol("more than its method has")),
            },
            None => return self.let_in(payload, out),
        }
        Ok(None)
    }

    /// Handles the server's request for another method.
    fn switched(
        &mut self,
        plugin: &[u8],
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), MysqlDialError> {
        let unknown = || MysqlDialError::Unsupported(String::from_utf8_lossy(plugin).into_owned());
        let plugin = AuthPlugin::of(plugin).ok_or_else(unknown)?;
        let (nonce, answer) = match plugin {
            AuthPlugin::Native | AuthPlugin::CachingSha2 => {
                let nonce = AuthNonce::parse(data).ok_or(MysqlDialError::Protocol("a nonce"))?;
                (nonce, self.params.credentials.answer(plugin, &nonce)?)
            }
            AuthPlugin::Clear => {
                self.params.assurance.show_password(self.greeting.is_encrypted)?;
                let password = self.params.credentials.password(plugin)?;
                (AuthNonce::new([0; auth::NONCE_BYTES]), with_nul(password))
            }
        };
        frame::put_packet(out, &mut self.seq, &answer);
        self.state = MysqlDialState::Verdict(AuthOffer { plugin, nonce });
        Ok(())
    }

    /// Handles a server that does not know the password yet, and requests it.
    fn show_password(&mut self, offer: AuthOffer, out: &mut Vec<u8>) -> Result<(), MysqlDialError> {
        let password = self.params.credentials.password(offer.plugin)?;
        let is_encrypted = self.greeting.is_encrypted;
        match (self.params.assurance, self.params.assurance.show_password(is_encrypted)) {
            (_, Ok(())) => {
                frame::put_packet(out, &mut self.seq, &with_nul(password));
                self.state = MysqlDialState::Verdict(offer);
            }
            // With TLS servers accept no other encryption: TLS must suffice.
            (ServerAssurance::Trusted, Err(_)) => {
                frame::put_packet(out, &mut self.seq, &[auth::PUBLIC_KEY]);
                self.state = MysqlDialState::PublicKey(offer.nonce);
            }
            (_, Err(_)) => return Err(UnverifiedPeer(VERIFY_OR_TRUST).into()),
        }
        Ok(())
    }

    fn public_key(
        &mut self,
        nonce: AuthNonce,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<MysqlDialNext>, MysqlDialError> {
        let Some(AuthChallenge::More(pem)) = AuthChallenge::parse(payload) else {
            return Err(MysqlDialError::Protocol("no public key"));
        };
        let password = self.params.credentials.password(AuthPlugin::CachingSha2)?;
        let hidden = encrypt(pem, &nonce.over(&with_nul(password)))?;
        frame::put_packet(out, &mut self.seq, &hidden);
        self.state = MysqlDialState::Verdict(AuthOffer { plugin: AuthPlugin::CachingSha2, nonce });
        Ok(None)
    }

    /// Handles a successful login.
    fn let_in(
        &mut self,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<MysqlDialNext>, MysqlDialError> {
        let capabilities = self.greeting.capabilities;
        let ok = OkPacket::parse(payload, capabilities);
        self.greeting.status = ok.ok_or(MysqlDialError::Protocol("no verdict"))?.status;
        self.seq = 1;
        if let MysqlDialPurpose::Cancel(thread) = self.errand {
            put_query(out, &format!("KILL QUERY {thread}"));
            self.state = MysqlDialState::Killed;
            return Ok(None);
        }
        let mut asked = VecDeque::new();
        if capabilities.contains(CapabilityFlags::SESSION_TRACK) {
            put_query(out, TRACK);
            asked.push_back(PendingStatement::Track);
            self.greeting.tracks = true;
        }
        put_query(out, ASK_MODE);
        asked.push_back(PendingStatement::Mode);
        for text in &self.params.statements {
            put_query(out, text);
            asked.push_back(PendingStatement::Statement);
        }
        self.state = MysqlDialState::Answers(asked);
        Ok(self.ready_if_done())
    }

    fn answered(
        &mut self,
        mut asked: VecDeque<PendingStatement>,
        payload: &[u8],
    ) -> Result<Option<MysqlDialNext>, MysqlDialError> {
        if asked.front() == Some(&PendingStatement::Mode) {
            if !self.told_mode(payload)? {
                self.state = MysqlDialState::Answers(asked);
                return Ok(None);
            }
        } else {
            let ok = OkPacket::parse(payload, self.greeting.capabilities);
            let ok = ok.ok_or(MysqlDialError::Protocol("no OK to a statement"))?;
            if ok.status.contains(StatusFlags::MORE_RESULTS) {
                return Err(MysqlDialError::Protocol("more than OK to a statement"));
            }
            self.greeting.status = ok.status;
        }
        asked.pop_front();
        self.seq = 1;
        self.state = MysqlDialState::Answers(asked);
        Ok(self.ready_if_done())
    }

    /// Handles a packet of the reply about the SQL mode; returns whether it was the last one.
    fn told_mode(&mut self, payload: &[u8]) -> Result<bool, MysqlDialError> {
        let malformed = || MysqlDialError::Protocol("no SQL mode");
        let caps = self.greeting.capabilities;
        let mut reply =
            self.reply.take().unwrap_or_else(|| CommandReplyState::new(ReplyKind::Query, caps));
        let event = reply.packet(payload, payload.len()).map_err(|_| malformed())?;
        match event {
            ReplyEvent::Columns(1)
            | ReplyEvent::Column
            | ReplyEvent::ColumnsEnd(_)
            | ReplyEvent::End(_) => {}
            ReplyEvent::Row => {
                let value = PacketReader::new(payload).lenenc_bytes().ok_or_else(malformed)?;
                let value = std::str::from_utf8(value).map_err(|_| malformed())?;
                self.greeting.sql_mode = value.to_owned();
            }
            _ => return Err(malformed()), // not a reply to this query
        }
        let is_done = reply.is_done();
        self.reply = Some(reply).filter(|_| !is_done);
        Ok(is_done)
    }

    fn ready_if_done(&mut self) -> Option<MysqlDialNext> {
        let MysqlDialState::Answers(asked) = &self.state else { return None };
        asked.is_empty().then(|| {
            self.state = MysqlDialState::Over;
            MysqlDialNext::Ready(Box::new(self.greeting.clone()))
        })
    }
}

/// Appends a statement as a command of its own.
fn put_query(out: &mut Vec<u8>, text: &str) {
    let mut payload = vec![Command::Query.code()];
    payload.extend_from_slice(text.as_bytes());
    let mut seq = 0;
    frame::put_packet(out, &mut seq, &payload);
}

fn with_nul(password: &str) -> Vec<u8> {
    let mut bytes = password.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests;
