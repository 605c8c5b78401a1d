//! Requests as data: the plan of each, or the refused field and its message.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::*;
use crate::error::RequestRefusal;
use crate::languages::Languages;
use crate::testing;

const BUDGET: u64 = 4 << 30;

fn config() -> ExecutionsConfig {
    ExecutionsConfig {
        files_max: 5,
        files_bytes_max: 1 << 20,
        stdin_bytes_max: 100,
        ..ExecutionsConfig::default()
    }
}

fn plan(languages: &Languages, request: ExecutionRequest) -> Result<ExecutionPlan, RequestRefusal> {
    let planner = ExecutionPlanner::new(config(), BUDGET, "/bin").unwrap();
    let program = match &request.language {
        Some(name) => Some(at_once(languages.choose(name))?),
        None => None,
    };
    let companion = match (&request.interactor, &request.comparison) {
        (Some(interactor), _) => interactor.language.as_ref(),
        (None, Some(OutputComparison::Checker(checker))) => checker.language.as_ref(),
        (None, _) => None,
    };
    let companion = match companion {
        Some(name) => Some(at_once(languages.choose(name))?),
        None => None,
    };
    planner.plan(request, program.as_ref(), companion.as_ref(), None, None)
}

fn single(plan: &ExecutionPlan) -> &SingleRun {
    match &plan.runs {
        RunPlan::Single(single) => single,
        RunPlan::Cases(..) => panic!("it has test cases"),
    }
}

/// Polls a future that is ready at once: no way of the test's languages depends on a version.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a language is undecided"),
    }
}

fn text(strings: &[Vec<u8>]) -> String {
    strings.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
}

/// One line per stage: `name: argv | env | files | stdin`; the first line has the files.
fn show(plan: &ExecutionPlan) -> String {
    let single = single(plan);
    let stdin = match &single.stdin {
        StdinSource::Empty => String::new(),
        StdinSource::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        StdinSource::Live(_) => "live".to_owned(),
        StdinSource::Handle(_) => "handle".to_owned(),
    };
    let content =
        |file: &WorkspaceFile| String::from_utf8_lossy(&file.content.read().unwrap()).into_owned();
    let files = plan.program.files.iter();
    let files = files.map(|file| format!("{}={}", file.path, content(file)));
    let mut files = files.collect::<Vec<_>>().join(" ");
    let compile = plan.program.compile.as_ref().map(|compile| {
        let ProgramStart { argv, env, .. } = &compile.start;
        let files = std::mem::take(&mut files);
        format!("compile: {} | {} | {files} | \n", text(argv), text(env))
    });
    let ProgramStart { argv, env, .. } = &single.start;
    let run = format!("run: {} | {} | {files} | {stdin}", text(argv), text(env));
    compile.unwrap_or_default() + &run
}

/// `expected` is the output of [`show`], or `field: part of the message`.
fn check(cases: &[(&str, Result<&str, &str>)]) {
    let (_home, languages) = testing::languages();
    for (json, expected) in cases {
        let request: ExecutionRequest = serde_json::from_str(json).unwrap();
        match (plan(&languages, request), expected) {
            (Ok(plan), Ok(expected)) => assert_eq!(show(&plan), *expected, "{json}"),
            (Err(refusal), Err(expected)) => {
                let (field, says) = expected.split_once(": ").unwrap();
                assert_eq!(refusal.field, field, "{json}: {refusal}");
                assert!(refusal.message.contains(says), "{json}: {refusal}");
            }
            (planned, _) => panic!("{json} gave {:?}", planned.as_ref().map(show)),
        }
    }
}

const BASE: &str = "PATH=/bin HOME=/home/user LANG=C.UTF-8";

