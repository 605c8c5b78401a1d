//! The lease of one work item: renewed while the item is worked on, given up early where another
//! worker shall take it.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use node::clock;
use serde_json::json;
use tokio::time::sleep;

use super::control::{ControlPlane, WorkHeartbeat};
use super::protocol::{NO_HEARTBEAT, WorkState};
use super::report::WorkerReport;

/// Longest time between two heartbeats, and the shortest.
const INTERVAL_MAX: Duration = Duration::from_secs(30);
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Life of a lease before the control plane has said how long it is.
const TTL_DEFAULT: Duration = Duration::from_secs(90);
/// Wait after a heartbeat that failed, at most: the lease must not run out over one bad minute.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// Seconds that a lease lasts on which somebody else shall take the item over.
const RETURN_TTL_S: u32 = 1;

/// Why a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEnd {
    /// The control plane wants the item to stop.
    Stopped,
    /// Another worker has it, or may have by now.
    Lost,
    /// Heartbeats are refused for good.
    Rejected,
}

/// A lease that this worker holds.
pub(super) struct WorkLease<'a> {
    pub(super) control: &'a ControlPlane,
    pub(super) work: &'a str,
    pub(super) credential: &'a HeaderValue,
    pub(super) report: WorkerReport,
    /// Time that the lease lasts without a heartbeat.
    ttl: Cell<Duration>,
    /// Answer to the last heartbeat, which proves who holds it.
    last: RefCell<String>,
}

impl<'a> WorkLease<'a> {
    pub(super) fn new(
        control: &'a ControlPlane,
        work: &'a str,
        credential: &'a HeaderValue,
        report: WorkerReport,
    ) -> WorkLease<'a> {
        let last = RefCell::new(NO_HEARTBEAT.to_owned());
        WorkLease { control, work, credential, report, ttl: Cell::new(TTL_DEFAULT), last }
    }

    /// Returns the time that the lease lasts without a heartbeat.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl.get()
    }

    /// Renews it until that is no longer possible.
    pub(super) async fn keep(&self) -> LeaseEnd {
        let mut renewed = clock::now();
        loop {
            let interval = (self.ttl() / 2).clamp(INTERVAL_MIN, INTERVAL_MAX);
            let expected = self.last.borrow().clone();
            let beat = WorkHeartbeat { expected: &expected, timeout: interval, ttl_s: None };
            let pause = match self.control.heartbeat(self.work, self.credential, &beat).await {
                Ok(answer) => {
                    renewed = clock::now();
                    self.last.replace(answer.last_heartbeat);
                    if answer.ttl_seconds > 0 {
                        self.ttl.set(Duration::from_secs(answer.ttl_seconds));
                    }
                    let is_over = matches!(answer.state, WorkState::Stopping | WorkState::Stopped);
                    if is_over || !answer.lease_extended {
                        return LeaseEnd::Stopped;
                    }
                    (self.ttl() / 2).clamp(INTERVAL_MIN, INTERVAL_MAX)
                }
                Err(error) if error.status == Some(StatusCode::PRECONDITION_FAILED) => {
                    return LeaseEnd::Lost;
                }
                Err(error) if error.is_fatal() => {
                    let fields = json!({ "work": self.work, "error": error.to_string() });
                    self.report.emit("heartbeat_rejected", fields);
                    return LeaseEnd::Rejected;
                }
                Err(error) => {
                    if clock::now().saturating_duration_since(renewed) > self.ttl() {
                        return LeaseEnd::Lost;
                    }
                    let fields = json!({ "work": self.work, "error": error.to_string() });
                    self.report.emit("heartbeat_failed", fields);
                    RETRY_PAUSE.min(interval)
                }
            };
            sleep(pause).await;
        }
    }

    /// Lets the lease run out soon, so that another worker goes on with the item.
    pub(super) async fn give_back(&self) {
        let expected = self.last.borrow().clone();
        let timeout = INTERVAL_MAX;
        let beat = WorkHeartbeat { expected: &expected, timeout, ttl_s: Some(RETURN_TTL_S) };
        // Without it, the lease runs out a little later.
        drop(self.control.heartbeat(self.work, self.credential, &beat).await);
    }
}
