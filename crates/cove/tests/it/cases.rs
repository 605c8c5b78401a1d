//! The table of hostile programs: format and location.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::support::is_execution_id;

/// Classes of the table: name and text.
const CLASSES: &[(&str, &str)] = &[
    ("processes", include_str!("../cases/processes.toml")),
    ("cpu", include_str!("../cases/cpu.toml")),
    ("memory", include_str!("../cases/memory.toml")),
    ("files", include_str!("../cases/files.toml")),
    ("output", include_str!("../cases/output.toml")),
    ("information", include_str!("../cases/information.toml")),
    ("escape", include_str!("../cases/escape.toml")),
    ("network", include_str!("../cases/network.toml")),
    ("compile", include_str!("../cases/compile.toml")),
    ("node", include_str!("../cases/node.toml")),
    ("java", include_str!("../cases/java.toml")),
];

/// Programs that are too long to stand in the table.
const PROGRAMS: &[(&str, &str)] = &[
    ("allowed.c", include_str!("../cases/programs/allowed.c")),
    ("daemon.c", include_str!("../cases/programs/daemon.c")),
    ("denied.c", include_str!("../cases/programs/denied.c")),
    ("Hostile.java", include_str!("../cases/programs/Hostile.java")),
    ("init.c", include_str!("../cases/programs/init.c")),
    ("leave.c", include_str!("../cases/programs/leave.c")),
    ("limits.c", include_str!("../cases/programs/limits.c")),
    ("locks.c", include_str!("../cases/programs/locks.c")),
    ("root.c", include_str!("../cases/programs/root.c")),
    ("scheduling.c", include_str!("../cases/programs/scheduling.c")),
    ("sockets.c", include_str!("../cases/programs/sockets.c")),
    ("switches.c", include_str!("../cases/programs/switches.c")),
    ("threads.c", include_str!("../cases/programs/threads.c")),
    ("write.c", include_str!("../cases/programs/write.c")),
];

/// Program that searches for remains of a case.
pub(crate) const CANARY: &str = include_str!("../cases/programs/canary.py");

/// Wall limit of a program that must not reach it: neither nine concurrent programs nor a busy
/// machine may turn a CPU limit into a wall limit.
const WALL_MS: u64 = 20_000;

/// Concurrency of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// One at a time: figures are checked.
    Alone,
    /// Ten at a time: upper bounds of figures are not checked, because scheduling varies.
    Crowd,
}

/// Mode in which the server runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Compiled and started for this request.
    Fresh,
    /// From the compile cache, or by a prestarted interpreter, if the language supports that.
    Fast,
}

/// Limits that a prestarted process does not change.
const KEPT: [&str; 3] = ["memory_bytes", "processes", "open_files"];

/// Hostile program with its expected result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// Claim of the test.
    pub(crate) name: String,
    /// `sh` and `bash` use argv; everything else is a language of the server.
    lang: String,
    /// The program's text …
    #[serde(default)]
    program: Option<String>,
    /// … or its file name in `programs/`.
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    /// Arguments to the compiler.
    #[serde(default)]
    compile_args: Vec<String>,
    #[serde(default)]
    stdin: String,
    /// Reason why it cannot use a fast mode, although its language has one.
    #[serde(default)]
    only_fresh: Option<String>,
    /// In addition to [`limits`].
    #[serde(default)]
    limits: BTreeMap<String, u64>,
    #[serde(default)]
    compile_limits: BTreeMap<String, u64>,
    /// The program only waits; it runs beside other sleepers even in the first phase.
    #[serde(default)]
    pub(crate) sleeper: bool,

    /// Accepted verdicts.
    verdict: Vec<String>,
    /// Accepted limits; `none` for null. Without it, none is accepted.
    #[serde(default)]
    limit: Vec<String>,
    #[serde(default)]
    exit: Option<i64>,
    #[serde(default)]
    signal: Option<String>,
    #[serde(default)]
    stdout_is: Option<String>,
    #[serde(default)]
    stdout_hex: Option<String>,
    #[serde(default)]
    stdout_bytes: Option<usize>,
    #[serde(default)]
    stderr_bytes: Option<usize>,
    #[serde(default)]
    stdout_has: Vec<String>,
    #[serde(default)]
    stderr_has: Vec<String>,
    /// Texts in stderr of the compile stage.
    #[serde(default)]
    compile_has: Vec<String>,
    #[serde(default)]
    stdout_lacks: Vec<String>,
    /// Texts that must not occur in the whole response.
    #[serde(default)]
    lacks: Vec<String>,
    /// Lines `name ANSWER|ANSWER`: stdout has exactly these names, each with one of these values.
    #[serde(default)]
    probes: Vec<String>,
    #[serde(default)]
    has_base64: Option<bool>,
    /// Truncated streams; checked only if specified or if the verdict is OK.
    #[serde(default)]
    truncated: Option<Vec<String>>,
    #[serde(default)]
    cpu_ms: Option<[f64; 2]>,
    #[serde(default)]
    wall_ms: Option<[f64; 2]>,
    #[serde(default)]
    memory_peak: Option<[u64; 2]>,
    #[serde(default)]
    processes_max: Option<u64>,
    /// Number in the command line of a process that must not exist after the response.
    #[serde(default)]
    gone: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    case: Vec<Case>,
}

