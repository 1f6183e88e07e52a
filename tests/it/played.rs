//! Twelve kinds of simulated model servers, each with its own rules, go through the same story: turns with several
//! calls at once, an image, reasoning, a cancelled turn, two compactions, an overflow, a restart, a change of the model
//! and back. Every turn completes, and every rule is kept, or learned from one refusal.

mod engine;
mod rules;
mod servers;

use crate::support::{
    client::Client,
    server::Server,
    talk::words,
    upstream::{Setup, Upstream},
};
use engine::{Logged, Overflow, Played, WINDOW_TOKENS};
use reseed::store::sqlite::SqliteStore;
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};

const SETTINGS: [(&str, &str); 6] = [
    ("MODEL", "first"),
    // Without the user's own words a compaction of this short conversation saves most of what it replaces.
    ("strategy.userShare", "0"),
    ("OPENAI_API", "chat"),
    // This is far above what the servers accept, so that they must refuse.
    ("CONTEXT_WINDOW", "32000"),
    ("strategy.keepRecentTokens", "600"),
    ("SUMMARY_REQUEST", "quoted"),
];

/// One pixel.
const IMAGE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A story with one server.
struct Story<'a> {
    played: &'a Played,
    client: Client,
    log: Logged,
    number: u64,
    /// What went wrong, with its place in the story.
    wrong: Vec<String>,
}

impl Story<'_> {
    /// Says this with some more words, and waits for the end of the turn.
    async fn turn(&mut self, words_said: usize, command: &str) {
        let text = format!("{} [[{command}]]", words(self.number + 1, words_said));
        self.say(command, json!(text)).await;
    }

    async fn say(&mut self, name: &str, input: Value) {
        self.begin(name);
        let accepted = self.client.ask("user_input", json!({ "input": input })).await;
        if accepted["type"] == "error" {
            self.tell(&accepted["payload"]);
            return;
        }
        loop {
            let frame = self.client.next_frame().await.expect("the server does not hang up");
            match frame["type"].as_str().unwrap() {
                "tool_call" => {
                    let result =
                        json!({ "toolCallId": frame["payload"]["toolCallId"], "output": words(self.number, 12) });
                    self.client.send("tool_result", result).await;
                }
                "turn_finished" if frame["payload"]["status"] == "completed" => return,
                "turn_finished" => return self.tell(&frame["payload"]["error"]),
                _ => {}
            }
        }
    }

    /// Cancels a turn in the middle of its answer.
    async fn cancelled(&mut self) {
        self.begin("wait");
        let text = format!("{} [[wait]]", words(self.number, 20));
        self.client.ask("user_input", json!({ "input": text })).await;
        let begun = self.client.until(|frame| frame["type"] == "item_delta" || frame["type"] == "turn_finished").await;
        if begun["type"] == "turn_finished" {
            return self.tell(&begun["payload"]["error"]);
        }
        self.client.ask("cancel_turn", json!({})).await;
        let ended = self.client.event("turn_finished").await["payload"].clone();
        if ended["status"] != "cancelled" {
            self.tell(&ended);
        }
    }

    async fn compaction(&mut self) {
        self.begin("compaction");
        let started = self.client.ask("start_compaction", json!({})).await;
        if started["type"] == "error" {
            // After an overflow there may be nothing left to do.
            let is_due = started["payload"]["code"] != "nothing_to_compact" || self.compactions() == 0;
            if is_due {
                self.tell(&started["payload"]);
            }
            return;
        }
        let ended = self
            .client
            .until(|frame| frame["type"] == "context_compacted" || frame["type"] == "compaction_failed")
            .await;
        // The model's own summary, and not what is left when that fails.
        let payload = &ended["payload"];
        if payload["rung"] != "model_summary" {
            self.tell(&json!([payload["rung"], payload["failedRungs"], payload["error"]]));
        }
    }

    /// Returns how many compactions there were on this connection.
    fn compactions(&self) -> usize {
        self.client.seen.iter().filter(|frame| frame["type"] == "context_compacted").count()
    }

    async fn model(&mut self, name: &str, effort: Option<&str>) {
        self.begin("model");
        let changed = self.client.ask("set_model", json!({ "model": name, "reasoningEffort": effort })).await;
        assert_eq!(changed["type"], "ok", "{changed}");
    }

    fn begin(&mut self, name: &str) {
        self.number += 1;
        self.log.lock().place = format!("step {} ({name})", self.number);
    }

    fn tell(&mut self, wrong: &Value) {
        let place = self.log.lock().place.clone();
        self.wrong.push(format!("{place}: {wrong}"));
    }
}

async fn open(server: &Server, payload: Value) -> Client {
    let mut client = Client::v2(&server.ws()).await;
    let opened = client.ask("open_session", payload).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    let look = json!({ "name": "look", "description": "Looks at a place.", "parameters": { "type": "object" } });
    let ok = client.ask("register_tools", json!({ "tools": [look] })).await;
    assert_eq!(ok["type"], "ok", "{ok}");
    client
}

