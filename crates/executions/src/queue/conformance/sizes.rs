//! Scenarios of the size limits of waiting and of kept jobs.

use super::*;

/// Returns a job whose request has this many bytes.
fn sized(number: u64, tenant: &str, bytes: usize) -> NewJob {
    NewJob { request: text(bytes), ..job(number, tenant) }
}

/// Returns a JSON text of this many bytes, including its quotes.
fn text(bytes: usize) -> Vec<u8> {
    format!("\"{}\"", "x".repeat(bytes - 2)).into_bytes()
}

async fn is_full(queue: &dyn JobQueue, jobs: Vec<NewJob>) -> bool {
    match queue.push(jobs).await {
        Ok(_) => false,
        Err(QueueError::FullBytes { queued_bytes_max: 1_000 }) => true,
        Err(error) => panic!("{error:?}"),
    }
}

pub(in super::super) async fn waiting_requests_are_bounded_in_bytes(queue: &dyn JobQueue) {
    push(queue, vec![sized(1, "a", 400), sized(2, "b", 400)]).await;
    // All or none of a batch; one that fits exactly is accepted.
    assert!(is_full(queue, vec![sized(3, "c", 100), sized(4, "c", 101)]).await);
    assert_eq!(list(queue, all()).await, [2, 1]);
    push(queue, vec![NewJob { request: text(200), ..keyed(3, "c", "k", 1) }]).await;
    assert!(is_full(queue, vec![sized(4, "d", 2)]).await);
    let known = NewJob { request: text(200), ..keyed(4, "c", "k", 1) };
    assert_eq!(queue.push(vec![known]).await.unwrap(), [PushOutcome::Before(id(3))]);
    // Running jobs do not count as waiting; returned ones do, and are never refused.
    let lease = claim_one(queue, 1, NOW + 10).await;
    push(queue, vec![sized(5, "a", 400)]).await;
    assert!(is_full(queue, vec![sized(6, "a", 2)]).await);
    queue.finish(lease, AttemptResult::Returned, NOW + 11).await.unwrap();
    assert_eq!(cancel(queue, 5, NOW + 12).await, CancelAnswer::Cancelled);
    assert!(is_full(queue, vec![sized(6, "a", 2)]).await);
    // Cancelled, drained, expired and lost ones free their room.
    assert_eq!(cancel(queue, 1, NOW + 13).await, CancelAnswer::Cancelled);
    assert!(is_full(queue, vec![sized(6, "a", 401)]).await);
    push(queue, vec![sized(6, "a", 400)]).await;
    queue.drain(None, NOW + 14).await.unwrap();
    assert!(is_full(queue, vec![sized(7, "a", 1_001)]).await);
    push(queue, vec![NewJob { deadline_ms: Some(NOW + 30), ..sized(7, "a", 1_000) }]).await;
    queue.sweep(NOW + 30).await.unwrap();
    push(queue, vec![sized(8, "a", 1_000)]).await;
    // Lost twice: queued again, then dead; replayed, it waits again.
    claim_one(queue, 8, NOW + 40).await;
    queue.sweep(NOW + 30_040).await.unwrap();
    assert!(is_full(queue, vec![sized(9, "a", 2)]).await);
    claim_one(queue, 8, NOW + 30_050).await;
    queue.sweep(NOW + 60_050).await.unwrap();
    push(queue, vec![sized(9, "a", 1_000)]).await;
    assert_eq!(cancel(queue, 9, NOW + 60_060).await, CancelAnswer::Cancelled);
    assert_eq!(queue.replay(None, None, NOW + 60_070).await.unwrap(), [id(8)]);
    assert!(is_full(queue, vec![sized(10, "a", 2)]).await);
}

pub(in super::super) async fn a_tenants_waiting_requests_are_bounded_in_bytes(
    queue: &dyn JobQueue,
) {
    push(queue, vec![sized(1, "a", 600)]).await;
    let full = queue.push(vec![sized(2, "b", 500), sized(3, "a", 401)]).await.unwrap_err();
    let is_expected = matches!(full, QueueError::TenantFullBytes { queued_bytes_max: 1_000 });
    assert!(is_expected, "{full:?}");
    assert_eq!(list(queue, all()).await, [1]);
    push(queue, vec![sized(2, "b", 1_000), sized(3, "a", 400)]).await;
    assert!(queue.push(vec![sized(4, "a", 2)]).await.is_err());
    assert_eq!(cancel(queue, 3, NOW + 10).await, CancelAnswer::Cancelled);
    // A face's data counts.
    let face = |count| Some("f".repeat(count));
    let large = vec![NewJob { face: face(301), ..sized(4, "a", 100) }];
    assert!(matches!(queue.push(large).await, Err(QueueError::TenantFullBytes { .. })));
    push(queue, vec![NewJob { face: face(300), ..sized(4, "a", 100) }]).await;
    assert!(queue.push(vec![sized(5, "b", 2)]).await.is_err());
    // It no longer counts when the job does not wait any more.
    let lease = claim_one(queue, 1, NOW + 20).await;
    queue.finish(lease, result("{}"), NOW + 21).await.unwrap();
    assert_eq!(claim(queue, 2, NOW + 22).await.1, [2, 4]);
    push(queue, vec![sized(6, "a", 1_000), sized(7, "b", 1_000)]).await;
}

pub(in super::super) async fn what_is_kept_is_bounded_in_bytes(queue: &dyn JobQueue) {
    // Each has 100 bytes of request and 200 of result.
    for number in 1..=5 {
        push(queue, vec![sized(number, "a", 100)]).await;
        let lease = claim_one(queue, number, NOW + number).await;
        let end = AttemptResult::Result(text(200));
        queue.finish(lease, end, NOW + number * 10).await.unwrap();
    }
    // Waiting jobs do not count, cancelled ones do.
    push(queue, vec![sized(6, "a", 900), sized(7, "a", 100)]).await;
    assert_eq!(queue.sweep(NOW + 1_000).await.unwrap().removed, 2);
    assert_eq!(list(queue, all()).await, [7, 6, 5, 4, 3]);
    assert_eq!(cancel(queue, 7, NOW + 1_001).await, CancelAnswer::Cancelled);
    assert_eq!(queue.sweep(NOW + 1_002).await.unwrap(), QueueSweepReport::default());
    assert_eq!(cancel(queue, 6, NOW + 1_003).await, CancelAnswer::Cancelled);
    assert_eq!(queue.sweep(NOW + 1_004).await.unwrap().removed, 3);
    assert_eq!(list(queue, all()).await, [7, 6]);
    // A job that its owner removed does not count any more.
    assert!(queue.remove("a".to_owned(), id(6)).await.unwrap());
    push(queue, vec![sized(8, "a", 800)]).await;
    assert_eq!(cancel(queue, 8, NOW + 1_005).await, CancelAnswer::Cancelled);
    assert_eq!(queue.sweep(NOW + 1_006).await.unwrap(), QueueSweepReport::default());
    assert_eq!(list(queue, all()).await, [8, 7]);
}
