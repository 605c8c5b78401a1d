//! Meaning of a statement's first words.

use super::effects::MysqlEffects;
use super::keywords::{self, Word};
use super::lexer::{MysqlLexer, MysqlTokenKind};

/// Returns the next word; a quoted name does not count.
pub(super) fn peek(lexer: &mut MysqlLexer<'_>) -> Word {
    match lexer.next() {
        Some(token) if token.kind == MysqlTokenKind::Word => {
            keywords::word(token.text(lexer.text()))
        }
        _ => Word::Name,
    }
}

/// Returns whether a statement ends here.
fn is_over(lexer: &MysqlLexer<'_>) -> bool {
    lexer.clone().next().is_none_or(|it| it.is_mark(b';'))
}

/// Returns whether a parenthesis after a name belongs to a definition, not to a call.
pub(super) fn defines(verb: Word) -> bool {
    matches!(
        verb,
        Word::Create
            | Word::Alter
            | Word::Drop
            | Word::Rename
            | Word::Grant
            | Word::Revoke
            | Word::Analyze
            | Word::Flush
            | Word::Xa
    )
}

/// Returns whether `CREATE` and `ALTER` of this object have a body, which is stored and not run.
pub(super) fn is_routine(object: Word) -> bool {
    matches!(object, Word::Procedure | Word::Function | Word::Trigger | Word::Event | Word::Package)
}

/// Returns whether a statement assigns no user variable except by `:=` and `INTO`. `CALL` does by
/// parameters, and `EXECUTE` by those of a `CALL`.
pub(super) fn only_reads_user_variables(verb: Word) -> bool {
    matches!(
        verb,
        Word::Select
            | Word::Insert
            | Word::Update
            | Word::Delete
            | Word::Replace
            | Word::With
            | Word::Values
            | Word::Do
            | Word::Show
            | Word::Explain
            | Word::Describe
            | Word::Desc
            | Word::Create
            | Word::Alter
            | Word::Drop
            | Word::Rename
            | Word::Grant
            | Word::Revoke
            | Word::Set
            | Word::Kill
            | Word::Prepare
    )
}

/// Returns the effects of a statement, as far as its first words show them; `lexer` is after the
/// first one.
pub(super) fn begins(word: Word, lexer: &MysqlLexer<'_>) -> MysqlEffects {
    let mut ahead = lexer.clone();
    match word {
        Word::Select | Word::Values | Word::With | Word::Show | Word::Do => MysqlEffects::NONE,
        Word::Explain | Word::Help | Word::Signal | Word::Resignal => MysqlEffects::NONE,
        Word::Table | Word::Describe | Word::Desc => MysqlEffects::TABLES,
        Word::Insert | Word::Replace => {
            MysqlEffects::WRITES | MysqlEffects::TABLES | MysqlEffects::INSERTS
        }
        Word::Update | Word::Delete => MysqlEffects::WRITES | MysqlEffects::TABLES,
        Word::Load => match peek(&mut ahead) {
            Word::Index => MysqlEffects::ADMIN,
            _ => {
                MysqlEffects::WRITES
                    | MysqlEffects::TABLES
                    | MysqlEffects::INSERTS
                    | MysqlEffects::LOADS
            }
        },
        Word::Begin => begin(ahead),
        Word::Start => match peek(&mut ahead) {
            Word::Transaction => MysqlEffects::TRANSACTION_BEGIN,
            Word::Slave | Word::Replica | Word::GroupReplication | Word::All => MysqlEffects::ADMIN,
            _ => MysqlEffects::UNPARSED,
        },
        Word::Commit => end(ahead, MysqlEffects::COMMIT),
        Word::Rollback => end(ahead, MysqlEffects::ROLLBACK),
        Word::Savepoint | Word::Release => MysqlEffects::SAVEPOINT,
        Word::Xa => match peek(&mut ahead) {
            Word::Commit | Word::Rollback => MysqlEffects::XA | MysqlEffects::XA_END,
            _ => MysqlEffects::XA,
        },
        Word::Create | Word::Alter | Word::Truncate | Word::Grant | Word::Revoke => {
            MysqlEffects::DDL | MysqlEffects::TABLES
        }
        Word::Drop => drop(ahead),
        Word::Rename => MysqlEffects::DDL | MysqlEffects::TABLES | MysqlEffects::TEMP_RENAME,
        Word::Call => MysqlEffects::CALL | MysqlEffects::TABLES,
        Word::Prepare => MysqlEffects::SQL_PREPARE,
        Word::Execute => MysqlEffects::SQL_EXECUTE,
        Word::Deallocate => MysqlEffects::SQL_DEALLOCATE,
        Word::Handler => MysqlEffects::HANDLER | MysqlEffects::TABLES,
        Word::Get => MysqlEffects::DIAGNOSTICS | MysqlEffects::USER_VARIABLE_WRITE,
        Word::Kill => MysqlEffects::KILL,
        Word::Use => MysqlEffects::USE,
        _ => server(word, ahead),
    }
}

