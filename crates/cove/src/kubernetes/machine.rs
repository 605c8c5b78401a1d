//! Parses the API server's responses about a machine, and decides what the node does. Pure.

use serde::Deserialize;

/// Longest line of a watch, which contains one object: more than the API server's store accepts.
pub(super) const LINE_BYTES_MAX: usize = 4 << 20;
/// Characters of a message of the API server that are quoted.
const MESSAGE_CHARACTERS_MAX: usize = 200;

/// Object of a machine (a Kubernetes node) with the fields that are used here.
#[derive(Debug, Deserialize)]
pub(super) struct MachineObject {
    spec: Option<MachineSpec>,
}

#[derive(Debug, Deserialize)]
struct MachineSpec {
    unschedulable: Option<bool>,
    taints: Option<Vec<MachineTaint>>,
}

#[derive(Debug, Deserialize)]
struct MachineTaint {
    key: String,
}

impl MachineObject {
    /// Returns whether the machine accepts no new work: it is cordoned, or has one of these taints,
    /// regardless of their effect.
    pub(super) fn is_held(&self, drain_taints: &[String]) -> bool {
        let Some(MachineSpec { unschedulable, taints }) = &self.spec else { return false };
        let mut taints = taints.iter().flatten();
        *unschedulable == Some(true) || taints.any(|taint| drain_taints.contains(&taint.key))
    }
}

/// Event of a watch, one per line.
#[derive(Debug)]
pub(super) enum MachineEvent {
    /// Current state of the machine.
    Is(MachineObject),
    /// The machine was removed.
    Removed,
    /// The watch's start version is too old: start again.
    Expired,
    /// The API server ended the watch.
    Failed(String),
    /// Event that is ignored.
    Other,
}

#[derive(Deserialize)]
struct WatchLine {
    #[serde(rename = "type")]
    kind: String,
    object: serde_json::Value,
}

/// Status object, with which the API server reports an error.
#[derive(Deserialize)]
struct StatusObject {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

impl MachineEvent {
    /// Parses a line.
    ///
    /// # Errors
    /// If it is not an event.
    pub(super) fn read(line: &[u8]) -> Result<MachineEvent, serde_json::Error> {
        let WatchLine { kind, object } = serde_json::from_slice(line)?;
        Ok(match kind.as_str() {
            "ADDED" | "MODIFIED" => MachineEvent::Is(serde_json::from_value(object)?),
            "DELETED" => MachineEvent::Removed,
            "ERROR" => {
                let StatusObject { code, message } = serde_json::from_value(object)?;
                match code {
                    410 => MachineEvent::Expired,
                    _ => MachineEvent::Failed(excerpt(&message)),
                }
            }
            // Bookmarks, and events of later versions.
            _ => MachineEvent::Other,
        })
    }
}

/// Returns the message if the body of a response is a status object; empty otherwise.
pub(super) fn message_in(body: &[u8]) -> String {
    serde_json::from_slice::<StatusObject>(body)
        .map_or_else(|_| String::new(), |it| excerpt(&it.message))
}

fn excerpt(message: &str) -> String {
    message.chars().take(MESSAGE_CHARACTERS_MAX).collect::<String>().escape_debug().to_string()
}

/// A line exceeds the limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the API server has more than {LINE_BYTES_MAX} bytes")]
pub(super) struct LineTooLong;

/// Splits the pieces of a body into lines.
#[derive(Debug, Default)]
pub(super) struct WatchLines(Vec<u8>);

impl WatchLines {
    /// Adds a piece. Returns the lines that it completes, without their line ends.
    ///
    /// # Errors
    /// If a line is too long.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<Vec<Vec<u8>>, LineTooLong> {
        let mut lines = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.0.len().saturating_add(part.len()) > LINE_BYTES_MAX {
                return Err(LineTooLong);
            }
            self.0.extend_from_slice(part);
            if self.0.last() == Some(&b'\n') {
                self.0.pop();
                lines.push(std::mem::take(&mut self.0));
            }
        }
        lines.retain(|line| !line.iter().all(u8::is_ascii_whitespace));
        Ok(lines)
    }
}

/// Drain request that this node made because of its machine, as recorded in a file. A drain that
/// was requested otherwise is not undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CordonDrain {
    /// No request.
    None,
    /// A request was about to be made.
    Asking,
    /// A request was made.
    Asked,
}

impl CordonDrain {
    /// Parses the content of the file. Unknown content means no request.
    pub(super) fn read(text: &str) -> CordonDrain {
        match text.trim() {
            "asking" => CordonDrain::Asking,
            "asked" => CordonDrain::Asked,
            _ => CordonDrain::None,
        }
    }

    /// Returns the content of the file; `None` if the file is to be removed.
    pub(super) const fn content(self) -> Option<&'static str> {
        match self {
            CordonDrain::None => None,
            CordonDrain::Asking => Some("asking\n"),
            CordonDrain::Asked => Some("asked\n"),
        }
    }
}

/// Next step of the drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainStep {
    /// Nothing to do.
    Nothing,
    /// Request a drain.
    Begin,
    /// Withdraw this node's drain request.
    End,
    /// Remove the record of the request: the drain has been withdrawn by other means.
    Forget,
}

