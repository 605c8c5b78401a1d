//! `cove node`: lists the servers of a cluster, and drains them.

mod drained;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use api::{NodeList, NodeView};
use axum::http::Method;
use node::clock;

use crate::cli::{NodeArgs, NodeCommand, NodeDrainArgs, OneNodeArgs};
use crate::config::{CoveConfig, Environment};
use crate::remote::{self, Remote, plain};
use crate::run::print_json;
use crate::values::columns;

/// Runs one command.
pub(crate) fn run(args: &NodeArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    let command = &args.command;
    remote::with_server(&command.output().server, config, environment, async |server| {
        execute(command, &server).await
    })
}

async fn execute(command: &NodeCommand, server: &Remote) -> Result<u8> {
    let (one, action, method) = match command {
        NodeCommand::List(output) => {
            let list: NodeList = server.call(Method::GET, "/v1/nodes").await?;
            match output.json {
                true => print_json(&list)?,
                false => write!(io::stdout(), "{}", table(&list.nodes))?,
            }
            return Ok(0);
        }
        NodeCommand::Show(one) => (one, "", Method::GET),
        NodeCommand::Drain(drain) => (&drain.node, "/drain", Method::POST),
        NodeCommand::Undrain(one) => (one, "/undrain", Method::POST),
    };
    let OneNodeArgs { id, output } = one;
    let mut node: NodeView = server.call(method, &format!("/v1/nodes/{id}{action}")).await?;
    let mut code = 0;
    if let NodeCommand::Drain(NodeDrainArgs { wait: true, timeout, .. }) = command {
        (node, code) = drained::wait(server, node, *timeout).await?;
    }
    match output.json {
        true => print_json(&node)?,
        false => write!(io::stdout(), "{}", details(&node))?,
    }
    Ok(code)
}

/// Formats a line for each node.
pub(crate) fn table(nodes: &[NodeView]) -> String {
    let head = [
        "NODE",
        "STATE",
        "DRAIN",
        "ADDRESS",
        "ROLES",
        "SANDBOXES",
        "EXECUTIONS",
        "VERSION",
        "ZONE",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(nodes.iter().map(|node| {
        let mark = if node.is_this { "*" } else { "" };
        [
            format!("{}{mark}", plain(&node.id)),
            node.state.as_str().to_owned(),
            node.drain.map_or_else(|| "-".to_owned(), |it| format!("{} left", it.sessions)),
            node.address.as_deref().map_or_else(|| "-".to_owned(), plain),
            plain(&node.roles.join(",")),
            format!("{}/{}", node.load.sandboxes, node.load.sandboxes_max),
            format!("{}/{}", node.load.executions, node.load.executions_max),
            plain(&node.version),
            plain(&node.zone),
        ]
    }));
    columns(&rows, "")
}

/// Formats the details of one node, one property per line.
fn details(node: &NodeView) -> String {
    let load = &node.load;
    let drain = node.drain.as_ref().map_or_else(|| "-".to_owned(), drained::described);
    let rows = [
        ("node", plain(&node.id)),
        ("run", plain(&node.incarnation)),
        ("state", node.state.as_str().to_owned()),
        ("drain", drain),
        ("address", node.address.as_deref().map_or_else(|| "-".to_owned(), plain)),
        ("peer address", node.peer_address.as_deref().map_or_else(|| "-".to_owned(), plain)),
        ("roles", plain(&node.roles.join(", "))),
        ("zone", plain(&node.zone)),
        ("version", plain(&node.version)),
        ("started", clock::rfc3339_of_ms(node.started_ms)),
        ("seen", clock::rfc3339_of_ms(node.seen_ms)),
        ("sandboxes", format!("{} of {}", load.sandboxes, load.sandboxes_max)),
        (
            "executions",
            format!(
                "{} of {}, {} waiting",
                load.executions, load.executions_max, load.executions_waiting
            ),
        ),
    ];
    columns(&rows.map(|(name, value)| [name.to_owned(), value]), "")
}
