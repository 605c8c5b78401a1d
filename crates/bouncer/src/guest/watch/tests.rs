//! Streams that are made by hand, cut in every place.

use parking_lot::Mutex;
use proptest::prelude::*;
use wire::pg::frame::put_header;

use super::*;
use crate::guest::{GuestSpec, Witness};
use crate::tenants::UserTimes;

#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl Witness for Notes {
    fn saw(&self, deed: Deed<'_>) {
        if let Deed::Statement { text, rows, error, .. } = deed {
            let note = format!("{} {rows} {}", text.unwrap_or("-"), error.unwrap_or("ok"));
            self.0.lock().push(note);
        }
    }
}

fn guest(notes: &Arc<Notes>, rows_max: Option<u64>) -> Arc<Guest> {
    let spec = GuestSpec {
        name: "guest".into(),
        tenant: "t".into(),
        engine: api::TenantEngine::Postgres,
        role: None,
        schema: None,
        read_only: true,
        clients_max: None,
        times: UserTimes::default(),
        rows_max,
        bytes_max: None,
        texts: Texts::Masked,
        witness: Arc::clone(notes) as Arc<dyn Witness>,
    };
    Arc::new(Guest { id: 1, spec, is_revoked: false.into(), turns: Arc::default() })
}

fn pg(messages: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (tag, body) in messages {
        put_header(&mut out, *tag, body.len());
        out.extend_from_slice(body);
    }
    out
}

fn my(packets: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (seq, payload) in packets {
        let mut seq = *seq;
        wire::mysql::frame::put_packet(&mut out, &mut seq, payload);
    }
    out
}

/// Gives both streams in pieces of so many bytes.
fn play(watch: &mut Watch, asked: &[u8], answered: &[u8], piece: usize) -> bool {
    for bytes in asked.chunks(piece) {
        watch.sent(bytes, 10);
    }
    answered.chunks(piece).any(|bytes| watch.received(&mut bytes.to_vec(), 20) == Seen::Violation)
}

fn pg_streams() -> (Vec<u8>, Vec<u8>) {
    let asked = pg(&[
        (b'Q', b"SELECT 'a'; SELECT 2\0"),
        (b'P', b"s\0SELECT $1, 3\0\0\0"),
        (b'B', b"p\0s\0\0\0\0\0\0\0"),
        (b'D', b"Pp\0"),
        (b'E', b"p\0\0\0\0\0"),
        (b'E', b"p\0\0\0\0\0"),
        (b'S', b""),
        (b'Q', b"COPY t TO STDOUT\0"),
    ]);
    let answered = pg(&[
        (b'T', b"\0\0"),
        (b'D', b"\0\0"),
        (b'C', b"SELECT 1\0"),
        (b'D', b"\0\0"),
        (b'C', b"SELECT 1\0"),
        (b'Z', b"I"),
        (b'1', b""),
        (b'2', b""),
        (b'T', b"\0\0"),
        (b'D', b"\0\0"),
        (b'C', b"SELECT 1\0"),
        (b'E', b"SERROR\0C22012\0Mno\0\0"),
        (b'Z', b"I"),
        (b'H', b"\0\0\0"),
        (b'd', b"x"),
        (b'd', b"y"),
        (b'c', b""),
        (b'C', b"COPY 2\0"),
        (b'Z', b"I"),
    ]);
    (asked, answered)
}

#[test]
fn statements_of_postgresql_are_told_however_the_bytes_come() {
    let (asked, answered) = pg_streams();
    for piece in 1..asked.len() {
        let notes = Arc::<Notes>::default();
        let mut watch = Watch::pg(&guest(&notes, None), 0);
        assert!(!play(&mut watch, &asked, &answered, piece), "{:?}", watch.violation());
        drop(watch);
        let expected = [
            "SELECT ?; SELECT ? 2 ok",
            "SELECT $1, ? 1 ok",
            "SELECT $1, ? 0 22012",
            "COPY t TO STDOUT 2 ok",
        ];
        assert_eq!(*notes.0.lock(), expected, "{piece}");
    }
}

#[test]
fn statements_of_mysql_are_told_however_the_bytes_come() {
    let eof: &[u8] = b"\xFE\0\0\x02\0";
    let column: &[u8] = b"\x03def\0\0\0\x01a\x01a\x0C\x3F\0\x01\0\0\0\x03\0\0\0\0\0";
    let asked = my(&[(0, b"\x03SELECT \"a\", 1"), (0, b"\x16SELECT ?, 'x'")]);
    let executed = my(&[(0, b"\x17\x07\0\0\0\0\x01\0\0\0"), (0, b"\x03SELECT nothing")]);
    let answered = my(&[
        (1, b"\x01"),
        (2, column),
        (3, eof),
        (4, b"\x01a"),
        (5, b"\x01b"),
        (6, eof),
        (1, b"\0\x07\0\0\0\0\0\0\0\0\0\0"),
    ]);
    let results = my(&[(1, b"\0\0\0\x02\0\0\0"), (1, b"\xFF\x1E\x04#42S22no")]);
    for piece in 1..answered.len() {
        let notes = Arc::<Notes>::default();
        let capabilities = Capabilities::PROTOCOL_41;
        let mut watch = Watch::mysql(&guest(&notes, None), capabilities, 0);
        for (asked, answered) in [(&asked, &answered), (&executed, &results)] {
            assert!(!play(&mut watch, asked, answered, piece), "{:?}", watch.violation());
        }
        drop(watch);
        let expected = ["SELECT ?, ? 2 ok", "SELECT ?, ? 0 ok", "SELECT nothing 0 1054"];
        assert_eq!(*notes.0.lock(), expected, "{piece}");
    }
}

#[test]
fn too_many_rows_are_a_violation_and_what_is_pending_is_told() {
    let (asked, answered) = pg_streams();
    let notes = Arc::<Notes>::default();
    let mut watch = Watch::pg(&guest(&notes, Some(1)), 0);
    assert!(play(&mut watch, &asked, &answered, 7));
    assert_eq!(watch.violation(), Some(&Violation::Rows(1)));
    drop(watch);
    assert_eq!(notes.0.lock()[0], "SELECT ?; SELECT ? 2 53400");
}

proptest! {
    #[test]
    fn whatever_comes_is_followed_or_is_a_violation(
        asked in proptest::collection::vec(any::<u8>(), 0..200),
        answered in proptest::collection::vec(any::<u8>(), 0..200),
        piece in 1usize..50,
        is_mysql in any::<bool>(),
    ) {
        let notes = Arc::<Notes>::default();
        let guest = guest(&notes, Some(3));
        let mut watch = match is_mysql {
            true => Watch::mysql(&guest, Capabilities::PROTOCOL_41, 0),
            false => Watch::pg(&guest, 0),
        };
        play(&mut watch, &asked, &answered, piece);
    }
}
