//! Servers that share a store, as the nodes of one cluster.
//!
//! Each has a row in the store ([`NodeRegistry`]) with where others reach it, what it has room for
//! and when it was seen last, by the store's clock. A server joins when it starts, renews its row
//! for as long as it runs, and reads those of all others at the same time ([`NodeMembership`]).
//!
//! Servers reach each other at a listener of its own, with TLS in which both sides prove that they
//! have the key of the cluster ([`ClusterKey`]); [`PeerListener`] serves there what the public
//! listeners serve, and [`PeerForwarder`] sends requests to it that another server has to answer.
//!
//! What is limited over all nodes is divided between them by need ([`LimitShares`]). A service that
//! uses something of that says what ([`SharedLimitUser`]), and is told its part
//! ([`follow_shared_limits`]). A limit that is small lives at few nodes ([`limit_homes`]), to which
//! the others pass the requests of those who are subject to it, or carry their connections
//! ([`PeerStream`]). Amounts that are used up are kept in the store, and leased by nodes a part at
//! a time ([`AmountLedger`]).

mod amounts;
mod identity;
pub mod join_token;
mod limit_follower;
mod limit_homes;
mod limit_shares;
mod membership;
mod peer;
pub mod placement;
mod registry;
mod serving_lease;
#[cfg(test)]
mod simulation;
pub mod takeover;

use std::time::Duration;

pub use self::amounts::{
    AmountAccount, AmountLedger, AmountRefusal, migrate_amounts, remove_amounts,
};
pub use self::identity::NodeIdentity;
pub use self::limit_follower::{SharedLimitUser, SharedLimitUses, follow_shared_limits};
pub use self::limit_homes::{LIMIT_PART_MIN, LimitHomes, is_limit_home, limit_homes};
pub use self::limit_shares::{LimitGrant, LimitScope, LimitShares, LimitUse};
pub use self::membership::{JoinError, LostNode, NodeDescription, NodeMembership};
pub use self::peer::{
    ClusterKey, ClusterKeyError, OfferedStream, PEER_LISTENER, PeerAnswer, PeerForwarder,
    PeerListener, PeerStream, PeerStreamError, RequestLocator, RequestSubject, SubjectMoved,
    SubjectOwner, WorkKind,
};
pub use self::registry::{
    DrainProgress, NodeLoad, NodeRecord, NodeRegistration, NodeRegistry, NodeRenewal, NodeState,
    find, is_alive, is_replaced,
};
pub use self::serving_lease::{LEASE_MARGIN, LeaseVerifier, ServingLease};
pub use self::takeover::NodeJudge;

/// Time for which a node that is not seen counts as alive, where its row does not say: what it owns
/// is not taken from it. Versions that do not say it assume this.
pub const NODE_LEASE: Duration = Duration::from_secs(30);

/// Longest interval at which a node says that it is there, where others read it: a fifth of its
/// lease, if that is shorter.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(1);

/// The same, in a store that it has for itself.
pub const RENEW_INTERVAL_ALONE: Duration = Duration::from_secs(5);
