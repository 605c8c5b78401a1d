//! Protection: a protected object cannot be dropped, purged, renamed or unregistered until a
//! principal that may manage it lifts the protection. It is set by a flag of a table, view or
//! namespace, or by the property `protected`, which only principals that may manage the object can
//! set and remove.

use std::sync::Arc;

use iceberg::doc::TableProperties as DocProperties;
use iceberg::ident::{NamespaceIdent, TableIdent};

use super::documents::RelationDocument as _;
use super::entries::RelationEntries;
use super::managed_updates::PROTECTED;
use super::rights::RightGuard;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, CatalogPrincipal, ChangeCall, RightTarget};
use crate::store::{
    CatalogStore, NamespaceStore, RelationKind, RelationStore, RuleStore, RuleSubject,
    no_such_namespace,
};
use crate::warehouse::Warehouse;

/// Sources of an object's protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProtectionLevel {
    /// True if protected by a flag.
    pub by_flag: bool,
    /// True if protected by its property.
    pub by_property: bool,
}

impl ProtectionLevel {
    /// Returns whether it is protected.
    #[must_use]
    pub const fn is_on(self) -> bool {
        self.by_flag || self.by_property
    }

    /// Rejects an operation on a protected object.
    fn refuse(self, what: &str) -> Result<()> {
        let how = match (self.by_flag, self.by_property) {
            (false, false) => return Ok(()),
            (true, false) => "lift that first by `protection` of the management interface",
            (false, true) => "set its property `protected` to `false` first",
            (true, true) => {
                "lift that first by `protection` of the management interface, and set its property \
                 `protected` to `false`"
            }
        };
        Err(CatalogError::new(ErrorReason::Forbidden, format!("{what} is protected: {how}")))
    }
}

fn is_true(value: &str) -> bool {
    value.eq_ignore_ascii_case("true")
}

fn says(properties: &DocProperties) -> bool {
    properties.get(PROTECTED).is_some_and(|it| is_true(&it))
}

/// Checks and changes the protection of objects.
#[derive(Clone)]
pub struct ProtectionRules {
    namespace_store: NamespaceStore,
    relation_store: RelationStore,
    rule_store: RuleStore,
    rights: RightGuard,
    entries: RelationEntries,
}

impl std::fmt::Debug for ProtectionRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProtectionRules").finish_non_exhaustive()
    }
}

impl ProtectionRules {
    pub(super) fn new(
        store: &CatalogStore,
        rights: RightGuard,
        entries: RelationEntries,
    ) -> ProtectionRules {
        ProtectionRules {
            namespace_store: store.namespaces().clone(),
            relation_store: store.relations().clone(),
            rule_store: store.rules().clone(),
            rights,
            entries,
        }
    }

    /// Rejects a protected table or view. One that does not exist is not protected.
    pub(super) async fn require_unprotected(
        &self,
        warehouse: &Warehouse,
        kind: RelationKind,
        ident: &TableIdent,
    ) -> Result<()> {
        let protection = self.protection_of(warehouse, ident).await?;
        let what = format!("{} {ident}", kind.title());
        protection.map_or(Ok(()), |(_, it)| it.refuse(&what))
    }

    /// Rejects a protected namespace.
    pub(super) async fn require_unprotected_namespace(
        &self,
        warehouse: &Warehouse,
        ident: &NamespaceIdent,
    ) -> Result<()> {
        let protection = self.protection_of_namespace(warehouse, ident).await?;
        protection.map_or(Ok(()), |it| it.refuse(&format!("Namespace {ident}")))
    }

    /// Returns the id of a table or view, and its protection.
    async fn protection_of(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Result<Option<(String, ProtectionLevel)>> {
        let Some(found) = self.relation_store.pointer(warehouse.id(), ident).await? else {
            return Ok(None);
        };
        let by_flag =
            self.rule_store.is_protected(warehouse.id(), RuleSubject::Relation(&found.id)).await?;
        // An unreadable document does not protect.
        let entry = self.entries.entry(warehouse, found.kind, ident).await.ok();
        let by_property = entry.is_some_and(|entry| match (entry.table(), entry.view()) {
            (Some(doc), _) => says(doc.properties()),
            (None, Some(doc)) => says(doc.properties()),
            (None, None) => false,
        });
        Ok(Some((found.id, ProtectionLevel { by_flag, by_property })))
    }

    async fn protection_of_namespace(
        &self,
        warehouse: &Warehouse,
        ident: &NamespaceIdent,
    ) -> Result<Option<ProtectionLevel>> {
        let Some(properties) = self.namespace_store.namespace(warehouse.id(), ident).await? else {
            return Ok(None);
        };
        let by_flag =
            self.rule_store.is_protected(warehouse.id(), RuleSubject::Namespace(ident)).await?;
        let by_property = properties.get(PROTECTED).is_some_and(|it| is_true(it));
        Ok(Some(ProtectionLevel { by_flag, by_property }))
    }

    /// Returns whether a namespace, or a table or view of it, is protected.
    ///
    /// # Errors
    /// `NoSuchNamespace`, `NoSuchTable`.
    pub async fn protection(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        namespace: &NamespaceIdent,
        ident: Option<&TableIdent>,
    ) -> Result<ProtectionLevel> {
        let Some(ident) = ident else {
            self.rights.allow(
                who,
                warehouse,
                AccessRight::Read,
                RightTarget::Namespace(namespace),
            )?;
            let found = self.protection_of_namespace(warehouse, namespace).await?;
            return found.ok_or_else(|| no_such_namespace(namespace));
        };
        self.rights.allow(who, warehouse, AccessRight::Read, RightTarget::Relation(ident))?;
        let found = self.protection_of(warehouse, ident).await?;
        found.map(|(_, it)| it).ok_or_else(|| RelationKind::Table.no_such(ident))
    }

    /// Protects a namespace, or a table or view of it, or lifts the protection. Its property is not
    /// changed.
    ///
    /// # Errors
    /// `NoSuchNamespace`, `NoSuchTable`.
    pub async fn protect(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        namespace: &NamespaceIdent,
        ident: Option<&TableIdent>,
        is_protected: bool,
    ) -> Result<ProtectionLevel> {
        let (service, rules) = (self, &self.rule_store);
        let Some(ident) = ident else {
            service.rights.allow(
                call.who,
                warehouse,
                AccessRight::Manage,
                RightTarget::Namespace(namespace),
            )?;
            let found = service.protection_of_namespace(warehouse, namespace).await?;
            let found = found.ok_or_else(|| no_such_namespace(namespace))?;
            rules.protect(warehouse.id(), RuleSubject::Namespace(namespace), is_protected).await?;
            return Ok(ProtectionLevel { by_flag: is_protected, ..found });
        };
        service.rights.allow(
            call.who,
            warehouse,
            AccessRight::Manage,
            RightTarget::Relation(ident),
        )?;
        // A drop in progress is finished first.
        let _lock = service.entries.lock(warehouse, ident).await;
        let found = service.protection_of(warehouse, ident).await?;
        let (id, found) = found.ok_or_else(|| RelationKind::Table.no_such(ident))?;
        rules.protect(warehouse.id(), RuleSubject::Relation(&id), is_protected).await?;
        Ok(ProtectionLevel { by_flag: is_protected, ..found })
    }
}
