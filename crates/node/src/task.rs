//! Work on the runtime, compiled once.
//!
//! Tokio compiles a task, with some twenty functions around it, for every type of future or
//! closure. Behind a pointer all have the same type.

use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::{JoinError, JoinHandle};

use crate::{fair, traces};

/// Boxed future of an asynchronous function that is compiled in its own crate: without the pointer
/// its body, and that of all it calls, is compiled once more by every crate that calls it.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts a task; see [`tokio::spawn`]. It takes the turns of the task that starts it, if that
/// takes any ([`crate::fair`]).
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let future: Boxed<'static, ()> = Box::pin(future);
    match fair::inherit(future) {
        Ok(future) => tokio::spawn(future),
        Err(future) => tokio::spawn(future),
    }
}

/// Runs `future` to its end, even if its caller stops waiting. It is a part of the trace of the
/// task that starts it.
///
/// # Errors
/// If it panicked, or the runtime ended first.
pub fn to_the_end<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Result<T, JoinError>> + Send {
    let slot = Arc::new(Mutex::new(None));
    let done = Arc::clone(&slot);
    let work = async move {
        let value = future.await;
        *done.lock() = Some(value);
    };
    result_of(spawn(traces::in_scope(traces::current(), work)), slot)
}

/// Runs work that waits for a disk or a lock, or takes long, on a thread of its own; see
/// [`tokio::task::spawn_blocking`].
///
/// # Errors
/// If it panicked, or the runtime ended before it had begun.
pub fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, JoinError>> + Send {
    let slot = Arc::new(Mutex::new(None));
    let done = Arc::clone(&slot);
    let work: Box<dyn FnOnce() + Send> = Box::new(move || *done.lock() = Some(work()));
    result_of(tokio::task::spawn_blocking(work), slot)
}

async fn result_of<T>(task: JoinHandle<()>, slot: Arc<Mutex<Option<T>>>) -> Result<T, JoinError> {
    task.await?;
    let value = slot.lock().take();
    Ok(value.expect("work that ended has left its value"))
}
