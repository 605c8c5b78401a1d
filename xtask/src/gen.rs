//! Writes `crates/api/openapi.json` from the contract's types and the table of operations below.
//!
//! The schemas come from the types, so that they cannot drift. What the types do not say is here:
//! which operations there are, what they answer and what a person types to try them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

/// Where the document is, from the root of the checkout.
const OPENAPI: &str = "crates/api/openapi.json";

/// One operation of the HTTP interface.
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    tag: &'static str,
    /// Whether it needs a token.
    token: bool,
    summary: &'static str,
    description: &'static str,
    parameters: Value,
    /// Schema of the body and examples by name.
    request: Option<(&'static str, Value)>,
    answer: Answer,
    /// Statuses of errors it answers with, besides 401 and 503 where a token is needed.
    errors: &'static [u16],
}

/// What an operation answers with when all is well.
enum Answer {
    Json { schema: &'static str, says: &'static str, example: Value },
    Text { content_type: &'static str, says: &'static str },
}

fn operations() -> Vec<Operation> {
    let mut operations = vec![run_program(), list_languages()];
    let open = |path, id, summary, description, content_type, says| Operation {
        method: "get",
        path,
        id,
        tag: "server",
        token: false,
        summary,
        description,
        parameters: json!([]),
        request: None,
        answer: Answer::Text { content_type, says },
        errors: &[],
    };
    operations.push(open(
        "/health/live",
        "live",
        "Is the process alive?",
        "Answers as long as the server can answer anything. Restart it when it does not.",
        "text/plain",
        "It is.",
    ));
    let mut ready = open(
        "/health/ready",
        "ready",
        "Does the server take work?",
        "Answers 503 from the moment the server begins to shut down.",
        "text/plain",
        "It does.",
    );
    ready.errors = &[503];
    operations.push(ready);
    operations.push(open(
        "/metrics",
        "metrics",
        "Figures for Prometheus",
        "Requests, executions, the sandbox engine and the process, in the OpenMetrics text format.",
        "application/openmetrics-text",
        "The current figures.",
    ));
    operations.push(open(
        "/docs",
        "docs",
        "This page",
        "The interface as a page to read.",
        "text/html",
        "The page.",
    ));
    operations.push(open(
        "/openapi.json",
        "openapi",
        "This document",
        "The interface as an OpenAPI 3.1 document, for generating clients.",
        "application/json",
        "The document.",
    ));
    operations
}

fn run_program() -> Operation {
    Operation {
        method: "post",
        path: "/v1/executions",
        id: "createExecution",
        tag: "executions",
        token: true,
        summary: "Run a program and wait for its verdict",
        description: "Runs one program in a sandbox of its own and answers when it has ended. Whatever \
            the program does, the answer is 200 and the verdict says how it went; an error status \
            means that nothing was judged. A client that closes the connection has its program \
            killed.",
        parameters: json!([{
            "name": "wait",
            "in": "query",
            "description": "Answer when the program has ended. `true` is the only mode there is; it \
                is written out so that the default can become another one.",
            "required": true,
            "schema": { "type": "boolean", "const": true }
        }]),
        request: Some(("ExecutionRequest", run_examples())),
        answer: Answer::Json {
            schema: "Execution",
            says: "What the program did, whatever that was.",
            example: json!({
                "id": "ex_01KAJ9Q6S2M8V3T4W5X6Y7Z8A9",
                "verdict": "OK", "exit_code": 0, "signal": null,
                "stdout": "42\n", "stderr": "",
                "truncated": { "stdout": false, "stderr": false }, "limit": null,
                "cpu_ms": 11.3, "wall_ms": 12.9,
                "memory_peak_bytes": 6_291_456, "processes_peak": 1, "oom_kills": 0,
                "mode": "fresh",
                "stages": [{
                    "name": "run",
                    "verdict": "OK", "exit_code": 0, "signal": null,
                    "stdout": "42\n", "stderr": "",
                    "truncated": { "stdout": false, "stderr": false }, "limit": null,
                    "cpu_ms": 11.3, "wall_ms": 12.9,
                    "memory_peak_bytes": 6_291_456, "processes_peak": 1, "oom_kills": 0
                }]
            }),
        },
        errors: &[400, 413, 415, 429],
    }
}

