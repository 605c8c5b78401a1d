//! JSON as slices of its original bytes. A value is fully validated once, when it arrives; from
//! then on it is passed around, taken apart and written again without copying, and without losing
//! an unknown key, a digit or the order.
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

/// Deepest nesting of objects and arrays. A schema has three levels for each nested struct;
/// Iceberg's own reader accepts a thousand. Schemas and filters are read recursively: the threads
/// that serve requests need a stack for this depth.
pub const DEPTH_MAX: usize = 400;

/// Deepest nesting that `serde_json` reads
/// (<https://docs.rs/serde_json/1/serde_json/de/struct.Deserializer.html#method.disable_recursion_limit>).
const DECODED_DEPTH_MAX: usize = 127;

/// Longest accepted text, in bytes. Metadata of 250 MB has been seen in practice, and its readers
/// failed.
pub const TEXT_BYTES_MAX: usize = 256 << 20;

/// Reasons why a text is not the expected JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON.
    #[error("malformed JSON: {what} at byte {offset}")]
    Malformed {
        /// The unexpected or missing element.
        what: &'static str,
        /// Offset from the beginning of the text.
        offset: usize,
    },
    /// More bytes than allowed.
    #[error("the JSON is longer than {TEXT_BYTES_MAX} bytes")]
    TooLong,
    /// Nested more deeply than allowed.
    #[error("the JSON has more than {0} objects and arrays within each other")]
    TooDeep(usize),
    /// JSON of another shape.
    #[error("{0}")]
    Shape(String),
}

impl From<JsonError> for CatalogError {
    /// Attributes the error to the sender. Readers of stored documents convert it themselves.
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
    /// A number, integer or not, of any size.
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

/// A well-formed value: its original bytes, without surrounding white space. Two are equal if their
/// bytes are. A clone shares the bytes.
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
    /// If it is not, or exceeds [`DEPTH_MAX`] or [`TEXT_BYTES_MAX`].
    pub fn parse(text: Bytes) -> Result<RawJson, JsonError> {
        let mut cursor = JsonCursor::new(&text)?;
        let value = cursor.value()?;
        cursor.end()?;
        Ok(RawJson::within(&text, value))
    }

    /// Returns `value`, which a cursor over `whole` has passed, as a slice that shares the bytes of
    /// `whole`.
    pub(crate) fn within(whole: &Bytes, value: &str) -> RawJson {
        RawJson(whole.slice_ref(value.as_bytes()))
    }

    /// Wraps a value that this crate has written itself.
    pub(crate) fn written(text: Vec<u8>) -> RawJson {
        debug_assert!(RawJson::parse(text.clone().into()).is_ok(), "no JSON was written");
        RawJson(text.into())
    }

    /// Replaces the bytes by the same ones in `whole`, at `start`. `None` if they differ.
    pub(crate) fn move_to(&mut self, whole: &Bytes, start: usize) -> Option<()> {
        move_to(&mut self.0, whole, start)
    }

    /// `null`
    #[must_use]
    pub const fn null() -> RawJson {
        RawJson(Bytes::from_static(b"null"))
    }

