//! Splitting of a byte stream into messages.

/// Splits a stream into messages with headers of `HEAD` bytes, and keeps as much of each body as
/// its handler needs at once.
#[derive(Debug)]
pub(super) struct FrameSplitter<const HEAD: usize> {
    head: [u8; HEAD],
    have: usize,
    /// Bytes of the body that have not arrived yet.
    left: usize,
    /// Bytes of the body that have yet to be kept.
    keep: usize,
    kept: Vec<u8>,
    is_begun: bool,
}

impl<const HEAD: usize> Default for FrameSplitter<HEAD> {
    fn default() -> Self {
        FrameSplitter {
            head: [0; HEAD],
            have: 0,
            left: 0,
            keep: 0,
            kept: Vec::new(),
            is_begun: false,
        }
    }
}

/// Handles messages.
pub(super) trait FrameHandler<const HEAD: usize> {
    /// Returns the length of the body after a header; `None` for an invalid header.
    fn body_len(head: &[u8; HEAD]) -> Option<usize>;

    /// Handles the beginning of a message with a body of `len` bytes, whose first byte is `first`.
    /// Returns how many bytes of the body it needs at once; `None` to refuse the message.
    fn begins(&mut self, head: &[u8; HEAD], len: usize, first: Option<u8>) -> Option<usize>;

    /// Handles the part of the body beyond those bytes, in pieces.
    fn goes_on(&mut self, head: &[u8; HEAD], kept: &[u8], more: &[u8]);

    /// Handles the end of a message. Returns whether more messages may follow.
    fn ends(&mut self, frame: ObservedFrame<'_, HEAD>) -> bool;
}

/// A message, with the beginning of its body.
#[derive(Debug)]
pub(super) struct ObservedFrame<'a, const HEAD: usize> {
    pub(super) head: [u8; HEAD],
    /// Bytes of the whole body.
    pub(super) len: usize,
    /// The kept beginning of it.
    pub(super) body: &'a [u8],
}

/// Position at which a refused stream was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamStop {
    /// Number of the input's bytes that belong to earlier messages.
    pub(super) taken: usize,
    /// True if the cut is at the end of a message, so that another one can follow.
    pub(super) is_between: bool,
}

impl<const HEAD: usize> FrameSplitter<HEAD> {
    /// Processes the next bytes.
    ///
    /// # Errors
    /// If a message was refused, or the stream is invalid.
    pub(super) fn feed<T: FrameHandler<HEAD>>(
        &mut self,
        mut bytes: &[u8],
        taker: &mut T,
    ) -> Result<(), StreamStop> {
        let all = bytes.len();
        loop {
            // Start of the message, if its header is in this input.
            let start = (self.have == 0).then(|| all - bytes.len());
            let refused = StreamStop { taken: start.unwrap_or(0), is_between: start.is_some() };
            if self.have < HEAD {
                let taken = bytes.len().min(HEAD - self.have);
                let (now, later) = bytes.split_at(taken);
                if let Some(room) = self.head.get_mut(self.have..self.have + taken) {
                    room.copy_from_slice(now);
                }
                self.have += taken;
                bytes = later;
                if self.have < HEAD {
                    return Ok(());
                }
                self.left = T::body_len(&self.head).ok_or(refused)?;
                self.is_begun = false;
                self.kept.clear();
            }
            if !self.is_begun {
                if self.left > 0 && bytes.is_empty() {
                    return Ok(());
                }
                let first = bytes.first().copied().filter(|_| self.left > 0);
                self.keep = taker.begins(&self.head, self.left, first).ok_or(refused)?;
                self.is_begun = true;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.left));
            let (seen, more) = now.split_at(now.len().min(self.keep));
            self.left -= now.len();
            bytes = later;
            // Most messages arrive whole: then nothing is copied.
            let is_whole = self.kept.is_empty() && self.left == 0;
            if !is_whole {
                self.kept.extend_from_slice(seen);
            }
            let body = if is_whole { seen } else { &self.kept };
            if !more.is_empty() {
                taker.goes_on(&self.head, body, more);
            }
            self.keep -= seen.len();
            if self.left > 0 {
                return Ok(());
            }
            self.have = 0;
            let len = T::body_len(&self.head).unwrap_or_default();
            if !taker.ends(ObservedFrame { head: self.head, len, body }) {
                return Err(StreamStop { taken: all - bytes.len(), is_between: true });
            }
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }
}
