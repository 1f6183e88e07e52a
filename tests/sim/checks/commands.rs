//! Checks of commands: one reply each, before their events; nothing acknowledged is lost or duplicated.

use crate::{
    checks::log::{queued, taken_out},
    history::{History, What},
};
use reseed_protocol::{
    CommandId, EntryData, ErrorCode, Part,
    command::{Command, outcomes::OF_ANY},
    content::{Input, InputContent},
    event::Event,
    reply::Reply,
    tree::AppendCustomMessage,
    turn::{QueueItem, UserInput},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Errors that do not say what happened to the command, or that may not recur.
const PASSING: &[ErrorCode] =
    &[ErrorCode::StoreFailed, ErrorCode::ReadOnly, ErrorCode::ShuttingDown, ErrorCode::Overloaded, ErrorCode::Internal];

/// Returns the commands that caused an event.
fn causes(event: &Event) -> Vec<&CommandId> {
    match event {
        Event::EntryAppended(appended) => appended.command_id.iter().collect(),
        Event::TurnStarted(started) => started.command_ids.iter().collect(),
        Event::SessionUpdated(updated) => updated.command_id.iter().collect(),
        Event::ContextCompacted(compacted) => compacted.command_id.iter().collect(),
        Event::CompactionUndone(undone) => undone.command_id.iter().collect(),
        Event::QueueItemAdded(added) => vec![&added.item.command_id],
        Event::QueueItemRemoved(removed) => removed.cancelled_by.iter().chain([&removed.command_id]).collect(),
        Event::QueueReordered(reordered) => reordered.command_id.iter().collect(),
        Event::QueueReleased(released) => released.command_id.iter().collect(),
        _ => Vec::new(),
    }
}

/// On the connection that sent a command first, the reply precedes what the command caused.
pub(crate) fn replies_precede_events(history: &History) -> Result<(), String> {
    let mut sent = history.sent.iter().peekable();
    let mut known: BTreeSet<&CommandId> = BTreeSet::new();
    let mut waiting: BTreeSet<(u64, &CommandId)> = BTreeSet::new();
    for (at, given) in history.given.iter().enumerate() {
        while let Some(sent) = sent.next_if(|sent| sent.given <= at) {
            if known.insert(&sent.id) {
                waiting.insert((sent.connection, &sent.id));
            }
        }
        match &given.what {
            What::Reply(id, _) => {
                waiting.remove(&(given.connection, id));
            }
            What::Durable { seq, .. } => {
                let event = usize::try_from(*seq).ok().and_then(|seq| history.events.get(seq.checked_sub(1)?));
                let early = event.map(causes).unwrap_or_default();
                if let Some(id) = early.into_iter().find(|id| waiting.contains(&(given.connection, *id))) {
                    return Err(format!("client {} is given event {seq} of `{id}` before the reply", given.client));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// No command has more replies than it was sent, and on a connection that lives to the end none lacks one.
pub(crate) fn answered_once(history: &History) -> Result<(), String> {
    let mut open: BTreeMap<(u64, &CommandId), i64> = BTreeMap::new();
    for sent in &history.sent {
        *open.entry((sent.connection, &sent.id)).or_default() += 1;
    }
    let mut over: BTreeSet<u64> = BTreeSet::new();
    for given in &history.given {
        match &given.what {
            What::Reply(id, _) => *open.entry((given.connection, id)).or_default() -= 1,
            What::Closed(_) | What::Cut => drop(over.insert(given.connection)),
            _ => {}
        }
    }
    for ((connection, id), lacking) in open {
        if lacking < 0 {
            return Err(format!("`{id}` was answered more often than sent on connection {connection}"));
        }
        if lacking > 0 && !over.contains(&connection) {
            return Err(format!("`{id}` was never answered on connection {connection}"));
        }
    }
    Ok(())
}

/// Returns the replies to each command, by id.
fn replies(history: &History) -> BTreeMap<&CommandId, Vec<&Reply>> {
    let mut replies: BTreeMap<&CommandId, Vec<&Reply>> = BTreeMap::new();
    for given in &history.given {
        if let What::Reply(id, reply) = &given.what {
            replies.entry(id).or_default().push(reply);
        }
    }
    replies
}

/// Returns what was sent under each id.
fn contents(history: &History) -> BTreeMap<&CommandId, Vec<&Command>> {
    let mut contents: BTreeMap<&CommandId, Vec<&Command>> = BTreeMap::new();
    for sent in &history.sent {
        let sent_so_far = contents.entry(&sent.id).or_default();
        if !sent_so_far.contains(&&sent.command) {
            sent_so_far.push(&sent.command);
        }
    }
    contents
}

/// Returns true if this reply can be the one to this command: it is of the type that the table states, or an error that
/// can refuse it.
fn fits(command: &Command, reply: &Reply) -> bool {
    match reply {
        Reply::Error(error) => OF_ANY.contains(&error.code) || command.spec().own_errors().contains(&error.code),
        reply => command.spec().reply == reply.name(),
    }
}

/// Returns each reply with the command that it answers.
///
/// A reply names only the id. A client that reuses the id of a command in progress can get the reply to the later one
/// first: `register_tools` is answered at once, while a `user_input` waits for its hook. The type of the reply then
/// says which command it answers. Where it does not, that connection's later replies under the id are left out.
fn answers(history: &History) -> BTreeMap<&CommandId, Vec<(&Command, &Reply)>> {
    let mut sent = history.sent.iter().peekable();
    let mut open: BTreeMap<(u64, &CommandId), VecDeque<&Command>> = BTreeMap::new();
    let mut unclear: BTreeSet<(u64, &CommandId)> = BTreeSet::new();
    let mut answers: BTreeMap<&CommandId, Vec<(&Command, &Reply)>> = BTreeMap::new();
    for (at, given) in history.given.iter().enumerate() {
        while let Some(sent) = sent.next_if(|sent| sent.given <= at) {
            open.entry((sent.connection, &sent.id)).or_default().push_back(&sent.command);
        }
        let What::Reply(id, reply) = &given.what else { continue };
        let key = (given.connection, id);
        let Some(open) = open.get_mut(&key).filter(|_| !unclear.contains(&key)) else { continue };
        let is_one = open.iter().all(|command| Some(command) == open.front());
        let found = open.iter().position(|command| fits(command, reply)).filter(|_| !is_one);
        let Some(command) = open.remove(found.unwrap_or(0)) else { continue };
        if !is_one && open.iter().any(|other| *other != command && fits(other, reply)) {
            unclear.insert(key);
            continue;
        }
        answers.entry(id).or_default().push((command, reply));
    }
    answers
}

/// Returns a successful reply without its duplicate mark, and whether it had one.
fn done(reply: &Reply) -> Option<(Reply, bool)> {
    let mut plain = reply.clone();
    let repeated = plain.duplicate_mut()?.take() == Some(true);
    Some((plain, repeated))
}

/// A command that was executed is not executed again, and gets the same reply; only different content is a conflict,
/// and always is.
pub(crate) fn repeats_are_answered_alike(history: &History) -> Result<(), String> {
    for (id, answers) in answers(history) {
        let mut first: Option<(&Command, Reply)> = None;
        for (command, reply) in answers {
            // The result of a tool may be repeated without being written again, and so may the answer to an approval;
            // what they answered may be far back by then.
            if !command.writes() || matches!(command, Command::ToolResult(_) | Command::ApprovalResponse(_)) {
                continue;
            }
            match (&first, done(reply)) {
                // Of an input changed by a hook only the kind is stored, so that nothing reveals its text: another
                // input of that kind with the same id counts as the same.
                (Some((first, _)), Some((_, true)))
                    if *first != command
                        && history.hooks.server > 0
                        && matches!((first, command), (Command::UserInput(_), Command::UserInput(_))) => {}
                (Some((first, _)), Some(_)) if *first != command => {
                    return Err(format!("`{id}` was done and is then done with other content"));
                }
                (Some((_, first)), Some((again, _))) if *first != again => {
                    return Err(format!("`{id}` is answered {again:?}, before {first:?}"));
                }
                (Some(_), Some((_, false))) => return Err(format!("`{id}` is done twice")),
                (None, Some((reply, _))) => first = Some((command, reply)),
                (Some((first, _)), None) if *first == command => {
                    let Reply::Error(error) = reply else { continue };
                    if !PASSING.contains(&error.code) {
                        return Err(format!("`{id}` was done and is then refused: {}", error.code));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Counts how often a command is in the log as what it requested, waits in the queue, or was removed from it; `None`
/// for commands that leave no trace of their own.
fn traces(history: &History, id: &CommandId, commands: &[&Command]) -> Option<Result<usize, String>> {
    let entries: Vec<&EntryData> = history
        .events
        .iter()
        .filter_map(|event| match event {
            Event::EntryAppended(appended) if appended.command_id.as_ref() == Some(id) => Some(&appended.entry.data),
            _ => None,
        })
        .collect();
    let updates = history
        .events
        .iter()
        .filter(|event| matches!(event, Event::SessionUpdated(updated) if updated.command_id.as_ref() == Some(id)))
        .count();
    let undone = history
        .events
        .iter()
        .filter(|event| matches!(event, Event::CompactionUndone(undone) if undone.command_id.as_ref() == Some(id)))
        .count();
    // What waits according to the log must wait according to the server too.
    let queued = queued(&history.events);
    let is_known = |item: &&QueueItem| match &history.ends {
        Some((left, _)) => left.queue.contains(item),
        None => true,
    };
    let waits = queued.into_iter().filter(|item| item.command_id == *id).filter(is_known);
    let taken_out = taken_out(&history.events).into_iter().filter(|taken| *taken == id).count();
    match commands.first()? {
        Command::UserInput(_) | Command::AppendCustomMessage(_) => {
            let said = entries.iter().filter_map(|data| match data {
                EntryData::Message(message) => Some(message.content.as_slice()),
                EntryData::CustomMessage(custom) => Some(custom.content.as_slice()),
                _ => None,
            });
            let found: Vec<&[Part]> = said.chain(waits.map(|item| item.content.as_slice())).collect();
            let asked = |content: &[Part]| commands.iter().any(|command| says(command, content));
            match found.iter().all(|content| asked(content)) {
                true => Some(Ok(found.len() + taken_out)),
                false => Some(Err(format!("`{id}` says something else in the log than it was sent with"))),
            }
        }
        // Different content under the same id may be of another kind.
        _ if commands.len() > 1 => None,
        Command::SetModel(_)
        | Command::SetContextStrategy(_)
        | Command::SetInstructions(_)
        | Command::SetOptions(_)
        | Command::RenameSession(_)
        | Command::PinEntry(_)
        | Command::UnpinEntry(_)
        | Command::Navigate(_) => Some(Ok(updates)),
        Command::UndoCompaction(_) => Some(Ok(undone)),
        Command::SetLabel(_) | Command::AppendCustom(_) => Some(Ok(entries.len())),
        _ => None,
    }
}

fn says(command: &Command, content: &[Part]) -> bool {
    let said = match command {
        Command::UserInput(UserInput { input: Input::Text(text), .. })
        | Command::AppendCustomMessage(AppendCustomMessage { content: InputContent::Text(text), .. }) => text,
        _ => return false,
    };
    // A hook may have replaced its text before anybody saw it.
    let is_hooks = |text: &str| text.starts_with("hook ");
    matches!(content, [Part::Text { text }] if said == text || is_hooks(text))
}

/// Whatever was acknowledged is in the log or in the queue, once; everything else is there at most once.
pub(crate) fn nothing_acknowledged_is_lost(history: &History) -> Result<(), String> {
    let replies = replies(history);
    for (id, commands) in contents(history) {
        let Some(traces) = traces(history, id, &commands) else { continue };
        let traces = traces?;
        let answers = replies.get(id).map_or(&[][..], Vec::as_slice);
        let acknowledged =
            answers.iter().any(|reply| matches!(reply, Reply::Accepted(_) | Reply::Ok(_) | Reply::Navigated(_)));
        let passing = |reply: &&Reply| matches!(reply, Reply::Error(error) if PASSING.contains(&error.code));
        // A command that was refused may be sent again, carried out, and its answer lost with the connection.
        let sent = history.sent.iter().filter(|sent| sent.id == *id).count();
        let refused = answers.len() >= sent && !answers.iter().any(passing) && commands.len() == 1;
        match (acknowledged, traces) {
            (true, 1) | (false, 0) => {}
            (false, 1) if !refused => {}
            (true, found) => return Err(format!("`{id}` was acknowledged and is there {found} times")),
            (false, found) => return Err(format!("`{id}` was not acknowledged and is there {found} times")),
        }
    }
    let mut results: BTreeMap<&str, usize> = BTreeMap::new();
    for event in &history.events {
        let Event::EntryAppended(appended) = event else { continue };
        let EntryData::Message(message) = &appended.entry.data else { continue };
        for part in &message.content {
            if let Part::ToolResult { call_id, .. } = part {
                *results.entry(call_id.as_str()).or_default() += 1;
            }
        }
    }
    for sent in &history.sent {
        let Command::ToolResult(result) = &sent.command else { continue };
        let answers = replies.get(&sent.id).map_or(&[][..], Vec::as_slice);
        let acknowledged = answers.iter().any(|reply| matches!(reply, Reply::Ok(_)));
        let found = results.get(result.call_id.as_str()).copied().unwrap_or_default();
        if found > 1 || (acknowledged && found == 0) {
            return Err(format!("call `{}` has {found} results, one was acknowledged", result.call_id));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        history::{Given, Sent},
        script::say,
    };
    use reseed_protocol::ErrorBody;
    use serde_json::{Value, json};

    const OK: &str = r#"{"type":"ok","payload":{}}"#;

    fn accepted(entry: &str, duplicate: bool) -> String {
        let mut payload = json!({ "entryId": entry, "queued": false, "asOfSeq": 8 });
        if duplicate {
            payload["duplicate"] = json!(true);
        }
        json!({ "type": "accepted", "payload": payload }).to_string()
    }

    fn refused(code: ErrorCode) -> String {
        let error = ErrorBody::new(code, "refused");
        json!({ "type": "error", "payload": serde_json::to_value(error).expect("an error is JSON") }).to_string()
    }

    /// What a connection does with one id, in order: it sends a command, or receives a reply.
    enum Step {
        Sends(Command),
        Gets(String),
    }

    use Step::{Gets, Sends};

    fn register() -> Command {
        let command: Value = json!({ "type": "register_tools", "payload": { "tools": [] } });
        serde_json::from_value(command).expect("a command")
    }

    fn history(steps: Vec<Step>) -> History {
        let id: CommandId = "client1-command0001".parse().expect("an id");
        let mut history = History::default();
        for step in steps {
            match step {
                Sends(command) => {
                    let given = history.given.len();
                    history.sent.push(Sent { connection: 1, id: id.clone(), command, given });
                }
                Gets(reply) => {
                    let reply = serde_json::from_str(&reply).expect("a reply");
                    let what = What::Reply(id.clone(), Box::new(reply));
                    history.given.push(Given { client: 1, connection: 1, durable: 0, what });
                }
            }
        }
        history
    }

    #[test]
    fn a_reply_is_compared_with_those_to_the_same_command() {
        let (one, other) = (|| Sends(say("one", None)), || Sends(say("other", None)));
        let (register, ok) = (|| Sends(register()), || Gets(OK.to_owned()));
        let (first, again) = (|| Gets(accepted("e1", false)), || Gets(accepted("e1", true)));
        let conflict = || Gets(refused(ErrorCode::IdempotencyConflict));
        let table: Vec<(&str, Vec<Step>, Option<&str>)> = vec![
            ("a repeat", vec![one(), first(), one(), again()], None),
            ("a repeat in progress", vec![one(), one(), first(), again()], None),
            ("an offer that overtakes", vec![one(), register(), one(), ok(), first(), again()], None),
            ("an offer before", vec![register(), ok(), one(), register(), ok(), first()], None),
            ("a conflict", vec![one(), first(), other(), conflict()], None),
            ("a conflict in progress", vec![one(), other(), conflict(), first()], None),
            ("executed twice", vec![one(), first(), one(), first()], Some("is done twice")),
            ("another reply", vec![one(), first(), one(), Gets(accepted("e2", true))], Some("is answered")),
            (
                "executed twice beside an offer",
                vec![one(), register(), one(), ok(), first(), first()],
                Some("is done twice"),
            ),
            (
                "another reply beside an offer",
                vec![one(), register(), one(), ok(), first(), Gets(accepted("e2", true))],
                Some("is answered"),
            ),
            ("other content", vec![one(), first(), other(), again()], Some("done with other content")),
            ("then refused", vec![one(), first(), one(), conflict()], Some("then refused")),
            ("a reply of another type", vec![one(), first(), one(), ok()], Some("is answered")),
        ];
        for (name, steps, broken) in table {
            let found = repeats_are_answered_alike(&history(steps));
            match broken {
                None => assert_eq!(found, Ok(()), "{name}"),
                Some(said) => assert!(found.as_ref().is_err_and(|why| why.contains(said)), "{name}: {found:?}"),
            }
        }
    }
}
