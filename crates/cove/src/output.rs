//! Standard output of a command as a whole: through a pager, to nobody, or where it was sent to.
//!
//! Commands write to standard output and know nothing of it. What a command line says about its
//! output is decided before it runs, by [`CommandOutput::begin`], which puts another file in the
//! place of standard output, and undone behind it, by [`CommandOutput::end`].

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

/// Pager where nothing names one: it ends by itself when all fits, and passes colours through.
const PAGER_DEFAULT: [&str; 2] = ["less", "-FRX"];
/// Pagers by name, the first that is set counts; empty for none.
const PAGER_VARIABLES: [&str; 2] = ["COVE_PAGER", "PAGER"];
/// Options that `less` and `lv` read from the environment, where nobody set them: as above.
const PAGER_OPTIONS: [(&str, &str); 2] = [("LESS", "FRX"), ("LV", "-c")];
/// A pager that is none.
const NO_PAGER: &str = "cat";
/// Standard output where nobody wants it.
const NOWHERE: &str = "/dev/null";

/// Stack of the thread that a command with a pager runs on: that of a main thread.
const STACK_BYTES: usize = 8 << 20;

/// True if only errors are to be said.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Returns whether the command line says that only errors are wanted.
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Standard output while a command runs.
#[derive(Debug)]
pub(crate) enum CommandOutput {
    /// Destination of standard output, if there is one.
    Plain,
    /// To a pager; none where there turned out to be none.
    Paged(Option<Child>, TerminalInterrupts),
}

/// Ctrl-C, from when it is made on.
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

    /// Waits for the next one.
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
    /// Puts in force what the command line and the environment say.
    ///
    /// # Errors
    /// When standard output cannot be replaced.
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
        // Before there is a pager that could be left behind.
        let interrupts = TerminalInterrupts::new().context("failed to listen to signals")?;
        let mut pager = start_pager(environment);
        if let Some(input) = pager.as_mut().and_then(|it| it.stdin.take()) {
            rustix::stdio::dup2_stdout(input).context("failed to replace standard output")?;
            environment.note_pager();
        }
        Ok(CommandOutput::Paged(pager, interrupts))
    }

    /// Runs the command, and waits for the pager where there is one. Whoever leaves the pager has
    /// seen enough, which is no failure.
    ///
    /// Ctrl-C reaches the pager, too, which goes on. So the command ends and its pager does not:
    /// otherwise it would read from the terminal at the same time as the shell.
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

/// Returns what the environment says of pagers, if it says anything.
fn named_pager(environment: &Environment) -> Option<&str> {
    PAGER_VARIABLES.iter().find_map(|name| environment.get_set(name)).map(str::trim)
}

/// Returns whether the environment says that there is to be no pager.
fn is_paging_off(environment: &Environment) -> bool {
    named_pager(environment).is_some_and(|text| text.is_empty() || text == NO_PAGER)
}

/// Starts the pager that the environment names, or the usual one; none where it is not installed.
fn start_pager(environment: &Environment) -> Option<Child> {
    let mut command = match named_pager(environment) {
        // As other programs read these variables: with options, and whatever a shell can do.
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
    // Without a pager everything is shown at once, as it is elsewhere.
    command.spawn().ok()
}

/// Ends what reads standard output; what is written from now on is for nobody.
fn close_stdout() -> io::Result<()> {
    let nowhere = File::options().write(true).open(NOWHERE)?;
    Ok(rustix::stdio::dup2_stdout(nowhere)?)
}
