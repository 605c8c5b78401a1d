//! Facts about values, and their implications for a predicate.
//!
//! All pruning of files and partitions uses [`ValueFacts::judge`]: for bounds of a column's values,
//! for the source values of a partition value (its inverse image under the transform), and for a
//! manifest list's summary of a manifest's partitions.

use std::cmp::Ordering;

use super::expression::PredicateOperator;
use super::transform::bucket_of;
use super::value::PlanValue;

/// Most literals of one predicate that are compared one by one. More are only compared as a range.
const VALUES_LOOKED_AT_MAX: usize = 200;

/// Value of a predicate over a set of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PredicateVerdict {
    /// False for each row.
    Never,
    /// True for each row.
    Always,
    /// Unknown.
    Maybe,
}

/// The upper bound of a range.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum UpperBound {
    /// No value is greater.
    Value(PlanValue),
    /// No value is greater than all texts or bytes with this prefix.
    Prefix(PlanValue),
}

/// Facts about a set of values.
#[derive(Clone, Debug)]
pub(super) struct ValueFacts {
    /// True if there may be nulls, NaNs, and other values.
    pub(super) null: bool,
    pub(super) nan: bool,
    pub(super) value: bool,
    /// No value is less. Nulls and NaN are not compared.
    pub(super) lower: Option<PlanValue>,
    pub(super) upper: Option<UpperBound>,
    /// All values are equal, and both bounds are that value.
    pub(super) exact: bool,
    /// Number of buckets, and the first and last bucket that values are in.
    pub(super) buckets: Option<(u32, i64, i64)>,
}

impl ValueFacts {
    /// Returns no facts.
    pub(super) const fn none() -> ValueFacts {
        ValueFacts {
            null: true,
            nan: true,
            value: true,
            lower: None,
            upper: None,
            exact: false,
            buckets: None,
        }
    }

    /// Facts for a set in which all values are this one.
    pub(super) fn exactly(value: Option<PlanValue>) -> ValueFacts {
        let mut facts = ValueFacts { null: false, nan: false, value: false, ..ValueFacts::none() };
        match value {
            None => facts.null = true,
            Some(value) if value.is_nan() => facts.nan = true,
            Some(value) => {
                facts.value = true;
                facts.exact = true;
                facts.lower = Some(value.clone());
                facts.upper = Some(UpperBound::Value(value));
            }
        }
        facts.settled()
    }

    /// Drops contradictory bounds: some writers compared UUIDs as signed numbers. Zero has two
    /// signs, which filters do not distinguish.
    pub(super) fn settled(mut self) -> ValueFacts {
        if self.lower.as_ref().is_some_and(PlanValue::is_nan) {
            self.lower = None;
        }
        if matches!(&self.upper, Some(UpperBound::Value(value)) if value.is_nan()) {
            self.upper = None;
        }
        if let Some(PlanValue::Float(number)) = &mut self.lower
            && *number == 0.0
        {
            (*number, self.exact) = (-0.0, false);
        }
        if let Some(UpperBound::Value(PlanValue::Float(number))) = &mut self.upper
            && *number == 0.0
        {
            (*number, self.exact) = (0.0, false);
        }
        if let (Some(lower), Some(UpperBound::Value(upper))) = (&self.lower, &self.upper)
            && !matches!(lower.order(upper), Some(Ordering::Less | Ordering::Equal))
        {
            (self.lower, self.upper, self.exact) = (None, None, false);
        }
        self
    }

    /// Evaluates a predicate for all of the values. `literals` are sorted.
    pub(super) fn judge(&self, op: PredicateOperator, literals: &[PlanValue]) -> PredicateVerdict {
        let is_some = |never: bool, always: bool| match (never, always) {
            (true, _) => PredicateVerdict::Never,
            (_, true) => PredicateVerdict::Always,
            _ => PredicateVerdict::Maybe,
        };
        match op {
            PredicateOperator::IsNull => is_some(!self.null, !self.nan && !self.value),
            PredicateOperator::NotNull => is_some(!self.nan && !self.value, !self.null),
            PredicateOperator::IsNan => is_some(!self.nan, !self.null && !self.value),
            PredicateOperator::NotNan => is_some(!self.null && !self.value, !self.nan),
            PredicateOperator::NotEq | PredicateOperator::NotIn => {
                match self.judge_value(PredicateOperator::In, literals) {
                    // Nulls and NaNs are unequal to every value.
                    PredicateVerdict::Never => PredicateVerdict::Always,
                    PredicateVerdict::Always if self.exact => PredicateVerdict::Never,
                    _ => PredicateVerdict::Maybe,
                }
            }
            PredicateOperator::NotStartsWith => {
                match self.judge_value(PredicateOperator::StartsWith, literals) {
                    PredicateVerdict::Never => PredicateVerdict::Always,
                    PredicateVerdict::Always => PredicateVerdict::Never,
                    PredicateVerdict::Maybe => PredicateVerdict::Maybe,
                }
            }
            PredicateOperator::Eq => self.judge_value(PredicateOperator::In, literals),
            _ => self.judge_value(op, literals),
        }
    }

