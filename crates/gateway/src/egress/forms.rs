//! Recognition of form fields by which frameworks override the request's method: Rails, Laravel and
//! Express read `_method` in the body of a POST.

use hyper::header::{CONTENT_TYPE, HeaderMap};

use super::headers::method_field;

/// Longest field name that is compared: much longer than any of the relevant names with each byte
/// escaped.
const NAME_BYTES_MAX: usize = 256;

/// Parameter of a part's header with the name of its field.
const PARAMETER: &[u8] = b"name";

/// Inspects a form in transit, in chunks of any size.
#[derive(Debug)]
pub(super) enum FormFilter {
    /// `application/x-www-form-urlencoded`, with the current incomplete name, if any.
    Encoded(Option<Vec<u8>>),
    /// `multipart/form-data`, with the end of the received data, in lower case.
    Multipart(Vec<u8>),
}

impl FormFilter {
    /// Creates a filter for the body of a request with these headers; `None` if it is no form.
    pub(super) fn of(headers: &HeaderMap) -> Option<FormFilter> {
        let mut types = headers.get_all(CONTENT_TYPE).iter().map(|value| {
            let text = value.as_bytes().split(|it| b";,".contains(it)).next().unwrap_or_default();
            text.trim_ascii().to_ascii_lowercase()
        });
        types.find_map(|name| match &*name {
            b"application/x-www-form-urlencoded" => Some(FormFilter::Encoded(Some(Vec::new()))),
            b"multipart/form-data" | b"multipart/mixed" => Some(FormFilter::Multipart(Vec::new())),
            _ => None,
        })
    }

    /// Inspects the next chunk; false if the data so far override the method.
    pub(super) fn passes(&mut self, piece: &[u8]) -> bool {
        match self {
            FormFilter::Encoded(name) => piece.iter().all(|byte| passes_byte(name, *byte)),
            FormFilter::Multipart(seen) => {
                seen.extend(piece.to_ascii_lowercase());
                let is_good = !names_method(seen);
                let surplus = seen.len().saturating_sub(NAME_BYTES_MAX);
                seen.drain(..surplus);
                is_good
            }
        }
    }

    /// Returns false if the end completes a field that overrides the method.
    pub(super) fn passes_end(&self) -> bool {
        !matches!(self, FormFilter::Encoded(Some(name)) if is_method_field(name))
    }
}

fn passes_byte(name: &mut Option<Vec<u8>>, byte: u8) -> bool {
    let is_end = b"=&;".contains(&byte);
    if is_end && name.as_deref().is_some_and(is_method_field) {
        return false;
    }
    match (byte, &mut *name) {
        (b'=', _) => *name = None,
        (b'&' | b';', _) => *name = Some(Vec::new()),
        (_, Some(begun)) if begun.len() < NAME_BYTES_MAX => begun.push(byte),
        _ => {}
    }
    true
}

fn is_method_field(name: &[u8]) -> bool {
    method_field(&String::from_utf8_lossy(name)).is_some()
}

/// Returns true if a parameter `name` or `name*` is such a field (RFC 7578 §4.2, RFC 5987 §3.2).
///
/// The parameter is found at any position, because frameworks differ in their parsing of part
/// headers. A file that contains such a parameter is therefore rejected as well.
fn names_method(text: &[u8]) -> bool {
    let begins = text.windows(PARAMETER.len()).enumerate().filter(|(_, it)| *it == PARAMETER);
    begins.filter_map(|(at, _)| text.get(at + PARAMETER.len()..)).any(|rest| {
        let rest = rest.strip_prefix(b"*").unwrap_or(rest).trim_ascii_start();
        let value = rest.strip_prefix(b"=").and_then(parameter_value);
        value.is_some_and(|value| is_method_field(&value))
    })
}

/// Returns the value of a parameter without its quotes, escapes and character set; `None` if its
/// end has not arrived yet.
fn parameter_value(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii_start();
    let quoted = text.strip_prefix(b"\"");
    let text = quoted.unwrap_or(text);
    let is_end = |byte: &u8| match quoted {
        Some(_) => *byte == b'"',
        None => b"; \t\r\n".contains(byte),
    };
    let end = text.iter().position(is_end)?;
    let value: Vec<u8> = text.get(..end)?.iter().copied().filter(|it| *it != b'\\').collect();
    Some(value.rsplit(|byte| *byte == b'\'').next().unwrap_or_default().to_vec())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn passes(content_type: &'static str, body: &str, piece_bytes: usize) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let Some(mut form) = FormFilter::of(&headers) else { return true };
        body.as_bytes().chunks(piece_bytes).all(|piece| form.passes(piece)) && form.passes_end()
    }

    #[test]
    fn a_form_cannot_ask_for_another_method_however_it_is_split() {
        let encoded = "application/x-www-form-urlencoded";
        let multipart = "Multipart/Form-Data; boundary=x";
        for (content_type, body, expected) in [
            (encoded, "_method=DELETE", false),
            ("application/X-WWW-form-urlencoded ; charset=utf-8", "a=1&_method=DELETE", false),
            (encoded, "a=1;_METHOD=delete", false),
            (encoded, "a&%5Fmethod=DELETE", false),
            (encoded, "a=1&_method", false),
            (encoded, "+_method[]=DELETE", false),
            (encoded, "a=_method&method=1&x_method=2", true),
            (encoded, "", true),
            ("application/json", "{\"_method\": \"DELETE\"}", true),
            (
                multipart,
                "--x\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nPUT",
                false,
            ),
            (multipart, "--x\r\ncontent-disposition: form-data; NAME=_Method\r\n\r\nPUT", false),
            (multipart, "content-disposition: form-data; name = \"\\_method\"; x\r\n", false),
            (multipart, "content-disposition: form-data; name*=utf-8''%5fmethod\r\n", false),
            (multipart, "content-disposition: form-data; name=\"_methods\"\r\n", true),
            (
                multipart,
                "--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n_method",
                true,
            ),
        ] {
            for piece_bytes in [1, 3, 7, 1000] {
                assert_eq!(passes(content_type, body, piece_bytes), expected, "{body}");
            }
        }
    }
}
