//! Guard of outgoing requests: none may enter the network that the server is in.
//!
//! A webhook's URL makes the server send a request on a caller's behalf. Its host name is resolved
//! once, every address is checked, and the connection goes to a checked address: a name that
//! resolves differently a moment later gains nothing.
//!
//! # References
//! - <https://www.iana.org/assignments/iana-ipv4-special-registry/iana-ipv4-special-registry.xhtml>
//! - <https://www.iana.org/assignments/iana-ipv6-special-registry/iana-ipv6-special-registry.xhtml>

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Maximum number of entries of an allow list.
pub const ALLOWED_MAX: usize = 1000;

/// Ports of protocols that may interpret a line of HTTP as something else: those that browsers
/// refuse (fetch.spec.whatwg.org, "bad port"), and databases that execute the parts they
/// understand.
const PORTS_REFUSED: &[u16] = &[
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101,
    102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427,
    465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990,
    993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566, 6665, 6666,
    6667, 6668, 6669, 6679, 6697, 10080, 11211,
];

/// Reason why a request is not sent. It does not reveal the addresses of a name: a caller that may
/// register a webhook need not learn about the inner network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// The port belongs to another protocol.
    #[error("port {0} is not one for HTTP")]
    Port(u16),
    /// The name resolves to an address outside the public Internet.
    #[error("`{host}` resolves to an address that is {class}")]
    Address {
        /// The name, as given.
        host: String,
        /// Class of the address.
        class: &'static str,
    },
}

/// An entry of an allow list: a network, such as `10.1.0.0/16` or `10.1.2.3`, or the name of a
/// host, all of whose addresses are then trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedNetwork(AllowEntry);

#[derive(Clone, Debug, PartialEq, Eq)]
enum AllowEntry {
    Network {
        address: IpAddr,
        /// Number of significant leading bits.
        bits: u8,
    },
    /// In lower case and without a trailing dot.
    Host(String),
}

/// An invalid entry of an allow list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a network such as `10.0.0.0/8` nor the name of a host")]
pub struct NotAllowed(String);

impl FromStr for AllowedNetwork {
    type Err = NotAllowed;

    fn from_str(text: &str) -> Result<AllowedNetwork, NotAllowed> {
        let wrong = || NotAllowed(text.to_owned());
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| wrong())?;
            let bits: u8 = bits.parse().map_err(|_| wrong())?;
            let bits_max = if address.is_ipv4() { 32 } else { 128 };
            // `10.1.2.3/8` is more likely a mistake than a way to write `10.0.0.0/8`.
            let rest = number(address).checked_shl(u32::from(bits)).unwrap_or(0);
            if bits > bits_max || rest != 0 {
                return Err(wrong());
            }
            return Ok(AllowedNetwork(AllowEntry::Network { address, bits }));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            return Ok(AllowedNetwork(AllowEntry::Network { address, bits }));
        }
        if is_name(text) { Ok(AllowedNetwork(AllowEntry::Host(plain(text)))) } else { Err(wrong()) }
    }
}

impl fmt::Display for AllowedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            AllowEntry::Network { address, bits } => write!(f, "{address}/{bits}"),
            AllowEntry::Host(name) => f.write_str(name),
        }
    }
}

impl AllowedNetwork {
    /// Returns whether this network contains an address; always false for the name of a host.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        matches!(&self.0, AllowEntry::Network { .. }) && self.has("", address)
    }

    fn has(&self, host: &str, address: IpAddr) -> bool {
        match &self.0 {
            AllowEntry::Host(name) => *name == plain(host),
            AllowEntry::Network { address: network, bits } => {
                let shift = 128 - u32::from(*bits);
                network.is_ipv4() == address.is_ipv4()
                    && (number(*network) ^ number(address)).checked_shr(shift).unwrap_or(0) == 0
            }
        }
    }
}

/// Returns the bits of an address, the first one as the most significant.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Rule on the addresses that requests may go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressGuard {
    /// Any address: for a command line, whose user can reach the same addresses.
    Open,
    /// The public Internet, and these networks.
    Public(Vec<AllowedNetwork>),
}

