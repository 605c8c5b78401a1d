//! Texts of statements, which are masked before they are kept. The bytes that a connection keeps
//! are bounded.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use node::traces::{CommentTail, TraceContext};
use wire::mask::{CUT, SqlDialect, TextMasker};

use crate::guest::client::{StatementDetail, TEXT_BYTES_MAX};

/// Maximum bytes of texts and names that are kept for one connection.
pub(super) const KEPT_BYTES_MAX: usize = 1 << 20;
/// Bytes above which no more statements are remembered: the rest is for statements that wait for an
/// answer.
const REMEMBERED_BYTES_MAX: usize = KEPT_BYTES_MAX / 2;
/// Approximate size of an entry besides its bytes.
const OVERHEAD_BYTES: usize = 128;

/// Recorded text of a statement that is not known.
pub(super) const UNKNOWN: &str = "(prepared)";
/// Recorded text of a statement that was reported when it arrived, because there was no room to
/// keep it.
pub(super) const TOLD: &str = "(sent)";

/// Maximum bytes of a text: less a reserve for a prefix.
const SHOWN_BYTES_MAX: usize = TEXT_BYTES_MAX - 16;

/// Counter of the bytes that one connection keeps. At most one thread uses it at a time.
#[derive(Debug, Default)]
pub(super) struct TextLedger(Arc<AtomicUsize>);

/// Bytes that are kept; counted until dropped.
#[derive(Debug)]
pub(super) struct CountedBytes {
    bytes: Box<[u8]>,
    charge: usize,
    used: Arc<AtomicUsize>,
    /// True if the text was reported.
    is_told: AtomicBool,
    /// Context of a trace in a comment at its end.
    trace: Option<TraceContext>,
}

/// The recorded text of a statement.
#[derive(Clone, Debug)]
pub(super) enum ReportedText {
    Kept(Arc<CountedBytes>),
    /// Placeholder for a text that is not available.
    Missing(&'static str),
}

impl TextLedger {
    /// Keeps a name, if there is room. The empty name takes none.
    pub(super) fn name(&self, bytes: &[u8]) -> Option<CountedBytes> {
        let charge = if bytes.is_empty() { 0 } else { bytes.len() + OVERHEAD_BYTES };
        self.keep(bytes, charge)
    }

    /// Keeps a text, if there is room.
    pub(super) fn text(&self, bytes: &[u8], trace: Option<TraceContext>) -> Option<ReportedText> {
        let mut kept = self.keep(bytes, bytes.len() + OVERHEAD_BYTES)?;
        kept.trace = trace;
        Some(ReportedText::Kept(Arc::new(kept)))
    }

    /// Returns whether another statement can be remembered.
    pub(super) fn can_remember(&self) -> bool {
        self.used() <= REMEMBERED_BYTES_MAX
    }

    pub(super) fn used(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn keep(&self, bytes: &[u8], charge: usize) -> Option<CountedBytes> {
        if charge > 0 && self.used() + charge > KEPT_BYTES_MAX {
            return None;
        }
        self.0.fetch_add(charge, Ordering::Relaxed);
        let (used, is_told) = (Arc::clone(&self.0), AtomicBool::new(false));
        Some(CountedBytes { bytes: bytes.into(), charge, used, is_told, trace: None })
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.used.fetch_sub(self.charge, Ordering::Relaxed);
    }
}

impl CountedBytes {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Borrow<[u8]> for CountedBytes {
    fn borrow(&self) -> &[u8] {
        &self.bytes
    }
}

impl Hash for CountedBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl PartialEq for CountedBytes {
    fn eq(&self, other: &CountedBytes) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for CountedBytes {}

impl ReportedText {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            ReportedText::Kept(kept) => &kept.bytes,
            ReportedText::Missing(instead) => instead.as_bytes(),
        }
    }

    /// Returns the trace context in a comment at its end.
    pub(super) fn trace(&self) -> Option<&TraceContext> {
        match self {
            ReportedText::Kept(kept) => kept.trace.as_ref(),
            ReportedText::Missing(_) => None,
        }
    }

    /// Marks the text as reported; returns whether it was not before.
    pub(super) fn tell(&self) -> bool {
        match self {
            ReportedText::Kept(kept) => !kept.is_told.swap(true, Ordering::Relaxed),
            ReportedText::Missing(_) => false,
        }
    }
}

/// Reads a text in pieces and builds its recorded form.
#[derive(Debug)]
pub(super) struct TextRecorder {
    texts: StatementDetail,
    masker: TextMasker,
    /// Full text, with one extra byte if it is too long.
    full: Vec<u8>,
    /// End of the text, where trace contexts are looked for.
    tail: Option<CommentTail>,
}

impl TextRecorder {
    pub(super) fn new(
        texts: StatementDetail,
        dialect: SqlDialect,
        trace_comments: bool,
    ) -> TextRecorder {
        let masker = TextMasker::new(dialect, SHOWN_BYTES_MAX);
        let tail = trace_comments.then(CommentTail::default);
        TextRecorder { texts, masker, full: Vec::new(), tail }
    }

    pub(super) fn begin(&mut self) {
        self.masker.clear();
        self.full.clear();
        if let Some(tail) = &mut self.tail {
            tail.begin();
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if let Some(tail) = &mut self.tail {
            tail.feed(bytes);
        }
        match self.texts {
            StatementDetail::None => {}
            StatementDetail::Masked => self.masker.feed(bytes),
            StatementDetail::Full => {
                let room = (SHOWN_BYTES_MAX + 1).saturating_sub(self.full.len());
                self.full.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            }
        }
    }

    /// Ends a text of which more follows than is read.
    pub(super) fn break_off(&mut self) {
        // Its end is unknown.
        if let Some(tail) = &mut self.tail {
            tail.begin();
        }
        match self.texts {
            StatementDetail::None => {}
            StatementDetail::Masked => self.masker.break_off(),
            StatementDetail::Full => self.full.resize(SHOWN_BYTES_MAX + 1, b' '),
        }
    }

    /// Returns the text to report, and the trace context in a comment at its end.
    pub(super) fn finish(&mut self) -> (&[u8], Option<TraceContext>) {
        let trace = self.tail.as_ref().and_then(CommentTail::context);
        (self.shown(), trace)
    }

    fn shown(&mut self) -> &[u8] {
        match self.texts {
            StatementDetail::None => &[],
            StatementDetail::Masked => self.masker.finish(),
            StatementDetail::Full => {
                if self.full.len() > SHOWN_BYTES_MAX {
                    let end = SHOWN_BYTES_MAX - CUT.len();
                    let is_inner = |at: usize| self.full.get(at).is_some_and(|it| it >> 6 == 0b10);
                    let end = (0..=end).rev().find(|at| !is_inner(*at)).unwrap_or_default();
                    self.full.truncate(end);
                    self.full.extend_from_slice(CUT.as_bytes());
                }
                &self.full
            }
        }
    }
}
