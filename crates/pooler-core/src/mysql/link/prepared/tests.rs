//! Prepared statements of many clients at few server connections, against a model of both.
//!
//! The model's server answers an execution with what it ran: the text, the bound types, the values,
//! and the long data. The model's client knows the expected answer.

mod client;
mod server;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use api::{PoolMode, VerifyMode};
use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};

use client::Person;
use server::Model;

use crate::link::{ClientId, ClientNext, DepartureAction, LinkLimits, LinkOutputs, ServerNext};
use crate::mysql::client::{MysqlClientSession, MysqlClientSetup};
use crate::mysql::link::{MysqlLinkContext, attach, client_gone, from_client, from_server};
use crate::mysql::server::{MysqlServerSession, MysqlServerSetup};
use crate::mysql::settings::MysqlSettings;
use crate::pg::statements::HashKey;

const MODERN: CapabilityFlags = CapabilityFlags(
    CapabilityFlags::PROTOCOL_41.0
        | CapabilityFlags::TRANSACTIONS.0
        | CapabilityFlags::MULTI_STATEMENTS.0
        | CapabilityFlags::MULTI_RESULTS.0
        | CapabilityFlags::PS_MULTI_RESULTS.0
        | CapabilityFlags::SESSION_TRACK.0
        | CapabilityFlags::DEPRECATE_EOF.0,
);

const OLD: CapabilityFlags = CapabilityFlags(
    MODERN.0 & !CapabilityFlags::SESSION_TRACK.0 & !CapabilityFlags::DEPRECATE_EOF.0,
);

/// Maximum statements of a server connection: fewer than there are.
const STATEMENTS_MAX: usize = 3;

const SERVERS: usize = 2;

const CLIENTS: usize = 4;

/// Generator of numbers from a seed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }

    pub(super) fn is_one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

struct Server {
    session: MysqlServerSession,
    /// Output of the link that the model has not read.
    to_model: Vec<u8>,
    /// Output of the model that the link has not read.
    from_model: Vec<u8>,
    model: Model,
    client: Option<usize>,
}

impl Server {
    fn new(number: usize) -> Server {
        Server {
            session: MysqlServerSession::new(MysqlServerSetup {
                thread_id: u32::try_from(number).unwrap(),
                pool: 1,
                user: "user".into(),
                capabilities: MODERN,
                status: StatusFlags::AUTOCOMMIT,
                database: Some("db".into()),
                settings: Arc::new(MysqlSettings::default()),
                tracks: true,
                read_only: false,
                limits: LinkLimits { prepared_statements_max: STATEMENTS_MAX },
            }),
            to_model: Vec::new(),
            from_model: Vec::new(),
            model: Model::new(),
            client: None,
        }
    }
}

struct Client {
    session: MysqlClientSession,
    /// Input that the link has not processed.
    pending: Vec<u8>,
    person: Person,
    server: Option<usize>,
    waits: bool,
}

