//! Signed tokens: valid ones, and every way to forge one.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use serde_json::{Value, json};
use testkit::{Receiver, Scratch};

use super::*;

/// Keys of every kind, generated for this run; except for RSA, which takes long, a fixed unused
/// key.
struct Signers {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    ed: Ed25519KeyPair,
    /// Key of another issuer.
    stranger: Ed25519KeyPair,
}

static SIGNERS: LazyLock<Signers> = LazyLock::new(|| {
    let random = SystemRandom::new();
    let rsa: String = include_str!("tests/rsa.txt").split_whitespace().collect();
    let rsa = RsaKeyPair::from_pkcs8(&STANDARD.decode(rsa).unwrap()).unwrap();
    let signing = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let p256 = EcdsaKeyPair::generate_pkcs8(signing, &random).unwrap();
    let p256 = EcdsaKeyPair::from_pkcs8(signing, p256.as_ref(), &random).unwrap();
    let ed = || {
        let made = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap()
    };
    Signers { rsa, p256, ed: ed(), stranger: ed() }
});

fn text(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn rsa_key(id: &str) -> Value {
    let PublicKeyComponents { n, e } = PublicKeyComponents::<Vec<u8>>::from(SIGNERS.rsa.public());
    json!({"kty": "RSA", "kid": id, "use": "sig", "alg": "RS256",
        "n": text(n),
        "e": text(e)})
}

fn p256_key(id: &str) -> Value {
    let point = SIGNERS.p256.public_key().as_ref();
    json!({"kty": "EC", "crv": "P-256", "kid": id, "x": text(&point[1..33]),
        "y": text(&point[33..])})
}

fn ed_key(id: &str) -> Value {
    json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": text(SIGNERS.ed.public_key())})
}

fn all_keys() -> Value {
    let other = json!({"kty": "EC", "crv": "P-521", "kid": "other", "x": "", "y": ""});
    let secret = json!({"kty": "oct", "kid": "secret", "k": "AAAA"});
    json!({"keys": [rsa_key("rsa"), p256_key("p256"), ed_key("ed"), other, secret]})
}

fn sign(algorithm: &str, signed: &str) -> Vec<u8> {
    let bytes = signed.as_bytes();
    match algorithm {
        "RS256" => {
            let mut signature = vec![0; SIGNERS.rsa.public().modulus_len()];
            let random = SystemRandom::new();
            SIGNERS.rsa.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).unwrap();
            signature
        }
        "ES256" => SIGNERS.p256.sign(&SystemRandom::new(), bytes).unwrap().as_ref().to_vec(),
        "EdDSA" => SIGNERS.ed.sign(bytes).as_ref().to_vec(),
        "stranger" => SIGNERS.stranger.sign(bytes).as_ref().to_vec(),
        _ => Vec::new(),
    }
}

/// Returns a token with this header and these claims, unchanged, signed in this way.
fn written(header: &str, claims: &str, signer: &str) -> String {
    let signed = format!("{}.{}", text(header), text(claims));
    let signature = text(sign(signer, &signed));
    format!("{signed}.{signature}")
}

fn now() -> u64 {
    clock::wall_ms() / 1000
}

fn claims() -> Value {
    json!({"iss": "https://id.example", "aud": "lake", "sub": "ada", "exp": now() + 600,
        "groups": ["data", "Big Data"]})
}

fn token(algorithm: &str, key: &str, claims: &Value) -> String {
    let header = json!({"alg": algorithm, "kid": key, "typ": "JWT"});
    written(&header.to_string(), &claims.to_string(), algorithm)
}

fn issuer(file: &std::path::Path) -> IssuerConfig {
    IssuerConfig {
        name: "example".to_owned(),
        issuer: "https://id.example".to_owned(),
        audience: "lake".to_owned(),
        jwks_file: Some(file.to_owned()),
        ..IssuerConfig::default()
    }
}

fn with_keys(scratch: &Scratch, keys: &Value) -> TrustedIssuers {
    let file = scratch.path().join("jwks.json");
    std::fs::write(&file, keys.to_string()).unwrap();
    TrustedIssuers::new(vec![issuer(&file)]).unwrap()
}

async fn verify(issuers: &TrustedIssuers, token: &str) -> Result<VerifiedBearer> {
    issuers.verify(token, clock::wall_ms()).await
}

