//! Checks of a submitted patch, op by op. Each returns the reason why an op is rejected; it quotes names but never
//! content.

use super::{
    carried::CarriedOps,
    counted::{CountedMessage, MessageItem, MessageOp},
    list::List,
    rules::{
        Boundary, CARRIED_OPS_MAX, MESSAGES_MAX, PART_NAME_CHARS_MAX, PARTS_MAX, REASON_CHARS_MAX, SYSTEM_BYTES_MAX,
        SYSTEM_PARTS_MAX, TOOLS_MAX,
    },
};
use crate::{
    context::{messages::Kind, window::TOKENS_MAX},
    model::is_picture_address,
    schema::{Arguments, Budget},
};
use reseed_protocol::{
    CallId, EntryId, Message, Part, Role,
    context::{PatchOp, SystemPart, ToolDefinition},
};
use std::collections::{BTreeSet, HashSet};

/// Maximum characters of a tool's name, as for offered tools.
const TOOL_NAME_CHARS_MAX: usize = 64;

/// Maximum characters of a reasoning effort.
const EFFORT_CHARS_MAX: usize = 64;

pub(super) const UNPAIRED: &str =
    "it leaves a tool call without its result right behind it, or a result without its call: take both, or neither";

type Checked = Result<(), String>;

/// Returns the op's reason for invalidating the cache, trimmed, after checking that the op may be used here.
pub(super) fn reason(op: &PatchOp, boundary: Boundary) -> Result<Option<&str>, String> {
    match (op, boundary) {
        (PatchOp::MessagesUncachedAppend { .. }, Boundary::Durable) => {
            return Err(
                "messages for one request only are the `ephemeral` hook's to add: what is stored is cached".into()
            );
        }
        (PatchOp::CompactionApply { .. }, Boundary::Durable) => {
            return Err("a durable compaction is an entry of its own: answer `before_compaction`, or send \
                start_compaction"
                .into());
        }
        _ => {}
    }
    let Some(reason) = op.invalidate_cache_reason() else { return Ok(None) };
    let reason = reason.trim();
    if reason.is_empty() {
        return Err("it invalidates the provider's cache and does not say why: set `invalidateCacheReason`".into());
    }
    if reason.chars().count() > REASON_CHARS_MAX {
        return Err(format!("its `invalidateCacheReason` has more than {REASON_CHARS_MAX} characters"));
    }
    Ok(Some(reason))
}

/// Checks an op on system prompt, tools or options by itself.
pub(super) fn other(op: &PatchOp, offered: &[ToolDefinition]) -> Checked {
    match op {
        PatchOp::SystemPartSet { part_name, .. } | PatchOp::SystemPartRemove { part_name, .. } => {
            name_of_part(part_name)
        }
        PatchOp::SystemPartsReplace { parts, .. } => {
            let mut names = BTreeSet::new();
            for part in parts {
                name_of_part(&part.name)?;
                if !names.insert(&part.name) {
                    return Err(format!("the part `{}` occurs twice", part.name));
                }
            }
            Ok(())
        }
        PatchOp::ToolsReplace { tools, .. } => tools_there(tools, offered),
        PatchOp::ToolsRemove { tool_names, .. } => {
            at_most(tool_names.len(), TOOLS_MAX, "tools")?;
            match tool_names.iter().find(|name| name.is_empty() || name.chars().count() > TOOL_NAME_CHARS_MAX) {
                Some(_) => Err(format!("a tool's name must have 1 to {TOOL_NAME_CHARS_MAX} characters")),
                None => Ok(()),
            }
        }
        PatchOp::OptionsSet { temperature, max_output_tokens, reasoning_effort, .. } => {
            if temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
                return Err("temperature must be 0 to 2".into());
            }
            if max_output_tokens.is_some_and(|tokens| tokens == 0 || tokens > TOKENS_MAX) {
                return Err(format!("maxOutputTokens must be 1 to {TOKENS_MAX}"));
            }
            let is_word = |text: &String| {
                !text.trim().is_empty()
                    && text.chars().count() <= EFFORT_CHARS_MAX
                    && !text.chars().any(char::is_control)
            };
            if reasoning_effort.as_ref().is_some_and(|effort| !is_word(effort)) {
                return Err(format!("reasoningEffort must be one line of 1 to {EFFORT_CHARS_MAX} characters"));
            }
            Ok(())
        }
        PatchOp::MessagesCachedReplace { .. }
        | PatchOp::MessagesCachedEdit { .. }
        | PatchOp::MessagesUncachedAppend { .. }
        | PatchOp::CompactionApply { .. } => Ok(()),
    }
}

