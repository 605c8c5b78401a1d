//! `cove run`, `doctor`, `languages` and `token`: output for a user at a terminal.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use testkit::{Host, Scratch, Watch, process, until};

use crate::support::{COVE, SOON, alone_on_host, beside_others, wait_until_gone};

/// User and group without rights.
const NOBODY: &str = "65534";

fn finish(command: &mut Command, stdin: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start cove");
    let mut pipe = child.stdin.take().expect("a pipe");
    // A program may not read its input.
    drop(pipe.write_all(stdin.as_bytes()));
    drop(pipe);
    child.wait_with_output().expect("wait for cove")
}

/// Runs `cove` with these arguments.
fn cove<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, stdin: &str) -> Output {
    finish(testkit::command(COVE).args(arguments), stdin)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `cove run` and compares exit code and stdout; returns stderr.
fn check(arguments: &[&str], stdin: &str, code: i32, stdout: &str) -> String {
    let mut all = vec!["run"];
    all.extend(arguments);
    let output = cove(&all, stdin);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert_eq!(text(&output.stdout), stdout, "{arguments:?}: {stderr}");
    stderr
}

#[test]
fn run_takes_programs_by_extension_by_language_and_as_a_command() {
    let _guard = beside_others();
    let scratch = Scratch::new();
    let file = |name: &str, content: &str| scratch.file(name, content).display().to_string();
    let python = file("hello.py", "print('hello from python')\n");
    let c = file(
        "main.c",
        "#include <stdio.h>\nint main(int n, char **a) { int x; if (scanf(\"%d\", &x) != 1) return 1; printf(\"%d %s\\n\", x * 2, a[n - 1]); return 0; }\n",
    );
    let bash = file("script.sh", "echo \"$1\"; exit 4\n");
    let input = file("in.txt", "21\n");
    check(&[&python], "", 0, "hello from python\n");
    check(
        &[&c, "--stdin-file", &input, "--cpu", "1s", "--memory", "64M", "--", "arg1", "arg2"],
        "",
        0,
        "42 arg2\n",
    );
    check(&[&c, "--", "last"], "4\n", 0, "8 last\n");
    check(&["--lang", "python", "-"], "print(6*7)", 0, "42\n");
    let stderr = check(&[&bash, "--", "argument"], "", 4, "argument\n");
    assert!(stderr.contains("RE"), "{stderr}");
    check(&["--", "/bin/sh", "-c", "cat; exit 7"], "typed", 7, "typed");
    check(&["--", "true"], "", 0, "");
}

#[test]
fn run_says_the_verdict_and_the_limit_and_has_an_exit_code_for_each() {
    let _guard = beside_others();
    let scratch = Scratch::new();
    let broken = scratch.file("broken.c", "int main(void) { return }").display().to_string();
    let sh = |script: &'static str| ["--", "/bin/sh", "-c", script];
    let rows: Vec<(Vec<&str>, i32, &[&str])> = vec![
        ([&["--cpu", "200ms"][..], &sh("while :; do :; done")].concat(), 124, &["TLE", "CPU"]),
        (vec!["--wall", "300ms", "--", "sleep", "60"], 124, &["TLE", "wall"]),
        (
            vec!["--memory", "32M", "--", "python3", "-c", "x = b'x' * (1 << 30)"],
            137,
            &["MLE", "memory"],
        ),
        ([&["--output", "1k"][..], &sh("yes > /dev/stderr")].concat(), 137, &["OLE", "output"]),
        (sh("kill -SEGV $$").to_vec(), 128 + 11, &["SG", "SIGSEGV"]),
        (sh("kill -KILL $$").to_vec(), 128 + 9, &["SG", "SIGKILL"]),
        (sh("exit 9").to_vec(), 9, &["RE", "9"]),
        (vec![&broken], 126, &["CE", "error:"]),
        (vec!["--", "/nowhere/to/be/found"], 127, &["/nowhere/to/be/found"]),
    ];
    for (arguments, code, says) in rows {
        let output = cove([&["run"], &arguments[..]].concat(), "");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        for word in says {
            let found = stderr.to_lowercase().contains(&word.to_lowercase());
            assert!(found, "{arguments:?}: {stderr:?} lacks {word:?}");
        }
    }
    // A successful run prints no messages.
    let output = cove(["run", "--", "true"], "");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn run_json_is_one_document() {
    let _guard = beside_others();
    let output = cove(["run", "--json", "--", "/bin/sh", "-c", "yes"], "");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["verdict"], "OLE", "{document}");
    assert_eq!(document["limit"], "output");
    assert_eq!(document["stdout"].as_str().map(str::len), Some(65536));
    assert_eq!(document["truncated"]["stdout"], true);
    let output =
        cove(["run", "--json", "--", "/bin/sh", "-c", "echo out; echo err >&2; exit 5"], "");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let result = (&document["stdout"], &document["stderr"], &document["exit_code"]);
    assert_eq!(result, (&"out\n".into(), &"err\n".into(), &5.into()), "{document}");
}

#[test]
fn run_streams_output_as_it_comes() {
    let _guard = beside_others();
    let mut child = testkit::command(COVE)
        .args(["run", "--", "/bin/sh", "-c", "echo first; sleep 64001"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    assert!(child.try_wait().unwrap().is_none(), "it ended before its program");
    process::signal(child.id(), "INT");
    until("its end", SOON, || match child.try_wait() {
        Ok(Some(status)) => Ok(status),
        other => Err(format!("{other:?}")),
    });
    wait_until_gone("64001");
}

#[test]
fn killing_run_leaves_nothing() {
    let _guard = alone_on_host();
    let before = Host::snapshot(&Watch::default());
    let mut child = testkit::command(COVE)
        .args(["run", "--", "/bin/sh", "-c", "trap '' TERM HUP; setsid sleep 64002 & sleep 64002"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("two sleepers", SOON, || {
        let pids = process::with_marker("64002");
        if pids.len() > 3 { Ok(()) } else { Err(format!("{pids:?}")) }
    });
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone("64002");
    before.wait_for_return(SOON);
}

#[test]
fn usage_errors_teach() {
    let _guard = beside_others();
    let scratch = Scratch::new();
    let odd = scratch.file("program.xyz", "?").display().to_string();
    let python = scratch.file("a.py", "").display().to_string();
    let listens_nowhere = scratch.file("cove.toml", "[bouncer]\nlisten = \"x\"\n");
    let listens_nowhere = listens_nowhere.display().to_string();
    for (arguments, says) in [
        (vec!["run", "/no/such/file.py"], "/no/such/file.py"),
        (vec!["run", odd.as_str()], "xyz"),
        (vec!["run", "--lang", "brainfog", python.as_str()], "brainfog"),
        (vec!["run", "--cpu", "soon", python.as_str()], "soon"),
        (vec!["run", "--memory", "-5", python.as_str()], "-5"),
        (vec!["run", "--momory", "5", python.as_str()], "--memory"),
        (vec!["run"], "run"),
        (vec!["serf"], "serve"),
        (
            vec!["bouncer", "--config", listens_nowhere.as_str()],
            "bouncer.listen: `x` is not HOST:PORT",
        ),
        (vec!["token", "--data-dir", "/no/such/directory"], "/no/such/directory"),
    ] {
        let output = cove(&arguments, "");
        assert!(!output.status.success(), "{arguments:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(says), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
    }
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    for arguments in [&["--help"][..], &["exec", "list", "--help"], &["help", "run"], &["-v"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = testkit::command(COVE);
        let output = command.args(arguments).stdout(full).stderr(Stdio::piped());
        let output = output.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains("standard output"), "{arguments:?}");
        assert_eq!(cove(arguments, "").status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn tokens_and_the_version_are_printed_as_json() {
    let scratch = Scratch::new();
    let directory = scratch.path().display().to_string();
    let run = |arguments: &[&str]| {
        let output = cove([arguments, &["--json", "--data-dir", &directory]].concat(), "");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("one JSON document")
    };
    let made = run(&["token", "create", "--name", "ci", "--scope", "executions"]);
    assert!(made["token"].as_str().is_some_and(|token| !token.is_empty()), "{made}");
    assert_eq!(made["scopes"], json!(["executions"]));
    let id = made["id"].as_str().unwrap();
    let listed = run(&["token", "list"]);
    assert_eq!((&listed["id"], &listed["name"]), (&id.into(), &"ci".into()));
    assert!(listed.get("sha256").is_none() && listed.get("token").is_none(), "{listed}");
    assert_eq!(run(&["token", "revoke", id])["id"], id);
    let version = cove(["version", "--json"], "");
    let version: Value = serde_json::from_slice(&version.stdout).expect("one JSON document");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn doctor_and_languages_say_what_is_there() {
    let _guard = beside_others();
    let output = cove(["doctor", "--json"], "");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report.is_object(), "{report}");
    let whole = report.to_string();
    for layer in ["seccomp", "memory", "pids"] {
        assert!(whole.contains(layer), "doctor does not speak of {layer}: {whole}");
    }
    // The imports were run in a sandbox.
    let interpreter = &report["interpreter"];
    let modules = interpreter["parked"]["modules"].as_array().expect("the imports were tried");
    let numpy = modules.iter().find(|it| it["module"] == "numpy").unwrap();
    assert_eq!((&numpy["error"], &numpy["threads"]), (&Value::Null, &json!([])), "{interpreter}");
    assert_eq!(interpreter["parked"]["copy_calculates"], true, "{interpreter}");
    let plain = interpreter["plain"].as_array().unwrap();
    let numpy = plain.iter().find(|it| it["module"] == "numpy").unwrap();
    // OpenBLAS starts a thread for each processor but one.
    let expected = std::thread::available_parallelism().unwrap().get() - 1;
    assert_eq!(numpy["threads"].as_array().unwrap().len(), expected, "{interpreter}");
    assert_eq!(whole.contains("OPENBLAS_NUM_THREADS=1"), expected > 0, "{whole}");
    let output = cove(["doctor"], "");
    assert!(text(&output.stdout).contains("seccomp"), "{}", text(&output.stdout));
    let output = cove(["languages"], "");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listed = text(&output.stdout);
    for name in ["python", "javascript", "bash", "go", "java", "rust", "typescript"] {
        assert!(listed.contains(name), "{name} is not listed:\n{listed}");
    }
}

/// Runs a copy of the binary as an unprivileged user, who may not enter the build directory.
fn cove_as_nobody(scratch: &Scratch, arguments: &[&str]) -> Output {
    let binary = scratch.path().join("cove");
    if !binary.exists() {
        fs::copy(COVE, &binary).unwrap();
        for path in [scratch.path(), &binary] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    let mut command = testkit::command("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).arg(binary);
    command.args(arguments).current_dir("/").env("HOME", "/");
    finish(&mut command, "")
}

#[test]
fn without_root_run_refuses_to_go_without_limits_unless_told() {
    let _guard = beside_others();
    let scratch = Scratch::new();
    let refused = cove_as_nobody(&scratch, &["run", "--", "echo", "ran"]);
    let stderr = text(&refused.stderr);
    assert!(!refused.status.success(), "{stderr}");
    assert_eq!(text(&refused.stdout), "", "it ran");
    assert!(stderr.contains("--insecure-no-limits"), "{stderr}");
    assert!(stderr.contains("memory"), "{stderr}");
    let output = cove_as_nobody(&scratch, &["run", "--insecure-no-limits", "--", "echo", "ran"]);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(text(&output.stdout), "ran\n", "{stderr}");
}

#[test]
fn without_root_a_program_is_isolated_all_the_same() {
    let _guard = beside_others();
    let scratch = Scratch::new();
    let marker = scratch.file("marker", "host secret");
    fs::set_permissions(&marker, fs::Permissions::from_mode(0o666)).unwrap();
    let script = format!(
        "cat {0}; echo changed > {0}; exec 3<>/dev/tcp/127.0.0.1/22 && echo CONNECTED; ls /proc | grep -c '^[0-9]'; exit 0",
        marker.display()
    );
    let output = cove_as_nobody(
        &scratch,
        &["run", "--insecure-no-limits", "--", "/bin/bash", "-c", &script],
    );
    let stdout = text(&output.stdout);
    assert!(!stdout.contains("host secret"), "{stdout}");
    assert!(!stdout.contains("CONNECTED"), "{stdout}");
    assert_eq!(fs::read_to_string(&marker).unwrap(), "host secret");
}

/// Runs a command on a terminal of script(1), and types when a word is shown. Returns its exit code
/// and the screen.
fn on_terminal(
    variables: &[(&str, &str)],
    line: &str,
    typed: Option<(&str, &[u8])>,
) -> (Option<i32>, String) {
    let mut terminal = testkit::command("script");
    terminal.args(["--quiet", "--return", "--command", line, "/dev/null"]).env("SHELL", "/bin/sh");
    terminal.env_remove("PAGER").env_remove("COVE_PAGER").envs(variables.iter().copied());
    terminal.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = terminal.spawn().unwrap();
    let mut keys = child.stdin.take();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut screen = String::new();
    if let (Some((word, bytes)), Some(keys)) = (typed, &mut keys) {
        while !screen.contains(word) {
            assert!(output.read_line(&mut screen).unwrap() > 0, "{word} is not in {screen}");
        }
        keys.write_all(bytes).unwrap();
    }
    output.read_to_string(&mut screen).unwrap();
    drop(keys);
    (child.wait().unwrap().code(), screen.replace('\r', ""))
}

#[test]
fn long_output_goes_through_a_pager_on_a_terminal() {
    let scratch = testkit::Scratch::new();
    let file = scratch.file("cove.toml", "log.level = \"warn\"\n");
    let show = format!("{COVE} config show --section log --config {}", file.display());
    let plain = "[log]\nformat = \"text\"\nlevel = \"warn\"\n";
    let paged = "> [log]\n> format = \"text\"\n> level = \"warn\"\n";
    let pager = "sed 's/^/> /'";
    let check = |variables: &[(&str, &str)], line: &str, expected: &str| {
        let found = on_terminal(variables, line, None);
        assert_eq!(found, (Some(0), expected.to_owned()), "{variables:?} {line}");
    };
    check(&[("COVE_PAGER", pager), ("PAGER", "false")], &show, paged);
    check(&[("PAGER", pager)], &show, paged);
    check(&[("PAGER", pager), ("COVE_PAGER", "")], &show, plain);
    check(&[("PAGER", pager), ("COVE_PAGER", "cat")], &show, plain);
    check(&[("PAGER", pager)], &format!("{show} --no-pager"), plain);
    check(&[("PAGER", pager)], &format!("{show} | cat"), plain);
    // No pager is configured, and the default one is not installed.
    check(&[], &format!("PATH=/nowhere {show}"), plain);
    // Leaving the pager early is not reported as an error.
    let all = format!("{COVE} config show --config {}", file.display());
    check(&[("PAGER", "head -n 1 | sed 's/ .*//'")], &all, "data_dir\n");
    let (code, json) = on_terminal(&[("PAGER", pager)], &format!("{show} --json"), None);
    assert!(code == Some(0) && json.starts_with('{'), "{json}");
    // Errors of the command itself are shown.
    let wrong = show.replace("--section log", "--section nothing");
    let (code, screen) = on_terminal(&[("PAGER", pager)], &wrong, None);
    assert!(code == Some(2) && screen.contains("unknown section `nothing`"), "{screen}");

    // Ctrl-C ends the command, and waits for the pager, which may ignore it.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let list = format!("COVE_TOKEN=x {COVE} exec list --server {url} --config {}", file.display());
    let pager = "trap '' INT; echo begins; cat; echo ends";
    let found = on_terminal(&[("PAGER", pager)], &list, Some(("begins", b"\x03")));
    assert_eq!(found.0, Some(130), "{found:?}");
    assert!(found.1.contains("ends"), "{found:?}");
}

#[test]
fn a_closed_pipe_ends_a_command_silently() {
    let scratch = testkit::Scratch::new();
    let file = scratch.file("cove.toml", "");
    let file = file.display();
    let all = [
        format!("config show --config {file}"),
        format!("config show --json --config {file}"),
        format!("config check --json --config {file}"),
        "languages".to_owned(),
        "version --json".to_owned(),
        "completions bash".to_owned(),
        "man".to_owned(),
        "--help".to_owned(),
    ];
    for line in all {
        // Closed from the beginning: closing it later would be a race.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = testkit::command(COVE);
        let output = command.args(line.split(' ')).stdout(writer).output().unwrap();
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(141), String::new()),
            "{line}"
        );
    }
}
