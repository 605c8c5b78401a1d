//! The console: executes its commands in the control plane.
//!
//! A relay thread keeps the connection and forwards the commands; the reply, complete with its
//! `ReadyForQuery`, goes back to it. So no command delays a relay thread, and one that waits, such
//! as `PAUSE`, blocks only its own client.
//!
//! # References
//! - <https://www.pgbouncer.org/usage.html#admin-console>

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::clock;
use parking_lot::Mutex;
use wire::pg::frame::TransactionStatus;
use wire::pg::message::{ErrorFields, backend};

use super::command::{self, ConsoleCommand, ShowTopic, ShutdownWait};
use super::settings::SettingValues;
use super::show::{self, ShowView, TenantTotals};
use crate::relay::dialect::ErrorDialect;
use crate::relay::snapshot::{ServerView, ThreadSnapshot};
use crate::relay::stats::ThreadTenantStats;
use crate::service::{Bouncer, TenantOrder, distributions};
use crate::tenants::{TenantId, TenantSnapshot, WorkAdmission};

pub use crate::relay::console_backend::ConsoleRights;

/// Interval at which a waiting command checks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Minimum length of the period over which averages are computed.
const PERIOD_MIN: Duration = Duration::from_secs(1);

/// `protocol_violation`, PgBouncer's code for every error of a command.
const REFUSED: &str = "08P01";

/// `config_file_error`, and the message with which it is sent.
const CONFIG_FILE_ERROR: &str = "F0000";
const RELOAD_FAILED: &str = "RELOAD failed, see logs for additional details";

/// Operations of the process that the console is part of.
pub trait ConsoleHost: Send + Sync {
    /// Dialect of error messages to clients.
    fn words(&self) -> ErrorDialect;
    /// The settings in force.
    fn values(&self) -> SettingValues;
    /// Changes a setting, for the lifetime of the process.
    ///
    /// # Errors
    /// Description of the mistake.
    fn set(&self, key: &str, value: &str) -> Result<(), String>;
    /// Starts the shutdown of the process; returns at once.
    fn shutdown(&self, wait: ShutdownWait);
    /// Returns whether the shutdown has started.
    fn is_shutting_down(&self) -> bool;
}

/// The console. Cheap to clone.
#[derive(Clone)]
pub struct AdminConsole(Arc<ConsoleInner>);

struct ConsoleInner {
    bouncer: Bouncer,
    host: Arc<dyn ConsoleHost>,
    /// Base of averages: a time, and the counters at that time.
    earlier: Mutex<(Instant, BTreeMap<TenantId, TenantTotals>)>,
    /// Time at which connections of a tenant became unfit.
    reconnected: Mutex<BTreeMap<TenantId, Instant>>,
}

impl fmt::Debug for AdminConsole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("bouncer", &self.0.bouncer).finish_non_exhaustive()
    }
}

/// Result of a command.
type Outcome = Result<CommandReply, String>;

/// Reply to a successful command.
enum CommandReply {
    Tag(&'static str),
    Table(super::table::ShowTable),
    Empty,
}

impl AdminConsole {
    /// Creates the console of a bouncer.
    #[must_use]
    pub fn new(bouncer: Bouncer, host: Arc<dyn ConsoleHost>) -> AdminConsole {
        AdminConsole(Arc::new(ConsoleInner {
            bouncer,
            host,
            earlier: Mutex::new((clock::now(), BTreeMap::new())),
            reconnected: Mutex::default(),
        }))
    }

    pub(super) fn bouncer(&self) -> &Bouncer {
        &self.0.bouncer
    }

    /// Returns the dialect of error messages to clients.
    pub(super) fn words(&self) -> ErrorDialect {
        self.0.host.words()
    }

    /// Returns the complete reply to a command.
    pub async fn answer(&self, text: &str, rights: ConsoleRights) -> Vec<u8> {
        let mut out = Vec::new();
        let outcome = match command::parse(text) {
            Ok(command) if rights == ConsoleRights::Stats && !command.only_shows() => {
                Err("admin access needed".to_owned())
            }
            Ok(command) => self.boxed(command).await,
            Err(message) => Err(message),
        };
        match outcome {
            Ok(CommandReply::Table(table)) => {
                table.write(&mut out);
                return out;
            }
            Ok(CommandReply::Tag(tag)) => backend::command_complete(&mut out, tag),
            Ok(CommandReply::Empty) => backend::empty_query(&mut out),
            Err(message) => {
                let code = if message == RELOAD_FAILED { CONFIG_FILE_ERROR } else { REFUSED };
                backend::error(&mut out, &ErrorFields::error(code, &message));
            }
        }
        backend::ready_for_query(&mut out, TransactionStatus::Idle);
        out
    }

    /// Executes a command. Boxed, because the future holds the state of every command.
    fn boxed(&self, command: ConsoleCommand) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(self.run(command))
    }