impl AddressGuard {
    /// Checks the addresses of a name: all of them, since a partly acceptable answer is an attack.
    /// Any of them may be used afterwards.
    ///
    /// # Errors
    /// If one of the addresses, or the port, may not be reached.
    pub fn check(&self, host: &str, addresses: &[SocketAddr]) -> Result<(), AddressRefusal> {
        let AddressGuard::Public(allowed) = self else { return Ok(()) };
        for address in addresses {
            if allowed.iter().any(|entry| entry.has(host, address.ip())) {
                continue;
            }
            if PORTS_REFUSED.binary_search(&address.port()).is_ok() {
                return Err(AddressRefusal::Port(address.port()));
            }
            if let Some(class) = inner_class(address.ip()) {
                return Err(AddressRefusal::Address { host: host.to_owned(), class });
            }
        }
        Ok(())
    }

    /// Checks an established connection, before anything is sent: it must not lead to this machine
    /// itself, whose addresses may be public ones. Services that listen on all addresses are not
    /// meant for clients outside of its firewall.
    ///
    /// # Errors
    /// If both ends have the same address, and no entry allows it.
    pub fn check_ends(
        &self,
        host: &str,
        own: SocketAddr,
        peer: SocketAddr,
    ) -> Result<(), AddressRefusal> {
        let AddressGuard::Public(allowed) = self else { return Ok(()) };
        let [own, address] = [own.ip().to_canonical(), peer.ip().to_canonical()];
        if own != address || allowed.iter().any(|entry| entry.has(host, peer.ip())) {
            return Ok(());
        }
        Err(AddressRefusal::Address { host: host.to_owned(), class: LOCAL })
    }
}

/// Class of this machine's own addresses.
const LOCAL: &str = "of the machine itself";

/// Normalises a name for comparison.
fn plain(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Returns whether this is the name of a host: letters, digits, hyphens and underscores between
/// dots.
///
/// A name whose last part is a number is malformed: C libraries accept `127.1`, `0x7f.1` and
/// `2130706433` as addresses, in different ways. Names in other scripts have a form in ASCII,
/// `xn--…`, which is required here.
#[must_use]
pub fn is_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let parts_good = host.split('.').all(|part| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&part.len()) && part.bytes().all(good)
    });
    let last = host.rsplit('.').next().unwrap_or_default();
    let digits = |text: &str, radix| text.chars().all(|digit| digit.is_digit(radix));
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_number = digits(last, 10) || hexadecimal.is_some_and(|rest| digits(rest, 16));
    host.len() <= 253 && parts_good && !is_number
}

/// Returns whether an address belongs to the public Internet.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    inner_class(address).is_none()
}

/// Returns the class of an address outside the public Internet.
fn inner_class(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => inner_class_v4(address),
        IpAddr::V6(address) => inner_class_v6(address),
    }
}

/// Classifies by the special-purpose registry of IPv4 (RFC 6890 and its successors).
fn inner_class_v4(address: Ipv4Addr) -> Option<&'static str> {
    const PRIVATE: &str = "of a private network";
    const RESERVED: &str = "reserved";
    let class = match address.octets() {
        [0 | 127, ..] => LOCAL,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => PRIVATE,
        // Cloud providers serve the machine's credentials here.
        [169, 254, ..] => "link-local",
        // IETF protocol assignments, documentation, 6to4 relays, benchmarks.
        [192, 0, 0 | 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => RESERVED,
        [192, 88, 99, _] | [198, 18 | 19, ..] => RESERVED,
        [224..=239, ..] => "a multicast group",
        [240..=255, ..] => RESERVED,
        _ => return None,
    };
    Some(class)
}

