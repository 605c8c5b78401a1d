//! Our way into a server of MySQL or MariaDB: from the connected socket to a session that is set up
//! as all are, or to the end of an errand that kills what another session does.
//!
//! Pure, like [`pg::dial`](crate::pg::dial), whose words for encryption it has. The server may be
//! hostile or somebody in between: it is told a password as it is only where it is known who reads
//! it, and nothing that it says before encryption can make us do without.
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

/// The longest packet of a server that is read while logging in.
const PACKET_BYTES_MAX: usize = 65_536;

/// Packets that a server may send until its verdict. MariaDB tries the methods of a user one after
/// the other, and there are few.
const CHALLENGES_MAX: u8 = 16;

/// The longest packet that we say we take: all of them, because they are forwarded.
const CLIENT_PACKET_MAX: u32 = 1 << 30;

/// Capabilities that every server is asked for.
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

/// Has the server tell in OK packets what a statement leaves behind, beyond what it tells by
/// itself. A reset takes it away.
///
/// Source: MySQL 8.4, "Server Tracking of Client Session State"; MariaDB has the same variables.
pub const TRACK: &str = "SET session_track_schema=1,session_track_state_change=1,\
                         session_track_system_variables='*',\
                         session_track_transaction_info='STATE'";

/// Lets a session only read; a reset takes that away. The variable behind it has not the same name
/// everywhere.
pub const READ_ONLY: &str = "SET SESSION TRANSACTION READ ONLY";

/// Question for the server's default `sql_mode`.
const ASK_MODE: &str = "SELECT @@sql_mode";

/// Parameters of a login.
#[derive(Clone, Debug)]
pub struct MysqlDialParams {
    /// The user.
    pub user: String,
    /// The schema to begin with.
    pub database: Option<String>,
    /// Credentials of the user.
    pub credentials: Arc<MysqlCredentials>,
    /// Encryption.
    pub tls: TlsRequest,
    /// Rule on who may see the password, and whether it may be encrypted with a key that the server
    /// sends over a connection without TLS.
    pub assurance: ServerAssurance,
    /// Capabilities beyond [`WANTED`]: `FOUND_ROWS`, `LOCAL_FILES`.
    pub more: CapabilityFlags,
    /// The collation, and so the character set, to begin with.
    pub collation: u8,
    /// Attributes that the server shows of the connection.
    pub attributes: Vec<(String, String)>,
    /// Statements that are run before anybody has the connection; each is answered by OK, or there
    /// is no connection.
    pub statements: Vec<String>,
}

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MysqlDialPurpose {
    LogIn,
    /// Ends what the thread does.
    Cancel(u32),
}

