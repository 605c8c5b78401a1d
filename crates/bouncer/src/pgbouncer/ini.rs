//! The configuration file: sections of `key = value`, comments, `%include`.
//!
//! Never opens a file: the caller reads included files, and their depth is bounded here.
//!
//! # References
//! - <https://www.pgbouncer.org/config.html>

use std::path::{Path, PathBuf};

/// Maximum depth of includes. PgBouncer has a limit of its own, against loops.
pub const INCLUDE_DEPTH_MAX: usize = 16;

/// Maximum lines of all files together.
pub const LINES_MAX: usize = 100_000;

/// Content of the file, in its order. Later lines override earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedIni {
    /// `[pgbouncer]`.
    pub settings: Vec<IniEntry>,
    /// `[databases]`: the value is a connection string, see [`connection_string`].
    pub databases: Vec<IniEntry>,
    /// `[users]`.
    pub users: Vec<IniEntry>,
    /// `[peers]`.
    pub peers: Vec<IniEntry>,
}

/// Entry of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IniEntry {
    /// File and line, for messages: `pgbouncer.ini:12`.
    pub at: String,
    /// The key, without quotes.
    pub key: String,
    /// The value, without the spaces around it.
    pub value: String,
}

/// Why a file cannot be parsed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IniError {
    /// A file cannot be read.
    #[error("{at}: read {path}: {why}")]
    Read {
        /// Line that names it.
        at: String,
        /// Path of the file.
        path: String,
        /// Error of the system.
        why: String,
    },
    /// A line is invalid.
    #[error("{at}: {what}")]
    Line {
        /// Line.
        at: String,
        /// Problem.
        what: String,
    },
    /// A limit is exceeded.
    #[error("{at}: {limit} is {max}")]
    TooMuch {
        /// Line where it was noticed.
        at: String,
        /// Name of the limit.
        limit: &'static str,
        /// Value.
        max: usize,
    },
}

/// Reads the file at `path`, and the files that it includes, with `read`.
///
/// # Errors
/// The first line that cannot be parsed or file that cannot be read.
pub fn load(
    path: &Path,
    read: &mut dyn FnMut(&Path) -> std::io::Result<String>,
) -> Result<ParsedIni, IniError> {
    let mut loader = IniLoader { ini: ParsedIni::default(), read, lines: 0 };
    loader.file(path, "command line", 0)?;
    Ok(loader.ini)
}

#[derive(Clone, Copy, PartialEq)]
enum IniSection {
    None,
    Settings,
    Databases,
    Users,
    Peers,
}

struct IniLoader<'a> {
    ini: ParsedIni,
    read: &'a mut dyn FnMut(&Path) -> std::io::Result<String>,
    lines: usize,
}

impl IniLoader<'_> {
    fn file(&mut self, path: &Path, from: &str, depth: usize) -> Result<(), IniError> {
        if depth >= INCLUDE_DEPTH_MAX {
            let max = INCLUDE_DEPTH_MAX;
            return Err(IniError::TooMuch { at: from.into(), limit: "INCLUDE_DEPTH_MAX", max });
        }
        let text = (self.read)(path).map_err(|error| IniError::Read {
            at: from.into(),
            path: path.display().to_string(),
            why: error.to_string(),
        })?;
        let mut section = IniSection::None;
        for (index, line) in text.lines().enumerate() {
            let at = format!("{}:{}", path.display(), index + 1);
            self.lines += 1;
            if self.lines > LINES_MAX {
                return Err(IniError::TooMuch { at, limit: "LINES_MAX", max: LINES_MAX });
            }
            self.line(line.trim(), at, &mut section, depth)?;
        }
        Ok(())
    }

    fn line(
        &mut self,
        line: &str,
        at: String,
        section: &mut IniSection,
        depth: usize,
    ) -> Result<(), IniError> {
        if line.is_empty() || line.starts_with([';', '#']) {
            return Ok(());
        }
        if let Some(name) = line.strip_prefix("%include") {
            return self.file(&PathBuf::from(name.trim()), &at, depth + 1);
        }
        let wrong = |what: String| IniError::Line { at: at.clone(), what };
        if let Some(rest) = line.strip_prefix('[') {
            let Some(name) = rest.strip_suffix(']') else {
                return Err(wrong("a section begins but does not end with ]".into()));
            };
            *section = match name.trim() {
                "pgbouncer" => IniSection::Settings,
                "databases" => IniSection::Databases,
                "users" => IniSection::Users,
                "peers" => IniSection::Peers,
                other => return Err(wrong(format!("there is no section [{other}]"))),
            };
            return Ok(());
        }
        let (key, value) = key_and_value(line).ok_or_else(|| wrong("not key = value".into()))?;
        let entries = match section {
            IniSection::None => return Err(wrong("a key before any section".into())),
            IniSection::Settings => &mut self.ini.settings,
            IniSection::Databases => &mut self.ini.databases,
            IniSection::Users => &mut self.ini.users,
            IniSection::Peers => &mut self.ini.peers,
        };
        entries.push(IniEntry { at, key, value });
        Ok(())
    }
}

