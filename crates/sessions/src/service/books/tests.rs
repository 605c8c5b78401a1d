//! The books agree with each other, whatever happens in whatever order.

use std::time::{Duration, Instant};

use super::*;

fn session(id: &str) -> Key {
    Key::Session(id.into())
}

/// Books in which each of these waits, the first one the longest.
fn waiting(books: &Books, ids: &[&str], now: Instant) -> Vec<Uses> {
    let admit = |id: &&str| {
        assert_eq!(books.admit(&session(id), now), Ok(Vec::new()));
        books.waiting(&session(id), now);
        Uses::default()
    };
    ids.iter().map(admit).collect()
}

#[test]
fn what_waits_the_longest_gives_way_and_what_works_does_not() {
    let now = node::clock::now();
    let books = Books::new(2, 10, now);
    let uses = waiting(&books, &["a", "b"], now);
    assert!(books.begin(&session("a"), &uses[0], now));
    assert_eq!(books.admit(&session("c"), now), Ok(vec![Duty::Stop("b".into())]));
    assert_eq!(books.state(&session("b")), Some(State::Cold));
    assert!(!books.begin(&session("b"), &uses[1], now), "what gives way is not worked with");
    let full = books.admit(&session("d"), now);
    assert_eq!(full, Err(Full { is_soon: true }), "one works, one is being made");
    assert_eq!(books.stats().total, 3);
}

#[test]
fn cold_ones_go_first_when_there_is_no_room_on_the_disk() {
    let now = node::clock::now();
    let books = Books::new(2, 2, now);
    waiting(&books, &["a", "b"], now);
    let duties = books.admit(&session("c"), now);
    assert_eq!(duties, Ok(vec![Duty::Stop("a".into()), Duty::Archive("a".into())]));
    assert_eq!(books.state(&session("a")), None);
    assert_eq!((books.stats().total, books.stats().capacity), (2, 2));
}

#[test]
fn what_is_ready_gives_way_before_sessions_do() {
    let now = node::clock::now();
    let books = Books::new(2, 10, now);
    waiting(&books, &["a"], now);
    assert!(books.admit_if_free(&Key::Ready(7), now));
    books.warm(&Key::Ready(7), now);
    assert!(!books.admit_if_free(&Key::Ready(8), now), "it takes nobody's place");
    assert_eq!(books.admit(&session("b"), now), Ok(vec![Duty::Discard(7)]));
    assert!(!books.claim(7, &"c".into(), now));
}

#[test]
fn a_claim_takes_the_place_over() {
    let now = node::clock::now();
    let books = Books::new(1, 1, now);
    assert!(books.admit_if_free(&Key::Ready(1), now));
    books.warm(&Key::Ready(1), now);
    assert!(books.claim(1, &"a".into(), now));
    assert_eq!(books.state(&session("a")), Some(State::Warm));
    assert_eq!(books.stats().total, 1);
}

#[test]
fn uses_of_a_sandbox_that_is_gone_say_nothing_of_the_next_one() {
    let now = node::clock::now();
    let books = Books::new(2, 10, now);
    let old = waiting(&books, &["a"], now).remove(0);
    assert!(books.begin(&session("a"), &old, now));
    books.cold(&session("a"), &old, now);
    assert_eq!(books.admit(&session("a"), now), Ok(Vec::new()));
    books.waiting(&session("a"), now);
    let new = Uses::default();
    assert!(books.begin(&session("a"), &new, now));
    books.end(&session("a"), &old, now);
    assert_eq!(books.state(&session("a")), Some(State::Running));
    assert!(!books.begin(&session("a"), &old, now));
    books.end(&session("a"), &new, now);
    assert_eq!(books.state(&session("a")), Some(State::Waiting));
}

#[test]
fn idle_ones_are_taken_once_but_for_the_patient() {
    let now = node::clock::now();
    let books = Books::new(4, 10, now);
    let uses = waiting(&books, &["a", "b", "c"], now);
    let later = now + Duration::from_secs(10);
    assert!(books.begin(&session("c"), &uses[2], later));
    let patient = HashSet::from(["b".into()]);
    assert_eq!(books.idle_but(later, Duration::from_secs(10), &patient), ["a".into()]);
    assert_eq!(books.idle(later, Duration::from_secs(10)), []);
    assert!(books.begin(&session("b"), &uses[1], later));
    assert!(books.is_cold(&session("a")));
    assert!(!books.is_cold(&session("b")));
    let much_later = later + Duration::from_secs(100);
    assert_eq!(books.cold_before(much_later, Duration::from_secs(100)), ["a".into()]);
    assert_eq!(books.state(&session("a")), None);
}

#[test]
fn nobody_is_struck_off_for_what_is_there_already() {
    let now = node::clock::now();
    let books = Books::new(1, 2, now);
    let uses = waiting(&books, &["a"], now);
    for cold in ["b", "c", "d"] {
        books.keep_cold(&cold.into(), now);
    }
    books.keep_cold(&"a".into(), now);
    assert_eq!(books.stats().total, 4);
    assert!(books.begin(&session("a"), &uses[0], now), "it lives");
    books.end(&session("a"), &uses[0], now);
    // One goes for each that comes, and no more.
    let duties = books.admit(&session("e"), now);
    assert_eq!(duties, Ok(vec![Duty::Stop("a".into()), Duty::Archive("b".into())]));
    assert_eq!(books.stats().total, 4);
    assert_eq!(books.stats().capacity, 2);
}

#[test]
fn what_one_sandbox_did_is_not_held_against_the_next() {
    let now = node::clock::now();
    let books = Books::new(2, 10, now);
    let old = waiting(&books, &["a"], now).remove(0);
    books.cold(&session("a"), &old, now);
    assert_eq!(books.admit(&session("a"), now), Ok(Vec::new()));
    books.waiting(&session("a"), now);
    assert!(!books.take_idle(&session("a"), &old, now));
    assert!(books.take_idle(&session("a"), &Uses::default(), now));
}

#[tokio::test]
async fn who_waits_for_what_is_being_made_is_served_in_order() {
    let now = node::clock::now();
    let books = Arc::new(Books::new(1, 10, now));
    assert_eq!(books.admit(&session("a"), now), Ok(Vec::new()));
    let wait = |id: &'static str| {
        let books = Arc::clone(&books);
        tokio::spawn(async move { books.admit_in_line(&session(id), node::clock::now).await })
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
    assert_eq!(b.await.unwrap(), Ok(vec![Duty::Stop("a".into())]));
    let uses = Uses::default();
    books.warm(&session("b"), now);
    assert_eq!(c.await.unwrap(), Ok(vec![Duty::Stop("b".into())]));
    books.warm(&session("c"), now);
    assert!(books.begin(&session("c"), &uses, now));
    assert!(!books.is_awaited());
    let full = books.admit_in_line(&session("d"), node::clock::now).await;
    assert_eq!(full, Err(Full { is_soon: false }), "it works, and nobody is being made");
}
