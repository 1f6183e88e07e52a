//! TLS of the server's own ports, and the port for operators.

use crate::support::{
    binary::{self, Binary},
    client::Client,
    gate::TLS,
    http,
    scripted::Scripted,
    server::Server,
};
use futures_util::{SinkExt as _, StreamExt as _};
use reseed::config::Settings;
use rustls::{
    ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion,
    pki_types::{CertificateDer, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use serde_json::{Value, json};
use std::{fs, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Command,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

/// The time limit for an answer on a machine that is busy with other tests; only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

const OPS: &str = "operator-token-of-some-length";
const ANN: &str = "token-of-ann-4d1f9a73c2";

/// Writes a certificate and a key of the fixtures as `cert.pem` and `key.pem`.
fn put(folder: &Path, certificate: &str, key: &str) {
    for (from, to) in [(certificate, "cert.pem"), (key, "key.pem")] {
        fs::write(folder.join(to), fs::read(format!("{TLS}/{from}")).unwrap()).unwrap();
    }
}

/// Connects over TLS and trusts what this file of the fixtures certifies.
async fn secure(
    address: &str,
    trusted: &str,
    versions: &[&'static SupportedProtocolVersion],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(format!("{TLS}/{trusted}")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let handshake = TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream);
    timeout(PATIENCE, handshake).await.expect("the handshake ends in time")
}

/// Reads until the other end closes.
async fn read_out(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("it is closed in time");
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the answer to a `GET` request over TLS.
async fn get(address: &str, path: &str) -> String {
    let mut stream = secure(address, "ca.pem", &[&TLS13]).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    read_out(&mut stream).await
}

/// A WebSocket over TLS.
pub(crate) struct Wss(WebSocketStream<TlsStream<TcpStream>>);

impl Wss {
    /// Connects, and trusts what this file of the fixtures certifies.
    pub(crate) async fn connect(address: &str, trusted: &str) -> Self {
        let stream = secure(address, trusted, &[&TLS13, &TLS12]).await.unwrap();
        Self(client_async(format!("wss://{address}/ws"), stream).await.unwrap().0)
    }

    /// Sends a command, and returns the next frame.
    pub(crate) async fn ask(&mut self, kind: &str, payload: Value) -> Value {
        let frame = json!({ "id": format!("{kind}-of-this-test-01"), "type": kind, "payload": payload });
        self.0.send(Message::text(frame.to_string())).await.unwrap();
        let answer = timeout(PATIENCE, self.0.next()).await.expect("an answer in time").expect("an answer").unwrap();
        serde_json::from_str(answer.to_text().unwrap()).unwrap()
    }
}

/// Starts a server in this process whose certificate is in this folder.
async fn server(folder: &Path, more: &[(&str, &str)]) -> Server {
    let files = [("TLS_CERT_FILE", "cert.pem"), ("TLS_KEY_FILE", "key.pem"), ("OPERATOR_PORT", "0")];
    let own = [("WORKING_DIRECTORY", folder.to_str().unwrap())];
    Server::start(Scripted::new(), &[&files[..], &own, more].concat()).await
}

#[tokio::test]
async fn both_ports_accept_https_and_wss_and_answer_plain_http_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "server.pem", "server.key");
    let server = server(folder.path(), &[]).await;
    let operators = server.service.operator_address().unwrap().to_string();
    for address in [server.address(), operators] {
        for (version, expected) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
            let stream = secure(&address, "ca.pem", &[version]).await.unwrap();
            let connection = stream.get_ref().1;
            assert_eq!(connection.protocol_version(), Some(expected));
            assert_eq!(connection.alpn_protocol(), Some(&b"http/1.1"[..]));
        }
        let answer = get(&address, "/healthz").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok\n"), "{answer}");
        let mut plain = TcpStream::connect(&address).await.unwrap();
        plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let answer = read_out(&mut plain).await;
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request") && answer.contains("https://"), "{answer}");
        // Neither a plain client nor one that distrusts the certificate stops the others.
        assert!(secure(&address, "other.pem", &[&TLS13]).await.is_err());
    }
    let mut socket = Wss::connect(&server.address(), "ca.pem").await;
    assert_eq!(socket.ask("hello", json!({ "protocolVersion": 2 })).await["type"], "welcome");
    assert_eq!(socket.ask("open_session", json!({})).await["type"], "session_opened");
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_cut_off_and_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "server.pem", "server.key");
    let server = server(folder.path(), &[("HELLO_TIMEOUT_SECS", "1")]).await;
    let mut slow = Vec::new();
    // Silent; and after the head of a handshake record.
    for begin in [&b""[..], &[22, 3, 1, 2, 0]].repeat(20) {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(begin).await.unwrap();
        slow.push(stream);
    }
    assert!(get(&server.address(), "/healthz").await.ends_with("ok\n"));
    for mut stream in slow {
        assert_eq!(read_out(&mut stream).await, "");
    }
}

#[tokio::test]
async fn another_certificate_is_taken_up_and_open_connections_stay() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "server.pem", "server.key");
    let server = server(folder.path(), &[]).await;
    let settings = |more: &[(&str, &str)]| {
        let own = [("WORKING_DIRECTORY", folder.path().to_str().unwrap()), ("OPERATOR_PORT", "0")];
        let usual = [("WS_PORT", "0"), ("CONTEXT_WINDOW", "2000"), ("MODEL", "test"), ("SHUTDOWN_GRACE_SECS", "1")];
        Settings::from_iter([&own[..], &usual, more].concat().iter().copied()).unwrap()
    };
    let files = [("TLS_CERT_FILE", "cert.pem"), ("TLS_KEY_FILE", "key.pem")];
    let mut socket = Wss::connect(&server.address(), "ca.pem").await;
    socket.ask("hello", json!({ "protocolVersion": 2 })).await;

    for (certificate, key, expected) in [
        ("other.pem", "server.key", "TLS_CERT_FILE and TLS_KEY_FILE cannot be used together"),
        ("server.key", "server.key", "TLS_CERT_FILE names a file that holds no certificate"),
        ("other.pem", "other.pem", "TLS_KEY_FILE names a file that holds no private key"),
    ] {
        put(folder.path(), certificate, key);
        let error = format!("{:#}", server.service.reload(&settings(&files)).await.unwrap_err());
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("PRIVATE") && !error.contains("key.pem"), "{error}");
        assert!(secure(&server.address(), "ca.pem", &[&TLS13]).await.is_ok(), "all is as before");
    }
    fs::remove_file(folder.path().join("key.pem")).unwrap();
    let error = format!("{:#}", server.service.reload(&settings(&files)).await.unwrap_err());
    assert!(error.contains("TLS_KEY_FILE names a file that cannot be read"), "{error}");

    put(folder.path(), "other.pem", "other.key");
    let reloaded = server.service.reload(&settings(&files)).await.unwrap();
    assert_eq!(reloaded.wants_restart, Vec::<String>::new());
    assert!(secure(&server.address(), "ca.pem", &[&TLS13]).await.is_err());
    let mut newer = Wss::connect(&server.address(), "other.pem").await;
    assert_eq!(newer.ask("hello", json!({ "protocolVersion": 2 })).await["type"], "welcome");
    assert_eq!(socket.ask("open_session", json!({})).await["type"], "session_opened", "it stayed");

    let reloaded = server.service.reload(&settings(&[])).await.unwrap();
    assert_eq!(reloaded.wants_restart, ["whether the ports use TLS (TLS_CERT_FILE)"]);
    assert!(secure(&server.address(), "other.pem", &[&TLS13]).await.is_ok());
}

