//! A minimal reference server: the state of a session, and the effects of texts on it.
//!
//! Texts of clients end with a comment that names the sender, so that foreign state in a session is
//! detected as soon as a text runs in it.

use std::collections::{BTreeMap, BTreeSet};

use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::changes::{TrackedChange, put_change};
use wire::mysql::command::Command;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_built};
use wire::mysql::lenenc::put_bytes;
use wire::mysql::packet::{self, EofPacket, OkPacket, ResultColumn, put_result};

/// One session.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) caps: CapabilityFlags,
    input: Vec<u8>,
    pub(super) output: Vec<u8>,
    schema: String,
    vars: BTreeMap<String, String>,
    user: Option<String>,
    temp: BTreeSet<String>,
    locks: BTreeSet<String>,
    in_transaction: bool,
    insert_id: u64,
    row_count: i64,
    warnings: Vec<[String; 3]>,
    statements: BTreeMap<u32, String>,
    prepared: u32,
    tracks: bool,
    changes: Vec<u8>,
    seq: u8,
    binary: bool,
}

impl Model {
    pub(super) fn new(caps: CapabilityFlags) -> Model {
        Model {
            caps,
            input: Vec::new(),
            output: Vec::new(),
            schema: "db".to_owned(),
            vars: BTreeMap::new(),
            user: None,
            temp: BTreeSet::new(),
            locks: BTreeSet::new(),
            in_transaction: false,
            insert_id: 0,
            row_count: 0,
            warnings: Vec::new(),
            statements: BTreeMap::new(),
            prepared: 0,
            tracks: true,
            changes: Vec::new(),
            seq: 1,
            binary: false,
        }
    }

