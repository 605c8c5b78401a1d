//! The operations on the checks of a server.

use serde_json::{Value, json};

use super::super::Operation;

/// Everything at `/v1/doctor`.
pub(super) fn all() -> Vec<Operation> {
    let last = json!({
        "node": "srv_01M804ZD7HDBNWX72N11NHQYP8", "started_ms": 1_795_000_000_000_u64,
        "took_ms": 2310,
        "report": {
            "ok": true, "version": "0.1.0", "root": true,
            "checks": [
                { "name": "kernel", "status": "ok", "found": "Linux 6.1.0-27-amd64 on x86_64" },
                {
                    "name": "cpu share", "status": "note", "found": "not available",
                    "follows": "one program with many processes gets more of the processors than \
                        one with few"
                },
                { "name": "stop a busy one", "status": "ok", "found": "TLE after 53 ms" }
            ],
            "languages": [{
                "name": "bash", "aliases": ["sh"], "extensions": ["sh"],
                "version": "GNU bash, version 5.2.15", "compiled": false, "available": true
            }]
        }
    });
    let known = json!({ "running": false, "last": last });
    vec![
        operation(
            "get",
            "getDoctor",
            "The last report",
            "What `cove doctor` says of this server's machine, by the engine that serves, and \
            whether checks are under way. A server makes no report at its start, because that \
            costs seconds of processor time: the first request begins the first run, and is \
            answered without `last`. Needs an operator's token.",
        )
        .answers(200, "Doctor", "The last report.", known.clone()),
        operation(
            "post",
            "runDoctor",
            "Check anew",
            "Begins a run, or joins the one that is under way, and waits for its end, at most 20 \
            seconds: then the answer says `running`, with the report before. Programs of a run \
            wait for places like those of any tenant.",
        )
        .answers(200, "Doctor", "The new report, or the one before.", known),
    ]
}

fn operation(
    method: &'static str,
    id: &'static str,
    summary: &'static str,
    description: &'static str,
) -> Operation {
    Operation {
        method,
        path: "/v1/doctor",
        id,
        tag: "system",
        token: true,
        summary,
        description,
        parameters: Value::Array(Vec::new()),
        request: None,
        answers: Vec::new(),
        errors: &[403],
    }
}
