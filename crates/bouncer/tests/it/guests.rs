//! Guests: their identity, their access, its audit, and its end.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use api::{PoolMode, TenantEngine, TenantSpec, TenantUserSpec, UserAuth};
use bouncer::guest::{
    GuestSpec, SandboxAction, SandboxClientError, SandboxListener, SandboxObserver, StatementDetail,
};
use bouncer::service::RelayThreads;
use bouncer::tenants::UserTimes;
use node::cluster::ServingLease;
use node::fence::EffectFence;
use parking_lot::Mutex;
use pooler_core::epoch::SessionEpoch;
use testkit::{PgAddress, PgBatch, PgClient, PgFailure, Postgres, until};

use crate::support::{Pooler, limited};

/// Longer than any step takes.
const SOON: Duration = Duration::from_secs(30);

fn log_in(address: &PgAddress, database: &str) -> Result<PgClient, PgFailure> {
    PgClient::login(address, &[("user", "whoever"), ("database", database)], "")
}

/// Records its reports.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl SandboxObserver for Notes {
    fn saw(&self, deed: SandboxAction<'_>) {
        let note = match deed {
            SandboxAction::Connected { .. } => "connected".to_owned(),
            SandboxAction::Refused(reason) => format!("refused: {reason}"),
            SandboxAction::Statement { text, rows, error, .. } => {
                format!("{} -> {rows} {}", text.unwrap_or("-"), error.unwrap_or("ok"))
            }
            SandboxAction::Disconnected { .. } => "disconnected".to_owned(),
        };
        self.0.lock().push(note);
    }
}

impl Notes {
    fn wait_for(&self, note: &str) {
        until("a note", SOON, || {
            let notes = self.0.lock();
            notes
                .iter()
                .any(|it| it == note)
                .then_some(())
                .ok_or_else(|| format!("{note:?} in {notes:?}"))
        });
    }
}

/// A port of guests, like that of a gateway inside a sandbox.
pub(crate) struct Port {
    pub(crate) address: PgAddress,
    door: Arc<Mutex<Option<SandboxListener>>>,
    is_over: Arc<AtomicBool>,
    notes: Arc<Notes>,
}

impl Port {
    fn client(&self) -> PgClient {
        self.try_client().expect("come in")
    }

    fn try_client(&self) -> Result<PgClient, PgFailure> {
        log_in(&self.address, "wherever")
    }

    fn revoke(&self) {
        drop(self.door.lock().take());
    }

    fn rest(&self) {
        self.door.lock().as_ref().expect("a door").rest();
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        drop(PgClient::open(&self.address));
    }
}

fn spec(notes: &Arc<Notes>) -> GuestSpec {
    GuestSpec {
        name: "ses_1/postgres:shop".into(),
        tenant: "shop".into(),
        engine: TenantEngine::Postgres,
        role: None,
        schema: None,
        read_only: true,
        clients_max: None,
        times: UserTimes::default(),
        rows_max: None,
        bytes_max: None,
        texts: StatementDetail::Masked,
        trace_comments: false,
        witness: Arc::clone(notes) as Arc<dyn SandboxObserver>,
        fence: EffectFence::open(),
        session: None,
    }
}

pub(crate) fn open(
    pooler: &Pooler,
    change: impl FnOnce(&mut GuestSpec),
) -> Result<Port, SandboxClientError> {
    let notes = Arc::<Notes>::default();
    let mut spec = spec(&notes);
    change(&mut spec);
    let threads: Arc<dyn RelayThreads> = Arc::clone(&pooler.relay) as Arc<dyn RelayThreads>;
    let door = SandboxListener::open(&threads, &pooler.current.load(), spec)?;
    let door = Arc::new(Mutex::new(Some(door)));
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("listen");
    let address = PgAddress::Tcp(listener.local_addr().expect("an address"));
    let is_over = Arc::new(AtomicBool::new(false));
    let (shared, over) = (Arc::clone(&door), Arc::clone(&is_over));
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            if over.load(Ordering::Acquire) {
                return;
            }
            if let Some(door) = shared.lock().as_ref() {
                door.admit(stream, Arc::new(()));
            }
        }
    });
    Ok(Port { address, door, is_over, notes })
}

