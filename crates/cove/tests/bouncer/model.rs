//! A client that does at random what clients do, and knows what it must see.
//!
//! Everything that it writes anywhere carries its mark: tenant, client, and how often it has logged
//! in. So a row, a setting, a statement, a table or a notification of somebody else is noticed
//! wherever it comes, and so is one of its own that should not be there any more.

mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use testkit::{PgAddress, PgAnswer, PgBatch, PgClient, PgError, PgFailure};

use self::steps::STEPS;
use crate::support::{PASSWORD, USER};

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(45);
/// What it did last, for whoever reads of a failure.
const LOG_LINES: usize = 25;
/// Time zone of clients that choose none.
const ZONE: &str = "Etc/GMT-5";
/// What SQL creates in each database before clients come.
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
/// Roles that clients may become, in all databases.
pub(crate) const ROLES: &str = "CREATE ROLE guest_0; CREATE ROLE guest_1";

/// Why a client could not go on.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It saw what it must not see, or did not see what it must.
    Wrong(String),
    /// Its connection is gone, which it was told may happen.
    Lost(String),
}

pub(crate) type Outcome<T = ()> = Result<T, Trouble>;

/// Who a client is and what may happen to it.
#[derive(Clone, Debug)]
pub(crate) struct Character {
    pub(crate) tenant: usize,
    pub(crate) number: usize,
    pub(crate) address: PgAddress,
    pub(crate) database: String,
    /// Whether connections may be lost without its doing.
    pub(crate) faults: bool,
}

/// Who does at random what clients do, and knows what it must see.
pub(crate) trait Plays: Send {
    /// One that has not logged in, and does the same for the same seed.
    fn new(character: Character, seed: u64) -> Self;
    /// Steps that were done.
    fn steps(&self) -> u64;
    /// What it did last.
    fn log(&self) -> String;
    /// From now on nothing may go wrong. It logs in again.
    fn calm(&mut self);
    /// Leaves without a word.
    fn hang_up(&mut self);
    /// Takes a connection to the server for itself, and looks whether anybody left something there.
    fn occupy(&mut self) -> Outcome;
    /// Does one thing, logging in before when it is not.
    fn step(&mut self) -> Outcome;
}

/// A generator of numbers that are the same for the same seed (Marsaglia's xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // Any state but zero; near seeds must not begin alike.
        let mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Random(mixed | 1)
    }

    /// One that is a client's own.
    pub(crate) fn of(character: &Character, seed: u64) -> Random {
        let who = u64::try_from(character.tenant * 1000 + character.number).unwrap();
        Random::new(seed.wrapping_mul(1_000_003).wrapping_add(who))
    }

    /// A number below `end`.
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

    /// One of these, each as often as its number says.
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

/// What a session has. A transaction that is rolled back puts back what it had before.
#[derive(Clone, Debug, Default)]
struct Session {
    settings: BTreeMap<&'static str, String>,
    /// Temporary tables, with what is in each.
    tables: BTreeMap<String, String>,
    role: Option<&'static str>,
    channels: BTreeSet<String>,
    lines: u64,
}

/// The same for what does not care about transactions.
#[derive(Clone, Debug, Default)]
struct Beyond {
    /// Statements of SQL, with what each answers.
    prepared: BTreeMap<String, String>,
    /// Statements of the protocol.
    statements: BTreeMap<String, String>,
    /// Cursors WITH HOLD, with how many rows are left in each.
    cursors: BTreeMap<String, u64>,
    locks: BTreeSet<u64>,
    /// Named connections of dblink.
    links: BTreeSet<String>,
    /// Whether there is a connection of dblink without a name.
    has_unnamed_link: bool,
    /// What it last took of a sequence.
    taken: Option<String>,
    /// Random numbers that its seed gives, the next one last.
    seeded: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Open,
    Failed,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Actor {
    character: Character,
    random: Random,
    /// How often it has logged in.
    generation: u64,
    client: Option<PgClient>,
    session: Session,
    /// What the session was when its transaction began.
    before: Session,
    beyond: Beyond,
    state: State,
    defaults: BTreeMap<&'static str, String>,
    /// Names that were never used before.
    names: u64,
    /// The last number that each sender's notifications had, on each channel.
    last_heard: BTreeMap<(String, String), u64>,
    /// Number of notifications it has sent.
    sent_notifications: u64,
    log: VecDeque<String>,
    /// Steps that were done, each of which looked at what came.
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
    /// Its mark.
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
            // It has precedence over the one in the options.
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

    /// What a failure means. The last words of a connection tell why it ended.
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
        // An end without a word may come after whatever was said before.
        let is_fatal = |error: &PgError| error.fields.get(&'S').is_some_and(|it| it == "FATAL");
        match last {
            Some(error) if is_fatal(&error) && !is_end(error.code()) => {
                Trouble::Wrong(format!("the connection was lost: {text}"))
            }
            _ if self.character.faults => Trouble::Lost(text),
            _ => Trouble::Wrong(format!("the connection was lost: {text}")),
        }
    }

    /// Sends a batch and gives the answer, of which everything that came was looked at.
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

    /// Looks for marks of others in everything that came.
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
            // `channel mark number`.
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
        // Whatever repeats a mark repeats one.
        for at in text.match_indices("[t").map(|(at, _)| at).take(3) {
            let found = text[at..].split_inclusive(']').next().unwrap_or_default();
            // A text may have been cut.
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

    /// Runs SQL that must answer one row of these values.
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

    /// Takes note of an error that must have come.
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

/// The part of a message that may repeat what a client has said. Descriptions of rows and of
/// parameters have numbers of tables and types beside, whose bytes may look like a mark.
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
