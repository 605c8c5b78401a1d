//! Parses a view's document, and a version of a view from a client.
//!
//! # References
//! - <https://iceberg.apache.org/view-spec/>

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use serde_json::Value;

use super::{
    KNOWN, REPRESENTATIONS_MAX, VIEW_FORMAT_VERSION_MAX, VersionLogEntry, ViewDoc, ViewKey,
    ViewSlot, ViewVersion,
};
use crate::doc::{MetadataPart, TableProperties};
use crate::error::illegal;
use crate::ident::NamespaceIdent;
use crate::json::cursor::JsonCursor;
use crate::json::{JsonKind, RawJson, RawString};
use crate::{CatalogError, ErrorReason, Result};

impl ViewDoc {
    /// Parses a document and checks that it is consistent.
    ///
    /// # Errors
    /// `IllegalArgument` or `BadRequest`: it is malformed, has an unknown version, or contradicts
    /// itself. Readers of stored documents convert this into a server error.
    pub fn parse(text: Bytes) -> Result<ViewDoc> {
        let mut slots = Vec::new();
        let mut cursor = JsonCursor::new(&text)?;
        cursor.object(|cursor, name| {
            let decoded = name.decode();
            let known = KNOWN.iter().find(|(_, known)| *known == decoded);
            let key = known.map_or(ViewKey::Unknown, |(key, _)| *key);
            if key != ViewKey::Unknown && slots.iter().any(|slot: &ViewSlot| slot.key == key) {
                return Err(illegal(format!("the view metadata has `{decoded}` twice")));
            }
            let raw = RawJson::within(&text, cursor.value()?);
            slots.push(ViewSlot { key, name: RawString::within(&text, name), raw: Some(raw) });
            Ok::<(), CatalogError>(())
        })?;
        cursor.end()?;
        let mut doc = read(&slots)?;
        doc.layout = slots;
        doc.check()?;
        Ok(doc)
    }

    /// Checks that a document is complete and does not contradict itself.
    pub(super) fn check(&self) -> Result<()> {
        if self.uuid.is_empty() || self.location.is_empty() {
            return Err(illegal("a view has a UUID and a location"));
        }
        let versions: Vec<i32> = self.versions.iter().map(|it| it.id).collect();
        let schemas: Vec<i32> = self.schemas.iter().map(|it| it.id).collect();
        for ids in [&versions, &schemas] {
            let mut seen = HashSet::new();
            if let Some(id) = ids.iter().find(|id| !seen.insert(**id)) {
                return Err(illegal(format!("Multiple entries with same key: {id}")));
            }
        }
        let Some(current) = self.current_version() else {
            let id = self.current_version_id;
            let ids = ids_text(&versions);
            return Err(illegal(format!(
                "Cannot find current version {id} in view versions: {ids}"
            )));
        };
        let id = current.schema_id;
        if !schemas.contains(&id) {
            let ids = ids_text(&schemas);
            return Err(illegal(format!(
                "Cannot find current schema with id {id} in schemas: {ids}"
            )));
        }
        Ok(())
    }
}

fn read(slots: &[ViewSlot]) -> Result<ViewDoc> {
    let member = |key: ViewKey| {
        let slot = slots.iter().find(|slot| slot.key == key);
        slot.and_then(|slot| slot.raw.clone()).filter(|raw| !raw.is_null())
    };
    let version = as_int(member(ViewKey::FormatVersion), "format-version")?;
    let format_version = u8::try_from(version)
        .ok()
        .filter(|version| (1..=VIEW_FORMAT_VERSION_MAX).contains(version))
        .ok_or_else(|| illegal(format!("Unsupported format version: {version}")))?;
    let properties = match member(ViewKey::Properties) {
        Some(raw) => properties(&raw)?,
        None => TableProperties::default(),
    };
    Ok(ViewDoc {
        format_version,
        uuid: as_string(member(ViewKey::Uuid), "view-uuid")?,
        location: as_string(member(ViewKey::Location), "location")?,
        current_version_id: as_int(member(ViewKey::CurrentVersionId), "current-version-id")?,
        versions: list(member(ViewKey::Versions), "versions", ViewVersion::read)?,
        version_log: list(member(ViewKey::VersionLog), "version-log", VersionLogEntry::read)?,
        schemas: list(member(ViewKey::Schemas), "schemas", schema)?,
        properties,
        layout: Vec::new(),
    })
}

impl ViewVersion {
    /// Parses a version from a document or a client.
    pub(super) fn read(raw: RawJson) -> Result<ViewVersion> {
        let version = ViewVersion {
            id: int(&raw, "version-id")?,
            schema_id: int(&raw, "schema-id")?,
            timestamp_ms: long(&raw, "timestamp-ms")?,
            raw,
        };
        let raw = &version.raw;
        let _is_one: NamespaceIdentOrNone = need(raw, "field", "default-namespace")?.decode()?;
        let _is_map: BTreeMap<String, String> = need(raw, "map", "summary")?.decode()?;
        if let Some(catalog) = member(raw, "default-catalog")? {
            as_string(Some(catalog), "default-catalog")?;
        }
        version.dialects()?;
        Ok(version)
    }

