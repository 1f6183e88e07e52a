//! Tools that wait for permission: the question, its answer by a key or a command, and the tools' switches.
//!
//! What always holds:
//! - one question is asked at a time, the oldest; an answer goes with the hash of the call that was shown;
//! - a key decides only about the question that was shown when it was pressed, and on an empty line;
//! - all that the model wrote is shown with what would hide in it written out.

use super::{
    calls::told,
    dialogue::{Asked, Dialogue, Step},
    lines::ToolsLine,
    screen::Screen,
};
use crate::{cli::terminal::marked, core::approval::visible};
use reseed_protocol::{
    ApprovalId,
    approval::{Approval, ApprovalOption},
    command::{ApprovalResponse, Command, Decision, Empty, SetTools, WithdrawApproval},
    event::{CallOutcome, CallResolved},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// What a refusal tells the model if the input has ended, so that nobody can be asked.
const NOBODY: &str = "Nobody could be asked: the input of the chat has ended.";

/// The questions of tools.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// The question that was shown last.
    shown: Option<ApprovalId>,
    /// Those that this chat has answered and that are not over.
    mine: BTreeSet<ApprovalId>,
    /// True once nobody is there to be asked.
    nobody: bool,
}

impl Dialogue {
    /// Returns the question that a key would answer, if one is shown and has no answer on its way.
    pub(super) fn asks(&self) -> Option<&ApprovalId> {
        let shown = self.questions.shown.as_ref().filter(|shown| !self.questions.mine.contains(*shown))?;
        self.question().filter(|question| question.approval_id == *shown).map(|question| &question.approval_id)
    }

    /// Returns the oldest open question.
    fn question(&self) -> Option<&Approval> {
        self.snapshot()?.approvals.first()
    }

    /// Shows the oldest open question, unless it was shown.
    pub(super) fn show_question(&mut self) {
        let Some(question) = self.question().cloned() else { return };
        self.calls.asked(&question.call_id);
        if self.questions.shown.as_ref() == Some(&question.approval_id) {
            return;
        }
        self.questions.shown = Some(question.approval_id.clone());
        self.line(&self.screen.question(&question, self.watched));
        if self.questions.nobody {
            self.answer(Decision::RejectOnce, Some(NOBODY.to_owned()));
        }
    }

    /// Handles a key that was pressed on an empty line while this question was shown.
    pub(super) fn on_key(&mut self, key: char, question: &ApprovalId) -> Vec<Step> {
        let decision = KEYS.iter().find(|(own, ..)| *own == key).map(|(_, decision, _)| *decision);
        match decision.filter(|_| self.asks() == Some(question)) {
            Some(decision) => self.answer(decision, None),
            None => self.line(&self.screen.note("that question is over")),
        }
        self.done()
    }

    /// Handles the end of the input. From a terminal, the person has left, and the question stays open for others; in a
    /// pipe, nobody will answer.
    pub(super) fn on_end(&mut self) -> Vec<Step> {
        self.questions.nobody = true;
        if self.watched && self.asks().is_some() {
            self.line(&self.screen.note("the tool goes on waiting; open the session again to answer"));
            let mut steps = self.done();
            steps.push(Step::Quit);
            return steps;
        }
        if self.asks().is_some() {
            self.answer(Decision::RejectOnce, Some(NOBODY.to_owned()));
        }
        self.done()
    }

    /// Answers the question that is shown.
    pub(super) fn answer(&mut self, decision: Decision, why: Option<String>) {
        let Some(question) = self.asks().and_then(|_| self.question()) else {
            return self.line(&self.screen.note("no tool waits for an answer"));
        };
        let response = ApprovalResponse {
            approval_id: question.approval_id.clone(),
            review: decision,
            arguments_hash: Some(question.arguments_hash.clone()),
            custom_deny_message: why,
        };
        self.questions.mine.insert(response.approval_id.clone());
        self.ask(Asked::Answer, Command::ApprovalResponse(response));
    }

    /// Handles the refusal of an answer: the question is open again, if it still is.
    pub(super) fn on_answer_refused(&mut self) {
        self.questions.mine.clear();
    }

    /// Handles the decision about a question.
    pub(super) fn on_decided(&mut self, resolved: &CallResolved) {
        let Some(approval) = &resolved.approval_id else { return };
        let is_mine = self.questions.mine.remove(approval);
        let place = if is_mine { "" } else { " elsewhere" };
        let text = match (resolved.outcome, resolved.option) {
            (CallOutcome::Expired, _) => "nobody answered in time: not run".to_owned(),
            (_, Some(option)) => format!("{}{place}", done_by(option)),
            _ => return self.show_question(),
        };
        self.line(&self.screen.note(&text));
        self.show_question();
    }

