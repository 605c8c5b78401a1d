//! The shares of a server: tables, a million random steps, and long-term fairness.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pool::shares::{
    ACTIVE_FOR, ConnectionShares, DeniedBound, FinishedVerdict, KeyId, QuotaEffect, QuotaLedger,
    ReleaseOutcome, SharedServerId, SharedTenantId, SlotPermit, TenantQuota, ThreadLetter,
    ThreadWake, UserHandle,
};

use crate::support::{Chance, start};

fn limits(connections_max: u32, weight: u32) -> TenantQuota {
    TenantQuota { connections_max, weight, ..TenantQuota::default() }
}

/// A server with named keys, driven by commands of one word each.
struct Table {
    ledger: QuotaLedger,
    server: SharedServerId,
    keys: Vec<(String, KeyId)>,
    begin: Instant,
    now: Instant,
    /// Keys that have an idle connection on thread 9.
    idle: HashSet<KeyId>,
}

impl Table {
    /// Tenants are `name:max:weight:min:reserve`; each has a key of its name, and one of its name
    /// and `2`.
    fn new(slots: u32, tenants: &[&str]) -> Table {
        let mut ledger = QuotaLedger::default();
        let server = ledger.add_server(slots);
        let mut keys = Vec::new();
        for tenant in tenants {
            let (name, figures) = tenant.split_once(':').unwrap();
            let figures: Vec<u32> = figures.split(':').map(|one| one.parse().unwrap()).collect();
            let id = ledger.add_tenant(
                server,
                TenantQuota {
                    connections_max: figures[0],
                    weight: figures[1],
                    connections_min: figures.get(2).copied().unwrap_or(0),
                    reserve: figures.get(3).copied().unwrap_or(0),
                    reserve_after: Duration::from_secs(5),
                },
            );
            for key in [name.to_owned(), format!("{name}2")] {
                keys.push((key, ledger.add_key(id, u32::MAX)));
            }
        }
        let begin = start();
        Table { ledger, server, keys, begin, now: begin, idle: HashSet::new() }
    }

    fn key(&self, name: &str) -> KeyId {
        self.keys.iter().find(|(key, _)| key == name).unwrap().1
    }

    fn name(&self, id: KeyId) -> &str {
        &self.keys.iter().find(|(_, key)| *key == id).unwrap().0
    }

    fn act(&mut self, step: &str) -> String {
        let words: Vec<&str> = step.split(' ').collect();
        let number = |at: usize| words.get(at).map_or(1, |word| word.parse::<u32>().unwrap());
        let found = match words[0] {
            "ms" => {
                self.now += Duration::from_millis(u64::from(number(1)));
                String::new()
            }
            "server" => {
                self.ledger.set_server(self.server, number(1));
                String::new()
            }
            "open" => {
                let opened: Vec<_> = (0..number(2))
                    .map(|_| self.ledger.open(self.key(words[1]), self.now, self.now))
                    .collect();
                match opened.last().unwrap() {
                    Ok(()) => "yes".to_owned(),
                    Err(denied) => format!("{denied:?}"),
                }
            }
            "want" | "want_since" => {
                let since = match words[0] {
                    "want" => self.now,
                    _ => self.begin + Duration::from_millis(u64::from(number(3))),
                };
                let idle = |key: KeyId| self.idle.contains(&key).then_some(9);
                let want = (0, number(2), since);
                let key = self.key(words[1]);
                self.ledger.want(key, want.0, want.1, want.2, self.now, &idle);
                String::new()
            }
            "idle" => {
                let key = self.key(words[1]);
                self.idle.insert(key);
                String::new()
            }
            "release" => match self.ledger.release(self.key(words[1]), None, self.now) {
                FinishedVerdict::Keep => "keep".to_owned(),
                FinishedVerdict::GiveUp { to } => {
                    self.ledger.closed(self.key(words[1]), to);
                    "close".to_owned()
                }
            },
            "closed" => {
                self.ledger.closed(self.key(words[1]), None);
                String::new()
            }
            "busy" => {
                let us = u64::from(number(2)) * 1_000;
                self.ledger.charge(self.key(words[1]), us, self.now);
                String::new()
            }
            _ => panic!("{step}"),
        };
        let mut effects = Vec::new();
        self.ledger.take_effects(&mut effects);
        let effects = effects.iter().map(|effect| match effect {
            QuotaEffect::Granted { key, .. } => format!("+{}", self.name(*key)),
            QuotaEffect::Reclaim { key, .. } => format!("reclaim {}", self.name(*key)),
        });
        let all = (!found.is_empty()).then_some(found).into_iter().chain(effects);
        all.collect::<Vec<_>>().join(" ")
    }
}

