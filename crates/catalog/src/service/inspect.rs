//! Metadata of a table in rows, for users and for tools without Iceberg support.

use std::sync::Arc;

use iceberg::doc::TableDoc;
use iceberg::ident::TableIdent;
use iceberg::json::RawJson;
use iceberg::plan::list_of;
use iceberg::schema::SchemaColumns;
use node::clock;
use serde::{Serialize, Serializer};

use super::catalog::Catalog;
use super::expiry::ancestry;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::CatalogPrincipal;
use crate::store::{RelationKind, TimelineMoment};
use crate::warehouse::Warehouse;

/// Rows of a page if the request does not set their number.
pub const ROWS_DEFAULT: usize = 1000;

/// Most rows of a page.
pub const ROWS_MAX: usize = 10_000;

/// Kind of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectAspect {
    /// Snapshots that have not expired.
    Snapshots,
    /// When which snapshot became the current one.
    History,
    /// Branches and tags.
    Refs,
    /// Data and delete files of a snapshot.
    Files,
    /// Properties.
    Properties,
    /// Columns, those within columns included.
    Schema,
}

impl InspectAspect {
    /// All there are.
    pub const ALL: [InspectAspect; 6] = [
        InspectAspect::Snapshots,
        InspectAspect::History,
        InspectAspect::Refs,
        InspectAspect::Files,
        InspectAspect::Properties,
        InspectAspect::Schema,
    ];

    /// Returns the name in requests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            InspectAspect::Snapshots => "snapshots",
            InspectAspect::History => "history",
            InspectAspect::Refs => "refs",
            InspectAspect::Files => "files",
            InspectAspect::Properties => "properties",
            InspectAspect::Schema => "schema",
        }
    }

    /// Returns the names of the columns.
    #[must_use]
    pub const fn columns(self) -> &'static [&'static str] {
        match self {
            InspectAspect::Snapshots => &[
                "committed-at",
                "timestamp-ms",
                "snapshot-id",
                "parent-id",
                "sequence-number",
                "schema-id",
                "operation",
                "manifest-list",
                "summary",
            ],
            InspectAspect::History => &[
                "made-current-at",
                "timestamp-ms",
                "snapshot-id",
                "parent-id",
                "is-current-ancestor",
            ],
            InspectAspect::Refs => &[
                "name",
                "type",
                "snapshot-id",
                "max-ref-age-ms",
                "min-snapshots-to-keep",
                "max-snapshot-age-ms",
            ],
            InspectAspect::Files => &[
                "content",
                "file-path",
                "file-format",
                "spec-id",
                "sequence-number",
                "record-count",
                "file-size-in-bytes",
                "manifest",
            ],
            InspectAspect::Properties => &["key", "value"],
            InspectAspect::Schema => &["id", "name", "type", "required"],
        }
    }
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InspectCell {
    /// None.
    Null,
    /// A number.
    Integer(i64),
    /// Yes or no.
    Bool(bool),
    /// Text.
    Text(String),
    /// Value with parts.
    Json(RawJson),
}

impl InspectCell {
    fn text(text: impl Into<String>) -> InspectCell {
        InspectCell::Text(text.into())
    }

    fn integer(number: Option<impl Into<i64>>) -> InspectCell {
        number.map_or(InspectCell::Null, |it| InspectCell::Integer(it.into()))
    }

    /// Returns a part of a document as a cell: its text, or its JSON.
    fn cell(part: Option<RawJson>) -> InspectCell {
        let Some(part) = part else { return InspectCell::Null };
        match part.as_str() {
            Some(text) => InspectCell::Text(text.into_owned()),
            None => InspectCell::Json(part),
        }
    }
}

impl Serialize for InspectCell {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            InspectCell::Null => serializer.serialize_none(),
            InspectCell::Integer(number) => serializer.serialize_i64(*number),
            InspectCell::Bool(is) => serializer.serialize_bool(*is),
            InspectCell::Text(text) => serializer.serialize_str(text),
            InspectCell::Json(part) => {
                let value =
                    part.decode::<serde_json::Value>().map_err(serde::ser::Error::custom)?;
                value.serialize(serializer)
            }
        }
    }
}

