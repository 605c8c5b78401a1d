//! Where tables and views have files: each place that one's document has named since it was made.
//! Snapshots and old metadata stay where they were written when a location changes, so a place is
//! a relation's until that is forgotten.

use node::store::{StoreError, Transaction, Value};

use super::CatalogStore;
use super::log::Stamp;
use crate::error::{Error, Kind, Result};
use crate::warehouse::Place;

/// Slashes of a place before its first part: `file:///a`, and `s3://bucket` is one already.
const SLASHES_OF_ROOT: usize = 2;

type Stored<T> = std::result::Result<T, StoreError>;

impl CatalogStore {
    /// Whether a place is one that a relation has or had files in, or in such a one.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn is_place_of(&self, place: &str, relation: &str) -> Result<bool> {
        let parameters = [Value::from(place_of(place)), Value::from(relation)];
        let read = self.store().read("catalog.is_place_of", move |it| {
            let sql = "SELECT relation FROM catalog_places WHERE relation = $2 AND (\
                place = CAST($1 AS TEXT) \
                OR substr(CAST($1 AS TEXT), 1, length(place) + 1) = place || '/') LIMIT 1";
            Ok(it.query_one(sql, &parameters)?.is_some())
        });
        Ok(read.await?)
    }

    /// Whether a relation, but for the one with the id `except`, has or had files in the directory
    /// `base`, or `base` is in such a place, in any warehouse. What was dropped and can come back
    /// counts as well.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn is_shared(&self, base: &str, except: &str) -> Result<bool> {
        let (base, except) = (place_of(base), except.to_owned());
        let read = self.store().read("catalog.is_shared", move |it| shared(it, &base, &except));
        Ok(read.await?)
    }
}

/// What [`CatalogStore::is_shared`] answers, of a place as [`place_of`] writes it.
fn shared(it: &mut dyn Transaction, place: &str, except: &str) -> Stored<bool> {
    // Each of the three is found in the index, so that others may change elsewhere meanwhile. What
    // is below begins with the place and `/`, and comes before the byte after that one.
    let mut parameters = vec![
        Value::from(except),
        place.into(),
        format!("{place}/").into(),
        format!("{place}0").into(),
    ];
    let mut above = String::new();
    for (at, _) in place.match_indices('/').skip(SLASHES_OF_ROOT) {
        parameters.push(place[..at].into());
        above.push_str(&format!(", ${}", parameters.len()));
    }
    let sql = format!(
        "SELECT relation FROM catalog_places WHERE relation <> $1 \
         AND (place > $3 AND place < $4 OR place IN ($2{above})) LIMIT 1"
    );
    Ok(it.query_one(&sql, &parameters)?.is_some())
}

/// Refuses a place where files of another relation than `own` are, to who is no operator. In the
/// transaction that gives the place away: of two who want one at the same time one gets it.
pub(super) fn require_apart(
    it: &mut dyn Transaction,
    stamp: &Stamp,
    location: &str,
    own: &str,
) -> Stored<()> {
    match stamp.is_operator || !shared(it, &place_of(location), own)? {
        true => Ok(()),
        false => Err(StoreError::refuse(not_apart(location))),
    }
}

/// That others have files at a location.
pub(crate) fn not_apart(location: &str) -> Error {
    let shown: String = location.chars().take(200).collect();
    let message = format!(
        "the location `{shown}` is within another table's or contains it, or within that of one \
         that was dropped and can come back"
    );
    Error::new(Kind::Forbidden, message)
}

/// The one text that stands for a location, so that two of them can be compared.
pub(crate) fn place_of(location: &str) -> String {
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