async fn start(upstream: &Upstream, folder: &Path) -> Server {
    let store = Arc::new(SqliteStore::open(&folder.join("reseed.db")).unwrap());
    Server::facing_over(&upstream.base_url(), store, &SETTINGS).await
}

/// Goes through the story with a server.
async fn check(played: Played) {
    let folder = tempfile::tempdir().unwrap();
    let log = Logged::default();
    let logged = log.clone();
    let models = serde_json::from_str(played.list).unwrap();
    let setup = Setup { models, ..Setup::default() };
    let upstream = Upstream::start_with(setup, move |asked| played.answer(asked, &logged)).await;
    let server = start(&upstream, folder.path()).await;
    let client = open(&server, json!({})).await;
    let mut story = Story { played: &played, client, log, number: 0, wrong: Vec::new() };
    let options = story.client.ask("set_options", json!({ "temperature": 0.5, "maxOutputTokens": 500 })).await;
    assert_eq!(options["type"], "ok", "{options}");

    story.turn(120, "talk").await;
    story.turn(60, "call").await;
    story.turn(60, "think").await;
    let image = json!([
        { "type": "input_text", "text": "What is this? [[talk]]" },
        { "type": "input_image", "image_url": IMAGE },
    ]);
    story.say("image", json!([{ "type": "message", "role": "user", "content": image }])).await;
    story.cancelled().await;
    story.turn(60, "talk").await;
    story.turn(120, "think").await;
    story.compaction().await;
    story.turn(60, "call").await;
    story.model("second", Some("low")).await;
    story.turn(60, "talk").await;
    story.turn(60, "call").await;
    story.model("first", None).await;
    story.turn(60, "think").await;

    let session = story.client.session.clone();
    server.service.stop().await;
    drop(server);
    let server = start(&upstream, folder.path()).await;
    story.log.lock().restarts += 1;
    story.client = open(&server, json!({ "sessionId": session })).await;
    story.turn(60, "think").await;
    // Talks until it no longer fits, and some more.
    for _ in 0..8 {
        story.turn(600, "talk").await;
    }
    story.compaction().await;
    story.turn(60, "call").await;
    story.examine();
}

impl Story<'_> {
    fn examine(mut self) {
        let log = std::mem::take(&mut *self.log.lock());
        let same = |refusal: &engine::Refusal| (refusal.model.clone(), refusal.rule, refusal.restarts);
        for (at, refusal) in log.refused.iter().enumerate() {
            let earlier = log.refused[..at].iter().filter(|earlier| same(earlier) == same(refusal));
            // A failing server is asked once more before a part of the request is suspected.
            let is_expected = |earlier: &&engine::Refusal| refusal.status >= 500 && earlier.place == refusal.place;
            let expected = log.refused[..at].iter().filter(is_expected).count().min(1);
            if earlier.count() > expected {
                self.wrong.push(format!("{}: refused again: {:?} ({})", refusal.place, refusal.rule, refusal.model));
            }
        }
        self.wrong.extend(log.illegal);
        match (self.played.overflow, log.overflows) {
            (_, 0) => self.wrong.push("nothing was too large".to_owned()),
            (Overflow::Refused(..) | Overflow::Streamed(_), 9..) => {
                self.wrong.push(format!("{} requests were too large for {WINDOW_TOKENS}", log.overflows));
            }
            _ => {}
        }
        let name = self.played.name;
        let refused: Vec<String> = log
            .refused
            .iter()
            .map(|refusal| format!("  {} of {}: {:?}", refusal.place, refusal.model, refusal.rule))
            .collect();
        let counts = format!("{} answers, {} overflows", log.answers, log.overflows);
        // The first ones say what is wrong; the rest follows from them.
        let wrong: Vec<String> = self.wrong.iter().map(|wrong| wrong.chars().take(400).collect()).take(8).collect();
        assert!(
            self.wrong.is_empty(),
            "{name} ({counts}):\n{}\nits refusals:\n{}",
            wrong.join("\n"),
            refused[..refused.len().min(12)].join("\n")
        );
    }
}

/// Generates one test per server, so that a failure names the server and the tests run in parallel.
macro_rules! stories {
    ($($test:ident = $server:ident),* $(,)?) => {
        $(#[tokio::test]
        async fn $test() {
            check(servers::$server).await;
        })*
    };
}

stories! {
    azure = AZURE,
    mistral = MISTRAL,
    deepseek = DEEPSEEK,
    gemini = GEMINI,
    ollama = OLLAMA,
    lm_studio = LM_STUDIO,
    llama_cpp = LLAMA_CPP,
    vllm = VLLM,
    sglang = SGLANG,
    openrouter = OPENROUTER,
    groq = GROQ,
    bedrock_behind_litellm = BEDROCK,
}
