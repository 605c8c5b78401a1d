//! The first message of a TLS client, parsed for its server name.
//!
//! Every length is checked and bounded; nothing panics on input.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc8446#section-4.1.2>
//! - <https://www.rfc-editor.org/rfc/rfc6066#section-3>

use super::host::RequestHost;

/// Longest first message, including record headers, in bytes.
pub const HELLO_BYTES_MAX: usize = 64 << 10;

/// Longest record, in bytes (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 16 << 10;

/// Kind of a connection's first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstBytes {
    /// The beginning of a first message: more bytes are needed.
    Partial,
    /// Not TLS.
    NotTls,
    /// TLS, but malformed.
    Broken,
    /// A complete message and its server name; `None` without one.
    Whole(Option<String>),
}

/// Parses the first bytes of a connection.
#[must_use]
pub fn read(bytes: &[u8]) -> FirstBytes {
    let mut message = Vec::new();
    let mut rest = bytes;
    let mut is_record_whole;
    let length = loop {
        match rest {
            [] | [22] | [22, 3] | [22, 3, _] | [22, 3, _, _] => return partial(bytes),
            [22, 3, _, high, low, after @ ..] => {
                let record = usize::from(u16::from_be_bytes([*high, *low]));
                if record == 0 || record > RECORD_BYTES_MAX {
                    return FirstBytes::Broken;
                }
                let now = record.min(after.len());
                message.extend_from_slice(&after[..now]);
                rest = &after[now..];
                is_record_whole = now == record;
            }
            _ if message.is_empty() => return FirstBytes::NotTls,
            _ => return FirstBytes::Broken,
        }
        match *message.as_slice() {
            [1, a, b, c, ..] => {
                let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                if length > HELLO_BYTES_MAX {
                    return FirstBytes::Broken;
                }
                if message.len() >= 4 + length {
                    break length;
                }
            }
            [first, ..] if first != 1 => return FirstBytes::Broken,
            _ => {}
        }
    };
    // These records may contain nothing else before the server has responded.
    if message.len() > 4 + length {
        return FirstBytes::Broken;
    }
    // The rest of the record would otherwise be passed on unchecked.
    if !is_record_whole {
        return partial(bytes);
    }
    name(&message[4..]).map_or(FirstBytes::Broken, FirstBytes::Whole)
}

fn partial(bytes: &[u8]) -> FirstBytes {
    if bytes.len() >= HELLO_BYTES_MAX { FirstBytes::Broken } else { FirstBytes::Partial }
}

/// Returns whether a message with this server name may go to `host`.
#[must_use]
pub fn is_for(name: Option<&str>, host: &RequestHost) -> bool {
    match (name, host) {
        (Some(name), RequestHost::Name(_)) => RequestHost::parse(name).as_ref() == Some(host),
        // Addresses are not sent as server names (RFC 6066 §3).
        (None, RequestHost::Address(_)) => true,
        (None, RequestHost::Name(_)) | (Some(_), RequestHost::Address(_)) => false,
    }
}

/// Reads fields from the front.
struct HelloReader<'a>(&'a [u8]);

