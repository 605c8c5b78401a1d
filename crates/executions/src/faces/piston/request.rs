//! Turns the body of `/execute` and `/connect` into an execution, with Piston's own error messages.

use api::{BytesEncoding, ExecutionRequest, LanguageView, LimitSpec, SourceFile};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::PistonConfig;
use super::runtimes::{self, PistonRuntime};
use crate::error::RequestRefusal;
use crate::faces::{entry_name, excerpt, from_base64};

/// Job to run.
#[derive(Debug)]
pub(super) struct PistonJob {
    /// Runtime that it runs on.
    pub(super) runtime: PistonRuntime,
    /// Request to run. For `/connect` it does not contain standard input.
    pub(super) request: ExecutionRequest,
}

/// Checks a body in the same order as Piston.
pub(super) fn parse(
    body: &Value,
    languages: &[LanguageView],
    config: &PistonConfig,
) -> Result<PistonJob, String> {
    let none = Map::new();
    let body = body.as_object().unwrap_or(&none);
    let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|it| !it.is_empty());
    let language = text("language").ok_or("language is required as a string")?;
    let version = text("version").ok_or("version is required as a string")?;
    let files = body.get("files").and_then(Value::as_array);
    let files = files.ok_or("files is required as an array")?;
    for (index, file) in files.iter().enumerate() {
        if file.get("content").and_then(Value::as_str).is_none() {
            return Err(format!("files[{index}].content is required as a string"));
        }
    }
    let runtime = runtimes::choose(languages, language, version)
        .ok_or_else(|| format!("{}-{} runtime is unknown", excerpt(language), excerpt(version)))?;
    let Some(main) = files.iter().position(is_utf8) else {
        return Err("files must include at least one utf8 encoded file".to_owned());
    };
    let mut limits = limits(body, config)?;
    if runtime.cove.preparing {
        // The configured limits are meant for a compiler that has its prepared files.
        let is_set = |name: &str| body.get(name).is_some_and(|value| !value.is_null());
        limits.0.wall_ms = limits.0.wall_ms.filter(|_| is_set("compile_timeout"));
        limits.0.cpu_ms = limits.0.cpu_ms.filter(|_| is_set("compile_cpu_time"));
    }
    let files = place(files, main, &runtime)?;
    let request = ExecutionRequest {
        language: Some(runtime.cove.name.clone()),
        files,
        args: args(body)?,
        stdin: Some(stdin(body)?),
        env: [("PISTON_LANGUAGE".to_owned(), runtime.language.clone())].into(),
        limits: LimitSpec { output_bytes: Some(config.output_max_size), ..limits.1 },
        compile_limits: LimitSpec { output_bytes: Some(config.output_max_size), ..limits.0 },
        ..ExecutionRequest::default()
    };
    Ok(PistonJob { runtime, request })
}

/// Returns the encoding; an unknown one counts as UTF-8.
fn encoding(file: &Value) -> &str {
    match file.get("encoding").and_then(Value::as_str) {
        Some(known @ ("base64" | "hex")) => known,
        _ => "utf8",
    }
}

fn is_utf8(file: &Value) -> bool {
    encoding(file) == "utf8"
}

fn args(body: &Map<String, Value>) -> Result<Vec<String>, String> {
    match body.get("args") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list
            .iter()
            .enumerate()
            .map(|(index, word)| match word {
                Value::String(word) => Ok(word.clone()),
                Value::Number(number) => Ok(number.to_string()),
                _ => Err(format!("args[{index}] must be a string")),
            })
            .collect(),
        Some(_) => Err("If specified, args must be an array".to_owned()),
    }
}

/// Returns standard input, which always ends with a line end, even if it is empty.
fn stdin(body: &Map<String, Value>) -> Result<String, String> {
    let mut text = match body.get("stdin") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(_) => return Err("If specified, stdin must be a string".to_owned()),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Returns the limits of the compile and of the run stage.
fn limits(
    body: &Map<String, Value>,
    config: &PistonConfig,
) -> Result<(LimitSpec, LimitSpec), String> {
    let mut stages = [LimitSpec::default(), LimitSpec::default()];
    // The order of the original: it determines which of two errors is reported.
    for (kind, [of_compile, of_run]) in [
        ("memory_limit", [config.compile_memory_limit, config.run_memory_limit]),
        ("timeout", [config.compile_timeout, config.run_timeout].map(Some)),
        ("cpu_time", [config.compile_cpu_time, config.run_cpu_time].map(Some)),
    ] {
        for ((stage, name), configured) in
            stages.iter_mut().zip(["compile", "run"]).zip([of_compile, of_run])
        {
            let value = number(body, &format!("{name}_{kind}"), kind, configured)?;
            let field = match kind {
                "memory_limit" => &mut stage.memory_bytes,
                "timeout" => &mut stage.wall_ms,
                _ => &mut stage.cpu_ms,
            };
            *field = value.or(configured);
        }
    }
    let [compile, run] = stages;
    Ok((compile, run))
}

/// Returns a limit of the caller; None if the configured one applies.
fn number(
    body: &Map<String, Value>,
    name: &str,
    kind: &str,
    configured: Option<u64>,
) -> Result<Option<u64>, String> {
    let specified = match body.get(name) {
        None | Some(Value::Null | Value::Bool(false)) => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::Number(number)) => number,
        Some(_) => return Err(format!("If specified, {name} must be a number")),
    };
    let value = specified.as_f64().unwrap_or(f64::INFINITY);
    if value == 0.0 {
        return Ok(None);
    }
    if let Some(configured) = configured
        && specified
            .as_u64()
            .map_or(value > 0.0 && value > as_float(configured), |it| it > configured)
    {
        return Err(format!("{name} cannot exceed the configured limit of {configured}"));
    }
    // -1 means no limit of its own on memory: the server's applies.
    #[expect(clippy::float_cmp, reason = "-1 is a whole number and exact")]
    if kind == "memory_limit" && value == -1.0 {
        return Ok(None);
    }
    if value < 0.0 {
        return Err(format!("{name} must be non-negative"));
    }
    specified.as_u64().or_else(|| rounded_up(value)).map_or_else(
        || Err(format!("If specified, {name} must be a number")),
        |value| Ok(Some(value)),
    )
}

