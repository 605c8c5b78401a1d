//! The task that exchanges with the store for all accounts of this node.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::exchange::AmountDemand;
use super::table::{self, AccountName};
use super::{AmountAccount, AmountRefusal, ExchangeOutcome, LedgerShared};
use crate::store::SqlStoreError;
use crate::telemetry::Registry;

/// Interval at which usage is written.
const SETTLE_EVERY: Duration = Duration::from_secs(1);
/// Looks without use after which the rest of a session's amount is given back. One node has the
/// session, so no other node waits for it.
const IDLE_LOOKS_OF_SESSION: u32 = 10;
/// The same for amounts that other nodes may wait for.
const IDLE_LOOKS_SHARED: u32 = 2;
/// Accounts that one transaction settles.
const SETTLED_MAX: usize = 100;

/// Exchange that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueExchange {
    GoOn,
    GiveBack,
    Close,
}

type DueExchanges = BTreeMap<Arc<AccountName>, (Arc<AmountAccount>, DueExchange)>;

/// Runs exchanges until the ledger is closed or dropped.
pub(super) async fn keep(ledger: Weak<LedgerShared>, demand: Arc<Notify>) {
    let mut next_look = Instant::now() + SETTLE_EVERY;
    let mut is_failing = false;
    loop {
        tokio::select! {
            () = demand.notified() => {}
            () = sleep_until(next_look) => {}
        }
        let Some(ledger) = ledger.upgrade() else { return };
        let is_closing = ledger.is_closing();
        let mut due = ledger.take_due();
        if is_closing {
            due = ledger.all();
        } else if Instant::now() >= next_look {
            next_look = Instant::now() + SETTLE_EVERY;
            ledger.look(&mut due);
        }
        let exchanged = ledger.exchange(due).await;
        let was_failing = std::mem::replace(&mut is_failing, exchanged.is_err());
        match exchanged {
            Err(error) if !was_failing => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "failed to store the usage of grants");
            }
            Ok(()) if was_failing => {
                tracing::info!("the usage of grants is stored again")
            }
            Ok(()) | Err(_) => {}
        }
        if is_closing {
            return;
        }
    }
}

impl LedgerShared {
    /// Takes the accounts that request an exchange.
    fn take_due(&self) -> DueExchanges {
        let names = std::mem::take(&mut *self.due.lock());
        let accounts = self.accounts.lock();
        let known = names.into_iter().filter_map(|name| {
            let account = Arc::clone(accounts.get(&name)?);
            Some((name, (account, DueExchange::GoOn)))
        });
        known.collect()
    }

    /// Returns all accounts, for closing.
    fn all(&self) -> DueExchanges {
        let accounts = self.accounts.lock();
        let all = accounts.iter().filter(|(_, account)| !account.amount.lock().is_settled());
        let close = |(name, account): (&Arc<AccountName>, &Arc<AmountAccount>)| {
            (Arc::clone(name), (Arc::clone(account), DueExchange::Close))
        };
        all.map(close).collect()
    }

    /// Adds accounts with unwritten usage, with an unused rest, or without users.
    fn look(&self, due: &mut DueExchanges) {
        let mut accounts = self.accounts.lock();
        accounts.retain(|name, account| {
            let waits = due.contains_key(name);
            // Only the map has it: while the map is locked, no other clone can be made.
            let is_needed = waits || Arc::strong_count(account) > 1;
            let mut amount = account.amount.lock();
            let idle_looks = amount.look();
            let idle_max = match name.holder.is_empty() {
                true => IDLE_LOOKS_SHARED,
                false => IDLE_LOOKS_OF_SESSION,
            };
            let exchange = match (is_needed, amount.is_unsettled()) {
                (false, _) if amount.is_settled() => return false,
                (false, _) => Some(DueExchange::Close),
                (true, true) => Some(DueExchange::GoOn),
                (true, false) => {
                    let is_idle = idle_looks >= idle_max && amount.has_left();
                    (is_idle && !amount.is_waited_for()).then_some(DueExchange::GiveBack)
                }
            };
            drop(amount);
            if let Some(exchange) = exchange.filter(|_| !waits) {
                due.insert(Arc::clone(name), (Arc::clone(account), exchange));
            }
            true
        });
    }

    /// Exchanges with the store. The future must not be dropped half way: a transaction that is
    /// still running could commit after a later one.
    async fn exchange(&self, due: DueExchanges) -> Result<(), SqlStoreError> {
        let mut result = Ok(());
        let due: Vec<_> = due.into_iter().collect();
        for some in due.chunks(SETTLED_MAX) {
            let demands: Vec<(Arc<AccountName>, AmountDemand)> = some
                .iter()
                .map(|(name, (account, exchange))| {
                    let mut amount = account.amount.lock();
                    let demand = match exchange {
                        DueExchange::GoOn => amount.demand(),
                        DueExchange::GiveBack => amount.give_back(),
                        DueExchange::Close => amount.close(),
                    };
                    (Arc::clone(name), demand)
                })
                .collect();
            match table::settle(&self.store, demands.clone(), self.lease_judge()).await {
                Ok(answers) => {
                    for (((_, (account, _)), (_, demand)), answer) in
                        some.iter().zip(&demands).zip(&answers)
                    {
                        account.amount.lock().answered(demand, answer, self.next_life());
                        account.answers.send_replace(ExchangeOutcome::Answered);
                    }
                }
                Err(error) => {
                    for (_, (account, _)) in some {
                        account.amount.lock().lose_store();
                        account.answers.send_replace(ExchangeOutcome::Failed);
                    }
                    result = Err(error);
                }
            }
        }
        result
    }
}

/// Counters of requests that waited for the store. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct AmountWaits(Family<WaitLabels, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabels {
    outcome: &'static str,
}

impl AmountWaits {
    pub(super) fn new(registry: &mut Registry) -> AmountWaits {
        let waits = Family::default();
        registry.register(
            "cove_amount_waits",
            "Requests by grants that waited for the store to lease more of their limit",
            waits.clone(),
        );
        AmountWaits(waits)
    }

    pub(super) fn count(&self, waited: Result<(), AmountRefusal>) {
        let outcome = match waited {
            Ok(()) => "leased",
            Err(AmountRefusal::UsedUp) => "used_up",
            Err(AmountRefusal::HeldElsewhere) => "held_elsewhere",
            Err(AmountRefusal::StoreAway) => "store_away",
        };
        self.0.get_or_create(&WaitLabels { outcome }).inc();
    }
}
