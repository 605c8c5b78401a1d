//! Recovery at the start of a server from what it left behind when it was stopped, or died.
//!
//! Whatever its sandboxes did is over: they ended with the server. Their disks are here, complete
//! up to the last write. So every session that had one is paused, turns that were under way get
//! their end, and files that no row names are removed. Nothing is made before that.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::{SessionEventKind, SessionState};
use node::clock;
use serde_json::json;
use tokio::time;

use super::SessionsInner;
use crate::error::SessionError;
use crate::metrics::SandboxEvent;
use crate::store::PAGE_MAX;
use crate::store::rows::SessionRow;
use crate::store::servers::ServerRegistration;

/// Error of a turn that did not come to its end, for whoever waits for it.
const DIED: &str = "the server stopped while it worked on this turn";

/// Interval at which a start looks whether another run of this server is alive.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Name of the machine's present life, new at each boot (`random(4)`).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns what no other directory is called: neither a copy of it, nor one on another machine.
pub(super) fn home_of(data_dir: &Path) -> Result<String, SessionError> {
    let boot = fs::read_to_string(BOOT_ID).map_err(SessionError::internal)?;
    let directory = fs::metadata(data_dir).map_err(SessionError::internal)?;
    Ok(format!("{} {} {}", boot.trim(), directory.dev(), directory.ino()))
}

impl SessionsInner {
    /// Becomes the run that speaks for this server. One before it in the same directory is over;
    /// one in another directory may be alive, if this one is a copy of that: until it has not been
    /// seen for as long as a lease, it is waited for.
    pub(super) async fn register(&self) -> Result<(), SessionError> {
        let mut first_ms = None;
        loop {
            let now_ms = self.store.now_ms();
            let seen_ms = match self.store.register(&self.run, self.is_shared, now_ms).await? {
                ServerRegistration::Done => return Ok(()),
                ServerRegistration::SeenElsewhere(seen_ms) => seen_ms,
            };
            let server = &self.run.id;
            match first_ms {
                None => tracing::info!(
                    server,
                    "this server was seen in another directory just now; waiting for its lease"
                ),
                Some(first_ms) if first_ms != seen_ms => {
                    let message = format!(
                        "server {server} is running already, from a directory that this one is a \
                         copy of, or that is a copy of this one: remove `server.id` from the copy, \
                         which gives it a name of its own"
                    );
                    return Err(SessionError::Conflict(message));
                }
                Some(_) => {}
            }
            first_ms.get_or_insert(seen_ms);
            time::sleep(LOOK_EVERY).await;
        }
    }

    /// Brings rows and files to what is true.
    pub(super) async fn recover(self: &Arc<Self>) -> Result<(), SessionError> {
        for row in self.store.sessions_of_server(&self.run.id).await? {
            self.recover_session(row).await?;
        }
        let mut disks = HashSet::new();
        let now = clock::now();
        for row in self.store.sessions_on_disks_of(&self.run.id).await? {
            if row.state == SessionState::Ended {
                continue;
            }
            if let Some(disk) = row.disk {
                disks.insert(disk);
                self.books.keep_cold(&row.id.as_str().into(), &row.tenant.as_str().into(), now);
            }
        }
        let removed = self.workspaces.sweep(disks, self.all_layers().await?).await?;
        if removed > 0 {
            tracing::info!(removed, "removed disks and layers that nobody knows of");
        }
        self.sweeps.layers();
        Ok(())
    }

    async fn recover_session(&self, row: SessionRow) -> Result<(), SessionError> {
        let was_live = matches!(row.state, SessionState::Active | SessionState::Starting);
        // A turn may have been on its way out.
        if !was_live && self.store.open_turns(&row.id).await?.is_empty() {
            return Ok(());
        }
        let now_ms = self.store.now_ms();
        let claimed = self.store.claim(&row.id, &self.run, row.epoch, now_ms).await?;
        // Another server was faster: it recovers it.
        let Some(mut row) = claimed else { return Ok(()) };
        self.metrics.count(SandboxEvent::Recovered);
        let log = self.writer.log(&row);
        log.end_open_turns(DIED).await?;
        if was_live {
            row.state = SessionState::Paused;
        }
        let data = json!({ "state": row.state.as_str(), "reason": "the server was restarted" });
        row.last_seq = log.push(SessionEventKind::Lifecycle, None, data);
        log.save(Arc::new(row)).await?;
        log.leave();
        Ok(())
    }

    /// The layers that the store knows of.
    async fn all_layers(&self) -> Result<HashSet<String>, SessionError> {
        let mut all = HashSet::new();
        let mut after = String::new();
        loop {
            let page = self.store.layers(&after, PAGE_MAX).await?;
            let Some(last) = page.last() else { return Ok(all) };
            after.clone_from(last);
            all.extend(page);
        }
    }
}
