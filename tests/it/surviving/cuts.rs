//! A client is cut off after every single frame of a conversation, also twice in a row, and ends with exactly the state
//! of one that was not. Its answers are streamed with reasoning, it has tools, its inputs wait, and it is compacted.
//!
//! `CUTS=all` cuts at every pair of frames instead of at each first one with some second one.

use super::{fold::fresh, folder::Folder};
use crate::support::{
    json::present,
    server::Server,
    talk::{facts, summary, text_of, words},
};
use futures_util::future::join_all;
use reseed::{
    core::model::{Answer, Delta, ModelRequest, Purpose},
    provider::{AnswerFuture, DeltaSink, ModelsFuture, Provider},
};
use reseed_protocol::{Part, Role, StopReason};
use serde_json::json;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};
use tokio::sync::Semaphore;

/// The number of conversations that run at the same time. With more, one waits longer for its turn on a busy machine
/// than a client waits for a connection.
const AT_ONCE: usize = 8;

/// Second cuts, in frames after the first: 0 loses the connection before anything has come.
const SECOND: [usize; 5] = [0, 1, 2, 3, 5];

/// A model that writes its next piece when the client of the conversation has received a frame. So every frame is a
/// point at which to cut, and nothing waits for a clock.
#[derive(Clone, Default)]
struct Stepped {
    steps: Arc<Mutex<HashMap<usize, Arc<Semaphore>>>>,
}

impl Stepped {
    fn steps(&self, case: usize) -> Arc<Semaphore> {
        self.steps.lock().unwrap().entry(case).or_insert_with(|| Arc::new(Semaphore::new(0))).clone()
    }
}

/// Returns the number of the conversation, from the fact that each input states.
fn case(text: &str) -> usize {
    let number = text.split("case number ").nth(1).and_then(|rest| rest.split('.').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no case in {text}"))
}

fn content(request: &ModelRequest) -> Vec<Part> {
    let last = request.messages().last().unwrap();
    let asked = last.message.content.iter().any(|part| matches!(part, Part::Text { text } if text.contains("look")));
    let said = words(u64::try_from(request.messages().count()).unwrap(), 200);
    let mut parts = vec![
        Part::Reasoning { text: "Let me think 🌍 about it, and then some more 🌊.".into(), payload: None },
        Part::Text { text: format!("Grüße 🌍! {said} 🌊") },
    ];
    if asked && last.message.role == Role::User {
        let arguments = r#"{"at":"sea"}"#.to_owned();
        parts.push(Part::ToolCall { call_id: "call_0".parse().unwrap(), name: "look".into(), arguments });
    }
    parts
}

/// Splits a text into this many pieces.
fn pieces(text: &str, count: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(chars.len().div_ceil(count).max(1)).map(|piece| piece.iter().collect()).collect()
}

impl Provider for Stepped {
    fn name(&self) -> &'static str {
        "stepped"
    }

    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
        Box::pin(async move {
            let said = text_of(request);
            if request.purpose == Purpose::Summary {
                let parts = vec![Part::Text { text: summary(&facts(&said)) }];
                return Ok(Answer::new(parts, StopReason::Stop));
            }
            let steps = self.steps(case(&said));
            let parts = content(request);
            for (part, content) in parts.iter().enumerate() {
                let (Part::Text { text } | Part::Reasoning { text, .. }) = content else { continue };
                for piece in pieces(text, 5) {
                    steps.acquire().await.unwrap().forget();
                    let text = piece.as_str();
                    sink.delta(match content {
                        Part::Reasoning { .. } => Delta::Reasoning { part, text },
                        _ => Delta::Text { part, text },
                    });
                }
            }
            let calls = parts.len() > 2;
            let stop_reason = if calls { StopReason::ToolCalls } else { StopReason::Stop };
            Ok(Answer::new(parts, stop_reason))
        })
    }

    fn models(&self) -> ModelsFuture<'_> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// The client's progress; its next step depends on what it knows.
#[derive(Debug, Default)]
struct Script {
    said: usize,
    compacted: bool,
    answered: Vec<String>,
}

