//! Composition of the service: which component receives which others.

use std::sync::Arc;

use node::auth::TokenRegistry;
use node::client::TlsRoots;
use node::clock::{self, IdGenerator};
use node::cluster::NodeMembership;
use node::current::CurrentSettings;
use node::fair::FairScheduler;
use node::fence::EffectFence;
use node::gateway::GrantGateway;
use node::http::Shares;
use node::objects::ObjectStore;
use node::sealed::Sealer;
use parking_lot::Mutex;
use sandbox::Engine;

use super::admission::SandboxAdmission;
use super::agents::{AgentParts, AgentService};
use super::attachments::SessionAttachments;
use super::backup::SessionBackup;
use super::books::ResidentLedger;
use super::cluster::ClusterPlace;
use super::conversations::SessionConversations;
use super::create::{CreationParts, SessionCreation};
use super::credentials::CredentialVault;
use super::directory::SessionDirectory;
use super::disk_archive::DiskArchive;
use super::documents::FaceDocuments;
use super::drain::SessionHandover;
use super::exec::SessionCommands;
use super::factory::SandboxFactory;
use super::fork::SessionCopies;
use super::gates::GrantGates;
use super::grant_authority::GrantAuthority;
use super::grants::GrantReaders;
use super::launch::{ModelAccess, ProgramLauncher};
use super::lease_keeper::LeaseKeeper;
use super::lifecycle::{LifecycleParts, SessionLifecycle};
use super::objects::SessionObjects;
use super::parts::{ReadyNodes, SessionParts};
use super::prefetch::PrefetchQueue;
use super::prewarm::{PrewarmParts, PrewarmPool};
use super::queries::SessionQueries;
use super::recover::SessionRecovery;
use super::sessions::SessionsInner;
use super::shared::SharedParts;
use super::starts::StartLimiter;
use super::storage::StorageQuota;
use super::sweeps::SessionSweeper;
use super::sweeps::timers::SweepTimers;
use super::takeover::SessionTakeover;
use super::templates::TemplateService;
use super::terminals::SessionTerminals;
use super::usage::UsageReports;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::events::EventWriter;
use crate::interpreter::LONG_FRAMES_MAX;
use crate::metrics::SessionCounters;
use crate::model::{ModelKey, ModelRelay, REQUESTS_MAX, UsageTotals};
use crate::store::{SecretStore, SessionStore};
use crate::terminals::KEPT_IN_ALL_MAX;
use crate::workspace::WorkspaceStore;

/// Opened stores and registered metrics.
pub(super) struct OpenedStores {
    pub(super) store: SessionStore,
    pub(super) workspaces: WorkspaceStore,
    pub(super) metrics: Arc<SessionCounters>,
    /// Model usage of all agents together.
    pub(super) model_use: Arc<UsageTotals>,
}

/// Dependencies of the shared parts.
struct GivenParts {
    config: SessionsConfig,
    objects: ObjectStore,
    sealer: Sealer,
    membership: NodeMembership,
}

/// Components that the life cycle uses, and the life cycle.
struct LifeOwners {
    credentials: Arc<CredentialVault>,
    gates: Arc<GrantGates>,
    launcher: Arc<ProgramLauncher>,
    sandboxes: Arc<SandboxFactory>,
    admission: Arc<SandboxAdmission>,
    prewarm: Arc<PrewarmPool>,
    attachments: Arc<SessionAttachments>,
    disk_archive: Arc<DiskArchive>,
    lifecycle: Arc<SessionLifecycle>,
}

/// Dependencies of the components that the life cycle uses.
struct GivenOwners {
    model: ModelAccess,
    engine: Engine,
    gateway: Option<Arc<dyn GrantGateway>>,
    tokens: Option<TokenRegistry>,
    ready_nodes: Option<Arc<dyn ReadyNodes>>,
    is_shared: bool,
    has_own_objects: bool,
}

