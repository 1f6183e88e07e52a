//! Protocol v2: one reply per command, events as they are stored.

use super::{
    app::App,
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
    runtime::{Attach, Attached, LeftOff, Seen, fork},
};
use reseed_protocol::{
    CloseCode, CommandId, ErrorBody, ErrorCode, PROTOCOL_VERSION, SessionId,
    command::{
        Command, ConnectionCommand, ForkSession, Hello, OpenSession, Resume, Routed, Sender, ServerCommand,
        SessionCommand, SessionRole,
    },
    event::{EphemeralEvent, RoleChanged},
    frame,
    reply::{Done, Limits, Pong, Reply, Resumed, RunningTurn, Server, SessionOpened, Welcome},
};

/// Id of error frames for frames without a usable id.
const NAMELESS_ID: &str = "s_error";

/// Id of the frame that tells a client that its role has changed.
const ROLE_ID: &str = "s_role";

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

pub(super) fn error_frame(id: Option<&CommandId>, error: ErrorBody) -> String {
    frame::encode(id.map_or(NAMELESS_ID, CommandId::as_str), &Reply::Error(error))
}

pub(super) fn reply_frame(id: &CommandId, reply: &Reply) -> String {
    frame::encode(id.as_str(), reply)
}

/// Returns the frame that tells a client that its role has changed.
pub(super) fn role_frame(role: SessionRole) -> String {
    frame::encode(ROLE_ID, &EphemeralEvent::RoleChanged(RoleChanged { role }))
}

/// Handles a text frame.
pub(super) async fn received(connection: &mut Connection, text: &str, greeted: bool) -> Flow {
    let (id, command) = match frame::parse_v2(text) {
        Ok(parsed) => parsed,
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
    let (app, owner) = (connection.app.clone(), owner(connection));
    if let Some(error) = refuse_observer(connection, &command) {
        let reply = Reply::Error(error);
        count_reply(name, &reply);
        return connection.send(reply_frame(&id, &reply)).await;
    }
    let session = connection.joined.as_ref().map(|joined| joined.handle.id.clone());
    let answered = match command.route() {
        Routed::Connection(ConnectionCommand::Hello(hello)) => return greet(connection, &id, hello, greeted).await,
        Routed::Connection(ConnectionCommand::OpenSession(open)) => {
            open_session(connection, open).await.map(|opened| Some(Reply::SessionOpened(opened)))
        }
        Routed::Connection(ConnectionCommand::CloseSession(_)) => match connection.joined {
            Some(_) => {
                connection.leave().await;
                Ok(Some(done()))
            }
            None => Err(no_session()),
        },
        Routed::Connection(ConnectionCommand::Ping(ping)) => {
            let seq = connection.joined.as_ref().map_or(0, |joined| joined.feed.seq());
            let in_sync = ping.seq.is_none_or(|seen| seen == seq);
            Ok(Some(Reply::Pong(Pong { seq, in_sync, server_time: sessions::now() })))
        }
        Routed::Server(ServerCommand::ListSessions(list)) => {
            let watch = list.watch;
            // Start the watch before reading the list: changes made meanwhile are reported after it.
            let watcher = (watch == Some(true)).then(|| Box::new(app.registry.watches().watch(&owner)));
            let listed = sessions::list(&asker(&app, &owner, session.as_ref()), list).await;
            if listed.is_ok() && watch.is_some() {
                connection.watching = watcher;
            }
            listed.map(Some)
        }
        Routed::Server(ServerCommand::DeleteSession(delete)) => {
            if session.as_ref() == Some(&delete.session_id) {
                connection.leave().await;
            }
            app.registry.delete(&delete.session_id, &owner).await.map(|()| Some(done()))
        }
        Routed::Server(ServerCommand::GetEntries(get)) => {
            sessions::entries(&asker(&app, &owner, session.as_ref()), get).await.map(Some)
        }
        Routed::Server(ServerCommand::GetTree(get)) => {
            tree::get(&asker(&app, &owner, session.as_ref()), get).await.map(Some)
        }
        Routed::Server(ServerCommand::ForkSession(fork)) => fork_session(connection, &id, fork).map(|()| None),
        Routed::Session(SessionCommand::RenameSession(rename))
            if other_session(connection, rename.session_id.as_ref()) =>
        {
            let Some(session) = rename.session_id.clone() else { return Ok(()) };
            hand_to(connection, &session, &id, Command::RenameSession(rename)).await.map(|()| None)
        }
        Routed::Session(command) => hand_over(connection, &id, command.into()).await.map(|()| None),
    };
    let reply = match answered {
        // The session answers through the connection's channel.
        Ok(None) => return Ok(()),
        Ok(Some(reply)) => reply,
        Err(error) => Reply::Error(error),
    };
    count_reply(name, &reply);
    connection.send(reply_frame(&id, &reply)).await
}

fn done() -> Reply {
    Reply::Ok(Done::default())
}

pub(super) fn no_session() -> ErrorBody {
    ErrorBody::new(ErrorCode::NoSession, "no session is open on this connection; send open_session first")
}

fn asker<'a>(app: &'a App, owner: &'a str, session: Option<&'a SessionId>) -> sessions::Asker<'a> {
    sessions::Asker { app, owner, session }
}

