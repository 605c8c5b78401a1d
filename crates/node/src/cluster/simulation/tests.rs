//! Seeds, and deliberately broken rules.

use super::*;

/// Seeds that have found a defect, with their numbers of nodes: run first.
const KEPT: &[(u64, usize)] = &[
    // A store that had lost the second run of a node, whose first one had crashed.
    (110, 100),
    (1796, 8),
];
/// Seeds of every test run, and nodes of their worlds: with few nodes, faults coincide more often.
const SEEDS: u64 = 4;
const NODES: u64 = 100;
const SMALL_SEEDS: u64 = 40;
const SMALL_NODES: usize = 8;
/// Number of seeds, from the named one on, within which a broken rule is detected.
const FOUND_WITHIN: u64 = 12;

fn check(seed: u64, nodes: usize) -> SimulatedWorld {
    let plan = SimulationPlan::of(seed, nodes);
    plan.run().unwrap_or_else(|violation| panic!("seed {seed}, {nodes} nodes: {violation:?}"))
}

/// Number in an environment variable, for longer runs than those of the tests.
fn wanted(name: &str, otherwise: u64) -> u64 {
    let said = std::env::var_os(name).and_then(|said| said.into_string().ok());
    said.map_or(otherwise, |said| said.parse().expect("a number"))
}

/// `TEST_SEEDS` and `TEST_NODES` select more of them, and `TEST_SEED` one alone.
#[test]
fn whatever_happens_one_node_serves_a_session_and_none_is_left_behind() {
    let nodes = usize::try_from(wanted("TEST_NODES", NODES)).unwrap();
    let alone = wanted("TEST_SEED", u64::MAX);
    if alone != u64::MAX {
        drop(check(alone, nodes));
        return;
    }
    for (seed, nodes) in KEPT {
        drop(check(*seed, *nodes));
    }
    for seed in 0..SMALL_SEEDS {
        drop(check(seed, SMALL_NODES));
    }
    let (seeds, mut moves, mut longest_ms) = (wanted("TEST_SEEDS", SEEDS), 0, 0);
    for seed in 0..seeds {
        let world = check(seed, nodes);
        moves += world.ledger.moves;
        longest_ms = longest_ms.max(world.ledger.longest_ms);
    }
    println!("{seeds} seeds: {moves} sessions moved, one had no node for {longest_ms} ms");
    assert!(moves > seeds * 10, "hardly anything was taken over: {moves}");
}

fn check_found(rule: BrokenRule, from: u64) {
    let mut seeds = from..from + wanted("TEST_SEEDS", FOUND_WITHIN);
    let found = seeds.find_map(|seed| {
        let found = SimulationPlan::of(seed, SMALL_NODES).breaking(rule).run();
        found.err().map(|violation| (seed, violation))
    });
    println!("{rule:?}: {found:?}");
    assert!(found.is_some(), "{rule:?} is not found from seed {from} on");
}

/// Each rule is needed: the simulation detects its violation.
#[test]
fn every_rule_that_is_broken_is_found() {
    for (rule, from) in [
        (BrokenRule::LeaseFromAnswer, 39),
        (BrokenRule::LeaseStandsStill, 26),
        (BrokenRule::ClockStandsStill, 5),
        (BrokenRule::EarlyClaims, 0),
        (BrokenRule::NoContinuity, 0),
        (BrokenRule::NoVerification, 10),
        (BrokenRule::LateClaims, 375),
        (BrokenRule::TrustedFailover, 68),
        (BrokenRule::SharesWithoutSum, 0),
    ] {
        check_found(rule, from);
    }
}
