//! Checks of `/health/ready`: the store, the queue, free space on the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::ExecutionId;
use executions::queue::JobParts;
use executions::{Jobs, Languages};
use node::readiness::ReadinessChecks;
use node::store::{SqlStore, SqlStoreError};

/// Id of no execution: looking it up is a cheap request to the queue's back end.
const NO_EXECUTION: &str = "ex_00000000000000000000000000";

/// Returns all checks. `disk` is the data directory, and the bytes that must be free there, which a
/// reload may change.
pub(crate) fn checks(
    store: &SqlStore,
    executions: Option<(&Jobs, &Languages)>,
    disk: (&Path, Arc<AtomicU64>),
) -> ReadinessChecks {
    let readiness = ReadinessChecks::default();
    check_store(&readiness, store);
    if let Some((jobs, languages)) = executions {
        check_queue(&readiness, jobs);
        let languages = languages.clone();
        // Programs run meanwhile, but take longer to compile.
        readiness.add_progress(move || {
            let known = languages.list().languages.into_iter();
            known.filter(|language| language.preparing).map(|language| language.name).collect()
        });
    }
    check_disk(&readiness, disk.0, disk.1);
    readiness
}

/// Adds a check that the store responds.
fn check_store(readiness: &ReadinessChecks, store: &SqlStore) {
    let store = store.clone();
    readiness.add("store", move || {
        let store = store.clone();
        Box::pin(async move {
            let query = |transaction: &mut dyn node::store::StoreTransaction| {
                transaction.query_one("SELECT 1", &[]).map(drop)
            };
            store.read("ready", query).await.map_err(|error| match error {
                SqlStoreError::Full(_) => "its disk is full".to_owned(),
                SqlStoreError::Busy { .. } => "too many transactions wait for it".to_owned(),
                _ => "it cannot be reached".to_owned(),
            })
        })
    });
}

/// Adds a check that the back end of the queue responds.
fn check_queue(readiness: &ReadinessChecks, jobs: &Jobs) {
    let jobs = jobs.clone();
    readiness.add("queue", move || {
        let jobs = jobs.clone();
        Box::pin(async move {
            let id = ExecutionId(NO_EXECUTION.to_owned());
            let found = jobs.queue().get(id, JobParts::default()).await;
            found.map(drop).map_err(|_| "its back end cannot be reached".to_owned())
        })
    });
}

/// Adds a check of the free space for the data directory.
fn check_disk(readiness: &ReadinessChecks, directory: &Path, bytes_min: Arc<AtomicU64>) {
    let directory: PathBuf = directory.to_owned();
    readiness.add("disk", move || {
        let found = rustix::fs::statvfs(&directory);
        let bytes_min = bytes_min.load(Ordering::Relaxed);
        Box::pin(async move {
            let stat = found.map_err(|_| "its room cannot be read".to_owned())?;
            match stat.f_bavail.saturating_mul(stat.f_frsize) {
                free if free < bytes_min => Err(format!(
                    "{free} bytes are free for the data directory, of {bytes_min} at least"
                )),
                _ => Ok(()),
            }
        })
    });
}