impl LifeOwners {
    fn new(shared: &SharedParts, given: GivenOwners) -> LifeOwners {
        let credentials = CredentialVault::new(shared);
        let gates = Arc::new(GrantGates::new(given.gateway));
        let starts = Arc::new(StartLimiter::new());
        let launcher = ProgramLauncher::new(
            shared,
            Arc::clone(&credentials),
            Arc::clone(&gates),
            given.model,
            Arc::clone(&starts),
        );
        let sandboxes = Arc::new(SandboxFactory::new(shared, given.engine, starts));
        let admission = Arc::new(SandboxAdmission::new(shared, given.tokens));
        let prewarm = PrewarmPool::new(
            shared,
            PrewarmParts {
                admission: Arc::clone(&admission),
                sandboxes: Arc::clone(&sandboxes),
                gates: Arc::clone(&gates),
                launcher: Arc::clone(&launcher),
                ready_nodes: given.ready_nodes,
            },
        );
        let keeps_stopped = given.has_own_objects && !given.is_shared;
        let disk_archive = DiskArchive::new(shared, keeps_stopped);
        let attachments = SessionAttachments::new(shared);
        let lifecycle = SessionLifecycle::new(
            shared,
            LifecycleParts {
                admission: Arc::clone(&admission),
                sandboxes: Arc::clone(&sandboxes),
                gates: Arc::clone(&gates),
                launcher: Arc::clone(&launcher),
                prewarm: Arc::clone(&prewarm),
                attachments: Arc::clone(&attachments),
                disk_archive: Arc::clone(&disk_archive),
                is_shared: given.is_shared,
            },
        );
        let eviction = Arc::downgrade(&lifecycle);
        admission.evict_by(eviction);
        LifeOwners {
            credentials,
            gates,
            launcher,
            sandboxes,
            admission,
            prewarm,
            attachments,
            disk_archive,
            lifecycle,
        }
    }

    fn templates(&self, shared: &SharedParts, is_shared: bool) -> Arc<TemplateService> {
        let (admission, sandboxes) = (Arc::clone(&self.admission), Arc::clone(&self.sandboxes));
        TemplateService::new(shared, admission, sandboxes, Arc::clone(&self.gates), is_shared)
    }

    fn agents(&self, shared: &SharedParts, templates: &Arc<TemplateService>) -> Arc<AgentService> {
        AgentService::new(
            shared,
            AgentParts {
                templates: Arc::clone(templates),
                admission: Arc::clone(&self.admission),
                sandboxes: Arc::clone(&self.sandboxes),
                gates: Arc::clone(&self.gates),
                prewarm: Arc::clone(&self.prewarm),
            },
        )
    }

    fn creation(
        &self,
        shared: &SharedParts,
        templates: &Arc<TemplateService>,
        agents: &Arc<AgentService>,
    ) -> Arc<SessionCreation> {
        SessionCreation::new(
            shared,
            CreationParts {
                lifecycle: Arc::clone(&self.lifecycle),
                prewarm: Arc::clone(&self.prewarm),
                admission: Arc::clone(&self.admission),
                sandboxes: Arc::clone(&self.sandboxes),
                gates: Arc::clone(&self.gates),
                launcher: Arc::clone(&self.launcher),
                agents: Arc::clone(agents),
                templates: Arc::clone(templates),
                credentials: Arc::clone(&self.credentials),
            },
        )
    }
}

