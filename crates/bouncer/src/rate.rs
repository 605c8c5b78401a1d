//! Rate limits by source: cancel requests of an address, failed logins of a client.
//!
//! Each source has a bucket that leaks at a steady rate.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use pooler_core::pg::login::ClientTransport;

use crate::tenants::TenantId;

/// Maximum number of sources that are remembered.
const SOURCES_MAX: usize = 65_536;

/// Time between two sweeps for empty buckets, which take a moment when there are many.
const SWEEP_US: u64 = 1_000_000;

/// Size of a bucket, and the rate at which it refills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefillRate {
    /// Events allowed at once.
    pub burst: u32,
    /// Events per second, in the long run; at least 1.
    pub per_second: u32,
}

/// Rate of cancel requests of one address: many applications may share it. Without the limit a
/// client could try all keys, which are checked as fast as they arrive; with it, trying the 2³²
/// keys of one client takes more than a year.
pub const CANCELS: RefillRate = RefillRate { burst: 500, per_second: 100 };

/// Rate of logins of one [`LoginSource`] with a wrong password: an application with a wrong
/// password tries with all connections of its pool, and keeps trying. At most twice the burst is
/// held against it, so that other clients of its address wait for no more than ten seconds after
/// the last attempt.
pub const FAILED_LOGINS: RefillRate = RefillRate { burst: 100, per_second: 10 };

/// Source of logins: a tenant, and the origin of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoginSource {
    tenant: Option<TenantId>,
    from: SourceAddress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SourceAddress {
    Network(IpAddr),
    /// A user of this machine, by a Unix socket.
    User(Option<u32>),
}

impl LoginSource {
    /// Creates the source of a client of `tenant`, or of the console's if `None`. `peer` is its
    /// address.
    #[must_use]
    pub fn new(
        tenant: Option<TenantId>,
        reached: ClientTransport,
        peer: Option<SocketAddr>,
    ) -> LoginSource {
        let from = match (peer, reached) {
            (Some(peer), _) => SourceAddress::Network(network(peer.ip())),
            (None, ClientTransport::Unix { uid }) => SourceAddress::User(uid),
            (None, ClientTransport::Tcp) => SourceAddress::User(None),
        };
        LoginSource { tenant, from }
    }
}

/// Buckets for sources. Shared by all threads; locked only for rare events.
#[derive(Debug)]
pub struct LoginLimiter<K> {
    rate: RefillRate,
    began: Instant,
    /// True if any event was ever counted: until then no lock is taken.
    is_used: AtomicBool,
    buckets: Mutex<TokenBuckets<K>>,
}

/// Times are in microseconds since the limiter began.
#[derive(Debug)]
struct TokenBuckets<K> {
    /// Time at which each bucket is empty again.
    empty_at: HashMap<K, u64>,
    /// Time of the last sweep.
    swept: u64,
}

impl<K: Copy + Eq + Hash> LoginLimiter<K> {
    /// Creates a limiter without counts.
    #[must_use]
    pub fn new(rate: RefillRate, now: Instant) -> LoginLimiter<K> {
        let buckets = Mutex::new(TokenBuckets { empty_at: HashMap::new(), swept: 0 });
        LoginLimiter { rate, began: now, is_used: AtomicBool::new(false), buckets }
    }

    /// Returns whether this source is within its rate. That does not count as an event.
    pub fn is_allowed(&self, source: K, now: Instant) -> bool {
        if !self.is_used.load(Ordering::Relaxed) {
            return true;
        }
        let now = self.micros(now);
        let level = self.buckets.lock().level(source, now);
        level.saturating_add(self.cost()) <= self.full()
    }

    /// Counts an event of this source, up to twice the size of its bucket. Sources beyond the
    /// maximum are not counted: an attacker with that many addresses is not stopped by buckets, and
    /// other clients would be limited instead.
    pub fn count(&self, source: K, now: Instant) {
        self.is_used.store(true, Ordering::Relaxed);
        let (now, cost, full) = (self.micros(now), self.cost(), self.full());
        let mut buckets = self.buckets.lock();
        if !buckets.has_room(source, now) {
            return;
        }
        let level = buckets.level(source, now).saturating_add(cost);
        buckets.empty_at.insert(source, now.saturating_add(level.min(full.saturating_mul(2))));
    }

    fn micros(&self, now: Instant) -> u64 {
        let now = now.saturating_duration_since(self.began).as_micros();
        u64::try_from(now).unwrap_or(u64::MAX)
    }

    fn cost(&self) -> u64 {
        1_000_000 / u64::from(self.rate.per_second.max(1))
    }

