//! Scenarios of webhooks.

use super::*;

pub(super) async fn webhooks_are_due_hidden_and_settled(queue: &dyn JobQueue) {
    let hide = Duration::from_secs(5);
    let due = async |now_ms: u64| -> Vec<(u64, u32)> {
        let deliveries = queue.due_webhooks(9, hide, now_ms).await.unwrap();
        deliveries.iter().map(|it| (number(&it.id), it.attempt)).collect()
    };
    push(queue, (1..=3).map(|it| NewJob { webhook: it < 3, ..job(it, "a") }).collect()).await;
    assert_eq!(due(NOW + 10).await, []);
    let (leases, _) = claim(queue, 3, NOW + 10).await;
    assert_eq!(due(NOW + 11).await, []);
    for (lease, at) in leases.into_iter().zip([30, 20, 10]) {
        queue.finish(lease, result("{}"), NOW + at).await.unwrap();
    }
    assert_eq!(due(NOW + 19).await, []);
    assert_eq!(due(NOW + 30).await, [(2, 1), (1, 1)]);
    assert_eq!(due(NOW + 31).await, []);
    // It was not settled, so it is due again.
    queue.settle_webhook(id(2), None).await.unwrap();
    assert_eq!(due(NOW + 5_029).await, []);
    assert_eq!(due(NOW + 5_030).await, [(1, 2)]);
    queue.settle_webhook(id(1), Some(NOW + 9_000)).await.unwrap();
    assert_eq!(due(NOW + 8_999).await, []);
    assert_eq!(due(NOW + 9_000).await, [(1, 3)]);
    queue.settle_webhook(id(1), None).await.unwrap();
    queue.settle_webhook(id(1), Some(NOW)).await.unwrap();
    queue.settle_webhook(id(77), Some(NOW)).await.unwrap();
    assert_eq!(due(NOW + 90_000).await, []);
    assert_eq!(queue.due_webhooks(0, hide, NOW).await.unwrap(), []);
}

pub(super) async fn every_end_makes_a_webhook_due(queue: &dyn JobQueue) {
    let with = |number, deadline_ms| NewJob { webhook: true, deadline_ms, ..job(number, "a") };
    push(queue, (1..=5).map(|number| with(number, None)).collect()).await;
    let (leases, _) = claim(queue, 3, NOW + 10).await;
    let cancelled = AttemptResult::Cancelled { message: "x".to_owned() };
    queue.finish(leases[0].clone(), cancelled, NOW + 11).await.unwrap();
    queue.finish(leases[1].clone(), failed("x"), NOW + 11).await.unwrap();
    let again = claim_one(queue, 2, NOW + 12).await;
    queue.finish(again, failed("x"), NOW + 12).await.unwrap();
    cancel(queue, 4, NOW + 13).await;
    queue.drain(None, NOW + 14).await.unwrap();
    push(queue, vec![with(6, Some(NOW + 20))]).await;
    // The third is lost, twice; the sixth expires.
    queue.sweep(NOW + 30_010).await.unwrap();
    claim_one(queue, 3, NOW + 30_011).await;
    queue.sweep(NOW + 70_000).await.unwrap();
    let due = queue.due_webhooks(9, Duration::from_secs(1), NOW + 70_000).await.unwrap();
    let order: Vec<u64> = due.iter().map(|it| number(&it.id)).collect();
    assert_eq!(order, [1, 2, 4, 5, 6, 3]);
    // A replayed job has not ended.
    queue.replay(None, None, NOW + 70_001).await.unwrap();
    let due = queue.due_webhooks(9, Duration::from_secs(1), NOW + 80_000).await.unwrap();
    assert_eq!(due.iter().map(|it| number(&it.id)).collect::<BTreeSet<u64>>(), set(&[1, 4, 5, 6]));
}
