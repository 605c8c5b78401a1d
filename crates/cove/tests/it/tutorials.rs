//! The tutorials of `docs/tutorials`, block by block, at a real server: commands run in one shell
//! in an empty directory, and the output is compared with that on the page.
//!
//! Blocks of a page:
//!
//! | block | action of the test |
//! |---|---|
//! | `sh` | none: the server that the reader starts in another terminal runs already |
//! | `console` | runs lines after `$ `, with their continuations; the other lines are their output |
//! | a language and a file's name | writes the file |
//!
//! In output, `…` stands for any words. Ids, times and measured figures are compared by their form.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::{Postgres, Scratch, Server, command, pip_install};

use crate::shared::{COMPAT, finish, interpreter_with};
use crate::support::{COVE, beside_others};

/// Separator between the outputs of two commands.
const MARK: &str = "-- end of command --";
/// Configuration with free ports for the bouncer's listeners.
const SETTINGS: &str = "sandbox.warm_runtimes = false\n\
    [bouncer]\nlisten = \"127.0.0.1:0\"\nmysql.listen = \"127.0.0.1:0\"\n";
/// Units after a measured figure.
const UNITS: &[&str] = &["ms", "s", "MiB", "KiB", "bytes", "bytes)"];

/// A fenced block of a page.
struct Block {
    info: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(info), None) => {
                open = Some(Block { info: info.to_owned(), text: String::new() });
            }
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block without an end");
    blocks
}

/// A command, and its output according to the page.
#[derive(Debug)]
struct Step {
    typed: String,
    output: String,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(typed), _) => {
                steps.push(Step { typed: typed.to_owned(), output: String::new() });
            }
            (None, Some(step)) if step.typed.ends_with('\\') => {
                step.typed.push('\n');
                step.typed.push_str(line);
            }
            (None, Some(step)) => {
                step.output.push_str(line);
                step.output.push('\n');
            }
            (None, None) => panic!("output before a command: {line}"),
        }
    }
    steps
}

/// Returns the form of a word, without the parts that differ between runs.
fn form(word: &str, next: Option<&&str>) -> String {
    let is_code =
        |text: &str| text.chars().all(|it| it.is_ascii_digit() || it.is_ascii_uppercase());
    if let Some((kind, code)) = word.split_once('_')
        && code.len() >= 10
        && is_code(code)
    {
        return format!("{kind}_ID");
    }
    // Id of an Iceberg snapshot: any 63-bit number.
    if word.len() >= 12 && word.chars().all(|it| it.is_ascii_digit()) {
        return "SNAPSHOT".to_owned();
    }
    if word.starts_with("20") && word.ends_with('Z') && word.contains('T') {
        return "TIME".to_owned();
    }
    let figure = word.trim_start_matches('(');
    let unit = next.is_some_and(|next| UNITS.contains(&next.trim_end_matches([',', ')'])));
    match unit && figure.parse::<f64>().is_ok() {
        true => word.replace(figure, "N"),
        false => word.to_owned(),
    }
}

fn forms(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.iter().enumerate().map(|(at, word)| form(word, words.get(at + 1))).collect()
}

/// Returns whether words match those of a page, where `…` stands for any number of words or for the
/// rest of one.
fn fits(page: &[String], found: &[String]) -> bool {
    let Some((first, rest)) = page.split_first() else { return found.is_empty() };
    if first == "…" {
        return (0..=found.len()).any(|skipped| fits(rest, &found[skipped..]));
    }
    let Some((word, behind)) = found.split_first() else { return false };
    let same = match first.strip_suffix('…') {
        Some(beginning) => word.starts_with(beginning),
        None => first == word,
    };
    same && fits(rest, behind)
}

