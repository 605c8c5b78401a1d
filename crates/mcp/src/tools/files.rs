//! Tools for the files of a session.

use std::fmt::Write as _;

use axum::http::Method;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolOutcome, ToolResult, parse_arguments, session_path};
use crate::content::{self, IN_PATH};
use crate::native::NativeApi;

/// Number of shown lines if the model does not set it.
const LINES_DEFAULT: usize = 2_000;

/// Longest line that is shown whole, in bytes.
const LINE_BYTES_MAX: usize = 2_000;

/// Largest image that is shown, in bytes.
const IMAGE_BYTES_MAX: usize = 5 << 20;

/// Most entries of a listing.
const ENTRIES_MAX: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    session: String,
    path: String,
    first_line: Option<usize>,
    lines: Option<usize>,
}

pub(super) fn read_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["session", "path"],
        "properties": {
            "session": { "type": "string", "description": "Id of the session" },
            "path": { "type": "string", "description": "Path; below /workspace unless absolute" },
            "first_line": { "type": "integer", "description": "First line to show; 1 unless given" },
            "lines": { "type": "integer", "description": "Number of lines; 2000 unless given" },
        },
    })
}

pub(super) async fn read(api: &NativeApi, args: Map<String, Value>) -> ToolOutcome {
    let args: ReadFile = parse_arguments(args)?;
    let path = absolute(&args.path);
    let bytes = fetch(api, &args.session, &path).await?;
    let link = content::file_link(&args.session, &path);
    if let Some(media_type) = content::image_type(&bytes) {
        if bytes.len() > IMAGE_BYTES_MAX {
            let message = format!("{path} is an image of {} bytes, too large to show", bytes.len());
            return Err(ToolResult::error(&message));
        }
        let data = BASE64_STANDARD.encode(&bytes);
        let blocks = vec![content::image(&data, media_type), link];
        return Ok(ToolResult { content: blocks, structured: None, is_error: false });
    }
    let Ok(text) = std::str::from_utf8(&bytes) else {
        let message = format!("{path} has {} bytes that are not text (UTF-8)", bytes.len());
        return Err(ToolResult::error(&message));
    };
    let first = args.first_line.unwrap_or(1).max(1);
    let lines = numbered(text, first, args.lines.unwrap_or(LINES_DEFAULT));
    let blocks = vec![content::text(&lines), link];
    Ok(ToolResult { content: blocks, structured: None, is_error: false })
}

/// Formats lines of a text with their numbers, like `cat -n`.
fn numbered(text: &str, first: usize, count: usize) -> String {
    let total = text.lines().count();
    let mut out = String::new();
    for (at, line) in text.lines().enumerate().skip(first - 1).take(count) {
        let cut = match line.get(..LINE_BYTES_MAX) {
            Some(cut) if line.len() > LINE_BYTES_MAX => cut,
            _ => line,
        };
        let _infallible = writeln!(out, "{:>6}\t{cut}", at + 1);
    }
    let last = first.saturating_add(count).saturating_sub(1);
    if first > total {
        let _infallible = write!(out, "[the file has {total} lines]");
    } else if last < total {
        let _infallible = write!(out, "[lines {first} to {last} of {total}]");
    }
    out
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    session: String,
    path: String,
    content: String,
}

pub(super) fn write_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["session", "path", "content"],
        "properties": {
            "session": { "type": "string", "description": "Id of the session" },
            "path": { "type": "string", "description": "Path; below /workspace unless absolute" },
            "content": { "type": "string", "description": "All of its content" },
        },
    })
}

pub(super) async fn write(api: &NativeApi, args: Map<String, Value>) -> ToolOutcome {
    let args: WriteFile = parse_arguments(args)?;
    let path = absolute(&args.path);
    let size = args.content.len();
    store(api, &args.session, &path, args.content).await?;
    Ok(ToolResult::new(
        &format!("wrote {size} bytes to {path}"),
        json!({ "path": path, "size": size }),
    ))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditFile {
    session: String,
    path: String,
    old: String,
    new: String,
    #[serde(default)]
    all: bool,
}

pub(super) fn edit_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["session", "path", "old", "new"],
        "properties": {
            "session": { "type": "string", "description": "Id of the session" },
            "path": { "type": "string", "description": "Path; below /workspace unless absolute" },
            "old": { "type": "string", "description": "Text to replace, exactly as it stands there" },
            "new": { "type": "string", "description": "Text in its place" },
            "all": { "type": "boolean", "description": "Replace every occurrence" },
        },
    })
}

pub(super) async fn edit(api: &NativeApi, args: Map<String, Value>) -> ToolOutcome {
    let args: EditFile = parse_arguments(args)?;
    let path = absolute(&args.path);
    let bytes = fetch(api, &args.session, &path).await?;
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Err(ToolResult::error(&format!("{path} is not text (UTF-8)")));
    };
    let (edited, count) = replaced(text, &args.old, &args.new, args.all)
        .map_err(|why| ToolResult::error(&format!("{path}: {why}")))?;
    store(api, &args.session, &path, edited).await?;
    let text = format!("replaced {count} in {path}");
    Ok(ToolResult::new(&text, json!({ "path": path, "replaced": count })))
}

