//! Steps of a random PostgreSQL client.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use testkit::{PgAnswer, PgBatch, PgClient, PgFailure, pg};

use super::{Actor, Beyond, Character, Outcome, Session, State, Trouble, differs, equal};
use crate::support::{PASSWORD, USER};

pub(super) type Step = fn(&mut Actor) -> Outcome;

/// Steps with their weights.
pub(super) const STEPS: &[(u64, Step)] = &[
    (10, Actor::check_session),
    (8, Actor::set),
    (3, Actor::set_unseen),
    (4, Actor::table),
    (3, Actor::prepare),
    (8, Actor::statement),
    (5, Actor::unnamed),
    (5, Actor::insert),
    (3, Actor::listen),
    (4, Actor::notify),
    (2, Actor::lock),
    (2, Actor::cursor),
    (6, Actor::pipeline),
    (2, Actor::copy),
    (3, Actor::much),
    (3, Actor::mistake),
    (8, Actor::transaction),
    (1, Actor::role),
    (1, Actor::discard),
    (1, Actor::cancel),
    (2, Actor::sequence),
    (1, Actor::seed),
    (2, Actor::link),
    (3, Actor::leave),
    (1, Actor::leave_copying),
];
impl Actor {
    /// Compares the state of the session on the server with what is expected.
    pub(super) fn check_session(&mut self) -> Outcome {
        let names: Vec<&'static str> = self.session.settings.keys().copied().collect();
        let expressions = names.iter().map(|name| format!("current_setting('{name}', true)"));
        let sql = format!(
            "SELECT {}, current_user, \
             (SELECT count(*) FROM pg_class \
              WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r'), \
             (SELECT count(*) FROM pg_locks \
              WHERE locktype = 'advisory' AND pid = pg_backend_pid()), \
             (SELECT count(*) FROM pg_prepared_statements WHERE from_sql), \
             (SELECT count(*) FROM pg_cursors WHERE is_holdable), \
             current_setting('cove.stray', true)",
            expressions.collect::<Vec<_>>().join(", ")
        );
        let mut values: Vec<String> = self.session.settings.values().cloned().collect();
        values.push(self.session.role.unwrap_or(USER).to_owned());
        let Beyond { prepared, cursors, locks, .. } = &self.beyond;
        let counts = [self.session.tables.len(), locks.len(), prepared.len(), cursors.len()];
        values.extend(counts.map(|count| count.to_string()));
        let mut row = self.run(&sql)?.pop().unwrap_or_default();
        // Its own value, or none; another client's was detected already.
        row.pop();
        let seen: Vec<String> = row.into_iter().map(Option::unwrap_or_default).collect();
        equal(&sql, &seen, &values)
    }

    /// Changes a setting, by one of several statements.
    fn set(&mut self) -> Outcome {
        let (name, value, spelt) = self.setting();
        let local = self.state == State::Open && self.random.one_in(4);
        let sql = match self.random.below(5) {
            0 if !local => {
                let default = self.defaults[name].clone();
                self.session.settings.insert(name, default);
                return self.reset(name);
            }
            0 => {
                // Until the end of the transaction, regardless of its previous value.
                let default = self.defaults[name].clone();
                self.run(&format!("SET LOCAL {name} TO DEFAULT"))?;
                self.expect(
                    &format!("SELECT coalesce(current_setting('{name}', true), '')"),
                    &[&default],
                )?;
                return self.end();
            }
            1 if name != "search_path" => format!("SET {name} TO {spelt}"),
            2 => format!("SELECT set_config('{name}', {}, {local})", quoted(&value)),
            _ if local => format!("SET LOCAL {name} = {spelt}"),
            _ => format!("SET SESSION {name} = {spelt}"),
        };
        let is_local = local && !sql.contains("SESSION") && !sql.contains(" TO ");
        if is_local {
            // It ends with the transaction, whether committed or not, which therefore ends here.
            self.run(&sql)?;
            self.expect(&format!("SELECT current_setting('{name}')"), &[&value])?;
            return self.end();
        }
        self.session.settings.insert(name, value);
        self.run(&sql).map(drop)
    }

