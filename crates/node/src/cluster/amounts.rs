//! Consumable amounts, such as the requests of a grant or the tokens of a tenant: kept in the
//! store, so that they outlast servers and hold over all nodes.
//!
//! A node leases a part of an amount ahead and uses it without querying the store
//! ([`AmountAccount`]). One task leases more before it is needed, reports the usage, and gives back
//! unused parts ([`AmountLedger`]). The sum of what all nodes have used and leased never exceeds
//! the limit; the lease of a lost node counts as used, except under [`LimitScope::Soft`], where its
//! unused part is given back.
//!
//! While the store is unreachable, a node may use a little more than it has leased, except under
//! [`LimitScope::Strict`]: for no longer than its serving lease, during which no other node has its
//! sessions.
//!
//! Usage that is only known afterwards ([`AmountAccount::charge`]) may exceed a limit, and is
//! recorded as well.

mod exchange;
mod keeper;
mod lease;
#[cfg(test)]
mod simulation;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout, timeout_at};

use self::keeper::AmountWaits;
use self::lease::{AmountUse, LocalAmount, UseAttempt};
use self::table::{AccountName, LeaseJudge, away_rule_of, unused_by};
pub use self::table::{migrate_amounts, remove_amounts};
use super::limit_shares::LimitScope;
use super::membership::NodeMembership;
use crate::store::{SqlStore, SqlStoreError};
use crate::task;
use crate::telemetry::Registry;

/// Time to connect to the store, and for one statement there.
const STATEMENT_MAX: Duration = Duration::from_secs(2);
/// Time that a request waits for parts that other nodes may give back.
const WAIT_MAX: Duration = Duration::from_secs(4);
/// Interval at which it requests them.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// Time to write the usage when the server stops.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Reason why an amount may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountRefusal {
    /// The limit is reached.
    #[error("the limit is reached")]
    UsedUp,
    /// The rest is leased by other nodes.
    #[error("the rest is leased by another server")]
    HeldElsewhere,
    /// More must be leased, and the store does not answer.
    #[error("the store, which keeps the usage, cannot be reached")]
    StoreAway,
}

/// An amount at this node. Its usage is also written to the store after the last clone is dropped.
pub struct AmountAccount {
    name: Arc<AccountName>,
    amount: Mutex<LocalAmount>,
    /// Result of the last exchange with the store.
    answers: watch::Sender<ExchangeOutcome>,
    /// None for an amount of this server alone, which is not stored.
    ledger: Option<Weak<LedgerShared>>,
}

/// Result of an exchange with the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ExchangeOutcome {
    #[default]
    Answered,
    Failed,
}

impl fmt::Debug for AmountAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmountAccount").field("name", &self.name).finish_non_exhaustive()
    }
}

impl AmountAccount {
    /// Creates an account in the memory of this server alone, for a limit that ends with the
    /// server.
    #[must_use]
    pub fn in_memory() -> Arc<AmountAccount> {
        let name = AccountName { account: String::new(), holder: String::new() };
        Arc::new(AmountAccount {
            name: Arc::new(name),
            amount: Mutex::new(LocalAmount::alone()),
            answers: watch::Sender::default(),
            ledger: None,
        })
    }

    /// Uses all of `amount`, or nothing. None if the store must be queried, as
    /// [`AmountAccount::take`] does. A `limit` of none means no limit.
    pub fn try_take(&self, amount: u64, limit: Option<u64>) -> Option<Result<(), AmountRefusal>> {
        self.attempt(AmountUse::Exactly(amount), limit)
    }

    /// Uses all of `amount`, or nothing, and waits for the store if not enough is leased.
    ///
    /// # Errors
    /// If less is left, or the store does not answer.
    pub async fn take(&self, amount: u64, limit: Option<u64>) -> Result<(), AmountRefusal> {
        self.wait_for(AmountUse::Exactly(amount), limit).await
    }

    /// Waits until some of the amount is left here; the usage is known afterwards
    /// ([`AmountAccount::charge`]).
    ///
    /// # Errors
    /// If nothing is left, or the store does not answer.
    pub async fn check_left(&self, limit: Option<u64>) -> Result<(), AmountRefusal> {
        self.wait_for(AmountUse::Some, limit).await
    }

