//! Counts wrong secrets of clients, to limit the rate of guesses.
//!
//! They are counted by client and by network address: wrong secrets from one address do not block
//! the client at another one, so that an attacker cannot lock out a client remotely.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use node::clock;
use parking_lot::Mutex;

use crate::error::{CatalogError, ErrorReason, Result};

/// Wrong secrets of one client from one address that are accepted in a burst.
pub const WRONG_SECRETS_MAX: u32 = 20;

/// Time after which one more wrong secret is accepted.
pub const WRONG_SECRET_FORGIVEN: Duration = Duration::from_secs(1);

/// Most pairs of client and address that are counted.
const SOURCES_MAX: usize = 16_384;

/// Client and address of a wrong secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SecretSource {
    /// `None` for all unknown ids.
    client: Option<Box<str>>,
    network: IpAddr,
}

/// Counts of wrong secrets.
#[derive(Debug, Default)]
pub(super) struct WrongSecrets(Mutex<HashMap<SecretSource, Instant>>);

impl WrongSecrets {
    /// Checks whether another secret of a client from an address is accepted.
    ///
    /// # Errors
    /// `TooManyRequests`.
    pub(super) fn check_allowed(
        &self,
        client: Option<&str>,
        address: Option<IpAddr>,
    ) -> Result<()> {
        self.limited(client, address, || Ok(()))
    }

    /// Runs a check of a client's secret, unless there were too many wrong secrets from the
    /// address; counts a failed check. `client` is `None` for unknown ids. Without an address
    /// nothing is counted.
    ///
    /// # Errors
    /// `TooManyRequests`; those of `check`.
    pub(super) fn limited<T>(
        &self,
        client: Option<&str>,
        address: Option<IpAddr>,
        check: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(address) = address else { return check() };
        let source = SecretSource { client: client.map(Box::from), network: network(address) };
        let now = clock::now();
        if !self.is_allowed(&source, now) {
            let message = "too many wrong secrets from this address: try again in a second";
            return Err(CatalogError::new(ErrorReason::TooManyRequests, message));
        }
        check().inspect_err(|_| self.count(source, now))
    }

    /// Returns whether another secret from this source is accepted.
    fn is_allowed(&self, source: &SecretSource, now: Instant) -> bool {
        let all = self.0.lock();
        let held = all.get(source).map(|until| until.saturating_duration_since(now));
        held.unwrap_or_default() + WRONG_SECRET_FORGIVEN
            <= WRONG_SECRET_FORGIVEN * WRONG_SECRETS_MAX
    }

    fn count(&self, source: SecretSource, now: Instant) {
        let mut all = self.0.lock();
        if all.len() >= SOURCES_MAX && !all.contains_key(&source) {
            all.retain(|_, until| *until > now);
            if all.len() >= SOURCES_MAX {
                // No limit stops an attacker with that many addresses, and other clients would
                // suffer from it.
                return;
            }
        }
        let until = all.entry(source).or_insert(now);
        *until = (*until).max(now) + WRONG_SECRET_FORGIVEN;
    }
}

/// Returns the address that is counted: with IPv6 the /64 network, because every host has 2⁶⁴
/// addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(client: &str, address: &str) -> SecretSource {
        let network = network(address.parse().expect("an address"));
        SecretSource { client: Some(client.into()), network }
    }

    #[test]
    fn wrong_secrets_are_counted_by_client_and_address_and_forgiven() {
        let (counts, now) = (WrongSecrets::default(), node::clock::now());
        let stranger = source("cl_1", "192.0.2.1");
        for number in 0..WRONG_SECRETS_MAX {
            assert!(counts.is_allowed(&stranger, now), "{number}");
            counts.count(stranger.clone(), now);
        }
        assert!(!counts.is_allowed(&stranger, now));
        // The owner at another address, and other clients at this one, are not blocked.
        assert!(counts.is_allowed(&source("cl_1", "192.0.2.2"), now));
        assert!(counts.is_allowed(&source("cl_2", "192.0.2.1"), now));
        let later = now + WRONG_SECRET_FORGIVEN;
        assert!(counts.is_allowed(&stranger, later));
        counts.count(stranger.clone(), later);
        assert!(!counts.is_allowed(&stranger, later));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_memory_is_bounded() {
        assert_eq!(source("c", "2001:db8::1"), source("c", "2001:db8::ffff"));
        assert_ne!(source("c", "2001:db8::1"), source("c", "2001:db8:0:1::1"));
        assert_eq!(source("c", "::ffff:192.0.2.1"), source("c", "192.0.2.1"));
        let (counts, now) = (WrongSecrets::default(), node::clock::now());
        for number in 0..=SOURCES_MAX {
            counts.count(source(&number.to_string(), "192.0.2.1"), now);
        }
        assert_eq!(counts.0.lock().len(), SOURCES_MAX);
        counts.count(source("last", "192.0.2.1"), now + WRONG_SECRET_FORGIVEN);
        assert_eq!(counts.0.lock().len(), 1);
    }
}
