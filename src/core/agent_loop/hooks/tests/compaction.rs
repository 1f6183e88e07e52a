//! Hooks before a compaction.

use super::*;
use reseed_protocol::{
    compaction::{
        CancelCompaction, Compaction, CompactionPreview, CompactionRung, ContextCompacted, PinEntry, PreviewCompaction,
        SetContextStrategy, StartCompaction, StrategySettings,
    },
    hooks::ContextReason,
};

mod meanwhile;

/// Returns a session that holds more than a compaction keeps.
fn long(hooks: Vec<HookSpec>) -> World {
    World::full(hooks, "manual", 40)
}

/// Returns a session whose next request waits for a compaction.
fn crowded(hooks: Vec<HookSpec>) -> World {
    World::full(hooks, "threshold", 92)
}

/// Returns a session that is compacted in the background.
fn filling(hooks: Vec<HookSpec>) -> World {
    World::full(hooks, "threshold", 75)
}

/// Returns hooks that are skipped if they fail.
fn optional(names: &[&str]) -> Vec<HookSpec> {
    before(names).into_iter().map(HookSpec::optional).collect()
}

fn before(names: &[&str]) -> Vec<HookSpec> {
    names.iter().map(|name| hook(name, HookPoint::BeforeCompaction)).collect()
}

impl World {
    fn compact(&mut self) -> &mut Self {
        self.compact_with(None)
    }

    fn compact_with(&mut self, instructions: Option<&str>) -> &mut Self {
        let instructions = instructions.map(str::to_owned);
        self.command(SessionCommand::StartCompaction(StartCompaction { instructions, ..StartCompaction::default() }))
    }

    fn compacted(&self) -> (&ContextCompacted, &Compaction) {
        let compacted = self.events.iter().rev().find_map(|event| match event {
            Event::ContextCompacted(compacted) => Some(&**compacted),
            _ => None,
        });
        let EntryData::Compaction(entry) = &self.newest("compaction").data else { panic!("no compaction") };
        (compacted.expect("it was compacted"), entry)
    }

    fn previewed(&self) -> &CompactionPreview {
        let Reply::CompactionPreview(preview) = self.reply() else { panic!("no preview: {:?}", self.reply()) };
        preview
    }
}

#[test]
fn a_hook_sees_what_a_compaction_would_read() {
    let mut world = long(before(&["one"]));
    world.compact_with(Some("mind the boats")).check(&["ask one before_compaction"]);
    let HookEvent::BeforeCompaction(told) = &world.question().event else { panic!("another question") };
    let ids = |messages: &[reseed_protocol::context::ContextMessage]| -> Vec<String> {
        messages.iter().map(|message| message.entry_id.as_ref().unwrap().to_string()).collect()
    };
    let kept = told.first_kept_entry_id.clone().unwrap();
    let gone: Vec<String> = world.entries.iter().map(|entry| entry.entry_id.to_string()).collect();
    let gone: Vec<String> = gone.into_iter().take_while(|id| *id != kept.as_str()).collect();
    assert!(!gone.is_empty());
    assert_eq!([ids(&told.messages), ids(&told.turn_prefix)].concat(), gone);
    assert_eq!(told.branch_entries, world.entries);
    assert_eq!(told.custom_instructions.as_deref(), Some("mind the boats"));
    assert_eq!((told.background, told.preview, &told.previous_summary, &told.summary), (false, false, &None, &None));
    assert_eq!((told.settings.strategy.as_str(), told.settings.model.as_str()), ("manual", "summariser"));
    assert_eq!(told.tokens_before, world.agent.context_info().token_count);
    // The next compaction gets this summary.
    world.answer(json!({ "summary": "They met at the harbour." })).took();
    world.say("and then?").model("on we went ".repeat(300).as_str()).compact();
    let HookEvent::BeforeCompaction(told) = &world.question().event else { panic!("another question") };
    assert_eq!(told.previous_summary.as_deref(), Some("They met at the harbour."));
}

#[test]
fn a_compaction_that_a_hook_cancels_is_not_made_and_no_other_hook_is_called() {
    let mut world = long(before(&["one", "two"]));
    let tokens = world.agent.context_info().token_count;
    world.compact().took();
    world.answer(json!({ "cancel": true, "summary": "none" })).check(&["compaction failed compaction_cancelled"]);
    let Some(Event::CompactionFailed(failed)) = world.events.last() else { panic!("not told") };
    assert!(failed.error.message.contains("the hook `one` cancelled the compaction"), "{}", failed.error.message);
    assert_eq!(world.agent.context_info().token_count, tokens);
    world.check_at_rest();
}

