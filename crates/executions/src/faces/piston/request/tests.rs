//! One table of bodies and their errors, one of bodies and their executions.

use serde_json::json;

use super::*;

fn languages() -> Vec<LanguageView> {
    let language = |name: &str, extension: &str, version: &str, compiled| LanguageView {
        name: name.to_owned(),
        aliases: Vec::new(),
        extensions: vec![extension.to_owned()],
        version: Some(version.to_owned()),
        compiled,
        available: true,
        preparing: false,
        reason: None,
    };
    vec![
        language("python", "py", "Python 3.11.7", false),
        language("c", "c", "gcc 12.2.0", true),
        LanguageView {
            extensions: Vec::new(),
            ..language("java-source", "java", "javac 17.0.1", false)
        },
    ]
}

fn parsed(body: &Value) -> Result<PistonJob, String> {
    let config = PistonConfig { run_memory_limit: Some(1000), ..PistonConfig::default() };
    parse(body, &languages(), &config)
}

/// Returns a valid body with some fields replaced.
fn body(changes: Value) -> Value {
    let mut body =
        json!({"language": "python", "version": "3.x", "files": [{"content": "print(1)"}]});
    for (name, value) in changes.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn complaints_are_piston_s() {
    let many = "x".repeat(100);
    for (body, message) in [
        (json!([]), "language is required as a string"),
        (json!("text"), "language is required as a string"),
        (json!({}), "language is required as a string"),
        (body(json!({"language": 3})), "language is required as a string"),
        (body(json!({"language": ""})), "language is required as a string"),
        (body(json!({"version": null})), "version is required as a string"),
        (body(json!({"version": 3})), "version is required as a string"),
        (body(json!({"files": null})), "files is required as an array"),
        (body(json!({"files": {"content": ""}})), "files is required as an array"),
        (
            body(json!({"files": [{"content": "x"}, {"name": "y"}]})),
            "files[1].content is required as a string",
        ),
        (body(json!({"files": ["x"]})), "files[0].content is required as a string"),
        (body(json!({"files": [{"content": 1}]})), "files[0].content is required as a string"),
        (body(json!({"language": "cobol"})), "cobol-3.x runtime is unknown"),
        (body(json!({"version": "2.x"})), "python-2.x runtime is unknown"),
        (body(json!({"language": many})), &format!("{}-3.x runtime is unknown", &many[..64])),
        (body(json!({"files": []})), "files must include at least one utf8 encoded file"),
        (
            body(json!({"files": [{"content": "", "encoding": "base64"}]})),
            "files must include at least one utf8 encoded file",
        ),
        (body(json!({"run_timeout": "5"})), "If specified, run_timeout must be a number"),
        (body(json!({"run_timeout": []})), "If specified, run_timeout must be a number"),
        (
            body(json!({"run_timeout": 3001})),
            "run_timeout cannot exceed the configured limit of 3000",
        ),
        (
            body(json!({"run_timeout": 1e300})),
            "run_timeout cannot exceed the configured limit of 3000",
        ),
        (
            body(json!({"compile_timeout": 10001})),
            "compile_timeout cannot exceed the configured limit of 10000",
        ),
        (
            body(json!({"run_cpu_time": 3000.5})),
            "run_cpu_time cannot exceed the configured limit of 3000",
        ),
        (
            body(json!({"run_memory_limit": 1001})),
            "run_memory_limit cannot exceed the configured limit of 1000",
        ),
        (body(json!({"run_timeout": -1})), "run_timeout must be non-negative"),
        (body(json!({"run_cpu_time": -0.5})), "run_cpu_time must be non-negative"),
        (body(json!({"compile_memory_limit": -2})), "compile_memory_limit must be non-negative"),
        (
            body(json!({"compile_memory_limit": 1e300})),
            "If specified, compile_memory_limit must be a number",
        ),
        (body(json!({"args": "x"})), "If specified, args must be an array"),
        (body(json!({"args": [null]})), "args[0] must be a string"),
        (body(json!({"stdin": 5})), "If specified, stdin must be a string"),
        (body(json!({"files": [{"content": "", "name": 5}]})), "files[0].name must be a string"),
        (
            body(json!({"files": [{"content": ""}, {"content": "%", "encoding": "base64"}]})),
            "files[1].content is not base64",
        ),
        (
            body(json!({"files": [{"content": ""}, {"content": "abc", "encoding": "hex"}]})),
            "files[1].content is not hex",
        ),
    ] {
        assert_eq!(parsed(&body).unwrap_err(), message, "{body}");
    }
}

#[test]
fn limits_come_from_the_body_or_the_configuration() {
    for (changes, run, compile) in [
        (json!({}), (Some(3000), Some(3000), Some(1000)), (Some(10_000), Some(10_000), None)),
        (
            json!({"run_timeout": 7.2, "run_cpu_time": 5, "run_memory_limit": 6}),
            (Some(8), Some(5), Some(6)),
            (Some(10_000), Some(10_000), None),
        ),
        (
            json!({"run_timeout": 0, "run_memory_limit": -1, "compile_memory_limit": 77,
                   "compile_timeout": null, "compile_cpu_time": 1}),
            (Some(3000), Some(3000), Some(1000)),
            (Some(10_000), Some(1), Some(77)),
        ),
    ] {
        let request = parsed(&body(changes)).unwrap().request;
        let figures = |limits: LimitSpec| (limits.wall_ms, limits.cpu_ms, limits.memory_bytes);
        assert_eq!((figures(request.limits), figures(request.compile_limits)), (run, compile));
    }
}

#[test]
fn files_have_names_and_the_main_one_is_in_front() {
    for (language, files, expected) in [
        ("python", json!([{"content": "a"}]), vec![("main.py", "a")]),
        ("java", json!([{"content": "a"}]), vec![("Main.java", "a")]),
        ("python", json!([{"name": "code", "content": "a"}]), vec![("code", "a")]),
        ("c", json!([{"name": "code", "content": "a"}]), vec![("code.c", "a")]),
        ("c", json!([{"name": "x.c", "content": "a"}]), vec![("x.c", "a")]),
        (
            "python",
            json!([{"content": "YQ==", "encoding": "base64"},
                   {"content": "a", "encoding": "latin1", "name": "./p//m.py"},
                   {"content": "62", "encoding": "hex", "name": "d/b"}, {"content": "c"}]),
            vec![("p/m.py", "a"), ("file0.code", "YQ=="), ("d/b", "Yg=="), ("file3.code", "c")],
        ),
        ("python", json!([{"name": "/etc/x", "content": "a"}]), vec![("/etc/x", "a")]),
    ] {
        let job = parsed(&body(json!({"language": language, "version": "*", "files": files})));
        let files = job.unwrap().request.files;
        let seen: Vec<_> = files.iter().map(|it| (it.name.as_str(), it.content.as_str())).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn input_ends_a_line_and_arguments_are_words() {
    for (changes, stdin, args) in [
        (json!({}), "\n", vec![]),
        (json!({"stdin": null, "args": null}), "\n", vec![]),
        (json!({"stdin": "a", "args": ["x y", 5]}), "a\n", vec!["x y", "5"]),
        (json!({"stdin": "a\n\n"}), "a\n\n", vec![]),
    ] {
        let request = parsed(&body(changes)).unwrap().request;
        assert_eq!(
            (request.stdin.as_deref(), request.args),
            (Some(stdin), args.iter().map(|&it: &&str| it.to_owned()).collect())
        );
    }
    let job = parsed(&body(json!({}))).unwrap();
    assert_eq!(job.request.env["PISTON_LANGUAGE"], "python");
}

#[test]
fn what_cove_refuses_is_told_in_piston_s_names() {
    for (field, message, expected) in [
        (
            "limits.wall_ms",
            "must be at most 300000 on this server",
            "run_timeout cannot exceed the configured limit of 300000",
        ),
        (
            "compile_limits.memory_bytes",
            "must be at least 4194304",
            "compile_memory_limit must be at least 4194304",
        ),
        ("files[0].name", "is absolute", "files[0].name is absolute"),
        ("", "no", "no"),
    ] {
        assert_eq!(refusal(&RequestRefusal::invalid(field, message)), expected);
    }
}
