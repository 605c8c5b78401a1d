//! Access tokens: issued for a secret or for another token, rejected with OAuth's error codes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

const PATH: &str = "/catalog/v1/oauth/tokens";

fn form(text: &str) -> Request {
    let request = Request::new("POST", PATH);
    request.header("content-type", "application/x-www-form-urlencoded").body(text)
}

#[test]
fn a_client_gets_a_token_by_its_secret() {
    let server = Server::start();
    let body = json!({"name": "spark"});
    let made = server.ask("POST", "/management/v1/clients", Some(&body)).json();
    let (id, secret) =
        (made["client-id"].as_str().unwrap(), made["client-secret"].as_str().unwrap());
    let basic =
        |id: &str, secret: &str| format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")));
    let credentials = format!("grant_type=client_credentials&scope=catalog&client_id={id}");
    let in_body = form(&format!("{credentials}&client_secret={secret}"));
    let by_header = form("grant_type=client_credentials");
    let by_header = by_header.header("authorization", &basic(id, secret));
    for request in [in_body, by_header] {
        let response = server.send_bare(&request);
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(response.header("cache-control"), Some("no-store"));
        let response = response.json();
        assert_eq!(
            (&response["token_type"], &response["expires_in"]),
            (&json!("bearer"), &json!(3600))
        );
        let token = response["access_token"].as_str().unwrap();
        let config = server.ask_as(Some(token), "GET", "/v1/config?warehouse=main", None);
        assert_eq!(config.status, 200, "{}", config.text());

        let exchange = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange\
            &subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token";
        let next = form(&format!("{exchange}&subject_token={token}"));
        let next = server.send_bare(&next.header("authorization", &format!("Bearer {token}")));
        assert_eq!(next.status, 200, "{}", next.text());
        assert_ne!(next.json()["access_token"], response["access_token"]);
    }
}

#[test]
fn refusals_of_tokens_have_the_shape_of_oauth() {
    let server = Server::start();
    let exchange = "grant_type=urn:ietf:params:oauth:grant-type:token-exchange";
    let long = format!("grant_type=client_credentials&scope={}", "x".repeat(20_000));
    for (request, status, error) in [
        (form(""), 400, "invalid_request"),
        (form("{\"grant_type\":\"client_credentials\"}"), 400, "invalid_request"),
        (form("grant_type=client_credentials"), 401, "invalid_client"),
        (form("grant_type=client_credentials&client_id=a&client_secret=b"), 401, "invalid_client"),
        (form("grant_type=password&username=a"), 400, "unsupported_grant_type"),
        (form("grant_type=password&grant_type=password"), 400, "invalid_request"),
        (
            form("grant_type=client_credentials").header("authorization", "Basic ?"),
            400,
            "invalid_request",
        ),
        (
            form("grant_type=client_credentials&client_secret=b")
                .header("authorization", "Basic YTpi"),
            400,
            "invalid_request",
        ),
        (form(exchange), 400, "invalid_request"),
        (form(&format!("{exchange}&subject_token=cat_00")), 400, "invalid_grant"),
        (form(&format!("{exchange}&subject_token={}", server.root)), 400, "invalid_grant"),
        (form(&format!("{exchange}&subject_token=x&actor_token=y")), 400, "invalid_request"),
        (form(&long), 413, "invalid_request"),
    ] {
        let refused = server.send_bare(&request);
        assert_eq!(refused.status, status, "{request:?} {}", refused.text());
        let body = refused.json();
        assert_eq!(body["error"], json!(error), "{request:?} {body}");
        assert!(body["error_description"].is_string(), "{body}");
        assert_eq!(refused.header("www-authenticate").is_some(), status == 401);
    }
}

#[test]
fn a_secret_is_changed_with_grace_and_a_client_goes_with_its_tokens() {
    let server = Server::start();
    let body = json!({"name": "spark", "operator": true});
    let made = server.ask("POST", "/management/v1/clients", Some(&body)).json();
    let id = made["client-id"].as_str().unwrap().to_owned();
    let ask = |secret: &Value| {
        let secret = secret.as_str().unwrap();
        server.send_bare(&form(&format!(
            "grant_type=client_credentials&client_id={id}&client_secret={secret}"
        )))
    };
    let rotate = |grace: u64| {
        let path = format!("/management/v1/clients/{id}/rotate");
        server.ask("POST", &path, Some(&json!({"grace-seconds": grace}))).json()
    };
    let second = rotate(600);
    assert_eq!(
        (ask(&made["client-secret"]).status, ask(&second["client-secret"]).status),
        (200, 200)
    );
    let third = rotate(0);
    assert_eq!(ask(&second["client-secret"]).status, 401);
    let token = ask(&third["client-secret"]).json()["access_token"].clone();
    let token = token.as_str().unwrap();
    // It is an operator's, so that it sees the others, and their secrets never.
    let all = server.ask_as(Some(token), "GET", "/management/v1/clients", None);
    assert_eq!(all.json()["clients"][0]["client-id"], json!(id));
    assert!(!all.text().contains("secret"));
    let path = format!("/management/v1/clients/{id}");
    assert_eq!(server.ask("DELETE", &path, None).status, 204);
    assert_refused(&server.ask("DELETE", &path, None), 404, "NotFoundException");
    let gone = server.ask_as(Some(token), "GET", "/v1/config", None);
    assert_refused(&gone, 401, "NotAuthorizedException");
}
