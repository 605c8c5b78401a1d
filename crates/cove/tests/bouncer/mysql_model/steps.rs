//! Steps of a random MySQL client.

use testkit::my::{MyResult, command, execute, message, status};
use testkit::{MyClient, MyFailure, MyValue};

use super::{Actor, KnownStatement, Outcome, equal, failed, values};
use crate::model::Trouble;

type Step = fn(&mut Actor) -> Outcome;

/// Steps with their weights.
pub(super) const STEPS: &[(u64, Step)] = &[
    (12, Actor::check_session),
    (1, Actor::check_variables),
    (8, Actor::set),
    (2, Actor::set_unseen),
    (2, Actor::variable),
    (2, Actor::table),
    (1, Actor::prepare),
    (12, Actor::statement),
    (2, Actor::long_data),
    (2, Actor::cursor),
    (5, Actor::insert),
    (10, Actor::number),
    (4, Actor::warning),
    (2, Actor::lock),
    (4, Actor::several),
    (3, Actor::ahead),
    (3, Actor::much),
    (4, Actor::mistake),
    (8, Actor::transaction),
    (1, Actor::autocommit),
    (3, Actor::database),
    (3, Actor::routine),
    (1, Actor::kill),
    (2, Actor::begin_anew),
    (3, Actor::leave),
];

