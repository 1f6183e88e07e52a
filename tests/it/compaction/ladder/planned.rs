//! A model whose summaries fail as planned.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::talk::{facts, summary, text_of, words};
use reseed::core::{
    compaction::summary::read_prompt,
    model::{ModelFault, ModelRequest, Purpose},
};
use reseed_protocol::{ErrorCode, Role, StopReason};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};
use tokio::sync::Notify;

/// A fact that the summary must contain whatever fails.
pub(super) const FACT: &str = "My ship is called Aurora.";

/// A model's failure at a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Empty,
    NoText,
    Truncated,
    Refusing,
    Filtered,
    Longer,
    Garbage,
    Repeating,
    Copied,
    Overflow,
    RateLimited,
    Reset,
    Broken,
    Endless,
    Hanging,
}

/// The trigger, the model's answers before its summary is held, and the steps that have failed by then.
pub(super) const FAULTS: [(Fault, &str, Option<ErrorCode>); 13] = [
    (Fault::Empty, "empty", None),
    (Fault::NoText, "empty", None),
    (Fault::Truncated, "truncated", None),
    (Fault::Refusing, "empty", None),
    (Fault::Filtered, "refused", None),
    (Fault::Longer, "not_smaller", None),
    (Fault::Repeating, "malformed", None),
    (Fault::Overflow, "context_overflow", None),
    (Fault::RateLimited, "upstream_rate_limited", Some(ErrorCode::UpstreamRateLimited)),
    (Fault::Reset, "upstream_truncated", Some(ErrorCode::UpstreamTruncated)),
    (Fault::Broken, "upstream_error", Some(ErrorCode::UpstreamError)),
    (Fault::Endless, "timeout", Some(ErrorCode::UpstreamTimeout)),
    (Fault::Hanging, "timeout", Some(ErrorCode::UpstreamTimeout)),
];

/// Texts that a model may write of a conversation on its own, in the form of a summary.
pub(super) const ACCEPTED: [Fault; 2] = [Fault::Garbage, Fault::Copied];

impl Fault {
    /// Returns true if an answer like this is requested once more.
    pub(super) fn is_asked_again(self) -> bool {
        matches!(self, Self::Empty | Self::NoText | Self::Truncated | Self::Refusing | Self::Filtered | Self::Repeating)
    }

    pub(super) fn is_endless(self) -> bool {
        matches!(self, Self::Endless | Self::Hanging)
    }

    fn reply(self, request: &ModelRequest) -> Reply {
        let fault = |code| Reply::fault(ModelFault::new(code, "it broke"));
        match self {
            Self::Empty => fault(ErrorCode::UpstreamEmpty),
            Self::NoText => Reply::text(" \n"),
            Self::Truncated => Reply::text(good(request)).stopping(StopReason::Length),
            Self::Refusing => Reply::text("I'm sorry, but I can't help with that."),
            Self::Filtered => fault(ErrorCode::ContentFiltered),
            // Far beyond the limit, it would be cut off as endless. Within it, it is not smaller than what it replaces.
            Self::Longer => {
                let tokens_max = request.envelope.options.max_output_tokens.unwrap();
                Reply::text(summary(&[words(7, usize::try_from(tokens_max * 3 / 2).unwrap())]))
            }
            Self::Garbage => Reply::text(words(3, 200).chars().rev().collect::<String>()),
            Self::Repeating => Reply::text(format!("{}\n", words(3, 12).chars().rev().collect::<String>()).repeat(60)),
            Self::Copied => Reply::text(summary(&transcript(request))),
            Self::Overflow => fault(ErrorCode::ContextOverflow),
            Self::RateLimited => fault(ErrorCode::UpstreamRateLimited),
            Self::Reset => Reply::text("## Goal").then_fault(ModelFault::new(ErrorCode::UpstreamTruncated, "it broke")),
            Self::Broken => fault(ErrorCode::UpstreamError),
            Self::Endless => Reply::text(words(5, 100)).in_pieces(50).held_by(&Gate::new()),
            Self::Hanging => Reply::text("").held_by(&Gate::new()),
        }
    }
}

/// Returns a summary that keeps what was said.
fn good(request: &ModelRequest) -> String {
    let told = text_of(request).contains("Aurora").then(|| FACT.to_owned());
    summary(&told.into_iter().chain(facts(&text_of(request))).collect::<Vec<_>>())
}

/// Returns what a request has to summarise, verbatim.
fn transcript(request: &ModelRequest) -> Vec<String> {
    let quoted = read_prompt(&text_of(request)).map(|prompt| prompt.messages);
    let said = |role: Role| if role == Role::User { "[User]" } else { "[Assistant]" };
    match quoted {
        Some(messages) => {
            messages.iter().map(|message| format!("{}: {}", said(message.role), message.text())).collect()
        }
        None => {
            request.messages().map(|sent| format!("{}: {}", said(sent.message.role), sent.message.text())).collect()
        }
    }
}

/// The reply to a request for a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Good,
    Bad(Fault),
    /// Never replies; the test is notified of the request.
    Held,
}

/// A model that talks, and whose summaries follow a plan: the last item of the plan repeats until the model is healed.
#[derive(Clone)]
pub(super) struct Planned {
    pub(super) model: Scripted,
    plan: Arc<Mutex<VecDeque<Said>>>,
    /// Opens every answer that would come at once.
    pub(super) gate: Gate,
    pub(super) held: Arc<Notify>,
}

impl Planned {
    pub(super) fn new(plan: &[Said], gated: bool) -> Self {
        let plan = Arc::new(Mutex::new(plan.iter().copied().collect::<VecDeque<Said>>()));
        let (gate, held) = (Gate::new(), Arc::new(Notify::new()));
        if !gated {
            gate.open();
        }
        let mut asked = 0;
        let (planned, opened, told) = (plan.clone(), gate.clone(), held.clone());
        let model = Scripted::answering(move |request| {
            asked += 1;
            if request.purpose == Purpose::Turn {
                return Reply::text(words(asked, 100));
            }
            let mut plan = planned.lock().unwrap();
            let said = if plan.len() > 1 { plan.pop_front() } else { plan.front().copied() };
            match said.unwrap_or(Said::Good) {
                Said::Good => Reply::text(good(request)).held_by(&opened),
                Said::Bad(fault) if fault.is_endless() => fault.reply(request),
                Said::Bad(fault) => fault.reply(request).held_by(&opened),
                Said::Held => {
                    told.notify_one();
                    Reply::text("").held_by(&Gate::new())
                }
            }
        });
        Self { model, plan, gate, held }
    }

    pub(super) fn heal(&self) {
        *self.plan.lock().unwrap() = VecDeque::from([Said::Good]);
    }
}
