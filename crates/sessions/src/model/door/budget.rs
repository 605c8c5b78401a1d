//! Usage of model grants and its limits. Usage of sessions and tenants is stored
//! ([`AmountLedger`]); usage of executions is forgotten when the server ends.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use node::cluster::{AmountAccount, AmountLedger, AmountRefusal};
use parking_lot::Mutex;

use super::{ModelDoorSpec, ModelPrice, ModelTokens};
use crate::model::ModelRefusal;

/// Error of a request whose grant's budget is used up.
pub(super) const OF_GRANT: &str = "the budget of the grant is used up";
/// Error of a request whose tenant's budget is used up.
pub(super) const OF_TENANT: &str = "the budget of the tenant is used up";

/// Maximum number of accounts in memory. Beyond it, the oldest accounts without sandboxes are
/// dropped.
const ACCOUNTS_MAX: usize = 20_000;

/// Units of money per US dollar: fractions of the price of one token.
const UNITS_PER_DOLLAR: f64 = 1e9;

/// Usage of a grant so far.
#[derive(Debug)]
pub(super) struct ModelAccount {
    tokens: Arc<AmountAccount>,
    money: Arc<AmountAccount>,
}

impl ModelAccount {
    fn in_memory() -> ModelAccount {
        ModelAccount { tokens: AmountAccount::in_memory(), money: AmountAccount::in_memory() }
    }
}

/// Budget that the sandboxes of one tenant share.
#[derive(Debug)]
pub(super) struct TenantBudget {
    tokens: Arc<AmountAccount>,
    /// Bytes of request bodies held.
    pub(super) room: Arc<ByteBudget>,
}

/// Budget of one grant.
#[derive(Debug)]
pub(super) struct GrantBudget {
    own: Arc<ModelAccount>,
    tenant: Arc<TenantBudget>,
    tokens_max: Option<u64>,
    money_max: Option<u64>,
    prices: BTreeMap<String, ModelPrice>,
    tokens_max_of_tenant: Option<u64>,
}

impl GrantBudget {
    /// Checks that every budget has something left; the error names the owner of the exhausted one.
    pub(super) async fn check(&self) -> Result<(), ModelRefusal> {
        // Concurrently, because each check may wait for the store.
        let (tokens, money, of_tenant) = tokio::join!(
            self.own.tokens.check_left(self.tokens_max),
            self.own.money.check_left(self.money_max),
            self.tenant.tokens.check_left(self.tokens_max_of_tenant),
        );
        tokens.and(money).map_err(|refusal| refuse(refusal, OF_GRANT))?;
        of_tenant.map_err(|refusal| refuse(refusal, OF_TENANT))
    }

    /// Returns whether the model has a price, or needs none.
    pub(super) fn has_price(&self, model: &str) -> bool {
        self.money_max.is_none() || self.prices.contains_key(model)
    }

    /// Charges the usage of a model.
    pub(super) fn add(&self, model: &str, tokens: &ModelTokens) {
        let total = tokens.total();
        let dollars = self.prices.get(model).map_or(0.0, |price| price.of(tokens));
        self.own.tokens.charge(total);
        self.own.money.charge(units((dollars * UNITS_PER_DOLLAR).ceil()));
        self.tenant.tokens.charge(total);
    }
}

fn refuse(refusal: AmountRefusal, used_up: &'static str) -> ModelRefusal {
    match refusal {
        AmountRefusal::UsedUp => ModelRefusal::Budget(used_up),
        AmountRefusal::HeldElsewhere => ModelRefusal::BudgetElsewhere,
        AmountRefusal::StoreAway => ModelRefusal::BudgetUnknown,
    }
}

/// Converts an amount to whole units; saturates at the maximum.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn units(amount: f64) -> u64 {
    amount as u64
}

impl ModelPrice {
    /// Returns the price of these tokens in US dollars.
    fn of(&self, tokens: &ModelTokens) -> f64 {
        let parts = [
            (self.input, tokens.input),
            (self.output, tokens.output),
            (self.cache_write, tokens.cache_write),
            (self.cache_read, tokens.cache_read),
        ];
        let cost = |(price, count)| price * f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        parts.into_iter().map(cost).sum::<f64>() / 1e6
    }
}

/// Accounts of a server.
#[derive(Debug)]
pub(super) struct ModelAccounts {
    tokens_max_per_tenant: Option<u64>,
    room_per_tenant: usize,
    /// Ledger in the store; none if usage is not stored.
    kept: Option<AmountLedger>,
    books: Mutex<ModelLedger>,
}

#[derive(Debug, Default)]
struct ModelLedger {
    /// By the grant's holder and its port in the sandbox, so that a restarted sandbox, or a changed
    /// grant, keeps its usage.
    grants: HashMap<(Arc<str>, u16), (u64, Arc<ModelAccount>)>,
    /// Counter of opened accounts, which orders them by age.
    opened: u64,
    tenants: HashMap<Arc<str>, Arc<TenantBudget>>,
}

impl ModelAccounts {
    /// Creates the accounts. `tokens_max_per_tenant` is 0 for no limit. `room_per_tenant` limits
    /// the bytes of request bodies held for one tenant.
    pub(super) fn new(tokens_max_per_tenant: u64, room_per_tenant: usize) -> ModelAccounts {
        let tokens_max_per_tenant = Some(tokens_max_per_tenant).filter(|most| *most != 0);
        ModelAccounts {
            tokens_max_per_tenant,
            room_per_tenant,
            kept: None,
            books: Mutex::default(),
        }
    }

    /// Stores the accounts that are opened from now on in a ledger.
    pub(super) fn keep_in(&mut self, ledger: Option<AmountLedger>) {
        self.kept = ledger;
    }

