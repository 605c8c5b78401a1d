//! Locations that a caller may choose: a principal that may write in a namespace may use the
//! namespace's home, and no other location of the warehouse.
//!
//! The home of a namespace is its `location`, or the directory of its name in the home of its
//! parent. So it is below the parent's home, unless a principal with more rights has set it
//! otherwise, and no other namespace has it.

use std::sync::Arc;

use iceberg::doc::TableProperties;
use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};

use super::rights::RightGuard;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, CatalogPrincipal, RightTarget};
use crate::storage::PATHS;
use crate::store::{
    CatalogStore, ChangeContext, LocationStore, NamespaceStore, NewRelationSite, Properties,
    no_such_namespace, not_apart,
};
use crate::warehouse::{TableLocation, Warehouse};

/// Property of a namespace: location of its tables.
pub(super) const LOCATION: &str = "location";

/// Scope of the locations that a caller may choose.
#[derive(Clone, Debug)]
pub(super) enum LocationScope {
    /// The whole warehouse.
    Warehouse,
    /// The homes of these namespaces, innermost first. Empty for a principal that may write in a
    /// table only.
    Homes(Vec<NamespaceIdent>),
}

/// A location that the caller has chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChosenLocation<'a> {
    /// Name of its field in the request.
    pub(super) field: &'a str,
    /// Location.
    pub(super) location: &'a str,
    /// Present location of the changed object, which it may keep.
    pub(super) own: Option<&'a str>,
}

impl LocationScope {
    /// Returns the locations that a principal may choose in a namespace, or for a top-level
    /// namespace.
    pub(super) fn of(
        rights: &RightGuard,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        namespace: Option<&NamespaceIdent>,
    ) -> LocationScope {
        let may = |object: RightTarget<'_>| {
            rights.allow(who, warehouse, AccessRight::Write, object).is_ok()
        };
        if may(RightTarget::Warehouse) {
            return LocationScope::Warehouse;
        }
        let mut homes = Vec::new();
        let mut next = namespace.cloned();
        // Rights to a namespace extend to its descendants: from the first ancestor without it on,
        // none has it.
        while let Some(ident) = next.filter(|it| may(RightTarget::Namespace(it))) {
            next = ident.parent();
            homes.push(ident);
        }
        LocationScope::Homes(homes)
    }

    /// Returns whether the scope covers all locations of an object.
    pub(super) fn has(&self, object: RightTarget<'_>) -> bool {
        match (self, object) {
            (LocationScope::Warehouse, _) => true,
            (LocationScope::Homes(homes), RightTarget::Namespace(ident)) => homes.contains(ident),
            (LocationScope::Homes(_), _) => false,
        }
    }
}

impl<'a> ChosenLocation<'a> {
    /// Creates the chosen location of a new object.
    pub(super) const fn anew(field: &'a str, location: &'a str) -> ChosenLocation<'a> {
        ChosenLocation { field, location, own: None }
    }
}

/// A namespace and its ancestors, innermost first, with their properties.
type Chain = [(NamespaceIdent, Properties)];

/// Rules for locations of tables, views, functions and namespaces. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct LocationRules {
    namespace_store: NamespaceStore,
    location_store: LocationStore,
}

impl LocationRules {
    pub(super) fn new(store: &CatalogStore) -> LocationRules {
        LocationRules {
            namespace_store: store.namespaces().clone(),
            location_store: store.locations().clone(),
        }
    }

    /// Rejects a location for a table, view or function outside of the caller's scope.
    ///
    /// # Errors
    /// `BadRequest` if it is invalid; `Forbidden`.
    pub(super) async fn check_scope(
        &self,
        warehouse: &Warehouse,
        scope: &LocationScope,
        chosen: ChosenLocation<'_>,
    ) -> Result<()> {
        warehouse.check_location(chosen.location)?;
        let LocationScope::Homes(namespaces) = scope else { return Ok(()) };
        let place: TableLocation = chosen.location.parse()?;
        let own = chosen.own.and_then(|it| it.parse::<TableLocation>().ok());
        if own.is_some_and(|own| place == own || place.is_below(&own)) {
            return Ok(());
        }
        let homes = self.homes_of(warehouse, namespaces).await?;
        // A location must be below a home: the home itself is shared.
        if homes.iter().any(|(_, home)| home.parse().is_ok_and(|it| place.is_below(&it))) {
            return Ok(());
        }
        Err(refusal(warehouse, &homes, chosen))
    }