impl Actor {
    /// Changes a setting, by one of several statements.
    fn set(&mut self) -> Outcome {
        let name = self.random.pick(&[
            "lock_wait_timeout",
            "sort_buffer_size",
            "time_zone",
            "sql_mode",
            "collation_connection",
        ]);
        let number = 1 + self.random.below(9);
        let mode =
            self.random.pick(&["ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "STRICT_ALL_TABLES", ""]);
        let collation =
            self.random.pick(&["utf8mb4_bin", "utf8mb4_unicode_ci", "utf8mb4_general_ci"]);
        let (value, spelt) = match name {
            "time_zone" => (format!("+0{number}:00"), format!("'+0{number}:00'")),
            "sql_mode" => (mode.to_owned(), format!("'{mode}'")),
            "collation_connection" => (collation.to_owned(), format!("'{collation}'")),
            "sort_buffer_size" => ((number * 65_536).to_string(), (number * 65_536).to_string()),
            _ => (number.to_string(), number.to_string()),
        };
        let sql = match self.random.below(8) {
            0 if name == "collation_connection" => format!("SET NAMES utf8mb4 COLLATE {collation}"),
            0 if name == "time_zone" => {
                self.session.settings.insert(name, "SYSTEM".to_owned());
                return self.run("SET time_zone = DEFAULT").map(drop);
            }
            1 => format!("SET @@{name} = {spelt}"),
            2 => format!("SET @@session.{name} := {spelt}"),
            3 => format!("SET SESSION {name} = {spelt}"),
            4 => format!("set /* it */ LOCAL {name}={spelt}"),
            5 => {
                // A second setting in the same statement, and a value that only the server
                // computes.
                self.session.settings.insert("lock_wait_timeout", (number + 1).to_string());
                if name == "lock_wait_timeout" {
                    return self.run(&format!("SET {name} = {number} + 1")).map(drop);
                }
                format!("SET {name} = {spelt}, lock_wait_timeout = {number} + 1")
            }
            _ => format!("SET {name} = {spelt}"),
        };
        self.session.settings.insert(name, value);
        self.run(&sql).map(drop)
    }

    /// Changes a setting in a way that the bouncer cannot parse.
    fn set_unseen(&mut self) -> Outcome {
        let value = (20 + self.random.below(70)).to_string();
        let database = self.character.database.clone();
        let sql = match self.random.below(3) {
            0 => format!("CALL `{database}`.hidden_set({value})"),
            1 => format!("EXECUTE IMMEDIATE CONCAT('SET lock_wait', '_timeout = {value}')"),
            _ => format!(
                "SET STATEMENT lock_wait_timeout = 3 FOR CALL `{database}`.hidden_set({value})"
            ),
        };
        // The setting of a statement is restored after it, regardless of the statement's changes.
        if !sql.starts_with("SET STATEMENT") {
            self.session.settings.insert("lock_wait_timeout", value);
        }
        self.run(&sql)?;
        self.check_session()
    }

    fn variable(&mut self) -> Outcome {
        let name = self.random.pick(&["a", "b", "c", "hidden"]);
        let value = format!("{} it''s {}", self.mark(), self.random.below(100));
        let database = self.character.database.clone();
        let sql = match (name, self.random.below(3)) {
            ("hidden", _) => format!("CALL `{database}`.hidden_variable('{value}')"),
            (_, 0) => format!("SELECT @{name} := '{value}'"),
            (_, 1) => format!("SELECT '{value}' INTO @{name}"),
            _ => format!("SET @{name} = '{value}'"),
        };
        self.session.variables.insert(name.to_owned(), value.replace("''", "'"));
        self.run(&sql)?;
        self.check_variables()
    }

    /// Uses temporary tables, and checks that there are no others.
    fn table(&mut self) -> Outcome {
        let name = format!("temp_{}", self.random.below(3));
        let database = self.character.database.clone();
        let full = format!("`{database}`.{name}");
        match self.session.tables.get(&name).cloned() {
            None if self.random.one_in(2) => self.refuse(&format!("SELECT * FROM {full}"), 1146),
            None => {
                let mark = self.mark();
                self.run(&format!("CREATE TEMPORARY TABLE {full} AS SELECT '{mark}' AS mark"))?;
                self.session.tables.insert(name, mark);
                Ok(())
            }
            Some(_) if self.random.one_in(3) => {
                self.session.tables.remove(&name);
                self.run(&format!("DROP TEMPORARY TABLE {full}")).map(drop)
            }
            Some(mark) => self.expect(&format!("SELECT mark FROM {full}"), &[&[&mark]]),
        }
    }

    /// Uses SQL prepared statements.
    fn prepare(&mut self) -> Outcome {
        let name = format!("prepared_{}", self.random.below(3));
        match self.session.prepared.get(&name).cloned() {
            None if self.random.one_in(2) => self.refuse(&format!("EXECUTE {name}"), 1243),
            None => {
                let mark = self.mark();
                self.run(&format!("PREPARE {name} FROM 'SELECT ''{mark}'''"))?;
                self.session.prepared.insert(name, mark);
                Ok(())
            }
            Some(_) if self.random.one_in(3) => {
                self.session.prepared.remove(&name);
                self.run(&format!("DEALLOCATE PREPARE {name}")).map(drop)
            }
            Some(mark) => self.expect(&format!("EXECUTE {name}"), &[&[&mark]]),
        }
    }

    /// Uses protocol prepared statements, many of which have the same text for many clients.
    fn statement(&mut self) -> Outcome {
        let count = self.session.statements.len();
        if count == 0 || (count < 12 && self.random.one_in(4)) {
            let beside = match self.random.below(3) {
                0 => self.mark(),
                _ => format!("text {}", self.random.below(8)),
            };
            let sql = format!("SELECT CONCAT(?, ''), '{beside}', DATABASE()");
            self.note(&format!("prepare {sql}"));
            let prepared = self.client().prepare(&sql);
            let prepared = prepared.map_err(|failure| self.broken(failure))?;
            let schema = self.session.database.clone();
            let statement = KnownStatement { prepared, beside, schema, has_type: false };
            self.session.statements.push(statement);
            return Ok(());
        }
        let at = usize::try_from(self.random.below(u64::try_from(count).unwrap())).unwrap();
        if self.random.one_in(10) {
            let KnownStatement { prepared, .. } = self.session.statements.remove(at);
            self.note(&format!("close statement {}", prepared.id));
            return match self.client().close_statement(prepared.id) {
                Ok(()) => Ok(()),
                Err(error) => Err(self.broken(error.into())),
            };
        }
        let KnownStatement { prepared, beside, schema, has_type } =
            self.session.statements[at].clone();
        if self.random.one_in(8) {
            self.note(&format!("reset statement {}", prepared.id));
            return self.command(command::STMT_RESET, &prepared.id.to_le_bytes());
        }
        let value = format!("{}{}", self.mark(), self.random.below(1000));
        let binds = !has_type || self.random.one_in(3);
        self.note(&format!("execute {} {beside:?} with {value}, binds: {binds}", prepared.id));
        let body = execute(prepared.id, 0, &[MyValue::Text(&value)], binds);
        let answer = self.binary(&body)?;
        self.session.statements[at].has_type = true;
        equal("an execution", &values(&answer), &vec![vec![value, beside, schema]])
    }

    /// Sends a command that must succeed, and whose response is one packet.
    fn command(&mut self, command: u8, body: &[u8]) -> Outcome {
        match self.client().simple(command, body) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) if self.character.faults => Err(Trouble::Lost(error.to_string())),
            Ok(Err(error)) => Err(Trouble::Wrong(format!("command {command}: {error}"))),
            Err(failure) => Err(self.broken(failure)),
        }
    }

