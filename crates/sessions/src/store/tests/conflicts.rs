//! Deterministic conflicts on PostgreSQL: an operation is stopped after its reads until another one
//! has committed.
//!
//! A trigger of the test stops it: the trigger waits for an advisory lock, in connections with one
//! application name only. The store is unaware of it.

use std::sync::mpsc;
use std::time::Duration;

use node::telemetry::{MetricsRegistry, Registry};
use tokio::time::timeout;

use super::*;

/// Longest wait for any step.
const SOON: Duration = Duration::from_secs(60);

/// Returns a trigger that stops connections named `gated` before they change a table, while another
/// connection holds the lock.
fn gate(table: &str) -> String {
    format!(
        "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF current_setting('application_name') = 'gated' THEN
                PERFORM pg_advisory_xact_lock(42);
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER gate BEFORE INSERT OR UPDATE OR DELETE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION gate()"
    )
}

/// Runs `gated` until it begins to write `table`, then `meanwhile` to its end, then the rest of
/// `gated`, which must conflict and run again: that is asserted. Returns both results.
async fn collide<A: Send + 'static, B>(
    table: &str,
    prepare: impl AsyncFn(&SessionStore),
    gated: impl AsyncFnOnce(SessionStore) -> A + 'static,
    meanwhile: impl AsyncFnOnce(&SessionStore) -> B,
) -> (A, B, SessionStore, Arc<Postgres>) {
    let server = Postgres::shared();
    let url = server.database();
    let free = open(StoreUrl::Postgres(url.clone())).await;
    prepare(&free).await;
    let sql = gate(table);
    free.access.write("test.gate", move |it| it.batch(&sql)).await.unwrap();

    let mut registry = Registry::default();
    let config = StoreConfig::new(StoreUrl::Postgres(format!("{url}&application_name=gated")));
    let slow =
        SessionStore::open(SqlStore::open(config, &mut registry).await.unwrap()).await.unwrap();
    let metrics = MetricsRegistry::new(registry);

    let (locked, is_locked) = tokio::sync::oneshot::channel();
    let (unlock, until_unlocked) = mpsc::channel::<()>();
    let mut locked = Some(locked);
    let holder = free.clone();
    let holder = tokio::spawn(async move {
        holder
            .access
            .write("test.hold", move |it| {
                it.batch("SELECT pg_advisory_xact_lock(42)")?;
                locked.take().unwrap().send(()).unwrap();
                // Blocks until the other end is dropped.
                until_unlocked.recv().unwrap_err();
                Ok(())
            })
            .await
            .unwrap();
    });
    is_locked.await.unwrap();

    let second = async {
        let waits = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        loop {
            let count: i64 = free
                .access
                .read("test.look", move |it| it.query(waits, &[])?[0].get(0))
                .await
                .unwrap();
            if count == 1 {
                break;
            }
            tokio::task::yield_now().await;
        }
        let answer = meanwhile(&free).await;
        drop(unlock);
        holder.await.unwrap();
        answer
    };
    let both = async { tokio::join!(gated(slow.clone()), second) };
    let (first, second) = timeout(SOON, both).await.expect("in time");
    // The counter is written before the successful repetition returns.
    let text = metrics.render().unwrap();
    let retried = |line: &&str| {
        line.starts_with("cove_store_transaction_retries_total{") && !line.ends_with(" 0")
    };
    assert!(text.lines().any(|line| retried(&line)), "nothing was tried again:\n{text}");
    // The server ends with its last user.
    (first, second, free, server)
}

async fn with_session(store: &SessionStore) {
    store.insert_session(session("ses_1", "a"), 9).await.unwrap();
    store.release("ses_1", 1).await.unwrap();
}

#[tokio::test]
async fn the_claim_that_commits_first_wins() {
    let (late, first, store, _server) = collide(
        "sessions",
        with_session,
        async |store| store.claim("ses_1", &node_of("late"), 1, at(NOW)).await.unwrap(),
        async |store| store.claim("ses_1", &node_of("first"), 1, at(NOW)).await.unwrap(),
    )
    .await;
    assert_eq!(late, None);
    assert_eq!(store.session("a", "ses_1").await.unwrap(), first);
    assert_eq!(first.unwrap().owner.as_deref(), Some("first"));
}

#[tokio::test]
async fn a_batch_loses_against_a_claim_and_writes_nothing() {
    let (lost, claimed, store, _server) = collide(
        "sessions",
        with_session,
        async |store| {
            let part = SessionBatch {
                session: "ses_1".to_owned(),
                epoch: 1,
                ceiling: 99_999,
                events: vec![super::events::row("ses_1", 1)],
                ..SessionBatch::default()
            };
            store.write_batch(Arc::new(WriteBatch { parts: vec![part] })).await.unwrap()
        },
        async |store| store.claim("ses_1", &node_of("first"), 1, at(NOW)).await.unwrap(),
    )
    .await;
    assert_eq!(lost, [0]);
    assert_eq!(store.session("a", "ses_1").await.unwrap(), claimed);
    assert_eq!(super::events::last(&store, "ses_1").await, 0);
}

