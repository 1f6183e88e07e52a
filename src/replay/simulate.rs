//! Plays a recorded conversation by the rules of another system, with the same messages and the same counter.

use super::{
    meter::{Meter, Request},
    outcome::{Outcome, Point},
    policy::{Checks, Keeps, Rules, Trigger},
    recorded::{Recorded, Turn},
    summariser::Summariser,
};
use crate::core::{
    agent_loop::Deployment,
    context::{counter::Counter, envelope::system_prompt, seed},
    model::{ModelRequest, Purpose},
    text::clip::head_and_tail,
};
use reseed_protocol::{
    Message, Role,
    context::{
        ContextEnvelope, ContextMessage, EnvelopeMessages, EnvelopeMeta, RequestOptions, SystemPrompt, ToolDefinition,
    },
};
use serde_json::json;
use std::sync::Arc;

/// The prompt that requests a summary. Other systems' own prompts are not imitated.
const ASKED: &str = "Summarise the conversation above for a model that goes on with it. Write nothing else.";

/// A conversation that is being played.
struct Simulation<'a> {
    rules: &'static Rules,
    recorded: &'a Recorded,
    summariser: &'a Summariser,
    model: &'a str,
    counter: Counter,
    window_tokens: u64,
    system: SystemPrompt,
    tools: Vec<ToolDefinition>,
    fixed_tokens: u64,
    /// The messages of the context, each with a flag that marks the summary.
    context: Vec<(Arc<Message>, bool)>,
    meter: Meter<'a>,
    outcome: Outcome,
    texts: usize,
}

/// Plays a conversation.
pub(crate) fn play(
    recorded: &Recorded,
    rules: &'static Rules,
    deployment: &Deployment,
    window_tokens: u64,
    summariser: &Summariser,
) -> Outcome {
    let counter = deployment.counter(&deployment.model);
    let instructions = if recorded.instructions.is_empty() { &deployment.instructions } else { &recorded.instructions };
    let system = system_prompt(instructions);
    let tool = |name: &String| ToolDefinition {
        name: name.clone(),
        description: String::new(),
        parameters: json!({ "type": "object" }),
    };
    let tools: Vec<ToolDefinition> = recorded.tools.iter().map(tool).collect();
    let mut simulation = Simulation {
        rules,
        recorded,
        summariser,
        model: &deployment.model,
        counter,
        window_tokens,
        fixed_tokens: crate::core::context::count::Fixed::counted(&counter, &system.compiled, &tools).total(),
        system,
        tools,
        context: Vec::new(),
        meter: Meter::new(recorded, counter),
        outcome: Outcome::default(),
        texts: 0,
    };
    for turn in &recorded.turns {
        simulation.turn(turn);
    }
    simulation.finish(deployment)
}

