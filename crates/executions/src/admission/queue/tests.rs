//! A seeded simulation against an oracle that is too simple to be wrong.

use std::collections::HashMap;

use super::*;

/// SplitMix64: small, seeded, random enough to reach every branch.
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

/// All requests, in order of arrival, and the order of turns.
#[derive(Clone, Default)]
struct Oracle {
    present: Vec<Entry>,
    /// Waiting tenants, and the kind of each tenant's next request.
    turns: Vec<(String, AdmissionOrigin)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    number: u64,
    tenant: String,
    origin: AdmissionOrigin,
    memory_bytes: u64,
    tenant_max: usize,
    runs: bool,
}

/// Returns a request whose tenant has no limit.
fn request(tenant: &str, origin: AdmissionOrigin, memory_bytes: u64) -> TurnRequest<'_> {
    TurnRequest { tenant, origin, memory_bytes, tenant_max: usize::MAX, is_further: false }
}

impl Oracle {
    fn running(&self) -> (usize, u64) {
        let running = self.present.iter().filter(|entry| entry.runs);
        (running.clone().count(), running.map(|entry| entry.memory_bytes).sum())
    }

    fn load(&self) -> AdmissionLoad {
        let (running, memory_bytes) = self.running();
        AdmissionLoad { running, memory_bytes, waiting: self.present.len() - running }
    }

    /// Returns the first waiting request of a tenant and an origin.
    fn first(&self, tenant: &str, origin: AdmissionOrigin) -> Option<usize> {
        self.present.iter().position(|it| !it.runs && it.tenant == tenant && it.origin == origin)
    }

    fn waiting(&self, origin: AdmissionOrigin, tenant: Option<&str>) -> usize {
        let counts = |entry: &&Entry| {
            let theirs = tenant.is_none_or(|tenant| entry.tenant == tenant);
            theirs && !entry.runs && entry.origin == origin
        };
        self.present.iter().filter(counts).count()
    }

    /// Returns whether an entry's tenant has reached its share.
    fn has_share(&self, bounds: AdmissionBounds, entry: &Entry) -> bool {
        let theirs = || self.present.iter().filter(|it| it.runs && it.tenant == entry.tenant);
        let memory_bytes: u64 = theirs().map(|it| it.memory_bytes).sum();
        let (most, all) = (entry.tenant_max as u64, bounds.running_max as u64);
        theirs().count() >= entry.tenant_max
            || (most < all
                && memory_bytes > 0
                && (memory_bytes + entry.memory_bytes) * all > bounds.memory_bytes_max * most)
    }

    /// Moves a tenant to the end, with the first kind from `origin` on of which it has requests.
    fn join(&mut self, tenant: String, origin: AdmissionOrigin) {
        let kinds = [origin, after(origin), after(after(origin))];
        let waits = kinds.into_iter().find(|kind| self.first(&tenant, *kind).is_some());
        self.turns.extend(waits.map(|kind| (tenant, kind)));
    }

    /// Removes tenants that no longer wait; tenants that wait now join at the end.
    fn refresh(&mut self) {
        for Entry { tenant, origin, .. } in self.present.iter().filter(|entry| !entry.runs) {
            if self.turns.iter().all(|(name, _)| name != tenant) {
                self.turns.push((tenant.clone(), *origin));
            }
        }
        for (name, origin) in std::mem::take(&mut self.turns) {
            self.join(name, origin);
        }
    }

    /// Runs the request at its turn, as long as it fits. Returns the started ones, in order.
    fn settle(&mut self, bounds: AdmissionBounds) -> Vec<u64> {
        let mut started = Vec::new();
        loop {
            self.refresh();
            let may_run = |(tenant, origin): &(String, AdmissionOrigin)| {
                !self.has_share(bounds, &self.present[self.first(tenant, *origin).unwrap()])
            };
            let Some(at) = self.turns.iter().position(may_run) else { return started };
            let (tenant, origin) = self.turns[at].clone();
            let first = self.first(&tenant, origin).unwrap();
            let (running, memory_bytes) = self.running();
            let needed = memory_bytes + self.present[first].memory_bytes;
            if running >= bounds.running_max || needed > bounds.memory_bytes_max {
                return started;
            }
            self.present[first].runs = true;
            started.push(self.present[first].number);
            self.turns.remove(at);
            self.join(tenant, after(origin));
        }
    }

