//! `cove session`: sessions of a server.

mod cell;
mod chat;
mod context;
mod exec;
mod files;
mod grants;
mod show;
mod sql;
mod terminal;

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use api::{
    AgentOptions, CreateSession, ForkRequest, MessageContent, MessageRequest, OnDisconnect,
    SessionEvent, SessionList, SessionLogs, SessionView,
};
use axum::http::Method;
use node::clock;
use tokio::time::sleep;

use self::show::{EventDisplay, EventPrinter};
use crate::agent::{self, print_line};
use crate::cli::{
    CreateArgs, DisconnectPolicy, NewArgs, SendArgs, SessionArgs, SessionCommand, SessionListArgs,
    TailArgs,
};
use crate::config::{CoveConfig, Environment};
use crate::messages::complain;
use crate::percent::escaped;
use crate::plain_text::plain_json;
use crate::remote::events::{self, EventPage};
use crate::remote::{self, FailureKind, Remote, RemoteFailure, plain};
use crate::run::print_json;
use crate::usage_error::UsageError;
use crate::values::{columns, milliseconds};

/// Exit code if the turn failed.
const EXIT_TURN: u8 = 1;
/// Largest message that is read from standard input.
const MESSAGE_BYTES_MAX: u64 = 32 << 20;
/// Timeout of a request that starts or stops a sandbox.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(180);
/// Timeout of a request that waits for an agent or a command; the server's limits are lower.
const WAIT_TIMEOUT: Duration = Duration::from_secs(25 * 60 * 60);
/// Minimum and maximum wait between two attempts to follow a session again, and the maximum time
/// without a server.
const BACK_OFF_MIN: Duration = Duration::from_millis(200);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
const AWAY_MAX: Duration = Duration::from_secs(120);

/// Runs one command.
pub(crate) fn run(args: &SessionArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    remote::with_server(&args.server, config, environment, async |server| {
        execute(args, server).await
    })
}

async fn execute(args: &SessionArgs, server: Remote) -> Result<u8> {
    let json = args.json;
    match &args.command {
        SessionCommand::Create(create) => created(create, &server, json).await?,
        SessionCommand::Send(send) => return self::send(send, &server, json).await,
        SessionCommand::Chat(chat) => return chat::chat(chat, &server).await,
        SessionCommand::List(list) => self::list(list, &server, json).await?,
        SessionCommand::Info(one) => info(&server, &one.id, json).await?,
        SessionCommand::Grants(args) => grants::run(args, &server, json).await?,
        SessionCommand::Sql(args) => sql::run(args, &server, json).await?,
        SessionCommand::Pause(many) => change_all(&server, &many.ids, Some("pause"), json).await?,
        SessionCommand::Stop(many) => change_all(&server, &many.ids, Some("stop"), json).await?,
        SessionCommand::Resume(many) => {
            change_all(&server, &many.ids, Some("resume"), json).await?;
        }
        SessionCommand::End(many) => change_all(&server, &many.ids, None, json).await?,
        SessionCommand::Fork { id, count } => fork(&server, id, *count, json).await?,
        SessionCommand::Exec(exec) if exec.tty => return terminal::exec(exec, &server).await,
        SessionCommand::Terminal(args) => return terminal::run(args, &server).await,
        SessionCommand::Terminals(args) => terminal::list(args, &server, json).await?,
        SessionCommand::Exec(exec) => return exec::run(exec, &server, json).await,
        SessionCommand::Run(run) => return cell::run(run, &server, json).await,
        SessionCommand::Context(args) => context::run(&args.command, &server, json).await?,
        SessionCommand::Files(files) => files::run(&files.command, &server, json).await?,
        SessionCommand::Logs(one) => logs(&server, &one.id, json).await?,
        SessionCommand::Tail(tail) => self::tail(tail, server, json).await?,
    }
    Ok(0)
}

async fn created(args: &CreateArgs, server: &Remote, json: bool) -> Result<()> {
    let session = create(server, args.agent.as_deref(), &args.new).await?;
    if json {
        return Ok(print_json(&session)?);
    }
    Ok(writeln!(io::stdout(), "{}", plain(&session.id))?)
}

/// Creates a session.
async fn create(server: &Remote, agent: Option<&str>, new: &NewArgs) -> Result<SessionView> {
    let request = new_session(agent, new);
    let mut request = server.request_with(Method::POST, "/v1/sessions", &request)?;
    request.timeout = CHANGE_TIMEOUT;
    Ok(server.ask(request).await?)
}

