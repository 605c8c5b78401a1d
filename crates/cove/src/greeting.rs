//! Greeting of a started server: commands to try next, with its real paths and ports.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use node::telemetry::LogFormat;

use crate::config::ConfigSource;

/// Server that prints a hint at its start.
pub(crate) enum StartHint {
    /// The complete server.
    Server {
        /// Path of its console with a code that signs in once.
        console: Option<String>,
    },
    /// The catalog alone.
    Catalog,
}

/// Prints commands to try next. It never contains a token, but for the console a one-time code that
/// expires soon.
pub(crate) fn greet(source: &ConfigSource, address: SocketAddr, data_dir: &Path, who: StartHint) {
    // An unspecified address is reached through loopback.
    let reachable = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from(([127, 0, 0, 1], address.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => {
            SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port()))
        }
        _ => address,
    };
    // Commands find the default data directory without an option.
    let is_default = source.environment.default_data_dir().is_some_and(|it| it == data_dir);
    let option = match is_default {
        true => String::new(),
        false => format!(" --data-dir {}", quoted(data_dir)),
    };
    let token = format!("$(cove token{option})");
    let version = env!("CARGO_PKG_VERSION");
    let scheme = if source.config.tls.cert.is_some() { "https" } else { "http" };
    let text = match who {
        StartHint::Server { console } => format!(
            "\nCove {version} listens at {scheme}://{reachable} (documentation: {scheme}://{reachable}/docs).\n\
             {}Try:\n\n  \
             echo 'print(6*7)' | cove run --lang python -\n  \
             curl -s http://{reachable}/v1/languages -H \"authorization: Bearer {token}\"\n  \
             curl -s 'http://{reachable}/v1/executions?wait=true' -H \"authorization: Bearer {token}\" \
             -d '{{\"language\": \"python\", \"source\": \"print(6*7)\"}}'\n\n",
            console.map_or_else(String::new, |path| format!(
                "Console: {scheme}://{reachable}{path}\n\
                 (signs in once, within 5 minutes; `cove console{option}` prints another)\n"
            )),
        ),
        StartHint::Catalog => format!(
            "\nCove {version} has an Iceberg catalog at http://{reachable}/catalog. Try:\n\n  \
             cove catalog namespace create shop{option}\n  \
             cove catalog table create shop.orders --column id:long{option}\n  \
             curl -s http://{reachable}/catalog/v1/config -H \"authorization: Bearer {token}\"\n\n",
        ),
    };
    // A JSON log is read by machines.
    if source.config.log.format == LogFormat::Text {
        // The server also runs with a closed standard error.
        drop(std::io::stderr().write_all(text.as_bytes()));
    }
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(&byte);
    if text.bytes().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    //! The printed commands can be typed.

    use super::*;

    #[test]
    fn paths_are_quoted_where_they_must_be() {
        assert_eq!(quoted(Path::new("/var/lib/cove")), "/var/lib/cove");
        assert_eq!(quoted(Path::new("/a b")), "'/a b'");
        assert_eq!(quoted(Path::new("/it's")), r"'/it'\''s'");
        assert_eq!(quoted(Path::new("/$(x)")), "'/$(x)'");
    }
}
