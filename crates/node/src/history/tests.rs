//! The ring against a list of everything that was recorded, under seeded steps of the wall clock,
//! gaps, idle times, series that appear and disappear, and restarts.

use std::collections::BTreeMap;

use api::HistoryUnit;

use super::*;
use crate::testing::SeededRandom;

static LEVEL: SeriesSpec = SeriesSpec {
    name: "level",
    unit: HistoryUnit::Count,
    label: Some("of"),
    fold: SeriesFold::Max,
};
static RATE: SeriesSpec = SeriesSpec {
    name: "rate",
    unit: HistoryUnit::PerSecond,
    label: Some("of"),
    fold: SeriesFold::Mean,
};

fn id(spec: &'static SeriesSpec, label: &str) -> SeriesId {
    SeriesId { spec, owner: None, label: label.into() }
}

fn sample(spec: &'static SeriesSpec, label: &str, value: f32) -> SeriesSample {
    SeriesSample { id: id(spec, label), value }
}

fn at(monotonic_s: u64, wall_s: u64) -> HistoryMoment {
    HistoryMoment { monotonic_ms: monotonic_s * 1000 + 500, wall_ms: wall_s * 1000 + 700 }
}

fn values(window: &HistoryWindow, spec: &'static SeriesSpec) -> Vec<Option<f32>> {
    let found = window.series.iter().find(|(found, _)| *found == id(spec, "a"));
    let values = &found.expect("the series").1;
    values.iter().map(|value| (!value.is_nan()).then_some(*value)).collect()
}

#[test]
fn steps_fold_slots_by_what_they_measure() {
    let mut ring = HistoryRing::default();
    for second in 0..20_u8 {
        let value = f32::from(second);
        let samples = vec![sample(&LEVEL, "a", value), sample(&RATE, "a", value)];
        ring.record(at(second.into(), 1_000_000 + u64::from(second)), samples);
    }
    let window = ring.window(at(19, 1_000_019), 20, 5, |_| true);
    assert_eq!(window.times_ms, [1_000_000_000, 1_000_005_000, 1_000_010_000, 1_000_015_000]);
    assert_eq!(values(&window, &LEVEL), [Some(4.0), Some(9.0), Some(14.0), Some(19.0)]);
    assert_eq!(values(&window, &RATE), [Some(2.0), Some(7.0), Some(12.0), Some(17.0)]);
    // Coarse slots fold their values, and steps fold these.
    let day = ring.window(at(19, 1_000_019), WINDOW_S_MAX, 600, |_| true);
    assert_eq!(day.times_ms.len(), 144);
    assert_eq!(values(&day, &LEVEL).last(), Some(&Some(19.0)));
    assert_eq!(values(&day, &RATE).last(), Some(&Some(9.5)));
}

#[test]
fn a_gap_is_a_gap_and_an_absent_series_is_dropped() {
    let mut ring = HistoryRing::default();
    ring.record(at(0, 1000), vec![sample(&LEVEL, "a", 1.0), sample(&LEVEL, "gone", 1.0)]);
    ring.record(at(3, 1003), vec![sample(&LEVEL, "a", 2.0)]);
    ring.record(at(4, 1004), vec![sample(&LEVEL, "a", f32::NAN)]);
    assert_eq!(ring.len(), 1);
    let window = ring.window(at(5, 1005), 7, 1, |_| true);
    assert_eq!(values(&window, &LEVEL), [None, Some(1.0), None, None, Some(2.0), None, None]);
}

#[test]
fn a_wall_clock_that_is_set_moves_all_that_was_recorded() {
    for shift in [-3600_i64, -10, 10, 86_400 * 400] {
        let mut ring = HistoryRing::default();
        for second in 0..10 {
            ring.record(at(second, 2_000_000 + second), vec![sample(&LEVEL, "a", 1.0)]);
        }
        let wall = |second: u64| (2_000_000 + second).saturating_add_signed(shift);
        for second in 10..20 {
            ring.record(at(second, wall(second)), vec![sample(&LEVEL, "a", 2.0)]);
        }
        let window = ring.window(at(19, wall(19)), 20, 1, |_| true);
        assert_eq!(window.times_ms.first(), Some(&(wall(0) * 1000)), "{shift}");
        let expected: Vec<_> = (0..20).map(|it| Some(if it < 10 { 1.0 } else { 2.0 })).collect();
        assert_eq!(values(&window, &LEVEL), expected, "{shift}");
    }
}

#[test]
fn series_beyond_the_limit_are_left_out_and_counted() {
    let mut ring = HistoryRing::default();
    let many = |count: usize| (0..count).map(|at| sample(&LEVEL, &at.to_string(), 1.0)).collect();
    ring.record(at(0, 1000), many(SERIES_MAX + 3));
    assert_eq!((ring.len(), ring.left_out()), (SERIES_MAX, 3));
    ring.record(at(1, 1001), many(5));
    assert_eq!((ring.len(), ring.left_out()), (5, 0));
}