    /// Evaluates a predicate that is false for nulls and NaN.
    fn judge_value(&self, op: PredicateOperator, literals: &[PlanValue]) -> PredicateVerdict {
        if !self.value {
            return PredicateVerdict::Never;
        }
        let verdict = match op {
            PredicateOperator::In => self.judge_in(literals),
            _ => literals
                .first()
                .map_or(PredicateVerdict::Maybe, |literal| self.judge_one(op, literal)),
        };
        match verdict {
            PredicateVerdict::Always if self.null || self.nan => PredicateVerdict::Maybe,
            verdict => verdict,
        }
    }

    fn judge_one(&self, op: PredicateOperator, literal: &PlanValue) -> PredicateVerdict {
        let (lower, upper) = (self.lower_order(literal), self.upper_order(literal));
        use Ordering::{Equal, Greater, Less};
        let (never, always) = match op {
            PredicateOperator::Lt => (matches!(lower, Some(Equal | Greater)), upper == Some(Less)),
            PredicateOperator::LtEq => {
                (lower == Some(Greater), matches!(upper, Some(Less | Equal)))
            }
            PredicateOperator::Gt => (matches!(upper, Some(Equal | Less)), lower == Some(Greater)),
            PredicateOperator::GtEq => {
                (upper == Some(Less), matches!(lower, Some(Equal | Greater)))
            }
            PredicateOperator::StartsWith => {
                let begins =
                    |value: Option<&PlanValue>| value.is_some_and(|it| begins(it, literal));
                let upper_value = self.upper.as_ref().map(|it| match it {
                    UpperBound::Value(value) | UpperBound::Prefix(value) => value,
                });
                let is_above = lower == Some(Greater) && !begins(self.lower.as_ref());
                let is_within = begins(self.lower.as_ref()) && begins(upper_value);
                (is_above || upper == Some(Less), is_within)
            }
            _ => (false, false),
        };
        match (never, always) {
            (true, _) => PredicateVerdict::Never,
            (_, true) => PredicateVerdict::Always,
            _ => PredicateVerdict::Maybe,
        }
    }

    fn judge_in(&self, literals: &[PlanValue]) -> PredicateVerdict {
        let from = literals.partition_point(|it| self.lower_order(it) == Some(Ordering::Greater));
        let to = literals.partition_point(|it| self.upper_order(it) != Some(Ordering::Less));
        let Some(within) = literals.get(from..to).filter(|it| !it.is_empty()) else {
            return PredicateVerdict::Never;
        };
        if let Some((count, first, last)) = self.buckets
            && within.len() <= VALUES_LOOKED_AT_MAX
        {
            let is_in = |value: &PlanValue| {
                bucket_of(value, count).is_none_or(|it| (first..=last).contains(&it))
            };
            if !within.iter().any(is_in) {
                return PredicateVerdict::Never;
            }
        }
        let bounds = (&self.lower, &self.upper);
        let is_one = matches!(bounds, (Some(lower), Some(UpperBound::Value(upper)))
            if lower.order(upper) == Some(Ordering::Equal));
        // There is a single value, and it equals a literal.
        if is_one { PredicateVerdict::Always } else { PredicateVerdict::Maybe }
    }

    fn lower_order(&self, literal: &PlanValue) -> Option<Ordering> {
        self.lower.as_ref()?.order(literal)
    }

    fn upper_order(&self, literal: &PlanValue) -> Option<Ordering> {
        match self.upper.as_ref()? {
            UpperBound::Value(value) => value.order(literal),
            UpperBound::Prefix(prefix) if begins(literal, prefix) => Some(Ordering::Greater),
            UpperBound::Prefix(prefix) => prefix.order(literal),
        }
    }
}

/// Returns whether a text or byte string begins with another.
pub(super) fn begins(value: &PlanValue, with: &PlanValue) -> bool {
    match (value, with) {
        (PlanValue::Text(text), PlanValue::Text(with)) => text.starts_with(&**with),
        (PlanValue::Bytes(bytes), PlanValue::Bytes(with)) => bytes.starts_with(with),
        _ => false,
    }
}