fn check(slots: u32, tenants: &[&str], steps: &[(&str, &str)]) {
    let mut table = Table::new(slots, tenants);
    for (index, (step, expected)) in steps.iter().enumerate() {
        assert_eq!(table.act(step), *expected, "step {index}: {step}");
    }
}

#[test]
fn every_bound_denies_by_its_name() {
    check(
        5,
        &["a:3:1", "b:9:1"],
        &[
            ("open a 3", "yes"),
            ("open a", "Tenant"),
            ("open b 2", "yes"),
            ("open b", "Server"),
            ("closed a", ""),
            ("open b", "yes"),
            ("open a", "Server"),
        ],
    );
}

#[test]
fn a_free_slot_goes_to_who_is_below_its_share_then_to_who_used_least() {
    check(
        4,
        &["a:9:1", "b:9:1"],
        &[
            ("open a 4", "yes"),
            ("want a 2", ""),
            ("want b 3", ""),
            // b is entitled to two, though a has waited longer and used no more.
            ("closed a", "+b"),
            ("closed a", "+b"),
            // Both have their share: the one that used less goes first.
            ("busy b 500", ""),
            ("closed a", "+a"),
            ("closed b", "+b"),
        ],
    );
}

#[test]
fn who_has_too_much_gives_up_at_its_next_release_and_no_more_than_is_wanted() {
    check(
        4,
        &["a:9:1", "b:9:1"],
        &[
            ("open a 4", "yes"),
            ("release a", "keep"),
            ("want b 1", ""),
            ("release a", "close +b"),
            ("release a", "keep"),
            ("want b 5", ""),
            ("release a", "close +b"),
            // Two each.
            ("release a", "keep"),
            ("release b", "keep"),
        ],
    );
}

#[test]
fn an_idle_connection_is_asked_back_from_who_has_too_much() {
    check(
        4,
        &["a:9:1", "b:9:1", "c:9:1"],
        &[
            ("open a 3", "yes"),
            ("open c 1", "yes"),
            ("idle a", ""),
            ("idle c", ""),
            ("want b 2", "reclaim a"),
            ("closed a", "+b"),
            ("ms 1", ""),
            // Now a has two and is entitled to one; b has one, so that it would be no gain.
            ("want b 1", ""),
            // After a while only b and a are active, and the slots that c does not use are free for
            // b.
            ("ms 9999", ""),
            ("busy a 0", ""),
            ("want b 1", ""),
            ("ms 2", ""),
            ("want b 1", "reclaim c"),
        ],
    );
}

#[test]
fn a_minimum_is_kept_while_its_tenant_does_nothing() {
    check(
        3,
        &["a:9:1:2", "b:9:1"],
        &[
            ("open a 3", "yes"),
            ("idle a", ""),
            ("ms 30000", ""),
            ("want b 3", "reclaim a"),
            ("closed a", "+b"),
            ("ms 30000", ""),
            ("want b 2", ""),
        ],
    );
}

