//! Maintenance of tables in the background: expired snapshots, and metadata files that are no
//! longer referenced.
//!
//! A job belongs to this server and ends with it: completed steps are stored, and another job does
//! the rest. A dry run takes the same path up to the first change.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::stream::{self, StreamExt as _};
use iceberg::doc::TableDoc;
use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use iceberg::plan::list_of;
use iceberg::update::{self, TableUpdate};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::commit::RETRIES_MAX;
use super::commit::{CommitStep, table};
use super::documents;
use super::entries::RelationEntries;
use super::expiry::{ExpiryPlan, expiry};
use super::job_registry::{JobReport, JobState, MaintenanceJob, MaintenanceJobs};
use super::keys::ChangeRunner;
use super::plans::{PlanTarget, ScanPlanner};
use super::relations::RelationService;
use super::rights::RightGuard;
use crate::cache::CachedVersion;
use crate::database::DatabaseClock;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, CatalogPrincipal, ChangeCall, RightTarget};
use crate::store::{
    CatalogStore, ChangeContext, JobStore, LocationStore, NamespaceStore, PastStore, RelationKind,
    RelationStore,
};
use crate::warehouse::{TableLocation, Warehouse};

/// Most tables in one request.
pub const JOB_TABLES_MAX: usize = 1000;
/// Most namespaces, and most tables, that one job processes.
pub const JOB_SCOPE_MAX: usize = 100_000;
/// Most files of a table's snapshots that are compared.
pub const FILES_MAX: usize = 1_000_000;
/// Most files of a metadata directory that are examined.
pub const METADATA_FILES_MAX: usize = 100_000;
/// Files that are removed concurrently.
const DELETES_AT_ONCE: usize = 8;

/// Maintenance action on a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaintenanceAction {
    /// Snapshots, branches and tags go that its properties let go.
    ExpireSnapshots,
    /// Metadata files go that neither it nor the log leads to.
    CleanMetadata,
}

/// Request for a maintenance job.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MaintenanceRequest {
    /// To these tables.
    #[serde(default)]
    pub tables: Option<Vec<TableIdent>>,
    /// To all tables of this namespace and of those in it; without either, of the warehouse.
    #[serde(default)]
    pub namespace: Option<NamespaceIdent>,
    /// Actions.
    pub actions: Vec<MaintenanceAction>,
    /// True if nothing is changed, only listed.
    #[serde(default)]
    pub dry_run: bool,
    /// True if files go as well that only expired snapshots lead to.
    #[serde(default)]
    pub delete_files: bool,
}

/// Maintains tables in jobs of this server. Cheap to clone.
#[derive(Clone)]
pub struct MaintenanceService(pub(super) Arc<MaintenanceServiceInner>);

pub(super) struct MaintenanceServiceInner {
    pub(super) clock: DatabaseClock,
    /// True if other servers may have jobs in the store.
    pub(super) is_shared: bool,
    pub(super) job_store: JobStore,
    location_store: LocationStore,
    namespace_store: NamespaceStore,
    past_store: PastStore,
    relation_store: RelationStore,
    pub(super) rights: RightGuard,
    entries: RelationEntries,
    relations: RelationService,
    plans: ScanPlanner,
    changes: ChangeRunner,
    /// Jobs of this server, running or not.
    pub(super) jobs: MaintenanceJobs,
}

impl std::fmt::Debug for MaintenanceService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MaintenanceService").finish_non_exhaustive()
    }
}

impl MaintenanceService {
    pub(super) fn new(
        store: &CatalogStore,
        rights: RightGuard,
        entries: RelationEntries,
        relations: RelationService,
        plans: ScanPlanner,
        changes: ChangeRunner,
    ) -> MaintenanceService {
        MaintenanceService(Arc::new(MaintenanceServiceInner {
            clock: store.clock(),
            is_shared: store.is_shared_by_servers(),
            job_store: store.jobs().clone(),
            location_store: store.locations().clone(),
            namespace_store: store.namespaces().clone(),
            past_store: store.past().clone(),
            relation_store: store.relations().clone(),
            rights,
            entries,
            relations,
            plans,
            changes,
            jobs: MaintenanceJobs::default(),
        }))
    }