/// Returns the whole table; names are `class: claim`.
pub(crate) fn all() -> Vec<Case> {
    let mut found = Vec::new();
    for (class, text) in CLASSES {
        let parsed: Class = toml::from_str(text).unwrap_or_else(|error| panic!("{class}: {error}"));
        found.extend(parsed.case.into_iter().map(|case| {
            let name = format!("{class}: {}", case.name);
            Case { name, ..case }
        }));
    }
    found
}

/// Returns the default limits of the table's programs.
pub(crate) fn limits() -> Map<String, Value> {
    let limits = json!({
        "cpu_ms": 1000, "wall_ms": 2000, "memory_bytes": 64 << 20, "processes": 32,
        "output_bytes": 64 << 10, "open_files": 64, "disk_bytes": 16 << 20, "disk_inodes": 1000,
    });
    limits.as_object().unwrap().clone()
}

/// Values that are known only at run time: `@NAME@`.
pub(crate) type Fill = BTreeMap<&'static str, String>;

fn fill(text: &str, values: &Fill) -> String {
    let mut filled = text.to_owned();
    for (name, value) in values {
        filled = filled.replace(name, value);
    }
    filled
}

impl Case {
    fn limit_values(&self) -> Map<String, Value> {
        let mut found = limits();
        found.extend(self.limits.iter().map(|(name, value)| (name.clone(), json!(value))));
        if !self.limit.iter().any(|limit| limit == "wall") {
            found.insert("wall_ms".to_owned(), json!(WALL_MS));
        }
        if ["javascript", "java"].contains(&self.lang.as_str()) {
            found.retain(|name, _| !KEPT.contains(&name.as_str()));
        }
        found
    }