#[test]
fn more_tenants_than_slots_take_turns_by_busy_time() {
    check(
        1,
        &["a:9:1", "b:9:1"],
        &[
            ("open a", "yes"),
            ("want b", ""),
            ("busy a 20", ""),
            ("release a", "keep"),
            ("busy a 60", ""),
            ("release a", "close +b"),
            ("want a", ""),
            ("busy b 60", ""),
            ("release b", "keep"),
            ("busy b 100", ""),
            ("release b", "close +a"),
        ],
    );
}

#[test]
fn users_of_a_tenant_take_turns_by_who_waits_longest() {
    check(
        9,
        &["a:2:1"],
        &[
            ("open a 2", "yes"),
            ("want a2", ""),
            // It has none and the other one has two: at once.
            ("release a", "close +a2"),
            ("want a2", ""),
            ("release a", "keep"),
            ("ms 25", ""),
            ("release a", "close +a2"),
            ("want_since a 1 0", ""),
            ("want_since a2 1 5", ""),
            // Its own clients have waited for longer than those of the other key.
            ("release a2", "close +a"),
        ],
    );
}

#[test]
fn the_reserve_is_for_those_who_waited() {
    check(
        9,
        &["a:1:1:0:1"],
        &[
            ("open a", "yes"),
            ("want a 2", ""),
            ("ms 4999", ""),
            ("want_since a 2 0", ""),
            ("ms 2", ""),
            ("want_since a 2 0", "+a"),
            ("want_since a 1 0", ""),
            ("want_since a 0 0", ""),
            // No client waits: it is returned.
            ("release a", "close"),
            ("release a", "keep"),
        ],
    );
}

#[test]
fn lowered_bounds_are_reached_by_releases() {
    check(
        4,
        &["a:9:1"],
        &[
            ("open a 4", "yes"),
            ("server 2", ""),
            ("open a", "Server"),
            ("release a", "close"),
            ("release a", "close"),
            ("release a", "keep"),
            ("want a 3", ""),
            ("server 4", "+a +a"),
        ],
    );
}

/// The simulation's record of one tenant.
struct Model {
    id: SharedTenantId,
    limits: TenantQuota,
    keys: Vec<(KeyId, u32)>,
}

