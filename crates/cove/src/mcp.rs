//! `cove mcp`: offers a server's tools to agents over standard streams, and writes the client
//! configuration that starts it.
//!
//! # References
//! - <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports>

mod install;

use std::io::{self, BufRead, Read as _, Write as _};
use std::process::ExitCode;

use ::mcp::{INTERNAL_ERROR, META_VERSION, PARSE_ERROR};
use anyhow::Result;
use axum::http::{HeaderValue, Method, header};
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::cli::{McpArgs, McpCommand};
use crate::config::{CoveConfig, Environment};
use crate::remote::{self, Remote, RemoteFailure};

/// Longest message of a client, in bytes.
const MESSAGE_BYTES_MAX: u64 = 16 << 20;

/// Maximum queued messages of a client.
const MESSAGES_WAITING_MAX: usize = 16;

/// Runs one command.
pub(crate) fn run(args: McpArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    if let Some(McpCommand::Install(wanted)) = &args.command {
        return remote::conclude(install::install(wanted, &args.server, environment).map(|()| 0));
    }
    remote::with_server(&args.server, config, environment, async |server| {
        StdioBridge::new(server).run().await.map(|()| 0)
    })
}

/// Forwards messages between standard streams and a server.
struct StdioBridge {
    server: Remote,
    /// Protocol version that `initialize` negotiated.
    version: Option<String>,
    /// Requests without a response yet, by their ids.
    running: Vec<(Value, AbortHandle)>,
}

/// Outcome of a forwarded request.
struct ForwardedCall {
    id: Value,
    /// Protocol version that its response negotiated.
    version: Option<String>,
    outcome: Result<()>,
}

impl StdioBridge {
    fn new(server: Remote) -> StdioBridge {
        StdioBridge { server, version: None, running: Vec::new() }
    }

    /// Runs until the client has closed standard input and all its requests are answered.
    async fn run(mut self) -> Result<()> {
        let (sender, mut messages) = mpsc::channel(MESSAGES_WAITING_MAX);
        // Reads of standard input can neither be awaited nor cancelled.
        std::thread::Builder::new()
            .name("cove-stdin".to_owned())
            .spawn(move || read_messages(io::stdin().lock(), &sender))?;
        let mut calls = FuturesUnordered::new();
        let mut is_open = true;
        while is_open || !calls.is_empty() {
            tokio::select! {
                message = messages.recv(), if is_open => {
                    let Some(message) = message else {
                        is_open = false;
                        continue;
                    };
                    if let Some(call) = self.begin(message?)? {
                        calls.push(call);
                    }
                }
                Some(ended) = calls.next(), if !calls.is_empty() => {
                    // A cancelled request gets no response: the client requested the cancellation.
                    if let Ok(ForwardedCall { id, version, outcome }) = ended {
                        outcome?;
                        self.running.retain(|(running, _)| *running != id);
                        self.version = version.or(self.version);
                    }
                }
            }
        }
        Ok(())
    }

    /// Handles a message. Returns a future for a request that must be forwarded.
    fn begin(
        &mut self,
        line: String,
    ) -> Result<Option<Abortable<impl Future<Output = ForwardedCall> + use<>>>> {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            let error = json!({ "code": PARSE_ERROR, "message": "the line is not JSON" });
            print(&json!({ "jsonrpc": "2.0", "id": null, "error": error }))?;
            return Ok(None);
        };
        if message["method"] == "notifications/cancelled" {
            let id = &message["params"]["requestId"];
            if let Some(at) = self.running.iter().position(|(running, _)| running == id) {
                self.running.swap_remove(at).1.abort();
            }
            return Ok(None);
        }
        let (handle, registration) = AbortHandle::new_pair();
        let id = message["id"].clone();
        self.running.push((id.clone(), handle));
        let (server, version) = (self.server.clone(), self.version.clone());
        let forwarded = async move {
            let mut agreed = None;
            let outcome = match forward(&server, &message, version, line, &mut agreed).await {
                Ok(()) => Ok(()),
                Err(ForwardError::Output(error)) => Err(error.into()),
                Err(ForwardError::Server(failure)) if message.get("id").is_some() => {
                    let error = json!({ "code": INTERNAL_ERROR, "message": failure.to_string() });
                    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
                    print(&answer).map_err(Into::into)
                }
                Err(ForwardError::Server(_)) => Ok(()),
            };
            ForwardedCall { id, version: agreed, outcome }
        };
        Ok(Some(Abortable::new(forwarded, registration)))
    }
}

