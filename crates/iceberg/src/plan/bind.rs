//! A filter bound to columns: its verdict on a file's rows, and the residual filter.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::expression::{
    ColumnReference, ExpressionNode, FilterExpression, FilterPredicate, PredicateOperator,
};
use super::facts::PredicateVerdict;
use super::metadata_columns::metadata_column;
use super::transform::result_type;
use super::value::{FilterLiteral, PlanValue};
use crate::error::{Result, invalid};
use crate::json::{put_comma, put_name, put_string};
use crate::schema::{ColumnType, FieldTransform, SchemaColumn, SchemaColumns};

/// A predicate on an existing column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BoundPredicate {
    pub(super) op: PredicateOperator,
    pub(super) column: i32,
    /// Name of the column, qualified with the names of its parents.
    pub(super) name: String,
    /// Type of the column.
    pub(super) source: ColumnType,
    /// Type of the values: that of the column, or of the transform's result.
    pub(super) kind: ColumnType,
    pub(super) transform: Option<FieldTransform>,
    /// Sorted, without duplicates.
    pub(super) values: Vec<PlanValue>,
    /// True if the column or one of its parents may be null.
    pub(super) is_optional: bool,
    /// True if statistics of files imply nothing: the values are masked, or the column is not in
    /// files.
    pub(super) is_hidden: bool,
}

/// A filter bound to columns, without negations.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BoundFilter {
    Constant(bool),
    And(Vec<BoundFilter>),
    Or(Vec<BoundFilter>),
    Leaf(Box<BoundPredicate>),
}

impl BoundFilter {
    /// Binds a filter to its columns.
    ///
    /// # Errors
    /// `Validation` if a column does not exist, or a value does not fit its column.
    pub(super) fn new(
        filter: &FilterExpression,
        columns: &SchemaColumns,
        is_case_sensitive: bool,
        hidden: &BTreeSet<i32>,
    ) -> Result<BoundFilter> {
        FilterBinder { columns, is_case_sensitive, hidden }.node(&filter.0, false)
    }

    /// Returns the conjunction of both filters.
    pub(super) fn and(self, other: BoundFilter) -> BoundFilter {
        joined([self, other].into_iter(), true)
    }

    /// Returns the approximate bytes in memory.
    pub(super) fn weight(&self) -> usize {
        let inner = match self {
            BoundFilter::Constant(_) => 0,
            BoundFilter::And(all) | BoundFilter::Or(all) => {
                all.iter().map(BoundFilter::weight).sum()
            }
            BoundFilter::Leaf(leaf) => {
                let values = leaf.values.iter().map(PlanValue::weight).sum::<usize>();
                size_of::<BoundPredicate>() + leaf.name.len() + values
            }
        };
        size_of::<BoundFilter>() + inner
    }

    /// Evaluates the filter, given a verdict on each predicate.
    pub(super) fn judge(
        &self,
        leaf: &mut impl FnMut(&BoundPredicate) -> PredicateVerdict,
    ) -> PredicateVerdict {
        match self {
            BoundFilter::Constant(true) => PredicateVerdict::Always,
            BoundFilter::Constant(false) => PredicateVerdict::Never,
            BoundFilter::Leaf(it) if it.is_hidden => PredicateVerdict::Maybe,
            BoundFilter::Leaf(it) => leaf(it),
            BoundFilter::And(all) => {
                fold(all, PredicateVerdict::Never, PredicateVerdict::Always, leaf)
            }
            BoundFilter::Or(all) => {
                fold(all, PredicateVerdict::Always, PredicateVerdict::Never, leaf)
            }
        }
    }

    /// Returns the residual filter, given a verdict on each predicate.
    pub(super) fn rest(
        &self,
        leaf: &mut impl FnMut(&BoundPredicate) -> PredicateVerdict,
    ) -> BoundFilter {
        match self {
            BoundFilter::Constant(_) => self.clone(),
            BoundFilter::Leaf(it) if it.is_hidden => self.clone(),
            BoundFilter::Leaf(it) => match leaf(it) {
                PredicateVerdict::Never => BoundFilter::Constant(false),
                PredicateVerdict::Always => BoundFilter::Constant(true),
                PredicateVerdict::Maybe => self.clone(),
            },
            BoundFilter::And(all) => joined(all.iter().map(|it| it.rest(leaf)), true),
            BoundFilter::Or(all) => joined(all.iter().map(|it| it.rest(leaf)), false),
        }
    }

    /// Appends it as JSON for clients: in the older form, which all of them know.
    pub(super) fn put_json(&self, out: &mut Vec<u8>) {
        match self {
            BoundFilter::Constant(true) => out.extend_from_slice(b"true"),
            BoundFilter::Constant(false) => out.extend_from_slice(b"false"),
            BoundFilter::And(all) => put_joined(all, "and", out),
            BoundFilter::Or(all) => put_joined(all, "or", out),
            BoundFilter::Leaf(leaf) => leaf.put_json(out),
        }
    }
}

