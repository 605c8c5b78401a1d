//! Insert ids, of which `LAST_INSERT_ID()` must return a client its own.
//!
//! Covers each way to receive one: reported in the response or not, by the statement or by code
//! that it calls, and also if the statement fails.

use testkit::MyAnswer;

use super::{Actor, Outcome, differs, failed, values};

/// Error that rolled back the whole transaction.
const DEADLOCK: u16 = 1213;
const DUPLICATE: u16 = 1062;
const SIGNAL: u16 = 1644;

/// Statement that may set the session's insert id.
#[derive(Clone, Copy, Debug)]
enum Giver {
    Rows,
    Prepared,
    Returning,
    /// Several rows, the second of which fails.
    Fails,
    /// The same, but the id is returned before the failure.
    FailsReturning,
    /// One row, which fails.
    FailsAtOnce,
    Replace,
    Updates,
    UpdatesByExpression,
    Select,
    Expression,
    UpdateExpression,
    Load,
    Procedure,
    FailingProcedure,
    Immediate,
    Several,
    SeveralFail,
    /// Insert ids within a function or trigger are not its caller's.
    Function,
    Trigger,
    /// Id that the client specifies.
    Chosen,
}

const GIVERS: &[Giver] = &[
    Giver::Rows,
    Giver::Rows,
    Giver::Prepared,
    Giver::Returning,
    Giver::Fails,
    Giver::Fails,
    Giver::FailsReturning,
    Giver::FailsAtOnce,
    Giver::Replace,
    Giver::Updates,
    Giver::UpdatesByExpression,
    Giver::Select,
    Giver::Expression,
    Giver::UpdateExpression,
    Giver::Load,
    Giver::Procedure,
    Giver::FailingProcedure,
    Giver::Immediate,
    Giver::Several,
    Giver::SeveralFail,
    Giver::Function,
    Giver::Trigger,
    Giver::Chosen,
];

/// Effect of a statement on the session's insert id.
enum Given {
    /// It becomes this number.
    Number(u64),
    /// It becomes that of the first row with this mark.
    Marked(String),
    /// It becomes one without a row, after all previous ones.
    Lost,
    Same,
}

impl Actor {
    /// Uses a statement that sets an insert id.
    pub(super) fn number(&mut self) -> Outcome {
        let giver = self.random.pick(GIVERS);
        self.numbered += 1;
        let text = format!("{}{}", self.mark(), self.numbered);
        let Some(ids) = self.gives(giver, &text)? else { return self.leave() };
        match ids {
            Given::Number(id) => self.session.last_id = id,
            Given::Marked(mark) => {
                let table = self.ids();
                let answer =
                    self.run(&format!("SELECT MIN(id) FROM {table} WHERE mark = '{mark}'"))?;
                self.session.last_id = answer.value().parse().unwrap_or_default();
            }
            Given::Lost => return self.lost_number(),
            Given::Same => {}
        }
        let table = self.ids();
        match self.random.below(4) {
            0 => {
                let expected = self.session.last_id.to_string();
                self.expect("SELECT LAST_INSERT_ID()", &[&[&expected]])
            }
            1 if matches!(giver, Giver::Rows | Giver::Select | Giver::Replace) => {
                let sql = format!("SELECT mark FROM {table} WHERE id = LAST_INSERT_ID()");
                self.expect(&sql, &[&[&text]])
            }
            // It queries the id later, after other clients have used the connection.
            2 => Ok(()),
            _ => self.check_session(),
        }
    }

    fn ids(&self) -> String {
        format!("`{}`.ids", self.character.database)
    }

