//! The operations on the nodes of a cluster.

use serde_json::{Value, json};

use super::super::Operation;

/// A node that examples are about.
const NODE: &str = "srv_01M804ZD7HDBNWX72N11NHQYP8";

/// Everything below `/v1/nodes`.
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
    let one = "/v1/nodes/{id}";
    vec![
        operation(
            "get",
            "/v1/nodes",
            "listNodes",
            "List nodes",
            "All servers on this server's store, also those that have stopped or are lost, for a \
            week. Needs an operator's token, as all about nodes does.",
        )
        .answers(200, "NodeList", "The nodes.", json!({ "nodes": [node] })),
        operation("get", one, "getNode", "A node", "As its row in the store says.")
            .answers(200, "Node", "The node.", node.clone())
            .fails(&[403, 404]),
        operation(
            "post",
            "/v1/nodes/{id}/drain",
            "drainNode",
            "Let a node take no new work",
            "It learns of it within a second, finishes what it has, and stays so after a restart.",
        )
        .answers(200, "Node", "The node.", node.clone())
        .fails(&[403, 404]),
        operation(
            "post",
            "/v1/nodes/{id}/undrain",
            "undrainNode",
            "Let a node take work again",
            "The opposite of `drain`.",
        )
        .answers(200, "Node", "The node.", node)
        .fails(&[403, 404]),
    ]
}

fn operation(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    description: &'static str,
) -> Operation {
    let parameters = match path.contains("{id}") {
        true => json!([{
            "name": "id", "in": "path", "required": true, "example": NODE,
            "description": "The `id` of the node.", "schema": { "type": "string" }
        }]),
        false => Value::Array(Vec::new()),
    };
    Operation {
        method,
        path,
        id,
        tag: "nodes",
        token: true,
        summary,
        description,
        parameters,
        request: None,
        answers: Vec::new(),
        errors: &[403],
    }
}
