//! Columns of schemas that a commit adds, without the defaults that are null: the reference cannot
//! read a document that has one.

use crate::Result;
use crate::json::{JsonKind, RawJson, put_comma, put_name};

/// Returns the schema without default values, otherwise unchanged.
pub(super) fn without_null_defaults(schema: &RawJson) -> Result<RawJson> {
    if !schema.text().contains("null") {
        return Ok(schema.clone());
    }
    let mut out = Vec::with_capacity(schema.as_bytes().len());
    put(&mut out, schema)?;
    Ok(RawJson::written(out))
}

/// Looks only where columns are: a default is not searched for defaults.
fn put(out: &mut Vec<u8>, value: &RawJson) -> Result<()> {
    match value.kind() {
        JsonKind::Object => {
            out.push(b'{');
            for (name, value) in value.members()? {
                match &*name {
                    "initial-default" | "write-default" if value.is_null() => {}
                    "fields" | "type" | "element" | "key" | "value" => {
                        put_name(out, &name);
                        put(out, &value)?;
                    }
                    _ => {
                        put_name(out, &name);
                        out.extend_from_slice(value.as_bytes());
                    }
                }
            }
            out.push(b'}');
        }
        JsonKind::Array => {
            out.push(b'[');
            for item in value.items()? {
                put_comma(out);
                put(out, &item)?;
            }
            out.push(b']');
        }
        JsonKind::Null | JsonKind::Bool | JsonKind::Number | JsonKind::String => {
            out.extend_from_slice(value.as_bytes());
        }
    }
    Ok(())
}
