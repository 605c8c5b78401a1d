//! Changes of a view: the requirements of a commit, and its updates.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::parse::{int, need, string};
use super::{VIEW_FORMAT_VERSION_MAX, VersionLogEntry, ViewDoc, ViewVersion};
use crate::create::object;
use crate::doc::{FORMAT_VERSION_MAX, MetadataPart, TableProperties};
use crate::error::{bad, illegal, invalid, too_many};
use crate::ident::{TableIdent, Uuid};
use crate::json::RawJson;
use crate::schema::{check_schema, same_schema, with_id};
use crate::update::commit_parts;
use crate::{CatalogError, ErrorReason, Result};

/// Most updates of one commit.
pub const VIEW_UPDATES_MAX: usize = 1_000;
/// Most requirements of one commit.
pub const VIEW_REQUIREMENTS_MAX: usize = 100;
/// Most versions, and most schemas, that one commit adds: each is compared with all existing ones.
pub const ADDED_MAX: usize = 100;
/// Most entries of a view's log; the oldest are removed first. Entries of expired versions are
/// removed with them.
pub const VERSION_LOG_MAX: usize = 1_000;
/// Denotes the version, or the schema, that this commit added last.
pub(super) const LAST_ADDED: i32 = -1;

/// Property with the number of versions of a view that are kept.
const HISTORY_ENTRIES: &str = "version.history.num-entries";
/// Default of that number, as in the reference.
const HISTORY_ENTRIES_DEFAULT: i32 = 10;
/// Property that allows a view to lose the text of a dialect.
const DROP_DIALECT: &str = "replace.drop-dialect.allowed";

/// Request to change one view.
#[derive(Clone, Debug)]
pub struct ViewCommit {
    /// Name of the view, if the path does not contain it.
    pub identifier: Option<TableIdent>,
    /// Requirements that must hold.
    pub requirements: Vec<ViewRequirement>,
    /// Updates, applied in this order.
    pub updates: Vec<ViewUpdate>,
}

/// Condition that must hold for a commit to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewRequirement {
    /// `assert-view-uuid`
    Uuid(String),
}

/// A change of a view.
#[derive(Clone, Debug)]
pub enum ViewUpdate {
    /// `assign-uuid`
    AssignUuid(String),
    /// `upgrade-format-version`
    UpgradeFormatVersion(i32),
    /// `add-schema`
    AddSchema(RawJson),
    /// `set-location`
    SetLocation(String),
    /// `set-properties`
    SetProperties(TableProperties),
    /// `remove-properties`
    RemoveProperties(Vec<String>),
    /// `add-view-version`; its schema may be -1 for the last that was added.
    AddViewVersion(ViewVersion),
    /// `set-current-view-version`; -1 for the last that was added.
    SetCurrentViewVersion(i32),
}

/// Reads the body of a commit.
///
/// # Errors
/// `BadRequest` or `IllegalArgument`: it is malformed, or has an unknown part; or `TooLarge`.
pub fn parse_view_commit(body: &RawJson) -> Result<ViewCommit> {
    let (identifier, requirements) = commit_parts(body, VIEW_REQUIREMENTS_MAX, requirement)?;
    let list = body.present("updates").ok_or_else(|| bad("`updates` is missing"))?;
    let mut updates = Vec::new();
    for item in list.items()? {
        if updates.len() == VIEW_UPDATES_MAX {
            return Err(too_many("updates", VIEW_UPDATES_MAX));
        }
        updates.push(update(&item)?);
    }
    Ok(ViewCommit { identifier, requirements, updates })
}

fn requirement(item: &RawJson) -> Result<ViewRequirement> {
    match &*string(item, "type")? {
        "assert-view-uuid" => Ok(ViewRequirement::Uuid(string(item, "uuid")?)),
        other => Err(bad(format!("Unknown requirement type: {other:.80}"))),
    }
}

