//! `cove restore`: creates a data directory from an archive, without a server.
//!
//! Everything is unpacked and checked in a directory within the new one, and moved into place at
//! the end: a directory in which a server could start is complete.
//!
//! A restored server must not be taken for the original one: it gets a new id, and the entries of
//! the store that name the original server are changed to the new id. If the store is in
//! PostgreSQL, this command cannot change its rows, and the id stays: such a server does not start
//! while another one with its id is seen.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use executions::queue::JobQueue as _;
use executions::queue::sql::SqlQueue;
use node::clock::{self, IdGenerator};
use node::cluster::NodeRegistry;
use node::data_dir::write_atomic;
use node::store::{SqlStore, StoreConfig, StoreUrl};
use node::telemetry::Registry;
use serde_json::{Value, json};

use super::manifest::{STORE_NAME, WAREHOUSE};
use super::unpack::{ArchiveUnpacker, CheckedArchive};
use crate::cli::RestoreArgs;
use crate::cluster::SERVER_FILE;
use crate::config::CoveConfig;
use crate::remote;
use crate::run::print_json;
use crate::usage_error::UsageError;

/// Directory for unchecked files, within the new data directory.
const UNCHECKED: &str = ".restoring";
/// Directory of a new file system, which is ignored by the check for an empty directory.
const LOST_AND_FOUND: &str = "lost+found";

/// Runs `cove restore`.
pub(crate) fn run(args: &RestoreArgs, config: &CoveConfig) -> ExitCode {
    remote::conclude(restore(args, config).map(|()| 0))
}

fn restore(args: &RestoreArgs, config: &CoveConfig) -> Result<()> {
    let data_dir = &config.data_dir;
    if args.verify {
        let archive = super::verify(&args.file)?;
        return print(args, &archive, json!({}), "");
    }
    let was_there = prepare(data_dir)?;
    let unchecked = data_dir.join(UNCHECKED);
    let done = unpack(args, config, &unchecked, data_dir);
    let removed = fs::remove_dir_all(&unchecked);
    match done {
        Ok((archive, server)) => {
            removed.with_context(|| format!("remove `{}`", unchecked.display()))?;
            finish(args, data_dir, &archive, server)
        }
        Err(error) => {
            if !was_there {
                // Restores the former state. If the removal fails, the directory is empty.
                drop(fs::remove_dir(data_dir));
            }
            Err(error)
        }
    }
}

/// Creates the directory, or checks that it is empty. Returns whether it existed.
fn prepare(data_dir: &Path) -> Result<bool> {
    let path_text = data_dir.display();
    let was_there = match fs::read_dir(data_dir) {
        Ok(entries) => {
            for entry in entries {
                let name = entry?.file_name();
                if name != LOST_AND_FOUND {
                    let message = format!(
                        "`{path_text}` is not empty: it has `{}`; name another --data-dir, or move \
                         what is in it away",
                        name.display()
                    );
                    return Err(UsageError(message).into());
                }
            }
            true
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = data_dir.parent() {
                fs::create_dir_all(parent).with_context(|| format!("create `{path_text}`"))?;
            }
            let created = DirBuilder::new().mode(0o700).create(data_dir);
            created.with_context(|| format!("create `{path_text}`"))?;
            false
        }
        Err(error) => return Err(error).with_context(|| format!("read `{path_text}`")),
    };
    let unchecked = DirBuilder::new().mode(0o700).create(data_dir.join(UNCHECKED));
    unchecked.with_context(|| format!("create a directory in `{path_text}`"))?;
    Ok(was_there)
}

/// Identity of a restored server.
struct RestoredServer {
    /// New id; none if it keeps the old one.
    id: Option<String>,
    sessions: u64,
}

fn unpack(
    args: &RestoreArgs,
    config: &CoveConfig,
    unchecked: &Path,
    data_dir: &Path,
) -> Result<(CheckedArchive, RestoredServer)> {
    let archive = super::read_file(&args.file, &mut ArchiveUnpacker::new(unchecked))?;
    let mut server = RestoredServer { id: None, sessions: 0 };
    let has_store = unchecked.join(STORE_NAME).is_file();
    ensure!(
        has_store == archive.manifest.has_store(),
        "`{STORE_NAME}` is not what the archive says of it"
    );
    if has_store {
        let renamed = rename_server(unchecked, &archive.manifest.node, args, config);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        server = runtime.block_on(renamed).context("give the restored server its own id")?;
    } else if args.pause_queue {
        let message =
            "--pause-queue: the store is not in this archive; pause the queue where it is";
        return Err(UsageError(message.to_owned()).into());
    }
    // Everything is on the disk before any file gets its final name.
    rustix::fs::syncfs(File::open(unchecked)?)?;
    for entry in fs::read_dir(unchecked)? {
        let entry = entry?;
        let to = data_dir.join(entry.file_name());
        fs::rename(entry.path(), &to).with_context(|| format!("move `{}`", to.display()))?;
    }
    File::open(data_dir)?.sync_all()?;
    Ok((archive, server))
}

/// Gives the restored server a new id, and assigns it the old server's entries in the store.
async fn rename_server(
    directory: &Path,
    old: &str,
    args: &RestoreArgs,
    config: &CoveConfig,
) -> Result<RestoredServer> {
    let url = StoreUrl::Sqlite(directory.join(STORE_NAME));
    let store = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await?;
    let new = IdGenerator::new()?.next("srv_");
    let sessions = sessions::move_to_server(&store, old, &new).await?;
    NodeRegistry::open(&store).await?.forget(old).await?;
    if args.pause_queue {
        let jobs = config.executions.jobs.queue();
        let queue = SqlQueue::open(store.clone(), jobs, clock::wall_ms()).await?;
        queue.set_paused(true).await?;
        drop(queue);
    }
    store.close().await;
    write_atomic(&directory.join(SERVER_FILE), format!("{new}\n").as_bytes())?;
    Ok(RestoredServer { id: Some(new), sessions })
}

fn finish(
    args: &RestoreArgs,
    data_dir: &Path,
    archive: &CheckedArchive,
    server: RestoredServer,
) -> Result<()> {
    let mut text = format!("restored to {}", data_dir.display());
    if let Some(id) = &server.id {
        let sessions = if server.sessions == 1 { "session" } else { "sessions" };
        text.push_str(&format!(" as {id}, with disks of {} {sessions}", server.sessions));
    }
    text.push('\n');
    let manifest = &archive.manifest;
    if Path::new(&manifest.data_dir) != data_dir && manifest.part(WAREHOUSE).is_some() {
        text.push_str(&format!(
            "tables name their files below {}: the catalog finds them only where the data \
             directory has that path\n",
            crate::plain_text::plain(&manifest.data_dir)
        ));
    }
    if args.pause_queue {
        text.push_str("the queue is paused: `cove queue resume` starts it\n");
    }
    let more = json!({
        "data_dir": data_dir, "node": server.id, "sessions": server.sessions,
        "queue_paused": args.pause_queue,
    });
    print(args, archive, more, &text)
}

fn print(args: &RestoreArgs, archive: &CheckedArchive, more: Value, text: &str) -> Result<()> {
    if args.json {
        let mut document = super::document(archive, Some(&args.file));
        if !args.verify {
            document["restored"] = more;
        }
        return Ok(print_json(&document)?);
    }
    write!(io::stdout(), "{}{text}", super::described(archive))?;
    Ok(())
}
