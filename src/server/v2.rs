//! Protocol v2: one reply per command, events as they are stored.

use super::{
    closing::{End, Flow},
    handshake::anonymous,
    sessions,
    socket::{Connection, Speaks, count_reply},
    tree,
};
use crate::{
    core::{
        agent_loop::{Snapshot, Tools, check_offers},
        hook::check_hooks,
        session::fingerprint::fingerprint,
    },
    runtime::{Attach, Attached, LeftOff, SUBSCRIPTIONS_MAX, Seen, fork},
};
use reseed_protocol::{
    CloseCode, CommandId, ErrorBody, ErrorCode, PROTOCOL_VERSION, SessionId,
    command::{
        Command, ConnectionCommand, ForkSession, Hello, OpenSession, Ping, Resume, Routed, Sender, ServerCommand,
        SessionCommand, SessionRole,
    },
    frame::{self, Received},
    reply::{Done, Limits, Pong, Reply, Resumed, RunningTurn, Server, SessionOpened, Welcome},
};

/// The default number of entries in `session_opened`.
const ENTRIES_DEFAULT: u32 = 50;

/// Longest `clientId`.
const CLIENT_ID_CHARS_MAX: usize = 64;

/// The server's optional features.
const FEATURES: &[&str] = &[
    "resume",
    "queue",
    "edit_queue",
    "steer",
    "tools",
    "compaction",
    "context",
    "sessions",
    "observers",
    "takeover",
    "tree",
    "navigate",
    "labels",
    "fork",
    "watch",
    "strategies",
    "preview",
    "undo",
    "pins",
    "hooks",
    "patches",
];

/// Handles a text frame.
pub(super) async fn received(connection: &mut Connection, text: &str, greeted: bool) -> Flow {
    let Received { id, session, command } = match frame::parse_v2(text) {
        Ok(received) => received,
        Err(refused) => return connection.refuse(refused.id.as_ref(), refused.error).await,
    };
    let name = command.name();
    if !matches!(command, Command::Hello(_)) {
        if !greeted {
            let message = format!("send hello first; this is `{name}`");
            return connection.refuse(Some(&id), ErrorBody::new(ErrorCode::NotGreeted, message)).await;
        }
        connection.good_frame();
    }
    if let Command::Hello(hello) = command {
        return greet(connection, &id, hello, greeted).await;
    }
    let answered = match refuse_observer(connection, session.as_ref(), &command) {
        Some(error) => Err(error),
        None => carry_out(connection, &id, session.as_ref(), command).await,
    };
    let (reply, session) = match answered {
        // The session answers through the connection's channel.
        Ok(None) => return Ok(()),
        Ok(Some(reply)) => {
            let made = if let Reply::SessionOpened(opened) = &reply { Some(opened.session_id.clone()) } else { None };
            (reply, session.or(made))
        }
        Err(error) => (Reply::Error(error), session),
    };
    count_reply(name, &reply);
    connection.send(frame::encode_reply(Some(&id), session.as_ref(), &reply)).await
}

/// Carries out a command. Returns its reply, or `None` if the session will answer it.
async fn carry_out(
    connection: &mut Connection,
    id: &CommandId,
    session: Option<&SessionId>,
    command: Command,
) -> Result<Option<Reply>, ErrorBody> {
    let (app, owner) = (connection.app.clone(), owner(connection));
    let asker = sessions::Asker { app: &app, owner: &owner };
    match (command.route(), session) {
        (Routed::Connection(ConnectionCommand::OpenSession(open)), session) => {
            open_session(connection, id, session, open).await.map(|opened| Some(Reply::SessionOpened(opened)))
        }
        (Routed::Connection(ConnectionCommand::CloseSession(_)), Some(session)) => {
            if connection.unsubscribe(session).await { Ok(Some(done())) } else { Err(no_session(session)) }
        }
        (Routed::Connection(ConnectionCommand::Ping(ping)), session) => pong(connection, session, &ping).map(Some),
        (Routed::Server(ServerCommand::ListSessions(list)), _) => {
            let watch = list.watch;
            // Start the watch before reading the list: changes made meanwhile are reported after it.
            let watcher = (watch == Some(true)).then(|| Box::new(app.registry.watches().watch(&owner)));
            let listed = sessions::list(&asker, list).await;
            if listed.is_ok() && watch.is_some() {
                connection.watching = watcher;
            }
            listed.map(Some)
        }
        (Routed::Server(ServerCommand::DeleteSession(_)), Some(session)) => {
            app.registry.delete(session, &owner).await?;
            // Its own feed has ended too; the reply says so.
            connection.unsubscribe(session).await;
            Ok(Some(done()))
        }
        (Routed::Server(ServerCommand::GetEntries(get)), Some(session)) => {
            sessions::entries(&asker, session, get).await.map(Some)
        }
        (Routed::Server(ServerCommand::GetTree(get)), Some(session)) => tree::get(&asker, session, get).await.map(Some),
        (Routed::Server(ServerCommand::ForkSession(fork)), Some(session)) => {
            fork_session(connection, id, session, fork).map(|()| None)
        }
        (Routed::Session(SessionCommand::RenameSession(rename)), Some(session))
            if connection.subscription(session).is_none() =>
        {
            hand_to(connection, session, id, Command::RenameSession(rename)).await.map(|()| None)
        }
        (Routed::Session(command), Some(session)) => {
            hand_over(connection, session, id, command.into()).await.map(|()| None)
        }
        // `hello` was answered, and `parse_v2` has required the session of all others.
        (Routed::Connection(_) | Routed::Server(_) | Routed::Session(_), _) => {
            Err(ErrorBody::new(ErrorCode::MissingField, "name the session").with_field("sessionId"))
        }
    }
}

