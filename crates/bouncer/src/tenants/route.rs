//! Routing of clients: the tenant that a client requests, and its user there.
//!
//! The first of these sources that names a tenant decides:
//!
//! 1. the listener, if it belongs to a tenant;
//! 2. the TLS server name, if it belongs to one;
//! 3. `-c tenant_id=X` in the startup parameter `options`;
//! 4. the startup parameter `tenant_id`;
//! 5. the database, if a tenant has its name;
//! 6. a user `X__user`, which is then the user `user`.
//!
//! A decision by 1 or 2 must not be contradicted by 3 or 4. If the tenant was found otherwise, and
//! the user's name begins with the tenant's name and `__` and is not known with it, it is looked up
//! without it.

use std::fmt;
use std::sync::Arc;

use api::{ClientTransportMode, TenantEngine};

use super::{
    PoolId, ServerHealth, ServerSecret, TenantRouting, TenantSnapshot, TenantUser, WorkAdmission,
};

/// Separator between a tenant and a user.
const SEPARATOR: &str = "__";

/// Request of a client before authentication.
#[derive(Clone, Copy, Debug)]
pub struct RouteRequest<'a> {
    /// The tenant that its listener belongs to.
    pub bound: Option<&'a str>,
    /// TLS server name.
    pub server_name: Option<&'a str>,
    /// `tenant_id` among its `options`.
    pub options_tenant_id: Option<&'a str>,
    /// Startup parameter `tenant_id`.
    pub tenant_id: Option<&'a str>,
    /// Database; if the client sends none, the user's name.
    pub database: Option<&'a str>,
    /// User.
    pub user: &'a str,
    /// Transport of the connection.
    pub transport: ClientTransportMode,
    /// Protocol of the client.
    pub engine: TenantEngine,
}

/// Destination of a client.
#[derive(Clone, Debug)]
pub struct TenantRoute {
    /// Tenant.
    pub tenant: Arc<TenantSnapshot>,
    /// User of the client there, once it is authenticated.
    pub user: Arc<TenantUser>,
}

impl TenantRoute {
    /// Returns its pool. Must not be called before the client is authenticated.
    ///
    /// # Errors
    /// If its tenant has too many pools already.
    pub fn pool(&self) -> Result<PoolId, RouteError> {
        let TenantRoute { tenant, user } = self;
        // No role's name can have such a suffix.
        let pool = match tenant.is_twin {
            true => tenant.state.pool(&format!("{}\0read-only", user.server_user)),
            false => tenant.state.pool(&user.server_user),
        };
        pool.ok_or_else(|| RouteError::TooManyPools(Arc::clone(&tenant.name)))
    }
}

/// Why a client has no route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// There is no such tenant.
    #[error("no tenant named \"{0}\"")]
    NoSuchTenant(PrintableName),
    /// The request names no tenant.
    #[error("no tenant for database \"{0}\"")]
    Nothing(PrintableName),
    /// The request names two tenants.
    #[error("this connection is for the tenant \"{0}\" only")]
    OtherTenant(Arc<str>),
    /// The tenant is paused and refuses clients.
    #[error("tenant \"{0}\" is paused")]
    Paused(Arc<str>),
    /// The tenant drains and refuses new clients.
    #[error("tenant \"{0}\" is draining")]
    Draining(Arc<str>),
    /// Its server does not answer.
    #[error("the server of tenant \"{0}\" does not answer")]
    Unhealthy(Arc<str>),
    /// The tenant does not accept clients on this transport.
    #[error("tenant \"{0}\" does not accept this transport: see its `transports`")]
    Transport(Arc<str>),
    /// Its server has another protocol.
    #[error("tenant \"{tenant}\" is a {} database, which has another port", called(*.engine))]
    Engine {
        /// The tenant.
        tenant: Arc<str>,
        /// Protocol of its server.
        engine: TenantEngine,
    },
    /// Too many roles.
    #[error("tenant \"{0}\" has too many users")]
    TooManyPools(Arc<str>),
}

impl RouteError {
    /// Returns the SQLSTATE that clients match on.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            // connection_exception: DBBouncer's code for all of them.
            RouteError::NoSuchTenant(_)
            | RouteError::Nothing(_)
            | RouteError::Paused(_)
            | RouteError::Draining(_)
            | RouteError::Unhealthy(_) => "08000",
            // invalid_authorization_specification
            RouteError::OtherTenant(_) | RouteError::Transport(_) | RouteError::Engine { .. } => {
                "28000"
            }
            // too_many_connections
            RouteError::TooManyPools(_) => "53300",
        }
    }

    /// Returns whether no tenant has the requested name.
    pub fn names_nobody(&self) -> bool {
        matches!(self, RouteError::NoSuchTenant(_) | RouteError::Nothing(_))
    }

    /// Returns a hint for users.
    pub fn hint(&self, engine: TenantEngine) -> Option<&'static str> {
        match self {
            RouteError::NoSuchTenant(_) | RouteError::Nothing(_) => Some(match engine {
                TenantEngine::Postgres => {
                    "A tenant is named by the database, by options='-c tenant_id=NAME', or by the \
                     user NAME__user."
                }
                TenantEngine::Mysql => {
                    "A tenant is named by the database, by the connection attribute `tenant_id`, \
                     or by the user NAME__user."
                }
            }),
            RouteError::Transport(_) => Some("Ask for TLS, or come by another listener."),
            RouteError::OtherTenant(_)
            | RouteError::Paused(_)
            | RouteError::Draining(_)
            | RouteError::Unhealthy(_)
            | RouteError::Engine { .. }
            | RouteError::TooManyPools(_) => None,
        }
    }
}

/// Returns the common name of the engine.
fn called(engine: TenantEngine) -> &'static str {
    match engine {
        TenantEngine::Postgres => "PostgreSQL",
        TenantEngine::Mysql => "MySQL",
    }
}

