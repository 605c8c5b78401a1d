//! The service for callers, and the components that it consists of.

use std::fmt;
use std::sync::Arc;

use api::{SandboxCounts, SessionLimits};
use node::auth::TokenPrincipal;
use node::changes::RecordFeed;
use node::clock::{self, IdGenerator};
use node::cluster::{DrainProgress, PeerForwarder};
use node::current::CurrentSettings;
use node::http::Shares;
use node::task::Boxed;
use node::telemetry::Registry;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::activity::SessionActivity;
use super::agents::AgentService;
use super::attachments::SessionAttachments;
use super::backup::SessionBackup;
use super::books::ResidentLedger;
use super::cluster::ClusterPlace;
use super::compose::OpenedStores;
use super::conversations::SessionConversations;
use super::create::SessionCreation;
use super::credentials::CredentialVault;
use super::directory::SessionDirectory;
use super::disk_archive::DiskArchive;
use super::documents::FaceDocuments;
use super::drain::SessionHandover;
use super::exec::SessionCommands;
use super::fence::SessionFence;
use super::fork::SessionCopies;
use super::gates::GrantGates;
use super::grant_authority::GrantAuthority;
use super::grants::GrantReaders;
use super::launch::ProgramLauncher;
use super::lease_keeper::LeaseKeeper;
use super::lifecycle::SessionLifecycle;
use super::limits;
use super::parts::SessionParts;
use super::prefetch::PrefetchQueue;
use super::prewarm::PrewarmPool;
use super::queries::SessionQueries;
use super::recover::SessionRecovery;
use super::sweeps::SessionSweeper;
use super::sweeps::timers::SweepTimers;
use super::takeover::SessionTakeover;
use super::templates::TemplateService;
use super::terminals::SessionTerminals;
use super::usage::UsageReports;
use super::views::counted;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::events::{EventWriter, LostSession};
use crate::metrics::{ModelUse, SandboxGauges, SessionCounters};
use crate::model::UsageTotals;
use crate::other_nodes::OtherNodes;
use crate::store::{SecretStore, SessionStore};
use crate::workspace::WorkspaceStore;

/// Agents and sessions. Cheap to clone.
#[derive(Clone)]
pub struct Sessions(ServerSupport);

/// Capabilities of this server.
#[derive(Clone)]
enum ServerSupport {
    Ready(Arc<SessionsInner>),
    /// This machine does not meet the requirements of sessions; the reason.
    Unavailable(Arc<str>),
}

/// Components with the service's state.
pub(super) struct SessionsInner {
    pub(super) config: CurrentSettings<SessionsConfig>,
    pub(super) store: SessionStore,
    pub(super) secrets: SecretStore,
    pub(super) writer: EventWriter,
    pub(super) workspaces: WorkspaceStore,
    pub(super) ids: Arc<IdGenerator>,
    pub(super) metrics: Arc<SessionCounters>,
    pub(super) books: Arc<ResidentLedger>,
    pub(super) sweeps: Arc<SweepTimers>,
    pub(super) cluster: Arc<ClusterPlace>,
    pub(super) directory: Arc<SessionDirectory>,
    pub(super) gates: Arc<GrantGates>,
    pub(super) launcher: Arc<ProgramLauncher>,
    pub(super) lifecycle: Arc<SessionLifecycle>,
    pub(super) creation: Arc<SessionCreation>,
    pub(super) copies: Arc<SessionCopies>,
    pub(super) conversations: SessionConversations,
    pub(super) commands: Arc<SessionCommands>,
    pub(super) terminals: SessionTerminals,
    pub(super) grants: GrantReaders,
    pub(super) grant_authority: GrantAuthority,
    pub(super) queries: SessionQueries,
    pub(super) backup: SessionBackup,
    pub(super) templates: Arc<TemplateService>,
    pub(super) agents: Arc<AgentService>,
    pub(super) credentials: Arc<CredentialVault>,
    pub(super) attachments: Arc<SessionAttachments>,
    pub(super) documents: FaceDocuments,
    pub(super) usage: UsageReports,
    pub(super) prewarm: Arc<PrewarmPool>,
    pub(super) prefetch: PrefetchQueue,
    pub(super) disk_archive: Arc<DiskArchive>,
    pub(super) lease_keeper: Arc<LeaseKeeper>,
    pub(super) takeover: Arc<SessionTakeover>,
    pub(super) handover: Arc<SessionHandover>,
    pub(super) recovery: Arc<SessionRecovery>,
    pub(super) sweeper: Arc<SessionSweeper>,
    pub(super) is_shared: bool,
    /// Memory places for long lines of contexts.
    pub(super) long_frames: Arc<Shares>,
    /// Places for terminals that outlive their clients.
    pub(super) terminal_places: Arc<Shares>,
    /// Receiver of sessions that this server has lost.
    pub(super) lost: Mutex<Option<mpsc::UnboundedReceiver<LostSession>>>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

impl fmt::Debug for SessionsInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionsInner")
    }
}

