//! Sign-ins: their rights, and all ways to end them.

use testkit::Postgres;
use tokio::task::spawn_blocking;

use super::super::{NewToken, TokenRecord, TokenScope};
use super::*;
use crate::store::{StoreConfig, StoreUrl};
use crate::telemetry::Registry;
use crate::testing::TempDir;

async fn store_in(url: StoreUrl) -> SqlStore {
    SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap()
}

/// A server's tokens with a console, in a directory and a store of its own.
async fn alone(temp: &TempDir) -> TokenRegistry {
    let tokens = TokenRegistry::open(temp.path()).unwrap();
    let store = store_in(StoreUrl::Sqlite(temp.path().join("db"))).await;
    tokens.open_console(&store, &Sealer::new(&[7; 32])).await.unwrap();
    tokens
}

fn create(
    tokens: &TokenRegistry,
    scopes: TokenScopes,
    lifetime: Option<Duration>,
) -> (TokenRecord, TokenPrincipal) {
    let new = NewToken { name: "ada", operator: true, tenant: Some("team"), scopes, lifetime };
    let (record, secret) = tokens.create_as(&new).unwrap();
    let who = tokens.verify(&secret.expose()).unwrap();
    (record, who)
}

async fn sign_in(tokens: &TokenRegistry, who: &TokenPrincipal) -> String {
    let code = tokens.console_code(who, None).await.unwrap();
    tokens.redeem_code(code.expose(), None).await.unwrap().expose().to_owned()
}

fn few() -> TokenScopes {
    [TokenScope::Executions, TokenScope::Sessions].into_iter().collect()
}

#[tokio::test]
async fn a_sign_in_is_its_owner_with_as_many_scopes_or_fewer() {
    let temp = TempDir::new();
    let tokens = alone(&temp).await;
    let (_, who) = create(&tokens, few(), None);
    let one: TokenScopes = [TokenScope::Sessions].into_iter().collect();
    for (requested, expected) in [(None, few()), (Some(one), one), (Some(few()), few())] {
        let code = tokens.console_code(&who, requested).await.unwrap();
        let token = tokens.redeem_code(code.expose(), None).await.unwrap();
        let found = tokens.verify(token.expose()).unwrap();
        assert_eq!((&found.token_id, &found.tenant), (&who.token_id, &who.tenant));
        assert!(found.operator && found.scopes == expected, "{found:?}");
        assert_eq!(tokens.expires_ms(&found), Some(token.expires_ms));
        // A chain would never end.
        let again = tokens.console_code(&found, None).await;
        assert!(matches!(again, Err(ConsoleAccessError::OfConsole)));
    }
    for (requested, is_right) in [
        (TokenScopes::ALL, (|it| matches!(it, ConsoleAccessError::MoreScopes)) as fn(&_) -> bool),
        (TokenScopes::NONE, |it| matches!(it, ConsoleAccessError::NoScope)),
    ] {
        let refused = tokens.console_code(&who, Some(requested)).await.unwrap_err();
        assert!(is_right(&refused), "{refused}");
    }
    assert!(matches!(tokens.sign_out(&who).await, Err(ConsoleAccessError::NotOfConsole)));
}

#[tokio::test]
async fn a_code_works_once_and_a_token_that_was_changed_never() {
    let temp = TempDir::new();
    let tokens = alone(&temp).await;
    let (_, who) = create(&tokens, few(), None);
    let code = tokens.console_code(&who, None).await.unwrap();
    let token = tokens.redeem_code(code.expose(), None).await.unwrap();
    let again = tokens.redeem_code(code.expose(), None).await;
    assert!(matches!(again, Err(ConsoleAccessError::WrongCode)));
    let good = token.expose();
    assert!(tokens.verify(good).is_some());
    let (claims, tag) = good.strip_prefix(PREFIX).unwrap().split_once('.').unwrap();
    let more = ConsoleClaims {
        scopes: None,
        expires_ms: u64::MAX,
        ..serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
    };
    let more = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&more).unwrap());
    let other = TempDir::new();
    let elsewhere = TokenRegistry::open(temp.path()).unwrap();
    let store = store_in(StoreUrl::Sqlite(other.path().join("db"))).await;
    elsewhere.open_console(&store, &Sealer::new(&[8; 32])).await.unwrap();
    assert_eq!(elsewhere.verify(good), None, "another key");
    for wrong in [
        format!("{PREFIX}{more}.{tag}"),
        format!("{PREFIX}{claims}."),
        format!("{PREFIX}{claims}"),
        format!("{PREFIX}.{tag}"),
        format!("{PREFIX}{claims}.{}", URL_SAFE_NO_PAD.encode([0; 32])),
        format!("{PREFIX}{}", "x".repeat(TOKEN_BYTES_MAX)),
        code.expose().to_owned(),
    ] {
        assert_eq!(tokens.verify(&wrong), None, "{wrong}");
    }
}

