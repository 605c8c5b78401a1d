//! A client that prepares and executes statements, and knows the expected replies.

use std::collections::BTreeMap;

use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::command::Command;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_packet};
use wire::mysql::packet::{ErrPacket, OkPacket};
use wire::mysql::reply::{CommandReplyState, ReplyEvent, ReplyKind};

use super::Dice;
use super::server::{CURSOR_ROWS, params, ran};

const TEXTS: [&str; 8] = [
    "SELECT 1",
    "SELECT ?",
    "SELECT ?, ?",
    "SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?",
    "UPDATE t SET a = ?",
    "DELETE FROM t",
    "INSERT INTO fails VALUES (?)",
    "bad",
];

const NO_STATEMENT: u16 = 1243;
const NO_CURSOR: u16 = 1421;
const NO_TYPES: u16 = 1210;

#[derive(Debug)]
struct Open {
    number: u32,
    text: &'static str,
    /// The schema in which it was prepared.
    schema: &'static str,
    types: Option<Vec<u8>>,
    long: BTreeMap<u16, Vec<u8>>,
    /// Rows that are left to fetch.
    cursor: u32,
    /// True if long data was sent for a parameter that does not exist.
    spoilt: bool,
}

/// An outstanding reply.
#[derive(Debug)]
enum Due {
    Ok,
    Prepared(&'static str),
    /// The execution of a statement, its values without long data, and whether a cursor was
    /// requested.
    Ran {
        number: u32,
        values: Vec<u8>,
        types: Vec<u8>,
        cursor: bool,
    },
    Row(u32),
    Error(u16),
}

#[derive(Debug)]
pub(super) struct Person {
    caps: CapabilityFlags,
    schema: &'static str,
    open: Vec<Open>,
    last_prepared: Option<u32>,
    due: Option<Due>,
    reply: Option<CommandReplyState>,
    seq: u8,
    input: Vec<u8>,
    said: Vec<String>,
    /// The error, if there was one.
    error: Option<u16>,
    last_row: bool,
    prepared: Option<u32>,
}

impl Person {
    pub(super) fn new(schema: &'static str, caps: CapabilityFlags) -> Person {
        Person {
            caps,
            schema,
            open: Vec::new(),
            last_prepared: None,
            due: None,
            reply: None,
            seq: 1,
            input: Vec::new(),
            said: Vec::new(),
            error: None,
            last_row: false,
            prepared: None,
        }
    }

    pub(super) fn awaits(&self) -> bool {
        self.due.is_some()
    }

    pub(super) fn executes(&self) -> bool {
        matches!(self.due, Some(Due::Ran { .. }))
    }

    /// Returns the bytes of its next command.
    pub(super) fn acts(&mut self, dice: &mut Dice) -> Vec<u8> {
        let mut out = Vec::new();
        match dice.below(12) {
            0 | 1 => {
                let text = TEXTS[dice.below(TEXTS.len())];
                let due = if text == "bad" { Due::Error(1064) } else { Due::Prepared(text) };
                self.last_prepared = None;
                self.send(Command::StmtPrepare, text.as_bytes(), Some(due), &mut out);
            }
            2 => {
                let text = [&b"BEGIN"[..], b"COMMIT", b"COMMIT", b""][dice.below(4)];
                if text.is_empty() {
                    self.schema = ["db", "other"][dice.below(2)];
                    let schema = self.schema.as_bytes();
                    self.send(Command::InitDb, schema, Some(Due::Ok), &mut out);
                    return out;
                }
                self.send(Command::Query, text, Some(Due::Ok), &mut out);
            }
            3 if dice.is_one_in(3) => self.stranger(dice, &mut out),
            4 if !self.open.is_empty() && dice.is_one_in(3) => {
                let at = dice.below(self.open.len());
                let open = self.open.remove(at);
                if self.last_prepared == Some(open.number) {
                    self.last_prepared = None;
                }
                self.send(Command::StmtClose, &open.number.to_le_bytes(), None, &mut out);
            }
            5 if !self.open.is_empty() => self.long_data(dice, &mut out),
            6 if !self.open.is_empty() => self.rewind(dice, &mut out),
            7 if !self.open.is_empty() => self.fetch(dice, &mut out),
            _ if self.open.is_empty() => {}
            _ => self.execute(dice, &mut out),
        }
        out
    }

