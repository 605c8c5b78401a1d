//! The scenarios, one function each. Each name is an assertion.

pub(super) use super::homes::*;
pub(super) use super::retention::*;
pub(super) use super::sizes::*;
pub(super) use super::webhooks::*;
use super::*;

const NOTHING: [u64; 0] = [];

pub(super) async fn what_is_accepted_is_there_with_all_its_fields(queue: &dyn JobQueue) {
    let new = NewJob {
        language: "c".to_owned(),
        label: Some("homework 3".to_owned()),
        priority: -7,
        deadline_ms: Some(NOW + 60_000),
        face: Some("{\"judge0\":71}".to_owned()),
        webhook: true,
        ..keyed(1, "a", "key", 1)
    };
    push(queue, vec![new.clone()]).await;
    let mut expected = QueuedJob {
        id: new.id,
        tenant: new.tenant,
        state: ExecutionState::Queued,
        language: new.language,
        label: new.label,
        priority: new.priority,
        created_ms: new.created_ms,
        deadline_ms: new.deadline_ms,
        started_ms: None,
        finished_ms: None,
        attempts: 0,
        message: None,
        verdict: None,
        face: new.face,
        request: None,
        result: None,
    };
    assert_eq!(get(queue, 1).await, expected);
    // Lists omit the parts that may be large.
    let listed = QueuedJob { face: None, ..expected.clone() };
    assert_eq!(queue.list(all()).await.unwrap(), [listed]);

    let claims = queue.claim(5, ClaimQuota::unlimited(), NOW + 10).await.unwrap();
    assert_eq!(claims.len(), 1);
    assert_eq!((claims[0].tenant.as_str(), claims[0].attempt), ("a", 1));
    assert_eq!(claims[0].request, new.request);
    (expected.state, expected.started_ms, expected.attempts) =
        (ExecutionState::Running, Some(NOW + 10), 1);
    assert_eq!(get(queue, 1).await, expected);

    let ended = queue.finish(claims[0].lease.clone(), result("{\"out\":1}"), NOW + 20).await;
    assert_eq!(ended.unwrap(), AttemptDisposition::Now(ExecutionState::Finished));
    (expected.state, expected.finished_ms) = (ExecutionState::Finished, Some(NOW + 20));
    assert_eq!(get(queue, 1).await, expected);
    (expected.request, expected.result) = (Some(new.request), Some(b"{\"out\":1}".to_vec()));
    let parts = JobParts { request: true, result: true };
    assert_eq!(queue.get(id(1), parts).await.unwrap(), Some(expected));
}

pub(super) async fn an_empty_queue_answers_everything_with_nothing(queue: &dyn JobQueue) {
    let parts = JobParts { request: true, result: true };
    let lease = JobLease { id: id(1), token: "1".to_owned() };
    assert_eq!(queue.push(Vec::new()).await.unwrap(), []);
    assert_eq!(queue.claim(9, ClaimQuota::unlimited(), NOW).await.unwrap(), []);
    assert_eq!(queue.heartbeat(vec![lease.clone()], NOW).await.unwrap(), [LeaseRenewal::Lost]);
    assert_eq!(queue.finish(lease, result("{}"), NOW).await.unwrap(), AttemptDisposition::Fenced);
    assert_eq!(cancel(queue, 1, NOW).await, CancelAnswer::Unknown);
    assert_eq!(queue.get(id(1), parts).await.unwrap(), None);
    assert_eq!(queue.list(all()).await.unwrap(), []);
    assert_eq!(queue.position(id(1), NOW).await.unwrap(), None);
    assert_eq!(queue.drain(None, NOW).await.unwrap(), []);
    assert_eq!(queue.replay(None, None, NOW).await.unwrap(), []);
    assert_eq!(queue.sweep(NOW).await.unwrap(), QueueSweepReport::default());
    assert_eq!(queue.due_webhooks(9, Duration::from_secs(1), NOW).await.unwrap(), []);
    queue.settle_webhook(id(1), Some(NOW)).await.unwrap();
    let stats = queue.stats(None, NOW).await.unwrap();
    assert_eq!((stats.queued, stats.oldest_queued_ms, stats.tenants_waiting), (0, None, 0));
}

pub(super) async fn equals_are_served_in_the_order_they_came(queue: &dyn JobQueue) {
    push(queue, (1..=20).map(|number| job(number, "a")).collect()).await;
    push(queue, vec![job(21, "a")]).await;
    assert_eq!(claim(queue, 5, NOW + 100).await.1, [1, 2, 3, 4, 5]);
    assert_eq!(claim_out(queue, NOW + 100).await, (6..=21).collect::<Vec<u64>>());
}

pub(super) async fn tenants_take_turns(queue: &dyn JobQueue) {
    push(queue, (1..=6).map(|number| job(number, "a")).collect()).await;
    push(queue, vec![job(7, "b"), job(8, "b"), job(9, "c")]).await;
    let order = claim_out(queue, NOW + 100).await;
    // The first tenant is not specified, but each round has every tenant that still waits.
    assert_eq!(set(&order[..3]), set(&[1, 7, 9]), "{order:?}");
    assert_eq!(set(&order[3..5]), set(&[2, 8]), "{order:?}");
    assert_eq!(order[5..], [3, 4, 5, 6]);
}

pub(super) async fn a_late_tenant_is_not_owed_the_past(queue: &dyn JobQueue) {
    push(queue, (1..=10).map(|number| job(number, "a")).collect()).await;
    assert_eq!(claim(queue, 6, NOW + 100).await.1.len(), 6);
    push(queue, (11..=14).map(|number| job(number, "b")).collect()).await;
    let order = claim_out(queue, NOW + 100).await;
    for round in order.chunks(2) {
        assert!(round.iter().any(|number| *number <= 10), "{order:?}");
        assert!(round.iter().any(|number| *number > 10), "{order:?}");
    }
}

