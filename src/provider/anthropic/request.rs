//! Writes a request for the Messages API.
//!
//! The following always holds. Users and answers alternate, and a user comes first and last, except where an answer
//! that the server has paused is continued. The results of calls come first in the message after the calls. The blocks
//! of thinking that a model has sealed go back to it unchanged and in their places. A compaction that it has made comes
//! first, before the user. At most four blocks are marked for the cache.

use super::models::Limits;
use crate::{
    config::CacheTtl,
    core::{model::Purpose, need::Need},
    provider::adapt::{NO_QUESTION, Plan},
};
use reseed_protocol::{
    Message, Part, Role,
    context::{AnswerFormat, ToolChoice},
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use std::borrow::Cow;

/// The most blocks of a request that can be marked for the cache.
const MARKS_MAX: usize = 4;
/// The distance of further marks in the messages. From a mark, the server looks for an earlier one only in the 20
/// blocks before it.
const MARK_EVERY: usize = 18;
/// The output limit for a model whose own limit is unknown. All models since 2024 have at least this.
const OUTPUT_TOKENS: u64 = 8_192;
/// The output limit if the server has refused another. All models have at least this.
const OUTPUT_TOKENS_LEAST: u64 = 4_096;
/// The version of compactions on demand. Requests that begin with one name it too.
const COMPACTION: &str = "compact-2026-09-04";
/// The smallest budget for thinking that the API accepts.
const BUDGET_TOKENS_MIN: u64 = 1_024;
/// The blocks that a model seals. Answers that older versions stored do not say which API sealed them.
const THINKING_BLOCKS: [&str; 2] = ["thinking", "redacted_thinking"];
/// The largest temperature that the API accepts.
const TEMPERATURE_MAX: f64 = 1.0;

/// The body. It borrows from the request, so that a long history is serialised once, directly into the sent bytes.
#[derive(Debug, Serialize)]
pub(super) struct MessagesRequest<'a> {
    model: &'a str,
    max_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[Block<'a>; 1]>,
    messages: Vec<Turn<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "OutputConfig::is_empty")]
    output_config: OutputConfig<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnostics: Option<Diagnostics<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compaction: Option<Compaction<'a>>,
}

/// Asks for a comparison with an earlier request. The server remembers only requests that have this.
#[derive(Debug, Serialize)]
struct Diagnostics<'a> {
    previous_message_id: Option<&'a str>,
}

/// Makes the answer a compaction of the messages.
#[derive(Debug, Serialize)]
struct Compaction<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

/// A block of content, which may be marked for the cache.
#[derive(Debug, Serialize)]
struct Block<'a> {
    #[serde(flatten)]
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Mark>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Ours(OurBlock<'a>),
    /// The provider's own block, sent back unchanged.
    Theirs(&'a Value),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OurBlock<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: Source<'a>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Input<'a>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: Vec<Block<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
}

/// The arguments of a call, in their original form if they are an object.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Raw(&'a RawValue),
    None {},
}

/// How long the provider's cache keeps what comes before a mark.
#[derive(Debug, Clone, Copy, Serialize)]
struct Mark {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Mark>,
}

#[derive(Debug, Serialize)]
struct Choice<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    /// The model decides how much to think, and shows it in short.
    Adaptive {
        display: &'static str,
    },
    /// It thinks within a budget.
    Enabled {
        budget_tokens: u64,
    },
    Disabled,
}

#[derive(Debug, Default, Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format>,
}

#[derive(Debug, Serialize)]
struct Format {
    r#type: &'static str,
    schema: Value,
}

impl OutputConfig<'_> {
    fn is_empty(&self) -> bool {
        self.effort.is_none() && self.format.is_none()
    }
}

