//! Logs, subscriptions and the writer.

mod crash;
mod servers;
mod writing;

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use api::SessionEvent;
use api::SessionEventKind as Kind;
use node::store::{SqlStore, StoreConfig, StoreUrl};
use node::telemetry::{MetricsRegistry, Registry};
use serde_json::json;
use testkit::Scratch;
use tokio::time::timeout;

use super::*;
use crate::store::tests::{at, node_of, session};
use crate::store::{SEQ_BLOCK, SessionRow, SessionStore};

/// Longest wait for any step.
const SOON: Duration = Duration::from_secs(30);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("in time")
}

/// A server's store and writer on SQLite.
struct Server {
    store: SessionStore,
    /// The same database, for access outside the session store.
    raw: SqlStore,
    writer: EventWriter,
    lost: tokio::sync::mpsc::UnboundedReceiver<LostSession>,
    metrics: MetricsRegistry,
    _scratch: Option<Scratch>,
}

impl Server {
    async fn new() -> Server {
        let scratch = Scratch::new();
        let url = StoreUrl::Sqlite(scratch.path().join("db"));
        Server { _scratch: Some(scratch), ..Server::on(url).await }
    }

    async fn on(url: StoreUrl) -> Server {
        let mut registry = Registry::default();
        let raw = SqlStore::open(StoreConfig::new(url), &mut registry).await.unwrap();
        let store = SessionStore::open(raw.clone()).await.unwrap();
        let (writer, lost) = EventWriter::start(store.clone());
        Server { store, raw, writer, lost, metrics: MetricsRegistry::new(registry), _scratch: None }
    }

    /// Creates a session and returns its log.
    async fn log(&self, id: &str) -> Arc<SessionLog> {
        let row = self.store.insert_session(session(id, "a"), 1_000).await.unwrap();
        self.writer.log(&row)
    }

    /// Blocks writes to the database until the returned sender is dropped.
    async fn block(&self) -> mpsc::Sender<()> {
        let (unblock, until) = mpsc::channel::<()>();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let mut begun = Some(begun);
        let raw = self.raw.clone();
        tokio::spawn(async move {
            let blocked = raw.transact("test.block", move |_| {
                if let Some(begun) = begun.take() {
                    begun.send(()).unwrap();
                }
                until.recv().unwrap_err();
                Ok(())
            });
            blocked.await.unwrap();
        });
        soon(has_begun).await.unwrap();
        unblock
    }

    /// Returns the number of the writer's transactions so far.
    fn batches(&self) -> u64 {
        let text = self.metrics.render().unwrap();
        let name = "cove_store_transaction_duration_seconds_count{name=\"sessions.batch\"} ";
        text.lines().find_map(|line| line.strip_prefix(name)).map_or(0, |it| it.parse().unwrap())
    }

    async fn row(&self, id: &str) -> SessionRow {
        self.store.session("a", id).await.unwrap().unwrap()
    }

    async fn stored(&self, id: &str) -> Vec<u64> {
        let (mut stored, mut after) = (Vec::new(), 0);
        loop {
            let page = self.store.event_page(id, after, u64::MAX, 1_000, Vec::new()).await.unwrap();
            let Some(last) = page.last() else { return stored };
            after = last.seq;
            stored.extend(page.into_iter().map(|event| event.seq));
        }
    }
}

fn text(log: &SessionLog, text: impl Into<String>) -> u64 {
    log.push(Kind::Text, Some("t"), json!({ "text": text.into() }))
}

