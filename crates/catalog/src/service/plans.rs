//! Scan plans: made at once if little has to be read, or in the background. A plan is kept for a
//! time, for the principal that requested it, and only on the server that made it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iceberg::doc::TableDoc;
use iceberg::ident::TableIdent;
use iceberg::plan::{BoundScan, ManifestListSource, PlanPage, ScanPosition, ScanRequest};
use node::{clock, hex};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::entries::RelationEntries;
use super::manifests::{ManifestCache, ManifestReader};
use super::rights::RightGuard;
use super::settings::CatalogSettings;
use crate::cache::CachedVersion;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, CatalogPrincipal, RightTarget};
use crate::store::{LocationStore, RelationKind};
use crate::warehouse::{TableLocation as Location, Warehouse};

/// Time for which a plan is kept after it was requested.
pub const PLAN_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Most plans of one principal; a new one evicts the oldest.
pub const PLANS_OF_PRINCIPAL_MAX: usize = 64;

/// Most plans of all principals.
pub const PLANS_MAX: usize = 4096;

/// Most bytes of all plans together.
pub const PLANS_BYTES_MAX: usize = 256 << 20;

/// Most delete manifests and manifest lists that a request reads before it returns. With more of
/// them, the client polls for the result.
pub const MANIFESTS_AT_ONCE_MAX: usize = 64;

/// Most plans that are made in the background at a time.
const BACKGROUND_MAX: usize = 4;

/// Most directories outside of its own that a table's manifests may be in.
const DIRECTORIES_MAX: usize = 64;

/// Bytes that every plan takes at least.
const PLAN_BYTES: usize = 1024;

/// State of a plan.
#[derive(Clone, Debug)]
pub(crate) enum PlanOutcome {
    /// In progress.
    Submitted,
    /// Finished.
    Completed(Arc<BoundScan>),
    /// Failed.
    Failed(ErrorReason, String),
    /// Cancelled by the client.
    Cancelled,
}

/// A plan as responses show it.
#[derive(Debug)]
pub(crate) struct ScanPlan {
    pub(crate) id: Arc<str>,
    pub(crate) state: PlanOutcome,
}

/// The files of one response, and the tasks that remain to be requested.
#[derive(Debug)]
pub(crate) struct PlanTasks {
    pub(crate) page: PlanPage,
    pub(crate) plan_tasks: Vec<String>,
}

/// All plans.
#[derive(Debug)]
pub(super) struct PlanStore {
    plans: Mutex<HashMap<Arc<str>, StoredPlan>>,
    /// Most bytes of all plans together.
    bytes_max: usize,
    manifests: Arc<ManifestCache>,
    background: Arc<Semaphore>,
}

#[derive(Debug)]
struct StoredPlan {
    owner: Arc<str>,
    /// Id of the table: another table may get its name.
    relation: String,
    until: Instant,
    state: PlanOutcome,
    /// Estimated bytes of the plan in progress.
    pending: usize,
    /// Aborts the work for it.
    work: Option<AbortHandle>,
}

impl Drop for StoredPlan {
    fn drop(&mut self) {
        if let Some(work) = &self.work {
            work.abort();
        }
    }
}

impl StoredPlan {
    fn weight(&self) -> usize {
        let scan = match &self.state {
            PlanOutcome::Completed(scan) => scan.weight(),
            PlanOutcome::Submitted => self.pending,
            PlanOutcome::Failed(..) | PlanOutcome::Cancelled => 0,
        };
        PLAN_BYTES + scan
    }
}

impl Default for PlanStore {
    fn default() -> PlanStore {
        PlanStore::new(PLANS_BYTES_MAX)
    }
}

impl PlanStore {
    fn new(bytes_max: usize) -> PlanStore {
        PlanStore {
            plans: Mutex::default(),
            bytes_max,
            manifests: Arc::default(),
            background: Arc::new(Semaphore::new(BACKGROUND_MAX)),
        }
    }

    fn insert(&self, id: &Arc<str>, stored: StoredPlan, now: Instant) {
        let mut all = self.plans.lock();
        all.retain(|_, it| it.until > now);
        self.add(&mut all, Arc::clone(id), stored);
    }

