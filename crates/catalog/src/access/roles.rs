//! Roles: names for sets of principals. Rights granted to a role apply to its members.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use super::catalog_roles::CatalogRoles;
use super::grants::{GrantIndex, RightTrees};
use super::principal_ids::{GUEST_PREFIX, ROLE_PREFIX, TENANT_PREFIX, check_principal};
use super::{AccessControl, entities, only_operators};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{CatalogPrincipal, TokenClaims};
use crate::store::Properties;

/// Most roles in total.
pub const ROLES_MAX: usize = 1000;

/// Most members of all roles together.
pub const MEMBERS_MAX: usize = 50_000;

/// Most members that one request names.
pub const MEMBERS_AT_ONCE_MAX: usize = 1000;

/// Longest name of a role, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// Prefixes of members of a role: roles have no roles.
const MEMBERS: &[&str] = &["client:", "tenant:", "oidc:", "group:"];

/// Most principals whose combined rights are cached. Those of others are computed at every request.
const READY_MAX: usize = 10_000;

/// Most tokens of one principal with different claims whose rights are cached.
const READY_CLAIMS_MAX: usize = 8;

/// Role and its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoleRecord {
    /// Name of the role.
    pub name: String,
    /// Ids of principals, in order.
    pub members: Vec<String>,
}

/// Change of a role's members.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MembersChange {
    /// Members to add.
    #[serde(default)]
    pub add: Vec<String>,
    /// Members to remove.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// Rejects invalid role names.
pub(super) fn check_name(name: &str) -> Result<()> {
    let is_name = |byte: u8| byte.is_ascii_graphic() && !b":/\\\"".contains(&byte);
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_name) {
        return Ok(());
    }
    let message = format!(
        "the name of a role has 1 to {NAME_BYTES_MAX} characters of ASCII, no space and none of \
         `:`, `/`, `\\` and `\"`"
    );
    Err(CatalogError::new(ErrorReason::BadRequest, message))
}

fn check_members(members: &[String]) -> Result<()> {
    if members.len() > MEMBERS_AT_ONCE_MAX {
        let message = format!("more than {MEMBERS_AT_ONCE_MAX} members at once");
        return Err(CatalogError::new(ErrorReason::BadRequest, message));
    }
    members.iter().try_for_each(|member| check_principal(member, MEMBERS))
}

/// Returns the principal id of a role.
pub(super) fn principal(role: &str) -> String {
    format!("{ROLE_PREFIX}{role}")
}

/// Members of roles.
#[derive(Debug, Default)]
pub(super) struct RoleMembership {
    /// By the name of the role, in order.
    all: Vec<RoleRecord>,
    /// Names of roles, by member.
    of: HashMap<Box<str>, Vec<Box<str>>>,
    /// Catalog roles that roles have.
    pub(super) catalog_roles: CatalogRoles,
}

impl RoleMembership {
    /// Indexes all roles.
    pub(super) fn new(mut all: Vec<RoleRecord>, catalog_roles: CatalogRoles) -> RoleMembership {
        let mut of: HashMap<Box<str>, Vec<Box<str>>> = HashMap::new();
        for role in &all {
            for member in &role.members {
                of.entry(member.as_str().into()).or_default().push(role.name.as_str().into());
            }
        }
        // In byte order, independent of the database's collation.
        all.sort_by(|one, other| one.name.cmp(&other.name));
        RoleMembership { all, of, catalog_roles }
    }

    fn of_id(&self, id: &str) -> impl Iterator<Item = &str> {
        self.of.get(id).into_iter().flatten().map(|role| &**role)
    }

    /// Names of a principal's roles, regardless of the role its token is limited to; duplicates are
    /// possible.
    fn of_who<'a>(&'a self, who: &'a CatalogPrincipal) -> impl Iterator<Item = &'a str> {
        let groups = who.claims.iter().flat_map(|it| &it.groups);
        self.of_id(&who.id).chain(groups.flat_map(|group| self.of_id(group)))
    }

    /// Ids of all principals whose rights a principal has. Its token may be limited to one role.
    pub(super) fn principals(&self, who: &CatalogPrincipal) -> Vec<String> {
        let only = who.claims.as_ref().and_then(|it| it.role.as_deref());
        if let Some(only) = only {
            let has = self.of_who(who).any(|role| role == only);
            return if has { self.principals_of(only).collect() } else { Vec::new() };
        }
        self.every_principal(who)
    }

    /// All ids that apply to a principal, regardless of its token's role.
    pub(super) fn every_principal(&self, who: &CatalogPrincipal) -> Vec<String> {
        let mut all = vec![who.id.to_string()];
        all.extend(who.claims.iter().flat_map(|it| &it.groups).map(ToString::to_string));
        all.extend(self.of_who(who).flat_map(|role| self.principals_of(role)));
        all.sort();
        all.dedup();
        all
    }

