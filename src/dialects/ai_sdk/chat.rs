//! A chat's session, as the door's client has it open.

use super::{Outcome, messages::UiMessage, writer::named_call};
use crate::exchange::command_id;
use reseed_client::{
    Client, Connect, Lost, Opening, Options, Pending, Session, SessionEnd, SessionEvent, Stop, Transport, Unanswered,
    Update, fold::Snapshot,
};
use reseed_protocol::{
    CallId, CommandId, Entry, EntryId, ErrorBody, ErrorCode,
    command::{Command, Empty},
    content::{Message, Part, Role},
    event::Event,
    reply::Reply,
    session::{Host, SessionRole, SessionState, SetInstructions, SetModel},
    tools::ToolOffer,
    tree::{GetEntries, GetTree, Tree},
    turn::CancelTurn,
};
use std::{collections::VecDeque, sync::Arc};

/// The name of the door's clients. A newer one takes over the tools of an older one of the same session.
const CLIENT: &str = "ai_sdk";

/// Entries that are read with the session: most messages continue from one of them.
const ENTRIES: u32 = 64;

/// Entries of a further page.
const PAGE: u32 = 500;

/// Begins the id of a message that no page of the AI SDK has sent. The entry follows.
const ELSEWHERE: &str = "input_";

/// The number of temporary refusals after which a session counts as not available.
const REFUSALS_MAX: u32 = 3;

/// A way to the server that several clients use.
#[derive(Clone)]
pub(super) struct Way(pub(super) Arc<dyn Connect>);

impl Connect for Way {
    fn connect(&self) -> Pending<'static, Result<Box<dyn Transport>, Lost>> {
        self.0.connect()
    }
}

impl Way {
    /// Returns a client. It connects when it is first awaited.
    pub(super) fn client(&self) -> Client {
        Client::over(self.clone(), Options { client_id: Some(CLIENT.to_owned()), ..Options::default() })
    }
}

/// The session of a chat.
pub(super) struct Chat {
    way: Way,
    client: Client,
    session: Session,
    /// Updates that arrived while a reply was awaited.
    kept: VecDeque<Update>,
}

/// Returns what the door has noted on an entry.
pub(super) fn noted<'a>(entry: &'a Entry, key: &str) -> Option<&'a serde_json::Value> {
    entry.message()?.details.as_ref()?.get("ai")?.get(key)
}

/// Returns the id by which pages know a message of the user.
pub(super) fn page_id(entry: &Entry) -> String {
    let noted = noted(entry, "id").and_then(serde_json::Value::as_str);
    noted.map_or_else(|| format!("{ELSEWHERE}{}", entry.entry_id), str::to_owned)
}

/// Returns true if the entry is the user's message with this id.
fn is_said(entry: &Entry, id: &str) -> bool {
    match noted(entry, "id") {
        Some(noted) => noted == id,
        None => is_users(entry) && id.strip_prefix(ELSEWHERE) == Some(entry.entry_id.as_str()),
    }
}

/// Returns true if the entry is a message of the user.
pub(super) fn is_users(entry: &Entry) -> bool {
    entry.message().is_some_and(|message| message.role == Role::User)
}

impl Chat {
    /// Opens the session of a chat, or creates it, with these tools of the page. Without `tools`, opens one that exists
    /// as an observer, which leaves the tools of other pages as they are.
    pub(super) async fn open(way: &Way, chat: &str, tools: Option<Vec<ToolOffer>>) -> Result<Self, Outcome> {
        let mut client = way.client();
        let offers = tools.as_ref().is_some_and(|tools| !tools.is_empty());
        let role = tools.is_none().then_some(SessionRole::Observer);
        let opening = Opening { entries: Some(ENTRIES), role, tools, ..Opening::default() };
        let session = client.open_once(command_id(CLIENT, chat), opening);
        let mut chat = Self { way: way.clone(), client, session, kept: VecDeque::new() };
        let mut refusals = 0;
        loop {
            match chat.receive().await? {
                Update::Opened { session: opened, .. } if opened == session => break,
                Update::Retrying { session: refused, error, .. } if refused == session => {
                    refusals += 1;
                    if refusals >= REFUSALS_MAX {
                        let message = error.map_or("the chat is not available now".to_owned(), |error| error.message);
                        return Err(Outcome::Failed(message));
                    }
                }
                _ => {}
            }
        }
        let is_ours = |host: &Host| host.client_id.as_deref() == Some(CLIENT);
        if offers && !chat.snapshot().host.as_ref().is_some_and(is_ours) {
            // The page of the server may host the session. The tools of the page that asks now are those that count.
            chat.ask(&Command::TakeOverHost(Empty {})).await?;
        }
        Ok(chat)
    }

    /// Returns the session as it is now.
    pub(super) fn snapshot(&self) -> &Snapshot {
        self.client.snapshot(self.session).expect("the session was opened")
    }

    /// Returns the next update. The snapshot may be ahead of it.
    pub(super) async fn next(&mut self) -> Result<Update, Outcome> {
        match self.kept.pop_front() {
            Some(update) => Ok(update),
            None => self.receive().await,
        }
    }

