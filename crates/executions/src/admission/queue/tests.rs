//! A seeded simulation against an oracle that is too simple to be wrong.

use super::*;

/// SplitMix64: small, seeded, good enough to reach every branch.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Everything that is there, in order of arrival; who runs follows from the list alone.
#[derive(Default)]
struct Oracle {
    present: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    number: u64,
    tenant: String,
    memory_bytes: u64,
    runs: bool,
}

impl Oracle {
    fn running(&self) -> (usize, u64) {
        let running = self.present.iter().filter(|entry| entry.runs);
        (running.clone().count(), running.map(|entry| entry.memory_bytes).sum())
    }

    fn waiting(&self, tenant: Option<&str>) -> usize {
        let of_tenant =
            |entry: &&Entry| tenant.is_none_or(|tenant| entry.tenant == tenant) && !entry.runs;
        self.present.iter().filter(of_tenant).count()
    }

    fn load(&self) -> Load {
        let (running, memory_bytes) = self.running();
        Load { running, memory_bytes, waiting: self.waiting(None) }
    }

    /// Lets the first that waits run, as long as it fits.
    fn settle(&mut self, bounds: Bounds) {
        while let Some(first) = self.present.iter().position(|entry| !entry.runs) {
            let (running, memory_bytes) = self.running();
            let needed = memory_bytes + self.present[first].memory_bytes;
            if running >= bounds.running_max || needed > bounds.memory_bytes_max {
                return;
            }
            self.present[first].runs = true;
        }
    }

    fn arrive(&mut self, bounds: Bounds, entry: Entry) -> &'static str {
        if entry.memory_bytes > bounds.memory_bytes_max {
            return "too large";
        }
        let before = self.present.clone();
        let (number, tenant) = (entry.number, entry.tenant.clone());
        self.present.push(entry);
        self.settle(bounds);
        if self.present.iter().any(|entry| entry.number == number && entry.runs) {
            return "admitted";
        }
        let answer = if self.waiting(None) > bounds.queue_max {
            "queue full"
        } else if self.waiting(Some(&tenant)) > bounds.queue_max_per_tenant {
            "tenant full"
        } else {
            return "waits";
        };
        self.present = before;
        answer
    }
}

fn simulate(seed: u64, steps: u32) -> [u32; 7] {
    let mut random = Random(seed);
    let bounds = Bounds {
        running_max: 1 + usize::try_from(random.below(4)).unwrap(),
        memory_bytes_max: 10 + random.below(20),
        queue_max: usize::try_from(random.below(8)).unwrap(),
        queue_max_per_tenant: 1 + usize::try_from(random.below(4)).unwrap(),
    };
    let (mut queue, mut oracle) = (Queue::<u64>::new(bounds), Oracle::default());
    let mut tickets: HashMap<u64, Ticket> = HashMap::new();
    let mut seen = [0; 7];
    for number in 0..u64::from(steps) {
        let pick = usize::try_from(random.below(1000)).unwrap();
        match random.below(5) {
            0..=2 => {
                let tenant = ["a", "b", "c"][pick % 3].to_owned();
                let memory_bytes = 1 + random.below(bounds.memory_bytes_max + 2);
                let arrival = queue.arrive(&tenant, memory_bytes);
                let entry = Entry { number, tenant, memory_bytes, runs: false };
                let expected = oracle.arrive(bounds, entry);
                let (answer, kind) = match arrival {
                    Arrival::Admitted => ("admitted", 0),
                    Arrival::Waits(ticket) => {
                        tickets.insert(number, ticket);
                        assert!(!queue.poll(ticket, &number), "seed {seed} step {number}");
                        ("waits", 1)
                    }
                    Arrival::TooLarge { .. } => ("too large", 2),
                    Arrival::QueueFull { .. } => ("queue full", 3),
                    Arrival::TenantFull { .. } => ("tenant full", 4),
                };
                assert_eq!(answer, expected, "seed {seed} step {number}");
                seen[kind] += 1;
            }
            _ if oracle.present.is_empty() => {}
            kind => {
                let entry = oracle.present.remove(pick % oracle.present.len());
                let before = oracle.present.clone();
                oracle.settle(bounds);
                // Half of those that were admitted from the queue go before they notice.
                let ticket = tickets.remove(&entry.number);
                let unnoticed = ticket.filter(|_| !entry.runs || kind == 3);
                let mut woken = match (ticket, unnoticed) {
                    (_, Some(ticket)) => queue.leave(ticket, entry.memory_bytes),
                    (Some(ticket), None) => {
                        assert!(queue.poll(ticket, &0), "seed {seed} step {number}");
                        queue.release(entry.memory_bytes)
                    }
                    (None, None) => queue.release(entry.memory_bytes),
                };
                seen[if unnoticed.is_some() { 5 } else { 6 }] += 1;
                // Exactly those that run now and did not before are woken.
                let started = oracle.present.iter().zip(&before);
                let started = started.filter(|(now, before)| now.runs && !before.runs);
                woken.sort_unstable();
                let expected: Vec<u64> = started.map(|(now, _)| now.number).collect();
                assert_eq!(woken, expected, "seed {seed} step {number}");
            }
        }
        assert_eq!(queue.load(), oracle.load(), "seed {seed} step {number}");
        let counted: usize = queue.per_tenant.values().sum();
        assert_eq!(counted, queue.waiting.len(), "seed {seed} step {number}");
    }
    for entry in std::mem::take(&mut oracle.present) {
        match tickets.remove(&entry.number) {
            Some(ticket) => queue.leave(ticket, entry.memory_bytes),
            None => queue.release(entry.memory_bytes),
        };
    }
    assert_eq!(queue.load(), Load::default(), "seed {seed} leaks");
    assert!(queue.granted.is_empty() && queue.per_tenant.is_empty(), "seed {seed} leaks");
    seen
}

