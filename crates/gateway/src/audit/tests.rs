//! The audit log on SQLite and on PostgreSQL.

use std::collections::BTreeMap;

use node::store::{SqlStore, StoreConfig, StoreUrl};
use node::telemetry::Registry;
use testkit::{Postgres, Scratch};

use super::*;

const MANY: Bounds = Bounds { all: 1000, tenant: 1000, holder: 1000 };

const LIMITS: GatewayAuditLimits = GatewayAuditLimits {
    age: Duration::from_secs(3600),
    records: MANY,
    waiting_max: 100,
    waiting_max_per_tenant: 80,
    waiting_max_per_grant: 60,
    // The next record is allowed only after months.
    per_s_per_grant: 1e-7,
};

async fn open(url: StoreUrl) -> (SqlStore, GatewayAudit) {
    let store = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap();
    let kept = AuditStore::open(store.clone()).await.unwrap();
    (store, GatewayAudit::new(kept, LIMITS, AuditStatements::Normalised))
}

/// Returns the owners of records, their numbers, and the numbers reported as missing.
async fn counts(audit: &GatewayAudit) -> BTreeMap<(String, String), (usize, u64)> {
    let mut counts = BTreeMap::<_, (usize, u64)>::new();
    for record in audit.records(all()).await.unwrap().records {
        let of = counts.entry((record.tenant, record.holder)).or_default();
        match record.event {
            AuditEvent::Missing => of.1 += record.rows.unwrap(),
            _ => of.0 += 1,
        }
    }
    counts
}

fn of(tenant: &str, holder: &str) -> (String, String) {
    (tenant.to_owned(), holder.to_owned())
}

fn holder(id: &str, tenant: &str) -> GrantHolder {
    GrantHolder::new(id, tenant)
}

