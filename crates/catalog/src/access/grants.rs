//! Rights: grants of principals on objects, and the rights to contained objects that follow.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use iceberg::ident::{NamespaceIdent, TableIdent};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::principal_ids::{PRINCIPALS, check_principal};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, RightTarget, VisibleNames};

/// Most grants.
pub const GRANTS_MAX: usize = 50_000;

/// All rights.
const RIGHTS: [AccessRight; 4] =
    [AccessRight::Read, AccessRight::Write, AccessRight::Manage, AccessRight::Grant];

/// Returns the textual name of a right.
pub(super) const fn name(right: AccessRight) -> &'static str {
    match right {
        AccessRight::Read => "read",
        AccessRight::Write => "write",
        AccessRight::Manage => "manage",
        AccessRight::Grant => "grant",
    }
}

const fn bit(right: AccessRight) -> u8 {
    match right {
        AccessRight::Read => 1,
        AccessRight::Write => 2,
        AccessRight::Manage => 4,
        AccessRight::Grant => 8,
    }
}

/// A set of rights. Manage implies write, and write implies read; grant is separate.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct RightSet(u8);

impl RightSet {
    /// No right.
    pub const NONE: RightSet = RightSet(0);

    /// All rights.
    pub const ALL: RightSet = RightSet(15);

    /// Returns whether the set includes or implies a right.
    #[must_use]
    pub const fn allow(self, right: AccessRight) -> bool {
        let enough = match right {
            AccessRight::Read => {
                bit(AccessRight::Read) | bit(AccessRight::Write) | bit(AccessRight::Manage)
            }
            AccessRight::Write => bit(AccessRight::Write) | bit(AccessRight::Manage),
            AccessRight::Manage => bit(AccessRight::Manage),
            AccessRight::Grant => bit(AccessRight::Grant),
        };
        self.0 & enough != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, others: RightSet) -> RightSet {
        RightSet(self.0 | others.0)
    }

    /// Returns the rights that are not among `others`.
    #[must_use]
    pub const fn without(self, others: RightSet) -> RightSet {
        RightSet(self.0 & !others.0)
    }

    /// Returns whether this right itself was granted, rather than implied.
    #[must_use]
    pub const fn has(self, right: AccessRight) -> bool {
        self.0 & bit(right) != 0
    }

    /// Iterates over the granted rights, without implied ones.
    pub fn iter(self) -> impl Iterator<Item = AccessRight> {
        RIGHTS.into_iter().filter(move |right| self.has(*right))
    }

    /// Returns the set with all implied rights: write implies read.
    #[must_use]
    pub fn with_implied(self) -> RightSet {
        RIGHTS.into_iter().filter(|right| self.allow(*right)).collect()
    }

    /// Returns the bits for the store.
    pub(super) fn bits(self) -> i64 {
        i64::from(self.0)
    }

    /// Returns the set of bits from the store.
    pub(super) fn of_bits(bits: i64) -> Option<RightSet> {
        u8::try_from(bits).ok().filter(|bits| bits & !RightSet::ALL.0 == 0).map(RightSet)
    }
}

impl FromIterator<AccessRight> for RightSet {
    fn from_iter<I: IntoIterator<Item = AccessRight>>(rights: I) -> RightSet {
        RightSet(rights.into_iter().fold(0, |bits, right| bits | bit(right)))
    }
}

impl fmt::Debug for RightSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(name)).finish()
    }
}

impl Serialize for RightSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(name))
    }
}

impl<'de> Deserialize<'de> for RightSet {
    fn deserialize<D: Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<RightSet, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let rights = names.iter().map(|text| {
            let right = RIGHTS.into_iter().find(|right| name(*right) == text);
            right.ok_or_else(|| {
                D::Error::custom("a right is one of `read`, `write`, `manage` and `grant`")
            })
        });
        rights.collect()
    }
}

/// Rights of a principal to something of a warehouse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PrincipalGrant {
    /// Principal: `client:` and the id of a client, `role:` and the name of a role, `tenant:` and
    /// the tenant of a token, or `oidc:` or `group:`, the name of an issuer, and what it calls
    /// somebody or a group; or `catalog-role:`, the id of the warehouse, and the name of a role of
    /// it.
    pub principal: String,
    /// A namespace; none for the whole warehouse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceIdent>,
    /// A table or view of the namespace; none for all that is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Rights.
    pub rights: RightSet,
}

