//! Evaluations of agents.

use std::collections::BTreeMap;

use super::call::{Caller, Failure};

/// Kind of the documents of runs; the parent is the agent.
pub(super) const RUN: &str = "ash.eval_run";

/// How many runs there are, by their status.
pub(super) async fn count(caller: &Caller) -> Result<BTreeMap<String, u64>, Failure> {
    let mut counts = BTreeMap::new();
    for run in caller.documents(RUN, None).await? {
        let status = run.body["status"].as_str().unwrap_or_default().to_owned();
        *counts.entry(status).or_default() += 1;
    }
    Ok(counts)
}
