//! The operations on a server's configuration and tokens, and its backup.

use api::operations::server as table;
use serde_json::json;

use super::super::Operation;

/// Returns `GET /v1/config`, `POST /v1/reload`, `GET /v1/tokens` and `GET /v1/backup`.
pub(super) fn all() -> Vec<Operation> {
    let config = json!({
        "file": "/etc/cove/cove.toml",
        "settings": [
            {
                "key": "http", "value": "0.0.0.0:4100", "default": "127.0.0.1:4100",
                "origin": { "kind": "flag", "name": "--http" },
                "masked": false, "reloadable": false
            },
            {
                "key": "secrets_key", "value": "…", "default": null,
                "origin": { "kind": "file", "name": "/etc/cove/cove.toml", "line": 4 },
                "masked": true, "reloadable": false
            },
            {
                "key": "executions.queue_max", "value": 256, "default": 256,
                "origin": { "kind": "default" }, "masked": false, "reloadable": true
            }
        ]
    });
    let tokens = json!({
        "tokens": [{
            "id": "tok_4Q2M8V3T5W", "name": "first", "created": "2026-11-29T01:20:00Z",
            "operator": true, "tenant": null,
            "scopes": ["executions", "sessions", "agents", "tokens", "tenants", "catalog"],
            "expires": null, "expired": false
        }]
    });
    vec![
        Operation::of(
            &table::GET_CONFIG,
            "Every setting of the server that answers, as it is in force: its value, its default, \
             where the value comes from, and whether a reload takes over a change. Secrets are \
             not in it: `…` stands in their place, and in that of a password in an address. Needs \
             an operator's token.",
        )
        .answers(200, "The settings.", config),
        Operation::of(
            &table::RELOAD_CONFIG,
            "Reads file and environment again, as SIGHUP does, and takes over settings that are \
             `reloadable`, without dropping a client. What cannot be served is refused as a \
             whole, with all that is wrong in `message`, a problem on a line, and everything \
             stays as it was. It is about the server that answers, not about others of a cluster. \
             Needs an operator's token.",
        )
        .answers(
            200,
            "The settings that were applied.",
            json!({ "taken_over": ["executions.queue_max"], "restart_needed_for": ["http"] }),
        ),
        Operation::of(
            &table::LIST_TOKENS,
            "All API tokens of the server, or of all servers on its store, as `cove token list` \
             shows them: neither the tokens nor their hashes. Needs an operator's token with the \
             scope `tokens`. Tokens are made and revoked at the command line.",
        )
        .answers(200, "The tokens.", tokens),
        Operation::of(
            &table::GET_BACKUP,
            "An archive of the server that answers, made while it serves: what `cove backup` \
             writes and `cove restore` reads. A copy of the store, as it was when the request \
             came, and all files of the data directory that the copy names; the manifest at its \
             beginning says what is elsewhere. An archive is whole if its last member, \
             `SHA256SUMS`, is there and right: an answer that was cut off can look like one that \
             has ended. The keys of the server and its first token are in it, so it needs an API \
             token of an operator with every scope. One at a time: 409 while another is under \
             way.",
        )
        .gives(200, "A tar archive, packed with gzip."),
    ]
}