fn pong(connection: &Connection, session: Option<&SessionId>, ping: &Ping) -> Result<Reply, ErrorBody> {
    let server_time = sessions::now();
    let Some(session) = session else {
        if ping.seq.is_some() {
            let message = "`seq` is a place in a session: put its `sessionId` beside `id` and `type`";
            return Err(ErrorBody::new(ErrorCode::MissingField, message).with_field("sessionId"));
        }
        return Ok(Reply::Pong(Pong { seq: None, in_sync: None, server_time }));
    };
    let subscription = connection.subscription(session).ok_or_else(|| no_session(session))?;
    let seq = subscription.feed.seq();
    Ok(Reply::Pong(Pong { seq: Some(seq), in_sync: Some(ping.seq.is_none_or(|seen| seen == seq)), server_time }))
}

fn done() -> Reply {
    Reply::Ok(Done::default())
}

fn no_session(session: &SessionId) -> ErrorBody {
    let message = format!("this connection is not subscribed to session `{session}`; send open_session first");
    ErrorBody::new(ErrorCode::NoSession, message).with_field("sessionId")
}

fn owner(connection: &Connection) -> String {
    connection.name.clone().unwrap_or_default()
}

async fn greet(connection: &mut Connection, id: &CommandId, hello: Hello, greeted: bool) -> Flow {
    if greeted {
        let error = ErrorBody::new(ErrorCode::AlreadyGreeted, "hello was already answered on this connection");
        return connection.refuse(Some(id), error).await;
    }
    if hello.protocol_version != PROTOCOL_VERSION {
        let message = format!("protocolVersion is {}, this server speaks {PROTOCOL_VERSION}", hello.protocol_version);
        let error = ErrorBody::new(ErrorCode::UnsupportedVersion, message).with_field("protocolVersion");
        return connection.refuse(Some(id), error).await;
    }
    if hello.client_id.as_ref().is_some_and(|id| id.is_empty() || id.chars().count() > CLIENT_ID_CHARS_MAX) {
        let message = format!("clientId must have 1 to {CLIENT_ID_CHARS_MAX} characters");
        return connection
            .refuse(Some(id), ErrorBody::new(ErrorCode::InvalidField, message).with_field("clientId"))
            .await;
    }
    let auth = &connection.app.auth;
    let named = match (&hello.token, &hello.ticket) {
        (Some(token), _) => auth.user(token).or_else(|| anonymous(&connection.app)),
        (None, Some(ticket)) => auth.redeem(ticket).or_else(|| anonymous(&connection.app)),
        (None, None) => connection.name.clone(),
    };
    let Some(name) = named else {
        let (error, why) = auth.refusal(hello.token.as_deref());
        connection.send(frame::encode_reply(Some(id), None, &Reply::Error(error))).await?;
        connection.flush().await?;
        return Err(End::Close(CloseCode::Credentials, why));
    };
    connection.known_as(name);
    connection.client_id = hello.client_id;
    connection.speaks = Speaks::V2 { greeted: true };
    connection.good_frame();
    let app = &connection.app;
    let welcome = Welcome {
        protocol_version: PROTOCOL_VERSION,
        server: Server {
            name: "reseed".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: app.instance.clone(),
            provider: app.provider.to_owned(),
            notice: app.notice.clone(),
        },
        features: FEATURES.iter().map(ToString::to_string).collect(),
        scopes: vec!["sessions".to_owned()],
        heartbeat_ms: u64::try_from(app.patience.heartbeat.as_millis()).unwrap_or(u64::MAX),
        limits: Limits {
            message_bytes_max: app.limits.message_bytes_max() as u64,
            depth_max: frame::DEPTH_MAX as u64,
            queue_items_max: app.queue_items_max as u64,
            tools_max: crate::core::agent_loop::TOOLS_MAX as u64,
            hooks_max: crate::core::hook::HOOKS_MAX as u64,
            subscriptions_max: SUBSCRIPTIONS_MAX as u64,
        },
    };
    connection.send(frame::encode_reply(Some(id), None, &Reply::Welcome(welcome))).await
}

