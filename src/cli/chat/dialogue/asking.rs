//! Tools that wait for permission: the question, and its answer.
//!
//! Invariants:
//! - questions are asked one at a time, the oldest first, and an answer carries the hash of the call that was shown;
//! - an answer counts only if its question was already shown when the line was begun.

use super::{Dialogue, Step};
use reseed_protocol::{
    ApprovalId,
    command::Command,
    tools::{Approval, ApprovalOption, ApprovalResponse, CallOutcome, CallResolved, Decision},
};

/// Tells the model why a call was refused: the input has ended, so nobody can be asked.
const NOBODY: &str = "Nobody could be asked: the input of the chat has ended.";

impl Dialogue {
    /// Returns the question that waits for an answer, if it was shown.
    pub(in super::super) fn asks(&self) -> Option<&ApprovalId> {
        let question = &self.question()?.approval_id;
        Some(question).filter(|question| self.asked.as_ref() == Some(question) && self.answered != self.asked)
    }

    /// Returns the oldest open question.
    fn question(&self) -> Option<&Approval> {
        self.snapshot()?.approvals.first()
    }

    /// Shows the oldest open question, unless it is already shown.
    pub(super) fn show_question(&mut self) {
        let Some(question) = self.question() else { return };
        if self.asked.as_ref() == Some(&question.approval_id) {
            return;
        }
        let (id, text) = (question.approval_id.clone(), self.screen.question(question));
        self.asked = Some(id);
        self.line(&text);
        if self.nobody {
            self.answer(Decision::RejectOnce, Some(NOBODY.to_owned()));
        }
    }

    /// Answers the question that is shown.
    fn answer(&mut self, decision: Decision, why: Option<String>) {
        let Some(question) = self.question() else { return };
        let response = ApprovalResponse {
            approval_id: question.approval_id.clone(),
            review: decision,
            arguments_hash: Some(question.arguments_hash.clone()),
            custom_deny_message: why,
        };
        let id = response.approval_id.clone();
        if self.send(Command::ApprovalResponse(response)) {
            self.answered = Some(id);
        }
    }

    /// Handles the decision about a question.
    pub(super) fn on_decided(&mut self, resolved: &CallResolved) {
        if resolved.approval_id.is_none() {
            return;
        }
        let place = if resolved.approval_id == self.answered { "" } else { " elsewhere" };
        let decided = match (resolved.outcome, resolved.option) {
            (CallOutcome::Expired, _) => Some("nobody answered in time: not run".to_owned()),
            (_, Some(ApprovalOption::AllowOnce)) => Some(format!("allowed{place}")),
            (_, Some(ApprovalOption::AllowAlways)) => Some(format!("allowed always{place}")),
            (_, Some(ApprovalOption::RejectOnce)) => Some(format!("rejected{place}")),
            (_, Some(ApprovalOption::RejectAlways)) => Some(format!("rejected always{place}")),
            (_, None) => None,
        };
        if let Some(text) = decided {
            self.line(&self.screen.note(&text));
        }
        self.show_question();
    }

    /// Handles a line that answers a question.
    pub(super) fn on_answer(&mut self, name: &str, rest: &str, question: Option<&ApprovalId>) {
        match decision(name, rest) {
            _ if self.asks().is_none() => self.line(&self.screen.note("no tool waits for an answer")),
            _ if self.asks() != question => {
                self.line(&self.screen.warning("the question came while you typed; answer again"));
            }
            Some((decision, why)) => self.answer(decision, why),
            None => self.fail("/allow takes nothing, or `always`"),
        }
    }

    /// Handles the end of the input. From a terminal, the person has left, and a question stays open for others. From a
    /// pipe, nobody will answer.
    pub(in super::super) fn on_end(&mut self) -> Vec<Step> {
        self.nobody = true;
        let asks = self.asks().is_some();
        if self.watched {
            if asks {
                self.line(&self.screen.note("the tool goes on waiting; open the session again to answer"));
            }
            self.out.push(Step::Quit);
        } else if asks {
            self.answer(Decision::RejectOnce, Some(NOBODY.to_owned()));
        }
        self.done()
    }
}

/// Returns the decision in an answer to a tool's question, and its reason for the model. `None` if the line is not such
/// an answer.
fn decision(name: &str, rest: &str) -> Option<(Decision, Option<String>)> {
    let (word, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let (decision, why) = match (name, word) {
        ("allow" | "y", "") => (Decision::AllowOnce, ""),
        ("allow" | "y", "always") if more.is_empty() => (Decision::AllowAlways, ""),
        ("allow" | "y", _) => return None,
        (_, "always") => (Decision::RejectAlways, more),
        (_, "stop") => (Decision::RejectAndStop, more),
        _ => (Decision::RejectOnce, rest),
    };
    Some((decision, Some(why.trim().to_owned()).filter(|why| !why.is_empty())))
}
