//! Agents, their versions, and conversations with them.

use api::{
    AgentFile, AgentOptions, AgentSettings, AgentUpdate, CreateSession, DeployRequest,
    OnDisconnect, SessionEventKind, SessionState,
};
use sandbox::Engine;
use sessions::service::UsageQuery;
use sessions::{SessionError, SessionsConfig};

use crate::support::{Home, Server, TENANT, agent, config, errors, hear, message, tests, texts};

tests![
    an_agent_answers_and_keeps_its_conversation,
    messages_wait_for_their_turn_and_too_many_are_refused,
    commands_and_messages_at_once_are_not_mixed,
    an_agent_that_dies_ends_its_turn_and_is_started_again,
    a_turn_can_be_interrupted,
    a_turn_without_listeners_is_interrupted_if_it_wants_that,
    install_runs_inside_and_its_failure_is_told,
    versions_and_files_are_shown,
    what_is_ready_has_everything_that_a_session_wants,
    a_fork_goes_on_with_the_conversation,
    credentials_come_into_the_environment_and_are_not_shown,
];

const ECHO: &str = include_str!("../../../../examples/agents/echo/agent.py");

/// Returns an agent that answers with a Python expression over `text`; `os` and `time` are
/// imported.
fn scripted(answer: &str) -> String {
    let reply = "    reply = f\"You said: {text} [messages: {len(conversation.messages)}]\"\n";
    assert!(ECHO.contains(reply));
    let changed = ECHO.replace(reply, &format!("    import os, time\n    reply = str({answer})\n"));
    assert_ne!(changed, ECHO);
    changed
}

async fn of(server: &Server, name: &str) -> String {
    let request = CreateSession { agent: Some(name.to_owned()), ..CreateSession::default() };
    server.create(TENANT, request).await.unwrap().id
}

async fn an_agent_answers_and_keeps_its_conversation(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    server.agents().unwrap().deploy(TENANT, agent("echo", &[("agent.py", ECHO)])).await.unwrap();
    let id = of(&server, "echo").await;
    let turn = server.say(&id, "hello").await;
    assert_eq!(texts(&turn), "You said: hello [messages: 1]");
    assert!(turn.iter().all(|event| event.turn == turn[0].turn && event.turn.is_some()));
    assert!(turn.is_sorted_by(|a, b| a.seq < b.seq));
    // The conversation continues in the same process, and then in another one.
    assert_eq!(texts(&server.say(&id, "again").await), "You said: again [messages: 2]");
    server.stop_session(&id).await;
    assert!(matches!(
        server.conversations().unwrap().send(TENANT, &id, message("x")).await,
        Err(SessionError::Conflict(_))
    ));
    server.resume(TENANT, &id).await.unwrap();
    assert_eq!(texts(&server.say(&id, "cold").await), "You said: cold [messages: 3]");
    server.stop().await;

    let server = home.start().await;
    server.resume(TENANT, &id).await.unwrap();
    assert_eq!(texts(&server.say(&id, "restart").await), "You said: restart [messages: 4]");
    let messages = server.conversations().unwrap().messages(TENANT, &id, 0, 100).await.unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant"].repeat(4));
    let events =
        server.conversations().unwrap().event_page(TENANT, &id, 0, 1000, Vec::new()).await.unwrap();
    assert!(events.is_sorted_by(|a, b| a.seq < b.seq));
    let dones = events.iter().filter(|event| event.kind == SessionEventKind::Done).count();
    assert_eq!(dones, 4);
    // A subscription from the beginning receives the same events.
    let mut stream = server.conversations().unwrap().events(TENANT, &id, 0).await.unwrap();
    let mut heard = Vec::new();
    while heard.len() < events.len() {
        heard.extend(stream.next().await.unwrap().unwrap());
    }
    let heard: Vec<_> = heard.iter().map(|event| (**event).clone()).collect();
    assert_eq!(heard, events);
    let usage = server.usage().unwrap().total(TENANT, UsageQuery::default()).await.unwrap();
    assert_eq!(usage.turns, 4);
    drop(stream);
    server.stop().await;
}

