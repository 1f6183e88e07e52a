//! Creates a response: finds its place in a session's tree, sets what differs, and asks.

use super::{
    Forget,
    approve::approve,
    compact::{Sealer, summarise},
    ids::{self, ResponseId},
    input::Input,
    place::From,
    references::find,
    request::Create,
    resource::{Resource, details, stored_of},
    running::Running,
    socket::Shared,
    tools::Tools,
    writer::Writer,
};
use crate::{
    exchange::{Exchange, INPUT_MARK, Place, Wanted, command_id},
    http::Failure,
};
use axum::http::StatusCode;
use reseed_client::Connect;
use reseed_protocol::{
    CommandId, Entry, ErrorBody, ErrorCode, Message, Part,
    command::Command,
    content::{Input as Said, InputContent, InputItem, InputPart},
    reply::{Done, Reply},
    tree::{AppendCustom, Navigate, NavigatePosition},
    turn::{UserInput, WhenBusy},
};
use serde_json::json;
use std::sync::Arc;

/// Starts a response. `key` makes a repeated request return the same one. `may_continue` says which responses that were
/// not to be stored this client may continue.
///
/// # Errors
/// The answer to a request that cannot be used.
pub(super) async fn begin(
    connect: Box<dyn Connect>,
    create: &Create,
    key: Option<&str>,
    sealer: &Sealer,
    may_continue: &(dyn Fn(&ResponseId) -> bool + Sync),
) -> Result<Running, Failure> {
    let options = create.options()?;
    let previous = match &create.previous_response_id {
        Some(text) => Some(ResponseId::parse(text).ok_or_else(|| not_found(text))?),
        None => create.continues.clone(),
    };
    let place = match (&previous, &create.conversation) {
        (Some(previous), _) => Place::Session(previous.session.clone()),
        (None, Some(conversation)) => Place::Session(ids::conversation(conversation.id())?),
        (None, None) => match (key.map(|key| command_id("responses.session", key)), create.store) {
            (key, Some(false)) => Place::Unstored(key),
            (Some(key), _) => Place::Once(key),
            (None, _) => Place::New,
        },
    };
    let within = match &place {
        Place::Session(session) => Some(session),
        _ => None,
    };
    let connect: Arc<dyn Connect> = Arc::from(connect);
    let found = find(&connect, create.input.as_ref(), within).await?;
    let mut input = Input::read(create.input.as_ref().unwrap_or(&json!([])), &found)?;
    let is_found = matches!(place, Place::Session(_));
    let mut is_new = !is_found;
    let own = create.tools.as_deref().unwrap_or_default();
    let offers = if is_new { Tools::of(&input.tools, own).offers } else { Vec::new() };
    let opened = Exchange::open(Box::new(Shared(connect.clone())), place, offers).await;
    let mut exchange = opened.map_err(|error| match (&create.previous_response_id, error.code) {
        (Some(text), ErrorCode::SessionNotFound) => not_found(text),
        _ => Failure::from(error),
    })?;
    let id = key.map(|key| command_id("responses.input", key));
    let mut from = match &previous {
        Some(previous) => From::after(&mut exchange, previous, may_continue).await?,
        None if create.conversation.is_some() => From::end(&mut exchange, id.as_ref()).await?,
        None => From::default(),
    };
    from.bring(&input.tools);
    let tools = Tools::of(&from.tools, own);
    if create.store == Some(false)
        && from.is_stored
        && input.approvals.is_empty()
        && let Some(last) = from.parent.take().or_else(|| exchange.snapshot().leaf_id.clone())
    {
        exchange = exchange.into_unstored(last, key.map(|key| command_id("responses.fork", key))).await?;
        is_new = true;
    }
    let forget = |exchange: &Exchange| Forget {
        connect: Some(Box::new(Shared(connect.clone()))),
        session: exchange.snapshot().session_id.clone(),
    };
    let is_unstored = is_new && create.store == Some(false);
    // If there is no response, nothing can continue the session, except the same request once more.
    let guard = (is_unstored && key.is_none()).then(|| forget(&exchange));
    if is_found {
        // Tools that are offered during a turn would take the place of those that the turn has.
        let is_running = exchange.snapshot().turn.is_some();
        if is_running && input.approvals.is_empty() && key.is_none() {
            let error = ErrorBody::new(ErrorCode::TurnRunning, "another response of this conversation is being made");
            return Err(error.into());
        }
        if !tools.offers.is_empty() && (!is_running || !input.approvals.is_empty()) {
            exchange.offer(tools.offers).await?;
        }
    }
    from.system.append(&mut input.system);
    let mut instructions: Vec<&str> = create.instructions.iter().map(String::as_str).collect();
    instructions.extend(from.system.iter().map(String::as_str));
    let instructions = Some(instructions.join("\n\n")).filter(|text| !text.trim().is_empty());
    let wanted = Wanted {
        model: create.model.clone(),
        reasoning_effort: create.reasoning.as_ref().and_then(|reasoning| reasoning.effort.clone()),
        instructions: Some(instructions),
        options: Some(options),
        strategy: create.strategy(exchange.snapshot().context_info.max_tokens)?,
    };
    exchange.configure(wanted).await?;
    let mut stored = create.stored(&tools.names);
    from.store(&mut stored)?;
    // Without an answer, the response is over as soon as it is stored.
    if create.generate == Some(false) || input.compacts {
        stored["without_answer"] = true.into();
    }
    if from.in_conversation {
        stored["in_conversation"] = true.into();
    }
    if let Some(id) = &id {
        stored["key"] = json!(id);
    }
    let history = sealer.unseal(std::mem::take(&mut input.history), &input.compactions)?;
    if !input.approvals.is_empty() {
        let approvals = std::mem::take(&mut input.approvals);
        if history.is_empty() && input.parts.is_empty() {
            return approve(exchange, approvals, stored, id).await;
        }
        // What comes with them, such as the result of a function, is said once the turn has ended.
        let mut running = approve(exchange, approvals, stored.clone(), None).await?;
        while !running.writer.is_over() {
            running.step().await?;
        }
        exchange = running.exchange;
    }
    let compacts = input.compacts;
    if (create.generate == Some(false) || compacts)
        && let Some(parent) = from.parent.take()
    {
        // What is only stored goes to the leaf.
        let navigate = Navigate {
            entry_id: Some(parent),
            position: Some(NavigatePosition::At),
            summarize: None,
            instructions: None,
            replace_instructions: None,
            label: None,
        };
        exchange.request(&Command::Navigate(navigate)).await?;
    }
    let said = UserInput {
        history: Some(history).filter(|history| !history.is_empty()),
        details: Some(details(stored.clone())),
        generate: create.generate.filter(|generates| !generates).or(compacts.then_some(false)),
        when_busy: Some(WhenBusy::Reject),
        parent_id: from.parent.map(Some),
        ..UserInput::plain(as_input(input.parts))
    };
    let has_words = said.history.is_some() || said.input != Said::Items(Vec::new());
    if create.generate == Some(false) && !has_words {
        let entry = mark(&mut exchange, &stored, id).await?;
        let forget = guard.or_else(|| is_unstored.then(|| forget(&exchange)));
        let mut running = running(exchange, &entry, stored, forget);
        running.writer.ends_without_answer();
        return Ok(running);
    }
    let at_leaf = said.parent_id.is_some().then(|| UserInput { parent_id: None, ..said.clone() });
    let accepted = match (exchange.ask(said, id.clone()).await, at_leaf) {
        // The first time, the place was the leaf.
        (Err(error), Some(at_leaf)) if error.code == ErrorCode::IdempotencyConflict => exchange.ask(at_leaf, id).await,
        (asked, _) => asked,
    };
    let accepted = accepted.map_err(|error| refused(error, create))?;
    let Some(entry) = accepted.entry_id else {
        return Err(Failure::invalid("the conversation is busy").with_status(StatusCode::CONFLICT));
    };
    let entry = exchange.appended(&entry).await?;
    let summary = match compacts {
        true => Some(summarise(&mut exchange, None, create.store != Some(false)).await?),
        false => None,
    };
    let forget = guard.or_else(|| is_unstored.then(|| forget(&exchange)));
    let mut running = running(exchange, &entry, stored, forget);
    match summary {
        Some(summary) => running.writer.ends_with_summary(sealer.seal(&summary), summary),
        None if accepted.turn_id.is_none() => running.writer.ends_without_answer(),
        None => {}
    }
    Ok(running)
}

