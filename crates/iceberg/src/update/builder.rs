//! A document to which updates are applied, one after the other: ids, schemas, specifications,
//! orders, properties and keys. Snapshots are in `snapshots.rs`.

use std::collections::HashSet;

use super::defaults::without_null_defaults;
use super::snapshots::SnapshotIds;
use super::{ADDED_PARTS_MAX, LAST_ADDED, TableUpdate};
use crate::doc::properties::{FORMAT_VERSION, PREVIOUS_VERSIONS_MAX};
use crate::doc::{
    FORMAT_VERSION_MAX, FORMAT_VERSION_ROW_IDS, LAST_PARTITION_ID_NONE, MetadataPart,
    StatisticsPart, TableDoc, TableProperties, part,
};
use crate::error::{illegal, invalid};
use crate::json::RawJson;
use crate::schema;
use crate::{CatalogError, ErrorReason, Result};

/// Lowest id of a partition field.
const PARTITION_ID_FIRST: i32 = LAST_PARTITION_ID_NONE + 1;
/// Id of the first sort order; 0 is the unsorted one.
const SORT_ORDER_ID_FIRST: i32 = 1;

/// A document in the process of being changed.
pub(super) struct TableBuilder {
    pub(super) doc: TableDoc,
    pub(super) now_ms: i64,
    /// True if anything has changed.
    pub(super) is_changed: bool,
    /// True if a schema, specification or order, or the table's choice of them, has changed.
    pub(super) has_new_shape: bool,
    pub(super) last_added_schema: Option<i32>,
    pub(super) last_added_spec: Option<i32>,
    pub(super) last_added_order: Option<i32>,
    added_parts: [usize; 3],
    pub(super) removed_schemas: Vec<i32>,
    /// Ids of all snapshots, once they are needed.
    pub(super) snapshot_ids: Option<SnapshotIds>,
    pub(super) added_snapshots: HashSet<i64>,
    pub(super) has_removed_snapshots: bool,
    /// Snapshots of this commit that were temporarily the current one.
    pub(super) was_current: Vec<i64>,
}

impl TableBuilder {
    pub(super) fn new(doc: TableDoc, now_ms: i64) -> TableBuilder {
        // Time never goes back, regardless of the clock: the logs must stay sorted.
        let now_ms = now_ms.max(doc.last_updated_ms);
        TableBuilder {
            doc,
            now_ms,
            is_changed: false,
            has_new_shape: false,
            last_added_schema: None,
            last_added_spec: None,
            last_added_order: None,
            added_parts: [0; 3],
            removed_schemas: Vec::new(),
            snapshot_ids: None,
            added_snapshots: HashSet::new(),
            has_removed_snapshots: false,
            was_current: Vec::new(),
        }
    }

    /// Applies all updates, in order.
    pub(super) fn run(&mut self, updates: &[TableUpdate]) -> Result<()> {
        let mut rest = updates;
        while let [update, after @ ..] = rest {
            rest = after;
            if !matches!(update, TableUpdate::RemoveSnapshots(_)) {
                self.step(update)?;
                continue;
            }
            // Clients remove snapshots one by one; consecutive removals are combined into one pass.
            let (run, after) = split_removals(update, after);
            rest = after;
            self.remove_snapshots(&run);
        }
        Ok(())
    }

