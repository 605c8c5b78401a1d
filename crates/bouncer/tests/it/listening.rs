//! Clients that listen while they share server connections.

use std::time::Duration;

use api::{PoolMode, TenantLimitsSpec};
use bouncer::relay::orders::ThreadCommand;
use bouncer::service::RelayThreads;
use bouncer::tenants::WorkAdmission;
use testkit::{PgBatch, PgClient, Postgres};

use crate::support::{Pooler, limited, tenant, until};

fn one_connection() -> TenantLimitsSpec {
    TenantLimitsSpec { server_connections_max: Some(1), ..TenantLimitsSpec::default() }
}

/// Returns the next notification that the client receives: channel and payload.
fn told(client: &mut PgClient) -> (String, String) {
    while client.notifications.is_empty() {
        let message = client.message().expect("a notification");
        assert!([b'A', b'N'].contains(&message.tag), "{message:?}");
    }
    let first = client.notifications.remove(0);
    (first.channel, first.payload)
}

fn check_told(client: &mut PgClient, channel: &str, payload: &str) {
    assert_eq!(told(client), (channel.to_owned(), payload.to_owned()));
}

#[test]
fn notifications_reach_those_who_listen_and_nobody_else() {
    let server = Postgres::shared();
    for threads in [1, 2] {
        let limits = one_connection();
        let pooler =
            Pooler::start(threads, vec![limited("t", &server, PoolMode::Transaction, limits)]);
        let mut clients: Vec<PgClient> = (0..4).map(|_| pooler.client("t")).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.run("LISTEN \"All\"; LISTEN a_last").tags(), ["LISTEN", "LISTEN"]);
            client.run(&format!("LISTEN a_only_{number}"));
        }
        let mut sender = pooler.client("t");
        for number in 0..4 {
            sender.run(&format!("NOTIFY a_only_{number}, 'for {number}'"));
        }
        sender.run("BEGIN; NOTIFY \"All\", 'a'; NOTIFY \"All\", 'b'; COMMIT");
        sender.run("BEGIN; NOTIFY \"All\", 'never'; ROLLBACK");
        sender.run("NOTIFY a_last");
        for (number, client) in clients.iter_mut().enumerate() {
            check_told(client, &format!("a_only_{number}"), &format!("for {number}"));
            check_told(client, "All", "a");
            check_told(client, "All", "b");
            check_told(client, "a_last", "");
            // The connection is back in the pool, and works.
            assert_eq!(client.value("SELECT count(*) FROM pg_listening_channels()"), "0");
        }
    }
}

