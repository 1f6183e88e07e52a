//! What is checked of a patch that is submitted, op by op. Each check answers why an op is refused, with nothing of what
//! it says but names of things.

use super::{
    Boundary, CARRIED_OPS_MAX, MESSAGES_MAX, PART_NAME_CHARS_MAX, PARTS_MAX, REASON_CHARS_MAX, SYSTEM_BYTES_MAX,
    SYSTEM_PARTS_MAX, TOOLS_MAX,
    carried::Carried,
    counted::{Item, MessageOp, Said},
    list::List,
};
use crate::core::{
    context::{build::Kind, window::TOKENS_MAX},
    schema::arguments_of,
    session::input::is_picture_address,
};
use reseed_protocol::{
    CallId, EntryId, Message, Part, Role,
    context::{SystemPart, ToolDefinition},
    patch::PatchOp,
};
use std::collections::{BTreeSet, HashSet};

/// Longest name of a tool, as where tools are offered.
const TOOL_NAME_CHARS_MAX: usize = 64;

/// Longest word for how long a model should think.
const EFFORT_CHARS_MAX: usize = 64;

pub(super) const UNPAIRED: &str =
    "it leaves a tool call without its result right behind it, or a result without its call: take both, or neither";

type Checked = Result<(), String>;

/// Why an op gives up the provider's cache, trimmed; whether it may be where the patch is to last.
pub(super) fn reason(op: &PatchOp, boundary: Boundary) -> Result<Option<&str>, String> {
    match (op, boundary) {
        (PatchOp::MessagesUncachedAppend { .. }, Boundary::Durable) => {
            return Err(
                "messages for one request only are the `ephemeral` hook's to add: what is stored is cached".into()
            );
        }
        (PatchOp::CompactionApply { .. }, Boundary::Durable) => {
            return Err("a compaction that is to last is an entry of its own: answer `before_compact`, or send \
                        manual_compact"
                .into());
        }
        _ => {}
    }
    let Some(reason) = op.invalidate_cache_reason() else { return Ok(None) };
    let reason = reason.trim();
    if reason.is_empty() {
        return Err("it gives up what the provider has cached and does not say why: `invalidateCacheReason`".into());
    }
    if reason.chars().count() > REASON_CHARS_MAX {
        return Err(format!("its `invalidateCacheReason` has more than {REASON_CHARS_MAX} characters"));
    }
    Ok(Some(reason))
}

/// An op on the system prompt, the tools or the options, by itself.
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
                    return Err(format!("the part `{}` is there twice", part.name));
                }
            }
            Ok(())
        }
        PatchOp::ToolsReplace { tools, .. } => tools_there(tools, offered),
        PatchOp::ToolsRemove { tool_names, .. } => {
            at_most(tool_names.len(), TOOLS_MAX, "tools")?;
            match tool_names.iter().find(|name| name.is_empty() || name.chars().count() > TOOL_NAME_CHARS_MAX) {
                Some(_) => Err(format!("a tool's name has 1 to {TOOL_NAME_CHARS_MAX} characters")),
                None => Ok(()),
            }
        }
        PatchOp::OptionsSet { temperature, max_output_tokens, reasoning_effort, .. } => {
            if temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
                return Err("the temperature is 0 to 2".into());
            }
            if max_output_tokens.is_some_and(|tokens| tokens == 0 || tokens > TOKENS_MAX) {
                return Err(format!("maxOutputTokens is 1 to {TOKENS_MAX}"));
            }
            let is_word = |text: &String| {
                !text.trim().is_empty()
                    && text.chars().count() <= EFFORT_CHARS_MAX
                    && !text.chars().any(char::is_control)
            };
            if reasoning_effort.as_ref().is_some_and(|effort| !is_word(effort)) {
                return Err(format!("reasoningEffort is one line of 1 to {EFFORT_CHARS_MAX} characters"));
            }
            Ok(())
        }
        PatchOp::MessagesCachedReplace { .. }
        | PatchOp::MessagesCachedEdit { .. }
        | PatchOp::MessagesUncachedAppend { .. }
        | PatchOp::CompactionApply { .. } => Ok(()),
    }
}