pub(super) async fn a_tenant_with_its_quota_in_hand_is_passed_over(queue: &dyn JobQueue) {
    let tenant = |number| if number < 7 { "a" } else { "b" };
    push(queue, (1..=10).map(|number| job(number, tenant(number))).collect()).await;
    let numbers = async |max, in_hand: &[(&str, usize)], in_hand_max| {
        let in_hand = in_hand.iter().map(|(tenant, count)| ((*tenant).to_owned(), *count));
        let quota = ClaimQuota::new(in_hand_max, in_hand.collect());
        let claims = queue.claim(max, quota, NOW + 100).await.unwrap();
        set(&claims.iter().map(|claim| number(&claim.lease.id)).collect::<Vec<_>>())
    };
    assert_eq!(numbers(9, &[("a", 1)], 2).await, set(&[1, 7, 8]));
    assert_eq!(numbers(9, &[("a", 2), ("b", 2)], 2).await, set(&NOTHING));
    assert_eq!(numbers(9, &[("a", 2), ("b", 1)], 2).await, set(&[9]));
    assert_eq!(numbers(1, &[("a", 0), ("b", 2)], 2).await, set(&[2]));
    assert_eq!(set(&claim_out(queue, NOW + 100).await), set(&[3, 4, 5, 6, 10]));
}

pub(super) async fn a_higher_priority_goes_first(queue: &dyn JobQueue) {
    let priorities = [(1, 0), (2, -100), (3, 100), (4, 0), (5, 1)];
    let jobs = priorities.map(|(number, priority)| NewJob { priority, ..job(number, "a") });
    push(queue, jobs.to_vec()).await;
    assert_eq!(claim_out(queue, NOW + 100).await, [3, 5, 1, 4, 2]);
}

pub(super) async fn waiting_counts_as_priority(queue: &dyn JobQueue) {
    // Ten seconds of waiting count as one step.
    push(queue, vec![NewJob { priority: 0, ..job(1, "a") }]).await;
    push(queue, vec![NewJob { priority: 2, ..job(25_000, "a") }]).await;
    push(queue, vec![NewJob { priority: 3, ..job(25_001, "a") }]).await;
    assert_eq!(claim_out(queue, NOW + 26_000).await, [25_001, 1, 25_000]);
}

pub(super) async fn the_same_key_is_the_same_job(queue: &dyn JobQueue) {
    let batch = vec![keyed(1, "a", "k", 1), job(2, "a"), keyed(3, "a", "k", 1)];
    let pushed = queue.push(batch).await.unwrap();
    assert_eq!(pushed, [PushOutcome::New, PushOutcome::New, PushOutcome::Before(id(1))]);
    assert_eq!(
        queue.push(vec![keyed(4, "a", "k", 1)]).await.unwrap(),
        [PushOutcome::Before(id(1))]
    );
    assert_eq!(list(queue, all()).await, [2, 1]);
    // In every later state as well.
    let lease = claim_one(queue, 1, NOW + 10).await;
    assert_eq!(
        queue.push(vec![keyed(5, "a", "k", 1)]).await.unwrap(),
        [PushOutcome::Before(id(1))]
    );
    queue.finish(lease, result("{}"), NOW + 11).await.unwrap();
    assert_eq!(
        queue.push(vec![keyed(6, "a", "k", 1)]).await.unwrap(),
        [PushOutcome::Before(id(1))]
    );
    assert_eq!(claim_out(queue, NOW + 12).await, [2]);
}

pub(super) async fn a_key_belongs_to_one_request_and_one_tenant(queue: &dyn JobQueue) {
    push(queue, vec![keyed(1, "a", "k", 1), keyed(2, "b", "k", 2), keyed(3, "a", "l", 2)]).await;
    let reused = queue.push(vec![keyed(4, "a", "k", 2)]).await.unwrap_err();
    assert!(matches!(reused, QueueError::KeyReused), "{reused:?}");
    assert_eq!(list(queue, all()).await, [3, 2, 1]);
}

pub(super) async fn a_refused_batch_leaves_nothing(queue: &dyn JobQueue) {
    push(queue, vec![keyed(1, "a", "k", 1)]).await;
    let batch = vec![job(2, "a"), keyed(3, "a", "new", 1), keyed(4, "a", "k", 9), job(5, "b")];
    assert!(matches!(queue.push(batch).await.unwrap_err(), QueueError::KeyReused));
    let batch = vec![keyed(6, "a", "m", 1), keyed(7, "a", "m", 2)];
    assert!(matches!(queue.push(batch).await.unwrap_err(), QueueError::KeyReused));
    assert_eq!(list(queue, all()).await, [1]);
    assert_eq!(claim_out(queue, NOW + 10).await, [1]);
    // Nor are its keys used up.
    push(queue, vec![keyed(8, "a", "new", 2)]).await;
}

