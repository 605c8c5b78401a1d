//! Namespaces: nested, with properties, empty when they go.

use std::sync::Arc;

use iceberg::ident::NamespaceIdent;

use super::dropped::{UNDROP_RETENTION, seconds};
use super::homes::{LOCATION, LocationRules, LocationScope};
use super::keys::ChangeRunner;
use super::managed_updates::PROTECTED;
use super::protection::ProtectionRules;
use super::rights::RightGuard;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::page::{ListPage, PageRequest};
use crate::principal::{AccessRight, CatalogPrincipal, ChangeCall, RightTarget, VisibleNames};
use crate::store::{
    ChangeContext, NamespaceStore, Properties, PropertiesChange, PropertiesChanged,
    no_such_namespace,
};
use crate::warehouse::Warehouse;

/// Most properties of a namespace.
pub const PROPERTIES_MAX: usize = 1000;

/// Most bytes that properties of a namespace have together.
pub const PROPERTIES_BYTES_MAX: usize = 1 << 20;

/// Namespaces and their properties. Cheap to clone.
#[derive(Clone)]
pub struct NamespaceService(Arc<NamespaceServiceInner>);

struct NamespaceServiceInner {
    namespace_store: NamespaceStore,
    locations: LocationRules,
    rights: RightGuard,
    changes: ChangeRunner,
    protection: ProtectionRules,
}

impl std::fmt::Debug for NamespaceService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamespaceService").finish_non_exhaustive()
    }
}

impl NamespaceService {
    pub(super) fn new(
        namespace_store: NamespaceStore,
        locations: LocationRules,
        rights: RightGuard,
        changes: ChangeRunner,
        protection: ProtectionRules,
    ) -> NamespaceService {
        NamespaceService(Arc::new(NamespaceServiceInner {
            namespace_store,
            locations,
            rights,
            changes,
            protection,
        }))
    }

    /// Namespaces directly below `parent`, or those of the first level: all of them for a principal
    /// that may read there, and otherwise those that lead to what it may read.
    ///
    /// # Errors
    /// `NoSuchNamespace` when there is no such parent; `Forbidden` when nothing there leads to
    /// what may be read.
    pub async fn list_namespaces(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        parent: Option<&NamespaceIdent>,
        page: &PageRequest,
    ) -> Result<ListPage<NamespaceIdent>> {
        let visible = self.0.rights.listed_names(who, warehouse, parent)?;
        let (after, mut limit) = page.bounds()?;
        if matches!(visible, VisibleNames::Part { .. }) {
            // How many of them fill a page is not known before they are seen.
            limit = None;
        }
        let mut found = self.0.namespace_store.list(warehouse.id(), parent, after, limit).await?;
        if let VisibleNames::Part { namespaces, .. } = visible {
            found.retain(|ident| namespaces.contains(ident));
        }
        page.part(found, NamespaceIdent::key)
    }

    /// Returns whether a namespace is there, which whoever has a right to something in it may know.
    ///
    /// # Errors
    /// `Forbidden`, `NoSuchNamespace`.
    pub async fn namespace_exists(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &NamespaceIdent,
    ) -> Result<()> {
        if self.0.rights.sees_all(who, warehouse, Some(ident)) {
            self.0.rights.allow(
                who,
                warehouse,
                AccessRight::Read,
                RightTarget::Namespace(ident),
            )?;
        }
        properties_of(&self.0.namespace_store, warehouse, ident).await.map(drop)
    }

