//! Client that does random actions, and knows the expected results.
//!
//! Everything that it writes contains its mark: tenant, client, and number of logins. Foreign rows,
//! settings, statements, tables or notifications are therefore detected anywhere, and so are its
//! own ones that should no longer exist.

mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use testkit::{PgAddress, PgAnswer, PgBatch, PgClient, PgError, PgFailure};

use self::steps::STEPS;
use crate::support::{PASSWORD, USER};

/// Response timeout of a client.
const PATIENCE: Duration = Duration::from_secs(45);
/// Number of last actions in failure messages.
const LOG_LINES: usize = 25;
/// Time zone of clients that set none.
const ZONE: &str = "Etc/GMT-5";
/// SQL that creates the schema of each database.
pub(crate) const SCHEMA: &str = "
CREATE TABLE lines (mark text COLLATE \"C\", n int);
CREATE INDEX ON lines (mark);
CREATE SEQUENCE ids;
CREATE FUNCTION hidden_set(name text, value text) RETURNS void LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config(name, value, false); END $$;
CREATE FUNCTION hidden_table(name text, mark text) RETURNS void LANGUAGE plpgsql AS
  $$ BEGIN EXECUTE format('CREATE TEMP TABLE %I AS SELECT %L::text AS mark', name, mark); END $$;
CREATE EXTENSION dblink;
CREATE FUNCTION hidden_link(name text, target text) RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN RETURN dblink_connect(name, target); END $$;
CREATE FUNCTION hidden_lock(k int) RETURNS void LANGUAGE plpgsql AS
  $$ BEGIN PERFORM pg_advisory_lock(9, k); END $$;
";
/// Roles for `SET ROLE`, in all databases.
pub(crate) const ROLES: &str = "CREATE ROLE guest_0; CREATE ROLE guest_1";

/// Reason why a client stopped.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It saw foreign data, or did not see its own.
    Wrong(String),
    /// Its connection is lost, which is allowed for this client.
    Lost(String),
}

pub(crate) type Outcome<T = ()> = Result<T, Trouble>;

/// Identity of a client, and allowed faults.
#[derive(Clone, Debug)]
pub(crate) struct Character {
    pub(crate) tenant: usize,
    pub(crate) number: usize,
    pub(crate) address: PgAddress,
    pub(crate) database: String,
    /// True if connections may be lost because of faults.
    pub(crate) faults: bool,
}

/// Client that does random actions and knows the expected results.
pub(crate) trait Plays: Send {
    /// Returns a client that is not logged in. Its actions are determined by the seed.
    fn new(character: Character, seed: u64) -> Self;
    /// Returns the number of steps.
    fn steps(&self) -> u64;
    /// Returns its last actions.
    fn log(&self) -> String;
    /// Disallows faults from now on, and logs in again.
    fn calm(&mut self);
    /// Disconnects without a message.
    fn hang_up(&mut self);
    /// Occupies a server connection, and checks it for state of other clients.
    fn occupy(&mut self) -> Outcome;
    /// Does one action, and logs in first if necessary.
    fn step(&mut self) -> Outcome;
}

/// Random number generator, determined by its seed (Marsaglia's xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // Any state but zero; similar seeds must not produce similar sequences.
        let mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Random(mixed | 1)
    }

    /// Returns the generator of one client.
    pub(crate) fn of(character: &Character, seed: u64) -> Random {
        let who = u64::try_from(character.tenant * 1000 + character.number).unwrap();
        Random::new(seed.wrapping_mul(1_000_003).wrapping_add(who))
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        let at = self.below(u64::try_from(all.len()).unwrap());
        all[usize::try_from(at).unwrap()]
    }

    /// Returns one of these elements, with the given weights.
    pub(crate) fn weighted<T: Copy>(&mut self, all: &[(u64, T)]) -> T {
        let total = all.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        for (weight, one) in all {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *one,
            }
        }
        unreachable!("it is below the sum of them");
    }
}

/// Expected transactional session state. A rollback restores the state before the transaction.
#[derive(Clone, Debug, Default)]
struct Session {
    settings: BTreeMap<&'static str, String>,
    /// Temporary tables, with their content.
    tables: BTreeMap<String, String>,
    role: Option<&'static str>,
    channels: BTreeSet<String>,
    lines: u64,
}

/// Expected session state that is not transactional.
#[derive(Clone, Debug, Default)]
struct Beyond {
    /// SQL prepared statements, with their results.
    prepared: BTreeMap<String, String>,
    /// Protocol prepared statements.
    statements: BTreeMap<String, String>,
    /// Cursors WITH HOLD, with the number of remaining rows.
    cursors: BTreeMap<String, u64>,
    locks: BTreeSet<u64>,
    /// Named connections of dblink.
    links: BTreeSet<String>,
    /// True if dblink's unnamed connection is open.
    has_unnamed_link: bool,
    /// Last value that it took from a sequence.
    taken: Option<String>,
    /// Random numbers that its seed produces, the next one last.
    seeded: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Open,
    Failed,
}

