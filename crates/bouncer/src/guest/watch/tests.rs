//! Streams made by hand, cut at every position.

use std::collections::HashSet;

use parking_lot::Mutex;
use proptest::prelude::*;
use wire::pg::frame::put_header;

use super::*;
use crate::guest::{GuestSpec, SandboxObserver};
use crate::tenants::UserTimes;

#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl SandboxObserver for Notes {
    fn saw(&self, deed: SandboxAction<'_>) {
        if let SandboxAction::Statement { text, rows, error, .. } = deed {
            let note = format!("{} {rows} {}", text.unwrap_or("-"), error.unwrap_or("ok"));
            self.0.lock().push(note);
        }
    }
}

fn guest(notes: &Arc<Notes>, change: impl FnOnce(&mut GuestSpec)) -> Arc<SandboxClient> {
    let mut spec = GuestSpec {
        name: "guest".into(),
        tenant: "t".into(),
        engine: api::TenantEngine::Postgres,
        role: None,
        schema: None,
        read_only: true,
        clients_max: None,
        times: UserTimes::default(),
        rows_max: None,
        bytes_max: None,
        texts: StatementDetail::Masked,
        trace_comments: false,
        witness: Arc::clone(notes) as Arc<dyn SandboxObserver>,
        fence: node::fence::EffectFence::open(),
        session: None,
    };
    change(&mut spec);
    Arc::new(SandboxClient::new(1, spec))
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

/// Presents both streams in pieces of `piece` bytes.
fn play(watch: &mut ConnectionObserver, asked: &[u8], answered: &[u8], piece: usize) -> bool {
    for bytes in asked.chunks(piece) {
        watch.sent(bytes, 10);
    }
    answered
        .chunks(piece)
        .any(|bytes| watch.received(&mut bytes.to_vec(), 20) == ReplyAction::Violation)
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
        let mut watch = ConnectionObserver::pg(&guest(&notes, |_| {}), 0, 0);
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

/// Records trace contexts with the times of connections and statements, in microseconds.
#[derive(Debug, Default)]
struct TraceNotes(Mutex<Vec<(Option<String>, u128)>>);

impl SandboxObserver for TraceNotes {
    fn saw(&self, deed: SandboxAction<'_>) {
        let note = match deed {
            SandboxAction::Connected { took } => (None, took.as_micros()),
            SandboxAction::Statement { trace, waited, .. } => {
                (trace.map(TraceContext::traceparent), waited.as_micros())
            }
            SandboxAction::Refused(_) | SandboxAction::Disconnected { .. } => return,
        };
        self.0.lock().push(note);
    }
}

#[test]
fn contexts_in_comments_are_told_with_each_run_of_a_statement_where_they_are_wanted() {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let text = |before: &str, after: &str| {
        format!("{before}SELECT 1 /*traceparent='{parent}'*/\0{after}").into_bytes()
    };
    let asked = pg(&[
        (b'Q', &text("", "")),
        (b'P', &text("s\0", "\0\0")),
        (b'B', b"p\0s\0\0\0\0\0\0\0"),
        (b'E', b"p\0\0\0\0\0"),
        (b'S', b""),
        (b'Q', b"SELECT 2\0"),
    ]);
    let answered = pg(&[
        (b'C', b"SELECT 1\0"),
        (b'Z', b"I"),
        (b'1', b""),
        (b'2', b""),
        (b'C', b"SELECT 1\0"),
        (b'Z', b"I"),
        (b'C', b"SELECT 1\0"),
        (b'Z', b"I"),
    ]);
    for trace_comments in [true, false] {
        for piece in [1, 7, 1000] {
            let notes = Arc::<TraceNotes>::default();
            let witness = Arc::clone(&notes) as Arc<dyn SandboxObserver>;
            let guest = guest(&Arc::default(), |spec| {
                spec.trace_comments = trace_comments;
                spec.texts = StatementDetail::None;
                spec.witness = witness;
            });
            let mut watch = ConnectionObserver::pg(&guest, 2, 5);
            watch.waited(4);
            watch.waited(3);
            assert!(!play(&mut watch, &asked, &answered, piece), "{:?}", watch.violation());
            let found = trace_comments.then(|| parent.to_owned());
            let expected = [(None, 3), (found.clone(), 7), (found, 0), (None, 0)];
            assert_eq!(*notes.0.lock(), expected, "{piece}");
        }
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
        let capabilities = CapabilityFlags::PROTOCOL_41;
        let mut watch = ConnectionObserver::mysql(&guest(&notes, |_| {}), capabilities, 0, 0);
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
    let mut watch = ConnectionObserver::pg(&guest(&notes, |spec| spec.rows_max = Some(1)), 0, 0);
    assert!(play(&mut watch, &asked, &answered, 7));
    assert_eq!(watch.violation(), Some(&GuestViolation::Rows(1)));
    drop(watch);
    assert_eq!(notes.0.lock()[0], "SELECT ?; SELECT ? 2 53400");
}

/// Builds requests of a PostgreSQL client, one in a line: `Parse NAME=TEXT`,
/// `Bind PORTAL=STATEMENT`, `Execute PORTAL`, `Close KIND NAME`, `Query TEXT`, `Call`, `Sync`.
fn pg_asks(lines: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines.lines().map(str::trim_start).filter(|line| !line.is_empty()) {
        let (request, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (name, text) = rest.split_once('=').unwrap_or((rest, ""));
        let (tag, body) = match request {
            "Parse" => (b'P', format!("{name}\0{text}\0\0\0")),
            "Bind" => (b'B', format!("{name}\0{text}\0\0\0\0\0\0\0")),
            "Execute" => (b'E', format!("{rest}\0\0\0\0\0")),
            "Close" => (b'C', format!("{}\0", rest.replace(' ', ""))),
            "Query" => (b'Q', format!("{rest}\0")),
            "Call" => (b'F', "\0\0\0\0".to_owned()),
            "Sync" => (b'S', String::new()),
            _ => panic!("{line}"),
        };
        out.extend(pg(&[(tag, body.as_bytes())]));
    }
    out
}

/// Builds the replies, by their first bytes; command tags are in brackets, `I` and `W` are
/// `ReadyForQuery` outside and within a transaction.
fn pg_answers(tags: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = tags;
    while let Some(tag) = rest.chars().next() {
        rest = &rest[1..];
        let (tag, body) = match tag {
            '[' => {
                let (command, after) = rest.split_once(']').expect("a bracket");
                rest = after;
                (b'C', format!("{command}\0"))
            }
            'I' | 'W' => (b'Z', if tag == 'I' { "I" } else { "T" }.to_owned()),
            'E' => (b'E', "SERROR\0C42P05\0Mno\0\0".to_owned()),
            'N' => (b'N', format!("SNOTICE\0C00000\0M{}\0\0", "x".repeat(300))),
            'D' => (b'D', "\0\0".to_owned()),
            'V' => (b'V', "\0".repeat(600)),
            'd' => (b'd', "x".repeat(300)),
            'H' => (b'H', "\0\0\0".to_owned()),
            _ => (u8::try_from(tag).expect("a tag"), String::new()),
        };
        out.extend(pg(&[(tag, body.as_bytes())]));
    }
    out
}

/// Runs one exchange after the other; then the connection ends.
fn pg_notes(exchanges: &[(&str, &str)]) -> Vec<String> {
    let notes = Arc::<Notes>::default();
    let mut watch = ConnectionObserver::pg(&guest(&notes, |_| {}), 0, 0);
    for (asked, answered) in exchanges {
        assert!(!play(&mut watch, &pg_asks(asked), &pg_answers(answered), 9), "{exchanges:?}");
    }
    drop(watch);
    std::mem::take(&mut *notes.0.lock())
}

#[test]
fn a_record_has_the_text_of_what_ran() {
    let long = "n".repeat(5000);
    let portal = "p".repeat(63);
    let delete = ("Parse s=DELETE FROM orders\nSync", "1I");
    let run_s = ("Bind =s\nExecute \nSync", "2[DELETE 1]I");
    let told = "DELETE FROM orders 0 ok";
    let lost = "the connection ended before the answer";
    let check = |exchanges: &[(&str, &str)], expected: &[&str]| {
        assert_eq!(pg_notes(exchanges), expected, "{exchanges:?}");
    };
    // A statement that is refused, or skipped, does not exist.
    check(&[delete, ("Parse s=SELECT 1\nSync", "EI"), run_s], &["SELECT ? 0 42P05", told]);
    check(
        &[delete, ("Parse =SELEC\nParse s=SELECT 1\nSync", "EI"), run_s],
        &["SELEC 0 42P05", told],
    );
    check(&[delete, ("Bind =none\nClose S s\nSync", "EI"), run_s], &[told]);
    // A portal belongs to its last statement, even if that has a name that is not kept.
    let binds = format!(
        "Parse s=SELECT 1\nBind =s\nParse {long}=DELETE FROM orders\nBind ={long}\nExecute \nSync"
    );
    let told_before = "(prepared) DELETE FROM orders 0 ok";
    check(
        &[(&binds, "1212[DELETE 1]I")],
        &["(prepared) SELECT ? 0 ok", told_before, "(prepared) 0 ok"],
    );
    // Only the beginning of a portal's name is significant to the server.
    let binds = format!(
        "Parse t=SELECT 1\nBind {portal}b=t\nClose P {portal}a\nBind {portal}a=s\n\
         Execute {portal}b\nSync"
    );
    check(&[delete, (&binds, "1232[DELETE 1]I")], &[told]);
    // Portals end with their transaction, and SQL can create others of the same names.
    check(&[delete, ("Bind p=s\nSync\nExecute p\nSync", "2I[X]I")], &["(prepared) 0 ok"]);
    check(
        &[
            ("Parse s=SELECT 1\nBind p=s\nSync", "12W"),
            ("Query CLOSE p; DECLARE p CURSOR FOR TABLE orders", "[CLOSE CURSOR][DECLARE CURSOR]W"),
            ("Execute p\nSync", "D[SELECT 1]W"),
        ],
        &[
            "(prepared) SELECT ? 0 ok",
            "CLOSE p; DECLARE p CURSOR FOR TABLE orders 0 ok",
            "(prepared) 1 ok",
        ],
    );
    check(
        &[
            ("Parse s=SELECT 1\nSync", "1I"),
            ("Query DEALLOCATE s; PREPARE s AS DELETE FROM orders", "[DEALLOCATE][PREPARE]I"),
            run_s,
        ],
        &[
            "(prepared) SELECT ? 0 ok",
            "DEALLOCATE s; PREPARE s AS DELETE FROM orders 0 ok",
            "(prepared) 0 ok",
        ],
    );
    // The client does not wait for the replies: the name was in use.
    check(
        &[delete, ("Parse s=SELECT 1\nSync\nBind =s\nExecute \nSync", "")],
        &[&format!("SELECT ? 0 {lost}"), &format!("DELETE FROM orders 0 {lost}")],
    );
}

#[test]
fn numbers_of_mysql_mean_what_the_server_says() {
    let notes = Arc::<Notes>::default();
    let mut watch =
        ConnectionObserver::mysql(&guest(&notes, |_| {}), CapabilityFlags::PROTOCOL_41, 0, 0);
    let prepared: &[u8] = b"\0\x07\0\0\0\0\0\0\0\0\0\0";
    let ok: &[u8] = b"\0\0\0\x02\0\0\0";
    // Nothing is awaited between these: the last prepared statement is run, before it is closed.
    let asked = my(&[
        (0, b"\x16DELETE FROM orders"),
        (0, b"\x17\xFF\xFF\xFF\xFF\0\x01\0\0\0"),
        (0, b"\x17\x07\0\0\0\0\x01\0\0\0"),
        (0, b"\x19\x07\0\0\0"),
        (0, b"\x17\x07\0\0\0\0\x01\0\0\0"),
        (0, b"\x11user"),
    ]);
    let error: &[u8] = b"\xFF\x1E\x04#42S22no";
    let answers = my(&[(1, prepared), (1, ok), (1, ok), (1, error), (1, error)]);
    assert!(!play(&mut watch, &asked, &answers, 5), "{:?}", watch.violation());
    let told = "DELETE FROM orders 0 ok";
    assert_eq!(*notes.0.lock(), [told, told, "(prepared) 0 1054"]);
}

#[test]
fn a_text_is_read_to_its_end_and_a_cut_is_seen() {
    let comment = format!("/*{}*/ DELETE FROM orders", "x".repeat(70_000));
    let list = format!("SELECT {}", "an_item, ".repeat(1000));
    let name = "n".repeat(2000);
    for (texts, text, begins, ends) in [
        (StatementDetail::Masked, &comment, "DELETE FROM orders", "DELETE FROM orders"),
        (StatementDetail::Masked, &list, "SELECT an_item, an_item, ", "…"),
        (StatementDetail::Full, &comment, "/*xxxxx", "…"),
        (StatementDetail::Full, &"SELECT 'ä'".to_owned(), "SELECT 'ä'", "SELECT 'ä'"),
    ] {
        let asked = pg_asks(&format!("Query {text}\nParse {name}={text}\nSync"));
        let asked_my = my(&[(0, format!("\x03{text}").as_bytes())]);
        for piece in [1, 7, 1000, usize::MAX] {
            let notes = Arc::<Notes>::default();
            let guest = guest(&notes, |spec| spec.texts = texts);
            play(&mut ConnectionObserver::pg(&guest, 0, 0), &asked, &pg_answers("[X]IEI"), piece);
            let mut watch = ConnectionObserver::mysql(&guest, CapabilityFlags::PROTOCOL_41, 0, 0);
            play(&mut watch, &asked_my, &my(&[(1, b"\0\0\0\x02\0\0\0")]), piece);
            let notes = notes.0.lock();
            assert_eq!(notes.len(), 3, "{notes:?}");
            for note in notes.iter() {
                let (shown, _) = note.rsplit_once(" 0 ").expect("a text");
                assert!(shown.starts_with(begins) && shown.ends_with(ends), "{piece}: {shown}");
                assert!(shown.len() <= crate::guest::TEXT_BYTES_MAX);
            }
        }
    }
}

#[test]
fn what_a_connection_keeps_has_a_bound_and_nothing_goes_untold() {
    let notes = Arc::<Notes>::default();
    let mut watch = ConnectionObserver::pg(&guest(&notes, |_| {}), 0, 0);
    let filler = "a_name, ".repeat(400);
    let text = |at: usize| format!("SELECT t{at}, {filler}1");
    // Reported texts, by the first name in them.
    let told = || -> HashSet<String> {
        let notes = notes.0.lock();
        let names = notes.iter().filter_map(|note| note.split_once("SELECT ")?.1.split_once(','));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    let (statements, outstanding) = (600, 1000);
    for at in 0..statements {
        let asked = pg_asks(&format!("Parse s{at}={}\nBind p{at}=s{at}\nSync", text(at)));
        assert!(!play(&mut watch, &asked, &pg_answers("12W"), 4096));
    }
    for at in statements..statements + outstanding {
        play(&mut watch, &pg_asks(&format!("Query {}", text(at))), &[], 4096);
    }
    assert!(watch.reporter.ledger.used() <= texts::KEPT_BYTES_MAX);
    assert!(watch.reporter.ledger.used() > texts::KEPT_BYTES_MAX - 8192, "it is not filled");
    // The first statements are remembered, and reported when they run; the others are reported at
    // once.
    let is_told = |at: usize| told().contains(&format!("t{at}"));
    assert!(!is_told(0) && is_told(statements - 1) && is_told(statements + outstanding - 1));
    assert!(!play(&mut watch, &[], &pg_answers("[X]W").repeat(outstanding), 4096));
    let runs: String = (0..statements).map(|at| format!("Execute p{at}\n")).collect();
    let answers = pg_answers(&"[X]".repeat(statements));
    assert!(!play(&mut watch, &pg_asks(&runs), &answers, 4096), "{:?}", watch.violation());
    assert_eq!(told().len(), statements + outstanding);
    // There is room again after they are closed.
    let asked =
        pg_asks("Query DEALLOCATE s0\nQuery deallocate \"s1\";\nQuery DEALLOCATE s2; SELECT s3");
    let before = watch.reporter.ledger.used();
    let answers = pg_answers("[DEALLOCATE]W[DEALLOCATE]W[DEALLOCATE][SELECT 1]W");
    assert!(!play(&mut watch, &asked, &answers, 4096));
    let has = |name: &str| match &watch.protocol {
        ObservedProtocol::Pg(watch) => watch.knows(name.as_bytes()),
        ObservedProtocol::My(_) => false,
    };
    assert_eq!(["s0", "s1", "s2", "s3"].map(has), [false, false, true, true]);
    assert!(watch.reporter.ledger.used() < before);
    let closes: String =
        (0..statements).map(|at| format!("Close S s{at}\nClose P p{at}\n")).collect();
    assert!(!play(&mut watch, &pg_asks(&closes), &pg_answers(&"33".repeat(statements)), 4096));
    assert_eq!(watch.reporter.ledger.used(), 0);
}

#[test]
fn every_way_out_is_counted() {
    let rows = |max| move |spec: &mut GuestSpec| spec.rows_max = Some(max);
    let bytes = |max| move |spec: &mut GuestSpec| spec.bytes_max = Some(max);
    for (asked, answered) in [
        ("Query DO $$$$", "NN"),
        ("Call", "V"),
        ("Query COPY t TO STDOUT", "Hdd"),
        ("Parse =x\nBind =\nExecute \nSync", "12[X]NN"),
    ] {
        let notes = Arc::<Notes>::default();
        let mut watch = ConnectionObserver::pg(&guest(&notes, bytes(500)), 0, 0);
        assert!(play(&mut watch, &pg_asks(asked), &pg_answers(answered), 4096), "{asked}");
        assert_eq!(watch.violation(), Some(&GuestViolation::Bytes(500)));
    }
    // A portal has one count, however often it is run; another portal has its own.
    for (portal, expected) in [("p", true), ("q", false), ("unknown", true)] {
        let notes = Arc::<Notes>::default();
        let mut watch = ConnectionObserver::pg(&guest(&notes, rows(10)), 0, 0);
        let known = if portal == "unknown" { "unknown" } else { "p" };
        let asked =
            format!("Parse s=x\nBind p=s\nBind q=s\nExecute {known}\nSync\nExecute {portal}\nSync");
        let answered = pg_answers("122DDDDDDsWDDDDDsW");
        assert_eq!(play(&mut watch, &pg_asks(&asked), &answered, 4096), expected, "{portal}");
    }
    // A message that is too long is detected at its header, and the client receives whole messages.
    let notes = Arc::<Notes>::default();
    let mut watch = ConnectionObserver::pg(&guest(&notes, bytes(1000)), 0, 0);
    watch.sent(&pg_asks("Query TABLE t"), 0);
    let before = pg_answers("DD");
    let mut sent = before.clone();
    put_header(&mut sent, b'D', 1 << 29);
    sent.extend_from_slice(b"the beginning of a row");
    assert_eq!(watch.received(&mut sent, 0), ReplyAction::Violation);
    assert_eq!((sent.starts_with(&before), sent[before.len()]), (true, b'E'));
}

#[test]
fn every_way_out_of_mysql_is_counted() {
    let eof = |status: u8| [0xFE, 0, 0, status, 0];
    let column: &[u8] = b"\x03def\0\0\0\x01a\x01a\x0C\x3F\0\x01\0\0\0\x03\0\0\0\0\0";
    let row: &[u8] = b"\0\0\0\0";
    let begin = |status| [(1, b"\x01".to_vec()), (2, column.to_vec()), (3, eof(status).to_vec())];
    let prepare = (b"\x16TABLE t".to_vec(), vec![(1, b"\0\x07\0\0\0\0\0\0\0\0\0\0".to_vec())]);
    let with_rows = |status| {
        let mut packets = vec![(4, row.to_vec()); 6];
        packets.push((5, eof(status).to_vec()));
        packets
    };
    let result = |status| [begin(status).to_vec(), with_rows(status)].concat();
    let fetch = (b"\x1C\x07\0\0\0\x06\0\0\0".to_vec(), with_rows(0x42));
    // With CURSOR_EXISTS (0x40) and MORE_RESULTS (0x08).
    let open = (b"\x17\x07\0\0\0\x01\x01\0\0\0".to_vec(), begin(0x42).to_vec());
    let query = |results| (b"\x03TABLE t".to_vec(), results);
    for (exchanges, expected) in [
        (vec![prepare.clone(), open.clone(), fetch.clone(), fetch.clone()], true),
        (vec![prepare, open.clone(), fetch.clone(), open.clone(), fetch.clone()], false),
        (vec![open, fetch.clone(), fetch], true),
        (vec![query([result(0x0A), result(2)].concat())], true),
        (vec![query(result(2)), query(result(2))], false),
    ] {
        let notes = Arc::<Notes>::default();
        let guest = guest(&notes, |spec| spec.rows_max = Some(10));
        let mut watch = ConnectionObserver::mysql(&guest, CapabilityFlags::PROTOCOL_41, 0, 0);
        let mut is_violation = false;
        for (asked, answered) in &exchanges {
            let packets: Vec<(u8, &[u8])> =
                answered.iter().map(|(seq, it)| (*seq, it.as_slice())).collect();
            is_violation |= play(&mut watch, &my(&[(0, asked)]), &my(&packets), 4096);
        }
        let expected = expected.then_some(&GuestViolation::Rows(10));
        assert_eq!((is_violation, watch.violation()), (expected.is_some(), expected));
    }
    // A row of several packets.
    let notes = Arc::<Notes>::default();
    let limit = 20 << 20;
    let mut watch = ConnectionObserver::mysql(
        &guest(&notes, |spec| spec.bytes_max = Some(limit)),
        CapabilityFlags::PROTOCOL_41,
        0,
        0,
    );
    let first: Vec<(u8, &[u8])> = vec![(1, b"\x01"), (2, column), (3, b"\xFE\0\0\x02\0")];
    assert!(!play(&mut watch, &my(&[(0, b"\x03TABLE t")]), &my(&first), 4096));
    let long = my(&[(4, &vec![b'x'; 2 * 0xFF_FFFF])]);
    assert!(play(&mut watch, &[], &long, 1 << 20));
    assert_eq!(watch.violation(), Some(&GuestViolation::Bytes(limit)));
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
        let guest = guest(&notes, |spec| spec.rows_max = Some(3));
        let mut watch = match is_mysql {
            true => ConnectionObserver::mysql(&guest, CapabilityFlags::PROTOCOL_41, 0, 0),
            false => ConnectionObserver::pg(&guest, 0, 0),
        };
        play(&mut watch, &asked, &answered, piece);
    }
}
