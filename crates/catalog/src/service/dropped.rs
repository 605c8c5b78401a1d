//! Dropped objects: each can be restored until its retention ends; its files are kept until then.
//!
//! The retention is set by the namespace, its nearest ancestor with the property, the warehouse or
//! the configuration, in this order. Servers that share a store may sweep at the same time: a purge
//! that one server has taken is left alone by the others for [`LEASE`], which the server renews
//! while it removes files. A location stays taken until its files are removed, so that no new
//! relation is placed there meanwhile.

use node::task::Boxed;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use iceberg::doc::TableDoc;
use iceberg::ident::{NamespaceIdent, TableIdent};
use node::drain::DrainHandle;

use super::documents;

use super::entries::RelationEntries;
use super::keys::ChangeRunner;
use super::protection::ProtectionRules;
use super::rights::RightGuard;
use super::settings::CatalogSettings;
use super::warehouses::WarehouseDirectory;
use crate::database::DatabaseClock;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::page::{ListPage, PAGE_SIZE_MAX, PageRequest};
use crate::principal::{AccessRight, CatalogPrincipal, ChangeCall, RightTarget};
use crate::store::{
    CatalogStore, ChangeContext, ChangeLogStore, DropMode, DroppedRelation, DroppedStore,
    LocationStore, LogAction, MetadataPointer, NamespaceStore, RelationKind, RelationStore,
    RuleStore,
};
use crate::warehouse::{TableLocation, Warehouse};

/// Property of a namespace: retention of objects dropped in it, in seconds, or a number with the
/// unit `s`, `m`, `h` or `d`.
pub const UNDROP_RETENTION: &str = "undrop.retention";

/// Longest retention of dropped objects, in seconds: ten years.
pub const UNDROP_SECONDS_MAX: u64 = 10 * 365 * 24 * 3600;

/// Time after a purging server's last renewal after which another server takes the purge over.
pub const LEASE: Duration = Duration::from_secs(600);

/// Interval between sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(20);

/// Interval at which a server renews its lease on a purge.
const RENEW_EVERY: Duration = Duration::from_secs(100);

/// Property: true if a table's files belong to it, so that purging it removes them.
const GC_ENABLED: &str = "gc.enabled";

/// Principal in the log for purges that no request asked for.
const SWEEPER: &str = "server:sweeper";

/// Result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropSweepReport {
    /// Relations purged.
    pub purged: u64,
    /// Lines removed from the log.
    pub lines: u64,
}

/// Restored table or view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredRelation {
    /// Current name.
    pub ident: TableIdent,
    /// Kind.
    pub kind: RelationKind,
    /// Id.
    pub id: String,
}

/// Parses the value of a retention property, in seconds.
///
/// # Errors
/// `BadRequest` if the text is no duration or exceeds [`UNDROP_SECONDS_MAX`].
pub(super) fn seconds(text: &str) -> Result<u64> {
    let text = text.trim();
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        Some((at, 'd')) => (&text[..at], 86_400),
        _ => (text, 1),
    };
    let number = digits.bytes().all(|it| it.is_ascii_digit()).then(|| digits.parse::<u64>().ok());
    let seconds = number.flatten().and_then(|number| number.checked_mul(unit));
    seconds.filter(|it| *it <= UNDROP_SECONDS_MAX).ok_or_else(|| {
        let message = format!(
            "`{UNDROP_RETENTION}` is a number of seconds, or one with `s`, `m`, `h` or `d`, \
             of at most ten years"
        );
        CatalogError::new(ErrorReason::BadRequest, message)
    })
}

/// Drops tables and views, keeps dropped ones for their retention, and purges them afterwards.
/// Cheap to clone.
#[derive(Clone)]
pub struct DroppedRelations(Arc<DroppedRelationsInner>);

struct DroppedRelationsInner {
    clock: DatabaseClock,
    change_log: ChangeLogStore,
    dropped_store: DroppedStore,
    location_store: LocationStore,
    namespace_store: NamespaceStore,
    relation_store: RelationStore,
    rule_store: RuleStore,
    rights: RightGuard,
    entries: RelationEntries,
    changes: ChangeRunner,
    warehouses: WarehouseDirectory,
    protection: ProtectionRules,
    settings: Arc<CatalogSettings>,
}

