//! The six tools of `agent_toolset_20260401`, run in a Cove session.
//!
//! A failure of a tool is its result, an error that the model reads. [`ToolError::Cove`] is for
//! errors that the model cannot resolve: the Cove server is unavailable, or rejects the worker.
//!
//! # References
//! - <https://platform.claude.com/docs/en/managed-agents/self-hosted-sandboxes-reference>

mod files;
mod search;

use std::time::Duration;

use axum::http::StatusCode;
use node::clock::IdGenerator;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::protocol::{ResultBlock, ToolCall};
use super::shell::{COMMAND_BYTES_MAX, PersistentShell, ShellOutcome};
use super::workspace::ServingSession;
use crate::remote::{FailureKind, RemoteFailure};

/// Maximum timeout that a call may request.
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 60);
/// Base directory of relative paths.
const WORKDIR: &str = "/workspace";
/// Longest path, in bytes (PATH_MAX of Linux).
const PATH_BYTES_MAX: usize = 4096;

/// Result of a call.
#[derive(Debug)]
pub(super) struct ToolOutput {
    pub(super) is_error: bool,
    pub(super) content: Vec<ResultBlock>,
}

impl ToolOutput {
    fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput { is_error: false, content: vec![text_block(text.into())] }
    }

    /// Returns an error result with a message.
    pub(super) fn error(text: impl Into<String>) -> ToolOutput {
        ToolOutput { is_error: true, content: vec![text_block(text.into())] }
    }
}

/// Returns a text block of a result, which must not be empty.
fn text_block(text: String) -> ResultBlock {
    ResultBlock::Text { text: if text.is_empty() { "(no output)".to_owned() } else { text } }
}

/// Reason why there is no result.
#[derive(Debug)]
pub(super) enum ToolError {
    /// An error that the model may resolve.
    Model(String),
    /// An error that only the operator may resolve.
    Cove(RemoteFailure),
}

impl ToolError {
    fn model(message: impl Into<String>) -> ToolError {
        ToolError::Model(message.into())
    }

    /// Converts an error of the server for a tool that requested `what`.
    fn of(failure: RemoteFailure, what: &str) -> ToolError {
        // The token or the session no longer exists, or there was no response for a reason other
        // than the request. A call must not be retried forever because of its content.
        let is_lost = match failure.status {
            Some(status) => [StatusCode::UNAUTHORIZED, StatusCode::GONE].contains(&status),
            None => failure.fault == FailureKind::Unavailable,
        };
        match failure.fault == FailureKind::Lost || is_lost {
            true => ToolError::Cove(failure),
            false => ToolError::Model(format!("{what}: {failure}")),
        }
    }
}

/// Tools of one session, with its shell.
pub(super) struct SessionTools {
    workspace: ServingSession,
    shell: ShellState,
    timeout: Duration,
    nonces: IdGenerator,
}

enum ShellState {
    /// No shell yet, or a new one was requested.
    Fresh,
    Open(Box<PersistentShell>),
    /// The shell ended or was killed: the model must request a new one, so that it knows that the
    /// directory and variables are lost.
    Ended,
}

impl SessionTools {
    /// Returns the tools of a session, whose commands have the default timeout `timeout`.
    pub(super) fn new(
        workspace: ServingSession,
        timeout: Duration,
    ) -> std::io::Result<SessionTools> {
        let nonces = IdGenerator::new()?;
        Ok(SessionTools { workspace, shell: ShellState::Fresh, timeout, nonces })
    }

    /// Runs a call. If the future is dropped, [`SessionTools::abort`] must be called.
    pub(super) async fn run(&mut self, call: &ToolCall) -> Result<ToolOutput, RemoteFailure> {
        let input = call.input.clone();
        let output = match call.name.as_str() {
            "bash" => self.bash(input).await,
            "read" => files::read(&self.workspace, input).await,
            "write" => files::write(&self.workspace, input).await,
            "edit" => files::edit(&self.workspace, input).await,
            "glob" => search::glob(&self.workspace, input).await,
            "grep" => search::grep(&self.workspace, input).await,
            other => Err(ToolError::model(format!("there is no tool `{other}`"))),
        };
        match output {
            Ok(output) => Ok(output),
            Err(ToolError::Model(message)) => {
                Ok(ToolOutput::error(format!("{}: {message}", call.name)))
            }
            Err(ToolError::Cove(failure)) => Err(failure),
        }
    }

