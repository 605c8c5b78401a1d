//! The official Rust SDK of the Model Context Protocol, unmodified, against Cove.
//!
//! `cove-compat-mcp MODE http URL TOKEN`, or `MODE stdio COMMAND ARGUMENT …`; MODE is `stateless`
//! or `legacy`. Prints a line of JSON for each check.

use std::process::ExitCode;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ProtocolVersion, ReadResourceRequestParams,
};
use rmcp::service::RunningService;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient, ServiceError};
use serde_json::{Value, json};

type Client = RunningService<RoleClient, ()>;
type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let client = connect(&arguments).await.expect("connect");
    let mut failed = 0;
    let mut report = |name: &str, outcome: Result<(), Failure>| {
        failed += u8::from(outcome.is_err());
        let detail = outcome.err().map(|error| error.to_string());
        println!("{}", json!({ "name": name, "ok": detail.is_none(), "detail": detail }));
    };
    report("tools_are_listed", tools_are_listed(&client).await);
    report("a_program_runs", a_program_runs(&client).await);
    report("a_program_that_fails_is_a_result", a_program_that_fails(&client).await);
    report("a_wrong_argument_is_an_error_of_the_tool", a_wrong_argument(&client).await);
    report("an_unknown_tool_is_an_error_of_the_protocol", an_unknown_tool(&client).await);
    report("a_session_keeps_files", a_session_keeps_files(&client).await);
    report("templates_of_resources_are_listed", templates(&client).await);
    for (name, language, code, expected) in [
        ("bash_runs", "bash", "echo $((6*7))", "42\n"),
        ("javascript_runs", "js", "console.log(6*7)", "42\n"),
        ("long_output_is_cut", "py", "print('x'*50000)", "xxx"),
        ("input_is_none", "py", "print(input() if False else 1)", "1\n"),
    ] {
        report(name, runs(&client, language, code, expected).await);
    }
    drop(client.cancel().await);
    ExitCode::from(failed)
}

async fn connect(arguments: &[String]) -> Result<Client, Failure> {
    let mode = match arguments[0].as_str() {
        "stateless" => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
        _ => ClientLifecycleMode::Initialize,
    };
    match arguments[1].as_str() {
        "http" => {
            let config = StreamableHttpClientTransportConfig::with_uri(arguments[2].as_str());
            let config = config.auth_header(arguments[3].as_str());
            let transport = StreamableHttpClientTransport::from_config(config);
            Ok(().serve_with_lifecycle(transport, mode).await?)
        }
        _ => {
            let mut command = tokio::process::Command::new(&arguments[2]);
            command.args(&arguments[3..]);
            Ok(().serve_with_lifecycle(TokioChildProcess::new(command)?, mode).await?)
        }
    }
}

async fn call(client: &Client, tool: &str, given: Value) -> Result<CallToolResult, ServiceError> {
    let given = given.as_object().cloned().unwrap_or_default();
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(given);
    client.call_tool(params).await
}

fn text(result: &CallToolResult) -> String {
    let result = serde_json::to_value(result).unwrap_or_default();
    result["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

fn that(holds: bool, what: impl std::fmt::Debug) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(format!("{what:?}").into()) }
}

async fn tools_are_listed(client: &Client) -> Result<(), Failure> {
    let tools = client.list_all_tools().await?;
    that(tools[0].name == "run_code" && tools.len() <= 10, tools)
}

async fn runs(client: &Client, language: &str, code: &str, begin: &str) -> Result<(), Failure> {
    let result = call(client, "run_code", json!({ "language": language, "code": code })).await?;
    that(result.is_error != Some(true) && text(&result).starts_with(begin), result)
}

async fn a_program_runs(client: &Client) -> Result<(), Failure> {
    let given = json!({ "language": "py", "code": "print(6 * 7)" });
    let result = call(client, "run_code", given).await?;
    let verdict = result.structured_content.as_ref().map(|it| it["verdict"].clone());
    that(verdict == Some(json!("OK")) && text(&result).starts_with("42\n"), result)
}

async fn a_program_that_fails(client: &Client) -> Result<(), Failure> {
    let result = call(client, "run_code", json!({ "language": "bash", "code": "exit 3" })).await?;
    that(result.is_error != Some(true) && text(&result).contains("exit code 3"), result)
}

async fn a_wrong_argument(client: &Client) -> Result<(), Failure> {
    let result = call(client, "run_code", json!({ "language": "none", "code": "" })).await?;
    that(result.is_error == Some(true), result)
}

async fn an_unknown_tool(client: &Client) -> Result<(), Failure> {
    match call(client, "nothing", json!({})).await {
        Err(ServiceError::McpError(error)) => that(error.code.0 == -32602, error),
        other => Err(format!("{other:?}").into()),
    }
}

async fn a_session_keeps_files(client: &Client) -> Result<(), Failure> {
    let made = call(client, "session", json!({ "action": "create" })).await?;
    let made = made.structured_content.unwrap_or_default();
    let session = made["id"].as_str().unwrap_or_default();
    let given = json!({ "session": session, "path": "a.txt", "content": "one\n" });
    call(client, "write_file", given).await?;
    let given = json!({ "session": session, "command": "cat a.txt" });
    let shown = text(&call(client, "run_command", given).await?);
    that(shown == "one\n[exit code 0]", shown)?;
    let uri = format!("cove://sessions/{session}/files/workspace/a.txt");
    let read = client.read_resource(ReadResourceRequestParams::new(uri)).await?;
    let read = serde_json::to_value(read)?;
    that(read["contents"][0]["text"] == "one\n", read)?;
    let ended = call(client, "session", json!({ "action": "end", "session": session })).await?;
    that(ended.is_error != Some(true), ended)
}

async fn templates(client: &Client) -> Result<(), Failure> {
    let templates = client.list_all_resource_templates().await?;
    that(templates.len() == 1, templates)
}