impl<'a> MessagesRequest<'a> {
    /// Builds the body. `begun` has the blocks of an answer that the server has paused, which it is to continue.
    pub(super) fn new(plan: &'a Plan<'a>, limits: Limits, ttl: CacheTtl, begun: &'a [Value]) -> Self {
        let mark = Mark { r#type: "ephemeral", ttl: (ttl == CacheTtl::Hour).then_some("1h") };
        let mut tools = tools(plan);
        if let Some(last) = tools.last_mut() {
            last.cache_control = Some(mark);
        }
        let system = plan.system.as_deref().map(|text| [text_block(text).marked(mark)]);
        let taken = usize::from(!tools.is_empty()) + usize::from(system.is_some());
        let messages = Written::of(plan).turns(plan, mark, MARKS_MAX - taken, begun);
        let max_tokens = output_limit(plan, limits);
        let tool_choice = choice(plan);
        let prewarms = plan.request.only_fills_cache();
        let is_forced = plan.choice().is_some_and(ToolChoice::is_forced);
        let (asked, effort) = thinking(plan, limits, max_tokens);
        // A model that is forced to call a tool must not think first.
        let thinking = asked.filter(|thinking| match thinking {
            Thinking::Disabled => true,
            Thinking::Adaptive { .. } => !is_forced,
            Thinking::Enabled { .. } => !is_forced && began_with_thinking(&messages),
        });
        let is_thinking = thinking.is_some_and(|thinking| thinking != Thinking::Disabled);
        let temperature = plan.temperature().filter(|_| !is_thinking);
        // Newer models accept only one of the two.
        let top_p = plan.top_p().filter(|_| temperature.is_none() && !is_thinking);
        for (part, is_left_out) in [
            (Need::NoThinking, thinking != asked),
            (Need::NoTemperature, temperature != plan.temperature()),
            (Need::NoTopP, top_p != plan.top_p()),
            (Need::NoLogprobs, plan.top_logprobs().is_some()),
        ] {
            if is_left_out {
                plan.leaves_out(part);
            }
        }
        Self {
            model: plan.model,
            max_tokens: if prewarms { 0 } else { max_tokens },
            system,
            messages,
            tools,
            tool_choice,
            thinking,
            output_config: OutputConfig { effort, format: format(plan) },
            temperature: temperature.map(|temperature| temperature.min(TEMPERATURE_MAX)),
            top_p,
            stream: !prewarms,
            diagnostics: plan.comparison().map(|comparison| Diagnostics { previous_message_id: comparison.with }),
            compaction: is_compacted(plan)
                .then_some(Compaction { r#type: "summarize", instructions: plan.instructions() }),
        }
    }

    /// Returns true if the model has a budget for thinking. The API takes no such request without an answer.
    pub(super) fn has_budget(&self) -> bool {
        matches!(self.thinking, Some(Thinking::Enabled { .. }))
    }

    /// Returns the beta features that the request uses, as their header names them.
    pub(super) fn betas(plan: &Plan<'_>) -> Option<&'static str> {
        (is_compacted(plan) || !plan.native.is_empty()).then_some(COMPACTION)
    }
}

/// Returns true if the answer is to be a compaction of the messages.
fn is_compacted(plan: &Plan<'_>) -> bool {
    plan.request.compacts.is_some()
}

impl Block<'_> {
    fn marked(self, mark: Mark) -> Self {
        Self { cache_control: Some(mark), ..self }
    }

    fn is_theirs(&self) -> bool {
        matches!(self.content, Content::Theirs(_))
    }

    fn is_compaction(&self) -> bool {
        matches!(self.content, Content::Theirs(block) if block["type"] == "compaction")
    }
}

fn ours(block: OurBlock<'_>) -> Block<'_> {
    Block { content: Content::Ours(block), cache_control: None }
}

fn text_block(text: &str) -> Block<'_> {
    ours(OurBlock::Text { text })
}

fn image_block(url: &str) -> Block<'_> {
    let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let source = match inline {
        Some((media_type, data)) => {
            let media_type = match media_type.split_once(';').map_or(media_type, |(name, _)| name) {
                "image/jpg" => "image/jpeg",
                media_type => media_type,
            };
            Source::Base64 { media_type, data }
        }
        None => Source::Url { url },
    };
    ours(OurBlock::Image { source })
}

/// The blocks of all messages, each with the role of its message.
#[derive(Debug, Default)]
struct Written<'a> {
    blocks: Vec<(&'static str, Block<'a>)>,
    /// The number of blocks after each part, to find the block with which a part ends.
    after: Vec<usize>,
    /// The images that follow the results of calls.
    images: Vec<Block<'a>>,
}

impl<'a> Written<'a> {
    fn of(plan: &'a Plan<'a>) -> Self {
        let mut written = Self::default();
        for message in &plan.messages {
            if message.role != Role::Tool {
                written.end_results();
            }
            written.message(message, plan);
        }
        written.end_results();
        written
    }

