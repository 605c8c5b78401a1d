//! Walks over JSON text once, from front to back, and returns slices of it: every byte is checked
//! as it is passed, nothing is copied, and nothing recurses on untrusted input.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc8259>

use std::borrow::Cow;

use super::{DEPTH_MAX, JsonError, JsonKind, TEXT_BYTES_MAX};

/// A position in a JSON text. The text before it is well-formed.
#[derive(Debug)]
pub struct JsonCursor<'a> {
    text: &'a str,
    at: usize,
    /// Number of objects and arrays entered by `object` and `array` that are open here.
    depth: usize,
}

/// Objects and arrays that are open at a position.
#[derive(Default)]
struct OpenValues {
    /// One bit for each: set for an object.
    bits: [u128; OPEN_WORDS],
    depth: usize,
}

/// Number of words of [`OpenValues`].
const OPEN_WORDS: usize = DEPTH_MAX.div_ceil(OPEN_WORD_BITS);

/// Number of open values that a word records.
const OPEN_WORD_BITS: usize = 128;

impl OpenValues {
    fn open(&mut self, is_object: bool) {
        let bit = 1 << (self.depth % OPEN_WORD_BITS);
        if let Some(word) = self.bits.get_mut(self.depth / OPEN_WORD_BITS) {
            *word = if is_object { *word | bit } else { *word & !bit };
        }
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
    }

    /// Returns whether the innermost open value is an object.
    fn is_object(&self) -> bool {
        let place = self.depth.saturating_sub(1);
        let word = self.bits.get(place / OPEN_WORD_BITS).copied().unwrap_or_default();
        word >> (place % OPEN_WORD_BITS) & 1 == 1
    }
}

/// A string as it is in the text, with its quotation marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonText<'a> {
    raw: &'a str,
    is_escaped: bool,
}

impl<'a> JsonText<'a> {
    /// Creates a string from the raw form of one that was already checked.
    pub(super) fn checked(raw: &'a str) -> JsonText<'a> {
        JsonText { raw, is_escaped: raw.contains('\\') }
    }

    /// Returns the raw text, with quotation marks and escapes.
    pub fn raw(self) -> &'a str {
        self.raw
    }

    /// Returns whether it has escapes, so that decoding requires a copy.
    pub fn is_escaped(self) -> bool {
        self.is_escaped
    }

    /// Returns the decoded string. Copies only if there are escapes.
    pub fn decode(self) -> Cow<'a, str> {
        let inner = self.raw.get(1..self.raw.len().saturating_sub(1)).unwrap_or_default();
        if self.is_escaped { Cow::Owned(unescape(inner)) } else { Cow::Borrowed(inner) }
    }
}

