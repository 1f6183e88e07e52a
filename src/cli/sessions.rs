//! `reseed sessions`: lists and searches the sessions in the database.

use super::{dollars, say};
use crate::{
    config::{Database, Settings},
    core::{agent_loop::usage_percent, session::preview::one_line},
    runtime::watch::list_item,
    store::{self, Head, ListQuery, SessionHead, SessionStore},
};
use anyhow::Context as _;
use clap::Args;
use reseed_protocol::session::SessionState;
use serde_json::{Value, json};
use std::{io::Write as _, sync::Arc};

/// Sessions read per query.
const PAGE: u32 = 200;

/// The options of `reseed sessions`.
#[derive(Debug, Args)]
pub(super) struct SessionsOptions {
    /// Only sessions whose name contains this text, ignoring case.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// The most sessions to list, newest first.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print JSON: `{ "items": [ … ] }`.
    #[arg(long)]
    json: bool,
}

/// Opens the database of these settings read-only, even while a server uses it.
pub(super) async fn open(settings: &Settings) -> anyhow::Result<Arc<dyn SessionStore>> {
    let database = settings.store.database();
    store::open_read_only(&database).await.with_context(|| match &database {
        // The error itself names the file.
        Database::Sqlite(_) => {
            "open the database (set in DATABASE_URL; the server creates it when it first starts)".to_owned()
        }
        Database::Postgres(_) | Database::Memory => format!("open the database {database} (set in DATABASE_URL)"),
    })
}

pub(super) async fn run(settings: &Settings, options: SessionsOptions) -> anyhow::Result<()> {
    let store = open(settings).await?;
    let mut query = ListQuery { search: options.search.filter(|text| !text.is_empty()), ..ListQuery::default() };
    let (mut left, mut items, mut header_due) = (options.limit, Vec::new(), true);
    while left > 0 {
        query.limit = left.min(PAGE);
        let page = store.list(query.clone()).await.context("list the sessions")?;
        for id in &page.damaged {
            let _ = writeln!(std::io::stderr(), "reseed: the head of session `{id}` is damaged; it is not listed");
        }
        left -= query.limit;
        for head in &page.items {
            if options.json {
                items.push(item(head));
                continue;
            }
            if std::mem::take(&mut header_due) {
                say(format!(
                    "{:<16}  {:<24}  {:>7}  {:>8}  {:>6}  {:>9}  {:<10}  NAME",
                    "SESSION", "CHANGED", "ENTRIES", "TOKENS", "WINDOW", "COST", "OWNER"
                ));
            }
            say(line(head));
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if options.json {
        super::say_json(&json!({ "items": items }))?;
    } else if header_due {
        say(if query.search.is_some() { "no session matches" } else { "there are no sessions" });
    }
    Ok(())
}

fn line(session: &SessionHead) -> String {
    let head = &session.head;
    // A session that an older version imported is counted by its next turn.
    let (tokens, percent) = match head.window_tokens {
        0 => ("-".to_owned(), "-".to_owned()),
        window => (head.token_count.to_string(), format!("{:.0} %", usage_percent(head.token_count, window))),
    };
    let owner = if session.owner.is_empty() { "-" } else { &session.owner };
    let line = format!(
        "{:<16}  {:<24}  {:>7}  {tokens:>8}  {percent:>6}  {:>9}  {owner:<10}  {}",
        session.session,
        head.updated_at.to_string(),
        head.entries,
        paid(head),
        one_line(&head.name)
    );
    line.trim_end().to_owned()
}

/// Formats the cost of a session: `-` if unknown, with a `+` if incomplete.
pub(super) fn paid(head: &Head) -> String {
    match head.cost_nano_usd {
        None => "-".to_owned(),
        Some(cost) if head.unpriced_requests > 0 => format!("{}+", dollars(cost)),
        Some(cost) => dollars(cost),
    }
}

/// Returns an item as operators get it, without the state: only a running server knows whether a turn is running.
fn item(session: &SessionHead) -> Value {
    let item = list_item(&session.session, &session.head, SessionState::Idle);
    let mut item = serde_json::to_value(item).unwrap_or_default();
    item["owner"] = session.owner.clone().into();
    item["windowTokens"] = session.head.window_tokens.into();
    if let Some(fields) = item.as_object_mut() {
        fields.remove("state");
    }
    item
}
