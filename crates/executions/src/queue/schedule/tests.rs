//! The schedule against a naive model, and its guarantees for tenants.

use proptest::prelude::*;

use super::*;

const AGEING: Duration = Duration::from_millis(1_000);

fn job(id: &str, tenant: &str, priority: i32, created_ms: u64) -> WaitingJob {
    let (id, tenant) = (ExecutionId(id.to_owned()), tenant.to_owned());
    WaitingJob { id, tenant, priority, created_ms, deadline_ms: None, bytes: 0 }
}

/// Takes jobs of any tenant.
fn take(schedule: &mut JobSchedule, count_max: usize, now_ms: u64) -> Vec<WaitingJob> {
    schedule.take(count_max, &mut ClaimQuota::unlimited(), now_ms).jobs
}

/// Inserts jobs `id tenant priority created` and checks the order in which they are taken.
fn check(jobs: &[(&str, &str, i32, u64)], expected: &str) {
    let mut schedule = JobSchedule::new(AGEING);
    for (id, tenant, priority, created_ms) in jobs {
        schedule.insert(job(id, tenant, *priority, *created_ms));
    }
    for (index, id) in expected.split(' ').enumerate() {
        let position = schedule.position(&ExecutionId(id.to_owned()));
        assert_eq!(position, u64::try_from(index).ok(), "of {id}");
    }
    let taken = take(&mut schedule, usize::MAX, 0);
    let taken: Vec<&str> = taken.iter().map(|it| it.id.0.as_str()).collect();
    assert_eq!(taken.join(" "), expected);
    assert!(schedule.is_empty());
}

#[test]
fn one_tenant_is_served_by_priority_age_and_id() {
    check(&[("1", "a", 0, 0), ("2", "a", 0, 0), ("3", "a", 0, 5)], "1 2 3");
    check(&[("2", "a", 0, 7), ("1", "a", 0, 7)], "1 2");
    check(&[("1", "a", 0, 0), ("2", "a", 1, 0), ("3", "a", -1, 0)], "2 1 3");
    // A step of priority is worth one second of waiting, not more.
    check(&[("1", "a", 0, 0), ("2", "a", 1, 999)], "2 1");
    check(&[("1", "a", 0, 0), ("2", "a", 1, 1_000)], "1 2");
    check(&[("1", "a", -100, 0), ("2", "a", 100, 200_001)], "1 2");
}

#[test]
fn tenants_take_turns_whatever_their_priorities() {
    let crowd = [("1", "a", 9, 0), ("2", "a", 9, 0), ("3", "a", 9, 0), ("4", "b", 0, 9)];
    check(&crowd, "1 4 2 3");
    let three = [("1", "a", 0, 0), ("2", "a", 0, 0), ("3", "b", 0, 0), ("4", "c", 0, 0)];
    check(&three, "1 3 4 2");
}

#[test]
fn a_tenant_that_has_its_quota_in_hand_is_passed_over() {
    let mut schedule = JobSchedule::new(AGEING);
    for number in 0..4 {
        schedule.insert(job(&format!("a{number}"), "a", 0, number));
    }
    for number in 0..3 {
        schedule.insert(job(&format!("b{number}"), "b", 0, number));
    }
    let mut quota = ClaimQuota::new(2, HashMap::from([("a".to_owned(), 1)]));
    let taken = schedule.take(9, &mut quota, 0);
    let ids: Vec<&str> = taken.jobs.iter().map(|it| it.id.0.as_str()).collect();
    assert_eq!(ids, ["a0", "b0", "b1"]);
    assert!(schedule.take(9, &mut quota, 0).jobs.is_empty(), "both have two");
    assert_eq!((schedule.of_tenant("a"), schedule.of_tenant("b")), (3, 1));
    // No other tenant lost a job by it.
    let rest: Vec<String> = take(&mut schedule, 9, 0).into_iter().map(|it| it.id.0).collect();
    assert_eq!(rest.len(), 4);
    assert_eq!(rest.iter().filter(|id| id.starts_with('a')).count(), 3);
}

