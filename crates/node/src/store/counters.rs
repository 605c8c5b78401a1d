//! Counters of changes: a service polls one to learn whether another server has changed data that
//! it caches. All of them are read in one query, which an idle server makes once a second.

use std::time::{Duration, Instant};

use super::{SqlStore, SqlStoreError, StoreTransaction};
use crate::clock;

/// Maximum age of a reading that is used without a new query, if the caller does not require a
/// newer one. A little more than the interval at which tokens are checked, so that theirs is the
/// only query.
pub const COUNTER_AGE_MAX: Duration = Duration::from_millis(1200);

/// The last reading of all registered counters.
#[derive(Debug, Default)]
pub(super) struct CounterReadings {
    queries: Vec<&'static str>,
    /// In the order of the queries; none if there is no row.
    values: Vec<Option<u64>>,
    read_at: Option<Instant>,
}

impl CounterReadings {
    /// Returns a value of at most this age; none if there is none.
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
    /// Returns a counter, at most `age_max` old. `query` selects one number from one row of an
    /// existing table; none if the row does not exist. Each reading covers all counters that were
    /// ever requested.
    ///
    /// # Errors
    /// If the store cannot be read.
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
        // If two reads overlap, the later one wins.
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
