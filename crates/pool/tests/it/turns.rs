//! Turns of keys against a model that is too simple to be wrong, and the fairness between keys.

use std::collections::HashMap;

use pool::{RoundRobin, TurnOrder};

use crate::support::Chance;

/// Keys in the order of their turns, every operation by looking at all of them.
#[derive(Default)]
struct NaiveOrder(Vec<(usize, Vec<u64>)>);

impl NaiveOrder {
    fn at(&self, key: usize) -> Option<usize> {
        self.0.iter().position(|(name, _)| *name == key)
    }

    fn push(&mut self, key: usize, item: u64) {
        match self.at(key) {
            Some(at) => self.0[at].1.push(item),
            None => self.0.push((key, vec![item])),
        }
    }

    /// Takes the first item of a key, which goes to the end, or leaves with its last one.
    fn serve(&mut self, at: usize) -> u64 {
        let (key, mut items) = self.0.remove(at);
        let item = items.remove(0);
        if !items.is_empty() {
            self.0.push((key, items));
        }
        item
    }
}

fn keys_of(order: &TurnOrder<usize, Vec<u64>>) -> Vec<(usize, Vec<u64>)> {
    order.iter().map(|(key, items)| (*key, items.clone())).collect()
}

/// Random steps on an order; returns how many of each kind there were.
fn simulate_order(seed: u64, steps: u64) -> [u32; 5] {
    let mut chance = Chance(seed);
    let (mut order, mut naive) = (TurnOrder::<usize, Vec<u64>>::default(), NaiveOrder::default());
    let mut seen = [0; 5];
    for step in 0..steps {
        let key = chance.below(6);
        let kind = match chance.below(8) {
            0..=3 => {
                order.join(key, Vec::new).push(step);
                naive.push(key, step);
                0
            }
            4 => {
                let Some(mut first) = order.first() else { continue };
                let item = first.queue_mut().remove(0);
                match first.queue().is_empty() {
                    true => drop(first.leave()),
                    false => first.send_back(),
                }
                assert_eq!(item, naive.serve(0), "seed {seed} step {step}");
                1
            }
            // A key that is passed by those before it keeps nothing of its place.
            5 => {
                let at = naive.at(key);
                assert_eq!(order.get(&key).is_some(), at.is_some());
                let (Some(mut entry), Some(at)) = (order.entry(&key), at) else { continue };
                assert_eq!(*entry.key(), key);
                let item = entry.queue_mut().remove(0);
                match entry.queue().is_empty() {
                    true => drop(entry.leave()),
                    false => entry.send_back(),
                }
                assert_eq!(item, naive.serve(at), "seed {seed} step {step}");
                2
            }
            // All waiting items of a key are dropped.
            6 => {
                let (Some(entry), Some(at)) = (order.entry(&key), naive.at(key)) else { continue };
                assert_eq!(entry.leave(), naive.0.remove(at).1, "seed {seed} step {step}");
                3
            }
            _ => {
                order.queues_mut().for_each(|items| items.push(step));
                naive.0.iter_mut().for_each(|(_, items)| items.push(step));
                4
            }
        };
        seen[kind] += 1;
        assert_eq!(keys_of(&order), naive.0, "seed {seed} step {step}");
        assert_eq!((order.len(), order.is_empty()), (naive.0.len(), naive.0.is_empty()));
    }
    seen
}

#[test]
fn an_order_is_the_naive_one() {
    let mut seen = [0; 5];
    for seed in 0..200 {
        for (total, count) in seen.iter_mut().zip(simulate_order(seed, 400)) {
            *total += count;
        }
    }
    // A simulation that never reaches a step proves nothing about it.
    assert!(seen.iter().all(|count| *count > 1_000), "{seen:?}");
}

#[test]
fn nothing_is_lost_and_items_of_a_key_keep_their_order() {
    for seed in 0..200 {
        let mut chance = Chance(seed);
        let (mut waiting, mut naive) = (RoundRobin::default(), NaiveOrder::default());
        // Phases of growth and of decline, so that queues are released and reused.
        for step in 0..2_000_u64 {
            let pushes = if step / 250 % 2 == 0 { 3 } else { 1 };
            if chance.below(4) < pushes {
                let key = chance.below(40);
                waiting.push(key, step);
                naive.push(key, step);
            } else {
                let expected = (!naive.0.is_empty()).then(|| naive.serve(0));
                assert_eq!(waiting.pop(), expected, "seed {seed} step {step}");
            }
            let count: usize = naive.0.iter().map(|(_, items)| items.len()).sum();
            assert_eq!((waiting.len(), waiting.keys_waiting()), (count, naive.0.len()));
        }
        while !naive.0.is_empty() {
            assert_eq!(waiting.pop(), Some(naive.serve(0)), "seed {seed}");
        }
        assert!(waiting.is_empty() && waiting.pop().is_none());
    }
}

/// Between two turns of a key that has something waiting, and before its first one, no other key
/// has more than one.
#[test]
fn a_key_waits_for_one_turn_of_each_other() {
    for seed in 0..200 {
        let mut chance = Chance(seed);
        let mut waiting = RoundRobin::default();
        let mut counts: HashMap<usize, usize> = HashMap::new();
        // For each waiting key: the others that had a turn since it joined or was served.
        let mut since: HashMap<usize, Vec<usize>> = HashMap::new();
        for step in 0..1_000 {
            // One key floods; others come now and then, and late.
            let key = if chance.below(3) > 0 { 0 } else { 1 + chance.below(1 + step / 50) };
            waiting.push(key, key);
            *counts.entry(key).or_default() += 1;
            since.entry(key).or_default();
            if chance.below(2) == 0 {
                continue;
            }
            let served = waiting.pop().unwrap();
            let left = counts.get_mut(&served).unwrap();
            *left -= 1;
            since.remove(&served);
            for (key, others) in &mut since {
                assert!(!others.contains(&served), "seed {seed}: {served} twice before {key}");
                others.push(served);
            }
            if *left > 0 {
                since.insert(served, Vec::new());
            }
        }
    }
}