    fn arrive(&mut self, bounds: AdmissionBounds, entry: Entry) -> &'static str {
        if entry.memory_bytes > bounds.memory_bytes_max {
            return "too large";
        }
        let before = self.clone();
        let (number, tenant, origin) = (entry.number, entry.tenant.clone(), entry.origin);
        self.present.push(entry);
        if !self.settle(bounds).is_empty() {
            assert!(self.present.iter().any(|entry| entry.number == number && entry.runs));
            return "admitted";
        }
        let (all, of_tenant) = match origin {
            AdmissionOrigin::Caller => (bounds.queue_max, bounds.queue_max_per_tenant),
            AdmissionOrigin::PatientCaller => (bounds.patient_max, bounds.patient_max_per_tenant),
            AdmissionOrigin::Job => return "waits",
        };
        let answer = if self.waiting(origin, None) > all {
            "queue full"
        } else if self.waiting(origin, Some(&tenant)) > of_tenant {
            "tenant full"
        } else {
            return "waits";
        };
        *self = before;
        answer
    }
}

fn origin(pick: u64) -> AdmissionOrigin {
    match pick {
        0 => AdmissionOrigin::Job,
        1 => AdmissionOrigin::PatientCaller,
        _ => AdmissionOrigin::Caller,
    }
}

/// Returns the kind of a tenant's requests that follows this one.
fn after(origin: AdmissionOrigin) -> AdmissionOrigin {
    match origin {
        AdmissionOrigin::Caller => AdmissionOrigin::PatientCaller,
        AdmissionOrigin::PatientCaller => AdmissionOrigin::Job,
        AdmissionOrigin::Job => AdmissionOrigin::Caller,
    }
}

