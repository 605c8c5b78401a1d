//! Where tables and views have files: each place that one's document has named since it was made.
//! Snapshots and old metadata stay where they were written when a location changes, so a place is
//! a relation's until that is forgotten.

use node::store::{StoreError, Transaction, Value};

use super::CatalogStore;
use crate::error::Result;
use crate::warehouse::Place;

type Stored<T> = std::result::Result<T, StoreError>;

impl CatalogStore {
    /// Whether a relation, but for the one with the id `except`, has or had files in the directory
    /// `base`, or `base` is in such a place, in any warehouse. What was dropped and can come back
    /// counts as well.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn is_shared(&self, base: &str, except: &str) -> Result<bool> {
        let parameters = [Value::from(place_of(base)), Value::from(except)];
        let read = self.store().read("catalog.is_shared", move |it| {
            let sql = "SELECT relation FROM catalog_places WHERE relation <> $2 AND (\
                place = CAST($1 AS TEXT) \
                OR substr(place, 1, length(CAST($1 AS TEXT)) + 1) = CAST($1 AS TEXT) || '/' \
                OR substr(CAST($1 AS TEXT), 1, length(place) + 1) = place || '/') LIMIT 1";
            Ok(it.query_one(sql, &parameters)?.is_some())
        });
        Ok(read.await?)
    }
}

/// The one text that stands for a location, so that two of them can be compared.
pub(super) fn place_of(location: &str) -> String {
    match location.parse::<Place>() {
        Ok(place) => place.to_string(),
        // None that a new document may have. It is compared with itself alone.
        Err(_) => location.to_owned(),
    }
}

/// Notes places of a relation. Those that it has had stay.
pub(super) fn keep<'a>(
    it: &mut dyn Transaction,
    relation: &str,
    places: impl Iterator<Item = &'a String>,
) -> Stored<()> {
    let sql = "INSERT INTO catalog_places (relation, place) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    for place in places {
        it.execute(sql, &[relation.into(), place_of(place).into()])?;
    }
    Ok(())
}

/// Gives places of a relation that goes to the one that takes its place.
pub(super) fn pass_on(it: &mut dyn Transaction, from: &str, to: &str) -> Stored<()> {
    let sql = "INSERT INTO catalog_places (relation, place) \
        SELECT CAST($2 AS TEXT), place FROM catalog_places WHERE relation = $1 \
        ON CONFLICT DO NOTHING";
    it.execute(sql, &[from.into(), to.into()])?;
    forget(it, from)
}

/// Forgets the places of a relation that is forgotten.
pub(super) fn forget(it: &mut dyn Transaction, relation: &str) -> Stored<()> {
    it.execute("DELETE FROM catalog_places WHERE relation = $1", &[relation.into()]).map(drop)
}
