//! SQL keywords that are relevant here, and functions that are known to be harmless.

use std::sync::LazyLock;

/// Maximum length of an identifier in the server, in bytes: `NAMEDATALEN` minus one.
pub(super) const NAME_BYTES_MAX: usize = 63;

/// An unquoted word in lower case, kept on the stack. A longer one is not a keyword.
#[derive(Clone, Copy, Debug)]
pub(super) struct LowerWord {
    bytes: [u8; NAME_BYTES_MAX + 1],
    length: usize,
}

impl LowerWord {
    /// Folds `word` like the server, as far as ASCII is concerned; a word longer than a name
    /// becomes empty.
    pub(super) fn fold(word: &[u8]) -> LowerWord {
        let mut lower = LowerWord { bytes: [0; NAME_BYTES_MAX + 1], length: 0 };
        if let Some(bytes) = lower.bytes.get_mut(..word.len()) {
            for (to, from) in bytes.iter_mut().zip(word) {
                *to = from.to_ascii_lowercase();
            }
            lower.length = word.len();
        }
        lower
    }

    /// Returns the name between double quotes, unchanged. One with a quote inside becomes empty: no
    /// relevant name has one.
    pub(super) fn quoted(token: &[u8]) -> LowerWord {
        let inner = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
        let mut lower = LowerWord { bytes: [0; NAME_BYTES_MAX + 1], length: 0 };
        if inner.contains(&b'"') {
            return lower;
        }
        if let Some(bytes) = lower.bytes.get_mut(..inner.len()) {
            bytes.copy_from_slice(inner);
            lower.length = inner.len();
        }
        lower
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Defines the enum of words and the function that finds one.
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
        const WORDS: &[(&[u8], Word)] = &[$(($text, Word::$variant),)*];
    };
}

keywords! {
    Abort = b"abort", Aggregate = b"aggregate", All = b"all", Alter = b"alter",
    Analyse = b"analyse", Analyze = b"analyze", And = b"and", As = b"as", Atomic = b"atomic",
    Authorization = b"authorization", Begin = b"begin", By = b"by", Call = b"call",
    Cast = b"cast", Characteristics = b"characteristics", Checkpoint = b"checkpoint",
    Close = b"close", Cluster = b"cluster", Comment = b"comment", Commit = b"commit",
    Conflict = b"conflict", Constraints = b"constraints", Copy = b"copy", Create = b"create",
    Cursor = b"cursor", Deallocate = b"deallocate", Declare = b"declare", Default = b"default",
    Delete = b"delete", Discard = b"discard", Do = b"do", Drop = b"drop", End = b"end",
    Execute = b"execute", Exists = b"exists", Explain = b"explain", Extension = b"extension",
    Fetch = b"fetch", Filter = b"filter", Foreign = b"foreign", From = b"from",
    Function = b"function", Global = b"global", Grant = b"grant", Group = b"group",
    Grouping = b"grouping", Hold = b"hold", Import = b"import", Insert = b"insert",
    Into = b"into", Join = b"join", Key = b"key", Listen = b"listen", Load = b"load",
    Local = b"local", Lock = b"lock", Materialized = b"materialized", Merge = b"merge",
    Move = b"move", Not = b"not", Notify = b"notify", On = b"on", Only = b"only",
    Operator = b"operator", Or = b"or", Order = b"order", Over = b"over",
    Partition = b"partition", Prepare = b"prepare", Prepared = b"prepared", Primary = b"primary",
    Procedure = b"procedure", Read = b"read", Reassign = b"reassign", Recursive = b"recursive",
    References = b"references", Refresh = b"refresh", Reindex = b"reindex", Release = b"release",
    Replace = b"replace", Reset = b"reset", Revoke = b"revoke", Role = b"role",
    Rollback = b"rollback", Routine = b"routine", Savepoint = b"savepoint",
    Security = b"security", Seed = b"seed", Select = b"select", Session = b"session",
    Set = b"set", Sets = b"sets", Show = b"show", Start = b"start", Table = b"table",
    Temp = b"temp", Temporary = b"temporary", To = b"to", Transaction = b"transaction",
    Truncate = b"truncate", Unlisten = b"unlisten", Update = b"update", Vacuum = b"vacuum",
    Values = b"values", View = b"view", With = b"with", Without = b"without", Write = b"write",
}

