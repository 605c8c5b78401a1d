//! Standard output of a command: through a pager, discarded, or unchanged.
//!
//! Commands write to standard output without knowing its destination. [`CommandOutput::begin`]
//! applies the output options before the command runs, by replacing standard output with another
//! file, and [`CommandOutput::end`] undoes that afterwards.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context as _, Result};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::OutputChoice;
use crate::config::Environment;
use crate::exit_codes::{EXIT_INTERRUPTED, EXIT_PIPE};

/// Default pager: it exits by itself if the text fits on one screen, and passes colours through.
const PAGER_DEFAULT: [&str; 2] = ["less", "-FRX"];
/// Variables that name the pager, the first one that is set counts; an empty value disables paging.
const PAGER_VARIABLES: [&str; 2] = ["COVE_PAGER", "PAGER"];
/// Default options that `less` and `lv` read from the environment.
const PAGER_OPTIONS: [(&str, &str); 2] = [("LESS", "FRX"), ("LV", "-c")];
/// Pager name that disables paging.
const NO_PAGER: &str = "cat";
/// Target of discarded output.
const NOWHERE: &str = "/dev/null";

/// Stack size of the thread that runs a command with a pager: that of a main thread.
const STACK_BYTES: usize = 8 << 20;

/// True if only errors are printed.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Returns whether the command line requests errors only.
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Standard output while a command runs.
#[derive(Debug)]
pub(crate) enum CommandOutput {
    /// Standard output without a pager.
    Plain,
    /// Output to a pager; none if it could not be started.
    Paged(Option<Child>, TerminalInterrupts),
}

/// Receiver of Ctrl-C, from its creation on.
#[derive(Debug)]
pub(crate) struct TerminalInterrupts {
    runtime: Runtime,
    signal: Signal,
}

impl TerminalInterrupts {
    fn new() -> io::Result<TerminalInterrupts> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let signal = {
            let _inside = runtime.enter();
            signal(SignalKind::interrupt())?
        };
        Ok(TerminalInterrupts { runtime, signal })
    }

    /// Waits for the next Ctrl-C.
    fn wait(&mut self) -> Option<()> {
        self.runtime.block_on(self.signal.recv())
    }
}

/// Events that a command with a pager waits for.
enum PagedEvent {
    Done(ExitCode),
    Interrupted,
}

impl CommandOutput {
    /// Applies the options of the command line and the environment.
    ///
    /// # Errors
    /// If standard output cannot be replaced.
    pub(crate) fn begin(
        choice: &OutputChoice,
        environment: &mut Environment,
    ) -> Result<CommandOutput> {
        environment.set_colours(choice.colours);
        if choice.is_quiet {
            IS_QUIET.store(true, Ordering::Relaxed);
            close_stdout().context("failed to replace standard output")?;
            return Ok(CommandOutput::Plain);
        }
        if !choice.is_paged || !io::stdout().is_terminal() {
            return Ok(CommandOutput::Plain);
        }
        if is_paging_off(environment) {
            return Ok(CommandOutput::Plain);
        }
        // Before the pager starts, so that a failure leaves none behind.
        let interrupts = TerminalInterrupts::new().context("failed to listen to signals")?;
        let mut pager = start_pager(environment);
        if let Some(input) = pager.as_mut().and_then(|it| it.stdin.take()) {
            rustix::stdio::dup2_stdout(input).context("failed to replace standard output")?;
            environment.note_pager();
        }
        Ok(CommandOutput::Paged(pager, interrupts))
    }

    /// Runs the command, and waits for the pager if there is one. A user who leaves the pager early
    /// is no failure.
    ///
    /// Ctrl-C also reaches the pager, which keeps running. Therefore this process abandons the
    /// command and waits for the pager: otherwise the pager and the shell would read from the
    /// terminal at the same time.
    pub(crate) fn run(self, command: impl FnOnce() -> ExitCode + Send + 'static) -> ExitCode {
        let CommandOutput::Paged(pager, mut interrupts) = self else { return command() };
        let (sender, events) = mpsc::channel();
        let interrupted = sender.clone();
        let work = move || drop(sender.send(PagedEvent::Done(command())));
        let listen = move || {
            if interrupts.wait().is_some() {
                drop(interrupted.send(PagedEvent::Interrupted));
            }
        };
        let listening = thread::Builder::new().spawn(listen);
        let working = thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
        let event = listening.and(working).ok().and_then(|_| events.recv().ok());
        drop(io::stdout().flush());
        drop(close_stdout());
        if let Some(mut pager) = pager {
            drop(pager.wait());
        }
        match event {
            Some(PagedEvent::Done(code)) if code == ExitCode::from(EXIT_PIPE) => ExitCode::SUCCESS,
            Some(PagedEvent::Done(code)) => code,
            Some(PagedEvent::Interrupted) => ExitCode::from(EXIT_INTERRUPTED),
            None => ExitCode::FAILURE,
        }
    }
}

/// Returns the pager variable of the environment, if one is set.
fn named_pager(environment: &Environment) -> Option<&str> {
    PAGER_VARIABLES.iter().find_map(|name| environment.get_set(name)).map(str::trim)
}

/// Returns whether the environment disables paging.
fn is_paging_off(environment: &Environment) -> bool {
    named_pager(environment).is_some_and(|text| text.is_empty() || text == NO_PAGER)
}

/// Starts the pager that the environment names, or the default one; none if it is not installed.
fn start_pager(environment: &Environment) -> Option<Child> {
    let mut command = match named_pager(environment) {
        // Run by a shell with options, as other programs do with these variables.
        Some(text) => {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", text]);
            command
        }
        None => {
            let [program, options] = PAGER_DEFAULT;
            let mut command = Command::new(program);
            command.arg(options);
            command
        }
    };
    let missing = PAGER_OPTIONS.iter().filter(|(name, _)| environment.get_set(name).is_none());
    command.envs(missing.copied()).stdin(Stdio::piped());
    // Without a pager the output is not paged.
    command.spawn().ok()
}

/// Closes the pager's input, and discards all further output.
fn close_stdout() -> io::Result<()> {
    let nowhere = File::options().write(true).open(NOWHERE)?;
    Ok(rustix::stdio::dup2_stdout(nowhere)?)
}
