//! The result document of honest requests: verdicts and their precedence, languages, argv, files,
//! standard input, environment, outputs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::{Client, Scratch, Server, until};

use crate::cases::{bytes, consistency};
use crate::support::{COVE, beside_others, run, serve, shell};

/// Time limit for compiling a part of Go's standard library.
const PREPARED: Duration = Duration::from_secs(120);

/// Runs a request that must be accepted, and checks the invariants of every result.
fn answer(client: &Client, request: &Value) -> Value {
    let answer = run(client, request);
    let wrong = consistency(&answer);
    assert!(wrong.is_empty(), "{request}: {wrong:?} in {answer}");
    answer
}

/// Runs a program and compares verdict, limit, exit code and signal.
fn check(client: &Client, request: &Value, expected: &str) {
    let answer = answer(client, request);
    let field_text = |field: &str| match &answer[field] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let actual = ["verdict", "limit", "exit_code", "signal"].map(field_text).join(" ");
    assert_eq!(actual, expected, "{request}: {answer}");
}

fn limited(script: &str, limits: Value) -> Value {
    json!({"argv": ["/bin/sh", "-c", script], "limits": limits})
}

/// Returns a Python program that runs `rest` after its child was killed for lack of memory.
fn after_oom(rest: &str) -> Value {
    let source = format!(
        "import os, signal, time\nif os.fork() == 0:\n    x = b'x' * (1 << 30)\n    os._exit(0)\n\
         os.wait()\n{rest}\n"
    );
    json!({"language": "python", "source": source,
        "limits": {"memory_bytes": 64 << 20, "cpu_ms": 500, "wall_ms": 5000}})
}

/// `go build` succeeds for a package that is no program, and creates an archive.
#[test]
fn a_go_package_that_is_no_program_does_not_compile() {
    let _guard = beside_others();
    let server = serve();
    let answer =
        run(&server.client(), &json!({"language": "go", "source": "package foo\nfunc main() {}"}));
    assert_eq!((&answer["verdict"], &answer["exit_code"]), (&json!("CE"), &json!(1)), "{answer}");
}

/// Returns the built-in entry of Go with a part of the standard library: all of it takes a minute.
fn prepared_go() -> String {
    let table = include_str!("../../../executions/src/languages.toml");
    let start = table.find("[languages.go]").unwrap();
    let entry = &table[start..table.find("[languages.java]").unwrap()];
    let few = entry.replace(" std", " fmt os runtime runtime/debug strings");
    assert_ne!(few, entry);
    let (before, rest) = few.split_once("prepare = [").unwrap();
    let (_, after) = rest.split_once("]\n").unwrap();
    format!("{before}prepare = [\"{{go}}\", \"build\", \"fmt\"]\n{after}")
}

