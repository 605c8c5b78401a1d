//! `cove node drain --wait`: waits for a node to hand over its sessions.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::Result;
use api::{NodeDrainView, NodeStatus, NodeView};
use axum::http::Method;
use node::clock;
use tokio::time;

use crate::exit_codes::EXIT_TIME;
use crate::output;
use crate::remote::Remote;
use crate::remote::progress::{ProgressLine, bar};

/// Interval at which the node is polled.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Renewals of its row after which the node's progress report is current: it learns of the drain
/// with the first one.
const RENEWALS_MIN: u32 = 2;
/// Exit code if sessions stay at the node.
const EXIT_KEPT: u8 = 1;

/// State of the wait.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WaitOutcome {
    /// The node has no sessions left.
    Drained,
    /// The node will never be drained, for this reason.
    InVain(&'static str),
    /// The node is handing over its sessions.
    Goes(NodeDrainView),
    /// The node has not reported yet how many sessions it has.
    Unknown,
}

/// Observations of a node since its drain was requested.
struct DrainWatch {
    seen_ms: u64,
    renewals: u32,
}

impl DrainWatch {
    /// Starts with the node's state at the request.
    fn new(node: &NodeView) -> DrainWatch {
        DrainWatch { seen_ms: node.seen_ms, renewals: 0 }
    }

    /// Compares the node with its previous state.
    fn observe(&mut self, node: &NodeView) -> WaitOutcome {
        if node.seen_ms != self.seen_ms {
            self.seen_ms = node.seen_ms;
            self.renewals = self.renewals.saturating_add(1);
        }
        match node.state {
            NodeStatus::Left => return WaitOutcome::Drained,
            NodeStatus::Lost => {
                return WaitOutcome::InVain("the node is lost; other nodes take over its sessions");
            }
            NodeStatus::Active | NodeStatus::Joining => {
                return WaitOutcome::InVain("the drain was ended: the node takes work again");
            }
            NodeStatus::Draining => {}
        }
        match node.drain {
            _ if self.renewals < RENEWALS_MIN => WaitOutcome::Unknown,
            None => WaitOutcome::Unknown,
            Some(NodeDrainView { sessions: 0, .. }) => WaitOutcome::Drained,
            Some(NodeDrainView { keeps_files: true, .. }) => WaitOutcome::InVain(
                "their files are on its disk alone, because servers share no object store \
                 (`objects.url`)",
            ),
            Some(drain) => WaitOutcome::Goes(drain),
        }
    }
}

/// Waits until a draining node has no sessions left. Returns its last known state, and the exit
/// code.
pub(super) async fn wait(
    server: &Remote,
    mut node: NodeView,
    timeout: Option<Duration>,
) -> Result<(NodeView, u8)> {
    let deadline = timeout.map(|timeout| clock::now() + timeout);
    let path = format!("/v1/nodes/{}", node.id);
    let mut watch = DrainWatch::new(&node);
    let mut display = DrainDisplay::new();
    loop {
        match watch.observe(&node) {
            WaitOutcome::Drained => return Ok((node, 0)),
            WaitOutcome::InVain(why) => {
                display.end(&format!("the node keeps its sessions: {why}"));
                return Ok((node, EXIT_KEPT));
            }
            WaitOutcome::Goes(drain) => display.show(&drain),
            WaitOutcome::Unknown => {}
        }
        let pause = deadline.map_or(LOOK_EVERY, |at: Instant| {
            LOOK_EVERY.min(at.saturating_duration_since(clock::now()))
        });
        if pause.is_zero() {
            let left = node.drain.as_ref();
            let left = left.map_or_else(|| "number unknown".to_owned(), described);
            display.end(&format!("the time is up, and the node has sessions: {left}"));
            return Ok((node, EXIT_TIME));
        }
        time::sleep(pause).await;
        node = server.call(Method::GET, &path).await?;
    }
}

