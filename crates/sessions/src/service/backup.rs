//! Files of sessions in a server's backup: the disks and layers in a copy of the store, and a
//! consistent copy of each disk.
//!
//! A restored session is in the state after a power failure: its disk has the data written so far,
//! its processes are gone, and running turns have ended with an error.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use node::store::{SqlStore, SqlStoreError, StoreTransaction};
use node::task::Boxed;

use super::cluster::ClusterPlace;
use super::directory::SessionDirectory;
use crate::error::SessionError;
use crate::store::{SessionFileIds, SessionStore, change_server, file_ids};
use crate::workspace::{self, ColdCopy};

/// Attempts to copy a disk: a session may attach or detach it in between.
const COPY_TRIES_MAX: u32 = 4;

/// Files of this server's sessions, by their names in the `sessions` data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFileNames {
    /// Disks: file names in `disks`, with the id of each.
    pub disks: Vec<(String, String)>,
    /// Layers: file names in `layers`. Some may exist only in the object store.
    pub layers: Vec<String>,
}

/// Access for backups to the files of this server's sessions.
pub struct SessionBackup {
    cluster: Arc<ClusterPlace>,
    directory: Arc<SessionDirectory>,
}

impl fmt::Debug for SessionBackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBackup").finish_non_exhaustive()
    }
}

impl SessionBackup {
    pub(super) fn new(
        cluster: Arc<ClusterPlace>,
        directory: Arc<SessionDirectory>,
    ) -> SessionBackup {
        SessionBackup { cluster, directory }
    }

    /// Returns the files that a copy of the store refers to.
    ///
    /// # Errors
    /// If the copy cannot be read.
    pub fn files_in(
        &self,
        copy: &mut dyn StoreTransaction,
    ) -> Result<SessionFileNames, SqlStoreError> {
        let SessionFileIds { disks, layers } = file_ids(copy, self.cluster.server())?;
        let disks = disks.into_iter().map(|id| (workspace::image_name(&id), id));
        let layers = layers.iter().map(|id| workspace::image_name(id));
        Ok(SessionFileNames { disks: disks.collect(), layers: layers.collect() })
    }

    /// Copies a consistent state of a disk to a new file: from the sandbox that has it attached,
    /// otherwise from `image`, another name of its file. Programs that write without pause are
    /// frozen for the duration.
    ///
    /// # Errors
    /// If it cannot be copied, or the lease of this server is over.
    pub fn copy_disk<'a>(
        &'a self,
        id: &'a str,
        image: &'a Path,
        to: &'a Path,
    ) -> Boxed<'a, Result<(), SessionError>> {
        Box::pin(async move {
            self.cluster.check_lease()?;
            for _ in 0..COPY_TRIES_MAX {
                let used = self.directory.body_with(id).and_then(|body| Some((body.disk()?, body)));
                if let Some((attached, body)) = used {
                    return workspace::copy(&attached, body.sandbox().ok().as_ref(), to).await;
                }
                match workspace::copy_cold(image, to).await? {
                    ColdCopy::Done => return Ok(()),
                    // A session was resumed on it just now.
                    ColdCopy::InUse => {}
                }
            }
            Err(SessionError::internal(format!("the disk {id} is in use all the time")))
        })
    }
}

/// Moves the sessions of a restored store to a server with a new id, which has their disks.
/// Migrates the tables first. Returns the number of sessions.
///
/// # Errors
/// If the store cannot be used, or has a newer version.
pub fn move_to_server<'a>(
    store: &'a SqlStore,
    from: &'a str,
    to: &'a str,
) -> Boxed<'a, Result<u64, SqlStoreError>> {
    Box::pin(async move {
        SessionStore::open(store.clone()).await?;
        let (from, to) = (from.to_owned(), to.to_owned());
        store.transact_idempotent("sessions.move", move |it| change_server(it, &from, &to)).await
    })
}
