//! The table of tools: names, parameters, implementations, and the scope that a token needs.
//!
//! They are few and their descriptions short, because a model reads all of them before each
//! response: together below [`LIST_BYTES_MAX`] bytes of JSON, some 3,000 tokens.

pub(crate) mod cell;
pub(crate) mod code;
mod data;
mod files;
mod job;
mod session;

use std::pin::Pin;

use node::auth::{TokenPrincipal, TokenScope};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::content;
use crate::message::McpError;
use crate::native::{NativeApi, NativeError};

pub(crate) use self::files::fetch as fetch_file;

/// Longest list of tools, in bytes of JSON.
#[cfg(test)]
const LIST_BYTES_MAX: usize = 9_000;

/// Result of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolResult {
    /// Content for the model.
    pub(crate) content: Vec<Value>,
    /// Content for programs.
    pub(crate) structured: Option<Value>,
    /// True if the tool failed; the failure of a program is no failure of the tool that ran it.
    pub(crate) is_error: bool,
}

impl ToolResult {
    /// Creates a result of one text and a document.
    pub(crate) fn new(text: &str, structured: Value) -> ToolResult {
        ToolResult {
            content: vec![content::text(text)],
            structured: Some(structured),
            is_error: false,
        }
    }

    /// Creates an error that the model can react to.
    pub(crate) fn error(message: &str) -> ToolResult {
        ToolResult { content: vec![content::text(message)], structured: None, is_error: true }
    }

    pub(crate) fn into_json(self) -> Value {
        let ToolResult { content, structured, is_error } = self;
        let mut result = json!({ "content": content, "isError": is_error });
        if let (Some(structured), Some(fields)) = (structured, result.as_object_mut()) {
            fields.insert("structuredContent".to_owned(), structured);
        }
        result
    }
}

impl From<NativeError> for ToolResult {
    fn from(error: NativeError) -> ToolResult {
        ToolResult::error(&error.message)
    }
}

/// Outcome of a tool: a successful result, or one that describes the error.
pub(crate) type ToolOutcome = Result<ToolResult, ToolResult>;

/// Future of a call.
type Calling<'a> = Pin<Box<dyn Future<Output = ToolOutcome> + Send + 'a>>;

/// Hints to clients about a tool's effects (`ToolAnnotations`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolHints {
    is_read_only: bool,
    is_destructive: bool,
    is_idempotent: bool,
}

/// A tool.
pub(crate) struct McpTool {
    pub(crate) name: &'static str,
    title: &'static str,
    description: &'static str,
    scope: TokenScope,
    hints: ToolHints,
    schema: fn() -> Value,
    call: for<'a> fn(&'a NativeApi, Map<String, Value>) -> Calling<'a>,
}

const CHANGES: ToolHints =
    ToolHints { is_read_only: false, is_destructive: false, is_idempotent: false };
const READS: ToolHints =
    ToolHints { is_read_only: true, is_destructive: false, is_idempotent: true };
const REPLACES: ToolHints =
    ToolHints { is_read_only: false, is_destructive: true, is_idempotent: true };

/// All tools, in the order of the list.
pub(crate) const TOOLS: &[McpTool] = &[
    McpTool {
        name: "run_code",
        title: "Run a program",
        description: "Runs a program once in a new sandbox, without network, and returns its \
                      output, verdict and resource use. Nothing is kept, but with session: then it \
                      is a cell, whose variables the next one finds, and plots are shown.",
        scope: TokenScope::Executions,
        hints: CHANGES,
        schema: code::schema,
        call: |api, args| Box::pin(code::run(api, args)),
    },
    McpTool {
        name: "session",
        title: "Manage sessions",
        description: "A session is a sandbox that keeps its files below /workspace and its \
                      processes. create makes one and returns its id; list, get, pause (processes \
                      may be lost, files stay) and end (removes everything).",
        scope: TokenScope::Sessions,
        hints: ToolHints { is_read_only: false, is_destructive: true, is_idempotent: false },
        schema: session::schema,
        call: |api, args| Box::pin(session::manage(api, args)),
    },
    McpTool {
        name: "run_command",
        title: "Run a command in a session",
        description: "Runs a line of shell in a session and returns its output and exit code. A \
                      paused session resumes.",
        scope: TokenScope::Sessions,
        hints: CHANGES,
        schema: session::command_schema,
        call: |api, args| Box::pin(session::run_command(api, args)),
    },
    McpTool {
        name: "read_file",
        title: "Read a file of a session",
        description: "Returns a text file with numbered lines, or an image.",
        scope: TokenScope::Sessions,
        hints: READS,
        schema: files::read_schema,
        call: |api, args| Box::pin(files::read(api, args)),
    },
    McpTool {
        name: "write_file",
        title: "Write a file of a session",
        description: "Creates or replaces a text file; directories above it are made.",
        scope: TokenScope::Sessions,
        hints: REPLACES,
        schema: files::write_schema,
        call: |api, args| Box::pin(files::write(api, args)),
    },
    McpTool {
        name: "edit_file",
        title: "Edit a file of a session",
        description: "Replaces a piece of text, which must occur exactly once unless all is true.",
        scope: TokenScope::Sessions,
        hints: REPLACES,
        schema: files::edit_schema,
        call: |api, args| Box::pin(files::edit(api, args)),
    },
    McpTool {
        name: "list_files",
        title: "List files of a session",
        description: "Lists a directory, to a depth.",
        scope: TokenScope::Sessions,
        hints: READS,
        schema: files::list_schema,
        call: |api, args| Box::pin(files::list(api, args)),
    },
    McpTool {
        name: "query_sql",
        title: "Query a database",
        description: "Runs one SQL statement over a grant of a session and returns its rows. It \
                      only reads: all else is refused. Iceberg grants take DuckDB's SQL, with \
                      tables as namespace.table. describe_data says which grants and tables \
                      there are.",
        scope: TokenScope::Sessions,
        hints: READS,
        schema: data::query_schema,
        call: |api, args| Box::pin(data::query(api, args)),
    },
    McpTool {
        name: "describe_data",
        title: "Describe databases and tables",
        description: "Lists what can be queried: grants of your sessions, tables of a grant \
                      (PostgreSQL, MySQL, Iceberg), or one table with columns and keys.",
        scope: TokenScope::Sessions,
        hints: READS,
        schema: data::describe_schema,
        call: |api, args| Box::pin(data::describe(api, args)),
    },
    McpTool {
        name: "job",
        title: "Run a program in the background",
        description: "submit queues a program durably and returns an id at once; get returns its \
                      state and, at its end, its result; cancel ends it; list shows the latest.",
        scope: TokenScope::Executions,
        hints: ToolHints { is_read_only: false, is_destructive: true, is_idempotent: false },
        schema: job::schema,
        call: |api, args| Box::pin(job::manage(api, args)),
    },
];