/// The beginning of a name that a client sent, in printable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintableName(Box<str>);

impl PrintableName {
    fn new(text: &str) -> PrintableName {
        let shown = text.chars().take(super::plan::NAME_BYTES_MAX);
        PrintableName(shown.map(|it| if it.is_control() { '?' } else { it }).collect())
    }
}

impl fmt::Display for PrintableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TenantRouting {
    /// Returns the tenant that a client requests, and its user there.
    ///
    /// # Errors
    /// If there is no such tenant, or it does not accept the client.
    pub fn route(&self, request: &RouteRequest<'_>) -> Result<TenantRoute, RouteError> {
        let (tenant, user) = self.choose(request)?;
        tenant.takes_clients(request.engine)?;
        let transports = tenant.transports.as_ref();
        if transports.is_some_and(|allowed| !allowed.contains(&request.transport)) {
            return Err(RouteError::Transport(Arc::clone(&tenant.name)));
        }
        Ok(TenantRoute { user: tenant.user(user), tenant: Arc::clone(tenant) })
    }

    /// Returns the tenant of a guest, whose transport does not matter.
    ///
    /// # Errors
    /// If there is no such tenant, or it does not accept the client.
    pub fn for_guest(
        &self,
        tenant: &str,
        engine: TenantEngine,
    ) -> Result<&Arc<TenantSnapshot>, RouteError> {
        let tenant = self.must(tenant)?;
        tenant.takes_clients(engine)?;
        Ok(tenant)
    }

    /// Returns the tenant, and the rest of the user's name.
    fn choose<'a>(
        &self,
        request: &RouteRequest<'a>,
    ) -> Result<(&Arc<TenantSnapshot>, &'a str), RouteError> {
        let said = request.options_tenant_id.or(request.tenant_id);
        let fixed = match (request.bound, request.server_name) {
            (Some(name), _) => Some(self.must(name)?),
            (None, Some(name)) => self.by_server_name(name),
            (None, None) => None,
        };
        if let Some(tenant) = fixed {
            if said.is_some_and(|said| *said != *tenant.name) {
                return Err(RouteError::OtherTenant(Arc::clone(&tenant.name)));
            }
            return Ok((tenant, request.user));
        }
        if let Some(name) = said {
            return Ok((self.must(name)?, request.user));
        }
        let database = request.database.unwrap_or(request.user);
        if let Some(tenant) = self.named(database) {
            return Ok((tenant, request.user));
        }
        // The longest matching name wins: tenants may have the separator in theirs.
        for (at, _) in request.user.rmatch_indices(SEPARATOR) {
            let user = &request.user[at + SEPARATOR.len()..];
            if let Some(tenant) = self.named(&request.user[..at]).filter(|_| !user.is_empty()) {
                return Ok((tenant, user));
            }
        }
        match request.user.split_once(SEPARATOR) {
            Some((name, _)) => Err(RouteError::NoSuchTenant(PrintableName::new(name))),
            None => Err(RouteError::Nothing(PrintableName::new(database))),
        }
    }

    fn must(&self, name: &str) -> Result<&Arc<TenantSnapshot>, RouteError> {
        self.named(name).ok_or_else(|| RouteError::NoSuchTenant(PrintableName::new(name)))
    }

    /// Returns the tenant of a TLS server name. Unknown names are ignored: clients also send the
    /// machine's name.
    fn by_server_name(&self, name: &str) -> Option<&Arc<TenantSnapshot>> {
        self.by_server_name.get(name.to_ascii_lowercase().as_str())
    }
}

impl TenantSnapshot {
    /// Refuses clients with another protocol, and all clients while the tenant accepts none.
    fn takes_clients(&self, engine: TenantEngine) -> Result<(), RouteError> {
        let name = || Arc::clone(&self.name);
        if self.engine != engine {
            return Err(RouteError::Engine { tenant: name(), engine: self.engine });
        }
        match self.state.admission() {
            WorkAdmission::Open | WorkAdmission::Paused => {}
            WorkAdmission::Refusing => return Err(RouteError::Paused(name())),
            WorkAdmission::Draining => return Err(RouteError::Draining(name())),
        }
        match self.state.health() {
            ServerHealth::Unhealthy => Err(RouteError::Unhealthy(name())),
            ServerHealth::Healthy | ServerHealth::Unknown | ServerHealth::Refusing => Ok(()),
        }
    }

    /// Returns the user with this name.
    pub fn user(&self, name: &str) -> Arc<TenantUser> {
        if let Some(user) = self.users.get(name) {
            return Arc::clone(user);
        }
        let inside = name.strip_prefix(&*self.name).and_then(|it| it.strip_prefix(SEPARATOR));
        if let Some(user) = inside.and_then(|inside| self.users.get(inside)) {
            return Arc::clone(user);
        }
        let name: Arc<str> = inside.filter(|it| !it.is_empty()).unwrap_or(name).into();
        let auth = self.rules.auth_of_stranger(&name, self.auth_query.as_ref());
        let own = self.rules.of(&name);
        let (server_user, server_secret) = match &self.forced {
            Some((user, Some(secret))) => (Arc::clone(user), ServerSecret::Known(secret.clone())),
            Some((user, None)) => (Arc::clone(user), ServerSecret::None),
            None => (Arc::clone(&name), ServerSecret::OfClient),
        };
        let is_itself = server_user == name;
        Arc::new(TenantUser {
            name,
            auth,
            server_user,
            server_secret,
            mode: own.mode,
            server_connections_max: own.server_connections_max().filter(|_| is_itself),
            clients_max: own.clients_max,
            times: own.times,
        })
    }
}

#[cfg(test)]
mod tests;
