//! The time between a program's end and its answer, without a program.

use std::task::{Context, Poll};

use super::*;
use crate::spec::ChunkStream;

/// A sink that never has room.
struct Full;

impl OutputSink for Full {
    fn chunk(&mut self, stream: ChunkStream, _bytes: &[u8]) {
        panic!("{stream:?}: a chunk without room for it");
    }

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

/// Runs `drain` on streams whose program has written `bytes` and is dead; returns how long it took
/// and whether each was truncated.
async fn drained(sink: &mut dyn OutputSink, bytes: &[u8], max: u64) -> (Duration, [bool; 2]) {
    let limits = spec::ProgramLimits { output_bytes: max, ..spec::ProgramLimits::default() };
    let mut command = SandboxCommand { limits, ..SandboxCommand::default() };
    let wiring = CommandWiring::new(&mut command, Vec::new()).unwrap();
    sys::write_all(wiring.child_ends[0].as_fd(), bytes).unwrap();
    drop(wiring.child_ends);
    let (control, _guest) = sys::message_pair().unwrap();
    let control = GuestConnection::new(control).unwrap();
    let began = Instant::now();
    let mut running = ProgramRun {
        control: &control,
        sink,
        captured: wiring.captured,
        input: wiring.input,
        terminal: None,
        requests: None,
        report_by: began,
        stop_at: None,
        stopped: false,
        stopped_by_caller: false,
    };
    running.drain().await.unwrap();
    let exit = running.judge(EndReport::default());
    assert!(exit.stdout.len() as u64 <= max);
    (began.elapsed(), [exit.stdout_truncated, exit.stderr_truncated])
}

/// Time advances when no task can run.
#[tokio::test(start_paused = true)]
async fn a_sink_that_never_has_room_holds_up_the_end_for_its_grace_only() {
    let (took, truncated) = drained(&mut Full, b"lost", 10).await;
    assert!((SINK_GRACE..SINK_GRACE + DRAIN_GRACE).contains(&took), "{took:?}");
    assert_eq!(truncated, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_to_a_sink_without_room_when_nothing_is_there() {
    let (_, truncated) = drained(&mut Full, b"", 10).await;
    assert_eq!(truncated, [false, false]);
}

#[tokio::test(start_paused = true)]
async fn what_no_sink_would_get_waits_for_none() {
    let (took, truncated) = drained(&mut Full, b"beyond", 0).await;
    assert!(took < DRAIN_GRACE, "{took:?}");
    assert_eq!(truncated, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_with_room_gets_what_is_left_at_once() {
    let (took, truncated) = drained(&mut (), b"all of it", 10).await;
    assert!(took < DRAIN_GRACE, "{took:?}");
    assert_eq!(truncated, [false, false]);
}
