//! The connection: runs BullMQ's scripts and ours in one transaction, within a timeout.
//!
//! The scripts that move jobs are BullMQ's own. Its crate contains them, but its functions cannot
//! join a transaction, encode every result as a string and need a connection for each queue. So the
//! crate loads them into the server, by running one job through a queue of its own, and this module
//! calls them by their digests. A crate with other scripts is detected at the start.
//!
//! The address leads to one master, and after a failover to another one. The crate reopens a
//! connection that breaks. This module reopens one that stays open but is useless: its server has
//! become a replica, or does not answer and may never do so again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bullmq::options::RedisConnectionOptions;
use bullmq::redis_connection::RedisConnection;
use bullmq::{Queue, QueueKeys, QueueOptions, Worker, WorkerOptions};
use parking_lot::Mutex;
use redis::{Cmd, ErrorKind, Pipeline, RedisResult, ServerErrorKind, Value};

use super::super::QueueError;

/// Timeout of one exchange with Redis, including the time to restore a connection.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// Maximum number of attempts of a repeatable exchange when the connection breaks.
const TRIES_MAX: u32 = 3;
/// Time before the second attempt; it doubles after each.
const BACKOFF: Duration = Duration::from_millis(50);
/// Lock time of the job that loads the scripts.
const LOAD_LOCK_MS: u64 = 5_000;

/// Our own operations, which `base.lua` documents.
const OPERATIONS: &str = concat!(
    include_str!("base.lua"),
    include_str!("push.lua"),
    include_str!("work.lua"),
    include_str!("reads.lua"),
    include_str!("sweep.lua"),
);

/// Scripts of BullMQ's crate, by their digests (SHA-1, as `EVALSHA` takes them).
#[derive(Clone, Copy, Debug)]
pub(super) enum BullmqScript {
    MoveToActive,
    MoveToFinished,
    MoveToWait,
    ExtendLock,
    RemoveJob,
}

impl BullmqScript {
    const ALL: [BullmqScript; 5] = [
        BullmqScript::MoveToActive,
        BullmqScript::MoveToFinished,
        BullmqScript::MoveToWait,
        BullmqScript::ExtendLock,
        BullmqScript::RemoveJob,
    ];

    fn digest(self) -> &'static str {
        match self {
            BullmqScript::MoveToActive => "d96ca626f1ea141b44a856b312fc636d99aa9ea9",
            BullmqScript::MoveToFinished => "69666e69dd5621df59067a03de685e55a486560d",
            BullmqScript::MoveToWait => "2f746a769bc3d182a0f73ace6bb7a4906faf5df9",
            BullmqScript::ExtendLock => "dc9605328a4cc37f68acbf27cdd42e393f7b762e",
            BullmqScript::RemoveJob => "574af105e7df948fdf7e5410f3190a87f037d7f3",
        }
    }

    /// Returns a call with these keys; the caller appends the arguments.
    pub(super) fn call(self, keys: &[String]) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.digest()).arg(keys.len()).arg(keys);
        cmd
    }
}

/// A failure without an underlying error.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("Redis did not answer within {} s", EXCHANGE_MAX.as_secs())]
    Silent,
    #[error("unexpected reply from Redis: {0}")]
    Answer(String),
    #[error("the version of BullMQ's scripts is unknown to this server")]
    Scripts,
}

impl From<LinkError> for QueueError {
    fn from(error: LinkError) -> QueueError {
        QueueError::Unavailable(Box::new(error))
    }
}

/// Converts any other error into a failure of the back end.
pub(super) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> QueueError {
    QueueError::Unavailable(Box::new(error))
}

/// A connection with its sequence number.
#[derive(Clone)]
struct NumberedConnection {
    connection: RedisConnection,
    number: u64,
}

/// Connection to one Redis database.
pub(super) struct RedisLink {
    current: Mutex<NumberedConnection>,
    /// Held while another connection is opened.
    reopening: tokio::sync::Mutex<()>,
    options: RedisConnectionOptions,
    prefix: String,
    /// Prefix of our own keys.
    own: String,
    base: String,
    /// Digest of [`OPERATIONS`], as returned by the server.
    digest: Mutex<String>,
    /// Held while scripts are loaded.
    loading: tokio::sync::Mutex<()>,
    queues: Mutex<HashMap<String, Arc<Queue>>>,
}