impl McpTool {
    /// Returns the definition for `tools/list`.
    pub(crate) fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": (self.schema)(),
            "annotations": {
                "title": self.title,
                "readOnlyHint": self.hints.is_read_only,
                "destructiveHint": self.hints.is_destructive,
                "idempotentHint": self.hints.is_idempotent,
                "openWorldHint": false,
            },
        })
    }

    /// Returns whether a token has the tool's scope.
    pub(crate) fn is_for(&self, principal: &TokenPrincipal) -> bool {
        principal.scopes.has(self.scope)
    }

    /// Calls the tool.
    pub(crate) async fn call(&self, api: &NativeApi, args: Map<String, Value>) -> ToolResult {
        match (self.call)(api, args).await {
            Ok(result) | Err(result) => result,
        }
    }
}

/// Returns the tool of this name, if the token has its scope.
///
/// # Errors
/// If there is none: the message lists the available ones, and the error states the scope that the
/// token lacks.
pub(crate) fn find(name: &str, principal: &TokenPrincipal) -> Result<&'static McpTool, McpError> {
    let mut tools = TOOLS.iter().filter(|tool| tool.is_for(principal));
    tools.clone().find(|tool| tool.name == name).ok_or_else(|| {
        let known = tools.by_ref().map(|tool| tool.name).collect::<Vec<_>>().join(", ");
        let error = McpError::params(format!("unknown tool \"{name}\"; there are: {known}"));
        match TOOLS.iter().find(|tool| tool.name == name) {
            Some(tool) => error.lacking(tool.scope),
            None => error,
        }
    })
}

/// Parses the arguments of a call. An error in them is a result for the model, which can correct
/// them.
fn parse_arguments<T: DeserializeOwned>(args: Map<String, Value>) -> Result<T, ToolResult> {
    serde_json::from_value(Value::Object(args))
        .map_err(|error| ToolResult::error(&format!("invalid arguments: {error}")))
}

/// Returns the path of a session, after checking its id.
fn session_path(session: &str) -> Result<String, ToolResult> {
    match content::is_session_id(session) {
        true => Ok(format!("/v1/sessions/{session}")),
        false => Err(ToolResult::error(&format!(
            "\"{session}\" is not the id of a session; the tool session creates and lists them"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_short_and_says_what_each_argument_is() {
        let list: Vec<Value> = TOOLS.iter().map(McpTool::definition).collect();
        let text = serde_json::to_string(&list).unwrap();
        assert!(text.len() <= LIST_BYTES_MAX, "{} bytes", text.len());
        assert!(TOOLS.len() <= 10);
        for tool in &list {
            let schema = &tool["inputSchema"];
            assert_eq!(schema["type"], "object");
            assert_eq!(schema["additionalProperties"], false, "{tool}");
            for (name, property) in schema["properties"].as_object().unwrap() {
                assert!(property["description"].is_string(), "{name} of {}", tool["name"]);
            }
        }
    }

    #[test]
    fn a_token_sees_the_tools_that_it_is_for() {
        let mut principal = TokenPrincipal::without_token("tok", "test");
        principal.scopes = [TokenScope::Executions].into_iter().collect();
        let names: Vec<_> =
            TOOLS.iter().filter(|tool| tool.is_for(&principal)).map(|tool| tool.name).collect();
        assert_eq!(names, ["run_code", "job"]);
        let error = find("read_file", &principal).map(|tool| tool.name).unwrap_err();
        assert_eq!(error.message, "unknown tool \"read_file\"; there are: run_code, job");
    }
}
