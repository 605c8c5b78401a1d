//! Login of a client that is passed to another node, as it is sent there. It is written by a peer
//! that has the key of the cluster; each length is bounded all the same.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use api::TenantEngine;
use pooler_core::link::{LoggedInClient, ServerCredentials};
use pooler_core::mysql::dial::MysqlCredentials;
use pooler_core::mysql::login::{
    MysqlAuthenticatedClient, MysqlDisclosedSecret, MysqlLoginRequest,
};
use pooler_core::pg::dial::PgCredentials;
use pooler_core::pg::login::{
    ClientTransport, PgAuthenticatedClient, PgDisclosedSecret, PgStartupRequest, ReplicationMode,
    TlsFacts,
};
use serde::{Deserialize, Serialize};
use wire::mysql::auth::{NativeKey, Sha2Key};
use wire::mysql::capabilities::CapabilityFlags;
use wire::pg::scram::ScramKeys;
use wire::pg::secret::PlainPassword;
use wire::pg::startup::ProtocolVersion;

use crate::auth::ProtocolKeyrings;
use crate::secrets::{ClientSecret, PASSWORD_BYTES_MAX};
use crate::tenants::{ServerSecret, TenantRoute, TenantUser};

/// Maximum bytes of a login sent between nodes.
pub const PASSED_LOGIN_BYTES_MAX: usize = 256 << 10;

/// Maximum settings of a session; the limit for clients themselves is the same.
const PARAMETERS_MAX: usize = 200;

/// Maximum bytes of a name or value.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// An authenticated client that is passed to a home of its tenant's limits.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PassedLogin {
    /// Number by which the nodes refer to it; random.
    pub id: u64,
    /// Tenant.
    pub tenant: String,
    /// User of the tenant.
    pub user: String,
    /// Tenant that its listener is bound to.
    pub(crate) bound: Option<String>,
    /// Origin.
    pub(crate) origin: PassedOrigin,
    /// Schema or database that it has requested.
    pub(crate) database: Option<String>,
    /// Secret with which its pool logs in, if its tenant's definition does not contain it.
    pub(crate) secret: Option<PassedSecret>,
    /// Protocol-specific part.
    pub(crate) greeting: PassedGreeting,
}

/// Origin of a client that another node has accepted.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PassedOrigin {
    /// True if it connected over a Unix socket.
    is_unix: bool,
    /// Address of a client that did not.
    pub(crate) peer: Option<SocketAddr>,
    /// User id of the process at the other end of a Unix socket.
    pub(crate) uid: Option<u32>,
    /// Facts of its TLS handshake; `None` without TLS.
    pub(crate) tls: Option<PassedTls>,
}

/// Client of another node, behind a socket that is carried there.
#[derive(Debug)]
pub(crate) struct PassedSource {
    /// Number by which the nodes refer to it.
    pub(crate) id: u64,
    /// Origin.
    pub(crate) origin: PassedOrigin,
}

/// Facts of a TLS handshake that another node performed.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PassedTls {
    server_name: Option<String>,
    client_name: Option<String>,
}

/// Secret with which a pool logs in. Its `Debug` output hides it.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum PassedSecret {
    /// None: the server trusts the bouncer.
    Nothing,
    /// A password, or the MD5 hash of one.
    Text(String),
    /// Keys of SCRAM.
    Scram(String),
    /// Key of `mysql_native_password`.
    Native(Vec<u8>),
    /// Key of `caching_sha2_password`.
    Sha2(Vec<u8>),
}

impl fmt::Debug for PassedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PassedSecret(..)")
    }
}

/// Start of a session, as its client has requested it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum PassedGreeting {
    /// PostgreSQL.
    Pg {
        /// Minor version of protocol 3.
        minor: u16,
        /// Settings.
        parameters: Vec<(String, String)>,
    },
    /// MySQL.
    My {
        /// Number that was sent to the client.
        pid: u32,
        /// Number of the packet that the client waits for.
        number: u8,
        /// Capabilities of both sides.
        capabilities: u64,
        /// Collation.
        collation: u16,
    },
}

/// Why a login that another node has sent is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PassedLoginError {
    /// A text is too long, or there are too many.
    #[error("a login of another node is too long")]
    TooLong,
    /// The tenant has another protocol.
    #[error("a login of another node is for another protocol")]
    Engine,
    /// The secret with which its pool logs in is unknown.
    #[error("a login of another node has no secret that its pool could log in with")]
    Secret,
}

/// A client that another node has passed, with the route to its tenant here.
#[derive(Debug)]
pub(crate) struct ArrivedLogin {
    pub(crate) proved: LoggedInClient,
    pub(crate) route: TenantRoute,
}

