//! Principals, rights, read restrictions, and the interface that decides on them.

use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;

use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use iceberg::schema::MaskAction;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::error::{CatalogError, ErrorReason, Result};
use crate::store::ChangeContext;
use crate::warehouse::Warehouse;

/// A principal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CatalogPrincipal {
    /// Id in the log and in grants.
    pub id: Arc<str>,
    /// Display name.
    pub name: Arc<str>,
    /// True if it has all rights.
    pub operator: bool,
    /// Claims of its token; `None` for a principal without token claims.
    pub claims: Option<Arc<TokenClaims>>,
}

/// Claims of a token beside its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TokenClaims {
    /// Groups that an identity provider asserts, in the form of grants: `group:…`.
    pub groups: Vec<Box<str>>,
    /// Name of the only role whose rights it may use; `None` for all of its roles.
    pub role: Option<Box<str>>,
    /// Id of the API key that was presented instead of an access token.
    pub key: Option<Box<str>>,
    /// Number of the guest, whose only rights are its own.
    pub guest: Option<u64>,
}

impl CatalogPrincipal {
    /// Creates a principal with granted rights.
    #[must_use]
    pub fn new(id: &str, name: &str) -> CatalogPrincipal {
        CatalogPrincipal { id: id.into(), name: name.into(), operator: false, claims: None }
    }

    /// Returns the number of the guest; `None` for authenticated principals.
    #[must_use]
    pub fn guest(&self) -> Option<u64> {
        self.claims.as_ref().and_then(|it| it.guest)
    }

    /// Creates a principal with all rights.
    #[must_use]
    pub fn operator(id: &str, name: &str) -> CatalogPrincipal {
        CatalogPrincipal { operator: true, ..CatalogPrincipal::new(id, name) }
    }
}

/// Identifies a request, so that repetitions are carried out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Key that the client sent.
    pub key: Uuid,
    /// SHA-256 of the request: reuse of the key for another request is an error.
    pub hash: [u8; 32],
}

/// A request that changes something.
#[derive(Clone, Copy, Debug)]
pub struct ChangeCall<'a> {
    /// Principal that makes the request.
    pub who: &'a CatalogPrincipal,
    /// Idempotency key, if there is one.
    pub key: Option<IdempotencyKey>,
}

impl<'a> ChangeCall<'a> {
    /// Creates a request without a key.
    #[must_use]
    pub const fn of(who: &'a CatalogPrincipal) -> ChangeCall<'a> {
        ChangeCall { who, key: None }
    }

    /// Returns the part that the store records; `now_ms` is the time by the store's clock.
    #[must_use]
    pub fn context(&self, now_ms: u64) -> ChangeContext {
        ChangeContext {
            principal: (*self.who.id).to_owned(),
            is_operator: self.who.operator,
            now_ms,
            key: self.key.map(|it| (it.key, it.hash)),
            names: None,
        }
    }
}

/// Right on an object. A right to an object extends to everything in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessRight {
    /// Read: list, load, plan.
    Read,
    /// Change: create, commit, set properties.
    Write,
    /// Drop, rename, unregister.
    Manage,
    /// Grant rights to it.
    Grant,
}

/// Object of a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightTarget<'a> {
    /// A warehouse and everything in it.
    Warehouse,
    /// A namespace and everything in it.
    Namespace(&'a NamespaceIdent),
    /// A table or a view.
    Relation(&'a TableIdent),
}

/// Names directly in a namespace, or in a warehouse, that are visible to a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleNames {
    /// Every name: the place is readable.
    All,
    /// Names of readable objects, and of namespaces that lead to such objects.
    Part {
        /// Namespaces.
        namespaces: HashSet<NamespaceIdent>,
        /// Tables and views.
        relations: HashSet<Box<str>>,
    },
    /// No name.
    Nothing,
}

/// Restrictions on reading a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableRestrictions {
    /// Predicate of the readable rows; `None` for all.
    pub row_filter: Option<Value>,
    /// Masked columns, by their ids.
    pub projections: BTreeMap<i32, MaskAction>,
    /// True if the principal may have credentials for the table's files.
    pub is_trusted: bool,
}

impl Serialize for TableRestrictions {
    /// Serializes as `read-restrictions` of Iceberg's interface.
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(filter) = &self.row_filter {
            map.serialize_entry("required-row-filter", filter)?;
        }
        if !self.projections.is_empty() {
            let projections = self.projections.iter();
            let projections: Vec<Value> = projections
                .map(|(id, action)| json!({"action": action.name(), "field-id": id}))
                .collect();
            map.serialize_entry("required-column-projections", &projections)?;
        }
        map.end()
    }
}

/// Decides on rights. Not queried for operators.
pub trait RightAuthority: Send + Sync {
    /// Rejects an action that a principal may not perform.
    ///
    /// # Errors
    /// `Forbidden`.
    fn check(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        right: AccessRight,
        object: RightTarget<'_>,
    ) -> Result<()>;

    /// Returns the names directly in a namespace, or in a warehouse, that are visible to a
    /// principal.
    fn visible(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        parent: Option<&NamespaceIdent>,
    ) -> VisibleNames {
        let object = parent.map_or(RightTarget::Warehouse, RightTarget::Namespace);
        match self.check(who, warehouse, AccessRight::Read, object) {
            Ok(()) => VisibleNames::All,
            Err(_) => VisibleNames::Nothing,
        }
    }

    /// Returns the restrictions of a principal on a table; `None` if it may read all of it.
    fn restrictions(
        &self,
        _who: &CatalogPrincipal,
        _warehouse: &Warehouse,
        _ident: &TableIdent,
    ) -> Option<Arc<TableRestrictions>> {
        None
    }

    /// Refreshes rights after a rename or removal, so that grants on an object do not apply to the
    /// next one of its name.
    ///
    /// # Errors
    /// If they cannot be read. The loaded state stays in force.
    fn refresh(&self) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Rights of operators only.
#[derive(Clone, Copy, Debug)]
pub struct OperatorsOnly;

impl RightAuthority for OperatorsOnly {
    fn check(
        &self,
        who: &CatalogPrincipal,
        _: &Warehouse,
        right: AccessRight,
        _: RightTarget<'_>,
    ) -> Result<()> {
        let what = match right {
            AccessRight::Read => "see",
            AccessRight::Write => "change",
            AccessRight::Manage => "manage",
            AccessRight::Grant => "give rights to",
        };
        Err(CatalogError::new(
            ErrorReason::Forbidden,
            format!("`{}` may not {what} this", who.name),
        ))
    }
}