impl Word {
    /// Returns whether an opening parenthesis after the word never makes it a function call: the
    /// words of the server's grammar that are reserved, or reserved for columns' names.
    pub(super) fn never_a_function(self) -> bool {
        matches!(
            self,
            Word::Reserved
                | Word::All
                | Word::Analyse
                | Word::Analyze
                | Word::And
                | Word::As
                | Word::Cast
                | Word::Create
                | Word::Default
                | Word::Do
                | Word::End
                | Word::Exists
                | Word::Fetch
                | Word::Foreign
                | Word::From
                | Word::Grant
                | Word::Group
                | Word::Grouping
                | Word::Into
                | Word::Not
                | Word::On
                | Word::Only
                | Word::Or
                | Word::Order
                | Word::Primary
                | Word::References
                | Word::Select
                | Word::Table
                | Word::To
                | Word::Values
                | Word::With
        )
    }
}

/// Reserved words of `src/include/parser/kwlist.h` of version 15, then those reserved for columns'
/// names: types, and calls with a grammar of their own. Words with a variant above are left out. A
/// newer server reserves more; a missing word only causes a false call.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "any", "array", "asc", "asymmetric", "both", "case", "check", "collate", "column",
    "constraint", "deferrable", "desc", "distinct", "else", "except", "false", "for", "having",
    "in", "initially", "intersect", "lateral", "leading", "limit", "null", "offset", "placing",
    "returning", "some", "symmetric", "then", "trailing", "true", "union", "unique", "user",
    "using", "variadic", "when", "where", "window", "current_catalog", "current_date",
    "current_role", "current_time", "current_timestamp", "current_user", "localtime",
    "localtimestamp", "session_user",
    "between", "bigint", "bit", "boolean", "char", "character", "coalesce", "dec", "decimal",
    "extract", "float", "greatest", "inout", "int", "integer", "interval", "least", "national",
    "nchar", "none", "normalize", "nullif", "numeric", "out", "overlay", "position", "precision",
    "real", "row", "setof", "smallint", "substring", "time", "timestamp", "treat", "trim",
    "varchar", "xmlattributes", "xmlconcat", "xmlelement", "xmlexists", "xmlforest",
    "xmlnamespaces", "xmlparse", "xmlpi", "xmlroot", "xmlserialize", "xmltable",
];

/// Slots of the table of words: a power of two, about four times the number of words.
const SLOTS: usize = 1024;

/// Returns the keyword of `text`, in any case. Every word of every text is looked up here, so it is
/// a single access to a hash table.
pub(super) fn word(text: &[u8]) -> Word {
    let mut slot = slot(text);
    while let Some(Some((known, word))) = TABLE.get(slot) {
        if text.eq_ignore_ascii_case(known) {
            return *word;
        }
        slot = (slot + 1) % SLOTS;
    }
    Word::Name
}

/// Returns the first slot to search; the same for both cases of a letter.
fn slot(text: &[u8]) -> usize {
    let at = |index: usize| usize::from(text.get(index).copied().unwrap_or(0) | 0x20);
    let last = at(text.len().wrapping_sub(1));
    (text.len() * 151 + at(0) * 37 + at(2) * 11 + at(1) * 3 + last * 71) % SLOTS
}

/// A word with its meaning, or a free slot.
type Slot = Option<(&'static [u8], Word)>;

static TABLE: LazyLock<Vec<Slot>> = LazyLock::new(|| {
    let mut table = vec![None; SLOTS];
    let reserved = RESERVED.iter().map(|text| (text.as_bytes(), Word::Reserved));
    for (text, word) in WORDS.iter().copied().chain(reserved) {
        let mut slot = slot(text);
        while let Some(Some(_)) = table.get(slot) {
            slot = (slot + 1) % SLOTS;
        }
        if let Some(free) = table.get_mut(slot) {
            *free = Some((text, word));
        }
    }
    table
});

/// Returns whether a cast to this type runs only the server's own code.
pub(super) fn is_own_type(lower: &[u8]) -> bool {
    matches!(
        lower,
        b"bigint"
            | b"int"
            | b"integer"
            | b"smallint"
            | b"int2"
            | b"int4"
            | b"int8"
            | b"text"
            | b"varchar"
            | b"char"
            | b"character"
            | b"boolean"
            | b"bool"
            | b"numeric"
            | b"decimal"
            | b"real"
            | b"double"
            | b"float"
            | b"float4"
            | b"float8"
            | b"date"
            | b"time"
            | b"timestamp"
            | b"timestamptz"
            | b"timetz"
            | b"interval"
            | b"uuid"
            | b"json"
            | b"jsonb"
            | b"bytea"
            | b"oid"
            | b"regclass"
            | b"regtype"
            | b"regproc"
            | b"regprocedure"
            | b"regrole"
            | b"regnamespace"
            | b"name"
            | b"inet"
            | b"cidr"
            | b"money"
            | b"xml"
            | b"point"
            | b"pg_lsn"
            | b"xid"
            | b"tid"
            | b"bit"
    )
}

/// Effect on the session of a call of one of the server's own functions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PgFunctionEffect {
    /// No lasting effect.
    Harmless,
    Advisory,
    Notify,
    Seed,
    SequenceRead,
    SequenceWrite,
    SetConfig,
    /// Unknown.
    Unknown,
}

