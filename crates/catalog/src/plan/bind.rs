//! A filter that knows its columns: what it is of a file's rows, and what is left of it.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::expression::{Expression, Node, Op, Predicate, Reference};
use super::facts::Verdict;
use super::metadata_columns::metadata_column;
use super::transform::result_type;
use super::value::{Literal, Value};
use crate::error::{Result, invalid};
use crate::json::{put_comma, put_name, put_string};
use crate::schema::{Column, ColumnType, Columns, Transform};

/// A predicate about a column that there is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leaf {
    pub(super) op: Op,
    pub(super) column: i32,
    /// What the column is called, with the names of all that it is in.
    pub(super) name: String,
    /// Of the column.
    pub(super) source: ColumnType,
    /// Of the values: that of the column, or of what is made of it.
    pub(super) kind: ColumnType,
    pub(super) transform: Option<Transform>,
    /// In order, each once.
    pub(super) values: Vec<Value>,
    /// Whether the column, or what it is in, may be null.
    pub(super) is_optional: bool,
    /// Whether nothing follows from what is known of files: the values that it is about are others
    /// than the files have, or none of the file's columns.
    pub(super) is_hidden: bool,
}

/// A filter that knows its columns, without negations.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bound {
    Constant(bool),
    And(Vec<Bound>),
    Or(Vec<Bound>),
    Leaf(Box<Leaf>),
}

impl Bound {
    /// Finds the columns of a filter.
    ///
    /// # Errors
    /// `Validation` when a column is not there, or a value is none of its column.
    pub(super) fn new(
        filter: &Expression,
        columns: &Columns,
        is_case_sensitive: bool,
        hidden: &BTreeSet<i32>,
    ) -> Result<Bound> {
        Binder { columns, is_case_sensitive, hidden }.node(&filter.0, false)
    }

    /// What fulfils both.
    pub(super) fn and(self, other: Bound) -> Bound {
        joined([self, other].into_iter(), true)
    }

    /// Bytes that it takes in memory, about.
    pub(super) fn weight(&self) -> usize {
        let inner = match self {
            Bound::Constant(_) => 0,
            Bound::And(all) | Bound::Or(all) => all.iter().map(Bound::weight).sum(),
            Bound::Leaf(leaf) => {
                let values = leaf.values.iter().map(Value::weight).sum::<usize>();
                size_of::<Leaf>() + leaf.name.len() + values
            }
        };
        size_of::<Bound>() + inner
    }

    /// What the filter is, when this is what its predicates are.
    pub(super) fn judge(&self, leaf: &mut impl FnMut(&Leaf) -> Verdict) -> Verdict {
        match self {
            Bound::Constant(true) => Verdict::Always,
            Bound::Constant(false) => Verdict::Never,
            Bound::Leaf(it) if it.is_hidden => Verdict::Maybe,
            Bound::Leaf(it) => leaf(it),
            Bound::And(all) => fold(all, Verdict::Never, Verdict::Always, leaf),
            Bound::Or(all) => fold(all, Verdict::Always, Verdict::Never, leaf),
        }
    }

    /// What is left of the filter, when this is what its predicates are.
    pub(super) fn rest(&self, leaf: &mut impl FnMut(&Leaf) -> Verdict) -> Bound {
        match self {
            Bound::Constant(_) => self.clone(),
            Bound::Leaf(it) if it.is_hidden => self.clone(),
            Bound::Leaf(it) => match leaf(it) {
                Verdict::Never => Bound::Constant(false),
                Verdict::Always => Bound::Constant(true),
                Verdict::Maybe => self.clone(),
            },
            Bound::And(all) => joined(all.iter().map(|it| it.rest(leaf)), true),
            Bound::Or(all) => joined(all.iter().map(|it| it.rest(leaf)), false),
        }
    }

    /// Appends it as clients read it: in the older form, which all of them know.
    pub(super) fn put_json(&self, out: &mut Vec<u8>) {
        match self {
            Bound::Constant(true) => out.extend_from_slice(b"true"),
            Bound::Constant(false) => out.extend_from_slice(b"false"),
            Bound::And(all) => put_joined(all, "and", out),
            Bound::Or(all) => put_joined(all, "or", out),
            Bound::Leaf(leaf) => leaf.put_json(out),
        }
    }
}

/// Ends as soon as it is clear: at the first that decides.
fn fold(
    all: &[Bound],
    decides: Verdict,
    otherwise: Verdict,
    leaf: &mut impl FnMut(&Leaf) -> Verdict,
) -> Verdict {
    let mut verdict = otherwise;
    for it in all {
        match it.judge(leaf) {
            found if found == decides => return decides,
            Verdict::Maybe => verdict = Verdict::Maybe,
            _ => {}
        }
    }
    verdict
}

fn joined(all: impl Iterator<Item = Bound>, is_and: bool) -> Bound {
    let mut rest = Vec::new();
    for it in all {
        match it {
            Bound::Constant(is) if is == is_and => {}
            Bound::Constant(is) => return Bound::Constant(is),
            Bound::And(inner) if is_and => rest.extend(inner),
            Bound::Or(inner) if !is_and => rest.extend(inner),
            it => rest.push(it),
        }
    }
    match rest.len() {
        0 => Bound::Constant(is_and),
        1 => rest.pop().unwrap_or(Bound::Constant(is_and)),
        _ if is_and => Bound::And(rest),
        _ => Bound::Or(rest),
    }
}

