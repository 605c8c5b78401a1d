//! Packets as short texts, for scripts.
//!
//! A client's: `Q[SELECT 1]`, `PING`, `USE[db]`, `QUIT`, `RESET`, `OPTION[0]`, `PREPARE[text]`,
//! `EXECUTE[1]`, `CLOSE[1]`, `REWIND[1]`, `FETCH[1]`, `LONG[1|data]`, `STATISTICS`, `KILL[7]`,
//! `FIELDS[t]`, `DATA[bytes]`, `X[hex]`. A server's: `OK[…]`, `ERR[1064]`, `COLS[1]`, `DEF`,
//! `ROW[a|b]`, `BIN[1]`, `EOF[…]`, `END[…]`, `FILE[name]`, `PREPARED[id|columns|params]`,
//! `TEXT[…]`. The content of an OK is a list of words: `t` in a transaction, `a` without
//! autocommit, `m` more results, `c` cursor, `l` last row, `n1` rows, `i1` insert id, `w1`
//! warnings, `info:x`, `var:x=y`, `schema:x`, `state`.

use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::changes::{TrackedChange, changes, put_change};
use wire::mysql::command::Command;
use wire::mysql::frame::put_built;
use wire::mysql::lenenc::PacketReader;
use wire::mysql::packet::{
    self, ColumnKind, EofPacket, ErrPacket, OkPacket, ResultColumn, put_result,
};
use wire::mysql::reply::{CommandReplyState, ReplyEvent};

/// Capabilities of a current server.
pub(crate) const MODERN: CapabilityFlags = CapabilityFlags(
    CapabilityFlags::PROTOCOL_41.0
        | CapabilityFlags::TRANSACTIONS.0
        | CapabilityFlags::MULTI_STATEMENTS.0
        | CapabilityFlags::MULTI_RESULTS.0
        | CapabilityFlags::PS_MULTI_RESULTS.0
        | CapabilityFlags::SESSION_TRACK.0
        | CapabilityFlags::DEPRECATE_EOF.0,
);

/// Capabilities of old drivers.
pub(crate) const OLD: CapabilityFlags = CapabilityFlags(
    MODERN.0 & !CapabilityFlags::SESSION_TRACK.0 & !CapabilityFlags::DEPRECATE_EOF.0,
);

/// Returns the words of a script's line: `NAME` or `NAME[…]`.
pub(crate) fn words(line: &str) -> Vec<(&str, &str)> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let name = rest.find(['[', ' ']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(name);
        let (inside, after) = match after.strip_prefix('[') {
            Some(after) => {
                let end = after.find(']').expect("a bracket that ends");
                (&after[..end], &after[end + 1..])
            }
            None => ("", after),
        };
        words.push((word, inside));
        rest = after.trim_start();
    }
    words
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

/// Returns the payload of a client's command.
pub(crate) fn command(name: &str, inside: &str) -> Vec<u8> {
    let with = |command: Command, rest: &[u8]| [&[command.code()], rest].concat();
    let text = inside.as_bytes();
    let (id, rest) = inside.split_once('|').unwrap_or((inside, ""));
    let numbered =
        |command: Command, rest: &[u8]| with(command, &[&number(id).to_le_bytes(), rest].concat());
    match name {
        "Q" => with(Command::Query, text),
        "PING" => with(Command::Ping, b""),
        "USE" => with(Command::InitDb, text),
        "QUIT" => with(Command::Quit, b""),
        "RESET" => with(Command::ResetConnection, b""),
        "OPTION" => with(Command::SetOption, &[u8::from(inside == "1"), 0]),
        "PREPARE" => with(Command::StmtPrepare, text),
        "EXECUTE" => numbered(Command::StmtExecute, &[u8::from(rest == "c"), 1, 0, 0, 0]),
        "CLOSE" => numbered(Command::StmtClose, b""),
        "REWIND" => numbered(Command::StmtReset, b""),
        "FETCH" => numbered(Command::StmtFetch, &1_u32.to_le_bytes()),
        "LONG" => numbered(Command::StmtSendLongData, &[b"\0\0", rest.as_bytes()].concat()),
        "STATISTICS" => with(Command::Statistics, b""),
        "KILL" => numbered(Command::ProcessKill, b""),
        "FIELDS" => with(Command::FieldList, text),
        "DATA" => text.to_vec(),
        "X" => (0..inside.len() / 2)
            .map(|at| u8::from_str_radix(&inside[2 * at..2 * at + 2], 16).expect("hex"))
            .collect(),
        _ => panic!("{name} is no command"),
    }
}