    /// Returns the response's `mode` for the language's fast mode.
    fn fast_mode(&self) -> Option<&'static str> {
        match self.lang.as_str() {
            "python" => Some("zygote"),
            "javascript" => Some("prestarted"),
            "java" => Some("cached_prestarted"),
            "c" | "c++" => Some("cached"),
            "sh" | "bash" => None,
            other => panic!("{}: how is {other} run?", self.name),
        }
    }

    /// Returns whether it has a fast mode. Rejected compilations are not cached, so a program that
    /// does not compile has none.
    pub(crate) fn has_fast_mode(&self) -> bool {
        self.fast_mode().is_some() && self.verdict != ["CE"]
    }

    /// Returns whether it must be compiled once before the fast mode applies.
    pub(crate) fn is_compiled(&self) -> bool {
        self.has_fast_mode() && self.fast_mode().is_some_and(|mode| mode.starts_with("cached"))
    }

    /// Returns text in the command line of a process that must not exist after the response. It
    /// differs between the paces, as both may run at the same time.
    pub(crate) fn gone(&self, pace: Pace) -> Option<String> {
        let marker = self.gone.clone()?;
        Some(match pace {
            Pace::Fresh => marker,
            Pace::Fast => marker.replacen(|_: char| true, "9", 1),
        })
    }

    /// Returns the expected `mode` of the response.
    pub(crate) fn mode(&self, pace: Pace) -> &'static str {
        match (pace, self.fast_mode(), &self.only_fresh) {
            (Pace::Fast, Some(mode), None) => mode,
            _ => "fresh",
        }
    }

    /// Returns a request that compiles the program, and ends it at once.
    pub(crate) fn compile_request(&self, values: &Fill) -> Value {
        let mut request = self.request(values, Pace::Fast);
        request["limits"]["wall_ms"] = json!(1);
        request
    }

    /// Returns the request that runs the program.
    pub(crate) fn request(&self, values: &Fill, pace: Pace) -> Value {
        let mut request = self.program_request(values, pace);
        request["fresh"] = json!(pace == Pace::Fresh);
        if !self.stdin.is_empty() {
            request["stdin"] = json!(self.stdin);
        }
        request
    }

    fn program_request(&self, values: &Fill, pace: Pace) -> Value {
        let program = match (&self.program, &self.file) {
            (Some(program), None) => program.as_str(),
            (None, Some(file)) => {
                let known = PROGRAMS.iter().find(|(name, _)| name == file);
                known.unwrap_or_else(|| panic!("{}: no program {file}", self.name)).1
            }
            _ => panic!("{}: needs either `program` or `file`", self.name),
        };
        let marked = |text: &str| match (&self.gone, self.gone(pace)) {
            (Some(marker), Some(own)) => text.replace(marker, &own),
            _ => text.to_owned(),
        };
        let program = marked(&fill(program, values));
        let args = self.args.iter().map(|argument| marked(&fill(argument, values)));
        let args: Vec<String> = args.collect();
        let limits = self.limit_values();
        match self.lang.as_str() {
            shell @ ("sh" | "bash") => {
                let path = format!("/bin/{shell}");
                let mut argv = vec![path.clone(), "-c".to_owned(), program, path];
                argv.extend(args);
                json!({"argv": argv, "limits": limits})
            }
            language => {
                let mut request = json!({
                    "language": language, "source": program, "args": args,
                    "limits": limits, "compile_limits": self.compile_limits,
                });
                if !self.compile_args.is_empty() {
                    request["compile_args"] = json!(self.compile_args);
                }
                request
            }
        }
    }

    /// Returns the errors in a response; none if it is correct.
    pub(crate) fn check(&self, answer: &Value, phase: Phase, values: &Fill) -> Vec<String> {
        let mut wrong = consistency(answer);
        self.check_ending(answer, &mut wrong);
        self.check_output(answer, values, &mut wrong);
        self.check_probes(answer, &mut wrong);
        self.check_figures(answer, phase, &mut wrong);
        wrong
    }

    fn check_ending(&self, answer: &Value, wrong: &mut Vec<String>) {
        let verdict = answer["verdict"].as_str().unwrap_or("none");
        expect(wrong, self.verdict.iter().any(|right| right == verdict), || {
            format!("verdict {verdict}, expected {:?}", self.verdict)
        });
        let limit = answer["limit"].as_str().unwrap_or("none");
        let right = match self.limit.as_slice() {
            [] => limit == "none",
            some => some.iter().any(|right| right == limit),
        };
        expect(wrong, right, || format!("limit {limit}, expected {:?}", self.limit));
        if let Some(code) = self.exit {
            expect(wrong, answer["exit_code"] == code, || {
                format!("exit code {}, expected {code}", answer["exit_code"])
            });
        }
        if let Some(signal) = &self.signal {
            expect(wrong, answer["signal"] == signal.as_str(), || {
                format!("signal {}, expected {signal}", answer["signal"])
            });
        }
        let cut = |stream: &str| answer["truncated"][stream] == true;
        let expected = match (&self.truncated, verdict) {
            (Some(streams), _) => Some(streams.clone()),
            (None, "OK") => Some(Vec::new()),
            (None, _) => None,
        };
        for stream in ["stdout", "stderr"] {
            if let Some(expected) = &expected {
                let right = expected.iter().any(|one| one == stream);
                expect(wrong, cut(stream) == right, || format!("{stream} cut: {}", cut(stream)));
            }
        }
    }

    fn check_output(&self, answer: &Value, values: &Fill, wrong: &mut Vec<String>) {
        let stdout = bytes(answer, "stdout");
        let stderr = bytes(answer, "stderr");
        let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        let whole = answer.to_string();
        let compiler = answer["stages"][0]["stderr"].as_str().unwrap_or("");
        if let Some(expected) = &self.stdout_is {
            expect(wrong, out == expected.as_str(), || format!("stdout is not {expected:?}"));
        }
        if let Some(expected) = &self.stdout_hex {
            let hex: String = stdout.iter().map(|byte| format!("{byte:02x}")).collect();
            expect(wrong, &hex == expected, || format!("stdout is {hex}, expected {expected}"));
        }
        for (name, stream, expected) in
            [("stdout", &stdout, self.stdout_bytes), ("stderr", &stderr, self.stderr_bytes)]
        {
            if let Some(expected) = expected {
                let length = stream.len();
                expect(wrong, length == expected, || {
                    format!("{name}: {length} bytes, not {expected}")
                });
            }
        }
        for (text, where_, needles) in [
            (&*out, "stdout", &self.stdout_has),
            (&*err, "stderr", &self.stderr_has),
            (compiler, "the compiler's output", &self.compile_has),
        ] {
            for needle in needles {
                let found = text.contains(&fill(needle, values));
                expect(wrong, found, || format!("{where_} lacks {needle:?}"));
            }
        }
        for (text, needles) in [(&*out, &self.stdout_lacks), (whole.as_str(), &self.lacks)] {
            for needle in needles {
                let found = text.contains(&fill(needle, values));
                expect(wrong, !found, || format!("{needle:?} is told"));
            }
        }
        if let Some(expected) = self.has_base64 {
            let found = answer.get("stdout_base64").is_some();
            expect(wrong, found == expected, || format!("stdout_base64 present: {found}"));
        }
    }

    fn check_probes(&self, answer: &Value, wrong: &mut Vec<String>) {
        if self.probes.is_empty() {
            return;
        }
        let text = answer["stdout"].as_str().unwrap_or("");
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        for line in text.lines() {
            seen.extend(line.rsplit_once(' '));
        }
        for probe in &self.probes {
            let (name, right) = probe.rsplit_once(' ').expect("a probe is `name ANSWER`");
            let answer = seen.remove(name).unwrap_or("nothing");
            expect(wrong, right.split('|').any(|one| one == answer), || {
                format!("probe {name}: {answer}, expected {right}")
            });
        }
        expect(wrong, seen.is_empty(), || format!("probes that the table does not know: {seen:?}"));
    }

    fn check_figures(&self, answer: &Value, phase: Phase, wrong: &mut Vec<String>) {
        let bounds = [("cpu_ms", self.cpu_ms), ("wall_ms", self.wall_ms)];
        for (name, bounds) in bounds {
            let Some([low, high]) = bounds else { continue };
            let figure = answer[name].as_f64().unwrap_or(-1.0);
            let right = figure >= low && (figure <= high || phase == Phase::Crowd);
            expect(wrong, right, || format!("{name} {figure}, expected {low} to {high}"));
        }
        if let Some([low, high]) = self.memory_peak {
            let figure = answer["memory_peak_bytes"].as_u64().unwrap_or(0);
            expect(wrong, (low..=high).contains(&figure), || {
                format!("memory_peak_bytes {figure}, expected {low} to {high}")
            });
        }
        let peak = answer["processes_peak"].as_u64().unwrap_or(u64::MAX);
        let most = self.processes_max.unwrap_or(32);
        expect(wrong, peak <= most, || format!("processes_peak {peak}, at most {most}"));
    }
}

