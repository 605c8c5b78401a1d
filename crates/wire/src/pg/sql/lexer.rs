//! Splits an SQL text into tokens like PostgreSQL's own scanner, and never reads further.
//!
//! No token is decoded here and nothing is allocated. A text whose tokens depend on
//! `standard_conforming_strings` or the client encoding counts as broken: the caller then assumes
//! nothing about it. Source: `src/backend/parser/scan.l` defines what the scanner accepts.

/// Kind of a token; its text is a range of the input.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PgTokenKind {
    /// An unquoted identifier or keyword.
    Word,
    /// An identifier in double quotes.
    Quoted,
    /// `'…'`, without a prefix.
    Plain,
    /// `E'…'`.
    Escaped,
    /// `$tag$…$tag$`; the range includes the tags.
    Dollar,
    /// `B'…'`, `X'…'`, `N'…'`, `U&'…'`.
    Other,
    Number,
    /// `$1`.
    Parameter,
    /// `::`, the only operator of two characters that is needed.
    Cast,
    /// A character of an operator, or one of `,;()[].:`.
    Mark(u8),
}

/// A token with its range in the text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PgToken {
    pub kind: PgTokenKind,
    pub start: usize,
    pub end: usize,
}

impl PgToken {
    pub(super) fn text<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }

    pub(super) fn is_mark(&self, mark: u8) -> bool {
        self.kind == PgTokenKind::Mark(mark)
    }

    /// Returns whether it is a constant of any kind.
    pub(super) fn is_constant(&self) -> bool {
        match self.kind {
            PgTokenKind::Plain
            | PgTokenKind::Escaped
            | PgTokenKind::Dollar
            | PgTokenKind::Other => true,
            PgTokenKind::Number | PgTokenKind::Parameter => true,
            PgTokenKind::Word | PgTokenKind::Quoted | PgTokenKind::Cast | PgTokenKind::Mark(_) => {
                false
            }
        }
    }
}

/// Scans a text once, from its beginning to its end.
#[derive(Clone, Debug)]
pub(super) struct PgLexer<'a> {
    text: &'a [u8],
    at: usize,
    broken: bool,
}

