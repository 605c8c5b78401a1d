//! Accounts over a real store: SQLite of one server, and PostgreSQL of several nodes.

use testkit::Postgres;
use tokio::time::Instant;

use super::*;
use crate::cluster::NodeDescription;
use crate::cluster::NodeIdentity;
use crate::store::{StoreConfig, StoreDialect, StoreUrl};
use crate::telemetry::MetricsRegistry;
use crate::testing::TempDir;

const SESSION: &str = "ses_1";
const WHAT: &str = "http/3128/requests";

/// No test waits this long unless it fails.
const DEADLINE: Duration = Duration::from_secs(30);

/// A store, and the metrics of its nodes.
struct AmountFixture {
    store: SqlStore,
    metrics: Option<Registry>,
    _temp: TempDir,
    _server: Option<Arc<Postgres>>,
}

impl AmountFixture {
    async fn new(dialect: StoreDialect) -> AmountFixture {
        let temp = TempDir::new();
        let (url, server) = match dialect {
            StoreDialect::Sqlite => (StoreUrl::Sqlite(temp.path().join("cove.db")), None),
            StoreDialect::Postgres => {
                let starting = tokio::task::spawn_blocking(|| {
                    let server = Postgres::shared();
                    (server.database().parse().unwrap(), server)
                });
                let (url, server) = starting.await.unwrap();
                (url, Some(server))
            }
        };
        let mut registry = Registry::default();
        let store = SqlStore::open(StoreConfig::new(url), &mut registry).await.unwrap();
        AmountFixture { store, metrics: Some(registry), _temp: temp, _server: server }
    }

    async fn node(&self, node: usize, run: u32, scope: LimitScope) -> AmountLedger {
        self.node_with(node, run, scope, &mut Registry::default()).await
    }

    async fn node_with(
        &self,
        node: usize,
        run: u32,
        scope: LimitScope,
        registry: &mut Registry,
    ) -> AmountLedger {
        let home = String::new();
        let run = NodeIdentity { id: format!("n{node}"), incarnation: run.to_string(), home };
        let (description, lease) = (NodeDescription::default(), Duration::from_secs(60));
        let member = NodeMembership::join(&self.store, run, &description, lease).await.unwrap();
        AmountLedger::open(&self.store, &member, scope, registry).await.unwrap()
    }

    /// Stored usage of a session's account.
    async fn kept(&self) -> Option<u64> {
        let read = self.store.read("test", |it| {
            let sql = "SELECT a.spent + CAST(COALESCE((SELECT SUM(used - absorbed) \
                FROM cove_amount_leases WHERE account = a.account), 0) AS BIGINT) \
                FROM cove_amounts AS a WHERE a.account = $1";
            let row = it.query_one(sql, &[format!("{SESSION}/{WHAT}").into()])?;
            row.map(|row| row.get(0)).transpose()
        });
        read.await.unwrap()
    }

