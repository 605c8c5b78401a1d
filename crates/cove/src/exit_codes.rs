//! Exit codes that several commands have. Beyond 128 they are those of a shell: 128 and the signal.

/// Wrong usage, in the command line or in the configuration.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Time limit reached, as `timeout(1)` says it.
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