proptest! {
    /// A claim takes what quotas allow, and leaves a job only if its tenant's quota is used up.
    #[test]
    fn quotas_hold_and_nothing_else_is_left(
        waiting in proptest::collection::vec(0_usize..6, 1..5),
        in_hand in proptest::collection::vec(0_usize..4, 5),
        most in 0_usize..5,
        count_max in 0_usize..20,
    ) {
        let mut schedule = JobSchedule::new(AGEING);
        let name = |tenant: usize| format!("t{tenant}");
        for (tenant, count) in waiting.iter().enumerate() {
            for number in 0..*count {
                schedule.insert(job(&format!("{tenant}-{number}"), &name(tenant), 0, 0));
            }
        }
        let held = |tenant: usize| in_hand.get(tenant).copied().unwrap_or(0);
        let has_some = (0..waiting.len()).filter(|tenant| held(*tenant) > 0);
        let held_now = has_some.map(|tenant| (name(tenant), held(tenant))).collect();
        let mut quota = ClaimQuota::new(most, held_now);
        let taken = schedule.take(count_max, &mut quota, 0).jobs;
        prop_assert!(taken.len() <= count_max);
        for (tenant, count) in waiting.iter().enumerate() {
            let of_tenant = taken.iter().filter(|job| job.tenant == name(tenant)).count();
            let left = most.saturating_sub(held(tenant));
            prop_assert!(of_tenant <= left);
            if taken.len() < count_max {
                prop_assert_eq!(of_tenant, left.min(*count));
            }
        }
    }
}

#[test]
fn a_tenant_that_comes_late_is_not_owed_the_past() {
    let mut schedule = JobSchedule::new(AGEING);
    for number in 0..10 {
        schedule.insert(job(&format!("a{number}"), "a", 0, number));
    }
    assert_eq!(take(&mut schedule, 5, 0).len(), 5);
    for number in 0..5 {
        schedule.insert(job(&format!("b{number}"), "b", 0, number));
    }
    let order: Vec<String> = take(&mut schedule, 4, 0).into_iter().map(|it| it.tenant).collect();
    assert_eq!(order, ["a", "b", "a", "b"]);
}

#[test]
fn what_is_past_its_deadline_is_not_taken() {
    let mut schedule = JobSchedule::new(AGEING);
    for (id, deadline_ms) in [("1", Some(10)), ("2", None), ("3", Some(11))] {
        schedule.insert(WaitingJob { deadline_ms, ..job(id, "a", 0, 0) });
    }
    let taken: Vec<String> = take(&mut schedule, 9, 10).into_iter().map(|it| it.id.0).collect();
    assert_eq!(taken, ["2", "3"]);
    assert!(schedule.is_empty() && schedule.deadlines.is_empty());
}

/// The order by its definition, examining every job each time.
#[derive(Default)]
struct Naive {
    ring: Vec<String>,
    jobs: Vec<WaitingJob>,
}

impl Naive {
    fn insert(&mut self, job: WaitingJob) {
        if !self.ring.contains(&job.tenant) {
            self.ring.push(job.tenant.clone());
        }
        self.jobs.push(job);
    }

    fn take(&mut self, now_ms: u64) -> Option<WaitingJob> {
        self.jobs.retain(|job| job.deadline_ms.is_none_or(|at| at > now_ms));
        while !self.ring.is_empty() {
            let tenant = self.ring.remove(0);
            // Effective priority in thousandths of a step, so that there is no rounding.
            let effective = |job: &WaitingJob| {
                let waited = i128::from(now_ms) - i128::from(job.created_ms);
                i128::from(job.priority) * 1_000 + waited * 1_000 / 1_000
            };
            let of_tenant = self.jobs.iter().enumerate().filter(|(_, job)| job.tenant == tenant);
            let best =
                of_tenant.min_by_key(|(_, job)| (-effective(job), job.created_ms, job.id.clone()));
            if let Some((index, _)) = best {
                self.ring.push(tenant);
                return Some(self.jobs.remove(index));
            }
        }
        None
    }
}

