//! Statements with their values masked, for records that must not contain data.
//!
//! It errs on the side of hiding: anything that may be a value becomes `?`, and comments are left
//! out, except for those that MySQL and MariaDB execute. Where values cannot be identified, the
//! rest is hidden. A text that is cut ends with `…`, so that the cut is visible. The result is for
//! people and for grouping, not for execution.

/// Dialect in which a text is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlDialect {
    /// PostgreSQL's: `"x"` is a name, `$tag$ … $tag$` a string.
    Postgres,
    /// MySQL's: `"x"` is a string, `` `x` `` a name, `#` begins a comment, and what is in
    /// `/*! … */` is executed.
    Mysql,
}

/// End mark of a text that was cut.
pub const CUT: &str = "…";

/// Placeholder of a value.
const HIDDEN: u8 = b'?';
/// Maximum bytes of a dollar quote's tag; a longer one is not tracked.
const TAG_BYTES_MAX: usize = 256;

/// Writes `text` into `out` without its values, at most `bytes_max` bytes of it.
pub fn mask(dialect: SqlDialect, text: &[u8], bytes_max: usize, out: &mut Vec<u8>) {
    let mut masker = TextMasker::new(dialect, bytes_max);
    masker.feed(text);
    out.extend_from_slice(masker.finish());
}

/// Processes a text in pieces, so that texts of any length can be masked. It holds no more bytes
/// than its output.
#[derive(Debug)]
pub struct TextMasker {
    dialect: SqlDialect,
    bytes_max: usize,
    out: Vec<u8>,
    place: MaskPosition,
    /// The tag of a dollar quote, with both dollars.
    tag: Vec<u8>,
    /// Nesting depth of executed comments.
    executed: u32,
    /// The previous byte, inside an executed comment that may end.
    before: u8,
}

/// Position of the next byte in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MaskPosition {
    Between,
    /// In a word, which is output from `begun` on.
    Word {
        begun: usize,
    },
    /// In a number, or a word that begins with a digit.
    Number {
        last: u8,
    },
    /// After a point that is not part of a name.
    Point,
    /// After a dollar sign.
    Dollar {
        begun: usize,
    },
    /// In the number of a parameter.
    Parameter,
    /// Between the dollars of a tag.
    Tag {
        begun: usize,
    },
    /// In a dollar quote, of whose closing tag `matched` bytes have matched.
    Dollars {
        matched: usize,
    },
    /// In a quoted name.
    Name {
        quote: u8,
        begun: usize,
        is_at_quote: bool,
    },
    /// In a string, with the state of both readings.
    String {
        quote: u8,
        plain: StringReading,
        escaped: StringReading,
    },
    /// After `-`, or after `--` where that does not yet begin a comment.
    Dash,
    Dashes,
    /// In a comment up to the line's end.
    Line,
    Slash,
    /// In a comment of this nesting depth, possibly right after its beginning (`/*`, `/*M`).
    Block {
        depth: u32,
        before: u8,
        is_begun: bool,
    },
    BlockM,
    /// In the version number after `/*!`.
    Version {
        begun: usize,
    },
    /// After a `*`.
    Star,
    /// End: nothing more is output.
    Over,
}

/// Progress of one reading of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringReading {
    In,
    /// After a backslash, which changes the meaning of the next byte.
    Escape,
    /// After a quote: a second one would make both part of the string.
    Quote,
    Ended,
}

impl StringReading {
    fn step(self, byte: u8, quote: u8, escapes: bool) -> StringReading {
        match self {
            StringReading::In if byte == b'\\' && escapes => StringReading::Escape,
            StringReading::In if byte == quote => StringReading::Quote,
            StringReading::In | StringReading::Escape => StringReading::In,
            StringReading::Quote if byte == quote => StringReading::In,
            StringReading::Quote | StringReading::Ended => StringReading::Ended,
        }
    }
}

impl TextMasker {
    /// Creates a masker with at most `bytes_max` bytes of output.
    #[must_use]
    pub fn new(dialect: SqlDialect, bytes_max: usize) -> TextMasker {
        TextMasker {
            dialect,
            bytes_max,
            out: Vec::new(),
            place: MaskPosition::Between,
            tag: Vec::new(),
            executed: 0,
            before: 0,
        }
    }

    /// Starts another text.
    pub fn clear(&mut self) {
        self.out.clear();
        self.place = MaskPosition::Between;
        (self.executed, self.before) = (0, 0);
    }

