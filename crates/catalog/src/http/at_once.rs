//! Frequent requests, served from memory before they are routed: tables, views, lists of their
//! names, namespaces.
//!
//! Rights are checked in the same place as for any other request. A request that is rejected, is
//! not in memory or needs more work is routed as usual, which reports the error, loads the data or
//! audits the request.

use std::sync::Arc;

use axum::http::{HeaderMap, Method};
use axum::response::Response;
use iceberg::ident::{NamespaceIdent, TableIdent};
use node::fair;
use node::http::{AtOnce, FastHead, FastPath, Memory, path_part};

use super::moment::AS_OF;
use super::{HttpContext, POLARIS, PREFIX, answer, delegation, tables};
use crate::access::{Hash, hash};
use crate::cache::SnapshotSelection;
use crate::service::{CatalogPrincipal, ListContent};
use crate::store::RelationKind;
use crate::warehouse::Warehouse;

/// Longest token that is cached for a connection, in bytes.
const SHOWN_BYTES_MAX: usize = 4096;

/// Target in a request's path.
#[derive(Clone, Copy)]
enum FastTarget {
    Namespace,
    List(RelationKind),
    Relation(RelationKind),
}

/// A path that is served here.
struct CachedPath<'a> {
    named: FastTarget,
    prefix: &'a str,
    namespace: &'a str,
    /// Name of a table or view.
    name: &'a str,
    /// True for the path that Polaris uses.
    is_polaris: bool,
}

impl<'a> CachedPath<'a> {
    /// Parses a path as the router would.
    fn parse(path: &'a str) -> Option<CachedPath<'a>> {
        let rest = path.strip_prefix(PREFIX)?;
        let (rest, is_polaris) = match rest.strip_prefix(POLARIS) {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let mut parts = rest.strip_prefix(super::ICEBERG)?.split('/');
        let prefix = parts.next()?;
        let namespace = (parts.next()? == "namespaces").then(|| parts.next())??;
        let kind = match parts.next() {
            None => None,
            Some("tables") => Some(RelationKind::Table),
            Some("views") => Some(RelationKind::View),
            Some(_) => return None,
        };
        let (named, name) = match (kind, parts.next()) {
            (None, _) => (FastTarget::Namespace, ""),
            (Some(kind), None) => (FastTarget::List(kind), ""),
            (Some(kind), Some(name)) => (FastTarget::Relation(kind), name),
        };
        parts.next().is_none().then_some(CachedPath { named, prefix, namespace, name, is_polaris })
    }

    /// Returns the router's name of the route.
    fn route(&self) -> &'static str {
        use RelationKind::{Table, View};
        macro_rules! route {
            ($rest:literal) => {
                match self.is_polaris {
                    false => concat!("/catalog/v1/{prefix}/namespaces/{namespace}", $rest),
                    true => concat!(
                        "/catalog/polaris/api/catalog/v1/{prefix}/namespaces/{namespace}",
                        $rest
                    ),
                }
            };
        }
        match self.named {
            FastTarget::Namespace => route!(""),
            FastTarget::List(Table) => route!("/tables"),
            FastTarget::List(View) => route!("/views"),
            FastTarget::Relation(Table) => route!("/tables/{table}"),
            FastTarget::Relation(View) => route!("/views/{view}"),
        }
    }
}

impl FastPath for HttpContext {
    fn answer(&self, head: FastHead<'_>, memory: &Memory) -> Option<AtOnce> {
        if head.method != Method::GET || head.headers.contains_key(AS_OF) {
            return None;
        }
        let path = CachedPath::parse(head.uri.path())?;
        let who = self.access.recognise(head.headers, |token| hash_of(token, memory))?.ok()?;
        fair::identify(&who.id);
        let warehouse = self.catalog.warehouses().get(&path_part(path.prefix)?).ok()?;
        let namespace = NamespaceIdent::split(&path_part(path.namespace)?, &self.separator).ok()?;
        let query = head.uri.query();
        let response = match path.named {
            FastTarget::Relation(kind) => {
                let ident = TableIdent::new(namespace, &path_part(path.name)?).ok()?;
                let snapshots = match (kind, query) {
                    (_, None) | (RelationKind::Table, Some("snapshots=all")) => {
                        SnapshotSelection::All
                    }
                    (RelationKind::Table, Some("snapshots=refs")) => SnapshotSelection::Refs,
                    _ => return None,
                };
                let request =
                    FastRequest { who: &who, warehouse: &warehouse, headers: head.headers };
                match kind {
                    RelationKind::Table => self.table(request, &ident, snapshots)?,
                    RelationKind::View => self.view(request, &ident)?,
                }
            }
            _ if query.is_some() => return None,
            FastTarget::Namespace => {
                self.list(&who, &warehouse, (ListContent::Properties, &namespace))?
            }
            FastTarget::List(kind) => {
                self.list(&who, &warehouse, (ListContent::names_of(kind), &namespace))?
            }
        };
        Some(AtOnce { response, route: path.route() })
    }
}

/// The last token of a connection, and its hash.
struct ConnectionToken {
    token: Box<str>,
    hash: Hash,
}

/// Returns the hash of a token, which is computed once for a connection that repeats its token.
fn hash_of(token: &str, memory: &Memory) -> Hash {
    let remembered = memory.take().and_then(|kept| kept.downcast::<ConnectionToken>().ok());
    let remembered = remembered.filter(|it| *it.token == *token);
    let hash = remembered.as_ref().map_or_else(|| hash(token), |it| it.hash);
    if token.len() <= SHOWN_BYTES_MAX {
        let remembered =
            remembered.unwrap_or_else(|| Box::new(ConnectionToken { token: token.into(), hash }));
        memory.set(Some(remembered));
    }
    hash
}

/// Caller and target of a request.
#[derive(Clone, Copy)]
struct FastRequest<'a> {
    who: &'a CatalogPrincipal,
    warehouse: &'a Arc<Warehouse>,
    headers: &'a HeaderMap,
}

impl HttpContext {
    fn list(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        what: (ListContent, &NamespaceIdent),
    ) -> Option<Response> {
        self.catalog.lists().ready_at_hand(who, warehouse, what.0, what.1).map(answer::of_json)
    }

    fn table(
        &self,
        FastRequest { who, warehouse, headers }: FastRequest<'_>,
        ident: &TableIdent,
        snapshots: SnapshotSelection,
    ) -> Option<Response> {
        // Access to files may have to be requested elsewhere, and is audited.
        if warehouse.storage().is_some() && delegation::is_requested(headers) {
            return None;
        }
        let entry = self.catalog.relations().at_hand(who, warehouse, RelationKind::Table, ident)?;
        let suffix = delegation::settings(warehouse);
        let end = tables::end(self, who, warehouse, ident, suffix).ok()?;
        answer::table_at_hand(headers, &entry, snapshots, &end)
    }

    fn view(
        &self,
        FastRequest { who, warehouse, headers }: FastRequest<'_>,
        ident: &TableIdent,
    ) -> Option<Response> {
        let entry = self.catalog.relations().at_hand(who, warehouse, RelationKind::View, ident)?;
        answer::document_at_hand(
            headers,
            &entry,
            SnapshotSelection::All,
            &super::suffix::FinishedSuffix::default(),
        )
    }
}
