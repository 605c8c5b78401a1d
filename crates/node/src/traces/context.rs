//! W3C Trace Context: the identity of a trace in `traceparent` and `tracestate` headers.
//!
//! Both headers are untrusted. A `traceparent` that differs from the grammar in any byte is no
//! context at all; a malformed `tracestate` is dropped, and the `traceparent` beside it is used.
//!
//! # References
//! - <https://www.w3.org/TR/trace-context/>

use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::hex;

/// Header with the ids of a trace and of the caller's span.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Header with the data of tracing systems on the way.
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// Environment variable with a `traceparent` for programs, as other tracing tools name it.
pub const VARIABLE: &str = "TRACEPARENT";

/// Length of a `traceparent` of version 00.
const TRACEPARENT_BYTES: usize = 55;
/// Maximum number of members of a `tracestate` (section 3.3.1.1).
const STATE_MEMBERS_MAX: usize = 32;
/// Maximum length of a `tracestate` that is passed on; the specification requires at least this.
const STATE_BYTES_MAX: usize = 512;
/// Length beyond which a member is removed before others when a `tracestate` is too long (section
/// 3.3.1.5).
const LONG_MEMBER_BYTES: usize = 128;
/// Maximum length of a member's key, and of its value (section 3.3.1.3).
const MEMBER_PART_BYTES_MAX: usize = 256;
/// Flag of a trace that its caller records.
const SAMPLED: u8 = 1;

/// Id of a trace. Never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Id of a span. Never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// Creates an id of these bytes, unless all are zero.
    pub(super) fn new(bytes: [u8; 16]) -> Option<TraceId> {
        (bytes != [0; 16]).then_some(TraceId(bytes))
    }

    /// Returns the half that samplers use, which is random in ids of every version.
    pub(super) fn low(self) -> u64 {
        let [_, _, _, _, _, _, _, _, low @ ..] = self.0;
        u64::from_be_bytes(low)
    }
}

impl SpanId {
    /// Creates an id of these bytes, unless all are zero.
    pub(super) fn new(bytes: [u8; 8]) -> Option<SpanId> {
        (bytes != [0; 8]).then_some(SpanId(bytes))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

/// Position in a trace: the trace, one span of it, and whether it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The parent of later spans.
    pub span_id: SpanId,
    /// True if the trace is recorded.
    pub is_sampled: bool,
    /// A `tracestate`, which is passed on unchanged.
    pub state: Option<Arc<str>>,
}

impl TraceContext {
    /// Reads a `traceparent`: version, trace, span and flags in lower-case hexadecimal digits.
    ///
    /// A later version may have additional content; its known part is read by the rules of version
    /// 00 (section 3.2.4), and only the flags of version 00 are passed on.
    #[must_use]
    pub fn parse(traceparent: &[u8]) -> Option<TraceContext> {
        let (known, rest) = traceparent.split_at_checked(TRACEPARENT_BYTES)?;
        let version: [u8; 1] = digits(known.get(..2)?)?;
        match (version, rest) {
            ([0xff], _) => return None,
            ([0], rest) if !rest.is_empty() => return None,
            (_, [first, ..]) if *first != b'-' => return None,
            _ => {}
        }
        if [2, 35, 52].iter().any(|place| known.get(*place) != Some(&b'-')) {
            return None;
        }
        let [flags]: [u8; 1] = digits(known.get(53..)?)?;
        Some(TraceContext {
            trace_id: TraceId::new(digits(known.get(3..35)?)?)?,
            span_id: SpanId::new(digits(known.get(36..52)?)?)?,
            is_sampled: flags & SAMPLED != 0,
            state: None,
        })
    }

    /// Reads the context of a request; none if it has no well-formed one. A request with two
    /// `traceparent` headers has none: two readers could use different ones.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Option<TraceContext> {
        let mut parents = headers.get_all(TRACEPARENT).iter();
        let context = TraceContext::parse(parents.next()?.as_bytes())?;
        if parents.next().is_some() {
            return None;
        }
        let state = state(headers.get_all(TRACESTATE).iter().map(HeaderValue::as_bytes));
        Some(TraceContext { state, ..context })
    }

