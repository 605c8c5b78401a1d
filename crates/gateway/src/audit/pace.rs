//! Rate limits of audit records by grant. Pure.
//!
//! There are two measures: one for what is work, one for what costs whoever does it nothing, so
//! that many refusals do not take the place of a request that was answered.

use std::time::Instant;

use api::{AuditEvent, AuditOutcome};

use crate::doors::GatewayEvent;

/// Rate for refusals and connections, as a part of that for work.
const IDLE_PART: f64 = 0.25;

/// Records that may be written at once, and how many more with each second.
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

    /// Returns whether there is one more.
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

/// The pace of one grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantPace {
    work: PaceLimit,
    idle: PaceLimit,
    /// True if there is no bound.
    is_free: bool,
}

impl GrantPace {
    /// `most` at once and `per_s` in the long run; 0 is for no bound.
    pub(super) fn new(most: usize, per_s: f64, now: Instant) -> GrantPace {
        let most = u32::try_from(most).map_or(f64::MAX, f64::from);
        // One is always there, also where the configuration says very little.
        let idle = (most * IDLE_PART).max(1.0);
        GrantPace {
            work: PaceLimit::new(most, per_s, now),
            idle: PaceLimit::new(idle, per_s * IDLE_PART, now),
            is_free: per_s <= 0.0,
        }
    }

    /// Returns whether this is written down.
    pub(super) fn take(&mut self, happening: &GatewayEvent<'_>, now: Instant) -> bool {
        match (happening.event, happening.outcome) {
            // Nothing inside causes them.
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
        // It does not grow beyond what there was at first.
        let now = now + Duration::from_secs(3600);
        assert_eq!(taken(request, done, 1000, now), 100);
        // Nor does it shrink where clocks of two threads are read in the other order.
        assert_eq!(taken(request, done, 1, now - Duration::from_secs(9)), 0);
        let mut free = GrantPace::new(1, 0.0, now);
        assert!((0..1000).all(|_| free.take(&GatewayEvent::new(request, refused), now)));
    }
}
