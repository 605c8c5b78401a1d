//! Request of a client that logs in.

use wire::mysql::capabilities::CapabilityFlags;
use wire::mysql::handshake::{ChangeUser, ConnectionAttributes, HandshakeResponse};

use crate::pg::login::{ClientTransport, PgLoginRefusal, TlsFacts};

/// Maximum attributes of one client that are read; drivers send some ten.
const ATTRIBUTES_MAX: usize = 64;

/// The attribute that names a tenant.
const TENANT: &str = "tenant_id";

/// The attribute with the program's name.
const PROGRAM: &str = "program_name";

/// Login request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlLoginRequest {
    /// User name that it claims.
    pub user: String,
    /// Initial schema, if it names one.
    pub database: Option<String>,
    /// Transport of its connection.
    pub reached: ClientTransport,
    /// Facts from the TLS handshake; absent without TLS.
    pub tls: Option<TlsFacts>,
    /// Capabilities of both sides, which determine the wire format that it reads.
    pub capabilities: CapabilityFlags,
    /// The collation, and so the character set, that it uses. 0 means the server's default.
    pub collation: u16,
    /// Attributes that it sends.
    pub attributes: Vec<(String, String)>,
}

impl MysqlLoginRequest {
    /// Returns the tenant named by an attribute.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.attribute(TENANT)
    }

    /// Returns the program's name, if it was sent.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        self.attribute(PROGRAM)
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(one, _)| one == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn of_response(
        response: &HandshakeResponse<'_>,
        capabilities: CapabilityFlags,
        reached: ClientTransport,
        tls: Option<TlsFacts>,
    ) -> Result<MysqlLoginRequest, PgLoginRefusal> {
        Ok(MysqlLoginRequest {
            user: text(response.user, "user name")?,
            database: response.database.map(|name| text(name, "database name")).transpose()?,
            reached,
            tls,
            capabilities,
            collation: u16::from(response.collation),
            attributes: attributes(response.attributes),
        })
    }

    /// Creates the request of a `COM_CHANGE_USER`; absent values are those of the former login.
    pub(super) fn of_change(
        change: &ChangeUser<'_>,
        capabilities: CapabilityFlags,
        collation: u16,
        reached: ClientTransport,
        tls: Option<TlsFacts>,
    ) -> Result<MysqlLoginRequest, PgLoginRefusal> {
        Ok(MysqlLoginRequest {
            user: text(change.user, "user name")?,
            database: change.database.map(|name| text(name, "database name")).transpose()?,
            reached,
            tls,
            capabilities,
            collation: change.collation.unwrap_or(collation),
            attributes: attributes(change.attributes),
        })
    }
}

fn text(bytes: &[u8], what: &str) -> Result<String, PgLoginRefusal> {
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned)
        .map_err(|_| PgLoginRefusal::new("28000", format!("the {what} is not UTF-8")))
}

/// Returns the attributes that are valid texts.
fn attributes(attributes: ConnectionAttributes<'_>) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let pairs = attributes.pairs().take(ATTRIBUTES_MAX);
    pairs.filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
}
