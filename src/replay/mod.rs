//! Replays recorded conversations under one or more policies, and reports the results: `reseed replay`.
//!
//! - [`read`]: the formats of records; [`recorded`]: a conversation ready to be played
//! - [`policy`]: strategies of reseed with their settings, and the rules of other systems
//! - [`driver`]: plays under a strategy of reseed, through the production code; [`simulate`]: by other systems' rules
//! - [`summariser`]: writes the summaries
//! - [`meter`], [`outcome`]: measurements of one conversation and of many
//! - [`report`]: tables and JSON
//!
//! Only the report is written. One conversation is in memory at a time. Of each, only its sums are kept, unless a row
//! per session is requested.

mod driver;
mod lifetimes;
mod meter;
mod outcome;
pub(crate) mod policy;
pub(crate) mod read;
mod recorded;
pub(crate) mod report;
mod simulate;
pub(crate) mod summariser;

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod tests;

use crate::{
    core::{
        agent_loop::{Deployment, OfferHistory},
        context::windows::Windows,
    },
    store::memory::MemoryStore,
    tools::{Toolset, history},
};
use outcome::{Outcome, Total};
use policy::{Kind, Policy};
use recorded::Recorded;
use serde::Serialize;
use std::sync::Arc;
use summariser::Summariser;

/// One policy with one window and one summariser, and the results of the conversations under it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    pub(crate) policy: String,
    pub(crate) window_tokens: u64,
    /// Absent if the policy makes no summaries.
    pub(crate) summariser: Option<&'static str>,
    #[serde(flatten)]
    pub(crate) total: Total,
    /// The result of each conversation, if a row per session is requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) sessions: Vec<Session>,
    #[serde(skip)]
    plan: Plan,
}

/// A conversation's row.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Session {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

#[derive(Debug)]
struct Plan {
    policy: Policy,
    summariser: Summariser,
    deployment: Arc<Deployment>,
}

/// A replay: its runs, and what was played.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) runs: Vec<Run>,
    pub(crate) sessions: u64,
    /// The number of texts, and of their tokens.
    pub(crate) texts: u64,
    pub(crate) tokens: u64,
    keeps_sessions: bool,
}

impl Replay {
    /// Creates a replay of every policy with every window and summariser. A policy without summaries is played once per
    /// window.
    pub(crate) fn new(
        deployment: &Deployment,
        windows: &[u64],
        policies: &[Policy],
        summarisers: &[Summariser],
        keeps_sessions: bool,
    ) -> Self {
        let mut runs = Vec::new();
        for window_tokens in windows {
            let deployment = Arc::new(of_window(deployment, *window_tokens));
            for summariser in summarisers {
                for policy in policies {
                    let summarises = policy.summarises(&deployment);
                    let is_known = |run: &Run| run.policy == policy.label && run.window_tokens == *window_tokens;
                    if !summarises && runs.iter().any(is_known) {
                        continue;
                    }
                    runs.push(Run {
                        policy: policy.label.clone(),
                        window_tokens: *window_tokens,
                        summariser: summarises.then(|| summariser.name()),
                        total: Total::default(),
                        sessions: Vec::new(),
                        plan: Plan {
                            policy: policy.clone(),
                            summariser: summariser.clone(),
                            deployment: deployment.clone(),
                        },
                    });
                }
            }
        }
        Self { runs, sessions: 0, texts: 0, tokens: 0, keeps_sessions }
    }

    /// Plays a conversation in every run.
    ///
    /// # Errors
    /// The loop does not become idle.
    pub(crate) fn play(&mut self, recorded: &Recorded) -> anyhow::Result<()> {
        for run in &mut self.runs {
            let outcome = run.plan.play(recorded, run.window_tokens)?;
            run.total.add(&outcome);
            if self.keeps_sessions {
                run.sessions.push(Session { name: recorded.name.clone(), outcome });
            }
        }
        self.sessions += 1;
        self.texts += recorded.texts.len() as u64;
        self.tokens += recorded.texts.iter().map(|said| said.tokens).sum::<u64>();
        Ok(())
    }
}

impl Plan {
    fn play(&self, recorded: &Recorded, window_tokens: u64) -> anyhow::Result<Outcome> {
        match &self.policy.kind {
            Kind::Own { .. } => driver::play(recorded, &self.policy, &self.deployment, window_tokens, &self.summariser),
            Kind::Other(rules) => {
                Ok(simulate::play(recorded, rules, &self.deployment, window_tokens, &self.summariser))
            }
        }
    }
}

/// Returns the deployment for replays with this window. It sets no limits on what the record decides. It offers the
/// tools that search the history, as a server does, although no recorded answer calls them.
fn of_window(deployment: &Deployment, window_tokens: u64) -> Deployment {
    let mut deployment = deployment.clone();
    deployment.windows = Windows::new(Some(window_tokens), Vec::new()).with_own(&deployment.model);
    deployment.models_allowed.clear();
    deployment.tool_rounds_max = u64::MAX;
    deployment.turn_timeout_ms = None;
    deployment.hooks.clear();
    if std::mem::take(&mut deployment.tools_are_off) {
        // The recorded calls are still made.
        deployment.history_tools.offered = OfferHistory::Off;
    } else if let Ok(tools) = Toolset::new(Vec::new(), history::tools(Arc::new(MemoryStore::new()))) {
        deployment.history_tools.tools = tools.history().clone();
    }
    deployment
}
