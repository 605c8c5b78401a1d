//! Tests of prepared statements.

use super::*;

fn statement(key: &HashKey, text: &str) -> Arc<MysqlStatement> {
    Arc::new(MysqlStatement::new(key, text.as_bytes(), 0, MysqlStatementFacts::NOTHING))
}

/// Prepares a statement under the common settings.
fn put(client: &mut MysqlClientStatements, statement: Arc<MysqlStatement>) -> u32 {
    client.put(statement, COUNTS, &Arc::default())
}

const COUNTS: StatementArity = StatementArity { columns: 1, params: 2 };

#[test]
fn numbers_are_given_in_turn() {
    let key = HashKey::new();
    let one = statement(&key, "SELECT 1");
    let mut client = MysqlClientStatements::default();
    assert_eq!(put(&mut client, one.clone()), 1);
    assert_eq!(put(&mut client, one.clone()), 2);
    assert!(client.close(1).is_some() && client.close(1).is_none());
    assert_eq!(put(&mut client, one.clone()), 3);
    client.clear();
    assert!(client.is_empty());
    assert_eq!(put(&mut client, one.clone()), 4);
    // After the last number the first free one follows.
    client.last = LAST_PREPARED - 2;
    assert_eq!(put(&mut client, one.clone()), LAST_PREPARED - 1);
    assert_eq!(put(&mut client, one.clone()), 1);
    client.last = 3;
    assert_eq!(put(&mut client, one), 5);
}

#[test]
fn the_highest_number_means_the_last() {
    let key = HashKey::new();
    let mut client = MysqlClientStatements::default();
    assert!(client.find(LAST_PREPARED).is_none());
    let _first = put(&mut client, statement(&key, "a"));
    let second = put(&mut client, statement(&key, "b"));
    assert_eq!(client.find(LAST_PREPARED).map(|(number, _)| number), Some(second));
    client.last_prepared = None;
    assert!(client.find(LAST_PREPARED).is_none());
    let third = put(&mut client, statement(&key, "c"));
    assert!(client.close(third).is_some());
    assert!(client.find(LAST_PREPARED).is_none());
}

#[test]
fn there_is_room_for_so_much_text() {
    let key = HashKey::new();
    let mut client = MysqlClientStatements::default();
    let text = "x".repeat(CLIENT_STATEMENT_BYTES_MAX / 4);
    for _ in 0..4 {
        assert!(client.has_room_for(text.as_bytes()));
        let _number = put(&mut client, statement(&key, &text));
    }
    assert!(!client.has_room_for(b"x"));
    assert!(client.close(2).is_some());
    assert!(client.has_room_for(text.as_bytes()));
    client.clear();
    for _ in 0..CLIENT_STATEMENTS_MAX {
        assert!(client.has_room_for(b"x"));
        let _number = put(&mut client, statement(&key, "x"));
    }
    assert!(!client.has_room_for(b"x"));
}

#[test]
fn what_statements_remember_is_counted() {
    let key = HashKey::new();
    let mut client = MysqlClientStatements::default();
    let (a, b) = (put(&mut client, statement(&key, "a")), put(&mut client, statement(&key, "a")));
    let place = client.find(a).unwrap().1.place;
    assert!(!client.memory().is_any() && !client.is_taken(place, a));
    client.set_memory(a, |memory| memory.cursor = true);
    client.set_memory(a, |memory| memory.long_data = true);
    client.set_memory(b, |memory| memory.long_data = false);
    assert_eq!(client.memory(), StatementMemory { cursor: true, long_data: true });
    assert!(client.is_taken(place, b) && !client.is_taken(place, a));
    client.set_memory(a, |memory| memory.cursor = false);
    assert_eq!(client.memory(), StatementMemory { cursor: false, long_data: true });
    client.server_lost();
    assert!(!client.memory().is_any());
    client.set_memory(b, |memory| memory.cursor = true);
    assert!(client.close(b).is_some());
    assert_eq!((client.remembering, client.memory().is_any()), (0, false));
}

#[test]
fn a_failure_is_one_statements() {
    let key = HashKey::new();
    let mut client = MysqlClientStatements::default();
    let number = put(&mut client, statement(&key, "a"));
    let other = put(&mut client, statement(&key, "a"));
    let failure = |until_reset| PrepareFailure {
        code: 1146,
        state: *b"42S02",
        message: b"no table"[..].into(),
        until_reset,
    };
    client.fail(number, failure(false));
    client.fail(other, failure(true));
    client.fail(77, failure(true));
    assert!(client.has_failed(number) && !client.has_failed(77));
    assert_eq!(client.take_failure(number).unwrap().code, 1146);
    assert!(!client.has_failed(number) && client.take_failure(number).is_none());
    assert!(client.take_failure(other).is_some() && client.take_failure(other).is_some());
    client.forget_failure(other);
    assert!(client.take_failure(other).is_none());
}

#[test]
fn places_are_let_go_in_the_order_of_their_last_use() {
    let key = HashKey::new();
    let ids: Vec<_> = ["a", "b", "c"].map(|text| statement(&key, text).id).into();
    let mut server = MysqlServerStatements::default();
    for (number, id) in (1..).zip(&ids) {
        assert_eq!(server.put(*id, number, COUNTS, None, 7), None);
    }
    assert_eq!(server.oldest(None), Some(ids[0]));
    assert!(server.use_place(ids[0]).is_some());
    assert_eq!(server.oldest(None), Some(ids[1]));
    assert_eq!(server.oldest(Some(ids[1])), Some(ids[2]));
    server.set_user(ids[1], Some(1));
    assert_eq!(server.oldest(None), Some(ids[2]));
    assert!(server.forget_users() && !server.forget_users());
    assert_eq!(server.oldest(None), Some(ids[1]));
    assert!(server.is_current(ids[1], 7) && !server.is_current(ids[1], 8));
    assert_eq!(server.put(ids[1], 9, COUNTS, None, 8), Some(2));
    assert_eq!(server.take(ids[1]), Some(9));
    assert_eq!(server.take(ids[1]), None);
    server.clear();
    assert!(server.is_empty());
}

#[test]
fn a_reply_is_kept_unless_it_is_long() {
    let key = HashKey::new();
    let new = || {
        let statement = statement(&key, "a");
        let place = statement.id;
        PendingPrepare::new(statement, place, PrepareReason::Asked, 0)
    };
    let head = ReplyEvent::Prepared { id: 5, columns: 1, params: 2, warnings: 0 };
    let mut preparing = new();
    preparing.packet(head, PacketHeader { len: 3, seq: 1 }, b"abc");
    preparing.packet(ReplyEvent::Column, PacketHeader { len: 2, seq: 2 }, b"de");
    assert_eq!((preparing.number, preparing.counts), (5, COUNTS));
    assert_eq!(preparing.reply.as_deref(), Some(&b"\x03\0\0\x01abc\x02\0\0\x02de"[..]));
    let long = vec![0; REPLY_BYTES_MAX];
    preparing.packet(ReplyEvent::Column, PacketHeader { len: long.len(), seq: 3 }, &long);
    assert_eq!((preparing.number, preparing.reply.is_none()), (5, true));
    preparing.packet(ReplyEvent::Column, PacketHeader { len: 2, seq: 4 }, b"de");
    assert!(preparing.reply.is_none());
}
