//! What holds for users by their names, whichever tenant they come to: PgBouncer's `[users]` and
//! `auth_type`. A `cove.toml` says such things of each tenant.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{PoolMode, UserAuth};

use super::{AuthQuery, ClientAuth, TenantLimits};

/// Rules for users by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserRuleSet {
    /// Authentication of users that no tenant lists but its `auth_query` finds.
    pub auth: UserAuth,
    /// Limits of some of them, in place of their tenant's.
    pub users: BTreeMap<String, UserRules>,
    /// Clients of the console at one time that may only look; who may do everything always may.
    pub watchers_max: Option<u32>,
    /// Maximum watchers of one name that has no limit of its own.
    pub user_watchers_max: Option<u32>,
}

/// Limits of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserRules {
    /// True if nobody can be it: it is known, but not what would prove it.
    pub is_locked: bool,
    /// When its server connections go back.
    pub mode: Option<PoolMode>,
    /// Server connections of its role at one time, as the size of its pools.
    pub pool_size: Option<u32>,
    /// Maximum connections, as a limit.
    pub connections_max: Option<u32>,
    /// Clients with its name.
    pub clients_max: Option<u32>,
    /// Time that it may do something, or nothing.
    pub times: UserTimes,
}

/// Times in place of a tenant's. What is absent is the tenant's own; no time at all turns a limit
/// off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserTimes {
    /// To wait for a server connection.
    pub wait: Option<Duration>,
    /// For one statement.
    pub query: Option<Duration>,
    /// For one transaction.
    pub transaction: Option<Duration>,
    /// Between two statements of a transaction.
    pub idle_in_transaction: Option<Duration>,
    /// Between two transactions of a client.
    pub client_idle: Option<Duration>,
}

impl UserRules {
    /// Server connections of its role at one time.
    #[must_use]
    pub fn server_connections_max(&self) -> Option<u32> {
        self.pool_size.into_iter().chain(self.connections_max).min()
    }
}

impl UserRuleSet {
    /// Returns what one user may have.
    #[must_use]
    pub fn of(&self, user: &str) -> UserRules {
        self.users.get(user).copied().unwrap_or_default()
    }

    /// Returns how somebody proves who it is that the tenant does not list.
    #[must_use]
    pub(super) fn auth_of_stranger(&self, user: &str, query: Option<&AuthQuery>) -> ClientAuth {
        // Whoever looks users up is not to be had by looking it up (CVE-2015-6817).
        let looks_up = query.is_some_and(|query| *query.user == *user);
        match (query, proof(self.auth)) {
            _ if self.of(user).is_locked => ClientAuth::Unknown,
            (Some(_), Some(proof)) if looks_up => proof,
            (Some(_), _) if !looks_up => ClientAuth::Query,
            (Some(_) | None, _) => ClientAuth::Unknown,
        }
    }
}

/// Returns how users prove who they are, where they need no secret for it.
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
    /// A tenant's limits, with these in their places.
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

    /// Returns whether there is a limit on how long a client of a session may do something, or
    /// nothing.
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
