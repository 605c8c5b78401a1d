//! MySQL client that does random actions, and knows the expected results.
//!
//! Everything that it writes contains its mark: tenant, client, and number of logins. Foreign rows,
//! variables, statements, warnings or tables are therefore detected anywhere, and so are its own
//! ones that should no longer exist.

mod ids;
mod steps;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use testkit::my::capability::LOCAL_FILES;
use testkit::my::{MyColumn, MyResult};
use testkit::{MyAnswer, MyClient, MyError, MyFailure, MyLogin, MyStatement};

use self::steps::STEPS;
use crate::model::{Character, Outcome, Plays, Random, Trouble};
use crate::support::{PASSWORD, USER};

/// Response timeout of a client: others may hold all connections for some time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of last actions in failure messages.
const LOG_LINES: usize = 25;
/// Statements that create the schema of each database.
pub(crate) const SCHEMA: [&str; 12] = [
    "CREATE TABLE `lines` (mark VARCHAR(60), n INT, KEY (mark)) ENGINE=InnoDB",
    "CREATE TABLE ids (id INT AUTO_INCREMENT PRIMARY KEY, u VARCHAR(60) UNIQUE, \
     mark VARCHAR(60), KEY (mark)) ENGINE=InnoDB",
    // The first row keeps gap locks before the second one away from clients' rows.
    "INSERT INTO ids (u) VALUES ('take'), ('taken')",
    "CREATE TABLE places (mark VARCHAR(60) PRIMARY KEY, n INT) ENGINE=InnoDB",
    "CREATE TRIGGER child BEFORE INSERT ON places FOR EACH ROW \
     INSERT INTO ids (mark) VALUES (NEW.mark)",
    "CREATE PROCEDURE insert_id(mark TEXT) INSERT INTO ids (mark) VALUES (mark)",
    "CREATE PROCEDURE fail_behind_id(mark TEXT) \
     BEGIN INSERT INTO ids (mark) VALUES (mark); SIGNAL SQLSTATE '45000'; END",
    "CREATE FUNCTION inserted_id(mark TEXT) RETURNS INT \
     BEGIN INSERT INTO ids (mark) VALUES (mark); RETURN LAST_INSERT_ID(); END",
    "CREATE PROCEDURE hidden_set(value INT) SET SESSION lock_wait_timeout = value",
    "CREATE PROCEDURE hidden_variable(mark TEXT) SET @hidden = mark",
    "CREATE PROCEDURE two(mark TEXT) BEGIN SELECT mark; SELECT '', mark; END",
    "CREATE FUNCTION hidden_lock(name TEXT) RETURNS INT RETURN GET_LOCK(name, 0)",
];

/// Expected session state, none of which is transactional.
#[derive(Clone, Debug, Default)]
struct Session {
    settings: BTreeMap<&'static str, String>,
    database: String,
    /// User variables by name, including `hidden`.
    variables: BTreeMap<String, String>,
    /// Temporary tables, with their content.
    tables: BTreeMap<String, String>,
    /// SQL prepared statements, with their results.
    prepared: BTreeMap<String, String>,
    statements: Vec<KnownStatement>,
    /// Statement with an open cursor, its columns, and the next row.
    cursor: Option<(u32, Vec<MyColumn>, u64)>,
    /// Locks by name, with the number of times that each is held.
    locks: BTreeMap<String, u32>,
    last_id: u64,
}

/// Protocol prepared statement.
#[derive(Clone, Debug)]
struct KnownStatement {
    prepared: MyStatement,
    /// Text besides its parameter.
    beside: String,
    /// Schema in which it was prepared.
    schema: String,
    /// True if the type of its parameter was sent before.
    has_type: bool,
}

/// Client.
#[derive(Debug)]
pub(crate) struct Actor {
    character: Character,
    random: Random,
    /// Number of logins.
    generation: u64,
    client: Option<MyClient>,
    session: Session,
    /// True if a transaction is open.
    is_open: bool,
    /// Number of lines that it has written, and their number when its transaction began.
    lines: (u64, u64),
    /// Number of rows with an insert id, so that each row has a unique mark.
    numbered: u64,
    /// Last actions.
    log: VecDeque<String>,
    /// Number of steps, each of which checked all received data.
    steps: u64,
}