/// Returns a server whose database has an ordinary role, and the tenant `shop` with this role.
fn shop(mode: PoolMode, connections: u32) -> (Postgres, Pooler) {
    let server = Postgres::start();
    server.sql(
        "CREATE ROLE clerk LOGIN; CREATE ROLE chief NOLOGIN; GRANT chief TO clerk; \
         CREATE SCHEMA stock; GRANT USAGE ON SCHEMA stock TO clerk; \
         CREATE TABLE stock.items AS SELECT x AS id, 'item ' || x AS name \
         FROM generate_series(1, 1000) x; \
         GRANT ALL ON stock.items TO clerk, chief",
    );
    let limits = api::TenantLimitsSpec {
        server_connections_max: Some(connections),
        ..api::TenantLimitsSpec::default()
    };
    let clerk = TenantUserSpec {
        name: "clerk".to_owned(),
        auth: UserAuth::Trust,
        server_user: Some("clerk".to_owned()),
        server_password: Some("unused".to_owned()),
        ..TenantUserSpec::default()
    };
    let tenant = limited("shop", &server, mode, limits);
    let tenant = TenantSpec { users: vec![clerk], ..tenant };
    let pooler = Pooler::start(2, vec![tenant]);
    (server, pooler)
}

#[test]
fn a_guest_needs_no_proof_and_is_where_it_was_led() {
    let (_server, pooler) = shop(PoolMode::Transaction, 5);
    let port = open(&pooler, |spec| spec.schema = Some("stock".into())).expect("a door");
    let mut client = port.client();
    assert_eq!(client.value("SELECT current_user || '@' || current_database()"), "clerk@postgres");
    assert_eq!(client.value("SELECT name FROM items WHERE id = 7"), "item 7");
    let batch = PgBatch::new().parse("", "SELECT name FROM items WHERE id < $1 AND name <> 'x'");
    let batch = batch.bind("", "", &[Some("4")]).execute("", 0).sync();
    assert_eq!(client.ask(&batch).expect("an answer").rows().len(), 3);
    assert_eq!(client.fail("SELECT 1 / 0, 'secret'").code(), "22012");
    let console = log_in(&port.address, "pgbouncer");
    assert_eq!(console.expect("come in").value("SELECT current_database()"), "postgres");
    client.close();
    for note in [
        "SELECT current_user || ? || current_database() -> 1 ok",
        "SELECT name FROM items WHERE id = ? -> 1 ok",
        "SELECT name FROM items WHERE id < $1 AND name <> ? -> 3 ok",
        "SELECT ? / ?, ? -> 0 22012",
        "disconnected",
    ] {
        port.notes.wait_for(note);
    }
}

#[test]
fn reading_is_all_that_a_reader_can_do_and_writers_share_its_tenant() {
    let (server, pooler) = shop(PoolMode::Transaction, 2);
    let reader = open(&pooler, |_| {}).expect("a door");
    let writer = open(&pooler, |spec| {
        spec.read_only = false;
        spec.name = "ses_2".into();
    });
    let writer = writer.expect("a door");
    let mut client = reader.client();
    let write = "DELETE FROM stock.items";
    for attempt in [
        write.to_owned(),
        format!("SET default_transaction_read_only = off; {write}"),
        format!("BEGIN READ WRITE; {write}; COMMIT"),
        format!("SET TRANSACTION READ WRITE; {write}"),
        "SELECT set_config('transaction_read_only', 'off', false)".to_owned(),
        format!("SELECT set_config('default_transaction_read_only', 'off', false); {write}"),
        format!("DO $$ BEGIN SET transaction_read_only = off; {write}; END $$"),
        format!("RESET ALL; {write}"),
        format!("DISCARD ALL; {write}"),
        format!("SET ROLE chief; {write}"),
        "SET SESSION AUTHORIZATION postgres".to_owned(),
        "COPY stock.items FROM STDIN".to_owned(),
        "COPY (SELECT 1) TO PROGRAM 'id'".to_owned(),
        "COPY (SELECT 1) TO '/tmp/stolen'".to_owned(),
        "SELECT pg_read_file('/etc/passwd')".to_owned(),
        "SELECT lo_import('/etc/passwd')".to_owned(),
        "CREATE TABLE public.mine (x int)".to_owned(),
    ] {
        // In one text, and after earlier parts in a session.
        drop(client.query(&attempt));
        drop(client.query("ROLLBACK"));
        for part in attempt.split("; ") {
            drop(client.query(part));
        }
        drop(client.query("ROLLBACK"));
        if client.query("SELECT 1").is_err() {
            client = reader.client();
        }
        assert_eq!(server.sql("SELECT count(*) FROM stock.items"), "1000", "{attempt}");
    }
    // It may be pinned, and would have its guest's share of two connections.
    drop(client);
    let mut client = reader.client();
    let mut other = writer.client();
    other.run("UPDATE stock.items SET name = 'sold' WHERE id = 1");
    assert_eq!(client.value("SELECT name FROM stock.items WHERE id = 1"), "sold");
    // A reader's state does not reach others, and the tenant's bound holds for all together.
    assert_eq!(other.value("SHOW transaction_read_only"), "off");
    let clients: Vec<PgClient> =
        [&reader, &writer].into_iter().cycle().take(10).map(Port::client).collect();
    std::thread::scope(|scope| {
        for mut client in clients {
            scope.spawn(move || {
                for _ in 0..20 {
                    client.run("SELECT pg_sleep(0.001)");
                }
            });
        }
        let busy = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'clerk'";
        for _ in 0..20 {
            assert!(server.sql(busy).parse::<u32>().expect("a number") <= 2);
        }
    });
}