    /// Counts usage, also beyond the limit.
    pub fn charge(&self, amount: u64) {
        let mut local = self.amount.lock();
        local.charge(amount);
        let is_due = local.is_overdrawn();
        drop(local);
        if is_due {
            // Usage that a crash would lose is reported at once.
            self.ask();
        }
    }

    /// Returns whether `amount` more would exceed a limit, by what this node knows.
    #[must_use]
    pub fn would_exceed(&self, amount: u64, limit: Option<u64>) -> bool {
        self.amount.lock().would_exceed(amount, limit)
    }

    /// Returns the usage by all nodes, as far as this node knows it.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.amount.lock().spent()
    }

    fn attempt(&self, wanted: AmountUse, limit: Option<u64>) -> Option<Result<(), AmountRefusal>> {
        let mut local = self.amount.lock();
        let attempt = local.attempt(wanted, limit);
        let wants_ahead = attempt == UseAttempt::Granted && local.wants_ahead();
        drop(local);
        if wants_ahead {
            self.ask();
        }
        match attempt {
            UseAttempt::Granted => Some(Ok(())),
            UseAttempt::UsedUp => Some(Err(AmountRefusal::UsedUp)),
            UseAttempt::Short => None,
        }
    }

    /// Requests an exchange with the store soon.
    fn ask(&self) {
        if let Some(ledger) = self.ledger() {
            ledger.ask(&self.name);
        }
    }

    fn ledger(&self) -> Option<Arc<LedgerShared>> {
        self.ledger.as_ref().and_then(Weak::upgrade)
    }

    async fn wait_for(&self, wanted: AmountUse, limit: Option<u64>) -> Result<(), AmountRefusal> {
        if let Some(result) = self.attempt(wanted, limit) {
            return result;
        }
        let Some(ledger) = self.ledger() else { return Err(AmountRefusal::StoreAway) };
        let waiting = self.wait_for_store(wanted, limit, &ledger).await;
        ledger.waits.count(waiting);
        waiting
    }

    async fn wait_for_store(
        &self,
        wanted: AmountUse,
        limit: Option<u64>,
        ledger: &LedgerShared,
    ) -> Result<(), AmountRefusal> {
        let deadline = tokio::time::Instant::now() + WAIT_MAX;
        let mut answers = self.answers.subscribe();
        let _waiting = WaitingUse::new(self, wanted.needed());
        loop {
            if ledger.is_closing() {
                return Err(AmountRefusal::StoreAway);
            }
            ledger.ask(&self.name);
            match timeout_at(deadline, answers.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => {
                    self.amount.lock().lose_store();
                    return self.attempt(wanted, limit).unwrap_or(Err(AmountRefusal::StoreAway));
                }
            }
            let outcome = *answers.borrow_and_update();
            if let Some(result) = self.attempt(wanted, limit) {
                return result;
            }
            if outcome == ExchangeOutcome::Failed {
                return Err(AmountRefusal::StoreAway);
            }
            if self.amount.lock().is_held_elsewhere() {
                let pause = sleep(ASK_EVERY);
                if timeout_at(deadline, pause).await.is_err() {
                    return Err(AmountRefusal::HeldElsewhere);
                }
            }
        }
    }
}

/// A waiting request. Counted until it is dropped.
struct WaitingUse<'a> {
    account: &'a AmountAccount,
    amount: u64,
}

impl<'a> WaitingUse<'a> {
    fn new(account: &'a AmountAccount, amount: u64) -> WaitingUse<'a> {
        account.amount.lock().wait_for(amount);
        WaitingUse { account, amount }
    }
}

impl Drop for WaitingUse<'_> {
    fn drop(&mut self) {
        self.account.amount.lock().stop_waiting_for(self.amount);
    }
}

/// The accounts of this node. Cheap to clone.
#[derive(Clone)]
pub struct AmountLedger(Arc<LedgerShared>);

struct LedgerShared {
    store: SqlStore,
    membership: NodeMembership,
    scope: LimitScope,
    /// By their names.
    accounts: Mutex<BTreeMap<Arc<AccountName>, Arc<AmountAccount>>>,
    /// Accounts that must be exchanged soon.
    due: Mutex<BTreeSet<Arc<AccountName>>>,
    demand: Arc<Notify>,
    /// Number of lease lives that this run has used.
    lives: AtomicU64,
    waits: AmountWaits,
    is_closing: AtomicBool,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for AmountLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accounts = self.0.accounts.lock().len();
        f.debug_struct("AmountLedger").field("accounts", &accounts).finish_non_exhaustive()
    }
}