    async fn receive(&mut self) -> Result<Update, Outcome> {
        match self.client.next().await {
            // An observer that names no session is told to name one if there is none.
            Update::Ended { why: SessionEnd::Refused(error), .. }
                if matches!(error.code, ErrorCode::SessionNotFound | ErrorCode::MissingField) =>
            {
                Err(Outcome::NoSession)
            }
            Update::Ended { why, .. } => Err(Outcome::Failed(why.to_string())),
            Update::Stopped(Stop::Lost(lost)) => Err(Outcome::Closed(lost)),
            Update::Stopped(stop) => Err(Outcome::Failed(stop.to_string())),
            Update::Disconnected { lost, .. } if super::ends_socket(&lost) => Err(Outcome::Closed(lost)),
            update => Ok(update),
        }
    }

    /// Sends a command, and returns its id and the reply.
    pub(super) async fn send(&mut self, command: &Command) -> Result<(CommandId, Result<Reply, ErrorBody>), Outcome> {
        let sent = self.client.send(self.session, command).map_err(|why| Outcome::Failed(why.to_string()))?;
        loop {
            match self.receive().await? {
                Update::Reply { id, result } if id == sent => {
                    return match result {
                        Ok(reply) => Ok((sent, Ok(reply))),
                        Err(Unanswered::Refused(error)) => Ok((sent, Err(error))),
                        Err(why) => Err(Outcome::Failed(why.to_string())),
                    };
                }
                update => self.kept.push_back(update),
            }
        }
    }

    /// Sends a command, and returns the reply.
    pub(super) async fn ask(&mut self, command: &Command) -> Result<Reply, Outcome> {
        self.send(command).await?.1.map_err(|error| Outcome::Failed(error.message))
    }

    /// Cancels the running turn, if there is one.
    pub(super) async fn cancel(&mut self) -> Result<(), Outcome> {
        let cancel = Command::CancelTurn(CancelTurn { turn_id: None });
        if self.snapshot().role == SessionRole::Observer {
            let mut writer = self.way.client();
            let session = writer.open(Some(self.snapshot().session_id.clone()), Opening::default());
            return match writer.request(session, &cancel).await {
                Ok(_) => Ok(()),
                Err(error) => Err(Outcome::Failed(error.to_string())),
            };
        }
        match self.send(&cancel).await?.1 {
            Err(error) if error.code != ErrorCode::NoTurn => Err(Outcome::Failed(error.message)),
            _ => Ok(()),
        }
    }

    /// Makes the model and the instructions those that are wanted.
    pub(super) async fn configure(
        &mut self,
        model: Option<String>,
        reasoning_effort: Option<String>,
        instructions: Option<String>,
    ) -> Result<(), Outcome> {
        let snapshot = self.snapshot();
        let mut commands = Vec::new();
        if model.is_some() || reasoning_effort.is_some() {
            let model = model.unwrap_or_else(|| snapshot.model.clone());
            if model != snapshot.model || reasoning_effort != snapshot.settings.reasoning_effort {
                commands.push(Command::SetModel(SetModel { model, reasoning_effort }));
            }
        }
        if instructions.is_some() && instructions != snapshot.settings.instructions {
            commands.push(Command::SetInstructions(SetInstructions { instructions }));
        }
        for command in &commands {
            self.ask(command).await?;
        }
        Ok(())
    }

    /// Returns true if neither a turn nor a compaction that holds it up is running.
    pub(super) fn is_idle(&self) -> bool {
        self.snapshot().state == SessionState::Idle
    }

    /// Waits until the session is in this state. Updates are kept.
    pub(super) async fn until(&mut self, wanted: impl Fn(&Snapshot) -> bool) -> Result<(), Outcome> {
        while !wanted(self.snapshot()) {
            let update = self.receive().await?;
            self.kept.push_back(update);
        }
        Ok(())
    }

    /// Waits until the session is idle.
    pub(super) async fn idle(&mut self) -> Result<(), Outcome> {
        self.kept.clear();
        while !self.is_idle() {
            self.receive().await?;
        }
        Ok(())
    }

    /// Reads the path back until an entry fulfils this, or to its beginning.
    pub(super) async fn read_back(&mut self, wanted: impl Fn(&Entry) -> bool) -> Result<Option<Arc<Entry>>, Outcome> {
        loop {
            if let Some(found) = self.snapshot().path.iter().rev().find(|entry| wanted(entry)) {
                return Ok(Some(found.clone()));
            }
            if !self.read_older().await? {
                return Ok(None);
            }
        }
    }

    /// Reads a page of the path before what is known of it. Returns false at its beginning.
    pub(super) async fn read_older(&mut self) -> Result<bool, Outcome> {
        let path = &self.snapshot().path;
        let Some(before) = path.first().filter(|_| path.more()).map(|first| first.entry_id.clone()) else {
            return Ok(false);
        };
        let limit = Some(PAGE);
        let page = GetEntries { before: Some(before), path: Some(true), limit, after: None, entry_id: None };
        let Reply::Entries(page) = self.ask(&Command::GetEntries(page)).await? else { return Ok(false) };
        let has_entries = !page.items.is_empty();
        if let Some(snapshot) = self.client.machine_mut().snapshot_mut(self.session) {
            snapshot.add_entries(page, true);
        }
        Ok(has_entries)
    }