    /// Inserts a plan; the oldest of the others are evicted for it.
    fn add(&self, all: &mut HashMap<Arc<str>, StoredPlan>, id: Arc<str>, stored: StoredPlan) {
        let mut bytes = stored.weight() + all.values().map(StoredPlan::weight).sum::<usize>();
        let own = |all: &HashMap<Arc<str>, StoredPlan>| {
            all.values().filter(|it| it.owner == stored.owner).count()
        };
        while own(all) >= PLANS_OF_PRINCIPAL_MAX {
            let oldest = oldest(all, Some(&stored.owner));
            bytes = bytes.saturating_sub(remove(all, oldest));
        }
        while !all.is_empty() && (all.len() >= PLANS_MAX || bytes > self.bytes_max) {
            let oldest = oldest(all, None);
            bytes = bytes.saturating_sub(remove(all, oldest));
        }
        all.insert(id, stored);
    }

    /// Sets the outcome of a plan, unless it was evicted or cancelled meanwhile.
    fn settle(&self, id: &str, state: PlanOutcome) {
        let mut all = self.plans.lock();
        if !all.get(id).is_some_and(|it| matches!(it.state, PlanOutcome::Submitted)) {
            return;
        }
        if let Some((id, mut stored)) = all.remove_entry(id) {
            stored.state = state;
            stored.work = None;
            self.add(&mut all, id, stored);
        }
    }

    /// Sets the handle that aborts the work for a plan; aborts it if the plan is no longer awaited.
    fn set_work(&self, id: &str, work: AbortHandle) {
        match self.plans.lock().get_mut(id) {
            Some(stored) if matches!(stored.state, PlanOutcome::Submitted) => {
                stored.work = Some(work)
            }
            _ => work.abort(),
        }
    }

    /// Returns the state of a principal's plan for this table.
    fn get(
        &self,
        who: &CatalogPrincipal,
        relation: &str,
        id: &str,
        now: Instant,
    ) -> Option<PlanOutcome> {
        let all = self.plans.lock();
        let stored = all.get(id).filter(|it| is_of(it, who, relation, now))?;
        Some(stored.state.clone())
    }

    /// Cancels a plan.
    fn cancel(&self, who: &CatalogPrincipal, relation: &str, id: &str, now: Instant) -> bool {
        let mut all = self.plans.lock();
        let Some(stored) = all.get_mut(id).filter(|it| is_of(it, who, relation, now)) else {
            return false;
        };
        stored.state = PlanOutcome::Cancelled;
        if let Some(work) = stored.work.take() {
            work.abort();
        }
        true
    }
}

fn is_of(stored: &StoredPlan, who: &CatalogPrincipal, relation: &str, now: Instant) -> bool {
    stored.owner == who.id && stored.relation == relation && stored.until > now
}

fn oldest(all: &HashMap<Arc<str>, StoredPlan>, owner: Option<&Arc<str>>) -> Option<Arc<str>> {
    let of_owner = all.iter().filter(|(_, it)| owner.is_none_or(|owner| it.owner == *owner));
    of_owner.min_by_key(|(_, it)| it.until).map(|(id, _)| Arc::clone(id))
}

fn remove(all: &mut HashMap<Arc<str>, StoredPlan>, id: Option<Arc<str>>) -> usize {
    id.and_then(|id| all.remove(&id)).map_or(0, |stored| stored.weight())
}

/// The table of a scan.
pub(super) struct PlanTarget {
    pub(super) reader: ManifestReader,
    pub(super) doc: Arc<TableDoc>,
    pub(super) relation: String,
}

/// Plans scans, and keeps the plans for their principals and the manifests that were read. Cheap to
/// clone.
#[derive(Clone)]
pub struct ScanPlanner(Arc<ScanPlannerInner>);

struct ScanPlannerInner {
    location_store: LocationStore,
    rights: RightGuard,
    entries: RelationEntries,
    settings: Arc<CatalogSettings>,
    plans: PlanStore,
}

