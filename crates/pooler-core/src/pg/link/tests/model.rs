//! Many clients on few servers receive what each would receive from a server of its own.
//!
//! Clients send random requests, pipelined and split anywhere, and some leave in the middle;
//! servers are minimal, and their replies arrive late and in pieces. Each row contains the text
//! that ran and its settings, both with the number of its client, so that foreign statements and
//! settings are detected.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use api::{PoolMode, VerifyMode};
use proptest::prelude::*;
use wire::pg::frame::{HEADER_BYTES, PgHeader, TransactionStatus, put_header, split_string};
use wire::pg::message::{self, ErrorFields, backend};
use wire::pg::notice::ServerNotice;

use crate::pg::client::{ClientId, PgClientSession, PgClientSetup};
use crate::pg::link::{
    ClientNext, DepartureAction, LinkLimits, LinkOutputs, PgLinkContext, ServerNext, attach,
    client_gone, from_client, from_server,
};
use crate::pg::server::{PgServerSession, PgServerSetup};
use crate::pg::settings::{PgSettings, ReportedParameters};
use crate::pg::statements::HashKey;

/// A stream of random choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: usize) -> usize {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }
}

/// A server: statements, one portal, settings, a transaction.
#[derive(Default)]
struct Sim {
    inbox: Vec<u8>,
    named: HashMap<Vec<u8>, String>,
    portal: Option<String>,
    settings: BTreeMap<String, String>,
    /// The settings to restore if the transaction fails.
    before: Option<BTreeMap<String, String>>,
    status: TransactionStatus,
    skipping: bool,
}

type Outcome = Result<(), &'static str>;

impl Sim {
    /// Reads the available input and answers it.
    fn run(&mut self, out: &mut Vec<u8>) {
        let inbox = std::mem::take(&mut self.inbox);
        let mut rest = inbox.as_slice();
        while let Some(header) = PgHeader::parse(rest).unwrap()
            && let Some(message) = rest.get(..header.total)
        {
            self.message(header.tag, &message[HEADER_BYTES..], out);
            rest = &rest[header.total..];
        }
        self.inbox = rest.to_vec();
    }

    fn message(&mut self, tag: u8, body: &[u8], out: &mut Vec<u8>) {
        if self.skipping && tag != b'S' {
            return;
        }
        let outcome = match tag {
            b'Q' => {
                let text = split_string(body).unwrap().0;
                self.portal = None;
                self.named.remove(b"".as_slice());
                self.query(std::str::from_utf8(text).unwrap(), out);
                return;
            }
            b'S' => {
                self.skipping = false;
                self.portal = self.portal.take().filter(|_| self.before.is_some());
                self.end_implicit();
                backend::ready_for_query(out, self.status);
                return;
            }
            b'H' => return,
            b'P' => self.parse(body, out),
            b'B' => self.bind(body, out),
            b'D' => self.describe(body, out),
            b'E' => match self.portal.clone() {
                Some(text) => self.execute(&text, out),
                None => Err("34000"),
            },
            b'C' => {
                if body[0] == b'S' {
                    self.named.remove(split_string(&body[1..]).unwrap().0);
                }
                backend::close_complete(out);
                Ok(())
            }
            _ => panic!("{}", char::from(tag)),
        };
        if let Err(code) = outcome {
            self.fail(code, out);
            self.skipping = true;
        }
    }

    fn fail(&mut self, code: &str, out: &mut Vec<u8>) {
        backend::error(out, &ErrorFields::error(code, "failed"));
        if self.status != TransactionStatus::Idle {
            self.status = TransactionStatus::Failed;
        } else if let Some(before) = self.before.take() {
            self.settings = before;
        }
    }

    fn end_implicit(&mut self) {
        if self.status == TransactionStatus::Idle {
            self.before = None;
        }
    }

    fn query(&mut self, text: &str, out: &mut Vec<u8>) {
        for statement in text.split(';').filter(|statement| !statement.is_empty()) {
            if let Err(code) = self.execute(statement, out) {
                self.fail(code, out);
                break;
            }
        }
        self.end_implicit();
        backend::ready_for_query(out, self.status);
    }

    fn is_refused(&self, text: &str) -> bool {
        let ends = matches!(text, "COMMIT" | "ROLLBACK");
        self.status == TransactionStatus::Failed && !ends
    }

    fn parse(&mut self, body: &[u8], out: &mut Vec<u8>) -> Outcome {
        let (name, rest) = split_string(body).unwrap();
        let text = String::from_utf8(split_string(rest).unwrap().0.to_vec()).unwrap();
        if name.is_empty() {
            // The former one is dropped in any case.
            self.named.remove(name);
        }
        if self.is_refused(&text) {
            return Err("25P02");
        }
        if !name.is_empty() && self.named.contains_key(name) {
            return Err("42P05");
        }
        if text.contains("nonsense") {
            return Err("42601");
        }
        self.named.insert(name.to_vec(), text);
        backend::parse_complete(out);
        Ok(())
    }

