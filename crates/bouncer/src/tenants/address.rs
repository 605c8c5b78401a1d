//! Where a server is, as people write it.

use std::fmt;
use std::path::PathBuf;

use super::Refusal;

/// PostgreSQL's port.
const PORT: u16 = 5432;

/// Longest host name (RFC 1035) or directory; the path of a Unix socket has 108 bytes with its
/// name.
const HOST_BYTES_MAX: usize = 253;
const DIRECTORY_BYTES_MAX: usize = 80;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// By TCP: a name or an address, resolved at every connection.
    Tcp {
        /// Name or address, or several divided by commas, which are tried in their order.
        host: String,
        /// Port.
        port: u16,
    },
    /// By a Unix socket: `DIRECTORY/.s.PGSQL.PORT`.
    Unix {
        /// Its directory.
        directory: PathBuf,
        /// What it is named after.
        port: u16,
    },
}

impl Address {
    /// Reads `host:port`, `host`, `[::1]:port`, `/directory` or `/directory:port`.
    ///
    /// # Errors
    /// When it is none of that; `field` names it then.
    pub fn parse(text: &str, field: &str) -> Result<Address, Refusal> {
        let refuse = |message: &str| Refusal::new(field, format!("`{}` {message}", short(text)));
        let port_of = |text: &str| match text.parse() {
            Ok(port @ 1..) => Ok(port),
            Ok(0) | Err(_) => Err(refuse("has no port from 1 to 65535 after its colon")),
        };
        if text.starts_with('/') {
            let (directory, port) = match text.rsplit_once(':') {
                Some((directory, port)) => (directory, port_of(port)?),
                None => (text, PORT),
            };
            if directory.len() > DIRECTORY_BYTES_MAX {
                return Err(refuse("is too long for the directory of a Unix socket"));
            }
            return Ok(Address::Unix { directory: PathBuf::from(directory), port });
        }
        let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((host, ""))) => (host, PORT),
            Some(Some((host, rest))) => match rest.strip_prefix(':') {
                Some(port) => (host, port_of(port)?),
                None => return Err(refuse("is not `[ADDRESS]:PORT`")),
            },
            Some(None) => return Err(refuse("is not `[ADDRESS]:PORT`")),
            None => match text.split_once(':') {
                // More than one colon without brackets: an address of IPv6 by itself.
                Some((_, rest)) if rest.contains(':') => (text, PORT),
                Some((host, port)) => (host, port_of(port)?),
                None => (text, PORT),
            },
        };
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        let is_host = |host: &str| !host.is_empty() && host.bytes().all(is_part);
        if host.len() > HOST_BYTES_MAX || !host.split(',').all(is_host) {
            return Err(refuse("is no host name"));
        }
        Ok(Address::Tcp { host: host.to_owned(), port })
    }

    /// The path of the socket, where it is one.
    pub fn socket_path(&self) -> Option<PathBuf> {
        match self {
            Address::Tcp { .. } => None,
            Address::Unix { directory, port } => Some(directory.join(format!(".s.PGSQL.{port}"))),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains([':', ',']) => {
                write!(f, "[{host}]:{port}")
            }
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix { directory, port } => write!(f, "{}:{port}", directory.display()),
        }
    }
}

/// The beginning of a text that somebody else wrote.
fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let check = |text: &str, shown: &str| {
            let address = Address::parse(text, "server").unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(Address::parse(shown, "server").unwrap(), address, "{text}");
        };
        check("db", "db:5432");
        check("db.internal:6000", "db.internal:6000");
        check("127.0.0.1", "127.0.0.1:5432");
        check("[::1]:5433", "[::1]:5433");
        check("[::1]", "[::1]:5432");
        check("::1", "[::1]:5432");
        check("fe80::1%eth0", "[fe80::1%eth0]:5432");
        check("/run/postgresql", "/run/postgresql:5432");
        check("/run/postgresql:5433", "/run/postgresql:5433");
        check("[::1,db]:7", "[::1,db]:7");
        check("a,b:7", "[a,b]:7");
        for bad in [
            "", ":1", "a,", ",a", "db:", "db:0", "db:65536", "db:x", "[::1", "[::1]5", "a b",
            "/a:x",
        ] {
            assert!(Address::parse(bad, "server").is_err(), "{bad}");
        }
        let long = format!("/{}", "x".repeat(80));
        assert_eq!(Address::parse(&long, "server").unwrap_err().field, "server");
    }

    #[test]
    fn a_socket_has_the_name_that_libpq_looks_for() {
        let path = Address::parse("/run/pg:5433", "server").unwrap().socket_path();
        assert_eq!(path, Some(PathBuf::from("/run/pg/.s.PGSQL.5433")));
        assert_eq!(Address::parse("db", "server").unwrap().socket_path(), None);
    }
}
