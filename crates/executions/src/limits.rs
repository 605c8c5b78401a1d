//! Limits: defaults for values that a request omits, and maxima that it may not exceed.

use std::time::Duration;

use api::LimitSpec;
use sandbox::ProgramLimits;

use crate::error::RequestRefusal;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Field of a [`LimitSpec`].
struct LimitField {
    name: &'static str,
    requested: fn(&LimitSpec) -> Option<u64>,
    put: fn(&mut LimitSpec, Option<u64>),
    set: fn(&mut ProgramLimits, u64),
    /// Minimum: below it, no program can start, or the kernel would interpret the value as "no
    /// limit".
    min: u64,
    run: LimitRange,
    compile: LimitRange,
}

/// Default and maximum of one field of one stage.
#[derive(Clone, Copy, Debug)]
struct LimitRange {
    default: u64,
    max: u64,
}

const fn range(default: u64, max: u64) -> LimitRange {
    LimitRange { default, max }
}

const CPU: usize = 0;
const WALL: usize = 1;
const MEMORY: usize = 2;

/// Every field, `cpu_ms`, `wall_ms` and `memory_bytes` first.
static FIELDS: [LimitField; 10] = [
    LimitField {
        name: "cpu_ms",
        requested: |spec| spec.cpu_ms,
        put: |spec, value| spec.cpu_ms = value,
        set: |limits, value| limits.cpu = Duration::from_millis(value),
        min: 1,
        run: range(10_000, 60_000),
        compile: range(30_000, 120_000),
    },
    LimitField {
        name: "wall_ms",
        requested: |spec| spec.wall_ms,
        put: |spec, value| spec.wall_ms = value,
        set: |limits, value| limits.wall = Duration::from_millis(value),
        min: 1,
        run: range(20_000, 300_000),
        compile: range(60_000, 300_000),
    },
    LimitField {
        name: "memory_bytes",
        requested: |spec| spec.memory_bytes,
        put: |spec, value| spec.memory_bytes = value,
        set: |limits, value| limits.memory_bytes = value,
        min: 4 * MIB,
        run: range(512 * MIB, 8 * GIB),
        compile: range(1536 * MIB, 8 * GIB),
    },
    LimitField {
        name: "processes",
        requested: |spec| spec.processes,
        put: |spec, value| spec.processes = value,
        set: |limits, value| limits.processes = value,
        min: 1,
        run: range(64, 1024),
        compile: range(128, 1024),
    },
    LimitField {
        name: "output_bytes",
        requested: |spec| spec.output_bytes,
        put: |spec, value| spec.output_bytes = value,
        set: |limits, value| limits.output_bytes = value,
        min: 1,
        run: range(64 * KIB, 16 * MIB),
        compile: range(64 * KIB, MIB),
    },
    LimitField {
        name: "open_files",
        requested: |spec| spec.open_files,
        put: |spec, value| spec.open_files = value,
        set: |limits, value| limits.open_files = value,
        min: 8, // the standard streams and what the dynamic loader opens
        run: range(256, 4096),
        compile: range(1024, 4096),
    },
    LimitField {
        name: "file_size_bytes",
        requested: |spec| spec.file_size_bytes,
        put: |spec, value| spec.file_size_bytes = value,
        set: |limits, value| limits.file_size_bytes = value,
        min: 1,
        run: range(64 * MIB, GIB),
        compile: range(512 * MIB, GIB),
    },
    LimitField {
        name: "disk_bytes",
        requested: |spec| spec.disk_bytes,
        put: |spec, value| spec.disk_bytes = value,
        set: |limits, value| limits.disk_bytes = value,
        min: 64 * KIB, // tmpfs counts in pages and takes 0 for no limit
        run: range(64 * MIB, 2 * GIB),
        compile: range(512 * MIB, 2 * GIB),
    },
    LimitField {
        name: "disk_inodes",
        requested: |spec| spec.disk_inodes,
        put: |spec, value| spec.disk_inodes = value,
        set: |limits, value| limits.disk_inodes = value,
        min: 32, // tmpfs takes 0 for no limit
        run: range(4096, 262_144),
        compile: range(16_384, 262_144),
    },
    LimitField {
        name: "stack_bytes",
        requested: |spec| spec.stack_bytes,
        put: |spec, value| spec.stack_bytes = value,
        set: |limits, value| limits.stack_bytes = value,
        min: 64 * KIB,
        run: range(8 * MIB, GIB),
        compile: range(64 * MIB, GIB), // compilers recurse as deep as the source nests
    },
];

