//! The messages of a request in a form that every server accepts, adapted to the needs of its model.
//!
//! The following always holds. The system prompt comes first and alone. Consecutive messages of the user are merged. No
//! text is blank, and no tool result is empty. Adaptations that only some servers need are made where the model's
//! [`Needs`] ask for them. Both request writers work from this plan, so that neither contains these rules.

use super::{form::Form, ids::Ids};
use crate::core::{
    model::{ModelRequest, Purpose},
    need::{Need, Needs},
};
use reseed_protocol::{
    Message, NativeCompaction, Part, Payload, Role,
    context::{AnswerFormat, AnswerOptions, ContextMessage, EnvelopeMessages, ToolChoice},
};
use serde_json::Value;
use std::{borrow::Cow, cell::Cell};

/// Replaces an empty tool result.
const NO_OUTPUT: &str = "(no output)";
/// Replaces an image that the model cannot see.
const NO_IMAGE: &str = "[An image was here. It is left out because this model takes no images.]";
/// Replaces an image that its server refused.
const REFUSED_IMAGE: &str = "[An image was here. It is left out because the model's server refused it.]";
/// Introduces images of tool results where only the user can send images.
const IMAGES_OF_RESULTS: &str = "These images belong to the tool results above.";
/// The answer between a tool result and the user, where one is required.
const NO_ANSWER_YET: &str = "(The user wrote before I answered.)";
/// The user's message before an answer that comes first, where one is required.
pub(crate) const NO_QUESTION: &str = "(The conversation goes on.)";

/// Where an API takes the images of tool results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultImages {
    /// In the results.
    Inside,
    /// In a message of the user after all results.
    After,
}

/// A request in the form in which it is sent.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) request: &'a ModelRequest,
    /// The model's name as its server knows it.
    pub(crate) model: &'a str,
    needs: Needs,
    /// The needs that have changed something.
    shown: Cell<Needs>,
    pub(crate) system: Option<Cow<'a, str>>,
    pub(crate) messages: Vec<Cow<'a, Message>>,
    pub(crate) ids: Ids,
    server: &'a str,
    /// The number of parts at the end of the messages that no later request repeats.
    pub(crate) passing_parts: usize,
    /// The number of parts at the beginning that are the summary of a compaction.
    pub(crate) summary_parts: usize,
    /// The provider's own form of the summary, which comes first, before the messages.
    pub(crate) native: Vec<Value>,
    /// True if the server is asked to compare requests.
    pub(crate) is_diagnosed: bool,
}

/// The request of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Comparison<'a> {
    /// The server's id of the answer to the earlier request; `None` if there is none.
    pub(crate) with: Option<&'a str>,
}

impl<'a> Plan<'a> {
    /// Plans a request for a server, which is named as in [`Payload::server`]. `native` is the API whose own form of a
    /// summary can be sent.
    pub(crate) fn new(
        request: &'a ModelRequest,
        form: &Form,
        server: &'a str,
        (images, native): (ResultImages, Option<&str>),
    ) -> Self {
        let needs = form.needs;
        let mut shown = Needs::default();
        let EnvelopeMessages { cached, uncached } = &request.envelope.messages;
        let first = cached.first().and_then(|first| first.message.native());
        let first = first.filter(|first| first.server == server && first.model == request.model);
        let mut native = first.filter(|first| native == Some(&first.api)).map(items).unwrap_or_default();
        if needs.has(Need::NoNative) && !native.is_empty() {
            shown = shown.with(Need::NoNative);
            native.clear();
        }
        let sent = cached.iter().skip(usize::from(!native.is_empty())).chain(uncached);
        let mut messages: Vec<Cow<'a, Message>> =
            sent.filter_map(|message| said(&message.message, form, &mut shown)).collect();
        if messages.iter().any(|message| is_sealed(message) && !is_sealed_by(message, server, &request.model)) {
            shown = shown.with(Need::Foreign);
        }
        if needs.has(Need::OneCall) {
            messages = one_call_each(messages, &mut shown);
        }
        if images == ResultImages::After {
            messages = images_after_results(messages);
        }
        let mut system = Some(Cow::Borrowed(request.envelope.system.compiled.as_str())).filter(|text| !is_blank(text));
        if needs.has(Need::NoSystem)
            && let Some(text) = system.take()
        {
            let first = Message::user(text);
            messages.insert(0, Cow::Owned(first));
            shown = shown.with(Need::NoSystem);
        }
        let messages = in_turns(messages, needs, &mut shown);
        let ids = Ids::of(&messages, (server, request.model.as_str()), needs.has(Need::ShortIds));
        if needs.has(Need::ShortIds) && ids != Ids::of(&messages, (server, request.model.as_str()), false) {
            shown = shown.with(Need::ShortIds);
        }
        let shown = Cell::new(shown);
        // Messages of the conversation come from entries. A summary does not.
        let summary = cached.first().filter(|first| first.entry_id.is_none() && cached.len() > 1 && native.is_empty());
        let parts = |sent: &ContextMessage| {
            said(&sent.message, form, &mut Needs::default()).map_or(0, |message| message.content.len())
        };
        let (passing_parts, summary_parts) = (uncached.iter().map(parts).sum(), summary.map_or(0, parts));
        let model = &request.model;
        let is_diagnosed = false;
        Self {
            request,
            model,
            needs,
            shown,
            system,
            messages,
            ids,
            server,
            passing_parts,
            summary_parts,
            native,
            is_diagnosed,
        }
    }

