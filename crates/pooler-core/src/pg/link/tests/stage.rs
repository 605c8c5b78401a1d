//! A stage for scenarios: clients and servers that follow a script.
//!
//! A script consists of lines. `a> Q[SELECT 1]`: client a sends this. `s< …`: the server has
//! received exactly this since the last check. `s> …`: the server sends this. `a< …`: client a has
//! received exactly this. `a: free`, `a: held`, `a: closed`, `s: idle`, `s: busy`, `s: broken`:
//! checks of the state. `Q[?]` is a probe of the state that was left behind, and `R[a|-|-]` a row
//! of its answer. `server 2`: clients that need a server from now on get this one.
//! `a gone: cancel`: the client leaves, and this action is expected.
//!
//! A message is its tag and, in brackets, its parts. The pooler's own names appear as `#1`, `#2`, …
//! in the order of their first occurrence.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use api::{PoolMode, VerifyMode};
use wire::pg::frame::{HEADER_BYTES, PgHeader, put_header, split_string};

use crate::pg::client::{ClientId, PgClientSession, PgClientSetup};
use crate::pg::link::{
    ClientNext, DepartureAction, LinkLimits, LinkOutputs, PgLinkContext, ServerNext, attach,
    client_gone, from_client, from_server,
};
use crate::pg::server::{PgServerSession, PgServerSetup};
use crate::pg::settings::{PgSettings, ReportedParameters};
use crate::pg::statements::HashKey;

pub(super) struct Setup {
    pub(super) mode: PoolMode,
    pub(super) verify: VerifyMode,
    pub(super) read_only: bool,
    pub(super) limits: LinkLimits,
    /// Start settings of clients, by their letters.
    pub(super) settings: &'static [(char, &'static str, &'static str)],
    pub(super) forced: &'static [(&'static str, &'static str)],
    /// Start settings of servers.
    pub(super) startup: &'static [(&'static str, &'static str)],
    /// Parameters that servers report.
    pub(super) reported: &'static [(&'static str, &'static str)],
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            mode: PoolMode::Transaction,
            verify: VerifyMode::Never,
            read_only: false,
            limits: LinkLimits::default(),
            settings: &[],
            forced: &[],
            startup: &[],
            reported: &[("TimeZone", "UTC")],
        }
    }
}

struct Client {
    session: PgClientSession,
    pending: Vec<u8>,
    given: Vec<u8>,
    server: Option<u8>,
    closed: bool,
}

struct Server {
    session: PgServerSession,
    pending: Vec<u8>,
    given: Vec<u8>,
    client: Option<char>,
    broken: bool,
}

struct Stage<'a> {
    setup: &'a Setup,
    shared: PgLinkContext,
    clients: HashMap<char, Client>,
    servers: HashMap<u8, Server>,
    server: u8,
    /// The pooler's own names, in the order of their first occurrence.
    names: Vec<String>,
    /// Channels to which the listener was asked to subscribe.
    heard: Vec<String>,
    /// Bytes per read.
    chunk: usize,
}

