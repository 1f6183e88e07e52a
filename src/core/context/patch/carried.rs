//! The combined effect of a path's patches on system prompt, tools and options, kept as the shortest equivalent list of
//! ops.
//!
//! Invariant: applying [`CarriedOps::ops`] to any context has the same effect as applying every op pushed so far, in
//! order.

use reseed_protocol::context::{PatchOp, RequestOptions, SystemPart, SystemPrompt, ToolDefinition};
use std::collections::BTreeSet;

/// Ops on system prompt, tools and options, without those that later ones made redundant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CarriedOps {
    ops: Vec<PatchOp>,
}

impl CarriedOps {
    /// Combines these ops; those on messages are ignored.
    #[must_use]
    pub fn of(ops: &[PatchOp]) -> Self {
        let mut carried = Self::default();
        ops.iter().for_each(|op| carried.push(op));
        carried
    }

    /// Returns the ops in order.
    #[must_use]
    pub fn ops(&self) -> &[PatchOp] {
        &self.ops
    }

    /// Adds an op. An op on messages is ignored, because its effect is in the messages.
    pub fn push(&mut self, op: &PatchOp) {
        match op {
            PatchOp::SystemPartSet { part_name: name, .. } => {
                let earlier = self
                    .ops
                    .iter_mut()
                    .find(|earlier| matches!(earlier, PatchOp::SystemPartSet { part_name, .. } if part_name == name));
                match earlier {
                    Some(earlier) => *earlier = op.clone(),
                    None => self.ops.push(op.clone()),
                }
            }
            PatchOp::SystemPartRemove { part_name: name, .. } => {
                self.ops.retain(
                    |earlier| !matches!(earlier, PatchOp::SystemPartSet { part_name, .. } if part_name == name),
                );
                let is_gone = |earlier: &PatchOp| matches!(earlier, PatchOp::SystemPartRemove { part_name, .. } if part_name == name);
                // A removed part stays removed, so a repeated op changes nothing.
                if !self.ops.iter().any(is_gone) {
                    self.ops.push(op.clone());
                }
            }
            PatchOp::SystemPartsReplace { .. } => {
                self.ops.retain(|earlier| !is_of_system(earlier));
                self.ops.push(op.clone());
            }
            PatchOp::ToolsReplace { .. } => {
                self.ops.retain(|earlier| !is_of_tools(earlier));
                self.ops.push(op.clone());
            }
            PatchOp::ToolsRemove { tool_names, invalidate_cache_reason } => {
                let mut names: Vec<String> = Vec::new();
                self.ops.retain(|earlier| match earlier {
                    PatchOp::ToolsRemove { tool_names, .. } => {
                        names.extend(tool_names.iter().cloned());
                        false
                    }
                    _ => true,
                });
                let mut known: BTreeSet<String> = names.iter().cloned().collect();
                names.extend(tool_names.iter().filter(|name| known.insert((*name).clone())).cloned());
                let invalidate_cache_reason = invalidate_cache_reason.clone();
                self.ops.push(PatchOp::ToolsRemove { tool_names: names, invalidate_cache_reason });
            }
            PatchOp::OptionsSet { temperature, max_output_tokens, reasoning_effort, invalidate_cache_reason } => {
                let mut merged = RequestOptions::default();
                self.ops.retain(|earlier| match options_of(earlier) {
                    Some(options) => {
                        merged = options;
                        false
                    }
                    None => true,
                });
                self.ops.push(PatchOp::OptionsSet {
                    temperature: temperature.or(merged.temperature),
                    max_output_tokens: max_output_tokens.or(merged.max_output_tokens),
                    reasoning_effort: reasoning_effort.clone().or(merged.reasoning_effort),
                    invalidate_cache_reason: invalidate_cache_reason.clone(),
                });
            }
            PatchOp::MessagesCachedReplace { .. }
            | PatchOp::MessagesCachedEdit { .. }
            | PatchOp::MessagesUncachedAppend { .. }
            | PatchOp::CompactionApply { .. } => {}
        }
    }