impl SessionsInner {
    /// Creates the components, each with its dependencies.
    ///
    /// # Errors
    /// If the settings of the model are invalid.
    pub(super) fn compose(
        parts: SessionParts,
        opened: OpenedStores,
    ) -> Result<Arc<SessionsInner>, SessionError> {
        let SessionParts { config, objects, sealer, membership, handover, is_shared, .. } = parts;
        let model = ModelAccess {
            relay: model_relay(&config, parts.fence, parts.turns)?,
            key: parts.model_key.as_deref().map(model_key).transpose()?,
            usage: Arc::clone(&opened.model_use),
            tracer: parts.tracer,
            claude: parts.claude,
        };
        let (writer, lost) = EventWriter::start(opened.store.clone());
        let given = GivenParts { config, objects, sealer, membership };
        let shared = SharedParts::new(given, opened, writer)?;
        let given = GivenOwners {
            model,
            engine: parts.engine,
            gateway: parts.gateway,
            tokens: parts.tokens,
            ready_nodes: parts.ready_nodes,
            is_shared,
            has_own_objects: parts.has_own_objects,
        };
        let owners = LifeOwners::new(&shared, given);
        let templates = owners.templates(&shared, is_shared);
        let agents = owners.agents(&shared, &templates);
        let creation = owners.creation(&shared, &templates, &agents);
        let lifecycle = || Arc::clone(&owners.lifecycle);
        let copies = SessionCopies::new(
            &shared,
            lifecycle(),
            Arc::clone(&creation),
            owners.admission,
            owners.sandboxes,
            Arc::clone(&owners.launcher),
        );
        let disk_archive = || Arc::clone(&owners.disk_archive);
        let gates = || Arc::clone(&owners.gates);
        let launcher = Arc::clone(&owners.launcher);
        let commands = SessionCommands::new(&shared, lifecycle(), launcher, gates());
        Ok(Arc::new(SessionsInner {
            copies,
            conversations: SessionConversations::new(&shared, lifecycle()),
            terminals: SessionTerminals::new(&shared, lifecycle()),
            queries: SessionQueries::new(shared.store.clone(), Arc::clone(&shared.directory)),
            backup: SessionBackup::new(Arc::clone(&shared.cluster), Arc::clone(&shared.directory)),
            grant_authority: GrantAuthority::new(gates(), shared.store.agents.clone()),
            grants: GrantReaders::new(lifecycle(), gates(), Arc::clone(&commands)),
            commands,
            lease_keeper: LeaseKeeper::new(&shared, lifecycle()),
            takeover: SessionTakeover::new(&shared, lifecycle()),
            handover: SessionHandover::new(&shared, lifecycle(), disk_archive(), handover),
            recovery: SessionRecovery::new(&shared, Arc::clone(&templates)),
            sweeper: SessionSweeper::new(
                &shared,
                lifecycle(),
                Arc::clone(&templates),
                disk_archive(),
            ),
            prefetch: PrefetchQueue::new(&shared),
            documents: FaceDocuments::new(shared.store.documents.clone()),
            usage: UsageReports::new(shared.store.usage.clone()),
            disk_archive: disk_archive(),
            lifecycle: lifecycle(),
            creation,
            templates,
            agents,
            credentials: owners.credentials,
            gates: gates(),
            launcher: owners.launcher,
            prewarm: owners.prewarm,
            attachments: owners.attachments,
            is_shared,
            long_frames: Shares::new(LONG_FRAMES_MAX, 1),
            terminal_places: Shares::new(KEPT_IN_ALL_MAX, 1),
            lost: Mutex::new(Some(lost)),
            config: shared.config,
            store: shared.store,
            secrets: shared.secrets,
            writer: shared.writer,
            workspaces: shared.workspaces,
            ids: shared.ids,
            metrics: shared.metrics,
            books: shared.books,
            sweeps: shared.sweeps,
            cluster: shared.cluster,
            directory: shared.directory,
        }))
    }
}

impl SharedParts {
    fn new(
        given: GivenParts,
        opened: OpenedStores,
        writer: EventWriter,
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
            writer,
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

/// Creates the relay to the model, if one is configured.
fn model_relay(
    config: &SessionsConfig,
    fence: EffectFence,
    turns: FairScheduler,
) -> Result<Option<ModelRelay>, SessionError> {
    let Some(url) = &config.model.url else { return Ok(None) };
    let relay = ModelRelay::new(url, TlsRoots::Machine, turns, REQUESTS_MAX)
        .map_err(|what| SessionError::invalid("sessions.model.url", what))?;
    Ok(Some(relay.fenced_by(fence)))
}

fn model_key(key: &str) -> Result<ModelKey, SessionError> {
    ModelKey::new(key)
        .ok_or_else(|| SessionError::invalid("sessions.model.api_key", "has invalid characters"))
}
