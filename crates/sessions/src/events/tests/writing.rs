//! Timing and contents of writes.

use super::*;

#[tokio::test]
async fn many_sessions_are_written_in_few_transactions() {
    let server = Server::new().await;
    let mut logs = Vec::new();
    for number in 0..50 {
        logs.push(server.log(&format!("ses_{number:02}")).await);
    }
    let before = server.batches();
    // With one thread, nothing is written except where this waits.
    for _ in 0..40 {
        for log in &logs {
            text(log, "streamed");
        }
        tokio::task::yield_now().await;
    }
    for log in &logs {
        soon(log.settle()).await.unwrap();
    }
    let count = server.batches() - before;
    assert!(count <= 10, "2000 events in {count} transactions");
    for number in 0..50 {
        let stored = server.stored(&format!("ses_{number:02}")).await;
        assert_eq!(stored, (1..=40).collect::<Vec<u64>>());
    }
}

#[tokio::test]
async fn a_row_is_written_behind_and_the_latest_one_counts() {
    let server = Server::new().await;
    let log = server.log("ses_1").await;
    let row = server.row("ses_1").await;
    let unblock = server.block().await;
    for turns in 1..=5 {
        log.mark(Arc::new(SessionRow { turns, idle_s: Some(9), ..row.clone() }));
    }
    drop(unblock);
    soon(log.settle()).await.unwrap();
    let found = server.row("ses_1").await;
    assert_eq!((found.turns, found.idle_s), (5, None), "its settings are not written");
    let whole = SessionRow { turns: 6, idle_s: Some(9), ..row.clone() };
    soon(log.save(Arc::new(whole.clone()))).await.unwrap();
    assert_eq!(server.row("ses_1").await, whole);
    // A later mark does not reduce the pending write.
    let unblock = server.block().await;
    let save = log.save(Arc::new(SessionRow { idle_s: Some(10), ..whole.clone() }));
    tokio::pin!(save);
    assert!(timeout(Duration::from_millis(10), &mut save).await.is_err());
    log.mark(Arc::new(SessionRow { idle_s: Some(10), turns: 7, ..whole.clone() }));
    drop(unblock);
    soon(save).await.unwrap();
    soon(log.settle()).await.unwrap();
    assert_eq!(server.row("ses_1").await, SessionRow { idle_s: Some(10), turns: 7, ..whole });
}

#[tokio::test]
async fn who_writes_too_much_waits_for_room_and_nobody_else_does() {
    let server = Server::new().await;
    let (log, other) = (server.log("ses_1").await, server.log("ses_2").await);
    let unblock = server.block().await;
    let large = "x".repeat(100_000);
    let mut pushed = 0;
    while timeout(Duration::from_millis(20), log.room()).await.is_ok() {
        pushed += 1;
        text(&log, large.clone());
        assert!(pushed * large.len() <= LOG_WAITING_MAX + large.len());
    }
    soon(other.room()).await;
    // Events beyond the limit are accepted: only readers observe the limit.
    text(&log, "more");
    let room = log.room();
    tokio::pin!(room);
    assert!(timeout(Duration::from_millis(20), &mut room).await.is_err());
    drop(unblock);
    soon(room).await;
    soon(log.settle()).await.unwrap();
    assert_eq!(server.stored("ses_1").await.len(), pushed + 1);
    soon(log.room()).await;
}

#[tokio::test]
async fn all_logs_together_have_a_limit() {
    let server = Server::new().await;
    let mut logs = Vec::new();
    let wanted = WAITING_MAX / LOG_WAITING_MAX + 1;
    for number in 0..wanted {
        logs.push(server.log(&format!("ses_{number:02}")).await);
    }
    let unblock = server.block().await;
    let large = "x".repeat(LOG_WAITING_MAX - 10_000);
    let last = logs.pop().unwrap();
    for log in &logs {
        text(log, large.clone());
        text(log, "x".repeat(10_000));
    }
    assert!(timeout(Duration::from_millis(20), last.room()).await.is_err());
    drop(unblock);
    soon(last.room()).await;
    for log in &logs {
        soon(log.settle()).await.unwrap();
    }
}

#[tokio::test]
async fn a_session_that_the_store_refuses_holds_up_no_other() {
    let mut server = Server::new().await;
    let (bad, good) = (server.log("ses_bad").await, server.log("ses_good").await);
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON session_events
        WHEN NEW.session = 'ses_bad' BEGIN SELECT RAISE(ABORT, 'no'); END";
    server.raw.transact("test.refuse", move |it| it.batch(refuse)).await.unwrap();
    text(&bad, "a");
    text(&good, "a");
    assert!(soon(bad.settle()).await.is_err());
    soon(good.settle()).await.unwrap();
    let lost = soon(server.lost.recv()).await.unwrap();
    assert_eq!((lost.session.as_str(), lost.epoch), ("ses_bad", 1));
    assert!(matches!(lost.why, LossReason::Refused(_)), "{lost:?}");
    assert_eq!(server.stored("ses_good").await, [1]);
    text(&good, "b");
    soon(good.settle()).await.unwrap();
    assert_eq!(server.stored("ses_good").await, [1, 2]);
}

#[tokio::test]
async fn closing_writes_what_waits() {
    let server = Server::new().await;
    let log = server.log("ses_1").await;
    text(&log, "a");
    soon(server.writer.close()).await;
    assert_eq!(server.stored("ses_1").await, [1]);
}

#[tokio::test]
async fn turns_that_were_left_open_are_ended() {
    let server = Server::new().await;
    let log = server.log("ses_1").await;
    log.push(Kind::TurnStart, Some("t1"), json!({}));
    log.push(Kind::Done, Some("t1"), json!({}));
    log.push(Kind::TurnStart, Some("t2"), json!({}));
    soon(log.settle()).await.unwrap();
    let mut listener = log.subscribe(log.last_seq());
    assert_eq!(log.end_open_turns("the server ended").await.unwrap(), ["t2"]);
    let events = read(&mut listener, 2).await;
    let kinds: Vec<Kind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Kind::Error, Kind::Done]);
    assert_eq!(events[0].data, json!({"error": "the server ended"}));
    soon(log.settle()).await.unwrap();
    assert_eq!(log.end_open_turns("again").await.unwrap(), [""; 0]);
}
