//! The cost of a streamed turn through a door of another protocol, beyond v2's: processor time, and time to the first
//! delta.

use crate::{
    client::{Client, Reading, Speaks, Turn},
    figures::{Figures, Goal, median, median_of, ms},
    process::{Bench, Process},
};
use anyhow::{Context as _, bail, ensure};
use futures_util::future::try_join_all;
use reseed_client::{Address, Socket};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

/// As in `turn`, so that the figures can be compared.
const DELTAS: usize = 50;
const PACE: Duration = Duration::from_millis(2);
const CONNECTIONS: usize = 2;

const QUESTION: &str = "What does the server keep?";

/// The ways to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    V2,
    /// `POST /v1/responses`, which continues the response before it.
    Responses,
    /// The same as frames of one WebSocket.
    ResponsesSocket,
    /// `POST /v1/chat/completions` with the whole list of messages.
    ChatCompletions,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::Responses => "Responses over HTTP",
            Self::ResponsesSocket => "Responses over a WebSocket",
            Self::ChatCompletions => "Chat Completions",
        }
    }
}

const WAYS: [Way; 4] = [Way::V2, Way::Responses, Way::ResponsesSocket, Way::ChatCompletions];

/// A client of one way, with one conversation.
enum Asker {
    V2(Client),
    Responses { to: SocketAddr, previous: Value },
    Socket { socket: Socket, previous: Value },
    Chat { to: SocketAddr, messages: Vec<Value> },
}

pub(crate) async fn measure(bench: &Bench, rounds: usize, turns: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let server = bench.reseed(&bench.database("doors")).await?;
    let text = bench.upstream.answer(DELTAS, Some(PACE));
    let mut taken: Vec<(Vec<Duration>, Vec<f64>)> = vec![Default::default(); WAYS.len()];
    for round in 0..=rounds {
        for (way, (first_deltas, cpu)) in WAYS.iter().zip(&mut taken) {
            let (done, spent) = ask(&server, *way, turns, &text).await.with_context(|| way.name())?;
            // The first round does not count: one-time loading.
            if round > 0 {
                first_deltas.extend(done.iter().map(|turn| turn.first_delta));
                cpu.push(ms(spent) / done.len() as f64);
            }
        }
    }
    let of_v2 = taken[0].clone();
    for (way, (first_deltas, cpu)) in WAYS.iter().zip(taken) {
        let name = way.name();
        let (beyond_cpu, beyond_first) = (
            median_of(cpu.clone()) - median_of(of_v2.1.clone()),
            ms(median(first_deltas.clone())) - ms(median(of_v2.0.clone())),
        );
        figures.add(&format!("doors: processor time of a turn, {name}"), median_of(cpu), "ms", Goal::None);
        figures.add(&format!("doors: to the first delta, {name}"), ms(median(first_deltas)), "ms", Goal::None);
        if *way != Way::V2 {
            figures.add(&format!("doors: processor time beyond v2's, {name}"), beyond_cpu, "ms", Goal::AtMost(1.0));
            figures.add(
                &format!("doors: to the first delta beyond v2's, {name}"),
                beyond_first,
                "ms",
                Goal::AtMost(1.0),
            );
        }
    }
    Ok(())
}

/// Has this many turns on each connection, each with a conversation of its own; returns the server's processor time.
async fn ask(server: &Process, way: Way, turns: usize, text: &str) -> anyhow::Result<(Vec<Turn>, Duration)> {
    let askers = try_join_all((0..CONNECTIONS).map(|_| Asker::connect(server, way))).await?;
    let before = server.cpu()?;
    let talks = askers.into_iter().map(async |mut asker| {
        let mut done = Vec::new();
        for _ in 0..turns {
            done.push(asker.turn().await?);
        }
        anyhow::Ok(done)
    });
    let done = try_join_all(talks).await?.concat();
    ensure!(done.iter().all(|turn| turn.text == text), "an answer is not whole");
    Ok((done, server.cpu()? - before))
}