impl RedisLink {
    /// Connects and loads the scripts.
    pub(super) async fn open(url: &str, prefix: &str, base: &str) -> Result<RedisLink, QueueError> {
        let options = RedisConnectionOptions::new().url(url);
        let connection = within(RedisConnection::new_managed_only(&options)).await?;
        let link = RedisLink {
            current: Mutex::new(NumberedConnection { connection, number: 0 }),
            reopening: tokio::sync::Mutex::new(()),
            options,
            prefix: prefix.to_owned(),
            own: format!("{prefix}:{base}:own:"),
            base: base.to_owned(),
            digest: Mutex::new(String::new()),
            loading: tokio::sync::Mutex::new(()),
            queues: Mutex::new(HashMap::new()),
        };
        link.load().await?;
        Ok(link)
    }

    /// Returns the names of a queue's keys.
    pub(super) fn keys(&self, queue: &str) -> QueueKeys {
        QueueKeys::new(queue, Some(&self.prefix))
    }

    /// Returns a queue of BullMQ's crate; all queues share the connection.
    pub(super) async fn queue(&self, name: &str) -> Result<Arc<Queue>, QueueError> {
        if let Some(queue) = self.queues.lock().get(name) {
            return Ok(Arc::clone(queue));
        }
        let options = QueueOptions::new().prefix(self.prefix.clone());
        let NumberedConnection { connection, number } = self.current();
        let queue = Arc::new(within(Queue::with_connection(name, connection, options)).await?);
        let mut queues = self.queues.lock();
        if self.current.lock().number == number {
            queues.insert(name.to_owned(), Arc::clone(&queue));
        }
        Ok(queue)
    }

    fn current(&self) -> NumberedConnection {
        self.current.lock().clone()
    }