fn run_examples() -> Value {
    json!({
        "language": {
            "summary": "A Python program",
            "value": { "language": "python", "source": "print(6 * 7)" }
        },
        "compiled": {
            "summary": "A C program with input, arguments and limits",
            "value": {
                "language": "c",
                "files": [{
                    "name": "main.c",
                    "content": "#include <stdio.h>\nint main(int n, char **a) { int x; scanf(\"%d\", &x); printf(\"%s %d\\n\", a[1], 2 * x); }"
                }],
                "args": ["twice"],
                "stdin": "21\n",
                "limits": { "cpu_ms": 1000, "memory_bytes": 67_108_864 }
            }
        },
        "command": {
            "summary": "A command, and a file of it handed back",
            "value": {
                "argv": ["/bin/sh", "-c", "date > today"],
                "outputs": ["today"]
            }
        }
    })
}

fn list_languages() -> Operation {
    Operation {
        method: "get",
        path: "/v1/languages",
        id: "listLanguages",
        tag: "executions",
        token: true,
        summary: "List languages",
        description: "Every language the server is configured for, with the version that is \
            installed or the reason why it cannot be used.",
        parameters: json!([]),
        request: None,
        answer: Answer::Json {
            schema: "LanguageList",
            says: "All of them, by name.",
            example: json!({ "languages": [
                {
                    "name": "python", "aliases": ["python3", "py"], "extensions": ["py"],
                    "version": "Python 3.11.2", "compiled": false, "available": true
                },
                {
                    "name": "java", "aliases": [], "extensions": ["java"],
                    "compiled": true, "available": false, "reason": "`javac` is not installed"
                }
            ] }),
        },
        errors: &[],
    }
}

/// Writes every generated file that is not current.
pub(crate) fn write(root: &Path) -> Result<String> {
    let path = root.join(OPENAPI);
    let document = openapi()?;
    if fs::read_to_string(&path).is_ok_and(|current| current == document) {
        return Ok(format!("{OPENAPI} is current\n"));
    }
    fs::write(&path, document).with_context(|| format!("write {}", path.display()))?;
    Ok(format!("{OPENAPI} is written\n"))
}

/// The document, as it should stand in the file.
fn openapi() -> Result<String> {
    let schemas = schemas()?;
    let mut paths = Map::new();
    for operation in operations() {
        check_references(&operation, &schemas)?;
        let methods = paths.entry(operation.path).or_insert_with(|| json!({}));
        let method = operation.method;
        methods[method] = operation.into_value();
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cove",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "A self-hosted runtime for code you do not trust: a program goes in, \
                a verdict comes out. Every answer with a status of 400 or above has an \
                `ErrorBody`, and every answer names its request in the header `x-request-id`."
        },
        "servers": [{
            "url": "http://127.0.0.1:4100",
            "description": "Where `cove serve` listens unless told otherwise"
        }],
        "tags": [
            { "name": "executions", "description": "Programs in, verdicts out." },
            { "name": "server", "description": "The server itself; open to everybody who reaches it." }
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API token, as `cove token` prints it for the server's owner \
                        (with `--data-dir` when the server has a directory of its own)."
                }
            }
        }
    });
    Ok(format!("{document:#}\n"))
}

/// The schemas of all types of the contract, by name.
fn schemas() -> Result<Map<String, Value>> {
    let settings = || {
        SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
    };
    // What is read may leave out what has a default; what is written always has it.
    let mut requests = settings().for_deserialize().into_generator();
    let mut answers = settings().for_serialize().into_generator();
    define::<api::ExecutionRequest>(&mut requests);
    define::<api::Execution>(&mut answers);
    define::<api::LanguageList>(&mut answers);
    define::<api::ErrorBody>(&mut answers);
    let mut schemas = requests.take_definitions(true);
    for (name, schema) in answers.take_definitions(true) {
        if schemas.get(&name).is_some_and(|other| *other != schema) {
            bail!("`{name}` is read and written differently and needs two names");
        }
        schemas.insert(name, schema);
    }
    Ok(schemas)
}