    pub(super) fn binary(&mut self, body: &[u8]) -> Outcome<testkit::MyAnswer> {
        let client = self.client();
        let sent = client.command(command::STMT_EXECUTE, body).map_err(MyFailure::from);
        let answer = sent.and_then(|()| client.binary_answer());
        let answer = self.seen(answer)?;
        match answer.error() {
            None => Ok(answer),
            Some(error) => Err(Trouble::Wrong(format!("an execution: {error}"))),
        }
    }

    /// Sends a parameter in pieces.
    fn long_data(&mut self) -> Outcome {
        let mark = self.mark();
        self.note("long data");
        let work = |client: &mut MyClient| {
            let prepared = client.prepare("SELECT ?")?;
            for piece in [mark.as_str(), " and ", mark.as_str()] {
                client.long_data(prepared.id, 0, piece.as_bytes())?;
            }
            let answer = client.execute(&prepared, &[MyValue::Long])?;
            client.close_statement(prepared.id)?;
            Ok(answer)
        };
        let answer = work(self.client());
        let answer = self.seen(answer)?;
        equal("long data", &values(&answer), &vec![vec![format!("{mark} and {mark}")]])
    }

    /// Opens a cursor, fetches from it, and closes it or leaves it open.
    fn cursor(&mut self) -> Outcome {
        let mark = self.mark();
        let Some((id, columns, next)) = self.session.cursor.take() else {
            self.note("open a cursor");
            let sql = format!("SELECT '{mark}', seq FROM seq_1_to_9");
            let prepared = self.client().prepare(&sql);
            let id = prepared.map_err(|failure| self.broken(failure))?.id;
            let answer = self.binary(&execute(id, 1, &[], true))?;
            let Some(MyResult::Rows(rows)) = answer.results.into_iter().next() else {
                return Err(Trouble::Wrong("no cursor".to_owned()));
            };
            self.session.cursor = Some((id, rows.columns, 1));
            return Ok(());
        };
        if self.random.one_in(4) {
            self.note("close a cursor");
            return match self.client().close_statement(id) {
                Ok(()) => Ok(()),
                Err(error) => Err(self.broken(error.into())),
            };
        }
        self.note(&format!("fetch from {next}"));
        let rows = self.client().fetch(id, &columns, 4);
        let rows = match rows {
            Ok(Ok(rows)) => rows,
            Ok(Err(error)) if self.character.faults => {
                return Err(Trouble::Lost(error.to_string()));
            }
            Ok(Err(error)) => return Err(Trouble::Wrong(format!("a fetch: {error}"))),
            Err(failure) => return Err(self.broken(failure)),
        };
        let end = rows.end.as_ref().map_or(0, |end| end.status);
        let seen: Vec<_> = rows.texts().into_iter().flatten().flatten().collect();
        let numbers = next..(next + 4).min(10);
        let expected: Vec<_> = numbers.flat_map(|n| [mark.clone(), n.to_string()]).collect();
        equal("fetched rows", &seen, &expected)?;
        if end & status::LAST_ROW_SENT == 0 {
            self.session.cursor = Some((id, columns, next + 4));
        }
        Ok(())
    }