    /// Replaces this connection by another one, unless that was done meanwhile. If that fails, the
    /// old one stays, and the next exchange that fails tries again.
    async fn reopen(&self, failed: u64, why: &'static str) {
        let _one = self.reopening.lock().await;
        if self.current.lock().number != failed {
            return;
        }
        match within(RedisConnection::new_managed_only(&self.options)).await {
            Ok(connection) => {
                tracing::info!(why, "opened another connection to Redis");
                // In this order: a queue keeps the connection with which it was created.
                let mut queues = self.queues.lock();
                *self.current.lock() = NumberedConnection { connection, number: failed + 1 };
                queues.clear();
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, why, "failed to open another connection to Redis");
            }
        }
    }

    fn command(&self, operation: &ScriptCall) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.digest.lock().as_str()).arg(0);
        cmd.arg(operation.name).arg(&self.own).arg(format!("{}:", self.prefix));
        cmd.arg(&operation.arguments);
        cmd
    }

    /// Runs one operation that may be repeated.
    pub(super) async fn ask(&self, operation: ScriptCall) -> Result<Value, QueueError> {
        let mut answers = self.transact(&[TransactionStep::Ours(operation)], true).await?;
        answers.pop().ok_or_else(|| LinkError::Answer("nothing".to_owned()).into())
    }

    /// Runs steps in one transaction; `again` is true if it may be repeated when the connection
    /// broke and the result is unknown.
    pub(super) async fn transact(
        &self,
        steps: &[TransactionStep],
        again: bool,
    ) -> Result<Vec<Value>, QueueError> {
        let mut backoff = BACKOFF;
        let mut tries = 1;
        let mut loaded = false;
        loop {
            match self.exchange(steps).await {
                Ok(answers) => return Ok(answers),
                Err(RedisLinkError::Scripts) if !loaded => {
                    self.load().await?;
                    loaded = true;
                }
                Err(RedisLinkError::Scripts) => return Err(LinkError::Scripts.into()),
                Err(RedisLinkError::Connection(error)) => {
                    let sent = !error.is_connection_refusal();
                    if tries == TRIES_MAX || (sent && !again) {
                        return Err(unavailable(error));
                    }
                    tries += 1;
                    tokio::time::sleep(backoff).await;
                    backoff *= 2;
                }
                // The replica has executed nothing, so any exchange may be repeated.
                Err(RedisLinkError::Replica(error, number)) => {
                    self.reopen(number, "the server is a replica").await;
                    if tries == TRIES_MAX {
                        return Err(unavailable(error));
                    }
                    tries += 1;
                    tokio::time::sleep(backoff).await;
                    backoff *= 2;
                }
                Err(RedisLinkError::Silent(number)) => {
                    self.reopen(number, "the server does not answer").await;
                    return Err(LinkError::Silent.into());
                }
                Err(RedisLinkError::Other(error)) => return Err(error),
            }
        }
    }

    async fn exchange(&self, steps: &[TransactionStep]) -> Result<Vec<Value>, RedisLinkError> {
        let NumberedConnection { connection, number } = self.current();
        let mut pipe = Pipeline::new();
        if steps.len() > 1 {
            pipe.atomic();
        }
        for step in steps {
            pipe.add_command(match step {
                TransactionStep::Ours(operation) => self.command(operation),
                TransactionStep::Theirs(cmd) => cmd.clone(),
            });
        }
        pipe.ignore_errors();
        let mut connection = connection.connection();
        let answers = pipe.query_async::<Vec<RedisResult<Value>>>(&mut connection);
        let failed = |error| RedisLinkError::of(error, number);
        match tokio::time::timeout(EXCHANGE_MAX, answers).await {
            Err(_) => Err(RedisLinkError::Silent(number)),
            Ok(Err(error)) => Err(failed(error)),
            Ok(Ok(answers)) => answers.into_iter().map(|it| it.map_err(failed)).collect(),
        }
    }

    /// Loads our script, and BullMQ's if the server lacks one.
    async fn load(&self) -> Result<(), QueueError> {
        let _one = self.loading.lock().await;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(OPERATIONS);
        let digest: String = within(self.current().connection.cmd(&mut load)).await?;
        *self.digest.lock() = digest;
        if !self.has_scripts().await? {
            // Boxed, because it is rare and large.
            within(Box::pin(self.prime())).await?;
        }
        if self.has_scripts().await? { Ok(()) } else { Err(LinkError::Scripts.into()) }
    }

    async fn has_scripts(&self) -> Result<bool, QueueError> {
        let mut cmd = redis::cmd("SCRIPT");
        cmd.arg("EXISTS");
        for script in BullmqScript::ALL {
            cmd.arg(script.digest());
        }
        let there: Vec<bool> = within(self.current().connection.cmd(&mut cmd)).await?;
        Ok(there.len() == BullmqScript::ALL.len() && there.iter().all(|there| *there))
    }

    /// Runs one job through a temporary queue with the crate's functions, which loads the scripts
    /// that they use, and then removes that queue.
    async fn prime(&self) -> Result<(), bullmq::Error> {
        let name = format!("{}.load-{}", self.base, nonce().unwrap_or_default());
        let options = QueueOptions::new().prefix(self.prefix.clone());
        let queue = Queue::with_connection(&name, self.current().connection, options).await?;
        let options = WorkerOptions::new()
            .connection(self.options.clone())
            .prefix(self.prefix.clone())
            .autorun(false)
            .skip_version_check();
        let nothing = |_job: bullmq::Job, _cancel| async { Ok(serde_json::Value::Null) };
        let worker = Worker::with_options(&name, nothing, options).await?;
        queue.add("load", serde_json::Value::Null).await?;
        if let Some(job) = worker.get_next_job_nonblocking("load").await? {
            job.extend_lock("load", LOAD_LOCK_MS).await?;
            job.move_to_wait(None).await?;
        }
        if let Some(mut job) = worker.get_next_job_nonblocking("load").await? {
            job.move_to_completed("").await?;
            queue.remove(job.id()).await?;
        }
        queue.obliterate(true, 100).await?;
        worker.close(LOAD_LOCK_MS).await
    }

    /// Returns the server's clock, in milliseconds since 1970.
    ///
    /// # Errors
    /// If the server does not answer.
    pub(super) async fn time_ms(&self) -> Result<u64, QueueError> {
        let mut cmd = redis::cmd("TIME");
        let (seconds, micros): (u64, u64) = within(self.current().connection.cmd(&mut cmd)).await?;
        Ok(seconds.saturating_mul(1000).saturating_add(micros / 1000))
    }

    /// Returns a setting of the server; `None` if the server does not report it.
    pub(super) async fn setting(&self, name: &str) -> Option<String> {
        let mut cmd = redis::cmd("CONFIG");
        cmd.arg("GET").arg(name);
        let answer: Vec<String> = within(self.current().connection.cmd(&mut cmd)).await.ok()?;
        answer.into_iter().nth(1)
    }
}

