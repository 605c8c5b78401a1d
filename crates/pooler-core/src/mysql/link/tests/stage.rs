//! A stage for scenarios: clients and servers that follow a script.
//!
//! A script consists of lines. `a> Q[SELECT 1]`: client a sends this. `s< …`: the server has
//! received exactly this since the last check; `s~`: nothing, or queries for unreported changes.
//! `s> …`: the server sends this. `a< …`: client a has received exactly this. `a: free`, `a: held`,
//! `a: closed`, `a: kills 7`, `s: idle`, `s: broken`, `s: pins x,y`: checks of the state.
//! `s: rests`: it was idle for so long that it loses its mark. `server 2`: clients that need a
//! server from now on get this one. `a gone: cancel`: the client leaves, and this action is
//! expected. `a farewell: ERR[1053]`: its connection is closed, and it receives this, or `nothing`.
//! Clients in capitals are old drivers.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};

use api::{PoolMode, VerifyMode};
use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::command::Command;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_packet};
use wire::mysql::reply::{CommandReplyState, ReplyKind};
use wire::pg::message::ErrorFields;

use super::codec::{self, MODERN, OLD, words};
use crate::epoch::SessionEpoch;
use crate::link::{ClientId, ClientNext, DepartureAction, LinkLimits, LinkOutputs, ServerNext};
use crate::mysql::client::{MysqlClientSession, MysqlClientSetup};
use crate::mysql::dial::TRACK;
use crate::mysql::link::{
    MysqlLinkContext, attach, client_gone, from_client, from_server, release_mark,
};
use crate::mysql::mark::SessionMark;
use crate::mysql::server::{MysqlServerSession, MysqlServerSetup};
use crate::mysql::settings::MysqlSettings;
use crate::pg::statements::HashKey;

pub(crate) struct Setup {
    pub(crate) mode: PoolMode,
    pub(crate) verify: VerifyMode,
    pub(crate) read_only: bool,
    pub(crate) local_infile: bool,
    pub(crate) limits: LinkLimits,
    pub(crate) server: CapabilityFlags,
    pub(crate) tracks: bool,
    /// Start settings of clients, by their letters.
    pub(crate) settings: &'static [(char, &'static str, &'static str)],
    pub(crate) forced: &'static [(&'static str, &'static str)],
    /// Clients of a session with a mark, by their letters.
    pub(crate) marked: &'static [char],
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            mode: PoolMode::Transaction,
            verify: VerifyMode::Unknown,
            read_only: false,
            local_infile: false,
            limits: LinkLimits::default(),
            server: MODERN,
            tracks: true,
            settings: &[],
            forced: &[],
            marked: &[],
        }
    }
}

struct Client {
    session: MysqlClientSession,
    pending: Vec<u8>,
    given: Vec<u8>,
    server: Option<u8>,
    closed: bool,
    kills: String,
    /// The outstanding reply.
    reply: Option<CommandReplyState>,
    seq: u8,
    /// Sequence number of the next packet of a file.
    file_seq: u8,
}

struct Server {
    session: MysqlServerSession,
    pending: Vec<u8>,
    given: Vec<u8>,
    client: Option<char>,
    broken: bool,
    seq: u8,
}

struct Stage<'a> {
    setup: &'a Setup,
    shared: MysqlLinkContext,
    clients: HashMap<char, Client>,
    servers: HashMap<u8, Server>,
    server: u8,
    /// Bytes per read.
    chunk: usize,
}

/// Mark of the only session.
static MARK: LazyLock<Arc<SessionMark>> = LazyLock::new(|| {
    Arc::new(SessionMark::new(&SessionEpoch { session: "ses_1".into(), epoch: 1 }))
});

/// Plays a script, with the bytes split in several ways.
pub(crate) fn play(setup: &Setup, script: &str) {
    // The request to a server after a reset.
    let script = script.replace("TRACKERS", &format!("Q[{TRACK}]"));
    let mark = &*MARK;
    let script = script.replace("UNMARK", &format!("Q[{}]", mark.release));
    let script = script.replace("MARK", &format!("Q[{}]", mark.take));
    for chunk in [usize::MAX, 1, 2, 3, 7] {
        let mut stage = Stage {
            setup,
            shared: MysqlLinkContext::new(HashKey::new(), Arc::new(AtomicU64::new(0))),
            clients: HashMap::new(),
            servers: HashMap::new(),
            server: 1,
            chunk,
        };
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            stage.line(line);
        }
    }
}

