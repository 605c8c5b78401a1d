//! Statements without the values in them, for records that must not hold data.
//!
//! It errs on the side of hiding: whatever may be a value becomes `?`, comments are left out, and
//! of what cannot be read to its end the rest is hidden. The result is for people and for
//! grouping; nobody runs it.

/// How a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL's: `"x"` is a name, `$tag$ … $tag$` a string.
    Postgres,
    /// MySQL's: `"x"` is a string, `` `x` `` a name, and `#` begins a comment.
    Mysql,
}

/// What stands for a value.
const HIDDEN: u8 = b'?';

/// Writes `text` into `out` without its values, at most `bytes_max` bytes of it.
pub fn mask(dialect: Dialect, text: &[u8], bytes_max: usize, out: &mut Vec<u8>) {
    let begun = out.len();
    let mut masker = Masker { dialect, rest: text, out, begun };
    while !masker.rest.is_empty() && masker.out.len() - begun < bytes_max {
        masker.token();
    }
    let end = begun + bytes_max.min(masker.out.len() - begun);
    out.truncate(end);
    while out.len() > begun && out.last() == Some(&b' ') {
        out.pop();
    }
}

struct Masker<'a, 'o> {
    dialect: Dialect,
    rest: &'a [u8],
    out: &'o mut Vec<u8>,
    begun: usize,
}

impl Masker<'_, '_> {
    /// Takes one token.
    fn token(&mut self) {
        let byte = self.rest.first().copied().unwrap_or_default();
        let next = self.rest.get(1).copied().unwrap_or_default();
        match (byte, next) {
            (b'-', b'-') => self.comment_line(),
            (b'#', _) if self.dialect == Dialect::Mysql => self.comment_line(),
            (b'/', b'*') => self.comment_block(),
            (b'\'', _) => self.string(b'\''),
            (b'"', _) if self.dialect == Dialect::Mysql => self.string(b'"'),
            (b'"', _) => self.name(b'"'),
            (b'`', _) => self.name(b'`'),
            (b'$', _) if self.dialect == Dialect::Postgres => self.dollar(),
            (b'0'..=b'9', _) => self.number(),
            (b'.', b'0'..=b'9') if !self.follows_word() => self.number(),
            (b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C, _) => {
                self.skip(1);
                self.space();
            }
            _ if is_word(byte) => self.word(),
            _ => {
                self.out.push(byte);
                self.skip(1);
            }
        }
    }

    fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    /// One space, however many there were.
    fn space(&mut self) {
        if self.out.len() > self.begun && self.out.last() != Some(&b' ') {
            self.out.push(b' ');
        }
    }

    fn follows_word(&self) -> bool {
        self.out.len() > self.begun
            && self.out.last().is_some_and(|it| is_word(*it) || matches!(it, b'"' | b'`' | b')'))
    }

    fn hide(&mut self) {
        self.out.push(HIDDEN);
    }

    fn comment_line(&mut self) {
        let end = self.rest.iter().position(|it| *it == b'\n');
        self.skip(end.unwrap_or(self.rest.len()));
    }

    /// A comment, which PostgreSQL nests. What MySQL executes in one (`/*! … */`) is hidden, too.
    fn comment_block(&mut self) {
        let mut depth = 0u32;
        while let Some(byte) = self.rest.first() {
            match (byte, self.rest.get(1)) {
                (b'/', Some(b'*')) if depth == 0 || self.dialect == Dialect::Postgres => {
                    depth += 1;
                    self.skip(2);
                }
                (b'*', Some(b'/')) => {
                    depth -= 1;
                    self.skip(2);
                    if depth == 0 {
                        break;
                    }
                }
                _ => self.skip(1),
            }
        }
        self.space();
    }

    /// A string up to its quote. Whether a backslash hides a quote depends on settings that are not
    /// known here: where both readings end apart, everything is hidden up to the later end.
    fn string(&mut self, quote: u8) {
        self.hide();
        let plain = end_of(self.rest, quote, false);
        let escaped = end_of(self.rest, quote, true);
        match (plain, escaped) {
            (Some(plain), Some(escaped)) => self.skip(plain.max(escaped)),
            _ => self.skip(self.rest.len()),
        }
    }

    /// A quoted name, which is shown as it is.
    fn name(&mut self, quote: u8) {
        match end_of(self.rest, quote, false) {
            Some(end) => {
                self.out.extend_from_slice(self.rest.get(..end).unwrap_or_default());
                self.skip(end);
            }
            None => {
                self.hide();
                self.skip(self.rest.len());
            }
        }
    }