    /// Starts a job. Returns its id.
    ///
    /// # Errors
    /// `Forbidden` unless the principal may manage all named objects; `BadRequest`;
    /// `NoSuchNamespace`; `ServiceUnavailable` if too many jobs run.
    pub async fn start_maintenance(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        request: MaintenanceRequest,
    ) -> Result<String> {
        let refuse = |message: &str| Err(CatalogError::new(ErrorReason::BadRequest, message));
        let manage = |object| self.0.rights.allow(call.who, warehouse, AccessRight::Manage, object);
        match (&request.tables, &request.namespace) {
            (Some(_), Some(_)) => return refuse("it takes either `tables` or a `namespace`"),
            (Some(tables), None) if tables.len() > JOB_TABLES_MAX => {
                return refuse(&format!("`tables` has at most {JOB_TABLES_MAX}"));
            }
            (Some(tables), None) => {
                tables.iter().try_for_each(|it| manage(RightTarget::Relation(it)))?
            }
            (None, Some(namespace)) => manage(RightTarget::Namespace(namespace))?,
            (None, None) => manage(RightTarget::Warehouse)?,
        }
        if request.actions.is_empty() {
            return refuse("`actions` has `expire-snapshots`, `clean-metadata` or both");
        }
        let tables = match &request.tables {
            Some(tables) => tables.clone(),
            None => self.tables_within(warehouse, request.namespace.as_ref()).await?,
        };
        let id = format!("mj_{}", Uuid::v4()?);
        let report = JobReport {
            id: id.clone(),
            state: JobState::Queued,
            dry_run: request.dry_run,
            created_ms: self.0.clock.now_ms(),
            tables_total: tables.len(),
            tables_done: 0,
            snapshots: 0,
            refs: 0,
            files: 0,
            items: Vec::new(),
            is_truncated: false,
            failures: Vec::new(),
        };
        let job = Arc::new(MaintenanceJob {
            owner: Arc::clone(&call.who.id),
            warehouse: Arc::clone(warehouse.id()),
            is_cancelled: AtomicBool::new(false),
            report: Mutex::new(report),
        });
        self.0.jobs.insert(&id, &job)?;
        if let Err(error) = self.keep_job(&job).await {
            self.0.jobs.all.lock().remove(&id);
            return Err(error);
        }
        let (service, who, warehouse) = (self.clone(), call.who.clone(), Arc::clone(warehouse));
        node::task::spawn(async move {
            let work = service.go_through(&who, &warehouse, &request, &tables, &job);
            tokio::select! {
                () = Box::pin(work) => {}
                () = service.beat(&job) => {}
            }
            service.write_last(&job).await;
        });
        Ok(id)
    }

    /// Waits for a permit, and runs a job.
    async fn go_through(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        request: &MaintenanceRequest,
        tables: &[TableIdent],
        job: &MaintenanceJob,
    ) {
        // The semaphore is never closed.
        let Ok(_permit) = self.0.jobs.permits.acquire().await else { return };
        job.report.lock().state = JobState::Running;
        for ident in tables {
            if job.is_cancelled() {
                break;
            }
            let work = MaintenanceTask { service: self, who, warehouse, ident };
            if let Err(error) = Box::pin(work.run(request, job)).await {
                // Errors of the table itself are only reported to the caller.
                if error.kind.status() >= 500 {
                    let cause = &error as &dyn std::error::Error;
                    tracing::warn!(error = cause, table = %ident, "a table is not looked after");
                }
                job.fail(ident, &error.message);
            }
            job.report.lock().tables_done += 1;
        }
        let is_cancelled = job.is_cancelled();
        let state = if is_cancelled { JobState::Cancelled } else { JobState::Done };
        job.report.lock().state = state;
    }

    /// Returns the tables of a namespace and everything below it, or of a warehouse.
    async fn tables_within(
        &self,
        warehouse: &Warehouse,
        namespace: Option<&NamespaceIdent>,
    ) -> Result<Vec<TableIdent>> {
        let (inner, id) = (&self.0, warehouse.id());
        let (mut tables, mut next) = (Vec::new(), Vec::new());
        match namespace {
            Some(namespace) => next.push(namespace.clone()),
            None => next = inner.namespace_store.list(id, None, None, None).await?,
        }
        let mut seen = 0;
        while let Some(namespace) = next.pop() {
            seen += 1;
            next.extend(inner.namespace_store.list(id, Some(&namespace), None, None).await?);
            let kind = RelationKind::Table;
            for name in inner.relation_store.list(id, &namespace, kind, None, None).await? {
                tables.push(TableIdent::new(namespace.clone(), &name)?);
            }
            if tables.len() > JOB_SCOPE_MAX || seen > JOB_SCOPE_MAX {
                let message = format!("these are more than {JOB_SCOPE_MAX} tables or namespaces");
                return Err(CatalogError::new(ErrorReason::BadRequest, message));
            }
        }
        Ok(tables)
    }
}