fn new_session(agent: Option<&str>, new: &NewArgs) -> CreateSession {
    let limits = api::SessionLimits {
        memory_bytes: new.memory,
        disk_bytes: new.disk,
        processes: new.processes,
        ..api::SessionLimits::default()
    };
    CreateSession {
        agent: agent.map(str::to_owned),
        snapshot: new.snapshot.clone(),
        template: new.template.clone(),
        env: new.env.iter().cloned().collect(),
        credential: new.credential.clone(),
        options: AgentOptions {
            model: new.model.clone(),
            system_prompt: new.system_prompt.clone(),
            permission_mode: new.permission_mode.clone(),
            ..AgentOptions::default()
        },
        limits,
        metadata: new.metadata.iter().cloned().collect(),
        on_disconnect: match new.on_disconnect {
            Some(DisconnectPolicy::Interrupt) => OnDisconnect::Interrupt,
            Some(DisconnectPolicy::Continue) | None => OnDisconnect::Continue,
        },
        idle_s: new.idle.map(|idle| u32::try_from(idle.as_secs().max(1)).unwrap_or(u32::MAX)),
        grants: new.grants.chosen(),
    }
}

/// Returns the path of a session.
fn path(id: &str, rest: &str) -> String {
    format!("/v1/sessions/{id}{rest}")
}

/// Returns a message request, whose response is the events of its turn.
fn message(text: String, model: Option<&str>, partial: bool) -> MessageRequest {
    MessageRequest {
        content: MessageContent::Text(text),
        partial,
        model: model.map(str::to_owned),
        on_disconnect: None,
        extra: serde_json::Map::new(),
    }
}

async fn send(args: &SendArgs, server: &Remote, json: bool) -> Result<u8> {
    let text = match args.text.as_slice() {
        [only] if only == "-" => {
            let mut text = String::new();
            io::stdin().lock().take(MESSAGE_BYTES_MAX).read_to_string(&mut text)?;
            text
        }
        several => several.join(" "),
    };
    let model = args.model.as_deref();
    if json {
        let body = message(text, model, false);
        let target = path(&args.id, "/messages?wait=true");
        let mut request = server.request_with(Method::POST, &target, &body)?;
        request.timeout = WAIT_TIMEOUT;
        let answer: api::MessageAnswer = server.ask(request).await?;
        print_json(&answer)?;
        return Ok(if answer.is_error { EXIT_TURN } else { 0 });
    }
    let display = EventDisplay { says: !args.raw, does: !args.raw && !args.quiet };
    let mut show = EventPrinter::new(display);
    let body = message(text, model, args.raw || show.is_live());
    let mut turn = begin(server, &args.id, &body).await?;
    while let Some(text) = turn.next_text().await? {
        if args.raw {
            writeln!(io::stdout(), "{}", plain_json(&text))?;
            io::stdout().flush()?;
        }
        if show.event(&events::read(&text)?)? {
            break;
        }
    }
    show.end()
}

/// Sends a message; returns the events of its turn.
async fn begin(server: &Remote, id: &str, body: &MessageRequest) -> Result<EventPage> {
    let request = server.request_with(Method::POST, &path(id, "/messages"), body)?;
    Ok(server.events(request).await?)
}

async fn list(args: &SessionListArgs, server: &Remote, json: bool) -> Result<()> {
    let limit = args.limit.map(|limit| limit.to_string());
    let filters = [("state", &args.state), ("agent", &args.agent), ("limit", &limit)];
    let parameters =
        filters.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    let mut filter: String =
        parameters.map(|(name, value)| format!("{name}={}&", escaped(value))).collect();
    for (name, value) in &args.metadata {
        filter.push_str(&format!("metadata.{}={}&", escaped(name), escaped(value)));
    }
    let mut cursor = String::new();
    let mut is_first = true;
    loop {
        let target = format!("/v1/sessions?{filter}{cursor}");
        let target = target.trim_end_matches(['?', '&']);
        let page: SessionList = server.call(Method::GET, target).await?;
        if json {
            page.sessions.iter().try_for_each(print_line)?;
        } else {
            write!(io::stdout(), "{}", table(&page.sessions, is_first))?;
        }
        is_first = false;
        match page.next_cursor {
            Some(next) if args.all_pages => cursor = format!("cursor={}", escaped(&next)),
            Some(_) => {
                if !json {
                    complain("there are more; --all-pages shows them");
                }
                return Ok(());
            }
            None => return Ok(()),
        }
    }
}

/// Formats a page of a list.
fn table(sessions: &[SessionView], heading: bool) -> String {
    let mut rows = Vec::new();
    if heading {
        rows.push(["id", "state", "sandbox", "agent", "last active"].map(str::to_owned));
    }
    for session in sessions {
        rows.push([
            plain(&session.id),
            session.state.as_str().to_owned(),
            session.sandbox.as_str().to_owned(),
            plain(session.agent.as_deref().unwrap_or("-")),
            plain(&session.last_active_at),
        ]);
    }
    columns(&rows, "")
}

async fn info(server: &Remote, id: &str, json: bool) -> Result<()> {
    let session: SessionView = server.call(Method::GET, &path(id, "")).await?;
    if json {
        return Ok(print_json(&session)?);
    }
    write!(io::stdout(), "{}", details(&session))?;
    Ok(())
}