    fn step(&mut self, update: &TableUpdate) -> Result<()> {
        match update {
            TableUpdate::AssignUuid(uuid) => self.assign_uuid(uuid),
            TableUpdate::UpgradeFormatVersion(version) => self.upgrade(*version),
            TableUpdate::AddSchema(schema) => self.add_schema(schema),
            TableUpdate::SetCurrentSchema(id) => self.set_current_schema(*id),
            TableUpdate::AddSpec(spec) => self.add_spec(spec),
            TableUpdate::SetDefaultSpec(id) => self.set_default_spec(*id),
            TableUpdate::AddSortOrder(order) => self.add_sort_order(order),
            TableUpdate::SetDefaultSortOrder(id) => self.set_default_sort_order(*id),
            TableUpdate::AddSnapshot(snapshot) => self.add_snapshot(snapshot),
            TableUpdate::SetSnapshotRef(reference) => self.set_reference(reference),
            TableUpdate::RemoveSnapshots(ids) => {
                self.remove_snapshots(&ids.iter().copied().collect());
                Ok(())
            }
            TableUpdate::RemoveSnapshotRef(name) => {
                self.remove_reference(name);
                Ok(())
            }
            TableUpdate::SetLocation(location) => self.set_location(location),
            TableUpdate::SetProperties(updates) => self.set_properties(updates),
            TableUpdate::RemoveProperties(keys) => {
                let keys = keys.iter().map(String::as_str);
                self.is_changed |= self.doc.properties.remove_all(keys);
                Ok(())
            }
            TableUpdate::SetStatistics(file) => {
                self.is_changed |= set_statistics(&mut self.doc.statistics, file);
                Ok(())
            }
            TableUpdate::RemoveStatistics(id) => {
                self.is_changed |= remove_statistics(&mut self.doc.statistics, *id);
                Ok(())
            }
            TableUpdate::SetPartitionStatistics(file) => {
                self.is_changed |= set_statistics(&mut self.doc.partition_statistics, file);
                Ok(())
            }
            TableUpdate::RemovePartitionStatistics(id) => {
                self.is_changed |= remove_statistics(&mut self.doc.partition_statistics, *id);
                Ok(())
            }
            TableUpdate::RemovePartitionSpecs(ids) => self.remove_specs(ids),
            TableUpdate::RemoveSchemas(ids) => self.remove_schemas(ids),
            TableUpdate::AddEncryptionKey(key) => {
                // The first key of an id stays, as in the reference: a key is never changed.
                if !self.doc.encryption_keys.iter().any(|it| it.id == key.id) {
                    self.doc.encryption_keys.push(key.clone());
                    self.is_changed = true;
                }
                Ok(())
            }
            TableUpdate::RemoveEncryptionKey(id) => {
                let before = self.doc.encryption_keys.len();
                self.doc.encryption_keys.retain(|it| it.id != id.as_str());
                self.is_changed |= self.doc.encryption_keys.len() != before;
                Ok(())
            }
        }
    }

    /// The catalog identifies a table by its UUID, which is therefore assigned once. The reference
    /// would change it; the protocol says that this is not safe.
    fn assign_uuid(&mut self, uuid: &str) -> Result<()> {
        if uuid.eq_ignore_ascii_case(&self.doc.uuid) {
            return Ok(());
        }
        if !self.doc.uuid.is_empty() {
            return Err(invalid(format!("Cannot reassign the UUID {} of a table", self.doc.uuid)));
        }
        let uuid: crate::ident::Uuid = uuid.parse()?;
        self.doc.uuid = uuid.to_string();
        self.is_changed = true;
        Ok(())
    }

    fn upgrade(&mut self, version: i32) -> Result<()> {
        let newest = i32::from(FORMAT_VERSION_MAX);
        let current = self.doc.format_version;
        let Some(wanted) = u8::try_from(version).ok().filter(|it| *it <= FORMAT_VERSION_MAX) else {
            return Err(illegal(format!(
                "Cannot upgrade table to unsupported format version: v{version} \
                 (supported: v{newest})"
            )));
        };
        if wanted < current {
            return Err(illegal(format!("Cannot downgrade v{current} table to v{wanted}")));
        }
        if wanted == current {
            return Ok(());
        }
        if current == 1 {
            fill_ids(&mut self.doc)?;
        }
        if wanted >= FORMAT_VERSION_ROW_IDS {
            self.doc.next_row_id.get_or_insert(0);
        }
        self.doc.format_version = wanted;
        self.is_changed = true;
        Ok(())
    }

    fn set_location(&mut self, location: &str) -> Result<()> {
        if location.is_empty() {
            return Err(invalid("Cannot set an empty location"));
        }
        if location != self.doc.location {
            location.clone_into(&mut self.doc.location);
            self.is_changed = true;
        }
        Ok(())
    }

    fn set_properties(&mut self, updates: &TableProperties) -> Result<()> {
        if let Some(version) = updates.get(FORMAT_VERSION) {
            let version = version.parse().map_err(|_| {
                illegal(format!("the property `{FORMAT_VERSION}` is not a version: {version:.20}"))
            })?;
            self.upgrade(version)?;
        }
        // Otherwise every later commit would fail on it.
        if let Some(most) = updates.get(PREVIOUS_VERSIONS_MAX)
            && most.parse::<i32>().is_err()
        {
            return Err(invalid(format!("`{PREVIOUS_VERSIONS_MAX}` is not a number: {most:.20}")));
        }
        self.is_changed |= self.doc.properties.merge(updates);
        Ok(())
    }

    fn add_schema(&mut self, raw: &RawJson) -> Result<()> {
        count(&mut self.added_parts[0], "schemas")?;
        schema::check_schema(raw, self.doc.format_version)?;
        let last_column_id = schema::last_column_id_of(raw)?.max(self.doc.last_column_id);
        if last_column_id != self.doc.last_column_id {
            self.doc.last_column_id = last_column_id;
            self.is_changed = true;
        }
        let raw = &without_null_defaults(raw)?;
        let schemas = &mut self.doc.schemas;
        let known = schemas.iter().find(|it| schema::same_schema(&it.raw, raw));
        let id = match known {
            Some(known) => known.id,
            None => {
                let id = next_id(schemas, 0)?;
                let raw = schema::with_id(&raw.compact(), "schema-id", id);
                schemas.push(MetadataPart { id, raw });
                self.is_changed = true;
                id
            }
        };
        self.last_added_schema = Some(id);
        self.has_new_shape = true;
        Ok(())
    }

