//! Arguments shared by several commands, and the layout of their help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use node::shared_keys::KeyCheck;

use crate::values;

/// Layout of the help of every command, for clap.
pub(super) const HELP_TEMPLATE: &str = "{before-help}{about-with-newline}
{usage-heading} {usage}

{all-args}{after-help}
";

/// Sources of the configuration; the same for all commands that need it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file [default: /etc/cove/cove.toml, or ~/.config/cove/cove.toml if not root]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Configuration")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the server's state [default: /var/lib/cove, or ~/.local/share/cove if not root]
    #[arg(long, value_name = "DIR", global = true, help_heading = "Configuration")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// Options for keys that differ from those of the store.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SharedKeyArgs {
    /// Use this server's keys for all servers on this store, after an intended change; secrets that
    /// were sealed with other keys can no longer be read
    #[arg(long)]
    replace_keys: bool,
}

impl SharedKeyArgs {
    /// Returns the check for keys that differ.
    pub(crate) const fn check(self) -> KeyCheck {
        if self.replace_keys { KeyCheck::Replace } else { KeyCheck::Compare }
    }
}

/// Program to run; the same for all commands that run something.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProgramArgs {
    /// Program to run; `-` reads it from standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<OsString>,
    /// Language; by default that of the file's extension
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<String>,
    /// Arguments of the program, or the whole command if there is no FILE
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub(crate) rest: Vec<OsString>,
    /// File that the program reads as its standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin_file: Option<PathBuf>,
    /// Additional file for the program's working directory, optionally under another name
    #[arg(long = "file", value_name = "[NAME=]FILE")]
    pub(crate) files: Vec<OsString>,
    /// Environment variable of the program
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Template of the server to start from: NAME, NAME:TAG or id (`cove template`)
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) template: Option<String>,
}

/// Limits of the program, and of its compiler.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// CPU time of all its processes, such as 500ms or 2s [default: 10s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = values::duration)]
    pub(crate) cpu: Option<Duration>,
    /// Time from start to end [default: 20s, or twice --cpu]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = values::duration)]
    pub(crate) wall: Option<Duration>,
    /// Memory of all its processes and of the files they write, such as 64M [default: 512M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = values::bytes)]
    pub(crate) memory: Option<u64>,
    /// Concurrent processes and threads [default: 64]
    #[arg(long, value_name = "COUNT")]
    pub(crate) processes: Option<u64>,
    /// Bytes of standard output, and of standard error [default: 64k]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = values::bytes)]
    pub(crate) output: Option<u64>,
    /// Bytes in its writable directories [default: 64M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = values::bytes)]
    pub(crate) disk: Option<u64>,
    /// Files and directories in its writable directories [default: 4096]
    #[arg(long, value_name = "COUNT")]
    pub(crate) disk_files: Option<u64>,
    /// Size of one written file [default: 64M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = values::bytes)]
    pub(crate) file_size: Option<u64>,
    /// Open file descriptors of one process [default: 256]
    #[arg(long, value_name = "COUNT")]
    pub(crate) open_files: Option<u64>,
    /// Stack of the main thread [default: 8M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = values::bytes)]
    pub(crate) stack: Option<u64>,
    /// CPU time of the compiler [default: 30s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = values::duration)]
    pub(crate) compile_cpu: Option<Duration>,
    /// Time of the compiler from start to end [default: 60s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = values::duration)]
    pub(crate) compile_wall: Option<Duration>,
    /// Memory of the compiler [default: 1.5G]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = values::bytes)]
    pub(crate) compile_memory: Option<u64>,
}
