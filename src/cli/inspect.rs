//! `reseed inspect`: shows the tree of a session, or what its next request would send.

use super::{
    dollars, say,
    sessions::{self, paid},
    tree::{Drawn, draw},
};
use crate::{
    config::Settings,
    core::{
        agent_loop::usage_percent,
        context::counter::Counter,
        session::{
            Node, SessionState,
            preview::{kind, one_line, preview},
        },
    },
    metrics,
    runtime::{labels, stored},
    service,
    store::{EntryQuery, Error, SessionHead, SessionStore},
};
use anyhow::{Context as _, anyhow};
use clap::Args;
use reseed_protocol::{
    Entry, EntryData, EntryId, SessionId, Timestamp, Usage,
    context::{Context, ContextFormat, GetContext},
    event::Event,
    receipt::{CacheVerdict, PrefixBreak, ProviderVerdict},
};
use serde::Serialize;
use std::sync::Arc;

/// Entries read per query.
const PAGE: u32 = 200;

/// The options of `reseed inspect`.
#[derive(Debug, Args)]
pub(super) struct InspectOptions {
    /// The session's id, as listed by `reseed sessions`.
    session: String,
    /// Print what the next request would send, as Markdown, instead of the tree. It omits tools, which clients offer
    /// and which are not stored, and what hooks add to a single request.
    #[arg(long)]
    context: bool,
    /// Print JSON: the tree with everything its lines show, or the context as returned by `get_context`.
    #[arg(long)]
    json: bool,
}

/// An entry of the printed tree.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    entry_id: EntryId,
    parent_id: Option<EntryId>,
    #[serde(rename = "type")]
    kind: String,
    preview: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    timestamp: Timestamp,
    /// The estimated tokens it adds to a request.
    tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    compaction: Option<Compacted>,
    /// The usage of an answer's request.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    /// The first difference between an answer's request and the previous one.
    #[serde(skip_serializing_if = "Option::is_none")]
    broke: Option<PrefixBreak>,
    /// What the provider says about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<ProviderVerdict>,
    /// Every compaction keeps it verbatim.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pinned: bool,
    /// The compaction was undone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    undone: bool,
}

/// The effect of a compaction.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Compacted {
    tokens_before: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_kept_entry_id: Option<EntryId>,
}

pub(super) async fn run(settings: &Settings, options: InspectOptions) -> anyhow::Result<()> {
    let no_such = || {
        anyhow!(
            "there is no session `{}` in {}; `reseed sessions` lists them",
            one_line(&options.session),
            settings.store.database()
        )
    };
    let id: SessionId = options.session.parse().map_err(|_| no_such())?;
    let store = sessions::open(settings).await?;
    let (head, state) = match stored::read(&*store, &id).await {
        Ok(found) => found,
        Err(Error::NotFound(_)) => return Err(no_such()),
        Err(error) => return Err(error).context("read the session"),
    };
    if options.context {
        let windows = service::windows_of(settings, Vec::new());
        let deployment = Arc::new(service::deployment_of(settings, windows));
        let format = if options.json { ContextFormat::Envelope } else { ContextFormat::Markdown };
        let get = GetContext { format: Some(format), ephemeral: None };
        let context = stored::context(&*store, &head, deployment, &get).await;
        let context = context.map_err(|error| anyhow!("{}", error.message)).context("build the context")?;
        return print_context(&context, options.json);
    }
    let entries = entries(&*store, &head, &state).await.context("read the tree")?;
    if options.json {
        let tree = serde_json::json!({
            "sessionId": head.session,
            "owner": head.owner,
            "name": head.head.name,
            "model": state.model,
            "strategy": state.strategy,
            "leafId": state.leaf,
            "asOfSeq": head.last_seq,
            "tokenCount": head.head.token_count,
            "windowTokens": head.head.window_tokens,
            "costNanoUsd": head.head.cost_nano_usd,
            "unpricedRequests": head.head.unpriced_requests,
            "nodes": entries,
        });
        super::say_json(&tree)?;
    } else {
        print_tree(&head, &state, entries);
    }
    Ok(())
}

/// Returns every entry with a one-line preview: its text is dropped as soon as the preview is known.
async fn entries(store: &dyn SessionStore, head: &SessionHead, state: &SessionState) -> anyhow::Result<Vec<Shown>> {
    let counter = Counter::for_model(&state.model);
    let mut shown = Vec::new();
    let mut after = 0;
    loop {
        let query = EntryQuery::Log { before_seq: None, after_seq: Some(after), limit: PAGE };
        let page = store.entries(&head.session, query).await?;
        let full = page.len() == PAGE as usize;
        for record in page {
            after = record.seq;
            let event: Event =
                serde_json::from_str(&record.body).with_context(|| format!("read record {}", record.seq))?;
            if let Event::EntryAppended(appended) = event {
                shown.push(show(appended.entry, &counter, state));
            }
        }
        if !full {
            break;
        }
    }
    let mut named = labels::newest_labels(store, &head.session, |_| true).await?;
    for entry in &mut shown {
        let label = named.remove(&entry.entry_id);
        entry.label = label.as_ref().and_then(labels::label_of).map(one_line);
    }
    Ok(shown)
}