#[test]
fn a_turn_that_fits_continues_without_a_cancelled_compaction() {
    let mut world = crowded(before(&["one"]));
    world.say("hello").check(&["+ user", "turn", "ask one before_compaction"]);
    world.answer(json!({ "cancel": true })).check(&["compaction failed compaction_cancelled", "model"]);
    world.took();
    // The provider's refusal is final: without a compaction, this request cannot be sent.
    world.model_fails(ErrorCode::ContextOverflow).check(&["ask one before_compaction"]);
    world.answer(json!({ "cancel": true }));
    world.check(&["compaction failed compaction_cancelled", "end failed compaction_cancelled"]);
    assert!(world.ended().error.as_ref().unwrap().message.contains("the hook `one` cancelled"));
    world.check_at_rest();
}

#[test]
fn a_hooks_summary_is_used_without_asking_the_model() {
    let mut world = long(before(&["one"]));
    world.compact().took();
    world.answer(json!({ "summary": "  They met at the harbour.\n", "details": { "by": "rule" } }));
    world.check(&["+ compaction", "compacted hook_summary", "reseed"]);
    let (compacted, entry) = world.compacted();
    assert_eq!((compacted.rung, compacted.summary.as_str()), (CompactionRung::HookSummary, "They met at the harbour."));
    assert!(compacted.failed_rungs.is_empty());
    assert_eq!((entry.hook.as_deref(), &entry.hook_details), (Some("one"), &Some(json!({ "by": "rule" }))));
    assert!(world.sent.is_empty());
    world.say("and then?");
    assert!(world.last_sent()[0].contains("They met at the harbour."));
}

#[test]
fn a_hooks_summary_without_gain_is_replaced_by_the_models() {
    let mut world = long(before(&["one"]));
    world.compact().took();
    world.answer(json!({ "summary": "The harbour lies to the west. ".repeat(1_000) })).check(&["summary"]);
    world.summary().check(&["+ compaction", "compacted model_summary", "reseed"]);
    let (compacted, entry) = world.compacted();
    let failed: Vec<(CompactionRung, &str)> =
        compacted.failed_rungs.iter().map(|failed| (failed.rung, failed.reason.as_str())).collect();
    assert_eq!(failed, [(CompactionRung::HookSummary, "not_smaller")]);
    assert_eq!(entry.hook, None, "the summary is not the hook's");
}

#[test]
fn a_hook_can_choose_another_model_and_instructions() {
    let mut world = long(before(&["one"]));
    world.compact_with(Some("mind the boats")).took();
    world.answer(json!({ "model": "cheaper", "instructions": "mind the gulls" })).check(&["summary"]);
    let asked = &world.sent[0];
    let text: String = asked.messages().map(|message| message.message.text()).collect();
    assert_eq!(asked.model, "cheaper");
    assert!(text.contains("mind the gulls") && !text.contains("mind the boats"));
    world.summary().check(&["+ compaction", "compacted model_summary", "reseed"]);
    world.say("hello");
    assert_eq!(world.sent.last().unwrap().model, "test");
}

#[test]
fn a_hooks_instructions_can_replace_the_prompt() {
    let mut world = long(before(&["one", "two"]));
    world.compact_with(Some("mind the boats"));
    world.answer(json!({ "instructions": "One line about the gulls.", "replaceInstructions": true })).took();
    world.answer(json!({})).check(&["summary"]);
    let text: String = world.sent[0].messages().map(|message| message.message.text()).collect();
    let system = &world.sent[0].envelope.system.compiled;
    assert!(format!("{system}{text}").contains("One line about the gulls."), "{text}");
    assert!(!text.contains("mind the boats") && !text.contains("## Constraints & Preferences"), "{text}");
    world.summary_says("The gulls were loud, and the ferry left at noon.");
    world.check(&["+ compaction", "compacted model_summary", "reseed"]);
    assert_eq!(world.compacted().0.form, Some(reseed_protocol::compaction::SummaryForm::Free));
    // Without instructions, nothing can replace the server's own.
    let mut world = long(optional(&["one"]));
    world.compact().took();
    world.answer(json!({ "replaceInstructions": true })).check(&["one failed hook_failed", "summary"]);
}

#[test]
fn hooks_see_earlier_requests_and_the_last_value_of_each_field_wins() {
    let mut world = long(before(&["one", "two", "three"]));
    world.compact_with(Some("mind the boats"));
    world.answer(json!({ "instructions": "mind the gulls", "model": "cheaper", "details": { "n": 1 } }));
    let told = world.asked_for();
    assert_eq!(
        (&told["customInstructions"], &told["settings"]["model"]),
        (&json!("mind the gulls"), &json!("cheaper"))
    );
    world.answer(json!({ "summary": "They met." }));
    assert_eq!(world.asked_for()["summary"], "They met.");
    world.answer(json!({ "details": { "n": 3 } }));
    let (compacted, entry) = world.compacted();
    assert_eq!((compacted.rung, compacted.summary.as_str()), (CompactionRung::HookSummary, "They met."));
    assert_eq!((entry.hook.as_deref(), &entry.hook_details), (Some("two"), &Some(json!({ "n": 3 }))));
}

