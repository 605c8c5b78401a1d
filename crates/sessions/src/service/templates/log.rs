//! Log of a running build, with bounded size.

use api::TemplateLogLine;
use node::clock;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Maximum number of lines kept of a build, and of their bytes.
const LINES_MAX: usize = 10_000;
const BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of one line.
const LINE_BYTES_MAX: usize = 4096;
/// Lines reserved for the server's own messages at the end.
const LINES_SPARE: usize = 16;

/// Level of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildLogLevel {
    /// Output of a step, and progress.
    Info,
    /// Why the build failed.
    Error,
}

impl BuildLogLevel {
    fn as_str(self) -> &'static str {
        match self {
            BuildLogLevel::Info => "info",
            BuildLogLevel::Error => "error",
        }
    }
}

/// Log of a build.
#[derive(Debug)]
pub(crate) struct BuildLog {
    state: Mutex<KeptLines>,
    /// Number of lines.
    count: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct KeptLines {
    lines: Vec<TemplateLogLine>,
    bytes: usize,
    is_full: bool,
}

impl BuildLog {
    pub(crate) fn new() -> BuildLog {
        BuildLog { state: Mutex::default(), count: watch::Sender::new(0) }
    }

    /// Adds a line of a step's output. Lines beyond the limits are dropped, which a final line
    /// reports.
    pub(crate) fn output(&self, step: u32, text: &str) {
        let mut state = self.state.lock();
        if state.is_full {
            return;
        }
        let is_full =
            state.lines.len() + LINES_SPARE >= LINES_MAX || state.bytes + text.len() > BYTES_MAX;
        if is_full {
            state.is_full = true;
            let text = format!("more than {LINES_MAX} lines or {BYTES_MAX} bytes are not kept");
            self.push(&mut state, BuildLogLevel::Info, Some(step), &text);
        } else {
            self.push(&mut state, BuildLogLevel::Info, Some(step), text);
        }
    }

    /// Adds a message of the server.
    pub(crate) fn note(&self, level: BuildLogLevel, step: Option<u32>, text: &str) {
        self.push(&mut self.state.lock(), level, step, text);
    }

    fn push(&self, state: &mut KeptLines, level: BuildLogLevel, step: Option<u32>, text: &str) {
        let mut end = text.len().min(LINE_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        state.bytes += end;
        let index = u64::try_from(state.lines.len()).unwrap_or(u64::MAX);
        state.lines.push(TemplateLogLine {
            index,
            at_ms: clock::wall_ms(),
            level: level.as_str().to_owned(),
            step,
            message: text[..end].to_owned(),
        });
        self.count.send_replace(index + 1);
    }

    /// Returns lines from an index on.
    pub(crate) fn lines(&self, from: u64, count_max: usize) -> Vec<TemplateLogLine> {
        page(&self.state.lock().lines, from, count_max)
    }

    /// Returns all lines in their stored form.
    pub(crate) fn stored(&self) -> Vec<u8> {
        serde_json::to_vec(&self.state.lock().lines).unwrap_or_default()
    }

    /// Returns a receiver of the number of lines.
    pub(crate) fn count(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }
}

/// Returns lines of a stored log from an index on.
pub(crate) fn stored_lines(log: &[u8], from: u64, count_max: usize) -> Vec<TemplateLogLine> {
    // A build that has not written lines yet has no stored log.
    let lines: Vec<TemplateLogLine> = serde_json::from_slice(log).unwrap_or_default();
    page(&lines, from, count_max)
}

fn page(lines: &[TemplateLogLine], from: u64, count_max: usize) -> Vec<TemplateLogLine> {
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(lines.len());
    lines[from..].iter().take(count_max).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_output_is_cut_once_and_the_end_is_still_said() {
        let log = BuildLog::new();
        for _ in 0..LINES_MAX * 2 {
            log.output(1, &"é".repeat(LINE_BYTES_MAX));
        }
        log.note(BuildLogLevel::Error, None, "failed");
        let lines = log.lines(0, usize::MAX);
        let bytes: usize = lines.iter().map(|line| line.message.len()).sum();
        assert!(lines.len() <= LINES_MAX && bytes <= BYTES_MAX + LINE_BYTES_MAX, "{bytes}");
        assert!(lines[lines.len() - 2].message.contains("are not kept"));
        assert_eq!(lines[lines.len() - 1].message, "failed");
        assert_eq!(stored_lines(&log.stored(), 3, 2), lines[3..5]);
    }
}
