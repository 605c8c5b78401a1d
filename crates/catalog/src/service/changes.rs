//! Changes from the log: in pages, and as a stream.
//!
//! A follower reads the log at its own pace, from the last number that it has seen. Nothing is
//! buffered for it, so that a slow follower costs nothing and loses nothing, unless it falls behind
//! the retention of the log. Changes made here wake it at once, those of other servers within
//! [`POLL`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use iceberg::ident::{NamespaceIdent, TableIdent};
use node::clock;
use serde::Serialize;
use tokio::sync::{Mutex, watch};

use super::rights::RightGuard;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, CatalogPrincipal, RightTarget};
use crate::store::{
    CatalogStore, ChangeLogStore, LINES_MAX, PastStore, StoredLogLine, TimelineBounds,
};
use crate::warehouse::Warehouse;

/// Interval at which the store is queried for changes of other servers while there are followers.
pub const POLL: Duration = Duration::from_millis(250);

/// Longest time that one follower is served; then it has to reconnect and authenticate again.
pub const FOLLOW_MAX: Duration = Duration::from_secs(3600);

/// Changes on a page if the request does not set their number.
pub const CHANGES_DEFAULT: usize = 100;
/// Most changes on a page.
pub const CHANGES_MAX: usize = LINES_MAX;

/// Most reads of [`LINES_MAX`] lines for one page, in search of visible changes.
const STEPS_MAX: usize = 10;

/// Notifies followers of new changes.
#[derive(Debug, Default)]
pub(super) struct ChangeNotifier {
    /// Counts changes made here.
    done: watch::Sender<u64>,
    /// End of the log at the last query, shared by all followers.
    last_query: Mutex<Option<ChangeRequest>>,
}

#[derive(Clone, Copy, Debug)]
struct ChangeRequest {
    at: Instant,
    done: u64,
    bounds: TimelineBounds,
}

impl ChangeNotifier {
    /// Wakes followers after a change.
    pub(super) fn changed(&self) {
        self.done.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Returns the bounds of the log, as of at most [`POLL`] ago, and as of the last change made
    /// here.
    async fn bounds(&self, change_log: &ChangeLogStore) -> Result<TimelineBounds> {
        let mut last_query = self.last_query.lock().await;
        let (now, done) = (clock::now(), *self.done.borrow());
        if let Some(last) = *last_query
            && last.done == done
            && now.duration_since(last.at) < POLL
        {
            return Ok(last.bounds);
        }
        let bounds = change_log.log_bounds().await?;
        *last_query = Some(ChangeRequest { at: now, done, bounds });
        Ok(bounds)
    }
}

/// Filter of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeFilter {
    /// Namespace, with all that is in it.
    pub namespace: Option<NamespaceIdent>,
    /// Name of the table or view.
    pub ident: Option<TableIdent>,
}

impl ChangeFilter {
    fn wants(&self, change: &CatalogChange) -> bool {
        let here = change.place();
        if let Some(ident) = &self.ident {
            return here.as_ref() == Some(ident) || change.to.as_ref() == Some(ident);
        }
        self.namespace.as_ref().is_none_or(|wanted| {
            let is_in = |it: &NamespaceIdent| wanted.contains(it);
            change.namespace.as_ref().is_some_and(is_in)
                || change.to.as_ref().is_some_and(|to| is_in(&to.namespace))
        })
    }
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CatalogChange {
    /// Sequence number: one more than that of the previous change, visible or not.
    pub seq: i64,
    /// Time of the request (RFC 3339).
    pub at: String,
    /// Action, such as `create-table`.
    pub action: String,
    /// Namespace; `None` if the principal may see only the target of a rename.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceIdent>,
    /// Table or view; `None` for a change of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// New name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<TableIdent>,
    /// The id of the table or view, which stays when it is renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Version after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Metadata file after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_location: Option<String>,
    /// Metadata file before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_metadata_location: Option<String>,
    /// Principal that made the change; visible only to operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

impl CatalogChange {
    fn new(line: StoredLogLine, is_operator: bool) -> Result<CatalogChange> {
        let namespace =
            NamespaceIdent::split(&line.namespace, "").map_err(CatalogError::internal)?;
        Ok(CatalogChange {
            seq: line.seq,
            at: clock::rfc3339_of_ms(line.at_ms),
            action: line.act,
            namespace: Some(namespace),
            name: line.name,
            to: line.target,
            id: line.relation,
            version: line.version,
            metadata_location: line.location,
            previous_metadata_location: line.previous,
            principal: is_operator.then_some(line.principal),
        })
    }

    fn place(&self) -> Option<TableIdent> {
        let (namespace, name) = (self.namespace.clone()?, self.name.as_deref()?);
        TableIdent::new(namespace, name).ok()
    }
}

/// Part of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangePage {
    /// In the order of the log.
    pub changes: Vec<CatalogChange>,
    /// Number after which the next page begins.
    pub next_after: i64,
    /// True if more changes are already in the log.
    pub is_more: bool,
    /// Bounds of the log.
    pub bounds: TimelineBounds,
}

/// Returns the ids of the tables and views that changes in the filter are about, and the keys of
/// their namespaces and of all ancestors.
fn about(changes: &[CatalogChange], filter: &ChangeFilter) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut ids, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for change in changes.iter().filter(|it| filter.wants(it)) {
        ids.extend(change.id.clone());
        let target = change.to.as_ref().map(|it| &it.namespace);
        for namespace in change.namespace.iter().chain(target) {
            let mut next = Some(namespace.clone());
            // The ancestors of a known namespace are known, too.
            while let Some(it) = next.filter(|it| paths.insert(it.key())) {
                next = it.parent();
            }
        }
    }
    (ids, paths)
}

