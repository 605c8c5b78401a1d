//! Servers that share a store, as the nodes of one cluster.
//!
//! Each has a row in the store ([`NodeRegistry`]) with where others reach it, what it has room for
//! and when it was seen last, by the store's clock. A server joins when it starts, renews its row
//! for as long as it runs, and reads those of all others at the same time ([`NodeMembership`]).
//!
//! Servers reach each other at a listener of its own, with TLS in which both sides prove that they
//! have the key of the cluster ([`ClusterKey`]); [`PeerListener`] serves there what the public
//! listeners serve, and [`PeerForwarder`] sends requests to it that another server has to answer.

mod identity;
pub mod join_token;
mod membership;
mod peer;
pub mod placement;
mod registry;

use std::time::Duration;

pub use self::identity::NodeIdentity;
pub use self::membership::{JoinError, NodeDescription, NodeMembership};
pub use self::peer::{
    ClusterKey, ClusterKeyError, PEER_LISTENER, PeerAnswer, PeerForwarder, PeerListener,
    RequestLocator, RequestSubject, SubjectOwner, WorkKind,
};
pub use self::registry::{
    NodeLoad, NodeRecord, NodeRegistration, NodeRegistry, NodeState, is_alive, is_replaced,
};

/// Time for which a node that is not seen counts as alive: what it owns is not taken from it.
pub const NODE_LEASE: Duration = Duration::from_secs(30);

/// Interval at which a node says that it is there, where others read it.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(1);

/// The same, in a store that it has for itself.
pub const RENEW_INTERVAL_ALONE: Duration = Duration::from_secs(5);
