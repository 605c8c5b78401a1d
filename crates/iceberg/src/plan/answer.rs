//! Tasks in JSON, in the form of Iceberg's REST interface.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use std::collections::HashMap;
use std::sync::Arc;

use super::bind::BoundFilter;
use super::manifest::{Bounds, ContentFile, Counts, FileContent, LiveFile};
use super::prune::{PruneSpec, PruneSpecs, partition_key, rest};
use super::scan::BoundScan;
use super::value::upper_hex;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::json::{put_comma, put_integer, put_name, put_string};
use crate::schema::ColumnType;

/// Most files of one response.
pub(super) const TASKS_MAX: usize = 2_000;

/// Bytes of one response after which no further file is added.
pub(super) const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The files of one response.
#[derive(Debug)]
pub struct PlanPage {
    pub(super) scan: Arc<BoundScan>,
    tasks: Vec<u8>,
    count: usize,
    delete_files: Vec<u8>,
    /// Positions of delete files in this response, by their indices in the scan.
    references: HashMap<usize, usize>,
    /// Residual filters, by partition, and whether each is trivial.
    rests: HashMap<Vec<u8>, (Vec<u8>, bool)>,
    /// Rows of files that are to be read whole.
    pub(super) rows: i64,
}

impl PlanPage {
    pub(super) fn new(scan: Arc<BoundScan>) -> PlanPage {
        PlanPage {
            scan,
            tasks: Vec::new(),
            count: 0,
            delete_files: Vec::new(),
            references: HashMap::new(),
            rests: HashMap::new(),
            rows: 0,
        }
    }

    /// Returns whether the response is full.
    pub(super) fn is_full(&self) -> bool {
        self.count >= TASKS_MAX || self.tasks.len() + self.delete_files.len() >= ANSWER_BYTES_MAX
    }

    /// Adds a data file, with its delete files.
    ///
    /// # Errors
    /// Those of [`DeleteIndex::of`](super::deletes::DeleteIndex::of).
    pub(super) fn add(&mut self, data: &LiveFile) -> Result<()> {
        let no_spec = || {
            CatalogError::new(
                ErrorReason::Validation,
                "a data file has a partition spec that no longer exists",
            )
        };
        let scan = Arc::clone(&self.scan);
        let spec = scan.specs.get(data.spec_id).ok_or_else(no_spec)?;
        let found = scan.deletes.of(data, &scan.specs, &scan.columns)?;
        let mut places = Vec::new();
        for place in &found {
            let next = self.references.len();
            let at = *self.references.entry(*place).or_insert(next);
            if at == next
                && let Some(live) = scan.deletes.get(*place)
            {
                put_separator(&mut self.delete_files);
                put_file(&mut self.delete_files, live, &scan.specs, &[]);
            }
            places.push(at);
        }
        put_separator(&mut self.tasks);
        self.tasks.extend_from_slice(b"{\"data-file\":");
        put_file(&mut self.tasks, data, &scan.specs, &scan.stats);
        if !places.is_empty() {
            put_name(&mut self.tasks, "delete-file-references");
            self.tasks.push(b'[');
            for place in places {
                put_comma(&mut self.tasks);
                put_integer(&mut self.tasks, i64::try_from(place).unwrap_or(i64::MAX));
            }
            self.tasks.push(b']');
        }
        let key = partition_key(spec, data.spec_id, &data.file);
        let (text, is_all) = self.rests.entry(key).or_insert_with(|| {
            let rest = rest(&scan.filter, spec, &data.file);
            let mut text = Vec::new();
            rest.put_json(&mut text);
            (text, rest == BoundFilter::Constant(true))
        });
        put_name(&mut self.tasks, "residual-filter");
        self.tasks.extend_from_slice(text);
        self.tasks.push(b'}');
        if *is_all && found.is_empty() {
            self.rows = self.rows.saturating_add(data.file.records);
        }
        self.count += 1;
        Ok(())
    }

    /// Appends the members of a response: its tasks, the delete files that they refer to, and the
    /// remaining plan tasks.
    pub fn put(&self, plan_tasks: &[String], out: &mut Vec<u8>) {
        if !self.delete_files.is_empty() {
            put_name(out, "delete-files");
            put_list(out, &self.delete_files);
        }
        put_name(out, "file-scan-tasks");
        put_list(out, &self.tasks);
        if !plan_tasks.is_empty() {
            put_name(out, "plan-tasks");
            out.push(b'[');
            for task in plan_tasks {
                put_comma(out);
                put_string(out, task);
            }
            out.push(b']');
        }
    }
}

fn put_separator(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
}

fn put_list(out: &mut Vec<u8>, items: &[u8]) {
    out.push(b'[');
    out.extend_from_slice(items);
    out.push(b']');
}

