//! Expensive authentication proofs, checked by one thread apart from the relay threads, so that
//! wrong passwords delay only other logins and never connected clients.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use pooler_core::mysql::login::{PasswordCheck, PasswordCheckResult};
use pooler_core::pg::login::PgLoginRefusal;

use super::common::RelayShared;
use super::orders::{ThreadInbox, ThreadMessageKind};
use crate::auth::AuthRequirement;
use crate::rate::{LoginLimiter, LoginSource};

/// Maximum number of proofs that wait for the thread. Further clients are refused and may try
/// again.
const PROOFS_MAX: usize = 1024;

/// A proof, and the client that waits for the result.
pub(super) struct ProofJob {
    pub(super) check: Box<PasswordCheck>,
    pub(super) origin: LoginSource,
    pub(super) inbox: Arc<ThreadInbox>,
    /// Slot of the client.
    pub(super) client: u32,
    /// Serial, which distinguishes successive clients in the slot.
    pub(super) serial: u64,
}

/// The thread that checks proofs.
#[derive(Debug)]
pub(super) struct ProofThread {
    proofs: SyncSender<ProofJob>,
}

impl ProofThread {
    /// Starts the thread, which ends when this is dropped. Wrong proofs are counted in `failed`;
    /// proofs from origins with too many wrong ones are refused unchecked.
    pub(super) fn start(failed: Arc<LoginLimiter<LoginSource>>) -> std::io::Result<ProofThread> {
        let (proofs, inbox) = sync_channel(PROOFS_MAX);
        let thread = std::thread::Builder::new().name("bouncer-proofs".to_owned());
        drop(thread.spawn(move || run(&inbox, &failed))?);
        Ok(ProofThread { proofs })
    }

    /// Requests a check; the client's thread receives [`ThreadMessageKind::Checked`]. Returns false
    /// if too many proofs wait already.
    #[must_use]
    pub(super) fn ask(&self, proof: ProofJob) -> bool {
        match self.proofs.try_send(proof) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

fn run(proofs: &Receiver<ProofJob>, failed: &LoginLimiter<LoginSource>) {
    while let Ok(ProofJob { check, origin, inbox, client, serial }) = proofs.recv() {
        let checked = if failed.is_allowed(origin, node::clock::now()) {
            check.run()
        } else {
            PasswordCheckResult::Refused(too_many_failures())
        };
        // Counted here, because the client may have left by now.
        if matches!(checked, PasswordCheckResult::Proof(None)) {
            failed.count(origin, node::clock::now());
        }
        inbox.push(ThreadMessageKind::Checked { client, serial, checked });
        check.renew_key();
    }
}

/// Returns the proof that a client must give; refuses passwords from an origin with too many wrong
/// ones.
pub(super) fn restrained(
    common: &RelayShared,
    origin: LoginSource,
    now: Instant,
    demand: AuthRequirement,
) -> AuthRequirement {
    let asks = match &demand {
        AuthRequirement::Known(Ok(proof)) => proof.asks_password(),
        AuthRequirement::Known(Err(_)) => false,
        AuthRequirement::Query => true,
    };
    if asks && !common.failed_logins.is_allowed(origin, now) {
        return AuthRequirement::Known(Err(too_many_failures()));
    }
    demand
}

/// Returns the refusal after too many wrong passwords.
fn too_many_failures() -> PgLoginRefusal {
    let hint = Some("It is forgotten within seconds.".to_owned());
    let message = "too many logins have failed from this address";
    PgLoginRefusal { hint, ..PgLoginRefusal::new("53400", message) }
}

/// Returns the refusal while too many logins wait for a check.
pub(super) fn too_many_proofs() -> PgLoginRefusal {
    PgLoginRefusal::new("53300", "too many clients log in at this time")
}

#[cfg(test)]
mod tests;
