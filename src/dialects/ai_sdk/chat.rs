//! A chat's session, as the door's client has it open.

use super::{Outcome, messages::UiMessage, writer::named_call};
use crate::exchange::{Exchange, Place, Wanted, command_id};
use reseed_client::{Client, Connect, Lost, Opening, Options, Pending, Transport, fold::Snapshot};
use reseed_protocol::{
    CallId, Entry, EntryId, ErrorBody, ErrorCode,
    command::{Command, Empty},
    content::{Message, Part, Role},
    reply::Reply,
    session::{Host, SessionRole, SessionState},
    tools::ToolOffer,
    tree::{GetTree, Tree},
    turn::CancelTurn,
};
use std::sync::Arc;

/// The name of the door's clients. A newer one takes over the tools of an older one of the same session.
const CLIENT: &str = "ai_sdk";

/// Entries that are read with the session: most messages continue from one of them.
const ENTRIES: u32 = 64;

/// Begins the id of a message that no page of the AI SDK has sent. The entry follows.
const ELSEWHERE: &str = "input_";

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
    pub(super) exchange: Exchange,
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
        let offers = tools.as_ref().is_some_and(|tools| !tools.is_empty());
        let role = tools.is_none().then_some(SessionRole::Observer);
        let opening = Opening { entries: Some(ENTRIES), role, tools, ..Opening::default() };
        let opened = Exchange::open_with(way.client(), Place::Once(command_id(CLIENT, chat)), opening).await;
        let exchange = opened.map_err(|error| match error.code {
            // An observer that names no session is told to name one if there is none.
            ErrorCode::SessionNotFound | ErrorCode::MissingField => Outcome::NoSession,
            _ => Outcome::Failed(error),
        })?;
        let mut chat = Self { way: way.clone(), exchange };
        let is_ours = |host: &Host| host.client_id.as_deref() == Some(CLIENT);
        if offers && !chat.snapshot().host.as_ref().is_some_and(is_ours) {
            // The page of the server may host the session. The tools of the page that asks now are those that count.
            chat.exchange.request(&Command::TakeOverHost(Empty {})).await?;
        }
        Ok(chat)
    }

    /// Returns the session as it is now.
    pub(super) fn snapshot(&self) -> &Snapshot {
        self.exchange.snapshot()
    }

    /// Cancels the running turn, if there is one.
    pub(super) async fn cancel(&mut self) -> Result<(), Outcome> {
        let cancel = Command::CancelTurn(CancelTurn { turn_id: None });
        let cancelled = if self.snapshot().role == SessionRole::Observer {
            let session = Place::Session(self.snapshot().session_id.clone());
            Exchange::open_with(self.way.client(), session, Opening::default()).await?.request(&cancel).await
        } else {
            self.exchange.request(&cancel).await
        };
        match cancelled {
            Err(error) if error.code != ErrorCode::NoTurn => Err(Outcome::Failed(error)),
            _ => Ok(()),
        }
    }

    /// Makes the settings those that are wanted, when no other turn is running. One that waits for an approval goes on
    /// as it is.
    pub(super) async fn configure(&mut self, wanted: Wanted) -> Result<(), Outcome> {
        match self.exchange.configure(wanted.clone()).await {
            Err(error) if error.code == ErrorCode::TurnRunning && self.snapshot().approvals.is_empty() => {
                self.idle().await?;
                Ok(self.exchange.configure(wanted).await?)
            }
            Err(error) if error.code != ErrorCode::TurnRunning => Err(Outcome::Failed(error)),
            _ => Ok(()),
        }
    }

    /// Returns true if neither a turn nor a compaction that holds it up is running.
    pub(super) fn is_idle(&self) -> bool {
        self.snapshot().state == SessionState::Idle
    }

    /// Waits until the session is idle.
    pub(super) async fn idle(&mut self) -> Result<(), Outcome> {
        Ok(self.exchange.until(|now| now.state == SessionState::Idle).await?)
    }

    /// Returns the entry with this id, on any branch.
    pub(super) async fn entry(&mut self, id: &EntryId) -> Result<Option<Arc<Entry>>, Outcome> {
        if let Some(known) = self.snapshot().entries.get(id) {
            return Ok(Some(known.clone()));
        }
        match self.exchange.entry(id).await {
            Ok(entry) => Ok(Some(Arc::new(entry))),
            Err(error) if error.code == ErrorCode::EntryNotFound => Ok(None),
            Err(error) => Err(Outcome::Failed(error)),
        }
    }

    /// Returns the entry of the user's message with this id on the path, however far back.
    pub(super) async fn said(&mut self, id: &str) -> Result<Option<Arc<Entry>>, Outcome> {
        Ok(self.exchange.read_back(|entry| is_said(entry, id)).await?)
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
        let below = GetTree { root_id: Some(root.clone()), depth: None };
        match self.exchange.request(&Command::GetTree(below)).await? {
            Reply::Tree(tree) => Ok(tree),
            _ => Err(Outcome::Failed(ErrorBody::new(ErrorCode::Internal, "the server sent no tree"))),
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
}
