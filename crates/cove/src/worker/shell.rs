//! Persistent shell of one session: bash in the sandbox, controlled over the WebSocket of a
//! terminal. Its directory, variables, functions and jobs persist between commands.
//!
//! The terminal is only the transport: bash itself reads and writes pipes, so programs write as to
//! files, without colours, pagers or echo.

use std::time::Duration;

use api::{ClientMessage, SessionExecEvent};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::text::TailBuffer;
use super::workspace::{ServingSession, is_asleep};
use crate::percent::escaped;
use crate::remote::socket::{self, Socket};
use crate::remote::{FailureKind, RemoteFailure};

/// Maximum output of one command that is kept: the end, where errors usually are.
pub(super) const OUTPUT_BYTES_MAX: usize = 100 << 10;
/// Longest command, in bytes. A longer one should be a file.
pub(super) const COMMAND_BYTES_MAX: usize = 256 << 10;
/// Bytes of one message to the terminal.
const PIECE_BYTES: usize = 32 << 10;
/// Timeout for a shell to start in a running sandbox.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a killed shell to report its end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Line that the starter writes once the terminal neither echoes nor changes input.
const READY: &[u8] = b"cove-worker-shell-ready\n";
/// Starts bash with pipes as its streams. `cat` copies bytes between them and the terminal.
const STARTER: &str = "stty raw -echo && printf 'cove-worker-shell-ready\\n' && \
    export TERM=dumb PS1= PS2= && \
    exec /bin/bash --noprofile --norc < <(exec cat) > >(exec cat) 2>&1";

/// Open shell.
pub(super) struct PersistentShell {
    socket: Socket,
}

/// Outcome of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShellOutcome {
    /// The command returned with this status.
    Done { output: String, status: i32 },
    /// The shell itself ended, for example by `exit`.
    Ended { output: String },
    /// The command timed out.
    TimedOut,
    /// The connection is lost, and the result of the command is unknown.
    Lost,
}

impl PersistentShell {
    /// Starts a shell.
    pub(super) async fn start(
        workspace: &ServingSession,
    ) -> Result<PersistentShell, RemoteFailure> {
        let argv = ["/bin/bash", "-c", STARTER].map(|part| format!("&argv={}", escaped(part)));
        let path = workspace.path(&format!("/terminal?rows=24&cols=80{}", argv.concat()));
        let opened = match socket::open(&workspace.server, &path).await {
            Err(failure) if is_asleep(&failure) => {
                workspace.resume().await?;
                socket::open(&workspace.server, &path).await
            }
            opened => opened,
        };
        let mut shell = PersistentShell { socket: opened? };
        let ready = timeout(START_TIMEOUT, shell.wait_until_ready()).await;
        match ready {
            Ok(true) => Ok(shell),
            Ok(false) | Err(_) => Err(RemoteFailure::new(
                FailureKind::Lost,
                "no shell came up in the sandbox; it needs /bin/bash, cat and stty",
            )),
        }
    }

    async fn wait_until_ready(&mut self) -> bool {
        let mut seen = Vec::new();
        while let Some(ShellMessage::Output(bytes)) = self.receive().await {
            seen.extend_from_slice(&bytes);
            if seen.ends_with(READY) {
                return true;
            }
            if seen.len() > OUTPUT_BYTES_MAX {
                return false;
            }
        }
        false
    }

    /// Runs a command. After any outcome but [`ShellOutcome::Done`] the shell is unusable.
    pub(super) async fn run(&mut self, command: &str, nonce: &str, time: Duration) -> ShellOutcome {
        let mark = format!("__cove_{nonce}_done__");
        let line = wrapped(command, nonce);
        let run = async {
            for piece in line.as_bytes().chunks(PIECE_BYTES) {
                if self.socket.feed(Message::Binary(piece.to_vec().into())).await.is_err() {
                    return ShellOutcome::Lost;
                }
            }
            if self.socket.flush().await.is_err() {
                return ShellOutcome::Lost;
            }
            self.read_to_mark(mark.as_bytes()).await
        };
        timeout(time, run).await.unwrap_or(ShellOutcome::TimedOut)
    }