    fn message(&mut self, message: &'a Message, plan: &'a Plan<'a>) {
        let is_answer = message.role == Role::Assistant;
        let readable = is_answer && plan.can_unseal(message);
        let first = self.blocks.len();
        for part in &message.content {
            let block = match part {
                Part::Text { text } => Some(text_block(text)),
                Part::Image { url, .. } if message.role == Role::Tool => {
                    self.image_of_result(url);
                    None
                }
                Part::Image { url, .. } => Some(image_block(url)),
                Part::Reasoning { payload: Some(payload), .. } if readable => {
                    let is_thinking = THINKING_BLOCKS.contains(&payload["type"].as_str().unwrap_or_default());
                    if !is_thinking {
                        plan.leaves_out(Need::Foreign);
                    }
                    is_thinking.then_some(Block { content: Content::Theirs(payload), cache_control: None })
                }
                Part::Reasoning { .. } => None,
                Part::ToolCall { call_id, name, arguments } => {
                    Some(ours(OurBlock::ToolUse { id: plan.ids.of_call(call_id), name, input: input(arguments) }))
                }
                Part::ToolResult { call_id, output, is_error } => Some(ours(OurBlock::ToolResult {
                    tool_use_id: plan.ids.of_call(call_id),
                    content: vec![text_block(output)],
                    is_error: *is_error,
                })),
            };
            self.blocks.extend(block.map(|block| (if is_answer { "assistant" } else { "user" }, block)));
            self.after.push(self.blocks.len());
        }
        // An answer must not end with thinking.
        while self.blocks.len() > first && self.blocks.last().is_some_and(|(_, block)| block.is_theirs()) {
            self.blocks.pop();
        }
    }

    /// Puts an image into the result that it belongs to. The result of a failed call takes none, so its images follow
    /// the results.
    fn image_of_result(&mut self, url: &'a str) {
        match self.blocks.last_mut() {
            Some((_, Block { content: Content::Ours(OurBlock::ToolResult { content, is_error: false, .. }), .. })) => {
                content.push(image_block(url));
            }
            _ => self.images.push(image_block(url)),
        }
    }

    /// Writes the images that follow the results.
    fn end_results(&mut self) {
        self.blocks.extend(self.images.drain(..).map(|image| ("user", image)));
    }

    /// Returns the messages, with at most this many marks: at the end of what later requests repeat, at the end of the
    /// summary, and then at a distance before the first.
    fn turns(mut self, plan: &'a Plan<'a>, mark: Mark, marks_max: usize, begun: &'a [Value]) -> Vec<Turn<'a>> {
        let end_of = |parts: usize| self.after.get(parts.checked_sub(1)?).copied();
        let end = end_of(self.after.len().saturating_sub(plan.passing_parts)).unwrap_or(0);
        let spread = (1..).map_while(|step| end.checked_sub(step * MARK_EVERY));
        let ends = [Some(end), end_of(plan.summary_parts)].into_iter().flatten().chain(spread);
        let mut places: Vec<usize> = Vec::new();
        for end in ends {
            // Thinking cannot be marked.
            let place = (0..end.min(self.blocks.len())).rev().find(|at| !self.blocks[*at].1.is_theirs());
            places.extend(place.filter(|place| places.len() < marks_max && !places.contains(place)));
        }
        for place in places {
            self.blocks[place].1.cache_control = Some(mark);
        }
        let theirs = |block| ("assistant", Block { content: Content::Theirs(block), cache_control: None });
        if plan.native.is_empty() && self.blocks.first().is_none_or(|(role, _)| *role != "user") {
            self.blocks.insert(0, ("user", text_block(NO_QUESTION)));
        }
        self.blocks.splice(0..0, plan.native.iter().map(theirs));
        self.blocks.extend(begun.iter().map(theirs));
        if begun.is_empty() && !is_compacted(plan) && self.blocks.last().is_some_and(|(role, _)| *role != "user") {
            self.blocks.push(("user", text_block(NO_QUESTION)));
        }
        let mut turns: Vec<Turn<'a>> = Vec::new();
        for (role, block) in self.blocks {
            match turns.last_mut().filter(|turn| turn.role == role) {
                Some(turn) => turn.content.push(block),
                None => turns.push(Turn { role, content: vec![block] }),
            }
        }
        turns
    }
}

/// Returns true unless the results of calls come last, and the first answer since the user's input does not begin with
/// thinking. A model that thinks within a budget must have thought before the calls, which is not so if another model
/// made them.
fn began_with_thinking(turns: &[Turn<'_>]) -> bool {
    let is_result = |block: &Block<'_>| matches!(block.content, Content::Ours(OurBlock::ToolResult { .. }));
    let (mut rest, mut first) = (turns, None);
    while let [before @ .., answer, results] = rest
        && results.content.iter().any(is_result)
    {
        (rest, first) = (before, Some(answer));
    }
    let begins =
        |answer: &Turn<'_>| answer.content.iter().find(|block| !block.is_compaction()).is_some_and(Block::is_theirs);
    first.is_none_or(begins)
}

fn input(arguments: &str) -> Input<'_> {
    let raw = serde_json::from_str::<&RawValue>(arguments).ok().filter(|raw| raw.get().starts_with('{'));
    raw.map_or(Input::None {}, Input::Raw)
}

fn tools<'a>(plan: &Plan<'a>) -> Vec<Tool<'a>> {
    if !plan.has_tools() {
        return Vec::new();
    }
    let tools = plan.request.envelope.tools.iter().map(|tool| Tool {
        name: &tool.name,
        description: &tool.description,
        input_schema: match &tool.parameters {
            Value::Object(schema) if schema.contains_key("type") => Cow::Borrowed(&tool.parameters),
            Value::Object(schema) => {
                let mut schema = schema.clone();
                schema.insert("type".to_owned(), json!("object"));
                Cow::Owned(Value::Object(schema))
            }
            _ => Cow::Owned(json!({ "type": "object" })),
        },
        cache_control: None,
    });
    tools.collect()
}

