//! Namespaces: nested, with properties, and removable only if empty.

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

/// Most bytes of all properties of a namespace.
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

    /// Returns the namespaces directly below `parent`, or at the top level: all of them for a
    /// principal that may read there, otherwise those that lead to readable objects.
    ///
    /// # Errors
    /// `NoSuchNamespace` if the parent does not exist; `Forbidden` if no namespace there leads to a
    /// readable object.
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
            // The number of namespaces for a page is unknown before their visibility is checked.
            limit = None;
        }
        let mut found = self.0.namespace_store.list(warehouse.id(), parent, after, limit).await?;
        if let VisibleNames::Part { namespaces, .. } = visible {
            found.retain(|ident| namespaces.contains(ident));
        }
        page.part(found, NamespaceIdent::key)
    }

    /// Succeeds if a namespace exists; every principal with a right to an object in it may check
    /// that.
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

    /// Creates a namespace. Returns its properties.
    ///
    /// # Errors
    /// `AlreadyExists`, `NoSuchNamespace` if its parent does not exist, `Forbidden` if its location
    /// is outside of the warehouse, or of its ancestors' homes.
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

    /// Returns the properties of a namespace.
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
    /// `NoSuchNamespace`, `NamespaceNotEmpty`, or `Forbidden` if it is protected.
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
    /// `NoSuchNamespace`; `UnprocessableEntity` if a key is both removed and set; `Forbidden` if
    /// the caller may not choose the new home.
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
        // The state is as requested; keys that were missing the first time are no longer known.
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

    /// Rejects invalid properties of a namespace, and those that only its managers may set or
    /// remove.
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

/// Returns the object that a list, or a new namespace, is below.
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
