//! An operation as the document shows it: its table entry with descriptions and examples.

use anyhow::{Result, bail};
use api::operations::{
    AnswerBody, ApiOperation, KeyedRequests, OperationAnswer, OperationRight, RequestBody,
};
use serde_json::{Map, Value, json};

use super::{operations, reference};

/// Description and examples of an operation, in addition to its table entry.
pub(super) struct Operation {
    pub(super) entry: &'static ApiOperation,
    pub(super) description: &'static str,
    pub(super) parameters: Value,
    /// Examples of its requests, by name.
    pub(super) examples: Option<Value>,
    pub(super) answers: Vec<AnswerWords>,
}

/// Description of an answer, with an example of each type that its body may have.
pub(super) struct AnswerWords {
    pub(super) status: u16,
    pub(super) says: &'static str,
    pub(super) examples: Vec<Value>,
}

impl Operation {
    /// Begins the description of an operation.
    pub(super) fn of(entry: &'static ApiOperation, description: &'static str) -> Operation {
        let (parameters, answers) = (json!([]), Vec::new());
        Operation { entry, description, parameters, examples: None, answers }
    }

    /// Sets the parameters of path, query and headers.
    pub(super) fn with_parameters(self, parameters: Value) -> Operation {
        Operation { parameters, ..self }
    }

    /// Adds the example of a request.
    pub(super) fn takes(self, name: &str, summary: &str, value: Value) -> Operation {
        self.takes_any_of(json!({ name: { "summary": summary, "value": value } }))
    }

    /// Adds examples of requests by name.
    pub(super) fn takes_any_of(self, examples: Value) -> Operation {
        Operation { examples: Some(examples), ..self }
    }

    /// Describes an answer that is a document, or a stream of events.
    pub(super) fn answers(self, status: u16, says: &'static str, example: Value) -> Operation {
        self.answers_with(status, says, vec![example])
    }

    /// Describes an answer that is events or a document, as the caller requests.
    pub(super) fn tells_or(self, says: &'static str, event: Value, document: Value) -> Operation {
        self.answers_with(200, says, vec![event, document])
    }

    /// Describes an answer of bytes, or without a body.
    pub(super) fn gives(self, status: u16, says: &'static str) -> Operation {
        self.answers_with(status, says, Vec::new())
    }

    /// Describes a WebSocket.
    pub(super) fn opens(self, says: &'static str) -> Operation {
        self.answers_with(101, says, Vec::new())
    }

    fn answers_with(mut self, status: u16, says: &'static str, examples: Vec<Value>) -> Operation {
        self.answers.push(AnswerWords { status, says, examples });
        self
    }

    /// Adds a query parameter.
    pub(super) fn asks(mut self, name: &str, kind: &str, description: &str) -> Operation {
        if let Some(all) = self.parameters.as_array_mut() {
            all.push(json!({
                "name": name, "in": "query", "required": false, "description": description,
                "schema": { "type": kind }
            }));
        }
        self
    }

    /// Path in the document, where a wildcard is a parameter like any other.
    pub(super) fn path(&self) -> String {
        self.entry.path.replace("{*", "{")
    }

    /// Every error status of the operation, except those of idempotency keys.
    pub(super) fn failures(&self) -> impl Iterator<Item = u16> {
        let with_token: &[u16] = if self.entry.right.needs_token() { &[401, 503] } else { &[] };
        self.entry.errors.iter().chain(with_token).copied()
    }

    /// Returns the answers, each with its description.
    ///
    /// # Errors
    /// If an answer has no description, a description has no answer, or a type has no example.
    pub(super) fn described(&self) -> Result<Vec<(&'static OperationAnswer, &AnswerWords)>> {
        let ApiOperation { id, answers, request, .. } = self.entry;
        if matches!(request, RequestBody::Json(_)) != self.examples.is_some() {
            bail!("`{id}` has examples of requests if it takes a document, and only then");
        }
        if answers.len() != self.answers.len() {
            bail!("`{id}` has {} answers, and words about {}", answers.len(), self.answers.len());
        }
        let mut described = Vec::new();
        for answer in *answers {
            let words = self.answers.iter().find(|it| it.status == answer.status);
            match words {
                Some(words) if words.examples.len() == schemas(answer.body).len() => {
                    described.push((answer, words));
                }
                Some(_) => bail!("`{id}`: {} needs an example of each type", answer.status),
                None => bail!("`{id}` says nothing of {}", answer.status),
            }
        }
        Ok(described)
    }

