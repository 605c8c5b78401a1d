//! Turns the bodies of `/run_code` and `/run_jupyter` into an execution. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{BytesEncoding, ErrorCode, ExecutionRequest, LanguageView, LimitSpec, SourceFile};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cells::PYTHON_CELLS;
use node::http::HttpError;
use serde::Deserialize;
use serde_json::json;

use super::dialects::{self, DialectRefusal, FusionLanguage, FusionStages};
use super::{SandboxFusionConfig, SandboxFusionFailure};
use crate::error::RequestRefusal;
use crate::faces::{entry_name, excerpt, from_base64};
use crate::limits::LimitTable;
use crate::plan::ExecutionPlanner;

/// Default time limits of a request, in seconds.
const TIMEOUT_S: f64 = 10.0;
/// Default time limit of a notebook, in seconds.
const NOTEBOOK_TIMEOUT_S: f64 = 45.0;
/// Longest wait for a place, regardless of the request.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Maximum number of cells of a notebook.
const CELLS_MAX: usize = 1000;
/// Directory of programs.
const WORKSPACE: &str = "/workspace/";
/// Files with this text in their names are not placed.
const IGNORED: &str = "IGNORE_THIS_FILE";
/// Driver that runs the cells of a notebook.
const NOTEBOOK_DRIVER: &str = include_str!("notebook.py");

/// Exit code of [`PYTEST_RUNNER`] if pytest is not installed.
pub(super) const NO_PYTEST: i32 = 93;
/// Starts pytest on the file that is its argument.
const PYTEST_RUNNER: &str = "import sys\n\
    try:\n    import pytest\n\
    except ImportError:\n    sys.exit(93)\n\
    sys.exit(pytest.main(sys.argv[1:]))\n";

/// Body of `/run_code`. Null values count as absent: verl's function sends such limits.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunCodeBody {
    compile_timeout: Option<f64>,
    run_timeout: Option<f64>,
    #[serde(rename = "memory_limit_MB")]
    memory_limit_mb: Option<f64>,
    code: Option<String>,
    stdin: Option<String>,
    language: Option<String>,
    files: Option<BTreeMap<String, Option<String>>>,
    fetch_files: Option<Vec<String>>,
}

/// Body of `/run_jupyter`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NotebookBody {
    cells: Option<Vec<String>>,
    cell_timeout: Option<f64>,
    total_timeout: Option<f64>,
    #[serde(rename = "memory_limit_MB")]
    memory_limit_mb: Option<f64>,
    kernel: Option<String>,
    files: Option<BTreeMap<String, Option<String>>>,
    fetch_files: Option<Vec<String>>,
}

/// Execution to run, with the parts of the request that its answer needs.
#[derive(Debug)]
pub(super) struct PlannedRun {
    pub(super) request: ExecutionRequest,
    /// Longest wait for a place.
    pub(super) wait_max: Duration,
    /// Name of the language.
    pub(super) language: &'static str,
    /// Stages that the answer shows.
    pub(super) stages: FusionStages,
    /// Names of files to return, as the caller wrote them and relative to the workspace.
    pub(super) fetched: Vec<FetchedName>,
    /// Cells of a notebook.
    pub(super) cells: usize,
    /// True if a cell may kill the program by `SIGALRM`, when its time is over.
    pub(super) has_cell_timeout: bool,
}

/// Name of a file to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FetchedName {
    pub(super) requested: String,
    pub(super) inside: String,
}

