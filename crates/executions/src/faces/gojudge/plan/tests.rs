//! Requests as clients write them, and their plans.

use node::clock;
use serde_json::{Value, json};

use super::*;
use crate::limits::LimitTable;

const MIB: u64 = 1 << 20;

fn rules(kind: LimitTable) -> LimitRules {
    LimitRules::new(kind, &LimitSpec::default(), &LimitSpec::default(), 4096 * MIB).unwrap()
}

fn plan_with(
    store: &FileStore,
    request: Value,
    has_streams: bool,
) -> Result<GojudgePlan, RunError> {
    let (run, compile, config) =
        (rules(LimitTable::Run), rules(LimitTable::Compile), GojudgeConfig::default());
    let planner = GojudgePlanner {
        borrowed: &BorrowedFiles::new(),
        config: &config,
        store,
        tenant: "tenant",
        now: clock::now(),
        run: &run,
        compile: &compile,
        running_max: 4,
        files_max: 4,
        outputs_bytes_max: MIB,
        has_streams,
    };
    planner.plan(serde_json::from_value(request).unwrap())
}

fn plan(request: Value) -> Result<GojudgePlan, RunError> {
    plan_with(&FileStore::new(&GojudgeConfig::default()), request, false)
}

fn one(cmd: Value) -> GojudgeProgram {
    plan(json!({"cmd": [cmd]})).unwrap().programs.pop().unwrap()
}

#[test]
fn what_is_wrong_is_refused_with_its_place() {
    let cmd = |cmd: Value| json!({"cmd": [cmd]});
    let files = |files: Value| json!({"cmd": [{"args": ["a"], "files": files}]});
    let pipe = |from: Value, to: Value| {
        json!({"cmd": [{"args": ["a"], "files": [null, null, {"name": "e", "max": 1}]},
                       {"args": ["b"], "tty": true}],
               "pipeMapping": [{"in": from, "out": to}]})
    };
    let at = |index: i64, fd: i64| json!({"index": index, "fd": fd});
    for (request, expected) in [
        (json!({}), "no cmd provided"),
        (cmd(json!({})), "cmd[0].args: must not be empty"),
        (cmd(json!({"args": ["a", "b\0"]})), "cmd[0].args[1]: contains a NUL"),
        (cmd(json!({"args": ["a"], "env": ["\0"]})), "cmd[0].env[0]: contains a NUL"),
        (cmd(json!({"args": ["a"], "cpuSetLimit": "0"})), "cmd[0].cpuSetLimit: "),
        (cmd(json!({"args": ["a"], "cpuRateLimit": 1})), "cmd[0].cpuRateLimit: "),
        (cmd(json!({"args": ["a"], "strictMemoryLimit": true})), "cmd[0].strictMemoryLimit: "),
        (cmd(json!({"args": ["a"], "addressSpaceLimit": true})), "cmd[0].addressSpaceLimit: "),
        (json!({"cmd": vec![json!({"args": ["a"]}); 5]}), "cmd: there are 5, and at most 4"),
        (files(json!([{}])), "cmd[0].files[0]: must have src"),
        (files(json!([{"name": "a"}])), "cmd[0].files[0]: must have src"),
        (files(json!([{"name": "a", "max": -1}])), "cmd[0].files[0].max: must not be negative"),
        (files(json!([{"src": "/etc/passwd"}])), "cmd[0].files[0].src: file (/etc/passwd) is not"),
        (files(json!([null, {"streamOut": true}])), "cmd[0].files[1]: streams need"),
        (files(json!(vec![Value::Null; 20])), "cmd[0].files: there may be at most 19"),
        (
            files(json!([null, {"name": "a", "max": 1}, null, {"name": "a", "max": 1}])),
            "cmd[0].files[3].name: is the name of an earlier one",
        ),
        (
            cmd(json!({"args": ["a"], "tty": true, "files": [null, null, null, {"content": ""}]})),
            "cmd[0].tty: ",
        ),
        (
            cmd(json!({"args": ["a"], "copyIn": {"x": {"symlink": ""}}})),
            "cmd[0].copyIn[\"x\"].symlink: must not be empty",
        ),
        (
            cmd(json!({"args": ["a"], "copyIn": {"x": {"name": "x", "max": 1}}})),
            "cmd[0].copyIn[\"x\"]: must have",
        ),
        (
            cmd(json!({"args": ["a"], "copyIn": {"1": {"content": ""}, "2": {"content": ""},
                "3": {"content": ""}, "4": {"content": ""}, "5": {"content": ""}}})),
            "cmd[0].copyIn: there may be at most 4",
        ),
        (
            cmd(
                json!({"args": ["a"], "copyOut": (0..65).map(|i| i.to_string()).collect::<Vec<_>>()}),
            ),
            "cmd[0].copyOut: there may be at most 64",
        ),
        (pipe(at(2, 1), at(0, 0)), "pipeMapping[0].in.index: cmd[2] does not exist"),
        (pipe(at(0, 1), at(-1, 0)), "pipeMapping[0].out.index: cmd[-1] does not exist"),
        (pipe(at(0, 19), at(0, 0)), "pipeMapping[0].in.fd: must be from 0 to 18"),
        (pipe(at(0, 2), at(0, 0)), "pipeMapping[0].in.fd: 2 of cmd[0] is something else"),
        (pipe(at(0, 1), at(0, 1)), "pipeMapping[0].out.fd: 1 of cmd[0] is something else"),
        (pipe(at(0, 1), at(1, 0)), "pipeMapping[0].out.index: cmd[1] has a terminal"),
        (
            json!({"cmd": [{"args": ["a"], "copyIn": {"x": {"fileId": "y"}}}]}),
            "file does not exists",
        ),
    ] {
        let request_text = request.to_string();
        let error = plan(request).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{request_text}: {error}");
    }
}

