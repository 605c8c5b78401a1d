//! How often one address may ask to cancel.
//!
//! A bucket for each address that leaks at a steady rate. Keys are checked as fast as they come,
//! so without it somebody could try them all; with it, trying the 2³² keys of one client takes a
//! year and more.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use parking_lot::Mutex;

/// Addresses that are remembered. Beyond, all others share one bucket.
const SOURCES_MAX: usize = 65_536;

/// Time between two searches for empty buckets, which take a moment when there are many.
const SWEEP_US: u64 = 1_000_000;

/// How many, and how fast they are forgiven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At once.
    pub burst: u32,
    /// In a second, in the long run; at least 1.
    pub per_second: u32,
}

/// Cancel requests of one address: many applications may be behind it.
pub const CANCELS: Rate = Rate { burst: 500, per_second: 100 };

/// Buckets for addresses. Shared by all threads; locked for what should be rare.
#[derive(Debug)]
pub struct Limiter {
    rate: Rate,
    began: Instant,
    buckets: Mutex<Buckets>,
}

/// Times are in microseconds since the limiter began.
#[derive(Debug, Default)]
struct Buckets {
    /// When each one is empty again.
    empty_at: HashMap<IpAddr, u64>,
    /// When the empty ones were last thrown away.
    swept: u64,
}

impl Limiter {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new(rate: Rate, now: Instant) -> Limiter {
        Limiter { rate, began: now, buckets: Mutex::default() }
    }

    /// Whether this address may ask now; if so, that counts. Who comes over a Unix socket has no
    /// address and is not limited.
    pub fn allow(&self, source: Option<IpAddr>, now: Instant) -> bool {
        let Some(source) = source.map(bucket) else { return true };
        let now = now.saturating_duration_since(self.began).as_micros();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let cost = 1_000_000 / u64::from(self.rate.per_second.max(1));
        let full = cost.saturating_mul(u64::from(self.rate.burst));
        let mut buckets = self.buckets.lock();
        let Buckets { empty_at, swept } = &mut *buckets;
        if empty_at.len() >= SOURCES_MAX && now.saturating_sub(*swept) >= SWEEP_US {
            *swept = now;
            empty_at.retain(|_, at| *at > now);
        }
        let is_room = empty_at.len() < SOURCES_MAX || empty_at.contains_key(&source);
        let source = if is_room { source } else { OTHERS };
        let level = empty_at.get(&source).copied().unwrap_or(0).saturating_sub(now);
        if level.saturating_add(cost) > full {
            return false;
        }
        empty_at.insert(source, now.saturating_add(level).saturating_add(cost));
        true
    }
}

/// Stands for all that there is no room for; it is nobody's address.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// What counts as one address: with IPv6 everybody has 2⁶⁴ of them.
fn bucket(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RATE: Rate = Rate { burst: 3, per_second: 10 };

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn a_burst_and_then_a_steady_rate() {
        let start = node::clock::now();
        let limiter = Limiter::new(RATE, start);
        let at = |ms| start + Duration::from_millis(ms);
        let one = address("192.0.2.1");
        for (ms, expected) in [
            (0, true),
            (0, true),
            (0, true),
            (0, false),
            (99, false),
            (100, true),
            (100, false),
            (250, true),
            (250, false),
            (5000, true),
            (5000, true),
            (5000, true),
            (5000, false),
        ] {
            assert_eq!(limiter.allow(one, at(ms)), expected, "{ms}");
        }
        assert!(limiter.allow(address("192.0.2.2"), at(5000)));
        assert!((0..100).all(|_| limiter.allow(None, at(5000))));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let start = node::clock::now();
        let limiter = Limiter::new(RATE, start);
        for (text, expected) in [
            ("2001:db8::1", true),
            ("2001:db8::2", true),
            ("2001:db8:0:0:ffff::", true),
            ("2001:db8::3", false),
            ("2001:db8:0:1::1", true),
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.2.1", false),
        ] {
            assert_eq!(limiter.allow(address(text), start), expected, "{text}");
        }
    }

    #[test]
    fn however_many_addresses_there_are_memory_is_bounded() {
        let start = node::clock::now();
        let limiter = Limiter::new(RATE, start);
        let of = |number: u32| Some(IpAddr::from(number.to_be_bytes()));
        let count = u32::try_from(SOURCES_MAX).expect("small");
        assert!((1..=count).all(|number| limiter.allow(of(number), start)));
        let others = (0..10).filter(|number| limiter.allow(of(count + 1 + number), start)).count();
        assert!(others <= 3, "{others}");
        assert!(limiter.allow(of(1), start), "who is known keeps its own");
        assert!(limiter.buckets.lock().empty_at.len() <= SOURCES_MAX + 1);
        let later = start + Duration::from_secs(10);
        assert!(limiter.allow(of(count + 50), later));
        assert_eq!(limiter.buckets.lock().empty_at.len(), 1, "the forgiven are forgotten");
    }
}
