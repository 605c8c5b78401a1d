//! Work that outlives its caller.

use std::future::Future;

use crate::error::SessionError;

/// Runs work to its end, even if the caller is cancelled.
pub(super) async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, SessionError>> + Send + 'static,
) -> Result<T, SessionError> {
    node::task::to_the_end(work).await.map_err(SessionError::internal)?
}