/// Short-circuits: stops at the first verdict that decides.
fn fold(
    all: &[BoundFilter],
    decides: PredicateVerdict,
    otherwise: PredicateVerdict,
    leaf: &mut impl FnMut(&BoundPredicate) -> PredicateVerdict,
) -> PredicateVerdict {
    let mut verdict = otherwise;
    for it in all {
        match it.judge(leaf) {
            found if found == decides => return decides,
            PredicateVerdict::Maybe => verdict = PredicateVerdict::Maybe,
            _ => {}
        }
    }
    verdict
}

fn joined(all: impl Iterator<Item = BoundFilter>, is_and: bool) -> BoundFilter {
    let mut rest = Vec::new();
    for it in all {
        match it {
            BoundFilter::Constant(is) if is == is_and => {}
            BoundFilter::Constant(is) => return BoundFilter::Constant(is),
            BoundFilter::And(inner) if is_and => rest.extend(inner),
            BoundFilter::Or(inner) if !is_and => rest.extend(inner),
            it => rest.push(it),
        }
    }
    match rest.len() {
        0 => BoundFilter::Constant(is_and),
        1 => rest.pop().unwrap_or(BoundFilter::Constant(is_and)),
        _ if is_and => BoundFilter::And(rest),
        _ => BoundFilter::Or(rest),
    }
}

/// Combines two at a time, as the interface requires, in a tree of minimal depth: readers limit the
/// depth.
fn put_joined(all: &[BoundFilter], name: &str, out: &mut Vec<u8>) {
    match all {
        [] => out.extend_from_slice(if name == "and" { b"true" } else { b"false" }),
        [one] => one.put_json(out),
        _ => {
            let (left, right) = all.split_at(all.len() / 2);
            out.extend_from_slice(b"{\"type\":");
            put_string(out, name);
            put_name(out, "left");
            put_joined(left, name, out);
            put_name(out, "right");
            put_joined(right, name, out);
            out.push(b'}');
        }
    }
}

impl BoundPredicate {
    fn put_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"type\":");
        put_string(out, self.op.name());
        put_name(out, "term");
        match &self.transform {
            None => put_string(out, &self.name),
            Some(transform) => {
                out.extend_from_slice(b"{\"type\":\"transform\",\"transform\":");
                put_string(out, &transform.to_string());
                put_name(out, "term");
                put_string(out, &self.name);
                out.push(b'}');
            }
        }
        if self.op.is_set() {
            put_name(out, "values");
            out.push(b'[');
            for value in &self.values {
                put_comma(out);
                value.put_json(&self.kind, out);
            }
            out.push(b']');
        } else if let Some(value) = self.values.first() {
            put_name(out, "value");
            value.put_json(&self.kind, out);
        }
        out.push(b'}');
    }
}

/// Finds the column that a filter or a request names.
///
/// # Errors
/// `Validation` if there is none, or more than one without regard to case.
pub(super) fn find<'c>(
    columns: &'c SchemaColumns,
    reference: &ColumnReference,
    is_case_sensitive: bool,
) -> Result<&'c SchemaColumn> {
    let no_such = |name: &str| invalid(format!("Cannot find field '{name:.100}' in the schema"));
    match reference {
        ColumnReference::Id(id) => columns.get(*id).ok_or_else(|| no_such(&id.to_string())),
        ColumnReference::Name(name) if is_case_sensitive => {
            columns.named(name).ok_or_else(|| no_such(name))
        }
        ColumnReference::Name(name) => {
            let lower = name.to_lowercase();
            let mut found = columns.list.iter().filter(|it| it.name.to_lowercase() == lower);
            let first = found.next().ok_or_else(|| no_such(name))?;
            match found.next() {
                None => Ok(first),
                Some(_) => Err(invalid(format!("there are several fields '{name:.100}'"))),
            }
        }
    }
}

struct FilterBinder<'a> {
    columns: &'a SchemaColumns,
    is_case_sensitive: bool,
    /// Masked columns, whose statistics must not be used.
    hidden: &'a BTreeSet<i32>,
}

impl<'a> FilterBinder<'a> {
    /// Finds a column of the table, or else a metadata column; the flag says which.
    fn column(&self, reference: &ColumnReference) -> Result<(&'a SchemaColumn, bool)> {
        let unknown = match find(self.columns, reference, self.is_case_sensitive) {
            Ok(column) => return Ok((column, false)),
            Err(error) => error,
        };
        let found = metadata_column(reference, self.is_case_sensitive);
        found.map(|column| (column, true)).ok_or(unknown)
    }

