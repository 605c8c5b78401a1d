//! Settings of a real server: which it reports, accepts again, and resets.

use std::collections::BTreeSet;

use testkit::my::{MyClient, MyLogin, capability, command};
use testkit::{MariaDb, MyAnswer};
use wire::mysql::changes::{TrackedChange, changes};
use wire::mysql::sql::{self, AssignedValue};

use super::super::*;
use crate::mysql::dial::TRACK;

/// Makes the server report every change that it has not reported.
const FLUSH: &str = "SET session_track_schema=1";

fn connect(server: &MariaDb) -> MyClient {
    let login = MyLogin::new("root", "", "d").with(capability::CONNECT_WITH_DB);
    let mut client = MyClient::login(&server.address(), &login).unwrap();
    client.run(TRACK);
    client
}

fn start() -> MariaDb {
    let server = MariaDb::start();
    server.sql("CREATE DATABASE d; CREATE DATABASE other CHARACTER SET latin1");
    server
}

/// Returns the variables that an answer reports.
fn told(answer: &MyAnswer) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut told = Vec::new();
    for change in changes(&answer.ok().changes) {
        if let TrackedChange::Variable { name, value } = change.unwrap() {
            // Some are spelled differently than in the list.
            told.push((text(name).to_ascii_lowercase(), text(value)));
        }
    }
    told
}

/// Returns whether an answer reports a change of the session's state.
fn tells_state(answer: &MyAnswer) -> bool {
    changes(&answer.ok().changes).any(|change| matches!(change, Ok(TrackedChange::State(true))))
}

fn change(from: &MysqlSettings, to: &MysqlSettings) -> String {
    let mut out = Vec::new();
    from.write_change(to, &mut out);
    String::from_utf8(out).unwrap()
}

fn reset(client: &mut MyClient) {
    client.simple(command::RESET_CONNECTION, &[]).unwrap().unwrap();
}

/// Returns variables that a session may set here, with their values; some are NULL.
fn variables(client: &mut MyClient) -> Vec<(String, Option<String>)> {
    let names = "SELECT LOWER(variable_name) FROM information_schema.system_variables \
                 WHERE variable_scope IN ('SESSION', 'SESSION ONLY') AND read_only = 'NO' \
                 AND variable_name NOT LIKE 'session_track%' ORDER BY 1";
    let names: Vec<String> = client.run(names).rows().into_iter().flatten().flatten().collect();
    names
        .into_iter()
        .map(|name| {
            let row = client.run(&format!("SELECT @@SESSION.{name}")).rows().remove(0).remove(0);
            (name, row)
        })
        .collect()
}

#[test]
fn what_a_server_tells_of_a_variable_it_takes_back() {
    let server = start();
    let (mut one, mut other) = (connect(&server), connect(&server));
    // Variables of a session that it may not set.
    let refused = ["max_allowed_packet", "max_user_connections", "net_buffer_length"];
    let (mut untold, mut tried) = (BTreeSet::new(), 0);
    for (name, value) in variables(&mut one) {
        let answer = one.query(&format!("SET SESSION {name} = @@SESSION.{name}")).unwrap();
        if answer.error().is_some() {
            // Some variables cannot be set, or not to their current value.
            assert!(!is_replayable(&name) || value.is_none_or(|it| it.is_empty()), "{name}");
            continue;
        }
        assert!(!refused.contains(&name.as_str()), "{name}");
        let Some((_, value)) = told(&answer).into_iter().find(|(it, _)| *it == name) else {
            untold.insert(name);
            continue;
        };
        if !is_replayable(&name) {
            continue;
        }
        tried += 1;
        let (without, with) = (MysqlSettings::default(), MysqlSettings::of([(&*name, &*value)]));
        let again = told(&other.run(&change(&without, &with)));
        assert!(again.contains(&(name.clone(), value.clone())), "{name}={value}: {again:?}");
        let real = |client: &mut MyClient| client.run(&format!("SELECT @@SESSION.{name}")).rows();
        assert_eq!(real(&mut one), real(&mut other), "{name}");
        other.run(&change(&with, &without));
    }
    assert_eq!(untold, BTreeSet::new());
    assert!(tried > 120, "{tried}");
}

