//! Texts with some of their words replaced.

use std::ops::Range;

use super::details::details;
use super::effects::PgEffects;
use super::{PgNameAction, scan};

/// Action of a text on channels, with the statement that takes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListenAction {
    /// Number of the statement in its text, from 0: the number of its command tag.
    pub statement: usize,
    /// Change of the subscriptions.
    pub subscription: SubscriptionChange,
}

/// A change of a client's subscriptions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SubscriptionChange {
    /// Subscribes to this channel, from the commit on.
    Begin(String),
    /// Ends the subscription to this channel.
    End(String),
    /// Ends all subscriptions.
    EndAll,
}

/// Rewrites each `LISTEN` to `UNLISTEN`, so that a shared server connection does not listen, while
/// order, errors and transactions stay the server's. `None` if the text contains neither, or is not
/// understood: it must then not be forwarded to a shared connection.
#[must_use]
pub fn rewrite_listen(text: &[u8]) -> Option<(Vec<u8>, Vec<ListenAction>)> {
    let effects = scan::scan(text).effects;
    let listens = PgEffects::LISTEN | PgEffects::UNLISTEN;
    if !effects.intersects(listens) || effects.intersects(PgEffects::UNPARSED) {
        return None;
    }
    let details = details(text);
    if details.lost {
        return None;
    }
    let mut actions = Vec::new();
    let mut out = Vec::with_capacity(text.len() + 2 * details.names.len());
    let mut copied = 0;
    for name in details.names {
        let subscription = match name.act {
            PgNameAction::Listen => {
                out.extend_from_slice(text.get(copied..name.keyword.start)?);
                out.extend_from_slice(b"UNLISTEN");
                copied = name.keyword.end;
                SubscriptionChange::Begin(name.name)
            }
            PgNameAction::Unlisten => SubscriptionChange::End(name.name),
            PgNameAction::UnlistenAll => SubscriptionChange::EndAll,
            PgNameAction::Prepare
            | PgNameAction::Execute
            | PgNameAction::Deallocate
            | PgNameAction::DeallocateAll => continue,
            PgNameAction::DiscardAll => continue,
        };
        actions.push(ListenAction { statement: name.statement, subscription });
    }
    out.extend_from_slice(text.get(copied..)?);
    Some((out, actions))
}

/// Returns `text` with `name` in place of `range`. `name` is inserted unchanged: it has to be a
/// valid identifier.
#[must_use]
pub fn rewrite_name(text: &[u8], range: Range<usize>, name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + name.len());
    out.extend_from_slice(text.get(..range.start).unwrap_or(text));
    out.extend_from_slice(name);
    out.extend_from_slice(text.get(range.end..).unwrap_or_default());
    out
}