/// A simple program of one file is built by compiler and linker alone, with the same result; `go
/// build` builds all others, and reports errors.
#[test]
fn a_go_program_of_one_file_is_compiled_as_by_go_build() {
    let _guard = beside_others();
    let scratch = Scratch::new();
    let languages = scratch.file("languages.toml", prepared_go());
    let config = format!("[executions]\nlanguages = {languages:?}\n");
    let server = Server::start_with(COVE, &[], Some(&config));
    let client = server.client();
    until("Go to be prepared", PREPARED, || {
        let list = client.get("/v1/languages").json();
        let all = list["languages"].as_array().unwrap();
        let go = all.iter().find(|it| it["name"] == "go").unwrap();
        if go["preparing"] != true { Ok(()) } else { Err(go.to_string()) }
    });
    let source = "package main\n\nimport (\n\"fmt\"\n\"os\"\n\"runtime\"\n\"runtime/debug\"\n\"strings\"\n)\n\n\
        func main() {\n\
        program, err := os.ReadFile(\"/proc/self/exe\")\n\
        fmt.Fprintln(os.Stderr, err, strings.Contains(string(program), strings.Join([]string{\"note\", \"go\", \"buildid\"}, \".\")))\n\
        fmt.Println(debug.ReadBuildInfo())\n\
        _, file, line, _ := runtime.Caller(0)\n\
        fmt.Println(file, line, os.Args, runtime.Version(), debug.SetGCPercent(50))\n\
        fmt.Println(os.Getenv(\"GODEBUG\"), debug.SetMaxStack(1))\n}\n";
    let go = |source: &str| run(&client, &json!({"language": "go", "source": source}));
    let direct = go(source);
    assert_eq!((&direct["verdict"], &direct["stderr"]), (&json!("OK"), &json!("<nil> false\n")));
    let built = go(&format!("{source}//go:whatever\n"));
    assert_eq!((&built["verdict"], &built["stderr"]), (&json!("OK"), &json!("<nil> true\n")));
    assert_eq!(direct["stdout"], built["stdout"]);
    assert!(direct["stdout"].as_str().unwrap().contains("/workspace/main.go"), "{direct}");
    // Sources that compiler and linker alone would accept, and an invalid one, with the expected
    // messages.
    for (source, said) in [
        (
            "package main\nimport \"internal/abi\"\nfunc main() { _ = abi.Escape(1) }",
            "internal/abi",
        ),
        (
            "//go:build ignore\n\npackage main\nfunc main() {}",
            "build constraints exclude all Go files",
        ),
        ("package foo\nfunc main() {}", "-buildmode=exe requires exactly one main package"),
        ("package main\nfunc main() { x := 1 }", "./main.go:2:15: declared and not used: x"),
    ] {
        let answer = go(source);
        let stderr = answer["stderr"].as_str().unwrap();
        assert_eq!((&answer["verdict"], stderr.contains(said)), (&json!("CE"), true), "{answer}");
    }
    let files = json!([
        {"name": "main.go", "content": "package main\nfunc main() { greet() }"},
        {"name": "more.go", "content": "package main\nfunc greet() { println(\"hello\") }"},
    ]);
    let two = run(&client, &json!({"language": "go", "files": files}));
    assert_eq!((&two["verdict"], &two["stderr"]), (&json!("OK"), &json!("hello\n")), "{two}");
}

#[test]
fn every_verdict_is_reached_and_the_strongest_wins() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let c = |source: &str| json!({"language": "c", "source": source});
    let rust = |source: &str| json!({"language": "rust", "source": source});
    for (request, expected) in [
        (shell("exit 0"), "OK - 0 -"),
        (shell("exit 3"), "RE - 3 -"),
        (shell("kill -SEGV $$"), "SG - - SIGSEGV"),
        (shell("kill -KILL $$"), "SG - - SIGKILL"),
        (json!({"argv": ["/nowhere"]}), "RE - 127 -"),
        (json!({"argv": ["nowhere"]}), "RE - 127 -"),
        (json!({"argv": ["/usr"]}), "RE - 126 -"),
        (limited("while :; do :; done", json!({"cpu_ms": 200})), "TLE cpu - SIGKILL"),
        (limited("sleep 60", json!({"wall_ms": 300})), "TLE wall - SIGKILL"),
        (limited("yes", json!({"output_bytes": 1000})), "OLE output - SIGKILL"),
        (c("int main(void) { return 0; }"), "OK - 0 -"),
        (c("int main(void) { return }"), "CE - 1 -"),
        (rust("#![crate_type = \"lib\"]\npub fn f() {}"), "CE - 1 -"),
        (rust("#![crate_type = \"cdylib\"]\nfn main() {}"), "OK - 0 -"),
        (c("int main(void) { return 9; }"), "RE - 9 -"),
        (
            json!({"language": "c", "source": "#include \"/dev/zero\"",
            "compile_limits": {"cpu_ms": 100, "memory_bytes": 1 << 30}}),
            "CE cpu - SIGKILL",
        ),
    ] {
        check(&client, &request, expected);
    }
    // If several apply, the first of IE OLE TLE MLE SG RE OK wins.
    for (rest, verdict) in [
        ("os._exit(0)", "MLE"),
        ("os._exit(5)", "MLE"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "MLE"),
        // Control groups of version 2 kill all processes at once; with version 1, the server does.
        ("time.sleep(60)", "MLE"),
        ("while 1: pass", "MLE"),
    ] {
        let answer = answer(&client, &after_oom(rest));
        assert_eq!(answer["verdict"], verdict, "{rest}: {answer}");
        assert!(answer["oom_kills"].as_u64() >= Some(1), "{rest}: {answer}");
    }
    let floods = "yes & while :; do :; done";
    check(&client, &limited(floods, json!({"cpu_ms": 2000})), "OLE output - SIGKILL");
    let crashes = "head -c 70000 /dev/zero; kill -SEGV $$";
    let request = limited(crashes, json!({"output_bytes": 100}));
    assert_eq!(answer(&client, &request)["verdict"], "OLE");
}