    fn bind(&mut self, body: &[u8], out: &mut Vec<u8>) -> Outcome {
        let name = split_string(split_string(body).unwrap().1).unwrap().0;
        let text = self.named.get(name).cloned().ok_or("26000")?;
        if self.is_refused(&text) {
            return Err("25P02");
        }
        self.portal = Some(text);
        backend::bind_complete(out);
        Ok(())
    }

    fn describe(&self, body: &[u8], out: &mut Vec<u8>) -> Outcome {
        if body[0] == b'S' {
            let name = split_string(&body[1..]).unwrap().0;
            let text = self.named.get(name).ok_or("26000")?;
            if self.is_refused(text) {
                return Err("25P02");
            }
            put_header(out, b't', 2);
            out.extend_from_slice(&[0, 0]);
        }
        backend::no_data(out);
        Ok(())
    }

    /// Returns the answer to a relay's probe.
    fn answer(&self, text: &str, out: &mut Vec<u8>) {
        if text.contains("'s', name") {
            for (name, value) in &self.settings {
                backend::data_row(out, &[Some("s"), Some(name), Some(value.trim_matches('\''))]);
            }
        }
        if text.contains("'r', session_user") {
            backend::data_row(out, &[Some("r"), Some("login"), Some("none")]);
        }
        assert!(!text.contains("'n', "), "{text}");
    }

    fn execute(&mut self, text: &str, out: &mut Vec<u8>) -> Outcome {
        if self.is_refused(text) {
            return Err("25P02");
        }
        if !matches!(text, "BEGIN" | "COMMIT" | "ROLLBACK") && self.before.is_none() {
            self.before = Some(self.settings.clone());
        }
        let tag = match text {
            "BEGIN" => {
                self.status = TransactionStatus::InTransaction;
                // Earlier requests of the same batch become part of the transaction.
                self.before.get_or_insert_with(|| self.settings.clone());
                "BEGIN"
            }
            "COMMIT" | "ROLLBACK" => {
                let good = text == "COMMIT" && self.status != TransactionStatus::Failed;
                if let Some(before) = self.before.take()
                    && !good
                {
                    self.settings = before;
                }
                self.status = TransactionStatus::Idle;
                if good { "COMMIT" } else { "ROLLBACK" }
            }
            "DISCARD ALL" => {
                self.settings.clear();
                self.named.clear();
                "DISCARD ALL"
            }
            "DEALLOCATE ALL" => {
                self.named.clear();
                "DEALLOCATE ALL"
            }
            "RESET ALL" => {
                self.settings.clear();
                "RESET"
            }
            _ if text.starts_with("SET ") => {
                let (name, value) = text[4..].split_once(" TO ").unwrap();
                self.settings.insert(name.to_owned(), value.to_owned());
                "SET"
            }
            _ if text.starts_with("RESET ") => {
                self.settings.remove(&text[6..]);
                "RESET"
            }
            _ if text.starts_with("SELECT pg_catalog.set_config(") => {
                let parts: Vec<&str> = text.split('\'').collect();
                self.settings.insert(parts[1].to_owned(), parts[3].to_owned());
                "SELECT 1"
            }
            _ if text.starts_with("SELECT '") => {
                self.answer(text, out);
                "SELECT 0"
            }
            _ if text.contains("/ 0") => return Err("22012"),
            _ => {
                let row = format!("{text} {:?}", self.settings);
                backend::data_row(out, &[Some(&row)]);
                "SELECT 1"
            }
        };
        backend::command_complete(out, tag);
        Ok(())
    }
}

/// One client: its input and output, and a reference server of its own.
struct Client {
    session: PgClientSession,
    /// Requests that it has not sent yet.
    script: VecDeque<u8>,
    pending: Vec<u8>,
    given: Vec<u8>,
    wanted: Vec<u8>,
    server: Option<usize>,
    sent: Vec<u8>,
}

struct Server {
    session: PgServerSession,
    sim: Sim,
    /// Bytes that it has sent and that have not arrived yet.
    coming: VecDeque<u8>,
    pending: Vec<u8>,
    client: Option<usize>,
}

struct World {
    choices: Choices,
    shared: PgLinkContext,
    clients: Vec<Option<Client>>,
    servers: Vec<Server>,
}

