//! Command line and configuration of Cove, and assembly of the server.
//!
//! This crate assembles the others and contains no rule that belongs to one of them. `serve` lists
//! the components of the server; `run` uses the same engine and the same service without a server.
//!
//! | file | contents |
//! |---|---|
//! | `cli.rs` | command-line definitions |
//! | `config.rs` | `cove.toml`, `COVE_*`, flags; the only reader of the environment |
//! | `serve.rs` | the server, piece by piece |
//! | `greeting.rs` | hints that a started server prints |
//! | `run.rs`, `run/request.rs` | runs one program in this process, and builds its request |
//! | `run/remote.rs`, `run/terminal.rs` | runs one program on a server, with a terminal |
//! | `remote.rs` | HTTP client of a server: its address, errors and events |
//! | `exec.rs`, `queue.rs` | executions and the queue of a server |
//! | `agent.rs`, `template.rs`, `session.rs`, `top.rs` | agents, templates and sessions of a server |
//! | `worker.rs` | tools of external agents, run in sessions of a server |
//! | `bouncer.rs`, `tenant.rs` | the bouncer, within a server or alone, and its tenants |
//! | `catalog.rs` | the catalog, within a server or alone, and its commands |
//! | `demo.rs` | example data on a server, created and removed |
//! | `doctor.rs` | checks of the isolation that this machine, or a server's, supports |
//! | `settings.rs` | the configuration in force: shown, checked, and served to operators |
//! | `token.rs`, `languages.rs` | the smaller commands |
//! | `cluster_setup.rs` | the keys of a cluster: created, and copied to another server |
//! | `cluster.rs`, `nodes.rs` | this server among the nodes that share its store, and `cove node` |
//! | `compat.rs` | compatibility interfaces: mount points and listeners |
//! | `storage.rs` | the server's persistent storage |
//! | `backup.rs` | a consistent copy of that storage, and its restoration |
//! | `live.rs` | one WebSocket for everything that a client follows |
//! | `docs.rs` | the documentation as files |
//! | `history.rs` | figures of the server from the last 24 hours |
//! | `reload.rs` | reloads the configuration while the server runs |
//! | `reference.rs` | shell completions and manual pages |
//! | `output.rs` | standard output of a command: a pager, or discarded |
//! | `ready.rs`, `scrape.rs` | `/health/ready` and `/metrics` |
//! | `traces.rs` | traces: settings, and the exporter of a server |
//! | `service_manager.rs` | notifications to systemd |
//! | `server_contexts.rs` | names for servers: `cove context` |
//! | `plain_text.rs` | display of foreign text on a terminal |
//! | `identity.rs`, `console.rs` | identity of a caller, console sign-in; `cove console` |
//! | `messages.rs`, `exit_codes.rs` | messages on standard error, and exit codes |
//! | `engine.rs`, `host.rs`, `values.rs` | shared by several commands |
#![forbid(unsafe_code)]

mod agent;
mod audit;
mod backup;
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
mod exit_codes;
mod gateway;
mod grants;
mod greeting;
mod history;
mod host;
mod identity;
mod kubernetes;
mod languages;
mod live;
mod mcp;
mod messages;
mod nodes;
mod output;
mod percent;
mod plain_text;
mod queue;
mod ready;
mod reference;
mod reload;
mod remote;
mod run;
mod scrape;
mod serve;
mod server_contexts;
mod service_manager;
mod session;
mod sessions;
mod settings;
mod storage;
mod template;
mod tenant;
mod token;
mod top;
mod traces;
mod usage_error;
mod values;
mod worker;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::ErrorKind;
use node::drain::Hangups;

use crate::cli::{Cli, CliCommand, ConfigArgs, VersionArgs};
use crate::config::{ConfigSource, CoveConfig, Environment, Flags};
use crate::exit_codes::{EXIT_PIPE, EXIT_USAGE};
use crate::messages::complain;
use crate::output::CommandOutput;

fn main() -> ExitCode {
    // This binary also acts as the spawner, which must run before anything else is initialized.
    if let Some(code) = sandbox::spawner_main_if_asked() {
        return code;
    }
    sandbox::return_large_blocks();
    let (cli, choice) = match Cli::of_this_process() {
        Ok(read) => read,
        Err(error) => return show_usage(&error),
    };
    let mut environment = Environment::of_this_process();
    match CommandOutput::begin(&choice, &mut environment) {
        Ok(output) => output.run(move || conclude(dispatch(cli.command, &environment))),
        Err(error) => conclude(Err(error)),
    }
}

/// Returns the exit code of a command, and prints its error.
fn conclude(result: anyhow::Result<ExitCode>) -> ExitCode {
    let error = match result {
        Ok(code) => return code,
        Err(error) => error,
    };
    let cause = error.downcast_ref::<io::Error>();
    if cause.is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe) {
        // The reader of standard output is gone, so no message is printed.
        return ExitCode::from(EXIT_PIPE);
    }
    complain(&format!("{error:#}"));
    let usage = error.downcast_ref::<config::CoveConfigError>().is_some();
    if usage { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
}

