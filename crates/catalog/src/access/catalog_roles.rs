//! Catalog roles: names for sets of rights in one warehouse, which roles have. Principals have
//! roles, and what is granted to a catalog role is granted to all who have a role that has it: as
//! Polaris has it, two levels and no more.

use std::collections::HashMap;

use super::grants::RightSet;
use super::principal_ids::CATALOG_ROLE_PREFIX;
use super::roles;
use super::{AccessControl, entities, only_operators};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{CatalogPrincipal, RightTarget};
use crate::store::Properties;
use crate::warehouse::Warehouse;

/// Most catalog roles of all warehouses together.
pub const CATALOG_ROLES_MAX: usize = 10_000;

/// Most roles that catalog roles are given to, of all together.
pub const HOLDERS_MAX: usize = 50_000;

/// A catalog role and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogRoleRecord {
    /// The id of its warehouse.
    pub warehouse: String,
    /// Names it there.
    pub name: String,
    /// Names of roles, in order.
    pub holders: Vec<String>,
}

/// Returns what grants know a catalog role by.
#[must_use]
pub fn catalog_role_principal(warehouse: &str, name: &str) -> String {
    format!("{CATALOG_ROLE_PREFIX}{warehouse}:{name}")
}

/// All of them, and what follows for roles.
#[derive(Debug, Default)]
pub(super) struct CatalogRoles {
    /// By warehouse and name, in order.
    all: Vec<CatalogRoleRecord>,
    /// Ids of catalog roles in grants, by the name of the role that has them.
    of_role: HashMap<Box<str>, Vec<Box<str>>>,
}

impl CatalogRoles {
    pub(super) fn new(mut all: Vec<CatalogRoleRecord>) -> CatalogRoles {
        let mut of_role: HashMap<Box<str>, Vec<Box<str>>> = HashMap::new();
        for it in &all {
            let principal = catalog_role_principal(&it.warehouse, &it.name);
            for role in &it.holders {
                of_role.entry(role.as_str().into()).or_default().push(principal.as_str().into());
            }
        }
        // By bytes, whatever the database's order is.
        all.sort_by(|one, other| key(one).cmp(&key(other)));
        CatalogRoles { all, of_role }
    }

    /// Returns what grants know those by that a role has.
    pub(super) fn of_role(&self, role: &str) -> impl Iterator<Item = &str> {
        self.of_role.get(role).into_iter().flatten().map(|it| &**it)
    }

    /// The one of this name.
    pub(super) fn find(&self, warehouse: &str, name: &str) -> Option<&CatalogRoleRecord> {
        let found = self.all.binary_search_by(|it| key(it).cmp(&(warehouse, name)));
        found.ok().and_then(|index| self.all.get(index))
    }

    fn of_warehouse(&self, warehouse: &str) -> impl Iterator<Item = &CatalogRoleRecord> {
        self.all.iter().filter(move |it| it.warehouse == warehouse)
    }
}

fn key(record: &CatalogRoleRecord) -> (&str, &str) {
    (&record.warehouse, &record.name)
}

pub(super) fn no_such(name: &str) -> CatalogError {
    let excerpt: String = name.chars().take(100).collect();
    CatalogError::new(ErrorReason::NotFound, format!("Catalog role does not exist: {excerpt}"))
}

/// Roles of a warehouse, in the form of Polaris.
#[derive(Clone, Copy, Debug)]
pub struct CatalogRoleRegistry<'a>(pub(super) &'a AccessControl);

impl CatalogRoleRegistry<'_> {
    /// Makes a catalog role.
    ///
    /// # Errors
    /// `Forbidden` for whoever is no operator; `AlreadyExists`; `BadRequest` when the name is none,
    /// there are too many, or its properties are.
    pub async fn create_catalog_role(
        self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        name: &str,
        properties: &Properties,
    ) -> Result<()> {
        only_operators(who)?;
        roles::check_name(name)?;
        entities::check_properties(properties)?;
        self.0.0.store.insert_catalog_role(warehouse.id(), name, properties).await?;
        self.0.changed().await
    }

    /// Removes a catalog role and what was granted to it.
    ///
    /// # Errors
    /// `Forbidden` for whoever is no operator; `NotFound`.
    pub async fn delete_catalog_role(
        self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        name: &str,
    ) -> Result<()> {
        only_operators(who)?;
        self.0.0.store.delete_catalog_role(warehouse.id(), name).await?;
        self.0.changed().await
    }

    /// Gives a catalog role to a role, or takes it from it.
    ///
    /// # Errors
    /// `Forbidden` for whoever is no operator; `NotFound` when one of them is not there;
    /// `BadRequest` when too many are given.
    pub async fn give_catalog_role(
        self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        name: &str,
        role: &str,
        is_to_have: bool,
    ) -> Result<()> {
        only_operators(who)?;
        self.0.0.store.give_catalog_role(warehouse.id(), name, role, is_to_have).await?;
        self.0.changed().await
    }

    /// The catalog roles of a warehouse, by name.
    ///
    /// # Errors
    /// `Forbidden` without the right to grant on the warehouse.
    pub fn list(
        self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
    ) -> Result<Vec<CatalogRoleRecord>> {
        self.0.may_grant(who, warehouse, RightTarget::Warehouse, RightSet::NONE)?;
        let loaded = self.0.0.loaded.read();
        Ok(loaded.roles.catalog_roles.of_warehouse(warehouse.id()).cloned().collect())
    }

    /// Returns a catalog role.
    ///
    /// # Errors
    /// `Forbidden` without the right to grant on the warehouse; `NotFound`.
    pub fn catalog_role(
        self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        name: &str,
    ) -> Result<CatalogRoleRecord> {
        self.0.may_grant(who, warehouse, RightTarget::Warehouse, RightSet::NONE)?;
        let loaded = self.0.0.loaded.read();
        let found = loaded.roles.catalog_roles.find(warehouse.id(), name);
        found.cloned().ok_or_else(|| no_such(name))
    }

    /// Views that something was granted on to a principal, each by the path of its namespace and
    /// its name. Who asks was seen to be allowed to see grants.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn granted_views(
        self,
        warehouse: &Warehouse,
        principal: &str,
    ) -> Result<Vec<(String, String)>> {
        self.0.0.store.granted_views(warehouse.id(), principal).await
    }
}