fn simulate(seed: u64, steps: u32) -> [u32; 7] {
    let mut random = Random(seed);
    let bounds = AdmissionBounds {
        running_max: 1 + usize::try_from(random.below(4)).unwrap(),
        running_max_per_tenant: 1 + usize::try_from(random.below(4)).unwrap(),
        limits_tenants: true,
        memory_bytes_max: 10 + random.below(20),
        queue_max: usize::try_from(random.below(8)).unwrap(),
        queue_max_per_tenant: 1 + usize::try_from(random.below(4)).unwrap(),
        patient_max: usize::try_from(random.below(8)).unwrap(),
        patient_max_per_tenant: 1 + usize::try_from(random.below(4)).unwrap(),
    };
    let (mut queue, mut oracle) = (AdmissionQueue::<u64>::new(bounds), Oracle::default());
    let mut tickets: HashMap<u64, AdmissionTicket> = HashMap::new();
    let mut seen = [0; 7];
    for number in 0..u64::from(steps) {
        let pick = usize::try_from(random.below(1000)).unwrap();
        match random.below(5) {
            0..=2 => {
                let tenant = ["a", "b", "c"][pick % 3].to_owned();
                let memory_bytes = 1 + random.below(bounds.memory_bytes_max + 2);
                let origin = origin(random.below(4));
                let tenant_max = bounds.running_max_per_tenant;
                let asked = TurnRequest { tenant_max, ..request(&tenant, origin, memory_bytes) };
                let arrival = queue.arrive(asked);
                let entry = Entry { number, tenant, origin, memory_bytes, tenant_max, runs: false };
                let expected = oracle.arrive(bounds, entry);
                let (answer, kind) = match arrival {
                    ArrivalOutcome::Admitted => ("admitted", 0),
                    ArrivalOutcome::Waits(ticket) => {
                        tickets.insert(number, ticket);
                        assert!(!queue.poll(ticket, &number), "seed {seed} step {number}");
                        ("waits", 1)
                    }
                    ArrivalOutcome::TooLarge { .. } => ("too large", 2),
                    ArrivalOutcome::Full(WaitingBound::All { .. }) => ("queue full", 3),
                    ArrivalOutcome::Full(WaitingBound::Tenant { .. }) => ("tenant full", 4),
                    ArrivalOutcome::AwaitsPart { .. } => panic!("there are no parts"),
                };
                assert_eq!(answer, expected, "seed {seed} step {number}");
                seen[kind] += 1;
            }
            _ if oracle.present.is_empty() => {}
            kind => {
                let entry = oracle.present.remove(pick % oracle.present.len());
                let expected = oracle.settle(bounds);
                // Half of those that were admitted from the queue leave before they notice.
                let ticket = tickets.remove(&entry.number);
                let unnoticed = ticket.filter(|_| !entry.runs || kind == 3);
                let woken = match (ticket, unnoticed) {
                    (_, Some(ticket)) => queue.leave(ticket, &entry.tenant, entry.memory_bytes),
                    (Some(ticket), None) => {
                        assert!(queue.poll(ticket, &0), "seed {seed} step {number}");
                        queue.release(&entry.tenant, entry.memory_bytes)
                    }
                    (None, None) => queue.release(&entry.tenant, entry.memory_bytes),
                };
                seen[if unnoticed.is_some() { 5 } else { 6 }] += 1;
                // Exactly those that started to run now are woken, in order.
                assert_eq!(woken, expected, "seed {seed} step {number}");
            }
        }
        assert_eq!(queue.load(), oracle.load(), "seed {seed} step {number}");
        assert!(queue.turns.iter().all(|(_, line)| line.first().is_some()), "seed {seed}");
    }
    for entry in std::mem::take(&mut oracle.present) {
        match tickets.remove(&entry.number) {
            Some(ticket) => queue.leave(ticket, &entry.tenant, entry.memory_bytes),
            None => queue.release(&entry.tenant, entry.memory_bytes),
        };
    }
    assert_eq!(queue.load(), AdmissionLoad::default(), "seed {seed} leaks");
    assert!(
        queue.granted.is_empty() && queue.turns.is_empty() && queue.usage.is_empty(),
        "seed {seed} leaks"
    );
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

fn bounds() -> AdmissionBounds {
    AdmissionBounds {
        running_max: 2,
        running_max_per_tenant: 2,
        limits_tenants: true,
        memory_bytes_max: 10,
        queue_max: 3,
        queue_max_per_tenant: 2,
        patient_max: 3,
        patient_max_per_tenant: 2,
    }
}

#[test]
fn nobody_overtakes_a_large_request() {
    let mut queue = AdmissionQueue::<char>::new(bounds());
    assert_eq!(queue.arrive(request("a", AdmissionOrigin::Caller, 6)), ArrivalOutcome::Admitted);
    let ArrivalOutcome::Waits(large) = queue.arrive(request("b", AdmissionOrigin::Caller, 8))
    else {
        panic!("it does not fit")
    };
    let ArrivalOutcome::Waits(small) = queue.arrive(request("c", AdmissionOrigin::Caller, 1))
    else {
        panic!("it overtook")
    };
    assert!(!queue.poll(large, &'L') && !queue.poll(small, &'S'));
    assert_eq!(queue.release("a", 6), ['L', 'S']);
}

#[test]
fn when_the_head_gives_up_the_next_may_run() {
    let mut queue = AdmissionQueue::<char>::new(bounds());
    assert_eq!(queue.arrive(request("a", AdmissionOrigin::Caller, 6)), ArrivalOutcome::Admitted);
    let ArrivalOutcome::Waits(large) = queue.arrive(request("b", AdmissionOrigin::Caller, 8))
    else {
        panic!("it does not fit")
    };
    let ArrivalOutcome::Waits(small) = queue.arrive(request("c", AdmissionOrigin::Caller, 1))
    else {
        panic!("it overtook")
    };
    assert!(!queue.poll(large, &'L') && !queue.poll(small, &'S'));
    assert_eq!(queue.leave(large, "b", 8), ['S']);
}

/// A request of a tenant whose share is two of three places and as much of the memory.
fn limited(tenant: &str, memory_bytes: u64) -> TurnRequest<'_> {
    TurnRequest { tenant_max: 2, ..request(tenant, AdmissionOrigin::Caller, memory_bytes) }
}

