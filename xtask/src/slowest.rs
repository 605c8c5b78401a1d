//! The slowest tests of a run of `cargo test`.
//!
//! The stable test harness prints when a test ended, but neither when it began nor how long it
//! took. Both follow from the harness's guarantees: tests begin in the order of their names, as
//! many at a time as there are threads, and the next begins when one ends. This module reads the
//! harness's lines as they arrive and passes them on. The output of failed tests is repeated at the
//! very end, where it is easy to find after an hour's run.
//!
//! Tests here start browsers, databases and clusters with leases of seconds, several at a time, on
//! shared machines. With `--rerun N`, failed tests are run once more, one after the other, if there
//! are at most N. The command succeeds if all of them pass then, and names them: each one is a
//! defect of the test or of Cove to fix.

use std::io::{BufRead as _, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Maximum number of tests in the report.
const NAMED_MAX: usize = 20;
/// Maximum number of test executables in the report.
const SUITES_NAMED_MAX: usize = 8;
/// Maximum number of repeated lines of failed tests, and the bytes that are kept of each: readers
/// look at the last lines of a run.
const FAILED_LINES_MAX: usize = 150;
const FAILED_LINE_BYTES_MAX: usize = 600;

/// A test and its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TestTime {
    name: String,
    time: Duration,
}

/// A running test executable.
#[derive(Debug)]
struct TestSuite {
    begun: Duration,
    /// Number of tests that the executable announced.
    announced: usize,
    /// Names and end times, in the order of arrival.
    ended: Vec<(String, Duration)>,
}

/// Information from the lines of a run so far.
#[derive(Debug)]
struct TestTimes {
    threads: usize,
    suite: Option<TestSuite>,
    times: Vec<TestTime>,
    /// Durations of test executables, each named after the first of its tests that ended.
    suites: Vec<TestTime>,
    /// Tests of suites whose lines were interrupted by other output.
    unknown: usize,
    /// True while the harness prints the output of failed tests.
    in_failures: bool,
    /// Output of failed tests.
    failures: Vec<String>,
    /// Tests that failed.
    failed: Vec<String>,
    /// The lines below the last `failures:`, which may be the names of the failed tests.
    listed: Vec<String>,
    /// Test executables that began and have not reported a result.
    without_result: usize,
    /// Tests whose own line reports a failure.
    failed_lines: usize,
    /// True if a list of failed tests could not be read.
    is_list_torn: bool,
}

/// Runs a command with the output of `cargo test` and names its slowest tests at the end. Returns
/// the command's exit code, or 0 if at most `rerun_max` tests failed and all of them passed in the
/// second run.
///
/// # Errors
/// If the command cannot be started or its output cannot be read.
pub(crate) fn run(rerun_max: usize, command: &[String], out: &mut dyn Write) -> Result<u8> {
    let (code, times) = pass_on(command, out)?;
    let failed = times.failed();
    out.write_all(times.report().as_bytes())?;
    let failed = match failed {
        Some(failed) if code != 0 && (1..=rerun_max).contains(&failed.len()) => failed,
        _ => return Ok(code),
    };
    writeln!(out, "== run again, one after the other: {}", failed.join(", "))?;
    let (code, times) = pass_on(&rerun(command, &failed), out)?;
    if code != 0 {
        out.write_all(times.report().as_bytes())?;
        return Ok(code);
    }
    let missing: Vec<&String> = failed.iter().filter(|name| !times.has_ended(name)).collect();
    anyhow::ensure!(missing.is_empty(), "not run again, nothing of this name: {missing:?}");
    writeln!(out, "== passed only when run again, to be mended: {}", failed.join(", "))?;
    Ok(0)
}

/// Returns the command that runs only the tests of these names.
fn rerun(command: &[String], names: &[String]) -> Vec<String> {
    let mut rerun = command.to_vec();
    rerun.extend(["--", "--exact", "--test-threads", "1"].map(str::to_owned));
    rerun.extend_from_slice(names);
    rerun
}

/// Runs the command and passes its output on. Returns its exit code and the information from the
/// output.
fn pass_on(command: &[String], out: &mut dyn Write) -> Result<(u8, TestTimes)> {
    let (program, arguments) = command.split_first().context("no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {program}"))?;
    let output = child.stdout.take().context("the command has no output")?;
    let (mut times, begun) = (TestTimes::new(threads(arguments)), now());
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("read the command's output")?;
        times.line(now().duration_since(begun), &String::from_utf8_lossy(&line));
        out.write_all(&line)?;
        out.write_all(b"\n")?;
    }
    let status = child.wait().context("wait for the command")?;
    // A killed command has no code.
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok((code, times))
}

