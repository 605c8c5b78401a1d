//! Places of files of tables and views: each one that a document has named since it was made.
//! Snapshots and old metadata stay where they were written when a location changes, so a place is a
//! relation's until that is forgotten.

use iceberg::ident::{NamespaceIdent, TableIdent};
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::log::ChangeContext;
use super::namespaces::{self, Properties};
use super::relations::{self, MetadataPointer};
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::warehouse::TableLocation;

/// Slashes of a place before its first part: `file:///a`, and `s3://bucket` is one already.
const SLASHES_OF_ROOT: usize = 2;

/// Directories that an object is in, at most.
const DIRECTORIES_MAX: usize = 100;

/// Tables that are looked at for one object: those that have a place in common share it by an
/// operator's word.
const TABLES_MAX: usize = 8;

type Stored<T> = std::result::Result<T, SqlStoreError>;

/// Locations of relations, and what is near them, in the store.
#[derive(Clone, Debug)]
pub(crate) struct LocationStore(pub(super) CatalogDatabase);

/// State that a new relation has to fit, as of one moment.
#[derive(Clone, Debug)]
pub(crate) struct NewRelationSite {
    /// Location that it is to have.
    pub(crate) location: String,
    /// Relation that has its name.
    pub(crate) found: Option<MetadataPointer>,
    /// True if files of another relation are at the location or in it, or it is in such a place.
    pub(crate) is_shared: bool,
}

impl LocationStore {
    /// Reads what a new relation has to fit. `locate` gives it a location, by its namespace and all
    /// that this is in, the innermost first. Nothing when there is no such namespace.
    ///
    /// # Errors
    /// When the store cannot be read.
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

    /// Returns whether a place is one that a relation has or had files in, or in such a one.
    ///
    /// # Errors
    /// When the store cannot be read.
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

    /// Tables of a warehouse that have or had files in a directory that an object is in, the
    /// innermost directory first. None when the object is in too many directories to be anybody's.
    ///
    /// # Errors
    /// When the store cannot be read.
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

    /// Returns whether a relation, but for the one with the id `except`, has or had files in the
    /// directory `base`, or `base` is in such a place, in any warehouse. What was dropped and can
    /// come back counts as well.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn is_shared(&self, base: &str, except: &str) -> Result<bool> {
        let (base, except) = (place_of(base), except.to_owned());
        let read = self.0.read("catalog.is_shared", move |it| shared(it, &base, &except));
        read.await
    }

    /// Returns whether a directory is one that a relation has or had files in, or in such a one, in
    /// any warehouse.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn is_within_another(&self, base: &str) -> Result<bool> {
        let base = place_of(base);
        let read = self.0.read("catalog.is_within", move |it| is_within(it, &base, ""));
        read.await
    }
}

/// Adds a place and all that it is in to the parameters of a statement. Answers their numbers.
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

/// Returns whether a place, as [`place_of`] writes it, is another relation's or in such a one.
fn is_within(it: &mut dyn StoreTransaction, place: &str, except: &str) -> Stored<bool> {
    let mut parameters = vec![SqlValue::from(except)];
    let within = within(&mut parameters, place);
    let sql = format!(
        "SELECT relation FROM catalog_places WHERE place IN ({within}) AND relation <> $1 LIMIT 1"
    );
    Ok(it.query_one(&sql, &parameters)?.is_some())
}

/// Returns what [`LocationStore::is_shared`] answers, of a place as [`place_of`] writes it.
fn shared(it: &mut dyn StoreTransaction, place: &str, except: &str) -> Stored<bool> {
    if is_within(it, place, except)? {
        return Ok(true);
    }
    // What is below begins with the place and `/`, and comes before the byte after that one. Places
    // are bytes in the store: a database may have another order of texts. It is read in order, or
    // PostgreSQL would rather read all places for one that there seldom is.
    let sql = "SELECT relation FROM catalog_places \
        WHERE place > $2 AND place < $3 AND relation <> $1 ORDER BY place LIMIT 1";
    let [first, end] = ['/', '0'].map(|it| format!("{place}{it}").into_bytes());
    let parameters = [except.into(), SqlValue::from(first), end.into()];
    Ok(it.query_one(sql, &parameters)?.is_some())
}

/// Refuses a place where files of another relation than `own` are, to who is no operator. In the
/// transaction that gives the place away: of two who want one at the same time one gets it.
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

/// That others have files at a location.
pub(crate) fn not_apart(location: &str) -> CatalogError {
    let excerpt: String = location.chars().take(200).collect();
    let message = format!(
        "the location `{excerpt}` is within another table's or contains it, or within that of one \
         that was dropped and can come back"
    );
    CatalogError::new(ErrorReason::Forbidden, message)
}

/// The one text that stands for a location, so that two of them can be compared.
pub(crate) fn place_of(location: &str) -> String {
    match location.parse::<TableLocation>() {
        Ok(place) => place.to_string(),
        // None that a new document may have. It is compared with itself alone.
        Err(_) => location.to_owned(),
    }
}

/// Notes places of a relation. Those that it has had stay.
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

/// Gives places of a relation that goes to the one that takes its place.
pub(super) fn pass_on(it: &mut dyn StoreTransaction, from: &str, to: &str) -> Stored<()> {
    let sql = "INSERT INTO catalog_places (relation, place) \
        SELECT CAST($2 AS TEXT), place FROM catalog_places WHERE relation = $1 \
        ON CONFLICT DO NOTHING";
    it.execute(sql, &[from.into(), to.into()])?;
    forget(it, from)
}

/// Forgets the places of a relation that is forgotten.
pub(super) fn forget(it: &mut dyn StoreTransaction, relation: &str) -> Stored<()> {
    it.execute("DELETE FROM catalog_places WHERE relation = $1", &[relation.into()]).map(drop)
}
