//! `glob` and `grep`.

use std::time::Duration;

use api::{FileEntry, FileList, SessionExec, SessionExecEvent};
use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::glob::GlobPattern;
use super::super::text::{clean, head};
use super::super::workspace::{ServingSession, is_asleep};
use super::{ToolError, ToolOutput, WORKDIR, absolute, arguments};
use crate::percent::escaped;
use crate::remote::events::EventPage;

/// Maximum paths of one result.
const PATHS_MAX: usize = 200;
/// Maximum entries of a tree that are read.
const ENTRIES_MAX: usize = 50_000;
/// Maximum depth of directories.
const DEPTH_MAX: usize = 64;
/// Maximum bytes of matching lines, and of the program's error messages.
const OUTPUT_BYTES_MAX: usize = 100 << 10;
const ERROR_BYTES_MAX: usize = 2 << 10;
/// Longest pattern for lines, in bytes.
const PATTERN_BYTES_MAX: usize = 16 << 10;
/// Timeout of a search.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Searches with ripgrep if the sandbox has it, otherwise with grep and Perl expressions. The
/// pattern and the path are separate arguments and never part of a command.
const GREP: &str = "if command -v rg >/dev/null 2>&1; then \
    exec rg --no-config -nH --no-heading --color=never -e \"$1\" -- \"$2\"; fi; \
    exec grep -rnHIP --color=never --devices=skip --exclude-dir=.git --exclude-dir=node_modules \
    -e \"$1\" -- \"$2\"";

pub(super) async fn glob(
    workspace: &ServingSession,
    input: Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    #[derive(Deserialize)]
    struct GlobInput {
        pattern: String,
        path: Option<String>,
    }
    let GlobInput { pattern, path } = arguments(input)?;
    let pattern = GlobPattern::parse(&pattern).map_err(ToolError::model)?;
    let root = match path.filter(|path| !path.is_empty()) {
        Some(path) => absolute(&path)?,
        None => WORKDIR.to_owned(),
    };
    let depth = pattern.depth().unwrap_or(DEPTH_MAX).clamp(1, DEPTH_MAX);
    let query = format!("/files?path={}&depth={depth}&limit={ENTRIES_MAX}", escaped(&root));
    let listed = workspace.server.call::<FileList>(Method::GET, &workspace.path(&query)).await;
    let listed = listed.map_err(|failure| ToolError::of(failure, &root))?;
    // Paths below an absolute directory are absolute, too.
    let base = format!("{}/", root.trim_end_matches('/'));
    let is_match =
        |entry: &FileEntry| pattern.matches(entry.path.strip_prefix(&base).unwrap_or(&entry.path));
    let mut found: Vec<FileEntry> = listed.entries.into_iter().filter(is_match).collect();
    // The newest first; by name among equal times, so that results are deterministic.
    found.sort_by(|a, b| b.modified_ms.cmp(&a.modified_ms).then_with(|| a.path.cmp(&b.path)));
    let mut lines: Vec<String> =
        found.iter().take(PATHS_MAX).map(|entry| entry.path.clone()).collect();
    if lines.is_empty() {
        lines.push("no matches".to_owned());
    }
    if found.len() > PATHS_MAX {
        lines.push(format!("[{} more; use a narrower pattern]", found.len() - PATHS_MAX));
    }
    if listed.truncated {
        lines.push(format!("[only {ENTRIES_MAX} entries were looked at; use path]"));
    }
    Ok(ToolOutput::text(lines.join("\n")))
}

pub(super) async fn grep(
    workspace: &ServingSession,
    input: Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    #[derive(Deserialize)]
    struct GrepInput {
        pattern: String,
        path: Option<String>,
    }
    let GrepInput { pattern, path } = arguments(input)?;
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(ToolError::model(format!("pattern has more than {PATTERN_BYTES_MAX} bytes")));
    }
    if pattern.contains('\0') {
        return Err(ToolError::model("pattern has a NUL character"));
    }
    let path = match path.filter(|path| !path.is_empty()) {
        Some(path) => absolute(&path)?,
        None => WORKDIR.to_owned(),
    };
    let mut events = start(workspace, ["/bin/sh", "-c", GREP, "sh", &pattern, &path]).await?;
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let end = loop {
        let event = events.next::<SessionExecEvent>().await;
        match event.map_err(|failure| ToolError::of(failure, &path))? {
            Some(SessionExecEvent::Stdout { data_base64 }) => {
                output.extend(BASE64.decode(data_base64).unwrap_or_default());
                // Dropping the stream ends the program.
                if output.len() > OUTPUT_BYTES_MAX {
                    break None;
                }
            }
            Some(SessionExecEvent::Stderr { data_base64 }) if errors.len() < ERROR_BYTES_MAX => {
                errors.extend(BASE64.decode(data_base64).unwrap_or_default());
            }
            Some(
                SessionExecEvent::Stderr { .. }
                | SessionExecEvent::Started { .. }
                | SessionExecEvent::Attached { .. },
            ) => {}
            Some(SessionExecEvent::Ended(result)) => break Some(result),
            Some(SessionExecEvent::Error { error }) => return Err(ToolError::model(error)),
            None => return Err(ToolError::model("the search was cut short; try again")),
        }
    };
    let text = clean(&output);
    let mut listing = head(&text, OUTPUT_BYTES_MAX).trim_end_matches('\n').to_owned();
    let Some(end) = end else {
        listing.push_str(&format!("\n[output truncated at {OUTPUT_BYTES_MAX} bytes]"));
        return Ok(ToolOutput::text(listing));
    };
    if end.timed_out {
        let time = SEARCH_TIMEOUT.as_secs();
        return Err(ToolError::model(format!("timed out after {time}s; use a narrower path")));
    }
    match end.exit_code {
        // Matches count even if some files could not be read.
        Some(0) => Ok(ToolOutput::text(listing)),
        Some(1) => Ok(ToolOutput::text("no matches")),
        _ if !listing.is_empty() => Ok(ToolOutput::text(listing)),
        _ => {
            let errors = clean(&errors);
            Err(ToolError::model(head(&errors, ERROR_BYTES_MAX).trim_end().to_owned()))
        }
    }
}

/// Starts a program whose output is streamed.
async fn start(workspace: &ServingSession, argv: [&str; 6]) -> Result<EventPage, ToolError> {
    let body = SessionExec {
        argv: Some(argv.map(str::to_owned).to_vec()),
        timeout_ms: u64::try_from(SEARCH_TIMEOUT.as_millis()).ok(),
        ..SessionExec::default()
    };
    let path = workspace.path("/exec");
    let request = || workspace.server.request_with(Method::POST, &path, &body);
    let of = |failure| ToolError::of(failure, "start the search");
    match workspace.server.events(request().map_err(of)?).await {
        Err(failure) if is_asleep(&failure) => {
            workspace.resume().await.map_err(of)?;
            workspace.server.events(request().map_err(of)?).await.map_err(of)
        }
        events => events.map_err(of),
    }
}