    fn set_current_schema(&mut self, id: i32) -> Result<()> {
        let id = chosen(id, self.last_added_schema, "schema")?;
        if id == self.doc.current_schema_id {
            return Ok(());
        }
        if part(&self.doc.schemas, id).is_none() {
            return Err(illegal(format!("Cannot set current schema to unknown schema: {id}")));
        }
        self.doc.current_schema_id = id;
        (self.is_changed, self.has_new_shape) = (true, true);
        Ok(())
    }

    fn add_spec(&mut self, raw: &RawJson) -> Result<()> {
        count(&mut self.added_parts[1], "partition specs")?;
        let schema = self.shape("a partition spec")?;
        let (bound, last_id) = schema::bind_spec(raw, &schema, &self.doc)?;
        let specs = &self.doc.specs;
        let id = match specs.iter().find(|it| schema::same_spec(&it.raw, &bound)) {
            Some(known) => known.id,
            None => {
                let id = next_id(specs, 0)?;
                if self.doc.format_version == 1 && !has_sequential_ids(&bound) {
                    return Err(invalid(format!(
                        "Spec does not use sequential IDs that are required in v1: {:.200}",
                        bound.text()
                    )));
                }
                let raw = schema::with_id(&bound, "spec-id", id).compact();
                self.doc.specs.push(MetadataPart { id, raw });
                self.doc.last_partition_id = self.doc.last_partition_id.max(last_id);
                self.is_changed = true;
                id
            }
        };
        self.last_added_spec = Some(id);
        self.has_new_shape = true;
        Ok(())
    }

    fn set_default_spec(&mut self, id: i32) -> Result<()> {
        let id = chosen(id, self.last_added_spec, "spec")?;
        if id == self.doc.default_spec_id {
            return Ok(());
        }
        if part(&self.doc.specs, id).is_none() {
            return Err(invalid(format!(
                "Cannot set default partition spec to unknown spec: {id}"
            )));
        }
        self.doc.default_spec_id = id;
        (self.is_changed, self.has_new_shape) = (true, true);
        Ok(())
    }

    fn add_sort_order(&mut self, raw: &RawJson) -> Result<()> {
        count(&mut self.added_parts[2], "sort orders")?;
        let schema = self.shape("a sort order")?;
        let bound = schema::bind_order(raw, &schema)?;
        let orders = &self.doc.sort_orders;
        let id = match orders.iter().find(|it| schema::same_order(&it.raw, &bound)) {
            Some(known) => known.id,
            None => {
                let sorts = bound.get("fields").is_some_and(|it| it.as_bytes() != b"[]");
                let id = if sorts { next_id(orders, SORT_ORDER_ID_FIRST)? } else { 0 };
                let raw = schema::with_id(&bound, "order-id", id).compact();
                self.doc.sort_orders.push(MetadataPart { id, raw });
                self.is_changed = true;
                id
            }
        };
        self.last_added_order = Some(id);
        self.has_new_shape = true;
        Ok(())
    }

    fn set_default_sort_order(&mut self, id: i32) -> Result<()> {
        let id = chosen(id, self.last_added_order, "sort order")?;
        if id == self.doc.default_sort_order_id {
            return Ok(());
        }
        if part(&self.doc.sort_orders, id).is_none() {
            return Err(invalid(format!("Cannot set default sort order to unknown order: {id}")));
        }
        self.doc.default_sort_order_id = id;
        (self.is_changed, self.has_new_shape) = (true, true);
        Ok(())
    }

    fn remove_specs(&mut self, ids: &[i32]) -> Result<()> {
        if ids.contains(&self.doc.default_spec_id) {
            return Err(illegal("Cannot remove the default partition spec"));
        }
        let before = self.doc.specs.len();
        let ids: HashSet<i32> = ids.iter().copied().collect();
        self.doc.specs.retain(|spec| !ids.contains(&spec.id));
        self.is_changed |= self.doc.specs.len() != before;
        Ok(())
    }

