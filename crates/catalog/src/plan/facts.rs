//! What is known of some values, and what follows from it for a predicate about them.
//!
//! Everything a file or a partition is pruned by goes through [`Facts::judge`]: bounds of a
//! column's values, what a partition's value says of the column it was made of (its inverse image
//! under the transform), and what a manifest list says of all partitions of a manifest.

use std::cmp::Ordering;

use super::expression::Op;
use super::transform::bucket_of;
use super::value::Value;

/// Values of one predicate that are looked at one by one. More are only compared as a range.
const VALUES_LOOKED_AT_MAX: usize = 200;

/// What a predicate is for all rows of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// False for each.
    Never,
    /// True for each.
    Always,
    /// Nobody knows.
    Maybe,
}

/// The end of a range upwards.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Upper {
    /// No value is more.
    Value(Value),
    /// No value is more than all texts or bytes that begin like this.
    Prefix(Value),
}

/// What is known of values.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Whether there may be nulls, values that are no numbers, and others.
    pub(super) null: bool,
    pub(super) nan: bool,
    pub(super) value: bool,
    /// No value is less. Neither null nor NaN are compared.
    pub(super) lower: Option<Value>,
    pub(super) upper: Option<Upper>,
    /// There is one value at most, and it is both bounds.
    pub(super) exact: bool,
    /// All values are in buckets from one to another, of so many.
    pub(super) buckets: Option<(u32, i64, i64)>,
}

impl Facts {
    /// Nothing is known.
    pub(super) const fn none() -> Facts {
        Facts {
            null: true,
            nan: true,
            value: true,
            lower: None,
            upper: None,
            exact: false,
            buckets: None,
        }
    }

    /// All values are this one.
    pub(super) fn exactly(value: Option<Value>) -> Facts {
        let mut facts = Facts { null: false, nan: false, value: false, ..Facts::none() };
        match value {
            None => facts.null = true,
            Some(value) if value.is_nan() => facts.nan = true,
            Some(value) => {
                facts.value = true;
                facts.exact = true;
                facts.lower = Some(value.clone());
                facts.upper = Some(Upper::Value(value));
            }
        }
        facts.settled()
    }

    /// The same, where bounds that contradict each other are none: some writers compared UUIDs as
    /// signed numbers. Zero has two signs, which filters do not tell apart.
    pub(super) fn settled(mut self) -> Facts {
        if self.lower.as_ref().is_some_and(Value::is_nan) {
            self.lower = None;
        }
        if matches!(&self.upper, Some(Upper::Value(value)) if value.is_nan()) {
            self.upper = None;
        }
        if let Some(Value::Float(number)) = &mut self.lower
            && *number == 0.0
        {
            (*number, self.exact) = (-0.0, false);
        }
        if let Some(Upper::Value(Value::Float(number))) = &mut self.upper
            && *number == 0.0
        {
            (*number, self.exact) = (0.0, false);
        }
        if let (Some(lower), Some(Upper::Value(upper))) = (&self.lower, &self.upper)
            && !matches!(lower.order(upper), Some(Ordering::Less | Ordering::Equal))
        {
            (self.lower, self.upper, self.exact) = (None, None, false);
        }
        self
    }

    /// What a predicate is for all of the values. `literals` are in order.
    pub(super) fn judge(&self, op: Op, literals: &[Value]) -> Verdict {
        let is_some = |never: bool, always: bool| match (never, always) {
            (true, _) => Verdict::Never,
            (_, true) => Verdict::Always,
            _ => Verdict::Maybe,
        };
        match op {
            Op::IsNull => is_some(!self.null, !self.nan && !self.value),
            Op::NotNull => is_some(!self.nan && !self.value, !self.null),
            Op::IsNan => is_some(!self.nan, !self.null && !self.value),
            Op::NotNan => is_some(!self.null && !self.value, !self.nan),
            Op::NotEq | Op::NotIn => match self.judge_value(Op::In, literals) {
                // Nulls and what is no number are other than every value.
                Verdict::Never => Verdict::Always,
                Verdict::Always if self.exact => Verdict::Never,
                _ => Verdict::Maybe,
            },
            Op::NotStartsWith => match self.judge_value(Op::StartsWith, literals) {
                Verdict::Never => Verdict::Always,
                Verdict::Always => Verdict::Never,
                Verdict::Maybe => Verdict::Maybe,
            },
            Op::Eq => self.judge_value(Op::In, literals),
            _ => self.judge_value(op, literals),
        }
    }

