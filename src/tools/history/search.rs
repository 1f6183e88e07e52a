//! `history_search`: finds entries by their words.

use super::{QUOTED, bool_of, failed, number_of, offer, quote, seen};
use crate::{
    store::{Error, Hit, Query, SearchQuery, SessionStore},
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::{tools::ToolOffer, tree::HitRole};
use serde_json::json;
use std::{fmt::Write as _, sync::Arc};

/// Hits: default and maximum. A snippet has up to 300 characters, so the most are some 2,000 tokens.
const HITS: u64 = 8;
const HITS_MAX: u64 = 20;

pub(super) struct Search(pub(super) Arc<dyn SessionStore>);

impl Tool for Search {
    fn offer(&self) -> ToolOffer {
        offer(
            "history_search",
            "Searches this conversation's whole history, also the parts that are no longer in your context because \
             they were summarized or cut. Use it before you say that you do not know or do not remember something that \
             may have been said, seen or done earlier. Returns matching entries, newest first, with their ids; read \
             one in full with history_read.",
            json!({
                "type": "object",
                "properties": {
                    "query": {
                        "type": "string",
                        "maxLength": 1000,
                        "description": "Words that the entry should have, such as a name, an identifier, a path or a \
                            number. \"Quotes\" keep words together; a star at the end (conf*) matches the beginning of \
                            a word. Use few, specific words, as they were written."
                    },
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": HITS_MAX,
                        "description": format!("The most entries to return; {HITS} if absent.")
                    },
                    "branches": {
                        "type": "boolean",
                        "description": "True to search also what was said on other branches of the conversation."
                    }
                },
                "required": ["query"],
                "additionalProperties": false
            }),
        )
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move { self.search(&call).await.unwrap_or_else(|error| failed(&error)) })
    }
}

impl Search {
    async fn search(&self, call: &Call) -> Result<Output, Error> {
        let text = call.arguments["query"].as_str().unwrap_or_default();
        if Query::parse(text).is_empty() {
            return Ok(Output::error("the query has no words: give letters or digits to look for"));
        }
        let limit = number_of(call, "limit", HITS, HITS_MAX).max(1);
        let branches = bool_of(call, "branches");
        let seen = seen::Seen::of(&*self.0, call).await?;
        let query = SearchQuery::in_session(&call.session, text, u32::try_from(limit).unwrap_or(1));
        let query = SearchQuery {
            on_path_to: call.leaf.clone().filter(|_| !branches),
            before_seq: if branches { seen.asked_seq } else { seen.first_seq.or(seen.asked_seq) },
            ..query
        };
        let mut hits = self.in_parts(query.clone(), &seen, branches).await?;
        let mut note = "";
        if hits.is_empty() && query.query.len() > 1 {
            hits = self.in_parts(SearchQuery { any: true, ..query }, &seen, branches).await?;
            note = " No entry has all of the words; these have some of them.";
        }
        Ok(Output::text(shown(&hits, note, branches)))
    }

    /// Searches what the model does not see, and then the results of tools among what it sees: they may be cut.
    async fn in_parts(&self, query: SearchQuery, seen: &seen::Seen, branches: bool) -> Result<Vec<Hit>, Error> {
        let mut hits = self.0.search(query.clone()).await?.items;
        if !branches && seen.first_seq.is_some() && hits.len() < query.limit as usize {
            let before_seq = seen.asked_seq;
            let results = SearchQuery { role: Some(HitRole::Tool), before_seq, ..query.clone() };
            for hit in self.0.search(results).await?.items {
                if !hits.iter().any(|found| found.seq == hit.seq) {
                    hits.push(hit);
                }
            }
            hits.truncate(query.limit as usize);
            if !query.any {
                hits.sort_by_key(|hit| std::cmp::Reverse(hit.seq));
            }
        }
        Ok(hits)
    }
}

fn shown(hits: &[Hit], note: &str, branches: bool) -> String {
    if hits.is_empty() {
        let hint = if branches { "" } else { ", or other branches with `branches`" };
        return format!(
            "No entry was found. Try fewer or other words, the beginning of a word with a star{hint}. (What you see \
             now is not searched.)"
        );
    }
    let mut text = format!("{QUOTED}{note}\n");
    for hit in hits {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "\n[entry {} | {} | {}]", hit.entry, hit.timestamp, hit.role.name());
        quote(&mut text, &hit.snippet);
    }
    text.push_str("\nRead one in full with history_read.");
    text
}
