//! Order of the sessions that a draining node hands over. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for which a session may be at work before new work is held back for the first time.
const FIRST_REST_AFTER: Duration = Duration::from_secs(1);
/// Maximum interval between two such holds; the interval doubles each time.
const REST_EVERY_MAX: Duration = Duration::from_mins(1);
/// Maximum duration of the first hold; it doubles as well.
const FIRST_REST: Duration = Duration::from_millis(250);
/// Maximum duration of any hold.
const REST_MAX: Duration = Duration::from_secs(2);

/// A session of a draining node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HandoverCandidate {
    /// Id of the session.
    pub(super) id: String,
    /// Tenant that owns it.
    pub(super) tenant: String,
    /// Time of the last use, in milliseconds since 1970.
    pub(super) used_ms: u64,
    /// True if a turn, a command, a terminal or another use is in progress.
    pub(super) is_busy: bool,
    /// True if the use may last long, or may need further requests to finish: a turn, a terminal, a
    /// sandbox that runs until its deadline.
    pub(super) is_lasting: bool,
    /// True if its last hand-over failed.
    pub(super) has_failed: bool,
}

/// Plan for all sessions at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HandoverPlan {
    /// Sessions to hand over, in order.
    pub(super) at_rest: Vec<HandoverCandidate>,
    /// Number of sessions in use.
    pub(super) busy: u64,
    /// Sessions in use that become idle if new work is held back for a moment.
    pub(super) restless: Vec<HandoverCandidate>,
}

impl HandoverPlan {
    /// Orders sessions: previously failed ones first, because they have no sandbox any more that
    /// another failure would cost; then least recently used first, because they are the least
    /// likely to be requested meanwhile.
    pub(super) fn new(candidates: Vec<HandoverCandidate>) -> HandoverPlan {
        let (busy, mut at_rest): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|session| session.is_busy);
        at_rest.sort_by(|one, other| {
            let rank = |session: &HandoverCandidate| (!session.has_failed, session.used_ms);
            rank(one).cmp(&rank(other)).then_with(|| one.id.cmp(&other.id))
        });
        let count = u64::try_from(busy.len()).unwrap_or(u64::MAX);
        let restless = busy.into_iter().filter(|session| !session.is_lasting).collect();
        HandoverPlan { at_rest, busy: count, restless }
    }
}

/// Schedules of when new work is held back for sessions whose requests overlap all the time, which
/// would otherwise never be idle. Holds are rare and short, since the running work may take long
/// anyway.
#[derive(Debug, Default)]
pub(super) struct RestSchedules(HashMap<String, RestSchedule>);

impl RestSchedules {
    /// Chooses the sessions to hand over now, with the time for which new work on each is held
    /// back: all sessions at rest, and at most `restless_max` others, because the next round for
    /// those at rest starts only after these are done.
    pub(super) fn choose(
        &mut self,
        plan: HandoverPlan,
        restless_max: usize,
        now: Instant,
    ) -> Vec<(HandoverCandidate, Duration)> {
        let mut before = std::mem::take(&mut self.0);
        let mut due = |session: &HandoverCandidate, may_wait: bool| {
            let id = session.id.clone();
            let schedule = before.remove(&id).unwrap_or_else(|| RestSchedule::new(now));
            let schedule = self.0.entry(id).or_insert(schedule);
            if may_wait { schedule.due(now) } else { None }
        };
        let mut chosen = Vec::new();
        for session in plan.at_rest {
            // It may be in use again at each attempt.
            let patience = due(&session, true).unwrap_or_default();
            chosen.push((session, patience));
        }
        let mut left = restless_max;
        for session in plan.restless {
            if let Some(patience) = due(&session, left > 0) {
                left -= 1;
                chosen.push((session, patience));
            }
        }
        chosen
    }
}

/// Schedule of the holds for one session.
#[derive(Clone, Copy, Debug)]
struct RestSchedule {
    next: Instant,
    doublings: u32,
}

impl RestSchedule {
    /// Creates the schedule of a newly seen session.
    fn new(now: Instant) -> RestSchedule {
        RestSchedule { next: now + FIRST_REST_AFTER, doublings: 0 }
    }

    /// Returns the duration of a hold that is due now; none if it is too early.
    fn due(&mut self, now: Instant) -> Option<Duration> {
        if now < self.next {
            return None;
        }
        let factor = 1_u32.checked_shl(self.doublings).unwrap_or(u32::MAX);
        self.doublings = self.doublings.saturating_add(1);
        let pause = FIRST_REST_AFTER.saturating_mul(factor).min(REST_EVERY_MAX);
        let rest = FIRST_REST.saturating_mul(factor).min(REST_MAX);
        self.next = now + rest + pause;
        Some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers generated from a seed (xorshift64).
    struct SeededChance(u64);

    impl SeededChance {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % limit
        }

        fn is_one_in(&mut self, count: u64) -> bool {
            self.below(count) == 0
        }
    }

