//! Carries out the commands of a client, as v2 has them: one reply per command.

use super::{
    app::App,
    audit::{ASKED, Act},
    closing::{End, Flow},
    connection::{BAD_FRAMES_MAX, Connection, count_reply},
    history,
    opening::open_session,
    scope, sessions, tree,
};
use crate::{
    core::session::fingerprint::fingerprint_of,
    runtime::{
        Identity, PRESENCE_MAX, REPLAY_EVENTS_MAX, SUBSCRIPTIONS_MAX, SessionHandle, blocking, encoded::FrameText,
        fork, handle::Gone, outbox::Outbox,
    },
    shares::turns::{Turn, Turns},
    store::NodeRow,
    trace::within,
};
use reseed_protocol::{
    CloseCode, CommandId, ErrorBody, ErrorCode, PROTOCOL_VERSION, SessionId,
    command::{Command, ConnectionCommand, Routed, Sender, ServerCommand, SessionCommand},
    frame::{self, Received, Refused},
    reply::{Done, Reply},
    session::{Hello, Limits, Ping, Pong, Server, SessionRole, Welcome},
    tree::ForkSession,
};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::time::timeout;

/// Maximum wait for a user's turn to read history. Meanwhile the connection does nothing else.
const READ_TURN_TIME: Duration = Duration::from_secs(3);

/// Tells a client why its read was refused.
const READS_AT_ONCE: &str = "other connections of yours are reading history; one reads at a time, so try again";

/// Maximum length of `clientId`.
const CLIENT_ID_CHARS_MAX: usize = 64;

/// Maximum characters of a command's name that an error shows.
const SHOWN_CHARS_MAX: usize = 64;

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
    "hosts",
    "presence",
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
    "search_history",
    "models",
];

/// Returns the error for a command before `hello`.
fn not_greeted(name: &str) -> ErrorBody {
    let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
    ErrorBody::new(ErrorCode::NotGreeted, format!("send hello first; this is `{shown}`"))
}

/// Handles a text frame.
pub(super) async fn received(connection: &mut Connection, text: &FrameText, greeted: bool) -> Flow {
    let Received { id, session, command, traceparent } = match frame::parse_v2(text) {
        Ok(received) => received,
        Err(Refused { id, session, error }) => {
            // Nothing may precede `hello`. This takes priority over other errors of the frame.
            let early = frame::peek_type(text).filter(|name| !greeted && name != "hello");
            let error = early.map_or(error, |name| not_greeted(&name));
            return connection.refuse_about(session.as_ref(), id.as_ref(), error).await;
        }
    };
    let name = command.name();
    if !matches!(command, Command::Hello(_)) {
        if !greeted {
            return connection.refuse(Some(&id), not_greeted(name)).await;
        }
        connection.wire.good_frame();
    }
    if let Command::Hello(hello) = command {
        return greet(connection, &id, hello, greeted).await;
    }
    let command = scope::as_observer(connection, command);
    let refused = scope::refuse(connection, session.as_ref(), &command)
        .or_else(|| refuse_observer(connection, session.as_ref(), &command));
    let reading = match refused {
        Some(error) => Err(error),
        None => {
            turn_to_read(
                connection.app.registry.shares().reading().clone(),
                connection.credentials.name.clone(),
                &command,
            )
            .await
        }
    };
    let answered = match &reading {
        Err(error) => Err(error.clone()),
        Ok(_) => {
            let context = connection.app.registry.traces().of_command(traceparent.as_deref());
            let context = context.or_else(|| connection.context.clone()).map(|context| *context);
            within(context, carry_out(connection, &id, session.as_ref(), command, text)).await
        }
    };
    let (reply, session) = match answered {
        // The session answers through the connection's channel.
        Ok(None) => return Ok(()),
        Ok(Some(reply)) => {
            let made = if let Reply::SessionOpened(opened) = &reply { Some(opened.session_id.clone()) } else { None };
            (reply, session.or(made))
        }
        Err(error) => (Reply::Error(connection.for_client(error)), session),
    };
    count_reply(name, &reply);
    let encode = || frame::encode_reply(Some(&id), session.as_ref(), &reply);
    let encoded = match &reply {
        Reply::Entries(_) | Reply::Tree(_) | Reply::SessionOpened(_) => blocking::apart(encode),
        _ => encode(),
    };
    drop(reading);
    connection.send(encoded).await?;
    Ok(())
}