    async fn wait_until_kept(&self, spent: u64) {
        let started = Instant::now();
        while self.kept().await != Some(spent) {
            assert!(started.elapsed() < DEADLINE, "{:?} is kept", self.kept().await);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Takes one at a time until a refusal.
async fn take_all(account: &AmountAccount, limit: u64) -> (u64, AmountRefusal) {
    let mut taken = 0;
    loop {
        match account.take(1, Some(limit)).await {
            Ok(()) => taken += 1,
            Err(refusal) => return (taken, refusal),
        }
    }
}

async fn take(account: &AmountAccount, amount: u64, limit: u64) {
    for _ in 0..amount {
        account.take(1, Some(limit)).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_used_outlasts_a_server_that_stops() {
    for dialect in [StoreDialect::Sqlite, StoreDialect::Postgres] {
        let ground = AmountFixture::new(dialect).await;
        let first = ground.node(0, 1, LimitScope::Node).await;
        take(&first.of_session(SESSION, WHAT), 6, 10).await;
        first.close().await;
        assert_eq!(ground.kept().await, Some(6));
        let refused = first.of_session(SESSION, "other").take(1, Some(10)).await;
        assert_eq!(refused, Err(AmountRefusal::StoreAway), "it leases nothing any more");
        let second = ground.node(0, 2, LimitScope::Node).await;
        let account = second.of_session(SESSION, WHAT);
        assert_eq!(take_all(&account, 10).await, (4, AmountRefusal::UsedUp));
        // A changed grant continues from there, and other accounts are separate.
        assert_eq!(take_all(&account, 12).await, (2, AmountRefusal::UsedUp));
        assert_eq!(account.take(1, Some(3)).await, Err(AmountRefusal::UsedUp));
        account.take(100, None).await.unwrap();
        let other = second.of_session(SESSION, "http/3129/requests");
        assert_eq!(take_all(&other, 2).await, (2, AmountRefusal::UsedUp));
        ground.wait_until_kept(112).await;
    }
}

#[tokio::test]
async fn what_a_crashed_server_had_leased_is_spent_but_for_soft_limits() {
    for dialect in [StoreDialect::Sqlite, StoreDialect::Postgres] {
        for (scope, least) in [(LimitScope::Strict, 20), (LimitScope::Soft, 34)] {
            let ground = AmountFixture::new(dialect).await;
            let first = ground.node(0, 1, scope).await;
            let account = first.of_session(SESSION, WHAT);
            take(&account, 6, 40).await;
            ground.wait_until_kept(6).await;
            drop((first, account));
            let second = ground.node(0, 2, scope).await;
            let (rest, refusal) = take_all(&second.of_session(SESSION, WHAT), 40).await;
            assert_eq!(refusal, AmountRefusal::UsedUp);
            assert!((least..=34).contains(&rest), "{rest} after a crash, {scope:?}");
        }
    }
}

#[tokio::test]
async fn nodes_use_all_of_a_limit_together_and_no_more() {
    for scope in [LimitScope::Strict, LimitScope::Soft] {
        let ground = AmountFixture::new(StoreDialect::Postgres).await;
        let mut tasks = tokio::task::JoinSet::new();
        let mut nodes = Vec::new();
        for node in 0..4 {
            let ledger = ground.node(node, 1, scope).await;
            let account = ledger.of_tenant("team", "tokens");
            nodes.push(ledger);
            tasks.spawn(async move {
                let mut taken = 0;
                loop {
                    match account.take(1, Some(500)).await {
                        Ok(()) => taken += 1,
                        Err(AmountRefusal::UsedUp) => return taken,
                        // The holder returns it soon, so the loop tries again.
                        Err(AmountRefusal::HeldElsewhere) => {}
                        Err(AmountRefusal::StoreAway) => panic!("the store is there"),
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
        let taken: Vec<u64> = tasks.join_all().await;
        assert_eq!(taken.iter().sum::<u64>(), 500, "{taken:?}");
        assert!(nodes.len() == 4);
    }
}

#[tokio::test]
async fn a_tenant_has_its_limit_at_each_node_where_nodes_do_not_share() {
    let ground = AmountFixture::new(StoreDialect::Postgres).await;
    for node in 0..2 {
        let ledger = ground.node(node, 1, LimitScope::Node).await;
        let account = ledger.of_tenant("team", "tokens");
        assert_eq!(take_all(&account, 5).await, (5, AmountRefusal::UsedUp));
        ledger.close().await;
    }
}

#[tokio::test]
async fn what_a_node_does_not_use_goes_to_those_who_wait() {
    let ground = AmountFixture::new(StoreDialect::Postgres).await;
    let idle = ground.node(0, 1, LimitScope::Strict).await;
    let of_idle = idle.of_tenant("team", "tokens");
    of_idle.take(1, Some(1000)).await.unwrap();
    let busy = ground.node(1, 1, LimitScope::Strict).await;
    let of_busy = busy.of_tenant("team", "tokens");
    // More than the free amount, while the other node keeps its part.
    of_busy.take(999, Some(1000)).await.unwrap();
    assert_eq!(of_idle.take(1, Some(1000)).await, Err(AmountRefusal::UsedUp));
}

#[tokio::test]
async fn the_store_is_not_asked_for_each_use() {
    let mut ground = AmountFixture::new(StoreDialect::Sqlite).await;
    let mut metrics = ground.metrics.take().unwrap();
    let ledger = ground.node_with(0, 1, LimitScope::Node, &mut metrics).await;
    let metrics = MetricsRegistry::new(metrics);
    let account = ledger.of_session(SESSION, WHAT);
    for _ in 0..5_000 {
        account.take(1, Some(100_000)).await.unwrap();
        // Requests take time, too.
        tokio::task::yield_now().await;
    }
    ledger.close().await;
    let text = metrics.render().unwrap();
    let line = "cove_store_transaction_duration_seconds_count{name=\"amounts.settle\"} ";
    let settled = text.lines().find_map(|it| it.strip_prefix(line)).expect("it was asked");
    let settled: u64 = settled.parse().unwrap();
    assert!(settled < 50, "{settled} transactions for 5000 uses");
    let waited = "cove_amount_waits_total{outcome=\"leased\"} ";
    let waited = text.lines().find_map(|it| it.strip_prefix(waited)).expect("the first one waits");
    assert!(waited.parse::<u64>().unwrap() < 5, "{waited} of 5000 uses waited");
}

#[tokio::test]
async fn what_is_known_afterwards_is_kept_beyond_the_limit() {
    let ground = AmountFixture::new(StoreDialect::Sqlite).await;
    let ledger = ground.node(0, 1, LimitScope::Node).await;
    let account = ledger.of_session(SESSION, WHAT);
    for _ in 0..2 {
        account.check_left(Some(10)).await.unwrap();
    }
    account.charge(7);
    account.charge(8);
    assert_eq!(account.check_left(Some(10)).await, Err(AmountRefusal::UsedUp));
    ground.wait_until_kept(15).await;
}

#[tokio::test]
async fn accounts_go_with_their_session() {
    let ground = AmountFixture::new(StoreDialect::Sqlite).await;
    let ledger = ground.node(0, 1, LimitScope::Node).await;
    let (account, of_tenant) = (ledger.of_session(SESSION, WHAT), ledger.of_tenant("team", "it"));
    take(&account, 3, 10).await;
    take(&of_tenant, 3, 10).await;
    ground.wait_until_kept(3).await;
    let removed = ground.store.transact("test", |it| remove_amounts(it, SESSION));
    removed.await.unwrap();
    // The node's last report of the account does not restore it.
    drop(account);
    ledger.close().await;
    assert_eq!(ground.kept().await, None);
    let again = ground.node(0, 2, LimitScope::Node).await;
    assert_eq!(take_all(&again.of_tenant("team", "it"), 10).await, (7, AmountRefusal::UsedUp));
}

#[tokio::test]
async fn accounts_that_nobody_uses_leave_the_memory() {
    let ground = AmountFixture::new(StoreDialect::Sqlite).await;
    let ledger = ground.node(0, 1, LimitScope::Node).await;
    take(&ledger.of_session(SESSION, WHAT), 3, 10).await;
    let started = Instant::now();
    while !ledger.0.accounts.lock().is_empty() {
        assert!(started.elapsed() < DEADLINE, "the account is kept in memory");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(take_all(&ledger.of_session(SESSION, WHAT), 10).await.0, 7);
}

#[tokio::test]
async fn what_is_leased_is_used_while_the_store_is_away() {
    // A sixteenth of it, and as much beyond the lease except for strict limits.
    for (scope, beyond) in [(LimitScope::Node, 63), (LimitScope::Strict, 0)] {
        let ground = AmountFixture::new(StoreDialect::Sqlite).await;
        let ledger = ground.node(0, 1, scope).await;
        let account = ledger.of_session(SESSION, WHAT);
        take(&account, 1, 1000).await;
        ground.store.close().await;
        let (rest, refusal) = take_all(&account, 1000).await;
        assert_eq!((rest, refusal), (62 + beyond, AmountRefusal::StoreAway));
        let other = ledger.of_session("ses_2", WHAT);
        assert_eq!(take_all(&other, 1000).await, (beyond, AmountRefusal::StoreAway));
    }
}