#[test]
fn an_optional_hook_that_fails_or_is_late_is_skipped() {
    let refused = [
        (json!({ "summary": " \n" }), "its summary is blank"),
        (json!({ "summary": "x".repeat(300_000) }), "its `summary` has 300000 bytes; at most 262144 are allowed"),
        (json!({ "details": "x".repeat(300_000) }), "its `details` has 300002 bytes"),
        (
            json!({ "instructions": "x".repeat(20_000) }),
            "its `instructions` has 20000 bytes; at most 16384 are allowed",
        ),
        (json!({ "label": "x" }), "`before_compaction` does not take the field `label`"),
        (json!({ "error": "no" }), "it says: no"),
    ];
    for (answer, why) in refused {
        let mut world = long(optional(&["one", "two"]));
        world.compact().took();
        world.answer(answer).check(&["one failed hook_failed", "ask two before_compaction"]);
        let Some(EphemeralEvent::HookFailed(failed)) =
            world.emitted.iter().rev().find(|event| matches!(event, EphemeralEvent::HookFailed(_)))
        else {
            panic!("not told")
        };
        assert!(failed.error.message.contains(why), "{}", failed.error.message);
        world.answer(json!({})).check(&["summary"]);
        world.summary().check_at_rest();
    }
    let mut world = long(optional(&["one"]));
    world.compact().took();
    world.wait(1_000).check(&["drop one", "one failed hook_timeout", "summary"]);
    // A model without a known window cannot summarise.
    let mut world = long(optional(&["one"]));
    world.agent.ledger.deployment = Arc::new(Deployment {
        windows: Windows::new(None, vec![("test".into(), Some(9_000)), ("summariser".into(), Some(9_000))]),
        ..(*world.agent.ledger.deployment).clone()
    });
    world.compact().took();
    world.answer(json!({ "model": "nobody-knows" })).check(&["one failed hook_failed", "summary"]);
}

#[test]
fn a_compaction_that_a_required_hook_did_not_inspect_is_not_made() {
    let mut world = long(before(&["one", "two"]));
    world.compact().took();
    world.answer(json!({ "error": "no" })).check(&["one failed hook_failed", "compaction failed hook_failed"]);
    world.check_at_rest();
    world.compact().took();
    world.wait(1_000).check(&["drop one", "one failed hook_timeout", "compaction failed hook_timeout"]);
    world.check_at_rest();
    // A turn continues if its request fits, and fails if the provider refused the request.
    let mut world = crowded(before(&["one"]));
    world.say("hello").took();
    world.answer(json!({ "error": "no" }));
    world.check(&["one failed hook_failed", "compaction failed hook_failed", "model"]);
    world.model_fails(ErrorCode::ContextOverflow).check(&["ask one before_compaction"]);
    world.answer(json!({ "error": "no" }));
    // Once the turn has ended, the compaction is tried again.
    let ends = ["compaction failed hook_failed", "end failed hook_failed", "ask one before_compaction"];
    assert_eq!(world.took()[1..], ends);
    let mut world = long(before(&["one"]));
    world.command(SessionCommand::PreviewCompaction(PreviewCompaction::default())).took();
    world.answer(json!({ "error": "no" })).check(&["one failed hook_failed", "error hook_failed"]);
    world.check_at_rest();
}

#[test]
fn text_that_a_hook_removed_does_not_return_in_an_earlier_summary() {
    for (at, is_void) in [(0, true), (usize::MAX, false)] {
        let redactor = hook("redactor", HookPoint::Context).for_reasons(&[ContextReason::BeforeRequest]);
        let mut world = long(vec![redactor]);
        world.command(SessionCommand::PreviewCompaction(PreviewCompaction::default())).summary();
        let preview_id = Some(world.previewed().preview_id.clone());
        world.say("and then?");
        // Messages since the preview are not part of it.
        let entry = world.entries.get(at).or(world.entries.last()).cloned().unwrap();
        let message =
            json!({ "role": entry.message().unwrap().role, "content": [{ "type": "text", "text": "hidden" }] });
        let edits = json!([{ "entryId": entry.entry_id, "message": message }]);
        let patch = json!([{ "op": "messages_cached_edit", "edits": edits, "invalidateCacheReason": "redacted" }]);
        world.answer(json!({ "patch": patch })).model("on we went");
        world.command(SessionCommand::StartCompaction(StartCompaction { preview_id, ..StartCompaction::default() }));
        let refused = matches!(world.reply(), Reply::Error(error) if error.code == ErrorCode::PreviewNotFound);
        assert_eq!(refused, is_void, "{:?}", world.reply());
    }
}

