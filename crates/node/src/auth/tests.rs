//! The token store against a real directory.

mod shared;

use std::os::unix::fs::PermissionsExt;

use super::file::TOKENS_FILE;
use super::*;
use crate::testing::TempDir;

fn first_token(directory: &Path) -> String {
    fs::read_to_string(directory.join("token")).unwrap().trim().to_owned()
}

#[test]
fn the_first_start_makes_one_token_and_later_ones_keep_it() {
    let temp = TempDir::new();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    tokens.ensure_first().unwrap();
    let token = first_token(temp.path());
    assert_eq!(token.len(), "cove_".len() + 43);
    let mode = fs::metadata(temp.path().join("token")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);

    let again = TokenRegistry::open(temp.path()).unwrap();
    again.ensure_first().unwrap();
    assert_eq!(first_token(temp.path()), token);
    assert_eq!(&*again.verify(&token).unwrap().name, "first");
    assert_eq!(again.list().len(), 1);
}

#[test]
fn the_file_does_not_hold_the_token() {
    let temp = TempDir::new();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    let (record, secret) = tokens.create("ci", false).unwrap();
    let text = fs::read_to_string(temp.path().join(TOKENS_FILE)).unwrap();
    assert!(text.contains(&record.sha256) && !text.contains(&secret.expose()));
    assert_eq!(format!("{secret:?}"), "Secret(..)");
}

#[test]
fn only_the_exact_token_is_known() {
    let temp = TempDir::new();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    let (record, secret) = tokens.create("ci", false).unwrap();
    let token = &secret.expose();
    assert_eq!(&*tokens.verify(token).unwrap().token_id, record.id.as_str());
    let mut flipped = token.to_owned();
    flipped.replace_range(10..11, if &token[10..11] == "A" { "B" } else { "A" });
    for wrong in ["", "cove_", &token[1..], &format!("{token}A"), &flipped, &record.sha256] {
        assert_eq!(tokens.verify(wrong), None, "{wrong}");
    }
}

#[test]
fn another_process_creates_and_revokes_and_the_server_notices() {
    let temp = TempDir::new();
    let server = TokenRegistry::open(temp.path()).unwrap();
    server.ensure_first().unwrap();
    let command_line = TokenRegistry::open(temp.path()).unwrap();

    let (record, secret) = command_line.create("ci", false).unwrap();
    assert!(server.verify(&secret.expose()).is_some(), "found by the look at the file on a miss");

    command_line.revoke(&record.id).unwrap();
    assert!(server.reload().unwrap());
    assert!(!server.reload().unwrap());
    assert_eq!(server.verify(&secret.expose()), None);
    assert!(server.verify(&first_token(temp.path())).is_some());
}

#[test]
fn a_known_token_needs_no_disk() {
    let temp = TempDir::new();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    let (_, secret) = tokens.create("ci", false).unwrap();
    fs::remove_file(temp.path().join(TOKENS_FILE)).unwrap();
    assert!(tokens.verify(&secret.expose()).is_some());
}

#[test]
fn revoking_the_first_token_removes_its_file() {
    let temp = TempDir::new();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    tokens.ensure_first().unwrap();
    let (other, _) = tokens.create("ci", false).unwrap();
    tokens.revoke(&other.id).unwrap();
    assert!(temp.path().join("token").exists());
    tokens.revoke(&tokens.list()[0].id).unwrap();
    assert!(!temp.path().join("token").exists());
    assert!(matches!(tokens.revoke("tok_0"), Err(TokenError::NoSuchToken(_))));
    // Without any token the store still counts as used: no new first token is created.
    tokens.ensure_first().unwrap();
    assert!(tokens.list().is_empty());
}

#[test]
fn concurrent_changes_are_all_kept() {
    let temp = TempDir::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let directory = temp.path();
            scope.spawn(move || {
                let tokens = TokenRegistry::open(directory).unwrap();
                for index in 0..5 {
                    tokens.create(&format!("{thread}-{index}"), false).unwrap();
                }
            });
        }
    });
    assert_eq!(TokenRegistry::open(temp.path()).unwrap().list().len(), 20);
}