async fn messages_wait_for_their_turn_and_too_many_are_refused(engine: Engine) {
    let home = Home::new(engine, SessionsConfig { messages_waiting_max: 2, ..config() });
    let server = home.start().await;
    let slow = scripted("(time.sleep(0.3), text)[1]");
    server.agents().unwrap().deploy(TENANT, agent("slow", &[("agent.py", &slow)])).await.unwrap();
    let id = of(&server, "slow").await;
    let first = server.conversations().unwrap().send(TENANT, &id, message("one")).await.unwrap();
    let begun = || async {
        let events = server.conversations().unwrap().event_page(
            TENANT,
            &id,
            0,
            10,
            vec![SessionEventKind::TurnStart],
        );
        events.await.unwrap().len() == 1
    };
    server.until("the first one is being worked on", begun).await;
    let second = server.conversations().unwrap().send(TENANT, &id, message("two")).await.unwrap();
    let third = server.conversations().unwrap().send(TENANT, &id, message("three")).await.unwrap();
    let fourth = server.conversations().unwrap().send(TENANT, &id, message("four")).await;
    assert!(matches!(fourth, Err(SessionError::TooMany(_))));
    let all = tokio::join!(hear(first), hear(second), hear(third));
    // W7: each caller receives its own turn.
    assert_eq!([texts(&all.0), texts(&all.1), texts(&all.2)], ["one", "two", "three"]);
    server.stop().await;
}

async fn commands_and_messages_at_once_are_not_mixed(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    server.agents().unwrap().deploy(TENANT, agent("echo", &[("agent.py", ECHO)])).await.unwrap();
    let id = of(&server, "echo").await;
    let mut works = Vec::new();
    for number in 0..10 {
        let (server, id) = (&server, &id);
        works.push(async move {
            let text = format!("m{number}");
            let command = format!("echo c{number}; echo e{number} >&2");
            let (turn, exec) = tokio::join!(server.say(id, &text), server.sh(id, &command));
            assert!(texts(&turn).starts_with(&format!("You said: {text} ")), "{turn:?}");
            assert_eq!(exec.stdout, format!("c{number}\n"));
            assert_eq!(exec.stderr, format!("e{number}\n"));
        });
    }
    futures_util::future::join_all(works).await;
    server.stop().await;
}

async fn an_agent_that_dies_ends_its_turn_and_is_started_again(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let dying = scripted("os._exit(7) if text == 'die' else len(conversation.messages)");
    server.agents().unwrap().deploy(TENANT, agent("dying", &[("agent.py", &dying)])).await.unwrap();
    let id = of(&server, "dying").await;
    assert_eq!(texts(&server.say(&id, "x").await), "1");
    let turn = server.say(&id, "die").await;
    assert!(errors(&turn).contains("code 7"), "{turn:?}");
    assert_eq!(texts(&server.say(&id, "x").await), "3");
    assert_eq!(
        server.queries().unwrap().get(TENANT, &id).await.unwrap().state,
        SessionState::Active
    );
    server.end(TENANT, &id).await.unwrap();
    server.stop().await;
}

async fn a_turn_can_be_interrupted(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let slow = scripted("(time.sleep(1000), text)[1] if text == 'slow' else text");
    server.agents().unwrap().deploy(TENANT, agent("slow", &[("agent.py", &slow)])).await.unwrap();
    let id = of(&server, "slow").await;
    assert!(!server.conversations().unwrap().interrupt(TENANT, &id).await.unwrap(), "nothing runs");
    assert_eq!(texts(&server.say(&id, "x").await), "x");
    let turn = server.conversations().unwrap().send(TENANT, &id, message("slow")).await.unwrap();
    let interrupted =
        || async { server.conversations().unwrap().interrupt(TENANT, &id).await.unwrap() };
    server.until("it runs", interrupted).await;
    let turn = hear(turn).await;
    assert!(errors(&turn).contains("interrupt"), "{turn:?}");
    assert_eq!(texts(&server.say(&id, "y").await), "y");
    server.stop().await;
}

