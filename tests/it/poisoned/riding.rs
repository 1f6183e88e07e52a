//! The same histories with the cached prefix: nothing is quoted there, so each message stays in its own role, only the
//! instruction is added, and the answer is checked as strictly.

use super::{Poisoned, RECORD_BEGINS, RECORD_ENDS, assert_harmless, histories, messages, text};
use reseed::core::{
    compaction::{
        Job, Next, Order, Outcome, Surroundings, Writing,
        cut::{Keep, find_cut},
        segments::Room,
        strategy::FallbackStep,
        structure::Structure,
        summary::{self, FileTools},
        summary_tokens_max,
    },
    context::{
        build_context,
        counter::Counter,
        envelope::{Compiled, envelope},
        seed,
    },
    model::{Answer, ModelRequest, Purpose},
    prices::Prices,
    session::Node,
};
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId, Message, Part, Role, StopReason, Timestamp,
    compaction::{Compaction, CompactionTrigger, SummaryMode},
    context::{EnvelopeMeta, RequestOptions},
};
use std::sync::Arc;

const WINDOW_TOKENS: u64 = 16_000;

/// Returns the history as a session has it: after a summary, with a call before a result, and enough text to be
/// compacted.
fn entries(history: &Poisoned) -> Vec<EntryData> {
    let (said, previous) = messages(history);
    let call_id: CallId = "call".parse().unwrap();
    let call = Part::ToolCall { call_id, name: "read".to_owned(), arguments: "{}".to_owned() };
    let mut entries = vec![EntryData::Compaction(Compaction { summary: previous, ..Compaction::default() })];
    for message in said {
        if message.role == Role::Tool {
            entries.push(EntryData::message(Message::new(Role::Assistant, vec![call.clone()])));
        }
        entries.push(EntryData::message(message));
        entries.push(EntryData::message(text(Role::Assistant, &"The harbour lies to the west. ".repeat(20))));
    }
    entries
}

/// Returns the summary request for this history, and the result of an answer.
fn ridden(history: &Poisoned, answer: &str) -> (ModelRequest, ModelRequest, Option<Outcome>) {
    let counter = Counter::for_model("test");
    let mut parent: Option<EntryId> = None;
    let node = |(at, data): (usize, EntryData)| {
        let entry_id: EntryId = format!("e{at}").parse().unwrap();
        let parent_id = parent.replace(entry_id.clone());
        Arc::new(Node::counted(Entry { entry_id, parent_id, timestamp: Timestamp(0), imported: None, data }, &counter))
    };
    let path: Vec<Arc<Node>> = entries(history).into_iter().enumerate().map(node).collect();
    let context = build_context(&path);
    let structure = Structure::of(&context);
    let cut = find_cut(&context, &structure, Keep { tokens: 150, tokens_max: 4_000 }).expect("something can be cut");
    let conversation = ModelRequest {
        model: "test".into(),
        envelope: envelope(&Compiled::default(), &context, &RequestOptions::default(), EnvelopeMeta::default()),
        purpose: Purpose::Turn,
        compared_with: None,
        compacts: None,
    };
    let around = Surroundings {
        model: "test",
        window_tokens: WINDOW_TOKENS,
        counter,
        reasons: false,
        earlier: path[0].compaction(),
        details: None,
        file_tools: FileTools::default(),
        now: Timestamp(0),
        deadline: Timestamp(1),
        delimiter: super::MARK.into(),
        asks_model: true,
        room: Room::of(WINDOW_TOKENS / 2, summary_tokens_max(WINDOW_TOKENS), 0.4, SummaryMode::Segments),
        conversation: Some(conversation.clone()),
        native: None,
        prices: Prices::default(),
        writing: Writing::default(),
    };
    let order = Order::automatic("job".parse().unwrap(), CompactionTrigger::Threshold);
    let base = Some(path[0].id().clone());
    let mut job = Job::stage(order, base, &context, |_| None, vec![FallbackStep::Summarise(cut)], around);
    let Next::Ask(request) = job.advance() else { panic!("{}: the model is not asked", history.name) };
    let parts = vec![Part::Text { text: answer.to_owned() }];
    job.take(&Answer::new(parts, StopReason::Stop));
    let outcome = match job.advance() {
        Next::Offer(outcome) => Some(*outcome),
        _ => None,
    };
    (conversation, *request, outcome)
}

/// Returns a summary in which the model repeats what it read, as one point.
fn copied(history: &Poisoned) -> String {
    let said = history.text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!(
        "## Goal\n- boat\n\n## Constraints & Preferences\n- none\n\n## Progress\n### Done\n- none\n### In Progress\n- \
         none\n### Blocked\n- none\n\n## Key Decisions\n- none\n\n## Next Steps\n- none\n\n## Critical Context\n- It \
         said: {said}"
    )
}

#[test]
fn only_the_instruction_is_added() {
    for history in histories() {
        let name = &history.name;
        let (conversation, request, _) = ridden(&history, "");
        let mut sent: Vec<_> = request.messages().cloned().collect();
        let instruction = sent.pop().unwrap();
        assert!(conversation.messages().eq(sent.iter()), "{name}: the conversation is sent as it was");
        assert_eq!(instruction.message.role, Role::User, "{name}");
        let asked = summary::read_in_place(&instruction.message.text());
        let asked = asked.unwrap_or_else(|| panic!("{name}: {}", instruction.message.text()));
        assert_eq!(asked.instructions, None, "{name}");
    }
}

#[test]
fn what_the_model_repeats_stays_within_its_record() {
    for history in histories() {
        let name = &history.name;
        let (_, _, outcome) = ridden(&history, &copied(&history));
        let made = outcome.unwrap_or_else(|| panic!("{name}: nothing is offered")).summary;
        let record = seed::seed_text(&made);
        let body = record.split_once(RECORD_BEGINS).unwrap().1.strip_suffix(RECORD_ENDS).unwrap();
        assert_harmless(body, name);
        assert_eq!(record.matches("</summary>").count(), 1, "{name}: {record}");
    }
}