    /// Resets a setting to its initial value, by one of several statements.
    fn reset(&mut self, name: &str) -> Outcome {
        let sql = match self.random.below(6) {
            0 if name == "timezone" => {
                self.random.pick(&["SET TIME ZONE LOCAL", "SET TIME ZONE DEFAULT"]).to_owned()
            }
            0 => format!("RESET {name}"),
            1 => format!("SET {name} TO DEFAULT"),
            2 => format!("SELECT set_config('{name}', NULL, false)"),
            3 => format!("SELECT 1; RESET {name}; SELECT 2"),
            4 => {
                let batch = PgBatch::new().parse("", &format!("RESET {name}")).bind("", "", &[]);
                let answer = self.ask("RESET in a batch", &batch.execute("", 0).sync())?;
                return equal("RESET in a batch", &answer.tags(), &vec!["RESET".to_owned()]);
            }
            _ if self.state == State::Idle => format!("SET SESSION {name} TO DEFAULT"),
            _ => {
                // Within a transaction all settings are reset, so that the end is tested as well.
                self.session.settings = self.defaults.clone();
                return self.run("RESET ALL").map(drop);
            }
        };
        self.run(&sql).map(drop)
    }

    /// Returns a setting's name, a value, and its spelling in SET.
    fn setting(&mut self) -> (&'static str, String, String) {
        let name = self.random.pick(&[
            "application_name",
            "work_mem",
            "cove.a",
            "cove.b",
            "search_path",
            "timezone",
        ]);
        let mark = self.mark();
        let value = match name {
            "work_mem" => format!("{}MB", 1 + self.random.below(9)),
            "timezone" => format!("Etc/GMT+{}", 1 + self.random.below(9)),
            "application_name" => format!("{mark} {}", self.random.below(100)),
            "search_path" => format!("\"{mark}\", public"),
            _ => format!("{mark} it's \\ \"é\" {}", self.random.below(100)),
        };
        let spelt = if name == "search_path" { value.clone() } else { quoted(&value) };
        (name, value, spelt)
    }

    /// Changes a setting in a way that the pooler cannot parse.
    fn set_unseen(&mut self) -> Outcome {
        let mut setting = self.setting();
        // The server does not list settings that it does not define. Other clients must not see a
        // function's change of such a setting, but the pooler may lose it.
        if setting.0.starts_with("cove.") {
            setting.0 = "cove.stray";
        }
        let (name, value, _) = setting;
        let call = format!("hidden_set('{name}', {})", quoted(&value));
        if name != "cove.stray" {
            self.session.settings.insert(name, value.clone());
        }
        match self.random.below(3) {
            0 => self.run(&format!("DO $x$ BEGIN PERFORM public.{call}; END $x$"))?,
            1 => self.run(&format!("SELECT public.{call}"))?,
            _ => {
                let batch = PgBatch::new()
                    .parse("", "SELECT public.hidden_set($1, $2)")
                    .bind("", "", &[Some(name), Some(&value)])
                    .execute("", 0)
                    .sync();
                let answer = self.ask("hidden_set by parameters", &batch)?;
                match answer.error() {
                    None => answer.rows(),
                    Some(error) => return Err(Trouble::Wrong(format!("hidden_set: {error}"))),
                }
            }
        };
        self.check_session()
    }

