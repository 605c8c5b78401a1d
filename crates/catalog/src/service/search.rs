//! Search by name over a warehouse: namespaces, tables, views and columns, with the rights of the
//! caller.
//!
//! There is no index: names are read as lists read them, so that a search finds only names that the
//! caller may list. The amount of data that one search reads is bounded by named limits; beyond
//! them the result is marked as truncated.

use std::collections::VecDeque;
use std::sync::Arc;

use iceberg::ident::{NamespaceIdent, TableIdent};
use serde::Serialize;

use super::catalog::Catalog;
use super::inspect::{InspectAspect, InspectCell, ROWS_MAX, RowsPage};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::page::PageRequest;
use crate::principal::CatalogPrincipal;
use crate::store::RelationKind;
use crate::warehouse::Warehouse;

/// Longest search text, in bytes.
pub const SEARCH_TEXT_BYTES_MAX: usize = 256;

/// Results if the request does not set their number.
pub const SEARCH_RESULTS_DEFAULT: usize = 50;
/// Most results.
pub const SEARCH_RESULTS_MAX: usize = 500;

/// Most namespaces that one search reads.
const NAMESPACES_MAX: usize = 500;

/// Most tables and views whose names one search reads.
const NAMES_MAX: usize = 20_000;

/// Most tables whose columns one search reads, each of which may be a file in the object store.
const TABLES_OPENED_MAX: usize = 100;

/// Kind of a found object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FoundKind {
    /// A namespace.
    Namespace,
    /// A table.
    Table,
    /// A view.
    View,
    /// A column of a table.
    Column,
}

/// Name that contains the searched text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundName {
    /// Kind.
    pub kind: FoundKind,
    /// The found namespace, or the namespace of the found object.
    pub namespace: NamespaceIdent,
    /// Name of the object; for a column, name of its table.
    pub name: String,
    /// The column, with dots for those within others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
}

/// Results of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FoundNames {
    /// Names that were found: namespaces, then tables and views, then columns.
    pub results: Vec<FoundName>,
    /// True if there may be more: there are more results than requested, or more names than one
    /// search reads.
    pub truncated: bool,
}

/// A search in progress.
struct NameSearch<'a> {
    catalog: &'a Catalog,
    who: &'a CatalogPrincipal,
    warehouse: &'a Arc<Warehouse>,
    /// In lower case.
    text: String,
    limit: usize,
    found: FoundNames,
}

impl Catalog {
    /// Returns the objects visible to a principal whose name contains a text, without regard to
    /// case.
    ///
    /// # Errors
    /// `BadRequest` for a text that is empty or too long; `Forbidden` if the caller may list
    /// nothing.
    pub async fn search(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        text: &str,
        limit: usize,
    ) -> Result<FoundNames> {
        self.rights().listed_names(who, warehouse, None)?;
        if text.is_empty() || text.len() > SEARCH_TEXT_BYTES_MAX {
            let message = format!("`q` must have 1 to {SEARCH_TEXT_BYTES_MAX} bytes");
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        }
        let search = NameSearch {
            catalog: self,
            who,
            warehouse,
            text: text.to_lowercase(),
            limit,
            found: FoundNames::default(),
        };
        search.run().await
    }
}