impl std::fmt::Debug for ScanPlanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanPlanner").finish_non_exhaustive()
    }
}

impl ScanPlanner {
    pub(super) fn new(
        location_store: LocationStore,
        rights: RightGuard,
        entries: RelationEntries,
        settings: Arc<CatalogSettings>,
    ) -> ScanPlanner {
        ScanPlanner(Arc::new(ScanPlannerInner {
            location_store,
            rights,
            entries,
            settings,
            plans: PlanStore::default(),
        }))
    }

    /// Plans a scan. The plan is completed if little has to be read, and submitted otherwise.
    ///
    /// # Errors
    /// `NoSuchTable`; `Validation` and `IllegalArgument` if the request does not fit the table;
    /// `NotFound` if a manifest is missing.
    pub(crate) async fn plan_scan(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        request: &ScanRequest,
    ) -> Result<ScanPlan> {
        let target = self.scan_target(who, warehouse, ident).await?;
        let request = self.0.rights.restricted_scan(who, warehouse, ident, request)?;
        let (scan, lists) = BoundScan::new(&target.doc, &request)?;
        let secret = node::auth::random_key().map_err(CatalogError::internal)?;
        let id = plan_id(&secret, self.0.settings.node.as_deref());
        let mut scan = Box::new(scan);
        let is_short = lists.len() <= MANIFESTS_AT_ONCE_MAX;
        let rest = if is_short {
            self.read_lists(who, &target, &mut scan, lists).await?;
            None
        } else {
            Some(lists)
        };
        if is_short && scan.delete_manifests() <= MANIFESTS_AT_ONCE_MAX {
            target.reader.read_deletes(&mut scan).await?;
            let state = PlanOutcome::Completed(Arc::from(scan));
            self.keep_plan(who, &id, &target.relation, state.clone(), 0);
            return Ok(ScanPlan { id, state });
        }
        self.keep_plan(who, &id, &target.relation, PlanOutcome::Submitted, scan.weight());
        let (service, who, plan) = (self.clone(), who.clone(), Arc::clone(&id));
        let work = node::task::spawn(async move {
            let made = service.make_plan(&who, &target, scan, rest).await;
            let state = match made {
                Ok(scan) => PlanOutcome::Completed(scan),
                Err(error) => {
                    if error.kind.status() >= 500 {
                        let cause = &error as &dyn std::error::Error;
                        tracing::error!(error = cause, "a scan could not be planned");
                    }
                    PlanOutcome::Failed(error.kind, error.message)
                }
            };
            service.0.plans.settle(&plan, state);
        });
        self.0.plans.set_work(&id, work.abort_handle());
        Ok(ScanPlan { id, state: PlanOutcome::Submitted })
    }

    async fn make_plan(
        &self,
        who: &CatalogPrincipal,
        target: &PlanTarget,
        mut scan: Box<BoundScan>,
        lists: Option<Vec<ManifestListSource>>,
    ) -> Result<Arc<BoundScan>> {
        let background = Arc::clone(&self.0.plans.background);
        let _permit = background.acquire_owned().await.map_err(CatalogError::internal)?;
        if let Some(lists) = lists {
            self.read_lists(who, target, &mut scan, lists).await?;
        }
        target.reader.read_deletes(&mut scan).await?;
        Ok(Arc::from(scan))
    }

    /// Returns the state of a plan.
    ///
    /// # Errors
    /// `NoSuchTable`, `NoSuchPlanId`.
    pub(crate) async fn plan(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        id: &str,
    ) -> Result<PlanOutcome> {
        let target = self.scan_target(who, warehouse, ident).await?;
        let found = self.0.plans.get(who, &target.relation, id, clock::now());
        found.ok_or_else(no_such_plan)
    }

    /// Cancels a plan.
    ///
    /// # Errors
    /// `NoSuchTable`, `NoSuchPlanId`.
    pub(crate) async fn cancel_plan(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        id: &str,
    ) -> Result<()> {
        let target = self.scan_target(who, warehouse, ident).await?;
        match self.0.plans.cancel(who, &target.relation, id, clock::now()) {
            true => Ok(()),
            false => Err(no_such_plan()),
        }
    }

