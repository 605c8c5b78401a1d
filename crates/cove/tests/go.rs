//! Go tool for the test binaries that build programs with it.

use std::path::PathBuf;
use std::process::Command;

/// Flags for quick builds: inlining and debugging information take two fifths of the compiler's
/// time, and the programs run for seconds. The version of a checkout is not needed either.
const FLAGS: &str = "-buildvcs=false '-gcflags=all=-l -dwarf=false'";

/// Returns a command for Go, also from the usual directories outside `PATH`.
pub(crate) fn go() -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/go/bin", "/usr/lib/go/bin"].map(PathBuf::from);
    let path = std::env::join_paths(std::env::split_paths(&path).chain(more)).unwrap();
    let mut go = Command::new("go");
    go.env("PATH", path).env("GOFLAGS", FLAGS);
    go
}