/// Checks the combined effect of all patches so far.
pub(super) fn whole(carried: &CarriedOps, op: &PatchOp, parts: &[SystemPart]) -> Checked {
    let names = |op: &PatchOp| if let PatchOp::ToolsRemove { tool_names, .. } = op { tool_names.len() } else { 1 };
    if carried.ops().iter().map(names).sum::<usize>() > CARRIED_OPS_MAX {
        return Err(format!(
            "the patches of this branch name more than {CARRIED_OPS_MAX} parts and tools: start over with \
             `system_parts_replace` and `tools_replace`"
        ));
    }
    if !matches!(op, PatchOp::SystemPartSet { .. } | PatchOp::SystemPartsReplace { .. }) {
        return Ok(());
    }
    let system = carried.system(parts);
    at_most(system.parts.len(), SYSTEM_PARTS_MAX, "parts in the system prompt")?;
    at_most(system.compiled.len(), SYSTEM_BYTES_MAX, "bytes in the system prompt")
}

/// Checks the number of messages that an op names or carries.
pub(super) fn message_bounds(op: &PatchOp) -> Checked {
    let messages = match op {
        PatchOp::MessagesCachedReplace { messages, .. } => messages.len(),
        PatchOp::MessagesCachedEdit { edits, .. } => edits.len(),
        PatchOp::MessagesUncachedAppend { messages } => {
            messages.iter().try_for_each(says_something)?;
            messages.len()
        }
        PatchOp::CompactionApply { kept_entry_ids, .. } => kept_entry_ids.len(),
        _ => 0,
    };
    at_most(messages, MESSAGES_MAX, "messages")
}

/// Checks an op on the cached messages in `list`.
pub(super) fn messages(op: &MessageOp, list: &mut List) -> Checked {
    match op {
        MessageOp::Replace(items) => {
            let mut named = HashSet::new();
            for item in items {
                let Some(id) = &item.entry_id else {
                    let said =
                        item.said.as_ref().ok_or("one of its messages has neither an `entryId` nor a `message`")?;
                    says_something(&said.message)?;
                    continue;
                };
                let at = visible(id, list)?;
                if list.at(at).kind == Kind::Summary && !named.is_empty() {
                    return Err(format!("the summary, entry `{id}`, must come before every other entry"));
                }
                if !named.insert(id) {
                    return Err(format!("entry `{id}` is named twice"));
                }
                in_place_of(item, at, list)?;
            }
            Ok(())
        }
        MessageOp::Edit(items) => {
            let mut named = HashSet::new();
            for item in items {
                let Some(id) = &item.entry_id else { continue };
                if !named.insert(id) {
                    return Err(format!("entry `{id}` is named twice"));
                }
                let at = visible(id, list)?;
                in_place_of(item, at, list)?;
            }
            Ok(())
        }
        MessageOp::Compact { summary, first_kept, kept } => {
            if summary.is_none() && first_kept.is_none() && kept.is_empty() {
                return Err("it keeps nothing and has no summary".into());
            }
            let first = first_kept.as_ref().map(|id| in_its_place(id, list)).transpose()?;
            let mut named = HashSet::new();
            for id in kept {
                let at = in_its_place(id, list)?;
                if !named.insert(id) || first.is_some_and(|first| at >= first) {
                    return Err(format!("entry `{id}` is named twice, or is not older than the first kept entry"));
                }
            }
            Ok(())
        }
        MessageOp::Append(_) => Ok(()),
    }
}

fn visible(id: &EntryId, list: &mut List) -> Result<usize, String> {
    list.place(id).ok_or_else(|| format!("entry `{id}` is not among the messages of this request"))
}

/// Returns the index of an entry that no patch has moved.
fn in_its_place(id: &EntryId, list: &mut List) -> Result<usize, String> {
    let at = visible(id, list)?;
    match list.at(at).entry_id {
        Some(_) => Ok(at),
        None => Err(format!("entry `{id}` was moved by a patch, so it cannot mark what is kept: name another")),
    }
}

