//! The queue by its definition, in plain maps, and random operations that compare it with a back
//! end.
//!
//! The model does not determine the order of tenants: it accepts the back end's claims and checks
//! that each was the best of its tenant, and that as many were claimed as possible.

use std::collections::{BTreeMap, HashMap};

use super::super::schedule::rank;
use super::*;

/// The configuration of a comparison: tight enough that its limits are reached.
pub(crate) fn config() -> QueueConfig {
    QueueConfig {
        queued_max: 60,
        queued_max_per_tenant: 25,
        queued_bytes_max: 3_000,
        queued_bytes_max_per_tenant: 1_200,
        lease: Duration::from_secs(3),
        attempts_max: 2,
        ageing: Duration::from_secs(1),
        keep: Duration::from_secs(40),
        kept_max: 80,
        kept_bytes_max: 5_000,
    }
}

/// Numbers from a seed, the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    /// Returns a random element.
    fn of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        let count = u64::try_from(all.len()).unwrap();
        (count > 0).then(|| all[usize::try_from(self.below(count)).unwrap()].clone())
    }
}

#[derive(Clone)]
struct Entry {
    job: QueuedJob,
    /// The deadline that still applies.
    expires_ms: Option<u64>,
    key: Option<IdempotencyMark>,
    webhook: bool,
    lease_until_ms: u64,
    token: Option<String>,
    cancel_wanted: bool,
    due_ms: Option<u64>,
    deliveries: u32,
}

impl Entry {
    /// Bytes of its request, of its face's data, and of its result.
    fn bytes(&self) -> u64 {
        let length = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
        let face = self.job.face.as_ref().map_or(0, String::len);
        u64::try_from(length(&self.job.request) + face + length(&self.job.result)).unwrap()
    }

    /// Puts the job into a final state.
    fn end(&mut self, state: ExecutionState, now_ms: u64) {
        (self.job.state, self.job.finished_ms, self.token) = (state, Some(now_ms), None);
        (self.due_ms, self.deliveries) = (self.webhook.then_some(now_ms), 0);
    }

    /// Records a failure of Cove.
    fn fail(&mut self, now_ms: u64, config: &QueueConfig) {
        if self.cancel_wanted {
            self.end(ExecutionState::Cancelled, now_ms);
        } else if self.job.attempts >= config.attempts_max {
            self.end(ExecutionState::Dead, now_ms);
        } else {
            (self.job.state, self.token) = (ExecutionState::Queued, None);
        }
    }
}

struct Model {
    config: QueueConfig,
    jobs: BTreeMap<ExecutionId, Entry>,
    paused: bool,
}

impl Model {
    fn waiting(&self, now_ms: u64) -> impl Iterator<Item = &Entry> {
        let may_run = move |entry: &&Entry| entry.expires_ms.is_none_or(|at| at > now_ms);
        self.in_state(ExecutionState::Queued).filter(may_run)
    }

    fn in_state(&self, state: ExecutionState) -> impl Iterator<Item = &Entry> {
        self.jobs.values().filter(move |entry| entry.job.state == state)
    }

    /// Returns the outcomes of a batch; `None` if it is refused.
    fn push(&mut self, batch: &[NewJob]) -> Option<Vec<PushOutcome>> {
        let saved = self.jobs.clone();
        let mut pushed = Vec::new();
        for new in batch {
            let same_key = |entry: &&Entry| {
                let key = |it: &IdempotencyMark| it.key.clone();
                entry.job.tenant == new.tenant
                    && new.idempotency.is_some()
                    && entry.key.as_ref().map(key) == new.idempotency.as_ref().map(key)
            };
            match self.jobs.values().find(same_key) {
                Some(entry) if entry.key == new.idempotency => {
                    pushed.push(PushOutcome::Before(entry.job.id.clone()));
                }
                Some(_) => {
                    self.jobs = saved;
                    return None;
                }
                None => {
                    self.jobs.insert(new.id.clone(), entry(new));
                    pushed.push(PushOutcome::New);
                }
            }
        }
        let mut tenants: HashMap<&str, (u64, u64)> = HashMap::new();
        for entry in self.in_state(ExecutionState::Queued) {
            let (count, bytes) = tenants.entry(&entry.job.tenant).or_default();
            (*count, *bytes) = (*count + 1, *bytes + entry.bytes());
        }
        let config = &self.config;
        let is_tenant_full = |new: &&NewJob| {
            let (count, bytes) = tenants.get(new.tenant.as_str()).copied().unwrap_or((0, 0));
            count > config.queued_max_per_tenant || bytes > config.queued_bytes_max_per_tenant
        };
        // Returned jobs are never refused, so there may be more than the maximum already; that only
        // affects tenants that add jobs.
        let added = batch.iter().zip(&pushed).filter(|(_, it)| **it == PushOutcome::New);
        let added: Vec<&NewJob> = added.map(|(new, _)| new).collect();
        let count: u64 = tenants.values().map(|it| it.0).sum();
        let bytes: u64 = tenants.values().map(|it| it.1).sum();
        let is_over = count > config.queued_max || bytes > config.queued_bytes_max;
        if is_over && !added.is_empty() || added.iter().any(is_tenant_full) {
            self.jobs = saved;
            return None;
        }
        Some(pushed)
    }