#[test]
fn a_crowd_leaves_a_place_to_who_comes_next() {
    let bounds = AdmissionBounds { running_max: 3, memory_bytes_max: 9, ..bounds() };
    let mut queue = AdmissionQueue::<char>::new(bounds);
    for _ in 0..2 {
        assert_eq!(queue.arrive(limited("a", 1)), ArrivalOutcome::Admitted);
    }
    let ArrivalOutcome::Waits(ticket) = queue.arrive(limited("a", 1)) else {
        panic!("it has its share")
    };
    assert!(!queue.poll(ticket, &'a'));
    assert_eq!(queue.arrive(limited("b", 1)), ArrivalOutcome::Admitted);
    // The place of another tenant is not for the crowd either.
    assert!(queue.release("b", 1).is_empty());
    assert_eq!(queue.release("a", 1), ['a']);
}

#[test]
fn a_crowd_leaves_memory_to_who_comes_next() {
    let bounds = AdmissionBounds { running_max: 3, memory_bytes_max: 9, ..bounds() };
    let mut queue = AdmissionQueue::<char>::new(bounds);
    assert_eq!(queue.arrive(limited("a", 4)), ArrivalOutcome::Admitted);
    assert!(matches!(queue.arrive(limited("a", 3)), ArrivalOutcome::Waits(_)));
    assert_eq!(queue.arrive(limited("b", 5)), ArrivalOutcome::Admitted);
    // A single program may exceed the tenant's share of memory.
    let mut queue = AdmissionQueue::<char>::new(bounds);
    assert_eq!(queue.arrive(limited("a", 9)), ArrivalOutcome::Admitted);
}

#[test]
fn one_tenant_cannot_fill_the_queue() {
    let mut queue = AdmissionQueue::<char>::new(bounds());
    for _ in 0..2 {
        assert_eq!(
            queue.arrive(request("a", AdmissionOrigin::Caller, 1)),
            ArrivalOutcome::Admitted
        );
    }
    for _ in 0..2 {
        assert!(matches!(
            queue.arrive(request("a", AdmissionOrigin::Caller, 1)),
            ArrivalOutcome::Waits(_)
        ));
    }
    assert_eq!(
        queue.arrive(request("a", AdmissionOrigin::Caller, 1)),
        ArrivalOutcome::Full(WaitingBound::Tenant { waiting_max: 2 })
    );
    assert!(matches!(
        queue.arrive(request("b", AdmissionOrigin::Caller, 1)),
        ArrivalOutcome::Waits(_)
    ));
    assert_eq!(
        queue.arrive(request("b", AdmissionOrigin::Caller, 1)),
        ArrivalOutcome::Full(WaitingBound::All { queue_max: 3 })
    );
    assert_eq!(
        queue.arrive(request("b", AdmissionOrigin::Caller, 11)),
        ArrivalOutcome::TooLarge { memory_bytes_max: 10 }
    );
}