    /// Returns the first files of a completed plan.
    ///
    /// # Errors
    /// Those of reading manifests.
    pub(crate) async fn first_tasks(
        &self,
        warehouse: &Arc<Warehouse>,
        id: &str,
        scan: &Arc<BoundScan>,
    ) -> Result<PlanTasks> {
        self.tasks_at(warehouse, id, scan, scan.whole()).await
    }

    /// Returns the files of a task that a response named.
    ///
    /// # Errors
    /// `NoSuchTable`, `NoSuchPlanTask`; those of reading manifests.
    pub(crate) async fn tasks(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        task: &str,
    ) -> Result<PlanTasks> {
        let target = self.scan_target(who, warehouse, ident).await?;
        let no_such =
            || CatalogError::new(ErrorReason::NoSuchPlanTask, "The plan task does not exist");
        let (id, place) = parse_task(task).ok_or_else(no_such)?;
        match self.0.plans.get(who, &target.relation, id, clock::now()) {
            Some(PlanOutcome::Completed(scan)) if scan.has(place) => {
                self.tasks_at(warehouse, id, &scan, place).await
            }
            _ => Err(no_such()),
        }
    }

    async fn tasks_at(
        &self,
        warehouse: &Arc<Warehouse>,
        id: &str,
        scan: &Arc<BoundScan>,
        place: ScanPosition,
    ) -> Result<PlanTasks> {
        let (page, rest) = self.manifest_reader(warehouse).page(scan, place).await?;
        let token = |it: &ScanPosition| format!("{id}.{}.{}.{}", it.from, it.to, it.entry);
        Ok(PlanTasks { page, plan_tasks: rest.iter().map(token).collect() })
    }

    pub(super) fn manifest_reader(&self, warehouse: &Arc<Warehouse>) -> ManifestReader {
        let manifests = Arc::clone(&self.0.plans.manifests);
        ManifestReader { warehouse: Arc::clone(warehouse), manifests }
    }

    pub(super) async fn scan_target(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<PlanTarget> {
        self.0.rights.allow(who, warehouse, AccessRight::Read, RightTarget::Relation(ident))?;
        let entry: Arc<CachedVersion> =
            self.0.entries.entry(warehouse, RelationKind::Table, ident).await?;
        let pointer = entry.pointer.as_ref();
        let (Some(doc), Some(pointer)) = (entry.table(), pointer) else {
            return Err(RelationKind::Table.no_such(ident));
        };
        let reader = self.manifest_reader(warehouse);
        Ok(PlanTarget { reader, doc: Arc::clone(doc), relation: pointer.id.clone() })
    }

    fn keep_plan(
        &self,
        who: &CatalogPrincipal,
        id: &Arc<str>,
        relation: &str,
        state: PlanOutcome,
        pending: usize,
    ) {
        let now = clock::now();
        let (owner, relation) = (Arc::clone(&who.id), relation.to_owned());
        let until = now + PLAN_LIFETIME;
        let stored = StoredPlan { owner, relation, until, state, pending, work: None };
        self.0.plans.insert(id, stored, now);
    }

    async fn read_lists(
        &self,
        who: &CatalogPrincipal,
        target: &PlanTarget,
        scan: &mut BoundScan,
        lists: Vec<ManifestListSource>,
    ) -> Result<()> {
        let paths = lists.iter().filter_map(ManifestListSource::path);
        self.check_own(who, target, paths).await?;
        target.reader.read_lists(scan, lists).await?;
        self.check_own(who, target, scan.paths()).await
    }

    /// Rejects manifests of another table: a committer sets the paths of manifests, and must not
    /// gain access to files beyond its rights by that.
    pub(super) async fn check_own<'p>(
        &self,
        who: &CatalogPrincipal,
        target: &PlanTarget,
        paths: impl Iterator<Item = &'p str>,
    ) -> Result<()> {
        if who.operator {
            return Ok(());
        }
        let base: Location = target.doc.location.parse()?;
        let mut directories: Vec<&str> = Vec::new();
        for path in paths {
            let place: Location = path.parse()?;
            let directory = path.rsplit_once('/').map_or(path, |(directory, _)| directory);
            if place.is_below(&base) || directories.contains(&directory) {
                continue;
            }
            if directories.len() == DIRECTORIES_MAX {
                let message = "the table's manifests are in too many places outside of it";
                return Err(CatalogError::new(ErrorReason::Validation, message));
            }
            if self.0.location_store.is_shared(directory, &target.relation).await? {
                let excerpt: String = path.chars().take(200).collect();
                let message =
                    format!("the manifest `{excerpt}` is within another table's location");
                return Err(CatalogError::new(ErrorReason::Forbidden, message));
            }
            directories.push(directory);
        }
        Ok(())
    }
}

