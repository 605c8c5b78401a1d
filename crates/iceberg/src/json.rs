//! JSON as slices of the bytes it came in. A value is checked once, wholly, when it arrives; from
//! then on it is passed around, taken apart and written out again without a copy and without losing
//! a key, a digit or the order that nobody here knows the meaning of.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc8259>

pub mod cursor;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::{CatalogError, ErrorReason};
use cursor::{JsonCursor, JsonText};

/// Most objects and arrays within each other. A schema has three for each struct within a struct;
/// Iceberg's own reader takes a thousand. Schemas and filters are read by recursion: the threads
/// that serve requests need a stack for this depth.
pub const DEPTH_MAX: usize = 400;

/// Most of them that `serde_json` reads
/// (<https://docs.rs/serde_json/1/serde_json/de/struct.Deserializer.html#method.disable_recursion_limit>).
const DECODED_DEPTH_MAX: usize = 127;

/// Bytes of the longest text that is looked at. Metadata of 250 MB has been seen in the wild, and
/// its readers failed.
pub const TEXT_BYTES_MAX: usize = 256 << 20;

/// Why something is not the JSON that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// No JSON.
    #[error("malformed JSON: {what} at byte {offset}")]
    Malformed {
        /// Thing that is there, or is not.
        what: &'static str,
        /// Offset from the beginning of the text.
        offset: usize,
    },
    /// More bytes than anybody may send.
    #[error("the JSON is longer than {TEXT_BYTES_MAX} bytes")]
    TooLong,
    /// More levels of objects and arrays than there may be.
    #[error("the JSON has more than {0} objects and arrays within each other")]
    TooDeep(usize),
    /// JSON of another shape.
    #[error("{0}")]
    Shape(String),
}

impl From<JsonError> for CatalogError {
    /// Blames the sender. What reads stored documents says so itself.
    fn from(error: JsonError) -> CatalogError {
        let kind = match error {
            JsonError::TooLong => ErrorReason::TooLarge,
            JsonError::Malformed { .. } | JsonError::TooDeep(_) | JsonError::Shape(_) => {
                ErrorReason::BadRequest
            }
        };
        CatalogError::new(kind, error.to_string())
    }
}

/// Kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonKind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number, whole or not, of any size.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl fmt::Display for JsonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JsonKind::Null => "null",
            JsonKind::Bool => "a boolean",
            JsonKind::Number => "a number",
            JsonKind::String => "a string",
            JsonKind::Array => "an array",
            JsonKind::Object => "an object",
        })
    }
}