/// Client.
#[derive(Debug)]
pub(crate) struct Actor {
    character: Character,
    random: Random,
    /// Number of logins.
    generation: u64,
    client: Option<PgClient>,
    session: Session,
    /// Session state when its transaction began.
    before: Session,
    beyond: Beyond,
    state: State,
    defaults: BTreeMap<&'static str, String>,
    /// Number of names that were never used before.
    names: u64,
    /// Last number in each sender's notifications, for each channel.
    last_heard: BTreeMap<(String, String), u64>,
    /// Number of notifications that it has sent.
    sent_notifications: u64,
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
            before: Session::default(),
            beyond: Beyond::default(),
            state: State::Idle,
            defaults: BTreeMap::new(),
            names: 0,
            last_heard: BTreeMap::new(),
            sent_notifications: 0,
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
        self.transaction()?;
        self.check_session()
    }

    fn step(&mut self) -> Outcome {
        self.steps += 1;
        if self.client.is_none() {
            return self.login();
        }
        let step = self.random.weighted(STEPS);
        let outcome = if self.state == State::Failed { self.in_failed() } else { step(self) };
        if let Err(Trouble::Lost(why)) = &outcome {
            self.note(&format!("lost: {why}"));
            self.client = None;
        }
        outcome
    }
}

impl Actor {
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

    fn login(&mut self) -> Outcome {
        self.generation += 1;
        (self.session, self.before, self.beyond) = Default::default();
        (self.state, self.names) = (State::Idle, 0);
        let mark = self.mark();
        let memory = self.random.pick(&[
            "",
            "-c work_mem=5MB",
            "-c work_mem=6MB -c cove.a=from\\ start",
            "-c work_mem=7MB -c search_path=public,\\ \"cove\\ start\"",
            "-c work_mem=8MB -c timezone=Etc/GMT-9",
        ]);
        self.note(&format!("login with {memory:?}"));
        let parameters = [
            ("user", USER),
            ("database", &self.character.database),
            ("application_name", &mark),
            ("options", memory),
            // It takes precedence over the one in `options`.
            ("timezone", ZONE),
        ];
        match PgClient::login(&self.character.address, &parameters, PASSWORD) {
            Ok(client) => {
                client.patience(PATIENCE);
                self.client = Some(client);
            }
            Err(failure) => return Err(self.broken(failure)),
        }
        self.defaults = BTreeMap::from([
            ("application_name", mark),
            ("work_mem", memory.get(12..15).unwrap_or("4MB").to_owned()),
            ("cove.a", if memory.contains("from") { "from start" } else { "" }.to_owned()),
            ("cove.b", String::new()),
            ("timezone", ZONE.to_owned()),
            (
                "search_path",
                if memory.contains("path") {
                    "public, \"cove start\""
                } else {
                    "\"$user\", public"
                }
                .to_owned(),
            ),
        ]);
        self.session.settings = self.defaults.clone();
        self.check_session()
    }

    /// Classifies a failure. The last messages of a connection contain the reason for its end.
    fn broken(&self, failure: PgFailure) -> Trouble {
        let text = failure.to_string();
        if failure.is_timeout() {
            return Trouble::Wrong(format!("no answer: {text}"));
        }
        let last = match &failure {
            PgFailure::Server(error) => Some(error.clone()),
            PgFailure::Io(_) => None,
            PgFailure::Broken(answer, _) => {
                let mut newest_first = answer.messages.iter().rev();
                newest_first
                    .find(|message| [b'E', b'N'].contains(&message.tag))
                    .map(|it| it.error())
            }
        };
        let is_end =
            |code: &str| code.starts_with("57P") || code.starts_with("08") || code == "53300";
        // A connection may end without an error, after any message.
        let is_fatal = |error: &PgError| error.fields.get(&'S').is_some_and(|it| it == "FATAL");
        match last {
            Some(error) if is_fatal(&error) && !is_end(error.code()) => {
                Trouble::Wrong(format!("the connection was lost: {text}"))
            }
            _ if self.character.faults => Trouble::Lost(text),
            _ => Trouble::Wrong(format!("the connection was lost: {text}")),
        }
    }

    /// Sends a batch and returns the response, after checking everything that was received.
    fn ask(&mut self, what: &str, batch: &PgBatch) -> Outcome<PgAnswer> {
        self.note(what);
        let client = self.client.as_mut().unwrap();
        let answer = client.ask(batch);
        self.seen(answer)
    }

