//! New tables: from a client's request to the first document, and the check whether a foreign
//! document can be registered.
//!
//! It never writes files or assigns names; rights are checked elsewhere.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

#[cfg(test)]
mod tests;

use crate::Result;
use crate::doc::properties::{FORMAT_VERSION, PREVIOUS_VERSIONS_MAX};
use crate::doc::{
    FORMAT_VERSION_DEFAULT, FORMAT_VERSION_MAX, MetadataPart, TableDoc, TableProperties, check,
    unsorted,
};
use crate::error::{bad, illegal, invalid};
use crate::ident::Uuid;
use crate::json::cursor::JsonCursor;
use crate::json::{JsonKind, RawJson};
use crate::schema::{
    RenumberedSchema, bind_order, bind_spec, check_columns, fresh_ids, fresh_order, fresh_spec,
    with_id,
};

/// Compression of Parquet files of new tables. It is stored with a table, so that a later change of
/// the default affects no existing table.
const PARQUET_CODEC: (&str, &str) = ("write.parquet.compression-codec", "zstd");
/// Id of the first column.
const COLUMN_ID_FIRST: i32 = 1;
/// Id of a sort order in a new table.
const SORT_ORDER_ID: i32 = 1;

/// Request for a new table.
#[derive(Clone, Debug)]
pub struct CreateTable {
    /// Name within its namespace. Not checked.
    pub name: String,
    /// Location of its files, if the client gives one.
    pub location: Option<String>,
    /// Columns, with ids that are valid only within the request.
    pub schema: RawJson,
    /// Partition specification.
    pub spec: Option<RawJson>,
    /// Sort order.
    pub order: Option<RawJson>,
    /// True if the table is only staged, for a commit that creates it later.
    pub is_staged: bool,
    /// Properties, including the format version.
    pub properties: TableProperties,
}

impl CreateTable {
    /// Parses the body of a request.
    ///
    /// # Errors
    /// `BadRequest` if it is malformed.
    pub fn parse(body: &RawJson) -> Result<CreateTable> {
        let [is_staged, name, location, schema, spec, order, properties] = body.all_present([
            "stage-create",
            "name",
            "location",
            "schema",
            "partition-spec",
            "write-order",
            "properties",
        ]);
        let is_staged = match is_staged {
            Some(flag) => flag.as_bool().ok_or_else(|| bad("`stage-create` is not a boolean"))?,
            None => false,
        };
        let name = text("name", name)?.ok_or_else(|| bad("Invalid table name: null"))?;
        let location = location_of(location)?;
        let schema = object("schema", schema)?.ok_or_else(|| bad("Invalid schema: null"))?;
        let spec = object("partition-spec", spec)?;
        let order = object("write-order", order)?;
        let properties = properties_of(properties)?;
        Ok(CreateTable { name, location, schema, spec, order, is_staged, properties })
    }

    /// Creates the first document of the table: columns with ids from 1, in the reference's order,
    /// and the specification and sort order with these ids.
    ///
    /// # Errors
    /// `Validation` or `IllegalArgument` if the table would be invalid.
    pub fn document(&self, uuid: Uuid, location: &str, now_ms: i64) -> Result<TableDoc> {
        let version = self.format_version()?;
        let RenumberedSchema { raw, columns, last_column_id, ids } =
            fresh_ids(&self.schema, COLUMN_ID_FIRST)?;
        let schema = with_id(&raw, "schema-id", 0);
        check_columns(&schema, Some(&columns), version)?;
        let location = without_slash(location);
        let mut doc = TableDoc::empty(version, &uuid.to_string(), location, now_ms);
        let unpartitioned = RawJson::written(b"{\"fields\":[]}".to_vec());
        let spec = self.spec.as_ref().unwrap_or(&unpartitioned);
        let (spec, last_partition_id) = fresh_spec(spec, &schema, &ids, &doc)?;
        let order = match &self.order {
            Some(order) => fresh_order(order, &schema, &ids)?,
            None => unsorted().raw,
        };
        let sorts = order.get("fields").is_some_and(|fields| fields.as_bytes() != b"[]");
        let order_id = if sorts { SORT_ORDER_ID } else { 0 };
        doc.last_column_id = last_column_id;
        doc.schemas.push(MetadataPart { id: 0, raw: schema });
        doc.specs.push(MetadataPart { id: 0, raw: with_id(&spec, "spec-id", 0) });
        doc.last_partition_id = last_partition_id;
        doc.sort_orders
            .push(MetadataPart { id: order_id, raw: with_id(&order, "order-id", order_id) });
        doc.default_sort_order_id = order_id;
        doc.properties = [PARQUET_CODEC].into_iter().collect();
        // Properties that repeat fields of the document are left out.
        doc.properties.merge(&self.properties);
        // Otherwise every later commit would fail on it.
        if let Some(most) = doc.properties.get(PREVIOUS_VERSIONS_MAX)
            && most.parse::<i32>().is_err()
        {
            return Err(invalid(format!("`{PREVIOUS_VERSIONS_MAX}` is not a number: {most:.20}")));
        }
        check::check(&doc)?;
        Ok(doc)
    }

