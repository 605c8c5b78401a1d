//! The client against a real server.

use super::*;
use crate::MariaDb;

/// A server with a user and a database.
fn server() -> MariaDb {
    let server = MariaDb::start();
    server.user("ada", "pencil");
    server.sql("CREATE DATABASE kit");
    server
}

fn texts(rows: &MyRows) -> Vec<String> {
    let values = rows.texts().into_iter().flatten();
    values.map(|value| value.unwrap_or_else(|| "NULL".to_owned())).collect()
}

fn check(client: &mut MyClient) {
    assert_eq!(client.value("SELECT 6 * 7"), "42");
    assert_eq!(client.fail("SELECT nothing").code, 1054);
    let answer = client.run("SELECT 1; DO 2; SELECT '', NULL");
    assert_eq!(answer.letters(), "ROR");
    assert_eq!(answer.rows()[1], [Some(String::new()), None]);
    client.run("CREATE TEMPORARY TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, x LONGTEXT)");
    let ok = client.run("INSERT INTO t (x) VALUES ('a'), ('b')").ok().clone();
    assert_eq!((ok.affected_rows, ok.last_insert_id), (2, 1));

    let sql = "SELECT ? + 1, ?, ?, 1.5e0, x FROM t ORDER BY id";
    let statement = client.prepare(sql).unwrap();
    assert_eq!((statement.parameters, statement.columns), (3, 5));
    let values = [MyValue::Int(-42), MyValue::Null, MyValue::Text("text")];
    let answer = client.execute(&statement, &values).unwrap();
    let row = |x: &str| ["-41", "", "text", "1.5", x].map(str::to_owned);
    let seen: Vec<Vec<String>> = answer
        .rows()
        .iter()
        .map(|row| row.iter().map(|it| it.clone().unwrap_or_default()).collect())
        .collect();
    assert_eq!(seen, [row("a"), row("b")]);
    client.close_statement(statement.id).unwrap();
    let gone = client.execute(&statement, &values).unwrap().error();
    assert_eq!(gone.map(|error| error.code), Some(1243));
    assert!(client.prepare("SELECT nothing").is_err_and(|failure| failure.error().is_some()));

    let statement = client.prepare("SELECT LENGTH(?)").unwrap();
    for piece in ["long", " ", "data"] {
        client.long_data(statement.id, 0, piece.as_bytes()).unwrap();
    }
    assert_eq!(client.execute(&statement, &[MyValue::Long]).unwrap().value(), "9");

    let statement = client.prepare("SELECT id FROM t").unwrap();
    client.command(command::STMT_EXECUTE, &execute(statement.id, 1, &[], true)).unwrap();
    let opened = client.binary_answer().unwrap();
    assert_ne!(opened.ok().status & status::CURSOR_EXISTS, 0);
    let MyResult::Rows(rows) = &opened.results[0] else { panic!("{opened:?}") };
    let first = client.fetch(statement.id, &rows.columns, 1).unwrap().unwrap();
    let rest = client.fetch(statement.id, &rows.columns, 9).unwrap().unwrap();
    assert_eq!((texts(&first), texts(&rest)), (vec!["1".to_owned()], vec!["2".to_owned()]));
    assert_ne!(rest.end.unwrap().status & status::LAST_ROW_SENT, 0);

    // Longer than a packet, and as long as two packets.
    for length in [PACKET_BYTES_MAX + 10, 2 * PACKET_BYTES_MAX - 5] {
        let sql = format!("SELECT REPEAT('x', {length}), 'behind'");
        let row = client.run(&sql).rows().remove(0);
        assert_eq!(row[0].as_deref().map(str::len), Some(length));
        assert_eq!(row[1].as_deref(), Some("behind"));
    }
    let long = "y".repeat(PACKET_BYTES_MAX + 77);
    assert_eq!(client.value(&format!("SELECT LENGTH('{long}')")), long.len().to_string());

    assert!(client.statistics().unwrap().contains("Uptime"));
    assert_eq!(client.field_list("t").unwrap(), ["id", "x"]);
    assert!(client.simple(command::PING, &[]).unwrap().is_ok());
    assert!(client.simple(command::INIT_DB, b"mysql").unwrap().is_ok());
    assert!(client.simple(command::INIT_DB, b"nowhere").unwrap().is_err());
    assert!(client.simple(command::RESET_CONNECTION, &[]).unwrap().is_ok());
    assert_eq!(client.fail("SELECT * FROM t").code, 1146);
}

#[test]
fn it_speaks_the_protocol_in_every_form() {
    let server = server();
    let login = MyLogin::new("ada", "pencil", "kit");
    for login in [
        login.clone(),
        login.clone().without(capability::DEPRECATE_EOF),
        login.clone().without(capability::SESSION_TRACK),
        login.clone().without(capability::DEPRECATE_EOF | capability::SESSION_TRACK),
        login.clone().attribute("program_name", "kit"),
    ] {
        let mut client = MyClient::login(&server.address(), &login).unwrap();
        check(&mut client);
        client.close();
    }
    let wrong = MyLogin::new("ada", "pencils", "kit");
    let refused = MyClient::login(&server.address(), &wrong).unwrap_err();
    assert_eq!(refused.error().map(|error| error.code), Some(1045), "{refused}");
    server.user("grace", "");
    let mut client = MyClient::login(&server.address(), &login).unwrap();
    client.change_user(&MyLogin::new("grace", "", "mysql")).unwrap();
    assert_eq!(client.value("SELECT CURRENT_USER()"), "grace@%");
    client.change_user(&login).unwrap();
    assert_eq!(client.value("SELECT DATABASE()"), "kit");
    // MariaDB keeps the old login if the change fails.
    assert!(client.change_user(&wrong).is_err());
    assert_eq!(client.value("SELECT DATABASE()"), "kit");
}

#[test]
fn it_hands_a_file_over_when_it_is_asked() {
    let server = server();
    let login = MyLogin::new("ada", "pencil", "kit").with(capability::LOCAL_FILES);
    let mut client = MyClient::login(&server.address(), &login).unwrap();
    client.run("CREATE TABLE f (x INT)");
    client.file = Some(b"1\n2\n".to_vec());
    let answer = client.run("LOAD DATA LOCAL INFILE 'some' INTO TABLE f");
    assert_eq!(
        (answer.ok().affected_rows, client.files_asked.as_slice()),
        (2, &["some".to_owned()][..])
    );
    server.kill_connections();
    let (is_over, _) = client.end();
    assert!(is_over);
}
