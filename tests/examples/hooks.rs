//! Hooks in Rust, in a server inside your own program.
//!
//!     cargo run --example hooks
//!
//! Five of them, each for another purpose; [`all`] lists them in the order in which they are called. The same can be
//! done by a webhook (redact_webhook.py) and by a client over its own socket.

use anyhow::Context as _;
use reseed::{
    config::Settings,
    core::hook::{HookFault, HookSpec},
    hooks::{Hook, HookFuture},
    provider::offline::{Offline, OfflineOptions},
    service,
    store::memory::MemoryStore,
};
use reseed_protocol::{
    Message, Part, Role,
    context::{ContextEnvelope, PatchOp},
    hooks::{CompactionPreparation, ContextReason, HookAnswer, HookCall, HookEvent, HookPoint},
};
use std::{fmt::Write as _, io::Write as _, sync::Arc, time::Duration};

/// A marker before every request: the conversation's position. It differs from request to request, so it is added to
/// one request only, after everything that the provider may have cached.
struct Marker;

impl Hook for Marker {
    fn specs(&self) -> Vec<HookSpec> {
        vec![HookSpec::new("marker", HookPoint::Context).for_reasons(&[ContextReason::Ephemeral])]
    }

    fn call(&self, call: HookCall) -> HookFuture<'_> {
        Box::pin(async move {
            let envelope = envelope(call)?;
            let meta = envelope.meta;
            let note = format!("[request {}, {} of {} tokens]", meta.request, meta.tokens, meta.window_tokens);
            Ok(HookAnswer::patch(vec![PatchOp::MessagesUncachedAppend { messages: vec![Message::user(note)] }]))
        })
    }
}

/// Context for one request: the meaning of a word that the user used. The next request is made without it, unless the
/// word is used again.
struct Glossary(Vec<(&'static str, &'static str)>);

impl Hook for Glossary {
    fn specs(&self) -> Vec<HookSpec> {
        let spec = HookSpec::new("glossary", HookPoint::Context);
        vec![spec.for_reasons(&[ContextReason::Ephemeral]).within(2_000)]
    }

    fn call(&self, call: HookCall) -> HookFuture<'_> {
        Box::pin(async move {
            let envelope = envelope(call)?;
            let said = envelope.messages.cached.iter().rev().map(|one| &one.message);
            let said = said.take_while(|message| message.role != Role::Assistant);
            let said = said.map(|message| message.text().to_lowercase()).collect::<Vec<_>>().join("\n");
            let known = self.0.iter().filter(|(word, _)| said.contains(word));
            let notes: Vec<String> = known.map(|(word, meaning)| format!("{word}: {meaning}")).collect();
            if notes.is_empty() {
                return Ok(HookAnswer::default());
            }
            let note = Message::user(format!("[Words of this house]\n{}", notes.join("\n")));
            Ok(HookAnswer::patch(vec![PatchOp::MessagesUncachedAppend { messages: vec![note] }]))
        })
    }
}

/// A permanent part of the system prompt: the house rules. The patch is kept, and every later request is made with it
/// without a call; so it is given once, and again only if the rules change. Each time invalidates the provider's cache.
struct Policy(&'static str);

impl Hook for Policy {
    fn specs(&self) -> Vec<HookSpec> {
        vec![HookSpec::new("policy", HookPoint::Context).for_reasons(&[ContextReason::BeforeRequest])]
    }

    fn call(&self, call: HookCall) -> HookFuture<'_> {
        Box::pin(async move {
            let envelope = envelope(call)?;
            if envelope.system.parts.iter().any(|part| part.name == "policy" && part.text == self.0) {
                return Ok(HookAnswer::default());
            }
            Ok(HookAnswer::patch(vec![PatchOp::SystemPartSet {
                part_name: "policy".to_owned(),
                text: self.0.to_owned(),
                invalidate_cache_reason: "the rules of the house are new".to_owned(),
            }]))
        })
    }
}

/// Redaction: the model sees no e-mail address that a user wrote, and nobody sees one that the model wrote.
struct Redact;

impl Hook for Redact {
    fn specs(&self) -> Vec<HookSpec> {
        vec![HookSpec::new("redact", HookPoint::Message)]
    }