impl Plays for Actor {
    fn new(character: Character, seed: u64) -> Actor {
        Actor {
            random: Random::of(&character, seed),
            character,
            generation: 0,
            client: None,
            session: Session::default(),
            is_open: false,
            lines: (0, 0),
            numbered: 0,
            log: VecDeque::new(),
            steps: 0,
        }
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn log(&self) -> String {
        self.log.iter().map(|line| format!("\n  {line}")).collect()
    }

    fn calm(&mut self) {
        self.character.faults = false;
        self.hang_up();
    }

    fn hang_up(&mut self) {
        self.client = None;
    }

    fn occupy(&mut self) -> Outcome {
        self.calm();
        self.login()?;
        self.run("BEGIN")?;
        self.check_session()?;
        self.check_variables()
    }

    fn step(&mut self) -> Outcome {
        self.steps += 1;
        if self.client.is_none() {
            return self.login();
        }
        let step = self.random.weighted(STEPS);
        let mut outcome = step(self);
        // A client that holds a connection leaves sooner: others wait for it.
        if outcome.is_ok() && self.holds() && self.random.one_in(8) {
            outcome = self.leave();
        }
        if let Err(Trouble::Lost(why)) = &outcome {
            self.note(&format!("lost: {why}"));
            self.client = None;
        }
        outcome
    }
}

impl Actor {
    /// Returns whether it has state that ties it to one server connection.
    fn holds(&self) -> bool {
        let Session { variables, tables, prepared, locks, cursor, .. } = &self.session;
        self.is_open
            || cursor.is_some()
            || !(variables.is_empty() && tables.is_empty())
            || !(prepared.is_empty() && locks.is_empty())
    }

    /// Returns its mark.
    fn mark(&self) -> String {
        let Character { tenant, number, .. } = self.character;
        format!("[t{tenant}c{number}g{}]", self.generation)
    }

    fn note(&mut self, what: &str) {
        if self.log.len() == LOG_LINES {
            self.log.pop_front();
        }
        let mark = self.mark();
        self.log.push_back(format!("{mark} {}", what.chars().take(240).collect::<String>()));
    }

    fn identity(&self) -> MyLogin {
        MyLogin::new(USER, PASSWORD, &self.character.database).with(LOCAL_FILES)
    }

    fn login(&mut self) -> Outcome {
        use testkit::my::capability::{DEPRECATE_EOF, SESSION_TRACK};
        self.generation += 1;
        self.lines = (0, 0);
        self.begin_again();
        let without = self.random.pick(&[0, 0, DEPRECATE_EOF, SESSION_TRACK]);
        self.note(&format!("login without {without:x}"));
        match MyClient::login(&self.character.address, &self.identity().without(without)) {
            Ok(client) => {
                client.patience(PATIENCE);
                self.client = Some(client);
            }
            Err(failure) => return Err(self.broken(failure)),
        }
        self.check_session()
    }

    /// Resets the expected state to that of a new session.
    fn begin_again(&mut self) {
        self.is_open = false;
        self.lines.1 = self.lines.0;
        let settings = BTreeMap::from([
            ("lock_wait_timeout", "86400"),
            ("sort_buffer_size", "2097152"),
            ("time_zone", "SYSTEM"),
            ("sql_mode", DEFAULT_MODE),
            ("collation_connection", "utf8mb4_general_ci"),
            ("autocommit", "1"),
        ]);
        self.session = Session {
            settings: settings.into_iter().map(|(name, value)| (name, value.to_owned())).collect(),
            database: self.character.database.clone(),
            ..Session::default()
        };
    }

    /// Classifies a failure. The last messages of a connection contain the reason for its end.
    fn broken(&self, failure: MyFailure) -> Trouble {
        let text = failure.to_string();
        if failure.is_timeout() {
            return Trouble::Wrong(format!("no answer: {text}"));
        }
        if failure.is_nonsense() || !self.character.faults {
            return Trouble::Wrong(format!("the connection was lost: {text}"));
        }
        match failure.error() {
            Some(error) if !is_lost(&error) && !matches!(failure, MyFailure::Broken(..)) => {
                Trouble::Wrong(format!("the connection was lost: {text}"))
            }
            _ => Trouble::Lost(text),
        }
    }

    fn client(&mut self) -> &mut MyClient {
        self.client.as_mut().unwrap()
    }

