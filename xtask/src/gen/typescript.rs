//! TypeScript types of all schemas, for the console. `xtask gen` writes them with `openapi.json`,
//! so that one command makes both and neither needs Node; types add no byte to a bundle.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Path of the types, from the root of the checkout.
pub(super) const TYPES: &str = "crates/console/ui/src/schema.d.ts";

const HEAD: &str = "\
// Types of Cove's interface, by the names of its schemas. Made from crates/api/openapi.json by
// `cargo run -q -p xtask -- gen`, never by hand.
";

/// Returns the types of all schemas, in the order of their names.
pub(super) fn types(schemas: &Map<String, Value>) -> String {
    let mut text = HEAD.to_owned();
    for (name, schema) in schemas {
        text.push('\n');
        describe(&mut text, schema, "");
        let is_object = schema.get("oneOf").is_none()
            && schema.get("properties").is_some()
            && schema.get("$ref").is_none()
            && !schema["additionalProperties"].is_object();
        let body = type_text(schema, "");
        let _infallible = match is_object {
            true => writeln!(text, "export interface {name} {body}"),
            false => writeln!(text, "export type {name} = {body};"),
        };
    }
    text
}

/// Writes the description of a schema, in one line.
fn describe(text: &mut String, schema: &Value, indent: &str) {
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let words: Vec<&str> = description.split_whitespace().collect();
    if !words.is_empty() {
        let line = words.join(" ").replace("*/", "* /");
        let _infallible = writeln!(text, "{indent}/** {line} */");
    }
}

/// Returns the type of a schema. Types cannot express its formats and bounds.
fn type_text(schema: &Value, indent: &str) -> String {
    let mut parts = Vec::new();
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        parts.push(target.rsplit('/').next().unwrap_or_default().to_owned());
    }
    for choices in ["oneOf", "anyOf"].iter().filter_map(|key| schema.get(*key)?.as_array()) {
        let choices: Vec<_> = choices.iter().map(|choice| type_text(choice, indent)).collect();
        let union = choices.join(" | ");
        parts.push(match choices.len() > 1 && schema.get("properties").is_some() {
            true => format!("({union})"),
            false => union,
        });
    }
    if let Some(all) = schema.get("allOf").and_then(Value::as_array) {
        parts.extend(all.iter().map(|part| type_text(part, indent)));
    }
    if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
        parts.push(object(schema, fields, indent));
        if let Some(others @ Value::Object(_)) = schema.get("additionalProperties") {
            parts.push(format!("Record<string, {}>", type_text(others, indent)));
        }
    }
    if parts.is_empty() {
        return plain(schema, indent);
    }
    parts.join(" & ")
}

fn object(schema: &Value, fields: &Map<String, Value>, indent: &str) -> String {
    let required: Vec<&Value> = schema["required"].as_array().into_iter().flatten().collect();
    let inner = format!("{indent}  ");
    let mut text = "{\n".to_owned();
    for (name, field) in fields {
        describe(&mut text, field, &inner);
        let mark = if required.iter().any(|it| *it == name) { "" } else { "?" };
        let is_word = name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
        let name = if is_word { name.clone() } else { format!("'{name}'") };
        let _infallible = writeln!(text, "{inner}{name}{mark}: {};", type_text(field, &inner));
    }
    text + indent + "}"
}

/// Returns the type of a schema without references and fields.
fn plain(schema: &Value, indent: &str) -> String {
    if let Some(value) = schema.get("const") {
        return literal(value);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().map(literal).collect::<Vec<_>>().join(" | ");
    }
    let names: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => return "unknown".to_owned(),
    };
    let texts: Vec<String> = names.into_iter().map(|name| named(name, schema, indent)).collect();
    texts.join(" | ")
}

fn named(name: &str, schema: &Value, indent: &str) -> String {
    match name {
        "integer" | "number" => "number".to_owned(),
        "array" => match schema.get("items") {
            Some(items) => {
                let text = type_text(items, indent);
                if text.contains(['|', '&']) { format!("({text})[]") } else { format!("{text}[]") }
            }
            None => "unknown[]".to_owned(),
        },
        "object" => match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => {
                format!("Record<string, {}>", type_text(values, indent))
            }
            _ => "Record<string, unknown>".to_owned(),
        },
        // `string`, `boolean` and `null` have the same name in both.
        other => other.to_owned(),
    }
}

fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_becomes_the_type_that_accepts_the_same() {
        for (schema, expected) in [
            (json!({ "type": ["integer", "null"] }), "number | null"),
            (json!({ "enum": ["it's", "b"], "type": "string" }), "'it\\'s' | 'b'"),
            (
                json!({ "type": "array", "items": { "type": ["string", "null"] } }),
                "(string | null)[]",
            ),
            (
                json!({ "anyOf": [{ "$ref": "#/components/schemas/A" }, { "type": "null" }] }),
                "A | null",
            ),
            (
                json!({ "type": "object", "additionalProperties": { "type": "boolean" } }),
                "Record<string, boolean>",
            ),
            (json!({ "description": "Anything." }), "unknown"),
            (
                json!({
                    "oneOf": [{ "$ref": "#/x/A" }, { "$ref": "#/x/B" }],
                    "properties": { "seq": { "type": "integer" } }, "required": ["seq"],
                }),
                "(A | B) & {\n  seq: number;\n}",
            ),
            (json!({ "allOf": [{ "$ref": "#/x/A" }, { "$ref": "#/x/B" }] }), "A & B"),
            (
                json!({
                    "$ref": "#/x/Base", "required": ["file-size"],
                    "properties": { "doc": { "type": "string" }, "file-size": { "type": "number" } },
                }),
                "Base & {\n  doc?: string;\n  'file-size': number;\n}",
            ),
        ] {
            assert_eq!(type_text(&schema, ""), expected, "{schema}");
        }
    }

    #[test]
    fn a_description_does_not_end_its_comment() {
        let schemas = json!({ "A": { "description": "Ends */ here.\nSecond.", "type": "string" } });
        let Value::Object(schemas) = schemas else { unreachable!("it is an object") };
        assert!(
            types(&schemas).ends_with("/** Ends * / here. Second. */\nexport type A = string;\n")
        );
    }
}
