//! Proofs that clients have to give, and credentials that servers get for them: the secrets of the
//! users of both protocols.

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
    /// This, or it is sent away.
    Known(Result<ClientProofRequest, PgLoginRefusal>),
    /// The secret that the tenant's `auth_query` finds; then [`ProtocolKeyrings::found`].
    Query,
}

impl ProtocolKeyrings {
    /// Empty ones. `process_secret` should outlive the process: what users are asked who do not
    /// exist comes from it. PostgreSQL's clients are asked by `method`.
    #[must_use]
    pub fn new(process_secret: [u8; 32], method: PgPasswordMethod) -> ProtocolKeyrings {
        let best = MysqlPasswordMethod::Best;
        ProtocolKeyrings {
            pg: Arc::new(pg::PgKeyring::new(process_secret, method)),
            my: Arc::new(mysql::MysqlKeyring::new(process_secret, best)),
        }
    }

    /// Returns what a client has to show to be who it was routed as.
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

    /// Returns what a client has to show whose secret was looked up; none when there is no such
    /// user.
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

    /// Returns what is shown to the server for a client.
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

    /// Returns what is shown to the server when no client is at hand; none when only clients have
    /// it.
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
