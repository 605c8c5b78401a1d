//! Health checks of a tenant's server, on a connection of their own.
//!
//! A check logs in as clients are logged in and sends `SELECT 1`, to MySQL `COM_PING`. If only
//! clients have the credentials to log in, a server that requests them counts as healthy.

use node::telemetry::error_chain;
use pooler_core::link::FailureStage;
use pooler_core::link::ServerCredentials;
use pooler_core::mysql;
use pooler_core::pg;
use pooler_core::pg::dial::PgDialError;
use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::sleep;

use crate::auth::ProtocolKeyrings;
use crate::control::mysql::{MysqlControlConnection, MysqlControlTarget};
use crate::control::{ControlConnection, ControlError, ControlTarget};
use crate::guest::{END_FORMER, END_FORMER_PAUSE, FormerStatements};
use crate::secrets::ClientSecret;
use crate::service::{EndedStatements, ProbeFailure, ProbeOutcome, ServerProbe};
use crate::tenants::TenantSnapshot;
use crate::tls::ServerSide;

/// `too_many_connections`: sent by a server that is alive.
const TOO_MANY_CONNECTIONS: &str = "53300";

/// Application name that the server sees.
const APPLICATION: &str = "cove health check";

/// Application name of a connection that ends statements of a session's former owners.
const TAKEOVER: &str = "cove takeover";

/// Role to log in as if none is known: every PostgreSQL has it. A MySQL that does not know it
/// answers with an error, which shows that it is alive as well.
const ANYBODY: &str = "postgres";

/// Checks whether servers answer.
#[derive(Clone, Debug)]
pub struct ServerProber {
    keyrings: ProtocolKeyrings,
    tls: Arc<ServerSide>,
}

impl ServerProber {
    /// Creates a prober with the relay's secrets and TLS configuration.
    pub fn new(keyrings: ProtocolKeyrings, tls: Arc<ServerSide>) -> ServerProber {
        ServerProber { keyrings, tls }
    }

    async fn ask(&self, tenant: &TenantSnapshot) -> Result<(), ControlError> {
        match self.role(tenant) {
            (user, ServerCredentials::Pg(credentials)) => {
                self.ask_pg(tenant, &user, credentials).await
            }
            (user, ServerCredentials::My(credentials)) => {
                self.ask_my(tenant, &user, credentials).await
            }
        }
    }

