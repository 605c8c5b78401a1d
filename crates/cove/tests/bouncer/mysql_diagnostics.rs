//! Diagnostics of a client's last statement are returned to that client only: its insert id,
//! warnings and row counts. All clients share one server connection.

use std::fs;

use testkit::MyClient;

use crate::mysql_places::directly;
use crate::mysql_support::{Fronted, behind, front, shared_maria};

/// Tables, views, routines and triggers of each database.
const SCHEMA: &[&str] = &[
    "CREATE TABLE ids (id INT AUTO_INCREMENT PRIMARY KEY, u INT UNIQUE, w VARCHAR(60))",
    "CREATE TABLE plain (a INT, w VARCHAR(60))",
    "INSERT INTO plain VALUES (1, 'x')",
    "CREATE TABLE parents (p BIGINT UNSIGNED, u INT)",
    "CREATE VIEW gives AS SELECT LAST_INSERT_ID(4711) AS id",
    "CREATE VIEW shows_id AS SELECT LAST_INSERT_ID() AS id",
    "CREATE TRIGGER child BEFORE INSERT ON parents FOR EACH ROW SET NEW.p = LAST_INSERT_ID()",
    "CREATE TRIGGER inserts AFTER UPDATE ON plain FOR EACH ROW INSERT INTO ids (w) VALUES ('t')",
    "CREATE PROCEDURE gives_id() INSERT INTO ids (w) VALUES ('p')",
    "CREATE PROCEDURE fails() BEGIN INSERT INTO ids (w) VALUES ('f'); SIGNAL SQLSTATE '45000'; END",
    "CREATE FUNCTION f_inserts() RETURNS INT BEGIN INSERT INTO ids (w) VALUES ('f'); \
     RETURN LAST_INSERT_ID(); END",
    "CREATE FUNCTION f_gives() RETURNS INT RETURN LAST_INSERT_ID(4712)",
    "INSERT INTO ids (id, u, w) VALUES (90, 1, 'taken')",
];

/// Statements that may set a session's insert id, reported or not. `FILE` is a file of two rows.
const STATEMENTS: &[&str] = &[
    "SELECT 1",
    "INSERT INTO ids (w) VALUES ('one')",
    "INSERT INTO ids (w) VALUES ('one'), ('two'), ('three')",
    "INSERT INTO ids (id, w) VALUES (NULL, 'null'), (0, 'zero')",
    "INSERT INTO ids (id) SELECT MAX(id) + 5 FROM ids",
    "INSERT INTO ids SET w = 'set'",
    "INSERT INTO ids (w) SELECT w FROM plain",
    "INSERT INTO ids (w) SELECT w FROM plain WHERE a = 99",
    "INSERT INTO plain VALUES (5, 'no number')",
    "INSERT INTO ids (u) VALUES (1)",
    "INSERT INTO ids (w, u) VALUES ('first', NULL), ('second', 1)",
    "INSERT IGNORE INTO ids (u) VALUES (1)",
    "INSERT IGNORE INTO ids (w, u) VALUES ('first', NULL), ('second', 1)",
    "INSERT INTO ids (u) VALUES (1) ON DUPLICATE KEY UPDATE w = 'again'",
    "INSERT INTO ids (u) VALUES (1) ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id), w = 'mine'",
    "INSERT INTO ids (w) VALUES ('returned') RETURNING id",
    "INSERT INTO ids (w, u) VALUES ('returned', NULL), ('fails', 1) RETURNING id",
    "REPLACE INTO ids (w) VALUES ('replaced')",
    "REPLACE INTO ids (id, w) VALUES (90, 'given')",
    "REPLACE INTO ids (u, w) VALUES (1, 'anew') RETURNING id, w",
    "LOAD DATA INFILE 'FILE' INTO TABLE ids (w)",
    "LOAD DATA INFILE 'FILE' INTO TABLE ids (w) SET u = 1",
    "SET STATEMENT max_statement_time = 0.05 FOR INSERT INTO ids (w) SELECT SLEEP(seq - 1) \
     FROM seq_1_to_40",
    "UPDATE plain SET a = a + 1",
    "UPDATE plain SET a = LAST_INSERT_ID(a + 1)",
    "DELETE FROM plain WHERE a = LAST_INSERT_ID(99)",
    "SELECT LAST_INSERT_ID(33)",
    "SELECT LAST_INSERT_ID(0)",
    "DO LAST_INSERT_ID(34)",
    "SELECT f_inserts() > 0",
    "SELECT f_gives()",
    "CALL gives_id()",
    "CALL fails()",
    "CREATE OR REPLACE TABLE made (id INT AUTO_INCREMENT PRIMARY KEY) SELECT 'x' AS x",
    "CREATE OR REPLACE TABLE made (id INT AUTO_INCREMENT PRIMARY KEY)",
    "ALTER TABLE made ADD x INT",
    "EXECUTE IMMEDIATE 'INSERT INTO ids (w) VALUES (''immediate'')'",
    "EXECUTE IMMEDIATE CONCAT('SELECT LAST_', 'INSERT_ID(35)')",
    "INSERT INTO ids (w) VALUES ('a'); INSERT INTO plain VALUES (7, 'b')",
    "INSERT INTO ids (w) VALUES ('a'); SELECT nothing",
    "SELECT 1; INSERT INTO ids (w, u) VALUES ('a', NULL), ('b', 1)",
    "BEGIN NOT ATOMIC INSERT INTO ids (w) VALUES ('block'); END",
    "BEGIN; INSERT INTO ids (w) VALUES ('taken back'); ROLLBACK",
    "BEGIN; SELECT a FROM plain; UPDATE plain SET a = 3; INSERT INTO ids (w) VALUES ('c'); COMMIT",
    "ANALYZE INSERT INTO ids (w) VALUES ('analyzed')",
    "INSERT INTO parents (u) VALUES (1)",
];

