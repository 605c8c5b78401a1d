//! Client configuration entries that start `cove mcp`.
//!
//! # References
//! - <https://code.claude.com/docs/en/mcp>
//! - <https://cursor.com/docs/context/mcp>
//! - <https://code.visualstudio.com/docs/copilot/reference/mcp-configuration>

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use crate::cli::{McpClient, McpInstallArgs, ServerArgs};
use crate::config::Environment;
use crate::usage_error::UsageError;

/// Name of the entry.
const NAME: &str = "cove";

/// Writes the entry into the client's configuration, or prints it.
pub(super) fn install(
    wanted: &McpInstallArgs,
    server: &ServerArgs,
    environment: &Environment,
) -> Result<()> {
    let entry = entry(wanted.client, server)?;
    let servers = servers_field(wanted.client);
    if wanted.print {
        let document = json!({ servers: { NAME: entry } });
        writeln!(io::stdout(), "{document:#}")?;
        return Ok(());
    }
    let path = match &wanted.file {
        Some(path) => path.clone(),
        None => path_of(wanted.client, environment)?,
    };
    let before = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            return Err(error).with_context(|| format!("failed to read {}", path.display()));
        }
    };
    let after = with_entry(&before, servers, entry)
        .map_err(|why| UsageError(format!("{}: {why}; nothing was changed", path.display())))?;
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)
            .with_context(|| format!("failed to make {}", directory.display()))?;
    }
    write(&path, &after).with_context(|| format!("failed to write {}", path.display()))?;
    writeln!(io::stdout(), "added \"{NAME}\" to {}", path.display())?;
    Ok(())
}

/// Replaces a file atomically.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("json.new");
    fs::write(&fresh, text)?;
    fs::rename(&fresh, path)
}

/// Returns the name of the field that contains all servers.
const fn servers_field(client: McpClient) -> &'static str {
    match client {
        McpClient::Vscode => "servers",
        McpClient::Claude | McpClient::ClaudeDesktop | McpClient::Cursor | McpClient::Windsurf => {
            "mcpServers"
        }
    }
}

/// Returns the entry that starts this program with the same server.
fn entry(client: McpClient, server: &ServerArgs) -> Result<Value> {
    let program = std::env::current_exe().context("failed to find this program")?;
    let mut args = vec!["mcp".to_owned()];
    let mut add = |flag: &str, value: Option<String>| {
        args.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
    };
    add("--server", server.server.clone());
    add("--token-file", server.token_file.as_deref().map(absolute).transpose()?);
    add("--config", server.config.config.as_deref().map(absolute).transpose()?);
    add("--data-dir", server.config.data_dir.as_deref().map(absolute).transpose()?);
    let mut entry = Map::new();
    if client == McpClient::Vscode {
        entry.insert("type".to_owned(), json!("stdio"));
    }
    entry.insert("command".to_owned(), json!(program));
    entry.insert("args".to_owned(), json!(args));
    Ok(Value::Object(entry))
}

/// Returns an absolute path, because the client starts the program in another directory.
fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).context("failed to find the current directory")?;
    Ok(path.to_string_lossy().into_owned())
}

/// Returns the path of the client's configuration: in the project if the client supports that,
/// otherwise in the home directory.
fn path_of(client: McpClient, environment: &Environment) -> Result<PathBuf> {
    let below_home = |path: &str| match environment.home() {
        Some(home) => Ok(home.join(path)),
        None => Err(UsageError("HOME is not set; name the file with --file".to_owned())),
    };
    Ok(match client {
        McpClient::Claude => PathBuf::from(".mcp.json"),
        McpClient::Vscode => PathBuf::from(".vscode/mcp.json"),
        McpClient::ClaudeDesktop => below_home(".config/Claude/claude_desktop_config.json")?,
        McpClient::Cursor => below_home(".cursor/mcp.json")?,
        McpClient::Windsurf => below_home(".codeium/windsurf/mcp_config.json")?,
    })
}

/// Adds the entry to a configuration, and leaves everything else unchanged.
fn with_entry(before: &str, servers: &str, entry: Value) -> Result<String, String> {
    let mut document: Value = match before.trim() {
        "" => json!({}),
        text => serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?,
    };
    let Some(fields) = document.as_object_mut() else {
        return Err("it is not a JSON object".to_owned());
    };
    let all = fields.entry(servers).or_insert_with(|| json!({}));
    let Some(all) = all.as_object_mut() else {
        return Err(format!("`{servers}` is not an object"));
    };
    all.insert(NAME.to_owned(), entry);
    Ok(format!("{document:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_leaves_all_others() {
        let entry = json!({ "command": "cove", "args": ["mcp"] });
        let added = with_entry("", "mcpServers", entry.clone()).unwrap();
        let added: Value = serde_json::from_str(&added).unwrap();
        assert_eq!(added, json!({ "mcpServers": { "cove": entry } }));
        let before = r#"{"a":1,"mcpServers":{"other":{"command":"x"},"cove":{"command":"old"}}}"#;
        let after: Value =
            serde_json::from_str(&with_entry(before, "mcpServers", entry.clone()).unwrap())
                .unwrap();
        let expected = json!({
            "a": 1,
            "mcpServers": { "other": { "command": "x" }, "cove": entry },
        });
        assert_eq!(after, expected);
        for wrong in ["[]", "{", r#"{"mcpServers":3}"#, "// comment\n{}"] {
            assert!(with_entry(wrong, "mcpServers", json!({})).is_err(), "{wrong}");
        }
    }
}