    /// Serializes a value with serde.
    ///
    /// # Errors
    /// If it cannot be serialized, such as a map whose keys are no strings.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<RawJson, JsonError> {
        let text = serde_json::to_vec(value).map_err(|e| JsonError::Shape(e.to_string()))?;
        RawJson::parse(text.into())
    }

    /// Returns the object with this member set to `value`, in its place or at the end; otherwise
    /// unchanged.
    ///
    /// # Errors
    /// If it is no object.
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

    /// Creates a string.
    #[must_use]
    pub fn string(value: &str) -> RawJson {
        let mut text = Vec::with_capacity(value.len() + 2);
        put_string(&mut text, value);
        RawJson(text.into())
    }

    /// Creates an integer.
    #[must_use]
    pub fn integer(number: i64) -> RawJson {
        RawJson(number.to_string().into())
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        // It was validated when it arrived, so this cannot fail.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns a slice that shares the bytes.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Returns a copy without insignificant white space, which no longer keeps the original text
    /// alive. Permanent parts of a document are copied: a small value must not keep a large request
    /// in memory.
    #[must_use]
    pub fn compact(&self) -> RawJson {
        let bytes = self.as_bytes();
        let mut copy = Vec::with_capacity(bytes.len());
        // Text between white space is copied at once.
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

    /// Returns the kind of the value.
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

    /// Returns the members of an object, in order, including duplicate names.
    ///
    /// # Errors
    /// If it is no object.
    pub fn members(&self) -> Result<JsonMembers<'_>, JsonError> {
        let mut cursor = JsonCursor::over(self.text());
        cursor.enter(b'{', "not an object")?;
        Ok(JsonMembers { whole: &self.0, cursor, first: true })
    }

    /// Returns the items of an array, in order.
    ///
    /// # Errors
    /// If it is no array.
    pub fn items(&self) -> Result<JsonItems<'_>, JsonError> {
        let mut cursor = JsonCursor::over(self.text());
        cursor.enter(b'[', "not an array")?;
        Ok(JsonItems { whole: &self.0, cursor, first: true })
    }

    /// Returns a member of an object; the last of this name, as in all readers of Iceberg.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<RawJson> {
        self.members().ok()?.filter(|(key, _)| key == name).last().map(|(_, value)| value)
    }

    /// Returns members of an object, each as in [`RawJson::present`], in one pass.
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

    /// Returns the content of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<Cow<'_, str>> {
        (self.kind() == JsonKind::String).then(|| JsonText::checked(self.text()).decode())
    }

    /// Returns an integer of 64 bits. `1.0` and `1e3` are rejected, as in the reference.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        self.text().parse().ok().filter(|_| self.kind() == JsonKind::Number)
    }

    /// Returns an integer of 32 bits.
    #[must_use]
    pub fn as_i32(&self) -> Option<i32> {
        self.text().parse().ok().filter(|_| self.kind() == JsonKind::Number)
    }

    /// Returns a boolean.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.as_bytes() {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// Deserializes it with serde.
    ///
    /// # Errors
    /// If it has another structure.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        serde_json::from_slice(&self.0).map_err(|error| match error.classify() {
            // It was validated when it arrived, so this cannot be another syntax error.
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

/// A JSON string with its original escapes: a name or value that is decoded on demand and written
/// back unchanged. Two are equal if their contents are.
#[derive(Clone)]
pub struct RawString(Bytes);

impl RawString {
    /// Creates the string of its content.
    #[must_use]
    pub fn new(value: &str) -> RawString {
        RawString(RawJson::string(value).0)
    }

    /// Returns `text`, which a cursor over `whole` has passed, as a slice that shares the bytes of
    /// `whole`.
    pub(crate) fn within(whole: &Bytes, text: JsonText<'_>) -> RawString {
        RawString(whole.slice_ref(text.raw().as_bytes()))
    }

    /// Returns the string in `value`, if it is one.
    #[must_use]
    pub fn of(value: &RawJson) -> Option<RawString> {
        (value.kind() == JsonKind::String).then(|| RawString(value.bytes()))
    }

    /// Replaces the bytes by the same ones in `whole`, at `start`. `None` if they differ.
    pub(crate) fn move_to(&mut self, whole: &Bytes, start: usize) -> Option<()> {
        move_to(&mut self.0, whole, start)
    }

    /// Returns the raw text, with quotation marks and escapes.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.0
    }

    fn is_escaped(&self) -> bool {
        self.0.contains(&b'\\')
    }

    /// Returns the decoded string. Copies only if there are escapes.
    #[must_use]
    pub fn as_str(&self) -> Cow<'_, str> {
        JsonText::checked(std::str::from_utf8(&self.0).unwrap_or_default()).decode()
    }

    /// Returns a copy that does not keep the original text alive.
    #[must_use]
    pub fn detached(&self) -> RawString {
        RawString(Bytes::copy_from_slice(&self.0))
    }
}

impl PartialEq for RawString {
    fn eq(&self, other: &RawString) -> bool {
        // Fast path for searches in long lists: strings without escapes are equal only if their
        // bytes are.
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

/// Most digits of a 64-bit integer.
const INTEGER_DIGITS_MAX: usize = 20;

/// Appends an integer. Allocates only in the buffer.
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

/// Appends the name of an object's next member, preceded by a comma if needed.
pub fn put_name(out: &mut Vec<u8>, name: &str) {
    put_comma(out);
    put_string(out, name);
    out.push(b':');
}
