//! Code that the tests of asynchronous executions share.

use serde_json::{Value, json};
use testkit::{Client, Request, Response, WebSocket, until};

pub(crate) use crate::support::SOON;

/// `POST target` with a JSON body.
pub(crate) fn post(client: &Client, target: &str, body: &Value) -> Response {
    client.send(&post_request(target, body))
}

/// Returns the request that [`post`] sends.
pub(crate) fn post_request(target: &str, body: &Value) -> Request {
    Request::new("POST", target).header("content-type", "application/json").body(body.to_string())
}

/// Submits a request that must be accepted, and returns its id.
pub(crate) fn submit(client: &Client, request: &Value) -> String {
    let response = post(client, "/v1/executions", request);
    assert_eq!(response.status, 202, "{request}: {}", response.text());
    let record = response.json();
    assert_eq!(response.header("location"), Some(&*path(&id(&record))));
    id(&record)
}

/// Submits several requests at once, and returns their ids.
pub(crate) fn submit_all(client: &Client, requests: &[Value]) -> Vec<String> {
    let body = json!({"executions": requests});
    let response = post(client, "/v1/executions/batch", &body);
    assert_eq!(response.status, 202, "{}", response.text());
    response.json()["executions"].as_array().unwrap().iter().map(id).collect()
}

/// Returns the id in a record.
pub(crate) fn id(record: &Value) -> String {
    record["id"].as_str().unwrap_or_else(|| panic!("no id in {record}")).to_owned()
}

/// Returns the path of an execution.
pub(crate) fn path(id: &str) -> String {
    format!("/v1/executions/{id}")
}

/// Returns the record of an execution.
pub(crate) fn record(client: &Client, id: &str) -> Value {
    let response = client.get(&path(id));
    assert_eq!(response.status, 200, "{id}: {}", response.text());
    response.json()
}

/// Waits for the end of an execution by a long poll.
pub(crate) fn ended(client: &Client, id: &str) -> Value {
    let response = client.get(&format!("{}?wait=true", path(id)));
    assert_eq!(response.status, 200, "{id}: {}", response.text());
    response.json()
}

/// Waits until an execution is in a state.
pub(crate) fn wait_for_state(client: &Client, id: &str, state: &str) -> Value {
    until(&format!("{id} {state}"), SOON, || {
        let record = record(client, id);
        if record["state"] == state { Ok(record) } else { Err(record.to_string()) }
    })
}

/// Cancels an execution.
pub(crate) fn delete(client: &Client, id: &str) -> Response {
    client.send(&Request::new("DELETE", &path(id)))
}

/// Opens a WebSocket on an execution's events.
pub(crate) fn socket(client: &Client, id: &str) -> WebSocket {
    let opened = client.websocket(&format!("{}/events", path(id)));
    opened.unwrap_or_else(|response| panic!("{id}: {}", response.text()))
}

/// Returns the figures of the caller's own executions.
pub(crate) fn figures(client: &Client) -> Value {
    let response = client.get("/v1/queue");
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// Pauses or resumes the queue.
pub(crate) fn set_paused(client: &Client, paused: bool) {
    let verb = if paused { "pause" } else { "resume" };
    let response = post(client, &format!("/v1/queue/{verb}"), &Value::Null);
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.json()["paused"], paused);
}

/// Asserts an error response: status, code and field.
pub(crate) fn assert_error(response: &Response, status: u16, code: &str, field: Option<&str>) {
    let text = response.text();
    assert_eq!(response.status, status, "{text}");
    let error = response.json()["error"].clone();
    assert_eq!(error["code"], code, "{text}");
    assert_eq!(error["field"].as_str(), field, "{text}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{text}");
}
