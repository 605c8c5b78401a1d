//! Replies of a minimal server.

use super::*;

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::pg::frame::backend as b;

/// Messages to the client: the number of the request and the reply's tag. `L` is a local reply.
type Given = Vec<(usize, u8)>;

/// A minimal server, which reads one message after the other.
#[derive(Default)]
struct Server {
    inbox: VecDeque<(usize, Sent)>,
    outbox: VecDeque<(usize, u8)>,
    skipping: bool,
    /// The request that reads data, and whether it arrived in the simple protocol.
    copy: Option<(usize, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sent {
    Request(ExchangeRequest),
    /// A query or execution that may begin to copy.
    Copy(ExchangeRequest),
    CopyDone,
}

/// A stream of random choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn request(&mut self) -> ExchangeRequest {
        match self.below(10) {
            0 => ExchangeRequest::Query,
            1 => ExchangeRequest::Parse,
            2 => ExchangeRequest::Bind,
            3 => ExchangeRequest::DescribeStatement,
            4 => ExchangeRequest::DescribePortal,
            5 => ExchangeRequest::Execute,
            6 => ExchangeRequest::Close,
            7 | 8 => ExchangeRequest::Sync,
            _ => ExchangeRequest::FunctionCall,
        }
    }
}

impl Server {
    fn say(&mut self, id: usize, tags: &[u8]) {
        self.outbox.extend(tags.iter().map(|tag| (id, *tag)));
    }

    /// Reads one message; sometimes fails in the middle of a `COPY` before that.
    fn turn(&mut self, choices: &mut Choices) {
        if let Some((id, simple)) = self.copy
            && choices.one_in(6)
        {
            self.fail_copy(id, simple);
            return;
        }
        let Some((id, sent)) = self.inbox.pop_front() else { return };
        if let Some((owner, simple)) = self.copy {
            match sent {
                Sent::Request(ExchangeRequest::Sync) => {}
                Sent::CopyDone if choices.one_in(3) => self.fail_copy(owner, simple),
                Sent::CopyDone => {
                    self.copy = None;
                    self.say(
                        owner,
                        if simple {
                            &[b::COMMAND_COMPLETE, b::READY_FOR_QUERY]
                        } else {
                            &[b::COMMAND_COMPLETE]
                        },
                    );
                }
                Sent::Request(_) | Sent::Copy(_) => self.fail_copy(owner, simple),
            }
            return;
        }
        match sent {
            Sent::CopyDone => {}
            Sent::Copy(_) if self.skipping => {}
            Sent::Copy(request) if choices.one_in(2) => {
                self.copy = Some((id, request == ExchangeRequest::Query));
                self.say(id, &[b::COPY_IN]);
            }
            Sent::Copy(request) | Sent::Request(request) => self.answer(id, request, choices),
        }
    }

    fn fail_copy(&mut self, id: usize, simple: bool) {
        self.copy = None;
        self.skipping = !simple;
        self.say(id, if simple { &[b::ERROR, b::READY_FOR_QUERY] } else { &[b::ERROR] });
    }

    fn answer(&mut self, id: usize, request: ExchangeRequest, choices: &mut Choices) {
        if self.skipping && request != ExchangeRequest::Sync {
            return;
        }
        let fails = choices.one_in(5);
        let tags: &[u8] = match request {
            ExchangeRequest::Query if fails => &[b::ROW_DESCRIPTION, b::ERROR, b::READY_FOR_QUERY],
            ExchangeRequest::Query => {
                &[b::ROW_DESCRIPTION, b::DATA_ROW, b::COMMAND_COMPLETE, b::READY_FOR_QUERY]
            }
            ExchangeRequest::FunctionCall if fails => &[b::ERROR, b::READY_FOR_QUERY],
            ExchangeRequest::FunctionCall => &[b::FUNCTION_CALL_RESPONSE, b::READY_FOR_QUERY],
            ExchangeRequest::Sync => {
                self.skipping = false;
                if fails { &[b::ERROR, b::READY_FOR_QUERY] } else { &[b::READY_FOR_QUERY] }
            }
            _ if fails => {
                self.skipping = true;
                &[b::ERROR]
            }
            ExchangeRequest::Parse => &[b::PARSE_COMPLETE],
            ExchangeRequest::Bind => &[b::BIND_COMPLETE],
            ExchangeRequest::Close => &[b::CLOSE_COMPLETE],
            ExchangeRequest::DescribeStatement => {
                &[b::PARAMETER_DESCRIPTION, b::NOTICE, b::NO_DATA]
            }
            ExchangeRequest::DescribePortal => &[b::ROW_DESCRIPTION],
            ExchangeRequest::Execute => &[b::DATA_ROW, b::DATA_ROW, b::COMMAND_COMPLETE],
            ExchangeRequest::Local => b"L",
        };
        self.say(id, tags);
    }
}

