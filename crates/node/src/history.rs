//! Ring of measurements: each second of the last 15 minutes, and each ten seconds of the last 24
//! hours, of a bounded number of series. Pure: takes time as an argument, starts no task, reads no
//! counter. Never stored on a disk: a restart clears it.
//!
//! A second is a *slot*, counted by the monotonic clock, so that no step of the wall clock writes a
//! slot twice or leaves slots out. Displayed times are of the wall clock: the difference of the two
//! clocks is stored, and corrected for all slots alike when the wall clock was set.
//!
//! | file | what |
//! |---|---|
//! | `slots.rs` | values of one series at one resolution, where equal ones take no memory |
//! | `latency.rs` | histogram that many threads record in, and percentiles between two readings |

mod latency;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use self::latency::{LatencyCounts, LatencyHistogram, SharedCounter};
use self::slots::SlotRing;

/// Seconds of a slot of the fine resolution.
pub const FINE_STEP_S: u64 = 1;

/// Slots of the fine resolution: 15 minutes.
pub const FINE_SLOTS: u64 = 900;

/// Seconds of a slot of the coarse resolution.
pub const COARSE_STEP_S: u64 = 10;

/// Slots of the coarse resolution: 24 hours.
pub const COARSE_SLOTS: u64 = 8640;

/// Length of the history, in seconds.
pub const WINDOW_S_MAX: u64 = COARSE_STEP_S * COARSE_SLOTS;

/// Maximum number of series of a ring. One takes at most 40 KiB, and almost nothing while its value
/// stays the same.
pub const SERIES_MAX: usize = 1024;

/// Maximum number of values of one series in an answer.
pub const POINTS_MAX: u64 = 1000;

/// Seconds by which the wall clock may differ from its expected value before it counts as set.
const CLOCK_STEP_S: u64 = 2;

/// Folding of values of several slots into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesFold {
    /// Their mean: for rates.
    Mean,
    /// The greatest: for levels and high percentiles, whose peak matters.
    Max,
}

/// Specification of a series.
#[derive(Debug)]
pub struct SeriesSpec {
    /// Unique name.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: api::HistoryUnit,
    /// Name of its label; none for a series without a label.
    pub label: Option<&'static str>,
    /// Folding of values of several slots into one.
    pub fold: SeriesFold,
}

/// Identity of a series.
#[derive(Clone, Debug)]
pub struct SeriesId {
    /// Specification of the series.
    pub spec: &'static SeriesSpec,
    /// Tenant whose own figures these are; none for those of the whole server.
    pub owner: Option<Arc<str>>,
    /// Value of its label; empty for a series without a label.
    pub label: Arc<str>,
}

impl PartialEq for SeriesId {
    fn eq(&self, other: &SeriesId) -> bool {
        (self.spec.name, &self.owner, &self.label) == (other.spec.name, &other.owner, &other.label)
    }
}

impl Eq for SeriesId {}

impl Hash for SeriesId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.spec.name, &self.owner, &self.label).hash(state);
    }
}

/// Moment, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryMoment {
    /// Milliseconds of the monotonic clock, from any beginning.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970.
    pub wall_ms: u64,
}

impl HistoryMoment {
    fn slot(self) -> u64 {
        self.monotonic_ms / (1000 * FINE_STEP_S)
    }
}

/// Value of a series at a moment; NaN if there is none.
#[derive(Clone, Debug)]
pub struct SeriesSample {
    /// Id of the series.
    pub id: SeriesId,
    /// Value, in the unit of the series.
    pub value: f32,
}

/// Requested part of a ring.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryWindow {
    /// Start of each step, in milliseconds since 1970: multiples of the step.
    pub times_ms: Vec<u64>,
    /// Series, by name and label, with a value for each time; NaN for a gap.
    pub series: Vec<(SeriesId, Vec<f32>)>,
}

/// A series at both resolutions.
#[derive(Debug)]
struct RecordedSeries {
    fine: SlotRing,
    coarse: SlotRing,
    /// Accumulated value of the current coarse slot.
    filling: FoldedValue,
    coarse_slot: u64,
    /// Number of the latest recording that contained it.
    seen: u64,
}

/// Values that are folded into one.
#[derive(Clone, Copy, Debug)]
struct FoldedValue {
    sum: f64,
    max: f32,
    count: u32,
}

impl FoldedValue {
    const NONE: FoldedValue = FoldedValue { sum: 0.0, max: f32::NEG_INFINITY, count: 0 };

    fn add(&mut self, value: f32) {
        if !value.is_nan() {
            self.sum += f64::from(value);
            self.max = self.max.max(value);
            self.count += 1;
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "values are kept in single precision")]
    fn value(self, fold: SeriesFold) -> f32 {
        match (self.count, fold) {
            (0, _) => f32::NAN,
            (count, SeriesFold::Mean) => (self.sum / f64::from(count)) as f32,
            (_, SeriesFold::Max) => self.max,
        }
    }
}

/// The ring. One owner records, readers take parts of it.
#[derive(Debug, Default)]
pub struct HistoryRing {
    series: HashMap<SeriesId, RecordedSeries>,
    /// Last recorded slot.
    last: Option<u64>,
    /// Seconds since 1970 of slot 0, by the wall clock as it is now.
    offset_s: i64,
    recordings: u64,
    left_out: usize,
}

