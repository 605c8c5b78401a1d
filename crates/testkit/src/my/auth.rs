//! Client side of password authentication.

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Plugin of MariaDB, and of MySQL before 8.
pub const NATIVE: &str = "mysql_native_password";
/// Plugin of MySQL 8.
pub const CACHING_SHA2: &str = "caching_sha2_password";

/// Returns the authentication data for a plugin and a nonce; none for an unknown plugin.
pub(super) fn proof(plugin: &str, password: &str, nonce: &[u8]) -> Option<Vec<u8>> {
    if ![NATIVE, CACHING_SHA2].contains(&plugin) {
        return None;
    }
    if password.is_empty() {
        return Some(Vec::new());
    }
    Some(if plugin == NATIVE { native(password, nonce) } else { sha2(password, nonce) })
}

/// SHA1(password) XOR SHA1(nonce, SHA1(SHA1(password))).
fn native(password: &str, nonce: &[u8]) -> Vec<u8> {
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    xor(&once, &Sha1::new().chain_update(nonce).chain_update(twice).finalize())
}

/// SHA256(password) XOR SHA256(SHA256(SHA256(password)), nonce).
fn sha2(password: &str, nonce: &[u8]) -> Vec<u8> {
    let once = Sha256::digest(password);
    let twice = Sha256::digest(once);
    xor(&once, &Sha256::new().chain_update(twice).chain_update(nonce).finalize())
}

fn xor(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(one, other)| one ^ other).collect()
}
