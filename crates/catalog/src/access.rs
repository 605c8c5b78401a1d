//! Who somebody is, and what he may do.
//!
//! There are two kinds of principals. A token of Cove's with the scope `catalog` stands for its
//! tenant, or, when it is an operator's, for somebody who may do everything. A client is the
//! catalog's own: it has a secret, and gets an access token for an hour by it, as OAuth 2 has it.
//!
//! Rights are granted on a warehouse, a namespace, a table or a view, and hold for all that is in
//! it. They go by name: what gets a name later has the rights of that name. Everything that a
//! request needs is in memory; the store is read when something was changed.

mod clients;
mod grants;
mod random;
mod store;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use node::auth::{Scope, Tokens};
use node::clock::{self, Ids};
use node::store::Store;
use parking_lot::RwLock;

pub use self::clients::{CLIENTS_MAX, ClientRecord, GRACE_MAX, NewSecret};
pub use self::grants::{GRANTS_MAX, Grant, Rights};
pub use self::tokens::{AccessToken, LIFETIME, TOKENS_MAX};

use self::clients::Client;
use self::grants::Grants;
use self::store::AccessStore;
use self::tokens::{Found, Issued};
use crate::error::{Error, Kind, Result};
use crate::ident::{NamespaceIdent, TableIdent};
use crate::service::{Authority, Object, Right, Who};
use crate::warehouse::Warehouse;

/// How long another server may go on honouring what was taken back at this one.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// What access tokens begin with, so that they are told from Cove's own.
pub const TOKEN_PREFIX: &str = "cat_";

/// Principals, their secrets, their tokens and their rights. Cheap to clone.
#[derive(Clone)]
pub struct Access(Arc<Inner>);

struct Inner {
    cove: Tokens,
    store: AccessStore,
    ids: Ids,
    issued: Issued,
    loaded: RwLock<Loaded>,
    /// Held while the store is read, so that what was read first is not put in place last.
    loading: tokio::sync::Mutex<()>,
}

/// What the store says, as of one version.
#[derive(Debug, Default)]
struct Loaded {
    version: u64,
    clients: HashMap<Box<str>, Arc<Client>>,
    grants: Grants,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("version", &self.0.loaded.read().version).finish()
    }
}

