//! The client against a real server.

use super::*;
use crate::Postgres;

fn login(server: &Postgres, user: &str, password: &str) -> Result<PgClient, PgFailure> {
    let parameters = [("user", user), ("database", "postgres")];
    PgClient::login(&server.address(), &parameters, password)
}

#[test]
fn it_speaks_both_protocols_and_copies_and_cancels() {
    let server = Postgres::shared();
    let mut client = login(&server, "postgres", "").unwrap();
    assert_eq!(client.value("SELECT 6 * 7"), "42");
    assert_eq!(client.fail("SELECT nothing").code(), "42703");
    let batch = PgBatch::new()
        .parse("", "SELECT $1::int + 1, $2::text")
        .describe(b'S', "")
        .bind("", "", &[Some("41"), None])
        .execute("", 0)
        .close(b'P', "")
        .sync();
    let answer = client.ask(&batch).unwrap();
    assert_eq!(answer.letters(), "1tT2DC3Z");
    assert_eq!(answer.rows(), [[Some("42".to_owned()), None]]);
    client.run("CREATE TEMP TABLE t (x int)");
    client.send(&PgBatch::new().query("COPY t FROM STDIN").0).unwrap();
    assert_eq!(client.message().unwrap().tag, b'G');
    let answer = client.ask(&PgBatch::new().copy_data(b"1\n2\n").copy_done()).unwrap();
    assert_eq!(answer.tags(), ["COPY 2"]);
    client.run("LISTEN c");
    client.run("NOTIFY c, 'hello'");
    let pid = client.pid;
    let expected = PgNotification { pid, channel: "c".to_owned(), payload: "hello".to_owned() };
    assert_eq!(client.notifications, [expected]);
    client.run("SET application_name = 'x'");
    assert_eq!(client.parameters["application_name"], "x");

    client.send(&PgBatch::new().query("SELECT pg_sleep(60)").0).unwrap();
    crate::until("the statement to run", Duration::from_secs(20), || {
        let state = server.sql(&format!(
            "SELECT wait_event FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep'"
        ));
        if state == "PgSleep" { Ok(()) } else { Err(state) }
    });
    let mut other = PgClient::open(&server.address()).unwrap();
    other.send(&cancel_request(client.pid, &client.key)).unwrap();
    assert!(other.end().0);
    assert_eq!(client.answer().unwrap().error().unwrap().code(), "57014");
    client.close();
}

#[test]
fn it_proves_that_it_knows_a_password() {
    let server = Postgres::start();
    server.sql("CREATE ROLE ada LOGIN PASSWORD 'pencil'");
    server.require("scram-sha-256");
    assert_eq!(login(&server, "ada", "pencil").unwrap().value("SELECT current_user"), "ada");
    let error = login(&server, "ada", "pen").unwrap_err();
    assert_eq!(error.error().unwrap().code(), "28P01");
}

#[test]
fn a_newer_server_gives_longer_keys_to_those_who_ask() {
    let server = Postgres::start_18(&[]);
    let parameters = [("user", "postgres"), ("database", "postgres")];
    for (version, length) in [(PROTOCOL_3_0, 4), (PROTOCOL_3_2, 32)] {
        let address = server.address();
        let mut client = PgClient::login_as(version, &address, &parameters, "").unwrap();
        assert_eq!((client.key.len(), client.negotiated.clone()), (length, None));
        assert!(client.value("SHOW server_version").starts_with("18."));
    }
}
