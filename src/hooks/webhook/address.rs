//! Checks the addresses of webhooks and of other servers in the settings. Each must be `https`, or on this machine.

use crate::config::listed::is_this_machine;
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A description of the allowed addresses, for messages.
pub(crate) const ALLOWED: &str =
    "an https:// address, or http:// to this machine (127.0.0.0/8, [::1], localhost), without user name and password";

/// Maximum bytes of an address. A longer one is a mistake.
const URL_BYTES_MAX: usize = 2_048;

/// The host name of this machine.
const LOCALHOST: &str = "localhost";

/// Parses an address, or returns the reason why nothing may be sent there.
pub(crate) fn checked(text: &str) -> Result<Url, &'static str> {
    if text.len() > URL_BYTES_MAX {
        return Err("it is too long");
    }
    let url = Url::parse(text).map_err(|_| "it is not a valid address")?;
    // Credentials would end up in other servers' logs.
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it contains a user name or password");
    }
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) => {}
        "http" => return Err("it is neither encrypted nor on this machine"),
        _ => return Err("it starts with neither https:// nor http://"),
    }
    if url.fragment().is_some() {
        return Err("it has a fragment, which is never sent");
    }
    Ok(url)
}

/// Returns true if an address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    is_this_machine(url.host_str().unwrap_or_default())
}

/// Resolves only the name of this machine, without DNS. Calls on this machine are not encrypted, and a DNS server could
/// redirect them.
pub(crate) struct ThisMachine;

impl Resolve for ThisMachine {
    fn resolve(&self, name: Name) -> Resolving {
        let found = (name.as_str() == LOCALHOST).then(|| -> Addrs {
            // The port is taken from the address.
            let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            Box::new(both.into_iter().map(|address| SocketAddr::new(address, 0)))
        });
        Box::pin(async move { found.ok_or_else(|| "not a name of this machine".into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::{ThisMachine, checked, is_loopback};
    use reqwest::dns::Resolve;

    #[test]
    fn only_https_and_this_machine_are_asked() {
        for (address, loopback) in [
            ("https://hooks.example.org/redact", false),
            ("https://hooks.example.org:8443/?key=1", false),
            ("https://10.0.0.1/", false),
            ("https://localhost/", true),
            ("http://localhost", true),
            ("http://LOCALHOST:9/a", true),
            ("http://127.0.0.1:8000/", true),
            ("http://127.8.9.10/", true),
            ("http://[::1]:8000/", true),
            // Other ways to write the same addresses.
            ("http://127.1/", true),
            ("http://2130706433/", true),
            ("http://0x7f.0.0.1/", true),
        ] {
            let url = checked(address).unwrap_or_else(|refusal| panic!("{address}: {refusal}"));
            assert_eq!(is_loopback(&url), loopback, "{address}");
        }
        for (address, refusal) in [
            ("hooks.example.org/redact", "it is not a valid address"),
            ("https://", "it is not a valid address"),
            ("", "it is not a valid address"),
            ("ftp://127.0.0.1/", "it starts with neither https:// nor http://"),
            ("file:///etc/passwd", "it starts with neither https:// nor http://"),
            ("localhost:8000", "it starts with neither https:// nor http://"),
            ("https://user@hooks.example.org/", "it contains a user name or password"),
            ("https://:word@hooks.example.org/", "it contains a user name or password"),
            ("http://127.0.0.1@example.org/", "it contains a user name or password"),
            ("https://hooks.example.org/#part", "it has a fragment, which is never sent"),
            ("http://example.org/", "it is neither encrypted nor on this machine"),
            ("http://10.0.0.1/", "it is neither encrypted nor on this machine"),
            ("http://0.0.0.0/", "it is neither encrypted nor on this machine"),
            ("http://[::]/", "it is neither encrypted nor on this machine"),
            ("http://[::ffff:127.0.0.1]/", "it is neither encrypted nor on this machine"),
            ("http://[fe80::1]/", "it is neither encrypted nor on this machine"),
            ("http://128.0.0.1/", "it is neither encrypted nor on this machine"),
            ("http://localhost./", "it is neither encrypted nor on this machine"),
            ("http://localhost.example.org/", "it is neither encrypted nor on this machine"),
            ("http://127.0.0.1.example.org/", "it is neither encrypted nor on this machine"),
        ] {
            assert_eq!(checked(address).map(|_| ()), Err(refusal), "{address}");
        }
        assert_eq!(checked(&format!("https://a/{}", "b".repeat(2_048))).map(|_| ()), Err("it is too long"));
    }

    #[tokio::test]
    async fn localhost_is_this_machine_and_no_other_name_is_looked_up() {
        let found = ThisMachine.resolve("localhost".parse().unwrap()).await.unwrap_or_else(|_| panic!("not found"));
        let found: Vec<String> = found.map(|address| address.to_string()).collect();
        assert_eq!(found, ["127.0.0.1:0", "[::1]:0"]);
        assert!(ThisMachine.resolve("example.org".parse().unwrap()).await.is_err());
    }
}
