//! Principal roles, which are roles; and their catalog roles.
//!
//! # References
//! - <https://github.com/apache/polaris/blob/main/spec/polaris-management-service.yml>

use axum::response::Response;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::{EntityUpdate, EntityVersion, answer, missing};
use crate::access::{
    CatalogRoleRecord, EntityKey, EntityKind, EntityRecord, RoleRecord, no_such_role,
    only_operators,
};
use crate::error::Result;
use crate::http::request::CatalogRequest;
use crate::store::Properties;

#[derive(Serialize)]
struct PolarisRoleList<T> {
    roles: Vec<T>,
}

#[derive(Serialize)]
struct PrincipalRole {
    name: String,
    federated: bool,
    #[serde(flatten)]
    versioned: EntityVersion,
}

#[derive(Serialize)]
struct CatalogRole {
    name: String,
    #[serde(flatten)]
    versioned: EntityVersion,
}

/// A role in a request. Fields that only responses have are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewPolarisRole {
    pub(super) name: String,
    #[serde(default)]
    federated: Option<bool>,
    #[serde(default)]
    properties: Option<Properties>,
    #[serde(default, rename = "createTimestamp")]
    _created: IgnoredAny,
    #[serde(default, rename = "lastUpdateTimestamp")]
    _updated: IgnoredAny,
    #[serde(default, rename = "entityVersion")]
    _version: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CreateRole {
    principal_role: NewPolarisRole,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OfCatalog {
    catalog_role: NewPolarisRole,
}

impl PrincipalRole {
    fn of(name: String, entity: EntityRecord) -> PrincipalRole {
        PrincipalRole { name, federated: false, versioned: EntityVersion::of(entity, None) }
    }
}

impl CatalogRole {
    fn of(name: String, entity: EntityRecord) -> CatalogRole {
        CatalogRole { name, versioned: EntityVersion::of(entity, None) }
    }
}

/// Returns the principal roles of these names.
pub(super) async fn answer_with(
    input: &CatalogRequest<'_>,
    names: Vec<String>,
) -> Result<Response> {
    let mut entities = input.context.access.entities().list(EntityKind::Role, "").await?;
    let roles = names.into_iter().map(|name| {
        let entity = entities.remove(&name).unwrap_or_default();
        PrincipalRole::of(name, entity)
    });
    answer::of(&PolarisRoleList { roles: roles.collect() })
}

/// Returns the principal role in the path.
pub(super) fn role_of_path(input: &CatalogRequest<'_>) -> Result<RoleRecord> {
    let (name, all) = (input.param("role")?, input.context.access.roles().list(&input.who)?);
    all.into_iter().find(|it| it.name == name).ok_or_else(|| no_such_role(name))
}

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    let all = input.context.access.roles().list(&input.who)?;
    answer_with(input, all.into_iter().map(|it| it.name).collect()).await
}

async fn load(input: &CatalogRequest<'_>, name: String) -> Result<PrincipalRole> {
    let entity = input.context.access.entities().entity(EntityKey::role(&name)).await?;
    Ok(PrincipalRole::of(name, entity))
}

pub(super) async fn create(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let CreateRole { principal_role: role } = input.body()?;
    if role.federated == Some(true) {
        let message = "`federated`: a group of an identity provider is a principal by itself, \
            `group:ISSUER:NAME`";
        return Err(missing(message));
    }
    let properties = role.properties.unwrap_or_default();
    let access = &input.context.access;
    access.roles().create_role_with(&input.who, &role.name, &[], &properties).await?;
    answer::made(&load(input, role.name).await?)
}

pub(super) async fn get(input: &CatalogRequest<'_>) -> Result<Response> {
    answer::of(&load(input, role_of_path(input)?.name).await?)
}

pub(super) async fn update(input: &CatalogRequest<'_>) -> Result<Response> {
    let name = role_of_path(input)?.name;
    let (key, change) = (EntityKey::role(&name), input.body::<EntityUpdate>()?);
    let entity =
        input.context.access.entities().update_entity(&input.who, key, change.into()).await?;
    answer::of(&PrincipalRole::of(name, entity))
}

pub(super) async fn delete(input: &CatalogRequest<'_>) -> Result<Response> {
    input.context.access.roles().delete_role(&input.who, input.param("role")?).await?;
    Ok(answer::done())
}

