//! `/v1/history`: figures that this server measured in the last 24 hours, so that a chart has data
//! at once.
//!
//! Once a second, counters that services keep anyway are read, and their differences are stored in
//! a ring in memory ([`node::history`]). No figure is written to disk, no metric is rendered and no
//! store is queried. [`HistoryReader`] decides which figures a caller sees: an operator sees the
//! whole server, other callers their own tenant.
//!
//! | file | contents |
//! |---|---|
//! | `catalogue.rs` | the table of series: name, unit, required scope |
//! | `sources.rs` | reads the services |
//! | `query.rs` | parses a request: pure |
//! | `show.rs`, `sparkline.rs` | `cove history`: a table with a line for each series |

mod catalogue;
mod query;
pub(crate) mod show;
mod sources;
mod sparkline;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::operations::server as table;
use api::{ErrorCode, HistoryReport, HistorySeries};
use axum::extract::State;
use axum::http::Uri;
use axum::{Json, Router};
use node::auth::TokenPrincipal;
use node::clock;
use node::cluster::NodeIdentity;
use node::history::{HistoryMoment, HistoryRing, HistoryWindow, SeriesId, SeriesSample};
use node::http::{HttpError, OperationRoutes};
use parking_lot::Mutex;
use serde::Deserialize;

use self::query::{HistoryQuery, HistorySelection};
use self::sources::HistorySampler;
pub(crate) use self::sources::HistorySources;

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(node::history::FINE_STEP_S);

/// The `[history]` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HistoryConfig {
    /// True if figures are kept in memory.
    pub(crate) enabled: bool,
}

impl Default for HistoryConfig {
    fn default() -> HistoryConfig {
        HistoryConfig { enabled: true }
    }
}

/// History of this server. Clones share the state.
#[derive(Clone)]
pub(crate) struct HistoryService(Arc<HistoryInner>);

struct HistoryInner {
    /// Id of this server.
    node: String,
    config: HistoryConfig,
    started: std::time::Instant,
    ring: Mutex<HistoryRing>,
}

impl HistoryService {
    /// Returns an empty history of this server, and its routes.
    pub(crate) fn open(node: &NodeIdentity, config: HistoryConfig) -> (HistoryService, Router) {
        let (node, started, ring) = (node.id.clone(), clock::now(), Mutex::default());
        let history = HistoryService(Arc::new(HistoryInner { node, config, started, ring }));
        let routes = handlers().with_state(history.clone());
        (history, routes)
    }

    /// Samples once a second, for as long as this is polled; waits forever if the history is
    /// disabled.
    pub(crate) async fn work(&self, sources: HistorySources) {
        if !self.0.config.enabled {
            return std::future::pending().await;
        }
        let mut sampler = HistorySampler::new(sources);
        loop {
            self.keep(sampler.sample(clock::now()));
            tokio::time::sleep(until_next_sample(self.elapsed())).await;
        }
    }

    fn keep(&self, samples: Vec<SeriesSample>) {
        let moment = self.moment();
        let mut ring = self.0.ring.lock();
        let was_full = ring.left_out() > 0;
        ring.record(moment, samples);
        let left_out = ring.left_out();
        drop(ring);
        // Logged once, not every second.
        if left_out > 0 && !was_full {
            tracing::warn!(left_out, "the history has no room for all series");
        }
    }

    fn elapsed(&self) -> Duration {
        clock::now().saturating_duration_since(self.0.started)
    }

    fn moment(&self) -> HistoryMoment {
        let monotonic_ms = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        HistoryMoment { monotonic_ms, wall_ms: clock::wall_ms() }
    }

    fn read(&self, who: &TokenPrincipal, query: &HistoryQuery) -> Result<HistoryReport, HttpError> {
        if !self.0.config.enabled {
            let message = "no history is kept here: `history.enabled` is false";
            return Err(HttpError::new(ErrorCode::NotFound, message));
        }
        let reader = HistoryReader::of(who);
        reader.check(&query.selection)?;
        let wanted = |id: &SeriesId| reader.may_see(id) && query.selection.has(id);
        let ring = self.0.ring.lock();
        let window = ring.window(self.moment(), query.window_s, query.step_s, wanted);
        let left_out = if who.operator { ring.left_out() } else { 0 };
        drop(ring);
        Ok(HistoryReport {
            node: self.0.node.clone(),
            tenant: (!who.operator).then(|| who.tenant.to_string()),
            step_ms: query.step_s * 1000,
            left_out: u64::try_from(left_out).unwrap_or(u64::MAX),
            ..report(window)
        })
    }
}

