//! `cove session context`: contexts that run cells.

use std::io::{self, Write as _};

use anyhow::Result;
use api::{
    CodeContextList, CodeContextState, CodeContextView, CreateCodeContext, ForkCodeContext,
    InterruptAnswer,
};
use axum::http::Method;
use serde_json::json;

use super::{CHANGE_TIMEOUT, path};
use crate::cli::{ContextCommand, OneContextArgs};
use crate::remote::{Remote, plain};
use crate::run::print_json;
use crate::values::columns;

pub(super) async fn run(command: &ContextCommand, server: &Remote, json: bool) -> Result<()> {
    match command {
        ContextCommand::List { id } => list(server, id, json).await,
        ContextCommand::Create { id, language, cwd, env } => {
            let request = CreateCodeContext {
                language: language.clone(),
                cwd: cwd.clone(),
                env: env.iter().cloned().collect(),
            };
            made(server, &path(id, "/contexts"), &request, json).await
        }
        ContextCommand::Fork { one, force } => {
            let request = ForkCodeContext { force: *force };
            made(server, &at(one, "/fork"), &request, json).await
        }
        ContextCommand::Restart(one) => made(server, &at(one, "/restart"), &json!({}), json).await,
        ContextCommand::Interrupt(one) => interrupt(server, one, json).await,
        ContextCommand::Delete(one) => {
            server.open(server.request(Method::DELETE, &at(one, ""))).await?;
            Ok(())
        }
    }
}

/// Returns the path of a context.
fn at(one: &OneContextArgs, rest: &str) -> String {
    path(&one.id, &format!("/contexts/{}{rest}", one.context))
}

/// Creates or starts a context, and prints its id.
async fn made<T: serde::Serialize>(
    server: &Remote,
    path: &str,
    request: &T,
    json: bool,
) -> Result<()> {
    let mut request = server.request_with(Method::POST, path, request)?;
    request.timeout = CHANGE_TIMEOUT;
    let context: CodeContextView = server.ask(request).await?;
    if json {
        return Ok(print_json(&context)?);
    }
    Ok(writeln!(io::stdout(), "{}", plain(&context.id))?)
}

async fn interrupt(server: &Remote, one: &OneContextArgs, json: bool) -> Result<()> {
    let request = server.request_with(Method::POST, &at(one, "/interrupt"), &json!({}))?;
    let answer: InterruptAnswer = server.ask(request).await?;
    if json {
        return Ok(print_json(&answer)?);
    }
    let text = if answer.interrupted { "interrupted" } else { "no cell was running" };
    Ok(writeln!(io::stdout(), "{text}")?)
}

async fn list(server: &Remote, id: &str, json: bool) -> Result<()> {
    let list: CodeContextList = server.call(Method::GET, &path(id, "/contexts")).await?;
    if json {
        return Ok(print_json(&list)?);
    }
    let mut rows = vec![["id", "language", "state", "cells", "directory", "of"].map(str::to_owned)];
    for context in &list.contexts {
        let state = match context.state {
            CodeContextState::Cold => "cold",
            CodeContextState::Idle => "idle",
            CodeContextState::Running => "running",
        };
        let of = match (&context.forked_from, context.default) {
            (Some(origin), _) => plain(origin),
            (None, true) => "default".to_owned(),
            (None, false) => String::new(),
        };
        let (id, language) = (plain(&context.id), plain(&context.language));
        let (cells, cwd) = (context.executions.to_string(), plain(&context.cwd));
        rows.push([id, language, state.to_owned(), cells, cwd, of]);
    }
    Ok(write!(io::stdout(), "{}", columns(&rows, ""))?)
}
