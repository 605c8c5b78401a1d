//! Contexts: names for servers, each with the token to use there, and `cove context`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use node::client::check_url;
use node::data_dir::write_atomic;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cli::{AddContextArgs, ServerContextArgs, ServerContextCommand};
use crate::config::Environment;
use crate::remote::plain;
use crate::run::print_json;
use crate::usage_error::UsageError;
use crate::values::columns;

/// Name of the file, in the configuration directory of its owner.
const FILE: &str = "cove/contexts.toml";
/// Longest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest token, in bytes.
const TOKEN_BYTES_MAX: u64 = 4 << 10;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// File name that stands for standard input.
const STDIN: &str = "-";

/// The file of contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerContexts {
    /// Name of the context that is used if no server is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, ServerContext>,
}

/// Server, and its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerContext {
    /// URL of the server.
    pub(crate) server: String,
    /// File that the token is read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<StoredToken>,
}

/// Token that is stored in the file. Its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredToken(String);

impl std::fmt::Debug for StoredToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoredToken(..)")
    }
}

impl StoredToken {
    /// Returns the token itself.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl ServerContexts {
    /// Reads the caller's contexts; none if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read or is malformed.
    pub(crate) fn load(environment: &Environment) -> Result<ServerContexts> {
        let Ok(path) = path_in(environment) else { return Ok(ServerContexts::default()) };
        let text = match read_bounded(&path, FILE_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(ServerContexts::default());
            }
            Err(error) => {
                return Err(UsageError(format!("read `{}`: {error}", path.display())).into());
            }
        };
        let contexts = toml::from_str::<ServerContexts>(&text);
        contexts.map_err(|error| {
            let why = error.message();
            UsageError(format!("`{}` is not a file of contexts: {why}", path.display())).into()
        })
    }

    /// Replaces the file, with access for its owner only.
    fn save(&self, environment: &Environment) -> Result<()> {
        let path = path_in(environment)?;
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)
            .with_context(|| format!("failed to create `{}`", directory.display()))?;
        let text = toml::to_string(self).context("failed to write contexts down")?;
        Ok(write_atomic(&path, text.as_bytes())?)
    }

    /// Returns the context with a name.
    ///
    /// # Errors
    /// If there is none; names the existing ones.
    pub(crate) fn get(&self, name: &str) -> Result<&ServerContext, UsageError> {
        self.contexts.get(name).ok_or_else(|| {
            let known: Vec<_> = self.contexts.keys().map(String::as_str).collect();
            let remedy = match known.is_empty() {
                true => "`cove context add` creates one".to_owned(),
                false => format!("there are {}", known.join(", ")),
            };
            let name = plain(name);
            UsageError(format!(
                "unknown context \"{name}\": {remedy}; an address begins with http:// or https://"
            ))
        })
    }

    /// Returns the current context and its name.
    ///
    /// # Errors
    /// If there is no context with that name.
    pub(crate) fn current(&self) -> Result<Option<(&str, &ServerContext)>, UsageError> {
        let Some(name) = self.current.as_deref() else { return Ok(None) };
        self.get(name).map(|context| Some((name, context)))
    }
}

/// Runs one command.
///
/// # Errors
/// If the file cannot be read or written, or the context does not exist.
pub(crate) fn run(args: ServerContextArgs, environment: &Environment) -> Result<()> {
    let mut contexts = ServerContexts::load(environment)?;
    match args.command {
        ServerContextCommand::List(output) => {
            return match output.json {
                true => Ok(print_json(&documents(&contexts))?),
                false => Ok(write!(io::stdout(), "{}", table(&contexts))?),
            };
        }
        ServerContextCommand::Show { name, output } => {
            let name = name.as_deref().or(contexts.current.as_deref());
            let name = name.ok_or_else(|| {
                UsageError("no context is the current one: name one, or `cove context use`".into())
            })?;
            let document = document(&contexts, name, contexts.get(name)?);
            return match output.json {
                true => Ok(print_json(&document)?),
                false => Ok(write!(io::stdout(), "{}", details(&contexts, name)?)?),
            };
        }
        ServerContextCommand::Add(add) => return self::add(contexts, add, environment),
        ServerContextCommand::Use { name, none: _ } => {
            if let Some(name) = &name {
                contexts.get(name)?;
            }
            let message = match &name {
                Some(name) => format!("current context is {name}"),
                None => "no context is the current one".to_owned(),
            };
            contexts.current = name;
            contexts.save(environment)?;
            writeln!(io::stdout(), "{message}")?;
        }
        ServerContextCommand::Remove { names } => {
            for name in &names {
                contexts.get(name)?;
            }
            for name in &names {
                contexts.contexts.remove(name);
                contexts.current.take_if(|current| current == name);
            }
            contexts.save(environment)?;
            writeln!(io::stdout(), "removed context {}", names.join(", "))?;
        }
    }
    Ok(())
}

