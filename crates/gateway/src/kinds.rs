//! The kinds of grants, in one file per kind.
//!
//! A kind is a type that implements [`GrantKind`], and one line in each of the two tables here:
//! [`kind_of`], and [`OFFER_FORMS`] for its names in `[[gateway.offers]]`.

mod catalog;
mod database;
mod http;
mod model;

use std::sync::Arc;

use api::{Grant, TenantEngine};
use node::gateway::GrantHolder;

use self::catalog::CatalogKind;
use self::database::DatabaseKind;
use self::http::HttpKind;
use self::model::ModelKind;
use crate::config::GatewayConfig;
use crate::doors::{AuditSink, DatabaseDoor, FieldError, StreamDoor};
use crate::offers::{GrantNotOffered, TenantOffers};
use crate::shared::{GatewayShared, TenantShare};

/// A requested grant, in the form of its kind.
pub(crate) trait GrantKind {
    /// Checks that the tenant of a token may give the grant.
    ///
    /// # Errors
    /// The part of the grant that is not offered.
    fn check_offered(&self, offers: &TenantOffers<'_>) -> Result<(), GrantNotOffered>;

    /// Returns the first limit of the grant that is above the server's.
    fn limit_above(&self, config: &GatewayConfig) -> Option<&'static str>;

    /// Checks the grant, and completes it with the server's limits.
    ///
    /// # Errors
    /// The invalid field of the grant.
    fn resolve(&self, shared: &GatewayShared) -> Result<Box<dyn ResolvedGrant>, FieldError>;
}

/// A grant that was checked, with all its limits.
pub(crate) trait ResolvedGrant: Send {
    /// Environment variables by which clients in the sandbox find the service at this port.
    fn variables(&self, port: u16) -> GrantVariables;

    /// Value of `DATABASE_URL` if this is the only database; `None` for other targets.
    fn database_url(&self, _port: u16) -> Option<String> {
        None
    }

    /// Opens access to the service behind the grant.
    ///
    /// # Errors
    /// If the grant has become impossible since it was checked.
    fn open(self: Box<Self>, context: OpenContext<'_>) -> Result<GrantListener, String>;
}

/// Names and values of environment variables.
pub(crate) type GrantVariables = Vec<(&'static str, String)>;

/// Sandbox for which a grant is opened, with the gateway's state for it.
pub(crate) struct OpenContext<'a> {
    pub(crate) shared: &'a GatewayShared,
    pub(crate) tenant: &'a TenantShare,
    pub(crate) holder: GrantHolder,
    /// Port in the sandbox.
    pub(crate) port: u16,
    /// Sink of the grant's audit records.
    pub(crate) audit: Arc<dyn AuditSink>,
}

/// Server of the connections that a sandbox opens to a grant.
#[derive(Clone)]
pub(crate) enum GrantListener {
    /// A relay, which takes sockets.
    Database(Arc<dyn DatabaseDoor>),
    /// HTTP, served on the runtime.
    Stream(Arc<dyn StreamDoor>),
}

/// Address of all services in the sandbox.
const LOOPBACK: &str = "127.0.0.1";

/// Returns the kind of a grant.
pub(crate) fn kind_of(grant: &Grant) -> Box<dyn GrantKind + '_> {
    match grant {
        Grant::Postgres(grant) => Box::new(DatabaseKind::new(TenantEngine::Postgres, grant)),
        Grant::Mysql(grant) => Box::new(DatabaseKind::new(TenantEngine::Mysql, grant)),
        Grant::Catalog(grant) => Box::new(CatalogKind(grant)),
        Grant::Http(grant) => Box::new(HttpKind(grant)),
        Grant::Model(grant) => Box::new(ModelKind(grant)),
    }
}

/// Checks the offers of one kind: the text after `kind:`, `None` without a colon.
type OfferForm = fn(Option<&str>) -> bool;

const OFFER_FORMS: [(&str, OfferForm); 5] = [
    ("postgres", is_named_offer),
    ("mysql", is_named_offer),
    ("catalog", is_named_offer),
    ("http", http::is_offer),
    ("model", |name| name.is_none()),
];

/// Returns whether a label names an offer: `postgres:shop:rw`, `http:*.example.com`, `model`.
pub(crate) fn is_offer(label: &str) -> bool {
    let (kind, name) = kind_and_name(label);
    OFFER_FORMS.iter().any(|(known, form)| *known == kind && form(name))
}

/// Returns the parts of an offer's label.
pub(crate) fn kind_and_name(label: &str) -> (&str, Option<&str>) {
    label.split_once(':').map_or((label, None), |(kind, it)| (kind, Some(it)))
}

/// Returns whether this is a name, with or without the mark for writing.
fn is_named_offer(name: Option<&str>) -> bool {
    let name = name.map(|it| it.strip_suffix(crate::offers::READ_WRITE).unwrap_or(it));
    name.is_some_and(|name| !name.is_empty() && !name.contains(':'))
}

/// Returns whether a grant's own limit is above the server's; 0 means no limit.
fn is_above<T: PartialOrd + Default>(own: Option<T>, server: T) -> bool {
    let none = T::default();
    own.is_some_and(|own| server != none && (own == none || own > server))
}

/// Returns the first limit that is marked.
fn first_above<const N: usize>(limits: [(&'static str, bool); N]) -> Option<&'static str> {
    limits.into_iter().find(|(_, is_above)| *is_above).map(|(name, _)| name)
}

/// Error of a grant whose backend this server does not run.
fn no_backend(what: &str) -> FieldError {
    FieldError::new("kind", format!("this server has no {what}"))
}

/// Error for a grant whose backend no longer exists.
fn backend_gone() -> String {
    "no backend is configured for this grant".to_owned()
}

#[cfg(test)]
mod tests;
