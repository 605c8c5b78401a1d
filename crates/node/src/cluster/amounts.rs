//! Amounts that are used up, such as the requests of a grant or the tokens of a tenant: kept in
//! the store, so that they outlast servers and hold over all nodes.
//!
//! A node leases a part of an amount ahead and uses it without asking the store
//! ([`AmountAccount`]). One task leases more before it is needed, says what was used, and gives
//! back what nobody uses ([`AmountLedger`]). What all nodes have used and leased together never
//! exceeds the limit; what a node had leased that is lost counts as used, but under
//! [`LimitScope::Soft`], where it goes back.
//!
//! While the store is away a node goes on for a little beyond what it has leased, but under
//! [`LimitScope::Strict`]: for no longer than its serving lease, and nobody else has its sessions.
//!
//! What is known only afterwards ([`AmountAccount::charge`]) may exceed a limit, and is written
//! down as well.

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
/// Time that a request waits for what others may give back.
const WAIT_MAX: Duration = Duration::from_secs(4);
/// Interval at which it asks for that.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// Time for what was used to be written when the server stops.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Why something of an amount may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountRefusal {
    /// The limit is reached.
    #[error("the limit is reached")]
    UsedUp,
    /// What is left is leased by other nodes.
    #[error("the rest is leased by another server")]
    HeldElsewhere,
    /// More has to be leased, and the store does not answer.
    #[error("the store, which keeps the usage, cannot be reached")]
    StoreAway,
}

/// An amount at this node. What is used of it is written to the store when the last copy is dropped
/// as well.
pub struct AmountAccount {
    name: Arc<AccountName>,
    amount: Mutex<LocalAmount>,
    /// Result of the last exchange with the store.
    answers: watch::Sender<ExchangeOutcome>,
    /// None where nobody else uses it, and it is not kept.
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
    /// Creates an account in the memory of this server alone, for what ends with it.
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

    /// Uses so much, or nothing. None where the store has to be asked, which
    /// [`AmountAccount::take`] does. There is no limit where `limit` is none.
    pub fn try_take(&self, amount: u64, limit: Option<u64>) -> Option<Result<(), AmountRefusal>> {
        self.attempt(AmountUse::Exactly(amount), limit)
    }

    /// Uses so much, or nothing, and waits for the store where not enough of it is leased.
    ///
    /// # Errors
    /// When that is more than is left, or nobody can tell.
    pub async fn take(&self, amount: u64, limit: Option<u64>) -> Result<(), AmountRefusal> {
        self.wait_for(AmountUse::Exactly(amount), limit).await
    }

    /// Returns when something is left of the amount here: how much is used is known afterwards
    /// ([`AmountAccount::charge`]).
    ///
    /// # Errors
    /// When nothing is left, or nobody can tell.
    pub async fn check_left(&self, limit: Option<u64>) -> Result<(), AmountRefusal> {
        self.wait_for(AmountUse::Some, limit).await
    }

    /// Counts what was used, also beyond the limit.
    pub fn charge(&self, amount: u64) {
        let mut local = self.amount.lock();
        local.charge(amount);
        let is_due = local.is_overdrawn();
        drop(local);
        if is_due {
            // What a crash would lose is said at once.
            self.ask();
        }
    }

    /// Returns whether so much more would exceed a limit, by what is known here.
    #[must_use]
    pub fn would_exceed(&self, amount: u64, limit: Option<u64>) -> bool {
        self.amount.lock().would_exceed(amount, limit)
    }

    /// Returns what is known here to be used, by all nodes.
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

    /// Has the store asked soon.
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

/// A request that waits for more. Counted until it is dropped.
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
    /// Accounts that have to be exchanged soon.
    due: Mutex<BTreeSet<Arc<AccountName>>>,
    demand: Arc<Notify>,
    /// Lives of leases that this run has had.
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
    /// Brings the tables up to date, and starts the task that exchanges with the store.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn open(
        store: &SqlStore,
        membership: &NodeMembership,
        scope: LimitScope,
        registry: &mut Registry,
    ) -> Result<AmountLedger, SqlStoreError> {
        migrate_amounts(store).await?;
        // Rows are locked one after the other: transactions wait for each other, and none is lost.
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

    /// Returns an account of a session, which goes with the session. It is the same at all nodes:
    /// a session is at one after the other.
    #[must_use]
    pub fn of_session(&self, session: &str, what: &str) -> Arc<AmountAccount> {
        let account = format!("{session}/{what}");
        self.account(AccountName { account, holder: session.to_owned() })
    }

    /// Returns an account of a tenant: of all nodes together, or of this one of several alone under
    /// [`LimitScope::Node`].
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

    /// Writes what was used, and gives back what is left, for the end of the server. From then on
    /// nothing is leased any more.
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
