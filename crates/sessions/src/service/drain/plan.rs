//! Which sessions a node that drains hands over, and in what order. Pure.

/// A session that a node has which drains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HandoverCandidate {
    /// Id of the session.
    pub(super) id: String,
    /// Owner.
    pub(super) tenant: String,
    /// When it was used last, in milliseconds since 1970.
    pub(super) used_ms: u64,
    /// True if a turn, a command, a terminal or anything else works with its sandbox.
    pub(super) is_busy: bool,
    /// True if it could not be handed over when that was tried last.
    pub(super) has_failed: bool,
}

/// What to do about all of them now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HandoverPlan {
    /// Sessions to hand over, in this order.
    pub(super) at_rest: Vec<HandoverCandidate>,
    /// Number of those that are waited for.
    pub(super) busy: u64,
}

impl HandoverPlan {
    /// Orders sessions: those first that failed before, because they have no sandbox any more that
    /// a further failure would cost; then those that were used longest ago, because nobody is
    /// likely to ask for them meanwhile.
    pub(super) fn new(candidates: Vec<HandoverCandidate>) -> HandoverPlan {
        let (busy, mut at_rest): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|session| session.is_busy);
        at_rest.sort_by(|one, other| {
            let rank = |session: &HandoverCandidate| (!session.has_failed, session.used_ms);
            rank(one).cmp(&rank(other)).then_with(|| one.id.cmp(&other.id))
        });
        HandoverPlan { at_rest, busy: u64::try_from(busy.len()).unwrap_or(u64::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that a seed gives (xorshift64).
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

    /// Sessions come to rest and to work again, and the object store fails now and then: none goes
    /// while it is busy, none goes twice, and all go in the end.
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
