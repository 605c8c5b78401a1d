//! Tests of proofs that are checked away from the relay threads.

use std::time::Duration;

use mio::{Poll, Token};
use wire::mysql::auth::{Secret, Verifier};
use wire::pg::secret::Password;

use super::super::orders::{Internal, Order};
use super::*;
use crate::pg::login::Reached;
use crate::rate::Rate;
use crate::tenants::TenantId;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

fn origin(peer: &str) -> Origin {
    let peer = Some(peer.parse().expect("an address"));
    Origin::new(Some(TenantId(1)), Reached::Tcp, peer)
}

#[test]
fn wrong_passwords_are_not_looked_at_without_end() {
    let poll = Poll::new().expect("a poll");
    let inbox = Inbox::new(poll.registry(), Token(0)).expect("an inbox");
    let rate = Rate { burst: 3, per_second: 1 };
    let failed = Arc::new(Limiter::new(rate, node::clock::now()));
    let prover = Prover::start(Arc::clone(&failed)).expect("a thread");
    let secret = Secret::Plain(Password::new("secret".to_owned()));
    let verifier = Arc::new(Verifier::new(secret));
    let ask = |client: u32, peer: &str, given: &[u8]| {
        let check = Check::of_password(Arc::clone(&verifier), Arc::default(), given);
        let (check, inbox) = (Box::new(check), Arc::clone(&inbox));
        prover.ask(Proof { check, origin: origin(peer), inbox, client, serial: 7 })
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
        let Order::Internal(Internal(Inner::Checked { client, serial: 7, checked })) = order else {
            panic!("something else");
        };
        assert_eq!(client, place);
        match checked {
            Checked::Proof(Some(_)) => assert_eq!(client, 50, "others are not held up"),
            Checked::Proof(None) => wrong += 1,
            Checked::Refused(refusal) => {
                assert_eq!(refusal.code, "53400");
                refused += 1;
            }
            Checked::Key(_) => panic!("no key was asked for"),
        }
    }
    assert!(wrong >= 3 && refused > 0 && wrong + refused == 50, "{wrong} {refused}");
}
