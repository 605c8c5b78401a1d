//! Ends of sessions and statements: by cancel requests, by time limits, by a server that stops.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};

use api::{PoolMode, TenantLimitsSpec, TenantSpec};
use bouncer::relay::orders::ThreadCommand;
use bouncer::relay::snapshot::ClientState;
use bouncer::service::RelayThreads;
use parking_lot::Mutex;
use testkit::pg::{cancel_request, startup};
use testkit::{PgBatch, PgClient, Postgres};

use crate::support::{Pooler, limited, tenant, until};

fn cancel(pooler: &Pooler, pid: u32, key: &[u8]) {
    let mut canceller = PgClient::open(&pooler.tcp()).expect("connect");
    canceller.send(&cancel_request(pid, key)).expect("send");
    assert!(canceller.end().0, "the connection of a cancel request stays open");
}

fn wait_for(pooler: &Pooler, pid: u32, state: ClientState) {
    until(&format!("client {pid} is {state:?}"), || {
        let snapshots = pooler.snapshots();
        let mut clients = snapshots.iter().flat_map(|snapshot| &snapshot.clients);
        clients.any(|client| client.pid == pid && client.state == state).then_some(())
    });
}

/// Waits until a server process runs a text that contains `part`.
fn wait_running(server: &Postgres, part: &str) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%{part}%' \
         AND pid <> pg_backend_pid()"
    );
    until(&format!("{part} runs"), || (server.sql(&sql) != "0").then_some(()));
}

#[test]
fn a_cancel_request_reaches_the_statement_that_is_meant() {
    let server = Postgres::shared();
    for (threads, mode) in
        [(1, PoolMode::Transaction), (2, PoolMode::Transaction), (2, PoolMode::Session)]
    {
        let pooler = Pooler::start(threads, vec![tenant("t", &server, mode)]);
        let (mut client, mut other) = (pooler.client("t"), pooler.client("t"));
        client.send(&PgBatch::new().query("SELECT pg_sleep(60), 'meant'").0).expect("send");
        wait_running(&server, "meant");
        // A wrong key, and the right key of another client.
        let mut wrong = client.key.clone();
        wrong[0] ^= 1;
        cancel(&pooler, client.pid, &wrong);
        cancel(&pooler, client.pid, &other.key);
        cancel(&pooler, other.pid, &other.key);
        wait_running(&server, "meant");
        cancel(&pooler, client.pid, &client.key);
        let answer = client.answer().expect("an answer");
        assert_eq!(answer.error().expect("an error").code(), "57014");
        assert_eq!(client.value("SELECT 1"), "1");
        // Nothing runs, so nothing is cancelled.
        cancel(&pooler, client.pid, &client.key);
        for _ in 0..20 {
            assert_eq!(other.value("SELECT 2"), "2");
            assert_eq!(client.value("SELECT 3"), "3");
        }
    }
}

/// A path to a server on which cancel requests arrive twice: at once, and when the test triggers
/// it. Their connection ends after the second.
fn signals_twice(server: SocketAddr) -> (SocketAddr, mpsc::Sender<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let (again, told) = mpsc::channel();
    let told = Arc::new(Mutex::new(told));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, told) = (client.expect("accept"), Arc::clone(&told));
            std::thread::spawn(move || pass_on(client, server, &told));
        }
    });
    (address, again)
}

fn pass_on(mut client: TcpStream, server: SocketAddr, told: &Mutex<mpsc::Receiver<()>>) {
    let connect = || TcpStream::connect(server).expect("connect");
    let mut first = vec![0; 8];
    client.read_exact(&mut first).expect("read");
    let mut there = connect();
    if cancel_request(0, &[0; 4]).starts_with(&first) {
        first.resize(16, 0);
        client.read_exact(&mut first[8..]).expect("the key");
        there.write_all(&first).expect("write");
        there.read_to_end(&mut Vec::new()).expect("the end of the first");
        told.lock().recv().expect("a word");
        let mut again = connect();
        again.write_all(&first).expect("write");
        again.read_to_end(&mut Vec::new()).expect("the end of the second");
        return;
    }
    there.write_all(&first).expect("write");
    let (mut from, mut to) =
        (client.try_clone().expect("clone"), there.try_clone().expect("clone"));
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    std::io::copy(&mut there, &mut client).expect("what the server says");
}