#[test]
fn a_reader_allows_itself_nothing_by_what_it_hides() {
    let (server, pooler) = shop(PoolMode::Transaction, 2);
    let reader = open(&pooler, |_| {}).expect("a door");
    server.sql(
        "CREATE FUNCTION stock.lift() RETURNS text LANGUAGE sql AS \
         $$ SELECT set_config('default_transaction_read_only', 'off', false) $$",
    );
    // Functions that run the contents of their arguments, or run code elsewhere: their effects
    // cannot be determined.
    let set = "set_config(''default_transaction_read_only'', ''off'', false)";
    let hidden = [
        format!("SELECT * FROM ts_stat('SELECT to_tsvector({set})')"),
        format!("SELECT query_to_xml('SELECT {set}', false, false, '')"),
        "SELECT stock.lift()".to_owned(),
    ];
    let write = "DELETE FROM stock.items";
    let long = " ".repeat(1 << 20);
    for hidden in hidden {
        let batch = |texts: &[&str]| {
            let each = |batch: PgBatch, text: &&str| {
                batch.parse("", text).bind("", "", &[]).execute("", 0)
            };
            texts.iter().fold(PgBatch::new(), each)
        };
        let prepared = format!("PREPARE p AS {hidden}");
        let closing = format!("COMMIT; {write}");
        let unseen = format!("{long}BEGIN READ WRITE");
        let named = PgBatch::new().parse("", "COMMIT").bind("c", "", &[]).sync();
        let by_name = PgBatch::new().execute("c", 0).parse("", write).bind("", "", &[]);
        let attempts: &[Vec<PgBatch>] = &[
            vec![PgBatch::new().query(&format!("{hidden}; {closing}"))],
            ["BEGIN", &hidden, &closing].map(|it| PgBatch::new().query(it)).into(),
            ["BEGIN", &prepared, &format!("EXECUTE p; {closing}")]
                .map(|it| PgBatch::new().query(it))
                .into(),
            [&*hidden, write].map(|it| PgBatch::new().query(it)).into(),
            vec![batch(&[&hidden, "COMMIT", write]).sync()],
            vec![batch(&["BEGIN", &hidden]).sync(), batch(&["COMMIT", write]).sync()],
            vec![batch(&[&hidden]).flush(), batch(&["COMMIT"]).flush(), batch(&[write]).sync()],
            vec![batch(&["BEGIN", &hidden]).sync(), named, by_name.execute("", 0).sync()],
            vec![batch(&[&unseen, write, "COMMIT"]).sync()],
            vec![PgBatch::new().query(&unseen), PgBatch::new().query(write)],
        ];
        for (number, attempt) in attempts.iter().enumerate() {
            let mut client = reader.client();
            for one in attempt {
                if client.send(&one.0).is_err() {
                    break;
                }
            }
            drop(client.send(&PgBatch::new().sync().query("ROLLBACK").0));
            // The exchange ends with the reply to the last request, or with the connection.
            until("an end", SOON, || match client.message() {
                Ok(message) if message.tag == b'C' && message.text().contains("ROLLBACK") => Ok(()),
                Ok(message) => Err(format!("{message:?}")),
                Err(_) => Ok(()),
            });
            let left = server.sql("SELECT count(*) FROM stock.items");
            assert_eq!(left, "1000", "{number}: {hidden}");
        }
    }
    assert_eq!(reader.client().value("SHOW transaction_read_only"), "on");
}