pub(super) async fn a_full_queue_refuses_whole_batches(queue: &dyn JobQueue) {
    push(queue, (1..=4).map(|number| job(number, "a")).collect()).await;
    let full = queue.push(vec![job(5, "b"), job(6, "c")]).await.unwrap_err();
    assert!(matches!(full, QueueError::Full { queued_max: 5 }), "{full:?}");
    assert_eq!(list(queue, all()).await.len(), 4);
    push(queue, vec![job(5, "b")]).await;
    assert!(matches!(queue.push(vec![job(6, "a")]).await, Err(QueueError::Full { .. })));
    // Running jobs do not count as waiting; returned ones do, and are never refused.
    let (mut leases, _) = claim(queue, 2, NOW + 10).await;
    push(queue, vec![job(6, "a"), job(7, "a")]).await;
    assert!(matches!(queue.push(vec![job(8, "a")]).await, Err(QueueError::Full { .. })));
    queue.finish(leases.pop().unwrap(), AttemptResult::Returned, NOW + 11).await.unwrap();
    assert_eq!(queue.stats(None, NOW + 11).await.unwrap().queued, 6);
    // Cancelled, drained and expired ones make room.
    queue.drain(None, NOW + 12).await.unwrap();
    push(queue, (11..=15).map(|number| job(number, "a")).collect()).await;
    assert_eq!(cancel(queue, 12, NOW + 20).await, CancelAnswer::Cancelled);
    push(queue, vec![NewJob { deadline_ms: Some(NOW + 30), ..job(16, "a") }]).await;
    queue.sweep(NOW + 30).await.unwrap();
    push(queue, vec![job(17, "a")]).await;
    assert!(matches!(queue.push(vec![job(18, "a")]).await, Err(QueueError::Full { .. })));
}

pub(super) async fn a_full_tenant_does_not_block_others(queue: &dyn JobQueue) {
    push(queue, (1..=3).map(|number| job(number, "a")).collect()).await;
    let full = queue.push(vec![job(4, "b"), job(5, "a")]).await.unwrap_err();
    assert!(matches!(full, QueueError::TenantFull { queued_max: 3 }), "{full:?}");
    push(queue, (4..=6).map(|number| job(number, "b")).collect()).await;
    assert_eq!(claim_out(queue, NOW + 10).await.len(), 6);
}

pub(super) async fn what_was_pushed_before_needs_no_room(queue: &dyn JobQueue) {
    push(queue, vec![keyed(1, "a", "k", 1), job(2, "a")]).await;
    assert_eq!(
        queue.push(vec![keyed(3, "a", "k", 1)]).await.unwrap(),
        [PushOutcome::Before(id(1))]
    );
    let batch = vec![keyed(4, "a", "k", 1), job(5, "a")];
    assert!(matches!(queue.push(batch).await, Err(QueueError::Full { .. })));
}

pub(super) async fn a_lost_lease_is_queued_again_then_dead(queue: &dyn JobQueue) {
    push(queue, vec![job(1, "a")]).await;
    let first = claim_one(queue, 1, NOW).await;
    assert_eq!(queue.sweep(NOW + 29_999).await.unwrap(), QueueSweepReport::default());
    let swept = queue.sweep(NOW + 30_000).await.unwrap();
    assert_eq!(swept, QueueSweepReport { requeued: vec![id(1)], ..QueueSweepReport::default() });
    assert_eq!(state(queue, 1).await, ExecutionState::Queued);
    let beats = queue.heartbeat(vec![first], NOW + 30_001).await.unwrap();
    assert_eq!(beats, [LeaseRenewal::Lost]);

    let claims = queue.claim(1, ClaimQuota::unlimited(), NOW + 40_000).await.unwrap();
    assert_eq!(claims[0].attempt, 2);
    let swept = queue.sweep(NOW + 70_000).await.unwrap();
    assert_eq!(
        swept,
        QueueSweepReport {
            ended: vec![(id(1), ExecutionState::Dead)],
            ..QueueSweepReport::default()
        }
    );
    let dead = get(queue, 1).await;
    assert_eq!((dead.state, dead.attempts), (ExecutionState::Dead, 2));
    assert_eq!(dead.finished_ms, Some(NOW + 70_000));
    assert!(dead.message.is_some_and(|message| !message.is_empty()));
    assert_eq!(claim_out(queue, NOW + 80_000).await, NOTHING);
}

pub(super) async fn heartbeats_keep_a_lease(queue: &dyn JobQueue) {
    push(queue, vec![job(1, "a"), job(2, "a")]).await;
    let (leases, _) = claim(queue, 2, NOW).await;
    let beats = queue.heartbeat(vec![leases[1].clone()], NOW + 20_000).await.unwrap();
    assert_eq!(beats, [LeaseRenewal::Held]);
    assert_eq!(queue.sweep(NOW + 30_000).await.unwrap().requeued, [id(1)]);
    let beats = queue.heartbeat(leases, NOW + 40_000).await.unwrap();
    assert_eq!(beats, [LeaseRenewal::Lost, LeaseRenewal::Held]);
    assert_eq!(queue.sweep(NOW + 69_999).await.unwrap().requeued, []);
    assert_eq!(queue.sweep(NOW + 70_000).await.unwrap().requeued, [id(2)]);
}

