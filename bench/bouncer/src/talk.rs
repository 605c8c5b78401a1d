//! The client's requests and the server's answers: both are tasks of this program, as in the Go
//! program, with a relay between them. Both read a message in two parts, head and body, and write
//! one message at a time.

use std::cell::Cell;
use std::rc::Rc;

use crate::executor::Executor;
use crate::measure::{Row, measure};
use crate::pipe::{End, Kind};
use crate::relay::{self, Reset, Sessions};

const OPS: usize = 500;

pub type Messages = &'static [&'static [u8]];

/// Answer to a message of the relay itself.
pub enum Own {
    /// To the reset after a transaction.
    Reset(Messages),
    /// To the statement that sets up the session again after a reset.
    Again(Messages),
}

/// A query, the server's answer, and the client's expected answer.
#[derive(Clone, Copy)]
pub struct Talk {
    /// Suffix of the row's name, after the name of the pipe.
    pub suffix: &'static str,
    pub query: &'static [u8],
    pub said: Messages,
    pub heard: Messages,
    /// Whether the relay sends another message directly after a reset.
    pub resets_with_two: bool,
    /// Parses a complete message other than the query; none if a relay must not send it.
    pub own: fn(&[u8]) -> Option<Own>,
    /// Form of a message's head.
    pub head: Head,
    pub sessions: fn(Reset) -> Sessions,
}

/// Form of a message's head.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// A type, then a length of four bytes that counts itself; two reads, as in the Go program.
    Postgres,
    /// A length of three bytes and a number; one read.
    Mysql,
}

/// Reads one message into `into`, including its head.
async fn message(end: &End, head: Head, into: &mut Vec<u8>) {
    let bytes = match head {
        Head::Postgres => {
            into.resize(5, 0);
            end.read_exact(&mut into[..1]).await;
            end.read_exact(&mut into[1..]).await;
            u32::from_be_bytes([into[1], into[2], into[3], into[4]]) as usize + 1
        }
        Head::Mysql => {
            into.resize(4, 0);
            end.read_exact(into).await;
            u32::from_le_bytes([into[0], into[1], into[2], 0]) as usize + 4
        }
    };
    let begun = into.len();
    into.resize(bytes, 0);
    end.read_exact(&mut into[begun..]).await;
}

/// Simulates the database: answers one query and the relay's own messages, and counts the resets.
async fn server(end: End, talk: Talk, resets: Rc<Cell<usize>>) {
    let mut text = Vec::new();
    loop {
        message(&end, talk.head, &mut text).await;
        let answer = if text == talk.query {
            talk.said
        } else {
            match (talk.own)(&text).expect("the server got a query of nobody") {
                Own::Reset(answer) => {
                    resets.set(resets.get() + 1);
                    answer
                }
                Own::Again(answer) => answer,
            }
        };
        for message in answer {
            end.write_all(message).await;
        }
    }
}

async fn client(end: &End, talk: Talk, ops: usize, text: &mut Vec<u8>) -> bool {
    let mut right = true;
    for _ in 0..ops {
        end.write_all(talk.query).await;
        for expected in talk.heard {
            message(end, talk.head, text).await;
            right &= text == expected;
        }
    }
    right
}

fn row(kind: Kind, reset: Reset, talk: Talk, name: &'static str) -> Row {
    let mut executor = Executor::new();
    let (near, front) = kind.pair(&executor);
    let (back, far) = kind.pair(&executor);
    let resets = Rc::new(Cell::new(0));
    executor.spawn(server(far, talk, Rc::clone(&resets)));
    executor.spawn(relay::run(front, back, reset, talk.sessions));
    let mut text = Vec::new();
    let mut expected = 0;
    measure(name, OPS, |ops| {
        let right = executor.run(client(&near, talk, ops, &mut text));
        // The last reset of a batch may still be in flight.
        expected += if reset == Reset::Always { ops } else { 0 };
        right && resets.get() <= expected && resets.get() + 1 >= expected
    })
}

/// Returns the rows of a protocol whose names begin with `only`.
pub fn rows(protocol: &str, talks: &[Talk], only: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        for reset in Reset::ALL {
            for talk in talks {
                // A relay that ignores content does not translate.
                let is_translated = talk.said != talk.heard;
                // A rendezvous has no room for two of the relay's own statements in one write.
                let is_stuck = kind == Kind::Rendezvous && talk.resets_with_two;
                if reset == Reset::Unseen && is_translated || reset == Reset::Always && is_stuck {
                    continue;
                }
                let name = format!("{protocol}/{}/{}{}", kind.name(), reset.name(), talk.suffix);
                if name.starts_with(only) {
                    rows.push(row(kind, reset, *talk, name.leak()));
                }
            }
        }
    }
    rows
}