/// Starts Cove with one server connection, and creates a database for direct clients.
fn stage(name: &str) -> (Fronted, String) {
    let direct = format!("{name}_direct");
    let fronted = front(shared_maria(), "", &[behind(name, "transaction", 1)]);
    fronted.maria.sql(&format!("CREATE DATABASE {direct}"));
    for database in [name, &direct] {
        let mut client = directly(&fronted.maria, database);
        for sql in SCHEMA {
            client.run(sql);
        }
    }
    (fronted, direct)
}

/// Formats the values of all rows, `!` with the number of an error, and the id of an OK packet.
fn answer_text(answer: &testkit::MyAnswer) -> String {
    if let Some(error) = answer.error() {
        return format!("!{}", error.code);
    }
    let value = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
    let rows = answer.rows().into_iter().flatten().map(value).collect::<Vec<_>>().join("|");
    let letters = answer.letters();
    if letters == "O" { format!("id {}", answer.ok().last_insert_id) } else { rows }
}

fn runs(client: &mut MyClient, sql: &str, is_prepared: bool) -> String {
    if !is_prepared {
        return answer_text(&client.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}")));
    }
    match client.prepare(sql) {
        Ok(statement) => answer_text(&client.execute(&statement, &[]).unwrap()),
        Err(error) => {
            format!("!{}", error.error().unwrap_or_else(|| panic!("{sql}: {error}")).code)
        }
    }
}

/// Runs each statement between those of clients with other insert ids: all results equal those on
/// unshared connections.
fn check_ids(name: &str, reads_before: bool) {
    const ASK: &str = "SELECT LAST_INSERT_ID(), @@last_insert_id, @@identity";
    const INSERT: &str = "INSERT INTO ids (w) VALUES ('own')";
    let (fronted, direct) = stage(name);
    let file = fronted.maria.directory().join(format!("{name}.rows"));
    fs::write(&file, "loaded\nloaded too\n").unwrap();
    let file = file.display().to_string();
    let prepared_too = STATEMENTS.iter().flat_map(|sql| [(sql, false), (sql, true)]);
    for (sql, is_prepared) in prepared_too {
        let sql = sql.replace("FILE", &file);
        let mut shared = ["a", "b", "c"].map(|who| (who, fronted.login(name)));
        let mut alone = shared.each_ref().map(|(who, _)| (*who, directly(&fronted.maria, &direct)));
        let mut step = |who: usize, text: &str, is_prepared: bool| {
            let seen = runs(&mut shared[who].1, text, is_prepared);
            let expected = runs(&mut alone[who].1, text, is_prepared);
            let letter = alone[who].0;
            assert_eq!(seen, expected, "{letter} around {sql:?} ({is_prepared}): {text}");
        };
        let before: &[usize] = if reads_before { &[0, 1, 2] } else { &[] };
        before.iter().for_each(|who| step(*who, ASK, false));
        step(0, INSERT, false);
        step(1, &sql, is_prepared);
        // A trigger reads it without a trace in the statement's text, and must get the inserting
        // client's id.
        step(0, "INSERT INTO parents (u) VALUES (2)", false);
        step(2, "SELECT id FROM shows_id", false);
        step(0, ASK, false);
        step(1, ASK, true);
        step(2, ASK, false);
        step(0, "SELECT w FROM ids WHERE id = LAST_INSERT_ID()", false);
        step(2, "SELECT COUNT(*), SUM(p), (SELECT SUM(id) FROM ids) FROM parents", false);
        // An open transaction would hold locks that other clients wait for.
        step(1, "ROLLBACK", false);
    }
    fs::remove_file(file).unwrap();
}