/// Waits for the user's turn to read history, if the command reads it. The turn lasts until the reply is written, which
/// is as much work as reading.
///
/// # Errors
/// `rate_limited`: other connections of the user have been reading for too long.
async fn turn_to_read(reading: Arc<Turns>, user: Option<String>, command: &Command) -> Result<Option<Turn>, ErrorBody> {
    let (Command::GetEntries(_) | Command::GetTree(_) | Command::SearchHistory(_), Some(user)) = (command, user) else {
        return Ok(None);
    };
    let turn = timeout(READ_TURN_TIME, reading.take(&user)).await;
    let error = || ErrorBody::new(ErrorCode::RateLimited, READS_AT_ONCE).with_retry_after_ms(1_000);
    turn.map(Some).map_err(|_| error())
}

/// Executes a command. Returns its reply, or `None` if the session will answer it.
async fn carry_out(
    connection: &mut Connection,
    id: &CommandId,
    session: Option<&SessionId>,
    command: Command,
    text: &FrameText,
) -> Result<Option<Reply>, ErrorBody> {
    if let Some(session) = session
        && goes_to_holder(connection, session, &command)
    {
        connection.pass_to_holder(id, session, command.name(), text);
        return Ok(None);
    }
    let (app, owner) = (connection.app.clone(), connection.credentials.owner());
    let asker = sessions::Asker { app: &app, owner: &owner };
    match (command.route(), session) {
        (Routed::Connection(ConnectionCommand::OpenSession(open)), session) => {
            let opened = open_session(connection, id, session, open, text).await?;
            Ok(opened.map(Reply::SessionOpened))
        }
        (Routed::Connection(ConnectionCommand::Authenticate(given)), _) => {
            scope::authenticate(connection, given).await.map(|()| Some(done()))
        }
        (Routed::Connection(ConnectionCommand::CloseSession(_)), Some(session)) => {
            if connection.subscriptions.end(session, connection.origin).await {
                Ok(Some(done()))
            } else {
                Err(no_session(session))
            }
        }
        (Routed::Connection(ConnectionCommand::Ping(ping)), session) => pong(connection, session, &ping).map(Some),
        (Routed::Server(ServerCommand::ListSessions(list)), _) => {
            let watch = list.watch;
            // The watch starts before the list is read. Changes made meanwhile are reported after the list.
            let watcher = (watch == Some(true)).then(|| Box::new(app.registry.watches().watch(&owner)));
            let listed = sessions::list(&asker, list).await;
            if listed.is_ok() && watch.is_some() {
                connection.subscriptions.watching = watcher;
            }
            listed.map(Some)
        }
        (Routed::Server(ServerCommand::ListModels(_)), _) => {
            Ok(Some(Reply::Models(app.registry.parts().deployment().models())))
        }
        (Routed::Server(ServerCommand::DeleteSession(_)), Some(session)) => {
            // A session whose holder has no address is deleted here. The holder's next append then fails.
            if let Some(row) = elsewhere(connection, session, &owner).await? {
                return connection.send_to_node(&row, id, session, "delete_session", text).map(|()| None);
            }
            // A relayed client's address is known to its edge.
            let address = connection.via.is_none().then_some(connection.credentials.address);
            delete(&app, (address, connection.operates()), session, &owner).await?;
            // The session's own feed has ended too, but the reply already says so.
            connection.subscriptions.end(session, connection.origin).await;
            Ok(Some(done()))
        }
        (Routed::Server(ServerCommand::SearchHistory(search)), session) => {
            history::search(&asker, session, search).await.map(Some)
        }
        (Routed::Server(ServerCommand::GetEntries(get)), Some(session)) => {
            sessions::entries(&asker, session, get).await.map(Some)
        }
        (Routed::Server(ServerCommand::GetTree(get)), Some(session)) => tree::get(&asker, session, get).await.map(Some),
        (Routed::Server(ServerCommand::ForkSession(fork)), Some(session)) => {
            fork_session(connection, id, session, fork).map(|()| None)
        }
        (Routed::Session(SessionCommand::RenameSession(rename)), Some(session))
            if connection.subscriptions.of(session).is_none() =>
        {
            if let Some(row) = elsewhere(connection, session, &owner).await? {
                return connection.send_to_node(&row, id, session, "rename_session", text).map(|()| None);
            }
            hand_to(connection, session, id, SessionCommand::RenameSession(rename)).await.map(|()| None)
        }
        (Routed::Hosting(command), Some(session)) => {
            let (handle, outgoing) = handle(connection, session)?;
            let name = command.spec().name;
            let handed = handle.hosting(connection.origin, id.clone(), command, outgoing).await;
            expect_reply(connection, handed, id, session, name).map(|()| None)
        }
        (Routed::Session(command), Some(session)) => {
            let (handle, outgoing) = handle(connection, session)?;
            let name = command.spec().name;
            let handed = handle.command(connection.origin, id.clone(), command, outgoing).await;
            expect_reply(connection, handed, id, session, name).map(|()| None)
        }
        // `hello` has been answered, and `parse_v2` requires a session for all other commands.
        (Routed::Connection(_) | Routed::Server(_) | Routed::Hosting(_) | Routed::Session(_), _) => {
            Err(ErrorBody::new(ErrorCode::MissingField, "name the session").with_field("sessionId"))
        }
    }
}

