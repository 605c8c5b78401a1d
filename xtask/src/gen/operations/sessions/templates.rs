//! The operations on templates.

use api::operations::sessions as table;
use serde_json::{Value, json};

use super::{Operation, TENANT, TIME, operation};

/// Ids for examples.
const TEMPLATE: &str = "tpl_01M8044RG542EBSAESYSKCR7WW";
const BUILD: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const ARCHIVE: &str = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

fn build() -> Value {
    json!({
        "id": BUILD, "template": TEMPLATE, "status": "ready",
        "steps": [
            { "step": 2, "command": "RUN pip install flask", "cached": false, "took_ms": 2310 }
        ],
        "env": ["MODE", "PATH"], "workdir": "/workspace/app", "start": "python3 app.py",
        "ready": "curl -sf http://127.0.0.1:8000/", "bytes": 5_242_880, "created_at": TIME,
        "finished_at": TIME
    })
}

fn template() -> Value {
    json!({
        "id": TEMPLATE, "tenant": TENANT, "name": "web", "tags": { "default": BUILD },
        "build": build(), "builds": 1, "created_at": TIME, "updated_at": TIME
    })
}

/// Returns all operations, in the order of the page.
pub(super) fn all() -> Vec<Operation> {
    let mut all = templates();
    all.extend(builds());
    all.extend(archives());
    all
}

fn templates() -> Vec<Operation> {
    let mut request = operation(
        &table::BUILD_TEMPLATE,
        "A new one, or a new build of one. Steps whose layers are there are not run again; when \
         all are, the answer is 200 with the build that is ready.",
    )
    .asks("wait", "boolean", "Answer when the build has ended.")
    .takes(
        "web",
        "Packages and a server",
        json!({
            "name": "web",
            "steps": [
                { "type": "workdir", "path": "/workspace/app" },
                { "type": "pip_install", "packages": ["flask"] }
            ],
            "start": "python3 app.py", "ready": "curl -sf http://127.0.0.1:8000/"
        }),
    )
    .answers(200, "Ended.", build());
    let mut running = build();
    running["status"] = json!("building");
    running["steps"] = json!([]);
    request = request.answers(202, "The build continues.", running);
    vec![
        request,
        operation(&table::LIST_TEMPLATES, "Those of this token's tenant.").answers(
            200,
            "Sorted by name.",
            json!({ "templates": [template()] }),
        ),
        operation(&table::GET_TEMPLATE, "With its newest build.").answers(
            200,
            "The full record.",
            template(),
        ),
        operation(
            &table::DELETE_TEMPLATE,
            "With all its builds; one that is under way is cancelled. Sessions keep their files.",
        )
        .gives(204, "Removed."),
        operation(&table::TAG_TEMPLATE, "By tags, in place of other builds.")
            .takes("stable", "The default build", json!({ "build": "default", "tags": ["stable"] }))
            .answers(200, "The record after the change.", template()),
        operation(&table::UNTAG_TEMPLATE, "The build stays.").gives(204, "Removed."),
    ]
}

fn builds() -> Vec<Operation> {
    let line = json!({
        "index": 1, "at_ms": 1_795_300_676_726_u64, "level": "info", "step": 2,
        "message": "Successfully installed flask-3.0.0"
    });
    vec![
        operation(&table::LIST_TEMPLATE_BUILDS, "Newest first.").answers(
            200,
            "The stored builds.",
            json!({ "builds": [build()] }),
        ),
        operation(&table::GET_TEMPLATE_BUILD, "By its id or a tag.")
            .asks("wait", "boolean", "Answer when the build has ended.")
            .answers(200, "The full record.", build()),
        operation(
            &table::GET_TEMPLATE_BUILD_LOGS,
            "A page of lines, or with `accept: text/event-stream` all of them as they are \
             written, and the build at the end.",
        )
        .asks("from", "integer", "Index of the first line.")
        .tells_or(
            "The lines of the log.",
            line.clone(),
            json!({ "lines": [line], "status": "ready" }),
        ),
    ]
}

fn archives() -> Vec<Operation> {
    vec![
        operation(&table::HAS_TEMPLATE_ARCHIVE, "Whether it has to be uploaded. One that no build uses is kept for a day.")
.gives(204, "It exists."),
        operation(&table::PUT_TEMPLATE_ARCHIVE, "A tar archive, also compressed with gzip, by its SHA-256, for steps that copy from it.")
.answers(200, "Stored.", json!({ "archive": ARCHIVE, "bytes": 10240 })),
    ]
}
