//! Counters of relayed requests, and of the tokens that answers report.
//!
//! The answer passes unchanged and without delay. The counter also parses the reported usage; an
//! answer without a readable usage is neither counted nor delayed.
//!
//! # References
//! - <https://docs.anthropic.com/en/api/messages-streaming>

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use serde::Deserialize;

use super::BoxError;
use super::door::ModelTokens;

/// Maximum bytes buffered of an answer, or of one of its lines, to parse its usage.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// Names of the stream events that report usage.
const WITH_USAGE: [&[u8]; 2] = [b"message_start", b"message_delta"];

/// Monotonic counters of requests and tokens.
#[derive(Debug, Default)]
pub(crate) struct UsageTotals {
    requests: AtomicU64,
    failed: AtomicU64,
    input: AtomicU64,
    output: AtomicU64,
    cache_creation: AtomicU64,
    cache_read: AtomicU64,
}

/// Counts of tokens and requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenCounts {
    /// Requests, including rejected ones.
    pub(crate) requests: u64,
    /// Requests that were not answered by the model.
    pub(crate) failed: u64,
    /// Tokens that the model read, without those from its cache.
    pub(crate) input: u64,
    /// Tokens that it wrote.
    pub(crate) output: u64,
    /// Tokens written to its cache.
    pub(crate) cache_creation: u64,
    /// Tokens read from its cache.
    pub(crate) cache_read: u64,
}

impl UsageTotals {
    /// Returns the usage so far. An answer counts once it has ended.
    pub(crate) fn so_far(&self) -> TokenCounts {
        TokenCounts {
            requests: self.requests.load(Relaxed),
            failed: self.failed.load(Relaxed),
            input: self.input.load(Relaxed),
            output: self.output.load(Relaxed),
            cache_creation: self.cache_creation.load(Relaxed),
            cache_read: self.cache_read.load(Relaxed),
        }
    }

    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    pub(super) fn add(&self, tokens: &ModelTokens) {
        self.input.fetch_add(tokens.input, Relaxed);
        self.output.fetch_add(tokens.output, Relaxed);
        self.cache_creation.fetch_add(tokens.cache_write, Relaxed);
        self.cache_read.fetch_add(tokens.cache_read, Relaxed);
    }
}

/// Usage in an answer or a stream event.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct ModelUsage {
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
    pub(super) cache_creation_input_tokens: Option<u64>,
    pub(super) cache_read_input_tokens: Option<u64>,
    /// True for the usage at the answer's end, as opposed to that at the beginning of a stream.
    #[serde(skip)]
    pub(super) is_final: bool,
}

/// Receiver of a response's usage when the response is dropped, even if it was not read to its end.
pub(super) trait UsageObserver {
    /// Records the reported usage, and the number of bytes passed.
    fn enter(&mut self, usage: &ModelUsage, bytes: u64);
}

impl UsageObserver for Arc<UsageTotals> {
    fn enter(&mut self, usage: &ModelUsage, _bytes: u64) {
        self.add(&usage.tokens());
    }
}

impl ModelUsage {
    /// Returns the reported tokens; 0 for missing numbers.
    pub(super) fn tokens(&self) -> ModelTokens {
        ModelTokens {
            input: self.input_tokens.unwrap_or(0),
            output: self.output_tokens.unwrap_or(0),
            cache_write: self.cache_creation_input_tokens.unwrap_or(0),
            cache_read: self.cache_read_input_tokens.unwrap_or(0),
        }
    }

    /// Merges a later event, whose numbers are totals that replace earlier ones.
    fn replace(&mut self, later: ModelUsage) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens =
            later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.is_final |= later.is_final;
    }
}

/// Fields of an answer or an event that may contain a usage.
#[derive(Deserialize)]
struct WithUsage {
    usage: Option<ModelUsage>,
    message: Option<UsageMessage>,
}

#[derive(Deserialize)]
struct UsageMessage {
    usage: Option<ModelUsage>,
}

/// Parses usages from the pieces of an answer.
#[derive(Debug)]
enum UsageReader {
    /// Server-sent events, one line at a time.
    Stream {
        line: Vec<u8>,
        /// True if the line is too long to contain a usage.
        is_skipped: bool,
    },
    /// A JSON document.
    Whole(Vec<u8>),
    /// An answer without a readable usage.
    None,
}

impl UsageReader {
    fn new(content_type: &str) -> UsageReader {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => UsageReader::Stream { line: Vec::new(), is_skipped: false },
            "application/json" => UsageReader::Whole(Vec::new()),
            _ => UsageReader::None,
        }
    }

    fn take(&mut self, bytes: &[u8], usage: &mut ModelUsage) {
        match self {
            UsageReader::None => {}
            UsageReader::Whole(kept) => {
                if kept.len() + bytes.len() > KEPT_BYTES_MAX {
                    *self = UsageReader::None;
                } else {
                    kept.extend_from_slice(bytes);
                }
            }
            UsageReader::Stream { line, is_skipped } => {
                for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
                    if line.len() + piece.len() > KEPT_BYTES_MAX {
                        *is_skipped = true;
                    }
                    if !*is_skipped {
                        line.extend_from_slice(piece);
                    }
                    if piece.ends_with(b"\n") {
                        if !*is_skipped {
                            read_line(line, usage);
                        }
                        line.clear();
                        *is_skipped = false;
                    }
                }
            }
        }
    }

    fn end(&self, usage: &mut ModelUsage) {
        if let UsageReader::Whole(kept) = self {
            read(kept, usage);
        }
    }
}

