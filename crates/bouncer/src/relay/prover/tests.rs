//! Tests of proofs that are checked outside of the relay threads.

use std::time::Duration;

use mio::{Poll, Token};
use pooler_core::pg::login::ClientTransport;
use wire::mysql::auth::{MysqlSecret, MysqlVerifier};
use wire::pg::secret::PlainPassword;

use super::super::orders::{ThreadCommand, ThreadMessage};
use super::*;
use crate::rate::RefillRate;
use crate::tenants::TenantId;

/// Longer than any step takes.
const LIMIT: Duration = Duration::from_secs(60);

fn origin(peer: &str) -> LoginSource {
    let peer = Some(peer.parse().expect("an address"));
    LoginSource::new(Some(TenantId(1)), ClientTransport::Tcp, peer)
}

#[test]
fn wrong_passwords_are_not_looked_at_without_end() {
    let poll = Poll::new().expect("a poll");
    let inbox = ThreadInbox::new(poll.registry(), Token(0)).expect("an inbox");
    let rate = RefillRate { burst: 3, per_second: 1 };
    let failed = Arc::new(LoginLimiter::new(rate, node::clock::now()));
    let prover = ProofThread::start(Arc::clone(&failed)).expect("a thread");
    let secret = MysqlSecret::Plain(PlainPassword::new("secret".to_owned()));
    let verifier = Arc::new(MysqlVerifier::new(secret));
    let ask = |client: u32, peer: &str, given: &[u8]| {
        let check = PasswordCheck::of_password(Arc::clone(&verifier), Arc::default(), given);
        let (check, inbox) = (Box::new(check), Arc::clone(&inbox));
        prover.ask(ProofJob { check, origin: origin(peer), inbox, client, serial: 7 })
    };
    assert!((0..50).all(|client| ask(client, "192.0.2.1:1", b"wrong\0")));
    assert!(ask(50, "192.0.2.2:1", b"secret\0"));
    let (mut orders, mut wrong, mut refused) = (Vec::new(), 0, 0);
    testkit::until("the last proof to be checked", LIMIT, || {
        let mut some = Vec::new();
        inbox.take(&mut some);
        orders.append(&mut some);
        if orders.len() == 51 { Ok(()) } else { Err(format!("{} are", orders.len())) }
    });
    for (place, order) in (0..).zip(orders) {
        let ThreadCommand::Internal(ThreadMessage(ThreadMessageKind::Checked {
            client,
            serial: 7,
            checked,
        })) = order
        else {
            panic!("something else");
        };
        assert_eq!(client, place);
        match checked {
            PasswordCheckResult::Proof(Some(_)) => assert_eq!(client, 50, "others are not held up"),
            PasswordCheckResult::Proof(None) => wrong += 1,
            PasswordCheckResult::Refused(refusal) => {
                assert_eq!(refusal.code, "53400");
                refused += 1;
            }
            PasswordCheckResult::Key(_) => panic!("no key was asked for"),
        }
    }
    assert!(wrong >= 3 && refused > 0 && wrong + refused == 50, "{wrong} {refused}");
}
