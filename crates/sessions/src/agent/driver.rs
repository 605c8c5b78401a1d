//! The two kinds of agents: their launch, and changes while they run.

use std::collections::BTreeMap;

use api::{AgentOptions, AgentRuntime};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::TurnInput;

/// Port on the sandbox's loopback interface where agents reach the model.
pub(crate) const MODEL_PORT: u16 = 8100;

/// Dummy key, because clients send no requests without one. The relay drops it.
const PLACEHOLDER_KEY: &str = "provided-by-cove";

/// Variables that Claude reads only at its start.
const READ_AT_START: &[&str] = &[
    "ANTHROPIC_BASE_URL",
    "HOME",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "NODE_OPTIONS",
    "PATH",
    "SHELL",
];

/// Default permission mode of an agent: the sandbox confines it.
const PERMISSION_MODE: &str = "bypassPermissions";

/// Parameters of an agent's start.
#[derive(Clone, Debug)]
pub(crate) struct LaunchSpec<'a> {
    /// Program to start.
    pub(crate) runtime: &'a AgentRuntime,
    /// Path of Claude's program in the sandbox.
    pub(crate) claude: &'a str,
    /// Options at its start.
    pub(crate) options: &'a AgentOptions,
    /// Session that it is started for.
    pub(crate) session: &'a str,
    /// Agent's own id for the conversation to continue.
    pub(crate) conversation: Option<&'a str>,
    /// True if the model is reachable at [`MODEL_PORT`].
    pub(crate) has_model: bool,
    /// True if it is started ahead of a session: settings that can be sent only once, at the
    /// beginning, are held back until it is claimed.
    pub(crate) is_ahead: bool,
}

/// Plan of an agent's start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LaunchPlan {
    /// Kind of agent.
    pub(crate) driver: AgentDriver,
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// Environment with lower precedence than the agent's and the session's own.
    pub(crate) env: BTreeMap<String, String>,
    /// Environment variables that only the driver sets.
    pub(crate) env_fixed: BTreeMap<String, String>,
    /// Line written to it first.
    pub(crate) start_line: Option<Value>,
    /// Requests written to it after that.
    pub(crate) requests: Vec<Map<String, Value>>,
    /// Conversation to continue.
    pub(crate) conversation: Option<String>,
    /// Options at its start.
    pub(crate) options: AgentOptions,
    /// Session that it is started for.
    pub(crate) session: String,
    /// See [`LaunchSpec::is_ahead`].
    pub(crate) is_ahead: bool,
}

/// Kinds of agents that are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentDriver {
    /// Claude's command line.
    Claude,
    /// A program that speaks the agent protocol.
    Command,
}

/// Actions that change the options of a running agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OptionChange {
    /// No action needed.
    None,
    /// Requests, for [`super::AgentHandle::apply`].
    Requests(Vec<Map<String, Value>>),
    /// A new process is needed, because of this option.
    NewProcess(&'static str),
}

impl LaunchPlan {
    /// Plans the launch of an agent; none for the runtime `none`.
    pub(crate) fn new(spec: &LaunchSpec<'_>) -> Option<LaunchPlan> {
        let mut plan = match spec.runtime {
            AgentRuntime::Claude => claude(spec),
            AgentRuntime::Command { argv } => command(spec, argv),
            AgentRuntime::None => return None,
        };
        if spec.has_model {
            let url = format!("http://127.0.0.1:{MODEL_PORT}");
            plan.env.insert("ANTHROPIC_BASE_URL".to_owned(), url);
            plan.env.insert("ANTHROPIC_API_KEY".to_owned(), PLACEHOLDER_KEY.to_owned());
        }
        plan.env_fixed.insert("COVE_SESSION_ID".to_owned(), spec.session.to_owned());
        if spec.conversation.is_some() {
            plan.env_fixed.insert("COVE_RESUMED".to_owned(), "1".to_owned());
        }
        Some(plan)
    }

    fn bare(driver: AgentDriver, argv: Vec<String>, spec: &LaunchSpec<'_>) -> LaunchPlan {
        LaunchPlan {
            driver,
            argv,
            env: BTreeMap::new(),
            env_fixed: BTreeMap::new(),
            start_line: None,
            requests: Vec::new(),
            conversation: spec.conversation.map(str::to_owned),
            options: spec.options.clone(),
            session: spec.session.to_owned(),
            is_ahead: spec.is_ahead,
        }
    }

    /// Returns the complete environment, including the agent's and the session's own.
    pub(crate) fn environment(&self, own: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut env = self.env.clone();
        env.extend(own);
        env.extend(self.env_fixed.clone());
        env
    }

