//! Roles with which pools log in at their servers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use pooler_core::link::{ServerCredentials, ServerDialer, ServerLink};
use pooler_core::pg::dial::{ServerAssurance, TlsRequest};
use pooler_core::{mysql, pg};
use wire::mysql::capabilities::CapabilityFlags;
use wire::pg::startup::ProtocolVersion;

use crate::relay::server::{ConnectTarget, RelayServer, ServerPhase};
use crate::tenants::{PoolId, TenantId, TenantRoute, TenantRouting, TenantSnapshot, TenantUser};
use crate::tls;

/// A tenant's role on its server, as used by its connections.
#[derive(Debug)]
pub(super) struct ServerRole {
    pub(super) tenant: Arc<TenantSnapshot>,
    pub(super) user: Arc<TenantUser>,
    /// Credentials of the client that logged in last, if clients supply them.
    credentials: ServerCredentials,
}

/// The roles of the pools of a thread.
#[derive(Debug, Default)]
pub(super) struct ServerRoles(HashMap<PoolId, ServerRole>);

impl ServerRoles {
    /// Stores how a pool's connections log in, as the client that has just logged in does.
    pub(super) fn replace(
        &mut self,
        id: PoolId,
        route: &TenantRoute,
        credentials: ServerCredentials,
    ) {
        self.0.insert(id, ServerRole::new(route, credentials));
    }

    /// Stores how a pool's connections log in, unless that is known.
    pub(super) fn add(&mut self, id: PoolId, route: &TenantRoute, credentials: ServerCredentials) {
        self.0.entry(id).or_insert_with(|| ServerRole::new(route, credentials));
    }

    /// Returns the role of a pool.
    pub(super) fn get(&self, id: PoolId) -> Option<&ServerRole> {
        self.0.get(&id)
    }

    /// Returns the pools that log in as roles of a tenant.
    pub(super) fn of_tenant(
        &self,
        tenant: TenantId,
    ) -> impl Iterator<Item = (PoolId, &ServerRole)> {
        let roles = self.0.iter().filter(move |(_, role)| role.tenant.id == tenant);
        roles.map(|(id, role)| (*id, role))
    }

    /// Applies a new snapshot of tenants. Returns the tenants that have roles.
    pub(super) fn update(&mut self, routing: &TenantRouting) -> Vec<TenantId> {
        let tenants = self.0.values().map(|role| role.tenant.id).collect();
        for role in self.0.values_mut() {
            if let Some(tenant) = routing.now(&role.tenant) {
                role.tenant = Arc::clone(tenant);
            }
        }
        tenants
    }

    /// Forgets the roles of removed tenants whose pools are not used any more.
    pub(super) fn keep_only(&mut self, mut is_used: impl FnMut(PoolId) -> bool) {
        self.0.retain(|id, role| !role.tenant.state.is_removed() || is_used(*id));
    }

    /// Returns a login at the server as the role of a pool.
    pub(super) fn dial(&self, pool: PoolId, target: &ConnectTarget) -> io::Result<ServerDialer> {
        let role = self.get(pool).ok_or(io::ErrorKind::NotFound)?;
        let tls = tls::request(&role.tenant.server.tls, &role.tenant.server.address);
        Ok(match &role.credentials {
            ServerCredentials::Pg(credentials) => {
                ServerDialer::Pg(role.pg_dial(Arc::clone(credentials), tls, target)?)
            }
            ServerCredentials::My(credentials) => {
                let assurance = target.assurance(&role.tenant.server.tls);
                let params = role.mysql_params(Arc::clone(credentials), tls, assurance);
                ServerDialer::My(mysql::dial::MysqlDial::new(params))
            }
        })
    }

    /// Returns a login at the server of PostgreSQL as the role of a pool.
    pub(super) fn pg_dial(
        &self,
        pool: PoolId,
        target: &ConnectTarget,
    ) -> io::Result<pg::dial::PgDial> {
        let role = self.get(pool).ok_or(io::ErrorKind::NotFound)?;
        let ServerCredentials::Pg(credentials) = &role.credentials else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let tls = tls::request(&role.tenant.server.tls, &role.tenant.server.address);
        role.pg_dial(Arc::clone(credentials), tls, target)
    }

    /// Returns a login that cancels the statement of a pool's connection; `None` if that is
    /// impossible.
    pub(super) fn cancel(&self, server: &RelayServer, tls: TlsRequest) -> Option<ServerDialer> {
        let ServerPhase::Live(link) = &server.phase else { return None };
        match link {
            ServerLink::Pg(link) => {
                let key = link.key();
                let dial = || pg::dial::PgDial::cancel(link.pid(), key.to_vec(), tls);
                (!key.is_empty()).then(|| ServerDialer::Pg(dial()))
            }
            ServerLink::My(link) => {
                let role = self.get(server.slot.pool())?;
                let ServerCredentials::My(credentials) = &role.credentials else { return None };
                // The settings of the server when the connection was opened, as for its handshake.
                let assurance = server.target.assurance(&server.tenant.server.tls);
                let params = role.mysql_params(Arc::clone(credentials), tls, assurance);
                Some(ServerDialer::My(mysql::dial::MysqlDial::cancel(params, link.pid())))
            }
        }
    }
}

impl ServerRole {
    fn new(route: &TenantRoute, credentials: ServerCredentials) -> ServerRole {
        let TenantRoute { tenant, user } = route;
        ServerRole { tenant: Arc::clone(tenant), user: Arc::clone(user), credentials }
    }

    fn pg_dial(
        &self,
        credentials: Arc<pg::dial::PgCredentials>,
        tls: TlsRequest,
        target: &ConnectTarget,
    ) -> io::Result<pg::dial::PgDial> {
        let mut nonce = [0; wire::pg::scram::NONCE_BYTES];
        getrandom::fill(&mut nonce)?;
        let settings = self.tenant.settings.iter();
        let params = pg::dial::PgDialParams {
            user: self.user.server_user.as_ref().to_owned(),
            database: Some(self.tenant.database.as_ref().to_owned()),
            credentials,
            parameters: settings.map(|(name, value)| (name.clone(), value.clone())).collect(),
            tls,
            assurance: target.assurance(&self.tenant.server.tls),
            rules: self.tenant.server.tls.rules.clone(),
            version: ProtocolVersion::V3_0,
        };
        Ok(pg::dial::PgDial::new(params, nonce))
    }

    fn mysql_params(
        &self,
        credentials: Arc<mysql::dial::MysqlCredentials>,
        tls: TlsRequest,
        assurance: ServerAssurance,
    ) -> mysql::dial::MysqlDialParams {
        let tenant = &self.tenant;
        let more = |is_there: bool, capability: CapabilityFlags| {
            if is_there { capability } else { CapabilityFlags::NONE }
        };
        let mut statements = Vec::new();
        if tenant.read_only {
            statements.push(mysql::dial::READ_ONLY.to_owned());
        }
        mysql::dial::MysqlDialParams {
            user: self.user.server_user.as_ref().to_owned(),
            database: Some(tenant.database.as_ref().to_owned()),
            credentials,
            tls,
            assurance,
            more: more(tenant.found_rows, CapabilityFlags::FOUND_ROWS)
                .union(more(tenant.local_infile, CapabilityFlags::LOCAL_FILES)),
            collation: mysql::COLLATION,
            attributes: vec![("program_name".to_owned(), "cove".to_owned())],
            statements,
        }
    }
}