impl Script {
    /// Sends what is due; returns true if the conversation is over.
    async fn go_on(&mut self, number: usize, client: &mut Folder) -> bool {
        let fold = &client.fold;
        if fold.session.is_empty() || !client.is_connected() {
            return false;
        }
        if let Some(call) = fold.pending.iter().find(|call| !self.answered.contains(call)).cloned() {
            self.answered.push(call.clone());
            client.command("tool_result", json!({ "toolCallId": call, "output": "It is blue." })).await;
            return false;
        }
        let ended = fold.count("turn_finished");
        let say = match self.said {
            0 => true,
            1 | 2 => ended == self.said && fold.is_idle(),
            // This is sent while the third input is answered, so it waits in the queue.
            3 => fold.turn.is_some() && ended == 2,
            4 => self.compacted && fold.count("context_compacted") == 1,
            _ => false,
        };
        if say {
            let what = ["Hello.", "Please look at the sea.", "And then?", "And after that?", "Thank you."][self.said];
            self.said += 1;
            let input = format!("FACT this is case number {number}.\n{what}");
            client.command("user_input", json!({ "input": input })).await;
        } else if self.said == 4 && ended == 4 && !self.compacted {
            self.compacted = true;
            client.command("rename_session", json!({ "name": "The sea" })).await;
            client.command("start_compaction", json!({})).await;
        }
        self.said == 5 && client.fold.count("turn_finished") == 5 && client.unanswered() == 0
    }
}

/// Plays the conversation and cuts the client off after these numbers of frames on its first connections. Returns the
/// number of frames of the first connection.
async fn play(url: &str, model: &Stepped, number: usize, cuts: &[usize]) -> usize {
    let look = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    let mut client = Folder::new(&format!("owner-{number:06}"), json!({ "tools": [look] })).unwitnessed();
    let mut observer = Folder::new(&format!("watch-{number:06}"), json!({ "role": "observer" })).unwitnessed();
    // Asking after every event of every case would take minutes. Without cuts, all cases are alike.
    client.is_witnessed = cuts.is_empty();
    let (steps, mut script, mut left) = (model.steps(number), Script::default(), cuts.iter());
    let mut cut = left.next();
    let mut frames = 0;
    loop {
        if !client.is_connected() {
            assert!(client.connect(url).await, "case {number}");
            steps.add_permits(1);
        }
        if cut == Some(&client.frames) {
            client.cut();
            cut = left.next();
            continue;
        }
        let frame = client.step().await.unwrap_or_else(|code| panic!("case {number}: closed with {code}"));
        assert_ne!(*present(&frame["type"]), "error", "case {number}: {frame}");
        if frame["type"] == "session_opened" {
            client.look().await;
        }
        frames = frames.max(client.frames);
        steps.add_permits(1);
        if observer.fold.session.is_empty() && !client.fold.session.is_empty() {
            // The observer is never cut off. It must be connected before anything happens.
            observer.opening["sessionId"] = json!(client.fold.session);
            assert!(observer.connect(url).await);
            observer.opened().await;
        }
        if script.go_on(number, &mut client).await {
            break;
        }
    }
    assert_eq!(client.fold.snapshots, 1, "case {number}: every resume is a replay");
    observer.reach(client.fold.seq).await;
    client.settled(if cuts.is_empty() { &[] } else { &["contextInfo"] }).await;
    observer.settled(&[]).await;
    // A client that was there and one that came back may differ only in transient notices that are over.
    assert_eq!(client.fold.log, observer.fold.log, "case {number}");
    assert_eq!((&client.fold, &client.fold.void), (&observer.fold, &Vec::new()), "case {number}");
    let read = fresh(url, &client.fold).await;
    let first = *client.fold.log.keys().next().unwrap();
    assert_eq!(client.fold.log, read.log.clone().split_off(&first), "case {number}");
    let said: Vec<String> = read.asked().into_iter().map(|(_, said)| said.lines().nth(1).unwrap().to_owned()).collect();
    assert_eq!(said, ["Hello.", "Please look at the sea.", "And then?", "And after that?", "Thank you."]);
    frames
}

#[tokio::test]
async fn whoever_is_cut_off_at_any_frame_ends_with_the_state_of_one_that_never_was() {
    let model = Stepped::default();
    let server = Server::start(model.clone(), &[("CONTEXT_WINDOW", "4000"), ("MODEL", "test")]).await;
    let url = server.ws();
    let frames = play(&url, &model, 0, &[]).await;
    assert!(frames > 60, "there is much to be cut off in: {frames} frames");
    let all = std::env::var("CUTS").is_ok_and(|cuts| cuts == "all");
    let pairs = (0..frames).flat_map(|first| {
        let seconds: Vec<usize> = if all { SECOND.to_vec() } else { vec![SECOND[first % SECOND.len()]] };
        seconds.into_iter().map(move |second| [first, second])
    });
    let cases: Vec<(usize, [usize; 2])> = (1..).zip(pairs).collect();
    for some in cases.chunks(AT_ONCE) {
        join_all(some.iter().map(|(number, cuts)| play(&url, &model, *number, cuts))).await;
    }
    server.service.stop().await;
}
