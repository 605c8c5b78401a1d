//! Backend of database grants: their clients are guests of the bouncer.

use std::sync::Arc;
use std::time::Duration;

use api::{
    AuditEvent, AuditOutcome, DatabaseGrant, DatabaseGrantLimits, GrantAccess, TenantEngine,
};
use bouncer::Bouncer;
use bouncer::guest::{
    GuestSpec, SandboxAction, SandboxClientError, SandboxListener, StatementDetail,
};
use bouncer::tenants::UserTimes;
use gateway::config::AuditStatements;
use gateway::doors::{
    AuditSink, DatabaseBackends, DatabaseDoor, DatabaseFacts, DatabaseGuest, FieldError,
    GatewayEvent, KnownDatabase, LoginPlace,
};
use node::task::Boxed;
use pooler_core::epoch::SessionEpoch;

/// Tenants of the bouncer, as a backend.
#[derive(Debug)]
pub(super) struct DatabaseBackend(Bouncer);

impl DatabaseBackend {
    pub(super) fn new(bouncer: Bouncer) -> DatabaseBackend {
        DatabaseBackend(bouncer)
    }
}

impl DatabaseBackends for DatabaseBackend {
    fn known(&self, databases_max: usize, roles_max: usize) -> Vec<KnownDatabase> {
        let routing = self.0.routing();
        let mut tenants: Vec<_> = routing.tenants().collect();
        tenants.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let known = tenants.into_iter().take(databases_max).map(|tenant| {
            let mut roles: Vec<String> = tenant.users.keys().map(ToString::to_string).collect();
            roles.sort_unstable();
            roles.truncate(roles_max);
            KnownDatabase { engine: tenant.engine, tenant: tenant.name.to_string(), roles }
        });
        known.collect()
    }

    fn check(
        &self,
        engine: TenantEngine,
        grant: &DatabaseGrant,
    ) -> Result<DatabaseFacts, FieldError> {
        let facts = self.0.guest_facts(engine, &grant.tenant, grant.role.as_deref());
        let facts = facts.map_err(|error| {
            let field = match error {
                SandboxClientError::NoSuchRole(_)
                | SandboxClientError::NoRole
                | SandboxClientError::NoSecret(_) => "role",
                SandboxClientError::Route(_)
                | SandboxClientError::Revoked
                | SandboxClientError::Fenced(_) => "tenant",
            };
            FieldError::new(field, error.to_string())
        })?;
        // The schema of a grant for MySQL is the initial database of clients.
        let schema = grant.schema.as_deref().filter(|_| engine == TenantEngine::Mysql);
        let database = schema.unwrap_or(&facts.database).to_owned();
        Ok(DatabaseFacts { database, user: facts.role.as_ref().to_owned() })
    }

    fn open(&self, guest: DatabaseGuest) -> Result<Arc<dyn DatabaseDoor>, String> {
        let DatabaseGuest { holder, engine, grant, limits, audit, fence } = guest;
        let texts = match audit.statements() {
            AuditStatements::None => StatementDetail::None,
            AuditStatements::Normalised => StatementDetail::Masked,
            AuditStatements::Full => StatementDetail::Full,
        };
        let spec = GuestSpec {
            name: format!("{}:{}", holder.id, grant.port.unwrap_or_default()).into(),
            tenant: grant.tenant.into(),
            engine,
            role: grant.role.map(Arc::from),
            schema: grant.schema.map(Arc::from),
            read_only: grant.access == GrantAccess::ReadOnly,
            clients_max: limits.connections.filter(|count| *count > 0),
            times: times(&limits),
            rows_max: limits.rows.filter(|rows| *rows > 0),
            bytes_max: limits.bytes.filter(|bytes| *bytes > 0),
            texts,
            trace_comments: audit.is_traced(),
            witness: Arc::new(DatabaseAuditSink(audit)),
            fence,
            session: holder.epoch.map(|epoch| SessionEpoch { session: holder.id, epoch }),
        };
        let door = self.0.open_door(spec).map_err(|error| error.to_string())?;
        Ok(Arc::new(DatabaseGrantListener { door, bouncer: self.0.clone() }))
    }
}

/// Converts limits to the bouncer's times. Invalid values were rejected before.
fn times(limits: &DatabaseGrantLimits) -> UserTimes {
    let time = |seconds: Option<f64>| {
        seconds.and_then(|it| Duration::try_from_secs_f64(it).ok()).filter(|it| !it.is_zero())
    };
    UserTimes {
        query: time(limits.statement_s),
        transaction: time(limits.transaction_s),
        idle_in_transaction: time(limits.idle_in_transaction_s),
        ..UserTimes::default()
    }
}

#[derive(Debug)]
struct DatabaseGrantListener {
    door: SandboxListener,
    bouncer: Bouncer,
}

impl DatabaseDoor for DatabaseGrantListener {
    fn admit(&self, stream: std::net::TcpStream, place: LoginPlace) {
        self.door.admit(stream, Arc::new(place));
    }

    fn rest(&self) {
        self.door.rest();
    }

    fn end_former(&self) -> Boxed<'static, ()> {
        let (bouncer, former) = (self.bouncer.clone(), self.door.former(&self.bouncer));
        Box::pin(async move {
            if let Some(former) = former {
                former.end(&bouncer).await;
            }
        })
    }
}

/// Reports actions that the bouncer observed to the gateway.
#[derive(Debug)]
struct DatabaseAuditSink(Arc<dyn AuditSink>);

impl bouncer::guest::SandboxObserver for DatabaseAuditSink {
    fn saw(&self, deed: SandboxAction<'_>) {
        let event = match deed {
            SandboxAction::Connected { took } => {
                GatewayEvent { took, ..GatewayEvent::new(AuditEvent::Connect, AuditOutcome::Done) }
            }
            SandboxAction::Refused(reason) => GatewayEvent {
                error: Some(reason),
                ..GatewayEvent::new(AuditEvent::Connect, AuditOutcome::Refused)
            },
            SandboxAction::Statement { text, took, waited, trace, rows, bytes, error } => {
                let outcome = match error {
                    None => AuditOutcome::Done,
                    Some(_) => AuditOutcome::Failed,
                };
                GatewayEvent {
                    text,
                    error,
                    took,
                    waited,
                    trace,
                    rows: Some(rows),
                    bytes_in: Some(bytes),
                    ..GatewayEvent::new(AuditEvent::Statement, outcome)
                }
            }
            SandboxAction::Disconnected { took, sent, received } => GatewayEvent {
                took,
                bytes_out: Some(sent),
                bytes_in: Some(received),
                ..GatewayEvent::new(AuditEvent::Disconnect, AuditOutcome::Done)
            },
        };
        self.0.saw(&event);
    }
}