/// Deletes a session permanently, and records who did. A session in memory only, such as the copy that a dialect makes
/// for a summary, is not recorded.
///
/// # Errors
/// `session_not_found`, `store_failed`: also if the record cannot be written. The session stays then.
async fn delete(
    app: &App,
    (address, operates): (Option<IpAddr>, bool),
    id: &SessionId,
    owner: &str,
) -> Result<(), ErrorBody> {
    let (registry, audit) = (&app.registry, &app.admission.audit);
    // Whoever has no such session leaves no record: the id is text from a client.
    registry.head(id, owner).await?;
    // An operator's act is recorded as theirs.
    if operates || !registry.is_stored(id) {
        return registry.delete(id, owner).await;
    }
    let (what, session, user) = ("delete_session", Some(id), Some(owner));
    let act = Act { who: owner, what, session, user, address, outcome: ASKED };
    audit.act(act).await?;
    let deleted = registry.delete(id, owner).await;
    let outcome = deleted.as_ref().map_or_else(|error| error.code.as_str(), |()| "deleted");
    // It has happened, whether this can be written or not.
    let _ = audit.act(Act { outcome, ..act }).await;
    deleted
}

/// Returns true if the command must go to the holder of its session, which is another node. Any node can answer a
/// command that only reads the store.
fn goes_to_holder(connection: &Connection, session: &SessionId, command: &Command) -> bool {
    use Command::{GetEntries, GetTree, OpenSession, SearchHistory};
    let stays = matches!(command, OpenSession(_) | GetEntries(_) | GetTree(_) | SearchHistory(_));
    !stays && connection.is_routed(session)
}

