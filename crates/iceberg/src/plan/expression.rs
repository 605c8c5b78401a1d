//! Filters as clients write them: the predicates of Iceberg's REST interface, in both of its forms.
//!
//! They are parsed here, without a schema; `bind` resolves the columns.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use crate::error::{Result, bad};
use crate::json::{JsonKind, RawJson};
use crate::schema::FieldTransform;

/// Most predicates of a filter.
pub const PREDICATES_MAX: usize = 2_000;

/// Most values of a filter.
pub const VALUES_MAX: usize = 20_000;

/// Operator of a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PredicateOperator {
    IsNull,
    NotNull,
    IsNan,
    NotNan,
    Lt,
    LtEq,
    Gt,
    GtEq,
    Eq,
    NotEq,
    StartsWith,
    NotStartsWith,
    In,
    NotIn,
}

/// Every operator, with its name and its negation.
const OPS: [(PredicateOperator, &str, PredicateOperator); 14] = [
    (PredicateOperator::IsNull, "is-null", PredicateOperator::NotNull),
    (PredicateOperator::NotNull, "not-null", PredicateOperator::IsNull),
    (PredicateOperator::IsNan, "is-nan", PredicateOperator::NotNan),
    (PredicateOperator::NotNan, "not-nan", PredicateOperator::IsNan),
    (PredicateOperator::Lt, "lt", PredicateOperator::GtEq),
    (PredicateOperator::LtEq, "lt-eq", PredicateOperator::Gt),
    (PredicateOperator::Gt, "gt", PredicateOperator::LtEq),
    (PredicateOperator::GtEq, "gt-eq", PredicateOperator::Lt),
    (PredicateOperator::Eq, "eq", PredicateOperator::NotEq),
    (PredicateOperator::NotEq, "not-eq", PredicateOperator::Eq),
    (PredicateOperator::StartsWith, "starts-with", PredicateOperator::NotStartsWith),
    (PredicateOperator::NotStartsWith, "not-starts-with", PredicateOperator::StartsWith),
    (PredicateOperator::In, "in", PredicateOperator::NotIn),
    (PredicateOperator::NotIn, "not-in", PredicateOperator::In),
];

impl PredicateOperator {
    fn of(name: &str) -> Option<PredicateOperator> {
        OPS.iter().find(|(_, known, _)| *known == name).map(|(op, ..)| *op)
    }

    /// Returns the name in filters.
    pub(super) fn name(self) -> &'static str {
        OPS.iter().find(|(op, ..)| *op == self).map_or("", |(_, name, _)| name)
    }

    /// Returns the negated operator.
    pub(super) fn negated(self) -> PredicateOperator {
        OPS.iter().find(|(op, ..)| *op == self).map_or(self, |(.., negated)| *negated)
    }

    /// Returns the operator for swapped sides.
    fn flipped(self) -> Option<PredicateOperator> {
        match self {
            PredicateOperator::Lt => Some(PredicateOperator::Gt),
            PredicateOperator::LtEq => Some(PredicateOperator::GtEq),
            PredicateOperator::Gt => Some(PredicateOperator::Lt),
            PredicateOperator::GtEq => Some(PredicateOperator::LtEq),
            PredicateOperator::Eq | PredicateOperator::NotEq => Some(self),
            _ => None,
        }
    }

    pub(super) fn is_unary(self) -> bool {
        matches!(
            self,
            PredicateOperator::IsNull
                | PredicateOperator::NotNull
                | PredicateOperator::IsNan
                | PredicateOperator::NotNan
        )
    }

    pub(super) fn is_set(self) -> bool {
        matches!(self, PredicateOperator::In | PredicateOperator::NotIn)
    }
}

/// Reference to a column in a filter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ColumnReference {
    Name(String),
    Id(i32),
}

/// A column, or a transform of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FilterTerm {
    pub(super) reference: ColumnReference,
    pub(super) transform: Option<FieldTransform>,
}

/// Predicate of a filter on a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FilterPredicate {
    pub(super) op: PredicateOperator,
    pub(super) term: FilterTerm,
    pub(super) values: Vec<RawJson>,
}

/// A filter whose columns are not resolved yet.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterExpression(pub(super) ExpressionNode);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpressionNode {
    Constant(bool),
    And(Box<ExpressionNode>, Box<ExpressionNode>),
    Or(Box<ExpressionNode>, Box<ExpressionNode>),
    Not(Box<ExpressionNode>),
    Predicate(Box<FilterPredicate>),
}

