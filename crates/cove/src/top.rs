//! `cove top`: shows a server's sessions and their sandboxes continuously.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use api::{
    NodeList, NodeView, SandboxCounts, SandboxState, SessionList, SessionMetrics, SessionView,
};
use axum::http::Method;
use rustix::termios;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::TopArgs;
use crate::config::{CoveConfig, Environment};
use crate::nodes;
use crate::remote::{self, Remote, plain, span};
use crate::run::print_json;
use crate::values::{columns, human_bytes};

/// States of sessions that are shown.
const STATES: &str = "starting,active,paused,error";
/// Lines and characters per line if the terminal does not report its size.
const SIZE_DEFAULT: (usize, usize) = (24, 80);
/// Maximum characters of an agent's name.
const AGENT_CHARS_MAX: usize = 20;

/// Runs the command.
pub(crate) fn run(args: &TopArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    remote::with_server(&args.server, config, environment, async |server| {
        watch(args, &server).await.map(|()| 0)
    })
}

/// Snapshot of sandboxes and sessions.
#[derive(Debug, Serialize)]
struct TopView {
    /// With `--all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<NodeView>>,
    sandboxes: SandboxCounts,
    sessions: Vec<TopSessionRow>,
}

/// Session with its resource usage.
#[derive(Debug, Serialize)]
struct TopSessionRow {
    session: SessionView,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SessionMetrics>,
}

async fn watch(args: &TopArgs, server: &Remote) -> Result<()> {
    if args.json {
        return Ok(print_json(&fetch_view(args, server).await?)?);
    }
    if !io::stdout().is_terminal() {
        return Ok(write!(io::stdout(), "{}", text(&fetch_view(args, server).await?))?);
    }
    let mut ticks = interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupts = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = interrupts.recv() => return Ok(()),
        }
        let view = tokio::select! {
            view = fetch_view(args, server) => view?,
            _ = interrupts.recv() => return Ok(()),
        };
        draw(&text(&view))?;
    }
}

async fn fetch_view(args: &TopArgs, server: &Remote) -> Result<TopView> {
    let nodes = match args.all {
        true => {
            let list: NodeList = server.call(Method::GET, "/v1/nodes").await?;
            Some(list.nodes)
        }
        false => None,
    };
    let sandboxes = server.call(Method::GET, "/v1/sandboxes").await?;
    let target = format!("/v1/sessions?state={STATES}&limit={}", args.limit);
    let list: SessionList = server.call(Method::GET, &target).await?;
    let mut sessions = Vec::with_capacity(list.sessions.len());
    for session in list.sessions {
        let metrics = match session.sandbox {
            SandboxState::Warm | SandboxState::Running | SandboxState::Waiting => {
                // The session may have ended since it was listed.
                let target = format!("/v1/sessions/{}/metrics", session.id);
                server.call(Method::GET, &target).await.ok()
            }
            SandboxState::Warming | SandboxState::Cold => None,
        };
        sessions.push(TopSessionRow { session, metrics });
    }
    Ok(TopView { nodes, sandboxes, sessions })
}

/// Replaces the previous text, as far as it fits on the terminal.
pub(crate) fn draw(text: &str) -> io::Result<()> {
    let size = termios::tcgetwinsize(io::stdout()).ok();
    let reported = size.map(|size| (usize::from(size.ws_row), usize::from(size.ws_col)));
    let (rows, cols) = reported.filter(|(r, c)| *r > 1 && *c > 1).unwrap_or(SIZE_DEFAULT);
    let mut out = io::stdout().lock();
    // Starts at the top; clears the rest of every line and everything below the last line, which
    // avoids flicker.
    write!(out, "\x1b[H")?;
    for line in text.lines().take(rows - 1) {
        let line: String = line.chars().take(cols - 1).collect();
        write!(out, "{line}\x1b[K\r\n")?;
    }
    write!(out, "\x1b[J")?;
    out.flush()
}

fn text(view: &TopView) -> String {
    let SandboxCounts { total, warming, warm, running, waiting, cold, capacity, .. } =
        view.sandboxes;
    let it = &view.sandboxes;
    let mut text = match &view.nodes {
        Some(nodes) => format!("{}\n", nodes::table(nodes)),
        None => String::new(),
    };
    text.push_str(&format!(
        "sandboxes  {total} of {capacity}: {running} running, {waiting} waiting, {warm} warm, \
         {warming} warming, {cold} cold\n\
         resumed    {} warm, {} from this server's disk, {} from the object store; {} were ready\n\n",
        it.resumed_warm, it.resumed_local, it.resumed_remote, it.prewarm_hits
    ));
    let heading = ["session", "agent", "state", "cpu", "memory", "disk", "processes"];
    let mut rows = vec![heading.map(str::to_owned)];
    for TopSessionRow { session, metrics } in &view.sessions {
        let figure = |figure: fn(&SessionMetrics) -> String| {
            metrics.as_ref().map_or_else(|| "-".to_owned(), figure)
        };
        let agent = plain(session.agent.as_deref().unwrap_or("-"));
        rows.push([
            plain(&session.id),
            agent.chars().take(AGENT_CHARS_MAX).collect(),
            format!("{}, {}", session.state.as_str(), session.sandbox.as_str()),
            figure(|it| span(it.cpu_ms)),
            figure(|it| human_bytes(it.memory_bytes)),
            figure(|it| human_bytes(it.disk_bytes)),
            figure(|it| it.processes.to_string()),
        ]);
    }
    text.push_str(&columns(&rows, ""));
    text
}

#[cfg(test)]
mod tests {
    //! Text output of `cove top`.

    use super::*;

    #[test]
    fn figures_stand_below_each_other() {
        let sandboxes = SandboxCounts {
            total: 3,
            running: 1,
            waiting: 2,
            capacity: 10,
            prewarm_hits: 4,
            ..SandboxCounts::default()
        };
        let text = text(&TopView { nodes: None, sandboxes, sessions: Vec::new() });
        let lines: Vec<&str> = text.lines().collect();
        let first = "sandboxes  3 of 10: 1 running, 2 waiting, 0 warm, 0 warming, 0 cold";
        assert_eq!(lines[0], first);
        assert!(lines[1].ends_with("; 4 were ready"), "{}", lines[1]);
        assert!(lines[3].starts_with("session  agent  state"), "{}", lines[3]);
    }
}