/// Defaults and maxima of one stage, as configured.
#[derive(Clone, Debug)]
pub(crate) struct LimitRules {
    ranges: [LimitRange; FIELDS.len()],
}

/// Table of built-in limits that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitTable {
    Run,
    Compile,
}

impl LimitRules {
    /// Combines the configured values with the built-in ones. No memory limit exceeds the budget,
    /// which is the total available.
    pub(crate) fn new(
        kind: LimitTable,
        defaults: &LimitSpec,
        maxima: &LimitSpec,
        memory_budget_bytes: u64,
    ) -> Result<LimitRules, String> {
        let mut ranges = FIELDS.each_ref().map(|field| match kind {
            LimitTable::Run => field.run,
            LimitTable::Compile => field.compile,
        });
        let (defaults_name, maxima_name) = match kind {
            LimitTable::Run => ("limits", "limits_max"),
            LimitTable::Compile => ("compile_limits", "compile_limits_max"),
        };
        for (range, field) in ranges.iter_mut().zip(&FIELDS) {
            if let Some(max) = (field.requested)(maxima) {
                range.max = max;
            }
            if let Some(default) = (field.requested)(defaults) {
                if default > range.max {
                    return Err(format!(
                        "{defaults_name}.{0} is above {maxima_name}.{0}, {1}",
                        field.name, range.max
                    ));
                }
                range.default = default;
            }
            for (table, value) in [(maxima_name, range.max), (defaults_name, range.default)] {
                if value < field.min {
                    return Err(format!("{table}.{} is below {}", field.name, field.min));
                }
            }
        }
        ranges[MEMORY].max = ranges[MEMORY].max.min(memory_budget_bytes);
        if ranges[MEMORY].max < FIELDS[MEMORY].min {
            return Err(format!(
                "the memory budget of {memory_budget_bytes} bytes is too small to run anything"
            ));
        }
        for range in &mut ranges {
            range.default = range.default.min(range.max);
        }
        Ok(LimitRules { ranges })
    }

    /// Returns the defaults of a language with the maximum times.
    pub(crate) fn with_all_time(&self, language: &LimitSpec) -> LimitSpec {
        let [cpu, wall] = [CPU, WALL].map(|index| Some(self.ranges[index].max));
        LimitSpec { cpu_ms: cpu, wall_ms: wall, ..*language }
    }

    /// Clamps requested values and fills in the server's defaults; for faces whose callers do not
    /// know the maxima.
    pub(crate) fn capped(&self, requested: &LimitSpec) -> ProgramLimits {
        let mut limits = ProgramLimits::default();
        for (field, range) in FIELDS.iter().zip(&self.ranges) {
            let value = (field.requested)(requested).unwrap_or(range.default);
            (field.set)(&mut limits, value.clamp(field.min, range.max));
        }
        limits
    }

    /// Clamps requested values and keeps omitted ones omitted; for faces whose callers do not know
    /// the maxima, in requests to which the language's defaults apply.
    pub(crate) fn clamped(&self, requested: &LimitSpec) -> LimitSpec {
        let mut clamped = *requested;
        for (field, range) in FIELDS.iter().zip(&self.ranges) {
            let value = (field.requested)(requested).map(|value| value.clamp(field.min, range.max));
            (field.put)(&mut clamped, value);
        }
        clamped
    }

