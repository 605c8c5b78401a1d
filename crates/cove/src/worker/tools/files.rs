//! `read`, `write` and `edit`. The file helper in the sandbox opens the files, as the session's
//! user.

use std::time::Duration;

use axum::http::{Method, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use node::client::ClientResponse;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::protocol::{Base64Source, ResultBlock};
use super::super::workspace::ServingSession;
use super::{ToolError, ToolOutput, absolute, arguments};
use crate::percent::escaped;

/// Largest file that is read or edited as a whole, and largest part of a file that is read.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Largest image: the Messages API accepts 5 MiB of Base64.
const IMAGE_BYTES_MAX: u64 = 5 * (1 << 20) / 4 * 3;
/// Largest PDF: with Base64 it stays below the limit of a request.
const PDF_BYTES_MAX: u64 = 20 << 20;
/// Largest text that is written, in bytes.
const WRITE_BYTES_MAX: usize = 16 << 20;
/// Timeout of a file transfer.
const FILE_TIMEOUT: Duration = Duration::from_secs(120);
/// Files that are returned as image or document blocks, by their file name suffix.
const MEDIA: [(&str, &str); 6] = [
    (".png", "image/png"),
    (".jpg", "image/jpeg"),
    (".jpeg", "image/jpeg"),
    (".gif", "image/gif"),
    (".webp", "image/webp"),
    (".pdf", PDF),
];
const PDF: &str = "application/pdf";

pub(super) async fn read(
    workspace: &ServingSession,
    input: Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    #[derive(Deserialize)]
    struct ReadInput {
        file_path: String,
        view_range: Option<Vec<i64>>,
    }
    let ReadInput { file_path, view_range } = arguments(input)?;
    let path = absolute(&file_path)?;
    let range = match view_range.as_deref() {
        None | Some([]) => None,
        Some(&[first, last]) => Some(LineRange::new(first, last)),
        Some(_) => return Err(ToolError::model("view_range must be [start_line, end_line]")),
    };
    let lower = path.to_ascii_lowercase();
    if let Some((_, media_type)) = MEDIA.into_iter().find(|(end, _)| lower.ends_with(end)) {
        if range.is_some() {
            return Err(ToolError::model("view_range is not supported for image/PDF files"));
        }
        return read_media(workspace, &path, &file_path, media_type).await;
    }
    let (response, len) = open(workspace, &path, &file_path).await?;
    let Some(range) = range else {
        if len > FILE_BYTES_MAX {
            return Err(ToolError::model(format!(
                "{file_path} is {len} bytes, exceeds {FILE_BYTES_MAX}-byte limit. Use the \
                 view_range parameter to read specific line ranges, e.g. view_range: [1, 500]."
            )));
        }
        let bytes = read_body(response, &file_path).await?;
        return Ok(ToolOutput::text(text(bytes, &file_path)?));
    };
    let bytes = read_lines(response, range, &file_path).await?;
    Ok(ToolOutput::text(text(bytes, &file_path)?))
}

async fn read_media(
    workspace: &ServingSession,
    path: &str,
    path_text: &str,
    media_type: &'static str,
) -> Result<ToolOutput, ToolError> {
    let (response, len) = open(workspace, path, path_text).await?;
    let max = if media_type == PDF { PDF_BYTES_MAX } else { IMAGE_BYTES_MAX };
    if len > max {
        return Err(ToolError::model(format!(
            "{path_text} is {len} bytes, exceeds {max}-byte limit for image/PDF files."
        )));
    }
    let data = BASE64.encode(read_body(response, path_text).await?);
    let source = Base64Source { kind: "base64", media_type, data };
    let block = match media_type {
        PDF => ResultBlock::Document { source },
        _ => ResultBlock::Image { source },
    };
    Ok(ToolOutput { is_error: false, content: vec![block] })
}

pub(super) async fn write(
    workspace: &ServingSession,
    input: Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    #[derive(Deserialize)]
    struct WriteInput {
        file_path: String,
        content: String,
    }
    let WriteInput { file_path, content } = arguments(input)?;
    let path = absolute(&file_path)?;
    if content.len() > WRITE_BYTES_MAX {
        return Err(ToolError::model(format!("content has more than {WRITE_BYTES_MAX} bytes")));
    }
    let len = content.len();
    store(workspace, &path, &file_path, content).await?;
    Ok(ToolOutput::text(format!("wrote {len} bytes to {file_path}")))
}

pub(super) async fn edit(
    workspace: &ServingSession,
    input: Map<String, Value>,
) -> Result<ToolOutput, ToolError> {
    #[derive(Deserialize)]
    struct EditInput {
        file_path: String,
        old_string: String,
        new_string: String,
        replace_all: Option<bool>,
    }
    let EditInput { file_path, old_string, new_string, replace_all } = arguments(input)?;
    let path = absolute(&file_path)?;
    let (response, len) = open(workspace, &path, &file_path).await?;
    if len > FILE_BYTES_MAX {
        return Err(ToolError::model(format!(
            "{file_path} is {len} bytes, exceeds {FILE_BYTES_MAX}-byte limit. The edit tool loads \
             the whole file and cannot modify a file this large."
        )));
    }
    let old = text(read_body(response, &file_path).await?, &file_path)?;
    let is_all = replace_all == Some(true);
    let (new, count) = replaced(&old, &old_string, &new_string, is_all)
        .map_err(|why| ToolError::model(why.replace("{file}", &file_path)))?;
    store(workspace, &path, &file_path, new).await?;
    Ok(ToolOutput::text(format!("edited {file_path} ({count} replacement(s))")))
}

/// Returns a text with a piece replaced, and the number of replacements; `{file}` stands for the
/// file in an error.
fn replaced(text: &str, old: &str, new: &str, all: bool) -> Result<(String, usize), String> {
    if old.is_empty() {
        return Err("old_string is empty; use write to replace all of {file}".to_owned());
    }
    let result = match text.matches(old).count() {
        0 => return Err("old_string not found in {file}".to_owned()),
        count if count > 1 && !all => {
            return Err(format!("old_string appears {count} times in {{file}} (must be unique)"));
        }
        count => (text.replace(old, new), count),
    };
    // Each replacement by a longer text makes the file larger.
    if result.0.len() > WRITE_BYTES_MAX {
        return Err(format!("the result has more than {WRITE_BYTES_MAX} bytes"));
    }
    Ok(result)
}

/// Opens a file; returns the response and the length of the file.
async fn open(
    workspace: &ServingSession,
    path: &str,
    path_text: &str,
) -> Result<(ClientResponse, u64), ToolError> {
    let path = workspace.path(&format!("/files/{}", escaped(path)));
    let mut request = workspace.server.request(Method::GET, &path);
    request.timeout = FILE_TIMEOUT;
    request.response_bytes_max = u64::MAX;
    let response = workspace.server.open(request).await;
    let response = response.map_err(|failure| ToolError::of(failure, path_text))?;
    let len = response.headers.get(header::CONTENT_LENGTH);
    let len = len.and_then(|len| len.to_str().ok()?.parse().ok()).unwrap_or(u64::MAX);
    Ok((response, len))
}

/// Reads a file whose length was checked.
async fn read_body(response: ClientResponse, path_text: &str) -> Result<Vec<u8>, ToolError> {
    let bytes = response.bytes().await;
    bytes.map_err(|error| {
        ToolError::model(format!("{path_text}: the file changed or broke off: {error}"))
    })
}

fn text(bytes: Vec<u8>, path_text: &str) -> Result<String, ToolError> {
    String::from_utf8(bytes).map_err(|_| {
        ToolError::model(format!(
            "{path_text}: not valid UTF-8 text (binary files are only supported for image/PDF \
             extensions)"
        ))
    })
}

async fn store(
    workspace: &ServingSession,
    path: &str,
    path_text: &str,
    content: String,
) -> Result<(), ToolError> {
    // A replaced file keeps its permissions, such as the executable bit.
    let stat = workspace.path(&format!("/files/{}?stat=true", escaped(path)));
    let before = workspace.server.call::<api::FileEntry>(Method::GET, &stat).await.ok();
    let mode = before.filter(|entry| entry.kind == "file");
    let mode = mode.map(|entry| format!("?mode={:o}", entry.mode & 0o777)).unwrap_or_default();
    let target = workspace.path(&format!("/files/{}{mode}", escaped(path)));
    let mut request = workspace.server.request(Method::PUT, &target);
    request.body = content.into();
    request.timeout = FILE_TIMEOUT;
    let stored = workspace.server.ask_maybe(request).await;
    stored.map(drop).map_err(|failure| ToolError::of(failure, path_text))
}

/// Requested lines, counted from 0.
#[derive(Clone, Copy, Debug)]
struct LineRange {
    first: u64,
    /// Line after the last one.
    end: u64,
}

impl LineRange {
    /// Converts numbers that start at 1 and include the last; a last number of 0 or less means the
    /// end of the file.
    fn new(first: i64, last: i64) -> LineRange {
        let first = u64::try_from(first.saturating_sub(1)).unwrap_or(0);
        let end = if last > 0 { last.unsigned_abs() } else { u64::MAX };
        LineRange { first, end }
    }
}

/// Selects lines of a file that arrives in pieces.
#[derive(Debug)]
struct LinePicker {
    range: LineRange,
    line: u64,
    picked: Vec<u8>,
}

impl LinePicker {
    fn new(range: LineRange) -> LinePicker {
        LinePicker { range, line: 0, picked: Vec::new() }
    }

    fn is_done(&self) -> bool {
        self.line >= self.range.end || self.range.first >= self.range.end
    }

    /// Adds a piece; returns false if the selection exceeds the limit.
    fn push(&mut self, piece: &[u8]) -> bool {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.is_done() {
                break;
            }
            let is_wanted = self.line >= self.range.first;
            if part.last() == Some(&b'\n') {
                self.line += 1;
            }
            if is_wanted {
                self.picked.extend_from_slice(part);
                if self.picked.len() as u64 > FILE_BYTES_MAX {
                    return false;
                }
            }
        }
        true
    }

    /// Returns the lines, without the last line end if another line follows.
    fn finish(mut self) -> Vec<u8> {
        if self.line >= self.range.end && self.picked.last() == Some(&b'\n') {
            self.picked.pop();
        }
        self.picked
    }
}

