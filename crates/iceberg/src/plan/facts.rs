//! Facts about values, and what follows from it for a predicate about them.
//!
//! Everything a file or a partition is pruned by goes through [`ValueFacts::judge`]: bounds of a
//! column's values, what a partition's value says of the column it was made of (its inverse image
//! under the transform), and what a manifest list says of all partitions of a manifest.

use std::cmp::Ordering;

use super::expression::PredicateOperator;
use super::transform::bucket_of;
use super::value::PlanValue;

/// Values of one predicate that are looked at one by one. More are only compared as a range.
const VALUES_LOOKED_AT_MAX: usize = 200;

/// Result of a predicate for a set of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PredicateVerdict {
    /// False for each.
    Never,
    /// True for each.
    Always,
    /// Unknown.
    Maybe,
}

/// The end of a range upwards.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum UpperBound {
    /// No value is more.
    Value(PlanValue),
    /// No value is more than all texts or bytes that begin like this.
    Prefix(PlanValue),
}

/// Facts about a set of values.
#[derive(Clone, Debug)]
pub(super) struct ValueFacts {
    /// True if there may be nulls, values that are no numbers, and others.
    pub(super) null: bool,
    pub(super) nan: bool,
    pub(super) value: bool,
    /// No value is less. Neither null nor NaN are compared.
    pub(super) lower: Option<PlanValue>,
    pub(super) upper: Option<UpperBound>,
    /// There is one value at most, and it is both bounds.
    pub(super) exact: bool,
    /// All values are in buckets from one to another, of so many.
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

    /// All values are this one.
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

    /// Drops bounds that contradict each other: some writers compared UUIDs as signed numbers. Zero
    /// has two signs, which filters do not tell apart.
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

    /// Returns what a predicate is for all of the values. `literals` are in order.
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
                    // Nulls and what is no number are other than every value.
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

    /// Judges a predicate that neither nulls nor NaN fulfil.
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
        // One value, and one of those: it is that one.
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

/// Returns whether one text, or bytes, begin with another.
pub(super) fn begins(value: &PlanValue, with: &PlanValue) -> bool {
    match (value, with) {
        (PlanValue::Text(text), PlanValue::Text(with)) => text.starts_with(&**with),
        (PlanValue::Bytes(bytes), PlanValue::Bytes(with)) => bytes.starts_with(with),
        _ => false,
    }
}
