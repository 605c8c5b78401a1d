//! Lease of one work item: renewed during the work, given up early if another worker is to take
//! over.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use node::clock;
use serde_json::json;
use tokio::time::sleep;

use super::control::{ControlPlane, WorkHeartbeat};
use super::protocol::{NO_HEARTBEAT, WorkState};
use super::report::WorkerReport;

/// Maximum and minimum time between two heartbeats.
const INTERVAL_MAX: Duration = Duration::from_secs(30);
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Lifetime of a lease before the control plane has specified it.
const TTL_DEFAULT: Duration = Duration::from_secs(90);
/// Maximum wait after a failed heartbeat: the lease must not expire in a short outage.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// Lifetime in seconds of a lease that is given back.
const RETURN_TTL_S: u32 = 1;

/// Reason for the end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEnd {
    /// The control plane stops the item.
    Stopped,
    /// Another worker holds it, or may hold it by now.
    Lost,
    /// Heartbeats are rejected permanently.
    Rejected,
}

/// Lease that this worker holds.
pub(super) struct WorkLease<'a> {
    pub(super) control: &'a ControlPlane,
    pub(super) work: &'a str,
    pub(super) credential: &'a HeaderValue,
    pub(super) report: WorkerReport,
    /// Lifetime of the lease without a heartbeat.
    ttl: Cell<Duration>,
    /// Response to the last heartbeat, which proves the ownership.
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

    /// Returns the lifetime of the lease without a heartbeat.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl.get()
    }

    /// Renews the lease until that is no longer possible.
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

    /// Lets the lease expire soon, so that another worker continues with the item.
    pub(super) async fn give_back(&self) {
        let expected = self.last.borrow().clone();
        let timeout = INTERVAL_MAX;
        let beat = WorkHeartbeat { expected: &expected, timeout, ttl_s: Some(RETURN_TTL_S) };
        // If the request fails, the lease expires a little later.
        drop(self.control.heartbeat(self.work, self.credential, &beat).await);
    }
}