/// Returns the effect of the function `name` of `pg_catalog`. The list of harmless names is
/// `harmless.txt`: functions that exist in versions 15 and 18, all forms of which are immutable or
/// stable and run no SQL from their arguments, and volatile ones that were checked individually
/// (`random`, `lo_put`, `pg_sleep`, transaction-level advisory locks …).
pub(super) fn call(name: &[u8]) -> PgFunctionEffect {
    match name {
        b"set_config" => PgFunctionEffect::SetConfig,
        b"setseed" => PgFunctionEffect::Seed,
        b"currval" | b"lastval" => PgFunctionEffect::SequenceRead,
        b"nextval" | b"setval" => PgFunctionEffect::SequenceWrite,
        b"pg_notify" => PgFunctionEffect::Notify,
        b"pg_advisory_lock" | b"pg_advisory_lock_shared" => PgFunctionEffect::Advisory,
        b"pg_advisory_unlock" | b"pg_advisory_unlock_shared" => PgFunctionEffect::Advisory,
        b"pg_advisory_unlock_all" => PgFunctionEffect::Advisory,
        b"pg_try_advisory_lock" | b"pg_try_advisory_lock_shared" => PgFunctionEffect::Advisory,
        _ if HARMLESS.binary_search(&name).is_ok() => PgFunctionEffect::Harmless,
        _ => PgFunctionEffect::Unknown,
    }
}

/// Returns true for a function, in any schema, that leaves state in the session which `DISCARD ALL`
/// does not remove. Queries find only named connections of dblink, and none of the other state.
pub(super) fn is_lasting(name: &[u8]) -> bool {
    matches!(
        name,
        b"dblink_connect"
            | b"dblink_connect_u"
            | b"pg_replication_origin_session_setup"
            | b"pg_create_physical_replication_slot"
            | b"pg_create_logical_replication_slot"
            | b"pg_copy_physical_replication_slot"
            | b"pg_copy_logical_replication_slot"
            | b"pg_backup_start"
            | b"pg_start_backup"
    )
}

/// The function of dblink that is searched for in texts that are not understood.
const CONNECTS: &[u8] = b"dblink_connect";

/// Returns true for a text that names the function that opens connections of dblink.
pub(super) fn mentions_lasting(text: &[u8]) -> bool {
    text.windows(CONNECTS.len()).any(|it| it.eq_ignore_ascii_case(CONNECTS))
}

static HARMLESS: LazyLock<Vec<&'static [u8]>> =
    LazyLock::new(|| include_str!("harmless.txt").lines().map(str::as_bytes).collect());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_harmless_functions_is_sorted_and_in_lower_case() {
        assert!(HARMLESS.len() > 700);
        for pair in HARMLESS.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
        for name in HARMLESS.iter() {
            assert_eq!(LowerWord::fold(name).bytes(), *name);
        }
    }

    #[test]
    fn every_word_is_found_and_no_other() {
        for (text, expected) in WORDS {
            assert_eq!(word(text), *expected);
            assert_eq!(word(&text.to_ascii_uppercase()), *expected);
        }
        for text in RESERVED {
            assert_eq!(word(text.as_bytes()), Word::Reserved, "{text}");
        }
        for text in ["", "selec", "selects", "abalance", "é", "set_config"] {
            assert_eq!(word(text.as_bytes()), Word::Name, "{text}");
        }
    }

    #[test]
    fn no_function_that_changes_the_session_is_called_harmless() {
        for name in ["set_config", "setseed", "currval", "lastval", "pg_advisory_lock", "ts_stat"] {
            assert!(HARMLESS.binary_search(&name.as_bytes()).is_err(), "{name}");
        }
        for name in ["query_to_xml", "pg_backup_start", "pg_replication_origin_session_setup"] {
            assert!(HARMLESS.binary_search(&name.as_bytes()).is_err(), "{name}");
        }
    }
}
