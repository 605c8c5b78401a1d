//! Statements that a session's former owners run at a MariaDB are ended, and no others.

use std::sync::Arc;
use std::thread;

use api::{PoolMode, TenantEngine, TenantLimitsSpec, TenantSpec, TenantUserSpec, UserAuth};
use bouncer::auth::ProtocolKeyrings;
use bouncer::guest::{FormerStatements, GuestSpec};
use bouncer::health::ServerProber;
use bouncer::service::ServerProbe;
use bouncer::tls::ServerSide;
use pooler_core::epoch::SessionEpoch;
use pooler_core::pg::login::PgPasswordMethod;
use testkit::{MariaDb, MyClient, MyLogin};

use crate::guests::{Port, open};
use crate::support::{Pooler, until};

/// A statement that runs until it is ended.
const ENDLESS: &str = "SELECT SLEEP(600)";

/// A server with rows, and the tenant `shop` whose user is an ordinary one there.
struct Shop {
    server: MariaDb,
    pooler: Pooler,
}

fn shop(connections: u32) -> Shop {
    shop_at(MariaDb::start(), connections)
}

fn shop_at(server: MariaDb, connections: u32) -> Shop {
    server.sql(
        "CREATE DATABASE stock; USE stock; CREATE TABLE stock.t (id INT PRIMARY KEY, n INT) ENGINE=InnoDB; \
         INSERT INTO stock.t SELECT seq, 0 FROM seq_1_to_9; \
         CREATE PROCEDURE stock.free_all() DO RELEASE_ALL_LOCKS(); \
         CREATE USER 'clerk'@'%' IDENTIFIED BY 'pw'; GRANT ALL ON stock.* TO 'clerk'@'%'",
    );
    let clerk = TenantUserSpec {
        name: "clerk".to_owned(),
        auth: UserAuth::Trust,
        server_user: Some("clerk".to_owned()),
        server_password: Some("pw".to_owned()),
        ..TenantUserSpec::default()
    };
    let tenant = TenantSpec {
        name: "shop".to_owned(),
        server: server.tcp().to_string(),
        engine: TenantEngine::Mysql,
        database: Some("stock".to_owned()),
        pool_mode: Some(PoolMode::Transaction),
        limits: TenantLimitsSpec {
            server_connections_max: Some(connections),
            ..TenantLimitsSpec::default()
        },
        users: vec![clerk],
        ..TenantSpec::default()
    };
    Shop { server, pooler: Pooler::start(1, vec![tenant]) }
}

impl Shop {
    /// Returns a port for sandboxes of a session; of none, if there is no epoch.
    fn port(&self, session: &str, epoch: Option<u64>) -> Port {
        let change = |spec: &mut GuestSpec| {
            spec.engine = TenantEngine::Mysql;
            spec.read_only = false;
            spec.session = epoch.map(|epoch| SessionEpoch { session: session.into(), epoch });
        };
        open(&self.pooler, change).expect("a door")
    }

    /// Returns the number of server connections that are marked with an epoch of a session.
    fn marks(&self, session: &str, epoch: u64) -> String {
        self.server.sql(&format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE IS_USED_LOCK(\
             CONVERT(CONCAT('cove:{session}:{epoch}:', id) USING utf8mb4)) = id"
        ))
    }

    /// Ends the statements of earlier owners of `ses_1`, and counts them.
    fn end_former(&self, epoch: u64) -> u64 {
        let keyrings = ProtocolKeyrings::new([7; 32], PgPasswordMethod::Best);
        let prober = ServerProber::new(keyrings, Arc::new(ServerSide::default()));
        let tenant = self.pooler.tenant("shop");
        let user = tenant.role_of_guest(None).expect("a role");
        let session = SessionEpoch { session: "ses_1".into(), epoch };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ending = prober.end_former(FormerStatements { tenant, user, session });
        runtime.expect("a runtime").block_on(ending).expect("the server to answer")
    }

    /// Waits until `count` endless statements run.
    fn wait_for_endless(&self, count: usize) {
        until("a statement to run", || {
            let sql = format!(
                "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE info = '{ENDLESS}'"
            );
            (self.server.sql(&sql) == count.to_string()).then_some(())
        });
    }

    /// Returns whether the lock of a row is free.
    fn is_free(&self, id: u32) -> bool {
        let mut client = MyClient::login(&self.server.address(), &login()).expect("log in");
        let asked = client.query(&format!("SELECT id FROM t WHERE id = {id} FOR UPDATE NOWAIT"));
        asked.expect("an answer").error().is_none()
    }
}

fn login() -> MyLogin {
    MyLogin::new("clerk", "pw", "stock")
}

fn guest(port: &Port) -> MyClient {
    MyClient::login(&port.address, &MyLogin::new("whoever", "", "shop")).expect("come in")
}

/// Returns a client with an open transaction that has changed a row.
fn in_transaction(port: &Port, id: u32) -> MyClient {
    let mut client = guest(port);
    client.run("BEGIN");
    client.run(&format!("UPDATE t SET n = n + 1 WHERE id = {id}"));
    client
}

#[test]
fn what_runs_or_holds_locks_for_a_former_owner_of_a_session_is_ended_and_nothing_else() {
    ends_what_is_there(&shop(20));
}