    /// Inserts rows that other clients must not see before the commit, and other tenants never.
    fn insert(&mut self) -> Outcome {
        let mark = self.mark();
        let table = format!("`{}`.`lines`", self.character.database);
        self.run(&format!("INSERT INTO {table} VALUES ('{mark}', {})", self.lines.0))?;
        self.lines.0 += 1;
        if !self.is_open {
            self.lines.1 = self.lines.0;
        }
        self.count()
    }

    fn count(&mut self) -> Outcome {
        let (mark, count) = (self.mark(), self.lines.0.to_string());
        let Actor { character, .. } = self;
        let (tenant, database) = (character.tenant, character.database.clone());
        let sql = format!(
            "SELECT COUNT(*), (SELECT COUNT(*) FROM `{database}`.`lines` \
             WHERE mark NOT LIKE '[t{tenant}c%') AS strangers \
             FROM `{database}`.`lines` WHERE mark = '{mark}'"
        );
        self.expect(&sql, &[&[&count, "0"]])
    }

    /// Checks that warnings are those of its own last statement.
    fn warning(&mut self) -> Outcome {
        let mark = self.mark();
        self.run(&format!("SELECT CAST('{mark}' AS SIGNED) FROM seq_1_to_1"))?;
        let text = format!("Truncated incorrect INTEGER value: '{mark}'");
        match self.random.below(4) {
            0 => self.expect("SHOW COUNT(*) WARNINGS", &[&["1"]]),
            1 => Ok(()),
            _ => self.expect("SHOW WARNINGS", &[&["Warning", "1292", &text]]),
        }
    }

    fn lock(&mut self) -> Outcome {
        // No other client uses this name, nor this one after its next login.
        let name = format!("{}{}", self.mark(), self.random.below(3));
        let database = self.character.database.clone();
        if let Some(count) = self.session.locks.get_mut(&name) {
            *count -= 1;
            if *count == 0 {
                self.session.locks.remove(&name);
            }
            return self.expect(&format!("SELECT RELEASE_LOCK('{name}')"), &[&["1"]]);
        }
        if self.random.one_in(3) {
            return self.expect(&format!("SELECT IS_FREE_LOCK('{name}')"), &[&["1"]]);
        }
        if self.random.one_in(4) {
            // A lock that the bouncer cannot parse: it may be lost, but no other client has it.
            let sql = format!("SELECT `{database}`.hidden_lock('{name} hidden')");
            return self.expect(&sql, &[&["1"]]);
        }
        self.session.locks.insert(name.clone(), 1);
        self.expect(&format!("SELECT GET_LOCK('{name}', 0)"), &[&["1"]])
    }

    /// Sends several statements in one text, of which one may fail.
    fn several(&mut self) -> Outcome {
        let mark = self.mark();
        if self.random.one_in(3) {
            let sql = format!("SELECT '{mark}1'; SELECT nothing; SELECT '{mark}3'");
            let answer = self.ask(&sql)?;
            failed(&sql, &answer, 1054)?;
            return equal(&sql, &values(&answer), &vec![vec![format!("{mark}1")]]);
        }
        let sql = format!("SELECT '{mark}1'; DO 0; SELECT '', '{mark}2' FROM seq_1_to_2");
        let (first, second) = ([format!("{mark}1")], [String::new(), format!("{mark}2")]);
        let answer = self.run(&sql)?;
        equal(&sql, &answer.letters(), &"ROR".to_owned())?;
        let expected = vec![first.to_vec(), second.to_vec(), second.to_vec()];
        equal(&sql, &values(&answer), &expected)
    }