    /// Makes a namespace. Answers its properties.
    ///
    /// # Errors
    /// `AlreadyExists`, `NoSuchNamespace` when the one it is to be in is not there, `Forbidden`
    /// when its location is outside of the warehouse, or of the homes of those that it is in.
    pub async fn create_namespace(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &NamespaceIdent,
        mut properties: Properties,
    ) -> Result<Properties> {
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Write,
            below(ident.parent().as_ref()),
        )?;
        if warehouse.has_plain_locations() && !properties.contains_key(LOCATION) {
            let location = self.0.locations.home_of_new(warehouse, ident).await?;
            properties.insert(LOCATION.to_owned(), location);
        }
        check(warehouse, &properties)?;
        let above = ident.parent();
        self.check_rules(call.who, warehouse, below(above.as_ref()), &[], &properties)?;
        let scope = LocationScope::of(&self.0.rights, call.who, warehouse, above.as_ref());
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let (again_in, again) = (Arc::clone(&warehouse), ident.clone());
        let service = self.clone();
        let act = async move |context: ChangeContext| {
            if let Some(location) = properties.get(LOCATION) {
                service.0.locations.check_home(&warehouse, &scope, location).await?;
            }
            service
                .0
                .namespace_store
                .insert_namespace(&context, warehouse.id(), &ident, &properties)
                .await?;
            Ok(properties)
        };
        let service = self.clone();
        let again =
            async move || properties_of(&service.0.namespace_store, &again_in, &again).await;
        self.0.changes.run(call, act, again).await
    }

    /// Returns what a namespace says of itself.
    ///
    /// # Errors
    /// `NoSuchNamespace`.
    pub async fn load_namespace(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &NamespaceIdent,
    ) -> Result<Properties> {
        self.0.rights.allow(who, warehouse, AccessRight::Read, RightTarget::Namespace(ident))?;
        properties_of(&self.0.namespace_store, warehouse, ident).await
    }

    /// Removes a namespace.
    ///
    /// # Errors
    /// `NoSuchNamespace`, `NamespaceNotEmpty`, or `Forbidden` when it is protected.
    pub async fn drop_namespace(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &NamespaceIdent,
    ) -> Result<()> {
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Manage,
            RightTarget::Namespace(ident),
        )?;
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let service = self.clone();
        let act = async move |context: ChangeContext| {
            service.0.protection.require_unprotected_namespace(&warehouse, &ident).await?;
            service.0.namespace_store.drop_namespace(&context, warehouse.id(), &ident).await?;
            service.0.rights.follow_moves().await;
            Ok(())
        };
        self.0.changes.run(call, act, async || Ok(())).await
    }

    /// Removes properties of a namespace and sets others.
    ///
    /// # Errors
    /// `NoSuchNamespace`; `UnprocessableEntity` when a key is to be removed and to be set;
    /// `Forbidden` when it is to have another home than whoever asks may choose.
    pub async fn update_namespace(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &NamespaceIdent,
        removals: Vec<String>,
        updates: Properties,
    ) -> Result<PropertiesChanged> {
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Write,
            RightTarget::Namespace(ident),
        )?;
        check(warehouse, &updates)?;
        self.check_rules(call.who, warehouse, RightTarget::Namespace(ident), &removals, &updates)?;
        if let Some(key) = removals.iter().find(|key| updates.contains_key(*key)) {
            let message =
                format!("Invalid namespace update: cannot simultaneously set and remove `{key}`");
            return Err(CatalogError::new(ErrorReason::UnprocessableEntity, message));
        }
        // What was asked for is there: a key that was missing the first time is not known any more.
        let done = PropertiesChanged {
            updated: updates.keys().cloned().collect(),
            removed: removals.clone(),
            missing: Vec::new(),
        };
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let moves = updates.contains_key(LOCATION) || removals.iter().any(|it| it == LOCATION);
        let scope = LocationScope::of(&self.0.rights, call.who, &warehouse, Some(&ident));
        let service = self.clone();
        let act = async move |context: ChangeContext| {
            let to = updates.get(LOCATION).map(String::as_str);
            let known = match moves {
                true => {
                    Some(service.0.locations.check_new_home(&warehouse, &scope, &ident, to).await?)
                }
                false => None,
            };
            let change = PropertiesChange { removals, updates, known_location: known };
            service
                .0
                .namespace_store
                .update_namespace(&context, warehouse.id(), &ident, change)
                .await
        };
        self.0.changes.run(call, act, async || Ok(done)).await
    }

    /// Refuses properties of a namespace that mean nothing, and those that only who manages it may
    /// set or remove.
    fn check_rules(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        object: RightTarget<'_>,
        removals: &[String],
        updates: &Properties,
    ) -> Result<()> {
        if let Some(text) = updates.get(UNDROP_RETENTION) {
            seconds(text)?;
        }
        let mut names = removals.iter().chain(updates.keys());
        if names.any(|it| it == PROTECTED || it == UNDROP_RETENTION) {
            self.0.rights.allow(who, warehouse, AccessRight::Manage, object)?;
        }
        Ok(())
    }
}

/// Returns the properties of a namespace.
///
/// # Errors
/// `NoSuchNamespace`.
pub(super) async fn properties_of(
    namespace_store: &NamespaceStore,
    warehouse: &Warehouse,
    ident: &NamespaceIdent,
) -> Result<Properties> {
    let found = namespace_store.namespace(warehouse.id(), ident).await?;
    found.ok_or_else(|| no_such_namespace(ident))
}

/// Returns what a list is of, and what a new namespace is in.
fn below(parent: Option<&NamespaceIdent>) -> RightTarget<'_> {
    parent.map_or(RightTarget::Warehouse, RightTarget::Namespace)
}

fn check(warehouse: &Warehouse, properties: &Properties) -> Result<()> {
    let bytes: usize = properties.iter().map(|(key, value)| key.len() + value.len()).sum();
    if properties.len() > PROPERTIES_MAX || bytes > PROPERTIES_BYTES_MAX {
        let message = format!(
            "a namespace has at most {PROPERTIES_MAX} properties with {PROPERTIES_BYTES_MAX} bytes"
        );
        return Err(CatalogError::new(ErrorReason::BadRequest, message));
    }
    properties.get(LOCATION).map_or(Ok(()), |location| warehouse.check_location(location))
}
