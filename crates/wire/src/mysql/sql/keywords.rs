//! SQL keywords that are relevant here, and functions that are known to be harmless.

use std::sync::LazyLock;

/// Defines the enum of words and their list.
macro_rules! keywords {
    ($($variant:ident = $text:literal,)*) => {
        /// A word with a meaning for the scan. `Reserved` is a word that can never be a function's
        /// name, `Name` is any other.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(super) enum Word {
            Name,
            Reserved,
            $($variant,)*
        }

        /// Every word with a variant of its own.
        const WORDS: &[(&str, Word)] = &[$(($text, Word::$variant),)*];
    };
}

keywords! {
    All = "all", Alter = "alter", Analyze = "analyze", And = "and", As = "as",
    Backup = "backup", Begin = "begin", By = "by", Cache = "cache", Call = "call",
    Case = "case", Chain = "chain", Change = "change", Character = "character",
    Charset = "charset", Check = "check", Checksum = "checksum", Clone = "clone",
    Close = "close", Collate = "collate", Commit = "commit", Connection = "connection",
    Count = "count", Create = "create", Currval = "currval", Database = "database",
    Deallocate = "deallocate", Declare = "declare", Default = "default", Delayed = "delayed",
    Delete = "delete", Desc = "desc", Describe = "describe", Diagnostics = "diagnostics",
    Do = "do", Drop = "drop", Dumpfile = "dumpfile", Else = "else", End = "end",
    Errors = "errors", Event = "event", Execute = "execute", Exists = "exists",
    Explain = "explain", Export = "export", False = "false", Fetch = "fetch", Flush = "flush",
    For = "for", From = "from", Function = "function", Get = "get", Global = "global",
    Grant = "grant", Group = "group", GroupReplication = "group_replication",
    Handler = "handler", Hard = "hard", Help = "help", HighPriority = "high_priority",
    If = "if", Ignore = "ignore", Immediate = "immediate", Import = "import", Index = "index",
    Infile = "infile", Insert = "insert", Install = "install", Instance = "instance",
    Into = "into", Isolation = "isolation", Iterate = "iterate", Join = "join", Kill = "kill",
    Leave = "leave", Level = "level", Like = "like", Limit = "limit", Load = "load",
    Local = "local", Lock = "lock", Loop = "loop", LowPriority = "low_priority",
    Names = "names", Next = "next", Nextval = "nextval", No = "no", Not = "not", On = "on",
    Only = "only", Open = "open", Optimize = "optimize", Or = "or", Outfile = "outfile",
    Package = "package", Partition = "partition", Password = "password", Persist = "persist",
    PersistOnly = "persist_only", Prepare = "prepare", Previous = "previous",
    Procedure = "procedure", Purge = "purge", Query = "query", Read = "read",
    Recursive = "recursive", References = "references", Release = "release",
    Rename = "rename", Repair = "repair", Repeat = "repeat", Replace = "replace",
    Replica = "replica", Reset = "reset", Resignal = "resignal", Resource = "resource",
    Restart = "restart", Return = "return", Revoke = "revoke", Role = "role",
    Rollback = "rollback", Savepoint = "savepoint", Schema = "schema", Select = "select",
    Sequence = "sequence", Server = "server", Session = "session", Set = "set", Show = "show",
    Shutdown = "shutdown", Signal = "signal", Slave = "slave", Soft = "soft",
    SqlCalcFoundRows = "sql_calc_found_rows", Stage = "stage", Start = "start",
    Statement = "statement", Stop = "stop", Table = "table", Tables = "tables",
    Temporary = "temporary", Then = "then", To = "to", Transaction = "transaction",
    Trigger = "trigger", True = "true", Truncate = "truncate", Uninstall = "uninstall",
    Unlock = "unlock", Update = "update", Use = "use", User = "user", Using = "using",
    Value = "value", Values = "values", View = "view", Warnings = "warnings", When = "when",
    Where = "where", While = "while", With = "with", Work = "work", Write = "write",
    Xa = "xa", Xml = "xml",
}

