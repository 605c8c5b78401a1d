//! Tools, prompts and resources that the conformance suite asks for by name.

use std::time::Duration;

use mcp::{InputMethod, McpCall, McpError, McpOffer, McpOutcome, McpReply, NeededInput};
use node::auth::TokenPrincipal;
use node::task::Boxed;
use serde_json::{Map, Value, json};

/// A PNG of one red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

/// A WAV without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// Pause between two notices of a tool, as the suite asks for.
const PAUSE: Duration = Duration::from_millis(50);

const TOOLS: &[&str] = &[
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_progress",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];

#[derive(Debug)]
pub(crate) struct ConformanceFixture;

impl McpOffer for ConformanceFixture {
    fn server_info(&self) -> Value {
        json!({ "name": "cove-conformance", "version": "1.0.0" })
    }

    fn instructions(&self) -> &'static str {
        "Tools of a test."
    }

    fn capabilities(&self) -> Value {
        json!({ "tools": {}, "resources": {}, "prompts": {}, "completions": {}, "logging": {} })
    }

    fn tools(&self, _principal: &TokenPrincipal) -> Vec<Value> {
        let plain = TOOLS.iter().map(|name| {
            let schema = json!({ "type": "object", "properties": {} });
            json!({ "name": name, "description": "A tool of the suite", "inputSchema": schema })
        });
        plain.chain([with_schema(), with_header()]).collect()
    }

    fn call_tool<'a>(
        &'a self,
        call: &'a McpCall,
        name: &'a str,
        _arguments: Map<String, Value>,
    ) -> Boxed<'a, McpOutcome> {
        Box::pin(async move {
            match name {
                "test_tool_with_progress" => {
                    for progress in [0, 50, 100] {
                        call.report_progress(progress, 100).await;
                        tokio::time::sleep(PAUSE).await;
                    }
                    Ok(text("reported"))
                }
                "test_tool_with_logging" | "test_logging_tool" => {
                    for line in [
                        "Tool execution started",
                        "Tool processing data",
                        "Tool execution completed",
                    ] {
                        call.log("info", json!(line)).await;
                        tokio::time::sleep(PAUSE).await;
                    }
                    Ok(text("logged"))
                }
                "json_schema_2020_12_tool" | "test_header_parameter" => Ok(text("called")),
                name if name.starts_with("test_input_required_result") => asking(call, name),
                "test_streaming_elicitation" => asking(call, name),
                "test_missing_capability" if call.has_capability("sampling") => Ok(text("sampled")),
                "test_missing_capability" => {
                    let needed = Map::from_iter([("sampling".to_owned(), json!({}))]);
                    Err(McpError::missing_capability(needed))
                }
                name => content(name),
            }
        })
    }

    fn header_arguments(&self, tool: &str) -> &[(&str, &str)] {
        match tool {
            "test_header_parameter" => &[("region", "Region")],
            _ => &[],
        }
    }

    fn resources(&self) -> Vec<Value> {
        vec![
            json!({
                "uri": "test://static-text",
                "name": "static-text",
                "description": "A text",
                "mimeType": "text/plain",
            }),
            json!({
                "uri": "test://static-binary",
                "name": "static-binary",
                "description": "An image",
                "mimeType": "image/png",
            }),
        ]
    }

    fn resource_templates(&self) -> Vec<Value> {
        vec![json!({
            "uriTemplate": "test://template/{id}/data",
            "name": "template",
            "description": "Data by an id",
            "mimeType": "application/json",
        })]
    }

    fn read_resource<'a>(&'a self, _call: &'a McpCall, uri: &'a str) -> Boxed<'a, McpOutcome> {
        Box::pin(async move {
            let id = uri.strip_prefix("test://template/").and_then(|it| it.strip_suffix("/data"));
            let content = match (uri, id) {
                ("test://static-text", _) => json!({
                    "uri": uri,
                    "mimeType": "text/plain",
                    "text": "This is the content of the static text resource.",
                }),
                ("test://static-binary", _) => {
                    json!({ "uri": uri, "mimeType": "image/png", "blob": PNG })
                }
                (_, Some(id)) => {
                    let data = format!("Data for ID: {id}");
                    let data = json!({ "id": id, "templateTest": true, "data": data });
                    json!({ "uri": uri, "mimeType": "application/json", "text": data.to_string() })
                }
                _ => {
                    let mut error = McpError::params("unknown resource");
                    error.data = Some(json!({ "uri": uri }));
                    return Err(error);
                }
            };
            Ok(McpReply::Complete(json!({ "contents": [content] })))
        })
    }

    fn prompts(&self) -> Vec<Value> {
        let argument =
            |name: &str| json!({ "name": name, "description": "A text", "required": true });
        let prompt = |name: &str, arguments: Vec<Value>| json!({ "name": name, "description": "A prompt of the suite", "arguments": arguments });
        vec![
            prompt("test_simple_prompt", vec![]),
            prompt("test_prompt_with_arguments", vec![argument("arg1"), argument("arg2")]),
            prompt("test_prompt_with_embedded_resource", vec![argument("resourceUri")]),
            prompt("test_prompt_with_image", vec![]),
            prompt("test_input_required_result_prompt", vec![]),
        ]
    }

    fn get_prompt<'a>(
        &'a self,
        call: &'a McpCall,
        name: &'a str,
        arguments: Map<String, Value>,
    ) -> Boxed<'a, McpOutcome> {
        Box::pin(async move {
            let argument =
                |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
            let plain = |text: &str| json!({ "type": "text", "text": text });
            let contents = match name {
                "test_simple_prompt" => vec![plain("This is a simple prompt for testing.")],
                "test_prompt_with_arguments" => {
                    let (first, second) = (argument("arg1"), argument("arg2"));
                    let text = format!("Prompt with arguments: arg1='{first}', arg2='{second}'");
                    vec![plain(&text)]
                }
                "test_prompt_with_embedded_resource" => vec![
                    resource(argument("resourceUri"), "Embedded resource content for testing."),
                    plain("Please process the embedded resource above."),
                ],
                "test_prompt_with_image" => vec![
                    json!({ "type": "image", "data": PNG, "mimeType": "image/png" }),
                    plain("Please analyze the image above."),
                ],
                "test_input_required_result_prompt" => {
                    let Some(context) = accepted(call, "user_context", "context") else {
                        let needed =
                            form("user_context", "What context should the prompt use?", "context");
                        return Ok(McpReply::InputRequired(needed));
                    };
                    vec![plain(context)]
                }
                name => return Err(McpError::params(format!("unknown prompt \"{name}\""))),
            };
            let messages: Vec<Value> = contents
                .into_iter()
                .map(|content| json!({ "role": "user", "content": content }))
                .collect();
            Ok(McpReply::Complete(json!({ "messages": messages })))
        })
    }

    fn complete(&self, params: &Map<String, Value>) -> Value {
        let begun = params["argument"]["value"].as_str().unwrap_or_default();
        let all = ["paris", "park", "party"];
        let values: Vec<&str> = all.into_iter().filter(|value| value.starts_with(begun)).collect();
        json!({ "values": values, "total": values.len(), "hasMore": false })
    }
}