/// A step of a transaction.
#[derive(Debug)]
pub(super) enum TransactionStep {
    /// An operation of Cove.
    Ours(ScriptCall),
    /// A script of BullMQ.
    Theirs(Cmd),
}

/// An operation of Cove with its arguments.
#[derive(Debug)]
pub(super) struct ScriptCall {
    name: &'static str,
    arguments: Vec<Vec<u8>>,
}

impl ScriptCall {
    /// Creates a call of this operation; the caller appends the arguments.
    pub(super) fn new(name: &'static str) -> ScriptCall {
        ScriptCall { name, arguments: Vec::new() }
    }

    /// Adds an argument.
    pub(super) fn arg(mut self, argument: impl Into<Vec<u8>>) -> ScriptCall {
        self.arguments.push(argument.into());
        self
    }

    /// Adds a number.
    pub(super) fn num(self, number: impl ToString) -> ScriptCall {
        self.arg(number.to_string())
    }

    /// Adds an optional argument: empty, or prefixed with a mark.
    pub(super) fn marked(self, argument: Option<&str>) -> ScriptCall {
        self.arg(argument.map(|text| format!("+{text}")).unwrap_or_default())
    }
}

impl From<ScriptCall> for TransactionStep {
    fn from(operation: ScriptCall) -> TransactionStep {
        TransactionStep::Ours(operation)
    }
}

impl From<Cmd> for TransactionStep {
    fn from(cmd: Cmd) -> TransactionStep {
        TransactionStep::Theirs(cmd)
    }
}

enum RedisLinkError {
    /// The server has lost a script in a restart.
    Scripts,
    Connection(redis::RedisError),
    /// The server of the connection with this number is a read-only replica.
    Replica(redis::RedisError, u64),
    /// The server of the connection with this number does not answer.
    Silent(u64),
    Other(QueueError),
}

impl RedisLinkError {
    fn of(error: redis::RedisError, number: u64) -> RedisLinkError {
        if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) {
            RedisLinkError::Scripts
        } else if is_of_replica(&error) {
            RedisLinkError::Replica(error, number)
        } else if error.is_io_error() || error.is_connection_dropped() {
            RedisLinkError::Connection(error)
        } else {
            RedisLinkError::Other(unavailable(error))
        }
    }
}

/// Returns whether the server reports that it is a replica: for a script, Redis 6.2 reports it in
/// the text of another error.
fn is_of_replica(error: &redis::RedisError) -> bool {
    const REPLICA: &str = "READONLY";
    let kind = error.kind();
    kind == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || kind == ErrorKind::Server(ServerErrorKind::MasterDown)
        || error.detail().is_some_and(|detail| detail.contains(REPLICA))
}

/// Waits for an exchange of the crate, up to the timeout.
pub(super) async fn within<T, E>(
    exchange: impl Future<Output = Result<T, E>>,
) -> Result<T, QueueError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    match tokio::time::timeout(EXCHANGE_MAX, exchange).await {
        Ok(answer) => answer.map_err(unavailable),
        Err(_) => Err(LinkError::Silent.into()),
    }
}

/// Returns a unique word.
pub(super) fn nonce() -> Result<String, QueueError> {
    Ok(node::clock::IdGenerator::new().map_err(unavailable)?.next(""))
}