async fn a_turn_without_listeners_is_interrupted_if_it_wants_that(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let slow = scripted("(time.sleep(1000), text)[1] if text == 'slow' else text");
    server.agents().unwrap().deploy(TENANT, agent("slow", &[("agent.py", &slow)])).await.unwrap();
    let id = of(&server, "slow").await;
    let request =
        api::MessageRequest { on_disconnect: Some(OnDisconnect::Interrupt), ..message("slow") };
    let turn = server.conversations().unwrap().send(TENANT, &id, request).await.unwrap();
    drop(turn);
    let over = || async {
        let events = server.conversations().unwrap().event_page(
            TENANT,
            &id,
            0,
            10,
            vec![SessionEventKind::Done],
        );
        events.await.unwrap().len() == 1
    };
    server.until("it is over", over).await;
    server.stop().await;
}

async fn install_runs_inside_and_its_failure_is_told(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let files = [
        ("agent.py", ECHO),
        ("install.sh", "echo installing as $(id -un) in $PWD; echo $KEY >made; echo x >~/home\n"),
    ];
    let env = [("KEY".to_owned(), "secret".to_owned())].into();
    let request = DeployRequest { env, ..agent("made", &files) };
    let deployed = server.agents().unwrap().deploy(TENANT, request).await.unwrap();
    assert_eq!((deployed.version, deployed.env.as_slice()), (1, ["KEY".to_owned()].as_slice()));
    let id = of(&server, "made").await;
    assert_eq!(server.out(&id, "cat made ~/home; echo $KEY").await, "secret\nx\nsecret\n");
    let versions = server.agents().unwrap().versions(TENANT, "made").await.unwrap();
    let output = versions[0].install_output.as_deref();
    assert_eq!(output, Some("installing as user in /workspace\n"));
    // Changes of one session are invisible to others.
    server.out(&id, "rm made").await;
    let other = of(&server, "made").await;
    assert_eq!(server.out(&other, "cat made").await, "secret\n");

    let files = [("install.sh", "echo it is broken; exit 5\n")];
    let failed = server.agents().unwrap().deploy(TENANT, agent("broken", &files)).await;
    let Err(SessionError::Agent(message)) = failed else { panic!("{failed:?}") };
    assert!(message.contains("code 5") && message.contains("it is broken"), "{message}");
    assert!(matches!(
        server.agents().unwrap().get(TENANT, "broken").await,
        Err(SessionError::NotFound("agent"))
    ));
    assert_eq!(server.counts().warming, 0);
    server.stop().await;
}

async fn versions_and_files_are_shown(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let binary = AgentFile {
        path: "bin/tool".to_owned(),
        content: "AAECAw==".to_owned(),
        base64: true,
        executable: true,
    };
    let mut request = agent("a", &[("agent.py", ECHO), ("notes/x.md", "one")]);
    request.files.push(binary);
    server.agents().unwrap().deploy(TENANT, request).await.unwrap();
    let first = of(&server, "a").await;
    server
        .agents()
        .unwrap()
        .deploy(TENANT, agent("a", &[("agent.py", ECHO), ("notes/x.md", "two")]))
        .await
        .unwrap();
    let second = of(&server, "a").await;
    assert_eq!(
        server.out(&first, "cat notes/x.md; test -x bin/tool && echo yes").await,
        "oneyes\n"
    );
    assert_eq!(server.out(&second, "cat notes/x.md; ls").await, "twoagent.py\nnotes\n");
    let files = server.agents().unwrap().files(TENANT, "a", Some(1)).await.unwrap();
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["agent.py", "notes/x.md", "bin/tool"]);
    let content = server.agents().unwrap().file(TENANT, "a", Some(1), "bin/tool").await.unwrap();
    assert_eq!(content, [0, 1, 2, 3]);
    let update = AgentUpdate { version: Some(1), ..AgentUpdate::default() };
    assert_eq!(server.agents().unwrap().update(TENANT, "a", update).await.unwrap().version, 1);
    let third = of(&server, "a").await;
    assert_eq!(server.out(&third, "cat notes/x.md").await, "one");
    assert_eq!(server.queries().unwrap().get(TENANT, &third).await.unwrap().agent_version, Some(1));
    assert!(matches!(
        server.agents().unwrap().get("tenant-b", "a").await,
        Err(SessionError::NotFound("agent"))
    ));
    server.agents().unwrap().delete(TENANT, "a").await.unwrap();
    assert_eq!(server.out(&first, "cat notes/x.md").await, "one");
    server.stop().await;
}

