//! Both sides of each method, and users that do not exist.

use super::*;
use crate::pg::secret::PlainPassword;

const NONCE: &[u8; NONCE_BYTES] = b"abcdefghijklmnopqrst";

fn nonce() -> AuthNonce {
    AuthNonce::parse(NONCE).expect("a nonce")
}

#[test]
fn nonces_are_texts_without_nul_and_dollar() {
    for byte in 0..=u8::MAX {
        let nonce = AuthNonce::new([byte; NONCE_BYTES]);
        let bytes = nonce.bytes();
        assert!(bytes.iter().all(|byte| (1..128).contains(byte) && *byte != b'$'), "{byte}");
    }
    let with_nul = [&NONCE[..], b"\0"].concat();
    assert_eq!(AuthNonce::parse(&with_nul), Some(nonce()));
    for bad in [&b""[..], &NONCE[..19], b"abcdefghijklmnopqrs\0t\0"] {
        assert!(AuthNonce::parse(bad).is_none(), "{bad:?}");
    }
    assert_eq!(
        nonce().over(&nonce().over(b"longer than the nonce is, by some")),
        b"longer than the nonce is, by some"
    );
}

#[test]
fn hashes_are_those_of_mysql() {
    // SELECT PASSWORD('secret')
    let stored = NativeHash::parse("*14E65567ABDB5135D0CFD9A70B3032C179A49EE7").expect("a hash");
    assert_eq!(NativeKey::of("secret").hash(), stored);
    assert!(stored.is_of("secret") && !stored.is_of("Secret"));
    for bad in ["", "*", "*14E6", "*14E65567ABDB5135D0CFD9A70B3032C179A49EEx"] {
        assert_eq!(NativeHash::parse(bad), None, "{bad}");
    }
}

#[test]
fn a_proof_gives_the_key_away_to_who_knows_the_hash() {
    let (key, other) = (NativeKey::of("secret"), NativeKey::of("other"));
    assert_eq!(key.hash().accepts(&nonce(), &key.answer(&nonce())), Some(key.clone()));
    assert_eq!(key.hash().accepts(&nonce(), &other.answer(&nonce())), None);
    assert_eq!(key.hash().accepts(&nonce(), b""), None);
    assert_eq!(key.hash().accepts(&AuthNonce::new([1; 20]), &key.answer(&nonce())), None);
    let (key, other) = (Sha2Key::of("secret"), Sha2Key::of("other"));
    assert_eq!(key.hash().accepts(&nonce(), &key.answer(&nonce())), Some(key.clone()));
    assert_eq!(key.hash().accepts(&nonce(), &other.answer(&nonce())), None);
    assert_eq!(key.hash().accepts(&nonce(), &[0; 31]), None);
    assert_eq!(key.hash().accepts(&AuthNonce::new([1; 20]), &key.answer(&nonce())), None);
}

#[test]
fn secrets_are_told_apart() {
    let sha2 = Sha2Crypt::derive("secret", [b's'; 20], 5000).to_string();
    let more_rounds = Sha2Crypt::derive("secret", [b's'; 20], 16_000).to_string();
    for (text, expected) in [
        ("", Err(MysqlSecretError::Empty)),
        ("a\0b", Err(MysqlSecretError::Nul)),
        ("$A$005$short", Err(MysqlSecretError::MalformedSha2)),
        ("$A$010$short", Err(MysqlSecretError::MalformedSha2)),
        ("$A$", Ok("plain")),
        ("$A$00five$", Ok("plain")),
        (&more_rounds, Ok("sha2")),
        ("*", Ok("plain")),
        ("*14E65567ABDB5135D0CFD9A70B3032C179A49EE7", Ok("native")),
        (&sha2, Ok("sha2")),
    ] {
        let kind = MysqlSecret::parse(text).map(|secret| match secret {
            MysqlSecret::Plain(_) => "plain",
            MysqlSecret::Native(_) => "native",
            MysqlSecret::Sha2(_) => "sha2",
        });
        assert_eq!(kind, expected, "{text}");
    }
}

