//! Summaries without a model: sentences selected by rule, sorted into six sections, deterministically.
//!
//! This is the step of the fallback chain that cannot fail, and all that the offline model has. Invariants:
//! - the result has every section and at most `chars_max` characters (or is the empty skeleton, if that is longer);
//! - of conflicting claims the newest stays; nothing occurs twice;
//! - an overflowing section keeps the heaviest items, and among equals the oldest and the newest alternately, so that
//!   later chatter does not displace early facts, however often summaries are summarised;
//! - it contains nothing invisible and no secrets;
//! - the work is linear in the text, except for sorting.

mod choose;
mod fact;
mod phrases;

pub(crate) use fact::{Weight, judge};
pub use fact::{is_told, names_oneself, subject};

pub use crate::core::text::{
    sentences::sentences,
    words::{Listed, Words, is_question, is_unspaced},
};

use crate::core::text::{
    clip::prefix,
    files::strip_files,
    presentable,
    sections::{SKELETON_CHARS, Sections, item_text},
    slot::Slot,
};
use choose::{SummaryItem, chosen, rooms};
use fact::has_value;
use phrases::{CONSTRAINT, CONSTRAINT_UNSPACED, GOAL, ORDERS, work};
use reseed_protocol::{Message, Part, Role};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum sentences of one tool result or answer that become facts: a log of a thousand lines contains no more.
const DETAILS_PER_PART_MAX: usize = 5;
/// Maximum characters shown of a call's arguments.
const ARGUMENTS_CHARS_MAX: usize = 100;

/// Marks a fact that the user stated, so that the next summary knows.
pub const USER: &str = "User: ";
/// Marks what the model said.
pub const ASSISTANT: &str = "Assistant: ";
/// Marks what a tool returned.
pub const TOOL: &str = "Tool: ";
const FIRST_REQUEST: &str = "First request: ";
const LATEST_REQUEST: &str = "Latest request: ";
/// Marks a question that awaits its answer.
pub const OPEN_QUESTION: &str = "answer the user: ";

/// Summarises these messages and the previous summary.
#[must_use]
pub fn extract(messages: &[&Message], previous: Option<&str>, instructions: Option<&str>, chars_max: usize) -> String {
    let mut gathering = Extraction::new(instructions);
    if let Some(previous) = previous {
        gathering.take_previous(strip_files(&presentable(previous)));
    }
    for message in messages {
        gathering.take_message(message);
    }
    gathering.into_sections(chars_max).to_string()
}

/// The items found so far, in order of appearance.
struct Extraction {
    items: [Vec<Option<SummaryItem>>; 9],
    /// Items that occur already, by section and words.
    seen: BTreeSet<(Slot, String)>,
    /// The current fact for each key, as an index into the facts.
    holders: BTreeMap<String, usize>,
    /// Facts by subject.
    by_subject: BTreeMap<String, Vec<usize>>,
    focus: BTreeSet<String>,
    first_request: Option<String>,
    latest_request: Option<String>,
    /// A user's question that was not answered yet.
    open_question: Option<String>,
}

impl Extraction {
    fn new(instructions: Option<&str>) -> Self {
        // Short words are grammar in languages that use spaces.
        let focus = Words::of(instructions.unwrap_or_default());
        let focus = focus.iter().filter(|word| word.chars().count() > 3 || word.starts_with(is_unspaced));
        Self {
            items: std::array::from_fn(|_| Vec::new()),
            seen: BTreeSet::new(),
            holders: BTreeMap::new(),
            by_subject: BTreeMap::new(),
            focus: focus.map(str::to_owned).collect(),
            first_request: None,
            latest_request: None,
            open_question: None,
        }
    }

    fn take_previous(&mut self, previous: &str) {
        let sections = Sections::parse(previous);
        // A summary in another form: all of it counts as told.
        for sentence in sections.before().iter().flat_map(|line| sentences(item_text(line))) {
            self.add_fact("", sentence, Some(Weight::Told));
        }
        for slot in Slot::ALL {
            for line in sections.lines(slot) {
                self.take_previous_line(slot, item_text(line));
            }
        }
    }

