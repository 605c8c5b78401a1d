//! Durations as Go writes them: `1h30m`, `250ms`, or nanoseconds as a number.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// A duration that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DurationSpan(Duration);

impl DurationSpan {
    pub(super) fn as_secs_f64(self) -> f64 {
        self.0.as_secs_f64()
    }

    /// Numbers with a unit each, without spaces (Go's `time.ParseDuration`). Signs are left out:
    /// no limit is negative.
    fn parse(text: &str) -> Option<DurationSpan> {
        let mut rest = text;
        let mut seconds = 0.0;
        if rest == "0" {
            return Some(DurationSpan(Duration::ZERO));
        }
        while !rest.is_empty() {
            let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
            let (number, after) = rest.split_at(end);
            let number: f64 = number.parse().ok()?;
            let end = after.find(|it: char| it.is_ascii_digit()).unwrap_or(after.len());
            let (unit, after) = after.split_at(end);
            seconds += number
                * match unit {
                    "ns" => 1e-9,
                    "us" | "µs" => 1e-6,
                    "ms" => 1e-3,
                    "s" => 1.0,
                    "m" => 60.0,
                    "h" => 3600.0,
                    _ => return None,
                };
            rest = after;
        }
        (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok().map(DurationSpan))?
    }
}

impl<'de> Deserialize<'de> for DurationSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DurationSpan, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a duration such as \"5m\", or nanoseconds")]
        enum DurationForm {
            Nanoseconds(u64),
            Text(String),
        }
        match DurationForm::deserialize(deserializer)? {
            DurationForm::Nanoseconds(count) => Ok(DurationSpan(Duration::from_nanos(count))),
            DurationForm::Text(text) => DurationSpan::parse(&text)
                .ok_or_else(|| de::Error::custom("expected a duration such as `5m` or `1h30m`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go() {
        let check = |text: &str, ms: Option<u64>| {
            let found: Result<DurationSpan, _> = serde_json::from_str(text);
            assert_eq!(found.ok(), ms.map(|ms| DurationSpan(Duration::from_millis(ms))), "{text}");
        };
        check("\"5m\"", Some(300_000));
        check("\"1h30m\"", Some(5_400_000));
        check("\"1.5s\"", Some(1500));
        check("\"250ms\"", Some(250));
        check("\"0\"", Some(0));
        check("5000000000", Some(5000));
        for bad in ["\"\"", "\"5\"", "\"m\"", "\"-5m\"", "\"5 m\"", "\"5d\"", "\"1..5s\"", "-1"] {
            check(bad, None);
        }
    }
}
