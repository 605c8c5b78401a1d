//! Polaris's management interface, for its tools: catalogs are warehouses, principals are clients,
//! principal roles are roles. Catalog roles and their privileges are rights in one warehouse.
//!
//! Features without an equivalent are rejected with 501, by name; nothing is accepted and ignored.
//!
//! | file | what it is |
//! |---|---|
//! | `catalogs`, `storage` | warehouses; where they are, in Polaris's words |
//! | `principals` | clients, and which roles they have |
//! | `roles` | roles, catalog roles, and which of them has which |
//! | `grants`, `privileges` | rights; which privilege is which of them |
//!
//! # References
//! - <https://github.com/apache/polaris/blob/main/spec/polaris-management-service.yml>

mod catalogs;
mod grants;
mod principals;
mod privileges;
mod roles;
mod storage;

use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::operations::{OperationEntry, delete, get, post, put};
use super::request::CatalogRequest;
use super::{CatalogOperation, answer};
use crate::access::{EntityChange, EntityRecord};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::store::Properties;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table below says what each is")]
pub enum PolarisOp {
    ListCatalogs,
    CreateCatalog,
    GetCatalog,
    UpdateCatalog,
    DeleteCatalog,
    ListPrincipals,
    CreatePrincipal,
    GetPrincipal,
    UpdatePrincipal,
    DeletePrincipal,
    RotateCredentials,
    ResetCredentials,
    ListRolesOfPrincipal,
    AssignPrincipalRole,
    RevokePrincipalRole,
    ListPrincipalRoles,
    CreatePrincipalRole,
    GetPrincipalRole,
    UpdatePrincipalRole,
    DeletePrincipalRole,
    ListPrincipalsOfRole,
    ListCatalogRolesOfRole,
    AssignCatalogRole,
    RevokeCatalogRole,
    ListCatalogRoles,
    CreateCatalogRole,
    GetCatalogRole,
    UpdateCatalogRole,
    DeleteCatalogRole,
    ListRolesOfCatalogRole,
    ListGrants,
    AddGrant,
    RevokeGrant,
}

impl PolarisOp {
    /// Returns whether it is a `POST`; all of these make changes.
    #[must_use]
    pub(super) const fn is_post(self) -> bool {
        let makes = matches!(
            self,
            PolarisOp::CreateCatalog
                | PolarisOp::CreatePrincipalRole
                | PolarisOp::CreateCatalogRole
                | PolarisOp::RevokeGrant
        );
        makes || self.gives_secret()
    }

    /// Returns whether the response has a secret that is shown once.
    #[must_use]
    pub(super) const fn gives_secret(self) -> bool {
        matches!(
            self,
            PolarisOp::CreatePrincipal | PolarisOp::RotateCredentials | PolarisOp::ResetCredentials
        )
    }
}

/// A path of the management interface.
macro_rules! path {
    ($rest:literal) => {
        concat!("/polaris/api/management/v1/", $rest)
    };
}

const CATALOGS: &str = path!("catalogs");
const CATALOG: &str = path!("catalogs/{warehouse}");
const PRINCIPALS: &str = path!("principals");
const PRINCIPAL: &str = path!("principals/{principal}");
const ROLES_OF_PRINCIPAL: &str = path!("principals/{principal}/principal-roles");
const ROLES: &str = path!("principal-roles");
const ROLE: &str = path!("principal-roles/{role}");
const CATALOG_ROLES_OF_ROLE: &str = path!("principal-roles/{role}/catalog-roles/{warehouse}");
const CATALOG_ROLES: &str = path!("catalogs/{warehouse}/catalog-roles");
const CATALOG_ROLE: &str = path!("catalogs/{warehouse}/catalog-roles/{catalog-role}");
const GRANTS: &str = path!("catalogs/{warehouse}/catalog-roles/{catalog-role}/grants");

