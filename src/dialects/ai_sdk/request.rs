//! One request of a page: compares its messages with the session, asks, and streams the answer.

use super::{
    Outcome,
    chat::{Chat, Way, is_users},
    frames::{OnAbort, Resume, Send, ServerFrame, Trigger, Wishes},
    history::{answer_id, message_of},
    messages::{UiMessage, UiRole, input},
    stream::{Aborted, Out, Stream},
    writer::{Writer, named_call},
};
use reseed_protocol::{
    Entry, EntryId, ErrorBody, ErrorCode,
    command::Command,
    content::{Input, InputPart, Message},
    tools::{ApprovalResponse, Decision},
    turn::UserInput,
};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};

/// How often input is sent again because another turn was faster.
const RACES_MAX: u32 = 8;

/// What a page wants, as its messages say.
#[derive(Debug, PartialEq)]
enum Asked<'a> {
    /// An answer to this message of the user, which follows these messages. `again` if the session may have it already.
    Message { message: &'a UiMessage, before: &'a [UiMessage], again: bool },
    /// The rest of this message of the assistant.
    GoesOn { message: &'a UiMessage },
}

impl<'a> Asked<'a> {
    /// # Errors
    /// Nothing is asked.
    fn read(messages: &'a [UiMessage], trigger: Trigger, message_id: Option<&str>) -> Result<Self, String> {
        let is_new = trigger == Trigger::SubmitMessage;
        if let Some(message) = messages.iter().find(|message| Some(message.id.as_str()) == message_id)
            && message.role == UiRole::Assistant
            && is_new
        {
            return Ok(Self::GoesOn { message });
        }
        let answered = |message: &&UiMessage| message.role == UiRole::Assistant && !is_new;
        let shown = messages.iter().rev().skip_while(answered).count();
        match messages[..shown].split_last() {
            Some((message, before)) if message.role == UiRole::User => {
                let again = !is_new || message_id == Some(message.id.as_str());
                Ok(Self::Message { message, before, again })
            }
            Some((message, _)) if message.role == UiRole::Assistant => Ok(Self::GoesOn { message }),
            _ => Err("there is no message to answer".to_owned()),
        }
    }
}

/// Where input goes.
struct Place {
    /// The entry that it follows; `None` for the leaf, `Some(None)` for a new root.
    parent: Option<Option<EntryId>>,
    /// What comes before it.
    history: Vec<Message>,
}

/// Answers `send`.
///
/// # Errors
/// Why there is no answer.
pub(super) async fn send(way: Way, mut send: Send, out: &mut Out, aborted: Aborted) -> Result<(), Outcome> {
    let mut wishes = send.wishes().map_err(Outcome::invalid)?;
    let asked = Asked::read(&send.messages, send.trigger, send.message_id.as_deref()).map_err(Outcome::invalid)?;
    let said = match &asked {
        Asked::Message { message, .. } => Some(message.input().map_err(Outcome::invalid)?),
        Asked::GoesOn { .. } => None,
    };
    let tools = std::mem::take(&mut wishes.tools);
    let names: BTreeSet<String> = tools.iter().map(|tool| tool.name.clone()).collect();
    let offers = tools.into_iter().map(super::frames::BrowserTool::offer).collect();
    let page = Page { names, aborted, on_abort: wishes.on_abort };
    let mut chat = Chat::open(&way, &send.id, Some(offers)).await?;
    wishes.instructions = wishes.instructions.or_else(|| system(&send.messages));
    let wanted = wishes.settings(&chat.snapshot().settings);
    chat.configure(wanted).await?;
    answer_approvals(&mut chat, &send.messages).await?;
    match (asked, said) {
        (Asked::Message { message, before, again }, Some(said)) => {
            answer(&mut chat, out, page, (message, before, again), said).await
        }
        (Asked::GoesOn { message }, _) | (Asked::Message { message, .. }, None) => {
            go_on(&mut chat, out, page, message).await
        }
    }
}

/// What a request knows of its page.
struct Page {
    /// The tools that the browser runs.
    names: BTreeSet<String>,
    aborted: Aborted,
    on_abort: OnAbort,
}