    /// Processes the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        loop {
            bytes = bytes.get(self.run(bytes)..).unwrap_or_default();
            self.end_when_full();
            let Some((&byte, rest)) = bytes.split_first() else { return };
            // A byte that ends a token is processed once more, as the beginning of the next.
            while !self.took(byte) {}
            self.end_when_full();
            bytes = rest;
        }
    }

    /// Ends the output at the first byte that does not fit. Checked after each step: a word that
    /// grew too long must not be removed by a following quote.
    fn end_when_full(&mut self) {
        if self.out.len() > self.bytes_max {
            self.place = MaskPosition::Over;
        }
    }

    /// Ends a text of which more follows that is not read.
    pub fn break_off(&mut self) {
        self.place = MaskPosition::Over;
    }

    /// Returns the masked text.
    pub fn finish(&mut self) -> &[u8] {
        match self.place {
            // It was not a complete name.
            MaskPosition::Name { begun, is_at_quote: false, .. } | MaskPosition::Tag { begun } => {
                self.out.truncate(begun);
                self.out.push(HIDDEN);
            }
            MaskPosition::Dash => self.out.push(b'-'),
            MaskPosition::Dashes => {}
            MaskPosition::Slash => self.out.push(b'/'),
            MaskPosition::Star => self.out.push(b'*'),
            MaskPosition::Point => self.out.push(b'.'),
            MaskPosition::Dollar { .. } => self.out.push(b'$'),
            _ => {}
        }
        if self.place == MaskPosition::Over || self.out.len() > self.bytes_max {
            self.cut();
        } else {
            while self.out.last() == Some(&b' ') {
                self.out.pop();
            }
        }
        &self.out
    }

    /// Makes room for the end mark, at a character boundary.
    fn cut(&mut self) {
        let room = self.bytes_max.saturating_sub(CUT.len());
        let is_inner = |it: &u8| *it & 0xC0 == 0x80;
        let mut end = self.out.len().min(room);
        while end > 0 && self.out.get(end).is_some_and(is_inner) {
            end -= 1;
        }
        self.out.truncate(end);
        if self.bytes_max >= CUT.len() {
            self.out.extend_from_slice(CUT.as_bytes());
        }
    }

    /// Processes bytes that do not change the state, as most do not.
    fn run(&mut self, bytes: &[u8]) -> usize {
        let is_executed = self.executed > 0;
        let end = match self.place {
            MaskPosition::Word { .. } => {
                // One byte more than fits shows that the word is too long.
                let room = self.bytes_max.saturating_sub(self.out.len()) + 1;
                let bytes = bytes.get(..room).unwrap_or(bytes);
                let end = bytes.iter().position(|it| !self.is_word(*it)).unwrap_or(bytes.len());
                self.out.extend_from_slice(bytes.get(..end).unwrap_or_default());
                Some(end)
            }
            MaskPosition::Over => None,
            MaskPosition::String {
                quote,
                plain: StringReading::In,
                escaped: StringReading::In,
            } if !is_executed => bytes.iter().position(|it| *it == quote || *it == b'\\'),
            MaskPosition::Line if !is_executed => {
                bytes.iter().position(|it| matches!(it, b'\n' | b'\r'))
            }
            MaskPosition::Block { before: 0, is_begun: false, .. } => {
                bytes.iter().position(|it| matches!(it, b'*' | b'/'))
            }
            MaskPosition::Dollars { matched: 0 } => bytes.iter().position(|it| *it == b'$'),
            _ => Some(0),
        };
        end.unwrap_or(bytes.len())
    }

    /// Processes a byte. Returns whether it was consumed, or only ended a token.
    fn took(&mut self, byte: u8) -> bool {
        match self.place {
            MaskPosition::Between => self.between(byte),
            MaskPosition::Word { begun } => return self.word(byte, begun),
            MaskPosition::Number { last } => {
                let is_sign = matches!(byte, b'+' | b'-') && matches!(last, b'e' | b'E');
                if !(self.is_word(byte) || byte == b'.' || is_sign) {
                    return self.go(MaskPosition::Between);
                }
                self.place = MaskPosition::Number { last: byte };
            }
            MaskPosition::Point => {
                let is_number = byte.is_ascii_digit();
                self.out.push(if is_number { HIDDEN } else { b'.' });
                let next = if is_number {
                    MaskPosition::Number { last: 0 }
                } else {
                    MaskPosition::Between
                };
                return self.go(next);
            }
            MaskPosition::Dollar { .. }
            | MaskPosition::Parameter
            | MaskPosition::Tag { .. }
            | MaskPosition::Dollars { .. } => {
                return self.dollar(byte);
            }
            MaskPosition::Name { quote, begun, is_at_quote } => {
                if is_at_quote && byte != quote {
                    return self.go(MaskPosition::Between);
                }
                self.out.push(byte);
                let is_at_quote = byte == quote && !is_at_quote;
                self.place = MaskPosition::Name { quote, begun, is_at_quote };
                self.in_doubt(byte);
            }
            MaskPosition::String { .. } => return self.string(byte),
            MaskPosition::Dash | MaskPosition::Dashes => return self.dash(byte),
            MaskPosition::Line => {
                let is_end = byte == b'\n' || byte == b'\r' && self.dialect == SqlDialect::Postgres;
                if is_end {
                    return self.go(MaskPosition::Between);
                }
                self.in_doubt(byte);
            }
            MaskPosition::Slash if byte == b'*' => {
                self.place = MaskPosition::Block { depth: 1, before: 0, is_begun: true };
            }
            MaskPosition::Slash => return self.was_plain(b'/'),
            MaskPosition::Block { .. } | MaskPosition::BlockM | MaskPosition::Version { .. } => {
                return self.block(byte);
            }
            MaskPosition::Star if byte == b'/' => {
                self.executed -= 1;
                self.out.extend_from_slice(b"*/");
                self.place = MaskPosition::Between;
            }
            MaskPosition::Star => return self.was_plain(b'*'),
            MaskPosition::Over => {}
        }
        true
    }

    /// Changes the position; the byte belongs to the next token.
    fn go(&mut self, place: MaskPosition) -> bool {
        self.place = place;
        false
    }

    fn was_plain(&mut self, byte: u8) -> bool {
        self.out.push(byte);
        self.go(MaskPosition::Between)
    }

    #[inline]
    fn is_word(&self, byte: u8) -> bool {
        let is_special = byte == b'@' && self.dialect == SqlDialect::Mysql;
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..) || is_special
    }

    /// Processes the first byte of a token.
    fn between(&mut self, byte: u8) {
        let begun = self.out.len();
        let is_mysql = self.dialect == SqlDialect::Mysql;
        self.before = 0;
        match byte {
            b'-' => self.place = MaskPosition::Dash,
            b'#' if is_mysql => self.place = MaskPosition::Line,
            b'/' => self.place = MaskPosition::Slash,
            b'*' if self.executed > 0 => self.place = MaskPosition::Star,
            b'\'' => self.begin_string(byte, true, true),
            b'"' if is_mysql => self.begin_string(byte, true, true),
            b'"' => self.begin_name(byte),
            b'`' if is_mysql => self.begin_name(byte),
            b'$' if !is_mysql => self.place = MaskPosition::Dollar { begun },
            b'0'..=b'9' => {
                self.out.push(HIDDEN);
                self.place = MaskPosition::Number { last: byte };
            }
            b'.' if !self.follows_name() => self.place = MaskPosition::Point,
            b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C => self.space(),
            _ => {
                self.out.push(byte);
                if self.is_word(byte) {
                    self.place = MaskPosition::Word { begun };
                }
            }
        }
    }

    /// Writes one space for any amount of whitespace.
    fn space(&mut self) {
        if self.out.last().is_some_and(|it| *it != b' ') {
            self.out.push(b' ');
        }
    }

    fn follows_name(&self) -> bool {
        let last = self.out.last();
        last.is_some_and(|it| self.is_word(*it) || matches!(it, b'"' | b'`' | b')'))
    }

    fn begin_name(&mut self, quote: u8) {
        let begun = self.out.len();
        self.out.push(quote);
        self.place = MaskPosition::Name { quote, begun, is_at_quote: false };
    }

    /// Starts a string. Whether a backslash escapes a quote depends on unknown settings; a reading
    /// that is certainly wrong is excluded from the start.
    fn begin_string(&mut self, quote: u8, may_be_plain: bool, may_escape: bool) {
        self.out.push(HIDDEN);
        let of = |it| if it { StringReading::In } else { StringReading::Ended };
        self.place =
            MaskPosition::String { quote, plain: of(may_be_plain), escaped: of(may_escape) };
    }

    fn string(&mut self, byte: u8) -> bool {
        let MaskPosition::String { quote, plain, escaped } = self.place else { return true };
        let next = (plain.step(byte, quote, false), escaped.step(byte, quote, true));
        match ((plain, escaped), next) {
            (_, (StringReading::Ended, StringReading::Ended)) => {
                return self.go(MaskPosition::Between);
            }
            // By one reading the string ends here, by the other it continues: the following bytes
            // may or may not be a value.
            ((StringReading::Quote, _), (StringReading::Ended, _))
            | ((_, StringReading::Quote), (_, StringReading::Ended)) => {
                self.place = MaskPosition::Over
            }
            (_, (plain, escaped)) => {
                self.place = MaskPosition::String { quote, plain, escaped };
                self.in_doubt(byte);
            }
        }
        true
    }

    /// Handles a byte of a string inside a comment. A server that does not execute the comment ends
    /// it at `*/`, one that executes it takes that for a part of the string: the meaning of the
    /// rest is unknown.
    fn in_doubt(&mut self, byte: u8) {
        if self.executed > 0 && (self.before, byte) == (b'*', b'/') {
            self.place = MaskPosition::Over;
        }
        self.before = byte;
    }

    /// Handles the end of a word. A word directly before a quote may be a string prefix, which is
    /// masked with the string.
    fn word(&mut self, byte: u8, begun: usize) -> bool {
        if self.is_word(byte) {
            self.out.push(byte);
            return true;
        }
        if byte != b'\'' {
            return self.go(MaskPosition::Between);
        }
        let word = self.out.get(begun..).unwrap_or_default();
        let is = |prefix: &[u8]| word.eq_ignore_ascii_case(prefix);
        let is_mysql = self.dialect == SqlDialect::Mysql;
        let escapes = is(b"e") && !is_mysql;
        let is_charset = is_mysql && word.first() == Some(&b'_');
        if escapes || is_charset || is(b"b") || is(b"x") || is(b"n") {
            self.out.truncate(begun);
        }
        self.begin_string(b'\'', !escapes, true);
        true
    }

    /// Handles a parameter (`$1`), or a dollar-quoted string.
    fn dollar(&mut self, byte: u8) -> bool {
        match self.place {
            MaskPosition::Dollar { .. } if byte.is_ascii_digit() => {
                self.out.extend_from_slice(&[b'$', byte]);
                self.place = MaskPosition::Parameter;
            }
            MaskPosition::Dollar { begun } => {
                self.tag.clear();
                self.tag.push(b'$');
                return self.go(MaskPosition::Tag { begun });
            }
            MaskPosition::Parameter if byte.is_ascii_digit() => self.out.push(byte),
            MaskPosition::Tag { .. } if self.tag.len() >= TAG_BYTES_MAX => {
                self.place = MaskPosition::Over
            }
            MaskPosition::Tag { .. } if byte == b'$' => {
                self.tag.push(byte);
                self.out.push(HIDDEN);
                self.place = MaskPosition::Dollars { matched: 0 };
            }
            MaskPosition::Tag { .. } if self.is_word(byte) => self.tag.push(byte),
            MaskPosition::Tag { .. } => {
                self.out.extend_from_slice(&self.tag);
                return self.go(MaskPosition::Between);
            }
            MaskPosition::Dollars { matched } => {
                // A tag contains no dollar signs, so a new match can only begin at one.
                let matched = match self.tag.get(matched) {
                    Some(expected) if *expected == byte => matched + 1,
                    _ => usize::from(byte == b'$'),
                };
                let is_end = matched == self.tag.len();
                self.place =
                    if is_end { MaskPosition::Between } else { MaskPosition::Dollars { matched } };
            }
            _ => return self.go(MaskPosition::Between),
        }
        true
    }

    /// Handles dashes: in MySQL a line comment needs a space after `--`; otherwise they are signs.
    fn dash(&mut self, byte: u8) -> bool {
        match (self.place, self.dialect) {
            (MaskPosition::Dash, SqlDialect::Postgres) if byte == b'-' => {
                self.place = MaskPosition::Line
            }
            (MaskPosition::Dash, _) if byte == b'-' => self.place = MaskPosition::Dashes,
            (MaskPosition::Dashes, _) if byte <= b' ' || byte == 0x7F => {
                return self.go(MaskPosition::Line);
            }
            (MaskPosition::Dashes, _) => {
                self.out.push(b'-');
                // The second one may begin a comment itself.
                return self.go(MaskPosition::Dash);
            }
            _ => return self.was_plain(b'-'),
        }
        true
    }

    /// Handles a block comment, which PostgreSQL nests and MySQL may execute.
    fn block(&mut self, byte: u8) -> bool {
        let is_mysql = self.dialect == SqlDialect::Mysql;
        match self.place {
            MaskPosition::Block { is_begun: true, .. } if byte == b'!' && is_mysql => {
                self.execute(b"/*!")
            }
            MaskPosition::Block { is_begun: true, .. } if byte == b'M' && is_mysql => {
                self.place = MaskPosition::BlockM;
            }
            MaskPosition::BlockM if byte == b'!' => self.execute(b"/*M!"),
            MaskPosition::BlockM => {
                return self.go(MaskPosition::Block { depth: 1, before: 0, is_begun: false });
            }
            MaskPosition::Block { depth, before, .. } => {
                let (depth, before) = match (before, byte) {
                    (b'*', b'/') => (depth - 1, 0),
                    (b'/', b'*') if !is_mysql => (depth + 1, 0),
                    (_, b'*' | b'/') => (depth, byte),
                    _ => (depth, 0),
                };
                self.place = MaskPosition::Block { depth, before, is_begun: false };
                if depth == 0 {
                    self.space();
                    self.place = MaskPosition::Between;
                }
            }
            MaskPosition::Version { begun } if byte.is_ascii_digit() => {
                self.out.push(byte);
                self.place = MaskPosition::Version { begun };
            }
            MaskPosition::Version { begun } => {
                // Other numbers of digits are values.
                let digits = self.out.len() - begun;
                if !matches!(digits, 0 | 5 | 6) {
                    self.out.truncate(begun);
                    self.out.push(HIDDEN);
                }
                return self.go(MaskPosition::Between);
            }
            _ => return self.go(MaskPosition::Between),
        }
        true
    }

    fn execute(&mut self, mark: &[u8]) {
        self.out.extend_from_slice(mark);
        self.executed = self.executed.saturating_add(1);
        self.place = MaskPosition::Version { begun: self.out.len() };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(dialect: SqlDialect, text: &str) -> String {
        let mut out = Vec::new();
        mask(dialect, text.as_bytes(), 4096, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn values_are_hidden_and_names_are_not() {
        use SqlDialect::{Mysql, Postgres};
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
            (Mysql, "SELECT 'a''b', @v, _utf8'x', 'C:\\dir'", "SELECT ?, @v, ?, ?"),
            (Mysql, "SELECT 'a\\'b', secret", "SELECT ?…"),
            // An executed comment is not masked as one.
            (
                Mysql,
                "/*!50000 DELETE FROM t WHERE a = 'x' */",
                "/*!50000 DELETE FROM t WHERE a = ? */",
            ),
            (Mysql, "/*!50000DELETE FROM t*/", "/*!50000DELETE FROM t*/"),
            (Mysql, "/*M! DELETE */ /*!1234 a */ /*Mad*/ b", "/*M! DELETE */ /*!? a */ b"),
            (Mysql, "SELECT /*! 2 * /* c */ 3 */ * 4", "SELECT /*! ? * ? */ * ?"),
            (Postgres, "/*! secret */ SELECT 1", "SELECT ?"),
            (Mysql, "/*!99999 ' */ DELETE FROM t -- '", "/*!99999 ?…"),
            (Mysql, "/*!99999 -- */ DELETE FROM t", "/*!99999 …"),
            (Mysql, "/*!99999 ` */ DELETE FROM t", "/*!99999 ` */…"),
            // Text that only looks like a comment, or like the end of one.
            (Mysql, "SELECT 5--1; DELETE FROM t", "SELECT ?--?; DELETE FROM t"),
            (Mysql, "SELECT 5---- 1; DELETE", "SELECT ?--"),
            (Postgres, "SELECT 5--1; DELETE\rFROM t", "SELECT ? FROM t"),
            (Postgres, "SELECT $1$ DELETE $1$", "SELECT $1$ DELETE $1$"),
            (Postgres, "SELECT @$$secret$$, ` 'x' `", "SELECT @?, ` ? `"),
            // The end of the string depends on whether escapes are enabled.
            (Postgres, "SELECT 'a\\' , 'secret'", "SELECT ?…"),
            (Postgres, "WHERE path = 'C:\\' AND name = 'secretpassword'", "WHERE path = ?…"),
            (Postgres, "SELECT 'a\\'; DELETE FROM t; --'", "SELECT ?…"),
            (Mysql, "SELECT 'a\\'; DELETE FROM t; -- '", "SELECT ?…"),
            (Postgres, "SELECT 'C:\\dir', E'it\\'s', 'C:\\'", "SELECT ?, ?, ?"),
            // Only a valid string prefix is masked with the string.
            (Postgres, "SELECT secret'x', DATE'2020', e'x'", "SELECT secret?, DATE?, ?"),
        ] {
            assert_eq!(masked(dialect, text), expected, "{text}");
        }
    }

    #[test]
    fn no_more_is_written_than_there_is_room_for() {
        for (text, expected) in [
            ("a, ".repeat(1000), "before a, a, a…"),
            ("abcdefghij".to_owned(), "before abcdefghij"),
            ("abcdefghijk".to_owned(), "before abcdefg…"),
            ("abcdefüghij".to_owned(), "before abcdef…"),
            (format!("/*{}*/ DELETE", " x".repeat(5000)), "before DELETE"),
        ] {
            let mut out = b"before ".to_vec();
            mask(SqlDialect::Postgres, text.as_bytes(), 10, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{text}");
        }
    }

    #[test]
    fn a_word_that_grew_too_long_is_cut_however_the_text_comes() {
        let text = b"SELECT ____'a'";
        for bytes_max in 0..text.len() {
            let mut whole = Vec::new();
            mask(SqlDialect::Mysql, text, bytes_max, &mut whole);
            for piece in 1..text.len() {
                let mut masker = TextMasker::new(SqlDialect::Mysql, bytes_max);
                text.chunks(piece).for_each(|piece| masker.feed(piece));
                assert_eq!(masker.finish(), whole, "{bytes_max} bytes, pieces of {piece}");
            }
        }
    }

    const SECRET: &str = "topsecretvalue";
    const NAME: &str = "some_visible_name";

    /// Returns a string that contains the secret, for a server with or without escapes.
    fn literal(quote: char, before: &str, after: &str, escapes: bool) -> String {
        let value = format!("{before}{SECRET}{after}");
        let value = if escapes { value.replace('\\', "\\\\") } else { value };
        let mark = if escapes { "\\" } else { &quote.to_string() };
        format!("{quote}{}{quote}", value.replace(quote, &format!("{mark}{quote}")))
    }

    proptest! {
        #[test]
        fn secrets_are_never_shown_and_names_only_hidden_with_a_mark(
            parts in proptest::collection::vec(
                (
                    proptest::sample::select(vec![
                        "", "N", "x", "_utf8", "DATE", "longer_words", "1, ", "/* it's */", "-- '\n",
                        "\"a name\", ", "f(", ") || ", "; ", "1.5e-3 - ",
                    ]),
                    "[a-c'\"\\\\$ ]{0,5}",
                    "[a-c'\"\\\\$ ]{0,5}",
                    any::<bool>(),
                ),
                1..6,
            ),
            escapes in any::<bool>(),
            is_mysql in any::<bool>(),
        ) {
            let dialect = if is_mysql { SqlDialect::Mysql } else { SqlDialect::Postgres };
            let mut text = "SELECT ".to_owned();
            for (prefix, before, after, is_double) in &parts {
                let quote = if *is_double && is_mysql { '"' } else { '\'' };
                text += &format!("{prefix}{}, ", literal(quote, before, after, escapes));
            }
            let found = masked(dialect, &(text + NAME));
            prop_assert!(!found.contains(SECRET), "{found}");
            prop_assert!(found.ends_with(NAME) || found.ends_with(CUT), "{found}");
        }

        #[test]
        fn texts_are_masked_alike_in_pieces(
            text in "(['\"`\\\\$#;. eM!1x*/\n-]|/\\*|--|\\*/|\\$a\\$|/\\*!50000|ab|__|n'){0,40}",
            piece in 1usize..10,
            bytes_max in 0usize..100,
            is_mysql in any::<bool>(),
        ) {
            let dialect = if is_mysql { SqlDialect::Mysql } else { SqlDialect::Postgres };
            let mut masker = TextMasker::new(dialect, bytes_max);
            masker.feed(b"'left over");
            masker.clear();
            text.as_bytes().chunks(piece).for_each(|piece| masker.feed(piece));
            let mut whole = Vec::new();
            mask(dialect, text.as_bytes(), bytes_max, &mut whole);
            prop_assert_eq!(masker.finish(), whole);
        }

        #[test]
        fn any_bytes_are_masked_within_bounds(
            text in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            for dialect in [SqlDialect::Postgres, SqlDialect::Mysql] {
                let mut out = Vec::new();
                mask(dialect, &text, 100, &mut out);
                prop_assert!(out.len() <= 100);
            }
        }
    }
}