fn update(item: &RawJson) -> Result<ViewUpdate> {
    let text = |name| string(item, name);
    let number = |name| int(item, name);
    let part =
        |name| object(name, item.present(name))?.ok_or_else(|| bad(format!("`{name}` is missing")));
    let action = text("action")?;
    Ok(match &*action {
        "assign-uuid" => ViewUpdate::AssignUuid(text("uuid")?),
        "upgrade-format-version" => ViewUpdate::UpgradeFormatVersion(number("format-version")?),
        "add-schema" => ViewUpdate::AddSchema(part("schema")?),
        "set-location" => ViewUpdate::SetLocation(text("location")?),
        // Clients before 1.0 send the older names.
        "set-properties" => {
            let name = if item.present("updates").is_some() { "updates" } else { "updated" };
            ViewUpdate::SetProperties(super::parse::properties(&part(name)?)?)
        }
        "remove-properties" => {
            let name = if item.present("removals").is_some() { "removals" } else { "removed" };
            ViewUpdate::RemoveProperties(need(item, "set", name)?.decode()?)
        }
        "add-view-version" => ViewUpdate::AddViewVersion(ViewVersion::read(part("view-version")?)?),
        "set-current-view-version" => ViewUpdate::SetCurrentViewVersion(number("view-version-id")?),
        _ => return Err(bad(format!("Unknown update action of a view: {action:.80}"))),
    })
}

/// Checks the requirements of a commit against the present view.
///
/// # Errors
/// `CommitFailed` with the first requirement that does not hold, in the reference's words.
pub fn check_view(requirements: &[ViewRequirement], base: &ViewDoc) -> Result<()> {
    for ViewRequirement::Uuid(uuid) in requirements {
        if !uuid.eq_ignore_ascii_case(&base.uuid) {
            let found = &base.uuid;
            let message = format!(
                "Requirement failed: view UUID does not match: expected {found} != {uuid:.80}"
            );
            return Err(CatalogError::new(ErrorReason::CommitFailed, message));
        }
    }
    Ok(())
}

/// Applies updates, in order. `now_ms` is the time of the commit, in milliseconds since 1970.
/// `None` if they change nothing, so that no new document has to be written.
///
/// # Errors
/// `Validation` or `IllegalArgument` if the view would become invalid.
pub fn apply_view(base: &ViewDoc, updates: &[ViewUpdate], now_ms: i64) -> Result<Option<ViewDoc>> {
    let mut builder = ViewBuilder::new(base.clone(), now_ms);
    builder.run(updates)?;
    if builder.is_changed { builder.finish(Some(base)).map(Some) } else { Ok(None) }
}

/// A document in the process of being changed.
pub(super) struct ViewBuilder {
    doc: ViewDoc,
    now_ms: i64,
    is_changed: bool,
    last_added_schema: Option<i32>,
    last_added_version: Option<i32>,
    added_schemas: usize,
    added_versions: usize,
    /// Ids of the new versions.
    added: HashSet<i32>,
    /// Entry for the version that last became the current one.
    log_entry: Option<VersionLogEntry>,
}

impl ViewBuilder {
    pub(super) fn new(doc: ViewDoc, now_ms: i64) -> ViewBuilder {
        ViewBuilder {
            doc,
            now_ms,
            is_changed: false,
            last_added_schema: None,
            last_added_version: None,
            added_schemas: 0,
            added_versions: 0,
            added: HashSet::new(),
            log_entry: None,
        }
    }

    pub(super) fn run(&mut self, updates: &[ViewUpdate]) -> Result<()> {
        updates.iter().try_for_each(|update| match update {
            ViewUpdate::AssignUuid(uuid) => self.assign_uuid(uuid),
            ViewUpdate::UpgradeFormatVersion(version) => self.upgrade(*version),
            ViewUpdate::AddSchema(schema) => self.add_schema(schema),
            ViewUpdate::SetLocation(location) => self.set_location(location),
            ViewUpdate::SetProperties(updates) => {
                self.is_changed |= set_properties(&mut self.doc.properties, updates);
                Ok(())
            }
            ViewUpdate::RemoveProperties(keys) => {
                let keys = keys.iter().map(String::as_str);
                self.is_changed |= self.doc.properties.remove_all(keys);
                Ok(())
            }
            ViewUpdate::AddViewVersion(version) => self.add_version(version),
            ViewUpdate::SetCurrentViewVersion(id) => self.set_current(*id),
        })
    }

    fn assign_uuid(&self, uuid: &str) -> Result<()> {
        // The catalog identifies a view by its UUID.
        let _is_one: Uuid = uuid.parse()?;
        if uuid.eq_ignore_ascii_case(&self.doc.uuid) {
            return Ok(());
        }
        Err(illegal("Cannot reassign uuid"))
    }