#[test]
fn a_series_that_does_not_change_takes_next_to_nothing() {
    let mut ring = HistoryRing::default();
    for second in 0..2 * WINDOW_S_MAX {
        ring.record(at(second, 5_000_000 + second), vec![sample(&LEVEL, "a", 0.0)]);
    }
    let series = &ring.series[&id(&LEVEL, "a")];
    let held = series.fine.values_held() + series.coarse.values_held();
    assert!(held <= 180, "{held}");
    // A series that always changes is bounded.
    for second in 2 * WINDOW_S_MAX..4 * WINDOW_S_MAX {
        let value = f32::from(u16::try_from(second % 997).unwrap());
        ring.record(at(second, 5_000_000 + second), vec![sample(&LEVEL, "a", value)]);
    }
    let series = &ring.series[&id(&LEVEL, "a")];
    let held = (series.fine.values_held() + series.coarse.values_held()) as u64;
    assert!((FINE_SLOTS..FINE_SLOTS + COARSE_SLOTS + 240).contains(&held), "{held}");
}

/// A simulation's recordings: the value of each second, by the monotonic clock.
#[derive(Default)]
struct Model {
    seconds: BTreeMap<u64, f32>,
}

impl Model {
    /// Folds the expected content of a window by brute force.
    fn window(&self, ring: &HistoryRing, times_ms: &[u64], step_s: u64, is_fine: bool) -> Vec<f32> {
        let last = ring.last.unwrap_or(0);
        let label = |second: u64| second.saturating_add_signed(ring.offset_s);
        let expected = times_ms.iter().map(|time| {
            let start = time / 1000;
            let range = start..start + step_s;
            let first = start.saturating_add_signed(-ring.offset_s);
            let near = first.saturating_sub(COARSE_STEP_S)..first + step_s + COARSE_STEP_S;
            let values = self.seconds.range(near).filter(|(second, value)| {
                let place = match is_fine {
                    true => label(**second),
                    false => label(**second / COARSE_STEP_S * COARSE_STEP_S),
                };
                let oldest = match is_fine {
                    true => (last + 1).saturating_sub(FINE_SLOTS),
                    false => {
                        (last / COARSE_STEP_S + 1).saturating_sub(COARSE_SLOTS) * COARSE_STEP_S
                    }
                };
                range.contains(&place) && **second >= oldest && !value.is_nan()
            });
            values.map(|(_, value)| *value).fold(f32::NAN, f32::max)
        });
        expected.collect()
    }
}

#[test]
fn the_ring_has_what_was_recorded_whatever_the_clocks_do() {
    for seed in 1..=40 {
        let mut random = SeededRandom(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let mut ring = HistoryRing::default();
        let mut model = Model::default();
        let (mut monotonic, mut wall) = (random.below(5000), 1_700_000_000 + random.below(5000));
        for round in 0..300 {
            let seconds = match random.below(12) {
                // A server that was stopped for a while, or a laptop that was suspended.
                0 => 1 + random.below(2000),
                // A restart: nothing is left.
                1 if round % 7 == 0 => {
                    ring = HistoryRing::default();
                    model = Model::default();
                    monotonic = random.below(100);
                    1
                }
                // The wall clock is set.
                2 => {
                    wall = wall.saturating_add_signed(random.below(4000).cast_signed() - 2000);
                    1
                }
                _ => 1,
            };
            let is_idle = random.below(3) == 0;
            monotonic += seconds;
            wall += seconds;
            for _ in 0..random.below(400) {
                let value = match (is_idle, random.below(20)) {
                    (true, _) => 0.0,
                    (false, 0) => f32::NAN,
                    (false, other) => f32::from(u8::try_from(other).unwrap()),
                };
                ring.record(at(monotonic, wall), vec![sample(&LEVEL, "a", value)]);
                model.seconds.insert(monotonic, value);
                (monotonic, wall) = (monotonic + 1, wall + 1);
            }
            if ring.is_empty() || round % 10 != 0 {
                continue;
            }
            // A change of the wall clock since the last recording appears in the next one.
            for (window, step) in [(60, 1), (900, 5), (900, 60), (3600, 20), (WINDOW_S_MAX, 480)] {
                let found = ring.window(at(monotonic - 1, wall - 1), window, step, |_| true);
                let expected = model.window(&ring, &found.times_ms, step, window <= 900);
                let known = |values: &[f32]| {
                    values.iter().map(|it| (!it.is_nan()).then_some(*it)).collect::<Vec<_>>()
                };
                let found = &found.series[0].1;
                assert_eq!(known(found), known(&expected), "seed {seed} {window} {step}");
            }
        }
    }
}
