//! `cove console`: opens the console of a server in a browser, signed in.

use std::io::{self, Write as _};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};
use api::{ConsoleCodeRequest, ConsoleCodeView};
use serde_json::json;

use crate::cli::ConsoleArgs;
use crate::config::{CoveConfig, Environment};
use crate::remote::{self, Remote};
use crate::run::print_json;

/// Program that opens an address in the user's preferred browser (freedesktop.org xdg-utils).
const OPENER: &str = "xdg-open";

/// Runs the command.
pub(crate) fn run(args: &ConsoleArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    remote::with_server(&args.server, config, environment, async |server| {
        execute(args, &server).await.map(|()| 0)
    })
}

async fn execute(args: &ConsoleArgs, server: &Remote) -> Result<()> {
    let scopes = args.scope.iter().map(|scope| scope.name().to_owned()).collect::<Vec<_>>();
    let request = ConsoleCodeRequest { scopes: (!scopes.is_empty()).then_some(scopes) };
    let code: ConsoleCodeView = server.post("/v1/console/codes", &request, None).await?;
    let url = format!("{}{}", server.base(), code.url_path);
    match args.json {
        true => print_json(&json!({
            "url": url, "code": code.code, "expires_ms": code.expires_ms
        }))?,
        false => writeln!(io::stdout(), "{url}")?,
    }
    if args.open { open(&url) } else { Ok(()) }
}

/// Opens an address with the desktop's browser. The browser's output is discarded.
fn open(url: &str) -> Result<()> {
    let mut opener = Command::new(OPENER);
    opener.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = opener.status().with_context(|| {
        format!("failed to run `{OPENER}`, which opens pages; copy the address into a browser")
    })?;
    anyhow::ensure!(
        status.success(),
        "`{OPENER}` found no browser ({status}); copy the address into one"
    );
    Ok(())
}
