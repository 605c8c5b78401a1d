//! Bodies on their way: counted, bounded in pauses, and searched for what must not come back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep};

use super::exchange::{Exchange, Way};
use super::headers::{WORD_BYTES_MIN, contains};

/// Longest pause between two pieces of a body.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// What ends a body before its end.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a body ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Cut {
    /// It cannot be said where it ends, or who sent it left.
    #[error("the body broke off")]
    Broken,
    /// Nothing of it came for too long.
    #[error("the body paused for too long")]
    Paused,
    /// It is more than the grant may have.
    #[error("bytes: the grant's limit is reached")]
    Limit,
    /// It has what must not come back.
    #[error("the answer has a secret in it")]
    Secret,
}

/// The task that moves the bytes of a connection outside; it ends with this.
pub(super) struct Connection(pub(super) AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A body that passes the proxy. Trailers stay behind.
pub(super) struct Passing {
    inner: Incoming,
    way: Way,
    exchange: Arc<Exchange>,
    pause: Pin<Box<Sleep>>,
    search: Search,
    /// What it comes by, which lives as long.
    connection: Option<Connection>,
    is_done: bool,
}

impl Passing {
    pub(super) fn new(inner: Incoming, way: Way, exchange: Arc<Exchange>) -> Passing {
        let search = Search { secrets: Vec::new(), held: Bytes::new() };
        let pause = Box::pin(sleep(PAUSE_MAX));
        Passing { inner, way, exchange, pause, search, connection: None, is_done: false }
    }

    /// One that breaks off where one of these is in it.
    pub(super) fn searched(mut self, secrets: Vec<Box<[u8]>>) -> Passing {
        self.search.secrets = secrets;
        self
    }

    /// One that keeps the connection that it comes by.
    pub(super) fn of(mut self, connection: Connection) -> Passing {
        self.connection = Some(connection);
        self
    }

    fn cut(&mut self, cut: Cut) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.is_done = true;
        self.connection = None;
        match cut {
            Cut::Broken | Cut::Paused => self.exchange.failed(&cut.to_string()),
            Cut::Limit | Cut::Secret => self.exchange.refused(&cut.to_string()),
        }
        Poll::Ready(Some(Err(cut.into())))
    }
}

impl Body for Passing {
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
            let polled = Pin::new(&mut it.inner).poll_frame(context);
            let Poll::Ready(frame) = polled else {
                return match it.pause.as_mut().poll(context) {
                    Poll::Ready(()) => it.cut(Cut::Paused),
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
                    return it.cut(Cut::Broken);
                }
                None => {
                    let held = std::mem::take(&mut it.search.held);
                    // Too long to be an accident: the rest could come with the next answer.
                    if held.len() >= WORD_BYTES_MIN {
                        return it.cut(Cut::Secret);
                    }
                    it.is_done = true;
                    return match held.is_empty() {
                        true => Poll::Ready(None),
                        false => Poll::Ready(Some(Ok(Frame::data(held)))),
                    };
                }
            };
            if !it.exchange.count(it.way, data.len()) {
                return it.cut(Cut::Limit);
            }
            match it.search.pass(data) {
                Some(data) if data.is_empty() => {}
                Some(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                None => return it.cut(Cut::Secret),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_done || (self.inner.is_end_stream() && self.search.held.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        let held = u64::try_from(self.search.held.len()).unwrap_or(u64::MAX);
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

/// Looks for secrets in pieces that are passed on.
struct Search {
    secrets: Vec<Box<[u8]>>,
    /// The end of what came, which may be the beginning of a secret.
    held: Bytes,
}

impl Search {
    /// What may be passed on; none when there is a secret in it.
    fn pass(&mut self, data: Bytes) -> Option<Bytes> {
        if self.secrets.is_empty() {
            return Some(data);
        }
        let mut all = BytesMut::with_capacity(self.held.len() + data.len());
        all.extend_from_slice(&self.held);
        all.extend_from_slice(&data);
        if self.secrets.iter().any(|secret| contains(&all, secret)) {
            return None;
        }
        let held = self.secrets.iter().map(|secret| begun(&all, secret)).max().unwrap_or(0);
        self.held = all.split_off(all.len() - held).freeze();
        Some(all.freeze())
    }
}

/// Bytes at the end of `all` that are the beginning of `secret`.
fn begun(all: &[u8], secret: &[u8]) -> usize {
    let longest = all.len().min(secret.len().saturating_sub(1));
    (1..=longest).rev().find(|length| all.ends_with(&secret[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_however_it_is_cut() {
        let secret = b"planted-canary";
        let text = b"a planted-plan, and the planted-canary itself";
        for cut in 1..text.len() {
            let mut search = Search { secrets: vec![secret[..].into()], held: Bytes::new() };
            let mut passed = Vec::new();
            let is_found = text.chunks(cut).any(|piece| {
                let found = search.pass(Bytes::copy_from_slice(piece));
                passed.extend_from_slice(found.as_deref().unwrap_or_default());
                found.is_none()
            });
            assert!(is_found, "{cut}");
            assert!(text.starts_with(&passed) && passed.len() <= 24, "{cut}");
        }
        let mut search = Search { secrets: vec![secret[..].into()], held: Bytes::new() };
        let mut passed = Vec::new();
        for piece in [&b"planted"[..], b"-can", b"opy plant"] {
            passed.extend_from_slice(&search.pass(Bytes::copy_from_slice(piece)).unwrap());
        }
        assert_eq!(passed, b"planted-canopy ");
        assert_eq!(&search.held[..], b"plant");
    }
}