impl<'a> HelloReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        let taken = self.take(bytes)?;
        Some(taken.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Bytes with their length, of so many bytes, before them.
    fn block(&mut self, bytes: usize) -> Option<HelloReader<'a>> {
        let length = self.number(bytes)?;
        self.take(length).map(HelloReader)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The name in the body of a message; none at all when it is malformed.
#[expect(clippy::option_option, reason = "malformed, or without a name")]
fn name(body: &[u8]) -> Option<Option<String>> {
    let mut body = HelloReader(body);
    body.take(2 + 32)?;
    body.block(1)?;
    body.block(2)?;
    body.block(1)?;
    if body.is_empty() {
        return Some(None);
    }
    let mut extensions = body.block(2)?;
    let mut found = None;
    while !extensions.is_empty() {
        let kind = extensions.number(2)?;
        let mut extension = extensions.block(2)?;
        if kind != 0 {
            continue;
        }
        // Of two names a server could use either.
        if found.is_some() {
            return None;
        }
        let mut names = extension.block(2)?;
        let is_host_name = names.number(1)? == 0;
        let name = names.block(2)?;
        if !is_host_name || !names.is_empty() || !extension.is_empty() || name.is_empty() {
            return None;
        }
        found = Some(std::str::from_utf8(name.0).ok()?.to_owned());
    }
    body.is_empty().then_some(found)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(bytes: usize, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&length[4 - bytes..], content].concat()
    }

    fn server_name(name: &str) -> Vec<u8> {
        let name = [&[0], &*block(2, name.as_bytes())].concat();
        [&[0, 0], &*block(2, &block(2, &name))].concat()
    }

    /// Builds the message with these extensions, in records of at most `record` bytes.
    fn message(extensions: &[Vec<u8>], record: usize) -> Vec<u8> {
        let body = [
            &[3, 3][..],
            &[7; 32],
            &block(1, &[9; 32]),
            &block(2, &[0x13, 1]),
            &block(1, &[0]),
            &block(2, &extensions.concat()),
        ];
        let message = [&[1], &*block(3, &body.concat())].concat();
        let records = message.chunks(record);
        records.flat_map(|it| [&[22, 3, 1][..], &block(2, it)].concat()).collect()
    }

    pub(in crate::egress) fn hello(name: &str) -> Vec<u8> {
        message(&[vec![0x12, 0x34, 0, 1, 5], server_name(name)], 16_000)
    }

    #[test]
    fn the_name_is_found_however_it_arrives() {
        for record in [1, 7, 50, 16_000] {
            let all = message(&[vec![0, 43, 0, 0], server_name("a.example")], record);
            assert_eq!(read(&all), FirstBytes::Whole(Some("a.example".to_owned())), "{record}");
            for end in 0..all.len() {
                assert_eq!(read(&all[..end]), FirstBytes::Partial, "{record} {end}");
            }
            // Later records, such as early data, are not parsed.
            let more = [&*all, &[23, 3, 3, 0, 1, 0]].concat();
            assert_eq!(read(&more), FirstBytes::Whole(Some("a.example".to_owned())));
        }
        assert_eq!(read(&message(&[], 100)), FirstBytes::Whole(None));
    }

    #[test]
    fn what_is_malformed_is_not_understood() {
        let twice = message(&[server_name("a"), server_name("b")], 16_000);
        assert_eq!(read(&twice), FirstBytes::Broken);
        let two = [&[0], &*block(2, b"a"), &[0], &*block(2, b"b")].concat();
        let two = [&[0, 0], &*block(2, &block(2, &two))].concat();
        assert_eq!(read(&message(&[two], 16_000)), FirstBytes::Broken);
        assert_eq!(read(&message(&[server_name("")], 16_000)), FirstBytes::Broken);
        for (bytes, expected) in [
            (&b"GET / HTTP/1.1\r\n"[..], FirstBytes::NotTls),
            (b"\x80\x2e\x01\x03\x01", FirstBytes::NotTls),
            (b"\x16\x02\x01", FirstBytes::NotTls),
            (b"\x16\x03\x01\x00\x00", FirstBytes::Broken),
            (b"\x16\x03\x01\xff\xff", FirstBytes::Broken),
            (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", FirstBytes::Broken),
            (b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", FirstBytes::Broken),
            (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", FirstBytes::Broken),
            (b"\x16\x03\x01\x00\x01\x01\x15\x03\x01", FirstBytes::Broken),
        ] {
            assert_eq!(read(bytes), expected, "{bytes:?}");
        }
        // An endless sequence of records.
        let endless = b"\x16\x03\x01\x00\x05\x01\x00\xff\xff\x00".to_vec();
        let endless = [endless, b"\x16\x03\x01\x00\x01\x00".repeat(HELLO_BYTES_MAX / 6)].concat();
        assert_eq!(read(&endless), FirstBytes::Broken);
    }

    /// Found by fuzzing: a record that continues behind the message was accepted as long as the
    /// rest of it had not arrived.
    /// follows had not arrived.
    #[test]
    fn a_record_is_read_to_its_end_before_the_message_counts() {
        let mut all = hello("a.example");
        let [_, _, _, high, low, ..] = &mut all[..] else { panic!("no record") };
        [*high, *low] = (u16::from_be_bytes([*high, *low]) + 1).to_be_bytes();
        assert_eq!(read(&all), FirstBytes::Partial);
        all.push(22);
        assert_eq!(read(&all), FirstBytes::Broken);
    }

    #[test]
    fn a_name_is_for_its_host_only() {
        let host = |text| RequestHost::parse(text).unwrap();
        assert!(is_for(Some("A.example"), &host("a.example")));
        assert!(!is_for(Some("b.example"), &host("a.example")));
        assert!(!is_for(None, &host("a.example")));
        assert!(is_for(None, &host("10.0.0.1")));
        assert!(!is_for(Some("a.example"), &host("10.0.0.1")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn nothing_panics(
            noise in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<proptest::sample::Index>(),
        ) {
            drop(read(&noise));
            let mut all = message(&[server_name("a.example")], 40);
            let at = at.index(all.len());
            for (place, byte) in all.iter_mut().skip(at).zip(&noise) {
                *place ^= byte;
            }
            if let FirstBytes::Whole(Some(name)) = read(&all) {
                prop_assert!(name.len() < 200);
            }
            let mut shown = b"\x16\x03\x01".to_vec();
            shown.extend_from_slice(&noise);
            drop(read(&shown));
        }
    }
}
