//! Forms of schemas from which code generators make good clients.
//!
//! schemars writes an enumeration with documented values as `oneOf` over constants, a tagged union
//! as `oneOf` over anonymous objects, and the default of a field as `default`. Generators read
//! these as unions of types, as unnamed types, and as fields that are always present. This module
//! turns them into `enum`, named schemas under a `discriminator`, and a sentence of the description
//! (OpenAPI 3.1.1 §4.8.25, <https://spec.openapis.org/oas/v3.1.1.html#discriminator-object>).

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

/// Rewrites all schemas, by name. Adds one for each form of a tagged union.
///
/// # Errors
/// If the name of a form is taken.
pub(super) fn simplified(schemas: Map<String, Value>) -> Result<Map<String, Value>> {
    let mut simplified = Map::new();
    for (name, schema) in schemas {
        let mut forms = Vec::new();
        let schema = with_named_forms(&name, rewritten(schema), &mut forms);
        for (name, schema) in forms.into_iter().chain([(name, schema)]) {
            if simplified.insert(name.clone(), schema).is_some() {
                bail!("two schemas have the name `{name}`");
            }
        }
    }
    Ok(simplified)
}

/// Returns a schema and its parts, with enumerations as `enum` and without `default`.
fn rewritten(schema: Value) -> Value {
    let map = match schema {
        Value::Object(map) => map,
        Value::Array(list) => return list.into_iter().map(rewritten).collect(),
        other => return other,
    };
    let mut map: Map<String, Value> =
        map.into_iter().map(|(key, value)| (key, rewritten(value))).collect();
    // A field named `default` has a schema, which is an object with a type.
    let is_schema = map.contains_key("type") || map.contains_key("$ref");
    if is_schema && let Some(default) = map.remove("default") {
        describe_default(&mut map, &default);
    }
    as_enumeration(&mut map);
    Value::Object(map)
}

/// Describes the value of an omitted field, unless that value is empty.
fn describe_default(map: &mut Map<String, Value>, default: &Value) {
    let is_plain = match default {
        Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    };
    if is_plain {
        let description = map.get("description").and_then(Value::as_str).unwrap_or_default();
        let description = format!("{description} Default: `{default}`.");
        map.insert("description".to_owned(), description.trim_start().into());
    }
}

/// Turns a `oneOf` over constants into `enum`, with the meaning of each value in
/// `x-enumDescriptions`.
fn as_enumeration(map: &mut Map<String, Value>) {
    let Some(choices) = map.get("oneOf").and_then(Value::as_array) else { return };
    let values: Vec<Value> = choices
        .iter()
        .flat_map(|choice| match (choice.get("const"), choice.get("enum")) {
            (Some(value), _) => vec![(value.clone(), choice.get("description").cloned())],
            (None, Some(Value::Array(values))) => {
                values.iter().map(|value| (value.clone(), None)).collect()
            }
            _ => Vec::new(),
        })
        .map(|(value, description)| json!([value, description]))
        .collect();
    let has_only_values = choices.iter().all(|choice| {
        choice["type"] == "string" && (choice.get("const").is_some() || choice["enum"].is_array())
    });
    if !has_only_values {
        return;
    }
    let described = values.iter().filter_map(|pair| {
        Some((pair[0].as_str()?.to_owned(), Value::from(pair[1].as_str()?.replace('\n', " "))))
    });
    let descriptions: Map<String, Value> = described.collect();
    map.remove("oneOf");
    map.insert("type".to_owned(), "string".into());
    map.insert("enum".to_owned(), values.iter().map(|pair| pair[0].clone()).collect());
    if !descriptions.is_empty() {
        map.insert("x-enumDescriptions".to_owned(), descriptions.into());
    }
}

