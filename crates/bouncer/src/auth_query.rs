//! Lookup of users that only the server knows: their secrets are queried there and cached for a
//! while.
//!
//! The lookups of a tenant run one after the other over one connection, so that a flood of logins
//! with made-up names costs the server little. The result for each name is cached, whether there is
//! such a user or not.
//!
//! # References
//! - <https://www.pgbouncer.org/config.html#auth_query>

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::TenantEngine;
use node::telemetry::error_chain;
use parking_lot::Mutex;
use pooler_core::link::ServerCredentials;
use pooler_core::mysql;
use tokio::runtime::Handle;
use tokio::sync::Mutex as AsyncMutex;

use crate::control::mysql::{MysqlControlConnection, MysqlControlTarget};
use crate::control::{self, ControlError, Rows};
use crate::relay::{self, LookUp};
use crate::secrets::ClientSecret;
use crate::tenants::{AuthQuery, TenantId, TenantSnapshot};
use crate::tls::ServerSide;

/// Default query. An expired password counts as none (CVE-2025-2291). The query needs a role that
/// may read `pg_authid`; other roles need a function of their own for it.
pub const QUERY: &str = "SELECT rolname, CASE WHEN rolvaliduntil < pg_catalog.now() THEN NULL \
                         ELSE rolpassword END FROM pg_catalog.pg_authid \
                         WHERE rolname = $1 AND rolcanlogin";

/// Query for MySQL, where one name may have several passwords, for clients from several hosts: the
/// query takes that of the widest host, because the pooler is the client. Locked accounts count as
/// absent.
pub const QUERY_MYSQL: &str = "SELECT user, authentication_string FROM mysql.user WHERE user = ? \
                               AND plugin IN ('mysql_native_password', 'caching_sha2_password') \
                               AND password_expired = 'N' AND account_locked = 'N' \
                               ORDER BY host = '%' DESC, host LIMIT 1";

/// Query for MariaDB, which stores accounts as JSON objects.
pub const QUERY_MARIADB: &str = "SELECT u.user, u.authentication_string FROM mysql.user u \
     JOIN mysql.global_priv g ON g.user = u.user AND g.host = u.host WHERE u.user = ? \
     AND u.plugin = 'mysql_native_password' AND u.password_expired = 'N' AND u.is_role = 'N' \
     AND COALESCE(JSON_VALUE(g.priv, '$.account_locked'), '0') NOT IN ('1', 'true') \
     ORDER BY u.host = '%' DESC, u.host LIMIT 1";

/// Maximum number of cached answers of all tenants; when it is reached, all are dropped.
const ANSWERS_MAX: usize = 65_536;

/// Time for which an error or the absence of a user is cached: short, because the user may be
/// created meanwhile.
const NOTHING_KEPT: Duration = Duration::from_secs(5);

/// Minimum age at which a failed login makes a cached answer suspect: a client that guesses
/// passwords does not cause more frequent lookups.
const DOUBTED_AFTER: Duration = Duration::from_secs(5);

/// Maximum time of a lookup, including connecting.
const ASK: Duration = Duration::from_secs(10);

/// Time that an idle connection is kept for the next lookup.
const KEPT: Duration = Duration::from_secs(30);

/// Application name that the server sees.
const APPLICATION: &str = "cove auth_query";

/// Maximum length of a name that is looked up; PostgreSQL's names have 63 bytes.
const NAME_BYTES_MAX: usize = 255;

/// Why a user's secret is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookUpError {
    /// The tenant has no `auth_query`.
    #[error("`auth_query` is not configured for the tenant")]
    NotThere,
    /// The user is the role that runs the lookups (CVE-2015-6817).
    #[error("clients cannot log in as the role of `auth_query`")]
    Looker,
    /// The server did not answer.
    #[error("run `auth_query` at the server: {0}")]
    Server(String),
    /// The answer is not a name and a secret.
    #[error("`auth_query` must return a row with a name and a secret")]
    Shape,
}

/// Looks up users. Shared by all threads.
#[derive(Debug)]
pub struct AuthQueries {
    tls: Arc<ServerSide>,
    kept: Duration,
    doubted_after: Duration,
    answers: Mutex<HashMap<(TenantId, Box<str>), AuthQueryReply>>,
    /// For each tenant the queue of lookups, and their connection.
    lines: Mutex<HashMap<TenantId, Arc<PgQueryLine>>>,
}

type Secret = Result<Option<ClientSecret>, LookUpError>;

#[derive(Debug)]
struct AuthQueryReply {
    secret: Secret,
    asked: Instant,
    /// Epoch of the tenant at the time of the lookup: another server may answer differently.
    epoch: u32,
    /// Query that was run: another query may have another answer.
    query: AuthQuery,
}