    fn seen(&mut self, answer: Result<PgAnswer, PgFailure>) -> Outcome<PgAnswer> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                if let PgFailure::Broken(answer, _) = &failure {
                    self.own(answer)?;
                }
                return Err(self.broken(failure));
            }
        };
        self.own(&answer)?;
        if let Some(error) = answer.error() {
            let lost = error.code().starts_with("57P") || error.code().starts_with("08");
            if lost && self.character.faults {
                return Err(Trouble::Lost(error.to_string()));
            }
        }
        Ok(answer)
    }

    /// Searches all received data for marks of other clients.
    fn own(&mut self, answer: &PgAnswer) -> Outcome {
        let mark = self.mark();
        for message in &answer.messages {
            self.without_strangers(&client_texts(message.tag, &message.body), &mark)?;
        }
        let client = self.client.as_mut().unwrap();
        let changes = std::mem::take(&mut client.parameter_changes);
        let notifications = std::mem::take(&mut client.notifications);
        for (_, value) in changes {
            self.without_strangers(&value, &mark)?;
        }
        let tenant = format!("[t{}c", self.character.tenant);
        for one in notifications {
            // Format: `channel mark number`.
            let parts: Vec<&str> = one.payload.splitn(3, ' ').collect();
            let number = parts.get(2).and_then(|number| number.parse::<u64>().ok());
            let Some(number) = number.filter(|_| parts[0] == one.channel) else {
                return Err(Trouble::Wrong(format!("a notification of nobody: {one:?}")));
            };
            let is_mine = parts[1].starts_with(&tenant);
            let channels = [&self.session.channels, &self.before.channels];
            if !is_mine || !channels.iter().any(|all| all.contains(&one.channel)) {
                return Err(Trouble::Wrong(format!("a notification for somebody else: {one:?}")));
            }
            let last =
                self.last_heard.entry((one.channel.clone(), parts[1].to_owned())).or_default();
            if number <= *last {
                return Err(Trouble::Wrong(format!("a notification again, after {last}: {one:?}")));
            }
            *last = number;
        }
        Ok(())
    }

    fn without_strangers(&self, text: &str, mark: &str) -> Outcome {
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

    /// Runs SQL that must not fail.
    fn run(&mut self, sql: &str) -> Outcome<Vec<Vec<Option<String>>>> {
        let answer = self.ask(sql, &PgBatch::new().query(sql))?;
        match answer.error() {
            None => Ok(answer.rows()),
            Some(error) => Err(Trouble::Wrong(format!("{sql:.200}: {error}"))),
        }
    }

    /// Runs SQL that must return one row with these values.
    fn expect(&mut self, sql: &str, values: &[&str]) -> Outcome {
        let rows = self.run(sql)?;
        let seen: Vec<Vec<&str>> = rows
            .iter()
            .map(|row| row.iter().map(|it| it.as_deref().unwrap_or("")).collect())
            .collect();
        if seen == [values] { Ok(()) } else { Err(differs(sql, &seen, &[values])) }
    }

    /// Runs SQL that must fail.
    fn refuse(&mut self, sql: &str, code: &str) -> Outcome {
        let answer = self.ask(sql, &PgBatch::new().query(sql))?;
        self.failed(sql, &answer, code)
    }

    /// Records an expected error.
    fn failed(&mut self, what: &str, answer: &PgAnswer, code: &str) -> Outcome {
        let seen = answer.error().map(|error| error.to_string()).unwrap_or_default();
        if !seen.starts_with(code) {
            return Err(differs(what, &seen, &code));
        }
        if self.state == State::Open {
            self.state = State::Failed;
        }
        Ok(())
    }

    fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        // Few names, so that clients use the same ones.
        format!("{kind}_{}", self.random.below(6))
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, seen: &T, expected: &T) -> Outcome {
    if seen == expected { Ok(()) } else { Err(differs(what, seen, expected)) }
}

fn differs(what: &str, seen: &impl std::fmt::Debug, expected: &impl std::fmt::Debug) -> Trouble {
    Trouble::Wrong(format!("{what:.300}\n  is {seen:.1200?}\n  not {expected:.1200?}"))
}

/// Returns the parts of a message that may repeat a client's text. Descriptions of rows and
/// parameters also have object ids of tables and types, whose bytes may look like a mark.
fn client_texts(tag: u8, body: &[u8]) -> String {
    const NUMBERS_OF_COLUMN: usize = 18;
    if tag == b't' {
        return String::new();
    }
    if tag != b'T' {
        return String::from_utf8_lossy(body).into_owned();
    }
    let (mut names, mut rest) = (String::new(), body.get(2..).unwrap_or_default());
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        names.push_str(&String::from_utf8_lossy(&rest[..end]));
        names.push(' ');
        rest = rest.get(end + 1 + NUMBERS_OF_COLUMN..).unwrap_or_default();
    }
    names
}

#[test]
fn a_number_of_a_table_is_no_mark() {
    // 23412 is `[t` in bytes.
    let table = [0, 0, 0x5b, 0x74, 0, 1, 0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];
    let mut body = vec![0, 2];
    for name in ["[t1c2]", "n"] {
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        body.extend_from_slice(&table);
    }
    assert_eq!(client_texts(b'T', &body), "[t1c2] n ");
    assert_eq!(client_texts(b't', &[0, 1, 0, 0, 0x5b, 0x74]), "");
    assert_eq!(client_texts(b'D', b"[t1c2]"), "[t1c2]");
}