    fn send(&mut self, command: Command, body: &[u8], due: Option<Due>, out: &mut Vec<u8>) {
        put_packet(out, &mut 0, &[&[command.code()], body].concat());
        if let Some(due) = due {
            assert!(self.due.is_none());
            self.due = Some(due);
            let kind = match command {
                Command::StmtExecute => ReplyKind::of_execution(body[4]),
                _ => command.reply(),
            };
            self.reply = Some(CommandReplyState::new(kind, self.caps));
            self.seq = 1;
        }
    }

    /// Sends a number that it was never given.
    fn stranger(&mut self, dice: &mut Dice, out: &mut Vec<u8>) {
        let commands = [Command::StmtExecute, Command::StmtFetch, Command::StmtReset];
        let command = commands[dice.below(3)];
        let body = [&77_777_u32.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat();
        let body = if command == Command::StmtFetch { &body[..8] } else { &body };
        self.send(command, body, Some(Due::Error(NO_STATEMENT)), out);
    }

    fn long_data(&mut self, dice: &mut Dice, out: &mut Vec<u8>) {
        let at = dice.below(self.open.len());
        let open = &mut self.open[at];
        let count = params(open.text);
        let parameter = u16::try_from(dice.below(count + 1)).unwrap();
        let data = vec![b'a' + u8::try_from(dice.below(26)).unwrap(); dice.below(40)];
        if usize::from(parameter) >= count {
            if !dice.is_one_in(5) {
                return;
            }
            open.spoilt = true;
        } else if !open.spoilt {
            open.long.entry(parameter).or_default().extend(&data);
        }
        let number = open.number.to_le_bytes();
        let body = [&number[..], &parameter.to_le_bytes(), &data].concat();
        self.send(Command::StmtSendLongData, &body, None, out);
    }

    fn rewind(&mut self, dice: &mut Dice, out: &mut Vec<u8>) {
        let at = dice.below(self.open.len());
        let open = &mut self.open[at];
        open.long.clear();
        open.cursor = 0;
        open.spoilt = false;
        let number = open.number.to_le_bytes();
        self.send(Command::StmtReset, &number, Some(Due::Ok), out);
    }

    fn fetch(&mut self, dice: &mut Dice, out: &mut Vec<u8>) {
        let at = dice.below(self.open.len());
        let open = &mut self.open[at];
        let due = match open.cursor {
            0 => Due::Error(NO_CURSOR),
            row => Due::Row(row),
        };
        open.cursor = open.cursor.saturating_sub(1);
        let body = [open.number.to_le_bytes(), 1_u32.to_le_bytes()].concat();
        self.send(Command::StmtFetch, &body, Some(due), out);
    }

    fn execute(&mut self, dice: &mut Dice, out: &mut Vec<u8>) {
        let at = dice.below(self.open.len());
        let last = self.last_prepared;
        let open = &mut self.open[at];
        let count = params(open.text);
        let number =
            if last == Some(open.number) && dice.is_one_in(2) { u32::MAX } else { open.number };
        let cursor = dice.is_one_in(4);
        let mut body = [&number.to_le_bytes()[..], &[u8::from(cursor), 1, 0, 0, 0]].concat();
        let mut due = None;
        let mut values = Vec::new();
        if count > 0 {
            body.extend(vec![0; count.div_ceil(8)]);
            let tells = dice.is_one_in(3);
            body.push(u8::from(tells));
            let kind = [8, 253, 252][dice.below(3)];
            let types = [kind, 0].repeat(count);
            if tells {
                body.extend(&types);
                // A statement in error ignores them.
                if !open.spoilt {
                    open.types = Some(types);
                }
            }
            if open.types.is_none() && !tells {
                due = Some(Due::Error(NO_TYPES));
            }
            values = vec![u8::try_from(dice.below(250)).unwrap(); count];
            body.extend(&values);
        }
        if open.spoilt && due.is_none() {
            due = Some(Due::Error(NO_TYPES));
        }
        let types = open.types.clone().unwrap_or_default();
        let number = open.number;
        let due = due.unwrap_or(Due::Ran { number, values, types, cursor });
        self.send(Command::StmtExecute, &body, Some(due), out);
    }

    /// Processes received bytes.
    pub(super) fn hears(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
        while let Some(header) = PacketHeader::parse(&self.input) {
            if self.input.len() < header.total() {
                return;
            }
            let payload = self.input[HEADER_BYTES..header.total()].to_vec();
            drop(self.input.drain(..header.total()));
            self.packet(header, &payload);
        }
    }

    fn packet(&mut self, header: PacketHeader, payload: &[u8]) {
        assert_eq!(header.seq, self.seq, "{:?}", self.due);
        self.seq += 1;
        let reply = self.reply.as_mut().expect("an answer that is due");
        let event = reply.packet(payload, header.len).expect("a reply that makes sense");
        match event {
            ReplyEvent::Row => self.said.push(String::from_utf8_lossy(&payload[1..]).into()),
            ReplyEvent::Ok(_) => {
                let ok = OkPacket::parse(payload, self.caps).unwrap();
                self.said.push(String::from_utf8_lossy(ok.info).into());
            }
            ReplyEvent::End(status) => self.last_row = status.contains(StatusFlags::LAST_ROW_SENT),
            ReplyEvent::Error => self.error = Some(ErrPacket::parse(payload).unwrap().code),
            ReplyEvent::Prepared { id, .. } => self.prepared = Some(id),
            _ => {}
        }
        if reply.is_done() {
            self.reply = None;
            self.is_answered();
        }
    }

    fn is_answered(&mut self) {
        let due = self.due.take().expect("something that is due");
        let said = std::mem::take(&mut self.said);
        let error = self.error.take();
        match due {
            Due::Error(code) => assert_eq!(error, Some(code), "{said:?}"),
            Due::Ok => assert_eq!(error, None),
            Due::Prepared(text) => {
                assert_eq!(error, None);
                let number = self.prepared.take().unwrap();
                assert!(self.open.iter().all(|open| open.number != number));
                self.last_prepared = Some(number);
                self.open.push(Open {
                    number,
                    text,
                    schema: self.schema,
                    types: None,
                    long: BTreeMap::new(),
                    cursor: 0,
                    spoilt: false,
                });
            }
            Due::Row(row) => {
                assert_eq!((error, said), (None, vec![format!("row {row}")]));
                assert_eq!(self.last_row, row == 1);
            }
            Due::Ran { number, values, types, cursor } => {
                let open = self.open.iter_mut().find(|open| open.number == number).unwrap();
                let long = std::mem::take(&mut open.long);
                let is_select = open.text.starts_with("SELECT");
                open.cursor = if cursor && is_select { CURSOR_ROWS } else { 0 };
                if let Some(code) = error {
                    open.cursor = 0;
                    // It is not prepared again transparently where its meaning would change: the
                    // next execution does that.
                    let elsewhere = open.schema != self.schema && matches!(code, 1243 | 1615);
                    let fails = code == 1062 && open.text.contains("fails");
                    assert!(elsewhere || fails, "{code}");
                } else if open.cursor > 0 {
                    assert!(said.is_empty());
                } else {
                    let text = format!("{}.{}", open.schema, open.text);
                    assert_eq!(said.join(""), ran(&text, &types, &values, &long));
                }
            }
        }
    }
}
