//! The built-in table is consistent, users can extend it, and missing tools are reported.

use super::*;
use crate::testing::{self, ScratchDirectory};

/// Loads `table` in addition to the built-in one; its tools are scripts of `home`.
fn load(home: &ScratchDirectory, table: &str) -> Result<Languages, LoadError> {
    home.write("table.toml", table.as_bytes(), 0o644);
    let host =
        ToolHost { home: Some(home.path().to_owned()), cache: Some(home.path().join("cache")) };
    Languages::load(Some(&home.path().join("table.toml")), &host)
}

fn language(list: &api::LanguageList, name: &str) -> api::LanguageView {
    list.languages.iter().find(|language| language.name == name).unwrap().clone()
}

#[test]
fn the_built_in_table_has_every_promised_language() {
    let languages = Languages::load(None, &ToolHost::default()).unwrap();
    let list = languages.list();
    let names: Vec<&str> = list.languages.iter().map(|language| language.name.as_str()).collect();
    let promised = [
        "bash",
        "c",
        "cpp",
        "go",
        "java",
        "java-source",
        "javascript",
        "multi-file",
        "python",
        "rust",
        "typescript",
    ];
    assert_eq!(names, promised);
    for language in &list.languages {
        // A language is either available or has a reason.
        assert_eq!(language.available, language.reason.is_none(), "{language:?}");
    }
    for (extension, name) in [("py", "python"), ("cc", "cpp"), ("mjs", "javascript")] {
        assert_eq!(languages.by_extension(extension), Some(name));
    }
    assert_eq!(languages.by_extension("xyz"), None);
}

#[test]
fn there_is_an_example_of_every_language() {
    let languages = Languages::load(None, &ToolHost::default()).unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(&examples).unwrap() {
        let path = entry.unwrap().path();
        // Directories also contain files that are not programs.
        let Some(extension) = path.extension() else { continue };
        let extension = extension.to_str().unwrap();
        seen.extend(languages.by_extension(extension).map(str::to_owned));
    }
    // A language that is only recognised by file names has no example of its own.
    let languages = languages.list().languages.into_iter();
    let by_extension = languages.filter(|language| !language.extensions.is_empty());
    let names: BTreeSet<String> = by_extension.map(|language| language.name).collect();
    assert_eq!(seen, names);
    let job = std::fs::read_to_string(examples.join("job.json")).unwrap();
    serde_json::from_str::<api::ExecutionRequest>(&job).unwrap();
}

#[test]
fn nothing_outside_of_usr_is_shown_without_a_home() {
    let languages = Languages::load(None, &ToolHost::default()).unwrap();
    for toolchain in languages.toolchains() {
        assert!(toolchain.source.starts_with("/opt"), "{toolchain:?}");
    }
}

#[tokio::test]
async fn a_user_s_file_adds_and_replaces() {
    let (_home, languages) = testing::languages();
    assert_eq!(languages.choose("sc").await.unwrap().language.name, "script");
    assert!(languages.choose("bash").await.is_ok());
    let names: Vec<String> =
        languages.toolchains().into_iter().map(|toolchain| toolchain.name).collect();
    assert!(names.contains(&"interp".to_owned()) && names.contains(&"compiler".to_owned()));
    assert!(languages.path().starts_with(PATH) && languages.path().contains(":/opt/interp/bin"));

    let home = ScratchDirectory::new();
    let table =
        "[languages.bash]\nentry = \"x\"\nways = [{ version = \"bash\", run = [\"true\"] }]";
    let list = load(&home, table).unwrap().list();
    assert_eq!(language(&list, "bash").aliases, Vec::<String>::new());
}

#[tokio::test]
async fn a_language_that_is_missing_says_what_is_missing() {
    let (_home, languages) = testing::languages();
    let refusal = languages.choose("absent").await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::LanguageUnavailable);
    assert_eq!(
        refusal.message,
        "absent is not available here: `nowhere` is not installed (try `install nowhere`)"
    );
    assert!(!language(&languages.list(), "absent").available);

    let refusal = languages.choose("cobol").await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::UnknownLanguage);
    let refusal = languages.choose(&"x".repeat(1000)).await.unwrap_err();
    assert!(refusal.message.len() < 200, "{}", refusal.message);
}

#[tokio::test]
async fn a_way_whose_tool_is_too_old_is_passed_over() {
    let home = ScratchDirectory::new();
    // The host's own `env` and `echo` serve as tools: their output is their version.
    let table = |oldest: &str| {
        format!(
            r#"
            [tools.old]
            executable = "bin/echo"
            directories = ["/usr"]
            version = ["tool 5.4"]
            [languages.x]
            entry = "x"
            [[languages.x.ways]]
            version = "old"
            run = ["new way"]
            at_least = {{ old = "{oldest}" }}
            [[languages.x.ways]]
            version = "{second}"
            run = ["old way"]
            "#,
            second = if oldest == "9" { "nowhere" } else { "old" },
        ) + "[tools.nowhere]\nexecutable = \"x\"\ndirectories = []\nversion = []\n"
    };
    for (oldest, way) in [("5.4", 0), ("5.5", 1)] {
        let languages = load(&home, &table(oldest)).unwrap();
        let undecided = language(&languages.list(), "x");
        assert!(!undecided.available && undecided.reason.unwrap().contains("not known yet"));
        assert_eq!(languages.choose("x").await.unwrap().way, way, "{oldest}");
        let list = languages.list_with_versions().await;
        assert_eq!(language(&list, "x").version.as_deref(), Some("tool 5.4"));
    }
}

