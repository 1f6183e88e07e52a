//! Refuses commands that a connection's credentials do not cover, and renews the credentials.

use super::connection::Connection;
use crate::config::Scope;
use reseed_protocol::{
    ErrorBody, ErrorCode, SessionId,
    command::{Command, Sender},
    session::{Authenticate, SessionRole},
};

/// Returns the reason why this connection's credentials do not allow a command.
pub(super) fn refuse(connection: &Connection, session: Option<&SessionId>, command: &Command) -> Option<ErrorBody> {
    let grant = connection.credentials.grant.as_ref()?;
    if let Some(bound) = grant.session() {
        let is_about_connection = session.is_none()
            && matches!(command, Command::Ping(_) | Command::Authenticate(_) | Command::ListModels(_));
        let is_about_bound = session == Some(bound) && !matches!(command, Command::ForkSession(_));
        if !is_about_connection && !is_about_bound {
            let message = format!("these credentials are for session `{bound}` alone");
            return Some(ErrorBody::new(ErrorCode::Forbidden, message));
        }
    }
    let writes = match command {
        Command::OpenSession(open) => session.is_none() || open.role != Some(SessionRole::Observer),
        command => command.spec().sender != Sender::Anyone,
    };
    (writes && !grant.scopes().allow(Scope::Sessions)).then(|| {
        let message = format!("`{}` needs the scope `sessions`; these credentials may only read", command.name());
        ErrorBody::new(ErrorCode::ReadOnly, message)
    })
}

/// Makes the client an observer if it opens a session without naming a role and may only read.
pub(super) fn as_observer(connection: &Connection, command: Command) -> Command {
    let reads = connection.credentials.grant.as_ref().is_some_and(|grant| !grant.scopes().allow(Scope::Sessions));
    match command {
        Command::OpenSession(mut open) if reads => {
            open.role.get_or_insert(SessionRole::Observer);
            Command::OpenSession(open)
        }
        command => command,
    }
}

/// Renews the credentials of a connection. Refused credentials change nothing.
///
/// # Errors
/// The reason why the credentials are refused.
pub(super) async fn authenticate(connection: &mut Connection, given: Authenticate) -> Result<(), ErrorBody> {
    let (token, ticket) = (given.token.as_deref(), given.ticket.as_deref());
    if token.is_some() == ticket.is_some() {
        let message = "send a `ticket` or a `token`, and not both";
        return Err(ErrorBody::new(ErrorCode::MissingField, message).with_field("ticket"));
    }
    let grant = match connection.app.auth.check(token, ticket).await {
        Ok(grant) => grant,
        Err(refusal) => {
            connection
                .app
                .admission
                .refuse_credentials(Some(connection.credentials.address), "authenticate", refusal)
                .await?;
            return Err(refusal.error().0);
        }
    };
    if connection.credentials.grant.as_ref().is_some_and(|old| !grant.renews(old)) {
        let message = "these credentials are another user's, or allow less; open another connection with them";
        return Err(ErrorBody::new(ErrorCode::Forbidden, message));
    }
    connection.app.admission.audit.accepted(Some(connection.credentials.address), "authenticate", &grant);
    connection.known_by(grant)?;
    connection.renew_links();
    Ok(())
}
