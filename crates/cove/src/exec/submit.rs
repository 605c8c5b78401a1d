//! Parses `cove exec submit` into a request.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use api::{ExecutionRequest, LanguageList, OutputComparison, TestCase, WebhookTarget};
use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::cli::SubmitArgs;
use crate::remote::Remote;
use crate::run::request::{self, KnownLanguages, companion, read_file};
use crate::usage_error::UsageError;
use crate::values::{human_bytes, milliseconds};

/// Maximum number of test cases in one directory.
const TESTS_MAX: usize = 10_000;
/// Maximum bytes of all their files together. Servers accept less and report that themselves.
const TESTS_BYTES_MAX: usize = 256 << 20;

/// Builds the request, with the server's languages.
pub(super) async fn request(args: &SubmitArgs, server: &Remote) -> Result<ExecutionRequest> {
    let mut request = match &args.request {
        Some(path) => {
            let text = read_file(path)?;
            let path_text = path.display();
            serde_json::from_slice(&text)
                .map_err(|error| UsageError(format!("`{path_text}`: {error}")))?
        }
        None => {
            let list: LanguageList = server.call(Method::GET, "/v1/languages").await?;
            program(args, &KnownLanguages::there(list))?
        }
    };
    // Options override the request file.
    request.fresh |= args.fresh;
    if !args.grants.is_empty() {
        request.grants.clone_from(&args.grants);
    }
    request.template = args.program.template.clone().or(request.template);
    request.priority = args.priority.unwrap_or(request.priority);
    request.deadline_ms = args.deadline.map(milliseconds).or(request.deadline_ms);
    if let Some(label) = &args.label {
        request.label = Some(label.clone());
    }
    if let Some(url) = &args.webhook {
        request.webhook = Some(WebhookTarget { url: url.clone(), secret: None });
    }
    Ok(request)
}

/// Builds the request of a program, with its input and tests.
fn program(args: &SubmitArgs, languages: &KnownLanguages) -> Result<ExecutionRequest> {
    let mut request = request::request(&args.program, &args.limits, languages)?;
    if let Some(path) = &args.program.stdin_file {
        if path == Path::new("-") && args.program.file.as_deref() == Some(OsStr::new("-")) {
            let message = "--stdin-file: standard input is the program already";
            return Err(UsageError(message.to_owned()).into());
        }
        (request.stdin, request.stdin_base64) = text_or_base64(read_file(path)?);
    }
    if let Some(path) = &args.tests {
        request.tests = tests(path)?;
    }
    request.comparison = args.comparison.clone();
    if let Some(path) = &args.checker {
        request.comparison = Some(OutputComparison::Checker(Box::new(companion(path, languages)?)));
    }
    if let Some(path) = &args.interactor {
        request.interactor = Some(companion(path, languages)?);
    }
    request.stop_at_first_failure = args.stop_at_first_failure;
    Ok(request)
}

/// Returns bytes for JSON: as text if they are UTF-8.
fn text_or_base64(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(BASE64.encode(error.as_bytes()))),
    }
}

fn tests(path: &Path) -> Result<Vec<TestCase>> {
    let metadata = fs::metadata(path).with_context(|| format!("open `{}`", path.display()))?;
    let tests = if metadata.is_dir() {
        tests_of_directory(path)?
    } else {
        let text = read_file(path)?;
        serde_json::from_slice::<Vec<TestCase>>(&text)
            .map_err(|error| UsageError(format!("--tests: `{}`: {error}", path.display())))?
    };
    if tests.is_empty() {
        let message = format!("--tests: there are no test cases in `{}`", path.display());
        return Err(UsageError(message).into());
    }
    Ok(tests)
}

