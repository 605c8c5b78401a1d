//! The audit on SQLite and on PostgreSQL.

use node::store::{Store, StoreConfig, StoreUrl};
use node::telemetry::Registry;
use testkit::{Postgres, Scratch};

use super::*;

const LIMITS: AuditLimits = AuditLimits {
    age: Duration::from_secs(3600),
    records_max: 1000,
    waiting_max: 100,
    waiting_max_per_grant: 60,
};

async fn open(url: StoreUrl) -> (Store, Audit) {
    let store = Store::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap();
    let kept = AuditStore::open(store.clone()).await.unwrap();
    (store, Audit::new(kept, LIMITS, AuditStatements::Normalised))
}

fn holder(id: &str, tenant: &str) -> Holder {
    Holder { id: id.into(), tenant: tenant.into() }
}

fn statement(text: &str) -> Happening<'_> {
    Happening {
        text: Some(text),
        took: Duration::from_micros(1500),
        rows: Some(3),
        ..Happening::new(AuditEvent::Statement, AuditOutcome::Done)
    }
}

fn all() -> AuditFilter {
    AuditFilter { limit: PAGE_MAX, ..AuditFilter::default() }
}

#[tokio::test]
async fn what_was_done_is_found_again() {
    let scratch = Scratch::new();
    let server = Postgres::shared();
    let path = scratch.path().join("db");
    for url in [StoreUrl::Sqlite(path), StoreUrl::Postgres(server.database())] {
        let (store, audit) = open(url.clone()).await;
        let one = audit.witness(&holder("ses_1", "a"), "postgres:shop");
        let two = audit.witness(&holder("exe_2", "b"), "http");
        one.saw(&statement("SELECT ?"));
        one.saw(&Happening {
            error: Some("too many rows"),
            ..Happening::new(AuditEvent::Statement, AuditOutcome::Refused)
        });
        two.saw(&Happening {
            text: Some("GET http://x/\0"),
            bytes_in: Some(u64::MAX),
            ..Happening::new(AuditEvent::Request, AuditOutcome::Failed)
        });
        let page = audit.records(all()).await.unwrap();
        assert_eq!((page.records.len(), page.next_after), (3, None));
        let first = &page.records[0];
        assert_eq!((first.tenant.as_str(), first.holder.as_str()), ("a", "ses_1"));
        assert_eq!(
            (first.grant.as_str(), first.text.as_deref()),
            ("postgres:shop", Some("SELECT ?"))
        );
        assert_eq!((first.took_us, first.rows, first.bytes_in), (1500, Some(3), None));
        assert_eq!(page.records[1].error.as_deref(), Some("too many rows"));
        assert_eq!(page.records[2].text.as_deref(), Some("GET http://x/\u{fffd}"));

        let of = async |filter| audit.records(filter).await.unwrap().records.len();
        assert_eq!(of(AuditFilter { tenant: Some("a".to_owned()), ..all() }).await, 2);
        assert_eq!(of(AuditFilter { holder: Some("exe_2".to_owned()), ..all() }).await, 1);
        assert_eq!(of(AuditFilter { event: Some(AuditEvent::Request), ..all() }).await, 1);
        let refused = Some(AuditOutcome::Refused);
        assert_eq!(of(AuditFilter { outcome: refused, ..all() }).await, 1);
        let both = AuditFilter { outcome: refused, tenant: Some("b".to_owned()), ..all() };
        assert_eq!(of(both).await, 0);

        // In pages, and after a restart.
        store.close().await;
        let (store, audit) = open(url).await;
        let mut after = Some(0);
        let mut seen = Vec::new();
        while let Some(from) = after {
            let page = AuditFilter { after: from, limit: 2, ..AuditFilter::default() };
            let page = audit.records(page).await.unwrap();
            seen.extend(page.records.iter().map(|record| record.seq));
            after = page.next_after;
        }
        assert_eq!(seen.len(), 3);
        assert!(seen.is_sorted());

        // Too many, then too old.
        audit.0.store.shorten(0, 2).await.unwrap();
        assert_eq!(audit.records(all()).await.unwrap().records.len(), 2);
        audit.shorten().await.unwrap();
        assert_eq!(audit.records(all()).await.unwrap().records.len(), 2);
        audit.0.store.shorten(clock::wall_ms() + 1, 1000).await.unwrap();
        assert_eq!(audit.records(all()).await.unwrap().records.len(), 0);
        store.close().await;
    }
}

#[tokio::test]
async fn who_does_much_takes_no_room_of_others() {
    let scratch = Scratch::new();
    let (store, audit) = open(StoreUrl::Sqlite(scratch.path().join("db"))).await;
    let [busy, calm, late] =
        ["ses_1", "ses_2", "ses_3"].map(|id| audit.witness(&holder(id, "a"), "http"));
    let long = "x".repeat(TEXT_BYTES_MAX - 1) + "ü";
    for _ in 0..200 {
        busy.saw(&statement(&long));
    }
    assert_eq!(audit.lost(), 140);
    for _ in 0..40 {
        calm.saw(&statement("SELECT ?"));
    }
    assert_eq!(audit.lost(), 140);
    late.saw(&statement("SELECT ?"));
    assert_eq!(audit.lost(), 141);
    // What could not be written waits again, as far as there is room.
    let taken = audit.0.take();
    late.saw(&statement("SELECT ?"));
    audit.0.put_back(taken);
    assert_eq!(audit.lost(), 142);
    audit.write().await.unwrap();
    let page = audit.records(all()).await.unwrap();
    assert_eq!((page.records.len(), audit.written()), (100, 100));
    assert_eq!(page.records[0].text.as_deref().unwrap().len(), TEXT_BYTES_MAX - 1);
    // There is room again for everybody.
    busy.saw(&statement("SELECT ?"));
    assert_eq!(audit.records(all()).await.unwrap().records.len(), 101);
    store.close().await;
    busy.saw(&statement("SELECT ?"));
    assert!(audit.write().await.is_err());
    assert_eq!(audit.0.waiting.lock().len(), 1);
}
