//! Both sets of books agree after any sequence of operations.

use std::time::{Duration, Instant};

use super::*;

const TENANT: &str = "one";

fn session(id: &str) -> ResidentKey {
    ResidentKey::Session(id.into())
}

/// Requests a place as the only tenant.
fn admit(
    books: &ResidentLedger,
    key: &ResidentKey,
    now: Instant,
) -> Result<Vec<EvictionDuty>, CapacityRefusal> {
    admit_as(books, "one", usize::MAX, key, now)
}

/// Requests a place as a tenant with a limit.
fn admit_as(
    books: &ResidentLedger,
    tenant: &str,
    tenant_max: usize,
    key: &ResidentKey,
    now: Instant,
) -> Result<Vec<EvictionDuty>, CapacityRefusal> {
    books.admit(&PlaceRequest { key, tenant: &tenant.into(), tenant_max }, now)
}

fn admit_if_free(books: &ResidentLedger, number: u64, now: Instant) -> bool {
    let (key, tenant) = (ResidentKey::Ready(number), "one".into());
    books.admit_if_free(&PlaceRequest { key: &key, tenant: &tenant, tenant_max: usize::MAX }, now)
}

async fn admit_in_line(
    books: &ResidentLedger,
    key: &ResidentKey,
) -> Result<Vec<EvictionDuty>, CapacityRefusal> {
    let tenant = "one".into();
    let request = PlaceRequest { key, tenant: &tenant, tenant_max: usize::MAX };
    books.admit_in_line(&request, node::clock::now).await
}

/// Begins a use of a sandbox; returns false if it is ending.
fn begins(books: &ResidentLedger, key: &ResidentKey, uses: &UseCount, now: Instant) -> bool {
    books.begin(key, &TENANT.into(), uses, now).is_some()
}

/// Returns a ledger in which each of these waits, the first one longest.
fn waiting(books: &ResidentLedger, ids: &[&str], now: Instant) -> Vec<UseCount> {
    let wait = |id: &&str| {
        assert_eq!(admit(books, &session(id), now), Ok(Vec::new()));
        books.waiting(&session(id), now);
        UseCount::default()
    };
    ids.iter().map(wait).collect()
}

#[test]
fn what_waits_the_longest_gives_way_and_what_works_does_not() {
    let now = node::clock::now();
    let books = ResidentLedger::new(2, 10, now);
    let uses = waiting(&books, &["a", "b"], now);
    assert!(begins(&books, &session("a"), &uses[0], now));
    assert_eq!(admit(&books, &session("c"), now), Ok(vec![EvictionDuty::Stop("b".into())]));
    assert_eq!(books.state(&session("b")), Some(State::Cold));
    assert!(!begins(&books, &session("b"), &uses[1], now), "what gives way is not worked with");
    let full = admit(&books, &session("d"), now);
    assert_eq!(full, Err(CapacityRefusal::Soon), "one works, one is being made");
    assert_eq!(books.stats().total, 3);
}

#[test]
fn cold_ones_go_first_when_there_is_no_room_on_the_disk() {
    let now = node::clock::now();
    let books = ResidentLedger::new(2, 2, now);
    waiting(&books, &["a", "b"], now);
    let duties = admit(&books, &session("c"), now);
    assert_eq!(duties, Ok(vec![EvictionDuty::Stop("a".into()), EvictionDuty::Archive("a".into())]));
    assert_eq!(books.state(&session("a")), None);
    assert_eq!((books.stats().total, books.stats().capacity), (2, 2));
}

#[test]
fn what_is_ready_gives_way_before_sessions_do() {
    let now = node::clock::now();
    let books = ResidentLedger::new(2, 10, now);
    waiting(&books, &["a"], now);
    assert!(admit_if_free(&books, 7, now));
    books.warm(&ResidentKey::Ready(7), now);
    assert!(!admit_if_free(&books, 8, now), "it takes nobody's place");
    assert_eq!(admit(&books, &session("b"), now), Ok(vec![EvictionDuty::Discard(7)]));
    assert!(!books.claim(7, &"c".into(), now));
}

#[test]
fn a_claim_takes_the_place_over() {
    let now = node::clock::now();
    let books = ResidentLedger::new(1, 1, now);
    assert!(admit_if_free(&books, 1, now));
    books.warm(&ResidentKey::Ready(1), now);
    assert!(books.claim(1, &"a".into(), now));
    // Its row is still being written, so it cannot be evicted.
    assert_eq!(books.state(&session("a")), Some(State::Warming));
    assert_eq!(admit(&books, &session("b"), now), Err(CapacityRefusal::Soon));
    books.warm(&session("a"), now);
    assert_eq!((books.stats().total, books.stats_of("one").warm), (1, 1));
}

