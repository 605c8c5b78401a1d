//! Java programs cannot detect that their virtual machine started before they arrived.

use std::fs;
use std::time::Duration;

use sandbox::{
    Engine, OutputMode, ProgramExit, ProgramLimits, SandboxCommand, SeccompProfile, StdinSource,
    WarmKind, WarmRuntime, WorkspaceFile,
};

use crate::support::{tests, text};

tests!(
    java_programs_cannot_tell,
    programs_that_cannot_be_loaded_say_so_as_ever,
    a_started_machine_is_held_like_a_fresh_one,
    a_command_with_more_than_the_machine_was_started_with_is_refused,
);

/// Every program in one class, chosen by the first line of input: compiled once.
const MAIN: &str = include_str!("programs/Main.java");

/// Returns the directory of the JDK's programs, with links resolved.
fn jdk() -> String {
    let javac = fs::canonicalize("/usr/bin/javac").unwrap();
    javac.parent().unwrap().to_str().unwrap().to_owned()
}

fn byte_strings(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn argv() -> Vec<Vec<u8>> {
    let java = format!("{}/java", jdk());
    byte_strings(&[&java, "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx256m", "-cp", ".", "Main"])
}

fn env() -> Vec<Vec<u8>> {
    byte_strings(&["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user", "LANG=C.UTF-8"])
}

pub(crate) fn runtime() -> WarmRuntime {
    WarmRuntime {
        name: "java".to_owned(),
        kind: WarmKind::StartJava,
        argv: argv(),
        env: env(),
        limits: ProgramLimits::default(),
        ready: 0,
        forks_max: 0,
    }
}

/// Returns the compiled files of a program with one class, `Main`.
async fn compiled(engine: &Engine, source: &str) -> Vec<WorkspaceFile> {
    let javac = format!("{}/javac", jdk());
    let source = source.as_bytes().to_vec().into();
    let command = SandboxCommand {
        argv: byte_strings(&[&javac, "-J-XX:TieredStopAtLevel=1", "-d", ".", "Main.java"]),
        env: env(),
        files: vec![WorkspaceFile { path: "Main.java".into(), content: source, executable: false }],
        outputs: vec!["Main.class".into()],
        outputs_bytes_max: 1 << 20,
        limits: ProgramLimits {
            cpu: Duration::from_secs(60),
            wall: Duration::from_secs(60),
            memory_bytes: 1 << 30,
            processes: 128,
            ..ProgramLimits::default()
        },
        profile: SeccompProfile::Compile,
        last: true,
        ..SandboxCommand::default()
    };
    let mut exit = engine.sandbox().await.unwrap().run(command, &mut ()).await.unwrap();
    assert_eq!((text(&exit.stderr), exit.code), (String::new(), Some(0)));
    let content = exit.outputs.remove(0).unwrap().into();
    vec![WorkspaceFile { path: "Main.class".into(), content, executable: false }]
}

fn program(files: &[WorkspaceFile], stdin: &str) -> SandboxCommand {
    SandboxCommand {
        argv: argv(),
        env: env(),
        files: files.to_vec(),
        stdin: StdinSource::Bytes(stdin.as_bytes().to_vec()),
        limits: ProgramLimits { wall: Duration::from_secs(8), ..ProgramLimits::default() },
        last: true,
        ..SandboxCommand::default()
    }
}

async fn fresh(engine: &Engine, command: SandboxCommand) -> ProgramExit {
    engine.sandbox().await.unwrap().run(command, &mut ()).await.unwrap()
}

async fn warm(engine: &Engine, command: SandboxCommand) -> ProgramExit {
    let mut sandbox = engine.warm("java").await.unwrap().expect("it can be started here");
    sandbox.run(SandboxCommand { warm: true, ..command }, &mut ()).await.unwrap()
}

fn seen(
    exit: &ProgramExit,
) -> (String, String, Option<i32>, Option<i32>, Vec<sandbox::LimitBreach>) {
    (text(&exit.stdout), text(&exit.stderr), exit.code, exit.signal, exit.breaches.clone())
}

async fn java_programs_cannot_tell(engine: Engine) {
    let files = compiled(&engine, MAIN).await;
    let names: Vec<&str> = MAIN
        .lines()
        .filter_map(|line| line.trim().strip_prefix("case \"")?.split('"').next())
        .collect();
    assert!(names.len() >= 20, "{names:?}");
    let mut wrong = Vec::new();
    for name in names {
        let input = format!("{name}\n1 2\nrest");
        let command = || {
            let mut command = program(&files, &input);
            if name == "endless" {
                command.limits.cpu = Duration::from_millis(1500);
            }
            command
        };
        let fresh = seen(&fresh(&engine, command()).await);
        let warm = seen(&warm(&engine, command()).await);
        if fresh != warm {
            wrong.push(format!("{name}\nfresh {fresh:#?}\nwarm  {warm:#?}"));
        }
        // Otherwise its message about an unknown name would be equal as well.
        assert!(!fresh.1.contains("no such case"), "{name}");
    }
    assert!(wrong.is_empty(), "{} programs can tell:\n{}", wrong.len(), wrong.join("\n"));
}

async fn programs_that_cannot_be_loaded_say_so_as_ever(engine: Engine) {
    let mut cases = vec![("no class", Vec::new())];
    for (name, source) in [
        ("no method", "class Main {}"),
        ("not public", "class Main { static void main(String[] args) {} }"),
        ("not static", "public class Main { public void main(String[] args) {} }"),
        ("an interface", "interface Main {}"),
        (
            "thrown by its start",
            "class Main { static { if (true) throw new Error(\"x\"); }\n\
            public static void main(String[] args) {} }",
        ),
    ] {
        cases.push((name, compiled(&engine, source).await));
    }
    let broken = WorkspaceFile {
        path: "Main.class".into(),
        content: b"x".to_vec().into(),
        executable: false,
    };
    cases.push(("no class file", vec![broken]));
    for (name, files) in cases {
        let fresh = seen(&fresh(&engine, program(&files, "")).await);
        let warm = seen(&warm(&engine, program(&files, "")).await);
        assert_eq!(fresh, warm, "{name}");
        assert_ne!(fresh.2, Some(125), "{name}");
    }
}

/// Prints the kernel's data about the process, and its open files.
const HELD: &str = r#"
import java.nio.file.*;
public class Main {
    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status")))
            if (line.matches("(Umask|Uid|Gid|Groups|PPid|TracerPid|Cap|NoNew|Seccomp|Sig[BIC]).*"))
                System.out.println(line);
        for (String line : Files.readAllLines(Path.of("/proc/self/limits")))
            if (!line.contains("cpu time")) System.out.println(line);
        System.out.println(Files.readString(Path.of("/proc/self/cgroup")));
        try (var fds = Files.list(Path.of("/proc/self/fd"))) {
            var all = new java.util.TreeSet<String>();
            for (Path fd : (Iterable<Path>) fds::iterator)
                if (Files.isSymbolicLink(fd)) all.add(Files.readSymbolicLink(fd).toString());
            for (String link : all) System.out.println(link.replaceAll("[0-9]+", "N"));
        }
    }
}
"#;

