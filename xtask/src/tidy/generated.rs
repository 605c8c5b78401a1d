//! Rule for files that other tools generate: each names the hash of its source, so that a stale
//! file is found without these tools.
//!
//! Such a file has the word `sha256:` and the hash of its source's bytes in its first lines.

use sha2::{Digest as _, Sha256};

use super::{Findings, SourceFile};

/// The contract, from which clients generate their types.
const CONTRACT: &str = "crates/api/openapi.json";

/// Commands that regenerate files.
const PYTHON: &str = "python sdk/python/scripts/generate.py";
const TYPESCRIPT: &str = "npm run generate --prefix sdk/typescript";

/// Files with a single source: the file, its source, and the command that regenerates it.
const GENERATED: &[(&str, &str, &str)] = &[
    ("sdk/python/src/cove/types.py", CONTRACT, PYTHON),
    ("sdk/python/src/cove/_operations.py", CONTRACT, PYTHON),
    ("sdk/python/src/cove/_error_codes.py", CONTRACT, PYTHON),
    ("sdk/typescript/src/schema.ts", CONTRACT, TYPESCRIPT),
    ("sdk/typescript/src/contract.ts", CONTRACT, TYPESCRIPT),
];

/// Directories generated from another directory: both, the file that is not generated, and the
/// command that regenerates the rest.
const GENERATED_DIRECTORIES: &[(&str, &str, &str, &str)] =
    &[("sdk/python/src/cove/_sync/", "sdk/python/src/cove/_async/", "_runtime.py", PYTHON)];

/// Number of first lines that must contain the hash.
const HEAD_LINES: usize = 10;

pub(super) fn check(files: &[SourceFile], findings: &mut Findings) {
    for (made, source, command) in GENERATED {
        check_one(files, made, source, command, findings);
    }
    for (made, sources, by_hand, command) in GENERATED_DIRECTORIES {
        for file in files {
            let name = file.path.strip_prefix(sources).filter(|name| name != by_hand);
            if let Some(name) = name {
                check_one(files, &format!("{made}{name}"), &file.path, command, findings);
            }
            let name = file.path.strip_prefix(made).filter(|name| name != by_hand);
            let source = name.map(|name| format!("{sources}{name}"));
            if source.is_some_and(|source| !files.iter().any(|file| file.path == source)) {
                findings.add(&file.path, 0, format!("has no source in {sources}: delete it"));
            }
        }
    }
}

fn check_one(
    files: &[SourceFile],
    made: &str,
    source: &str,
    command: &str,
    findings: &mut Findings,
) {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| &file.text);
    let Some(source_text) = text(source) else { return };
    let mark = format!("sha256:{}", hash(source_text));
    let is_current = |text: &String| text.lines().take(HEAD_LINES).any(|it| it.contains(&mark));
    if !text(made).is_some_and(is_current) {
        findings.add(made, 0, format!("is not made of {source} as it is: run `{command}`"));
    }
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned(), size: text.len() }
    }

    fn found(files: &[SourceFile]) -> Vec<String> {
        let mut findings = Findings::default();
        check(files, &mut findings);
        findings.0
    }

    #[test]
    fn a_file_is_stale_when_its_source_changed_is_missing_or_has_no_source() {
        let made = |source: &str| format!("# made\n# sha256:{}\n\"\"\"It.\"\"\"\n", hash(source));
        let directory = |name: &str| format!("sdk/python/src/cove/{name}");
        let files = |contract: &str, part: &str| {
            let mut files = vec![
                file(CONTRACT, contract),
                file(&directory("_async/part.py"), part),
                file(&directory("_async/_runtime.py"), "by hand"),
                file(&directory("_sync/part.py"), &made("y")),
                file(&directory("_sync/_runtime.py"), "by hand as well"),
            ];
            files.extend(GENERATED.iter().map(|(path, _, _)| file(path, &made("x"))));
            files
        };
        assert_eq!(found(&files("x", "y")), Vec::<String>::new());
        assert_eq!(found(&files("z", "y")).len(), GENERATED.len());
        assert_eq!(found(&files("x", "z")).len(), 1);
        let mut missing = files("x", "y");
        missing.retain(|it| !it.path.ends_with("types.py"));
        assert_eq!(found(&missing).len(), 1);
        let mut orphan = files("x", "y");
        orphan.push(file(&directory("_sync/old.py"), &made("y")));
        assert!(found(&orphan)[0].contains("has no source"));
    }
}
