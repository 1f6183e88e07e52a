//! A command on its way to the loop: permission, duplicates, prefetching from the store, and the route of its one
//! reply.

use super::{Actor, End};
use crate::{
    core::{
        agent_loop::{Input, Origin},
        session::fingerprint::{fingerprint_of, withheld},
    },
    runtime::{effects::ReplyTo, errors::stopping, lookups::Lookups, outbox::Outbox, pending_replies::PendingMatch},
};
use reseed_protocol::{
    CommandId, ErrorBody, ErrorCode,
    command::{Does, HostingCommand, Sender, SessionCommand, Spec},
    reply::Reply,
    session::{SessionRole, SubscriptionEnd},
};

/// An earlier copy of a command, if there is one.
enum EarlierCopy {
    /// There is none.
    Nothing,
    /// The first copy is pending. Both will be answered together.
    Waiting,
    /// It was already answered with this reply.
    Answered(Box<Reply>),
}

impl Actor {
    pub(super) async fn command(
        &mut self,
        origin: Origin,
        id: CommandId,
        command: SessionCommand,
        outgoing: &Outbox,
    ) -> Result<(), End> {
        let session = self.id.clone();
        let refuse = |error: ErrorBody| {
            outgoing.reply(session.clone(), id.clone(), Reply::Error(error));
        };
        self.effects.expect_answer(&id);
        if let Some(error) = self.refusal(origin, command.spec()) {
            refuse(error);
            return Ok(());
        }
        if command.spec().does.writes()
            && let Some(error) = self.away()
        {
            refuse(error);
            return Ok(());
        }
        let mut content = 0;
        if command.spec().does != Does::Transient {
            content = fingerprint_of(&command);
            match self.met(&id, content, &command, outgoing).await {
                Ok(EarlierCopy::Nothing) => {}
                Ok(EarlierCopy::Waiting) => return Ok(()),
                Ok(EarlierCopy::Answered(reply)) => {
                    outgoing.reply(session.clone(), id, *reply);
                    return Ok(());
                }
                Err(error) => {
                    self.note_failed_read(&error);
                    refuse(error);
                    return Ok(());
                }
            }
        }
        // Hooks continue what a command began, and that command was checked.
        if origin != Origin::HOOK
            && let Err(error) = self.shared.stored.check_may_store(&self.row.owner(), &command).await
        {
            self.note_failed_read(&error);
            refuse(error);
            return Ok(());
        }
        let Some(agent) = &self.agent else { return Err(End::Close(SubscriptionEnd::Failed)) };
        let session = agent.session();
        let lookups = Lookups {
            store: &*self.shared.store,
            session: &self.id,
            state: &session.state,
            tree: &session.tree,
            sender: self.members.get(origin).and_then(|member| member.client.identity.client_id.as_deref()),
            hook_is_asked: agent.asks_before_navigate(),
        };
        let lookup = match lookups.for_command(&command, agent.is_busy()).await {
            Ok(lookup) => lookup,
            Err(error) => {
                self.note_failed_read(&error);
                refuse(error);
                return Ok(());
            }
        };
        self.note_hook_result(&command);
        let writes = command.spec().does == Does::Writes;
        let input = Input::Command { origin, id: id.clone(), fingerprint: content, command: Box::new(command), lookup };
        let told = self.tell(input, Some(ReplyTo { origin, outgoing })).await;
        let late = self.agent.as_ref().map(|agent| agent.answers_late()).unwrap_or_default();
        if told.is_ok() && late.contains(&id) && !self.effects.has_answered() {
            self.effects.pending.keep(&late);
            self.effects.pending.wait(origin, id.clone(), content, writes, outgoing.clone());
        }
        if told.is_err() && !self.effects.has_answered() {
            refuse(ErrorBody::new(ErrorCode::StoreFailed, "the store failed to write; reopen the session"));
        }
        told
    }

    /// Executes a command about hosting. It is not remembered, and changes nothing that is stored.
    pub(super) async fn hosting(
        &mut self,
        origin: Origin,
        id: CommandId,
        command: HostingCommand,
        outgoing: &Outbox,
    ) -> Result<(), End> {
        self.effects.expect_answer(&id);
        let refused = self.refusal(origin, command.spec());
        match refused.map_or_else(|| self.check_hosting(origin, command), Err) {
            Ok((reply, order)) => {
                self.effects.reply(Some(ReplyTo { origin, outgoing }), origin, id, reply);
                self.execute_hosting(origin, order).await
            }
            Err(error) => {
                outgoing.reply(self.id.clone(), id, Reply::Error(error));
                Ok(())
            }
        }
    }

    /// Notes that a read failed because the database is away. Without this, every further command would wait as long,
    /// one after the other.
    pub(super) fn note_failed_read(&mut self, error: &ErrorBody) {
        self.database_is_away = error.code == ErrorCode::StoreFailed && !self.is_trusted();
    }

    /// Returns the error for a command that writes while the database is away, once another command has waited for it.
    pub(super) fn away(&mut self) -> Option<ErrorBody> {
        self.database_is_away &= !self.is_trusted();
        let message = "the database is away; nothing was acknowledged, try again";
        self.database_is_away.then(|| ErrorBody::new(ErrorCode::StoreFailed, message))
    }

    fn is_trusted(&self) -> bool {
        self.shared.cluster.as_ref().is_none_or(|keeper| keeper.is_trusted())
    }

    /// Returns the reason why this connection may not execute this command now.
    fn refusal(&self, origin: Origin, spec: Spec) -> Option<ErrorBody> {
        let begins_something = spec.does == Does::Writes;
        if self.stopping && begins_something {
            return Some(stopping());
        }
        let writes = |origin| self.members.get(origin).is_some_and(|member| member.role == SessionRole::Writer);
        if spec.sender == Sender::Writer && origin != Origin::HOOK && !writes(origin) {
            let message = "this connection is not subscribed to the session as a writer; open it again";
            return Some(ErrorBody::new(ErrorCode::ReadOnly, message));
        }
        self.shared.damage(&self.id).filter(|_| begins_something)
    }

    /// Checks whether a command was sent before.
    ///
    /// # Errors
    /// `idempotency_conflict`, `overloaded`, the store's errors.
    async fn met(
        &mut self,
        id: &CommandId,
        content: u64,
        command: &SessionCommand,
        outgoing: &Outbox,
    ) -> Result<EarlierCopy, ErrorBody> {
        let does = command.spec().does;
        let full = self.effects.pending.is_full(outgoing).filter(|_| does != Does::Cancels);
        if self.effects.pending.waits(id, content)
            && let Some(full) = full
        {
            return Err(full);
        }
        match self.effects.pending.join(id, content, outgoing) {
            PendingMatch::Repeat => return Ok(EarlierCopy::Waiting),
            PendingMatch::Conflict if does.writes() => return Err(ErrorBody::id_reused(id)),
            PendingMatch::Conflict | PendingMatch::Nothing => {}
        }
        if does.writes() {
            match self.effects.earlier(id).await? {
                Some((earlier, _))
                    if earlier == withheld(command.spec().name) && self.effects.pending.was_another(id, content) =>
                {
                    return Err(ErrorBody::id_reused(id));
                }
                Some((earlier, reply)) if earlier == content || earlier == withheld(command.spec().name) => {
                    return Ok(EarlierCopy::Answered(Box::new(reply)));
                }
                Some(_) => return Err(ErrorBody::id_reused(id)),
                None => {}
            }
        }
        full.map_or(Ok(EarlierCopy::Nothing), Err)
    }
}
