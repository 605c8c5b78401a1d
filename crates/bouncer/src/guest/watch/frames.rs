//! Messages out of a stream of bytes that comes in pieces.

/// Cuts a stream into messages with heads of `HEAD` bytes, and keeps as much of each body as
/// somebody wants to see.
#[derive(Debug)]
pub(super) struct Frames<const HEAD: usize> {
    head: [u8; HEAD],
    have: usize,
    /// Bytes of the body that are yet to come.
    left: usize,
    /// Bytes of it that are yet to be kept.
    keep: usize,
    kept: Vec<u8>,
    is_keep_known: bool,
}

impl<const HEAD: usize> Default for Frames<HEAD> {
    fn default() -> Self {
        Frames {
            head: [0; HEAD],
            have: 0,
            left: 0,
            keep: 0,
            kept: Vec::new(),
            is_keep_known: false,
        }
    }
}

/// How a protocol's heads are read.
pub(super) trait Heads<const HEAD: usize> {
    /// Bytes of the body behind a head; none for one that cannot be.
    fn body_len(head: &[u8; HEAD]) -> Option<usize>;
}

/// A message, with the beginning of its body.
#[derive(Debug)]
pub(super) struct Frame<'a, const HEAD: usize> {
    pub(super) head: [u8; HEAD],
    /// Bytes of the whole body.
    pub(super) len: usize,
    /// The beginning of it.
    pub(super) body: &'a [u8],
}

impl<const HEAD: usize> Frames<HEAD> {
    /// Takes the next bytes. `keep` says of a head, and of the first byte behind it if there is
    /// one, how many bytes of the body `on` wants to see.
    ///
    /// # Errors
    /// How many bytes were taken when `on` refused a message, or when the stream turned out to be
    /// none.
    pub(super) fn feed<H: Heads<HEAD>, E>(
        &mut self,
        mut bytes: &[u8],
        state: &mut E,
        keep: impl Fn(&E, &[u8; HEAD], Option<u8>) -> usize,
        mut on: impl FnMut(&mut E, Frame<'_, HEAD>) -> bool,
    ) -> Result<(), usize> {
        let all = bytes.len();
        loop {
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
                let Some(len) = H::body_len(&self.head) else { return Err(all - bytes.len()) };
                self.left = len;
                self.is_keep_known = false;
                self.kept.clear();
            }
            if self.left > 0 && !self.is_keep_known {
                let Some(first) = bytes.first() else { return Ok(()) };
                self.keep = keep(state, &self.head, Some(*first));
                self.is_keep_known = true;
            }
            let taken = bytes.len().min(self.left);
            let (now, later) = bytes.split_at(taken);
            let kept = taken.min(self.keep);
            self.left -= taken;
            bytes = later;
            if self.left > 0 {
                self.kept.extend_from_slice(now.get(..kept).unwrap_or_default());
                self.keep -= kept;
                return Ok(());
            }
            self.have = 0;
            let len = H::body_len(&self.head).unwrap_or_default();
            // Most messages come whole: then nothing is copied.
            let head = self.head;
            let body = if self.kept.is_empty() {
                now.get(..kept).unwrap_or_default()
            } else {
                self.kept.extend_from_slice(now.get(..kept).unwrap_or_default());
                &self.kept
            };
            if !on(state, Frame { head, len, body }) {
                return Err(all - bytes.len());
            }
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }
}