fn dispatch(command: CliCommand, environment: &Environment) -> anyhow::Result<ExitCode> {
    let load = |args: &ConfigArgs| {
        CoveConfig::load(args.config.as_deref(), environment, flags(args, Flags::new())?)
    };
    Ok(match command {
        CliCommand::Run(args) => {
            let config = load(&args.config)?;
            run::run(*args, config, environment)?
        }
        CliCommand::Serve(args) => {
            // Before anything else: without a handler, SIGHUP ends the process.
            let hangups = Hangups::before_runtime().context("failed to listen to signals")?;
            let flags = serve::flags(&args.settings);
            let source = config_source(&args.config, environment, flags)?;
            done(serve::serve(&source, args.keys.check(), hangups, args.takeover)?)
        }
        CliCommand::Exec(args) => {
            let config = load(&args.command.server().config)?;
            exec::run(args.command, &config, environment)
        }
        CliCommand::Queue(args) => {
            let config = load(&args.command.server().config)?;
            queue::run(args.command, &config, environment)
        }
        CliCommand::Mcp(args) => {
            let config = load(&args.server.config)?;
            mcp::run(args, &config, environment)
        }
        CliCommand::Worker(args) => worker::run(&args, &load(&args.server.config)?, environment),
        CliCommand::Agent(args) => agent::run(&args, &load(&args.server.config)?, environment),
        CliCommand::Template(args) => {
            template::run(&args, &load(&args.server.config)?, environment)
        }
        CliCommand::Session(args) => session::run(&args, &load(&args.server.config)?, environment),
        CliCommand::Top(args) => top::run(&args, &load(&args.server.config)?, environment),
        CliCommand::History(args) => {
            history::show::run(&args, &load(&args.server.config)?, environment)
        }
        CliCommand::Grants(args) => {
            let config = load(&args.command.output().server.config)?;
            grants::run(&args, &config, environment)
        }
        CliCommand::Audit(args) => audit::run(&args, &load(&args.server.config)?, environment),
        CliCommand::Cluster(args) => {
            done(cluster_setup::run(&args, &load(&args.config)?, environment)?)
        }
        CliCommand::Node(args) => {
            let config = load(&args.command.output().server.config)?;
            nodes::run(&args, &config, environment)
        }
        CliCommand::Console(args) => console::run(&args, &load(&args.server.config)?, environment),
        CliCommand::Demo(args) => demo::run(&args, &load(&args.server.config)?, environment),
        CliCommand::Tenant(args) => tenant::run(&args, &load(&args.server.config)?, environment),
        CliCommand::Bouncer(args) => {
            let source = config_source(&args.server.config, environment, Flags::new())?;
            bouncer::run(&args, &source)?
        }
        CliCommand::Catalog(args) => catalog::run(&args, environment)?,
        CliCommand::Backup(args) => backup::run(&args, &load(&args.server.config)?, environment),
        CliCommand::Restore(args) => backup::restore(&args, &load(&args.config)?),
        CliCommand::Token(args) => {
            let config = load(&args.config)?;
            let style = token::TokenStyle { e2b: args.e2b, json: args.json };
            done(token::run(&config, environment, args.command, style)?)
        }
        CliCommand::Languages(args) => {
            done(languages::run(&load(&args.config)?, environment, args.json)?)
        }
        CliCommand::Doctor(args) => doctor::run(&args, &load(&args.config)?, environment)?,
        CliCommand::Context(args) => {
            remote::conclude(server_contexts::run(args, environment).map(|()| 0))
        }
        CliCommand::Reload(args) => {
            settings::reload(&args, &load(&args.server.config)?, environment)
        }
        CliCommand::Config(args) => settings::run(&args, environment)?,
        CliCommand::Completions(args) => done(reference::completions(&args)?),
        CliCommand::Man(args) => done(reference::man(&args)?),
        CliCommand::Docs(args) => done(docs::docs(&args)?),
        CliCommand::Version(args) => done(print_version(&args)?),
    })
}

/// Returns the exit code of a successful command without another code.
const fn done((): ()) -> ExitCode {
    ExitCode::SUCCESS
}

fn print_version(args: &VersionArgs) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    match args.json {
        true => run::print_json(&serde_json::json!({ "version": version })),
        false => writeln!(io::stdout(), "cove {version}"),
    }
}

/// Reads the configuration of a command that may reload it later.
fn config_source(
    args: &ConfigArgs,
    environment: &Environment,
    more: Flags,
) -> Result<ConfigSource, config::CoveConfigError> {
    ConfigSource::read(args.config.clone(), environment, flags(args, more)?)
}

/// Returns the flags that every command with a configuration has.
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

/// Help is data and is printed on standard output; an error is printed on standard error.
fn show_usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if is_help {
        let mut out = io::stdout().lock();
        return match write!(out, "{text}").and_then(|()| out.flush()) {
            Ok(()) => ExitCode::SUCCESS,
            // The reader closed the pipe early.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(EXIT_PIPE),
            Err(error) => {
                complain(&format!("failed to write to standard output: {error}"));
                ExitCode::FAILURE
            }
        };
    }
    drop(write!(io::stderr(), "{text}"));
    ExitCode::from(EXIT_USAGE)
}
