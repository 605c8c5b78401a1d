//! Addresses of servers in their textual form.

use std::fmt;
use std::path::PathBuf;

use api::TenantEngine;

use super::DefinitionError;

/// Default ports of PostgreSQL and MySQL.
const POSTGRES_PORT: u16 = 5432;
const MYSQL_PORT: u16 = 3306;

/// Maximum length of a host name (RFC 1035) or directory; the path of a Unix socket has at most 108
/// bytes, including the file's name and a final zero.
const HOST_BYTES_MAX: usize = 253;
const DIRECTORY_BYTES_MAX: usize = 80;
const SOCKET_BYTES_MAX: usize = 107;

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackendAddress {
    /// By TCP: a name or an address, resolved at every connection.
    Tcp {
        /// Name or address, or several separated by commas, which are tried in this order.
        host: String,
        /// Port.
        port: u16,
    },
    /// By a Unix socket of PostgreSQL: `DIRECTORY/.s.PGSQL.PORT`.
    Unix {
        /// Directory.
        directory: PathBuf,
        /// Port in the socket's name.
        port: u16,
    },
    /// By a Unix socket with a name of its own, as for MySQL.
    Socket {
        /// The file.
        path: PathBuf,
    },
}

impl BackendAddress {
    /// Parses `host:port`, `host`, `[::1]:port`, for PostgreSQL also `/directory` or
    /// `/directory:port`, for MySQL `/file`.
    ///
    /// # Errors
    /// If it has none of these forms; the error names `field`.
    pub fn parse(
        text: &str,
        engine: TenantEngine,
        field: &str,
    ) -> Result<BackendAddress, DefinitionError> {
        let refuse =
            |message: &str| DefinitionError::new(field, format!("`{}` {message}", short(text)));
        let port_of = |text: &str| match text.parse() {
            Ok(port @ 1..) => Ok(port),
            Ok(0) | Err(_) => Err(refuse("has no port from 1 to 65535 after its colon")),
        };
        let port_else = match engine {
            TenantEngine::Postgres => POSTGRES_PORT,
            TenantEngine::Mysql => MYSQL_PORT,
        };
        if text.starts_with('/') && engine == TenantEngine::Mysql {
            if text.len() > SOCKET_BYTES_MAX || text.contains('\0') {
                return Err(refuse("is too long for a Unix socket, or no path"));
            }
            return Ok(BackendAddress::Socket { path: PathBuf::from(text) });
        }
        if text.starts_with('/') {
            let (directory, port) = match text.rsplit_once(':') {
                Some((directory, port)) => (directory, port_of(port)?),
                None => (text, port_else),
            };
            if directory.len() > DIRECTORY_BYTES_MAX {
                return Err(refuse("is too long for the directory of a Unix socket"));
            }
            return Ok(BackendAddress::Unix { directory: PathBuf::from(directory), port });
        }
        let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((host, ""))) => (host, port_else),
            Some(Some((host, rest))) => match rest.strip_prefix(':') {
                Some(port) => (host, port_of(port)?),
                None => return Err(refuse("is not `[ADDRESS]:PORT`")),
            },
            Some(None) => return Err(refuse("is not `[ADDRESS]:PORT`")),
            None => match text.split_once(':') {
                // More than one colon without brackets: an IPv6 address without a port.
                Some((_, rest)) if rest.contains(':') => (text, port_else),
                Some((host, port)) => (host, port_of(port)?),
                None => (text, port_else),
            },
        };
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        let is_host = |host: &str| !host.is_empty() && host.bytes().all(is_part);
        if host.len() > HOST_BYTES_MAX || !host.split(',').all(is_host) {
            return Err(refuse("is no host name"));
        }
        Ok(BackendAddress::Tcp { host: host.to_owned(), port })
    }

    /// Returns the path of the socket, if it is one.
    pub fn socket_path(&self) -> Option<PathBuf> {
        match self {
            BackendAddress::Tcp { .. } => None,
            BackendAddress::Unix { directory, port } => {
                Some(directory.join(format!(".s.PGSQL.{port}")))
            }
            BackendAddress::Socket { path } => Some(path.clone()),
        }
    }
}

impl fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendAddress::Tcp { host, port } if host.contains([':', ',']) => {
                write!(f, "[{host}]:{port}")
            }
            BackendAddress::Tcp { host, port } => write!(f, "{host}:{port}"),
            BackendAddress::Unix { directory, port } => write!(f, "{}:{port}", directory.display()),
            BackendAddress::Socket { path } => write!(f, "{}", path.display()),
        }
    }
}

/// Returns the beginning of a text from outside.
fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let check_of = |engine, text: &str, shown: &str| {
            let address = BackendAddress::parse(text, engine, "server").unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(BackendAddress::parse(shown, engine, "server").unwrap(), address, "{text}");
        };
        let check = |text: &str, shown: &str| check_of(TenantEngine::Postgres, text, shown);
        let check_mysql = |text: &str, shown: &str| check_of(TenantEngine::Mysql, text, shown);
        check_mysql("db", "db:3306");
        check_mysql("[::1]", "[::1]:3306");
        check_mysql("db:3307", "db:3307");
        check_mysql("/run/mysqld/mysqld.sock", "/run/mysqld/mysqld.sock");
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
            assert!(BackendAddress::parse(bad, TenantEngine::Postgres, "server").is_err(), "{bad}");
        }
        for (engine, bytes) in [(TenantEngine::Postgres, 80), (TenantEngine::Mysql, 107)] {
            let long = format!("/{}", "x".repeat(bytes));
            assert_eq!(BackendAddress::parse(&long, engine, "server").unwrap_err().field, "server");
        }
    }

    #[test]
    fn a_socket_has_the_name_that_libpq_looks_for() {
        let of =
            |text, engine| BackendAddress::parse(text, engine, "server").unwrap().socket_path();
        let path = of("/run/pg:5433", TenantEngine::Postgres);
        assert_eq!(path, Some(PathBuf::from("/run/pg/.s.PGSQL.5433")));
        let path = of("/run/my.sock", TenantEngine::Mysql);
        assert_eq!(path, Some(PathBuf::from("/run/my.sock")));
        assert_eq!(of("db", TenantEngine::Postgres), None);
    }
}