    /// All ids that apply to a principal known by its id alone: itself, its roles and their catalog
    /// roles.
    pub(super) fn principals_of_id(&self, id: &str) -> Vec<String> {
        let mut who = CatalogPrincipal::new(id, id);
        if let Some(tenant) = id.strip_prefix(GUEST_PREFIX) {
            // Policies on a tenant restrict its sandboxes.
            let groups = vec![format!("{TENANT_PREFIX}{tenant}").into()];
            who.claims = Some(Arc::new(TokenClaims { groups, ..TokenClaims::default() }));
        }
        let mut all = self.every_principal(&who);
        if let Some(role) = id.strip_prefix(ROLE_PREFIX) {
            all.extend(self.principals_of(role));
            all.sort();
            all.dedup();
        }
        all
    }

    /// Rejects a role that does not exist; other principals are not checked.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) fn require_principal(&self, id: &str) -> Result<()> {
        match id.strip_prefix(ROLE_PREFIX) {
            Some(role) if !self.all.iter().any(|it| it.name == role) => Err(no_such(role)),
            _ => Ok(()),
        }
    }

    /// Ids of a role and of all catalog roles that it has.
    fn principals_of<'a>(&'a self, role: &'a str) -> impl Iterator<Item = String> + 'a {
        let own = self.catalog_roles.of_role(role).map(str::to_owned);
        std::iter::once(principal(role)).chain(own)
    }

    /// Returns whether no other id applies to a principal, so that its own grants are all its
    /// rights.
    fn is_alone(&self, who: &CatalogPrincipal) -> bool {
        let claims = who.claims.as_ref();
        claims.is_none_or(|it| it.role.is_none() && it.groups.is_empty())
            && !self.of.contains_key(&*who.id)
    }
}

/// Combined rights of principals and their roles, computed on first use. Discarded with the grants
/// that it was computed from.
#[derive(Debug, Default)]
pub(super) struct CombinedRights(RwLock<HashMap<Arc<str>, Vec<OfClaims>>>);

/// Rights by a token with these claims.
type OfClaims = (Option<Arc<TokenClaims>>, Arc<RightTrees>);

impl CombinedRights {
    /// Returns all rights of a principal.
    pub(super) fn trees(
        &self,
        who: &CatalogPrincipal,
        roles: &RoleMembership,
        grants: &GrantIndex,
    ) -> Option<Arc<RightTrees>> {
        if roles.is_alone(who) {
            return grants.of(&who.id).cloned();
        }
        if let Some(all) = self.0.read().get(&who.id)
            && let Some((_, trees)) = all.iter().find(|(claims, _)| *claims == who.claims)
        {
            return Some(Arc::clone(trees));
        }
        let all = roles.principals(who);
        let trees = Arc::new(RightTrees::of_all(all.iter().filter_map(|id| grants.of(id))));
        let mut ready = self.0.write();
        if ready.len() < READY_MAX || ready.contains_key(&who.id) {
            let own = ready.entry(Arc::clone(&who.id)).or_default();
            if own.len() < READY_CLAIMS_MAX {
                own.push((who.claims.clone(), Arc::clone(&trees)));
            }
        }
        Some(trees)
    }
}

/// Roles and their members.
#[derive(Clone, Copy, Debug)]
pub struct RoleRegistry<'a>(pub(super) &'a AccessControl);