impl Stage<'_> {
    fn line(&mut self, line: &str) {
        let chunk = self.chunk;
        if let Some(number) = line.strip_prefix("server ") {
            self.server = number.parse().unwrap();
            return;
        }
        let who = line.chars().next().unwrap();
        if let Some((_, wanted)) = line.split_once(" gone: ") {
            return self.leaves(who, wanted);
        }
        if let Some((_, wanted)) = line.split_once(" farewell: ") {
            let client = self.client(who);
            client
                .session
                .put_fatal_error(&ErrorFields::fatal("08006", "closed"), &mut client.given);
            let said = self.client(who).said();
            let said = if said.is_empty() { "nothing" } else { &said };
            assert_eq!(said, wanted, "{line} (chunk {chunk})");
            return;
        }
        let (what, rest) = (line.chars().nth(1).unwrap(), line[2..].trim());
        match (who, what) {
            ('s', '>') => self.answers(rest),
            ('s', '<') => {
                let said = self.said_to_server();
                assert_eq!(said, rest, "{line} (chunk {chunk})");
            }
            ('s', '~') => self.tells_the_rest(),
            ('s', ':') => {
                let number = self.server;
                let server = self.server(number);
                let is = match rest {
                    "rests" => {
                        let mut nobody = Vec::new();
                        let to_server = &mut server.given;
                        let mut out = LinkOutputs { to_client: &mut nobody, to_server };
                        release_mark(&mut server.session, &mut out);
                        nobody.is_empty()
                    }
                    "idle" => server.session.is_idle(),
                    "broken" => server.broken,
                    _ => {
                        let pins: Vec<&str> = server.session.pins().collect();
                        let pins = format!("pins {}", pins.join(","));
                        assert_eq!(pins.trim(), rest, "{line} (chunk {chunk})");
                        true
                    }
                };
                assert!(is, "{line} (chunk {chunk}): {:?}", server.session);
            }
            (_, '>') => {
                let mut bytes = Vec::new();
                for (name, inside) in words(rest) {
                    self.client(who).encode(name, inside, &mut bytes);
                }
                for part in bytes.chunks(chunk) {
                    self.client(who).pending.extend_from_slice(part);
                    self.feed(who);
                }
            }
            (_, '<') => {
                let said = self.client(who).said();
                if rest == "*" {
                    return;
                }
                assert_eq!(said, rest, "{line} (chunk {chunk})");
            }
            _ => {
                let client = self.client(who);
                let is = match rest {
                    "free" => client.server.is_none() && !client.closed,
                    "held" => client.server.is_some(),
                    "closed" => client.closed,
                    _ => client.kills == rest,
                };
                assert!(is, "{line} (chunk {chunk}): {:?} {}", client.session, client.kills);
            }
        }
    }

    /// Lets the current server send the packets of the words.
    fn answers(&mut self, rest: &str) {
        let mut bytes = Vec::new();
        let caps = self.setup.server;
        let mut seq = self.server(self.server).seq;
        for (name, inside) in words(rest) {
            // Each reply begins with 1.
            if name == "--" {
                seq = 1;
            } else {
                codec::put(name, inside, caps, &mut seq, &mut bytes);
            }
        }
        self.server(self.server).seq = seq;
        for part in bytes.chunks(self.chunk) {
            self.server_sends(part);
        }
    }

    /// Answers queries for unreported changes, and for the insert id.
    fn tells_the_rest(&mut self) {
        loop {
            let said = self.said_to_server();
            self.answers(match said.as_str() {
                "" => return,
                "Q[SET session_track_schema=1]" => "OK[var:session_track_schema=ON,state]",
                "Q[SELECT LAST_INSERT_ID()]" => "COLS[1] DEF ROW[0] END",
                _ => panic!("{said} (chunk {})", self.chunk),
            });
        }
    }

    fn client(&mut self, who: char) -> &mut Client {
        let setup = self.setup;
        self.clients.entry(who).or_insert_with(|| Client::new(who, setup))
    }

    fn server(&mut self, number: u8) -> &mut Server {
        let setup = self.setup;
        self.servers.entry(number).or_insert_with(|| Server {
            session: MysqlServerSession::new(MysqlServerSetup {
                thread_id: number.into(),
                pool: 1,
                user: "user".into(),
                capabilities: setup.server,
                status: StatusFlags::AUTOCOMMIT,
                database: Some("db".into()),
                settings: Arc::new(MysqlSettings::of(setup.forced.iter().copied())),
                tracks: setup.tracks,
                read_only: setup.read_only,
                limits: setup.limits,
            }),
            pending: Vec::new(),
            given: Vec::new(),
            client: None,
            broken: false,
            seq: 1,
        })
    }

    /// Returns what the current server has received; its sequence numbers must begin with 0.
    fn said_to_server(&mut self) -> String {
        let number = self.server;
        let server = self.server(number);
        let given = std::mem::take(&mut server.given);
        let mut said = Vec::new();
        let mut rest = &given[..];
        while let Some(header) = PacketHeader::parse(rest) {
            let payload = &rest[HEADER_BYTES..header.total()];
            if header.seq != 0 {
                // A part of a file.
                assert_eq!(header.seq, server.seq, "the number of a part of a file");
                server.seq += 1;
                said.push(format!("DATA[{}]", String::from_utf8_lossy(payload)));
            } else {
                server.seq = 1;
                said.push(codec::show_command(payload));
            }
            rest = &rest[header.total()..];
        }
        assert!(rest.is_empty(), "half a packet was sent: {rest:?}");
        said.join(" ")
    }

    fn feed(&mut self, who: char) {
        loop {
            let current = self.server;
            self.client(who);
            let client = self.clients.get_mut(&who).unwrap();
            if client.closed {
                return;
            }
            let server = client.server;
            let mut to_client = Vec::new();
            let mut to_server = Vec::new();
            let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut to_server };
            let session = server.map(|server| &mut self.servers.get_mut(&server).unwrap().session);
            let result = from_client(
                &mut self.shared,
                &mut client.session,
                session,
                &client.pending,
                &mut out,
            );
            assert!(result.consumed <= client.pending.len());
            drop(client.pending.drain(..result.consumed));
            client.given.append(&mut to_client);
            if let Some(server) = server {
                self.servers.get_mut(&server).unwrap().given.append(&mut to_server);
            }
            assert!(to_server.is_empty());
            match result.next {
                ClientNext::Read | ClientNext::Wait => return,
                ClientNext::Drain => {}
                ClientNext::NeedServer => {
                    if !self.lease(who, current) {
                        return;
                    }
                }
                ClientNext::Kill { id, connection } => {
                    let client = self.client(who);
                    client.kills = format!("kills {id}{}", if connection { "" } else { " query" });
                    let mut out = Vec::new();
                    client.session.kill_answered(true, &mut out);
                    client.given.append(&mut out);
                }
                ClientNext::ChangeUser => {
                    let client = self.client(who);
                    let said = client.session.take_change_user().unwrap();
                    client.kills = format!("changes {}", String::from_utf8_lossy(&said[1..]));
                    return;
                }
                ClientNext::Released => {
                    let number = self.client(who).server.take().unwrap();
                    self.servers.get_mut(&number).unwrap().client = None;
                }
                ClientNext::Terminate | ClientNext::Refuse => {
                    self.client(who).closed = true;
                    return;
                }
                ClientNext::NeedListener => panic!("there are no listeners"),
            }
        }
    }

    /// Attaches the current server to a client; false: it is not idle.
    fn lease(&mut self, who: char, number: u8) -> bool {
        self.server(number);
        let server = self.servers.get_mut(&number).unwrap();
        if !server.session.is_idle() || server.broken {
            return false;
        }
        let client = self.clients.get_mut(&who).unwrap();
        client.server = Some(number);
        server.client = Some(who);
        let mut to_client = Vec::new();
        let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut server.given };
        attach(&mut self.shared, &mut client.session, &mut server.session, &mut out);
        assert!(to_client.is_empty());
        true
    }

    fn server_sends(&mut self, part: &[u8]) {
        let number = self.server;
        self.server(number);
        let server = self.servers.get_mut(&number).unwrap();
        server.pending.extend_from_slice(part);
        loop {
            let server = self.servers.get_mut(&number).unwrap();
            let mut client = server.client.and_then(|who| self.clients.get_mut(&who));
            let mut to_client = Vec::new();
            let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut server.given };
            let session = client.as_deref_mut().map(|client| &mut client.session);
            let result = from_server(
                &mut self.shared,
                &mut server.session,
                session,
                &server.pending,
                &mut out,
            );
            assert!(result.consumed <= server.pending.len());
            drop(server.pending.drain(..result.consumed));
            if let Some(client) = client.as_deref_mut() {
                client.given.append(&mut to_client);
            }
            assert!(to_client.is_empty());
            match result.next {
                ServerNext::Read => {
                    if let Some(who) = server.client {
                        self.feed(who);
                    }
                    return;
                }
                ServerNext::Released => {
                    client.unwrap().server = None;
                    let who = server.client.take().unwrap();
                    self.feed(who);
                }
                ServerNext::Idle => {}
                ServerNext::Failed => {
                    client.unwrap().closed = true;
                    server.broken = true;
                    return;
                }
                ServerNext::Broken(_) => {
                    server.broken = true;
                    return;
                }
            }
        }
    }

    fn leaves(&mut self, who: char, wanted: &str) {
        let client = self.clients.get_mut(&who).unwrap();
        let number = client.server.take().unwrap();
        let server = self.servers.get_mut(&number).unwrap();
        server.client = None;
        let mut to_client = Vec::new();
        let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut server.given };
        let gone = client_gone(&client.session, &mut server.session, &mut out);
        let gone = match gone {
            DepartureAction::Cancel => "cancel",
            DepartureAction::Draining => "draining",
            DepartureAction::Idle => "idle",
            DepartureAction::Close => "close",
        };
        assert_eq!(gone, wanted, "(chunk {})", self.chunk);
        client.closed = true;
    }
}

