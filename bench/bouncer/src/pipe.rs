//! Three kinds of connections between two tasks: a rendezvous, where a write returns after it was
//! read completely (like Go's `net.Pipe`); a buffer of 64 KiB; and a pair of Unix sockets with
//! their system calls.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use mio::net::UnixStream;

use crate::executor::{Edge, Executor, Sockets};

const BUFFER_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Rendezvous,
    Buffered,
    Sockets,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Rendezvous, Kind::Buffered, Kind::Sockets];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Rendezvous => "rendezvous",
            Kind::Buffered => "buffered",
            Kind::Sockets => "sockets",
        }
    }

    /// Creates two connected ends.
    pub fn pair(self, executor: &Executor) -> (End, End) {
        if self == Kind::Sockets {
            let (one, two) = UnixStream::pair().expect("make a pair of sockets");
            return (End::socket(one, executor), End::socket(two, executor));
        }
        let bytes_max = if self == Kind::Buffered { BUFFER_BYTES } else { 0 };
        let one = Rc::new(RefCell::new(Half::new(bytes_max)));
        let two = Rc::new(RefCell::new(Half::new(bytes_max)));
        let other = End::Memory { read: Rc::clone(&two), write: Rc::clone(&one) };
        (End::Memory { read: one, write: two }, other)
    }
}

/// One end of a pipe.
pub enum End {
    Memory { read: Rc<RefCell<Half>>, write: Rc<RefCell<Half>> },
    Socket { stream: UnixStream, token: usize, sockets: Rc<Sockets> },
}

/// One direction in memory. Without capacity it is a rendezvous: one write at a time, which is done
/// when it was read.
pub struct Half {
    bytes: VecDeque<u8>,
    bytes_max: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Half {
    fn new(bytes_max: usize) -> Half {
        Half { bytes: VecDeque::with_capacity(BUFFER_BYTES), bytes_max, reader: None, writer: None }
    }

    fn poll_read(&mut self, into: &mut [u8], context: &Context<'_>) -> Poll<usize> {
        if self.bytes.is_empty() {
            remember(&mut self.reader, context);
            return Poll::Pending;
        }
        let full = self.bytes.len() >= self.bytes_max;
        let n = self.bytes.read(into).expect("memory is readable");
        if self.bytes.is_empty() {
            // Back to the start, so that the next bytes are contiguous.
            self.bytes.clear();
        }
        // A rendezvous ends when all bytes were read, not before.
        if full
            && (self.bytes_max > 0 || self.bytes.is_empty())
            && let Some(waker) = &self.writer
        {
            waker.wake_by_ref();
        }
        Poll::Ready(n)
    }

    /// Writes as much as there is room for; `begun` is whether a part of this write is already in.
    fn poll_write(&mut self, from: &[u8], begun: bool, context: &Context<'_>) -> Poll<usize> {
        let rendezvous = self.bytes_max == 0;
        let room = if rendezvous && !begun && self.bytes.is_empty() {
            from.len()
        } else {
            self.bytes_max.saturating_sub(self.bytes.len())
        };
        let n = room.min(from.len());
        if n > 0 {
            self.bytes.extend(&from[..n]);
            if let Some(waker) = &self.reader {
                waker.wake_by_ref();
            }
        }
        if rendezvous && begun && self.bytes.is_empty() {
            return Poll::Ready(0);
        }
        if rendezvous || n < from.len() {
            remember(&mut self.writer, context);
        }
        if n > 0 { Poll::Ready(n) } else { Poll::Pending }
    }

    fn is_rendezvous(&self) -> bool {
        self.bytes_max == 0
    }
}

fn remember(place: &mut Option<Waker>, context: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(context.waker()),
        none => *none = Some(context.waker().clone()),
    }
}

impl End {
    fn socket(mut stream: UnixStream, executor: &Executor) -> End {
        let sockets = executor.sockets();
        let token = sockets.watch(&mut stream);
        End::Socket { stream, token, sockets }
    }

    /// Reads available bytes, or waits for some.
    pub fn poll_read(&self, into: &mut [u8], context: &Context<'_>) -> Poll<usize> {
        match self {
            End::Memory { read, .. } => read.borrow_mut().poll_read(into, context),
            End::Socket { stream, token, sockets } => match (&mut &*stream).read(into) {
                Ok(n) => Poll::Ready(n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    sockets.wait(*token, Edge::Readable, context);
                    Poll::Pending
                }
                Err(error) => panic!("read a socket: {error}"),
            },
        }
    }

    pub async fn read(&self, into: &mut [u8]) -> usize {
        poll_fn(|context| self.poll_read(into, context)).await
    }

    pub async fn read_exact(&self, into: &mut [u8]) {
        let mut filled = 0;
        while filled < into.len() {
            filled += self.read(&mut into[filled..]).await;
        }
    }

    /// Writes all bytes. Over a rendezvous it returns after they were read.
    pub async fn write_all(&self, from: &[u8]) {
        let mut written = 0;
        poll_fn(|context| match self {
            End::Memory { write, .. } => {
                let mut half = write.borrow_mut();
                loop {
                    let begun = written > 0;
                    match half.poll_write(&from[written..], begun, context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(n) => written += n,
                    }
                    if written == from.len() && (begun || !half.is_rendezvous()) {
                        return Poll::Ready(());
                    }
                }
            }
            End::Socket { stream, token, sockets } => {
                while written < from.len() {
                    match (&mut &*stream).write(&from[written..]) {
                        Ok(n) => written += n,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            sockets.wait(*token, Edge::Writable, context);
                            return Poll::Pending;
                        }
                        Err(error) => panic!("write to a socket: {error}"),
                    }
                }
                Poll::Ready(())
            }
        })
        .await;
    }
}