#[derive(Debug, Default)]
struct PgQueryLine(AsyncMutex<Option<OpenLookup>>);

#[derive(Debug)]
struct OpenLookup {
    control: LookupConnection,
    used: Instant,
    epoch: u32,
    query: AuthQuery,
}

/// Connection for lookups.
#[derive(Debug)]
enum LookupConnection {
    Pg(control::ControlConnection),
    My(MysqlControlConnection),
}

impl LookupConnection {
    async fn open(
        tls: &ServerSide,
        tenant: &TenantSnapshot,
        query: &AuthQuery,
    ) -> Result<LookupConnection, ControlError> {
        match ServerCredentials::of(
            tenant.engine,
            query.password.as_ref().map(ClientSecret::expose),
        ) {
            ServerCredentials::Pg(credentials) => {
                let errand = control::ControlTarget {
                    server: &tenant.server,
                    database: &query.database,
                    user: &query.user,
                    credentials,
                    application: APPLICATION,
                };
                Ok(LookupConnection::Pg(control::ControlConnection::open(tls, errand).await?))
            }
            ServerCredentials::My(credentials) => {
                let errand = MysqlControlTarget {
                    server: &tenant.server,
                    // The default query qualifies its tables; its role may have no right to the
                    // tenant's database.
                    database: query.query.as_ref().map(|_| &*query.database),
                    user: &query.user,
                    credentials,
                    application: APPLICATION,
                };
                Ok(LookupConnection::My(MysqlControlConnection::open(tls, errand).await?))
            }
        }
    }

    /// Looks up a user.
    async fn ask(&mut self, query: &AuthQuery, user: &str) -> Result<Rows, ControlError> {
        let own = query.query.as_deref();
        match self {
            LookupConnection::Pg(control) => control.ask(own.unwrap_or(QUERY), &[user]).await,
            LookupConnection::My(control) => {
                let ours = if control.is_mariadb() { QUERY_MARIADB } else { QUERY_MYSQL };
                let text = mysql::literal::with_value(own.unwrap_or(ours), user);
                control.ask(&text).await
            }
        }
    }

    async fn close(self) {
        match self {
            LookupConnection::Pg(control) => control.close().await,
            LookupConnection::My(control) => control.close().await,
        }
    }
}

impl AuthQueries {
    /// Creates an empty cache. `kept` is how long a secret is cached.
    #[must_use]
    pub fn new(tls: Arc<ServerSide>, kept: Duration) -> AuthQueries {
        let (answers, lines) = (Mutex::default(), Mutex::default());
        AuthQueries { tls, kept, doubted_after: DOUBTED_AFTER, answers, lines }
    }

    /// Returns the secret of a user; `None` if there is no such user, empty if it has no password
    /// in PostgreSQL.
    ///
    /// # Errors
    /// If the secret cannot be determined.
    pub async fn look_up(self: &Arc<Self>, tenant: &TenantSnapshot, user: &str) -> Secret {
        let query = tenant.auth_query.as_ref().ok_or(LookUpError::NotThere)?;
        if *query.user == *user {
            return Err(LookUpError::Looker);
        }
        if user.is_empty() || user.len() > NAME_BYTES_MAX {
            return Ok(None);
        }
        if let Some(known) = self.known(tenant, user) {
            return known;
        }
        let line = Arc::clone(self.lines.lock().entry(tenant.id).or_default());
        let asked = tokio::time::timeout(ASK, async {
            let mut open = line.0.lock().await;
            // An earlier lookup in the queue may have been for the same user.
            if let Some(known) = self.known(tenant, user) {
                return known;
            }
            let secret = self.ask(tenant, query, user, &mut open).await;
            self.remember(tenant, user, secret.clone());
            secret
        });
        let secret = asked.await.unwrap_or_else(|_| {
            let secret = Err(LookUpError::Server("it takes too long".to_owned()));
            self.remember(tenant, user, secret.clone());
            secret
        });
        self.close_later(tenant.id);
        secret
    }

    /// Reports that a client failed to prove the secret of this user, which may have been changed:
    /// unless the cached answer is recent, the next login looks it up again.
    pub fn doubt(&self, tenant: TenantId, user: &str) {
        let key = (tenant, Box::from(user));
        let mut answers = self.answers.lock();
        let now = node::clock::now();
        let age = answers.get(&key).map(|answer| now.saturating_duration_since(answer.asked));
        if age.is_some_and(|age| age >= self.doubted_after) {
            answers.remove(&key);
        }
    }