impl PassedOrigin {
    /// Returns the transport of the client's connection.
    pub(crate) fn transport(&self) -> ClientTransport {
        match self.is_unix {
            true => ClientTransport::Unix { uid: self.uid },
            false => ClientTransport::Tcp,
        }
    }

    /// Returns the facts of its TLS handshake.
    pub(crate) fn tls_facts(&self) -> Option<TlsFacts> {
        self.tls.as_ref().map(|tls| TlsFacts {
            server_name: tls.server_name.clone(),
            client_name: tls.client_name.clone(),
            ..TlsFacts::default()
        })
    }

    /// Returns whether the client's connection is encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }
}

impl PassedLogin {
    /// Returns the login of a client to pass; `None` if it cannot be passed: a replication client
    /// has a server connection of its own.
    pub(crate) fn of(
        id: u64,
        proved: &LoggedInClient,
        route: &TenantRoute,
        keyrings: &ProtocolKeyrings,
        pid: Option<u32>,
    ) -> Option<PassedLogin> {
        let TenantRoute { tenant, user } = route;
        let by_definition = tenant.user(&user.name);
        let is_known = keyrings.own_credentials(tenant, &by_definition).is_some();
        let secret = (!is_known).then(|| PassedSecret::of(&keyrings.credentials(route, proved)));
        let (origin, database, greeting) = match proved {
            LoggedInClient::Pg(client) => {
                let it = &client.requested;
                if it.replication != ReplicationMode::None {
                    return None;
                }
                let (minor, parameters) = (it.version.minor, it.parameters.clone());
                let greeting = PassedGreeting::Pg { minor, parameters };
                (PassedOrigin::of(it.reached, it.tls.as_ref()), &it.database, greeting)
            }
            LoggedInClient::My(client) => {
                let it = &client.requested;
                let greeting = PassedGreeting::My {
                    pid: pid?,
                    number: client.seq,
                    capabilities: it.capabilities.0,
                    collation: it.collation,
                };
                (PassedOrigin::of(it.reached, it.tls.as_ref()), &it.database, greeting)
            }
        };
        Some(PassedLogin {
            id,
            tenant: tenant.name.to_string(),
            user: user.name.to_string(),
            bound: None,
            origin,
            database: database.clone(),
            secret,
            greeting,
        })
    }

    /// Returns its protocol.
    #[must_use]
    pub fn engine(&self) -> TenantEngine {
        match self.greeting {
            PassedGreeting::Pg { .. } => TenantEngine::Postgres,
            PassedGreeting::My { .. } => TenantEngine::Mysql,
        }
    }

    /// Returns the connection number of a client of MySQL, and the number of the packet that it
    /// waits for.
    pub(crate) fn mysql_numbers(&self) -> Option<(u32, u8)> {
        match self.greeting {
            PassedGreeting::Pg { .. } => None,
            PassedGreeting::My { pid, number, .. } => Some((pid, number)),
        }
    }

    /// Rejects logins that no client could have made.
    pub(crate) fn check(&self) -> Result<(), PassedLoginError> {
        let texts = [Some(&self.tenant), Some(&self.user), self.bound.as_ref()];
        let of_tls = self.origin.tls.as_ref();
        let of_tls = of_tls.map(|tls| [tls.server_name.as_ref(), tls.client_name.as_ref()]);
        let texts = texts.into_iter().chain(of_tls.into_iter().flatten());
        let texts = texts.chain([self.database.as_ref()]).flatten();
        let is_short = |text: &String| text.len() <= TEXT_BYTES_MAX && !text.contains('\0');
        let are_parameters = match &self.greeting {
            PassedGreeting::Pg { parameters, .. } => {
                let mut pairs = parameters.iter();
                parameters.len() <= PARAMETERS_MAX
                    && pairs.all(|(name, value)| is_short(name) && is_short(value))
            }
            PassedGreeting::My { pid, .. } => *pid != 0,
        };
        let is_secret = match &self.secret {
            Some(PassedSecret::Text(text) | PassedSecret::Scram(text)) => {
                text.len() <= PASSWORD_BYTES_MAX
            }
            Some(PassedSecret::Native(bytes) | PassedSecret::Sha2(bytes)) => {
                bytes.len() <= PASSWORD_BYTES_MAX
            }
            Some(PassedSecret::Nothing) | None => true,
        };
        let mut texts = texts;
        match texts.all(is_short) && are_parameters && is_secret {
            true => Ok(()),
            false => Err(PassedLoginError::TooLong),
        }
    }