    /// Parses a stored context: its `traceparent` and its `tracestate`.
    #[must_use]
    pub fn from_texts(traceparent: &str, tracestate: Option<&str>) -> Option<TraceContext> {
        let context = TraceContext::parse(traceparent.as_bytes())?;
        let state = state(tracestate.map(str::as_bytes).into_iter());
        Some(TraceContext { state, ..context })
    }

    /// Replaces the context of a request by this one.
    pub fn write(&self, headers: &mut HeaderMap) {
        headers.remove(TRACESTATE);
        // Hexadecimal digits and visible characters are always a valid value.
        if let Ok(value) = HeaderValue::from_str(&self.traceparent()) {
            headers.insert(TRACEPARENT, value);
        }
        if let Some(Ok(value)) = self.state.as_deref().map(HeaderValue::from_str) {
            headers.insert(TRACESTATE, value);
        }
    }

    /// Returns the value of its `traceparent`.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let flags = u8::from(self.is_sampled) * SAMPLED;
        format!("00-{}-{}-{flags:02x}", self.trace_id, self.span_id)
    }
}

/// Parses lower-case hexadecimal digits, exactly as many as needed.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// Joins `tracestate` headers; none if a member is malformed or there are too many.
fn state<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Arc<str>> {
    let mut members: Vec<&str> = Vec::new();
    for value in values {
        for member in std::str::from_utf8(value).ok()?.split(',') {
            let member = member.trim_matches([' ', '\t']);
            // Empty members are allowed, and left out.
            if member.is_empty() {
                continue;
            }
            if members.len() == STATE_MEMBERS_MAX || !is_member(member) {
                return None;
            }
            members.push(member);
        }
    }
    let length = |members: &[&str]| members.iter().map(|it| it.len() + 1).sum::<usize>();
    if length(&members) > STATE_BYTES_MAX + 1 {
        members.retain(|member| member.len() <= LONG_MEMBER_BYTES);
    }
    while length(&members) > STATE_BYTES_MAX + 1 {
        members.pop();
    }
    (!members.is_empty()).then(|| members.join(",").into())
}

