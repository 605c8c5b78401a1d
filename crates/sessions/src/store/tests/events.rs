//! Batches and pages.

use api::SessionEventKind::{self, Done, Error as Failed, Text, TurnStart};

use super::*;
use crate::store::events::PAGE_BYTES_MAX;

pub(super) fn row(session: &str, seq: u64) -> EventRow {
    EventRow {
        session: session.to_owned(),
        seq,
        at_ms: NOW + seq,
        turn: None,
        kind: Text,
        data: json!({"text": seq}).to_string().into_bytes(),
    }
}

/// Returns the number of the last stored event, or 0.
pub(super) async fn last(store: &SessionStore, session: &str) -> u64 {
    let mut last = 0;
    loop {
        let page = store.event_page(session, last, u64::MAX, PAGE_MAX, Vec::new()).await.unwrap();
        match page.last() {
            None => return last,
            Some(event) => last = event.seq,
        }
    }
}

fn part(session: &str, events: Vec<EventRow>) -> SessionBatch {
    SessionBatch { session: session.to_owned(), epoch: 1, events, ..SessionBatch::default() }
}

async fn write(store: &SessionStore, parts: Vec<SessionBatch>) -> Vec<usize> {
    store.write_batch(Arc::new(WriteBatch { parts })).await.unwrap()
}