/// Plays a script, with the bytes split in several ways.
pub(super) fn play(setup: &Setup, script: &str) {
    for chunk in [usize::MAX, 1, 2, 3, 7] {
        let mut stage = Stage {
            setup,
            shared: PgLinkContext::new(HashKey::new(), Arc::new(AtomicU64::new(0))),
            clients: HashMap::new(),
            servers: HashMap::new(),
            server: 1,
            names: Vec::new(),
            heard: Vec::new(),
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
        let mut letters = line.chars();
        let (who, what) = (letters.next().unwrap(), letters.next().unwrap());
        let rest = line.get(2..).unwrap().trim();
        match (who, what) {
            ('h', 'e') => {
                let heard = std::mem::take(&mut self.heard).join(" ");
                assert_eq!(heard, line.strip_prefix("hears: ").unwrap(), "(chunk {chunk})");
            }
            (who, ' ') if rest.starts_with("listens:") => {
                let channels = self.client(who).session.channels().join(",");
                assert_eq!(channels, rest.strip_prefix("listens:").unwrap().trim(), "{line}");
            }
            ('s', 'e') => self.server = line.split(' ').nth(1).unwrap().parse().unwrap(),
            ('s', '>') => {
                let bytes = self.encode(rest, backend);
                for part in bytes.chunks(chunk.min(bytes.len().max(1))) {
                    self.server_sends(part);
                }
            }
            ('s', '<') => {
                let given = std::mem::take(&mut self.server().given);
                let shown = self.decode(&given, show_frontend);
                assert_eq!(shown, rest, "{line} (chunk {chunk})");
            }
            ('s', ':') => {
                let server = self.server();
                let now = match (server.broken, server.session.is_idle()) {
                    (true, _) => "broken",
                    (false, true) => "idle",
                    (false, false) => "busy",
                };
                assert_eq!(now, rest, "{line} (chunk {chunk})");
            }
            (who, '>') => {
                let bytes = self.encode(rest, frontend);
                for part in bytes.chunks(chunk.min(bytes.len().max(1))) {
                    self.client(who).pending.extend_from_slice(part);
                    self.run(who);
                }
            }
            (who, '<') => {
                let given = std::mem::take(&mut self.client(who).given);
                let shown = self.decode(&given, show_backend);
                assert_eq!(shown, rest, "{line} (chunk {chunk})");
            }
            (who, ':') => {
                let client = self.client(who);
                let now = match (client.closed, client.session.is_attached()) {
                    (true, _) => "closed",
                    (false, true) => "held",
                    (false, false) => "free",
                };
                assert_eq!(now, rest, "{line} (chunk {chunk})");
            }
            (who, ' ') => {
                let wanted = rest.strip_prefix("gone: ").unwrap();
                let gone = self.leave(who);
                assert_eq!(gone, wanted, "{line} (chunk {chunk})");
            }
            _ => panic!("{line}"),
        }
    }

    fn server(&mut self) -> &mut Server {
        let Setup { limits, startup, reported, .. } = *self.setup;
        self.servers.entry(self.server).or_insert_with(|| Server {
            session: PgServerSession::new(PgServerSetup {
                pid: 1,
                pool: 1,
                user: "login".into(),
                key: Box::new([1, 2, 3, 4]),
                parameters: ReportedParameters::of(reported.iter().copied()),
                settings: Arc::new(PgSettings::of(startup.iter().copied())),
                limits,
            }),
            pending: Vec::new(),
            given: Vec::new(),
            client: None,
            broken: false,
        })
    }

    fn client(&mut self, who: char) -> &mut Client {
        let setup = self.setup;
        self.clients.entry(who).or_insert_with(|| {
            let mine = setup.settings.iter().filter(|setting| setting.0 == who);
            Client {
                session: PgClientSession::new(PgClientSetup {
                    id: ClientId(u32::from(who)),
                    mode: setup.mode,
                    verify: setup.verify,
                    read_only: setup.read_only,
                    settings: PgSettings::of(mine.map(|setting| (setting.1, setting.2))),
                    forced: Arc::new(PgSettings::of(setup.forced.iter().copied())),
                    seen: Arc::new(ReportedParameters::of(setup.reported.iter().copied())),
                }),
                pending: Vec::new(),
                given: Vec::new(),
                server: None,
                closed: false,
            }
        })
    }

    /// Processes a client's input, like the relay.
    fn run(&mut self, who: char) {
        loop {
            self.server();
            self.client(who);
            let client = self.clients.get_mut(&who).unwrap();
            if client.closed {
                return;
            }
            let mut nobody = Vec::new();
            let mut server = client.server.map(|number| self.servers.get_mut(&number).unwrap());
            let (session, to_server) = match &mut server {
                Some(server) => (Some(&mut server.session), &mut server.given),
                None => (None, &mut nobody),
            };
            let out = &mut LinkOutputs { to_client: &mut client.given, to_server };
            let shared = &mut self.shared;
            let result = from_client(shared, &mut client.session, session, &client.pending, out);
            client.pending.drain(..result.consumed);
            match result.next {
                ClientNext::Read | ClientNext::Wait => return,
                ClientNext::NeedServer => {
                    let server = self.servers.get_mut(&self.server).unwrap();
                    assert!(server.session.is_idle(), "{who} needs a server");
                    client.server = Some(self.server);
                    server.client = Some(who);
                    let out = &mut LinkOutputs {
                        to_client: &mut client.given,
                        to_server: &mut server.given,
                    };
                    attach(&mut self.shared, &mut client.session, &mut server.session, out);
                }
                ClientNext::NeedListener => {
                    let channels = client.session.wanted_channels().join(",");
                    self.heard.push(channels);
                    client.session.channels_confirmed();
                }
                ClientNext::Drain
                | ClientNext::Kill { .. }
                | ClientNext::ChangeUser
                | ClientNext::Released => {
                    panic!("{:?}", result.next)
                }
                ClientNext::Terminate | ClientNext::Refuse => {
                    client.closed = true;
                    if client.server.is_some() {
                        let _how = self.leave(who);
                    }
                    return;
                }
            }
        }
    }

    fn server_sends(&mut self, part: &[u8]) {
        self.server();
        let server = self.servers.get_mut(&self.server).unwrap();
        server.pending.extend_from_slice(part);
        let mut nobody = Vec::new();
        let mut client = server.client.map(|who| self.clients.get_mut(&who).unwrap());
        let (session, to_client) = match &mut client {
            Some(client) => (Some(&mut client.session), &mut client.given),
            None => (None, &mut nobody),
        };
        let out = &mut LinkOutputs { to_client, to_server: &mut server.given };
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
            ServerNext::Failed | ServerNext::Broken(_) => {
                server.broken = true;
                if let Some(client) = client {
                    client.closed = true;
                }
            }
        }
        if let Some(who) = who {
            self.run(who);
        }
    }

    fn leave(&mut self, who: char) -> &'static str {
        let client = self.clients.get_mut(&who).unwrap();
        client.closed = true;
        let Some(number) = client.server.take() else { return "nothing" };
        let server = self.servers.get_mut(&number).unwrap();
        server.client = None;
        let mut nobody = Vec::new();
        let out = &mut LinkOutputs { to_client: &mut nobody, to_server: &mut server.given };
        match client_gone(&client.session, &mut server.session, out) {
            DepartureAction::Cancel => "cancel",
            DepartureAction::Draining => "draining",
            DepartureAction::Idle => "idle",
            DepartureAction::Close => "close",
        }
    }

    fn encode(&self, tokens: &str, one: fn(&str, &[&str]) -> (u8, Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        for token in split(tokens) {
            let (tag, parts) = match token.split_once('[') {
                Some((tag, parts)) => (tag, parts.strip_suffix(']').unwrap()),
                None => (token, ""),
            };
            let parts: Vec<&str> = parts.split('|').collect();
            let (tag, body) = one(tag, &parts);
            put_header(&mut out, tag, body.len());
            out.extend_from_slice(&body);
        }
        out
    }

    fn decode(&mut self, bytes: &[u8], one: fn(u8, &[u8]) -> String) -> String {
        let mut shown = Vec::new();
        let mut rest = bytes;
        while let Some(header) = PgHeader::parse(rest).unwrap() {
            let (message, after) = rest.split_at_checked(header.total).unwrap_or((rest, &[]));
            shown.push(one(header.tag, message.get(HEADER_BYTES..).unwrap()));
            rest = after;
        }
        let mut shown = shown.join(" ");
        while let Some(at) = shown.find("cove_") {
            let name = shown[at..at + 37].to_owned();
            let number = self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
                self.names.push(name.clone());
                self.names.len() - 1
            });
            shown = shown.replace(&name, &format!("#{}", number + 1));
        }
        shown
    }
}