#[tokio::test]
async fn the_commands_that_reach_the_server_use_tls() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "other.pem", "other.key");
    let files = [("TLS_CERT_FILE", "cert.pem"), ("TLS_KEY_FILE", "key.pem")];
    let server = Binary::start(folder.path(), &[&files[..], &[("OPERATOR_PORT", "0")]].concat()).await;
    assert!(server.start_line.contains("listens on https://127.0.0.1:"), "{}", server.start_line);
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    let own = [&files[..], &[("WS_PORT", &port)]].concat();
    let healthy = binary::run(folder.path(), &["health"], &own).await;
    assert_eq!((healthy.code, healthy.printed.as_str(), healthy.faults.as_str()), (Some(0), "ok\n", ""));
    // The certificate is its own authority.
    let trusting = [&own[..], &[("SSL_CERT_FILE", "cert.pem")]].concat();
    let said = binary::run(folder.path(), &["chat", "Hello."], &trusting).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let distrusting = binary::run(folder.path(), &["chat", "Hello."], &own).await;
    assert_eq!(distrusting.code, Some(1), "{distrusting:?}");
    assert!(distrusting.faults.contains("certificate"), "{}", distrusting.faults);
    let checked = binary::run(folder.path(), &["check"], &own).await;
    assert!(checked.printed.contains("the certificate is valid until 2125-06-24"), "{}", checked.printed);

    // SIGHUP reads the files again, although no setting has changed.
    put(folder.path(), "server.pem", "server.key");
    let sent = Command::new("sh").args(["-c", "kill -HUP \"$0\"", &server.pid().to_string()]).status().await;
    assert!(sent.unwrap().success());
    timeout(PATIENCE, async { while secure(&server.address, "ca.pem", &[&TLS13]).await.is_err() {} }).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn the_operators_port_has_what_is_for_operators_and_the_public_port_has_not() {
    let tokens = [("OPERATOR_TOKENS", &*format!("ops:{OPS}")), ("AUTH_TOKENS", &*format!("ann:{ANN}"))];
    let one = Server::start(Scripted::new(), &tokens).await;
    let two = Server::start(Scripted::new(), &[&tokens[..], &[("OPERATOR_PORT", "0")]].concat()).await;
    assert_eq!(one.service.operator_address(), None);
    let (public, operators) = (two.address(), two.service.operator_address().unwrap().to_string());
    let bearer = [("Authorization", &*format!("Bearer {OPS}"))];
    // Statuses on the only port, on the public one, and on the operators'.
    for (method, path, expected) in [
        ("GET", "/healthz", [200, 200, 200]),
        ("GET", "/readyz", [200, 200, 200]),
        ("GET", "/", [200, 200, 404]),
        ("GET", "/assets/none.js", [404, 404, 404]),
        ("GET", "/ws", [400, 400, 404]),
        ("GET", "/metrics", [200, 404, 200]),
        ("GET", "/api/sessions", [200, 404, 200]),
        ("GET", "/api/sessions/k7m2q9xw4hfatz8n/tree", [404, 404, 404]),
        ("GET", "/api/usage", [200, 404, 200]),
        ("GET", "/api/budgets", [200, 404, 200]),
        ("GET", "/api/minutes", [200, 404, 200]),
        ("GET", "/api/mcp", [200, 404, 200]),
        ("POST", "/api/tickets", [403, 403, 404]),
        ("DELETE", "/api/tickets/none", [401, 401, 404]),
        ("DELETE", "/api/principals/ann", [401, 401, 404]),
        ("POST", "/v1/responses", [401, 401, 404]),
        ("POST", "/internal/revoke", [404, 404, 404]),
    ] {
        let mut found = [0; 3];
        for (address, status) in [&one.address(), &public, &operators].into_iter().zip(&mut found) {
            *status = http::ask(address, method, path, &bearer).await.status;
        }
        assert_eq!(found, expected, "{method} {path}");
    }
    // A port accepts its own pages, and no other port's.
    for (address, port, expected) in
        [(&public, &public, 200), (&public, &operators, 403), (&operators, &operators, 200), (&operators, &public, 403)]
    {
        let origin = format!("http://localhost:{}", port.rsplit_once(':').unwrap().1);
        let answer = http::ask(address, "GET", "/healthz", &[("Origin", &origin)]).await;
        assert_eq!(answer.status, expected, "{origin} at {address}: {answer:?}");
        let answer = http::ask(address, "GET", "/healthz", &[("Host", "evil.example")]).await;
        assert_eq!(answer.status, 421, "{answer:?}");
    }
    // What is not there asks for no credentials, and says nothing about them.
    assert_eq!(http::get(&public, "/api/sessions").await.status, 404);
    assert_eq!(http::get(&operators, "/api/sessions").await.status, 401);
    let mut client = Client::connect(&two.ws()).await;
    assert_eq!(client.ask("hello", json!({ "protocolVersion": 2, "token": ANN })).await["type"], "welcome");
    two.service.stop().await;
    for address in [public, operators] {
        assert!(TcpStream::connect(&address).await.is_err(), "{address} is closed");
    }
}