/// Ledgers of random size, and the simulation's own count of holders.
struct World {
    chance: Chance,
    slots: u32,
    ledger: QuotaLedger,
    server: SharedServerId,
    models: Vec<Model>,
    held: Vec<KeyId>,
    closing: Vec<(KeyId, Option<SharedTenantId>)>,
    now: Instant,
    effects: Vec<QuotaEffect>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut chance = Chance(seed);
        let slots = 1 + u32::try_from(chance.below(12)).unwrap();
        let mut ledger = QuotaLedger::default();
        let server = ledger.add_server(slots);
        let mut models: Vec<Model> = Vec::new();
        for _ in 0..1 + chance.below(6) {
            let mut limits =
                limits(1 + u32::try_from(chance.below(8)).unwrap(), 1 << chance.below(4));
            limits.connections_min = u32::try_from(chance.below(2)).unwrap();
            let id = ledger.add_tenant(server, limits);
            let keys = (0..1 + chance.below(3))
                .map(|_| 1 + u32::try_from(chance.below(6)).unwrap())
                .map(|max| (ledger.add_key(id, max), max))
                .collect();
            models.push(Model { id, limits, keys });
        }
        World {
            chance,
            slots,
            ledger,
            server,
            models,
            held: Vec::new(),
            closing: Vec::new(),
            now: start(),
            effects: Vec::new(),
        }
    }

    fn step(&mut self) {
        let World { chance, ledger, held, closing, now, .. } = self;
        *now += Duration::from_micros(u64::try_from(chance.below(20_000)).unwrap());
        let now = *now;
        let model = &self.models[chance.below(self.models.len())];
        let (key, _) = model.keys[chance.below(model.keys.len())];
        match chance.below(8) {
            0 | 1 => {
                let may = ledger.next_in_line(self.server).is_none();
                if ledger.open(key, now, now).is_ok() {
                    assert!(may, "nobody is overtaken");
                    held.push(key);
                }
            }
            2 => {
                let wanted = u32::try_from(chance.below(4)).unwrap();
                let thread = chance.below(3);
                ledger.want(key, thread, wanted, now, now, &|_| Some(thread));
            }
            3 | 4 if !held.is_empty() => {
                let at = chance.below(held.len());
                if let FinishedVerdict::GiveUp { to } = ledger.release(held[at], None, now) {
                    closing.push((held.swap_remove(at), to));
                }
            }
            5 if !closing.is_empty() => {
                let (key, to) = closing.swap_remove(chance.below(closing.len()));
                ledger.closed(key, to);
            }
            6 if !held.is_empty() => {
                ledger.closed(held.swap_remove(chance.below(held.len())), None)
            }
            _ => ledger.charge(key, u64::try_from(chance.below(20_000)).unwrap(), now),
        }
    }

    fn take_grants(&mut self) {
        self.ledger.take_effects(&mut self.effects);
        for effect in self.effects.drain(..) {
            let QuotaEffect::Granted { key, .. } = effect else { continue };
            let is_its = |model: &&Model| model.keys.iter().any(|(one, _)| *one == key);
            let model = self.models.iter().find(is_its).unwrap();
            self.held.push(key);
            // If it has more than its share now, no tenant with less waits.
            let (has, entitled) = self.ledger.tenant_held(model.id);
            if has > entitled
                && let Some(next) = self.ledger.next_in_line(self.server)
            {
                let (has, entitled) = self.ledger.tenant_held(next);
                assert!(has >= entitled, "a grant beyond the share of one");
            }
        }
    }

    /// Checks the bounds, that both sides count the same, and that no wanted slot is free.
    fn assert_sound(&self) {
        let ledger = &self.ledger;
        let counted = self.held.len() + self.closing.len();
        assert_eq!(usize::try_from(ledger.server_held(self.server)).unwrap(), counted);
        assert!(ledger.server_held(self.server) <= self.slots);
        for model in &self.models {
            let (held, entitled) = ledger.tenant_held(model.id);
            assert!(held.max(entitled) <= model.limits.connections_max);
            assert!(model.keys.iter().all(|(key, max)| ledger.key_held(*key) <= *max));
        }
        let is_full = ledger.server_held(self.server) == self.slots;
        assert!(is_full || ledger.next_in_line(self.server).is_none());
    }
}

#[test]
fn bounds_hold_and_nobody_below_its_share_waits_behind_one_above() {
    for seed in 0..8 {
        let mut world = World::new(seed);
        for _ in 0..125_000 {
            world.step();
            world.take_grants();
            world.assert_sound();
        }
    }
}

/// Tenants whose clients always have work, each connection busy for its service time; returns the
/// busy time of each tenant, in milliseconds.
fn saturate(slots: u32, tenants: &[(u32, u64)], for_ms: u64) -> Vec<u64> {
    let mut ledger = QuotaLedger::default();
    let server = ledger.add_server(slots);
    let keys: Vec<KeyId> = tenants
        .iter()
        .map(|(weight, _)| {
            let tenant = ledger.add_tenant(server, limits(100, *weight));
            ledger.add_key(tenant, 100)
        })
        .collect();
    let begin = start();
    let mut busy = vec![0; tenants.len()];
    // When each connection is free again, in microseconds.
    let mut running: Vec<(u64, usize)> = Vec::new();
    let mut effects = Vec::new();
    let mut at_us = 0;
    while at_us < for_ms * 1_000 {
        let now = begin + Duration::from_micros(at_us);
        for key in &keys {
            ledger.want(*key, 0, 50, now, now, &|_| None);
        }
        ledger.take_effects(&mut effects);
        for effect in effects.drain(..) {
            if let QuotaEffect::Granted { key, .. } = effect {
                let tenant = keys.iter().position(|one| *one == key).unwrap();
                // A login takes as long as some work does.
                running.push((at_us + 2_000 + tenants[tenant].1, tenant));
            }
        }
        let next = running.iter().enumerate().min_by_key(|(_, (end, _))| *end).unwrap().0;
        let (end, tenant) = running.swap_remove(next);
        at_us = end;
        let now = begin + Duration::from_micros(at_us);
        let service = tenants[tenant].1;
        busy[tenant] += service;
        ledger.charge(keys[tenant], service, now);
        match ledger.release(keys[tenant], Some(now), now) {
            FinishedVerdict::Keep => running.push((at_us + service, tenant)),
            FinishedVerdict::GiveUp { to } => ledger.closed(keys[tenant], to),
        }
    }
    busy.iter().map(|us| us / 1_000).collect()
}

