//! Ids sort by time for any clock; dates are right around leap days.

use super::*;

fn check_date(seconds: u64, expected: &str) {
    assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
}

#[test]
fn dates_are_gregorian() {
    check_date(0, "1970-01-01T00:00:00Z");
    check_date(951_782_399, "2000-02-28T23:59:59Z");
    check_date(951_782_400, "2000-02-29T00:00:00Z");
    check_date(951_868_800, "2000-03-01T00:00:00Z");
    check_date(1_709_164_800, "2024-02-29T00:00:00Z");
    check_date(1_735_689_599, "2024-12-31T23:59:59Z");
    check_date(4_107_542_400, "2100-03-01T00:00:00Z");
}

#[test]
fn an_id_is_a_prefix_and_26_characters_of_base_32() {
    let id = IdGenerator::new().unwrap().next("ex_");
    let (prefix, rest) = id.split_at(3);
    assert_eq!(prefix, "ex_");
    assert_eq!(rest.len(), 26);
    assert!(rest.bytes().all(|byte| BASE32.contains(&byte)), "{id}");
}

#[test]
fn ids_increase_even_when_the_clock_steps_back() {
    let ids = IdGenerator::new().unwrap();
    let mut last = 0;
    for ms in [5_000, 5_000, 5_001, 10, 10, 5_001, 9_000] {
        let number = ids.next_number(UNIX_EPOCH + Duration::from_millis(ms));
        assert!(number > last, "at {ms} ms");
        last = number;
    }
}

#[test]
fn two_generators_make_different_ids() {
    let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    assert_ne!(
        IdGenerator::new().unwrap().next_number(at),
        IdGenerator::new().unwrap().next_number(at)
    );
}

#[test]
fn base_32_has_the_time_in_its_first_ten_characters() {
    let mut text = String::new();
    push_base32(&mut text, 1_u128 << RANDOM_BITS);
    assert_eq!(text, "00000000010000000000000000");
    text.clear();
    push_base32(&mut text, u128::MAX);
    assert_eq!(text, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
}

#[test]
fn ids_have_a_form() {
    for (id, expected) in [
        ("ex_01JD5N3V9Q4ZK6T8R2W7XYABCD", true),
        ("ex_01JD5N3V9Q4ZK6T8R2W7XYABC", false),
        ("ex_01JD5N3V9Q4ZK6T8R2W7XYABCI", false),
        ("ex_01jd5n3v9q4zk6t8r2w7xyabcd", false),
        ("01JD5N3V9Q4ZK6T8R2W7XYABCD", false),
        ("zzz", false),
        ("", false),
    ] {
        assert_eq!(is_id("ex_", id), expected, "{id:?}");
    }
}

#[test]
fn a_shared_clock_is_this_machines_until_it_was_read() {
    let clock = SharedClock::default();
    let (before, read, after) = (wall_ms(), clock.now_ms(), wall_ms());
    assert!((before..=after).contains(&read), "{before} {read} {after}");
    assert!(clock.wants_sample());
    assert!(!clock.wants_sample(), "somebody is asking");
}

#[test]
fn a_shared_clock_goes_on_from_what_was_read() {
    let clock = SharedClock::default();
    let other = clock.clone();
    assert!(clock.wants_sample_at(1_000));
    clock.sampled_at(1_000, 1_100, 5_000_000);
    assert_eq!(other.at(1_050), Some(5_000_000));
    assert!(!clock.wants_sample_at(1_200), "it is known");
    // A reading that took long is ignored, once one is known.
    clock.sampled_at(1_300, 61_300, 1);
    assert_eq!(clock.at(61_300), Some(5_060_250));
    // Until the other server is read, the former estimate continues.
    clock.expire();
    assert_eq!(clock.at(61_300), Some(5_060_250));
    assert!(clock.wants_sample_at(61_300));
    clock.sampled_at(61_300, 61_300, 9_000_000);
    assert_eq!(clock.at(61_300), Some(9_000_000));
    // By the clock that continues while the machine is suspended.
    let read = SharedClock::default();
    read.sampled(boot_ms(), 1_000);
    assert!(read.now_ms() < 61_000, "{}", read.now_ms());
}