fn random_text(choices: &mut Choices, who: usize) -> String {
    let number = choices.below(4);
    match choices.below(16) {
        0 => "BEGIN".to_owned(),
        1 => "COMMIT".to_owned(),
        2 => "ROLLBACK".to_owned(),
        3 | 4 => format!("SET work_mem TO '{who}{number}'"),
        5 => format!("SET search_path TO p{who}"),
        6 => "RESET work_mem".to_owned(),
        7 => format!("SELECT {number} / 0"),
        8 => "SELECT nonsense".to_owned(),
        // The same for all clients.
        9..13 => format!("SELECT {number}"),
        _ => format!("SELECT {who}, {number}"),
    }
}

fn random_script(choices: &mut Choices, who: usize) -> Vec<u8> {
    use message::frontend as f;
    let mut out = Vec::new();
    let names = ["", "", "s", "t", "u"];
    for _ in 0..1 + choices.below(12) {
        if choices.one_in(3) {
            let text = random_text(choices, who);
            let simple = if text.contains("nonsense") { "SELECT 1 / 0" } else { &text };
            f::query(&mut out, if choices.one_in(25) { "DEALLOCATE ALL" } else { simple });
            continue;
        }
        for _ in 0..choices.below(5) {
            let name = names[choices.below(names.len())];
            match choices.below(8) {
                0..3 => f::parse(&mut out, name, &random_text(choices, who), &[]),
                3 => f::close_statement(&mut out, name),
                4 => f::describe_statement(&mut out, name),
                _ => {
                    let body = [b"\0", name.as_bytes(), &[0; 7]].concat();
                    put_header(&mut out, b'B', body.len());
                    out.extend_from_slice(&body);
                    put_header(&mut out, b'E', 5);
                    out.extend_from_slice(&[0; 5]);
                }
            }
        }
        f::sync(&mut out);
    }
    // No transaction stays open.
    f::query(&mut out, "ROLLBACK");
    out
}

impl World {
    fn new(seed: u64) -> World {
        let shared = PgLinkContext::new(HashKey::new(), Arc::new(AtomicU64::new(0)));
        let server = |_| Server {
            session: PgServerSession::new(PgServerSetup {
                pid: 1,
                key: Box::new([]),
                pool: 1,
                user: "login".into(),
                parameters: ReportedParameters::default(),
                settings: Arc::new(PgSettings::default()),
                limits: LinkLimits { prepared_statements_max: 3 },
            }),
            sim: Sim::default(),
            coming: VecDeque::new(),
            pending: Vec::new(),
            client: None,
        };
        let servers = (0..2).map(server).collect();
        World { choices: Choices(seed), shared, clients: Vec::new(), servers }
    }

    fn arrive(&mut self) {
        let who = self.clients.len();
        let script = random_script(&mut self.choices, who);
        let mut own = Sim { inbox: script.clone(), ..Sim::default() };
        let mut wanted = Vec::new();
        own.run(&mut wanted);
        let session = PgClientSession::new(PgClientSetup {
            id: ClientId(u32::try_from(who).unwrap()),
            mode: PoolMode::Transaction,
            verify: VerifyMode::Never,
            read_only: false,
            settings: PgSettings::default(),
            forced: Arc::default(),
            seen: Arc::default(),
        });
        self.clients.push(Some(Client {
            session,
            sent: script.clone(),
            script: script.into(),
            pending: Vec::new(),
            given: Vec::new(),
            wanted,
            server: None,
        }));
    }

    /// Processes a client's input.
    fn run(&mut self, who: usize) {
        loop {
            let Some(client) = &mut self.clients[who] else { return };
            let mut nobody = Vec::new();
            let mut server = client.server.map(|number| &mut self.servers[number]);
            let (session, to_server) = match &mut server {
                Some(server) => (Some(&mut server.session), &mut server.sim.inbox),
                None => (None, &mut nobody),
            };
            let out = &mut LinkOutputs { to_client: &mut client.given, to_server };
            let shared = &mut self.shared;
            let result = from_client(shared, &mut client.session, session, &client.pending, out);
            client.pending.drain(..result.consumed);
            match result.next {
                ClientNext::Read | ClientNext::Wait => return,
                ClientNext::NeedServer => {
                    let free = |server: &Server| server.session.is_idle();
                    let Some(number) = self.servers.iter().position(free) else { return };
                    client.server = Some(number);
                    let server = &mut self.servers[number];
                    server.client = Some(who);
                    let out = &mut LinkOutputs {
                        to_client: &mut client.given,
                        to_server: &mut server.sim.inbox,
                    };
                    attach(&mut self.shared, &mut client.session, &mut server.session, out);
                }
                next => panic!("client {who}: {next:?}"),
            }
        }
    }

    fn client_sends(&mut self, who: usize) {
        let Some(client) = &mut self.clients[who] else { return };
        let most = client.script.len().min(if self.choices.one_in(3) { 7 } else { 400 });
        let count = if most == 0 { 0 } else { 1 + self.choices.below(most) };
        client.pending.extend(client.script.drain(..count));
        self.run(who);
    }

