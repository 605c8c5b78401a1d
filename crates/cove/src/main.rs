//! Command line, configuration, `serve` and `doctor`.
//!
//! This crate puts the others together and holds no rule that belongs to one of them. `serve` reads
//! as the list of what the server consists of; `run` is the same engine and the same service
//! without a server around them.
//!
//! | file | what it is |
//! |---|---|
//! | `cli.rs` | command-line definitions |
//! | `config.rs` | `cove.toml`, `COVE_*`, flags; the only reader of the environment |
//! | `serve.rs` | the server, piece by piece |
//! | `run.rs`, `run/request.rs` | one program, in this process, and what is asked of it |
//! | `run/remote.rs`, `run/terminal.rs` | one program, on a server, and the terminal it is given |
//! | `remote.rs` | a server seen from the command line: where it is, what it answers, its events |
//! | `exec.rs`, `queue.rs` | executions and the queue of a server |
//! | `agent.rs`, `template.rs`, `session.rs`, `top.rs` | agents, templates and sessions of a server |
//! | `worker.rs` | tools of agents that are kept elsewhere, run in sessions of a server |
//! | `bouncer.rs`, `tenant.rs` | the bouncer, beside a server or alone, and the tenants of one |
//! | `catalog.rs` | the catalog, beside a server or alone, and what is typed for one |
//! | `demo.rs` | something to look at on a server, made and taken away |
//! | `doctor.rs` | what this machine, or that of a server, offers for isolation |
//! | `token.rs`, `languages.rs` | the smaller commands |
//! | `cluster_setup.rs` | the keys of a cluster: made, and brought to another server |
//! | `cluster.rs`, `nodes.rs` | this server among those that share its store, and all of them seen from the command line |
//! | `compat.rs` | other systems' interfaces: where they are mounted and listen |
//! | `storage.rs` | where the server keeps what must survive it |
//! | `live.rs` | one WebSocket for all that a client follows |
//! | `docs.rs` | `openapi.json` as a page to read |
//! | `reference.rs` | completions of shells, and pages of the manual |
//! | `service_manager.rs` | what systemd is told |
//! | `plain_text.rs` | foreign text, as it is shown on a terminal |
//! | `identity.rs`, `console.rs` | who a caller is, signing in at the console; `cove console` |
//! | `engine.rs`, `host.rs`, `values.rs` | what several of them need |
#![forbid(unsafe_code)]

mod agent;
mod audit;
mod bouncer;
mod catalog;
mod cli;
mod cluster;
mod cluster_setup;
mod compat;
mod config;
mod console;
mod demo;
mod docs;
mod doctor;
mod engine;
mod exec;
mod gateway;
mod grants;
mod host;
mod identity;
mod languages;
mod live;
mod mcp;
mod nodes;
mod percent;
mod plain_text;
mod queue;
mod ready;
mod reference;
mod remote;
mod run;
mod serve;
mod service_manager;
mod session;
mod sessions;
mod storage;
mod template;
mod tenant;
mod token;
mod top;
mod usage_error;
mod values;
mod worker;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::cli::{Cli, CliCommand, ConfigArgs, VersionArgs};
use crate::config::{CoveConfig, Environment, Flags};