/// The relay under test, and its assumptions.
#[derive(Default)]
struct Relay {
    exchange: PgExchange<usize>,
    given: Given,
}

impl Relay {
    fn take(&mut self, (id, tag): (usize, u8)) -> bool {
        let front = self.exchange.front().map(|front| front.note);
        let step = self.exchange.step(tag).unwrap();
        if step != ExchangeStep::Unasked {
            assert_eq!(front, Some(id), "tag {}", char::from(tag));
        }
        self.given.push((id, tag));
        let mut owed = false;
        match step {
            ExchangeStep::Unasked | ExchangeStep::Part => {}
            ExchangeStep::Last => drop(self.exchange.pop()),
            ExchangeStep::Ready => drop(self.exchange.ready(TransactionStatus::Idle)),
            ExchangeStep::Failed => owed = self.exchange.fail(|_| {}),
        }
        while let Some(local) = self.exchange.pop_local() {
            self.given.push((local.note, b'L'));
        }
        owed
    }
}

impl Relay {
    /// Sends nothing until it is known whether the last request copies.
    fn learn_of_copy(&mut self, server: &mut Server, choices: &mut Choices) {
        while self.exchange.copying() == CopyState::None
            && !self.exchange.is_skipping()
            && !self.exchange.is_empty()
        {
            if server.outbox.is_empty() {
                server.turn(choices);
                if server.inbox.is_empty() && server.copy.is_none() && server.outbox.is_empty() {
                    return;
                }
            }
            if let Some(reply) = server.outbox.pop_front() {
                assert!(!self.take(reply), "nothing was kept back");
            }
        }
    }
}

/// Runs a random conversation; every reply must be attributed to its request.
fn converse(seed: u64) {
    let mut choices = Choices(seed);
    let mut server = Server::default();
    let mut relay = Relay::default();
    let count = 200;
    for id in 0..count {
        // Replies arrive late, in bursts.
        while choices.one_in(2) {
            server.turn(&mut choices);
            if let Some(reply) = server.outbox.pop_front()
                && relay.take(reply)
            {
                relay.exchange.push(ExchangeRequest::Sync, ReplyAudience::Client, id + count);
                server.inbox.push_back((id + count, Sent::Request(ExchangeRequest::Sync)));
            }
        }
        let request = choices.request();
        if relay.exchange.copying() == CopyState::In {
            if request == ExchangeRequest::Sync {
                relay.exchange.copy_sync();
            } else {
                server.inbox.push_back((id, Sent::CopyDone));
                relay.exchange.copy_ended();
            }
        } else if relay.exchange.is_skipping() && request != ExchangeRequest::Sync {
            // The server would skip it.
        } else if request == ExchangeRequest::Parse && choices.one_in(2) {
            // Answered locally, in turn, unless the server fails before.
            if relay.exchange.is_empty() {
                relay.given.push((id, b'L'));
            } else {
                relay.exchange.push(ExchangeRequest::Local, ReplyAudience::Client, id);
            }
        } else {
            relay.exchange.push(request, ReplyAudience::Client, id);
            let copies = matches!(request, ExchangeRequest::Query | ExchangeRequest::Execute)
                && choices.one_in(2);
            if copies {
                server.inbox.push_back((id, Sent::Copy(request)));
                relay.learn_of_copy(&mut server, &mut choices);
            } else {
                server.inbox.push_back((id, Sent::Request(request)));
            }
        }
    }
    settle(&mut server, &mut relay, &mut choices, count * 2);
    // Local replies were sent in the order of their requests, like all others.
    assert!(relay.given.windows(2).all(|two| two[0].0 <= two[1].0 || two[0].0 >= count));
    assert!(relay.exchange.is_empty() && !relay.exchange.has_client_entries());
}