    fn candidate(id: &str, used_ms: u64, is_busy: bool, has_failed: bool) -> HandoverCandidate {
        HandoverCandidate {
            id: id.to_owned(),
            tenant: "shop".to_owned(),
            used_ms,
            is_busy,
            is_lasting: false,
            has_failed,
        }
    }

    fn order(plan: &HandoverPlan) -> Vec<&str> {
        plan.at_rest.iter().map(|session| session.id.as_str()).collect()
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_what_is_busy_waits() {
        let plan = HandoverPlan::new(vec![
            candidate("new", 900, false, false),
            candidate("busy", 100, true, false),
            candidate("failed", 800, false, true),
            candidate("old", 200, false, false),
            candidate("b", 300, false, false),
            candidate("a", 300, false, false),
            candidate("busy and failed", 50, true, true),
        ]);
        assert_eq!(order(&plan), ["failed", "old", "a", "b", "new"]);
        assert_eq!(plan.busy, 2);
        assert_eq!(HandoverPlan::new(Vec::new()), HandoverPlan::default());
    }

    #[test]
    fn new_work_waits_seldom_and_for_a_moment() {
        let began = node::clock::now();
        let restless = |count: usize| HandoverPlan {
            restless: (0..count).map(|id| candidate(&format!("{id}"), 0, true, false)).collect(),
            ..HandoverPlan::default()
        };
        let mut rests = RestSchedules::default();
        let mut waits = Vec::new();
        let mut total = Duration::ZERO;
        for tenth in 0..6000 {
            let at = Duration::from_millis(100 * tenth);
            for (_, patience) in rests.choose(restless(1), 8, began + at) {
                waits.push((at.as_millis(), patience.as_millis()));
                total += patience;
            }
        }
        assert_eq!(
            waits[..7],
            [
                (1000, 250),
                (2300, 500),
                (4800, 1000),
                (9800, 2000),
                (19800, 2000),
                (37800, 2000),
                (71800, 2000)
            ]
        );
        assert!(total * 20 < Duration::from_mins(10), "{waits:?}");

        // Many sessions take turns, and sessions that have left are forgotten.
        let mut rests = RestSchedules::default();
        assert!(rests.choose(restless(20), 8, began).is_empty());
        let at = began + FIRST_REST_AFTER;
        let counts: Vec<usize> = (0..4).map(|_| rests.choose(restless(20), 8, at).len()).collect();
        assert_eq!(counts, [8, 8, 4, 0]);
        assert!(rests.choose(HandoverPlan::default(), 8, at).is_empty());
        assert!(rests.0.is_empty());
        // A session at rest goes at once, without a hold at first.
        let plan = || HandoverPlan::new(vec![candidate("rests", 0, false, false)]);
        assert_eq!(rests.choose(plan(), 8, at)[0].1, Duration::ZERO);
        assert_eq!(rests.choose(plan(), 8, at + FIRST_REST_AFTER)[0].1, FIRST_REST);
        // Sessions with lasting work get no hold.
        let mut lasting = candidate("lasting", 0, true, false);
        lasting.is_lasting = true;
        let plan = HandoverPlan::new(vec![lasting, candidate("short", 0, true, false)]);
        assert_eq!((plan.busy, plan.restless.len()), (2, 1));
    }

    /// Sessions become idle and busy again, and the object store fails now and then: no session
    /// goes while it is busy or twice, and all go in the end.
    #[test]
    fn every_session_goes_once_and_none_while_it_is_busy() {
        for seed in 1..200_u64 {
            let mut chance = SeededChance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut left: Vec<_> = (0..1 + chance.below(40))
                .map(|id| candidate(&format!("ses_{id}"), chance.below(1000), false, false))
                .collect();
            let count = left.len();
            let mut gone: Vec<String> = Vec::new();
            for round in 0.. {
                assert!(round < 1000, "seed {seed}: {left:?} stay");
                let is_quiet = round > 100;
                for session in &mut left {
                    session.is_busy = !is_quiet && chance.is_one_in(3);
                }
                let plan = HandoverPlan::new(left.clone());
                let busy = left.iter().filter(|session| session.is_busy).count();
                assert_eq!((plan.busy, plan.at_rest.len() + busy), (busy as u64, left.len()));
                for session in plan.at_rest.iter().take(8) {
                    let found = left.iter().position(|it| it.id == session.id).unwrap();
                    assert!(!left[found].is_busy, "seed {seed}");
                    if !is_quiet && chance.is_one_in(5) {
                        left[found].has_failed = true;
                        break;
                    }
                    gone.push(left.remove(found).id);
                }
                if left.is_empty() {
                    break;
                }
            }
            gone.sort();
            gone.dedup();
            assert_eq!(gone.len(), count, "seed {seed}");
        }
    }
}