#[test]
fn the_id_of_an_insert_is_known_to_its_client_alone() {
    check_ids("ids", true);
}

#[test]
fn the_id_of_an_insert_is_known_to_a_client_that_asks_for_the_first_time() {
    check_ids("first_ids", false);
}

/// An insert id that a view sets must stay with its session.
#[test]
fn the_id_that_a_view_gives_is_not_met_by_others() {
    let (fronted, _direct) = stage("view_ids");
    let (mut a, mut b) = (fronted.login("view_ids"), fronted.login("view_ids"));
    for _ in 0..3 {
        assert_eq!(a.value("SELECT id FROM gives"), "4711");
        assert_eq!(b.value("SELECT LAST_INSERT_ID()"), "0");
        assert_eq!(a.value("SELECT id FROM gives"), "4711");
        assert_eq!(b.value("SELECT f_inserts() - LAST_INSERT_ID() > 0"), "1");
    }
}

/// Variants of questions about the last statement that the bouncer does not answer itself.
#[test]
fn nobody_is_told_of_the_statement_of_another_client() {
    const SECRET: &str = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'secret'";
    let (fronted, _direct) = stage("told");
    fronted.maria.sql(
        "CREATE PROCEDURE told.reads_all() BEGIN \
         DECLARE n INT DEFAULT ROW_COUNT(); DECLARE m TEXT DEFAULT ''; \
         GET DIAGNOSTICS CONDITION 1 m = MESSAGE_TEXT; SELECT n, m; END",
    );
    for leaves in [SECRET, "UPDATE ids SET w = CONCAT('secret', id)", "SELECT seq FROM seq_1_to_77"]
    {
        for (sql, expected) in [
            ("SELECT ROW_COUNT() + 0", "-1"),
            ("SELECT FOUND_ROWS() + 0", "1"),
            ("SELECT @@warning_count + @@error_count", "0"),
            ("SHOW WARNINGS; SELECT 1", "1"),
            ("EXECUTE IMMEDIATE 'SHOW WARNINGS'", ""),
            ("EXECUTE IMMEDIATE 'SELECT ROW_COUNT()'", "-1"),
            ("GET DIAGNOSTICS CONDITION 1 @m = MESSAGE_TEXT", "!1758"),
            ("CALL reads_all()", "-1|"),
            ("BEGIN; SHOW WARNINGS; COMMIT", ""),
        ] {
            for (begins, is_prepared) in [(false, false), (true, false), (false, true)] {
                let (mut a, mut b) = (fronted.login("told"), fronted.login("told"));
                a.run("UPDATE ids SET w = id");
                drop(a.query(leaves).unwrap());
                if begins {
                    b.run("BEGIN");
                }
                let seen = runs(&mut b, sql, is_prepared);
                let is_right = seen == expected
                    || (is_prepared && seen.starts_with('!'))
                    || ["0", "0|"].contains(&seen.as_str())
                    || (expected == "!1758" && seen.starts_with("id"));
                assert!(is_right, "behind {leaves}, {begins}, {is_prepared}: {sql}: {seen}");
                let left = b.query("SELECT @m").unwrap();
                assert!(!answer_text(&left).contains("secret"), "behind {leaves}: {sql}");
            }
        }
    }
}

/// The server records statements for `SHOW PROFILES`, and a reset does not clear the record.
#[test]
fn statements_that_were_recorded_are_shown_to_nobody_else() {
    let (fronted, _direct) = stage("recorded");
    for (starts, ends, asks) in [
        ("SET profiling = 1", "SET profiling = DEFAULT", "SHOW PROFILES"),
        ("SET SESSION profiling = ON", "SET profiling = OFF", "SHOW PROFILES"),
        (
            "SET optimizer_trace = 'enabled=on'",
            "SET optimizer_trace = DEFAULT",
            "SELECT query FROM information_schema.optimizer_trace",
        ),
    ] {
        let mut a = fronted.login("recorded");
        a.run(starts);
        a.run("SELECT w FROM plain WHERE w = 'secret'");
        a.run(ends);
        assert!(answer_text(&a.run(asks)).contains("secret"), "{starts}");
        a.close();
        let mut b = fronted.login("recorded");
        assert_eq!(answer_text(&b.run(asks)), "", "{starts}");
    }
}
