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

/// Longest a cell may take whose caller does not say how long.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Longest that it may say.
const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Bytes of one cell.
const CODE_BYTES_MAX: usize = 8 << 20;
/// Bytes of a path.
const PATH_BYTES_MAX: usize = 4096;
/// Bytes that are kept of each stream of a cell whose caller waits for its end.
const OUTPUT_BYTES_MAX: usize = 10 << 20;
/// Languages that a sandbox has a context of from the beginning.
const DEFAULTS: [CellLanguage; 2] = [CellLanguage::Python, CellLanguage::JavaScript];

/// Default directory of contexts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextHome(pub(crate) &'static str);

/// That of the native interface.
pub(crate) const WORKSPACE: ContextHome = ContextHome("/workspace");

impl SandboxGuard {
    /// The contexts, oldest first; at least those of [`DEFAULTS`], which start with their first
    /// cell.
    ///
    /// # Errors
    /// Never for a sandbox that has been asked before.
    pub(crate) fn code_contexts(&self, home: ContextHome) -> Result<CodeContextList, SessionError> {
        for language in DEFAULTS {
            self.default_context(language, home)?;
        }
        Ok(CodeContextList { contexts: self.contexts().list() })
    }

    /// Makes a context and starts it.
    ///
    /// # Errors
    /// If it cannot be started, or there are too many.
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
        // Before the others, as callers find the default ones first.
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

    /// A context by its id, or the default one of a language by that.
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

    /// A context as it is.
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

    /// Forks a context, which has its own process with all that is defined in the other.
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

    /// Interrupts the cell that a context runs. Returns whether it runs one.
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
    /// What is wrong with the cell; when there is no such context, or too many cells wait in it.
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

    /// Parks an interpreter and starts the default context of Python, in the background.
    pub(crate) fn prepare_contexts(&self, home: ContextHome) {
        let guard = self.clone();
        node::task::spawn(async move {
            let prepared = async {
                guard.contexts().park(&guard).await?;
                guard.default_context(CellLanguage::Python, home)?.start(&guard).await
            };
            // A request for the context gets the reason why there is none.
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

/// Reads a cell to its end.
///
/// # Errors
/// If the sandbox ended meanwhile.
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

/// Text that is kept of a stream.
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