    fn node(&self, node: &ExpressionNode, is_negated: bool) -> Result<BoundFilter> {
        Ok(match node {
            ExpressionNode::Constant(is) => BoundFilter::Constant(*is != is_negated),
            ExpressionNode::Not(inner) => self.node(inner, !is_negated)?,
            ExpressionNode::And(left, right) | ExpressionNode::Or(left, right) => {
                let is_and = matches!(node, ExpressionNode::And(..)) != is_negated;
                let both = [self.node(left, is_negated)?, self.node(right, is_negated)?];
                joined(both.into_iter(), is_and)
            }
            ExpressionNode::Predicate(predicate) => self.predicate(predicate, is_negated)?,
        })
    }

    fn predicate(&self, predicate: &FilterPredicate, is_negated: bool) -> Result<BoundFilter> {
        let FilterPredicate { op, term, values } = predicate;
        let op = if is_negated { op.negated() } else { *op };
        let (column, is_metadata) = self.column(&term.reference)?;
        let name = &column.name;
        if self.columns.around(column).any(|it| it.kind != ColumnType::Struct) {
            return Err(invalid(format!("the field '{name:.100}' has several values in a row")));
        }
        let kind = match &term.transform {
            None => column.kind.clone(),
            Some(transform) if !transform.takes(&column.kind) => {
                let message =
                    format!("the field '{name:.100}' cannot be transformed by '{transform}'");
                return Err(invalid(message));
            }
            Some(transform) => result_type(transform, &column.kind)
                .ok_or_else(|| invalid(format!("'{transform}' is of no type")))?,
        };
        let is_of_text = matches!(kind, ColumnType::String | ColumnType::Binary);
        match op {
            PredicateOperator::StartsWith | PredicateOperator::NotStartsWith if !is_of_text => {
                return Err(invalid(format!("the field '{name:.100}' is not a string")));
            }
            PredicateOperator::IsNan | PredicateOperator::NotNan
                if !matches!(kind, ColumnType::Float | ColumnType::Double) =>
            {
                return Err(invalid(format!(
                    "the field '{name:.100}' is not a floating-point field"
                )));
            }
            _ => {}
        }
        let above = self.columns.around(column).any(|it| !it.is_required);
        let mut leaf = BoundPredicate {
            op,
            column: column.id,
            name: name.clone(),
            source: column.kind.clone(),
            kind,
            transform: term.transform.clone(),
            values: Vec::new(),
            is_optional: !column.is_required || above,
            is_hidden: is_metadata || self.hidden.contains(&column.id),
        };
        for value in values {
            let literal = PlanValue::of_json(&leaf.kind, value)
                .map_err(|why| invalid(format!("the field '{name:.100}': {why}")))?;
            match literal {
                FilterLiteral::Value(value) => leaf.values.push(value),
                FilterLiteral::Above => return Ok(self.beyond(leaf, values, true)),
                FilterLiteral::Below => return Ok(self.beyond(leaf, values, false)),
            }
        }
        Ok(settled(leaf))
    }

    /// A predicate with a value outside of the column's range.
    fn beyond(
        &self,
        mut leaf: BoundPredicate,
        values: &[crate::json::RawJson],
        is_above: bool,
    ) -> BoundFilter {
        let all = match (leaf.op, is_above) {
            (PredicateOperator::In | PredicateOperator::NotIn, _) => {
                let known = |it| match PlanValue::of_json(&leaf.kind, it) {
                    Ok(FilterLiteral::Value(value)) => Some(value),
                    _ => None,
                };
                leaf.values = values.iter().filter_map(known).collect();
                return settled(leaf);
            }
            (PredicateOperator::NotEq, _) => return BoundFilter::Constant(true),
            (PredicateOperator::Lt | PredicateOperator::LtEq, true)
            | (PredicateOperator::Gt | PredicateOperator::GtEq, false) => true,
            _ => false,
        };
        if !all {
            return BoundFilter::Constant(false);
        }
        leaf.op = PredicateOperator::NotNull;
        leaf.values.clear();
        settled(leaf)
    }
}

/// Simplifies a predicate that is always true or always false.
fn settled(mut leaf: BoundPredicate) -> BoundFilter {
    match leaf.op {
        // A masked value may be null.
        _ if leaf.is_hidden => {}
        PredicateOperator::IsNull if !leaf.is_optional => return BoundFilter::Constant(false),
        PredicateOperator::NotNull if !leaf.is_optional => return BoundFilter::Constant(true),
        PredicateOperator::In if leaf.values.is_empty() => return BoundFilter::Constant(false),
        PredicateOperator::NotIn if leaf.values.is_empty() => return BoundFilter::Constant(true),
        _ => {}
    }
    leaf.values.sort_by(|a, b| a.order(b).unwrap_or(Ordering::Equal));
    leaf.values.dedup();
    if let ([_], PredicateOperator::In | PredicateOperator::NotIn) =
        (leaf.values.as_slice(), leaf.op)
    {
        leaf.op = if leaf.op == PredicateOperator::In {
            PredicateOperator::Eq
        } else {
            PredicateOperator::NotEq
        };
    }
    BoundFilter::Leaf(Box::new(leaf))
}
