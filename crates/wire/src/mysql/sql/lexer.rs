//! Splits an SQL text into tokens like the servers' own scanners, and never reads further.
//!
//! No token is decoded here and nothing is allocated. An ambiguous or unterminated text counts as
//! broken: the caller then assumes nothing about it. Source: `sql/sql_lex.cc` of either server
//! defines what its scanner accepts.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/comments.html>
//! - <https://dev.mysql.com/doc/refman/8.4/en/string-literals.html>

use super::mode::{CharsetClass, SqlMode};

/// Kind of a token; its text is a range of the input.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MysqlTokenKind {
    /// An unquoted identifier or keyword.
    Word,
    /// A quoted identifier; the quotes are part of its range.
    Name,
    /// A string, with its quotes; also `N'…'`.
    Text,
    /// `X'…'`, `B'…'`.
    Binary,
    /// Also `0x1f` and `0b11`.
    Number,
    /// `@name`, ``@`name` ``, `@'name'`; also the host of an account.
    User,
    /// `@@name`, up to the first dot.
    System,
    /// `:=`
    Assign,
    /// A character of an operator, or one of `,;().:?`.
    Mark(u8),
}

/// A token with its range in the text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct MysqlToken {
    pub kind: MysqlTokenKind,
    pub start: usize,
    pub end: usize,
}

impl MysqlToken {
    pub(super) fn text<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }

    pub(super) fn is_mark(&self, mark: u8) -> bool {
        self.kind == MysqlTokenKind::Mark(mark)
    }
}

/// Reading of comments whose contents only some servers run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CommentReading {
    /// Code, as if the server ran them.
    Code,
    /// Comments, as if the server did not run them.
    Comment,
}

/// Position of the scanner relative to `/*! … */`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum VersionedCode {
    Outside,
    /// Inside one that every server runs.
    Always,
    /// Inside one that some servers run: for the others it ends at this position, and it must end
    /// there for these as well.
    Until(usize),
}

/// Versions on which comments of the text depend.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum VersionConditions {
    None,
    One(u32),
    /// Several versions: some servers run some of the comments and not the others.
    Several,
}

/// Scans a text once, from its beginning to its end.
#[derive(Clone, Debug)]
pub(super) struct MysqlLexer<'a> {
    text: &'a [u8],
    mode: SqlMode,
    reading: CommentReading,
    at: usize,
    code: VersionedCode,
    conditions: VersionConditions,
    after_dot: bool,
    /// End of the last word: a dot directly after it belongs to a name.
    word_end: usize,
    broken: bool,
}

/// Marker of a comment for `MariaDB` alone, as a version that no server has.
const MARIADB_ONLY: u32 = u32::MAX;

/// Minimum version: comments for lower ones are run by every supported server, `MySQL` since 5.7
/// and `MariaDB` always.
const VERSION_MIN: u32 = 50_700;

impl<'a> MysqlLexer<'a> {
    pub(super) fn new(text: &'a [u8], mode: SqlMode, reading: CommentReading) -> MysqlLexer<'a> {
        let broken = mode.charset == CharsetClass::Unsafe && !text.is_ascii();
        MysqlLexer {
            text,
            mode,
            reading,
            at: if broken { text.len() } else { 0 },
            code: VersionedCode::Outside,
            conditions: VersionConditions::None,
            after_dot: false,
            word_end: usize::MAX,
            broken,
        }
    }

    /// Returns whether an unterminated or ambiguous part was found. There are no tokens after it.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn conditions(&self) -> VersionConditions {
        self.conditions
    }

