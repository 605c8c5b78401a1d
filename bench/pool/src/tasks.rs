//! Work shared by tasks.

use tokio::runtime::Runtime;

/// Distributes `ops` over `n` tasks and returns whether all of them succeeded.
pub fn tasks<F: Future<Output = bool> + Send + 'static>(
    runtime: &Runtime,
    n: usize,
    ops: usize,
    work: impl Fn(usize) -> F,
) -> bool {
    let tasks: Vec<_> = (0..n).map(|_| runtime.spawn(work(ops / n))).collect();
    runtime.block_on(async {
        let mut right = true;
        for task in tasks {
            right &= task.await.expect("a task does not panic");
        }
        right
    })
}
