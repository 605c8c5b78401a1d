//! Tests of SCRAM: the published example, both sides against each other, and hostile messages.

use proptest::prelude::*;

use super::*;

const SALT: &[u8] = b"0123456789abcdef";

/// Few, because unoptimised hashing is slow.
const ITERATIONS: u32 = 16;

fn secret() -> ScramSecret {
    ScramSecret::derive("secret", SALT, ITERATIONS)
}

/// Returns the client's nonce.
fn nonce(client: &ScramClient) -> String {
    client.first().split_once("r=").expect("a nonce").1.to_owned()
}

/// Runs a whole exchange, with each side's channel binding and the client's password.
fn exchange(
    client: ChannelBinding<'_>,
    server: ChannelBinding<'_>,
    password: &str,
) -> Result<[u8; 32], ScramError> {
    let secret = secret();
    let client = ScramClient::new(client, [1; NONCE_BYTES]);
    let (mechanism, first) = (client.mechanism(), client.first());
    let (server, challenge) =
        ScramServer::first(&secret, server, mechanism, first.as_bytes(), [2; NONCE_BYTES])?;
    let challenge = client.challenge(challenge.as_bytes())?;
    let keys = ScramKeys::derive(password, &challenge.salt, challenge.iterations);
    let (last, expected) = challenge.answer(&keys);
    let accepted = server.last(&secret, last.as_bytes())?;
    expected.check(accepted.message.as_bytes())?;
    Ok(accepted.client_key)
}

