//! A client that listens to channels of its database, with its pending notifications.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::pg::frame::HEADER_BYTES;

use super::holders::NotificationSender;

/// A client that listens, or has listened.
#[derive(Debug)]
pub(super) struct ChannelSubscriber {
    /// Slot of the client.
    pub(super) client: u32,
    /// Notification connection of its pool.
    pub(super) notifier: u32,
    /// Channels to which the notification connection has subscribed it.
    pub(super) channels: Vec<Arc<str>>,
    /// Version of the link's list of channels when it was last read.
    pub(super) version: u32,
    /// Events to send to it, oldest first.
    pub(super) held: VecDeque<ChannelEvent>,
    /// Size of those, in bytes.
    pub(super) held_bytes: usize,
    /// True if some of those are delivered only if the current transaction commits.
    pub(super) is_unsure: bool,
}

/// Event for clients that listen.
#[derive(Clone, Debug)]
pub(super) enum ChannelEvent {
    Notification(Arc<ChannelNotification>),
    /// Notifications may have been missed.
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
    /// All channels are subscribed.
    Yes,
    /// A subscription is pending; the client will be resumed, or disconnected with the reason.
    Waits,
    /// The client has left.
    No,
}