#[test]
fn busy_time_follows_the_weights_under_saturation() {
    for (slots, tenants) in [
        (8, vec![(1, 1_000), (1, 1_000)]),
        (8, vec![(1, 200), (1, 5_000)]),
        (8, vec![(1, 1_000), (3, 1_000)]),
        (8, vec![(1, 1_000), (3, 400), (4, 3_000)]),
        (4, vec![(1, 1_000), (1, 700), (1, 300)]),
        (1, vec![(1, 1_000), (1, 1_000), (2, 1_000)]),
        (2, vec![(1, 900), (1, 1_000), (1, 1_100), (1, 1_200), (2, 5_000)]),
    ] {
        let busy = saturate(slots, &tenants, 60_000);
        let (all, weights): (u64, u64) =
            (busy.iter().sum(), tenants.iter().map(|(weight, _)| u64::from(*weight)).sum());
        for (tenant, (weight, _)) in tenants.iter().enumerate() {
            let due = all * u64::from(*weight) / weights;
            // Slots are whole, and turns change after 50 ms at the earliest.
            let tolerance = (due / 8).max(1_500);
            let off = busy[tenant].abs_diff(due);
            assert!(off <= tolerance, "{slots} {tenants:?}: {busy:?}, due {due} of {tenant}");
        }
        // No connection idles while all tenants have work, except for logins.
        let possible = u64::from(slots) * 60_000;
        assert!(all * 10 >= possible * 8, "{slots} {tenants:?}: {all} of {possible} ms");
    }
}

/// The lightest tenant is entitled to a slot, too.
#[test]
fn a_small_weight_is_not_nothing() {
    let busy = saturate(4, &[(100, 1_000), (1, 1_000), (1, 1_000)], 60_000);
    let all: u64 = busy.iter().sum();
    assert!(busy.iter().all(|one| one * 10 >= all), "{busy:?}");
    assert!(busy[0] * 10 >= all * 7, "{busy:?}");
}