/// Returns a text with a piece replaced, and the number of replacements.
fn replaced(text: &str, old: &str, new: &str, all: bool) -> Result<(String, usize), String> {
    if old.is_empty() {
        return Err("old is empty; write_file replaces all of a file".to_owned());
    }
    match text.matches(old).count() {
        0 => Err("old does not occur; read the file for its exact text".to_owned()),
        count if count > 1 && !all => {
            Err(format!("old occurs {count} times; give more of the text around it, or all"))
        }
        count => Ok((text.replace(old, new), count)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    session: String,
    path: Option<String>,
    depth: Option<u32>,
}

pub(super) fn list_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["session"],
        "properties": {
            "session": { "type": "string", "description": "Id of the session" },
            "path": { "type": "string", "description": "Directory; /workspace unless given" },
            "depth": { "type": "integer", "description": "Levels below it; 1 unless given" },
        },
    })
}

pub(super) async fn list(api: &NativeApi, args: Map<String, Value>) -> ToolOutcome {
    let args: ListFiles = parse_arguments(args)?;
    let directory = absolute(args.path.as_deref().unwrap_or_default());
    let path = format!(
        "{}/files?path={}&depth={}&limit={ENTRIES_MAX}",
        session_path(&args.session)?,
        utf8_percent_encode(&directory, IN_PATH),
        args.depth.unwrap_or(1),
    );
    let listing = api.json(Method::GET, &path, None).await.map_err(ToolResult::from)?;
    Ok(ToolResult::new(&lines(&listing), listing))
}

/// Formats a listing in lines: size and path; a directory ends with a slash.
fn lines(listing: &Value) -> String {
    let mut text = String::new();
    for entry in listing["entries"].as_array().map_or(&[][..], Vec::as_slice) {
        let path = entry["path"].as_str().unwrap_or_default();
        let _infallible = match entry["kind"].as_str() {
            Some("dir") => writeln!(text, "{:>10} {path}/", ""),
            Some("symlink") => {
                let target = entry["target"].as_str().unwrap_or("?");
                writeln!(text, "{:>10} {path} -> {target}", "")
            }
            _ => writeln!(text, "{:>10} {path}", entry["size"]),
        };
    }
    if text.is_empty() {
        text.push_str("the directory is empty");
    }
    if listing["truncated"] == true {
        text.push_str("[there are more]");
    }
    text
}

/// Makes a path absolute.
fn absolute(path: &str) -> String {
    match path {
        "" | "." => "/workspace".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/workspace/{path}"),
    }
}

/// Returns the request path of a file.
fn file_path(session: &str, path: &str) -> Result<String, ToolResult> {
    let path = utf8_percent_encode(path.trim_start_matches('/'), IN_PATH);
    // An encoded slash at the front marks an absolute path.
    Ok(format!("{}/files/%2F{path}", session_path(session)?))
}

/// Reads a file.
pub(crate) async fn fetch(api: &NativeApi, session: &str, path: &str) -> Result<Bytes, ToolResult> {
    let path = file_path(session, path)?;
    let answer = api.call(Method::GET, &path, "application/octet-stream", None).await;
    answer.map_err(ToolResult::from)
}

async fn store(
    api: &NativeApi,
    session: &str,
    path: &str,
    content: String,
) -> Result<(), ToolResult> {
    let path = file_path(session, path)?;
    let body = Some(Bytes::from(content));
    let answer = api.call(Method::PUT, &path, "application/octet-stream", body).await;
    answer.map(drop).map_err(ToolResult::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_replaced_where_it_is_meant() {
        assert_eq!(replaced("a b", "b", "c", false).unwrap(), ("a c".to_owned(), 1));
        assert_eq!(replaced("b b", "b", "c", true).unwrap(), ("c c".to_owned(), 2));
        for (text, old, all) in [("b b", "b", false), ("a", "b", true), ("a", "", true)] {
            assert!(replaced(text, old, "c", all).is_err(), "{text} {old} {all}");
        }
    }

    #[test]
    fn lines_are_numbered_from_where_they_are_asked_for() {
        let text = "a\nb\nc\n";
        assert_eq!(numbered(text, 1, 9), "     1\ta\n     2\tb\n     3\tc\n");
        assert_eq!(numbered(text, 2, 1), "     2\tb\n[lines 2 to 2 of 3]");
        assert_eq!(numbered(text, 9, 1), "[the file has 3 lines]");
    }

    #[test]
    fn a_path_is_below_the_workspace_unless_it_is_absolute() {
        for (path, expected) in [
            ("", "/workspace"),
            (".", "/workspace"),
            ("a/b", "/workspace/a/b"),
            ("/tmp/x", "/tmp/x"),
        ] {
            assert_eq!(absolute(path), expected);
        }
    }
}
