//! Conversion of database values to JSON, from the text form in which servers send them. Pure.
//!
//! Booleans, numbers, documents and lists become JSON. Values that JSON readers would change stay
//! in the server's text form: `numeric` and `decimal`, times, integers beyond the precision of a
//! double, documents with such numbers. Bytes become Base64.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Number, Value};

/// Largest integer that every JSON reader preserves (RFC 8259 §6).
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// Most digits of a number that a double preserves.
const DIGITS_MAX: usize = 15;

/// Deepest nesting of a list.
const DEPTH_MAX: usize = 6;

/// Forms of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// `t` and `f`.
    Boolean,
    /// An integer.
    Integer,
    /// A floating-point number.
    Float,
    /// A JSON document.
    Document,
    /// Bytes in hexadecimal, after `\x`.
    HexBytes,
    /// Raw bytes.
    RawBytes,
    /// Bits of MySQL, most significant first.
    Bits,
    /// Any other type.
    Text,
}

/// Converts a value to JSON.
pub(super) fn value(form: ValueForm, bytes: &[u8]) -> Value {
    let text = || String::from_utf8_lossy(bytes).into_owned();
    match form {
        ValueForm::RawBytes => Value::String(BASE64_STANDARD.encode(bytes)),
        ValueForm::Bits => bits(bytes),
        ValueForm::Boolean => match bytes {
            b"t" => Value::Bool(true),
            b"f" => Value::Bool(false),
            _ => Value::String(text()),
        },
        ValueForm::Integer => integer(&text()),
        ValueForm::Float => {
            let text = text();
            let number = text.parse::<f64>().ok().and_then(Number::from_f64);
            number.map_or(Value::String(text), Value::Number)
        }
        ValueForm::Document => {
            let text = text();
            document(&text).unwrap_or(Value::String(text))
        }
        ValueForm::HexBytes => match unhex(bytes) {
            Some(bytes) => Value::String(BASE64_STANDARD.encode(bytes)),
            None => Value::String(text()),
        },
        ValueForm::Text => Value::String(text()),
    }
}

fn integer(text: &str) -> Value {
    match text.parse::<i64>() {
        Ok(number) if number.unsigned_abs() <= INTEGER_MAX => Value::Number(number.into()),
        _ => Value::String(text.to_owned()),
    }
}

fn bits(bytes: &[u8]) -> Value {
    let number = match bytes.len() {
        0..=8 => bytes.iter().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte)),
        _ => u64::MAX,
    };
    match number <= INTEGER_MAX {
        true => Value::Number(number.into()),
        false => Value::String(BASE64_STANDARD.encode(bytes)),
    }
}

fn unhex(bytes: &[u8]) -> Option<Vec<u8>> {
    let digits = bytes.strip_prefix(b"\\x")?;
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some((digit(high)? << 4) | digit(low)?),
        _ => None,
    };
    digits.chunks(2).map(pair).collect()
}

/// Parses a document, unless it has a number that JSON readers would change.
fn document(text: &str) -> Option<Value> {
    let (mut digits, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match (in_string, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'0'..=b'9') => digits += 1,
            // An exponent can exceed the range of a double.
            (false, b'e' | b'E') if digits > 0 => return None,
            (false, b'.') => {}
            _ => digits = 0,
        }
        if digits > DIGITS_MAX {
            return None;
        }
    }
    serde_json::from_str(text).ok()
}

/// Parses a list in PostgreSQL's text form: `{1,NULL,"a \"b\""}`, `[0:1]={…}`. `None` if it is
/// malformed.
///
/// # References
/// - <https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO>
pub(super) fn list(form: ValueForm, text: &str) -> Option<Value> {
    let text = match text.starts_with('[') {
        true => text.split_once('=')?.1,
        false => text,
    };
    let mut reader = ListReader { rest: text.as_bytes(), form };
    let list = reader.list(DEPTH_MAX)?;
    reader.rest.is_empty().then_some(list)
}

