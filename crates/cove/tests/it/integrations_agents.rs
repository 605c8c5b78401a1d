//! Further recipes of `examples/integrations`: Inspect AI's evaluations, agents of the AI SDK,
//! CrewAI and LlamaIndex, and Claude Code, with a stand-in for the model.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{Scratch, Server, install_packages, pip_install, until};

use crate::e2b;
use crate::sessions_claude::{KEY, Model, claude_program};
use crate::sessions_support::{Sessions, config};
use crate::shared::{COMPAT, finish, interpreter_with};
use crate::support::{COVE, SOON, beside_others, wait_until_gone};

/// Memory of a sandbox: interpreters with libraries for data run in it.
const MEMORY: &str = "memory_bytes = 536870912";
/// Time limit of a recipe's tool in these tests, in seconds.
const TOOL_SECONDS: &str = "8";
/// The end of a line of shell that never ends.
const ENDLESS: &str = "done # endless";

/// A server, a stand-in for the model, and a recipe that uses both.
struct Recipe {
    name: &'static str,
    server: Server,
    model: Model,
    directory: Scratch,
}

impl Recipe {
    fn start(name: &'static str) -> Recipe {
        let model = Model::start();
        let settings = config(&format!("{MEMORY}\n{}", model.settings()));
        let server = Server::start_with(COVE, &["--e2b", "127.0.0.1:0"], Some(&settings));
        Recipe { name, server, model, directory: Scratch::new() }
    }

    fn directory(&self) -> PathBuf {
        Path::new(COMPAT).join("../examples/integrations").join(self.name)
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory().join(name)).unwrap()
    }

    /// A command with the addresses of the server and the model, and with its own home directory.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let face = format!("http://{}", self.server.listener("e2b"));
        let model = format!("http://{}", self.model.address());
        let mut command = Command::new(program.as_ref());
        command.env("COVE_URL", format!("http://{}", self.server.client().address()));
        command.env("COVE_TOKEN", self.server.token());
        command.env("E2B_API_URL", &face).env("E2B_SANDBOX_URL", &face);
        command.env("E2B_API_KEY", e2b::key(&self.server));
        command.env("OPENAI_BASE_URL", format!("{model}/v1")).env("OPENAI_API_KEY", KEY);
        command.env("ANTHROPIC_BASE_URL", model).env("ANTHROPIC_API_KEY", KEY);
        command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        command.env("CREWAI_DISABLE_TELEMETRY", "true");
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("TOOL_SECONDS", TOOL_SECONDS);
        command.env("HOME", self.directory.path()).current_dir(self.directory());
        command
    }

    fn requirements(&self) -> (String, String) {
        let file = format!("../examples/integrations/{}/requirements.txt", self.name);
        (file, format!("recipe-{}", self.name))
    }

    /// States of all sessions, including ended ones.
    fn states(&self) -> Vec<String> {
        let sessions = self.server.client().get("/v1/sessions").json()["sessions"].clone();
        let states = sessions.as_array().unwrap().iter().map(|it| it["state"].as_str().unwrap());
        states.map(str::to_owned).collect()
    }

    /// Checks that the recipe used `sandboxes` sandboxes, that neither they nor their programs are
    /// left, and that the model was called and rejected no request.
    fn check_traces(&self, sandboxes: usize) {
        until("the end of the sandboxes", SOON, || match self.states() {
            states if states == vec!["ended"; sandboxes] => Ok(()),
            states => Err(format!("{states:?}")),
        });
        wait_until_gone(ENDLESS);
        let log = self.model.log();
        let requests: Vec<Value> =
            log.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        let answered = requests.iter().filter(|it| it["status"] == 200).count();
        assert!(answered > 0 && answered == requests.len(), "{log}");
    }

    /// Checks that the page contains the output of a recipe.
    fn check_page(&self, printed: &str) {
        let page = self.file("README.md");
        assert!(page.contains(printed), "the page lacks:\n{printed}");
    }
}