#[test]
fn a_batch_that_is_not_ended_is_held_to_all_limits_and_undone() {
    let (server, pooler) = shop(PoolMode::Transaction, 1);
    let unended = || {
        let write = PgBatch::new().parse("", "DELETE FROM stock.items").bind("", "", &[]);
        write.execute("", 0).flush()
    };
    let deletes = |client: &mut PgClient| {
        client.send(&unended().0).expect("send");
        until("it is done", SOON, || match client.message().expect("a message") {
            message if message.tag == b'C' => Ok(()),
            message => Err(format!("{message:?}")),
        });
    };
    let short = Some(Duration::from_secs(2));
    let idle = UserTimes { idle_in_transaction: short, ..UserTimes::default() };
    let whole = UserTimes { transaction: short, ..UserTimes::default() };
    for (times, code) in [(idle, "25P03"), (whole, "25P04")] {
        let port = open(&pooler, |spec| (spec.read_only, spec.times) = (false, times));
        let port = port.expect("a door");
        let mut client = port.client();
        deletes(&mut client);
        let (_, last) = client.end();
        assert_eq!(last.last().expect("a message").error().code(), code);
    }
    let port = open(&pooler, |spec| spec.read_only = false).expect("a door");
    let mut client = port.client();
    deletes(&mut client);
    drop(client);
    // There is only one server connection.
    assert_eq!(port.client().value("SELECT count(*) FROM stock.items"), "1000");
    let mut client = port.client();
    deletes(&mut client);
    port.revoke();
    assert_eq!(client.end().1.last().expect("a message").error().code(), "57P01");
    // A pinned idle client blocks the connection for others.
    let port = open(&pooler, |spec| (spec.read_only, spec.times) = (false, idle));
    let port = port.expect("a door");
    let mut client = port.client();
    client.run("SELECT pg_advisory_lock(1)");
    assert_eq!(client.end().1.last().expect("a message").error().code(), "25P03");
    assert_eq!(server.sql("SELECT count(*) FROM stock.items"), "1000");
}

#[test]
fn a_greedy_guest_has_a_part_and_the_others_wait_in_line_with_it() {
    let (server, pooler) = shop(PoolMode::Transaction, 4);
    let greedy = open(&pooler, |_| {}).expect("a door");
    let other = open(&pooler, |spec| spec.name = "ses_2".into()).expect("a door");
    let sleeping: Vec<PgClient> = (0..8)
        .map(|_| {
            let mut client = greedy.client();
            client.send(&PgBatch::new().query("SELECT pg_sleep(600)").0).expect("send");
            client
        })
        .collect();
    let asleep = "SELECT count(*) FROM pg_stat_activity \
                  WHERE query = 'SELECT pg_sleep(600)' AND state = 'active'";
    let asleep = || server.sql(asleep);
    until("it has its part", SOON, || match asleep().as_str() {
        "2" => Ok(()),
        count => Err(count.to_owned()),
    });
    // Half of four are left, of which the other guest uses as many as it needs.
    let mut clients: Vec<PgClient> = (0..5).map(|_| other.client()).collect();
    for client in &mut clients {
        client.send(&PgBatch::new().query("SELECT 1").0).expect("send");
    }
    for client in &mut clients {
        assert_eq!(client.answer().expect("an answer").value(), "1");
    }
    assert_eq!(asleep(), "2");
    // Waiting clients end with their connections, and leave nothing in the queue.
    drop(sleeping);
    assert_eq!(greedy.client().value("SELECT 2"), "2");
    until("nobody sleeps", SOON, || match asleep().as_str() {
        "0" => Ok(()),
        count => Err(count.to_owned()),
    });
}

