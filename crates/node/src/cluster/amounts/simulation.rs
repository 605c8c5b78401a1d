//! Simulation of nodes that use one amount, by seeds: they lease, use, settle, crash and restart,
//! are declared lost rightly or wrongly, transactions run twice, and answers are lost.

use super::exchange::{AmountAnswer, AmountDemand, LeaseRow, UnusedLease, exchange};
use super::lease::{AmountUse, LocalAmount, StoreAwayRule, UseAttempt};
use crate::cluster::identity::NodeIdentity;
use crate::testing::SeededRandom;

/// Maximum of one use.
const USE_MAX: u64 = 9;

/// Way in which a simulated node uses an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimulatedUse {
    /// Takes the exact amount before the use, as an `http` grant does.
    Takes,
    /// Checks that some is left, and learns the usage afterwards, as a `model` grant does.
    Charges,
}

/// Faults of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LedgerFaults {
    None,
    /// Answers are lost, and transactions run twice.
    Store,
    /// Nodes also crash, and are wrongly declared lost.
    All,
}

#[derive(Debug)]
struct SimulatedUser {
    run: u32,
    is_up: bool,
    amount: LocalAmount,
    asked: Option<(AmountDemand, Option<AmountAnswer>)>,
}

#[derive(Debug)]
struct LedgerSimulation {
    random: SeededRandom,
    limit: u64,
    uses: SimulatedUse,
    unused: UnusedLease,
    faults: LedgerFaults,
    users: Vec<SimulatedUser>,
    next_life: u64,
    spent: u64,
    rows: Vec<LeaseRow>,
    /// True usage.
    used: u64,
    /// Maximum that was counted and not used, or used and not counted, because of faults.
    lost_max: u64,
    forgotten_max: u64,
}

fn identity(node: usize, run: u32) -> NodeIdentity {
    NodeIdentity { id: format!("n{node}"), incarnation: run.to_string(), home: String::new() }
}