    /// Rejects a home for a namespace outside of the caller's scope.
    ///
    /// # Errors
    /// As in [`LocationRules::check_scope`].
    pub(super) async fn check_home(
        &self,
        warehouse: &Warehouse,
        scope: &LocationScope,
        location: &str,
    ) -> Result<()> {
        let LocationScope::Homes(namespaces) = scope else { return Ok(()) };
        let place: TableLocation = location.parse()?;
        let homes = self.homes_of(warehouse, namespaces).await?;
        let is_within = |home: TableLocation| place == home || place.is_below(&home);
        if homes.iter().any(|(_, home)| home.parse().is_ok_and(is_within)) {
            return Ok(());
        }
        Err(refusal(warehouse, &homes, ChosenLocation { field: LOCATION, location, own: None }))
    }

    /// Rejects a change that gives a namespace a home which the caller may not choose. Returns the
    /// `location` that the check was made against.
    ///
    /// # Errors
    /// `NoSuchNamespace`; `Forbidden`.
    pub(super) async fn check_new_home(
        &self,
        warehouse: &Warehouse,
        scope: &LocationScope,
        ident: &NamespaceIdent,
        location: Option<&str>,
    ) -> Result<Option<String>> {
        let mut chain = self.chain_of(warehouse, ident).await?;
        let first = chain.first_mut().ok_or_else(|| no_such_namespace(ident))?;
        let known = first.1.remove(LOCATION);
        match location {
            Some(location) => self.check_home(warehouse, scope, location).await?,
            // The property is removed: the namespace falls back to the default home.
            None if known.is_some() => {
                self.check_home(warehouse, scope, &home(warehouse, &chain)).await?;
            }
            None => {}
        }
        Ok(known)
    }

    /// Returns the default location of a new table or view: a directory of its own in the home of
    /// its namespace. It was never used before, even after renames, drops and recreations.
    ///
    /// # Errors
    /// `NoSuchNamespace`.
    pub(super) async fn new_location(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        uuid: Uuid,
    ) -> Result<String> {
        let home = home(warehouse, &self.chain_of(warehouse, &ident.namespace).await?);
        let own = warehouse.location_in(&home, &ident.name, uuid);
        if !warehouse.has_plain_locations() {
            return Ok(own);
        }
        let plain = warehouse.directory_in(&home, std::slice::from_ref(&ident.name));
        // That directory may be the home of a namespace, whose files would then lie in the table's.
        let levels = ident.namespace.levels().iter().chain([&ident.name]);
        let is_home = match NamespaceIdent::new(levels.map(|it| &**it)) {
            Ok(beside) => self.namespace_store.namespace(warehouse.id(), &beside).await?.is_some(),
            Err(_) => false,
        };
        if !is_home && self.is_untouched(warehouse, &plain).await? {
            return Ok(plain);
        }
        if !self.location_store.is_shared(&own, "").await? {
            return Ok(own);
        }
        let aside = warehouse.location_aside(ident);
        match self.is_untouched(warehouse, &aside).await? {
            true => Ok(aside),
            false => Ok(warehouse.location_in(warehouse.root(), &ident.name, uuid)),
        }
    }

    /// Reads the state that a new table must fit: its location, which is `chosen` or that of
    /// [`LocationRules::new_location`], and the objects with its name or with files there.
    ///
    /// # Errors
    /// `NoSuchNamespace`.
    pub(super) async fn site_of_new(
        &self,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        uuid: Uuid,
        chosen: Option<&str>,
    ) -> Result<NewRelationSite> {
        let mut chosen = chosen.map(str::to_owned);
        if chosen.is_none() && warehouse.has_plain_locations() {
            // Whether it is free also depends on files, which the transaction does not check.
            chosen = Some(self.new_location(warehouse, ident, uuid).await?);
        }
        let (for_home, name) = (Arc::clone(warehouse), ident.name.clone());
        let locate = move |chain: &Chain| match &chosen {
            Some(location) => location.clone(),
            None => for_home.location_in(&home(&for_home, chain), &name, uuid),
        };
        let site = self.location_store.site_of_new(warehouse.id(), ident, locate).await?;
        site.ok_or_else(|| no_such_namespace(&ident.namespace))
    }

    /// Returns whether no relation has ever used a location: the store no longer lists a relation
    /// that was unregistered, but its files remain.
    async fn is_untouched(&self, warehouse: &Warehouse, location: &str) -> Result<bool> {
        let is_shared = self.location_store.is_shared(location, "").await?;
        Ok(!is_shared && warehouse.files().is_empty(location).await?)
    }

    /// Rejects a location that a commit sets for a new table, as [`LocationRules::check_scope`]
    /// does. A location outside of the namespace's home that staging may have returned is accepted.
    ///
    /// # Errors
    /// As in [`LocationRules::check_scope`].
    pub(super) async fn check_scope_of_new(
        &self,
        warehouse: &Warehouse,
        scope: &LocationScope,
        ident: &TableIdent,
        location: &str,
    ) -> Result<()> {
        if warehouse.has_plain_locations() && location == warehouse.location_aside(ident) {
            return Ok(());
        }
        self.check_scope(warehouse, scope, ChosenLocation::anew("location", location)).await
    }