#[test]
fn limits_have_names_and_hold() {
    let (_server, pooler) = shop(PoolMode::Transaction, 5);
    let rows = open(&pooler, |spec| spec.rows_max = Some(10)).expect("a door");
    let mut client = rows.client();
    assert_eq!(client.run("SELECT * FROM generate_series(1, 10)").rows().len(), 10);
    let failed = client.query("SELECT * FROM generate_series(1, 1000000)").expect_err("too many");
    let error = failed.error().expect("an error");
    assert_eq!(error.code(), "53400");
    assert!(error.message().contains("more than 10 rows"), "{}", error.message());
    rows.notes.wait_for(
        "refused: the statement returned more than 10 rows, which is the limit of the grant",
    );
    rows.notes.wait_for("SELECT * FROM generate_series(?, ?) -> 11 53400");
    let bytes = open(&pooler, |spec| spec.bytes_max = Some(1000)).expect("a door");
    let failed = bytes.client().query("SELECT repeat('x', 5000)").expect_err("too long");
    assert_eq!(failed.error().expect("an error").code(), "53400");
    let times = UserTimes { query: Some(Duration::from_millis(100)), ..UserTimes::default() };
    let slow = open(&pooler, |spec| spec.times = times).expect("a door");
    let mut client = slow.client();
    let took_too_long = client.query("SELECT pg_sleep(60)");
    assert!(took_too_long.is_err() || took_too_long.is_ok_and(|it| it.error().is_some()));
    let few = open(&pooler, |spec| {
        spec.name = "ses_2".into();
        spec.clients_max = Some(2);
    });
    let few = few.expect("a door");
    let kept = [few.client(), few.client()];
    let refused = few.try_client().expect_err("one too many");
    assert_eq!(refused.error().expect("an error").code(), "53300");
    drop(kept);
    until("room again", SOON, || few.try_client().map(drop).map_err(|error| error.to_string()));
}

#[test]
fn what_ran_is_told_and_counted_whatever_a_guest_does() {
    let (server, pooler) = shop(PoolMode::Transaction, 5);
    let port = open(&pooler, |spec| spec.read_only = false).expect("a door");
    let mut client = port.client();
    // A name in use keeps its statement.
    let delete = "DELETE FROM stock.items WHERE id = 1";
    drop(client.ask(&PgBatch::new().parse("s", delete).sync()).expect("prepare"));
    let again = client.ask(&PgBatch::new().parse("s", "SELECT 1").sync());
    assert_eq!(again.expect("an answer").error().expect("taken").code(), "42P05");
    let run = PgBatch::new().bind("", "s", &[]).execute("", 0).sync();
    drop(client.ask(&run).expect("an answer"));
    port.notes.wait_for("SELECT ? -> 0 42P05");
    port.notes.wait_for("DELETE FROM stock.items WHERE id = ? -> 0 ok");
    let long = format!("/*{}*/ DELETE FROM stock.items WHERE id = 2", "x".repeat(70_000));
    client.run(&long);
    // It has two readings, of which one could show a password.
    let refused = client.fail("SELECT 'C:\\'; DELETE FROM stock.items WHERE id = 3 --'");
    assert_eq!(refused.code(), "42501");
    client.close();
    port.notes.wait_for("disconnected");
    let deleted = "DELETE FROM stock.items WHERE id = ? -> 0 ok";
    assert_eq!(port.notes.0.lock().iter().filter(|it| *it == deleted).count(), 2);
    port.notes.wait_for("SELECT ?… -> 0 42501");
    assert_eq!(server.sql("SELECT min(id) FROM stock.items"), "3");
    // Statements that return no rows, or only some at a time, are limited, too.
    let few = open(&pooler, |spec| {
        (spec.read_only, spec.rows_max, spec.bytes_max) = (false, Some(10), Some(100_000));
    });
    let few = few.expect("a door");
    let rows = PgBatch::new().parse("", "TABLE stock.items").bind("p", "", &[]);
    let notices = "DO $$ BEGIN FOR i IN 1..1000 LOOP RAISE NOTICE '%', repeat('x', 1000); END LOOP; \
                   END $$";
    for batch in [
        rows.execute("p", 6).execute("p", 6).sync(),
        PgBatch::new().query(notices),
        PgBatch::new().query("SELECT repeat('x', 50000000)"),
    ] {
        let failed = few.client().ask(&batch).map(drop).expect_err("too much");
        assert_eq!(failed.error().expect("an error").code(), "53400");
    }
}