/// Describes the progress of a drain.
pub(super) fn described(drain: &NodeDrainView) -> String {
    let NodeDrainView { sessions, busy, failed, keeps_files } = *drain;
    let mut text = match sessions {
        0 => return "no sessions left".to_owned(),
        1 => "1 session left".to_owned(),
        many => format!("{many} sessions left"),
    };
    if keeps_files {
        return text + ", which stay: their files are on this node's disk alone";
    }
    for (count, what) in [(busy, "at work"), (failed, "tried again")] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text
}

/// Progress on standard error: one updated line on a terminal, otherwise a line for each change.
struct DrainDisplay {
    line: ProgressLine,
    most: u64,
    last: Option<NodeDrainView>,
    is_silent: bool,
}

impl DrainDisplay {
    fn new() -> DrainDisplay {
        let line = ProgressLine::new(false);
        let is_silent = output::is_quiet() || io::stderr().is_terminal();
        DrainDisplay { line, most: 0, last: None, is_silent }
    }

    fn show(&mut self, drain: &NodeDrainView) {
        self.most = self.most.max(drain.sessions);
        let gone = self.most - drain.sessions;
        self.line.show(&format!("{} sessions, {}", bar(gone, self.most), described(drain)));
        if self.last != Some(*drain) && !self.is_silent {
            // A failure is ignored: standard error is closed.
            drop(writeln!(io::stderr(), "{}", described(drain)));
        }
        self.last = Some(*drain);
    }

    fn end(&mut self, text: &str) {
        self.line.clear();
        drop(writeln!(io::stderr(), "cove: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(seen_ms: u64, state: NodeStatus, drain: Option<NodeDrainView>) -> NodeView {
        NodeView {
            id: "srv_1".to_owned(),
            incarnation: "run_1".to_owned(),
            state,
            is_this: true,
            address: None,
            peer_address: None,
            roles: Vec::new(),
            zone: String::new(),
            version: "0.1.0".to_owned(),
            started_ms: 0,
            seen_ms,
            load: api::NodeLoadView::default(),
            drain,
        }
    }

    fn left(sessions: u64) -> Option<NodeDrainView> {
        Some(NodeDrainView { sessions, ..NodeDrainView::default() })
    }

    /// A report from before the node knows of the drain does not count.
    #[test]
    fn a_node_is_believed_when_it_knows_of_the_drain() {
        let mut watch = DrainWatch::new(&seen(10, NodeStatus::Draining, left(0)));
        for (seen_ms, drain, expected) in [
            (10, left(0), WaitOutcome::Unknown),
            (11, left(0), WaitOutcome::Unknown),
            (12, None, WaitOutcome::Unknown),
            (13, left(2), WaitOutcome::Goes(left(2).unwrap())),
            (13, left(2), WaitOutcome::Goes(left(2).unwrap())),
            (14, left(0), WaitOutcome::Drained),
        ] {
            assert_eq!(watch.observe(&seen(seen_ms, NodeStatus::Draining, drain)), expected);
        }
    }

    #[test]
    fn what_will_never_be_drained_is_not_waited_for() {
        let keeps = NodeDrainView { sessions: 3, keeps_files: true, ..NodeDrainView::default() };
        for (state, drain) in [
            (NodeStatus::Lost, left(2)),
            (NodeStatus::Active, None),
            (NodeStatus::Draining, Some(keeps)),
        ] {
            let mut watch = DrainWatch { seen_ms: 0, renewals: RENEWALS_MIN };
            let found = watch.observe(&seen(1, state, drain));
            assert!(matches!(found, WaitOutcome::InVain(_)), "{state:?}: {found:?}");
        }
        let mut watch = DrainWatch::new(&seen(0, NodeStatus::Draining, None));
        assert_eq!(watch.observe(&seen(0, NodeStatus::Left, None)), WaitOutcome::Drained);
    }

    #[test]
    fn progress_is_described_in_words() {
        let of = |sessions, busy, failed, keeps_files| {
            described(&NodeDrainView { sessions, busy, failed, keeps_files })
        };
        assert_eq!(of(0, 0, 0, false), "no sessions left");
        assert_eq!(of(1, 1, 0, false), "1 session left, 1 at work");
        assert_eq!(of(12, 3, 2, false), "12 sessions left, 3 at work, 2 tried again");
        assert!(of(2, 0, 0, true).contains("disk alone"));
    }
}