impl Word {
    /// Returns whether an opening parenthesis after the word never makes it a function call. For
    /// `IF` and `LEFT`, which can also name a function, the list of functions has the effect.
    pub(super) fn never_a_function(self) -> bool {
        matches!(
            self,
            Word::Reserved
                | Word::All
                | Word::And
                | Word::As
                | Word::By
                | Word::Case
                | Word::Call
                | Word::Check
                | Word::Character
                | Word::Collate
                | Word::Do
                | Word::Else
                | Word::Exists
                | Word::Explain
                | Word::For
                | Word::From
                | Word::Group
                | Word::Ignore
                | Word::Index
                | Word::Into
                | Word::Join
                | Word::Like
                | Word::Limit
                | Word::Not
                | Word::On
                | Word::Or
                | Word::Partition
                | Word::Return
                | Word::Select
                | Word::Set
                | Word::Table
                | Word::Then
                | Word::To
                | Word::Update
                | Word::Using
                | Word::When
                | Word::Where
                | Word::While
                | Word::With
        )
    }

    /// Returns whether the word begins a statement within a block.
    pub(super) fn begins_inner(self) -> bool {
        matches!(
            self,
            Word::Alter
                | Word::Begin
                | Word::Call
                | Word::Case
                | Word::Close
                | Word::Commit
                | Word::Create
                | Word::Deallocate
                | Word::Declare
                | Word::Delete
                | Word::Do
                | Word::Drop
                | Word::End
                | Word::Execute
                | Word::Fetch
                | Word::Get
                | Word::If
                | Word::Insert
                | Word::Iterate
                | Word::Leave
                | Word::Loop
                | Word::Open
                | Word::Prepare
                | Word::Repeat
                | Word::Replace
                | Word::Resignal
                | Word::Return
                | Word::Rollback
                | Word::Savepoint
                | Word::Select
                | Word::Set
                | Word::Show
                | Word::Signal
                | Word::Start
                | Word::Truncate
                | Word::Update
                | Word::While
        )
    }
}

/// Words that may precede a parenthesis without a call: reserved words of either server, and types.
/// A missing word only causes a false call.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "against", "any", "asc", "between", "bigint", "bit", "blob", "columns", "constraint", "cross",
    "cube", "dec", "decimal", "distinct", "distinctrow", "div", "double", "dual", "duplicate",
    "elseif", "enum", "escape", "except", "fixed", "float", "force", "foreign", "fulltext",
    "having", "in", "inner", "int", "integer", "intersect", "is", "key", "keys", "lateral",
    "longblob", "longtext", "mediumblob", "mediumint", "mediumtext", "member", "minus", "natural",
    "nchar", "nested", "null", "numeric", "nvarchar", "of", "order", "outer", "over", "precision",
    "primary", "range", "real", "regexp", "returning", "rlike", "rollup", "row", "rows",
    "separator", "signed", "smallint", "some", "sounds", "spatial", "straight_join", "text",
    "than", "tinyblob", "tinyint", "tinytext", "union", "unique", "unsigned", "varbinary", "varchar",
    "varcharacter", "window", "xor", "zerofill",
];

/// Effect on the session of a call of one of the server's own functions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MysqlFunctionEffect {
    /// No lasting effect.
    Harmless,
    GetLock,
    ReleaseLock,
    ReleaseAllLocks,
    LastInsertId,
    RowCount,
    FoundRows,
    ConnectionId,
    SequenceNext,
    SequenceLast,
    /// Unknown.
    Unknown,
}

/// Functions that affect the session.
const SESSION_CALLS: &[(&str, MysqlFunctionEffect)] = &[
    ("get_lock", MysqlFunctionEffect::GetLock),
    ("release_lock", MysqlFunctionEffect::ReleaseLock),
    ("release_all_locks", MysqlFunctionEffect::ReleaseAllLocks),
    ("last_insert_id", MysqlFunctionEffect::LastInsertId),
    ("row_count", MysqlFunctionEffect::RowCount),
    ("found_rows", MysqlFunctionEffect::FoundRows),
    ("connection_id", MysqlFunctionEffect::ConnectionId),
    ("nextval", MysqlFunctionEffect::SequenceNext),
    ("lastval", MysqlFunctionEffect::SequenceLast),
];

