//! Exit codes that several commands share. Above 128 they follow shells: 128 plus the signal.

/// Wrong usage, in the command line or in the configuration.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Time limit reached, as with `timeout(1)`.
pub(crate) const EXIT_TIME: u8 = 124;
/// Cove failed.
pub(crate) const EXIT_COVE: u8 = 125;
/// The program did not compile.
pub(crate) const EXIT_COMPILE: u8 = 126;
/// Killed at a limit: 128 and SIGKILL.
pub(crate) const EXIT_KILLED: u8 = 137;
/// Interrupted from the terminal: 128 and SIGINT.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;
/// Standard output was closed: 128 and SIGPIPE.
pub(crate) const EXIT_PIPE: u8 = 141;
