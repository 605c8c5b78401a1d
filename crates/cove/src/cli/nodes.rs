//! Command-line definitions of `cove node`, for the servers of a cluster.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::common::HELP_TEMPLATE;
use super::remote::ServerArgs;
use crate::values;

/// Maximum length of an id.
const ID_BYTES_MAX: usize = 64;

/// `cove node`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Servers on one store are the nodes of a cluster; each of them answers every request. These
commands need an operator's token: see `cove exec --help` for its sources.

States: joining, active, draining, left (stopped), lost (its lease has expired).

Examples:
  cove node list
  cove node show srv_01M804ZD7HDBNWX72N11NHQYP8
  cove node drain srv_01M804ZD7HDBNWX72N11NHQYP8
  cove node drain srv_01M804ZD7HDBNWX72N11NHQYP8 --wait --timeout 10m
  cove node undrain srv_01M804ZD7HDBNWX72N11NHQYP8
  cove node list --json | jq -r '.nodes[] | select(.state == \"lost\").id'

Exit codes: 0 done, 1 sessions stay at a node that is waited for, 2 wrong usage or refused, 124 the
time to wait was up, 125 no server answers."
)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    pub(crate) command: NodeCommand,
}

/// Action on nodes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List all nodes of the store
    #[command(help_template = HELP_TEMPLATE)]
    List(NodeOutputArgs),
    /// Show one node
    #[command(help_template = HELP_TEMPLATE)]
    Show(OneNodeArgs),
    /// Stop giving new work to a node, and hand its sessions over to other nodes
    #[command(
        help_template = HELP_TEMPLATE,
        after_help = "\
The node hands its sessions over one after the other: idle ones at once, others when their
turn, command or terminal ends. It finishes its other work, and keeps draining after a restart,
until `cove node undrain`.

With --wait the command prints on standard error how many sessions are left, and ends when
there are none. The drain continues if the command is stopped or times out.

Exit codes: 0 done, 1 sessions stay there, 2 wrong usage or refused, 124 timeout, 125 no
server answers."
    )]
    Drain(NodeDrainArgs),
    /// Give work to a node again; it keeps the sessions that it still has
    #[command(help_template = HELP_TEMPLATE)]
    Undrain(OneNodeArgs),
}

/// Arguments that name one node.
#[derive(Clone, Debug, Args)]
pub(crate) struct OneNodeArgs {
    /// Id of the node, as `cove node list` shows it
    #[arg(value_name = "ID", value_parser = id)]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) output: NodeOutputArgs,
}

/// Node to drain.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodeDrainArgs {
    #[command(flatten)]
    pub(crate) node: OneNodeArgs,
    /// Wait until the node has no sessions
    #[arg(long)]
    pub(crate) wait: bool,
    /// Maximum wait, such as 10m [default: no limit]
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
}

/// Form of the answer, and which server is asked.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodeOutputArgs {
    /// Print the answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

impl NodeCommand {
    /// Returns the output options and the server of the command.
    pub(crate) fn output(&self) -> &NodeOutputArgs {
        match self {
            NodeCommand::List(output) => output,
            NodeCommand::Show(one) | NodeCommand::Undrain(one) => &one.output,
            NodeCommand::Drain(drain) => &drain.node.output,
        }
    }
}

/// Parses the id of a node. Accepts only letters, digits, `_` and `-`, because the id becomes part
/// of a URL path.
fn id(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if text.is_empty() || text.len() > ID_BYTES_MAX || !text.bytes().all(plain) {
        return Err("it is not the id of a node, such as srv_01M804ZD7H...".to_owned());
    }
    Ok(text.to_owned())
}
