//! A client as the protocol asks for: it folds the frames that it receives, keeps its position, and resumes there.
//!
//! It is stricter than a client need be. Durable events must come in order, each once; text must come where the text
//! before it ended; what was shown of an answer must be a prefix of its entry, or be declared void before its turn is
//! over.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tokio::net::TcpStream;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite::Message};

/// The time that a frame may take on a machine that is busy with other tests; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A socket that may be lost at any time.
pub(super) struct Link {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Link {
    /// Connects; returns `None` if nothing listens.
    pub(super) async fn connect(url: &str) -> Option<Self> {
        connect_async(url).await.ok().map(|(socket, _)| Self { socket })
    }

    /// Sends a frame; returns true if it could be sent.
    pub(super) async fn send(&mut self, frame: &Value) -> bool {
        self.socket.send(Message::text(frame.to_string())).await.is_ok()
    }

    /// Returns the next frame; if there is none, the close code, or 1006 if the server sent none.
    pub(super) async fn receive(&mut self) -> Result<Value, u16> {
        let next = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                    Some(Ok(Message::Close(frame))) => return Err(frame.map_or(1006, |frame| frame.code.into())),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Err(1006),
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.unwrap_or_else(|_| panic!("nothing came for {PATIENCE:?}"))
    }
}

/// An answer that is partly shown and whose entry has not come.
#[derive(Debug, Clone, Default, PartialEq)]
struct Item {
    turn: Option<String>,
    parts: Vec<String>,
}

/// A client's view of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fold {
    pub(super) session: String,
    pub(super) epoch: String,
    /// The last durable event that was received.
    pub(super) seq: u64,
    /// The durable events by their `seq`, as `{ type, payload }`.
    pub(super) log: BTreeMap<u64, Value>,
    items: BTreeMap<String, Item>,
    /// Answers that were declared void.
    pub(super) void: Vec<String>,
    /// The running turn.
    pub(super) turn: Option<String>,
    /// The number of waiting inputs.
    pub(super) queued: usize,
    /// The ids of open calls.
    pub(super) pending: Vec<String>,
    /// The compaction that runs or was ordered.
    pub(super) compaction: Option<String>,
    /// The number of times that the session was opened with a snapshot, the first time included.
    pub(super) snapshots: usize,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// Returns the text of a part, or the arguments of a call.
fn text_of(part: &Value) -> &str {
    part["text"].as_str().or(part["arguments"].as_str()).unwrap_or_default()
}

fn utf16(text: &str) -> u64 {
    text.encode_utf16().count() as u64
}

impl Fold {
    /// Returns the client's position, for `open_session.resume`. An item of which only the start came is named as well.
    pub(super) fn place(&self) -> Value {
        let places = self.items.iter().flat_map(|(id, item)| {
            let offsets =
                if item.parts.is_empty() { vec![0] } else { item.parts.iter().map(|text| utf16(text)).collect() };
            let place = move |(part, offset): (usize, u64)| json!({ "itemId": id, "part": part, "offset": offset });
            offsets.into_iter().enumerate().map(place)
        });
        json!({ "epoch": self.epoch, "seq": self.seq, "items": places.collect::<Vec<_>>() })
    }

    /// Applies the reply to `open_session`.
    pub(super) fn opened(&mut self, opened: &Value) {
        let replay = opened["resumed"] == "replay";
        if replay {
            assert_eq!((&self.session, &self.epoch), (&text(&opened["sessionId"]), &text(&opened["epoch"])));
            assert!(opened["asOfSeq"].as_u64().unwrap() >= self.seq, "{opened} at {}", self.seq);
            assert!(opened.get("entries").is_none(), "a replay needs no state: {opened}");
        } else {
            let snapshots = self.snapshots + 1;
            *self = Self {
                session: text(&opened["sessionId"]),
                epoch: text(&opened["epoch"]),
                seq: opened["asOfSeq"].as_u64().unwrap(),
                snapshots,
                ..Self::default()
            };
            // A replay tells what was queued meanwhile.
            self.queued = opened["queue"].as_array().unwrap().len();
            let turn = &opened["turn"];
            for item in turn["items"].as_array().into_iter().flatten() {
                let parts = item["parts"].as_array().unwrap();
                let parts = parts.iter().map(|part| text_of(part).to_owned()).collect();
                let turn = turn["turnId"].as_str().map(str::to_owned);
                self.items.insert(text(&item["itemId"]), Item { turn, parts });
            }
        }
        self.turn = opened["turn"]["turnId"].as_str().map(str::to_owned);
        self.pending = opened["pending"].as_array().unwrap().iter().map(|call| text(&call["toolCallId"])).collect();
        self.compaction = opened["compaction"]["jobId"].as_str().map(str::to_owned);
    }

