//! Client of limits that hold over all nodes: reports the usage of a service of this node, and
//! passes it the part that it may use.
//!
//! A service requests more when it needs more than its part, and checks periodically whether other
//! nodes need its part. Unchanged usage that no other node needs is not reported again, so that a
//! service with a sufficient part does not touch the rows of its limits.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::Notify;

use super::limit_shares::{LimitGrant, LimitScope, LimitShares, LimitUse, SETTLED_MAX};
use crate::clock;
use crate::store::SqlStoreError;

/// Interval at which a node checks whether others need its parts.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval at which a node that needs more than its parts requests more.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Shortest time between two exchanges.
const SETTLE_GAP: Duration = Duration::from_millis(10);

/// Limits that a service uses or needs, by their names, which are the same at all nodes.
pub type SharedLimitUses<L> = BTreeMap<String, (L, LimitUse)>;

/// Service that uses resources limited over all nodes.
pub trait SharedLimitUser: Sync {
    /// The service's own representation of a limit.
    type Limit: Clone + Send + Sync;

    /// Subject of the limits, for the log: `server connections`.
    const SUBJECT: &'static str;

    /// Prefix of the names of all of its limits, and of no others: a word and a slash.
    const PREFIX: &'static str;

    /// Returns its use and need of each limit at this moment. Limits that it neither uses nor needs
    /// nor may use can be left out.
    fn uses(&self) -> SharedLimitUses<Self::Limit>;

    /// Gives up unused parts of limits that other nodes need.
    fn give_up_idle(&self, _wanted: &[Self::Limit]) {}

    /// Takes the parts of all limits that it uses or needs; a part may be unchanged. It may use
    /// nothing of any other limit.
    fn take_parts(&self, parts: Vec<(Self::Limit, LimitGrant)>);
}

/// Limit, as it was last settled.
#[derive(Debug)]
struct SettledLimit {
    used: LimitUse,
    grant: LimitGrant,
}

/// Limits, as they were last settled.
#[derive(Debug, Default)]
struct FollowedLimits {
    settled: BTreeMap<String, SettledLimit>,
    /// True if a part was less than needed.
    is_short: bool,
    /// True if a part is less than before: the excess is given back at once.
    is_shrinking: bool,
    /// True if the store could not be queried.
    is_failing: bool,
}

/// Maintains a service's parts of limits. It exchanges at once when `demand` is notified that a
/// limit is needed of which no part is left. Never ends.
pub async fn follow_shared_limits<U: SharedLimitUser>(
    shares: &LimitShares,
    user: &U,
    demand: &Notify,
) {
    let mut followed = FollowedLimits::default();
    loop {
        let pause = match () {
            () if followed.is_shrinking => SETTLE_GAP,
            () if followed.is_short => ASK_EVERY,
            () if followed.settled.is_empty() && !followed.is_failing => Duration::MAX,
            () => LOOK_EVERY,
        };
        tokio::select! {
            () = demand.notified(), if !followed.is_short => {}
            () = tokio::time::sleep(pause) => {}
        }
        let asked = clock::now();
        let outcome = followed.settle(shares, user).await;
        let was_failing = std::mem::replace(&mut followed.is_failing, outcome.is_err());
        if let Err(error) = outcome {
            followed.use_alone(shares, user);
            if !was_failing {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot share limits on {} with other nodes", U::SUBJECT);
            }
        } else if was_failing {
            tracing::info!("limits on {} are shared with other nodes again", U::SUBJECT);
        }
        tokio::time::sleep(SETTLE_GAP.saturating_sub(clock::now() - asked)).await;
    }
}

impl FollowedLimits {
    /// Reports this node's usage, and takes the granted parts.
    async fn settle<U: SharedLimitUser>(
        &mut self,
        shares: &LimitShares,
        user: &U,
    ) -> Result<(), SqlStoreError> {
        let uses = user.uses();
        if uses.is_empty() && self.settled.is_empty() {
            return Ok(());
        }
        let wanted = shares.wanted_elsewhere(U::PREFIX).await?;
        let known: Vec<U::Limit> =
            wanted.iter().filter_map(|name| Some(uses.get(name)?.0.clone())).collect();
        if !known.is_empty() {
            user.give_up_idle(&known);
        }
        self.is_shrinking = false;
        for some in self.untold(&uses, &wanted).chunks(SETTLED_MAX) {
            for (used, grant) in some.iter().zip(shares.settle(some).await?) {
                if is_nothing(used) && grant.part == 0 {
                    self.settled.remove(&used.resource);
                    continue;
                }
                self.is_shrinking |= grant.part < used.bound;
                let settled = SettledLimit { used: used.clone(), grant };
                self.settled.insert(used.resource.clone(), settled);
            }
        }
        let is_short = |it: &SettledLimit| it.grant.part < it.used.needed;
        self.is_short = self.settled.values().any(is_short);
        self.give_parts(user, &uses);
        Ok(())
    }

    /// Returns the uses to report: changed, short, or needed elsewhere.
    fn untold<L>(&self, uses: &SharedLimitUses<L>, wanted: &[String]) -> Vec<LimitUse> {
        let is_told = |it: &LimitUse| {
            let settled = self.settled.get(&it.resource);
            settled.is_some_and(|settled| settled.used == *it && settled.grant.part >= it.needed)
        };
        let is_due =
            |it: &&LimitUse| self.is_failing || !is_told(it) || wanted.contains(&it.resource);
        let current = uses.values().map(|(_, it)| it);
        let current =
            current.filter(|it| !is_nothing(it) || self.settled.contains_key(&it.resource));
        let mut untold: Vec<LimitUse> = current.filter(is_due).cloned().collect();
        // The part of a limit that is not used any more is given back once none of it can be taken.
        let over = self.settled.iter().filter(|(name, _)| !uses.contains_key(*name));
        let over = over.map(|(_, it)| it.used.clone());
        untold.extend(over.map(|it| LimitUse { bound: 0, used: 0, needed: 0, ..it }));
        untold
    }

    fn give_parts<U: SharedLimitUser>(&self, user: &U, uses: &SharedLimitUses<U::Limit>) {
        let parts = uses.iter().filter_map(|(name, (limit, _))| {
            let settled = self.settled.get(name)?;
            Some((limit.clone(), settled.grant))
        });
        user.take_parts(parts.collect());
    }

    /// Takes the even part of the need while the store is unreachable, for limits that may be
    /// exceeded.
    fn use_alone<U: SharedLimitUser>(&mut self, shares: &LimitShares, user: &U) {
        self.is_shrinking = false;
        if shares.scope() != LimitScope::Soft {
            return;
        }
        let uses = user.uses();
        for (_, used) in uses.values() {
            let alone = shares.even_part(used.limit).min(used.needed);
            let part = used.bound.max(alone);
            let settled = self.settled.entry(used.resource.clone()).or_insert_with(|| {
                SettledLimit { used: used.clone(), grant: LimitGrant::default() }
            });
            settled.grant = LimitGrant { part, ..LimitGrant::default() };
        }
        self.give_parts(user, &uses);
    }
}

fn is_nothing(used: &LimitUse) -> bool {
    (used.bound, used.used, used.needed) == (0, 0, 0)
}

#[cfg(test)]
mod tests;