    /// Returns a response, after checking everything that was received.
    fn seen(&self, answer: Result<MyAnswer, MyFailure>) -> Outcome<MyAnswer> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                if let MyFailure::Broken(answer, _) = &failure {
                    self.own(answer)?;
                }
                return Err(self.broken(failure));
            }
        };
        self.own(&answer)?;
        if let Some(error) = answer.error()
            && is_lost(&error)
            && self.character.faults
        {
            return Err(Trouble::Lost(error.to_string()));
        }
        Ok(answer)
    }

    /// Searches all received data for marks of other clients.
    fn own(&self, answer: &MyAnswer) -> Outcome {
        for result in &answer.results {
            match result {
                MyResult::Ok(ok) => self.without_strangers(&ok.info)?,
                MyResult::Error(error) => self.without_strangers(&error.message)?,
                MyResult::Rows(rows) => {
                    for column in &rows.columns {
                        self.without_strangers(&column.name)?;
                    }
                    for value in rows.rows.iter().flatten().flatten() {
                        self.without_strangers(&String::from_utf8_lossy(value))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn without_strangers(&self, text: &str) -> Outcome {
        let mark = self.mark();
        // A repeated text repeats the same mark, so the first ones are sufficient.
        for at in text.match_indices("[t").map(|(at, _)| at).take(3) {
            let found = text[at..].split_inclusive(']').next().unwrap_or_default();
            // The text may have been truncated.
            if !mark.starts_with(found) {
                return Err(Trouble::Wrong(format!("{found} in {text:.200?}, seen by {mark}")));
            }
        }
        Ok(())
    }

    /// Runs SQL with any result.
    fn ask(&mut self, sql: &str) -> Outcome<MyAnswer> {
        self.note(sql);
        let answer = self.client().query(sql);
        self.seen(answer)
    }

    /// Runs SQL that must not fail.
    fn run(&mut self, sql: &str) -> Outcome<MyAnswer> {
        let answer = self.ask(sql)?;
        match answer.error() {
            None => Ok(answer),
            Some(error) => Err(Trouble::Wrong(format!("{sql:.200}: {error}"))),
        }
    }

    /// Runs SQL that must return these rows, with NULL as an empty text.
    fn expect(&mut self, sql: &str, rows: &[&[&str]]) -> Outcome {
        let answer = self.run(sql)?;
        equal(sql, &values(&answer), &rows.iter().map(|row| owned(row)).collect())
    }

    /// Runs SQL that must fail.
    fn refuse(&mut self, sql: &str, code: u16) -> Outcome {
        let answer = self.ask(sql)?;
        failed(sql, &answer, code)
    }

    /// Compares the session state with the expected one, except user variables, which pin.
    fn check_session(&mut self) -> Outcome {
        let mut sql = "SELECT DATABASE(), LAST_INSERT_ID(), CONNECTION_ID()".to_owned();
        let id = self.client().greeting.thread_id;
        let Session { database, last_id, settings, .. } = &self.session;
        let mut expected = vec![database.clone(), last_id.to_string(), id.to_string()];
        for (name, value) in settings {
            sql.push_str(&format!(", @@{name}"));
            expected.push(value.clone());
        }
        let answer = self.run(&sql)?;
        equal(&sql, &values(&answer), &vec![expected])
    }

    /// Compares the user variables.
    fn check_variables(&mut self) -> Outcome {
        let names = ["a", "b", "c", "hidden"];
        let sql = format!("SELECT @{}", names.join(", @"));
        let expected = names.map(|name| self.session.variables.get(name).cloned());
        let expected = expected.map(Option::unwrap_or_default).to_vec();
        let answer = self.run(&sql)?;
        equal(&sql, &values(&answer), &vec![expected])
    }
}

/// MariaDB's default mode.
const DEFAULT_MODE: &str =
    "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION";

/// Returns whether an error reports the end of a connection.
fn is_lost(error: &MyError) -> bool {
    [1040, 1053, 1152, 1158, 1317, 1927, 2003, 2006, 2013, 3032].contains(&error.code)
}

fn values(answer: &MyAnswer) -> Vec<Vec<String>> {
    let row = |row: Vec<Option<String>>| row.into_iter().map(Option::unwrap_or_default).collect();
    answer.rows().into_iter().map(row).collect()
}

fn owned(row: &[&str]) -> Vec<String> {
    row.iter().map(|&value| value.to_owned()).collect()
}

/// Checks an expected error.
fn failed(what: &str, answer: &MyAnswer, code: u16) -> Outcome {
    match answer.error() {
        Some(error) if error.code == code => Ok(()),
        error => Err(differs(what, &error, &code)),
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, seen: &T, expected: &T) -> Outcome {
    if seen == expected { Ok(()) } else { Err(differs(what, seen, expected)) }
}

fn differs(what: &str, seen: &impl std::fmt::Debug, expected: &impl std::fmt::Debug) -> Trouble {
    Trouble::Wrong(format!("{what:.300}\n  is {seen:.1200?}\n  not {expected:.1200?}"))
}
