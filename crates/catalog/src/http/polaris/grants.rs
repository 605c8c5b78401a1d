//! Grants of catalog roles: rights, by their names in Polaris.
//!
//! # References
//! - <https://github.com/apache/polaris/blob/main/spec/polaris-management-service.yml>

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::response::Response;
use iceberg::ident::{NamespaceIdent, TableIdent};
use serde::{Deserialize, Serialize};

use super::privileges::SecurableKind;
use super::{answer, missing, roles};
use crate::access::{PrincipalGrant, catalog_role_principal};
use crate::error::{CatalogError, ErrorReason, Result, bad};
use crate::http::request::CatalogRequest;
use crate::service::AccessRight;
use crate::store::RelationKind;
use crate::warehouse::Warehouse;

#[derive(Serialize)]
struct PolarisGrantList {
    grants: Vec<PolarisGrantAnswer>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolarisGrantAnswer {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<NamespaceIdent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    view_name: Option<String>,
    privilege: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantChangeRequest {
    grant: GrantFields,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GrantFields {
    r#type: String,
    #[serde(default)]
    namespace: Option<NamespaceIdent>,
    #[serde(default)]
    table_name: Option<String>,
    #[serde(default)]
    view_name: Option<String>,
    #[serde(default)]
    policy_name: Option<String>,
    privilege: String,
}

/// Maps a privilege to a right.
type RightOf = fn(SecurableKind, &str) -> Result<AccessRight>;

/// Parsed request for a grant.
struct RequestedGrant {
    securable: SecurableKind,
    grant: PrincipalGrant,
}

impl GrantFields {
    /// Parses the grant, mapping its privilege by `right`.
    ///
    /// # Errors
    /// `NotImplemented` for unsupported fields; `BadRequest` for contradictory ones.
    fn read(self, principal: String, right: RightOf) -> Result<RequestedGrant> {
        let GrantFields { r#type, namespace, table_name, view_name, policy_name, privilege } = self;
        if r#type == "policy" {
            return Err(missing("`type`: policies of Polaris are not here"));
        }
        let is_there =
            (namespace.is_some(), table_name.is_some(), view_name.is_some(), policy_name.is_some());
        let securable = match (&*r#type, is_there) {
            ("catalog", (false, false, false, false)) => SecurableKind::Catalog,
            ("namespace", (true, false, false, false)) => SecurableKind::Namespace,
            ("table", (true, true, false, false)) => SecurableKind::Table,
            ("view", (true, false, true, false)) => SecurableKind::View,
            ("catalog" | "namespace" | "table" | "view", _) => {
                let message = "a grant has the members of its `type`: `namespace` unless it is to \
                    a catalog, and `tableName` or `viewName`";
                return Err(bad(message));
            }
            _ => return Err(bad("`type` is catalog, namespace, table or view")),
        };
        let rights = std::iter::once(right(securable, &privilege)?).collect();
        let name = table_name.or(view_name);
        Ok(RequestedGrant {
            securable,
            grant: PrincipalGrant { principal, namespace, name, rights },
        })
    }
}

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, role) = (input.managed()?, roles::catalog_role(input)?);
    let (access, principal) =
        (&input.context.access, catalog_role_principal(&role.warehouse, &role.name));
    let all = access.grants(&input.who, &warehouse, Some(&principal)).await?;
    let views = access.catalog_roles().granted_views(&warehouse, &principal).await?;
    let is_view = |grant: &PrincipalGrant, name: &str| {
        let namespace = grant.namespace.as_ref().map(NamespaceIdent::key).unwrap_or_default();
        views.iter().any(|(of, view)| (of, &**view) == (&namespace, name))
    };
    let mut grants = Vec::new();
    for grant in all {
        let (securable, r#type) = match (&grant.namespace, &grant.name) {
            (_, Some(name)) if is_view(&grant, name) => (SecurableKind::View, "view"),
            (_, Some(_)) => (SecurableKind::Table, "table"),
            (Some(_), None) => (SecurableKind::Namespace, "namespace"),
            (None, None) => (SecurableKind::Catalog, "catalog"),
        };
        let is_view = securable == SecurableKind::View;
        let privileges: BTreeSet<_> =
            grant.rights.iter().flat_map(|right| securable.privileges(right)).collect();
        for privilege in privileges {
            grants.push(PolarisGrantAnswer {
                r#type,
                namespace: grant.namespace.clone(),
                table_name: grant.name.clone().filter(|_| !is_view),
                view_name: grant.name.clone().filter(|_| is_view),
                privilege,
            });
        }
    }
    answer::of(&PolarisGrantList { grants })
}

pub(super) async fn add(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, wanted) = wanted(input, SecurableKind::right).await?;
    input.context.access.grant(&input.who, &warehouse, &wanted.grant).await?;
    Ok(answer::made_so())
}

pub(super) async fn revoke(input: &CatalogRequest<'_>) -> Result<Response> {
    if input.flag("cascade")? {
        return Err(missing("`cascade`: what is granted below stays until it is revoked there"));
    }
    let (warehouse, wanted) = wanted(input, SecurableKind::right_taken).await?;
    let RequestedGrant { securable, grant } = wanted;
    let left = move |found, taken| securable.remaining(found, taken);
    input.context.access.revoke_by(&input.who, &warehouse, &grant, left).await?;
    Ok(answer::made_so())
}

/// Returns the requested grant, after checking the caller's rights.
async fn wanted(
    input: &CatalogRequest<'_>,
    right: RightOf,
) -> Result<(Arc<Warehouse>, RequestedGrant)> {
    let (warehouse, role) = (input.managed()?, input.param("catalog-role")?);
    let GrantChangeRequest { grant } = input.body()?;
    let wanted = grant.read(catalog_role_principal(warehouse.id(), role), right)?;
    input.context.access.may_change(&input.who, &warehouse, &wanted.grant)?;
    require_kind(input, &warehouse, &wanted).await?;
    Ok((warehouse, wanted))
}

/// Rejects a table that is a view, and vice versa: their privileges differ.
async fn require_kind(
    input: &CatalogRequest<'_>,
    warehouse: &Warehouse,
    wanted: &RequestedGrant,
) -> Result<()> {
    let (Some(namespace), Some(name)) = (&wanted.grant.namespace, &wanted.grant.name) else {
        return Ok(());
    };
    let ident = TableIdent::new(namespace.clone(), name)?;
    let found = input.context.catalog.entries().stored_pointer(warehouse, &ident).await?;
    let (kind, refusal, title) = match wanted.securable {
        SecurableKind::View => (RelationKind::View, ErrorReason::NoSuchView, "View"),
        _ => (RelationKind::Table, ErrorReason::NoSuchTable, "Table"),
    };
    match found.is_some_and(|it| it.kind == kind) {
        true => Ok(()),
        false => Err(CatalogError::new(refusal, format!("{title} does not exist: {ident}"))),
    }
}