impl Access {
    /// Opens what the store has; tokens of Cove's are honoured beside it.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn open(store: Store, cove: Tokens) -> Result<Access> {
        let store = AccessStore::open(store).await?;
        let inner = Inner {
            cove,
            store,
            ids: Ids::new().map_err(Error::internal)?,
            issued: Issued::new()?,
            loaded: RwLock::default(),
            loading: tokio::sync::Mutex::default(),
        };
        let access = Access(Arc::new(inner));
        access.load().await?;
        Ok(access)
    }

    /// Finds out who makes a request.
    ///
    /// # Errors
    /// `NotAuthorized` when there is no token, several, or one that is not known;
    /// `AuthenticationTimeout` when it has ended; `Forbidden` when it is for something else.
    pub fn identify(&self, headers: &HeaderMap) -> Result<Who> {
        if let Some(token) = own_token(headers) {
            return self.holder(token);
        }
        let found = node::http::authenticate(&self.0.cove, headers, Scope::Catalog);
        let principal = found.map_err(|error| crate::http::from_shell(&error))?;
        Ok(Who {
            id: format!("tenant:{}", principal.tenant).into(),
            name: principal.name,
            operator: principal.operator,
        })
    }

    /// Whose an access token is.
    fn holder(&self, token: &str) -> Result<Who> {
        match self.0.issued.find(token, clock::now()) {
            // It may have been given out while its client was removed.
            Found::Live(who) if self.is_there(&who) => Ok(who),
            Found::Ended => {
                let message = "the access token has ended; ask for another one";
                Err(Error::new(Kind::AuthenticationTimeout, message))
            }
            Found::Live(_) | Found::Unknown => {
                Err(Error::new(Kind::NotAuthorized, "the access token is not known"))
            }
        }
    }

    fn is_there(&self, who: &Who) -> bool {
        clients::of(who).is_some_and(|id| self.0.loaded.read().clients.contains_key(id))
    }

    /// Takes over what was changed by other servers, once per [`RELOAD_INTERVAL`]. Never ends.
    pub async fn keep_current(self) {
        if !self.0.store.is_shared_by_servers() {
            // Nobody else changes anything.
            return std::future::pending().await;
        }
        let mut ticks = tokio::time::interval(RELOAD_INTERVAL);
        let mut failed = false;
        loop {
            ticks.tick().await;
            let result = self.reload().await;
            // Said once, not at every try.
            if let Err(error) = &result
                && !failed
            {
                let error = error as &dyn std::error::Error;
                tracing::error!(error, "failed to read the catalog's clients and grants");
            }
            failed = result.is_err();
        }
    }

    /// Takes over what was changed since it was last read, if anything was.
    ///
    /// # Errors
    /// When the store cannot be read. What was loaded before stays in force.
    pub async fn reload(&self) -> Result<()> {
        let version = self.0.store.version().await?;
        if version == self.0.loaded.read().version { Ok(()) } else { self.load().await }
    }

    async fn load(&self) -> Result<()> {
        let _turn = self.0.loading.lock().await;
        let kept = self.0.store.load().await?;
        let clients: HashMap<Box<str>, Arc<Client>> =
            kept.clients.into_iter().map(|it| (it.id.clone(), Arc::new(it))).collect();
        let grants = Grants::new(&kept.grants)?;
        self.0.issued.keep_of(|id| clients.contains_key(id));
        *self.0.loaded.write() = Loaded { version: kept.version, clients, grants };
        Ok(())
    }

    /// What somebody may do with something.
    fn rights(&self, who: &Who, warehouse: &Warehouse, object: Object<'_>) -> Rights {
        if who.operator {
            return Rights::ALL;
        }
        self.0.loaded.read().grants.rights(&who.id, warehouse.id(), object)
    }

    /// Gives rights. Those that somebody has already stay.
    ///
    /// # Errors
    /// `Forbidden` when who gives them has no right to grant, or not all of these; `BadRequest`
    /// when there are too many grants.
    pub async fn grant(&self, who: &Who, warehouse: &Warehouse, grant: &Grant) -> Result<()> {
        self.may_change(who, warehouse, grant)?;
        self.0.store.grant(warehouse.id(), grant).await?;
        self.load().await
    }

    /// Takes rights back that were given on exactly this.
    ///
    /// # Errors
    /// `Forbidden` as of [`Access::grant`]; `NotFound` when nothing was given.
    pub async fn revoke(&self, who: &Who, warehouse: &Warehouse, grant: &Grant) -> Result<()> {
        self.may_change(who, warehouse, grant)?;
        self.0.store.revoke(warehouse.id(), grant).await?;
        self.load().await
    }

    /// What was given on a warehouse and all that is in it, or to one principal of it.
    ///
    /// # Errors
    /// `Forbidden` without the right to grant on the warehouse.
    pub async fn grants(
        &self,
        who: &Who,
        warehouse: &Warehouse,
        principal: Option<&str>,
    ) -> Result<Vec<Grant>> {
        self.may_grant(who, warehouse, Object::Warehouse, Rights::NONE)?;
        let kept = self.0.store.load().await?.grants.into_iter();
        let here = kept.filter(|(place, _)| **place == **warehouse.id()).map(|(_, grant)| grant);
        Ok(here.filter(|it| principal.is_none_or(|wanted| it.principal == wanted)).collect())
    }

    fn may_change(&self, who: &Who, warehouse: &Warehouse, grant: &Grant) -> Result<()> {
        grant.check()?;
        let ident = match (&grant.namespace, &grant.name) {
            (Some(namespace), Some(name)) => Some(TableIdent::new(namespace.clone(), name)?),
            _ => None,
        };
        self.may_grant(who, warehouse, object(grant.namespace.as_ref(), &ident), grant.rights)
    }

    fn may_grant(
        &self,
        who: &Who,
        warehouse: &Warehouse,
        object: Object<'_>,
        rights: Rights,
    ) -> Result<()> {
        let own = self.rights(who, warehouse, object);
        if !own.allow(Right::Grant) {
            return Err(forbidden(who, Right::Grant));
        }
        // Nobody can give away, or take away, more than he has.
        match rights.iter().find(|right| !own.allow(*right)) {
            Some(right) => Err(forbidden(who, right)),
            None => Ok(()),
        }
    }
}

impl Authority for Access {
    fn check(
        &self,
        who: &Who,
        warehouse: &Warehouse,
        right: Right,
        object: Object<'_>,
    ) -> Result<()> {
        match self.rights(who, warehouse, object).allow(right) {
            true => Ok(()),
            false => Err(forbidden(who, right)),
        }
    }
}

/// Refuses whoever is no operator.
pub(crate) fn only_operators(who: &Who) -> Result<()> {
    if who.operator {
        return Ok(());
    }
    Err(Error::new(Kind::Forbidden, "this needs the token of an operator"))
}

fn forbidden(who: &Who, right: Right) -> Error {
    let right = grants::name(right);
    Error::new(Kind::Forbidden, format!("`{}` has no right to {right} this", who.name))
}

fn object<'a>(namespace: Option<&'a NamespaceIdent>, ident: &'a Option<TableIdent>) -> Object<'a> {
    match (ident, namespace) {
        (Some(ident), _) => Object::Relation(ident),
        (None, Some(namespace)) => Object::Namespace(namespace),
        (None, None) => Object::Warehouse,
    }
}

/// The access token of a request, if that is all it has to show: two tokens would let a proxy
/// check one and the server use the other.
fn own_token(headers: &HeaderMap) -> Option<&str> {
    let token = bearer(headers)?;
    token.starts_with(TOKEN_PREFIX).then_some(token)
}

/// What the one `Authorization: Bearer` header says.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
