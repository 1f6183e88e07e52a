//! Random ops, most of them legal.

use super::*;
use reseed_protocol::context::{MessageEdit, PatchMessage};

impl World {
    pub(super) fn op(&mut self, context: &Context) -> PatchOp {
        let invalidate_cache_reason = ["tidy", "policy"][self.rng.usize(..2)].to_owned();
        let name = |rng: &mut Rng, letter: char, of: usize| format!("{letter}{}", rng.usize(..of));
        match self.rng.u8(..100) {
            0..12 => {
                let (part_name, text) = (name(&mut self.rng, 'p', 5), self.rng.u8(..4).to_string());
                PatchOp::SystemPartSet { part_name, text, invalidate_cache_reason }
            }
            12..20 => PatchOp::SystemPartRemove { part_name: name(&mut self.rng, 'p', 5), invalidate_cache_reason },
            20..24 => {
                let parts = (0..self.rng.usize(..3)).map(|at| SystemPart { name: format!("p{at}"), text: "r".into() });
                PatchOp::SystemPartsReplace { parts: parts.collect(), invalidate_cache_reason }
            }
            24..30 => {
                let tools = self.offered.iter().filter(|_| self.rng.bool()).cloned().collect();
                PatchOp::ToolsReplace { tools, invalidate_cache_reason }
            }
            30..36 => {
                let tool_names = (0..self.rng.usize(..3)).map(|_| name(&mut self.rng, 't', 5)).collect();
                PatchOp::ToolsRemove { tool_names, invalidate_cache_reason }
            }
            36..42 => PatchOp::OptionsSet {
                temperature: self.rng.bool().then_some(0.5),
                max_output_tokens: self.rng.bool().then(|| self.rng.u64(1..9)),
                reasoning_effort: self.rng.bool().then(|| name(&mut self.rng, 'r', 3)),
                invalidate_cache_reason,
            },
            42..75 => PatchOp::MessagesCachedEdit { edits: self.edits(context), invalidate_cache_reason },
            _ => PatchOp::MessagesCachedReplace { messages: self.messages(context), invalidate_cache_reason },
        }
    }

    pub(super) fn edits(&mut self, context: &Context) -> Vec<MessageEdit> {
        let mut edits = Vec::new();
        for counted in &context.messages {
            let Some(entry_id) = counted.shown_id().cloned() else { continue };
            match self.rng.u8(..12) {
                0 => edits.push(MessageEdit { entry_id, message: Some(self.redacted(&counted.message)) }),
                1 => edits.push(MessageEdit { entry_id, message: None }),
                _ => {}
            }
        }
        edits
    }

    pub(super) fn messages(&mut self, context: &Context) -> Vec<PatchMessage> {
        let mut messages = Vec::new();
        let drops = self.rng.u8(..4) == 0;
        // The starts of groups that can be moved alone: a call moves with its results, and the summary stays in front.
        let mut begins: Vec<usize> = Vec::new();
        for counted in &context.messages {
            if !counted.is_result && counted.kind != Kind::Summary {
                begins.push(messages.len());
            }
            if self.rng.u8(..8) == 0 {
                let role = [Role::User, Role::Assistant][self.rng.usize(..2)];
                messages.push(PatchMessage { entry_id: None, message: Some(self.says(role)) });
            }
            let dice = self.rng.u8(..10);
            let whole = || Message::new(counted.message.role, counted.message.content.clone());
            let message = match (counted.shown_id(), dice) {
                (_, 0) if drops => continue,
                (None, _) => Some(whole()),
                (Some(_), 1) => Some(self.redacted(&counted.message)),
                (Some(_), _) => None,
            };
            messages.push(PatchMessage { entry_id: counted.shown_id().cloned(), message });
        }
        if self.rng.u8(..3) == 0 && begins.len() > 1 {
            self.move_some(&mut messages, &begins);
        }
        messages
    }

    /// Moves some messages, each with its results.
    pub(super) fn move_some(&mut self, messages: &mut Vec<PatchMessage>, begins: &[usize]) {
        let ends = begins.iter().copied().skip(1).chain([messages.len()]);
        let mut groups: Vec<Vec<PatchMessage>> =
            begins.iter().zip(ends).map(|(from, to)| messages[*from..to.max(*from)].to_vec()).collect();
        for _ in 0..self.rng.usize(1..4) {
            let group = groups.remove(self.rng.usize(..groups.len()));
            groups.insert(self.rng.usize(..=groups.len()), group);
        }
        messages.truncate(begins[0]);
        messages.extend(groups.into_iter().flatten());
        self.did("moved");
    }
}