/// All arrive while one place is taken, and run one by one. `a` is a caller of a tenant, `A` its
/// job.
fn check_order(arrivals: &str, expected: &str) {
    let mut queue = AdmissionQueue::<String>::new(AdmissionBounds {
        running_max: 1,
        running_max_per_tenant: 1,
        limits_tenants: true,
        memory_bytes_max: 10,
        queue_max: 1000,
        queue_max_per_tenant: 1000,
        patient_max: 3,
        patient_max_per_tenant: 2,
    });
    assert_eq!(
        queue.arrive(request("first", AdmissionOrigin::Caller, 1)),
        ArrivalOutcome::Admitted
    );
    let mut numbers: HashMap<char, u32> = HashMap::new();
    for name in arrivals.chars() {
        let number = numbers.entry(name).and_modify(|it| *it += 1).or_insert(1);
        let origin =
            if name.is_uppercase() { AdmissionOrigin::Job } else { AdmissionOrigin::Caller };
        let arrival = queue.arrive(request(&name.to_lowercase().to_string(), origin, 1));
        let ArrivalOutcome::Waits(ticket) = arrival else { panic!("{arrivals}: {arrival:?}") };
        assert!(!queue.poll(ticket, &format!("{name}{number}")));
    }
    let mut order = vec!["first".to_owned()];
    for _ in arrivals.chars() {
        let tenant = order.last().unwrap().trim_end_matches(char::is_numeric).to_lowercase();
        order.extend(queue.release(&tenant, 1));
    }
    order.remove(0);
    assert_eq!(order.join(" "), expected, "{arrivals}");
}

#[test]
fn tenants_that_wait_take_turns() {
    check_order("aaa", "a1 a2 a3");
    check_order("aaaab", "a1 b1 a2 a3 a4");
    check_order("aaaabbc", "a1 b1 c1 a2 b2 a3 a4");
    // Jobs take the same turns.
    check_order("aaaaB", "a1 B1 a2 a3 a4");
    check_order("AAaab", "A1 b1 a1 A2 a2");
    // A tenant's jobs do not wait for all of its callers, nor these for all of its jobs.
    check_order("aaaAA", "a1 A1 a2 A2 a3");
    check_order("AAAa", "A1 a1 A2 A3");
}

#[test]
fn one_behind_a_crowd_is_second() {
    check_order(
        &("a".repeat(60) + "B"),
        &["a1", "B1"]
            .into_iter()
            .map(String::from)
            .chain((2..=60).map(|number| format!("a{number}")))
            .collect::<Vec<_>>()
            .join(" "),
    );
}

#[test]
fn jobs_may_always_wait_and_take_no_caller_s_room() {
    let mut queue = AdmissionQueue::<char>::new(bounds());
    for _ in 0..2 {
        assert_eq!(queue.arrive(request("a", AdmissionOrigin::Job, 1)), ArrivalOutcome::Admitted);
    }
    for _ in 0..9 {
        assert!(matches!(
            queue.arrive(request("a", AdmissionOrigin::Job, 1)),
            ArrivalOutcome::Waits(_)
        ));
    }
    for _ in 0..2 {
        assert!(matches!(
            queue.arrive(request("a", AdmissionOrigin::Caller, 1)),
            ArrivalOutcome::Waits(_)
        ));
    }
    assert_eq!(
        queue.arrive(request("a", AdmissionOrigin::Caller, 1)),
        ArrivalOutcome::Full(WaitingBound::Tenant { waiting_max: 2 })
    );
    assert!(matches!(
        queue.arrive(request("b", AdmissionOrigin::Caller, 1)),
        ArrivalOutcome::Waits(_)
    ));
    assert_eq!(
        queue.arrive(request("c", AdmissionOrigin::Caller, 1)),
        ArrivalOutcome::Full(WaitingBound::All { queue_max: 3 })
    );
    assert!(matches!(
        queue.arrive(request("c", AdmissionOrigin::Job, 1)),
        ArrivalOutcome::Waits(_)
    ));
    assert_eq!(
        queue.arrive(request("c", AdmissionOrigin::Job, 11)),
        ArrivalOutcome::TooLarge { memory_bytes_max: 10 }
    );
    assert_eq!(queue.load().waiting, 13);
}