#[test]
fn figures_are_measured() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let source = "import time\nx = b'x' * (40 << 20)\nend = time.process_time() + 0.1\n\
                  while time.process_time() < end: pass\ntime.sleep(0.2)\n";
    let answer = answer(&client, &json!({"language": "python", "source": source}));
    assert_eq!(answer["verdict"], "OK", "{answer}");
    let cpu = answer["cpu_ms"].as_f64().unwrap();
    let wall = answer["wall_ms"].as_f64().unwrap();
    assert!(cpu >= 100.0 && wall >= 300.0 && wall >= cpu, "{answer}");
    let peak = answer["memory_peak_bytes"].as_u64().unwrap();
    assert!((40 << 20..100 << 20).contains(&peak), "{answer}");
    assert_eq!(answer["oom_kills"], 0, "{answer}");
    assert!(answer["processes_peak"].as_u64() >= Some(1), "{answer}");
}

#[test]
fn every_language_that_is_listed_as_available_says_hello() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let list = client.get("/v1/languages").json();
    let languages = list["languages"].as_array().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut greeted = 0;
    for language in languages {
        let name = language["name"].as_str().unwrap();
        if language["available"] == false {
            assert!(language["reason"].as_str().is_some_and(|why| !why.is_empty()), "{language}");
            let response = client.run(&json!({"language": name, "source": "x"}));
            assert_eq!(response.status, 400, "{name}: {}", response.text());
            assert_eq!(response.json()["error"]["code"], "language_unavailable", "{name}");
            continue;
        }
        assert!(language["version"].as_str().is_some_and(|text| !text.is_empty()), "{language}");
        let extensions = language["extensions"].as_array().unwrap();
        let files = extensions.iter().flat_map(|extension| {
            let extension = extension.as_str().unwrap();
            ["hello", "Hello"].map(|stem| examples.join(format!("{stem}.{extension}")))
        });
        let file = files.into_iter().find(|path| path.exists());
        let (file_name, content) = match file {
            Some(file) => {
                let file_name = file.file_name().unwrap().to_str().unwrap().to_owned();
                (file_name, fs::read_to_string(&file).unwrap())
            }
            // `java-source` has no extension of its own: it runs files of the compiled language.
            None if name == "java-source" => {
                let source = fs::read_to_string(examples.join("Hello.java")).unwrap();
                ("Hello.java".to_owned(), source)
            }
            // A language whose requests contain the scripts that build and run the program.
            None if extensions.is_empty() => ("run".to_owned(), "echo hello".to_owned()),
            None => panic!("no examples/hello for {name}"),
        };
        let files = json!([{"name": file_name, "content": content}]);
        let answer = answer(&client, &json!({"language": name, "files": files}));
        assert_eq!(answer["verdict"], "OK", "{name}: {answer}");
        let stdout = answer["stdout"].as_str().unwrap().to_lowercase();
        assert!(stdout.contains("hello"), "{name}: {answer}");
        let stages = answer["stages"].as_array().unwrap().len();
        assert_eq!(stages == 2, language["compiled"] == true, "{name}: {answer}");
        for alias in language["aliases"].as_array().unwrap() {
            let response =
                client.run(&json!({"language": alias, "source": "", "limits": {"cpu_ms": 0}}));
            // The error names the limit, so the alias is known.
            assert_eq!(response.json()["error"]["field"], "limits.cpu_ms", "{alias}");
        }
        greeted += 1;
    }
    for needed in ["python", "javascript", "bash", "c", "c++", "go", "java"] {
        let found = languages.iter().any(|one| {
            one["name"] == needed
                || one["aliases"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|alias| alias == needed))
        });
        assert!(found, "{needed} is not configured");
    }
    assert!(greeted >= 5, "only {greeted} languages are available: {list}");
}