#[test]
fn paths_are_those_of_the_working_directory() {
    for (path, expected) in [
        ("a", Some("a")),
        ("./a//b/.", Some("a/b")),
        ("/w/a", Some("a")),
        ("/workspace/a", Some("a")),
        ("/w//a", Some("a")),
        ("/wa", None),
        ("/tmp/a", None),
        ("a/../b", None),
        ("/w/../etc/passwd", None),
        ("", None),
        ("/w/", None),
        ("a\0b", None),
    ] {
        assert_eq!(workspace_path(path).ok().as_deref(), expected, "{path:?}");
    }
}

#[test]
fn files_that_cannot_be_placed_are_the_program_s_outcome() {
    let program = one(json!({"args": ["x"], "copyIn": {
        "a": {"content": ""}, "a/b": {"content": ""}, "/etc/x": {"content": ""},
        "../l": {"symlink": "y"},
    }}));
    let refused = program.refused.unwrap();
    let errors: Vec<_> = refused.file_error.iter().map(|e| (e.name.as_str(), e.kind)).collect();
    assert_eq!(refused.status, GojudgeStatus::FileError);
    assert_eq!(
        errors,
        [
            ("../l", FileErrorKind::Symlink),
            ("/etc/x", FileErrorKind::CopyInCreateFile),
            ("a/b", FileErrorKind::CopyInCreateFile),
        ]
    );
    // The directory may come first as well.
    let mut paths = BTreeSet::new();
    assert!(
        claim(&mut paths, "a/b".to_owned()).is_ok() && claim(&mut paths, "a".to_owned()).is_err()
    );
    assert!(
        claim(&mut paths, "ab".to_owned()).is_ok() && claim(&mut paths, "a/c".to_owned()).is_ok()
    );
}

#[test]
fn a_program_is_looked_for_among_its_files_first() {
    for (arg, expected) in [("a", "./a"), ("b", "b"), ("d/a", "d/a"), ("/bin/a", "/bin/a")] {
        let program = one(json!({"args": [arg], "copyIn":
            {"a": {"content": ""}, "d/a": {"content": ""}}}));
        assert_eq!(program.command.argv[0], expected.as_bytes());
    }
}