/// Splits at spaces outside of brackets.
fn split(tokens: &str) -> Vec<&str> {
    let mut depth = 0;
    tokens
        .split(|letter| {
            depth += i32::from(letter == '[') - i32::from(letter == ']');
            letter == ' ' && depth == 0
        })
        .filter(|token| !token.is_empty())
        .collect()
}

fn strings(parts: &[&str]) -> Vec<u8> {
    parts.iter().flat_map(|part| [part.as_bytes(), b"\0"].concat()).collect()
}

fn frontend(tag: &str, parts: &[&str]) -> (u8, Vec<u8>) {
    match tag {
        "Q" => (b'Q', strings(parts)),
        "P" => (b'P', [strings(parts), vec![0, 0]].concat()),
        "B" => (b'B', [strings(parts), vec![0; 6]].concat()),
        "DS" | "CS" => (tag.as_bytes()[0], [b"S", strings(parts).as_slice()].concat()),
        "DP" | "CP" => (tag.as_bytes()[0], [b"P", strings(parts).as_slice()].concat()),
        "E" => (b'E', [strings(parts), vec![0; 4]].concat()),
        "d" => (b'd', parts.concat().into_bytes()),
        "f" => (b'f', strings(parts)),
        "S" | "H" | "X" | "c" | "y" => (tag.as_bytes()[0], Vec::new()),
        "F" => (b'F', parts.concat().into_bytes()),
        _ => panic!("{tag}"),
    }
}

