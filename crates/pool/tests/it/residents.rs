//! The residents: tables, and millions of random steps against a naive model.

use std::time::Duration;

use pool::residents::{
    EvictedResident, IllegalMark, ResidentRefusal, ResidentStats, Residents, State,
};

use crate::support::{Chance, start};

use State::{Cold, Running, Waiting, Warm, Warming};

/// Runs a script and reports the result of each line, so that a table shows both.
fn check(capacity: usize, steps: &[(&str, &str)]) {
    let begin = start();
    let mut residents = Residents::new(capacity, begin);
    for (index, (step, expected)) in steps.iter().enumerate() {
        let now = begin + Duration::from_secs(u64::try_from(index).unwrap());
        let (act, id) = step.split_once(' ').unwrap();
        let id = id.to_owned();
        let seconds = || Duration::from_secs(id.parse().unwrap());
        let marked = |result: Result<(), IllegalMark>| match result {
            Ok(()) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        let found = match act {
            "warming" | "warm" | "running" | "waiting" | "cold" => {
                let state = State::ALL
                    .into_iter()
                    .find(|state| format!("{state:?}").eq_ignore_ascii_case(act))
                    .unwrap();
                match residents.insert(id, state, now) {
                    Ok(None) => "in".to_owned(),
                    Ok(Some(EvictedResident { id, was })) => format!("in for {was:?} {id}"),
                    Err(refused) => refused.to_string(),
                }
            }
            ">warming" => marked(residents.mark_warming(&id, now)),
            ">warm" => marked(residents.mark_warm(&id, now)),
            ">running" => marked(residents.mark_running(&id, now)),
            ">waiting" => marked(residents.mark_waiting(&id, now)),
            ">cold" => marked(residents.mark_cold(&id, now)),
            "touch" => marked(residents.touch(&id, now)),
            "evict_of" => match residents.evict_where(|other| other.starts_with(&id)) {
                Some(EvictedResident { id, was }) => format!("{was:?} {id}"),
                None => "nobody".to_owned(),
            },
            "remove" => format!("{:?}", residents.remove(&id)),
            "state" => format!("{:?}", residents.state(&id)),
            "idle" => residents.idle(now, seconds()).join(" "),
            "cold_before" => residents.cold_before(now, seconds()).join(" "),
            "capacity" => {
                residents.set_capacity(id.parse().unwrap());
                "done".to_owned()
            }
            _ => panic!("{act}"),
        };
        assert_eq!(found, *expected, "step {index}: {step}");
    }
}

#[test]
fn of_one_kind_the_same_goes_first() {
    check(
        9,
        &[
            ("waiting a1", "in"),
            ("waiting b1", "in"),
            ("warm a2", "in"),
            ("running a3", "in"),
            ("warming a4", "in"),
            ("evict_of b", "Waiting b1"),
            ("evict_of b", "nobody"),
            ("evict_of a", "Warm a2"),
            ("evict_of a", "Waiting a1"),
            ("evict_of a", "nobody"),
            ("state a3", "Some(Running)"),
        ],
    );
}

#[test]
fn cold_goes_before_warm_before_waiting_and_within_them_the_least_used() {
    check(
        6,
        &[
            ("waiting w1", "in"),
            ("warm h1", "in"),
            ("cold c1", "in"),
            ("cold c2", "in"),
            ("running r1", "in"),
            ("warming m1", "in"),
            ("touch c1", "done"),
            ("running r2", "in for Cold c2"),
            ("running r3", "in for Cold c1"),
            ("running r4", "in for Warm h1"),
            ("running r5", "in for Waiting w1"),
            ("cold c3", "all 6 places are taken and none can be freed"),
            ("state c3", "None"),
            (">waiting r4", "done"),
            (">waiting r2", "done"),
            ("running r6", "in for Waiting r4"),
            ("running r7", "in for Waiting r2"),
            ("remove r1", "Some(Running)"),
            ("cold c3", "in"),
            ("remove r1", "None"),
        ],
    );
}

#[test]
fn exactly_one_goes_however_many_there_are() {
    check(
        3,
        &[
            ("cold a", "in"),
            ("cold b", "in"),
            ("cold c", "in"),
            ("capacity 1", "done"),
            ("cold d", "in for Cold a"),
            ("state b", "Some(Cold)"),
            ("capacity 0", "done"),
            ("cold e", "in for Cold b"),
            ("cold e", "it is resident already, and Cold"),
        ],
    );
    check(0, &[("cold a", "all 0 places are taken and none can be freed")]);
}

#[test]
fn a_sweep_takes_what_waits_and_was_not_used_and_takes_it_once() {
    check(
        9,
        &[
            ("waiting a", "in"),
            ("waiting b", "in"),
            ("waiting c", "in"),
            ("running r", "in"),
            ("warm h", "in"),
            ("touch a", "done"),
            ("idle 6", ""),
            ("idle 5", "b c"),
            ("state b", "Some(Cold)"),
            ("idle 0", "a"),
            ("idle 0", ""),
            ("cold_before 4", "b c"),
            ("state b", "None"),
            ("cold_before 0", "a"),
            ("state r", "Some(Running)"),
        ],
    );
}

#[test]
fn what_cannot_be_is_an_error_and_changes_nothing() {
    check(
        3,
        &[
            (">running a", "there is no such resident"),
            ("touch a", "there is no such resident"),
            ("cold a", "in"),
            (">running a", "what is Cold cannot become Running"),
            (">warm a", "what is Cold cannot become Warm"),
            ("state a", "Some(Cold)"),
            (">warming a", "done"),
            (">waiting a", "done"),
            (">warm a", "what is Waiting cannot become Warm"),
            (">warming a", "what is Waiting cannot become Warming"),
            (">running a", "done"),
            (">running a", "done"),
        ],
    );
}

#[test]
fn times_that_come_out_of_order_do_not_change_the_order() {
    let begin = start();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let mut residents = Residents::new(9, begin);
    residents.insert("late", Waiting, at(10)).unwrap();
    residents.insert("early", Waiting, at(5)).unwrap();
    assert_eq!(residents.next_idle(Duration::from_secs(3)), Some(at(13)));
    assert_eq!(residents.idle(at(12), Duration::from_secs(3)), [""; 0]);
    assert_eq!(residents.idle(at(13), Duration::from_secs(3)), ["late", "early"]);
}

#[test]
fn the_figures_are_there_without_the_books() {
    let mut residents = Residents::new(3, start());
    let figures = residents.figures();
    residents.insert(1, Running, start()).unwrap();
    residents.insert(2, Cold, start()).unwrap();
    let expected =
        ResidentStats { total: 2, running: 1, cold: 1, capacity: 3, ..ResidentStats::default() };
    assert_eq!((figures.stats(), figures.count()), (expected, 2));
    drop(residents);
    assert_eq!(figures.stats(), expected);
}

const SEEDS: u64 = 30;
const STEPS_PER_SEED: usize = 100_000;

/// Naive model of the residents: a list in the order of use.
struct Model {
    capacity: usize,
    /// Least recently used first.
    residents: Vec<(usize, State, u64)>,
}

impl Model {
    fn place(&self, id: usize) -> Option<usize> {
        self.residents.iter().position(|resident| resident.0 == id)
    }

    fn candidate(&self) -> Option<usize> {
        let first = |state| self.residents.iter().position(|resident| resident.1 == state);
        first(Cold).or_else(|| first(Warm)).or_else(|| first(Waiting))
    }

    fn insert(&mut self, id: usize, state: State, now: u64) -> Result<Option<(usize, State)>, ()> {
        if self.place(id).is_some() {
            return Err(());
        }
        let mut evicted = None;
        if self.residents.len() >= self.capacity {
            let (id, state, _) = self.residents.remove(self.candidate().ok_or(())?);
            evicted = Some((id, state));
        }
        self.residents.push((id, state, now));
        Ok(evicted)
    }

    fn mark(&mut self, id: usize, state: State, now: u64) -> bool {
        let Some(place) = self.place(id) else { return false };
        let from = self.residents[place].1;
        let legal = match state {
            Warming => &[Warming, Cold][..],
            Warm => &[Warming, Warm],
            Running => &[Warming, Warm, Running, Waiting],
            Waiting => &[Warming, Warm, Running, Waiting],
            Cold => &[Warming, Warm, Running, Waiting, Cold],
        };
        if !legal.contains(&from) {
            return false;
        }
        self.residents.remove(place);
        self.residents.push((id, state, now));
        true
    }

    fn unused(&self, state: State, until: Option<u64>) -> Vec<usize> {
        let Some(until) = until else { return Vec::new() };
        let due = |resident: &&(usize, State, u64)| resident.1 == state && resident.2 <= until;
        self.residents.iter().filter(due).map(|resident| resident.0).collect()
    }
}

struct World {
    residents: Residents<usize>,
    model: Model,
    chance: Chance,
    begin: std::time::Instant,
    now: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let (begin, capacity) = (start(), 1 + chance.below(40));
        let model = Model { capacity, residents: Vec::new() };
        World { residents: Residents::new(capacity, begin), model, chance, begin, now: 0 }
    }

    fn step(&mut self) {
        self.now += u64::try_from(self.chance.below(3)).unwrap();
        let now = self.begin + Duration::from_millis(self.now);
        let id = self.chance.below(60);
        let state = State::ALL[self.chance.below(5)];
        match self.chance.below(100) {
            0..35 => {
                let found = self.residents.insert(id, state, now);
                let expected = self.model.insert(id, state, self.now);
                let found = match found {
                    Ok(evicted) => Ok(evicted.map(|evicted| (evicted.id, evicted.was))),
                    Err(ResidentRefusal::Full { .. } | ResidentRefusal::Present { .. }) => Err(()),
                };
                assert_eq!(found, expected);
            }
            35..80 => {
                let found = match state {
                    Warming => self.residents.mark_warming(&id, now),
                    Warm => self.residents.mark_warm(&id, now),
                    Running => self.residents.mark_running(&id, now),
                    Waiting => self.residents.mark_waiting(&id, now),
                    Cold => self.residents.mark_cold(&id, now),
                };
                assert_eq!(found.is_ok(), self.model.mark(id, state, self.now));
            }
            80..86 => {
                let found = self.residents.touch(&id, now).is_ok();
                let place = self.model.place(id);
                let touched = place
                    .is_some_and(|at| self.model.mark(id, self.model.residents[at].1, self.now));
                assert_eq!(found, touched);
            }
            86..92 => {
                let place = self.model.place(id);
                let expected = place.map(|place| self.model.residents.remove(place).1);
                assert_eq!(self.residents.remove(&id), expected);
            }
            92..95 => self.sweep(Waiting),
            95..98 => self.sweep(Cold),
            _ => {
                self.model.capacity = 1 + self.chance.below(40);
                self.residents.set_capacity(self.model.capacity);
            }
        }
        self.compare();
    }

    fn sweep(&mut self, state: State) {
        let age = u64::try_from(self.chance.below(60)).unwrap();
        let now = self.begin + Duration::from_millis(self.now);
        let expected = self.model.unused(state, self.now.checked_sub(age));
        let age = Duration::from_millis(age);
        if state == Cold {
            assert_eq!(self.residents.cold_before(now, age), expected);
            self.model.residents.retain(|resident| !expected.contains(&resident.0));
        } else {
            assert_eq!(self.residents.idle(now, age), expected);
            for id in expected {
                assert!(self.model.mark(id, Cold, self.now));
            }
        }
    }

    fn compare(&self) {
        let of = |state| self.model.residents.iter().filter(|one| one.1 == state).count();
        let expected = ResidentStats {
            total: self.model.residents.len(),
            warming: of(Warming),
            warm: of(Warm),
            running: of(Running),
            waiting: of(Waiting),
            cold: of(Cold),
            capacity: self.model.capacity,
        };
        assert_eq!((self.residents.stats(), self.residents.count()), (expected, expected.total));
        for (id, state, _) in &self.model.residents {
            assert_eq!(self.residents.state(id), Some(*state));
        }
    }
}

#[test]
fn millions_of_random_steps_agree_with_the_model() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for step in 0..STEPS_PER_SEED {
            let run = std::panic::AssertUnwindSafe(|| world.step());
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!("seed {seed}, step {step}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}
