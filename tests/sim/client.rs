//! A simulated client: joins, reads its feed at its own pace as the server's sockets do, sends commands, and is
//! disconnected at any moment. What it receives is recorded in the history; its fold is its view.

mod joining;

use crate::{
    disk::{Disk, Road},
    history::{Given, History, Sent, Trace, What},
    streamed::Streamed,
    view::View,
};
use fastrand::Rng;
use joining::{Joined, Joining, Place, Refused, give_up, join, view};
use reseed::{
    core::{
        agent_loop::{Origin, Snapshot},
        session::fingerprint::fingerprint,
    },
    internals::{Attached, Cursor, ForkOrder, Frame, Outbox, Outgoing, REPLIES_MAX, Reader, Registry, SessionHandle},
};
use reseed_protocol::{
    CommandId, ErrorBody, ErrorCode, JobId, SessionId,
    command::{Command, Routed},
    event::{EphemeralEvent, Event},
    frame::encode_stored,
    hooks::{HookCall, HookOffer},
    reply::Reply,
    session::{SessionRole, SubscriptionEnd},
    tools::ToolOffer,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, PoisonError, atomic::Ordering},
};
use tokio::{runtime::Handle, sync::mpsc};

/// Records or entries read per query.
const PAGE: u32 = 200;

/// The number of reads after which a client gives up on reaching the end.
const READS_MAX: usize = 1_000;

/// State shared by every client of a run.
pub(crate) struct Wire {
    pub(crate) rng: Rng,
    pub(crate) disk: Arc<Disk>,
    pub(crate) trace: Trace,
    pub(crate) history: History,
    pub(crate) session: SessionId,
    /// Parsed bodies, since each is read by every client.
    read: BTreeMap<u64, (Arc<str>, Arc<Event>)>,
    connections: u64,
}

/// A server, as clients reach it.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) node: usize,
    pub(crate) registry: Arc<Registry>,
    pub(crate) road: Arc<Road>,
    /// Where its tasks run.
    pub(crate) runtime: Handle,
}

impl Server {
    /// Runs a task on the server and returns its result; `None` if the server died meanwhile.
    pub(crate) async fn on<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Option<T> {
        self.runtime.spawn(task).await.ok()
    }
}

/// A client's way of joining.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) role: SessionRole,
    pub(crate) named: bool,
    pub(crate) resume: bool,
    pub(crate) tools: Option<Vec<ToolOffer>>,
    pub(crate) hooks: Option<Vec<HookOffer>>,
    pub(crate) text: bool,
}

/// A client.
pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) view: View,
    pub(crate) connection: Option<Connection>,
    joining: Option<Joining>,
    /// The node that holds the session, according to the one that refused it last.
    pub(crate) directed: Option<usize>,
    /// The way in which it joined last.
    wished: Option<Wish>,
    /// Unanswered commands, including those on earlier connections.
    pub(crate) unanswered: Vec<(CommandId, Command)>,
    /// The newest preview it received.
    pub(crate) preview: Option<JobId>,
    /// Answered commands, to be repeated.
    pub(crate) answered: Vec<(CommandId, Command)>,
}

/// A connection that has joined.
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) role: SessionRole,
    pub(crate) server: Server,
    handle: SessionHandle,
    reader: Reader,
    cursor: Cursor,
    text: bool,
    incoming: mpsc::Receiver<Outgoing>,
    outgoing: Outbox,
    /// Unanswered commands of this connection.
    pub(crate) waiting: Vec<CommandId>,
    /// Unhandled calls of its hooks, oldest first.
    pub(crate) calls: VecDeque<HookCall>,
}

impl Wire {
    pub(crate) fn new(rng: Rng, disk: Arc<Disk>, trace: Trace, session: SessionId) -> Self {
        let history = History { session: Some(session.clone()), ..History::default() };
        Self { rng, disk, trace, history, session, read: BTreeMap::new(), connections: 0 }
    }

    fn event(&mut self, seq: u64, body: &Arc<str>) -> Option<Arc<Event>> {
        if let Some((known, event)) = self.read.get(&seq)
            && known == body
        {
            return Some(event.clone());
        }
        let event: Arc<Event> = Arc::new(serde_json::from_str(body).ok()?);
        self.read.insert(seq, (body.clone(), event.clone()));
        Some(event)
    }
}