    /// Checks the id of a rolled back row, which no row has.
    fn lost_number(&mut self) -> Outcome {
        let (table, before) = (self.ids(), self.session.last_id);
        let sql = format!(
            "SELECT LAST_INSERT_ID(), (SELECT COUNT(*) FROM {table} WHERE id = LAST_INSERT_ID())"
        );
        let answer = self.run(&sql)?;
        let rows = values(&answer);
        let id = rows[0][0].parse().unwrap_or_default();
        // A server that was killed in between may reuse it.
        if !self.character.faults && (id == before || rows[0][1] != "0") {
            return Err(differs(&sql, &rows, &format!("another one than {before}, of no row")));
        }
        self.session.last_id = id;
        Ok(())
    }

    /// Runs a statement; returns `None` after a deadlock with another client.
    fn gives(&mut self, giver: Giver, text: &str) -> Outcome<Option<Given>> {
        let table = self.ids();
        let insert = format!("INSERT INTO {table} (mark) VALUES ('{text}')");
        let fails = format!("INSERT INTO {table} (mark, u) VALUES ('{text}', NULL), ('', 'taken')");
        let own = format!("INSERT INTO {table} (mark, u) VALUES ('{text}', '{text}')");
        let marked = || Given::Marked(text.to_owned());
        let (sql, assigned) = match giver {
            Giver::Rows => {
                let rows = format!("{insert}, ('{text}')");
                let Some(answer) = self.tried(&rows)? else { return Ok(None) };
                return Ok(Some(Given::Number(answer.ok().last_insert_id)));
            }
            Giver::Prepared => return self.gives_prepared(&table, text),
            Giver::Returning => {
                let sql = format!("{insert}, ('{text}') RETURNING id");
                let Some(answer) = self.tried(&sql)? else { return Ok(None) };
                return Ok(Some(Given::Number(first_number(&answer))));
            }
            Giver::Fails => return self.gives_way(&fails, DUPLICATE, Given::Lost),
            Giver::FailsReturning => {
                let sql = format!("{fails} RETURNING id");
                let answer = self.ask(&sql)?;
                if has_failed(&answer, DEADLOCK) {
                    return Ok(None);
                }
                failed(&sql, &answer, DUPLICATE)?;
                return Ok(Some(Given::Number(first_number(&answer))));
            }
            Giver::FailsAtOnce => {
                let sql = format!("INSERT INTO {table} (mark, u) VALUES ('{text}', 'taken')");
                return self.gives_way(&sql, DUPLICATE, Given::Same);
            }
            Giver::Replace => {
                let Some(_) = self.tried(&own)? else { return Ok(None) };
                (format!("REPLACE INTO {table} (mark, u) VALUES ('{text}', '{text}')"), marked())
            }
            Giver::Updates | Giver::UpdatesByExpression => {
                let Some(_) = self.tried(&own)? else { return Ok(None) };
                let change = match giver {
                    Giver::Updates => "mark = VALUES(mark)",
                    _ => "id = LAST_INSERT_ID(id)",
                };
                (format!("{own} ON DUPLICATE KEY UPDATE {change}"), marked())
            }
            Giver::SeveralFail => {
                let sql = format!("{insert}; {fails}");
                return self.gives_way(&sql, DUPLICATE, Given::Lost);
            }
            Giver::FailingProcedure => {
                let sql = format!("CALL `{}`.fail_behind_id('{text}')", self.character.database);
                return self.gives_way(&sql, SIGNAL, marked());
            }
            _ => match self.sql_of(giver, text)? {
                Some(both) => both,
                None => return Ok(None),
            },
        };
        Ok(self.tried(&sql)?.map(|_| assigned))
    }