fn owner(connection: &Connection) -> String {
    connection.name.clone().unwrap_or_default()
}

fn other_session(connection: &Connection, session: Option<&SessionId>) -> bool {
    match (session, &connection.joined) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(session), Some(joined)) => joined.handle.id != *session,
    }
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
        connection.send(error_frame(Some(id), error)).await?;
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
        },
    };
    connection.send(reply_frame(id, &Reply::Welcome(welcome))).await
}

/// Refuses what the table of commands does not allow observers, whichever session a command names.
fn refuse_observer(connection: &Connection, command: &Command) -> Option<ErrorBody> {
    let observes = connection.joined.as_ref().is_some_and(|joined| joined.role == SessionRole::Observer);
    (observes && command.spec().sender != Sender::Anyone).then(|| {
        let message = format!("only the owner may send `{}`; this connection is an observer", command.name());
        ErrorBody::new(ErrorCode::ReadOnly, message)
    })
}

/// Sends a command to the open session.
async fn hand_over(connection: &mut Connection, id: &CommandId, command: Command) -> Result<(), ErrorBody> {
    let Some(joined) = &connection.joined else { return Err(no_session()) };
    let (handle, name) = (joined.handle.clone(), command.name());
    let handed = handle.command(connection.origin, id.clone(), command, connection.outgoing.clone()).await;
    handed.map_err(|_| connection.app.session_gone())?;
    connection.expect_reply(id.clone(), name);
    Ok(())
}

/// Starts a fork of the open session. Only durable data is copied, so the session itself is not involved and may be
/// busy.
fn fork_session(connection: &mut Connection, id: &CommandId, fork: ForkSession) -> Result<(), ErrorBody> {
    let Some(joined) = &connection.joined else { return Err(no_session()) };
    let source = joined.handle.id.clone();
    let content = serde_json::to_vec(&Command::ForkSession(fork.clone())).unwrap_or_default();
    let order = fork::ForkOrder {
        source,
        owner: owner(connection),
        id: id.clone(),
        fingerprint: fingerprint(&content),
        fork,
        outgoing: connection.outgoing.clone(),
    };
    connection.app.registry.fork(order);
    connection.expect_reply(id.clone(), "fork_session");
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
            connection.expect_reply(id.clone(), command.name());
            return Ok(());
        }
    }
    Err(ErrorBody::new(ErrorCode::StoreFailed, format!("cannot open session `{session}`; try again")))
}

async fn open_session(connection: &mut Connection, open: OpenSession) -> Result<Box<SessionOpened>, ErrorBody> {
    if connection.joined.is_some() {
        let message = "this connection has an open session; send close_session first";
        return Err(ErrorBody::new(ErrorCode::SessionAlreadyOpen, message));
    }
    let role = open.role.unwrap_or(SessionRole::Owner);
    let tools = check_opening(&open, role)?;
    let (app, owner) = (connection.app.clone(), owner(connection));
    let resume = open.resume.as_ref();
    for _ in 0..2 {
        let handle = match &open.session_id {
            Some(id) => connection.app.registry.open(id, &owner).await?,
            None => connection.app.registry.create(&owner).await?,
        };
        let attach = Attach {
            origin: connection.origin,
            role,
            takeover: open.takeover.unwrap_or(false),
            client_id: connection.client_id.clone(),
            tools: tools.clone(),
            hooks: open.hooks.clone(),
            outgoing: connection.outgoing.clone(),
            resume: resume.map(left_off),
        };
        let Ok(attached) = handle.attach(attach).await else { continue };
        let attached = attached?;
        let entries = match attached.replay {
            true => None,
            false => {
                let count = open.entries.unwrap_or(ENTRIES_DEFAULT);
                let asker = asker(&app, &owner, None);
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
        connection.join(handle, role, open.deltas.unwrap_or(true), attached);
        return Ok(Box::new(opened));
    }
    Err(ErrorBody::new(ErrorCode::StoreFailed, "cannot open the session; try again"))
}

/// Validates the command itself, before a session is created or opened for it. Returns the tools that it offers.
fn check_opening(open: &OpenSession, role: SessionRole) -> Result<Option<Tools>, ErrorBody> {
    if open.session_id.is_none() && (role == SessionRole::Observer || open.resume.is_some()) {
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
