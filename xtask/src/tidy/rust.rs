//! Rules for Rust files: documentation first, 100 columns, `unsafe` in one place, a maximum length.

use super::{Findings, SourceFile};

const COLUMNS_MAX: usize = 100;
/// The only module of shipped code that may contain `unsafe`; a benchmark may count allocations.
const UNSAFE_HOME: &str = "crates/sandbox/src/sys.rs";
/// Path of that module's children.
const UNSAFE_HOME_CHILDREN: &str = "crates/sandbox/src/sys/";
/// Most lines of a file without its tests.
const LINES_MAX: usize = 800;

pub(super) fn check(file: &SourceFile, findings: &mut Findings) {
    let first = file.text.lines().find(|line| !line.starts_with("#!["));
    if !first.is_some_and(|line| line.starts_with("//!")) {
        findings.add(&file.path, 1, "begins with `//!`: what it is for, and what it never does");
    }
    for (index, line) in file.text.lines().enumerate() {
        if line.chars().count() > COLUMNS_MAX && !is_unbreakable(line) {
            findings.add(&file.path, index + 1, format!("longer than {COLUMNS_MAX} columns"));
        }
        if !may_hold_unsafe(&file.path) && has_unsafe(line) {
            findings.add(&file.path, index + 1, format!("`unsafe` belongs to {UNSAFE_HOME}"));
        }
    }
}

fn may_hold_unsafe(path: &str) -> bool {
    ["bench/", UNSAFE_HOME_CHILDREN].iter().any(|home| path.starts_with(home))
        || path == UNSAFE_HOME
}

/// Returns whether a line cannot be broken: links, rows of tables and literal text.
fn is_unbreakable(line: &str) -> bool {
    let trimmed = line.trim_start();
    let literal = trimmed.contains('"') && !trimmed.starts_with("//");
    line.contains("https://") || trimmed.starts_with("//! |") || literal
}

/// Returns whether the line's code contains `unsafe`, outside comments, literals and lint names.
fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or("");
    code.match_indices("unsafe").any(|(at, word)| {
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        let in_literal = before.matches('"').count() % 2 == 1;
        let in_name = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let opens = ["fn", "impl", "extern", "trait", "{", "("];
        let next = after.trim_start();
        !in_literal
            && !in_name
            && after.starts_with([' ', '('])
            && opens.iter().any(|word| next.starts_with(word))
    })
}

/// Returns the number of lines before the tests, which are at the end of a file.
fn lines_without_tests(text: &str) -> usize {
    let tests = text.lines().position(|line| line == "#[cfg(test)]");
    tests.unwrap_or_else(|| text.lines().count())
}

/// Finds source files that are too long.
pub(super) fn check_long_files(files: &[SourceFile], findings: &mut Findings) {
    let is_code = |path: &str| {
        path.ends_with(".rs") && !path.contains("/tests/") && !path.ends_with("/tests.rs")
    };
    for file in files.iter().filter(|file| is_code(&file.path)) {
        let lines = lines_without_tests(&file.text);
        if lines > LINES_MAX {
            let what = format!("{lines} lines without tests: at most {LINES_MAX}, so cut it");
            findings.add(&file.path, 0, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        let file = SourceFile { path: path.to_owned(), text: text.to_owned(), size: text.len() };
        check(&file, &mut findings);
        check_long_files(&[file], &mut findings);
        findings.0
    }

    #[test]
    fn files_begin_with_their_documentation() {
        assert!(findings("a.rs", "//! Good.\n").is_empty());
        assert!(findings("a.rs", "#![forbid(unsafe_code)]\n//! Good.\n").is_empty());
        assert_eq!(findings("a.rs", "use std::fs;\n").len(), 1);
        assert_eq!(findings("a.rs", "").len(), 1);
    }

    #[test]
    fn only_what_can_be_broken_must_fit_100_columns() {
        let long = "x".repeat(101);
        assert_eq!(findings("a.rs", &format!("//! A.\n// {long}\n")).len(), 1);
        assert!(findings("a.rs", &format!("//! A.\n// https://{long}\n")).is_empty());
        assert!(findings("a.rs", &format!("//! A.\n    \"{long}\"\n")).is_empty());
        assert!(findings("a.rs", &format!("//! A.\n// {}\n", "é".repeat(97))).is_empty());
    }

    #[test]
    fn code_that_is_not_checked_stays_in_one_module() {
        for bad in [
            "unsafe {",
            "    let x = unsafe { f() };",
            "unsafe fn f() {}",
            "pub unsafe impl A for B {}",
        ] {
            assert_eq!(findings("a.rs", &format!("//! A.\n{bad}\n")).len(), 1, "{bad}");
            for home in [UNSAFE_HOME, "crates/sandbox/src/sys/a.rs"] {
                let at_home = findings(home, &format!("//! A.\n{bad}\n"));
                assert!(!at_home.iter().any(|finding| finding.contains("belongs")), "{bad}");
            }
            let beside = findings("crates/sandbox/src/system.rs", &format!("//! A.\n{bad}\n"));
            assert_eq!(beside.len(), 1, "{bad}");
        }
        for good in
            ["#![forbid(unsafe_code)]", "// unsafe { }", "let not_unsafe = 1;", "\"unsafe code\""]
        {
            assert!(findings("a.rs", &format!("//! A.\n{good}\n")).is_empty(), "{good}");
        }
    }

    #[test]
    fn long_files_are_found_and_tests_do_not_count() {
        let long = format!("//! A.\n{}", "let a = 1;\n".repeat(LINES_MAX));
        assert_eq!(findings("src/a.rs", &long).len(), 1);
        assert!(findings("src/tests.rs", &long).is_empty());
        let tested = format!("//! A.\n#[cfg(test)]\n{}", "let a = 1;\n".repeat(LINES_MAX));
        assert!(findings("src/a.rs", &tested).is_empty());
    }
}