#[test]
fn a_damaged_file_is_named_with_its_line_and_changes_nothing() {
    let temp = TempDir::new();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    let (_, secret) = tokens.create("ci", false).unwrap();
    let file = temp.path().join(TOKENS_FILE);
    let good = fs::read_to_string(&file).unwrap();
    for (bad, expected) in [
        ("{}", "line 2"),
        ("{\"id\":\"a\",\"name\":\"b\",\"sha256\":\"zz\",\"created\":\"\"}", "line 2"),
    ] {
        fs::write(&file, format!("{good}{bad}\n")).unwrap();
        let message = tokens.reload().unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert!(tokens.verify(&secret.expose()).is_some());
    }
}

#[test]
fn a_token_has_two_spellings_and_no_third() {
    let temp = TempDir::new();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    let (record, secret) = tokens.create("sdk", false).unwrap();
    let (own, other) = (secret.expose(), secret.expose_as_e2b());
    let digits = other.strip_prefix("e2b_").unwrap();
    assert_eq!(digits.len(), 64);
    assert!(digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')));
    assert_eq!(as_e2b(&own).as_deref(), Some(&*other));
    assert_eq!(as_e2b(&other).as_deref(), Some(&*other));
    for good in [&own, &other] {
        assert_eq!(&*tokens.verify(good).unwrap().token_id, record.id.as_str());
    }
    let upper = format!("e2b_{}", digits.replace('a', "A").replace('b', "B").replace('c', "C"));
    let short = &other[..other.len() - 1];
    let signed = format!("e2b_+{}", &digits[1..]);
    let wide = format!("e2b_é{}", &digits[2..]);
    let zeroes = format!("e2b_{}", "0".repeat(64));
    let wrong = [short, &signed, &wide, &zeroes, digits, "e2b_", &own.replace("cove_", "e2b_")];
    for wrong in wrong.into_iter().chain((upper != other).then_some(&*upper)) {
        assert_eq!(tokens.verify(wrong), None, "{wrong}");
    }
}

#[test]
fn a_tenant_has_several_tokens_and_sees_no_others() {
    let temp = TempDir::new();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    let some: TokenScopes = [TokenScope::Sessions, TokenScope::Tokens].into_iter().collect();
    let (alone, alone_secret) = tokens.create("alone", false).unwrap();
    let operators =
        NewToken { name: "a", operator: true, tenant: Some("team"), scopes: some, lifetime: None };
    let (first, _) = tokens.create_as(&operators).unwrap();
    let (second, secret) = tokens.create_for("team", "b", some).unwrap();
    let ids =
        |tenant| -> Vec<_> { tokens.list_of(tenant).into_iter().map(|record| record.id).collect() };
    assert_eq!(ids("team"), [first.id.clone(), second.id.clone()]);
    assert_eq!(ids(&alone.id), [alone.id.as_str()]);
    assert_eq!(ids("nobody"), [""; 0]);

    let who = tokens.verify(&secret.expose()).unwrap();
    assert_eq!((&*who.tenant, who.operator, who.scopes), ("team", false, some));
    who.require(TokenScope::Sessions).unwrap();
    let error = who.require(TokenScope::Agents).unwrap_err();
    assert_eq!((error.status().as_u16(), error.to_string().contains("`agents`")), (403, true));
    let who = tokens.verify(&alone_secret.expose()).unwrap();
    assert_eq!((&*who.tenant, who.scopes), (&*alone.id, TokenScopes::ALL));

    assert!(matches!(tokens.revoke_of("team", &alone.id), Err(TokenError::NoSuchToken(_))));
    assert!(matches!(tokens.revoke_of(&alone.id, &first.id), Err(TokenError::NoSuchToken(_))));
    tokens.revoke_of("team", &first.id).unwrap();
    assert_eq!(ids("team"), [second.id]);
}

#[test]
fn what_a_token_could_not_be_is_refused() {
    let temp = TempDir::new();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    for bad in ["", "a/b", "..", "-a", "a b", "é", &"x".repeat(65)] {
        assert!(
            matches!(tokens.create_for(bad, "n", TokenScopes::ALL), Err(TokenError::BadTenant)),
            "{bad}"
        );
    }
    assert!(matches!(tokens.create_for("t", "n", TokenScopes::NONE), Err(TokenError::NoScope)));
    // The maximum number, and one more; written by hand, because each creation writes the file.
    let lines: Vec<_> = (0..TOKENS_OF_TENANT_MAX)
        .map(|n| {
            let hash = format!("{n:064x}");
            format!(r#"{{"id":"tok_{n}","name":"n","sha256":"{hash}","created":"","tenant":"t"}}"#)
        })
        .collect();
    fs::write(temp.path().join(TOKENS_FILE), lines.join("\n")).unwrap();
    let refused = tokens.create_for("t", "n", TokenScopes::ALL);
    assert!(matches!(refused, Err(TokenError::TooManyOfTenant)));
    tokens.create_for("u", "n", TokenScopes::ALL).unwrap();
}

#[test]
fn files_of_older_versions_load_and_new_ones_say_no_more_than_they_must() {
    let temp = TempDir::new();
    let hash = "ab".repeat(32);
    let old = format!(r#"{{"id":"tok_a","name":"old","sha256":"{hash}","created":"2026"}}"#);
    fs::write(temp.path().join(TOKENS_FILE), &old).unwrap();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    let record = &tokens.list()[0];
    assert_eq!(
        (record.tenant(), record.scopes, record.operator),
        ("tok_a", TokenScopes::ALL, true)
    );
    tokens.create("new", false).unwrap();
    let text = fs::read_to_string(temp.path().join(TOKENS_FILE)).unwrap();
    assert!(!text.contains("tenant") && !text.contains("scopes"), "{text}");
    let some = [TokenScope::Executions].into_iter().collect();
    tokens.create_for("t", "newer", some).unwrap();
    let again = TokenRegistry::open(temp.path()).unwrap();
    assert_eq!(again.list(), tokens.list());
    assert_eq!(again.list_of("t")[0].scopes, some);
}

#[test]
fn names_are_printable() {
    let temp = TempDir::new();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    for bad in ["", "a\nb", &"x".repeat(101)] {
        assert!(matches!(tokens.create(bad, false), Err(TokenError::BadName)));
    }
}

#[test]
fn a_bearer_header_is_read_strictly() {
    let check = |values: &[&'static str], expected: Option<&str>| {
        let mut headers = axum::http::HeaderMap::new();
        for value in values {
            let value = axum::http::HeaderValue::from_static(value);
            headers.append(axum::http::header::AUTHORIZATION, value);
        }
        assert_eq!(bearer(&headers), expected, "{values:?}");
    };
    check(&["Bearer abc"], Some("abc"));
    check(&["bearer  abc "], Some("abc"));
    check(&[], None);
    check(&["abc"], None);
    check(&["Basic abc"], None);
    check(&["Bearer abc", "Bearer def"], None);
}

#[tokio::test]
async fn a_token_ends_when_its_time_is_over_and_with_it_what_it_began() {
    let temp = TempDir::new();
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    let create = |lifetime| {
        let scopes = TokenScopes::ALL;
        let new = NewToken { name: "brief", operator: false, tenant: None, scopes, lifetime };
        tokens.create_as(&new).unwrap()
    };
    let (over, over_secret) = create(Some(Duration::ZERO));
    assert_eq!(tokens.verify(&over_secret.expose()), None);
    assert_eq!(tokens.principal(&over.id), None);

    let (_, secret) = create(Some(Duration::from_millis(1200)));
    let principal = tokens.verify(&secret.expose()).unwrap();
    let current = tokio::spawn(tokens.clone().keep_current());
    tokens.revocation(&principal).revoked().await;
    assert_eq!(tokens.verify(&secret.expose()), None);
    current.abort();

    let (lasting, secret) = create(None);
    assert!(tokens.verify(&secret.expose()).is_some() && !lasting.is_expired(u64::MAX));
    // Its expiry is in the file, and is the same for every reader.
    let again = TokenRegistry::open(temp.path()).unwrap();
    assert_eq!(again.list(), tokens.list());
}