impl LedgerSimulation {
    fn new(seed: u64, uses: SimulatedUse, unused: UnusedLease) -> LedgerSimulation {
        let mut random = SeededRandom(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed + 1));
        let faults = [LedgerFaults::None, LedgerFaults::Store, LedgerFaults::All];
        let faults = faults[usize::try_from(seed % 3).unwrap()];
        let limit = [1, 10, 100, 1_000, 20_000][usize::try_from(random.below(5)).unwrap()];
        let mut it = LedgerSimulation {
            random,
            limit,
            uses,
            unused,
            faults,
            users: Vec::new(),
            next_life: 1,
            spent: 0,
            rows: Vec::new(),
            used: 0,
            lost_max: 0,
            forgotten_max: 0,
        };
        for _ in 0..=it.random.below(6) {
            let amount = it.fresh();
            it.users.push(SimulatedUser { run: 1, is_up: true, amount, asked: None });
        }
        it
    }

    fn fresh(&mut self) -> LocalAmount {
        LocalAmount::new(self.life(), self.unused, StoreAwayRule::Refuse)
    }

    fn life(&mut self) -> u64 {
        self.next_life += 1;
        self.next_life
    }

    fn use_some(&mut self, at: usize) -> UseAttempt {
        let amount = 1 + self.random.below(USE_MAX);
        let limit = Some(self.limit);
        let user = &mut self.users[at];
        match self.uses {
            SimulatedUse::Takes => {
                // Smaller ones, so that the whole amount can be used.
                for amount in [amount, 1] {
                    let attempt = user.amount.attempt(AmountUse::Exactly(amount), limit);
                    if attempt == UseAttempt::Granted {
                        self.used += amount;
                        return attempt;
                    }
                }
                user.amount.attempt(AmountUse::Exactly(1), limit)
            }
            SimulatedUse::Charges => {
                let attempt = user.amount.attempt(AmountUse::Some, limit);
                if attempt == UseAttempt::Granted {
                    user.amount.charge(amount);
                    self.used += amount;
                }
                attempt
            }
        }
    }

    fn ask(&mut self, at: usize) {
        let kind = self.random.below(8);
        let user = &mut self.users[at];
        if user.asked.is_none() {
            let demand = match kind {
                0 => user.amount.give_back(),
                1 => user.amount.close(),
                _ => user.amount.demand(),
            };
            user.asked = Some((demand, None));
        }
    }

    /// Runs the transaction of a node's demand. `taken_for_lost` is another node that runs.
    fn apply(&mut self, at: usize, taken_for_lost: Option<usize>) {
        let Some((demand, _)) = self.users[at].asked.clone() else { return };
        let is_over = |row: &LeaseRow| {
            let node: usize = row.node[1..].parse().unwrap();
            let user = &self.users[node];
            !user.is_up || user.run.to_string() != row.incarnation || taken_for_lost == Some(node)
        };
        let run = identity(at, self.users[at].run);
        let after = exchange(self.spent, &self.rows, &demand, &run, &is_over, self.unused);
        for row in &self.rows {
            let is_former = row.node == run.id && row.incarnation != run.incarnation;
            if is_former || (row.node != run.id && is_over(row)) {
                // For a running node, usage until it learns of the loss counts twice, and so may
                // usage that it has reported without receiving the answer.
                self.lost_max += 2 * row.left() + row.used - row.absorbed;
            }
        }
        self.rows.retain(|row| row.node != run.id && !after.removed.contains(&row.node));
        self.rows.push(after.own);
        self.spent = after.spent;
        self.users[at].asked = Some((demand, Some(after.answer)));
    }

    fn answer(&mut self, at: usize) {
        let next_life = self.life();
        let user = &mut self.users[at];
        if let Some((demand, Some(answer))) = &user.asked {
            user.amount.answered(demand, answer, next_life);
            user.asked = None;
        }
    }

    fn crash(&mut self, at: usize) {
        let amount = self.fresh();
        let user = &mut self.users[at];
        if user.is_up && user.amount.is_unsettled() {
            self.forgotten_max += user.amount.unconfirmed();
        }
        let is_up = !user.is_up;
        *user = SimulatedUser { run: user.run + 1, is_up, amount, asked: None };
    }

    fn step(&mut self) {
        let at = usize::try_from(self.random.below(self.users.len() as u64)).unwrap();
        if !self.users[at].is_up {
            if self.random.is_one_in(4) {
                self.crash(at);
            }
            return;
        }
        match self.random.below(16) {
            0..6 => drop(self.use_some(at)),
            6..9 => self.ask(at),
            9..12 => self.apply(at, None),
            12..14 => self.answer(at),
            14 if self.faults != LedgerFaults::None => {
                self.apply(at, None);
                if self.random.is_one_in(2) {
                    self.users[at].asked = None;
                }
            }
            15 if self.faults == LedgerFaults::All && self.random.is_one_in(8) => {
                match self.random.is_one_in(2) {
                    true => self.crash(at),
                    false if self.unused == UnusedLease::Spent => {
                        let other = self.random.below(self.users.len() as u64);
                        self.apply(at, Some(usize::try_from(other).unwrap()));
                    }
                    false => {}
                }
            }
            _ => {}
        }
        self.check();
    }

    fn check(&self) {
        let taken: u64 = self.rows.iter().map(LeaseRow::taken).sum();
        if self.uses == SimulatedUse::Takes {
            let most = match self.unused {
                UnusedLease::Spent => self.limit,
                UnusedLease::GivenBack => self.limit + self.forgotten_max,
            };
            assert!(self.used <= most, "{} of {most} are used: {self:?}", self.used);
            assert!(self.spent + taken <= most, "more is leased than there is: {self:?}");
            if self.unused == UnusedLease::Spent {
                assert!(self.spent + taken >= self.used, "something is forgotten: {self:?}");
            }
        }
    }

    /// Lets all nodes use the rest, with a store that answers.
    fn use_all(&mut self) {
        for at in 0..self.users.len() {
            if !self.users[at].is_up {
                self.crash(at);
            }
            self.apply(at, None);
            self.answer(at);
        }
        let mut rounds = 0;
        loop {
            let mut is_used_up = true;
            for at in 0..self.users.len() {
                is_used_up &= self.use_some(at) == UseAttempt::UsedUp;
                let demand = self.users[at].amount.demand();
                self.users[at].asked = Some((demand, None));
                self.apply(at, None);
                self.answer(at);
                self.check();
            }
            if is_used_up {
                return;
            }
            rounds += 1;
            assert!(rounds < 100_000, "it cannot be used up: {self:?}");
        }
    }

    fn counted(&self) -> u64 {
        self.spent + self.rows.iter().map(|row| row.used - row.absorbed).sum::<u64>()
    }
}

fn simulate(seeds: u64, uses: SimulatedUse, unused: UnusedLease) {
    for seed in 0..seeds {
        let mut simulation = LedgerSimulation::new(seed, uses, unused);
        for _ in 0..600 {
            simulation.step();
        }
        simulation.use_all();
        let LedgerSimulation { limit, used, lost_max, forgotten_max, .. } = simulation;
        let counted = simulation.counted();
        assert!(counted >= limit, "seed {seed}: {simulation:?}");
        assert!(counted <= used + lost_max, "seed {seed}: too much is lost: {simulation:?}");
        assert!(used <= counted + forgotten_max, "seed {seed}: {simulation:?}");
        if simulation.faults != LedgerFaults::All {
            assert_eq!(counted, used, "seed {seed}: {simulation:?}");
        }
        if simulation.faults != LedgerFaults::All && uses == SimulatedUse::Takes {
            assert_eq!(used, limit, "seed {seed}: not all can be used: {simulation:?}");
        }
    }
}

#[test]
fn what_nodes_take_never_exceeds_the_limit_and_is_never_forgotten() {
    simulate(1_500, SimulatedUse::Takes, UnusedLease::Spent);
}

#[test]
fn what_crashed_nodes_had_goes_back_where_that_may_be() {
    simulate(900, SimulatedUse::Takes, UnusedLease::GivenBack);
}

#[test]
fn what_is_known_afterwards_is_counted_as_well() {
    simulate(900, SimulatedUse::Charges, UnusedLease::Spent);
}
