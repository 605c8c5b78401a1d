//! What a client asks for when it logs in.

use wire::mysql::capabilities::CapabilityFlags;
use wire::mysql::handshake::{ChangeUser, ConnectionAttributes, HandshakeResponse};

use crate::pg::login::{ClientTransport, PgLoginRefusal, TlsFacts};

/// Attributes of one client that are looked at; drivers send some ten.
const ATTRIBUTES_MAX: usize = 64;

/// The attribute that names a tenant.
const TENANT: &str = "tenant_id";

/// The attribute with the name of the program.
const PROGRAM: &str = "program_name";

/// Login that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlLoginRequest {
    /// User that it says it is.
    pub user: String,
    /// The schema to begin with, if it names one.
    pub database: Option<String>,
    /// Transport that it came by.
    pub reached: ClientTransport,
    /// Facts from the TLS handshake; absent without TLS.
    pub tls: Option<TlsFacts>,
    /// Capabilities of both sides: the wire format that it reads depends on them.
    pub capabilities: CapabilityFlags,
    /// The collation, and so the character set, that it speaks. 0 means the server's default.
    pub collation: u16,
    /// Attributes that it sends of itself.
    pub attributes: Vec<(String, String)>,
}

impl MysqlLoginRequest {
    /// The tenant that it names by an attribute.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.attribute(TENANT)
    }

    /// The name of the program, if it says it.
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

    /// What `COM_CHANGE_USER` does not say stays as it was.
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

/// Those that are texts.
fn attributes(attributes: ConnectionAttributes<'_>) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let pairs = attributes.pairs().take(ATTRIBUTES_MAX);
    pairs.filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
}