impl FilterExpression {
    /// Parses a filter.
    ///
    /// # Errors
    /// `BadRequest` if it is malformed, has an unknown part, or exceeds [`PREDICATES_MAX`] or
    /// [`VALUES_MAX`].
    pub fn parse(text: &RawJson) -> Result<FilterExpression> {
        let mut reader = ExpressionReader { predicates: PREDICATES_MAX, values: VALUES_MAX };
        Ok(FilterExpression(reader.node(text)?))
    }

    /// Returns the filter that matches every row.
    #[must_use]
    pub const fn everything() -> FilterExpression {
        FilterExpression(ExpressionNode::Constant(true))
    }
}

/// Side of a comparison.
enum ComparisonSide {
    Term(FilterTerm),
    Value(RawJson),
}

/// Parses a filter, and counts its parts. Its depth was limited when its JSON was parsed.
struct ExpressionReader {
    predicates: usize,
    values: usize,
}

impl ExpressionReader {
    fn node(&mut self, text: &RawJson) -> Result<ExpressionNode> {
        self.predicates = self
            .predicates
            .checked_sub(1)
            .ok_or_else(|| bad(format!("`filter` has more than {PREDICATES_MAX} predicates")))?;
        if let Some(is) = text.as_bool() {
            return Ok(ExpressionNode::Constant(is));
        }
        if text.kind() != JsonKind::Object {
            return Err(bad(format!("`filter` has {} in place of a predicate", text.kind())));
        }
        let kind = member(text, "type")?;
        let kind = kind.as_str().ok_or_else(|| bad("the `type` of a predicate is a string"))?;
        let child = |name: &str| member(text, name);
        Ok(match &*kind {
            "true" => ExpressionNode::Constant(true),
            "false" => ExpressionNode::Constant(false),
            "and" | "or" => {
                let left = Box::new(self.node(&child("left")?)?);
                let right = Box::new(self.node(&child("right")?)?);
                if kind == "and" {
                    ExpressionNode::And(left, right)
                } else {
                    ExpressionNode::Or(left, right)
                }
            }
            "not" => ExpressionNode::Not(Box::new(self.node(&child("child")?)?)),
            name => {
                let op = PredicateOperator::of(name)
                    .ok_or_else(|| bad(format!("`{name:.40}` is not a type of predicate")))?;
                ExpressionNode::Predicate(Box::new(self.predicate(op, text)?))
            }
        })
    }

    fn predicate(&mut self, op: PredicateOperator, text: &RawJson) -> Result<FilterPredicate> {
        if op.is_unary() || op.is_set() {
            let operand = match (text.get("child"), text.get("term")) {
                (Some(child), _) => side(&child)?,
                (None, Some(older)) => term(&older)?,
                (None, None) => return Err(bad(format!("`{}` has no `child`", op.name()))),
            };
            let ComparisonSide::Term(term) = operand else {
                return Err(bad(format!("the `child` of `{}` is not a field", op.name())));
            };
            let values = if op.is_set() { self.values(text)? } else { Vec::new() };
            return Ok(FilterPredicate { op, term, values });
        }
        let (left, right) = match (text.get("left"), text.get("right")) {
            (Some(left), Some(right)) => (side(&left)?, side(&right)?),
            _ => (
                term(&member(text, "term")?)?,
                ComparisonSide::Value(literal(&member(text, "value")?)?),
            ),
        };
        self.count(1)?;
        let (op, term, value) = match (left, right) {
            (ComparisonSide::Term(term), ComparisonSide::Value(value)) => (Some(op), term, value),
            (ComparisonSide::Value(value), ComparisonSide::Term(term)) => {
                (op.flipped(), term, value)
            }
            _ => return Err(bad(format!("`{}` compares one field with one literal", op.name()))),
        };
        let op = op.ok_or_else(|| bad("a prefix must be on the right"))?;
        Ok(FilterPredicate { op, term, values: vec![value] })
    }

    fn values(&mut self, text: &RawJson) -> Result<Vec<RawJson>> {
        let mut all = member(text, "values")?;
        if all.kind() == JsonKind::Object {
            all = member(&all, "values")?;
        }
        let items = all.items().map_err(|_| bad("`values` is a list of literals"))?;
        let mut values = Vec::new();
        for item in items {
            self.count(1)?;
            values.push(literal(&item)?);
        }
        Ok(values)
    }

