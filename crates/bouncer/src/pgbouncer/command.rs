//! The console's commands.
//!
//! Words are separated by spaces, case does not matter, a semicolon may end a command. Names may be
//! in double quotes, values in single ones.

use super::ini::until_quote;

/// Topic of `SHOW`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are PgBouncer's: SHOW and the name")]
pub enum ShowTopic {
    Help,
    Config,
    Databases,
    Fds,
    Pools,
    PeerPools,
    Peers,
    Clients,
    Servers,
    Sockets,
    ActiveSockets,
    Lists,
    Version,
    State,
    Stats,
    StatsTotals,
    StatsAverages,
    Totals,
    Users,
    Mem,
    DnsHosts,
    DnsZones,
    /// Not of PgBouncer: which clients are pinned, and why.
    Pins,
}

/// Every topic by its name.
pub const TOPICS: [(&str, ShowTopic); 23] = [
    ("help", ShowTopic::Help),
    ("config", ShowTopic::Config),
    ("databases", ShowTopic::Databases),
    ("fds", ShowTopic::Fds),
    ("pools", ShowTopic::Pools),
    ("peer_pools", ShowTopic::PeerPools),
    ("peers", ShowTopic::Peers),
    ("clients", ShowTopic::Clients),
    ("servers", ShowTopic::Servers),
    ("sockets", ShowTopic::Sockets),
    ("active_sockets", ShowTopic::ActiveSockets),
    ("lists", ShowTopic::Lists),
    ("version", ShowTopic::Version),
    ("state", ShowTopic::State),
    ("stats", ShowTopic::Stats),
    ("stats_totals", ShowTopic::StatsTotals),
    ("stats_averages", ShowTopic::StatsAverages),
    ("totals", ShowTopic::Totals),
    ("users", ShowTopic::Users),
    ("mem", ShowTopic::Mem),
    ("dns_hosts", ShowTopic::DnsHosts),
    ("dns_zones", ShowTopic::DnsZones),
    ("pins", ShowTopic::Pins),
];

/// Condition that a shutdown waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownWait {
    /// None.
    Nobody,
    /// Until every server connection is released.
    Servers,
    /// Until every client has left.
    Clients,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsoleCommand {
    /// `SHOW …`.
    Show(ShowTopic),
    /// `SET key = value`.
    Set {
        /// Name of the setting.
        key: String,
        /// Its new value.
        value: String,
    },
    /// `PAUSE [db]`.
    Pause(Option<String>),
    /// `RESUME [db]`.
    Resume(Option<String>),
    /// `DISABLE db`.
    Disable(String),
    /// `ENABLE db`.
    Enable(String),
    /// `RECONNECT [db]`.
    Reconnect(Option<String>),
    /// `KILL [db]`.
    Kill(Option<String>),
    /// `KILL_CLIENT id`.
    KillClient(String),
    /// `SUSPEND`.
    Suspend,
    /// `SHUTDOWN [WAIT_FOR_…]`.
    Shutdown(ShutdownWait),
    /// `RELOAD`.
    Reload,
    /// `WAIT_CLOSE [db]`.
    WaitClose(Option<String>),
    /// Only spaces and semicolons.
    Empty,
}

impl ConsoleCommand {
    /// Returns whether it changes nothing, so that users of `stats_users` may run it.
    #[must_use]
    pub fn only_shows(&self) -> bool {
        matches!(self, ConsoleCommand::Show(_) | ConsoleCommand::Empty)
    }
}