pub(super) async fn a_late_worker_changes_nothing(queue: &dyn JobQueue) {
    push(queue, vec![job(1, "a")]).await;
    let late = claim_one(queue, 1, NOW).await;
    queue.sweep(NOW + 30_000).await.unwrap();
    let ends = [
        result("late"),
        failed("late"),
        AttemptResult::Returned,
        AttemptResult::Cancelled { message: "late".to_owned() },
    ];
    // While it waits, while another worker runs it, and after it has ended.
    for step in 0..3 {
        let before = queue.get(id(1), JobParts { request: true, result: true }).await.unwrap();
        for end in &ends {
            let ended = queue.finish(late.clone(), end.clone(), NOW + 31_000).await.unwrap();
            assert_eq!(ended, AttemptDisposition::Fenced, "step {step}: {end:?}");
        }
        let beats = queue.heartbeat(vec![late.clone()], NOW + 31_000).await.unwrap();
        assert_eq!(beats, [LeaseRenewal::Lost], "step {step}");
        let after = queue.get(id(1), JobParts { request: true, result: true }).await.unwrap();
        assert_eq!(after, before, "step {step}");
        if step == 0 {
            let current = claim_one(queue, 1, NOW + 32_000).await;
            assert_ne!(current.token, late.token);
            // The current lease is still held after all that.
            let beats = queue.heartbeat(vec![current.clone()], NOW + 33_000).await.unwrap();
            assert_eq!(beats, [LeaseRenewal::Held]);
        }
        if step == 1 {
            queue.sweep(NOW + 63_000).await.unwrap();
            assert_eq!(state(queue, 1).await, ExecutionState::Dead);
        }
    }
    let made_up = JobLease { id: id(1), token: "not a token '--".to_owned() };
    assert_eq!(queue.finish(made_up, result("x"), NOW).await.unwrap(), AttemptDisposition::Fenced);
}

pub(super) async fn failures_are_tried_again_then_dead(queue: &dyn JobQueue) {
    push(queue, vec![job(1, "a"), job(2, "a")]).await;
    let lease = claim_one(queue, 1, NOW).await;
    let ended = queue.finish(lease.clone(), failed("no sandbox"), NOW + 10).await.unwrap();
    assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Queued));
    let waiting = get(queue, 1).await;
    assert_eq!((waiting.state, waiting.attempts), (ExecutionState::Queued, 1));
    assert_eq!(waiting.message.as_deref(), Some("no sandbox"));
    // It keeps its age, so it runs first.
    let again = claim_one(queue, 1, NOW + 20).await;
    assert_ne!(again.token, lease.token);
    let ended = queue.finish(again, failed("no spawner"), NOW + 30).await.unwrap();
    assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Dead));
    let dead = get(queue, 1).await;
    assert_eq!((dead.state, dead.attempts), (ExecutionState::Dead, 2));
    assert_eq!(dead.message.as_deref(), Some("no spawner"));
    assert_eq!(dead.finished_ms, Some(NOW + 30));
    assert_eq!(claim_out(queue, NOW + 40).await, [2]);
}

pub(super) async fn returned_attempts_do_not_count(queue: &dyn JobQueue) {
    push(queue, vec![job(1, "a")]).await;
    for round in 0..5 {
        let claims = queue.claim(1, ClaimQuota::unlimited(), NOW + round).await.unwrap();
        assert_eq!(claims[0].attempt, 1);
        let lease = claims[0].lease.clone();
        let ended = queue.finish(lease, AttemptResult::Returned, NOW + round).await.unwrap();
        assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Queued));
        assert_eq!(get(queue, 1).await.attempts, 0);
    }
}

pub(super) async fn a_waiting_job_is_cancelled_at_once(queue: &dyn JobQueue) {
    push(queue, vec![job(1, "a"), job(2, "a")]).await;
    assert_eq!(cancel(queue, 1, NOW + 10).await, CancelAnswer::Cancelled);
    let job = get(queue, 1).await;
    assert_eq!((job.state, job.finished_ms), (ExecutionState::Cancelled, Some(NOW + 10)));
    assert_eq!(job.message.as_deref(), Some("no need"));
    assert_eq!(cancel(queue, 1, NOW + 11).await, CancelAnswer::Ended(ExecutionState::Cancelled));
    assert_eq!(claim_out(queue, NOW + 12).await, [2]);
}

pub(super) async fn a_running_job_is_cancelled_by_its_worker(queue: &dyn JobQueue) {
    push(queue, vec![job(1, "a"), job(2, "a")]).await;
    let (leases, _) = claim(queue, 2, NOW).await;
    assert_eq!(cancel(queue, 1, NOW + 1).await, CancelAnswer::Running);
    assert_eq!(cancel(queue, 1, NOW + 2).await, CancelAnswer::Running);
    assert_eq!(state(queue, 1).await, ExecutionState::Running);
    let beats = queue.heartbeat(leases.clone(), NOW + 3).await.unwrap();
    assert_eq!(beats, [LeaseRenewal::CancelWanted, LeaseRenewal::Held]);
    let end = AttemptResult::Cancelled { message: "stopped".to_owned() };
    let ended = queue.finish(leases[0].clone(), end, NOW + 4).await.unwrap();
    assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Cancelled));
    let job = get(queue, 1).await;
    assert_eq!((job.message.as_deref(), job.finished_ms), (Some("stopped"), Some(NOW + 4)));
    assert_eq!(cancel(queue, 1, NOW + 5).await, CancelAnswer::Ended(ExecutionState::Cancelled));
}

pub(super) async fn what_is_to_be_cancelled_is_not_tried_again(queue: &dyn JobQueue) {
    push(queue, vec![job(1, "a"), job(2, "a"), job(3, "a")]).await;
    let (leases, _) = claim(queue, 3, NOW).await;
    for number in 1..=3 {
        assert_eq!(cancel(queue, number, NOW + 1).await, CancelAnswer::Running);
    }
    let ended = queue.finish(leases[0].clone(), failed("no sandbox"), NOW + 2).await.unwrap();
    assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Cancelled));
    let ended = queue.finish(leases[1].clone(), AttemptResult::Returned, NOW + 2).await.unwrap();
    assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Cancelled));
    let swept = queue.sweep(NOW + 30_000).await.unwrap();
    assert_eq!(
        swept,
        QueueSweepReport {
            ended: vec![(id(3), ExecutionState::Cancelled)],
            ..QueueSweepReport::default()
        }
    );
    assert_eq!(claim_out(queue, NOW + 30_001).await, NOTHING);
}