#[test]
fn a_turn_that_does_not_fit_is_kept() {
    let mut queue = AdmissionQueue::<char>::new(bounds());
    assert_eq!(queue.arrive(request("a", AdmissionOrigin::Caller, 5)), ArrivalOutcome::Admitted);
    assert_eq!(queue.arrive(request("a", AdmissionOrigin::Caller, 5)), ArrivalOutcome::Admitted);
    for (tenant, memory_bytes, name) in [("b", 8, 'L'), ("b", 1, 's'), ("c", 1, 'S')] {
        let arrival = queue.arrive(request(tenant, AdmissionOrigin::Caller, memory_bytes));
        let ArrivalOutcome::Waits(ticket) = arrival else { panic!("{arrival:?}") };
        assert!(!queue.poll(ticket, &name));
    }
    // There is room for the small ones, and a place; but neither another tenant's request runs, nor
    // its own, nor a new one, even if it is a job.
    assert!(queue.release("a", 5).is_empty());
    let ArrivalOutcome::Waits(job) = queue.arrive(request("b", AdmissionOrigin::Job, 1)) else {
        panic!("it overtook")
    };
    assert!(!queue.poll(job, &'J'));
    assert_eq!(queue.release("a", 5), ['L', 'S']);
    // Its own follow the other tenant's, and alternate.
    assert_eq!(queue.release("b", 8), ['J']);
    assert_eq!(queue.release("b", 1), ['s']);
}

#[test]
fn a_crowd_of_patient_callers_is_bounded_and_takes_no_caller_s_place() {
    let mut queue = AdmissionQueue::<u8>::new(AdmissionBounds { running_max: 1, ..bounds() });
    let patient = AdmissionOrigin::PatientCaller;
    assert_eq!(queue.arrive(request("a", patient, 1)), ArrivalOutcome::Admitted);
    let mut arrive = |tenant, origin| queue.arrive(request(tenant, origin, 1));
    for _ in 0..2 {
        assert!(matches!(arrive("a", patient), ArrivalOutcome::Waits(_)));
    }
    assert_eq!(arrive("a", patient), ArrivalOutcome::Full(WaitingBound::Tenant { waiting_max: 2 }));
    assert!(matches!(arrive("b", patient), ArrivalOutcome::Waits(_)));
    assert_eq!(arrive("c", patient), ArrivalOutcome::Full(WaitingBound::All { queue_max: 3 }));
    for tenant in ["a", "b"] {
        assert!(matches!(arrive(tenant, AdmissionOrigin::Caller), ArrivalOutcome::Waits(_)));
    }
}

