//! Writes `crates/api/openapi.json` from the contract's types and its tables of operations, the
//! console's types from both, and the list of the documentation's pages.
//!
//! The schemas come from the types and the operations from the tables in `api::operations`, so
//! neither can drift. Descriptions and examples, which are in neither, are in `operations`.

mod operation;
mod operations;
mod schemas;
mod typescript;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use api::operations::{AnswerBody, ApiOperation, RequestBody};
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use operation::Operation;
use typescript::TYPES;

use crate::{site_sources, tidy};

/// Path of the document, from the root of the checkout.
const OPENAPI: &str = "crates/api/openapi.json";

/// Writes every generated file that is not current.
pub(crate) fn write(root: &Path) -> Result<String> {
    let mut report = String::new();
    let pages = site_sources::list(&tidy::collect_all(root)?);
    for (name, content) in [(OPENAPI, openapi()?), (TYPES, types()?), (site_sources::LIST, pages)] {
        let path = root.join(name);
        if fs::read_to_string(&path).is_ok_and(|current| current == content) {
            report += &format!("{name} is current\n");
            continue;
        }
        fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
        report += &format!("{name} is written\n");
    }
    Ok(report)
}

/// Returns the expected content of the console's types file.
fn types() -> Result<String> {
    Ok(typescript::types(&contract_schemas()?))
}

/// Returns the expected content of the document.
fn openapi() -> Result<String> {
    let schemas = contract_schemas()?;
    let (mut paths, mut errors) = (Map::new(), Map::new());
    for operation in operations::all() {
        check_references(operation.entry, &schemas)?;
        errors.extend(operation.failures().map(|it| (it.to_string(), error_response(it))));
        let methods = paths.entry(operation.path()).or_insert_with(|| json!({}));
        methods[operation.entry.method.name().to_lowercase()] = operation.to_value()?;
    }
    for operation in operations::catalog::all() {
        let methods = paths.entry(operation.path()).or_insert_with(|| json!({}));
        let method = operation.method;
        methods[method] = operation.into_value();
    }
    let failures = operations::catalog::failures();
    errors.extend(failures.map(|(name, failure)| (name.to_owned(), failure)));
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
            { "name": "queue", "description": "Asynchronous executions as a whole." },
            { "name": "agents", "description": "What sessions run: folders with versions." },
            {
                "name": "sessions",
                "description": "Agents that keep their process, their files and their conversation."
            },
            { "name": "tenants", "description": "Databases behind the bouncer." },
            {
                "name": "catalog",
                "description": "Iceberg's REST interface: namespaces, tables, views, scans. Errors \
                    have the form of Iceberg's, and rights are the catalog's own."
            },
            {
                "name": "catalog management",
                "description": "Clients, rights, policies, warehouses, the past and maintenance of \
                    the catalog."
            },
            { "name": "live", "description": "Everything that happens, on one WebSocket." },
            { "name": "gateway", "description": "What sandboxes may be granted, and what they did with it." },
            { "name": "mcp", "description": "Tools for agents, by the Model Context Protocol." },
            {
                "name": "nodes",
                "description": "Servers on one store: who is there, and which take work."
            },
            { "name": "system", "description": "A server, for its operators." },
            { "name": "server", "description": "The server itself; open to everybody who reaches it." }
        ],
        "security": [{ "token": [] }],
        "paths": paths,
        "webhooks": operations::webhooks(),
        "components": {
            "schemas": schemas,
            "responses": errors,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API token, as `cove token` prints it for the server's owner \
                        (with `--data-dir` when the server has a directory of its own). What a \
                        requirement names beside it are scopes that the token needs; `operator` \
                        is no scope: the token has to be an operator's."
                }
            }
        }
    });
    Ok(format!("{document:#}\n"))
}

