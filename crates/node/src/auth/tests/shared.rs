//! Shared tokens, in a real PostgreSQL.

use testkit::Postgres;
use tokio::task::spawn_blocking;

use super::*;
use crate::store::{StoreConfig, StoreUrl};
use crate::telemetry::Registry;

/// A store, and two servers on it with directories of their own.
struct SharedTokens {
    store: SqlStore,
    _server: Arc<Postgres>,
    directories: [TempDir; 2],
}

impl SharedTokens {
    async fn new() -> SharedTokens {
        let server = spawn_blocking(Postgres::shared).await.unwrap();
        let config = StoreConfig::new(StoreUrl::Postgres(server.database()));
        let store = SqlStore::open(config, &mut Registry::default()).await.unwrap();
        SharedTokens { store, _server: server, directories: [TempDir::new(), TempDir::new()] }
    }

    async fn start(&self, index: usize) -> TokenRegistry {
        let directory = self.directories[index].path();
        let tokens = TokenRegistry::open_shared(directory, &self.store).await.unwrap();
        tokens.take_over_file().await.unwrap();
        let first = tokens.clone();
        spawn_blocking(move || first.ensure_first()).await.unwrap().unwrap();
        tokens
    }
}

async fn create(tokens: &TokenRegistry, name: &'static str) -> (TokenRecord, String) {
    let tokens = tokens.clone();
    let made = spawn_blocking(move || tokens.create(name, false)).await.unwrap();
    let (record, secret) = made.unwrap();
    (record, secret.expose())
}

async fn revoke(tokens: &TokenRegistry, id: String) -> Result<TokenRecord, TokenError> {
    let tokens = tokens.clone();
    spawn_blocking(move || tokens.revoke(&id)).await.unwrap()
}

#[tokio::test]
async fn a_token_of_one_server_works_at_all_until_it_is_revoked_at_any() {
    let shared = SharedTokens::new().await;
    let (one, two) = (shared.start(0).await, shared.start(1).await);
    let first = first_token(shared.directories[0].path());
    assert!(!two.first_token_path().exists(), "the store has had its first token");
    two.learn(&first).await.unwrap();
    assert_eq!(&*two.verify(&first).unwrap().name, "first");

    let (record, token) = create(&two, "ci").await;
    assert_eq!(one.verify(&token), None, "nobody has asked the store");
    one.learn(&token).await.unwrap();
    let principal = one.verify(&token).unwrap();
    assert_eq!((&*principal.token_id, &*principal.tenant), (&*record.id, &*record.id));

    let ending = two.revocation(&two.verify(&token).unwrap());
    let current = tokio::spawn(two.clone().keep_current());
    revoke(&one, record.id.clone()).await.unwrap();
    assert_eq!(one.verify(&token), None);
    ending.revoked().await;
    assert_eq!(two.verify(&token), None);
    current.abort();
    assert!(matches!(revoke(&two, record.id).await, Err(TokenError::NoSuchToken(_))));
}

#[tokio::test]
async fn a_file_is_taken_over_once_and_brings_nothing_revoked_back() {
    let shared = SharedTokens::new().await;
    let directory = shared.directories[0].path();
    let alone = TokenRegistry::open(directory).unwrap();
    alone.ensure_first().unwrap();
    let scopes = [TokenScope::Sessions, TokenScope::Agents].into_iter().collect();
    let lifetime = Some(Duration::from_secs(3600));
    let new = NewToken { name: "team's", operator: false, tenant: Some("team"), scopes, lifetime };
    let (kept, kept_secret) = alone.create_as(&new).unwrap();
    let (gone, gone_secret) = alone.create("gone", true).unwrap();
    let copy = fs::read(directory.join(TOKENS_FILE)).unwrap();

    let one = shared.start(0).await;
    assert_eq!(one.list(), alone.list());
    assert!(!directory.join(TOKENS_FILE).exists());
    assert_eq!(one.verify(&kept_secret.expose()), alone.verify(&kept_secret.expose()));
    assert!(TokenRegistry::open(directory).unwrap().is_moved());
    revoke(&one, gone.id).await.unwrap();

    // The other server has a copy of the directory, from before.
    fs::write(shared.directories[1].path().join(TOKENS_FILE), copy).unwrap();
    let two = shared.start(1).await;
    assert_eq!(two.verify(&gone_secret.expose()), None);
    let ids: Vec<_> = two.list().into_iter().map(|record| record.id).collect();
    assert_eq!(ids, [alone.list()[0].id.clone(), kept.id]);
    assert!(two.take_over_file().await.unwrap() == 0 && !two.first_token_path().exists());
}

#[tokio::test]
async fn of_servers_that_start_at_once_one_makes_the_first_token() {
    let shared = SharedTokens::new().await;
    let (one, two) = tokio::join!(shared.start(0), shared.start(1));
    let paths = [one.first_token_path(), two.first_token_path()];
    assert_eq!(paths.iter().filter(|path| path.exists()).count(), 1);
    let fresh = TokenRegistry::open_shared(Path::new("/"), &shared.store).await.unwrap();
    assert_eq!(fresh.list().len(), 1);
}

#[tokio::test]
async fn bounds_of_tokens_hold_in_the_store() {
    let shared = SharedTokens::new().await;
    let tokens = shared.start(0).await;
    let filled = tokens.clone();
    let refused = spawn_blocking(move || {
        for index in 0..TOKENS_OF_TENANT_MAX {
            filled.create_for("team", &index.to_string(), TokenScopes::ALL).unwrap();
        }
        filled.create_for("team", "more", TokenScopes::ALL).unwrap_err()
    });
    assert!(matches!(refused.await.unwrap(), TokenError::TooManyOfTenant));
    assert_eq!(tokens.list_of("team").len(), TOKENS_OF_TENANT_MAX);
}

#[tokio::test]
async fn unknown_tokens_are_looked_for_together() {
    let shared = SharedTokens::new().await;
    let tokens = shared.start(0).await;
    let unknown = new_secret().unwrap().expose();
    let started = clock::now();
    let waiting: Vec<_> = (0..200)
        .map(|_| {
            let (tokens, unknown) = (tokens.clone(), unknown.clone());
            tokio::spawn(async move { tokens.learn(&unknown).await })
        })
        .collect();
    for learnt in waiting {
        learnt.await.unwrap().unwrap();
    }
    // One by one the lookups would have taken ten seconds at least.
    assert!(clock::now() - started < LOOK_INTERVAL * 200);
    assert!(tokens.verify(&unknown).is_none());
    for no_token in ["", "cove_", "x"] {
        tokens.learn(no_token).await.unwrap();
    }
}
