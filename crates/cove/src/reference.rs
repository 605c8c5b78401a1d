//! `cove completions` and `cove man`: shell completions and manual pages from the command
//! definitions.

use std::fs;
use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;

use crate::cli::{Cli, CompletedShell, CompletionsArgs, ManArgs};

/// Prints the completion script of a shell for commands, options and values.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let shell = match args.shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Fish => Shell::Fish,
        CompletedShell::Zsh => Shell::Zsh,
    };
    let mut command = without_help_commands(Cli::definition());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "cove", &mut script);
    print(&script)
}

/// Prints the first manual page, or writes all pages.
///
/// # Errors
/// If a page cannot be written.
pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let mut command = without_help_commands(Cli::definition());
    command.build();
    let Some(directory) = &args.directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return print(&page);
    };
    fs::create_dir_all(directory)
        .with_context(|| format!("failed to make {}", directory.display()))?;
    clap_mangen::generate_to(command, directory)
        .with_context(|| format!("failed to write pages of the manual to {}", directory.display()))
}

/// Omits `cove help`, `cove session help` and the like, which contain a copy of every command below
/// them: three quarters of all pages and of the completion script.
fn without_help_commands(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help_commands)
}

fn print(text: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).context("failed to write to standard output")
}