    /// Returns the actions that change an agent started by this plan to `options`. For an agent
    /// that was started ahead, called once, when it is claimed and before its first turn.
    /// `has_control` is what the agent reports.
    pub(crate) fn change(&self, options: &AgentOptions, has_control: bool) -> OptionChange {
        match self.driver {
            AgentDriver::Claude => self.change_claude(options),
            AgentDriver::Command if self.options == *options => OptionChange::None,
            AgentDriver::Command if has_control => {
                let options = serde_json::to_value(options).unwrap_or_default();
                OptionChange::Requests(vec![request("set_options", &[("options", options)])])
            }
            AgentDriver::Command => OptionChange::NewProcess("options"),
        }
    }

    /// Returns the actions that add variables to an agent started by this plan. Variables that are
    /// read only at its start, such as `PATH`, need a new process.
    pub(crate) fn add_env(&self, env: &BTreeMap<String, String>) -> OptionChange {
        match self.driver {
            _ if env.is_empty() => OptionChange::None,
            AgentDriver::Claude
                if !env.keys().any(|name| READ_AT_START.contains(&name.as_str())) =>
            {
                let settings = json!({"env": env});
                OptionChange::Requests(vec![request(
                    "apply_flag_settings",
                    &[("settings", settings)],
                )])
            }
            AgentDriver::Claude | AgentDriver::Command => OptionChange::NewProcess("env"),
        }
    }

    /// Returns the plan after [`Self::change`] was applied.
    pub(crate) fn changed(mut self, options: &AgentOptions) -> LaunchPlan {
        self.options = options.clone();
        self.is_ahead = false;
        self
    }

    fn change_claude(&self, new: &AgentOptions) -> OptionChange {
        let old = &self.options;
        let mut requests = Vec::new();
        if self.is_ahead {
            requests.extend(initialize(new));
        } else if old.system_prompt != new.system_prompt {
            return OptionChange::NewProcess("options.system_prompt");
        }
        if old.allowed_tools != new.allowed_tools {
            return OptionChange::NewProcess("options.allowed_tools");
        }
        if old.disallowed_tools != new.disallowed_tools {
            return OptionChange::NewProcess("options.disallowed_tools");
        }
        if old.model != new.model {
            let Some(model) = &new.model else { return OptionChange::NewProcess("options.model") };
            requests.push(set_model(model));
        }
        if old.permission_mode != new.permission_mode {
            let mode = new.permission_mode.as_deref().unwrap_or(PERMISSION_MODE);
            requests.push(request("set_permission_mode", &[("mode", json!(mode))]));
        }
        if old.mcp_servers != new.mcp_servers {
            requests.push(set_mcp_servers(new.mcp_servers.clone().unwrap_or_default()));
        }
        if requests.is_empty() { OptionChange::None } else { OptionChange::Requests(requests) }
    }
}

impl AgentDriver {
    /// Returns whether it accepts control requests, before it has reported that itself.
    pub(super) fn has_control(self) -> bool {
        self == AgentDriver::Claude
    }

    /// Returns the input line of a message.
    pub(super) fn user_line(self, input: &TurnInput, session: &str, uuid: &str) -> Vec<u8> {
        let mut line = input.extra.clone();
        line.insert("type".to_owned(), json!("user"));
        let message = json!({"role": "user", "content": input.content});
        line.insert("message".to_owned(), message);
        line.insert("parent_tool_use_id".to_owned(), Value::Null);
        line.insert("uuid".to_owned(), json!(uuid));
        if self == AgentDriver::Command {
            line.insert("session".to_owned(), json!(session));
            line.insert("turn".to_owned(), json!(&*input.turn));
            line.insert("partial".to_owned(), json!(input.partial));
            if let Some(model) = &input.model {
                line.insert("model".to_owned(), json!(model));
            }
            if let Some(traceparent) = &input.traceparent {
                line.insert("traceparent".to_owned(), json!(traceparent));
            }
        }
        line_of(&Value::Object(line))
    }
}