/// Returns the schemas of all types of the contract, by name.
fn contract_schemas() -> Result<Map<String, Value>> {
    let settings = || {
        SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
    };
    // Requests may omit fields that have a default; answers always contain them.
    let mut requests = settings().for_deserialize().into_generator();
    let mut answers = settings().for_serialize().into_generator();
    define::<api::ExecutionRequest>(&mut requests);
    define::<api::BatchRequest>(&mut requests);
    define::<api::ClientMessage>(&mut requests);
    define::<api::Execution>(&mut answers);
    define::<api::ExecutionRecord>(&mut answers);
    define::<api::ExecutionList>(&mut answers);
    define::<api::BatchAnswer>(&mut answers);
    define::<api::ExecutionEvent>(&mut answers);
    define::<api::QueueStats>(&mut answers);
    define::<api::QueueChange>(&mut answers);
    define::<api::WebhookSecret>(&mut answers);
    define::<api::LanguageList>(&mut answers);
    define::<api::ErrorBody>(&mut answers);
    define_sessions(&mut requests, &mut answers);
    define_tenants(&mut requests, &mut answers);
    define::<api::AuditRecordList>(&mut answers);
    define::<api::AuditSummaryReport>(&mut answers);
    define::<api::GrantOfferList>(&mut answers);
    define::<api::GrantCheckRequest>(&mut requests);
    define::<api::GrantCheckReport>(&mut answers);
    define::<api::LiveClientMessage>(&mut requests);
    define::<api::LiveServerMessage>(&mut answers);
    let mut schemas = requests.take_definitions(true);
    for (name, schema) in answers.take_definitions(true) {
        match schemas.get(&name) {
            // The request schema requires fewer fields and is valid for both.
            Some(read) if is_like(read, &schema) => {}
            Some(_) => bail!("`{name}` is read and written differently and needs two names"),
            None => drop(schemas.insert(name, schema)),
        }
    }
    let mut schemas = schemas::simplified(schemas)?;
    for (name, schema) in
        operations::catalog::schemas()?.into_iter().chain(operations::mcp::schemas())
    {
        if schemas.insert(name.clone(), schema).is_some() {
            bail!("two schemas have the name `{name}`");
        }
    }
    Ok(schemas)
}

/// Returns whether the request and the answer schema differ at most in the required fields and the
/// defaults.
fn is_like(read: &Value, written: &Value) -> bool {
    bare(read) == bare(written)
}

/// Returns a schema without the keywords in which requests and answers may differ.
fn bare(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let told = ["required", "additionalProperties", "unevaluatedProperties", "default"];
            let rest = map.iter().filter(|(name, _)| !told.contains(&name.as_str()));
            let rest = rest.map(|(name, value)| match value {
                // Names of fields, which may equal a keyword.
                Value::Object(fields) if name == "properties" => {
                    let fields = fields.iter().map(|(name, field)| (name.clone(), bare(field)));
                    (name.clone(), fields.collect::<Map<_, _>>().into())
                }
                value => (name.clone(), bare(value)),
            });
            rest.collect::<Map<_, _>>().into()
        }
        Value::Array(list) => list.iter().map(bare).collect(),
        other => other.clone(),
    }
}