/// One client asks 50 times a second while two hundred of another tenant flood the server.
#[test]
fn a_quiet_tenant_waits_for_one_service_time_beside_a_flood() {
    const SERVICE_US: u64 = 1_000;
    const LOGIN_US: u64 = 5_000;
    let mut ledger = QuotaLedger::default();
    let server = ledger.add_server(10);
    let flood = ledger.add_tenant(server, limits(20, 1));
    let flood = ledger.add_key(flood, 20);
    let quiet = ledger.add_tenant(server, limits(20, 1));
    let quiet = ledger.add_key(quiet, 20);
    let begin = start();
    let at = |us: u64| begin + Duration::from_micros(us);
    for _ in 0..10 {
        ledger.open(flood, begin, begin).unwrap();
    }
    let mut flooding: Vec<u64> = (0..10).map(|one| one * 100).collect();
    // When the quiet tenant's connection is open, and its clients' waiting times.
    let (mut connection, mut waits): (Option<u64>, Vec<u64>) = (None, Vec::new());
    let mut effects = Vec::new();
    for turn in 0..500_u64 {
        let ask = 10_000 + turn * 20_000;
        if connection.is_none() {
            ledger.want(quiet, 0, 1, at(ask), at(ask), &|_| None);
        }
        // The flood continues meanwhile.
        while let Some(next) = (0..flooding.len()).min_by_key(|&one| flooding[one])
            && flooding[next] < ask + 20_000
        {
            let now = flooding[next];
            ledger.charge(flood, SERVICE_US, at(now));
            ledger.want(flood, 1, 190, at(now), at(now), &|_| None);
            match ledger.release(flood, Some(at(now)), at(now)) {
                FinishedVerdict::Keep => flooding[next] = now + SERVICE_US,
                FinishedVerdict::GiveUp { to } => {
                    flooding.swap_remove(next);
                    ledger.closed(flood, to);
                }
            }
            ledger.take_effects(&mut effects);
            for effect in effects.drain(..) {
                match effect {
                    QuotaEffect::Granted { key, .. } if key == quiet => connection = Some(now),
                    QuotaEffect::Granted { .. } => flooding.push(now + LOGIN_US),
                    QuotaEffect::Reclaim { .. } => {}
                }
            }
        }
        let granted = connection.unwrap();
        waits.push(granted.saturating_sub(ask));
        ledger.charge(quiet, SERVICE_US, at(ask + 20_000));
        assert_eq!(
            ledger.release(quiet, None, at(ask + 20_000)),
            FinishedVerdict::Keep,
            "it stays"
        );
    }
    assert!(waits[0] <= SERVICE_US, "the first waits for one release: {} us", waits[0]);
    assert!(waits[1..].iter().all(|wait| *wait == 0), "then it has a connection of its own");
}

/// Counts calls; the tests check the letter boxes anyway.
struct Bell(Arc<AtomicUsize>);