    /// Creates a temporary table, reads or drops it.
    fn table(&mut self) -> Outcome {
        let name = self.name("temp");
        let mark = format!("{} {}", self.mark(), self.names);
        let known = self.session.tables.get(&name).cloned();
        let select = format!("SELECT mark FROM pg_temp.{name}");
        match known {
            None if self.random.one_in(4) => self.refuse(&select, "42P01"),
            None => {
                match self.random.below(3) {
                    0 => self.run(&format!("SELECT public.hidden_table('{name}', '{mark}')"))?,
                    1 => self.run(&format!("SELECT '{mark}'::text AS mark INTO TEMP {name}"))?,
                    _ => self.run(&format!(
                        "CREATE TEMP TABLE {name} AS SELECT '{mark}'::text AS mark"
                    ))?,
                };
                self.session.tables.insert(name, mark.clone());
                self.expect(&select, &[&mark])
            }
            Some(known) => {
                self.expect(&select, &[&known])?;
                if self.random.one_in(2) {
                    return Ok(());
                }
                self.session.tables.remove(&name);
                self.run(&format!("DROP TABLE pg_temp.{name}")).map(drop)
            }
        }
    }

    /// Uses SQL prepared statements.
    fn prepare(&mut self) -> Outcome {
        let name = self.name("sql");
        let mark = format!("{} {}", self.mark(), self.names);
        match self.beyond.prepared.get(&name).cloned() {
            None if self.random.one_in(4) => self.refuse(&format!("EXECUTE {name}"), "26000"),
            None => {
                self.run(&format!("PREPARE {name} AS SELECT '{mark}'::text"))?;
                self.beyond.prepared.insert(name.clone(), mark.clone());
                self.expect(&format!("EXECUTE {name}"), &[&mark])
            }
            Some(known) if self.random.one_in(2) => {
                self.expect(&format!("EXECUTE {name}"), &[&known])
            }
            Some(_) => {
                self.beyond.prepared.remove(&name);
                self.run(&format!("DEALLOCATE {name}")).map(drop)
            }
        }
    }

    /// Uses protocol prepared statements, whose names all clients share, and some their texts.
    fn statement(&mut self) -> Outcome {
        let name = self.name("statement");
        let known = self.beyond.statements.get(&name).cloned();
        let text = match self.random.below(2) {
            0 => format!("SELECT '{}'::text || $1", self.mark()),
            _ => format!("SELECT 'common {}'::text || $1", self.random.below(30)),
        };
        let value = self.mark();
        let run = |batch: PgBatch| batch.bind("", &name, &[Some(&value)]).execute("", 0).sync();
        match known {
            None if self.random.one_in(6) => {
                let answer = self.ask(&format!("bind unknown {name}"), &run(PgBatch::new()))?;
                self.failed("a statement that is not there", &answer, "26000")
            }
            None => {
                let batch = PgBatch::new().parse(&name, &text).describe(b'S', &name);
                let answer = self.ask(&format!("parse {name}: {text}"), &run(batch))?;
                self.beyond.statements.insert(name.clone(), text.clone());
                self.answered(&text, &value, &answer, "1tT2DCZ")
            }
            Some(_) if self.random.one_in(8) => {
                let batch = PgBatch::new().parse(&name, &text).sync();
                let answer = self.ask(&format!("parse {name} again"), &batch)?;
                self.failed("a name twice", &answer, "42P05")
            }
            Some(known) if self.random.one_in(6) => {
                let batch = PgBatch::new().close(b'S', &name).parse(&name, &text);
                let answer =
                    self.ask(&format!("close {name}, was {known}: {text}"), &run(batch))?;
                self.beyond.statements.insert(name.clone(), text.clone());
                self.answered(&text, &value, &answer, "312DCZ")
            }
            Some(known) if self.random.one_in(6) => {
                self.beyond.statements.remove(&name);
                let batch = PgBatch::new().close(b'S', &name).sync();
                let answer = self.ask(&format!("close {name}, was {known}"), &batch)?;
                equal("close", &answer.letters(), &"3Z".to_owned())
            }
            Some(known) => {
                let answer = self.ask(&format!("bind {name}: {known}"), &run(PgBatch::new()))?;
                self.answered(&known, &value, &answer, "2DCZ")
            }
        }
    }