impl<'a> JsonCursor<'a> {
    /// Creates a cursor at the front of `text`.
    ///
    /// # Errors
    /// If it is longer than [`TEXT_BYTES_MAX`] or not UTF-8.
    pub fn new(text: &'a [u8]) -> Result<JsonCursor<'a>, JsonError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(JsonError::TooLong);
        }
        let text = std::str::from_utf8(text).map_err(|error| JsonError::Malformed {
            what: "a byte that is not UTF-8",
            offset: error.valid_up_to(),
        })?;
        Ok(JsonCursor { text, at: 0, depth: 0 })
    }

    /// Creates a cursor at the front of a text that is known to be UTF-8.
    pub(super) fn over(text: &'a str) -> JsonCursor<'a> {
        JsonCursor { text, at: 0, depth: 0 }
    }

    /// Returns the offset of the next byte.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Returns the text passed since `start`, an earlier offset.
    pub fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Returns the kind of the next value.
    ///
    /// # Errors
    /// If there is no value.
    pub fn peek(&mut self) -> Result<JsonKind, JsonError> {
        self.space();
        match self.byte() {
            Some(b'{') => Ok(JsonKind::Object),
            Some(b'[') => Ok(JsonKind::Array),
            Some(b'"') => Ok(JsonKind::String),
            Some(b't' | b'f') => Ok(JsonKind::Bool),
            Some(b'n') => Ok(JsonKind::Null),
            Some(b'-' | b'0'..=b'9') => Ok(JsonKind::Number),
            _ => Err(self.malformed("no value")),
        }
    }

    /// Passes one value of any kind. Returns its text, without surrounding white space.
    ///
    /// # Errors
    /// If it is malformed or deeper than [`DEPTH_MAX`].
    pub fn value(&mut self) -> Result<&'a str, JsonError> {
        self.space();
        let start = self.at;
        let mut open = OpenValues::default();
        loop {
            match self.byte() {
                Some(b @ (b'{' | b'[')) => {
                    let is_object = b == b'{';
                    self.at += 1;
                    if self.depth + open.depth >= DEPTH_MAX {
                        return Err(JsonError::TooDeep(DEPTH_MAX));
                    }
                    open.open(is_object);
                    self.space();
                    let end = if is_object { b'}' } else { b']' };
                    if self.byte() == Some(end) {
                        self.at += 1;
                        open.close();
                    } else {
                        if is_object {
                            self.member_name()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            // A value has ended: the enclosing value continues, or ends as well.
            loop {
                if open.depth == 0 {
                    return Ok(self.text.get(start..self.at).unwrap_or_default());
                }
                self.space();
                let is_object = open.is_object();
                match (self.byte(), is_object) {
                    (Some(b','), _) => {
                        self.at += 1;
                        self.space();
                        if is_object {
                            self.member_name()?;
                        }
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.at += 1;
                        open.close();
                    }
                    _ => return Err(self.malformed("neither a comma nor an end")),
                }
            }
        }
    }

    /// Passes one value of a text that was already checked; only looks for its end. Returns its
    /// text, without surrounding white space.
    pub(super) fn checked_value(&mut self) -> &'a str {
        self.space();
        let (bytes, start) = (self.text.as_bytes(), self.at);
        self.at = match bytes.get(start) {
            Some(b'"') => string_end(bytes, start),
            Some(b'{' | b'[') => container_end(bytes, start),
            _ => scalar_end(bytes, start),
        };
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Passes the name of a member of a text that was already checked, its colon, and the white
    /// space before its value.
    pub(super) fn checked_name(&mut self) -> JsonText<'a> {
        self.space();
        let start = self.at;
        self.at = string_end(self.text.as_bytes(), start);
        let name = self.text.get(start..self.at).unwrap_or_default();
        self.space();
        self.at += 1;
        self.space();
        JsonText::checked(name)
    }

    /// Passes an object. `member` is called after each name, and must pass the value.
    ///
    /// # Errors
    /// If the value is no object or malformed, and any error of `member`.
    pub fn object<E: From<JsonError>>(
        &mut self,
        mut member: impl FnMut(&mut Self, JsonText<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut first = true;
        self.enter(b'{', "not an object")?;
        while self.another(b'}', &mut first)? {
            let name = self.member_name()?;
            member(self, name)?;
        }
        Ok(())
    }

    /// Passes an array. `item` is called before each value, and must pass it.
    ///
    /// # Errors
    /// If the value is no array or malformed, and any error of `item`.
    pub fn array<E: From<JsonError>>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut first = true;
        self.enter(b'[', "not an array")?;
        while self.another(b']', &mut first)? {
            item(self)?;
        }
        Ok(())
    }

    /// Passes a string.
    ///
    /// # Errors
    /// If the value is no string or malformed.
    pub fn string(&mut self) -> Result<JsonText<'a>, JsonError> {
        self.space();
        if self.byte() != Some(b'"') {
            return Err(self.malformed("not a string"));
        }
        let start = self.at;
        let is_escaped = self.pass_string()?;
        Ok(JsonText { raw: self.text.get(start..self.at).unwrap_or_default(), is_escaped })
    }

    /// Checks that only white space follows.
    ///
    /// # Errors
    /// If anything else follows.
    pub fn end(&mut self) -> Result<(), JsonError> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.malformed("more than one value")) }
    }

    /// Opens an object or an array.
    pub(super) fn enter(&mut self, begin: u8, what: &'static str) -> Result<(), JsonError> {
        self.space();
        if self.byte() != Some(begin) {
            return Err(self.malformed(what));
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(JsonError::TooDeep(DEPTH_MAX));
        }
        self.at += 1;
        Ok(())
    }

    /// Returns whether the entered object or array has another member or item; if not, leaves it.
    pub(super) fn another(&mut self, end: u8, first: &mut bool) -> Result<bool, JsonError> {
        self.space();
        let was_first = std::mem::take(first);
        match self.byte() {
            Some(byte) if byte == end => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            Some(b',') if !was_first => {
                self.at += 1;
                self.space();
                Ok(true)
            }
            Some(_) if was_first => Ok(true),
            _ => Err(self.malformed("neither a comma nor an end")),
        }
    }

    /// Passes the name of a member, its colon, and the white space before its value.
    pub(super) fn member_name(&mut self) -> Result<JsonText<'a>, JsonError> {
        let name = self.string()?;
        self.space();
        if self.byte() != Some(b':') {
            return Err(self.malformed("no colon after a name"));
        }
        self.at += 1;
        self.space();
        Ok(name)
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn malformed(&self, what: &'static str) -> JsonError {
        JsonError::Malformed { what, offset: self.at }
    }

    fn space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn scalar(&mut self) -> Result<(), JsonError> {
        match self.byte() {
            Some(b'"') => self.pass_string().map(drop),
            Some(b'-' | b'0'..=b'9') => self.pass_number(),
            Some(b't') => self.pass_word("true"),
            Some(b'f') => self.pass_word("false"),
            Some(b'n') => self.pass_word("null"),
            _ => Err(self.malformed("no value")),
        }
    }

    fn pass_word(&mut self, word: &str) -> Result<(), JsonError> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        if !rest.starts_with(word.as_bytes()) {
            return Err(self.malformed("no value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// RFC 8259 §6: no leading zeros, and digits on both sides of a point.
    fn pass_number(&mut self) -> Result<(), JsonError> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.pass_digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.pass_digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.pass_digits()?;
        }
        Ok(())
    }

    fn pass_digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while matches!(self.byte(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.malformed("no digit")) } else { Ok(()) }
    }

    /// Passes a string that begins here; returns whether it has escapes.
    fn pass_string(&mut self) -> Result<bool, JsonError> {
        let bytes = self.text.as_bytes();
        let mut is_escaped = false;
        self.at += 1;
        loop {
            self.at = next_special(bytes, self.at);
            match bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(is_escaped);
                }
                Some(b'\\') => {
                    is_escaped = true;
                    self.pass_escape()?;
                }
                Some(_) => return Err(self.malformed("a control character in a string")),
                None => return Err(self.malformed("a string without an end")),
            }
        }
    }

    fn pass_escape(&mut self) -> Result<(), JsonError> {
        let bytes = self.text.as_bytes();
        match bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => match unicode_escape(bytes.get(self.at..).unwrap_or_default()) {
                Some((_, length)) => {
                    self.at += length;
                    Ok(())
                }
                None => Err(self.malformed("an escape of no character")),
            },
            _ => Err(self.malformed("an unknown escape")),
        }
    }
}

