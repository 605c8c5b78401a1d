//! Says what is wrong with JSON in words of JSON.
//!
//! Serde names types of Rust. Callers know objects, arrays, strings, numbers, `true`, `false` and
//! `null`.

/// Byte order mark, with which some editors and libraries begin a text: U+FEFF in UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A message on a document that does not fit its type, in the interface's words and without the
/// place in the text: the name of the field says more, and a value of a tagged type has none left.
#[must_use]
pub fn plain(message: &str) -> String {
    let (message, _) = split_place(message);
    wrong_type(message)
        .or_else(|| wrong_length(message))
        .or_else(|| unknown_variant(message))
        .or_else(|| {
            let is_untagged = message.starts_with("data did not match any variant");
            is_untagged.then(|| "it has none of the forms that are allowed here".to_owned())
        })
        .unwrap_or_else(|| message.to_owned())
}

/// A message on a text that is no JSON.
#[must_use]
pub fn broken(text: &str, message: &str) -> String {
    if text.starts_with(BYTE_ORDER_MARK) {
        return "it begins with a byte order mark (U+FEFF); send it without".to_owned();
    }
    let (message, place) = split_place(message);
    let text = match message {
        "expected value" => "a value is missing or is not written as JSON has it".to_owned(),
        "expected ident" => "only `true`, `false` and `null` are words of JSON".to_owned(),
        "trailing characters" => "something follows the value".to_owned(),
        "trailing comma" => "a comma stands before the end".to_owned(),
        "recursion limit exceeded" => "it is nested more than 128 levels deep".to_owned(),
        "key must be a string" => "a name is not in double quotes".to_owned(),
        "number out of range" => "a number is too large".to_owned(),
        other => match other.strip_prefix("EOF while parsing ") {
            Some(within) => format!("it ends within {}", json_kind(within)),
            None => other.to_owned(),
        },
    };
    format!("{text}{place}")
}

/// A message on a part of a query, which is text to begin with.
#[must_use]
pub fn plain_text(message: &str) -> String {
    let known = [
        ("invalid digit found in string", "expected a whole number, not below 0"),
        ("cannot parse integer from empty string", "expected a whole number"),
        ("number too large to fit in target type", "the number is too large"),
        ("number too small to fit in target type", "the number is too small"),
        ("invalid float literal", "expected a number"),
        ("provided string was not `true` or `false`", "expected `true` or `false`"),
    ];
    let found = known
        .iter()
        .find_map(|(rust, plain)| Some(format!("{}{plain}", message.strip_suffix(rust)?)));
    found.unwrap_or_else(|| match message.split_once(": ") {
        Some((name, rest)) => format!("{name}: {}", plain(rest)),
        None => plain(message),
    })
}

/// The end of a message that says where it is.
fn split_place(message: &str) -> (&str, &str) {
    let place = message.rfind(" at line ").unwrap_or(message.len());
    message.split_at(place)
}

/// `invalid type: string "x", expected u64`.
fn wrong_type(message: &str) -> Option<String> {
    let is_value = message.starts_with("invalid value: ");
    let rest = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))?;
    let at = rest.rfind(", expected ")?;
    let (found, expected) = (rest.get(..at)?, rest.get(at + ", expected ".len()..)?);
    let (found, expected) = (found_value(found), expected_kind(expected));
    // The expectation may be a complete sentence instead of a noun with an article.
    match is_value && !expected.starts_with("a ") && !expected.starts_with("an ") {
        true => Some(format!("{found} does not fit: expected {expected}")),
        false => Some(format!("expected {expected}, got {found}")),
    }
}

/// `invalid length 3, expected …`.
fn wrong_length(message: &str) -> Option<String> {
    let (count, expected) = message.strip_prefix("invalid length ")?.split_once(", expected ")?;
    Some(format!("expected {}, got {count} elements", expected_kind(expected)))
}

/// ``unknown variant `x`, expected one of `a`, `b` ``.
fn unknown_variant(message: &str) -> Option<String> {
    let rest = message.strip_prefix("unknown variant ")?;
    Some(format!("unknown value {rest}"))
}

fn found_value(found: &str) -> String {
    let after = |prefix: &str| found.strip_prefix(prefix).map(|rest| rest.trim_matches('`'));
    if let Some(number) = after("integer ").or_else(|| after("floating point ")) {
        return format!("the number {number}");
    }
    match found.split_once(' ') {
        Some(("boolean", value)) => return value.to_owned(),
        Some(("string" | "character", value)) => return format!("the string {value}"),
        _ => {}
    }
    match found {
        "sequence" => "an array",
        "map" | "newtype variant" | "struct variant" | "tuple variant" => "an object",
        "null" | "unit value" | "Option value" => "`null`",
        "unit variant" => "a string",
        other => other,
    }
    .to_owned()
}

fn expected_kind(expected: &str) -> String {
    let whole = |min: &str, max: &str| format!("a whole number from {min} to {max}");
    match expected {
        "u8" => whole("0", "255"),
        "u16" => whole("0", "65535"),
        "u32" => whole("0", "4294967295"),
        "u64" | "usize" => whole("0", "18446744073709551615"),
        "i8" => whole("-128", "127"),
        "i16" => whole("-32768", "32767"),
        "i32" => whole("-2147483648", "2147483647"),
        "i64" | "isize" => whole("-9223372036854775808", "9223372036854775807"),
        "f32" | "f64" => "a number".to_owned(),
        "a nonzero u8" => whole("1", "255"),
        "a nonzero u16" => whole("1", "65535"),
        "a nonzero u32" => whole("1", "4294967295"),
        "a nonzero u64" | "a nonzero usize" => whole("1", "18446744073709551615"),
        "a boolean" => "`true` or `false`".to_owned(),
        "a sequence" => "an array".to_owned(),
        "a map" => "an object".to_owned(),
        "a borrowed string" | "a character" | "path string" => "a string".to_owned(),
        "unit" => "`null`".to_owned(),
        "string or map" | "an option" | "option" => "another value".to_owned(),
        other => expected_type(other),
    }
}

/// The kind of JSON value behind the name of a type of Rust.
fn expected_type(expected: &str) -> String {
    let is = |prefix: &str| expected.starts_with(prefix);
    if is("struct ") || is("struct variant ") || is("internally tagged enum ") {
        return "an object".to_owned();
    }
    if is("adjacently tagged enum ") {
        return "an object".to_owned();
    }
    if is("enum ") || is("unit struct ") || is("unit variant ") || is("variant identifier") {
        return "one of the names that are allowed here".to_owned();
    }
    let elements = expected.rsplit_once(" with ").or_else(|| expected.rsplit_once(" of size "));
    let elements = elements.or_else(|| expected.rsplit_once(" of length "));
    if is("tuple") || is("a tuple") || is("an array of length") {
        let count = elements.and_then(|(_, rest)| rest.split(' ').next()).unwrap_or("other");
        return format!("an array of {count} elements");
    }
    expected.to_owned()
}

/// `a list`, `a value`, `an object`, `a string`, as serde_json calls them.
fn json_kind(kind: &str) -> &str {
    if kind == "a list" { "an array" } else { kind }
}
