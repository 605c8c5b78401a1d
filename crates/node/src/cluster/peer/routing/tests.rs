//! A thousand nodes, whose sessions move, and requests for them in flight. Time is an argument;
//! each step of a request takes some of it, so that anything may have changed by the next one.

use std::collections::HashMap;

use super::*;
use crate::cluster::placement::{self, PlaceOffer};

const NODES: usize = 1000;
const SESSIONS: usize = 3000;
/// Sessions that most requests are for, and nodes that receive them: owners are cached there.
const BUSY_SESSIONS: usize = 60;
const FRONTS: usize = 8;
/// Number of nodes offered for a session.
const OFFERS: usize = 16;
/// Time for which a node caches the owner of a session, and for which a silent node counts as
/// alive.
const OWNER_AGE_MS: u64 = 30_000;
const LEASE_MS: u64 = 30_000;
/// Time between two reads of the rows of all nodes.
const RENEW_MS: u64 = 1_000;

/// Numbers that are the same in each run of a seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % most
    }
}

#[derive(Default)]
struct SimulatedNode {
    /// True if it is suspended or cut off: it accepts nothing and renews nothing.
    is_silent: bool,
    /// Time of its last renewal, as stored.
    seen_ms: u64,
    /// Nodes that were alive at its last look.
    living: Vec<bool>,
    owners: HashMap<usize, (usize, u64)>,
}

/// Progress of a request.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// Its owner is being looked up.
    Looks { at: usize },
    /// It was sent to a node.
    Sent { to: usize },
}

struct SimulatedRequest {
    session: usize,
    entry: usize,
    route: RequestRoute,
    /// The same request at the node that it was sent to.
    hop: RequestRoute,
    position: Position,
    queries: u32,
    sends: u32,
    steps: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum RequestEnd {
    Served,
    ComeAgain,
}

struct Simulation {
    now_ms: u64,
    draws: Draws,
    nodes: Vec<SimulatedNode>,
    /// Owner of each session, as stored.
    owners: Vec<Option<usize>>,
    /// Number of sessions of each node.
    places: Vec<u64>,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let nodes = (0..NODES).map(|_| SimulatedNode::default()).collect();
        let draws = Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let owners = vec![None; SESSIONS];
        let mut all = Simulation { now_ms: LEASE_MS, draws, nodes, owners, places: vec![0; NODES] };
        all.renew();
        (0..SESSIONS).for_each(|session| all.place(session));
        all
    }

    /// Returns whether a node has renewed its row within a lease.
    fn is_alive(&self, node: usize) -> bool {
        self.nodes[node].seen_ms + LEASE_MS > self.now_ms
    }

    /// All nodes that are not silent renew their rows, and read all rows.
    fn renew(&mut self) {
        let now_ms = self.now_ms;
        self.nodes.iter_mut().filter(|node| !node.is_silent).for_each(|node| node.seen_ms = now_ms);
        let living: Vec<bool> = (0..NODES).map(|node| self.is_alive(node)).collect();
        for node in self.nodes.iter_mut().filter(|node| !node.is_silent) {
            node.living.clone_from(&living);
        }
    }

    /// Places a session without an owner at one of some nodes with room.
    fn place(&mut self, session: usize) {
        let mut offers = Vec::new();
        while offers.len() < OFFERS {
            let node = self.draws.below(NODES);
            if self.is_alive(node) && !self.nodes[node].is_silent {
                let used = self.places[node];
                offers.push(PlaceOffer { id: node.to_string(), used, max: 100 });
            }
        }
        let places = placement::places(&format!("agent-{}", session % 40), offers);
        let node: usize = places.first().expect("there is room").parse().unwrap();
        self.places[node] += 1;
        self.owners[session] = Some(node);
    }

    fn release(&mut self, session: usize) {
        if let Some(node) = self.owners[session].take() {
            self.places[node] -= 1;
        }
    }

    /// Applies a random event to a node or a session.
    fn disturb(&mut self) {
        let node = self.draws.below(NODES);
        match self.draws.below(8) {
            0 => self.nodes[node].is_silent = true,
            1..=3 => {
                // It finds that it was replaced, or that other nodes have its sessions now.
                self.nodes[node].is_silent = false;
            }
            4 => {
                // It restarts with an empty cache.
                self.nodes[node].owners.clear();
                for session in 0..SESSIONS {
                    if self.owners[session] == Some(node) {
                        self.release(session);
                    }
                }
            }
            _ => {
                let session = self.draws.below(BUSY_SESSIONS);
                let is_held = self.owners[session].is_some_and(|node| !self.nodes[node].is_silent);
                if is_held {
                    self.release(session);
                    self.place(session);
                }
            }
        }
        // Sessions of dead nodes are taken over, in time.
        let session = self.draws.below(SESSIONS);
        if self.owners[session].is_none_or(|node| !self.is_alive(node)) {
            self.release(session);
            self.place(session);
        }
    }

    /// Returns the owner, as a node finds it: none for itself, for no owner, and for a node that it
    /// does not believe to be alive.
    fn owner(&mut self, at: usize, request: &mut SimulatedRequest, asks: bool) -> Option<usize> {
        let (session, now_ms) = (request.session, self.now_ms);
        // A node knows its own sessions.
        if self.owners[session] == Some(at) {
            return None;
        }
        let node = &mut self.nodes[at];
        let remembered =
            node.owners.get(&session).filter(|(_, at_ms)| at_ms + OWNER_AGE_MS > now_ms);
        let owner = match remembered.filter(|_| !asks) {
            Some((owner, _)) => Some(*owner),
            None => {
                request.queries += 1;
                let owner = self.owners[session];
                match owner {
                    Some(owner) => drop(node.owners.insert(session, (owner, now_ms))),
                    None => drop(node.owners.remove(&session)),
                }
                owner
            }
        };
        owner.filter(|owner| *owner != at && node.living[*owner])
    }

