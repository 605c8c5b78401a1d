//! Cove's languages under the names of Piston's packages.

use api::LanguageView;
use serde_json::{Value, json};

use super::version::{self, RuntimeVersion};

/// Language of this host in Piston's terms.
#[derive(Clone, Debug)]
pub(super) struct PistonRuntime {
    /// Piston's name.
    pub(super) language: String,
    /// Piston's other names, and Cove's.
    pub(super) aliases: Vec<String>,
    /// The tool, if several could run the language.
    pub(super) runtime: Option<&'static str>,
    /// The tool's version.
    pub(super) version: RuntimeVersion,
    /// Cove's language.
    pub(super) cove: LanguageView,
}

/// Cove's name, Piston's name, Piston's aliases, and the tool that Piston names.
const NAMES: [(&str, &str, &[&str], Option<&str>); 9] = [
    ("bash", "bash", &["sh"], None),
    ("c", "c", &["gcc"], Some("gcc")),
    ("cpp", "c++", &["cpp", "g++"], Some("gcc")),
    ("go", "go", &["go", "golang"], None),
    (JAVA_SOURCE, "java", &[], None),
    ("javascript", "javascript", &["node-javascript", "node-js", "javascript", "js"], Some("node")),
    ("python", "python", &["py", "py3", "python3", "python3.x"], None),
    ("rust", "rust", &["rs"], None),
    ("typescript", "typescript", &["ts", "node-ts", "tsc", "typescript5", "ts5"], None),
];

/// Piston's Java package starts the source file (`java $1.java`): its class may have any name.
pub(super) const JAVA_SOURCE: &str = "java-source";

/// Returns the runtimes that can be used here.
pub(super) fn all(languages: &[LanguageView]) -> Vec<PistonRuntime> {
    let available = languages.iter().filter(|language| language.available);
    let has_source = available.clone().any(|language| language.name == JAVA_SOURCE);
    // It would have the same name.
    let hidden = |language: &&LanguageView| has_source && language.name == "java";
    available.filter(|language| !hidden(language)).map(runtime).collect()
}

fn runtime(cove: &LanguageView) -> PistonRuntime {
    let known = NAMES.iter().find(|(name, ..)| *name == cove.name);
    let (language, aliases, tool) = match known {
        Some((_, language, aliases, tool)) => (*language, *aliases, *tool),
        None => (cove.name.as_str(), &[][..], None),
    };
    let mut aliases: Vec<String> = aliases.iter().map(|&alias| alias.to_owned()).collect();
    for name in std::iter::once(&cove.name).chain(&cove.aliases) {
        if name != language && !aliases.contains(name) {
            aliases.push(name.clone());
        }
    }
    let text = cove.version.as_deref().unwrap_or_default();
    PistonRuntime {
        language: language.to_owned(),
        aliases,
        // The tool's own report takes precedence over the usual name.
        runtime: tool.map(|tool| if text.contains("clang") { "clang" } else { tool }),
        // A tool without a known version still runs programs.
        version: RuntimeVersion::in_text(text).unwrap_or_default(),
        cove: cove.clone(),
    }
}

/// Returns the newest runtime of the language that matches the selector.
pub(super) fn choose(
    languages: &[LanguageView],
    language: &str,
    selector: &str,
) -> Option<PistonRuntime> {
    let called = |runtime: &PistonRuntime| {
        runtime.language == language || runtime.aliases.iter().any(|alias| alias == language)
    };
    let means = |runtime: &PistonRuntime| version::satisfies(runtime.version, selector);
    let fitting = all(languages).into_iter().filter(called).filter(means);
    fitting.max_by_key(|runtime| runtime.version)
}

/// Returns an entry of `GET /runtimes`.
pub(super) fn entry(runtime: &PistonRuntime) -> Value {
    let mut entry = json!({
        "language": runtime.language,
        "version": runtime.version.to_string(),
        "aliases": runtime.aliases,
    });
    if let Some(tool) = runtime.runtime {
        entry["runtime"] = tool.into();
    }
    entry
}

/// Returns an entry of `GET /packages`: tools of the host are installed.
pub(super) fn package(runtime: &PistonRuntime) -> Value {
    json!({
        "language": runtime.language,
        "language_version": runtime.version.to_string(),
        "installed": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn language(name: &str, aliases: &[&str], version: &str) -> LanguageView {
        LanguageView {
            name: name.to_owned(),
            aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
            extensions: Vec::new(),
            version: Some(version.to_owned()),
            compiled: false,
            available: true,
            preparing: false,
            reason: None,
        }
    }

    #[test]
    fn java_is_what_starts_a_source_file_where_there_is_one() {
        let both = [language("java", &[], "javac 17.0.1"), language(JAVA_SOURCE, &[], "javac 17")];
        let names = |languages: &[LanguageView]| -> Vec<(String, String)> {
            all(languages).into_iter().map(|it| (it.language, it.cove.name)).collect()
        };
        assert_eq!(names(&both), [("java".to_owned(), JAVA_SOURCE.to_owned())]);
        assert_eq!(names(&both[..1]), [("java".to_owned(), "java".to_owned())]);
    }

    #[test]
    fn runtimes_have_piston_s_names_and_the_tools_versions() {
        let languages = [
            language("cpp", &["c++", "cxx"], "g++ (Debian 12.2.0-14) 12.2.0"),
            language("zig", &["z"], "0.14.1"),
            LanguageView { available: false, ..language("rust", &[], "rustc 1.95.0") },
        ];
        let entries: Vec<Value> = all(&languages).iter().map(entry).collect();
        let expected = json!([
            {"language": "c++", "version": "12.2.0", "aliases": ["cpp", "g++", "cxx"],
             "runtime": "gcc"},
            {"language": "zig", "version": "0.14.1", "aliases": ["z"]},
        ]);
        assert_eq!(Value::Array(entries), expected);
        for (language, selector, found) in [
            ("c++", "*", Some("cpp")),
            ("g++", "12.x", Some("cpp")),
            ("cxx", "^12.1", Some("cpp")),
            ("cpp", "10.2.0", None),
            ("rust", "*", None),
            ("nothing", "*", None),
        ] {
            let chosen = choose(&languages, language, selector).map(|runtime| runtime.cove.name);
            assert_eq!(chosen.as_deref(), found, "{language} {selector}");
        }
    }
}
