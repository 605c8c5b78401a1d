//! The schema that a container file was written with.
//!
//! # References
//! - <https://avro.apache.org/docs/1.11.1/specification/#schema-declaration>
//! - <https://iceberg.apache.org/spec/#avro>

use std::collections::HashMap;

use super::{AvroError, Read};
use crate::json::{JsonKind, RawJson};

/// Most types of a schema, including nested ones.
const NODES_MAX: usize = 20_000;

/// Deepest nesting of types.
const NESTING_MAX: usize = 32;

/// Longest `fixed`, in bytes.
const FIXED_BYTES_MAX: usize = 1 << 20;

/// Index of a type in the schema.
pub(super) type NodeId = usize;

/// A type.
#[derive(Debug)]
pub(super) enum AvroType {
    Null,
    Bool,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum,
    Union(Vec<NodeId>),
    List(NodeId),
    Map(NodeId),
    Record(Vec<AvroField>),
}

/// A field of a record.
#[derive(Debug)]
pub(super) struct AvroField {
    /// Id in the table format.
    pub(super) id: Option<i32>,
    pub(super) node: NodeId,
}

/// A schema: types that refer to each other by index.
#[derive(Debug)]
pub(in crate::plan) struct AvroSchema {
    nodes: Vec<AvroType>,
    root: NodeId,
    names: HashMap<String, NodeId>,
}

impl AvroSchema {
    /// Parses a schema.
    ///
    /// # Errors
    /// If it is invalid.
    pub(super) fn read(text: &RawJson) -> Read<AvroSchema> {
        let mut schema = AvroSchema { nodes: Vec::new(), root: 0, names: HashMap::new() };
        schema.root = schema.add(text, 0)?;
        Ok(schema)
    }

    pub(super) fn root(&self) -> NodeId {
        self.root
    }

    pub(super) fn node(&self, id: NodeId) -> Read<&AvroType> {
        self.nodes.get(id).ok_or(AvroError("a type of the schema is missing"))
    }

    fn push(&mut self, node: AvroType) -> Read<NodeId> {
        if self.nodes.len() == NODES_MAX {
            return Err(AvroError("the schema has too many types"));
        }
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    fn add(&mut self, text: &RawJson, depth: usize) -> Read<NodeId> {
        if depth > NESTING_MAX {
            return Err(AvroError("the schema is nested too deeply"));
        }
        if let Some(name) = text.as_str() {
            if let Some(node) = simple(&name) {
                return self.push(node);
            }
            let short = name.rsplit('.').next().unwrap_or_default();
            let known = self.names.get(short).copied();
            return known.ok_or(AvroError("the schema names a type that it does not have"));
        }
        if let Ok(branches) = text.items() {
            let branches = branches.map(|branch| self.add(&branch, depth + 1));
            let branches = branches.collect::<Read<Vec<_>>>()?;
            return self.push(AvroType::Union(branches));
        }
        if text.kind() != JsonKind::Object {
            return Err(AvroError("the schema has an unknown type"));
        }
        let kind = text.get("type").ok_or(AvroError("the schema has an unknown type"))?;
        match kind.as_str().as_deref() {
            Some("record" | "error") => self.add_record(text, depth),
            Some("array") => {
                let items = self.add(&member(text, "items")?, depth + 1)?;
                self.push(AvroType::List(items))
            }
            Some("map") => {
                let values = self.add(&member(text, "values")?, depth + 1)?;
                self.push(AvroType::Map(values))
            }
            Some("fixed") => {
                let size = member(text, "size")?.as_i64().and_then(|it| usize::try_from(it).ok());
                let size = size.filter(|size| *size <= FIXED_BYTES_MAX);
                let node = AvroType::Fixed(size.ok_or(AvroError("a fixed type has no size"))?);
                self.push_named(text, node)
            }
            Some("enum") => self.push_named(text, AvroType::Enum),
            // A type with attributes, such as a logical type.
            _ => self.add(&kind, depth + 1),
        }
    }

    fn add_record(&mut self, text: &RawJson, depth: usize) -> Read<NodeId> {
        // Its index is known to its fields, which may refer to it by name.
        let place = self.push_named(text, AvroType::Record(Vec::new()))?;
        let fields = member(text, "fields")?;
        let items =
            fields.items().map_err(|_| AvroError("a record of the schema has no fields"))?;
        let mut made = Vec::new();
        for field in items {
            let id = field.get("field-id").and_then(|id| id.as_i32());
            made.push(AvroField { id, node: self.add(&member(&field, "type")?, depth + 1)? });
        }
        if let Some(node) = self.nodes.get_mut(place) {
            *node = AvroType::Record(made);
        }
        Ok(place)
    }

    fn push_named(&mut self, text: &RawJson, node: AvroType) -> Read<NodeId> {
        let place = self.push(node)?;
        if let Some(name) = text.get("name").as_ref().and_then(RawJson::as_str) {
            let short = name.rsplit('.').next().unwrap_or_default();
            self.names.insert(short.to_owned(), place);
        }
        Ok(place)
    }
}

fn simple(name: &str) -> Option<AvroType> {
    Some(match name {
        "null" => AvroType::Null,
        "boolean" => AvroType::Bool,
        "int" => AvroType::Int,
        "long" => AvroType::Long,
        "float" => AvroType::Float,
        "double" => AvroType::Double,
        "bytes" => AvroType::Bytes,
        "string" => AvroType::Text,
        _ => return None,
    })
}

fn member(text: &RawJson, name: &str) -> Read<RawJson> {
    text.get(name).ok_or(AvroError("a type of the schema lacks a member"))
}
