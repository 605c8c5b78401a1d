//! Several servers on one PostgreSQL, and a PostgreSQL that is temporarily unavailable.

use testkit::Postgres;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lost_a_session_is_told_and_its_listeners_hear_the_new_owner() {
    let postgres = Postgres::shared();
    let url = StoreUrl::Postgres(postgres.database());
    let mut here = Server::on(url.clone()).await;
    let there = Server::on(url).await;
    let log = here.log("ses_1").await;
    let mut listener = log.subscribe(0);
    text(&log, "a");
    assert_eq!(numbers(&read(&mut listener, 1).await), [1]);
    soon(log.settle()).await.unwrap();
    // The owner was never registered, so it counts as dead.
    let row = there.store.claim("ses_1", &node_of("there"), 1, at(0)).await.unwrap().unwrap();
    let theirs = there.writer.log(&row);
    let next = text(&theirs, "b");
    assert_eq!(next, SEQ_BLOCK + 1);
    soon(theirs.settle()).await.unwrap();

    text(&log, "late");
    assert!(soon(log.settle()).await.is_err());
    let lost = soon(here.lost.recv()).await.unwrap();
    assert_eq!((lost.session.as_str(), lost.epoch), ("ses_1", 1));
    assert!(matches!(lost.why, LossReason::Taken), "{lost:?}");
    // The new owner has the session, so every later save fails.
    for _ in 0..2 {
        assert!(soon(log.save(Arc::new(row.clone()))).await.is_err());
    }
    soon(log.room()).await;
    // The subscriber may receive events that were never stored; then it receives the new owner's.
    let mut heard = Vec::new();
    while heard.last() != Some(&next) {
        heard.extend(numbers(&soon(listener.next()).await.unwrap()));
    }
    assert!(heard == [next] || heard == [2, next], "{heard:?}");
    assert_eq!(there.stored("ses_1").await, [1, next]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_store_is_away() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let server = Server::on(StoreUrl::Postgres(url)).await;
    let log = server.log("ses_1").await;
    let mut listener = log.subscribe(0);
    text(&log, "a");
    soon(log.settle()).await.unwrap();
    postgres.sql("ALTER DATABASE test_0 ALLOW_CONNECTIONS false");
    postgres.cut_connections();
    text(&log, "b");
    let done = log.push(Kind::Done, Some("t"), json!({}));
    assert_eq!(numbers(&read(&mut listener, 2).await), [1, 2]);
    // Long enough for failed attempts.
    assert!(timeout(Duration::from_millis(500), log.flushed(done)).await.is_err());
    let mut waiting = 0;
    while timeout(Duration::from_millis(20), log.room()).await.is_ok() {
        text(&log, "x".repeat(100_000));
        waiting += 1;
    }
    // A new subscriber waits, too, for events that only the store has.
    let followed = server.writer.follow("ses_1");
    assert!(has_nothing(&mut followed.subscribe(2)).await);
    postgres.sql("ALTER DATABASE test_0 ALLOW_CONNECTIONS true");
    soon(log.flushed(done)).await.unwrap();
    soon(log.room()).await;
    soon(log.settle()).await.unwrap();
    assert_eq!(server.stored("ses_1").await.len(), 3 + waiting);
    assert_eq!(numbers(&read(&mut listener, 1 + waiting).await)[0], done);
}