#[test]
fn requests_become_stages() {
    check(&[
        (r#"{"argv": ["ls", "-l"]}"#, Ok(&format!("run: ls -l | {BASE} |  | "))),
        (
            r#"{"argv": ["ls"], "args": ["x"], "stdin": "in", "files": [{"name": "a/b", "content": "Yg==", "encoding": "base64"}]}"#,
            Ok(&format!("run: ls x | {BASE} | a/b=b | in")),
        ),
        (
            r#"{"argv": ["x"], "env": {"PATH": "/p", "A": "="}, "stdin_base64": "aGk="}"#,
            Ok("run: x | HOME=/home/user LANG=C.UTF-8 A== PATH=/p |  | hi"),
        ),
        (
            r#"{"language": "sc", "source": "s", "args": ["1", "2"]}"#,
            Ok(&format!(
                "run: /opt/interp/bin/interp main.sc 1 2 | {BASE} HEAP=384 MODE=script LIBS=/opt/interp/lib | main.sc=s | "
            )),
        ),
        (
            r#"{"language": "script", "source": "", "env": {"MODE": "x"}}"#,
            Ok(&format!(
                "run: /opt/interp/bin/interp main.sc | {BASE} HEAP=384 LIBS=/opt/interp/lib MODE=x | main.sc= | "
            )),
        ),
        (
            r#"{"language": "built", "files": [{"name": "x", "content": "1"}, {"name": "h.h", "content": "2"}, {"name": "-y.bt", "content": "3"}], "args": ["a"], "env": {"E": "1"}, "stdin": ""}"#,
            Ok(&format!(
                "compile: /opt/compiler/bin/compiler -o program x ./-y.bt | {BASE} ROOT=/opt/compiler | x=1 h.h=2 -y.bt=3 | \n\
                 run: ./program a | {BASE} E=1 |  | "
            )),
        ),
    ]);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    check(&[
        ("{}", Err("language: either language or argv")),
        (r#"{"language": "sc", "argv": ["x"], "source": ""}"#, Err("argv: exclude each other")),
        (r#"{"language": "cobol", "source": ""}"#, Err("language: no language \"cobol\"")),
        (r#"{"language": "absent", "source": ""}"#, Err("language: not available here")),
        (r#"{"language": "sc"}"#, Err("source: either source or files")),
        (
            r#"{"language": "sc", "source": "", "files": [{"name": "main.sc", "content": ""}]}"#,
            Err("files[0].name: the source becomes"),
        ),
        (r#"{"argv": []}"#, Err("argv: must begin with")),
        (r#"{"argv": [""]}"#, Err("argv: must begin with")),
        (r#"{"argv": ["x"], "source": ""}"#, Err("source: needs a language")),
        (r#"{"argv": ["x"], "stdin": "", "stdin_base64": ""}"#, Err("stdin: specified twice")),
        (r#"{"argv": ["x"], "stdin_base64": "!"}"#, Err("stdin_base64: is not base64")),
        (r#"{"argv": ["x", "a\u0000b"]}"#, Err("argv[1]: NUL")),
        (r#"{"argv": ["x"], "args": ["\u0000"]}"#, Err("args[0]: NUL")),
        (r#"{"argv": ["x"], "env": {"A": "\u0000"}}"#, Err("env.A: NUL")),
        (r#"{"argv": ["x"], "env": {"": "1"}}"#, Err("env: cannot be the name")),
        (r#"{"argv": ["x"], "env": {"A=B": "1"}}"#, Err("env: cannot be the name")),
        (r#"{"argv": ["x"], "env": {"1A": "1"}}"#, Err("env: cannot be the name")),
    ]);
}

#[test]
fn limits_are_checked_and_named() {
    check(&[
        (r#"{"argv": ["x"], "limits": {"cpu_ms": 0}}"#, Err("limits.cpu_ms: must be at least 1")),
        (
            r#"{"argv": ["x"], "limits": {"wall_ms": 18446744073709551615}}"#,
            Err("limits.wall_ms: must be at most 300000"),
        ),
        (
            r#"{"argv": ["x"], "limits": {"memory_bytes": 5000000000}}"#,
            Err("limits.memory_bytes: must be at most 4294967296"),
        ),
        (
            r#"{"language": "sc", "source": "", "compile_limits": {"processes": 0}}"#,
            Err("compile_limits.processes: must be at least 1"),
        ),
    ]);
    let (_home, languages) = testing::languages();
    let request = |language: &str| ExecutionRequest {
        language: Some(language.to_owned()),
        source: Some(String::new()),
        ..Default::default()
    };
    let planned = plan(&languages, request("built")).unwrap();
    let compile = planned.program.compile.as_ref().unwrap().start.limits.memory_bytes;
    assert!(compile > single(&planned).start.limits.memory_bytes);
    assert_eq!(planned.memory_bytes, compile);
    let planned = plan(&languages, request("sc")).unwrap();
    assert_eq!(single(&planned).start.limits.processes, 7);
}

#[test]
fn files_stay_inside_and_apart() {
    let file = |name: &str| {
        let name = serde_json::to_string(name).unwrap();
        format!(r#"{{"argv": ["x"], "files": [{{"name": {name}, "content": ""}}]}}"#)
    };
    let long_part = "a".repeat(256);
    let long = vec!["a".repeat(254); 16].join("/") + "/b";
    let deep = vec!["a"; 17].join("/");
    for (name, says) in [
        ("", "is empty"),
        ("/etc/passwd", "must be relative"),
        ("../x", "`.` or `..`"),
        ("a/../../x", "`.` or `..`"),
        ("a/..", "`.` or `..`"),
        (".", "`.` or `..`"),
        ("./a", "`.` or `..`"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
        ("a\0b", "NUL"),
        (&long_part, "more than 255 bytes"),
        (&deep, "more than 16 parts"),
    ] {
        check(&[(&file(name), Err(&format!("files[0].name: {says}")))]);
        let name = serde_json::to_string(name).unwrap();
        let outputs = format!(r#"{{"argv": ["x"], "outputs": ["ok", {name}]}}"#);
        check(&[(&outputs, Err(&format!("outputs[1]: {says}")))]);
    }
    assert_eq!(check_path(&long), Err("has more than 16 parts"));
    assert_eq!(check_path(&"a".repeat(5000)), Err("is longer than 4084 bytes"));
    for name in ["...", "..a", "a..", "-rf", "\n", "a b", "ü", &"a".repeat(255), &deep[2..]] {
        assert_eq!(check_path(name), Ok(()), "{name:?}");
    }
    check(&[
        (
            r#"{"argv": ["x"], "files": [{"name": "a", "content": ""}, {"name": "a", "content": ""}]}"#,
            Err("files[1].name: earlier one"),
        ),
        (
            r#"{"argv": ["x"], "files": [{"name": "a/b/c", "content": ""}, {"name": "a/b", "content": ""}]}"#,
            Err("files[0].name: needs a directory"),
        ),
        (
            r#"{"argv": ["x"], "files": [{"name": "a", "content": ""}, {"name": "a/b", "content": ""}]}"#,
            Err("files[1].name: needs a directory"),
        ),
        (
            r#"{"argv": ["x"], "files": [{"name": "a", "content": "AAA", "encoding": "base64"}]}"#,
            Err("files[0].content: is not base64"),
        ),
        (r#"{"argv": ["x"], "outputs": ["a", "a"]}"#, Err("outputs[1]: earlier one")),
    ]);
}

#[test]
fn sizes_are_limited_and_the_limit_is_named() {
    let (_home, languages) = testing::languages();
    let refused = |request: ExecutionRequest| {
        let refusal = plan(&languages, request).unwrap_err();
        (refusal.field.clone(), refusal.message)
    };
    let argv =
        |arguments: Vec<String>| ExecutionRequest { argv: Some(arguments), ..Default::default() };
    let x = || argv(vec!["x".to_owned()]);
    let file = |name: String, bytes: usize| SourceFile {
        name,
        content: "c".repeat(bytes),
        ..Default::default()
    };
    let script = |source: String| ExecutionRequest {
        language: Some("sc".to_owned()),
        source: Some(source),
        ..Default::default()
    };

    let too_many_args = argv(vec!["x".to_owned(); 20_000]);
    let too_long_args =
        ExecutionRequest { args: vec!["a".repeat(131_072)], ..script(String::new()) };
    let too_long_env =
        ExecutionRequest { env: [("A".to_owned(), "a".repeat(131_072))].into(), ..x() };
    let too_many_files = ExecutionRequest {
        files: (0..6).map(|number| file(number.to_string(), 0)).collect(),
        ..x()
    };
    let too_large_files = ExecutionRequest {
        files: vec![file("a".to_owned(), 1 << 19), file("b".to_owned(), (1 << 19) + 1)],
        ..x()
    };
    let too_long_stdin = ExecutionRequest { stdin: Some("i".repeat(101)), ..x() };
    let too_many_outputs =
        ExecutionRequest { outputs: (0..65).map(|number| number.to_string()).collect(), ..x() };
    let no_disk = ExecutionRequest {
        files: vec![file("a".to_owned(), 65_537)],
        limits: LimitSpec { disk_bytes: Some(65_536), ..Default::default() },
        ..x()
    };
    let no_inodes = ExecutionRequest {
        files: (0..5).map(|n| file(format!("{n}/b/c/d"), 0)).collect(),
        limits: LimitSpec { disk_inodes: Some(35), ..Default::default() },
        ..x()
    };
    for (request, field, says) in [
        (too_many_args, "argv", "at most 131072 bytes"),
        (too_long_args, "args", "at most 131072 bytes"),
        (too_long_env, "env", "at most 131072 bytes"),
        (too_many_files, "files", "at most 5 files"),
        (too_large_files, "files", "at most 1048576 bytes"),
        (script("s".repeat((1 << 20) + 1)), "source", "at most 1048576 bytes"),
        (too_long_stdin, "stdin", "at most 100 bytes"),
        (too_many_outputs, "outputs", "at most 64 output files"),
        (no_disk, "limits.disk_bytes", "need 69632"),
        (no_inodes, "limits.disk_inodes", "need 36"),
    ] {
        let (at, message) = refused(request);
        assert_eq!(at, field, "{message}");
        assert!(message.contains(says), "{field}: {message}");
    }
}

#[test]
fn live_input_takes_the_place_of_the_request_s() {
    let (_home, _languages) = testing::languages();
    let planner = ExecutionPlanner::new(config(), BUDGET, "/bin").unwrap();
    let request = || ExecutionRequest { argv: Some(vec!["x".to_owned()]), ..Default::default() };
    let (_sender, receiver) = tokio::sync::mpsc::channel(1);
    let plan =
        planner.plan(request(), None, None, Some(StdinSource::Live(receiver)), None).unwrap();
    assert!(matches!(single(&plan).stdin, StdinSource::Live(_)));
    let both = ExecutionRequest { stdin: Some(String::new()), ..request() };
    let refusal = planner.plan(both, None, None, Some(StdinSource::Empty), None).unwrap_err();
    assert_eq!(refusal.field, "stdin");
}

#[test]
fn a_configuration_beyond_the_engine_is_refused() {
    let config = ExecutionsConfig { outputs_max: 65, ..ExecutionsConfig::default() };
    let error = ExecutionPlanner::new(config, BUDGET, "/bin").unwrap_err();
    assert!(error.to_string().contains("outputs_max is above 64"));
}

/// Names composed of dangerous parts.
fn name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        1 => Just(String::new()),
        1 => Just(".".to_owned()),
        1 => Just("..".to_owned()),
        1 => Just("a\0".to_owned()),
        3 => Just("-".to_owned()),
        3 => Just("ü".repeat(127)),
        1 => Just("ü".repeat(128)),
        30 => "[a-d]{1,2}",
        5 => "\\PC{1,4}",
    ];
    proptest::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))
}

fn request() -> impl Strategy<Value = ExecutionRequest> {
    let word =
        prop_oneof![1 => Just(String::new()), 1 => Just("\0".to_owned()), 20 => "[a-z]{1,3}"];
    let arguments = proptest::collection::vec(word, 0..4);
    let file = (name(), "(AAAA){0,2}[a-z]{0,1}", any::<bool>(), any::<bool>()).prop_map(
        |(name, content, base64, executable)| SourceFile {
            name,
            content,
            encoding: if base64 { BytesEncoding::Base64 } else { BytesEncoding::Utf8 },
            executable,
        },
    );
    let number = proptest::option::weighted(0.2, prop_oneof![0..100_000_u64, any::<u64>()]);
    let limits = (number.clone(), number.clone(), number).prop_map(|(cpu, memory, inodes)| {
        LimitSpec { cpu_ms: cpu, memory_bytes: memory, disk_inodes: inodes, ..Default::default() }
    });
    let language =
        prop_oneof![8 => Just("sc"), 8 => Just("built"), 1 => Just("absent"), 1 => Just("?")];
    let program = (
        proptest::option::of(language.prop_map(str::to_owned)),
        proptest::option::weighted(0.3, arguments.clone()),
        proptest::option::of("[a-z]{0,3}"),
        proptest::collection::vec(file, 0..3),
    );
    (program, arguments, proptest::collection::vec(name(), 0..3), limits).prop_map(
        |((language, argv, source, files), args, outputs, limits)| ExecutionRequest {
            language,
            argv,
            source,
            files,
            args,
            outputs,
            limits,
            ..Default::default()
        },
    )
}

proptest! {
    #[test]
    fn an_accepted_path_stays_below_its_directory(path in name()) {
        if check_path(&path).is_ok() {
            let below = std::path::Path::new(&path).components().collect::<Vec<_>>();
            let parts = path.split('/').count();
            prop_assert_eq!(below.len(), parts);
            for part in below {
                prop_assert!(matches!(part, std::path::Component::Normal(_)));
            }
            prop_assert!(std::ffi::CString::new(path).is_ok());
        }
    }
}

#[test]
fn an_accepted_request_leaves_nothing_to_check() {
    let (_home, languages) = testing::languages();
    let accepted = std::cell::Cell::new(0);
    let config = ProptestConfig { cases: 4096, failure_persistence: None, ..Default::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let outcome = runner.run(&request(), |request| {
        let outputs = request.outputs.clone();
        match plan(&languages, request) {
            Err(refusal) => prop_assert!(!refusal.field.is_empty() && !refusal.message.is_empty()),
            Ok(plan) => {
                accepted.set(accepted.get() + 1);
                prop_assert_eq!(&single(&plan).outputs, &outputs);
                prop_assert!(plan.memory_bytes <= BUDGET);
                check_plan(&plan)?;
            }
        }
        Ok(())
    });
    outcome.unwrap();
    // A generator that never makes a valid request proves nothing.
    assert!(accepted.get() > 200, "only {} accepted", accepted.get());
}

fn check_plan(plan: &ExecutionPlan) -> Result<(), TestCaseError> {
    let compile = plan.program.compile.as_ref().map(|compile| &compile.start);
    for start in compile.into_iter().chain([&single(plan).start]) {
        prop_assert!(start.argv.first().is_some_and(|program| !program.is_empty()));
        for word in start.argv.iter().chain(&start.env) {
            prop_assert!(!word.contains(&0));
        }
        prop_assert!(start.limits.memory_bytes <= plan.memory_bytes);
        prop_assert!(!start.limits.cpu.is_zero() && !start.limits.wall.is_zero());
    }
    for file in &plan.program.files {
        prop_assert!(check_path(&file.path).is_ok());
    }
    Ok(())
}

#[test]
fn what_excludes_each_other_is_refused_by_name() {
    let tests = r#""argv": ["x"], "tests": [{"expected": ""}]"#;
    let interactor = r#""argv": ["x"], "interactor": {"argv": ["y"]}"#;
    for (base, rest, expected) in [
        (tests, r#""stdin": """#, "stdin: cannot be combined with tests"),
        (tests, r#""stdin_base64": """#, "stdin_base64: cannot be combined with tests"),
        (tests, r#""outputs": ["a"]"#, "outputs: cannot be combined with tests"),
        (tests, r#""interactive": true"#, "interactive: cannot be combined with tests"),
        (tests, r#""terminal": {"rows": 1, "cols": 1}"#, "terminal: cannot be combined with tests"),
        (interactor, r#""stdin": """#, "stdin: cannot be combined with interactor"),
        (interactor, r#""interactive": true"#, "interactive: cannot be combined with interactor"),
        (interactor, r#""merge_stderr": true"#, "merge_stderr: cannot be combined with interactor"),
        (
            interactor,
            r#""comparison": {"mode": "exact"}"#,
            "comparison: cannot be combined with interactor",
        ),
        (r#""argv": ["x"]"#, r#""comparison": {"mode": "exact"}"#, "comparison: needs tests"),
        (
            r#""argv": ["x"]"#,
            r#""comparison": {"mode": "checker", "argv": ["c"]}"#,
            "comparison: needs tests",
        ),
        (
            r#""argv": ["x"], "tests": [{}]"#,
            r#""comparison": {"mode": "tokens"}"#,
            "comparison: needs a test with expected output",
        ),
        (r#""argv": ["x"]"#, r#""stop_at_first_failure": true"#, "stop_at_first_failure: needs"),
        (
            r#""argv": ["x"], "interactive": true"#,
            r#""stdin": """#,
            "stdin: cannot be combined with interactive",
        ),
        (
            r#""argv": ["x"], "terminal": {"rows": 1, "cols": 1}"#,
            r#""stdin_base64": """#,
            "stdin_base64: cannot be combined with terminal",
        ),
        (r#""argv": ["x"]"#, r#""terminal": {"rows": 0, "cols": 80}"#, "terminal.rows: from 1"),
        (r#""argv": ["x"]"#, r#""terminal": {"rows": 1, "cols": 1001}"#, "terminal.cols: to 1000"),
        (r#""argv": ["x"]"#, r#""priority": 101"#, "priority: from -100 to 100"),
        (r#""argv": ["x"]"#, r#""priority": -101"#, "priority: from -100 to 100"),
        (r#""argv": ["x"]"#, r#""deadline_ms": 0"#, "deadline_ms: at least 1"),
        (r#""argv": ["x"]"#, r#""label": "a\nb""#, "label: control character"),
        (r#""argv": ["x"]"#, r#""webhook": {"url": ""}"#, "webhook.url: from 1 to 2048"),
        (r#""argv": ["x"]"#, r#""webhook": {"url": "u", "secret": ""}"#, "webhook.secret: from 1"),
        (r#""argv": ["x"]"#, r#""compile_args": ["-g"]"#, "compile_args: nothing is compiled"),
        (
            r#""language": "sc", "source": """#,
            r#""compile_args": ["-g"]"#,
            "compile_args: nothing is compiled",
        ),
        (
            r#""language": "made", "source": """#,
            r#""compile_args": ["-g", "\u0000"]"#,
            "compile_args[1]: NUL",
        ),
    ] {
        check(&[(&format!("{{{base}, {rest}}}"), Err(expected))]);
    }
    let label = format!(r#"{{"argv": ["x"], "label": "{}"}}"#, "ü".repeat(257));
    check(&[(&label, Err("label: at most 256"))]);
    check(&[(
        r#"{"argv": ["x"], "priority": -100, "deadline_ms": 1, "label": "ü", "terminal": {"rows": 1, "cols": 1000}}"#,
        Ok(&format!("run: x | {BASE} |  | ")),
    )]);
    check(&[(
        r#"{"language": "made", "source": "", "compile_args": ["-g"]}"#,
        Ok(&format!(
            "compile: /opt/compiler/bin/compiler -g main.mk | {BASE} | main.mk= | \n\
             run: ./program | {BASE} |  | "
        )),
    )]);
}

#[test]
fn test_cases_and_judges_are_checked_with_their_place() {
    let tests = |test: &str| format!(r#"{{"argv": ["x"], "tests": [{{}}, {test}]}}"#);
    for (test, expected) in [
        (r#"{"stdin": "", "stdin_base64": ""}"#, "tests[1].stdin: specified twice"),
        (r#"{"expected": "", "expected_base64": ""}"#, "tests[1].expected: specified twice"),
        (r#"{"expected_base64": "AAA"}"#, "tests[1].expected_base64: is not base64"),
        (r#"{"limits": {"cpu_ms": 0}}"#, "tests[1].limits.cpu_ms: at least 1"),
        (r#"{"args": ["a", "\u0000"]}"#, "tests[1].args[1]: NUL"),
        (r#"{"name": "\u0007"}"#, "tests[1].name: control character"),
    ] {
        check(&[(&tests(test), Err(expected))]);
    }
    check(&[
        (&tests(&format!(r#"{{"stdin": "{}"}}"#, "i".repeat(101))), Err("tests[1].stdin: at most")),
        (
            &tests(&format!(r#"{{"args": ["{}"]}}"#, "a".repeat(140_000))),
            Err("tests[1].args: at most 131072"),
        ),
        (
            r#"{"language": "built", "source": "", "tests": [{}]}"#,
            Err("language: does not say what compiling makes"),
        ),
        (
            r#"{"argv": ["x"], "tests": [{"expected": ""}], "comparison": {"mode": "float", "relative": -1}}"#,
            Err("comparison.relative: non-negative"),
        ),
        (
            r#"{"argv": ["x"], "tests": [{}], "comparison": {"mode": "checker"}}"#,
            Err("comparison.language: either language or argv"),
        ),
        (
            r#"{"argv": ["x"], "tests": [{}], "comparison": {"mode": "checker", "argv": ["c"], "files": [{"name": "answer.txt", "content": ""}]}}"#,
            Err("comparison.files[0].name: file that Cove adds"),
        ),
        (
            r#"{"argv": ["x"], "interactor": {"argv": ["c"], "limits": {"wall_ms": 0}}}"#,
            Err("interactor.limits.wall_ms: at least 1"),
        ),
        (
            r#"{"argv": ["x"], "interactor": {"argv": ["c"], "limits": {"memory_bytes": 4294967296}}}"#,
            Err("interactor.limits.memory_bytes: together"),
        ),
        (
            r#"{"argv": ["x"], "interactor": {"language": "built", "source": ""}}"#,
            Err("interactor.language: does not say"),
        ),
    ]);
    let (_home, languages) = testing::languages();
    let refused = |config: ExecutionsConfig, tests: Vec<TestCase>| {
        let request =
            ExecutionRequest { argv: Some(vec!["x".to_owned()]), tests, ..Default::default() };
        let planner = ExecutionPlanner::new(config, BUDGET, "/bin").unwrap();
        let refusal = planner.plan(request, None, None, None, None).unwrap_err();
        (refusal.field, refusal.message)
    };
    let many = ExecutionsConfig { tests_max: 2, ..ExecutionsConfig::default() };
    let (field, message) = refused(many, vec![TestCase::default(); 3]);
    assert!(field == "tests" && message.contains("at most 2 test cases"), "{field}: {message}");
    let long = ExecutionsConfig { tests_bytes_max: 5, ..ExecutionsConfig::default() };
    let test =
        TestCase { stdin: Some("abc".into()), expected: Some("de".into()), ..Default::default() };
    let (field, message) =
        refused(long, vec![test, TestCase { stdin: Some("x".into()), ..Default::default() }]);
    assert!(field == "tests" && message.contains("at most 5 bytes"), "{field}: {message}");
    drop(languages);
}

#[test]
fn test_cases_differ_from_the_request_where_they_say_so() {
    let (_home, languages) = testing::languages();
    let request = r#"{"language": "sc", "source": "", "args": ["a"], "limits": {"cpu_ms": 100, "processes": 3},
        "tests": [{"stdin": "in", "expected_base64": "/w=="},
                  {"name": "n", "args": ["b", "c"], "limits": {"cpu_ms": 50, "memory_bytes": 2147483648}}],
        "stop_at_first_failure": true,
        "comparison": {"mode": "checker", "language": "sc", "source": "s", "args": ["strict"]}}"#;
    let plan = plan(&languages, serde_json::from_str(request).unwrap()).unwrap();
    let RunPlan::Cases(cases, CasePolicy::WhileOk) = &plan.runs else { panic!("{:?}", plan.runs) };
    let [one, two] = &**cases else { panic!("two cases") };
    assert_eq!((one.name.as_str(), two.name.as_str()), ("1", "n"));
    assert_eq!((&*one.stdin, one.expected.as_deref()), (&b"in"[..], Some(&b"\xff"[..])));
    assert!(text(&one.start.argv).ends_with("main.sc a"), "{one:?}");
    assert!(text(&two.start.argv).ends_with("main.sc b c"), "{two:?}");
    assert!(text(&two.start.env).contains("HEAP=1536"), "{two:?}");
    let limits =
        |case: &TestCasePlan| (case.start.limits.cpu.as_millis(), case.start.limits.processes);
    assert_eq!((limits(one), limits(two)), ((100, 3), (50, 3)));
    let JudgePlan::Checker(_, start) = &plan.judge else { panic!("{:?}", plan.judge) };
    assert!(text(&start.argv).ends_with("main.sc strict input.txt output.txt answer.txt"));
    assert_eq!(plan.memory_bytes, 2 << 30);
}

#[test]
fn a_program_and_its_interactor_are_admitted_together() {
    let (_home, languages) = testing::languages();
    let request = r#"{"argv": ["x"], "limits": {"memory_bytes": 1073741824, "wall_ms": 30000},
        "interactor": {"argv": ["y"], "limits": {"memory_bytes": 2147483648}}}"#;
    let plan = plan(&languages, serde_json::from_str(request).unwrap()).unwrap();
    assert_eq!(plan.memory_bytes, 3 << 30);
    let JudgePlan::Interactor(_, start) = &plan.judge else { panic!("{:?}", plan.judge) };
    assert_eq!(start.limits.wall, Duration::from_secs(30) + PEER_GRACE);
}