impl ThreadWake for Bell {
    fn wake(&self, _: usize) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_dropped_permit_is_the_next_ones_letter() {
    let (now, rang) = (start(), Arc::new(AtomicUsize::new(0)));
    let (shares, handles) = ConnectionShares::new(2, Box::new(Bell(Arc::clone(&rang))), now);
    let server = shares.server(1);
    let (a, b) = (server.tenant(limits(5, 1)), server.tenant(limits(5, 1)));
    let (a, b) = (a.key(5), b.key(5));
    let mut permit = a.open(now, now).unwrap();
    assert_eq!(b.open(now, now).unwrap_err(), DeniedBound::Server);
    assert!(!a.needed_elsewhere(0));

    a.set_idle(0, Some(now));
    b.want(1, 1, now, now);
    assert!(a.needed_elsewhere(0) && !b.needed_elsewhere(1));
    assert_eq!(a.release(&mut permit, None, now), ReleaseOutcome::Keep, "both are entitled to one");
    a.charge(100_000, now);
    assert_eq!(a.release(&mut permit, None, now), ReleaseOutcome::GiveUp);
    assert_eq!(rang.load(Ordering::SeqCst), 0);
    drop(permit);
    assert_eq!(rang.load(Ordering::SeqCst), 1);
    let mut letters = Vec::new();
    handles[1].take_letters(&mut letters);
    assert!(
        matches!(&letters[..], [ThreadLetter::Granted(permit)] if permit.key().index() == b.index())
    );
    assert_eq!((a.held(), b.held(), server.held()), (0, 1, 1));

    // The thread takes no letters any more: its letters are returned.
    drop(letters);
    let held = a.open(now, now).unwrap();
    b.want(1, 1, now, now);
    drop(handles);
    drop(held);
    assert_eq!(server.held(), 0);
}

#[test]
fn idle_connections_are_asked_back_from_the_thread_that_has_them() {
    let now = start();
    let (shares, handles) = ConnectionShares::new(3, Box::new(Bell(Arc::default())), now);
    let server = shares.server(2);
    let (a, b) = (server.tenant(limits(5, 1)).key(5), server.tenant(limits(5, 1)).key(5));
    let permits = (a.open(now, now).unwrap(), a.open(now, now).unwrap());
    a.set_idle(1, Some(now + Duration::from_secs(2)));
    a.set_idle(2, Some(now + Duration::from_secs(1)));
    assert_eq!(a.idle_elsewhere(0), Some((2, now + Duration::from_secs(1))));
    assert_eq!(a.idle_elsewhere(2), Some((1, now + Duration::from_secs(2))));
    b.want(0, 1, now, now);
    let mut letters = Vec::new();
    handles[2].take_letters(&mut letters);
    assert!(matches!(&letters[..], [ThreadLetter::Reclaim(key)] if key.index() == a.index()));
    drop((letters, permits));
    assert_eq!(b.held(), 1, "the letter has it");
    drop(handles);
    assert_eq!(b.held(), 0);
}

#[test]
fn a_waiting_thread_is_claimed_once() {
    let now = start();
    let (shares, _handles) = ConnectionShares::new(3, Box::new(Bell(Arc::default())), now);
    let key = shares.server(2).tenant(limits(5, 1)).key(5);
    let later = |ms| now + Duration::from_millis(ms);
    let margin = Duration::from_millis(1);
    assert_eq!(key.claim_older(0, None, margin), None);
    key.set_waiting(1, Some(later(5)));
    key.set_waiting(2, Some(later(3)));
    assert!(key.needed_elsewhere(0));
    assert_eq!(key.claim_older(0, Some(later(4)), margin), None, "not by more than the margin");
    assert_eq!(key.claim_older(0, Some(later(9)), margin), Some(2));
    assert_eq!(key.claim_older(0, None, margin), Some(1));
    assert_eq!(key.claim_older(0, None, margin), None);
    assert!(!key.needed_elsewhere(0));
    key.set_waiting(1, None);
    key.set_waiting(2, Some(now));
    assert!(!key.needed_elsewhere(2) && key.needed_elsewhere(1));
}

/// Threads that open, keep and drop permits for keys that appear and disappear: in the end no slot
/// is held.
#[test]
fn threads_leave_nothing_behind() {
    let now = start();
    let (shares, handles) = ConnectionShares::new(4, Box::new(Bell(Arc::default())), now);
    let server = shares.server(3);
    let tenants: Vec<_> = (0..3).map(|weight| server.tenant(limits(2, weight + 1))).collect();
    let common: Vec<UserHandle> = tenants.iter().map(|tenant| tenant.key(2)).collect();
    std::thread::scope(|scope| {
        for handle in handles {
            let (tenants, common) = (&tenants, &common);
            scope.spawn(move || {
                let mut chance = Chance(u64::try_from(handle.thread()).unwrap());
                let mut permits: Vec<SlotPermit> = Vec::new();
                let mut letters = Vec::new();
                let mut at = now;
                for _ in 0..20_000 {
                    at += Duration::from_micros(100);
                    let own = tenants[chance.below(3)].key(1);
                    let shared = &common[chance.below(3)];
                    let key = if chance.below(4) == 0 { &own } else { shared };
                    if let Ok(permit) = key.open(at, at) {
                        permits.push(permit);
                    } else {
                        key.want(handle.thread(), 1, at, at);
                    }
                    handle.take_letters(&mut letters);
                    for letter in letters.drain(..) {
                        if let ThreadLetter::Granted(permit) = letter {
                            permits.push(permit);
                        }
                    }
                    permits.truncate(chance.below(3));
                }
            });
        }
    });
    assert_eq!(server.held(), 0);
    assert!(common.iter().all(|key| key.held() == 0));
    // Long after, no tenant is entitled to anything.
    drop(common);
    let key = tenants[0].key(1);
    key.charge(1, now + ACTIVE_FOR * 3);
    assert_eq!(tenants[0].held(), (0, 2));
    assert_eq!(tenants[1].held(), (0, 0));
}