    /// Records claimed jobs, after checking that they could be claimed.
    fn claim(&mut self, max: usize, claims: &[JobClaim], now_ms: u64) {
        let could = if self.paused { 0 } else { self.waiting(now_ms).count().min(max) };
        assert_eq!(claims.len(), could);
        for claim in claims {
            let ageing = self.config.ageing;
            let of_tenant = self.waiting(now_ms).filter(|it| it.job.tenant == claim.tenant);
            let order = |it: &&Entry| {
                let job = &it.job;
                (rank(job.priority, job.created_ms, ageing), job.created_ms, job.id.clone())
            };
            let best = of_tenant.min_by_key(order).map(|it| it.job.id.clone());
            assert_eq!(Some(&claim.lease.id), best.as_ref());
            let entry = self.jobs.get_mut(&claim.lease.id).unwrap();
            entry.job.state = ExecutionState::Running;
            entry.job.started_ms = Some(now_ms);
            entry.job.attempts += 1;
            assert_eq!(claim.attempt, entry.job.attempts);
            entry.token = Some(claim.lease.token.clone());
            entry.cancel_wanted = false;
            entry.lease_until_ms = now_ms + 3_000;
        }
    }

    fn held(&mut self, lease: &JobLease) -> Option<&mut Entry> {
        let entry = self.jobs.get_mut(&lease.id)?;
        (entry.token.as_ref() == Some(&lease.token)).then_some(entry)
    }

    fn beat(&mut self, lease: &JobLease, now_ms: u64) -> LeaseRenewal {
        let Some(entry) = self.held(lease) else {
            return LeaseRenewal::Lost;
        };
        entry.lease_until_ms = now_ms + 3_000;
        if entry.cancel_wanted { LeaseRenewal::CancelWanted } else { LeaseRenewal::Held }
    }

    fn finish(
        &mut self,
        lease: &JobLease,
        finish: &AttemptResult,
        now_ms: u64,
    ) -> AttemptDisposition {
        let config = self.config.clone();
        let Some(entry) = self.held(lease) else {
            return AttemptDisposition::Fenced;
        };
        match finish {
            AttemptResult::Result(result) => {
                entry.end(ExecutionState::Finished, now_ms);
                entry.job.result = Some(result.clone());
            }
            AttemptResult::Cancelled { .. } => entry.end(ExecutionState::Cancelled, now_ms),
            AttemptResult::Failed { .. } => entry.fail(now_ms, &config),
            AttemptResult::Returned if entry.cancel_wanted => {
                entry.end(ExecutionState::Cancelled, now_ms)
            }
            AttemptResult::Returned => {
                (entry.job.state, entry.token) = (ExecutionState::Queued, None);
                entry.job.attempts -= 1;
                if entry.job.attempts == 0 {
                    entry.job.started_ms = None;
                }
            }
        }
        AttemptDisposition::Now(entry.job.state)
    }

    fn cancel(&mut self, tenant: &str, id: &ExecutionId, now_ms: u64) -> CancelAnswer {
        let Some(entry) = self.jobs.get_mut(id).filter(|it| it.job.tenant == tenant) else {
            return CancelAnswer::Unknown;
        };
        match entry.job.state {
            ExecutionState::Queued => {
                entry.end(ExecutionState::Cancelled, now_ms);
                CancelAnswer::Cancelled
            }
            ExecutionState::Running => {
                entry.cancel_wanted = true;
                CancelAnswer::Running
            }
            ended => CancelAnswer::Ended(ended),
        }
    }

