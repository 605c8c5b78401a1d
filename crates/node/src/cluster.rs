//! Servers that share a store, as the nodes of one cluster.
//!
//! Each has a row in the store ([`NodeRegistry`]) with its address for other nodes, its capacity
//! and the time of its last renewal, by the store's clock. A server joins at its start, renews its
//! row for as long as it runs, and reads those of all others at the same time ([`NodeMembership`]).
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
//!
//! The files use each other, never this page, and point down: descriptions of nodes (`record`,
//! `identity`); rules without I/O (`placement`, `takeover`, `limit_homes`); the rows of all
//! (`registry`) and the right of this node to act (`serving_lease`); its place among them
//! (`membership`); what they share (`limit_shares`, `limit_follower`, `amounts`), and the ways
//! between them (`peer`).

mod amounts;
mod identity;
pub mod join_token;
mod limit_follower;
mod limit_homes;
mod limit_shares;
mod membership;
mod peer;
pub mod placement;
mod record;
mod registry;
mod serving_lease;
#[cfg(test)]
mod simulation;
pub mod takeover;

pub use self::amounts::{
    AmountAccount, AmountLedger, AmountRefusal, migrate_amounts, remove_amounts,
};
pub use self::identity::NodeIdentity;
pub use self::limit_follower::{SharedLimitUser, SharedLimitUses, follow_shared_limits};
pub use self::limit_homes::{LIMIT_PART_MIN, LimitHomes, is_limit_home, limit_homes};
pub use self::limit_shares::{LimitGrant, LimitScope, LimitShares, LimitUse};
pub use self::membership::{
    JoinError, LostNode, NodeMembership, RENEW_INTERVAL, RENEW_INTERVAL_ALONE,
};
pub use self::peer::{
    ClusterKey, ClusterKeyError, OfferedStream, PEER_LISTENER, PeerAnswer, PeerForwarder,
    PeerListener, PeerStream, PeerStreamError, RequestLocator, RequestSubject, SubjectMoved,
    SubjectOwner,
};
pub use self::placement::WorkKind;
pub use self::record::{
    DrainProgress, NODE_LEASE, NodeDescription, NodeLoad, NodeRecord, NodeState,
};
pub use self::registry::{
    NodeRegistration, NodeRegistry, NodeRenewal, find, is_alive, is_replaced,
};
pub use self::serving_lease::{LEASE_MARGIN, LeaseVerifier, ServingLease};
pub use self::takeover::NodeJudge;