    /// Sends commands before it reads responses.
    fn ahead(&mut self) -> Outcome {
        let (mark, count) = (self.mark(), 1 + self.random.below(6));
        let broken = self.random.below(count * 3);
        self.note(&format!("{count} at once, the {broken}th fails"));
        let mut bytes = Vec::new();
        for at in 0..count {
            let sql = if at == broken {
                "SELECT nothing".to_owned()
            } else {
                format!("SELECT '{mark}{at}'")
            };
            bytes.extend(message(command::QUERY, sql.as_bytes()));
        }
        if let Err(error) = self.client().send(&bytes) {
            return Err(self.broken(error.into()));
        }
        for at in 0..count {
            self.client().sequence = 1;
            let answer = self.client().answer();
            let answer = self.seen(answer)?;
            if at == broken {
                failed("one of several at once", &answer, 1054)?;
            } else {
                equal(
                    "one of several at once",
                    &values(&answer),
                    &vec![vec![format!("{mark}{at}")]],
                )?;
            }
        }
        Ok(())
    }

    /// Reads a response that is longer than any buffer.
    fn much(&mut self) -> Outcome {
        let mark = self.mark();
        let (wide, rows) = (1 + self.random.below(4000), 1 + self.random.below(30));
        let sql = format!("SELECT REPEAT('{mark}', {wide}) FROM seq_1_to_{rows}");
        let seen = self.run(&sql)?.rows();
        let length = mark.len() * usize::try_from(wide).unwrap();
        let is_right =
            |row: &Vec<Option<String>>| row[0].as_ref().is_some_and(|it| it.len() == length);
        let right = (usize::try_from(rows).unwrap(), true);
        equal(&sql, &(seen.len(), seen.iter().all(is_right)), &right)
    }

    fn mistake(&mut self) -> Outcome {
        match self.random.below(5) {
            0 => self.refuse("SELECT nothing", 1054),
            1 => self.refuse("SELEC 1", 1064),
            2 => self.refuse("SET lock_wait_timeout = 'nonsense'", 1232),
            3 => {
                let error = self.client().prepare("SELECT nothing").err();
                match error {
                    Some(MyFailure::Server(error)) if error.code == 1054 => Ok(()),
                    Some(failure) => Err(self.broken(failure)),
                    None => Err(Trouble::Wrong("a preparation did not fail".to_owned())),
                }
            }
            _ => self.refuse("SELECT 1; CALL mysql.no_such_procedure()", 1305),
        }
    }

    fn transaction(&mut self) -> Outcome {
        if self.is_open {
            return self.end();
        }
        let begin = self.random.pick(&["BEGIN", "START TRANSACTION", "begin work"]);
        self.run(begin)?;
        (self.is_open, self.lines.1) = (true, self.lines.0);
        Ok(())
    }

    /// Commits or rolls back a transaction.
    fn end(&mut self) -> Outcome {
        let commits = self.random.one_in(2);
        self.run(if commits { "COMMIT" } else { "ROLLBACK" })?;
        if commits {
            self.lines.1 = self.lines.0;
        } else {
            self.lines.0 = self.lines.1;
        }
        self.is_open = false;
        self.count()
    }

    /// Writes in an implicit transaction, and rolls it back.
    fn autocommit(&mut self) -> Outcome {
        if self.is_open {
            return Ok(());
        }
        self.run("SET autocommit = 0")?;
        self.session.settings.insert("autocommit", "0".to_owned());
        self.is_open = true;
        self.check_session()?;
        self.insert()?;
        self.end()?;
        // Reads since then have started another transaction, which this statement ends.
        self.run("SET autocommit = 1")?;
        self.session.settings.insert("autocommit", "1".to_owned());
        self.check_session()
    }

