//! `open_session`: checks the command, opens or creates the session, and answers with its state.

use super::{connection::Connection, sessions};
use crate::{
    core::{
        agent_loop::{Snapshot, Tools, check_offers},
        hook::{HookSpec, check_hooks},
    },
    runtime::{Attach, Attached, Found, ItemPosition, Kept, LeftOff, SUBSCRIPTIONS_MAX, blocking, encoded::FrameText},
};
use reseed_protocol::{
    CommandId, ErrorBody, ErrorCode, SessionId,
    session::{OpenSession, Resume, Resumed, SessionOpened, SessionRole},
    tools::UncheckedPattern,
    turn::RunningTurn,
};
use std::sync::Arc;

/// The default number of entries in `session_opened`.
const ENTRIES_DEFAULT: u32 = 50;

/// Subscribes the connection to a session. Creates the session if the command names none. Returns `None` if another
/// node holds the session and will answer.
///
/// # Errors
/// The refusal, with its reason.
pub(super) async fn open_session(
    connection: &mut Connection,
    id: &CommandId,
    session: Option<&SessionId>,
    open: OpenSession,
    text: &FrameText,
) -> Result<Option<Box<SessionOpened>>, ErrorBody> {
    let role = open.role.unwrap_or(SessionRole::Writer);
    let kept = if open.store == Some(false) { Kept::InMemory } else { Kept::Stored };
    let Offered { tools, hooks } = check_opening(&open, role)?;
    let (app, owner) = (connection.app.clone(), connection.credentials.owner());
    let resume = open.resume.as_ref();
    let created = match session {
        // A new session has nothing to observe or resume, but an earlier attempt of this command may have created one.
        None if role == SessionRole::Observer || resume.is_some() => {
            Some(app.registry.created_by(&owner, Some(id)).await?.ok_or_else(nothing_there)?)
        }
        _ => None,
    };
    let session = session.or(created.as_ref());
    if let Some(session) = session.filter(|session| connection.is_routed(session)) {
        connection.pass_to_holder(id, session, "open_session", text);
        return Ok(None);
    }
    if !connection.may_subscribe() {
        let message = format!("this connection is subscribed to {SUBSCRIPTIONS_MAX} sessions; close one of them first");
        return Err(ErrorBody::new(ErrorCode::TooManySubscriptions, message));
    }
    for _ in 0..2 {
        let found = match session {
            Some(session) => app.registry.open_or_find(session, &owner).await?,
            None => app.registry.create_or_find(&owner, id, kept).await?,
        };
        let handle = match found {
            Found::Here(handle) => handle,
            // The edge finds its holder at the next attempt.
            Found::Elsewhere(session, row) if connection.via.is_some() => {
                return Err(app.registry.held_elsewhere(&session, row.id));
            }
            Found::Elsewhere(session, row) => {
                connection.send_to_node(&row, id, &session, "open_session", text)?;
                return Ok(None);
            }
        };
        if connection.subscriptions.of(&handle.id).is_some() {
            return Err(already_open(&handle.id));
        }
        let attach = Attach {
            origin: connection.origin,
            role,
            tools: tools.clone(),
            hooks: hooks.clone(),
            outgoing: connection.subscriptions.outgoing.clone(),
            shared: connection.subscriptions.shared.clone(),
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
                // AnswerPosition may have found damage that makes the session read-only.
                let damage = app.registry.damage(&handle.id).filter(|_| role == SessionRole::Writer);
                match page.and_then(|page| damage.map_or(Ok(page), Err)) {
                    Ok(page) => Some(page),
                    Err(error) => {
                        // It has joined but lacks its entries, so it leaves again.
                        drop(attached);
                        handle.left(connection.origin);
                        return Err(error);
                    }
                }
            }
        };
        let unchecked = tools.as_ref().map(Tools::unchecked_patterns).unwrap_or_default();
        let opened = session_opened(&handle.id, role, &attached, entries, resume.is_some(), unchecked);
        connection.subscribe(handle, role, open.deltas.unwrap_or(true), attached);
        return Ok(Some(Box::new(opened)));
    }
    Err(ErrorBody::new(ErrorCode::StoreFailed, "cannot open the session; try again"))
}

fn already_open(session: &SessionId) -> ErrorBody {
    let message = format!("this connection is subscribed to session `{session}`; send close_session first");
    ErrorBody::new(ErrorCode::SessionAlreadyOpen, message).with_field("sessionId")
}

/// The tools and hooks that a client offers when it opens a session. `None` leaves a part unchanged.
struct Offered {
    tools: Option<Tools>,
    hooks: Option<Arc<[HookSpec]>>,
}

fn nothing_there() -> ErrorBody {
    let message = "name the session: a new one has nothing to observe or resume";
    ErrorBody::new(ErrorCode::MissingField, message).with_field("sessionId")
}

/// Validates the command before a session is created or opened for it. Returns the tools and hooks that it offers.
fn check_opening(open: &OpenSession, role: SessionRole) -> Result<Offered, ErrorBody> {
    for (field, is_there) in [("tools", open.tools.is_some()), ("hooks", open.hooks.is_some())] {
        if is_there && role == SessionRole::Observer {
            let message = format!("an observer cannot offer {field}");
            return Err(ErrorBody::new(ErrorCode::ReadOnly, message).with_field(field));
        }
    }
    let tools = open.tools.clone().map(|tools| blocking::apart(|| check_offers(tools))).transpose()?;
    let hooks = open.hooks.clone().map(check_hooks).transpose()?;
    Ok(Offered { tools, hooks: hooks.map(Arc::from) })
}

fn left_off(resume: &Resume) -> LeftOff {
    let items = resume.items.iter().flatten();
    let seen = items.map(|item| ItemPosition { item: item.item_id.clone(), part: item.part, offset: item.offset });
    LeftOff { epoch: resume.epoch.clone(), seq: resume.seq, items: seen.collect() }
}

fn session_opened(
    id: &SessionId,
    role: SessionRole,
    attached: &Attached,
    entries: Option<sessions::Page>,
    asked_to_resume: bool,
    unchecked_patterns: Vec<UncheckedPattern>,
) -> SessionOpened {
    let Snapshot { seq, leaf, state, generation, name, model, strategy, settings, context_info, .. } =
        attached.snapshot.clone();
    let Snapshot { turn, last_turn, compaction, queue, pending, .. } = attached.snapshot.clone();
    let items = if attached.replay { Vec::new() } else { attached.items.clone() };
    SessionOpened {
        session_id: id.clone(),
        role,
        host: attached.host.clone(),
        unchecked_patterns,
        presence: attached.presence.clone(),
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
        approvals: attached.snapshot.approvals.clone(),
        standing_approvals: attached.snapshot.standing_approvals.clone(),
        pins: attached.snapshot.pins.clone(),
        undone: attached.snapshot.undone.clone(),
    }
}
