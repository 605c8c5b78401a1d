//! A client that listens to channels of its database, with its pending notifications.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::pg::frame::HEADER_BYTES;

use super::holders::NotificationSender;

/// A client that listens, or has listened.
#[derive(Debug)]
pub(super) struct ChannelSubscriber {
    /// The client's place.
    pub(super) client: u32,
    /// Notification connection of its pool.
    pub(super) notifier: u32,
    /// The channels that the notifier has it down for.
    pub(super) channels: Vec<Arc<str>>,
    /// Version of the link's list of channels when it was last read.
    pub(super) version: u32,
    /// Events to send to it, oldest first.
    pub(super) held: VecDeque<ChannelEvent>,
    /// Bytes of that.
    pub(super) held_bytes: usize,
    /// True if some of that is for it only if the transaction under way commits.
    pub(super) is_unsure: bool,
}

/// Event for clients that listen.
#[derive(Clone, Debug)]
pub(super) enum ChannelEvent {
    Notification(Arc<ChannelNotification>),
    /// They may have missed something.
    Gap,
}

/// A notification.
#[derive(Debug)]
pub(super) struct ChannelNotification {
    pub(super) channel: Arc<str>,
    pub(super) sender: NotificationSender,
    /// Channel and payload as they are on the wire.
    pub(super) rest: Box<[u8]>,
}

impl ChannelEvent {
    pub(super) fn bytes(&self) -> usize {
        match self {
            ChannelEvent::Notification(notification) => notification.rest.len() + HEADER_BYTES + 4,
            ChannelEvent::Gap => HEADER_BYTES,
        }
    }
}

/// State of a client's subscriptions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SubscriptionState {
    /// They are.
    Yes,
    /// They will be, or the client is told why not.
    Waits,
    /// The client is gone.
    No,
}