#[test]
fn a_replayed_session_is_like_the_first_one() {
    let server = start();
    server.sql(
        "CREATE PROCEDURE d.sets() BEGIN SET SESSION sort_buffer_size = 200704; SET @x = 1; END",
    );
    let texts = [
        "SET NAMES latin1",
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        "SET NAMES DEFAULT",
        "SET CHARACTER SET latin1",
        "SET character_set_results = NULL",
        "SET character_set_connection = cp1251",
        "SET collation_connection = latin1_bin",
        "SET collation_connection = utf8mb4_unicode_ci, character_set_connection = latin1",
        "SET character_set_connection = latin1, collation_connection = utf8mb4_unicode_ci",
        "SET sql_mode = 'ANSI'",
        "SET sql_mode = ''",
        "SET sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')",
        "SET time_zone = '+05:30'",
        "SET time_zone = DEFAULT",
        "SET autocommit = 0",
        "SET autocommit = 1",
        "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET SESSION TRANSACTION READ ONLY",
        "SET SESSION TRANSACTION READ WRITE",
        "SET max_statement_time = 2.5, lc_time_names = 'de_DE', wait_timeout = 77",
        "SET optimizer_switch = 'mrr=on'",
        "SET @@session.group_concat_max_len = 4096",
        "SET foreign_key_checks = OFF, unique_checks = 0",
        "CALL d.sets()",
        "USE other",
        "USE d",
    ];
    let compared = "SELECT @@character_set_client, @@character_set_connection, \
                    @@collation_connection, @@character_set_results, @@sql_mode, @@time_zone, \
                    @@autocommit, @@tx_isolation, @@tx_read_only, @@max_statement_time, \
                    @@lc_time_names, @@wait_timeout, @@optimizer_switch, @@group_concat_max_len, \
                    @@foreign_key_checks, @@unique_checks, @@sort_buffer_size, DATABASE()";
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut replayed = connect(&server);
    let mut applied = start_settings();
    for _ in 0..40 {
        let mut first = connect(&server);
        let mut settings = start_settings();
        for _ in 0..8 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let text = texts[usize::try_from(seed % 26).unwrap()];
            run(&mut first, &mut settings, text);
        }
        if let Some(schema) = applied.schema_change(&settings) {
            replayed.simple(command::INIT_DB, schema.as_bytes()).unwrap().unwrap();
        }
        let text = change(&applied, &settings);
        if !text.is_empty() {
            replayed.run(&text);
        }
        applied = settings;
        assert_eq!(first.run(compared).rows(), replayed.run(compared).rows(), "{text}");
    }
}

/// Returns the settings of a session from [`connect`].
fn start_settings() -> MysqlSettings {
    let mut settings = MysqlSettings::default();
    settings.put_collation(45);
    let _kept = settings.put_schema("d");
    settings
}

/// Runs a text, and records the reports.
fn run(client: &mut MyClient, settings: &mut MysqlSettings, text: &str) {
    let answer = client.run(text);
    let details = sql::details(text.as_bytes(), settings.mode());
    let collation = details.assignments.iter().rev().find_map(|it| match &it.value {
        AssignedValue::Literal(value) if it.name == COLLATION_CONNECTION => Some(value.as_str()),
        _ => None,
    });
    let names = text.starts_with("SET NAMES");
    let told = told(&answer);
    let told = told.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    assert_eq!(settings.told(told, collation.filter(|_| names)), SettingChange::Kept, "{text}");
    for change in changes(&answer.ok().changes) {
        if let Ok(TrackedChange::Schema(name)) = change {
            let _kept = settings.put_schema(std::str::from_utf8(name).unwrap());
        }
    }
}

/// Changes that the trackers do not report, or report late: they must be derived from the text, or
/// queried.
#[test]
fn what_a_server_does_not_tell() {
    let server = start();
    server.sql(
        "CREATE TABLE d.t (a INT PRIMARY KEY AUTO_INCREMENT, b INT); \
         CREATE FUNCTION d.f() RETURNS INT BEGIN SET @f = 1; RETURN 1; END; \
         CREATE FUNCTION d.l() RETURNS INT RETURN GET_LOCK('l', 0); \
         CREATE PROCEDURE d.fails() BEGIN SET SESSION sort_buffer_size = 200704; \
         SIGNAL SQLSTATE '45000'; END"
            .replace("; \n", ";")
            .as_str(),
    );
    let mut client = connect(&server);
    // A user variable is reported only if `SET` assigns it, in the text or in a function.
    assert!(tells_state(&client.run("SET @a = 1")));
    assert!(tells_state(&client.run("SELECT f()")));
    assert!(!tells_state(&client.run("SELECT @b := 1")));
    for silent in [
        "SELECT GET_LOCK('a', 0)",
        "SELECT l()",
        "HANDLER t OPEN",
        "HANDLER t CLOSE",
        "FLUSH TABLES WITH READ LOCK",
        "UNLOCK TABLES",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SELECT LAST_INSERT_ID(7)",
    ] {
        let answer = client.run(silent);
        assert!(told(&answer).is_empty() && !tells_state(&answer), "{silent}");
    }
    // Changes of a statement before it failed are reported with the next change of any statement.
    let variable = ("sort_buffer_size".to_owned(), "200704".to_owned());
    let _error = client.fail("CALL fails()");
    assert!(told(&client.run("DO 1")).is_empty());
    assert!(told(&client.run("SELECT 1")).is_empty());
    assert!(told(&client.run(FLUSH)).contains(&variable));
    // A value for one statement is reported, and the restored one with the next change.
    let for_one = told(&client.run("SET STATEMENT sort_buffer_size = 300000 FOR SELECT 1"));
    assert!(for_one.iter().any(|(name, value)| name == "sort_buffer_size" && *value == "300000"));
    assert!(told(&client.run("DO 1")).is_empty());
    assert!(told(&client.run(FLUSH)).contains(&variable));
    // `DEFAULT` of a variable without a default is reported with the former value.
    client.run("SET timestamp = 5");
    let told_then = told(&client.run("SET timestamp = DEFAULT"));
    assert_eq!(told_then, [("timestamp".to_owned(), "5.000000".to_owned())]);
    // The id of a row is reported even if it is explicit; `LAST_INSERT_ID` has only generated ones.
    assert_eq!(client.run("INSERT INTO t (b) VALUES (1)").ok().last_insert_id, 1);
    assert_eq!(client.run("INSERT INTO t (a, b) VALUES (50, 1)").ok().last_insert_id, 50);
    assert_eq!(client.value("SELECT LAST_INSERT_ID()"), "1");
    // The server's own mode can be queried by setting it.
    let own = told(&client.run("SET sql_mode = @@sql_mode"));
    assert_eq!(own[0].0, "sql_mode");
}

