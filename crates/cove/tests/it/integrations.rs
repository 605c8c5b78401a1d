//! Recipes of `examples/integrations`: agent frameworks as installed, whose code runs in Cove, with
//! a stand-in for the model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Request, Scratch, Server, process, until};

use crate::e2b;
use crate::sessions_claude::{KEY, Model};
use crate::shared::{COMPAT, finish, interpreter, interpreter_with};
use crate::support::{COVE, SOON, beside_others, wait_until_gone};

/// Memory of a sandbox, and the time limit of a code interpreter cell.
const SETTINGS: &str = "memory_bytes = 536870912\n[compat.e2b.settings]\ncell_timeout_s = 2\n";

/// A server, a stand-in for the model, and a recipe that uses both.
struct Recipe {
    name: &'static str,
    server: Server,
    model: Model,
}

impl Recipe {
    fn start(name: &'static str) -> Recipe {
        Recipe { name, server: e2b::serve_with(SETTINGS), model: Model::start() }
    }

    fn directory(&self) -> PathBuf {
        Path::new(COMPAT).join("../examples/integrations").join(self.name)
    }

    /// The recipe's interpreter, with the packages that it names.
    fn python(&self) -> PathBuf {
        let requirements = format!("../examples/integrations/{}/requirements.txt", self.name);
        interpreter_with(&requirements, &format!("recipe-{}", self.name))
    }

    /// Runs the agent on a task. Returns its output.
    fn run(&self, task: &Path) -> String {
        let mut agent = Command::new(self.python());
        agent.arg(self.directory().join("agent.py")).arg(task);
        let face = format!("http://{}", self.server.listener("e2b"));
        agent.env("E2B_API_URL", &face).env("E2B_SANDBOX_URL", &face);
        agent.env("E2B_API_KEY", e2b::key(&self.server));
        agent.env("OPENAI_BASE_URL", format!("http://{}/v1", self.model.address()));
        agent.env("OPENAI_API_KEY", KEY).env("MODEL", "gpt-stand-in");
        finish(&mut agent)
    }

    /// Follows the recipe's page, which contains the output.
    fn run_page(&self) -> String {
        let printed = self.run(&self.directory().join("task.txt"));
        let page = fs::read_to_string(self.directory().join("README.md")).unwrap();
        assert!(page.contains(&format!("agent.py task.txt\n{printed}```")), "{printed}");
        // Neither the endless program of the task nor any other is left.
        assert_eq!(process::with_marker(&format!("{}-endless", self.name)), Vec::<u32>::new());
        printed
    }

    /// Runs the agent on these lines. Returns its output.
    fn run_lines(&self, lines: &str) -> String {
        let scratch = Scratch::new();
        self.run(&scratch.file("task.txt", lines))
    }

    /// Checks that the recipe used `sandboxes` sandboxes, all of which have ended, and that the
    /// model was called and rejected no request.
    fn check_traces(&self, sandboxes: usize) {
        let client = self.server.client();
        until("the end of the sandboxes", SOON, || {
            let all = client.get("/v1/sessions").json()["sessions"].as_array().unwrap().clone();
            let is_over = |session: &Value| {
                session["state"] == "ended" && session["metadata"]["recipe"] == self.name
            };
            let over = all.iter().filter(|session| is_over(session)).count();
            if (all.len(), over) == (sandboxes, sandboxes) {
                Ok(())
            } else {
                Err(format!("{all:?}"))
            }
        });
        let log = self.model.log();
        let requests: Vec<Value> =
            log.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        assert!(!requests.is_empty());
        let refused: Vec<&Value> = requests.iter().filter(|it| it["status"] != 200).collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }
}

#[test]
fn the_stand_in_speaks_to_openai_s_client_in_its_published_types() {
    let _guard = beside_others();
    let model = Model::start();
    let mut client = Command::new(interpreter());
    client.arg(Path::new(COMPAT).join("model/openai_client.py"));
    client.env("OPENAI_BASE_URL", format!("http://{}/v1", model.address()));
    assert_eq!(finish(client.env("OPENAI_API_KEY", KEY)), "ok\n");
}