#[test]
fn what_follows_a_cancelled_statement_waits_until_the_server_is_done_with_the_request() {
    let server = Postgres::shared();
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let (address, again) = signals_twice(server.tcp());
        let spec = TenantSpec { server: address.to_string(), ..tenant("t", &server, mode) };
        let pooler = Pooler::start(1, vec![spec]);
        let mut client = pooler.client("t");
        let meant = PgBatch::new().query("SELECT pg_sleep(60), 'meant twice'");
        // In a transaction the server connection stays with the client in both modes.
        client.run("BEGIN");
        client.send(&meant.0).expect("send");
        wait_running(&server, "meant twice");
        cancel(&pooler, client.pid, &client.key);
        let code = client.answer().expect("an answer").error().expect("an error").code().to_owned();
        assert_eq!(code, "57014");

        let next = PgBatch::new().query("ROLLBACK; SELECT pg_sleep(0.2), 'the next one'");
        client.send(&next.0).expect("send");
        let runs = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%the next%one%' \
            AND state = 'active' AND pid <> pg_backend_pid()";
        // Long enough for a statement that does not wait.
        let began = (0..20).any(|_| pooler.client("t").value(runs) != "0");
        again.send(()).expect("the way to the server");
        assert!(!began, "a statement runs while the signal for another one is on its way");
        assert_eq!(client.answer().expect("an answer").error(), None);
        assert_eq!(client.value("SELECT 1"), "1");
    }
}

#[test]
fn a_cancel_request_takes_a_client_out_of_the_queue() {
    let server = Postgres::shared();
    let one = TenantLimitsSpec { server_connections_max: Some(1), ..Default::default() };
    let pooler = Pooler::start(1, vec![limited("t", &server, PoolMode::Transaction, one)]);
    let (mut holder, mut client) = (pooler.client("t"), pooler.client("t"));
    holder.run("BEGIN");
    let requests = [
        PgBatch::new().query("SELECT 1"),
        PgBatch::new().parse("", "SELECT 1").bind("", "", &[]).execute("", 0).sync(),
    ];
    for request in requests {
        client.send(&request.0).expect("send");
        wait_for(&pooler, client.pid, ClientState::Waiting);
        cancel(&pooler, client.pid, &client.key);
        let answer = client.answer().expect("an answer");
        assert_eq!(answer.error().expect("an error").code(), "57014");
        assert_eq!(client.status, b'I');
    }
    holder.run("COMMIT");
    assert_eq!(client.value("SELECT 1"), "1");
}

/// Checks the effect of a time limit on a client after `before`.
fn check_limit(limits: TenantLimitsSpec, before: &str, batch: &PgBatch, code: &str, stays: bool) {
    let server = Postgres::shared();
    let pooler = Pooler::start(1, vec![limited("t", &server, PoolMode::Transaction, limits)]);
    let mut client = pooler.client("t");
    client.run(before);
    client.send(&batch.0).expect("send");
    if stays {
        let answer = client.answer().expect("an answer");
        assert_eq!(answer.error().expect("an error").code(), code);
        assert_eq!(client.value("SELECT 1"), "1");
    } else {
        let (ended, messages) = client.end();
        let last = messages.last().expect("a message");
        assert!(ended && last.tag == b'E', "{messages:?}");
        assert_eq!(last.error().code(), code);
    }
    assert_eq!(pooler.client("t").value("SELECT 1"), "1");
}