#[test]
fn the_example_of_rfc_7677() {
    let salt = b"\x5b\x6d\x99\x68\x9d\x12\x35\x8e\xec\xa0\x4b\x14\x12\x36\xfa\x81";
    let secret = ScramSecret::derive("pencil", salt, 4096);
    let bare = "n=user,r=rOprNGfwEbeRWgbNEkqO";
    let server_first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    let without_proof = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let auth_message = format!("{bare},{server_first},{without_proof}");
    let parts = [auth_message.as_bytes()];
    let proof = keys::decode_key("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").expect("a proof");
    let signature = keys::decode_key("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    assert!(secret.check(proof, &parts).is_some());
    assert_eq!(Some(secret.signature(&parts)), signature);
    let keys = ScramKeys::derive("pencil", salt, 4096);
    assert_eq!((keys.proof(&parts), Some(keys.signature(&parts))), (proof, signature));
}

#[test]
fn both_sides_agree_or_say_why_not() {
    let (own, other) = (ChannelBinding::EndPoint(b"hash"), ChannelBinding::EndPoint(b"other"));
    for (client, server, password, expected) in [
        (ChannelBinding::Unbound, ChannelBinding::Unbound, "secret", None),
        (ChannelBinding::NotOffered, ChannelBinding::Unbound, "secret", None),
        (own, own, "secret", None),
        (ChannelBinding::Unbound, own, "secret", None),
        (ChannelBinding::Unbound, ChannelBinding::Unbound, "Secret", Some(ScramError::Proof)),
        (own, own, "", Some(ScramError::Proof)),
        // An attacker on the path has another certificate, or has removed the offer.
        (other, own, "secret", Some(ScramError::ChannelBinding)),
        (ChannelBinding::NotOffered, own, "secret", Some(ScramError::ChannelBinding)),
        (own, ChannelBinding::Unbound, "secret", Some(ScramError::ChannelBinding)),
    ] {
        let outcome = exchange(client, server, password);
        assert_eq!(outcome.err(), expected, "{client:?} {server:?} {password}");
    }
}

#[test]
fn the_key_of_a_proof_logs_in_to_a_server_with_the_same_secret() {
    let client_key =
        exchange(ChannelBinding::Unbound, ChannelBinding::Unbound, "secret").expect("accepted");
    let keys = secret().keys(client_key);
    assert_eq!(keys, ScramKeys::derive("secret", SALT, ITERATIONS));
    assert!(keys.fit(SALT, ITERATIONS) && !keys.fit(SALT, 17) && !keys.fit(b"x", ITERATIONS));
}

#[test]
fn a_secret_is_written_as_postgresql_does_and_read_again() {
    let text = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
                WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    let secret = ScramSecret::parse(text).expect("a secret");
    assert_eq!(secret.to_string(), text);
    assert!(secret.is_of("pencil") && !secret.is_of("Pencil"));
    for broken in [
        text.replace("4096", "0"),
        text.replace("4096", "4294967297"),
        text.replace("4096", "2000000"),
        text.replace("4096", "-1"),
        text.replace("W22ZaJ0SNY7soEsUEjb6gQ==", ""),
        text.replace("gQ==", "gQ"),
        text.replace("dU=", ""),
        text.replace(':', "$"),
        text.replace("256", "512"),
        format!("{text}x"),
    ] {
        assert_eq!(ScramSecret::parse(&broken), None, "{broken}");
    }
}

#[test]
fn passwords_are_prepared_where_they_can_be() {
    // RFC 4013: a soft hyphen is removed, a full-width letter is mapped to the ordinary one.
    let plain = ScramSecret::derive("IX", SALT, ITERATIONS);
    assert_eq!(ScramSecret::derive("I\u{ad}X", SALT, ITERATIONS), plain);
    assert_eq!(ScramSecret::derive("\u{2168}", SALT, ITERATIONS), plain);
    // A control character is prohibited; the password is used unchanged.
    let raw = ScramSecret::derive("I\u{ad}X\u{7}", SALT, ITERATIONS);
    assert_ne!(raw, ScramSecret::derive("IX\u{7}", SALT, ITERATIONS));
}

#[test]
fn what_a_client_may_not_say_first() {
    let unsupported = |what| Some(ScramError::Unsupported(what));
    let malformed = |what| Some(ScramError::Malformed(what));
    let long = format!("n,,n=,r={}", "x".repeat(SCRAM_BYTES_MAX));
    for (mechanism, message, expected) in [
        (MECHANISM, &b"n,,n=,r=abc"[..], None),
        (MECHANISM, b"n,,n=someone,r=abc,x=more", None),
        (MECHANISM, b"y,,n=,r=abc", None),
        (MECHANISM, b"", malformed("no header")),
        (MECHANISM, b"n,", malformed("no header")),
        (MECHANISM, b"n,,", malformed("an attribute is missing")),
        (MECHANISM, b"n,,r=abc", malformed("an attribute is missing")),
        (MECHANISM, b"n,,n=", malformed("an attribute is missing")),
        (MECHANISM, b"n,,n=,r=", malformed("nonce")),
        (MECHANISM, b"n,,n=,r=a b", malformed("nonce")),
        (MECHANISM, "n,,n=,r=ä".as_bytes(), malformed("nonce")),
        (MECHANISM, b"n,,n=,r=\xff", malformed("not UTF-8")),
        (MECHANISM, long.as_bytes(), malformed("too long")),
        (MECHANISM, b"n,a=root,n=,r=abc", unsupported("an authorization identity")),
        (MECHANISM, b"n,,m=x,n=,r=abc", unsupported("a mandatory extension")),
        ("SCRAM-SHA-1", b"n,,n=,r=abc", unsupported("the mechanism")),
        (MECHANISM, b"p=tls-unique,,n=,r=abc", Some(ScramError::ChannelBinding)),
        (MECHANISM, b"z,,n=,r=abc", Some(ScramError::ChannelBinding)),
        (MECHANISM_PLUS, b"n,,n=,r=abc", Some(ScramError::ChannelBinding)),
    ] {
        let channel = ChannelBinding::Unbound;
        let outcome = ScramServer::first(&secret(), channel, mechanism, message, [2; NONCE_BYTES]);
        assert_eq!(outcome.err(), expected, "{}", message.escape_ascii());
    }
}

#[test]
fn what_a_server_may_not_challenge_with() {
    let ours = nonce(&ScramClient::new(ChannelBinding::Unbound, [1; NONCE_BYTES]));
    let malformed = |what| Some(ScramError::Malformed(what));
    let salt = "s=MDEyMw==";
    let long = "A".repeat(4 * 512);
    for (message, expected) in [
        (format!("r={ours}x,{salt},i=4096"), None),
        (format!("r={ours}x,{salt},i=4096,x=more"), None),
        (format!("r={ours},{salt},i=4096"), Some(ScramError::Nonce)),
        (format!("r=x{ours},{salt},i=4096"), Some(ScramError::Nonce)),
        (format!("r={ours}x,{salt},i=1000001"), Some(ScramError::Iterations(1_000_001))),
        (format!("r={ours}x,{salt},i=4294967297"), Some(ScramError::Iterations(1 << 32 | 1))),
        (format!("r={ours}x,{salt},i=0"), malformed("iterations")),
        (format!("r={ours}x,{salt},i=-1"), malformed("iterations")),
        (format!("r={ours}x,s=,i=1"), malformed("salt")),
        (format!("r={ours}x,s=?,i=1"), malformed("salt")),
        (format!("r={ours}x,s={long},i=1"), malformed("salt")),
        (format!("r={ours}x,{salt}"), malformed("an attribute is missing")),
        (format!("r={ours}{}", "x".repeat(SCRAM_BYTES_MAX)), malformed("too long")),
        (String::new(), malformed("an attribute is missing")),
        (format!("m=x,r={ours}x"), Some(ScramError::Unsupported("a mandatory extension"))),
    ] {
        let client = ScramClient::new(ChannelBinding::Unbound, [1; NONCE_BYTES]);
        assert_eq!(client.challenge(message.as_bytes()).err(), expected, "{message}");
    }
}

#[test]
fn a_server_that_does_not_know_the_secret_is_not_believed() {
    for (message, expected) in [
        ("v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", ScramError::Signature),
        ("v=AAAA", ScramError::Malformed("signature")),
        ("", ScramError::Malformed("an attribute is missing")),
        ("e=other-error", ScramError::Refused),
        (&"v".repeat(SCRAM_BYTES_MAX + 1), ScramError::Malformed("too long")),
    ] {
        let client = ScramClient::new(ChannelBinding::Unbound, [1; NONCE_BYTES]);
        let server_first = format!("r={}x,s=MDEyMw==,i=1", nonce(&client));
        let challenge = client.challenge(server_first.as_bytes()).expect("good");
        let (_, end) = challenge.answer(&ScramKeys::derive("secret", b"0123", 1));
        assert_eq!(end.check(message.as_bytes()), Err(expected), "{message}");
    }
}

proptest! {
    /// A final message with one changed byte proves nothing, unless the byte has no meaning: those
    /// after the nonce belong to an extension.
    #[test]
    fn a_changed_proof_is_refused(place in 0_usize..200, by in 1_u8..=255) {
        let secret = secret();
        let client = ScramClient::new(ChannelBinding::Unbound, [1; NONCE_BYTES]);
        let first = client.first();
        let (server, challenge) = ScramServer::first(
            &secret, ChannelBinding::Unbound, MECHANISM, first.as_bytes(), [2; NONCE_BYTES],
        ).expect("good");
        let challenge = client.challenge(challenge.as_bytes()).expect("good");
        let keys = ScramKeys::derive("secret", SALT, ITERATIONS);
        let mut last = challenge.answer(&keys).0.into_bytes();
        let place = place % last.len();
        last[place] ^= by;
        prop_assert!(server.last(&secret, &last).is_err());
    }

    #[test]
    fn random_messages_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let first = ScramServer::first(
            &secret(), ChannelBinding::EndPoint(b"x"), MECHANISM_PLUS, &bytes, [2; NONCE_BYTES],
        );
        prop_assert!(first.is_err());
        let client = ScramClient::new(ChannelBinding::Unbound, [1; NONCE_BYTES]);
        prop_assert!(client.challenge(&bytes).is_err());
    }
}

#[test]
fn keys_that_were_exported_are_the_same() {
    let keys = ScramKeys::derive("secret", SALT, ITERATIONS);
    let text = keys.export();
    assert_eq!(ScramKeys::import(&text), Some(keys));
    for (at, _) in text.char_indices() {
        assert_eq!(ScramKeys::import(&text[..at]), None, "{at}");
    }
    for other in ["", ":::", "x", &format!("{}:", *text), &format!("-{}", *text)] {
        assert_eq!(ScramKeys::import(other), None, "{other}");
    }
}