    /// Returns true if both have the same effect, whatever reasons they give.
    #[must_use]
    pub fn does_the_same(&self, other: &Self) -> bool {
        let silent = |op: &PatchOp| {
            let mut op = op.clone();
            op.invalidate_cache_reason_mut().into_iter().for_each(String::clear);
            op
        };
        // Ops on system prompt, tools and options are independent of each other, so their relative order does not
        // matter.
        let area = |op: &PatchOp| (is_of_system(op), is_of_tools(op));
        let of = |carried: &Self, wanted: (bool, bool)| -> Vec<PatchOp> {
            carried.ops.iter().filter(|op| area(op) == wanted).map(silent).collect()
        };
        self == other
            || self.ops.len() == other.ops.len()
                && [(true, false), (false, true), (false, false)]
                    .into_iter()
                    .all(|wanted| of(self, wanted) == of(other, wanted))
    }

    /// Applies the ops to the parts of a system prompt.
    #[must_use]
    pub fn system(&self, base: &[SystemPart]) -> SystemPrompt {
        let mut parts = base.to_vec();
        for op in &self.ops {
            match op {
                PatchOp::SystemPartSet { part_name, text, .. } => {
                    let part = SystemPart { name: part_name.clone(), text: text.clone() };
                    match parts.iter_mut().find(|part| part.name == *part_name) {
                        Some(there) => *there = part,
                        None => parts.push(part),
                    }
                }
                PatchOp::SystemPartRemove { part_name, .. } => parts.retain(|part| part.name != *part_name),
                PatchOp::SystemPartsReplace { parts: all, .. } => parts.clone_from(all),
                _ => {}
            }
        }
        let compiled = parts.iter().map(|part| part.text.as_str()).collect();
        SystemPrompt { parts, compiled }
    }

    /// Applies the ops to the offered tools. Returns the definitions to send, and notes on requests that could not be
    /// fulfilled.
    #[must_use]
    pub fn tools(&self, offered: &[ToolDefinition]) -> (Vec<ToolDefinition>, Vec<String>) {
        let (mut tools, mut notes) = (offered.to_vec(), Vec::new());
        for op in &self.ops {
            match op {
                PatchOp::ToolsReplace { tools: all, .. } => {
                    let is_offered = |tool: &&ToolDefinition| offered.iter().any(|offer| offer.name == tool.name);
                    let sent = |tool: &ToolDefinition| ToolDefinition {
                        parameters: crate::schema::sent(&tool.parameters),
                        ..tool.clone()
                    };
                    tools = all.iter().filter(is_offered).map(sent).collect();
                    let left = all.iter().filter(|tool| !is_offered(tool));
                    notes.extend(left.map(|tool| {
                        format!("a patch defines the tool `{}`, which nobody offers any more: left out", tool.name)
                    }));
                }
                PatchOp::ToolsRemove { tool_names, .. } => tools.retain(|tool| !tool_names.contains(&tool.name)),
                _ => {}
            }
        }
        (tools, notes)
    }

    /// Applies the ops to the options.
    #[must_use]
    pub fn options(&self, base: &RequestOptions) -> RequestOptions {
        let set = self.ops.iter().find_map(options_of).unwrap_or_default();
        RequestOptions {
            temperature: set.temperature.or(base.temperature),
            max_output_tokens: set.max_output_tokens.or(base.max_output_tokens),
            reasoning_effort: set.reasoning_effort.or_else(|| base.reasoning_effort.clone()),
            // No patch changes the others.
            ..base.clone()
        }
    }
}

fn is_of_system(op: &PatchOp) -> bool {
    matches!(op, PatchOp::SystemPartSet { .. } | PatchOp::SystemPartRemove { .. } | PatchOp::SystemPartsReplace { .. })
}

fn is_of_tools(op: &PatchOp) -> bool {
    matches!(op, PatchOp::ToolsReplace { .. } | PatchOp::ToolsRemove { .. })
}

