//! Bounded, keyed, fair pools of anything.
//!
//! One pool serves server connections (a key per tenant), sandboxes prepared ahead (leased once,
//! then discarded) and agent slots. It decides; a *driver*, written by its user, opens and closes
//! resources and tells it the time. Beside it are the tables and orders that others decide by:
//! [`residents`], [`shares`] and, for keys that just take turns, [`RoundRobin`].
//!
//! This crate never reads a clock, never does I/O, never logs, starts no task and knows no async
//! runtime. It does not know what a resource is.
//!
//! # Terms
//! | term | meaning |
//! |---|---|
//! | resource | what is pooled: any `R` |
//! | key | what keeps resources apart: any `K`, say a tenant |
//! | [`Lease`] | a resource in a user's hands; goes back when dropped |
//! | [`Ticket`] | the driver's duty to open a resource |
//! | [`RetiredResource`] | a resource that the driver is to close |
//! | ledger | counts and queues, under one lock: every decision that needs more than an idle resource and nobody waiting |
//! | gate | a flag that sends leases and returns to the ledger |
//! | to starve | to wait although the key's own bound would allow to open, because the total bound is reached |
//! | tick | the driver's call that lets time pass |
//!
//! # Invariants
//! - At no instant do more than [`KeyLimits::max`] resources of a key or [`PoolConfig::total_max`]
//!   in all exist, counting those that are being opened or closed. Leases, tickets and retired
//!   resources are permits: dropping one is the only way to end it, and that frees its place.
//!   (Exception, by name: [`Lease::into_inner`].)
//! - Within a key, who came first is served first. Nobody overtakes the queue.
//! - No key starves: a starving key gets idle resources of others at once and returned ones in
//!   turn.
//! - An idle resource and a waiter of the same key never coexist, unless the key is paused.
//! - A leased resource is never closed.
//! - Dropping a waiting future loses nothing: what it was given goes to the next in line.
//! - A lease and a return that meet no waiter allocate nothing, make no system call and do not take
//!   the ledger's lock.
//!
//! # Example
#![cfg_attr(not(feature = "model"), doc = "```")]
#![cfg_attr(feature = "model", doc = "```no_run")] // The checker's locks work only inside of a model.
//! use std::time::{Duration, Instant};
//! use pool::{DriverEffect, KeyLimits, Pool, PoolConfig};
//!
//! // A clock is the caller's business; a test makes its own.
//! let now = Instant::now();
//! let pool = Pool::<&str, String>::new(PoolConfig { total_max: 8, ..PoolConfig::default() }, now);
//!
//! // Two prepared ahead: the pool asks for them at once.
//! let limits = KeyLimits { max: 4, min_idle: 2, ..KeyLimits::default() };
//! let tenant = pool.key_with(&"tenant", limits)?;
//! for effect in pool.take_effects() {
//!     match effect {
//!         DriverEffect::Open(ticket) => ticket.opened("a connection".to_owned(), now),
//!         DriverEffect::Close(retired) => drop(retired),
//!         DriverEffect::TickAt(_) => {}
//!     }
//! }
//!
//! let lease = tenant.try_acquire(now)?.expect("two are idle");
//! assert_eq!(*lease, "a connection");
//! // One was taken, so that a replacement is under way.
//! assert_eq!((tenant.stats().idle, tenant.stats().leased, tenant.stats().opening), (1, 1, 1));
//!
//! // Back to the others, or `lease.discard()` for what is used once.
//! drop(lease);
//! assert_eq!(tenant.stats().idle, 2);
//! # Ok::<(), pool::AcquireError>(())
//! ```
//!
//! A driver is a loop: wait for [`Pool::next_effect`] or for the time of the last
//! [`DriverEffect::TickAt`], perform the effect or call [`Pool::tick`]. [`KeyHandle::acquire`] is
//! the future that waits.
//!
//! # Files
//! | file | what |
//! |---|---|
//! | `config.rs`, `error.rs`, `stats.rs` | bounds, failures, figures |
//! | `pool.rs` | the handles and the driver's side; the shell around the ledger |
//! | `ledger.rs`, `maintain.rs` | the decisions: leasing, opening and fairness; time and commands |
//! | `key_state.rs` | one key's idle resources and the path without the ledger, with the proof that it loses no wake-up |
//! | `waiters.rs`, `acquire.rs` | the queues, and the future that stands in one |
//! | `lease.rs`, `permit.rs` | the permits |
//! | `residents.rs` | [`residents`]: who of those that keep their state is there, and who goes when there is no room |
//! | `shares.rs` | [`shares`]: who may have how many connections to a server that tenants share |
//! | `turns.rs` | [`RoundRobin`], [`TurnOrder`]: whose turn it is among keys that share something |
//! | `sync.rs` | locks and atomics: the real ones or the model checker's |
#![forbid(unsafe_code)]

mod acquire;
mod config;
mod error;
mod key_state;
mod lease;
mod ledger;
mod maintain;
mod permit;
mod pool;
pub mod residents;
pub mod shares;
mod stats;
mod sync;
mod turns;
mod waiters;

pub use acquire::Acquire;
pub use config::{EvictionTier, KeyLimits, PoolConfig, STRIPES_DEFAULT, STRIPES_MAX};
pub use error::{AbandonedTicket, AcquireError, OpenError, ReachedLimit, RetireReason};
pub use lease::Lease;
pub use permit::{RetiredResource, Ticket};
pub use pool::{DriverEffect, KeyHandle, NextEffect, Pool};
pub use stats::{KeyCounters, KeyStats, PoolStats};
pub use turns::{RoundRobin, TurnEntry, TurnOrder};
