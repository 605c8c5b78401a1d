//! Queued messages.

use api::{MessageContent, MessageRequest, SessionEventKind};

use super::events::row;
use super::*;

fn message(turn: &str) -> WaitingMessage {
    let request = MessageRequest {
        content: MessageContent::Text(format!("of {turn}\0")),
        partial: true,
        model: Some("m".to_owned()),
        on_disconnect: Some(OnDisconnect::Continue),
        extra: serde_json::Map::from_iter([("max_turns".to_owned(), json!(3))]),
    };
    WaitingMessage { turn: turn.to_owned(), request, at_ms: NOW }
}

async fn turns(store: &SessionStore, session: &str) -> Vec<String> {
    let waiting = store.waiting.of_session(session).await.unwrap();
    waiting.into_iter().map(|message| message.turn).collect()
}

#[tokio::test]
async fn messages_wait_in_their_order_until_their_turns_begin() {
    check(async |store| {
        for id in ["ses_1", "ses_2", "ses_3"] {
            store.insert_session(session(id, "a"), 9).await.unwrap();
        }
        let claimed = store.claim("ses_1", &node_of("here"), 1, at(NOW)).await.unwrap().unwrap();
        for turn in ["turn_2", "turn_1", "turn_3", "turn_1"] {
            assert!(store.waiting.keep("ses_1", claimed.epoch, message(turn)).await.unwrap());
        }
        assert!(store.waiting.keep("ses_2", 1, message("turn_1")).await.unwrap());
        // A server that has lost the session stores nothing for it.
        assert!(!store.waiting.keep("ses_1", 1, message("turn_0")).await.unwrap());
        assert!(!store.waiting.keep("ses_9", 0, message("turn_0")).await.unwrap());
        let waiting = store.waiting.of_session("ses_1").await.unwrap();
        assert_eq!(waiting, ["turn_1", "turn_2", "turn_3"].map(message));
        // One turn has begun, and its row still exists.
        let mut begun = row("ses_1", 1);
        (begun.turn, begun.kind) = (Some("turn_1".to_owned()), SessionEventKind::TurnStart);
        let part = SessionBatch {
            session: "ses_1".to_owned(),
            epoch: claimed.epoch,
            events: vec![begun],
            ..SessionBatch::default()
        };
        let parts = vec![part];
        store.write_batch(Arc::new(WriteBatch { parts })).await.unwrap();
        assert_eq!(turns(store, "ses_1").await, ["turn_2", "turn_3"]);
        assert_eq!(turns(store, "ses_2").await, ["turn_1"]);
        // Stored messages count as storage, including those whose turns have begun.
        let bytes = serde_json::to_vec(&message("turn_1").request).unwrap().len();
        let stored = store.stored_by("a", "here").await.unwrap().bytes;
        assert_eq!(stored, 4 * u64::try_from(bytes).unwrap());
        store.waiting.remove("ses_1", vec!["turn_2".to_owned(), "none".to_owned()]).await.unwrap();
        assert_eq!(turns(store, "ses_1").await, ["turn_3"]);
        let some = ["ses_1", "ses_2", "ses_3"].map(str::to_owned).to_vec();
        let found = store.waiting.sessions_with(some).await.unwrap();
        assert_eq!(found, ["ses_1", "ses_2"].map(str::to_owned).into());
        assert_eq!(store.waiting.sessions_with(Vec::new()).await.unwrap().len(), 0);
    })
    .await;
}
