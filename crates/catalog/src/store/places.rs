//! Locations of files of tables and views: each one that a document has named since the relation
//! was created. Snapshots and old metadata stay in place when a location changes, so a location
//! belongs to a relation until the relation is forgotten.

use iceberg::ident::{NamespaceIdent, TableIdent};
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::log::ChangeContext;
use super::namespaces::{self, Properties};
use super::relations::{self, MetadataPointer};
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::warehouse::TableLocation;

/// Slashes of a location before its first segment: `file:///a`; in `s3://bucket` the bucket is a
/// segment.
const SLASHES_OF_ROOT: usize = 2;

/// Most directories that contain an object.
const DIRECTORIES_MAX: usize = 100;

/// Most tables that are considered for one object: tables share a location only if an operator
/// chose so.
const TABLES_MAX: usize = 8;

type Stored<T> = std::result::Result<T, SqlStoreError>;

/// Locations of relations, and queries for overlapping ones, in the store.
#[derive(Clone, Debug)]
pub(crate) struct LocationStore(pub(super) CatalogDatabase);

/// State that a new relation has to fit, at one point in time.
#[derive(Clone, Debug)]
pub(crate) struct NewRelationSite {
    /// Location of the new relation.
    pub(crate) location: String,
    /// Existing relation of its name.
    pub(crate) found: Option<MetadataPointer>,
    /// True if another relation has files at or below the location, or the location is below
    /// another relation's.
    pub(crate) is_shared: bool,
}

impl LocationStore {
    /// Reads the state that a new relation has to fit. `locate` chooses its location from its
    /// namespace and the namespace's ancestors, innermost first. `None` if the namespace does not
    /// exist.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn site_of_new(
        &self,
        warehouse: &str,
        ident: &TableIdent,
        locate: impl Fn(&[(NamespaceIdent, Properties)]) -> String + Send + 'static,
    ) -> Result<Option<NewRelationSite>> {
        let (warehouse, ident) = (warehouse.to_owned(), ident.clone());
        let read = self.0.read("catalog.site_of_new", move |it| {
            let chain = namespaces::properties_up(it, &warehouse, &ident.namespace)?;
            if chain.first().is_none_or(|(first, _)| *first != ident.namespace) {
                return Ok(None);
            }
            let location = locate(&chain);
            let found = relations::find(it, &warehouse, &ident)?;
            let is_shared = shared(it, &place_of(&location), "")?;
            Ok(Some(NewRelationSite { location, found, is_shared }))
        });
        read.await
    }

    /// Returns whether a location is at or below one where a relation has or had files.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn is_place_of(&self, place: &str, relation: &str) -> Result<bool> {
        let mut parameters = vec![SqlValue::from(relation)];
        let within = within(&mut parameters, &place_of(place));
        let read = self.0.read("catalog.is_place_of", move |it| {
            let sql = format!(
                "SELECT relation FROM catalog_places WHERE relation = $1 \
                 AND place IN ({within}) LIMIT 1"
            );
            Ok(it.query_one(&sql, &parameters)?.is_some())
        });
        read.await
    }

    /// Returns the tables of a warehouse that have or had files in a directory that contains an
    /// object, innermost directory first. Empty if the object is in too many directories to belong
    /// to a table.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn tables_around(
        &self,
        warehouse: &str,
        object: &str,
    ) -> Result<Vec<TableIdent>> {
        if object.matches('/').count() > DIRECTORIES_MAX {
            return Ok(Vec::new());
        }
        let mut parameters = vec![SqlValue::from(warehouse)];
        let within = within(&mut parameters, object);
        let read = self.0.read("catalog.tables_around", move |it| {
            let sql = format!(
                "SELECT t.namespace, t.name FROM catalog_places p \
                 JOIN catalog_tables t ON t.id = p.relation \
                 WHERE p.place IN ({within}) AND t.warehouse = $1 AND t.kind = 'table' \
                 ORDER BY LENGTH(p.place) DESC LIMIT {TABLES_MAX}"
            );
            let rows = it.query(&sql, &parameters)?;
            let row = |row: &SqlRow| Ok((row.get::<String>(0)?, row.get::<String>(1)?));
            rows.iter().map(row).collect::<Stored<Vec<_>>>()
        });
        let found = read.await?;
        let ident = |(path, name): (String, String)| {
            TableIdent::new(NamespaceIdent::split(&path, "")?, &name)
        };
        found.into_iter().map(ident).collect()
    }

    /// Returns whether a relation other than `except` has or had files in the directory `base`, or
    /// `base` is below such a location, in any warehouse. Dropped relations that can be restored
    /// count as well.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn is_shared(&self, base: &str, except: &str) -> Result<bool> {
        let (base, except) = (place_of(base), except.to_owned());
        let read = self.0.read("catalog.is_shared", move |it| shared(it, &base, &except));
        read.await
    }

    /// Returns whether a directory is at or below one where a relation has or had files, in any
    /// warehouse.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn is_within_another(&self, base: &str) -> Result<bool> {
        let base = place_of(base);
        let read = self.0.read("catalog.is_within", move |it| is_within(it, &base, ""));
        read.await
    }
}

