//! The three steps, with paused time.

use tokio::time::timeout;

use super::*;

const LONG: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn draining_waits_for_the_work_in_progress() {
    let drain = DrainHandle::new();
    let first = drain.work().unwrap();
    let second = drain.work().unwrap();
    let finished = drain.finished(LONG);
    tokio::pin!(finished);
    assert!(timeout(Duration::from_secs(1), &mut finished).await.is_err(), "has not begun");
    drain.begin();
    assert!(drain.work().is_none());
    drop(first);
    assert!(timeout(Duration::from_secs(1), &mut finished).await.is_err(), "one is left");
    drop(second);
    timeout(Duration::from_secs(1), finished).await.unwrap();
    assert_eq!(drain.working(), 0);
}

#[tokio::test(start_paused = true)]
async fn work_is_cancelled_when_the_time_is_up() {
    let drain = DrainHandle::new();
    let work = drain.work().unwrap();
    let task = tokio::spawn({
        let drain = drain.clone();
        async move {
            drain.cancelled().await;
            drop(work);
        }
    });
    drain.begin();
    timeout(Duration::from_secs(31), drain.finished(Duration::from_secs(30))).await.unwrap();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_does_not_wait() {
    let drain = DrainHandle::new();
    let work = drain.work().unwrap();
    drain.begin();
    drain.begin();
    drain.cancel();
    drain.begin();
    drop(work);
    timeout(Duration::from_secs(1), drain.finished(LONG)).await.unwrap();
    timeout(Duration::from_secs(1), drain.cancelled()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_drains_at_once() {
    let drain = DrainHandle::new();
    drain.begin();
    timeout(Duration::from_millis(1), drain.finished(LONG)).await.unwrap();
}
