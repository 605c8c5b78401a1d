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

/// Proofs that may wait for the thread. Whoever comes beyond is refused and may try again.
const PROOFS_MAX: usize = 1024;

/// A proof, and who waits for what comes of it.
pub(super) struct ProofJob {
    pub(super) check: Box<PasswordCheck>,
    pub(super) origin: LoginSource,
    pub(super) inbox: Arc<ThreadInbox>,
    /// Place of the client.
    pub(super) client: u32,
    /// Tells it from later ones in that place.
    pub(super) serial: u64,
}

/// The thread that checks proofs.
#[derive(Debug)]
pub(super) struct ProofThread {
    proofs: SyncSender<ProofJob>,
}

impl ProofThread {
    /// Starts the thread. It ends by itself once this is dropped. Wrong proofs count in `failed`,
    /// and from whom there were too many none is looked at.
    pub(super) fn start(failed: Arc<LoginLimiter<LoginSource>>) -> std::io::Result<ProofThread> {
        let (proofs, inbox) = sync_channel(PROOFS_MAX);
        let thread = std::thread::Builder::new().name("bouncer-proofs".to_owned());
        drop(thread.spawn(move || run(&inbox, &failed))?);
        Ok(ProofThread { proofs })
    }

    /// Asks for a check; [`ThreadMessageKind::Checked`] comes to the client's thread. `false` when
    /// too many wait already.
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
        // Here, because the client may be gone by now.
        if matches!(checked, PasswordCheckResult::Proof(None)) {
            failed.count(origin, node::clock::now());
        }
        inbox.push(ThreadMessageKind::Checked { client, serial, checked });
        check.renew_key();
    }
}

/// Returns what a client has to show, unless that is a password and too many from there were wrong.
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

/// Returns what a client is told from where there were too many wrong passwords.
fn too_many_failures() -> PgLoginRefusal {
    let hint = Some("It is forgotten within seconds.".to_owned());
    let message = "too many logins have failed from this address";
    PgLoginRefusal { hint, ..PgLoginRefusal::new("53400", message) }
}

/// Returns what a client is told while too many others log in.
pub(super) fn too_many_proofs() -> PgLoginRefusal {
    PgLoginRefusal::new("53300", "too many clients log in at this time")
}

#[cfg(test)]
mod tests;