/// Inspect's interpreter with our package installed in it.
fn inspect(recipe: &Recipe) -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let (requirements, name) = recipe.requirements();
    let python = interpreter_with(&requirements, &name);
    let _one = ONE.lock();
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recipe-inspect-package");
    let files = ["pyproject.toml", "__init__.py", "client.py", "environment.py"];
    let place = |file: &str| match file {
        "pyproject.toml" => file.to_owned(),
        module => format!("inspect_cove/{module}"),
    };
    let read = |root: &Path| -> Vec<Option<String>> {
        files.iter().map(|file| fs::read_to_string(root.join(place(file))).ok()).collect()
    };
    let is_there = || {
        let mut import = Command::new(&python);
        import.args(["-c", "import importlib.metadata as it; it.version('inspect-cove')"]);
        import.output().unwrap().status.success()
    };
    if read(&copy) != read(&recipe.directory()) || !is_there() {
        fs::remove_dir_all(&copy).ok();
        fs::create_dir_all(copy.join("inspect_cove")).unwrap();
        for file in files {
            fs::copy(recipe.directory().join(place(file)), copy.join(place(file))).unwrap();
        }
        finish(pip_install(&python).args(["--no-deps", "--force-reinstall"]).arg(&copy));
    }
    python
}

#[test]
fn inspect_s_own_checks_of_a_sandbox_pass() {
    let _guard = beside_others();
    let recipe = Recipe::start("inspect");
    let mut check = recipe.command(inspect(&recipe));
    let printed = finish(check.arg(Path::new(COMPAT).join("inspect/self_check.py")));
    assert!(printed.ends_with("44 checks, 0 failed []\n"), "{printed}");
    assert!(printed.contains("test_exec_as_user: not supported, as expected\n"), "{printed}");
    assert_eq!(recipe.states(), vec!["ended"; 44]);
}

#[test]
fn an_evaluation_of_inspect_runs_and_scores_in_a_sandbox() {
    let _guard = beside_others();
    let recipe = Recipe::start("inspect");
    let program = inspect(&recipe).with_file_name("inspect");
    let mut eval = recipe.command(&program);
    eval.args(["eval", "primes.py", "--model", "openai/gpt-5", "--task-config", "task.json"]);
    eval.args(["--display", "plain", "--log-format", "json", "--log-dir"]);
    // Reached quickly even on a busy machine.
    eval.env("INSPECT_SANDBOX_MAX_EXEC_OUTPUT_SIZE", "65536");
    let printed = finish(eval.arg(recipe.directory.path().join("logs")));
    assert!(printed.contains("accuracy    1.000"), "{printed}");
    let log = fs::read_dir(recipe.directory.path().join("logs")).unwrap();
    let log = log.flatten().find(|file| file.path().extension().is_some_and(|it| it == "json"));
    let log: Value = serde_json::from_slice(&fs::read(log.unwrap().path()).unwrap()).unwrap();
    assert_eq!(log["status"], "success", "{log}");
    let messages = log["samples"][0]["messages"].as_array().unwrap();
    let tools: Vec<&Value> = messages.iter().filter(|it| it["role"] == "tool").collect();
    // A program of the model and a file of the data set work. A program that does not end and one
    // that writes without end are reported as such, and the sample continues.
    assert_eq!(tools[0]["content"], "2\n3\n5\n7\nfrom the dataset\nuser\n", "{tools:?}");
    assert_eq!(tools[1]["error"]["type"], "timeout", "{tools:?}");
    assert_eq!(tools[2]["error"]["type"], "limit", "{tools:?}");
    assert_eq!(log["samples"][0]["scores"]["runs_right"]["value"], 1, "{log}");
    recipe.check_traces(1);

    // The cleanup finds sandboxes of a killed Inspect by their label, and no others.
    let sessions = Sessions::from(&recipe.server);
    let left = sessions.create(&json!({ "metadata": { "inspect": "sample" } }));
    let other = sessions.create(&json!({}));
    let mut cleanup = recipe.command(&program);
    let printed = finish(cleanup.args(["sandbox", "cleanup", "cove"]));
    assert!(printed.contains(&format!("ended {left}")), "{printed}");
    assert_eq!(sessions.record(&left)["state"], "ended");
    assert_eq!(sessions.record(&other)["state"], "active");
}