#[test]
fn deepagents_run_in_a_sandbox_and_go_on_after_hostile_commands() {
    let _guard = beside_others();
    let recipe = Recipe::start("deepagents");
    let printed = recipe.run_page();
    assert!(printed.contains("[execute] 5050\nsandbox\n"), "{printed}");
    recipe.check_traces(1);

    let endless = "import signal,time\nsignal.signal(15,signal.SIG_IGN)\ntime.sleep(64001)";
    let hostile = [
        json!({"command": "kill -9 -1; echo alive"}),
        json!({"command": "exit 3"}),
        json!({"command": "head -c 4000000000 /dev/zero > big; echo disk $?; rm big"}),
        json!({"command": "python3 -c 'b\"1\" * (4 << 30)'; echo memory $?"}),
        json!({"command": format!("python3 -c '{endless}'"), "timeout": 1}),
        json!({"command": "echo last"}),
    ];
    let lines: Vec<String> = hostile.iter().map(|input| format!("tool: execute {input}")).collect();
    let printed = recipe.run_lines(&lines.join("\n"));
    for line in [
        "[execute] alive\n",
        "[Command failed with exit code 3]\n",
        "[execute] disk 1\n",
        "[execute] memory 1",
        "[execute] Command timed out after 1 seconds\n",
        "[execute] last\n",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    recipe.check_traces(2);
    wait_until_gone("64001");
}

#[test]
fn a_sandbox_agent_of_openai_s_runs_in_a_sandbox_and_uses_its_terminal() {
    let _guard = beside_others();
    let recipe = Recipe::start("openai-agents");
    let printed = recipe.run_page();
    assert!(printed.contains("[exec_command] 40\n2\nsandbox\n"), "{printed}");
    recipe.check_traces(1);

    let terminal = json!({
        "cmd": "while read -r line; do echo heard-$line; done", "tty": true, "yield_time_ms": 250,
    });
    let session = json!({"$find": r"session ID (\d+)"});
    let hello = json!({"session_id": session, "chars": "hello\n", "yield_time_ms": 2000});
    let lines = format!("tool: exec_command {terminal}\ntool: write_stdin {hello}");
    let printed = recipe.run_lines(&lines);
    assert!(printed.contains("heard-hello"), "{printed}");
    recipe.check_traces(2);
}

#[test]
fn code_of_smolagents_runs_in_a_sandbox_and_an_endless_step_is_an_error_of_it() {
    let _guard = beside_others();
    let recipe = Recipe::start("smolagents");
    let printed = recipe.run_page();
    for line in ["[step 1] sandbox [64, 81, 100]\n", "[step 3] TimeLimitExceeded: "] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    recipe.check_traces(1);
}

/// The files that open-r1's client sends for one test of a submission:
/// <https://github.com/huggingface/open-r1/blob/1416fa0/src/open_r1/utils/competitive_programming/cf_scoring.py>
fn submission(language: &str, name: &str, code: &str, checker: Option<&str>) -> Value {
    let mut files = vec![json!({"name": name, "content": code})];
    files.extend(checker.map(|code| json!({"name": "checker.py", "content": code})));
    files.push(json!({"name": "input.txt", "content": "1 2\n"}));
    files.push(json!({"name": "correct_output.txt", "content": "3\n"}));
    let config = "TIME_LIMIT=2.0\nMEMORY_LIMIT=256.0\nINPUT_MODE=stdio";
    files.push(json!({"name": "grader_config", "content": config}));
    json!({"files": files, "run_timeout": 12000, "language": language, "version": "*"})
}

#[test]
fn submissions_that_open_r1_sends_are_scored_and_none_finds_the_expected_output() {
    let _guard = beside_others();
    let languages = Path::new(COMPAT).join("../examples/integrations/open-r1/languages.toml");
    let config = format!(
        "[executions]\nlanguages = {languages:?}\n[compat.piston.settings]\n\
         compile_timeout = 60000\nrun_timeout = 60000\n"
    );
    let server = Server::start_with(COVE, &[], Some(&config));
    let client = server.client();
    let add = "print(sum(map(int, input().split())))";
    let close = "import sys\ngiven, right, said = (open(it).read() for it in sys.argv[1:])\n\
                 print(int(abs(int(said) - int(right)) <= 1))";
    let cpp =
        "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }";
    // Targets in the comparing process: its memory, its output, its files.
    let spy = "import os, re\nparent = os.getppid()\n\
        for path in ['correct_output.txt', f'/proc/{parent}/mem', f'/proc/{parent}/environ']:\n  \
        try: print(re.search(rb'3', open(path, 'rb').read())[0].decode())\n  except OSError: pass";
    let forge = "import os\nparent = os.getppid()\nfor fd in range(64):\n  \
        try: os.write(os.open(f'/proc/{parent}/fd/{fd}', os.O_WRONLY), b'1\\n')\n  \
        except OSError: pass";
    let tamper = "import os, glob\nif os.fork() == 0:\n  os.setsid()\n  \
        os.dup2(os.open(os.devnull, 2), 1)\n  while True:\n    for it in glob.glob('/tmp/*/said.txt'): open(it, 'w').write('3')\nprint(9)";
    let big = "x = b'1' * (1 << 30)\nprint(3)";
    for (language, name, code, checker, compile, printed) in [
        ("cf_python3", "main.python", add, None, 0, "1"),
        ("cf_python3", "main.python", "print(4)", None, 0, "0"),
        ("cf_python3", "main.python", "print(4)", Some(close), 0, "1"),
        ("cf_python3", "main.python", "print(5)", Some(close), 0, "0"),
        ("cf_python3", "main.python", "print(", None, 1, ""),
        ("cf_python3", "main.python", "while True: pass", None, 0, "0"),
        ("cf_python3", "main.python", big, None, 0, "0"),
        ("cf_python3", "main.python", spy, None, 0, "0"),
        ("cf_python3", "main.python", forge, None, 0, "0"),
        ("cf_python3", "main.python", tamper, Some(close), 0, "0"),
        ("c++17", "main.cpp", cpp, None, 0, "1"),
        ("c++17", "main.cpp", "int main() { return x; }", None, 1, ""),
    ] {
        let body = submission(language, name, code, checker);
        let request = Request::new("POST", "/compat/piston/api/v2/execute");
        let response =
            client.send(&request.header("content-type", "application/json").body(body.to_string()));
        assert_eq!(response.status, 200, "{code}: {}", response.text());
        let answer = response.json();
        assert_eq!(answer["compile"]["code"], compile, "{code}: {answer}");
        if compile == 0 {
            assert_eq!(
                answer["run"]["stdout"].as_str().unwrap().trim(),
                printed,
                "{code}: {answer}"
            );
        }
    }
}