fn no_such_plan() -> CatalogError {
    CatalogError::new(ErrorReason::NoSuchPlanId, "The plan id does not exist")
}

/// The token of a task is the plan's id, which cannot be guessed, and the position to continue
/// from.
/// Separator between the random part of a plan's id and the name of the node that has the plan.
const NODE_SEPARATOR: char = '-';

/// Creates the id of a plan, which names the node that has it if other nodes can query that one.
fn plan_id(secret: &[u8], node: Option<&str>) -> Arc<str> {
    let own = hex::encode(secret);
    node.map_or_else(|| own.clone(), |node| format!("{own}{NODE_SEPARATOR}{node}")).into()
}

/// Returns the node that has a plan, from the plan's id or the token of one of its tasks.
#[must_use]
pub fn node_of_plan(id_or_task: &str) -> Option<&str> {
    let (_, node) = id_or_task.split('.').next()?.split_once(NODE_SEPARATOR)?;
    (!node.is_empty()).then_some(node)
}

fn parse_task(task: &str) -> Option<(&str, ScanPosition)> {
    let mut parts = task.split('.');
    let id = parts.next()?;
    let mut number = || parts.next()?.parse().ok();
    let place = ScanPosition { from: number()?, to: number()?, entry: number()? };
    parts.next().is_none().then_some((id, place))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use iceberg::json::RawJson;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_id_says_which_node_has_the_plan() {
        let id = plan_id(&[0xab; 32], Some("srv_01M804ZD7HDBNWX72N11NHQYP8"));
        assert_eq!(node_of_plan(&id), Some("srv_01M804ZD7HDBNWX72N11NHQYP8"));
        let task = format!("{id}.0.3.17");
        assert_eq!(node_of_plan(&task), Some("srv_01M804ZD7HDBNWX72N11NHQYP8"));
        assert_eq!(parse_task(&task).unwrap().0, &*id);
        let alone = plan_id(&[0xab; 32], None);
        for without in [&*alone, "", ".0.1.2", "-", "x-", "x-.1"] {
            assert_eq!(node_of_plan(without), None, "{without}");
        }
    }

    fn plan_of(owner: &str, until: Instant) -> StoredPlan {
        let (owner, relation) = (owner.into(), "t".to_owned());
        StoredPlan { owner, relation, until, state: PlanOutcome::Submitted, pending: 0, work: None }
    }

    /// A scan of a table without snapshots, whose columns take far more memory than a plan does.
    fn scan() -> BoundScan {
        let field = |id: i32| {
            json!({"id": id, "name": format!("x{id}"), "required": false,
            "type": "long"})
        };
        let fields: Vec<_> = (1..1_000).map(field).collect();
        let doc = json!({"format-version": 2, "table-uuid": "u", "location": "file:///w/t",
            "last-sequence-number": 0, "last-updated-ms": 1, "last-column-id": 999,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
            "default-spec-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999, "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}]});
        let doc = TableDoc::parse(Bytes::from(doc.to_string())).unwrap();
        let request = ScanRequest::parse(&RawJson::of(&json!({})).unwrap()).unwrap();
        BoundScan::new(&doc, &request).unwrap().0
    }

    fn who(id: &str) -> CatalogPrincipal {
        CatalogPrincipal { id: id.into(), name: id.into(), operator: false, claims: None }
    }

    #[test]
    fn the_oldest_plan_of_a_principal_makes_room_and_no_other() {
        let (plans, now) = (PlanStore::default(), clock::now());
        let at = |place: usize| now + Duration::from_secs(u64::try_from(place).unwrap() + 1);
        plans.insert(&"other".into(), plan_of("other", at(0)), now);
        for place in 0..=PLANS_OF_PRINCIPAL_MAX {
            plans.insert(&format!("p{place}").into(), plan_of("me", at(place + 1)), now);
        }
        let me = who("me");
        assert!(plans.get(&me, "t", "p0", now).is_none());
        assert!(plans.get(&me, "t", "p1", now).is_some());
        assert!(plans.get(&who("other"), "t", "other", now).is_some());
        // A plan is limited to its principal, its table and its lifetime.
        assert!(plans.get(&who("other"), "t", "p1", now).is_none());
        assert!(plans.get(&me, "u", "p1", now).is_none());
        assert!(plans.get(&me, "t", "p1", at(2)).is_none());
        plans.insert(&"last".into(), plan_of("me", at(1000)), at(900));
        assert_eq!(plans.plans.lock().len(), 1);
    }

    #[test]
    fn a_cancelled_plan_stays_so() {
        let (plans, now) = (PlanStore::default(), clock::now());
        plans.insert(&"p".into(), plan_of("me", now + PLAN_LIFETIME), now);
        assert!(!plans.cancel(&who("other"), "t", "p", now));
        assert!(plans.cancel(&who("me"), "t", "p", now));
        plans.settle("p", PlanOutcome::Failed(ErrorReason::Internal, String::new()));
        let state = plans.get(&who("me"), "t", "p", now).unwrap();
        assert!(matches!(state, PlanOutcome::Cancelled));
    }

    #[test]
    fn plans_that_are_made_later_make_room_as_well() {
        let made = PlanOutcome::Completed(Arc::new(scan()));
        let mut finished = plan_of("me", clock::now());
        finished.state = made.clone();
        // Two completed plans and the waiting one fit; three completed ones do not.
        let bytes_max = finished.weight() * 5 / 2;
        let (plans, now) = (PlanStore::new(bytes_max), clock::now());
        let ids = ["p0", "p1", "p2", "p3"];
        for (place, id) in ids.iter().enumerate() {
            let until = now + Duration::from_secs(u64::try_from(place).unwrap() + 1);
            plans.insert(&(*id).into(), plan_of("me", until), now);
        }
        let me = who("me");
        let left = || ids.map(|id| plans.get(&me, "t", id, now).is_some());
        for id in ["p2", "p0"] {
            plans.settle(id, made.clone());
        }
        assert_eq!(left(), [true; 4]);
        // The oldest plan is evicted, whatever its state.
        plans.settle("p1", made);
        assert_eq!(left(), [false, true, true, true]);
        let bytes = || plans.plans.lock().values().map(StoredPlan::weight).sum::<usize>();
        assert!(bytes() <= bytes_max, "{}", bytes());
        // A plan in progress counts as well.
        let mut waiting = plan_of("me", now + PLAN_LIFETIME);
        waiting.pending = finished.weight();
        plans.insert(&"p4".into(), waiting, now);
        assert_eq!(left(), [false, false, true, true]);
        assert!(bytes() <= bytes_max, "{}", bytes());
    }

    #[tokio::test]
    async fn work_for_a_plan_that_is_gone_ends() {
        let plans = PlanStore::default();
        let work = tokio::spawn(std::future::pending::<()>());
        plans.set_work("gone", work.abort_handle());
        assert!(work.await.unwrap_err().is_cancelled());
    }

    #[test]
    fn tasks_are_what_was_given_out() {
        let place = ScanPosition { from: 1, to: 20, entry: 3 };
        assert_eq!(parse_task("ab.1.20.3"), Some(("ab", place)));
        for text in ["", "ab", "ab.1.2", "ab.1.2.3.4", "ab.-1.2.3", "ab.1.2.x", "..."] {
            assert_eq!(parse_task(text), None, "{text}");
        }
    }
}