    /// Returns the budget of a grant, and that of its tenant.
    pub(super) fn open(&self, spec: &ModelDoorSpec) -> (GrantBudget, Arc<TenantBudget>) {
        let mut books = self.books.lock();
        let own = match self.kept.as_ref().filter(|_| spec.is_lasting) {
            Some(ledger) => {
                let open =
                    |what| ledger.of_session(&spec.holder, &format!("model/{}/{what}", spec.port));
                Arc::new(ModelAccount { tokens: open("tokens"), money: open("nanodollars") })
            }
            None => books.grant((Arc::clone(&spec.holder), spec.port)),
        };
        let tenant = books.tenants.entry(Arc::clone(&spec.tenant)).or_insert_with(|| {
            let room = Arc::new(ByteBudget::new(self.room_per_tenant));
            // Without a limit, usage is not recorded that would count against a later limit.
            let ledger = self.kept.as_ref().filter(|_| self.tokens_max_per_tenant.is_some());
            let tokens = match ledger {
                Some(ledger) => ledger.of_tenant(&spec.tenant, "model/tokens"),
                None => AmountAccount::in_memory(),
            };
            Arc::new(TenantBudget { tokens, room })
        });
        let tenant = Arc::clone(tenant);
        let budget = GrantBudget {
            own,
            tenant: Arc::clone(&tenant),
            tokens_max: spec.tokens_max,
            money_max: spec.dollars_max.map(|most| units((most * UNITS_PER_DOLLAR).round())),
            prices: spec.prices.clone(),
            tokens_max_of_tenant: self.tokens_max_per_tenant,
        };
        (budget, tenant)
    }
}

impl ModelLedger {
    fn grant(&mut self, key: (Arc<str>, u16)) -> Arc<ModelAccount> {
        if let Some((_, account)) = self.grants.get(&key) {
            return Arc::clone(account);
        }
        if self.grants.len() >= ACCOUNTS_MAX {
            self.give_up();
        }
        self.opened += 1;
        let account = Arc::new(ModelAccount::in_memory());
        self.grants.insert(key, (self.opened, Arc::clone(&account)));
        account
    }

    /// Drops the older half of the unused accounts.
    fn give_up(&mut self) {
        let is_idle = |account: &Arc<ModelAccount>| Arc::strong_count(account) == 1;
        let idle = self.grants.values().filter(|(_, account)| is_idle(account));
        let mut idle: Vec<u64> = idle.map(|(opened, _)| *opened).collect();
        idle.sort_unstable();
        let Some(middle) = idle.get(idle.len() / 2).copied() else { return };
        self.grants.retain(|_, (opened, account)| *opened > middle || !is_idle(account));
    }
}

/// Limit on bytes held.
#[derive(Debug)]
pub(super) struct ByteBudget {
    most: usize,
    held: AtomicUsize,
}

impl ByteBudget {
    pub(super) fn new(most: usize) -> ByteBudget {
        ByteBudget { most, held: AtomicUsize::new(0) }
    }

    /// Returns the bytes held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.most);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes that one request holds in each of its budgets. Released when dropped.
#[derive(Debug)]
pub(super) struct HeldBytes {
    rooms: [Arc<ByteBudget>; 3],
    bytes: usize,
}

impl HeldBytes {
    pub(super) fn new(rooms: [Arc<ByteBudget>; 3]) -> HeldBytes {
        HeldBytes { rooms, bytes: 0 }
    }

    /// Holds more bytes. Returns false if there is no room.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        for (index, room) in self.rooms.iter().enumerate() {
            if !room.take(bytes) {
                self.rooms.iter().take(index).for_each(|taken| taken.give(bytes));
                return false;
            }
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.rooms.iter().for_each(|room| room.give(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_given_back() {
        let rooms = [10, 20, 5].map(|most| Arc::new(ByteBudget::new(most)));
        let held = |index: usize| rooms[index].held();
        let mut one = HeldBytes::new(rooms.clone());
        assert!(one.grow(4));
        assert!(!one.grow(2), "the third one is full");
        let mut two = HeldBytes::new(rooms.clone());
        assert!(two.grow(1) && !two.grow(usize::MAX));
        assert_eq!([held(0), held(1), held(2)], [5, 5, 5]);
        drop((one, two));
        assert_eq!([held(0), held(1), held(2)], [0, 0, 0]);
    }

    #[test]
    fn accounts_of_those_who_are_gone_are_given_up_in_time() {
        let mut books = ModelLedger::default();
        let key = |number: usize| (Arc::from(format!("ses_{number}")), 8100);
        let kept = books.grant(key(0));
        kept.tokens.charge(5);
        for number in 1..ACCOUNTS_MAX + 2 {
            books.grant(key(number)).tokens.charge(1);
        }
        assert!(books.grants.len() <= ACCOUNTS_MAX);
        assert_eq!(books.grant(key(0)).tokens.spent(), 5);
        assert_eq!(books.grant(key(ACCOUNTS_MAX)).tokens.spent(), 1);
        assert_eq!(books.grant(key(1)).tokens.spent(), 0, "it was the first to be opened");
    }

    #[test]
    fn a_price_is_for_a_million() {
        let price = ModelPrice { input: 3.0, output: 15.0, cache_write: 4.0, cache_read: 0.5 };
        let tokens = ModelTokens {
            input: 1_000_000,
            output: 100_000,
            cache_write: 250_000,
            cache_read: 2_000_000,
        };
        assert!((price.of(&tokens) - 6.5).abs() < 1e-9, "{}", price.of(&tokens));
    }
}
