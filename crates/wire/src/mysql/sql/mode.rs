//! Properties of a session that determine how its texts are parsed.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/sql-mode.html>

/// Settings that determine the end of strings, names and texts.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct SqlMode {
    /// `ANSI_QUOTES`: double quotes enclose names, not strings.
    pub ansi_quotes: bool,
    /// `NO_BACKSLASH_ESCAPES`: a backslash in a string is an ordinary character.
    pub no_backslash_escapes: bool,
    /// Class of the character set of the client's texts.
    pub charset: CharsetClass,
}

/// Character sets by their effect on parsing.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum CharsetClass {
    /// `utf8mb3`, `utf8mb4`: letters beyond ASCII are part of names.
    #[default]
    Utf8,
    /// Others in which every ASCII byte is that character. The other bytes may be spaces or
    /// letters: a text with them outside of quotes is not understood.
    AsciiSafe,
    /// Character sets whose characters may contain an ASCII byte such as a backslash as their
    /// second byte (`gbk`, `sjis`, `big5`, `cp932`, `gb18030`): a text beyond ASCII is not
    /// understood.
    Unsafe,
}

impl SqlMode {
    /// Creates the mode from the values of `sql_mode` and `character_set_client`.
    #[must_use]
    pub fn of(sql_mode: &[u8], character_set_client: &[u8]) -> SqlMode {
        let has = |names: &[&str]| {
            sql_mode.split(|byte| *byte == b',').any(|mode| {
                names.iter().any(|name| mode.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
            })
        };
        SqlMode {
            ansi_quotes: has(&WITH_ANSI_QUOTES),
            no_backslash_escapes: has(&["NO_BACKSLASH_ESCAPES"]),
            charset: CharsetClass::of(character_set_client),
        }
    }
}

/// The mode itself, and modes that include it.
const WITH_ANSI_QUOTES: [&str; 7] =
    ["ANSI_QUOTES", "ANSI", "DB2", "MAXDB", "MSSQL", "ORACLE", "POSTGRESQL"];

impl CharsetClass {
    /// Returns the class of the character set of this name.
    #[must_use]
    pub fn of(name: &[u8]) -> CharsetClass {
        match name.to_ascii_lowercase().as_slice() {
            b"utf8" | b"utf8mb3" | b"utf8mb4" => CharsetClass::Utf8,
            b"big5" | b"cp932" | b"gb18030" | b"gbk" | b"sjis" => CharsetClass::Unsafe,
            _ => CharsetClass::AsciiSafe,
        }
    }

    /// Returns the class of the character set of the collation with this number. Numbers are those
    /// of `information_schema.collations`; `MariaDB` adds 1,024 for those without padding and has
    /// blocks of its own above 2,048.
    #[must_use]
    pub fn of_collation(number: u16) -> CharsetClass {
        match number {
            1 | 84 | 13 | 88 | 28 | 87 | 95 | 96 | 248..=250 => CharsetClass::Unsafe,
            1025 | 1108 | 1037 | 1112 | 1052 | 1111 | 1119 | 1120 => CharsetClass::Unsafe,
            33 | 45 | 46 | 76 | 83 | 192..=215 | 223..=247 | 255..=323 => CharsetClass::Utf8,
            576 | 577 | 608 | 609 | 1057 | 1069 | 1070 | 1107 | 1216 | 1238 | 1248 | 1270 => {
                CharsetClass::Utf8
            }
            2048..=2559 => CharsetClass::Utf8,
            _ => CharsetClass::AsciiSafe,
        }
    }
}
