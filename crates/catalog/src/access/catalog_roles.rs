//! Catalog roles: names for sets of rights in one warehouse, which are assigned to roles. Rights
//! granted to a catalog role apply to every principal with a role that has it: two levels and no
//! more, as in Polaris.

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

/// Most assignments of catalog roles to roles, in total.
pub const HOLDERS_MAX: usize = 50_000;

/// Catalog role and the roles that hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogRoleRecord {
    /// Id of its warehouse.
    pub warehouse: String,
    /// Name in the warehouse.
    pub name: String,
    /// Names of roles, in order.
    pub holders: Vec<String>,
}

/// Returns the principal id of a catalog role in grants.
#[must_use]
pub fn catalog_role_principal(warehouse: &str, name: &str) -> String {
    format!("{CATALOG_ROLE_PREFIX}{warehouse}:{name}")
}

/// All catalog roles, and their index by role.
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
        // In byte order, independent of the database's collation.
        all.sort_by(|one, other| key(one).cmp(&key(other)));
        CatalogRoles { all, of_role }
    }

    /// Returns the principal ids of the catalog roles that a role has.
    pub(super) fn of_role(&self, role: &str) -> impl Iterator<Item = &str> {
        self.of_role.get(role).into_iter().flatten().map(|it| &**it)
    }

    /// Returns the catalog role of this name.
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

/// Catalog roles of warehouses, as in Polaris.
#[derive(Clone, Copy, Debug)]
pub struct CatalogRoleRegistry<'a>(pub(super) &'a AccessControl);

impl CatalogRoleRegistry<'_> {
    /// Creates a catalog role.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator; `AlreadyExists`; `BadRequest` if the name is
    /// invalid, or there are too many catalog roles or properties.
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

    /// Removes a catalog role and the grants to it.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator; `NotFound`.
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

    /// Assigns a catalog role to a role, or removes the assignment.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator; `NotFound` if one of them does not exist;
    /// `BadRequest` if there are too many assignments.
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

    /// Returns the catalog roles of a warehouse, by name.
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

    /// Returns the views on which a principal has grants, each by the path of its namespace and its
    /// name. The caller has already checked that grants may be shown.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn granted_views(
        self,
        warehouse: &Warehouse,
        principal: &str,
    ) -> Result<Vec<(String, String)>> {
        self.0.0.store.granted_views(warehouse.id(), principal).await
    }
}