/// Present objects that changes are about.
#[derive(Debug, Default)]
struct CurrentObjects {
    /// Names of tables and views, by their ids.
    names: HashMap<String, TableIdent>,
    /// Numbers of the changes that last created namespaces, by their keys.
    made: HashMap<String, i64>,
}

impl CurrentObjects {
    /// Returns the innermost of a namespace and its ancestors that was not recreated after a
    /// change; `None` if all were.
    fn unchanged_since(&self, namespace: &NamespaceIdent, seq: i64) -> Option<NamespaceIdent> {
        let mut next = Some(namespace.clone());
        while let Some(ident) = next {
            if self.made.get(&ident.key()).is_none_or(|made| *made <= seq) {
                return Some(ident);
            }
            next = ident.parent();
        }
        None
    }
}

/// Serves the visible changes in the log to principals, in pages and as a stream. Cheap to clone.
#[derive(Clone)]
pub struct ChangeFeed(Arc<ChangeFeedInner>);

struct ChangeFeedInner {
    change_log: ChangeLogStore,
    past_store: PastStore,
    rights: RightGuard,
    feed: Arc<ChangeNotifier>,
}

impl std::fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeFeed").finish_non_exhaustive()
    }
}

impl ChangeFeed {
    pub(super) fn new(
        store: &CatalogStore,
        rights: RightGuard,
        feed: Arc<ChangeNotifier>,
    ) -> ChangeFeed {
        ChangeFeed(Arc::new(ChangeFeedInner {
            change_log: store.change_log().clone(),
            past_store: store.past().clone(),
            rights,
            feed,
        }))
    }

    /// Returns the changes after a number that a principal may see; without a number, from the
    /// beginning of the log.
    ///
    /// # Errors
    /// `Forbidden` if the namespace or table may not be read; `Gone` if the log no longer reaches
    /// back so far.
    pub async fn changes(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        filter: &ChangeFilter,
        after: Option<i64>,
        limit: usize,
    ) -> Result<ChangePage> {
        self.allow_following(who, warehouse, filter)?;
        let bounds = self.0.change_log.log_bounds().await?;
        let mut page = ChangePage {
            changes: Vec::new(),
            next_after: after.unwrap_or(bounds.oldest),
            is_more: true,
            bounds,
        };
        if page.next_after > bounds.newest || page.next_after < 0 {
            let newest = bounds.newest;
            let message = format!("`after` is 0 to {newest}, the number of the last change");
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        }
        let limit = limit.clamp(1, CHANGES_MAX);
        for _ in 0..STEPS_MAX {
            let lines = self.0.change_log.log(warehouse.id(), page.next_after, LINES_MAX).await?;
            let is_last = lines.len() < LINES_MAX;
            let changes = lines.into_iter().map(|line| CatalogChange::new(line, who.operator));
            let changes = changes.collect::<Result<Vec<_>>>()?;
            let today = self.today(who, warehouse, filter, &changes).await?;
            for change in changes {
                if page.changes.len() == limit {
                    return Ok(page);
                }
                page.next_after = change.seq;
                if filter.wants(&change) {
                    page.changes.extend(self.visible_to(who, warehouse, &today, change));
                }
            }
            if is_last {
                // All other lines up to the newest belong to other warehouses.
                page.next_after = page.next_after.max(bounds.newest);
                page.is_more = false;
                return Ok(page);
            }
        }
        Ok(page)
    }

    /// Streams the changes from a number on: every visible one, once, in order.
    ///
    /// # Errors
    /// Those of [`ChangeFeed::changes`].
    pub async fn follow(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        filter: ChangeFilter,
        after: Option<i64>,
    ) -> Result<ChangeStream> {
        // Errors of the request are reported before the response begins.
        let first = self.changes(who, warehouse, &filter, after, 1).await?;
        let after = after.unwrap_or(first.bounds.oldest);
        Ok(ChangeStream {
            done: self.0.feed.done.subscribe(),
            feed: self.clone(),
            who: who.clone(),
            warehouse: Arc::clone(warehouse),
            filter,
            after,
            until: clock::now() + FOLLOW_MAX,
        })
    }

