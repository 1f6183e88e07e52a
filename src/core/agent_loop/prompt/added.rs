//! Additions by hooks for the last request alone, kept for inspection until the next request is built.

use crate::context::{
    Context,
    patch::{Around, Boundary},
};
use reseed_protocol::{
    EntryId,
    context::{EphemeralChange, PatchMessage, PatchOp},
};

/// Maximum bytes kept, as JSON. They are kept for inspection only; larger changes are only in the log.
const ADDED_BYTES_MAX: usize = 1024 * 1024;

/// The additions by hooks for the last request alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Added {
    changes: Vec<Vec<PatchOp>>,
    /// The last entry that the request included.
    last: Option<EntryId>,
}

impl Added {
    /// Records the changes made to a request with this context.
    pub(super) fn of(changes: &[EphemeralChange], context: &Context) -> Self {
        let bytes: usize =
            changes.iter().map(|change| serde_json::to_vec(&change.patch).map_or(0, |json| json.len())).sum();
        if bytes > ADDED_BYTES_MAX {
            return Self::default();
        }
        let last = context.messages.iter().rev().find_map(|counted| counted.entry_id.clone());
        Self { changes: changes.iter().map(|change| change.patch.clone()).collect(), last }
    }

    /// Applies the same changes to another context, skipping those that name messages no longer in it.
    pub(super) fn put_on(&self, context: &mut Context, around: &Around<'_>) {
        let since = self.said_since(context);
        for ops in &self.changes {
            let ops: Vec<PatchOp> = ops.iter().map(|op| with(op.clone(), &since)).collect();
            let _ = context.apply(&ops, Boundary::Ephemeral, around);
        }
    }

    /// Returns the messages appended after the request was built.
    fn said_since(&self, context: &Context) -> Vec<EntryId> {
        let ids = || context.messages.iter().filter_map(|counted| counted.entry_id.as_ref());
        let known = self.last.as_ref().and_then(|last| ids().position(|id| id == last));
        ids().skip(known.map_or(0, |at| at + 1)).cloned().collect()
    }
}

/// Returns the op extended by the messages appended since. An op that replaces all messages did not know them, so they
/// stay.
fn with(mut op: PatchOp, since: &[EntryId]) -> PatchOp {
    if let PatchOp::MessagesCachedReplace { messages, .. } = &mut op {
        let message = |id: &EntryId| PatchMessage { entry_id: Some(id.clone()), message: None };
        messages.extend(since.iter().map(message));
    }
    op
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{
        build_context,
        counter::Counter,
        testing::{path, printed},
    };
    use reseed_protocol::Message;

    /// Checks the shown context: `now`, after hooks changed `before` with these ops.
    fn check(ops: Vec<PatchOp>, before: &[&str], now: &[&str], expected: &[&str]) {
        let counter = Counter::for_model("test");
        let around = Around { parts: &[], offered: &[], counter: &counter };
        let (before, mut context) = (build_context(&path(before, &counter)), build_context(&path(now, &counter)));
        let change = EphemeralChange { transformer_name: "h".to_owned(), patch: ops };
        Added::of(&[change], &before).put_on(&mut context, &around);
        let uncached = std::mem::take(&mut context.uncached);
        let uncached = printed(&Context { messages: uncached, ..Context::default() });
        assert_eq!([printed(&context), uncached].concat(), expected);
    }

    fn append(text: &str) -> PatchOp {
        PatchOp::MessagesUncachedAppend { messages: vec![Message::user(text)] }
    }

    fn only(id: &str) -> PatchOp {
        let message = PatchMessage { entry_id: Some(id.parse().unwrap()), message: None };
        PatchOp::MessagesCachedReplace { messages: vec![message], invalidate_cache_reason: "less".to_owned() }
    }

    #[test]
    fn additions_are_applied_to_the_current_context() {
        let before = ["a:user one", "b:assistant two", "c:user three"];
        let now = [&before[..], &["d:assistant four", "e:user five"]].concat();
        check(
            vec![append("noon")],
            &before,
            &before,
            &["a user one", "b assistant two", "c user three", "- user noon"],
        );
        check(vec![only("c")], &before, &before, &["c user three"]);
        check(
            vec![only("c"), append("noon")],
            &before,
            &now,
            &["c user three", "d assistant four", "e user five", "- user noon"],
        );
        let compacted = [&now[..], &["f:compaction S first=e"]].concat();
        check(vec![only("c"), append("noon")], &before, &compacted, &["f summary S", "e user five"]);
        check(vec![append("noon")], &[], &["a:user one"], &["a user one", "- user noon"]);
        check(vec![append(&"x".repeat(ADDED_BYTES_MAX))], &[], &["a:user one"], &["a user one"]);
    }
}
