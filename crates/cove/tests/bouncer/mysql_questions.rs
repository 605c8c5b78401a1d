//! Requests that the bouncer answers without a server: questions about a client's last statement,
//! in every protocol and in any number, and kills.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use testkit::my::{capability, command, message};
use testkit::{MyClient, MyLogin, process, until};

use crate::mysql_places::{Place, everywhere};
use crate::mysql_support::{behind, front, login, shared_maria};

/// Time limit for a state to be reached.
const SOON: Duration = Duration::from_secs(60);
/// Allowed growth of the server's memory, for buffers that it keeps.
const SLACK_BYTES: u64 = 24 << 20;

/// Formats the values of all rows, or `!` with the number of an error.
fn answer_text(answer: &testkit::MyAnswer) -> String {
    match answer.error() {
        Some(error) => format!("!{}", error.code),
        None => {
            let value = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
            let row = |row: Vec<Option<String>>| row.into_iter().map(value).collect::<Vec<_>>();
            answer.rows().into_iter().map(|it| row(it).join("|")).collect::<Vec<_>>().join(";")
        }
    }
}

/// Lets other clients use the connections, and leave other diagnostics there.
fn disturb(place: &mut Place<'_>, others: &mut Vec<MyClient>) {
    if place.is_shared() {
        if others.is_empty() {
            others.extend([place.login(), place.login()]);
        }
        for other in others {
            other.run("DROP TABLE IF EXISTS nowhere.a, nowhere.b, nowhere.c");
            other.run("SELECT seq FROM seq_1_to_77");
        }
    }
    place.stir();
}

#[test]
fn prepared_questions_have_the_answers_of_their_client() {
    everywhere("asked", "", |place| {
        let name = place.name;
        let mut others = Vec::new();
        for without in [0, capability::DEPRECATE_EOF] {
            let of = login(&place.database).without(without);
            let mut client = place.login_as(&of).unwrap();
            client.run("CREATE OR REPLACE TABLE t (x INT)");
            let questions = [
                "SELECT ROW_COUNT()",
                "SELECT FOUND_ROWS() AS n",
                "SHOW WARNINGS",
                "SHOW ERRORS LIMIT 1",
                "SHOW COUNT(*) WARNINGS",
                "SELECT @@error_count",
            ];
            let ids = questions.map(|sql| client.prepare(sql).unwrap());
            for (sql, question, expected) in [
                ("INSERT INTO t VALUES (1), (2), (3)", 0, "3"),
                ("SELECT x FROM t LIMIT 2", 1, "2"),
                ("DROP TABLE IF EXISTS no_1", 2, "Note|1051|Unknown table '*.no_1'"),
                ("DROP TABLE no_1", 3, "Error|1051|Unknown table '*.no_1'"),
                ("DROP TABLE IF EXISTS no_1", 4, "1"),
                ("SELECT nothing", 5, "1"),
                ("SELECT nothing", 0, "-1"),
                ("SELECT x FROM t", 0, "-1"),
                ("DELETE FROM t", 0, "3"),
            ] {
                let expected = expected.replace('*', &place.database);
                for is_prepared in [true, false] {
                    drop(client.query("INSERT INTO t VALUES (1), (2)"));
                    drop(client.query("DELETE FROM t LIMIT 2"));
                    if sql.starts_with("DELETE") || sql.contains(" t") && question > 0 {
                        client.run("DELETE FROM t");
                        client.run("INSERT INTO t VALUES (1), (2), (3)");
                    }
                    drop(client.query(sql).unwrap());
                    disturb(place, &mut others);
                    let answer = match is_prepared {
                        true => client.execute(&ids[question], &[]).unwrap(),
                        false => client.query(questions[question]).unwrap(),
                    };
                    assert_eq!(answer_text(&answer), expected, "{name}, {is_prepared}: {sql}");
                }
            }
        }
    });
}

/// Effect of other commands on `ROW_COUNT()`.
#[test]
fn commands_count_no_rows() {
    everywhere("uncounted", "", |place| {
        let mut client = place.login();
        client.run("CREATE TABLE t (x INT)");
        let statement = client.prepare("SELECT ?").unwrap();
        let mut others = Vec::new();
        for (code, body, expected) in [
            (command::PING, vec![], "0"),
            (command::STMT_RESET, statement.id.to_le_bytes().to_vec(), "0"),
            (command::SET_OPTION, vec![0, 0], "-1"),
            (command::INIT_DB, place.database.clone().into_bytes(), "0"),
            (command::INIT_DB, b"no_such_database".to_vec(), "-1"),
            (command::PROCESS_KILL, vec![0, 0, 0, 0], "-1"),
        ] {
            for is_held in [false, true] {
                client.run("INSERT INTO t VALUES (1), (2)");
                if is_held {
                    client.run("BEGIN; INSERT INTO t VALUES (1), (2)");
                }
                drop(client.simple(code, &body).unwrap());
                disturb(place, &mut others);
                let seen = client.value("SELECT ROW_COUNT()");
                assert_eq!(seen, expected, "{}, {is_held}: {code}, {body:?}", place.name);
                client.run("COMMIT");
            }
        }
    });
}