/// Adds a location and all its ancestors to the parameters of a statement. Returns their numbers.
fn within(parameters: &mut Vec<SqlValue>, place: &str) -> String {
    let mut numbers = String::new();
    let above = place.match_indices('/').skip(SLASHES_OF_ROOT).map(|(at, _)| &place[..at]);
    for one in above.chain([place]) {
        parameters.push(one.as_bytes().into());
        let comma = if numbers.is_empty() { "" } else { ", " };
        numbers.push_str(&format!("{comma}${}", parameters.len()));
    }
    numbers
}

/// Returns whether a location in the form of [`place_of`] is at or below another relation's.
fn is_within(it: &mut dyn StoreTransaction, place: &str, except: &str) -> Stored<bool> {
    let mut parameters = vec![SqlValue::from(except)];
    let within = within(&mut parameters, place);
    let sql = format!(
        "SELECT relation FROM catalog_places WHERE place IN ({within}) AND relation <> $1 LIMIT 1"
    );
    Ok(it.query_one(&sql, &parameters)?.is_some())
}

/// Returns the result of [`LocationStore::is_shared`], for a location in the form of [`place_of`].
fn shared(it: &mut dyn StoreTransaction, place: &str, except: &str) -> Stored<bool> {
    if is_within(it, place, except)? {
        return Ok(true);
    }
    // Locations below begin with the location and `/`, and sort before the byte after `/`. The
    // column holds bytes, because a database may sort texts differently. The query is ordered,
    // because PostgreSQL would otherwise scan all locations for a rare match.
    let sql = "SELECT relation FROM catalog_places \
        WHERE place > $2 AND place < $3 AND relation <> $1 ORDER BY place LIMIT 1";
    let [first, end] = ['/', '0'].map(|it| format!("{place}{it}").into_bytes());
    let parameters = [except.into(), SqlValue::from(first), end.into()];
    Ok(it.query_one(sql, &parameters)?.is_some())
}

/// Rejects a location with files of a relation other than `own`, except for operators. Runs in the
/// transaction that assigns the location, so that of two concurrent requests only one succeeds.
pub(super) fn require_apart(
    it: &mut dyn StoreTransaction,
    context: &ChangeContext,
    location: &str,
    own: &str,
) -> Stored<()> {
    match context.is_operator || !shared(it, &place_of(location), own)? {
        true => Ok(()),
        false => Err(SqlStoreError::refuse(not_apart(location))),
    }
}

/// Returns the error for a location that other relations use.
pub(crate) fn not_apart(location: &str) -> CatalogError {
    let excerpt: String = location.chars().take(200).collect();
    let message = format!(
        "the location `{excerpt}` is within another table's or contains it, or within that of one \
         that was dropped and can come back"
    );
    CatalogError::new(ErrorReason::Forbidden, message)
}

/// Returns the canonical text of a location, for comparisons.
pub(crate) fn place_of(location: &str) -> String {
    match location.parse::<TableLocation>() {
        Ok(place) => place.to_string(),
        // No new document may have it. It equals only itself.
        Err(_) => location.to_owned(),
    }
}

/// Records locations of a relation. Earlier ones are kept.
pub(super) fn keep<'a>(
    it: &mut dyn StoreTransaction,
    relation: &str,
    places: impl Iterator<Item = &'a String>,
) -> Stored<()> {
    let sql = "INSERT INTO catalog_places (relation, place) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    for place in places {
        it.execute(sql, &[relation.into(), place_of(place).into_bytes().into()])?;
    }
    Ok(())
}

/// Moves the locations of a removed relation to the one that replaces it.
pub(super) fn pass_on(it: &mut dyn StoreTransaction, from: &str, to: &str) -> Stored<()> {
    let sql = "INSERT INTO catalog_places (relation, place) \
        SELECT CAST($2 AS TEXT), place FROM catalog_places WHERE relation = $1 \
        ON CONFLICT DO NOTHING";
    it.execute(sql, &[from.into(), to.into()])?;
    forget(it, from)
}

/// Removes the locations of a forgotten relation.
pub(super) fn forget(it: &mut dyn StoreTransaction, relation: &str) -> Stored<()> {
    it.execute("DELETE FROM catalog_places WHERE relation = $1", &[relation.into()]).map(drop)
}