/// Parses one command.
///
/// # Errors
/// Description of the mistake, for the user.
pub fn parse(text: &str) -> Result<ConsoleCommand, String> {
    let invalid = || format!("invalid command '{}', use SHOW HELP;", shown(text));
    let text = text.trim().trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    if text.is_empty() {
        return Ok(ConsoleCommand::Empty);
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (verb, rest) = (text[..end].to_ascii_lowercase(), text[end..].trim());
    if verb == "set" {
        return set(rest).ok_or_else(invalid);
    }
    let words = words(rest).ok_or_else(invalid)?;
    let argument = match words.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        _ => return Err(invalid()),
    };
    let required = || argument.clone().ok_or_else(|| format!("a name is required: {verb} NAME"));
    Ok(match verb.as_str() {
        "show" => {
            ConsoleCommand::Show(topic(argument.as_deref().unwrap_or("help")).ok_or_else(invalid)?)
        }
        "pause" => ConsoleCommand::Pause(argument),
        "resume" => ConsoleCommand::Resume(argument),
        "disable" => ConsoleCommand::Disable(required()?),
        "enable" => ConsoleCommand::Enable(required()?),
        "reconnect" => ConsoleCommand::Reconnect(argument),
        "kill" => ConsoleCommand::Kill(argument),
        "kill_client" => ConsoleCommand::KillClient(required()?),
        "wait_close" => ConsoleCommand::WaitClose(argument),
        "suspend" if argument.is_none() => ConsoleCommand::Suspend,
        "reload" if argument.is_none() => ConsoleCommand::Reload,
        "shutdown" => ConsoleCommand::Shutdown(match argument.as_deref() {
            None => ShutdownWait::Nobody,
            Some(it) if it.eq_ignore_ascii_case("wait_for_servers") => ShutdownWait::Servers,
            Some(it) if it.eq_ignore_ascii_case("wait_for_clients") => ShutdownWait::Clients,
            Some(_) => return Err(invalid()),
        }),
        _ => return Err(invalid()),
    })
}

fn topic(name: &str) -> Option<ShowTopic> {
    TOPICS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, topic)| *topic)
}

/// `key = value`, `key TO value`, or `key = 'value'`.
fn set(text: &str) -> Option<ConsoleCommand> {
    let end = text.find(|c: char| c == '=' || c.is_whitespace())?;
    let (key, rest) = (text[..end].to_ascii_lowercase(), text[end..].trim_start());
    let value = match (rest.strip_prefix('='), rest.get(..3)) {
        (Some(value), _) => value.trim(),
        (None, Some(word)) if word.eq_ignore_ascii_case("to ") => rest[3..].trim(),
        (None, _) => return None,
    };
    let value = match value.strip_prefix('\'') {
        Some(quoted) => {
            let (value, after) = until_quote(quoted, '\'')?;
            after.trim().is_empty().then_some(value)?
        }
        None if value.contains(char::is_whitespace) => return None,
        None => value.to_owned(),
    };
    (!key.is_empty()).then_some(ConsoleCommand::Set { key, value })
}

/// Splits text into words, without their quotes.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let word;
        (word, rest) = match rest.strip_prefix('"') {
            Some(quoted) => until_quote(quoted, '"')?,
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        words.push(word);
        rest = rest.trim_start();
    }
    Some(words)
}

/// Formats a command for an error message.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_to(key: &str, value: &str) -> ConsoleCommand {
        ConsoleCommand::Set { key: key.into(), value: value.into() }
    }

    #[test]
    fn commands_are_understood_whatever_their_case() {
        for (text, expected) in [
            ("SHOW POOLS", ConsoleCommand::Show(ShowTopic::Pools)),
            (" show  stats_totals ; ", ConsoleCommand::Show(ShowTopic::StatsTotals)),
            ("show", ConsoleCommand::Show(ShowTopic::Help)),
            ("", ConsoleCommand::Empty),
            (";;", ConsoleCommand::Empty),
            ("PAUSE", ConsoleCommand::Pause(None)),
            ("pause \"My Db\";", ConsoleCommand::Pause(Some("My Db".into()))),
            ("Resume p0", ConsoleCommand::Resume(Some("p0".into()))),
            ("disable p0", ConsoleCommand::Disable("p0".into())),
            ("KILL_CLIENT 12", ConsoleCommand::KillClient("12".into())),
            ("wait_close", ConsoleCommand::WaitClose(None)),
            ("SHUTDOWN", ConsoleCommand::Shutdown(ShutdownWait::Nobody)),
            ("shutdown wait_for_clients", ConsoleCommand::Shutdown(ShutdownWait::Clients)),
            ("set a = 1", set_to("a", "1")),
            ("SET a=1;", set_to("a", "1")),
            ("set A to 'x ''y'' = z'", set_to("a", "x 'y' = z")),
            ("set server_check_query = ''", set_to("server_check_query", "")),
            ("set auth_file =", set_to("auth_file", "")),
        ] {
            assert_eq!(parse(text).as_ref(), Ok(&expected), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "SELECT 1",
            "show nonsense",
            "pause a b",
            "disable",
            "kill_client",
            "set",
            "set a",
            "set a = 'x",
            "set a = 'x' y",
            "set a = b c",
            "shutdown now",
            "reload x",
            "pause \"x",
        ] {
            parse(text).unwrap_err();
        }
    }
}