#[test]
fn uses_of_a_sandbox_that_is_gone_say_nothing_of_the_next_one() {
    let now = node::clock::now();
    let books = ResidentLedger::new(2, 10, now);
    let old = waiting(&books, &["a"], now).remove(0);
    assert!(begins(&books, &session("a"), &old, now));
    books.cold(&session("a"), &old, now);
    assert_eq!(admit(&books, &session("a"), now), Ok(Vec::new()));
    books.waiting(&session("a"), now);
    let new = UseCount::default();
    assert!(begins(&books, &session("a"), &new, now));
    books.end(&session("a"), &TENANT.into(), &old, now);
    assert_eq!(books.state(&session("a")), Some(State::Running));
    assert!(!begins(&books, &session("a"), &old, now));
    books.end(&session("a"), &TENANT.into(), &new, now);
    assert_eq!(books.state(&session("a")), Some(State::Waiting));
}

#[test]
fn idle_ones_are_taken_once_but_for_the_patient() {
    let now = node::clock::now();
    let books = ResidentLedger::new(4, 10, now);
    let uses = waiting(&books, &["a", "b", "c"], now);
    let later = now + Duration::from_secs(10);
    assert!(begins(&books, &session("c"), &uses[2], later));
    let patient = HashSet::from(["b".into()]);
    assert_eq!(books.idle_but(later, Duration::from_secs(10), &patient), ["a".into()]);
    assert_eq!(books.idle(later, Duration::from_secs(10)), []);
    assert!(begins(&books, &session("b"), &uses[1], later));
    assert!(books.is_cold(&session("a")));
    assert!(!books.is_cold(&session("b")));
    let much_later = later + Duration::from_secs(100);
    assert_eq!(books.cold_before(much_later, Duration::from_secs(100)), ["a".into()]);
    assert_eq!(books.state(&session("a")), None);
}

#[test]
fn nobody_is_struck_off_for_what_is_there_already() {
    let now = node::clock::now();
    let books = ResidentLedger::new(1, 2, now);
    let uses = waiting(&books, &["a"], now);
    for cold in ["b", "c", "d"] {
        books.keep_cold(&cold.into(), &"one".into(), now);
    }
    books.keep_cold(&"a".into(), &"one".into(), now);
    assert_eq!(books.stats().total, 4);
    assert!(begins(&books, &session("a"), &uses[0], now), "it lives");
    books.end(&session("a"), &TENANT.into(), &uses[0], now);
    // Each new sandbox evicts exactly one.
    let duties = admit(&books, &session("e"), now);
    assert_eq!(duties, Ok(vec![EvictionDuty::Stop("a".into()), EvictionDuty::Archive("b".into())]));
    assert_eq!(books.stats().total, 4);
    assert_eq!(books.stats().capacity, 2);
}

#[test]
fn what_one_sandbox_did_is_not_held_against_the_next() {
    let now = node::clock::now();
    let books = ResidentLedger::new(2, 10, now);
    let old = waiting(&books, &["a"], now).remove(0);
    books.cold(&session("a"), &old, now);
    assert_eq!(admit(&books, &session("a"), now), Ok(Vec::new()));
    books.waiting(&session("a"), now);
    assert!(!books.take_idle(&session("a"), &old, now));
    assert!(books.take_idle(&session("a"), &UseCount::default(), now));
}

#[tokio::test]
async fn who_waits_for_what_is_being_made_is_served_in_order() {
    let now = node::clock::now();
    let books = Arc::new(ResidentLedger::new(1, 10, now));
    assert_eq!(admit(&books, &session("a"), now), Ok(Vec::new()));
    let wait = |id: &'static str| {
        let books = Arc::clone(&books);
        tokio::spawn(async move { admit_in_line(&books, &session(id)).await })
    };
    let b = wait("b");
    while books.waiting.load(Ordering::Relaxed) < 1 {
        tokio::task::yield_now().await;
    }
    let c = wait("c");
    while books.waiting.load(Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    assert!(books.is_awaited());
    books.warm(&session("a"), now);
    assert_eq!(b.await.unwrap(), Ok(vec![EvictionDuty::Stop("a".into())]));
    let uses = UseCount::default();
    books.warm(&session("b"), now);
    assert_eq!(c.await.unwrap(), Ok(vec![EvictionDuty::Stop("b".into())]));
    books.warm(&session("c"), now);
    assert!(begins(&books, &session("c"), &uses, now));
    assert!(!books.is_awaited());
    let full = admit_in_line(&books, &session("d")).await;
    assert_eq!(full, Err(CapacityRefusal::Server), "it works, and nobody is being made");
}

#[test]
fn what_was_just_made_for_somebody_to_work_with_is_never_taken() {
    let now = node::clock::now();
    let books = ResidentLedger::new(1, 10, now);
    assert_eq!(admit(&books, &session("a"), now), Ok(Vec::new()));
    assert_eq!(admit(&books, &session("b"), now), Err(CapacityRefusal::Soon));
    let uses = UseCount::default();
    assert!(begins(&books, &session("a"), &uses, now));
    assert_eq!(admit(&books, &session("b"), now), Err(CapacityRefusal::Server));
    books.end(&session("a"), &TENANT.into(), &uses, now);
    assert_eq!(admit(&books, &session("b"), now), Ok(vec![EvictionDuty::Stop("a".into())]));
}