/// Returns the maximum number of requests that start before a waiting one: its line has every third
/// turn of its tenant, and between two turns of a tenant every other tenant has one.
fn starve(seed: u64) -> u64 {
    const TENANTS: u64 = 6;
    let mut random = Random(seed);
    let bounds = AdmissionBounds {
        running_max: 1 + usize::try_from(random.below(4)).unwrap(),
        running_max_per_tenant: usize::MAX,
        limits_tenants: true,
        memory_bytes_max: 10,
        queue_max: 400,
        queue_max_per_tenant: 200,
        patient_max: 400,
        patient_max_per_tenant: 200,
    };
    let mut queue = AdmissionQueue::<u64>::new(bounds);
    // For each waiting request: the number started when it arrived, and the number that may start
    // before it.
    let mut waiting: HashMap<u64, (u64, u64, (String, u64))> = HashMap::new();
    let (mut running, mut started, mut behind) = (Vec::new(), 0, 0);
    for number in 0..3000 {
        // One tenant is a crowd; in the last third no requests arrive.
        let crowd = random.below(4) > 0;
        let tenant = if crowd { 0 } else { random.below(TENANTS) }.to_string();
        let origin = origin(random.below(8));
        let memory_bytes_max = if random.below(10) == 0 { 10 } else { 3 };
        let memory_bytes = 1 + random.below(memory_bytes_max);
        let known = queue.turns.get(tenant.as_str()).map(|(_, line)| line);
        let ahead = known.map_or(0, |it| u64::try_from(it.line(origin).len()).unwrap());
        if number < 2000 {
            match queue.arrive(request(&tenant, origin, memory_bytes)) {
                ArrivalOutcome::Admitted => {
                    started += 1;
                    running.push((tenant, memory_bytes));
                }
                ArrivalOutcome::Waits(ticket) => {
                    assert!(!queue.poll(ticket, &number));
                    let turns_max = 3 * (ahead + 1) * TENANTS;
                    waiting.insert(number, (started, turns_max, (tenant, memory_bytes)));
                }
                ArrivalOutcome::TooLarge { .. } => panic!("it fits"),
                ArrivalOutcome::AwaitsPart { .. } => panic!("there are no parts"),
                ArrivalOutcome::Full(_) => {}
            }
        }
        if !running.is_empty() && (number >= 2000 || random.below(3) > 0) {
            let at = usize::try_from(random.below(u64::MAX)).unwrap() % running.len();
            let (tenant, memory_bytes) = running.swap_remove(at);
            for woken in queue.release(&tenant, memory_bytes) {
                let (at_arrival, turns_max, program) = waiting.remove(&woken).unwrap();
                assert!(started - at_arrival < turns_max, "seed {seed}: {woken} starved");
                behind = behind.max(started - at_arrival);
                started += 1;
                running.push(program);
            }
        }
        assert!(queue.load().memory_bytes <= 10 && queue.load().running <= bounds.running_max);
    }
    assert!(waiting.is_empty(), "seed {seed}: {} never started", waiting.len());
    behind
}

#[test]
fn nobody_starves() {
    // A request waited for many turns; otherwise the test proves nothing.
    assert!((0..100).map(starve).max() > Some(100));
}

/// A tenant may run two of three, and this node has a part of that.
fn with_part(tenant: &str, part: usize) -> HashMap<String, usize> {
    HashMap::from([(tenant.to_owned(), part)])
}

#[test]
fn a_tenant_runs_this_node_s_part_of_its_limit() {
    let mut queue = AdmissionQueue::<char>::new(AdmissionBounds { running_max: 3, ..bounds() });
    assert!(queue.set_parts(HashMap::new()).is_empty());
    let ArrivalOutcome::Waits(first) = queue.arrive(limited("a", 1)) else {
        panic!("this node has no part")
    };
    assert!(!queue.poll(first, &'1'));
    // A request without a limit needs no part, and is not blocked.
    let free = request("b", AdmissionOrigin::Caller, 1);
    assert_eq!(queue.arrive(free), ArrivalOutcome::Admitted);
    let wants = |bound, running, waiting| TenantPartUse { bound, running, waiting };
    assert_eq!(queue.part_uses()["a"], wants(0, 0, 1));
    assert_eq!(queue.set_parts(with_part("a", 1)), ['1']);
    assert!(queue.poll(first, &'1'));
    let ArrivalOutcome::Waits(second) = queue.arrive(limited("a", 1)) else {
        panic!("its part is used up")
    };
    assert!(!queue.poll(second, &'2'));
    assert_eq!(queue.part_uses()["a"], wants(1, 1, 1));
    assert!(queue.wants_part("a", 2) && !queue.wants_part("a", 1));
    assert!(!queue.wants_part("b", usize::MAX));
    // Smaller than the number that runs: those continue, and no more start.
    assert!(queue.set_parts(HashMap::new()).is_empty());
    assert!(queue.release("a", 1).is_empty());
    assert_eq!(queue.set_parts(with_part("a", 1)), ['2']);
    assert_eq!(queue.leave(second, "a", 1), ['2'; 0]);
    assert_eq!(queue.part_uses()["a"], wants(1, 0, 0));
    // A larger part does not raise the limit.
    queue.set_parts(with_part("a", 9));
    for _ in 0..2 {
        assert_eq!(queue.arrive(limited("a", 1)), ArrivalOutcome::Admitted);
    }
    assert!(matches!(queue.arrive(limited("a", 1)), ArrivalOutcome::Waits(_)));
}