#[expect(clippy::disallowed_methods, reason = "no server: the tests' clock is the wall's")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the number of concurrent tests: the value of the command or the environment, or the
/// number of processors.
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
            failed: Vec::new(),
            listed: Vec::new(),
            without_result: 0,
            failed_lines: 0,
            is_list_torn: false,
        }
    }

    /// Returns the failed tests; none if they are not known for certain.
    fn failed(&self) -> Option<Vec<String>> {
        let is_known = self.without_result == 0 && !self.is_list_torn;
        (is_known && self.failed_lines <= self.failed.len()).then(|| self.failed.clone())
    }

    fn has_ended(&self, name: &str) -> bool {
        let current = self.suite.iter().flat_map(|suite| &suite.ended).map(|(name, _)| name);
        self.times.iter().map(|test| &test.name).chain(current).any(|ended| ended == name)
    }

    /// Collects failed tests: their names are between `failures:` and the result.
    fn follow_failed(&mut self, line: &str) {
        if !self.in_failures && line.starts_with("test ") && line.ends_with(" ... FAILED") {
            self.failed_lines += 1;
        } else if line == "failures:" {
            self.listed.clear();
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| self.in_failures) {
            self.listed.push(name.to_owned());
        } else if let Some(failed) = failed_count(line) {
            self.is_list_torn |= self.listed.len() != failed;
            self.failed.append(&mut self.listed);
            self.without_result = self.without_result.saturating_sub(1);
        }
    }

    fn line(&mut self, now: Duration, line: &str) {
        self.in_failures |= line == "failures:";
        self.follow_failed(line);
        self.in_failures &= !line.starts_with("test result: ");
        // The server's output is further up, and would displace the cause of the failure.
        let is_repeated = self.in_failures && !line.starts_with("server: ");
        if is_repeated && self.failures.len() < FAILED_LINES_MAX {
            let end = line.floor_char_boundary(FAILED_LINE_BYTES_MAX);
            self.failures.push(line[..end].to_owned());
        }
        if let Some(announced) = announced(line).filter(|_| !self.in_failures) {
            self.end_suite();
            self.without_result += 1;
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
            // Compiling documentation examples is interleaved, so their times are meaningless.
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

/// Returns the count of `running 3 tests`.
fn announced(line: &str) -> Option<usize> {
    let count = line.strip_prefix("running ")?;
    let count = count.strip_suffix(" tests").or_else(|| count.strip_suffix(" test"))?;
    count.parse().ok()
}

/// Returns the number of failures of `test result: FAILED. 3 passed; 1 failed; …`.
fn failed_count(line: &str) -> Option<usize> {
    let counts = line.strip_prefix("test result: ")?;
    counts.split("; ").find_map(|count| count.strip_suffix(" failed"))?.parse().ok()
}

/// Returns the name of `test NAME ... ok` and similar lines.
fn ended(line: &str) -> Option<&str> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let is_outcome = outcome == "ok" || outcome == "FAILED" || outcome.starts_with("ignored");
    is_outcome.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the slowest tests, in order and with their seconds, of a run's seconds and lines on
    /// `threads` threads.
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

    /// Checks the failed tests of a run's lines, as far as they are known.
    fn check_failed(lines: &[&str], wanted: Option<&[&str]>) {
        let mut times = TestTimes::new(2);
        lines.iter().for_each(|line| times.line(Duration::ZERO, line));
        let wanted = wanted.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(times.failed(), wanted, "{lines:?}");
    }

    #[test]
    fn failed_tests_are_known_where_every_executable_gave_its_result() {
        let failed = ["running 2 tests", "test a ... FAILED", "test b ... ok", "failures:", ""];
        let listed = ["---- a stdout ----", "    indented", "running 9 tests", "failures:"];
        let result = ["    a", "", "test result: FAILED. 1 passed; 1 failed; 0 ignored"];
        let passed = ["running 1 test", "test c ... ok", "test result: ok. 1 passed; 0 failed"];
        let run = |parts: &[&[&'static str]]| parts.concat();
        check_failed(&run(&[&failed, &listed, &result, &passed]), Some(&["a"]));
        check_failed(&passed, Some(&[]));
        // The first executable was killed, or ended before its result.
        check_failed(&run(&[&failed, &listed, &passed]), None);
        check_failed(&run(&[&failed, &listed]), None);
        // Another thread's output is within the list.
        check_failed(&run(&[&failed, &listed, &["    torn"], &result]), None);
    }

    #[test]
    fn failed_tests_are_run_again_once_and_one_after_the_other() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let rerun = rerun(&words("cargo test --workspace"), &words("a::b c"));
        let wanted = "cargo test --workspace -- --exact --test-threads 1 a::b c";
        assert_eq!(rerun.join(" "), wanted);
    }

    /// Checks the exit code of a run with up to `rerun_max` reruns of a stand-in for `cargo test`,
    /// whose test creates the file `makes` and fails until the file `made` exists.
    fn check_rerun(rerun_max: usize, makes: &str, wanted: u8) {
        let directory = std::env::temp_dir()
            .join(format!("xtask-rerun-{}-{rerun_max}{makes}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let script = format!(
            "echo 'running 1 test'; if [ -e {0}/made ]; then echo 'test a ... ok'; \
             echo 'test result: ok. 1 passed; 0 failed'; else touch {0}/{makes}; \
             printf 'test a ... FAILED\\nfailures:\\nfailures:\\n    a\\n'; \
             echo 'test result: FAILED. 0 passed; 1 failed'; exit 101; fi",
            directory.display()
        );
        let command = ["sh", "-c", &script, "sh"].map(str::to_owned);
        let mut out = Vec::new();
        let code = run(rerun_max, &command, &mut out);
        std::fs::remove_dir_all(&directory).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!(code.unwrap(), wanted, "{out}");
        assert_eq!(out.ends_with("== passed only when run again, to be mended: a\n"), wanted == 0);
    }

    #[test]
    fn a_run_succeeds_if_what_failed_passes_alone() {
        check_rerun(1, "made", 0);
        check_rerun(0, "made", 101);
        check_rerun(1, "other", 101);
    }

    #[test]
    fn the_command_says_how_many_run_at_a_time() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(threads(&words("test -p cove -- --test-threads 3")), 3);
        assert!(threads(&words("test --workspace")) >= 1);
    }
}
