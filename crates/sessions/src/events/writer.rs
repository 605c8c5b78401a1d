//! Writes the pending parts of logs in the background: one transaction at a time, for many sessions
//! at once.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time;

use super::log::{PendingWrite, SessionLog};
use crate::error::SessionError;
use crate::store::{SessionBatch, SessionRow, SessionStore, WriteBatch};

/// Time that a non-urgent change waits, so that several are written together.
const LINGER: Duration = Duration::from_millis(10);

/// Maximum bytes of one transaction, except for a single larger part.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Maximum sessions of one transaction.
const BATCH_PARTS_MAX: usize = 256;

/// Pauses between attempts while writes to the store fail.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
];

/// Writer for all sessions of a server. Cheap to clone; ends with [`EventWriter::close`].
#[derive(Clone)]
pub(crate) struct EventWriter(Arc<EventWriterShared>);

/// State that the writer shares with its logs.
pub(super) struct EventWriterShared {
    pub(super) store: SessionStore,
    logs: Mutex<HashMap<String, Weak<SessionLog>>>,
    /// Logs with pending writes, in order of arrival.
    dirty: Mutex<VecDeque<Arc<SessionLog>>>,
    /// True if a caller waits for the pending events to be written.
    is_urgent: AtomicBool,
    wake: Notify,
    hurry: Notify,
    /// Pending bytes of all logs.
    pub(super) waiting: AtomicUsize,
    /// Notified after every transaction.
    pub(super) room: Notify,
    is_closing: AtomicBool,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// A session whose log could not be written and never will be. Its log has stopped.
#[derive(Debug)]
pub(crate) struct LostSession {
    /// Id of the session.
    pub(crate) session: String,
    /// Epoch at which this server owned it.
    pub(crate) epoch: u64,
    /// Cause of the loss.
    pub(crate) why: LossReason,
}

/// Why a session was lost.
#[derive(Debug)]
pub(crate) enum LossReason {
    /// Another server has claimed it, or it was removed.
    Taken,
    /// The store rejects this session's data, though it accepts other writes.
    Refused(SessionError),
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl EventWriter {
    /// Starts the writer. The owner of the sessions reads the lost ones from the receiver, and ends
    /// their local remains.
    pub(crate) fn start(
        store: SessionStore,
    ) -> (EventWriter, mpsc::UnboundedReceiver<LostSession>) {
        let shared = Arc::new(EventWriterShared {
            store,
            logs: Mutex::default(),
            dirty: Mutex::default(),
            is_urgent: AtomicBool::new(false),
            wake: Notify::new(),
            hurry: Notify::new(),
            waiting: AtomicUsize::new(0),
            room: Notify::new(),
            is_closing: AtomicBool::new(false),
            task: Mutex::new(None),
        });
        // Bounded by the number of sessions.
        let (tell_lost, lost) = mpsc::unbounded_channel();
        let task = node::task::spawn(run(Arc::clone(&shared), tell_lost));
        *shared.task.lock() = Some(task);
        (EventWriter(shared), lost)
    }

    /// Returns the log of a session that was just inserted or claimed, and begins a life with the
    /// numbers that the row reserves. The row must come from [`SessionStore::insert_session`] or
    /// [`SessionStore::claim`], and may be used only once.
    pub(crate) fn log(&self, row: &SessionRow) -> Arc<SessionLog> {
        let log = self.follow(&row.id);
        log.begin(row);
        log
    }

    /// Returns the log of a session for subscribers: the live one on this server, or one that reads
    /// from the store.
    pub(crate) fn follow(&self, session: &str) -> Arc<SessionLog> {
        let mut logs = self.0.logs.lock();
        if let Some(log) = logs.get(session).and_then(Weak::upgrade) {
            return log;
        }
        let log = SessionLog::new(session.to_owned(), Arc::clone(&self.0));
        logs.insert(session.to_owned(), Arc::downgrade(&log));
        log
    }

    /// Writes all pending parts, then ends. Does not return while the store cannot be reached.
    pub(crate) async fn close(&self) {
        self.0.is_closing.store(true, Ordering::Release);
        self.0.queue(None, true);
        let task = self.0.task.lock().take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(error = &error as &dyn std::error::Error, "the writer failed");
        }
    }
}

impl EventWriterShared {
    /// Queues a log with pending writes, and records whether a caller waits for them.
    pub(super) fn queue(&self, log: Option<Arc<SessionLog>>, is_urgent: bool) {
        if let Some(log) = log {
            self.dirty.lock().push_back(log);
            self.wake.notify_one();
        }
        if is_urgent && !self.is_urgent.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
            self.hurry.notify_one();
        }
    }

    /// Removes a dropped log.
    pub(super) fn forget(&self, session: &str) {
        let mut logs = self.logs.lock();
        // A new log of the same session may exist already.
        if logs.get(session).is_some_and(|log| log.strong_count() == 0) {
            logs.remove(session);
        }
    }

