//! Dependencies of the service, which the server provides.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use node::auth::TokenRegistry;
use node::cluster::NodeMembership;
use node::fair::FairScheduler;
use node::fence::EffectFence;
use node::gateway::GrantGateway;
use node::objects::ObjectStore;
use node::sealed::Sealer;
use node::store::SqlStore;
use node::traces::Tracer;
use sandbox::Engine;

use crate::config::SessionsConfig;

/// Dependencies of the service.
#[derive(Debug)]
pub struct SessionParts {
    /// The `[sessions]` table.
    pub config: SessionsConfig,
    /// Engine that makes sandboxes.
    pub engine: Engine,
    /// Store of rows.
    pub store: SqlStore,
    /// Store of snapshots, folders and attachments.
    pub objects: ObjectStore,
    /// Sealer of secrets.
    pub sealer: Sealer,
    /// The server's directory; disks and layers are in `sessions` there.
    pub data_dir: PathBuf,
    /// Place of this node among those of its store, in which it has registered already.
    pub membership: NodeMembership,
    /// Lets requests to the model go outside while the node's lease holds.
    pub fence: EffectFence,
    /// Nodes that keep sandboxes ready for agents: none where this one does it for itself.
    pub ready_nodes: Option<Arc<dyn ReadyNodes>>,
    /// Key of the model's endpoint, for sessions without a credential.
    pub model_key: Option<String>,
    /// Path of Claude's program in a sandbox.
    pub claude: Option<String>,
    /// True if other servers have the same store: then they find everything in the object store
    /// that this one has had when it stops.
    pub is_shared: bool,
    /// True if the object store is a directory of this server's own, beside the disks of its
    /// sessions: a disk is no safer there than where it is.
    pub has_own_objects: bool,
    /// Terms on which sessions go to other servers while this one drains.
    pub handover: HandoverTerms,
    /// Gateway that serves the sockets of grants; without it nothing can be granted.
    pub gateway: Option<Arc<dyn GrantGateway>>,
    /// Tokens of the server: places are kept for other tenants where there are others.
    pub tokens: Option<TokenRegistry>,
    /// Turns of tenants, which requests of agents to the model take as well.
    pub turns: FairScheduler,
    /// Makes spans of requests to the model; none where nothing is traced.
    pub tracer: Option<Tracer>,
}

/// Knows which nodes keep sandboxes ready for an agent.
pub trait ReadyNodes: fmt::Debug + Send + Sync {
    /// Returns whether this one does.
    fn is_ready_here(&self, agent: &str) -> bool;

    /// Returns all that there are: when they are others it is asked again.
    fn all(&self) -> Vec<String>;
}

/// Terms on which sessions go to other servers while this one drains.
#[derive(Clone, Copy, Debug, Default)]
pub struct HandoverTerms {
    /// True if other servers reach the object store: else their files are on this one alone.
    pub has_shared_objects: bool,
    /// Time that terminals may go on for.
    pub terminals: Duration,
}