fn expect(wrong: &mut Vec<String>, holds: bool, otherwise: impl FnOnce() -> String) {
    if !holds {
        wrong.push(otherwise());
    }
}

/// Returns the exact bytes of a stream.
pub(crate) fn bytes(outcome: &Value, stream: &str) -> Vec<u8> {
    match outcome[format!("{stream}_base64")].as_str() {
        Some(text) => STANDARD.decode(text).expect("valid base64"),
        None => outcome[stream].as_str().unwrap_or("").as_bytes().to_vec(),
    }
}

/// Returns violations of invariants of every result document.
pub(crate) fn consistency(answer: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let id = answer["id"].as_str().unwrap_or("");
    expect(&mut wrong, is_execution_id(id), || format!("id {id:?}"));
    let modes = ["fresh", "cached", "zygote", "prestarted", "cached_prestarted"];
    let known = answer["mode"].as_str().is_some_and(|mode| modes.contains(&mode));
    expect(&mut wrong, known, || format!("mode {}", answer["mode"]));
    let last = answer["stages"].as_array().and_then(|stages| stages.last());
    expect(&mut wrong, last.is_some(), || "no stage".to_owned());
    // Long output is present once, at the top.
    let is_at_top = last.is_some_and(|last| last["output_at_top"] == true);
    for field in ["exit_code", "signal", "stdout", "stderr", "limit", "cpu_ms", "oom_kills"] {
        let same = last.is_some_and(|last| match field {
            "stdout" | "stderr" if is_at_top => last[field] == "",
            _ => last[field] == answer[field],
        });
        expect(&mut wrong, same, || format!("{field} differs from the last stage's"));
    }
    let (code, signal) = (&answer["exit_code"], &answer["signal"]);
    let consistent = match answer["verdict"].as_str() {
        Some("OK") => code == 0 && signal.is_null() && answer["limit"].is_null(),
        Some("RE") => code.is_number() && code != 0 && answer["limit"].is_null(),
        Some("SG") => code.is_null() && signal.is_string() && answer["limit"].is_null(),
        Some("TLE") => answer["limit"] == "cpu" || answer["limit"] == "wall",
        Some("MLE") => answer["limit"] == "memory",
        Some("OLE") => answer["limit"] == "output",
        Some("CE") => last.is_some_and(|last| last["name"] == "compile"),
        _ => false,
    };
    expect(&mut wrong, consistent, || {
        format!(
            "{} with exit {code}, signal {signal}, limit {}",
            answer["verdict"], answer["limit"]
        )
    });
    wrong
}