    /// Returns the operation in the form of the document.
    ///
    /// # Errors
    /// If descriptions and table differ.
    pub(super) fn to_value(&self) -> Result<Value> {
        let ApiOperation { id, tag, summary, request, right, keys, command, .. } = *self.entry;
        let mut parameters = self.parameters.as_array().cloned().unwrap_or_default();
        let mut responses = Map::new();
        if matches!(keys, KeyedRequests::Kept | KeyedRequests::EndWithClient) {
            parameters.push(operations::shell_idempotency_parameter(keys));
            responses.insert("409".to_owned(), json!({ "$ref": "#/components/responses/409" }));
        }
        for status in self.failures() {
            let place = format!("#/components/responses/{status}");
            responses.insert(status.to_string(), json!({ "$ref": place }));
        }
        for (answer, words) in self.described()? {
            responses.insert(answer.status.to_string(), response(answer.body, words));
        }
        let mut value = json!({
            "operationId": id,
            "tags": [tag],
            "summary": summary,
            "description": self.description,
            "responses": responses,
            "security": security(right),
        });
        if let Some(command) = command {
            value["x-cove-command"] = format!("cove {command}").into();
        }
        if !parameters.is_empty() {
            value["parameters"] = parameters.into();
        }
        if let (RequestBody::Json(schema), Some(examples)) = (request, &self.examples) {
            value["requestBody"] = json!({
                "required": true,
                "content": {
                    "application/json": { "schema": reference(schema), "examples": examples }
                }
            });
        }
        Ok(value)
    }
}

/// The operator role, in the security requirements of tokens.
const OPERATOR: &str = "operator";

/// Returns the alternative security requirements of a caller. Beside scopes, roles name required
/// properties of a token (OpenAPI 3.1, "Security Requirement Object").
fn security(right: OperationRight) -> Value {
    match right {
        OperationRight::Open => json!([]),
        OperationRight::AnyToken => json!([{ "token": [] }]),
        OperationRight::OneOf(scopes) => {
            scopes.iter().map(|scope| json!({ "token": [scope.name()] })).collect()
        }
        OperationRight::Operator(scopes) => {
            let scopes = scopes.iter().map(|scope| scope.name());
            json!([{ "token": scopes.chain([OPERATOR]).collect::<Vec<_>>() }])
        }
    }
}

/// Returns the types that a body may have, in the order of their examples.
pub(super) fn schemas(body: AnswerBody) -> Vec<&'static str> {
    match body {
        AnswerBody::Json(schema) | AnswerBody::Events(schema) => vec![schema],
        AnswerBody::EventsOr { event, document } => vec![event, document],
        AnswerBody::Bytes(_) | AnswerBody::Socket { .. } => Vec::new(),
    }
}

fn response(body: AnswerBody, words: &AnswerWords) -> Value {
    let says = words.says;
    let (document, events) = ("application/json", "text/event-stream");
    let media_types = match body {
        AnswerBody::Json(_) => vec![document],
        AnswerBody::Events(_) => vec![events],
        AnswerBody::EventsOr { .. } => vec![events, document],
        AnswerBody::Bytes(media_type) => {
            return json!({ "description": says, "content": { media_type: {} } });
        }
        // OpenAPI cannot describe a WebSocket. The received type is a link that tools can follow,
        // because the format has no place for it.
        AnswerBody::Socket { receives } => {
            return json!({ "description": says, "x-receives": reference(receives) });
        }
    };
    let content = media_types.into_iter().zip(schemas(body)).zip(&words.examples);
    let content = content.map(|((media_type, schema), example)| {
        (media_type.to_owned(), json!({ "schema": reference(schema), "example": example }))
    });
    json!({ "description": says, "content": content.collect::<Map<_, _>>() })
}
