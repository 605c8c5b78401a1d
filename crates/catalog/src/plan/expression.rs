//! Filters as clients write them: the predicates of Iceberg's interface, in both of its forms.
//!
//! They are read here, without a schema; `bind` finds the columns.

use crate::error::{Result, bad};
use crate::json::{Fragment, JsonKind};
use crate::schema::Transform;

/// Predicates of a filter at the most.
pub const PREDICATES_MAX: usize = 2_000;

/// Values of a filter at the most.
pub const VALUES_MAX: usize = 20_000;

/// What a predicate asks of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
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

/// Every operation, by its name, and the one that is true where it is not.
const OPS: [(Op, &str, Op); 14] = [
    (Op::IsNull, "is-null", Op::NotNull),
    (Op::NotNull, "not-null", Op::IsNull),
    (Op::IsNan, "is-nan", Op::NotNan),
    (Op::NotNan, "not-nan", Op::IsNan),
    (Op::Lt, "lt", Op::GtEq),
    (Op::LtEq, "lt-eq", Op::Gt),
    (Op::Gt, "gt", Op::LtEq),
    (Op::GtEq, "gt-eq", Op::Lt),
    (Op::Eq, "eq", Op::NotEq),
    (Op::NotEq, "not-eq", Op::Eq),
    (Op::StartsWith, "starts-with", Op::NotStartsWith),
    (Op::NotStartsWith, "not-starts-with", Op::StartsWith),
    (Op::In, "in", Op::NotIn),
    (Op::NotIn, "not-in", Op::In),
];

impl Op {
    fn of(name: &str) -> Option<Op> {
        OPS.iter().find(|(_, known, _)| *known == name).map(|(op, ..)| *op)
    }

    /// As filters write it.
    pub(super) fn name(self) -> &'static str {
        OPS.iter().find(|(op, ..)| *op == self).map_or("", |(_, name, _)| name)
    }

    /// What is to be asked in place of this for the opposite.
    pub(super) fn negated(self) -> Op {
        OPS.iter().find(|(op, ..)| *op == self).map_or(self, |(.., negated)| *negated)
    }

    /// The same when both sides change their places.
    fn flipped(self) -> Option<Op> {
        match self {
            Op::Lt => Some(Op::Gt),
            Op::LtEq => Some(Op::GtEq),
            Op::Gt => Some(Op::Lt),
            Op::GtEq => Some(Op::LtEq),
            Op::Eq | Op::NotEq => Some(self),
            _ => None,
        }
    }

    pub(super) fn is_unary(self) -> bool {
        matches!(self, Op::IsNull | Op::NotNull | Op::IsNan | Op::NotNan)
    }

    pub(super) fn is_set(self) -> bool {
        matches!(self, Op::In | Op::NotIn)
    }
}

/// How a filter names a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reference {
    Name(String),
    Id(i32),
}

/// A column, or what a transform makes of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) reference: Reference,
    pub(super) transform: Option<Transform>,
}

/// What a filter asks of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Predicate {
    pub(super) op: Op,
    pub(super) term: Term,
    pub(super) values: Vec<Fragment>,
}

/// A filter that nobody has looked for the columns of.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(pub(super) Node);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Constant(bool),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Predicate(Box<Predicate>),
}

impl Expression {
    /// Reads a filter.
    ///
    /// # Errors
    /// `BadRequest` when it is none, asks for what nobody here knows, or goes beyond
    /// [`PREDICATES_MAX`] or [`VALUES_MAX`].
    pub fn parse(text: &Fragment) -> Result<Expression> {
        let mut reader = Reader { predicates: PREDICATES_MAX, values: VALUES_MAX };
        Ok(Expression(reader.node(text)?))
    }

    /// The filter that everything fulfils.
    #[must_use]
    pub const fn everything() -> Expression {
        Expression(Node::Constant(true))
    }
}

/// One side of a comparison.
enum Side {
    Term(Term),
    Value(Fragment),
}

/// Reads a filter, and counts what is in it. How deep it goes was seen to when its JSON was read.
struct Reader {
    predicates: usize,
    values: usize,
}

impl Reader {
    fn node(&mut self, text: &Fragment) -> Result<Node> {
        self.predicates = self
            .predicates
            .checked_sub(1)
            .ok_or_else(|| bad(format!("`filter` has more than {PREDICATES_MAX} predicates")))?;
        if let Some(is) = text.as_bool() {
            return Ok(Node::Constant(is));
        }
        if text.kind() != JsonKind::Object {
            return Err(bad(format!("`filter` has {} in place of a predicate", text.kind())));
        }
        let kind = member(text, "type")?;
        let kind = kind.as_str().ok_or_else(|| bad("the `type` of a predicate is a string"))?;
        let child = |name: &str| member(text, name);
        Ok(match &*kind {
            "true" => Node::Constant(true),
            "false" => Node::Constant(false),
            "and" | "or" => {
                let left = Box::new(self.node(&child("left")?)?);
                let right = Box::new(self.node(&child("right")?)?);
                if kind == "and" { Node::And(left, right) } else { Node::Or(left, right) }
            }
            "not" => Node::Not(Box::new(self.node(&child("child")?)?)),
            name => {
                let op = Op::of(name)
                    .ok_or_else(|| bad(format!("`{name:.40}` is no type of a predicate")))?;
                Node::Predicate(Box::new(self.predicate(op, text)?))
            }
        })
    }