/// Method and path of each operation.
pub(super) const OPERATIONS: [OperationEntry; 33] = [
    get(CATALOGS, CatalogOperation::Polaris(PolarisOp::ListCatalogs)),
    post(CATALOGS, CatalogOperation::Polaris(PolarisOp::CreateCatalog)),
    get(CATALOG, CatalogOperation::Polaris(PolarisOp::GetCatalog)),
    put(CATALOG, CatalogOperation::Polaris(PolarisOp::UpdateCatalog)),
    delete(CATALOG, CatalogOperation::Polaris(PolarisOp::DeleteCatalog)),
    get(PRINCIPALS, CatalogOperation::Polaris(PolarisOp::ListPrincipals)),
    post(PRINCIPALS, CatalogOperation::Polaris(PolarisOp::CreatePrincipal)),
    get(PRINCIPAL, CatalogOperation::Polaris(PolarisOp::GetPrincipal)),
    put(PRINCIPAL, CatalogOperation::Polaris(PolarisOp::UpdatePrincipal)),
    delete(PRINCIPAL, CatalogOperation::Polaris(PolarisOp::DeletePrincipal)),
    post(
        path!("principals/{principal}/rotate"),
        CatalogOperation::Polaris(PolarisOp::RotateCredentials),
    ),
    post(
        path!("principals/{principal}/reset"),
        CatalogOperation::Polaris(PolarisOp::ResetCredentials),
    ),
    get(ROLES_OF_PRINCIPAL, CatalogOperation::Polaris(PolarisOp::ListRolesOfPrincipal)),
    put(ROLES_OF_PRINCIPAL, CatalogOperation::Polaris(PolarisOp::AssignPrincipalRole)),
    delete(
        path!("principals/{principal}/principal-roles/{role}"),
        CatalogOperation::Polaris(PolarisOp::RevokePrincipalRole),
    ),
    get(ROLES, CatalogOperation::Polaris(PolarisOp::ListPrincipalRoles)),
    post(ROLES, CatalogOperation::Polaris(PolarisOp::CreatePrincipalRole)),
    get(ROLE, CatalogOperation::Polaris(PolarisOp::GetPrincipalRole)),
    put(ROLE, CatalogOperation::Polaris(PolarisOp::UpdatePrincipalRole)),
    delete(ROLE, CatalogOperation::Polaris(PolarisOp::DeletePrincipalRole)),
    get(
        path!("principal-roles/{role}/principals"),
        CatalogOperation::Polaris(PolarisOp::ListPrincipalsOfRole),
    ),
    get(CATALOG_ROLES_OF_ROLE, CatalogOperation::Polaris(PolarisOp::ListCatalogRolesOfRole)),
    put(CATALOG_ROLES_OF_ROLE, CatalogOperation::Polaris(PolarisOp::AssignCatalogRole)),
    delete(
        path!("principal-roles/{role}/catalog-roles/{warehouse}/{catalog-role}"),
        CatalogOperation::Polaris(PolarisOp::RevokeCatalogRole),
    ),
    get(CATALOG_ROLES, CatalogOperation::Polaris(PolarisOp::ListCatalogRoles)),
    post(CATALOG_ROLES, CatalogOperation::Polaris(PolarisOp::CreateCatalogRole)),
    get(CATALOG_ROLE, CatalogOperation::Polaris(PolarisOp::GetCatalogRole)),
    put(CATALOG_ROLE, CatalogOperation::Polaris(PolarisOp::UpdateCatalogRole)),
    delete(CATALOG_ROLE, CatalogOperation::Polaris(PolarisOp::DeleteCatalogRole)),
    get(
        path!("catalogs/{warehouse}/catalog-roles/{catalog-role}/principal-roles"),
        CatalogOperation::Polaris(PolarisOp::ListRolesOfCatalogRole),
    ),
    get(GRANTS, CatalogOperation::Polaris(PolarisOp::ListGrants)),
    put(GRANTS, CatalogOperation::Polaris(PolarisOp::AddGrant)),
    post(GRANTS, CatalogOperation::Polaris(PolarisOp::RevokeGrant)),
];