#[test]
fn a_password_is_accepted_in_every_way_its_secret_allows() {
    let plain = MysqlSecret::Plain(PlainPassword::new("secret".to_owned()));
    let native = MysqlSecret::Native(NativeKey::of("secret").hash());
    let sha2 = MysqlSecret::Sha2(Sha2Crypt::derive("secret", [b's'; 20], 5000));
    let (native_key, sha2_key) = (NativeKey::of("secret"), Sha2Key::of("secret"));
    let wrong_key = Sha2Key::of("wrong");
    let right = FastAuthResult::Right(sha2_key.clone());
    for (secret, by_native, by_sha2, of_wrong) in [
        (plain, true, right, FastAuthResult::Wrong),
        (native, true, FastAuthResult::Wrong, FastAuthResult::Wrong),
        (sha2, false, FastAuthResult::Unknown, FastAuthResult::Unknown),
    ] {
        let verifier = MysqlVerifier::new(secret);
        let answer_key = verifier.accepts_native(&nonce(), &native_key.answer(&nonce()));
        assert_eq!(answer_key, by_native.then(|| native_key.clone()), "{verifier:?}");
        assert_eq!(verifier.takes(AuthPlugin::Native), by_native);
        assert_eq!(verifier.accepts_sha2(&nonce(), &sha2_key.answer(&nonce())), by_sha2);
        assert_eq!(verifier.accepts_sha2(&nonce(), &wrong_key.answer(&nonce())), of_wrong);
        for wrong in [&b""[..], b"Secret", b"secret\0", b"secre", b"\xff"] {
            assert!(!verifier.accepts_password(wrong), "{verifier:?} {wrong:?}");
        }
        assert!(verifier.accepts_password(b"secret"), "{verifier:?}");
        // From now on a proof is sufficient.
        if verifier.takes(AuthPlugin::CachingSha2) {
            let known = verifier.accepts_sha2(&nonce(), &sha2_key.answer(&nonce()));
            assert_eq!(known, FastAuthResult::Right(sha2_key.clone()), "{verifier:?}");
            assert!(verifier.accepts_password(b"secret") && !verifier.accepts_password(b"wrong"));
        }
    }
}

#[test]
fn a_user_that_does_not_exist_looks_the_same_and_is_not_let_in() {
    for kind in SecretKind::ALL {
        let real = MysqlVerifier::new(match kind {
            SecretKind::Sha2 => MysqlSecret::Sha2(Sha2Crypt::derive("secret", [b's'; 20], 5000)),
            SecretKind::Native => MysqlSecret::Native(NativeKey::of("secret").hash()),
            SecretKind::Plain => MysqlSecret::Plain(PlainPassword::new("secret".to_owned())),
        });
        let mock = MysqlVerifier::mock("nobody", &[7; 32], kind);
        assert!(mock.secret().is_none() && real.secret().is_some());
        for one in [AuthPlugin::Native, AuthPlugin::CachingSha2, AuthPlugin::Clear] {
            assert_eq!(mock.plugin(one), real.plugin(one), "{kind:?}");
            assert_eq!(mock.takes(one), real.takes(one), "{kind:?}");
        }
        assert_eq!(mock.accepts_native(&nonce(), &NativeKey::of("").answer(&nonce())), None);
        let wrong = Sha2Key::of("wrong").answer(&nonce());
        assert_eq!(mock.accepts_sha2(&nonce(), &wrong), real.accepts_sha2(&nonce(), &wrong));
        assert!(!mock.accepts_password(b"") && !mock.accepts_password(b"secret"));
    }
}

#[test]
fn nothing_secret_is_printed() {
    for secret in [
        MysqlSecret::Plain(PlainPassword::new("hidden".to_owned())),
        MysqlSecret::Native(NativeKey::of("hidden").hash()),
        MysqlSecret::Sha2(Sha2Crypt::derive("hidden", [b'h'; 20], 5000)),
    ] {
        let debug_text = format!("{:?}", MysqlVerifier::new(secret));
        assert!(!debug_text.contains("hidden") && !debug_text.contains('['), "{debug_text}");
    }
}