    fn sweep(&mut self, now_ms: u64) -> QueueSweepReport {
        let (mut swept, config) = (QueueSweepReport::default(), self.config.clone());
        for (id, entry) in &mut self.jobs {
            if entry.job.state == ExecutionState::Running && entry.lease_until_ms <= now_ms {
                entry.fail(now_ms, &config);
                match entry.job.state {
                    ExecutionState::Queued => swept.requeued.push(id.clone()),
                    ended => swept.ended.push((id.clone(), ended)),
                }
            }
            let is_over = entry.expires_ms.is_some_and(|at| at <= now_ms);
            if entry.job.state == ExecutionState::Queued && is_over {
                entry.end(ExecutionState::Expired, now_ms);
                swept.ended.push((id.clone(), ExecutionState::Expired));
            }
        }
        let mut ended: Vec<(u64, ExecutionId, u64)> = self
            .jobs
            .values()
            .filter_map(|it| Some((it.job.finished_ms?, it.job.id.clone(), it.bytes())))
            .collect();
        ended.sort();
        let mut count = u64::try_from(ended.len()).unwrap();
        let mut bytes: u64 = ended.iter().map(|it| it.2).sum();
        for (finished_ms, id, of_one) in ended {
            let is_much = count > config.kept_max || bytes > config.kept_bytes_max;
            if finished_ms + 40_000 <= now_ms || is_much {
                self.jobs.remove(&id);
                swept.removed += 1;
                (count, bytes) = (count - 1, bytes - of_one);
            }
        }
        swept.ended.sort();
        swept
    }

    fn replay(&mut self, tenant: Option<&str>) -> Vec<ExecutionId> {
        let mut replayed = Vec::new();
        for (id, entry) in &mut self.jobs {
            let is_meant = tenant.is_none_or(|it| it == entry.job.tenant);
            if entry.job.state == ExecutionState::Dead && is_meant {
                entry.job.state = ExecutionState::Queued;
                (entry.job.attempts, entry.job.started_ms) = (0, None);
                (entry.job.finished_ms, entry.expires_ms) = (None, None);
                (entry.due_ms, entry.deliveries) = (None, 0);
                replayed.push(id.clone());
            }
        }
        replayed
    }

    fn drain(&mut self, tenant: &str, now_ms: u64) -> Vec<ExecutionId> {
        let mut drained = Vec::new();
        for (id, entry) in &mut self.jobs {
            if entry.job.state == ExecutionState::Queued && entry.job.tenant == tenant {
                entry.end(ExecutionState::Cancelled, now_ms);
                drained.push(id.clone());
            }
        }
        drained
    }

    fn due_webhooks(&mut self, max: usize, now_ms: u64) -> Vec<WebhookDelivery> {
        let due = |entry: &Entry| Some((entry.due_ms?, entry.job.id.clone()));
        let mut all: Vec<(u64, ExecutionId)> = self.jobs.values().filter_map(due).collect();
        all.retain(|(due_ms, _)| *due_ms <= now_ms);
        all.sort();
        all.truncate(max);
        let take = |(_, id): (u64, ExecutionId)| {
            let entry = self.jobs.get_mut(&id).unwrap();
            entry.due_ms = Some(now_ms + 1_000);
            entry.deliveries += 1;
            WebhookDelivery { id, attempt: entry.deliveries }
        };
        all.into_iter().map(take).collect()
    }
}

fn entry(new: &NewJob) -> Entry {
    let job = QueuedJob {
        id: new.id.clone(),
        tenant: new.tenant.clone(),
        state: ExecutionState::Queued,
        language: new.language.clone(),
        label: new.label.clone(),
        priority: new.priority,
        created_ms: new.created_ms,
        deadline_ms: new.deadline_ms,
        started_ms: None,
        finished_ms: None,
        attempts: 0,
        message: None,
        verdict: None,
        face: new.face.clone(),
        request: Some(new.request.clone()),
        result: None,
    };
    Entry {
        job,
        expires_ms: new.deadline_ms,
        key: new.idempotency.clone(),
        webhook: new.webhook,
        lease_until_ms: 0,
        token: None,
        cancel_wanted: false,
        due_ms: None,
        deliveries: 0,
    }
}

