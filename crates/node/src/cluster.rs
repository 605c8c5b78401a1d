//! Servers that share a store, as the nodes of one cluster.
//!
//! Each node has a row in the store ([`NodeRegistry`]) with its address for other nodes, its
//! capacity and the time of its last renewal, by the store's clock. A server joins at its start,
//! renews its row while it runs, and reads the rows of all others at the same time
//! ([`NodeMembership`]).
//!
//! Servers connect to each other at a listener of its own, with TLS in which both sides prove that
//! they have the key of the cluster ([`ClusterKey`]). [`PeerListener`] serves there the routes of
//! the public listeners, and [`PeerForwarder`] sends requests to it that another server has to
//! answer.
//!
//! Limits over all nodes are divided between them by need ([`LimitShares`]). A service that uses
//! such a limit reports its use ([`SharedLimitUser`]), and receives its part
//! ([`follow_shared_limits`]). A small limit has its parts at few nodes ([`limit_homes`]), to which
//! the other nodes forward requests or carry connections of the callers under it ([`PeerStream`]).
//! Consumable amounts are kept in the store, and leased by nodes a part at a time
//! ([`AmountLedger`]).
//!
//! The files use each other, never this page, and point down: descriptions of nodes (`record`,
//! `identity`); rules without I/O (`placement`, `takeover`, `limit_homes`); the rows of all nodes
//! (`registry`) and the right of this node to act (`serving_lease`); its membership (`membership`);
//! shared limits (`limit_shares`, `limit_follower`, `amounts`), and connections between nodes
//! (`peer`).

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