/// Plans a program.
pub(super) fn plan_code(
    body: RunCodeBody,
    languages: &[LanguageView],
    planner: &ExecutionPlanner,
    config: &SandboxFusionConfig,
) -> Result<PlannedRun, SandboxFusionFailure> {
    let missing = |field: &str| HttpError::invalid("Field required").at(field);
    let code = body.code.ok_or_else(|| missing("code"))?;
    let name = body.language.ok_or_else(|| missing("language"))?;
    let (language, view) = chosen(&name, languages)?;
    let [compile_ms, run_ms] =
        [body.compile_timeout, body.run_timeout].map(|time| millis(time.unwrap_or(TIMEOUT_S)));
    let memory_bytes = body.memory_limit_mb.and_then(memory_bytes);
    let limits = |table, wall_ms| {
        planner.rules(table).clamped(&LimitSpec {
            wall_ms: Some(wall_ms),
            // Only wall time is limited; threads may use more CPU time than that.
            cpu_ms: Some(u64::MAX),
            output_bytes: Some(config.output_max_size),
            ..LimitSpec::default()
        })
    };
    // A compiler without a stage of its own has the time of the program, as in SandboxFusion.
    let compile_ms_inside = if language.stages == FusionStages::Both { compile_ms } else { run_ms };
    let mut compile_limits = limits(LimitTable::Compile, compile_ms_inside);
    if view.preparing {
        // The requested limits are meant for a compiler that has its prepared files.
        compile_limits = LimitSpec { wall_ms: None, cpu_ms: None, ..compile_limits };
    }
    let memory = LimitSpec { memory_bytes, ..LimitSpec::default() };
    let memory_bytes = planner.rules(LimitTable::Run).clamped(&memory).memory_bytes;
    let limits = LimitSpec { memory_bytes, ..limits(LimitTable::Run, run_ms) };

    let mut files = placed(body.files.unwrap_or_default())?;
    let entry = entry_name(&view.name, &view.extensions);
    let (code_name, args) = match language.name {
        // Its public class has the name of the file.
        dialects::JAVA => {
            files.retain(|file| file.name != entry);
            (entry, Vec::new())
        }
        dialects::PYTEST => {
            let runner = unused(&entry, &files);
            files.insert(0, text_file(runner, PYTEST_RUNNER));
            let tests = unused("code.py", &files);
            (tests.clone(), vec![tests])
        }
        _ => (unused(&entry, &files), Vec::new()),
    };
    let at = usize::from(language.name == dialects::PYTEST);
    files.insert(at, text_file(code_name, &code));
    let fetched = fetched(body.fetch_files.unwrap_or_default())?;
    let env = match language.name {
        dialects::JAVA => BTreeMap::from([("JDK_JAVA_OPTIONS".to_owned(), "-ea".to_owned())]),
        _ => BTreeMap::new(),
    };
    let compile_args = language.compile_args.iter().filter(|_| view.compiled);
    let request = ExecutionRequest {
        language: Some(view.name.clone()),
        files,
        args,
        compile_args: compile_args.map(|&argument| argument.to_owned()).collect(),
        stdin: body.stdin,
        env,
        limits,
        compile_limits,
        outputs: outputs(&fetched),
        ..ExecutionRequest::default()
    };
    let compile_wait = if language.stages == FusionStages::Both { 0 } else { compile_ms };
    Ok(PlannedRun {
        request,
        wait_max: wait(config, compile_wait),
        language: language.name,
        stages: language.stages,
        fetched,
        cells: 0,
        has_cell_timeout: false,
    })
}

/// Plans a notebook: one program that runs all cells.
pub(super) fn plan_notebook(
    body: NotebookBody,
    languages: &[LanguageView],
    planner: &ExecutionPlanner,
    config: &SandboxFusionConfig,
) -> Result<PlannedRun, SandboxFusionFailure> {
    let cells = body.cells.ok_or_else(|| HttpError::invalid("Field required").at("cells"))?;
    if body.kernel.as_deref().is_some_and(|kernel| kernel != "python3") {
        return Err(HttpError::invalid("Input should be 'python3'").at("kernel").into());
    }
    if cells.len() > CELLS_MAX {
        let message = format!("has more than {CELLS_MAX} cells");
        return Err(RequestRefusal::invalid("cells", message).into());
    }
    let (_, view) = chosen("python", languages)?;
    let cell_ms = body.cell_timeout.map_or(0, millis);
    let requested = LimitSpec {
        wall_ms: Some(millis(body.total_timeout.unwrap_or(NOTEBOOK_TIMEOUT_S))),
        cpu_ms: Some(u64::MAX),
        memory_bytes: body.memory_limit_mb.and_then(memory_bytes),
        output_bytes: Some(config.notebook_max_size),
        ..LimitSpec::default()
    };
    let limits = planner.rules(LimitTable::Run).clamped(&requested);
    let mut files = placed(body.files.unwrap_or_default())?;
    let entry = unused(&entry_name(&view.name, &view.extensions), &files);
    files.insert(0, text_file(entry, &format!("{PYTHON_CELLS}\n{NOTEBOOK_DRIVER}")));
    let fetched = fetched(body.fetch_files.unwrap_or_default())?;
    let cell_timeout = Duration::from_millis(cell_ms.min(u64::from(u32::MAX))).as_secs_f64();
    let request = ExecutionRequest {
        language: Some(view.name),
        files,
        stdin: Some(json!({"cells": cells, "cell_timeout": cell_timeout}).to_string()),
        limits,
        outputs: outputs(&fetched),
        ..ExecutionRequest::default()
    };
    Ok(PlannedRun {
        request,
        wait_max: wait(config, 0),
        language: "python",
        stages: FusionStages::RunOnly,
        fetched,
        cells: cells.len(),
        has_cell_timeout: cell_ms > 0,
    })
}

