//! The `[gateway]` table: limits of grants, offers, secrets, and the audit log.

use std::collections::BTreeMap;
use std::fmt;

use api::{DatabaseGrantLimits, HttpGrantLimits};
use serde::Deserialize;

/// Settings of the gateway. Every limit has its name here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// Limits of database grants that name none.
    pub database: DatabaseLimits,
    /// Limits of `http` grants that name none.
    pub http: HttpLimits,
    /// Budgets beyond single `model` grants.
    pub model: ModelBudgetConfig,
    /// Grants that holders of tokens without the scope `tenants` may give to their sandboxes.
    /// None by default.
    pub offers: Vec<GrantOffer>,
    /// Texts that rules of `http` grants put into headers, by name: references (`env:NAME`,
    /// `file:PATH`), or the texts themselves.
    #[serde(deserialize_with = "api::secret_setting")]
    pub secrets: NamedSecrets,
    /// Connections of all sandboxes together that are served at one time, those to databases not
    /// among them.
    pub connections_max: usize,
    /// Connections of one tenant's sandboxes.
    pub connections_max_per_tenant: usize,
    /// Retention of the audit log, in days; 0 disables it.
    pub audit_keep_days: u64,
    /// Form in which statements of databases are written down.
    pub audit_statements: AuditStatements,
    /// True if addresses of requests are written down with the values of their queries.
    pub audit_queries: bool,
    /// Maximum number of records. The oldest of those with the most are removed first.
    pub audit_records_max: u64,
    /// Records of one tenant.
    pub audit_records_max_per_tenant: u64,
    /// Records of one session or execution.
    pub audit_records_max_per_holder: u64,
    /// Records of one grant of one sandbox in a second, in the long run; 0 is for no limit. More
    /// are not written down but counted.
    pub audit_records_per_s_per_grant: f64,
    /// Records that wait to be written; more are not written down but counted.
    pub audit_waiting_max: usize,
    /// Waiting records of one tenant, so that one that does much takes no room of others.
    pub audit_waiting_max_per_tenant: usize,
    /// Waiting records of one grant of one sandbox, which is also how many of it may come at once.
    pub audit_waiting_max_per_grant: usize,
}

impl Default for GatewayConfig {
    fn default() -> GatewayConfig {
        GatewayConfig {
            database: DatabaseLimits::default(),
            http: HttpLimits::default(),
            model: ModelBudgetConfig::default(),
            offers: Vec::new(),
            secrets: NamedSecrets::default(),
            connections_max: 4096,
            connections_max_per_tenant: 1024,
            audit_keep_days: 30,
            audit_statements: AuditStatements::default(),
            audit_queries: false,
            audit_records_max: 10_000_000,
            audit_records_max_per_tenant: 1_000_000,
            audit_records_max_per_holder: 100_000,
            audit_records_per_s_per_grant: 50.0,
            audit_waiting_max: 50_000,
            audit_waiting_max_per_tenant: 10_000,
            audit_waiting_max_per_grant: 5000,
        }
    }
}

impl GatewayConfig {
    /// Checks the ranges of numbers.
    ///
    /// # Errors
    /// Names the setting.
    pub fn check(&self) -> Result<(), String> {
        let rate = self.audit_records_per_s_per_grant;
        if !(0.0..=RATE_MAX).contains(&rate) {
            return Err("gateway.audit_records_per_s_per_grant: must be a number".to_owned());
        }
        self.model.check()
    }
}

/// Greatest number of records per second.
const RATE_MAX: f64 = 1e9;

/// Limits of database grants that name none; 0 is for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseLimits {
    /// Connections at one time.
    pub connections: u32,
    /// Seconds that a statement may take.
    pub statement_s: f64,
    /// Seconds that a transaction may be open.
    pub transaction_s: f64,
    /// Seconds that nothing may happen in an open transaction.
    pub idle_in_transaction_s: f64,
    /// Rows that one statement may return.
    pub rows: u64,
    /// Bytes of rows that one statement may return.
    pub bytes: u64,
}

impl Default for DatabaseLimits {
    fn default() -> DatabaseLimits {
        DatabaseLimits {
            connections: 20,
            statement_s: 30.0,
            transaction_s: 300.0,
            idle_in_transaction_s: 60.0,
            rows: 1_000_000,
            bytes: 256 << 20,
        }
    }
}

impl DatabaseLimits {
    /// Completes the limits of a grant.
    #[must_use]
    pub fn complete(&self, grant: &DatabaseGrantLimits) -> DatabaseGrantLimits {
        DatabaseGrantLimits {
            connections: grant.connections.or(Some(self.connections)),
            statement_s: grant.statement_s.or(Some(self.statement_s)),
            transaction_s: grant.transaction_s.or(Some(self.transaction_s)),
            idle_in_transaction_s: grant.idle_in_transaction_s.or(Some(self.idle_in_transaction_s)),
            rows: grant.rows.or(Some(self.rows)),
            bytes: grant.bytes.or(Some(self.bytes)),
        }
    }
}

/// Limits of `http` grants that name none; 0 is for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpLimits {
    /// Connections at one time.
    pub connections: u32,
    /// Requests and tunnels in all.
    pub requests: u64,
    /// Bytes of bodies and tunnels in all, in both directions.
    pub bytes: u64,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits { connections: 64, requests: 100_000, bytes: 1 << 30 }
    }
}