/// Why a server does not let us in.
#[derive(Debug, thiserror::Error)]
pub enum MysqlDialError {
    /// Refused by the server.
    #[error("{message} ({errno})")]
    Refused {
        /// MySQL's own number.
        errno: u16,
        /// SQLSTATE.
        state: [u8; 5],
        /// Sentence.
        message: String,
    },
    /// Without TLS, which is required.
    #[error("the server does not offer TLS")]
    NoTls,
    /// Another protocol, or somebody in between.
    #[error("the server violates the protocol: {0}")]
    Protocol(&'static str),
    /// Too old or too new.
    #[error("read the server's greeting")]
    Greeting(#[from] HandshakeError),
    /// A request of the server that cannot be met.
    #[error("the server asks for {0}, which Cove does not support")]
    Unsupported(String),
    /// There is nothing to answer with.
    #[error(transparent)]
    Credentials(#[from] MysqlCredentialsError),
    /// The key that it sent does not do.
    #[error("encrypt the password")]
    Key(#[from] RsaKeyError),
    /// A request for the password itself by a server that is not verified.
    #[error(transparent)]
    Unverified(#[from] UnverifiedPeer),
}

impl MysqlDialError {
    /// SQLSTATE for a client that waits for this connection, as
    /// [`login::put_refusal`](super::login::put_refusal) takes it.
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

    /// Stage that the login reached.
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

    /// Returns whether the server wants a secret that only clients have: it is alive.
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
    /// Version, as it shows it, MariaDB's prefix for old replicas included.
    pub version: String,
    /// Capabilities of both sides.
    pub capabilities: CapabilityFlags,
    /// Status of the session.
    pub status: StatusFlags,
    /// The collation that the session began with.
    pub collation: u8,
    /// The SQL mode that the session began with.
    pub sql_mode: String,
    /// True if OK packets tell what a statement leaves behind.
    pub tracks: bool,
    /// True if the connection is encrypted.
    pub is_encrypted: bool,
}

/// Next step. First, what is in `out` is sent.
#[derive(Debug)]
pub enum MysqlDialNext {
    /// Present more bytes.
    More,
    /// Shake hands; then call [`MysqlDial::tls_started`].
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
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// Next step.
    pub next: MysqlDialNext,
}

/// A connection to a server that is being made.
#[derive(Debug)]
pub struct MysqlDial {
    params: MysqlDialParams,
    errand: MysqlDialPurpose,
    /// Sequence number of the next packet, whoever sends it.
    seq: u8,
    challenges: u8,
    greeting: MysqlServerGreeting,
    /// State of the answer that is under way, if it has rows.
    reply: Option<CommandReplyState>,
    state: MysqlDialState,
}

#[derive(Debug)]
enum MysqlDialState {
    /// Greeting of the server.
    Hello,
    /// The end of a handshake.
    Handshake(AuthOffer),
    /// Verdict on a proof.
    Verdict(AuthOffer),
    /// A public key, to send the password with.
    PublicKey(AuthNonce),
    /// Answers to statements.
    Answers(VecDeque<PendingStatement>),
    /// The answer to `KILL`.
    Killed,
    /// End.
    Over,
}

/// Authentication that a server offers.
#[derive(Clone, Copy, Debug)]
struct AuthOffer {
    plugin: AuthPlugin,
    nonce: AuthNonce,
}

/// A statement that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingStatement {
    /// For trackers, which there may be none of.
    Track,
    /// For the SQL mode.
    Mode,
    /// A statement of the parameters.
    Statement,
}

impl MysqlDial {
    /// To log in.
    #[must_use]
    pub fn new(params: MysqlDialParams) -> MysqlDial {
        MysqlDial::of(params, MysqlDialPurpose::LogIn)
    }

    /// To end what a thread of the server does, as the user whose thread it is.
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

    /// Begins, once connected: the server speaks first.
    pub fn start(&mut self, _out: &mut Vec<u8>) -> MysqlDialNext {
        MysqlDialNext::More
    }

    /// Takes what the server has sent and was not consumed before.
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

    /// Continues behind TLS.
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

    /// Takes one packet, if it is there.
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

    /// The server says no.
    fn refused(
        &mut self,
        error: &ErrPacket<'_>,
        _out: &mut Vec<u8>,
    ) -> Result<Option<MysqlDialNext>, MysqlDialError> {
        match &mut self.state {
            // It knows no trackers.
            MysqlDialState::Answers(asked) if asked.front() == Some(&PendingStatement::Track) => {
                asked.pop_front();
                self.greeting.tracks = false;
                self.seq = 1;
                Ok(self.ready_if_done())
            }
            // The thread is gone, and with it what it did.
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
        // MariaDB leaves it out to say that it has capabilities of its own, none of which is used.
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
                    // Whoever is in between could have put it there, to be taken for the server's
                    // after the handshake.
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

    /// Says who we are, with a proof.
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

    /// Returns what a server thinks of a proof.
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

    /// The server wants another method.
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

    /// The server has not seen the password yet, and wants to.
    fn show_password(&mut self, offer: AuthOffer, out: &mut Vec<u8>) -> Result<(), MysqlDialError> {
        let password = self.params.credentials.password(offer.plugin)?;
        let is_encrypted = self.greeting.is_encrypted;
        match (self.params.assurance, self.params.assurance.show_password(is_encrypted)) {
            (_, Ok(())) => {
                frame::put_packet(out, &mut self.seq, &with_nul(password));
                self.state = MysqlDialState::Verdict(offer);
            }
            // With TLS servers take no other encryption: the key of TLS has to do.
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

    /// The server lets us in.
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

    /// A packet of the answer about the SQL mode; says whether it was the last one.
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
            _ => return Err(malformed()), // no answer to this question
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