/// Returns the effects of statements about the server, its locks and its table files.
fn server(word: Word, mut ahead: MysqlLexer<'_>) -> MysqlEffects {
    match word {
        Word::Lock => match peek(&mut ahead) {
            Word::Table | Word::Tables => MysqlEffects::LOCK_TABLES | MysqlEffects::TABLES,
            Word::Instance => MysqlEffects::BACKUP_LOCK,
            _ => MysqlEffects::UNPARSED,
        },
        Word::Unlock => match peek(&mut ahead) {
            Word::Table | Word::Tables => MysqlEffects::UNLOCK_TABLES,
            Word::Instance => MysqlEffects::BACKUP_UNLOCK,
            _ => MysqlEffects::UNPARSED,
        },
        Word::Backup => match (peek(&mut ahead), peek(&mut ahead)) {
            (Word::Stage, Word::End) | (Word::Unlock, _) => MysqlEffects::BACKUP_UNLOCK,
            (Word::Stage | Word::Lock, _) => MysqlEffects::BACKUP_LOCK,
            _ => MysqlEffects::UNPARSED,
        },
        // `ANALYZE SELECT` is handled as that statement at its verb.
        Word::Analyze => match peek(&mut ahead) {
            Word::Table | Word::Tables => MysqlEffects::ADMIN | MysqlEffects::TABLES,
            _ => MysqlEffects::TABLES,
        },
        Word::Check | Word::Checksum | Word::Optimize | Word::Repair | Word::Cache => {
            MysqlEffects::ADMIN | MysqlEffects::TABLES
        }
        Word::Flush | Word::Reset | Word::Purge | Word::Change | Word::Stop => MysqlEffects::ADMIN,
        Word::Install | Word::Uninstall | Word::Shutdown | Word::Restart => MysqlEffects::ADMIN,
        Word::Import | Word::Clone => MysqlEffects::ADMIN,
        _ => MysqlEffects::UNPARSED,
    }
}

/// Returns the effects of `BEGIN`, `BEGIN WORK`; `BEGIN NOT ATOMIC …` and the blocks of
/// `sql_mode=ORACLE` run their contents.
fn begin(mut ahead: MysqlLexer<'_>) -> MysqlEffects {
    if is_over(&ahead) || (peek(&mut ahead) == Word::Work && is_over(&ahead)) {
        return MysqlEffects::TRANSACTION_BEGIN;
    }
    MysqlEffects::UNPARSED | MysqlEffects::TRANSACTION_BEGIN
}

/// Returns the effects of `COMMIT [WORK] [AND [NO] CHAIN] [[NO] RELEASE]`, of `ROLLBACK` likewise,
/// and of `ROLLBACK [WORK] TO [SAVEPOINT] name`.
fn end(mut ahead: MysqlLexer<'_>, whole: MysqlEffects) -> MysqlEffects {
    let mut effects = whole;
    let mut no = false;
    for _ in 0..END_WORDS_MAX {
        if is_over(&ahead) {
            return effects;
        }
        match peek(&mut ahead) {
            Word::Work | Word::And => no = false,
            Word::No => no = true,
            Word::Chain => {
                if !no {
                    effects |= MysqlEffects::TRANSACTION_BEGIN;
                }
                no = false;
            }
            Word::Release => {
                if !no {
                    effects |= MysqlEffects::CLOSES;
                }
                no = false;
            }
            Word::To if whole == MysqlEffects::ROLLBACK => return MysqlEffects::SAVEPOINT,
            _ => return effects | MysqlEffects::UNPARSED,
        }
    }
    effects | MysqlEffects::UNPARSED
}

/// Number of words of the longest `COMMIT`, plus one.
const END_WORDS_MAX: usize = 8;

/// Returns the effects of `DROP …`.
fn drop(mut ahead: MysqlLexer<'_>) -> MysqlEffects {
    match peek(&mut ahead) {
        Word::Prepare => MysqlEffects::SQL_DEALLOCATE,
        Word::Temporary | Word::Table | Word::Tables | Word::Sequence => {
            MysqlEffects::DDL | MysqlEffects::TABLES | MysqlEffects::TEMP_DROP
        }
        _ => MysqlEffects::DDL | MysqlEffects::TABLES,
    }
}