/// Returns the text of the system messages, if there are any.
fn system(messages: &[UiMessage]) -> Option<String> {
    let texts: Vec<String> =
        messages.iter().filter(|message| message.role == UiRole::System).map(UiMessage::text).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// Answers the pending approvals that the messages answer.
async fn answer_approvals(chat: &mut Chat, messages: &[UiMessage]) -> Result<(), Outcome> {
    for answered in messages.iter().flat_map(UiMessage::approvals) {
        let pending = chat.snapshot().approvals.iter();
        let Some(pending) = pending.clone().find(|pending| pending.approval_id.as_str() == answered.id) else {
            continue;
        };
        let approval = pending.approval_id.clone();
        let response = ApprovalResponse {
            approval_id: approval.clone(),
            review: if answered.approved { Decision::AllowOnce } else { Decision::RejectOnce },
            arguments_hash: Some(pending.arguments_hash.clone()),
            custom_deny_message: answered.reason.filter(|_| !answered.approved),
        };
        if let Err(error) = chat.exchange.request(&Command::ApprovalResponse(response)).await
            // Another page may have been faster.
            && !matches!(error.code, ErrorCode::TooLate | ErrorCode::NoPendingApproval)
        {
            return Err(Outcome::Failed(error));
        }
        // The reply comes before the event.
        chat.exchange.until(|now| now.approvals.iter().all(|pending| pending.approval_id != approval)).await?;
    }
    Ok(())
}

/// Answers a message of the user.
async fn answer(
    chat: &mut Chat,
    out: &mut Out,
    page: Page,
    (message, before, again): (&UiMessage, &[UiMessage], bool),
    said: Vec<InputPart>,
) -> Result<(), Outcome> {
    let details = json!({"ai": {"id": message.id, "tools": page.names}});
    let mut races = 0;
    let entry = loop {
        let snapshot = chat.snapshot();
        let waits_for_page = snapshot.pending.is_empty() && !snapshot.approvals.is_empty();
        if snapshot.turn.is_some() && (again || waits_for_page) {
            // The message replaces the answer that is being written, or the user goes on without deciding.
            chat.cancel().await?;
            chat.idle().await?;
        }
        let Place { parent, history } = place(chat, message, before, again).await?;
        if !chat.is_idle() && (parent.is_some() || !history.is_empty()) {
            chat.idle().await?;
            continue;
        }
        let asked = UserInput {
            history: Some(history).filter(|history| !history.is_empty()),
            details: Some(details.clone()),
            parent_id: parent,
            ..UserInput::plain(input(said.clone()))
        };
        match chat.exchange.ask_in_turn(asked).await {
            Ok(Some(entry)) => break entry,
            Ok(None) => return out.frame(ServerFrame::End { request_id: &out.request }).await,
            Err(error) => again_after(chat, error, &mut races).await?,
        }
    };
    let writer = Writer::new(page.names, BTreeSet::new());
    let stream = Stream::new(chat, out, writer, answer_id(&entry)).answering(&entry);
    stream.run(page.aborted, page.on_abort).await
}

/// Waits for another turn that was faster, so that the same can be asked again.
async fn again_after(chat: &mut Chat, error: ErrorBody, races: &mut u32) -> Result<(), Outcome> {
    *races += 1;
    if *races > RACES_MAX || !matches!(error.code, ErrorCode::TurnRunning | ErrorCode::CompactionRunning) {
        return Err(Outcome::Failed(error));
    }
    chat.idle().await
}

/// Finds the place of a message of the user.
async fn place(chat: &mut Chat, message: &UiMessage, before: &[UiMessage], again: bool) -> Result<Place, Outcome> {
    if again && let Some(entry) = chat.said(&message.id).await? {
        return Ok(Place { parent: Some(entry.parent_id.clone()), history: Vec::new() });
    }
    let mut unknown: Vec<&UiMessage> = Vec::new();
    let mut place = None;
    for earlier in before.iter().rev() {
        if let Some(anchor) = chat.anchor(&earlier.id).await? {
            let steered: Vec<&str> = earlier.steered().collect();
            let tip = chat.tip(&anchor, &steered).await?;
            let parent = Some(Some(tip)).filter(|tip| *tip != chat.snapshot().leaf_id);
            place = Some(Place { parent, history: chat.results(earlier).await? });
            break;
        }
        unknown.push(earlier);
    }
    let mut place = place.unwrap_or_else(|| {
        let is_elsewhere = chat.snapshot().leaf_id.is_some() && (again || !before.is_empty());
        Place { parent: is_elsewhere.then_some(None), history: Vec::new() }
    });
    for earlier in unknown.into_iter().rev() {
        place.history.extend(earlier.history().map_err(Outcome::invalid)?);
    }
    Ok(place)
}

/// Goes on with a message of the assistant: its tools have outputs, or its approvals are answered.
async fn go_on(chat: &mut Chat, out: &mut Out, page: Page, message: &UiMessage) -> Result<(), Outcome> {
    let mut newest = chat.anchor(&message.id).await?;
    let anchor = newest.clone();
    for (entry, _) in message.calls().filter_map(named_call) {
        newest = chat.entry(&entry).await?.map(|entry| entry.entry_id.clone()).or(newest);
    }
    let Some(newest) = newest else {
        return Err(Outcome::invalid("the session has no such message to go on with"));
    };
    let anchor = anchor.unwrap_or_else(|| newest.clone());
    let mut races = 0;
    loop {
        let results = chat.results(message).await?;
        if results.is_empty() {
            break;
        }
        let steered: Vec<&str> = message.steered().collect();
        let tip = chat.tip(&anchor, &steered).await?;
        let parent = Some(Some(tip)).filter(|tip| *tip != chat.snapshot().leaf_id);
        let asked = UserInput {
            history: Some(results),
            details: Some(json!({"ai": {"answer": message.id, "tools": page.names}})),
            parent_id: parent,
            ..UserInput::plain(Input::Items(Vec::new()))
        };
        let entry = match chat.exchange.ask_in_turn(asked).await {
            Ok(entry) => entry,
            Err(error) => {
                again_after(chat, error, &mut races).await?;
                continue;
            }
        };
        let Some(entry) = entry else { return out.frame(ServerFrame::End { request_id: &out.request }).await };
        let writer = Writer::new(page.names, BTreeSet::new());
        let stream = Stream::new(chat, out, writer, message.id.clone()).answering(&entry);
        return stream.run(page.aborted, page.on_abort).await;
    }
    if chat.exchange.read_back(|entry| entry.entry_id == anchor).await?.is_none() {
        return Err(Outcome::invalid("the message is on another branch, and has nothing new to answer"));
    }
    let known = message.ended_calls().map(str::to_owned).collect();
    let mut writer = Writer::new(page.names, known);
    let path = chat.snapshot().path.iter();
    let mine: Vec<Arc<Entry>> = path.skip_while(|entry| entry.entry_id != anchor).cloned().collect();
    let seen = mine.iter().position(|entry| entry.entry_id == newest).map_or(1, |place| place + 1);
    mine[..seen].iter().for_each(|entry| writer.seen(entry));
    let is_complete = mine[seen..].iter().all(|entry| entry.message().is_none()) && chat.snapshot().turn.is_none();
    if !is_complete {
        chat.exchange.follow_after(&newest);
    } else if chat.snapshot().last_turn.is_some() {
        chat.exchange.retry().await?;
    } else {
        return Err(Outcome::invalid("the last message has nothing new to answer"));
    }
    let mut stream = Stream::new(chat, out, writer, message.id.clone());
    for refused in message.approvals().into_iter().filter(|answered| !answered.approved) {
        stream.writer.deny(refused.call);
    }
    stream.run(page.aborted, page.on_abort).await
}

/// Answers `resume`.
///
/// # Errors
/// Why there is no answer.
pub(super) async fn resume(way: Way, mut resume: Resume, out: &mut Out, aborted: Aborted) -> Result<(), Outcome> {
    let Wishes { on_abort, .. } = resume.wishes().map_err(Outcome::invalid)?;
    let mut chat = match Chat::open(&way, &resume.id, None).await {
        Err(Outcome::NoSession) => return out.frame(ServerFrame::NoActive { request_id: &out.request }).await,
        opened => opened?,
    };
    let is_running = chat.snapshot().turn.is_some();
    let input = if is_running { chat.exchange.read_back(is_users).await? } else { None };
    let Some(input) = input else {
        return out.frame(ServerFrame::NoActive { request_id: &out.request }).await;
    };
    out.frame(ServerFrame::Start { request_id: &out.request }).await?;
    let path = chat.snapshot().path.iter().rev();
    let newest: Vec<&Entry> =
        path.take_while(|entry| entry.entry_id != input.entry_id).chain([&input]).map(Arc::as_ref).collect();
    let (id, names) = message_of(&input.entry_id, newest.iter().copied());
    chat.exchange.follow_after(&input.entry_id);
    let stream = Stream::new(&mut chat, out, Writer::new(names, BTreeSet::new()), id).answering(&input.entry_id);
    stream.run(aborted, on_abort).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(short: &[(&str, &str)]) -> Vec<UiMessage> {
        let message = |(id, role): &(&str, &str)| {
            serde_json::from_value(json!({"id": id, "role": role, "parts": [{"type": "text", "text": id}]})).unwrap()
        };
        short.iter().map(message).collect()
    }

    /// Returns what is asked, in short.
    fn asked(messages: &[UiMessage], trigger: Trigger, message_id: Option<&str>) -> String {
        match Asked::read(messages, trigger, message_id) {
            Ok(Asked::Message { message, before, again }) => {
                format!("{} after {}{}", message.id, before.len(), if again { " again" } else { "" })
            }
            Ok(Asked::GoesOn { message }) => format!("more of {}", message.id),
            Err(_) => "nothing".to_owned(),
        }
    }

    #[test]
    fn what_is_asked_follows_from_the_last_message() {
        use Trigger::{RegenerateMessage, SubmitMessage};
        let all = messages(&[("u1", "user"), ("a1", "assistant"), ("u2", "user"), ("a2", "assistant")]);
        for (count, trigger, id, expected) in [
            (1, SubmitMessage, None, "u1 after 0"),
            (3, SubmitMessage, None, "u2 after 2"),
            (3, SubmitMessage, Some("u2"), "u2 after 2 again"),
            (4, SubmitMessage, Some("a2"), "more of a2"),
            (4, SubmitMessage, None, "more of a2"),
            (3, SubmitMessage, Some("a1"), "more of a1"),
            (3, RegenerateMessage, Some("a2"), "u2 after 2 again"),
            (3, RegenerateMessage, None, "u2 after 2 again"),
            (4, RegenerateMessage, None, "u2 after 2 again"),
            (1, RegenerateMessage, Some("u1"), "u1 after 0 again"),
            (0, SubmitMessage, None, "nothing"),
        ] {
            assert_eq!(asked(&all[..count], trigger, id), expected, "{count} {trigger:?} {id:?}");
        }
        assert_eq!(asked(&messages(&[("s", "system")]), SubmitMessage, None), "nothing");
    }
}