fn text(text: &str) -> McpReply {
    McpReply::Complete(json!({ "content": [{ "type": "text", "text": text }] }))
}

fn resource(uri: &str, text: &str) -> Value {
    json!({
        "type": "resource",
        "resource": { "uri": uri, "mimeType": "text/plain", "text": text },
    })
}

/// Constant results.
fn content(name: &str) -> McpOutcome {
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let content = match name {
        "test_simple_text" => return Ok(text("This is a simple text response for testing.")),
        "test_image_content" => vec![image],
        "test_audio_content" => {
            vec![json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })]
        }
        "test_embedded_resource" => {
            vec![resource("test://embedded-resource", "This is an embedded resource content.")]
        }
        "test_multiple_content_types" => vec![
            json!({ "type": "text", "text": "Multiple content types test:" }),
            image,
            json!({
                "type": "resource",
                "resource": {
                    "uri": "test://mixed-content-resource",
                    "mimeType": "application/json",
                    "text": "{\"test\":\"data\",\"value\":123}",
                },
            }),
        ],
        "test_error_handling" => {
            let text = "This tool intentionally returns an error for testing";
            let content = json!([{ "type": "text", "text": text }]);
            return Ok(McpReply::Complete(json!({ "content": content, "isError": true })));
        }
        name => return Err(McpError::params(format!("unknown tool \"{name}\""))),
    };
    Ok(McpReply::Complete(json!({ "content": content })))
}

/// A question to the user for one text.
fn form(key: &str, message: &str, field: &str) -> NeededInput {
    with_form(NeededInput::default(), key, message, field)
}

fn with_form(needed: NeededInput, key: &str, message: &str, field: &str) -> NeededInput {
    let properties = Map::from_iter([(field.to_owned(), json!({ "type": "string" }))]);
    let schema = json!({ "type": "object", "properties": properties, "required": [field] });
    needed.ask(
        key,
        InputMethod::Elicitation,
        json!({ "mode": "form", "message": message, "requestedSchema": schema }),
    )
}