impl Client {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            view: View::default(),
            connection: None,
            joining: None,
            directed: None,
            wished: None,
            unanswered: Vec::new(),
            preview: None,
            answered: Vec::new(),
        }
    }

    pub(crate) fn is_away(&self) -> bool {
        self.connection.is_none() && self.joining.is_none()
    }

    /// Returns how it joined, if it was sent elsewhere.
    pub(crate) fn sent_on(&self) -> Option<Wish> {
        self.wished.clone().filter(|_| self.directed.is_some())
    }

    pub(crate) fn is_on(&self, node: usize) -> bool {
        let joined = self.connection.as_ref().map(|connection| connection.server.node);
        joined.or(self.joining.as_ref().map(|joining| joining.server.node)) == Some(node)
    }

    pub(crate) fn writes(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.role == SessionRole::Writer)
    }

    /// Records what the client receives, and applies it.
    fn take(&mut self, wire: &mut Wire, connection: u64, what: What) {
        match &what {
            What::Opened { replay, state, .. } => {
                if !replay {
                    self.view = (**state).clone();
                }
            }
            What::Durable { seq, body } => match wire.event(*seq, body) {
                Some(event) => self.view.apply(&event),
                None => wire.trace.line(format_args!("client {}: event {seq} cannot be read", self.number)),
            },
            What::Ephemeral(event) => {
                if let Err(error) = self.view.decorate(event) {
                    wire.trace.line(format_args!("client {}: {error}", self.number));
                }
            }
            What::Reply(id, reply) => {
                if let Reply::CompactionPreview(preview) = &**reply {
                    self.preview = Some(preview.preview_id.clone());
                }
                if let Some(at) = self.unanswered.iter().position(|(waiting, _)| waiting == id) {
                    self.answered.push(self.unanswered.remove(at));
                }
            }
            What::Closed(_) | What::Cut | What::Run(_) => {}
        }
        let durable = wire.disk.durable(&wire.session);
        let line = match &what {
            What::Opened { from, replay: true, .. } => format!("resumes after {from}"),
            What::Opened { from, .. } => format!("is given the state as of {from}"),
            What::Durable { seq, .. } => format!("is given event {seq}"),
            What::Ephemeral(EphemeralEvent::ItemDelta(delta)) => {
                format!("is given text of {} part {} from {}", delta.item_id, delta.part, delta.offset)
            }
            What::Ephemeral(event) => format!("is told {}", word(&format!("{event:?}"))),
            What::Reply(id, reply) => match &**reply {
                Reply::Error(error) => format!("is answered {id}: {}", error.code),
                reply => format!("is answered {id}: {}", word(&format!("{reply:?}"))),
            },
            What::Closed(end) => format!("is no longer subscribed: {end:?}"),
            What::Run(run) => format!("is asked to run {}{}", run.tool_call_id, if run.again { " again" } else { "" }),
            What::Cut => "is cut off".to_owned(),
        };
        wire.trace.line(format_args!("client {}: {line}", self.number));
        wire.history.given.push(Given { client: self.number, connection, durable, what });
    }

    /// Starts joining.
    pub(crate) fn join(&mut self, wire: &mut Wire, server: &Server, wish: Wish) {
        wire.connections += 1;
        let number = wire.connections;
        wire.trace.line(format_args!(
            "client {}: joins node {} by connection {number} as {:?}{}",
            self.number,
            server.node,
            wish.role,
            if wish.resume { ", resuming" } else { "" },
        ));
        self.wished = Some(wish.clone());
        let (outgoing, incoming) = Outbox::new(REPLIES_MAX);
        let place = Arc::new(Place::default());
        let client_id = wish.named.then(|| format!("client {}", self.number));
        let resume = (wish.resume && !self.view.epoch.is_empty()).then(|| self.view.left_off());
        let resume = resume.map(|left_off| wire.disk.broken.left_off(left_off));
        let joining =
            Joining { number, wish: wish.clone(), server: server.clone(), incoming, outgoing, place: place.clone() };
        let (server, session, outgoing) = (server.clone(), wire.session.clone(), joining.outgoing.clone());
        self.joining = Some(joining);
        let runtime = server.runtime.clone();
        runtime.spawn(async move {
            let origin = Origin(number);
            let joined = join(&server, &session, origin, &wish, client_id, resume, outgoing).await;
            if place.given_up.load(Ordering::SeqCst) {
                give_up(origin, joined);
            } else {
                *place.joined.lock().unwrap_or_else(PoisonError::into_inner) = Some(joined);
            }
        });
    }

    /// Checks whether joining is complete.
    pub(crate) fn look(&mut self, wire: &mut Wire) {
        let Some(joining) = &self.joining else { return };
        let Some(joined) = joining.place.joined.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let Some(Joining { number, wish, server, incoming, outgoing, .. }) = self.joining.take() else { return };
        match joined {
            Err(Refused { error, elsewhere }) => {
                self.directed = elsewhere;
                let to = elsewhere.map(|node| format!(", and sent to node {node}")).unwrap_or_default();
                wire.trace.line(format_args!("client {}: is refused: {}{to}", self.number, error.code));
            }
            Ok(Joined { handle, attached, path }) => {
                let Attached { snapshot, items, epoch, cursor, replay, feed, .. } = attached;
                let from = if replay { cursor.seq } else { snapshot.seq };
                let mut state = Box::new(view(epoch, &snapshot, path));
                state.streamed = items.first().map(Streamed::of);
                let (role, text, waiting) = (wish.role, wish.text, Vec::new());
                let connection = Connection {
                    number,
                    role,
                    server,
                    handle,
                    reader: feed,
                    cursor,
                    text,
                    incoming,
                    outgoing,
                    waiting,
                    calls: VecDeque::new(),
                };
                self.connection = Some(connection);
                self.take(wire, number, What::Opened { from, replay, state });
            }
        }
    }

    /// Disconnects.
    pub(crate) fn cut(&mut self, wire: &mut Wire) {
        self.leave(wire, What::Cut);
    }

    fn leave(&mut self, wire: &mut Wire, what: What) {
        if let Some(joining) = self.joining.take() {
            joining.place.given_up.store(true, Ordering::SeqCst);
            let joined = joining.place.joined.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(joined) = joined {
                give_up(Origin(joining.number), joined);
            }
            wire.trace.line(format_args!("client {}: is cut off while it joins", self.number));
        }
        if let Some(Connection { number, handle, reader, incoming, .. }) = self.connection.take() {
            drop((reader, incoming));
            handle.left(Origin(number));
            self.take(wire, number, what);
        }
    }

    /// Sends a command.
    pub(crate) async fn send(&mut self, wire: &mut Wire, id: CommandId, command: Command) {
        let Some(connection) = &mut self.connection else { return };
        wire.trace.line(format_args!("client {}: sends {id} {}", self.number, command.name()));
        wire.history.sent.push(Sent {
            connection: connection.number,
            id: id.clone(),
            command: command.clone(),
            given: wire.history.given.len(),
        });
        if !self.unanswered.iter().any(|(known, _)| *known == id) {
            self.unanswered.push((id.clone(), command.clone()));
        }
        if let Command::ForkSession(fork) = &command {
            connection.waiting.push(id.clone());
            let order = ForkOrder {
                source: wire.session.clone(),
                owner: String::new(),
                fingerprint: fingerprint(&serde_json::to_vec(&command).unwrap_or_default()),
                id,
                fork: fork.clone(),
                outgoing: connection.outgoing.clone(),
            };
            let _tasks = connection.server.runtime.enter();
            connection.server.registry.fork(order).expect("a single user has no share");
            return;
        }
        let origin = Origin(connection.number);
        let (handle, outgoing) = (&connection.handle, connection.outgoing.clone());
        let handed = match command.route() {
            Routed::Session(command) => handle.command(origin, id.clone(), command, outgoing).await,
            Routed::Hosting(command) => handle.hosting(origin, id.clone(), command, outgoing).await,
            other => panic!("{other:?} is no command of a session"),
        };
        let number = connection.number;
        match handed {
            Ok(()) => connection.waiting.push(id),
            Err(_) => {
                let error = ErrorBody::new(ErrorCode::StoreFailed, "the session has left memory");
                self.take(wire, number, What::Reply(id, Box::new(Reply::Error(error))));
                self.leave(wire, What::Cut);
            }
        }
    }

    /// Reads at most about `bytes_max` bytes; with a limit, it receives only that many frames before it is
    /// disconnected. Returns true if there was anything.
    pub(crate) async fn read(&mut self, wire: &mut Wire, bytes_max: usize, cut_after: Option<usize>) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let mut frames: VecDeque<Frame> =
            connection.reader.next(&mut connection.cursor, connection.text, bytes_max).into();
        if wire.disk.broken != crate::broken::Broken::Nothing {
            frames = wire.disk.broken.frames(frames.into(), &mut wire.rng).into();
        }
        let mut any = !frames.is_empty();
        // A reply enters the channel before its events are published: take what is there first.
        while let Some(connection) = &mut self.connection
            && let Ok(outgoing) = connection.incoming.try_recv()
        {
            any = true;
            let number = connection.number;
            match outgoing {
                Outgoing::Reply(replied) => {
                    connection.waiting.retain(|waiting| *waiting != replied.re);
                    self.take(wire, number, What::Reply(replied.re, Box::new(replied.reply)));
                }
                Outgoing::Event(event) => match serde_json::from_str(&event.frame) {
                    Ok(EphemeralEvent::HookCall(call)) => {
                        wire.trace.line(format_args!("client {}: its hook {} is asked", self.number, call.hook));
                        // An observing hook is only notified.
                        let is_new = !connection.calls.iter().any(|known| known.call_id == call.call_id);
                        connection.calls.extend(Some(*call).filter(|call| call.deadline.is_some() && is_new));
                    }
                    Ok(EphemeralEvent::HookCancelled(cancelled)) => {
                        connection.calls.retain(|call| call.call_id != cancelled.call_id);
                    }
                    Ok(EphemeralEvent::RunTool(run)) => self.take(wire, number, What::Run(run)),
                    other => panic!("a client was told {other:?} alone"),
                },
            }
        }
        let mut taken = 0;
        while let Some(frame) = frames.pop_front() {
            if cut_after == Some(taken) {
                self.cut(wire);
            }
            taken += 1;
            if !self.frame(wire, frame).await {
                return any;
            }
        }
        any
    }

    /// Reads until there is nothing more.
    pub(crate) async fn read_all(&mut self, wire: &mut Wire) {
        for _ in 0..READS_MAX {
            if !self.read(wire, 64 * 1024, None).await {
                return;
            }
        }
        wire.trace.line(format_args!("client {}: there is no end to what it is given", self.number));
    }

    /// Handles one frame; returns `false` if the connection is over.
    async fn frame(&mut self, wire: &mut Wire, frame: Frame) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let number = connection.number;
        match frame {
            Frame::Durable(seq, frame) => {
                let body = body_of(&wire.session, seq, &frame);
                self.take(wire, number, What::Durable { seq, body });
            }
            Frame::Ephemeral(text) | Frame::Streamed(text) => self.ephemeral(wire, number, &text),
            Frame::Closed(end) => {
                self.leave(wire, What::Closed(end));
                return false;
            }
            Frame::Behind { after, up_to } => {
                let missed = connection.handle.missed(&*connection.server.road, after, PAGE, usize::MAX).await;
                let page = missed.unwrap_or_default().unwrap_or_default();
                if page.is_empty() {
                    self.leave(wire, What::Closed(SubscriptionEnd::Failed));
                    return false;
                }
                for record in page.into_iter().take_while(|record| record.seq <= up_to) {
                    if let Some(connection) = &mut self.connection {
                        connection.cursor.seq = record.seq;
                    }
                    self.take(wire, number, What::Durable { seq: record.seq, body: record.body });
                }
            }
        }
        true
    }

    fn ephemeral(&mut self, wire: &mut Wire, connection: u64, text: &str) {
        match serde_json::from_str(text) {
            Ok(event) => self.take(wire, connection, What::Ephemeral(event)),
            Err(error) => wire.trace.line(format_args!("client {}: a frame that cannot be read: {error}", self.number)),
        }
    }

    /// Returns the session's state, according to the server.
    pub(crate) async fn snapshot(&self) -> Option<Snapshot> {
        self.connection.as_ref()?.handle.snapshot().await.ok()
    }
}

/// Returns the stored body in the frame of a durable event.
fn body_of(session: &SessionId, seq: u64, frame: &str) -> Arc<str> {
    let head = encode_stored(session, seq, "{");
    Arc::from(format!("{{{}", frame.strip_prefix(&head).unwrap_or_default()))
}

/// Returns the first word of a value's debug form: its variant.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}
