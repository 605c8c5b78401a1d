//! Contexts of a session's code interpreter, for the owner of its sandbox.

use std::sync::Arc;
use std::time::Duration;

use api::{
    CellEvent, CellReport, CodeContextList, CodeContextView, CreateCodeContext, ExecuteCell,
    ForkCodeContext,
};

use super::files::SandboxGuard;
use super::limits;
use crate::error::SessionError;
use crate::interpreter::{CellLanguage, CellStream, CodeContext, NewContext};

/// Default time limit of a cell.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Maximum time limit that a caller may set.
const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Maximum bytes of one cell.
const CODE_BYTES_MAX: usize = 8 << 20;
/// Maximum bytes of a path.
const PATH_BYTES_MAX: usize = 4096;
/// Bytes kept of each stream of a cell whose caller waits for its end.
const OUTPUT_BYTES_MAX: usize = 10 << 20;
/// Languages for which a sandbox has a default context.
const DEFAULTS: [CellLanguage; 2] = [CellLanguage::Python, CellLanguage::JavaScript];

/// Default directory of contexts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextHome(pub(crate) &'static str);

/// Default directory of the native interface.
pub(crate) const WORKSPACE: ContextHome = ContextHome("/workspace");

impl SandboxGuard {
    /// Returns the contexts, oldest first; at least those of [`DEFAULTS`], which start with their
    /// first cell.
    ///
    /// # Errors
    /// Never, for a sandbox whose contexts were listed before.
    pub(crate) fn code_contexts(&self, home: ContextHome) -> Result<CodeContextList, SessionError> {
        for language in DEFAULTS {
            self.default_context(language, home)?;
        }
        Ok(CodeContextList { contexts: self.contexts().list() })
    }

    /// Creates a context and starts it.
    ///
    /// # Errors
    /// If it cannot be started, or there are too many contexts.
    pub(crate) async fn create_code_context(
        &self,
        request: CreateCodeContext,
        home: ContextHome,
    ) -> Result<CodeContextView, SessionError> {
        let language = language(request.language.as_deref())?;
        let cwd = request.cwd.filter(|cwd| !cwd.is_empty()).unwrap_or_else(|| home.0.to_owned());
        if cwd.contains('\0') || cwd.len() > PATH_BYTES_MAX {
            let message = format!("has no NUL character and at most {PATH_BYTES_MAX} bytes");
            return Err(SessionError::invalid("cwd", message));
        }
        limits::check_env(&request.env, "env")?;
        // The default contexts are created first, because callers expect them first in the list.
        self.code_contexts(home)?;
        let id = self.new_context_id();
        let new = NewContext { id, language, cwd, env: request.env, is_default: false };
        let context = self.contexts().add(new)?;
        if let Err(error) = context.start(self).await {
            self.contexts().remove(&context).await;
            return Err(error);
        }
        Ok(context.view())
    }

    fn default_context(
        &self,
        language: CellLanguage,
        home: ContextHome,
    ) -> Result<Arc<CodeContext>, SessionError> {
        self.contexts().add(NewContext {
            id: self.new_context_id(),
            language,
            cwd: home.0.to_owned(),
            env: Default::default(),
            is_default: true,
        })
    }

    /// Finds a context by its id, or the default context of a language by the language's name.
    fn find_context(
        &self,
        name: &str,
        home: ContextHome,
    ) -> Result<Arc<CodeContext>, SessionError> {
        if let Some(context) = self.contexts().find(name) {
            return Ok(context);
        }
        match CellLanguage::named(Some(name).filter(|name| !name.is_empty())) {
            Some(language) => self.default_context(language, home),
            None => Err(SessionError::NotFound("context")),
        }
    }

    /// Returns a context's description.
    ///
    /// # Errors
    /// If there is no such context.
    pub(crate) fn code_context(
        &self,
        name: &str,
        home: ContextHome,
    ) -> Result<CodeContextView, SessionError> {
        Ok(self.find_context(name, home)?.view())
    }

    /// Ends the process of a context and starts a new one.
    ///
    /// # Errors
    /// If there is no such context, or it cannot be started.
    pub(crate) async fn restart_code_context(
        &self,
        name: &str,
        home: ContextHome,
    ) -> Result<CodeContextView, SessionError> {
        let context = self.find_context(name, home)?;
        context.restart(self).await?;
        Ok(context.view())
    }