#[tokio::test]
async fn a_token_of_every_algorithm_is_somebody() {
    let scratch = Scratch::new();
    let issuers = with_keys(&scratch, &all_keys());
    for (algorithm, key) in [("RS256", "rsa"), ("ES256", "p256"), ("EdDSA", "ed")] {
        let token = token(algorithm, key, &claims());
        let VerifiedBearer { issuer, claims, .. } = verify(&issuers, &token).await.unwrap();
        assert_eq!((&*issuer, &*claims.principal), ("example", "ada"));
        assert_eq!(claims.groups, ["data", "Big Data"]);
        assert_eq!(claims.all["aud"], "lake");
    }
    // A single possible key, and other forms of the same claims.
    let header = r#"{"alg":"EdDSA"}"#;
    let mut other = claims();
    other["aud"] = json!(["else", "lake"]);
    other["groups"] = json!("data all");
    other["nbf"] = json!(now() + 10);
    let token = written(header, &other.to_string(), "EdDSA");
    assert_eq!(verify(&issuers, &token).await.unwrap().claims.groups.len(), 2);
}

#[tokio::test]
async fn what_is_forged_or_for_others_is_refused() {
    let scratch = Scratch::new();
    let issuers = with_keys(&scratch, &all_keys());
    let with = |name: &str, value: Value| {
        let mut all = claims();
        all[name] = value;
        token("EdDSA", "ed", &all)
    };
    let headed = |header: &str, signer: &str| written(header, &claims().to_string(), signer);
    let good = token("EdDSA", "ed", &claims());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let mut public_as_secret = hmac_of(signed);
    public_as_secret.insert(0, '.');
    let long = with("note", json!("x".repeat(JWT_BYTES_MAX)));
    let twice = claims().to_string().replacen('{', r#"{"sub":"root","#, 1);
    for (what, token) in [
        ("no signature", format!("{signed}.")),
        ("none", headed(r#"{"alg":"none"}"#, "")),
        ("None", headed(r#"{"alg":"None","kid":"ed"}"#, "EdDSA")),
        ("no alg", headed(r#"{"kid":"ed"}"#, "EdDSA")),
        ("alg is a list", headed(r#"{"alg":["EdDSA"],"kid":"ed"}"#, "EdDSA")),
        ("a secret's algorithm", headed(r#"{"alg":"HS256","kid":"ed"}"#, "EdDSA")),
        ("a public key as a secret", format!("{}{public_as_secret}", text(r#"{"alg":"HS256"}"#))),
        ("another kind of key", headed(r#"{"alg":"RS256","kid":"ed"}"#, "EdDSA")),
        ("another kind of key", headed(r#"{"alg":"ES256","kid":"rsa"}"#, "ES256")),
        ("a stranger's key", headed(r#"{"alg":"EdDSA","kid":"ed"}"#, "stranger")),
        ("an unknown key", headed(r#"{"alg":"EdDSA","kid":"new"}"#, "EdDSA")),
        ("an empty kid", headed(r#"{"alg":"EdDSA","kid":""}"#, "EdDSA")),
        ("crit", headed(r#"{"alg":"EdDSA","kid":"ed","crit":["x"]}"#, "EdDSA")),
        ("b64", headed(r#"{"alg":"EdDSA","kid":"ed","b64":false}"#, "EdDSA")),
        ("another purpose", headed(r#"{"alg":"EdDSA","kid":"ed","typ":"logout+jwt"}"#, "EdDSA")),
        ("a key of its own", headed(r#"{"alg":"EdDSA","jwk":{},"kid":"new"}"#, "stranger")),
        ("alg twice", headed(r#"{"alg":"EdDSA","alg":"EdDSA","kid":"ed"}"#, "EdDSA")),
        ("sub twice", written(r#"{"alg":"EdDSA","kid":"ed"}"#, &twice, "EdDSA")),
        ("other claims", {
            let other = with("sub", json!("root"));
            format!("{}.{signature}", other.rsplit_once('.').unwrap().0)
        }),
        (
            "a changed signature",
            format!("{signed}.{}", signature.chars().rev().collect::<String>()),
        ),
        ("padding", format!("{good}==")),
        ("too long", long),
        ("no JSON", written("{", "{}", "EdDSA")),
        ("no objects", written("[]", "[]", "EdDSA")),
        ("nothing", "..".to_owned()),
    ] {
        let refused = verify(&issuers, &token).await;
        assert!(matches!(refused, Err(IssuerError::Refused(_))), "{what}: {refused:?}");
    }
}

#[tokio::test]
async fn a_token_is_for_this_audience_and_this_time_and_says_who_somebody_is() {
    let scratch = Scratch::new();
    let issuers = with_keys(&scratch, &all_keys());
    let with = |name: &str, value: Value| {
        let mut all = claims();
        all[name] = value;
        token("EdDSA", "ed", &all)
    };
    let many: Vec<String> = (0..=jwt::GROUPS_MAX).map(|it| it.to_string()).collect();
    for (what, token) in [
        ("another issuer", with("iss", json!("https://evil.example"))),
        ("no issuer", with("iss", Value::Null)),
        ("another audience", with("aud", json!("other"))),
        ("others' audience", with("aud", json!(["other", 1]))),
        ("no audience", with("aud", Value::Null)),
        ("no end", with("exp", Value::Null)),
        ("an end that is none", with("exp", json!("tomorrow"))),
        ("an end before time", with("exp", json!(-5))),
        ("not yet", with("nbf", json!(now() + 300))),
        ("from the future", with("iat", json!(now() + 300))),
        ("nobody", with("sub", json!(""))),
        ("a number for somebody", with("sub", json!(7))),
        ("groups that are none", with("groups", json!({"a": 1}))),
        ("groups of numbers", with("groups", json!([1]))),
        ("too many groups", with("groups", json!(many))),
    ] {
        let refused = verify(&issuers, &token).await;
        assert!(matches!(refused, Err(IssuerError::Refused(_))), "{what}: {refused:?}");
    }
    let ended = verify(&issuers, &with("exp", json!(now() - 60))).await;
    assert_eq!(ended, Err(IssuerError::Ended));
    // Within the leeway, and with a fraction of a second.
    let late = with("exp", json!(now() - 5));
    verify(&issuers, &late).await.unwrap();
    let fraction = claims().to_string().replace(r#","groups""#, r#".75,"groups""#);
    assert!(fraction.contains(".75"), "{fraction}");
    let fraction = written(r#"{"alg":"EdDSA","kid":"ed"}"#, &fraction, "EdDSA");
    verify(&issuers, &fraction).await.unwrap();
}

/// A signature for servers that use a public key as a secret one: always rejected here.
fn hmac_of(signed: &str) -> String {
    let claims = signed.split_once('.').unwrap().1;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SIGNERS.ed.public_key().as_ref());
    let signed = format!("{}.{claims}", text(r#"{"alg":"HS256"}"#));
    format!("{claims}.{}", text(ring::hmac::sign(&key, signed.as_bytes())))
}

#[tokio::test]
async fn an_algorithm_that_the_issuer_may_not_use_is_refused() {
    let scratch = Scratch::new();
    let file = scratch.path().join("jwks.json");
    std::fs::write(&file, all_keys().to_string()).unwrap();
    let only = IssuerConfig { algorithms: vec!["ES256".to_owned()], ..issuer(&file) };
    let issuers = TrustedIssuers::new(vec![only]).unwrap();
    verify(&issuers, &token("ES256", "p256", &claims())).await.unwrap();
    let refused = verify(&issuers, &token("EdDSA", "ed", &claims())).await;
    assert!(matches!(refused, Err(IssuerError::Refused(_))), "{refused:?}");
}

#[tokio::test]
async fn keys_are_fetched_when_one_is_not_known_and_no_more_often_than_they_may() {
    let answer = |keys: Value| {
        let body = keys.to_string();
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        Box::leak(format!("{head}{body}").into_boxed_str()) as &'static str
    };
    let answers = [
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
        answer(json!({"keys": [ed_key("old")]})),
        answer(json!({"keys": [ed_key("old"), ed_key("new")]})),
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    ];
    let receiver = Receiver::start(move |number| answers[number.min(3)]);
    let config = IssuerConfig {
        jwks_url: Some(receiver.url()),
        jwks_file: None,
        jwks_allowed: vec!["127.0.0.1".to_owned()],
        ..issuer(std::path::Path::new(""))
    };
    let guarded = IssuerConfig { jwks_allowed: Vec::new(), ..config.clone() };
    assert!(TrustedIssuers::new(vec![guarded]).is_err());
    let issuers = TrustedIssuers::new(vec![config]).unwrap();
    let issuer = &issuers.0[0];
    let (old, new) = (token("EdDSA", "old", &claims()), token("EdDSA", "new", &claims()));
    let (old, new) = (UnverifiedToken::parse(&old).unwrap(), UnverifiedToken::parse(&new).unwrap());
    let start = clock::now();
    let has = async |token: &UnverifiedToken<'_>, after: Duration| {
        let keys = issuer.keys(token, start + after).await?;
        Ok::<bool, IssuerError>(keys.verify(token).is_ok())
    };
    let down = || Err(IssuerError::KeysUnavailable("example".to_owned()));
    let (no_time, once) = (Duration::ZERO, FETCH_INTERVAL);
    for (token, after, expected, fetched) in [
        (&old, no_time, down(), 1),
        (&old, once / 2, down(), 1),
        (&old, once, Ok(true), 2),
        (&old, once, Ok(true), 2),
        // A token with an unknown key causes a fetch periodically, not each time.
        (&new, once * 3 / 2, Ok(false), 2),
        (&new, once * 2, Ok(true), 3),
        (&new, once * 3, Ok(true), 3),
        // An unreadable set changes nothing, until the keys are too old.
        (&new, once * 2 + JWKS_AGE, Ok(true), 4),
        (&new, once * 2 + JWKS_AGE_MAX, down(), 5),
    ] {
        assert_eq!(has(token, after).await, expected, "{after:?}");
        assert_eq!(receiver.delivered().len(), fetched, "{after:?}");
    }
}

#[test]
fn sets_of_keys_are_read_or_refused() {
    let read = |keys: &str| IssuerKeys::parse(keys.as_bytes(), &SignatureAlgorithm::ALL);
    let many = vec![json!({"kty": "none"}); 101];
    for (keys, expected) in [
        ("".to_owned(), false),
        ("{}".to_owned(), false),
        (r#"{"keys":{}}"#.to_owned(), false),
        (r#"{"keys":[7]}"#.to_owned(), false),
        (json!({"keys": many}).to_string(), false),
        (json!({"keys": [ed_key("a"), p256_key("a")]}).to_string(), false),
        (r#"{"keys":[{"kty":"RSA","kty":"OKP"}]}"#.to_owned(), false),
        (r#"{"keys":[]}"#.to_owned(), true),
        (all_keys().to_string(), true),
    ] {
        assert_eq!(read(&keys).is_ok(), expected, "{keys}");
    }
    let changed = |name: &str, value: Value| {
        let mut key = ed_key("ed");
        key[name] = value;
        let keys = read(&json!({"keys": [key]}).to_string()).unwrap();
        let token = token("EdDSA", "ed", &claims());
        keys.has(&UnverifiedToken::parse(&token).unwrap())
    };
    for (name, value, expected) in [
        ("use", json!("sig"), true),
        ("use", json!("enc"), false),
        ("key_ops", json!(["verify"]), true),
        ("key_ops", json!(["encrypt"]), false),
        ("alg", json!("EdDSA"), true),
        ("alg", json!("HS256"), false),
        ("crv", json!("Ed448"), false),
        ("x", json!("AAAA"), false),
    ] {
        assert_eq!(changed(name, value.clone()), expected, "{name} {value}");
    }
}

#[test]
fn a_wrong_configuration_says_what_is_wrong() {
    let good = issuer(std::path::Path::new("/keys"));
    let url = |url: &str| IssuerConfig {
        jwks_url: Some(url.to_owned()),
        jwks_file: None,
        ..good.clone()
    };
    for (wrong, expected) in [
        (IssuerConfig { name: "a b".to_owned(), ..good.clone() }, "`name`"),
        (IssuerConfig { issuer: String::new(), ..good.clone() }, "`issuer`"),
        (IssuerConfig { audience: String::new(), ..good.clone() }, "`audience`"),
        (IssuerConfig { tenant: Some("a".to_owned()), ..good.clone() }, "`tenant`"),
        (IssuerConfig { scope_claim: Some(String::new()), ..good.clone() }, "`scope_claim`"),
        (IssuerConfig { leeway_seconds: 301, ..good.clone() }, "`leeway_seconds`"),
        (IssuerConfig { algorithms: vec!["HS256".to_owned()], ..good.clone() }, "`HS256`"),
        (IssuerConfig { algorithms: Vec::new(), ..good.clone() }, "`algorithms`"),
        (IssuerConfig { jwks_file: None, ..good.clone() }, "`jwks_file`"),
        (IssuerConfig { jwks_url: Some("https://a".to_owned()), ..good.clone() }, "`jwks_file`"),
        (url("http://id.example/keys"), "https"),
        (url("ftp://id.example/keys"), "https"),
        (url("https://10.0.0.1/keys"), "`jwks_url`"),
        (
            IssuerConfig {
                jwks_allowed: vec!["10.0.0.1/8".to_owned()],
                ..url("https://a.example")
            },
            "`jwks_allowed`",
        ),
    ] {
        let refused = TrustedIssuers::of_principals(vec![wrong]).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused} {expected}");
    }
    assert!(TrustedIssuers::new(vec![good.clone(), good.clone()]).is_err());
    assert!(TrustedIssuers::new(vec![good.clone()]).unwrap().may_be_of("a.b.c"));
    assert!(!TrustedIssuers::default().may_be_of("a.b.c"));
}

proptest! {
    #[test]
    fn hostile_bytes_are_refused_and_no_more(
        header in ".{0,80}", claims in "\\PC{0,200}", rest in "[A-Za-z0-9_.=-]{0,80}",
    ) {
        prop_assert!(UnverifiedToken::parse(&rest).is_err());
        let made = format!("{}.{}.{rest}", text(&header), text(&claims));
        prop_assert!(UnverifiedToken::parse(&made).is_err());
    }
}
