//! Messages out of a stream of bytes that comes in pieces.

/// Cuts a stream into messages with heads of `HEAD` bytes, and keeps as much of each body as
/// somebody wants to see at once.
#[derive(Debug)]
pub(super) struct FrameSplitter<const HEAD: usize> {
    head: [u8; HEAD],
    have: usize,
    /// Bytes of the body that are yet to come.
    left: usize,
    /// Bytes of it that are yet to be kept.
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

/// Takes messages.
pub(super) trait FrameHandler<const HEAD: usize> {
    /// Bytes of the body behind a head; none for one that cannot be.
    fn body_len(head: &[u8; HEAD]) -> Option<usize>;

    /// A message with so long a body begins, with this byte if there is one. Says how many bytes
    /// of the body have to be seen at once; none if it must not come.
    fn begins(&mut self, head: &[u8; HEAD], len: usize, first: Option<u8>) -> Option<usize>;

    /// More of the body than that, in pieces.
    fn goes_on(&mut self, head: &[u8; HEAD], kept: &[u8], more: &[u8]);

    /// Handles the end of a frame. Returns whether others may come.
    fn ends(&mut self, frame: ObservedFrame<'_, HEAD>) -> bool;
}

/// A message, with the beginning of its body.
#[derive(Debug)]
pub(super) struct ObservedFrame<'a, const HEAD: usize> {
    pub(super) head: [u8; HEAD],
    /// Bytes of the whole body.
    pub(super) len: usize,
    /// The beginning of it.
    pub(super) body: &'a [u8],
}

/// Place at which a forbidden stream was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamStop {
    /// So many of the input's bytes belong to the previous message.
    pub(super) taken: usize,
    /// True if that is a whole message, so that another one can follow.
    pub(super) is_between: bool,
}

impl<const HEAD: usize> FrameSplitter<HEAD> {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// A message was refused, or the stream turned out to be none.
    pub(super) fn feed<T: FrameHandler<HEAD>>(
        &mut self,
        mut bytes: &[u8],
        taker: &mut T,
    ) -> Result<(), StreamStop> {
        let all = bytes.len();
        loop {
            // Where the message began, if its head was not given before.
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
            // Most messages come whole: then nothing is copied.
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
