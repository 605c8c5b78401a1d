//! Routing of a request whose subject belongs to one node. Pure: takes what was found out, returns
//! the next step.
//!
//! What a node remembers of owners may be out of date, so the node that is asked looks again, and
//! says that it is the wrong one; whoever sent the request asks the store once more then, and sends
//! it once more. A request that came from another node is never sent on.

/// Way of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestRoute {
    /// True if another node sent it.
    pub(super) is_hop: bool,
    /// True if it changes nothing, so that what this node knows is an answer, too.
    pub(super) only_looks: bool,
    /// Number of nodes that said that they have not got its subject.
    refused: u8,
}

/// Action for a request whose owner was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerAction<T> {
    /// Answer it here.
    RunHere,
    /// Send it to this node.
    Send(T),
    /// Say that this node has not got its subject.
    Misdirect,
}

/// Outcome of sending a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendOutcome {
    /// There is an answer.
    Answered,
    /// The node has not got its subject.
    Misdirected,
    /// The node was not reached, and knows nothing of it.
    Unreachable,
    /// The node went away, and may have done what was asked.
    Lost,
}

/// Action for a request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentAction {
    /// Pass the answer on.
    PassOn,
    /// Look for its owner again.
    FindOwner,
    /// Answer it here, with what this node knows.
    RunHere,
    /// Say that its subject is on its way from node to node.
    Moved,
    /// Say that its node cannot be reached.
    Unreachable,
    /// Say that its node went away.
    Lost,
}

/// Most nodes that a request is sent to.
const SENDS_MAX: u8 = 2;

impl RequestRoute {
    /// Begins the way of a request.
    pub(super) const fn new(is_hop: bool, only_looks: bool) -> RequestRoute {
        RequestRoute { is_hop, only_looks, refused: 0 }
    }

    /// Returns whether the store is to be asked for the owner, also where one is remembered.
    pub(super) const fn asks_store(self) -> bool {
        self.is_hop || self.refused > 0
    }

    /// Goes on with the owner; none where this node is it, or nobody can be reached who is.
    pub(super) fn with_owner<T>(self, owner: Option<T>) -> OwnerAction<T> {
        match owner {
            None => OwnerAction::RunHere,
            Some(_) if self.is_hop => OwnerAction::Misdirect,
            Some(node) => OwnerAction::Send(node),
        }
    }

    /// Goes on after the request was sent.
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
