//! Outgoing connections: a name is resolved once, every address is checked, and the connection goes
//! to one of the checked addresses.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use node::client::{AddressGuard, AddressRefusal, TlsRoots, connector};
use node::fence::FencedStream;
use node::task::{self, Boxed};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::host::RequestHost;
use super::rules::DeniedNetworks;

/// Most concurrent name lookups, of all sandboxes: each occupies a thread, even after its caller
/// has given up. Far more than a few tenants with slow names can occupy together, and far fewer
/// than there are threads.
pub const LOOKUPS_MAX: usize = 64;

/// Most concurrent lookups of one tenant, so that its slow names delay other tenants less.
pub const LOOKUPS_MAX_PER_TENANT: usize = 2;

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;
/// Longest time of a lookup, including the wait for others.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time to connect to one address.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest time of a TLS handshake.
const TLS_TIME_MAX: Duration = Duration::from_secs(10);

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum EgressDialError {
    /// The address is not allowed.
    #[error(transparent)]
    Refused(#[from] AddressRefusal),
    /// The name cannot be resolved.
    #[error("find the address of `{0}`")]
    Resolve(String, #[source] io::Error),
    /// The connection failed.
    #[error("connect to `{0}`")]
    Connect(String, #[source] io::Error),
    /// The server's certificate is not valid, or it does not support TLS.
    #[error("agree on TLS with `{0}`")]
    Tls(String, #[source] io::Error),
    /// The TLS client cannot be set up.
    #[error("set up TLS")]
    TlsSetup(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Timed out.
    #[error("{0} took too long")]
    Slow(&'static str),
}

/// Resolves names.
pub trait NameResolver: Send + Sync + fmt::Debug {
    /// Returns all addresses of a name. `turn` is held until the lookup is over, even if its caller
    /// has given up.
    fn resolve<'a>(
        &'a self,
        name: &'a str,
        port: u16,
        turn: OwnedSemaphorePermit,
    ) -> Boxed<'a, io::Result<Vec<SocketAddr>>>;
}

/// Uses the machine's own resolver.
#[derive(Debug)]
pub struct SystemResolver(Arc<Semaphore>);

impl Default for SystemResolver {
    fn default() -> SystemResolver {
        SystemResolver(Arc::new(Semaphore::new(LOOKUPS_MAX)))
    }
}

impl NameResolver for SystemResolver {
    fn resolve<'a>(
        &'a self,
        name: &'a str,
        port: u16,
        own: OwnedSemaphorePermit,
    ) -> Boxed<'a, io::Result<Vec<SocketAddr>>> {
        let (turns, name) = (Arc::clone(&self.0), name.to_owned());
        Box::pin(async move {
            let turn = turns.acquire_owned().await.map_err(io::Error::other)?;
            let found = task::blocking(move || {
                let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
                // Held until the thread is free, even if the caller has given up.
                drop((own, turn));
                found
            });
            found.await.map_err(io::Error::other)?
        })
    }
}

/// Terms of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct DialTerms<'a> {
    /// Addresses that are allowed.
    pub(super) guard: &'a AddressGuard,
    /// Networks that are denied nevertheless.
    pub(super) networks: &'a DeniedNetworks,
    /// True if ports of protocols other than HTTP are allowed as well.
    pub(super) any_protocol: bool,
    /// Limits concurrent name lookups of the tenant.
    pub(super) lookups: &'a Arc<Semaphore>,
}

/// Opens outgoing connections.
pub struct EgressDialer {
    resolver: Arc<dyn NameResolver>,
    roots: TlsRoots,
    /// Created on first use: reading the machine's certificate authorities takes milliseconds.
    tls: OnceCell<TlsConnector>,
}

impl fmt::Debug for EgressDialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("resolver", &self.resolver).finish_non_exhaustive()
    }
}

impl EgressDialer {
    /// Creates a dialer that resolves names by `resolver` and trusts `roots`.
    #[must_use]
    pub fn new(resolver: Arc<dyn NameResolver>, roots: TlsRoots) -> EgressDialer {
        EgressDialer { resolver, roots, tls: OnceCell::new() }
    }

    /// Connects to a host whose addresses are all permitted.
    pub(super) async fn connect(
        &self,
        host: &RequestHost,
        port: u16,
        terms: DialTerms<'_>,
    ) -> Result<TcpStream, EgressDialError> {
        let DialTerms { guard, networks, any_protocol, lookups } = terms;
        let shown = || host.to_string();
        let addresses = match host {
            RequestHost::Address(address) => vec![SocketAddr::new(*address, port)],
            RequestHost::Name(name) => {
                let lookup = async {
                    let turn = Arc::clone(lookups).acquire_owned().await;
                    self.resolver.resolve(name, port, turn.map_err(io::Error::other)?).await
                };
                let found = timeout(LOOKUP_TIME_MAX, lookup).await;
                let found = found.map_err(|_| EgressDialError::Slow("looking up the name"))?;
                found.map_err(|source| EgressDialError::Resolve(shown(), source))?
            }
        };
        let checked: Vec<SocketAddr> = match any_protocol {
            true => addresses.iter().map(|it| SocketAddr::new(it.ip(), 443)).collect(),
            false => addresses.clone(),
        };
        // Before the list is truncated: all addresses are checked.
        guard.check(&shown(), &checked)?;
        networks.check(&shown(), &checked)?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
        for address in addresses.iter().take(ADDRESSES_MAX) {
            let address = SocketAddr::new(address.ip(), port);
            match timeout(CONNECT_TIME_MAX, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let lost = |source| EgressDialError::Connect(shown(), source);
                    let own = stream.local_addr().map_err(lost)?;
                    guard.check_ends(&shown(), own, stream.peer_addr().map_err(lost)?)?;
                    // Without it requests are only slightly slower.
                    stream.set_nodelay(true).ok();
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(EgressDialError::Connect(shown(), last))
    }

    /// Negotiates TLS with a host, whose certificate must be valid.
    pub(super) async fn tls(
        &self,
        host: &RequestHost,
        stream: FencedStream<TcpStream>,
    ) -> Result<TlsStream<FencedStream<TcpStream>>, EgressDialError> {
        let connector = self.tls.get_or_try_init(|| self.connector()).await?;
        let name = match host {
            RequestHost::Name(name) => ServerName::try_from(name.to_string())
                .map_err(|error| EgressDialError::Tls(host.to_string(), io::Error::other(error)))?,
            RequestHost::Address(address) => ServerName::from(*address),
        };
        let agreed = timeout(TLS_TIME_MAX, connector.connect(name, stream)).await;
        let agreed = agreed.map_err(|_| EgressDialError::Slow("agreeing on TLS"))?;
        agreed.map_err(|source| EgressDialError::Tls(host.to_string(), source))
    }

    async fn connector(&self) -> Result<TlsConnector, EgressDialError> {
        let roots = self.roots.clone();
        let made = task::blocking(move || connector(&roots)).await;
        made.map_err(|error| EgressDialError::TlsSetup(error.into()))?
            .map_err(EgressDialError::TlsSetup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn slow_names_of_some_tenants_keep_no_other_waiting() {
        let machine = SystemResolver::default();
        // As if held by lookups that never return.
        let most = u32::try_from(10 * LOOKUPS_MAX_PER_TENANT).unwrap();
        let slow = machine.0.try_acquire_many(most).unwrap();
        let turn = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let found = machine.resolve("localhost", 80, turn).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()) && !found.is_empty());
        drop(slow);
        assert_eq!(machine.0.available_permits(), LOOKUPS_MAX);
    }
}