    /// Returns the comparison that the server is asked for, if any. Only requests of turns are compared.
    pub(crate) fn comparison(&self) -> Option<Comparison<'a>> {
        let is_turns = self.request.purpose == Purpose::Turn && !self.request.only_fills_cache();
        if !self.is_diagnosed || !is_turns || self.does(Need::NoDiagnostics) {
            return None;
        }
        let own = self.request.compared_with.as_ref().filter(|response| response.server == self.server);
        Some(Comparison { with: own.map(|response| response.id.as_str()) })
    }

    /// Returns true if the model has a need, and records it. Call this only where the need changes what is sent.
    pub(crate) fn does(&self, need: Need) -> bool {
        if self.needs.has(need) {
            self.shown.set(self.shown.get().with(need));
        }
        self.needs.has(need)
    }

    /// Returns the needs that changed something, once the request is written.
    pub(crate) fn shown(&self) -> Needs {
        self.shown.get()
    }

    /// Returns what goes back to this server with a message: the payload that came with it, from the same server and
    /// model.
    pub(crate) fn own<'m>(&self, message: &'m Message) -> Option<&'m Payload> {
        let is_own = |payload: &&Payload| payload.server == self.server;
        let is_of_model = message.model.as_deref() == Some(self.request.model.as_str());
        let says = |own: &Payload| {
            own.fields.is_some() || own.reasoning.is_some() || own.calls.iter().any(|call| call.fields.is_some())
        };
        let own = message.payload.as_deref().filter(is_own).filter(|_| is_of_model)?;
        (says(own) && !self.does(Need::NoOwnFields)).then_some(own)
    }

    /// Returns true if the requested model can read the sealed reasoning of this message.
    pub(crate) fn can_unseal(&self, message: &Message) -> bool {
        is_sealed(message) && is_sealed_by(message, self.server, &self.request.model) && !self.does(Need::NoSealed)
    }

    /// Records that the API cannot take a part of the request, whatever its server accepts.
    pub(crate) fn leaves_out(&self, part: Need) {
        self.shown.set(self.shown.get().with(part));
    }

    /// Returns the instructions for the provider's own compaction.
    pub(crate) fn instructions(&self) -> Option<&'a str> {
        self.request.compacts.as_ref()?.instructions.as_deref()
    }

    /// Returns the output limit, if it is sent. Each API says in its own way that there is to be no answer.
    pub(crate) fn output_limit(&self) -> Option<u64> {
        let limit = self.request.envelope.options.max_output_tokens.filter(|limit| *limit > 0);
        limit.filter(|_| !self.does(Need::NoLimit))
    }

    /// Returns the temperature, if it is sent.
    pub(crate) fn temperature(&self) -> Option<f64> {
        self.request.envelope.options.temperature.filter(|_| !self.does(Need::NoTemperature))
    }

    /// Returns the reasoning effort, if it is sent.
    pub(crate) fn effort(&self) -> Option<&'a str> {
        self.request.envelope.options.reasoning_effort.as_deref().filter(|_| !self.does(Need::NoEffort))
    }

    /// Returns the form of the answer that the session is set to; `None` for a summary.
    fn answer(&self) -> Option<&'a AnswerOptions> {
        let is_turns = self.request.purpose == Purpose::Turn;
        self.request.envelope.options.answer.as_ref().filter(|_| is_turns)
    }

    /// Returns which tools the model may or must call, if it is sent.
    pub(crate) fn choice(&self) -> Option<&'a ToolChoice> {
        let choice = self.answer()?.tool_choice.as_ref()?;
        (self.has_tools() && !self.does(Need::NoToolChoice)).then_some(choice)
    }

    /// Returns whether an answer may have several calls, if it is sent.
    pub(crate) fn parallel_calls(&self) -> Option<bool> {
        let parallel = self.answer()?.parallel_tool_calls?;
        (self.has_tools() && !self.does(Need::OneCall)).then_some(parallel)
    }

    /// Returns the format of the text, if it is sent.
    pub(crate) fn format(&self) -> Option<&'a AnswerFormat> {
        let format = self.answer()?.format.as_ref()?;
        (!self.does(Need::NoFormat)).then_some(format)
    }

    /// Returns how many alternatives of each token are asked for, if any are.
    pub(crate) fn top_logprobs(&self) -> Option<u32> {
        self.answer()?.top_logprobs
    }

    /// Returns `top_p`, if it is sent. Models that refuse a temperature refuse it too.
    pub(crate) fn top_p(&self) -> Option<f64> {
        self.request.envelope.options.top_p.filter(|_| !self.does(Need::NoTemperature))
    }

    /// Returns true if tools are sent.
    pub(crate) fn has_tools(&self) -> bool {
        !self.request.envelope.tools.is_empty() && !self.does(Need::NoTools)
    }
}

