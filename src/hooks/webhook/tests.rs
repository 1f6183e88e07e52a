//! Tests webhooks against a server that follows the specification, and against servers that do not.

use super::{Secret, Webhook, address::ThisMachine, sign};
use crate::{
    clock::ManualClock,
    core::hook::{HookFault, HookSpec},
    hooks::{Hook as _, tests::call},
    testing::Written,
};
use reqwest::dns::{Name, Resolve, Resolving};
use reseed_protocol::{
    ErrorCode, Timestamp,
    hooks::{HookAnswer, HookCall, HookPoint},
};
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// A request as it arrived.
#[derive(Debug, Clone)]
struct Request {
    line: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// What a server does with a connection after a request.
#[derive(Debug, Clone)]
enum Answer {
    /// Sends these bytes and hangs up.
    Bytes(Vec<u8>),
    /// Sends these bytes, then nothing more.
    Stall(Vec<u8>),
    /// Sends the first bytes, then repeats the second while they are read.
    Endless(Vec<u8>, Vec<u8>),
    /// Hangs up.
    Nothing,
}

/// A server on a free port that answers every request in this way.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    async fn answering(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let taken = requests.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, taken.clone(), answer.clone()));
            }
        });
        Self { address, requests }
    }

    async fn json(status: &str, body: &str) -> Self {
        Self::answering(Answer::Bytes(response(status, "content-type: application/json", body))).await
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn response(status: &str, header: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{header}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

async fn serve(mut connection: TcpStream, requests: Arc<Mutex<Vec<Request>>>, answer: Answer) {
    let Some(request) = read(&mut connection).await else { return };
    requests.lock().unwrap().push(request);
    match answer {
        Answer::Bytes(bytes) => drop(connection.write_all(&bytes).await),
        Answer::Stall(bytes) => {
            let _ = connection.write_all(&bytes).await;
            // Waits until the peer closes the connection.
            let _ = connection.read(&mut [0]).await;
        }
        Answer::Endless(head, piece) => {
            let _ = connection.write_all(&head).await;
            while connection.write_all(&piece).await.is_ok() {}
        }
        Answer::Nothing => {}
    }
}

async fn read(connection: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let mut lines = head.split("\r\n");
            let line = lines.next().unwrap().to_owned();
            let headers = lines.filter_map(|line| line.split_once(": "));
            let headers: BTreeMap<String, String> =
                headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
            let length: usize = headers["content-length"].parse().unwrap();
            if bytes.len() == end + 4 + length {
                return Some(Request { line, headers, body: bytes[end + 4..].to_vec() });
            }
        }
        match connection.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

fn secrets(texts: &[&str]) -> Vec<Secret> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn webhook_by(resolver: Arc<dyn Resolve>, url: &str) -> Webhook {
    let specs = vec![HookSpec::new("test", HookPoint::ToolCall)];
    let clock = Arc::new(ManualClock::new(Timestamp(1_614_265_330_999)));
    let webhook = Webhook::resolved_by(resolver, specs, url, secrets(&[SECRET, OTHER]), clock).unwrap();
    Webhook { pauses: [Duration::ZERO; 2], ..webhook }
}

fn webhook(url: &str) -> Webhook {
    webhook_by(Arc::new(ThisMachine), url)
}

/// Calls a server that answers this way.
async fn asked(answer: Answer) -> Result<HookAnswer, HookFault> {
    let server = Server::answering(answer).await;
    let answer = webhook(&format!("http://{}/hook?key=hunter2", server.address)).call(call()).await;
    assert_eq!(server.requests().len(), 1, "what may have been read is not sent again");
    answer
}

#[tokio::test]
async fn a_call_is_one_signed_post_of_its_json() {
    let server = Server::json("200 OK", r#"{"block":true,"reason":"no"}"#).await;
    let webhook = webhook(&format!("http://localhost:{}/hook?key=hunter2", server.address.port()));
    assert_eq!(webhook.call(call()).await, Ok(HookAnswer::block("no")));
    let [request] = &server.requests()[..] else { panic!("one request") };
    assert_eq!(request.line, "POST /hook?key=hunter2 HTTP/1.1");
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("accept"), Some("application/json"));
    assert_eq!(header("webhook-id"), Some("msg_session1_call1"));
    assert_eq!(header("webhook-timestamp"), Some("1614265330"));
    let signature = sign::signatures(&secrets(&[SECRET, OTHER]), "msg_session1_call1", "1614265330", &request.body);
    assert_eq!(header("webhook-signature"), Some(signature.as_str()));
    assert_eq!(serde_json::from_slice::<HookCall>(&request.body).unwrap(), call());
}

#[test]
fn the_id_of_a_call_holds_no_full_stop() {
    let call = HookCall { call_id: "a.b".parse().unwrap(), session_id: "c.d".parse().unwrap(), ..call() };
    assert_eq!(super::message_id(&call), "msg_c-d_a-b");
}

#[tokio::test]
async fn an_answer_without_a_body_changes_nothing() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1\r\n\r\n\n",
        "HTTP/1.1 202 Accepted\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    ] {
        assert_eq!(asked(Answer::Bytes(head.into())).await, Ok(HookAnswer::default()), "{head}");
    }
}