fn show(entry: Entry, counter: &Counter, state: &SessionState) -> Shown {
    let node = Node::counted(entry, counter).marked(state);
    let entry = &node.entry;
    let compaction = match &entry.data {
        EntryData::Compaction(compaction) => Some(Compacted {
            tokens_before: compaction.tokens_before,
            tokens_after: compaction.tokens_after,
            first_kept_entry_id: compaction.first_kept_entry_id.clone(),
        }),
        _ => None,
    };
    Shown {
        kind: kind(entry).to_owned(),
        preview: preview(&entry.data),
        label: None,
        timestamp: entry.timestamp,
        tokens: node.tokens.total(),
        compaction,
        usage: entry.message().and_then(|message| message.usage.clone()),
        broke: entry.message().and_then(|message| message.receipt.as_ref()?.broke.clone()),
        provider: entry.message().and_then(|message| message.receipt.as_ref()?.provider.clone()),
        pinned: node.pinned,
        undone: node.undone,
        entry_id: entry.entry_id.clone(),
        parent_id: entry.parent_id.clone(),
    }
}

fn print_tree(session: &SessionHead, state: &SessionState, entries: Vec<Shown>) {
    let head = &session.head;
    let name = if head.name.is_empty() { "(no name)".to_owned() } else { one_line(&head.name) };
    let owner = if session.owner.is_empty() { String::new() } else { format!(", of {}", session.owner) };
    say(format!("session {}{owner}: {name}", session.session));
    say(format!("  created {}, updated {}", head.created_at, head.updated_at));
    say(format!("  model {}, strategy {}, {} compactions", one_line(&state.model), state.strategy, state.compactions));
    let percent = usage_percent(head.token_count, head.window_tokens);
    say(format!("  {} entries, {} of {} tokens ({percent} %)", head.entries, head.token_count, head.window_tokens));
    if head.cost_nano_usd.is_some() {
        let rest = match head.unpriced_requests {
            0 => String::new(),
            requests => format!("; the cost of {requests} of its requests is unknown"),
        };
        say(format!("  cost {}{rest}", paid(head)));
    }
    let leaf = state.leaf.as_ref();
    if leaf.is_none() {
        say("  the leaf is before the first entry");
    }
    let drawn: Vec<Drawn> = entries.into_iter().map(|entry| drawn(entry, leaf)).collect();
    draw(&drawn, leaf, |prefix, entry| say(format!("{prefix}{}", entry.text)));
}

fn drawn(entry: Shown, leaf: Option<&EntryId>) -> Drawn {
    let kind = entry.kind.strip_prefix("message:").unwrap_or(&entry.kind);
    let mut text = format!("{:<12}  {kind:<10} {:>6}  ", entry.entry_id, entry.tokens);
    if let Some(label) = &entry.label {
        text += &format!("[{label}] ");
    }
    if let Some(compaction) = &entry.compaction {
        let after = compaction.tokens_after.map_or("?".to_owned(), |after| after.to_string());
        let undone = if entry.undone { ", undone" } else { "" };
        text += &format!("({} -> {after} tokens{undone}) ", compaction.tokens_before);
    }
    if let Some(usage) = &entry.usage {
        text += &request_line(usage, entry.broke.as_ref(), entry.provider.as_ref());
    }
    if entry.pinned {
        text += "(pinned) ";
    }
    text += &entry.preview;
    if Some(&entry.entry_id) == leaf {
        text += "  <- leaf";
    }
    Drawn { text: text.trim_end().to_owned(), id: entry.entry_id, parent: entry.parent_id }
}

/// Formats the request of an answer: how much was sent, and how much of it the provider already had.
fn request_line(usage: &Usage, broke: Option<&PrefixBreak>, provider: Option<&ProviderVerdict>) -> String {
    let mut text = format!("({} sent", usage.input_tokens);
    if let Some(shared) = usage.prefix_tokens {
        text += &format!(", {shared} as before");
    }
    if usage.cached_tokens > 0 {
        text += &format!(", {} cached", usage.cached_tokens);
    }
    if let Some(written) = usage.cache_write_tokens.filter(|written| *written > 0) {
        text += &format!(", {written} written to the cache");
    }
    if let Some(cost) = usage.cost_nano_usd {
        text += &format!(", {}", dollars(cost));
    }
    if let Some(PrefixBreak { part, reason, lost_tokens, .. }) = broke {
        text += &format!("; {part} changed: {}, {lost_tokens} lost", metrics::word(reason));
    }
    if let Some(ProviderVerdict { verdict, reason, agrees, .. }) = provider {
        let said = match verdict {
            CacheVerdict::Hit => "no change",
            CacheVerdict::Miss | CacheVerdict::Unknown => reason.as_deref().unwrap_or("nothing yet"),
        };
        text += &format!("; the provider says: {said}{}", if *agrees == Some(false) { ", disagreeing" } else { "" });
    }
    text + ") "
}

/// Prints what the next request would send.
fn print_context(context: &Context, json: bool) -> anyhow::Result<()> {
    if json {
        super::say_json(context)?;
    } else if let Some(text) = &context.markdown {
        say(text.trim_end());
    }
    Ok(())
}
