//! The only reader of the clocks, and ids that sort by creation time.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Crockford's base 32: no `I`, `L`, `O` or `U`, so that ids are not misread or misspelt.
pub(crate) const BASE32: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Random bits of an id; the 48 bits above them are milliseconds since 1970.
const RANDOM_BITS: u32 = 80;

/// Returns the monotonic clock: for durations and deadlines.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the wall clock: for display, never for durations.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// Returns the wall clock in milliseconds since 1970.
pub fn wall_ms() -> u64 {
    let since = wall().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the milliseconds since the machine started, including its time in suspension
/// (`CLOCK_BOOTTIME`, clock_gettime(2)): for leases, which expire in the store while this machine
/// is suspended. The clock of [`now`] stops meanwhile.
pub fn boot_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
}

/// The clock of a service that servers share, a database or Redis, as estimated here.
///
/// Leases are written by one server and judged by another, so both must read one clock: a server
/// whose own clock is ten minutes ahead would take all others for dead. The shared clock is read
/// from time to time; in between, the estimate advances with [`boot_ms`], also while this machine
/// is suspended: a server that wrote times from before its suspension would be taken for dead. The
/// estimate is accurate to within half of the time that the reading took, and never stops when the
/// service is unreachable.
///
/// Without any reading it is this machine's wall clock. Cheap to clone; clones share readings.
#[derive(Clone, Debug, Default)]
pub struct SharedClock(Arc<Mutex<SharedClockState>>);

#[derive(Debug, Default)]
struct SharedClockState {
    latest: Option<ClockSample>,
    /// Time of the next reading, by [`boot_ms`]; none for at once.
    due_ms: Option<u64>,
}

/// Reading of a shared clock.
#[derive(Clone, Copy, Debug)]
struct ClockSample {
    /// Time of the reading, by [`boot_ms`].
    at_ms: u64,
    /// Milliseconds since 1970 at that time.
    ms: u64,
}

/// Milliseconds after which a shared clock is read again.
const SAMPLE_AGE_MAX_MS: u64 = 10_000;
/// Milliseconds between two attempts at a reading.
const SAMPLE_PAUSE_MS: u64 = 1_000;
/// Maximum duration of a reading, in milliseconds, that may replace a known one. Below it, two
/// servers' estimates of the shared clock differ by less than the margin of a lease.
const SAMPLE_TOOK_MAX_MS: u64 = 200;

impl SharedClock {
    /// Returns the milliseconds since 1970, by the shared clock.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.at(boot_ms()).unwrap_or_else(wall_ms)
    }

    /// Returns the milliseconds since 1970 at a time of [`boot_ms`]; none without a reading.
    pub(crate) fn at(&self, now_ms: u64) -> Option<u64> {
        let sample = self.0.lock().latest?;
        Some(sample.ms.saturating_add(now_ms.saturating_sub(sample.at_ms)))
    }

    /// Returns whether the caller should read the shared clock. Other callers get false for a
    /// while.
    #[must_use]
    pub fn wants_sample(&self) -> bool {
        self.wants_sample_at(boot_ms())
    }

    /// Returns whether the caller should read it at `now_ms`.
    pub(crate) fn wants_sample_at(&self, now_ms: u64) -> bool {
        let mut state = self.0.lock();
        let wants = state.due_ms.is_none_or(|due_ms| due_ms <= now_ms);
        if wants {
            state.due_ms = Some(now_ms + SAMPLE_PAUSE_MS);
        }
        wants
    }

    /// Applies a reading of `ms`, which was requested at `asked_ms` by [`boot_ms`] and has just
    /// arrived.
    pub fn sampled(&self, asked_ms: u64, ms: u64) {
        self.sampled_at(asked_ms, boot_ms(), ms);
    }

    /// Applies a reading that arrived at `now_ms`.
    pub(crate) fn sampled_at(&self, asked_ms: u64, now_ms: u64, ms: u64) {
        let took_ms = now_ms.saturating_sub(asked_ms);
        let mut state = self.0.lock();
        if took_ms <= SAMPLE_TOOK_MAX_MS || state.latest.is_none() {
            state.latest = Some(ClockSample { at_ms: asked_ms + took_ms / 2, ms });
            let is_vague = took_ms > SAMPLE_TOOK_MAX_MS;
            let age_ms = if is_vague { SAMPLE_PAUSE_MS } else { SAMPLE_AGE_MAX_MS };
            state.due_ms = Some(now_ms + age_ms);
        }
    }

    /// Requests a new reading, because the service may be on another server now. Until then the
    /// estimate continues.
    pub fn expire(&self) {
        self.0.lock().due_ms = None;
    }
}

