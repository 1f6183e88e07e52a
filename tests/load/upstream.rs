//! A model server that answers every chat completion with the same words, at a fixed pace or as fast as they are read.
//!
//! Each delta is an event of its own in an HTTP chunk of its own, as model servers send them. The usage it reports is
//! in proportion to the request.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    time::{MissedTickBehavior, interval},
};

/// The words of the deltas, in turn; each is one token of common tokenizers.
const WORDS: [&str; 8] = [" the", " server", " keeps", " what", " was", " said", " and", " answers"];

/// The longest accepted request, in bytes: the largest context that is measured has a few MiB.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The next answers.
#[derive(Debug, Clone)]
struct Script {
    /// The events of the deltas, each as an HTTP chunk.
    events: Arc<[String]>,
    /// The pause between two of them; `None`: all at once.
    pace: Option<Duration>,
}

/// The server. It lives as long as the program.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    script: Arc<Mutex<Script>>,
    /// The time of the last answer, from the end of its request to its own.
    answered_in: Arc<Mutex<Duration>>,
}

impl Upstream {
    pub(crate) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let script = Arc::new(Mutex::new(Script { events: events(1), pace: None }));
        let answered_in = Arc::default();
        tokio::spawn(accept(listener, script.clone(), Arc::clone(&answered_in)));
        Ok(Self { address, script, answered_in })
    }

    /// Returns how long the last answer took, from the end of its request to its own end.
    pub(crate) fn answered_in(&self) -> Duration {
        *self.answered_in.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers with this text, all at once.
    pub(crate) fn answer_with(&self, text: &str) {
        let script = Script { events: [event(text)].into(), pace: None };
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
    }

    /// Sets the number of deltas and the pace of the next answers. Returns the text of each answer.
    pub(crate) fn answer(&self, deltas: usize, pace: Option<Duration>) -> String {
        let script = Script { events: events(deltas), pace };
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
        (0..deltas).map(word).collect()
    }

    /// Returns the value for `OPENAI_BASE_URL`.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

fn word(index: usize) -> &'static str {
    WORDS[index % WORDS.len()]
}

fn events(deltas: usize) -> Arc<[String]> {
    (0..deltas).map(|index| event(word(index))).collect()
}

/// Returns the event of a delta, as an HTTP chunk.
fn event(text: &str) -> String {
    let text = serde_json::json!(text);
    chunk(&format!(
        r#"{{"id":"chatcmpl-load","object":"chat.completion.chunk","created":1,"model":"load","choices":[{{"index":0,"delta":{{"content":{text}}},"finish_reason":null}}]}}"#
    ))
}

/// Returns an event as an HTTP chunk.
fn chunk(data: &str) -> String {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

async fn accept(listener: TcpListener, script: Arc<Mutex<Script>>, answered_in: Arc<Mutex<Duration>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (script, answered_in) = (script.clone(), answered_in.clone());
        tokio::spawn(async move {
            // A client that hangs up ends its connection here.
            let _ = serve(stream, &script, &answered_in).await;
        });
    }
}

async fn serve(stream: TcpStream, script: &Mutex<Script>, answered_in: &Mutex<Duration>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    while let Some(bytes) = request(&mut read).await? {
        let began = Instant::now();
        let Script { events, pace } = script.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        write.write_all(head.as_bytes()).await?;
        match pace {
            None => write.write_all(events.concat().as_bytes()).await?,
            Some(pace) => {
                let mut pace = interval(pace);
                pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
                for event in &*events {
                    pace.tick().await;
                    write.write_all(event.as_bytes()).await?;
                }
            }
        }
        // Before the end is written: who has read it may ask.
        *answered_in.lock().unwrap_or_else(PoisonError::into_inner) = began.elapsed();
        write.write_all(ending(bytes, events.len()).as_bytes()).await?;
    }
    Ok(())
}

/// Returns the last events and the end of the body.
fn ending(request_bytes: usize, deltas: usize) -> String {
    let prompt = request_bytes / 4;
    let mut end = chunk(r#"{"id":"chatcmpl-load","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#);
    let usage = format!(
        r#"{{"id":"chatcmpl-load","choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{deltas},"total_tokens":{}}}}}"#,
        prompt + deltas
    );
    let _ = write!(end, "{}{}0\r\n\r\n", chunk(&usage), chunk("[DONE]"));
    end
}

/// Reads a request and returns the bytes of its body; `None` if the client has hung up.
async fn request(read: &mut (impl AsyncBufReadExt + Unpin)) -> std::io::Result<Option<usize>> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if read.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    if length > REQUEST_BYTES_MAX {
        return Err(std::io::Error::other(format!("a request of {length} bytes, at most {REQUEST_BYTES_MAX}")));
    }
    let mut body = vec![0; length];
    read.read_exact(&mut body).await?;
    Ok(Some(length))
}