/// Returns the items of a provider's own form of a summary.
fn items(native: &NativeCompaction) -> Vec<Value> {
    serde_json::from_str(&native.items).unwrap_or_default()
}

fn is_sealed(message: &Message) -> bool {
    message.content.iter().any(|part| matches!(part, Part::Reasoning { payload: Some(_), .. }))
}

/// Returns true if the reasoning of a message can be from this model of this server.
fn is_sealed_by(message: &Message, server: &str, model: &str) -> bool {
    let is_of_model = message.model.as_deref().is_none_or(|sealed_by| sealed_by == model);
    is_of_model && message.payload.as_deref().is_none_or(|payload| payload.server == server)
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn text(text: impl Into<String>) -> Part {
    Part::Text { text: text.into() }
}

/// Returns a message without what its model does not accept; `None` if nothing is left.
fn said<'m>(message: &'m Message, form: &Form, shown: &mut Needs) -> Option<Cow<'m, Message>> {
    // Reasoning alone says nothing, and the reasoning for a call must not be sent without the call.
    if message.content.iter().all(|part| matches!(part, Part::Reasoning { .. })) {
        return None;
    }
    let toolless = form.needs.has(Need::NoTools);
    let no_image = if form.needs.has(Need::NoImages) { NO_IMAGE } else { REFUSED_IMAGE };
    let stays = |part: &Part| match part {
        Part::Text { text } => !is_blank(text),
        Part::Image { url, .. } => !form.hides(url),
        Part::ToolCall { .. } => !toolless,
        Part::ToolResult { output, .. } => !toolless && !is_blank(output),
        Part::Reasoning { .. } => true,
    };
    if message.content.iter().all(stays) {
        return Some(Cow::Borrowed(message));
    }
    let mut changed = message.clone();
    changed.content.clear();
    for part in &message.content {
        match part {
            part if stays(part) => changed.content.push(part.clone()),
            Part::Text { .. } | Part::Reasoning { .. } => {}
            Part::Image { .. } => {
                *shown = shown.with(Need::NoImages);
                match changed.content.last_mut() {
                    Some(Part::ToolResult { output, .. }) => *output = format!("{output}\n{no_image}"),
                    _ => changed.content.push(text(no_image)),
                }
            }
            Part::ToolCall { name, arguments, .. } => {
                *shown = shown.with(Need::NoTools);
                changed.content.push(text(format!("(I called the tool `{name}` with {arguments}.)")));
            }
            Part::ToolResult { call_id, output, is_error } => {
                let output = if is_blank(output) { NO_OUTPUT } else { output };
                *shown = if toolless { shown.with(Need::NoTools) } else { *shown };
                changed.content.push(match toolless {
                    true => text(format!("(The tool answered: {output})")),
                    false => {
                        let (call_id, output) = (call_id.clone(), output.to_owned());
                        Part::ToolResult { call_id, output, is_error: *is_error }
                    }
                });
            }
        }
    }
    if toolless && changed.role == Role::Tool {
        changed.role = Role::User;
    }
    let says = changed.content.iter().any(|part| !matches!(part, Part::Reasoning { .. }));
    says.then_some(Cow::Owned(changed))
}

