//! The operation on a server's recent measurements.

use api::operations::server as table;
use serde_json::{Value, json};

use super::super::Operation;

/// Returns `GET /v1/history`.
pub(super) fn get() -> Operation {
    let parameter = |name: &str, description: &str, schema: Value| {
        json!({
            "name": name, "in": "query", "required": false, "description": description,
            "schema": schema
        })
    };
    let text = || json!({ "type": "string" });
    let operation = Operation::of(
        &table::GET_HISTORY,
        "Series of the last 24 hours, from the memory of the server that answers: each second of \
         the last 15 minutes, and each ten seconds of the last 24 hours. A restart begins anew. \
         An operator sees the whole server. Another token sees the executions and sessions of its \
         own tenant, and is refused a series of the whole server that it names. A rate is the \
         mean of its step, a level and a high percentile are the highest of it.",
    );
    let parameters = json!([
        parameter(
            "window",
            "Time until now: `15m`, `1h`, `90s`. At most `24h`; `15m` when it is left out.",
            text()
        ),
        parameter(
            "step",
            "Time of one value. A multiple of `10s` where the window is more than `15m`; what \
             makes at most 180 values when it is left out.",
            text()
        ),
        parameter(
            "steps",
            "Instead of `window`: number of steps, of `1s` unless `step` is set.",
            json!({ "type": "integer", "minimum": 1, "maximum": 1000 })
        ),
        parameter(
            "series",
            "Names of series, with commas between; one that ends with `*` stands for all that \
             begin so. All when it is left out.",
            text()
        ),
        parameter("tenant", "Tenant of the bouncer.", text()),
    ]);
    operation.with_parameters(parameters).answers(
        200,
        "The series.",
        json!({
            "node": "srv_01M804ZD7HDBNWX72N11NHQYP8", "step_ms": 5000,
            "times_ms": [1_795_000_000_000_u64, 1_795_000_005_000_u64],
            "series": [
                {
                    "name": "cove_bouncer_connections_waiting",
                    "labels": { "tenant": "shop" }, "unit": "count", "values": [0.0, 3.0]
                },
                {
                    "name": "cove_http_request_p95_seconds", "unit": "seconds",
                    "values": [0.0625, null]
                }
            ]
        }),
    )
}