impl<'a> PgLexer<'a> {
    pub(super) fn new(text: &'a [u8]) -> PgLexer<'a> {
        PgLexer { text, at: 0, broken: false }
    }

    /// Returns whether an unterminated or ambiguous part was found. There are no tokens after it.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn text(&self) -> &'a [u8] {
        self.text
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn fail(&mut self) -> Option<PgToken> {
        self.broken = true;
        self.at = self.text.len();
        None
    }

    /// Skips whitespace and comments.
    fn skip_blank(&mut self) {
        loop {
            match (self.byte(0), self.byte(1)) {
                (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, _) => self.at += 1,
                (b'-', b'-') => {
                    let rest = self.text.get(self.at..).unwrap_or_default();
                    let line = rest.iter().position(|&it| it == b'\n' || it == b'\r');
                    self.at += line.unwrap_or(rest.len());
                }
                (b'/', b'*') => self.skip_comment(),
                _ => return,
            }
        }
    }

    /// Skips a comment with nested ones; an unterminated one breaks the text.
    fn skip_comment(&mut self) {
        let mut depth = 0usize;
        while self.at < self.text.len() {
            match (self.byte(0), self.byte(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth = depth.saturating_sub(1);
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.at += 1,
            }
        }
        self.broken = true;
    }

    fn token(&self, kind: PgTokenKind, start: usize) -> Option<PgToken> {
        Some(PgToken { kind, start, end: self.at })
    }

    /// Scans a string without backslash escapes. With `standard_conforming_strings` off it would
    /// have them, so a backslash that changes the end of the string makes the text ambiguous. The
    /// same holds for the second part of an `E'…'` that continues on the next line.
    fn plain(&mut self, start: usize, kind: PgTokenKind) -> Option<PgToken> {
        self.at += 1;
        let mut backslashes = 0usize;
        while self.at < self.text.len() {
            let byte = self.byte(0);
            self.at += 1;
            match byte {
                b'\\' => {
                    backslashes += 1;
                    continue;
                }
                b'\'' if backslashes % 2 == 1 => return self.fail(),
                b'\'' if self.byte(0) == b'\'' => self.at += 1,
                b'\'' => return self.token(kind, start),
                _ => {}
            }
            backslashes = 0;
        }
        self.fail()
    }

    /// Scans `E'…'`. In some client encodings a backslash can be the second byte of a character, so
    /// one after a byte beyond ASCII is ambiguous.
    fn escaped(&mut self, start: usize) -> Option<PgToken> {
        self.at += 2;
        let mut last = 0u8;
        while self.at < self.text.len() {
            let byte = self.byte(0);
            self.at += 1;
            match byte {
                b'\\' if last >= 0x80 => return self.fail(),
                b'\\' => {
                    last = self.byte(0);
                    self.at += 1;
                    continue;
                }
                b'\'' if self.byte(0) == b'\'' => self.at += 1,
                b'\'' => return self.token(PgTokenKind::Escaped, start),
                _ => {}
            }
            last = byte;
        }
        self.fail()
    }

    fn quoted(&mut self, start: usize) -> Option<PgToken> {
        self.at += 1;
        while self.at < self.text.len() {
            let byte = self.byte(0);
            self.at += 1;
            if byte == b'"' {
                if self.byte(0) != b'"' {
                    return self.token(PgTokenKind::Quoted, start);
                }
                self.at += 1;
            }
        }
        self.fail()
    }

    fn number(&mut self, start: usize) -> Option<PgToken> {
        while self.byte(0).is_ascii_digit() {
            self.at += 1;
        }
        // `1..2` is a range of PL/pgSQL: the dots are not a part of the number.
        if self.byte(0) == b'.' && self.byte(1) != b'.' {
            self.at += 1;
            while self.byte(0).is_ascii_digit() {
                self.at += 1;
            }
        }
        if matches!(self.byte(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(1), b'+' | b'-'));
            if self.byte(1 + sign).is_ascii_digit() {
                self.at += 1 + sign;
                while self.byte(0).is_ascii_digit() {
                    self.at += 1;
                }
            }
        }
        // Following letters are a separate token, as in servers before version 15:
        // `SELECT 1into temp t` is legal there.
        self.token(PgTokenKind::Number, start)
    }

    /// Scans `$1`, `$tag$…$tag$`, or a lone dollar sign.
    fn dollar(&mut self, start: usize) -> Option<PgToken> {
        self.at += 1;
        if self.byte(0).is_ascii_digit() {
            while self.byte(0).is_ascii_digit() {
                self.at += 1;
            }
            return self.token(PgTokenKind::Parameter, start);
        }
        if begins_word(self.byte(0)) {
            while begins_word(self.byte(0)) || self.byte(0).is_ascii_digit() {
                self.at += 1;
            }
        }
        if self.byte(0) != b'$' || self.at >= self.text.len() {
            self.at = start + 1;
            return self.token(PgTokenKind::Mark(b'$'), start);
        }
        self.at += 1;
        self.dollar_body(start)
    }

    /// Finds the closing tag. Each byte is examined a bounded number of times, because a tag has
    /// dollar signs only at its ends: a failed comparison ends before the next candidate.
    fn dollar_body(&mut self, start: usize) -> Option<PgToken> {
        let text = self.text;
        let tag = text.get(start..self.at).unwrap_or_default();
        while let Some(rest) = text.get(self.at..) {
            let Some(next) = rest.iter().position(|&it| it == b'$') else {
                break;
            };
            self.at += next;
            if text.get(self.at..).is_some_and(|it| it.starts_with(tag)) {
                self.at += tag.len();
                return self.token(PgTokenKind::Dollar, start);
            }
            self.at += 1;
        }
        self.fail()
    }

    fn word(&mut self, start: usize) -> Option<PgToken> {
        let quote = self.byte(1) == b'\'';
        match self.byte(0) {
            b'e' | b'E' if quote => return self.escaped(start),
            b'b' | b'B' | b'x' | b'X' | b'n' | b'N' if quote => {
                self.at += 1;
                return self.plain(start, PgTokenKind::Other);
            }
            b'u' | b'U' if self.byte(1) == b'&' && self.byte(2) == b'\'' => {
                self.at += 2;
                return self.plain(start, PgTokenKind::Other);
            }
            // The name depends on a `UESCAPE` that follows it.
            b'u' | b'U' if self.byte(1) == b'&' && self.byte(2) == b'"' => return self.fail(),
            _ => {}
        }
        while continues_word(self.byte(0)) {
            self.at += 1;
        }
        self.token(PgTokenKind::Word, start)
    }
}

impl Iterator for PgLexer<'_> {
    type Item = PgToken;

    fn next(&mut self) -> Option<PgToken> {
        self.skip_blank();
        if self.broken || self.at >= self.text.len() {
            return None;
        }
        let start = self.at;
        match self.byte(0) {
            // For the server a text ends at a zero byte; the rest is not examined.
            0 => self.fail(),
            b'\'' => self.plain(start, PgTokenKind::Plain),
            b'"' => self.quoted(start),
            b'$' => self.dollar(start),
            b'0'..=b'9' => self.number(start),
            b'.' if self.byte(1).is_ascii_digit() => self.number(start),
            first if begins_word(first) => self.word(start),
            b':' if self.byte(1) == b':' => {
                self.at += 2;
                self.token(PgTokenKind::Cast, start)
            }
            mark => {
                self.at += 1;
                self.token(PgTokenKind::Mark(mark), start)
            }
        }
    }
}

fn begins_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn continues_word(byte: u8) -> bool {
    begins_word(byte) || byte.is_ascii_digit() || byte == b'$'
}
