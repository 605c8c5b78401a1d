//! Third-party clients in their languages.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use testkit::Server;

use crate::shared::{COMPAT, interpreter};

/// Runs a Python client of `compat` against a server; it ends with `ok` or reports an error.
pub(crate) fn python(client: &str, server: &Server, path: &str) {
    python_at(client, server, server.client().address(), path);
}

/// Runs such a client against another address of the server, or of others with its tokens.
pub(crate) fn python_at(client: &str, server: &Server, address: SocketAddr, path: &str) {
    python_with(client, server, address, path, &[]);
}

/// Runs such a client with additional environment variables.
pub(crate) fn python_with(
    client: &str,
    server: &Server,
    address: SocketAddr,
    path: &str,
    variables: &[(&str, &str)],
) {
    let base = format!("http://{address}{path}");
    let output = Command::new(interpreter())
        .arg(Path::new(COMPAT).join(client))
        .env("BASE", base)
        .env("TOKEN", server.token())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("ok\n"), "{client}:\n{out}\n{err}");
}