/// A well-formed value: the bytes as they came, without white space around them. Two are equal if
/// their bytes are. A clone shares the bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Bytes);

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl RawJson {
    /// Checks that `text` is exactly one value.
    ///
    /// # Errors
    /// When it is not, or lies beyond [`DEPTH_MAX`] or [`TEXT_BYTES_MAX`].
    pub fn parse(text: Bytes) -> Result<RawJson, JsonError> {
        let mut cursor = JsonCursor::new(&text)?;
        let value = cursor.value()?;
        cursor.end()?;
        Ok(RawJson::within(&text, value))
    }

    /// `value`, which a cursor over `whole` has passed, as a share in the bytes of `whole`.
    pub(crate) fn within(whole: &Bytes, value: &str) -> RawJson {
        RawJson(whole.slice_ref(value.as_bytes()))
    }

    /// Returns what this crate has written itself.
    pub(crate) fn written(text: Vec<u8>) -> RawJson {
        debug_assert!(RawJson::parse(text.clone().into()).is_ok(), "no JSON was written");
        RawJson(text.into())
    }

    /// Becomes a share in `whole`, where it stands at `start` again. `None` if it does not.
    pub(crate) fn move_to(&mut self, whole: &Bytes, start: usize) -> Option<()> {
        move_to(&mut self.0, whole, start)
    }

    /// `null`
    #[must_use]
    pub const fn null() -> RawJson {
        RawJson(Bytes::from_static(b"null"))
    }

    /// A value as serde writes it.
    ///
    /// # Errors
    /// When it cannot be written, such as a map whose keys are no strings.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<RawJson, JsonError> {
        let text = serde_json::to_vec(value).map_err(|e| JsonError::Shape(e.to_string()))?;
        RawJson::parse(text.into())
    }

    /// The object with this member set to `value`, where it was or at the end; all else as it is.
    ///
    /// # Errors
    /// When it is no object.
    pub fn with(&self, name: &str, value: &RawJson) -> Result<RawJson, JsonError> {
        let mut out = Vec::with_capacity(self.0.len() + name.len() + value.0.len() + 4);
        let mut is_set = false;
        out.push(b'{');
        for (key, old) in self.members()? {
            if key == name && is_set {
                continue;
            }
            let is_this = key == name;
            is_set |= is_this;
            put_name(&mut out, &key);
            out.extend_from_slice(if is_this { &value.0 } else { &old.0 });
        }
        if !is_set {
            put_name(&mut out, name);
            out.extend_from_slice(&value.0);
        }
        out.push(b'}');
        Ok(RawJson::written(out))
    }

    /// A string.
    #[must_use]
    pub fn string(value: &str) -> RawJson {
        let mut text = Vec::with_capacity(value.len() + 2);
        put_string(&mut text, value);
        RawJson(text.into())
    }

    /// A whole number.
    #[must_use]
    pub fn integer(number: i64) -> RawJson {
        RawJson(number.to_string().into())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        // It was checked when it came, so that there is no other way.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// A share in the bytes.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// A copy without insignificant white space, so that it no longer holds on to the text it came
    /// in. What enters a document for good is copied: a small value must not keep a large request.
    #[must_use]
    pub fn compact(&self) -> RawJson {
        let bytes = self.as_bytes();
        let mut copy = Vec::with_capacity(bytes.len());
        // What lies between white space is copied at once.
        let (mut start, mut at) = (0, 0);
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => at = cursor::string_end(bytes, at),
                b' ' | b'\n' | b'\r' | b'\t' => {
                    copy.extend_from_slice(bytes.get(start..at).unwrap_or_default());
                    at += 1;
                    start = at;
                }
                _ => at += 1,
            }
        }
        copy.extend_from_slice(bytes.get(start..).unwrap_or_default());
        RawJson(copy.into())
    }

    /// Returns what kind of value it is.
    #[must_use]
    pub fn kind(&self) -> JsonKind {
        match self.0.first() {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b'"') => JsonKind::String,
            Some(b't' | b'f') => JsonKind::Bool,
            Some(b'n') | None => JsonKind::Null,
            Some(_) => JsonKind::Number,
        }
    }

    /// Returns whether it is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.kind() == JsonKind::Null
    }

    /// The members of an object, in order; names that come twice come twice.
    ///
    /// # Errors
    /// When it is no object.
    pub fn members(&self) -> Result<JsonMembers<'_>, JsonError> {
        let mut cursor = JsonCursor::over(self.text());
        cursor.enter(b'{', "not an object")?;
        Ok(JsonMembers { whole: &self.0, cursor, first: true })
    }

    /// The items of an array, in order.
    ///
    /// # Errors
    /// When it is no array.
    pub fn items(&self) -> Result<JsonItems<'_>, JsonError> {
        let mut cursor = JsonCursor::over(self.text());
        cursor.enter(b'[', "not an array")?;
        Ok(JsonItems { whole: &self.0, cursor, first: true })
    }

    /// A member of an object; the last of this name, as all readers of Iceberg take it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<RawJson> {
        self.members().ok()?.filter(|(key, _)| key == name).last().map(|(_, value)| value)
    }

    /// Members of an object as [`RawJson::present`] returns each, found in one walk.
    pub(crate) fn all_present<const N: usize>(&self, names: [&str; N]) -> [Option<RawJson>; N] {
        let mut found = [const { None }; N];
        for (key, value) in self.members().into_iter().flatten() {
            let place = names.iter().position(|name| *name == key);
            if let Some(slot) = place.and_then(|place| found.get_mut(place)) {
                *slot = Some(value);
            }
        }
        found.map(|it| it.filter(|value| !value.is_null()))
    }

    /// Returns the member, if it is not null.
    #[must_use]
    pub fn present(&self, name: &str) -> Option<RawJson> {
        self.get(name).filter(|value| !value.is_null())
    }

    /// Returns what a string says.
    #[must_use]
    pub fn as_str(&self) -> Option<Cow<'_, str>> {
        (self.kind() == JsonKind::String).then(|| JsonText::checked(self.text()).decode())
    }

    /// A whole number of 64 bits. `1.0` and `1e3` are none, as they are to the reference.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        self.text().parse().ok().filter(|_| self.kind() == JsonKind::Number)
    }

    /// A whole number of 32 bits.
    #[must_use]
    pub fn as_i32(&self) -> Option<i32> {
        self.text().parse().ok().filter(|_| self.kind() == JsonKind::Number)
    }

    /// `true` or `false`.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.as_bytes() {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// Decodes it with serde.
    ///
    /// # Errors
    /// When it has another shape.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        serde_json::from_slice(&self.0).map_err(|error| match error.classify() {
            // It was checked when it came, so that nothing else can be malformed about it.
            Category::Syntax => JsonError::TooDeep(DECODED_DEPTH_MAX),
            Category::Io | Category::Data | Category::Eof => {
                JsonError::Shape(api::json_message::plain(&error.to_string()))
            }
        })
    }
}

/// The members of an object, see [`RawJson::members`].
#[derive(Debug)]
pub struct JsonMembers<'a> {
    whole: &'a Bytes,
    cursor: JsonCursor<'a>,
    first: bool,
}

