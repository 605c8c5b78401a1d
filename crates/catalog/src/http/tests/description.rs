//! Compares every response in these tests with `openapi.json`: its status, members and their types.

use std::sync::LazyLock;

use serde_json::Value;

use super::*;

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../../api/openapi.json")).unwrap());

/// Checks a response, unless its path belongs to another interface or to none.
pub(super) fn check(method: &str, path: &str, response: &Response) {
    let path = path.split('?').next().unwrap_or_default();
    let Some((name, operation)) = operation_at(method, path) else { return };
    let place = format!("{method} {name} {}", response.status);
    let answers = &operation["responses"];
    let answer = match &answers[response.status.to_string()] {
        // The status of a successful response is documented.
        Value::Null if response.status < 400 => panic!("{place}: the status is not described"),
        Value::Null => {
            let reference = answers["default"]["$ref"].as_str().unwrap_or_default();
            &DOCUMENT["components"]["responses"][reference.rsplit('/').next().unwrap_or_default()]
        }
        answer => answer,
    };
    let schema = &answer["content"]["application/json"]["schema"];
    let kind = response.header("content-type").unwrap_or_default();
    if schema.is_null() {
        assert!(response.body.is_empty(), "{place}: a body that is not described");
    } else if kind.starts_with("application/json") && !response.body.is_empty() {
        // Documents of Iceberg may have more members; responses of the management may not.
        let is_closed = name.starts_with("/catalog/management/");
        // Only one table's schema exceeds this parser's depth.
        if let Ok(value) = serde_json::from_slice(&response.body) {
            conforms(schema, &value, &place, is_closed);
        }
    }
}

/// Returns the operation whose path matches with the most literal segments.
fn operation_at(method: &str, path: &str) -> Option<(&'static str, &'static Value)> {
    let path = format!("{PREFIX}{path}");
    let segments: Vec<&str> = path.split('/').collect();
    let fits = |pattern: &str| {
        let parts: Vec<&str> = pattern.split('/').collect();
        parts.len() == segments.len()
            && parts.iter().zip(&segments).all(|(part, word)| part.starts_with('{') || part == word)
    };
    let paths = DOCUMENT["paths"].as_object()?.iter();
    let (name, methods) =
        paths.filter(|(name, _)| fits(name)).min_by_key(|(name, _)| name.matches('{').count())?;
    Some((name, methods.get(method.to_lowercase())?))
}

/// Panics unless a value matches a schema.
fn conforms(schema: &Value, value: &Value, place: &str, is_closed: bool) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        let schema = &DOCUMENT["components"]["schemas"][name];
        return conforms(schema, value, &format!("{place} {name}"), is_closed);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        conforms(part, value, place, false);
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is_kind = |kind: &&str| match *kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    };
    assert!(kinds.is_empty() || kinds.iter().any(is_kind), "{place}: {value} is no {kinds:?}");
    if let Some(choices) = schema["enum"].as_array() {
        assert!(choices.contains(value), "{place}: {value} is none of {choices:?}");
    }
    if let Some(item) = schema.get("items") {
        for (index, it) in value.as_array().into_iter().flatten().enumerate() {
            conforms(item, it, &format!("{place}[{index}]"), is_closed);
        }
    }
    let Some(members) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        assert!(members.contains_key(name), "{place}: `{name}` is missing in {value}");
    }
    for (name, member) in members {
        let place = format!("{place}.{name}");
        let schema = match (schema["properties"].get(name), schema.get("additionalProperties")) {
            (Some(schema), _) => schema,
            (None, Some(schema)) if schema.is_object() => schema,
            (None, _) => {
                let is_open =
                    schema["properties"].is_null() || schema["additionalProperties"] == true;
                assert!(!is_closed || is_open, "{place}: not described");
                continue;
            }
        };
        conforms(schema, member, &place, is_closed);
    }
}