    pub(super) fn text(&self) -> &'a [u8] {
        self.text
    }

    pub(super) fn mode(&self) -> SqlMode {
        self.mode
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn fail(&mut self) -> Option<MysqlToken> {
        self.broken = true;
        self.at = self.text.len();
        None
    }

    /// Skips whitespace and comments, and the delimiters of comments that are code.
    fn skip_blank(&mut self) {
        loop {
            match (self.byte(0), self.byte(1)) {
                (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, _) => self.at += 1,
                (b'#', _) => self.skip_line(),
                // Without whitespace after them they are two minus signs.
                (b'-', b'-') if self.byte(2) <= b' ' || self.byte(2) == 0x7f => self.skip_line(),
                (b'/', b'*') => self.open_comment(),
                (b'*', b'/') if self.code != VersionedCode::Outside => self.close_code(),
                _ => return,
            }
        }
    }

    /// Skips a comment to the end of its line. For the server a zero byte ends it.
    fn skip_line(&mut self) {
        let rest = self.rest();
        let line = rest.iter().position(|byte| matches!(byte, b'\n' | 0)).unwrap_or(rest.len());
        if rest.get(line) == Some(&0) {
            self.fail();
            return;
        }
        self.at += line;
    }

    /// Handles `/*`: a comment, or code.
    fn open_comment(&mut self) {
        let (head, mariadb) = match (self.byte(2), self.byte(3)) {
            (b'!', _) => (3, false),
            (b'M', b'!') => (4, true),
            _ => {
                self.skip_comment();
                return;
            }
        };
        let (digits, version) = match self.digits(head) {
            0..=4 => (0, 0),
            // Old servers take five of six; the last one is then code, and harmless.
            digits @ 5..=6 => (digits, self.number(head, digits)),
            _ => {
                self.fail();
                return;
            }
        };
        match (mariadb, version < VERSION_MIN) {
            (false, true) => self.enter(head + digits, VersionedCode::Always),
            (false, false) => self.conditional(head + digits, version),
            (true, _) => self.conditional(head + digits, MARIADB_ONLY),
        }
    }

    fn digits(&self, ahead: usize) -> usize {
        let rest = self.rest().get(ahead..).unwrap_or_default();
        rest.iter().take(7).take_while(|byte| byte.is_ascii_digit()).count()
    }

    fn number(&self, ahead: usize, digits: usize) -> u32 {
        (0..digits).fold(0, |number, digit| {
            let digit = self.byte(ahead + digit).wrapping_sub(b'0');
            number * 10 + u32::from(digit.min(9))
        })
    }

    /// Enters executed code. Nested code ends in different ways at different servers.
    fn enter(&mut self, bytes: usize, code: VersionedCode) {
        if self.code != VersionedCode::Outside {
            self.fail();
            return;
        }
        self.at += bytes;
        self.code = code;
    }

    /// Enters code for some servers that is a comment for others.
    fn conditional(&mut self, bytes: usize, version: u32) {
        self.conditions = match self.conditions {
            VersionConditions::None => VersionConditions::One(version),
            VersionConditions::One(other) if other == version => self.conditions,
            VersionConditions::One(_) | VersionConditions::Several => VersionConditions::Several,
        };
        let Some(end) = self.end_when_skipped() else {
            self.fail();
            return;
        };
        match self.reading {
            CommentReading::Code => self.enter(bytes, VersionedCode::Until(end)),
            CommentReading::Comment => self.at = end,
        }
    }

    /// Returns the end of this comment for a server that does not run it. It may contain comments,
    /// but these may not.
    fn end_when_skipped(&self) -> Option<usize> {
        let mut at = self.at + 2;
        loop {
            let rest = self.text.get(at..)?;
            let next = rest.windows(2).position(|two| matches!(two, b"*/" | b"/*"))?;
            at += next + 2;
            if rest.get(next) == Some(&b'*') {
                return Some(at);
            }
            let rest = self.text.get(at..)?;
            at += rest.windows(2).position(|two| two == b"*/")? + 2;
        }
    }

    fn close_code(&mut self) {
        self.at += 2;
        if matches!(self.code, VersionedCode::Until(end) if end != self.at) {
            self.fail();
            return;
        }
        self.code = VersionedCode::Outside;
    }

    /// Skips a comment that is one for every server, without nested ones.
    fn skip_comment(&mut self) {
        let hint = self.byte(2) == b'+';
        let rest = self.rest().get(2..).unwrap_or_default();
        let Some(length) = rest.windows(2).position(|two| two == b"*/") else {
            self.fail();
            return;
        };
        let inside = rest.get(..length).unwrap_or_default();
        // Within the quotes of an optimizer hint, the end of a comment does not count.
        if hint && inside.iter().any(|byte| matches!(byte, b'\'' | b'"' | b'`')) {
            self.fail();
            return;
        }
        self.at += 2 + length + 2;
    }

    fn token(&self, kind: MysqlTokenKind, start: usize) -> Option<MysqlToken> {
        Some(MysqlToken { kind, start, end: self.at })
    }

    /// Skips quoted text, in which quotes are doubled. With `escapes` a backslash removes the
    /// meaning of the next character.
    fn quoted(&mut self, escapes: bool) -> bool {
        let quote = self.byte(0);
        self.at += 1;
        while self.at < self.text.len() {
            let byte = self.byte(0);
            self.at += 1;
            if byte == b'\\' && escapes {
                self.at += 1;
            } else if byte == quote {
                if self.byte(0) != quote {
                    return true;
                }
                self.at += 1;
            } else if byte == 0 && quote == b'`' {
                break;
            }
        }
        self.fail();
        false
    }

    fn string(&mut self, start: usize, kind: MysqlTokenKind) -> Option<MysqlToken> {
        let escapes = kind == MysqlTokenKind::Text && !self.mode.no_backslash_escapes;
        match self.quoted(escapes) {
            true => self.token(kind, start),
            false => None,
        }
    }

    fn double_quoted(&mut self, start: usize) -> Option<MysqlToken> {
        match self.mode.ansi_quotes {
            true => self.string(start, MysqlTokenKind::Name),
            false => self.string(start, MysqlTokenKind::Text),
        }
    }

    /// Scans `@name` and `@@name`.
    fn variable(&mut self, start: usize) -> Option<MysqlToken> {
        self.at += 1;
        let system = self.byte(0) == b'@';
        self.at += usize::from(system);
        match (self.byte(0), system) {
            (b'`', _) => {
                if !self.quoted(false) {
                    return None;
                }
            }
            (b'\'' | b'"', false) => {
                let is_name = self.byte(0) == b'"' && self.mode.ansi_quotes;
                if !self.quoted(!is_name && !self.mode.no_backslash_escapes) {
                    return None;
                }
            }
            (_, false) => {
                while continues_word(self.byte(0)) || self.byte(0) == b'.' {
                    self.at += 1;
                }
            }
            (_, true) => {
                while continues_word(self.byte(0)) {
                    self.at += 1;
                }
            }
        }
        self.token(if system { MysqlTokenKind::System } else { MysqlTokenKind::User }, start)
    }

    /// Scans a number, or a word that begins with a digit.
    fn numeric(&mut self, start: usize) -> Option<MysqlToken> {
        while self.byte(0).is_ascii_digit() {
            self.at += 1;
        }
        if self.exponent() {
            return self.token(MysqlTokenKind::Number, start);
        }
        if continues_word(self.byte(0)) {
            let token = self.word(start)?;
            let text = token.text(self.text);
            let is_digits =
                |digits: &[u8], of: fn(&u8) -> bool| !digits.is_empty() && digits.iter().all(of);
            let is_number = match text {
                [b'0', b'x', digits @ ..] => is_digits(digits, u8::is_ascii_hexdigit),
                [b'0', b'b', digits @ ..] => is_digits(digits, |it| matches!(it, b'0' | b'1')),
                _ => false,
            };
            return match is_number {
                true => self.token(MysqlTokenKind::Number, start),
                false => Some(token),
            };
        }
        if self.byte(0) == b'.' {
            self.at += 1;
            while self.byte(0).is_ascii_digit() {
                self.at += 1;
            }
            self.exponent();
        }
        self.token(MysqlTokenKind::Number, start)
    }

    /// Skips `e5` or `E+5`, and returns whether there was one. Letters may follow directly.
    fn exponent(&mut self) -> bool {
        if !matches!(self.byte(0), b'e' | b'E') {
            return false;
        }
        let sign = usize::from(matches!(self.byte(1), b'+' | b'-'));
        if !self.byte(1 + sign).is_ascii_digit() {
            return false;
        }
        self.at += 1 + sign;
        while self.byte(0).is_ascii_digit() {
            self.at += 1;
        }
        true
    }

    /// Scans a word, or a string with a prefix letter.
    fn word(&mut self, start: usize) -> Option<MysqlToken> {
        if self.at == start && self.byte(1) == b'\'' {
            match self.byte(0) {
                b'n' | b'N' => {
                    self.at += 1;
                    return self.string(start, MysqlTokenKind::Text);
                }
                b'x' | b'X' | b'b' | b'B' => {
                    self.at += 1;
                    return self.string(start, MysqlTokenKind::Binary);
                }
                _ => {}
            }
        }
        while continues_word(self.byte(0)) {
            self.at += 1;
        }
        let word = self.text.get(start..self.at).unwrap_or_default();
        if !word.is_ascii() {
            // In other character sets one of these bytes may be a space.
            let is_name =
                self.mode.charset == CharsetClass::Utf8 && std::str::from_utf8(word).is_ok();
            if !is_name {
                return self.fail();
            }
        }
        // `$$` begins a string in the newest servers.
        if let Some((b'$', more)) = word.split_first()
            && more.contains(&b'$')
        {
            return self.fail();
        }
        self.token(MysqlTokenKind::Word, start)
    }

    fn read(&mut self, start: usize) -> Option<MysqlToken> {
        match self.byte(0) {
            // A text with a zero byte outside of strings ends there for some servers only; brackets
            // are quotes for `sql_mode=MSSQL`, and invalid otherwise.
            0 | b'[' => self.fail(),
            // The following statement is read by a new scanner, which is not inside this comment.
            b';' if self.code != VersionedCode::Outside => self.fail(),
            b'\'' => self.string(start, MysqlTokenKind::Text),
            b'"' => self.double_quoted(start),
            b'`' => self.string(start, MysqlTokenKind::Name),
            b'@' => self.variable(start),
            first if self.after_dot && continues_word(first) => self.word(start),
            b'0'..=b'9' => self.numeric(start),
            b'.' if self.byte(1).is_ascii_digit() && self.word_end != start => self.numeric(start),
            first if continues_word(first) => self.word(start),
            b':' if self.byte(1) == b'=' => {
                self.at += 2;
                self.token(MysqlTokenKind::Assign, start)
            }
            mark => {
                self.at += 1;
                self.token(MysqlTokenKind::Mark(mark), start)
            }
        }
    }
}

impl Iterator for MysqlLexer<'_> {
    type Item = MysqlToken;

    fn next(&mut self) -> Option<MysqlToken> {
        self.skip_blank();
        if self.broken || self.at >= self.text.len() {
            self.broken |= self.code != VersionedCode::Outside;
            return None;
        }
        let token = self.read(self.at)?;
        self.after_dot = token.is_mark(b'.');
        if token.kind == MysqlTokenKind::Word {
            self.word_end = token.end;
        }
        Some(token)
    }
}

fn continues_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}