/// Returns the time until the middle of the next slot, so that timer jitter never skips a slot.
fn until_next_sample(elapsed: Duration) -> Duration {
    let slot = SAMPLE_INTERVAL.as_secs_f64();
    let elapsed = elapsed.as_secs_f64();
    let next = ((elapsed / slot + 0.5).floor() + 0.5) * slot;
    Duration::from_secs_f64((next - elapsed).max(0.0))
}

fn report(window: HistoryWindow) -> HistoryReport {
    let series = window.series.into_iter().map(|(id, values)| HistorySeries {
        name: id.spec.name.to_owned(),
        labels: id
            .spec
            .label
            .map(|label| (label.to_owned(), id.label.to_string()))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        unit: id.spec.unit,
        values: values.into_iter().map(|value| (!value.is_nan()).then_some(value)).collect(),
    });
    HistoryReport {
        node: String::new(),
        tenant: None,
        step_ms: 0,
        times_ms: window.times_ms,
        series: series.collect(),
        left_out: 0,
    }
}

/// Figures that a caller may see.
struct HistoryReader<'a> {
    who: &'a TokenPrincipal,
    /// Owners of series that are the caller's own.
    own: [String; 2],
}

impl HistoryReader<'_> {
    fn of(who: &TokenPrincipal) -> HistoryReader<'_> {
        let own =
            [sources::owner_of_executions(&who.token_id), sources::owner_of_sessions(&who.tenant)];
        HistoryReader { who, own }
    }

    /// Rejects a series that is requested by name and not visible to this caller. Series that were
    /// not named are left out.
    fn check(&self, selection: &HistorySelection) -> Result<(), HttpError> {
        for name in selection.names() {
            let refuse = |what: String| HttpError::new(ErrorCode::Forbidden, what).at("series");
            let scope = catalogue::scope_of(name);
            if scope.is_some_and(|scope| !self.who.scopes.has(scope)) {
                let scope = scope.map_or("", |scope| scope.name());
                return Err(refuse(format!("series {name} needs a token with the scope {scope}")));
            }
            if !self.who.operator && !catalogue::is_kept_by_tenant(name) {
                return Err(refuse(format!(
                    "series {name} is of the whole server and needs an operator's token; tenants \
                     have those of executions and sessions"
                )));
            }
        }
        Ok(())
    }

    fn may_see(&self, id: &SeriesId) -> bool {
        let has_scope = catalogue::scope_of(id.spec.name).is_none_or(|it| self.who.scopes.has(it));
        has_scope
            && match &id.owner {
                None => self.who.operator,
                Some(owner) => !self.who.operator && self.own.iter().any(|own| **own == **owner),
            }
    }
}

fn handlers() -> Router<HistoryService> {
    OperationRoutes::of(table::HISTORY).serve(&table::GET_HISTORY, read).routes()
}

/// `GET /v1/history`.
async fn read(
    State(history): State<HistoryService>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<Json<HistoryReport>, HttpError> {
    let query = HistoryQuery::of(&uri)?;
    Ok(Json(history.read(&who, &query)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_handler() {
        drop(handlers());
    }

    #[test]
    fn samples_are_in_the_middle_of_slots() {
        for (elapsed_ms, expected_ms) in
            [(0, 500), (500, 1000), (501, 999), (999, 501), (1000, 500), (1400, 100), (7700, 800)]
        {
            let wait = until_next_sample(Duration::from_millis(elapsed_ms));
            assert_eq!(
                wait.as_secs_f64().mul_add(1000.0, 0.5).floor(),
                f64::from(expected_ms),
                "{elapsed_ms}"
            );
        }
    }
}
