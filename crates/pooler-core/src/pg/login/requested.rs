//! Requests of startup messages.

use wire::pg::startup::{self, ProtocolVersion, StartupMessage};

use super::{ClientTransport, PgLoginRefusal, TlsFacts};

/// Maximum parameters and options of one client; PostgreSQL has some 350.
const PARAMETERS_MAX: usize = 200;

/// Settings that determine the identity of a session; they cannot be moved to another session.
const IDENTITY: &[&str] = &["role", "session_authorization"];

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgStartupRequest {
    /// The negotiated version: the older one of the client's and the pooler's.
    pub version: ProtocolVersion,
    /// User name.
    pub user: String,
    /// The database, if the client names one; otherwise PostgreSQL uses the user's name.
    pub database: Option<String>,
    /// `tenant_id` among its `options`.
    pub options_tenant_id: Option<String>,
    /// The startup parameter `tenant_id`.
    pub tenant_id: Option<String>,
    /// Mode of replication.
    pub replication: ReplicationMode,
    /// Settings for its session, each name once; those from `options` are overridden by startup
    /// parameters, as on the server.
    pub parameters: Vec<(String, String)>,
    /// Result of the TLS handshake; `None` without TLS.
    pub tls: Option<TlsFacts>,
    /// Transport.
    pub reached: ClientTransport,
}

/// The startup parameter `replication`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicationMode {
    /// An ordinary connection.
    #[default]
    None,
    /// Physical replication of the whole cluster, without a database.
    Physical,
    /// Logical replication of one database.
    Logical,
}

impl PgStartupRequest {
    pub(super) fn read(
        startup: &StartupMessage<'_>,
        version: ProtocolVersion,
        reached: ClientTransport,
        tls: Option<TlsFacts>,
    ) -> Result<PgStartupRequest, PgLoginRefusal> {
        let (user, database) = (String::new(), None);
        let mut requested = PgStartupRequest {
            version,
            user,
            database,
            options_tenant_id: None,
            tenant_id: None,
            replication: ReplicationMode::None,
            parameters: Vec::new(),
            tls,
            reached,
        };
        for (name, value) in options(startup)? {
            match name.as_str() {
                "tenant_id" => requested.options_tenant_id = Some(value),
                _ => requested.set(&name, &value)?,
            }
        }
        for (name, value) in startup.parameters() {
            match name {
                "user" => value.clone_into(&mut requested.user),
                "database" => {
                    requested.database = Some(value.to_owned()).filter(|name| !name.is_empty());
                }
                "tenant_id" => requested.tenant_id = Some(value.to_owned()),
                "replication" => requested.replication = replication(value)?,
                "options" => {}
                _ if name.starts_with("_pq_.") => {} // reported to the client as unsupported
                _ => requested.set(name, value)?,
            }
        }
        if requested.user.is_empty() {
            let message = "no user name in the startup packet";
            return Err(PgLoginRefusal::new("28000", message));
        }
        Ok(requested)
    }

    /// Returns the database, or the user's name.
    #[must_use]
    pub fn database_or_user(&self) -> &str {
        self.database.as_deref().unwrap_or(&self.user)
    }

    /// Returns the tenant that it names, by the first of the ways.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.options_tenant_id.as_deref().or(self.tenant_id.as_deref())
    }

    /// Sets a setting, whose name is case-insensitive. A client that requests fewer rights than its
    /// user has must not get the user's.
    fn set(&mut self, name: &str, value: &str) -> Result<(), PgLoginRefusal> {
        let is_identity = IDENTITY.iter().any(|it| name.eq_ignore_ascii_case(it));
        if is_identity && !value.eq_ignore_ascii_case("none") {
            let message = format!(
                "the startup parameter \"{name}\" is not supported: connect as that role, or set \
                 it after the login"
            );
            return Err(PgLoginRefusal::new("0A000", message));
        }
        let known = self.parameters.iter_mut().find(|(one, _)| one.eq_ignore_ascii_case(name));
        if let Some((_, old)) = known {
            value.clone_into(old);
            return Ok(());
        }
        if self.parameters.len() >= PARAMETERS_MAX {
            let message = format!("more than {PARAMETERS_MAX} startup parameters");
            return Err(PgLoginRefusal::new("08P01", message));
        }
        self.parameters.push((name.to_owned(), value.to_owned()));
        Ok(())
    }
}

fn options(startup: &StartupMessage<'_>) -> Result<Vec<(String, String)>, PgLoginRefusal> {
    let text = startup.parameter("options").unwrap_or("");
    startup::options(text).map_err(|error| PgLoginRefusal::new("22023", error.to_string()))
}

/// Parses `database`, or a boolean like PostgreSQL: any unambiguous prefix of a word.
fn replication(value: &str) -> Result<ReplicationMode, PgLoginRefusal> {
    if value == "database" {
        return Ok(ReplicationMode::Logical);
    }
    let value = value.to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    if begins("true", 1) || begins("yes", 1) || value == "on" || value == "1" {
        Ok(ReplicationMode::Physical)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || value == "0" {
        Ok(ReplicationMode::None)
    } else {
        let message = "invalid value for parameter \"replication\"";
        Err(PgLoginRefusal::new("22023", message))
    }
}