fn details(session: &SessionView) -> String {
    let state = format!("{}, sandbox {}", session.state.as_str(), session.sandbox.as_str());
    let mut text = format!("{}  {state}\n", plain(&session.id));
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:<12}{}\n", plain(value)));
        }
    };
    let version = session.agent_version.map(|number| format!(" (version {number})"));
    let agent = session.agent.as_deref().unwrap_or("none");
    line("agent", &format!("{agent}{}", version.unwrap_or_default()));
    line("parent", session.parent.as_deref().unwrap_or_default());
    for (name, value) in &session.metadata {
        line("metadata", &format!("{name}={value}"));
    }
    line("model", session.options.model.as_deref().unwrap_or_default());
    line("grants", &agent::labels(&session.grants));
    line("created", &session.created_at);
    line("last active", &session.last_active_at);
    line("message", session.message.as_deref().unwrap_or_default());
    text
}

/// Changes the state of sessions; without a verb they are ended.
async fn change_all(server: &Remote, ids: &[String], verb: Option<&str>, json: bool) -> Result<()> {
    for id in ids {
        let session = change(server, id, verb).await?;
        if json {
            print_line(&session)?;
        } else {
            match verb {
                Some(_) => writeln!(io::stdout(), "{id} is {}", session.state.as_str())?,
                None => writeln!(io::stdout(), "ended {id}")?,
            }
        }
    }
    Ok(())
}

async fn change(server: &Remote, id: &str, verb: Option<&str>) -> Result<SessionView> {
    let mut request = match verb {
        Some(verb) => server.request(Method::POST, &path(id, &format!("/{verb}"))),
        None => server.request(Method::DELETE, &path(id, "")),
    };
    request.timeout = CHANGE_TIMEOUT;
    Ok(server.ask(request).await?)
}

async fn fork(server: &Remote, id: &str, count: u32, json: bool) -> Result<()> {
    let body = ForkRequest { count: Some(count) };
    let mut request = server.request_with(Method::POST, &path(id, "/fork"), &body)?;
    request.timeout = CHANGE_TIMEOUT;
    let list: SessionList = server.ask(request).await?;
    for session in &list.sessions {
        match json {
            true => print_line(session)?,
            false => writeln!(io::stdout(), "{}", plain(&session.id))?,
        }
    }
    Ok(())
}

async fn logs(server: &Remote, id: &str, json: bool) -> Result<()> {
    let logs: SessionLogs = server.call(Method::GET, &path(id, "/logs")).await?;
    for line in &logs.lines {
        match json {
            true => print_line(line)?,
            false => writeln!(io::stdout(), "{:<6}  {}", plain(&line.level), plain(&line.text))?,
        }
    }
    Ok(())
}

async fn tail(args: &TailArgs, mut server: Remote, json: bool) -> Result<()> {
    let raw = args.raw || json;
    let session: SessionView = server.call(Method::GET, &path(&args.id, "")).await?;
    let mut after = args.after.unwrap_or(session.last_seq);
    let mut show = EventPrinter::new(EventDisplay { says: !raw, does: !raw });
    let (mut back_off, mut lost_at) = (BACK_OFF_MIN, None);
    loop {
        let target = path(&args.id, &format!("/events?after={after}"));
        let failure = match server.events(server.request(Method::GET, &target)).await {
            Ok(mut stream) => loop {
                match stream.next_text().await {
                    Ok(Some(text)) => {
                        (back_off, lost_at) = (BACK_OFF_MIN, None);
                        let event: SessionEvent = events::read(&text)?;
                        after = after.max(event.seq);
                        if raw {
                            writeln!(io::stdout(), "{}", plain_json(&text))?;
                            io::stdout().flush()?;
                        } else {
                            show.event(&event)?;
                        }
                    }
                    Ok(None) => break None,
                    Err(failure) => break Some(failure),
                }
            },
            Err(failure) => Some(failure),
        };
        if failure.is_none() && is_over(&server, &args.id).await {
            return Ok(());
        }
        endure(failure, &mut lost_at)?;
        sleep(back_off).await;
        back_off = (back_off * 2).min(BACK_OFF_MAX);
        server.rediscover();
    }
}

/// Returns whether a session has ended. A failed request counts as no.
async fn is_over(server: &Remote, id: &str) -> bool {
    let session = server.call::<SessionView>(Method::GET, &path(id, "")).await;
    session.is_ok_and(|session| session.state == api::SessionState::Ended)
}

/// Returns an error if another attempt is useless.
fn endure(
    failure: Option<RemoteFailure>,
    lost_at: &mut Option<std::time::Instant>,
) -> Result<(), RemoteFailure> {
    let now = clock::now();
    let since = now.duration_since(*lost_at.get_or_insert(now));
    match failure {
        Some(failure) if failure.fault != FailureKind::Lost || since > AWAY_MAX => Err(failure),
        _ => Ok(()),
    }
}

/// Returns the value of `--timeout` in milliseconds.
fn timeout_ms(timeout: Option<Duration>) -> Option<u64> {
    timeout.map(milliseconds)
}

/// Returns an error about the arguments.
fn usage(message: impl Into<String>) -> anyhow::Error {
    UsageError(message.into()).into()
}
