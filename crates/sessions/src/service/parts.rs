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
    /// Engine that starts sandboxes.
    pub engine: Engine,
    /// Store of rows.
    pub store: SqlStore,
    /// Store of snapshots, folders and attachments.
    pub objects: ObjectStore,
    /// Sealer of secrets.
    pub sealer: Sealer,
    /// The server's data directory; disks and layers are in its `sessions` subdirectory.
    pub data_dir: PathBuf,
    /// Membership of this node, which is already registered.
    pub membership: NodeMembership,
    /// Allows requests to the model only while the node's lease holds.
    pub fence: EffectFence,
    /// Nodes that prepare sandboxes for agents; none if this node prepares its own.
    pub ready_nodes: Option<Arc<dyn ReadyNodes>>,
    /// Key of the model's endpoint, for sessions without a credential.
    pub model_key: Option<String>,
    /// Path of Claude's program in a sandbox.
    pub claude: Option<String>,
    /// True if other servers share the store: they find the files of sessions in the object store
    /// when this server stops.
    pub is_shared: bool,
    /// True if the object store is a local directory beside the disks of sessions, where a disk is
    /// no safer than in its own place.
    pub has_own_objects: bool,
    /// Terms on which sessions move to other servers while this one drains.
    pub handover: HandoverTerms,
    /// Gateway that serves the sockets of grants; none if the server has no gateway.
    pub gateway: Option<Arc<dyn GrantGateway>>,
    /// Tokens of the server: with several tenants, places are reserved for the others.
    pub tokens: Option<TokenRegistry>,
    /// Fair turns of tenants, which agents' requests to the model also take.
    pub turns: FairScheduler,
    /// Tracer of requests to the model; none if nothing is traced.
    pub tracer: Option<Tracer>,
}

/// Assignment of agents to the nodes that prepare sandboxes for them.
pub trait ReadyNodes: fmt::Debug + Send + Sync {
    /// Returns whether this node prepares sandboxes for an agent.
    fn is_ready_here(&self, agent: &str) -> bool;

    /// Returns all such nodes; a change means that assignments may have changed.
    fn all(&self) -> Vec<String>;
}

/// Terms on which sessions move to other servers while this one drains.
#[derive(Clone, Copy, Debug, Default)]
pub struct HandoverTerms {
    /// True if other servers reach the object store; otherwise files exist only on this server.
    pub has_shared_objects: bool,
    /// Time that terminals may continue during a drain.
    pub terminals: Duration,
}