async fn read_lines(
    mut response: ClientResponse,
    range: LineRange,
    path_text: &str,
) -> Result<Vec<u8>, ToolError> {
    let mut picker = LinePicker::new(range);
    while !picker.is_done() {
        let piece = response.chunk().await.map_err(|error| {
            ToolError::model(format!("{path_text}: the file changed or broke off: {error}"))
        })?;
        let Some(piece) = piece else { break };
        if !picker.push(&piece) {
            return Err(ToolError::model(format!(
                "view_range of {path_text} exceeds {FILE_BYTES_MAX}-byte limit. Narrow the view_range \
                 to read a smaller portion."
            )));
        }
    }
    Ok(picker.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_is_unique_or_of_all() {
        let check = |old: &str, all: bool, expected: Result<(&str, usize), &str>| {
            let result = replaced("a b a", old, "x", all);
            let result = result.as_ref().map(|(text, count)| (text.as_str(), *count));
            assert_eq!(result.map_err(String::as_str), expected, "{old:?}");
        };
        check("b", false, Ok(("a x a", 1)));
        check("a", true, Ok(("x b x", 2)));
        check("a", false, Err("old_string appears 2 times in {file} (must be unique)"));
        check("c", true, Err("old_string not found in {file}"));
        check("", true, Err("old_string is empty; use write to replace all of {file}"));
        assert!(replaced(&"a".repeat(1000), "a", &"b".repeat(20 << 10), true).is_err());
    }

    #[test]
    fn lines_are_picked_over_the_borders_of_pieces() {
        let file = b"one\ntwo\nthree\n";
        for (first, last, expected) in [
            (1, 1, "one"),
            (1, 2, "one\ntwo"),
            (2, 0, "two\nthree\n"),
            (3, 9, "three\n"),
            (0, -1, "one\ntwo\nthree\n"),
            (-5, 1, "one"),
            (5, 9, ""),
            (3, 2, ""),
            (i64::MIN, i64::MAX, "one\ntwo\nthree\n"),
        ] {
            for size in 1..=file.len() {
                let mut picker = LinePicker::new(LineRange::new(first, last));
                for piece in file.chunks(size) {
                    assert!(picker.push(piece));
                }
                let picked = String::from_utf8(picker.finish()).unwrap();
                assert_eq!(picked, expected, "[{first}, {last}] in pieces of {size}");
            }
        }
        let mut long = LinePicker::new(LineRange::new(1, 1));
        assert!((0..10).any(|_| !long.push(&[b'x'; 64 << 10])));
    }
}