    fn predicate(&mut self, op: Op, text: &Fragment) -> Result<Predicate> {
        if op.is_unary() || op.is_set() {
            let operand = match (text.get("child"), text.get("term")) {
                (Some(child), _) => side(&child)?,
                (None, Some(older)) => term(&older)?,
                (None, None) => return Err(bad(format!("`{}` has no `child`", op.name()))),
            };
            let Side::Term(term) = operand else {
                return Err(bad(format!("the `child` of `{}` is no field", op.name())));
            };
            let values = if op.is_set() { self.values(text)? } else { Vec::new() };
            return Ok(Predicate { op, term, values });
        }
        let (left, right) = match (text.get("left"), text.get("right")) {
            (Some(left), Some(right)) => (side(&left)?, side(&right)?),
            _ => (term(&member(text, "term")?)?, Side::Value(literal(&member(text, "value")?)?)),
        };
        self.count(1)?;
        let (op, term, value) = match (left, right) {
            (Side::Term(term), Side::Value(value)) => (Some(op), term, value),
            (Side::Value(value), Side::Term(term)) => (op.flipped(), term, value),
            _ => return Err(bad(format!("`{}` compares one field with one literal", op.name()))),
        };
        let op = op.ok_or_else(|| bad("what a text begins with is on the right"))?;
        Ok(Predicate { op, term, values: vec![value] })
    }

    fn values(&mut self, text: &Fragment) -> Result<Vec<Fragment>> {
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

/// A literal's value, however it is wrapped. Which type it says it has does not matter: it has to
/// be a value of the column's.
fn literal(text: &Fragment) -> Result<Fragment> {
    let value = match text.kind() {
        JsonKind::Object if kind_of(text).as_deref() == Some("literal") => member(text, "value")?,
        _ => text.clone(),
    };
    match value.kind() {
        JsonKind::Bool | JsonKind::Number | JsonKind::String => Ok(value),
        kind => Err(bad(format!("{kind} is no value that a field is compared with"))),
    }
}

/// The older form of a column: a name, or a transform of one. What has a type is of the newer form.
fn term(text: &Fragment) -> Result<Side> {
    match (text.as_str(), kind_of(text).as_deref()) {
        (Some(name), _) => {
            Ok(Side::Term(Term { reference: Reference::Name(name.into_owned()), transform: None }))
        }
        (None, Some("transform")) => {
            let transform = member(text, "transform")?;
            let transform = transform.as_str().unwrap_or_default().into_owned();
            of_transform(&transform, term(&member(text, "term")?)?).map(Side::Term)
        }
        _ => side(text),
    }
}

/// The newer form: a reference, a function of one, or a value.
fn side(text: &Fragment) -> Result<Side> {
    match (text.kind(), kind_of(text).as_deref()) {
        (JsonKind::Object, Some("reference")) => {
            let reference = match (text.get("id"), text.get("name")) {
                (Some(id), _) => {
                    let id = id.as_i32().ok_or_else(|| bad("the `id` of a field is a number"))?;
                    Reference::Id(id)
                }
                (None, name) => {
                    let name = name.as_ref().and_then(Fragment::as_str);
                    let name = name.ok_or_else(|| bad("a reference has an `id` or a `name`"))?;
                    Reference::Name(name.into_owned())
                }
            };
            Ok(Side::Term(Term { reference, transform: None }))
        }
        (JsonKind::Object, Some("apply")) => applied(text).map(Side::Term),
        (JsonKind::Object, Some("literal"))
        | (JsonKind::Bool | JsonKind::Number | JsonKind::String, _) => {
            literal(text).map(Side::Value)
        }
        (kind, _) => Err(bad(format!("{kind} is neither a field nor a literal"))),
    }
}

/// A function of a field: one of the transforms, with its width before the field if it has one.
fn applied(text: &Fragment) -> Result<Term> {
    let function = member(text, "function")?;
    let name = function.as_str().ok_or_else(|| bad("`function` is not one that is known here"))?;
    let arguments = member(text, "arguments")?;
    let arguments = arguments.items().map_err(|_| bad("`arguments` is a list"))?;
    let arguments: Vec<Fragment> = arguments.take(3).collect();
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

fn of_transform(name: &str, field: Side) -> Result<Term> {
    let transform = match Transform::parse(name)? {
        Transform::Other(_) | Transform::Void => {
            return Err(bad(format!("the function `{name:.40}` is not one that is known here")));
        }
        Transform::Identity => None,
        transform => Some(transform),
    };
    match field {
        Side::Term(Term { reference, transform: None }) => Ok(Term { reference, transform }),
        _ => Err(bad("a transform is made of a field")),
    }
}

fn kind_of(text: &Fragment) -> Option<String> {
    text.get("type").and_then(|kind| kind.as_str().map(std::borrow::Cow::into_owned))
}

fn member(text: &Fragment, name: &str) -> Result<Fragment> {
    text.get(name).ok_or_else(|| bad(format!("a part of `filter` has no `{name}`")))
}