/// Applies `steps` random operations to both and compares every answer; occasionally the whole
/// state.
pub(crate) async fn compare(queue: &dyn JobQueue, seed: u64, steps: u64) {
    let model = Model { config: config(), jobs: BTreeMap::new(), paused: false };
    let mut both = Both { queue, model, random: Random(seed), leases: Vec::new() };
    let mut now_ms = NOW;
    for step in 0..steps {
        println!("seed {seed}, step {step}");
        now_ms += both.random.below(400);
        match both.random.below(40) {
            0..=31 => both.work(step, now_ms).await,
            _ => both.interfere(now_ms).await,
        }
        if step % 10 == 0 {
            compare_figures(queue, &both.model, now_ms).await;
        }
        if step % 50 == 49 {
            compare_jobs(queue, &both.model).await;
        }
    }
    compare_jobs(queue, &both.model).await;
}

const TENANTS: [&str; 4] = ["a", "b", "c", "d"];

/// A back end and the model, with the same history.
struct Both<'a> {
    queue: &'a dyn JobQueue,
    model: Model,
    random: Random,
    /// All leases so far, the newest last.
    leases: Vec<JobLease>,
}

impl Both<'_> {
    /// Operations of producers and workers.
    async fn work(&mut self, step: u64, now_ms: u64) {
        let Both { queue, model, random, leases } = self;
        match random.below(32) {
            0..=11 => {
                let count = random.below(4);
                let one = |part| random_job(random, step * 10 + part, now_ms);
                let batch: Vec<NewJob> = (0..=count).map(one).collect();
                let expected = model.push(&batch);
                assert_eq!(queue.push(batch).await.ok(), expected);
            }
            12..=20 => {
                let max = usize::try_from(random.below(5)).unwrap();
                let claims = queue.claim(max, ClaimQuota::unlimited(), now_ms).await.unwrap();
                model.claim(max, &claims, now_ms);
                leases.extend(claims.into_iter().map(|claim| claim.lease));
            }
            21..=28 => {
                // Current ones mostly, and late ones.
                let from = leases.len().saturating_sub(12);
                let Some(lease) = random.of(&leases[from..]) else { return };
                let message = "why".to_owned();
                let finish = match random.below(8) {
                    0..=4 => AttemptResult::Result(format!("{{\"step\":{step}}}").into_bytes()),
                    5 => AttemptResult::Cancelled { message },
                    6 => AttemptResult::Failed { message },
                    _ => AttemptResult::Returned,
                };
                let expected = model.finish(&lease, &finish, now_ms);
                assert_eq!(queue.finish(lease, finish, now_ms).await.unwrap(), expected);
            }
            _ => {
                let some: Vec<JobLease> = (0..3).filter_map(|_| random.of(leases)).collect();
                let expected: Vec<LeaseRenewal> =
                    some.iter().map(|it| model.beat(it, now_ms)).collect();
                assert_eq!(queue.heartbeat(some, now_ms).await.unwrap(), expected);
            }
        }
    }

    /// Operations of owners, operators and upkeep.
    async fn interfere(&mut self, now_ms: u64) {
        let Both { queue, model, random, .. } = self;
        let tenant = random.of(&TENANTS).unwrap();
        match random.below(8) {
            0..=1 => {
                let ids: Vec<ExecutionId> = model.jobs.keys().cloned().collect();
                let id = random.of(&ids).unwrap_or(id(0));
                let expected = model.cancel(tenant, &id, now_ms);
                let answer = queue.cancel(tenant.to_owned(), id, "why".to_owned(), now_ms).await;
                assert_eq!(answer.unwrap(), expected);
            }
            2..=3 => {
                let mut swept = queue.sweep(now_ms).await.unwrap();
                swept.requeued.sort();
                swept.ended.sort();
                assert_eq!(swept, model.sweep(now_ms));
            }
            4 => {
                let whose = (random.below(2) == 0).then_some(tenant);
                let replayed = queue.replay(whose.map(str::to_owned), None, now_ms).await;
                let mut replayed = replayed.unwrap();
                replayed.sort();
                assert_eq!(replayed, model.replay(whose));
            }
            5 if random.below(4) == 0 => {
                let mut drained = queue.drain(Some(tenant.to_owned()), now_ms).await.unwrap();
                drained.sort();
                assert_eq!(drained, model.drain(tenant, now_ms));
            }
            6 => {
                model.paused = random.below(3) == 0;
                queue.set_paused(model.paused).await.unwrap();
            }
            _ => self.deliver(now_ms).await,
        }
    }

    async fn deliver(&mut self, now_ms: u64) {
        let due = self.queue.due_webhooks(5, Duration::from_secs(1), now_ms).await.unwrap();
        assert_eq!(due, self.model.due_webhooks(5, now_ms));
        for delivery in due {
            let again_ms = (self.random.below(2) == 0).then_some(now_ms + 2_000);
            self.queue.settle_webhook(delivery.id.clone(), again_ms).await.unwrap();
            self.model.jobs.get_mut(&delivery.id).unwrap().due_ms = again_ms;
        }
    }
}

