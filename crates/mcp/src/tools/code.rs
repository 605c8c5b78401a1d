//! The tool that runs a program once, or as a cell of a session.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolOutcome, ToolResult, cell, parse_arguments};
use crate::content;
use crate::native::NativeApi;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunCode {
    language: String,
    code: String,
    stdin: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    outputs: Vec<String>,
    timeout_s: Option<f64>,
    memory_mb: Option<u64>,
}

pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["language", "code"],
        "properties": {
            "language": {
                "type": "string",
                "description": "py, js, ts, bash, c, cpp, go, rust, java …; a wrong name lists all",
            },
            "code": { "type": "string", "description": "The program, one file" },
            "session": {
                "type": "string",
                "description": "Run it as a cell of this session (py, js, ts, bash), which keeps \
                                variables; then of the others only timeout_s",
            },
            "stdin": { "type": "string", "description": "Its standard input" },
            "args": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Its arguments",
            },
            "files": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "More files in its working directory: text by name",
            },
            "outputs": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Files that it writes and you want to see, images too",
            },
            "timeout_s": { "type": "number", "description": "Seconds after which it is ended" },
            "memory_mb": { "type": "integer", "description": "Memory limit in MiB" },
        },
    })
}

pub(super) async fn run(api: &NativeApi, args: Map<String, Value>) -> ToolOutcome {
    if args.contains_key(cell::SESSION) {
        return cell::run(api, args).await;
    }
    let body = request(args)?;
    let path = "/v1/executions?wait=true";
    let result = api.json(Method::POST, path, Some(&body)).await.map_err(ToolResult::from)?;
    Ok(tool_result(result))
}

/// Converts arguments to a request for an execution.
///
/// # Errors
/// If they cannot be parsed.
pub(crate) fn request(args: Map<String, Value>) -> Result<Value, ToolResult> {
    let args: RunCode = parse_arguments(args)?;
    let mut body = json!({
        "language": args.language,
        "source": args.code,
        "args": args.args,
        "outputs": args.outputs,
        "stdin": args.stdin,
        "files": args
            .files
            .iter()
            .map(|(name, content)| json!({ "name": name, "content": content }))
            .collect::<Vec<_>>(),
    });
    let mut limits = Map::new();
    if let Some(seconds) = args.timeout_s {
        let milliseconds = json!(milliseconds(seconds)?);
        limits.insert("wall_ms".to_owned(), milliseconds.clone());
        limits.insert("cpu_ms".to_owned(), milliseconds);
    }
    if let Some(megabytes) = args.memory_mb {
        limits.insert("memory_bytes".to_owned(), json!(megabytes.saturating_mul(1 << 20)));
    }
    if let (false, Some(fields)) = (limits.is_empty(), body.as_object_mut()) {
        fields.insert("limits".to_owned(), Value::Object(limits));
    }
    Ok(body)
}

/// Converts seconds to whole milliseconds.
pub(super) fn milliseconds(seconds: f64) -> Result<u64, ToolResult> {
    let wanted = std::time::Duration::try_from_secs_f64(seconds);
    let milliseconds = wanted.ok().and_then(|wanted| u64::try_from(wanted.as_millis()).ok());
    milliseconds.filter(|it| *it > 0).ok_or_else(|| {
        ToolResult::error(&format!("timeout_s must be a time above 0 in seconds, not {seconds}"))
    })
}

/// Returns the result of an execution for a model.
pub(crate) fn tool_result(mut result: Value) -> ToolResult {
    let mut text = content::output_text(&result);
    let verdict = result["verdict"].as_str().unwrap_or("IE").to_owned();
    let milliseconds = result["wall_ms"].as_f64().unwrap_or_default();
    let _infallible = write!(text, "[verdict {verdict}");
    if let Some(code) = result["exit_code"].as_i64() {
        let _infallible = write!(text, ", exit code {code}");
    }
    if let Some(signal) = result["signal"].as_str() {
        let _infallible = write!(text, ", ended by {signal}");
    }
    if let Some(limit) = result["limit"].as_str() {
        let _infallible = write!(text, ", limit {limit}");
    }
    let _infallible = write!(text, ", {milliseconds:.0} ms]");
    if let Some(message) = result["message"].as_str() {
        let _infallible = write!(text, "\n{message}");
    }
    let mut blocks = vec![content::text(&text)];
    blocks.extend(output_files(&mut result));
    shorten(&mut result);
    ToolResult { content: blocks, structured: Some(result), is_error: false }
}

/// Removes duplicates from the document, and cuts its output as in the text.
fn shorten(result: &mut Value) {
    content::cut_output(result);
    let Some(fields) = result.as_object_mut() else { return };
    for name in ["stdout_base64", "stderr_base64", "stages"] {
        fields.remove(name);
    }
}

/// Returns blocks of the requested files. Images are removed from the document to avoid duplicates.
fn output_files(result: &mut Value) -> Vec<Value> {
    use base64::Engine as _;
    let Some(files) = result["files"].as_array_mut() else { return Vec::new() };
    let mut blocks = Vec::new();
    for file in files {
        let name = file["name"].as_str().unwrap_or_default().to_owned();
        let Some(data) = file["content"].as_str().map(str::to_owned) else {
            let why = file["error"].as_str().unwrap_or("it could not be read");
            blocks.push(content::text(&format!("{name}: {why}")));
            continue;
        };
        if file["encoding"] != "base64" {
            blocks.push(content::text(&format!("{name}:\n{}", content::cut(&data))));
            continue;
        }
        let bytes = base64::prelude::BASE64_STANDARD.decode(&data).unwrap_or_default();
        match content::image_type(&bytes) {
            Some(media_type) => {
                blocks.push(content::image(&data, media_type));
                if let Some(fields) = file.as_object_mut() {
                    fields.insert("content".to_owned(), Value::Null);
                }
            }
            None => {
                let size = bytes.len();
                blocks.push(content::text(&format!("{name}: {size} bytes that are not text")));
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(result: Value) -> String {
        tool_result(result).content[0]["text"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_model_is_shown_output_and_verdict() {
        let ended = json!({
            "verdict": "RE", "exit_code": 3, "stdout": "a", "stderr": "b\n", "wall_ms": 12.4,
            "limit": null, "signal": null, "stages": [],
        });
        assert_eq!(text_of(ended), "a\nstandard error:\nb\n[verdict RE, exit code 3, 12 ms]");
    }

    #[test]
    fn images_are_shown_once_and_as_images() {
        let png =
            base64::Engine::encode(&base64::prelude::BASE64_STANDARD, b"\x89PNG\r\n\x1a\nrest");
        let result = tool_result(json!({
            "verdict": "OK", "stdout": "", "stderr": "", "wall_ms": 1, "stages": [],
            "files": [
                { "name": "a.png", "content": png, "encoding": "base64" },
                { "name": "b.txt", "content": "text", "encoding": "utf8" },
                { "name": "c", "content": null, "encoding": "utf8", "error": "missing" },
            ],
        }));
        assert_eq!(result.content[1]["mimeType"], "image/png");
        assert_eq!(result.content[2]["text"], "b.txt:\ntext");
        assert_eq!(result.content[3]["text"], "c: missing");
        assert_eq!(result.structured.unwrap()["files"][0]["content"], Value::Null);
    }

    #[test]
    fn a_time_is_above_nothing() {
        assert_eq!(milliseconds(1.5).unwrap(), 1_500);
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e30] {
            assert!(milliseconds(seconds).is_err(), "{seconds}");
        }
    }
}