    /// Returns the client as if it had authenticated here. `route` leads to its tenant.
    pub(crate) fn arrive(
        self,
        route: TenantRoute,
        keyrings: &ProtocolKeyrings,
    ) -> Result<ArrivedLogin, PassedLoginError> {
        self.check()?;
        let engine = self.engine();
        let TenantRoute { tenant, user } = route;
        if tenant.engine != engine {
            return Err(PassedLoginError::Engine);
        }
        let PassedLogin { origin, database, secret, greeting, .. } = self;
        let (mut shown, mut shown_my) = (PgDisclosedSecret::Nothing, MysqlDisclosedSecret::Nothing);
        let server_secret = match secret {
            None if keyrings.own_credentials(&tenant, &user).is_none() => {
                return Err(PassedLoginError::Secret);
            }
            None => user.server_secret.clone(),
            Some(PassedSecret::Nothing) => ServerSecret::None,
            Some(PassedSecret::Text(text)) => match engine {
                TenantEngine::Postgres => ServerSecret::Known(ClientSecret::new(text)),
                TenantEngine::Mysql => {
                    shown_my = MysqlDisclosedSecret::Password(PlainPassword::new(text));
                    ServerSecret::OfClient
                }
            },
            Some(PassedSecret::Scram(text)) => {
                let keys = ScramKeys::import(&text).ok_or(PassedLoginError::Secret)?;
                shown = PgDisclosedSecret::Keys(keys);
                ServerSecret::OfClient
            }
            Some(PassedSecret::Native(bytes)) => {
                let key = NativeKey::import(&bytes).ok_or(PassedLoginError::Secret)?;
                shown_my = MysqlDisclosedSecret::Native(key);
                ServerSecret::OfClient
            }
            Some(PassedSecret::Sha2(bytes)) => {
                let key = Sha2Key::import(&bytes).ok_or(PassedLoginError::Secret)?;
                shown_my = MysqlDisclosedSecret::Sha2(key);
                ServerSecret::OfClient
            }
        };
        let user = Arc::new(TenantUser { server_secret, ..TenantUser::clone(&user) });
        let (tls, reached) = (origin.tls_facts(), origin.transport());
        let name = user.name.to_string();
        let proved = match greeting {
            PassedGreeting::Pg { minor, parameters } => {
                let requested = PgStartupRequest {
                    version: ProtocolVersion { major: 3, minor },
                    user: name,
                    database,
                    options_tenant_id: None,
                    tenant_id: None,
                    replication: ReplicationMode::None,
                    parameters,
                    tls,
                    reached,
                };
                let client = PgAuthenticatedClient { requested, shown, verifier: None };
                LoggedInClient::Pg(Box::new(client))
            }
            PassedGreeting::My { number, capabilities, collation, .. } => {
                let requested = MysqlLoginRequest {
                    user: name,
                    database,
                    reached,
                    tls,
                    capabilities: CapabilityFlags(capabilities),
                    collation,
                    attributes: Vec::new(),
                };
                let (shown, verifier) = (shown_my, None);
                let client = MysqlAuthenticatedClient { requested, shown, verifier, seq: number };
                LoggedInClient::My(Box::new(client))
            }
        };
        Ok(ArrivedLogin { proved, route: TenantRoute { tenant, user } })
    }
}

impl PassedOrigin {
    fn of(reached: ClientTransport, tls: Option<&TlsFacts>) -> PassedOrigin {
        let (is_unix, uid) = match reached {
            ClientTransport::Tcp => (false, None),
            ClientTransport::Unix { uid } => (true, uid),
        };
        let tls = tls.map(|tls| PassedTls {
            server_name: tls.server_name.clone(),
            client_name: tls.client_name.clone(),
        });
        PassedOrigin { is_unix, peer: None, uid, tls }
    }
}

impl PassedSecret {
    fn of(credentials: &ServerCredentials) -> PassedSecret {
        match credentials {
            ServerCredentials::Pg(credentials) => match &**credentials {
                PgCredentials::None => PassedSecret::Nothing,
                PgCredentials::Password(password, _) => {
                    PassedSecret::Text(password.reveal().to_owned())
                }
                PgCredentials::Scram(keys) => PassedSecret::Scram(keys.export().to_string()),
                PgCredentials::Md5(hash) => PassedSecret::Text(hash.export().to_string()),
            },
            ServerCredentials::My(credentials) => match &**credentials {
                MysqlCredentials::None => PassedSecret::Nothing,
                MysqlCredentials::Password(password) => {
                    PassedSecret::Text(password.reveal().to_owned())
                }
                MysqlCredentials::Native(key) => PassedSecret::Native(key.expose().to_vec()),
                MysqlCredentials::Sha2(key) => PassedSecret::Sha2(key.expose().to_vec()),
            },
        }
    }
}

#[cfg(test)]
mod tests;
