//! A cell of a session's code interpreter: what `run_code` does with a `session`.

use std::fmt::Write as _;

use axum::http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::code::milliseconds;
use super::{ToolOutcome, ToolResult, parse_arguments, session_path};
use crate::content::{self, IN_PATH};
use crate::native::NativeApi;

/// Argument of `run_code` that runs a program as a cell of a session.
pub(crate) const SESSION: &str = "session";

/// Default time limit of a cell, in seconds.
const CELL_SECONDS: f64 = 120.0;

/// Representations that are shown to a model as text, the best first.
const TEXT_TYPES: [&str; 4] = ["text/markdown", "text/plain", "text/latex", "application/json"];

/// Representations that are shown to a model as images.
const IMAGE_TYPES: [&str; 2] = ["image/png", "image/jpeg"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunCell {
    session: String,
    language: String,
    code: String,
    timeout_s: Option<f64>,
}

pub(super) async fn run(api: &NativeApi, args: Map<String, Value>) -> ToolOutcome {
    let args: RunCell = parse_arguments(args)?;
    // Programs use the short name.
    let language = if args.language == "py" { "python" } else { args.language.as_str() };
    let context = percent_encoding::utf8_percent_encode(language, IN_PATH);
    let path = format!("{}/contexts/{context}/execute", session_path(&args.session)?);
    let body = json!({
        "code": args.code,
        "timeout_ms": milliseconds(args.timeout_s.unwrap_or(CELL_SECONDS))?,
    });
    let report = api.json(Method::POST, &path, Some(&body)).await.map_err(ToolResult::from)?;
    Ok(tool_result(report))
}

/// Returns the result of a cell for a model.
fn tool_result(mut report: Value) -> ToolResult {
    let mut text = content::output_text(&report);
    let mut images = Vec::new();
    for result in report["results"].as_array_mut().into_iter().flatten() {
        let Some(data) = result["data"].as_object_mut() else { continue };
        let mut has_image = false;
        for media_type in IMAGE_TYPES {
            if let Some(Value::String(image)) = data.remove(media_type) {
                images.push(content::image(&image, media_type));
                has_image = true;
            }
        }
        // The image is more informative than the text form of its object.
        let best = TEXT_TYPES.iter().find_map(|media_type| data.get(*media_type));
        if let (Some(best), false) = (best, has_image) {
            let best = best.as_str().map_or_else(|| best.to_string(), str::to_owned);
            let _infallible = writeln!(text, "{}", content::cut(&best));
        }
        for (_, value) in data.iter_mut() {
            match value {
                Value::String(long) => *long = content::cut(long),
                other => {
                    let long = other.to_string();
                    if long.len() > content::HEAD_BYTES {
                        *other = Value::String(content::cut(&long));
                    }
                }
            }
        }
    }
    if let Some(error) = report["error"].as_object() {
        let of = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        let traceback = of("traceback");
        let _infallible = match traceback.is_empty() {
            true => writeln!(text, "{}: {}", of("name"), of("value")),
            false => writeln!(text, "{}", content::cut(traceback)),
        };
    }
    let verdict = report["verdict"].as_str().unwrap_or("IE");
    let milliseconds = report["wall_ms"].as_u64().unwrap_or_default();
    let _infallible = write!(text, "[verdict {verdict}, {milliseconds} ms]");
    if report["context_ended"] == true {
        text.push_str("\nThe interpreter was ended: the definitions of earlier cells are lost.");
    }
    content::cut_output(&mut report);
    let mut blocks = vec![content::text(&text)];
    blocks.extend(images);
    ToolResult { content: blocks, structured: Some(report), is_error: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(report: Value, text: &str, images: usize) {
        let result = tool_result(report);
        assert_eq!(result.content[0]["text"], text);
        assert_eq!(result.content.len() - 1, images);
        let document = result.structured.unwrap().to_string();
        assert!(!document.contains("aW1hZ2U="), "{document}");
    }

    #[test]
    fn a_model_is_shown_output_values_and_pictures() {
        let plot = json!({ "is_main_result": false, "data": {
            "text/plain": "<Figure>", "image/png": "aW1hZ2U=", "e2b/chart": { "type": "line" },
        } });
        let value = json!({ "is_main_result": true, "data": { "text/plain": "42" } });
        check(
            json!({
                "execution_count": 1, "stdout": "hello\n", "stderr": "", "results": [plot, value],
                "truncated": false, "verdict": "OK", "wall_ms": 7, "context_ended": false,
            }),
            "hello\n42\n[verdict OK, 7 ms]",
            1,
        );
    }

    #[test]
    fn a_model_is_shown_why_a_cell_failed() {
        let error =
            |traceback: &str| json!({ "name": "E", "value": "why", "traceback": traceback });
        check(
            json!({ "error": error("Traceback: line 1"), "verdict": "RE", "wall_ms": 1 }),
            "Traceback: line 1\n[verdict RE, 1 ms]",
            0,
        );
        check(
            json!({ "error": error(""), "verdict": "TLE", "wall_ms": 1, "context_ended": true }),
            "E: why\n[verdict TLE, 1 ms]\nThe interpreter was ended: the definitions of \
             earlier cells are lost.",
            0,
        );
    }
}
