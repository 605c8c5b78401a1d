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
//! | `greeting.rs` | what a server that has started says to try |
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
//! | `settings.rs` | the configuration in force: shown, checked, and served to operators |
//! | `token.rs`, `languages.rs` | the smaller commands |
//! | `cluster_setup.rs` | the keys of a cluster: made, and brought to another server |
//! | `cluster.rs`, `nodes.rs` | this server among those that share its store, and all of them seen from the command line |
//! | `compat.rs` | other systems' interfaces: where they are mounted and listen |
//! | `storage.rs` | where the server keeps what must survive it |
//! | `backup.rs` | a consistent copy of all that, and a server made of it |
//! | `live.rs` | one WebSocket for all that a client follows |
//! | `docs.rs` | the documentation as files |
//! | `history.rs` | what the server measured in the last 24 hours |
//! | `reload.rs` | the configuration, read again while the server runs |
//! | `reference.rs` | completions of shells, and pages of the manual |
//! | `output.rs` | standard output of a command as a whole: a pager, or nobody |
//! | `ready.rs`, `scrape.rs` | `/health/ready` and `/metrics` |
//! | `traces.rs` | traces: settings, and the exporter beside a server |
//! | `service_manager.rs` | what systemd is told |
//! | `server_contexts.rs` | names for servers: `cove context` |
//! | `plain_text.rs` | foreign text, as it is shown on a terminal |
//! | `identity.rs`, `console.rs` | who a caller is, signing in at the console; `cove console` |
//! | `messages.rs`, `exit_codes.rs` | what commands say on standard error, and end with |
//! | `engine.rs`, `host.rs`, `values.rs` | what several of them need |
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
    // This binary also plays the spawner, which must not have done anything before.
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

/// Returns the exit code of a command, after saying what went wrong.
fn conclude(result: anyhow::Result<ExitCode>) -> ExitCode {
    let error = match result {
        Ok(code) => return code,
        Err(error) => error,
    };
    let cause = error.downcast_ref::<io::Error>();
    if cause.is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe) {
        // Nobody is left to tell.
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
            // Before anything else: until somebody listens, SIGHUP ends the process.
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

/// The exit code of a command that has no other when it succeeds.
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

/// Reads the configuration of a command that may read it again later.
fn config_source(
    args: &ConfigArgs,
    environment: &Environment,
    more: Flags,
) -> Result<ConfigSource, config::CoveConfigError> {
    ConfigSource::read(args.config.clone(), environment, flags(args, more)?)
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

/// Help is data and goes to standard output; a mistake goes to standard error.
fn show_usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if is_help {
        let mut out = io::stdout().lock();
        return match write!(out, "{text}").and_then(|()| out.flush()) {
            Ok(()) => ExitCode::SUCCESS,
            // A reader that has seen enough.
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
