//! Bodies in transit: counted, limited in pauses, and searched for secrets.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9112#section-6>

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use node::task::Boxed;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep};

use super::echo::{EchoFilter, SecretScanner};
use super::exchange::{ByteDirection, LimitRefusal, ProxyExchange};
use super::forms::FormFilter;

/// Longest pause between two chunks of a body.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// Error that ends a body early.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Reason why a body is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyCut {
    /// The length is ambiguous, or the sender disconnected.
    #[error("the body ended early")]
    Broken,
    /// The sender paused for too long.
    #[error("the body paused for too long")]
    Paused,
    /// The grant's limit of bytes is reached, or its usage is unknown.
    #[error("{0}")]
    Limit(LimitRefusal),
    /// The body contains a secret.
    #[error("the response contains a secret")]
    Secret,
    /// The body has a form field that overrides the method.
    #[error("the form has a field that overrides the method")]
    MethodField,
}

/// Next part of a body, or its end.
type PolledFrame = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// Handle of the task that drives an outgoing connection; dropping it ends the task.
pub(super) struct OutsideConnection(pub(super) AbortHandle);

impl Drop for OutsideConnection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A body that passes the proxy. Trailers are dropped.
pub(super) struct ProxiedBody {
    inner: Incoming,
    way: ByteDirection,
    exchange: Arc<ProxyExchange>,
    pause: Pin<Box<Sleep>>,
    echoes: EchoFilter,
    /// Looks for an override of the method, if the rules compared the method.
    form: Option<FormFilter>,
    /// Connection of the body, kept alive with it.
    connection: Option<OutsideConnection>,
    /// A chunk that waits for the store's decision.
    waiting: Option<WaitingPiece>,
    is_done: bool,
}

/// A chunk of a body that waits for the store.
struct WaitingPiece {
    data: Bytes,
    may_pass: Boxed<'static, Result<(), LimitRefusal>>,
}

impl ProxiedBody {
    pub(super) fn new(
        inner: Incoming,
        way: ByteDirection,
        exchange: Arc<ProxyExchange>,
    ) -> ProxiedBody {
        let echoes = EchoFilter::new(None);
        let pause = Box::pin(sleep(PAUSE_MAX));
        ProxiedBody {
            inner,
            way,
            exchange,
            pause,
            echoes,
            form: None,
            connection: None,
            waiting: None,
            is_done: false,
        }
    }

    /// Returns the body cut off before any part of a secret.
    pub(super) fn searched(mut self, scanner: Option<SecretScanner>) -> ProxiedBody {
        self.echoes = EchoFilter::new(scanner);
        self
    }

    /// Returns the body cut off before a form field that overrides the method.
    pub(super) fn compared(mut self, form: Option<FormFilter>) -> ProxiedBody {
        self.form = form;
        self
    }

    /// Attaches the connection of the body.
    pub(super) fn of(mut self, connection: OutsideConnection) -> ProxiedBody {
        self.connection = Some(connection);
        self
    }

    /// Passes a counted chunk, after a search. `None` if all of it is held back.
    fn pass(&mut self, data: Bytes) -> Option<PolledFrame> {
        if self.form.as_mut().is_some_and(|form| !form.passes(&data)) {
            return Some(self.cut(BodyCut::MethodField));
        }
        match self.echoes.pass(data) {
            Some(data) if data.is_empty() => None,
            Some(data) => Some(Poll::Ready(Some(Ok(Frame::data(data))))),
            None => Some(self.cut(BodyCut::Secret)),
        }
    }

    /// Returns the number of bytes that were received and not passed on.
    fn held_bytes(&self) -> u64 {
        let waiting = self.waiting.as_ref().map_or(0, |piece| piece.data.len());
        u64::try_from(self.echoes.held_bytes().saturating_add(waiting)).unwrap_or(u64::MAX)
    }

    fn cut(&mut self, cut: BodyCut) -> PolledFrame {
        self.is_done = true;
        self.connection = None;
        match cut {
            BodyCut::Broken | BodyCut::Paused => self.exchange.failed(&cut.to_string()),
            BodyCut::Limit(_) | BodyCut::Secret | BodyCut::MethodField => {
                self.exchange.refused(&cut.to_string())
            }
        }
        Poll::Ready(Some(Err(cut.into())))
    }
}

impl Body for ProxiedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let it = &mut *self;
        loop {
            if it.is_done {
                return Poll::Ready(None);
            }
            if let Some(mut piece) = it.waiting.take() {
                match piece.may_pass.as_mut().poll(context) {
                    Poll::Pending => {
                        it.waiting = Some(piece);
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(refusal)) => return it.cut(BodyCut::Limit(refusal)),
                    Poll::Ready(Ok(())) => match it.pass(piece.data) {
                        Some(passed) => return passed,
                        None => continue,
                    },
                }
            }
            let polled = Pin::new(&mut it.inner).poll_frame(context);
            let Poll::Ready(frame) = polled else {
                return match it.pause.as_mut().poll(context) {
                    Poll::Ready(()) => it.cut(BodyCut::Paused),
                    Poll::Pending => Poll::Pending,
                };
            };
            it.pause.as_mut().reset(Instant::now() + PAUSE_MAX);
            let data = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    Err(_trailers) => continue,
                },
                Some(Err(error)) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "pass a body");
                    return it.cut(BodyCut::Broken);
                }
                None if it.form.as_ref().is_some_and(|form| !form.passes_end()) => {
                    return it.cut(BodyCut::MethodField);
                }
                None => {
                    let Some(held) = it.echoes.finish() else { return it.cut(BodyCut::Secret) };
                    it.is_done = true;
                    return match held.is_empty() {
                        true => Poll::Ready(None),
                        false => Poll::Ready(Some(Ok(Frame::data(held)))),
                    };
                }
            };
            match it.exchange.try_count(it.way, data.len()) {
                Some(Ok(())) => {}
                Some(Err(refusal)) => return it.cut(BodyCut::Limit(refusal)),
                None => {
                    let may_pass = it.exchange.take_bytes(data.len());
                    it.waiting = Some(WaitingPiece { data, may_pass });
                    continue;
                }
            }
            if let Some(passed) = it.pass(data) {
                return passed;
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_done || (self.inner.is_end_stream() && self.held_bytes() == 0)
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held_bytes();
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}
