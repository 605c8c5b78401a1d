//! Rivals without a server: every job is a process started by this program, with its own directory,
//! which holds its files and is removed with them. Creating and removing the directory is part of
//! the job's time, as it is for a server.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Rival, timed};
use crate::language::Tools;
use crate::spec::Launcher;
use crate::workload::{Answer, Ending, Job, Program};

/// Limits the number of concurrent jobs, first come first served, like a server's workers.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<Places>,
}

#[derive(Debug)]
struct Places {
    free: usize,
    /// Jobs that wait for a place. A returned place goes to the first of them and is never free in
    /// between, so no job overtakes another.
    waiting: VecDeque<SyncSender<()>>,
}

/// A place in the gate, returned on drop.
#[derive(Debug)]
struct Place<'a>(&'a Gate);

impl Gate {
    /// Creates a gate for `places` jobs.
    pub(crate) fn new(places: usize) -> Gate {
        Gate { state: Mutex::new(Places { free: places, waiting: VecDeque::new() }) }
    }

    /// Waits for a place.
    fn enter(&self) -> Place<'_> {
        let mut state = self.lock();
        if state.free > 0 {
            state.free -= 1;
        } else {
            let (turn, my_turn) = sync_channel(1);
            state.waiting.push_back(turn);
            drop(state);
            // The sender stays in the queue until it is used, so `recv` returns only after that.
            my_turn.recv().unwrap_or_default();
        }
        Place(self)
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        // The state is consistent even if another holder panicked, so poisoning can be ignored.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        match state.waiting.pop_front() {
            // The channel has room for this one message, so the send never blocks.
            Some(turn) => turn.send(()).unwrap_or_default(),
            None => state.free += 1,
        }
    }
}

/// A client that starts processes.
#[derive(Debug)]
pub(crate) struct Process {
    launch: Launch,
    gate: Arc<Gate>,
}

impl Process {
    /// Creates a client that starts jobs through `launch` when `gate` admits them.
    pub(crate) fn new(launch: Launch, gate: Arc<Gate>) -> Process {
        Process { launch, gate }
    }
}

impl Rival for Process {
    fn run(&mut self, job: &Job) -> Result<(Answer, Duration), String> {
        let Process { launch, gate } = self;
        timed(|| {
            let _place = gate.enter();
            launch.run(job)
        })
    }
}

/// How and where one client starts its jobs.
#[derive(Debug)]
pub(crate) struct Launch {
    launcher: Launcher,
    directory: PathBuf,
    env: Vec<String>,
    tools: Tools,
    /// runc's `config.json` before the job's values are filled in.
    template: Value,
    containers: u64,
}

impl Launch {
    /// Creates `directory`, below which each job gets a directory.
    pub(crate) fn new(
        launcher: Launcher,
        directory: PathBuf,
        env: Vec<String>,
        tools: Tools,
    ) -> Result<Launch, String> {
        make_directory(&directory)?;
        let template = match &launcher {
            Launcher::Runc { template, .. } => {
                let text = std::fs::read(template)
                    .map_err(|e| format!("read {}: {e}", template.display()))?;
                serde_json::from_slice(&text)
                    .map_err(|e| format!("understand {}: {e}", template.display()))?
            }
            Launcher::Bare | Launcher::Prefix { .. } => Value::Null,
        };
        Ok(Launch { launcher, directory, env, tools, template, containers: 0 })
    }

    /// Runs one job in its own directory.
    fn run(&mut self, job: &Job) -> Result<Answer, String> {
        let workdir = self.directory.join("w");
        make_directory(&workdir)?;
        let answer = self.stages(job, &workdir);
        std::fs::remove_dir_all(&workdir)
            .map_err(|e| format!("remove {}: {e}", workdir.display()))?;
        answer
    }

    fn stages(&mut self, job: &Job, workdir: &Path) -> Result<Answer, String> {
        match &job.program {
            Program::Argv(argv) => self.stage(argv, &[], &job.stdin, workdir),
            Program::Source(source) => {
                let language = source.language;
                write_file(&workdir.join(language.file), source.text.as_bytes())?;
                let env = language.env(&self.tools)?;
                if let Some(compile) = language.compile(&self.tools)? {
                    let compiled = self.stage(&compile, &env, "", workdir)?;
                    if compiled.ending != Ending::Success {
                        return Ok(compiled);
                    }
                }
                let run = language.run(&self.tools, &source.args)?;
                self.stage(&run, &env, &job.stdin, workdir)
            }
        }
    }

