//! Logins of both protocols: SCRAM from either side, secrets, proofs. No message is a valid proof
//! without the password.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use wire::mysql::auth::{AuthNonce, MysqlSecret, NativeHash, NativeKey, Sha2Crypt};
use wire::pg::scram::{
    ChannelBinding, MECHANISM, MECHANISM_PLUS, NONCE_BYTES, ScramClient, ScramSecret, ScramServer,
};
use wire::pg::secret::PgSecret;

static SECRET: LazyLock<ScramSecret> =
    LazyLock::new(|| ScramSecret::derive("correct horse", b"0123456789abcdef", 1));
static NATIVE: LazyLock<NativeHash> = LazyLock::new(|| NativeKey::of("correct horse").hash());

fuzz_target!(|bytes: &[u8]| {
    let (first, last) = bytes.split_at(bytes.iter().position(|it| *it == 0).unwrap_or(bytes.len()));
    for mechanism in [MECHANISM, MECHANISM_PLUS] {
        for channel in [ChannelBinding::Unbound, ChannelBinding::EndPoint(b"hash")] {
            let nonce = [7; NONCE_BYTES];
            if let Ok((server, _)) = ScramServer::first(&SECRET, channel, mechanism, first, nonce) {
                assert!(server.last(&SECRET, last.get(1..).unwrap_or_default()).is_err());
            }
        }
    }
    let _ = ScramClient::new(ChannelBinding::Unbound, [7; NONCE_BYTES]).challenge(bytes);
    if let Some(nonce) = AuthNonce::parse(first) {
        assert!(NATIVE.accepts(&nonce, last).is_none());
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = ScramSecret::parse(text);
    let _ = PgSecret::parse(text);
    let _ = MysqlSecret::parse(text);
    let _ = Sha2Crypt::parse(text);
});