    /// Returns the dialects of its texts in lower case, sorted.
    ///
    /// # Errors
    /// If one of its representations is invalid.
    pub(super) fn dialects(&self) -> Result<Vec<String>> {
        let mut dialects = Vec::new();
        let list = need(&self.raw, "field", "representations")?;
        let items = list.items().map_err(|_| {
            illegal(format!("Cannot parse representations from non-array: {:.80}", list.text()))
        })?;
        for (place, item) in items.enumerate() {
            if place == REPRESENTATIONS_MAX {
                let message =
                    format!("a version may have {REPRESENTATIONS_MAX} representations at the most");
                return Err(CatalogError::new(ErrorReason::TooLarge, message));
            }
            let kind = string(&item, "type")?;
            if !kind.eq_ignore_ascii_case("sql") {
                continue;
            }
            string(&item, "sql")?;
            dialects.push(string(&item, "dialect")?.to_lowercase());
        }
        Ok(dialects)
    }

    /// Returns the types of its representations other than SQL.
    pub(super) fn other_types(&self) -> Vec<String> {
        let list = self.raw.get("representations");
        let items = list.as_ref().and_then(|list| list.items().ok()).into_iter().flatten();
        let kinds = items.filter_map(|item| Some(item.get("type")?.as_str()?.into_owned()));
        kinds.filter(|kind| !kind.eq_ignore_ascii_case("sql")).collect()
    }

    /// Returns whether both are the same view of the same schema, regardless of their times.
    pub(super) fn same(&self, other: &ViewVersion) -> bool {
        let value = |it: &ViewVersion, name| {
            let value = it.raw.present(name);
            value.and_then(|value| value.decode::<Value>().ok())
        };
        self.schema_id == other.schema_id
            && ["summary", "representations", "default-catalog", "default-namespace"]
                .into_iter()
                .all(|name| value(self, name) == value(other, name))
    }
}

impl VersionLogEntry {
    fn read(raw: RawJson) -> Result<VersionLogEntry> {
        Ok(VersionLogEntry {
            timestamp_ms: long(&raw, "timestamp-ms")?,
            version_id: int(&raw, "version-id")?,
            raw,
        })
    }
}

/// Levels of a namespace, which may be missing or empty in a version.
#[derive(Debug)]
struct NamespaceIdentOrNone;

impl<'de> serde::Deserialize<'de> for NamespaceIdentOrNone {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<NamespaceIdentOrNone, D::Error> {
        let levels = Vec::<String>::deserialize(deserializer)?;
        if !levels.is_empty() {
            NamespaceIdent::new(levels).map_err(serde::de::Error::custom)?;
        }
        Ok(NamespaceIdentOrNone)
    }
}

/// Reads properties.
pub(super) fn properties(raw: &RawJson) -> Result<TableProperties> {
    Ok(TableProperties::read(&mut JsonCursor::new(raw.as_bytes())?, &raw.bytes())?)
}

fn schema(raw: RawJson) -> Result<MetadataPart> {
    let id = member(&raw, "schema-id")?.map_or(Ok(0), |id| as_int(Some(id), "schema-id"))?;
    Ok(MetadataPart { id, raw })
}

fn list<T>(value: Option<RawJson>, name: &str, read: fn(RawJson) -> Result<T>) -> Result<Vec<T>> {
    let value = value.ok_or_else(|| missing("field", name))?;
    let items = value.items().map_err(|_| {
        illegal(format!("Cannot parse {name} from non-array: {:.80}", value.text()))
    })?;
    items.map(read).collect()
}

/// A member of an object that is there and is not null.
fn member(object: &RawJson, name: &str) -> Result<Option<RawJson>> {
    if object.kind() != JsonKind::Object {
        return Err(illegal(format!("{} where an object is expected", object.kind())));
    }
    Ok(object.present(name))
}

pub(super) fn need(object: &RawJson, what: &str, name: &str) -> Result<RawJson> {
    member(object, name)?.ok_or_else(|| missing(what, name))
}

pub(super) fn string(object: &RawJson, name: &str) -> Result<String> {
    as_string(member(object, name)?, name)
}

pub(super) fn int(object: &RawJson, name: &str) -> Result<i32> {
    as_int(member(object, name)?, name)
}

fn long(object: &RawJson, name: &str) -> Result<i64> {
    let value = need(object, "long", name)?;
    value.as_i64().ok_or_else(|| no("a long", name, &value))
}

fn as_string(value: Option<RawJson>, name: &str) -> Result<String> {
    let value = value.ok_or_else(|| missing("string", name))?;
    let text = value.as_str().map(Cow::into_owned);
    text.ok_or_else(|| no("a string", name, &value))
}

fn as_int(value: Option<RawJson>, name: &str) -> Result<i32> {
    let value = value.ok_or_else(|| missing("int", name))?;
    value.as_i32().ok_or_else(|| no("an integer", name, &value))
}

fn missing(what: &str, name: &str) -> CatalogError {
    illegal(format!("Cannot parse missing {what}: {name}"))
}

fn no(what: &str, name: &str, value: &RawJson) -> CatalogError {
    illegal(format!("Cannot parse to {what} value: {name}: {:.40}", value.text()))
}

/// Some ids, as messages show them.
fn ids_text(ids: &[i32]) -> String {
    /// Maximum number of ids in a message.
    const SHOWN_MAX: usize = 20;
    let mut ids: Vec<String> = ids.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    ids.sort();
    format!("[{}]", ids.join(", "))
}