async fn numbers(
    store: &SessionStore,
    (after, up_to, count): (u64, u64, usize),
    kinds: &[SessionEventKind],
) -> Vec<u64> {
    let page = store.event_page("ses_1", after, up_to, count, kinds.to_vec()).await.unwrap();
    page.into_iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn a_batch_is_written_once_however_often_and_read_in_pages() {
    check(async |store| {
        store.insert_session(session("ses_1", "a"), 9).await.unwrap();
        store.insert_session(session("ses_2", "a"), 9).await.unwrap();
        // Two inserts of each size: 64, 8 and 1 rows.
        let mut events: Vec<EventRow> = (1..=146).map(|seq| row("ses_1", seq * 2)).collect();
        events[0].turn = Some("t\0".to_owned());
        events[1].kind = Failed;
        let message = MessageRow {
            session: "ses_1".to_owned(),
            seq: 3,
            at_ms: NOW,
            turn: Some("t\0".to_owned()),
            role: "user".to_owned(),
            content: json!([{"type": "text", "text": "\0"}]),
        };
        let full = SessionBatch {
            ceiling: 9_000,
            last_seq: 292,
            row: Some(Arc::new(SessionRow {
                turns: 8,
                state: SessionState::Paused,
                epoch: 77,
                ..session("ses_1", "a")
            })),
            messages: vec![message.clone()],
            ..part("ses_1", events.clone())
        };
        let other = part("ses_2", vec![row("ses_2", 7)]);
        for _ in 0..2 {
            assert_eq!(write(store, vec![full.clone(), other.clone()]).await, [0; 0]);
        }
        let found = store.session("a", "ses_1").await.unwrap().unwrap();
        assert_eq!((found.seq_ceiling, found.last_seq, found.turns), (9_000, 292, 8));
        assert_eq!(found.state, SessionState::Paused);
        assert_eq!(store.messages("ses_1", 0, 9).await.unwrap(), [message]);
        assert_eq!(store.messages("ses_1", 3, 9).await.unwrap(), []);
        let page = store.event_page("ses_1", 0, u64::MAX, 2, Vec::new()).await.unwrap();
        let data = json!({"text": 2});
        let first = api::SessionEvent {
            seq: 2,
            at_ms: NOW + 2,
            turn: Some("t\0".to_owned()),
            kind: Text,
            data,
        };
        assert_eq!(page[0], first);
        let all = u64::MAX;
        assert_eq!(numbers(store, (0, all, 3), &[]).await, [2, 4, 6]);
        assert_eq!(numbers(store, (4, 8, 9), &[]).await, [6, 8]);
        assert_eq!(numbers(store, (290, all, 9), &[]).await, [292]);
        assert_eq!(numbers(store, (292, all, 9), &[]).await, [0; 0]);
        assert_eq!(numbers(store, (0, all, 9), &[Failed, Done]).await, [4]);
        assert_eq!(last(store, "ses_1").await, 292);
        assert_eq!(last(store, "ses_2").await, 7);
    })
    .await;
}

#[tokio::test]
async fn pages_are_bounded_in_bytes_and_never_empty_before_the_end() {
    check(async |store| {
        store.insert_session(session("ses_1", "a"), 9).await.unwrap();
        let half = usize::try_from(PAGE_BYTES_MAX / 2).unwrap();
        let sizes = [half, half - 100, half, half * 3, 10, 10];
        for (seq, size) in (1..).zip(sizes) {
            let data = json!("x".repeat(size - 2)).to_string().into_bytes();
            let event = EventRow { data, ..row("ses_1", seq) };
            write(store, vec![part("ses_1", vec![event])]).await;
        }
        let mut after = 0;
        for expected in [&[1_u64, 2][..], &[3], &[4], &[5, 6]] {
            let found = numbers(store, (after, u64::MAX, 9), &[]).await;
            assert_eq!(found, expected);
            after = expected[expected.len() - 1];
        }
    })
    .await;
}

#[tokio::test]
async fn who_lost_a_session_writes_nothing_of_it_and_all_of_the_others() {
    check(async |store| {
        for id in ["ses_1", "ses_2"] {
            store.insert_session(session(id, "a"), 9).await.unwrap();
        }
        let taken = store.claim("ses_1", &node_of("there"), 1, at(NOW)).await.unwrap().unwrap();
        let late = SessionBatch {
            ceiling: 1 << 40,
            last_seq: 5,
            messages: vec![MessageRow {
                session: "ses_1".to_owned(),
                seq: 6,
                at_ms: NOW,
                turn: None,
                role: "user".to_owned(),
                content: json!("late"),
            }],
            usage: vec![UsageRow {
                session: "ses_1".to_owned(),
                turn: "t".to_owned(),
                tenant: "a".to_owned(),
                ..UsageRow::default()
            }],
            ..part("ses_1", vec![row("ses_1", 5)])
        };
        let with_row = |is_whole: bool| SessionBatch {
            row: Some(Arc::new(SessionRow { turns: 9, ..session("ses_1", "a") })),
            is_whole,
            ..late.clone()
        };
        let fine = part("ses_2", vec![row("ses_2", 1)]);
        let gone = part("ses_3", vec![row("ses_3", 1)]);
        let parts = vec![late.clone(), fine, with_row(false), with_row(true), gone];
        assert_eq!(write(store, parts).await, [0, 2, 3, 4]);
        assert_eq!(last(store, "ses_1").await, 0);
        assert_eq!(store.messages("ses_1", 0, 9).await.unwrap(), []);
        assert_eq!(store.usage.list("a", UsageFilter::default(), 9).await.unwrap(), []);
        assert_eq!(last(store, "ses_2").await, 1);
        assert_eq!(last(store, "ses_3").await, 0);
        assert_eq!(store.session("a", "ses_1").await.unwrap().unwrap(), taken);
    })
    .await;
}

#[tokio::test]
async fn turns_without_an_end_are_found() {
    check(async |store| {
        store.insert_session(session("ses_1", "a"), 9).await.unwrap();
        store.insert_session(session("ses_2", "a"), 9).await.unwrap();
        let event = |session: &str, seq: u64, kind: SessionEventKind, turn: &str| EventRow {
            kind,
            turn: Some(turn.to_owned()),
            ..row(session, seq)
        };
        let events = vec![
            event("ses_1", 1, TurnStart, "t_1"),
            event("ses_1", 2, Text, "t_1"),
            event("ses_1", 3, Done, "t_1"),
            event("ses_1", 4, TurnStart, "t_3"),
            event("ses_1", 5, TurnStart, "t_2"),
            event("ses_1", 6, Text, "t_0"),
        ];
        let theirs = vec![event("ses_2", 1, Done, "t_3"), event("ses_2", 2, TurnStart, "t_9")];
        write(store, vec![part("ses_1", events), part("ses_2", theirs)]).await;
        assert_eq!(store.open_turns("ses_1").await.unwrap(), ["t_3", "t_2"]);
        assert_eq!(store.open_turns("ses_2").await.unwrap(), ["t_9"]);
        assert_eq!(store.open_turns("ses_3").await.unwrap(), [""; 0]);
    })
    .await;
}