#[expect(clippy::cast_precision_loss, reason = "limits of time and memory are far below 2^53")]
fn as_float(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be between 0 and 2^53, where every whole number is exact"
)]
fn rounded_up(value: f64) -> Option<u64> {
    (0.0..=9_007_199_254_740_992.0).contains(&value).then(|| value.ceil() as u64)
}

/// Returns the files, with the main one, the first in UTF-8, in front.
fn place(files: &[Value], main: usize, runtime: &PistonRuntime) -> Result<Vec<SourceFile>, String> {
    let mut placed = Vec::with_capacity(files.len());
    for (index, file) in files.iter().enumerate() {
        let file_name = match file.get("name") {
            None | Some(Value::Null) => "",
            Some(Value::String(name)) => name,
            Some(_) => return Err(format!("files[{index}].name must be a string")),
        };
        let name = match (file_name, index == main) {
            ("", true) => entry_name(&runtime.cove.name, &runtime.cove.extensions),
            ("", false) => format!("file{index}.code"),
            (file_name, true) => with_extension(normalise(file_name), &runtime.cove),
            (file_name, false) => normalise(file_name),
        };
        let content = file.get("content").and_then(Value::as_str).unwrap_or_default();
        let (content, encoding) = match encoding(file) {
            "base64" => (from_base64(content).map(|it| BASE64.encode(it)), BytesEncoding::Base64),
            "hex" => (from_hex(content).map(|it| BASE64.encode(it)), BytesEncoding::Base64),
            _ => (Some(content.to_owned()), BytesEncoding::Utf8),
        };
        let content = content
            .ok_or_else(|| format!("files[{index}].content is not {}", self::encoding(file)))?;
        placed.push(SourceFile { name, content, encoding, executable: false });
    }
    let main = placed.remove(main);
    placed.insert(0, main);
    Ok(placed)
}

/// Returns the name without empty and `.` parts.
fn normalise(name: &str) -> String {
    let absolute = if name.starts_with('/') { "/" } else { "" };
    let parts: Vec<&str> =
        name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    format!("{absolute}{}", parts.join("/"))
}

/// Adds an extension: compilers depend on it; other tools accept any name.
fn with_extension(name: String, language: &LanguageView) -> String {
    let has = |extension: &String| {
        name.strip_suffix(extension.as_str()).is_some_and(|stem| stem.ends_with('.'))
    };
    match language.extensions.first() {
        Some(extension) if language.compiled && !language.extensions.iter().any(has) => {
            format!("{name}.{extension}")
        }
        // The launcher interprets a name without this extension as a class name.
        None if language.name == runtimes::JAVA_SOURCE && !name.ends_with(".java") => {
            format!("{name}.java")
        }
        _ => name,
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let pair = |pair: &[u32]| match pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    };
    digits?.chunks(2).map(pair).collect()
}

/// Returns a refusal of Cove, with Piston's field names.
pub(super) fn refusal(refusal: &RequestRefusal) -> String {
    let limit = match refusal.field.as_str() {
        "limits.memory_bytes" => "run_memory_limit",
        "limits.wall_ms" => "run_timeout",
        "limits.cpu_ms" => "run_cpu_time",
        "compile_limits.memory_bytes" => "compile_memory_limit",
        "compile_limits.wall_ms" => "compile_timeout",
        "compile_limits.cpu_ms" => "compile_cpu_time",
        "" => return refusal.message.clone(),
        field => return format!("{field} {}", refusal.message),
    };
    let maximum = refusal.message.strip_prefix("must be at most ");
    match maximum.and_then(|rest| rest.split(' ').next()) {
        Some(maximum) => format!("{limit} cannot exceed the configured limit of {maximum}"),
        None => format!("{limit} {}", refusal.message),
    }
}

#[cfg(test)]
mod tests;