    /// A node answers for its own sessions: the session must be its own, or become it.
    fn run_at(&mut self, at: usize, request: &SimulatedRequest) -> RequestEnd {
        match self.owners[request.session] {
            Some(owner) if owner == at => RequestEnd::Served,
            // A request that only reads is answered from the store.
            _ if request.route.only_looks => RequestEnd::Served,
            Some(owner) if self.is_alive(owner) => RequestEnd::ComeAgain,
            _ => {
                self.release(request.session);
                self.places[at] += 1;
                self.owners[request.session] = Some(at);
                RequestEnd::Served
            }
        }
    }

    /// Performs one step of a request; none while it continues.
    fn step(&mut self, request: &mut SimulatedRequest) -> Option<RequestEnd> {
        request.steps += 1;
        match request.position {
            Position::Looks { at } => {
                let asks = request.route.asks_store();
                let owner = self.owner(at, request, asks);
                match request.route.with_owner(owner) {
                    OwnerAction::RunHere => return Some(self.run_at(at, request)),
                    OwnerAction::Send(to) => request.position = Position::Sent { to },
                    OwnerAction::Misdirect => panic!("it came from a client"),
                }
                None
            }
            Position::Sent { to } => {
                request.sends += 1;
                let outcome = if self.nodes[to].is_silent {
                    [SendOutcome::Unreachable, SendOutcome::Lost][self.draws.below(2)]
                } else {
                    let hop = request.hop;
                    let owner = self.owner(to, request, hop.asks_store());
                    match hop.with_owner(owner) {
                        OwnerAction::RunHere => {
                            let end = self.run_at(to, request);
                            assert_eq!(
                                request.route.after_sending(SendOutcome::Answered),
                                SentAction::PassOn
                            );
                            return Some(end);
                        }
                        OwnerAction::Misdirect => SendOutcome::Misdirected,
                        OwnerAction::Send(_) => panic!("a request is sent on once"),
                    }
                };
                match request.route.after_sending(outcome) {
                    SentAction::FindOwner => {
                        request.position = Position::Looks { at: request.entry };
                        None
                    }
                    SentAction::RunHere => Some(self.run_at(request.entry, request)),
                    SentAction::Moved | SentAction::Unreachable | SentAction::Lost => {
                        Some(RequestEnd::ComeAgain)
                    }
                    SentAction::PassOn => panic!("nobody has answered"),
                }
            }
        }
    }

    fn request(&mut self) -> SimulatedRequest {
        let is_busy = self.draws.below(4) != 0;
        let (sessions, nodes) = if is_busy { (BUSY_SESSIONS, FRONTS) } else { (SESSIONS, NODES) };
        let session = self.draws.below(sessions);
        let entry = loop {
            // All of the first ones may be silent.
            let nodes = if self.draws.below(4) == 0 { NODES } else { nodes };
            let node = self.draws.below(nodes);
            if !self.nodes[node].is_silent {
                break node;
            }
        };
        let only_looks = self.draws.below(3) == 0;
        SimulatedRequest {
            session,
            entry,
            route: RequestRoute::new(false, only_looks),
            hop: RequestRoute::new(true, only_looks),
            position: Position::Looks { at: entry },
            queries: 0,
            sends: 0,
            steps: 0,
        }
    }

    /// Runs requests for a while; returns how many were served and how many refused.
    fn run(&mut self, rounds: usize, is_disturbed: bool) -> (usize, usize) {
        let (mut served, mut refused) = (0, 0);
        let mut requests: Vec<SimulatedRequest> = Vec::new();
        for _round in 0..rounds {
            self.now_ms += 20;
            if self.now_ms.is_multiple_of(RENEW_MS) {
                self.renew();
            }
            if is_disturbed {
                self.disturb();
            }
            let request = self.request();
            requests.push(request);
            let mut going = Vec::new();
            for mut request in requests {
                // Some take longer than others.
                let end = if self.draws.below(3) == 0 { None } else { self.step(&mut request) };
                match end {
                    None => going.push(request),
                    Some(end) => {
                        let SimulatedRequest { queries, sends, steps, .. } = request;
                        assert!(sends <= u32::from(SENDS_MAX) && steps <= 4, "{sends} {steps}");
                        // One for each node that received it, and one more for the first.
                        assert!(queries <= 4, "{queries} queries");
                        match end {
                            RequestEnd::Served => served += 1,
                            RequestEnd::ComeAgain => refused += 1,
                        }
                    }
                }
            }
            requests = going;
        }
        (served, refused)
    }
}

#[test]
fn requests_find_the_owner_among_a_thousand_nodes_that_come_and_go() {
    for seed in 1..=6 {
        let mut all = Simulation::new(seed);
        let (served, refused) = all.run(20_000, true);
        assert!(served > 12_000 && refused > 0, "seed {seed}: {served} served, {refused} refused");
        // Without further events all are served, whatever nodes have cached.
        all.nodes.iter_mut().for_each(|node| node.is_silent = false);
        all.run(100, false);
        let (served, refused) = all.run(3_000, false);
        assert_eq!(refused, 0, "seed {seed}: {served} served");
    }
}
