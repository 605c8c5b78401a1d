//! A step of building a sandbox that the kernel refused.

use std::io;

use crate::codec::{Malformed, Reader, Writer};

/// Characters of a step that travel between processes.
const STEP_CHARS_MAX: usize = 200;

/// Which step failed and with what errno. Travels between processes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {}", io::Error::from_raw_os_error(*errno))]
pub struct Failure {
    /// What was tried, as a verb phrase: "mount /proc".
    pub step: String,
    /// The kernel's answer.
    pub errno: i32,
}

impl Failure {
    pub(crate) fn new(step: &str, error: &io::Error) -> Failure {
        Failure { step: step.to_owned(), errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }

    pub(crate) fn encode(&self, kind: u8) -> Vec<u8> {
        // A step can name a file, and a file's path can be longer than the room for a message.
        let step: String = self.step.chars().take(STEP_CHARS_MAX).collect();
        Writer::new(kind).bytes(step.as_bytes()).u32(self.errno.cast_unsigned()).finish()
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Failure, Malformed> {
        Ok(Failure { step: r.string()?, errno: r.i32()? })
    }
}

impl From<Malformed> for Failure {
    fn from(_: Malformed) -> Failure {
        Failure { step: "read a message of another cove process".to_owned(), errno: libc::EBADMSG }
    }
}

/// Names the step that a result belongs to.
pub(crate) trait Step<T> {
    /// `step` as a verb phrase.
    fn step(self, step: &str) -> Result<T, Failure>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(step, &error))
    }
}