/// Returns the node that holds a session to which this connection is not subscribed, if it is another node with an
/// address.
///
/// # Errors
/// As `locate`. `overloaded`: a relayed client was sent here, but another node has opened the session since.
async fn elsewhere(
    connection: &mut Connection,
    session: &SessionId,
    owner: &str,
) -> Result<Option<Box<NodeRow>>, ErrorBody> {
    if connection.subscriptions.of(session).is_some() {
        return Ok(None);
    }
    let registry = &connection.app.registry;
    match registry.locate(session, owner).await? {
        Some(row) if row.node.address.is_none() => Ok(None),
        Some(row) if connection.via.is_some() => Err(registry.held_elsewhere(session, row.id)),
        other => Ok(other),
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
    let subscription = connection.subscriptions.of(session).ok_or_else(|| no_session(session))?;
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
    let (auth, audit, address) =
        (&connection.app.auth, &connection.app.admission.audit, connection.credentials.address);
    let granted = match (&hello.token, &hello.ticket, &connection.credentials.grant) {
        (None, None, Some(grant)) => Ok(grant.clone()),
        (token, ticket, _) => auth
            .check(token.as_deref(), ticket.as_deref())
            .await
            .inspect(|grant| audit.accepted(Some(address), "hello", grant)),
    };
    let grant = match granted {
        Ok(grant) => grant,
        Err(refusal) => {
            let (error, why) = refusal.error();
            let refused = connection
                .app
                .admission
                .refuse_credentials(Some(connection.credentials.address), "hello", refusal)
                .await;
            let error = refused.err().unwrap_or(error);
            connection.send(frame::encode_reply(Some(id), None, &Reply::Error(error))).await?;
            connection.flush().await?;
            return Err(End::Close(refusal.close_code(), why));
        }
    };
    let scopes = grant.scopes().names().map(str::to_owned).collect();
    if let Err(error) = connection.known_by(grant) {
        connection.send(frame::encode_reply(Some(id), None, &Reply::Error(error))).await?;
        connection.flush().await?;
        return Err(End::Close(CloseCode::Overloaded, "too many connections of this user"));
    }
    let connection_id = connection.app.connection_id(connection.origin);
    connection.greeted(Identity {
        connection_id: connection_id.clone(),
        client_id: hello.client_id,
        software: hello.client,
    });
    let app = &connection.app;
    let welcome = Welcome {
        protocol_version: PROTOCOL_VERSION,
        server: Server {
            name: "reseed".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: app.about.instance.clone(),
            provider: app.about.provider.to_owned(),
            notice: app.about.notice.clone(),
        },
        features: FEATURES.iter().map(ToString::to_string).collect(),
        scopes,
        connection_id,
        heartbeat_ms: u64::try_from(app.patience.heartbeat.as_millis()).unwrap_or(u64::MAX),
        limits: Limits {
            message_bytes_max: app.admission.message_bytes_max as u64,
            depth_max: frame::DEPTH_MAX as u64,
            queue_items_max: app.about.queue_items_max as u64,
            tools_max: crate::core::agent_loop::TOOLS_MAX as u64,
            hooks_max: crate::core::hook::HOOKS_MAX as u64,
            subscriptions_max: SUBSCRIPTIONS_MAX as u64,
            presence_max: PRESENCE_MAX as u64,
            page_entries_max: u64::from(sessions::ENTRIES_LIMIT.1),
            replay_events_max: REPLAY_EVENTS_MAX,
            bad_frames_max: u64::from(BAD_FRAMES_MAX),
            preview_secs: crate::core::agent_loop::PREVIEW_MILLIS / 1_000,
            host_away_secs: app.registry.host_away().as_secs(),
        },
    };
    connection.send(frame::encode_reply(Some(id), None, &Reply::Welcome(Box::new(welcome)))).await
}

/// Refuses a command that the command table does not allow an observer of its session.
fn refuse_observer(connection: &Connection, session: Option<&SessionId>, command: &Command) -> Option<ErrorBody> {
    let subscription = connection.subscriptions.of(session?)?;
    let observes = subscription.role == SessionRole::Observer && !connection.operates();
    (observes && command.spec().sender != Sender::Anyone).then(|| {
        let message = format!("only writers may send `{}`; this connection is an observer", command.name());
        ErrorBody::new(ErrorCode::ReadOnly, message)
    })
}

/// Returns the session that the connection is subscribed to, and where it sends replies.
fn handle(connection: &Connection, session: &SessionId) -> Result<(SessionHandle, Outbox), ErrorBody> {
    let subscription = connection.subscriptions.of(session).ok_or_else(|| no_session(session))?;
    Ok((subscription.handle.clone(), connection.subscriptions.outgoing.clone()))
}

/// Expects the reply to a command that was handed to its session.
fn expect_reply(
    connection: &mut Connection,
    handed: Result<(), Gone>,
    id: &CommandId,
    session: &SessionId,
    name: &'static str,
) -> Result<(), ErrorBody> {
    handed.map_err(|_| connection.app.session_gone())?;
    connection.subscriptions.expect_reply(id.clone(), session, name);
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
    connection.subscriptions.of(session).ok_or_else(|| no_session(session))?;
    let order = fork::ForkOrder {
        source: session.clone(),
        owner: connection.credentials.owner(),
        id: id.clone(),
        fingerprint: fingerprint_of(&ServerCommand::ForkSession(fork.clone())),
        fork,
        outgoing: connection.subscriptions.outgoing.clone(),
    };
    connection.app.registry.fork(order)?;
    connection.subscriptions.expect_reply(id.clone(), session, "fork_session");
    Ok(())
}

/// Sends a command to another session of this user.
async fn hand_to(
    connection: &mut Connection,
    session: &SessionId,
    id: &CommandId,
    command: SessionCommand,
) -> Result<(), ErrorBody> {
    let owner = connection.credentials.owner();
    // If the session leaves memory between lookup and request, it is opened once more.
    for _ in 0..2 {
        let handle = connection.app.registry.open(session, &owner).await?;
        let handed = handle
            .command(connection.origin, id.clone(), command.clone(), connection.subscriptions.outgoing.clone())
            .await;
        if handed.is_ok() {
            connection.subscriptions.expect_reply(id.clone(), session, command.spec().name);
            return Ok(());
        }
    }
    Err(ErrorBody::new(ErrorCode::StoreFailed, format!("cannot open session `{session}`; try again")))
}
