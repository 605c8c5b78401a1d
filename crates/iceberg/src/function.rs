//! A function's document: checked against the structure that the interface specifies, and stored in
//! its original form.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use serde::Deserialize;

use crate::error::{CatalogError, ErrorReason, Result, illegal};
use crate::ident::Uuid;
use crate::json::{JsonKind, RawJson};
use crate::schema::ColumnType;

/// Longest document, in bytes.
pub const FUNCTION_BYTES_MAX: usize = 1 << 20;

/// Most definitions of a function, versions of a definition, and representations of a version.
pub const DEFINITIONS_MAX: usize = 1_000;

/// Most parameters of a definition.
pub const PARAMETERS_MAX: usize = 1_000;

/// The only version of the format of such documents.
const FORMAT_VERSION: i64 = 1;

/// A function's document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionDoc {
    /// UUID, which never changes.
    pub uuid: Uuid,
    /// Location of its files, if it has one.
    pub location: Option<String>,
    /// The whole document.
    pub document: Bytes,
}

/// The checked part of the document. Unknown members are kept as well.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FunctionMetadata {
    function_uuid: String,
    format_version: i64,
    definitions: Vec<FunctionDefinition>,
    definition_log: Vec<FunctionLogEntry>,
    location: Option<String>,
    #[serde(rename = "properties")]
    _properties: Option<BTreeMap<String, String>>,
    #[serde(rename = "secure")]
    _secure: Option<bool>,
    #[serde(rename = "doc")]
    _doc: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FunctionDefinition {
    definition_id: String,
    specific_name: Option<String>,
    parameters: Vec<FunctionParameter>,
    return_type: serde_json::Value,
    #[serde(rename = "return-nullable")]
    _return_nullable: Option<bool>,
    versions: Vec<FunctionVersion>,
    current_version_id: i64,
    function_type: FunctionType,
    #[serde(rename = "doc")]
    _doc: Option<String>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum FunctionType {
    Udf,
    Udtf,
}

#[derive(Deserialize)]
struct FunctionParameter {
    #[serde(rename = "type")]
    kind: serde_json::Value,
    name: String,
    #[serde(rename = "doc")]
    _doc: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FunctionVersion {
    version_id: i64,
    representations: Vec<FunctionRepresentation>,
    #[serde(rename = "deterministic")]
    _deterministic: Option<bool>,
    #[serde(rename = "on-null-input")]
    _on_null_input: Option<OnNullInput>,
    #[serde(rename = "timestamp-ms")]
    _timestamp_ms: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OnNullInput {
    ReturnNull,
    Call,
}

#[derive(Deserialize)]
struct FunctionRepresentation {
    #[serde(rename = "type")]
    kind: String,
    dialect: String,
    sql: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FunctionLogEntry {
    #[serde(rename = "timestamp-ms")]
    _timestamp_ms: i64,
    definition_versions: Vec<VersionRef>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct VersionRef {
    #[serde(rename = "definition-id")]
    _definition_id: String,
    #[serde(rename = "version-id")]
    _version_id: i64,
}

impl FunctionDoc {
    /// Parses a document. One without a UUID receives `uuid`.
    ///
    /// # Errors
    /// `BadRequest` if it is malformed; `IllegalArgument` if it contradicts itself; `TooLarge`.
    pub fn parse(text: &RawJson, uuid: Uuid) -> Result<FunctionDoc> {
        if text.kind() != JsonKind::Object {
            return Err(CatalogError::new(ErrorReason::BadRequest, "`metadata` is an object"));
        }
        let text = match text.present("function-uuid") {
            Some(_) => text.clone(),
            None => text.with("function-uuid", &RawJson::string(&uuid.to_string()))?,
        };
        let text = text.compact();
        if text.as_bytes().len() > FUNCTION_BYTES_MAX {
            let message = format!("a function has at most {FUNCTION_BYTES_MAX} bytes");
            return Err(CatalogError::new(ErrorReason::TooLarge, message));
        }
        let read: FunctionMetadata = text.decode()?;
        let uuid =
            read.function_uuid.parse().map_err(|_| illegal("`function-uuid` is not a UUID"))?;
        if read.format_version != FORMAT_VERSION {
            return Err(illegal(format!("`format-version` is {FORMAT_VERSION}")));
        }
        require_count("definitions", &read.definitions)?;
        let (mut ids, mut names) = (HashSet::new(), HashSet::new());
        for definition in &read.definitions {
            let id = &definition.definition_id;
            if !ids.insert(id) {
                return Err(illegal(format!("`definition-id` occurs twice: {id:.100}")));
            }
            if let Some(name) = &definition.specific_name
                && !names.insert(name)
            {
                return Err(illegal(format!("`specific-name` occurs twice: {name:.100}")));
            }
            definition.check()?;
        }
        for entry in &read.definition_log {
            require_count("definition-versions", &entry.definition_versions)?;
        }
        Ok(FunctionDoc { uuid, location: read.location, document: text.bytes() })
    }
}

impl FunctionDefinition {
    fn check(&self) -> Result<()> {
        let id = &self.definition_id;
        let about = |message: String| illegal(format!("the definition `{id:.100}`: {message}"));
        if self.parameters.len() > PARAMETERS_MAX {
            return Err(about(format!("it has more than {PARAMETERS_MAX} parameters")));
        }
        let mut names = HashSet::new();
        for parameter in &self.parameters {
            if parameter.name.is_empty() || !names.insert(&parameter.name) {
                let name = &parameter.name;
                return Err(about(format!("parameter name `{name:.100}` is empty or not unique")));
            }
            check_type(&parameter.kind).map_err(about)?;
        }
        // The textual form is known only for types of one word.
        let type_names = self.parameters.iter().map(|it| it.kind.as_str());
        if let Some(type_names) = type_names.collect::<Option<Vec<_>>>()
            && type_names.join(",") != *id
        {
            return Err(about(format!("`definition-id` is not `{:.100}`", type_names.join(","))));
        }
        check_type(&self.return_type).map_err(about)?;
        let is_struct = self.return_type["type"] == "struct";
        if self.function_type == FunctionType::Udtf && !is_struct {
            return Err(about("`return-type` of a `udtf` is a struct".to_owned()));
        }
        require_count("versions", &self.versions)?;
        let mut ids = HashSet::new();
        for version in &self.versions {
            let number = version.version_id;
            if !ids.insert(number) {
                return Err(about(format!("`version-id` occurs twice: {number}")));
            }
            require_count("representations", &version.representations)?;
            let mut dialects = HashSet::new();
            for it in &version.representations {
                if it.kind != "sql" {
                    return Err(about("a representation has the `type` `sql`".to_owned()));
                }
                if it.dialect.is_empty() || it.sql.is_empty() {
                    return Err(about("a representation has a `dialect` and `sql`".to_owned()));
                }
                if !dialects.insert(it.dialect.to_lowercase()) {
                    let dialect = &it.dialect;
                    return Err(about(format!("`dialect` occurs twice: {dialect:.100}")));
                }
            }
        }
        match ids.contains(&self.current_version_id) {
            true => Ok(()),
            false => Err(about("no version has the id `current-version-id`".to_owned())),
        }
    }
}

/// Checks a type: a word as in a schema, or a list, map or struct of such types.
fn check_type(kind: &serde_json::Value) -> std::result::Result<(), String> {
    if let Some(word) = kind.as_str() {
        let is_word = !word.contains([' ', '"', '\'']);
        return match ColumnType::parse(word) {
            Ok(known) if is_word && !matches!(known, ColumnType::Other(_)) => Ok(()),
            _ => Err(format!("`{word:.100}` is not a type")),
        };
    }
    match kind["type"].as_str() {
        Some("list") => check_type(&kind["element"]),
        Some("map") => check_type(&kind["key"]).and_then(|()| check_type(&kind["value"])),
        Some("struct") => {
            let fields = kind["fields"].as_array().ok_or("a struct has no `fields`")?;
            fields.iter().try_for_each(|field| match field["name"].as_str() {
                Some(name) if !name.is_empty() => check_type(&field["type"]),
                _ => Err("a field of a struct has no `name`".to_owned()),
            })
        }
        _ => Err("a type is none".to_owned()),
    }
}

fn require_count<T>(name: &str, all: &[T]) -> Result<()> {
    match all.len() {
        0 => Err(illegal(format!("`{name}` is empty"))),
        count if count > DEFINITIONS_MAX => {
            Err(illegal(format!("`{name}` has more than {DEFINITIONS_MAX}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use testkit::documents::function_metadata;

    use super::*;

    fn parse(metadata: &Value) -> Result<FunctionDoc> {
        FunctionDoc::parse(&RawJson::of(metadata).unwrap(), Uuid::v4().unwrap())
    }

    #[test]
    fn a_document_is_kept_as_it_came_and_gets_a_uuid() {
        let doc = parse(&function_metadata()).unwrap();
        let mut kept: Value = serde_json::from_slice(&doc.document).unwrap();
        assert_eq!(kept["function-uuid"], json!(doc.uuid.to_string()));
        kept.as_object_mut().unwrap().remove("function-uuid");
        assert_eq!(kept, function_metadata());
        let mut known = function_metadata();
        let uuid = Uuid::v4().unwrap();
        known["function-uuid"] = json!(uuid.to_string());
        assert_eq!(parse(&known).unwrap().uuid, uuid);
    }

    #[test]
    fn what_is_no_function_is_refused_by_its_field() {
        let check = |path: &str, value: Value, expected: &str| {
            let mut changed = function_metadata();
            *changed.pointer_mut(path).unwrap() = value;
            let error = parse(&changed).unwrap_err();
            assert!(error.message.contains(expected), "{path}: {}", error.message);
            assert_eq!(error.kind.status(), 400, "{path}");
        };
        let definition = "/definitions/0";
        check("/format-version", json!(2), "format-version");
        check("/definitions", json!([]), "definitions");
        let twice =
            json!([function_metadata()["definitions"][0], function_metadata()["definitions"][0]]);
        check("/definitions", twice, "definition-id");
        check("/definition-log/0/definition-versions", json!([]), "definition-versions");
        check("/definition-log/0/timestamp-ms", json!("x"), "expected a whole number");
        for (at, value, expected) in [
            ("/definition-id", json!("long"), "definition-id"),
            ("/parameters/0/name", json!(""), "is empty or not unique"),
            ("/parameters/0/type", json!("in t"), "is not a type"),
            ("/parameters/0/type", json!({"type": "list", "element": "nope"}), "is not a type"),
            ("/return-type", json!({"type": "struct", "fields": [{"type": "int"}]}), "no `name`"),
            ("/return-type", json!(5), "a type is none"),
            ("/function-type", json!("udtf"), "is a struct"),
            ("/function-type", json!("x"), "unknown value `x`, expected `udf` or `udtf`"),
            ("/versions", json!([]), "versions"),
            ("/versions/0/representations", json!([]), "representations"),
            ("/versions/0/representations/0/type", json!("java"), "sql"),
            ("/versions/0/representations/0/sql", json!(""), "sql"),
            ("/current-version-id", json!(2), "current-version-id"),
        ] {
            check(&format!("{definition}{at}"), value, expected);
        }
        let mut long = function_metadata();
        long["doc"] = json!("x".repeat(FUNCTION_BYTES_MAX));
        assert_eq!(parse(&long).unwrap_err().kind, ErrorReason::TooLarge);
        assert_eq!(parse(&json!([])).unwrap_err().kind, ErrorReason::BadRequest);
        let mut uuid = function_metadata();
        uuid["function-uuid"] = json!("x");
        assert_eq!(parse(&uuid).unwrap_err().kind, ErrorReason::IllegalArgument);
    }
}