impl HttpLimits {
    /// Completes the limits of a grant.
    #[must_use]
    pub fn complete(&self, grant: &HttpGrantLimits) -> HttpLimits {
        HttpLimits {
            connections: grant.connections.unwrap_or(self.connections),
            requests: grant.requests.unwrap_or(self.requests),
            bytes: grant.bytes.unwrap_or(self.bytes),
        }
    }
}

/// Prices and budgets of the model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelBudgetConfig {
    /// Tokens that all `model` grants of one tenant may use together in all; 0 is for no limit.
    pub tokens_per_tenant: u64,
    /// Prices of models, by the names that are asked for.
    pub prices: BTreeMap<String, GatewayModelPrice>,
}

/// Price of a model, in dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayModelPrice {
    /// Price of input.
    pub input: f64,
    /// Price of output.
    pub output: f64,
    /// Price of writing to its cache; as `input` when absent.
    #[serde(default)]
    pub cache_write: Option<f64>,
    /// Price of reading from its cache; as `input` when absent.
    #[serde(default)]
    pub cache_read: Option<f64>,
}

impl ModelBudgetConfig {
    /// Checks that prices are valid.
    ///
    /// # Errors
    /// Names the setting.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (model, price) in &self.prices {
            let all = [
                ("input", Some(price.input)),
                ("output", Some(price.output)),
                ("cache_write", price.cache_write),
                ("cache_read", price.cache_read),
            ];
            let is_bad = |dollars: f64| !(0.0..=PRICE_MAX).contains(&dollars);
            if let Some((name, _)) = all.into_iter().find(|(_, it)| it.is_some_and(is_bad)) {
                return Err(format!(
                    "gateway.model.prices.\"{model}\".{name}: must be a number of dollars"
                ));
            }
        }
        Ok(())
    }
}

/// Most that a million tokens may cost, in dollars.
const PRICE_MAX: f64 = 1e6;

/// Grants that some tenants may give to their sandboxes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrantOffer {
    /// Tenants of tokens; `*` is for everybody.
    pub tenants: Vec<String>,
    /// Labels of the grants that they may give, by the labels of grants: `postgres:shop` to read,
    /// `mysql:judge:rw` to write as well, `catalog:lake`, `model`, `http:api.example.com`,
    /// `http:*.example.com`.
    pub grants: Vec<String>,
    /// Roles that a grant of one of these databases may name. One that names none gets the
    /// tenant's own.
    pub roles: Vec<String>,
    /// Secrets that rules may put into requests to these hosts.
    pub secrets: Vec<String>,
    /// Networks of internal addresses that these hosts may have.
    pub internal: Vec<String>,
    /// Ports of these hosts that rules may name; 80 and 443 when there are none.
    pub ports: Vec<u16>,
}

/// Texts by name that are never shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct NamedSecrets(pub BTreeMap<String, String>);

impl fmt::Debug for NamedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Detail of statements in the audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditStatements {
    /// With `?` in place of literals.
    #[default]
    Normalised,
    /// Statements as they were sent, including confidential values.
    Full,
    /// Not at all, but for how they ended.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_and_its_secrets_are_not_shown() {
        let text = r#"
            audit_statements = "none"
            [database]
            rows = 5
            [secrets]
            key = "planted"
            [[offers]]
            tenants = ["*"]
            grants = ["postgres:shop", "http:*.example.com"]
        "#;
        let config: GatewayConfig = toml::from_str(text).unwrap();
        assert_eq!(config.database.rows, 5);
        assert_eq!(config.database.connections, 20);
        assert_eq!(config.audit_statements, AuditStatements::None);
        assert_eq!(config.offers[0].grants.len(), 2);
        assert_eq!(config.secrets.0["key"], "planted");
        assert!(!format!("{config:?}").contains("planted"));
        assert!(toml::from_str::<GatewayConfig>("offer = []").is_err());
    }

    #[test]
    fn prices_are_numbers_of_dollars() {
        for (price, is_right) in [
            ("input = 3.0\noutput = 15", true),
            ("input = 3\noutput = 15\ncache_read = 0.3", true),
            ("input = nan\noutput = 15", false),
            ("input = 3\noutput = -1", false),
            ("input = 3\noutput = 1\ncache_write = inf", false),
        ] {
            let text = format!("tokens_per_tenant = 5\n[prices.\"a-1.5\"]\n{price}");
            let config: ModelBudgetConfig = toml::from_str(&text).unwrap();
            assert_eq!(config.check().is_ok(), is_right, "{price}");
        }
        assert!(toml::from_str::<ModelBudgetConfig>("[prices.a]\ninput = 3").is_err());
    }

    #[test]
    fn a_rate_is_a_number() {
        for (rate, is_right) in [("0", true), ("0.5", true), ("nan", false), ("-1", false)] {
            let text = format!("audit_records_per_s_per_grant = {rate}");
            let config: GatewayConfig = toml::from_str(&text).unwrap();
            assert_eq!(config.check().is_ok(), is_right, "{rate}");
        }
    }

    #[test]
    fn what_a_grant_leaves_out_is_as_the_table_says() {
        let given = DatabaseGrantLimits { rows: Some(0), ..DatabaseGrantLimits::default() };
        let complete = DatabaseLimits::default().complete(&given);
        assert_eq!((complete.rows, complete.connections), (Some(0), Some(20)));
        assert_eq!(complete.idle_in_transaction_s, Some(60.0));
        let given = HttpGrantLimits { bytes: Some(7), ..HttpGrantLimits::default() };
        let complete = HttpLimits::default().complete(&given);
        assert_eq!((complete.bytes, complete.requests), (7, 100_000));
    }
}
