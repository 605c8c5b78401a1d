//! Memory of answers is accounted and bounded.

use std::task::{Context, Waker};

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::*;

const MIB: u64 = 1 << 20;

fn answers(wait_max: Duration) -> Arc<AnswerBudget> {
    AnswerBudget::new(AnswerBounds { bytes_max: 4 * MIB, bytes_max_per_tenant: 2 * MIB, wait_max })
}

fn into_bytes(mut document: AnswerDocument) -> Vec<u8> {
    let length = document.len();
    let mut bytes = Vec::new();
    while let Some(piece) = document.next_piece() {
        assert!(piece.len() <= 6 * (16 << 10), "{}", piece.len());
        bytes.extend_from_slice(&piece);
    }
    assert_eq!((bytes.len(), document.len()), (length, 0));
    bytes
}

#[test]
fn a_tenant_has_its_share_and_all_have_theirs() {
    let answers = answers(Duration::ZERO);
    let first = answers.try_enter("a", 2 * MIB).unwrap();
    assert!(answers.try_enter("a", 1).is_none());
    let other = answers.try_enter("b", MIB).unwrap();
    // One that is larger than a tenant's share is admitted alone, but not beyond the total.
    assert!(answers.try_enter("c", 3 * MIB).is_none());
    drop(first);
    let large = answers.try_enter("c", 3 * MIB).unwrap();
    assert!(answers.try_enter("d", 1).is_none());
    drop((large, other));
    assert_eq!(answers.used_bytes(), 0);
    assert!(answers.used.lock().by_tenant.is_empty());
}

#[tokio::test]
async fn who_finds_no_room_waits_for_it_and_not_for_ever() {
    let short = answers(Duration::ZERO);
    let held = short.try_enter("a", 2 * MIB).unwrap();
    let refused = short.room("a", MIB, short.deadline(AnswerPatience::Caller)).await.unwrap_err();
    assert_eq!(refused, ExecutionError::TooManyAnswerBytes { bytes_max: 2 * MIB });
    assert!(refused.retry_after().is_some());
    let also = short.try_enter("b", 2 * MIB).unwrap();
    let refused = short.room("c", MIB, short.deadline(AnswerPatience::Caller)).await.unwrap_err();
    assert_eq!(refused, ExecutionError::AnswerBytesFull { bytes_max: 4 * MIB });
    let waiting = short.room("a", MIB, None);
    tokio::pin!(waiting);
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    drop((held, also));
    assert_eq!(waiting.await.unwrap().bytes, MIB);
}

#[test]
fn documents_are_written_piece_by_piece_and_say_what_serde_says() {
    let long = "a\u{0}\u{1f}\n\"\\é\u{7f}\u{8}\u{c}€".repeat(20_000);
    let tree = json!({ "long": long, "list": [1, null, true, "x", { "y": long }], "none": {} });
    let read: Value =
        serde_json::from_slice(&into_bytes(AnswerDocument::of_tree(tree.clone()))).unwrap();
    assert_eq!(read, tree);
    let plain = json!({ "text": "x".repeat(1 << 20), "number": 1.5 });
    assert_eq!(
        into_bytes(AnswerDocument::of(&plain).unwrap()),
        serde_json::to_vec(&plain).unwrap()
    );
    let stored = serde_json::to_vec(&plain).unwrap();
    let joined =
        AnswerDocument::with_members(&json!({ "id": "x" }), vec![("result", stored)]).unwrap();
    let read: Value = serde_json::from_slice(&into_bytes(joined)).unwrap();
    assert_eq!(read, json!({ "id": "x", "result": plain }));
}

#[test]
fn an_answer_holds_its_content_until_it_is_dropped() {
    let answers = answers(Duration::ZERO);
    let room = answers.try_enter("a", 2 * MIB).unwrap();
    let content = "\u{0}".repeat(1 << 20);
    let document = AnswerDocument::of_tree(json!({ "stdout": content })).held([room]);
    assert!(document.len() > 6 << 20);
    let held = answers.used_bytes();
    assert!((MIB..MIB + 1024).contains(&held), "{held}");
    let answer = document.answer(StatusCode::OK);
    assert_eq!(answers.used_bytes(), held);
    drop(answer);
    assert_eq!(answers.used_bytes(), 0);
}
