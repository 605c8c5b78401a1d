//! Deadlines: tests wait for a state, never for a time.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place of the test kit that reads the clock and pauses between two looks"
)]

use std::thread;
use std::time::{Duration, Instant};

/// Pause between two looks at a state. Short, because several promises are about 100 ms.
const PAUSE: Duration = Duration::from_millis(2);

/// Looks at a state until `probe` says `Ok`; panics with its last answer when `limit` has passed.
pub fn until<T>(what: &str, limit: Duration, probe: impl FnMut() -> Result<T, String>) -> T {
    match eventually(limit, probe) {
        Ok(value) => value,
        Err(state) => panic!("not within {limit:?}: {what}; last seen: {state}"),
    }
}

/// The same, where the last answer is of interest.
///
/// The state is looked at once more after the deadline, so that a test process which was not
/// scheduled in time does not report a state it never saw.
///
/// # Errors
/// What `probe` said last.
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

/// Measures how long something took.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[must_use]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