impl Simulation<'_> {
    fn turn(&mut self, turn: &Turn) {
        self.texts = turn.texts;
        self.meter.at = turn.at;
        self.context.push((turn.input.clone(), false));
        // If the record has no answer, the request was sent all the same.
        let unanswered = turn.steps.last().is_none_or(|step| !step.results.is_empty());
        for step in &turn.steps {
            self.request();
            self.meter.answered(step);
            self.texts = step.texts;
            let messages = [&step.answer].into_iter().chain(&step.results);
            self.context.extend(messages.map(|message| (message.clone(), false)));
        }
        if unanswered {
            self.request();
        }
        if self.rules.checks == Checks::AfterTurns {
            self.compact_if_due();
        }
    }

    fn request(&mut self) {
        // A system without a better rule drops what does not fit.
        if self.rules.checks == Checks::BeforeRequests || self.overflows() {
            self.compact_if_due();
        }
        let messages = self.context.iter().map(|(message, _)| message).collect();
        let tokens = self.meter.turn(&Request { system: &self.system, tools: &self.tools, messages });
        self.outcome.sent(tokens, self.window_tokens);
    }

    fn tokens(&mut self) -> u64 {
        let messages: u64 = self.context.iter().map(|(message, _)| self.meter.tokens(message)).sum();
        self.fixed_tokens + messages
    }

    fn overflows(&mut self) -> bool {
        self.tokens() > self.window_tokens
    }

    fn compact_if_due(&mut self) {
        let before = self.tokens();
        let limit = self.rules.limit(self.window_tokens);
        let is_long = matches!(self.rules.trigger, Trigger::Messages(most) if self.context.len() > most);
        if before <= limit && !is_long {
            return;
        }
        let count = self.context.len();
        match self.rules.keeps {
            Keeps::Recent(tokens) => self.keep_recent(tokens),
            Keeps::UserMessages(tokens) => self.keep_user_messages(tokens),
            Keeps::Fitting => self.keep_fitting(limit),
        }
        let after = self.tokens();
        if after == before && self.context.len() == count {
            return;
        }
        let kept = self.meter.kept(self.context.iter().map(|(message, _)| &**message), self.texts);
        let seed = self.context.iter().find(|(_, is_summary)| *is_summary).map(|(message, _)| message.clone());
        let point = Point {
            request: self.outcome.requests.len() as u64,
            tokens_before: before,
            tokens_after: after,
            kept,
            how: if self.rules.summary.is_some() { "summary" } else { "dropped" }.to_owned(),
            summary_tokens: seed.map_or(0, |seed| self.meter.tokens(&seed)),
        };
        self.outcome.curve.push(point);
    }

    /// Keeps the newest messages that together have this many tokens, after a summary of the others.
    fn keep_recent(&mut self, tokens: u64) {
        let (mut kept, mut cut) = (0, 0);
        for at in (0..self.context.len()).rev() {
            kept += self.meter.tokens(&self.context[at].0.clone());
            if kept >= tokens {
                cut = at;
                break;
            }
        }
        // A result is never the first message that is kept.
        while self.context.get(cut).is_some_and(|(message, _)| message.role == Role::Tool) {
            cut += 1;
        }
        if cut == 0 || self.context[..cut].iter().all(|(_, is_summary)| *is_summary) {
            return;
        }
        let summary = self.summary(cut);
        self.context.splice(..cut, summary);
    }

    /// Keeps the user's messages, newest first, followed by a summary.
    fn keep_user_messages(&mut self, tokens: u64) {
        let summary = self.summary(self.context.len());
        let (mut left, mut kept) = (tokens, Vec::new());
        for (message, _) in self.context.iter().rev().filter(|(message, is)| message.role == Role::User && !is) {
            let own = self.counter.text(&message.text());
            if own <= left {
                left -= own;
                kept.push((message.clone(), false));
                continue;
            }
            if left > 0 {
                kept.push((Arc::new(Message::user(cut_in_middle(&message.text(), own, left))), false));
            }
            break;
        }
        kept.reverse();
        kept.extend(summary);
        self.context = kept;
    }

    /// Drops the oldest messages until the rest fits.
    fn keep_fitting(&mut self, limit: u64) {
        let most = match self.rules.trigger {
            Trigger::Messages(most) => most,
            _ => usize::MAX,
        };
        let mut tokens = self.tokens();
        let mut dropped = 0;
        let is_result = |at: usize| self.context.get(at).is_some_and(|(message, _)| message.role == Role::Tool);
        let mut own = Vec::new();
        for (message, _) in &self.context {
            own.push(self.meter.tokens(message));
        }
        while dropped + 1 < self.context.len()
            && (tokens > limit || self.context.len() - dropped > most || is_result(dropped))
        {
            tokens -= own[dropped];
            dropped += 1;
        }
        self.context.drain(..dropped);
    }

    /// Requests a summary of the first messages; `None` if the system makes no summaries.
    fn summary(&mut self, messages: usize) -> Option<(Arc<Message>, bool)> {
        let most = self.rules.summary?.0;
        let sent = |message: &Arc<Message>| ContextMessage { entry_id: None, message: message.clone() };
        let asking = sent(&Arc::new(Message::user(ASKED)));
        let cached = self.context[..messages].iter().map(|(message, _)| sent(message)).chain([asking]).collect();
        let body = ModelRequest {
            model: self.model.to_owned(),
            purpose: Purpose::Summary,
            compacts: None,
            envelope: ContextEnvelope {
                system: self.system.clone(),
                tools: self.tools.clone(),
                messages: EnvelopeMessages { cached, uncached: Vec::new() },
                options: RequestOptions { max_output_tokens: Some(most), ..RequestOptions::default() },
                meta: EnvelopeMeta::default(),
            },
            compared_with: None,
        };
        let messages = body.messages().map(|message| &message.message).collect();
        self.meter.summary(&Request { system: &self.system, tools: &self.tools, messages });
        match self.summariser.answer(&body, self.recorded, self.texts) {
            Ok(answer) => {
                self.meter.summarised(&answer.parts);
                let text = Message::new(Role::Assistant, answer.parts).text();
                Some((Arc::new(Message::user(seed::seed_text(&text))), true))
            }
            Err(_) => {
                self.outcome.failed += 1;
                None
            }
        }
    }

    fn finish(mut self, deployment: &Deployment) -> Outcome {
        self.outcome.end_tokens = self.tokens() - self.fixed_tokens;
        let sent = self.context.iter().map(|(message, _)| &**message);
        self.outcome.kept = self.meter.kept(sent, self.recorded.texts.len());
        self.outcome.turns = self.meter.turns;
        self.outcome.summaries = self.meter.summaries;
        self.outcome.peak_tokens = self.meter.peak_tokens;
        self.outcome.dollars = deployment.prices.price(&deployment.model).map(|price| self.meter.dollars(price));
        self.outcome.lifetimes =
            deployment.prices.price(&deployment.model).and_then(|price| self.meter.lifetimes(price));
        self.outcome
    }
}

/// Cuts a text in its middle so that about `left` of its tokens remain.
fn cut_in_middle(text: &str, tokens: u64, left: u64) -> String {
    let chars = text.chars().count() as u64;
    let most = usize::try_from(chars * left / tokens.max(1)).unwrap_or(usize::MAX);
    let gone = tokens - left;
    match head_and_tail(text, most) {
        Some((head, tail, _)) => format!("{head}…{gone} tokens truncated…{tail}"),
        None => text.to_owned(),
    }
}