    /// Forgets what was asked in the session that is left.
    pub(super) fn forget_questions(&mut self) {
        self.questions = Questions { nobody: self.questions.nobody, ..Questions::default() };
    }

    /// Lists the tools, or switches them.
    pub(super) fn on_tools_line(&mut self, line: ToolsLine) {
        let Some(snapshot) = self.snapshot() else {
            return self.line(&self.screen.warning("the session is not open yet"));
        };
        let mut off = snapshot.settings.tools_off.clone();
        match line {
            ToolsLine::Show => {
                if let Some(text) = self.screen.standing(&snapshot.standing_approvals) {
                    self.line(&text);
                }
                self.ask(Asked::Other, Command::ListTools(Empty {}));
            }
            ToolsLine::Off(names) => {
                off.extend(names);
                off.sort_unstable();
                off.dedup();
                self.switch(off);
            }
            ToolsLine::On(names) => {
                off.retain(|name| !names.contains(name));
                self.switch(off);
            }
            ToolsLine::Ask(number) => match number.checked_sub(1).and_then(|at| snapshot.standing_approvals.get(at)) {
                Some(standing) => {
                    let withdraw = WithdrawApproval { approval_id: standing.approval_id.clone() };
                    self.ask(Asked::Withdraw, Command::WithdrawApproval(withdraw));
                }
                None => self.line(&self.screen.warning("that is no number of a lasting answer in /tools")),
            },
        }
    }

    fn switch(&mut self, off: Vec<String>) {
        self.ask(Asked::Tools, Command::SetTools(SetTools { off: Some(off), approvals: None }));
    }
}

/// The keys that answer, with what each does.
const KEYS: &[(char, Decision, &str)] = &[
    ('y', Decision::AllowOnce, "allow once"),
    ('a', Decision::AllowAlways, "allow always"),
    ('n', Decision::RejectOnce, "reject"),
    ('r', Decision::RejectAlways, "reject always"),
    ('s', Decision::RejectAndStop, "reject and stop the answer"),
];

/// Returns the keys that answer a question.
#[cfg(unix)]
pub(super) fn keys() -> impl Iterator<Item = char> {
    KEYS.iter().map(|(key, ..)| *key)
}

fn done_by(option: ApprovalOption) -> &'static str {
    match option {
        ApprovalOption::AllowOnce => "allowed",
        ApprovalOption::AllowAlways => "allowed always",
        ApprovalOption::RejectOnce => "rejected",
        ApprovalOption::RejectAlways => "rejected always",
    }
}

/// Returns the text in lines that begin with two spaces, with what would hide in it written out.
fn inset(text: &str) -> String {
    marked(&visible(text)).lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Returns the texts of several lines in a call's arguments.
fn texts_in_lines(arguments: &str) -> Vec<String> {
    fn collect(value: Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) if text.contains('\n') => found.push(text),
            Value::Array(items) => items.into_iter().for_each(|item| collect(item, found)),
            Value::Object(fields) => fields.into_iter().for_each(|(_, field)| collect(field, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(serde_json::from_str(arguments).unwrap_or_default(), &mut found);
    found
}

impl Screen {
    /// Returns the question about a call: exactly what would be called, why it is asked, and how to answer.
    fn question(self, approval: &Approval, watched: bool) -> String {
        let mut lines = vec![self.warning(&format!(
            "the tool {} asks first: {}",
            visible(&approval.name),
            visible(&approval.reason)
        ))];
        // Of what JSON writes in one line: a patch, a script, a file.
        lines.extend(texts_in_lines(&approval.display).iter().map(|text| inset(text)));
        lines.push(inset(&approval.display));
        if let Some(proposed) = &approval.proposed_arguments {
            lines.push(self.note("a hook has changed the arguments; the model wrote:"));
            lines.push(inset(proposed));
        }
        if watched {
            let keys: Vec<String> = KEYS.iter().map(|(key, _, does)| format!("{key} {does}")).collect();
            lines.push(self.note(&format!("on an empty line: {}", keys.join(", "))));
        }
        let answers =
            "/allow [always], /reject [always|stop] [WHY]; always means in this session, for exactly this call";
        lines.push(self.note(answers));
        lines.push(self.note(&format!("without an answer until {} it is not run", approval.expires_at)));
        lines.join("\n")
    }

    /// Returns the lasting answers, numbered; `None` if there are none.
    fn standing(self, standing: &[reseed_protocol::approval::StandingApproval]) -> Option<String> {
        let lines = standing.iter().enumerate().map(|(at, answer)| {
            format!("{:>4}  {}: {}", at + 1, done_by(answer.option), told(&answer.name, &answer.display))
        });
        let mut lines: Vec<String> = lines.collect();
        if lines.is_empty() {
            return None;
        }
        lines.push(self.note("/tools ask N asks about such a call again"));
        Some(lines.join("\n"))
    }
}
