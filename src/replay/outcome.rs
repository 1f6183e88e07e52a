//! The results of one conversation under one policy, and the sums over many.

use super::{
    lifetimes::Lifetimes,
    meter::{Dollars, Kept, Sent},
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The results of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    /// The tokens of each turn request, in order.
    #[serde(skip)]
    pub(crate) requests: Vec<u64>,
    /// Every compaction, in order.
    pub(crate) curve: Vec<Point>,
    pub(crate) turns: Sent,
    pub(crate) summaries: Sent,
    /// The number of requests that were larger than the window, which a provider would have refused.
    pub(crate) over_window: u64,
    /// The number of the first of them, counted in requests from 1; absent if all fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window_ends_at: Option<u64>,
    pub(crate) peak_tokens: u64,
    /// What is kept in the context at the end.
    pub(crate) kept: Kept,
    /// Tokens of the messages that the next request would send.
    pub(crate) end_tokens: u64,
    /// The number of compactions that failed, without those that were prepared early and discarded.
    pub(crate) failed: u64,
    /// The number of recorded answers that were not played, because the turn had ended or was refused.
    pub(crate) unplayed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dollars: Option<Dollars>,
    /// The cost of turns' input if the cache forgets, if the times and the prices are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lifetimes: Option<Lifetimes>,
}

/// A compaction, and how much of the conversation so far the context keeps after it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Point {
    /// The number of turn requests before it.
    pub(crate) request: u64,
    pub(crate) tokens_before: u64,
    pub(crate) tokens_after: u64,
    pub(crate) kept: Kept,
    /// The fallback step that made it; for other systems, `dropped` or `summary`.
    pub(crate) how: String,
    /// Tokens of the summary.
    pub(crate) summary_tokens: u64,
}

/// The sums over the conversations of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Total {
    pub(crate) sessions: u64,
    pub(crate) compactions: u64,
    /// The number of compactions per fallback step.
    pub(crate) how: BTreeMap<String, u64>,
    pub(crate) tokens_before: u64,
    pub(crate) tokens_after: u64,
    pub(crate) turns: Sent,
    pub(crate) summaries: Sent,
    pub(crate) over_window: u64,
    /// The number of sessions with a request larger than the window.
    pub(crate) sessions_over_window: u64,
    /// The sum of the numbers of their first such requests.
    #[serde(skip)]
    pub(crate) ends_at: u64,
    pub(crate) peak_tokens: u64,
    pub(crate) kept: Kept,
    pub(crate) end_tokens: u64,
    pub(crate) failed: u64,
    pub(crate) unplayed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dollars: Option<Dollars>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lifetimes: Option<Lifetimes>,
}

impl Outcome {
    /// Records a turn's request.
    pub(crate) fn sent(&mut self, tokens: u64, window_tokens: u64) {
        self.requests.push(tokens);
        if tokens > window_tokens {
            self.over_window += 1;
            self.window_ends_at.get_or_insert(self.requests.len() as u64);
        }
    }
}

impl Total {
    /// Adds a conversation.
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.sessions += 1;
        self.compactions += outcome.curve.len() as u64;
        for point in &outcome.curve {
            *self.how.entry(point.how.clone()).or_default() += 1;
            self.tokens_before += point.tokens_before;
            self.tokens_after += point.tokens_after;
        }
        self.turns.add(&outcome.turns);
        self.summaries.add(&outcome.summaries);
        self.over_window += outcome.over_window;
        self.sessions_over_window += u64::from(outcome.over_window > 0);
        self.ends_at += outcome.window_ends_at.unwrap_or(0);
        self.peak_tokens = self.peak_tokens.max(outcome.peak_tokens);
        self.kept.add(&outcome.kept);
        self.end_tokens += outcome.end_tokens;
        self.failed += outcome.failed;
        self.unplayed += outcome.unplayed;
        if let Some(dollars) = &outcome.dollars {
            self.dollars.get_or_insert_default().add(dollars);
        }
        if let Some(lifetimes) = &outcome.lifetimes {
            self.lifetimes.get_or_insert_default().add(lifetimes);
        }
    }
}