    fn upgrade(&self, version: i32) -> Result<()> {
        let current = i32::from(self.doc.format_version);
        if version < current {
            return Err(illegal(format!("Cannot downgrade v{current} view to v{version}")));
        }
        if version > i32::from(VIEW_FORMAT_VERSION_MAX) {
            return Err(illegal(format!("Unsupported format version: {version}")));
        }
        Ok(())
    }

    fn set_location(&mut self, location: &str) -> Result<()> {
        if location.is_empty() {
            return Err(illegal("Invalid location: (empty)"));
        }
        if location != self.doc.location {
            location.clone_into(&mut self.doc.location);
            self.is_changed = true;
        }
        Ok(())
    }

    fn add_schema(&mut self, raw: &RawJson) -> Result<()> {
        self.added_schemas += 1;
        if self.added_schemas > ADDED_MAX {
            return Err(too_many("schemas", ADDED_MAX));
        }
        // A view may have a schema of any table version.
        check_schema(raw, FORMAT_VERSION_MAX)?;
        let schemas = &mut self.doc.schemas;
        let known = schemas.iter().find(|it| same_schema(&it.raw, raw));
        let id = match known {
            Some(known) => known.id,
            None => {
                let id = next_id(schemas.iter().map(|it| it.id), 0)?;
                schemas.push(MetadataPart { id, raw: with_id(raw, "schema-id", id) });
                self.is_changed = true;
                id
            }
        };
        self.last_added_schema = Some(id);
        Ok(())
    }

    fn add_version(&mut self, version: &ViewVersion) -> Result<()> {
        self.added_versions += 1;
        if self.added_versions > ADDED_MAX {
            return Err(too_many("versions", ADDED_MAX));
        }
        let mut version = version.clone();
        if version.schema_id == LAST_ADDED {
            version.schema_id = self
                .last_added_schema
                .ok_or_else(|| invalid("Cannot set last added schema: no schema has been added"))?;
        }
        let schema_id = version.schema_id;
        if !self.doc.schemas.iter().any(|schema| schema.id == schema_id) {
            return Err(illegal(format!("Cannot add version with unknown schema: {schema_id}")));
        }
        let dialects = version.dialects()?;
        let mut seen = HashSet::new();
        if let Some(twice) = dialects.iter().find(|dialect| !seen.insert(*dialect)) {
            return Err(illegal(format!(
                "Invalid view version: Cannot add multiple queries for dialect {twice:.80}"
            )));
        }
        if let Some(known) = self.doc.versions.iter().find(|it| it.same(&version)) {
            self.last_added_version = Some(known.id);
            return Ok(());
        }
        // A client's id is used if it is greater than all existing ones.
        version.id = next_id(self.doc.versions.iter().map(|it| it.id), version.id.max(1))?;
        let raw = with_id(&version.raw, "version-id", version.id);
        version.raw = with_id(&raw, "schema-id", schema_id);
        self.last_added_version = Some(version.id);
        self.added.insert(version.id);
        self.doc.versions.push(version);
        self.is_changed = true;
        Ok(())
    }

    fn set_current(&mut self, id: i32) -> Result<()> {
        let id = match (id, self.last_added_version) {
            (LAST_ADDED, Some(added)) => added,
            (LAST_ADDED, None) => {
                let message = "Cannot set last version id: no current version id has been set";
                return Err(invalid(message));
            }
            (id, _) => id,
        };
        if id == self.doc.current_version_id {
            return Ok(());
        }
        let Some(version) = self.doc.version(id) else {
            return Err(illegal(format!("Cannot set current version to unknown version: {id}")));
        };
        let is_new = self.added.contains(&id);
        let timestamp_ms = if is_new { version.timestamp_ms } else { self.now_ms };
        self.log_entry = Some(VersionLogEntry::new(timestamp_ms, id));
        self.doc.current_version_id = id;
        self.is_changed = true;
        Ok(())
    }

    /// Returns the document, after checking it. `base` is the previous view.
    pub(super) fn finish(mut self, base: Option<&ViewDoc>) -> Result<ViewDoc> {
        if self.doc.versions.is_empty() {
            return Err(illegal("Invalid view: no versions were added"));
        }
        self.doc.version_log.extend(self.log_entry.take());
        if let Some(base) = base {
            check_dialects(base, &self.doc)?;
        }
        self.expire()?;
        self.doc.complete();
        self.doc.check()?;
        Ok(self.doc)
    }

