//! Keeps one spawner alive: notices its end, removes its remains, and starts another.

use std::io;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time;

use super::{EngineStartError, SpawnerHandle, SpawnerLink, SpawnerRecipe};

/// Pause before a spawner that died is restarted, so that one that cannot start does not spin.
const RESTART_PAUSE: Duration = Duration::from_millis(20);
/// Maximum of the pause, which doubles after each failure.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Watches a spawner; when its process dies, removes its remains and starts another.
pub(super) struct SpawnerKeeper {
    pub(super) spawner: Arc<SpawnerHandle>,
    pub(super) recipe: Arc<SpawnerRecipe>,
    /// Number of spawners that were restarted; callers without a live spawner wait for a change.
    pub(super) replaced: Arc<watch::Sender<u64>>,
    pub(super) closed: watch::Receiver<bool>,
}

impl SpawnerKeeper {
    pub(super) async fn run(mut self, mut child: Child) {
        loop {
            let link = self.spawner.link.lock().clone();
            if let Some(link) = link {
                tokio::select! {
                    () = link.listen(&self.spawner) => {}
                    _ = self.closed.wait_for(|closed| *closed) => {}
                }
                // Withdrawn first, so that callers that retry do not use this link again.
                self.spawner.withdraw(&link);
                // Dropping the senders fails the pending requests.
                link.pending.lock().clear();
            }
            // No handle of the link remains: a spawner exits when its server has closed the
            // connection.
            let ended = tokio::task::spawn_blocking(move || child.wait());
            let _status = ended.await;
            if *self.closed.borrow() {
                return;
            }
            tracing::error!(spawner = self.spawner.index, "a spawner died; starting another");
            let Some(started) = self.restart_until_closed().await else { return };
            child = started;
            self.replaced.send_modify(|count| *count += 1);
        }
    }

    /// Retries until the engine is closed: the cause may be temporary.
    async fn restart_until_closed(&mut self) -> Option<Child> {
        let mut pause = RESTART_PAUSE;
        loop {
            let closed = self.closed.wait_for(|closed| *closed);
            if time::timeout(pause, closed).await.is_ok() {
                return None;
            }
            match self.restart().await {
                Ok(child) => return Some(child),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    let spawner = self.spawner.index;
                    tracing::error!(spawner, error, "a spawner cannot be started; trying again");
                }
            }
            pause = (pause * 2).min(RESTART_PAUSE_MAX);
        }
    }

    async fn restart(&self) -> Result<Child, EngineStartError> {
        let (recipe, index) = (Arc::clone(&self.recipe), self.spawner.index);
        let process = tokio::task::spawn_blocking(move || {
            recipe.parents.remove_spawner(u32::try_from(index).unwrap_or(u32::MAX));
            recipe.start(index)
        })
        .await
        .map_err(|error| EngineStartError::Spawn(io::Error::other(error)))??;
        let link = SpawnerLink::new(process.socket).map_err(EngineStartError::Spawn)?;
        self.spawner.load.store(0, Ordering::Relaxed);
        *self.spawner.link.lock() = Some(Arc::new(link));
        Ok(process.child)
    }
}