pub(super) async fn a_result_counts_even_after_the_wish_to_cancel(queue: &dyn JobQueue) {
    push(queue, vec![job(1, "a")]).await;
    let lease = claim_one(queue, 1, NOW).await;
    assert_eq!(cancel(queue, 1, NOW + 1).await, CancelAnswer::Running);
    let ended = queue.finish(lease, result("{}"), NOW + 2).await.unwrap();
    assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Finished));
    assert_eq!(cancel(queue, 1, NOW + 3).await, CancelAnswer::Ended(ExecutionState::Finished));
}

pub(super) async fn jobs_of_others_cannot_be_cancelled(queue: &dyn JobQueue) {
    push(queue, vec![job(1, "b"), job(2, "b")]).await;
    claim_one(queue, 1, NOW).await;
    for number in 1..=3 {
        assert_eq!(cancel(queue, number, NOW + 1).await, CancelAnswer::Unknown);
    }
    assert_eq!(state(queue, 1).await, ExecutionState::Running);
    assert_eq!(claim_out(queue, NOW + 2).await, [2]);
}

pub(super) async fn a_deadline_passes_only_for_what_waits(queue: &dyn JobQueue) {
    let deadlines = [(1, Some(100)), (2, Some(200)), (3, None), (4, Some(100))];
    for (number, deadline) in deadlines {
        let deadline_ms = deadline.map(|ms| NOW + ms);
        push(queue, vec![NewJob { deadline_ms, ..job(number, "a") }]).await;
    }
    let lease = claim_one(queue, 1, NOW + 99).await;
    // It is no longer claimed, even before a sweep.
    assert_eq!(claim(queue, 1, NOW + 100).await.1, [2]);
    let swept = queue.sweep(NOW + 100).await.unwrap();
    assert_eq!(
        swept,
        QueueSweepReport {
            ended: vec![(id(4), ExecutionState::Expired)],
            ..QueueSweepReport::default()
        }
    );
    let expired = get(queue, 4).await;
    assert_eq!((expired.state, expired.finished_ms), (ExecutionState::Expired, Some(NOW + 100)));
    assert!(expired.message.is_some());
    assert_eq!(state(queue, 1).await, ExecutionState::Running);
    let ended = queue.finish(lease, result("{}"), NOW + 150).await.unwrap();
    assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Finished));
    assert_eq!(claim_out(queue, NOW + 300).await, [3]);
}

pub(super) async fn a_paused_queue_hands_out_nothing(queue: &dyn JobQueue) {
    push(queue, vec![job(1, "a"), job(2, "b")]).await;
    let running = claim(queue, 1, NOW).await.0.pop().unwrap();
    queue.set_paused(true).await.unwrap();
    queue.set_paused(true).await.unwrap();
    assert!(queue.stats(None, NOW).await.unwrap().paused);
    push(queue, vec![job(3, "a")]).await;
    assert_eq!(claim(queue, 9, NOW + 1).await.1, NOTHING);
    // The running job continues, and waiting ones can be cancelled.
    let ended = queue.finish(running, result("{}"), NOW + 2).await.unwrap();
    assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Finished));
    assert_eq!(cancel(queue, 3, NOW + 3).await, CancelAnswer::Cancelled);
    queue.set_paused(false).await.unwrap();
    queue.set_paused(false).await.unwrap();
    assert!(!queue.stats(None, NOW).await.unwrap().paused);
    assert_eq!(claim_out(queue, NOW + 4).await.len(), 1);
}

pub(super) async fn draining_cancels_what_waits(queue: &dyn JobQueue) {
    let whose = |number: u64| if number.is_multiple_of(2) { "a" } else { "b" };
    push(queue, (1..=8).map(|number| job(number, whose(number))).collect()).await;
    let (_, running) = claim(queue, 2, NOW + 10).await;
    let waiting: Vec<u64> = (1..=8).filter(|number| !running.contains(number)).collect();
    let of = |tenant: &str| -> BTreeSet<u64> {
        waiting.iter().copied().filter(|number| whose(*number) == tenant).collect()
    };
    let drained = queue.drain(Some("a".to_owned()), NOW + 20).await.unwrap();
    assert_eq!(drained.iter().map(number).collect::<BTreeSet<u64>>(), of("a"));
    let drained = queue.drain(None, NOW + 21).await.unwrap();
    assert_eq!(drained.iter().map(number).collect::<BTreeSet<u64>>(), of("b"));
    for number in waiting {
        let job = get(queue, number).await;
        assert_eq!(job.state, ExecutionState::Cancelled);
        assert!(job.message.is_some() && job.finished_ms.is_some());
    }
    assert_eq!(claim_out(queue, NOW + 30).await, NOTHING);
    assert_eq!(queue.stats(None, NOW).await.unwrap().running, 2);
}

