//! Client addresses: finds the address of a request's client, and says whether it identifies a single client.

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The trusted proxies in front of the server.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    trusted_proxies: Vec<IpNet>,
}

impl Addresses {
    #[must_use]
    pub(crate) fn new(trusted_proxies: Vec<IpNet>) -> Self {
        Self { trusted_proxies }
    }

    /// Returns the address of the client that sent a request. Each trusted proxy appends the address it sees to
    /// `X-Forwarded-For`. The newest address that is not a trusted proxy's is therefore the client's. A client may have
    /// made up everything before it.
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

    /// Returns true if many clients may share this address: it belongs to a trusted proxy, or to a loopback or private
    /// network, which may contain a proxy that is not configured.
    pub(super) fn is_shared(&self, address: IpAddr) -> bool {
        self.is_trusted(address) || is_private(address)
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted_proxies.iter().any(|network| network.contains(&address))
    }
}

/// Parses an address. Some proxies add a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))
}

/// Returns the network that identifies a client. This is its IPv4 address, or the /64 network of its IPv6 address,
/// within which a client can choose addresses freely.
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
            // RFC 6598: shared addresses behind a carrier's NAT.
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
            // Anything that is not an address is ignored, and so is everything before it.
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
