//! Several clients on fewer server connections: each receives what a session of its own would have
//! sent.
//!
//! A seed determines the senders and texts, how bytes are split, and which clients leave when.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use api::{PoolMode, VerifyMode};
use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::command::Command;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_packet};
use wire::mysql::reply::{CommandReplyState, ReplyKind};

use super::codec::{self, MODERN, OLD};
use super::model::Model;
use crate::link::{ClientId, ClientNext, DepartureAction, LinkLimits, LinkOutputs, ServerNext};
use crate::mysql::client::{MysqlClientSession, MysqlClientSetup};
use crate::mysql::link::{MysqlLinkContext, attach, client_gone, from_client, from_server};
use crate::mysql::server::{MysqlServerSession, MysqlServerSetup};
use crate::mysql::settings::MysqlSettings;
use crate::pg::statements::HashKey;

const CLIENTS: usize = 5;
const SERVERS: usize = 2;
const STEPS: usize = 4_000;

/// A small random number generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    /// Returns how many of `len` bytes arrive: often all of them.
    fn part(&mut self, len: usize) -> usize {
        if self.below(2) == 0 { len } else { 1 + self.below(len) }
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

struct Client {
    link: MysqlClientSession,
    who: String,
    /// Reference session of the client alone.
    own: Model,
    pending: Vec<u8>,
    given: Vec<u8>,
    server: Option<usize>,
    waits: bool,
    /// The outstanding reply, and its expected content.
    awaits: Option<(CommandReplyState, Vec<String>)>,
    told: Vec<String>,
    seq: u8,
    asked: String,
    /// Texts that it has sent so far.
    said: Vec<String>,
    statements: Vec<(u32, u32)>,
}

struct Server {
    link: MysqlServerSession,
    model: Model,
    client: Option<usize>,
    pending: Vec<u8>,
}

struct World {
    dice: Dice,
    shared: MysqlLinkContext,
    clients: Vec<Client>,
    servers: Vec<Server>,
    queue: VecDeque<usize>,
    serial: u32,
    answers: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            shared: MysqlLinkContext::new(HashKey::new(), Arc::new(AtomicU64::new(0))),
            clients: Vec::new(),
            servers: Vec::new(),
            queue: VecDeque::new(),
            serial: 0,
            answers: 0,
        };
        for _ in 0..CLIENTS {
            let client = world.new_client();
            world.clients.push(client);
        }
        for _ in 0..SERVERS {
            world.servers.push(new_server());
        }
        world
    }

    fn new_client(&mut self) -> Client {
        self.serial += 1;
        let mut settings = MysqlSettings::default();
        let _kept = settings.put_schema("db");
        let modern = CapabilityFlags(MODERN.0 & !CapabilityFlags::SESSION_TRACK.0);
        let capabilities = *self.dice.pick(&[OLD, modern]);
        Client {
            link: MysqlClientSession::new(MysqlClientSetup {
                id: ClientId(self.serial),
                mode: *self.dice.pick(&[
                    PoolMode::Transaction,
                    PoolMode::Transaction,
                    PoolMode::Transaction,
                    PoolMode::Session,
                ]),
                verify: *self.dice.pick(&[
                    VerifyMode::Unknown,
                    VerifyMode::Never,
                    VerifyMode::Always,
                ]),
                read_only: false,
                local_infile: false,
                capabilities,
                settings,
                forced: Arc::default(),
            }),
            who: format!("c{}", self.serial),
            own: Model::new(capabilities),
            pending: Vec::new(),
            given: Vec::new(),
            server: None,
            waits: false,
            awaits: None,
            told: Vec::new(),
            seq: 1,
            asked: String::new(),
            said: Vec::new(),
            statements: Vec::new(),
        }
    }

    fn step(&mut self) {
        match self.dice.below(10) {
            0..4 => self.client_speaks(),
            4..8 => self.server_speaks(),
            // A client that keeps a connection for which others wait leaves eventually.
            _ if !self.queue.is_empty() && self.dice.below(4) == 0 => {
                let number = self.dice.below(SERVERS);
                if let Some(client) = self.servers[number].client {
                    self.client_leaves(client);
                }
            }
            _ if self.dice.below(40) == 0 => {
                let client = self.dice.below(CLIENTS);
                self.client_leaves(client);
            }
            _ => {
                let client = self.dice.below(CLIENTS);
                self.feed(client);
            }
        }
    }

    /// Describes the state, for the diagnosis of a standstill.
    fn describe(&self) -> String {
        let mut said = format!("{} answers, {:?} wait", self.answers, self.queue);
        for client in &self.clients {
            said += &format!(
                "\n{} asked {} at {:?}, waits {}, has {} bytes to say, {:?}",
                client.who,
                client.asked,
                client.server,
                client.waits,
                client.pending.len(),
                client.awaits,
            );
        }
        for server in &self.servers {
            said += &format!("\n{:?} {:?} {}", server.client, server.link, server.pending.len());
        }
        said
    }

    /// Lets a client without an outstanding reply send something, or the rest of it.
    fn client_speaks(&mut self) {
        let number = self.dice.below(CLIENTS);
        if self.clients[number].awaits.is_none() {
            let text = self.text(number);
            let client = &mut self.clients[number];
            client.asked.clone_from(&text);
            client.said.push(text.clone());
            let payload = command(&text, client);
            put_packet(&mut client.pending, &mut 0, &payload.0);
            let mut own = Vec::new();
            put_packet(&mut own, &mut 0, &payload.1);
            client.own.takes(&own);
            let kind = match Command::of(payload.0[0]).unwrap() {
                Command::StmtExecute => ReplyKind::of_execution(payload.0[5]),
                command => command.reply(),
            };
            let wanted = packets(kind, client.own.caps, &std::mem::take(&mut client.own.output));
            client.awaits = (kind != ReplyKind::None).then(|| {
                (CommandReplyState::new(kind, client.own.caps), wanted.into_iter().collect())
            });
            client.seq = 1;
        }
        self.feed(number);
    }

    /// Returns a random text of a client.
    fn text(&mut self, number: usize) -> String {
        let who = self.clients[number].who.clone();
        let id = 1 + self.dice.below(1_000);
        let texts = [
            format!("SET time_zone='{who}'"),
            format!("SET @x='{who}'"),
            "SELECT @@time_zone".to_owned(),
            "SELECT @@time_zone".to_owned(),
            "SELECT @x".to_owned(),
            format!("CREATE TEMPORARY TABLE t_{who}"),
            format!("SELECT COUNT(*) FROM t_{who}"),
            format!("DROP TEMPORARY TABLE t_{who}"),
            "BEGIN".to_owned(),
            "COMMIT".to_owned(),
            "ROLLBACK".to_owned(),
            format!("INSERT INTO u VALUES ({id})"),
            format!("INSERT INTO w VALUES ({id})"),
            "SELECT LAST_INSERT_ID()".to_owned(),
            "SELECT ROW_COUNT()".to_owned(),
            "SHOW WARNINGS".to_owned(),
            "SELECT broken".to_owned(),
            format!("SELECT GET_LOCK('l_{who}', 0)"),
            format!("SELECT RELEASE_LOCK('l_{who}')"),
            "USE other".to_owned(),
            "USE db".to_owned(),
            "SELECT DATABASE()".to_owned(),
            "SET autocommit=0".to_owned(),
            "SET autocommit=1".to_owned(),
        ];
        let text = format!("{} /* {who} */", self.dice.pick(&texts));
        match self.dice.below(12) {
            0 => "RESET".to_owned(),
            1 => "PING".to_owned(),
            // Queries for the previous statement's state are recognized only in texts.
            2 if !text.contains("ROW_COUNT") && !text.contains("WARNINGS") => {
                format!("PREPARE {text}")
            }
            3..6 if !self.clients[number].statements.is_empty() => "EXECUTE".to_owned(),
            6 if self.dice.below(3) == 0 && !self.clients[number].statements.is_empty() => {
                "CLOSE".to_owned()
            }
            _ => text,
        }
    }

    /// Presents a client's input to the link, or a part of it.
    fn feed(&mut self, number: usize) {
        loop {
            let client = &mut self.clients[number];
            if client.waits || client.pending.is_empty() {
                return;
            }
            let part = self.dice.part(client.pending.len());
            let mut to_client = Vec::new();
            let mut to_server = Vec::new();
            let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut to_server };
            let server = client.server.map(|server| &mut self.servers[server].link);
            let pending = &client.pending[..part];
            let result = from_client(&mut self.shared, &mut client.link, server, pending, &mut out);
            drop(client.pending.drain(..result.consumed));
            client.given.extend_from_slice(&to_client);
            if let Some(server) = client.server {
                self.servers[server].model.takes(&to_server);
            }
            self.read(number);
            match result.next {
                ClientNext::Read | ClientNext::Wait => return,
                ClientNext::NeedServer => {
                    self.clients[number].waits = true;
                    self.queue.push_back(number);
                    self.lease();
                }
                ClientNext::Released => {
                    let server = self.clients[number].server.take().unwrap();
                    self.servers[server].client = None;
                    self.lease();
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Leases idle server connections to waiting clients.
    fn lease(&mut self) {
        let idle =
            (0..SERVERS).filter(|number| self.servers[*number].link.is_idle()).collect::<Vec<_>>();
        if idle.is_empty() {
            return;
        }
        let number = *self.dice.pick(&idle);
        let Some(who) = self.queue.pop_front() else { return };
        let (client, server) = (&mut self.clients[who], &mut self.servers[number]);
        client.waits = false;
        client.server = Some(number);
        server.client = Some(who);
        let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
        let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut to_server };
        attach(&mut self.shared, &mut client.link, &mut server.link, &mut out);
        server.model.takes(&to_server);
        self.feed(who);
    }

    /// Presents a server's output to the link, or a part of it.
    fn server_speaks(&mut self) {
        let number = self.dice.below(SERVERS);
        let server = &mut self.servers[number];
        server.pending.append(&mut server.model.output);
        if server.pending.is_empty() {
            return;
        }
        let part = self.dice.part(server.pending.len());
        let mut used = 0;
        loop {
            let server = &mut self.servers[number];
            let who = server.client;
            let mut client = who.map(|who| &mut self.clients[who]);
            let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
            let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut to_server };
            let result = from_server(
                &mut self.shared,
                &mut server.link,
                client.as_deref_mut().map(|client| &mut client.link),
                &server.pending[used..part],
                &mut out,
            );
            used += result.consumed;
            server.model.takes(&to_server);
            if let Some(client) = client {
                client.given.extend_from_slice(&to_client);
            } else {
                assert!(to_client.is_empty());
            }
            match result.next {
                ServerNext::Read => break,
                ServerNext::Released => {
                    server.client = None;
                    self.clients[who.unwrap()].server = None;
                    self.read(who.unwrap());
                    self.lease();
                }
                ServerNext::Idle => self.lease(),
                other => panic!("{other:?} {:?}", self.servers[number].link),
            }
        }
        drop(self.servers[number].pending.drain(..used));
        if let Some(who) = self.servers[number].client {
            self.read(who);
            self.feed(who);
        }
    }

    /// Checks the output for a client.
    fn read(&mut self, number: usize) {
        let client = &mut self.clients[number];
        while let Some(header) = PacketHeader::parse(&client.given)
            && header.total() <= client.given.len()
        {
            let packet: Vec<u8> = client.given.drain(..header.total()).collect();
            assert_eq!(header.seq, client.seq, "{}: {}", client.who, client.asked);
            client.seq += 1;
            let own = client.own.last_prepared();
            let (reply, wanted) = client.awaits.as_mut().expect("an answer to a question");
            let mut said = codec::show(reply, client.own.caps, &packet[HEADER_BYTES..]);
            if let Some(rest) = said.strip_prefix("PREPARED[") {
                let id = rest.split('|').next().unwrap().parse().unwrap();
                client.statements.push((id, own));
                said = wanted[0].clone();
            }
            client.told.push(said);
            if reply.is_done() {
                let told = std::mem::take(&mut client.told);
                assert_eq!(told, *wanted, "{}: {:?}", client.who, client.said);
                client.awaits = None;
                self.answers += 1;
                return;
            }
        }
    }

    /// Makes a client leave in any state, and another one arrive.
    fn client_leaves(&mut self, number: usize) {
        self.queue.retain(|who| *who != number);
        if let Some(server) = self.clients[number].server {
            let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
            let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut to_server };
            let link = &mut self.servers[server].link;
            let gone = client_gone(&self.clients[number].link, link, &mut out);
            let server = &mut self.servers[server];
            server.client = None;
            match gone {
                DepartureAction::Close => *server = new_server(),
                DepartureAction::Cancel | DepartureAction::Draining => {
                    server.model.takes(&to_server)
                }
                DepartureAction::Idle => {
                    assert!(!server.model.is_in_command());
                    server.model.takes(&to_server);
                }
            }
        }
        self.clients[number] = self.new_client();
        self.lease();
    }
}

