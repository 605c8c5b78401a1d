//! A view's metadata document: its ids, and the original bytes of its parts, as `doc` has a
//! table's.
//!
//! SQL is not parsed here: a version's texts are stored, compared and returned.
//!
//! # References
//! - <https://iceberg.apache.org/view-spec/>

mod create;
mod parse;
#[cfg(test)]
mod tests;
mod update;

use bytes::Bytes;

use crate::doc::{MetadataPart, TableProperties, part};
use crate::json::{RawJson, RawString, put_comma, put_integer, put_name, put_string};
use crate::{Result, memory};

pub use create::CreateView;
pub use update::{
    ADDED_MAX, VERSION_LOG_MAX, VIEW_REQUIREMENTS_MAX, VIEW_UPDATES_MAX, ViewCommit,
    ViewRequirement, ViewUpdate, apply_view, check_view, parse_view_commit,
};

/// Newest version of the view format, which is the only one.
pub const VIEW_FORMAT_VERSION_MAX: u8 = 1;
/// Most texts of one version of a view, each in another dialect.
pub const REPRESENTATIONS_MAX: usize = 1_000;

/// A view's metadata.
#[derive(Clone, Debug)]
pub struct ViewDoc {
    /// Version of the view format: 1.
    pub format_version: u8,
    /// UUID of the view.
    pub uuid: String,
    /// Location of its metadata.
    pub location: String,
    /// Id of the current version.
    pub current_version_id: i32,
    /// All versions that have not expired.
    pub versions: Vec<ViewVersion>,
    /// History of the current version.
    pub version_log: Vec<VersionLogEntry>,
    /// Schemas of the versions.
    pub schemas: Vec<MetadataPart>,
    /// The view's properties, in order.
    pub properties: TableProperties,
    /// Order and form of the members.
    layout: Vec<ViewSlot>,
}

/// Version of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewVersion {
    /// `version-id`
    pub id: i32,
    /// Id of the schema of its rows.
    pub schema_id: i32,
    /// Time of creation, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Original bytes.
    pub raw: RawJson,
}

/// Log entry: a version became the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionLogEntry {
    /// Time, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Id of the version.
    pub version_id: i32,
    /// Original bytes.
    pub raw: RawJson,
}

/// A member of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViewKey {
    Uuid,
    FormatVersion,
    Location,
    Properties,
    Schemas,
    CurrentVersionId,
    Versions,
    VersionLog,
    /// An unknown member.
    Unknown,
}

/// Known members in the order in which new documents have them.
const KNOWN: [(ViewKey, &str); 8] = [
    (ViewKey::Uuid, "view-uuid"),
    (ViewKey::FormatVersion, "format-version"),
    (ViewKey::Location, "location"),
    (ViewKey::Properties, "properties"),
    (ViewKey::Schemas, "schemas"),
    (ViewKey::CurrentVersionId, "current-version-id"),
    (ViewKey::Versions, "versions"),
    (ViewKey::VersionLog, "version-log"),
];

/// A member in its original form.
#[derive(Clone, Debug)]
struct ViewSlot {
    key: ViewKey,
    /// Name with its original escapes.
    name: RawString,
    /// `None` for a member that was absent.
    raw: Option<RawJson>,
}

impl VersionLogEntry {
    /// Creates an entry.
    #[must_use]
    pub fn new(timestamp_ms: i64, version_id: i32) -> VersionLogEntry {
        let mut out = vec![b'{'];
        put_name(&mut out, "timestamp-ms");
        put_integer(&mut out, timestamp_ms);
        put_name(&mut out, "version-id");
        put_integer(&mut out, version_id.into());
        out.push(b'}');
        VersionLogEntry { timestamp_ms, version_id, raw: RawJson::written(out) }
    }
}

impl ViewDoc {
    /// Creates an empty document to fill: it has no version and no schema.
    fn empty(uuid: &str, location: &str) -> ViewDoc {
        let slot =
            |(key, name): (ViewKey, &str)| ViewSlot { key, name: RawString::new(name), raw: None };
        ViewDoc {
            format_version: VIEW_FORMAT_VERSION_MAX,
            uuid: uuid.to_owned(),
            location: location.to_owned(),
            current_version_id: 0,
            versions: Vec::new(),
            version_log: Vec::new(),
            schemas: Vec::new(),
            properties: TableProperties::default(),
            layout: KNOWN.into_iter().map(slot).collect(),
        }
    }

    /// Returns a version by its id.
    #[must_use]
    pub fn version(&self, id: i32) -> Option<&ViewVersion> {
        self.versions.iter().rev().find(|version| version.id == id)
    }

    /// Returns the current version. `None` only in a document that is still being filled.
    #[must_use]
    pub fn current_version(&self) -> Option<&ViewVersion> {
        self.version(self.current_version_id)
    }

    /// Returns the schema of the current version.
    #[must_use]
    pub fn current_schema(&self) -> Option<&MetadataPart> {
        part(&self.schemas, self.current_version()?.schema_id)
    }

    /// Returns the unknown members of the document, in order.
    pub fn unknown(&self) -> impl Iterator<Item = (&RawString, &RawJson)> {
        let unknown = self.layout.iter().filter(|slot| slot.key == ViewKey::Unknown);
        unknown.filter_map(|slot| Some((&slot.name, slot.raw.as_ref()?)))
    }

