//! Relevant fields of a request's body, parsed without building the rest of it.
//!
//! JSON parsers differ in their treatment of duplicate names, and of names in other letter cases
//! (Go's accepts `Model` for `model`). Such a body is rejected rather than interpreted: the
//! endpoint must read exactly what was compared with the grant.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Error of a body that is not an object, or has a relevant name twice or in a wrong form.
pub(super) const UNCLEAR: &str =
    "the body must be one object of JSON in which no relevant field occurs twice";
/// Error of a body without a model.
pub(super) const NO_MODEL: &str = "model: is missing";

/// Relevant field names.
const NAMES: [&str; 4] = ["model", "max_tokens", "stream", "tools"];

/// Relevant fields of a request's body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ModelQuery {
    /// Requested model.
    pub(super) model: String,
    /// Models that its tools request, such as an advisor's.
    pub(super) of_tools: Vec<String>,
    /// Maximum tokens of the answer.
    pub(super) max_tokens: u64,
    /// True if the answer is streamed.
    pub(super) is_streamed: bool,
    /// True if another field could also select a model.
    pub(super) has_others: bool,
}

impl ModelQuery {
    /// Parses a body.
    ///
    /// # Errors
    /// A description of the problem.
    pub(super) fn read(body: &[u8]) -> Result<ModelQuery, &'static str> {
        let found: RequestFields = serde_json::from_slice(body).map_err(|_| UNCLEAR)?;
        Ok(ModelQuery {
            model: found.model.ok_or(NO_MODEL)?,
            of_tools: found.tools.unwrap_or_default(),
            max_tokens: found.max_tokens.unwrap_or(0),
            is_streamed: found.stream.unwrap_or(false),
            has_others: found.has_others,
        })
    }
}

#[derive(Default)]
struct RequestFields {
    model: Option<String>,
    max_tokens: Option<u64>,
    stream: Option<bool>,
    tools: Option<Vec<String>>,
    has_others: bool,
}

/// Field name of an object.
struct FieldName {
    /// Matching entry of [`NAMES`], if any.
    known: Option<&'static str>,
    /// True if the name is not in [`NAMES`], but could select a model.
    is_other: bool,
}

impl<'de> Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FieldName, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = FieldName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FieldName, E> {
                if let Some(known) = NAMES.into_iter().find(|name| *name == text) {
                    return Ok(FieldName { known: Some(known), is_other: false });
                }
                // Folded in both directions, because some characters map to an ASCII letter in only
                // one of them, such as the Kelvin sign.
                let folded = text.to_lowercase().to_uppercase();
                if NAMES.iter().any(|name| name.eq_ignore_ascii_case(&folded)) {
                    return Err(E::custom("a name in other letters"));
                }
                let is_other = folded.contains("MODEL") || folded.contains("FALLBACK");
                Ok(FieldName { known: None, is_other })
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

fn set<T, E: serde::de::Error>(slot: &mut Option<T>, value: T) -> Result<(), E> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::custom("a name occurs twice")),
    }
}

impl<'de> Deserialize<'de> for RequestFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RequestFields, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = RequestFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RequestFields, A::Error> {
                let mut found = RequestFields::default();
                while let Some(name) = map.next_key::<FieldName>()? {
                    found.has_others |= name.is_other;
                    match name.known {
                        Some("model") => set(&mut found.model, map.next_value()?)?,
                        Some("max_tokens") => set(&mut found.max_tokens, map.next_value()?)?,
                        Some("stream") => set(&mut found.stream, map.next_value()?)?,
                        Some("tools") => {
                            set(&mut found.tools, map.next_value::<ToolModels>()?.0)?;
                        }
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// Models in a list of tools.
struct ToolModels(Vec<String>);

impl<'de> Deserialize<'de> for ToolModels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ToolModels, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = ToolModels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of tools")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ToolModels, A::Error> {
                let mut models = Vec::new();
                while let Some(tool) = list.next_element::<ToolModel>()? {
                    models.extend(tool.0);
                    if models.len() > MODELS_OF_TOOLS_MAX {
                        return Err(A::Error::custom("too many tools have models"));
                    }
                }
                Ok(ToolModels(models))
            }
        }
        deserializer.deserialize_seq(Reader)
    }
}

/// Maximum number of models in the tools of one request.
const MODELS_OF_TOOLS_MAX: usize = 64;

/// Model of one tool.
struct ToolModel(Option<String>);

impl<'de> Deserialize<'de> for ToolModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ToolModel, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = ToolModel;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tool")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ToolModel, A::Error> {
                let mut model = None;
                while let Some(name) = map.next_key::<FieldName>()? {
                    match name.known {
                        Some("model") => set(&mut model, map.next_value()?)?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(ToolModel(model))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<ModelQuery, &'static str> {
        ModelQuery::read(body.as_bytes())
    }

    #[test]
    fn what_is_asked_for_is_found() {
        let body = r#"{"messages":[{"model":"x","content":"{\"model\":\"y\"}"}],"stream":true,
            "system":[[[1,2.5e3,null]]],"mod\u0065l":"a-1","max_tokens":9,
            "tools":[{"name":"t","input_schema":{"properties":{"model":{}}}},
                     {"type":"advisor","model":"big"}]}"#;
        let found = read(body).unwrap();
        let of_tools = vec!["big".to_owned()];
        let model = "a-1".to_owned();
        let expected =
            ModelQuery { model, of_tools, max_tokens: 9, is_streamed: true, has_others: false };
        assert_eq!(found, expected);
        assert!(read(r#"{"model":"a","fallback_models":["b"]}"#).unwrap().has_others);
        assert!(read(r#"{"model":"a","Fallbacks":[]}"#).unwrap().has_others);
        // At any nesting depth.
        let deep = format!(r#"{{"x":{}{},"model":"a"}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(read(&deep).unwrap().model, "a");
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for body in [
            r#"{"model":"a","model":"b"}"#,
            r#"{"model":"a","mod\u0065l":"a"}"#,
            r#"{"model":"a","Model":"b"}"#,
            r#"{"MODEL":"a"}"#,
            r#"{"model":"a","tool\u017f":[]}"#,
            r#"{"model":"a","max_to\u212aens":1}"#,
            r#"{"model":["a"]}"#,
            r#"{"model":null}"#,
            r#"{"model":"a"} {"model":"b"}"#,
            r#"{"model":"a","stream":"true"}"#,
            r#"{"model":"a","max_tokens":1,"max_tokens":2}"#,
            r#"{"model":"a","tools":[{"model":"a","model":"b"}]}"#,
            r#"{"model":"a","tools":[{"model":1}]}"#,
            r#"{"model":"a","tools":{"model":"b"}}"#,
            r#"["a"]"#,
            "",
            "{\"model\":\"a\"",
            "\u{feff}{\"model\":\"a\"}",
        ] {
            assert_eq!(read(body), Err(UNCLEAR), "{body}");
        }
        assert_eq!(read("{}"), Err(NO_MODEL));
        let wide: Vec<u8> = "{\"model\":\"a\"}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(ModelQuery::read(&wide), Err(UNCLEAR));
    }
}