impl PrincipalGrant {
    /// Rejects an invalid grant.
    ///
    /// # Errors
    /// `BadRequest`, which names the field.
    pub fn check(&self) -> Result<()> {
        let refuse = |message: &str| Err(CatalogError::new(ErrorReason::BadRequest, message));
        check_principal(&self.principal, PRINCIPALS)?;
        if self.rights == RightSet::NONE {
            return refuse("`rights` is empty");
        }
        match (&self.namespace, &self.name) {
            (None, Some(_)) => refuse("`name` needs a `namespace`"),
            (Some(_), Some(name)) => TableIdent::check_name(name),
            (_, None) => Ok(()),
        }
    }
}

/// Index of rights: by principal and warehouse, then down the levels of a namespace.
#[derive(Debug, Default)]
pub(super) struct GrantIndex(HashMap<Box<str>, Arc<RightTrees>>);

/// Rights of a principal in each warehouse, by its id.
#[derive(Clone, Debug, Default)]
pub(super) struct RightTrees(BTreeMap<Box<str>, RightNode>);

#[derive(Clone, Debug, Default)]
struct RightNode {
    rights: RightSet,
    namespaces: BTreeMap<Box<str>, RightNode>,
    relations: BTreeMap<Box<str>, RightSet>,
}

impl RightNode {
    /// Returns whether the node, or anything below it, is readable.
    fn leads_to_readable(&self) -> bool {
        self.rights.allow(AccessRight::Read)
            || self.relations.values().any(|rights| rights.allow(AccessRight::Read))
            || self.namespaces.values().any(RightNode::leads_to_readable)
    }

    fn add(&mut self, other: &RightNode) {
        self.rights = self.rights.and(other.rights);
        for (level, below) in &other.namespaces {
            self.namespaces.entry(level.clone()).or_default().add(below);
        }
        for (name, rights) in &other.relations {
            let own = self.relations.entry(name.clone()).or_default();
            *own = own.and(*rights);
        }
    }
}

impl GrantIndex {
    /// Builds the index of grants, each with the id of its warehouse.
    ///
    /// # Errors
    /// If a grant is invalid.
    pub(super) fn new(all: &[(Box<str>, PrincipalGrant)]) -> Result<GrantIndex> {
        let mut grants: HashMap<Box<str>, RightTrees> = HashMap::new();
        for (warehouse, grant) in all {
            grant.check().map_err(CatalogError::internal)?;
            let of_principal = grants.entry(grant.principal.as_str().into()).or_default();
            let mut node = of_principal.0.entry(warehouse.clone()).or_default();
            for level in grant.namespace.iter().flat_map(|it| it.levels()) {
                node = node.namespaces.entry(level.clone()).or_default();
            }
            let rights = match &grant.name {
                Some(name) => node.relations.entry(name.as_str().into()).or_default(),
                None => &mut node.rights,
            };
            *rights = rights.and(grant.rights);
        }
        Ok(GrantIndex(grants.into_iter().map(|(who, trees)| (who, Arc::new(trees))).collect()))
    }

    /// Returns the rights granted to a principal itself.
    pub(super) fn of(&self, principal: &str) -> Option<&Arc<RightTrees>> {
        self.0.get(principal)
    }
}

