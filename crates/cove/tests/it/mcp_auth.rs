//! Tokens of an identity provider at the MCP endpoint: accepted tokens, and all kinds of forged
//! ones.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};
use testkit::{Client, Receiver, Request, Response, Server, command};

use crate::mcp::stateless;
use crate::sessions_support::config;
use crate::support::{COVE, beside_others};

const AUDIENCE: &str = "https://cove.example/mcp";
const ISSUER: &str = "https://id.example";

fn text(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Keys of an issuer, generated for this run.
struct TokenSigner {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
}

impl TokenSigner {
    fn new() -> TokenSigner {
        let generate = ["genpkey", "-quiet", "-algorithm", "RSA"];
        let mut openssl = command("sh");
        let script =
            format!("openssl {} | openssl pkcs8 -topk8 -nocrypt -outform DER", generate.join(" "));
        let made = openssl.args(["-c", &script]).output().unwrap();
        let rsa = RsaKeyPair::from_pkcs8(&made.stdout).unwrap();
        let (signing, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let made = EcdsaKeyPair::generate_pkcs8(signing, &random).unwrap();
        TokenSigner { rsa, ec: EcdsaKeyPair::from_pkcs8(signing, made.as_ref(), &random).unwrap() }
    }

    /// Returns the key set that the issuer publishes.
    fn keys(&self) -> Value {
        let rsa = PublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
        let point = self.ec.public_key().as_ref();
        json!({ "keys": [
            {
                "kty": "RSA", "kid": "rsa", "alg": "RS256",
                "n": text(rsa.n),
                "e": text(rsa.e),
            },
            { "kty": "EC", "crv": "P-256", "kid": "ec", "x": text(&point[1..33]), "y": text(&point[33..]) },
        ] })
    }

    fn sign(&self, algorithm: &str, signed: &str) -> Vec<u8> {
        let (bytes, random) = (signed.as_bytes(), SystemRandom::new());
        match algorithm {
            "RS256" => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).unwrap();
                signature
            }
            "ES256" => self.ec.sign(&random, bytes).unwrap().as_ref().to_vec(),
            // Valid for a server that mistakes a public key for a secret.
            "HS256" => {
                let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, self.rsa.public().as_ref());
                ring::hmac::sign(&key, bytes).as_ref().to_vec()
            }
            _ => Vec::new(),
        }
    }

    fn token(&self, algorithm: &str, key: &str, claims: &Value) -> String {
        let header = json!({ "alg": algorithm, "kid": key, "typ": "at+jwt" }).to_string();
        let signed = format!("{}.{}", text(header), text(claims.to_string()));
        let signature = text(self.sign(algorithm, &signed));
        format!("{signed}.{signature}")
    }
}

fn claims(scope: &str) -> Value {
    json!({
        "iss": ISSUER, "aud": [AUDIENCE], "sub": "ada", "org": "shop", "scope": scope,
        "exp": node::clock::wall_ms() / 1000 + 600,
    })
}

fn serve(jwks_url: &str) -> Server {
    let issuers = format!(
        "[[auth.issuers]]\nname = \"id\"\nissuer = {ISSUER:?}\naudience = {AUDIENCE:?}\n\
         jwks_url = {jwks_url:?}\njwks_allowed = [\"127.0.0.1\"]\ntenant_claim = \"org\"\n"
    );
    Server::start_with(COVE, &[], Some(&format!("{}\n{issuers}", config(""))))
}

fn with_token(server: &Server, token: &str) -> Client {
    Client::new(server.client().address(), Some(token.to_owned()))
}

fn list(client: &Client) -> Response {
    stateless(client, "tools/list", json!({}))
}