/// Returns the response to the input of this entry, before its first step.
pub(super) fn running(exchange: Exchange, entry: &Entry, stored: serde_json::Value, forget: Option<Forget>) -> Running {
    let snapshot = exchange.snapshot();
    let id = ResponseId { session: snapshot.session_id.clone(), entry: entry.entry_id.clone() };
    let resource = Resource {
        id: id.clone(),
        created_at: entry.timestamp,
        model: snapshot.model.clone(),
        stored,
        output: Vec::new(),
        usage: None,
        ended: None,
    };
    let writer = Writer::new(resource, None);
    Running { exchange, writer, id, forget }
}

/// Appends an entry that stands for an input without words.
///
/// # Errors
/// Why it could not be stored.
pub(super) async fn mark(
    exchange: &mut Exchange,
    stored: &serde_json::Value,
    id: Option<CommandId>,
) -> Result<Arc<Entry>, Failure> {
    let mark =
        Command::AppendCustom(AppendCustom { custom_type: INPUT_MARK.to_owned(), data: details(stored.clone()) });
    let reply = match id {
        Some(id) => exchange.request_as(id, &mark).await?,
        None => exchange.request(&mark).await?,
    };
    match reply {
        Reply::Ok(Done { entry_id: Some(entry), .. }) => Ok(exchange.appended(&entry).await?),
        _ => Err(Failure::invalid("the input could not be stored")),
    }
}

