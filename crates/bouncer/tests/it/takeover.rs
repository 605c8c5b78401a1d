//! One relay takes over from another, while clients work.

use std::fs::{self, Permissions};
use std::io::{BufReader, ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use api::{PoolMode, TenantSpec};
use bouncer::relay::keep_handover;
use testkit::{PgAddress, PgBatch, PgClient, Postgres, Scratch};

use crate::support::{Pooler, tenant, until};

fn tenants(server: &Postgres) -> Vec<TenantSpec> {
    vec![tenant("t", server, PoolMode::Transaction), tenant("s", server, PoolMode::Session)]
}

fn log_in(address: &PgAddress) -> PgClient {
    PgClient::login(address, &[("user", "app"), ("database", "t")], "").expect("log in")
}

/// Cancels a client's statement, over a separate connection.
fn cancel(address: &PgAddress, client: &PgClient) {
    let mut other = PgClient::open(address).expect("connect");
    other.send(&testkit::pg::cancel_request(client.pid, &client.key)).expect("send");
    other.end();
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story of clients from one process to the next")]
fn clients_go_on_through_restarts() {
    let server = Postgres::shared();
    let scratch = Scratch::new();
    let socket = scratch.path().join("takeover.sock");
    let start = |threads| Pooler::start_after(threads, tenants(&server), Some(&socket));
    let mut pooler = start(2);
    let address = pooler.tcp();
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicUsize::new(0));

    // Some work without a pause, some connect repeatedly.
    let workers: Vec<_> = (0..12)
        .map(|number| {
            let (stop, rounds, address) = (Arc::clone(&stop), Arc::clone(&rounds), address.clone());
            std::thread::spawn(move || {
                let mut client = log_in(&address);
                client.run(&format!("SET application_name = 'w{number}'"));
                let prepare = PgBatch::new().parse("mine", "SELECT $1::text || $2").sync();
                client.ask(&prepare).expect("prepare");
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    let text = format!("{number}.{round}");
                    let run = PgBatch::new()
                        .bind("", "mine", &[Some(&text), Some("!")])
                        .execute("", 0)
                        .sync();
                    let answer = client.ask(&run).expect("an answer");
                    assert_eq!(answer.value(), format!("{text}!"));
                    client.run("BEGIN");
                    assert_eq!(client.value(&format!("SELECT '{text}'")), text);
                    client.run("COMMIT");
                    let name = client.value("SHOW application_name");
                    assert_eq!(name, format!("w{number}"));
                    round += 1;
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .chain((0..2).map(|_| {
            let (stop, address) = (Arc::clone(&stop), address.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut client = log_in(&address);
                    assert_eq!(client.value("SELECT 5"), "5");
                    client.close();
                }
            })
        }))
        .collect();

    // Some are idle, some are in the middle of a transaction.
    let mut idle: Vec<PgClient> = (0..20).map(|_| log_in(&address)).collect();
    for (number, client) in idle.iter_mut().enumerate() {
        client.run(&format!("SET work_mem = '{}kB'", 1000 + number));
        let batch = PgBatch::new().parse("kept", &format!("SELECT {number}")).sync();
        client.ask(&batch).expect("prepare");
    }
    for turn in 0..3 {
        let mut busy: Vec<PgClient> = (0..5).map(|_| log_in(&address)).collect();
        for client in &mut busy {
            client.run("BEGIN; CREATE TEMP TABLE mine (number int) ON COMMIT DROP");
        }
        let next = start(1 + turn % 2);
        assert_eq!(next.relay.addresses(), pooler.relay.addresses());
        assert!(pooler.relay.is_taken_over());
        let before = rounds.load(Ordering::Relaxed);
        for client in &mut busy {
            assert_eq!(client.value("SELECT count(*) FROM mine"), "0");
            client.run("COMMIT");
        }
        until("the former one has nobody", || (!pooler.relay.has_clients()).then_some(()));
        pooler = next;
        until("work goes on", || (rounds.load(Ordering::Relaxed) > before + 50).then_some(()));
        for client in &mut busy {
            assert_eq!(client.value("SELECT 7"), "7");
        }
        for (number, client) in idle.iter_mut().enumerate() {
            assert_eq!(client.value("SHOW work_mem"), format!("{}kB", 1000 + number));
            let run = PgBatch::new().bind("", "kept", &[]).execute("", 0).sync();
            assert_eq!(client.ask(&run).expect("an answer").value(), number.to_string());
        }
        let sleeper = &mut idle[0];
        sleeper.send(&PgBatch::new().query("SELECT pg_sleep(60)").0).expect("send");
        until("it was cancelled", || {
            cancel(&address, sleeper);
            sleeper.patience(Duration::from_millis(200));
            let answer = sleeper.answer().ok()?;
            assert_eq!(answer.error().expect("an error").code(), "57014");
            Some(())
        });
        sleeper.patience(Duration::from_secs(30));
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("a worker");
    }
}

#[test]
fn who_cannot_be_carried_is_told_to_connect_again() {
    let server = Postgres::shared();
    let scratch = Scratch::new();
    let socket = scratch.path().join("takeover.sock");
    let start = || Pooler::start_after(1, tenants(&server), Some(&socket));
    let former = start();
    let mut session = former.client("s");
    session.run("CREATE TEMP TABLE mine (number int)");
    let mut listens = former.client("t");
    listens.run("LISTEN takeover_news");
    let next = start();
    let (ended, messages) = listens.end();
    assert!(ended);
    assert_eq!(messages[0].error().code(), "57P01", "{messages:?}");
    // A client with a server connection is served by the former process until it leaves.
    session.run("SELECT * FROM mine");
    session.close();
    until("the former one has nobody", || (!former.relay.has_clients()).then_some(()));
    assert_eq!(next.client("s").value("SELECT 1"), "1");
}

#[test]
fn without_a_former_process_or_with_a_strange_one_nothing_breaks() {
    let server = Postgres::shared();
    let scratch = Scratch::new();
    let socket = scratch.path().join("takeover.sock");
    let pooler = Pooler::start_after(1, tenants(&server), Some(&socket));
    for bytes in [&b""[..], b"hello...", b"covepg99xxxxxxxx"] {
        let mut strange = PgClient::open(&socket.clone().into()).expect("connect");
        strange.send(bytes).expect("send");
        strange.finish();
        assert!(strange.end().0);
    }
    assert!(!pooler.relay.is_taken_over());
    assert_eq!(pooler.client("t").value("SELECT 1"), "1");
}

/// The process that hands clients over determines the users that they are logged in as.
#[test]
fn nothing_is_taken_over_from_another_user() {
    const LISTEN: &str = "import socket, sys, time\n\
        listener = socket.socket(socket.AF_UNIX)\n\
        listener.bind(sys.argv[1])\n\
        listener.listen()\n\
        print('listens', flush=True)\n\
        time.sleep(600)";
    let scratch = Scratch::new();
    let directory = scratch.path().join("open");
    fs::create_dir(&directory).expect("make a directory");
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).expect("open it");
    fs::set_permissions(&directory, Permissions::from_mode(0o777)).expect("open it");
    let socket = directory.join("takeover.sock");
    let mut other = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--reuid", "65534", "--clear-groups"])
        .args(["/usr/bin/python3", "-c", LISTEN])
        .arg(&socket)
        .current_dir("/")
        .stdout(Stdio::piped())
        .spawn()
        .expect("start another user's process");
    let mut said = String::new();
    let output = BufReader::new(other.stdout.take().expect("its output"));
    output.take(8).read_to_string(&mut said).expect("hear of it");
    assert_eq!(said, "listens\n");
    let (next, _server) = UnixStream::pair().expect("a pair");
    let error = keep_handover(&socket, next).expect_err("it is another user's");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    other.kill().expect("end it");
    other.wait().expect("end it");
}
