//! Principals, rights, restrictions of what is read, and the interface that decides about them.

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
    /// Name for people.
    pub name: Arc<str>,
    /// True if it may do everything.
    pub operator: bool,
    /// Rights that its token adds or takes away; none for a principal without a token's claims.
    pub claims: Option<Arc<TokenClaims>>,
}

/// Claims of a token beside its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TokenClaims {
    /// Groups that an identity provider says it is in, as grants know them: `group:…`.
    pub groups: Vec<Box<str>>,
    /// The name of the only role whose rights it may use; none for all that it has.
    pub role: Option<Box<str>>,
    /// The id of the API key that was shown in place of an access token.
    pub key: Option<Box<str>>,
    /// The number of the guest that it is, whose rights are its own and none else.
    pub guest: Option<u64>,
}

impl CatalogPrincipal {
    /// Creates a principal with granted rights.
    #[must_use]
    pub fn new(id: &str, name: &str) -> CatalogPrincipal {
        CatalogPrincipal { id: id.into(), name: name.into(), operator: false, claims: None }
    }

    /// The number of the guest that it is; none for those who say who they are.
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

/// Names a request, so that it is carried out once however often it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Key that the client sent.
    pub key: Uuid,
    /// SHA-256 of the request: the same key with another request is a mistake.
    pub hash: [u8; 32],
}

/// A request that changes something.
#[derive(Clone, Copy, Debug)]
pub struct ChangeCall<'a> {
    /// Principal who makes it.
    pub who: &'a CatalogPrincipal,
    /// Name, if it has one.
    pub key: Option<IdempotencyKey>,
}

impl<'a> ChangeCall<'a> {
    /// A request without a name.
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

/// Right on an object. A right to a thing is one to all that is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessRight {
    /// See it: list, load, plan.
    Read,
    /// Change it: make, commit, set properties.
    Write,
    /// Drop it, rename it, release it.
    Manage,
    /// Give rights to it to others.
    Grant,
}

/// Object of a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightTarget<'a> {
    /// A warehouse and all that is in it.
    Warehouse,
    /// A namespace and all that is in it.
    Namespace(&'a NamespaceIdent),
    /// A table or a view.
    Relation(&'a TableIdent),
}

/// Names directly in a namespace, or in a warehouse, that a principal may know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleNames {
    /// Every name: there is a right to read all of it.
    All,
    /// Names of what there is a right to read, and of namespaces that lead to such.
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
    /// Rows that fulfil this; none for all.
    pub row_filter: Option<Value>,
    /// Columns that are shown in another way, by their ids.
    pub projections: BTreeMap<i32, MaskAction>,
    /// True if he may have credentials for the table's files.
    pub is_trusted: bool,
}

impl Serialize for TableRestrictions {
    /// As `read-restrictions` of Iceberg's interface.
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

/// Decides. Operators are not asked about.
pub trait RightAuthority: Send + Sync {
    /// Refuses what a principal may not do.
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

    /// Finds out which names directly in a namespace, or in a warehouse, a principal may know of.
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

    /// Returns what a principal may read of a table; none when it is all of it.
    fn restrictions(
        &self,
        _who: &CatalogPrincipal,
        _warehouse: &Warehouse,
        _ident: &TableIdent,
    ) -> Option<Arc<TableRestrictions>> {
        None
    }

    /// Takes over that something has another name or is gone: what was given on it is not given on
    /// what gets its name next.
    ///
    /// # Errors
    /// When it cannot be found out. What was known before stays in force.
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