#[tokio::test]
async fn a_sign_in_ends_with_its_owner_s_word_and_with_the_token_behind_it() {
    let temp = TempDir::new();
    let tokens = alone(&temp).await;
    let current = tokio::spawn(tokens.clone().keep_current());
    // Its owner signs out.
    let (record, who) = create(&tokens, few(), None);
    let (first, second) = (sign_in(&tokens, &who).await, sign_in(&tokens, &who).await);
    let in_use = tokens.verify(&first).unwrap();
    let ending = tokens.revocation(&in_use);
    tokens.sign_out(&in_use).await.unwrap();
    ending.revoked().await;
    assert_eq!(tokens.verify(&first), None);
    let in_use = tokens.verify(&second).unwrap();
    // The token is revoked, with a code that was not used yet.
    let code = tokens.console_code(&who, None).await.unwrap();
    let ending = tokens.revocation(&in_use);
    tokens.revoke(&record.id).unwrap();
    ending.revoked().await;
    assert_eq!(tokens.verify(&second), None);
    let late = tokens.redeem_code(code.expose(), None).await;
    assert!(matches!(late, Err(ConsoleAccessError::WrongCode)));
    // Its token expires.
    let (_, who) = create(&tokens, few(), Some(Duration::from_millis(1500)));
    let token = sign_in(&tokens, &who).await;
    let in_use = tokens.verify(&token).unwrap();
    assert_eq!(tokens.expires_ms(&in_use), tokens.expires_ms(&who));
    tokens.revocation(&in_use).revoked().await;
    assert_eq!(tokens.verify(&token), None);
    current.abort();
}

#[tokio::test]
async fn all_servers_of_a_store_take_a_code_once_and_a_sign_in_until_it_ends_anywhere() {
    let server = spawn_blocking(Postgres::shared).await.unwrap();
    let store = store_in(StoreUrl::Postgres(server.database())).await;
    let directories = [TempDir::new(), TempDir::new()];
    let start = async |index: usize| {
        let directory = directories.get(index).unwrap();
        let tokens = TokenRegistry::open_shared(directory.path(), &store).await.unwrap();
        tokens.open_console(&store, &Sealer::new(&[7; 32])).await.unwrap();
        tokens
    };
    let (one, two) = (start(0).await, start(1).await);
    let of_one = one.clone();
    let made = spawn_blocking(move || create(&of_one, few(), None)).await.unwrap();
    let (_, who) = made;
    let code = one.console_code(&who, None).await.unwrap();
    let (left, right) =
        tokio::join!(one.redeem_code(code.expose(), None), two.redeem_code(code.expose(), None));
    // Redeeming makes the second server load the token.
    let wins = [&left, &right].into_iter().filter(|it| it.is_ok()).count();
    assert_eq!(wins, 1, "{left:?} {right:?}");
    let token = sign_in(&one, &who).await;
    two.learn(&token).await.unwrap();
    let in_use = two.verify(&token).unwrap();
    assert_eq!(in_use.tenant, who.tenant);
    let ending = two.revocation(&in_use);
    let current = tokio::spawn(two.clone().keep_current());
    one.sign_out(&one.verify(&token).unwrap()).await.unwrap();
    ending.revoked().await;
    assert_eq!(two.verify(&token), None);
    current.abort();
}

#[tokio::test]
async fn guesses_of_an_address_and_codes_of_a_token_are_limited() {
    let temp = TempDir::new();
    let tokens = alone(&temp).await;
    let (_, who) = create(&tokens, few(), None);
    let guesser = Some("2001:db8::1".parse().unwrap());
    let neighbour = Some("2001:db8::2".parse().unwrap());
    for _ in 0..GUESSES_MAX {
        let wrong = tokens.redeem_code("wrong", guesser).await;
        assert!(matches!(wrong, Err(ConsoleAccessError::WrongCode)));
    }
    let code = tokens.console_code(&who, None).await.unwrap();
    for address in [guesser, neighbour] {
        let refused = tokens.redeem_code(code.expose(), address).await.unwrap_err();
        assert!(matches!(refused, ConsoleAccessError::TooManyGuesses(wait) if !wait.is_zero()));
    }
    let other = Some("192.0.2.1".parse().unwrap());
    tokens.redeem_code(code.expose(), other).await.unwrap();
    for _ in 0..CODES_OF_TOKEN_MAX {
        tokens.console_code(&who, None).await.unwrap();
    }
    let refused = tokens.console_code(&who, None).await.unwrap_err();
    assert!(matches!(refused, ConsoleAccessError::TooManyCodes), "{refused}");
}

#[test]
fn addresses_that_are_counted_are_bounded() {
    let (guesses, now) = (CodeGuesses::default(), clock::now());
    let address = |number: u32| Some(IpAddr::from(number.to_be_bytes()));
    for number in 0..u32::try_from(GUESSING_ADDRESSES_MAX).unwrap() {
        guesses.begin(address(number), now).unwrap();
    }
    let more = address(u32::MAX);
    assert_eq!(guesses.begin(more, now), Err(GUESSES_INTERVAL));
    guesses.begin(more, now + GUESSES_INTERVAL).unwrap();
    assert_eq!(guesses.0.lock().len(), 1);
    guesses.forgive(more);
    assert!(guesses.0.lock().is_empty());
}