/// Ends open requests and lets every reply arrive.
fn settle(server: &mut Server, relay: &mut Relay, choices: &mut Choices, last: usize) {
    for round in 0.. {
        assert!(round < 10_000, "{:?}", relay.exchange);
        server.turn(choices);
        while let Some(reply) = server.outbox.pop_front() {
            if relay.take(reply) {
                relay.exchange.push(ExchangeRequest::Sync, ReplyAudience::Client, last);
                server.inbox.push_back((last, Sent::Request(ExchangeRequest::Sync)));
            }
        }
        if relay.exchange.copying() == CopyState::In && server.inbox.is_empty() {
            server.inbox.push_back((last, Sent::CopyDone));
            relay.exchange.copy_ended();
        }
        if server.inbox.is_empty() && server.copy.is_none() && server.outbox.is_empty() {
            break;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn every_reply_is_taken_for_the_request_it_belongs_to(seed in any::<u64>()) {
        converse(seed);
    }
}

/// Pushes requests, presents tags, and checks the numbers of the entries that are left.
fn check(requests: &[ExchangeRequest], tags: &[u8], left: &[usize]) -> PgExchange<usize> {
    let mut relay = Relay::default();
    for (id, request) in requests.iter().enumerate() {
        relay.exchange.push(*request, ReplyAudience::Client, id);
    }
    for tag in tags {
        let id = relay.exchange.front().map_or(usize::MAX, |front| front.note);
        relay.take((id, *tag));
    }
    let ids: Vec<usize> = relay.exchange.iter().map(|entry| entry.note).collect();
    assert_eq!(ids, left, "{requests:?} {tags:?}");
    relay.exchange
}

#[test]
fn an_error_drops_what_the_server_passes_over() {
    use ExchangeRequest::*;
    check(&[Parse, Bind, Execute, Sync], b"E", &[3]);
    check(&[Parse, Bind, Execute, Sync], b"EZ", &[]);
    check(&[Parse, Local, Bind, Sync, Bind, Sync], b"E", &[3, 4, 5]);
    check(&[Parse, Query, Sync], b"E", &[2]);
    check(&[Query, Query], b"E", &[0, 1]);
    check(&[Sync, Sync], b"E", &[0, 1]);
    assert!(check(&[Parse, Bind], b"1E", &[]).is_skipping());
    assert!(!check(&[Parse, Bind, Sync], b"1E", &[2]).is_skipping());
}

#[test]
fn data_of_a_copy_passes_over_syncs() {
    use ExchangeRequest::*;
    let exchange = check(&[Execute, Sync, Parse, Sync], b"G", &[0, 2, 3]);
    assert_eq!(exchange.copying(), CopyState::In);
    let exchange = check(&[Execute, Sync], b"GC", &[]);
    assert_eq!((exchange.copying(), exchange.has_client_entries()), (CopyState::None, false));
    check(&[Query, Sync], b"GCGCZ", &[]);
    assert_eq!(check(&[Query], b"H", &[0]).copying(), CopyState::Out);
    assert_eq!(check(&[Query], b"HddcC", &[0]).copying(), CopyState::None);
}

#[test]
fn a_sync_that_was_kept_back_is_owed_after_an_error() {
    let mut exchange = check(&[ExchangeRequest::Execute], b"G", &[0]);
    exchange.copy_sync();
    assert_eq!(exchange.step(b::ERROR), Ok(ExchangeStep::Failed));
    assert!(exchange.fail(|_| {}));
    let mut exchange = check(&[ExchangeRequest::Execute], b"G", &[0]);
    assert_eq!(exchange.step(b::ERROR), Ok(ExchangeStep::Failed));
    assert!(!exchange.fail(|_| {}));
}

#[test]
fn what_cannot_follow_is_an_error() {
    let mut exchange = check(&[ExchangeRequest::Parse], b"", &[0]);
    for tag in [b'Z', b'2', b'D', b'T', b'K', b'R', b'?', 0] {
        let wanted = Err(ExchangeError::Unexpected { tag, request: ExchangeRequest::Parse });
        assert_eq!(exchange.step(tag), wanted);
    }
    let mut exchange = PgExchange::<()>::default();
    assert_eq!(exchange.step(b'Z'), Err(ExchangeError::Unasked { tag: b'Z' }));
    for tag in [b'E', b'N', b'S', b'A'] {
        assert_eq!(exchange.step(tag), Ok(ExchangeStep::Unasked));
    }
}

#[test]
fn an_orphan_has_no_audience() {
    let mut exchange = check(&[ExchangeRequest::Bind, ExchangeRequest::Sync], b"", &[0, 1]);
    assert!(exchange.has_client_entries());
    exchange.orphan();
    assert!(!exchange.has_client_entries());
    assert_eq!(exchange.pop().map(|entry| entry.audience), Some(ReplyAudience::Nobody));
}
