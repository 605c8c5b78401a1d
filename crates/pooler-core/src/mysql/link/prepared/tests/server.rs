//! A minimal server for prepared statements.

use std::collections::{BTreeMap, HashMap};

use wire::mysql::capabilities::StatusFlags;
use wire::mysql::command::Command;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_built};
use wire::mysql::packet::{self, ColumnKind, OkPacket, ResultColumn, put_result};

use super::{Dice, MODERN};

/// Rows of a cursor.
pub(super) const CURSOR_ROWS: u32 = 3;

#[derive(Debug, Default)]
struct Statement {
    text: String,
    params: usize,
    bound: Option<Vec<u8>>,
    long: BTreeMap<u16, Vec<u8>>,
    cursor: u32,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    statements: HashMap<u32, Statement>,
    last: u32,
    in_transaction: bool,
    schema: String,
    /// True if the last execution was refused without a mistake of the client.
    refused: bool,
}

/// Returns the number of parameters of a text: its question marks.
pub(super) fn params(text: &str) -> usize {
    text.matches('?').count()
}

impl Model {
    pub(super) fn new() -> Model {
        Model { schema: "db".to_owned(), ..Model::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.statements.len()
    }

    /// Reads complete commands, and answers them.
    pub(super) fn reads(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>, dice: &mut Dice) {
        while let Some(header) = PacketHeader::parse(input) {
            if input.len() < header.total() {
                return;
            }
            assert_eq!(header.seq, 0);
            let payload = input[HEADER_BYTES..header.total()].to_vec();
            drop(input.drain(..header.total()));
            self.command(&payload, out, dice);
        }
    }

    fn command(&mut self, payload: &[u8], out: &mut Vec<u8>, dice: &mut Dice) {
        let mut seq = 1;
        let (first, rest) = payload.split_first().unwrap();
        let number = rest.first_chunk().map_or(0, |number| u32::from_le_bytes(*number));
        match Command::of(*first).unwrap() {
            Command::Query => self.query(rest, out),
            Command::InitDb => {
                self.schema = String::from_utf8(rest.to_vec()).unwrap();
                self.ok(out, &mut seq, StatusFlags::NONE);
            }
            Command::ResetConnection => {
                self.statements.clear();
                self.in_transaction = false;
                self.ok(out, &mut seq, StatusFlags::NONE);
            }
            Command::StmtPrepare => self.prepare(rest, out),
            Command::StmtClose => {
                assert!(self.statements.remove(&number).is_some(), "closed twice: {number}");
            }
            Command::StmtReset => {
                let statement = self.statements.get_mut(&number).expect("a statement to reset");
                statement.long.clear();
                statement.cursor = 0;
                self.ok(out, &mut seq, StatusFlags::NONE);
            }
            Command::StmtSendLongData => {
                let statement = self.statements.get_mut(&number).expect("a statement");
                let parameter = u16::from_le_bytes([rest[4], rest[5]]);
                assert!(usize::from(parameter) < statement.params);
                statement.long.entry(parameter).or_default().extend(&rest[6..]);
            }
            Command::StmtFetch => {
                let statement = self.statements.get_mut(&number).expect("a statement");
                assert!(statement.cursor > 0, "there is no cursor");
                put_built(out, &mut seq, |out| {
                    out.push(0);
                    out.extend(format!("row {}", statement.cursor).bytes());
                });
                statement.cursor -= 1;
                let last = statement.cursor == 0;
                let status =
                    if last { StatusFlags::LAST_ROW_SENT } else { StatusFlags::CURSOR_EXISTS };
                self.end(out, &mut seq, status);
            }
            Command::StmtExecute => self.execute(number, rest, out, dice),
            other => panic!("{other:?}"),
        }
    }

    fn status(&self) -> StatusFlags {
        let status = StatusFlags::AUTOCOMMIT;
        if self.in_transaction { status.union(StatusFlags::IN_TRANS) } else { status }
    }

    fn ok(&self, out: &mut Vec<u8>, seq: &mut u8, status: StatusFlags) {
        let status = self.status().union(status);
        packet::put_ok(out, seq, &OkPacket { status, ..OkPacket::default() }, MODERN);
    }

    fn end(&self, out: &mut Vec<u8>, seq: &mut u8, status: StatusFlags) {
        let status = self.status().union(status);
        packet::put_end(out, seq, &OkPacket { status, ..OkPacket::default() }, MODERN);
    }

    fn query(&mut self, text: &[u8], out: &mut Vec<u8>) {
        match text {
            b"BEGIN" => self.in_transaction = true,
            b"COMMIT" => self.in_transaction = false,
            _ => {}
        }
        if text.starts_with(b"SELECT") {
            let column = ResultColumn { name: b"c", kind: ColumnKind::Integer };
            let rows = [vec![Some(&b"0"[..])]];
            put_result(out, &mut 1, MODERN, &[column], &rows, self.status());
        } else {
            self.ok(out, &mut 1, StatusFlags::NONE);
        }
    }

    fn prepare(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let text = String::from_utf8(text.to_vec()).unwrap();
        if text.contains("bad") {
            return packet::put_err(out, &mut 1, 1064, *b"42000", b"no");
        }
        let params = params(&text);
        self.last += 1;
        let columns: u16 = if text.starts_with("SELECT") { 1 } else { 0 };
        let mut seq = 1;
        put_built(out, &mut seq, |out| {
            out.push(0);
            out.extend(self.last.to_le_bytes());
            out.extend(columns.to_le_bytes());
            out.extend(u16::try_from(params).unwrap().to_le_bytes());
            out.extend([0, 0, 0]);
        });
        for _ in 0..params + usize::from(columns) {
            definition(out, &mut seq);
        }
        let text = format!("{}.{text}", self.schema);
        let statement = Statement { text, params, ..Statement::default() };
        assert!(self.statements.insert(self.last, statement).is_none());
    }

    fn execute(&mut self, number: u32, rest: &[u8], out: &mut Vec<u8>, dice: &mut Dice) {
        let status = self.status();
        let refusals = [1243, 1615];
        let statement = self.statements.get_mut(&number).expect("a statement to execute");
        let has_memory = !statement.long.is_empty() || statement.cursor > 0;
        if !self.refused && !has_memory && dice.is_one_in(9) {
            self.refused = true;
            let code = refusals[dice.below(2)];
            return packet::put_err(out, &mut 1, code, *b"HY000", b"again");
        }
        self.refused = false;
        let mut values = &rest[9..];
        if statement.params > 0 {
            let nulls = statement.params.div_ceil(8);
            let (flag, after) = values[nulls..].split_first().unwrap();
            let mut after = after;
            if *flag == 1 {
                let (types, behind) = after.split_at(2 * statement.params);
                statement.bound = Some(types.to_vec());
                after = behind;
            }
            values = after;
        }
        let bound = statement.bound.clone().unwrap_or_default();
        assert_eq!(bound.len(), 2 * statement.params, "types are not known");
        let long = std::mem::take(&mut statement.long);
        let ran = ran(&statement.text, &bound, values, &long);
        let is_select = statement.text.contains(".SELECT");
        statement.cursor = if rest[4] == 1 && is_select { CURSOR_ROWS } else { 0 };
        let cursor = statement.cursor > 0;
        if statement.text.contains("fails") && dice.is_one_in(2) {
            return packet::put_err(out, &mut 1, 1062, *b"23000", b"twice");
        }
        if !is_select {
            let ok = OkPacket { status, info: ran.as_bytes(), ..OkPacket::default() };
            return packet::put_ok(out, &mut 1, &ok, MODERN);
        }
        let mut seq = 1;
        put_built(out, &mut seq, |out| out.push(1));
        definition(out, &mut seq);
        if cursor {
            return self.end(out, &mut seq, StatusFlags::CURSOR_EXISTS);
        }
        put_built(out, &mut seq, |out| {
            out.push(0);
            out.extend(ran.bytes());
        });
        self.end(out, &mut seq, StatusFlags::NONE);
    }
}

/// Returns the answer of an execution, which contains what it ran.
pub(super) fn ran(
    text: &str,
    types: &[u8],
    values: &[u8],
    long: &BTreeMap<u16, Vec<u8>>,
) -> String {
    format!("{text} {types:?} {values:?} {long:?}")
}

fn definition(out: &mut Vec<u8>, seq: &mut u8) {
    let mut whole = Vec::new();
    let column = ResultColumn { name: b"c", kind: ColumnKind::Text };
    put_result(&mut whole, &mut 0, MODERN, &[column], &[], StatusFlags::NONE);
    let header = PacketHeader::parse(&whole[5..]).unwrap();
    put_built(out, seq, |out| out.extend_from_slice(&whole[9..9 + header.len]));
}