    /// Of a predicate that neither nulls nor NaN fulfil.
    fn judge_value(&self, op: Op, literals: &[Value]) -> Verdict {
        if !self.value {
            return Verdict::Never;
        }
        let verdict = match op {
            Op::In => self.judge_in(literals),
            _ => literals.first().map_or(Verdict::Maybe, |literal| self.judge_one(op, literal)),
        };
        match verdict {
            Verdict::Always if self.null || self.nan => Verdict::Maybe,
            verdict => verdict,
        }
    }

    fn judge_one(&self, op: Op, literal: &Value) -> Verdict {
        let (lower, upper) = (self.lower_order(literal), self.upper_order(literal));
        use Ordering::{Equal, Greater, Less};
        let (never, always) = match op {
            Op::Lt => (matches!(lower, Some(Equal | Greater)), upper == Some(Less)),
            Op::LtEq => (lower == Some(Greater), matches!(upper, Some(Less | Equal))),
            Op::Gt => (matches!(upper, Some(Equal | Less)), lower == Some(Greater)),
            Op::GtEq => (upper == Some(Less), matches!(lower, Some(Equal | Greater))),
            Op::StartsWith => {
                let begins = |value: Option<&Value>| value.is_some_and(|it| begins(it, literal));
                let upper_value = self.upper.as_ref().map(|it| match it {
                    Upper::Value(value) | Upper::Prefix(value) => value,
                });
                let is_above = lower == Some(Greater) && !begins(self.lower.as_ref());
                let is_within = begins(self.lower.as_ref()) && begins(upper_value);
                (is_above || upper == Some(Less), is_within)
            }
            _ => (false, false),
        };
        match (never, always) {
            (true, _) => Verdict::Never,
            (_, true) => Verdict::Always,
            _ => Verdict::Maybe,
        }
    }

    fn judge_in(&self, literals: &[Value]) -> Verdict {
        let from = literals.partition_point(|it| self.lower_order(it) == Some(Ordering::Greater));
        let to = literals.partition_point(|it| self.upper_order(it) != Some(Ordering::Less));
        let Some(within) = literals.get(from..to).filter(|it| !it.is_empty()) else {
            return Verdict::Never;
        };
        if let Some((count, first, last)) = self.buckets
            && within.len() <= VALUES_LOOKED_AT_MAX
        {
            let is_in = |value: &Value| {
                bucket_of(value, count).is_none_or(|it| (first..=last).contains(&it))
            };
            if !within.iter().any(is_in) {
                return Verdict::Never;
            }
        }
        let is_one = matches!((&self.lower, &self.upper), (Some(lower), Some(Upper::Value(upper)))
            if lower.order(upper) == Some(Ordering::Equal));
        // One value, and one of those: it is that one.
        if is_one { Verdict::Always } else { Verdict::Maybe }
    }

    fn lower_order(&self, literal: &Value) -> Option<Ordering> {
        self.lower.as_ref()?.order(literal)
    }

    fn upper_order(&self, literal: &Value) -> Option<Ordering> {
        match self.upper.as_ref()? {
            Upper::Value(value) => value.order(literal),
            Upper::Prefix(prefix) if begins(literal, prefix) => Some(Ordering::Greater),
            Upper::Prefix(prefix) => prefix.order(literal),
        }
    }
}

/// Whether one text, or bytes, begin with another.
pub(super) fn begins(value: &Value, with: &Value) -> bool {
    match (value, with) {
        (Value::Text(text), Value::Text(with)) => text.starts_with(&**with),
        (Value::Bytes(bytes), Value::Bytes(with)) => bytes.starts_with(with),
        _ => false,
    }
}
