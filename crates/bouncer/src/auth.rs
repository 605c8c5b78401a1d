//! Authentication requirements of clients and credentials for servers: the secrets of the users of
//! both protocols.

use std::sync::Arc;

use api::TenantEngine;
use pooler_core::link::{ClientProofRequest, LoggedInClient, LoginMachine, ServerCredentials};
use pooler_core::mysql::login::MysqlPasswordMethod;
use pooler_core::pg::login::{PgLoginRefusal, PgPasswordMethod, ReplicationPolicy, RouteAuth};

use crate::tenants::{TenantRoute, TenantSnapshot, TenantUser};

pub mod mysql;
pub mod pg;

/// Secrets of users of both protocols. Shared by all threads.
#[derive(Clone, Debug)]
pub struct ProtocolKeyrings {
    /// Keyring of PostgreSQL's users.
    pub pg: Arc<pg::PgKeyring>,
    /// Keyring of MySQL's users.
    pub my: Arc<mysql::MysqlKeyring>,
}

/// Authentication that a client needs.
#[derive(Debug)]
pub enum AuthRequirement {
    /// A known proof request, or the reason why the login is refused.
    Known(Result<ClientProofRequest, PgLoginRefusal>),
    /// The secret is the result of the tenant's `auth_query`; [`ProtocolKeyrings::found`] then
    /// makes the proof request.
    Query,
}

impl ProtocolKeyrings {
    /// Creates empty keyrings. `process_secret` should outlive the process: the challenges for
    /// users who do not exist are derived from it. `method` is the password method for PostgreSQL
    /// clients.
    #[must_use]
    pub fn new(process_secret: [u8; 32], method: PgPasswordMethod) -> ProtocolKeyrings {
        let best = MysqlPasswordMethod::Best;
        ProtocolKeyrings {
            pg: Arc::new(pg::PgKeyring::new(process_secret, method)),
            my: Arc::new(mysql::MysqlKeyring::new(process_secret, best)),
        }
    }

    /// Returns the proof that a client must give for the user that it was routed as.
    #[must_use]
    pub fn demand(
        &self,
        route: &TenantRoute,
        login: &LoginMachine,
        replication: ReplicationPolicy,
    ) -> Option<AuthRequirement> {
        let TenantRoute { tenant, user } = route;
        Some(match login {
            LoginMachine::Pg(login) => match self.pg.demand(user, login.requested()?) {
                pg::PgAuthRequirement::Known(proof) => AuthRequirement::Known(
                    proof.map(|auth| ClientProofRequest::Pg(RouteAuth { replication, ..auth })),
                ),
                pg::PgAuthRequirement::Query => AuthRequirement::Query,
            },
            LoginMachine::My(login) => match self.my.demand(tenant, user, login.requested()?) {
                mysql::MysqlAuthRequirement::Known(proof) => {
                    AuthRequirement::Known(proof.map(ClientProofRequest::My))
                }
                mysql::MysqlAuthRequirement::Query => AuthRequirement::Query,
            },
        })
    }

    /// Returns the proof that a client must give when its secret was looked up; `secret` is `None`
    /// if there is no such user.
    #[must_use]
    pub fn found(
        &self,
        route: &TenantRoute,
        secret: Option<&str>,
        replication: ReplicationPolicy,
    ) -> ClientProofRequest {
        let TenantRoute { tenant, user } = route;
        match tenant.engine {
            TenantEngine::Postgres => {
                let auth = self.pg.found(user, secret);
                ClientProofRequest::Pg(RouteAuth { replication, ..auth })
            }
            TenantEngine::Mysql => ClientProofRequest::My(self.my.found(tenant, user, secret)),
        }
    }

    /// Returns the credentials that are used at the server for a client.
    #[must_use]
    pub fn credentials(&self, route: &TenantRoute, client: &LoggedInClient) -> ServerCredentials {
        let TenantRoute { tenant, user } = route;
        match client {
            LoggedInClient::Pg(client) => {
                ServerCredentials::Pg(self.pg.credentials(tenant, user, client))
            }
            LoggedInClient::My(client) => ServerCredentials::My(self.my.credentials(user, client)),
        }
    }

    /// Returns the credentials that are used at the server without a client; `None` if only clients
    /// have them.
    #[must_use]
    pub fn own_credentials(
        &self,
        tenant: &TenantSnapshot,
        user: &TenantUser,
    ) -> Option<ServerCredentials> {
        match tenant.engine {
            TenantEngine::Postgres => {
                self.pg.own_credentials(tenant, user).map(ServerCredentials::Pg)
            }
            TenantEngine::Mysql => self.my.own_credentials(user).map(ServerCredentials::My),
        }
    }
}
