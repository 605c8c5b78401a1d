//! Mapping of Polaris's privileges to rights.
//!
//! Polaris has many privileges, Cove has four rights. A privilege is accepted if a right permits
//! what it permits, and no access to data beyond it; every other one is rejected with the reason.
//! For each kind of object the mapping is one-to-one, so that grants are listed as they were made.

use super::missing;
use crate::access::RightSet;
use crate::error::{CatalogError, bad};
use crate::service::AccessRight;

/// Kind of object of a privilege.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecurableKind {
    Catalog,
    Namespace,
    Table,
    View,
}

const MANAGE_ACCESS: &str = "CATALOG_MANAGE_ACCESS";
const MANAGE_CONTENT: &str = "CATALOG_MANAGE_CONTENT";
const READ_DATA: &str = "TABLE_READ_DATA";
const WRITE_DATA: &str = "TABLE_WRITE_DATA";
const TABLE_METADATA: &str = "TABLE_FULL_METADATA";
const READ_VIEW: &str = "VIEW_READ_PROPERTIES";
const WRITE_VIEW: &str = "VIEW_WRITE_PROPERTIES";
const VIEW_METADATA: &str = "VIEW_FULL_METADATA";

/// Prefixes of Polaris's privileges, which distinguish typing errors from unsupported ones.
const BEGINNINGS: [&str; 5] = ["CATALOG_", "NAMESPACE_", "TABLE_", "VIEW_", "POLICY_"];

impl SecurableKind {
    /// Returns the right for a privilege.
    ///
    /// # Errors
    /// `NotImplemented` for a privilege without a right; `BadRequest` for an unknown name.
    pub(super) fn right(self, privilege: &str) -> Result<AccessRight, CatalogError> {
        use SecurableKind::{Catalog, Namespace, Table, View};
        match (self, privilege) {
            (_, MANAGE_ACCESS) => Ok(AccessRight::Grant),
            (Catalog | Namespace, MANAGE_CONTENT) | (View, VIEW_METADATA) => {
                Ok(AccessRight::Manage)
            }
            (Catalog | Namespace | Table, WRITE_DATA) | (View, WRITE_VIEW) => {
                Ok(AccessRight::Write)
            }
            (Catalog | Namespace | Table, READ_DATA) | (View, READ_VIEW) => Ok(AccessRight::Read),
            _ => Err(self.refuse(privilege)),
        }
    }

    /// Returns the right for a privilege to revoke: everything that is listed can be revoked.
    ///
    /// # Errors
    /// Those of [`SecurableKind::right`].
    pub(super) fn right_taken(self, privilege: &str) -> Result<AccessRight, CatalogError> {
        match (self, privilege) {
            (SecurableKind::Table, TABLE_METADATA) => Ok(AccessRight::Manage),
            _ => self.right(privilege),
        }
    }

    /// Returns the rights that remain when others are revoked: a privilege that is no longer listed
    /// is no longer granted, and vice versa.
    ///
    /// # Errors
    /// `NotImplemented` if a privilege would stay because of a right that is not revoked.
    pub(super) fn remaining(
        self,
        found: RightSet,
        taken: RightSet,
    ) -> Result<RightSet, CatalogError> {
        if self != SecurableKind::Table || !found.has(AccessRight::Manage) {
            return Ok(found.without(taken));
        }
        if taken.has(AccessRight::Write) {
            return Err(missing(format!(
                "`privilege`: {WRITE_DATA} stays with {TABLE_METADATA}: revoke that one first"
            )));
        }
        // Manage is listed as two privileges; only one of them was named.
        let is_less = taken.has(AccessRight::Manage);
        let write = is_less.then_some(AccessRight::Write).into_iter().collect();
        Ok(found.without(taken).and(write))
    }