/// Formats a time as `2026-11-21T03:05:09Z`. Times before 1970 are shown as 1970.
pub fn rfc3339(time: SystemTime) -> String {
    format!("{}Z", date_time(time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()))
}

/// Formats a time as `2026-11-21T03:05:09.123Z`. Times before 1970 are shown as 1970.
pub fn rfc3339_ms(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format!("{}.{:03}Z", date_time(since.as_secs()), since.subsec_millis())
}

/// Formats milliseconds since 1970 as `2026-11-21T03:05:09.123Z`.
pub fn rfc3339_of_ms(ms: u64) -> String {
    rfc3339_ms(UNIX_EPOCH + Duration::from_millis(ms))
}

fn date_time(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Returns year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
///
/// Counts in eras of 400 years (146 097 days) of years that begin in March, so that the leap day is
/// the last one of its year.
fn civil_date(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468; // days from 0000-03-01 to 1970-01-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// Generates ids: a prefix and 26 characters of Crockford base 32 (a ULID), strictly increasing.
///
/// Ids are names, not secrets: the random part comes from a generator seeded once, so that an id
/// costs no system call.
#[derive(Debug)]
pub struct IdGenerator {
    state: Mutex<IdState>,
}

#[derive(Debug)]
struct IdState {
    /// Seed of the random part; stepped once per millisecond in which ids are generated.
    random: u64,
    /// The last generated id. The next one is greater, even if the clock steps back.
    last: u128,
}

/// Returns whether a text has the form that [`IdGenerator`] generates for this prefix.
#[must_use]
pub fn is_id(prefix: &str, text: &str) -> bool {
    let digits = text.strip_prefix(prefix).unwrap_or_default();
    let is_digit =
        |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase() && !b"ILOU".contains(&byte);
    digits.len() == 26 && digits.bytes().all(is_digit)
}

impl IdGenerator {
    /// Creates a generator with a seed of its own, so that two servers do not generate the same
    /// ids.
    ///
    /// # Errors
    /// If the kernel returns no random bytes.
    pub fn new() -> io::Result<IdGenerator> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(io::Error::from)?;
        Ok(IdGenerator { state: Mutex::new(IdState { random: u64::from_le_bytes(seed), last: 0 }) })
    }

    /// Returns the next id, such as `ex_01JD5N3V9Q4ZK6T8R2W7XYABCD` for the prefix `ex_`.
    pub fn next(&self, prefix: &str) -> String {
        let mut id = String::with_capacity(prefix.len() + 26);
        id.push_str(prefix);
        push_base32(&mut id, self.next_number(wall()));
        id
    }

    fn next_number(&self, wall: SystemTime) -> u128 {
        let ms = wall.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis();
        let mut state = self.state.lock();
        let number = if ms > state.last >> RANDOM_BITS {
            let high = split_mix(&mut state.random);
            let low = split_mix(&mut state.random);
            // 79 bits: the top one is left clear, so that a millisecond has 2^79 ids to count up.
            let random = (u128::from(high) << 64 | u128::from(low)) >> 49;
            ms << RANDOM_BITS | random
        } else {
            state.last + 1
        };
        state.last = number;
        number
    }
}

/// Returns one step of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators").
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Appends 26 characters: 130 bits, of which the top two are zero.
fn push_base32(text: &mut String, number: u128) {
    for place in (0..26).rev() {
        let digit = (number >> (5 * place)).to_le_bytes()[0] & 31;
        text.push(char::from(BASE32[usize::from(digit)]));
    }
}

#[cfg(test)]
mod tests;
