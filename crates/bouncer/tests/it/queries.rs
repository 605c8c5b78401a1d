//! Everyday requests of clients: simple and extended queries, pipelines, COPY, rows of any size.

use api::PoolMode;
use testkit::{PgBatch, PgClient, Postgres};

use crate::support::{Pooler, tenant};

/// Runs `work` twice with each client: in both modes, over TCP and Unix sockets, with one thread
/// and with two.
fn check(work: impl Fn(&mut PgClient)) {
    let server = Postgres::shared();
    for threads in [1, 2] {
        let tenants = vec![
            tenant("session", &server, PoolMode::Session),
            tenant("transaction", &server, PoolMode::Transaction),
        ];
        let pooler = Pooler::start(threads, tenants);
        for mode in ["session", "transaction"] {
            for address in [pooler.tcp(), pooler.unix()] {
                let parameters = [("user", "app"), ("database", mode)];
                let mut client = PgClient::login(&address, &parameters, "").expect("log in");
                work(&mut client);
                work(&mut client);
                client.close();
            }
        }
    }
}

fn ask(client: &mut PgClient, batch: &PgBatch) -> testkit::PgAnswer {
    client.ask(batch).expect("an answer")
}

#[test]
fn simple_queries_are_answered() {
    check(|client| {
        assert_eq!(client.value("SELECT 6 * 7"), "42");
        let answer = client.run("SELECT 1; SELECT 2");
        assert_eq!(answer.letters(), "TDCTDCZ");
        assert_eq!(client.fail("SELECT 1 / 0").code(), "22012");
        assert_eq!(client.value("SELECT 1"), "1");
        assert_eq!(client.run("").letters(), "IZ");
        let text = format!("SELECT length('{}')", "x".repeat(300_000));
        assert_eq!(client.value(&text), "300000");
    });
}

#[test]
fn transactions_hold_their_server_connection() {
    check(|client| {
        client.run("BEGIN");
        assert_eq!(client.status, b'T');
        let one = client.value("SELECT txid_current()");
        assert_eq!(client.value("SELECT txid_current()"), one);
        client.run("SAVEPOINT a");
        assert_eq!(client.fail("SELECT 1 / 0").code(), "22012");
        assert_eq!(client.status, b'E');
        assert_eq!(client.fail("SELECT 1").code(), "25P02");
        client.run("ROLLBACK TO a");
        assert_eq!(client.value("SELECT txid_current()"), one);
        client.run("COMMIT");
        assert_eq!(client.status, b'I');
    });
}

#[test]
fn extended_queries_are_answered() {
    check(|client| {
        let batch = PgBatch::new().parse("", "SELECT $1::int + 1").bind("", "", &[Some("41")]);
        let answer = ask(client, &batch.describe(b'P', "").execute("", 0).sync());
        assert_eq!((answer.letters().as_str(), answer.value().as_str()), ("12TDCZ", "42"));

        let named = PgBatch::new().parse("s", "SELECT $1::int * 2").describe(b'S', "s").sync();
        assert_eq!(ask(client, &named).letters(), "1tTZ");
        for value in ["1", "21"] {
            let batch = PgBatch::new().bind("", "s", &[Some(value)]).execute("", 0).sync();
            let doubled = (2 * value.parse::<u32>().expect("a number")).to_string();
            assert_eq!(ask(client, &batch).value(), doubled);
        }
        let again = ask(client, &PgBatch::new().parse("s", "SELECT 1").sync());
        assert_eq!(again.error().expect("an error").code(), "42P05");
        assert_eq!(ask(client, &PgBatch::new().close(b'S', "s").sync()).letters(), "3Z");
        let gone = ask(client, &PgBatch::new().bind("", "s", &[None]).sync());
        assert_eq!(gone.error().expect("an error").code(), "26000");
    });
}

#[test]
fn pipelines_are_answered_in_order() {
    check(|client| {
        let mut batch = PgBatch::new();
        for number in 0..200 {
            let value = number.to_string();
            batch = batch.parse("", "SELECT $1::int").bind("", "", &[Some(&value)]);
            batch = batch.execute("", 0).sync();
        }
        client.send(&batch.0).expect("send");
        for number in 0..200 {
            let answer = client.answer().expect("an answer");
            assert_eq!(answer.value(), number.to_string());
        }
        // An error skips only the rest of its batch.
        let failing = PgBatch::new()
            .parse("", "SELECT 1 / $1::int")
            .bind("", "", &[Some("0")])
            .execute("", 0)
            .bind("", "", &[Some("1")])
            .execute("", 0)
            .sync()
            .query("SELECT 5")
            .bind("", "", &[Some("1")])
            .sync();
        client.send(&failing.0).expect("send");
        let first = client.answer().expect("an answer");
        assert_eq!(first.error().expect("an error").code(), "22012");
        assert_eq!(client.answer().expect("an answer").value(), "5");
        // A simple query drops the unnamed statement, also without a pooler.
        let last = client.answer().expect("an answer");
        assert_eq!(last.error().expect("an error").code(), "26000");
    });
}

#[test]
fn flush_brings_replies_before_the_end_of_a_batch() {
    check(|client| {
        let batch = PgBatch::new().parse("f", "SELECT 7").describe(b'S', "f").flush();
        client.send(&batch.0).expect("send");
        let tags: Vec<u8> = (0..3).map(|_| client.message().expect("a message").tag).collect();
        assert_eq!(tags, b"1tT");
        let rest = PgBatch::new().bind("", "f", &[]).execute("", 0).close(b'S', "f").sync();
        assert_eq!(ask(client, &rest).letters(), "2DC3Z");
    });
}

#[test]
fn data_is_copied_both_ways() {
    check(|client| {
        client.run("CREATE TABLE IF NOT EXISTS copied (number int, text text)");
        client.run("TRUNCATE copied");
        client.send(&PgBatch::new().query("COPY copied FROM STDIN").0).expect("send");
        assert_eq!(client.message().expect("a message").tag, b'G');
        let mut batch = PgBatch::new();
        for number in 0..10_000 {
            batch = batch.copy_data(format!("{number}\t{}\n", "x".repeat(50)).as_bytes());
        }
        assert_eq!(ask(client, &batch.copy_done()).tags(), ["COPY 10000"]);
        assert_eq!(client.value("SELECT count(*) FROM copied"), "10000");

        let out = client.run("COPY copied TO STDOUT");
        assert_eq!(out.messages.iter().filter(|message| message.tag == b'd').count(), 10_000);

        // A client that aborts, and one that sends more data after bad data.
        client.send(&PgBatch::new().query("COPY copied FROM STDIN").0).expect("send");
        let failed = ask(client, &PgBatch::new().copy_fail("no"));
        assert_eq!(failed.error().expect("an error").code(), "57014");
        let bad = PgBatch::new().query("COPY copied FROM STDIN").copy_data(b"not a number\n");
        let late = bad.copy_data(b"1\tx\n").copy_data(b"2\tx\n").copy_done();
        let failed = ask(client, &late);
        assert_eq!(failed.error().expect("an error").code(), "22P02");
        assert_eq!(client.value("SELECT count(*) FROM copied"), "10000");
    });
}