fn backend(tag: &str, parts: &[&str]) -> (u8, Vec<u8>) {
    match tag {
        "C" | "S" => (tag.as_bytes()[0], strings(parts)),
        "ZI" | "ZT" | "ZE" => (b'Z', vec![tag.as_bytes()[1]]),
        "E" | "N" => (tag.as_bytes()[0], fields(parts)),
        "R" => (b'D', row(parts)),
        // The result of a function call, or none.
        "V" if parts == ["-"] => (b'V', vec![0xff; 4]),
        "A" => (b'A', [vec![0, 0, 0, 1], strings(parts)].concat()),
        _ => (tag.as_bytes()[0], parts.concat().into_bytes()),
    }
}

/// Returns a row in wire format; `-` is a column without a value.
fn row(parts: &[&str]) -> Vec<u8> {
    let mut body = u16::try_from(parts.len()).unwrap().to_be_bytes().to_vec();
    for part in parts {
        let bytes = if *part == "-" { -1 } else { i32::try_from(part.len()).unwrap() };
        body.extend(bytes.to_be_bytes());
        body.extend(part.bytes().filter(|_| bytes >= 0));
    }
    body
}

/// Severity, code, message, and the routine if there is a fourth part.
fn fields(parts: &[&str]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, part) in b"VCMR".iter().zip(parts) {
        body.push(*kind);
        body.extend_from_slice(part.as_bytes());
        body.push(0);
    }
    body.push(0);
    body
}

fn show(tag: &str, parts: &[&[u8]]) -> String {
    let parts: Vec<_> = parts.iter().map(|part| String::from_utf8_lossy(part)).collect();
    if parts.is_empty() { tag.to_owned() } else { format!("{tag}[{}]", parts.join("|")) }
}

fn show_strings(tag: &str, body: &[u8], count: usize) -> String {
    let mut rest = body;
    let mut parts = Vec::new();
    for _ in 0..count {
        let (part, after) = split_string(rest).unwrap();
        parts.push(part);
        rest = after;
    }
    show(tag, &parts)
}

fn show_frontend(tag: u8, body: &[u8]) -> String {
    let letter = char::from(tag).to_string();
    match tag {
        // The pooler's probe of the state that was left behind.
        b'Q' if body.starts_with(b"SELECT '") => "Q[?]".to_owned(),
        b'Q' | b'E' => show_strings(&letter, body, 1),
        b'P' | b'B' => show_strings(&letter, body, 2),
        b'f' => letter,
        // A function call of the pooler, which has no arguments.
        b'F' if body.len() == 10 && body.ends_with(&[0; 6]) => {
            format!("F[{}]", u32::from_be_bytes(*body.first_chunk().unwrap()))
        }
        b'D' | b'C' => show_strings(&format!("{letter}{}", char::from(body[0])), &body[1..], 1),
        _ if body.is_empty() => letter,
        _ => show(&letter, &[body]),
    }
}

fn show_backend(tag: u8, body: &[u8]) -> String {
    let letter = char::from(tag).to_string();
    match tag {
        b'C' => show_strings(&letter, body, 1),
        b'S' => show_strings(&letter, body, 2),
        b'A' => show_strings(&letter, &body[4..], 2),
        b'Z' => format!("Z{}", char::from(body[0])),
        b'E' | b'N' => {
            let notice = wire::pg::notice::ServerNotice::parse(body);
            let code = notice.code();
            format!("{letter}[{}|{code}|{}]", notice.severity().as_str(), notice.message())
        }
        _ if body.is_empty() => letter,
        _ => show(&letter, &[body]),
    }
}