fn names(answer: &Response) -> Vec<String> {
    let tools = answer.json()["result"]["tools"].clone();
    let tools = tools.as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn tokens_of_an_issuer_are_honoured_for_their_audience_tenant_and_scopes() {
    let _guard = beside_others();
    let signer = TokenSigner::new();
    let body = signer.keys().to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    let answer: &'static str = Box::leak(format!("{head}{body}").into_boxed_str());
    let receiver = Receiver::start(move |_| answer);
    let server = serve(&receiver.url());

    // The response to a client without a token refers to the metadata that name the issuers.
    let refused = list(&server.client().anonymous());
    let challenge = refused.header("www-authenticate").unwrap().to_owned();
    assert_eq!(refused.status, 401);
    let metadata = "/.well-known/oauth-protected-resource/mcp";
    assert!(challenge.contains(&format!("\"https://cove.example{metadata}\"")), "{challenge}");
    assert!(challenge.contains("scope=\"executions sessions\""), "{challenge}");
    for path in [metadata, "/.well-known/oauth-protected-resource"] {
        let document = server.client().anonymous().get(path).json();
        assert_eq!(document["resource"], AUDIENCE);
        assert_eq!(document["authorization_servers"], json!([ISSUER]));
    }

    for (algorithm, key) in [("RS256", "rsa"), ("ES256", "ec")] {
        let token = signer.token(algorithm, key, &claims("executions sessions openid"));
        let found = list(&with_token(&server, &token));
        assert!(names(&found).len() > 2, "{algorithm}: {}", found.text());
    }
    // A tool runs with the rights of the token, in its tenant.
    let runner = with_token(&server, &signer.token("ES256", "ec", &claims("executions")));
    assert_eq!(names(&list(&runner)), ["run_code", "job"]);
    let arguments = json!({ "language": "py", "code": "print(6*7)" });
    let call = json!({ "name": "run_code", "arguments": arguments });
    let ran = stateless(&runner, "tools/call", call).json();
    assert_eq!(ran["result"]["structuredContent"]["stdout"], "42\n", "{ran}");
    let call = json!({ "name": "session", "arguments": { "action": "list" } });
    let lacking = stateless(&runner, "tools/call", call);
    assert_eq!(lacking.status, 403, "{}", lacking.text());
    let challenge = lacking.header("www-authenticate").unwrap();
    assert!(challenge.contains("insufficient_scope"), "{challenge}");
    assert!(challenge.contains("scope=\"sessions\""), "{challenge}");
    let keeper = with_token(&server, &signer.token("RS256", "rsa", &claims("sessions")));
    let call = json!({ "name": "session", "arguments": { "action": "create" } });
    let made = stateless(&keeper, "tools/call", call).json();
    let session = made["result"]["structuredContent"]["id"].as_str().unwrap().to_owned();
    let shop = server.other_client("of-shop", &["--tenant", "shop"]);
    assert_eq!(shop.get(&format!("/v1/sessions/{session}")).status, 200);
    let elsewhere = server.other_client("of-others", &["--tenant", "others"]);
    assert_eq!(elsewhere.get(&format!("/v1/sessions/{session}")).status, 404);
    // Administrative scopes in such a token grant nothing.
    let greedy = claims("executions tenants tokens agents catalog");
    let greedy = with_token(&server, &signer.token("ES256", "ec", &greedy));
    for path in ["/v1/tenants", "/v1/agents", "/v1/tokens"] {
        assert!([403, 404].contains(&greedy.get(path).status), "{path}");
    }
    assert_eq!(greedy.send(&Request::new("POST", "/v1/queue/pause")).status, 403);
    check_forged(&server, &signer);
    let ended = shop.send(&Request::new("DELETE", &format!("/v1/sessions/{session}")));
    assert!(ended.status < 300, "{}", ended.text());
}

/// Checks that tokens which are forged or for another audience are rejected.
fn check_forged(server: &Server, signer: &TokenSigner) {
    let with = |name: &str, value: Value| {
        let mut all = claims("executions");
        all[name] = value;
        signer.token("ES256", "ec", &all)
    };
    let good = with("note", json!(1));
    let (signed, _) = good.rsplit_once('.').unwrap();
    let stranger = TokenSigner::new();
    for (what, token) in [
        ("alg none", signer.token("none", "ec", &claims("executions"))),
        ("no signature", format!("{signed}.")),
        ("HS256 with the public key", signer.token("HS256", "rsa", &claims("executions"))),
        ("another's key", stranger.token("ES256", "ec", &claims("executions"))),
        ("a key of another kind", signer.token("ES256", "rsa", &claims("executions"))),
        ("an unknown key", signer.token("ES256", "new", &claims("executions"))),
        ("another audience", with("aud", json!("https://other.example/mcp"))),
        ("an audience that begins like ours", with("aud", json!("https://cove.example/mcp2"))),
        ("no audience", with("aud", Value::Null)),
        ("another issuer", with("iss", json!("https://evil.example"))),
        ("an issuer that begins like ours", with("iss", json!("https://id.example.evil"))),
        ("expired", with("exp", json!(1))),
        ("no end", with("exp", Value::Null)),
        ("not yet", with("nbf", json!(9_999_999_999_u64))),
        ("no tenant", with("org", Value::Null)),
        ("a tenant that is a path", with("org", json!("../shop"))),
        ("nobody", with("sub", json!(""))),
        ("too long", with("note", json!("x".repeat(9_000)))),
        ("dots", "..".to_owned()),
    ] {
        let refused = list(&with_token(server, &token));
        assert_eq!(refused.status, 401, "{what}: {}", refused.text());
        let native = with_token(server, &token).get("/v1/languages");
        assert_eq!(native.status, 401, "{what}");
    }
}

#[test]
fn an_issuer_that_is_down_is_no_reason_to_let_anybody_in_or_to_ask_for_another_token() {
    let _guard = beside_others();
    let signer = TokenSigner::new();
    let receiver = Receiver::start(|_| "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n");
    let mut server = serve(&receiver.url());
    server.expect_log("failed to fetch the keys of an issuer");
    let refused = list(&with_token(&server, &signer.token("ES256", "ec", &claims("executions"))));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    // Cove's own tokens need no issuer.
    assert_eq!(list(&server.client()).status, 200);
}

#[test]
fn without_an_issuer_nothing_is_said_of_one() {
    let _guard = beside_others();
    let server = Server::start_with(COVE, &[], Some(&config("")));
    let anonymous = server.client().anonymous();
    assert_eq!(list(&anonymous).header("www-authenticate"), Some("Bearer"));
    assert_eq!(anonymous.get("/.well-known/oauth-protected-resource/mcp").status, 404);
    let signer = TokenSigner::new();
    let token = signer.token("ES256", "ec", &claims("executions"));
    assert_eq!(list(&with_token(&server, &token)).status, 401);
}