    /// A parameter (`$1`), or a string between two tags.
    fn dollar(&mut self) {
        let tag = self.rest.iter().skip(1).position(|it| !is_word(*it) || *it == b'$');
        let tag = tag.map_or(self.rest.len(), |at| at + 1);
        if self.rest.get(tag) != Some(&b'$') {
            self.out.extend_from_slice(self.rest.get(..tag).unwrap_or_default());
            return self.skip(tag);
        }
        let whole = self.rest;
        let (mark, body) = whole.split_at(tag + 1);
        self.hide();
        let end = body.windows(mark.len()).position(|it| it == mark);
        self.skip(end.map_or(whole.len(), |at| mark.len() + at + mark.len()));
    }

    /// A number, with whatever is stuck to it.
    fn number(&mut self) {
        self.hide();
        let mut last = 0;
        let end = self.rest.iter().position(|&it| {
            let is_sign = matches!(it, b'+' | b'-') && matches!(last, b'e' | b'E');
            last = it;
            !(is_word(it) || it == b'.' || is_sign)
        });
        self.skip(end.unwrap_or(self.rest.len()));
    }

    /// A word. One that is stuck to a quote says how the string is written, and goes with it.
    fn word(&mut self) {
        let end = self.rest.iter().position(|it| !is_word(*it)).unwrap_or(self.rest.len());
        let is_prefix = end <= 8 && self.rest.get(end) == Some(&b'\'');
        if !is_prefix {
            self.out.extend_from_slice(self.rest.get(..end).unwrap_or_default());
        }
        self.skip(end);
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'@' | 0x80..)
}

/// Bytes of what begins with `quote`, up to the one that ends it.
fn end_of(text: &[u8], quote: u8, escapes: bool) -> Option<usize> {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        if byte == b'\\' && escapes {
            at += 2;
        } else if byte != quote {
            at += 1;
        } else if text.get(at + 1) == Some(&quote) {
            at += 2;
        } else {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(dialect: Dialect, text: &str) -> String {
        let mut out = Vec::new();
        mask(dialect, text.as_bytes(), 4096, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn values_are_hidden_and_names_are_not() {
        use Dialect::{Mysql, Postgres};
        for (dialect, text, expected) in [
            (Postgres, "SELECT 1", "SELECT ?"),
            (Postgres, "SELECT  a.b,\n t1.x FROM t1 -- secret", "SELECT a.b, t1.x FROM t1"),
            (Postgres, "SELECT 'it''s', E'a\\'b', x", "SELECT ?, ?, x"),
            (
                Postgres,
                "SELECT \"Na me\", $1, $tag$ a $ b $tag$, $$x$$",
                "SELECT \"Na me\", $1, ?, ?",
            ),
            (Postgres, "/* a /* b */ secret */ SELECT 1.5e-3 + .5 - 0x1F", "SELECT ? + ? - ?"),
            (Postgres, "SELECT U&'x', b'01', X'ff', n'y'", "SELECT U&?, ?, ?, ?"),
            (Postgres, "SELECT 'open", "SELECT ?"),
            (Postgres, "SELECT $q$ open", "SELECT ?"),
            (Postgres, "SELECT \"open", "SELECT ?"),
            (Mysql, "SELECT \"secret\", `na``me` # secret\n, 2", "SELECT ?, `na``me` , ?"),
            (Mysql, "SELECT 'a\\'b', @v, _utf8'x'", "SELECT ?, @v, ?"),
            (Mysql, "/*!50000 secret */ SELECT 1", "SELECT ?"),
            // With and without escapes the string ends elsewhere: the later end holds.
            (Postgres, "SELECT 'a\\' , 'secret'", "SELECT ?secret?"),
        ] {
            let found = masked(dialect, text);
            if expected == "SELECT ?secret?" {
                assert!(!found.contains("secret"), "{found}");
            } else {
                assert_eq!(found, expected, "{text}");
            }
        }
    }

    #[test]
    fn no_more_is_written_than_there_is_room_for() {
        let mut out = b"before ".to_vec();
        mask(Dialect::Postgres, "a, ".repeat(1000).as_bytes(), 10, &mut out);
        assert_eq!(out, b"before a, a, a, a");
    }

    proptest! {
        #[test]
        fn a_secret_in_quotes_is_never_shown(
            // No quotes and no dollars: they may put the secret into a name, and then it is one.
            before in "[a-z (),=0-9.]{0,20}",
            after in "[ -~]{0,20}",
            is_mysql in any::<bool>(),
        ) {
            let dialect = if is_mysql { Dialect::Mysql } else { Dialect::Postgres };
            let found = masked(dialect, &format!("{before} 'SECRET' {after}"));
            prop_assert!(!found.contains("SECRET"), "{found}");
        }

        #[test]
        fn any_bytes_are_masked_within_bounds(
            text in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            for dialect in [Dialect::Postgres, Dialect::Mysql] {
                let mut out = Vec::new();
                mask(dialect, &text, 100, &mut out);
                prop_assert!(out.len() <= 100);
            }
        }
    }
}
