//! Days, times and their texts, before and after 1970.

/// Microseconds of a day.
pub(super) const DAY_MICROS: i64 = 86_400_000_000;

/// Greatest year of a date in text form: four digits, or six with a sign.
const YEAR_MAX: i64 = 999_999;

/// Returns the days since 1970-01-01 of a date in the Gregorian calendar. Counted in eras of 400
/// years that begin in March, so that the leap day is the last of its year.
pub(super) fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns year, month and day for a number of days since 1970-01-01.
pub(super) fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (month, day) = ((shifted + 2) % 12 + 1, of_year - (153 * shifted + 2) / 5 + 1);
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Returns the months since 1970-01 for a number of days.
#[cfg(test)]
pub(super) fn month_of(days: i64) -> i64 {
    let (year, month, _) = date_of(days);
    (year - 1970) * 12 + month - 1
}

/// Returns the first day of a month that is counted from 1970-01.
pub(super) fn first_day(month: i64) -> i64 {
    days_of(1970 + month.div_euclid(12), month.rem_euclid(12) + 1, 1)
}

/// Appends a date: `2026-11-22`.
pub(super) fn put_date(out: &mut String, days: i64) {
    let (year, month, day) = date_of(days);
    let sign = if year < 0 { "-" } else { "" };
    out.push_str(&format!("{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs()));
}

/// Appends a time: `12:34:56.789012`, with as many decimal digits as `per_second` has zeros.
pub(super) fn put_time(out: &mut String, units: i64, per_second: i64) {
    let (seconds, fraction) = (units.div_euclid(per_second), units.rem_euclid(per_second));
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let digits = if per_second == 1_000_000 { 6 } else { 9 };
    out.push_str(&format!("{hour:02}:{minute:02}:{second:02}.{fraction:0digits$}"));
}

/// Parses a date.
pub(super) fn read_date(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, text.get(1..)?),
        b'+' => (1, text.get(1..)?),
        _ => (1, text),
    };
    let mut parts = rest.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let year_digits = if sign == 1 && text.starts_with('+') { 4..=6 } else { 4..=4 };
    if parts.next().is_some() || !year_digits.contains(&year.len()) {
        return None;
    }
    let year = sign * number(year)?;
    let (month, day) = (two_digits(month)?, two_digits(day)?);
    let days = days_of(year, month, day);
    // An invalid day, such as 31 April, yields another date.
    (year.abs() <= YEAR_MAX && date_of(days) == (year, month, day)).then_some(days)
}

/// Parses a time of day: hours and minutes, and optional seconds. `None` if it is more precise than
/// the units.
pub(super) fn read_time(text: &str, per_second: i64) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = clock.split(':');
    let (hour, minute) = (two_digits(parts.next()?)?, two_digits(parts.next()?)?);
    let second = parts.next().map_or(Some(0), two_digits)?;
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 || fraction.len() > 9 {
        return None;
    }
    let mut nanos = 0;
    for place in 0..9 {
        let digit = fraction.as_bytes().get(place).map_or(Some(0), |it| digit(*it))?;
        nanos = nanos * 10 + digit;
    }
    let per_unit = 1_000_000_000 / per_second;
    let seconds = hour * 3600 + minute * 60 + second;
    (nanos % per_unit == 0).then(|| seconds * per_second + nanos / per_unit)
}

/// Parses a date and a time, with `Z` or an offset if the type has a zone.
pub(super) fn read_timestamp(text: &str, per_second: i64, has_zone: bool) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (time, offset) = match (rest.find(['Z', 'z', '+', '-']), has_zone) {
        (Some(at), true) => (rest.get(..at)?, read_offset(rest.get(at..)?)?),
        // Some clients leave out the zone, which is always UTC.
        (None, _) => (rest, 0),
        _ => return None,
    };
    let seconds = read_date(date)?.checked_mul(86_400)?.checked_sub(offset)?;
    seconds.checked_mul(per_second)?.checked_add(read_time(time, per_second)?)
}

/// Parses an offset from UTC, in seconds.
fn read_offset(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
    (hours <= 18 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

fn digit(byte: u8) -> Option<i64> {
    byte.is_ascii_digit().then(|| i64::from(byte - b'0'))
}

fn number(text: &str) -> Option<i64> {
    text.bytes().try_fold(0, |sum: i64, byte| sum.checked_mul(10)?.checked_add(digit(byte)?))
}

fn two_digits(text: &str) -> Option<i64> {
    if text.len() == 2 { number(text) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_there_and_back() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2026-11-22", 20_779),
            ("0001-01-01", -719_162),
        ] {
            assert_eq!(read_date(text), Some(days), "{text}");
            let mut out = String::new();
            put_date(&mut out, days);
            assert_eq!(out, text);
        }
        for days in -800_000..800_000 {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), days);
            assert!(first_day(month_of(days)) <= days && days < first_day(month_of(days) + 1));
        }
        for text in ["", "2026-02-29", "2026-13-01", "2026-1-1", "26-01-01", "2026-01-01-", "x"] {
            assert_eq!(read_date(text), None, "{text}");
        }
    }

    #[test]
    fn timestamps_may_have_a_zone_where_their_type_has_one() {
        let micros = 1_000_000;
        for (text, has_zone, expected) in [
            ("1970-01-02T00:00:01.5", false, Some(DAY_MICROS + 1_500_000)),
            ("1970-01-01T01:00:00+01:00", true, Some(0)),
            ("1969-12-31T23:59:59.999999Z", true, Some(-1)),
            ("1970-01-01T00:00", false, Some(0)),
            ("1970-01-01T00:00:00", true, Some(0)),
            ("1970-01-01T00:00:00Z", false, None),
            ("1970-01-01T00:00:00.0000001", false, None),
            ("1970-01-01T24:00:00", false, None),
            ("1970-01-01", false, None),
        ] {
            assert_eq!(read_timestamp(text, micros, has_zone), expected, "{text}");
        }
        let mut out = String::new();
        put_time(&mut out, 3_723_000_004, micros);
        assert_eq!(out, "01:02:03.000004");
    }
}