impl HistoryRing {
    /// Records the values of all present series. Other series are dropped, because their subjects
    /// no longer exist. New ones beyond [`SERIES_MAX`] are left out. A second recording within a
    /// slot replaces the values of the first.
    pub fn record(&mut self, moment: HistoryMoment, samples: Vec<SeriesSample>) {
        let slot = moment.slot();
        if self.last.is_some_and(|last| slot < last) {
            // A monotonic clock never steps back.
            return;
        }
        self.follow_wall_clock(slot, moment.wall_ms / 1000);
        let is_again = self.last == Some(slot);
        self.last = Some(slot);
        self.recordings += 1;
        self.left_out = 0;
        for SeriesSample { id, value } in samples {
            let fold = id.spec.fold;
            let has_room = self.series.len() < SERIES_MAX;
            let series = match self.series.get_mut(&id) {
                Some(series) => series,
                None if has_room => self.series.entry(id).or_insert_with(RecordedSeries::new),
                None => {
                    self.left_out += 1;
                    continue;
                }
            };
            series.seen = self.recordings;
            series.record(slot, value, fold, is_again);
        }
        let current = self.recordings;
        self.series.retain(|_, series| series.seen == current);
    }

    /// Number of series that the latest recording left out.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Number of series.
    #[must_use]
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Returns whether nothing was recorded yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Returns the latest `window_s` in steps of `step_s`, of the series that `is_wanted` accepts;
    /// the last step is unfinished. At most [`POINTS_MAX`] steps.
    #[must_use]
    pub fn window(
        &self,
        now: HistoryMoment,
        window_s: u64,
        step_s: u64,
        is_wanted: impl Fn(&SeriesId) -> bool,
    ) -> HistoryWindow {
        let window_s = window_s.clamp(1, WINDOW_S_MAX);
        let is_fine = window_s <= FINE_SLOTS * FINE_STEP_S;
        let step_s = step_s.max(if is_fine { FINE_STEP_S } else { COARSE_STEP_S });
        let count = window_s.div_ceil(step_s).clamp(1, POINTS_MAX);
        // By the clock of the slots: the last recording is in the last step.
        let now_s = now.slot().saturating_add_signed(self.offset_s);
        let end = (now_s / step_s).saturating_add(1) * step_s;
        let start = end.saturating_sub(count * step_s);
        let steps = Steps { start, step_s, count, offset_s: self.offset_s };
        let wanted = self.series.iter().filter(|(id, _)| is_wanted(id));
        let mut series: Vec<_> = wanted
            .map(|(id, series)| {
                let (ring, slot_s) = match is_fine {
                    true => (&series.fine, FINE_STEP_S),
                    false => (&series.coarse, COARSE_STEP_S),
                };
                (id.clone(), steps.folded(ring, slot_s, id.spec.fold))
            })
            .collect();
        series.sort_by(|(one, _), (other, _)| {
            (one.spec.name, &one.label).cmp(&(other.spec.name, &other.label))
        });
        let times_ms = (0..count).map(|at| (start + at * step_s) * 1000).collect();
        HistoryWindow { times_ms, series }
    }

    /// Adopts the wall clock's time if it was set.
    fn follow_wall_clock(&mut self, slot: u64, wall_s: u64) {
        let expected = slot.saturating_add_signed(self.offset_s);
        if self.last.is_none() || expected.abs_diff(wall_s) > CLOCK_STEP_S {
            self.offset_s = wall_s.wrapping_sub(slot).cast_signed();
        }
    }
}

impl RecordedSeries {
    fn new() -> RecordedSeries {
        RecordedSeries {
            fine: SlotRing::new(FINE_SLOTS),
            coarse: SlotRing::new(COARSE_SLOTS),
            filling: FoldedValue::NONE,
            coarse_slot: 0,
            seen: 0,
        }
    }

    fn record(&mut self, slot: u64, value: f32, fold: SeriesFold, is_again: bool) {
        self.fine.set(slot, value);
        let coarse_slot = slot * FINE_STEP_S / COARSE_STEP_S;
        if coarse_slot != self.coarse_slot {
            self.coarse_slot = coarse_slot;
            self.filling = FoldedValue::NONE;
        }
        // Of two recordings in one second, the coarse slot contains the first.
        if !is_again || self.filling.count == 0 {
            self.filling.add(value);
        }
        self.coarse.set(coarse_slot, self.filling.value(fold));
    }
}

/// Steps of an answer, in seconds since 1970.
struct Steps {
    start: u64,
    step_s: u64,
    count: u64,
    offset_s: i64,
}

impl Steps {
    /// Folds slots of `slot_s` seconds into steps.
    fn folded(&self, ring: &SlotRing, slot_s: u64, fold: SeriesFold) -> Vec<f32> {
        let length = usize::try_from(self.count).unwrap_or(0);
        let mut steps = vec![FoldedValue::NONE; length];
        ring.each(|slot, value| {
            let at = (slot * slot_s).saturating_add_signed(self.offset_s);
            let Some(since) = at.checked_sub(self.start) else { return };
            let step = usize::try_from(since / self.step_s).unwrap_or(usize::MAX);
            if let Some(step) = steps.get_mut(step) {
                step.add(value);
            }
        });
        steps.into_iter().map(|step| step.value(fold)).collect()
    }
}