impl AmountLedger {
    /// Migrates the tables, and starts the task that exchanges with the store.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn open(
        store: &SqlStore,
        membership: &NodeMembership,
        scope: LimitScope,
        registry: &mut Registry,
    ) -> Result<AmountLedger, SqlStoreError> {
        migrate_amounts(store).await?;
        // Rows are locked one after the other: transactions wait for each other, and none fails.
        let store = store.reserved(STATEMENT_MAX).await?;
        let waits = AmountWaits::new(registry);
        let shared = Arc::new(LedgerShared {
            store,
            membership: membership.clone(),
            scope,
            accounts: Mutex::default(),
            due: Mutex::default(),
            demand: Arc::new(Notify::new()),
            lives: AtomicU64::new(1),
            waits,
            is_closing: AtomicBool::new(false),
            keeper: Mutex::default(),
        });
        let demand = Arc::clone(&shared.demand);
        let keeper = task::spawn(keeper::keep(Arc::downgrade(&shared), demand));
        *shared.keeper.lock() = Some(keeper);
        Ok(AmountLedger(shared))
    }

    /// Returns an account of a session, which is removed with the session. It is the same at all
    /// nodes, because a session moves between nodes.
    #[must_use]
    pub fn of_session(&self, session: &str, what: &str) -> Arc<AmountAccount> {
        let account = format!("{session}/{what}");
        self.account(AccountName { account, holder: session.to_owned() })
    }

    /// Returns an account of a tenant: of all nodes together, or of this node of several alone
    /// under [`LimitScope::Node`].
    #[must_use]
    pub fn of_tenant(&self, tenant: &str, what: &str) -> Arc<AmountAccount> {
        let membership = &self.0.membership;
        let is_apart = self.0.scope == LimitScope::Node && membership.is_shared();
        let account = match is_apart {
            true => format!("node/{}/{what}/{tenant}", membership.identity().id),
            false => format!("tenant/{what}/{tenant}"),
        };
        self.account(AccountName { account, holder: String::new() })
    }

    fn account(&self, name: AccountName) -> Arc<AmountAccount> {
        let shared = &self.0;
        let mut accounts = shared.accounts.lock();
        if let Some(account) = accounts.get(&name) {
            return Arc::clone(account);
        }
        let name = Arc::new(name);
        let scope = shared.scope;
        let amount = LocalAmount::new(shared.next_life(), unused_by(scope), away_rule_of(scope));
        let account = Arc::new(AmountAccount {
            name: Arc::clone(&name),
            amount: Mutex::new(amount),
            answers: watch::Sender::default(),
            ledger: Some(Arc::downgrade(shared)),
        });
        accounts.insert(name, Arc::clone(&account));
        account
    }

    /// Writes the usage and gives back the rest, for the end of the server. Nothing is leased
    /// afterwards.
    pub async fn close(&self) {
        self.0.is_closing.store(true, Ordering::Relaxed);
        self.0.demand.notify_one();
        let keeper = self.0.keeper.lock().take();
        if let Some(mut keeper) = keeper
            && timeout(CLOSE_MAX, &mut keeper).await.is_err()
        {
            keeper.abort();
            tracing::warn!("the usage of grants was not stored in time");
        }
    }
}

impl Drop for LedgerShared {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.get_mut() {
            keeper.abort();
        }
    }
}

impl LedgerShared {
    fn ask(&self, name: &Arc<AccountName>) {
        self.due.lock().insert(Arc::clone(name));
        self.demand.notify_one();
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    fn next_life(&self) -> u64 {
        self.lives.fetch_add(1, Ordering::Relaxed)
    }

    fn lease_judge(&self) -> LeaseJudge {
        LeaseJudge {
            run: Arc::new(self.membership.identity().clone()),
            judge: self.membership.judge(),
            is_shared: self.membership.is_shared(),
            scope: self.scope,
        }
    }
}

#[cfg(test)]
mod tests;
