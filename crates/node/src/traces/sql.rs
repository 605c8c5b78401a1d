//! Trace contexts in comments of SQL, in sqlcommenter's format.
//!
//! The comment is at the end of a statement, and contains pairs with quoted values:
//! `SELECT 1 /*action='x',traceparent='00-…-01'*/`. Libraries add it automatically.
//!
//! # References
//! - <https://google.github.io/sqlcommenter/spec/>

use super::TraceContext;

/// Number of bytes at the end of a statement that are searched for a comment: for a `tracestate` of
/// the maximum length, and some more pairs.
const TAIL_BYTES_MAX: usize = 1024;

/// Name of the pair, with the text after it.
const PAIR: &[u8] = b"traceparent='";

/// The end of a statement that is read in parts.
#[derive(Clone, Debug, Default)]
pub struct CommentTail(Vec<u8>);

impl CommentTail {
    /// Begins a new statement.
    pub fn begin(&mut self) {
        self.0.clear();
    }

    /// Adds a part of the statement.
    pub fn feed(&mut self, bytes: &[u8]) {
        let fresh = bytes.get(bytes.len().saturating_sub(TAIL_BYTES_MAX)..).unwrap_or_default();
        let excess = (self.0.len() + fresh.len()).saturating_sub(TAIL_BYTES_MAX);
        self.0.drain(..excess.min(self.0.len()));
        self.0.extend_from_slice(fresh);
    }

    /// Returns the context in the comment at the end of the statement.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        traceparent_of_comment(&self.0)
    }
}

/// Returns the context in the comment at the end of a statement; none if there is no comment or no
/// well-formed context.
///
/// It need not detect literals: the content of a literal belongs to the author of the statement, as
/// a comment does.
fn traceparent_of_comment(statement: &[u8]) -> Option<TraceContext> {
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || *byte == b';' || *byte == 0;
    let end = statement.iter().rposition(|byte| !is_end(byte))?;
    let inside = statement.get(..=end)?.strip_suffix(b"*/")?;
    let begin = inside.windows(2).rposition(|it| it == b"/*")? + 2;
    let inside = inside.get(begin..)?;
    let places = inside.windows(PAIR.len()).enumerate().filter(|(_, it)| *it == PAIR);
    // After a comma or at the beginning; otherwise it is the end of another name.
    let mut places = places.map(|(place, _)| place).filter(|place| {
        let before = place.checked_sub(1).and_then(|it| inside.get(it));
        before.is_none_or(|byte| *byte == b',' || byte.is_ascii_whitespace())
    });
    let value = inside.get(places.next()? + PAIR.len()..)?;
    let value = value.split(|byte| *byte == b'\'').next()?;
    TraceContext::parse(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_is_found_in_the_last_comment() {
        let check = |statement: &str, is_found: bool| {
            let statement = statement.replace('@', PARENT);
            let found = traceparent_of_comment(statement.as_bytes());
            assert_eq!(found.map(|it| it.traceparent()), is_found.then(|| PARENT.to_owned()));
            // In parts of any length.
            for length in [1, 7, 64] {
                let mut comment = CommentTail::default();
                comment.feed(b"/*traceparent='from another statement'*/");
                comment.begin();
                statement.as_bytes().chunks(length).for_each(|part| comment.feed(part));
                assert_eq!(comment.context().is_some(), is_found, "{statement}");
            }
        };
        check("SELECT 1 /*traceparent='@'*/", true);
        check("SELECT 1 /*traceparent='@'*/;", true);
        check("SELECT 1/*a='b',traceparent='@',tracestate='x%3D1'*/ \n", true);
        check("SELECT 1 /* traceparent='@' */", true);
        check(&format!("SELECT '{}' /*traceparent='@'*/", "x".repeat(100_000)), true);
        for none in [
            "",
            "*/",
            "/*",
            "SELECT 1",
            "SELECT 1 /*a='b'*/",
            "/*traceparent='@'*/ SELECT 1",
            "SELECT 1 /*xtraceparent='@'*/",
            "SELECT 1 /*traceparent='@",
            "SELECT 1 /*traceparent='@0'*/",
            "SELECT 1 /*traceparent=@*/",
            "SELECT 1 /*traceparent='00-x'*/",
            "SELECT 1 -- traceparent='@'",
        ] {
            check(none, false);
        }
        // The beginning of a longer comment is not stored.
        let mut comment = CommentTail::default();
        let long =
            format!("SELECT 1 /*traceparent='{PARENT}',a='{}'*/", "x".repeat(TAIL_BYTES_MAX));
        comment.feed(long.as_bytes());
        assert_eq!(comment.context(), None);
    }
}