/// Decodes `\uXXXX`, or a surrogate pair of them, at the front of `bytes`; returns the character
/// and the length in bytes. `None` for an unpaired surrogate.
fn unicode_escape(bytes: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| -> Option<u32> {
        let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |sum, &digit| Some((sum << 4) | char::from(digit).to_digit(16)?))
    };
    let first = unit(0)?;
    if !(0xD800..0xDC00).contains(&first) {
        return Some((char::from_u32(first)?, 6));
    }
    let second = unit(6).filter(|unit| (0xDC00..0xE000).contains(unit))?;
    Some((char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00))?, 12))
}

/// Decodes a checked string that has escapes.
fn unescape(inner: &str) -> String {
    let mut unescaped = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((plain, escape)) = rest.split_once('\\') {
        unescaped.push_str(plain);
        let whole = rest.get(plain.len()..).unwrap_or_default();
        let (character, length) = match escape.as_bytes().first() {
            Some(b'b') => ('\u{8}', 2),
            Some(b'f') => ('\u{c}', 2),
            Some(b'n') => ('\n', 2),
            Some(b'r') => ('\r', 2),
            Some(b't') => ('\t', 2),
            Some(b'u') => unicode_escape(whole.as_bytes()).unwrap_or(('\u{fffd}', 2)),
            Some(&other) => (char::from(other), 2),
            None => break,
        };
        unescaped.push(character);
        rest = whole.get(length..).unwrap_or_default();
    }
    unescaped.push_str(rest);
    unescaped
}

/// Returns the offset behind the string that begins at `at` in a text that was already checked.
pub(super) fn string_end(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    loop {
        at = next_special(bytes, at);
        match bytes.get(at) {
            // An escape is one byte, or `u` and digits that need no attention here.
            Some(b'\\') => at += 2,
            Some(_) => return at + 1,
            None => return at,
        }
    }
}

/// Returns the offset behind the object or array that begins at `at` in a text that was already
/// checked.
fn container_end(bytes: &[u8], mut at: usize) -> usize {
    let mut open = 0_usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = string_end(bytes, at);
                continue;
            }
            b'{' | b'[' => open += 1,
            b'}' | b']' if open == 1 => return at + 1,
            b'}' | b']' => open -= 1,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Returns the offset behind the number, `true`, `false` or `null` that begins at `at` in a text
/// that was already checked.
fn scalar_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let is_behind = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
    at + rest.iter().position(is_behind).unwrap_or(rest.len())
}

/// Returns the offset of the first byte from `at` on that a string may not contain unescaped: a
/// quotation mark, a backslash, a control character. The length of `bytes` if there is none.
pub(super) fn next_special(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // Eight bytes at a time: subtracting borrows from a lane's highest bit if the lane is smaller
    // than the subtrahend. A borrow may mark lanes above a true one, never below it, and only the
    // lowest is used.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    while let Some(Ok(chunk)) = bytes.get(at..at + 8).map(<[u8; 8]>::try_from) {
        let word = u64::from_le_bytes(chunk);
        let quote = zero(word ^ (ONES * u64::from(b'"')));
        let backslash = zero(word ^ (ONES * u64::from(b'\\')));
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let found = (quote | backslash | control) & HIGH;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let is_special = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(is_special).unwrap_or(rest.len())
}
