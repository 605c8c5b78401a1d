//! SandboxFusion's languages: what runs them here, or why they are not supported.

use api::LanguageView;

use crate::faces::excerpt;

/// Python's unit tests, with pytest.
pub(super) const PYTEST: &str = "pytest";
/// Java with assertions enabled.
pub(super) const JAVA: &str = "java";

/// Language of SandboxFusion, with its equivalent here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FusionLanguage {
    /// SandboxFusion's name.
    pub(super) name: &'static str,
    /// Cove's name, if its built-in table has the language.
    cove: Option<&'static str>,
    /// Compiler arguments that reproduce the behaviour of SandboxFusion.
    pub(super) compile_args: &'static [&'static str],
    /// Stages in SandboxFusion's answers.
    pub(super) stages: FusionStages,
    /// Missing tool, if a language with this name in the table would not be enough.
    needs: &'static str,
}

/// Stages of a language in SandboxFusion's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FusionStages {
    /// `compile_result` and `run_result`.
    Both,
    /// Only `run_result`, even if the program is compiled here.
    RunOnly,
}

/// Reason why a language is not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DialectRefusal {
    /// SandboxFusion has no such language.
    Unknown(String),
    /// The language is known, but this server does not run it.
    NotHere(String),
}

const fn of_table(
    name: &'static str,
    cove: &'static str,
    stages: FusionStages,
    compile_args: &'static [&'static str],
) -> FusionLanguage {
    FusionLanguage { name, cove: Some(cove), compile_args, stages, needs: "" }
}

/// A language that runs if the operator's table has one with the same name.
const fn configured(name: &'static str, stages: FusionStages) -> FusionLanguage {
    FusionLanguage { name, cove: None, compile_args: &[], stages, needs: "" }
}

/// A language that needs more than a compiler or interpreter.
const fn special(name: &'static str, needs: &'static str) -> FusionLanguage {
    FusionLanguage { name, cove: None, compile_args: &[], stages: FusionStages::RunOnly, needs }
}

/// Languages of SandboxFusion's server or its client of version 0.3.7.
const LANGUAGES: [FusionLanguage; 32] = [
    of_table("python", "python", FusionStages::RunOnly, &[]),
    of_table(PYTEST, "python", FusionStages::RunOnly, &[]),
    of_table("cpp", "cpp", FusionStages::Both, &["-std=c++17"]),
    of_table("nodejs", "javascript", FusionStages::RunOnly, &[]),
    of_table("go", "go", FusionStages::Both, &[]),
    of_table(JAVA, "java", FusionStages::Both, &[]),
    of_table("bash", "bash", FusionStages::RunOnly, &[]),
    of_table("typescript", "typescript", FusionStages::RunOnly, &[]),
    // rustc without -O checks arithmetic and `debug_assert!`.
    of_table("rust", "rust", FusionStages::Both, &["-Cdebug-assertions=on"]),
    configured("php", FusionStages::RunOnly),
    configured("csharp", FusionStages::RunOnly),
    configured("lua", FusionStages::RunOnly),
    configured("R", FusionStages::RunOnly),
    configured("perl", FusionStages::RunOnly),
    configured("D_ut", FusionStages::Both),
    configured("ruby", FusionStages::RunOnly),
    configured("scala", FusionStages::Both),
    configured("julia", FusionStages::RunOnly),
    configured("kotlin_script", FusionStages::RunOnly),
    configured("verilog", FusionStages::Both),
    configured("lean", FusionStages::RunOnly),
    configured("swift", FusionStages::Both),
    configured("racket", FusionStages::RunOnly),
    configured("python2", FusionStages::RunOnly),
    configured("gtest", FusionStages::Both),
    special("go_test", "it needs Go's test runner with its modules"),
    special("junit", "it needs JUnit's libraries"),
    special("jest", "it needs Jest and its packages"),
    special("react", "it needs React and its packages"),
    special("sql", "SandboxFusion has no runner for it either"),
    special("cuda", "it needs a GPU, and sandboxes have no devices"),
    special("python_gpu", "it needs a GPU, and sandboxes have no devices"),
];

/// Returns the language of this name, and its equivalent here.
pub(super) fn choose(
    name: &str,
    languages: &[LanguageView],
) -> Result<(FusionLanguage, LanguageView), DialectRefusal> {
    let known = LANGUAGES.iter().find(|language| language.name == name).ok_or_else(|| {
        let names: Vec<&str> = LANGUAGES.iter().map(|language| language.name).collect();
        let message =
            format!("there is no language {:?}; there are {}", excerpt(name), names.join(", "));
        DialectRefusal::Unknown(message)
    })?;
    let wanted = known.cove.unwrap_or(known.name);
    let found = languages
        .iter()
        .find(|it| it.name == wanted)
        .or_else(|| languages.iter().find(|it| it.aliases.iter().any(|alias| alias == wanted)));
    let refuse = |reason: &str| {
        DialectRefusal::NotHere(format!("language `{name}` is not run by this server: {reason}"))
    };
    match found {
        Some(found) if found.available => Ok((*known, found.clone())),
        Some(found) => {
            Err(refuse(found.reason.as_deref().unwrap_or("its tools are not installed")))
        }
        None if !known.needs.is_empty() => Err(refuse(known.needs)),
        None => Err(refuse(
            "its language table has none of this name; `executions.languages` can add one",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(name: &str, alias: &str, available: bool) -> LanguageView {
        LanguageView {
            name: name.to_owned(),
            aliases: vec![alias.to_owned()],
            extensions: Vec::new(),
            version: None,
            compiled: false,
            available,
            preparing: false,
            reason: (!available).then(|| "needs `x`".to_owned()),
        }
    }

    #[test]
    fn languages_are_found_by_sandbox_fusion_s_names() {
        let here = [
            view("python", "py", true),
            view("javascript", "nodejs", true),
            view("go", "golang", false),
            view("php8", "php", true),
            view("jest", "", true),
        ];
        for (name, expected) in [
            ("python", Ok("python")),
            ("pytest", Ok("python")),
            ("nodejs", Ok("javascript")),
            // Languages that the operator has added, by name or alias; even those that need more.
            ("php", Ok("php8")),
            ("jest", Ok("jest")),
            ("go", Err("language `go` is not run by this server: needs `x`")),
            ("ruby", Err("language `ruby` is not run by this server: its language table has none")),
            ("cuda", Err("language `cuda` is not run by this server: it needs a GPU")),
            // Cove's own names are not valid here.
            ("javascript", Err("there is no language \"javascript\"; there are python, pytest, ")),
            ("", Err("there is no language \"\"")),
        ] {
            let found = choose(name, &here);
            match (&found, expected) {
                (Ok((_, cove)), Ok(expected)) => assert_eq!(cove.name, expected, "{name}"),
                (
                    Err(DialectRefusal::Unknown(message) | DialectRefusal::NotHere(message)),
                    Err(expected),
                ) => assert!(message.starts_with(expected), "{name}: {message}"),
                _ => panic!("{name}: {found:?}"),
            }
        }
    }

    #[test]
    fn every_language_is_named_once() {
        let mut names: Vec<&str> = LANGUAGES.iter().map(|language| language.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LANGUAGES.len());
    }

    #[test]
    fn the_page_names_every_language() {
        let page = include_str!("../../../../../docs/compat.md");
        for language in LANGUAGES {
            assert!(page.contains(&format!("`{}`", language.name)), "{}", language.name);
        }
    }
}
