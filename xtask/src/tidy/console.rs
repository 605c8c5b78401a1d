//! Rule for the console's built files: they match its sources.
//!
//! The build writes a hash of all sources beside its output; this rule computes the same hash, so
//! that it finds a stale bundle without Node.

use sha2::{Digest as _, Sha256};

use super::{Findings, SourceFile};

const SOURCES: &str = "crates/console/ui/";
const BUILT: &str = "crates/console/dist/";
const HASH_FILE: &str = "crates/console/dist/.sources";

pub(super) fn check(files: &[SourceFile], findings: &mut Findings) {
    let mut sources: Vec<&SourceFile> = files.iter().filter(|file| is_source(&file.path)).collect();
    if sources.is_empty() {
        return;
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    let written = files.iter().find(|file| file.path == HASH_FILE);
    if written.is_none_or(|file| file.text.trim() != hash(&sources)) {
        let what = "is not what the sources make: run `make console` and commit its result";
        findings.add(BUILT, 0, what);
    }
    let list = files.iter().find(|file| file.path == format!("{BUILT}files.inc"));
    let list = list.map(|file| file.text.as_str()).unwrap_or_default();
    for file in files {
        let name = file.path.strip_prefix(BUILT).filter(|name| !name.starts_with('.'));
        if name.is_some_and(|name| name != "files.inc" && !list.contains(&format!("(\"{name}\",")))
        {
            findings.add(&file.path, 0, "is not in files.inc: run `make console`");
        }
    }
}

/// Documentation and generated types are not sources: no byte of a bundle comes from them.
fn is_source(path: &str) -> bool {
    path.starts_with(SOURCES) && !path.ends_with(".md") && !path.ends_with(".d.ts")
}

/// Returns the hash over the sorted sources: path, NUL, content with Unix line ends, NUL.
fn hash(sources: &[&SourceFile]) -> String {
    let mut hash = Sha256::new();
    for file in sources {
        hash.update(file.path.trim_start_matches(SOURCES).as_bytes());
        hash.update([0]);
        hash.update(file.text.replace("\r\n", "\n").as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned(), size: text.len() }
    }

    fn found(files: &[SourceFile]) -> usize {
        let mut findings = Findings::default();
        check(files, &mut findings);
        findings.0.len()
    }

    #[test]
    fn a_bundle_is_stale_when_a_source_changed_or_a_file_is_not_listed() {
        // SHA-256 of "a.ts\0x\n\0".
        let of_x = hash(&[&file("crates/console/ui/a.ts", "x\n")]);
        let good = |source: &str| {
            vec![
                file("crates/console/ui/a.ts", source),
                file("crates/console/ui/README.md", "anything"),
                file("crates/console/ui/src/schema.d.ts", "anything"),
                file("crates/console/dist/.sources", &format!("{of_x}\n")),
                file(
                    "crates/console/dist/files.inc",
                    "&[(\"app.js\", include_bytes!(\"app.js\"))]",
                ),
                file("crates/console/dist/app.js", ""),
            ]
        };
        assert_eq!(found(&good("x\n")), 0);
        assert_eq!(found(&good("x\r\n")), 0, "line ends do not matter");
        assert_eq!(found(&good("y\n")), 1);
        let mut more = good("x\n");
        more.push(file("crates/console/dist/screen-home.js", ""));
        assert_eq!(found(&more), 1);
        more.retain(|file| !file.path.ends_with(".sources"));
        assert_eq!(found(&more), 2);
        assert_eq!(found(&[]), 0);
    }
}
