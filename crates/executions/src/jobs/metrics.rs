//! Metrics of this server's asynchronous executions.

use api::{ExecutionId, ExecutionState};
use node::clock::wall_ms as now_ms;
use node::telemetry::{DURATION_BUCKETS, Registry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

/// Number of digits of an id that encode its time, after the prefix (see
/// [`node::clock::IdGenerator`]).
const TIME_DIGITS: usize = 10;
/// Crockford's base 32.
const DIGITS: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

#[derive(Debug)]
pub(super) struct JobMetrics {
    pub(super) accepted: Counter,
    pub(super) requeued: Counter,
    /// Jobs that a worker of this server has claimed.
    pub(super) running: Gauge,
    ended: Family<StateLabels, Counter>,
    wait: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

impl JobMetrics {
    pub(super) fn new(registry: &mut Registry) -> JobMetrics {
        let metrics = JobMetrics {
            accepted: Counter::default(),
            requeued: Counter::default(),
            running: Gauge::default(),
            ended: Family::default(),
            wait: Histogram::new(DURATION_BUCKETS),
        };
        let help = "Executions that were accepted to be run later";
        registry.register("cove_jobs_accepted", help, metrics.accepted.clone());
        let help = "Attempts that failed by the server's fault and are tried again";
        registry.register("cove_jobs_requeued", help, metrics.requeued.clone());
        let help = "Accepted executions that this server runs now";
        registry.register("cove_jobs_running", help, metrics.running.clone());
        let help = "Accepted executions that reached a final state here, by state";
        registry.register("cove_jobs_ended", help, metrics.ended.clone());
        let help = "Time from acceptance to the first start";
        registry.register_with_unit("cove_job_wait", help, Unit::Seconds, metrics.wait.clone());
        metrics
    }

    pub(super) fn ended(&self, state: ExecutionState) {
        self.ended.get_or_create(&StateLabels { state: state.as_str() }).inc();
    }

    /// Records the wait of a job for its first attempt, if its id contains its time.
    pub(super) fn started(&self, id: &ExecutionId, attempt: u32) {
        if attempt == 1
            && let Some(made_ms) = made_ms(id)
        {
            let waited = std::time::Duration::from_millis(now_ms().saturating_sub(made_ms));
            self.wait.observe(waited.as_secs_f64());
        }
    }
}

/// Returns the creation time of an id, in milliseconds since 1970; `None` for foreign ids.
fn made_ms(id: &ExecutionId) -> Option<u64> {
    let digits = id.0.strip_prefix("ex_").filter(|digits| digits.len() == 26)?;
    digits.get(..TIME_DIGITS)?.chars().try_fold(0_u64, |number, digit| {
        let value = u64::try_from(DIGITS.find(digit)?).ok()?;
        Some(number << 5 | value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_when_it_was_made() {
        let id = |text: &str| ExecutionId(text.to_owned());
        let made = node::clock::IdGenerator::new().unwrap().next("ex_");
        let age = now_ms().checked_sub(made_ms(&id(&made)).unwrap());
        assert!(age.is_some_and(|age| age < 60_000), "{age:?}");
        for foreign in ["", "ex_", "17", "ex_bullmq-17", "ex_IIIIIIIIIIIIIIIIIIIIIIIIII"] {
            assert_eq!(made_ms(&id(foreign)), None, "{foreign}");
        }
    }
}