impl std::fmt::Debug for DroppedRelations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DroppedRelations").finish_non_exhaustive()
    }
}

impl DroppedRelations {
    pub(super) fn new(
        store: &CatalogStore,
        rights: RightGuard,
        entries: RelationEntries,
        changes: ChangeRunner,
        warehouses: WarehouseDirectory,
        protection: ProtectionRules,
        settings: Arc<CatalogSettings>,
    ) -> DroppedRelations {
        DroppedRelations(Arc::new(DroppedRelationsInner {
            clock: store.clock(),
            change_log: store.change_log().clone(),
            dropped_store: store.dropped_relations().clone(),
            location_store: store.locations().clone(),
            namespace_store: store.namespaces().clone(),
            relation_store: store.relations().clone(),
            rule_store: store.rules().clone(),
            rights,
            entries,
            changes,
            warehouses,
            protection,
            settings,
        }))
    }

    /// Returns the retention of objects dropped in a namespace, in seconds. 0 means none.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) async fn undrop_seconds(
        &self,
        warehouse: &Warehouse,
        namespace: &NamespaceIdent,
    ) -> Result<u64> {
        for (_, properties) in
            self.0.namespace_store.properties_up(warehouse.id(), namespace).await?
        {
            if let Some(text) = properties.get(UNDROP_RETENTION) {
                // The text was checked when the property was set.
                return seconds(text);
            }
        }
        self.retention_of(warehouse).await
    }

    async fn retention_of(&self, warehouse: &Warehouse) -> Result<u64> {
        let own = self.0.rule_store.retention(warehouse.id()).await?;
        Ok(own.unwrap_or(self.0.settings.undrop_seconds))
    }

    /// Returns the retention of objects dropped in a warehouse, in seconds, for namespaces that set
    /// none.
    ///
    /// # Errors
    /// `Forbidden`.
    pub async fn retention(&self, who: &CatalogPrincipal, warehouse: &Warehouse) -> Result<u64> {
        self.0.rights.allow(who, warehouse, AccessRight::Read, RightTarget::Warehouse)?;
        self.retention_of(warehouse).await
    }

    /// Sets the retention of objects dropped in a warehouse from now on; `None` restores the
    /// configured one.
    ///
    /// # Errors
    /// `Forbidden`; `BadRequest` if it is too long.
    pub async fn set_retention(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        seconds: Option<u64>,
    ) -> Result<u64> {
        self.0.rights.allow(who, warehouse, AccessRight::Manage, RightTarget::Warehouse)?;
        if seconds.is_some_and(|it| it > UNDROP_SECONDS_MAX) {
            let message = format!("`undrop-seconds` is at most {UNDROP_SECONDS_MAX}");
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        }
        self.0.rule_store.set_retention(warehouse.id(), seconds).await?;
        self.retention_of(warehouse).await
    }

    /// Drops a table or a view. The caller holds its lock.
    pub(super) async fn drop_one(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        kind: RelationKind,
        ident: &TableIdent,
        purge: bool,
    ) -> Result<()> {
        self.0.protection.require_unprotected(warehouse, kind, ident).await?;
        let act = match kind {
            RelationKind::Table => LogAction::DropTable,
            RelationKind::View => LogAction::DropView,
        };
        let seconds = self.undrop_seconds(warehouse, &ident.namespace).await?;
        if seconds == 0 && !purge {
            return self.release(warehouse, context, kind, ident, act).await;
        }
        let until_ms = context.now_ms.saturating_add(seconds.saturating_mul(1000));
        let keep = DropMode { until_ms, purge };
        let kept =
            self.0.dropped_store.set_aside(context, warehouse.id(), kind, ident, act, keep).await;
        self.0.entries.forget(warehouse, ident);
        self.0.rights.follow_moves().await;
        let pointer = kept?;
        if seconds > 0 {
            return Ok(());
        }
        let one = DroppedRelation {
            ident: ident.clone(),
            pointer,
            dropped_ms: context.now_ms,
            keep,
            principal: context.principal.clone(),
            is_purging: true,
            has_begun: false,
        };
        if let Err(error) = self.purge_at_once(warehouse, context, &one).await {
            // The table is dropped; its location stays taken until a sweep has removed the rest.
            let (error, base) = (&error as &dyn std::error::Error, &*one.pointer.base);
            tracing::warn!(error, base, "a dropped table is not purged yet");
        }
        Ok(())
    }

    /// Removes a table or view, but not its files. The caller holds its lock.
    pub(super) async fn release(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        kind: RelationKind,
        ident: &TableIdent,
        act: LogAction,
    ) -> Result<()> {
        let released =
            self.0.relation_store.drop_relation(context, warehouse.id(), kind, ident, act).await;
        self.0.entries.forget(warehouse, ident);
        self.0.rights.follow_moves().await;
        released.map(drop)
    }

    /// Purges a relation dropped by a request that has already been carried out and recorded.
    async fn purge_at_once(
        &self,
        warehouse: &Warehouse,
        by: &ChangeContext,
        one: &DroppedRelation,
    ) -> Result<()> {
        let context = ChangeContext { key: None, ..by.clone() };
        match self.0.dropped_store.take_dropped(&one.pointer.id, self.0.clock.now_ms()).await {
            Ok(()) => {}
            // Another server's sweep took it first.
            Err(error) if error.kind == ErrorReason::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        self.purge_held(warehouse, &context, one).await?;
        self.0.rights.follow_moves().await;
        Ok(())
    }

    /// Removes the files of a dropped table, if they belong to it and to no other table.
    async fn purge_files(
        &self,
        warehouse: &Warehouse,
        doc: &TableDoc,
        one: &DroppedRelation,
    ) -> Result<()> {
        let (location, own_id) = (&one.pointer.location, &one.pointer.id);
        if doc.properties.get(GC_ENABLED).is_some_and(|it| it.eq_ignore_ascii_case("false")) {
            return Ok(());
        }
        if self.0.location_store.is_shared(&doc.location, own_id).await? {
            let location = &*doc.location;
            tracing::warn!(location, "not purged: another table has files there");
            return Ok(());
        }
        let place: TableLocation = doc.location.parse()?;
        let is_elsewhere =
            |file: &String| !file.parse().is_ok_and(|it: TableLocation| it.is_below(&place));
        let logged = doc.metadata_log.iter().map(|it| it.metadata_file());
        let logged: Vec<_> = logged.filter(is_elsewhere).collect();
        if !self.0.dropped_store.begin_purge(own_id).await? {
            // Another server has purged it: the location may belong to another relation by now.
            return Ok(());
        }
        documents::delete_old(&self.0.relation_store, warehouse, doc, &logged, own_id).await;
        warehouse.files().delete_tree(&doc.location).await?;
        // The metadata file lists all other files, so it is removed last.
        let last: Vec<_> = std::iter::once(location.clone()).filter(is_elsewhere).collect();
        documents::delete_old(&self.0.relation_store, warehouse, doc, &last, own_id).await;
        Ok(())
    }

    /// Removes the remaining files of a table whose metadata file an earlier purge removed.
    async fn purge_rest(&self, warehouse: &Warehouse, one: &DroppedRelation) -> Result<()> {
        let (base, id) = (&*one.pointer.base, &*one.pointer.id);
        if self.0.location_store.is_shared(base, id).await? {
            tracing::warn!(base, "not purged: another table has files there");
            return Ok(());
        }
        match self.0.dropped_store.begin_purge(id).await? {
            true => warehouse.files().delete_tree(base).await,
            false => Ok(()),
        }
    }

    /// Returns the dropped relations of a warehouse, or of one namespace, that can be restored.
    ///
    /// # Errors
    /// `Forbidden`.
    pub async fn list_dropped(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        namespace: Option<&NamespaceIdent>,
        page: &PageRequest,
    ) -> Result<ListPage<DroppedRelation>> {
        let object = namespace.map_or(RightTarget::Warehouse, RightTarget::Namespace);
        self.0.rights.allow(who, warehouse, AccessRight::Read, object)?;
        // The number of dropped relations is unbounded: this list is always paged.
        let page =
            PageRequest { token: Some(page.token.clone().unwrap_or_default()), ..page.clone() };
        let page = PageRequest { size: Some(page.limit().min(PAGE_SIZE_MAX - 1)), ..page };
        let (after, limit) = page.bounds()?;
        let (after, limit) = (after.unwrap_or_default(), limit.unwrap_or_default());
        let found = self.0.dropped_store.dropped(warehouse.id(), namespace, &after, limit).await?;
        let mut listing = page.cut(found, |it: &DroppedRelation| it.pointer.id.clone());
        if let Some(namespace) = namespace {
            // Relations of an earlier namespace of this name are not visible by rights to the
            // present one.
            let made = self.0.namespace_store.made_up(warehouse.id(), namespace).await?;
            let may = |it: &DroppedRelation| {
                self.0
                    .rights
                    .allow(who, warehouse, AccessRight::Read, kept_in(&made, it.dropped_ms))
                    .is_ok()
            };
            listing.items.retain(may);
        }
        Ok(listing)
    }

    /// Restores a dropped relation, by its id or UUID, under its former name or another one.
    ///
    /// # Errors
    /// `NotFound` if it is no longer kept, `NoSuchNamespace`, `AlreadyExists`, `BadRequest` if
    /// several dropped relations have the UUID.
    pub async fn undrop(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        name: &str,
        to: impl FnOnce(&TableIdent) -> Result<TableIdent> + Send + 'static,
    ) -> Result<RestoredRelation> {
        let (who, warehouse, name) = (call.who.clone(), Arc::clone(warehouse), name.to_owned());
        let (again_who, again_in, context) =
            (who.clone(), Arc::clone(&warehouse), call.context(self.0.clock.now_ms()));
        // Looked up only after the check whether this request has already restored it.
        let service = self.clone();
        let act = async move |context: ChangeContext| {
            let found = service.require_dropped(&who, &warehouse, &name).await?;
            let ident = to(&found.ident)?;
            service.0.rights.allow(
                &who,
                &warehouse,
                AccessRight::Write,
                RightTarget::Namespace(&ident.namespace),
            )?;
            let _lock = service.0.entries.lock(&warehouse, &ident).await;
            let (kind, id) = (found.pointer.kind, found.pointer.id);
            let done = service.0.dropped_store.undrop(&context, warehouse.id(), &id, &ident).await;
            service.0.entries.forget(&warehouse, &ident);
            service.0.rights.follow_moves().await;
            done.map(|_| RestoredRelation { ident, kind, id })
        };
        let service = self.clone();
        let again = async move || {
            let done = service.0.dropped_store.undropped(&context, again_in.id()).await?;
            let (ident, kind, id) = done.ok_or_else(|| {
                let message = "it was brought back; where to is not in the log any more";
                CatalogError::new(ErrorReason::Gone, message)
            })?;
            let place = RightTarget::Namespace(&ident.namespace);
            service.0.rights.allow(&again_who, &again_in, AccessRight::Write, place)?;
            Ok(RestoredRelation { ident, kind, id })
        };
        self.0.changes.run(call, act, again).await
    }

    /// Purges a dropped relation before its retention ends.
    ///
    /// # Errors
    /// `NotFound` if it is no longer kept; errors of removing files, after which the purge is
    /// retried in the background.
    pub async fn purge_dropped(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        name: &str,
    ) -> Result<()> {
        let (who, warehouse, name) = (call.who.clone(), Arc::clone(warehouse), name.to_owned());
        let service = self.clone();
        let act = async move |context: ChangeContext| {
            let found = service.require_dropped(&who, &warehouse, &name).await?;
            // An explicit purge removes the files, even if the drop did not ask for it.
            let found = DroppedRelation { keep: DropMode { purge: true, ..found.keep }, ..found };
            service.0.dropped_store.take_dropped(&found.pointer.id, context.now_ms).await?;
            service.purge_one(&warehouse, &context, &found).await
        };
        self.0.changes.run(call, act, async || Ok(())).await
    }

    /// Returns the dropped relation with this id or UUID, for a principal that may manage it.
    async fn require_dropped(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        name: &str,
    ) -> Result<DroppedRelation> {
        let mut found = self.0.dropped_store.dropped_as(warehouse.id(), name).await?.into_iter();
        let (first, second) = (found.next(), found.next());
        // Another table may have its name by now, or another namespace the name of its namespace:
        // rights to these do not extend to the dropped relation.
        let made = match &first {
            Some(it) => self.0.namespace_store.made_up(warehouse.id(), &it.ident.namespace).await?,
            None => Vec::new(),
        };
        let dropped_ms = first.as_ref().map_or(0, |it| it.dropped_ms);
        self.0.rights.allow(who, warehouse, AccessRight::Manage, kept_in(&made, dropped_ms))?;
        let first = first.filter(|it| !it.is_purging).ok_or_else(|| {
            let excerpt: String = name.chars().take(100).collect();
            CatalogError::new(
                ErrorReason::NotFound,
                format!("nothing that was dropped is kept as {excerpt}"),
            )
        })?;
        if second.is_some() && first.pointer.id != name {
            let message = "several that were dropped have this UUID: say the `id`";
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        }
        Ok(first)
    }

    /// Removes a dropped relation that is marked, and its files if the drop asked for that.
    async fn purge_one(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        one: &DroppedRelation,
    ) -> Result<()> {
        // The lock prevents it from being registered meanwhile.
        let _lock = self.0.entries.lock(warehouse, &one.ident).await;
        self.purge_held(warehouse, context, one).await
    }

    /// Purges a relation; the caller holds the lock of its name.
    async fn purge_held(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        one: &DroppedRelation,
    ) -> Result<()> {
        tokio::select! {
            done = self.purge_marked(warehouse, context, one) => done,
            never = self.keep_taken(&one.pointer.id, RENEW_EVERY) => match never {},
        }
    }

    /// Renews the lease on a purge until it is cancelled.
    pub(super) async fn keep_taken(&self, id: &str, every: Duration) -> Infallible {
        loop {
            tokio::time::sleep(every).await;
            if let Err(error) = self.0.dropped_store.renew_dropped(id, self.0.clock.now_ms()).await
            {
                // The next attempt is well before other servers may take the purge over.
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, id, "failed to say that this is still being purged");
            }
        }
    }

    async fn purge_marked(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        one: &DroppedRelation,
    ) -> Result<()> {
        if one.keep.purge && one.pointer.kind == RelationKind::Table {
            let kept = self.0.dropped_store.dropped_document(&one.pointer.id).await?;
            let doc = match kept {
                Some(document) => TableDoc::parse(document),
                None => self.document_of(warehouse, &one.pointer).await,
            };
            match doc {
                Ok(doc) => self.purge_files(warehouse, &doc, one).await?,
                Err(error) if !is_lost(error.kind) => return Err(error),
                Err(_) if one.has_begun => self.purge_rest(warehouse, one).await?,
                // Without the document, the table's own files are unknown.
                Err(error) => {
                    let (error, base) = (&error as &dyn std::error::Error, &*one.pointer.base);
                    tracing::warn!(error, base, "files of a dropped table stay");
                }
            }
        }
        self.0.dropped_store.forget_dropped(context, warehouse.id(), one).await
    }

    /// Reads the document of a table from its file. A different document would name other files to
    /// remove.
    async fn document_of(
        &self,
        warehouse: &Warehouse,
        pointer: &MetadataPointer,
    ) -> Result<TableDoc> {
        let doc = TableDoc::parse(documents::read(warehouse, &pointer.location).await?)?;
        self.0.entries.check_places(pointer, &doc).await?;
        Ok(doc)
    }

    /// Purges relations whose retention has ended, and removes old lines of the log.
    ///
    /// # Errors
    /// If the store cannot be used. A failed purge is logged, and retried by a later sweep.
    pub fn sweep<'a>(&'a self) -> Boxed<'a, Result<DropSweepReport>> {
        Box::pin(async move {
            let mut swept = DropSweepReport::default();
            let lease_ms = u64::try_from(LEASE.as_millis()).map_err(CatalogError::internal)?;
            loop {
                let now_ms = self.0.clock.now_ms();
                // One at a time: while this server waits for a lock, another server may take the
                // others.
                let mut expired = self.0.dropped_store.take_expired(now_ms, lease_ms, 1).await?;
                let Some((warehouse, one)) = expired.pop() else { break };
                let context = ChangeContext {
                    principal: SWEEPER.to_owned(),
                    is_operator: true,
                    now_ms: self.0.clock.now_ms(),
                    key: None,
                    names: None,
                };
                match self.purge_in(&warehouse, &context, &one).await {
                    Ok(()) => swept.purged += 1,
                    Err(error) => {
                        let (error, table) = (&error as &dyn std::error::Error, &one.ident);
                        tracing::warn!(error, %table, "a dropped table is not purged yet");
                    }
                }
            }
            let kept_ms = self.0.settings.log_retention_seconds.saturating_mul(1000);
            swept.lines =
                self.0.change_log.trim_log(self.0.clock.now_ms().saturating_sub(kept_ms)).await?;
            if swept.purged > 0 {
                self.0.changes.wake_followers();
            }
            Ok(swept)
        })
    }

    async fn purge_in(
        &self,
        warehouse: &str,
        context: &ChangeContext,
        one: &DroppedRelation,
    ) -> Result<()> {
        let found = self.0.warehouses.all().into_iter().find(|it| **it.id() == *warehouse);
        let found = found.ok_or_else(|| {
            CatalogError::new(
                ErrorReason::NoSuchWarehouse,
                "its warehouse is not open at this server",
            )
        })?;
        self.purge_one(&found, context, one).await
    }

    /// Sweeps at intervals until the server drains.
    pub(super) async fn sweep_now_and_then(&self, drain: &DrainHandle) {
        self.sweep_every(SWEEP_EVERY, drain).await;
    }

    pub(super) async fn sweep_every(&self, every: Duration, drain: &DrainHandle) {
        let mut failed = false;
        loop {
            tokio::select! {
                () = drain.begun() => return,
                () = tokio::time::sleep(every) => {}
            }
            // A sweep may take long. Interrupted purges stay marked, and another sweep finishes
            // them.
            let result = tokio::select! {
                () = drain.begun() => return,
                result = self.sweep() => result,
            };
            // Logged once, not at every attempt.
            if let Err(error) = &result
                && !failed
            {
                let error = error as &dyn std::error::Error;
                tracing::warn!(error, "dropped relations are not swept");
            }
            failed = result.is_err();
        }
    }
}