#[test]
fn what_was_taken_back_ends_with_an_error_and_leaves_nothing() {
    let (server, pooler) = shop(PoolMode::Transaction, 1);
    let port = open(&pooler, |spec| spec.read_only = false).expect("a door");
    let mut client = port.client();
    client.run("BEGIN");
    client.run("DELETE FROM stock.items");
    port.revoke();
    let (_, last) = client.end();
    assert_eq!(last.last().expect("a message").error().code(), "57P01");
    assert!(port.try_client().is_err());
    // A guest whose statement runs.
    let port = open(&pooler, |spec| spec.read_only = false).expect("a door");
    let mut client = port.client();
    let busy = std::thread::spawn(move || client.query("SELECT pg_sleep(600)"));
    let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'";
    until("it sleeps", SOON, || match server.sql(sleeps).as_str() {
        "0" => Err(String::new()),
        _ => Ok(()),
    });
    port.revoke();
    let failed = busy.join().expect("join").expect_err("it ends");
    assert_eq!(failed.error().expect("an error").code(), "57P01");
    // A client that leaves in the middle of a transaction with pinned state.
    let other = open(&pooler, |spec| spec.read_only = false).expect("a door");
    let mut client = other.client();
    client.run("BEGIN");
    client.run("DELETE FROM stock.items");
    drop(client);
    // There is one server connection: it was returned, and reset.
    let mut next = other.client();
    assert_eq!(next.value("SELECT count(*) FROM stock.items"), "1000");
    assert_eq!(server.sql("SELECT count(*) FROM stock.items"), "1000");
}

#[test]
fn a_sandbox_that_rests_holds_no_server_connection() {
    let (_server, pooler) = shop(PoolMode::Transaction, 1);
    let port = open(&pooler, |spec| spec.read_only = false).expect("a door");
    let (mut idle, mut holds) = (port.client(), port.client());
    assert_eq!(idle.value("SELECT 1"), "1");
    holds.run("BEGIN");
    holds.run("DELETE FROM stock.items");
    port.rest();
    let (_, last) = holds.end();
    assert_eq!(last.last().expect("a message").error().code(), "57P01");
    assert_eq!(idle.value("SELECT count(*) FROM stock.items"), "1000");
}

#[test]
fn nobody_is_a_guest_who_cannot_be_held() {
    let server = Postgres::start();
    let boss = limited("shop", &server, PoolMode::Transaction, api::TenantLimitsSpec::default());
    let secret = TenantUserSpec { server_password: Some("x".to_owned()), ..boss.users[0].clone() };
    let pooler = Pooler::start(1, vec![TenantSpec { users: vec![secret], ..boss }]);
    let port = open(&pooler, |_| {}).expect("a door");
    let refused = port.try_client().expect_err("a superuser");
    assert!(refused.error().expect("an error").message().contains("superuser"));
    for (change, expected) in [
        ("tenant", "no tenant named \"nothing\""),
        ("role", "the tenant has no user \"nobody\""),
        ("engine", "tenant \"shop\" is a PostgreSQL database, which has another port"),
    ] {
        let failed = open(&pooler, |spec| match change {
            "tenant" => spec.tenant = "nothing".into(),
            "role" => spec.role = Some("nobody".into()),
            _ => spec.engine = TenantEngine::Mysql,
        });
        assert_eq!(failed.map(drop).expect_err("refused").to_string(), expected);
    }
}

/// Interval at which a lease is renewed.
const RENEWAL: Duration = Duration::from_millis(10);

/// Renews a lease until it is ended.
struct KeptLease {
    lease: ServingLease,
    /// Ends renewals when dropped.
    renewals: Option<Sender<()>>,
}

impl KeptLease {
    fn new() -> KeptLease {
        let lease = ServingLease::of(Duration::from_millis(1250));
        KeptLease { renewals: Some(renew(&lease)), lease }
    }