    /// Checks the response to such a statement.
    fn answered(&self, text: &str, value: &str, answer: &PgAnswer, letters: &str) -> Outcome {
        let constant = text.split('\'').nth(1).unwrap();
        equal(text, &answer.rows(), &vec![vec![Some(format!("{constant}{value}"))]])?;
        equal(text, &answer.letters(), &letters.to_owned())
    }

    /// Uses the unnamed statement, and again after other clients may have used it.
    fn unnamed(&mut self) -> Outcome {
        let text = format!("SELECT '{}'::text || $1", self.random.pick(&["one", "two", "three"]));
        let mark = self.mark();
        let (first, again) = (format!("{mark}first"), format!("{mark}again"));
        let batch = PgBatch::new().parse("", &text).describe(b'S', "").sync();
        let answer = self.ask(&format!("parse unnamed: {text}"), &batch)?;
        equal(&text, &answer.letters(), &"1tTZ".to_owned())?;
        for value in [first, again] {
            let batch = PgBatch::new().bind("", "", &[Some(&value)]).execute("", 0).sync();
            let answer = self.ask("bind unnamed", &batch)?;
            self.answered(&text, &value, &answer, "2DCZ")?;
        }
        Ok(())
    }

    /// Inserts rows that other clients must not see before the commit, and other tenants never.
    fn insert(&mut self) -> Outcome {
        let mark = self.mark();
        self.session.lines += 1;
        let lines = self.session.lines;
        self.run(&format!("INSERT INTO public.lines VALUES ('{mark}', {lines})"))?;
        let tenant = self.character.tenant;
        self.expect(
            &format!(
                "SELECT count(*), (SELECT count(*) FROM public.lines \
                 WHERE mark < '[t{tenant}c' OR mark >= '[t{tenant}d') \
                 FROM public.lines WHERE mark = '{mark}'"
            ),
            &[&lines.to_string(), "0"],
        )
    }

    fn listen(&mut self) -> Outcome {
        let channel = self.name("channel");
        if self.session.channels.contains(&channel) && self.random.one_in(2) {
            self.run(&format!("UNLISTEN {channel}"))?;
            self.session.channels.remove(&channel);
        } else {
            // Before the request, because notifications may arrive before the response.
            self.session.channels.insert(channel.clone());
            self.run(&format!("LISTEN {channel}"))?;
        }
        Ok(())
    }

    fn notify(&mut self) -> Outcome {
        let channel = self.name("channel");
        self.sent_notifications += 1;
        let (mark, number) = (self.mark(), self.sent_notifications);
        let payload = format!("{channel} {mark} {number}");
        match self.random.below(2) {
            0 => self.run(&format!("NOTIFY {channel}, '{payload}'"))?,
            _ => self.run(&format!("SELECT pg_notify('{channel}', '{payload}')"))?,
        };
        if self.state != State::Idle || !self.session.channels.contains(&channel) {
            return Ok(());
        }
        // It listens on the channel itself, so the notification must arrive, unless a connection is
        // lost.
        let key = (channel, mark);
        for _ in 0..2000 {
            if self.last_heard.get(&key).is_some_and(|last| *last >= number)
                || self.character.faults
            {
                return Ok(());
            }
            self.run("SELECT pg_sleep(0.005)")?;
        }
        Err(Trouble::Wrong(format!("notification {number} of {key:?} never came")))
    }

    /// Returns the number of an advisory lock that no other client uses, nor this one after its
    /// next login.
    fn key(&self, which: u64) -> u64 {
        let Character { tenant, number, .. } = self.character;
        let who = u64::try_from(tenant * 8 + number % 8).unwrap();
        // A number of 31 bits.
        ((who << 23) + self.generation % (1 << 23)) * 8 + which
    }

