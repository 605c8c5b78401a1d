//! The operations on the nodes of a cluster.

use api::operations::ApiOperation;
use api::operations::server as table;
use serde_json::json;

use super::super::Operation;

/// A node id for examples.
const NODE: &str = "srv_01M804ZD7HDBNWX72N11NHQYP8";

/// Returns everything below `/v1/nodes`.
pub(super) fn all() -> Vec<Operation> {
    let node = json!({
        "id": NODE, "incarnation": "run_01M8051Q7M8BSSB1WN0TEE9ZVC", "state": "active",
        "is_this": true, "address": "10.0.0.7:4100", "peer_address": "10.0.0.7:4190",
        "roles": ["front", "session", "bouncer", "catalog"], "zone": "a", "version": "0.1.0",
        "started_ms": 1_795_000_000_000_u64, "seen_ms": 1_795_000_360_000_u64,
        "load": {
            "sandboxes": 12, "sandboxes_max": 64, "executions": 2, "executions_max": 8,
            "executions_waiting": 0
        }
    });
    vec![
        operation(
            &table::LIST_NODES,
            "All servers on this server's store, also those that have stopped or are lost, for a \
             week. Needs an operator's token, as all about nodes does.",
        )
        .answers(200, "The nodes.", json!({ "nodes": [node] })),
        operation(&table::GET_NODE, "As its row in the store says.").answers(
            200,
            "The node.",
            node.clone(),
        ),
        operation(
            &table::DRAIN_NODE,
            "It learns of it within a second, finishes what it has, and stays so after a restart.",
        )
        .answers(200, "The node.", node.clone()),
        operation(&table::UNDRAIN_NODE, "The opposite of `drain`.").answers(200, "The node.", node),
    ]
}

fn operation(entry: &'static ApiOperation, description: &'static str) -> Operation {
    let parameters = match entry.path.contains("{id}") {
        true => json!([{
            "name": "id", "in": "path", "required": true, "example": NODE,
            "description": "The `id` of the node.", "schema": { "type": "string" }
        }]),
        false => json!([]),
    };
    Operation::of(entry, description).with_parameters(parameters)
}