#[test]
fn a_limit_that_was_not_set_has_no_parts() {
    let bounds = AdmissionBounds { limits_tenants: false, ..bounds() };
    let mut queue = AdmissionQueue::<char>::new(bounds);
    queue.set_parts(HashMap::new());
    assert!(!queue.has_parts());
    assert_eq!(queue.arrive(limited("a", 1)), ArrivalOutcome::Admitted);
    queue.set_bounds(AdmissionBounds { limits_tenants: true, ..bounds });
    assert!(queue.has_parts());
    assert!(matches!(queue.arrive(limited("a", 1)), ArrivalOutcome::Waits(_)));
}

#[test]
fn programs_that_run_together_count_once_in_a_part() {
    let mut queue = AdmissionQueue::<char>::new(AdmissionBounds { running_max: 4, ..bounds() });
    queue.set_parts(with_part("a", 1));
    let further = || TurnRequest { is_further: true, ..limited("a", 1) };
    assert_eq!(queue.arrive(limited("a", 1)), ArrivalOutcome::Admitted);
    assert_eq!(queue.arrive(further()), ArrivalOutcome::Admitted);
    assert_eq!(queue.part_uses()["a"].running, 1);
    // A further program that waits requests no part.
    let ArrivalOutcome::Waits(ticket) = queue.arrive(further()) else {
        panic!("its tenant has its share")
    };
    assert!(!queue.poll(ticket, &'f'));
    assert_eq!(queue.part_uses()["a"], TenantPartUse { bound: 1, running: 1, waiting: 0 });
    assert_eq!(queue.release("a", 1), ['f']);
    assert_eq!(queue.part_uses()["a"].running, 0);
    assert!(queue.leave(ticket, "a", 1).is_empty());
    assert!(queue.release_further("a", 1).is_empty());
    assert_eq!(queue.load().running, 0);
    assert!(queue.usage.is_empty());
}

#[test]
fn the_first_of_a_tenant_wait_for_this_node_s_part_where_nobody_may_wait() {
    let bounds = AdmissionBounds { queue_max: 0, ..bounds() };
    let full = WaitingBound::All { queue_max: 0 };
    let mut queue = AdmissionQueue::<char>::new(bounds);
    queue.set_parts(HashMap::new());
    let awaits = |queue: &mut AdmissionQueue<char>| match queue.arrive(limited("a", 1)) {
        ArrivalOutcome::AwaitsPart { ticket, full: found } if found == full => ticket,
        other => panic!("{other:?}"),
    };
    let tickets = [awaits(&mut queue), awaits(&mut queue)];
    assert!(tickets.iter().all(|ticket| !queue.poll(*ticket, &'w')));
    // There are places for two.
    assert_eq!(queue.arrive(limited("a", 1)), ArrivalOutcome::Full(full));
    assert_eq!(queue.part_uses()["a"].waiting, 2);
    assert_eq!(queue.set_parts(with_part("a", 1)), ['w']);
    // A tenant that has a part, and uses it, is subject to the limit.
    assert_eq!(queue.arrive(limited("a", 1)), ArrivalOutcome::Full(full));
    assert!(queue.leave(tickets[1], "a", 1).is_empty());
    assert!(queue.poll(tickets[0], &'w'));
    // Another tenant's first request waits beside it, unless there is no place.
    assert!(matches!(queue.arrive(limited("b", 1)), ArrivalOutcome::AwaitsPart { .. }));
    assert_eq!(queue.arrive(limited("c", 10)), ArrivalOutcome::Full(full));
}