/// Returns whether this is a key and a value (section 3.3.1.3). The forms of keys are those of
/// level 2, which includes all of level 1.
fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_key = |byte: u8| is_first(byte) || b"_-*/@".contains(&byte);
    let is_value = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'=';
    key.len() <= MEMBER_PART_BYTES_MAX
        && key.bytes().next().is_some_and(is_first)
        && key.bytes().all(is_key)
        && (1..=MEMBER_PART_BYTES_MAX).contains(&value.len())
        && value.bytes().all(is_value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn context(traceparents: &[&str], tracestates: &[&str]) -> Option<TraceContext> {
        let mut headers = HeaderMap::new();
        for text in traceparents {
            headers.append(TRACEPARENT, HeaderValue::from_bytes(text.as_bytes()).unwrap());
        }
        for text in tracestates {
            headers.append(TRACESTATE, HeaderValue::from_bytes(text.as_bytes()).unwrap());
        }
        TraceContext::from_headers(&headers)
    }

    #[test]
    fn a_traceparent_is_read_strictly() {
        let check = |text: &str, expected: Option<bool>| {
            let read = context(&[text], &[]);
            assert_eq!(read.as_ref().map(|it| it.is_sampled), expected, "{text}");
            if let Some(read) = read {
                assert_eq!(read.trace_id.to_string(), "0af7651916cd43dd8448eb211c80319c", "{text}");
                assert_eq!(read.span_id.to_string(), "b7ad6b7169203331", "{text}");
            }
        };
        check(GOOD, Some(true));
        check("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", Some(false));
        // Other flags are ignored.
        check("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff", Some(true));
        check("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-fe", Some(false));
        // A later version: without additional content, with it, and with a malformed separator.
        check("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some(true));
        check("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what", Some(true));
        check("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what", None);
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-010",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-011",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-B7AD6B7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
            "0x-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c80319ü-b7ad6b7169203331-01",
        ] {
            check(bad, None);
        }
        assert_eq!(context(&[], &["a=1"]), None);
        assert_eq!(context(&[GOOD, GOOD], &[]), None);
    }

    #[test]
    fn a_tracestate_is_kept_as_far_as_it_is_well_formed() {
        let check = |values: &[&str], expected: Option<&str>| {
            let read = context(&[GOOD], values).unwrap();
            assert_eq!(read.state.as_deref(), expected, "{values:?}");
        };
        check(&[], None);
        check(&[""], None);
        check(&["foo=1,bar=2"], Some("foo=1,bar=2"));
        check(&["foo=1", "bar=2"], Some("foo=1,bar=2"));
        check(&["foo=1 \t , \t bar=2, ,,"], Some("foo=1,bar=2"));
        check(&["fw529a3039@dt=FfAAb,0a_-*/=x y"], Some("fw529a3039@dt=FfAAb,0a_-*/=x y"));
        // Duplicate keys are kept.
        check(&["foo=1,foo=2"], Some("foo=1,foo=2"));
        for bad in ["foo", "=1", "foo=", "Foo=1", "foo=1=2", "fo o=1", "foo=ü", "foo=\u{1}"] {
            if HeaderValue::from_bytes(bad.as_bytes()).is_ok() {
                check(&[&format!("a=1,{bad}")], None);
            }
        }
        check(&[&format!("{}=1", "k".repeat(257))], None);
        check(&[&format!("k={}", "v".repeat(257))], None);
        let many = |count: usize| (0..count).map(|it| format!("k{it}=1")).collect::<Vec<_>>();
        check(&[&many(32).join(",")], Some(&many(32).join(",")));
        check(&[&many(33).join(",")], None);
        // Long members are removed first, then the last ones.
        let long = format!("long={}", "v".repeat(200));
        let short: Vec<String> = (0..8).map(|it| format!("s{it}={}", "v".repeat(60))).collect();
        let header = format!("{long},{}", short.join(","));
        check(&[&header], Some(&short.join(",")));
        let much: Vec<String> = (0..12).map(|it| format!("s{it}={}", "v".repeat(60))).collect();
        let kept = context(&[GOOD], &[&much.join(",")]).unwrap().state.unwrap();
        assert!(kept.len() <= STATE_BYTES_MAX && much.join(",").starts_with(&*kept), "{kept}");
        let huge = format!("k={}", "v".repeat(60 << 10));
        check(&[&huge], None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let read = context(&[GOOD], &["foo=1,bar=2"]).unwrap();
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::from_static("forged"));
        headers.append(TRACEPARENT, HeaderValue::from_static("twice"));
        headers.append(TRACESTATE, HeaderValue::from_static("forged=1"));
        read.write(&mut headers);
        assert_eq!(TraceContext::from_headers(&headers), Some(read.clone()));
        assert_eq!(read.traceparent(), GOOD);
        TraceContext { state: None, ..read }.write(&mut headers);
        assert!(!headers.contains_key(TRACESTATE));
    }

    proptest! {
        #[test]
        fn any_bytes_are_either_a_context_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            if let Some(read) = TraceContext::parse(&bytes) {
                let written = read.traceparent();
                prop_assert_eq!(written.as_bytes().get(2..52), bytes.get(2..52));
            }
        }

        #[test]
        fn one_changed_byte_of_a_good_one_never_changes_another_part(
            place in 0_usize..TRACEPARENT_BYTES,
            byte in any::<u8>(),
        ) {
            let mut bytes = GOOD.as_bytes().to_vec();
            bytes[place] = byte;
            if let Some(read) = TraceContext::parse(&bytes) {
                let written = read.traceparent();
                prop_assert_eq!(written.as_bytes().get(3..52), bytes.get(3..52));
            }
        }

        #[test]
        fn a_state_that_is_kept_is_well_formed(text in "[ -~]{0,700}") {
            if let Some(kept) = state([text.as_bytes()].into_iter()) {
                prop_assert!(kept.len() <= STATE_BYTES_MAX);
                prop_assert!(kept.split(',').all(is_member));
                prop_assert_eq!(state([kept.as_bytes()].into_iter()), Some(kept));
            }
        }
    }
}
