//! The slowest tests of a run of `cargo test`.
//!
//! The stable test harness prints when a test ended, but neither when it began nor how long it
//! took. Both follow from what it promises: tests begin in the order of their names, so many at a
//! time as there are threads, and the next begins when one ends. This reads the harness's lines as
//! they come, passes them on, and never runs a test again. What failed tests printed is repeated at
//! the very end, where it is found after a run of an hour.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Tests that are named.
const NAMED_MAX: usize = 20;
/// Test executables that are named.
const SUITES_NAMED_MAX: usize = 8;
/// Lines that are repeated of what failed tests said, and the bytes that are kept of each: the last
/// lines of a run are those that are read.
const FAILED_LINES_MAX: usize = 150;
const FAILED_LINE_BYTES_MAX: usize = 600;

/// A test and the time from its begin to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TestTime {
    name: String,
    time: Duration,
}

/// One test executable that is running.
#[derive(Debug)]
struct TestSuite {
    begun: Duration,
    /// Tests that it said it has.
    announced: usize,
    /// Names and times of the ends, in the order they came.
    ended: Vec<(String, Duration)>,
}

/// What the lines of a run have said so far.
#[derive(Debug)]
struct TestTimes {
    threads: usize,
    suite: Option<TestSuite>,
    times: Vec<TestTime>,
    /// Test executables, by the first of their tests that ended.
    suites: Vec<TestTime>,
    /// Tests of suites whose lines were torn by other output.
    unknown: usize,
    /// True while the harness says what its failed tests printed.
    in_failures: bool,
    /// What failed tests printed.
    failures: Vec<String>,
}

/// Runs a command, whose output is that of `cargo test`, and names its slowest tests at the end.
/// Answers the command's exit code.
///
/// # Errors
/// When the command cannot be started or its output cannot be read.
pub(crate) fn run(command: &[String]) -> Result<u8> {
    let (program, arguments) = command.split_first().context("no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {program}"))?;
    let output = child.stdout.take().context("the command has no output")?;
    let (mut times, begun) = (TestTimes::new(threads(arguments)), now());
    let mut out = io::stdout().lock();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("read the command's output")?;
        times.line(now().duration_since(begun), &String::from_utf8_lossy(&line));
        out.write_all(&line)?;
        out.write_all(b"\n")?;
    }
    let status = child.wait().context("wait for the command")?;
    out.write_all(times.report().as_bytes())?;
    // A command that was killed has no code.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[expect(clippy::disallowed_methods, reason = "no server: the tests' clock is the wall's")]
fn now() -> Instant {
    Instant::now()
}

