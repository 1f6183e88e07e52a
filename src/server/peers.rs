//! What this node needs to reach others: the secret that they share, and HTTP clients.

use secrecy::SecretString;
use std::{sync::OnceLock, time::Duration};

/// The time limit for another node's answer. A service waits for it.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(2);

/// What is needed to reach the other nodes of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// The secret that the nodes share. `None` for a single server.
    token: Option<SecretString>,
    /// The HTTP clients, each built on first use: without TLS, and with the system's root certificates, which take long
    /// to read.
    clients: [OnceLock<reqwest::Client>; 2],
}

impl Peers {
    pub(crate) fn new(token: Option<SecretString>) -> Self {
        Self { token, ..Self::default() }
    }

    pub(super) fn token(&self) -> Option<&SecretString> {
        self.token.as_ref()
    }

    pub(super) fn client(&self, url: &str) -> Result<&reqwest::Client, String> {
        let is_secure = !url.starts_with("http:");
        let place = &self.clients[usize::from(is_secure)];
        if let Some(client) = place.get() {
            return Ok(client);
        }
        // The other node might close a kept-alive connection just as the next request is sent. A POST is not retried
        // then, and a live node would count as unreachable.
        let builder = reqwest::Client::builder().timeout(ANSWER_TIME).no_proxy().pool_max_idle_per_host(0);
        let builder = if is_secure { builder } else { builder.tls_certs_only([]) };
        // Idempotent: the first caller installs it, and all choose ring.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let built = builder.build().map_err(|error| error.to_string())?;
        Ok(place.get_or_init(|| built))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    #[test]
    fn a_client_is_built_once() {
        let peers = Peers::default();
        let [first, second] = [(); 2].map(|()| std::ptr::from_ref(peers.client("http://a:1/internal/revoke").unwrap()));
        assert_eq!(first, second);
        let secure = std::ptr::from_ref(peers.client("https://a:1/internal/revoke").unwrap());
        assert_ne!(first, secure, "it trusts the system's roots");
    }

    #[tokio::test]
    async fn each_question_has_a_connection_of_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/internal/revoke", listener.local_addr().unwrap());
        let answering = tokio::spawn(async move {
            let mut open = Vec::new();
            for _ in 0..2 {
                let (mut socket, _) = listener.accept().await.unwrap();
                let _ = socket.read(&mut [0; 1024]).await.unwrap();
                socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                // Kept open, because the client decides when to close.
                open.push(socket);
            }
        });
        let peers = Peers::default();
        for _ in 0..2 {
            let answered = peers.client(&url).unwrap().post(&url).send().await.unwrap();
            assert_eq!(answered.text().await.unwrap(), "ok");
        }
        answering.await.unwrap();
    }
}