    fn take_previous_line(&mut self, slot: Slot, text: &str) {
        if let Some(request) = text.strip_prefix(FIRST_REQUEST).filter(|_| slot == Slot::Goal) {
            self.first_request = Some(request.to_owned());
        } else if let Some(request) = text.strip_prefix(LATEST_REQUEST).filter(|_| slot == Slot::Goal) {
            self.latest_request = Some(request.to_owned());
        } else if matches!(slot, Slot::Context | Slot::Restored) {
            let speaker = [USER, ASSISTANT, TOOL].into_iter().find(|speaker| text.starts_with(speaker)).unwrap_or("");
            // A user's fact is rated again from its text; what a model chose to keep counts as told.
            let weight = match speaker {
                USER => None,
                "" => Some(Weight::Told),
                _ => Some(Weight::Detail),
            };
            for sentence in sentences(&text[speaker.len()..]) {
                self.add_fact(speaker, sentence, weight);
            }
        } else if !text.starts_with(OPEN_QUESTION) {
            for sentence in sentences(text) {
                self.add(slot, sentence.to_owned(), Weight::Firm);
            }
        }
    }

    fn take_message(&mut self, message: &Message) {
        for part in &message.content {
            match part {
                Part::Text { text } if message.role == Role::User => self.take_user(&presentable(text)),
                Part::Text { text } => self.take_answer(&presentable(text)),
                Part::ToolCall { name, arguments, .. } => {
                    let arguments = presentable(arguments);
                    let arguments = prefix(&arguments, ARGUMENTS_CHARS_MAX);
                    let text = words_on_one_line(&format!("called {name} {arguments}"));
                    self.add(Slot::Done, text, Weight::Passing);
                }
                Part::ToolResult { output, is_error, .. } => self.take_result(&presentable(output), *is_error),
                Part::Image { .. } | Part::Reasoning { .. } => {}
            }
        }
    }

    fn take_user(&mut self, text: &str) {
        let mut request = None;
        for sentence in sentences(text) {
            let words = Words::of(sentence);
            let spaced = words.spaced();
            let asks = is_question(sentence, &words.list());
            let wants = GOAL.any_among(spaced);
            if asks || wants || words.iter().next().is_some_and(|word| ORDERS.has(word)) {
                request = request.or(Some(sentence));
            }
            if asks {
                self.open_question = Some(sentence.to_owned());
                continue;
            }
            let limits = CONSTRAINT.any_among(spaced) || CONSTRAINT_UNSPACED.any_in(sentence);
            let judged = judge(sentence);
            let is_told = judged.as_ref().is_some_and(|(weight, _)| *weight >= Weight::Told);
            if is_told {
                self.add_fact(USER, sentence, None);
            } else if limits && !spaced.starts_with("i don t") && !spaced.starts_with("i do not") {
                self.add(Slot::Constraints, sentence.to_owned(), Weight::Told);
            } else if let Some(slot) = work(spaced) {
                self.add(slot, sentence.to_owned(), Weight::Firm);
            } else if wants {
                self.add(Slot::Goal, sentence.to_owned(), Weight::Firm);
            } else {
                self.add_fact(USER, sentence, None);
            }
        }
        let request = request.or_else(|| sentences(text).first().copied());
        if let Some(request) = request {
            self.first_request.get_or_insert_with(|| request.to_owned());
            self.latest_request = Some(request.to_owned());
        }
    }

    fn take_answer(&mut self, text: &str) {
        self.open_question = None;
        let mut details = 0;
        for sentence in sentences(text) {
            let words = Words::of(sentence);
            if is_question(sentence, &words.list()) {
                continue;
            }
            if let Some(slot) = work(words.spaced()) {
                self.add(slot, sentence.to_owned(), Weight::Detail);
            } else if details < DETAILS_PER_PART_MAX && has_value(sentence) {
                details += 1;
                self.add_fact(ASSISTANT, sentence, Some(Weight::Detail));
            }
        }
    }

