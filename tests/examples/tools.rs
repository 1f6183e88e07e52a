//! Tools that the server runs, in a server inside your own program.
//!
//!     cargo run --example tools
//!
//! `note` writes a line into a list that this program keeps, so a person is asked before each call; `notes` reads the
//! list and is not asked about. The program prints its address and runs until it is stopped: open the page, and say
//! `Use the tool note with text=milk`.

use anyhow::Context as _;
use reseed::{
    config::Settings,
    provider::offline::{Offline, OfflineOptions},
    service::{self, Extensions},
    store::memory::MemoryStore,
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::tools::{ToolAnnotations, ToolOffer};
use std::{
    io::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Notes that are kept; a longer list would not be read by anyone.
const NOTES_MAX: usize = 1000;

/// The list that both tools share.
type Notes = Arc<Mutex<Vec<String>>>;

/// Adds a line to the list. It reports progress while it works.
struct Note(Notes);

impl Tool for Note {
    fn offer(&self) -> ToolOffer {
        let text = serde_json::json!({ "type": "string", "description": "The line." });
        let seconds = serde_json::json!({ "type": "string", "description": "How long to think about it." });
        let parameters = serde_json::json!({
            "type": "object",
            "properties": { "text": text, "seconds": seconds },
            "required": ["text"],
        });
        ToolOffer::new("note", "Writes a line into the list of notes.", parameters)
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            let text = call.arguments["text"].as_str().unwrap_or_default().to_owned();
            let seconds = call.arguments["seconds"].as_str().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            for second in 0..seconds.min(60) {
                call.progress.report(Some(format!("thinking, {second} of {seconds} s")));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if notes.len() >= NOTES_MAX {
                return Output::error(format!("The list is full: it has {NOTES_MAX} lines."));
            }
            notes.push(text);
            Output::text(format!("The list has {} lines.", notes.len()))
        })
    }
}

/// Reads the list.
struct ReadNotes(Notes);

impl Tool for ReadNotes {
    fn offer(&self) -> ToolOffer {
        let annotations = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
        let parameters = serde_json::json!({ "type": "object" });
        ToolOffer { annotations: Some(annotations), ..ToolOffer::new("notes", "Reads all notes.", parameters) }
    }

    fn call(&self, _: Call) -> CallFuture<'_> {
        Box::pin(async { Output::text(self.0.lock().unwrap_or_else(PoisonError::into_inner).join("\n")) })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let settings = Settings::from_iter([("WS_PORT", "0")])?;
    let notes = Notes::default();
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Note(notes.clone())), Arc::new(ReadNotes(notes))];
    let model = Offline::new(OfflineOptions { pace: Some(Duration::from_millis(10)), ..OfflineOptions::default() });
    let (store, extensions) = (MemoryStore::new(), Extensions { tools, ..Extensions::default() });
    let service = service::start_with_extensions(&settings, Arc::new(model), Arc::new(store), extensions).await?;
    writeln!(std::io::stdout(), "open http://{}/", service.address())?;
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    service.stop().await;
    Ok(())
}