impl RoleRegistry<'_> {
    /// Creates a role.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator; `AlreadyExists`; `BadRequest` if the name or a
    /// member is invalid, or there are too many.
    pub async fn create_role(
        self,
        who: &CatalogPrincipal,
        name: &str,
        members: &[String],
    ) -> Result<()> {
        self.create_role_with(who, name, members, &Properties::new()).await
    }

    /// Creates a role with properties.
    ///
    /// # Errors
    /// Those of [`RoleRegistry::create_role`]; `BadRequest` if there are too many properties.
    pub async fn create_role_with(
        self,
        who: &CatalogPrincipal,
        name: &str,
        members: &[String],
        properties: &Properties,
    ) -> Result<()> {
        only_operators(who)?;
        check_name(name)?;
        check_members(members)?;
        entities::check_properties(properties)?;
        self.0.0.store.insert_role(name, members, properties).await?;
        self.0.changed().await
    }

    /// Changes the members of a role.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator; `NotFound`; `BadRequest` if a member is invalid,
    /// or there are too many.
    pub async fn change_members(
        self,
        who: &CatalogPrincipal,
        role: &str,
        to: &MembersChange,
    ) -> Result<()> {
        only_operators(who)?;
        check_members(&to.add)?;
        check_members(&to.remove)?;
        self.0.0.store.change_members(role, to).await?;
        self.0.changed().await
    }

    /// Removes a role and the grants to it.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator; `NotFound`.
    pub async fn delete_role(self, who: &CatalogPrincipal, role: &str) -> Result<()> {
        only_operators(who)?;
        self.0.0.store.delete_role(role).await?;
        self.0.changed().await
    }

    /// Returns all roles, by name.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator.
    pub fn list(self, who: &CatalogPrincipal) -> Result<Vec<RoleRecord>> {
        only_operators(who)?;
        Ok(self.0.0.loaded.read().roles.all.clone())
    }

    /// Rejects a principal that does not have a role.
    pub(super) fn require_role(self, who: &CatalogPrincipal, role: &str) -> Result<()> {
        if self.0.0.loaded.read().roles.of_who(who).any(|it| it == role) {
            return Ok(());
        }
        let excerpt: String = role.chars().take(NAME_BYTES_MAX).collect();
        let message = format!("`{}` does not have the role `{excerpt}`", who.name);
        Err(CatalogError::new(ErrorReason::Forbidden, message))
    }
}

pub(crate) fn no_such(role: &str) -> CatalogError {
    let excerpt: String = role.chars().take(NAME_BYTES_MAX).collect();
    CatalogError::new(ErrorReason::NotFound, format!("Role does not exist: {excerpt}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::CatalogRoleRecord;
    use crate::access::principal_ids::{PRINCIPAL_BYTES_MAX, PRINCIPALS};

    fn roles() -> RoleMembership {
        let role = |name: &str, members: &[&str]| RoleRecord {
            name: name.to_owned(),
            members: members.iter().map(|it| (*it).to_owned()).collect(),
        };
        let all = vec![
            role("etl", &["client:a", "group:okta:data"]),
            role("bi", &["client:a", "tenant:bi"]),
        ];
        let catalog_roles = CatalogRoles::new(vec![CatalogRoleRecord {
            warehouse: "wh_1".to_owned(),
            name: "reader".to_owned(),
            holders: vec!["bi".to_owned(), "gone".to_owned()],
        }]);
        RoleMembership::new(all, catalog_roles)
    }

    #[test]
    fn somebody_has_the_rights_of_his_roles_and_groups_or_of_one_role() {
        let roles = roles();
        for (id, groups, role, expected) in [
            (
                "client:a",
                &[][..],
                None,
                &["catalog-role:wh_1:reader", "client:a", "role:bi", "role:etl"][..],
            ),
            ("client:a", &[], Some("bi"), &["catalog-role:wh_1:reader", "role:bi"]),
            ("client:a", &[], Some("etl"), &["role:etl"]),
            ("client:a", &[], Some("none"), &[]),
            ("client:b", &[], None, &["client:b"]),
            ("client:b", &[], Some("bi"), &[]),
            (
                "oidc:okta:x",
                &["group:okta:data", "group:okta:all"],
                None,
                &["group:okta:all", "group:okta:data", "oidc:okta:x", "role:etl"],
            ),
            ("oidc:okta:x", &["group:okta:data"], Some("etl"), &["role:etl"]),
        ] {
            let claims = TokenClaims {
                groups: groups.iter().map(|it| (*it).into()).collect(),
                role: role.map(Into::into),
                ..TokenClaims::default()
            };
            let who = CatalogPrincipal {
                claims: Some(Arc::new(claims)),
                ..CatalogPrincipal::new(id, id)
            };
            let mut found = roles.principals(&who);
            found.sort();
            assert_eq!(found, expected, "{id} {groups:?} {role:?}");
        }
    }

    #[test]
    fn names_and_members_are_what_they_have_to_be() {
        for (id, expected) in [
            ("client:a", true),
            ("oidc:okta:auth0|17", true),
            ("group:okta:data", true),
            ("role:x", false),
            ("client:", false),
            ("client:a b", false),
            ("user:a", false),
            ("", false),
        ] {
            assert_eq!(check_members(&[id.to_owned()]).is_ok(), expected, "{id}");
        }
        assert!(check_principal("role:x", PRINCIPALS).is_ok());
        let long = format!("client:{}", "x".repeat(PRINCIPAL_BYTES_MAX));
        assert!(check_members(&[long]).is_err());
        assert!(check_members(&vec!["client:a".to_owned(); MEMBERS_AT_ONCE_MAX + 1]).is_err());
        for (name, expected) in [("etl", true), ("a:b", false), ("", false), ("a/b", false)] {
            assert_eq!(check_name(name).is_ok(), expected, "{name}");
        }
    }
}
