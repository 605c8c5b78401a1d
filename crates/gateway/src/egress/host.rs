//! Hosts of requests and of rules, each in one canonical notation.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9110#section-7.2>
//! - <https://www.rfc-editor.org/rfc/rfc3986#section-3.2.2>

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use node::client::is_name;

/// Host of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestHost {
    /// In lower case and without a final dot.
    Name(Box<str>),
    /// IPv4-mapped addresses are stored as IPv4.
    Address(IpAddr),
}

impl RequestHost {
    /// Parses a host as in a URL; `None` if it is neither a name nor an address.
    ///
    /// All notations of an IPv4 address in the C library and in browsers (`127.1`, `0x7f.0.0.1`,
    /// `2130706433`) are parsed as that address, so that no rule is bypassed by another notation.
    #[must_use]
    pub fn parse(text: &str) -> Option<RequestHost> {
        if let Some(inside) = text.strip_prefix('[') {
            let address: Ipv6Addr = inside.strip_suffix(']')?.parse().ok()?;
            return Some(RequestHost::Address(IpAddr::V6(address).to_canonical()));
        }
        let plain = text.strip_suffix('.').unwrap_or(text);
        let last = plain.rsplit('.').next()?;
        if last.is_empty() {
            // With a second dot it would be another name for rules, and the same one for resolvers.
            return None;
        }
        if number(last).is_some() || is_digits(last, 10) {
            return ipv4(plain).map(|address| RequestHost::Address(IpAddr::V4(address)));
        }
        is_name(plain).then(|| RequestHost::Name(plain.to_ascii_lowercase().into()))
    }

    /// Returns the server name for TLS; `None` for an address.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            RequestHost::Name(name) => Some(name),
            RequestHost::Address(_) => None,
        }
    }

    /// Returns the form before a port.
    #[must_use]
    pub fn authority(&self) -> String {
        match self {
            RequestHost::Address(IpAddr::V6(address)) => format!("[{address}]"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for RequestHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestHost::Name(name) => f.write_str(name),
            RequestHost::Address(address) => address.fmt(f),
        }
    }
}

fn is_digits(text: &str, radix: u32) -> bool {
    text.chars().all(|digit| digit.is_digit(radix))
}

/// Parses a part of an IPv4 address: decimal, octal with `0`, hexadecimal with `0x`.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    if digits.is_empty() {
        // Browsers parse `0x` as 0.
        return (radix == 16).then_some(0);
    }
    if !is_digits(digits, radix) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// Parses one to four parts; the last one fills the remaining bytes (WHATWG URL, "IPv4 parser").
fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u64> = text.split('.').map(number).collect::<Option<_>>()?;
    let (last, before) = parts.split_last()?;
    let left = 4_u32.checked_sub(u32::try_from(before.len()).ok()?).filter(|left| *left > 0)?;
    if before.iter().any(|part| *part > 255) || *last >= 256_u64.pow(left) {
        return None;
    }
    let high = before.iter().zip([24_u32, 16, 8]).map(|(part, shift)| part << shift).sum::<u64>();
    Some(Ipv4Addr::from_bits(u32::try_from(high + last).ok()?))
}

/// Hosts of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Every host.
    Any,
    /// A single host.
    Exact(RequestHost),
    /// All names with this suffix: `.example.com`.
    Below(Box<str>),
}

impl HostPattern {
    /// Parses `example.com`, `*.example.com`, `*` or an address, with brackets or without.
    #[must_use]
    pub fn parse(text: &str) -> Option<HostPattern> {
        if text == "*" {
            return Some(HostPattern::Any);
        }
        if let Some(rest) = text.strip_prefix("*.") {
            let RequestHost::Name(name) = RequestHost::parse(rest)? else { return None };
            return Some(HostPattern::Below(format!(".{name}").into()));
        }
        let bare =
            text.parse::<Ipv6Addr>().map(|it| RequestHost::Address(IpAddr::V6(it).to_canonical()));
        bare.ok().or_else(|| RequestHost::parse(text)).map(HostPattern::Exact)
    }

