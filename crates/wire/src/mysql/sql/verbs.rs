//! Meaning of the first words of a statement.

use super::effects::Effects;
use super::lexer::{MysqlLexer, MysqlTokenKind};
use super::words::{self, Word};

/// The word behind the present place; a name in quotes is none.
pub(super) fn peek(lexer: &mut MysqlLexer<'_>) -> Word {
    match lexer.next() {
        Some(token) if token.kind == MysqlTokenKind::Word => words::word(token.text(lexer.text())),
        _ => Word::Name,
    }
}

/// Returns whether a statement ends here.
fn is_over(lexer: &MysqlLexer<'_>) -> bool {
    lexer.clone().next().is_none_or(|it| it.is_mark(b';'))
}

/// Returns whether a parenthesis behind a name belongs to a definition, not to a call.
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

/// Returns whether `CREATE` and `ALTER` of this have a body, which is stored and not run.
pub(super) fn is_routine(object: Word) -> bool {
    matches!(object, Word::Procedure | Word::Function | Word::Trigger | Word::Event | Word::Package)
}

/// Returns whether a statement gives no user variable a value that stands in it without `:=` and
/// `INTO`. `CALL` does by parameters, and `EXECUTE` by those of a `CALL`.
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

/// Returns what a statement does, as far as its first words tell; `lexer` is behind the first one.
pub(super) fn begins(word: Word, lexer: &MysqlLexer<'_>) -> Effects {
    let mut ahead = lexer.clone();
    match word {
        Word::Select | Word::Values | Word::With | Word::Show | Word::Do => Effects::NONE,
        Word::Explain | Word::Help | Word::Signal | Word::Resignal => Effects::NONE,
        Word::Table | Word::Describe | Word::Desc => Effects::TABLES,
        Word::Insert | Word::Replace => Effects::WRITES | Effects::TABLES | Effects::INSERTS,
        Word::Update | Word::Delete => Effects::WRITES | Effects::TABLES,
        Word::Load => match peek(&mut ahead) {
            Word::Index => Effects::ADMIN,
            _ => Effects::WRITES | Effects::TABLES | Effects::INSERTS | Effects::LOADS,
        },
        Word::Begin => begin(ahead),
        Word::Start => match peek(&mut ahead) {
            Word::Transaction => Effects::TRANSACTION_BEGIN,
            Word::Slave | Word::Replica | Word::GroupReplication | Word::All => Effects::ADMIN,
            _ => Effects::UNPARSED,
        },
        Word::Commit => end(ahead, Effects::COMMIT),
        Word::Rollback => end(ahead, Effects::ROLLBACK),
        Word::Savepoint | Word::Release => Effects::SAVEPOINT,
        Word::Xa => match peek(&mut ahead) {
            Word::Commit | Word::Rollback => Effects::XA | Effects::XA_END,
            _ => Effects::XA,
        },
        Word::Create | Word::Alter | Word::Truncate | Word::Grant | Word::Revoke => {
            Effects::DDL | Effects::TABLES
        }
        Word::Drop => drop(ahead),
        Word::Rename => Effects::DDL | Effects::TABLES | Effects::TEMP_RENAME,
        Word::Call => Effects::CALL | Effects::TABLES,
        Word::Prepare => Effects::SQL_PREPARE,
        Word::Execute => Effects::SQL_EXECUTE,
        Word::Deallocate => Effects::SQL_DEALLOCATE,
        Word::Handler => Effects::HANDLER | Effects::TABLES,
        Word::Get => Effects::DIAGNOSTICS | Effects::USER_VARIABLE_WRITE,
        Word::Kill => Effects::KILL,
        Word::Use => Effects::USE,
        _ => server(word, ahead),
    }
}

/// Statements about the server, its locks and its tables as files.
fn server(word: Word, mut ahead: MysqlLexer<'_>) -> Effects {
    match word {
        Word::Lock => match peek(&mut ahead) {
            Word::Table | Word::Tables => Effects::LOCK_TABLES | Effects::TABLES,
            Word::Instance => Effects::BACKUP_LOCK,
            _ => Effects::UNPARSED,
        },
        Word::Unlock => match peek(&mut ahead) {
            Word::Table | Word::Tables => Effects::UNLOCK_TABLES,
            Word::Instance => Effects::BACKUP_UNLOCK,
            _ => Effects::UNPARSED,
        },
        Word::Backup => match (peek(&mut ahead), peek(&mut ahead)) {
            (Word::Stage, Word::End) | (Word::Unlock, _) => Effects::BACKUP_UNLOCK,
            (Word::Stage | Word::Lock, _) => Effects::BACKUP_LOCK,
            _ => Effects::UNPARSED,
        },
        // `ANALYZE SELECT` becomes that statement when its verb is met.
        Word::Analyze => match peek(&mut ahead) {
            Word::Table | Word::Tables => Effects::ADMIN | Effects::TABLES,
            _ => Effects::TABLES,
        },
        Word::Check | Word::Checksum | Word::Optimize | Word::Repair | Word::Cache => {
            Effects::ADMIN | Effects::TABLES
        }
        Word::Flush | Word::Reset | Word::Purge | Word::Change | Word::Stop => Effects::ADMIN,
        Word::Install | Word::Uninstall | Word::Shutdown | Word::Restart => Effects::ADMIN,
        Word::Import | Word::Clone => Effects::ADMIN,
        _ => Effects::UNPARSED,
    }
}

/// `BEGIN`, `BEGIN WORK`; `BEGIN NOT ATOMIC …` and the blocks of `sql_mode=ORACLE` run whatever
/// they have.
fn begin(mut ahead: MysqlLexer<'_>) -> Effects {
    if is_over(&ahead) || (peek(&mut ahead) == Word::Work && is_over(&ahead)) {
        return Effects::TRANSACTION_BEGIN;
    }
    Effects::UNPARSED | Effects::TRANSACTION_BEGIN
}

/// `COMMIT [WORK] [AND [NO] CHAIN] [[NO] RELEASE]`, `ROLLBACK` likewise, and
/// `ROLLBACK [WORK] TO [SAVEPOINT] name`.
fn end(mut ahead: MysqlLexer<'_>, whole: Effects) -> Effects {
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
                    effects |= Effects::TRANSACTION_BEGIN;
                }
                no = false;
            }
            Word::Release => {
                if !no {
                    effects |= Effects::CLOSES;
                }
                no = false;
            }
            Word::To if whole == Effects::ROLLBACK => return Effects::SAVEPOINT,
            _ => return effects | Effects::UNPARSED,
        }
    }
    effects | Effects::UNPARSED
}

/// Words of the longest `COMMIT`, and one more.
const END_WORDS_MAX: usize = 8;

/// `DROP …`
fn drop(mut ahead: MysqlLexer<'_>) -> Effects {
    match peek(&mut ahead) {
        Word::Prepare => Effects::SQL_DEALLOCATE,
        Word::Temporary | Word::Table | Word::Tables | Word::Sequence => {
            Effects::DDL | Effects::TABLES | Effects::TEMP_DROP
        }
        _ => Effects::DDL | Effects::TABLES,
    }
}
