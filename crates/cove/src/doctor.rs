//! `cove doctor`: what this machine offers for isolation, what is missing and what follows.
//!
//! It does not guess from versions alone: it starts the engine and runs programs that exceed their
//! limits.

mod interpreter;

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use api::{Execution, ExecutionRequest, LimitSpec, Verdict};
use executions::{ExecutionService, Languages, ProgramIo};
use node::telemetry::{self, LevelFilter, LogFormat};
use sandbox::{Engine, IsolationLayers, LaunchedSpawners};
use serde::Serialize;
use sessions::ForkHazards;

use crate::config::{CoveConfig, Environment};
use crate::{engine, host, languages};

/// Time that attaching a disk that nobody has may take.
const DISK_WAIT: Duration = Duration::from_secs(5);

/// What was found about one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckStatus {
    /// It is there.
    Ok,
    /// It is not, and that costs something less than safety.
    Note,
    /// It is not, and untrusted code cannot be run.
    Missing,
}

/// A line of the report.
#[derive(Debug, Serialize)]
struct DoctorCheck {
    name: &'static str,
    status: CheckStatus,
    /// What was found.
    found: String,
    /// What follows from it, when something does.
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<String>,
}

/// Everything.
#[derive(Debug, Serialize)]
struct DoctorReport {
    /// True if untrusted code can be run here.
    ok: bool,
    version: &'static str,
    root: bool,
    checks: Vec<DoctorCheck>,
    /// What the code interpreter's libraries start when they are imported; none if that was not
    /// tried, for which a check says why.
    interpreter: Option<ForkHazards>,
    languages: Vec<api::LanguageView>,
}

