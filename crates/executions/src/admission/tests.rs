//! The asynchronous shell: wake-ups arrive, and a cancelled request leaves nothing behind.

use std::pin::pin;
use std::time::Duration;

use super::*;

fn admission() -> Admission {
    Admission::new(AdmissionBounds {
        running_max: 1,
        running_max_per_tenant: 1,
        limits_tenants: true,
        memory_bytes_max: 10,
        queue_max: 4,
        queue_max_per_tenant: 4,
        patient_max: 3,
        patient_max_per_tenant: 2,
    })
}

fn load(running: usize, waiting: usize, memory_bytes: u64) -> AdmissionLoad {
    AdmissionLoad { running, waiting, memory_bytes }
}

/// Polls a future once, and checks that it is pending.
async fn begin<F: Future + Unpin>(future: &mut F) {
    let ready =
        poll_fn(|context| Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_ready()));
    assert!(!ready.await, "it was ready at once");
}

#[tokio::test]
async fn the_next_one_runs_when_a_permit_is_dropped() {
    let admission = admission();
    let first = admission.enter("a", 3).await.unwrap();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let waiting = tokio::spawn({
        let admission = admission.clone();
        async move {
            let mut entering = pin!(admission.enter("b", 4));
            begin(&mut entering).await;
            sender.send(()).unwrap();
            entering.await.unwrap()
        }
    });
    receiver.await.unwrap();
    assert_eq!(admission.load(), load(1, 1, 3));
    drop(first);
    let second = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
    assert_eq!(admission.load(), load(1, 0, 4));
    drop(second);
    assert_eq!(admission.load(), load(0, 0, 0));
}

#[tokio::test]
async fn dropping_a_waiting_future_frees_its_place() {
    let admission = admission();
    let permit = admission.enter("a", 3).await.unwrap();
    {
        let mut entering = pin!(admission.enter("b", 4));
        begin(&mut entering).await;
        assert_eq!(admission.load(), load(1, 1, 3));
    }
    assert_eq!(admission.load(), load(1, 0, 3));
    drop(permit);
    assert_eq!(admission.load(), load(0, 0, 0));
}

#[tokio::test]
async fn dropping_a_future_that_was_granted_passes_its_turn_on() {
    let admission = admission();
    let permit = admission.enter("a", 3).await.unwrap();
    let mut second = Box::pin(admission.enter("b", 4));
    let mut third = pin!(admission.enter("c", 5));
    begin(&mut second).await;
    begin(&mut third).await;
    drop(permit);
    assert_eq!(admission.load(), load(1, 1, 4));
    // It was its turn, but it never polls again.
    drop(second);
    assert_eq!(admission.load(), load(1, 0, 5));
    let permit = third.await.unwrap();
    drop(permit);
    assert_eq!(admission.load(), load(0, 0, 0));
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let admission = Admission::new(AdmissionBounds {
        running_max: 1,
        running_max_per_tenant: 1,
        limits_tenants: true,
        memory_bytes_max: 10,
        queue_max: 0,
        queue_max_per_tenant: 0,
        patient_max: 3,
        patient_max_per_tenant: 2,
    });
    let error = admission.enter("a", 11).await.unwrap_err();
    assert_eq!(error.detail().field.as_deref(), Some("limits.memory_bytes"));
    assert_eq!(error.retry_after(), None);
    let permit = admission.enter("a", 10).await.unwrap();
    let error = admission.enter("a", 1).await.unwrap_err();
    assert_eq!((error.code(), error.detail().retry), (api::ErrorCode::Overloaded, true));
    drop(permit);
}

