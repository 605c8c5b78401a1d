//! Events of a session: numbered, sent to any number of subscribers, and written behind.
//!
//! ```text
//!  agent's reader ── push ──▶ Log ── ring ──▶ Subscription, Subscription, …
//!     ▲                        │ pending            │ events evicted from the ring
//!     └── room ──┐             ▼                    ▼
//!                └────────── Writer ── batches ──▶ store
//! ```
//!
//! - [`SessionLog::push`] takes microseconds and never blocks. A slow subscriber re-reads evicted
//!   events from the store; it may miss partial messages.
//! - **No number is visible before the store records a ceiling above it**, so no number is sent
//!   twice, even after a crash ([`crate::store`]).
//! - **The start and the end of a turn become visible once everything up to them is durable.**
//!   Other events are visible at once.
//! - One [`EventWriter`] writes for all sessions; events that arrive during a transaction form the
//!   next one. While the store cannot be reached, pending events grow to a limit; then
//!   [`SessionLog::room`] blocks the reader of the agent, and thereby the agent.
//! - A log is alive while this server owns the session. Otherwise it still serves events from the
//!   store.
//!
//! This module knows no sandboxes, agents or HTTP.

mod log;
mod subscription;
mod writer;

pub(crate) use self::log::SessionLog;
pub(crate) use self::subscription::SessionSubscription;
pub(crate) use self::writer::{EventWriter, LossReason, LostSession};

/// Bytes of recent events that a log keeps in memory, in addition to pending ones.
const RING_BYTES_MAX: usize = 256 << 10;

/// Estimated size of an event without its data.
const EVENT_BYTES: usize = 128;

/// Maximum number of events that a subscriber takes at a time.
const TAKE_MAX: usize = 256;

/// Pending bytes of one log beyond which [`SessionLog::room`] waits.
const LOG_WAITING_MAX: usize = 4 << 20;

/// Pending bytes of all logs beyond which [`SessionLog::room`] waits.
const WAITING_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests;
