//! Scripted agents, and a real process.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{AgentOptions, AgentRuntime};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, duplex};
use tokio::time::Instant;

use super::*;

const LIMITS: AgentLimits = AgentLimits {
    line_bytes_max: 4096,
    start: Duration::from_secs(60),
    grace: Duration::from_secs(5),
};

/// Maximum stored bytes of an agent.
const HISTORY_BYTES_MAX: usize = 64 << 10;

/// Everything reported to the sink, one line each.
#[derive(Default)]
struct Told {
    lines: Mutex<Vec<String>>,
    grew: Notify,
    is_full: AtomicBool,
    emptied: Notify,
}

impl Told {
    fn push(&self, line: String) {
        self.lines.lock().push(line);
        self.grew.notify_one();
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    async fn until(&self, count: usize) -> Vec<String> {
        while self.lines.lock().len() < count {
            self.grew.notified().await;
        }
        self.lines()
    }
}

impl AgentSink for Told {
    fn event(&self, turn: Option<&TurnId>, kind: SessionEventKind, data: Value) {
        if kind != SessionEventKind::Message {
            let turn = turn.map_or("-", |turn| &**turn);
            self.push(format!("{turn} {} {data}", kind.as_str()));
        }
    }

    fn full(&self) -> Option<String> {
        let bytes: usize = self.lines.lock().iter().map(String::len).sum();
        (bytes > HISTORY_BYTES_MAX).then(|| "nothing more is kept".to_owned())
    }

    fn room(&self) -> Later<'_, ()> {
        Box::pin(async {
            while self.is_full.load(Ordering::SeqCst) {
                self.emptied.notified().await;
            }
        })
    }

    fn conversation(&self, id: &str) {
        self.push(format!("conversation {id}"));
    }

    fn stderr(&self, line: &str) {
        self.push(format!("stderr {line}"));
    }
}

/// The agent's side of its process.
struct Script {
    stdin: Lines<BufReader<DuplexStream>>,
    stdout: Option<DuplexStream>,
    stderr: DuplexStream,
    signals: mpsc::UnboundedReceiver<AgentSignal>,
    end: Option<oneshot::Sender<String>>,
}

impl Script {
    async fn reads(&mut self) -> Value {
        let line = self.stdin.next_line().await.unwrap().expect("a line");
        serde_json::from_str(&line).unwrap()
    }

    async fn says(&mut self, line: &str) {
        let stdout = self.stdout.as_mut().unwrap();
        stdout.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn result(&mut self, is_error: bool) {
        let line = json!({"type": "result", "is_error": is_error, "result": "x"});
        self.says(&line.to_string()).await;
    }

    fn ends(&mut self, how: &str) {
        self.stdout = None;
        self.end.take().unwrap().send(how.to_owned()).unwrap();
    }
}

fn plan(runtime: &AgentRuntime) -> LaunchPlan {
    let options = AgentOptions::default();
    let spec = LaunchSpec {
        runtime,
        claude: "claude",
        options: &options,
        session: "ses_1",
        conversation: None,
        has_model: true,
        is_ahead: false,
    };
    LaunchPlan::new(&spec).unwrap()
}

fn command() -> LaunchPlan {
    plan(&AgentRuntime::Command { argv: vec!["agent".to_owned()] })
}

fn process() -> (AgentProcess, Script) {
    let ((stdin, read), (stdout, write)) = (duplex(64 << 10), duplex(64 << 10));
    let (stderr, write_stderr) = duplex(64 << 10);
    let (signalled, signals) = mpsc::unbounded_channel();
    let (end, ended) = oneshot::channel();
    let process = AgentProcess {
        stdin: Box::new(stdin),
        stdout: Box::new(stdout),
        stderr: Box::new(stderr),
        signal: Box::new(move |signal| signalled.send(signal).unwrap_or_default()),
        ended: Box::pin(async {
            match ended.await {
                Ok(how) => how,
                Err(_) => std::future::pending().await,
            }
        }),
    };
    let stdin = BufReader::new(read).lines();
    let script =
        Script { stdin, stdout: Some(write), stderr: write_stderr, signals, end: Some(end) };
    (process, script)
}

/// Starts an agent by a plan, and reads the input of its start.
async fn started(plan: &LaunchPlan) -> (AgentHandle, Script, Arc<Told>) {
    let (process, mut script) = process();
    let told = Arc::new(Told::default());
    let agent = AgentHandle::start(process, plan, LIMITS, Some(told.clone()));
    for _ in 0..plan.requests.len() + usize::from(plan.start_line.is_some()) {
        script.reads().await;
    }
    (agent, script, told)
}

fn message(turn: &str) -> TurnInput {
    TurnInput {
        turn: turn.into(),
        content: MessageContent::Text("hi".to_owned()),
        partial: true,
        model: None,
        extra: Map::new(),
        time: Duration::from_secs(100),
        traceparent: None,
    }
}

/// Sends a message and waits until the agent has read it.
async fn begun(
    agent: &AgentHandle,
    script: &mut Script,
    turn: &str,
) -> tokio::task::JoinHandle<TurnOutcome> {
    let (sender, input) = (agent.clone(), message(turn));
    let turn = tokio::spawn(async move { sender.send_turn(input).await });
    let line = script.reads().await;
    assert_eq!(line["message"], json!({"role": "user", "content": "hi"}));
    turn
}

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"c-1"}"#;
const INIT_CONTROL: &str =
    r#"{"type":"system","subtype":"init","session_id":"c-1","capabilities":["control"]}"#;
