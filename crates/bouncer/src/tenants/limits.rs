//! Effective limits: a tenant's own, then those of the defaults, then the built-in ones.

use std::time::Duration;

use api::TenantLimitsSpec;

use super::DefinitionError;
use crate::config::LIMITS_DEFAULT;

/// Maximum time limit: anything longer is meant to be no limit.
const LIMIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Maximum value of a limit on connections, clients or statements.
const COUNT_MAX: u32 = 1_000_000;

/// Limits of a tenant. `None` means no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Maximum server connections, of all users together; at least 1.
    pub server_connections_max: u32,
    /// Server connections kept open for each user that has clients.
    pub server_connections_min: u32,
    /// Server connections beyond `server_connections_max` for clients that waited
    /// `reserve_after`.
    pub server_connections_reserve: u32,
    /// See `server_connections_reserve`.
    pub reserve_after: Duration,
    /// Maximum server connections of one user.
    pub user_server_connections_max: Option<u32>,
    /// Maximum connected clients.
    pub clients_max: Option<u32>,
    /// Maximum connected clients of one user.
    pub user_clients_max: Option<u32>,
    /// Maximum clients that wait for a server connection.
    pub waiting_max: u32,
    /// Maximum statements kept prepared on one server connection; 0 for none.
    pub prepared_statements_max: u32,
    /// Time to connect to the server and log in.
    pub connect: Duration,
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
    /// Time that a client has to read its output.
    pub client_write: Option<Duration>,
    /// Time after which an idle server connection is closed.
    pub server_idle: Option<Duration>,
    /// Age after which a server connection is closed when it is next at rest.
    pub server_lifetime: Option<Duration>,
    /// Maximum time between attempts to reach an unreachable server.
    pub server_retry: Duration,
}

impl Default for TenantLimits {
    fn default() -> TenantLimits {
        let none = TenantLimitsSpec::default();
        let limits = TenantLimits::resolve(&none, &none, "limits");
        limits.expect("`LIMITS_DEFAULT` is what the tests resolve")
    }
}

impl TenantLimits {
    /// Combines the three levels. `at` names the table of `own` in errors.
    ///
    /// # Errors
    /// If a limit has an invalid value.
    pub fn resolve(
        own: &TenantLimitsSpec,
        defaults: &TenantLimitsSpec,
        at: &str,
    ) -> Result<TenantLimits, DefinitionError> {
        let layers = LimitLayers { own, defaults, at };
        macro_rules! count {
            ($field:ident) => {
                layers.count(stringify!($field), |it| it.$field)?
            };
        }
        macro_rules! time {
            ($field:ident) => {
                layers.time(stringify!($field), |it| it.$field)?
            };
        }
        let required = |name: &str, time: Option<Duration>| {
            time.ok_or_else(|| DefinitionError::new(format!("{at}.{name}"), "must be more than 0"))
        };
        let limits = TenantLimits {
            server_connections_max: count!(server_connections_max),
            server_connections_min: count!(server_connections_min),
            server_connections_reserve: count!(server_connections_reserve),
            reserve_after: time!(reserve_after_s).unwrap_or_default(),
            user_server_connections_max: some(count!(user_server_connections_max)),
            clients_max: some(count!(clients_max)),
            user_clients_max: some(count!(user_clients_max)),
            waiting_max: count!(waiting_max),
            prepared_statements_max: count!(prepared_statements_max),
            connect: required("connect_s", time!(connect_s))?,
            wait: time!(wait_s),
            query: time!(query_s),
            transaction: time!(transaction_s),
            idle_in_transaction: time!(idle_in_transaction_s),
            client_idle: time!(client_idle_s),
            client_write: time!(client_write_s),
            server_idle: time!(server_idle_s),
            server_lifetime: time!(server_lifetime_s),
            server_retry: required("server_retry_s", time!(server_retry_s))?,
        };
        if limits.server_connections_max == 0 {
            let field = format!("{at}.server_connections_max");
            return Err(DefinitionError::new(field, "must be at least 1"));
        }
        if limits.server_connections_min > limits.server_connections_max {
            let field = format!("{at}.server_connections_min");
            return Err(DefinitionError::new(field, "must not be above `server_connections_max`"));
        }
        Ok(limits)
    }
}

struct LimitLayers<'a> {
    own: &'a TenantLimitsSpec,
    defaults: &'a TenantLimitsSpec,
    at: &'a str,
}

impl LimitLayers<'_> {
    fn pick<T: Default>(&self, of: impl Fn(&TenantLimitsSpec) -> Option<T>) -> T {
        let found = of(self.own).or_else(|| of(self.defaults));
        found.or_else(|| of(&LIMITS_DEFAULT)).unwrap_or_default()
    }

    fn count(
        &self,
        name: &str,
        of: impl Fn(&TenantLimitsSpec) -> Option<u32>,
    ) -> Result<u32, DefinitionError> {
        let value = self.pick(of);
        match value <= COUNT_MAX {
            true => Ok(value),
            false => Err(DefinitionError::new(
                format!("{}.{name}", self.at),
                format!("must be 0 to {COUNT_MAX}"),
            )),
        }
    }

    fn time(
        &self,
        name: &str,
        of: impl Fn(&TenantLimitsSpec) -> Option<f64>,
    ) -> Result<Option<Duration>, DefinitionError> {
        let seconds = self.pick(of);
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if time <= LIMIT_MAX => Ok(Some(time).filter(|time| !time.is_zero())),
            Ok(_) | Err(_) => {
                let message = format!("must be 0 to {} seconds", LIMIT_MAX.as_secs());
                Err(DefinitionError::new(format!("{}.{name}", self.at), message))
            }
        }
    }
}

/// Converts 0 to no limit.
fn some(count: u32) -> Option<u32> {
    Some(count).filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_comes_from_the_next_layer() {
        let own = TenantLimitsSpec { query_s: Some(1.5), wait_s: Some(0.0), ..Default::default() };
        let defaults = TenantLimitsSpec {
            query_s: Some(9.0),
            server_connections_max: Some(7),
            clients_max: Some(3),
            ..Default::default()
        };
        let limits = TenantLimits::resolve(&own, &defaults, "limits").unwrap();
        assert_eq!(limits.query, Some(Duration::from_millis(1500)));
        assert_eq!((limits.wait, limits.server_connections_max), (None, 7));
        assert_eq!((limits.clients_max, limits.user_clients_max), (Some(3), None));
        assert_eq!(limits.connect, TenantLimits::default().connect);
    }

    #[test]
    fn values_that_no_limit_can_have_are_refused_with_their_name() {
        let none = TenantLimitsSpec::default();
        let check = |own: TenantLimitsSpec, field: &str| {
            let error = TenantLimits::resolve(&own, &none, "limits").unwrap_err();
            assert_eq!(error.field, format!("limits.{field}"));
        };
        check(TenantLimitsSpec { query_s: Some(-1.0), ..none }, "query_s");
        check(TenantLimitsSpec { query_s: Some(f64::NAN), ..none }, "query_s");
        check(TenantLimitsSpec { wait_s: Some(1e300), ..none }, "wait_s");
        check(TenantLimitsSpec { connect_s: Some(0.0), ..none }, "connect_s");
        check(TenantLimitsSpec { server_retry_s: Some(0.0), ..none }, "server_retry_s");
        check(
            TenantLimitsSpec { server_connections_max: Some(0), ..none },
            "server_connections_max",
        );
        check(TenantLimitsSpec { waiting_max: Some(u32::MAX), ..none }, "waiting_max");
        check(
            TenantLimitsSpec { server_connections_min: Some(21), ..none },
            "server_connections_min",
        );
    }
}