/// Page of rows.
#[derive(Clone, Debug, Default)]
pub struct RowsPage {
    /// Token of the last page; none for the first one.
    pub token: Option<String>,
    /// Largest number of rows.
    pub size: Option<usize>,
    /// Snapshot whose files are listed; none for those of the current snapshot.
    pub snapshot: Option<i64>,
}

impl RowsPage {
    /// Returns the number of rows that it may have.
    fn limit(&self) -> usize {
        self.size.unwrap_or(ROWS_DEFAULT).clamp(1, ROWS_MAX)
    }
}

/// Rows, and the token of the next page.
#[derive(Clone, Debug)]
pub struct InspectRows {
    /// Rows in order, each with a value for each column.
    pub rows: Vec<Vec<InspectCell>>,
    /// Token of the next page; `None` after the last row.
    pub next: Option<String>,
}

/// Parses a page's token: its list, and two positions in it.
fn place(token: Option<&str>, of: &str) -> Result<(usize, usize)> {
    let Some(token) = token.filter(|it| !it.is_empty()) else { return Ok((0, 0)) };
    let refuse =
        || CatalogError::new(ErrorReason::BadRequest, "`pageToken` was not issued for this list");
    let mut parts = token.split('.');
    let (was, mut number) = (parts.next().unwrap_or_default().to_owned(), || {
        parts.next().and_then(|it| it.parse::<usize>().ok())
    });
    let (one, two) = number().zip(number()).ok_or_else(refuse)?;
    if parts.next().is_some() {
        return Err(refuse());
    }
    if was != of {
        let message = "the table has changed since the first page: begin again";
        return Err(CatalogError::new(ErrorReason::Gone, message));
    }
    Ok((one, two))
}

impl Catalog {
    /// Returns rows of a table's metadata, in its present or in a past state.
    ///
    /// # Errors
    /// `NoSuchTable`; `BadRequest` if the page token is invalid or the snapshot does not exist;
    /// `Gone` if the table has changed since the first page; for files, those of reading manifests.
    pub async fn inspect(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        aspect: InspectAspect,
        moment: Option<TimelineMoment>,
        page: &RowsPage,
    ) -> Result<InspectRows> {
        let (entry, today) = match moment {
            Some(moment) => {
                let found = self
                    .0
                    .history
                    .load_at(who, warehouse, RelationKind::Table, ident, moment)
                    .await?;
                (found.entry, found.today)
            }
            None => {
                let entry =
                    self.0.relations.load(who, warehouse, RelationKind::Table, ident).await?;
                (entry, Some(ident.clone()))
            }
        };
        let doc = entry.table().ok_or_else(|| RelationKind::Table.no_such(ident))?;
        if aspect == InspectAspect::Files {
            let wanted = page.snapshot.or(doc.current_snapshot_id);
            let Some(id) = wanted else { return Ok(InspectRows { rows: Vec::new(), next: None }) };
            // Files are those of the present table, by its rights and policies.
            let today = today.ok_or_else(|| RelationKind::Table.no_such(ident))?;
            return self.inspect_files(who, warehouse, &today, doc, id, page).await;
        }
        let of = &entry.etag(crate::cache::SnapshotSelection::All)[..16];
        let (from, _) = place(page.token.as_deref(), of)?;
        let limit = page.limit();
        let (rows, is_more) = match aspect {
            InspectAspect::Snapshots => part(doc.snapshots.iter(), from, limit, snapshot),
            InspectAspect::History => {
                let (parents, current) = ancestry(doc);
                part(doc.snapshot_log.iter(), from, limit, |it| {
                    let parent = parents.get(&it.snapshot_id).copied().flatten();
                    Ok(vec![
                        at(it.timestamp_ms),
                        InspectCell::Integer(it.timestamp_ms),
                        InspectCell::Integer(it.snapshot_id),
                        InspectCell::integer(parent),
                        InspectCell::Bool(current.contains(&it.snapshot_id)),
                    ])
                })
            }
            InspectAspect::Refs => part(doc.refs.iter(), from, limit, |it| {
                Ok(vec![
                    InspectCell::text(it.name.as_str()),
                    InspectCell::text(it.kind.name()),
                    InspectCell::Integer(it.snapshot_id),
                    InspectCell::integer(it.max_ref_age_ms),
                    InspectCell::integer(it.min_snapshots_to_keep),
                    InspectCell::integer(it.max_snapshot_age_ms),
                ])
            }),
            InspectAspect::Properties => {
                part(doc.properties.iter(), from, limit, |(key, value)| {
                    Ok(vec![InspectCell::text(key), InspectCell::text(value)])
                })
            }
            InspectAspect::Schema | InspectAspect::Files => {
                let missing = || CatalogError::internal("a table has no schema");
                let schema = doc.current_schema().ok_or_else(missing)?;
                let columns = SchemaColumns::read(&schema.raw).map_err(CatalogError::internal)?;
                part(columns.list.iter(), from, limit, |it| {
                    Ok(vec![
                        InspectCell::Integer(it.id.into()),
                        InspectCell::text(&it.name),
                        InspectCell::cell(Some(it.written.clone())),
                        InspectCell::Bool(it.is_required),
                    ])
                })
            }
        }?;
        let next = is_more.then(|| format!("{of}.{}.0", from + rows.len()));
        Ok(InspectRows { rows, next })
    }