#[test]
fn decisions_are_the_oracle_s() {
    let mut seen = [0; 7];
    for seed in 0..300 {
        for (total, count) in seen.iter_mut().zip(simulate(seed, 400)) {
            *total += count;
        }
    }
    // A simulation that never reaches a branch proves nothing about it.
    assert!(seen.iter().all(|count| *count > 200), "{seen:?}");
}

fn bounds() -> Bounds {
    Bounds { running_max: 2, memory_bytes_max: 10, queue_max: 3, queue_max_per_tenant: 2 }
}

#[test]
fn nobody_overtakes_a_large_request() {
    let mut queue = Queue::<char>::new(bounds());
    assert_eq!(queue.arrive("a", 6), Arrival::Admitted);
    let Arrival::Waits(large) = queue.arrive("b", 8) else { panic!("it does not fit") };
    let Arrival::Waits(small) = queue.arrive("c", 1) else { panic!("it overtook") };
    assert!(!queue.poll(large, &'L') && !queue.poll(small, &'S'));
    assert_eq!(queue.release(6), ['L', 'S']);
}

#[test]
fn when_the_head_gives_up_the_next_may_run() {
    let mut queue = Queue::<char>::new(bounds());
    assert_eq!(queue.arrive("a", 6), Arrival::Admitted);
    let Arrival::Waits(large) = queue.arrive("b", 8) else { panic!("it does not fit") };
    let Arrival::Waits(small) = queue.arrive("c", 1) else { panic!("it overtook") };
    assert!(!queue.poll(large, &'L') && !queue.poll(small, &'S'));
    assert_eq!(queue.leave(large, 8), ['S']);
}

#[test]
fn one_tenant_cannot_fill_the_queue() {
    let mut queue = Queue::<char>::new(bounds());
    for _ in 0..2 {
        assert_eq!(queue.arrive("a", 1), Arrival::Admitted);
    }
    for _ in 0..2 {
        assert!(matches!(queue.arrive("a", 1), Arrival::Waits(_)));
    }
    assert_eq!(queue.arrive("a", 1), Arrival::TenantFull { waiting_max: 2 });
    assert!(matches!(queue.arrive("b", 1), Arrival::Waits(_)));
    assert_eq!(queue.arrive("b", 1), Arrival::QueueFull { queue_max: 3 });
    assert_eq!(queue.arrive("b", 11), Arrival::TooLarge { memory_bytes_max: 10 });
}