/// Functions whose names are not function names if a space precedes the parenthesis, unless
/// `IGNORE_SPACE` is set. Source: the manuals, "Function Name Parsing and Resolution".
#[rustfmt::skip]
const NO_SPACE: &[&str] = &[
    "adddate", "bit_and", "bit_or", "bit_xor", "cast", "count", "curdate", "curtime", "date_add",
    "date_sub", "extract", "group_concat", "max", "mid", "min", "now", "position", "session_user",
    "std", "stddev", "stddev_pop", "stddev_samp", "subdate", "substr", "substring", "sum",
    "sysdate", "system_user", "trim", "variance", "var_pop", "var_samp",
];

/// Properties of a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownWord {
    text: &'static [u8],
    /// Meaning in the grammar.
    pub word: Word,
    /// Effect of a call.
    pub call: MysqlFunctionEffect,
    /// True if it is not this function with a space before the parenthesis.
    pub no_space: bool,
}

impl KnownWord {
    const fn new(text: &'static [u8]) -> KnownWord {
        KnownWord { text, word: Word::Name, call: MysqlFunctionEffect::Unknown, no_space: false }
    }
}

/// An unknown word.
const UNKNOWN: KnownWord = KnownWord::new(b"");

/// Slots of the table: a power of two, about three times the number of words.
const SLOTS: usize = 2048;

/// Returns the properties of `text`, in any case. Every word of every text is looked up here, so it
/// is a single access to a hash table.
pub(super) fn known(text: &[u8]) -> KnownWord {
    let mut slot = slot(text);
    while let Some(Some(known)) = TABLE.get(slot) {
        if text.eq_ignore_ascii_case(known.text) {
            return *known;
        }
        slot = (slot + 1) % SLOTS;
    }
    UNKNOWN
}

/// Returns the keyword of `text`.
pub(super) fn word(text: &[u8]) -> Word {
    known(text).word
}

/// Returns the first slot to search; the same for both cases of a letter.
fn slot(text: &[u8]) -> usize {
    let at = |index: usize| usize::from(text.get(index).copied().unwrap_or(0) | 0x20);
    let length = text.len();
    let ends = at(length.wrapping_sub(1)) * 71 + at(length.wrapping_sub(3)) * 233;
    (length * 151 + at(0) * 337 + at(2) * 11 + at(1) * 53 + at(length / 2) * 613 + ends) % SLOTS
}

static TABLE: LazyLock<Vec<Option<KnownWord>>> = LazyLock::new(|| {
    let mut table = vec![None; SLOTS];
    for (text, word) in WORDS {
        enter(&mut table, text, |known| known.word = *word);
    }
    for text in RESERVED {
        enter(&mut table, text, |known| known.word = Word::Reserved);
    }
    for text in include_str!("functions.txt").lines() {
        enter(&mut table, text, |known| known.call = MysqlFunctionEffect::Harmless);
    }
    for (text, call) in SESSION_CALLS {
        enter(&mut table, text, |known| known.call = *call);
    }
    for text in NO_SPACE {
        enter(&mut table, text, |known| known.no_space = true);
    }
    table
});

/// Changes the entry of a word, which is created if there is none.
fn enter(table: &mut [Option<KnownWord>], text: &'static str, change: impl FnOnce(&mut KnownWord)) {
    let text = text.as_bytes();
    let mut at = slot(text);
    while matches!(table.get(at), Some(Some(known)) if known.text != text) {
        at = (at + 1) % SLOTS;
    }
    if let Some(slot) = table.get_mut(at) {
        change(slot.get_or_insert(KnownWord::new(text)));
    }
}

