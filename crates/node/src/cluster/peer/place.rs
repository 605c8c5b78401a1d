//! Placement of new work: at the node that received it, or at one that has room.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::client::PeerError;
use super::forward::PeerForwarder;
use super::protocol::is_misdirected;
use super::refusal::{broken, moved, try_again};
use super::request::forwarded;
use crate::cluster::placement::{self, PlaceOffer, WorkKind};

/// Maximum number of nodes asked to take new work, before this one does what it can.
const PLACES_ASKED_MAX: usize = 4;

/// Maximum number of homes of a limit asked to take new work.
const HOMES_ASKED_MAX: usize = 2;

/// Returns the nodes to ask for new work, best first; this node, `own`, does the work itself if it
/// comes first, or if no other node does. Pure.
///
/// Work with a key goes where there is room, and work without a key stays. Work that counts towards
/// a limit goes to one of its `homes`, even if other work waits there: any other node would first
/// need a part of the limit. At a home only other homes are asked.
fn nodes_to_ask(
    kind: WorkKind,
    key: Option<&str>,
    own: &str,
    mut offers: Vec<PlaceOffer>,
    homes: Option<&[String]>,
) -> Vec<String> {
    let is_here = |node: &String| node == own;
    if let Some(homes) = homes {
        offers.retain(|offer| homes.contains(&offer.id));
        if !homes.iter().any(is_here) {
            let mut asked = placement::places(key.unwrap_or_default(), offers);
            let others = homes.iter().filter(|home| !asked.contains(home)).cloned();
            asked.extend(others.collect::<Vec<_>>());
            asked.truncate(HOMES_ASKED_MAX);
            return asked;
        }
    }
    let is_free_here = || offers.iter().any(|offer| is_here(&offer.id) && offer.has_room());
    let Some(key) = key.filter(|_| !(kind.stays() && is_free_here())) else {
        return vec![own.to_owned()];
    };
    let mut asked = placement::places(key, offers);
    asked.truncate(PLACES_ASKED_MAX);
    asked
}

impl PeerForwarder {
    /// Answers new work here, or has it answered where there is room or where its caller's limit
    /// has a home. A node that has become full refuses, and the next one is asked.
    pub(super) async fn place(
        &self,
        kind: WorkKind,
        key: Option<&str>,
        listener: &'static str,
        request: Request,
        next: Next,
    ) -> Response {
        let membership = self.membership();
        let own = &membership.identity().id;
        let homes = self.limit_homes_of(kind, &request);
        if key.is_none() && homes.is_none() {
            return next.run(request).await;
        }
        let asked = nodes_to_ask(kind, key, own, membership.offers(kind), homes.as_deref());
        let runs_here = key.is_none() || *membership.takes_work().borrow();
        if asked.first().is_none_or(|first| first == own) {
            return match runs_here {
                true => next.run(request).await,
                false => full(),
            };
        }
        let (parts, body) = request.into_parts();
        let mut request = match forwarded(parts, listener, body).await {
            Ok(request) => request,
            Err(error) => return error.into_response(),
        };
        for id in asked {
            if id == *own {
                return request.run_here(next).await;
            }
            let Some(target) = self.address(&id) else { continue };
            // A long body was sent to the previous node.
            let Some(body) = request.body.to_send() else { return moved() };
            membership.count_sent(&target.id);
            let sent = request.for_node(&target, body);
            match self.send(&target, sent, request.upgrade.is_some()).await {
                Ok(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => {}
                Ok(answer) if is_misdirected(&answer) => {}
                Ok(answer) => return self.pass_on(answer, request.upgrade.take(), &target),
                Err(error) => {
                    self.note_failure(&target, &error);
                    match error {
                        PeerError::Connect { .. } => {}
                        PeerError::Http { .. } | PeerError::Lost { .. } => return broken(),
                    }
                }
            }
        }
        match runs_here {
            true => request.run_here(next).await,
            false => full(),
        }
    }
}

/// Returns the answer to new work when this node takes none and no other one has room.
fn full() -> Response {
    try_again("this node drains, and no other one has room")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: u64 = 8;

    /// Offers of nodes with these numbers of executions.
    fn offers(used: &[u64]) -> Vec<PlaceOffer> {
        let numbered = used.iter().enumerate();
        numbered.map(|(at, used)| PlaceOffer { id: node(at), used: *used, max: MAX }).collect()
    }

    fn node(at: usize) -> String {
        format!("srv_{at}")
    }

    fn nodes(at: &[usize]) -> Vec<String> {
        at.iter().copied().map(node).collect()
    }

    /// Returns the nodes that `srv_0` asks.
    fn asked(key: Option<&str>, used: &[u64], homes: Option<&[usize]>) -> Vec<String> {
        let homes = homes.map(nodes);
        nodes_to_ask(WorkKind::Execution, key, "srv_0", offers(used), homes.as_deref())
    }

    #[test]
    fn an_execution_stays_while_there_is_room_unless_its_limit_lives_elsewhere() {
        assert_eq!(asked(Some(""), &[7, 0, 0], None), nodes(&[0]));
        assert_eq!(asked(Some(""), &[MAX, 0, 7], None), nodes(&[1, 2]));
        assert_eq!(asked(Some(""), &[0, 0, 0], Some(&[2])), nodes(&[2]));
        // Also for work that may stay anywhere.
        assert_eq!(asked(None, &[0, 0, 0], Some(&[2])), nodes(&[2]));
        assert_eq!(asked(None, &[MAX, 0, 0], None), nodes(&[0]));
    }

    #[test]
    fn a_home_is_asked_also_where_others_wait_there() {
        assert_eq!(asked(Some(""), &[0, 0, 3 * MAX], Some(&[2])), nodes(&[2]));
        assert_eq!(asked(Some(""), &[0, MAX, 7], Some(&[1, 2])), nodes(&[2, 1]));
        assert_eq!(asked(Some(""), &[0, MAX, MAX], Some(&[1, 2])), nodes(&[1, 2]));
        // A home whose load is not known yet.
        assert_eq!(asked(None, &[0], Some(&[2])), nodes(&[2]));
    }

    #[test]
    fn a_home_keeps_what_it_gets_while_no_other_home_has_room() {
        assert_eq!(asked(Some(""), &[7, 0, 0], Some(&[0])), nodes(&[0]));
        assert_eq!(asked(Some(""), &[MAX, 0, 0], Some(&[0])), nodes(&[]));
        assert_eq!(asked(Some(""), &[MAX, 0, 0], Some(&[2, 0])), nodes(&[2]));
        assert_eq!(asked(None, &[MAX, 0, 0], Some(&[0, 2])), nodes(&[0]));
    }

    proptest! {
        /// Work under a limit is never sent to a node that is no home of the limit.
        #[test]
        fn only_homes_are_asked(
            used in prop::collection::vec(0_u64..=MAX, 1..8),
            homes in prop::collection::btree_set(0_usize..8, 1..4),
            has_key: bool,
        ) {
            let homes: Vec<usize> = homes.into_iter().collect();
            let asked = asked(has_key.then_some(""), &used, Some(&homes));
            let is_home = homes.contains(&0);
            prop_assert!(asked.iter().all(|id| nodes(&homes).contains(id)), "{asked:?}");
            prop_assert!(asked.len() <= PLACES_ASKED_MAX);
            prop_assert!(is_home || asked.len() == homes.len().min(HOMES_ASKED_MAX));
        }
    }
}