#[tokio::test]
async fn preparing_fills_the_directory_once_and_for_this_tool_only() {
    let home = ScratchDirectory::new();
    let table = r#"
        [tools.maker]
        executable = "bin/cp"
        directories = ["/usr"]
        version = ["--version"]
        [languages.x]
        entry = "x"
        [[languages.x.ways]]
        version = "maker"
        run = ["{prepared}/made"]
        prepare = ["{maker}", "/proc/self/stat", "{prepared}/made"]
        "#;
    let is_preparing = |languages: &Languages| {
        let list = languages.list().languages;
        list.iter().find(|language| language.name == "x").unwrap().preparing
    };
    let languages = load(&home, table).unwrap();
    let program = languages.choose("x").await.unwrap();
    let prepared = program.way().prepared.as_ref().unwrap();
    assert_eq!(prepared.inside(), None);
    // Requests before the preparation begins also see it.
    assert!(!is_preparing(&languages));
    languages.announce_preparation();
    assert!(is_preparing(&languages));
    home.write("cache/x-0-0/old", b"", 0o644);
    home.write("cache/y-0-0/other", b"", 0o644);
    prepared.fill("x", |argv| argv.to_vec()).await;
    assert_eq!(prepared.inside(), Some("/opt/x-prepared"));
    assert!(!is_preparing(&languages));
    // The directory of an older version is removed, those of other languages stay.
    assert!(!home.path().join("cache/x-0-0").exists() && home.path().join("cache/y-0-0").exists());
    let toolchains = languages.toolchains();
    let source = &toolchains.iter().find(|it| it.name == "x-prepared").unwrap().source;
    let made = std::fs::read(source.join("made")).unwrap();

    // The next start finds it ready and does not repeat the work.
    let languages = load(&home, table).unwrap();
    let program = languages.choose("x").await.unwrap();
    let prepared = program.way().prepared.as_ref().unwrap();
    assert_eq!(prepared.inside(), Some("/opt/x-prepared"));
    languages.announce_preparation();
    assert!(!is_preparing(&languages));
    prepared.fill("x", |argv| argv.to_vec()).await;
    assert_eq!(std::fs::read(source.join("made")).unwrap(), made);
}

#[tokio::test]
async fn a_preparation_that_fails_leaves_the_language_usable() {
    let home = ScratchDirectory::new();
    let table = r#"
        [tools.maker]
        executable = "bin/false"
        directories = ["/usr"]
        version = []
        [languages.x]
        entry = "x"
        ways = [{ version = "maker", run = ["{maker}"], prepare = ["{maker}"] }]
        "#;
    let program = load(&home, table).unwrap().choose("x").await.unwrap();
    let prepared = program.way().prepared.as_ref().unwrap();
    prepared.fill("x", |argv| argv.to_vec()).await;
    assert_eq!(prepared.inside(), None);
}

#[test]
fn mistakes_in_a_user_s_file_are_errors_that_name_the_entry() {
    let home = ScratchDirectory::new();
    let with = |fields: &str| format!("[languages.x]\nentry = \"x\"\n{fields}\n");
    for (table, says) in [
        (with("ways = []"), "`languages.x`: needs at least one of `ways`"),
        (with("ways = [{ version = \"bash\", run = [] }]"), "`run` is empty"),
        (
            with("ways = [{ version = \"bash\", run = [\"x\"], compile = [] }]"),
            "`compile` is empty",
        ),
        (with("ways = [{ version = \"bsh\", run = [\"x\"] }]"), "there is no tool `bsh`"),
        (with("ways = [{ version = \"bash\", run = [\"{bsh}\"] }]"), "no tool and no placeholder"),
        (
            with("ways = [{ version = \"bash\", run = [\"x\"], env = { \"1A\" = \"x\" } }]"),
            "cannot be the name of an environment variable",
        ),
        (
            with("aliases = [\"py\"]\nways = [{ version = \"bash\", run = [\"x\"] }]"),
            "the name `py` already belongs to `python`",
        ),
        (
            with("extensions = [\"py\"]\nways = [{ version = \"bash\", run = [\"x\"] }]"),
            "the extension `py` already belongs to `python`",
        ),
        ("[languages.x]\nentry = \"../x\"\nways = []".to_owned(), "entry: must not have"),
        ("[languages.x]\nentry = \"x\"\nwaze = []".to_owned(), "parse language file"),
        (
            "[tools.\"a/b\"]\nexecutable = \"x\"\ndirectories = []\nversion = []".to_owned(),
            "usable as a directory name",
        ),
        (
            "[tools.a]\nexecutable = \"x\"\ndirectories = []\nversion = []\ninterpreter = \"a\""
                .to_owned(),
            "`interpreter` must name another tool",
        ),
    ] {
        let error = load(&home, &table).unwrap_err();
        assert!(error.to_string().contains(says), "{error} has no {says}");
    }
    let missing = Languages::load(Some(Path::new("/nowhere.toml")), &ToolHost::default());
    assert!(matches!(missing, Err(LoadError::Read { .. })));
}