#[tokio::test]
async fn a_job_waits_for_its_turn_where_a_caller_is_refused() {
    let admission = Admission::new(AdmissionBounds {
        running_max: 1,
        running_max_per_tenant: 1,
        limits_tenants: true,
        memory_bytes_max: 10,
        queue_max: 1,
        queue_max_per_tenant: 1,
        patient_max: 3,
        patient_max_per_tenant: 2,
    });
    let permit = admission.enter("a", 1).await.unwrap();
    let mut caller = pin!(admission.enter("a", 1));
    let mut second = Box::pin(admission.enter_as(AdmissionOrigin::Job, "a", 1));
    let mut other = pin!(admission.enter_as(AdmissionOrigin::Job, "b", 1));
    begin(&mut caller).await;
    begin(&mut second).await;
    begin(&mut other).await;
    assert_eq!(admission.enter("b", 1).await.unwrap_err().code(), api::ErrorCode::Overloaded);
    assert_eq!(admission.load(), load(1, 3, 1));
    drop(permit);
    drop(caller.await.unwrap());
    drop(other.await.unwrap());
    // Dropped after it was granted.
    assert_eq!(admission.load(), load(1, 0, 1));
    drop(second);
    assert_eq!(admission.load(), load(0, 0, 0));
    let error = admission.enter_as(AdmissionOrigin::Job, "a", 11).await.unwrap_err();
    assert_eq!(error.detail().field.as_deref(), Some("limits.memory_bytes"));
}

/// Many concurrent tasks take and release permits, some of which give up while they wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_permit_is_lost_under_contention() {
    let admission = Admission::new(AdmissionBounds {
        running_max: 3,
        running_max_per_tenant: 3,
        limits_tenants: true,
        memory_bytes_max: 8,
        queue_max: 64,
        queue_max_per_tenant: 64,
        patient_max: 3,
        patient_max_per_tenant: 2,
    });
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..32_u64 {
        let admission = admission.clone();
        tasks.spawn(async move {
            for round in 0..200_u64 {
                let memory_bytes = 1 + (task + round) % 8;
                let tenant = ["a", "b", "c"][usize::try_from(task % 3).unwrap()];
                let origin =
                    if task % 2 == 0 { AdmissionOrigin::Caller } else { AdmissionOrigin::Job };
                let entering = admission.enter_as(origin, tenant, memory_bytes);
                if (task + round) % 3 == 0 {
                    // Gives up after it was polled once.
                    tokio::select! {
                        biased;
                        permit = entering => drop(permit.unwrap()),
                        () = tokio::task::yield_now() => {}
                    }
                } else {
                    let permit = entering.await.unwrap();
                    let now = admission.load();
                    assert!(now.running <= 3 && now.memory_bytes <= 8, "{now:?}");
                    tokio::task::yield_now().await;
                    drop(permit);
                }
            }
        });
    }
    let all = tokio::time::timeout(Duration::from_secs(60), tasks.join_all()).await;
    assert!(all.is_ok(), "somebody waits for ever: {:?}", admission.load());
    assert_eq!(admission.load(), load(0, 0, 0));
}

/// A tenant that may run one of its executions, and no request may wait; this node has no part yet.
fn without_part() -> (Admission, AdmissionRequest<'static>) {
    let admission = admission();
    admission.change_bounds(|bounds| AdmissionBounds { queue_max: 0, ..bounds });
    admission.set_parts(HashMap::new());
    let place = AdmissionRequest { tenant: "a", memory_bytes: 1, tenant_max: 1, is_further: false };
    (admission, place)
}

#[tokio::test]
async fn the_first_one_waits_for_a_part_where_nobody_may_wait() {
    let (admission, place) = without_part();
    let mut entering = pin!(admission.enter_place(AdmissionOrigin::Caller, place));
    begin(&mut entering).await;
    admission.demand.notified().await;
    admission.set_parts(HashMap::from([("a".to_owned(), 1)]));
    let permit = entering.await.unwrap();
    assert_eq!(admission.load(), load(1, 0, 1));
    let refused = admission.enter_place(AdmissionOrigin::Caller, place).await;
    assert!(matches!(refused, Err(ExecutionError::QueueFull { queue_max: 0 })), "{refused:?}");
    drop(permit);
}

#[tokio::test]
async fn the_first_one_is_refused_when_no_part_comes() {
    let (admission, place) = without_part();
    let refused = admission.enter_place(AdmissionOrigin::Caller, place).await;
    assert!(matches!(refused, Err(ExecutionError::QueueFull { queue_max: 0 })), "{refused:?}");
    assert_eq!(admission.load(), load(0, 0, 0));
}
