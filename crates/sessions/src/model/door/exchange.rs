//! Request at a door: its parameters, usage and outcome. It is charged and reported when its answer
//! is dropped, regardless of the reason.

use std::sync::Arc;
use std::time::Instant;

use hyper::StatusCode;
use hyper::http::request::Parts;
use node::clock;

use super::question::ModelQuery;
use super::{ModelDoor, ModelEnd, ModelRequest, ModelTokens};
use crate::model::ModelRefusal;
use crate::model::usage::{ModelUsage, UsageObserver};

/// The only path whose answers are charged.
const CHARGED_PATH: &str = "/v1/messages";
/// Maximum recorded characters of a path or a model's name.
const TOLD_CHARS_MAX: usize = 200;
/// Bytes per token for estimates. In event streams most bytes are not text, so the estimate is
/// rather too high.
const BYTES_PER_TOKEN: u64 = 4;
/// Maximum estimated tokens of one answer. No model writes more, and a sandbox must not exhaust a
/// shared budget by requesting a huge maximum and disconnecting.
const ESTIMATE_MAX: u64 = 128_000;
/// Error of a request whose client disconnected before the response.
const LEFT: &str = "the client left";

/// A request at a door.
pub(super) struct ModelExchange {
    door: Arc<ModelDoor>,
    method: String,
    path: String,
    /// Full name of the model, which determines its price.
    model: Option<String>,
    max_tokens: u64,
    is_streamed: bool,
    started: Instant,
    stage: ExchangeStage,
    usage: ModelUsage,
    bytes_out: u64,
    bytes_in: u64,
}

/// Stage of a request.
#[derive(Clone, Copy, Debug)]
enum ExchangeStage {
    /// Not sent yet.
    Unsent,
    /// Sent, without an answer yet.
    Sent,
    /// Answered.
    Answered(StatusCode),
    /// Not answered by the model.
    Refused { why: ModelRefusal, was_sent: bool },
}

/// Returns the recorded part of a text from inside the sandbox, without control characters.
fn told(text: &str) -> String {
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().take(TOLD_CHARS_MAX).map(plain).collect()
}

impl ModelExchange {
    pub(super) fn new(door: Arc<ModelDoor>, head: &Parts) -> ModelExchange {
        ModelExchange {
            door,
            method: told(head.method.as_str()),
            path: told(head.uri.path()),
            model: None,
            max_tokens: 0,
            is_streamed: false,
            started: clock::now(),
            stage: ExchangeStage::Unsent,
            usage: ModelUsage::default(),
            bytes_out: 0,
            bytes_in: 0,
        }
    }

    /// Records the parameters of the request, and the bytes of its body.
    pub(super) fn asked(&mut self, question: &ModelQuery, bytes: u64) {
        self.model = Some(question.model.clone());
        self.max_tokens = question.max_tokens.min(ESTIMATE_MAX);
        self.is_streamed = question.is_streamed;
        self.bytes_out = bytes;
    }

    /// Marks the request as sent.
    pub(super) fn sent(&mut self) {
        self.stage = ExchangeStage::Sent;
    }

    /// Records that the head of the answer has arrived.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.stage = ExchangeStage::Answered(status);
    }

    /// Marks the request as not answered by the model.
    pub(super) fn refused(&mut self, why: ModelRefusal) {
        let was_sent = matches!(self.stage, ExchangeStage::Sent);
        self.stage = ExchangeStage::Refused { why, was_sent };
    }

    /// Returns the tokens used, and whether they are an estimate.
    fn used(&self) -> (ModelTokens, bool) {
        let is_free = match self.stage {
            ExchangeStage::Unsent => true,
            ExchangeStage::Sent => false,
            ExchangeStage::Answered(status) => !status.is_success(),
            // After a timeout, the model may still finish the answer.
            ExchangeStage::Refused { why, was_sent } => !was_sent || why != ModelRefusal::Slow,
        };
        if is_free || self.path != CHARGED_PATH {
            return (ModelTokens::default(), false);
        }
        let mut tokens = self.usage.tokens();
        if self.usage.is_final {
            return (tokens, false);
        }
        if tokens.total() == tokens.output {
            tokens.input = self.bytes_out / BYTES_PER_TOKEN;
        }
        // An answer that is not streamed was generated completely before its first byte.
        let written = match self.is_streamed {
            true => self.max_tokens.min(self.bytes_in / BYTES_PER_TOKEN),
            false => self.max_tokens,
        };
        tokens.output = tokens.output.max(written);
        (tokens, true)
    }

    fn end(&self) -> (ModelEnd, Option<u16>, Option<&'static str>) {
        match self.stage {
            ExchangeStage::Unsent | ExchangeStage::Sent => (ModelEnd::Failed, None, Some(LEFT)),
            ExchangeStage::Answered(status) if status.is_success() => {
                (ModelEnd::Answered, Some(status.as_u16()), None)
            }
            ExchangeStage::Answered(status) => {
                (ModelEnd::Failed, Some(status.as_u16()), status.canonical_reason())
            }
            ExchangeStage::Refused { why, .. } => {
                let (status, _, message) = why.parts();
                let end = match why {
                    ModelRefusal::Down
                    | ModelRefusal::Slow
                    | ModelRefusal::Broken
                    | ModelRefusal::Unread => ModelEnd::Failed,
                    _ => ModelEnd::Refused,
                };
                (end, Some(status), Some(message))
            }
        }
    }
}

impl UsageObserver for ModelExchange {
    fn enter(&mut self, usage: &ModelUsage, bytes: u64) {
        self.usage = *usage;
        self.bytes_in = bytes;
    }
}

impl Drop for ModelExchange {
    fn drop(&mut self) {
        let (tokens, is_estimated) = self.used();
        let model = self.model.as_deref();
        if tokens.total() > 0 {
            self.door.budget.add(model.unwrap_or_default(), &tokens);
            self.door.shared.tally.add(&tokens);
        }
        let model = model.map(told);
        let (end, status, error) = self.end();
        self.door.told.saw(&ModelRequest {
            method: &self.method,
            path: &self.path,
            model: model.as_deref(),
            end,
            status,
            error,
            took: clock::now().saturating_duration_since(self.started),
            tokens,
            is_estimated,
            bytes_out: self.bytes_out,
            bytes_in: self.bytes_in,
        });
    }
}