/// Appends a file; for a data file, with the statistics of these columns.
fn put_file(out: &mut Vec<u8>, live: &LiveFile, specs: &PruneSpecs, stats: &[i32]) {
    let file = &*live.file;
    out.push(b'{');
    let content = match file.content {
        FileContent::Data => "data",
        FileContent::PositionDeletes => "position-deletes",
        FileContent::EqualityDeletes => "equality-deletes",
    };
    put_name(out, "content");
    put_string(out, content);
    put_name(out, "file-path");
    put_string(out, &file.path);
    put_name(out, "file-format");
    put_string(out, &file.format);
    put_name(out, "spec-id");
    put_integer(out, i64::from(live.spec_id));
    put_name(out, "partition");
    put_partition(out, file, specs.get(live.spec_id));
    put_name(out, "file-size-in-bytes");
    put_integer(out, file.bytes);
    put_name(out, "record-count");
    put_integer(out, file.records);
    if let Some(key) = &file.key_metadata {
        put_name(out, "key-metadata");
        put_string(out, &upper_hex(key));
    }
    if !file.split_offsets.is_empty() {
        put_name(out, "split-offsets");
        put_numbers(out, file.split_offsets.iter().copied());
    }
    put_number(out, "sort-order-id", file.sort_order_id);
    match file.content {
        FileContent::Data => {
            put_number(out, "first-row-id", live.first_row_id);
            // Rows that store only their id inherit the sequence number of their last change.
            if live.first_row_id.is_some() {
                put_name(out, "data-sequence-number");
                put_integer(out, live.sequence_number);
            }
            put_stats(out, file, stats);
        }
        FileContent::PositionDeletes => {
            put_number(out, "content-offset", file.content_offset);
            put_number(out, "content-size-in-bytes", file.content_size);
            if let Some(path) = &file.referenced {
                put_name(out, "referenced-data-file");
                put_string(out, path);
            }
        }
        FileContent::EqualityDeletes => {
            put_name(out, "equality-ids");
            put_numbers(out, file.equality_ids.iter().map(|id| i64::from(*id)));
        }
    }
    out.push(b'}');
}

fn put_number(out: &mut Vec<u8>, name: &str, number: Option<i64>) {
    if let Some(number) = number {
        put_name(out, name);
        put_integer(out, number);
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: impl Iterator<Item = i64>) {
    out.push(b'[');
    for number in numbers {
        put_comma(out);
        put_integer(out, number);
    }
    out.push(b']');
}

/// Appends the partition values in the order of the fields.
fn put_partition(out: &mut Vec<u8>, file: &ContentFile, spec: Option<&PruneSpec>) {
    out.push(b'[');
    for field in spec.into_iter().flat_map(|spec| &spec.fields) {
        put_comma(out);
        let value = file.partition.iter().find(|(id, _)| *id == field.id);
        let value = value.and_then(|(_, value)| value.as_ref());
        let typed = field.kind.as_ref().zip(value);
        match (typed.and_then(|(kind, value)| Some((kind, value.typed(kind)?))), value) {
            (Some((kind, value)), _) => value.put_json(kind, out),
            // A value of an unknown type is written as its bytes.
            (None, Some(value)) => value.put_json(&ColumnType::Binary, out),
            (None, None) => out.extend_from_slice(b"null"),
        }
    }
    out.push(b']');
}

fn put_stats(out: &mut Vec<u8>, file: &ContentFile, ids: &[i32]) {
    let is_requested = |id: &i32| ids.binary_search(id).is_ok();
    let counts: [(&str, &Counts); 4] = [
        ("column-sizes", &file.column_sizes),
        ("value-counts", &file.value_counts),
        ("null-value-counts", &file.null_counts),
        ("nan-value-counts", &file.nan_counts),
    ];
    for (name, counts) in counts {
        let requested: Vec<_> = counts.iter().filter(|(id, _)| is_requested(id)).collect();
        if !requested.is_empty() {
            put_name(out, name);
            out.extend_from_slice(b"{\"keys\":");
            put_numbers(out, requested.iter().map(|(id, _)| i64::from(*id)));
            put_name(out, "values");
            put_numbers(out, requested.iter().map(|(_, count)| *count));
            out.push(b'}');
        }
    }
    // The interface's text has typed values here, but its reference implementation writes and reads
    // the bytes of the manifest as hexadecimal digits, and other clients go by that:
    // https://github.com/apache/iceberg/blob/main/core/src/main/java/org/apache/iceberg/ContentFileParser.java
    let bounds: [(&str, &Bounds); 2] =
        [("lower-bounds", &file.lower), ("upper-bounds", &file.upper)];
    for (name, bounds) in bounds {
        let requested: Vec<_> = bounds.iter().filter(|(id, _)| is_requested(id)).collect();
        if !requested.is_empty() {
            put_name(out, name);
            out.extend_from_slice(b"{\"keys\":");
            put_numbers(out, requested.iter().map(|(id, _)| i64::from(*id)));
            put_name(out, "values");
            out.push(b'[');
            for (_, bytes) in &requested {
                put_comma(out);
                put_string(out, &upper_hex(bytes));
            }
            out.extend_from_slice(b"]}");
        }
    }
}