    /// Processes bytes, and answers every complete command.
    pub(super) fn takes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while let Some(header) = PacketHeader::parse(&self.input) {
            if self.input.len() < header.total() {
                return;
            }
            assert_eq!(header.seq, 0, "a command begins with 0");
            let payload: Vec<u8> = self.input.drain(..header.total()).skip(HEADER_BYTES).collect();
            self.seq = 1;
            self.binary = false;
            self.command(&payload);
        }
    }

    /// Returns the number of the statement that was prepared last.
    pub(super) fn last_prepared(&self) -> u32 {
        self.prepared
    }

    /// Returns whether an incomplete command has arrived.
    pub(super) fn is_in_command(&self) -> bool {
        !self.input.is_empty()
    }

    fn command(&mut self, payload: &[u8]) {
        let (first, rest) = payload.split_first().expect("a command");
        let text = String::from_utf8_lossy(rest).into_owned();
        let id = rest.first_chunk().map_or(0, |id| u32::from_le_bytes(*id));
        match Command::of(*first) {
            Some(Command::Query) => self.text(&text),
            Some(Command::InitDb) => self.choose(&text),
            Some(Command::Ping) => self.ok(0, 0, 0),
            Some(Command::SetOption) => self.end(),
            Some(Command::ResetConnection) => {
                let (caps, schema) = (self.caps, self.schema.clone());
                let input = std::mem::take(&mut self.input);
                let output = std::mem::take(&mut self.output);
                let prepared = self.prepared;
                *self =
                    Model { input, output, schema, prepared, tracks: false, ..Model::new(caps) };
                self.ok(0, 0, 0);
            }
            Some(Command::StmtPrepare) => {
                self.prepared += 1;
                let columns: u16 = if text.starts_with("SELECT") { 1 } else { 0 };
                let id = self.prepared;
                self.statements.insert(id, text);
                let (seq, out) = (&mut self.seq, &mut self.output);
                put_built(out, seq, |out| {
                    out.push(0);
                    out.extend_from_slice(&id.to_le_bytes());
                    out.extend_from_slice(&columns.to_le_bytes());
                    out.extend_from_slice(&[0, 0, 0, 0, 0]);
                });
                if columns > 0 {
                    self.definition();
                    if !self.caps.contains(CapabilityFlags::DEPRECATE_EOF) {
                        self.eof();
                    }
                }
            }
            Some(Command::StmtExecute) => match self.statements.get(&id).cloned() {
                Some(text) => {
                    self.binary = true;
                    self.text(&text);
                }
                None => self.fails(1243),
            },
            Some(Command::StmtClose) => drop(self.statements.remove(&id)),
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn status(&self) -> StatusFlags {
        let mut status = StatusFlags::AUTOCOMMIT;
        if self.vars.get("autocommit").is_some_and(|value| value == "0" || value == "OFF") {
            status = StatusFlags::NONE;
        }
        if self.in_transaction {
            status = status.union(StatusFlags::IN_TRANS);
        }
        status
    }

    fn changes(&mut self, change: &TrackedChange<'_>) {
        if self.tracks && self.caps.contains(CapabilityFlags::SESSION_TRACK) {
            put_change(&mut self.changes, change);
        }
    }

    fn ok(&mut self, rows: u64, insert_id: u64, warnings: u16) {
        self.row_count = i64::try_from(rows).unwrap();
        let mut status = self.status();
        if !self.changes.is_empty() {
            status = status.union(StatusFlags::SESSION_STATE_CHANGED);
        }
        let ok = OkPacket {
            affected_rows: rows,
            last_insert_id: insert_id,
            status,
            warnings,
            info: b"",
            changes: &self.changes,
        };
        packet::put_ok(&mut self.output, &mut self.seq, &ok, self.caps);
        self.changes.clear();
    }

    fn end(&mut self) {
        let ok = OkPacket { status: self.status(), ..OkPacket::default() };
        packet::put_end(&mut self.output, &mut self.seq, &ok, self.caps);
    }

    fn eof(&mut self) {
        let eof = EofPacket { status: self.status(), warnings: 0 };
        packet::put_eof(&mut self.output, &mut self.seq, eof);
    }

    fn fails(&mut self, code: u16) {
        self.row_count = -1;
        self.warnings = vec![["Error".to_owned(), code.to_string(), "no".to_owned()]];
        packet::put_err(&mut self.output, &mut self.seq, code, *b"42000", b"no");
    }

    fn definition(&mut self) {
        let mut whole = Vec::new();
        put_result(
            &mut whole,
            &mut 0,
            self.caps,
            &[ResultColumn::text(b"c")],
            &[],
            StatusFlags::NONE,
        );
        let header = PacketHeader::parse(&whole[5..]).unwrap();
        let definition = &whole[9..9 + header.len];
        put_built(&mut self.output, &mut self.seq, |out| out.extend_from_slice(definition));
    }

    fn rows(&mut self, rows: &[Vec<String>]) {
        let columns = rows.first().map_or(3, Vec::len);
        put_built(&mut self.output, &mut self.seq, |out| out.push(columns.try_into().unwrap()));
        for _ in 0..columns {
            self.definition();
        }
        if !self.caps.contains(CapabilityFlags::DEPRECATE_EOF) {
            self.eof();
        }
        for row in rows {
            let binary = self.binary;
            put_built(&mut self.output, &mut self.seq, |out| {
                if binary {
                    out.extend_from_slice(&[0, 0]);
                }
                row.iter().for_each(|value| put_bytes(out, value.as_bytes()));
            });
        }
        self.end();
        self.row_count = -1;
    }

    fn row(&mut self, value: &str) {
        self.rows(&[vec![value.to_owned()]]);
    }

    fn choose(&mut self, schema: &str) {
        self.schema = schema.to_owned();
        self.changes(&TrackedChange::Schema(schema.as_bytes()));
        self.changes(&TrackedChange::State(true));
        self.ok(0, 0, 0);
    }

    /// Checks that all state of the session belongs to the sender.
    fn check(&self, who: &str) {
        let of = |value: &str| value.ends_with(who);
        assert!(self.user.as_deref().is_none_or(of), "{who} meets {:?}", self.user);
        assert!(self.temp.iter().all(|name| of(name)), "{who} meets {:?}", self.temp);
        assert!(self.locks.iter().all(|name| of(name)), "{who} meets {:?}", self.locks);
        let zone = self.vars.get("time_zone");
        assert!(zone.is_none_or(|zone| of(zone)), "{who} meets {zone:?}");
    }

    fn text(&mut self, text: &str) {
        let text = match text.split_once(" /* ") {
            Some((text, who)) => {
                self.check(who.trim_end_matches(" */"));
                text
            }
            None => text,
        };
        if self.reads(text) || self.locks(text) {
            return;
        }
        if let Some(assignments) = text.strip_prefix("SET ") {
            return self.set(assignments);
        }
        let name = text.split(' ').nth(3).unwrap_or_default().to_owned();
        match text.split(' ').next().unwrap() {
            "USE" => self.choose(&text[4..]),
            "BEGIN" => {
                self.in_transaction = true;
                self.ok(0, 0, 0);
            }
            "COMMIT" | "ROLLBACK" => {
                self.in_transaction = false;
                self.ok(0, 0, 0);
            }
            "CREATE" if self.temp.contains(&name) => self.fails(1050),
            "CREATE" => {
                self.warnings.clear();
                self.temp.insert(name);
                self.changes(&TrackedChange::State(true));
                self.ok(0, 0, 0);
            }
            "DROP" if !self.temp.contains(&name) => self.fails(1051),
            "DROP" => {
                self.warnings.clear();
                self.temp.remove(&name);
                self.changes(&TrackedChange::State(true));
                self.ok(0, 0, 0);
            }
            "INSERT" => {
                self.warnings.clear();
                let id = text.split(['(', ')']).nth(1).unwrap().parse().unwrap();
                self.insert_id = id;
                self.in_transaction |= !self.status().contains(StatusFlags::AUTOCOMMIT);
                if text.starts_with("INSERT INTO w") {
                    let row = ["Warning", "1366", &id.to_string()].map(str::to_owned);
                    self.warnings = vec![row];
                    return self.ok(1, id, 1);
                }
                self.ok(1, id, 0);
            }
            _ => panic!("the model does not know {text}"),
        }
    }

    /// Handles queries; returns whether the text was one.
    fn reads(&mut self, text: &str) -> bool {
        match text {
            "SELECT @@time_zone" => {
                let value = self.vars.get("time_zone").cloned();
                self.row(&value.unwrap_or("SYSTEM".to_owned()));
            }
            "SELECT @x" => {
                let value = self.user.clone();
                self.row(&value.unwrap_or("nothing".to_owned()));
            }
            "SELECT DATABASE()" => self.row(&self.schema.clone()),
            "SELECT LAST_INSERT_ID()" => self.row(&self.insert_id.to_string()),
            "SELECT ROW_COUNT()" => self.row(&self.row_count.to_string()),
            "SHOW WARNINGS" => {
                let rows: Vec<Vec<String>> = self.warnings.iter().map(|row| row.to_vec()).collect();
                self.rows(&rows);
            }
            "SELECT broken" => self.fails(1054),
            _ => match text.strip_prefix("SELECT COUNT(*) FROM ") {
                Some(name) if self.temp.contains(name) => {
                    self.warnings.clear();
                    self.row("0");
                }
                Some(_) => self.fails(1146),
                None => return false,
            },
        }
        true
    }

    fn locks(&mut self, text: &str) -> bool {
        let name = text.split('\'').nth(1).unwrap_or_default().to_owned();
        if text.starts_with("SELECT GET_LOCK") {
            self.locks.insert(name);
            self.row("1");
        } else if text.starts_with("SELECT RELEASE_LOCK") {
            let had = self.locks.remove(&name);
            self.row(if had { "1" } else { "0" });
        } else if text == "DO RELEASE_ALL_LOCKS()" {
            self.locks.clear();
            self.ok(0, 0, 0);
        } else {
            return false;
        }
        true
    }

    fn set(&mut self, assignments: &str) {
        for assignment in assignments.split(',') {
            let (name, value) = assignment.split_once('=').expect("a value");
            let (name, value) = (name.trim(), value.trim().trim_matches('\''));
            match name {
                "@x" => {
                    self.user = Some(value.to_owned());
                    self.changes(&TrackedChange::State(true));
                    continue;
                }
                "last_insert_id" => self.insert_id = value.parse().unwrap(),
                "session_track_schema" => self.tracks = true,
                _ if name.starts_with("session_track") => {}
                _ if value == "DEFAULT" => drop(self.vars.remove(name)),
                _ => drop(self.vars.insert(name.to_owned(), value.to_owned())),
            }
            if name == "autocommit" && self.status().contains(StatusFlags::AUTOCOMMIT) {
                self.in_transaction = false;
            }
            let told = match (name, value) {
                ("autocommit", "0" | "OFF") => "OFF",
                ("autocommit" | "session_track_schema", _) => "ON",
                _ => value,
            };
            let (name, told) = (name.as_bytes(), told.as_bytes());
            self.changes(&TrackedChange::Variable { name, value: told });
        }
        self.ok(0, 0, 0);
    }
}