fn with_sampling(needed: NeededInput, key: &str, question: &str) -> NeededInput {
    let content = json!({ "type": "text", "text": question });
    let messages = json!([{ "role": "user", "content": content }]);
    needed.ask(key, InputMethod::Sampling, json!({ "messages": messages, "maxTokens": 100 }))
}

/// A field of a form that the user has sent.
fn accepted<'a>(call: &'a McpCall, key: &str, field: &str) -> Option<&'a str> {
    call.input(key)?.get("content")?.get(field)?.as_str()
}

/// Tools that need input.
fn asking(call: &McpCall, name: &str) -> McpOutcome {
    let none = NeededInput::default;
    let needed = match name {
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
            match accepted(call, "user_name", "name") {
                Some(name) => return Ok(text(&format!("Hello, {name}!"))),
                None => form("user_name", "What is your name?", "name"),
            }
        }
        "test_input_required_result_sampling" => {
            match call.input("capital_question").and_then(|it| it.get("content")) {
                Some(answer) => return Ok(text(answer["text"].as_str().unwrap_or_default())),
                None => with_sampling(none(), "capital_question", "What is the capital of France?"),
            }
        }
        "test_input_required_result_list_roots" => match call.input("client_roots") {
            Some(roots) => return Ok(text(&json!(roots).to_string())),
            None => none().ask("client_roots", InputMethod::Roots, json!({})),
        },
        "test_input_required_result_multiple_inputs" => {
            let all = ["user_name", "greeting", "client_roots"];
            if call.state().is_some() && all.iter().all(|key| call.input(key).is_some()) {
                return Ok(text("all answered"));
            }
            let needed = with_form(none(), all[0], "What is your name?", "name");
            let needed = with_sampling(needed, all[1], "Generate a greeting");
            needed.ask(all[2], InputMethod::Roots, json!({})).remember("asked for all")
        }
        "test_input_required_result_multi_round" => {
            match (call.state(), accepted(call, "step1", "name"), accepted(call, "step2", "color"))
            {
                (Some("round 2"), _, Some(color)) => return Ok(text(&format!("{color} it is"))),
                (Some("round 1"), Some(_), _) => {
                    form("step2", "Step 2: What is your favorite color?", "color")
                        .remember("round 2")
                }
                _ => form("step1", "Step 1: What is your name?", "name").remember("round 1"),
            }
        }
        "test_input_required_result_capabilities" => {
            let mut needed = none();
            if call.has_capability("elicitation") {
                needed = with_form(needed, "user_name", "What is your name?", "name");
            }
            if call.has_capability("sampling") {
                needed = with_sampling(needed, "greeting", "Generate a greeting");
            }
            needed
        }
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => {
            match (call.state(), call.input("confirm")) {
                (Some("to be confirmed"), Some(_)) => return Ok(text("state-ok")),
                _ => {
                    let schema = json!({
                        "type": "object",
                        "properties": { "ok": { "type": "boolean" } },
                        "required": ["ok"],
                    });
                    let params = json!({ "message": "Please confirm", "requestedSchema": schema });
                    let needed = none().ask("confirm", InputMethod::Elicitation, params);
                    needed.remember("to be confirmed")
                }
            }
        }
        name => return Err(McpError::params(format!("unknown tool \"{name}\""))),
    };
    Ok(McpReply::InputRequired(needed))
}

/// A tool whose schema has much of JSON Schema 2020-12.
fn with_schema() -> Value {
    json!({
        "name": "json_schema_2020_12_tool",
        "description": "Tool with JSON Schema 2020-12 features",
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
                },
            },
            "properties": {
                "name": { "type": "string" },
                "address": { "$ref": "#/$defs/address" },
                "contactMethod": { "type": "string", "enum": ["phone", "email"] },
                "phone": { "type": "string" },
                "email": { "type": "string" },
            },
            "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
            "if": {
                "properties": { "contactMethod": { "const": "phone" } },
                "required": ["contactMethod"],
            },
            "then": { "required": ["phone"] },
            "else": { "required": ["email"] },
            "additionalProperties": false,
        },
    })
}

/// A tool with an argument that a header repeats.
fn with_header() -> Value {
    json!({
        "name": "test_header_parameter",
        "description": "Tool with an argument that is in a header, too",
        "inputSchema": {
            "type": "object",
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
        },
    })
}
