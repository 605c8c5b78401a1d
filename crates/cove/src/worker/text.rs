//! Output of commands for the model: bounded, without escape sequences, UTF-8.

/// Line before output whose beginning is omitted.
const TRUNCATED: &str = "[output truncated]\n";
/// Bytes beyond the limit that may accumulate before they are dropped, so that not every piece
/// moves the kept bytes.
const SLACK_BYTES: usize = 64 << 10;
/// Longest status after a mark, in bytes.
const STATUS_BYTES_MAX: usize = 16;

/// Tail of a byte stream.
#[derive(Debug)]
pub(super) struct TailBuffer {
    bytes: Vec<u8>,
    max: usize,
    is_cut: bool,
    /// Position up to which there is no mark.
    searched: usize,
}

impl TailBuffer {
    /// Returns a buffer that keeps the last `max` bytes.
    pub(super) fn new(max: usize) -> TailBuffer {
        TailBuffer { bytes: Vec::new(), max, is_cut: false, searched: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > self.max + SLACK_BYTES {
            let excess = self.bytes.len() - self.max;
            self.bytes.drain(..excess);
            self.searched = self.searched.saturating_sub(excess);
            self.is_cut = true;
        }
    }

    /// Returns the text before a mark and the number after it, once both have arrived.
    pub(super) fn split_at_mark(&mut self, mark: &[u8]) -> Option<(String, i32)> {
        let fresh = self.bytes.get(self.searched..)?;
        let Some(at) = fresh.windows(mark.len()).position(|window| window == mark) else {
            // The mark may have arrived in part.
            self.searched = self.bytes.len().saturating_sub(mark.len());
            return None;
        };
        let at = self.searched + at;
        let behind = self.bytes.get(at + mark.len()..)?;
        let Some(end) = behind.iter().position(|byte| *byte == b'\n') else {
            self.searched = at;
            // Too long for a status: this mark is not the shell's.
            let is_foreign = behind.len() > STATUS_BYTES_MAX;
            return is_foreign.then(|| (self.cut_text(at), -1));
        };
        let status = std::str::from_utf8(behind.get(..end)?).ok();
        let status = status.and_then(|text| text.trim().parse().ok()).unwrap_or(-1);
        Some((self.cut_text(at), status))
    }

    /// Returns all kept bytes as text.
    pub(super) fn text(&self) -> String {
        self.cut_text(self.bytes.len())
    }

    fn cut_text(&self, end: usize) -> String {
        let start = end.saturating_sub(self.max);
        let kept = self.bytes.get(start..end).unwrap_or_default();
        let text = clean(kept);
        let text = text.trim_end_matches('\n');
        match self.is_cut || start > 0 {
            true => format!("{TRUNCATED}{text}"),
            false => text.to_owned(),
        }
    }
}

/// Returns bytes as text without escape sequences (ECMA-48 §5.4) and NUL characters.
pub(super) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(at) = rest.find(['\u{1b}', '\0']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let length = sequence_length(from).unwrap_or(1);
        rest = from.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// Returns the length in bytes of the control sequence at the beginning of a text.
fn sequence_length(text: &str) -> Option<usize> {
    let body = text.strip_prefix("\u{1b}[")?;
    let parameters = body.bytes().take_while(|byte| (0x30..=0x3f).contains(byte)).count();
    let middle = body.bytes().skip(parameters).take_while(|byte| (0x20..=0x2f).contains(byte));
    let end = parameters + middle.count();
    let is_final = body.as_bytes().get(end).is_some_and(|byte| (0x40..=0x7e).contains(byte));
    is_final.then_some(2 + end + 1)
}

/// Returns the first `max` bytes of a text, up to a character boundary.
pub(super) fn head(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_over_the_borders_of_pieces() {
        let text = b"one\ntwo\n\nMARK42\nlater";
        for size in 1..=text.len() {
            let mut tail = TailBuffer::new(100);
            let mut found = None;
            for piece in text.chunks(size) {
                tail.push(piece);
                found = found.or_else(|| tail.split_at_mark(b"MARK"));
            }
            assert_eq!(found, Some(("one\ntwo".to_owned(), 42)), "in pieces of {size}");
        }
    }

    #[test]
    fn the_end_of_long_output_is_kept() {
        let mut tail = TailBuffer::new(10);
        for _ in 0..100_000 {
            tail.push(b"0123456789");
            assert_eq!(tail.split_at_mark(b"MARK"), None);
        }
        tail.push(b"abc\nMARK0\n");
        let (text, status) = tail.split_at_mark(b"MARK").unwrap();
        assert_eq!((text.as_str(), status), ("[output truncated]\n456789abc", 0));
        assert!(tail.bytes.len() <= 10 + SLACK_BYTES + 10);
    }

    #[test]
    fn a_mark_without_a_status_is_not_waited_for() {
        let mut tail = TailBuffer::new(100);
        tail.push(b"xMARK and then a lot of other text");
        assert_eq!(tail.split_at_mark(b"MARK"), Some(("x".to_owned(), -1)));
    }

    #[test]
    fn escape_sequences_and_nul_are_left_out() {
        for (bytes, expected) in [
            (&b"\x1b[1;31mred\x1b[0m"[..], "red"),
            (b"a\x1b[?25lb\x1b[2 qc", "abc"),
            (b"a\0b", "ab"),
            (b"\xff\x1b[", "\u{fffd}["),
            (b"\x1b", ""),
            ("\u{1b}[é".as_bytes(), "[é"),
        ] {
            assert_eq!(clean(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_head_ends_with_a_whole_character() {
        assert_eq!((head("aé", 2), head("aé", 3), head("a", 9)), ("a", "aé", "a"));
    }
}