/// Wrong usage, in the command line or in the configuration.
pub(crate) const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    // This binary also plays the spawner, which must not have done anything before.
    if let Some(code) = sandbox::spawner_main_if_asked() {
        return code;
    }
    sandbox::return_large_blocks();
    let cli = match Cli::of_this_process() {
        Ok(cli) => cli,
        Err(error) => return show_usage(&error),
    };
    match dispatch(cli.command) {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("{error:#}"));
            let usage = error.downcast_ref::<config::CoveConfigError>().is_some();
            if usage { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn dispatch(command: CliCommand) -> anyhow::Result<ExitCode> {
    let environment = Environment::of_this_process();
    let load = |args: &ConfigArgs| {
        CoveConfig::load(args.config.as_deref(), &environment, flags(args, Flags::new())?)
    };
    match command {
        CliCommand::Run(args) => {
            let config = load(&args.config)?;
            return run::run(*args, config, &environment);
        }
        CliCommand::Serve(args) => {
            let source = Source::new(&args.config, &environment, serve::flags(&args))?;
            serve::serve(&source, args.keys.check())?;
        }
        CliCommand::Exec(args) => {
            let config = load(&args.command.server().config)?;
            return Ok(exec::run(args.command, &config, &environment));
        }
        CliCommand::Queue(args) => {
            let config = load(&args.command.server().config)?;
            return Ok(queue::run(args.command, &config, &environment));
        }
        CliCommand::Mcp(args) => {
            let config = load(&args.server.config)?;
            return Ok(mcp::run(args, &config, &environment));
        }
        CliCommand::Worker(args) => {
            return Ok(worker::run(&args, &load(&args.server.config)?, &environment));
        }
        CliCommand::Agent(args) => {
            return Ok(agent::run(&args, &load(&args.server.config)?, &environment));
        }
        CliCommand::Template(args) => {
            return Ok(template::run(&args, &load(&args.server.config)?, &environment));
        }
        CliCommand::Session(args) => {
            return Ok(session::run(&args, &load(&args.server.config)?, &environment));
        }
        CliCommand::Top(args) => {
            return Ok(top::run(&args, &load(&args.server.config)?, &environment));
        }
        CliCommand::Grants(args) => {
            return Ok(grants::run(
                &args,
                &load(&args.command.output().server.config)?,
                &environment,
            ));
        }
        CliCommand::Audit(args) => {
            return Ok(audit::run(&args, &load(&args.server.config)?, &environment));
        }
        CliCommand::Cluster(args) => {
            cluster_setup::run(&args, &load(&args.config)?, &environment)?;
        }
        CliCommand::Node(args) => {
            return Ok(nodes::run(
                &args,
                &load(&args.command.output().server.config)?,
                &environment,
            ));
        }
        CliCommand::Console(args) => {
            return Ok(console::run(&args, &load(&args.server.config)?, &environment));
        }
        CliCommand::Demo(args) => {
            return Ok(demo::run(&args, &load(&args.server.config)?, &environment));
        }
        CliCommand::Tenant(args) => {
            return Ok(tenant::run(&args, &load(&args.server.config)?, &environment));
        }
        CliCommand::Bouncer(args) => {
            let source = Source::new(&args.server.config, &environment, Flags::new())?;
            return bouncer::run(&args, &source);
        }
        CliCommand::Catalog(args) => return catalog::run(&args, &environment),
        CliCommand::Token(args) => {
            let config = load(&args.config)?;
            let style = token::TokenStyle { e2b: args.e2b, json: args.json };
            token::run(&config, &environment, args.command, style)?;
        }
        CliCommand::Languages(args) => {
            languages::run(&load(&args.config)?, &environment, args.json)?;
        }
        CliCommand::Doctor(args) => {
            return doctor::run(&args, &load(&args.config)?, &environment);
        }
        CliCommand::Completions(args) => reference::completions(&args)?,
        CliCommand::Man(args) => reference::man(&args)?,
        CliCommand::Version(args) => print_version(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print_version(args: &VersionArgs) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    match args.json {
        true => run::print_json(&serde_json::json!({ "version": version })),
        false => writeln!(io::stdout(), "cove {version}"),
    }
}

/// The flags that every command has which needs a configuration.
fn flags(args: &ConfigArgs, more: Flags) -> Result<Flags, config::CoveConfigError> {
    let mut flags = more;
    if let Some(data_dir) = &args.data_dir {
        let text = data_dir.to_str().ok_or_else(|| config::CoveConfigError::Value {
            origin: "--data-dir".to_owned(),
            message: format!("`{}` is not UTF-8", data_dir.display()),
        })?;
        flags.push(("data_dir", text.into(), "--data-dir"));
    }
    Ok(flags)
}

/// A configuration, and all that it takes to read it again while the process runs.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) config: CoveConfig,
    pub(crate) environment: Environment,
    file: Option<PathBuf>,
    flags: Flags,
}

impl Source {
    fn new(
        args: &ConfigArgs,
        environment: &Environment,
        more: Flags,
    ) -> Result<Self, config::CoveConfigError> {
        let (file, flags) = (args.config.clone(), flags(args, more)?);
        let config = CoveConfig::load(file.as_deref(), environment, flags.clone())?;
        Ok(Source { config, environment: environment.clone(), file, flags })
    }

    /// Returns what the file says by now.
    pub(crate) fn again(&self) -> Result<CoveConfig, config::CoveConfigError> {
        CoveConfig::load(self.file.as_deref(), &self.environment, self.flags.clone())
    }
}

/// Help is data and goes to standard output; a mistake goes to standard error.
fn show_usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if asked {
        let mut out = io::stdout().lock();
        return match write!(out, "{text}").and_then(|()| out.flush()) {
            Ok(()) => ExitCode::SUCCESS,
            // A reader that has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => {
                complain(&format!("failed to write to standard output: {error}"));
                ExitCode::FAILURE
            }
        };
    }
    drop(write!(io::stderr(), "{text}"));
    ExitCode::from(EXIT_USAGE)
}

/// Says what went wrong, on standard error.
#[expect(clippy::print_stderr, reason = "this is the one place that speaks for the whole program")]
pub(crate) fn complain(message: &str) {
    eprintln!("cove: {}", plain_text::plain_with_lines(message));
}
