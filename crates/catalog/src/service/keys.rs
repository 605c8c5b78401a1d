//! Requests that are carried out once, however often they are sent: `Idempotency-Key`.
//!
//! A change is recorded in its own transaction; a rejection that would be repeated is recorded
//! after it. A request that arrives while the first one is in progress waits for it. Failures of
//! the server are not recorded: the request may be retried.

use std::sync::Arc;
use std::time::Duration;

use iceberg::ident::Uuid;
use node::drain::DrainHandle;

use super::changes::ChangeNotifier;
use crate::database::DatabaseClock;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::locks::KeyLocks;
use crate::principal::ChangeCall;
use crate::store::{CatalogStore, ChangeContext, ChangeLogStore, IdempotentOutcome, NameCounters};

/// Time for which a key is stored.
pub const KEY_LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Interval at which expired keys are removed.
const FORGET_EVERY: Duration = Duration::from_secs(300);

/// Runs each change in a separate task, which continues if its client disconnects, and once for
/// each key, and notifies followers of the log. Cheap to clone.
#[derive(Clone)]
pub(super) struct ChangeRunner(Arc<ChangeRunnerInner>);

struct ChangeRunnerInner {
    clock: DatabaseClock,
    change_log: ChangeLogStore,
    /// True if other servers may receive the same request.
    is_shared: bool,
    /// Counters of names, which changes increment.
    names: NameCounters,
    feed: Arc<ChangeNotifier>,
    /// Locks of requests with an idempotency key.
    keys: Arc<KeyLocks<(Arc<str>, Uuid)>>,
}

impl std::fmt::Debug for ChangeRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeRunner").finish_non_exhaustive()
    }
}

impl ChangeRunner {
    pub(super) fn new(
        store: &CatalogStore,
        names: NameCounters,
        feed: Arc<ChangeNotifier>,
    ) -> ChangeRunner {
        ChangeRunner(Arc::new(ChangeRunnerInner {
            clock: store.clock(),
            change_log: store.change_log().clone(),
            is_shared: store.is_shared_by_servers(),
            names,
            feed,
            keys: Arc::default(),
        }))
    }

    /// Wakes followers of the log after a change by another server.
    pub(super) fn wake_followers(&self) {
        self.0.feed.changed();
    }

    /// Runs a change in a separate task: by `act`, or, if it was carried out before, returns the
    /// result of `again`.
    ///
    /// # Errors
    /// Those of `act` and of `again`; `UnprocessableEntity` if the key was used for another
    /// request.
    pub(super) async fn run<T, A, B>(
        &self,
        call: &ChangeCall<'_>,
        act: impl FnOnce(ChangeContext) -> A + Send + 'static,
        again: impl FnOnce() -> B + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        A: Future<Output = Result<T>> + Send,
        B: Future<Output = Result<T>> + Send,
    {
        let (runner, mut context) = (self.clone(), call.context(self.0.clock.now_ms()));
        context.names = Some(self.0.names.clone());
        let changing = self.0.names.changing();
        let work = async move {
            // Dropped on any outcome, before the response is sent.
            let _changing = changing;
            let Some((key, hash)) = context.key else {
                let done = act(context).await;
                runner.0.feed.changed();
                return done;
            };
            let principal: Arc<str> = context.principal.as_str().into();
            let _lock = runner.0.keys.lock((principal, key)).await;
            let change_log = &runner.0.change_log;
            if let Some(done) = change_log.remembered(&context.principal, key).await? {
                judge(done, &hash)?;
                return again().await;
            }
            let error = match act(context.clone()).await {
                Ok(done) => {
                    runner.0.feed.changed();
                    return Ok(done);
                }
                Err(error) => error,
            };
            // Another server may have carried it out meanwhile, so that this one failed.
            if runner.0.is_shared
                && let Some(done) = change_log.remembered(&context.principal, key).await?
            {
                judge(done, &hash)?;
                return again().await;
            }
            if is_final(error.kind)
                && let Err(failed) = change_log.remember_refusal(&context, &error).await
            {
                // The rejection is correct nevertheless; a repeated request is judged again.
                let failed = &failed as &dyn std::error::Error;
                tracing::warn!(error = failed, "a refusal is not remembered");
            }
            Err(error)
        };
        node::task::to_the_end(work).await.map_err(|error| {
            let message = "the change was aborted: its outcome is unknown";
            CatalogError::caused(ErrorReason::CommitStateUnknown, message, error)
        })?
    }

    pub(super) async fn forget_now_and_then(&self, drain: &DrainHandle) {
        loop {
            tokio::select! {
                () = drain.begun() => return,
                () = tokio::time::sleep(FORGET_EVERY) => {}
            }
            if let Err(error) = self.forget_keys().await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "old idempotency keys stay");
            }
        }
    }

    /// Removes expired keys. Returns how many.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(super) async fn forget_keys(&self) -> Result<u64> {
        let lifetime = u64::try_from(KEY_LIFETIME.as_millis()).map_err(CatalogError::internal)?;
        self.0.change_log.forget_keys(self.0.clock.now_ms().saturating_sub(lifetime)).await
    }
}

/// Repeats an earlier rejection, and rejects another request with the same key.
fn judge(done: IdempotentOutcome, hash: &[u8; 32]) -> Result<()> {
    if done.hash != hash {
        let message = "the Idempotency-Key was used for another request";
        return Err(CatalogError::new(ErrorReason::UnprocessableEntity, message));
    }
    done.refused.map_or(Ok(()), |(kind, message)| Err(CatalogError::new(kind, message)))
}

/// Returns whether the same request would be rejected again as long as nothing else changes.
fn is_final(kind: ErrorReason) -> bool {
    (400..500).contains(&kind.status())
        && !matches!(
            kind,
            ErrorReason::NotAuthorized
                | ErrorReason::Forbidden
                | ErrorReason::AuthenticationTimeout
        )
}
