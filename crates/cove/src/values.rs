//! Parses and formats durations, sizes and tables.

use std::time::Duration;

use crate::plain_text::plain;

/// Parses `250ms`, `1.5s`, `2m`; a number without a unit is in seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let example = "a duration such as 500ms, 1s or 2m";
    let (number, unit) = split(text);
    if number.is_empty() {
        return Err(format!("`{text}` is not {example}"));
    }
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(format!("`{unit}` is not a unit of time; use ms, s, m, h or d")),
    };
    let number = positive(number, text, example)?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| format!("`{text}` is too long"))
}

/// Returns milliseconds since 1970 for an RFC 3339 time, or a duration before now.
pub(crate) fn moment_ms(text: &str) -> Result<u64, String> {
    if let Some(ms) = catalog::http::time_ms(text) {
        return Ok(ms);
    }
    let ago = duration(text).map_err(|_| {
        format!("`{text}` is neither a time such as 2026-11-21T03:05:09Z nor one ago such as 1h")
    })?;
    Ok(node::clock::wall_ms().saturating_sub(milliseconds(ago)))
}

/// Parses `64M`, `1.5G`, `512k`, `4096`; units are powers of 1024, with or without `B` or `iB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let example = "a size such as 64M or 1G";
    let (number, unit) = split(text);
    if number.is_empty() {
        return Err(format!("`{text}` is not {example}"));
    }
    let lower = unit.to_ascii_lowercase();
    let unit_bytes: f64 = match lower.trim_end_matches('b').trim_end_matches('i') {
        "" => 1.0,
        "k" => 1024.0,
        "m" => 1_048_576.0,
        "g" => 1_073_741_824.0,
        "t" => 1_099_511_627_776.0,
        _ => return Err(format!("`{unit}` is not a unit of size; use k, M, G or T")),
    };
    let size = positive(number, text, example)? * unit_bytes;
    // Exact below 2^53 bytes, far above what any limit allows.
    if size >= 9_007_199_254_740_992.0 {
        return Err(format!("`{text}` is too large"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    let size = size as u64;
    Ok(size)
}

/// Parses `NAME=value`.
pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not NAME=VALUE")),
    }
}

/// Returns whole milliseconds, rounded up: a limit is never made stricter than requested.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Formats a size, such as `1.5 MiB`.
pub(crate) fn human_bytes(bytes: u64) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (unit, name) in units {
        if bytes >= unit {
            // One decimal, computed with integers.
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            let (whole, tenth) = (tenths / 10, tenths % 10);
            return if tenth == 0 {
                format!("{whole} {name}")
            } else {
                format!("{whole}.{tenth} {name}")
            };
        }
    }
    format!("{bytes} bytes")
}

/// Formats rows with aligned columns.
///
/// Cells contain foreign text: terminal controls are replaced.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]], indent: &str) -> String {
    let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(|cell| plain(cell))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(&format!("{indent}{}\n", line.trim_end()));
    }
    text
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.trim(), unit)
}

fn positive(number: &str, text: &str, example: &str) -> Result<f64, String> {
    let number: f64 = number.parse().map_err(|_| format!("`{text}` is not {example}"))?;
    if number > 0.0 && number.is_finite() {
        Ok(number)
    } else {
        Err(format!("`{text}` is not more than nothing"))
    }
}

#[cfg(test)]
mod tests {
    //! Values as people type them.

    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, ms: u64| assert_eq!(duration(text), Ok(Duration::from_millis(ms)));
        check("1s", 1000);
        check("1", 1000);
        check("0.5", 500);
        check("250ms", 250);
        check("7d", 7 * 24 * 3_600_000);
        check("1.5 s", 1500);
        check("2m", 120_000);
        check("1h", 3_600_000);
        for bad in ["", "s", "1w", "-1s", "0", "1s2", "inf", "NaN", "1e400", "9e30h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments() {
        assert_eq!(moment_ms("1970-01-01T00:00:01Z"), Ok(1000));
        let ago = node::clock::wall_ms() - moment_ms("1h").unwrap();
        assert!((3_600_000..3_660_000).contains(&ago), "{ago}");
        // Before 1970.
        assert_eq!(moment_ms("99999d"), Ok(0));
        for bad in ["", "yesterday", "2026-11-21", "-1h"] {
            assert!(moment_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        let check = |text: &str, expected: u64| assert_eq!(bytes(text), Ok(expected), "{text}");
        check("4096", 4096);
        check("64M", 64 << 20);
        check("64MiB", 64 << 20);
        check("64mb", 64 << 20);
        check("1.5G", 3 << 29);
        check("512k", 512 << 10);
        check("100B", 100);
        for bad in ["", "M", "64X", "-1M", "0", "99999999T", "1 2"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_shown_as_people_read_them() {
        let check = |bytes: u64, expected: &str| assert_eq!(human_bytes(bytes), expected);
        check(100, "100 bytes");
        check(1536, "1.5 KiB");
        check(64 << 20, "64 MiB");
        check(u64::MAX, "17179869183.9 GiB");
    }

    #[test]
    fn milliseconds_are_rounded_up() {
        assert_eq!(milliseconds(Duration::from_micros(1)), 1);
        assert_eq!(milliseconds(Duration::from_millis(20)), 20);
    }

    #[test]
    fn variables() {
        assert_eq!(variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(variable("A="), Ok(("A".to_owned(), String::new())));
        assert!(variable("A").is_err() && variable("=b").is_err());
    }
}
