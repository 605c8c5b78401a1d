//! Proofs that take long to check, away from the relay threads: one thread has them all, so that
//! whoever sends wrong passwords takes from others who log in and never from those who are in.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use super::client::Phase;
use super::common::Common;
use super::login::Flow;
use super::orders::{Inbox, Inner};
use super::worker::Worker;
use crate::link::Demand;
use crate::mysql::login::{Check, Checked};
use crate::pg::login::Refusal;
use crate::rate::{Limiter, Origin};

/// Proofs that may wait for the thread. Whoever comes beyond is refused and may try again.
const PROOFS_MAX: usize = 1024;

/// A proof, and who waits for what comes of it.
pub(super) struct Proof {
    pub(super) check: Box<Check>,
    pub(super) origin: Origin,
    pub(super) inbox: Arc<Inbox>,
    /// Place of the client.
    pub(super) client: u32,
    /// Tells it from later ones in that place.
    pub(super) serial: u64,
}

/// The thread that checks proofs.
#[derive(Debug)]
pub(super) struct Prover {
    proofs: SyncSender<Proof>,
}

impl Prover {
    /// Starts the thread. It ends by itself once this is dropped. Wrong proofs count in `failed`,
    /// and from whom there were too many none is looked at.
    pub(super) fn start(failed: Arc<Limiter<Origin>>) -> std::io::Result<Prover> {
        let (proofs, inbox) = sync_channel(PROOFS_MAX);
        let thread = std::thread::Builder::new().name("bouncer-proofs".to_owned());
        drop(thread.spawn(move || run(&inbox, &failed))?);
        Ok(Prover { proofs })
    }

    /// Asks for a check; [`Inner::Checked`] comes to the client's thread. `false` when too many
    /// wait already.
    #[must_use]
    pub(super) fn ask(&self, proof: Proof) -> bool {
        match self.proofs.try_send(proof) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

fn run(proofs: &Receiver<Proof>, failed: &Limiter<Origin>) {
    while let Ok(Proof { check, origin, inbox, client, serial }) = proofs.recv() {
        let checked = if failed.is_allowed(origin, node::clock::now()) {
            check.run()
        } else {
            Checked::Refused(too_many_failures())
        };
        // Here, because the client may be gone by now.
        if matches!(checked, Checked::Proof(None)) {
            failed.count(origin, node::clock::now());
        }
        inbox.push(Inner::Checked { client, serial, checked });
        check.renew_key();
    }
}

impl Worker {
    /// A wrong password counts.
    pub(super) fn count_failure(&self, place: u32, refusal: &Refusal) {
        if let Some(Phase::Login(phase)) = self.clients.get(place).map(|client| &client.phase)
            && let Some(origin) = phase.origin
            && refusal.code == "28P01"
            && !phase.is_counted
        {
            self.common.failed_logins.count(origin, self.ground.now);
        }
    }

    /// Has a proof checked by the thread that is there for it.
    pub(super) fn prove(&mut self, place: u32, check: Box<Check>) -> Flow {
        let Some(client) = self.clients.get_mut(place) else { return Flow::Took };
        let (serial, inbox) = (client.serial, Arc::clone(&self.inbox));
        let Phase::Login(phase) = &mut client.phase else { return Flow::Stop };
        let Some(origin) = phase.origin else { return Flow::Stop };
        phase.is_looked_up = true;
        if !self.common.prover.ask(Proof { check, origin, inbox, client: place, serial }) {
            self.checked(place, serial, Checked::Refused(too_many_proofs()));
            return Flow::Took;
        }
        Flow::Stop
    }

    /// A proof was checked.
    pub(super) fn checked(&mut self, place: u32, serial: u64, checked: Checked) {
        let Worker { clients, outbox, .. } = self;
        let Some(client) = clients.get_mut(place).filter(|it| it.serial == serial) else { return };
        let Phase::Login(phase) = &mut client.phase else { return };
        phase.is_looked_up = false;
        phase.is_counted = true;
        let Some(step) = phase.login.checked(checked, &mut outbox.to_client) else { return };
        self.follow_login(place, step.next, &[]);
        // It may have sent more meanwhile.
        self.queue_client(place);
    }
}

/// What a client has to show, unless that is a password and too many from there were wrong.
pub(super) fn restrained(common: &Common, origin: Origin, now: Instant, demand: Demand) -> Demand {
    let asks = match &demand {
        Demand::Known(Ok(proof)) => proof.asks_password(),
        Demand::Known(Err(_)) => false,
        Demand::Query => true,
    };
    if asks && !common.failed_logins.is_allowed(origin, now) {
        return Demand::Known(Err(too_many_failures()));
    }
    demand
}

/// What a client is told from where there were too many wrong passwords.
fn too_many_failures() -> Refusal {
    let hint = Some("It is forgotten within seconds.".to_owned());
    let message = "too many logins have failed from this address";
    Refusal { hint, ..Refusal::new("53400", message) }
}

/// What a client is told while too many others log in.
fn too_many_proofs() -> Refusal {
    Refusal::new("53300", "too many clients log in at this time")
}

#[cfg(test)]
mod tests;
