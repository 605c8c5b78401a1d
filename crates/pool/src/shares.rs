//! Shares of server connections: bounds by server, tenant and user, fair between tenants by weight
//! and measured use.
//!
//! The pool of resources in this crate is one for everybody. This is for users that keep their
//! connections themselves, each thread its own, and share only the right to have them: a
//! [`SlotPermit`] is one slot of a server. It does no I/O, reads no clock and starts nothing; what
//! another thread is to hear of is put into its letter box, and [`ThreadWake`] is called.
//!
//! Turns of one slot each ([`RoundRobin`](crate::RoundRobin)) would not be fair here, because a
//! slot is held for as long as its user likes.
//!
//! # Terms
//! | term | meaning |
//! |---|---|
//! | server | what has slots, so many |
//! | tenant | has a part of a server's slots, by its weight; bounds of its own |
//! | key | what is interchangeable: a tenant's connections as one user |
//! | slot | the right to one connection; whoever has a [`SlotPermit`] has one |
//! | eligible | wanting slots, and below its own bound |
//! | in line | wanting a slot that only the server's bound denies |
//! | active | seen in the last [`ACTIVE_FOR`] |
//! | entitled | to a server's slots by the weights of the active tenants, at least one; never less than the tenant's minimum |
//! | virtual time | busy time divided by weight; whose is lowest is served first |
//!
//! # Invariants
//! - No bound is ever exceeded, also not while a slot goes from one to another: it is free in
//!   between. Only lowering a bound leaves more held than it allows; releases then give them up.
//! - Whoever is in line and below its entitlement is served before all others.
//! - An idle connection of who is not above its entitlement is not taken for one who is not below.
//! - No slot is free while somebody is in line.
//! - A release that nobody waits for takes no lock and allocates nothing.
//!
//! # Files
//! | file | what |
//! |---|---|
//! | `rules.rs` | entitlements, and who gives a slot to whom |
//! | `ledger.rs` | who holds and wants what: pure |
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
