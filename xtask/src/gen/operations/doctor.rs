//! The operations on the checks of a server.

use api::operations::server as table;
use serde_json::json;

use super::super::Operation;

/// Returns everything at `/v1/doctor`.
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
        Operation::of(
            &table::GET_DOCTOR,
            "What `cove doctor` says of this server's machine, by the engine that serves, and \
             whether checks are under way. A server makes no report at its start, because that \
             costs seconds of processor time: the first request begins the first run, and is \
             answered without `last`. Needs an operator's token.",
        )
        .answers(200, "The last report.", known.clone()),
        Operation::of(
            &table::RUN_DOCTOR,
            "Begins a run, or joins the one that is under way, and waits for its end, at most 20 \
             seconds: then the answer says `running`, with the report before. Programs of a run \
             wait for places like those of any tenant.",
        )
        .answers(200, "The new report, or the previous one.", known),
    ]
}