/// A client's connection id does not exist on the server, and a kill that names another
/// connection's id there must not affect it.
#[test]
fn kills_in_other_words_hit_nobody() {
    everywhere("words", "", |place| {
        if place.fronted.is_none() {
            return;
        }
        let (mut a, mut b) = (place.login(), place.login());
        b.run("BEGIN");
        let thread = "SELECT id FROM information_schema.processlist \
                      WHERE id <> (SELECT id FROM information_schema.processlist \
                      WHERE info LIKE '%processlist%' LIMIT 1) AND db = DATABASE() LIMIT 1";
        let thread = a.value(thread);
        for sql in [
            "KILL {}",
            "KILL QUERY {}",
            "KILL HARD CONNECTION {}",
            "KILL {} + 0",
            "KILL (SELECT {})",
            "KILL QUERY ID {}",
            "KILL USER ada",
            "KILL SOFT QUERY USER 'ada'@'%'",
            "/*!50000 KILL */ {}",
            "/*M! KILL {} */",
            "SET STATEMENT max_statement_time = 1 FOR KILL {}",
            "PREPARE s FROM 'KILL {}'",
            "EXECUTE IMMEDIATE 'KILL {}'",
            "BEGIN NOT ATOMIC KILL {}; END",
            "SELECT 1; KILL {}",
        ] {
            let sql = sql.replace("{}", &thread);
            let code = a.fail(&sql).code;
            assert!([1094, 1235].contains(&code), "{}: {sql}: {code}", place.name);
            let prepared = a.prepare(&sql);
            assert!(prepared.is_err(), "{}: {sql} is prepared", place.name);
            assert_eq!(b.value("SELECT 1"), "1", "{}: {sql}", place.name);
        }
        b.run("COMMIT");
    });
}

/// A kill that arrives after the end of its statement affects no other client's statement. It may
/// hit the same client's next one: Cove answers a kill before the server receives it.
#[test]
fn kills_that_come_late_hit_no_later_statement() {
    const ROUNDS: usize = 150;
    everywhere("late", "", |place| {
        let name = place.name;
        let (mut a, mut b) = (place.login(), place.login());
        let mut others = [(); 3].map(|()| place.login());
        let kill = format!("KILL QUERY {}", a.greeting.thread_id);
        for round in 0..ROUNDS {
            let in_transaction = round % 3 == 0;
            if in_transaction {
                drop(a.query("BEGIN").unwrap());
            }
            a.command(command::QUERY, b"SELECT COUNT(*) FROM seq_1_to_50").unwrap();
            b.run(&kill);
            let seen = answer_text(&a.answer().unwrap());
            // Killed, also while MariaDB was discovering the table of its sequence engine.
            assert!(["50", "!1317", "!1939"].contains(&seen.as_str()), "{name}: {seen}");
            if in_transaction {
                drop(a.query("ROLLBACK").unwrap());
            }
            for other in &mut others {
                assert_eq!(other.value("SELECT 'mine'"), "mine", "{name}, {round}");
            }
        }
    });
}

/// Clients that count found rows, and others, on the same connections.
#[test]
fn rows_are_counted_as_the_tenant_says() {
    let tenants = [
        behind("found_no", "transaction", 1),
        behind("found_yes", "transaction", 1).with("found_rows = true"),
    ];
    let fronted = front(shared_maria(), "", &tenants);
    for (tenant, expected) in [("found_no", 0), ("found_yes", 1)] {
        let asks = |login: MyLogin| login.with(capability::FOUND_ROWS);
        let connect = |login: MyLogin| MyClient::login(&fronted.address(), &login).unwrap();
        let mut clients = [connect(asks(login(tenant))), connect(login(tenant))];
        clients[0].run("CREATE TABLE t (x INT); INSERT INTO t VALUES (1)");
        for round in 0..4 {
            for client in &mut clients {
                let rows = client.run("UPDATE t SET x = 1").ok().affected_rows;
                assert_eq!(rows, expected, "{tenant}, {round}");
                assert_eq!(client.value("SELECT ROW_COUNT()"), expected.to_string(), "{tenant}");
            }
        }
    }
}

/// The server does not buffer unlimited responses for a client that does not read.
#[test]
fn answers_that_nobody_reads_are_not_held() {
    const QUESTIONS: usize = 100_000;
    /// Together more than socket buffers hold.
    const PADDING: usize = 300;
    let fronted = front(shared_maria(), "", &[behind("unread", "transaction", 3)]);
    let pid = fronted.server.pid();
    let (mut client, mut other) = (fronted.login("unread"), fronted.login("unread"));
    let long = "x".repeat(500);
    client.fail(&format!("SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{long}'"));
    assert_eq!(answer_text(&client.run("SHOW WARNINGS")), format!("Error|1644|{long}"));
    let show = format!("SHOW WARNINGS /* {} */", "-".repeat(PADDING));
    let pair = [message(command::PING, b""), message(command::QUERY, show.as_bytes())].concat();
    let before = process::resident_bytes(pid);
    let mut sender = client.sender().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let sending = thread::spawn(move || {
        for _ in 0..QUESTIONS / 2 {
            sender.write_all(&pair).unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    until("the server to take no more", SOON, || {
        let before = sent.load(Ordering::Relaxed);
        // Other clients are served meanwhile.
        for _ in 0..50 {
            assert_eq!(other.value("SELECT 1"), "1");
        }
        let now = sent.load(Ordering::Relaxed);
        if now == before && now > 0 { Ok(()) } else { Err(format!("{before}, {now}")) }
    });
    assert!(sent.load(Ordering::Relaxed) < QUESTIONS / 2, "all of it was taken");
    let held = process::resident_bytes(pid).saturating_sub(before);
    assert!(held < SLACK_BYTES, "{held} bytes are held");
    for _ in 0..QUESTIONS / 2 {
        client.sequence = 1;
        assert_eq!(client.answer().unwrap().letters(), "O");
        client.sequence = 1;
        assert_eq!(client.answer().unwrap().rows()[0][2].as_deref(), Some(long.as_str()));
    }
    sending.join().unwrap();
    assert_eq!(client.unread(), 0);
    client.sequence = 0;
    assert_eq!(client.value("SELECT 'still there'"), "still there");
}
