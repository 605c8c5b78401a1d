//! Names and numbers of the layout: queues of tenants, ids of foreign jobs, priorities, tokens.

use std::time::Duration;

use api::ExecutionId;
use sha2::{Digest as _, Sha256};

use super::super::JobLease;
use super::super::schedule::rank;

/// Crockford's base 32, as in every id.
const BASE32: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Maximum priority of a job, so that all of ours fit into the range.
const PRIORITY_MAX: i64 = 100;
/// Priorities have a resolution of a second: 32 bits suffice until 2106.
const MS_PER_STEP: i64 = 1000;

/// Returns the queue of a tenant: the base, a dot and the tenant, where bytes other than letters,
/// digits, `-` and `_` are hexadecimal. BullMQ forbids `:` in names; a dot would be ambiguous.
pub(super) fn queue_of(base: &str, tenant: &str) -> String {
    let mut name = format!("{base}.");
    for byte in tenant.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    name
}

/// Returns the tenant of a queue, if its name is one of [`queue_of`].
pub(super) fn tenant_of(base: &str, queue: &str) -> Option<String> {
    let mut rest = queue.strip_prefix(base)?.strip_prefix('.')?.bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? * 16 + hex(rest.next()?)?,
            byte => byte,
        });
    }
    let tenant = String::from_utf8(bytes).ok()?;
    (queue_of(base, &tenant) == queue).then_some(tenant)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Returns the id of a job of another producer: its time, and a hash of its queue and id there. So
/// it sorts like ours, and every server derives the same id.
pub(super) fn foreign_id(queue: &str, job: &str, created_ms: u64) -> ExecutionId {
    let mut hash = Sha256::new();
    hash.update(queue.as_bytes());
    hash.update([0]);
    hash.update(job.as_bytes());
    let hash = hash.finalize();
    let mut number = u128::from(created_ms & 0xffff_ffff_ffff);
    for byte in hash.iter().take(10) {
        number = number << 8 | u128::from(*byte);
    }
    let mut id = "ex_".to_owned();
    for place in (0..26).rev() {
        let digit = (number >> (5 * place)).to_le_bytes()[0] & 31;
        id.push(char::from(BASE32[usize::from(digit)]));
    }
    ExecutionId(id)
}

/// Returns BullMQ's priority, where lower runs first: the rank of the schedule in seconds. So age
/// is included from the start, and no job has to be moved when it gets older.
pub(super) fn priority(priority: i32, created_ms: u64, ageing: Duration) -> u32 {
    let ageing_ms = i64::try_from(ageing.as_millis()).unwrap_or(i64::MAX);
    let ms =
        rank(priority, created_ms, ageing).saturating_add(ageing_ms.saturating_mul(PRIORITY_MAX));
    // 0 means no priority in BullMQ.
    let step = ms.div_euclid(MS_PER_STEP).saturating_add(1).max(1);
    u32::try_from(step).unwrap_or(u32::MAX)
}

/// Lease of this back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RedisLease {
    /// The token of BullMQ's lock, unique for each claim.
    pub(super) lock: String,
    /// Number of the attempt, from 1.
    pub(super) attempt: u32,
    /// The queue the job is in.
    pub(super) queue: String,
    /// Id of the job in BullMQ.
    pub(super) job: String,
}

impl RedisLease {
    /// Encodes it as the token of a lease.
    pub(super) fn token(&self) -> String {
        format!("{} {} {} {}", self.lock, self.attempt, self.queue, self.job)
    }

    /// Decodes it from the token of a lease; `None` if that is not of this back end.
    pub(super) fn of(lease: &JobLease) -> Option<RedisLease> {
        let mut parts = lease.token.splitn(4, ' ');
        let lock = parts.next()?.to_owned();
        let attempt = parts.next()?.parse().ok()?;
        let queue = parts.next()?.to_owned();
        let job = parts.next()?.to_owned();
        Some(RedisLease { lock, attempt, queue, job })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_queue_says_whose_it_is() {
        fn check(tenant: &str, queue: &str) {
            assert_eq!(queue_of("cove", tenant), queue);
            assert_eq!(tenant_of("cove", queue).as_deref(), Some(tenant));
        }
        check("alice", "cove.alice");
        check("a:b.c", "cove.a%3Ab%2Ec");
        check("", "cove.");
        check("ü%", "cove.%C3%BC%25");
        for foreign in ["cove", "cover.x", "cove.a:b", "cove.%2", "cove.%61", "cove.%zz"] {
            assert_eq!(tenant_of("cove", foreign), None, "{foreign}");
        }
    }

    #[test]
    fn foreign_ids_sort_by_time_and_are_stable() {
        let id = foreign_id("cove", "7", 1_700_000_000_000);
        assert_eq!(id, foreign_id("cove", "7", 1_700_000_000_000));
        assert_eq!(id.0.len(), 29);
        assert!(id < foreign_id("cove", "1", 1_700_000_000_001));
        assert_ne!(id, foreign_id("cove", "8", 1_700_000_000_000));
        assert_ne!(id, foreign_id("cove.a", "7", 1_700_000_000_000));
    }

    #[test]
    fn priorities_age() {
        let ageing = Duration::from_secs(10);
        fn check(first: (i32, u64), second: (i32, u64), ageing: Duration) {
            let [a, b] = [first, second].map(|(prio, at)| priority(prio, at, ageing));
            assert!(a < b, "{first:?} before {second:?}: {a} {b}");
        }
        check((0, 1_000), (0, 2_000), ageing);
        check((1, 10_000), (0, 1_000), ageing);
        check((0, 1_000), (1, 12_000), ageing);
        check((100, 1_700_000_000_000), (-100, 1_700_000_000_000), ageing);
        assert_eq!(priority(100, 0, ageing), 1);
        assert!(priority(-100, 4_000_000_000_000, ageing) < u32::MAX);
    }

    #[test]
    fn a_token_says_what_it_holds() {
        let hold = RedisLease {
            lock: "abc".to_owned(),
            attempt: 2,
            queue: "cove".to_owned(),
            job: "a b".to_owned(),
        };
        let lease = JobLease { id: ExecutionId("ex_1".to_owned()), token: hold.token() };
        assert_eq!(RedisLease::of(&lease), Some(hold));
        for token in ["", "abc", "abc x q j", "abc 1 q"] {
            let lease = JobLease { id: ExecutionId("ex_1".to_owned()), token: token.to_owned() };
            assert_eq!(RedisLease::of(&lease), None, "{token}");
        }
    }
}
