//! Commands of a connection with one session of its own, as in v1. The first input creates the session.

use super::{
    closing::{End, Flow},
    connection::{Connection, count_reply},
};
use crate::{config::Scope, runtime::Attach};
use reseed_dialects::{
    Speaks,
    v1::{context_info, error_frame},
};
use reseed_protocol::{
    CloseCode, CommandId, ErrorBody, ErrorCode,
    command::SessionCommand,
    frame,
    reply::{Done, Reply},
    session::SessionRole,
};

/// Handles a text frame.
pub(super) async fn received(connection: &mut Connection, text: &str) -> Flow {
    if connection.credentials.name.is_none() {
        let message = "send your token as `Authorization: Bearer` or a ticket as `?ticket=` when connecting";
        connection.send(error_frame(ErrorBody::new(ErrorCode::Unauthenticated, message))).await?;
        connection.flush().await?;
        return Err(End::Close(CloseCode::Credentials, "credentials must be sent when connecting"));
    }
    let parsed = match frame::parse_v1(text) {
        Ok(parsed) => parsed,
        Err(_) if frame::peek_type(text).as_deref() == Some("hello") => {
            let message = "this connection already uses v1; hello must be the first frame";
            return connection.refuse(None, ErrorBody::new(ErrorCode::AlreadyGreeted, message)).await;
        }
        Err(refused) => return connection.refuse(None, refused.error).await,
    };
    connection.wire.good_frame();
    connection.speaks(Speaks::V1);
    let carried_out = match connection.dialect.v1.asked(connection.origin.0, parsed) {
        Ok(Some((id, SessionCommand::GetContextInfo(_)))) if connection.subscriptions.is_empty() => {
            count_reply("get_context_info", &Reply::Ok(Done::default()));
            return connection.send(context_info(&id, connection.app.registry.empty_context_info())).await;
        }
        Ok(Some((id, command))) => {
            let name = command.spec().name;
            carry_out(connection, id, command).await.map_err(|error| (name, error))
        }
        Ok(None) => {
            let tools = connection.app.registry.parts().tools();
            let asked = connection.dialect.v1.outstanding_tool();
            let offer = tools.checked().offers().map(|(offer, _)| offer).find(|offer| Some(&*offer.name) == asked);
            for frame in connection.dialect.v1.explained(offer) {
                connection.send(frame).await?;
            }
            Ok(())
        }
        Err(refused) => Err(refused),
    };
    if let Err((name, error)) = carried_out {
        count_reply(name, &Reply::Error(error.clone()));
        return connection.send(error_frame(error)).await;
    }
    Ok(())
}

/// Sends a command to the session.
async fn carry_out(connection: &mut Connection, id: CommandId, command: SessionCommand) -> Result<(), ErrorBody> {
    if let SessionCommand::UserInput(input) = &command {
        check_rights(connection)?;
        if connection.subscriptions.is_empty() {
            crate::core::session::input::parts(input.input.clone())?;
            create(connection).await?;
        }
    }
    let Some(subscription) = connection.subscriptions.first() else {
        let code = match command {
            SessionCommand::StartCompaction(_) => ErrorCode::NothingToCompact,
            _ => ErrorCode::NoSession,
        };
        return Err(ErrorBody::new(code, "this connection has not sent any input yet"));
    };
    let (handle, name) = (subscription.handle.clone(), command.spec().name);
    let outgoing = connection.subscriptions.outgoing.clone();
    let handed = handle.command(connection.origin, id.clone(), command, outgoing).await;
    handed.map_err(|_| connection.app.session_gone())?;
    connection.subscriptions.expect_reply(id, &handle.id, name);
    Ok(())
}

fn check_rights(connection: &Connection) -> Result<(), ErrorBody> {
    let grant = connection.credentials.grant.as_ref();
    if grant.is_some_and(|grant| grant.session().is_none() && grant.scopes().allow(Scope::Sessions)) {
        return Ok(());
    }
    let message = "v1 creates a session of its own, which these credentials do not allow; use v2";
    Err(ErrorBody::new(ErrorCode::Forbidden, message))
}

/// Creates the connection's session, and subscribes to it.
async fn create(connection: &mut Connection) -> Result<(), ErrorBody> {
    let handle = connection.app.registry.create(&connection.credentials.owner()).await?;
    let attach = Attach {
        origin: connection.origin,
        role: SessionRole::Writer,
        tools: None,
        hooks: None,
        outgoing: connection.subscriptions.outgoing.clone(),
        shared: connection.subscriptions.shared.clone(),
        resume: None,
    };
    let attached = handle.attach(attach).await;
    let attached =
        attached.map_err(|_| ErrorBody::new(ErrorCode::StoreFailed, "the session could not be opened"))??;
    connection.subscribe(handle, SessionRole::Writer, false, attached);
    Ok(())
}