#[test]
fn limits_on_time_hold() {
    let none = TenantLimitsSpec::default();
    let sleep = PgBatch::new().query("SELECT pg_sleep(60)");
    let nothing = PgBatch::new();
    let query = TenantLimitsSpec { query_s: Some(0.3), ..none };
    check_limit(query, "SELECT 1", &sleep, "57014", true);
    let idle = TenantLimitsSpec { client_idle_s: Some(0.3), ..none };
    check_limit(idle, "SELECT 1", &nothing, "57P05", false);
    let idle = TenantLimitsSpec { idle_in_transaction_s: Some(0.3), ..none };
    check_limit(idle, "BEGIN", &nothing, "25P03", false);
    let transaction = TenantLimitsSpec { transaction_s: Some(0.3), ..none };
    check_limit(transaction, "BEGIN", &nothing, "25P04", false);
}

#[test]
fn who_does_not_log_in_in_time_is_sent_away() {
    let server = Postgres::shared();
    let pooler = Pooler::start(1, vec![tenant("t", &server, PoolMode::Transaction)]);
    for bytes in [Vec::new(), startup(3 << 16, &[("user", "app")])[..9].to_vec()] {
        let mut client = PgClient::open(&pooler.tcp()).expect("connect");
        client.send(&bytes).expect("send");
        let (ended, messages) = client.end();
        assert!(ended && messages[0].error().code() == "08006", "{messages:?}");
    }
}

#[test]
fn a_server_that_goes_away_is_told_and_comes_back() {
    // A server of its own, so that the connections of other tests are not affected.
    let server = Postgres::start();
    let pooler = Pooler::start(2, vec![tenant("t", &server, PoolMode::Transaction)]);
    let (mut idle, mut held) = (pooler.client("t"), pooler.client("t"));
    idle.run("SELECT 1");
    held.run("BEGIN");
    server.cut_connections();
    let (ended, messages) = held.end();
    assert!(ended);
    assert_eq!(messages[0].error().code(), "57P01", "{messages:?}");
    // Clients without a connection there do not notice.
    until("dead connections are gone", || (pooler.servers() == 0).then_some(()));
    assert_eq!(idle.value("SELECT 2"), "2");

    let mut running = pooler.client("t");
    running.send(&PgBatch::new().query("SELECT pg_sleep(60)").0).expect("send");
    wait_running(&server, "pg_sleep(60)");
    server.kill_connections();
    let (ended, messages) = running.end();
    assert!(ended);
    let code = messages.last().expect("an error").error().code().to_owned();
    assert!(["57P02", "08006"].contains(&code.as_str()), "{messages:?}");
    server.wait_recovered();
    // A client may be refused while the server recovers, with the server's own message.
    until("the server is used again", || {
        let parameters = [("user", "app"), ("database", "t")];
        let mut client = PgClient::login(&pooler.tcp(), &parameters, "").ok()?;
        (client.query("SELECT 3").ok()?.error().is_none()).then_some(())
    });
}

#[test]
fn a_server_that_is_not_there_is_said_at_once() {
    let server = Postgres::shared();
    let nowhere = TenantSpec {
        server: "127.0.0.1:1".to_owned(),
        ..tenant("t", &server, PoolMode::Transaction)
    };
    let pooler = Pooler::start(1, vec![nowhere]);
    for _ in 0..3 {
        let parameters = [("user", "app"), ("database", "t")];
        let refused = PgClient::login(&pooler.tcp(), &parameters, "").expect_err("no server");
        let error = refused.error().expect("an error");
        assert_eq!(error.code(), "08006");
        // Not a login timeout.
        assert!(
            error.to_string().contains("the server of tenant \"t\" cannot be reached"),
            "{error}"
        );
    }
}

#[test]
fn clients_are_killed_by_order() {
    let server = Postgres::shared();
    let pooler = Pooler::start(2, vec![tenant("t", &server, PoolMode::Transaction)]);
    let (mut one, mut two) = (pooler.client("t"), pooler.client("t"));
    let pid = one.pid;
    pooler.relay.order(&|| ThreadCommand::KillClient(pid));
    assert_eq!(one.end().1[0].error().code(), "57P01");
    assert_eq!(two.value("SELECT 1"), "1");
    let tenant = pooler.tenant("t").id;
    pooler.relay.order(&|| ThreadCommand::Kill(tenant));
    assert_eq!(two.end().1[0].error().code(), "57P01");
    until("everything is closed", || (pooler.servers() == 0).then_some(()));
    assert_eq!(pooler.client("t").value("SELECT 1"), "1");
}