/// Returns the object that decides the rights to a relation dropped at this time: the innermost of
/// its namespaces that has existed since before the drop. A namespace created later only shares the
/// name.
pub(super) fn kept_in(made: &[(NamespaceIdent, u64)], dropped_ms: u64) -> RightTarget<'_> {
    let since = made.iter().find(|(_, made_ms)| *made_ms < dropped_ms);
    since.map_or(RightTarget::Warehouse, |(ident, _)| RightTarget::Namespace(ident))
}

/// Returns whether a document is missing or invalid, rather than temporarily unavailable.
const fn is_lost(kind: ErrorReason) -> bool {
    matches!(kind, ErrorReason::NotFound | ErrorReason::BadRequest | ErrorReason::Validation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_seconds_or_has_a_unit() {
        for (text, expected) in [
            ("0", Some(0)),
            ("90", Some(90)),
            (" 7d ", Some(604_800)),
            ("2h", Some(7200)),
            ("3m", Some(180)),
            ("4s", Some(4)),
            ("3650d", Some(UNDROP_SECONDS_MAX)),
            ("3651d", None),
            ("99999999999999999999", None),
            ("18446744073709551615d", None),
            ("-1", None),
            ("+1", None),
            ("1w", None),
            ("1.5h", None),
            ("d", None),
            ("", None),
            ("7ä", None),
        ] {
            assert_eq!(seconds(text).ok(), expected, "{text:?}");
        }
    }
}