    async fn run(&self, command: ConsoleCommand) -> Outcome {
        let bouncer = &self.0.bouncer;
        let tag = match command {
            ConsoleCommand::Empty => return Ok(CommandReply::Empty),
            ConsoleCommand::Show(topic) => {
                return Ok(CommandReply::Table(self.show_everywhere(topic).await));
            }
            ConsoleCommand::Set { key, value } => {
                self.0.host.set(&key, &value)?;
                bouncer.reload().await.map_err(|error| explained(&error))?;
                "SET"
            }
            ConsoleCommand::Reload => {
                let reloaded = bouncer.reload().await;
                reloaded.map_err(|error| {
                    let error = explained(&error);
                    tracing::error!(error, "the configuration is not taken over");
                    RELOAD_FAILED.to_owned()
                })?;
                "RELOAD"
            }
            ConsoleCommand::Resume(_) if self.0.host.is_shutting_down() => {
                return Err("pooler is shutting down".to_owned());
            }
            ConsoleCommand::KillClient(id) => {
                if !self.kill_client_here(&id).await? && !self.kill_elsewhere(&id).await {
                    return Err("client not found".to_owned());
                }
                "KILL_CLIENT"
            }
            ConsoleCommand::Shutdown(wait) => {
                self.0.host.shutdown(wait);
                "SHUTDOWN"
            }
            ConsoleCommand::Pause(name) => self.pause(&self.named(name.as_deref())?).await?,
            ConsoleCommand::WaitClose(name) => self.wait_close(&self.named(name.as_deref())?).await,
            ConsoleCommand::Reconnect(name) => {
                self.reconnect(&self.named(name.as_deref())?).await?
            }
            ConsoleCommand::Suspend => {
                // Only of this process, as it is before another one takes over.
                for tenant in self.named(None)? {
                    bouncer.pause(&tenant.name, false).map_err(|error| error.to_string())?;
                }
                "SUSPEND"
            }
            ConsoleCommand::Resume(name) => {
                self.each(&self.named(name.as_deref())?, TenantOrder::Resume).await?;
                "RESUME"
            }
            ConsoleCommand::Disable(name) => {
                self.each(&self.named(Some(&name))?, TenantOrder::Refuse).await?;
                "DISABLE"
            }
            ConsoleCommand::Enable(name) => {
                self.each(&self.named(Some(&name))?, TenantOrder::Resume).await?;
                "ENABLE"
            }
            ConsoleCommand::Kill(name) => {
                let tenants = self.named(name.as_deref())?;
                self.each(&tenants, TenantOrder::Pause).await?;
                self.each(&tenants, TenantOrder::Kill).await?;
                "KILL"
            }
        };
        Ok(CommandReply::Tag(tag))
    }

