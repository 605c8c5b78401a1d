//! `cove docs`: writes the documentation as files that need no server.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::cli::DocsArgs;

/// Writes every page, the search and the reference below a directory, and prints the first page.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn docs(args: &DocsArgs) -> Result<()> {
    for (address, content) in site::static_files() {
        let path = args.out.join(address);
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)
            .with_context(|| format!("failed to make {}", directory.display()))?;
        fs::write(&path, content).with_context(|| format!("failed to write {}", path.display()))?;
    }
    writeln!(io::stdout(), "{}", args.out.join("index.html").display())
        .context("failed to write to standard output")
}