    fn call(&self, call: HookCall) -> HookFuture<'_> {
        Box::pin(async move {
            let HookEvent::Message { message: mut said, .. } = call.event else { return Err(another_event()) };
            let mut changed = false;
            for part in &mut said.content {
                if let Part::Text { text }
                | Part::Reasoning { text, payload: None }
                | Part::ToolResult { output: text, .. } = part
                {
                    let clean = redacted(text);
                    changed |= clean != *text;
                    *text = clean;
                }
            }
            Ok(if changed { HookAnswer::message(said) } else { HookAnswer::default() })
        })
    }
}

/// Returns a text without its e-mail addresses.
fn redacted(text: &str) -> String {
    let in_name = |letter: char| letter.is_ascii_alphanumeric() || "._%+-".contains(letter);
    let in_host = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
    let (mut clean, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('@') {
        let name = rest[..at].char_indices().rev().take_while(|(_, letter)| in_name(*letter)).last();
        let begin = name.map_or(at, |(begin, _)| begin);
        let after = &rest[at + 1..];
        let end = after.find(|letter| !in_host(letter)).unwrap_or(after.len());
        // A full stop at the end belongs to the sentence.
        let host = after[..end].trim_end_matches(['.', '-']);
        if begin < at && host.contains('.') {
            clean.push_str(&rest[..begin]);
            clean.push_str("[redacted]");
        } else {
            clean.push_str(&rest[..=at]);
            clean.push_str(host);
        }
        rest = &after[host.len()..];
    }
    clean + rest
}

/// The most characters of a line in a cheap summary.
const LINE_CHARS_MAX: usize = 160;

/// A cheaper summariser: the first line of every user message, without asking a model. The model's answers are dropped;
/// a session of independent questions loses nothing by that.
///
/// A summary must save something: if it does not, the model is asked as it would have been.
struct FirstLines {
    chars_max: usize,
}

impl Hook for FirstLines {
    fn specs(&self) -> Vec<HookSpec> {
        vec![HookSpec::new("first_lines", HookPoint::BeforeCompaction)]
    }

    fn call(&self, call: HookCall) -> HookFuture<'_> {
        Box::pin(async move {
            let HookEvent::BeforeCompaction(preparation) = call.event else { return Err(another_event()) };
            let summary = self.summary(&preparation);
            // There is no user message: a model can do better.
            Ok(if summary.is_empty() { HookAnswer::default() } else { HookAnswer::summary(summary) })
        })
    }
}

impl FirstLines {
    fn summary(&self, preparation: &CompactionPreparation) -> String {
        // The text of an earlier summary is kept, or it would be lost with this one.
        let mut summary = preparation.previous_summary.clone().unwrap_or_default();
        for said in preparation.messages.iter().chain(&preparation.turn_prefix) {
            let text = said.message.text();
            if said.message.role == Role::User
                && let Some(line) = text.lines().find(|line| !line.trim().is_empty())
            {
                let line: String = line.chars().take(LINE_CHARS_MAX).collect();
                let _ = writeln!(summary, "- The user: {line}");
            }
        }
        for file in &preparation.files.modified_files {
            let _ = writeln!(summary, "- Changed: {file}");
        }
        // The newest matters most.
        let excess = summary.chars().count().saturating_sub(self.chars_max);
        summary.chars().skip(excess).collect::<String>().trim().to_owned()
    }
}

fn envelope(call: HookCall) -> Result<ContextEnvelope, HookFault> {
    match call.event {
        HookEvent::Context { envelope, .. } => Ok(*envelope),
        _ => Err(another_event()),
    }
}

/// A hook is only called for what its specs declare; one that declares more is wrong about it.
fn another_event() -> HookFault {
    HookFault::failed("it was asked for what it does not know")
}

/// Returns all of them, in the order in which they are called.
pub(crate) fn all() -> Vec<Arc<dyn Hook>> {
    vec![
        Arc::new(Redact),
        Arc::new(Policy("Answer in at most three sentences.")),
        Arc::new(Glossary(vec![("slip", "a berth of ours, numbered from the lighthouse")])),
        Arc::new(Marker),
        Arc::new(FirstLines { chars_max: 4_000 }),
    ]
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let settings = Settings::from_iter([("WS_PORT", "0"), ("INSTRUCTIONS", "You help at a small harbour.")])?;
    let model = Offline::new(OfflineOptions { window_tokens: 4_000, pace: Some(Duration::from_millis(10)) });
    let store = MemoryStore::new();
    let service = service::start_with_hooks(&settings, Arc::new(model), Arc::new(store), all()).await?;
    writeln!(std::io::stdout(), "connect to ws://{}/ws", service.address())?;
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    service.stop().await;
    Ok(())
}