/// Refuses what the table of commands does not allow observers of the session that a command names.
fn refuse_observer(connection: &Connection, session: Option<&SessionId>, command: &Command) -> Option<ErrorBody> {
    let subscription = connection.subscription(session?)?;
    let observes = subscription.role == SessionRole::Observer;
    (observes && command.spec().sender != Sender::Anyone).then(|| {
        let message = format!("only the owner may send `{}`; this connection is an observer", command.name());
        ErrorBody::new(ErrorCode::ReadOnly, message)
    })
}

/// Sends a command to a session that the connection is subscribed to.
async fn hand_over(
    connection: &mut Connection,
    session: &SessionId,
    id: &CommandId,
    command: Command,
) -> Result<(), ErrorBody> {
    let subscription = connection.subscription(session).ok_or_else(|| no_session(session))?;
    let (handle, name) = (subscription.handle.clone(), command.name());
    let handed = handle.command(connection.origin, id.clone(), command, connection.outgoing.clone()).await;
    handed.map_err(|_| connection.app.session_gone())?;
    connection.expect_reply(id.clone(), session, name);
    Ok(())
}

/// Starts a fork of a session that the connection is subscribed to. Only durable data is copied, so the session itself
/// is not involved and may be busy.
fn fork_session(
    connection: &mut Connection,
    id: &CommandId,
    session: &SessionId,
    fork: ForkSession,
) -> Result<(), ErrorBody> {
    connection.subscription(session).ok_or_else(|| no_session(session))?;
    let content = serde_json::to_vec(&Command::ForkSession(fork.clone())).unwrap_or_default();
    let order = fork::ForkOrder {
        source: session.clone(),
        owner: owner(connection),
        id: id.clone(),
        fingerprint: fingerprint(&content),
        fork,
        outgoing: connection.outgoing.clone(),
    };
    connection.app.registry.fork(order);
    connection.expect_reply(id.clone(), session, "fork_session");
    Ok(())
}

/// Sends a command to another session of this user.
async fn hand_to(
    connection: &mut Connection,
    session: &SessionId,
    id: &CommandId,
    command: Command,
) -> Result<(), ErrorBody> {
    let owner = owner(connection);
    // A session that leaves memory between lookup and request is opened once more.
    for _ in 0..2 {
        let handle = connection.app.registry.open(session, &owner).await?;
        let handed = handle.command(connection.origin, id.clone(), command.clone(), connection.outgoing.clone()).await;
        if handed.is_ok() {
            connection.expect_reply(id.clone(), session, command.name());
            return Ok(());
        }
    }
    Err(ErrorBody::new(ErrorCode::StoreFailed, format!("cannot open session `{session}`; try again")))
}