#[test]
fn a_subscription_holds_when_its_transaction_does() {
    let server = Postgres::shared();
    let pooler = Pooler::start(1, vec![tenant("t", &server, PoolMode::Transaction)]);
    let (mut client, mut sender) = (pooler.client("t"), pooler.client("t"));
    let mut witness = pooler.client("t");
    witness.run("LISTEN b_marker");
    client.run("LISTEN b_marker");
    client.run("BEGIN");
    client.run("LISTEN b_news");
    client.run("ROLLBACK");
    sender.run("NOTIFY b_news, 'rolled back'; NOTIFY b_marker, '1'");
    check_told(&mut client, "b_marker", "1");

    client.run("BEGIN");
    client.run("LISTEN b_news");
    sender.run("NOTIFY b_news, 'before the commit'; NOTIFY b_marker, '2'");
    // A notification that arrives during the commit may have been sent after it.
    check_told(&mut witness, "b_marker", "1");
    check_told(&mut witness, "b_marker", "2");
    client.run("COMMIT");
    sender.run("NOTIFY b_news, 'after the commit'");
    check_told(&mut client, "b_marker", "2");
    check_told(&mut client, "b_news", "after the commit");

    // Nothing is delivered within a transaction.
    client.run("BEGIN");
    sender.run("NOTIFY b_news, 'meanwhile'");
    let message = "SELECT 1; SELECT 2";
    assert_eq!(client.run(message).tags(), ["SELECT 1", "SELECT 1"]);
    assert!(client.notifications.is_empty());
    client.run("COMMIT");
    check_told(&mut client, "b_news", "meanwhile");

    client.run("BEGIN; UNLISTEN b_news; ROLLBACK");
    sender.run("NOTIFY b_news, 'still'");
    check_told(&mut client, "b_news", "still");
    client.run("UNLISTEN b_news");
    sender.run("NOTIFY b_news, 'no more'; NOTIFY b_marker, '3'");
    check_told(&mut client, "b_marker", "3");
    client.run("DISCARD ALL");
    client.run("LISTEN b_other");
    sender.run("NOTIFY b_marker, 'no more'; NOTIFY b_other");
    check_told(&mut client, "b_other", "");
    client.run("UNLISTEN *");
    assert_eq!(client.fail("LISTEN").code(), "42601");
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn listening_works_by_the_extended_protocol() {
    let server = Postgres::shared();
    let pooler = Pooler::start(1, vec![tenant("t", &server, PoolMode::Transaction)]);
    let mut client = pooler.client("t");
    let batch = PgBatch::new()
        .parse("", "LISTEN c_news")
        .bind("", "", &[])
        .describe(b'P', "")
        .execute("", 0)
        .sync()
        .query("SELECT pg_notify('c_news', 'me')");
    client.send(&batch.0).expect("send");
    let answer = client.answer().expect("the batch's answer");
    assert_eq!((answer.letters().as_str(), answer.tags()), ("12nCZ", vec!["LISTEN".to_owned()]));
    client.answer().expect("the query's answer");
    check_told(&mut client, "c_news", "me");
    // A client recognizes its own notifications by its process id.
    client.run("NOTIFY c_news");
    client.message().expect("a notification");
    assert_eq!(client.notifications[0].pid, client.pid);
}

#[test]
fn tenants_with_channels_of_one_name_hear_their_own() {
    let server = Postgres::shared();
    server.sql("CREATE DATABASE listen_other");
    let mut other = tenant("other", &server, PoolMode::Transaction);
    other.database = Some("listen_other".to_owned());
    let pooler = Pooler::start(1, vec![tenant("t", &server, PoolMode::Transaction), other]);
    let (mut one, mut two) = (pooler.client("t"), pooler.client("other"));
    one.run("LISTEN d_news");
    two.run("LISTEN d_news");
    pooler.client("t").run("NOTIFY d_news, 'of t'");
    pooler.client("other").run("NOTIFY d_news, 'of other'");
    check_told(&mut one, "d_news", "of t");
    check_told(&mut two, "d_news", "of other");
    one.run("NOTIFY d_news, 'end'");
    check_told(&mut one, "d_news", "end");
}

#[test]
fn who_does_not_read_is_closed_and_told_while_others_go_on() {
    let server = Postgres::shared();
    let pooler = Pooler::start(1, vec![tenant("t", &server, PoolMode::Transaction)]);
    let (mut slow, mut busy, mut quick) =
        (pooler.client("t"), pooler.client("t"), pooler.client("t"));
    for client in [&mut slow, &mut busy, &mut quick] {
        client.run("LISTEN e_flood");
    }
    busy.run("BEGIN");
    let mut sender = pooler.client("t");
    let payload = "x".repeat(7_000);
    for round in 0..40 {
        // 256 of them, all different: equal ones of a transaction are sent once.
        let texts = (0..32).map(|n| format!("NOTIFY e_flood, '{round} {n} {payload}'"));
        sender.run(&texts.collect::<Vec<_>>().join(";"));
        for number in 0..32 {
            let (_, payload) = told(&mut quick);
            assert!(payload.starts_with(&format!("{round} {number} ")));
        }
    }
    for mut client in [slow, busy] {
        let (ended, messages) = client.end();
        let last = messages.last().expect("a reason");
        assert!(ended);
        assert_eq!((last.tag, last.error().code()), (b'E', "53400"));
    }
    assert_eq!(quick.value("SELECT 1"), "1");
}

#[test]
fn who_listens_is_told_when_something_may_have_been_missed() {
    let server = Postgres::shared();
    let pooler = Pooler::start(1, vec![tenant("t", &server, PoolMode::Transaction)]);
    let mut client = pooler.client("t");
    client.run("LISTEN gap_news");
    let ends = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                WHERE query LIKE 'LISTEN \"gap_news\"%'";
    until("the ear is there", || (server.sql(ends) == "1").then_some(()));
    let notice = client.message().expect("a notice");
    assert_eq!((notice.tag, notice.error().code()), (b'N', "01000"));
    pooler.client("t").run("NOTIFY gap_news, 'again'");
    check_told(&mut client, "gap_news", "again");

    let held = pooler.tenant("t");
    held.state.set_admission(WorkAdmission::Paused);
    pooler.relay.order(&|| ThreadCommand::Admission(held.id));
    let ears = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN \"gap_news\"%'";
    until("the ear is closed", || (server.sql(ears) == "0").then_some(()));
    held.state.set_admission(WorkAdmission::Open);
    pooler.relay.order(&|| ThreadCommand::Admission(held.id));
    let notice = client.message().expect("a notice");
    assert_eq!(notice.tag, b'N');
    pooler.client("t").run("NOTIFY gap_news, 'once more'");
    check_told(&mut client, "gap_news", "once more");
}

#[test]
fn a_session_listens_by_itself() {
    let server = Postgres::shared();
    let pooler = Pooler::start(1, vec![tenant("t", &server, PoolMode::Session)]);
    let mut client = pooler.client("t");
    client.run("LISTEN g_news");
    assert_eq!(client.value("SELECT pg_listening_channels()"), "g_news");
    pooler.client("t").run("NOTIFY g_news, 'direct'");
    client.patience(Duration::from_secs(20));
    check_told(&mut client, "g_news", "direct");
}

#[test]
fn who_listens_again_does_so_where_its_own_database_is() {
    let server = Postgres::shared();
    let own = tenant("own", &server, PoolMode::Transaction);
    let mut other = tenant("other", &server, PoolMode::Transaction);
    other.database = Some("template1".to_owned());
    let pooler = Pooler::start(1, vec![own, other]);
    let (mut client, mut sender) = (pooler.client("own"), pooler.client("own"));
    client.run("LISTEN d_own; UNLISTEN d_own");
    // The listening connection is closed when it was not needed for a while.
    until("nobody listens", || {
        let listens = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'UNLISTEN \"d_own%'";
        (sender.value(listens) == "0").then_some(())
    });
    // Another listening connection may take its slot.
    pooler.client("other").run("LISTEN d_other");
    client.run("LISTEN d_own");
    sender.run("NOTIFY d_own, 'heard'");
    check_told(&mut client, "d_own", "heard");
}
