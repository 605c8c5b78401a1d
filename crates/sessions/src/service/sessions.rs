//! The service as its callers have it, and the owners that it is composed of.

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
    /// This machine has not what sessions need; what.
    Unavailable(Arc<str>),
}

/// Owners of the service's state.
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
    /// Places for long lines of contexts.
    pub(super) long_frames: Arc<Shares>,
    /// Places for terminals that outlive their clients.
    pub(super) terminal_places: Arc<Shares>,
    /// Sessions whose rows another server has written meanwhile.
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
    /// Begins: brings the tables up to date, and looks for what this server left behind. When this
    /// machine has not what sessions need, every operation says so; the server goes on without.
    ///
    /// # Errors
    /// If the store cannot be used, or the settings of disks do not fit each other.
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

    /// Puts other settings in force, for what begins from now on. Those that say how many
    /// sandboxes there are, and what is kept ready, have to be the same as before.
    ///
    /// # Errors
    /// `Invalid` when they cannot be; what held before goes on to hold.
    pub fn replace_config(&self, config: SessionsConfig) -> Result<(), SessionError> {
        limits::check_config(&config)?;
        if let Some(inner) = self.supported() {
            inner.config.replace(config);
        }
        Ok(())
    }

    /// Returns what there is where sessions cannot be: every operation answers why.
    pub fn unavailable(why: &str) -> Sessions {
        tracing::warn!(why, "sessions are not available");
        Sessions(ServerSupport::Unavailable(why.into()))
    }

    /// Why there are no sessions here, when there are none.
    pub fn why_unavailable(&self) -> Option<&str> {
        match &self.0 {
            ServerSupport::Ready(_) => None,
            ServerSupport::Unavailable(why) => Some(why),
        }
    }

    /// Returns the sessions of this server, also while its lease is over; none where it has none.
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

    /// Templates of tenants.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn templates(&self) -> Result<&Arc<TemplateService>, SessionError> {
        self.ready().map(|inner| &inner.templates)
    }

    /// Waits until a build of a template has more lines in its log than so many, or is over, or
    /// some time has passed.
    pub(crate) async fn template_log_grows(&self, build: &str, lines: u64) {
        if let Some(inner) = self.supported() {
            inner.templates.log_grows(build, lines).await;
        }
    }

    /// Memory and disk of a sandbox that asks for nothing else, in bytes.
    pub(crate) fn usual_sizes(&self) -> (u64, u64) {
        let config = self.supported().map(|inner| inner.config.now());
        config.map_or((0, 0), |config| (config.memory_bytes, config.disk_bytes))
    }

    /// Questions about sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn queries(&self) -> Result<&SessionQueries, SessionError> {
        self.ready().map(|inner| &inner.queries)
    }

    /// Rights to give grants.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn grant_authority(&self) -> Result<&GrantAuthority, SessionError> {
        self.ready().map(|inner| &inner.grant_authority)
    }

    /// Access of a backup, also while the lease of this server is over; none where it has no
    /// sessions.
    pub fn backup(&self) -> Option<&SessionBackup> {
        self.supported().map(|inner| &inner.backup)
    }

    /// Agents of tenants.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn agents(&self) -> Result<&Arc<AgentService>, SessionError> {
        self.ready().map(|inner| &inner.agents)
    }

    /// Conversations of sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn conversations(&self) -> Result<&SessionConversations, SessionError> {
        self.ready().map(|inner| &inner.conversations)
    }

    /// Copies of sessions: forks and snapshots.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn copies(&self) -> Result<&Arc<SessionCopies>, SessionError> {
        self.ready().map(|inner| &inner.copies)
    }

    /// Returns how far the drain of this server is; none while it takes work, and before it has
    /// looked for its sessions.
    #[must_use]
    pub fn drain_progress(&self) -> Option<DrainProgress> {
        match self.supported() {
            Some(inner) => inner.handover.progress(),
            None => Some(DrainProgress::default()),
        }
    }

    /// Credentials of tenants.
    ///
    /// # Errors
    /// If there are no sessions here, or the lease of this server is over.
    pub fn credentials(&self) -> Result<&CredentialVault, SessionError> {
        self.ready().map(|inner| &*inner.credentials)
    }

    /// Attachments of sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn attachments(&self) -> Result<&SessionAttachments, SessionError> {
        self.ready().map(|inner| &*inner.attachments)
    }

    /// Documents of faces.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn documents(&self) -> Result<&FaceDocuments, SessionError> {
        self.ready().map(|inner| &inner.documents)
    }

    /// Usage of turns.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn usage(&self) -> Result<&UsageReports, SessionError> {
        self.ready().map(|inner| &inner.usage)
    }

    /// Commands that callers run in sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn commands(&self) -> Result<&SessionCommands, SessionError> {
        self.ready().map(|inner| &*inner.commands)
    }

    /// Terminals of sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub(crate) fn terminals(&self) -> Result<&SessionTerminals, SessionError> {
        self.ready().map(|inner| &inner.terminals)
    }

    /// Readers of what is behind grants of sessions.
    ///
    /// # Errors
    /// See [`Sessions::credentials`].
    pub fn grants(&self) -> Result<&GrantReaders, SessionError> {
        self.ready().map(|inner| &inner.grants)
    }

    /// Returns what was counted; none where there are no sessions here.
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

    /// Begins to answer for a session, or for none. None where nobody can take anything over.
    ///
    /// # Errors
    /// If the lease of this server is over.
    pub(crate) fn fence(
        &self,
        session: Option<&str>,
    ) -> Result<Option<SessionFence>, SessionError> {
        let Some(inner) = self.supported() else { return Ok(None) };
        inner.cluster.check_lease()?;
        Ok(SessionFence::new(&inner.cluster, &inner.directory, session))
    }

    /// The feed of sessions that this server creates, changes or ends; none where it has no
    /// sessions.
    pub fn changes(&self) -> Option<&RecordFeed> {
        match &self.0 {
            ServerSupport::Ready(inner) => Some(inner.books.changes()),
            ServerSupport::Unavailable(_) => None,
        }
    }

    /// Figures of sandboxes for a caller: those of the whole server for an operator, else of the
    /// own tenant, without what was counted for all tenants together.
    pub fn counts_for(&self, who: &TokenPrincipal) -> SandboxCounts {
        match &self.0 {
            ServerSupport::Ready(inner) if who.operator => inner.counts(),
            ServerSupport::Ready(_) | ServerSupport::Unavailable(_) => self.counts_of(&who.tenant),
        }
    }

    /// Returns how many sandboxes a tenant has here.
    pub(crate) fn counts_of(&self, tenant: &str) -> SandboxCounts {
        match &self.0 {
            ServerSupport::Ready(inner) => counted(inner.books.stats_of(tenant)),
            ServerSupport::Unavailable(_) => SandboxCounts::default(),
        }
    }

    /// Has figures of all nodes shown.
    pub fn join(&self, nodes: PeerForwarder) {
        if let ServerSupport::Ready(inner) = &self.0 {
            inner.cluster.join(nodes);
        }
    }

    /// Other nodes, where they are reached.
    pub(crate) fn other_nodes(&self) -> Option<&OtherNodes> {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.cluster.nodes(),
            ServerSupport::Unavailable(_) => None,
        }
    }

    /// Takes note of files that another node has stored.
    pub(crate) fn note_stored(&self, manifest: String) {
        if let Ok(inner) = self.ready() {
            inner.prefetch.note_stored(manifest);
        }
    }

    /// Takes note of layers that files of other nodes' sessions stand on.
    pub(crate) fn note_layers<'a>(&self, layers: impl Iterator<Item = &'a str>) {
        if let Ok(inner) = self.ready() {
            layers.for_each(|layer| inner.prefetch.note_layer(layer.to_owned()));
        }
    }

    /// Returns how many sandboxes there are.
    pub fn counts(&self) -> SandboxCounts {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.counts(),
            ServerSupport::Unavailable(_) => SandboxCounts::default(),
        }
    }

    /// Time by the store's clock, in milliseconds since 1970; by this machine's when there are no
    /// sessions here.
    pub(crate) fn now_ms(&self) -> u64 {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.store.now_ms(),
            ServerSupport::Unavailable(_) => clock::wall_ms(),
        }
    }

    /// Most sandboxes that live at one time.
    pub fn resident_max(&self) -> usize {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.config.now().resident_max,
            ServerSupport::Unavailable(_) => 0,
        }
    }

    /// Returns whether this server works with a session, whosever it is.
    pub(crate) fn has_here(&self, id: &str) -> bool {
        match &self.0 {
            ServerSupport::Ready(inner) => inner.directory.known(id).is_some(),
            ServerSupport::Unavailable(_) => false,
        }
    }

    /// Name of this server among those that share the store.
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
