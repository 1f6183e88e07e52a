//! Moving about in the session's tree, and what waits in its queue, as lines ask for it.

use super::{
    dialogue::{Asked, Dialogue},
    lines::{Go, QueueLine},
};
use crate::cli::terminal::clean;
use reseed_protocol::{
    EntryId, Part, Role,
    command::{
        Command, EditQueue, ForkPosition, ForkSession, GetEntries, GetTree, Input, Navigate, NavigatePosition,
        SetLabel, UserInput, WhenBusy,
    },
    reply::{Entries, Navigated, QueueItem},
};

/// Entries of the path that are searched for the question to go back to.
const BACK_ENTRIES: u32 = 500;

impl Dialogue {
    pub(super) fn ask_tree(&mut self) {
        self.ask(Asked::Other, Command::GetTree(GetTree { root_id: None, depth: None }));
    }

    /// Goes on from a line of the tree, with or without a summary of what is left.
    pub(super) fn go(&mut self, go: Go) {
        let Some(entry_id) = self.entry(&go.which) else { return };
        self.navigate(entry_id, NavigatePosition::At, go.summarize, go.instructions);
    }

    fn navigate(
        &mut self,
        entry_id: EntryId,
        position: NavigatePosition,
        summarize: bool,
        instructions: Option<String>,
    ) {
        let navigate = Navigate {
            entry_id: Some(entry_id),
            position: Some(position),
            summarize: summarize.then_some(true),
            instructions,
            replace_instructions: None,
            label: None,
        };
        self.ask(Asked::Go, Command::Navigate(navigate));
    }

    /// Takes back the last so many questions: looks on the path where they are, then goes before the first of them.
    pub(super) fn back(&mut self, count: usize) {
        let get = GetEntries { before: None, after: None, limit: Some(BACK_ENTRIES), path: Some(true), entry_id: None };
        self.ask(Asked::Back(count), Command::GetEntries(get));
    }

    pub(super) fn on_path(&mut self, count: usize, entries: &Entries) {
        let questions = entries
            .items
            .iter()
            .rev()
            .filter(|entry| entry.message().is_some_and(|message| message.role == Role::User));
        match questions.take(count).last() {
            Some(entry) => self.navigate(entry.entry_id.clone(), NavigatePosition::Before, false, None),
            None => self.line(&self.screen.warning("there is no question to take back")),
        }
    }

    pub(super) fn on_navigated(&mut self, navigated: &Navigated) {
        if let Some(input) = &navigated.input {
            self.line(&self.screen.note("taken back; it stays on its branch, and what you say now begins another:"));
            self.line(&clean(&text_of(input)));
        } else {
            self.line(&self.screen.note("the session goes on from there"));
        }
    }

    /// Makes a session of the path to a line of the tree, or of all that is open now.
    pub(super) fn fork(&mut self, which: Option<&str>) {
        let entry_id = match which {
            Some(which) => self.entry(which),
            None => {
                let last = self.last_entry.clone();
                if last.is_none() {
                    self.line(&self.screen.warning("there is nothing to fork yet"));
                }
                last
            }
        };
        let Some(entry_id) = entry_id else { return };
        self.ask(Asked::Other, Command::ForkSession(ForkSession { entry_id, position: ForkPosition::At }));
    }

    pub(super) fn label(&mut self, which: &str, label: Option<String>) {
        let Some(entry_id) = self.entry(which) else { return };
        self.ask(Asked::Label, Command::SetLabel(SetLabel { entry_id, label }));
    }

    /// The entry of a number of the last tree, or of an id.
    pub(super) fn entry(&mut self, which: &str) -> Option<EntryId> {
        let numbered = which.parse::<usize>().ok();
        let found = match numbered {
            Some(number) => number.checked_sub(1).and_then(|at| self.drawn.get(at).cloned()),
            None => which.parse().ok(),
        };
        if found.is_none() {
            self.line(&self.screen.warning("that is no number of the last /tree, and no entry's id"));
        }
        found
    }

    /// Says something to the running turn.
    pub(super) fn steer(&mut self, text: String) {
        let steer = UserInput { when_busy: Some(WhenBusy::Steer), ..UserInput::plain(Input::Text(text)) };
        self.ask(Asked::Steer, Command::UserInput(steer));
    }

    pub(super) fn on_queue_line(&mut self, line: QueueLine) {
        let edit = match line {
            QueueLine::Show => {
                self.line(&self.screen.queue(self.queue()));
                return;
            }
            QueueLine::Remove(number) => {
                let Some(item) = self.waiting(number) else { return };
                EditQueue { remove: Some(vec![item.command_id]), order: None }
            }
            QueueLine::First(number) => {
                let Some(item) = self.waiting(number) else { return };
                let others = self.queue().iter().filter(|other| other.command_id != item.command_id);
                let order = std::iter::once(&item).chain(others).map(|item| item.command_id.clone()).collect();
                EditQueue { remove: None, order: Some(order) }
            }
        };
        self.ask(Asked::Queue, Command::EditQueue(edit));
    }

    /// Returns what waits.
    fn queue(&self) -> &[QueueItem] {
        self.snapshot().map_or(&[], |snapshot| &snapshot.queue)
    }

    fn waiting(&mut self, number: usize) -> Option<QueueItem> {
        let item = number.checked_sub(1).and_then(|at| self.queue().get(at).cloned());
        if item.is_none() {
            self.line(&self.screen.warning("nothing waits under that number; /queue lists what does"));
        }
        item
    }
}

/// The texts of parts, a line each.
pub(super) fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