/// Of two at a time, as the interface has it, in a tree that is as flat as can be: readers have
/// limits of depth.
fn put_joined(all: &[Bound], name: &str, out: &mut Vec<u8>) {
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

impl Leaf {
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

/// The column that a filter or a request names.
///
/// # Errors
/// `Validation` when there is none, or more than one when case does not matter.
pub(super) fn find<'c>(
    columns: &'c Columns,
    reference: &Reference,
    is_case_sensitive: bool,
) -> Result<&'c Column> {
    let no_such = |name: &str| invalid(format!("Cannot find field '{name:.100}' in the schema"));
    match reference {
        Reference::Id(id) => columns.get(*id).ok_or_else(|| no_such(&id.to_string())),
        Reference::Name(name) if is_case_sensitive => {
            columns.named(name).ok_or_else(|| no_such(name))
        }
        Reference::Name(name) => {
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

struct Binder<'a> {
    columns: &'a Columns,
    is_case_sensitive: bool,
    /// Columns that nothing is to be concluded from.
    hidden: &'a BTreeSet<i32>,
}

impl<'a> Binder<'a> {
    /// Finds a column of the table, or else a metadata column: answers which of them it is.
    fn column(&self, reference: &Reference) -> Result<(&'a Column, bool)> {
        let unknown = match find(self.columns, reference, self.is_case_sensitive) {
            Ok(column) => return Ok((column, false)),
            Err(error) => error,
        };
        let found = metadata_column(reference, self.is_case_sensitive);
        found.map(|column| (column, true)).ok_or(unknown)
    }

    fn node(&self, node: &Node, is_negated: bool) -> Result<Bound> {
        Ok(match node {
            Node::Constant(is) => Bound::Constant(*is != is_negated),
            Node::Not(inner) => self.node(inner, !is_negated)?,
            Node::And(left, right) | Node::Or(left, right) => {
                let is_and = matches!(node, Node::And(..)) != is_negated;
                let both = [self.node(left, is_negated)?, self.node(right, is_negated)?];
                joined(both.into_iter(), is_and)
            }
            Node::Predicate(predicate) => self.predicate(predicate, is_negated)?,
        })
    }

    fn predicate(&self, predicate: &Predicate, is_negated: bool) -> Result<Bound> {
        let Predicate { op, term, values } = predicate;
        let op = if is_negated { op.negated() } else { *op };
        let (column, is_metadata) = self.column(&term.reference)?;
        let name = &column.name;
        if self.columns.around(column).any(|it| it.kind != ColumnType::Struct) {
            return Err(invalid(format!("the field '{name:.100}' has several values in a row")));
        }
        let kind = match &term.transform {
            None => column.kind.clone(),
            Some(transform) if !transform.takes(&column.kind) => {
                let message = format!("the field '{name:.100}' cannot be made '{transform}'");
                return Err(invalid(message));
            }
            Some(transform) => result_type(transform, &column.kind)
                .ok_or_else(|| invalid(format!("'{transform}' is of no type")))?,
        };
        let is_of_text = matches!(kind, ColumnType::String | ColumnType::Binary);
        match op {
            Op::StartsWith | Op::NotStartsWith if !is_of_text => {
                return Err(invalid(format!("the field '{name:.100}' is no text")));
            }
            Op::IsNan | Op::NotNan if !matches!(kind, ColumnType::Float | ColumnType::Double) => {
                return Err(invalid(format!("the field '{name:.100}' is no floating-point one")));
            }
            _ => {}
        }
        let above = self.columns.around(column).any(|it| !it.is_required);
        let mut leaf = Leaf {
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
            let literal = Value::of_json(&leaf.kind, value)
                .map_err(|why| invalid(format!("the field '{name:.100}': {why}")))?;
            match literal {
                Literal::Value(value) => leaf.values.push(value),
                Literal::Above => return Ok(self.beyond(leaf, values, true)),
                Literal::Below => return Ok(self.beyond(leaf, values, false)),
            }
        }
        Ok(settled(leaf))
    }

    /// A predicate with a value that the column cannot have.
    fn beyond(&self, mut leaf: Leaf, values: &[crate::json::Fragment], is_above: bool) -> Bound {
        let all = match (leaf.op, is_above) {
            (Op::In | Op::NotIn, _) => {
                let known = |it| match Value::of_json(&leaf.kind, it) {
                    Ok(Literal::Value(value)) => Some(value),
                    _ => None,
                };
                leaf.values = values.iter().filter_map(known).collect();
                return settled(leaf);
            }
            (Op::NotEq, _) => return Bound::Constant(true),
            (Op::Lt | Op::LtEq, true) | (Op::Gt | Op::GtEq, false) => true,
            _ => false,
        };
        if !all {
            return Bound::Constant(false);
        }
        leaf.op = Op::NotNull;
        leaf.values.clear();
        settled(leaf)
    }
}

/// The predicate, or what it always is.
fn settled(mut leaf: Leaf) -> Bound {
    match leaf.op {
        // What is shown in place of a value may be null.
        _ if leaf.is_hidden => {}
        Op::IsNull if !leaf.is_optional => return Bound::Constant(false),
        Op::NotNull if !leaf.is_optional => return Bound::Constant(true),
        Op::In if leaf.values.is_empty() => return Bound::Constant(false),
        Op::NotIn if leaf.values.is_empty() => return Bound::Constant(true),
        _ => {}
    }
    leaf.values.sort_by(|a, b| a.order(b).unwrap_or(Ordering::Equal));
    leaf.values.dedup();
    if let ([_], Op::In | Op::NotIn) = (leaf.values.as_slice(), leaf.op) {
        leaf.op = if leaf.op == Op::In { Op::Eq } else { Op::NotEq };
    }
    Bound::Leaf(Box::new(leaf))
}
