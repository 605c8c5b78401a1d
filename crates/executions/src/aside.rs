//! Work on long texts, away from the runtime's threads: answers, and other work that takes time for
//! each byte of a program's output.
//!
//! Callers take turns on these threads, one poll each ([`node::fair`]). A poll that encodes or
//! reads megabytes blocks a thread for all of them; so work that grows with a program's output runs
//! on a blocking thread if there is much of it.

use std::error::Error;

use node::http::HttpError;
use tokio::task::JoinError;

use crate::answers::{AnswerDocument, AnswerMemory};

/// Maximum bytes that are processed on the current thread: another thread would cost more.
const AT_ONCE_BYTES: usize = 256 << 10;

/// Runs work that takes time for each of `bytes` bytes.
///
/// # Errors
/// If it panicked, or the runtime ended first.
pub(crate) async fn aside<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    match bytes <= AT_ONCE_BYTES {
        true => Ok(work()),
        false => node::task::blocking(work).await,
    }
}

/// Writes an answer with `bytes` bytes of output. The work itself holds the memory, because it runs
/// to its end even if the caller no longer waits.
///
/// # Errors
/// If it cannot be written. The log has the reason.
pub(crate) async fn write_answer<E: Error + Send + 'static>(
    bytes: usize,
    rooms: impl IntoIterator<Item = AnswerMemory> + Send + 'static,
    write: impl FnOnce() -> Result<AnswerDocument, E> + Send + 'static,
) -> Result<AnswerDocument, HttpError> {
    let failed = |error: &(dyn Error + 'static)| {
        tracing::error!(error, "failed to write an answer");
        HttpError::internal()
    };
    let written = aside(bytes, move || write().map(|document| document.held(rooms))).await;
    written.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn what_is_long_is_worked_on_by_another_thread() {
        let here = thread::current().id();
        let of = |bytes: usize| aside(bytes, || thread::current().id());
        assert_eq!(of(AT_ONCE_BYTES).await.unwrap(), here);
        assert_ne!(of(AT_ONCE_BYTES + 1).await.unwrap(), here);
    }
}