    /// Ends anything that a dropped call left running.
    pub(super) async fn abort(&mut self) {
        match std::mem::replace(&mut self.shell, ShellState::Ended) {
            ShellState::Open(shell) => shell.kill().await,
            ShellState::Fresh => self.shell = ShellState::Fresh,
            ShellState::Ended => {}
        }
    }

    /// Reads the server's address again, after a restart elsewhere.
    pub(super) fn rediscover(&mut self) {
        self.workspace.server.rediscover();
    }

    /// Ends the shell, and returns the workspace.
    pub(super) async fn close(mut self) -> ServingSession {
        self.abort().await;
        self.workspace
    }

    async fn bash(&mut self, input: Map<String, Value>) -> Result<ToolOutput, ToolError> {
        #[derive(Deserialize)]
        struct BashInput {
            command: Option<String>,
            restart: Option<bool>,
            timeout_ms: Option<u64>,
        }
        let input: BashInput = arguments(input)?;
        if input.restart == Some(true) {
            self.abort().await;
            self.shell = ShellState::Fresh;
            self.open_shell().await?;
            return Ok(ToolOutput::text("bash session restarted"));
        }
        let command = input.command.filter(|command| !command.is_empty());
        let command = command.ok_or_else(|| ToolError::model("command is required"))?;
        if command.contains('\0') {
            return Err(ToolError::model("command has a NUL character"));
        }
        if command.len() > COMMAND_BYTES_MAX {
            return Err(ToolError::model(format!(
                "command has more than {COMMAND_BYTES_MAX} bytes; write it into a file and run that"
            )));
        }
        let time = input.timeout_ms.filter(|ms| *ms > 0).map(Duration::from_millis);
        let time = time.unwrap_or(self.timeout).min(TIMEOUT_MAX);
        let nonce = self.nonces.next("");
        let shell = self.open_shell().await?;
        let outcome = shell.run(&command, &nonce, time).await;
        match outcome {
            ShellOutcome::Done { output, status: 0 } => Ok(ToolOutput::text(output)),
            ShellOutcome::Done { output, status } => {
                let output =
                    if output.is_empty() { format!("exit status {status}") } else { output };
                Ok(ToolOutput::error(output))
            }
            ShellOutcome::Ended { output } => {
                self.abort().await;
                let separator = if output.is_empty() { "" } else { "\n" };
                Ok(ToolOutput::error(format!(
                    "{output}{separator}bash session terminated; restart required"
                )))
            }
            ShellOutcome::TimedOut => {
                self.abort().await;
                let time = time.as_secs_f64();
                Err(ToolError::model(format!(
                    "bash command timed out after {time}s and was killed; restart required"
                )))
            }
            ShellOutcome::Lost => {
                self.abort().await;
                Err(ToolError::model(
                    "the connection to the sandbox was lost while the command ran: check what it \
                     did; restart required",
                ))
            }
        }
    }

    async fn open_shell(&mut self) -> Result<&mut PersistentShell, ToolError> {
        if let ShellState::Fresh = self.shell {
            let shell = PersistentShell::start(&self.workspace).await;
            let shell = shell.map_err(|failure| ToolError::of(failure, "start bash"))?;
            self.shell = ShellState::Open(Box::new(shell));
        }
        match &mut self.shell {
            ShellState::Open(shell) => Ok(shell),
            ShellState::Fresh | ShellState::Ended => {
                Err(ToolError::model("bash session terminated; restart required"))
            }
        }
    }
}

/// Parses the input of a call.
fn arguments<T: DeserializeOwned>(input: Map<String, Value>) -> Result<T, ToolError> {
    serde_json::from_value(Value::Object(input))
        .map_err(|error| ToolError::model(format!("the input is wrong: {error}")))
}

/// Returns an absolute path in the sandbox, without `.` and `..`. The sandbox is the boundary, so
/// any path in it is allowed.
fn absolute(path: &str) -> Result<String, ToolError> {
    if path.contains('\0') {
        return Err(ToolError::model("the path has a NUL character"));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(ToolError::model(format!("the path has more than {PATH_BYTES_MAX} bytes")));
    }
    if path.is_empty() {
        return Err(ToolError::model("the path is empty"));
    }
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{WORKDIR}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Ok(format!("/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_plain() {
        for (path, expected) in [
            ("a", Some("/workspace/a")),
            ("./a//b/", Some("/workspace/a/b")),
            ("../etc", Some("/etc")),
            ("/a/../../../b", Some("/b")),
            ("/", Some("/")),
            ("", None),
            ("a\0b", None),
            (&"x".repeat(5000), None),
        ] {
            assert_eq!(absolute(path).ok().as_deref(), expected, "{path:.20}");
        }
    }
}
