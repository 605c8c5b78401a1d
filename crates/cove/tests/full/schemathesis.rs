//! Valid and invalid requests generated from Iceberg's API description: none makes the server fail,
//! and the description covers every response by status, type and schema. Where the description is
//! incomplete, `compat/iceberg/schemathesis/hooks.py` states the exception and the reason.

use std::path::Path;
use std::process::Command;

use testkit::Server;

use crate::shared::{COMPAT, COVE, finish, interpreter_with};

/// Checks of each response.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_schema_conformance";

/// Random examples of each operation, besides those that follow from its description.
const EXAMPLES_MAX: &str = "20";

#[test]
fn every_request_that_the_description_leads_to_is_answered_as_it_says() {
    let server = Server::start(COVE);
    let base = format!("http://{}/catalog", server.client().address());
    let python = interpreter_with("iceberg/schemathesis/requirements.txt", "compat-schemathesis");
    let mut client = Command::new(python.with_file_name("schemathesis"));
    client
        .args(["run", "--url", &base, "--checks", CHECKS])
        .args(["--header", &format!("authorization: Bearer {}", server.token())])
        .args(["--phases", "examples,coverage,fuzzing"])
        // Deterministic, so that every run sends the same requests.
        .args(["--max-examples", EXAMPLES_MAX, "--generation-deterministic"])
        .args(["--suppress-health-check", "all", "--continue-on-failure", "--no-color"])
        .arg(Path::new(COMPAT).join("iceberg/rest-catalog-open-api.yaml"))
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", Path::new(COMPAT).join("iceberg/schemathesis"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("BASE", &base)
        .env("TOKEN", server.token())
        .current_dir(server.scratch().path());
    let output = finish(&mut client);
    // Checks that operations were tested at all.
    assert!(output.contains("Tested: 35\n"), "{output}");
}
