//! Metrics of the catalog: content and hit rates of its caches, and counters.
//!
//! All values are read when they are collected.

use std::fmt;

use node::telemetry::Registry;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::service::Catalog;

/// Registers the metrics of a catalog.
pub fn register(catalog: &Catalog, registry: &mut Registry) {
    registry.register_collector(Box::new(PublishedMetrics(catalog.clone())));
}

#[derive(Debug)]
struct PublishedMetrics(Catalog);

impl Collector for PublishedMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (cache, lists) = (self.0.entries().figures(), self.0.lists().figures());
        let mut counter = |name: &str, help: &str, value: u64| {
            let metric = ConstCounter::new(value);
            let written = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            metric.encode(written)
        };
        counter("cove_catalog_cache_hits", "Tables and views found in the cache", cache.hits)?;
        counter(
            "cove_catalog_cache_misses",
            "Tables and views not found in the cache, or nonexistent",
            cache.misses,
        )?;
        counter(
            "cove_catalog_cache_evictions",
            "Tables and views that left memory for others",
            cache.evictions,
        )?;
        counter("cove_catalog_list_hits", "Lists of names that were ready", lists.hits)?;
        counter("cove_catalog_list_misses", "Lists of names that were built", lists.misses)?;
        let mut gauge = |name: &str, help: &str, value: usize| {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let written = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            metric.encode(written)
        };
        gauge("cove_catalog_cache_used_bytes", "Memory of tables and views, roughly", cache.bytes)?;
        gauge("cove_catalog_cache_entries", "Tables and views in memory", cache.entries)?;
        gauge("cove_catalog_list_used_bytes", "Memory of ready lists, roughly", lists.bytes)
    }
}
