//! Usage of outside servers by grants. That of sessions is stored ([`AmountLedger`]); that of
//! executions, which live on one server, ends with it.

use std::collections::HashMap;
use std::sync::Arc;

use node::cluster::{AmountAccount, AmountLedger};
use node::gateway::GrantHolder;
use parking_lot::Mutex;

/// Most accounts in memory. Beyond it, accounts without a sandbox are dropped, oldest first.
const ACCOUNTS_MAX: usize = 20_000;

/// Usage of a grant so far.
#[derive(Debug)]
pub struct GrantAccount {
    pub(super) requests: Arc<AmountAccount>,
    pub(super) bytes: Arc<AmountAccount>,
}

impl Default for GrantAccount {
    /// Creates one in memory.
    fn default() -> GrantAccount {
        GrantAccount { requests: AmountAccount::in_memory(), bytes: AmountAccount::in_memory() }
    }
}

/// The accounts of a server: by the holder of a grant and its port in the sandbox, so that a
/// restored sandbox, or the next one of an execution, does not start from zero.
#[derive(Debug, Default)]
pub(crate) struct GrantAccounts {
    /// `None` if usage is not stored.
    kept: Option<AmountLedger>,
    in_memory: Mutex<AccountLedger>,
}

#[derive(Debug, Default)]
struct AccountLedger {
    grants: HashMap<(Arc<str>, u16), (u64, Arc<GrantAccount>)>,
    /// Increases with each account, and so gives their order of creation.
    opened: u64,
}

impl GrantAccounts {
    pub(crate) fn kept_in(ledger: Option<AmountLedger>) -> GrantAccounts {
        GrantAccounts { kept: ledger, in_memory: Mutex::default() }
    }

    pub(crate) fn open(&self, holder: &GrantHolder, port: u16) -> Arc<GrantAccount> {
        match self.kept.as_ref().filter(|_| holder.is_lasting()) {
            Some(ledger) => {
                let open = |what| ledger.of_session(&holder.id, &format!("http/{port}/{what}"));
                Arc::new(GrantAccount { requests: open("requests"), bytes: open("bytes") })
            }
            None => self.in_memory.lock().open(&holder.id, port),
        }
    }
}

impl AccountLedger {
    fn open(&mut self, holder: &Arc<str>, port: u16) -> Arc<GrantAccount> {
        let key = (Arc::clone(holder), port);
        if let Some((_, account)) = self.grants.get(&key) {
            return Arc::clone(account);
        }
        if self.grants.len() >= ACCOUNTS_MAX {
            self.give_up();
        }
        self.opened += 1;
        let account = Arc::new(GrantAccount::default());
        self.grants.insert(key, (self.opened, Arc::clone(&account)));
        account
    }

    /// Drops the older half of the unused accounts.
    fn give_up(&mut self) {
        let is_idle = |account: &Arc<GrantAccount>| Arc::strong_count(account) == 1;
        let idle = self.grants.values().filter(|(_, account)| is_idle(account));
        let mut idle: Vec<u64> = idle.map(|(opened, _)| *opened).collect();
        idle.sort_unstable();
        let Some(middle) = idle.get(idle.len() / 2).copied() else { return };
        self.grants.retain(|_, (opened, account)| *opened > middle || !is_idle(account));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_kept_as_long_as_there_is_room() {
        let accounts = GrantAccounts::default();
        let id = |number: usize| GrantHolder::new(format!("exe_{number}"), "team");
        let used = accounts.open(&id(0), 3128);
        for number in 1..ACCOUNTS_MAX {
            accounts.open(&id(number), 3128);
        }
        let last = Arc::downgrade(&accounts.open(&id(ACCOUNTS_MAX - 1), 3128));
        let early = Arc::downgrade(&accounts.open(&id(1), 3128));
        assert!(Arc::ptr_eq(&used, &accounts.open(&id(0), 3128)));
        assert!(!Arc::ptr_eq(&used, &accounts.open(&id(0), 3129)));
        // Accounts in use and newer ones stay.
        assert!(early.upgrade().is_none() && last.upgrade().is_some());
        assert!(Arc::ptr_eq(&used, &accounts.open(&id(0), 3128)));
        assert!(accounts.in_memory.lock().grants.len() <= ACCOUNTS_MAX / 2 + 2);
    }
}