impl Sessions {
    /// Starts the service: migrates the tables, and recovers the state of an earlier run. If this
    /// machine does not meet the requirements of sessions, the server runs without them and every
    /// operation returns the reason.
    ///
    /// # Errors
    /// If the store cannot be used, or the disk settings are inconsistent.
    pub fn start<'a>(
        parts: SessionParts,
        registry: &'a mut Registry,
    ) -> Boxed<'a, Result<Sessions, SessionError>> {
        Box::pin(async move {
            let metrics = Arc::new(SessionCounters::new(registry));
            limits::check_config(&parts.config)?;
            let store = SessionStore::open(parts.store.clone()).await?;
            let opened = {
                let (data_dir, ready) = (parts.data_dir.clone(), parts.config.ready);
                let ready_size = limits::disk_size(&parts.config, &SessionLimits::default());
                let (objects, restores) = (parts.objects.clone(), metrics.restores.clone());
                let open =
                    move || WorkspaceStore::open(&data_dir, objects, ready_size, ready, restores);
                node::task::blocking(open).await.map_err(SessionError::internal)?
            };
            let workspaces = match opened {
                Ok(workspaces) => workspaces,
                Err(error) => {
                    return Ok(Sessions::unavailable(&node::telemetry::error_chain(&error)));
                }
            };
            let model_use = Arc::new(UsageTotals::default());
            let opened =
                OpenedStores { store, workspaces, metrics, model_use: Arc::clone(&model_use) };
            let inner = SessionsInner::compose(parts, opened)?;
            registry.register_collector(Box::new(ModelUse::of_agents(model_use)));
            let resident_max = inner.config.now().resident_max;
            inner.recovery.recover().await?;
            let counted = Arc::downgrade(&inner);
            let counts = move || counted.upgrade().map_or_else(Default::default, |it| it.counts());
            registry.register_collector(Box::new(SandboxGauges { counts, resident_max }));
            Ok(Sessions(ServerSupport::Ready(inner)))
        })
    }

    /// Applies new settings to future operations. Settings that determine the number of sandboxes
    /// and prepared resources must not change.
    ///
    /// # Errors
    /// `Invalid` if they are inconsistent; the previous settings stay in force.
    pub fn replace_config(&self, config: SessionsConfig) -> Result<(), SessionError> {
        limits::check_config(&config)?;
        if let Some(inner) = self.supported() {
            inner.config.replace(config);
        }
        Ok(())
    }

    /// Creates a service that answers every operation with the reason why sessions are unavailable.
    pub fn unavailable(why: &str) -> Sessions {
        tracing::warn!(why, "sessions are not available");
        Sessions(ServerSupport::Unavailable(why.into()))
    }

    /// Returns why sessions are unavailable; none if they are available.
    pub fn why_unavailable(&self) -> Option<&str> {
        match &self.0 {
            ServerSupport::Ready(_) => None,
            ServerSupport::Unavailable(why) => Some(why),
        }
    }

    /// Returns this server's sessions, even while its lease is over; none if sessions are
    /// unavailable.
    pub(super) fn supported(&self) -> Option<&Arc<SessionsInner>> {
        match &self.0 {
            ServerSupport::Ready(inner) => Some(inner),
            ServerSupport::Unavailable(_) => None,
        }
    }

    pub(super) fn ready(&self) -> Result<&Arc<SessionsInner>, SessionError> {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.cluster.check_lease().map(|()| inner),
            ServerSupport::Unavailable(why) => Err(SessionError::NotHere(why.to_string())),
        }
    }

    /// Returns the templates of tenants.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn templates(&self) -> Result<&Arc<TemplateService>, SessionError> {
        self.ready().map(|inner| &inner.templates)
    }

    /// Waits until the log of a template's build has more than `lines` lines, the build has ended,
    /// or some time has passed.
    pub(crate) async fn template_log_grows(&self, build: &str, lines: u64) {
        if let Some(inner) = self.supported() {
            inner.templates.log_grows(build, lines).await;
        }
    }

    /// Returns the default memory and disk of a sandbox, in bytes.
    pub(crate) fn usual_sizes(&self) -> (u64, u64) {
        let config = self.supported().map(|inner| inner.config.now());
        config.map_or((0, 0), |config| (config.memory_bytes, config.disk_bytes))
    }

    /// Returns queries about sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn queries(&self) -> Result<&SessionQueries, SessionError> {
        self.ready().map(|inner| &inner.queries)
    }

    /// Returns the checks of who may give grants.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn grant_authority(&self) -> Result<&GrantAuthority, SessionError> {
        self.ready().map(|inner| &inner.grant_authority)
    }

    /// Returns access for backups, even while this server's lease is over; none if sessions are
    /// unavailable.
    pub fn backup(&self) -> Option<&SessionBackup> {
        self.supported().map(|inner| &inner.backup)
    }

    /// Returns the agents of tenants.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn agents(&self) -> Result<&Arc<AgentService>, SessionError> {
        self.ready().map(|inner| &inner.agents)
    }

    /// Returns the conversations of sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn conversations(&self) -> Result<&SessionConversations, SessionError> {
        self.ready().map(|inner| &inner.conversations)
    }

    /// Returns copies of sessions: forks and snapshots.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn copies(&self) -> Result<&Arc<SessionCopies>, SessionError> {
        self.ready().map(|inner| &inner.copies)
    }

    /// Returns the progress of this server's drain; none while it accepts work, and before the
    /// first round.
    #[must_use]
    pub fn drain_progress(&self) -> Option<DrainProgress> {
        match self.supported() {
            Some(inner) => inner.handover.progress(),
            None => Some(DrainProgress::default()),
        }
    }

    /// Returns the credentials of tenants.
    ///
    /// # Errors
    /// If sessions are unavailable, or this server's lease is over.
    pub fn credentials(&self) -> Result<&CredentialVault, SessionError> {
        self.ready().map(|inner| &*inner.credentials)
    }

    /// Returns the attachments of sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn attachments(&self) -> Result<&SessionAttachments, SessionError> {
        self.ready().map(|inner| &*inner.attachments)
    }

    /// Returns the documents of faces.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn documents(&self) -> Result<&FaceDocuments, SessionError> {
        self.ready().map(|inner| &inner.documents)
    }

    /// Returns the usage of turns.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn usage(&self) -> Result<&UsageReports, SessionError> {
        self.ready().map(|inner| &inner.usage)
    }

    /// Returns the commands that callers run in sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn commands(&self) -> Result<&SessionCommands, SessionError> {
        self.ready().map(|inner| &*inner.commands)
    }

    /// Returns the terminals of sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub(crate) fn terminals(&self) -> Result<&SessionTerminals, SessionError> {
        self.ready().map(|inner| &inner.terminals)
    }

    /// Returns the readers of resources behind grants of sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn grants(&self) -> Result<&GrantReaders, SessionError> {
        self.ready().map(|inner| &inner.grants)
    }

    /// Returns the counters; none if sessions are unavailable.
    #[must_use]
    pub fn activity(&self) -> Option<SessionActivity> {
        let inner = self.supported()?;
        let counts = inner.counts();
        let (messages, commands) = inner.metrics.messages_and_commands();
        let tenants = inner.books.sandboxes_by_tenant().into_iter();
        Some(SessionActivity {
            sandboxes: counts.warm + counts.running + counts.waiting,
            at_work: counts.running,
            messages,
            commands,
            tenants: tenants.map(|(name, (all, at_work))| (name, all, at_work)).collect(),
        })
    }

    /// Creates a fence for an answer about a session, or about none. Returns `None` if no other
    /// server could take a session over.
    ///
    /// # Errors
    /// If this server's lease is over.
    pub(crate) fn fence(
        &self,
        session: Option<&str>,
    ) -> Result<Option<SessionFence>, SessionError> {
        let Some(inner) = self.supported() else { return Ok(None) };
        inner.cluster.check_lease()?;
        Ok(SessionFence::new(&inner.cluster, &inner.directory, session))
    }

    /// Returns the feed of sessions that this server creates, changes or ends; none if sessions are
    /// unavailable.
    pub fn changes(&self) -> Option<&RecordFeed> {
        match &self.0 {
            ServerSupport::Ready(inner) => Some(inner.books.changes()),
            ServerSupport::Unavailable(_) => None,
        }
    }

    /// Returns the sandbox counts for a caller: of the whole server for an operator, otherwise of
    /// the caller's tenant, without counters that are shared by all tenants.
    pub fn counts_for(&self, who: &TokenPrincipal) -> SandboxCounts {
        match &self.0 {
            ServerSupport::Ready(inner) if who.operator => inner.counts(),
            ServerSupport::Ready(_) | ServerSupport::Unavailable(_) => self.counts_of(&who.tenant),
        }
    }

    /// Returns the counts of a tenant's sandboxes on this server.
    pub(crate) fn counts_of(&self, tenant: &str) -> SandboxCounts {
        match &self.0 {
            ServerSupport::Ready(inner) => counted(inner.books.stats_of(tenant)),
            ServerSupport::Unavailable(_) => SandboxCounts::default(),
        }
    }

    /// Enables figures of all nodes.
    pub fn join(&self, nodes: PeerForwarder) {
        if let ServerSupport::Ready(inner) = &self.0 {
            inner.cluster.join(nodes);
        }
    }

    /// Returns the other nodes, if they are reachable.
    pub(crate) fn other_nodes(&self) -> Option<&OtherNodes> {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.cluster.nodes(),
            ServerSupport::Unavailable(_) => None,
        }
    }

    /// Schedules prefetching of files that another node has stored.
    pub(crate) fn note_stored(&self, manifest: String) {
        if let Ok(inner) = self.ready() {
            inner.prefetch.note_stored(manifest);
        }
    }

    /// Schedules prefetching of layers of other nodes' sessions.
    pub(crate) fn note_layers<'a>(&self, layers: impl Iterator<Item = &'a str>) {
        if let Ok(inner) = self.ready() {
            layers.for_each(|layer| inner.prefetch.note_layer(layer.to_owned()));
        }
    }

    /// Returns the counts of sandboxes.
    pub fn counts(&self) -> SandboxCounts {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.counts(),
            ServerSupport::Unavailable(_) => SandboxCounts::default(),
        }
    }

    /// Returns the time by the store's clock, in milliseconds since 1970; by this machine's clock
    /// if sessions are unavailable.
    pub(crate) fn now_ms(&self) -> u64 {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.store.now_ms(),
            ServerSupport::Unavailable(_) => clock::wall_ms(),
        }
    }

    /// Returns the maximum number of live sandboxes.
    pub fn resident_max(&self) -> usize {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.config.now().resident_max,
            ServerSupport::Unavailable(_) => 0,
        }
    }

    /// Returns whether a session, of any tenant, is in use on this server.
    pub(crate) fn has_here(&self, id: &str) -> bool {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.directory.known(id).is_some(),
            ServerSupport::Unavailable(_) => false,
        }
    }

    /// Returns the id of this server among those that share the store.
    pub fn server(&self) -> &str {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.cluster.server(),
            ServerSupport::Unavailable(_) => "",
        }
    }
}

impl SessionsInner {
    pub(super) fn counts(&self) -> SandboxCounts {
        let mut counts = counted(self.books.stats());
        self.metrics.fill(&mut counts);
        counts
    }
}