async fn what_is_ready_has_everything_that_a_session_wants(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let shown = scripted("os.environ.get('OWN', '-') + os.environ.get('COVE_SESSION_ID', '-')");
    let settings =
        AgentSettings { prewarm_sandboxes: 1, prewarm_agents: 1, ..AgentSettings::default() };
    let request = DeployRequest { settings, ..agent("ready", &[("agent.py", &shown)]) };
    server.agents().unwrap().deploy(TENANT, request).await.unwrap();
    let two_are_ready = || async { server.counts().warm == 2 };
    server.until("two are ready", two_are_ready).await;
    let plain = of(&server, "ready").await;
    assert_eq!(texts(&server.say(&plain, "x").await), format!("-{plain}"));
    assert_eq!(server.counts().prewarm_hits, 1);
    server.until("they are replaced", two_are_ready).await;
    // W9: a session's own settings apply, whatever was prepared.
    let own = CreateSession {
        agent: Some("ready".to_owned()),
        env: [("OWN".to_owned(), "mine".to_owned())].into(),
        options: AgentOptions {
            system_prompt: Some("special".to_owned()),
            ..AgentOptions::default()
        },
        ..CreateSession::default()
    };
    let own = server.create(TENANT, own).await.unwrap();
    assert_eq!(own.options.system_prompt.as_deref(), Some("special"));
    assert_eq!(texts(&server.say(&own.id, "x").await), format!("mine{}", own.id));
    // A new version replaces prepared sandboxes.
    server.until("they are replaced again", two_are_ready).await;
    let other = DeployRequest { settings, ..agent("ready", &[("agent.py", ECHO)]) };
    server.agents().unwrap().deploy(TENANT, other).await.unwrap();
    let new = of(&server, "ready").await;
    assert_eq!(texts(&server.say(&new, "x").await), "You said: x [messages: 1]");
    server.stop().await;
}

async fn a_fork_goes_on_with_the_conversation(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    server.agents().unwrap().deploy(TENANT, agent("echo", &[("agent.py", ECHO)])).await.unwrap();
    let id = of(&server, "echo").await;
    server.say(&id, "one").await;
    let fork = server.fork(TENANT, &id, 1).await.unwrap().remove(0).id;
    assert_eq!(texts(&server.say(&fork, "two").await), "You said: two [messages: 2]");
    assert_eq!(texts(&server.say(&id, "three").await), "You said: three [messages: 2]");
    let messages = server.conversations().unwrap().messages(TENANT, &fork, 0, 100).await.unwrap();
    assert_eq!(messages.len(), 4);
    server.stop().await;
}

async fn credentials_come_into_the_environment_and_are_not_shown(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let made =
        server.credentials().unwrap().create(TENANT, "openai", "mine", "sk-secret").await.unwrap();
    let request = CreateSession { credential: Some(made.id.clone()), ..CreateSession::default() };
    assert!(matches!(
        server.create("tenant-b", request.clone()).await,
        Err(SessionError::NotFound("credential"))
    ));
    let id = server.create(TENANT, request).await.unwrap().id;
    assert_eq!(server.out(&id, "echo $OPENAI_API_KEY").await, "sk-secret\n");
    let listed = server.credentials().unwrap().list(TENANT).await.unwrap();
    assert!(listed[0].last_used_at.is_some());
    server.credentials().unwrap().delete(TENANT, &made.id).await.unwrap();
    assert!(matches!(
        server.credentials().unwrap().delete(TENANT, &made.id).await,
        Err(SessionError::NotFound("credential"))
    ));
    server.stop().await;
}