/// Looks, tries and reports.
pub(crate) fn run(config: &CoveConfig, environment: &Environment, json: bool) -> Result<ExitCode> {
    telemetry::init_logs(LogFormat::Text, LevelFilter::ERROR, environment.colour())
        .map_err(anyhow::Error::from_boxed)?;
    let mut checks = kernel(environment.is_root);
    let languages = languages::load(config, environment)?;
    // Told to go on without limits, so that everything else can be looked at as well.
    let launched = Engine::launch(engine::for_one_program(languages.toolchains(), true));
    let mut interpreter = None;
    let list = match launched {
        Ok(launched) => {
            let layers = launched.layers().clone();
            checks.extend(layer_checks(&layers));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let limited = layers.cgroups.is_sufficient();
            let tried = runtime.block_on(try_engine(launched, languages.clone(), config, limited));
            checks.extend(tried.0);
            interpreter = tried.1;
            runtime.block_on(languages.list_with_versions())
        }
        Err(error) => {
            let error = anyhow::Error::from(error);
            checks.push(DoctorCheck {
                name: "engine",
                status: CheckStatus::Missing,
                found: format!("{error:#}"),
                follows: Some("no program can be run".to_owned()),
            });
            languages.list()
        }
    };
    checks.push(session_disks());
    let ok = checks.iter().all(|check| check.status != CheckStatus::Missing);
    let version = env!("CARGO_PKG_VERSION");
    let root = environment.is_root;
    let report = DoctorReport { ok, version, root, checks, interpreter, languages: list.languages };
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        let colour = environment.colour() && out.is_terminal();
        write!(out, "{}", report.text(colour))?;
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(name: &'static str, found: impl Into<String>) -> DoctorCheck {
    DoctorCheck { name, status: CheckStatus::Ok, found: found.into(), follows: None }
}

impl DoctorCheck {
    fn but(mut self, status: CheckStatus, follows: &str) -> DoctorCheck {
        self.status = status;
        self.follows = Some(follows.to_owned());
        self
    }
}

/// Returns what can be read without doing anything.
fn kernel(is_root: bool) -> Vec<DoctorCheck> {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let mut checks = Vec::new();
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".to_owned());
    checks.push(check("kernel", format!("Linux {release} on {}", std::env::consts::ARCH)));

    checks.push(if is_root {
        check("user", "root")
    } else {
        let id = host::user_id().map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        check("user", format!("user {id}, not root")).but(
            CheckStatus::Note,
            "programs share one user id and are kept apart by namespaces and Landlock alone",
        )
    });

    let wanted = ["pid", "mnt", "ipc", "uts", "net", "cgroup"];
    let missing: Vec<_> =
        wanted.iter().filter(|it| !Path::new("/proc/self/ns").join(it).exists()).collect();
    checks.push(match missing.as_slice() {
        [] => check("namespaces", wanted.join(", ")),
        missing => check("namespaces", format!("without {missing:?}"))
            .but(CheckStatus::Missing, "programs could see each other and the host"),
    });

    checks.push(user_namespaces(is_root, read("/proc/sys/user/max_user_namespaces").ok()));

    checks.push(match read("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) => check("seccomp", actions.split_whitespace().collect::<Vec<_>>().join(", ")),
        Err(_) => check("seccomp", "not in this kernel")
            .but(CheckStatus::Missing, "programs could use every system call"),
    });

    checks.push(match read("/sys/kernel/security/lsm") {
        Ok(modules) if modules.split(',').any(|module| module == "landlock") => {
            check("landlock", "active")
        }
        Ok(modules) => check("landlock", format!("not among the active modules ({modules})"))
            .but(CheckStatus::Note, "without root the file system is kept by namespaces alone"),
        Err(_) => check("landlock", "unknown: securityfs is not mounted"),
    });
    checks
}

fn user_namespaces(is_root: bool, max: Option<String>) -> DoctorCheck {
    let found = match max.as_deref() {
        Some("0") => "forbidden (user.max_user_namespaces is 0)".to_owned(),
        Some(max) => format!("allowed, at most {max}"),
        None => "not in this kernel".to_owned(),
    };
    let allowed = max.is_some_and(|max| max != "0");
    match (allowed, is_root) {
        (true, _) => check("user namespaces", found),
        (false, true) => check("user namespaces", format!("{found}; not needed by root")),
        (false, false) => check("user namespaces", found)
            .but(CheckStatus::Missing, "without root nothing can be isolated; start cove as root"),
    }
}

/// Makes a disk such as sessions have, attaches it, and takes it away again.
fn session_disks() -> DoctorCheck {
    let place = Path::new("/tmp").join(format!("cove-doctor-{}", std::process::id()));
    let image = place.join("disk.img");
    let size =
        sandbox::DiskSize { bytes: sandbox::DISK_BYTES_MIN, inodes: sandbox::DISK_INODES_MIN };
    let tried = sandbox::Disks::open(&place.join("templates"))
        .and_then(|disks| disks.create(&image, size))
        .and_then(|()| sandbox::AttachedDiskImage::attach(&image, DISK_WAIT));
    let result = match tried {
        Ok(disk) => {
            drop(disk);
            check("session disks", "made and attached one (ext4 image, loop device, id-mapped)")
        }
        Err(error) => check("session disks", format!("{:#}", anyhow::Error::from(error)))
            .but(CheckStatus::Note, "agents and sessions are not available; everything else is"),
    };
    // Nothing was made where nothing could be.
    let _best_effort = fs::remove_dir_all(&place);
    result
}

/// Returns what the engine found when it started.
fn layer_checks(layers: &IsolationLayers) -> Vec<DoctorCheck> {
    let groups = &layers.cgroups;
    let mut checks = vec![check("control groups", groups.layout.clone())];
    let mut limit = |name, by: &Option<String>, status, follows: &str| {
        checks.push(match by {
            Some(by) => check(name, format!("by control groups {by}")),
            None => check(name, "not available").but(status, follows),
        });
    };
    let refused = "untrusted code is refused unless --insecure-no-limits is given; start cove as root, \
                   or give it a control group of its own with this controller";
    limit("memory limit", &groups.memory, CheckStatus::Missing, refused);
    limit("pids limit", &groups.pids, CheckStatus::Missing, refused);
    let share = "one program with many processes gets more of the processors than one with few";
    limit("cpu share", &groups.cpu, CheckStatus::Note, share);
    let time = "CPU time is added up from the processes that are seen, which is less exact";
    limit("cpu time", &groups.cpu_time, CheckStatus::Note, time);
    checks.push(match layers.users {
        Some((first, last)) => {
            check("user ids", format!("one of its own per sandbox, like {first} to {last}"))
        }
        None => check("user ids", "the caller's, in a user namespace"),
    });
    let rules = layers.seccomp_rules;
    checks.push(check("seccomp policy", format!("{rules} rules")));
    checks.push(match (layers.landlock, layers.root) {
        (0, true) => check("landlock rules", "not used: user ids do their work"),
        (0, false) => check("landlock rules", "not available")
            .but(CheckStatus::Note, "the file system is kept by namespaces alone"),
        (version, _) => check("landlock rules", format!("in use, version {version}")),
    });
    checks
}

/// A program and how it must end.
struct TrialProgram {
    name: &'static str,
    script: &'static str,
    limits: LimitSpec,
    expected: Verdict,
    /// True if it needs memory and processes to be limited.
    needs_limits: bool,
}

fn trials() -> [TrialProgram; 3] {
    let none = LimitSpec::default();
    [
        TrialProgram {
            name: "run a program",
            script: "test \"$(echo works)\" = works",
            limits: none,
            expected: Verdict::Ok,
            needs_limits: false,
        },
        TrialProgram {
            name: "stop a busy one",
            script: "while :; do :; done",
            limits: LimitSpec { cpu_ms: Some(50), ..none },
            expected: Verdict::Tle,
            needs_limits: false,
        },
        TrialProgram {
            name: "stop a greedy one",
            // `tail` has to keep what has no line end.
            script: "head -c 256M /dev/zero | tail -n 1",
            limits: LimitSpec { memory_bytes: Some(32 << 20), ..none },
            expected: Verdict::Mle,
            needs_limits: true,
        },
    ]
}

async fn try_engine(
    launched: LaunchedSpawners,
    languages: Languages,
    config: &CoveConfig,
    limited: bool,
) -> (Vec<DoctorCheck>, Option<ForkHazards>) {
    let failed = |error: &dyn std::fmt::Display| {
        let missing = CheckStatus::Missing;
        (vec![check("engine", error.to_string()).but(missing, "no program can be run")], None)
    };
    let engine = match Engine::attach(launched) {
        Ok(engine) => engine,
        Err(error) => return failed(&error),
    };
    let mut registry = telemetry::Registry::default();
    let executions = config.executions.clone();
    let service = ExecutionService::new(
        engine.clone(),
        languages,
        executions,
        host::capacity(),
        &mut registry,
    );
    let tried = match service {
        Err(error) => failed(&error),
        Ok(service) => {
            let mut checks = Vec::new();
            for trial in trials().iter().filter(|trial| limited || !trial.needs_limits) {
                let request = ExecutionRequest {
                    argv: Some(["/bin/sh", "-c", trial.script].map(str::to_owned).to_vec()),
                    limits: trial.limits,
                    ..ExecutionRequest::default()
                };
                let result =
                    Box::pin(service.execute("doctor", request, ProgramIo::default(), &mut ()))
                        .await;
                checks.push(trial.judge(result));
            }
            let (hazards, found) = interpreter::inspect(&service).await;
            checks.extend(found);
            (checks, hazards)
        }
    };
    engine.close().await;
    tried
}

impl TrialProgram {
    fn judge(&self, result: Result<Execution, executions::ExecutionError>) -> DoctorCheck {
        let failure = "programs do not end as they must; the log above may say why";
        match result {
            Ok(execution) if execution.outcome.verdict == self.expected => {
                let (verdict, ms) = (execution.outcome.verdict, execution.outcome.wall_ms);
                check(self.name, format!("{verdict} after {ms} ms"))
            }
            Ok(execution) => {
                let (verdict, expected) = (execution.outcome.verdict, self.expected);
                check(self.name, format!("{verdict} instead of {expected}"))
                    .but(CheckStatus::Missing, failure)
            }
            Err(error) => check(self.name, error.to_string()).but(CheckStatus::Missing, failure),
        }
    }
}

impl DoctorReport {
    fn text(&self, colour: bool) -> String {
        let paint = |code: &str, text: &str| {
            if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
        };
        let mut text = format!("Cove {}\n\n", self.version);
        for check in &self.checks {
            let mark = match check.status {
                CheckStatus::Ok => paint("32", "ok     "),
                CheckStatus::Note => paint("33", "note   "),
                CheckStatus::Missing => paint("31", "MISSING"),
            };
            text.push_str(&format!("{mark}  {:<18} {}\n", check.name, check.found));
            if let Some(follows) = &check.follows {
                text.push_str(&format!("{:9}{:<18} so {follows}\n", "", ""));
            }
        }
        text.push_str("\nLanguages\n");
        let list = api::LanguageList { languages: self.languages.clone() };
        for line in languages::table(&list).lines() {
            text.push_str(&format!("  {line}\n"));
        }
        let verdict = if self.ok {
            paint("32", "Untrusted code can be run here.")
        } else {
            paint("31", "Untrusted code cannot be run here: see what is MISSING above.")
        };
        text.push_str(&format!("\n{verdict}\n"));
        text
    }
}

#[cfg(test)]
mod tests {
    //! What follows from what is found.

    use super::*;

    #[test]
    fn user_namespaces_matter_without_root() {
        let status =
            |is_root, max: Option<&str>| user_namespaces(is_root, max.map(str::to_owned)).status;
        assert_eq!(status(true, Some("0")), CheckStatus::Ok);
        assert_eq!(status(false, Some("0")), CheckStatus::Missing);
        assert_eq!(status(false, None), CheckStatus::Missing);
        assert_eq!(status(false, Some("100")), CheckStatus::Ok);
    }

    #[test]
    fn a_report_says_what_follows() {
        let missing = check("memory limit", "not available").but(CheckStatus::Missing, "no limits");
        let report = DoctorReport {
            ok: false,
            version: "1.2.3",
            root: false,
            checks: vec![check("kernel", "Linux"), missing],
            interpreter: None,
            languages: Vec::new(),
        };
        let text = report.text(false);
        assert!(text.contains("ok       kernel             Linux\n"), "{text}");
        assert!(text.contains("MISSING  memory limit       not available\n"), "{text}");
        assert!(text.contains("so no limits\n") && text.contains("cannot be run here"), "{text}");
        assert!(!text.contains('\x1b') && report.text(true).contains('\x1b'));
    }
}
