//! Channels that a client listens to without a server connection of its own.
//!
//! The server receives an `UNLISTEN` instead of each `LISTEN`, which it checks, orders and rolls
//! back like the original; the subscription takes effect here when the transaction commits. The
//! relay's listener connection subscribes to the channels *before* that, so that no notification is
//! missed.
//!
//! One case is not tracked: a `LISTEN` after a savepoint that is rolled back takes effect if the
//! transaction commits.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/sql-listen.html>
//! - <https://www.postgresql.org/docs/current/sql-notify.html>

use wire::pg::frame::TransactionStatus;
use wire::pg::sql::{ListenAction, SubscriptionChange};

/// Maximum channels that a client may listen to.
pub(crate) const CHANNELS_MAX: usize = 1_024;

/// The channels of one client.
#[derive(Debug, Default)]
pub(crate) struct ClientChannels {
    /// Channels whose notifications the client receives.
    active: Vec<Box<str>>,
    /// Channels to which the relay's listener has subscribed for it.
    heard: Vec<Box<str>>,
    /// Channels to which the relay's listener was asked to subscribe.
    wanted: Vec<Box<str>>,
    /// Changes by the current transaction, which take effect if it commits.
    pending: Vec<SubscriptionChange>,
    failed: bool,
    rolled_back: bool,
    /// Counter of changes of the needed channels.
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

    /// Returns whether a subscription to the channel is needed: the client listens to it, or may
    /// soon.
    pub(crate) fn needs(&self, channel: &str) -> bool {
        self.heard.iter().any(|heard| **heard == *channel)
    }

    /// Requests the channels that a text starts to listen to. False: all are subscribed already.
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

    /// Returns whether the requested channels exceed the maximum.
    pub(crate) fn is_full(&self) -> bool {
        self.heard.len() + self.wanted.len() > CHANNELS_MAX
    }

    /// Records that the requested channels are subscribed.
    pub(crate) fn heard(&mut self) {
        self.heard.append(&mut self.wanted);
        self.version += 1;
    }

    /// Records a completed statement that changes subscriptions.
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

    /// Handles a ready server: at the end of a transaction its changes take effect, or not.
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