    /// Takes the parts for one transaction, and returns whether more are left.
    fn take(&self) -> (Vec<(Arc<SessionLog>, PendingWrite)>, bool) {
        let (mut all, mut bytes) = (Vec::new(), 0_usize);
        while all.len() < BATCH_PARTS_MAX && bytes < BATCH_BYTES_MAX {
            let Some(log) = self.dirty.lock().pop_front() else { return (all, false) };
            if let Some(taken) = log.take() {
                bytes = bytes.saturating_add(taken.bytes);
                all.push((log, taken));
            }
        }
        (all, true)
    }
}

async fn run(shared: Arc<EventWriterShared>, lost: mpsc::UnboundedSender<LostSession>) {
    loop {
        let is_empty = shared.dirty.lock().is_empty();
        if is_empty {
            if shared.is_closing.load(Ordering::Acquire) {
                return;
            }
            shared.wake.notified().await;
        }
        if !shared.is_urgent.load(Ordering::Acquire)
            && shared.waiting.load(Ordering::Acquire) < BATCH_BYTES_MAX
        {
            // An urgent request ends the wait early; a stale notification from an earlier one may,
            // too.
            drop(time::timeout(LINGER, shared.hurry.notified()).await);
        }
        shared.is_urgent.store(false, Ordering::Release);
        loop {
            let (taken, is_full) = shared.take();
            if !taken.is_empty() {
                write(&shared, taken, &lost).await;
            }
            // Later parts wait for the next round, unless a full transaction's worth is left.
            if !is_full {
                break;
            }
        }
    }
}

/// Writes the taken parts, retrying until the store accepts them, and notifies the logs.
async fn write(
    shared: &EventWriterShared,
    mut taken: Vec<(Arc<SessionLog>, PendingWrite)>,
    lost: &mpsc::UnboundedSender<LostSession>,
) {
    let bytes: usize = taken.iter().map(|(_, taken)| taken.bytes).sum();
    let mut pauses = PAUSES.into_iter().chain(std::iter::repeat(PAUSES[PAUSES.len() - 1]));
    let mut has_failed = false;
    let parts = taken.iter_mut().map(|(_, taken)| std::mem::take(&mut taken.part)).collect();
    let batch = Arc::new(WriteBatch { parts });
    let gone = loop {
        let error = match shared.store.write_batch(Arc::clone(&batch)).await {
            Ok(gone) => break gone.into_iter().map(|index| (index, LossReason::Taken)).collect(),
            Err(error) => error,
        };
        // One session's bad data must not block the others.
        if let SessionError::Internal(_) = error
            && let Some(gone) = write_each(shared, &batch.parts).await
        {
            break gone;
        }
        if !has_failed {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to write sessions");
            has_failed = true;
        }
        if let Some(pause) = pauses.next() {
            time::sleep(pause).await;
        }
    };
    if has_failed {
        tracing::info!("sessions are written again");
    }
    tell(taken, &batch, gone, lost);
    shared.waiting.fetch_sub(bytes, Ordering::AcqRel);
    shared.room.notify_waiters();
}

/// Parts that were not written, by index.
type Gone = HashMap<usize, LossReason>;

/// Tries each part alone. Returns `None` if the store accepts no write at all.
async fn write_each(shared: &EventWriterShared, parts: &[SessionBatch]) -> Option<Gone> {
    let mut gone = Gone::new();
    for (index, part) in parts.iter().enumerate() {
        let alone = WriteBatch { parts: vec![part.clone()] };
        match shared.store.write_batch(Arc::new(alone)).await {
            Ok(lost) if lost.is_empty() => {}
            Ok(_) => drop(gone.insert(index, LossReason::Taken)),
            Err(error @ SessionError::Internal(_)) => {
                // Distinguishes bad data from a store that rejects every write for this session.
                let nothing = SessionBatch {
                    session: part.session.clone(),
                    epoch: part.epoch,
                    ..SessionBatch::default()
                };
                let probe = WriteBatch { parts: vec![nothing] };
                if shared.store.write_batch(Arc::new(probe)).await.is_err() {
                    return None;
                }
                gone.insert(index, LossReason::Refused(error));
            }
            Err(_) => return None,
        }
    }
    Some(gone)
}

fn tell(
    taken: Vec<(Arc<SessionLog>, PendingWrite)>,
    batch: &WriteBatch,
    mut gone: Gone,
    lost: &mpsc::UnboundedSender<LostSession>,
) {
    for (index, ((log, taken), part)) in taken.into_iter().zip(&batch.parts).enumerate() {
        let Some(why) = gone.remove(&index) else {
            log.written(&taken, part);
            continue;
        };
        log.lost(&taken, part);
        if let LossReason::Refused(error) = &why {
            let (error, session) = (error as &dyn std::error::Error, log.session());
            tracing::error!(error, session, "the store refuses a session");
        }
        let event = LostSession { session: part.session.clone(), epoch: part.epoch, why };
        // Fails only at shutdown, when the receiver is gone.
        drop(lost.send(event));
    }
}