fn add(mut contexts: ServerContexts, add: AddContextArgs, environment: &Environment) -> Result<()> {
    let AddContextArgs { name, server, token_file, make_current } = add;
    let is_name = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_name) {
        let message = format!("a name has 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`");
        return Err(UsageError(message).into());
    }
    check_url(&server).map_err(|error| UsageError(format!("--server: {error}")))?;
    if server.contains(['?', '#']) {
        return Err(UsageError("--server: it is the address of a page".to_owned()).into());
    }
    let (token_file, token) = match token_file {
        None => (None, None),
        Some(path) if path == Path::new(STDIN) => (None, Some(token_of_stdin()?)),
        Some(path) => {
            let path = std::path::absolute(&path).unwrap_or(path);
            let read = read_bounded(&path, TOKEN_BYTES_MAX);
            read.map_err(|error| {
                UsageError(format!("--token-file: read `{}`: {error}", path.display()))
            })?;
            (Some(path), None)
        }
    };
    let context = ServerContext { server, token_file, token };
    let is_new = contexts.contexts.insert(name.clone(), context).is_none();
    let verb = if is_new { "added" } else { "changed" };
    let also = if make_current { "; it is the current one" } else { "" };
    if make_current {
        contexts.current = Some(name.clone());
    }
    contexts.save(environment)?;
    Ok(writeln!(io::stdout(), "{verb} context {name}{also}")?)
}

fn token_of_stdin() -> Result<StoredToken> {
    let mut text = String::new();
    io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    let token = text.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    match is_token {
        true => Ok(StoredToken(token.to_owned())),
        false => Err(UsageError("standard input does not contain a token".to_owned()).into()),
    }
}

/// Returns the path of the contexts file.
fn path_in(environment: &Environment) -> Result<PathBuf> {
    let directory = environment.config_home();
    let directory = directory.context("no home directory for contexts; set HOME")?;
    Ok(directory.join(FILE))
}

fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(bytes_max).read_to_string(&mut text)?;
    Ok(text)
}

/// Describes the origin of a context's token.
fn token_origin(context: &ServerContext) -> String {
    match (&context.token_file, &context.token) {
        (Some(path), _) => plain(&path.display().to_string()),
        (None, Some(_)) => "kept in the context".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

fn table(contexts: &ServerContexts) -> String {
    if contexts.contexts.is_empty() {
        return "no contexts; `cove context add NAME --server URL` adds one\n".to_owned();
    }
    let mut rows = vec![["CONTEXT", "SERVER", "TOKEN"].map(str::to_owned)];
    rows.extend(contexts.contexts.iter().map(|(name, context)| {
        let mark = if contexts.current.as_deref() == Some(name) { "*" } else { "" };
        [format!("{name}{mark}"), plain(&context.server), token_origin(context)]
    }));
    columns(&rows, "")
}

fn details(contexts: &ServerContexts, name: &str) -> Result<String> {
    let context = contexts.get(name)?;
    let is_current = contexts.current.as_deref() == Some(name);
    let rows = [
        ["context".to_owned(), plain(name)],
        ["current".to_owned(), if is_current { "yes" } else { "no" }.to_owned()],
        ["server".to_owned(), plain(&context.server)],
        ["token".to_owned(), token_origin(context)],
    ];
    Ok(columns(&rows, ""))
}

/// Returns a context as a document. A stored token is not shown.
fn document(contexts: &ServerContexts, name: &str, context: &ServerContext) -> serde_json::Value {
    json!({
        "name": name,
        "current": contexts.current.as_deref() == Some(name),
        "server": context.server,
        "token_file": context.token_file,
        "has_token": context.token.is_some() || context.token_file.is_some(),
    })
}

fn documents(contexts: &ServerContexts) -> serde_json::Value {
    let all = contexts.contexts.iter().map(|(name, context)| document(contexts, name, context));
    json!({ "contexts": all.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> ServerContexts {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn contexts_are_read_as_they_are_written() {
        let contexts = read(
            "current = \"a\"\n[contexts.a]\nserver = \"http://a\"\ntoken = \"secret\"\n\
             [contexts.b]\nserver = \"https://b\"\ntoken_file = \"/t\"\n",
        );
        assert_eq!(read(&toml::to_string(&contexts).unwrap()), contexts);
        assert_eq!(contexts.current().unwrap().unwrap().0, "a");
        assert_eq!(read("").current().unwrap(), None);
        assert!(
            !format!("{contexts:?}{}{}", documents(&contexts), table(&contexts)).contains("secret")
        );
    }

    #[test]
    fn an_unknown_context_is_said_with_those_that_are_known() {
        let contexts = read("current = \"gone\"\n[contexts.a]\nserver = \"http://a\"\n");
        for error in [contexts.get("x").unwrap_err(), read("").get("x").unwrap_err()] {
            assert!(error.to_string().starts_with("unknown context \"x\": "), "{error}");
        }
        assert!(contexts.get("x").unwrap_err().to_string().contains("there are a"));
        assert!(contexts.current().unwrap_err().to_string().contains("\"gone\""));
    }

    #[test]
    fn unknown_fields_are_refused() {
        for text in ["curent = \"a\"", "[contexts.a]\nserver = \"http://a\"\npassword = \"x\""] {
            assert!(toml::from_str::<ServerContexts>(text).is_err(), "{text}");
        }
    }
}