#[tokio::test]
async fn two_deployments_at_once_are_two_versions() {
    for existed in [false, true] {
        let prepare = async |store: &SessionStore| {
            if existed {
                let (row, version) = agent("writer", "a");
                store.agents.deploy(row, version, 9).await.unwrap();
            }
        };
        let deploy = async |store: &SessionStore| {
            let (row, version) = agent("writer", "a");
            store.agents.deploy(row, version, 9).await.map(|it| it.agent.last_version)
        };
        let (late, first, store, _server) =
            collide("agents", prepare, async move |store| deploy(&store).await, deploy).await;
        let before = u32::from(existed);
        assert_eq!((late.unwrap(), first.unwrap()), (before + 2, before + 1));
        let id = agent("writer", "a").0.id;
        assert_eq!(store.agents.versions(&id).await.unwrap().len(), 2 + usize::from(existed));
    }
}

#[tokio::test]
async fn nobody_begins_to_stand_on_a_layer_that_is_being_removed() {
    let on_layer = || SessionRow { chain: vec!["l_1".to_owned()], ..session("ses_1", "a") };
    let (late, taken, store, _server) = collide(
        "session_layer_uses",
        async |store| layer(store, "l_1").await,
        async move |store| store.insert_session(on_layer(), 9).await,
        async |store| store.layers.take_unused(NOW + 1, 9).await.unwrap(),
    )
    .await;
    assert!(matches!(late, Err(SessionError::NotFound("layer"))), "{late:?}");
    assert_eq!(taken, ["l_1"]);
    assert_eq!(store.session("a", "ses_1").await.unwrap(), None);
    // In the opposite order, the layer stays.
    let (late, first, store, _server) = collide(
        "session_layers",
        async |store| layer(store, "l_1").await,
        async |store| store.layers.take_unused(NOW + 1, 9).await.unwrap(),
        async move |store| store.insert_session(on_layer(), 9).await.unwrap(),
    )
    .await;
    assert_eq!(late, [""; 0]);
    assert_eq!(store.session("a", "ses_1").await.unwrap(), Some(first));
    assert_eq!(store.layers.list("", 9).await.unwrap(), ["l_1"]);
}

#[tokio::test]
async fn two_changes_of_a_session_are_both_there() {
    let turns = |row: &mut SessionRow| {
        row.turns += 1;
        Ok(())
    };
    let name = |row: &mut SessionRow| {
        row.metadata.insert("name".to_owned(), "value".to_owned());
        row.turns += 10;
        Ok(())
    };
    let (late, _, store, _server) = collide(
        "sessions",
        with_session,
        async move |store| store.modify("a", "ses_1", turns).await.unwrap(),
        async |store| store.modify("a", "ses_1", name).await.unwrap(),
    )
    .await;
    let found = store.session("a", "ses_1").await.unwrap().unwrap();
    assert_eq!(found, late);
    assert_eq!((found.turns, found.metadata.len()), (11, 1));
}

#[tokio::test]
async fn an_agent_that_is_removed_is_not_changed() {
    let change = |row: &mut AgentRow| {
        row.description = Some("late".to_owned());
        Ok(())
    };
    let (late, _, store, _server) = collide(
        "agents",
        async |store| {
            let (row, version) = agent("writer", "a");
            store.agents.deploy(row, version, 9).await.unwrap();
        },
        async move |store| store.agents.update("a", "writer", change).await,
        async |store| store.agents.delete("a", "writer").await.unwrap().unwrap(),
    )
    .await;
    assert!(matches!(late, Err(SessionError::NotFound("agent"))), "{late:?}");
    assert_eq!(store.agents.find("a", "writer").await.unwrap(), None);
}

#[tokio::test]
async fn a_limit_holds_for_two_at_once() {
    let row = |id: &str| AttachmentRow {
        id: id.to_owned(),
        tenant: "a".to_owned(),
        session: "ses_1".to_owned(),
        name: "n".to_owned(),
        media_type: None,
        bytes: 1,
        object: "o".to_owned(),
        created_ms: NOW,
    };
    let (late, _, store, _server) = collide(
        "session_attachments",
        with_session,
        async move |store| store.attachments.insert(row("att_2"), 1).await,
        async |store| store.attachments.insert(row("att_1"), 1).await.unwrap(),
    )
    .await;
    assert!(matches!(late, Err(SessionError::TooMany(_))), "{late:?}");
    assert_eq!(store.attachments.of_session("a", "ses_1").await.unwrap().len(), 1);
}