/// Returns the next step when the machine became held or free, or when a watch begins.
/// `is_draining` is the state that the registry requests for this node.
pub(super) fn next_step(is_held: bool, own: CordonDrain, is_draining: bool) -> DrainStep {
    match (is_held, own, is_draining) {
        // A withdrawal of the drain by others is respected.
        (true, CordonDrain::Asked, _) | (false, CordonDrain::None, _) => DrainStep::Nothing,
        // Requested by an operator before the machine was cordoned.
        (true, CordonDrain::None, true) => DrainStep::Nothing,
        (true, CordonDrain::None, false) | (true, CordonDrain::Asking, _) => DrainStep::Begin,
        (false, CordonDrain::Asking | CordonDrain::Asked, true) => DrainStep::End,
        (false, CordonDrain::Asking | CordonDrain::Asked, false) => DrainStep::Forget,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(event: &str, taints: &[&str]) -> Option<bool> {
        let taints: Vec<String> = taints.iter().map(|&it| it.to_owned()).collect();
        match MachineEvent::read(event.as_bytes()).unwrap() {
            MachineEvent::Is(machine) => Some(machine.is_held(&taints)),
            _ => None,
        }
    }

    #[test]
    fn a_machine_is_held_by_a_cordon_or_a_taint_that_is_named() {
        let of = |spec: &str| {
            format!(r#"{{"type":"MODIFIED","object":{{"kind":"Node","spec":{spec}}}}}"#)
        };
        let taint = r#"{"taints":[{"key":"dedicated","effect":"NoSchedule","value":"cove"}]}"#;
        for (spec, taints, expected) in [
            ("{}", &[][..], false),
            ("null", &[], false),
            (r#"{"unschedulable":null,"taints":[]}"#, &[], false),
            (r#"{"podCIDR":"10.0.0.0/24"}"#, &["dedicated"], false),
            (r#"{"unschedulable":true}"#, &[], true),
            (r#"{"unschedulable":false,"taints":null}"#, &["dedicated"], false),
            (taint, &[], false),
            (taint, &["dedicate"], false),
            (taint, &["other", "dedicated"], true),
        ] {
            assert_eq!(held(&of(spec), taints), Some(expected), "{spec} {taints:?}");
        }
        assert_eq!(held(r#"{"type":"ADDED","object":{}}"#, &[]), Some(false));
    }

    #[test]
    fn events_that_are_no_state_are_told_apart() {
        let read = |line: &str| MachineEvent::read(line.as_bytes());
        assert!(matches!(read(r#"{"type":"DELETED","object":{}}"#), Ok(MachineEvent::Removed)));
        assert!(matches!(read(r#"{"type":"BOOKMARK","object":{}}"#), Ok(MachineEvent::Other)));
        let expired =
            r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
        assert!(matches!(read(expired), Ok(MachineEvent::Expired)));
        let failed = r#"{"type":"ERROR","object":{"code":500,"message":"etcd\nis away"}}"#;
        match read(failed) {
            Ok(MachineEvent::Failed(message)) => assert_eq!(message, "etcd\\nis away"),
            other => panic!("{other:?}"),
        }
        for wrong in ["", "[]", "{}", r#"{"type":"ADDED"}"#, r#"{"type":"ADDED","object":[1]}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let long = format!(r#"{{"message":"{}"}}"#, "x".repeat(10_000));
        assert_eq!(message_in(long.as_bytes()).len(), MESSAGE_CHARACTERS_MAX);
        assert_eq!(message_in(b"<html>"), "");
    }

    #[test]
    fn lines_are_put_together_from_any_pieces() {
        let body = b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\"";
        for size in 1..body.len() {
            let mut buffer = WatchLines::default();
            let lines: Vec<Vec<u8>> =
                body.chunks(size).flat_map(|piece| buffer.take(piece).unwrap()).collect();
            assert_eq!(lines, [b"{\"a\":1}".to_vec(), b"{\"b\":2}\r".to_vec()], "{size}");
            assert_eq!(buffer.0, b"{\"c\"");
        }
        let mut buffer = WatchLines::default();
        assert_eq!(buffer.take(&vec![b' '; LINE_BYTES_MAX]), Ok(Vec::new()));
        assert_eq!(buffer.take(b" "), Err(LineTooLong));
    }

    /// All sequences of some actions of the machine and of an operator, with a crash at any step.
    #[test]
    fn only_a_drain_of_its_own_is_undone() {
        for own in [CordonDrain::None, CordonDrain::Asking, CordonDrain::Asked] {
            assert_eq!(CordonDrain::read(own.content().unwrap_or_default()), own);
        }
        let steps = |is_held, own| [false, true].map(|wanted| next_step(is_held, own, wanted));
        use CordonDrain::{Asked, Asking, None};
        use DrainStep::{Begin, End, Forget, Nothing};
        // Drain not requested, and requested.
        assert_eq!(steps(false, None), [Nothing, Nothing]);
        assert_eq!(steps(true, None), [Begin, Nothing]);
        // It crashed between recording the request and making it, or just after.
        assert_eq!(steps(true, Asking), [Begin, Begin]);
        assert_eq!(steps(true, Asked), [Nothing, Nothing]);
        assert_eq!(steps(false, Asking), [Forget, End]);
        assert_eq!(steps(false, Asked), [Forget, End]);
    }
}