    /// Applies an event.
    pub(super) fn take(&mut self, frame: &Value) {
        let payload = &frame["payload"];
        if let Some(seq) = frame["seq"].as_u64() {
            assert_eq!(seq, self.seq + 1, "a hole or a double: {frame}");
            self.seq = seq;
            self.log.insert(seq, json!({ "type": frame["type"], "payload": payload }));
        }
        match frame["type"].as_str().unwrap() {
            "entry_appended" => self.entry(&payload["entry"]),
            "turn_started" => self.turn = Some(text(&payload["turnId"])),
            "turn_finished" => {
                let id = text(&payload["turnId"]);
                let open = self.items.iter().find(|(_, item)| item.turn.as_ref() == Some(&id));
                assert_eq!(open, None, "an answer that was shown has neither an entry nor an end: {self:#?}");
                self.turn = self.turn.take().filter(|turn| *turn != id);
                self.pending.clear();
            }
            "tool_call" => {
                let id = text(&payload["toolCallId"]);
                self.pending.retain(|known| *known != id);
                self.pending.push(id);
            }
            "call_resolved" => self.pending.retain(|id| *id != payload["toolCallId"]),
            "queue_item_added" => self.queued += 1,
            "queue_item_removed" => self.queued -= 1,
            "item_started" if payload["kind"] == "tool_call" => self.call_started(frame),
            "item_started" => {
                let item = self.items.entry(text(&payload["itemId"])).or_default();
                assert!(item.parts.iter().all(String::is_empty), "begun twice: {frame}");
                item.turn = payload["turnId"].as_str().map(str::to_owned);
            }
            "item_delta" => self.delta(frame),
            "item_finished" => {
                let has_begun = self.items.contains_key(payload["itemId"].as_str().unwrap());
                assert!(has_begun, "it has not begun: {frame}");
            }
            "item_aborted" => {
                let id = text(&payload["itemId"]);
                assert!(self.items.remove(&id).is_some(), "nothing was shown of it: {frame}");
                self.void.push(id);
            }
            "compaction_started" => self.compaction = Some(text(&payload["jobId"])),
            // A prepared result is held: the compaction runs no longer.
            "compaction_prepared" | "context_compacted" | "compaction_failed" => {
                self.compaction = self.compaction.take().filter(|job| *job != payload["jobId"]);
            }
            _ => {}
        }
    }

    /// A call begins, or is named again after a resume: nothing of it but its name may be known.
    fn call_started(&mut self, frame: &Value) {
        let payload = &frame["payload"];
        let item = self.items.get_mut(payload["itemId"].as_str().unwrap());
        let item = item.unwrap_or_else(|| panic!("its answer has not begun: {frame}"));
        let part = usize::try_from(payload["part"].as_u64().unwrap()).unwrap();
        if item.parts.len() <= part {
            item.parts.resize(part + 1, String::new());
        }
        assert_eq!(item.parts[part], "", "begun twice: {frame}");
        assert!(payload["name"].is_string(), "a call without a name: {frame}");
    }

    fn delta(&mut self, frame: &Value) {
        let payload = &frame["payload"];
        let item = self.items.get_mut(payload["itemId"].as_str().unwrap());
        let item = item.unwrap_or_else(|| panic!("it has not begun: {frame}"));
        let part = usize::try_from(payload["part"].as_u64().unwrap()).unwrap();
        if item.parts.len() <= part {
            item.parts.resize(part + 1, String::new());
        }
        let shown = &mut item.parts[part];
        assert_eq!(payload["offset"].as_u64().unwrap(), utf16(shown), "text out of place: {frame} after {shown:?}");
        shown.push_str(payload["text"].as_str().unwrap());
    }

    fn entry(&mut self, entry: &Value) {
        let Some(item) = self.items.remove(&text(&entry["entryId"])) else { return };
        for (part, shown) in item.parts.iter().enumerate() {
            let whole = text_of(&entry["content"][part]);
            assert!(whole.starts_with(shown.as_str()), "shown was {shown:?}, the entry is {entry}");
        }
    }

    /// Returns true if nothing is running and nothing waits, as far as this client knows.
    pub(super) fn is_idle(&self) -> bool {
        self.turn.is_none() && self.queued == 0 && self.compaction.is_none()
    }

    /// Returns the number of events of this type in the log.
    pub(super) fn count(&self, kind: &str) -> usize {
        self.log.values().filter(|event| event["type"] == kind).count()
    }

    /// Returns the user entries in the log: the command that sent each, and its text.
    pub(super) fn asked(&self) -> Vec<(String, String)> {
        let entries = self.log.values().filter(|event| event["type"] == "entry_appended");
        let users = entries.filter(|event| event["payload"]["entry"]["role"] == "user");
        users
            .filter_map(|event| {
                let said = event["payload"]["entry"]["content"][0]["text"].as_str()?;
                Some((event["payload"]["commandId"].as_str()?.to_owned(), said.to_owned()))
            })
            .collect()
    }
}

/// A folding client, its connection, and its commands without a reply.
pub(super) struct Folder {
    pub(super) fold: Fold,
    /// More fields of `open_session`.
    pub(super) opening: Value,
    pub(super) client_id: String,
    name: String,
    next: u64,
    link: Option<Link>,
    /// Commands without a reply, in the order in which they were given.
    pub(super) unanswered: Vec<Value>,
    /// The command that opens the session. Until it is answered nothing new is sent: it would overtake what is sent
    /// again.
    open_id: String,
    is_open: bool,
    /// The replies to commands, by their ids.
    pub(super) replies: BTreeMap<String, Value>,
    /// The number of frames received over the present connection.
    pub(super) frames: usize,
}

impl Folder {
    /// Creates a client without a session; `opening` is added to each `open_session`.
    pub(super) fn new(name: &str, opening: Value) -> Self {
        Self {
            fold: Fold::default(),
            opening,
            client_id: format!("client-{name}"),
            name: name.to_owned(),
            next: 0,
            link: None,
            unanswered: Vec::new(),
            open_id: String::new(),
            is_open: false,
            replies: BTreeMap::new(),
            frames: 0,
        }
    }