fn new_server() -> Server {
    Server {
        link: MysqlServerSession::new(MysqlServerSetup {
            thread_id: 1,
            pool: 1,
            user: "user".into(),
            capabilities: MODERN,
            status: StatusFlags::AUTOCOMMIT,
            database: Some("db".into()),
            settings: Arc::default(),
            tracks: true,
            read_only: false,
            limits: LinkLimits { prepared_statements_max: 3 },
        }),
        model: Model::new(MODERN),
        client: None,
        pending: Vec::new(),
    }
}

/// Returns a client's command, with its statement numbers and with those of its reference session.
fn command(text: &str, client: &mut Client) -> (Vec<u8>, Vec<u8>) {
    let numbered = |command: Command, id: u32, rest: &[u8]| {
        [&[command.code()][..], &id.to_le_bytes(), rest].concat()
    };
    match text {
        "RESET" => {
            client.statements.clear();
            let payload = vec![Command::ResetConnection.code()];
            (payload.clone(), payload)
        }
        "PING" => {
            let payload = vec![Command::Ping.code()];
            (payload.clone(), payload)
        }
        "EXECUTE" | "CLOSE" => {
            let is_close = text == "CLOSE";
            let (id, own) = *client.statements.last().unwrap();
            let (command, rest): (_, &[u8]) = if is_close {
                client.statements.pop();
                (Command::StmtClose, b"")
            } else {
                client.statements.rotate_left(1);
                (Command::StmtExecute, &[0, 1, 0, 0, 0])
            };
            (numbered(command, id, rest), numbered(command, own, rest))
        }
        _ => {
            let (command, text) = match text.strip_prefix("PREPARE ") {
                Some(text) => (Command::StmtPrepare, text),
                None => (Command::Query, text),
            };
            let payload = [&[command.code()], text.as_bytes()].concat();
            (payload.clone(), payload)
        }
    }
}

/// Returns a whole reply in script form.
fn packets(kind: ReplyKind, caps: CapabilityFlags, mut bytes: &[u8]) -> Vec<String> {
    let mut reply = CommandReplyState::new(kind, caps);
    let mut said = Vec::new();
    while let Some(header) = PacketHeader::parse(bytes) {
        said.push(codec::show(&mut reply, caps, &bytes[HEADER_BYTES..header.total()]));
        bytes = &bytes[header.total()..];
    }
    said
}

fn plays(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    assert!(world.answers > STEPS / 20, "seed {seed}: {}", world.describe());
}

#[test]
fn everybody_has_a_session_of_their_own() {
    let failed: Vec<u64> =
        (1..=40).filter(|seed| std::panic::catch_unwind(|| plays(*seed)).is_err()).collect();
    assert!(failed.is_empty(), "seeds {failed:?}");
}