    fn lock(&mut self) -> Outcome {
        let which = self.random.below(4);
        let key = self.key(which);
        if self.beyond.locks.contains(&key) {
            self.beyond.locks.remove(&key);
            return self.expect(&format!("SELECT pg_advisory_unlock(9, {key})"), &["t"]);
        }
        self.beyond.locks.insert(key);
        match self.random.below(3) {
            0 => self.run(&format!("SELECT public.hidden_lock({key})")).map(drop),
            1 => self.run(&format!("SELECT pg_advisory_lock(9, {key})")).map(drop),
            _ => self.expect(&format!("SELECT pg_try_advisory_lock(9, {key})"), &["t"]),
        }
    }

    /// Uses cursors that outlive their transaction.
    fn cursor(&mut self) -> Outcome {
        if self.state != State::Idle {
            return Ok(());
        }
        let name = self.name("cursor");
        let mark = self.mark();
        match self.beyond.cursors.get(&name).copied() {
            None if self.random.one_in(4) => self.refuse(&format!("FETCH {name}"), "34000"),
            None => {
                let rows = format!("SELECT '{mark}' FROM generate_series(1, 5)");
                self.beyond.cursors.insert(name.clone(), 5);
                self.run(&format!("DECLARE {name} CURSOR WITH HOLD FOR {rows}")).map(drop)
            }
            Some(0) => {
                self.beyond.cursors.remove(&name);
                self.run(&format!("CLOSE {name}")).map(drop)
            }
            Some(left) => {
                self.beyond.cursors.insert(name.clone(), left - 1);
                self.expect(&format!("FETCH {name}"), &[&mark])
            }
        }
    }

    /// Sends several batches at once, one of which may fail.
    fn pipeline(&mut self) -> Outcome {
        if self.state != State::Idle {
            return Ok(());
        }
        let mark = self.mark();
        let count = 1 + self.random.below(6);
        let broken = self.random.below(count * 3);
        let (mut batch, mut expected) = (PgBatch::new(), String::new());
        for at in 0..count {
            let value = format!("{mark}{at}");
            let text = if at == broken { "SELECT 1/0, $1::text" } else { "SELECT $1::text" };
            batch = batch.parse("", text).bind("", "", &[Some(&value)]).execute("", 0);
            batch = batch.execute("", 0).sync();
            // The second time there is no row left.
            expected.push_str(if at == broken { "12EZ" } else { "12DCCZ" });
        }
        self.note(&format!("{count} batches, the {broken}th fails"));
        let client = self.client.as_mut().unwrap();
        if let Err(error) = client.send(&batch.0) {
            return Err(self.broken(error.into()));
        }
        let (mut letters, mut rows) = (String::new(), Vec::new());
        for _ in 0..count {
            let answer = self.client.as_mut().unwrap().answer();
            let answer = self.seen(answer)?;
            letters.push_str(&answer.letters());
            rows.extend(answer.rows().into_iter().flatten().flatten());
        }
        let values = (0..count).filter(|at| *at != broken).map(|at| format!("{mark}{at}"));
        equal("rows of a pipeline", &rows, &values.collect())?;
        // Whether the division fails during planning or execution is irrelevant here.
        equal("a pipeline", &letters.replace("1EZ", "12EZ"), &expected)
    }

    fn copy(&mut self) -> Outcome {
        let mark = self.mark();
        let sql = "COPY public.lines FROM STDIN";
        let fails = self.random.one_in(3);
        let base = self.session.lines;
        self.note(&format!("{sql}, which {}", if fails { "fails" } else { "works" }));
        let mut batch = PgBatch::new().query(sql);
        for at in 1..=3 {
            batch = batch.copy_data(format!("{mark}\t{}\n", base + at).as_bytes());
        }
        batch = match (fails, self.random.one_in(2)) {
            (false, _) => batch.copy_done(),
            (true, true) => batch.copy_fail("no more"),
            // The server discards data after the error.
            (true, false) => batch.copy_data(b"nonsense\n").copy_data(b"late\n").copy_done(),
        };
        let answer = self.ask(sql, &batch)?;
        if fails {
            let code = answer.error().map(|error| error.code().to_owned()).unwrap_or_default();
            let expected = if code == "57014" { "57014" } else { "22P04" };
            return self.failed(sql, &answer, expected);
        }
        equal(sql, &answer.tags(), &vec!["COPY 3".to_owned()])?;
        self.session.lines += 3;
        let sql = format!("COPY (SELECT mark FROM public.lines WHERE mark = '{mark}') TO STDOUT");
        let answer = self.ask(&sql, &PgBatch::new().query(&sql))?;
        let count = answer.letters().matches('d').count();
        equal(&sql, &u64::try_from(count).unwrap(), &self.session.lines)
    }

