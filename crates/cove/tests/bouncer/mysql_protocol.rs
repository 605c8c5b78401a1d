//! MySQL's protocol besides text statements, on MariaDB itself and through Cove.

use std::time::Duration;

use testkit::my::{self, capability, command, execute, message, status};
use testkit::{MyClient, MyError, MyFailure, MyLogin, MyValue, process, until};

use crate::mysql_places::{Place, everywhere};
use crate::mysql_support::login;
use crate::support::{PASSWORD, USER};

/// Time limit for a state to be reached.
const SOON: Duration = Duration::from_secs(20);
/// Allowed growth of the server's memory, for buffers that it keeps.
const SLACK_BYTES: u64 = 24 << 20;

fn code(error: Option<MyError>) -> u16 {
    error.map_or(0, |error| error.code)
}

fn refusal<T>(result: Result<T, MyFailure>) -> u16 {
    code(result.err().and_then(|failure| failure.error()))
}

/// Returns the first row of a prepared statement's response.
fn row(client: &mut MyClient, id: u32, values: &[MyValue<'_>], binds: bool) -> Vec<String> {
    client.command(command::STMT_EXECUTE, &execute(id, 0, values, binds)).unwrap();
    let answer = client.binary_answer().unwrap();
    assert_eq!(answer.error(), None, "{answer:?}");
    let row = answer.rows().remove(0);
    row.into_iter().map(|value| value.unwrap_or_else(|| "NULL".to_owned())).collect()
}

#[test]
fn statements_are_prepared_once_and_run_anywhere() {
    everywhere("prepared", "", |place| {
        let mut clients: Vec<MyClient> = (0..4).map(|_| place.login()).collect();
        let sql = "SELECT CONCAT(?, '-', ?), ?";
        let ids: Vec<u32> = clients.iter_mut().map(|it| it.prepare(sql).unwrap().id).collect();
        for turn in 0..5 {
            for (who, (client, id)) in clients.iter_mut().zip(&ids).enumerate() {
                let text = format!("{who}");
                // Types are sent only once, on any connection.
                let values = if who % 2 == 0 {
                    [MyValue::Text(&text), MyValue::Int(turn), MyValue::Null]
                } else {
                    [MyValue::Int(-turn), MyValue::Text(&text), MyValue::Null]
                };
                let expected =
                    if who % 2 == 0 { format!("{who}-{turn}") } else { format!("{}-{who}", -turn) };
                let seen = row(client, *id, &values, turn == 0);
                assert_eq!(seen, [expected, "NULL".to_owned()], "{}", place.name);
                place.stir();
            }
        }
        // Statement ids of other clients and of closed statements are invalid.
        let [a, b, ..] = &mut clients[..] else { unreachable!() };
        a.close_statement(ids[0]).unwrap();
        assert_eq!(code(a.execute(&stated(ids[0], 3), &NULLS).unwrap().error()), 1243);
        assert_eq!(row(b, ids[1], &NULLS, true), ["NULL", "NULL"]);
        assert_eq!(code(b.execute(&stated(4_000_000, 0), &[]).unwrap().error()), 1243);
        for (sql, expected) in
            [("SELECT nothing", 1054), ("SELEC", 1064), ("SELECT * FROM no", 1146)]
        {
            assert_eq!(refusal(a.prepare(sql)), expected, "{}: {sql}", place.name);
        }
        // A text with several statements cannot be prepared.
        assert_eq!(refusal(a.prepare("SELECT 1; SELECT 2")), 1064);
        assert!(a.simple(command::STMT_RESET, &ids[0].to_le_bytes()).unwrap().is_err());
        assert!(b.simple(command::STMT_RESET, &ids[1].to_le_bytes()).unwrap().is_ok());
        assert_eq!(b.value("SELECT 'text'"), "text");
    });
}

const NULLS: [MyValue<'_>; 3] = [MyValue::Null, MyValue::Null, MyValue::Null];

fn stated(id: u32, parameters: u16) -> my::MyStatement {
    my::MyStatement { id, columns: 0, parameters, warnings: 0 }
}

#[test]
fn statements_are_more_than_a_connection_keeps() {
    everywhere("evicted", "limits.prepared_statements_max = 20", |place| {
        let (mut a, mut b) = (place.login(), place.login());
        let mut ids = Vec::new();
        for number in 0..80 {
            let sql = format!("SELECT {number}, ?");
            ids.push((a.prepare(&sql).unwrap().id, b.prepare(&sql).unwrap().id));
        }
        for turn in 0..2 {
            for (number, (of_a, of_b)) in ids.iter().enumerate() {
                for (client, id) in [(&mut a, of_a), (&mut b, of_b)] {
                    let seen = row(client, *id, &[MyValue::Int(turn)], turn == 0);
                    assert_eq!(seen, [number.to_string(), turn.to_string()], "{}", place.name);
                }
            }
        }
        for (of_a, _) in &ids {
            a.close_statement(*of_a).unwrap();
        }
        assert_eq!(a.value("SELECT 1"), "1");
    });
}

#[test]
fn statements_live_through_changes_of_their_tables() {
    everywhere("changed", "", |place| {
        let (mut a, mut b) = (place.login(), place.login());
        a.run("CREATE TABLE t AS SELECT 1 AS x");
        let ids = [&mut a, &mut b].map(|client| client.prepare("SELECT * FROM t").unwrap().id);
        for (at, change) in
            ["ALTER TABLE t ADD y INT DEFAULT 2", "DROP TABLE t; CREATE TABLE t AS SELECT 3 AS z"]
                .iter()
                .enumerate()
        {
            for (client, id) in [(&mut a, ids[0]), (&mut b, ids[1])] {
                assert_eq!(row(client, id, &[], true).len(), at + 1, "{}", place.name);
                place.stir();
            }
            b.run(change);
        }
        assert_eq!(row(&mut a, ids[0], &[], true), ["3"]);
        a.run("DROP TABLE t");
        for (client, id) in [(&mut a, ids[0]), (&mut b, ids[1])] {
            let answer = client.execute(&stated(id, 0), &[]).unwrap();
            assert_eq!(code(answer.error()), 1146, "{}", place.name);
            assert_eq!(client.value("SELECT 1"), "1");
        }
        // The same text refers to another table in another database.
        let other = format!("{}_other", place.database);
        b.run(&format!("CREATE TABLE t AS SELECT 'one' AS x; CREATE DATABASE {other}"));
        b.run(&format!("CREATE TABLE {other}.t AS SELECT 'two' AS x"));
        assert!(b.simple(command::INIT_DB, other.as_bytes()).unwrap().is_ok());
        for (is_first, expected) in [(true, "one"), (false, "two"), (true, "one")] {
            let client = if is_first { &mut a } else { &mut b };
            let id = client.prepare("SELECT x FROM t").unwrap().id;
            place.stir();
            assert_eq!(row(client, id, &[], true), [expected], "{}", place.name);
        }
    });
}

#[test]
fn parameters_come_in_pieces() {
    everywhere("pieces", "", |place| {
        let (mut a, mut b) = (place.login(), place.login());
        let sql = "SELECT LENGTH(?), ?, ?";
        let [of_a, of_b] = [&mut a, &mut b].map(|client| client.prepare(sql).unwrap().id);
        let values = |number| [MyValue::Long, MyValue::Int(number), MyValue::Long];
        for (client, id) in [(&mut a, of_a), (&mut b, of_b)] {
            for piece in ["one", "", "three"] {
                client.long_data(id, 0, piece.as_bytes()).unwrap();
                client.long_data(id, 2, b"x").unwrap();
            }
        }
        assert_eq!(row(&mut a, of_a, &values(1), true), ["8", "1", "xxx"], "{}", place.name);
        place.stir();
        // Discarded by a reset, and by the previous execution.
        assert!(b.simple(command::STMT_RESET, &of_b.to_le_bytes()).unwrap().is_ok());
        let none = [MyValue::Text(""), MyValue::Int(2), MyValue::Null];
        for (client, id) in [(&mut a, of_a), (&mut b, of_b)] {
            assert_eq!(row(client, id, &none, true), ["0", "2", "NULL"], "{}", place.name);
        }
        // Disconnected in the middle of a parameter.
        a.long_data(of_a, 0, b"left").unwrap();
        drop(a);
        assert_eq!(row(&mut b, of_b, &none, true), ["0", "2", "NULL"]);
        let large = vec![b'y'; (1 << 24) + 100];
        b.long_data(of_b, 0, &large).unwrap();
        b.long_data(of_b, 2, b"z").unwrap();
        assert_eq!(row(&mut b, of_b, &values(3), true), [&large.len().to_string(), "3", "z"]);
    });
}

#[test]
fn cursors_stay_where_they_are() {
    everywhere("cursors", "", |place| {
        let (mut a, mut b) = (place.login(), place.login());
        for turn in 0..3 {
            let mut open = Vec::new();
            for client in [&mut a, &mut b] {
                let id = client.prepare("SELECT seq, '' FROM seq_1_to_7").unwrap().id;
                client.command(command::STMT_EXECUTE, &execute(id, 1, &[], true)).unwrap();
                let opened = client.binary_answer().unwrap();
                assert_ne!(opened.ok().status & status::CURSOR_EXISTS, 0, "{}", place.name);
                let my::MyResult::Rows(rows) = opened.results[0].clone() else { unreachable!() };
                assert!(rows.rows.is_empty());
                open.push((id, rows.columns));
            }
            for (count, expected) in [(2, "1,2"), (3, "3,4,5"), (10, "6,7")] {
                for (client, (id, columns)) in [&mut a, &mut b].into_iter().zip(&open) {
                    let rows = client.fetch(*id, columns, count).unwrap().unwrap();
                    let seen: Vec<String> =
                        rows.texts().into_iter().map(|row| row[0].clone().unwrap()).collect();
                    assert_eq!(seen.join(","), expected, "{}", place.name);
                    let is_last = rows.end.unwrap().status & status::LAST_ROW_SENT != 0;
                    assert_eq!(is_last, count == 10);
                }
                place.stir();
            }
            // Closed in the middle, or left open.
            for (client, (id, _)) in [&mut a, &mut b].into_iter().zip(&open) {
                client.command(command::STMT_EXECUTE, &execute(*id, 1, &[], true)).unwrap();
                client.binary_answer().unwrap();
                match turn {
                    0 => client.close_statement(*id).unwrap(),
                    1 => {
                        let reset = client.simple(command::STMT_RESET, &id.to_le_bytes());
                        assert!(reset.unwrap().is_ok());
                    }
                    _ => {}
                }
            }
        }
        drop((a, b));
        let mut fresh = place.login();
        assert_eq!(fresh.value("SELECT 'fresh'"), "fresh");
        let gone = fresh.fetch(1, &[], 1).unwrap();
        assert_eq!(code(gone.err()), 1243, "{}", place.name);
    });
}

/// Values whose first bytes resemble another packet.
#[test]
fn rows_are_not_taken_for_what_they_look_like() {
    everywhere("rows", "", |place| {
        let mut client = place.login();
        for login in
            [login(&place.database), login(&place.database).without(capability::DEPRECATE_EOF)]
        {
            let mut other = place.login_as(&login).unwrap();
            for length in [0, 1, 3, 4, 8, 250, 251, 252, 254, 255, 65_535, 65_536, 1 << 24, 1 << 25]
            {
                let sql = format!("SELECT REPEAT('x', {length}), 'behind' FROM seq_1_to_2");
                for rows in [other.run(&sql).rows(), {
                    let statement = other.prepare(&sql).unwrap();
                    let answer = other.execute(&statement, &[]).unwrap();
                    other.close_statement(statement.id).unwrap();
                    answer.rows()
                }] {
                    let lengths: Vec<usize> =
                        rows.iter().map(|row| row[0].as_deref().map_or(0, str::len)).collect();
                    assert_eq!(lengths, [length, length], "{}", place.name);
                    assert!(rows.iter().all(|row| row[1].as_deref() == Some("behind")));
                }
                assert_eq!(client.value("SELECT 'mine'"), "mine", "{}", place.name);
            }
            // The cursor of a block appears in the status of its results, but is not a client's.
            let block = "FOR it IN (SELECT seq FROM seq_1_to_2) DO \
                         SELECT it.seq LIMIT 0; SELECT it.seq; END FOR";
            let block = other.run(block);
            assert_eq!(block.results.len(), 5, "{}", place.name);
            let nulls = other.run("SELECT NULL UNION ALL SELECT '' UNION ALL SELECT NULL").rows();
            assert_eq!(nulls, [[None], [Some(String::new())], [None]], "{}", place.name);
            assert_eq!(
                other.run("SELECT 1 FROM seq_1_to_1 WHERE 0").rows(),
                [[None::<String>; 1]; 0]
            );
        }
    });
}

#[test]
fn rows_of_64_mib_are_not_held() {
    everywhere("huge", "", |place| {
        let mut client = place.login();
        client.value("SELECT REPEAT('x', 1 << 24)");
        let held = || place.fronted.map(|it| process::resident_bytes(it.server.pid()));
        let before = held();
        assert_eq!(client.value("SELECT REPEAT('y', 64 << 20)").len(), 64 << 20);
        let long = "z".repeat(48 << 20);
        assert_eq!(client.value(&format!("SELECT LENGTH('{long}')")), long.len().to_string());
        let statement = client.prepare("SELECT LENGTH(?)").unwrap();
        let answer = client.execute(&statement, &[MyValue::Text(&long)]).unwrap();
        assert_eq!(answer.value(), long.len().to_string());
        let more = held().unwrap_or(0).saturating_sub(before.unwrap_or(0));
        assert!(more < SLACK_BYTES, "{}: {more} bytes are held", place.name);
    });
}

#[test]
fn commands_besides_statements() {
    everywhere("commands", "", |place| {
        let mut client = place.login();
        let name = place.name;
        client.run("CREATE TABLE fields (one INT, two TEXT)");
        for _ in 0..3 {
            assert!(client.simple(command::PING, &[]).unwrap().is_ok(), "{name}");
            assert!(client.statistics().unwrap().contains("Uptime"), "{name}");
            assert_eq!(client.field_list("fields").unwrap(), ["one", "two"], "{name}");
            assert!(client.field_list("nowhere").is_err());
            place.stir();
        }
        assert!(client.simple(command::INIT_DB, b"mysql").unwrap().is_ok());
        let error = client.simple(command::INIT_DB, b"no_such_database").unwrap();
        assert_eq!(code(error.err()), 1049, "{name}");
        assert_eq!(client.value("SELECT DATABASE()"), "mysql", "{name}");
        // Several statements in one text can be enabled and disabled.
        assert!(client.simple(command::SET_OPTION, &[1, 0]).unwrap().is_ok(), "{name}");
        assert_eq!(client.fail("SELECT 1; SELECT 2").code, 1064, "{name}");
        let mut other = place.login();
        assert_eq!(other.run("SELECT 1; SELECT 2").letters(), "RR", "{name}");
        assert_eq!(client.fail("SELECT 1; SELECT 2").code, 1064, "{name}");
        assert!(client.simple(command::SET_OPTION, &[0, 0]).unwrap().is_ok(), "{name}");
        assert_eq!(client.run("SELECT 1; SELECT 2").letters(), "RR", "{name}");
        assert_eq!(client.run("SELECT 1;").letters(), "R", "{name}");
        assert_eq!(client.fail("").code, 1065, "{name}");
        client.close();
        let single = login(&place.database).without(capability::MULTI_STATEMENTS);
        let mut single = place.login_as(&single).unwrap();
        assert_eq!(single.fail("SELECT 1; SELECT 2").code, 1064, "{name}");
        assert_eq!(single.value("SELECT 3"), "3", "{name}");
    });
}

#[test]
fn a_session_begins_again_and_as_somebody_else() {
    everywhere("again", "", |place| {
        let name = place.name;
        let mut client = place.login();
        let leave = |client: &mut MyClient| {
            client.run("SET @a = 1, lock_wait_timeout = 55; CREATE TEMPORARY TABLE t (x INT)");
            client.run("SET autocommit = 0; INSERT INTO t VALUES (1); DO GET_LOCK('again_l', 0)");
            client.prepare("SELECT 1").unwrap().id
        };
        let is_new = |client: &mut MyClient, id: u32| {
            assert_eq!(client.fail("SELECT * FROM t").code, 1146, "{name}");
            // The lock is released when its server connection is reset, which may take a moment.
            until("the lock to be free", SOON, || {
                let free = client.value("SELECT IS_FREE_LOCK('again_l')");
                if free == "1" { Ok(()) } else { Err(free) }
            });
            let sql = "SELECT @a, @@lock_wait_timeout, @@autocommit, IS_FREE_LOCK('again_l')";
            let row = ["NULL", "86400", "1", "1"].map(|it| (it != "NULL").then(|| it.to_owned()));
            assert_eq!(client.run(sql).rows(), [row], "{name}");
            assert_eq!(code(client.execute(&stated(id, 0), &[]).unwrap().error()), 1243, "{name}");
        };
        let id = leave(&mut client);
        assert!(client.simple(command::RESET_CONNECTION, &[]).unwrap().is_ok(), "{name}");
        is_new(&mut client, id);
        place.stir();
        let id = leave(&mut client);
        client.change_user(&login(&place.database)).unwrap();
        is_new(&mut client, id);
        assert_eq!(client.value("SELECT DATABASE()"), place.database, "{name}");
        assert_eq!(refusal(client.change_user(&MyLogin::new(USER, "no", &place.database))), 1045);
    });
}

#[test]
fn only_ones_own_are_killed() {
    everywhere("killed", "", |place| {
        let name = place.name;
        let (mut a, mut b) = (place.login(), place.login());
        assert_eq!(a.value("SELECT CONNECTION_ID()"), a.greeting.thread_id.to_string(), "{name}");
        assert_ne!(a.greeting.thread_id, b.greeting.thread_id);
        let statement = b.prepare("SELECT CONNECTION_ID()").unwrap();
        let seen = b.execute(&statement, &[]).unwrap().value();
        assert_eq!(seen, b.greeting.thread_id.to_string(), "{name}");
        let running = format!("SELECT SLEEP(40) + 0, '{name}', seq FROM seq_1_to_3");
        for turn in 0..4 {
            let mut client = place.login();
            client.command(command::QUERY, running.as_bytes()).unwrap();
            let seen = format!(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE info = '{}' \
                 AND state = 'User sleep'",
                running.replace('\'', "''")
            );
            until("a statement to run", SOON, || {
                let count = b.value(&seen);
                if count == "0" { Err(count) } else { Ok(()) }
            });
            let id = client.greeting.thread_id;
            match turn {
                0 => drop(b.run(&format!("KILL QUERY {id}"))),
                1 => drop(a.run(&format!("KILL CONNECTION {id}"))),
                2 => drop(b.run(&format!("/* x */ kill {id}"))),
                _ => drop(a.simple(command::PROCESS_KILL, &id.to_le_bytes()).unwrap().unwrap()),
            }
            let answer = client.answer();
            match turn {
                0 => {
                    assert_eq!(code(answer.unwrap().error()), 1317, "{name}");
                    assert_eq!(client.value("SELECT 1"), "1", "{name}");
                }
                _ => {
                    let error = answer.map(|it| it.error()).unwrap_or_else(|it| it.error());
                    let codes = [0, 1053, 1317, 1927, 2013];
                    assert!(codes.contains(&code(error.clone())), "{name}: {error:?}");
                    let over = client.query("SELECT 1").err().map(|error| !error.is_timeout());
                    assert_eq!(over, Some(true), "{name}: {turn}");
                }
            }
            assert_eq!((a.value("SELECT 2"), b.value("SELECT 3")), ("2".into(), "3".into()));
        }
        assert_eq!(a.fail("KILL QUERY 4000000000").code, 1094, "{name}");
        assert_eq!(a.fail("KILL 4000000000").code, 1094, "{name}");
        // No statement is running, so nothing is killed.
        a.run(&format!("KILL QUERY {}", b.greeting.thread_id));
        assert_eq!(b.value("SELECT 4"), "4", "{name}");
        if let Some(fronted) = place.fronted {
            // The server's own connection ids belong to no client.
            let threads = "SELECT id FROM information_schema.processlist WHERE user = 'ada' \
                           AND db IS NOT NULL LIMIT 1";
            let thread = fronted.maria.sql(threads);
            let taken = [&a, &b].map(|client| client.greeting.thread_id.to_string());
            if !thread.is_empty() && !taken.contains(&thread) {
                assert_eq!(a.fail(&format!("KILL {thread}")).code, 1094, "{name}");
            }
        }
    });
}

#[test]
fn whoever_loses_a_deadlock_has_no_transaction() {
    everywhere("deadlock", "", |place| {
        let name = place.name;
        let (mut a, mut b) = (place.login(), place.login());
        a.run("CREATE TABLE t (id INT PRIMARY KEY, x INT) ENGINE=InnoDB");
        a.run("INSERT INTO t VALUES (1, 0), (2, 0)");
        for turn in 0..3 {
            a.run("BEGIN");
            b.run("START TRANSACTION");
            a.run("UPDATE t SET x = x + 1 WHERE id = 1");
            b.run("UPDATE t SET x = x + 10 WHERE id = 2");
            a.command(command::QUERY, b"UPDATE t SET x = x + 1 WHERE id = 2").unwrap();
            until("the other to wait", SOON, || {
                let sql = "SELECT COUNT(*) FROM information_schema.processlist \
                           WHERE state = 'Updating' AND info LIKE 'UPDATE t SET x = x + 1 %'";
                let count = b.value(sql);
                if count == "0" { Err(count) } else { Ok(()) }
            });
            let of_b = b.query("UPDATE t SET x = x + 10 WHERE id = 1").unwrap().error();
            let of_a = a.answer().unwrap().error();
            let codes = [code(of_a), code(of_b)];
            assert!(codes == [1213, 0] || codes == [0, 1213], "{name}: {codes:?}");
            let (loser, winner) =
                if codes[0] == 1213 { (&mut a, &mut b) } else { (&mut b, &mut a) };
            assert_eq!(loser.value("SELECT @@in_transaction"), "0", "{name}, {turn}");
            loser.run("DO 0");
            assert_eq!(winner.value("SELECT @@in_transaction"), "1", "{name}, {turn}");
            winner.run("ROLLBACK");
            place.stir();
        }
        // A client that timed out still has its transaction.
        a.run("BEGIN");
        a.run("UPDATE t SET x = 5 WHERE id = 1");
        b.run("SET innodb_lock_wait_timeout = 1");
        b.run("BEGIN");
        b.run("UPDATE t SET x = 6 WHERE id = 2");
        assert_eq!(b.fail("UPDATE t SET x = 6 WHERE id = 1").code, 1205, "{name}");
        assert_eq!(b.value("SELECT @@in_transaction"), "1", "{name}");
        b.run("COMMIT");
        a.run("ROLLBACK");
        assert_eq!(a.value("SELECT SUM(x) FROM t"), "6", "{name}");
    });
}

#[test]
fn commands_are_sent_before_answers_are_read() {
    everywhere("ahead", "", |place| {
        let mut client = place.login();
        for count in [2, 40] {
            let mut bytes = Vec::new();
            for number in 0..count {
                let sql = match number % 4 {
                    0 => format!("SELECT {number}"),
                    1 => format!("SET @a = {number}"),
                    2 => "SELECT @a".to_owned(),
                    _ => "SELECT nothing".to_owned(),
                };
                bytes.extend(message(command::QUERY, sql.as_bytes()));
            }
            client.send(&bytes).unwrap();
            for number in 0..count {
                client.sequence = 1;
                let answer = client.answer().unwrap();
                match number % 4 {
                    0 => assert_eq!(answer.value(), number.to_string(), "{}", place.name),
                    1 => assert_eq!(answer.letters(), "O", "{}", place.name),
                    2 => assert_eq!(answer.value(), (number - 1).to_string(), "{}", place.name),
                    _ => assert_eq!(code(answer.error()), 1054, "{}", place.name),
                }
            }
        }
        // Byte by byte, too.
        for byte in message(command::QUERY, b"SELECT 'slowly'") {
            client.send(&[byte]).unwrap();
        }
        client.sequence = 1;
        assert_eq!(client.answer().unwrap().value(), "slowly");
    });
}

#[test]
fn files_are_handed_over_only_where_that_is_allowed() {
    for (name, more, is_allowed) in
        [("files", "local_infile = true", true), ("no_files", "local_infile = false", false)]
    {
        everywhere(name, more, |place| {
            let asks = login(&place.database).with(capability::LOCAL_FILES);
            let mut client = place.login_as(&asks).unwrap();
            client.run("CREATE TABLE f (x INT, y TEXT)");
            let lines: String = (0..40_000).map(|number| format!("{number}\t'\n")).collect();
            let load = "LOAD DATA LOCAL INFILE 'from.csv' INTO TABLE f";
            for file in [lines.as_bytes(), b"", b"1\tone\n"] {
                client.file = Some(file.to_vec());
                let answer = client.query(load).unwrap();
                if is_allowed || place.fronted.is_none() {
                    let expected = lines_of(file);
                    assert_eq!(answer.ok().affected_rows, expected, "{}", place.name);
                } else {
                    let code = code(answer.error());
                    assert!([1148, 4166, 3948].contains(&code), "{}: {answer:?}", place.name);
                    assert!(client.files_asked.is_empty());
                }
                assert_eq!(client.value("SELECT 1"), "1", "{}", place.name);
                place.stir();
            }
            if is_allowed {
                let count = client.value("SELECT COUNT(*) FROM f");
                assert_eq!(count, "40001", "{}", place.name);
            }
        });
    }
}

fn lines_of(file: &[u8]) -> u64 {
    u64::try_from(file.iter().filter(|byte| **byte == b'\n').count()).unwrap()
}

/// Statements that are rejected without an effect on the connection.
#[test]
fn what_a_pooler_cannot_share_is_refused() {
    everywhere("refused", "", |place| {
        if place.fronted.is_none() {
            return;
        }
        let mut client = place.login();
        for command in [command::BINLOG_DUMP, command::REGISTER_SLAVE, 0x13, 0x14, 0x1D, 0x1E, 0x20]
        {
            let refused = client.simple(command, &[0; 20]).unwrap();
            let error = refused.expect_err("it was accepted");
            assert!([1047, 1235].contains(&error.code), "{}: {command}: {error}", place.name);
            assert_eq!(client.value("SELECT 1"), "1", "{}", place.name);
        }
    });
}

#[test]
fn passwords_are_checked() {
    everywhere("passwords", "", |place: &mut Place<'_>| {
        for (user, password, database) in [
            (USER, "pencils", place.database.as_str()),
            (USER, "", &place.database),
            ("nobody", PASSWORD, &place.database),
            ("nobody", "", &place.database),
            ("", "", &place.database),
        ] {
            let refused = place.login_as(&MyLogin::new(user, password, database));
            assert_eq!(refusal(refused), 1045, "{}: {user}", place.name);
        }
        let nowhere = place.login_as(&login("no_such_database"));
        assert!([1044, 1045, 1049].contains(&refusal(nowhere)), "{}", place.name);
        assert_eq!(place.login().value("SELECT CURRENT_USER()"), "ada@%", "{}", place.name);
    });
}
