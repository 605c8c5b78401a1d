//! CPU time used by the machine without this program.
//!
//! A rival's work is spread over short-lived processes, some of them not its children, and over
//! kernel threads that tear down its namespaces and cgroups after it has answered. Only the machine
//! as a whole accounts for all of it: time in which its CPUs were neither idle nor taken away by
//! the host, minus the time of this program. Other work on the machine counts, too.

use std::time::{Duration, Instant};

/// A reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    at: Instant,
    cpus: u32,
    idle: Duration,
    stolen: Duration,
    own: Duration,
}

/// Usage between two readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// CPU time of all other processes and the kernel.
    pub(crate) others: Duration,
    /// CPU time of this program.
    pub(crate) own: Duration,
    /// Time that the host gave to other machines.
    pub(crate) stolen: Duration,
}

/// `/proc` counts in hundredths of a second on every architecture (USER_HZ).
fn ticks(n: u64) -> Duration {
    Duration::from_millis(n * 10)
}

impl Reading {
    /// Takes a reading.
    pub(crate) fn now() -> Result<Reading, String> {
        let read =
            |path: &str| std::fs::read_to_string(path).map_err(|e| format!("read {path}: {e}"));
        let (cpus, idle, stolen) =
            parse_machine(&read("/proc/stat")?).ok_or("understand /proc/stat")?;
        let own = parse_own(&read("/proc/self/stat")?).ok_or("understand /proc/self/stat")?;
        Ok(Reading { at: Instant::now(), cpus, idle, stolen, own })
    }

    /// Returns the usage since `earlier`.
    pub(crate) fn since(&self, earlier: &Reading) -> Usage {
        // The kernel measures idle time but only samples the other kinds: busy is the time without
        // idle.
        let all = (self.at - earlier.at) * self.cpus;
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        let own = self.own.saturating_sub(earlier.own);
        let idle = self.idle.saturating_sub(earlier.idle);
        Usage {
            others: all.saturating_sub(idle).saturating_sub(stolen).saturating_sub(own),
            own,
            stolen,
        }
    }
}

/// Returns the number of CPUs, their idle time (including waits for I/O) and their stolen time.
fn parse_machine(stat: &str) -> Option<(u32, Duration, Duration)> {
    let mut lines = stat.lines();
    let fields: Vec<u64> = lines
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|f| f.parse().ok())
        .collect();
    let cpus = lines.take_while(|line| line.starts_with("cpu")).count();
    // user nice system idle iowait irq softirq steal: proc_stat(5).
    let [_, _, _, idle, iowait, _, _, stolen, ..] = fields[..] else { return None };
    Some((u32::try_from(cpus).ok()?, ticks(idle + iowait), ticks(stolen)))
}

/// Returns this program's own user and system time.
fn parse_own(stat: &str) -> Option<Duration> {
    // The name in parentheses may contain spaces; fields are counted after it. utime is the 14th of
    // all, so the 12th of these: proc_pid_stat(5).
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(ticks(user + system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_stolen_time_of_the_machine_are_found() {
        let stat = "cpu  10 1 20 300 40 5 6 7 0 0\ncpu0 5 0 10 150 20 2 3 3 0 0\n\
                    cpu1 5 1 10 150 20 3 3 4 0 0\nintr 1 2 3\n";
        assert_eq!(
            parse_machine(stat),
            Some((2, Duration::from_millis(3400), Duration::from_millis(70)))
        );
        assert_eq!(parse_machine("cpu  1 2 3\n"), None);
    }

    #[test]
    fn own_time_is_found_behind_a_strange_name() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 70 30 0 0 20 0 1 0 5 0 0";
        assert_eq!(parse_own(stat), Some(Duration::from_millis(1000)));
    }

    #[test]
    fn a_busy_program_uses_no_time_of_others() {
        let at = Instant::now();
        let reading = |seconds: u64, idle: u64, own: u64| Reading {
            at: at + Duration::from_secs(seconds),
            cpus: 2,
            idle: Duration::from_secs(idle),
            stolen: Duration::ZERO,
            own: Duration::from_secs(own),
        };
        let usage = reading(10, 12, 3).since(&reading(0, 0, 0));
        assert_eq!(usage.others, Duration::from_secs(5));
        assert_eq!(usage.own, Duration::from_secs(3));
    }
}