fn read_line(line: &[u8], usage: &mut ModelUsage) {
    let Some(data) = line.strip_prefix(b"data:") else { return };
    // Most lines are pieces of text, and a search costs less than parsing.
    let has = |part: &[u8]| data.windows(part.len()).take(64).any(|window| window == part);
    if WITH_USAGE.iter().any(|part| has(part)) {
        read(data, usage);
    }
}

fn read(json: &[u8], usage: &mut ModelUsage) {
    let Ok(read) = serde_json::from_slice::<WithUsage>(json) else { return };
    let of_message = read.message.and_then(|message| message.usage);
    let at_end = read.usage.map(|it| ModelUsage { is_final: it.output_tokens.is_some(), ..it });
    for later in of_message.into_iter().chain(at_end) {
        usage.replace(later);
    }
}

/// Entry of the fuzz target for answers of a model.
#[cfg(fuzzing)]
pub(super) mod fuzzing {
    use super::{ModelUsage, UsageReader};

    /// Parses the usage from an answer that arrives in parts of `cut` bytes.
    pub fn usage(content_type: &str, bytes: &[u8], cut: usize) -> String {
        let (mut reader, mut usage) = (UsageReader::new(content_type), ModelUsage::default());
        bytes.chunks(cut).for_each(|part| reader.take(part, &mut usage));
        reader.end(&mut usage);
        format!("{usage:?}")
    }
}

/// A body whose usage is counted while it passes.
pub(super) struct CountedAnswer<B, L: UsageObserver> {
    body: B,
    reader: UsageReader,
    usage: ModelUsage,
    bytes: u64,
    ledger: L,
}

impl<B, L: UsageObserver> CountedAnswer<B, L> {
    pub(super) fn new(body: B, content_type: &str, ledger: L) -> CountedAnswer<B, L> {
        let reader = UsageReader::new(content_type);
        CountedAnswer { body, reader, usage: ModelUsage::default(), bytes: 0, ledger }
    }
}

impl<B, L: UsageObserver> Drop for CountedAnswer<B, L> {
    /// Reports the usage, even if the response was not read to its end.
    fn drop(&mut self) {
        self.reader.end(&mut self.usage);
        self.ledger.enter(&self.usage, self.bytes);
    }
}

impl<B, L> Body for CountedAnswer<B, L>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
    L: UsageObserver + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            this.bytes = this.bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            this.reader.take(bytes, &mut this.usage);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the usage of an answer, whole and in pieces of up to nine bytes.
    fn check(content_type: &str, answer: &str, expected: [u64; 4]) {
        for size in (1..10).chain([answer.len()]) {
            let tally = Arc::new(UsageTotals::default());
            let mut counted = CountedAnswer::new((), content_type, Arc::clone(&tally));
            for piece in answer.as_bytes().chunks(size) {
                counted.reader.take(piece, &mut counted.usage);
            }
            drop(counted);
            let found = tally.so_far();
            let found = [found.input, found.output, found.cache_creation, found.cache_read];
            assert_eq!(found, expected, "{content_type} in pieces of {size}");
        }
    }

    #[test]
    fn usage_is_found_in_streams_and_documents() {
        let start = r#"data: {"type":"message_start","message":{"usage":{"input_tokens":5,"cache_read_input_tokens":7,"output_tokens":1}}}"#;
        let delta = r#"data: {"type":"message_delta","delta":{},"usage":{"output_tokens":9}}"#;
        let text = r#"data: {"type":"content_block_delta","delta":{"text":"message_start"}}"#;
        let stream = format!("event: x\n{start}\n\n{text}\n\n{delta}\n\n");
        check("text/event-stream; charset=utf-8", &stream, [5, 9, 0, 7]);
        // A truncated stream: the usage reported so far.
        check("text/event-stream", &format!("{start}\n"), [5, 1, 0, 7]);
        let document = r#"{"type":"message","usage":{"input_tokens":3,"output_tokens":4,"cache_creation_input_tokens":2}}"#;
        check("application/json", document, [3, 4, 2, 0]);
        check("application/json", r#"{"usage":-1}"#, [0; 4]);
        check("application/json", "[", [0; 4]);
        check("text/plain", document, [0; 4]);
    }

    #[test]
    fn only_the_end_of_an_answer_says_all_that_it_used() {
        let is_final = |json: &str| {
            let mut usage = ModelUsage::default();
            read(json.as_bytes(), &mut usage);
            usage.is_final
        };
        assert!(!is_final(r#"{"message":{"usage":{"input_tokens":5,"output_tokens":1}}}"#));
        assert!(!is_final(r#"{"usage":{"input_tokens":5}}"#));
        assert!(is_final(r#"{"type":"message_delta","usage":{"output_tokens":9}}"#));
    }

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        let mut reader = UsageReader::new("text/event-stream");
        let mut usage = ModelUsage::default();
        let piece = vec![b'a'; KEPT_BYTES_MAX / 4 + 1];
        for _ in 0..8 {
            reader.take(&piece, &mut usage);
        }
        let UsageReader::Stream { line, .. } = &reader else { panic!("{reader:?}") };
        assert!(line.len() <= KEPT_BYTES_MAX);
        reader.take(
            b"\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":2}}\n",
            &mut usage,
        );
        assert_eq!(usage.output_tokens, Some(2));
    }
}