    fn format_version(&self) -> Result<u8> {
        let Some(stated) = self.properties.get(FORMAT_VERSION) else {
            return Ok(FORMAT_VERSION_DEFAULT);
        };
        let version = stated.trim().parse().ok();
        version.filter(|version| (1..=FORMAT_VERSION_MAX).contains(version)).ok_or_else(|| {
            illegal(format!(
                "Unsupported format version: v{stated:.20} (supported: v{FORMAT_VERSION_MAX})"
            ))
        })
    }
}

/// Checks whether a foreign document can be registered: whether commits could continue from it. The
/// bytes are unchanged.
///
/// # Errors
/// `Validation` or `IllegalArgument` if they could not.
pub fn check_registered(doc: &TableDoc) -> Result<()> {
    // It is optional in version 1, but clients of a catalog compare it.
    if doc.uuid.is_empty() {
        return Err(invalid("Cannot register a table without a UUID"));
    }
    let (Some(schema), Some(spec), Some(order)) =
        (doc.current_schema(), doc.default_spec(), doc.default_sort_order())
    else {
        return Err(invalid("the table has no schema, no partition spec or no sort order"));
    };
    let last = crate::schema::last_column_id_of(&schema.raw)?;
    if last > doc.last_column_id {
        let stated = doc.last_column_id;
        return Err(invalid(format!("`last-column-id` is {stated}, but there is a column {last}")));
    }
    bind_spec(&spec.raw, &schema.raw, doc)?;
    bind_order(&order.raw, &schema.raw)?;
    Ok(())
}

/// Returns a location in the form of the reference: without a slash at the end, unless it is that
/// of `scheme://`.
fn without_slash(location: &str) -> &str {
    let mut kept = location;
    while let Some(shorter) = kept.strip_suffix('/') {
        if kept.ends_with("://") {
            break;
        }
        kept = shorter;
    }
    kept
}

/// Returns the text of an optional string member.
pub(crate) fn text(name: &str, value: Option<RawJson>) -> Result<Option<String>> {
    let Some(value) = value else { return Ok(None) };
    let text = value.as_str().ok_or_else(|| bad(format!("`{name}` is not a string")))?;
    Ok(Some(text.into_owned()))
}

/// Returns an optional object member, in a new buffer.
pub(crate) fn object(name: &str, value: Option<RawJson>) -> Result<Option<RawJson>> {
    let Some(value) = value else { return Ok(None) };
    if value.kind() != JsonKind::Object {
        return Err(bad(format!("`{name}` is {}, not an object", value.kind())));
    }
    Ok(Some(value.compact()))
}

/// Returns the location of a new table or view; an empty `location` is rejected rather than treated
/// as absent.
pub(crate) fn location_of(value: Option<RawJson>) -> Result<Option<String>> {
    let location = text("location", value)?;
    if location.as_deref() == Some("") {
        return Err(bad("`location` is empty"));
    }
    Ok(location)
}

/// Returns the `properties`, or an empty map.
pub(crate) fn properties_of(value: Option<RawJson>) -> Result<TableProperties> {
    let Some(value) = object("properties", value)? else { return Ok(TableProperties::default()) };
    Ok(TableProperties::read(&mut JsonCursor::new(value.as_bytes())?, &value.bytes())?)
}