    /// Returns the entry with this id, on any branch.
    pub(super) async fn entry(&mut self, id: &EntryId) -> Result<Option<Arc<Entry>>, Outcome> {
        if let Some(known) = self.snapshot().entries.get(id) {
            return Ok(Some(known.clone()));
        }
        let one = GetEntries { entry_id: Some(id.clone()), before: None, after: None, limit: None, path: None };
        match self.send(&Command::GetEntries(one)).await?.1 {
            Ok(Reply::Entries(page)) => Ok(page.items.into_iter().next().map(Arc::new)),
            Err(error) if error.code != ErrorCode::EntryNotFound => Err(Outcome::Failed(error.message)),
            _ => Ok(None),
        }
    }

    /// Returns the entry of the user's message with this id on the path, however far back.
    pub(super) async fn said(&mut self, id: &str) -> Result<Option<Arc<Entry>>, Outcome> {
        self.read_back(|entry| is_said(entry, id)).await
    }

    /// Returns the entry of the user's message that the message with this id is, or answers; `None` if the session does
    /// not have it. A message that a page has named itself is looked for in what is known of the path.
    pub(super) async fn anchor(&mut self, id: &str) -> Result<Option<EntryId>, Outcome> {
        if let Some(found) = self.snapshot().path.iter().rev().find(|entry| is_said(entry, id)) {
            return Ok(Some(found.entry_id.clone()));
        }
        let entry = id.strip_prefix("msg_").or_else(|| id.strip_prefix(ELSEWHERE));
        let Some(entry) = entry.and_then(|entry| entry.parse::<EntryId>().ok()) else { return Ok(None) };
        Ok(self.entry(&entry).await?.filter(|entry| is_users(entry)).map(|entry| entry.entry_id.clone()))
    }

    /// Returns the last entry of the answer to a user's message. `steered` are further messages of the user in it.
    pub(super) async fn tip(&mut self, anchor: &EntryId, steered: &[&str]) -> Result<EntryId, Outcome> {
        let mut tip = anchor.clone();
        let path = &self.snapshot().path;
        if let Some(place) = path.iter().position(|entry| entry.entry_id == *anchor) {
            for entry in path.iter().skip(place + 1) {
                if is_users(entry) && !steered.contains(&entry.entry_id.as_str()) {
                    break;
                }
                tip = entry.entry_id.clone();
            }
            return Ok(tip);
        }
        let mut tree = self.tree(&tip).await?;
        loop {
            let goes_on = |kind: &str, id: &EntryId| kind != "message:user" || steered.contains(&id.as_str());
            let below = tree
                .nodes
                .iter()
                .rev()
                .find(|node| node.parent_id.as_ref() == Some(&tip) && goes_on(&node.kind, &node.entry_id));
            match below {
                Some(node) => tip = node.entry_id.clone(),
                None => {
                    let cut = tree.nodes.iter().any(|node| node.entry_id == tip && node.child_count > 0)
                        && !tree.nodes.iter().any(|node| node.parent_id.as_ref() == Some(&tip));
                    if !cut {
                        return Ok(tip);
                    }
                    tree = self.tree(&tip).await?;
                }
            }
        }
    }

    async fn tree(&mut self, root: &EntryId) -> Result<Tree, Outcome> {
        match self.ask(&Command::GetTree(GetTree { root_id: Some(root.clone()), depth: None })).await? {
            Reply::Tree(tree) => Ok(tree),
            _ => Err(Outcome::Failed("the server sent no tree".to_owned())),
        }
    }

    /// Returns the results of tools in this message that the session does not have yet.
    pub(super) async fn results(&mut self, message: &UiMessage) -> Result<Vec<Message>, Outcome> {
        let mut results = Vec::new();
        for output in message.outputs() {
            let Some((entry, number)) = named_call(&output.call) else { continue };
            let Some(entry) = self.entry(&entry).await? else { continue };
            let call = entry.message().and_then(|message| message.tool_calls().nth(number));
            let Some(call_id) = call.map(|(call_id, ..)| call_id.clone()) else { continue };
            if !self.has_result(&call_id) {
                results.push(super::messages::result(call_id, output));
            }
        }
        Ok(results)
    }

    fn has_result(&self, call: &CallId) -> bool {
        let is_it = |part: &Part| matches!(part, Part::ToolResult { call_id, .. } if call_id == call);
        let has = |entry: &Arc<Entry>| entry.message().is_some_and(|message| message.content.iter().any(is_it));
        self.snapshot().path.iter().rev().any(has)
    }

    /// Waits until queued input starts its turn. Returns the input's entry; `None` if it was removed.
    pub(super) async fn started(&mut self, command: &CommandId) -> Result<Option<EntryId>, Outcome> {
        loop {
            if let Update::Event { event: SessionEvent::Durable(_, Event::QueueItemRemoved(removed)), .. } =
                self.next().await?
                && removed.command_id == *command
            {
                return Ok(removed.entry_id);
            }
        }
    }
}
