//! Ids of principals: a prefix for each kind, followed by a name.

use crate::error::{CatalogError, ErrorReason, Result};

/// Longest id of a principal, in bytes.
pub(super) const PRINCIPAL_BYTES_MAX: usize = 300;

/// Prefix of a catalog role's principal id; the id of its warehouse and its name follow, divided by
/// a colon.
pub(super) const CATALOG_ROLE_PREFIX: &str = "catalog-role:";

/// Prefix of a guest's principal id; the tenant follows.
pub const GUEST_PREFIX: &str = "grant:";

/// Prefix of a tenant's principal id.
pub(super) const TENANT_PREFIX: &str = "tenant:";

/// Prefix of a role's principal id.
pub(super) const ROLE_PREFIX: &str = "role:";

/// Prefixes of principals that can be granted rights.
pub(super) const PRINCIPALS: &[&str] =
    &["client:", "tenant:", "oidc:", "group:", ROLE_PREFIX, CATALOG_ROLE_PREFIX];

/// Prefixes of principals that a policy can restrict: guests as well.
pub(super) const RESTRICTED: &[&str] =
    &["client:", "tenant:", "oidc:", "group:", ROLE_PREFIX, CATALOG_ROLE_PREFIX, GUEST_PREFIX];

/// Rejects an id that is not of one of these kinds.
///
/// # Errors
/// `BadRequest`.
pub(super) fn check_principal(id: &str, kinds: &[&str]) -> Result<()> {
    let known = kinds.iter().find_map(|kind| id.strip_prefix(kind));
    let is_id =
        known.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|it| it.is_ascii_graphic()));
    if is_id && id.len() <= PRINCIPAL_BYTES_MAX {
        return Ok(());
    }
    let kinds: Vec<String> = kinds.iter().map(|kind| format!("`{kind}`")).collect();
    let message = format!("a principal is one of {} and an id", kinds.join(", "));
    Err(CatalogError::new(ErrorReason::BadRequest, message))
}