    fn database(&mut self) -> Outcome {
        let own = self.character.database.clone();
        let wanted = match self.random.below(4) {
            0 => "mysql".to_owned(),
            1 => "sys".to_owned(),
            _ => own,
        };
        if self.random.one_in(4) {
            self.refuse("USE no_such_database", 1049)?;
        }
        if self.random.one_in(2) {
            self.run(&format!("USE `{wanted}`"))?;
        } else {
            self.note(&format!("init {wanted}"));
            self.command(command::INIT_DB, wanted.as_bytes())?;
        }
        self.session.database = wanted;
        // Statements that were prepared in another database stay there (MariaDB 10.11).
        if self.random.one_in(3) { self.check_session() } else { self.statement() }
    }

    fn routine(&mut self) -> Outcome {
        let (mark, database) = (self.mark(), self.character.database.clone());
        let rows: [&[&str]; 2] = [&[&mark], &["", &mark]];
        self.expect(&format!("CALL `{database}`.two('{mark}')"), &rows)
    }

    /// Kills its own statement, and only that may be killed.
    fn kill(&mut self) -> Outcome {
        let sql = format!("SELECT SLEEP(0.2), '{}' FROM seq_1_to_4", self.mark());
        self.note(&format!("{sql}, killed"));
        let (identity, address) = (self.identity(), self.character.address.clone());
        let id = self.client().greeting.thread_id;
        let sent = self.client().command(command::QUERY, sql.as_bytes());
        if let Err(error) = sent {
            return Err(self.broken(error.into()));
        }
        if let Ok(mut other) = MyClient::login(&address, &identity) {
            // The result of the statement shows whether the request arrives.
            drop(other.query(&format!("KILL QUERY {id}")));
        }
        let answer = self.client().answer();
        if let Ok(answer) = &answer
            && answer.error().is_some_and(|error| error.code == 1317)
        {
            return self.own(answer);
        }
        self.seen(answer).map(drop)
    }

    /// Starts a new session on the same connection.
    fn begin_anew(&mut self) -> Outcome {
        let identity = self.identity();
        let outcome = if self.random.one_in(2) {
            self.note("reset the connection");
            let answer = self.client().simple(command::RESET_CONNECTION, &[]);
            answer.and_then(|answer| answer.map(drop).map_err(MyFailure::Server))
        } else {
            self.note("change the user");
            self.client().change_user(&identity)
        };
        if let Err(failure) = outcome {
            return Err(self.broken(failure));
        }
        let was = self.session.database.clone();
        self.lines.0 = self.lines.1;
        self.begin_again();
        // A reset keeps the database, and another user has its default database.
        if self.log.back().is_some_and(|line| line.contains("reset")) {
            self.session.database = was;
        }
        self.check_session()?;
        self.check_variables()?;
        self.count()
    }

    /// Disconnects, possibly in the middle of an operation.
    pub(super) fn leave(&mut self) -> Outcome {
        let how = self.random.below(6);
        self.note(&format!("leave in way {how}"));
        let mark = self.mark();
        let Some(mut client) = self.client.take() else { return Ok(()) };
        let query = message(command::QUERY, format!("SELECT '{mark}', SLEEP(0.05)").as_bytes());
        let much = format!("SELECT REPEAT('{mark}', 1000) FROM seq_1_to_2000");
        let bytes = match how {
            0 => {
                client.close();
                return Ok(());
            }
            // Without a message, in any state.
            1 => Vec::new(),
            2 => query,
            // An incomplete message.
            3 => query[..query.len() / 2].to_vec(),
            // A response that is not read.
            4 => message(command::QUERY, much.as_bytes()),
            // The beginning of a long message, whose rest is never sent.
            _ => [&[0xFF, 0xFF, 0xFF, 0, command::QUERY][..], b"SELECT 'unfinished"].concat(),
        };
        // The connection may end before that.
        drop(client.send(&bytes));
        Ok(())
    }
}
