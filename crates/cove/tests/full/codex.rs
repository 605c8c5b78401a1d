//! OpenAI's `codex exec-server`, unmodified, in a session: processes, terminals and files.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::{Server, install_packages};

use crate::shared::{COMPAT, COVE, finish};

/// Returns Codex' program, installed once below the target directory.
fn codex() -> PathBuf {
    let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-codex");
    let project = install_packages(&Path::new(COMPAT).join("codex"), project, &[]);
    let program = || {
        let packages = fs::read_dir(project.join("node_modules/@openai")).ok()?;
        let vendors =
            packages.flatten().filter_map(|it| fs::read_dir(it.path().join("vendor")).ok());
        let mut programs = vendors.flatten().flatten().map(|it| it.path().join("bin/codex"));
        programs.find(|program| program.is_file())
    };
    program().expect("npm has installed Codex' program")
}

#[test]
fn codex_exec_server_runs_processes_and_keeps_files_in_a_session() {
    let program = codex();
    let server = Server::start_with(COVE, &[], Some("sandbox.warm_runtimes = false\n"));
    let session = |arguments: &[&str]| finish(server.command("session").args(arguments));
    let id = session(&["create", "--disk", "1G"]).trim().to_owned();
    let client = Path::new(COMPAT).join("codex/client.py");
    for (from, to) in [(program.as_path(), "codex"), (client.as_path(), "client.py")] {
        session(&["files", "put", from.to_str().unwrap(), &format!("{id}:{to}")]);
    }
    session(&["exec", &id, "--", "chmod", "755", "codex"]);
    assert_eq!(session(&["exec", &id, "--", "python3", "client.py", "./codex"]), "ok\n");
}