async fn a_started_machine_is_held_like_a_fresh_one(engine: Engine) {
    let files = compiled(&engine, HELD).await;
    // With input, because a fresh program without any has `/dev/null` where this one has a pipe.
    let fresh = fresh(&engine, program(&files, "x")).await;
    let warm = warm(&engine, program(&files, "x")).await;
    assert_eq!((text(&fresh.stderr), text(&warm.stderr)), (String::new(), String::new()));
    let without_users = |exit: &ProgramExit| -> Vec<String> {
        let output = text(&exit.stdout);
        let lines = output.lines().filter(|line| !line.starts_with(['U', 'G']));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(without_users(&fresh), without_users(&warm));
    for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "PPid:\t1"] {
        assert!(text(&warm.stdout).contains(line), "{line} is not in {}", text(&warm.stdout));
    }
}

async fn a_command_with_more_than_the_machine_was_started_with_is_refused(engine: Engine) {
    let changes: [fn(&mut SandboxCommand); 3] = [
        |command| command.argv.push(b"x".to_vec()),
        |command| command.env.push(b"A=1".to_vec()),
        |command| command.env.clear(),
    ];
    for change in changes {
        let mut command = SandboxCommand { warm: true, ..program(&[], "") };
        change(&mut command);
        let mut sandbox = engine.warm("java").await.unwrap().unwrap();
        assert!(sandbox.run(command, &mut ()).await.is_err());
    }
    // It has fixed streams, so a command with others is started as usual.
    let mut sandbox = engine.warm("java").await.unwrap().unwrap();
    let merged = SandboxCommand { warm: true, stderr: OutputMode::Stdout, ..program(&[], "") };
    let exit = sandbox.run(merged, &mut ()).await.unwrap();
    assert!(text(&exit.stdout).contains("ClassNotFoundException"), "{}", text(&exit.stdout));
}
