//! Scenarios of the retention of ended jobs.

use super::*;

/// Pushes, claims and finishes jobs of `a`, each at `NOW` plus ten milliseconds times its number.
async fn finish_all(queue: &dyn JobQueue, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        push(queue, vec![job(number, "a")]).await;
        let lease = claim_one(queue, number, NOW + number).await;
        queue.finish(lease, result("{}"), NOW + number * 10).await.unwrap();
    }
}

pub(super) async fn what_ended_long_ago_is_forgotten(queue: &dyn JobQueue) {
    finish_all(queue, 1..=5).await;
    push(queue, vec![job(6, "a"), job(7, "a")]).await;
    claim_one(queue, 6, NOW + 7_000_000).await;
    // One hour after the third ended.
    let swept = queue.sweep(NOW + 3_600_030).await.unwrap();
    assert_eq!(swept, QueueSweepReport { removed: 3, ..QueueSweepReport::default() });
    assert_eq!(list(queue, all()).await, [7, 6, 5, 4]);
    let parts = JobParts { request: true, result: true };
    assert_eq!(queue.get(id(3), parts).await.unwrap(), None);
    assert_eq!(queue.sweep(NOW + 3_700_000).await.unwrap().removed, 2);
    // Jobs that have not ended are kept.
    assert_eq!(list(queue, all()).await, [7, 6]);
}

pub(super) async fn no_more_than_the_maximum_is_kept(queue: &dyn JobQueue) {
    finish_all(queue, 1..=8).await;
    push(queue, vec![job(9, "a")]).await;
    let swept = queue.sweep(NOW + 1_000).await.unwrap();
    assert_eq!(swept, QueueSweepReport { removed: 5, ..QueueSweepReport::default() });
    assert_eq!(list(queue, all()).await, [9, 8, 7, 6]);
    assert_eq!(queue.sweep(NOW + 1_000).await.unwrap(), QueueSweepReport::default());
}

pub(super) async fn a_forgotten_key_is_free_again(queue: &dyn JobQueue) {
    push(queue, vec![keyed(1, "a", "k", 1)]).await;
    let lease = claim_one(queue, 1, NOW).await;
    queue.finish(lease, result("{}"), NOW).await.unwrap();
    assert_eq!(queue.sweep(NOW + 3_600_000).await.unwrap().removed, 1);
    push(queue, vec![keyed(3_600_001, "a", "k", 2)]).await;
}
