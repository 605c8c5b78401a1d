//! A past moment in a request: the number of a change, or a time.

use super::request::CatalogRequest;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::store::TimelineMoment;

/// Header as an alternative to the parameter `as-of`, for clients that cannot add parameters.
pub(super) const AS_OF: &str = "x-cove-as-of";

/// Longest text of a moment, in bytes.
const TEXT_BYTES_MAX: usize = 64;

/// Returns the requested moment; `None` for the present.
///
/// # Errors
/// `BadRequest` if it is invalid, or both the parameter and the header are set.
pub(super) fn as_of(input: &CatalogRequest<'_>) -> Result<Option<TimelineMoment>> {
    let mut values = input.parts.headers.get_all(AS_OF).iter();
    let header = values.next().map(|it| it.to_str().unwrap_or_default());
    let texts = [input.query("as-of")?, header, values.next().map(|_| "")];
    let mut texts = texts.into_iter().flatten();
    let Some(text) = texts.next() else { return Ok(None) };
    if texts.next().is_some() {
        let message = "the time is specified twice: by `as-of` and `X-Cove-As-Of`";
        return Err(CatalogError::new(ErrorReason::BadRequest, message));
    }
    moment(text).map(Some)
}

/// Parses a number, or a time of RFC 3339.
fn moment(text: &str) -> Result<TimelineMoment> {
    let refuse = || {
        let message = "`as-of` is the number of a change, or a time as in RFC 3339 such as \
            `2026-11-21T03:05:09Z`";
        CatalogError::new(ErrorReason::BadRequest, message)
    };
    if text.is_empty() || text.len() > TEXT_BYTES_MAX {
        return Err(refuse());
    }
    if text.bytes().all(|it| it.is_ascii_digit()) {
        return text.parse().map(TimelineMoment::Number).map_err(|_| refuse());
    }
    millis(text.as_bytes()).map(TimelineMoment::Time).ok_or_else(refuse)
}

/// Returns milliseconds since 1970 for a time of RFC 3339 from user input; `None` if it is invalid.
#[must_use]
pub fn time_ms(text: &str) -> Option<u64> {
    millis(text.as_bytes())
}

/// Returns milliseconds since 1970 for `2026-11-21T03:05:09.123+01:00`. In a query `+` may have
/// become a space.
fn millis(text: &[u8]) -> Option<u64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.iter().try_fold(0_i64, |sum, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
        })
    };
    let is = |at: usize, any: &[u8]| text.get(at).is_some_and(|byte| any.contains(byte));
    let is_shaped = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let in_range = (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour <= 23
        && minute <= 59
        // A leap second counts as the following second.
        && second <= 60;
    if !is_shaped || !in_range {
        return None;
    }
    let (mut at, mut ms) = (19, 0);
    if is(at, b".") {
        let digits = text[at + 1..].iter().take_while(|it| it.is_ascii_digit()).count();
        let digits_used = digits.min(3);
        ms = number(at + 1, at + 1 + digits_used).filter(|_| digits > 0)?;
        ms *= [1000, 100, 10, 1][digits_used];
        at += 1 + digits;
    }
    let offset = match text.get(at)? {
        b'Z' | b'z' if text.len() == at + 1 => 0,
        sign @ (b'+' | b'-' | b' ') if text.len() == at + 6 && is(at + 3, b":") => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = hours * 60 + minutes;
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    let minutes = (days_since_1970(year, month, day) * 24 + hour) * 60 + minute - offset;
    u64::try_from((minutes * 60 + second) * 1000 + ms).ok()
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of whole years are counted, then those of whole months.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let before = year - 1;
    // Days from the first of the year 1; that of 1970 is day 719 162.
    let years =
        before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    let months: i64 = (1..month).map(|month| days_of(year, month)).sum();
    years + months + day - 1 - 719_162
}

#[cfg(test)]
mod tests {
    use node::clock::rfc3339_of_ms;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_moment_is_a_number_or_a_time() {
        let time = |ms| Some(TimelineMoment::Time(ms));
        for (text, expected) in [
            ("0", Some(TimelineMoment::Number(0))),
            ("17", Some(TimelineMoment::Number(17))),
            ("9223372036854775807", Some(TimelineMoment::Number(i64::MAX))),
            ("9223372036854775808", None),
            ("1970-01-01T00:00:00Z", time(0)),
            ("1970-01-01T01:00:00.5+01:00", time(500)),
            ("1970-01-01T01:00:00 01:00", time(0)),
            ("1969-12-31T23:00:01-01:00", time(1000)),
            ("2024-02-29t12:00:00.123456789z", time(1_709_208_000_123)),
            ("2023-02-29T12:00:00Z", None),
            ("2026-11-21T24:00:00Z", None),
            ("2026-11-21T03:05:09", None),
            ("2026-11-21T03:05:09.Z", None),
            ("2026-11-21T03:05:09Zx", None),
            ("2026-11-21T03:05:09+1:00", None),
            ("2026-11-21T03:05:09+99:00", None),
            ("1969-12-31T23:59:59Z", None),
            ("-1", None),
            ("", None),
            ("yesterday", None),
            ("２０２６-11-21T03:05:09Z", None),
        ] {
            assert_eq!(moment(text).ok(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_time_is_read_as_it_is_written(ms in 0_u64..253_402_300_800_000) {
            prop_assert_eq!(millis(rfc3339_of_ms(ms).as_bytes()), Some(ms));
        }

        #[test]
        fn no_text_breaks_it(
            text in "\\PC{0,70}",
            bytes in prop::collection::vec(any::<u8>(), 40),
        ) {
            prop_assert!(moment(&text).is_ok() || moment(&text).is_err());
            prop_assert_eq!(millis(&bytes), millis(&bytes));
        }
    }
}
