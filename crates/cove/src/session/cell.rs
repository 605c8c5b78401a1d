//! `cove session run`: runs a cell in a context of a session.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use api::{CellEnd, CellEvent, CellFailure, CellReport, CellResult, ExecuteCell, Verdict};
use axum::http::Method;

use super::{CHANGE_TIMEOUT, WAIT_TIMEOUT, path, timeout_ms, usage};
use crate::cli::SessionRunArgs;
use crate::exit_codes::{EXIT_KILLED, EXIT_TIME};
use crate::remote::{Remote, plain};
use crate::run::print_json;

/// Largest cell, in bytes.
const CODE_BYTES_MAX: u64 = 8 << 20;

pub(super) async fn run(args: &SessionRunArgs, server: &Remote, json: bool) -> Result<u8> {
    let code = match &args.code {
        Some(code) => code.clone(),
        None => read(args.file.as_deref())?,
    };
    let env = args.env.iter().cloned().collect();
    let cell = ExecuteCell { code, env, timeout_ms: timeout_ms(args.timeout) };
    let named = args.context.as_deref().or(args.language.as_deref()).unwrap_or("python");
    let path = path(&args.id, &format!("/contexts/{named}/execute"));
    let mut request = server.request_with(Method::POST, &path, &cell)?;
    if json {
        request.timeout = WAIT_TIMEOUT;
        let report: CellReport = server.ask(request).await?;
        print_json(&report)?;
        return Ok(exit_code(report.end));
    }
    request.timeout = CHANGE_TIMEOUT;
    let mut events = server.events(request).await?;
    while let Some(event) = events.next::<CellEvent>().await? {
        match event {
            CellEvent::Started { .. } => {}
            CellEvent::Stdout { text } => {
                io::stdout().write_all(text.as_bytes())?;
                io::stdout().flush()?;
            }
            // A failure is ignored: standard error is closed.
            CellEvent::Stderr { text } => drop(io::stderr().write_all(text.as_bytes())),
            CellEvent::Result(result) => {
                writeln!(io::stdout(), "{}", result_text(&result))?;
            }
            CellEvent::Error(CellFailure { traceback, .. }) => {
                drop(writeln!(io::stderr(), "{}", traceback.trim_end()));
            }
            CellEvent::Ended(end) => return Ok(exit_code(end)),
            CellEvent::Gone { error } => return Err(anyhow!("{}", plain(&error))),
        }
    }
    Err(anyhow!("the server is gone"))
}

/// Reads the cell from a file or from standard input.
fn read(file: Option<&Path>) -> Result<String> {
    let mut bytes = Vec::new();
    match file.filter(|file| *file != Path::new("-")) {
        Some(file) => File::open(file)
            .and_then(|opened| opened.take(CODE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .with_context(|| format!("read {}", file.display()))?,
        None => io::stdin().lock().take(CODE_BYTES_MAX + 1).read_to_end(&mut bytes)?,
    };
    let is_small = u64::try_from(bytes.len()).is_ok_and(|len| len <= CODE_BYTES_MAX);
    let text = String::from_utf8(bytes).ok().filter(|_| is_small);
    text.ok_or_else(|| usage("FILE: a cell is UTF-8 text of at most 8 MiB"))
}

/// Returns the text of a result, or the names of its representations, which `--json` prints.
fn result_text(result: &CellResult) -> String {
    let text = result.data.get("text/plain").and_then(|text| text.as_str());
    let others: Vec<&str> =
        result.data.keys().map(String::as_str).filter(|mime| *mime != "text/plain").collect();
    match text {
        Some(text) => text.to_owned(),
        None => format!("[{}]", others.join(", ")),
    }
}

fn exit_code(end: CellEnd) -> u8 {
    match end.verdict {
        Verdict::Ok => 0,
        Verdict::Tle => EXIT_TIME,
        Verdict::Mle | Verdict::Ole | Verdict::Sg => EXIT_KILLED,
        Verdict::Re | Verdict::Ce | Verdict::Wa | Verdict::Jf | Verdict::Ie => 1,
    }
}