/// Runs a page. `places` are texts of the page and their replacements in this test.
fn run_page(name: &str, server: &Server, places: &[(&str, String)], python: Option<&Path>) {
    let path = Path::new(COMPAT).join("../docs/tutorials").join(name);
    let page = fs::read_to_string(path).unwrap();
    let here =
        |text: &str| places.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let scratch = Scratch::new();
    let programs = scratch.path().join("bin");
    let work = scratch.path().join("work");
    for directory in [&programs, &work] {
        fs::create_dir_all(directory).unwrap();
    }
    symlink(COVE, programs.join("cove")).unwrap();
    let python = python.and_then(Path::parent).map(|it| format!("{}:", it.display()));

    let mut script = "exec 2>&1\n".to_owned();
    let mut all = Vec::new();
    let mut servers = 0;
    for block in blocks(&page) {
        match block.info.split_once(' ') {
            None if block.info == "sh" => {
                assert!(block.text.starts_with("cove "), "{}", block.text);
                servers += 1;
            }
            None if block.info == "console" => {
                for step in steps(&here(&block.text)) {
                    let _ = writeln!(script, "{}\necho; echo '{MARK}'", step.typed);
                    all.push(step);
                }
            }
            Some((_, file)) => {
                // Files are written in the order of the page: an earlier command may create the
                // directory.
                let text = here(&block.text);
                let _ = writeln!(
                    script,
                    "cat > '{file}' <<'-- end of file --'\n{text}-- end of file --"
                );
            }
            None => panic!("{name}: a block that is not run: `{}`", block.info),
        }
    }
    assert!(servers == 1 && all.len() > 8, "{name}: {servers} servers, {} commands", all.len());

    let mut shell = command("bash");
    shell.args(["-c", &script]).current_dir(&work).env("COVE_DATA_DIR", server.data_dir());
    let system = std::env::var_os("PATH").unwrap().to_string_lossy().into_owned();
    let path = format!("{}:{}{system}", programs.display(), python.unwrap_or_default());
    shell.env("PATH", path).env("HOME", &work);
    let printed = finish(&mut shell);
    let found: Vec<&str> = printed.split(&format!("\n{MARK}\n")).collect();
    assert!(found.len() > all.len(), "{name}: {printed}");
    let mut wrong = String::new();
    for (step, output) in all.iter().zip(found) {
        if !fits(&forms(&step.output), &forms(output)) {
            let _ = writeln!(wrong, "$ {}\n{}-- but here\n{output}", step.typed, step.output);
        }
    }
    assert!(wrong.is_empty(), "{name}:\n{wrong}");
}

fn at_http(server: &Server) -> (&'static str, String) {
    ("127.0.0.1:4100", server.listener("http").to_string())
}

#[test]
fn a_tutorial_runs_users_code() {
    let _guard = beside_others();
    let server = Server::start_with(COVE, &[], Some(SETTINGS));
    run_page("run-code.md", &server, &[at_http(&server)], None);
}

#[test]
fn a_tutorial_builds_an_agent() {
    let _guard = beside_others();
    let server = Server::start_with(COVE, &[], Some(SETTINGS));
    run_page("build-agents.md", &server, &[at_http(&server)], None);
}

#[test]
fn a_tutorial_pools_a_database() {
    let _guard = beside_others();
    let postgres = Postgres::start();
    let server = Server::start_with(COVE, &[], Some(SETTINGS));
    let port = server.listener("bouncer").port();
    let places = [
        at_http(&server),
        ("127.0.0.1:5432", postgres.tcp().to_string()),
        ("-p 5432", format!("-p {}", postgres.port())),
        ("PGPORT=6432", format!("PGPORT={port}")),
    ];
    run_page("pool-databases.md", &server, &places, None);
}

#[test]
fn a_tutorial_keeps_tables() {
    let _guard = beside_others();
    let server = Server::start_catalog(COVE, None);
    let python = interpreter_with("iceberg/requirements.txt", "compat-iceberg");
    // The page installs what is there already, by a pip of the environment.
    finish(pip_install(&python).arg("pip"));
    run_page("keep-tables.md", &server, &[at_http(&server)], Some(&python));
}

#[test]
fn output_is_compared_by_its_form() {
    let fits = |page: &str, found: &str| fits(&forms(page), &forms(found));
    assert!(fits(
        "ses_01M8JFA45TBKYB2H27DWZH1CC9 is stopped",
        "ses_01M8JFB1RB4DMESJDB5HK2FEZE  is stopped\n"
    ));
    assert!(fits("TLE (cpu 301.5 ms, memory 3.6 MiB)", "TLE (cpu 9 ms, memory 12 MiB)"));
    assert!(fits("a … d", "a b c d") && fits("cove_…", "cove_x-y") && fits("a …", "a"));
    for (page, found) in
        [("6", "7"), ("", "x"), ("a … d", "a b c"), ("5 rows", "6 rows"), ("a b", "a")]
    {
        assert!(!fits(page, found), "{page} / {found}");
    }
}