/// Parses `key = value`, where the key may be in double quotes, doubled inside.
fn key_and_value(line: &str) -> Option<(String, String)> {
    let (key, rest) = match line.strip_prefix('"') {
        Some(quoted) => until_quote(quoted, '"')?,
        None => {
            let end = line.find(|c: char| c == '=' || c.is_whitespace())?;
            (line[..end].to_owned(), &line[end..])
        }
    };
    let value = rest.trim_start().strip_prefix('=')?.trim();
    (!key.is_empty()).then(|| (key, value.to_owned()))
}

/// Returns the text before the closing quote, and the text after it.
pub(crate) fn until_quote(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        if c != quote {
            value.push(c);
        } else if chars.next_if(|(_, next)| *next == quote).is_some() {
            value.push(quote);
        } else {
            return Some((value, &text[index + quote.len_utf8()..]));
        }
    }
    None
}

/// Parses the pairs of a connection string: `host=127.0.0.1 password='it''s'`.
///
/// # Errors
/// Description of the mistake, for users.
pub fn connection_string(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let Some((key, after)) = rest.split_once('=') else {
            return Err(format!("no = after {rest:?}"));
        };
        let key = key.trim();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(format!("{key:?} is not a key"));
        }
        let after = after.trim_start();
        let value;
        (value, rest) = match after.strip_prefix('\'') {
            Some(quoted) => until_quote(quoted, '\'').ok_or(format!("{key} has no end quote"))?,
            None => {
                let end = after.find(char::is_whitespace).unwrap_or(after.len());
                (after[..end].to_owned(), &after[end..])
            }
        };
        pairs.push((key.to_owned(), value));
        rest = rest.trim_start();
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(text: &str) -> Result<ParsedIni, IniError> {
        load(Path::new("a.ini"), &mut |path| match path.to_str() {
            Some("a.ini") => Ok(text.to_owned()),
            Some("loop.ini") => Ok("%include loop.ini".to_owned()),
            Some("more.ini") => Ok("[users]\nann = pool_size=1".to_owned()),
            _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        })
    }

    #[test]
    fn sections_comments_quotes_and_includes_are_read() {
        let text = "; a comment\n# another\n[databases]\n  p0 = host=127.0.0.1 dbname=p0 \n\
                    \"a \"\"b\" = port=1\n* = host=/run\n[pgbouncer]\nlisten_port=6432\nlogfile =\n\
                    %include more.ini\npool_mode = session\n";
        let ini = load_text(text).unwrap();
        let pairs = |entries: &[IniEntry]| -> Vec<String> {
            entries.iter().map(|it| format!("{}|{}|{}", it.at, it.key, it.value)).collect()
        };
        let databases =
            ["a.ini:4|p0|host=127.0.0.1 dbname=p0", "a.ini:5|a \"b|port=1", "a.ini:6|*|host=/run"];
        assert_eq!(pairs(&ini.databases), databases);
        let settings =
            ["a.ini:8|listen_port|6432", "a.ini:9|logfile|", "a.ini:11|pool_mode|session"];
        assert_eq!(pairs(&ini.settings), settings);
        assert_eq!(pairs(&ini.users), ["more.ini:2|ann|pool_size=1"]);
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, expected) in [
            ("a = 1", "a.ini:1: a key before any section"),
            ("[nope]", "a.ini:1: there is no section [nope]"),
            ("[users", "a.ini:1: a section begins but does not end with ]"),
            ("[users]\nann", "a.ini:2: not key = value"),
            ("[users]\n\"ann = 1", "a.ini:2: not key = value"),
            ("[users]\n = 1", "a.ini:2: not key = value"),
            ("%include loop.ini", "loop.ini:1: INCLUDE_DEPTH_MAX is 16"),
            ("%include none", "a.ini:1: read none: entity not found"),
        ] {
            assert_eq!(load_text(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn connection_strings_are_pairs() {
        let check = |text: &str, expected: &[(&str, &str)]| {
            let pairs = connection_string(text).unwrap();
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(pairs, expected, "{text}");
        };
        check("", &[]);
        check("host=a  port = 1", &[("host", "a"), ("port", "1")]);
        check("password='it''s = x' user=''", &[("password", "it's = x"), ("user", "")]);
        check("user=", &[("user", "")]);
        for wrong in ["host", "a b=1", "password='x", "=1"] {
            connection_string(wrong).unwrap_err();
        }
    }
}