pub(super) async fn dead_jobs_are_replayed(queue: &dyn JobQueue) {
    let tenants = [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "a")];
    push(queue, tenants.map(|(number, tenant)| job(number, tenant)).to_vec()).await;
    for round in 0..2 {
        for lease in claim(queue, 5, NOW + 10 + round).await.0 {
            queue.finish(lease, failed("broken"), NOW + 10 + round).await.unwrap();
        }
    }
    assert_eq!(queue.stats(None, NOW + 20).await.unwrap().dead, 5);
    let of_a = || Some("a".to_owned());
    // Only the tenant's own jobs, and only dead ones.
    assert_eq!(queue.replay(of_a(), Some(id(3)), NOW + 20).await.unwrap(), []);
    assert_eq!(queue.replay(of_a(), Some(id(9)), NOW + 20).await.unwrap(), []);
    assert_eq!(queue.replay(of_a(), Some(id(2)), NOW + 20).await.unwrap(), [id(2)]);
    assert_eq!(queue.replay(of_a(), Some(id(2)), NOW + 20).await.unwrap(), []);
    let fresh = get(queue, 2).await;
    assert_eq!((fresh.state, fresh.attempts, fresh.finished_ms), (ExecutionState::Queued, 0, None));
    // With fresh attempts.
    for state in [ExecutionState::Queued, ExecutionState::Dead] {
        let lease = claim_one(queue, 2, NOW + 30).await;
        let ended = queue.finish(lease, failed("broken"), NOW + 31).await.unwrap();
        assert_eq!(ended, AttemptDisposition::Now(state));
    }
    let replayed = queue.replay(of_a(), None, NOW + 40).await.unwrap();
    assert_eq!(replayed.iter().map(number).collect::<BTreeSet<u64>>(), set(&[1, 2, 5]));
    let replayed = queue.replay(None, None, NOW + 40).await.unwrap();
    assert_eq!(replayed.iter().map(number).collect::<BTreeSet<u64>>(), set(&[3, 4]));
    let (leases, numbers) = claim(queue, 9, NOW + 50).await;
    assert_eq!(set(&numbers), set(&[1, 2, 3, 4, 5]));
    for lease in leases {
        let ended = queue.finish(lease, result("{}"), NOW + 51).await.unwrap();
        assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Finished));
    }
}

pub(super) async fn lists_are_filtered(queue: &dyn JobQueue) {
    let mut jobs = Vec::new();
    for number in 1..=12 {
        jobs.push(NewJob {
            language: if number % 3 == 0 { "c" } else { "python" }.to_owned(),
            label: (number % 4 == 0).then(|| "exam".to_owned()),
            ..job(number, if number <= 6 { "a" } else { "b" })
        });
    }
    push(queue, jobs).await;
    let lease = claim(queue, 1, NOW + 20).await.0.pop().unwrap();
    let first = number(&lease.id);
    queue.finish(lease, result("{}"), NOW + 21).await.unwrap();
    queue.cancel("b".to_owned(), id(12), "x".to_owned(), NOW + 22).await.unwrap();

    let of = |tenant: &str| JobFilter { tenant: Some(tenant.to_owned()), ..all() };
    let language = |it: &str| Some(it.to_owned());
    assert_eq!(list(queue, all()).await, (1..=12).rev().collect::<Vec<u64>>());
    assert_eq!(list(queue, of("a")).await, [6, 5, 4, 3, 2, 1]);
    assert_eq!(list(queue, of("nobody")).await, NOTHING);
    assert_eq!(list(queue, JobFilter { language: language("c"), ..all() }).await, [12, 9, 6, 3]);
    assert_eq!(list(queue, JobFilter { language: language("c"), ..of("a") }).await, [6, 3]);
    let labelled = JobFilter { label: Some("exam".to_owned()), ..all() };
    assert_eq!(list(queue, labelled.clone()).await, [12, 8, 4]);
    assert_eq!(list(queue, JobFilter { language: language("c"), ..labelled }).await, [12]);
    let ended =
        JobFilter { states: vec![ExecutionState::Cancelled, ExecutionState::Finished], ..all() };
    assert_eq!(list(queue, ended.clone()).await, [12, first]);
    assert_eq!(
        list(queue, JobFilter { states: vec![ExecutionState::Dead], ..all() }).await,
        NOTHING
    );
    let queued =
        JobFilter { states: vec![ExecutionState::Queued, ExecutionState::Queued], ..of("b") };
    let expected: Vec<u64> = (7..=11).rev().filter(|number| *number != first).collect();
    assert_eq!(list(queue, queued).await, expected);
    assert_eq!(list(queue, JobFilter { before: Some(id(4)), ..of("a") }).await, [3, 2, 1]);
    assert_eq!(list(queue, JobFilter { limit: 2, before: Some(id(6)), ..of("a") }).await, [5, 4]);
    assert_eq!(list(queue, JobFilter { limit: 0, ..all() }).await, NOTHING);
    // Oldest first, with the cursor at either end, and the search for parts.
    let ascending = || JobFilter { order: JobOrder::Ascending, ..all() };
    assert_eq!(list(queue, ascending()).await, (1..=12).collect::<Vec<u64>>());
    let from = JobFilter { before: Some(id(4)), limit: 2, ..ascending() };
    assert_eq!(list(queue, from).await, [5, 6]);
    for (part, expected) in [("xa", vec![12, 8, 4]), ("exam", vec![12, 8, 4]), ("Exam", vec![])] {
        let filter = JobFilter { label_text: Some(part.to_owned()), ..all() };
        assert_eq!(list(queue, filter).await, expected, "{part}");
    }
    let prefix =
        |prefix: &str, order| JobFilter { id_prefix: Some(prefix.to_owned()), order, ..all() };
    let whole = id(5).0;
    for order in [JobOrder::Ascending, JobOrder::Descending] {
        assert_eq!(list(queue, prefix(&whole, order)).await, [5]);
        assert_eq!(list(queue, prefix(&whole[..3], order)).await.len(), 12);
        assert_eq!(list(queue, prefix("zz", order)).await, NOTHING);
        let beyond = JobFilter { before: Some(id(5)), ..prefix(&whole, order) };
        assert_eq!(list(queue, beyond).await, NOTHING, "{order:?}");
    }
    let made = queue.get(id(6), JobParts::default()).await.unwrap().unwrap().created_ms;
    let since = JobFilter { from_ms: Some(made), ..ascending() };
    let until = JobFilter { to_ms: Some(made), ..ascending() };
    let (since, until) = (list(queue, since).await, list(queue, until).await);
    assert!(since.contains(&6) && !until.contains(&6), "{since:?} {until:?}");
    assert_eq!(since.len() + until.len(), 12);
}