#[test]
fn a_command_gets_its_arguments_files_and_environment() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let answer = answer(
        &client,
        &json!({
            "argv": ["sh", "tools/run.sh", "one two", ""],
            "args": ["$HOME", "*", "é\n"],
            "files": [
                {"name": "tools/run.sh", "content": "pwd; for a in \"$@\"; do printf '[%s]' \"$a\"; done; \
                    ./tools/bin; od -An -tx1 data; printf '%s|' \"$GREETING\" \"$LC_X\" \"$PATH\"; stat -c %a data tools/bin"},
                {"name": "tools/bin", "content": "#!/bin/sh\necho executable", "executable": true},
                {"name": "data", "content": "AP8K", "encoding": "base64"},
            ],
            "env": {"GREETING": "hi there", "LC_X": "=", "PATH": "/usr/bin:/bin"},
        }),
    );
    assert_eq!(answer["verdict"], "OK", "{answer}");
    assert_eq!(
        answer["stdout"],
        "/workspace\n[one two][][$HOME][*][é\n]executable\n 00 ff 0a\nhi there|=|/usr/bin:/bin|644\n755\n",
        "{answer}"
    );
}

#[test]
fn a_program_of_several_files_is_compiled_together() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let answer = answer(
        &client,
        &json!({
            "language": "c",
            "files": [
                {"name": "main.c", "content": "#include \"lib/two.h\"\n#include <stdio.h>\nint main(int argc, char **argv) { printf(\"%d %s\\n\", two(), argv[argc - 1]); return 0; }"},
                {"name": "lib/two.h", "content": "int two(void);"},
                {"name": "lib/two.c", "content": "int two(void) { return 2; }"},
            ],
            "args": ["last"],
        }),
    );
    assert_eq!(answer["stdout"], "2 last\n", "{answer}");
    let names: Vec<_> =
        answer["stages"].as_array().unwrap().iter().map(|stage| &stage["name"]).collect();
    assert_eq!(names, ["compile", "run"]);
}

/// Names that a shell or a compiler would take for something else.
#[test]
fn file_names_are_names_and_never_options() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let names = ["-x.c", "@y.c", "a b.c", "quo'te.c", "$(exit 9).c", "*.c", "--help.c", "n\nl.c"];
    let mut files = vec![json!({"name": "main.c", "content": "int main(void) { return 0; }"})];
    for (number, name) in names.iter().enumerate() {
        let content = format!("int f{number}(void) {{ return 0; }}");
        files.push(json!({"name": name, "content": content}));
    }
    let answer = answer(&client, &json!({"language": "c", "files": files}));
    assert_eq!(answer["verdict"], "OK", "{answer}");
    let only = json!({"language": "python", "files": [{"name": "-c.py", "content": "print(1)"}]});
    assert_eq!(run(&client, &only)["stdout"], "1\n");
}