pub(super) async fn carry_out(op: PolarisOp, input: &CatalogRequest<'_>) -> Result<Response> {
    match op {
        PolarisOp::ListCatalogs => catalogs::list(input).await,
        PolarisOp::CreateCatalog => catalogs::create(input).await,
        PolarisOp::GetCatalog => catalogs::get(input).await,
        PolarisOp::UpdateCatalog => catalogs::update(input).await,
        PolarisOp::DeleteCatalog => catalogs::delete(input).await,
        PolarisOp::ListPrincipals => principals::list(input).await,
        PolarisOp::CreatePrincipal => principals::create(input).await,
        PolarisOp::GetPrincipal => principals::get(input).await,
        PolarisOp::UpdatePrincipal => principals::update(input).await,
        PolarisOp::DeletePrincipal => principals::delete(input).await,
        PolarisOp::RotateCredentials => principals::rotate(input).await,
        PolarisOp::ResetCredentials => principals::reset(input).await,
        PolarisOp::ListRolesOfPrincipal => principals::list_roles(input).await,
        PolarisOp::AssignPrincipalRole => principals::assign_role(input).await,
        PolarisOp::RevokePrincipalRole => principals::revoke_role(input).await,
        PolarisOp::ListPrincipalRoles => roles::list(input).await,
        PolarisOp::CreatePrincipalRole => roles::create(input).await,
        PolarisOp::GetPrincipalRole => roles::get(input).await,
        PolarisOp::UpdatePrincipalRole => roles::update(input).await,
        PolarisOp::DeletePrincipalRole => roles::delete(input).await,
        PolarisOp::ListPrincipalsOfRole => principals::list_of_role(input).await,
        PolarisOp::ListCatalogRolesOfRole => roles::list_catalog_roles_of(input).await,
        PolarisOp::AssignCatalogRole => roles::assign_catalog_role(input).await,
        PolarisOp::RevokeCatalogRole => roles::revoke_catalog_role(input).await,
        PolarisOp::ListCatalogRoles => roles::list_catalog_roles(input).await,
        PolarisOp::CreateCatalogRole => roles::create_catalog_role(input).await,
        PolarisOp::GetCatalogRole => roles::get_catalog_role(input).await,
        PolarisOp::UpdateCatalogRole => roles::update_catalog_role(input).await,
        PolarisOp::DeleteCatalogRole => roles::delete_catalog_role(input).await,
        PolarisOp::ListRolesOfCatalogRole => roles::list_holders(input).await,
        PolarisOp::ListGrants => grants::list(input).await,
        PolarisOp::AddGrant => grants::add(input).await,
        PolarisOp::RevokeGrant => grants::revoke(input).await,
    }
}

/// Version of an entity.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EntityVersion {
    properties: Properties,
    #[serde(skip_serializing_if = "Option::is_none")]
    create_timestamp: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_update_timestamp: Option<u64>,
    entity_version: u64,
}

impl EntityVersion {
    /// Creates the version; `created_ms` is the time of creation if it is known from another
    /// source.
    fn of(entity: EntityRecord, created_ms: Option<u64>) -> EntityVersion {
        EntityVersion {
            create_timestamp: created_ms.or(entity.created_ms),
            last_update_timestamp: entity.updated_ms.or(entity.created_ms).or(created_ms),
            entity_version: entity.version,
            properties: entity.properties,
        }
    }
}

/// Change of a principal or a role.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EntityUpdate {
    current_entity_version: u64,
    properties: Properties,
}

impl From<EntityUpdate> for EntityChange {
    fn from(update: EntityUpdate) -> EntityChange {
        EntityChange { version: update.current_entity_version, properties: Some(update.properties) }
    }
}

/// Returns the error for an unsupported feature of Polaris.
fn missing(message: impl Into<String>) -> CatalogError {
    CatalogError::new(ErrorReason::NotImplemented, message)
}