/// Names the forms of a tagged union and adds the field that distinguishes them.
fn with_named_forms(name: &str, schema: Value, forms: &mut Vec<(String, Value)>) -> Value {
    let Some(tag) = tag_of(&schema) else { return schema };
    let mut schema = schema;
    let mut mapping = Map::new();
    let choices = schema["oneOf"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let references = choices.into_iter().map(|choice| {
        let value = choice["properties"][&tag]["const"].as_str().unwrap_or_default().to_owned();
        let form = format!("{name}{}", in_pascal_case(&value));
        let reference = format!("#/components/schemas/{form}");
        forms.push((form, choice));
        mapping.insert(value, reference.clone().into());
        json!({ "$ref": reference })
    });
    schema["oneOf"] = references.collect();
    schema["discriminator"] = json!({ "propertyName": tag, "mapping": mapping });
    schema
}

/// Returns the field whose constant distinguishes all forms of a union.
fn tag_of(schema: &Value) -> Option<String> {
    let choices = schema["oneOf"].as_array()?;
    let constants = |choice: &Value| -> Vec<String> {
        let fields = choice["properties"].as_object().into_iter().flatten();
        fields.filter(|(_, it)| it["const"].is_string()).map(|(name, _)| name.clone()).collect()
    };
    let mut tags = constants(choices.first()?).into_iter();
    tags.find(|tag| choices.iter().all(|choice| constants(choice).contains(tag)))
}

/// Turns `trailing_space` into `TrailingSpace`.
fn in_pascal_case(value: &str) -> String {
    let words = value.split(|it: char| !it.is_ascii_alphanumeric());
    words
        .map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            format!("{}{rest}", first.to_ascii_uppercase())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enumerations_unions_and_defaults_have_the_forms_that_generators_read() {
        let schemas = json!({
            "Colour": { "description": "A colour.", "oneOf": [
                { "const": "red", "description": "Like\nblood.", "type": "string" },
                { "enum": ["green", "blue"], "type": "string" }
            ] },
            "Shape": { "oneOf": [
                { "type": "object", "required": ["kind"],
                  "properties": { "kind": { "const": "big_circle", "type": "string" } } },
                { "type": "object", "required": ["kind"],
                  "properties": { "kind": { "const": "line", "type": "string" },
                                  "width": { "type": "number", "default": 1.5,
                                             "description": "In millimetres." } } }
            ] },
            "Either": { "oneOf": [{ "type": "object" }, { "type": "string" }] },
            "Plain": { "type": "object", "properties": {
                "limits": { "$ref": "#/components/schemas/Shape", "default": {} },
                "default": { "type": "string", "default": "" }
            } }
        });
        let Value::Object(schemas) = schemas else { panic!("an object") };
        let expected = json!({
            "Colour": {
                "description": "A colour.", "type": "string", "enum": ["red", "green", "blue"],
                "x-enumDescriptions": { "red": "Like blood." }
            },
            "ShapeBigCircle": { "type": "object", "required": ["kind"],
                "properties": { "kind": { "const": "big_circle", "type": "string" } } },
            "ShapeLine": { "type": "object", "required": ["kind"],
                "properties": { "kind": { "const": "line", "type": "string" },
                                "width": { "type": "number",
                                           "description": "In millimetres. Default: `1.5`." } } },
            "Shape": {
                "oneOf": [
                    { "$ref": "#/components/schemas/ShapeBigCircle" },
                    { "$ref": "#/components/schemas/ShapeLine" }
                ],
                "discriminator": { "propertyName": "kind", "mapping": {
                    "big_circle": "#/components/schemas/ShapeBigCircle",
                    "line": "#/components/schemas/ShapeLine"
                } }
            },
            "Either": { "oneOf": [{ "type": "object" }, { "type": "string" }] },
            "Plain": { "type": "object", "properties": {
                "limits": { "$ref": "#/components/schemas/Shape" },
                "default": { "type": "string" }
            } }
        });
        assert_eq!(Value::Object(simplified(schemas).unwrap()), expected);
        let clash = json!({ "ALine": {}, "A": { "oneOf": [
            { "properties": { "kind": { "const": "line" } } }
        ] } });
        let Value::Object(clash) = clash else { panic!("an object") };
        assert!(simplified(clash).unwrap_err().to_string().contains("`ALine`"));
    }
}