    fn count(&mut self, values: usize) -> Result<()> {
        self.values = self
            .values
            .checked_sub(values)
            .ok_or_else(|| bad(format!("`filter` has more than {VALUES_MAX} values")))?;
        Ok(())
    }
}

/// Returns a literal's value, with or without a wrapper. The declared type is ignored: the value
/// has to fit the column.
fn literal(text: &RawJson) -> Result<RawJson> {
    let value = match text.kind() {
        JsonKind::Object if kind_of(text).as_deref() == Some("literal") => member(text, "value")?,
        _ => text.clone(),
    };
    match value.kind() {
        JsonKind::Bool | JsonKind::Number | JsonKind::String => Ok(value),
        kind => Err(bad(format!("{kind} cannot be compared with a field"))),
    }
}

/// Parses the older form of a column: a name, or a transform of one. An object with a type is of
/// the newer form.
fn term(text: &RawJson) -> Result<ComparisonSide> {
    match (text.as_str(), kind_of(text).as_deref()) {
        (Some(name), _) => Ok(ComparisonSide::Term(FilterTerm {
            reference: ColumnReference::Name(name.into_owned()),
            transform: None,
        })),
        (None, Some("transform")) => {
            let transform = member(text, "transform")?;
            let transform = transform.as_str().unwrap_or_default().into_owned();
            of_transform(&transform, term(&member(text, "term")?)?).map(ComparisonSide::Term)
        }
        _ => side(text),
    }
}

/// Parses the newer form: a reference, a function of one, or a value.
fn side(text: &RawJson) -> Result<ComparisonSide> {
    match (text.kind(), kind_of(text).as_deref()) {
        (JsonKind::Object, Some("reference")) => {
            let reference = match (text.get("id"), text.get("name")) {
                (Some(id), _) => {
                    let id = id.as_i32().ok_or_else(|| bad("the `id` of a field is a number"))?;
                    ColumnReference::Id(id)
                }
                (None, name) => {
                    let name = name.as_ref().and_then(RawJson::as_str);
                    let name = name.ok_or_else(|| bad("a reference has an `id` or a `name`"))?;
                    ColumnReference::Name(name.into_owned())
                }
            };
            Ok(ComparisonSide::Term(FilterTerm { reference, transform: None }))
        }
        (JsonKind::Object, Some("apply")) => applied(text).map(ComparisonSide::Term),
        (JsonKind::Object, Some("literal"))
        | (JsonKind::Bool | JsonKind::Number | JsonKind::String, _) => {
            literal(text).map(ComparisonSide::Value)
        }
        (kind, _) => Err(bad(format!("{kind} is neither a field nor a literal"))),
    }
}

/// Parses a function of a field: one of the transforms, with its width, if any, before the field.
fn applied(text: &RawJson) -> Result<FilterTerm> {
    let function = member(text, "function")?;
    let name = function.as_str().ok_or_else(|| bad("`function` is unknown"))?;
    let arguments = member(text, "arguments")?;
    let arguments = arguments.items().map_err(|_| bad("`arguments` is a list"))?;
    let arguments: Vec<RawJson> = arguments.take(3).collect();
    match arguments.as_slice() {
        [field] => of_transform(&name, side(field)?),
        [width, field] => {
            let width = literal(width)?;
            let width =
                width.as_i32().ok_or_else(|| bad("the width of a transform is a number"))?;
            of_transform(&format!("{name}[{width}]"), side(field)?)
        }
        _ => Err(bad("a transform has a field, and a width before it if it needs one")),
    }
}

fn of_transform(name: &str, field: ComparisonSide) -> Result<FilterTerm> {
    let transform = match FieldTransform::parse(name)? {
        FieldTransform::Other(_) | FieldTransform::Void => {
            return Err(bad(format!("the function `{name:.40}` is unknown")));
        }
        FieldTransform::Identity => None,
        transform => Some(transform),
    };
    match field {
        ComparisonSide::Term(FilterTerm { reference, transform: None }) => {
            Ok(FilterTerm { reference, transform })
        }
        _ => Err(bad("a transform needs a field")),
    }
}

fn kind_of(text: &RawJson) -> Option<String> {
    text.get("type").and_then(|kind| kind.as_str().map(std::borrow::Cow::into_owned))
}

fn member(text: &RawJson, name: &str) -> Result<RawJson> {
    text.get(name).ok_or_else(|| bad(format!("a part of `filter` has no `{name}`")))
}
