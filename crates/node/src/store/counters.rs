//! Counters of changes: a service polls one to learn whether another server has changed data that
//! it caches. All of them are read in one query, which an idle server makes once a second.

use std::time::{Duration, Instant};

use super::{SqlStore, SqlStoreError, StoreTransaction};
use crate::clock;

/// Age at which a reading still counts where nothing newer is asked for. A little more than the
/// second after which tokens are looked at, so that theirs is the only query.
pub const COUNTER_AGE_MAX: Duration = Duration::from_millis(1200);

/// The last reading of all counters that somebody looks at.
#[derive(Debug, Default)]
pub(super) struct CounterReadings {
    queries: Vec<&'static str>,
    /// In the order of the queries; none where there is no row.
    values: Vec<Option<u64>>,
    read_at: Option<Instant>,
}

impl CounterReadings {
    /// Returns a value that is not too old; none when there is no such.
    fn find(&self, query: &str, age_max: Duration) -> Option<Option<u64>> {
        let read_at = self.read_at?;
        if clock::now().saturating_duration_since(read_at) >= age_max {
            return None;
        }
        let index = self.queries.iter().position(|it| *it == query)?;
        self.values.get(index).copied()
    }

    fn register(&mut self, query: &'static str) -> Vec<&'static str> {
        if !self.queries.contains(&query) {
            self.queries.push(query);
        }
        self.queries.clone()
    }
}

impl SqlStore {
    /// Returns a counter, as it was at most `age_max` ago. `query` selects one number from one row,
    /// of a table that exists; none when the row does not. It is read again together with all
    /// counters that were ever looked at.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn counter(
        &self,
        query: &'static str,
        age_max: Duration,
    ) -> Result<Option<u64>, SqlStoreError> {
        if let Some(value) = self.0.counters.lock().find(query, age_max) {
            return Ok(value);
        }
        let queries = self.0.counters.lock().register(query);
        let read_at = clock::now();
        let to_read = queries.clone();
        let values = self.read("store.counters", move |it| read(it, &to_read)).await?;
        let index = queries.iter().position(|it| *it == query);
        let value = index.and_then(|index| values.get(index).copied().flatten());
        let mut counters = self.0.counters.lock();
        // Of two that read at once, the later one counts.
        if counters.read_at.is_none_or(|at| at <= read_at) {
            counters.values = values;
            counters.read_at = Some(read_at);
        }
        Ok(value)
    }
}

fn read(
    it: &mut dyn StoreTransaction,
    queries: &[&'static str],
) -> Result<Vec<Option<u64>>, SqlStoreError> {
    let columns: Vec<String> = queries.iter().map(|query| format!("({query})")).collect();
    let row = it.query_one(&format!("SELECT {}", columns.join(", ")), &[])?;
    let row = row.ok_or(SqlStoreError::Spoiled)?;
    (0..queries.len()).map(|index| row.get(index)).collect()
}
