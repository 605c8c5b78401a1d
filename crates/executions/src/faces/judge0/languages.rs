//! Judge0's numbers for the languages of this host.
//!
//! In Judge0, a number means a language and one version of it. Here, the host's version runs every
//! number of a language, and the number's name shows that version.

use api::LanguageView;
use serde_json::{Value, json};

use crate::faces::piston::RuntimeVersion;

/// Programs that consist of a zip archive with the scripts `compile` and `run`.
pub(super) const MULTI_FILE: &str = "multi-file";

/// Kind of a numbered language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberedKind {
    /// Run as this language of Cove.
    Language(&'static str),
    /// Printed.
    PlainText,
    /// Executed directly.
    Executable,
    /// Run by its own scripts.
    MultiFile,
}

/// A language under Judge0's number.
#[derive(Clone, Debug)]
pub(super) struct NumberedLanguage {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) kind: NumberedKind,
    /// Name of the source file; None if there is no source.
    pub(super) source_file: Option<String>,
}

/// All numbers that Judge0 CE 1.13 and 1.14 have given to a language that Cove supports.
const NUMBERS: [(&str, &[u64]); 9] = [
    ("bash", &[46]),
    ("c", &[48, 49, 50, 103]),
    ("cpp", &[52, 53, 54, 105]),
    ("go", &[60, 95, 106, 107]),
    ("java", &[62, 91]),
    ("javascript", &[63, 93, 97, 102]),
    ("python", &[70, 71, 92, 100, 109, 113]),
    ("rust", &[73, 108]),
    ("typescript", &[74, 94, 101]),
];

/// Returns the languages that can be run here, by number.
pub(super) fn all(languages: &[LanguageView]) -> Vec<NumberedLanguage> {
    let special = |id, name: &str, kind, source_file: Option<&str>| NumberedLanguage {
        id,
        name: name.to_owned(),
        kind,
        source_file: source_file.map(str::to_owned),
    };
    let mut all = vec![
        special(43, "Plain Text", NumberedKind::PlainText, Some("text.txt")),
        special(44, "Executable", NumberedKind::Executable, Some("a.out")),
    ];
    for language in languages.iter().filter(|language| language.available) {
        if language.name == MULTI_FILE {
            all.push(special(89, "Multi-file program", NumberedKind::MultiFile, None));
        }
        let Some((name, ids)) = NUMBERS.iter().find(|(name, _)| *name == language.name) else {
            continue;
        };
        let source_file = crate::faces::entry_name(name, &language.extensions);
        all.extend(ids.iter().map(|&id| NumberedLanguage {
            id,
            name: title(language),
            kind: NumberedKind::Language(name),
            source_file: Some(source_file.clone()),
        }));
    }
    all.sort_by_key(|numbered| numbered.id);
    all
}

/// Returns a name like `C (GCC 12.2.0)`: Judge0's format, with the host's version.
fn title(language: &LanguageView) -> String {
    let text = language.version.as_deref().unwrap_or_default();
    let (name, tool) = match language.name.as_str() {
        "bash" => ("Bash", ""),
        "c" if text.contains("clang") => ("C", "Clang "),
        "c" => ("C", "GCC "),
        "cpp" if text.contains("clang") => ("C++", "Clang "),
        "cpp" => ("C++", "GCC "),
        "go" => ("Go", ""),
        "java" => ("Java", "JDK "),
        "javascript" => ("JavaScript", "Node.js "),
        "python" => ("Python", ""),
        "rust" => ("Rust", ""),
        "typescript" => ("TypeScript", ""),
        other => (other, ""),
    };
    match RuntimeVersion::in_text(text) {
        Some(version) => format!("{name} ({tool}{version})"),
        None => name.to_owned(),
    }
}

/// Returns an entry of `GET /languages`.
pub(super) fn brief(language: &NumberedLanguage) -> Value {
    json!({ "id": language.id, "name": language.name })
}

/// Returns an entry of `GET /languages/all`.
pub(super) fn listed(language: &NumberedLanguage) -> Value {
    json!({ "id": language.id, "name": language.name, "is_archived": false })
}

/// Returns the answer of `GET /languages/{id}`. The commands are simplified; `languages.toml` has
/// the complete ones.
pub(super) fn full(language: &NumberedLanguage) -> Value {
    let file = language.source_file.as_deref().unwrap_or_default();
    let (compile, run) = match language.kind {
        NumberedKind::PlainText => (None, format!("cat {file}")),
        NumberedKind::Executable => (None, format!("./{file}")),
        NumberedKind::MultiFile => (Some("bash compile".to_owned()), "bash run".to_owned()),
        NumberedKind::Language(name) => match name {
            "bash" => (None, format!("bash {file}")),
            "c" => (Some(format!("gcc %s -o program {file}")), "./program".to_owned()),
            "cpp" => (Some(format!("g++ %s -o program {file}")), "./program".to_owned()),
            "go" => (Some("go build %s -o program".to_owned()), "./program".to_owned()),
            "java" => (Some(format!("javac %s {file}")), "java Main".to_owned()),
            "javascript" => (None, format!("node {file}")),
            "python" => (None, format!("python3 {file}")),
            "rust" => (Some(format!("rustc %s -o program {file}")), "./program".to_owned()),
            "typescript" => (Some(format!("tsc %s {file}")), "node main.js".to_owned()),
            other => (None, other.to_owned()),
        },
    };
    json!({
        "id": language.id,
        "name": language.name,
        "is_archived": false,
        "source_file": language.source_file,
        "compile_cmd": compile,
        "run_cmd": run,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_judge0_s_and_names_tell_the_host_s_versions() {
        let language = |name: &str, extension: &str, version: &str| LanguageView {
            name: name.to_owned(),
            aliases: Vec::new(),
            extensions: vec![extension.to_owned()],
            version: Some(version.to_owned()),
            compiled: true,
            available: true,
            preparing: false,
            reason: None,
        };
        let languages = [
            language("c", "c", "gcc (Debian 12.2.0-14) 12.2.0"),
            language("java", "java", "javac 17.0.12"),
            language(MULTI_FILE, "", ""),
            language("own", "own", "1.2"),
            LanguageView { available: false, ..language("rust", "rs", "rustc 1.95.0") },
        ];
        let seen: Vec<_> = all(&languages)
            .into_iter()
            .map(|it| format!("{} {} {}", it.id, it.name, it.source_file.unwrap_or_default()))
            .collect();
        let expected = [
            "43 Plain Text text.txt",
            "44 Executable a.out",
            "48 C (GCC 12.2.0) main.c",
            "49 C (GCC 12.2.0) main.c",
            "50 C (GCC 12.2.0) main.c",
            "62 Java (JDK 17.0.12) Main.java",
            "89 Multi-file program ",
            "91 Java (JDK 17.0.12) Main.java",
            "103 C (GCC 12.2.0) main.c",
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn no_number_is_given_twice() {
        let mut ids: Vec<u64> = NUMBERS.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        ids.extend([43, 44, 89]);
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
}