    /// Forks a context into one with its own process and all definitions of the original.
    ///
    /// # Errors
    /// If there is no such context, or it cannot be forked.
    pub(crate) async fn fork_code_context(
        &self,
        name: &str,
        request: ForkCodeContext,
        home: ContextHome,
    ) -> Result<CodeContextView, SessionError> {
        let context = self.find_context(name, home)?;
        let copy = context.fork(self.clone(), self.new_context_id(), request.force).await?;
        Ok(copy.view())
    }

    /// Interrupts a context's running cell. Returns whether one runs.
    ///
    /// # Errors
    /// If there is no such context.
    pub(crate) async fn interrupt_code_context(
        &self,
        name: &str,
        home: ContextHome,
    ) -> Result<bool, SessionError> {
        Ok(self.find_context(name, home)?.interrupt().await)
    }

    /// Removes a context and ends its process.
    ///
    /// # Errors
    /// If there is no such context.
    pub(crate) async fn delete_code_context(&self, id: &str) -> Result<(), SessionError> {
        let context = self.contexts().find(id).ok_or(SessionError::NotFound("context"))?;
        self.contexts().remove(&context).await;
        Ok(())
    }

    /// Runs a cell in a context, by its id or the name of its language.
    ///
    /// # Errors
    /// If the cell is invalid, there is no such context, or too many cells wait in it.
    pub(crate) fn execute_cell(
        &self,
        name: &str,
        cell: ExecuteCell,
        home: ContextHome,
    ) -> Result<CellStream, SessionError> {
        if cell.code.len() > CODE_BYTES_MAX {
            return Err(SessionError::invalid("code", format!("more than {CODE_BYTES_MAX} bytes")));
        }
        limits::check_env(&cell.env, "env")?;
        if cell.timeout_ms.is_some_and(|ms| !(1..=TIMEOUT_MS_MAX).contains(&ms)) {
            let message = format!("must be between 1 and {TIMEOUT_MS_MAX}");
            return Err(SessionError::invalid("timeout_ms", message));
        }
        let timeout = cell.timeout_ms.map_or(TIMEOUT, Duration::from_millis);
        self.find_context(name, home)?.execute(self.clone(), cell, timeout)
    }

    /// Parks an interpreter and starts the default Python context, in the background.
    pub(crate) fn prepare_contexts(&self, home: ContextHome) {
        let guard = self.clone();
        node::task::spawn(async move {
            let prepared = async {
                guard.contexts().park(&guard).await?;
                guard.default_context(CellLanguage::Python, home)?.start(&guard).await
            };
            // A request for the context returns the reason of the failure.
            if let Err(error) = prepared.await {
                tracing::debug!(%error, "no interpreter was parked");
            }
        });
    }
}

fn language(name: Option<&str>) -> Result<CellLanguage, SessionError> {
    CellLanguage::named(name).ok_or_else(|| {
        let message = "must be `python`, `javascript`, `typescript` or `bash`";
        SessionError::invalid("language", message)
    })
}

/// Collects a cell's events until its end.
///
/// # Errors
/// If the sandbox ends meanwhile.
pub(crate) async fn collect(mut stream: CellStream) -> Result<CellReport, SessionError> {
    let (mut stdout, mut stderr) = (CollectedText::default(), CollectedText::default());
    let (mut results, mut error, mut execution_count) = (Vec::new(), None, 0);
    while let Some(event) = stream.next().await {
        match event {
            CellEvent::Started { execution_count: count } => execution_count = count,
            CellEvent::Stdout { text } => stdout.push(&text),
            CellEvent::Stderr { text } => stderr.push(&text),
            CellEvent::Result(result) => results.push(result),
            CellEvent::Error(failure) => error = Some(failure),
            CellEvent::Ended(end) => {
                return Ok(CellReport {
                    execution_count,
                    truncated: stdout.is_truncated || stderr.is_truncated,
                    stdout: stdout.text,
                    stderr: stderr.text,
                    results,
                    error,
                    end,
                });
            }
            CellEvent::Gone { error } => return Err(SessionError::SandboxEnded(error)),
        }
    }
    Err(SessionError::SandboxEnded("while a cell ran".to_owned()))
}

/// Kept text of a stream.
#[derive(Debug, Default)]
struct CollectedText {
    text: String,
    is_truncated: bool,
}

impl CollectedText {
    fn push(&mut self, text: &str) {
        let room = OUTPUT_BYTES_MAX.saturating_sub(self.text.len());
        let end = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        self.is_truncated |= text.len() > room;
        self.text.push_str(text.get(..end.unwrap_or(0)).unwrap_or_default());
    }
}