#[test]
fn standard_input_arrives_whole_and_need_not_be_read() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let ten_mebibytes = "0123456789abcde\n".repeat((10 << 20) / 16);
    let request = |script: &str| {
        let mut request = shell(script);
        request["stdin"] = json!(ten_mebibytes);
        request
    };
    let whole = answer(&client, &request("wc -c; cat | wc -c"));
    assert_eq!(whole["stdout"], "10485760\n0\n", "{whole}");
    let unread = answer(&client, &request("echo never reads"));
    assert_eq!((&unread["verdict"], &unread["stdout"]), (&json!("OK"), &json!("never reads\n")));
    let partly = answer(&client, &request("head -c 3"));
    assert_eq!((&partly["verdict"], &partly["stdout"]), (&json!("OK"), &json!("012")));
    let closed = answer(&client, &request("exec <&-; echo closed"));
    assert_eq!(closed["stdout"], "closed\n", "{closed}");
    let binary: Vec<u8> = (0..=255).collect();
    let request = json!({"argv": ["cat"], "stdin_base64": STANDARD.encode(&binary)});
    assert_eq!(bytes(&answer(&client, &request), "stdout"), binary);
    let nothing = answer(&client, &shell("wc -c"));
    assert_eq!(nothing["stdout"], "0\n", "{nothing}");
}

#[test]
fn outputs_are_regular_files_of_the_workspace_and_nothing_else() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let script = "echo text > plain; printf '\\377\\000' > binary; : > empty; mkdir dir
        mkdir -p sub/deep; echo x > sub/deep/f
        ln -s /etc/shadow shadow; ln -s /etc/passwd passwd; ln -s plain link; mkfifo fifo
        ln -s / root; ln -s ../../proc/self/environ environ; ln -s /proc/self/fd/1 out
        truncate -s 1M sparse; truncate -s 60M large
        echo secret > closed; chmod 000 closed; echo gone > removed; rm removed";
    let names = [
        "plain",
        "binary",
        "sub/deep/f",
        "empty",
        "sparse",
        "shadow",
        "passwd",
        "link",
        "fifo",
        "dir",
        "root/etc/passwd",
        "environ",
        "large",
        "missing",
        "out",
        "removed",
        "missing/deep",
    ];
    let mut request = shell(script);
    request["outputs"] = json!(names);
    let answer = answer(&client, &request);
    assert_eq!(answer["verdict"], "OK", "{answer}");
    let files = answer["files"].as_array().unwrap();
    assert_eq!(files.len(), names.len(), "{answer}");
    for (file, name) in files.iter().zip(names) {
        assert_eq!(file["name"], name);
        let expected = match name {
            "plain" => Some(json!("text\n")),
            "binary" => Some(json!(STANDARD.encode(b"\xff\x00"))),
            "sub/deep/f" => Some(json!("x\n")),
            "empty" => Some(json!("")),
            // Long content that is not text is returned in Base64, which is shorter than escapes.
            "sparse" => Some(json!(STANDARD.encode(vec![0; 1 << 20]))),
            _ => None,
        };
        match expected {
            Some(content) => {
                assert!(file["content"] == content, "{name}: {:.200}", file.to_string());
                let is_base64 = matches!(name, "binary" | "sparse");
                assert_eq!(file["encoding"] == "base64", is_base64, "{name}");
                assert!(file.get("error").is_none(), "{name}: {file}");
            }
            None => {
                assert!(file["content"].is_null(), "{name}: {:.200}", file.to_string());
                let error = file["error"].as_str().unwrap_or("");
                assert!(!error.is_empty(), "{name}: {file}");
            }
        }
    }
}

#[test]
fn outputs_are_collected_after_a_failure_too() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let mut request = limited("echo partial > out; while :; do :; done", json!({"cpu_ms": 100}));
    request["outputs"] = json!(["out"]);
    let answer = answer(&client, &request);
    assert_eq!(answer["verdict"], "TLE", "{answer}");
    assert_eq!(answer["files"][0]["content"], "partial\n", "{answer}");
}
