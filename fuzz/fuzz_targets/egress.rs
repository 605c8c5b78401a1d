//! The gateway's parsing of hosts, paths and the first TLS message: the sent value parses as the
//! value that was compared with rules.
#![no_main]

use gateway::egress::hello::{self, FirstBytes};
use gateway::egress::host::{HostPattern, RequestHost};
use gateway::egress::path::{PathPattern, RequestPath};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The result does not depend on how the bytes are split into reads: once known, it stays.
    let whole = hello::read(bytes);
    for end in 0..bytes.len() {
        let part = hello::read(&bytes[..end]);
        assert!(part == FirstBytes::Partial || part == whole, "{part:?} of {end} bytes, {whole:?}");
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(host) = RequestHost::parse(text) {
        assert_eq!(RequestHost::parse(&host.authority()).as_ref(), Some(&host));
        assert!(hello::is_for(host.name(), &host));
    }
    if let Some(pattern) = HostPattern::parse(text) {
        assert!(pattern.covers(&pattern));
    }
    if let RequestPath::Plain { text, sent } = RequestPath::read(text) {
        assert_eq!(RequestPath::read(&sent), RequestPath::Plain { text, sent: sent.clone() });
    }
    let _ = PathPattern::parse(text);
});
