//! Limits of grants with stored usage.

use node::cluster::{AmountLedger, LimitScope, NodeDescription, NodeIdentity, NodeMembership};
use node::store::{SqlStore, StoreConfig, StoreUrl};
use node::telemetry::Registry;

use super::*;
use crate::egress::accounts::GrantAccounts;

const PORT: u16 = 3128;

/// A server that is restarted repeatedly on one store.
struct RestartedServer {
    scratch: Scratch,
    starts: u32,
}

/// State of one run of the server: accounts, and their storage.
struct KeptAccounts {
    store: SqlStore,
    ledger: AmountLedger,
    account: Arc<GrantAccount>,
}

impl RestartedServer {
    async fn start(&mut self, holder: &GrantHolder) -> KeptAccounts {
        self.starts += 1;
        let mut registry = Registry::default();
        let url = StoreUrl::Sqlite(self.scratch.path().join("db"));
        let store = SqlStore::open(StoreConfig::new(url), &mut registry).await.unwrap();
        let run = NodeIdentity {
            id: "srv_1".to_owned(),
            incarnation: self.starts.to_string(),
            home: String::new(),
        };
        let (description, lease) = (NodeDescription::default(), Duration::from_secs(60));
        let member = NodeMembership::join(&store, run, &description, lease).await.unwrap();
        let ledger =
            AmountLedger::open(&store, &member, LimitScope::Node, &mut registry).await.unwrap();
        let account = GrantAccounts::kept_in(Some(ledger.clone())).open(holder, PORT);
        KeptAccounts { store, ledger, account }
    }
}

impl KeptAccounts {
    async fn stop(self) {
        self.ledger.close().await;
        self.store.close().await;
    }
}

#[tokio::test]
async fn bodies_wait_for_what_they_may_use_and_limits_outlast_the_server() {
    let body = "x".repeat(200_000);
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let origin = origin(answer.leak()).await;
    let url = format!("http://a.example:{}/", origin.port);
    let limits = HttpLimits { connections: 0, requests: 5, bytes: 450_000 };
    let session = GrantHolder::new("ses_1", "team").at_epoch(Some(1));
    let execution = GrantHolder::new("exe_1", "team");
    let mut server = RestartedServer { scratch: Scratch::new(), starts: 0 };
    for (holder, gets) in [(&session, [2, 0]), (&execution, [2, 2])] {
        for count in gets {
            let kept = server.start(holder).await;
            let account = Arc::clone(&kept.account);
            let proxy = Setup { limits, account, ..setup(&rule(origin.port, "")) }.serve().await;
            for _ in 0..count {
                let answer = proxy.get(&url).await;
                assert!(answer.ends_with(&body), "{} bytes came", answer.len());
            }
            let answer = proxy.get(&url).await;
            assert!(answer.contains("x-cove-refused: bytes: the grant's limit"), "{answer}");
            kept.stop().await;
        }
    }
}

#[tokio::test]
async fn without_the_store_a_grant_is_refused_for_a_while() {
    let origin = origin(HELLO).await;
    let limits = HttpLimits { connections: 0, requests: 50, bytes: 0 };
    let holder = GrantHolder::new("ses_1", "team").at_epoch(Some(1));
    let mut server = RestartedServer { scratch: Scratch::new(), starts: 0 };
    let kept = server.start(&holder).await;
    let account = Arc::clone(&kept.account);
    let proxy = Setup { limits, account, ..setup(&rule(origin.port, "")) }.serve().await;
    let url = format!("http://a.example:{}/", origin.port);
    assert!(proxy.get(&url).await.starts_with("HTTP/1.1 200"));
    kept.store.close().await;
    let refused = loop {
        // The leased amount can still be used.
        let answer = proxy.get(&url).await;
        if !answer.starts_with("HTTP/1.1 200") {
            break answer;
        }
    };
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("x-cove-refused: requests: the store, which keeps"), "{refused}");
    assert!(refused.contains("retry-after: 1"), "{refused}");
}