/// What all patches so far come to.
pub(super) fn whole(carried: &Carried, op: &PatchOp, parts: &[SystemPart]) -> Checked {
    let names = |op: &PatchOp| if let PatchOp::ToolsRemove { tool_names, .. } = op { tool_names.len() } else { 1 };
    if carried.ops().iter().map(names).sum::<usize>() > CARRIED_OPS_MAX {
        return Err(format!(
            "the patches of this branch name more than {CARRIED_OPS_MAX} parts and tools: begin anew with \
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

/// How many messages an op names or carries.
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

/// An op on the cached messages, which are these.
pub(super) fn messages(op: &MessageOp, list: &mut List) -> Checked {
    match op {
        MessageOp::Replace(items) => {
            let mut named = HashSet::new();
            for item in items {
                let Some(id) = &item.entry_id else {
                    let said = item.said.as_ref().ok_or("a message of it has neither an `entryId` nor a `message`")?;
                    says_something(&said.message)?;
                    continue;
                };
                let at = visible(id, list)?;
                if list.at(at).kind == Kind::Summary && !named.is_empty() {
                    return Err(format!("the summary, entry `{id}`, stands before every other entry"));
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
                return Err("it keeps nothing, and has no summary".into());
            }
            let first = first_kept.as_ref().map(|id| in_its_place(id, list)).transpose()?;
            let mut named = HashSet::new();
            for id in kept {
                let at = in_its_place(id, list)?;
                if !named.insert(id) || first.is_some_and(|first| at >= first) {
                    return Err(format!("entry `{id}` is named twice, or is not older than the first kept one"));
                }
            }
            Ok(())
        }
        MessageOp::Append(_) => Ok(()),
    }
}

fn visible(id: &EntryId, list: &mut List) -> Result<usize, String> {
    list.place(id).ok_or_else(|| format!("entry `{id}` is not among the messages that this request has"))
}

/// The same, of an entry that no patch has moved.
fn in_its_place(id: &EntryId, list: &mut List) -> Result<usize, String> {
    let at = visible(id, list)?;
    match list.at(at).entry_id {
        Some(_) => Ok(at),
        None => Err(format!("entry `{id}` was moved by a patch, so nothing can be kept from there on: name another")),
    }
}

/// What an op puts in an entry's place must be of the same role and about the same calls: what refers to it stays.
fn in_place_of(item: &Item, at: usize, list: &List) -> Checked {
    let Some(Said { message, .. }) = &item.said else { return Ok(()) };
    let there = &list.at(at).message;
    says_something(message)?;
    let id = item.entry_id.as_ref().map_or("-", EntryId::as_str);
    if message.role != there.role {
        return Err(format!("entry `{id}` is of another role than what is put in its place"));
    }
    let sealed = |part: &&Part| matches!(part, Part::Reasoning { payload: Some(_), .. });
    if message.content.iter().filter(sealed).any(|part| !there.content.contains(part)) {
        return Err(format!(
            "what is put in the place of entry `{id}` has a sealed thought that is not the model's own"
        ));
    }
    if calls(message) != calls(there) {
        return Err(format!("what is put in the place of entry `{id}` has other calls, or answers others"));
    }
    Ok(())
}

/// The calls that a message makes and those that it answers, in order.
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

/// A message that a model can be sent.
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
                    return Err(format!("a tool's name has 1 to {TOOL_NAME_CHARS_MAX} characters"));
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
            return Err("a message has a part that its role cannot say: users say texts and pictures, assistants \
                        texts, reasoning and tool calls, tools results"
                .into());
        }
    }
    if says { Ok(()) } else { Err("a message of it says nothing".into()) }
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
    for tool in tools {
        if !offered.iter().any(|offer| offer.name == tool.name) {
            let name: String = tool.name.chars().filter(|c| !c.is_control()).take(TOOL_NAME_CHARS_MAX).collect();
            return Err(format!("nobody offers the tool `{name}`"));
        }
        if !names.insert(&tool.name) {
            return Err(format!("the tool `{}` is there twice", tool.name));
        }
        if let Err(why) = arguments_of(&tool.parameters) {
            return Err(format!("the parameters of the tool `{}` {why}", tool.name));
        }
    }
    Ok(())
}

fn at_most(there: usize, max: usize, what: &str) -> Checked {
    if there > max { Err(format!("there may be {max} {what}, not {there}")) } else { Ok(()) }
}