pub(super) async fn a_cursor_walks_over_everything_once(queue: &dyn JobQueue) {
    for start in [1, 101, 201] {
        let numbers = start..=(start + 99).min(250);
        push(queue, numbers.map(|number| job(number, "a")).collect()).await;
    }
    push(queue, vec![job(900, "b")]).await;
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let of_a = Some("a".to_owned());
        let page = list(queue, JobFilter { tenant: of_a, before, limit: 17, ..all() }).await;
        let Some(last) = page.last() else {
            break;
        };
        before = Some(id(*last));
        seen.extend(page);
        // New jobs are newer, and a job that changes its state keeps its place.
        let comes = 1_000 + u64::try_from(seen.len()).unwrap();
        push(queue, vec![job(comes, "a")]).await;
        claim(queue, 3, NOW + 5_000).await;
    }
    assert_eq!(seen, (1..=250).rev().collect::<Vec<u64>>());
}

pub(super) async fn positions_count_what_goes_before(queue: &dyn JobQueue) {
    push(queue, (1..=5).map(|number| job(number, "a")).collect()).await;
    push(queue, vec![NewJob { priority: 5, ..job(6, "a") }]).await;
    let expected = [(6, Some(0)), (1, Some(1)), (2, Some(2)), (5, Some(5)), (7, None)];
    for (number, position) in expected {
        let found = queue.position(id(number), NOW + 10).await.unwrap();
        assert_eq!(found, position, "of {number}");
    }
    claim_one(queue, 6, NOW + 10).await;
    assert_eq!(queue.position(id(6), NOW + 11).await.unwrap(), None);
    assert_eq!(queue.position(id(1), NOW + 11).await.unwrap(), Some(0));
    // Others take turns with it: between its own position and that plus one of theirs for each.
    push(queue, (11..=20).map(|number| job(number, "b")).collect()).await;
    let position = queue.position(id(5), NOW + 30).await.unwrap().unwrap();
    assert!((8..=9).contains(&position), "{position}");
    cancel(queue, 1, NOW + 31).await;
    let position = queue.position(id(2), NOW + 32).await.unwrap().unwrap();
    assert!(position <= 1, "{position}");
}

pub(super) async fn figures_are_those_of_the_jobs(queue: &dyn JobQueue) {
    push(queue, (1..=6).map(|number| job(number, "a")).collect()).await;
    push(queue, (7..=9).map(|number| job(number, "b")).collect()).await;
    let expires = NewJob { deadline_ms: Some(NOW + 50), ..job(10, "c") };
    push(queue, vec![expires]).await;
    let (leases, _) = claim(queue, 4, NOW + 20).await;
    queue.finish(leases[0].clone(), result("{}"), NOW + 21).await.unwrap();
    queue.sweep(NOW + 50).await.unwrap();
    cancel(queue, 6, NOW + 51).await;
    let stats = queue.stats(None, NOW + 1_000).await.unwrap();
    assert_eq!(stats.backend, queue.backend());
    assert!(!stats.paused);
    // One of the four claimed jobs may have been the one that would expire.
    let sum = stats.queued + stats.running + stats.finished + stats.cancelled + stats.expired;
    assert_eq!(sum + stats.dead, 10);
    assert_eq!((stats.running, stats.finished, stats.cancelled), (3, 1, 1));
    let oldest = list(queue, JobFilter { states: vec![ExecutionState::Queued], ..all() })
        .await
        .pop()
        .unwrap();
    assert_eq!(stats.oldest_queued_ms, Some(1_000 - oldest));
    let waiting_of = async |tenant: &str| {
        let filter = JobFilter {
            states: vec![ExecutionState::Queued],
            tenant: Some(tenant.to_owned()),
            ..all()
        };
        u64::try_from(list(queue, filter).await.len()).unwrap()
    };
    let (a, b) = (waiting_of("a").await, waiting_of("b").await);
    assert_eq!(stats.queued, a + b);
    assert_eq!(stats.tenants_waiting, u64::from(a > 0) + u64::from(b > 0));
    let of_a = queue.stats(Some("a".to_owned()), NOW + 1_000).await.unwrap();
    assert_eq!((of_a.queued, of_a.cancelled, of_a.expired), (a, 1, 0));
    assert_eq!(of_a.tenants_waiting, u64::from(a > 0));
    let nobody = queue.stats(Some("nobody".to_owned()), NOW).await.unwrap();
    assert_eq!((nobody.queued, nobody.finished, nobody.oldest_queued_ms), (0, 0, None));
}

pub(super) async fn large_requests_and_results_come_back_whole(queue: &dyn JobQueue) {
    let text = |seed: &str| format!("{{\"s\":\"{}\"}}", seed.repeat((1 << 20) / seed.len()));
    let (request, answer) = (text("abc é \u{1f980} \\u0000 "), text("0123456789 '\"$1 \\n"));
    push(queue, vec![NewJob { request: request.clone().into_bytes(), ..job(1, "a") }]).await;
    let claims = queue.claim(1, ClaimQuota::unlimited(), NOW).await.unwrap();
    assert!(claims[0].request == request.as_bytes());
    let lease = claims[0].lease.clone();
    queue.finish(lease, result(&answer), NOW).await.unwrap();
    let parts = JobParts { request: true, result: true };
    let job = queue.get(id(1), parts).await.unwrap().unwrap();
    assert!(job.request.is_some_and(|it| it == request.as_bytes()));
    assert!(job.result.is_some_and(|it| it == answer.as_bytes()));
}