/// Checks that an entry's new content has its role and the same calls, because other messages refer to these.
fn in_place_of(item: &MessageItem, at: usize, list: &List) -> Checked {
    let Some(CountedMessage { message, .. }) = &item.said else { return Ok(()) };
    let there = &list.at(at).message;
    says_something(message)?;
    let id = item.entry_id.as_ref().map_or("-", EntryId::as_str);
    if message.role != there.role {
        return Err(format!("entry `{id}` has another role than its replacement"));
    }
    let sealed = |part: &&Part| matches!(part, Part::Reasoning { payload: Some(_), .. });
    if message.content.iter().filter(sealed).any(|part| !there.content.contains(part)) {
        return Err(format!("the replacement for entry `{id}` has opaque reasoning that is not the model's own"));
    }
    if calls(message) != calls(there) {
        return Err(format!("the replacement for entry `{id}` has other calls, or answers other calls"));
    }
    Ok(())
}

/// Returns the calls that a message makes and those that it answers, in order.
fn calls(message: &Message) -> Vec<(bool, &CallId)> {
    fn call(part: &Part) -> Option<(bool, &CallId)> {
        match part {
            Part::ToolCall { call_id, .. } => Some((true, call_id)),
            Part::ToolResult { call_id, .. } => Some((false, call_id)),
            _ => None,
        }
    }
    message.content.iter().filter_map(call).collect()
}

/// Checks that a message can be sent to a model.
fn says_something(message: &Message) -> Checked {
    at_most(message.content.len(), PARTS_MAX, "parts in one message")?;
    let mut says = false;
    for part in &message.content {
        let fits = match (part, message.role) {
            (Part::Text { text }, Role::User | Role::Assistant) => {
                says |= !text.trim().is_empty();
                true
            }
            (Part::Image { url, detail }, Role::User) => {
                if !is_picture_address(url) {
                    return Err("an image URL must begin with https:// or data:image/".into());
                }
                if detail.as_deref().is_some_and(|detail| !matches!(detail, "low" | "high" | "auto")) {
                    return Err("an image's detail must be low, high or auto".into());
                }
                says = true;
                true
            }
            (Part::Reasoning { text, payload }, Role::Assistant) => {
                says |= payload.is_some() || !text.trim().is_empty();
                true
            }
            (Part::ToolCall { name, .. }, Role::Assistant) => {
                if name.is_empty() || name.chars().count() > TOOL_NAME_CHARS_MAX {
                    return Err(format!("a tool's name must have 1 to {TOOL_NAME_CHARS_MAX} characters"));
                }
                says = true;
                true
            }
            (Part::ToolResult { .. }, Role::Tool) => {
                says = true;
                true
            }
            _ => false,
        };
        if !fits {
            return Err("a message has a part that its role cannot have: users send text and images, assistants \
               text, reasoning and tool calls, tools send results"
                .into());
        }
    }
    if says { Ok(()) } else { Err("one of its messages says nothing".into()) }
}

fn name_of_part(name: &str) -> Checked {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > PART_NAME_CHARS_MAX || !name.chars().all(letters) {
        return Err(format!("the name of a part is 1 to {PART_NAME_CHARS_MAX} of A-Za-z0-9._-"));
    }
    Ok(())
}

fn tools_there(tools: &[ToolDefinition], offered: &[ToolDefinition]) -> Checked {
    at_most(tools.len(), TOOLS_MAX, "tools")?;
    let mut names = BTreeSet::new();
    let mut budget = Budget::default();
    for tool in tools {
        if !offered.iter().any(|offer| offer.name == tool.name) {
            let name: String = tool.name.chars().filter(|c| !c.is_control()).take(TOOL_NAME_CHARS_MAX).collect();
            return Err(format!("nobody offers the tool `{name}`"));
        }
        if !names.insert(&tool.name) {
            return Err(format!("the tool `{}` occurs twice", tool.name));
        }
        if let Err(why) = Arguments::of(&tool.parameters, &mut budget) {
            return Err(format!("the parameters of the tool `{}` {why}", tool.name));
        }
    }
    Ok(())
}

fn at_most(there: usize, max: usize, what: &str) -> Checked {
    if there > max { Err(format!("there may be at most {max} {what}, not {there}")) } else { Ok(()) }
}
