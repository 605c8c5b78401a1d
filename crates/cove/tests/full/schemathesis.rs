//! Requests that are made up after Iceberg's description of the interface, right ones and wrong
//! ones: none makes the server fail, and every answer is one that the description has, by its
//! status, its type and its shape. Where the description says less than it means,
//! `compat/iceberg/schemathesis/hooks.py` says what and why.

use std::path::Path;
use std::process::Command;

use testkit::Server;

use crate::shared::{COMPAT, COVE, finish, interpreter_with};

/// What is looked at in each answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_schema_conformance";

/// Of each operation, besides those that its description leads to in any case.
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
        // Every run makes the same requests.
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
    // A run that asked for nothing would prove nothing.
    assert!(output.contains("Tested: 35\n"), "{output}");
}