    /// Reads a response that is longer than any buffer.
    fn much(&mut self) -> Outcome {
        let mark = self.mark();
        let (wide, rows) = (1 + self.random.below(4000), 1 + self.random.below(30));
        let sql = format!("SELECT repeat('{mark}', {wide}) FROM generate_series(1, {rows})");
        let seen = self.run(&sql)?;
        let length = mark.len() * usize::try_from(wide).unwrap();
        let is_right =
            |row: &Vec<Option<String>>| row[0].as_ref().is_some_and(|it| it.len() == length);
        equal(
            &sql,
            &(seen.len(), seen.iter().all(is_right)),
            &(usize::try_from(rows).unwrap(), true),
        )
    }

    fn mistake(&mut self) -> Outcome {
        match self.random.below(4) {
            0 => self.refuse("SELECT 1/0", "22012"),
            1 => self.refuse("SELEC 1", "42601"),
            2 => self.refuse("SET work_mem = 'nonsense'", "22023"),
            _ => {
                let batch = PgBatch::new().parse("", "SELECT nothing").bind("", "", &[]).sync();
                let answer = self.ask("parse nonsense", &batch)?;
                self.failed("parse nonsense", &answer, "42703")
            }
        }
    }

    pub(super) fn transaction(&mut self) -> Outcome {
        match self.state {
            State::Idle => {
                self.before = self.session.clone();
                self.run(self.random.clone().pick(&["BEGIN", "START TRANSACTION", "begin work"]))?;
                self.state = State::Open;
                Ok(())
            }
            State::Open | State::Failed => self.end(),
        }
    }

    /// Commits or rolls back a transaction.
    fn end(&mut self) -> Outcome {
        let commits = self.random.one_in(2);
        self.run(if commits { "COMMIT" } else { "ROLLBACK" })?;
        if !commits || self.state == State::Failed {
            self.session = self.before.clone();
        }
        self.state = State::Idle;
        self.before = Session::default();
        self.check_session()
    }

    pub(super) fn in_failed(&mut self) -> Outcome {
        if self.random.one_in(3) {
            return self.refuse("SELECT 1", "25P02");
        }
        self.end()
    }

    fn role(&mut self) -> Outcome {
        if self.state != State::Idle {
            return Ok(());
        }
        let role = self.random.pick(&["guest_0", "guest_1"]);
        self.session.role = Some(role);
        self.run(&format!("SET ROLE {role}"))?;
        self.check_session()?;
        // A guest has no rights, so the role is reset at once.
        self.session.role = None;
        self.run("RESET ROLE").map(drop)
    }

    fn discard(&mut self) -> Outcome {
        if self.state != State::Idle {
            return Ok(());
        }
        match self.random.below(3) {
            0 => {
                self.session.settings = self.defaults.clone();
                self.run("RESET ALL")?;
            }
            1 => {
                self.beyond.prepared.clear();
                self.beyond.statements.clear();
                self.run("DEALLOCATE ALL")?;
            }
            _ => {
                self.run("DISCARD ALL")?;
                let lines = self.session.lines;
                self.session =
                    Session { settings: self.defaults.clone(), lines, ..Session::default() };
                // These are not transactional.
                let Beyond { links, has_unnamed_link, seeded, .. } =
                    std::mem::take(&mut self.beyond);
                self.beyond = Beyond { links, has_unnamed_link, seeded, ..Beyond::default() };
            }
        }
        self.check_session()
    }

