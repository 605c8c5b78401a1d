//! Pruning: manifests and files that a filter leaves out, and the residual filter of a file.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#scan-planning>

use std::collections::{BTreeSet, HashMap};

use super::bind::{BoundFilter, BoundPredicate};
use super::facts::{PredicateVerdict, UpperBound, ValueFacts};
use super::manifest::{ContentFile, ManifestRef, PartitionSummary, of_column};
use super::transform::{inverse, result_type};
use super::value::PlanValue;
use crate::doc::TableDoc;
use crate::error::Result;
use crate::schema::{ColumnType, FieldTransform, SchemaColumns, TransformTerm};

/// A partition field.
#[derive(Debug)]
pub(super) struct SpecField {
    pub(super) id: i32,
    /// Source column; `None` if there are several.
    source: Option<i32>,
    transform: FieldTransform,
    /// Type of the column; `None` if no schema of the table has it.
    source_kind: Option<ColumnType>,
    /// Type of the field's values.
    pub(super) kind: Option<ColumnType>,
}

/// Partition specification for pruning.
#[derive(Debug)]
pub(super) struct PruneSpec {
    pub(super) fields: Vec<SpecField>,
}

impl PruneSpec {
    /// Returns whether the files are not partitioned: a field that is always null divides nothing.
    pub(super) fn is_unpartitioned(&self) -> bool {
        self.fields.iter().all(|field| field.transform == FieldTransform::Void)
    }
}

/// All specifications of a table, by their ids.
#[derive(Debug, Default)]
pub(super) struct PruneSpecs(HashMap<i32, PruneSpec>);

impl PruneSpecs {
    /// Reads the specifications of a document. Removed columns are looked up in the schemas that
    /// had them.
    pub(super) fn read(doc: &TableDoc, current: &SchemaColumns) -> Result<PruneSpecs> {
        let mut kinds: HashMap<i32, Option<ColumnType>> = HashMap::new();
        let mut older: Option<Vec<SchemaColumns>> = None;
        let mut all = HashMap::new();
        for spec in &doc.specs {
            let mut fields = Vec::new();
            let raws = spec.raw.get("fields");
            let raws = raws.as_ref().and_then(|raws| raws.items().ok()).into_iter().flatten();
            for (place, raw) in raws.enumerate() {
                let term = TransformTerm::read(&raw)?;
                let source = match term.sources.as_slice() {
                    [one] => Some(*one),
                    _ => None,
                };
                let source_kind = source.and_then(|id| {
                    kinds
                        .entry(id)
                        .or_insert_with(|| match current.get(id) {
                            Some(column) => Some(column.kind.clone()),
                            None => find_older(doc, id, &mut older),
                        })
                        .clone()
                });
                let kind = match (&source_kind, &term.transform) {
                    (Some(source), transform) => result_type(transform, source),
                    (None, FieldTransform::Bucket(_)) => Some(ColumnType::Int),
                    (None, _) => None,
                };
                // In version 1 fields may have no ids: they are numbered in their order.
                let id = raw.get("field-id").and_then(|id| id.as_i32());
                let id = id.or_else(|| i32::try_from(1000 + place).ok()).unwrap_or_default();
                fields.push(SpecField { id, source, transform: term.transform, source_kind, kind });
            }
            all.insert(spec.id, PruneSpec { fields });
        }
        Ok(PruneSpecs(all))
    }

    /// Returns the specifications of an unpartitioned table.
    #[cfg(test)]
    pub(super) fn unpartitioned() -> PruneSpecs {
        PruneSpecs([(0, PruneSpec { fields: Vec::new() })].into())
    }

    pub(super) fn get(&self, id: i32) -> Option<&PruneSpec> {
        self.0.get(&id)
    }

    /// Returns whether partition values are derived from one of these columns. Fields with several
    /// source columns are assumed to be.
    pub(super) fn are_made_of(&self, columns: &BTreeSet<i32>) -> bool {
        let fields = self.0.values().flat_map(|spec| &spec.fields);
        let mut sources =
            fields.filter(|it| it.transform != FieldTransform::Void).map(|it| it.source);
        !columns.is_empty() && sources.any(|it| it.is_none_or(|id| columns.contains(&id)))
    }
}

fn find_older(
    doc: &TableDoc,
    id: i32,
    older: &mut Option<Vec<SchemaColumns>>,
) -> Option<ColumnType> {
    let read = || {
        let schemas = doc.schemas.iter().rev();
        schemas.filter_map(|schema| SchemaColumns::read(&schema.raw).ok()).collect()
    };
    let all = older.get_or_insert_with(read);
    all.iter().find_map(|columns| columns.get(id).map(|column| column.kind.clone()))
}

/// Returns the verdict of a partition field on a predicate, if there is one.
fn by_field(
    field: &SpecField,
    leaf: &BoundPredicate,
    facts: ValueFacts,
    range: (Option<&PlanValue>, Option<&PlanValue>),
) -> PredicateVerdict {
    if field.source != Some(leaf.column) || field.transform == FieldTransform::Void {
        return PredicateVerdict::Maybe;
    }
    let facts = match &leaf.transform {
        None => match &field.source_kind {
            Some(source) => inverse(&field.transform, source, facts, range.0, range.1),
            None => return PredicateVerdict::Maybe,
        },
        // The partition value is the one that the filter compares.
        Some(transform) if *transform == field.transform => {
            let (lower, upper) = range;
            let upper = upper.cloned().map(UpperBound::Value);
            ValueFacts { lower: lower.cloned(), upper, ..facts }.settled()
        }
        Some(_) => return PredicateVerdict::Maybe,
    };
    facts.judge(leaf.op, &leaf.values)
}