    async fn ask_pg(
        &self,
        tenant: &TenantSnapshot,
        user: &str,
        credentials: Arc<pg::dial::PgCredentials>,
    ) -> Result<(), ControlError> {
        let errand = ControlTarget {
            server: &tenant.server,
            database: &tenant.database,
            user,
            credentials,
            application: APPLICATION,
        };
        match ControlConnection::open(&self.tls, errand).await {
            Ok(mut control) => {
                control.ask("SELECT 1", &[]).await?;
                control.close().await;
                Ok(())
            }
            Err(ControlError::LogIn(PgDialError::Credentials(_))) => Ok(()),
            Err(ControlError::LogIn(PgDialError::Refused { code, .. }))
                if code == TOO_MANY_CONNECTIONS =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn ask_my(
        &self,
        tenant: &TenantSnapshot,
        user: &str,
        credentials: Arc<mysql::dial::MysqlCredentials>,
    ) -> Result<(), ControlError> {
        let has_none = *credentials == mysql::dial::MysqlCredentials::None;
        let errand = MysqlControlTarget {
            server: &tenant.server,
            database: Some(&tenant.database),
            user,
            credentials,
            application: APPLICATION,
        };
        match MysqlControlConnection::open(&self.tls, errand).await {
            Ok(mut control) => {
                control.ping().await?;
                control.close().await;
                Ok(())
            }
            Err(ControlError::LogInMysql(error))
                if error.code() == TOO_MANY_CONNECTIONS || has_none && error.is_about_secrets() =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn end_statements(&self, former: &FormerStatements) -> Result<u64, ControlError> {
        let FormerStatements { tenant, user, .. } = former;
        match self.keyrings.own_credentials(tenant, user) {
            Some(ServerCredentials::Pg(credentials)) => self.end_pg(former, credentials).await,
            Some(ServerCredentials::My(credentials)) => self.end_my(former, credentials).await,
            None => Ok(0),
        }
    }

    async fn end_pg(
        &self,
        former: &FormerStatements,
        credentials: Arc<pg::dial::PgCredentials>,
    ) -> Result<u64, ControlError> {
        let FormerStatements { tenant, user, session } = former;
        let errand = ControlTarget {
            server: &tenant.server,
            database: &tenant.database,
            user: &user.server_user,
            credentials,
            application: TAKEOVER,
        };
        let mut control = ControlConnection::open(&self.tls, errand).await?;
        let (prefix, epoch) = (session.application_prefix(), session.epoch.to_string());
        let mut ended = None;
        loop {
            let rows = control.ask(END_FORMER, &[&prefix, &epoch]).await?;
            let count = rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok());
            let count: u64 = count.ok_or(ControlError::Protocol("no count"))?;
            ended.get_or_insert(count);
            if count == 0 {
                control.close().await;
                return Ok(ended.unwrap_or_default());
            }
            sleep(END_FORMER_PAUSE).await;
        }
    }

    async fn end_my(
        &self,
        former: &FormerStatements,
        credentials: Arc<mysql::dial::MysqlCredentials>,
    ) -> Result<u64, ControlError> {
        let FormerStatements { tenant, user, session } = former;
        let errand = MysqlControlTarget {
            server: &tenant.server,
            database: None,
            user: &user.server_user,
            credentials,
            application: TAKEOVER,
        };
        let mut control = MysqlControlConnection::open(&self.tls, errand).await?;
        control.ask(mysql::mark::TRY_MARK).await?;
        let find = mysql::mark::find_former(session, &user.server_user);
        let mut ended = BTreeSet::new();
        loop {
            let rows = control.ask(&find).await?;
            if rows.is_empty() {
                control.close().await;
                return Ok(u64::try_from(ended.len()).unwrap_or(u64::MAX));
            }
            for row in rows {
                let connection = row.first().and_then(|id| id.as_deref()?.parse().ok());
                let connection: u64 = connection.ok_or(ControlError::Protocol("no number"))?;
                match control.ask(&mysql::mark::end_former(session, connection)).await {
                    Ok(_) => drop(ended.insert(connection)),
                    // The thread has ended, or works for the session no longer.
                    Err(error) if error.is_mysql(mysql::mark::NO_SUCH_THREAD) => {}
                    Err(error) => return Err(error),
                }
            }
            sleep(END_FORMER_PAUSE).await;
        }
    }

    /// Returns the role to log in as: the first user, by name, whose credentials are known; else
    /// the forced role or that of `auth_query`; else a role from which the server will request
    /// more.
    fn role(&self, tenant: &TenantSnapshot) -> (Arc<str>, ServerCredentials) {
        let mut users: Vec<_> = tenant.users.values().collect();
        users.sort_by(|a, b| a.name.cmp(&b.name));
        for user in &users {
            if let Some(credentials) = self.keyrings.own_credentials(tenant, user) {
                return (Arc::clone(&user.server_user), credentials);
            }
        }
        let of = |password: Option<&ClientSecret>| {
            ServerCredentials::of(tenant.engine, password.map(ClientSecret::expose))
        };
        if let Some((user, password)) = &tenant.forced {
            return (Arc::clone(user), of(password.as_ref()));
        }
        if let Some(query) = &tenant.auth_query {
            return (Arc::clone(&query.user), of(query.password.as_ref()));
        }
        let user = users.first().map_or_else(|| ANYBODY.into(), |it| Arc::clone(&it.server_user));
        (user, of(None))
    }
}

impl ServerProbe for ServerProber {
    fn probe(&self, tenant: Arc<TenantSnapshot>) -> ProbeOutcome {
        let prober = self.clone();
        Box::pin(async move { prober.ask(&tenant).await.map_err(|error| failure(&error)) })
    }

    fn end_former(&self, former: FormerStatements) -> EndedStatements {
        let prober = self.clone();
        Box::pin(async move {
            prober.end_statements(&former).await.map_err(|error| error_chain(&error))
        })
    }
}

fn failure(error: &ControlError) -> ProbeFailure {
    let stage = match error {
        ControlError::LogIn(error) => error.stage(),
        ControlError::LogInMysql(error) => error.stage(),
        ControlError::Refused { .. } => FailureStage::Refused,
        ControlError::Io(_)
        | ControlError::Tls(_)
        | ControlError::Closed
        | ControlError::Protocol(_) => FailureStage::Connect,
    };
    match stage {
        FailureStage::Connect => ProbeFailure::Silent(error_chain(error)),
        FailureStage::Login | FailureStage::Refused => ProbeFailure::Refused(error_chain(error)),
    }
}
