//! Rules for users by their names, for all tenants: PgBouncer's `[users]` and `auth_type`. A
//! `cove.toml` has such settings for each tenant.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{PoolMode, UserAuth};

use super::{AuthQuery, ClientAuth, TenantLimits};

/// Rules for users by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserRuleSet {
    /// Authentication of users that the tenant does not list but its `auth_query` finds.
    pub auth: UserAuth,
    /// Limits of some of them, in place of their tenant's.
    pub users: BTreeMap<String, UserRules>,
    /// Maximum read-only clients of the console; those with all rights are not limited.
    pub watchers_max: Option<u32>,
    /// Maximum read-only clients of one name without a limit of its own.
    pub user_watchers_max: Option<u32>,
}

/// Limits of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserRules {
    /// True if no client can log in as this user: it is known, but no proof for it is.
    pub is_locked: bool,
    /// Pool mode: when its server connections are returned.
    pub mode: Option<PoolMode>,
    /// Server connections of its role at one time, as the size of its pools.
    pub pool_size: Option<u32>,
    /// Maximum connections, as a limit.
    pub connections_max: Option<u32>,
    /// Maximum clients of this user.
    pub clients_max: Option<u32>,
    /// Maximum durations of its actions and idle times.
    pub times: UserTimes,
}

/// Times in place of a tenant's. For an absent one the tenant's own applies; zero turns a limit
/// off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserTimes {
    /// Wait for a server connection.
    pub wait: Option<Duration>,
    /// Duration of one statement.
    pub query: Option<Duration>,
    /// Duration of one transaction.
    pub transaction: Option<Duration>,
    /// Idle time between two statements of a transaction.
    pub idle_in_transaction: Option<Duration>,
    /// Idle time between two transactions of a client.
    pub client_idle: Option<Duration>,
}

impl UserRules {
    /// Returns the maximum server connections of its role.
    #[must_use]
    pub fn server_connections_max(&self) -> Option<u32> {
        self.pool_size.into_iter().chain(self.connections_max).min()
    }
}

impl UserRuleSet {
    /// Returns the rules for one user.
    #[must_use]
    pub fn of(&self, user: &str) -> UserRules {
        self.users.get(user).copied().unwrap_or_default()
    }

    /// Returns the authentication of a user that the tenant does not list.
    #[must_use]
    pub(super) fn auth_of_stranger(&self, user: &str, query: Option<&AuthQuery>) -> ClientAuth {
        // The role that runs lookups must not be found by lookup (CVE-2015-6817).
        let looks_up = query.is_some_and(|query| *query.user == *user);
        match (query, proof(self.auth)) {
            _ if self.of(user).is_locked => ClientAuth::Unknown,
            (Some(_), Some(proof)) if looks_up => proof,
            (Some(_), _) if !looks_up => ClientAuth::Query,
            (Some(_) | None, _) => ClientAuth::Unknown,
        }
    }
}

/// Returns the authentication of users for methods without a secret.
#[must_use]
pub fn proof(auth: UserAuth) -> Option<ClientAuth> {
    match auth {
        UserAuth::Password => None,
        UserAuth::Trust => Some(ClientAuth::Trust),
        UserAuth::Cert => Some(ClientAuth::Cert),
        UserAuth::Peer => Some(ClientAuth::Peer),
    }
}

impl UserTimes {
    /// Returns a tenant's limits, overridden by these.
    #[must_use]
    pub fn over(&self, limits: &TenantLimits) -> UserTimes {
        UserTimes {
            wait: self.wait.or(limits.wait),
            query: self.query.or(limits.query),
            transaction: self.transaction.or(limits.transaction),
            idle_in_transaction: self.idle_in_transaction.or(limits.idle_in_transaction),
            client_idle: self.client_idle.or(limits.client_idle),
        }
        .without_zeros()
    }

    fn without_zeros(self) -> UserTimes {
        let real = |time: Option<Duration>| time.filter(|time| !time.is_zero());
        UserTimes {
            wait: real(self.wait),
            query: real(self.query),
            transaction: real(self.transaction),
            idle_in_transaction: real(self.idle_in_transaction),
            client_idle: real(self.client_idle),
        }
    }

    /// Returns whether any time limit on a session's client is set.
    #[must_use]
    pub fn limit_clients(&self) -> bool {
        self.query.is_some()
            || self.transaction.is_some()
            || self.idle_in_transaction.is_some()
            || self.client_idle.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_times_are_in_place_of_its_tenants() {
        let second = |s| Some(Duration::from_secs(s));
        let limits = TenantLimits {
            wait: second(9),
            query: second(8),
            transaction: None,
            idle_in_transaction: None,
            client_idle: None,
            ..TenantLimits::default()
        };
        let own = UserTimes { query: second(0), client_idle: second(2), ..UserTimes::default() };
        let times = own.over(&limits);
        assert_eq!((times.wait, times.query, times.client_idle), (second(9), None, second(2)));
        assert!(times.limit_clients());
        assert!(own.over(&limits).transaction.is_none());
        assert!(!UserTimes::default().over(&TenantLimits::default()).limit_clients());
    }

    #[test]
    fn strangers_are_asked_as_the_rules_say() {
        let query =
            AuthQuery { user: "looker".into(), password: None, database: "db".into(), query: None };
        let locked = UserRules { is_locked: true, ..UserRules::default() };
        let check = |auth, query: Option<&AuthQuery>, user: &str, expected: &ClientAuth| {
            let users = BTreeMap::from([("shut".to_owned(), locked)]);
            let found =
                UserRuleSet { auth, users, ..UserRuleSet::default() }.auth_of_stranger(user, query);
            assert_eq!(found, *expected, "{auth:?} {user}");
        };
        for auth in [UserAuth::Password, UserAuth::Trust, UserAuth::Cert, UserAuth::Peer] {
            check(auth, Some(&query), "ann", &ClientAuth::Query);
            check(auth, None, "ann", &ClientAuth::Unknown);
            check(auth, Some(&query), "shut", &ClientAuth::Unknown);
        }
        check(UserAuth::Password, Some(&query), "looker", &ClientAuth::Unknown);
        check(UserAuth::Trust, Some(&query), "looker", &ClientAuth::Trust);
        check(UserAuth::Trust, None, "looker", &ClientAuth::Unknown);
    }
}