/// Returns a refusal of Cove, with SandboxFusion's field names.
pub(super) fn refusal(refusal: &RequestRefusal) -> String {
    let RequestRefusal { field, message, .. } = refusal;
    match field.as_str() {
        "" => message.clone(),
        "outputs" => format!("fetch_files: {message}"),
        field => format!("{field}: {message}"),
    }
}

fn chosen(
    name: &str,
    languages: &[LanguageView],
) -> Result<(FusionLanguage, LanguageView), SandboxFusionFailure> {
    dialects::choose(name, languages).map_err(|refusal| match refusal {
        DialectRefusal::Unknown(message) => {
            HttpError::new(ErrorCode::UnknownLanguage, message).at("language").into()
        }
        DialectRefusal::NotHere(message) => SandboxFusionFailure::Refused(message),
    })
}

/// Converts to whole milliseconds, saturating.
fn millis(seconds: f64) -> u64 {
    if seconds <= 0.0 {
        return 0;
    }
    let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Converts a memory limit; None unless it is positive.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is positive, and `as` saturates"
)]
fn memory_bytes(mebibytes: f64) -> Option<u64> {
    (mebibytes > 0.0).then(|| (mebibytes as u64).saturating_mul(1 << 20))
}

/// Returns the time that a caller waits for a place.
fn wait(config: &SandboxFusionConfig, more_ms: u64) -> Duration {
    Duration::from_millis(millis(config.queue_timeout_s).saturating_add(more_ms)).min(WAIT_MAX)
}

fn text_file(name: String, content: &str) -> SourceFile {
    SourceFile { name, content: content.to_owned(), ..SourceFile::default() }
}

/// Returns `name`, or a similar one that no file has: SandboxFusion gives the code a random name.
fn unused(name: &str, files: &[SourceFile]) -> String {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let is_free = |candidate: &String| files.iter().all(|file| file.name != *candidate);
    let others = (1..=files.len()).map(|number| match extension {
        "" => format!("{stem}{number}"),
        extension => format!("{stem}{number}.{extension}"),
    });
    // One more name than there are files, so at least one is free.
    std::iter::once(name.to_owned()).chain(others).find(is_free).unwrap_or_default()
}

fn placed(files: BTreeMap<String, Option<String>>) -> Result<Vec<SourceFile>, RequestRefusal> {
    let mut placed = Vec::with_capacity(files.len());
    for (path, content) in files {
        let Some(content) = content.filter(|_| !path.contains(IGNORED)) else { continue };
        let field = || format!("files[{:?}]", excerpt(&path));
        let name = inside(&path).map_err(|message| RequestRefusal::invalid(field(), message))?;
        let bytes = from_base64(&content)
            .ok_or_else(|| RequestRefusal::invalid(field(), "is not base64"))?;
        let content = BASE64.encode(bytes);
        placed.push(SourceFile {
            name,
            content,
            encoding: BytesEncoding::Base64,
            executable: false,
        });
    }
    Ok(placed)
}

fn fetched(names: Vec<String>) -> Result<Vec<FetchedName>, RequestRefusal> {
    let name = |path: String| {
        let field = || format!("fetch_files[{:?}]", excerpt(&path));
        let inside = inside(&path).map_err(|it| RequestRefusal::invalid(field(), it))?;
        Ok(FetchedName { requested: path, inside })
    };
    names.into_iter().map(name).collect()
}

/// Returns the names in the workspace, each once.
fn outputs(fetched: &[FetchedName]) -> Vec<String> {
    let mut names: Vec<String> = fetched.iter().map(|name| name.inside.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the name relative to the workspace.
fn inside(name: &str) -> Result<String, &'static str> {
    const OUTSIDE: &str = "is outside of the program's directory; use a relative path";
    let relative = name.strip_prefix(WORKSPACE).unwrap_or(name);
    if relative.starts_with('/') {
        return Err(OUTSIDE);
    }
    let mut parts = Vec::new();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or(OUTSIDE)?;
            }
            part => parts.push(part),
        }
    }
    if parts.is_empty() { Err("names no file") } else { Ok(parts.join("/")) }
}

#[cfg(test)]
mod tests;
