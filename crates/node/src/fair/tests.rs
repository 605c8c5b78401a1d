//! Turns of callers on a runtime of one thread, where their order is certain.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::*;

/// Yields once, and is ready again at once. The runtime's own yield wakes late.
async fn yield_now() {
    let mut is_polled = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut is_polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn caller(name: &str) -> Arc<str> {
    name.into()
}

/// Asserts that every slot is free, and nothing is queued.
fn assert_idle(scheduler: &FairScheduler, slots: usize) {
    let ready = scheduler.0.lock();
    assert_eq!((ready.slots_free, ready.waiting.len()), (slots, 0));
}

#[tokio::test]
async fn a_caller_waits_for_one_task_of_another_and_not_for_all() {
    let scheduler = FairScheduler::with_slots(1);
    let flood_polls = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..64 {
        let polls = Arc::clone(&flood_polls);
        tasks.spawn(scheduler.run(caller("flood"), async move {
            for _ in 0..100 {
                polls.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        }));
    }
    let polls = Arc::clone(&flood_polls);
    let (tell, received) = oneshot::channel();
    tasks.spawn(scheduler.run(caller("quiet"), async move {
        yield_now().await;
        let before = polls.load(Ordering::Relaxed);
        for _ in 0..10 {
            yield_now().await;
        }
        tell.send(polls.load(Ordering::Relaxed) - before).unwrap();
    }));
    let between = received.await.unwrap();
    assert!(between <= 11, "{between} steps of the other caller for 10 of this one");
    while tasks.join_next().await.is_some() {}
    assert_eq!(flood_polls.load(Ordering::Relaxed), 6400);
    assert_idle(&scheduler, 1);
}

#[tokio::test]
async fn a_task_that_is_given_up_or_panics_gives_its_slot_back() {
    let scheduler = FairScheduler::with_slots(1);
    let mut tasks = JoinSet::new();
    for index in 0..30 {
        tasks.spawn(scheduler.run(caller("a"), async move {
            yield_now().await;
            assert!(index % 3 != 0, "on purpose");
            std::future::pending::<()>().await;
        }));
    }
    let panicked = tasks.join_next().await.unwrap();
    assert!(panicked.unwrap_err().is_panic());
    tasks.shutdown().await;
    assert_idle(&scheduler, 1);
    scheduler.run(caller("a"), yield_now()).await;
}

#[tokio::test]
async fn what_a_task_starts_belongs_to_its_caller() {
    let scheduler = FairScheduler::with_slots(1);
    let own = Arc::clone(&scheduler.0);
    scheduler
        .run(caller("address"), async move {
            identify(&caller("tenant"));
            let child = crate::task::to_the_end(async move {
                let current = CURRENT.with_borrow(Option::clone).expect("takes turns");
                let is_same = Arc::ptr_eq(&current.scheduler.0, &own);
                (Arc::clone(&current.state.lock().caller), is_same)
            });
            assert_eq!(child.await.unwrap(), (caller("tenant"), true));
        })
        .await;
    assert!(CURRENT.with_borrow(Option::is_none));
    assert_idle(&scheduler, 1);
}

/// One step of a task in a random program.
#[derive(Clone, Copy, Debug)]
enum TaskStep {
    Yield,
    Spawn,
    Identify(u8),
    Sleep,
}

fn steps() -> impl Strategy<Value = Vec<TaskStep>> {
    let step = prop_oneof![
        4 => Just(TaskStep::Yield),
        1 => Just(TaskStep::Spawn),
        2 => (0..4_u8).prop_map(TaskStep::Identify),
        1 => Just(TaskStep::Sleep),
    ];
    proptest::collection::vec(step, 0..20)
}

async fn perform(steps: Vec<TaskStep>) {
    for step in steps {
        match step {
            TaskStep::Yield => yield_now().await,
            TaskStep::Spawn => drop(crate::task::to_the_end(yield_now()).await),
            TaskStep::Identify(number) => identify(&caller(&number.to_string())),
            TaskStep::Sleep => tokio::time::sleep(std::time::Duration::from_micros(50)).await,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every task ends, on several threads, with any number of slots.
    #[test]
    fn no_wake_is_lost(
        programs in proptest::collection::vec((0..4_u8, steps()), 1..40),
        slots in 1..5_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_all()
            .build()
            .unwrap();
        let scheduler = FairScheduler::with_slots(slots);
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for (number, program) in programs {
                tasks.spawn(scheduler.run(caller(&number.to_string()), perform(program)));
            }
            let all = async { while let Some(ended) = tasks.join_next().await { ended.unwrap() } };
            let soon = std::time::Duration::from_secs(30);
            tokio::time::timeout(soon, all).await.expect("a task is never woken");
        });
        assert_idle(&scheduler, slots);
    }
}