    fn take_result(&mut self, output: &str, is_error: bool) {
        let found = sentences(output);
        if is_error {
            if let Some(first) = found.first() {
                self.add(Slot::Blocked, format!("a tool failed: {first}"), Weight::Detail);
            }
            return;
        }
        for sentence in found.into_iter().filter(|sentence| has_value(sentence)).take(DETAILS_PER_PART_MAX) {
            self.add_fact(TOOL, sentence, Some(Weight::Detail));
        }
    }

    /// Adds a fact; a newer fact with the same key replaces the older one. Without a weight it is rated.
    fn add_fact(&mut self, speaker: &str, sentence: &str, weight: Option<Weight>) {
        let judged = judge(sentence);
        let weight = weight.or(judged.as_ref().map(|(weight, _)| *weight)).unwrap_or(Weight::Passing);
        // Only the user or a summary may replace what the user said.
        let may_replace = weight >= Weight::Told;
        let claim = judged.and_then(|(_, claim)| claim).filter(|_| may_replace);
        let Some(at) = self.add(Slot::Context, format!("{speaker}{sentence}"), weight) else { return };
        let Some(claim) = claim else { return };
        let facts = &mut self.items[Slot::Context as usize];
        let about = self.by_subject.entry(claim.subject).or_default();
        if claim.is_change && claim.key.is_none() {
            about.drain(..).for_each(|older| forget(&mut facts[older], &mut self.seen));
        }
        match claim.key {
            Some(key) => {
                if let Some(older) = self.holders.insert(key, at) {
                    forget(&mut facts[older], &mut self.seen);
                }
            }
            None => about.push(at),
        }
    }

    /// Adds an item and returns its index; `None` if it occurs already.
    fn add(&mut self, slot: Slot, text: String, weight: Weight) -> Option<usize> {
        let text = words_on_one_line(&text);
        let words = Words::of(&text);
        let is_focus = !self.focus.is_empty() && words.iter().any(|word| self.focus.contains(word));
        let weight = if is_focus { Weight::Asked } else { weight };
        if !self.seen.insert((slot, words.spaced().to_owned())) {
            return None;
        }
        let items = &mut self.items[slot as usize];
        items.push(Some(SummaryItem { text, weight }));
        Some(items.len() - 1)
    }

    fn into_sections(mut self, chars_max: usize) -> Sections {
        self.close_requests();
        let mut places: BTreeMap<Slot, Vec<SummaryItem>> = BTreeMap::new();
        for (slot, items) in Slot::ALL.into_iter().zip(self.items) {
            places.insert(slot, items.into_iter().flatten().collect());
        }
        let room = rooms(&places, chars_max.saturating_sub(SKELETON_CHARS));
        let mut sections = Sections::default();
        for (slot, items) in places {
            for text in chosen(items, room[&slot]) {
                sections.push_item(slot, &text);
            }
        }
        sections
    }

    fn close_requests(&mut self) {
        let first = self.first_request.take();
        let latest = self.latest_request.take().filter(|latest| Some(latest) != first.as_ref());
        for (head, request) in [(FIRST_REQUEST, first), (LATEST_REQUEST, latest)] {
            if let Some(request) = request {
                self.add(Slot::Goal, format!("{head}{request}"), Weight::Told);
            }
        }
        if let Some(question) = self.open_question.take() {
            self.add(Slot::NextSteps, format!("{OPEN_QUESTION}{question}"), Weight::Told);
        }
    }
}

/// Removes a fact that no longer holds; it may be added again later.
fn forget(fact: &mut Option<SummaryItem>, seen: &mut BTreeSet<(Slot, String)>) {
    if let Some(fact) = fact.take() {
        seen.remove(&(Slot::Context, Words::of(&fact.text).spaced().to_owned()));
    }
}

fn words_on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