    /// Fills in values that `requested` omits, from the language's and then the server's defaults.
    /// `path` is the field of the request that contains `requested`.
    pub(crate) fn resolve(
        &self,
        path: &str,
        requested: &LimitSpec,
        language: &LimitSpec,
    ) -> Result<ProgramLimits, RequestRefusal> {
        let mut limits = ProgramLimits::default();
        let mut values = [0; FIELDS.len()];
        for ((value, field), range) in values.iter_mut().zip(&FIELDS).zip(&self.ranges) {
            let default = || (field.requested)(language).unwrap_or(range.default);
            *value = match (field.requested)(requested) {
                None => default().clamp(field.min, range.max),
                Some(requested) if requested < field.min => {
                    let message = format!("must be at least {}", field.min);
                    return Err(RequestRefusal::invalid(format!("{path}.{}", field.name), message));
                }
                Some(requested) if requested > range.max => {
                    let message = format!("must be at most {} on this server", range.max);
                    return Err(RequestRefusal::invalid(format!("{path}.{}", field.name), message));
                }
                Some(requested) => requested,
            };
        }
        // A caller that requests more CPU time than the default wall time allows intends to use it.
        if requested.wall_ms.is_none() {
            let room = values[CPU].saturating_mul(2).min(self.ranges[WALL].max);
            values[WALL] = values[WALL].max(room);
        }
        for (field, value) in FIELDS.iter().zip(values) {
            (field.set)(&mut limits, value);
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 2 * GIB;

    fn rules(kind: LimitTable) -> LimitRules {
        LimitRules::new(kind, &LimitSpec::default(), &LimitSpec::default(), BUDGET).unwrap()
    }

    fn field(index: usize, value: u64) -> LimitSpec {
        let json = format!("{{\"{}\": {value}}}", FIELDS[index].name);
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn the_run_defaults_are_the_engine_s() {
        let none = LimitSpec::default();
        assert_eq!(
            rules(LimitTable::Run).resolve("limits", &none, &none),
            Ok(ProgramLimits::default())
        );
    }

    #[test]
    fn every_field_is_refused_below_its_minimum_and_above_its_maximum() {
        for kind in [LimitTable::Run, LimitTable::Compile] {
            let rules = rules(kind);
            for (index, range) in rules.ranges.iter().enumerate() {
                let min = FIELDS[index].min;
                let resolve =
                    |value| rules.resolve("limits", &field(index, value), &LimitSpec::default());
                for value in [min, range.max] {
                    assert!(resolve(value).is_ok(), "{} {value}", FIELDS[index].name);
                }
                for (value, says) in [
                    (0, format!("must be at least {min}")),
                    (range.max + 1, format!("must be at most {}", range.max)),
                    (u64::MAX, format!("must be at most {}", range.max)),
                ] {
                    let refusal = resolve(value).unwrap_err();
                    assert_eq!(refusal.field, format!("limits.{}", FIELDS[index].name));
                    assert!(refusal.message.starts_with(&says), "{}", refusal.message);
                }
            }
        }
    }

    #[test]
    fn what_is_asked_is_brought_into_its_range_and_nothing_else_is_filled_in() {
        let rules = rules(LimitTable::Run);
        for (index, range) in rules.ranges.iter().enumerate() {
            let min = FIELDS[index].min;
            for (value, expected) in [(0, min), (min, min), (u64::MAX, range.max)] {
                let clamped = rules.clamped(&field(index, value));
                assert_eq!(clamped, field(index, expected), "{} {value}", FIELDS[index].name);
            }
        }
        assert_eq!(rules.clamped(&LimitSpec::default()), LimitSpec::default());
    }

    /// Renders the table of `docs/executions.md`.
    fn table() -> String {
        let size = |name: &str, value: u64| match value {
            _ if !name.ends_with("bytes") => value.to_string(),
            _ if value >= 2 * GIB || value == GIB => format!("{} GiB", value / GIB),
            _ if value >= MIB => format!("{} MiB", value / MIB),
            _ if value >= KIB => format!("{} KiB", value / KIB),
            _ => value.to_string(),
        };
        let row = |field: &LimitField| {
            let LimitField { name, min, run, compile, .. } = field;
            let [min, a, b, c, d] = [*min, run.default, run.max, compile.default, compile.max]
                .map(|value| size(name, value));
            format!("| `{name}` | {min} | {a} | {b} | {c} | {d} |\n")
        };
        FIELDS.iter().map(row).collect()
    }

    #[test]
    fn the_documented_limits_are_the_real_ones() {
        let page = include_str!("../../../docs/executions.md");
        assert!(page.contains(&table()), "docs/executions.md should have:\n{}", table());
    }

    #[test]
    fn each_field_sets_its_own_limit() {
        let none = LimitSpec::default();
        let default = rules(LimitTable::Run).resolve("limits", &none, &none).unwrap();
        let mut seen = Vec::new();
        for (index, LimitField { name, min, .. }) in FIELDS.iter().enumerate() {
            let requested = field(index, *min);
            let limits = rules(LimitTable::Run).resolve("limits", &requested, &none).unwrap();
            assert_ne!(limits, default, "{name}");
            assert!(!seen.contains(&limits), "{name}");
            seen.push(limits);
        }
    }

    #[test]
    fn no_default_exceeds_a_small_budget() {
        let none = LimitSpec::default();
        let rules = LimitRules::new(LimitTable::Compile, &none, &none, 256 * MIB).unwrap();
        let limits = rules.resolve("compile_limits", &none, &none).unwrap();
        assert_eq!(limits.memory_bytes, 256 * MIB);
        assert!(
            LimitRules::new(LimitTable::Run, &none, &none, MIB).unwrap_err().contains("budget")
        );
    }

    #[test]
    fn a_language_s_default_is_used_within_the_maximum() {
        let none = LimitSpec::default();
        let rules = rules(LimitTable::Run);
        let limits = rules.resolve("limits", &none, &field(CPU, 5)).unwrap();
        assert_eq!(limits.cpu, Duration::from_millis(5));
        let limits = rules.resolve("limits", &field(CPU, 7), &field(CPU, 5)).unwrap();
        assert_eq!(limits.cpu, Duration::from_millis(7));
        let limits = rules.resolve("limits", &none, &field(MEMORY, 99 * GIB)).unwrap();
        assert_eq!(limits.memory_bytes, BUDGET);
    }

    #[test]
    fn wall_time_makes_room_for_the_cpu_time_that_is_asked_for() {
        let none = LimitSpec::default();
        let rules = rules(LimitTable::Run);
        let limits = rules.resolve("limits", &field(CPU, 60_000), &none).unwrap();
        assert_eq!(limits.wall, Duration::from_secs(120));
        let requested = LimitSpec { wall_ms: Some(1000), ..field(CPU, 60_000) };
        let limits = rules.resolve("limits", &requested, &none).unwrap();
        assert_eq!(limits.wall, Duration::from_secs(1));
    }

    #[test]
    fn contradictory_configuration_is_refused() {
        let none = LimitSpec::default();
        let new = |defaults: &LimitSpec, maxima: &LimitSpec| {
            LimitRules::new(LimitTable::Run, defaults, maxima, BUDGET).unwrap_err()
        };
        assert!(
            new(&field(CPU, 90_000), &none).contains("limits.cpu_ms is above limits_max.cpu_ms")
        );
        assert!(new(&none, &field(CPU, 0)).contains("limits_max.cpu_ms is below 1"));
        assert!(new(&field(MEMORY, 1), &none).contains("limits.memory_bytes is below"));
        // A lower maximum also lowers the built-in default.
        let rules = LimitRules::new(LimitTable::Run, &none, &field(CPU, 5), BUDGET).unwrap();
        assert_eq!(rules.ranges[CPU].default, 5);
    }
}