/// Defines requests and answers of agents and sessions.
fn define_sessions(requests: &mut SchemaGenerator, answers: &mut SchemaGenerator) {
    define::<api::DeployRequest>(requests);
    define::<api::AgentUpdate>(requests);
    define::<api::CreateSession>(requests);
    define::<api::UpdateSession>(requests);
    define::<api::MessageRequest>(requests);
    define::<api::SessionExec>(requests);
    define::<api::CreateCodeContext>(requests);
    define::<api::ForkCodeContext>(requests);
    define::<api::ExecuteCell>(requests);
    define::<api::ForkRequest>(requests);
    define::<api::MoveFile>(requests);
    define::<api::GrantQuery>(requests);
    define::<api::SnapshotRequest>(requests);
    define::<api::CreateCredential>(requests);
    define::<api::BuildTemplate>(requests);
    define::<api::TagTemplate>(requests);
    define::<api::AgentView>(answers);
    define::<api::AgentList>(answers);
    define::<api::AgentVersionList>(answers);
    define::<api::AgentFileList>(answers);
    define::<api::SessionView>(answers);
    define::<api::SessionList>(answers);
    define::<api::SessionMetrics>(answers);
    define::<api::SandboxCounts>(answers);
    define::<api::NodeView>(answers);
    define::<api::ConsoleCodeRequest>(requests);
    define::<api::ConsoleLogin>(requests);
    define::<api::ConsoleCodeView>(answers);
    define::<api::ConsoleLoginAnswer>(answers);
    define::<api::WhoamiView>(answers);
    define::<api::NodeList>(answers);
    define::<api::DoctorView>(answers);
    define::<api::ConfigView>(answers);
    define::<api::ConfigReloaded>(answers);
    define::<api::TokenList>(answers);
    define::<api::HistoryReport>(answers);
    define::<api::SessionEvent>(answers);
    define::<api::SessionEventList>(answers);
    define::<api::MessageAnswer>(answers);
    define::<api::SessionMessageList>(answers);
    define::<api::InterruptAnswer>(answers);
    define::<api::SessionLogs>(answers);
    define::<api::SessionExecResult>(answers);
    define::<api::SessionExecEvent>(answers);
    define::<api::SessionTerminalList>(answers);
    define::<api::GrantQueryResult>(answers);
    define::<api::GrantDescription>(answers);
    define::<api::CodeContextView>(answers);
    define::<api::CodeContextList>(answers);
    define::<api::CellEvent>(answers);
    define::<api::CellReport>(answers);
    define::<api::FileEntry>(answers);
    define::<api::FileList>(answers);
    define::<api::ArchiveImported>(answers);
    define::<api::FileChange>(answers);
    define::<api::SnapshotView>(answers);
    define::<api::SnapshotList>(answers);
    define::<api::CredentialView>(answers);
    define::<api::CredentialList>(answers);
    define::<api::SessionAttachment>(answers);
    define::<api::SessionAttachmentList>(answers);
    define::<api::UsageReport>(answers);
    define::<api::TemplateView>(answers);
    define::<api::TemplateList>(answers);
    define::<api::TemplateBuildView>(answers);
    define::<api::TemplateBuildList>(answers);
    define::<api::TemplateLogLine>(answers);
    define::<api::TemplateLogList>(answers);
    define::<api::TemplateArchive>(answers);
}

/// Defines requests and answers of the bouncer.
fn define_tenants(requests: &mut SchemaGenerator, answers: &mut SchemaGenerator) {
    define::<api::TenantSpec>(requests);
    define::<api::TenantView>(answers);
    define::<api::TenantList>(answers);
    define::<api::TenantStats>(answers);
    define::<api::TenantStatsList>(answers);
    define::<api::TenantHealthReport>(answers);
    define::<api::BouncerClientList>(answers);
    define::<api::BouncerServerList>(answers);
    define::<api::BouncerReloaded>(answers);
}

fn define<T: JsonSchema>(generator: &mut SchemaGenerator) {
    // A reference to the type leaves its definition in the generator.
    drop(generator.subschema_for::<T>());
}

