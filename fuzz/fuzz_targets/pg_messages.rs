//! Frames, first packets and notices of PostgreSQL's protocol: a message that was read and written
//! again reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::pg::frame::{HEADER_BYTES, PgHeader, put_header, split_string};
use wire::pg::message::frontend;
use wire::pg::notice::ServerNotice;
use wire::pg::startup::{self, FirstPacket};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(header)) = PgHeader::parse(bytes) {
        let mut written = Vec::new();
        put_header(&mut written, header.tag, header.body());
        assert_eq!(Some(written.as_slice()), bytes.get(..HEADER_BYTES));
    }
    if let Some((string, rest)) = split_string(bytes) {
        assert_eq!(string.len() + 1 + rest.len(), bytes.len());
    }
    let notice = ServerNotice::parse(bytes);
    let _ = (notice.severity(), notice.code(), notice.message(), notice.detail(), notice.hint());
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = startup::options(text);
    }
    if let Ok(Some((packet, total))) = startup::parse(bytes) {
        let mut written = Vec::new();
        match packet {
            FirstPacket::Ssl => frontend::ssl_request(&mut written),
            FirstPacket::Gss => return,
            FirstPacket::Cancel { pid, key } => frontend::cancel_request(&mut written, pid, key),
            FirstPacket::Startup(startup) => {
                let parameters: Vec<(&str, &str)> = startup.parameters().collect();
                frontend::startup(&mut written, startup.version, &parameters);
            }
        }
        let (second, _) = startup::parse(&written).expect("a packet of ours").expect("all of it");
        assert!(total <= bytes.len());
        match (packet, second) {
            (FirstPacket::Startup(one), FirstPacket::Startup(other)) => {
                assert_eq!(one.version, other.version);
                assert!(one.parameters().eq(other.parameters()));
            }
            (one, other) => assert_eq!(one, other),
        }
    }
});