/// Combines the verdicts of all fields: each of them is correct.
fn agreed(verdicts: impl Iterator<Item = PredicateVerdict>) -> PredicateVerdict {
    let mut agreed = PredicateVerdict::Maybe;
    for verdict in verdicts {
        match verdict {
            PredicateVerdict::Never => return PredicateVerdict::Never,
            PredicateVerdict::Always => agreed = PredicateVerdict::Always,
            PredicateVerdict::Maybe => {}
        }
    }
    agreed
}

/// Returns whether files in a manifest may have rows that match the filter.
pub(super) fn may_match_manifest(filter: &BoundFilter, spec: &PruneSpec, of: &ManifestRef) -> bool {
    let Some(summaries) = &of.partitions else { return true };
    if summaries.len() != spec.fields.len() {
        return true;
    }
    let mut by_summary = |leaf: &BoundPredicate| {
        agreed(spec.fields.iter().zip(summaries).map(|(field, summary)| {
            let Some(kind) = &field.kind else { return PredicateVerdict::Maybe };
            let read = |bytes: &Option<Box<[u8]>>| {
                bytes.as_deref().and_then(|bytes| PlanValue::of_bytes(kind, bytes))
            };
            let (lower, upper) = (read(&summary.lower), read(&summary.upper));
            by_field(field, leaf, of_summary(summary, kind), (lower.as_ref(), upper.as_ref()))
        }))
    };
    filter.judge(&mut by_summary) != PredicateVerdict::Never
}

fn of_summary(summary: &PartitionSummary, kind: &ColumnType) -> ValueFacts {
    let is_float = matches!(kind, ColumnType::Float | ColumnType::Double);
    // Bounds are omitted if all values are null or NaN.
    let has_others = summary.contains_null || summary.contains_nan == Some(true);
    ValueFacts {
        null: summary.contains_null,
        nan: is_float && summary.contains_nan != Some(false),
        value: summary.lower.is_some() || summary.upper.is_some() || !has_others,
        ..ValueFacts::none()
    }
}

/// Returns the verdict of a file's partition on a predicate.
fn by_partition(spec: &PruneSpec, file: &ContentFile, leaf: &BoundPredicate) -> PredicateVerdict {
    agreed(spec.fields.iter().map(|field| {
        let found = file.partition.iter().find(|(id, _)| *id == field.id);
        let (Some((_, value)), Some(kind)) = (found, &field.kind) else {
            return PredicateVerdict::Maybe;
        };
        let value = match value {
            None => None,
            Some(value) => match value.typed(kind) {
                Some(value) => Some(value),
                None => return PredicateVerdict::Maybe,
            },
        };
        let facts = ValueFacts::exactly(value.clone());
        let range = value.as_ref().filter(|value| !value.is_nan());
        by_field(field, leaf, facts, (range, range))
    }))
}

/// Returns whether a file may have rows that match the filter, by its partition.
pub(super) fn may_match_partition(
    filter: &BoundFilter,
    spec: &PruneSpec,
    file: &ContentFile,
) -> bool {
    filter.judge(&mut |leaf| by_partition(spec, file, leaf)) != PredicateVerdict::Never
}

/// Returns the residual filter for the rows of a file, by its partition.
pub(super) fn rest(filter: &BoundFilter, spec: &PruneSpec, file: &ContentFile) -> BoundFilter {
    filter.rest(&mut |leaf| by_partition(spec, file, leaf))
}

/// Returns whether a file may have rows that match the filter, by its column statistics.
pub(super) fn may_match_rows(filter: &BoundFilter, file: &ContentFile) -> bool {
    if file.records == 0 {
        return false;
    }
    let mut by_counts = |leaf: &BoundPredicate| match leaf.transform {
        Some(_) => PredicateVerdict::Maybe,
        None => of_counts(leaf, file).judge(leaf.op, &leaf.values),
    };
    filter.judge(&mut by_counts) != PredicateVerdict::Never
}

/// Returns the known facts about the values of a column in a file.
fn of_counts(leaf: &BoundPredicate, file: &ContentFile) -> ValueFacts {
    let id = leaf.column;
    let count = |of: &[(i32, i64)]| of_column(of, id).copied().filter(|count| *count >= 0);
    let (values, nulls, nans) =
        (count(&file.value_counts), count(&file.null_counts), count(&file.nan_counts));
    let is_float = matches!(leaf.kind, ColumnType::Float | ColumnType::Double);
    let is_all = |count: Option<i64>| values.is_some_and(|all| all > 0) && count == values;
    let bound = |of: &[(i32, Box<[u8]>)]| {
        of_column(of, id).and_then(|bytes| PlanValue::of_bytes(&leaf.kind, bytes))
    };
    let facts = ValueFacts {
        null: leaf.is_optional && nulls != Some(0),
        nan: is_float && nans != Some(0) && !is_all(nulls),
        value: !is_all(nulls) && !is_all(nans),
        lower: bound(&file.lower),
        upper: bound(&file.upper).map(UpperBound::Value),
        ..ValueFacts::none()
    };
    facts.settled()
}

/// Encodes the partition of a file: two files have equal bytes if they are in the same partition.
pub(super) fn partition_key(spec: &PruneSpec, spec_id: i32, file: &ContentFile) -> Vec<u8> {
    let mut key = spec_id.to_le_bytes().to_vec();
    for field in &spec.fields {
        let value = file.partition.iter().find(|(id, _)| *id == field.id);
        match value.and_then(|(_, value)| value.as_ref()) {
            None => key.push(0),
            Some(value) => {
                key.push(1);
                value.put_key(&mut key);
            }
        }
    }
    key
}