/// Returns whether the value of this session variable can be set at another connection, so that the
/// session can continue there. `lower` is the name in lower case.
#[must_use]
pub fn is_replayable_variable(lower: &[u8]) -> bool {
    let prefixes: [&[u8]; 5] = [b"gtid_", b"debug", b"session_track_", b"pseudo_", b"ndb_"];
    !prefixes.iter().any(|prefix| lower.starts_with(prefix)) && !FIXED.contains(&lower)
}

/// Variables that belong to one connection, or to its next statement, or are derived from others.
const FIXED: &[&[u8]] = &[
    b"character_set_database",
    b"collation_database",
    b"default_master_connection",
    b"error_count",
    b"external_user",
    b"identity",
    b"immediate_server_version",
    b"in_transaction",
    b"insert_id",
    b"last_gtid",
    b"last_insert_id",
    b"max_allowed_packet",
    b"max_user_connections",
    b"net_buffer_length",
    b"optimizer_trace",
    b"original_commit_timestamp",
    b"original_server_version",
    b"profiling",
    b"profiling_history_size",
    b"proxy_user",
    b"rand_seed1",
    b"rand_seed2",
    b"require_row_format",
    b"resultset_metadata",
    b"server_id",
    b"skip_parallel_replication",
    b"skip_replication",
    b"sql_log_bin",
    b"sql_slave_skip_counter",
    b"statement_id",
    b"system_versioning_asof",
    b"timestamp",
    b"transaction_allow_batching",
    b"warning_count",
    b"wsrep_gtid_seq_no",
    b"wsrep_on",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_and_no_other() {
        for (text, expected) in WORDS {
            assert_eq!(word(text.as_bytes()), *expected);
            assert_eq!(word(text.to_ascii_uppercase().as_bytes()), *expected);
        }
        for text in RESERVED {
            assert_eq!(word(text.as_bytes()), Word::Reserved, "{text}");
        }
        for (text, expected) in SESSION_CALLS {
            assert_eq!(known(text.as_bytes()).call, *expected);
        }
        for text in NO_SPACE {
            let known = known(text.as_bytes());
            assert!(known.no_space && known.call == MysqlFunctionEffect::Harmless, "{text}");
        }
        for text in ["", "selec", "selects", "abalance", "é", "sys_exec"] {
            assert_eq!(word(text.as_bytes()), Word::Name, "{text}");
            assert_eq!(known(text.as_bytes()).call, MysqlFunctionEffect::Unknown, "{text}");
        }
    }

    #[test]
    fn the_list_of_functions_is_sorted_and_has_none_that_changes_the_session() {
        let functions: Vec<&str> = include_str!("functions.txt").lines().collect();
        assert!(functions.len() > 400);
        for pair in functions.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
        for name in functions {
            assert_eq!(name, name.to_ascii_lowercase());
            assert!(SESSION_CALLS.iter().all(|(it, _)| *it != name), "{name}");
            assert!(!word(name.as_bytes()).never_a_function(), "{name}");
        }
    }

    #[test]
    fn a_word_is_found_soon() {
        let mut probes = 0;
        let mut count = 0;
        for known in TABLE.iter().flatten() {
            let mut at = slot(known.text);
            while TABLE[at].is_some_and(|it| it.text != known.text) {
                at = (at + 1) % SLOTS;
                probes += 1;
            }
            count += 1;
        }
        assert!(probes < count / 2, "{probes} probes too many for {count} words");
    }

    #[test]
    fn variables_that_stay_where_they_are() {
        for name in [
            "timestamp",
            "gtid_next",
            "pseudo_thread_id",
            "sql_log_bin",
            "debug_dbug",
            "insert_id",
            "last_insert_id",
            "identity",
            "rand_seed1",
            "rand_seed2",
            "skip_replication",
            "profiling",
            "optimizer_trace",
        ] {
            assert!(!is_replayable_variable(name.as_bytes()), "{name}");
        }
        for name in ["sql_mode", "time_zone", "autocommit", "server_uuid", "tx_isolation"] {
            assert!(is_replayable_variable(name.as_bytes()), "{name}");
        }
    }
}