/// Returns the script form of a command's payload.
pub(crate) fn show_command(payload: &[u8]) -> String {
    let Some((first, rest)) = payload.split_first() else { return "DATA[]".to_owned() };
    let text = String::from_utf8_lossy(rest);
    let id = rest.first_chunk().map_or(0, |id| u32::from_le_bytes(*id));
    match Command::of(*first) {
        Some(Command::Query) => format!("Q[{text}]"),
        Some(Command::Ping) => "PING".to_owned(),
        Some(Command::InitDb) => format!("USE[{text}]"),
        Some(Command::ResetConnection) => "RESET".to_owned(),
        Some(Command::SetOption) => format!("OPTION[{}]", rest[0]),
        Some(Command::StmtPrepare) => format!("PREPARE[{text}]"),
        Some(Command::StmtExecute) => {
            format!("EXECUTE[{id}{}]", if rest[4] == 1 { "|c" } else { "" })
        }
        Some(Command::StmtClose) => format!("CLOSE[{id}]"),
        Some(Command::StmtReset) => format!("REWIND[{id}]"),
        Some(Command::StmtFetch) => format!("FETCH[{id}]"),
        Some(Command::StmtSendLongData) => {
            format!("LONG[{id}|{}]", String::from_utf8_lossy(&rest[6..]))
        }
        Some(Command::Statistics) => "STATISTICS".to_owned(),
        Some(Command::FieldList) => format!("FIELDS[{text}]"),
        _ => format!("DATA[{}]", String::from_utf8_lossy(payload)),
    }
}

/// Contents of an OK, with its changes as bytes.
#[derive(Debug, Default)]
pub(crate) struct Says {
    pub(crate) rows: u64,
    pub(crate) insert_id: u64,
    pub(crate) warnings: u16,
    pub(crate) status: StatusFlags,
    pub(crate) info: String,
    pub(crate) changes: Vec<u8>,
}

pub(crate) fn says(inside: &str) -> Says {
    let mut says = Says { status: StatusFlags::AUTOCOMMIT, ..Says::default() };
    for word in inside.split(',').filter(|word| !word.is_empty()) {
        let (first, rest) = word.split_at(1);
        let change = match word {
            "t" => {
                says.status = says.status.union(StatusFlags::IN_TRANS);
                None
            }
            "a" => {
                says.status = says.status.without(StatusFlags::AUTOCOMMIT);
                None
            }
            "m" => {
                says.status = says.status.union(StatusFlags::MORE_RESULTS);
                None
            }
            "c" => {
                says.status = says.status.union(StatusFlags::CURSOR_EXISTS);
                None
            }
            "l" => {
                says.status = says.status.union(StatusFlags::LAST_ROW_SENT);
                None
            }
            "state" => Some(TrackedChange::State(true)),
            _ if word.starts_with("info:") => {
                says.info = word[5..].to_owned();
                None
            }
            _ if word.starts_with("schema:") => Some(TrackedChange::Schema(&word.as_bytes()[7..])),
            _ if word.starts_with("var:") => {
                let (name, value) = word[4..].split_once('=').expect("a value");
                Some(TrackedChange::Variable { name: name.as_bytes(), value: value.as_bytes() })
            }
            _ => {
                match first {
                    "n" => says.rows = number(rest).into(),
                    "i" => says.insert_id = number(rest).into(),
                    "w" => says.warnings = number(rest).try_into().unwrap(),
                    _ => panic!("{word} says nothing"),
                }
                None
            }
        };
        if let Some(change) = change {
            put_change(&mut says.changes, &change);
            says.status = says.status.union(StatusFlags::SESSION_STATE_CHANGED);
        }
    }
    says
}

impl Says {
    fn ok(&self) -> OkPacket<'_> {
        OkPacket {
            affected_rows: self.rows,
            last_insert_id: self.insert_id,
            status: self.status,
            warnings: self.warnings,
            info: self.info.as_bytes(),
            changes: &self.changes,
        }
    }
}

fn show_ok(ok: &OkPacket<'_>) -> String {
    let mut words = show_status(ok.status, ok.warnings);
    if ok.affected_rows > 0 {
        words.push(format!("n{}", ok.affected_rows));
    }
    if ok.last_insert_id > 0 {
        words.push(format!("i{}", ok.last_insert_id));
    }
    if !ok.info.is_empty() {
        words.push(format!("info:{}", String::from_utf8_lossy(ok.info)));
    }
    for change in changes(ok.changes) {
        words.push(match change.expect("changes") {
            TrackedChange::Variable { name, value } => {
                let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                format!("var:{name}={value}")
            }
            TrackedChange::Schema(name) => format!("schema:{}", String::from_utf8_lossy(name)),
            TrackedChange::State(_) => "Change".to_owned(),
            other => format!("{other:?}"),
        });
    }
    brackets(&words)
}