#[tokio::test]
async fn who_waits_is_told_at_once_that_what_was_made_is_at_work() {
    let now = node::clock::now();
    let books = Arc::new(ResidentLedger::new(2, 10, now));
    assert_eq!(admit(&books, &session("a"), now), Ok(Vec::new()));
    assert_eq!(admit(&books, &ResidentKey::Ready(1), now), Ok(Vec::new()));
    let waiter = {
        let books = Arc::clone(&books);
        tokio::spawn(async move { admit_in_line(&books, &session("b")).await })
    };
    while !books.is_awaited() {
        tokio::task::yield_now().await;
    }
    books.build(&ResidentKey::Ready(1), now);
    assert!(begins(&books, &session("a"), &UseCount::default(), now));
    assert_eq!(waiter.await.unwrap(), Err(CapacityRefusal::Server));
}

#[test]
fn sandboxes_at_work_are_counted_by_tenant() {
    let now = node::clock::now();
    let books = ResidentLedger::new(8, 8, now);
    let uses = waiting(&books, &["a", "b", "c"], now);
    let [one, other]: [Arc<str>; 2] = ["one".into(), "other".into()];
    let begin = |at: usize, tenant: &Arc<str>| {
        books.begin(&session(["a", "b", "c"][at]), tenant, &uses[at], now)
    };
    assert_eq!(begin(0, &one), Some(1));
    assert_eq!(begin(0, &one), Some(1), "a second use is of the same sandbox");
    assert_eq!(begin(1, &one), Some(2));
    assert_eq!(begin(2, &other), Some(1));
    // One of two uses ends: the sandbox is still at work.
    books.end(&session("a"), &one, &uses[0], now);
    assert_eq!(begin(1, &one), Some(2));
    books.end(&session("a"), &one, &uses[0], now);
    assert_eq!(begin(1, &one), Some(1));
    // Its sandbox ends meanwhile; the end of its uses is still counted once.
    books.cold(&session("c"), &uses[2], now);
    assert_eq!(begin(2, &other), None);
    books.end(&session("c"), &other, &uses[2], now);
    books.end(&session("c"), &other, &uses[2], now);
    assert_eq!(begin(0, &other), Some(1));
}

#[test]
fn a_tenant_has_its_share_and_no_more() {
    let now = node::clock::now();
    let books = ResidentLedger::new(4, 10, now);
    let hog = |id: &str| admit_as(&books, "hog", 2, &session(id), now);
    let uses = [UseCount::default(), UseCount::default()];
    for (id, uses) in ["h1", "h2"].into_iter().zip(&uses) {
        assert_eq!(hog(id), Ok(Vec::new()));
        assert!(begins(&books, &session(id), uses, now));
    }
    assert_eq!(hog("h3"), Err(CapacityRefusal::Share), "though there are two places");
    // Other tenants have their places, and lose none to it.
    let other = |id: &str| admit_as(&books, "other", 2, &session(id), now);
    for id in ["o1", "o2"] {
        assert_eq!(other(id), Ok(Vec::new()));
        books.waiting(&session(id), now);
    }
    assert_eq!(hog("h3"), Err(CapacityRefusal::Share));
    // Its idle sandbox is evicted for its next one, and no other tenant's is.
    books.end(&session("h2"), &TENANT.into(), &uses[1], now);
    assert_eq!(hog("h3"), Ok(vec![EvictionDuty::Stop("h2".into())]));
    let of = |tenant| {
        let stats = books.stats_of(tenant);
        (stats.total, stats.cold, stats.waiting, stats.running, stats.warming)
    };
    assert_eq!((of("hog"), of("other")), ((3, 1, 0, 1, 1), (2, 0, 2, 0, 0)));
    books.remove(&session("h1"));
    assert_eq!(hog("h4"), Ok(Vec::new()));
    assert_eq!(other("o3"), Ok(vec![EvictionDuty::Stop("o1".into())]));
}

#[test]
fn who_had_more_than_a_share_gives_up_all_that_is_idle_of_it() {
    let now = node::clock::now();
    let books = ResidentLedger::new(4, 10, now);
    let uses = waiting(&books, &["a", "b", "c", "d"], now);
    assert!(begins(&books, &session("a"), &uses[0], now));
    let of_two = |id: &str| admit_as(&books, "one", 2, &session(id), now);
    let stops = ["b", "c", "d"].map(|id| EvictionDuty::Stop(id.into()));
    assert_eq!(of_two("e"), Ok(stops.to_vec()));
    assert_eq!(of_two("f"), Err(CapacityRefusal::Share));
    assert_eq!(admit_as(&books, "other", 2, &session("g"), now), Ok(Vec::new()));
}