/// A job's work on one table.
struct MaintenanceTask<'a> {
    service: &'a MaintenanceService,
    who: &'a CatalogPrincipal,
    warehouse: &'a Arc<Warehouse>,
    ident: &'a TableIdent,
}

impl MaintenanceTask<'_> {
    async fn run(&self, request: &MaintenanceRequest, job: &MaintenanceJob) -> Result<()> {
        if request.actions.contains(&MaintenanceAction::ExpireSnapshots) {
            self.expire(request, job).await?;
        }
        if request.actions.contains(&MaintenanceAction::CleanMetadata) && !job.is_cancelled() {
            self.clean(request.dry_run, job).await?;
        }
        Ok(())
    }

    /// Returns the present table. Rights may have been revoked since the job began.
    async fn target(&self) -> Result<(Arc<CachedVersion>, PlanTarget)> {
        let MaintenanceTask { service, who, warehouse, ident } = self;
        service.0.rights.allow(
            who,
            warehouse,
            AccessRight::Manage,
            RightTarget::Relation(ident),
        )?;
        let entry = service.0.entries.entry(warehouse, RelationKind::Table, ident).await?;
        let (doc, pointer) = table(&entry)?;
        let relation = pointer.id.clone();
        let reader = service.0.plans.manifest_reader(warehouse);
        let target = PlanTarget { reader, doc: Arc::new(doc.clone()), relation };
        Ok((entry, target))
    }

    async fn expire(&self, request: &MaintenanceRequest, job: &MaintenanceJob) -> Result<()> {
        let mut tries = 0;
        loop {
            let (base, target) = self.target().await?;
            let doc = &target.doc;
            let gc = doc.properties.get("gc.enabled");
            if gc.is_some_and(|it| it.eq_ignore_ascii_case("false")) {
                let message = "nothing expires: its files are not its own (`gc.enabled` is false)";
                job.fail(self.ident, message);
                return Ok(());
            }
            let now_ms =
                i64::try_from(self.service.0.clock.now_ms()).map_err(CatalogError::internal)?;
            let expiry = expiry(doc, now_ms)?;
            if expiry.is_empty() {
                return Ok(());
            }
            let files = match request.delete_files {
                true => self.doomed(&target, &expiry, job).await?,
                false => Vec::new(),
            };
            if job.is_cancelled() {
                return Ok(());
            }
            let is_done = request.dry_run || self.commit(&base, &expiry).await?;
            if !is_done {
                if tries == RETRIES_MAX {
                    let message = format!("Cannot commit {}: it changes all the time", self.ident);
                    return Err(CatalogError::new(ErrorReason::CommitFailed, message));
                }
                tries += 1;
                continue;
            }
            let ids: Vec<_> = expiry.snapshots.iter().map(ToString::to_string).collect();
            job.add(self.ident, "snapshot", &ids);
            job.add(self.ident, "ref", &expiry.refs);
            self.remove(request.dry_run, job, "file", files).await;
            return Ok(());
        }
    }

    /// Commits the expiry for an unchanged table; returns false if it has changed.
    async fn commit(&self, base: &Arc<CachedVersion>, expiry: &ExpiryPlan) -> Result<bool> {
        let MaintenanceTask { service, who, warehouse, ident } = self;
        let _lock = service.0.entries.lock(warehouse, ident).await;
        let now = service.0.entries.entry(warehouse, RelationKind::Table, ident).await?;
        if now.pointer != base.pointer {
            return Ok(false);
        }
        let context: ChangeContext = ChangeCall::of(who).context(self.service.0.clock.now_ms());
        let now_ms = i64::try_from(context.now_ms).map_err(CatalogError::internal)?;
        let (doc, pointer) = table(base)?;
        let mut updates: Vec<_> =
            expiry.refs.iter().cloned().map(TableUpdate::RemoveSnapshotRef).collect();
        updates.push(TableUpdate::RemoveSnapshots(expiry.snapshots.clone()));
        let Some(next) = update::apply(doc, &updates, now_ms)? else { return Ok(true) };
        let (next, fallen) = update::logged(next, doc, &pointer.location);
        let (placed, file) = documents::place(warehouse, next, Some(&pointer.location)).await?;
        let steps = vec![CommitStep::Next { base: Arc::clone(base), placed, file, fallen }];
        let idents = std::slice::from_ref(*ident);
        let landed = service.0.relations.land(warehouse, &context, idents, steps).await;
        service.0.changes.wake_followers();
        match landed {
            Ok(_) => Ok(true),
            Err(lost) if lost.is_to_another() => Ok(false),
            Err(lost) => Err(lost.into_error()),
        }
    }

    /// Returns files below the table's location that only expired snapshots refer to.
    async fn doomed(
        &self,
        target: &PlanTarget,
        expiry: &ExpiryPlan,
        job: &MaintenanceJob,
    ) -> Result<Vec<String>> {
        let doc: &TableDoc = &target.doc;
        let (base, inner) = (doc.location.parse::<TableLocation>()?, &self.service.0);
        if inner.location_store.is_shared(&doc.location, &target.relation).await? {
            job.fail(self.ident, "no files go: another table has files in its location");
            return Ok(Vec::new());
        }
        let gone: HashSet<i64> = expiry.snapshots.iter().copied().collect();
        let mut all = [HashSet::new(), HashSet::new()];
        for (is_gone, all) in [true, false].into_iter().zip(&mut all) {
            let mut known = HashSet::new();
            for snapshot in doc.snapshots.iter().filter(|it| gone.contains(&it.id) == is_gone) {
                if job.is_cancelled() {
                    return Ok(Vec::new());
                }
                let list = list_of(snapshot)?;
                let path = list.path().map(Arc::<str>::from);
                let (service, who) = (self.service, self.who);
                service.0.plans.check_own(who, target, path.as_deref().into_iter()).await?;
                let manifests = target.reader.manifests_of(list).await?;
                service.0.plans.check_own(who, target, manifests.paths()).await?;
                all.extend(path);
                target.reader.collect(&manifests, &mut known, all, is_gone, FILES_MAX).await?;
            }
        }
        let [gone, stay] = all;
        // A location has several spellings: files to keep are compared by their parsed location.
        let place = |it: &str| it.parse::<TableLocation>().ok();
        let stay: HashSet<_> =
            stay.iter().filter_map(|it| place(it)).map(|it| it.to_string()).collect();
        let is_free = |it: &Arc<str>| {
            place(it).is_some_and(|it| it.is_below(&base) && !stay.contains(&it.to_string()))
        };
        let mut free: Vec<_> =
            gone.iter().filter(|it| is_free(it)).map(ToString::to_string).collect();
        free.sort();
        Ok(free)
    }

    /// Removes metadata files that neither the table, its own log nor the catalog's log refers to.
    async fn clean(&self, dry_run: bool, job: &MaintenanceJob) -> Result<()> {
        let (entry, target) = self.target().await?;
        let (doc, pointer) = table(&entry)?;
        let Some((directory, current)) = pointer.location.rsplit_once('/') else { return Ok(()) };
        let (base, place) =
            (doc.location.parse::<TableLocation>()?, directory.parse::<TableLocation>()?);
        let inner = &self.service.0;
        if !place.is_below(&base)
            || inner.location_store.is_shared(directory, &target.relation).await?
        {
            job.fail(self.ident, "no metadata files go: they are not in a directory of its own");
            return Ok(());
        }
        let Some(number) = documents::own_number(current) else { return Ok(()) };
        let names = self.warehouse.files().list(directory, METADATA_FILES_MAX).await?;
        let logged = doc.metadata_log.iter().map(|it| it.metadata_file());
        let mut kept: HashSet<String> = logged.collect();
        kept.extend(inner.past_store.logged_below(directory).await?);
        kept.insert(pointer.location.clone());
        let kept: HashSet<String> = kept
            .iter()
            .filter_map(|it| it.parse::<TableLocation>().ok())
            .map(|it| it.to_string())
            .collect();
        let mut stale = Vec::new();
        for name in names {
            // A concurrent commit writes a file with a higher number.
            if documents::own_number(&name).is_none_or(|it| it > number) {
                continue;
            }
            let location = format!("{directory}/{name}");
            let is_kept =
                location.parse::<TableLocation>().is_ok_and(|it| kept.contains(&it.to_string()));
            if !is_kept && !inner.relation_store.is_pointed_at(&location, "").await? {
                stale.push(location);
            }
        }
        stale.sort();
        self.remove(dry_run, job, "metadata-file", stale).await;
        Ok(())
    }

    /// Removes files, several at a time, or only lists them.
    async fn remove(
        &self,
        dry_run: bool,
        job: &MaintenanceJob,
        kind: &'static str,
        files: Vec<String>,
    ) {
        if dry_run {
            job.add(self.ident, kind, &files);
            return;
        }
        let remove = |location: String| async move {
            if job.is_cancelled() {
                return;
            }
            match self.warehouse.files().delete(&location).await {
                Ok(()) => job.add(self.ident, kind, &[location]),
                Err(error) => job.fail(self.ident, format!("{location}: {}", error.message)),
            }
        };
        stream::iter(files).for_each_concurrent(DELETES_AT_ONCE, remove).await;
    }
}