    async fn pause(&self, tenants: &[Arc<TenantSnapshot>]) -> Result<&'static str, String> {
        self.each(tenants, TenantOrder::Pause).await?;
        self.each(tenants, TenantOrder::Reconnect).await?;
        self.until(|snapshots| !any_server(snapshots, tenants, |_| true)).await;
        self.paused_elsewhere(tenants).await;
        Ok("PAUSE")
    }

    async fn wait_close(&self, tenants: &[Arc<TenantSnapshot>]) -> &'static str {
        self.until(|snapshots| !any_server(snapshots, tenants, |it| self.is_unfit(it))).await;
        "WAIT_CLOSE"
    }

    async fn reconnect(&self, tenants: &[Arc<TenantSnapshot>]) -> Result<&'static str, String> {
        let now = clock::now();
        self.each(tenants, TenantOrder::Reconnect).await?;
        self.0.reconnected.lock().extend(tenants.iter().map(|tenant| (tenant.id, now)));
        Ok("RECONNECT")
    }

    /// Closes a client of this node; returns whether it existed.
    ///
    /// # Errors
    /// If the id is invalid, or the client cannot be closed.
    pub(super) async fn kill_client_here(&self, id: &str) -> Result<bool, String> {
        let invalid = |_| "invalid client pointer supplied".to_owned();
        let named: ClientSelector = match id.strip_prefix("0x") {
            Some(pointer) => {
                ClientSelector::Pointer(u32::from_str_radix(pointer, 16).map_err(invalid)?)
            }
            None => ClientSelector::Number(id.parse().map_err(invalid)?),
        };
        let snapshots = self.0.bouncer.snapshots().await;
        let first_number = self.0.bouncer.peers().first_number();
        let mut clients = snapshots.iter().flat_map(|snapshot| &snapshot.clients);
        let found = clients.find(|client| match named {
            ClientSelector::Pointer(pid) => client.pid == pid,
            ClientSelector::Number(number) => first_number + client.number == number,
        });
        let pid = found.map_or(0, |client| client.pid);
        let tenant = found.and_then(|client| client.tenant.as_ref());
        let Some((_, tenant)) = tenant else { return Ok(false) };
        let killed = self.0.bouncer.kill_client(tenant, pid).await;
        killed.map_err(|error| error.to_string())?;
        // Later queries do not show the client any more.
        self.until(|snapshots| {
            !snapshots.iter().flat_map(|it| &it.clients).any(|client| client.pid == pid)
        })
        .await;
        Ok(true)
    }

    /// Returns the tenants that a command applies to.
    fn named(&self, name: Option<&str>) -> Result<Vec<Arc<TenantSnapshot>>, String> {
        let routing = self.0.bouncer.routing();
        match name {
            None => Ok(routing.tenants().map(Arc::clone).collect()),
            Some(name) => {
                let tenant = routing.named(name).map(Arc::clone);
                Ok(vec![tenant.ok_or_else(|| format!("no such database: {name}"))?])
            }
        }
    }

    /// Sends an order for each tenant, at all servers of the store.
    async fn each(
        &self,
        tenants: &[Arc<TenantSnapshot>],
        order: TenantOrder,
    ) -> Result<(), String> {
        for tenant in tenants {
            let ordered = self.0.bouncer.order(&tenant.name, order).await;
            ordered.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Waits until the relay is in the wanted state. There is no timeout: the wait ends earlier
    /// only if the client leaves.
    async fn until(&self, is_so: impl Fn(&[ThreadSnapshot]) -> bool) {
        while !is_so(&self.0.bouncer.snapshots().await) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Returns whether a connection must be closed because of a command that was given after it
    /// opened.
    fn is_unfit(&self, server: &ServerView) -> bool {
        let since = self.0.reconnected.lock().get(&server.tenant.0).copied();
        since.is_some_and(|since| {
            let age = Duration::from_micros(server.age_us);
            age > clock::now().saturating_duration_since(since)
        })
    }

    /// Returns the table of a topic, of this node.
    pub(super) async fn show(&self, topic: ShowTopic) -> super::table::ShowTable {
        let bouncer = &self.0.bouncer;
        let snapshots = bouncer.snapshots().await;
        let (routing, values) = (bouncer.routing(), self.0.host.values());
        let totals: BTreeMap<TenantId, TenantTotals> =
            routing.tenants().map(|tenant| (tenant.id, self.totals(tenant.id))).collect();
        let now = clock::now();
        let mut earlier = self.0.earlier.lock();
        let table = show::show(
            topic,
            &ShowView {
                routing: &routing,
                snapshots: &snapshots,
                values: &values,
                rules: &bouncer.config().rules,
                totals: &totals,
                earlier: &earlier.1,
                period: now.saturating_duration_since(earlier.0).max(PERIOD_MIN),
                state: self.state(&routing),
                first_number: bouncer.peers().first_number(),
                now_ms: clock::wall_ms(),
            },
        );
        if now.saturating_duration_since(earlier.0) >= values.seconds("stats_period") {
            *earlier = (now, totals);
        }
        table
    }

    fn state(&self, routing: &crate::tenants::TenantRouting) -> &'static str {
        let paused =
            |tenant: &Arc<TenantSnapshot>| tenant.state.admission() == WorkAdmission::Paused;
        match routing.tenants().all(paused) && !routing.is_empty() {
            true => "paused",
            false => "active",
        }
    }

    /// Returns the totals of all threads for a tenant.
    fn totals(&self, tenant: TenantId) -> TenantTotals {
        let stats = self.0.bouncer.threads().stats(tenant);
        let sum = |of: fn(&ThreadTenantStats) -> u64| stats.iter().map(|it| of(it)).sum();
        let [query, transaction, wait] = distributions(&stats);
        TenantTotals {
            assignments: transaction.count(),
            transactions: sum(|it| it.transactions.load()),
            queries: sum(|it| it.queries.load()),
            received: sum(|it| it.received_bytes.load()),
            sent: sum(|it| it.sent_bytes.load()),
            transaction_us: sum(|it| it.busy_us.load()),
            query_us: query.sum_us(),
            wait_us: wait.sum_us(),
            logins: sum(|it| it.logins.load()),
        }
    }
}

/// Returns the message of an error, with the field if there is one.
fn explained(error: &crate::BouncerError) -> String {
    match error {
        crate::BouncerError::Refused(refusal) => format!("{}: {}", refusal.field, refusal.message),
        other => other.to_string(),
    }
}

/// Selector of a client.
#[derive(Clone, Copy)]
enum ClientSelector {
    /// By the `ptr` of `SHOW CLIENTS`.
    Pointer(u32),
    /// By the `id`.
    Number(u64),
}

fn any_server(
    snapshots: &[ThreadSnapshot],
    tenants: &[Arc<TenantSnapshot>],
    is_meant: impl Fn(&ServerView) -> bool,
) -> bool {
    let mut servers = snapshots.iter().flat_map(|snapshot| &snapshot.servers);
    servers
        .any(|server| tenants.iter().any(|tenant| tenant.id == server.tenant.0) && is_meant(server))
}