#[tokio::test]
async fn what_is_no_answer_is_a_fault_that_repeats_nothing() {
    let json = "content-type: application/json";
    let secret = r#"{"error":"secret"}"#;
    let endless = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let large = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1048577\r\n\r\n";
    let cut = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"error\":\"secret";
    for (answer, expected) in [
        (Answer::Bytes(response("302 Found", "location: /other", secret)), "it answered with HTTP 302"),
        (Answer::Bytes(response("304 Not Modified", json, "")), "it answered with HTTP 304"),
        (Answer::Bytes(response("400 secret", json, secret)), "it answered with HTTP 400"),
        (Answer::Bytes(response("410 Gone", json, secret)), "it answered with HTTP 410"),
        (Answer::Bytes(response("500 Oops", json, secret)), "it answered with HTTP 500"),
        (Answer::Bytes(response("503 Oops", "retry-after: 1", secret)), "it answered with HTTP 503"),
        (
            Answer::Bytes(response("200 OK", "content-type: text/html", "<p>secret")),
            "its answer is not application/json",
        ),
        (Answer::Bytes(response("200 OK", json, "secret")), "its answer is invalid: it is not a JSON object"),
        (
            Answer::Bytes(response("200 OK", json, r#"{"patsh":[{"op":"secret"}]}"#)),
            "its answer is invalid: it has an unknown field (line 1, column 8); allowed: one of `error`, `patch`, ",
        ),
        (
            Answer::Bytes(response("200 OK", json, r#"{"block":"secret"}"#)),
            "its answer is invalid: `block` is not a boolean",
        ),
        (
            Answer::Bytes(response("200 OK", json, "{\"reason\":\"\u{fffd}").replace_last()),
            "its answer is invalid: it is not JSON",
        ),
        (Answer::Bytes(cut.into()), "its answer was cut off"),
        (Answer::Bytes(b"secret\r\n\r\n".to_vec()), "the connection broke before the answer"),
        (Answer::Nothing, "the connection broke before the answer; the webhook may have received the call"),
        (Answer::Stall(large.into()), "its answer has more than 1048576 bytes"),
        (Answer::Endless(endless.into(), chunk.into()), "its answer has more than 1048576 bytes"),
    ] {
        let fault = asked(answer.clone()).await.unwrap_err();
        assert!(fault.message.starts_with(expected), "{answer:?}: {fault}");
        assert!(!fault.message.contains("secret") && !fault.message.contains("hunter2"), "{fault}");
        assert_eq!(fault.code, ErrorCode::HookFailed);
    }
}

/// Makes bytes end in the middle of a character.
trait ReplaceLast {
    fn replace_last(self) -> Self;
}

impl ReplaceLast for Vec<u8> {
    fn replace_last(mut self) -> Self {
        *self.last_mut().unwrap() = 0xff;
        self
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Server::json("200 OK", "{}").await;
    for status in ["301 Moved Permanently", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let location = format!("location: http://{}/", other.address);
        assert!(asked(Answer::Bytes(response(status, &location, ""))).await.is_err());
    }
    assert_eq!(other.requests().len(), 0);
}

#[tokio::test]
async fn a_call_that_is_dropped_hangs_up() {
    for head in ["", "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let webhook = webhook(&format!("http://{}/", listener.local_addr().unwrap()));
        let asking = tokio::spawn(async move { webhook.call(call()).await });
        let (mut connection, _) = listener.accept().await.unwrap();
        read(&mut connection).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        asking.abort();
        // The read ends only when the peer closes.
        assert!(matches!(connection.read(&mut [0]).await, Ok(0) | Err(_)));
    }
}

/// Resolves `localhost` to these addresses, one after the other.
struct Ports(Mutex<Vec<SocketAddr>>, Mutex<usize>);

impl Ports {
    fn new(mut addresses: Vec<SocketAddr>) -> Arc<Self> {
        addresses.reverse();
        Arc::new(Self(Mutex::new(addresses), Mutex::new(0)))
    }

    fn asked(&self) -> usize {
        *self.1.lock().unwrap()
    }
}

impl Resolve for Ports {
    fn resolve(&self, _: Name) -> Resolving {
        *self.1.lock().unwrap() += 1;
        let next = self.0.lock().unwrap().pop();
        Box::pin(async move {
            match next {
                Some(address) => Ok(Box::new(std::iter::once(address)) as reqwest::dns::Addrs),
                None => Err(io::Error::from(io::ErrorKind::NotFound).into()),
            }
        })
    }
}

/// Returns an address without a listener.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn a_connection_that_does_not_come_about_is_tried_again_twice_under_the_same_id() {
    let server = Server::json("200 OK", r#"{"reason":"there"}"#).await;
    let ports = Ports::new(vec![nobody().await, nobody().await, server.address]);
    // The URL has no port, so that the resolver's is used.
    let answer = webhook_by(ports.clone(), "http://localhost/hook").call(call()).await;
    assert_eq!(answer.unwrap().reason.as_deref(), Some("there"));
    assert_eq!((ports.asked(), server.requests().len()), (3, 1));
    assert_eq!(server.requests()[0].headers["webhook-id"], "msg_session1_call1");

    let ports = Ports::new(vec![nobody().await, nobody().await, nobody().await, server.address]);
    let fault = webhook_by(ports.clone(), "http://localhost/hook?key=hunter2").call(call()).await.unwrap_err();
    assert_eq!(fault, HookFault::failed("could not connect (connection refused)"));
    assert_eq!((ports.asked(), server.requests().len()), (3, 1));
}

#[tokio::test]
async fn a_call_that_was_sent_is_not_sent_again() {
    let silent = Server::answering(Answer::Nothing).await;
    let ports = Ports::new(vec![silent.address, silent.address]);
    assert!(webhook_by(ports.clone(), "http://localhost/").call(call()).await.is_err());
    assert_eq!((ports.asked(), silent.requests().len()), (1, 1));
}

#[tokio::test]
async fn each_call_has_a_connection_of_its_own() {
    let server = Server::answering(Answer::Stall(response("200 OK", "content-type: application/json", "{}"))).await;
    let webhook = webhook(&format!("http://{}/", server.address));
    for _ in 0..3 {
        assert_eq!(webhook.call(call()).await, Ok(HookAnswer::default()));
    }
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn nothing_secret_is_logged_at_any_level() {
    let written = Written::default();
    let writer = written.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(async {
            assert!(asked(Answer::Bytes(response("500 Oops", "x-note: secret", "secret"))).await.is_err());
            let url = format!("http://{}/?key=hunter2", nobody().await);
            assert!(webhook(&url).call(call()).await.is_err());
            tracing::trace!("written");
        });
    });
    let text = written.text();
    assert!(text.contains("written"));
    for secret in ["hunter2", "secret", "MfKQ", "delete", "v1,"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}