    async fn read_to_mark(&mut self, mark: &[u8]) -> ShellOutcome {
        let mut tail = TailBuffer::new(OUTPUT_BYTES_MAX);
        loop {
            match self.receive().await {
                Some(ShellMessage::Output(bytes)) => {
                    tail.push(&bytes);
                    if let Some((output, status)) = tail.split_at_mark(mark) {
                        return ShellOutcome::Done { output, status };
                    }
                }
                Some(ShellMessage::Ended) => return ShellOutcome::Ended { output: tail.text() },
                None => return ShellOutcome::Lost,
            }
        }
    }

    /// Returns the next message of the terminal; none if it is closed.
    async fn receive(&mut self) -> Option<ShellMessage> {
        loop {
            match self.socket.next().await?.ok()? {
                Message::Binary(bytes) => return Some(ShellMessage::Output(bytes.to_vec())),
                Message::Text(text) => match serde_json::from_str(text.as_str()).ok()? {
                    SessionExecEvent::Ended(_) => return Some(ShellMessage::Ended),
                    SessionExecEvent::Error { .. } => return None,
                    SessionExecEvent::Started { .. }
                    | SessionExecEvent::Attached { .. }
                    | SessionExecEvent::Stdout { .. }
                    | SessionExecEvent::Stderr { .. } => {}
                },
                Message::Close(_) => return None,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    /// Kills the shell and its process group, and waits for the end.
    pub(super) async fn kill(mut self) {
        let kill = async {
            let cancel = serde_json::to_string(&ClientMessage::Cancel).unwrap_or_default();
            self.socket.send(Message::Text(cancel.into())).await.ok()?;
            while let Some(ShellMessage::Output(_)) = self.receive().await {}
            self.socket.close(None).await.ok()
        };
        // If it does not end, closing the WebSocket hangs up the terminal.
        drop(timeout(KILL_TIMEOUT, kill).await);
    }
}

enum ShellMessage {
    Output(Vec<u8>),
    Ended,
}

/// Wraps a command for the shell, followed by the end mark and its status. `eval` keeps a command
/// with an open quote or here-document from consuming the mark, and `</dev/null` one that reads its
/// input. The quotes within the mark keep it out of the sent text, so that `set -v` does not print
/// it.
fn wrapped(command: &str, nonce: &str) -> String {
    let quoted = command.replace('\'', r"'\''");
    format!("eval '{quoted}' </dev/null\nprintf '\\n__cove_''{nonce}_done__%d\\n' \"$?\"\n")
}

#[cfg(test)]
mod tests {
    //! The line for a shell, read by a real one.

    use std::process::{Command, Stdio};

    use super::*;

    /// Checks bash's output for a command, and its status.
    fn check(command: &str, expected: &str, status: i32) {
        let mut bash = Command::new("/bin/bash");
        bash.args(["--noprofile", "--norc"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut bash = bash.stderr(Stdio::null()).spawn().unwrap();
        let line = wrapped(command, "NONCE");
        std::io::Write::write_all(&mut bash.stdin.take().unwrap(), line.as_bytes()).unwrap();
        let output = bash.wait_with_output().unwrap();
        let mut tail = TailBuffer::new(OUTPUT_BYTES_MAX);
        tail.push(&output.stdout);
        let found = tail.split_at_mark(b"__cove_NONCE_done__");
        assert_eq!(found, Some((expected.to_owned(), status)), "{command:?}");
    }

    #[test]
    fn no_command_swallows_the_mark_of_its_end() {
        check("echo a", "a", 0);
        check("echo \"it's\"; false", "it's", 1);
        check("echo 'open", "", 2);
        check("cat <<EOF\ntext", "text", 0);
        check("if true; then", "", 2);
        check("cat; read x; echo \"[$x]\"", "[]", 0);
        check("printf 'no newline'", "no newline", 0);
        check("# only a comment", "", 0);
        check("set -v; echo x", "x", 0);
        check("echo __cove_NONCE; exec 2>&1; true", "__cove_NONCE", 0);
    }
}