/// Reason why a message could not be forwarded.
enum ForwardError {
    Server(RemoteFailure),
    /// The client does not read standard output.
    Output(io::Error),
}

impl From<RemoteFailure> for ForwardError {
    fn from(failure: RemoteFailure) -> ForwardError {
        ForwardError::Server(failure)
    }
}

/// Sends a message and prints all responses to it.
async fn forward(
    server: &Remote,
    message: &Value,
    version: Option<String>,
    line: String,
    agreed: &mut Option<String>,
) -> Result<(), ForwardError> {
    let mut request = server.request(Method::POST, "/mcp");
    request.body = line.into();
    let headers = &mut request.headers;
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let both = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(header::ACCEPT, both);
    let stateless = message["params"]["_meta"][META_VERSION].as_str();
    let name = message["params"]["name"].as_str().or_else(|| message["params"]["uri"].as_str());
    let version = stateless.map(str::to_owned).or(version);
    let repeated = [
        ("mcp-protocol-version", version.as_deref()),
        ("mcp-method", stateless.and(message["method"].as_str())),
        ("mcp-name", stateless.and(name)),
    ];
    for (header, value) in repeated {
        if let Some(value) = value {
            headers.insert(header, header_value(value));
        }
    }
    let mut print = |answer: Value| {
        if let Some(version) = answer["result"]["protocolVersion"].as_str() {
            *agreed = Some(version.to_owned());
        }
        print(&answer).map_err(ForwardError::Output)
    };
    let mut answers = server.rpc(request).await?;
    while let Some(answer) = answers.next().await? {
        print(answer)?;
    }
    Ok(())
}

/// Encodes a header value: as base64 unless it consists of visible ASCII.
fn header_value(value: &str) -> HeaderValue {
    use base64::Engine as _;
    let is_plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && value.trim() == value;
    let encoded = (!is_plain)
        .then(|| format!("=?base64?{}?=", base64::prelude::BASE64_STANDARD.encode(value)));
    HeaderValue::from_str(encoded.as_deref().unwrap_or(value))
        .unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Reads messages, one per line.
fn read_messages(mut input: impl BufRead, messages: &mpsc::Sender<io::Result<String>>) {
    loop {
        let mut line = String::new();
        let read = (&mut input).take(MESSAGE_BYTES_MAX).read_line(&mut line);
        let message = match read {
            Ok(0) => return,
            Ok(_) if !line.ends_with('\n') && line.len() as u64 >= MESSAGE_BYTES_MAX => {
                let message = format!("a message has more than {MESSAGE_BYTES_MAX} bytes");
                Err(io::Error::new(io::ErrorKind::InvalidData, message))
            }
            Ok(_) if line.trim().is_empty() => continue,
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(error),
        };
        let is_over = message.is_err();
        if messages.blocking_send(message).is_err() || is_over {
            return;
        }
    }
}

/// Writes one message.
fn print(message: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{message}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_holds_any_name() {
        for (value, expected) in [
            ("run_code", "run_code"),
            ("ü", "=?base64?w7w=?="),
            (" a", "=?base64?IGE=?="),
            ("a\nb", "=?base64?YQpi?="),
        ] {
            assert_eq!(header_value(value), expected);
        }
    }

    #[test]
    fn messages_are_lines() {
        let (sender, mut messages) = mpsc::channel(8);
        read_messages(&b"{\"a\":1}\n\n  \n[2]"[..], &sender);
        drop(sender);
        let mut next = || messages.blocking_recv().map(Result::unwrap);
        assert_eq!(next().as_deref(), Some("{\"a\":1}"));
        assert_eq!(next().as_deref(), Some("[2]"));
        assert_eq!(next(), None);
    }
}