fn check_references(operation: &ApiOperation, schemas: &Map<String, Value>) -> Result<()> {
    let request = match operation.request {
        RequestBody::Json(schema) => Some(schema),
        RequestBody::Absent | RequestBody::Upload => None,
    };
    let answers = operation.answers.iter().flat_map(|answer| match answer.body {
        AnswerBody::Socket { receives } => vec![receives],
        body => operation::schemas(body),
    });
    for name in request.into_iter().chain(answers) {
        if !schemas.contains_key(name) {
            bail!("`{}` names the schema `{name}`, which does not exist", operation.id);
        }
    }
    Ok(())
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn error_response(status: u16) -> Value {
    let description = match status {
        400 => "The request is malformed; `field` says where.",
        401 => "No token, or one that is not known.",
        403 => "This token may not do this; or the file is not the session's user's to touch.",
        404 => "There is no such thing, or it is another's.",
        405 => "Not at this path.",
        409 => "It is not in a state that allows this; or the idempotency key was used before.",
        410 => "The session has ended, for ever.",
        413 => "The body is larger than the server takes.",
        415 => "The body is not JSON by its content type.",
        416 => "The file is shorter than that.",
        426 => "Only on a WebSocket.",
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
    //! The committed document is the generated one, and is complete.

    use super::*;

    #[test]
    fn openapi_json_is_current() {
        let committed = fs::read_to_string(crate::root().join(OPENAPI)).unwrap();
        assert_eq!(committed, openapi().unwrap(), "run `cargo run -p xtask -- gen`");
    }

    #[test]
    fn the_consoles_types_are_current() {
        let committed = fs::read_to_string(crate::root().join(TYPES)).unwrap();
        assert!(committed == types().unwrap(), "run `cargo run -p xtask -- gen`");
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

    fn again<T: serde::de::DeserializeOwned + serde::Serialize>(
        value: &Value,
    ) -> serde_json::Result<Value> {
        serde_json::to_value(serde_json::from_value::<T>(value.clone())?)
    }

    /// Checks that the type of this name reads the value and writes the same value.
    fn check(schema: &str, value: &Value, place: &str) {
        let again = match schema {
            "ExecutionRequest" => again::<api::ExecutionRequest>(value),
            "BatchRequest" => again::<api::BatchRequest>(value),
            "Execution" => again::<api::Execution>(value),
            "ExecutionRecord" => again::<api::ExecutionRecord>(value),
            "ExecutionList" => again::<api::ExecutionList>(value),
            "BatchAnswer" => again::<api::BatchAnswer>(value),
            "LanguageList" => again::<api::LanguageList>(value),
            "QueueStats" => again::<api::QueueStats>(value),
            "QueueChange" => again::<api::QueueChange>(value),
            "WebhookSecret" => again::<api::WebhookSecret>(value),
            "ExecutionEvent" => again::<api::ExecutionEvent>(value),
            other => return check_sessions(other, value, place),
        };
        let again = again.unwrap_or_else(|error| panic!("{place}: {error}"));
        contains(&again, value, place);
    }

    /// Does the same for types of agents and sessions.
    fn check_sessions(schema: &str, value: &Value, place: &str) {
        let again = match schema {
            "DeployRequest" => again::<api::DeployRequest>(value),
            "AgentUpdate" => again::<api::AgentUpdate>(value),
            "CreateSession" => again::<api::CreateSession>(value),
            "UpdateSession" => again::<api::UpdateSession>(value),
            "MessageRequest" => again::<api::MessageRequest>(value),
            "SessionExec" => again::<api::SessionExec>(value),
            "ForkCodeContext" => again::<api::ForkCodeContext>(value),
            "CreateCodeContext" => again::<api::CreateCodeContext>(value),
            "ExecuteCell" => again::<api::ExecuteCell>(value),
            "ForkRequest" => again::<api::ForkRequest>(value),
            "MoveFile" => again::<api::MoveFile>(value),
            "GrantQuery" => again::<api::GrantQuery>(value),
            "GrantQueryResult" => again::<api::GrantQueryResult>(value),
            "GrantDescription" => again::<api::GrantDescription>(value),
            "SnapshotRequest" => again::<api::SnapshotRequest>(value),
            "CreateCredential" => again::<api::CreateCredential>(value),
            "Agent" => again::<api::AgentView>(value),
            "AgentList" => again::<api::AgentList>(value),
            "AgentVersionList" => again::<api::AgentVersionList>(value),
            "AgentFileList" => again::<api::AgentFileList>(value),
            "Session" => again::<api::SessionView>(value),
            "SessionList" => again::<api::SessionList>(value),
            "SessionMetrics" => again::<api::SessionMetrics>(value),
            "SandboxCounts" => again::<api::SandboxCounts>(value),
            "Node" => again::<api::NodeView>(value),
            "NodeList" => again::<api::NodeList>(value),
            "Doctor" => again::<api::DoctorView>(value),
            "Config" => again::<api::ConfigView>(value),
            "ConfigReloaded" => again::<api::ConfigReloaded>(value),
            "TokenList" => again::<api::TokenList>(value),
            "HistoryReport" => again::<api::HistoryReport>(value),
            "CreateConsoleCode" => again::<api::ConsoleCodeRequest>(value),
            "ConsoleLogin" => again::<api::ConsoleLogin>(value),
            "ConsoleCode" => again::<api::ConsoleCodeView>(value),
            "ConsoleSession" => again::<api::ConsoleLoginAnswer>(value),
            "Whoami" => again::<api::WhoamiView>(value),
            "SessionEvent" => again::<api::SessionEvent>(value),
            "SessionEventList" => again::<api::SessionEventList>(value),
            "MessageAnswer" => again::<api::MessageAnswer>(value),
            "SessionMessageList" => again::<api::SessionMessageList>(value),
            "InterruptAnswer" => again::<api::InterruptAnswer>(value),
            "SessionLogs" => again::<api::SessionLogs>(value),
            "SessionExecResult" => again::<api::SessionExecResult>(value),
            "SessionExecEvent" => again::<api::SessionExecEvent>(value),
            "SessionTerminalList" => again::<api::SessionTerminalList>(value),
            "CodeContext" => again::<api::CodeContextView>(value),
            "CodeContextList" => again::<api::CodeContextList>(value),
            "CellEvent" => again::<api::CellEvent>(value),
            "CellReport" => again::<api::CellReport>(value),
            "FileEntry" => again::<api::FileEntry>(value),
            "FileList" => again::<api::FileList>(value),
            "ArchiveImported" => again::<api::ArchiveImported>(value),
            "FileChange" => again::<api::FileChange>(value),
            "Snapshot" => again::<api::SnapshotView>(value),
            "SnapshotList" => again::<api::SnapshotList>(value),
            "Credential" => again::<api::CredentialView>(value),
            "CredentialList" => again::<api::CredentialList>(value),
            "SessionAttachment" => again::<api::SessionAttachment>(value),
            "SessionAttachmentList" => again::<api::SessionAttachmentList>(value),
            "UsageReport" => again::<api::UsageReport>(value),
            other => return check_templates(other, value, place),
        };
        let again = again.unwrap_or_else(|error| panic!("{place}: {error}"));
        contains(&again, value, place);
    }

    /// Does the same for types of templates.
    fn check_templates(schema: &str, value: &Value, place: &str) {
        let again = match schema {
            "BuildTemplate" => again::<api::BuildTemplate>(value),
            "TagTemplate" => again::<api::TagTemplate>(value),
            "Template" => again::<api::TemplateView>(value),
            "TemplateList" => again::<api::TemplateList>(value),
            "TemplateBuild" => again::<api::TemplateBuildView>(value),
            "TemplateBuildList" => again::<api::TemplateBuildList>(value),
            "TemplateLogLine" => again::<api::TemplateLogLine>(value),
            "TemplateLogList" => again::<api::TemplateLogList>(value),
            "TemplateArchive" => again::<api::TemplateArchive>(value),
            other => return check_tenants(other, value, place),
        };
        let again = again.unwrap_or_else(|error| panic!("{place}: {error}"));
        contains(&again, value, place);
    }

    /// Does the same for types of the bouncer and the gateway.
    fn check_tenants(schema: &str, value: &Value, place: &str) {
        let again = match schema {
            "TenantSpec" => again::<api::TenantSpec>(value),
            "Tenant" => again::<api::TenantView>(value),
            "TenantList" => again::<api::TenantList>(value),
            "TenantStats" => again::<api::TenantStats>(value),
            "TenantStatsList" => again::<api::TenantStatsList>(value),
            "GrantOfferList" => again::<api::GrantOfferList>(value),
            "GrantCheckRequest" => again::<api::GrantCheckRequest>(value),
            "GrantCheckReport" => again::<api::GrantCheckReport>(value),
            "AuditSummaryReport" => again::<api::AuditSummaryReport>(value),
            "TenantHealthReport" => again::<api::TenantHealthReport>(value),
            "BouncerClientList" => again::<api::BouncerClientList>(value),
            "BouncerServerList" => again::<api::BouncerServerList>(value),
            "BouncerReloaded" => again::<api::BouncerReloaded>(value),
            "AuditRecordList" => again::<api::AuditRecordList>(value),
            other => panic!("{place}: no type for {other}"),
        };
        let again = again.unwrap_or_else(|error| panic!("{place}: {error}"));
        contains(&again, value, place);
    }

    /// Checks that no part of the example was silently dropped.
    fn contains(whole: &Value, part: &Value, place: &str) {
        match (whole, part) {
            (Value::Object(whole), Value::Object(part)) => {
                for (name, value) in part {
                    let place = format!("{place}.{name}");
                    let found = whole.get(name).unwrap_or_else(|| panic!("{place} is unknown"));
                    contains(found, value, &place);
                }
            }
            (Value::Array(whole), Value::Array(part)) => {
                assert_eq!(whole.len(), part.len(), "{place}");
                for (index, (whole, part)) in whole.iter().zip(part).enumerate() {
                    contains(whole, part, &format!("{place}[{index}]"));
                }
            }
            _ => assert_eq!(whole, part, "{place}"),
        }
    }

    #[test]
    fn the_examples_are_what_the_types_accept() {
        let is_of_mcp = |it: &Operation| it.entry.tag == "mcp";
        for operation in operations::all().into_iter().filter(|it| !is_of_mcp(it)) {
            let id = operation.entry.id;
            if let (RequestBody::Json(schema), Some(examples)) =
                (operation.entry.request, &operation.examples)
            {
                for (name, example) in examples.as_object().unwrap() {
                    check(schema, &example["value"], &format!("{id}: {name}"));
                }
            }
            for (answer, words) in operation.described().unwrap() {
                for (schema, example) in operation::schemas(answer.body).iter().zip(&words.examples)
                {
                    check(schema, example, &format!("{id}: {}", answer.status));
                }
            }
        }
        let body = operations::webhooks();
        let body = body.pointer("/executionEnded/post/requestBody/content/application~1json");
        check("ExecutionRecord", &body.unwrap()["example"], "webhook");
    }

    #[test]
    fn the_requests_among_the_examples_are_what_the_types_accept() {
        let mut found = 0;
        for entry in fs::read_dir(crate::root().join("examples")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let request = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
                check("ExecutionRequest", &request, &path.display().to_string());
                found += 1;
            }
        }
        assert!(found >= 4);
        let read = |path: &str| -> Value {
            let path = crate::root().join("examples/gateway").join(path);
            serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
        };
        check("ExecutionRequest", &read("judge/request.json"), "the judge's request");
        let grants = read("analyst/grants.json");
        contains(&again::<Vec<api::Grant>>(&grants).unwrap(), &grants, "the agent's grants");
    }

    #[test]
    fn every_operation_of_the_tables_is_described_once_with_its_parameters() {
        let mut described = Vec::new();
        for operation in operations::all() {
            let id = operation.entry.id;
            let named = operation.parameters.as_array().unwrap().iter();
            let named = named.filter(|it| it["in"] == "path").count();
            assert_eq!(named, operation.entry.path.matches('{').count(), "{id}");
            assert!(!described.contains(&id), "{id}");
            described.push(id);
        }
        let mut ids: Vec<&str> = api::operations::all().map(|it| it.id).collect();
        ids.sort_unstable();
        described.sort_unstable();
        assert_eq!(described, ids);
    }
}