    /// Returns whether the pattern matches a host.
    #[must_use]
    pub fn fits(&self, host: &RequestHost) -> bool {
        match (self, host) {
            (HostPattern::Any, _) => true,
            (HostPattern::Exact(one), host) => one == host,
            (HostPattern::Below(end), RequestHost::Name(name)) => name.ends_with(&**end),
            (HostPattern::Below(_), RequestHost::Address(_)) => false,
        }
    }

    /// Returns whether the pattern matches all hosts of `other`.
    #[must_use]
    pub fn covers(&self, other: &HostPattern) -> bool {
        match (self, other) {
            (HostPattern::Any, _) => true,
            (one, HostPattern::Exact(host)) => one.fits(host),
            (HostPattern::Below(end), HostPattern::Below(other)) => other.ends_with(&**end),
            (_, HostPattern::Any | HostPattern::Below(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_has_one_notation() {
        for (text, expected) in [
            ("Example.COM.", Some("example.com")),
            ("127.0.0.1", Some("127.0.0.1")),
            ("127.1", Some("127.0.0.1")),
            ("0x7f.1", Some("127.0.0.1")),
            ("0X7F000001", Some("127.0.0.1")),
            ("2130706433", Some("127.0.0.1")),
            ("017700000001", Some("127.0.0.1")),
            ("0177.0.0.01", Some("127.0.0.1")),
            ("127.0.0.1.", Some("127.0.0.1")),
            ("10.0x", Some("10.0.0.0")),
            ("[::1]", Some("::1")),
            ("[::ffff:10.0.0.1]", Some("10.0.0.1")),
            ("[::FFFF:a00:1]", Some("10.0.0.1")),
            ("1.example", Some("1.example")),
            ("256.1", None),
            ("1.2.3.4.5", None),
            ("4294967296", None),
            ("99999999999999999999999", None),
            ("1.2.3.09", None),
            ("a.08", None),
            ("[127.0.0.1]", None),
            ("[::1", None),
            ("::1", None),
            ("[fe80::1%eth0]", None),
            ("a b", None),
            ("a%2eb", None),
            ("１２７.0.0.1", None),
            ("", None),
            (".", None),
            ("a..b", None),
            ("example.com..", None),
            ("127.0.0.1..", None),
        ] {
            assert_eq!(
                RequestHost::parse(text).map(|it| it.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn patterns() {
        for (pattern, host, fits) in [
            ("*", "a.example", true),
            ("*", "10.0.0.1", true),
            ("example.com", "EXAMPLE.com.", true),
            ("example.com", "a.example.com", false),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "badexample.com", false),
            ("10.0.0.1", "0xa.1", true),
            ("::1", "[::1]", true),
            ("[::ffff:10.0.0.1]", "10.0.0.1", true),
        ] {
            let host = RequestHost::parse(host).unwrap();
            assert_eq!(HostPattern::parse(pattern).unwrap().fits(&host), fits, "{pattern} {host}");
        }
        for wrong in ["", "**", "*.10.0.0.1", "a.*", "http://a", "a:80", "10.0.0.0/8", "*."] {
            assert_eq!(HostPattern::parse(wrong), None, "{wrong}");
        }
        for (one, other, covers) in [
            ("*", "*", true),
            ("*", "a", true),
            ("*.a", "*.b.a", true),
            ("*.a", "*.a", true),
            ("*.a", "b.a", true),
            ("*.b.a", "*.a", false),
            ("*.a", "*.ba", false),
            ("b.a", "*.b.a", false),
            ("a", "*", false),
        ] {
            let [one, other] = [one, other].map(|it| HostPattern::parse(it).unwrap());
            assert_eq!(one.covers(&other), covers, "{one:?} {other:?}");
        }
    }
}