fn statement(text: &str) -> GatewayEvent<'_> {
    GatewayEvent {
        text: Some(text),
        took: Duration::from_micros(1500),
        rows: Some(3),
        ..GatewayEvent::new(AuditEvent::Statement, AuditOutcome::Done)
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
        one.saw(&GatewayEvent {
            error: Some("too many rows"),
            ..GatewayEvent::new(AuditEvent::Statement, AuditOutcome::Refused)
        });
        two.saw(&GatewayEvent {
            text: Some("GET http://x/\0"),
            bytes_in: Some(u64::MAX),
            ..GatewayEvent::new(AuditEvent::Request, AuditOutcome::Failed)
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

        let granted = AuditFilter { grant: Some("http".to_owned()), ..all() };
        assert_eq!(of(granted).await, 1);
        for (text, expected) in [("select ?", 1), ("%", 0), ("_", 0)] {
            assert_eq!(of(AuditFilter { text: Some(text.to_owned()), ..all() }).await, expected);
        }
        let now = clock::wall_ms();
        for (from_ms, to_ms, expected) in [
            (Some(now - 600_000), Some(now + 600_000), 3),
            (Some(now + 600_000), None, 0),
            (None, Some(now - 600_000), 0),
        ] {
            assert_eq!(of(AuditFilter { from_ms, to_ms, ..all() }).await, expected);
        }

        // From the newest on, in pages.
        let newest = AuditFilter { is_newest_first: true, limit: 2, ..all() };
        let first = audit.records(newest.clone()).await.unwrap();
        assert_eq!(first.records[0].seq, first.newest);
        let next = AuditFilter { before: first.next_before, ..newest };
        let last = audit.records(next).await.unwrap();
        assert_eq!((first.records.len(), last.records.len(), last.next_before), (2, 1, None));
        assert_eq!(last.records[0].text.as_deref(), Some("SELECT ?"));

        // Counted.
        let summary = audit.summary(api::AuditSummaryKey::Grant, all()).await.unwrap();
        let counts: Vec<_> =
            summary.groups.iter().map(|it| (it.name.as_str(), it.records, it.refused)).collect();
        assert!(counts.contains(&("postgres:shop", 2, 1)), "{counts:?}");
        assert_eq!(counts.iter().map(|(_, records, _)| records).sum::<u64>(), 3);
        assert_eq!((summary.others, summary.next_before), (0, None));

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

        // Too old.
        audit.shorten().await.unwrap();
        assert_eq!(audit.records(all()).await.unwrap().records.len(), 3);
        audit.0.store.shorten(clock::wall_ms() + 1, MANY).await.unwrap();
        assert_eq!(audit.records(all()).await.unwrap().records.len(), 0);
        store.close().await;
    }
}

#[tokio::test]
async fn who_does_much_takes_no_room_of_others() {
    let scratch = Scratch::new();
    let (store, audit) = open(StoreUrl::Sqlite(scratch.path().join("db"))).await;
    let pen = |id: &str, tenant: &str| audit.witness(&holder(id, tenant), "http");
    let (busy, calm) = (pen("ses_1", "a"), pen("ses_2", "a"));
    let long = "x".repeat(TEXT_BYTES_MAX - 1) + "ü";
    let began = clock::wall_ms();
    for _ in 0..200 {
        busy.saw(&statement(&long));
    }
    assert_eq!(audit.lost(), 140);
    for _ in 0..40 {
        calm.saw(&statement("SELECT ?"));
    }
    assert_eq!(audit.lost(), 160);
    // Another tenant has reserved space, even if the buffer is full.
    for tenant in ["b", "c"] {
        let other = pen("exe_3", tenant);
        for _ in 0..30 {
            other.saw(&statement("SELECT ?"));
        }
    }
    assert_eq!(audit.lost(), 160);
    // Records that could not be written are buffered again.
    let taken = audit.0.take();
    calm.saw(&statement("SELECT ?"));
    audit.0.put_back(taken);
    assert_eq!((audit.lost(), audit.0.waiting.load(Ordering::Relaxed)), (161, 140));
    audit.write().await.unwrap();
    assert_eq!(audit.0.waiting.load(Ordering::Relaxed), 0);
    let page = audit.records(all()).await.unwrap();
    assert_eq!(page.records[0].text.as_deref().unwrap().len(), TEXT_BYTES_MAX - 1);
    let missing = page.records.iter().find(|it| it.rows == Some(140)).unwrap();
    assert_eq!((missing.event, missing.grant.as_str()), (AuditEvent::Missing, "http"));
    assert!(missing.text.as_deref().unwrap().starts_with("140 more were not written down, from 2"));
    let at = clock::wall_ms();
    assert!(missing.took_us <= (at - began) * 1000);
    let expected = [
        (of("a", "ses_1"), (60, 140)),
        (of("a", "ses_2"), (20, 21)),
        (of("b", "exe_3"), (30, 0)),
        (of("c", "exe_3"), (30, 0)),
    ];
    assert_eq!(counts(&audit).await, expected.into());
    // There is space again, but not for a grant that exceeded its rate.
    busy.saw(&statement("SELECT ?"));
    calm.saw(&statement("SELECT ?"));
    let found = counts(&audit).await;
    assert_eq!((found[&of("a", "ses_1")], found[&of("a", "ses_2")]), ((60, 141), (21, 21)));
    store.close().await;
    calm.saw(&statement("SELECT ?"));
    busy.saw(&statement("SELECT ?"));
    assert!(audit.write().await.is_err());
    assert!(audit.write().await.is_err());
    let state = audit.0.state.lock();
    let missing: Vec<u64> = state.missing.values().map(|it| it.count).collect();
    assert_eq!((state.waiting.len(), missing), (1, vec![1]));
}

#[tokio::test]
async fn who_has_much_at_rest_removes_nothing_of_others() {
    let scratch = Scratch::new();
    let server = Postgres::shared();
    for url in [StoreUrl::Sqlite(scratch.path().join("db")), StoreUrl::Postgres(server.database())]
    {
        let (store, audit) = open(url).await;
        // The first one is the oldest, and is kept.
        for (holder_id, tenant, count) in
            [("ses_9", "c", 3), ("ses_1", "a", 50), ("ses_2", "a", 5), ("ses_3", "b", 40)]
        {
            let pen = audit.witness(&holder(holder_id, tenant), "http");
            for _ in 0..count {
                pen.saw(&statement("SELECT ?"));
            }
            audit.write().await.unwrap();
        }
        let shorten = async |all, tenant, holder| {
            audit.0.store.shorten(0, Bounds { all, tenant, holder }).await.unwrap();
            counts(&audit).await
        };
        // Each has a record with the number of removed ones.
        let mut expected: BTreeMap<_, _> = [
            (of("a", "ses_1"), (29, 21)),
            (of("a", "ses_2"), (5, 0)),
            (of("b", "ses_3"), (29, 11)),
            (of("c", "ses_9"), (3, 0)),
        ]
        .into();
        assert_eq!(shorten(1000, 1000, 30).await, expected);
        assert_eq!(shorten(1000, 1000, 30).await, expected);
        expected.insert(of("a", "ses_1"), (23, 21));
        expected.insert(of("a", ""), (0, 6));
        assert_eq!(shorten(1000, 30, 30).await, expected);
        // Over all tenants: `a` and `b` have the most.
        let found = shorten(43, 1000, 1000).await;
        let sum = |tenant: &str| {
            let of_it = found.iter().filter(|((of, _), _)| of == tenant).map(|(_, it)| *it);
            of_it.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
        };
        assert_eq!(sum("c"), (3, 0));
        for (tenant, whole) in [("a", 55), ("b", 40)] {
            let (kept, missing) = sum(tenant);
            assert!((16..20).contains(&kept), "{tenant} {kept}");
            assert_eq!(u64::try_from(kept).unwrap() + missing, whole, "{tenant}");
        }
        assert!(audit.records(all()).await.unwrap().records.len() <= 43);
        store.close().await;
    }
}