/// Returns the `tool_choice`. A summary's request that carries the conversation's tools has none, because another
/// choice than the conversation's would not hit the cache of its messages.
fn choice<'a>(plan: &Plan<'a>) -> Option<Choice<'a>> {
    if plan.request.purpose == Purpose::Summary {
        return None;
    }
    let alone = (plan.parallel_calls() == Some(false)).then_some(true);
    let of = |r#type, name, disable_parallel_tool_use| Some(Choice { r#type, name, disable_parallel_tool_use });
    match plan.choice() {
        Some(ToolChoice::None) => of("none", None, None),
        Some(ToolChoice::Required) => of("any", None, alone),
        Some(ToolChoice::Tool { name }) => of("tool", Some(name), alone),
        Some(ToolChoice::Auto) => of("auto", None, alone),
        None => alone.and_then(|alone| of("auto", None, Some(alone))),
    }
}

/// Returns the output limit, which the API requires: the one that is set, or else the model's own, as far as the window
/// has room for it.
fn output_limit(plan: &Plan<'_>, limits: Limits) -> u64 {
    let meta = &plan.request.envelope.meta;
    if plan.does(Need::NoLimit) {
        return OUTPUT_TOKENS_LEAST;
    }
    if let Some(limit) = plan.output_limit() {
        return limits.output_tokens.map_or(limit, |most| limit.min(most));
    }
    let most = limits.output_tokens.unwrap_or(OUTPUT_TOKENS);
    // Older models refuse a request whose input and output limit together exceed the window. The input is estimated.
    let room = meta.window_tokens.saturating_sub(meta.tokens + meta.tokens / 8);
    if meta.window_tokens == 0 { most } else { most.min(room.max(BUDGET_TOKENS_MIN)) }
}

/// Returns how the model is to think, and its effort. An effort that is a number is a budget of tokens.
fn thinking<'a>(plan: &Plan<'a>, limits: Limits, max_tokens: u64) -> (Option<Thinking>, Option<&'a str>) {
    let Some(effort) = plan.effort() else { return (None, None) };
    let enabled = |tokens: u64| {
        // The other half is for the text.
        let budget_tokens = tokens.min(max_tokens / 2);
        if budget_tokens < BUDGET_TOKENS_MIN {
            plan.leaves_out(Need::NoThinking);
            return None;
        }
        Some(Thinking::Enabled { budget_tokens })
    };
    if let Ok(tokens) = effort.parse() {
        return (enabled(tokens), None);
    }
    let effort = match effort {
        "none" => return (Some(Thinking::Disabled), None),
        "minimal" => "low",
        effort => effort,
    };
    let budget = match effort {
        "low" => 2_048,
        "medium" => 8_192,
        _ => 16_384,
    };
    let thinking = match limits.needs_budget {
        true => enabled(budget),
        false => Some(Thinking::Adaptive { display: "summarized" }),
    };
    (thinking, Some(effort).filter(|_| !limits.lacks_effort))
}

fn format(plan: &Plan<'_>) -> Option<Format> {
    match plan.format()? {
        AnswerFormat::JsonSchema { schema, .. } => {
            let mut schema = schema.clone();
            close(&mut schema);
            Some(Format { r#type: "json_schema", schema })
        }
        AnswerFormat::JsonObject => {
            plan.leaves_out(Need::NoFormat);
            None
        }
    }
}

/// Closes the objects of a schema that does not say whether they may have further properties. The API accepts no
/// others.
fn close(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let is_object = |kind: &Value| {
        kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"))
    };
    if fields.contains_key("properties") || fields.get("type").is_some_and(is_object) {
        fields.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    for (name, field) in fields {
        match (name.as_str(), field) {
            ("properties" | "$defs" | "definitions", Value::Object(named)) => named.values_mut().for_each(close),
            ("items" | "anyOf" | "allOf", Value::Array(several)) => several.iter_mut().for_each(close),
            ("items", one) => close(one),
            _ => {}
        }
    }
}
