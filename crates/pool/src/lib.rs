//! Bounded, keyed, fair pools of any resource.
//!
//! One pool serves server connections (one key per tenant), sandboxes prepared ahead (leased once,
//! then discarded) and agent slots. The pool decides; a *driver*, written by the pool's user, opens
//! and closes resources and passes the time to the pool. The crate also has the tables and orders
//! that other components decide by: [`residents`], [`shares`] and, for keys that take plain turns,
//! [`RoundRobin`].
//!
//! This crate never reads a clock, never does I/O, never logs, starts no task, depends on no async
//! runtime, and does not interpret resources.
//!
//! # Terms
//! | term | meaning |
//! |---|---|
//! | resource | pooled value: any `R` |
//! | key | group that separates resources: any `K`, such as a tenant |
//! | [`Lease`] | exclusive use of a resource; returns it when dropped |
//! | [`Ticket`] | the driver's duty to open a resource |
//! | [`RetiredResource`] | a resource that the driver must close |
//! | ledger | counts and queues under one lock; decides all but uncontended leases and returns |
//! | gate | a flag that sends leases and returns to the ledger |
//! | to starve | to wait for room under the total bound, with room under the key's own |
//! | tick | the driver's call that lets time pass |
//!
//! # Invariants
//! - At no instant do more than [`KeyLimits::max`] resources of a key or [`PoolConfig::total_max`]
//!   in all exist, counting those that are being opened or closed. Leases, tickets and retired
//!   resources are permits: dropping one is the only way to end it, and that frees its place.
//!   (Exception, by name: [`Lease::into_inner`].)
//! - Within a key, acquirers are served in order of arrival, without exception.
//! - No key starves: a starving key gets idle resources of other keys at once and returned ones in
//!   turn.
//! - An idle resource and a waiter of the same key never coexist, unless the key is paused.
//! - A leased resource is never closed.
//! - Dropping a waiting future loses nothing: a resource granted to it passes to the next waiter.
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
//! // Two prepared ahead: the pool requests them at once.
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
//! // One was leased, so a replacement is being opened.
//! assert_eq!((tenant.stats().idle, tenant.stats().leased, tenant.stats().opening), (1, 1, 1));
//!
//! // Returns the resource; `lease.discard()` retires a single-use resource.
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
//! | file | content |
//! |---|---|
//! | `config.rs`, `error.rs`, `stats.rs` | bounds, failures, figures |
//! | `pool.rs` | the handles and the driver's side; the shell around the ledger |
//! | `ledger.rs`, `maintain.rs` | the decisions: leasing, opening and fairness; time and commands |
//! | `key_state.rs` | a key's idle resources; the path without the ledger, and its proof |
//! | `waiters.rs`, `acquire.rs` | the queues, and the future that waits in one |
//! | `lease.rs`, `permit.rs` | the permits |
//! | `residents.rs` | [`residents`]: stateful residents, and their eviction from a full table |
//! | `shares.rs` | [`shares`]: how many connections each tenant may have to a shared server |
//! | `turns.rs` | [`RoundRobin`], [`TurnOrder`]: turns of keys that share a resource |
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
