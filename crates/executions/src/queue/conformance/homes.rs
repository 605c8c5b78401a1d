//! Scenarios of jobs of tenants whose limits have their homes at few nodes.

use std::collections::HashMap;

use node::cluster::LimitHomes;

use super::*;
use crate::admission::TenantsElsewhere;

/// Number of tenants: more than a server reads at a time.
const TENANTS: u64 = 150;

/// Each of two nodes claims the jobs that have their home there, and the other's while that is
/// away.
pub(in super::super) async fn jobs_are_left_to_the_home_of_their_tenant(queue: &dyn JobQueue) {
    let nodes = ["srv_0", "srv_1"].map(str::to_owned).to_vec();
    let homes = |own| TenantsElsewhere(LimitHomes::new(own, nodes.clone(), 2).unwrap());
    let tenant = |number: u64| format!("tenant-{}", number % TENANTS);
    push(queue, (1..=2 * TENANTS).map(|number| job(number, &tenant(number))).collect()).await;

    let [first, second] = ["srv_0", "srv_1"].map(homes);
    let lives_at =
        |number: &u64, elsewhere: &TenantsElsewhere| !elsewhere.contains(&tenant(*number));
    let taken = claim_leaving(queue, &first).await;
    let expected: Vec<u64> = (1..=2 * TENANTS).filter(|it| lives_at(it, &first)).collect();
    assert!(!expected.is_empty() && taken.len() < 300);
    assert_eq!(set(&taken), set(&expected));
    let taken = claim_leaving(queue, &second).await;
    let expected: Vec<u64> = (1..=2 * TENANTS).filter(|it| lives_at(it, &second)).collect();
    assert_eq!(set(&taken), set(&expected));

    push(queue, vec![job(1_000, &tenant(1)), job(1_001, &tenant(2))]).await;
    assert_eq!(set(&claim_out(queue, NOW + 2_000).await), set(&[1_000, 1_001]));
}

/// Claims all jobs except those of tenants with homes elsewhere.
async fn claim_leaving(queue: &dyn JobQueue, elsewhere: &TenantsElsewhere) -> Vec<u64> {
    let mut taken = Vec::new();
    loop {
        let quota = ClaimQuota::new(2, HashMap::new()).leaving(Some(elsewhere.clone()));
        let claims = queue.claim(64, quota, NOW + 1_000).await.unwrap();
        if claims.is_empty() {
            return taken;
        }
        taken.extend(claims.iter().map(|claim| number(&claim.lease.id)));
    }
}
