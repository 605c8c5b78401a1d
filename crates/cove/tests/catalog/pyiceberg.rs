//! PyIceberg, unmodified, with Arrow: it writes and reads the data, and the catalog never does.

use std::path::Path;
use std::process::Command;

use testkit::Server;

use crate::shared::{COMPAT, COVE, interpreter_with};

#[test]
fn it_creates_writes_reads_and_changes_tables() {
    let server = Server::start(COVE);
    let output = Command::new(interpreter_with("iceberg/requirements.txt", "compat-iceberg"))
        .arg(Path::new(COMPAT).join("iceberg/pyiceberg_client.py"))
        .env("BASE", format!("http://{}/catalog", server.client().address()))
        .env("TOKEN", server.token())
        // What it is configured by otherwise is the user's.
        .env("PYICEBERG_HOME", server.scratch().path())
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("ok\n"), "{out}\n{err}");
}
