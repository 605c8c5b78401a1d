//! The queue in SQLite and in PostgreSQL.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use api::ExecutionState;
use node::store::{SqlValue, StoreConfig, StoreTransaction, StoreUrl};
use node::telemetry::Registry;
use testkit::{Postgres, Scratch};

use super::super::conformance::{self, NOW, config, id, job, model, number};
use super::*;

async fn store(url: StoreUrl) -> SqlStore {
    SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap()
}

async fn sqlite(directory: &Path, name: &str) -> SqlStore {
    store(StoreUrl::Sqlite(directory.join(name))).await
}

async fn postgres(server: &Postgres) -> SqlStore {
    store(StoreUrl::Postgres(server.database())).await
}

async fn open(store: SqlStore, config: QueueConfig, now_ms: u64) -> Arc<dyn JobQueue> {
    Arc::new(SqlQueue::open(store, config, now_ms).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_passes_the_conformance_suite() {
    let scratch = Scratch::new();
    let count = AtomicU32::new(0);
    let make = async |config: QueueConfig| {
        let name = format!("{}.db", count.fetch_add(1, Ordering::Relaxed));
        open(sqlite(scratch.path(), &name).await, config, NOW).await
    };
    conformance::check_all(make, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_passes_the_conformance_suite() {
    let server = Postgres::shared();
    let make = async |config: QueueConfig| open(postgres(&server).await, config, NOW).await;
    conformance::check_all(make, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_operations_on_sqlite_equal_the_model() {
    for seed in 0..6 {
        let scratch = Scratch::new();
        let queue = open(sqlite(scratch.path(), "db").await, model::config(), NOW).await;
        model::compare(&*queue, seed, 1_000).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_operations_on_postgresql_equal_the_model() {
    let server = Postgres::shared();
    for seed in 100..102 {
        let queue = open(postgres(&server).await, model::config(), NOW).await;
        model::compare(&*queue, seed, 400).await;
    }
}

/// Returns all kept jobs, with request and result.
async fn everything(queue: &dyn JobQueue) -> Vec<QueuedJob> {
    let mut jobs = Vec::new();
    for job in queue.list(JobFilter { limit: 1_000, ..JobFilter::default() }).await.unwrap() {
        let parts = JobParts { request: true, result: true };
        jobs.extend(queue.get(job.id, parts).await.unwrap());
    }
    jobs
}

#[tokio::test]
async fn a_queue_that_is_opened_again_is_as_before_but_for_what_ran() {
    let scratch = Scratch::new();
    let first = sqlite(scratch.path(), "db").await;
    let queue = open(first.clone(), config(), NOW).await;
    let whose = |number: u64| if number.is_multiple_of(2) { "a" } else { "b" };
    let mut jobs: Vec<NewJob> = (0..40).map(|number| job(number, whose(number))).collect();
    jobs[30].priority = 7;
    jobs[31].deadline_ms = Some(NOW + 500);
    queue.push(jobs).await.unwrap();
    let claims = queue.claim(6, ClaimQuota::unlimited(), NOW + 100).await.unwrap();
    let end = AttemptResult::Result(b"{}".to_vec());
    queue.finish(claims[0].lease.clone(), end, NOW + 101).await.unwrap();
    let stop = "stop".to_owned();
    queue.cancel(whose(39).to_owned(), id(39), stop.clone(), NOW + 102).await.unwrap();
    let wanted = claims[5].lease.id.clone();
    queue.cancel(claims[5].tenant.clone(), wanted.clone(), stop, NOW + 103).await.unwrap();
    queue.set_paused(true).await.unwrap();
    let before = everything(&*queue).await;
    drop(queue);
    first.close().await;

    let queue = open(sqlite(scratch.path(), "db").await, config(), NOW + 200).await;
    for (was, is) in before.iter().zip(everything(&*queue).await) {
        let expected = match was.state {
            ExecutionState::Running if was.id == wanted => ExecutionState::Cancelled,
            ExecutionState::Running => ExecutionState::Queued,
            other => other,
        };
        assert_eq!(is.state, expected, "{:?}", is.id);
        assert_eq!(
            (is.attempts, &is.request, &is.result),
            (was.attempts, &was.request, &was.result)
        );
        if was.state == expected {
            assert_eq!(&is, was);
        }
    }
    assert!(queue.stats(None, NOW).await.unwrap().paused);
    assert_eq!(queue.claim(1, ClaimQuota::unlimited(), NOW + 200).await.unwrap(), []);
    queue.set_paused(false).await.unwrap();
    // Running jobs are lost to their worker and run first now, for the second time.
    let late = queue.heartbeat(vec![claims[1].lease.clone()], NOW + 201).await.unwrap();
    assert_eq!(late, [LeaseRenewal::Lost]);
    let again = queue.claim(100, ClaimQuota::unlimited(), NOW + 600).await.unwrap();
    let lost: Vec<&ExecutionId> = claims[1..5].iter().map(|it| &it.lease.id).collect();
    assert_eq!(again.len(), 40 - 1 - 1 - 1 - 1, "finished, cancelled twice, expired");
    for claim in &again {
        let attempt = if lost.contains(&&claim.lease.id) { 2 } else { 1 };
        assert_eq!(claim.attempt, attempt, "{:?}", claim.lease.id);
    }
    assert!(again.iter().all(|it| number(&it.lease.id) != 31));
    queue.sweep(NOW + 600).await.unwrap();
    drop(queue);

    // The second time in a row: their attempts are used up, so the retries end.
    let queue = open(sqlite(scratch.path(), "db").await, config(), NOW + 700).await;
    let stats = queue.stats(None, NOW + 700).await.unwrap();
    let figures = (stats.queued, stats.running, stats.dead, stats.cancelled, stats.expired);
    assert_eq!(figures, (32, 0, 4, 2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_share_what_waits_in_postgresql() {
    let server = Postgres::shared();
    let url = server.database();
    let here = open(store(StoreUrl::Postgres(url.clone())).await, config(), NOW).await;
    let there = open(store(StoreUrl::Postgres(url)).await, config(), NOW).await;
    here.push((0..120).map(|number| job(number, "a")).collect()).await.unwrap();
    there.push((200..280).map(|number| job(number, "b")).collect()).await.unwrap();
    let work = async |queue: &dyn JobQueue| {
        let mut taken = Vec::new();
        loop {
            let claims = queue.claim(7, ClaimQuota::unlimited(), NOW + 1_000).await.unwrap();
            if claims.is_empty() {
                return taken;
            }
            for claim in claims {
                let end = AttemptResult::Result(b"{}".to_vec());
                let ended = queue.finish(claim.lease.clone(), end, NOW + 1_001).await.unwrap();
                assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Finished));
                taken.push(number(&claim.lease.id));
            }
        }
    };
    let (mut taken, of_there) = tokio::join!(work(&*here), work(&*there));
    taken.extend(of_there);
    // Both may have given up while the other held the rest.
    taken.extend(work(&*here).await);
    taken.sort_unstable();
    assert_eq!(taken, (0..120).chain(200..280).collect::<Vec<u64>>());

    // A server that relies on announcements does not wait for its next poll.
    there.rely_on_announcements(true);
    assert_eq!(there.claim(1, ClaimQuota::unlimited(), NOW + 1_500).await.unwrap(), []);
    here.push(vec![job(290, "a")]).await.unwrap();
    there.wake();
    there.changed().await.unwrap();
    let claimed = there.claim(1, ClaimQuota::unlimited(), NOW + 1_500).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let end = AttemptResult::Result(b"{}".to_vec());
    there.finish(claimed[0].lease.clone(), end, NOW + 1_501).await.unwrap();

    // One server pauses, cancels and dies; the other notices.
    here.push(vec![job(300, "a"), job(301, "a")]).await.unwrap();
    here.set_paused(true).await.unwrap();
    assert_eq!(there.claim(1, ClaimQuota::unlimited(), NOW + 2_000).await.unwrap(), []);
    here.set_paused(false).await.unwrap();
    let lost = here.claim(1, ClaimQuota::unlimited(), NOW + 2_000).await.unwrap();
    let (a, stop) = ("a".to_owned(), "stop".to_owned());
    assert_eq!(there.cancel(a, id(301), stop, NOW + 2_001).await.unwrap(), CancelAnswer::Cancelled);
    assert_eq!(here.claim(1, ClaimQuota::unlimited(), NOW + 2_001).await.unwrap(), []);
    let swept = there.sweep(NOW + 32_000).await.unwrap();
    assert_eq!(swept.requeued, [lost[0].lease.id.clone()]);
    let taken = there.claim(1, ClaimQuota::unlimited(), NOW + 32_000).await.unwrap();
    assert_eq!((taken.len(), taken[0].attempt), (1, 2));
    let late = AttemptResult::Result(b"late".to_vec());
    let ended = here.finish(lost[0].lease.clone(), late, NOW + 32_001).await.unwrap();
    assert_eq!(ended, AttemptDisposition::Fenced);
    // Woken by the clock, because this server received no announcement.
    there.push(vec![job(400, "a")]).await.unwrap();
    here.changed().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_window_shows_many_tenants_and_long_queues_in_turn() {
    let server = Postgres::shared();
    let mut config = config();
    config.queued_max = 10_000;
    let queue = open(postgres(&server).await, config, NOW).await;
    // More tenants than a window has, and one with more jobs than it shows.
    let mut jobs: Vec<NewJob> = (0..150).map(|number| job(number, "crowd")).collect();
    jobs.extend((0..90).flat_map(|tenant| {
        (0..2).map(move |round| job(1_000 + tenant * 2 + round, &format!("t{tenant:03}")))
    }));
    for batch in jobs.chunks(100) {
        queue.push(batch.to_vec()).await.unwrap();
    }
    let mut order: Vec<(String, u64)> = Vec::new();
    loop {
        let claims = queue.claim(10, ClaimQuota::unlimited(), NOW + 5_000).await.unwrap();
        if claims.is_empty() {
            break;
        }
        order.extend(claims.into_iter().map(|it| (it.tenant, number(&it.lease.id))));
    }
    assert_eq!(order.len(), 330);
    for tenant in order.iter().map(|(tenant, _)| tenant) {
        let numbers = order.iter().filter(|(whose, _)| whose == tenant).map(|(_, it)| it);
        assert!(numbers.is_sorted(), "of {tenant}");
    }
    // While others wait, the crowd gets one turn in each round.
    let crowd_share = order[..180].iter().filter(|(tenant, _)| tenant == "crowd").count();
    assert!((1..=5).contains(&crowd_share), "{crowd_share}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_window_goes_round_whatever_order_a_database_has_for_texts() {
    let (scratch, server) = (Scratch::new(), Postgres::shared());
    for store in [
        sqlite(scratch.path(), "db").await,
        postgres(&server).await,
        store(StoreUrl::Postgres(server.linguistic_database())).await,
    ] {
        let tenants = ["a", "B", "c", "D"];
        let queue = open(store.clone(), config(), NOW).await;
        queue.push((1..).zip(tenants).map(|(number, it)| job(number, it)).collect()).await.unwrap();
        for cursor in tenants {
            let page = store.read("test.window", move |it| feed::read(it, cursor, NOW + 5_000));
            let mut window = feed::ScheduleWindow::new(config().ageing);
            window.show(page.await.unwrap(), NOW + 5_000);
            let mut seen: Vec<_> = window
                .take(9, &mut ClaimQuota::unlimited(), NOW + 5_000)
                .into_iter()
                .map(|it| it.tenant.to_lowercase())
                .collect();
            seen.sort();
            assert_eq!(seen, ["a", "b", "c", "d"], "after {cursor}");
        }
        store.close().await;
    }
}

/// Data of an earlier version: one job that waits, and one that has ended.
async fn fill_without_sizes(store: &SqlStore) {
    store.migrate(schema::SERVICE, &schema::MIGRATIONS[..1]).await.unwrap();
    let body = |transaction: &mut dyn StoreTransaction| {
        for (number, state, finished_ms, request, result) in
            [(1, "queued", SqlValue::Null, 898, None), (2, "finished", 5.into(), 98, Some(200))]
        {
            let id = SqlValue::from(id(number).0.as_str());
            let sql = "INSERT INTO execution_jobs (
                    id, tenant, state, language, priority, rank, created_ms, finished_ms, webhook,
                    face
                ) VALUES ($1, 'a', $2, 'python', 0, 0, 0, $3, 0, 'é')";
            transaction.execute(sql, &[id.clone(), state.into(), finished_ms])?;
            for (table, size) in [("requests", Some(request)), ("results", result)] {
                if let Some(size) = size {
                    let sql = format!("INSERT INTO execution_{table} (id, body) VALUES ($1, $2)");
                    let body = vec![b'1'; size];
                    transaction.execute(&sql, &[id.clone(), body.as_slice().into()])?;
                }
            }
        }
        Ok(())
    };
    store.transact("test.fill", body).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_version_left_is_counted_in_bytes() {
    let (scratch, server) = (Scratch::new(), Postgres::shared());
    for store in [sqlite(scratch.path(), "db").await, postgres(&server).await] {
        fill_without_sizes(&store).await;
        let config = || QueueConfig { queued_bytes_max: 1_000, kept_bytes_max: 300, ..config() };
        let queue = open(store.clone(), config(), NOW).await;
        let sized = |number, size| NewJob { request: vec![b'1'; size], ..job(number, "b") };
        let full = queue.push(vec![sized(3, 101)]).await.unwrap_err();
        assert!(matches!(full, QueueError::FullBytes { queued_bytes_max: 1_000 }), "{full:?}");
        queue.push(vec![sized(3, 100)]).await.unwrap();
        assert_eq!(queue.sweep(0).await.unwrap().removed, 0);
        // After reopening the state is the same, and a limit one byte lower is too low.
        drop(queue);
        let queue = open(store.clone(), QueueConfig { kept_bytes_max: 299, ..config() }, NOW).await;
        assert!(queue.push(vec![sized(4, 1)]).await.is_err());
        assert_eq!(queue.sweep(0).await.unwrap().removed, 1);
        assert_eq!(queue.claim(9, ClaimQuota::unlimited(), NOW).await.unwrap().len(), 2);
        queue.push(vec![sized(5, 1_000)]).await.unwrap();
    }
}

/// Returns the indexes that a statement uses in SQLite.
async fn plan(store: &SqlStore, sql: &str, parameters: Vec<SqlValue>) -> String {
    let sql = format!("EXPLAIN QUERY PLAN {sql}");
    let body = move |transaction: &mut dyn StoreTransaction| {
        let rows = transaction.query(&sql, &parameters)?;
        rows.iter().map(|row| row.get::<String>(3)).collect::<Result<Vec<String>, _>>()
    };
    store.read("test.plan", body).await.unwrap().join("; ")
}

#[tokio::test]
async fn no_statement_looks_at_every_job() {
    let scratch = Scratch::new();
    let store = sqlite(scratch.path(), "db").await;
    drop(open(store.clone(), config(), NOW).await);
    let statements = [
        ("UPDATE execution_jobs SET attempts = 1 WHERE id = $1 AND state = 'queued'", 1),
        (
            "UPDATE execution_jobs SET token = 1
            WHERE id = $1 AND token = $2 AND state = 'running'",
            2,
        ),
        ("SELECT id FROM execution_jobs WHERE tenant = $1 AND idempotency_key = $2", 2),
        (
            "SELECT id FROM execution_jobs WHERE state = 'running' AND lease_until <= $1
            ORDER BY lease_until LIMIT $2",
            2,
        ),
        (
            "SELECT id FROM execution_jobs WHERE state = 'queued' AND expires_ms <= $1
            ORDER BY expires_ms LIMIT $2",
            2,
        ),
        (
            "SELECT id FROM execution_jobs WHERE finished_ms <= $1
            ORDER BY finished_ms, id LIMIT $2",
            2,
        ),
        (
            "SELECT request_bytes + result_bytes FROM execution_jobs
            WHERE finished_ms <= $1 ORDER BY finished_ms, id LIMIT $2",
            2,
        ),
        (
            "SELECT id FROM execution_jobs WHERE webhook_due <= $1
            ORDER BY webhook_due, id LIMIT $2",
            2,
        ),
        (
            "SELECT id FROM execution_jobs WHERE state = 'dead' AND tenant = $2
            ORDER BY id LIMIT $1",
            2,
        ),
        ("SELECT id FROM execution_jobs WHERE tenant = $1 AND id < $2 ORDER BY id DESC LIMIT 9", 2),
        (
            "SELECT id FROM execution_jobs WHERE tenant = $1 AND state IN ('dead')
            ORDER BY id DESC LIMIT 9",
            1,
        ),
        ("SELECT id FROM execution_jobs WHERE id < $1 ORDER BY id DESC LIMIT 9", 1),
    ];
    for (sql, count) in statements {
        let plan = plan(&store, sql, vec![SqlValue::from("1"); count]).await;
        assert!(plan.contains("SEARCH") && !plan.contains("SCAN"), "{sql}: {plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
    // Once for each sweep, and from the index alone.
    let sum = "SELECT COUNT(*), SUM(request_bytes + result_bytes) FROM execution_jobs
        WHERE finished_ms IS NOT NULL";
    let plan = plan(&store, sum, Vec::new()).await;
    assert!(plan.contains("COVERING INDEX execution_jobs_finished"), "{plan}");
}
