//! Database grants are guests of the bouncer.

use std::sync::Arc;
use std::time::Duration;

use api::{
    AuditEvent, AuditOutcome, DatabaseGrant, DatabaseGrantLimits, GrantAccess, TenantEngine,
};
use bouncer::Bouncer;
use bouncer::guest::{Deed, Door, GuestError, GuestSpec, Texts};
use bouncer::tenants::UserTimes;
use gateway::config::AuditStatements;
use gateway::doors::{
    DatabaseDoor, DatabaseFacts, DatabaseGuest, Databases, FieldError, Happening, LoginPlace,
    Witness,
};

/// The tenants of the bouncer.
#[derive(Debug)]
pub(super) struct Tenants(Bouncer);

impl Tenants {
    pub(super) fn new(bouncer: Bouncer) -> Tenants {
        Tenants(bouncer)
    }
}

impl Databases for Tenants {
    fn check(
        &self,
        engine: TenantEngine,
        grant: &DatabaseGrant,
    ) -> Result<DatabaseFacts, FieldError> {
        let facts = self.0.guest_facts(engine, &grant.tenant, grant.role.as_deref());
        let facts = facts.map_err(|error| {
            let field = match error {
                GuestError::NoSuchRole(_) | GuestError::NoRole | GuestError::NoSecret(_) => "role",
                GuestError::Route(_) | GuestError::Revoked => "tenant",
            };
            FieldError::new(field, error.to_string())
        })?;
        // The schema of a grant for MySQL is the database that clients begin in.
        let schema = grant.schema.as_deref().filter(|_| engine == TenantEngine::Mysql);
        let database = schema.unwrap_or(&facts.database).to_owned();
        Ok(DatabaseFacts { database, user: facts.role.as_ref().to_owned() })
    }

    fn open(&self, guest: DatabaseGuest) -> Result<Arc<dyn DatabaseDoor>, String> {
        let DatabaseGuest { holder, engine, grant, limits, audit } = guest;
        let texts = match audit.statements() {
            AuditStatements::None => Texts::None,
            AuditStatements::Normalised => Texts::Masked,
            AuditStatements::Full => Texts::Full,
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
            witness: Arc::new(Told(audit)),
        };
        let door = self.0.open_door(spec).map_err(|error| error.to_string())?;
        Ok(Arc::new(OpenDoor(door)))
    }
}

/// Times as the bouncer has them. What cannot be one was refused before.
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
struct OpenDoor(Door);

impl DatabaseDoor for OpenDoor {
    fn admit(&self, stream: std::net::TcpStream, place: LoginPlace) {
        self.0.admit(stream, Arc::new(place));
    }

    fn rest(&self) {
        self.0.rest();
    }
}

/// Tells the gateway what the bouncer saw.
#[derive(Debug)]
struct Told(Arc<dyn Witness>);

impl bouncer::guest::Witness for Told {
    fn saw(&self, deed: Deed<'_>) {
        let happening = match deed {
            Deed::Connected => Happening::new(AuditEvent::Connect, AuditOutcome::Done),
            Deed::Refused(reason) => Happening {
                error: Some(reason),
                ..Happening::new(AuditEvent::Connect, AuditOutcome::Refused)
            },
            Deed::Statement { text, took, rows, bytes, error } => {
                let outcome = match error {
                    None => AuditOutcome::Done,
                    Some(_) => AuditOutcome::Failed,
                };
                Happening {
                    text,
                    error,
                    took,
                    rows: Some(rows),
                    bytes_in: Some(bytes),
                    ..Happening::new(AuditEvent::Statement, outcome)
                }
            }
            Deed::Disconnected { took, sent, received } => Happening {
                took,
                bytes_out: Some(sent),
                bytes_in: Some(received),
                ..Happening::new(AuditEvent::Disconnect, AuditOutcome::Done)
            },
        };
        self.0.saw(&happening);
    }
}