    fn stage(
        &mut self,
        argv: &[String],
        env: &[String],
        stdin: &str,
        workdir: &Path,
    ) -> Result<Answer, String> {
        let mut command = self.command(argv, env, workdir)?;
        command
            .stdin(if stdin.is_empty() { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("start {command:?}: {e}"))?;
        let input = child.stdin.take();
        let output = std::thread::scope(|scope| {
            if let Some(mut input) = input {
                // If the program ends without reading all input, the pipe breaks; the output shows
                // the failure.
                scope.spawn(move || input.write_all(stdin.as_bytes()));
            }
            child.wait_with_output()
        });
        let output = output.map_err(|e| format!("wait for {command:?}: {e}"))?;
        let ending = match output.status.success() {
            true => Ending::Success,
            false => Ending::Other(format!(
                "{}, stderr {:?}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )),
        };
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Answer { ending, stdout, cpu_ms: None, mode: None })
    }

    fn command(
        &mut self,
        argv: &[String],
        env: &[String],
        workdir: &Path,
    ) -> Result<Command, String> {
        let env = [&self.env, env].concat();
        let variables = env.iter().filter_map(|pair| pair.split_once('='));
        let (program, arguments) = argv.split_first().ok_or("start a job without a command")?;
        match &self.launcher {
            Launcher::Bare => {
                let mut command = Command::new(program);
                command.args(arguments).current_dir(workdir).env_clear();
                command.envs(variables);
                Ok(command)
            }
            Launcher::Prefix { argv: prefix } => {
                let workdir = workdir.to_string_lossy();
                let mut words = prefix.iter().map(|word| word.replace("{workdir}", &workdir));
                let mut command = Command::new(words.next().ok_or("start an empty launcher")?);
                command.args(words).args(argv).env_clear();
                command.envs(variables);
                Ok(command)
            }
            Launcher::Runc { argv: runc, workdir_inside, cgroup_parent, .. } => {
                let (runc, options) = runc.split_first().ok_or("start an empty launcher")?;
                let id = self.container_id();
                let config = self.bundle(
                    (argv, &env),
                    (workdir, workdir_inside),
                    &format!("{cgroup_parent}/{id}"),
                )?;
                write_file(&self.directory.join("config.json"), &config)?;
                let mut command = Command::new(runc);
                command.args(options).arg("run").arg("--bundle").arg(&self.directory).arg(&id);
                self.containers += 1;
                Ok(command)
            }
        }
    }

    fn container_id(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default().to_string_lossy();
        format!("{name}-{}", self.containers)
    }

    fn bundle(
        &self,
        (argv, env): (&[String], &[String]),
        (workdir, workdir_inside): (&Path, &str),
        cgroup: &str,
    ) -> Result<Vec<u8>, String> {
        let mut config = self.template.clone();
        config["process"]["args"] = json!(argv);
        config["process"]["env"] = json!(env);
        config["process"]["cwd"] = json!(workdir_inside);
        config["linux"]["cgroupsPath"] = json!(cgroup);
        let mounts = config["mounts"].as_array_mut().ok_or("find the template's mounts")?;
        let mount = mounts
            .iter_mut()
            .find(|mount| mount["destination"] == workdir_inside)
            .ok_or("find the template's working directory")?;
        mount["source"] = json!(workdir);
        serde_json::to_vec(&config).map_err(|e| format!("write a bundle: {e}"))
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        // Best effort: bench/run.py removes the whole scratch directory and reports any remains.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn make_directory(path: &Path) -> Result<(), String> {
    std::fs::create_dir(path).map_err(|e| format!("make {}: {e}", path.display()))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|e| format!("write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Expected;

    fn bare(name: &str) -> Launch {
        let directory = std::env::temp_dir().join(format!("load-{}-{name}", std::process::id()));
        Launch::new(Launcher::Bare, directory, vec!["PATH=/usr/bin:/bin".to_owned()], Tools::new())
            .unwrap()
    }

    fn job(argv: &[&str], stdin: &str, stdout: &str) -> Job {
        Job {
            name: "n".to_owned(),
            program: Program::Argv(argv.iter().map(|a| (*a).to_owned()).collect()),
            stdin: stdin.to_owned(),
            expected: Expected::Output(stdout.to_owned()),
        }
    }

    #[test]
    fn input_larger_than_a_pipe_comes_back_whole() {
        let text = "0123456789".repeat(100_000);
        let job = job(&["/bin/cat"], &text, &text);
        assert_eq!(job.mistake(&bare("pipe").run(&job).unwrap()), None);
    }

    #[test]
    fn a_failing_program_is_a_mistake_and_leaves_no_directory() {
        let job = job(&["/bin/sh", "-c", "echo x; exit 3"], "", "x\n");
        let mut launch = bare("fails");
        assert!(job.mistake(&launch.run(&job).unwrap()).unwrap().contains("exit status: 3"));
        assert!(!launch.directory.join("w").exists());
    }

    #[test]
    fn no_more_jobs_than_places_run_at_one_time() {
        let gate = Gate::new(2);
        let (now, most) = (Mutex::new(0), Mutex::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let place = gate.enter();
                        let mut n = now.lock().unwrap();
                        *n += 1;
                        let mut most = most.lock().unwrap();
                        *most = (*most).max(*n);
                        drop((n, most));
                        std::thread::yield_now();
                        *now.lock().unwrap() -= 1;
                        drop(place);
                    }
                });
            }
        });
        assert!((1..=2).contains(&*most.lock().unwrap()));
        assert_eq!(gate.lock().free, 2);
    }

    #[test]
    fn places_are_given_in_the_order_they_were_asked_for() {
        let gate = Gate::new(1);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let place = gate.enter();
            for n in 0..5 {
                let (gate, order) = (&gate, &order);
                scope.spawn(move || {
                    let _place = gate.enter();
                    order.lock().unwrap().push(n);
                });
                while gate.lock().waiting.len() <= n {
                    std::thread::yield_now();
                }
            }
            drop(place);
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    }
}
