//! Group n: patches of a context envelope. pi's ops name messages by position, which goes stale as soon as another op
//! has changed them; ours name entries. So each op is applied by itself here, to the result of the one before it, with
//! positions translated into entries, and the whole patch is applied once more if none of it names a position.

use crate::{
    data::{Data, Outcome, outcome, same},
    deviations,
};
use reseed::core::{
    context::seed::unseed,
    context::{
        Context, build_context,
        counter::Counter,
        patch::{Applied, Around, Boundary, CarriedOps, PatchRefused, read},
    },
    session::Node,
};
use reseed_protocol::{
    Entry, EntryData, Message, Timestamp,
    context::{ContextMessage, RequestOptions, SystemPart, ToolDefinition},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// An envelope of a case, in pi's form.
#[derive(Clone, PartialEq)]
struct Envelope {
    parts: Vec<SystemPart>,
    tools: Vec<ToolDefinition>,
    cached: Vec<Value>,
    uncached: Vec<Value>,
    options: RequestOptions,
}

/// The result of an op, or of a patch.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Went {
    Applied(Envelope, Applied),
    Refused(PatchRefused),
}

pub(crate) fn patched(_: &Data, case: &Value) -> Outcome {
    let before = Envelope::of(&case["envelope"]);
    let ops: Vec<Value> = case["patch"].as_array().unwrap().clone();
    let pool = before.pool(&ops);
    let mut envelope = before.clone();
    let mut reasons: Vec<String> = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        match apply(&envelope, vec![ours(op, &envelope)], &pool) {
            Went::Applied(next, applied) => {
                envelope = next;
                let new: Vec<String> = applied.reasons.into_iter().filter(|reason| !reasons.contains(reason)).collect();
                reasons.extend(new);
            }
            Went::Refused(_) => return refusal(case, &before, &ops, index),
        }
    }
    outcome(|| {
        let expected = Envelope::of(&case["expected"]["envelope"]);
        envelope.is(&expected)?;
        same("the reasons", &json!(reasons), &case["expected"]["invalidateCacheReasons"])?;
        same("the invalidation", &json!(!reasons.is_empty()), &case["expected"]["cacheInvalidated"])?;
        // Ops without positions may be applied at once, and are stored as fewer ops.
        let placeless = |op: &&Value| !op["op"].as_str().unwrap().starts_with("compaction_apply");
        let patch: Vec<Value> = ops.iter().filter(placeless).map(|op| ours(op, &before)).collect();
        let Went::Applied(at_once, _) = apply(&before, patch, &pool) else {
            return Err(Outcome::Failed("what is applied op by op is refused at once".into()));
        };
        same("the system prompt at once", &at_once.parts, &expected.parts)?;
        same("the tools at once", &at_once.tools, &expected.tools)?;
        same("the options at once", &at_once.options, &expected.options)
    })
}

/// Checks a refusal, of the whole patch and by this op's position: pi's own, or a stricter one.
fn refusal(case: &Value, before: &Envelope, ops: &[Value], index: usize) -> Outcome {
    let op = &ops[index];
    // The ops before it are valid, or were refused before; a position always has an entry.
    let whole: Vec<Value> = ops.iter().map(|op| ours(op, before)).collect();
    outcome(|| {
        let Went::Refused(refused) = apply(before, whole, &before.pool(ops)) else {
            return Err(Outcome::Failed("an op is refused by itself and not in its patch".into()));
        };
        same("the refused op", &json!([refused.index, refused.op]), &json!([index, op["op"]]))?;
        match case["expected"]["error"].as_str() {
            Some(error) => {
                let told = refused.why.contains("invalidateCacheReason") || refused.why.contains("invalid type");
                same("the reason of the refusal", &told, &error.contains("invalidateCacheReason"))
            }
            None => {
                let reason = match () {
                    () if refused.why.contains("unknown variant") => deviations::UNKNOWN_OP,
                    () if refused.why.contains("nobody offers the tool `unknown_tool`") => deviations::UNKNOWN_TOOL,
                    () if refused.why.contains("maxOutputTokens") && op["maxTokens"] == 0 => deviations::OPTION_RANGE,
                    () if refused.why.contains("its `scope` is `cached`") => deviations::SCOPE,
                    () => return Err(Outcome::Failed(format!("it is refused: {refused}"))),
                };
                Err(Outcome::Deviating(reason))
            }
        }
    })
}