    async fn inspect_files(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        doc: &Arc<TableDoc>,
        id: i64,
        page: &RowsPage,
    ) -> Result<InspectRows> {
        let snapshot = doc.snapshot(id).ok_or_else(|| {
            CatalogError::new(ErrorReason::BadRequest, format!("the table has no snapshot {id}"))
        })?;
        // Only hexadecimal digits: some clients might not pass a sign in a token on unchanged.
        let of = format!("{:016x}", id.cast_unsigned());
        let from = place(page.token.as_deref(), &of)?;
        // File names reveal values of partitions.
        self.0.rights.require_unrestricted(who, warehouse, ident)?;
        let target = self.0.plans.scan_target(who, warehouse, ident).await?;
        let list = list_of(snapshot)?;
        self.0.plans.check_own(who, &target, list.path().into_iter()).await?;
        let manifests = target.reader.manifests_of(list).await?;
        self.0.plans.check_own(who, &target, manifests.paths()).await?;
        let (found, next) = target.reader.files(&manifests, from, page.limit()).await?;
        let row = |it: iceberg::plan::FileRow| {
            vec![
                InspectCell::text(it.content),
                InspectCell::text(&*it.path),
                InspectCell::text(it.format),
                InspectCell::integer(it.spec_id),
                InspectCell::integer(it.sequence_number),
                InspectCell::Integer(it.records),
                InspectCell::Integer(it.bytes),
                InspectCell::text(&*it.manifest),
            ]
        };
        let next = next.map(|(one, two)| format!("{of}.{one}.{two}"));
        Ok(InspectRows { rows: found.into_iter().map(row).collect(), next })
    }
}

/// Returns a part of all rows, and whether there are more.
fn part<T>(
    all: impl Iterator<Item = T>,
    from: usize,
    limit: usize,
    row: impl Fn(T) -> Result<Vec<InspectCell>>,
) -> Result<(Vec<Vec<InspectCell>>, bool)> {
    let mut all = all.skip(from);
    let rows = all.by_ref().take(limit).map(row).collect::<Result<_>>()?;
    Ok((rows, all.next().is_some()))
}

fn at(ms: i64) -> InspectCell {
    u64::try_from(ms).map_or(InspectCell::Null, |ms| InspectCell::Text(clock::rfc3339_of_ms(ms)))
}

fn snapshot(it: &iceberg::doc::TableSnapshot) -> Result<Vec<InspectCell>> {
    let summary = it.raw.get("summary");
    let operation = summary.as_ref().and_then(|it| it.get("operation"));
    Ok(vec![
        at(it.timestamp_ms),
        InspectCell::Integer(it.timestamp_ms),
        InspectCell::Integer(it.id),
        InspectCell::integer(it.parent),
        InspectCell::Integer(it.sequence_number),
        InspectCell::integer(it.schema_id),
        InspectCell::cell(operation),
        InspectCell::cell(it.raw.get("manifest-list")),
        InspectCell::cell(summary),
    ])
}