/// Numbers from a seed, by a linear congruence: the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn simulate(seed: u64, steps: u64) {
    let mut random = Random(seed);
    let (mut schedule, mut naive) = (JobSchedule::new(AGEING), Naive::default());
    let mut now_ms = 1_000_000;
    for step in 0..steps {
        now_ms += random.below(300);
        match random.below(10) {
            0..=4 => {
                let tenant = format!("t{}", random.below(6));
                let priority = i32::try_from(random.below(9)).unwrap() - 4;
                let lasts = random.below(20_000);
                let deadline_ms = (random.below(5) == 0).then_some(now_ms + lasts);
                let job = WaitingJob {
                    deadline_ms,
                    ..job(&format!("{step:08}"), &tenant, priority, now_ms)
                };
                schedule.insert(job.clone());
                naive.insert(job);
            }
            5 if !naive.jobs.is_empty() => {
                let count = u64::try_from(naive.jobs.len()).unwrap();
                let index = usize::try_from(random.below(count)).unwrap();
                let gone = naive.jobs.remove(index);
                schedule.remove(&gone.id);
            }
            _ => {
                let expected = naive.take(now_ms);
                if let Some(job) = &expected {
                    schedule.drop_overdue(now_ms);
                    assert_eq!(schedule.position(&job.id), Some(0), "seed {seed}, step {step}");
                }
                let taken = take(&mut schedule, 1, now_ms).pop();
                assert_eq!(taken, expected, "seed {seed}, step {step}");
            }
        }
    }
}

#[test]
fn a_long_simulation_equals_the_naive_model() {
    for seed in 0..20 {
        simulate(seed, 3_000);
    }
}

#[test]
fn no_tenant_starves_and_ageing_bounds_the_wait() {
    let mut schedule = JobSchedule::new(AGEING);
    // One tenant sends urgent work faster than it is processed; a single low-priority job of its
    // own and one of another tenant arrived with its first job.
    schedule.insert(job("dull", "crowd", -5, 0));
    schedule.insert(job("single", "other", -100, 0));
    let mut done: HashMap<String, u64> = HashMap::new();
    for now_ms in 0..40_000_u64 {
        schedule.insert(job(&format!("{now_ms:08}"), "crowd", 5, now_ms));
        if now_ms % 2 == 0 {
            for job in take(&mut schedule, 1, now_ms) {
                done.insert(job.id.0, now_ms);
            }
        }
    }
    // In the next round, although its priority is the lowest possible.
    assert!(done["single"] <= 4, "{}", done["single"]);
    // Ten steps of priority are ten seconds; then all jobs that are more urgent and older run
    // first, which takes as much time again at half the speed.
    assert!((10_000..=20_010).contains(&done["dull"]), "{}", done["dull"]);
}

proptest! {
    #[test]
    fn positions_are_the_order_of_taking(
        jobs in prop::collection::vec((0..5_u8, -3..4_i32, 0..9_000_u64), 1..400),
    ) {
        let mut schedule = JobSchedule::new(AGEING);
        for (index, (tenant, priority, created_ms)) in jobs.iter().enumerate() {
            let (id, tenant) = (format!("{index:04}"), tenant.to_string());
            schedule.insert(job(&id, &tenant, *priority, *created_ms));
        }
        let mut positions: Vec<(u64, String)> = (0..jobs.len())
            .map(|index| format!("{index:04}"))
            .map(|id| (schedule.position(&ExecutionId(id.clone())).unwrap(), id))
            .collect();
        positions.sort();
        let taken = take(&mut schedule, usize::MAX, 0);
        let taken: Vec<String> = taken.into_iter().map(|it| it.id.0).collect();
        let expected: Vec<String> = positions.into_iter().map(|(_, id)| id).collect();
        prop_assert_eq!(taken, expected);
    }

    #[test]
    fn the_sorted_set_equals_that_of_the_standard_library(
        steps in prop::collection::vec((0..4_u8, 0..2_000_u32), 0..3_000),
    ) {
        let (mut ours, mut theirs) = (OrderedRuns::default(), BTreeSet::new());
        for (kind, number) in steps {
            match kind {
                0 | 1 => {
                    ours.insert(number);
                    theirs.insert(number);
                }
                2 => prop_assert_eq!(ours.remove(&number), theirs.remove(&number)),
                _ => prop_assert_eq!(ours.before(&number), theirs.range(..number).count()),
            }
            prop_assert_eq!(ours.len(), theirs.len());
        }
        while let Some(first) = theirs.pop_first() {
            prop_assert_eq!(ours.pop_first(), Some(first));
        }
        prop_assert_eq!(ours.pop_first(), None);
    }
}