/// Encodes a value as a line.
pub(super) fn line_of(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Converts a turn's id to the form of Claude's message ids: a UUID of version 8 (RFC 9562 §5.8,
/// whose bits are free to choose).
pub(super) fn uuid_of(turn: &str) -> String {
    let hash = Sha256::digest(turn.as_bytes());
    let mut text = String::with_capacity(36);
    for (index, byte) in hash.iter().take(16).enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let byte = match index {
            6 => (byte & 0x0f) | 0x80,
            8 => (byte & 0x3f) | 0x80,
            _ => *byte,
        };
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Returns the request that changes the model.
pub(super) fn set_model(model: &str) -> Map<String, Value> {
    request("set_model", &[("model", json!(model))])
}

/// Returns the request that Claude accepts once, before its first turn. The prompt is not a command
/// line argument, because the kernel limits those and every process in the sandbox can read them.
fn initialize(options: &AgentOptions) -> Option<Map<String, Value>> {
    let prompt = options.system_prompt.as_ref()?;
    Some(request("initialize", &[("systemPrompt", json!([prompt]))]))
}

fn set_mcp_servers(servers: Map<String, Value>) -> Map<String, Value> {
    request("mcp_set_servers", &[("servers", Value::Object(servers))])
}

/// Returns a request of the control protocol, without its envelope.
fn request(subtype: &str, fields: &[(&str, Value)]) -> Map<String, Value> {
    let mut request = Map::new();
    request.insert("subtype".to_owned(), json!(subtype));
    for (name, value) in fields {
        request.insert((*name).to_owned(), value.clone());
    }
    request
}

/// Plans the launch of Claude's command line, per `claude --help` of version 2.1.
fn claude(spec: &LaunchSpec<'_>) -> LaunchPlan {
    let options = spec.options;
    let mode = options.permission_mode.as_deref().unwrap_or(PERMISSION_MODE);
    let mut argv: Vec<String> = [
        spec.claude,
        "-p",
        "--input-format=stream-json",
        "--output-format=stream-json",
        "--verbose",
        "--include-partial-messages",
        // Allows a session to select `bypassPermissions` later; otherwise it is rejected.
        "--allow-dangerously-skip-permissions",
    ]
    .map(str::to_owned)
    .into();
    // A single argument each, so that no value is parsed as another option.
    argv.push(format!("--permission-mode={mode}"));
    if let Some(model) = &options.model {
        argv.push(format!("--model={model}"));
    }
    if let Some(tools) = &options.allowed_tools {
        argv.push(format!("--allowedTools={}", tools.join(",")));
    }
    if let Some(tools) = &options.disallowed_tools {
        argv.push(format!("--disallowedTools={}", tools.join(",")));
    }
    if let Some(conversation) = spec.conversation {
        argv.push(format!("--resume={conversation}"));
    }
    let mut requests = Vec::new();
    if !spec.is_ahead {
        requests.extend(initialize(options));
    }
    if let Some(servers) = options.mcp_servers.clone().filter(|servers| !servers.is_empty()) {
        requests.push(set_mcp_servers(servers));
    }
    // Its answer shows that Claude has started: it writes nothing before the first request.
    requests.push(request("mcp_status", &[]));
    let quiet = ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER"];
    let mut plan = LaunchPlan::bare(AgentDriver::Claude, argv, spec);
    plan.env = quiet.map(|name| (name.to_owned(), "1".to_owned())).into();
    plan.requests = requests;
    plan
}

/// Plans the launch of a program that speaks the agent protocol (`docs/agents.md`).
fn command(spec: &LaunchSpec<'_>, argv: &[String]) -> LaunchPlan {
    let mut plan = LaunchPlan::bare(AgentDriver::Command, argv.to_vec(), spec);
    plan.start_line = Some(json!({
        "type": "start",
        "session": spec.session,
        "conversation": spec.conversation,
        "options": spec.options,
    }));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(runtime: &AgentRuntime, options: &AgentOptions, is_ahead: bool) -> LaunchPlan {
        let spec = LaunchSpec {
            runtime,
            claude: "/opt/claude",
            options,
            session: "ses_1",
            conversation: Some("c-1"),
            has_model: true,
            is_ahead,
        };
        LaunchPlan::new(&spec).unwrap()
    }

    fn subtypes(requests: &[Map<String, Value>]) -> Vec<&str> {
        requests.iter().map(|request| request["subtype"].as_str().unwrap()).collect()
    }

    fn some_options() -> AgentOptions {
        AgentOptions {
            model: Some("m".to_owned()),
            system_prompt: Some("--model=evil".to_owned()),
            permission_mode: Some("plan".to_owned()),
            allowed_tools: Some(vec!["Bash(git *)".to_owned(), "Edit".to_owned()]),
            disallowed_tools: Some(vec!["--resume".to_owned()]),
            mcp_servers: Some(Map::from_iter([("s".to_owned(), json!({"url": "u"}))])),
        }
    }

    #[test]
    fn claude_is_started_with_options_that_cannot_become_others() {
        let options = some_options();
        let plan = plan(&AgentRuntime::Claude, &options, false);
        let expected = [
            "/opt/claude",
            "-p",
            "--input-format=stream-json",
            "--output-format=stream-json",
            "--verbose",
            "--include-partial-messages",
            "--allow-dangerously-skip-permissions",
            "--permission-mode=plan",
            "--model=m",
            "--allowedTools=Bash(git *),Edit",
            "--disallowedTools=--resume",
            "--resume=c-1",
        ];
        assert_eq!(plan.argv, expected);
        let asked = ["initialize", "mcp_set_servers", "mcp_status"];
        assert_eq!(subtypes(&plan.requests), asked);
        assert_eq!(plan.requests[0]["systemPrompt"], json!(["--model=evil"]));
    }

    #[test]
    fn the_environment_of_the_owner_gives_way_to_names_of_ours_only() {
        let plan = plan(&AgentRuntime::Claude, &AgentOptions::default(), false);
        let own = [("COVE_SESSION_ID", "x"), ("ANTHROPIC_API_KEY", "mine"), ("A", "1")];
        let env = plan.environment(own.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert_eq!(env["COVE_SESSION_ID"], "ses_1");
        assert_eq!(env["COVE_RESUMED"], "1");
        assert_eq!(env["ANTHROPIC_API_KEY"], "mine");
        assert_eq!(env["ANTHROPIC_BASE_URL"], "http://127.0.0.1:8100");
        assert_eq!(env["A"], "1");
    }

    /// Checks the actions of a plan for `options`.
    fn check(plan: &LaunchPlan, has_control: bool, options: &AgentOptions, expected: &[&str]) {
        let found = match plan.change(options, has_control) {
            OptionChange::None => vec![],
            OptionChange::Requests(requests) => {
                subtypes(&requests).into_iter().map(str::to_owned).collect()
            }
            OptionChange::NewProcess(why) => vec![format!("new: {why}")],
        };
        assert_eq!(found, expected, "{options:?}");
    }

    #[test]
    fn options_change_by_request_where_that_works() {
        let none = AgentOptions::default();
        let all = some_options();
        let only = |change: fn(&mut AgentOptions, AgentOptions)| {
            let mut options = AgentOptions::default();
            change(&mut options, some_options());
            options
        };
        let prompt = only(|to, from| to.system_prompt = from.system_prompt);
        let tools = only(|to, from| to.allowed_tools = from.allowed_tools);
        let model = only(|to, from| to.model = from.model);
        let live = only(|to, from| {
            *to = AgentOptions {
                system_prompt: None,
                allowed_tools: None,
                disallowed_tools: None,
                ..from
            }
        });
        let claude = plan(&AgentRuntime::Claude, &none, false);
        check(&claude, true, &none, &[]);
        check(&claude, true, &live, &["set_model", "set_permission_mode", "mcp_set_servers"]);
        check(&claude, true, &prompt, &["new: options.system_prompt"]);
        check(&claude, true, &tools, &["new: options.allowed_tools"]);
        let changed = plan(&AgentRuntime::Claude, &all, false).changed(&live);
        check(&changed, true, &live, &[]);
        let with_model = plan(&AgentRuntime::Claude, &model, false);
        check(&with_model, true, &none, &["new: options.model"]);
        // An agent that was started in advance has not received its prompt.
        let ahead = plan(&AgentRuntime::Claude, &none, true);
        check(&ahead, true, &prompt, &["initialize"]);
        let ahead = plan(&AgentRuntime::Claude, &prompt, true);
        check(&ahead, true, &prompt, &["initialize"]);
        check(&ahead.clone().changed(&prompt), true, &prompt, &[]);
        assert_eq!(subtypes(&ahead.requests), ["mcp_status"]);

        let command = plan(&AgentRuntime::Command { argv: vec!["a".to_owned()] }, &none, false);
        check(&command, false, &none, &[]);
        check(&command, false, &model, &["new: options"]);
        check(&command, true, &model, &["set_options"]);
    }

    #[test]
    fn variables_are_added_where_they_are_not_read_already() {
        let claude = plan(&AgentRuntime::Claude, &AgentOptions::default(), true);
        let env = |name: &str| [(name.to_owned(), "1".to_owned())].into();
        assert!(matches!(claude.add_env(&env("FOO")), OptionChange::Requests(_)));
        assert_eq!(claude.add_env(&env("PATH")), OptionChange::NewProcess("env"));
        assert_eq!(claude.add_env(&BTreeMap::new()), OptionChange::None);
    }

    #[test]
    fn a_turn_has_a_uuid_of_its_own() {
        let uuid = uuid_of("turn_1");
        assert_eq!(uuid, uuid_of("turn_1"));
        assert_ne!(uuid, uuid_of("turn_2"));
        let parts: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert!(uuid[14..].starts_with('8') && "89ab".contains(&uuid[19..20]), "{uuid}");
    }
}
