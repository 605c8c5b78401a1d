//! Rate limits of audit records by grant. Pure.
//!
//! There are two limits: one for work, and one for events that cost their originator nothing, so
//! that many rejections do not displace the records of real requests.

use std::time::Instant;

use api::{AuditEvent, AuditOutcome};

use crate::doors::GatewayEvent;

/// Rate for rejections and connections, as a fraction of that for work.
const IDLE_PART: f64 = 0.25;

/// A token bucket: the size of a burst, and the sustained rate per second.
#[derive(Clone, Copy, Debug)]
struct PaceLimit {
    most: f64,
    per_s: f64,
    left: f64,
    since: Instant,
}

impl PaceLimit {
    fn new(most: f64, per_s: f64, now: Instant) -> PaceLimit {
        PaceLimit { most, per_s, left: most, since: now }
    }

    /// Takes a token; returns whether there was one.
    fn take(&mut self, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        self.left = (self.left + seconds * self.per_s).min(self.most);
        self.since = self.since.max(now);
        let is_there = self.left >= 1.0;
        if is_there {
            self.left -= 1.0;
        }
        is_there
    }
}

/// The rate limits of one grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantPace {
    work: PaceLimit,
    idle: PaceLimit,
    /// True if there is no limit.
    is_free: bool,
}

impl GrantPace {
    /// Creates limits of `most` in a burst and `per_s` sustained; 0 means no limit.
    pub(super) fn new(most: usize, per_s: f64, now: Instant) -> GrantPace {
        let most = u32::try_from(most).map_or(f64::MAX, f64::from);
        // At least one, even for very small settings.
        let idle = (most * IDLE_PART).max(1.0);
        GrantPace {
            work: PaceLimit::new(most, per_s, now),
            idle: PaceLimit::new(idle, per_s * IDLE_PART, now),
            is_free: per_s <= 0.0,
        }
    }

    /// Returns whether an event is recorded.
    pub(super) fn take(&mut self, happening: &GatewayEvent<'_>, now: Instant) -> bool {
        match (happening.event, happening.outcome) {
            // These are not caused by the sandbox.
            (AuditEvent::Granted | AuditEvent::Revoked | AuditEvent::Missing, _) => true,
            _ if self.is_free => true,
            (AuditEvent::Connect | AuditEvent::Disconnect, _) | (_, AuditOutcome::Refused) => {
                self.idle.take(now)
            }
            (AuditEvent::Statement | AuditEvent::Request, _) => self.work.take(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use node::clock;

    use super::*;

    #[test]
    fn refusals_take_no_place_of_work() {
        let now = clock::now();
        let mut pace = GrantPace::new(100, 10.0, now);
        let mut taken = |event, outcome, count, now| {
            (0..count).filter(|_| pace.take(&GatewayEvent::new(event, outcome), now)).count()
        };
        let (request, connect) = (AuditEvent::Request, AuditEvent::Connect);
        let (done, refused) = (AuditOutcome::Done, AuditOutcome::Refused);
        assert_eq!(taken(request, refused, 1000, now), 25);
        assert_eq!(taken(connect, done, 1000, now), 0);
        assert_eq!(taken(request, done, 60, now), 60);
        assert_eq!(taken(request, AuditOutcome::Failed, 1000, now), 40);
        assert_eq!(taken(AuditEvent::Revoked, done, 1, now), 1);
        let now = now + Duration::from_secs(2);
        assert_eq!(taken(request, refused, 1000, now), 5);
        assert_eq!(taken(request, done, 1000, now), 20);
        // The bucket never exceeds its initial size.
        let now = now + Duration::from_secs(3600);
        assert_eq!(taken(request, done, 1000, now), 100);
        // It does not shrink either if two threads read their clocks in the opposite order.
        assert_eq!(taken(request, done, 1, now - Duration::from_secs(9)), 0);
        let mut free = GrantPace::new(1, 0.0, now);
        assert!((0..1000).all(|_| free.take(&GatewayEvent::new(request, refused), now)));
    }
}
