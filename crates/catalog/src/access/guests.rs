//! Principals that are identified by their listener, for as long as the service that admitted them
//! holds their admission. They are in no store and have no secret.
//!
//! The rights of such a guest are set at its admission and complete: nothing else is granted to it.
//! Policies on its tenant restrict it as well.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iceberg::ident::NamespaceIdent;
use parking_lot::RwLock;

use super::grants::RightTrees;
use super::principal_ids::{GUEST_PREFIX, TENANT_PREFIX};
use super::{AccessControl, RightSet};
use crate::principal::{AccessRight, CatalogPrincipal, RightTarget, TokenClaims};
use crate::warehouse::Warehouse;

/// Rights of a guest.
#[derive(Clone, Copy, Debug)]
pub struct GuestRights<'a> {
    /// The only warehouse.
    pub warehouse: &'a Warehouse,
    /// Namespaces, including everything below them; the whole warehouse if the list is empty.
    pub namespaces: &'a [NamespaceIdent],
    /// True if it may make changes.
    pub writes: bool,
}

/// Admitted guests.
#[derive(Debug, Default)]
pub(super) struct TemporaryPrincipals {
    next: AtomicU64,
    all: RwLock<HashMap<u64, Arc<RightTrees>>>,
}

impl TemporaryPrincipals {
    /// Returns the rights of a guest; `None` if it is no longer admitted.
    pub(super) fn trees(&self, guest: u64) -> Option<Arc<RightTrees>> {
        self.all.read().get(&guest).map(Arc::clone)
    }

    /// Returns the rights of a guest to an object; none if it is no longer admitted.
    pub(super) fn rights(&self, guest: u64, warehouse: &str, object: RightTarget<'_>) -> RightSet {
        self.trees(guest).map(|it| it.rights(warehouse, object)).unwrap_or_default()
    }
}

/// An admitted guest. Dropping it ends the principal: requests in progress are rejected at their
/// next check.
#[derive(Debug)]
pub struct TemporaryPrincipal {
    access: AccessControl,
    guest: u64,
    who: CatalogPrincipal,
}

impl TemporaryPrincipal {
    /// Returns the principal.
    #[must_use]
    pub fn who(&self) -> &CatalogPrincipal {
        &self.who
    }
}

impl Drop for TemporaryPrincipal {
    fn drop(&mut self) {
        self.access.0.guests.all.write().remove(&self.guest);
    }
}

impl AccessControl {
    /// Admits a guest of a tenant, as `grant:TENANT`.
    #[must_use]
    pub fn admit(&self, tenant: &str, to: GuestRights<'_>) -> TemporaryPrincipal {
        let rights: RightSet = match to.writes {
            true => {
                [AccessRight::Read, AccessRight::Write, AccessRight::Manage].into_iter().collect()
            }
            false => [AccessRight::Read].into_iter().collect(),
        };
        let trees = RightTrees::to(to.warehouse.id(), to.namespaces, rights);
        let guests = &self.0.guests;
        let guest = guests.next.fetch_add(1, Ordering::Relaxed);
        guests.all.write().insert(guest, Arc::new(trees));
        let id = format!("{GUEST_PREFIX}{tenant}");
        let groups = vec![format!("{TENANT_PREFIX}{tenant}").into()];
        let claims = TokenClaims { groups, guest: Some(guest), ..TokenClaims::default() };
        let who =
            CatalogPrincipal { claims: Some(Arc::new(claims)), ..CatalogPrincipal::new(&id, &id) };
        TemporaryPrincipal { access: self.clone(), guest, who }
    }
}