    fn remove_schemas(&mut self, ids: &[i32]) -> Result<()> {
        if ids.contains(&self.doc.current_schema_id) {
            return Err(illegal("Cannot remove the current schema"));
        }
        let ids: HashSet<i32> = ids.iter().copied().collect();
        let removed = &mut self.removed_schemas;
        self.doc.schemas.retain(|schema| {
            let stays = !ids.contains(&schema.id);
            if !stays {
                removed.push(schema.id);
            }
            stays
        });
        self.is_changed |= !self.removed_schemas.is_empty();
        Ok(())
    }

    /// Returns the schema that a specification or an order is bound to: the current one or, in a
    /// table that is being created, the last added one.
    fn shape(&self, what: &str) -> Result<RawJson> {
        let added = self.last_added_schema.and_then(|id| part(&self.doc.schemas, id));
        let schema = self.doc.current_schema().or(added);
        let schema = schema.ok_or_else(|| invalid(format!("Cannot add {what} before a schema")))?;
        Ok(schema.raw.clone())
    }
}

/// Returns the ids of `first` and of the removals that directly follow it.
fn split_removals<'a>(
    first: &TableUpdate,
    mut rest: &'a [TableUpdate],
) -> (HashSet<i64>, &'a [TableUpdate]) {
    let mut run = HashSet::new();
    if let TableUpdate::RemoveSnapshots(ids) = first {
        run.extend(ids);
    }
    while let [TableUpdate::RemoveSnapshots(ids), after @ ..] = rest {
        run.extend(ids);
        rest = after;
    }
    (run, rest)
}

/// Sets the statistics of a snapshot, replacing old ones. Returns whether that changed anything.
fn set_statistics(files: &mut Vec<StatisticsPart>, file: &StatisticsPart) -> bool {
    let is_about = |it: &&StatisticsPart| it.snapshot_id == file.snapshot_id;
    let mut about = files.iter().filter(is_about);
    if about.next().is_some_and(|it| it == file) && about.next().is_none() {
        return false;
    }
    files.retain(|it| it.snapshot_id != file.snapshot_id);
    files.push(file.clone());
    true
}

fn remove_statistics(files: &mut Vec<StatisticsPart>, snapshot_id: i64) -> bool {
    let before = files.len();
    files.retain(|it| it.snapshot_id != snapshot_id);
    files.len() != before
}

/// Adds the ids that parts of version 1 may lack and later versions require.
fn fill_ids(doc: &mut TableDoc) -> Result<()> {
    for schema in &mut doc.schemas {
        if schema.raw.get("schema-id").is_none() {
            schema.raw = schema::with_id(&schema.raw, "schema-id", schema.id);
        }
    }
    for spec in &mut doc.specs {
        let fields = spec.raw.get("fields").unwrap_or_else(|| RawJson::written(b"[]".to_vec()));
        let (mut out, mut last) = (vec![b'['], LAST_PARTITION_ID_NONE);
        for field in fields.items()? {
            let id = field.get("field-id").and_then(|id| id.as_i32());
            last = id.unwrap_or_else(|| last.saturating_add(1));
            crate::json::put_comma(&mut out);
            let field = field.with("field-id", &RawJson::integer(last.into()))?;
            out.extend_from_slice(field.as_bytes());
        }
        out.push(b']');
        if fields.as_bytes() != out {
            spec.raw = spec.raw.with("fields", &RawJson::written(out))?;
        }
    }
    Ok(())
}

/// Returns the id that an update refers to: [`LAST_ADDED`] is the last one added by this commit.
fn chosen(id: i32, last_added: Option<i32>, what: &str) -> Result<i32> {
    let none = || invalid(format!("Cannot set last added {what}: no {what} has been added"));
    if id == LAST_ADDED { last_added.ok_or_else(none) } else { Ok(id) }
}

/// Returns an id greater than all of this kind, and at least `first`. Ids are never reused.
fn next_id(parts: &[MetadataPart], first: i32) -> Result<i32> {
    let Some(last) = parts.iter().map(|part| part.id).max() else { return Ok(first) };
    let next = last.checked_add(1).ok_or_else(|| invalid("the ids are used up"))?;
    Ok(next.max(first))
}

fn has_sequential_ids(spec: &RawJson) -> bool {
    let fields = spec.get("fields");
    let items = fields.as_ref().and_then(|fields| fields.items().ok()).into_iter().flatten();
    items
        .zip(PARTITION_ID_FIRST..)
        .all(|(field, id)| field.get("field-id").and_then(|it| it.as_i32()) == Some(id))
}

fn count(added: &mut usize, what: &str) -> Result<()> {
    *added += 1;
    if *added > ADDED_PARTS_MAX {
        let message = format!("a commit may add {ADDED_PARTS_MAX} {what} at the most");
        return Err(CatalogError::new(ErrorReason::TooLarge, message));
    }
    Ok(())
}