/// Returns catalog roles of the path's catalog.
async fn answer_with_catalog_roles(
    input: &CatalogRequest<'_>,
    all: impl Iterator<Item = CatalogRoleRecord>,
) -> Result<Response> {
    let warehouse = input.managed()?;
    let access = &input.context.access;
    let mut entities = access.entities().list(EntityKind::CatalogRole, warehouse.id()).await?;
    let roles = all.map(|it| {
        let entity = entities.remove(&it.name).unwrap_or_default();
        CatalogRole::of(it.name, entity)
    });
    answer::of(&PolarisRoleList { roles: roles.collect() })
}

/// Returns the catalog role in the path.
pub(super) fn catalog_role(input: &CatalogRequest<'_>) -> Result<CatalogRoleRecord> {
    let (warehouse, name) = (input.managed()?, input.param("catalog-role")?);
    input.context.access.catalog_roles().catalog_role(&input.who, &warehouse, name)
}

async fn load_catalog_role(
    input: &CatalogRequest<'_>,
    it: CatalogRoleRecord,
) -> Result<CatalogRole> {
    let key = EntityKey::catalog_role(&it.warehouse, &it.name);
    Ok(CatalogRole::of(it.name, input.context.access.entities().entity(key).await?))
}

pub(super) async fn list_catalog_roles(input: &CatalogRequest<'_>) -> Result<Response> {
    let all = input.context.access.catalog_roles().list(&input.who, &*input.managed()?)?;
    answer_with_catalog_roles(input, all.into_iter()).await
}

pub(super) async fn create_catalog_role(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let warehouse = input.managed()?;
    let OfCatalog { catalog_role: role } = input.body()?;
    let (properties, access) = (role.properties.unwrap_or_default(), &input.context.access);
    access
        .catalog_roles()
        .create_catalog_role(&input.who, &warehouse, &role.name, &properties)
        .await?;
    let made = access.catalog_roles().catalog_role(&input.who, &warehouse, &role.name)?;
    answer::made(&load_catalog_role(input, made).await?)
}

pub(super) async fn get_catalog_role(input: &CatalogRequest<'_>) -> Result<Response> {
    answer::of(&load_catalog_role(input, catalog_role(input)?).await?)
}

pub(super) async fn update_catalog_role(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let it = catalog_role(input)?;
    let key = EntityKey::catalog_role(&it.warehouse, &it.name);
    let change = input.body::<EntityUpdate>()?.into();
    let entity = input.context.access.entities().update_entity(&input.who, key, change).await?;
    answer::of(&CatalogRole::of(it.name, entity))
}

pub(super) async fn delete_catalog_role(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let (warehouse, name) = (input.managed()?, input.param("catalog-role")?);
    input.context.access.catalog_roles().delete_catalog_role(&input.who, &warehouse, name).await?;
    Ok(answer::done())
}

/// Returns the principal roles that have a catalog role.
pub(super) async fn list_holders(input: &CatalogRequest<'_>) -> Result<Response> {
    // Roles span catalogs.
    only_operators(&input.who)?;
    let holders = catalog_role(input)?.holders;
    answer_with(input, holders).await
}

/// Returns the catalog roles of one catalog that a principal role has.
pub(super) async fn list_catalog_roles_of(input: &CatalogRequest<'_>) -> Result<Response> {
    let role = role_of_path(input)?.name;
    let all = input.context.access.catalog_roles().list(&input.who, &*input.managed()?)?;
    answer_with_catalog_roles(input, all.into_iter().filter(|it| it.holders.contains(&role))).await
}

pub(super) async fn assign_catalog_role(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let OfCatalog { catalog_role: wanted } = input.body()?;
    set_membership(input, &wanted.name, true).await?;
    Ok(answer::made_so())
}

pub(super) async fn revoke_catalog_role(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    set_membership(input, input.param("catalog-role")?, false).await?;
    Ok(answer::done())
}

async fn set_membership(input: &CatalogRequest<'_>, name: &str, is_to_have: bool) -> Result<()> {
    let (warehouse, role) = (input.managed()?, input.param("role")?);
    let access = &input.context.access;
    access.catalog_roles().give_catalog_role(&input.who, &warehouse, name, role, is_to_have).await
}