fn show_status(status: StatusFlags, warnings: u16) -> Vec<String> {
    let mut words: Vec<String> = [
        (status.contains(StatusFlags::IN_TRANS), "t"),
        (!status.contains(StatusFlags::AUTOCOMMIT), "a"),
        (status.contains(StatusFlags::MORE_RESULTS), "m"),
        (status.contains(StatusFlags::CURSOR_EXISTS), "c"),
        (status.contains(StatusFlags::LAST_ROW_SENT), "l"),
    ]
    .iter()
    .filter(|(is_set, _)| *is_set)
    .map(|(_, word)| (*word).to_owned())
    .collect();
    if warnings > 0 {
        words.push(format!("w{warnings}"));
    }
    words
}

fn brackets(words: &[String]) -> String {
    if words.is_empty() { String::new() } else { format!("[{}]", words.join(",")) }
}

/// Appends a server's packet.
pub(crate) fn put(
    name: &str,
    inside: &str,
    caps: CapabilityFlags,
    seq: &mut u8,
    out: &mut Vec<u8>,
) {
    match name {
        "OK" => packet::put_ok(out, seq, &says(inside).ok(), caps),
        "END" => packet::put_end(out, seq, &says(inside).ok(), caps),
        "EOF" => {
            let Says { status, warnings, .. } = says(inside);
            packet::put_eof(out, seq, EofPacket { warnings, status });
        }
        "ERR" => {
            let code = number(inside).try_into().unwrap();
            packet::put_err(out, seq, code, *b"42000", b"no");
        }
        "COLS" => put_built(out, seq, |out| out.push(number(inside).try_into().unwrap())),
        "DEF" => {
            let mut whole = Vec::new();
            let column = ResultColumn { name: b"c", kind: ColumnKind::Text };
            put_result(&mut whole, &mut 0, MODERN, &[column], &[], StatusFlags::NONE);
            let header = wire::mysql::frame::PacketHeader::parse(&whole[5..]).unwrap();
            put_built(out, seq, |out| out.extend_from_slice(&whole[9..9 + header.len]));
        }
        "ROW" => put_built(out, seq, |out| {
            for value in inside.split('|') {
                let value = if value == "NULL" { None } else { Some(value.as_bytes()) };
                wire::mysql::lenenc::put_value(out, value);
            }
        }),
        "BIN" => put_built(out, seq, |out| {
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&u64::from(number(inside)).to_le_bytes());
        }),
        "FILE" => put_built(out, seq, |out| {
            out.push(packet::LOCAL_INFILE);
            out.extend_from_slice(inside.as_bytes());
        }),
        "PREPARED" => {
            let parts: Vec<u32> = inside.split('|').map(number).collect();
            put_built(out, seq, |out| {
                out.push(0);
                out.extend_from_slice(&parts[0].to_le_bytes());
                out.extend_from_slice(&u16::try_from(parts[1]).unwrap().to_le_bytes());
                out.extend_from_slice(&u16::try_from(parts[2]).unwrap().to_le_bytes());
                out.extend_from_slice(&[0, 0, 0]);
            });
        }
        "TEXT" => put_built(out, seq, |out| out.extend_from_slice(inside.as_bytes())),
        _ => panic!("{name} is no reply"),
    }
}

/// Returns the script form of a packet of a reply. The grammar is the client's own.
pub(crate) fn show(reply: &mut CommandReplyState, caps: CapabilityFlags, payload: &[u8]) -> String {
    let event = reply.packet(payload, payload.len()).expect("a reply that makes sense");
    match event {
        ReplyEvent::Ok(_) => format!("OK{}", show_ok(&OkPacket::parse(payload, caps).unwrap())),
        ReplyEvent::Error => format!("ERR[{}]", ErrPacket::parse(payload).unwrap().code),
        ReplyEvent::Columns(count) => format!("COLS[{count}]"),
        ReplyEvent::Column => "DEF".to_owned(),
        ReplyEvent::ColumnsEnd(status) => format!("EOF{}", brackets(&show_status(status, 0))),
        ReplyEvent::Row if payload[0] == 0 && payload.len() == 10 => format!("BIN[{}]", payload[2]),
        ReplyEvent::Row => {
            let mut reader = PacketReader::new(payload);
            let mut values = Vec::new();
            while !reader.is_empty() {
                let value = reader.value().expect("a value");
                values.push(value.map_or("NULL".into(), String::from_utf8_lossy));
            }
            format!("ROW[{}]", values.join("|"))
        }
        ReplyEvent::End(status) => match EofPacket::parse(payload) {
            Some(eof) => format!("END{}", brackets(&show_status(status, eof.warnings))),
            None => format!("END{}", show_ok(&OkPacket::parse(payload, caps).unwrap())),
        },
        ReplyEvent::LocalInfile => format!("FILE[{}]", String::from_utf8_lossy(&payload[1..])),
        ReplyEvent::Prepared { id, columns, params, .. } => {
            format!("PREPARED[{id}|{columns}|{params}]")
        }
        ReplyEvent::Text => format!("TEXT[{}]", String::from_utf8_lossy(payload)),
    }
}
