//! Dependencies that the components are created with.

use std::sync::Arc;

use node::clock::IdGenerator;
use node::current::CurrentSettings;

use super::books::ResidentLedger;
use super::cluster::ClusterPlace;
use super::directory::SessionDirectory;
use super::objects::SessionObjects;
use super::storage::StorageQuota;
use super::sweeps::timers::SweepTimers;
use crate::config::SessionsConfig;
use crate::events::EventWriter;
use crate::metrics::SessionCounters;
use crate::store::{SecretStore, SessionStore};
use crate::workspace::WorkspaceStore;

/// Parts that several components share.
pub(super) struct SharedParts {
    pub(super) config: CurrentSettings<SessionsConfig>,
    pub(super) store: SessionStore,
    pub(super) writer: EventWriter,
    pub(super) objects: SessionObjects,
    pub(super) secrets: SecretStore,
    pub(super) workspaces: WorkspaceStore,
    pub(super) ids: Arc<IdGenerator>,
    pub(super) metrics: Arc<SessionCounters>,
    pub(super) books: Arc<ResidentLedger>,
    pub(super) sweeps: Arc<SweepTimers>,
    pub(super) cluster: Arc<ClusterPlace>,
    pub(super) directory: Arc<SessionDirectory>,
    pub(super) storage: Arc<StorageQuota>,
}
