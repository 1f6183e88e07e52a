//! A client's control over compactions: a preview, undo, pinned messages, and a rebuilt summary.

mod pins;
mod preview;
mod rebuild;
mod undo;

use crate::support::scripted::Scripted;
use crate::support::{
    client::Client,
    json::present,
    server::Server,
    talk::{summaries, words},
};
use reseed::store::sqlite::SqliteStore;
use serde_json::{Value, json};
use std::sync::Arc;

/// A conversation that is compacted only on order, and whose server can be restarted.
struct Talk {
    server: Server,
    client: Client,
    model: Scripted,
    folder: tempfile::TempDir,
    session: String,
}

/// Without the user's own words a compaction of this short conversation saves most of what it replaces.
const SETTINGS: &[(&str, &str)] =
    &[("CONTEXT_STRATEGY", "manual"), ("CONTEXT_WINDOW", "8000"), ("strategy.userShare", "0")];

async fn serve(model: &Scripted, folder: &tempfile::TempDir) -> Server {
    let store = SqliteStore::open(&folder.path().join("reseed.db")).unwrap();
    Server::over(model.clone(), Arc::new(store), SETTINGS).await
}

impl Talk {
    async fn with(model: Scripted) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = serve(&model, &folder).await;
        let (client, opened) = Client::v2_session(&server.ws()).await;
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        Self { server, client, model, folder, session }
    }

    /// Stops the server, starts another over the same store, and opens the session there; returns the payload of
    /// `session_opened`.
    async fn restart(&mut self) -> Value {
        self.server.service.stop().await;
        self.server = serve(&self.model, &self.folder).await;
        self.client = Client::v2(&self.server.ws()).await;
        let opened = self.client.ask("open_session", json!({ "sessionId": self.session })).await;
        assert_eq!(opened["type"], "session_opened", "{opened}");
        opened["payload"].clone()
    }

    /// Says something of a hundred words that begins with this text.
    async fn say(&mut self, text: &str) {
        let finished = self.client.turn(&format!("{text} {}", words(text.len() as u64, 100))).await;
        assert_eq!(finished["status"], "completed", "{finished}");
    }

    async fn ok(&mut self, command: &str, payload: Value) -> Value {
        let reply = self.client.ask(command, payload).await;
        assert_eq!(reply["type"], "ok", "{command}: {reply}");
        reply["payload"].clone()
    }

    /// Returns the code and the message of the refusal.
    async fn refused(&mut self, command: &str, payload: Value) -> (String, String) {
        let reply = self.client.ask(command, payload).await;
        assert_eq!(reply["type"], "error", "{command}: {reply}");
        let text = |field: &str| reply["payload"][field].as_str().unwrap().to_owned();
        (text("code"), text("message"))
    }

    /// Orders a compaction, and returns `context_compacted`.
    async fn compact(&mut self, payload: Value) -> Value {
        let ok = self.ok("start_compaction", payload).await;
        let job = ok["jobId"].clone();
        let told = self.client.until(|frame| {
            frame["payload"]["jobId"] == *present(&job)
                && frame["type"].as_str().is_some_and(|kind| matches!(kind, "context_compacted" | "compaction_failed"))
        });
        let told = told.await;
        assert_eq!(told["type"], "context_compacted", "{told}");
        told["payload"].clone()
    }

    async fn undo(&mut self, payload: Value) -> Value {
        self.ok("undo_compaction", payload).await;
        self.client.event("compaction_undone").await["payload"].clone()
    }

    async fn preview(&mut self, payload: Value) -> Value {
        let reply = self.client.ask("preview_compaction", payload).await;
        assert_eq!(reply["type"], "compaction_preview", "{reply}");
        reply["payload"].clone()
    }

    /// Returns what the next request would send.
    async fn context(&mut self) -> Value {
        self.client.ask("get_context", json!({})).await["payload"].clone()
    }

    /// Returns its messages.
    async fn messages(&mut self) -> Vec<Value> {
        self.context().await["envelope"]["messages"]["cached"].as_array().unwrap().clone()
    }

    async fn info(&mut self) -> Value {
        self.client.ask("get_context_info", json!({})).await["payload"].clone()
    }

    /// Returns the entries of the path, oldest first.
    async fn path(&mut self) -> Vec<Value> {
        let reply = self.client.ask("get_entries", json!({ "path": true, "limit": 500 })).await;
        reply["payload"]["items"].as_array().unwrap().clone()
    }

    /// Returns the id of the newest entry with this text.
    async fn entry(&mut self, text: &str) -> String {
        let path = self.path().await;
        let found = path.iter().rev().find(|entry| entry["type"] == "message" && entry.to_string().contains(text));
        found.unwrap_or_else(|| panic!("no entry says {text}"))["entryId"].as_str().unwrap().to_owned()
    }

    fn summaries(&self) -> usize {
        summaries(&self.model.requests())
    }
}

/// Returns the number of messages with this text, without the summary: it may contain it too.
fn saying(messages: &[Value], text: &str) -> usize {
    let contents = messages.iter().map(|message| message["message"]["content"].to_string());
    contents.filter(|content| content.contains(text) && !content.contains("<summary>")).count()
}