impl Client {
    fn new(who: char, setup: &Setup) -> Client {
        let settings = setup.settings.iter().filter(|(of, ..)| *of == who);
        let mut settings = MysqlSettings::of(settings.map(|(_, name, value)| (*name, *value)));
        let _kept = settings.put_schema("db");
        let mut session = MysqlClientSession::new(MysqlClientSetup {
            id: ClientId(u32::from(who)),
            mode: setup.mode,
            verify: setup.verify,
            read_only: setup.read_only,
            local_infile: setup.local_infile,
            capabilities: if who.is_ascii_uppercase() { OLD } else { MODERN },
            settings,
            forced: Arc::new(MysqlSettings::of(setup.forced.iter().copied())),
        });
        if setup.marked.contains(&who) {
            session.confine(Some(MARK.clone()));
        }
        Client {
            session,
            pending: Vec::new(),
            given: Vec::new(),
            server: None,
            closed: false,
            kills: String::new(),
            reply: None,
            seq: 1,
            file_seq: 0,
        }
    }

    fn encode(&mut self, name: &str, inside: &str, out: &mut Vec<u8>) {
        let payload = codec::command(name, inside);
        if name == "DATA" {
            let mut seq = self.seq;
            put_packet(out, &mut seq, &payload);
            self.seq = seq;
            return;
        }
        if matches!(self.reply, Some(ref reply) if !reply.is_done()) {
            // It sends before the reply to earlier commands; the replies are checked in order.
            self.file_seq = 0;
        }
        put_packet(out, &mut 0, &payload);
        let command = payload.first().and_then(|first| Command::of(*first));
        let kind = match command {
            None => ReplyKind::Simple,
            Some(command) if command.reply() == ReplyKind::Foreign => ReplyKind::Simple,
            Some(Command::StmtExecute) => {
                ReplyKind::of_execution(payload.get(5).copied().unwrap_or_default())
            }
            Some(command) => command.reply(),
        };
        if kind != ReplyKind::None {
            self.reply = Some(CommandReplyState::new(kind, self.session.capabilities));
            self.seq = 1;
        }
    }

    /// Returns what it has received; the sequence numbers of packets must be without a gap.
    fn said(&mut self) -> String {
        let given = std::mem::take(&mut self.given);
        let mut said = Vec::new();
        let mut rest = &given[..];
        while let Some(header) = PacketHeader::parse(rest) {
            let payload = &rest[HEADER_BYTES..header.total()];
            // Unsolicited packets of a server are numbered like a reply.
            if header.seq == 1 && self.reply.as_ref().is_some_and(CommandReplyState::is_done) {
                self.reply =
                    Some(CommandReplyState::new(ReplyKind::Simple, self.session.capabilities));
                self.seq = 1;
            }
            assert_eq!(header.seq, self.seq, "the number of a packet behind {said:?}");
            self.seq += 1;
            let reply = self.reply.as_mut().expect("an answer to a question");
            said.push(codec::show(reply, self.session.capabilities, payload));
            rest = &rest[header.total()..];
        }
        assert!(rest.is_empty(), "half a packet was given: {rest:?}");
        said.join(" ")
    }
}
