//! Deadlines: tests wait for a state, never for a fixed time.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place of the test kit that reads the clock and pauses between two looks"
)]

use std::thread;
use std::time::{Duration, Instant};

/// Pause between two probes. Short, because several guarantees are about 100 ms.
const PAUSE: Duration = Duration::from_millis(2);

/// Probes until `probe` returns `Ok`; panics with its last error after `limit`.
pub fn until<T>(what: &str, limit: Duration, probe: impl FnMut() -> Result<T, String>) -> T {
    match eventually(limit, probe) {
        Ok(value) => value,
        Err(state) => panic!("not within {limit:?}: {what}; last seen: {state}"),
    }
}

/// Probes until `probe` returns `Ok` or `limit` has passed.
///
/// It probes once more after the deadline, so that a test process that was not scheduled in time
/// does not report a state that it never saw.
///
/// # Errors
/// The last error of `probe`.
pub fn eventually<T>(
    limit: Duration,
    mut probe: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let start = Instant::now();
    loop {
        let late = start.elapsed() >= limit;
        match probe() {
            Ok(value) => return Ok(value),
            Err(state) if late => return Err(state),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Measures elapsed time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts a measurement.
    #[must_use]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