#[test]
fn every_claim_is_made_once() {
    let mut names: Vec<String> = all().into_iter().map(|case| case.name).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count > 130, "only {count} cases");
}

/// Every expectation of a case is checked.
#[test]
fn a_wrong_answer_is_noticed_in_every_respect() {
    let table = r#"
        [[case]]
        name = "sample"
        lang = "sh"
        program = "x"
        verdict = ["OLE"]
        limit = ["output"]
        stdout_is = "ab"
        stdout_hex = "6162"
        stdout_bytes = 2
        stderr_bytes = 1
        stdout_has = ["a"]
        stderr_has = ["c"]
        stdout_lacks = ["z"]
        lacks = ["@SECRET@"]
        has_base64 = false
        truncated = ["stdout"]
        cpu_ms = [1.0, 2.0]
        wall_ms = [3.0, 4.0]
        memory_peak = [5, 6]
        processes_max = 7
    "#;
    let class: Class = toml::from_str(table).unwrap();
    let outcome = json!({
        "verdict": "OLE", "limit": "output", "exit_code": null, "signal": "SIGKILL",
        "stdout": "ab", "stderr": "c", "truncated": {"stdout": true, "stderr": false},
        "cpu_ms": 1.5, "wall_ms": 3.5, "memory_peak_bytes": 5, "processes_peak": 7, "oom_kills": 0,
    });
    let answer = |change: &[(&str, Value)]| {
        let mut last = outcome.clone();
        for (field, value) in change {
            last[*field] = value.clone();
        }
        let mut answer = last.clone();
        last["name"] = json!("run");
        answer["id"] = json!("ex_01JD00000000000000000000AB");
        answer["mode"] = json!("fresh");
        answer["stages"] = json!([last]);
        class.case[0].check(&answer, Phase::Alone, &Fill::from([("@SECRET@", "42-".to_owned())]))
    };
    assert_eq!(answer(&[]), Vec::<String>::new());
    for change in [
        ("verdict", json!("TLE")),
        ("limit", json!("cpu")),
        ("stdout", json!("az")),
        ("stdout", json!("abc")),
        ("stderr", json!("")),
        ("stderr", json!("d")),
        ("signal", json!("42-")),
        ("stdout_base64", json!("YWI=")),
        ("truncated", json!({"stdout": false, "stderr": false})),
        ("truncated", json!({"stdout": true, "stderr": true})),
        ("cpu_ms", json!(2.5)),
        ("wall_ms", json!(2.5)),
        ("memory_peak_bytes", json!(7)),
        ("processes_peak", json!(8)),
    ] {
        assert!(!answer(std::slice::from_ref(&change)).is_empty(), "{change:?} went unnoticed");
    }
}

#[test]
fn a_probe_must_be_there_and_have_one_of_its_answers() {
    let table = "[[case]]\nname = \"s\"\nlang = \"sh\"\nverdict = [\"OK\"]\n\
                 probes = [\"mount EPERM\", \"bpf EPERM|ENOSYS\"]\n";
    let class: Class = toml::from_str(table).unwrap();
    for (stdout, wrong) in [
        ("mount EPERM\nbpf ENOSYS\n", 0),
        ("mount EFAULT\nbpf EPERM\n", 1),
        ("bpf EPERM\n", 1),
        ("mount EPERM\nbpf ALLOWED\nkeyctl ALLOWED\n", 2),
        ("", 2),
    ] {
        let mut found = Vec::new();
        class.case[0].check_probes(&json!({"stdout": stdout}), &mut found);
        assert_eq!(found.len(), wrong, "{stdout:?}: {found:?}");
    }
}
