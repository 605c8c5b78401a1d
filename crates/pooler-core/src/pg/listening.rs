//! What a client listens to while no server connection is its own.
//!
//! The server sees an `UNLISTEN` in place of each `LISTEN`, which it checks, orders and rolls back
//! as it would the other; what it means becomes true here when the transaction commits. A listener
//! connection of the relay's hears the channels *before* that, so that nothing between is missed.
//!
//! One thing is not followed: a `LISTEN` after a savepoint that is rolled back counts, if the
//! transaction commits.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/sql-listen.html>
//! - <https://www.postgresql.org/docs/current/sql-notify.html>

use wire::pg::frame::TransactionStatus;
use wire::pg::sql::{ListenAction, SubscriptionChange};

/// Channels that a client may listen to.
pub(crate) const CHANNELS_MAX: usize = 1_024;

/// The channels of one client.
#[derive(Debug, Default)]
pub(crate) struct ClientChannels {
    /// It is to be told of notifications on these.
    active: Vec<Box<str>>,
    /// The relay's listener hears these for it.
    heard: Vec<Box<str>>,
    /// The relay's listener has been asked to.
    wanted: Vec<Box<str>>,
    /// What the transaction under way changes if it commits.
    pending: Vec<SubscriptionChange>,
    failed: bool,
    rolled_back: bool,
    /// Counts changes of what has to be heard.
    version: u32,
}

impl ClientChannels {
    pub(crate) fn active(&self) -> &[Box<str>] {
        &self.active
    }

    pub(crate) fn wanted(&self) -> &[Box<str>] {
        &self.wanted
    }

    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Returns whether the channel has to be heard: it is listened to, or may be soon.
    pub(crate) fn needs(&self, channel: &str) -> bool {
        self.heard.iter().any(|heard| **heard == *channel)
    }

    /// Asks for the channels that a text begins to listen to. False: all of them are heard.
    pub(crate) fn ask(&mut self, actions: &[ListenAction]) -> bool {
        self.wanted.clear();
        for action in actions {
            if let SubscriptionChange::Begin(channel) = &action.subscription
                && !self.needs(channel)
                && !self.wanted.iter().any(|wanted| **wanted == **channel)
            {
                self.wanted.push(channel.as_str().into());
            }
        }
        !self.wanted.is_empty()
    }

    /// Returns whether there is room for what was asked for.
    pub(crate) fn is_full(&self) -> bool {
        self.heard.len() + self.wanted.len() > CHANNELS_MAX
    }

    /// What was asked for is heard.
    pub(crate) fn heard(&mut self) {
        self.heard.append(&mut self.wanted);
        self.version += 1;
    }

    /// A statement that changes this was done.
    pub(crate) fn done(&mut self, subscription: &SubscriptionChange) {
        self.pending.push(subscription.clone());
    }

    pub(crate) fn saw_tag(&mut self, tag: &[u8]) {
        self.rolled_back = tag == b"ROLLBACK";
        if tag == b"DISCARD ALL" {
            self.pending.push(SubscriptionChange::EndAll);
        }
    }

    pub(crate) fn saw_error(&mut self) {
        self.failed = true;
    }

    /// The server is ready for the next request: the end of a transaction makes it so, or not.
    pub(crate) fn ready(&mut self, status: TransactionStatus) {
        let dropped = self.failed || self.rolled_back;
        self.failed = false;
        if status != TransactionStatus::Idle || (self.pending.is_empty() && !dropped) {
            return;
        }
        for subscription in std::mem::take(&mut self.pending) {
            if dropped {
                break;
            }
            match subscription {
                SubscriptionChange::Begin(channel) => {
                    if !self.active.iter().any(|active| **active == *channel) {
                        self.active.push(channel.into());
                    }
                }
                SubscriptionChange::End(channel) => {
                    self.active.retain(|active| **active != *channel)
                }
                SubscriptionChange::EndAll => self.active.clear(),
            }
        }
        self.rolled_back = false;
        let active = &self.active;
        self.heard.retain(|heard| active.contains(heard));
        self.version += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(channel: &str) -> Vec<ListenAction> {
        vec![ListenAction {
            statement: 0,
            subscription: SubscriptionChange::Begin(channel.to_owned()),
        }]
    }

    fn check(end: &[u8], failed: bool, wanted: &[&str]) {
        let mut listening = ClientChannels::default();
        assert!(listening.ask(&begin("a")));
        listening.heard();
        assert!(!listening.ask(&begin("a")));
        listening.done(&SubscriptionChange::Begin("a".to_owned()));
        listening.ready(TransactionStatus::InTransaction);
        assert!(listening.active().is_empty() && listening.needs("a"));
        if failed {
            listening.saw_error();
        }
        listening.saw_tag(end);
        listening.ready(TransactionStatus::Idle);
        let active: Vec<&str> = listening.active().iter().map(AsRef::as_ref).collect();
        assert_eq!(active, wanted);
        assert_eq!(listening.needs("a"), !wanted.is_empty());
    }

    #[test]
    fn a_subscription_begins_when_its_transaction_commits() {
        check(b"COMMIT", false, &["a"]);
        check(b"LISTEN", false, &["a"]);
        check(b"ROLLBACK", false, &[]);
        check(b"SELECT 1", true, &[]);
    }
}