    /// Cancels its own statement, and only that may be cancelled.
    fn cancel(&mut self) -> Outcome {
        let sql = format!("SELECT pg_sleep(0.7), '{}'", self.mark());
        self.note(&format!("{sql}, cancelled"));
        let client = self.client.as_mut().unwrap();
        let sent = client.send(&PgBatch::new().query(&sql).0).map_err(PgFailure::from);
        let request = pg::cancel_request(client.pid, &client.key);
        if let Err(failure) = sent {
            return Err(self.broken(failure));
        }
        if let Ok(mut other) = PgClient::open(&self.character.address) {
            // The result of the statement shows whether the request arrives.
            drop(other.send(&request));
            let (is_over, _) = other.end();
            if !is_over {
                return Err(Trouble::Wrong("a cancel request was not closed".to_owned()));
            }
        }
        let answer = self.client.as_mut().unwrap().answer();
        let answer = self.seen(answer)?;
        match answer.error() {
            // The request arrived before the statement.
            None => Ok(()),
            Some(_) => self.failed(&sql, &answer, "57014"),
        }
    }

    /// Checks the last value of a sequence, which is the session's own or unknown: a pooler may
    /// lose it, but must not return another client's.
    fn sequence(&mut self) -> Outcome {
        let sql = "SELECT currval('public.ids'), lastval()";
        if self.random.one_in(2) {
            let taken = self.run("SELECT nextval('public.ids')")?[0][0].clone();
            self.beyond.taken.clone_from(&taken);
            let taken = taken.unwrap_or_default();
            // Within the same transaction it is never lost.
            return match self.state {
                State::Open => self.expect(sql, &[&taken, &taken]),
                _ => Ok(()),
            };
        }
        let answer = self.ask(sql, &PgBatch::new().query(sql))?;
        match (answer.error(), self.beyond.taken.clone()) {
            (None, Some(taken)) => equal(sql, &answer.rows(), &vec![vec![Some(taken); 2]]),
            (None, None) => Err(differs(sql, &answer.rows(), &"an error")),
            (Some(_), _) => self.failed(sql, &answer, "55000"),
        }
    }

    /// Checks that random numbers come from its own seed, or from no client's.
    fn seed(&mut self) -> Outcome {
        /// Numbers that the seeds of all clients produce.
        static SEEDED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        if let Some(next) = self.beyond.seeded.pop() {
            return self.expect("SELECT random()", &[&next]);
        }
        if self.random.one_in(2) {
            let number = self.run("SELECT random()")?[0][0].clone().unwrap_or_default();
            let is_seeded = SEEDED.lock().contains(&number);
            return equal("a number of another client's seed", &is_seeded, &false);
        }
        let seeds = format!("SELECT setseed(0.{})", 1 + self.random.below(4));
        self.run(&seeds)?;
        let numbers = self.run("SELECT random() FROM generate_series(1, 4)")?;
        let mut numbers: Vec<String> = numbers.into_iter().flatten().flatten().collect();
        SEEDED.lock().extend(numbers.iter().cloned());
        numbers.reverse();
        self.beyond.seeded = numbers;
        self.run(&seeds).map(drop)
    }

    /// Uses dblink's unnamed connection.
    fn unnamed_link(&mut self, target: &str) -> Outcome {
        let asks = "SELECT a FROM public.dblink('SELECT 7') AS t(a int)";
        match (self.beyond.has_unnamed_link, self.random.below(3)) {
            (false, 0) => {
                self.beyond.has_unnamed_link = true;
                self.expect(&format!("SELECT public.dblink_connect({target})"), &["OK"])
            }
            (false, _) => self.refuse(asks, "08003"),
            (true, 0) => {
                self.beyond.has_unnamed_link = false;
                self.expect("SELECT public.dblink_disconnect()", &["OK"])
            }
            (true, _) => self.expect(asks, &["7"]),
        }
    }