    /// Returns the home of a namespace to create, as a value for its `location`. If a table uses
    /// the directory of its name, the home is beside it: no relation could be placed in that
    /// directory.
    ///
    /// # Errors
    /// `NoSuchNamespace` if its parent does not exist.
    pub(super) async fn home_of_new(
        &self,
        warehouse: &Warehouse,
        ident: &NamespaceIdent,
    ) -> Result<String> {
        let mut chain = vec![(ident.clone(), Properties::new())];
        if let Some(parent) = ident.parent() {
            chain.extend(self.chain_of(warehouse, &parent).await?);
        }
        let home = home(warehouse, &chain);
        if self.location_store.is_within_another(&home).await? {
            // No name in a path contains this character.
            let other = node::hex::encode(Uuid::v4()?.as_bytes());
            return Ok(format!("{home}~{other}/"));
        }
        Ok(format!("{home}/"))
    }

    /// Returns the homes of a chain of namespaces, each of which is in the next one.
    async fn homes_of(
        &self,
        warehouse: &Warehouse,
        namespaces: &[NamespaceIdent],
    ) -> Result<Vec<(NamespaceIdent, String)>> {
        let Some(innermost) = namespaces.first() else { return Ok(Vec::new()) };
        let chain = self.chain_of(warehouse, innermost).await?;
        let above = (0..chain.len()).map(|at| &chain[at..]).take(namespaces.len());
        Ok(above.map(|chain| (chain[0].0.clone(), home(warehouse, chain))).collect())
    }

    async fn chain_of(
        &self,
        warehouse: &Warehouse,
        ident: &NamespaceIdent,
    ) -> Result<Vec<(NamespaceIdent, Properties)>> {
        let chain = self.namespace_store.properties_up(warehouse.id(), ident).await?;
        match chain.first() {
            Some((first, _)) if first == ident => Ok(chain),
            _ => Err(no_such_namespace(ident)),
        }
    }

    /// Rejects a location that holds files of another table or view: a principal that creates a
    /// table has access to the files at its location. Operators are exempt.
    pub(super) async fn check_apart(
        &self,
        context: &ChangeContext,
        location: &str,
        own_id: &str,
    ) -> Result<()> {
        if context.is_operator || !self.location_store.is_shared(location, own_id).await? {
            return Ok(());
        }
        Err(not_apart(location))
    }
}

/// Rejects file locations that a table may not have: outside of the warehouse and, except for
/// operators, outside of the table's own location. Credentials cover all of them, so no table may
/// claim a location that other tables may use later. Locations set `before` may stay.
pub(super) fn check_paths(
    context: &ChangeContext,
    warehouse: &Warehouse,
    location: &str,
    properties: &TableProperties,
    before: Option<&TableProperties>,
) -> Result<()> {
    for name in PATHS {
        let Some(path) = properties.get(name) else { continue };
        if before.and_then(|it| it.get(name)).is_some_and(|it| it == path) {
            continue;
        }
        let named = |error: CatalogError| {
            CatalogError::new(error.kind, format!("`{name}`: {}", error.message))
        };
        warehouse.check_location(&path).map_err(named)?;
        let (own, place): (TableLocation, TableLocation) = (location.parse()?, path.parse()?);
        if !context.is_operator && own != place && !place.is_below(&own) {
            let message = format!(
                "`{name}`: only an operator may have files elsewhere than in \
                the table's location"
            );
            return Err(CatalogError::new(ErrorReason::Forbidden, message));
        }
    }
    Ok(())
}

/// Returns the home of the first namespace of a chain.
fn home(warehouse: &Warehouse, chain: &Chain) -> String {
    let levels = chain.first().map(|(ident, _)| ident.levels()).unwrap_or_default();
    let nearest =
        chain.iter().find_map(|(ident, properties)| Some((ident, properties.get(LOCATION)?)));
    match nearest {
        Some((above, base)) => warehouse.directory_in(base, &levels[above.levels().len()..]),
        None => warehouse.directory_in(warehouse.root(), levels),
    }
}

fn refusal(
    warehouse: &Warehouse,
    homes: &[(NamespaceIdent, String)],
    chosen: ChosenLocation<'_>,
) -> CatalogError {
    let ChosenLocation { field, location, own } = chosen;
    let excerpt = |text: &str| text.chars().take(200).collect::<String>();
    let place = match (homes.first(), own) {
        (Some((ident, home)), _) => format!("`{}`, the home of namespace {ident}", excerpt(home)),
        (None, Some(own)) => format!("`{}`, where it is now", excerpt(own)),
        (None, None) => "any place that is yours".to_owned(),
    };
    let message = format!(
        "`{field}`: the location `{}` is not below {place}; other places need the right to write \
         in the warehouse `{}`",
        excerpt(location),
        warehouse.name()
    );
    CatalogError::new(ErrorReason::Forbidden, message)
}