/// Returns the pairs of `N.in` and `N.out`, in numeric order.
fn tests_of_directory(directory: &Path) -> Result<Vec<TestCase>> {
    let reading = || format!("read `{}`", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        let kind = path.extension().and_then(OsStr::to_str);
        let name = path.file_stem().and_then(OsStr::to_str);
        let (Some(kind @ ("in" | "out")), Some(name)) = (kind, name) else { continue };
        let partner = path.with_extension(if kind == "in" { "out" } else { "in" });
        if !partner.is_file() {
            let (path, partner) = (path.display(), partner.display());
            return Err(UsageError(format!("--tests: `{path}` has no `{partner}`")).into());
        }
        if kind == "in" {
            names.push(name.to_owned());
        }
        if names.len() > TESTS_MAX {
            return Err(UsageError(format!("--tests: more than {TESTS_MAX} test cases")).into());
        }
    }
    names.sort_by_cached_key(|name| counted(name));
    let mut left = TESTS_BYTES_MAX;
    let mut read = |path: PathBuf| -> Result<Vec<u8>> {
        let bytes = read_file(&path)?;
        left = left.checked_sub(bytes.len()).ok_or_else(|| {
            let max = human_bytes(u64::try_from(TESTS_BYTES_MAX).unwrap_or(u64::MAX));
            UsageError(format!("--tests: the files are larger than {max} together"))
        })?;
        Ok(bytes)
    };
    let mut tests = Vec::new();
    for name in names {
        let (stdin, stdin_base64) = text_or_base64(read(directory.join(format!("{name}.in")))?);
        let (expected, expected_base64) =
            text_or_base64(read(directory.join(format!("{name}.out")))?);
        let name = Some(name);
        tests.push(TestCase {
            name,
            stdin,
            stdin_base64,
            expected,
            expected_base64,
            ..TestCase::default()
        });
    }
    Ok(tests)
}

/// Sort key that orders `2` before `10`: digit sequences by value, other text as it is.
fn counted(name: &str) -> Vec<(usize, String)> {
    let mut parts: Vec<(usize, String)> = Vec::new();
    let mut digits = None;
    for character in name.chars() {
        if digits != Some(character.is_ascii_digit()) {
            digits = Some(character.is_ascii_digit());
            parts.push((0, String::new()));
        }
        let Some((length, part)) = parts.last_mut() else { continue };
        // Leading zeros do not count; a number with more digits is larger.
        if character.is_ascii_digit() && (character != '0' || *length > 0) {
            *length += 1;
        }
        if !character.is_ascii_digit() || *length > 0 {
            part.push(character);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    //! Directories of test cases.

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, files: &[(&str, &[u8])]) -> Scratch {
            let id = std::process::id();
            let path = std::env::temp_dir().join(format!("cove-submit-{id}-{name}"));
            fs::create_dir_all(&path).unwrap();
            for (name, content) in files {
                fs::write(path.join(name), content).unwrap();
            }
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn pairs_become_tests_in_the_order_of_counting() {
        let files: [(&str, &[u8]); 7] = [
            ("10.in", b"ten"),
            ("10.out", b"10"),
            ("2.in", b"\xff"),
            ("2.out", b""),
            ("01.in", b"one"),
            ("01.out", b"1"),
            ("README", b"no test"),
        ];
        let scratch = Scratch::new("pairs", &files);
        let tests = super::tests(&scratch.0).unwrap();
        let names: Vec<_> = tests.iter().map(|test| test.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["01", "2", "10"]);
        assert_eq!(tests[0].expected.as_deref(), Some("1"));
        assert_eq!((&tests[1].stdin, tests[1].stdin_base64.as_deref()), (&None, Some("/w==")));
        assert_eq!(tests[1].expected.as_deref(), Some(""));
    }

    #[test]
    fn a_file_without_its_partner_is_a_mistake() {
        for (name, file) in [("in", "1.in"), ("out", "1.out")] {
            let scratch = Scratch::new(name, &[(file, b"")]);
            let message = super::tests(&scratch.0).unwrap_err().to_string();
            assert!(message.contains(file) && message.contains("has no"), "{message}");
        }
        let scratch = Scratch::new("none", &[("x", b"")]);
        assert!(super::tests(&scratch.0).unwrap_err().to_string().contains("no test cases"));
    }

    #[test]
    fn names_sort_as_people_count() {
        let mut names = ["b10", "b9", "a", "b09", "b", "10", "9", "b9x"];
        names.sort_by_cached_key(|name| counted(name));
        assert_eq!(names, ["a", "b", "b9", "b09", "b9x", "b10", "9", "10"]);
    }
}