async fn open_session(
    connection: &mut Connection,
    id: &CommandId,
    session: Option<&SessionId>,
    open: OpenSession,
) -> Result<Box<SessionOpened>, ErrorBody> {
    let role = open.role.unwrap_or(SessionRole::Owner);
    let tools = check_opening(session, &open, role)?;
    if connection.subscriptions.len() >= SUBSCRIPTIONS_MAX {
        let message = format!("this connection is subscribed to {SUBSCRIPTIONS_MAX} sessions; close one of them first");
        return Err(ErrorBody::new(ErrorCode::TooManySubscriptions, message));
    }
    let (app, owner) = (connection.app.clone(), owner(connection));
    let resume = open.resume.as_ref();
    for _ in 0..2 {
        // Whoever repeats the command that has created a session is the one who has it open, half-open by now.
        let (handle, repeats) = match session {
            Some(session) => (app.registry.open(session, &owner).await?, false),
            None => app.registry.create_once(&owner, id).await?,
        };
        if connection.subscription(&handle.id).is_some() {
            let message = format!("this connection is subscribed to session `{}`; send close_session first", handle.id);
            return Err(ErrorBody::new(ErrorCode::SessionAlreadyOpen, message).with_field("sessionId"));
        }
        let attach = Attach {
            origin: connection.origin,
            role,
            takeover: open.takeover.unwrap_or(repeats),
            client_id: connection.client_id.clone(),
            tools: tools.clone(),
            hooks: open.hooks.clone(),
            outgoing: connection.outgoing.clone(),
            shared: connection.shared.clone(),
            resume: resume.map(left_off),
        };
        let Ok(attached) = handle.attach(attach).await else { continue };
        let attached = attached?;
        let entries = match attached.replay {
            true => None,
            false => {
                let count = open.entries.unwrap_or(ENTRIES_DEFAULT);
                let asker = sessions::Asker { app: &app, owner: &owner };
                let page = sessions::newest(&asker, &handle.id, &attached.snapshot, count).await;
                // Reading may have found damage that makes the session read-only.
                let damage = app.registry.damage(&handle.id).filter(|_| role == SessionRole::Owner);
                match page.and_then(|page| damage.map_or(Ok(page), Err)) {
                    Ok(page) => Some(page),
                    Err(error) => {
                        // It has joined but lacks its entries, so it leaves again.
                        drop(attached);
                        handle.leave(connection.origin).await;
                        return Err(error);
                    }
                }
            }
        };
        let opened = session_opened(&handle.id, role, &attached, entries, resume.is_some());
        connection.subscribe(handle, role, open.deltas.unwrap_or(true), attached);
        return Ok(Box::new(opened));
    }
    Err(ErrorBody::new(ErrorCode::StoreFailed, "cannot open the session; try again"))
}

/// Validates the command itself, before a session is created or opened for it. Returns the tools that it offers.
fn check_opening(
    session: Option<&SessionId>,
    open: &OpenSession,
    role: SessionRole,
) -> Result<Option<Tools>, ErrorBody> {
    if session.is_none() && (role == SessionRole::Observer || open.resume.is_some()) {
        let message = "name the session: a new one has nothing to observe or resume";
        return Err(ErrorBody::new(ErrorCode::MissingField, message).with_field("sessionId"));
    }
    for (field, is_there) in [("tools", open.tools.is_some()), ("hooks", open.hooks.is_some())] {
        if is_there && role == SessionRole::Observer {
            let message = format!("an observer cannot offer {field}");
            return Err(ErrorBody::new(ErrorCode::ReadOnly, message).with_field(field));
        }
    }
    let tools = open.tools.clone().map(check_offers).transpose()?;
    if let Some(hooks) = &open.hooks {
        check_hooks(hooks.clone())?;
    }
    Ok(tools)
}

fn left_off(resume: &Resume) -> LeftOff {
    let items = resume.items.iter().flatten();
    let seen = items.map(|item| Seen { item: item.item_id.clone(), part: item.part, offset: item.offset });
    LeftOff { epoch: resume.epoch.clone(), seq: resume.seq, items: seen.collect() }
}

fn session_opened(
    id: &SessionId,
    role: SessionRole,
    attached: &Attached,
    entries: Option<sessions::Page>,
    asked_to_resume: bool,
) -> SessionOpened {
    let Snapshot { seq, leaf, state, generation, name, model, strategy, settings, context_info, .. } =
        attached.snapshot.clone();
    let Snapshot { turn, last_turn, compaction, queue, pending, .. } = attached.snapshot.clone();
    let items = if attached.replay { Vec::new() } else { attached.items.clone() };
    SessionOpened {
        session_id: id.clone(),
        role,
        epoch: attached.epoch.clone(),
        as_of_seq: seq,
        leaf_id: leaf,
        state,
        generation,
        name: Some(name).filter(|name| !name.is_empty()),
        model,
        strategy,
        settings,
        context_info,
        resumed: asked_to_resume.then_some(if attached.replay { Resumed::Replay } else { Resumed::Snapshot }),
        more: entries.as_ref().map(|page| page.more),
        entries: entries.map(|page| page.items),
        turn: turn.map(|turn_id| RunningTurn { turn_id, items }),
        last_turn,
        unanswered_turns: attached.snapshot.unanswered_turns.clone(),
        failed_compactions: attached.snapshot.failed_compactions.clone(),
        compaction,
        held: attached.snapshot.held.clone(),
        queue,
        pending,
        pins: attached.snapshot.pins.clone(),
        undone: attached.snapshot.undone.clone(),
    }
}