    fn known(&self, tenant: &TenantSnapshot, user: &str) -> Option<Secret> {
        let answers = self.answers.lock();
        let answer = answers.get(&(tenant.id, Box::from(user)))?;
        let kept = match &answer.secret {
            Ok(Some(_)) => self.kept,
            Ok(None) | Err(_) => self.kept.min(NOTHING_KEPT),
        };
        let age = node::clock::now().saturating_duration_since(answer.asked);
        let is_same = tenant.auth_query.as_ref() == Some(&answer.query);
        let holds = age < kept && is_same && answer.epoch == tenant.state.epoch();
        holds.then(|| answer.secret.clone())
    }

    fn remember(&self, tenant: &TenantSnapshot, user: &str, secret: Secret) {
        let Some(query) = tenant.auth_query.clone() else { return };
        let (asked, epoch) = (node::clock::now(), tenant.state.epoch());
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers
            .insert((tenant.id, Box::from(user)), AuthQueryReply { secret, asked, epoch, query });
    }

    /// Runs the query over the open connection, or over a new one.
    async fn ask(
        &self,
        tenant: &TenantSnapshot,
        query: &AuthQuery,
        user: &str,
        open: &mut Option<OpenLookup>,
    ) -> Secret {
        let epoch = tenant.state.epoch();
        // The server may have closed an idle connection; then the query runs once more over a new
        // one.
        let kept = open.take().filter(|it| it.epoch == epoch && it.query == *query);
        if let Some(mut kept) = kept {
            match kept.control.ask(query, user).await {
                Err(ControlError::Io(_) | ControlError::Closed | ControlError::Protocol(_)) => {}
                answer => {
                    kept.used = node::clock::now();
                    *open = Some(kept);
                    return secret_of(tenant.engine, user, answer);
                }
            }
        }
        let mut control =
            LookupConnection::open(&self.tls, tenant, query).await.map_err(|it| told(&it))?;
        let answer = control.ask(query, user).await;
        if matches!(answer, Ok(_) | Err(ControlError::Refused { .. })) {
            let used = node::clock::now();
            *open = Some(OpenLookup { control, used, epoch, query: query.clone() });
        }
        secret_of(tenant.engine, user, answer)
    }

    /// Closes the connection of a tenant after it has been idle for a while.
    fn close_later(self: &Arc<Self>, tenant: TenantId) {
        let this = Arc::downgrade(self);
        node::task::spawn(async move {
            tokio::time::sleep(KEPT).await;
            let Some(this) = this.upgrade() else { return };
            let Some(line) = this.lines.lock().get(&tenant).map(Arc::clone) else { return };
            // A running lookup starts its own task, which closes the connection.
            let Ok(mut open) = line.0.try_lock() else { return };
            let now = node::clock::now();
            let used = open.as_ref().map(|it| now.saturating_duration_since(it.used));
            if used.is_some_and(|since| since < KEPT) {
                return;
            }
            // Lookups that already hold the queue continue with it; others create a new one.
            this.lines.lock().remove(&tenant);
            if let Some(unused) = open.take() {
                unused.control.close().await;
            }
        });
    }
}

/// Looks up users for the relay's threads, which must not block.
#[derive(Clone, Debug)]
pub struct UserLookupTask {
    queries: Arc<AuthQueries>,
    runtime: Handle,
}

impl UserLookupTask {
    /// Creates a task that runs lookups on `runtime`, with one in progress for each client that
    /// waits.
    #[must_use]
    pub fn new(queries: Arc<AuthQueries>, runtime: Handle) -> UserLookupTask {
        UserLookupTask { queries, runtime }
    }
}

impl LookUp for UserLookupTask {
    fn look_up(&self, tenant: Arc<TenantSnapshot>, user: Arc<str>, answer: relay::SecretReply) {
        let queries = Arc::clone(&self.queries);
        self.runtime.spawn(async move {
            let secret = queries.look_up(&tenant, &user).await;
            answer.give(secret.map_err(|error| error.to_string()));
        });
    }

    fn doubt(&self, tenant: TenantId, user: &str) {
        self.queries.doubt(tenant, user);
    }
}

/// Returns the secret in the answer to a lookup of `user`.
fn secret_of(engine: TenantEngine, user: &str, answer: Result<Rows, ControlError>) -> Secret {
    let rows = answer.map_err(|error| told(&error))?;
    let Some(first) = rows.first() else { return Ok(None) };
    let [name, secret, ..] = first.as_slice() else { return Err(LookUpError::Shape) };
    if name.as_deref().is_some_and(|name| name != user) {
        return Ok(None); // the row of another user
    }
    let secret = secret.clone().unwrap_or_default();
    // In PostgreSQL, a user without a password exists: some methods require none.
    let is_somebody = engine == TenantEngine::Postgres || !secret.is_empty();
    Ok(is_somebody.then(|| ClientSecret::new(secret)))
}

/// Formats an error with its causes, for the log.
fn told(error: &ControlError) -> LookUpError {
    LookUpError::Server(error_chain(error))
}

#[cfg(test)]
mod tests;