/// Applies ops in our form to an envelope.
fn apply(before: &Envelope, ops: Vec<Value>, pool: &[ToolDefinition]) -> Went {
    let counter = Counter::for_model("test");
    let mut context = before.context(&counter);
    // The envelope may have fewer tools than are offered, as if a patch had removed them.
    context.carried = CarriedOps::of(
        &read(vec![json!({
            "op": "tools_replace", "tools": before.tools, "invalidateCacheReason": "x",
        })])
        .unwrap(),
    );
    let untouched = context.clone();
    let around = Around { parts: &before.parts, offered: pool, counter: &counter };
    let applied = read(ops).and_then(|ops| context.apply(&ops, Boundary::Ephemeral, &around));
    match applied {
        Err(refused) => {
            assert_eq!(context, untouched, "what is refused changes something");
            Went::Refused(refused)
        }
        Ok(applied) => {
            let sent = context.to_messages();
            let after = Envelope {
                parts: context.carried.system(&before.parts).parts,
                tools: context.carried.tools(pool).0,
                cached: sent.cached.iter().map(theirs).collect(),
                uncached: sent.uncached.iter().map(theirs).collect(),
                options: context.carried.options(&before.options),
            };
            Went::Applied(after, applied)
        }
    }
}

/// Returns an op in our form: a position becomes an entry.
fn ours(op: &Value, envelope: &Envelope) -> Value {
    let mut op = op.clone();
    let fields = op.as_object_mut().unwrap();
    if let Some(index) = fields.remove("firstKeptMessageIndex") {
        let index = usize::try_from(index.as_i64().unwrap().max(0)).unwrap();
        if index < envelope.cached.len() {
            fields.insert("firstKeptEntryId".into(), json!(entry_id(index)));
        }
        let millis = fields["timestamp"].as_i64().unwrap();
        fields.insert("timestamp".into(), json!(Timestamp(millis)));
    }
    op
}

/// Returns a message in pi's form, without its time; a summary as its bare text.
fn theirs(sent: &ContextMessage) -> Value {
    let text = sent.message.text();
    match unseed(&text) {
        Some(summary) => json!({ "role": "user", "content": [{ "type": "text", "text": summary }] }),
        None => json!({ "role": sent.message.role, "content": sent.message.content }),
    }
}

fn entry_id(index: usize) -> String {
    format!("m{index}")
}

impl Envelope {
    fn of(envelope: &Value) -> Self {
        let messages = |list: &Value| {
            let bare = |message: &Value| json!({ "role": message["role"], "content": message["content"] });
            list.as_array().unwrap().iter().map(bare).collect()
        };
        let of = |value: &Value| value.clone();
        let options = &envelope["options"];
        Self {
            parts: serde_json::from_value(of(&envelope["system"]["parts"])).unwrap(),
            tools: serde_json::from_value(of(&envelope["tools"])).unwrap(),
            cached: messages(&envelope["messages"]["cached"]),
            uncached: messages(&envelope["messages"]["uncached"]),
            options: RequestOptions {
                temperature: options["temperature"].as_f64(),
                max_output_tokens: options["maxTokens"].as_u64(),
                reasoning_effort: options["reasoning"].as_str().map(str::to_owned),
                ..RequestOptions::default()
            },
        }
    }

    /// Returns every tool of the case, except the one that stands for a tool nobody has.
    fn pool(&self, ops: &[Value]) -> Vec<ToolDefinition> {
        let mut pool = self.tools.clone();
        for tool in ops.iter().filter_map(|op| op["tools"].as_array()).flatten() {
            let tool: ToolDefinition = serde_json::from_value(tool.clone()).unwrap();
            if tool.name != "unknown_tool" && !pool.iter().any(|known| known.name == tool.name) {
                pool.push(tool);
            }
        }
        pool
    }

    /// Returns the context whose request this is.
    fn context(&self, counter: &Counter) -> Context {
        let counted = |messages: &[Value]| {
            let mut parent = None;
            let node = |(index, message): (usize, &Value)| {
                let id: reseed_protocol::EntryId = entry_id(index).parse().unwrap();
                let message: Message = serde_json::from_value(message.clone()).unwrap();
                let (parent_id, data) = (parent.replace(id.clone()), EntryData::message(message));
                let entry = Entry { entry_id: id, parent_id, timestamp: Timestamp(0), imported: None, data };
                Arc::new(Node::counted(entry, counter))
            };
            build_context(&messages.iter().enumerate().map(node).collect::<Vec<_>>())
        };
        Context { uncached: counted(&self.uncached).messages, ..counted(&self.cached) }
    }

    fn is(&self, expected: &Self) -> Result<(), Outcome> {
        same("the system prompt", &self.parts, &expected.parts)?;
        same("the tools", &self.tools, &expected.tools)?;
        same("the cached messages", &self.cached, &expected.cached)?;
        same("the uncached messages", &self.uncached, &expected.uncached)?;
        same("the options", &self.options, &expected.options)
    }
}
