//! Composition of the service: which owner of state gets which others.

use std::sync::{Arc, Weak};

use node::client::TlsRoots;
use node::clock::{self, IdGenerator};
use node::cluster::NodeMembership;
use node::current::CurrentSettings;
use node::fence::EffectFence;
use node::http::Shares;
use node::objects::ObjectStore;
use node::sealed::Sealer;
use parking_lot::Mutex;

use super::SessionsInner;
use super::admission::{SandboxAdmission, SandboxEviction};
use super::agents::{AgentParts, AgentService};
use super::archives::queue::ArchiveQueue;
use super::attachments::SessionAttachments;
use super::books::ResidentLedger;
use super::cluster::ClusterPlace;
use super::credentials::CredentialVault;
use super::directory::SessionDirectory;
use super::disk_archive::DiskArchive;
use super::documents::FaceDocuments;
use super::drain::SessionDrain;
use super::factory::SandboxFactory;
use super::gates::GrantGates;
use super::launch::{ModelAccess, ProgramLauncher};
use super::objects::SessionObjects;
use super::parts::SessionParts;
use super::prefetch::PrefetchQueue;
use super::prewarm::{PrewarmParts, PrewarmPool};
use super::shared::SharedParts;
use super::storage::StorageQuota;
use super::sweeps::timers::SweepTimers;
use super::templates::TemplateService;
use super::usage::UsageReports;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::events::EventWriter;
use crate::interpreter::LONG_FRAMES_MAX;
use crate::metrics::SessionCounters;
use crate::model::{ModelKey, ModelRelay, UsageTotals};
use crate::store::{SecretStore, SessionStore};
use crate::terminals::KEPT_IN_ALL_MAX;
use crate::workspace::WorkspaceStore;

/// Stores that are open, and figures that are registered.
pub(super) struct OpenedStores {
    pub(super) store: SessionStore,
    pub(super) workspaces: WorkspaceStore,
    pub(super) metrics: Arc<SessionCounters>,
    /// Model usage of all agents together.
    pub(super) model_use: Arc<UsageTotals>,
}

/// What the server gives for the parts that are shared.
struct GivenParts {
    config: SessionsConfig,
    objects: ObjectStore,
    sealer: Sealer,
    membership: NodeMembership,
}

impl SessionsInner {
    /// Makes the owners of state, each with those that it needs.
    ///
    /// # Errors
    /// When the settings of the model cannot be used.
    pub(super) fn compose(
        parts: SessionParts,
        opened: OpenedStores,
    ) -> Result<Arc<SessionsInner>, SessionError> {
        let model = ModelAccess {
            relay: model_relay(&parts.config, parts.fence)?,
            key: parts.model_key.as_deref().map(model_key).transpose()?,
            usage: Arc::clone(&opened.model_use),
            tracer: parts.tracer,
            claude: parts.claude,
        };
        let (writer, lost) = EventWriter::start(opened.store.clone());
        let SessionParts { config, objects, sealer, membership, .. } = parts;
        let given = GivenParts { config, objects, sealer, membership };
        let shared = SharedParts::new(given, opened, &writer)?;
        let credentials = CredentialVault::new(&shared);
        let gates = Arc::new(GrantGates::new(parts.gateway));
        let sandboxes = Arc::new(SandboxFactory::new(&shared, parts.engine));
        let launcher =
            ProgramLauncher::new(&shared, Arc::clone(&credentials), Arc::clone(&gates), model);
        Ok(Arc::new_cyclic(|own: &Weak<SessionsInner>| {
            let eviction: Weak<dyn SandboxEviction> = own.clone();
            let admission = Arc::new(SandboxAdmission::new(&shared, parts.tokens, eviction));
            let prewarm = PrewarmPool::new(
                &shared,
                PrewarmParts {
                    admission: Arc::clone(&admission),
                    sandboxes: Arc::clone(&sandboxes),
                    gates: Arc::clone(&gates),
                    launcher: Arc::clone(&launcher),
                    ready_nodes: parts.ready_nodes,
                },
            );
            let templates = TemplateService::new(
                &shared,
                Arc::clone(&admission),
                Arc::clone(&sandboxes),
                Arc::clone(&gates),
                parts.is_shared,
            );
            let agents = AgentService::new(
                &shared,
                AgentParts {
                    templates: Arc::clone(&templates),
                    admission: Arc::clone(&admission),
                    sandboxes: Arc::clone(&sandboxes),
                    gates: Arc::clone(&gates),
                    prewarm: Arc::clone(&prewarm),
                },
            );
            SessionsInner {
                verifier: Mutex::new(Some(shared.cluster.membership().serving().verify())),
                attachments: SessionAttachments::new(&shared),
                documents: FaceDocuments::new(shared.store.documents.clone()),
                usage: UsageReports::new(shared.store.usage.clone()),
                credentials,
                gates,
                sandboxes,
                launcher,
                admission,
                prewarm,
                writer,
                is_shared: parts.is_shared,
                drain: SessionDrain::new(parts.handover),
                prefetch: PrefetchQueue::new(&shared),
                disk_archive: DiskArchive::new(&shared),
                templates,
                agents,
                archives: ArchiveQueue::new(),
                long_frames: Shares::new(LONG_FRAMES_MAX, 1),
                terminal_places: Shares::new(KEPT_IN_ALL_MAX, 1),
                lost: Mutex::new(Some(lost)),
                config: shared.config,
                store: shared.store,
                objects: shared.objects,
                secrets: shared.secrets,
                workspaces: shared.workspaces,
                ids: shared.ids,
                metrics: shared.metrics,
                books: shared.books,
                sweeps: shared.sweeps,
                cluster: shared.cluster,
                directory: shared.directory,
                storage: shared.storage,
            }
        }))
    }
}

impl SharedParts {
    fn new(
        given: GivenParts,
        opened: OpenedStores,
        writer: &EventWriter,
    ) -> Result<SharedParts, SessionError> {
        let GivenParts { config, objects, sealer, membership } = given;
        let OpenedStores { store, workspaces, metrics, .. } = opened;
        let books = ResidentLedger::new(config.resident_max, config.capacity, clock::now());
        let (books, sweeps) = (Arc::new(books), Arc::new(SweepTimers::default()));
        let config = CurrentSettings::new(config);
        let cluster = ClusterPlace::new(config.clone(), membership);
        let directory = SessionDirectory::new(
            store.clone(),
            writer.clone(),
            Arc::clone(&cluster),
            Arc::clone(&books),
            Arc::clone(&sweeps),
        );
        let storage = StorageQuota::new(
            config.clone(),
            Arc::clone(&cluster),
            store.clone(),
            workspaces.clone(),
        );
        Ok(SharedParts {
            config,
            store,
            objects: SessionObjects::new(objects),
            secrets: SecretStore::new(sealer),
            workspaces,
            ids: Arc::new(IdGenerator::new().map_err(SessionError::internal)?),
            metrics,
            books,
            sweeps,
            cluster,
            directory,
            storage,
        })
    }
}

/// The relay to the model, where there is one.
fn model_relay(
    config: &SessionsConfig,
    fence: EffectFence,
) -> Result<Option<ModelRelay>, SessionError> {
    let Some(url) = &config.model.url else { return Ok(None) };
    let relay = ModelRelay::new(url, TlsRoots::Machine)
        .map_err(|what| SessionError::invalid("sessions.model.url", what))?;
    Ok(Some(relay.fenced_by(fence)))
}

fn model_key(key: &str) -> Result<ModelKey, SessionError> {
    ModelKey::new(key).ok_or_else(|| {
        SessionError::invalid("sessions.model.api_key", "has characters that no key has")
    })
}