    fn full(&self) -> u64 {
        self.cost().saturating_mul(u64::from(self.rate.burst))
    }
}

impl LoginLimiter<IpAddr> {
    /// Returns whether this address is within its rate; if so, counts the event. Clients of Unix
    /// sockets have no address and are not limited. Addresses beyond the maximum share one bucket.
    pub fn allow(&self, source: Option<IpAddr>, now: Instant) -> bool {
        let Some(source) = source.map(network) else { return true };
        let (now, cost, full) = (self.micros(now), self.cost(), self.full());
        self.is_used.store(true, Ordering::Relaxed);
        let mut buckets = self.buckets.lock();
        let source = if buckets.has_room(source, now) { source } else { OTHERS };
        let level = buckets.level(source, now);
        if level.saturating_add(cost) > full {
            return false;
        }
        buckets.empty_at.insert(source, now.saturating_add(level).saturating_add(cost));
        true
    }
}

impl<K: Copy + Eq + Hash> TokenBuckets<K> {
    fn level(&self, source: K, now: u64) -> u64 {
        self.empty_at.get(&source).copied().unwrap_or(0).saturating_sub(now)
    }

    /// Returns whether a source has a bucket, or can get one.
    fn has_room(&mut self, source: K, now: u64) -> bool {
        if self.empty_at.len() >= SOURCES_MAX && now.saturating_sub(self.swept) >= SWEEP_US {
            self.swept = now;
            self.empty_at.retain(|_, at| *at > now);
        }
        self.empty_at.len() < SOURCES_MAX || self.empty_at.contains_key(&source)
    }
}

/// Shared bucket of all addresses without one of their own; no client has this address.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Returns the address as it is counted: with IPv6 each network has 2⁶⁴ of them.
fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RATE: RefillRate = RefillRate { burst: 3, per_second: 10 };

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn a_burst_and_then_a_steady_rate() {
        let start = node::clock::now();
        let limiter = LoginLimiter::new(RATE, start);
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
        let limiter = LoginLimiter::new(RATE, start);
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
        let limiter = LoginLimiter::new(RATE, start);
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

    #[test]
    fn failures_are_counted_apart_from_the_question_and_forgiven() {
        let start = node::clock::now();
        let limiter = LoginLimiter::new(RATE, start);
        let at = |ms| start + Duration::from_millis(ms);
        let of = |tenant: u32, peer: Option<&str>, reached| {
            let peer = peer.map(|it| it.parse().expect("an address"));
            LoginSource::new(Some(TenantId(tenant)), reached, peer)
        };
        let one = of(1, Some("192.0.2.1:5"), ClientTransport::Tcp);
        assert!((0..100).all(|_| limiter.is_allowed(one, at(0))), "asking costs nothing");
        (0..2).for_each(|_| limiter.count(one, at(0)));
        assert!(limiter.is_allowed(of(1, Some("192.0.2.1:6"), ClientTransport::Tcp), at(0)));
        limiter.count(one, at(0));
        for (origin, expected) in [
            (one, false),
            (of(1, Some("192.0.2.1:6"), ClientTransport::Tcp), false),
            (of(2, Some("192.0.2.1:5"), ClientTransport::Tcp), true),
            (of(1, Some("192.0.2.2:5"), ClientTransport::Tcp), true),
            (of(1, None, ClientTransport::Unix { uid: Some(7) }), true),
        ] {
            assert_eq!(limiter.is_allowed(origin, at(0)), expected, "{origin:?}");
        }
        // One is forgiven in 100 ms; whatever their number, at most six are held against it.
        assert!(limiter.is_allowed(one, at(100)));
        (0..1000).for_each(|_| limiter.count(one, at(100)));
        assert!(!limiter.is_allowed(one, at(499)));
        assert!(limiter.is_allowed(one, at(500)));
        let local = of(1, None, ClientTransport::Unix { uid: Some(7) });
        (0..3).for_each(|_| limiter.count(local, at(0)));
        assert!(!limiter.is_allowed(local, at(0)));
        assert!(limiter.is_allowed(of(1, None, ClientTransport::Unix { uid: Some(8) }), at(0)));
    }

    #[test]
    fn nobody_pays_for_the_failures_of_many_others() {
        let start = node::clock::now();
        let limiter = LoginLimiter::new(RATE, start);
        let count = u32::try_from(SOURCES_MAX).expect("small");
        (0..count + 100).for_each(|source| (0..3).for_each(|_| limiter.count(source, start)));
        assert!(!limiter.is_allowed(7, start));
        assert!(limiter.is_allowed(count + 7, start));
        assert_eq!(limiter.buckets.lock().empty_at.len(), SOURCES_MAX);
    }
}