#[test]
fn a_tenant_that_is_removed_ends_its_clients_whatever_they_do() {
    let server = Postgres::shared();
    let mut pooler = Pooler::start(2, vec![tenant("t", &server, PoolMode::Transaction)]);
    let (mut idle, mut open, mut busy) =
        (pooler.client("t"), pooler.client("t"), pooler.client("t"));
    idle.run("SELECT 1");
    open.run("BEGIN");
    busy.send(&PgBatch::new().query("SELECT pg_sleep(60), 'removed'").0).expect("send");
    wait_running(&server, "removed");
    pooler.change(Vec::new());
    for client in [&mut idle, &mut open, &mut busy] {
        let (ended, messages) = client.end();
        assert!(ended && messages[0].error().code() == "57P01", "{messages:?}");
    }
    until("everything is closed", || (pooler.servers() == 0).then_some(()));
}

#[test]
fn who_stops_talking_gets_its_answer_and_who_is_gone_does_not() {
    let server = Postgres::shared();
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let pooler = Pooler::start(1, vec![tenant("t", &server, mode)]);
        for address in [pooler.tcp(), pooler.unix()] {
            let log_in = || {
                let parameters = [("user", "app"), ("database", "t")];
                PgClient::login(&address, &parameters, "").expect("log in")
            };
            let mut client = log_in();
            client.send(&PgBatch::new().query("SELECT pg_sleep(0.5), 'heard'").0).expect("send");
            client.finish();
            let (ended, messages) = client.end();
            assert!(ended, "{mode:?}");
            let tags: Vec<u8> = messages.iter().map(|it| it.tag).filter(|it| *it != b'S').collect();
            assert_eq!(tags, b"TDCZ", "{mode:?}");

            let mut client = log_in();
            client.send(&PgBatch::new().query("SELECT pg_sleep(60), 'unheard'").0).expect("send");
            wait_running(&server, "unheard");
            drop(client);
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND \
                       query LIKE '%unheard%' AND pid <> pg_backend_pid()";
            until("it was cancelled", || (server.sql(sql) == "0").then_some(()));
        }
    }
}

#[test]
fn whoever_leaves_with_more_to_come_leaves_the_server_connection_to_others() {
    let server = Postgres::shared();
    let one = TenantLimitsSpec { server_connections_max: Some(1), ..Default::default() };
    let much = "SELECT repeat('m', 8000) FROM generate_series(1, 2000)";
    let stopped = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite' AND \
                   query LIKE '%repeat(''m''%' AND pid <> pg_backend_pid()";
    let some = PgBatch::new().parse("", much).bind("", "", &[]).execute("", 10).flush();
    let copy = PgBatch::new().query("COPY leaving FROM STDIN").copy_data(b"1\n");
    let ways = [
        ("an answer nobody reads", PgBatch::new().query(much), None),
        ("a part of a batch", some, Some(b's')),
        ("a part of a copy", copy, Some(b'G')),
    ];
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let pooler = Pooler::start(1, vec![limited("t", &server, mode, one)]);
        let pid = pooler.client("t").value("SELECT pg_backend_pid()");
        for (name, batch, last) in &ways {
            let mut client = pooler.client("t");
            client.run("BEGIN");
            client.run("CREATE TABLE leaving (n int)");
            client.send(&batch.0).expect("send");
            match last {
                Some(last) => {
                    while client.message().expect("a message").tag != *last {}
                    client.finish();
                    assert!(client.end().0, "{mode:?}, {name}: it is not closed");
                }
                None => {
                    until("the server is stopped", || (server.sql(stopped) != "0").then_some(()));
                    // With unread bytes, the system resets the connection.
                    drop(client);
                }
            }
            // A connection that does not become idle would be closed.
            let next = pooler.client("t").value("SELECT pg_backend_pid()");
            assert_eq!(next, pid, "{mode:?}, {name}");
        }
    }
}