const TEXT: &str = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"yes"}]}}"#;
const ANSWERED: &str = r#"turn_complete {"cost_usd":0.0,"duration_ms":null,"is_error":false,"num_turns":null,"result":"x","usage":null}"#;

#[tokio::test(start_paused = true)]
async fn turns_of_one_process_are_told_one_by_one() {
    let (agent, mut script, told) = started(&command()).await;
    script.says(INIT).await;
    assert_eq!(agent.ready().await, Ok(false));
    for turn in ["t1", "t2"] {
        let sent = begun(&agent, &mut script, turn).await;
        script.says(TEXT).await;
        script.result(false).await;
        let outcome = sent.await.unwrap();
        assert_eq!((outcome.end, outcome.error), (TurnEnd::Completed, None));
    }
    // A result without a turn, which does not end the next one.
    script.says(TEXT).await;
    script.result(false).await;
    told.until(6).await;
    let sent = begun(&agent, &mut script, "t3").await;
    script.result(true).await;
    let outcome = sent.await.unwrap();
    assert_eq!((outcome.end, outcome.error.as_deref()), (TurnEnd::Completed, Some("x")));
    let expected = [
        "conversation c-1",
        r#"t1 text {"text":"yes"}"#,
        &format!("t1 {ANSWERED}"),
        r#"t2 text {"text":"yes"}"#,
        &format!("t2 {ANSWERED}"),
        r#"- text {"text":"yes"}"#,
        &format!("t3 {}", ANSWERED.replace("false", "true")),
    ];
    assert_eq!(told.lines(), expected);
    // A second message during a turn is not sent, and harms neither turn.
    let sent = begun(&agent, &mut script, "t4").await;
    let refused = agent.send_turn(message("t5")).await;
    assert_eq!((refused.end, refused.error.is_some()), (TurnEnd::Died, true));
    script.result(false).await;
    assert_eq!(sent.await.unwrap().end, TurnEnd::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_message_need_not_wait_for_the_start() {
    let claude = plan(&AgentRuntime::Claude);
    let (agent, mut script, _told) = started(&claude).await;
    let sent = begun(&agent, &mut script, "t1").await;
    script
        .says(
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"cove-1"}}"#,
        )
        .await;
    assert_eq!(agent.ready().await, Ok(true));
    script.result(false).await;
    assert_eq!(sent.await.unwrap().end, TurnEnd::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_start_is_ended() {
    let (agent, mut script, told) = started(&command()).await;
    let sent = begun(&agent, &mut script, "t1").await;
    let outcome = sent.await.unwrap();
    assert_eq!(outcome.end, TurnEnd::NeverReady);
    assert_eq!(outcome.error.as_deref(), Some("the agent was not ready within 60 s"));
    assert_eq!(script.signals.recv().await, Some(AgentSignal::Kill));
    script.ends("was killed by SIGKILL");
    drop(script.stderr);
    let end = agent.ready().await.unwrap_err();
    assert_eq!(end.reason, "the agent was not ready within 60 s");
    assert_eq!(told.lines(), [""; 0]);
    // Later callers receive the same result without waiting.
    assert_eq!(agent.send_turn(message("t2")).await.error, Some(end.reason));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_ends_its_turn_with_its_last_words() {
    let (agent, mut script, told) = started(&command()).await;
    script.says(INIT).await;
    let sent = begun(&agent, &mut script, "t1").await;
    script.stderr.write_all(b"first\ncannot go on").await.unwrap();
    script.ends("exited with code 1");
    drop(script.stderr);
    let outcome = sent.await.unwrap();
    let error = "the agent exited with code 1: first\ncannot go on";
    assert_eq!((outcome.end, outcome.error.as_deref()), (TurnEnd::Died, Some(error)));
    let end = agent.ended().await;
    assert_eq!(
        (end.reason.as_str(), end.stderr.as_str()),
        ("the agent exited with code 1", "first\ncannot go on")
    );
    assert_eq!(told.lines(), ["conversation c-1", "stderr first", "stderr cannot go on"]);
}

#[tokio::test(start_paused = true)]
async fn streams_that_a_child_holds_open_do_not_keep_a_turn() {
    let (agent, mut script, _told) = started(&command()).await;
    script.says(INIT).await;
    let sent = begun(&agent, &mut script, "t1").await;
    script.end.take().unwrap().send("exited with code 0".to_owned()).unwrap();
    assert_eq!(sent.await.unwrap().end, TurnEnd::Died);
    assert!(agent.ended().await.reason.ends_with("code 0"));
    assert!(script.stdout.is_some());
}

/// Checks that an agent that violates the protocol by `line` is killed, and the turn ends with
/// `error`.
async fn check_fault(line: &str, error: &str) {
    let (agent, mut script, _told) = started(&command()).await;
    script.says(INIT).await;
    let sent = begun(&agent, &mut script, "t1").await;
    script.says(line).await;
    let outcome = sent.await.unwrap();
    assert_eq!((outcome.end, outcome.error.as_deref()), (TurnEnd::Broken, Some(error)));
    assert_eq!(script.signals.recv().await, Some(AgentSignal::Kill));
    // Later output is ignored, and a process that cannot be killed is abandoned.
    script.result(false).await;
    assert_eq!(agent.ended().await.reason, error);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_breaks_the_protocol_is_ended() {
    check_fault("Hello!", "the agent wrote a line that is not a JSON object").await;
    check_fault(&"x".repeat(5000), "the agent wrote a line of more than 4096 bytes").await;
}

/// Checks the input that an agent receives on an interrupt, with and without requests, and the end
/// of the turn.
async fn check_interrupt(init: &str, obeys_after: usize, seen: &[&str], end: TurnEnd) {
    let (agent, mut script, _told) = started(&command()).await;
    script.says(init).await;
    agent.ready().await.unwrap();
    let sent = begun(&agent, &mut script, "t1").await;
    agent.interrupt();
    agent.interrupt();
    let mut found = Vec::new();
    for _ in 0..obeys_after {
        tokio::select! {
            line = script.stdin.next_line() => {
                let line: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
                found.push(line["request"]["subtype"].to_string());
            }
            signal = script.signals.recv() => found.push(format!("{:?}", signal.unwrap())),
        }
    }
    assert_eq!(found, seen);
    if found.last().is_some_and(|last| last == "Kill") {
        script.ends("was killed by SIGKILL");
    } else {
        script.result(true).await;
    }
    assert_eq!(sent.await.unwrap().end, end);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_grows_stronger_until_it_is_obeyed() {
    let stopped = TurnEnd::Stopped(StopReason::Interrupted);
    let asked = "\"interrupt\"";
    check_interrupt(INIT_CONTROL, 1, &[asked], stopped).await;
    check_interrupt(INIT_CONTROL, 2, &[asked, "Interrupt"], stopped).await;
    check_interrupt(INIT_CONTROL, 3, &[asked, "Interrupt", "Kill"], stopped).await;
    check_interrupt(INIT, 1, &["Interrupt"], stopped).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_ends_when_its_time_is_up_though_the_agent_never_answers() {
    let (agent, mut script, told) = started(&command()).await;
    script.says(INIT).await;
    agent.ready().await.unwrap();
    let before = Instant::now();
    let sent = begun(&agent, &mut script, "t1").await;
    let outcome = sent.await.unwrap();
    assert_eq!(outcome.end, TurnEnd::Stopped(StopReason::TimedOut));
    assert_eq!(outcome.error.as_deref(), Some("the turn took more than 100 s"));
    assert_eq!(before.elapsed(), Duration::from_secs(100) + 3 * LIMITS.grace);
    assert!(agent.is_ended() || agent.ended().await.reason == "the agent was killed");
    assert_eq!(told.lines(), ["conversation c-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_stopped_when_the_model_was_asked_too_often() {
    let (agent, mut script, _told) = started(&plan(&AgentRuntime::Claude)).await;
    let mut input = message("t1");
    input.extra.insert("max_turns".to_owned(), json!(2));
    let sender = agent.clone();
    let sent = tokio::spawn(async move { sender.send_turn(input).await });
    script.reads().await;
    // A message has a line for each block; messages of subagents do not count.
    for (id, parent) in [("m1", ""), ("m1", ""), ("m9", "t"), ("m2", ""), ("m3", "")] {
        let parent = if parent.is_empty() { Value::Null } else { json!(parent) };
        let message = json!({"id": id, "content": []});
        let line = json!({"type": "assistant", "message": message, "parent_tool_use_id": parent});
        script.says(&line.to_string()).await;
    }
    assert_eq!(script.reads().await["request"]["subtype"], "interrupt");
    script.result(true).await;
    let outcome = sent.await.unwrap();
    assert_eq!(outcome.end, TurnEnd::Stopped(StopReason::Exhausted));
    let error = "the turn needed more than 2 answers of the model";
    assert_eq!(outcome.error.as_deref(), Some(error));
}

#[tokio::test(start_paused = true)]
async fn a_message_for_an_agent_that_is_ending_can_be_told_to_another() {
    let (agent, mut script, told) = started(&command()).await;
    script.says(INIT).await;
    agent.ready().await.unwrap();
    let closer = agent.clone();
    let closed = tokio::spawn(async move { closer.close().await });
    assert_eq!(script.stdin.next_line().await.unwrap(), None);
    let sender = agent.clone();
    let sent = tokio::spawn(async move { sender.send_turn(message("t1")).await });
    script.ends("exited with code 0");
    drop(script.stderr);
    let outcome = sent.await.unwrap();
    assert_eq!((outcome.end, outcome.is_untold), (TurnEnd::Died, true));
    closed.await.unwrap();
    assert_eq!(told.lines(), ["conversation c-1"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_floods_waits_for_room_and_can_be_killed_meanwhile() {
    let (agent, mut script, told) = started(&command()).await;
    script.says(INIT).await;
    let sent = begun(&agent, &mut script, "t1").await;
    told.is_full.store(true, Ordering::SeqCst);
    let flood = async {
        loop {
            script.says(TEXT).await;
        }
    };
    // The pipe fills, and the agent is blocked.
    assert!(tokio::time::timeout(Duration::from_secs(1), flood).await.is_err());
    assert!(told.lines().len() < 1000, "{}", told.lines().len());
    agent.kill();
    let outcome = sent.await.unwrap();
    assert_eq!(outcome.end, TurnEnd::Stopped(StopReason::Interrupted));
    assert_eq!(script.signals.recv().await, Some(AgentSignal::Kill));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_read_is_read_all_the_same() {
    let (agent, mut script, told) = started(&command()).await;
    script.says(INIT).await;
    let mut input = message("t1");
    // More than the pipe holds.
    input.content = MessageContent::Text("x".repeat(1 << 20));
    let sender = agent.clone();
    let sent = tokio::spawn(async move { sender.send_turn(input).await });
    for _ in 0..2000 {
        script.says(TEXT).await;
    }
    script.reads().await;
    script.result(false).await;
    assert_eq!(sent.await.unwrap().end, TurnEnd::Completed);
    assert!(told.lines().len() > 2000);
}

#[tokio::test(start_paused = true)]
async fn requests_are_answered_and_refused() {
    let (agent, mut script, _told) = started(&command()).await;
    script.says(INIT_CONTROL).await;
    agent.ready().await.unwrap();
    let request = Map::from_iter([("subtype".to_owned(), json!("set_options"))]);
    for (answer, expected) in [
        (json!({"subtype": "success"}), Ok(())),
        (json!({"subtype": "error", "error": "no"}), Err("no".to_owned())),
    ] {
        let (sender, request) = (agent.clone(), request.clone());
        let applied = tokio::spawn(async move { sender.apply(vec![request]).await });
        let line = script.reads().await;
        let mut answer = answer;
        answer["request_id"] = line["request_id"].clone();
        script.says(&json!({"type": "control_response", "response": answer}).to_string()).await;
        assert_eq!(applied.await.unwrap(), expected);
    }
    // The agent's own requests are answered too, with a denial.
    script
        .says(r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool"}}"#)
        .await;
    assert_eq!(script.reads().await["response"]["response"]["behavior"], "deny");
    let (other, mut plain, _) = started(&command()).await;
    plain.says(INIT).await;
    other.ready().await.unwrap();
    assert!(other.apply(vec![request]).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_agent_started_ahead_keeps_what_it_said_for_its_session() {
    let (process, mut script) = process();
    let agent = AgentHandle::start(process, &command(), LIMITS, None);
    script.says(INIT).await;
    script.says(TEXT).await;
    agent.ready().await.unwrap();
    let flood = async {
        loop {
            script.says(TEXT).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(1), flood).await.is_err());
    let told = Arc::new(Told::default());
    agent.adopt(told.clone());
    let lines = told.until(3).await;
    assert_eq!(
        lines[..3],
        ["conversation c-1", r#"- text {"text":"yes"}"#, r#"- text {"text":"yes"}"#]
    );
}

#[tokio::test(start_paused = true)]
async fn closing_lets_an_agent_end_by_itself_and_dropping_kills_it() {
    let (agent, mut script, _told) = started(&command()).await;
    let closer = agent.clone();
    let closed = tokio::spawn(async move { closer.close().await });
    assert_eq!(script.stdin.next_line().await.unwrap(), None);
    script.ends("exited with code 0");
    drop(script.stderr);
    assert_eq!(closed.await.unwrap().reason, "the agent exited with code 0");
    let (agent, mut script, _told) = started(&command()).await;
    drop(agent);
    assert_eq!(script.signals.recv().await, Some(AgentSignal::Kill));
    assert_eq!(script.stdin.next_line().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_lost_conversation_is_no_failed_turn() {
    let mut plan = plan(&AgentRuntime::Claude);
    plan.conversation = Some("c-0".to_owned());
    let (agent, mut script, told) = started(&plan).await;
    let sent = begun(&agent, &mut script, "t1").await;
    script.says(r#"{"type":"result","is_error":true,"num_turns":0,"errors":["No conversation found with session ID: c-0"]}"#).await;
    script.ends("exited with code 1");
    drop(script.stderr);
    let outcome = sent.await.unwrap();
    assert_eq!((outcome.end, outcome.conversation_lost), (TurnEnd::Died, true));
    assert!(agent.ended().await.conversation_lost);
    assert_eq!(told.lines(), Vec::<String>::new());
}

/// The example of `docs/agents.md`, as a real process that is started twice.
#[tokio::test]
async fn the_example_keeps_its_conversation_in_a_new_process() {
    let home = std::env::temp_dir().join(format!("cove-echo-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/agents/echo/agent.py");
    let runtime = AgentRuntime::Command { argv: vec!["python3".to_owned(), program.to_owned()] };
    let mut conversation: Option<String> = None;
    for (turn, expected) in
        [("t1", "You said: hi [messages: 1]"), ("t2", "You said: hi [messages: 2]")]
    {
        let options = AgentOptions::default();
        let spec = LaunchSpec {
            runtime: &runtime,
            claude: "",
            options: &options,
            session: "ses_1",
            conversation: conversation.as_deref(),
            has_model: false,
            is_ahead: false,
        };
        let plan = LaunchPlan::new(&spec).unwrap();
        let told = Arc::new(Told::default());
        let agent = AgentHandle::start(real(&plan, &home), &plan, LIMITS, Some(told.clone()));
        agent.ready().await.unwrap();
        let outcome = agent.send_turn(message(turn)).await;
        assert_eq!((outcome.end, &outcome.error), (TurnEnd::Completed, &None));
        let text = format!("{turn} text {}", json!({"text": expected}));
        assert!(told.lines().contains(&text), "{:?}", told.lines());
        // Killing the process or closing it makes no difference.
        if turn == "t1" {
            agent.kill()
        } else {
            drop(agent.close().await)
        }
        agent.ended().await;
        let lines = told.lines();
        let id = lines.iter().find_map(|line| line.strip_prefix("conversation "));
        conversation = id.map(str::to_owned).or(conversation);
    }
    std::fs::remove_dir_all(&home).unwrap();
}

fn real(plan: &LaunchPlan, home: &std::path::Path) -> AgentProcess {
    let mut child = tokio::process::Command::new(&plan.argv[0])
        .args(&plan.argv[1..])
        .envs(plan.environment([("HOME".to_owned(), home.display().to_string())].into()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let stderr = child.stderr.take().unwrap();
    let (kill, mut killed) = mpsc::unbounded_channel();
    AgentProcess {
        stdin: Box::new(stdin),
        stdout: Box::new(stdout),
        stderr: Box::new(stderr),
        signal: Box::new(move |signal| kill.send(signal).unwrap_or_default()),
        ended: Box::pin(async move {
            tokio::select! {
                status = child.wait() => return status.unwrap().to_string(),
                Some(_) = killed.recv() => {}
            }
            child.start_kill().unwrap();
            child.wait().await.unwrap().to_string()
        }),
    }
}