/// IPv6 allocates only `2000::/3` to the public; an embedded IPv4 address determines the class.
fn inner_class_v6(address: Ipv6Addr) -> Option<&'static str> {
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        inner_class_v4(Ipv4Addr::new(a, b, c, d))
    };
    let class = match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => LOCAL,
        // Mapped addresses, and those translated by NAT64, where public ones are in use.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            return embedded(high, low);
        }
        // 6to4.
        [0x2002, high, low, ..] => return embedded(high, low),
        [0xfc00..=0xfdff, ..] => "of a private network",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xff00..=0xffff, ..] => "a multicast group",
        // IETF protocol assignments, Teredo and benchmarks among them; documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "reserved",
        [0x2000..=0x3fff, ..] => return None,
        _ => "reserved",
    };
    Some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(allowed: &[&str]) -> AddressGuard {
        AddressGuard::Public(allowed.iter().map(|entry| entry.parse().unwrap()).collect())
    }

    fn check(guard: &AddressGuard, host: &str, addresses: &[&str]) -> Result<(), AddressRefusal> {
        let addresses: Vec<SocketAddr> =
            addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 443)).collect();
        guard.check(host, &addresses)
    }

    const INNER: &[(&str, &str)] = &[
        ("0.0.0.0", "of the machine itself"),
        ("0.1.2.3", "of the machine itself"),
        ("127.0.0.1", "of the machine itself"),
        ("127.255.255.254", "of the machine itself"),
        ("10.0.0.1", "of a private network"),
        ("100.64.0.1", "of a private network"),
        ("100.127.255.255", "of a private network"),
        ("172.16.0.1", "of a private network"),
        ("172.31.255.255", "of a private network"),
        ("192.168.1.1", "of a private network"),
        ("169.254.169.254", "link-local"),
        ("192.0.0.170", "reserved"),
        ("192.0.2.1", "reserved"),
        ("192.88.99.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("198.19.255.255", "reserved"),
        ("198.51.100.1", "reserved"),
        ("203.0.113.1", "reserved"),
        ("224.0.0.1", "a multicast group"),
        ("239.255.255.255", "a multicast group"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "of the machine itself"),
        ("::1", "of the machine itself"),
        ("::127.0.0.1", "reserved"),
        ("::8.8.8.8", "reserved"),
        ("::ffff:127.0.0.1", "of the machine itself"),
        ("::ffff:10.0.0.1", "of a private network"),
        ("::ffff:169.254.169.254", "link-local"),
        ("::ffff:0:127.0.0.1", "reserved"),
        ("64:ff9b::7f00:1", "of the machine itself"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("64:ff9b:1::1", "reserved"),
        ("100::1", "reserved"),
        ("2001::1", "reserved"),
        ("2001:2::1", "reserved"),
        ("2001:db8::1", "reserved"),
        ("3fff::1", "reserved"),
        ("2002:7f00:1::", "of the machine itself"),
        ("2002:a00:1::1", "of a private network"),
        ("4000::1", "reserved"),
        ("5f00::1", "reserved"),
        ("fc00::1", "of a private network"),
        ("fdff::1", "of a private network"),
        ("fe80::1", "link-local"),
        ("febf::1", "link-local"),
        ("fec0::1", "reserved"),
        ("ff02::1", "a multicast group"),
    ];

    const OUTER: &[&str] = &[
        "8.8.8.8",
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "126.255.255.255",
        "128.0.0.1",
        "169.253.1.1",
        "172.15.1.1",
        "172.32.1.1",
        "192.167.1.1",
        "198.17.1.1",
        "198.20.1.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2001:4860:4860::8888",
        "2001:200::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
        "3ffe::1",
    ];

    #[test]
    fn only_public_addresses_are_reached() {
        for (address, class) in INNER {
            let expected = AddressRefusal::Address { host: "h".to_owned(), class };
            assert_eq!(check(&public(&[]), "h", &[address]), Err(expected), "{address}");
            // A public address beside it does not help.
            assert!(check(&public(&[]), "h", &["8.8.8.8", address]).is_err(), "{address}");
            assert_eq!(check(&AddressGuard::Open, "h", &[address]), Ok(()), "{address}");
        }
        for address in OUTER {
            assert_eq!(check(&public(&[]), "h", &[address]), Ok(()), "{address}");
        }
    }

    #[test]
    fn an_allow_list_opens_what_it_names_and_nothing_else() {
        for (entry, host, address, good) in [
            ("10.0.0.0/8", "h", "10.255.0.1", true),
            ("10.0.0.0/8", "h", "11.0.0.1", true),
            ("10.0.0.0/8", "h", "127.0.0.1", false),
            ("10.1.0.0/16", "h", "10.2.0.1", false),
            ("127.0.0.1", "h", "127.0.0.1", true),
            ("127.0.0.1", "h", "127.0.0.2", false),
            ("127.0.0.1", "h", "::ffff:127.0.0.1", false),
            ("0.0.0.0/0", "h", "127.0.0.1", true),
            ("0.0.0.0/0", "h", "::1", false),
            ("::/0", "h", "::1", true),
            ("::/0", "h", "127.0.0.1", false),
            ("fd00::/8", "h", "fd12::1", true),
            ("fd00::/8", "h", "fc12::1", false),
            ("Hooks.Example.", "hooks.example", "127.0.0.1", true),
            ("hooks.example", "HOOKS.example.", "10.0.0.1", true),
            ("hooks.example", "evil.hooks.example", "10.0.0.1", false),
        ] {
            let result = check(&public(&[entry]), host, &[address]);
            assert_eq!(result.is_ok(), good, "{entry} {host} {address}");
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0.1/8", "::1/64", "10.0.0.0/", "/8", "a b", "300.1"]
        {
            assert!(wrong.parse::<AllowedNetwork>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_machine_does_not_connect_to_itself() {
        for (allowed, own, peer, good) in [
            (&[][..], "9.9.9.9:50000", "9.9.9.9:80", false),
            (&[], "9.9.9.9:50000", "9.9.9.8:80", true),
            (&[], "[2606:4700::1]:50000", "[2606:4700::1]:80", false),
            (&[], "9.9.9.9:50000", "[::ffff:9.9.9.9]:80", false),
            (&["9.9.9.0/24"], "9.9.9.9:50000", "9.9.9.9:80", true),
            (&["9.9.8.0/24"], "9.9.9.9:50000", "9.9.9.9:80", false),
            (&["h"], "9.9.9.9:50000", "9.9.9.9:80", true),
        ] {
            let (own, peer) = (own.parse().unwrap(), peer.parse().unwrap());
            let found = public(allowed).check_ends("h", own, peer);
            assert_eq!(found.is_ok(), good, "{allowed:?} {own} {peer}");
            assert_eq!(AddressGuard::Open.check_ends("h", own, peer), Ok(()));
        }
    }

    #[test]
    fn other_protocols_are_spared() {
        assert!(PORTS_REFUSED.is_sorted(), "looked up by halving");
        let guard = public(&["10.0.0.1"]);
        for (address, good) in [
            ("8.8.8.8:80", true),
            ("8.8.8.8:8080", true),
            ("8.8.8.8:25", false),
            ("8.8.8.8:6379", false),
            ("8.8.8.8:0", false),
            ("10.0.0.1:25", true),
        ] {
            assert_eq!(guard.check("h", &[address.parse().unwrap()]).is_ok(), good, "{address}");
        }
    }

    #[test]
    fn numbers_are_no_names() {
        for (host, good) in [
            ("example.com", true),
            ("example.com.", true),
            ("a_b.xn--bcher-kva.example", true),
            ("localhost", true),
            ("1.example", true),
            ("0x7f.1", false),
            ("127.1", false),
            ("2130706433", false),
            ("0x7f000001", false),
            ("0x", false),
            ("017700000001", false),
            ("1.2.3.4.5", false),
            ("1.2.3.0xfe", false),
            ("127.0.0.1.", false),
            ("bücher.example", false),
            ("１２７.0.0.1", false),
            ("a..b", false),
            (".", false),
            ("", false),
            ("a b", false),
            ("a%00b", false),
        ] {
            assert_eq!(is_name(host), good, "{host}");
        }
    }
}
