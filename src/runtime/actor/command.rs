//! A command on its way to the loop: permission, duplicates, prefetching from the store, and the route of its one
//! reply.

use super::{Actor, End, members::Member};
use crate::{
    core::{
        agent_loop::{Input, Origin},
        session::{
            Lookup,
            fingerprint::{fingerprint_of, withheld},
        },
    },
    runtime::{
        effects::ReplyTo, errors::stopping, lookups::Lookups, outbox::Outbox, pending_replies::PendingMatch,
        stored_shares::adds_text,
    },
};
use reseed_protocol::{
    CommandId, ErrorBody, ErrorCode, SessionId,
    command::{Does, HostingCommand, Sender, SessionCommand, Spec},
    reply::Reply,
};

/// A command that was not refused.
enum Admitted {
    /// It is executed now, with what it needs from the store.
    Now(Option<Box<Lookup>>),
    /// It was sent before, and needs nothing more.
    Before,
}

impl Actor {
    pub(super) async fn command(
        &mut self,
        origin: Origin,
        id: CommandId,
        command: SessionCommand,
        outgoing: &Outbox,
    ) -> Result<(), End> {
        self.effects.expect_answer(&id);
        let refuse = |session: &SessionId, id: CommandId, error: ErrorBody| {
            outgoing.reply(session.clone(), id, Reply::Error(error));
        };
        let does = command.spec().does;
        let fingerprint = if does == Does::Transient { 0 } else { fingerprint_of(&command) };
        let lookup = match self.admit(origin, &id, fingerprint, &command, outgoing).await {
            Ok(Admitted::Now(lookup)) => lookup,
            Ok(Admitted::Before) => return Ok(()),
            Err(error) => {
                self.note_failed_read(&error);
                refuse(&self.id, id, error);
                return Ok(());
            }
        };
        self.note_hook_result(&command);
        let input = Input::Command { origin, id: id.clone(), fingerprint, command: Box::new(command), lookup };
        let told = self.tell(input, Some(ReplyTo { origin, outgoing })).await;
        if self.effects.has_answered() {
            return told;
        }
        let late = self.agent.as_ref().map(|agent| agent.answers_late()).unwrap_or_default();
        if told.is_err() {
            refuse(
                &self.id,
                id,
                ErrorBody::new(ErrorCode::StoreFailed, "the store failed to write; reopen the session"),
            );
        } else if late.contains(&id) {
            self.effects.pending.keep(&late);
            self.effects.pending.wait(origin, id, fingerprint, does == Does::Writes, outgoing.clone());
        }
        told
    }

    /// Checks whether a command may be executed now, and prefetches what it needs.
    ///
    /// # Errors
    /// The reason why it is refused.
    async fn admit(
        &mut self,
        origin: Origin,
        id: &CommandId,
        fingerprint: u64,
        command: &SessionCommand,
        outgoing: &Outbox,
    ) -> Result<Admitted, ErrorBody> {
        let spec = command.spec();
        if let Some(error) = self.refusal(origin, spec).or_else(|| spec.does.writes().then(|| self.away()).flatten()) {
            return Err(error);
        }
        if spec.does != Does::Transient && self.is_repeat(id, fingerprint, spec, outgoing).await? {
            return Ok(Admitted::Before);
        }
        // Hooks continue what a command began, and that command was checked.
        if origin != Origin::HOOK {
            let owner = self.row.owner();
            match self.shared.unstored.contains(&self.id) {
                true if adds_text(command) => self.shared.check_memory(&owner)?,
                true => {}
                false => self.shared.stored.check_may_store(&owner, command).await?,
            }
        }
        // Without a loop, the session is about to be closed, and the command is refused then.
        let Some(agent) = &self.agent else { return Ok(Admitted::Now(None)) };
        let session = agent.session();
        let lookups = Lookups {
            store: &*self.shared.store,
            session: &self.id,
            state: &session.state,
            tree: &session.tree,
            sender: self.members.get(origin).and_then(|member| member.client.identity.client_id.as_deref()),
            hook_is_asked: agent.asks_before_navigate(),
        };
        lookups.for_command(command, agent.is_busy()).await.map(Admitted::Now)
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
        // Other errors, such as a refusal, say nothing about the database; `away` notices that it is back.
        self.database_is_away |= error.code == ErrorCode::StoreFailed && !self.is_trusted();
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
    fn refusal(&self, origin: Origin, spec: &Spec) -> Option<ErrorBody> {
        let begins_something = spec.does == Does::Writes;
        if self.stopping && begins_something {
            return Some(stopping());
        }
        let may_write = || self.members.get(origin).is_some_and(Member::may_write);
        if spec.sender == Sender::Writer && origin != Origin::HOOK && !may_write() {
            let message = "this connection is not subscribed to the session as a writer; open it again";
            return Some(ErrorBody::new(ErrorCode::ReadOnly, message));
        }
        self.shared.damage(&self.id).filter(|_| begins_something)
    }

    /// Returns true if a command was sent before. A repeat of an answered command gets the earlier reply. A repeat of a
    /// pending one is answered with it.
    ///
    /// # Errors
    /// `idempotency_conflict`, `overloaded`, the store's errors.
    async fn is_repeat(
        &mut self,
        id: &CommandId,
        fingerprint: u64,
        &Spec { does, name, .. }: &Spec,
        outgoing: &Outbox,
    ) -> Result<bool, ErrorBody> {
        let full = self.effects.pending.is_full(outgoing).filter(|_| does != Does::Cancels);
        if self.effects.pending.waits(id, fingerprint)
            && let Some(full) = full
        {
            return Err(full);
        }
        match self.effects.pending.join(id, fingerprint, outgoing) {
            PendingMatch::Repeat => return Ok(true),
            PendingMatch::Conflict if does.writes() => return Err(ErrorBody::id_reused(id)),
            PendingMatch::Conflict | PendingMatch::Nothing => {}
        }
        if does.writes() {
            match self.effects.earlier(id).await? {
                Some((earlier, _))
                    if earlier == withheld(name) && self.effects.pending.was_another(id, fingerprint) =>
                {
                    return Err(ErrorBody::id_reused(id));
                }
                Some((earlier, reply)) if earlier == fingerprint || earlier == withheld(name) => {
                    outgoing.reply(self.id.clone(), id.clone(), reply);
                    return Ok(true);
                }
                Some(_) => return Err(ErrorBody::id_reused(id)),
                None => {}
            }
        }
        full.map_or(Ok(false), Err)
    }
}