    fn end(&mut self) {
        self.renewals = None;
        until("the end of the lease", SOON, || match self.lease.holds() {
            true => Err("it holds".to_owned()),
            false => Ok(()),
        });
    }

    fn go_on(&mut self) {
        self.renewals = Some(renew(&self.lease));
    }
}

fn renew(lease: &ServingLease) -> Sender<()> {
    let (renewals, ended) = mpsc::channel();
    let lease = lease.clone();
    lease.renewed(node::clock::boot_ms());
    std::thread::spawn(move || {
        while ended.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
            lease.renewed(node::clock::boot_ms());
        }
    });
    renewals
}

fn fenced(pooler: &Pooler, lease: &KeptLease) -> Port {
    let port = open(pooler, |spec| {
        spec.read_only = false;
        spec.schema = Some("stock".into());
        spec.fence = EffectFence::new(lease.lease.clone());
    });
    port.expect("a door")
}

#[test]
fn no_statement_of_a_guest_begins_after_the_lease() {
    let (server, pooler) = shop(PoolMode::Transaction, 5);
    server.sql("CREATE TABLE stock.numbers (n int); GRANT ALL ON stock.numbers TO clerk");
    let count = || server.sql("SELECT string_agg(n::text, ' ' ORDER BY n) FROM stock.numbers");
    let mut lease = KeptLease::new();
    let port = fenced(&pooler, &lease);
    let (mut first, mut second, mut third) = (port.client(), port.client(), port.client());
    first.run("INSERT INTO numbers VALUES (1)");
    second.run("BEGIN");
    second.run("INSERT INTO numbers VALUES (2)");
    // A statement of which a part has arrived.
    let batch = PgBatch::new().query("INSERT INTO numbers VALUES (3)").0;
    let (head, rest) = batch.split_at(batch.len() - 4);
    third.send(head).expect("send");
    // The tenant's own clients are not guests, and are not affected.
    let parameters = [("user", "clerk"), ("database", "shop")];
    let mut ordinary = PgClient::login(&pooler.tcp(), &parameters, "").expect("log in");
    lease.end();

    let (four, commit) = ("INSERT INTO numbers VALUES (4)", "COMMIT");
    let [four, commit] = [four, commit].map(|sql| PgBatch::new().query(sql).0);
    for (client, bytes) in [(&mut first, &*four), (&mut second, &*commit), (&mut third, rest)] {
        client.send(bytes).expect("send");
        let told = client.end().1;
        assert!(told.iter().any(|it| it.tag == b'E' && it.error().code() == "57P01"), "{told:?}");
    }
    let refused = port.try_client().expect_err("no login");
    assert!(format!("{refused:?}").contains("57P03"), "{refused:?}");
    ordinary.run("INSERT INTO stock.numbers VALUES (5)");
    assert_eq!(count().trim(), "1 5");

    lease.go_on();
    port.client().run("INSERT INTO numbers VALUES (6)");
    assert_eq!(count().trim(), "1 5 6");
}

#[test]
fn a_client_that_has_chosen_no_name_has_that_of_its_session() {
    let (_server, pooler) = shop(PoolMode::Transaction, 1);
    let port = open(&pooler, |spec| {
        spec.session = Some(SessionEpoch { session: "ses_1".into(), epoch: 3 });
    });
    let port = port.expect("a door");
    let named = |name: Option<&str>| {
        let name = name.map(|name| ("application_name", name));
        let parameters = [("user", "x"), ("database", "x")].into_iter().chain(name);
        let parameters: Vec<_> = parameters.collect();
        PgClient::login(&port.address, &parameters, "").expect("come in")
    };
    let (mut none, mut usual, mut own) = (named(None), named(Some("cove")), named(Some("mine")));
    // All of them use one connection to the server.
    for (client, expected) in
        [(&mut none, "cove:ses_1:3"), (&mut own, "mine"), (&mut usual, "cove:ses_1:3")]
    {
        assert_eq!(client.value("SHOW application_name"), expected);
    }
    none.run("SET application_name = 'other'");
    assert_eq!(none.value("SHOW application_name"), "other");
    none.run("RESET application_name");
    assert_eq!(none.value("SHOW application_name"), "cove:ses_1:3");
}