/// Tests that run at one time: as many as the command or the environment asks for, or as there are
/// processors.
#[expect(clippy::disallowed_methods, reason = "as the test harness reads it")]
fn threads(arguments: &[String]) -> usize {
    let mut words = arguments.iter().skip_while(|word| *word != "--test-threads");
    let asked = words.nth(1).and_then(|word| word.parse().ok());
    let set = std::env::var("RUST_TEST_THREADS").ok().and_then(|word| word.parse().ok());
    asked.or(set).unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

impl TestTimes {
    fn new(threads: usize) -> TestTimes {
        TestTimes {
            threads,
            suite: None,
            times: Vec::new(),
            suites: Vec::new(),
            unknown: 0,
            in_failures: false,
            failures: Vec::new(),
        }
    }

    fn line(&mut self, now: Duration, line: &str) {
        self.in_failures |= line == "failures:";
        self.in_failures &= !line.starts_with("test result: ");
        // What a server said stands above, and would push out why the test failed.
        let is_repeated = self.in_failures && !line.starts_with("server: ");
        if is_repeated && self.failures.len() < FAILED_LINES_MAX {
            let end = line.floor_char_boundary(FAILED_LINE_BYTES_MAX);
            self.failures.push(line[..end].to_owned());
        }
        if let Some(announced) = announced(line) {
            self.end_suite();
            self.suite = Some(TestSuite { begun: now, announced, ended: Vec::new() });
        } else if let Some(name) = ended(line)
            && let Some(suite) = &mut self.suite
            && suite.ended.len() < suite.announced
        {
            suite.ended.push((name.to_owned(), now));
        }
    }

    fn end_suite(&mut self) {
        let Some(suite) = self.suite.take() else { return };
        if let [(first, _), .., (_, last)] = suite.ended.as_slice() {
            let time = last.saturating_sub(suite.begun);
            let name = format!("{} tests, {first} and others", suite.announced);
            self.suites.push(TestTime { name, time });
        }
        if suite.ended.len() != suite.announced {
            self.unknown += suite.announced;
            return;
        }
        let mut by_name: Vec<&(String, Duration)> = suite.ended.iter().collect();
        by_name.sort();
        for (place, (name, end)) in by_name.into_iter().enumerate() {
            let before = place.checked_sub(self.threads).and_then(|place| suite.ended.get(place));
            let begin = before.map_or(suite.begun, |(_, end)| *end);
            let time = end.saturating_sub(begin);
            // Examples of the documentation are compiled in between; their time says nothing.
            if !name.contains(" (line ") {
                self.times.push(TestTime { name: name.clone(), time });
            }
        }
    }

    fn report(mut self) -> String {
        self.end_suite();
        self.times.sort_by_key(|test| std::cmp::Reverse(test.time));
        let mut report = format!("== the slowest of {} tests\n", self.times.len());
        for test in self.times.iter().take(NAMED_MAX) {
            report += &format!("{:8.2} s  {}\n", test.time.as_secs_f64(), test.name);
        }
        self.suites.sort_by_key(|suite| std::cmp::Reverse(suite.time));
        report += "== the slowest executables\n";
        for suite in self.suites.iter().take(SUITES_NAMED_MAX) {
            report += &format!("{:8.0} s: {}\n", suite.time.as_secs_f64(), suite.name);
        }
        if self.unknown > 0 {
            let unknown = self.unknown;
            report += &format!("not known of {unknown} more: other output tore their lines\n");
        }
        if !self.failures.is_empty() {
            report += "== what failed\n";
            self.failures.iter().for_each(|line| report += &format!("{line}\n"));
        }
        report
    }
}

/// `running 3 tests`: how many.
fn announced(line: &str) -> Option<usize> {
    let count = line.strip_prefix("running ")?;
    let count = count.strip_suffix(" tests").or_else(|| count.strip_suffix(" test"))?;
    count.parse().ok()
}

/// `test NAME ... ok` and its like: the name.
fn ended(line: &str) -> Option<&str> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let is_outcome = outcome == "ok" || outcome == "FAILED" || outcome.starts_with("ignored");
    is_outcome.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds and lines of a run on so many threads: its tests with their seconds, slowest first.
    fn check(threads: usize, lines: &[(u64, &str)], wanted: &[(&str, u64)]) {
        let mut times = TestTimes::new(threads);
        lines.iter().for_each(|(second, line)| times.line(Duration::from_secs(*second), line));
        let report = times.report();
        let wanted: Vec<String> =
            wanted.iter().map(|(name, seconds)| format!("{seconds:5}.00 s  {name}")).collect();
        let found: Vec<&str> = report.lines().filter(|line| line.contains(" s  ")).collect();
        assert_eq!(found, wanted, "{report}");
    }

    #[test]
    fn a_test_begins_when_one_before_it_ends() {
        let lines = [
            (10, "running 4 tests"),
            (11, "test b ... ok"),
            (14, "test c - should panic ... ok"),
            (17, "test a ... FAILED"),
            (18, "test d ... ok"),
            (18, "test result: FAILED. 3 passed"),
        ];
        check(2, &lines, &[("a", 7), ("d", 4), ("c - should panic", 3), ("b", 1)]);
    }

    #[test]
    fn one_thread_runs_one_after_the_other() {
        let lines = [(1, "running 2 tests"), (3, "test a ... ok"), (9, "test b ... ok")];
        check(1, &lines, &[("b", 6), ("a", 2)]);
    }

    #[test]
    fn every_executable_has_its_own_begin() {
        let lines = [
            (0, "running 1 test"),
            (5, "test a ... ok"),
            (90, "running 1 test"),
            (91, "test a ... ok"),
        ];
        check(2, &lines, &[("a", 5), ("a", 1)]);
    }

    #[test]
    fn where_a_line_is_torn_nothing_is_claimed() {
        let mut times = TestTimes::new(1);
        for line in ["running 2 tests", "test a ... hello", "ok", "test b ... ok"] {
            times.line(Duration::ZERO, line);
        }
        assert!(times.report().contains("not known of 2 more"));
    }

    #[test]
    fn output_of_failed_tests_is_no_test() {
        let lines = [
            (0, "running 1 test"),
            (2, "test a ... FAILED"),
            (8, "test z ... ok"),
            (9, "test src/lib.rs - x (line 3) ... ok"),
        ];
        check(1, &lines, &[("a", 2)]);
    }

    #[test]
    fn what_failed_is_repeated_at_the_end_within_bounds() {
        let mut times = TestTimes::new(1);
        let long = "ä".repeat(FAILED_LINE_BYTES_MAX);
        let lines =
            ["running 1 test", "test a ... FAILED", "failures:", "---- a stdout ----", &long];
        lines.iter().for_each(|line| times.line(Duration::ZERO, line));
        (0..1000).for_each(|_| times.line(Duration::ZERO, "and so on"));
        times.line(Duration::ZERO, "test result: FAILED. 0 passed; 1 failed");
        times.line(Duration::ZERO, "error: test failed");
        let report = times.report();
        let (_, failed) =
            report.split_once("== what failed\nfailures:\n---- a stdout ----\n").unwrap();
        assert_eq!(failed.lines().count(), FAILED_LINES_MAX - 2);
        assert!(failed.lines().all(|line| line.len() <= FAILED_LINE_BYTES_MAX));
        assert!(failed.ends_with("and so on\n"));
    }

    #[test]
    fn the_command_says_how_many_run_at_a_time() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(threads(&words("test -p cove -- --test-threads 3")), 3);
        assert!(threads(&words("test --workspace")) >= 1);
    }
}