impl RightTrees {
    /// Returns the union of the rights of several principals.
    pub(super) fn of_all<'a>(all: impl IntoIterator<Item = &'a Arc<RightTrees>>) -> RightTrees {
        let mut sum = RightTrees::default();
        for (warehouse, node) in all.into_iter().flat_map(|trees| &trees.0) {
            sum.0.entry(warehouse.clone()).or_default().add(node);
        }
        sum
    }

    /// Returns rights to some namespaces of a warehouse, or to all of it if the list is empty.
    pub(super) fn to(
        warehouse: &str,
        namespaces: &[NamespaceIdent],
        rights: RightSet,
    ) -> RightTrees {
        let mut root = RightNode::default();
        for namespace in namespaces {
            let mut node = &mut root;
            for level in namespace.levels() {
                node = node.namespaces.entry(level.clone()).or_default();
            }
            node.rights = rights;
        }
        if namespaces.is_empty() {
            root.rights = rights;
        }
        RightTrees([(warehouse.into(), root)].into_iter().collect())
    }

    /// Returns the visible names directly in a namespace or warehouse: all if it is readable,
    /// otherwise those of readable objects and of ancestors of readable objects.
    pub(super) fn visible(&self, warehouse: &str, parent: Option<&NamespaceIdent>) -> VisibleNames {
        let above = parent.map(NamespaceIdent::levels).unwrap_or_default();
        let Some(mut node) = self.0.get(warehouse) else { return VisibleNames::Nothing };
        for level in above {
            if node.rights.allow(AccessRight::Read) {
                return VisibleNames::All;
            }
            let Some(below) = node.namespaces.get(level) else { return VisibleNames::Nothing };
            node = below;
        }
        if node.rights.allow(AccessRight::Read) {
            return VisibleNames::All;
        }
        let leading = node.namespaces.iter().filter(|(_, below)| below.leads_to_readable());
        let idents = leading.map(|(level, _)| NamespaceIdent::new(above.iter().chain([level])));
        let namespaces: HashSet<_> = idents.filter_map(Result::ok).collect();
        let readable = node.relations.iter().filter(|(_, rights)| rights.allow(AccessRight::Read));
        let relations: HashSet<_> = readable.map(|(name, _)| name.clone()).collect();
        if namespaces.is_empty() && relations.is_empty() {
            return VisibleNames::Nothing;
        }
        VisibleNames::Part { namespaces, relations }
    }

    /// Returns the effective rights to an object: granted on it and on everything that contains it.
    pub(super) fn rights(&self, warehouse: &str, object: RightTarget<'_>) -> RightSet {
        let (namespace, relation) = match object {
            RightTarget::Warehouse => (None, None),
            RightTarget::Namespace(namespace) => (Some(namespace), None),
            RightTarget::Relation(ident) => (Some(&ident.namespace), Some(&ident.name)),
        };
        let Some(mut node) = self.0.get(warehouse) else { return RightSet::NONE };
        let mut rights = node.rights;
        for level in namespace.into_iter().flat_map(NamespaceIdent::levels) {
            match node.namespaces.get(level) {
                Some(below) => node = below,
                None => return rights,
            }
            rights = rights.and(node.rights);
        }
        let own = relation.and_then(|name| node.relations.get(name));
        rights.and(own.copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(path: &str) -> Option<NamespaceIdent> {
        (!path.is_empty()).then(|| NamespaceIdent::new(path.split('/')).unwrap())
    }

    fn grant(path: &str, name: Option<&str>, right: AccessRight) -> (Box<str>, PrincipalGrant) {
        let grant = PrincipalGrant {
            principal: "client:a".to_owned(),
            namespace: namespace(path),
            name: name.map(str::to_owned),
            rights: [right].into_iter().collect(),
        };
        ("wh_1".into(), grant)
    }

    #[test]
    fn a_right_is_one_to_all_that_is_in_it() {
        let grants = GrantIndex::new(&[
            grant("a", None, AccessRight::Read),
            grant("a/b", None, AccessRight::Manage),
            grant("c", Some("t"), AccessRight::Write),
            grant("d", None, AccessRight::Grant),
        ]);
        let grants = grants.unwrap();
        for (who, warehouse, path, name, expected) in [
            ("client:a", "wh_1", "", None, &[][..]),
            ("client:a", "wh_1", "a", None, &[AccessRight::Read]),
            ("client:a", "wh_1", "a", Some("t"), &[AccessRight::Read]),
            ("client:a", "wh_1", "a/x", Some("t"), &[AccessRight::Read]),
            (
                "client:a",
                "wh_1",
                "a/b",
                None,
                &[AccessRight::Read, AccessRight::Write, AccessRight::Manage],
            ),
            (
                "client:a",
                "wh_1",
                "a/b/c",
                Some("t"),
                &[AccessRight::Read, AccessRight::Write, AccessRight::Manage],
            ),
            ("client:a", "wh_1", "b", None, &[]),
            ("client:a", "wh_1", "c", None, &[]),
            ("client:a", "wh_1", "c", Some("t"), &[AccessRight::Read, AccessRight::Write]),
            ("client:a", "wh_1", "c", Some("u"), &[]),
            ("client:a", "wh_1", "c/t", None, &[]),
            ("client:a", "wh_1", "d", Some("t"), &[AccessRight::Grant]),
            ("client:b", "wh_1", "a", None, &[]),
            ("client:a", "wh_2", "a", None, &[]),
        ] {
            let namespace = namespace(path);
            let ident = namespace.clone().zip(name);
            let ident = ident.map(|(namespace, name)| TableIdent::new(namespace, name).unwrap());
            let object = match (&ident, &namespace) {
                (Some(ident), _) => RightTarget::Relation(ident),
                (None, Some(namespace)) => RightTarget::Namespace(namespace),
                (None, None) => RightTarget::Warehouse,
            };
            let found = grants.of(who).map(|it| it.rights(warehouse, object)).unwrap_or_default();
            let found: Vec<AccessRight> =
                RIGHTS.into_iter().filter(|it| found.allow(*it)).collect();
            assert_eq!(found, expected, "{who} {warehouse} {path} {name:?}");
        }
    }

    #[test]
    fn rights_of_several_add_up() {
        let one = GrantIndex::new(&[
            grant("a", None, AccessRight::Read),
            grant("c", Some("t"), AccessRight::Read),
        ]);
        let other = GrantIndex::new(&[
            grant("a/b", None, AccessRight::Write),
            grant("a", None, AccessRight::Grant),
            grant("c", Some("t"), AccessRight::Grant),
        ]);
        let (one, other) = (one.unwrap(), other.unwrap());
        let sum = RightTrees::of_all([&one, &other].map(|it| it.of("client:a").unwrap()));
        for (path, name, expected) in [
            ("a", None, &["read", "grant"][..]),
            ("a/b", None, &["read", "write", "grant"]),
            ("c", None, &[]),
            ("c", Some("t"), &["read", "grant"]),
        ] {
            let namespace = namespace(path).unwrap();
            let ident = name.map(|name| TableIdent::new(namespace.clone(), name).unwrap());
            let object =
                ident.as_ref().map_or(RightTarget::Namespace(&namespace), RightTarget::Relation);
            let found: Vec<&str> = sum.rights("wh_1", object).iter().map(super::name).collect();
            assert_eq!(found, expected, "{path} {name:?}");
        }
        assert_eq!(sum.rights("wh_2", RightTarget::Warehouse), RightSet::NONE);
    }

    #[test]
    fn a_grant_is_read_as_it_is_written_and_a_wrong_one_refused() {
        let text = r#"{"principal":"client:a","namespace":["x","y"],"name":"t","rights":["read"]}"#;
        let grant: PrincipalGrant = serde_json::from_str(text).unwrap();
        grant.check().unwrap();
        assert_eq!(serde_json::to_string(&grant).unwrap(), text);
        for text in [
            r#"{"principal":"client:a","rights":["own"]}"#,
            r#"{"principal":"client:a","rights":["read"],"table":"t"}"#,
            r#"{"principal":"client:a"}"#,
        ] {
            assert!(serde_json::from_str::<PrincipalGrant>(text).is_err(), "{text}");
        }
        for text in [
            r#"{"principal":"a","rights":["read"]}"#,
            r#"{"principal":"client:","rights":["read"]}"#,
            r#"{"principal":"client:a b","rights":["read"]}"#,
            r#"{"principal":"client:a","rights":[]}"#,
            r#"{"principal":"client:a","name":"t","rights":["read"]}"#,
            r#"{"principal":"client:a","namespace":["n"],"name":"","rights":["read"]}"#,
        ] {
            let refused =
                serde_json::from_str::<PrincipalGrant>(text).unwrap().check().unwrap_err();
            assert_eq!(refused.kind, ErrorReason::BadRequest, "{text}");
        }
        assert_eq!(RightSet::of_bits(16), None);
        assert_eq!(RightSet::of_bits(-1), None);
        let both: RightSet = [AccessRight::Read, AccessRight::Grant].into_iter().collect();
        assert_eq!(RightSet::of_bits(both.bits()), Some(both));
        assert_eq!(both.without(RightSet::of_bits(1).unwrap()).bits(), 8);
    }
}
