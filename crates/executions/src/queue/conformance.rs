//! Conformance suite of the queue's back ends: one table of scenarios, and random operations
//! compared with a model.
//!
//! A back end's tests provide a function that creates an empty queue. Time is an argument of the
//! queue, so that no scenario waits for it.

mod homes;
pub(crate) mod model;
mod retention;
mod scenarios;
mod sizes;
mod webhooks;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::{ExecutionId, ExecutionState};

use super::*;

/// Start time of all scenarios.
pub(crate) const NOW: u64 = 1_700_000_000_000;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One named scenario, on an empty queue of its own.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    config: fn(&mut QueueConfig),
    run: fn(Arc<dyn JobQueue>) -> Running,
}

macro_rules! scenario {
    ($name:ident) => {
        scenario!($name, |_config| {})
    };
    ($name:ident, $config:expr) => {
        Scenario {
            name: stringify!($name),
            config: $config,
            run: |queue| Box::pin(async move { scenarios::$name(&*queue).await }),
        }
    };
}

/// All scenarios.
pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(what_is_accepted_is_there_with_all_its_fields),
    scenario!(an_empty_queue_answers_everything_with_nothing),
    scenario!(equals_are_served_in_the_order_they_came),
    scenario!(tenants_take_turns),
    scenario!(a_late_tenant_is_not_owed_the_past),
    scenario!(a_tenant_with_its_quota_in_hand_is_passed_over),
    scenario!(jobs_are_left_to_the_home_of_their_tenant),
    scenario!(a_higher_priority_goes_first),
    scenario!(waiting_counts_as_priority),
    scenario!(the_same_key_is_the_same_job),
    scenario!(a_key_belongs_to_one_request_and_one_tenant),
    scenario!(a_refused_batch_leaves_nothing),
    scenario!(a_full_queue_refuses_whole_batches, |it| it.queued_max = 5),
    scenario!(a_full_tenant_does_not_block_others, |it| it.queued_max_per_tenant = 3),
    scenario!(what_was_pushed_before_needs_no_room, |it| it.queued_max = 2),
    scenario!(waiting_requests_are_bounded_in_bytes, |it| it.queued_bytes_max = 1_000),
    scenario!(a_tenants_waiting_requests_are_bounded_in_bytes, |it| {
        it.queued_bytes_max_per_tenant = 1_000;
    }),
    scenario!(a_lost_lease_is_queued_again_then_dead),
    scenario!(heartbeats_keep_a_lease),
    scenario!(a_late_worker_changes_nothing),
    scenario!(failures_are_tried_again_then_dead),
    scenario!(returned_attempts_do_not_count),
    scenario!(a_waiting_job_is_cancelled_at_once),
    scenario!(a_running_job_is_cancelled_by_its_worker),
    scenario!(what_is_to_be_cancelled_is_not_tried_again),
    scenario!(a_result_counts_even_after_the_wish_to_cancel),
    scenario!(jobs_of_others_cannot_be_cancelled),
    scenario!(a_deadline_passes_only_for_what_waits),
    scenario!(a_paused_queue_hands_out_nothing),
    scenario!(draining_cancels_what_waits),
    scenario!(dead_jobs_are_replayed),
    scenario!(lists_are_filtered),
    scenario!(a_cursor_walks_over_everything_once),
    scenario!(positions_count_what_goes_before),
    scenario!(figures_are_those_of_the_jobs),
    scenario!(what_ended_long_ago_is_forgotten),
    scenario!(no_more_than_the_maximum_is_kept, |it| it.kept_max = 3),
    scenario!(what_is_kept_is_bounded_in_bytes, |it| it.kept_bytes_max = 1_000),
    scenario!(a_forgotten_key_is_free_again),
    scenario!(webhooks_are_due_hidden_and_settled),
    scenario!(every_end_makes_a_webhook_due),
    scenario!(large_requests_and_results_come_back_whole),
    scenario!(concurrent_claims_take_each_job_once),
    scenario!(concurrent_pushes_with_one_key_make_one_job),
    scenario!(odd_names_are_names),
    scenario!(a_push_wakes_who_waits),
];

/// Runs all scenarios except those named in `except`, each on a queue that `make` creates.
pub(crate) async fn check_all(
    make: impl AsyncFn(QueueConfig) -> Arc<dyn JobQueue>,
    except: &[&str],
) {
    for name in except {
        assert!(SCENARIOS.iter().any(|it| it.name == *name), "no scenario {name}");
    }
    for scenario in SCENARIOS.iter().filter(|it| !except.contains(&it.name)) {
        println!("scenario {}", scenario.name);
        let mut config = config();
        (scenario.config)(&mut config);
        (scenario.run)(make(config).await).await;
    }
}