struct World {
    shared: MysqlLinkContext,
    clients: Vec<Client>,
    servers: Vec<Server>,
    dice: Dice,
    next_id: u32,
    executions: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            shared: MysqlLinkContext::new(HashKey::new(), Arc::new(AtomicU64::new(0))),
            clients: Vec::new(),
            servers: Vec::new(),
            dice: Dice(seed),
            next_id: 1,
            executions: 0,
        };
        for number in 0..SERVERS {
            world.servers.push(Server::new(number));
        }
        for _ in 0..CLIENTS {
            let client = world.newcomer();
            world.clients.push(client);
        }
        world
    }

    fn newcomer(&mut self) -> Client {
        let id = self.next_id;
        self.next_id += 1;
        let caps = if self.dice.is_one_in(2) { MODERN } else { OLD };
        let mut settings = MysqlSettings::default();
        let schema = if self.dice.is_one_in(4) { "other" } else { "db" };
        let _kept = settings.put_schema(schema);
        Client {
            session: MysqlClientSession::new(MysqlClientSetup {
                id: ClientId(id),
                mode: PoolMode::Transaction,
                verify: VerifyMode::Unknown,
                read_only: false,
                local_infile: false,
                capabilities: caps,
                settings,
                forced: Arc::new(MysqlSettings::default()),
            }),
            pending: Vec::new(),
            person: Person::new(schema, caps),
            server: None,
            waits: false,
        }
    }

    /// Performs one random step.
    fn step(&mut self) {
        let who = self.dice.below(CLIENTS);
        if self.dice.is_one_in(60) {
            return self.leave(who);
        }
        let client = &mut self.clients[who];
        if !client.person.awaits() && client.pending.is_empty() && self.dice.below(3) > 0 {
            let bytes = client.person.acts(&mut self.dice);
            self.executions += usize::from(client.person.executes());
            for part in chunks(&bytes, &mut self.dice) {
                self.clients[who].pending.extend(part);
                self.feed(who);
            }
        }
        let server = self.dice.below(SERVERS);
        self.run_server(server);
        self.wake();
    }

    /// Lets the model read and answer, and the link read a part of the answer.
    fn run_server(&mut self, number: usize) {
        let server = &mut self.servers[number];
        server.model.reads(&mut server.to_model, &mut server.from_model, &mut self.dice);
        let bytes = std::mem::take(&mut server.from_model);
        let mut held = Vec::new();
        for part in chunks(&bytes, &mut self.dice) {
            held.extend(part);
            self.hear(number, &mut held);
        }
        self.servers[number].from_model.splice(0..0, held);
    }

    fn hear(&mut self, number: usize, held: &mut Vec<u8>) {
        loop {
            let server = &mut self.servers[number];
            let who = server.client;
            let mut to_client = Vec::new();
            let mut out =
                LinkOutputs { to_client: &mut to_client, to_server: &mut server.to_model };
            let client = who.map(|who| &mut self.clients[who].session);
            let result = from_server(&mut self.shared, &mut server.session, client, held, &mut out);
            drop(held.drain(..result.consumed));
            match who {
                Some(who) => self.clients[who].person.hears(&to_client),
                None => assert!(to_client.is_empty()),
            }
            match result.next {
                ServerNext::Read => {
                    if let Some(who) = who {
                        self.feed(who);
                    }
                    return;
                }
                ServerNext::Released => {
                    let who = self.servers[number].client.take().unwrap();
                    self.clients[who].server = None;
                    self.feed(who);
                }
                ServerNext::Idle => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn feed(&mut self, who: usize) {
        loop {
            let client = &mut self.clients[who];
            let mut to_client = Vec::new();
            let mut to_server = Vec::new();
            let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut to_server };
            let server = client.server.map(|number| &mut self.servers[number].session);
            let (shared, session) = (&mut self.shared, &mut client.session);
            let result = from_client(shared, session, server, &client.pending, &mut out);
            drop(client.pending.drain(..result.consumed));
            client.person.hears(&to_client);
            if let Some(number) = client.server {
                self.servers[number].to_model.append(&mut to_server);
            }
            assert!(to_server.is_empty());
            client.waits = false;
            match result.next {
                ClientNext::Read | ClientNext::Wait => return,
                ClientNext::NeedServer => {
                    client.waits = true;
                    if !self.lease(who) {
                        return;
                    }
                }
                ClientNext::Released => {
                    let number = client.server.take().unwrap();
                    self.servers[number].client = None;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn lease(&mut self, who: usize) -> bool {
        let first = self.dice.below(SERVERS);
        let idle = (0..SERVERS)
            .map(|at| (first + at) % SERVERS)
            .find(|number| self.servers[*number].session.is_idle());
        let Some(number) = idle else { return false };
        let (server, client) = (&mut self.servers[number], &mut self.clients[who]);
        server.client = Some(who);
        client.server = Some(number);
        let mut to_client = Vec::new();
        let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut server.to_model };
        attach(&mut self.shared, &mut client.session, &mut server.session, &mut out);
        assert!(to_client.is_empty());
        true
    }

    /// Attaches a free server connection to a waiting client, if there is one.
    fn wake(&mut self) {
        for who in 0..CLIENTS {
            if self.clients[who].waits {
                self.feed(who);
            }
        }
    }

    fn leave(&mut self, who: usize) {
        // A client with an incomplete command has its connection closed, which another test covers.
        if self.clients[who].session.is_in_message() {
            return;
        }
        let newcomer = self.newcomer();
        let left = std::mem::replace(&mut self.clients[who], newcomer);
        let Some(number) = left.server else { return };
        let server = &mut self.servers[number];
        server.client = None;
        let mut to_client = Vec::new();
        let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut server.to_model };
        let gone = client_gone(&left.session, &mut server.session, &mut out);
        assert!(to_client.is_empty());
        if gone == DepartureAction::Close {
            self.servers[number] = Server::new(number);
        }
    }

    /// Completes everything that is in progress.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            for number in 0..SERVERS {
                self.run_server(number);
            }
            self.wake();
            if self.clients.iter().all(|client| !client.person.awaits()) {
                return;
            }
            // Clients that keep their connections are made to release them.
            for who in 0..CLIENTS {
                if !self.clients[who].person.awaits() && self.clients[who].server.is_some() {
                    self.leave(who);
                }
            }
        }
        let servers: Vec<_> = self.servers.iter().map(|server| &server.session).collect();
        panic!("somebody waits for ever: {servers:?}");
    }
}

/// Splits bytes into parts.
fn chunks(bytes: &[u8], dice: &mut Dice) -> Vec<Vec<u8>> {
    let size = [1, 2, 5, 17, 1 << 20][dice.below(5)];
    bytes.chunks(size).map(<[u8]>::to_vec).collect()
}

#[test]
fn every_client_has_its_own_statements_wherever_they_run() {
    let mut executions = 0;
    for seed in 1..=60_u64 {
        let mut world = World::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for _ in 0..600 {
            world.step();
        }
        world.settle();
        executions += world.executions;
        for server in &world.servers {
            let private = server.model.len().saturating_sub(STATEMENTS_MAX);
            assert!(private <= CLIENTS, "{} statements are left behind", server.model.len());
        }
    }
    assert!(executions > 3_000, "{executions}");
}
