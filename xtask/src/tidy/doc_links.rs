//! Rule for links in doc comments: the type that a link names exists. A rename changes the code but
//! leaves such a link behind, which only rustdoc would detect.

use std::collections::HashSet;

use super::{Findings, SourceFile};

/// Checks the links of shipped crates.
pub(super) fn check(files: &[SourceFile], findings: &mut Findings) {
    let is_source = |path: &str| path.starts_with("crates/") && path.ends_with(".rs");
    for file in files.iter().filter(|file| is_source(&file.path)) {
        let is_comment = |line: &&str| line.trim_start().starts_with("//");
        let code = file.text.lines().filter(|line| !is_comment(line));
        let known: HashSet<&str> = code.flat_map(words).collect();
        for (index, line) in file.text.lines().enumerate() {
            for name in links(line).filter(|name| *name != "Self" && !known.contains(name)) {
                let what = format!("links to `{name}`, which this file does not know");
                findings.add(&file.path, index + 1, what);
            }
        }
    }
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|it: char| !it.is_alphanumeric() && it != '_')
}

/// Returns the types at the start of a doc comment's links, for links without an explicit target.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let line = line.trim_start();
    let is_doc = line.starts_with("///") || line.starts_with("//!");
    let starts = line.match_indices("[`").filter(move |_| is_doc);
    starts.filter_map(|(at, _)| {
        let (text, rest) = line.get(at + 2..)?.split_once("`]")?;
        let name = words(text).next()?;
        let is_type = name.starts_with(|it: char| it.is_ascii_uppercase());
        (is_type && !rest.starts_with('(')).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_types_that_the_file_knows() {
        for (text, expected) in [
            ("/// See [`Old::run`].\nstruct New;", 1),
            ("/// See [`New::run`].\nstruct New;", 0),
            ("//! A [`New`] and an [`Old`].\nuse crate::New;", 1),
            ("/// See [`Old`](crate::New).\nstruct New;", 0),
            ("/// See [`Self::run`] and [`wait`].\nstruct New;", 0),
            ("// See [`Old`].\nstruct New;", 0),
            ("/// See [`Old`].\n// Old\nstruct New;", 1),
        ] {
            let mut findings = Findings::default();
            let path = "crates/pool/src/pool.rs".to_owned();
            let file = SourceFile { path, text: text.to_owned(), size: text.len() };
            check(&[file], &mut findings);
            assert_eq!(findings.0.len(), expected, "{text}");
        }
    }
}
