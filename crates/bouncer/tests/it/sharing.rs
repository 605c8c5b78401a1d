//! Many clients on few server connections: waiting, refusals, and isolation.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use api::{PoolMode, TenantLimitsSpec, TenantUserSpec, UserAuth};
use bouncer::relay::orders::ThreadCommand;
use bouncer::service::RelayThreads;
use bouncer::tenants::WorkAdmission;
use testkit::{PgBatch, Postgres};

use crate::support::{Pooler, limited, tenant, until};

fn one_connection() -> TenantLimitsSpec {
    TenantLimitsSpec { server_connections_max: Some(1), ..TenantLimitsSpec::default() }
}

#[test]
fn clients_share_connections_between_transactions() {
    let server = Postgres::shared();
    for threads in [1, 2] {
        let few = TenantLimitsSpec { server_connections_max: Some(3), ..Default::default() };
        let tenants = vec![limited("t", &server, PoolMode::Transaction, few)];
        let pooler = Pooler::start(threads, tenants);
        let workers: Vec<_> = (0..20)
            .map(|number| {
                let mut client = pooler.client("t");
                std::thread::spawn(move || {
                    for turn in 0..50 {
                        let wanted = format!("{number}.{turn}");
                        client.run("BEGIN");
                        assert_eq!(client.value(&format!("SELECT '{wanted}'")), wanted);
                        client.run("COMMIT");
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("a worker");
        }
        assert!(pooler.servers() <= 3, "{} server connections", pooler.servers());
    }
}

#[test]
fn a_session_keeps_its_connection() {
    let server = Postgres::shared();
    let tenants = vec![limited("t", &server, PoolMode::Session, one_connection())];
    let pooler = Pooler::start(1, tenants);
    let mut first = pooler.client("t");
    first.run("CREATE TEMP TABLE mine (number int)");
    let mut second = pooler.client("t");
    second.send(&PgBatch::new().query("SELECT to_regclass('mine')").0).expect("send");
    second.patience(Duration::from_millis(300));
    assert!(second.answer().expect_err("the first one has it").is_timeout());
    first.run("SELECT * FROM mine");
    first.close();
    second.patience(Duration::from_secs(30));
    assert_eq!(second.answer().expect("an answer").rows(), [[None]]);
}

#[test]
fn who_waits_too_long_or_is_one_too_many_is_told() {
    let server = Postgres::shared();
    let limits = TenantLimitsSpec { wait_s: Some(0.3), waiting_max: Some(1), ..one_connection() };
    let pooler = Pooler::start(1, vec![limited("t", &server, PoolMode::Transaction, limits)]);
    let mut holder = pooler.client("t");
    let (mut waits, mut refused) = (pooler.client("t"), pooler.client("t"));
    holder.run("BEGIN");
    waits.send(&PgBatch::new().query("SELECT 1").0).expect("send");
    until("one client waits", || {
        let clients = pooler.snapshots().remove(0).clients;
        let waiting = bouncer::relay::snapshot::ClientState::Waiting;
        clients.iter().any(|client| client.state == waiting).then_some(())
    });
    let (ended, messages) = {
        refused.send(&PgBatch::new().query("SELECT 1").0).expect("send");
        refused.end()
    };
    assert!(ended);
    assert_eq!(messages[0].error().code(), "53300", "{messages:?}");
    let (ended, messages) = waits.end();
    assert!(ended);
    assert_eq!(messages[0].error().code(), "53300", "{messages:?}");
    holder.run("COMMIT");
    assert_eq!(holder.value("SELECT 1"), "1");
}

#[test]
fn what_a_client_leaves_behind_is_taken_away() {
    let server = Postgres::shared();
    server.sql("CREATE TABLE IF NOT EXISTS kept (number int)");
    let pooler =
        Pooler::start(1, vec![limited("t", &server, PoolMode::Transaction, one_connection())]);
    let pid = pooler.client("t").value("SELECT pg_backend_pid()");
    let leave: [(&str, PgBatch); 6] = [
        ("in a transaction", PgBatch::new().query("BEGIN; INSERT INTO kept VALUES (1)")),
        ("in a failed transaction", PgBatch::new().query("BEGIN; SELECT 1 / 0")),
        ("in COPY", PgBatch::new().query("COPY kept FROM STDIN").copy_data(b"1\n")),
        ("in a batch", PgBatch::new().parse("", "SELECT 1").bind("", "", &[]).flush()),
        ("in a failed batch", PgBatch::new().parse("", "SELECT nothing").flush()),
        ("in a long statement", PgBatch::new().query("SELECT pg_sleep(100), 'left'")),
    ];
    for (what, batch) in leave {
        let mut client = pooler.client("t");
        client.send(&batch.0).expect("send");
        if !what.contains("long") {
            client.message().expect("a message");
        } else {
            let running = "SELECT count(*) FROM pg_stat_activity \
                           WHERE state = 'active' AND query LIKE '%100), ''left'''";
            until("it runs", || (server.sql(running) == "1").then_some(()));
        }
        drop(client);
        let mut next = pooler.client("t");
        assert_eq!(next.value("SELECT pg_backend_pid()"), pid, "{what}: another connection");
        assert_eq!(next.value("SELECT count(*) FROM kept"), "0", "{what}");
    }
}

#[test]
fn a_paused_tenant_holds_its_clients_back() {
    let server = Postgres::shared();
    let pooler = Pooler::start(2, vec![tenant("t", &server, PoolMode::Transaction)]);
    let mut client = pooler.client("t");
    client.run("SELECT 1");
    let tenant = pooler.tenant("t");
    tenant.state.set_admission(WorkAdmission::Paused);
    pooler.relay.order(&|| ThreadCommand::Admission(tenant.id));
    until("the server connections are closed", || (pooler.servers() == 0).then_some(()));
    client.send(&PgBatch::new().query("SELECT 2").0).expect("send");
    client.patience(Duration::from_millis(300));
    assert!(client.answer().expect_err("it is paused").is_timeout());
    tenant.state.set_admission(WorkAdmission::Open);
    pooler.relay.order(&|| ThreadCommand::Admission(tenant.id));
    client.patience(Duration::from_secs(30));
    assert_eq!(client.answer().expect("an answer").value(), "2");
}

#[test]
fn a_draining_tenant_sees_its_clients_off_after_their_transactions() {
    let server = Postgres::shared();
    let pooler = Pooler::start(2, vec![tenant("t", &server, PoolMode::Transaction)]);
    let (mut idle, mut busy) = (pooler.client("t"), pooler.client("t"));
    busy.run("BEGIN");
    let tenant = pooler.tenant("t");
    tenant.state.set_admission(WorkAdmission::Draining);
    pooler.relay.order(&|| ThreadCommand::Admission(tenant.id));
    let (ended, messages) = idle.end();
    assert!(ended);
    assert_eq!(messages[0].error().code(), "57P01", "{messages:?}");
    assert_eq!(busy.value("SELECT 3"), "3");
    busy.run("COMMIT");
    let (ended, messages) = busy.end();
    assert!(ended);
    assert_eq!(messages[0].error().code(), "57P01", "{messages:?}");
}

#[test]
fn another_definition_holds_for_clients_that_are_connected() {
    let server = Postgres::shared();
    let mut pooler = Pooler::start(1, vec![tenant("t", &server, PoolMode::Transaction)]);
    let mut client = pooler.client("t");
    assert_eq!(client.value("SELECT current_database()"), "postgres");
    let mut changed = tenant("t", &server, PoolMode::Transaction);
    // Not a template, which cannot be used while another test creates a database from it.
    server.sql("CREATE DATABASE defined_anew");
    changed.database = Some("defined_anew".to_owned());
    pooler.change(vec![changed]);
    until("the other database is used", || {
        (client.value("SELECT current_database()") == "defined_anew").then_some(())
    });
    pooler.change(Vec::new());
    let (ended, messages) = client.end();
    assert!(ended);
    assert_eq!(messages[0].error().code(), "57P01", "{messages:?}");
}

#[test]
fn a_server_connection_keeps_no_more_statements_than_its_tenant_allows() {
    let server = Postgres::shared();
    let limits = TenantLimitsSpec {
        server_connections_max: Some(1),
        prepared_statements_max: Some(2),
        ..Default::default()
    };
    let pooler = Pooler::start(1, vec![limited("t", &server, PoolMode::Transaction, limits)]);
    let mut client = pooler.client("t");
    for number in 0..5 {
        let (name, text) = (format!("s{number}"), format!("SELECT {number}"));
        let batch = PgBatch::new().parse(&name, &text).bind("", &name, &[]).execute("", 0).sync();
        assert_eq!(client.ask(&batch).expect("an answer").value(), number.to_string());
    }
    assert_eq!(client.value("SELECT count(*) FROM pg_prepared_statements"), "2");
    // A statement that was closed at the server still exists for the client.
    let batch = PgBatch::new().bind("", "s0", &[]).execute("", 0).sync();
    assert_eq!(client.ask(&batch).expect("an answer").value(), "0");
}

/// Connections of a server that is slow to end them.
#[derive(Debug, Default)]
struct SlowlyClosed {
    open: AtomicUsize,
    most: AtomicUsize,
}

impl SlowlyClosed {
    /// Carries connections to a server, and closes each `delay` after its client has.
    fn before(server: SocketAddr, delay: Duration) -> (SocketAddr, Arc<SlowlyClosed>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::<SlowlyClosed>::default();
        let counted = Arc::clone(&connections);
        // The thread ends with the test's process: nothing connects to it any more.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let open = counted.open.fetch_add(1, Ordering::SeqCst) + 1;
                counted.most.fetch_max(open, Ordering::SeqCst);
                let server = TcpStream::connect(server).expect("connect");
                let counted = Arc::clone(&counted);
                thread::spawn(move || counted.carry(&client, &server, delay));
            }
        });
        (address, connections)
    }

    fn carry(&self, client: &TcpStream, server: &TcpStream, delay: Duration) {
        thread::scope(|scope| {
            scope.spawn(|| io::copy(&mut &*server, &mut &*client));
            drop(io::copy(&mut &*client, &mut &*server));
            // Simulates a server that needs this long to end a process.
            thread::park_timeout(delay);
            self.open.fetch_sub(1, Ordering::SeqCst);
            for stream in [client, server] {
                drop(stream.shutdown(Shutdown::Both));
            }
        });
    }
}

#[test]
fn a_connection_counts_until_its_server_has_closed_it() {
    let server = Postgres::shared();
    server.sql("CREATE ROLE closes_slowly LOGIN");
    let (address, connections) = SlowlyClosed::before(server.tcp(), Duration::from_millis(200));
    let mut spec = limited("t", &server, PoolMode::Transaction, one_connection());
    spec.server = address.to_string();
    // Each role needs its own connection, so the pool closes the other role's connection for it.
    spec.users.push(TenantUserSpec {
        name: "other".to_owned(),
        auth: UserAuth::Trust,
        server_user: Some("closes_slowly".to_owned()),
        ..TenantUserSpec::default()
    });
    let pooler = Pooler::start(2, vec![spec]);
    let mut clients = ["app", "other"].map(|user| {
        let parameters = [("user", user), ("database", "t")];
        testkit::PgClient::login(&pooler.tcp(), &parameters, "").expect("log in")
    });
    for turn in 0..5 {
        for client in &mut clients {
            assert_eq!(client.value(&format!("SELECT {turn}")), turn.to_string());
        }
    }
    assert_eq!(connections.most.load(Ordering::SeqCst), 1);
}