/// The archive has binaries for this architecture only.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_newer_server_is_no_other() {
    ends_what_is_there(&shop_at(MariaDb::start_11(), 20));
}

fn ends_what_is_there(shop: &Shop) {
    let former = shop.port("ses_1", Some(1));
    let others = [
        shop.port("ses_1", Some(2)),
        shop.port("ses_1", Some(3)),
        shop.port("ses_2", Some(1)),
        shop.port("ses_11", Some(1)),
        shop.port("", None),
    ];
    let mut running = guest(&former);
    running.run("BEGIN");
    running.run("UPDATE t SET n = n + 1 WHERE id = 8");
    let running = thread::spawn(move || running.query(ENDLESS).map(|answer| answer.error()));
    let mut idle = in_transaction(&former, 9);
    let mut kept: Vec<MyClient> = Vec::new();
    for (port, id) in others.iter().zip(1..) {
        kept.push(in_transaction(port, id));
    }
    shop.wait_for_endless(1);
    assert!(!shop.is_free(8) && !shop.is_free(9) && !shop.is_free(1));
    assert_eq!(shop.end_former(1), 0, "the first owner has none before it");

    assert_eq!(shop.end_former(2), 2);
    assert!(shop.is_free(8) && shop.is_free(9), "what was ended has gone");
    let told = running.join().expect("a thread");
    assert!(!matches!(told, Ok(None)), "{told:?}");
    assert!(idle.query("COMMIT").map_or(true, |answer| answer.error().is_some()));
    for client in &mut kept {
        client.run("COMMIT");
    }
    let rows = "SELECT GROUP_CONCAT(n ORDER BY id) FROM stock.t";
    assert_eq!(shop.server.sql(rows), "1,1,1,1,1,0,0,0,0");
    assert_eq!(shop.end_former(2), 0);
}

#[test]
fn a_connection_that_went_back_to_its_pool_is_not_ended() {
    let shop = shop(1);
    let (former, other) = (shop.port("ses_1", Some(1)), shop.port("ses_2", Some(1)));
    let plain = shop.port("", None);
    let mut before = guest(&former);
    for port in [&other, &plain] {
        before.run("BEGIN");
        before.run("SELECT 1");
        before.run("COMMIT");
        assert_eq!(before.value("SELECT n FROM t WHERE id = 5"), "0");
        // There is only one connection, and the session has used it.
        let mut client = in_transaction(port, 5);
        let connections = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE user='clerk'";
        // A caller that ended nothing closes its own connection properly.
        until("one connection", || (shop.server.sql(connections) == "1").then_some(()));
        assert_eq!(shop.end_former(2), 0);
        client.run("ROLLBACK");
    }
    // An idle one in the pool is not ended, either: its mark is removed.
    before.run("SELECT 1");
    until("no mark", || (shop.marks("ses_1", 1) == "0").then_some(()));
    assert_eq!(shop.end_former(9), 0);
    before.run("SELECT 1");
}

#[test]
fn one_mark_serves_for_many_statements() {
    let shop = shop(1);
    let former = shop.port("ses_1", Some(1));
    let mut client = guest(&former);
    let counted = || -> u64 {
        let row = shop.server.sql("SHOW GLOBAL STATUS LIKE 'Com_do'");
        row.rsplit('\t').next().unwrap().parse().unwrap()
    };
    client.run("SELECT 1");
    let before = counted();
    for _ in 0..50 {
        client.run("SELECT 1");
    }
    // The mark is released after a pause, which a busy machine may cause; releasing it for each
    // statement would need two.
    let marks = counted() - before;
    assert!(marks < 50, "{marks}");
    client.run("BEGIN");
    assert_eq!(shop.marks("ses_1", 1), "1");
}

#[test]
fn locks_that_a_session_takes_itself_are_its_own_and_hide_nothing() {
    let shop = shop(5);
    let former = shop.port("ses_1", Some(1));
    let mut client = guest(&former);
    assert_eq!(client.value("SELECT RELEASE_ALL_LOCKS()"), "0");
    assert_eq!(client.value("SELECT GET_LOCK('mine', 0)"), "1");
    assert_eq!(client.value("SELECT GET_LOCK('another', 0)"), "1");
    assert_eq!(client.value("SELECT IS_FREE_LOCK('mine')"), "0");
    assert_eq!(client.value("SELECT RELEASE_LOCK('mine')"), "1");
    assert_eq!(client.value("SELECT RELEASE_ALL_LOCKS()"), "1");
    assert_eq!(client.value("SELECT IS_FREE_LOCK('another')"), "1");
    for releases in ["SELECT RELEASE_ALL_LOCKS()", "CALL free_all()"] {
        let mut client = in_transaction(&former, 7);
        client.run("DO GET_LOCK('mine', 0)");
        client.run(releases);
        client.run("UPDATE t SET n = 5 WHERE id = 6");
        assert_eq!(shop.end_former(2), 1, "{releases}");
        assert!(shop.is_free(6) && shop.is_free(7), "{releases}");
        drop(client);
    }
    // Only a lock, without a transaction.
    let mut holder = guest(&former);
    assert_eq!(holder.value("SELECT GET_LOCK('mine', 0)"), "1");
    assert_eq!(shop.end_former(2), 1);
    assert_eq!(shop.server.sql("SELECT IS_FREE_LOCK('mine')"), "1");
}