#[test]
fn an_agent_of_the_ai_sdk_runs_programs_in_a_sandbox() {
    static PROJECT: OnceLock<PathBuf> = OnceLock::new();
    let _guard = beside_others();
    let recipe = Recipe::start("ai-sdk");
    let project = PROJECT.get_or_init(|| {
        let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recipe-ai-sdk");
        install_packages(&recipe.directory(), project, &["agent.mjs"])
    });
    let mut agent = recipe.command("node");
    agent.arg("agent.mjs").arg(recipe.file("task.txt")).current_dir(project);
    recipe.check_page(&finish(&mut agent));
    recipe.check_traces(1);
}

#[test]
fn an_agent_of_llamaindex_runs_programs_in_a_sandbox() {
    let _guard = beside_others();
    let recipe = Recipe::start("llamaindex");
    let (requirements, name) = recipe.requirements();
    let mut agent = recipe.command(interpreter_with(&requirements, &name));
    recipe.check_page(&finish(agent.arg("agent.py").arg(recipe.file("task.txt"))));
    recipe.check_traces(1);
}

#[test]
fn a_crew_of_crewai_runs_programs_in_a_sandbox() {
    let _guard = beside_others();
    let recipe = Recipe::start("crewai");
    let mut crew = recipe.command(interpreter_with("crewai/alone.txt", "recipe-crewai"));
    let printed = finish(crew.arg("crew.py").arg(recipe.file("task.txt")));
    // The results of cells are long: the page contains only their beginnings.
    let page = recipe.file("README.md");
    for line in printed.lines() {
        let start: String = line.chars().take(60).collect();
        assert!(page.contains(&start), "the page lacks {start:?}:\n{printed}");
    }
    for expected in ["'stdout': ['Saturday\\n']", "note.txt\\nuser\\n", "! Execution timed out"] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    recipe.check_traces(1);
}

/// The `PATH` of a shell that finds the two programs which recipes for Claude use.
fn path_with_claude(recipe: &Recipe) -> String {
    let programs = recipe.directory.path().join("bin");
    fs::create_dir(&programs).unwrap();
    symlink(COVE, programs.join("cove")).unwrap();
    symlink(claude_program(), programs.join("claude")).unwrap();
    format!("{}:/usr/bin:/bin", programs.display())
}

#[test]
fn claude_code_runs_programs_in_sandboxes_by_mcp() {
    let _guard = beside_others();
    let recipe = Recipe::start("claude-code");
    let mut ask = recipe.command("./by_mcp.sh");
    ask.env("PATH", path_with_claude(&recipe)).arg(recipe.file("task_by_mcp.txt"));
    recipe.check_page(&finish(&mut ask));
    // Claude receives the time-out of one program and the result of the other.
    let log = recipe.model.log();
    let request: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let results = request["body"]["messages"].to_string();
    for expected in ["TLE", "168 ['main.py']"] {
        assert!(results.contains(expected), "{expected}: {results}");
    }
    // The model is offered no tool that works on this machine.
    let tools: Vec<&str> =
        request["tools"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert!(tools.contains(&"mcp__cove__run_code"), "{tools:?}");
    for here in ["Bash", "Write", "Edit", "Read"] {
        assert!(!tools.contains(&here), "{tools:?}");
    }
}

#[test]
fn claude_code_is_an_agent_in_a_sandbox() {
    let _guard = beside_others();
    let recipe = Recipe::start("claude-code");
    let mut ask = recipe.command("./as_agent.sh");
    ask.env("PATH", path_with_claude(&recipe)).arg(recipe.file("task_as_agent.txt"));
    let printed = finish(&mut ask);
    recipe.check_page(&printed);
    assert!(printed.ends_with("CLAUDE.md\nprimes.py\n"), "{printed}");
    let log = recipe.model.log();
    assert!(log.contains("2 3 5 7 11 13 17 19 23 29 user"), "{log}");
    recipe.check_traces(1);
}