    /// Appends the document. Parts that [`ViewDoc::parse`] read are written byte for byte, without
    /// the white space between them.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for slot in &self.layout {
            put_comma(out);
            out.extend_from_slice(slot.name.raw());
            out.push(b':');
            match slot.raw.as_ref().filter(|raw| self.still_says(slot.key, raw)) {
                Some(raw) => out.extend_from_slice(raw.as_bytes()),
                None => self.put_value(out, slot.key),
            }
        }
        out.push(b'}');
    }

    /// Returns the document in a new buffer.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.size_hint());
        self.put(&mut out);
        out.into()
    }

    /// Writes the document into one new buffer. The returned document has the same content, and its
    /// parts lie in that buffer, so that it keeps no other buffer alive.
    ///
    /// # Errors
    /// If the document is invalid.
    pub fn settle(&self) -> Result<(ViewDoc, Bytes)> {
        self.settle_within(&[], &[])
    }

    /// Like [`ViewDoc::settle`], with other bytes before and after the document in the same buffer.
    ///
    /// # Errors
    /// Those of [`ViewDoc::settle`].
    pub fn settle_within(&self, before: &[u8], after: &[u8]) -> Result<(ViewDoc, Bytes)> {
        let mut out = Vec::with_capacity(before.len() + self.size_hint() + after.len());
        out.extend_from_slice(before);
        self.put(&mut out);
        let end = out.len();
        out.extend_from_slice(after);
        let written = memory::frozen(out);
        Ok((ViewDoc::parse(written.slice(before.len()..end))?, written))
    }

    /// Returns the bytes reserved by the allocator, without the text that its parts lie in.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        memory::of_text(&self.uuid)
            + memory::of_text(&self.location)
            + memory::of_items(&self.versions)
            + memory::of_items(&self.version_log)
            + memory::of_items(&self.schemas)
            + memory::of_items(&self.properties.0)
            + memory::of_items(&self.layout)
    }

    /// Returns the approximate size of the written document, in bytes.
    #[must_use]
    pub fn size_hint(&self) -> usize {
        /// Size without its parts.
        const FRAME_BYTES: usize = 512;
        let raws = (self.versions.iter().map(|it| &it.raw))
            .chain(self.version_log.iter().map(|it| &it.raw))
            .chain(self.schemas.iter().map(|it| &it.raw))
            .chain(self.unknown().map(|(_, raw)| raw));
        let raws = raws.map(|raw| raw.as_bytes().len() + 1);
        let properties = self.properties.iter().map(|(k, v)| k.len() + v.len() + 6);
        FRAME_BYTES + self.location.len() + raws.chain(properties).sum::<usize>()
    }

    /// Adds the one optional member to the document, if it has content.
    fn complete(&mut self) {
        let has = self.layout.iter().any(|slot| slot.key == ViewKey::Properties);
        if !has && !self.properties.is_empty() {
            let name = RawString::new("properties");
            self.layout.push(ViewSlot { key: ViewKey::Properties, name, raw: None });
        }
    }

    fn put_value(&self, out: &mut Vec<u8>, key: ViewKey) {
        match key {
            ViewKey::Uuid => put_string(out, &self.uuid),
            ViewKey::FormatVersion => put_integer(out, self.format_version.into()),
            ViewKey::Location => put_string(out, &self.location),
            ViewKey::CurrentVersionId => put_integer(out, self.current_version_id.into()),
            ViewKey::Properties => {
                out.push(b'{');
                for (key, value) in self.properties.iter() {
                    put_name(out, &key);
                    put_string(out, &value);
                }
                out.push(b'}');
            }
            ViewKey::Schemas => put_array(out, self.schemas.iter().map(|it| &it.raw)),
            ViewKey::Versions => put_array(out, self.versions.iter().map(|it| &it.raw)),
            ViewKey::VersionLog => put_array(out, self.version_log.iter().map(|it| &it.raw)),
            ViewKey::Unknown => out.extend_from_slice(b"null"),
        }
    }

    /// Returns whether a member read as `raw` still has that value. Lists are written item by item,
    /// so that the result for them is always false.
    fn still_says(&self, key: ViewKey, raw: &RawJson) -> bool {
        let is = |number: i64| raw.as_i64() == Some(number);
        match key {
            ViewKey::Uuid => raw.as_str().is_some_and(|stated| stated == self.uuid),
            ViewKey::FormatVersion => is(self.format_version.into()),
            ViewKey::Location => raw.as_str().is_some_and(|stated| stated == self.location),
            ViewKey::CurrentVersionId => is(self.current_version_id.into()),
            ViewKey::Properties => {
                raw.is_null() && self.properties.is_empty()
                    || parse::properties(raw).is_ok_and(|stated| stated == self.properties)
            }
            ViewKey::Schemas | ViewKey::Versions | ViewKey::VersionLog => false,
            ViewKey::Unknown => true,
        }
    }
}

fn put_array<'a>(out: &mut Vec<u8>, raws: impl Iterator<Item = &'a RawJson>) {
    out.push(b'[');
    for raw in raws {
        put_comma(out);
        out.extend_from_slice(raw.as_bytes());
    }
    out.push(b']');
}