#[test]
fn what_a_reset_brings_back() {
    let server = start();
    server.sql(
        "CREATE TABLE d.t (a INT); CREATE SEQUENCE d.s; CREATE ROLE r; GRANT r TO root@'127.0.0.1'",
    );
    let mut other = connect(&server);
    let mut client = connect(&server);
    // Locks of every kind.
    other.run("SET lock_wait_timeout = 1");
    for (locks, waits) in [
        ("SELECT GET_LOCK('a', 0)", "SELECT 1 DIV (GET_LOCK('a', 0) = 1)"),
        ("LOCK TABLES t WRITE", "INSERT INTO t VALUES (1)"),
        ("FLUSH TABLES WITH READ LOCK", "INSERT INTO t VALUES (1)"),
        ("BACKUP STAGE START", "BACKUP STAGE START"),
        ("BACKUP LOCK t", "ALTER TABLE t COMMENT 'x'"),
    ] {
        client.run(locks);
        reset(&mut client);
        other.run(waits);
        other.run("DO RELEASE_ALL_LOCKS()");
        let _ended = other.query("BACKUP STAGE END").unwrap();
    }
    // All other state of a session.
    let statement = client.prepare("SELECT 1").unwrap();
    for text in [
        "SET @u = 1",
        "CREATE TEMPORARY TABLE tmp (a INT)",
        "PREPARE p FROM 'SELECT 1'",
        "HANDLER t OPEN AS h",
        "SELECT NEXTVAL(s)",
        "SET NAMES latin1, sql_mode = 'ANSI', timestamp = 5, autocommit = 0, sql_log_bin = 0",
        "SET last_insert_id = 7, pseudo_thread_id = 9",
        "USE other",
        "SET ROLE r",
        "INSERT INTO d.t VALUES (1)",
        "SET TRANSACTION READ ONLY",
    ] {
        // The last one is refused inside of a transaction.
        let answer = client.query(text).unwrap();
        assert!(answer.error().is_none_or(|error| error.code == 1568), "{text}: {answer:?}");
    }
    reset(&mut client);
    let left = "SELECT @u, @@autocommit, @@sql_log_bin, LAST_INSERT_ID(), @@character_set_client, \
                @@collation_connection, @@timestamp > 6, @@sql_mode = @@GLOBAL.sql_mode, \
                @@pseudo_thread_id = CONNECTION_ID(), LASTVAL(d.s), @@in_transaction";
    let wanted = [
        None,
        Some("1"),
        Some("1"),
        Some("0"),
        Some("utf8mb4"),
        Some("utf8mb4_general_ci"),
        Some("1"),
        Some("1"),
        Some("1"),
        None,
        Some("0"),
    ];
    let row = client.run(left).rows().remove(0);
    assert_eq!(row.iter().map(Option::as_deref).collect::<Vec<_>>(), wanted);
    assert_eq!(client.fail("SELECT * FROM tmp").code, 1146);
    assert_eq!(client.fail("EXECUTE p").code, 1243);
    assert_eq!(client.fail("HANDLER h READ FIRST").code, 1109);
    let executed = client.execute(&statement, &[]).unwrap();
    assert_eq!(executed.error().unwrap().code, 1243);
    // Trackers have to be enabled again, and the session keeps the following state.
    assert!(told(&client.run("SET sort_buffer_size = 200704")).is_empty());
    assert_eq!(client.value("SELECT DATABASE()"), "other");
    assert_eq!(client.value("SELECT CURRENT_ROLE()"), "r");
}

#[test]
fn a_reset_ends_what_a_transaction_is_to_be() {
    let server = start();
    server.sql("CREATE TABLE d.t (a INT) ENGINE = InnoDB");
    let mut client = connect(&server);
    client.run("SET TRANSACTION READ ONLY");
    reset(&mut client);
    client.run("INSERT INTO t VALUES (1)");
    client.run("XA START 'x'");
    client.run("INSERT INTO t VALUES (2)");
    reset(&mut client);
    assert_eq!(client.value("SELECT COUNT(*) FROM t"), "1");
    // A prepared transaction can be ended by any session.
    for text in ["XA START 'y'", "INSERT INTO t VALUES (3)", "XA END 'y'", "XA PREPARE 'y'"] {
        client.run(text);
    }
    reset(&mut client);
    assert_eq!(client.run("XA RECOVER").rows().len(), 1);
    client.run("XA ROLLBACK 'y'");
}
