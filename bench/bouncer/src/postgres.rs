//! PostgreSQL's rows: a client and a server that are tasks of this program, as in the Go side, and
//! between them a relay. Both read a message by its type, its length and its body, and write one
//! message at a time.

use std::cell::Cell;
use std::rc::Rc;

use crate::executor::Executor;
use crate::measure::{Row, measure};
use crate::pipe::{End, Kind};
use crate::relay::{self, Reset};

const OPS: usize = 500;
const QUERY: &[u8] = b"Q\0\0\0\x0dSELECT 1\0";
const DISCARD: &[u8] = b"DISCARD ALL\0";
/// The seed's answers are no legal result of a SELECT: it has no rows.
const ANSWER: &[&[u8]] = &[b"C\0\0\0\x0dSELECT 1\0", b"Z\0\0\0\x05I"];
const ROWS: &[&[u8]] = &[
    b"T\0\0\0\x21\0\x01?column?\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0",
    b"D\0\0\0\x0b\0\x01\0\0\0\x011",
    b"C\0\0\0\x0dSELECT 1\0",
    b"Z\0\0\0\x05I",
];
const RESET: &[&[u8]] = &[b"C\0\0\0\x0cDISCARD\0", b"Z\0\0\0\x05I"];

/// Reads one message into `into`, type and length included.
async fn message(end: &End, into: &mut Vec<u8>) {
    into.resize(5, 0);
    end.read_exact(&mut into[..1]).await;
    end.read_exact(&mut into[1..]).await;
    let length = u32::from_be_bytes([into[1], into[2], into[3], into[4]]);
    into.resize(length as usize + 1, 0);
    end.read_exact(&mut into[5..]).await;
}

/// Stands for PostgreSQL: it knows one query and the reset, and counts the resets.
async fn server(end: End, answer: &'static [&'static [u8]], resets: Rc<Cell<usize>>) {
    let mut text = Vec::new();
    loop {
        message(&end, &mut text).await;
        assert_eq!(text[0], b'Q', "the server got no query");
        let is_reset = &text[5..] == DISCARD;
        assert!(is_reset || text == QUERY, "the server got a query of nobody");
        if is_reset {
            resets.set(resets.get() + 1);
        }
        for message in if is_reset { RESET } else { answer } {
            end.write_all(message).await;
        }
    }
}

async fn client(end: &End, answer: &[&[u8]], ops: usize, text: &mut Vec<u8>) -> bool {
    let mut right = true;
    for _ in 0..ops {
        end.write_all(QUERY).await;
        for expected in answer {
            message(end, text).await;
            right &= text == expected;
        }
    }
    right
}

fn row(kind: Kind, reset: Reset, answer: &'static [&'static [u8]], name: &'static str) -> Row {
    let mut executor = Executor::new();
    let (near, front) = kind.pair(&executor);
    let (back, far) = kind.pair(&executor);
    let resets = Rc::new(Cell::new(0));
    executor.spawn(server(far, answer, Rc::clone(&resets)));
    executor.spawn(relay::run(front, back, reset));
    let mut text = Vec::new();
    let mut expected = 0;
    measure(name, OPS, |ops| {
        let right = executor.run(client(&near, answer, ops, &mut text));
        // The last reset of a batch may still be under way.
        expected += if reset == Reset::Always { ops } else { 0 };
        right && resets.get() <= expected && resets.get() + 1 >= expected
    })
}

pub fn rows(only: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        for reset in Reset::ALL {
            for (answer, suffix) in [(ANSWER, ""), (ROWS, "/rows")] {
                let name = format!("postgres/{}/{}{suffix}", kind.name(), reset.name());
                if name.starts_with(only) {
                    rows.push(row(kind, reset, answer, name.leak()));
                }
            }
        }
    }
    rows
}
