//! Lives that end abruptly: no number is sent twice, and no turn reported as done is lost.

use std::collections::HashMap;

use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::*;

/// Action in one life before the server crashes.
#[derive(Clone, Debug)]
enum Step {
    /// Appends partial messages.
    Pieces(u16),
    /// Appends events.
    Events(u8),
    /// Ends a turn, and optionally waits for it.
    Done(bool),
    /// Yields to the writer.
    Yield,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..5_000_u16).prop_map(Step::Pieces),
        (0..50_u8).prop_map(Step::Events),
        any::<bool>().prop_map(Step::Done),
        Just(Step::Yield),
    ]
}

/// Runs one life of a server. Returns the visible events by number, and the last visible `done`.
async fn live(
    url: StoreUrl,
    life: usize,
    steps: &[Step],
    ends_at_rest: bool,
) -> (Vec<Arc<SessionEvent>>, u64) {
    let server = Server::on(url).await;
    let found = server.store.session("a", "ses_1").await.unwrap();
    let log = match found {
        None => server.log("ses_1").await,
        Some(row) => {
            let row = server
                .store
                .claim("ses_1", &node_of("here"), row.epoch, at(0))
                .await
                .unwrap()
                .unwrap();
            server.writer.log(&row)
        }
    };
    let mut listener = log.subscribe(log.last_seq());
    let mut told = Vec::new();
    for step in steps {
        match step {
            Step::Pieces(count) => {
                for _ in 0..*count {
                    log.push(Kind::TextDelta, Some("t"), json!(life));
                }
            }
            Step::Events(count) => {
                for _ in 0..*count {
                    text(&log, format!("life {life}"));
                }
            }
            Step::Done(is_waited_for) => {
                let seq = log.push(Kind::Done, Some("t"), json!(life));
                if *is_waited_for {
                    soon(log.flushed(seq)).await.unwrap();
                }
            }
            Step::Yield => tokio::time::sleep(Duration::from_millis(1)).await,
        }
        while let Ok(Some(events)) = timeout(Duration::ZERO, listener.next()).await {
            told.extend(events);
        }
    }
    if ends_at_rest {
        soon(log.settle()).await.unwrap();
        log.leave();
        server.store.release("ses_1", server.row("ses_1").await.epoch).await.unwrap();
    }
    let done = told.iter().rfind(|event| event.kind == Kind::Done).map_or(0, |it| it.seq);
    (told, done)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn numbers_are_told_once_over_all_lives(
        lives in prop::collection::vec((prop::collection::vec(step(), 1..8), any::<bool>()), 1..5),
    ) {
        let scratch = Scratch::new();
        let url = StoreUrl::Sqlite(scratch.path().join("db"));
        let mut told: HashMap<u64, Arc<SessionEvent>> = HashMap::new();
        let mut last = 0;
        for (life, (steps, ends_at_rest)) in lives.iter().enumerate() {
            // Dropping the runtime discards all unwritten data, like a crash.
            let runtime = Runtime::new().unwrap();
            let (events, done) = runtime.block_on(live(url.clone(), life, steps, *ends_at_rest));
            drop(runtime);
            for event in &events {
                prop_assert!(event.seq > last, "{} after {last}", event.seq);
                last = event.seq;
                told.insert(event.seq, Arc::clone(event));
            }
            // Everything up to a visible `done` is stored unchanged.
            let stored = Runtime::new().unwrap().block_on(async {
                let server = Server::on(url.clone()).await;
                let row = server.row("ses_1").await;
                assert!(row.seq_ceiling >= last, "{} below {last}", row.seq_ceiling);
                let (mut stored, mut after) = (HashMap::new(), 0);
                loop {
                    let store = &server.store;
                    let page = store.event_page("ses_1", after, u64::MAX, 1_000, Vec::new()).await;
                    let page = page.unwrap();
                    let Some(end) = page.last() else { break stored };
                    after = end.seq;
                    stored.extend(page.into_iter().map(|event| (event.seq, event)));
                }
            });
            for event in events.iter().filter(|it| it.seq <= done && !it.kind.is_partial()) {
                prop_assert_eq!(stored.get(&event.seq), Some(&**event));
            }
            // No stored event has the number of another visible event.
            for (seq, event) in &stored {
                if let Some(told) = told.get(seq) {
                    prop_assert_eq!(event, &**told);
                }
            }
        }
    }
}