    fn id(&mut self) -> String {
        self.next += 1;
        format!("{}-command-{:06}", self.name, self.next)
    }

    /// Drops the connection without a close frame.
    pub(super) fn cut(&mut self) {
        self.link = None;
    }

    pub(super) fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Connects, says hello and opens the session at this client's position; returns true if a server was there.
    pub(super) async fn connect(&mut self, url: &str) -> bool {
        self.frames = 0;
        self.is_open = false;
        self.link = Link::connect(url).await;
        let hello = json!({ "protocolVersion": 2, "clientId": self.client_id });
        let hello = json!({ "id": self.id(), "type": "hello", "payload": hello });
        let mut payload = self.opening.clone();
        let joins = payload.as_object_mut().and_then(|payload| payload.remove("sessionId"));
        let open = if let Some(session) = joins.filter(|_| self.fold.session.is_empty()) {
            self.open_id = self.id();
            json!({ "id": self.open_id, "sessionId": session, "type": "open_session", "payload": payload })
        } else if self.fold.session.is_empty() {
            // A lost reply leaves no session behind: the same command opens the session that it has made.
            if self.open_id.is_empty() {
                self.open_id = self.id();
            }
            json!({ "id": self.open_id, "type": "open_session", "payload": payload })
        } else {
            self.open_id = self.id();
            payload["resume"] = self.fold.place();
            json!({ "id": self.open_id, "sessionId": self.fold.session, "type": "open_session", "payload": payload })
        };
        self.write(&hello).await && self.write(&open).await
    }

    async fn write(&mut self, frame: &Value) -> bool {
        let sent = match &mut self.link {
            Some(link) => link.send(frame).await,
            None => false,
        };
        if !sent {
            self.link = None;
        }
        sent
    }

    /// Sends a command about this client's session.
    async fn write_about(&mut self, frame: &Value) -> bool {
        let mut frame = frame.clone();
        frame["sessionId"] = json!(self.fold.session);
        self.write(&frame).await
    }

    /// Gives a command, which is sent once the session is open, and again after each lost connection until it has its
    /// reply. Returns its id.
    pub(super) async fn command(&mut self, kind: &str, payload: Value) -> String {
        let id = self.id();
        let frame = json!({ "id": id, "type": kind, "payload": payload });
        self.unanswered.push(frame.clone());
        if self.is_open {
            self.write_about(&frame).await;
        }
        id
    }

    /// Applies the next frame and returns it, or the close code if the connection is lost.
    pub(super) async fn step(&mut self) -> Result<Value, u16> {
        let Some(link) = &mut self.link else { return Err(1006) };
        let frame = match link.receive().await {
            Ok(frame) => frame,
            Err(code) => {
                self.link = None;
                return Err(code);
            }
        };
        self.frames += 1;
        let re = frame["re"].as_str();
        if re == Some(&self.open_id) && frame["type"] == "session_opened" {
            self.fold.opened(&frame["payload"]);
            self.is_open = true;
            // In their order, before any new command.
            for unanswered in self.unanswered.clone() {
                self.write_about(&unanswered).await;
            }
        } else if let Some(re) = re {
            self.unanswered.retain(|command| command["id"] != re);
            self.replies.insert(re.to_owned(), frame.clone());
        } else if frame["type"] == "session_closed" {
            // As if the connection were lost: it opens the session again.
            self.link = None;
            return Err(1011);
        } else {
            self.fold.take(&frame);
        }
        Ok(frame)
    }

    /// Applies frames up to this event.
    pub(super) async fn reach(&mut self, seq: u64) {
        while self.fold.seq < seq {
            let frame = self.step().await;
            assert!(frame.as_ref().is_ok_and(|frame| frame["type"] != "error"), "{frame:?}");
        }
    }
}

/// Returns the fold of a new client: it opens the session now and reads it from its first event.
pub(super) async fn fresh(url: &str, fold: &Fold) -> Fold {
    let mut reader = Folder::new("fresh-reader-0000", json!({ "role": "observer" }));
    reader.fold = Fold { session: fold.session.clone(), epoch: fold.epoch.clone(), ..Fold::default() };
    assert!(reader.connect(url).await);
    reader.reach(fold.seq).await;
    reader.fold
}