pub(super) async fn concurrent_claims_take_each_job_once(queue: &dyn JobQueue) {
    let tenants = ["a", "b", "c"];
    let whose = |number: u64| tenants[usize::try_from(number % 3).unwrap()];
    push(queue, (0..200).map(|number| job(number, whose(number))).collect()).await;
    let worker = async || {
        let mut taken = Vec::new();
        // A worker that found no job tries again: another may be about to fail at its claim.
        for _ in 0..60 {
            let (leases, numbers) = claim(queue, 4, NOW + 1_000).await;
            for lease in leases {
                let ended = queue.finish(lease, result("{}"), NOW + 1_001).await.unwrap();
                assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Finished));
            }
            taken.extend(numbers);
        }
        taken
    };
    let (a, b, c, d) = tokio::join!(worker(), worker(), worker(), worker());
    let (e, f, g, h) = tokio::join!(worker(), worker(), worker(), worker());
    let mut taken = [a, b, c, d, e, f, g, h].concat();
    taken.sort_unstable();
    assert_eq!(taken, (0..200).collect::<Vec<u64>>());
    assert_eq!(queue.stats(None, NOW).await.unwrap().finished, 200);
}

pub(super) async fn concurrent_pushes_with_one_key_make_one_job(queue: &dyn JobQueue) {
    let one = |number| queue.push(vec![keyed(number, "a", "k", 1)]);
    let (a, b, c, d) = tokio::join!(one(1), one(2), one(3), one(4));
    let answers = [a, b, c, d].map(|it| it.unwrap().pop().unwrap());
    assert_eq!(answers.iter().filter(|it| **it == PushOutcome::New).count(), 1, "{answers:?}");
    let (only, _) = claim(queue, 9, NOW + 10).await;
    assert_eq!(only.len(), 1);
    let before = PushOutcome::Before(only[0].id.clone());
    assert_eq!(answers.iter().filter(|it| **it == before).count(), 3, "{answers:?}");
}

pub(super) async fn odd_names_are_names(queue: &dyn JobQueue) {
    let long = "x".repeat(1_024);
    let names = [
        "o'brien",
        "\"quoted\"",
        "a; DROP TABLE execution_jobs; --",
        "\u{1f980}\u{1f4a5}",
        "%",
        "_",
        "a:b",
        "{a}",
        "a b",
        "\\",
        "A",
        "a",
        "$1",
        "nul \0 nul",
        "\u{1a}",
        "\n",
        &long,
    ];
    for (number, name) in (1..).zip(names) {
        let new = NewJob {
            language: name.to_owned(),
            label: Some(name.to_owned()),
            face: Some(name.to_owned()),
            ..keyed(number, name, name, 1)
        };
        push(queue, vec![new]).await;
    }
    for (number, name) in (1..).zip(names) {
        let job = get(queue, number).await;
        let texts = [Some(job.tenant), Some(job.language), job.label, job.face];
        assert!(texts.iter().all(|it| it.as_deref() == Some(name)), "{name:?}: {texts:?}");
        let whose = || Some(name.to_owned());
        let filter = JobFilter { tenant: whose(), language: whose(), label: whose(), ..all() };
        assert_eq!(list(queue, filter).await, [number], "{name:?}");
        assert_eq!(queue.stats(whose(), NOW).await.unwrap().queued, 1, "{name:?}");
        let again = queue.push(vec![keyed(900, name, name, 1)]).await.unwrap();
        assert_eq!(again, [PushOutcome::Before(id(number))], "{name:?}");
    }
    let count = u64::try_from(names.len()).unwrap();
    assert_eq!(queue.stats(None, NOW).await.unwrap().tenants_waiting, count);
    let claims = queue.claim(names.len(), ClaimQuota::unlimited(), NOW + 100).await.unwrap();
    let tenants: BTreeSet<&str> = claims.iter().map(|it| it.tenant.as_str()).collect();
    assert_eq!(tenants, BTreeSet::from(names));
    for claim in claims {
        let (tenant, lease) = (claim.tenant, claim.lease);
        let (name, message) = (tenant.clone(), tenant.clone());
        let answer = queue.cancel(name, lease.id.clone(), message, NOW + 100).await.unwrap();
        assert_eq!(answer, CancelAnswer::Running);
        let end = AttemptResult::Cancelled { message: tenant.clone() };
        queue.finish(lease.clone(), end, NOW + 101).await.unwrap();
        let job = queue.get(lease.id, JobParts::default()).await.unwrap().unwrap();
        assert_eq!(job.message, Some(tenant));
    }
}

pub(super) async fn a_push_wakes_who_waits(queue: &dyn JobQueue) {
    let limit = Duration::from_secs(10);
    for number in 1..=3 {
        // Until it finds no job, like a worker; then it waits.
        while !claim(queue, 1, NOW + number).await.1.is_empty() {}
        let wait = async {
            loop {
                queue.changed().await.unwrap();
                if claim(queue, 1, NOW + number).await.1 == [number] {
                    break;
                }
            }
        };
        let push = push(queue, vec![job(number, "a")]);
        let both = async { tokio::join!(wait, push) };
        tokio::time::timeout(limit, both).await.expect("woken");
    }
    // A push between the check and the wait is not missed.
    push(queue, vec![job(4, "a")]).await;
    tokio::time::timeout(limit, queue.changed()).await.expect("woken").unwrap();
    assert_eq!(claim(queue, 1, NOW + 10).await.1, [4]);
}