#[test]
fn a_hook_receives_the_conversation_as_text() {
    let mut world = long(before(&["one"]));
    world.compact();
    let HookEvent::BeforeCompaction(told) = &world.question().event else { panic!("another question") };
    let said = told.messages.iter().chain(&told.turn_prefix);
    let blocks: Vec<String> = said.flat_map(|said| crate::compaction::serialize::blocks(&said.message)).collect();
    assert!(blocks.len() > 2);
    assert_eq!(told.conversation, blocks.join("\n\n"));
    assert_eq!(told.leaf_id, world.agent.session().state.leaf);
}

#[test]
fn a_hook_can_keep_more_or_less_after_its_summary() {
    for at in ["e2", "e5", "e6"] {
        let mut world = long(before(&["one"]));
        world.compact().took();
        world.answer(json!({ "summary": "They met.", "firstKeptEntryId": at }));
        world.check(&["+ compaction", "compacted hook_summary", "reseed"]);
        let (_, entry) = world.compacted();
        assert_eq!(entry.first_kept_entry_id.as_ref().map(|id| id.as_str()), Some(at));
        world.say("and then?");
        let sent = world.last_sent();
        let kept = 8 - at[1..].parse::<usize>().unwrap();
        // The user's last message is always kept.
        assert_eq!(sent.len(), 1 + kept.max(2) + 1, "from {at} on: {sent:?}");
        world.model("on we went").check_at_rest();
    }
    // A later summary replaces an earlier one and its cut.
    let mut world = long(before(&["one", "two"]));
    world.compact();
    let planned = world.asked_for()["firstKeptEntryId"].clone();
    world
        .answer(json!({ "summary": "They met.", "firstKeptEntryId": "e2" }))
        .answer(json!({ "summary": "They parted." }));
    let (compacted, entry) = world.compacted();
    assert_eq!(compacted.summary, "They parted.");
    assert_eq!(json!(entry.first_kept_entry_id), planned);
}

#[test]
fn an_invalid_cut_of_a_hook_is_refused_by_name() {
    let table = [
        (json!({ "firstKeptEntryId": "e2" }), "needs a `summary`"),
        (json!({ "summary": "x", "firstKeptEntryId": "nobody" }), "is no message that the model sees"),
        (json!({ "summary": "x", "firstKeptEntryId": "e0" }), "too little precedes `e0`"),
    ];
    for (answer, why) in table {
        let mut world = long(before(&["one"]));
        world.compact().took();
        world.answer(answer).check(&["one failed hook_failed", "compaction failed hook_failed"]);
        let failed = world.emitted.iter().find_map(|event| match event {
            EphemeralEvent::HookFailed(failed) => Some(failed.error.message.clone()),
            _ => None,
        });
        assert!(failed.as_ref().is_some_and(|message| message.contains(why)), "{failed:?}");
        world.check_at_rest();
    }
}

#[test]
fn a_hooks_summary_with_little_gain_is_used() {
    // This summary is nearly as long as what it replaces.
    let mut world = long(before(&["one"]));
    world.compact();
    let HookEvent::BeforeCompaction(told) = &world.question().event else { panic!("another question") };
    let said: String = told.messages.iter().map(|said| said.message.text()).collect();
    let little: String = said.chars().take(said.chars().count() * 97 / 100).collect();
    world.took();
    world.answer(json!({ "summary": little })).check(&["+ compaction", "compacted hook_summary", "reseed"]);
    world.check_at_rest();
    // The same holds for a strategy that does not summarise.
    let mut world = World::full(before(&["one"]), "truncate", 60);
    world.compact().took();
    world.answer(json!({ "summary": "They met." })).check(&["+ compaction", "compacted hook_summary", "reseed"]);
    assert_eq!(world.compacted().0.summary, "They met.");
}

#[test]
fn a_compaction_without_gain_and_with_observers_only_delays_no_turn() {
    let observers = before(&["one"]).into_iter().map(HookSpec::observing).collect();
    let mut world = World::full(observers, "manual", 92);
    let settings = StrategySettings { min_gain: Some(0.5), ..StrategySettings::default() };
    let set = SetContextStrategy { strategy: "manual".into(), settings: Some(settings) };
    world.command(SessionCommand::SetContextStrategy(set));
    let ids: Vec<_> = world.entries.iter().map(|entry| entry.entry_id.clone()).collect();
    // The two entries that are not pinned hold too few tokens to be worth a compaction.
    for entry_id in ids.into_iter().skip(2) {
        world.command(SessionCommand::PinEntry(PinEntry { entry_id }));
    }
    world.took();
    let truncate = StartCompaction { strategy: Some("truncate".into()), ..StartCompaction::default() };
    world
        .command(SessionCommand::StartCompaction(truncate))
        .check(&["tell one before_compaction", "compaction failed nothing_to_compact"]);
    world.check_at_rest();
    world.say("hello").check(&["+ user", "turn", "model"]);
}