/// Splits answers that make several calls, so that each call is followed by its result.
fn one_call_each<'m>(messages: Vec<Cow<'m, Message>>, shown: &mut Needs) -> Vec<Cow<'m, Message>> {
    let mut split: Vec<Cow<'m, Message>> = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        if message.tool_calls().count() < 2 {
            split.push(message);
            continue;
        }
        *shown = shown.with(Need::OneCall);
        let mut results: Vec<Cow<'m, Message>> = Vec::new();
        while let Some(result) = messages.next_if(|next| next.role == Role::Tool) {
            results.push(result);
        }
        let is_call = |part: &Part| matches!(part, Part::ToolCall { .. });
        let mut whole = message.clone().into_owned();
        let mut before: Vec<Part> = message.content.iter().filter(|part| !is_call(part)).cloned().collect();
        for call in message.content.iter().filter(|part| is_call(part)) {
            let Part::ToolCall { call_id, .. } = call else { continue };
            let content = before.drain(..).chain([call.clone()]).collect();
            split.push(Cow::Owned(Message { content, ..whole.clone() }));
            // The answer's own fields went with its first call.
            whole.payload = whole.payload.map(|payload| Box::new(payload.of_changed()));
            let is_its =
                |part: &Part| matches!(part, Part::ToolResult { call_id: answered, .. } if answered == call_id);
            if let Some(at) = results.iter().position(|result| result.content.iter().any(is_its)) {
                split.push(results.remove(at));
            }
        }
        split.extend(results);
    }
    split
}

/// Moves the images of tool results, which cannot contain any, into a user message after all results.
fn images_after_results(messages: Vec<Cow<'_, Message>>) -> Vec<Cow<'_, Message>> {
    let mut moved: Vec<Cow<'_, Message>> = Vec::with_capacity(messages.len());
    let mut images: Vec<Part> = Vec::new();
    let flush = |images: &mut Vec<Part>, moved: &mut Vec<Cow<'_, Message>>| {
        if !images.is_empty() {
            let content = std::iter::once(text(IMAGES_OF_RESULTS)).chain(images.drain(..)).collect();
            moved.push(Cow::Owned(Message::new(Role::User, content)));
        }
    };
    for message in messages {
        if message.role == Role::Tool {
            images.extend(message.content.iter().filter(|part| matches!(part, Part::Image { .. })).cloned());
        } else {
            flush(&mut images, &mut moved);
        }
        moved.push(message);
    }
    flush(&mut images, &mut moved);
    moved
}

/// Merges consecutive messages of the user. If the roles must alternate, it also inserts the missing messages.
fn in_turns<'m>(messages: Vec<Cow<'m, Message>>, needs: Needs, shown: &mut Needs) -> Vec<Cow<'m, Message>> {
    let alternate = needs.has(Need::Alternate);
    let mut turns: Vec<Cow<'m, Message>> = Vec::with_capacity(messages.len());
    for message in messages {
        let before = turns.last().map(|before| before.role);
        let is_plain = |message: &Message| message.tool_calls().next().is_none();
        match (before, message.role) {
            (Some(Role::User), Role::User) if !needs.has(Need::Apart) => append(&mut turns, message),
            (Some(Role::Assistant), Role::Assistant)
                if alternate && turns.last().is_some_and(|m| is_plain(m)) && is_plain(&message) =>
            {
                *shown = shown.with(Need::Alternate);
                append(&mut turns, message);
            }
            (Some(before), Role::User) if before == Role::User || (before == Role::Tool && alternate) => {
                *shown = shown.with(if before == Role::User { Need::Apart } else { Need::Alternate });
                turns.push(Cow::Owned(Message::new(Role::Assistant, vec![text(NO_ANSWER_YET)])));
                turns.push(message);
            }
            (None, Role::Assistant) if alternate => {
                *shown = shown.with(Need::Alternate);
                turns.push(Cow::Owned(Message::user(NO_QUESTION)));
                turns.push(message);
            }
            _ => turns.push(message),
        }
    }
    turns
}

fn append<'m>(turns: &mut [Cow<'m, Message>], message: Cow<'m, Message>) {
    if let Some(last) = turns.last_mut() {
        last.to_mut().content.extend(message.into_owned().content);
    }
}
