//! A step of building a sandbox that the kernel refused.

use std::io;

use crate::codec::{MalformedMessage, MessageReader, MessageWriter};

/// Maximum number of characters of a step in messages between processes.
pub(crate) const STEP_CHARS_MAX: usize = 200;

/// Failed step with its errno. Sent between processes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {}", io::Error::from_raw_os_error(*errno))]
pub struct StepFailure {
    /// The attempted step, as a verb phrase: "mount /proc".
    pub step: String,
    /// Error of the kernel.
    pub errno: i32,
}

impl StepFailure {
    pub(crate) fn new(step: &str, error: &io::Error) -> StepFailure {
        StepFailure { step: step.to_owned(), errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }

    pub(crate) fn encode(&self, kind: u8) -> Vec<u8> {
        // A step can name a file, whose path can be longer than a message.
        let step: String = self.step.chars().take(STEP_CHARS_MAX).collect();
        MessageWriter::new(kind).bytes(step.as_bytes()).u32(self.errno.cast_unsigned()).finish()
    }

    pub(crate) fn decode(r: &mut MessageReader<'_>) -> Result<StepFailure, MalformedMessage> {
        Ok(StepFailure { step: r.string()?, errno: r.i32()? })
    }
}

impl From<MalformedMessage> for StepFailure {
    fn from(_: MalformedMessage) -> StepFailure {
        StepFailure {
            step: "read a message of another cove process".to_owned(),
            errno: libc::EBADMSG,
        }
    }
}

/// Names the step that a result belongs to.
pub(crate) trait FailureContext<T> {
    /// `step` as a verb phrase.
    fn step(self, step: &str) -> Result<T, StepFailure>;
}

impl<T> FailureContext<T> for io::Result<T> {
    fn step(self, step: &str) -> Result<T, StepFailure> {
        self.map_err(|error| StepFailure::new(step, &error))
    }
}
