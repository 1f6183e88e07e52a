//! The cost of inputs: which of them may stage a compaction of a long context or handle its summary. The caller runs
//! those on a thread of their own.

use crate::agent_loop::{AgentLoop, io::Input};
use reseed_protocol::{Part, command::SessionCommand, turn::UserInput};

/// Estimated tokens of a context above which compacting it may take two milliseconds of CPU time. English prose of this
/// size takes half a millisecond; the margin is for other scripts, exact tokenizers and slower processors.
const LONG_TOKENS: u64 = 6_000;

/// Bytes of an answer's call arguments from which checking them may take about two milliseconds, with the most patterns
/// that an offer can have.
const LARGE_ARGUMENTS_BYTES: usize = 1024;

/// Messages of a history from which counting them may take two milliseconds.
const HISTORY_MESSAGES: usize = 16;

impl AgentLoop {
    /// Returns true if handling this input may take more than two milliseconds. The guess is based on sizes, which is
    /// cheaper than looking at each message.
    #[must_use]
    pub fn takes_long(&self, input: &Input) -> bool {
        if calls_with_large_arguments(input) || brings_history(input) {
            return true;
        }
        let tokens: u64 = self.ledger.path().iter().map(|node| node.tokens.total()).sum();
        if tokens < LONG_TOKENS {
            return false;
        }
        let is_near = || {
            let window = self.ledger.window_tokens();
            let due =
                self.prompt.manager().prepare_at_tokens(window).or(self.prompt.manager().compact_at_tokens(window));
            due.is_some_and(|due| self.prompt.in_tokens(tokens + self.prompt.fixed().total()) >= due)
        };
        let compacts = match input {
            Input::Answered { request, .. } | Input::Failed { request, .. } => self.compaction.is_running(*request),
            Input::Tick | Input::HookAnswered { .. } => self.compaction.is_at_work(),
            Input::Command { command, .. } => matches!(
                **command,
                SessionCommand::StartCompaction(_) | SessionCommand::PreviewCompaction(_) | SessionCommand::Navigate(_)
            ),
            Input::Seeded | Input::Recovered | Input::Go => self.compaction.is_ordered(),
            Input::ToolsOffered(_) | Input::ToolAnswered { .. } => false,
            _ => return false,
        };
        compacts || is_near()
    }
}

/// Returns true if an input brings so many messages that counting them may take long.
fn brings_history(input: &Input) -> bool {
    let Input::Command { command, .. } = input else { return false };
    let SessionCommand::UserInput(UserInput { history: Some(history), .. }) = &**command else { return false };
    history.len() > HISTORY_MESSAGES
}

/// Returns true if an answer calls tools with arguments so large that checking them against a schema may take long.
fn calls_with_large_arguments(input: &Input) -> bool {
    let Input::Answered { answer, .. } = input else { return false };
    let bytes = answer.parts.iter().map(|part| match part {
        Part::ToolCall { arguments, .. } => arguments.len(),
        _ => 0,
    });
    bytes.sum::<usize>() > LARGE_ARGUMENTS_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        agent_loop::{Deployment, Origin, Seed},
        context::{
            counter::{Calibration, Counter},
            testing::path,
            windows::Windows,
        },
        session::{IdSource, Session},
    };
    use reseed_protocol::{
        Timestamp,
        compaction::{PinEntry, StartCompaction},
        event::Event,
        tree::EntryAppended,
    };
    use std::sync::Arc;

    #[test]
    fn only_inputs_that_may_compact_a_long_context_take_long() {
        let order = || SessionCommand::StartCompaction(StartCompaction::default());
        let pin = || SessionCommand::PinEntry(PinEntry { entry_id: "e0".parse().unwrap() });
        // Each case has the words in the message, the window, the command, and the expected result.
        for (words, window, command, expected) in [
            (500, 100_000, order(), false),
            (20_000, 100_000, order(), true),
            (20_000, 100_000, pin(), false),
            (20_000, 10_000, pin(), true),
        ] {
            let counter = Counter::for_model("test");
            let mut session = Session::new("session".parse().unwrap(), Timestamp(0));
            session.state_mut().model = "test".into();
            for node in path(&[&format!("e0:user {}", "apple ".repeat(words))], &counter) {
                let appended = EntryAppended { entry: node.entry.clone(), turn_id: None, command_id: None };
                session.apply(&Event::EntryAppended(Box::new(appended)), &counter);
            }
            let windows = Windows::new(Some(window), Vec::new());
            let deployment = Deployment { model: "test".into(), windows, ..Deployment::default() };
            let calibration = Calibration::new(counter.method());
            let agent =
                AgentLoop::seeded(1, Seed::new(session, Arc::new(deployment), calibration, IdSource::seeded(1)));
            let (id, command) = ("command-000000000001".parse().unwrap(), Box::new(command));
            let input = Input::Command { origin: Origin(1), id, fingerprint: 0, command, lookup: None };
            assert_eq!(agent.takes_long(&input), expected, "{words} words, window {window}");
        }
    }
}
