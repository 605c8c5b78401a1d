//! Times in callers' formats.

pub(super) use node::clock::rfc3339_of_ms as shown;

/// Days before each month of a non-leap year.
const DAYS_BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// Parses RFC 3339 to milliseconds since 1970; none for an invalid or earlier time.
pub(super) fn parse(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| -> Option<u64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is = |place: usize, wanted: &[u8]| {
        text.as_bytes().get(place).is_some_and(|byte| wanted.contains(byte))
    };
    let separated = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let fits = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !separated || !fits {
        return None;
    }
    let rest = text.get(19..)?;
    let (ms, zone) = match rest.strip_prefix('.') {
        Some(rest) => {
            let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
            let (digits, zone) = rest.split_at(end);
            let padded = format!("{digits:0<3}");
            (padded.get(..3).filter(|_| !digits.is_empty())?.parse::<u64>().ok()?, zone)
        }
        None => (0, rest),
    };
    let offset_minutes = offset(zone)?;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let years = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum::<u64>();
    let before = DAYS_BEFORE.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    let days = years + before + u64::from(month > 2 && leap(year)) + day - 1;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    let ms = i64::try_from(seconds * 1000 + ms).ok()?;
    u64::try_from(ms - offset_minutes * 60_000).ok()
}

/// Returns the offset of a zone from UTC, in minutes.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let part = |text: &str, max: i64| -> Option<i64> {
        let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse().ok())?.filter(|value| *value <= max)
    };
    Some(sign * (part(hours, 23)? * 60 + part(minutes, 59)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for ms in [0, 1, 951_782_400_000, 1_709_210_096_789, 4_102_444_799_999] {
            assert_eq!(parse(&shown(ms)), Some(ms), "{}", shown(ms));
        }
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-01t00:00:01.5z", Some(1500)),
            ("1970-01-01 01:00:00.123456+01:00", Some(123)),
            ("1969-12-31T23:00:00-01:00", None),
            ("1970-01-01T00:00:00-01:30", Some(5_400_000)),
            ("1970-01-01T00:00:00+01:30", None),
            ("2024-02-29T00:00:00Z", Some(1_709_164_800_000)),
            ("2024-03-01T00:00:00Z", Some(1_709_251_200_000)),
            ("2024-01-01", None),
            ("2024-01-01T00:00:00", None),
            ("2024-13-01T00:00:00Z", None),
            ("2024-01-01T24:00:00Z", None),
            ("2024-01-01T00:00:00.Z", None),
            ("2024-01-01T00:00:00+1:00", None),
            ("+024-01-01T00:00:00Z", None),
            ("2024-01-01T00:00:00Zx", None),
            ("\u{e9}024-01-01T00:00:00Z", None),
            ("", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
