//! The rule for the page of threats: every test that a row names exists.

use std::collections::BTreeSet;

use super::{Findings, SourceFile};

/// The page.
pub(super) const PAGE: &str = "docs/internals/threats.md";

/// Finds the functions and the cases that the last column of each table names.
pub(super) fn check(page: &SourceFile, files: &[SourceFile], findings: &mut Findings) {
    let functions: BTreeSet<&str> = files.iter().flat_map(|file| functions(&file.text)).collect();
    let cases: Vec<&str> = files
        .iter()
        .filter(|file| file.path.starts_with("crates/") && file.path.ends_with(".toml"))
        .map(|file| file.text.as_str())
        .collect();
    for (index, line) in page.text.lines().enumerate() {
        let Some(named) = last_cell(line) else { continue };
        for name in named.split('`').skip(1).step_by(2).filter(|name| is_function(name)) {
            if !functions.contains(name) {
                findings.add(&page.path, index + 1, format!("there is no test `{name}`"));
            }
        }
        for name in outside_of_ticks(named).split('"').skip(1).step_by(2) {
            let quoted = format!("\"{name}\"");
            if !cases.iter().any(|text| text.contains(&quoted)) {
                findings.add(&page.path, index + 1, format!("there is no case {quoted}"));
            }
        }
    }
}

fn last_cell(line: &str) -> Option<&str> {
    line.strip_prefix("| ")?.trim_end().strip_suffix('|')?.rsplit(" | ").next()
}

fn outside_of_ticks(text: &str) -> String {
    text.split('`').step_by(2).collect()
}

fn is_function(name: &str) -> bool {
    name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
}

fn functions(text: &str) -> impl Iterator<Item = &str> {
    let after_keyword = text.split("fn ").skip(1);
    after_keyword
        .filter_map(|rest| rest.split(|it: char| !it.is_alphanumeric() && it != '_').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_names_a_test_that_is_gone_is_found() {
        let file = |path: &str, text: &str| SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
            size: text.len(),
        };
        let files = [
            file("crates/a/src/lib.rs", "#[test]\nfn nobody_gets_in() {}\n"),
            file("crates/a/tests/cases/a.toml", "name = \"a door is closed\"\n"),
        ];
        for (row, expected) in [
            ("| in | closed | `nobody_gets_in` (`crates/a/src/lib.rs`), \"a door is closed\" |", 0),
            ("| in | `fn_in_the_answer` | none: by construction |", 0),
            ("| in | closed | `nobody_gets_out` |", 1),
            ("| in | closed | \"a window is closed\", `nobody_gets_in` |", 1),
            ("`no_row`", 0),
        ] {
            let mut findings = Findings::default();
            check(&file(PAGE, row), &files, &mut findings);
            assert_eq!(findings.0.len(), expected, "{row}: {:?}", findings.0);
        }
    }
}