    /// Drops the oldest excess versions, and the log entries from before the removal of any of
    /// them.
    fn expire(&mut self) -> Result<()> {
        let doc = &mut self.doc;
        let kept = match doc.properties.get(HISTORY_ENTRIES) {
            Some(text) => text
                .trim()
                .parse::<i32>()
                .map_err(|_| illegal(format!("`{HISTORY_ENTRIES}` is not a number: {text:.20}")))?,
            None => HISTORY_ENTRIES_DEFAULT,
        };
        let kept = usize::try_from(kept)
            .ok()
            .filter(|kept| *kept > 0)
            .ok_or_else(|| illegal(format!("{HISTORY_ENTRIES} must be positive but was {kept}")))?;
        let current = doc.current_version_id;
        let is_added = self.added.contains(&current);
        let kept = kept.max(self.added.len() + usize::from(!is_added));
        if doc.versions.len() > kept {
            let mut ids: Vec<i32> = doc.versions.iter().map(|it| it.id).collect();
            ids.sort_unstable_by_key(|id| (*id != current, std::cmp::Reverse(*id)));
            ids.truncate(kept);
            let ids: HashSet<i32> = ids.into_iter().collect();
            doc.versions.retain(|version| ids.contains(&version.id));
            let is_gone = |entry: &VersionLogEntry| !ids.contains(&entry.version_id);
            let known = doc.version_log.iter().rposition(is_gone).map_or(0, |gone| gone + 1);
            doc.version_log.drain(..known);
        }
        let too_many = doc.version_log.len().saturating_sub(VERSION_LOG_MAX);
        doc.version_log.drain(..too_many);
        Ok(())
    }
}

/// Rejects the loss of a dialect, unless the view's properties allow it: engines of that dialect
/// could no longer read the view.
fn check_dialects(base: &ViewDoc, new: &ViewDoc) -> Result<()> {
    let is_allowed = new.properties.get(DROP_DIALECT);
    if is_allowed.is_some_and(|it| it.eq_ignore_ascii_case("true")) {
        return Ok(());
    }
    let dialects = |doc: &ViewDoc| -> Result<BTreeSet<String>> {
        let version = doc.current_version().map(ViewVersion::dialects).transpose()?;
        Ok(version.unwrap_or_default().into_iter().collect())
    };
    let (before, after) = (dialects(base)?, dialects(new)?);
    if before.is_subset(&after) {
        return Ok(());
    }
    let listed = |it: BTreeSet<String>| {
        let it: Vec<String> = it.into_iter().collect();
        format!("[{:.200}]", it.join(", "))
    };
    let (before, after) = (listed(before), listed(after));
    Err(illegal(format!(
        "Cannot replace view due to loss of view dialects ({DROP_DIALECT}=false):\nPrevious \
         dialects: {before}\nNew dialects: {after}"
    )))
}

/// Sets properties without exception: names that are reserved in tables have no meaning in views.
fn set_properties(properties: &mut TableProperties, updates: &TableProperties) -> bool {
    let own = |(key, value): (Cow<'_, str>, Cow<'_, str>)| (key.into_owned(), value.into_owned());
    let mut entries: Vec<(String, String)> = properties.iter().map(own).collect();
    let mut places: HashMap<String, usize> =
        entries.iter().enumerate().map(|(place, (key, _))| (key.clone(), place)).collect();
    let mut is_changed = false;
    for (key, value) in updates.iter().map(own) {
        match places.get(&key).and_then(|&place| entries.get_mut(place)) {
            Some((_, old)) if *old == value => {}
            Some((_, old)) => {
                *old = value;
                is_changed = true;
            }
            None => {
                places.insert(key.clone(), entries.len());
                entries.push((key, value));
                is_changed = true;
            }
        }
    }
    if is_changed {
        *properties = entries.into_iter().collect();
    }
    is_changed
}

/// Returns an id greater than all of these, and at least `first`.
fn next_id(ids: impl Iterator<Item = i32>, first: i32) -> Result<i32> {
    let Some(last) = ids.max() else { return Ok(first) };
    let next = last.checked_add(1).ok_or_else(|| invalid("the ids are used up"))?;
    Ok(next.max(first))
}