impl NameSearch<'_> {
    async fn run(mut self) -> Result<FoundNames> {
        let namespaces = self.namespaces().await?;
        let tables = self.relations(&namespaces).await?;
        self.columns(&tables).await?;
        Ok(self.found)
    }

    /// Adds a result. Returns whether there is room for more.
    fn add(&mut self, result: FoundName) -> bool {
        if self.found.results.len() >= self.limit {
            self.found.truncated = true;
            return false;
        }
        self.found.results.push(result);
        true
    }

    fn fits(&self, name: &str) -> bool {
        name.to_lowercase().contains(&self.text)
    }

    /// Returns all readable namespaces, breadth first.
    async fn namespaces(&mut self) -> Result<Vec<NamespaceIdent>> {
        let (mut all, mut parents) = (Vec::new(), VecDeque::from([None]));
        while let Some(parent) = parents.pop_front() {
            let listed = self
                .catalog
                .namespaces()
                .list_namespaces(self.who, self.warehouse, parent.as_ref(), &whole())
                .await;
            // The list of the warehouse itself fails if the caller may see nothing at all; deeper
            // namespaces that were dropped meanwhile or are invisible are left out.
            let listed = match listed {
                Err(error) if parent.is_none() => return Err(error),
                Err(error) if is_hidden(&error) => continue,
                listed => listed?.items,
            };
            for namespace in listed {
                if all.len() >= NAMESPACES_MAX {
                    self.found.truncated = true;
                    return Ok(all);
                }
                let name = namespace.levels().last().map(|it| it.to_string()).unwrap_or_default();
                if self.fits(&name) {
                    let kind = FoundKind::Namespace;
                    let namespace = namespace.clone();
                    self.add(FoundName { kind, namespace, name, column: None });
                }
                parents.push_back(Some(namespace.clone()));
                all.push(namespace);
            }
        }
        Ok(all)
    }

    /// Adds tables and views. Returns the tables, for their columns.
    async fn relations(&mut self, namespaces: &[NamespaceIdent]) -> Result<Vec<TableIdent>> {
        let (mut tables, mut names) = (Vec::new(), 0);
        for namespace in namespaces {
            for (relation, kind) in
                [(RelationKind::Table, FoundKind::Table), (RelationKind::View, FoundKind::View)]
            {
                let listed = self
                    .catalog
                    .relations()
                    .list(self.who, self.warehouse, relation, namespace, &whole())
                    .await;
                let listed = match listed {
                    Err(error) if is_hidden(&error) => continue,
                    listed => listed?.items,
                };
                names += listed.len();
                for ident in listed {
                    if self.fits(&ident.name) {
                        let (namespace, name) = (namespace.clone(), ident.name.to_string());
                        self.add(FoundName { kind, namespace, name, column: None });
                    }
                    if kind == FoundKind::Table && tables.len() <= TABLES_OPENED_MAX {
                        tables.push(ident);
                    }
                }
                if names >= NAMES_MAX {
                    self.found.truncated = true;
                    return Ok(tables);
                }
            }
        }
        Ok(tables)
    }

    async fn columns(&mut self, tables: &[TableIdent]) -> Result<()> {
        self.found.truncated |= tables.len() > TABLES_OPENED_MAX;
        let page = RowsPage { token: None, size: Some(ROWS_MAX), snapshot: None };
        let place = InspectAspect::Schema.columns().iter().position(|name| *name == "name");
        for ident in tables.iter().take(TABLES_OPENED_MAX) {
            if self.found.results.len() >= self.limit {
                self.found.truncated = true;
                return Ok(());
            }
            let aspect = InspectAspect::Schema;
            let inspected =
                self.catalog.inspect(self.who, self.warehouse, ident, aspect, None, &page).await;
            let rows = match inspected {
                Ok(rows) => rows.rows,
                // A missing metadata file does not fail the search.
                Err(error) if is_hidden(&error) || error.kind == ErrorReason::NotFound => continue,
                Err(error) => return Err(error),
            };
            for row in rows {
                let Some(InspectCell::Text(column)) = place.and_then(|place| row.get(place)) else {
                    continue;
                };
                let own = column.rsplit('.').next().unwrap_or(column);
                if self.fits(own) {
                    let (namespace, name) = (ident.namespace.clone(), ident.name.to_string());
                    let (kind, column) = (FoundKind::Column, Some(column.clone()));
                    if !self.add(FoundName { kind, namespace, name, column }) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

/// A list without pages.
fn whole() -> PageRequest {
    PageRequest::default()
}

/// Returns whether the error means that an object is invisible or no longer exists.
fn is_hidden(error: &CatalogError) -> bool {
    matches!(
        error.kind,
        ErrorReason::Forbidden | ErrorReason::NoSuchNamespace | ErrorReason::NoSuchTable
    )
}