    /// Returns the privileges that a right is listed as.
    pub(super) fn privileges(self, right: AccessRight) -> &'static [&'static str] {
        use SecurableKind::{Catalog, Namespace, Table, View};
        match (self, right) {
            (_, AccessRight::Grant) => &[MANAGE_ACCESS],
            (Catalog | Namespace, AccessRight::Manage) => &[MANAGE_CONTENT],
            // Granted by Cove's own calls: everything that can be done with a table.
            (Table, AccessRight::Manage) => &[TABLE_METADATA, WRITE_DATA],
            (View, AccessRight::Manage) => &[VIEW_METADATA],
            (View, AccessRight::Write) => &[WRITE_VIEW],
            (View, AccessRight::Read) => &[READ_VIEW],
            (_, AccessRight::Write) => &[WRITE_DATA],
            (_, AccessRight::Read) => &[READ_DATA],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            SecurableKind::Catalog => "a catalog",
            SecurableKind::Namespace => "a namespace",
            SecurableKind::Table => "a table",
            SecurableKind::View => "a view",
        }
    }

    /// Returns all privileges that map to rights.
    fn taken(self) -> Vec<&'static str> {
        let all = [AccessRight::Read, AccessRight::Write, AccessRight::Manage, AccessRight::Grant]
            .into_iter();
        let all = all.flat_map(|right| self.privileges(right)).copied();
        let mut all: Vec<&str> = all.filter(|it| self.is_taken(it)).collect();
        all.dedup();
        all
    }

    fn is_taken(self, privilege: &str) -> bool {
        self != SecurableKind::Table || privilege != TABLE_METADATA
    }

    fn refuse(self, privilege: &str) -> CatalogError {
        let is_plain = privilege.bytes().all(|it| it.is_ascii_uppercase() || it == b'_');
        let is_known = privilege.len() <= 64 && is_plain;
        if !is_known || !BEGINNINGS.iter().any(|it| privilege.starts_with(it)) {
            return bad("`privilege` is not one of Polaris's");
        }
        missing(format!(
            "`privilege`: no right here is {privilege} on {}; those are {}",
            self.name(),
            self.taken().join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorReason;

    const ALL: [SecurableKind; 4] = [
        SecurableKind::Catalog,
        SecurableKind::Namespace,
        SecurableKind::Table,
        SecurableKind::View,
    ];

    #[test]
    fn a_privilege_is_the_right_that_it_is_listed_as() {
        for securable in ALL {
            for right in
                [AccessRight::Read, AccessRight::Write, AccessRight::Manage, AccessRight::Grant]
            {
                let listed = securable.privileges(right);
                if (securable, right) == (SecurableKind::Table, AccessRight::Manage) {
                    assert_eq!(
                        securable.right(TABLE_METADATA).unwrap_err().kind,
                        ErrorReason::NotImplemented
                    );
                    continue;
                }
                let [privilege] = listed else { panic!("{securable:?} {right:?} {listed:?}") };
                assert_eq!(securable.right(privilege).unwrap(), right, "{securable:?}");
            }
            for privilege in securable.taken() {
                securable.right(privilege).unwrap();
            }
        }
    }

    #[test]
    fn what_would_give_more_than_it_says_is_refused() {
        for (securable, privilege, status) in [
            (SecurableKind::Catalog, "CATALOG_MANAGE_METADATA", 501),
            (SecurableKind::Catalog, "TABLE_LIST", 501),
            (SecurableKind::Catalog, "NAMESPACE_CREATE", 501),
            (SecurableKind::Catalog, "VIEW_FULL_METADATA", 501),
            (SecurableKind::Namespace, "TABLE_FULL_METADATA", 501),
            (SecurableKind::Table, "TABLE_DROP", 501),
            (SecurableKind::Table, "TABLE_READ_PROPERTIES", 501),
            (SecurableKind::Table, "CATALOG_MANAGE_CONTENT", 501),
            (SecurableKind::View, "TABLE_READ_DATA", 501),
            (SecurableKind::View, "VIEW_DROP", 501),
            (SecurableKind::Catalog, "POLICY_READ", 501),
            (SecurableKind::Catalog, "read", 400),
            (SecurableKind::Catalog, "TABLE_\"", 400),
            (SecurableKind::Catalog, "", 400),
        ] {
            let refused = securable.right(privilege).unwrap_err();
            assert_eq!(refused.kind.status(), status, "{privilege} {}", refused.message);
            if status == 501 {
                assert!(refused.message.contains(privilege), "{}", refused.message);
            }
        }
    }
}