    /// Returns the number of the last change.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn last_change(&self) -> Result<i64> {
        Ok(self.0.change_log.log_bounds().await?.newest)
    }

    fn allow_following(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        filter: &ChangeFilter,
    ) -> Result<()> {
        let object = match (&filter.ident, &filter.namespace) {
            (Some(ident), _) => RightTarget::Relation(ident),
            (None, Some(namespace)) => RightTarget::Namespace(namespace),
            // Invisible changes are left out.
            (None, None) => return Ok(()),
        };
        self.0.rights.allow(who, warehouse, AccessRight::Read, object)
    }

    /// Returns the present objects that changes are about. Operators see all of them by any name.
    async fn today(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        filter: &ChangeFilter,
        changes: &[CatalogChange],
    ) -> Result<CurrentObjects> {
        let Some(first) = changes.first().filter(|_| !who.operator).map(|it| it.seq) else {
            return Ok(CurrentObjects::default());
        };
        let (ids, paths) = about(changes, filter);
        let (past, id) = (&self.0.past_store, warehouse.id());
        let made = past.made_since(id, paths, first).await?;
        Ok(CurrentObjects { names: past.names_today(id, ids).await?, made })
    }

    /// Returns the part of a change that a principal may see; `None` if it may see nothing of it.
    /// Rights to a name apply to its present object only: changes of an earlier object of that name
    /// require rights to the namespace, or to its parent if the namespace was recreated since.
    fn visible_to(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        now: &CurrentObjects,
        mut change: CatalogChange,
    ) -> Option<CatalogChange> {
        let may = |object: RightTarget<'_>| {
            self.0.rights.allow(who, warehouse, AccessRight::Read, object).is_ok()
        };
        let today = change.id.as_ref().and_then(|id| now.names.get(id));
        let is_read = today.is_some_and(|ident| may(RightTarget::Relation(ident)));
        let seq = change.seq;
        let sees_in = |namespace: &NamespaceIdent| match now.unchanged_since(namespace, seq) {
            Some(kept) => may(RightTarget::Namespace(&kept)),
            None => may(RightTarget::Warehouse),
        };
        let sees = |ident: &TableIdent| match is_read {
            true => may(RightTarget::Relation(ident)),
            false => sees_in(&ident.namespace),
        };
        let sees_place = match (change.place(), &change.namespace) {
            (Some(ident), _) => sees(&ident),
            (None, Some(namespace)) => sees_in(namespace),
            (None, None) => false,
        };
        let sees_target = change.to.as_ref().is_some_and(sees);
        if today.is_some() && !is_read {
            // The object is now at an invisible place: its id, version and files are removed.
            (change.id, change.version) = (None, None);
            (change.metadata_location, change.previous_metadata_location) = (None, None);
        }
        if !sees_place {
            (change.namespace, change.name) = (None, None);
        }
        if !sees_target {
            change.to = None;
        }
        (sees_place || sees_target).then_some(change)
    }
}

/// A stream of changes.
#[derive(Debug)]
pub struct ChangeStream {
    feed: ChangeFeed,
    who: CatalogPrincipal,
    warehouse: Arc<Warehouse>,
    filter: ChangeFilter,
    after: i64,
    done: watch::Receiver<u64>,
    until: Instant,
}

impl ChangeStream {
    /// Waits for the next changes and returns them; `None` once the follower has been served for
    /// [`FOLLOW_MAX`].
    ///
    /// # Errors
    /// Those of [`ChangeFeed::changes`]. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Vec<CatalogChange>>> {
        loop {
            if clock::now() >= self.until {
                return Ok(None);
            }
            self.done.borrow_and_update();
            let ChangeFeedInner { change_log, feed, .. } = &*self.feed.0;
            if feed.bounds(change_log).await?.newest > self.after {
                let (who, warehouse, filter) = (&self.who, &self.warehouse, &self.filter);
                let after = Some(self.after);
                let page = self.feed.changes(who, warehouse, filter, after, CHANGES_DEFAULT);
                let page = page.await?;
                self.after = page.next_after;
                if page.changes.is_empty() {
                    continue;
                }
                return Ok(Some(page.changes));
            }
            tokio::select! {
                // The sender lives as long as the feed, which this stream holds.
                _ = self.done.changed() => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    /// Replaces the principal of the follower: the same principal with its present rights.
    pub fn set_who(&mut self, who: CatalogPrincipal) {
        self.who = who;
    }

    /// Returns the number up to which all changes were returned.
    #[must_use]
    pub fn after(&self) -> i64 {
        self.after
    }
}