fn numbers(events: &[Arc<SessionEvent>]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

/// Reads events until there are `count`.
async fn read(subscription: &mut SessionSubscription, count: usize) -> Vec<Arc<SessionEvent>> {
    let mut events = Vec::new();
    while events.len() < count {
        let more = soon(subscription.next()).await.expect("more events");
        assert!(!more.is_empty());
        events.extend(more);
    }
    assert_eq!(events.len(), count, "{:?}", numbers(&events));
    events
}

/// Returns whether a subscription has no events to read.
async fn has_nothing(subscription: &mut SessionSubscription) -> bool {
    timeout(Duration::from_millis(30), subscription.next()).await.is_err()
}

#[tokio::test]
async fn events_are_told_in_order_and_pieces_live_only() {
    let server = Server::new().await;
    let log = server.log("ses_1").await;
    let mut early = log.subscribe(0);
    assert!(has_nothing(&mut early).await);
    log.push(Kind::TurnStart, Some("t"), json!({"content": "hi"}));
    log.push(Kind::TextDelta, Some("t"), json!({"delta": "x"}));
    assert_eq!(text(&log, "xy"), 3);
    assert_eq!(log.message("assistant", Some("t"), json!("xy")), 4);
    assert_eq!(log.push(Kind::Done, Some("t"), json!({})), 5);
    assert_eq!(log.last_seq(), 5);
    let events = read(&mut early, 4).await;
    assert_eq!(numbers(&events), [1, 2, 3, 5]);
    assert_eq!(events[2].data, json!({"text": "xy"}));
    assert_eq!(events[2].turn.as_deref(), Some("t"));
    assert_eq!(numbers(&read(&mut log.subscribe(2), 2).await), [3, 5]);
    // An unknown number counts as the latest one.
    let mut ahead = log.subscribe(1 << 60);
    assert!(has_nothing(&mut ahead).await);
    text(&log, "z");
    assert_eq!(numbers(&read(&mut ahead, 1).await), [6]);
    soon(log.flushed(6)).await.unwrap();
    assert_eq!(server.stored("ses_1").await, [1, 3, 5, 6]);
    let messages = server.store.messages("ses_1", 0, 9).await.unwrap();
    assert_eq!((messages[0].seq, &messages[0].content), (4, &json!("xy")));
    assert_eq!(server.row("ses_1").await.last_seq, 6);
}

#[tokio::test]
async fn done_is_told_when_it_is_durable_and_the_rest_at_once() {
    let server = Server::new().await;
    let log = server.log("ses_1").await;
    let mut listener = log.subscribe(0);
    let unblock = server.block().await;
    text(&log, "a");
    let done = log.push(Kind::Done, Some("t"), json!({}));
    text(&log, "b");
    assert_eq!(numbers(&read(&mut listener, 1).await), [1]);
    assert!(has_nothing(&mut listener).await);
    let flushed = log.flushed(done);
    tokio::pin!(flushed);
    assert!(timeout(Duration::from_millis(30), &mut flushed).await.is_err());
    assert_eq!(server.stored("ses_1").await, [0; 0]);
    drop(unblock);
    soon(flushed).await.unwrap();
    assert_eq!(&server.stored("ses_1").await[..2], [1, 2]);
    assert_eq!(numbers(&read(&mut listener, 2).await), [2, 3]);
}

#[tokio::test]
async fn no_number_is_told_above_the_durable_ceiling() {
    let server = Server::new().await;
    let log = server.log("ses_1").await;
    let unblock = server.block().await;
    let mut listener = log.subscribe(0);
    for _ in 0..SEQ_BLOCK {
        log.push(Kind::TextDelta, Some("t"), json!(1));
    }
    read(&mut listener, usize::try_from(SEQ_BLOCK).unwrap()).await;
    assert_eq!(log.last_seq(), SEQ_BLOCK);
    for _ in 0..10 {
        log.push(Kind::TextDelta, Some("t"), json!(1));
    }
    assert!(has_nothing(&mut listener).await);
    drop(unblock);
    assert_eq!(read(&mut listener, 10).await.last().unwrap().seq, SEQ_BLOCK + 10);
    assert!(server.row("ses_1").await.seq_ceiling >= SEQ_BLOCK + 10);
}

#[tokio::test]
async fn a_slow_listener_slows_nobody_and_reads_what_it_missed() {
    let server = Server::new().await;
    let log = server.log("ses_1").await;
    let mut slow = log.subscribe(0);
    assert!(has_nothing(&mut slow).await);
    let large = "x".repeat(1_000);
    let count = 20 * RING_BYTES_MAX / large.len();
    for _ in 0..count {
        soon(log.room()).await;
        text(&log, large.clone());
        log.push(Kind::TextDelta, Some("t"), json!("x"));
    }
    soon(log.settle()).await.unwrap();
    let mut kept = Vec::new();
    while kept.len() < count {
        let more = soon(slow.next()).await.unwrap();
        kept.extend(more.into_iter().filter(|event| event.kind == Kind::Text));
    }
    let expected: Vec<u64> = (0..u64::try_from(count).unwrap()).map(|it| it * 2 + 1).collect();
    assert_eq!(numbers(&kept), expected);
    // The subscription is live again.
    let next = text(&log, "y");
    let mut more = soon(slow.next()).await.unwrap();
    while more.last().unwrap().seq < next {
        more = soon(slow.next()).await.unwrap();
    }
    // A subscription that begins in the middle reads from there.
    let from = u64::try_from(count).unwrap();
    let mut middle = log.subscribe(from);
    assert_eq!(soon(middle.next()).await.unwrap()[0].seq, from + 1);
}

#[tokio::test]
async fn a_log_that_ends_is_told_to_its_end() {
    let server = Server::new().await;
    let log = server.log("ses_1").await;
    let mut listener = log.subscribe(0);
    text(&log, "a");
    text(&log, "b");
    assert_eq!(numbers(&read(&mut listener, 2).await), [1, 2]);
    text(&log, "c");
    log.settle().await.unwrap();
    log.close();
    // Nothing follows the end.
    assert_eq!(text(&log, "d"), 3);
    assert_eq!(numbers(&soon(listener.next()).await.unwrap()), [3]);
    assert_eq!(soon(listener.next()).await, None);
    assert_eq!(soon(listener.next()).await, None);
    assert_eq!(server.stored("ses_1").await, [1, 2, 3]);
}

#[tokio::test]
async fn listeners_stay_while_a_session_rests_and_hear_its_next_life() {
    let server = Server::new().await;
    let log = server.log("ses_1").await;
    let mut listener = log.subscribe(0);
    text(&log, "a");
    soon(log.settle()).await.unwrap();
    log.leave();
    server.store.release("ses_1", 1).await.unwrap();
    assert_eq!(numbers(&read(&mut listener, 1).await), [1]);
    assert!(has_nothing(&mut listener).await);
    let row = server.store.claim("ses_1", &node_of("here"), 1, at(0)).await.unwrap().unwrap();
    let again = server.writer.log(&row);
    assert!(Arc::ptr_eq(&log, &again), "there is one log for those who listen");
    assert_eq!(text(&again, "b"), SEQ_BLOCK + 1);
    assert_eq!(numbers(&read(&mut listener, 1).await), [SEQ_BLOCK + 1]);
    // Once all holders have dropped it, a new log with the same state is created.
    soon(again.settle()).await.unwrap();
    drop((log, again, listener));
    let followed = server.writer.follow("ses_1");
    assert_eq!(numbers(&read(&mut followed.subscribe(0), 2).await), [1, SEQ_BLOCK + 1]);
}
