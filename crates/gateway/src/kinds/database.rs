//! Grants of databases: PostgreSQL and MySQL, served by the bouncer.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/libpq-envars.html>
//! - <https://dev.mysql.com/doc/refman/8.4/en/environment-variables.html>

use api::{DatabaseGrant, DatabaseGrantLimits, TenantEngine};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    GrantKind, GrantListener, GrantVariables, LOOPBACK, OpenContext, ResolvedGrant, backend_gone,
    first_above, is_above, no_backend,
};
use crate::config::GatewayConfig;
use crate::doors::{DatabaseFacts, DatabaseGuest, FieldError};
use crate::offers::{GrantNotOffered, TenantOffers};
use crate::schema;
use crate::shared::GatewayShared;

/// Greatest time limit of a grant, in seconds: a year.
const SECONDS_MAX: f64 = 366.0 * 24.0 * 3600.0;

/// Characters that need no encoding in a URL component.
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A grant of a tenant of the bouncer.
pub(super) struct DatabaseKind<'a> {
    engine: TenantEngine,
    grant: &'a DatabaseGrant,
}

impl<'a> DatabaseKind<'a> {
    /// Creates the kind of a grant whose clients speak this protocol.
    pub(super) const fn new(engine: TenantEngine, grant: &'a DatabaseGrant) -> DatabaseKind<'a> {
        DatabaseKind { engine, grant }
    }
}

impl GrantKind for DatabaseKind<'_> {
    fn check_offered(&self, offers: &TenantOffers<'_>) -> Result<(), GrantNotOffered> {
        let kind = match self.engine {
            TenantEngine::Postgres => "postgres",
            TenantEngine::Mysql => "mysql",
        };
        let DatabaseGrant { tenant, access, role, .. } = self.grant;
        offers.check_named(kind, tenant, *access, role.as_deref())
    }

    fn limit_above(&self, config: &GatewayConfig) -> Option<&'static str> {
        let (own, server) = (&self.grant.limits, &config.database);
        let idle = is_above(own.idle_in_transaction_s, server.idle_in_transaction_s);
        first_above([
            ("connections", is_above(own.connections, server.connections)),
            ("statement_s", is_above(own.statement_s, server.statement_s)),
            ("transaction_s", is_above(own.transaction_s, server.transaction_s)),
            ("idle_in_transaction_s", idle),
            ("rows", is_above(own.rows, server.rows)),
            ("bytes", is_above(own.bytes, server.bytes)),
        ])
    }

    fn resolve(&self, shared: &GatewayShared) -> Result<Box<dyn ResolvedGrant>, FieldError> {
        let (engine, grant) = (self.engine, self.grant);
        check_times(&grant.limits)?;
        grant.schema.as_deref().map_or(Ok(()), |name| schema::check(engine, name))?;
        let databases = shared.databases.as_ref().ok_or_else(|| no_backend("bouncer"))?;
        let facts = databases.check(engine, grant)?;
        let limits = shared.config.now().database.complete(&grant.limits);
        Ok(Box::new(ResolvedDatabase { engine, grant: grant.clone(), limits, facts }))
    }
}

/// Checks that time limits are valid numbers of seconds.
fn check_times(limits: &DatabaseGrantLimits) -> Result<(), FieldError> {
    let times = [
        ("statement_s", limits.statement_s),
        ("transaction_s", limits.transaction_s),
        ("idle_in_transaction_s", limits.idle_in_transaction_s),
    ];
    let is_bad = |seconds: f64| !(0.0..=SECONDS_MAX).contains(&seconds);
    match times.into_iter().find(|(_, seconds)| seconds.is_some_and(is_bad)) {
        None => Ok(()),
        Some((name, _)) => {
            let message = "must be a number of seconds, at most those of a year";
            Err(FieldError::new(format!("limits.{name}"), message))
        }
    }
}

/// A database that can be opened.
pub(super) struct ResolvedDatabase {
    pub(super) engine: TenantEngine,
    pub(super) grant: DatabaseGrant,
    /// Limits, all of them set.
    pub(super) limits: DatabaseGrantLimits,
    pub(super) facts: DatabaseFacts,
}

impl ResolvedGrant for ResolvedDatabase {
    fn variables(&self, port: u16) -> GrantVariables {
        let DatabaseFacts { database, user } = self.facts.clone();
        let host = LOOPBACK.to_owned();
        match self.engine {
            TenantEngine::Postgres => vec![
                ("PGHOST", host),
                ("PGPORT", port.to_string()),
                ("PGDATABASE", database),
                ("PGUSER", user),
                // The connection stays on this machine, and the other end has no certificate.
                ("PGSSLMODE", "disable".to_owned()),
                ("PGGSSENCMODE", "disable".to_owned()),
                ("PGAPPNAME", "cove".to_owned()),
            ],
            TenantEngine::Mysql => vec![
                ("MYSQL_HOST", host),
                ("MYSQL_TCP_PORT", port.to_string()),
                ("MYSQL_USER", user),
                ("MYSQL_DATABASE", database),
            ],
        }
    }

    fn database_url(&self, port: u16) -> Option<String> {
        let (scheme, end) = match self.engine {
            TenantEngine::Postgres => ("postgresql", "?sslmode=disable"),
            TenantEngine::Mysql => ("mysql", ""),
        };
        let part = |text: &str| utf8_percent_encode(text, PART).to_string();
        let (user, database) = (part(&self.facts.user), part(&self.facts.database));
        Some(format!("{scheme}://{user}@{LOOPBACK}:{port}/{database}{end}"))
    }

    fn open(self: Box<Self>, context: OpenContext<'_>) -> Result<GrantListener, String> {
        let OpenContext { shared, holder, audit, .. } = context;
        let databases = shared.databases.as_ref().ok_or_else(backend_gone)?;
        let ResolvedDatabase { engine, grant, limits, .. } = *self;
        let fence = shared.fence.clone();
        let guest = DatabaseGuest { holder, engine, grant, limits, audit, fence };
        databases.open(guest).map(GrantListener::Database)
    }
}
