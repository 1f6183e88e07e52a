//! Addresses of clients: which one a request comes from, and which tell clients apart.

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The addresses of proxies in front of the server.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    trusted_proxies: Vec<IpNet>,
}

impl Addresses {
    /// Creates them for these proxies.
    #[must_use]
    pub(crate) fn new(trusted_proxies: Vec<IpNet>) -> Self {
        Self { trusted_proxies }
    }

    /// Returns the address of the client that a request comes from. A proxy that is trusted says whose request it
    /// passes on, in `X-Forwarded-For`; each appends the address that it sees. So the newest that is no trusted proxy's
    /// is the client's, and whatever stands before it may be the client's invention.
    pub(super) fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.ip();
        if !self.is_trusted(client) {
            return client;
        }
        for header in headers.get_all(FORWARDED_FOR).iter().rev() {
            for item in header.to_str().unwrap_or_default().rsplit(',') {
                let Some(address) = address(item.trim()) else { return client };
                client = address;
                if !self.is_trusted(client) {
                    return client;
                }
            }
        }
        client
    }

    /// Returns true for addresses that many clients may have: of trusted proxies, and loopback and private networks,
    /// which a proxy that was not told of may be in.
    pub(super) fn is_shared(&self, address: IpAddr) -> bool {
        self.is_trusted(address) || is_private(address)
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted_proxies.iter().any(|network| network.contains(&address))
    }
}

/// Parses an address, which some proxies give with a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))
}

/// Returns what stands for a client: its address, and of IPv6 the network of 64 bits, in which a client chooses freely.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Returns true for loopback and private networks.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            // RFC 6598: behind the address translation of a provider.
            let [a, b, ..] = address.octets();
            let is_of_a_provider = a == 100 && (64..128).contains(&b);
            address.is_loopback() || address.is_private() || address.is_link_local() || is_of_a_provider
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.segments()[0] == 0
                || address.is_unique_local()
                || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn the_client_is_the_newest_address_that_no_trusted_proxy_has() {
        let trusted = ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"].map(|net| net.parse().unwrap());
        let addresses = Addresses::new(trusted.to_vec());
        for (peer, forwarded, expected) in [
            ("203.0.113.5", &[][..], "203.0.113.5"),
            ("203.0.113.5", &["198.51.100.1"][..], "203.0.113.5"),
            ("10.1.2.3", &[], "10.1.2.3"),
            ("10.1.2.3", &["198.51.100.1"], "198.51.100.1"),
            ("192.0.2.7", &["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
            ("192.0.2.7", &["6.6.6.6, 198.51.100.1, 10.9.9.9"], "198.51.100.1"),
            ("192.0.2.7", &["6.6.6.6", "198.51.100.1", "10.9.9.9"], "198.51.100.1"),
            ("192.0.2.7", &["198.51.100.1:4711"], "198.51.100.1"),
            ("192.0.2.7", &["[2001:470::1]:4711"], "2001:470::1"),
            ("2001:db8::1", &["[2001:470::1]"], "2001:470::1"),
            ("::ffff:10.1.2.3", &["198.51.100.1"], "198.51.100.1"),
            ("10.1.2.3", &["10.4.5.6"], "10.4.5.6"),
            // What is no address is no client's, nor is anything before it.
            ("10.1.2.3", &["198.51.100.1, unknown"], "10.1.2.3"),
            ("10.1.2.3", &["6.6.6.6, <script>, 10.4.5.6"], "10.4.5.6"),
        ] {
            let mut headers = HeaderMap::new();
            for value in forwarded {
                headers.append(FORWARDED_FOR, HeaderValue::from_static(value));
            }
            let peer = SocketAddr::new(peer.parse().unwrap(), 1);
            assert_eq!(addresses.client(peer, &headers), expected.parse::<IpAddr>().unwrap(), "{peer} {forwarded:?}");
        }
    }
}
