//! Routing of a request whose subject belongs to one node. Pure: takes the results of lookups and
//! sends, returns the next step.
//!
//! A node's cached owners may be out of date, so the receiving node checks the owner again, and
//! answers that the request is misdirected if it is not the owner; the sender then queries the
//! store, and sends the request once more. A request that came from another node is never
//! forwarded.

/// Route of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestRoute {
    /// True if another node sent it.
    pub(super) is_hop: bool,
    /// True if it changes nothing, so that this node's own knowledge is an answer, too.
    pub(super) only_looks: bool,
    /// Number of nodes that answered that they do not have its subject.
    refused: u8,
}

/// Action for a request after the lookup of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerAction<T> {
    /// Answer it here.
    RunHere,
    /// Send it to this node.
    Send(T),
    /// Answer that this node does not have its subject.
    Misdirect,
}

/// Outcome of sending a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendOutcome {
    /// The node answered.
    Answered,
    /// The node does not have the subject.
    Misdirected,
    /// The node was not reached, and did not receive the request.
    Unreachable,
    /// The node was lost, and may have performed the request.
    Lost,
}

/// Action after a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentAction {
    /// Return the answer.
    PassOn,
    /// Look for its owner again.
    FindOwner,
    /// Answer it here, with this node's own knowledge.
    RunHere,
    /// Answer that its subject is moving between nodes.
    Moved,
    /// Answer that its node cannot be reached.
    Unreachable,
    /// Answer that its node was lost.
    Lost,
}

/// Maximum number of nodes that a request is sent to.
const SENDS_MAX: u8 = 2;

impl RequestRoute {
    /// Creates the route of a request.
    pub(super) const fn new(is_hop: bool, only_looks: bool) -> RequestRoute {
        RequestRoute { is_hop, only_looks, refused: 0 }
    }

    /// Returns whether to query the store for the owner, even if one is cached.
    pub(super) const fn asks_store(self) -> bool {
        self.is_hop || self.refused > 0
    }

    /// Returns the action for the owner: none if this node is the owner, or no owner can be
    /// reached.
    pub(super) fn with_owner<T>(self, owner: Option<T>) -> OwnerAction<T> {
        match owner {
            None => OwnerAction::RunHere,
            Some(_) if self.is_hop => OwnerAction::Misdirect,
            Some(node) => OwnerAction::Send(node),
        }
    }

    /// Returns the action after the request was sent.
    pub(super) fn after_sending(&mut self, outcome: SendOutcome) -> SentAction {
        match outcome {
            SendOutcome::Answered => SentAction::PassOn,
            SendOutcome::Misdirected => {
                self.refused += 1;
                if self.refused < SENDS_MAX { SentAction::FindOwner } else { SentAction::Moved }
            }
            SendOutcome::Unreachable | SendOutcome::Lost if self.only_looks => SentAction::RunHere,
            SendOutcome::Unreachable => SentAction::Unreachable,
            SendOutcome::Lost => SentAction::Lost,
        }
    }
}

#[cfg(test)]
mod tests;
