//! A view's metadata document: its ids, and the bytes of its parts as somebody wrote them, as
//! `doc` has a table's.
//!
//! Nobody here understands SQL: a version's texts are kept, compared and given back.
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

/// The newest version of the format of views, which is the only one.
pub const VIEW_FORMAT_VERSION_MAX: u8 = 1;
/// Texts of one version of a view at the most, each in another dialect.
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
    /// Every version that has not expired.
    pub versions: Vec<ViewVersion>,
    /// When which version became the current one.
    pub version_log: Vec<VersionLogEntry>,
    /// Schemas of the versions.
    pub schemas: Vec<MetadataPart>,
    /// The view's properties, in order.
    pub properties: TableProperties,
    /// In which order and form the members came.
    layout: Vec<ViewSlot>,
}

/// Version of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewVersion {
    /// `version-id`
    pub id: i32,
    /// The schema of its rows.
    pub schema_id: i32,
    /// When it was made, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Bytes as they were written.
    pub raw: RawJson,
}

/// A version became the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionLogEntry {
    /// When, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Id of the version.
    pub version_id: i32,
    /// Bytes as they were written.
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
    /// Not known here.
    Unknown,
}

/// The known members in the order in which new documents have them.
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

/// A member as it came.
#[derive(Clone, Debug)]
struct ViewSlot {
    key: ViewKey,
    /// With the escapes that it came with.
    name: RawString,
    /// `None` for what was not there.
    raw: Option<RawJson>,
}

impl VersionLogEntry {
    /// A new one.
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
    /// A document of nothing yet, to be filled: it has no version and no schema.
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

    /// A version by its id.
    #[must_use]
    pub fn version(&self, id: i32) -> Option<&ViewVersion> {
        self.versions.iter().rev().find(|version| version.id == id)
    }

    /// Returns what the view is now. `None` only in a document that is still being filled.
    #[must_use]
    pub fn current_version(&self) -> Option<&ViewVersion> {
        self.version(self.current_version_id)
    }

    /// The schema of the view's rows now.
    #[must_use]
    pub fn current_schema(&self) -> Option<&MetadataPart> {
        part(&self.schemas, self.current_version()?.schema_id)
    }

    /// Members of the document that this code does not know, in order.
    pub fn unknown(&self) -> impl Iterator<Item = (&RawString, &RawJson)> {
        let unknown = self.layout.iter().filter(|slot| slot.key == ViewKey::Unknown);
        unknown.filter_map(|slot| Some((&slot.name, slot.raw.as_ref()?)))
    }

    /// Appends the document. What [`ViewDoc::parse`] read is written byte for byte as it was, but
    /// for white space between its parts.
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

    /// The document in bytes of its own.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.size_hint());
        self.put(&mut out);
        out.into()
    }

    /// Writes the document into one new buffer. The document that is returned says the same, and
    /// its parts lie in that buffer, so that it holds on to no other.
    ///
    /// # Errors
    /// When it is none that may be kept.
    pub fn settle(&self) -> Result<(ViewDoc, Bytes)> {
        self.settle_within(&[], &[])
    }

    /// As [`ViewDoc::settle`], with other bytes before and after the document in the same buffer.
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

    /// Bytes that the allocator has set aside for it, but for the text that its parts lie in.
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

    /// About as many bytes as it takes.
    #[must_use]
    pub fn size_hint(&self) -> usize {
        /// Beside its parts.
        const FRAME_BYTES: usize = 512;
        let raws = (self.versions.iter().map(|it| &it.raw))
            .chain(self.version_log.iter().map(|it| &it.raw))
            .chain(self.schemas.iter().map(|it| &it.raw))
            .chain(self.unknown().map(|(_, raw)| raw));
        let raws = raws.map(|raw| raw.as_bytes().len() + 1);
        let properties = self.properties.iter().map(|(k, v)| k.len() + v.len() + 6);
        FRAME_BYTES + self.location.len() + raws.chain(properties).sum::<usize>()
    }

    /// Gives the document the one member that it may have come without, if there is anything in it.
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

    /// Returns whether a member that came as `raw` says now what it said then. Lists are written
    /// item by item, so that they never do.
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