    fn server_sends(&mut self, number: usize) {
        let server = &mut self.servers[number];
        let mut said = Vec::new();
        server.sim.run(&mut said);
        server.coming.extend(said);
        let most = server.coming.len().min(if self.choices.one_in(3) { 9 } else { 500 });
        let count = if most == 0 { 0 } else { 1 + self.choices.below(most) };
        server.pending.extend(server.coming.drain(..count));
        let mut nobody = Vec::new();
        let mut client = server.client.and_then(|who| self.clients[who].as_mut());
        let (session, to_client) = match &mut client {
            Some(client) => (Some(&mut client.session), &mut client.given),
            None => (None, &mut nobody),
        };
        let out = &mut LinkOutputs { to_client, to_server: &mut server.sim.inbox };
        let shared = &mut self.shared;
        let result = from_server(shared, &mut server.session, session, &server.pending, out);
        server.pending.drain(..result.consumed);
        let who = server.client;
        match result.next {
            ServerNext::Read | ServerNext::Idle => {}
            ServerNext::Released => {
                client.unwrap().server = None;
                server.client = None;
            }
            next => panic!("server {number}: {next:?}"),
        }
        if let Some(who) = who {
            self.run(who);
        }
    }

    fn leave(&mut self, who: usize) {
        let Some(client) = self.clients[who].take() else { return };
        let Some(number) = client.server else { return };
        let server = &mut self.servers[number];
        server.client = None;
        let mut nobody = Vec::new();
        let out = &mut LinkOutputs { to_client: &mut nobody, to_server: &mut server.sim.inbox };
        if client_gone(&client.session, &mut server.session, out) == DepartureAction::Close {
            // A message was partly sent: the connection cannot be used any more.
            *server = World::new(0).servers.remove(0);
        }
    }

    /// Checks that a client received what a server of its own would have sent.
    fn check(&self, who: usize) {
        let Some(client) = &self.clients[who] else { return };
        let (given, wanted) = (show(&client.given), show(&client.wanted));
        assert_eq!(given, wanted, "client {who} sent {}", sent(&client.sent));
    }
}

/// Returns messages as text. For a batch that fails within a failed transaction, its progress and
/// its error are not compared: a server then refuses almost everything, and a relay may report the
/// actual reason.
fn show(bytes: &[u8]) -> Vec<String> {
    let mut shown = Vec::new();
    let mut batch = Vec::new();
    let mut failed = false;
    let mut rest = bytes;
    while let Some(header) = PgHeader::parse(rest).unwrap() {
        let body = &rest[HEADER_BYTES..header.total];
        batch.push(match header.tag {
            b'E' => format!("error {}", ServerNotice::parse(body).code()),
            tag => format!("{} {}", char::from(tag), String::from_utf8_lossy(body)),
        });
        rest = &rest[header.total..];
        if header.tag == b'Z' {
            if failed && batch.iter().any(|message| message.starts_with("error")) {
                batch.retain(|message| message.starts_with('Z'));
            }
            failed = body == b"E";
            shown.append(&mut batch);
        }
    }
    assert!(batch.is_empty(), "{batch:?}");
    shown
}

/// Returns a client's requests in readable form.
fn sent(bytes: &[u8]) -> String {
    let mut shown = String::new();
    let mut rest = bytes;
    while let Some(header) = PgHeader::parse(rest).unwrap() {
        let body = String::from_utf8_lossy(&rest[HEADER_BYTES..header.total]).replace('\0', "|");
        shown += &format!("{}[{body}] ", char::from(header.tag));
        rest = &rest[header.total..];
    }
    shown
}

fn converse(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..400 {
        let active = world.clients.iter().flatten().count();
        if active < 4 && world.clients.len() < 14 {
            world.arrive();
        }
        let count = world.clients.len();
        let who = world.choices.below(count);
        match world.choices.below(40) {
            0 => world.leave(who),
            1..20 => world.client_sends(who),
            number => world.server_sends(number % 2),
        }
    }
    for round in 0.. {
        assert!(round < 20_000, "somebody waits for ever");
        let done = |client: &Client| {
            client.script.is_empty() && client.pending.is_empty() && client.server.is_none()
        };
        let count = world.clients.len();
        for who in 0..count {
            world.client_sends(who);
        }
        world.server_sends(0);
        world.server_sends(1);
        if world.clients.iter().flatten().all(done) {
            break;
        }
    }
    for who in 0..world.clients.len() {
        world.check(who);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_client_sees_what_it_would_see_on_a_server_of_its_own(seed in any::<u64>()) {
        converse(seed);
    }
}
