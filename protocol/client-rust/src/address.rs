//! The address of a server.

use std::str::FromStr;
use tokio_tungstenite::tungstenite::http::Uri;

/// The address of a server: `ws://HOST[:PORT][/PATH]`, or `wss`.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(Uri);

/// The reason why a text is not the address of a server. It repeats the text without its user and its query, which may
/// contain secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the address of a server; write ws://127.0.0.1:8080/ws or http://127.0.0.1:8080, with wss:// or \
     https:// for TLS"
)]
pub struct InvalidAddress(String);

impl Address {
    /// Parses an address of the form `ws://HOST[:PORT]/PATH`, or `wss`, without changing its path. Use this for a
    /// server that is reached at the root.
    ///
    /// # Errors
    /// Returns an error if the text is not such an address.
    pub fn exactly(text: &str) -> Result<Self, InvalidAddress> {
        let address: Self = text.parse()?;
        let given = text.parse::<Uri>().ok().filter(|given| given.scheme() == address.0.scheme());
        given.map(Self).ok_or_else(|| InvalidAddress::of(text))
    }

    /// Returns the address for the handshake.
    pub(crate) fn uri(&self) -> &Uri {
        &self.0
    }
}

impl InvalidAddress {
    fn of(text: &str) -> Self {
        let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
        let (shown, hidden) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        // If an `@` follows a `?`, either may be part of a password.
        let shown = if hidden.contains('@') { "…" } else { shown.rsplit('@').next().unwrap_or_default() };
        let separator = if scheme.is_empty() { "" } else { "://" };
        Self(format!("{scheme}{separator}{shown}"))
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    /// Parses an address. The address of a page also names the server: `http` is taken as `ws`, and `https` as `wss`.
    /// Without a path, `/ws` is used.
    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = || InvalidAddress::of(text);
        let given: Uri = text.parse().map_err(|_| invalid())?;
        let scheme = match given.scheme_str() {
            Some("ws" | "http") => "ws",
            Some("wss" | "https") => "wss",
            _ => return Err(invalid()),
        };
        let host =
            given.authority().filter(|_| given.host().is_some_and(|host| !host.is_empty())).ok_or_else(invalid)?;
        let path = if given.path() == "/" { "/ws" } else { given.path() };
        let query = given.query().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{scheme}://{host}{path}{query}").parse().map(Self).map_err(|_| invalid())
    }
}

impl std::fmt::Debug for Address {
    /// Writes the address like [`Display`](std::fmt::Display), without secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Address({self})")
    }
}

impl std::fmt::Display for Address {
    /// Writes the address without its password and query. The query may contain a ticket.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = self.0.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let host = host.rsplit('@').next().unwrap_or_default();
        write!(f, "{}://{host}{}", self.0.scheme_str().unwrap_or_default(), self.0.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_websocket_address() {
        let table = [
            ("ws://127.0.0.1:8080/ws", Some("ws://127.0.0.1:8080/ws")),
            ("ws://localhost:8080", Some("ws://localhost:8080/ws")),
            ("wss://example.org/", Some("wss://example.org/ws")),
            ("wss://name:secret@example.org/chat?ticket=secret", Some("wss://example.org/chat")),
            ("http://localhost:8080", Some("ws://localhost:8080/ws")),
            ("https://example.org/", Some("wss://example.org/ws")),
            ("https://example.org/chat/ws", Some("wss://example.org/chat/ws")),
            ("ftp://localhost:8080", None),
            ("localhost:8080", None),
            ("", None),
        ];
        for (text, expected) in table {
            let address = text.parse::<Address>().ok();
            assert_eq!(address.as_ref().map(ToString::to_string).as_deref(), expected, "{text}");
        }
        let exact = |text| Address::exactly(text).ok().map(|address| address.0.to_string());
        for text in ["ws://localhost:8080/", "wss://example.org/?ticket=t", "ws://localhost:8080/ws"] {
            assert_eq!(exact(text).as_deref(), Some(text));
        }
        assert_eq!([exact("http://localhost:8080/"), exact("localhost:8080")], [None, None]);
    }

    #[test]
    fn nothing_secret_is_printed() {
        let table = [
            ("ftp://example.org/?ticket=secret", "`ftp://example.org/`"),
            ("ftp://name:secret@example.org/ws", "`ftp://example.org/ws`"),
            ("name:secret@example.org", "`example.org`"),
            ("ftp://name:sec?ret@example.org/ws", "`ftp://…`"),
            ("localhost:8080", "`localhost:8080`"),
        ];
        for (text, shown) in table {
            let refused = text.parse::<Address>().unwrap_err();
            assert!(refused.to_string().starts_with(shown), "{refused}");
            assert!(!format!("{refused:?}").contains("sec"), "{refused:?}");
        }
        let address: Address = "ws://name:secret@example.org/ws?ticket=secret".parse().unwrap();
        assert_eq!(format!("{address:?}"), "Address(ws://example.org/ws)");
    }
}