fn random_job(random: &mut Random, number: u64, now_ms: u64) -> NewJob {
    let idempotency = (random.below(4) == 0).then(|| IdempotencyMark {
        key: format!("k{}", random.below(40)),
        fingerprint: [u8::from(random.below(8) == 0); 32],
    });
    NewJob {
        created_ms: now_ms,
        priority: i32::try_from(random.below(7)).unwrap() - 3,
        deadline_ms: (random.below(5) == 0).then_some(now_ms + random.below(4_000)),
        label: random.of(&[None, Some("x".to_owned())]).unwrap(),
        face: random.of(&[None, Some(format!("{{\"face\":{number}}}"))]).unwrap(),
        webhook: random.below(3) == 0,
        request: vec![b'1'; usize::try_from(random.below(120)).unwrap()],
        idempotency,
        ..job(number, random.of(&TENANTS).unwrap())
    }
}

async fn compare_figures(queue: &dyn JobQueue, model: &Model, now_ms: u64) {
    for tenant in [None, Some("a")] {
        let stats = queue.stats(tenant.map(str::to_owned), now_ms).await.unwrap();
        let of = |state| {
            let whose = |it: &&Entry| tenant.is_none_or(|tenant| tenant == it.job.tenant);
            model.in_state(state).filter(whose).collect::<Vec<&Entry>>()
        };
        let count = |state| u64::try_from(of(state).len()).unwrap();
        let waiting = of(ExecutionState::Queued);
        let tenants: BTreeSet<&str> = waiting.iter().map(|it| it.job.tenant.as_str()).collect();
        let oldest = waiting.iter().map(|it| now_ms - it.job.created_ms).max();
        let expected = QueueStats {
            backend: queue.backend().to_owned(),
            paused: model.paused,
            queued: count(ExecutionState::Queued),
            running: count(ExecutionState::Running),
            finished: count(ExecutionState::Finished),
            cancelled: count(ExecutionState::Cancelled),
            expired: count(ExecutionState::Expired),
            dead: count(ExecutionState::Dead),
            oldest_queued_ms: oldest,
            tenants_waiting: u64::try_from(tenants.len()).unwrap(),
        };
        assert_eq!(stats, expected);
    }
}

async fn compare_jobs(queue: &dyn JobQueue, model: &Model) {
    // The model does not specify the text of reasons.
    let small = |job: &QueuedJob| QueuedJob {
        message: None,
        face: None,
        request: None,
        result: None,
        ..job.clone()
    };
    let listed = queue.list(all()).await.unwrap();
    assert!(
        listed.iter().all(|job| (&job.face, &job.request, &job.result) == (&None, &None, &None))
    );
    let listed: Vec<QueuedJob> = listed.iter().map(small).collect();
    let expected: Vec<QueuedJob> =
        model.jobs.values().rev().map(|entry| small(&entry.job)).collect();
    assert_eq!(listed, expected);
    for entry in model.jobs.values() {
        let parts = JobParts { request: true, result: true };
        let found = queue.get(entry.job.id.clone(), parts).await.unwrap();
        let found = found.map(|job| QueuedJob { message: None, ..job });
        assert_eq!(found.as_ref(), Some(&entry.job));
    }
}
