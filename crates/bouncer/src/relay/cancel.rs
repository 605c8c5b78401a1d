//! Origin of cancel requests, for their rate limit.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use super::client::{ClientPhase, RelayClient};
use crate::guest::client::SandboxClient;

impl RelayClient {
    /// Returns the guest, if this is a guest that has not logged in yet.
    pub(super) fn login_guest(&self) -> Option<&Arc<SandboxClient>> {
        match &self.phase {
            ClientPhase::Login(phase) => phase.bound().guest.as_ref(),
            ClientPhase::Greeting(_)
            | ClientPhase::Session(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => None,
        }
    }

    /// Returns the source by which cancel requests are counted: an address, or a guest. All
    /// sandboxes have the same addresses, so each guest gets a network of its own in the discard
    /// prefix (RFC 6666), which no client has; addresses of one network are counted together.
    pub(super) fn cancel_source(&self) -> Option<IpAddr> {
        const DISCARD: u128 = 0x0100 << 112;
        match self.login_guest() {
            Some(guest) => {
                Some(IpAddr::V6(Ipv6Addr::from_bits(DISCARD | (u128::from(guest.id()) << 64))))
            }
            None => self.conn.socket.peer().map(|it| it.ip()),
        }
    }
}