impl<'a> Iterator for JsonMembers<'a> {
    type Item = (Cow<'a, str>, RawJson);

    fn next(&mut self) -> Option<Self::Item> {
        if !self.cursor.another(b'}', &mut self.first).ok()? {
            return None;
        }
        let name = self.cursor.checked_name();
        let value = self.cursor.checked_value();
        Some((name.decode(), RawJson::within(self.whole, value)))
    }
}

/// The items of an array, see [`RawJson::items`].
#[derive(Debug)]
pub struct JsonItems<'a> {
    whole: &'a Bytes,
    cursor: JsonCursor<'a>,
    first: bool,
}

impl Iterator for JsonItems<'_> {
    type Item = RawJson;

    fn next(&mut self) -> Option<RawJson> {
        if !self.cursor.another(b']', &mut self.first).ok()? {
            return None;
        }
        Some(RawJson::within(self.whole, self.cursor.checked_value()))
    }
}

/// A string of JSON that keeps its escapes as they came: a name or a value that is read now and
/// then and written back as it was. Two are equal if they say the same.
#[derive(Clone)]
pub struct RawString(Bytes);

impl RawString {
    /// Creates the string of its content.
    #[must_use]
    pub fn new(value: &str) -> RawString {
        RawString(RawJson::string(value).0)
    }

    /// `text`, which a cursor over `whole` has passed, as a share in the bytes of `whole`.
    pub(crate) fn within(whole: &Bytes, text: JsonText<'_>) -> RawString {
        RawString(whole.slice_ref(text.raw().as_bytes()))
    }

    /// The string in `value`, if it is one.
    #[must_use]
    pub fn of(value: &RawJson) -> Option<RawString> {
        (value.kind() == JsonKind::String).then(|| RawString(value.bytes()))
    }

    /// Becomes a share in `whole`, where it stands at `start` again. `None` if it does not.
    pub(crate) fn move_to(&mut self, whole: &Bytes, start: usize) -> Option<()> {
        move_to(&mut self.0, whole, start)
    }

    /// With quotation marks and escapes.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.0
    }

    fn is_escaped(&self) -> bool {
        self.0.contains(&b'\\')
    }

    /// Returns what it says. Copies only what has escapes.
    #[must_use]
    pub fn as_str(&self) -> Cow<'_, str> {
        JsonText::checked(std::str::from_utf8(&self.0).unwrap_or_default()).decode()
    }

    /// A copy that does not hold on to the text it came in.
    #[must_use]
    pub fn detached(&self) -> RawString {
        RawString(Bytes::copy_from_slice(&self.0))
    }
}

impl PartialEq for RawString {
    fn eq(&self, other: &RawString) -> bool {
        // Long lists of names are searched by this: two that have no escapes differ if they differ.
        self.0 == other.0
            || (self.is_escaped() || other.is_escaped()) && self.as_str() == other.as_str()
    }
}

impl Eq for RawString {}

impl PartialEq<str> for RawString {
    fn eq(&self, other: &str) -> bool {
        if self.is_escaped() {
            return self.as_str() == other;
        }
        self.0.get(1..self.0.len().saturating_sub(1)) == Some(other.as_bytes())
    }
}

impl PartialEq<&str> for RawString {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

impl fmt::Debug for RawString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_str(), f)
    }
}

impl fmt::Display for RawString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_str())
    }
}

impl From<&str> for RawString {
    fn from(value: &str) -> RawString {
        RawString::new(value)
    }
}

fn move_to(part: &mut Bytes, whole: &Bytes, start: usize) -> Option<()> {
    let place = start..start.checked_add(part.len())?;
    if whole.get(place.clone())? != *part {
        return None;
    }
    *part = whole.slice(place);
    Some(())
}

/// Appends a string with its quotation marks.
pub fn put_string(out: &mut Vec<u8>, value: &str) {
    let bytes = value.as_bytes();
    out.push(b'"');
    let mut plain = 0;
    loop {
        let at = cursor::next_special(bytes, plain);
        out.extend_from_slice(bytes.get(plain..at).unwrap_or_default());
        let Some(&byte) = bytes.get(at) else { break };
        plain = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.extend([byte >> 4, byte & 15].map(|nibble| HEX[usize::from(nibble)]));
            }
        }
    }
    out.push(b'"');
}

/// Digits of the longest number of 64 bits.
const INTEGER_DIGITS_MAX: usize = 20;

/// Appends a whole number. Nothing is allocated beyond the buffer.
pub fn put_integer(out: &mut Vec<u8>, number: i64) {
    let mut digits = [b'0'; INTEGER_DIGITS_MAX];
    let (mut rest, mut written) = (number.unsigned_abs(), 0);
    for digit in digits.iter_mut().rev() {
        *digit += u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        written += 1;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(INTEGER_DIGITS_MAX - written..).unwrap_or_default());
}

/// Appends a comma unless this is the first of an object or an array.
pub fn put_comma(out: &mut Vec<u8>) {
    if !matches!(out.last(), None | Some(b'{' | b'[')) {
        out.push(b',');
    }
}

/// Appends the name of an object's next member, with the comma before it if there is one before.
pub fn put_name(out: &mut Vec<u8>, name: &str) {
    put_comma(out);
    put_string(out, name);
    out.push(b':');
}
