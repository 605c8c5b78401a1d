//! Tests of first packets, most of them hostile.

use proptest::prelude::*;

use super::*;
use crate::pg::message::frontend;

/// Returns a packet with this code and body, and its length.
fn packet(code: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 8).expect("small");
    [&length.to_be_bytes(), &code.to_be_bytes(), body].concat()
}

#[test]
fn what_a_client_builds_is_read_once_it_is_all_there() {
    let mut startup = Vec::new();
    frontend::startup(
        &mut startup,
        ProtocolVersion::V3_2,
        &[("user", "a"), ("options", ""), ("user", "b")],
    );
    let mut ssl = Vec::new();
    frontend::ssl_request(&mut ssl);
    let mut cancel = Vec::new();
    frontend::cancel_request(&mut cancel, 7, &[9; 32]);
    for whole in [&startup, &ssl, &cancel, &packet(GSS_REQUEST, &[])] {
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), Ok(None), "{end} bytes of {whole:?}");
        }
        let with_more = [whole, &b"more"[..]].concat();
        let (_, total) = parse(&with_more).expect("good").expect("whole");
        assert_eq!(total, whole.len());
    }
    let Ok(Some((FirstPacket::Startup(read), _))) = parse(&startup) else { panic!("no startup") };
    assert_eq!(read.version, ProtocolVersion::V3_2);
    let parameters: Vec<_> = read.parameters().collect();
    assert_eq!(parameters, [("user", "a"), ("options", ""), ("user", "b")]);
    assert_eq!((read.parameter("user"), read.parameter("database")), (Some("b"), None));
    assert_eq!(parse(&ssl), Ok(Some((FirstPacket::Ssl, 8))));
    assert_eq!(parse(&cancel), Ok(Some((FirstPacket::Cancel { pid: 7, key: &[9; 32] }, 44))));
}

#[test]
fn a_packet_that_is_none_is_refused_early() {
    let too_long = u32::try_from(STARTUP_BYTES_MAX + 1).expect("small");
    for (bytes, error) in [
        (0_u32.to_be_bytes().to_vec(), StartupError::Length(0)),
        (7_u32.to_be_bytes().to_vec(), StartupError::Length(7)),
        (too_long.to_be_bytes().to_vec(), StartupError::Length(too_long)),
        (b"GET / HTTP/1.1".to_vec(), StartupError::Length(0x4745_5420)),
        (u32::MAX.to_be_bytes().to_vec(), StartupError::Length(u32::MAX)),
        (packet(SSL_REQUEST, b"x"), StartupError::Length(9)),
        (packet(GSS_REQUEST, b"x"), StartupError::Length(9)),
        (packet(CANCEL_REQUEST, b""), StartupError::Length(8)),
        (packet(CANCEL_REQUEST, &[0; 7]), StartupError::Length(15)),
        (packet(CANCEL_REQUEST, &[0; 261]), StartupError::Length(269)),
        (packet(0x0002_0000, b"\0"), StartupError::Version(ProtocolVersion { major: 2, minor: 0 })),
        (packet(0x0004_0000, b"\0"), StartupError::Version(ProtocolVersion { major: 4, minor: 0 })),
        (packet(0x0003_0000, b""), StartupError::Layout),
        (packet(0x0003_0000, b"user"), StartupError::Layout),
        (packet(0x0003_0000, b"user\0"), StartupError::Layout),
        (packet(0x0003_0000, b"user\0a\0"), StartupError::Layout),
        (packet(0x0003_0000, b"user\0\0"), StartupError::Layout),
        (packet(0x0003_0000, b"user\0a\0\0\0"), StartupError::Layout),
        (packet(0x0003_0000, b"\0a\0\0"), StartupError::Layout),
        (packet(0x0003_0000, b"user\0a\0\0b\0\0"), StartupError::Layout),
        (packet(0x0003_0000, b"user\0\xff\0\0"), StartupError::NotUtf8),
    ] {
        assert_eq!(parse(&bytes), Err(error), "{}", bytes.escape_ascii());
    }
    assert!(matches!(parse(&packet(0x0003_0000, b"\0")), Ok(Some((FirstPacket::Startup(_), 9)))));
}

#[test]
fn options_are_read_as_the_server_reads_them() {
    let of = |pairs: &[(&str, &str)]| {
        Ok(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    };
    let no_value = |text: &str| Err(OptionsError::NoValue(text.to_owned()));
    let unsupported = |text: &str| Err(OptionsError::Unsupported(text.to_owned()));
    for (text, expected) in [
        ("", of(&[])),
        ("  ", of(&[])),
        ("-c a=b", of(&[("a", "b")])),
        ("-ca=b", of(&[("a", "b")])),
        ("--a=b", of(&[("a", "b")])),
        (" -c\ttenant_id=x \n --work-mem=1MB ", of(&[("tenant_id", "x"), ("work_mem", "1MB")])),
        ("-c search_path=a,\\ b\\\\c", of(&[("search_path", "a, b\\c")])),
        ("-c a==", of(&[("a", "=")])),
        ("-c a=", of(&[("a", "")])),
        ("-c \\\\=\\", of(&[("\\", "")])),
        ("-c a\u{a0}=é", of(&[("a\u{a0}", "é")])),
        ("-c", no_value("-c")),
        ("-c a", no_value("a")),
        ("-c =a", no_value("=a")),
        ("--a", no_value("a")),
        ("--", unsupported("--")),
        ("-d 1", unsupported("-d")),
        ("a=b", unsupported("a=b")),
    ] {
        assert_eq!(options(text), expected, "{text:?}");
    }
}

proptest! {
    #[test]
    fn random_bytes_are_refused_or_wait(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(Some((_, total))) = parse(&bytes) {
            prop_assert!(total <= bytes.len());
        }
    }

    /// Every name has a value and neither contains a NUL byte, whatever bytes were changed.
    #[test]
    fn a_mutated_startup_gives_sound_parameters(
        changes in proptest::collection::vec((0_usize..60, any::<u8>()), 0..6),
        pairs in proptest::collection::vec(("[a-z_]{1,8}", "[a-z\\\\ =-]{0,8}"), 0..4),
    ) {
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut bytes = Vec::new();
        frontend::startup(&mut bytes, ProtocolVersion::V3_0, &pairs);
        if changes.is_empty() {
            let Ok(Some((FirstPacket::Startup(startup), _))) = parse(&bytes) else {
                return Err(TestCaseError::fail("not read"));
            };
            prop_assert_eq!(startup.parameters().collect::<Vec<_>>(), pairs);
            return Ok(());
        }
        for (place, value) in changes {
            if let Some(byte) = bytes.get_mut(place) {
                *byte = value;
            }
        }
        if let Ok(Some((FirstPacket::Startup(startup), _))) = parse(&bytes) {
            for (name, value) in startup.parameters() {
                prop_assert!(!name.is_empty() && !name.contains('\0') && !value.contains('\0'));
                drop(options(value));
            }
        }
    }

    #[test]
    fn options_take_any_text(text in ".{0,60}") {
        for (name, _) in options(&text).unwrap_or_default() {
            prop_assert!(!name.is_empty());
        }
    }
}
