//! Parsing of a server's errors and notices.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-error-fields.html>
//! - <https://www.postgresql.org/docs/current/errcodes-appendix.html>

use std::borrow::Cow;

use super::message::NoticeSeverity;

/// SQLSTATE of an error without one: `internal_error`.
const CODE_UNKNOWN: &str = "XX000";

/// The fields of an `ErrorResponse` or `NoticeResponse`.
///
/// Tolerant: a server may omit any field, and unreadable fields count as absent. (A pooler that
/// required SQLSTATE could be crashed by a server: CVE-2026-6666.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerNotice<'a> {
    /// In the language of the server.
    localized: Option<&'a [u8]>,
    /// In English, since PostgreSQL 9.6.
    severity: Option<&'a [u8]>,
    code: Option<&'a [u8]>,
    message: Option<&'a [u8]>,
    detail: Option<&'a [u8]>,
    hint: Option<&'a [u8]>,
    routine: Option<&'a [u8]>,
}

impl<'a> ServerNotice<'a> {
    /// Parses the body of a message: everything after its length.
    #[must_use]
    pub fn parse(body: &'a [u8]) -> ServerNotice<'a> {
        let mut notice = ServerNotice::default();
        let mut rest = body;
        while let Some((kind, after)) = rest.split_first() {
            let end = after.iter().position(|byte| *byte == 0);
            let Some((value, next)) = end.and_then(|end| after.split_at_checked(end)) else {
                break; // the terminator, or a value that was cut off
            };
            match kind {
                b'S' => notice.localized = Some(value),
                b'V' => notice.severity = Some(value),
                b'C' => notice.code = Some(value),
                b'M' => notice.message = Some(value),
                b'D' => notice.detail = Some(value),
                b'H' => notice.hint = Some(value),
                b'R' => notice.routine = Some(value),
                0 => break,
                _ => {} // unknown fields are ignored, as the protocol requires
            }
            rest = next.split_first().map_or(&[], |(_, next)| next);
        }
        notice
    }

    /// Returns the severity; that of an error unless a readable field states another one.
    #[must_use]
    pub fn severity(&self) -> NoticeSeverity {
        match self.severity.or(self.localized) {
            Some(b"FATAL" | b"PANIC") => NoticeSeverity::Fatal,
            Some(b"WARNING") => NoticeSeverity::Warning,
            Some(b"NOTICE" | b"DEBUG" | b"INFO" | b"LOG") => NoticeSeverity::Notice,
            _ => NoticeSeverity::Error,
        }
    }

    /// Returns the SQLSTATE: always five letters and digits.
    #[must_use]
    pub fn code(&self) -> &'a str {
        self.code
            .filter(|code| code.len() == 5 && code.iter().all(u8::is_ascii_alphanumeric))
            .and_then(|code| std::str::from_utf8(code).ok())
            .unwrap_or(CODE_UNKNOWN)
    }

    /// Returns the message. Its encoding is the server's; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn message(&self) -> Cow<'a, str> {
        self.message.map_or(Cow::Borrowed("no message"), String::from_utf8_lossy)
    }

    /// Returns further details.
    #[must_use]
    pub fn detail(&self) -> Option<Cow<'a, str>> {
        self.detail.map(String::from_utf8_lossy)
    }

    /// Returns the suggested remedy.
    #[must_use]
    pub fn hint(&self) -> Option<Cow<'a, str>> {
        self.hint.map(String::from_utf8_lossy)
    }

    /// Returns the function of the server's source that reports, such as `RevalidateCachedQuery`.
    #[must_use]
    pub fn routine(&self) -> Option<&'a str> {
        self.routine.and_then(|routine| std::str::from_utf8(routine).ok())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pg::message::{ErrorFields, backend};

    #[test]
    fn what_is_sent_is_read() {
        let mut out = Vec::new();
        let mut fields = ErrorFields::fatal("28P01", "wrong").with_hint("try again");
        fields.detail = Some("more");
        backend::error(&mut out, &fields);
        let notice = ServerNotice::parse(&out[5..]);
        assert_eq!(notice.severity(), NoticeSeverity::Fatal);
        assert_eq!(notice.code(), "28P01");
        assert_eq!(notice.message(), "wrong");
        assert_eq!(notice.detail().as_deref(), Some("more"));
        assert_eq!(notice.hint().as_deref(), Some("try again"));
        assert_eq!(notice.routine(), None);
    }

    #[test]
    fn any_field_may_be_missing_or_broken() {
        for (body, code, message) in [
            (&b""[..], "XX000", "no message"),
            (b"\0", "XX000", "no message"),
            (b"Mhello\0\0", "XX000", "hello"),
            (b"C12\0Mhello\0\0", "XX000", "hello"),
            (b"C12'45\0\0", "XX000", "no message"),
            (b"C57P01\0Mcut of", "57P01", "no message"),
            (b"C57P01\0M\xff\0\0", "57P01", "\u{fffd}"),
            (b"?new\0C57P01\0", "57P01", "no message"),
            (b"\0C57P01\0", "XX000", "no message"),
        ] {
            let notice = ServerNotice::parse(body);
            assert_eq!((notice.code(), &*notice.message()), (code, message), "{body:?}");
        }
        assert_eq!(ServerNotice::parse(b"SFEHLER\0VERROR\0\0").severity(), NoticeSeverity::Error);
        assert_eq!(
            ServerNotice::parse(b"SWARNUNG\0VWARNING\0\0").severity(),
            NoticeSeverity::Warning
        );
    }

    proptest! {
        #[test]
        fn no_body_is_too_much(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let notice = ServerNotice::parse(&body);
            prop_assert_eq!(notice.code().len(), 5);
            drop((notice.severity(), notice.message(), notice.routine()));
        }
    }
}