/// Default configuration of a scenario.
pub(crate) fn config() -> QueueConfig {
    QueueConfig {
        queued_max: 1_000,
        queued_max_per_tenant: 500,
        queued_bytes_max: 64 << 20,
        queued_bytes_max_per_tenant: 32 << 20,
        lease: Duration::from_secs(30),
        attempts_max: 2,
        ageing: Duration::from_secs(10),
        keep: Duration::from_secs(3_600),
        kept_max: 1_000,
        kept_bytes_max: 64 << 20,
    }
}

/// Returns the id of a number; ids sort like their numbers.
pub(crate) fn id(number: u64) -> ExecutionId {
    ExecutionId(format!("ex_{number:026}"))
}

/// Returns the number of an id.
pub(crate) fn number(id: &ExecutionId) -> u64 {
    id.0.strip_prefix("ex_").unwrap().parse().unwrap()
}

/// Returns a job that was accepted `number` milliseconds after the start.
pub(crate) fn job(number: u64, tenant: &str) -> NewJob {
    NewJob {
        id: id(number),
        tenant: tenant.to_owned(),
        language: "python".to_owned(),
        label: None,
        priority: 0,
        created_ms: NOW + number,
        deadline_ms: None,
        idempotency: None,
        request: format!("{{\"number\":{number}}}").into_bytes(),
        face: None,
        webhook: false,
    }
}

/// Returns such a job with an idempotency key.
pub(crate) fn keyed(number: u64, tenant: &str, key: &str, fingerprint: u8) -> NewJob {
    let key = key.to_owned();
    let idempotency = Some(IdempotencyMark { key, fingerprint: [fingerprint; 32] });
    NewJob { idempotency, ..job(number, tenant) }
}

/// Pushes jobs that are all new.
async fn push(queue: &dyn JobQueue, jobs: Vec<NewJob>) {
    let count = jobs.len();
    assert_eq!(queue.push(jobs).await.unwrap(), vec![PushOutcome::New; count]);
}

/// Claims up to `max` jobs; also returns their numbers.
async fn claim(queue: &dyn JobQueue, max: usize, now_ms: u64) -> (Vec<JobLease>, Vec<u64>) {
    let claims = queue.claim(max, ClaimQuota::unlimited(), now_ms).await.unwrap();
    let numbers = claims.iter().map(|claim| number(&claim.lease.id)).collect();
    (claims.into_iter().map(|claim| claim.lease).collect(), numbers)
}

/// Claims one job at a time until none is left; returns their numbers.
async fn claim_out(queue: &dyn JobQueue, now_ms: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        match claim(queue, 1, now_ms).await.1.pop() {
            Some(number) => numbers.push(number),
            None => return numbers,
        }
    }
}

/// Claims the one job that must be next.
async fn claim_one(queue: &dyn JobQueue, expected: u64, now_ms: u64) -> JobLease {
    let (mut leases, numbers) = claim(queue, 1, now_ms).await;
    assert_eq!(numbers, [expected]);
    leases.pop().unwrap()
}

async fn get(queue: &dyn JobQueue, number: u64) -> QueuedJob {
    queue.get(id(number), JobParts::default()).await.unwrap().unwrap()
}

async fn state(queue: &dyn JobQueue, number: u64) -> ExecutionState {
    get(queue, number).await.state
}

async fn list(queue: &dyn JobQueue, filter: JobFilter) -> Vec<u64> {
    queue.list(filter).await.unwrap().iter().map(|job| number(&job.id)).collect()
}

fn all() -> JobFilter {
    JobFilter { limit: 1_000, ..JobFilter::default() }
}

fn result(text: &str) -> AttemptResult {
    AttemptResult::Result(text.as_bytes().to_vec())
}

fn failed(message: &str) -> AttemptResult {
    AttemptResult::Failed { message: message.to_owned() }
}

async fn cancel(queue: &dyn JobQueue, number: u64, now_ms: u64) -> CancelAnswer {
    queue.cancel("a".to_owned(), id(number), "no need".to_owned(), now_ms).await.unwrap()
}

fn set(numbers: &[u64]) -> BTreeSet<u64> {
    numbers.iter().copied().collect()
}