impl Asker {
    async fn connect(server: &Process, way: Way) -> anyhow::Result<Self> {
        let to = server.address;
        Ok(match way {
            Way::V2 => {
                let mut client = Client::connect(server, Speaks::V2, Reading::default()).await?;
                client.hello().await?;
                client.open(None).await?;
                Self::V2(client)
            }
            Way::Responses => Self::Responses { to, previous: Value::Null },
            Way::ResponsesSocket => {
                let stream = TcpStream::connect(to).await?;
                stream.set_nodelay(true)?;
                let address: Address = format!("ws://{to}/v1/responses").parse()?;
                let socket = Socket::over_with(stream, &address, &[]).await.context("shake hands")?;
                Self::Socket { socket, previous: Value::Null }
            }
            Way::ChatCompletions => {
                // The list names the conversation, so that each has its own.
                let named = json!({ "role": "system", "content": format!("You are {}.", fastrand::u64(..)) });
                Self::Chat { to, messages: vec![named] }
            }
        })
    }

    async fn turn(&mut self) -> anyhow::Result<Turn> {
        let began = Instant::now();
        let mut turn = Turn::default();
        let mut hear = |delta: Option<&str>| {
            let Some(delta) = delta.filter(|delta| !delta.is_empty()) else { return };
            if turn.deltas == 0 {
                turn.first_delta = began.elapsed();
            }
            turn.deltas += 1;
            turn.text.push_str(delta);
        };
        match self {
            Self::V2(client) => return client.turn(QUESTION).await,
            Self::Responses { to, previous } => {
                let body = json!({ "input": QUESTION, "stream": true, "previous_response_id": previous });
                let mut ended = Value::Null;
                post(*to, "/v1/responses", &body, |event| {
                    hear(event["delta"].as_str());
                    if event["type"] == "response.completed" {
                        ended = event["response"]["id"].clone();
                    }
                })
                .await?;
                ensure!(ended.is_string(), "the response is not complete");
                *previous = ended;
            }
            Self::Socket { socket, previous } => {
                let frame = json!({ "type": "response.create", "input": QUESTION, "previous_response_id": previous });
                socket.send(frame.to_string()).await?;
                loop {
                    let event: Value = serde_json::from_str(&socket.receive().await?)?;
                    hear(event["delta"].as_str());
                    match event["type"].as_str() {
                        Some("response.completed") => {
                            *previous = event["response"]["id"].clone();
                            break;
                        }
                        Some("error" | "response.failed" | "response.incomplete") => bail!("{event}"),
                        _ => {}
                    }
                }
            }
            Self::Chat { to, messages } => {
                messages.push(json!({ "role": "user", "content": QUESTION }));
                let body = json!({ "model": "scripted", "messages": messages, "stream": true });
                post(*to, "/v1/chat/completions", &body, |event| {
                    hear(event["choices"][0]["delta"]["content"].as_str());
                })
                .await?;
                messages.push(json!({ "role": "assistant", "content": turn.text }));
            }
        }
        turn.finished = began.elapsed();
        Ok(turn)
    }
}

/// Sends a request over a new connection, and hears the events of the answer to their end.
async fn post(to: SocketAddr, path: &str, body: &Value, mut hear: impl FnMut(Value)) -> anyhow::Result<()> {
    let mut stream = BufReader::new(TcpStream::connect(to).await?);
    stream.get_ref().set_nodelay(true)?;
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let (mut line, mut is_first) = (String::new(), true);
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            bail!("the answer ended early");
        }
        if std::mem::take(&mut is_first) {
            ensure!(line.starts_with("HTTP/1.1 200"), "the answer is {line}");
        }
        match line.trim_end().strip_prefix("data: ") {
            Some("[DONE]") => return Ok(()),
            Some(data) => hear(serde_json::from_str(data).with_context(|| format!("read {data}"))?),
            None => {}
        }
    }
}