/// Returns what was stored with an input of this dialect.
pub(super) fn stored_in(entry: &Entry) -> Option<serde_json::Value> {
    match &entry.data {
        reseed_protocol::EntryData::Message(message) => stored_of(message.details.as_deref()),
        reseed_protocol::EntryData::Custom(custom) if custom.custom_type == INPUT_MARK => {
            stored_of(custom.data.as_ref())
        }
        _ => None,
    }
}

/// Returns the error for a response that this client cannot continue.
pub(super) fn not_found(id: &str) -> Failure {
    let shown: String = id.chars().take(200).collect();
    Failure::invalid(format!("there is no response `{shown}` that this request could continue"))
        .with_code("previous_response_not_found")
        .at("previous_response_id")
}

fn refused(error: reseed_protocol::ErrorBody, create: &Create) -> Failure {
    let failure = Failure::from(error);
    match failure.code.as_deref() {
        Some("empty_input") if create.input.is_none() => Failure::invalid("`input` is missing").at("input"),
        Some("unknown_call") => failure.at("input"),
        _ => failure,
    }
}

/// Returns the user's new words as input.
pub(super) fn as_input(parts: Vec<Part>) -> Said {
    if parts.is_empty() {
        return Said::Items(Vec::new());
    }
    let part = |part| match part {
        Part::Text { text } => Some(InputPart::Text { text }),
        Part::Image { url, detail } => Some(InputPart::Image { url, detail }),
        Part::Reasoning { .. } | Part::ToolCall { .. } | Part::ToolResult { .. } => None,
    };
    let content = InputContent::Parts(parts.into_iter().filter_map(part).collect());
    Said::Items(vec![InputItem { kind: None, id: None, status: None, role: "user".to_owned(), content }])
}

/// Returns the text of a message of the history that stands for a compaction.
pub(super) fn summary_message(summary: &str) -> Message {
    Message::user(format!("This is a summary of the conversation before this point:\n\n{summary}"))
}