struct ListReader<'a> {
    rest: &'a [u8],
    form: ValueForm,
}

impl ListReader<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        if self.next()? != b'{' || depth == 0 {
            return None;
        }
        let mut values = Vec::new();
        if self.rest.first() == Some(&b'}') {
            self.next();
            return Some(Value::Array(values));
        }
        loop {
            values.push(match self.rest.first()? {
                b'{' => self.list(depth - 1)?,
                b'"' => self.quoted()?,
                _ => self.bare()?,
            });
            match self.next()? {
                b',' => {}
                b'}' => return Some(Value::Array(values)),
                _ => return None,
            }
        }
    }

    fn quoted(&mut self) -> Option<Value> {
        self.next();
        let mut bytes = Vec::new();
        loop {
            match self.next()? {
                b'"' => return Some(value(self.form, &bytes)),
                b'\\' => bytes.push(self.next()?),
                byte => bytes.push(byte),
            }
        }
    }

    fn bare(&mut self) -> Option<Value> {
        let end = self.rest.iter().position(|byte| matches!(byte, b',' | b'}'))?;
        let (bytes, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        Some(match bytes.eq_ignore_ascii_case(b"NULL") {
            true => Value::Null,
            false => value(self.form, bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_what_they_were() {
        for (form, text, expected) in [
            (ValueForm::Boolean, "t", json!(true)),
            (ValueForm::Integer, "-42", json!(-42)),
            (ValueForm::Integer, "9007199254740991", json!(9_007_199_254_740_991_u64)),
            (ValueForm::Integer, "9007199254740992", json!("9007199254740992")),
            (ValueForm::Integer, "18446744073709551615", json!("18446744073709551615")),
            (ValueForm::Float, "0.1", json!(0.1)),
            (ValueForm::Float, "NaN", json!("NaN")),
            (ValueForm::Float, "-Infinity", json!("-Infinity")),
            (ValueForm::Text, "1.10", json!("1.10")),
            (ValueForm::HexBytes, "\\x00ff", json!("AP8=")),
            (ValueForm::HexBytes, "\\x0", json!("\\x0")),
            (ValueForm::RawBytes, "a", json!("YQ==")),
            (ValueForm::Bits, "\u{1}\u{0}", json!(256)),
            (ValueForm::Document, r#"{"a": [1.5, "x"]}"#, json!({"a": [1.5, "x"]})),
            (ValueForm::Document, r#""1e400 \" 12345678901234567890""#, {
                json!("1e400 \" 12345678901234567890")
            }),
            (ValueForm::Document, "12345678901234567890.5", json!("12345678901234567890.5")),
            (ValueForm::Document, "[1e400]", json!("[1e400]")),
        ] {
            assert_eq!(value(form, text.as_bytes()), expected, "{form:?} {text}");
        }
    }

    #[test]
    fn lists_are_lists() {
        for (form, text, expected) in [
            (ValueForm::Integer, "{}", Some(json!([]))),
            (ValueForm::Integer, "{1,NULL,-3}", Some(json!([1, null, -3]))),
            (ValueForm::Integer, "{{1,2},{3,4}}", Some(json!([[1, 2], [3, 4]]))),
            (ValueForm::Integer, "[0:1]={5,6}", Some(json!([5, 6]))),
            (ValueForm::Text, r#"{a,"NULL","b \"c\" \\ ,}"}"#, {
                Some(json!(["a", "NULL", "b \"c\" \\ ,}"]))
            }),
            (ValueForm::Boolean, "{t,f}", Some(json!([true, false]))),
            (ValueForm::Text, "{a", None),
            (ValueForm::Text, "{a}b", None),
            (ValueForm::Text, "{{{{{{{{1}}}}}}}}", None),
        ] {
            assert_eq!(list(form, text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_sent_becomes_a_value(text in "\\PC{0,60}") {
            for form in [ValueForm::Text, ValueForm::Document, ValueForm::Float] {
                drop(list(form, &text));
                drop(value(form, text.as_bytes()));
            }
        }
    }
}