#[test]
fn limits_are_exact_within_the_maxima() {
    let limits = |cmd: Value| one(cmd).command.limits;
    let resolved = limits(json!({"args": ["a"], "cpuLimit": 1_500_000_001_u64,
        "clockLimit": 2_000_000_001_u64, "memoryLimit": 64 * MIB, "procLimit": 7,
        "stackLimit": 128 * MIB}));
    assert_eq!(resolved.cpu, Duration::from_nanos(1_500_000_001));
    assert_eq!(resolved.wall, Duration::from_nanos(2_000_000_001));
    assert_eq!((resolved.memory_bytes, resolved.processes), (64 * MIB, 7));
    assert_eq!(resolved.stack_bytes, 64 * MIB, "never more than there is memory");
    let older = limits(json!({"args": ["a"], "clockLimit": 1, "realCpuLimit": 3_000_000_000_u64}));
    assert_eq!(older.wall, Duration::from_secs(3));
    let same = limits(json!({"args": ["a"], "cpuLimit": 3_000_000_000_u64}));
    assert_eq!((same.cpu, same.wall), (Duration::from_secs(3), Duration::from_secs(3)));
    let most = limits(json!({"args": ["a"], "cpuLimit": u64::MAX, "memoryLimit": u64::MAX,
        "procLimit": u64::MAX, "stackLimit": u64::MAX}));
    assert_eq!((most.cpu, most.memory_bytes), (Duration::from_secs(60), 4096 * MIB));
    assert_eq!((most.processes, most.stack_bytes), (1024, 1024 * MIB));
    let none = limits(json!({"args": ["a"]}));
    assert_eq!((none.cpu, none.wall), (Duration::from_secs(10), Duration::from_secs(20)));
    assert_eq!(limits(json!({"args": ["a"], "cpuLimit": 1})).cpu, TIME_MIN);
}

#[test]
fn names_of_streams_are_not_looked_for_among_files() {
    let program = one(json!({"args": ["a"],
        "files": [null, {"name": "stdout", "max": 5}],
        "copyOut": ["stdout", "a?", "a", "/tmp/x", "/tmp/y?", "/w/b"], "copyOutCached": ["a", "c"]}));
    let outputs: Vec<_> =
        program.outputs.iter().map(|output| (output.name.as_str(), output.is_optional)).collect();
    assert_eq!(outputs, [("a", true), ("/w/b", false), ("c", false)]);
    assert_eq!(program.command.outputs, ["a", "b", "c"]);
    assert_eq!(program.cached, HashSet::from(["a".to_owned(), "c".to_owned()]));
    assert_eq!(program.refused_outputs.len(), 1);
    assert_eq!(program.command.profile, SeccompProfile::Compile);
    let plan = plan(json!({"cmd": [{"args": ["a"], "copyOut": ["traffic"]}, {"args": ["b"]}],
        "pipeMapping": [{"in": {"index": 0, "fd": 1}, "out": {"index": 1, "fd": 0},
            "proxy": true, "name": "traffic", "max": 3}]}));
    let plan = plan.unwrap();
    assert!(plan.programs[0].command.outputs.is_empty());
    assert_eq!(plan.pipes[0].keep, Some(("traffic".to_owned(), 3)));
    assert_eq!(plan.memory_bytes, 1024 * MIB);
}

#[test]
fn stored_files_go_by_descriptor_and_streams_only_where_there_is_a_caller() {
    let store = FileStore::new(&GojudgeConfig::default());
    let id = store.add("tenant", "f", b"12", clock::now()).unwrap();
    let request = json!({"cmd": [{"args": ["a"], "copyIn": {"f": {"fileId": id}},
        "files": [{"streamIn": true}, {"streamOut": true}, {"fileId": id}]}]});
    assert!(plan_with(&store, request.clone(), false).is_err());
    let program = plan_with(&store, request, true).unwrap().programs.pop().unwrap();
    assert!(matches!(program.command.files[0].content, WorkspaceContent::Shared(_)));
    assert!(program.command.files[0].executable);
    assert!(matches!(
        &*program.streams,
        [DescriptorPlan::In, DescriptorPlan::Out, DescriptorPlan::Shared(_)]
    ));
}
