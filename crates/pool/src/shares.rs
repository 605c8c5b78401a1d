//! Shares of server connections: bounds by server, tenant and user, fair between tenants by weight
//! and measured use.
//!
//! The other pool of this crate has one set of resources for all threads. This module is for users
//! that keep their connections themselves, each thread its own, and share only the right to have
//! them: a [`SlotPermit`] is one slot of a server. It does no I/O, reads no clock and starts no
//! task; messages to other threads are put into their letter boxes, and [`ThreadWake`] is called.
//!
//! Turns of one slot each ([`RoundRobin`](crate::RoundRobin)) would not be fair here, because a
//! slot is held for as long as its user likes.
//!
//! # Terms
//! | term | meaning |
//! |---|---|
//! | server | owner of a fixed number of slots |
//! | tenant | client of a server: has a part of its slots by weight, and bounds of its own |
//! | key | a tenant's connections as one user, which are interchangeable |
//! | slot | the right to one connection; a [`SlotPermit`] is one |
//! | eligible | wanting slots, and below its own bound |
//! | in line | wanting a slot that only the server's bound denies |
//! | active | seen in the last [`ACTIVE_FOR`] |
//! | entitled | to a part of the slots by active weight: at least one and the tenant's minimum |
//! | virtual time | busy time divided by weight; the lowest is served first |
//!
//! # Invariants
//! - No bound is ever exceeded, also not while a slot passes from one holder to another: it is free
//!   in between. Only after a bound is lowered are more slots held than it allows; releases then
//!   give them up.
//! - A tenant that is in line and below its entitlement is served before all others.
//! - An idle connection of a tenant that is not above its entitlement is not taken for one that is
//!   not below its own.
//! - No slot is free while a tenant is in line.
//! - A release that no tenant waits for takes no lock and allocates nothing.
//!
//! # Files
//! | file | content |
//! |---|---|
//! | `rules.rs` | entitlements, and which tenant gives a slot to which |
//! | `ledger.rs` | slots that are held and wanted: pure |
//! | `handles.rs` | the handles, permits and letter boxes: the shell around the ledger |

mod handles;
mod ledger;
mod rules;

pub use handles::{
    ConnectionShares, ReleaseOutcome, ServerHandle, SlotPermit, TenantHandle, ThreadHandle,
    ThreadLetter, ThreadWake, UserHandle,
};
pub use ledger::{
    ACTIVE_FOR, DeniedBound, FinishedVerdict, GRANT_COST_US, KeyId, QuotaEffect, QuotaLedger,
    SharedServerId, SharedTenantId, TenantQuota, VICTIMS_LOOKED_AT_MAX,
};
pub use rules::{ROTATE_BUSY_US, SIBLING_PATIENCE};