fn define<T: JsonSchema>(generator: &mut SchemaGenerator) {
    // Asking for a reference to the type leaves its definition in the generator.
    drop(generator.subschema_for::<T>());
}

fn check_references(operation: &Operation, schemas: &Map<String, Value>) -> Result<()> {
    let request = operation.request.as_ref().map(|(schema, _)| *schema);
    let answer = match &operation.answer {
        Answer::Json { schema, .. } => Some(*schema),
        Answer::Text { .. } => None,
    };
    for name in request.into_iter().chain(answer) {
        if !schemas.contains_key(name) {
            bail!("`{}` names the schema `{name}`, which does not exist", operation.id);
        }
    }
    Ok(())
}

impl Operation {
    fn into_value(self) -> Value {
        let mut responses = Map::new();
        responses.insert("200".to_owned(), self.answer.into_value());
        let with_token: &[u16] = if self.token { &[401, 503] } else { &[] };
        for status in self.errors.iter().chain(with_token) {
            responses.insert(status.to_string(), error_response(*status));
        }
        let mut value = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "description": self.description,
            "responses": responses,
            "security": if self.token { json!([{ "token": [] }]) } else { json!([]) },
        });
        if self.parameters.as_array().is_some_and(|parameters| !parameters.is_empty()) {
            value["parameters"] = self.parameters;
        }
        if let Some((schema, examples)) = self.request {
            value["requestBody"] = json!({
                "required": true,
                "content": {
                    "application/json": { "schema": reference(schema), "examples": examples }
                }
            });
        }
        value
    }
}

impl Answer {
    fn into_value(self) -> Value {
        match self {
            Answer::Json { schema, says, example } => json!({
                "description": says,
                "content": {
                    "application/json": { "schema": reference(schema), "example": example }
                }
            }),
            Answer::Text { content_type, says } => json!({
                "description": says,
                "content": { content_type: {} }
            }),
        }
    }
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn error_response(status: u16) -> Value {
    let description = match status {
        400 => "The request is malformed; `field` says where.",
        401 => "No token, or one that is not known.",
        413 => "The body is larger than the server takes.",
        415 => "The body is not JSON by its content type.",
        429 => "This caller has too much waiting already; try again after `Retry-After`.",
        503 => "The server is full or shutting down; try again after `Retry-After`.",
        _ => "An error.",
    };
    json!({
        "description": description,
        "content": { "application/json": { "schema": reference("ErrorBody") } }
    })
}

#[cfg(test)]
mod tests {
    //! The committed document is the generated one, and is whole.

    use super::*;

    #[test]
    fn openapi_json_is_current() {
        let committed = fs::read_to_string(crate::root().join(OPENAPI)).unwrap();
        assert_eq!(committed, openapi().unwrap(), "run `cargo run -p xtask -- gen`");
    }

    #[test]
    fn every_reference_resolves() {
        fn collect(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(map) => {
                    found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    map.values().for_each(|value| collect(value, found));
                }
                Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let document: Value = serde_json::from_str(&openapi().unwrap()).unwrap();
        let mut references = Vec::new();
        collect(&document, &mut references);
        assert!(references.len() > 10);
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn the_examples_are_what_the_types_accept() {
        for operation in operations() {
            if let Some((schema, examples)) = operation.request {
                assert_eq!(schema, "ExecutionRequest");
                for (name, example) in examples.as_object().unwrap() {
                    let request = example["value"].clone();
                    let parsed = serde_json::from_value::<api::ExecutionRequest>(request);
                    assert!(parsed.is_ok(), "{name}: {parsed:?}");
                }
            }
            match operation.answer {
                Answer::Json { schema: "Execution", example, .. } => {
                    let execution: api::Execution = serde_json::from_value(example).unwrap();
                    assert_eq!(execution.outcome.verdict, api::Verdict::Ok);
                }
                Answer::Json { schema: "LanguageList", example, .. } => {
                    let list: api::LanguageList = serde_json::from_value(example).unwrap();
                    assert_eq!(list.languages.len(), 2);
                }
                Answer::Json { schema, .. } => panic!("no type for {schema}"),
                Answer::Text { .. } => {}
            }
        }
    }
}