    /// Returns a statement that must not fail, and its effect; `None` after a deadlock.
    fn sql_of(&mut self, giver: Giver, text: &str) -> Outcome<Option<(String, Given)>> {
        let (table, database) = (self.ids(), self.character.database.clone());
        let insert = format!("INSERT INTO {table} (mark) VALUES ('{text}')");
        let number = 1_000_000_000 + self.random.below(1_000_000);
        let marked = || Given::Marked(text.to_owned());
        Ok(Some(match giver {
            Giver::Select => {
                (format!("INSERT INTO {table} (mark) SELECT '{text}' FROM seq_1_to_3"), marked())
            }
            Giver::Expression => {
                let spelt = ["DO LAST_INSERT_ID", "SELECT LAST_INSERT_ID", "set @@last_insert_id="];
                let sql = format!("{}({number})", self.random.pick(&spelt));
                (sql, Given::Number(number))
            }
            Giver::UpdateExpression => {
                let places = format!("`{database}`.places");
                let row = format!("INSERT IGNORE INTO {places} VALUES ('{text}', 0)");
                let Some(_) = self.tried(&row)? else { return Ok(None) };
                let change = format!("UPDATE {places} SET n = LAST_INSERT_ID({number})");
                (format!("{change} WHERE mark = '{text}'"), Given::Number(number))
            }
            Giver::Load => {
                self.client().file = Some(format!("{text}\n{text}\n{text}\n").into_bytes());
                let sql = format!("LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table} (mark)");
                (sql, marked())
            }
            Giver::Procedure => (format!("CALL `{database}`.insert_id('{text}')"), marked()),
            Giver::Immediate => {
                (format!("EXECUTE IMMEDIATE '{}'", insert.replace('\'', "''")), marked())
            }
            Giver::Several => (format!("{insert}; DO 0"), marked()),
            Giver::Function => (format!("SELECT `{database}`.inserted_id('{text}')"), Given::Same),
            Giver::Trigger => {
                (format!("INSERT INTO `{database}`.places VALUES ('{text}', 0)"), Given::Same)
            }
            Giver::Chosen => {
                // Below all ids that the server assigns, and never used twice.
                let number = u64::try_from(self.character.number).unwrap();
                let chosen = (number << 24) + self.numbered;
                let sql = format!("INSERT INTO {table} (id, mark) VALUES (-{chosen}, '{text}')");
                (sql, Given::Same)
            }
            other => unreachable!("{other:?} may fail"),
        }))
    }

    /// Runs a protocol prepared statement that inserts.
    fn gives_prepared(&mut self, table: &str, text: &str) -> Outcome<Option<Given>> {
        let sql = format!("INSERT INTO {table} (mark) VALUES ('{text}')");
        self.note(&format!("prepare and execute {sql}"));
        let client = self.client();
        let answer = client.prepare(&sql).and_then(|prepared| {
            let answer = client.execute(&prepared, &[])?;
            client.close_statement(prepared.id)?;
            Ok(answer)
        });
        let answer = self.seen(answer)?;
        match answer.error() {
            None => Ok(Some(Given::Number(answer.ok().last_insert_id))),
            Some(error) if error.code == DEADLOCK => Ok(None),
            error => Err(differs(&sql, &error, &"a number")),
        }
    }

    /// Runs a statement that must fail with this error, and returns its effect.
    fn gives_way(&mut self, sql: &str, code: u16, assigned: Given) -> Outcome<Option<Given>> {
        let answer = self.ask(sql)?;
        if has_failed(&answer, DEADLOCK) {
            return Ok(None);
        }
        failed(sql, &answer, code).map(|()| Some(assigned))
    }

    /// Runs a statement that must not fail; returns `None` after a deadlock with another client.
    fn tried(&mut self, sql: &str) -> Outcome<Option<MyAnswer>> {
        let answer = self.ask(sql)?;
        match answer.error() {
            None => Ok(Some(answer)),
            Some(error) if error.code == DEADLOCK => Ok(None),
            error => Err(differs(sql, &error, &"no error")),
        }
    }
}

fn has_failed(answer: &MyAnswer, code: u16) -> bool {
    answer.error().is_some_and(|error| error.code == code)
}

fn first_number(answer: &MyAnswer) -> u64 {
    let rows = answer.rows();
    let first = rows.first().and_then(|row| row.first().cloned().flatten());
    first.and_then(|id| id.parse().ok()).unwrap_or_default()
}
