//! The events of a session: numbered, sent to any number of listeners, written behind.
//!
//! ```text
//!  agent's reader ── push ──▶ Log ── ring ──▶ Subscription, Subscription, …
//!     ▲                        │ pending            │ what fell off the ring
//!     └── room ──┐             ▼                    ▼
//!                └────────── Writer ── batches ──▶ store
//! ```
//!
//! - [`SessionLog::push`] takes microseconds and waits for nobody. A slow listener reads again from
//!   the store what is not in memory any more; pieces of messages it may miss.
//! - **No number is told before the store knows a ceiling above it**, so that none is told twice,
//!   whatever is lost ([`crate::store`]).
//! - **The beginning and the end of a turn are told when everything up to them is durable.** Other
//!   events are told at once.
//! - One [`EventWriter`] writes for all sessions: what came while it wrote is its next transaction.
//!   While the store cannot be reached, what waits grows to a limit; then [`SessionLog::room`]
//!   makes the reader of the agent wait, and so the agent.
//! - A log is alive while this server owns the session. Else it still tells what the store has.
//!
//! Nothing here knows of sandboxes, agents or HTTP.

mod log;
mod subscription;
mod writer;

pub(crate) use self::log::SessionLog;
pub(crate) use self::subscription::SessionSubscription;
pub(crate) use self::writer::{EventWriter, LossReason, LostSession};

/// Bytes of recent events that a log keeps in memory, beside what is not written yet.
const RING_BYTES_MAX: usize = 256 << 10;

/// Size of an event besides its data.
const EVENT_BYTES: usize = 128;

/// Events that a listener takes at a time.
const TAKE_MAX: usize = 256;

/// Bytes of one log that wait to be written; beyond it [`SessionLog::room`] waits.
const LOG_WAITING_MAX: usize = 4 << 20;

/// Bytes of all logs that wait to be written; beyond it [`SessionLog::room`] waits.
const WAITING_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests;