    /// Uses dblink connections: only its own exist.
    fn link(&mut self) -> Outcome {
        let mark = self.mark();
        let name = format!("{mark}link");
        let target = format!(
            "format('host=127.0.0.1 port=%s dbname=%s user=%s password={PASSWORD}', \
             current_setting('port'), current_database(), '{USER}')"
        );
        if self.random.one_in(3) {
            return self.unnamed_link(&target);
        }
        if self.beyond.links.is_empty() && self.random.one_in(3) {
            let call = self.random.pick(&["dblink_connect", "hidden_link"]);
            let sql = format!("SELECT public.{call}('{name}', {target})");
            self.beyond.links.insert(name);
            return self.expect(&sql, &["OK"]);
        }
        if self.beyond.links.contains(&name) && self.random.one_in(3) {
            self.beyond.links.remove(&name);
            return self.expect(&format!("SELECT public.dblink_disconnect('{name}')"), &["OK"]);
        }
        let links: Vec<String> = self.beyond.links.iter().cloned().collect();
        let sql = "SELECT coalesce(array_to_string(public.dblink_get_connections(), ' '), '')";
        self.expect(sql, &[&links.join(" ")])
    }

    /// Disconnects in the middle of a COPY, and checks that its server connection is freed.
    fn leave_copying(&mut self) -> Outcome {
        // Longer than that takes, and shorter than a cancel request may take.
        const QUESTIONS_MAX: u32 = 150;
        // The server itself may not have noticed yet that a connection was cut.
        if self.character.faults {
            return self.leave();
        }
        let key = self.key(5);
        self.run(&format!("SELECT pg_advisory_lock(9, {key})"))?;
        self.note("leave in a COPY, without a word");
        let copy = PgBatch::new().query("COPY public.lines FROM STDIN").copy_data(b"x").0;
        let cut = self.random.pick(&[0, 0, 2, 4]);
        if let Some(mut client) = self.client.take() {
            drop(client.send(&copy[..copy.len() - cut]));
        }
        self.login()?;
        for _ in 0..QUESTIONS_MAX {
            let rows = self.run(&format!("SELECT pg_try_advisory_xact_lock(9, {key})"))?;
            if rows[0][0].as_deref() == Some("t") {
                return Ok(());
            }
            self.run("SELECT pg_sleep(0.05)")?;
        }
        Err(Trouble::Wrong(format!("lock {key} outlives the client that left in a COPY")))
    }

    /// Disconnects, possibly in the middle of an operation.
    fn leave(&mut self) -> Outcome {
        let how = self.random.below(6);
        self.note(&format!("leave in way {how}"));
        let mark = self.mark();
        let Some(mut client) = self.client.take() else { return Ok(()) };
        let query = PgBatch::new().query(&format!("SELECT '{mark}', pg_sleep(0.05)")).0;
        let much = format!("SELECT repeat('{mark}', 1000) FROM generate_series(1, 2000)");
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
            4 => PgBatch::new().query(&much).0,
            // An incomplete batch, or a COPY.
            _ if self.random.one_in(2) => {
                PgBatch::new().parse("left", &much).bind("", "left", &[]).execute("", 10).flush().0
            }
            // Also in the middle of a COPY message: of its header, or of its data.
            _ => {
                let data = b"x".repeat(20_000);
                let copy = PgBatch::new().query("COPY public.lines FROM STDIN");
                let whole = copy.copy_data(b"x").copy_data(&data).0;
                let cut = self.random.pick(&[0, 1, 10_000, data.len() + 2]);
                whole[..whole.len() - cut].to_vec()
            }
        };
        // The connection may end before that.
        drop(client.send(&bytes));
        Ok(())
    }
}

/// Quotes a string for SQL, with literal backslashes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