fn options_of(op: &PatchOp) -> Option<RequestOptions> {
    match op {
        PatchOp::OptionsSet { temperature, max_output_tokens, reasoning_effort, .. } => Some(RequestOptions {
            temperature: *temperature,
            max_output_tokens: *max_output_tokens,
            reasoning_effort: reasoning_effort.clone(),
            ..RequestOptions::default()
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Sent = (Vec<SystemPart>, Vec<ToolDefinition>, RequestOptions);

    /// Applies the ops one by one, as documented.
    fn one_by_one(ops: &[PatchOp], (mut parts, offered, mut options): Sent) -> Sent {
        let mut tools = offered.clone();
        for op in ops {
            match op {
                PatchOp::SystemPartSet { part_name, text, .. } => {
                    let part = SystemPart { name: part_name.clone(), text: text.clone() };
                    match parts.iter().position(|there| there.name == *part_name) {
                        Some(at) => parts[at] = part,
                        None => parts.push(part),
                    }
                }
                PatchOp::SystemPartRemove { part_name, .. } => parts.retain(|part| part.name != *part_name),
                PatchOp::SystemPartsReplace { parts: all, .. } => parts.clone_from(all),
                PatchOp::ToolsReplace { tools: all, .. } => {
                    tools = all.iter().filter(|tool| offered.iter().any(|o| o.name == tool.name)).cloned().collect();
                }
                PatchOp::ToolsRemove { tool_names, .. } => tools.retain(|tool| !tool_names.contains(&tool.name)),
                PatchOp::OptionsSet { temperature, max_output_tokens, reasoning_effort, .. } => {
                    options.temperature = temperature.or(options.temperature);
                    options.max_output_tokens = max_output_tokens.or(options.max_output_tokens);
                    options.reasoning_effort = reasoning_effort.clone().or(options.reasoning_effort);
                }
                _ => {}
            }
        }
        (parts, tools, options)
    }

    fn part() -> impl Strategy<Value = SystemPart> {
        (0..4u8, 0..3u8).prop_map(|(name, text)| SystemPart { name: format!("p{name}"), text: format!("text {text}") })
    }

    fn tool() -> impl Strategy<Value = ToolDefinition> {
        (0..4u8, 0..3u8).prop_map(|(name, about)| ToolDefinition {
            name: format!("t{name}"),
            description: format!("about {about}"),
            // The tools have the form in which they are sent, because repair is not tested here.
            parameters: serde_json::json!({ "type": "object", "properties": {} }),
        })
    }

    fn op() -> impl Strategy<Value = PatchOp> {
        let why = || (0..2u8).prop_map(|why| format!("why {why}"));
        prop_oneof![
            4 => (part(), why()).prop_map(|(SystemPart { name: part_name, text }, invalidate_cache_reason)| {
                PatchOp::SystemPartSet { part_name, text, invalidate_cache_reason }
            }),
            3 => (part(), why()).prop_map(|(SystemPart { name: part_name, .. }, invalidate_cache_reason)| {
                PatchOp::SystemPartRemove { part_name, invalidate_cache_reason }
            }),
            1 => (prop::collection::vec(part(), 0..3), why())
                .prop_map(|(parts, invalidate_cache_reason)| PatchOp::SystemPartsReplace { parts, invalidate_cache_reason }),
            1 => (prop::collection::vec(tool(), 0..3), why())
                .prop_map(|(tools, invalidate_cache_reason)| PatchOp::ToolsReplace { tools, invalidate_cache_reason }),
            2 => (prop::collection::vec(tool(), 0..3), why()).prop_map(|(tools, invalidate_cache_reason)| {
                let tool_names = tools.into_iter().map(|tool| tool.name).collect();
                PatchOp::ToolsRemove { tool_names, invalidate_cache_reason }
            }),
            2 => (prop::option::of(0..3u8), prop::option::of(1..4u64), prop::option::of(0..3u8), why()).prop_map(
                |(temperature, max_output_tokens, effort, invalidate_cache_reason)| PatchOp::OptionsSet {
                    temperature: temperature.map(f64::from),
                    max_output_tokens,
                    reasoning_effort: effort.map(|effort| format!("r{effort}")),
                    invalidate_cache_reason,
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn the_shortest_list_does_what_all_ops_do(
            ops in prop::collection::vec(op(), 0..24),
            parts in prop::collection::vec(part(), 0..4),
            offered in prop::collection::vec(tool(), 0..4),
            temperature in prop::option::of(0..3u8),
        ) {
            let options = RequestOptions { temperature: temperature.map(f64::from), ..RequestOptions::default() };
            let carried = CarriedOps::of(&ops);
            let made = (carried.system(&parts).parts, carried.tools(&offered).0, carried.options(&options));
            prop_assert_eq!(&made, &one_by_one(&ops, (parts.clone(), offered.clone(), options.clone())));
            // The list has the same effect as the ops, and is no longer than the names in them.
            prop_assert_eq!(&made, &one_by_one(carried.ops(), (parts, offered, options)));
            prop_assert_eq!(&CarriedOps::of(carried.ops()), &carried);
            prop_assert!(carried.ops().len() <= 1 + 2 * 4 + 2 + 1, "{} ops", carried.ops().len());
        }
    }
}
