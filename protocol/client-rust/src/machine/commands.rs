//! Accepts commands, sends them, repeats them after a lost connection, and reports their outcome.

use super::{Machine, Output, Phase, UNPOLLED_MAX};
use crate::{
    outbox::{Place, Replied},
    subscription::{Phase as Subscribed, Subscription},
    update::{NotTaken, Session, To, Unanswered, Update},
};
use reseed_protocol::{CommandId, SessionId, command::Command, reply::Reply};
use std::time::Instant;

impl Machine {
    /// Sends a command as soon as possible. If that is safe, sends it again after a lost connection, and after a
    /// refusal that leaves open whether it was stored. Returns its id, which its [`Update::Reply`] repeats.
    ///
    /// # Errors
    /// Returns an error if too many commands are waiting, or if the client sends this command by itself.
    pub fn send(&mut self, to: impl Into<To>, command: &Command) -> Result<CommandId, NotTaken> {
        let id = self.new_id();
        self.send_as(id.clone(), to, command)?;
        Ok(id)
    }

    /// Sends a command under this id, which no other command of this client may have had. If the server has executed
    /// the command before under this id, even for an earlier client, it only repeats its reply.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_as(&mut self, id: CommandId, to: impl Into<To>, command: &Command) -> Result<(), NotTaken> {
        if matches!(command, Command::Hello(_) | Command::OpenSession(_) | Command::CloseSession(_)) {
            return Err(NotTaken::Own(command.spec().name));
        }
        if self.out.len() >= UNPOLLED_MAX {
            return Err(NotTaken::Unpolled(self.out.len()));
        }
        let (to, gone) = self.addressed(to.into(), command.spec().needs_subscription());
        let over = match &self.phase {
            Phase::Stopped(stop) => Some(Unanswered::Stopped(stop.clone())),
            _ => gone.then_some(Unanswered::SessionClosed),
        };
        if let Some(why) = over {
            self.tell(Update::Reply { id, result: Err(why) });
            return Ok(());
        }
        self.outbox.add(id.clone(), to.clone(), command)?;
        if let To::Session(session) = to
            && let Some(known) = self.sessions.get_mut(&session)
        {
            known.offers(&id, command);
        }
        self.refuse_too_large();
        self.flush();
        Ok(())
    }

    /// Returns the target of a command, and true if the target has ended here. A command that needs no subscription can
    /// still be sent to a session that has ended here.
    fn addressed(&self, to: To, subscribes: bool) -> (To, bool) {
        let To::Session(session) = to else { return (to, false) };
        match self.sessions.get(&session) {
            None => (to, true),
            Some(known) if matches!(known.phase, Subscribed::Ended | Subscribed::Leaving(_)) => match &known.id {
                Some(id) if !subscribes => (To::Id(id.clone()), false),
                _ => (to, true),
            },
            Some(_) => (to, false),
        }
    }

    pub(super) fn replied(&mut self, now: Instant, id: &CommandId, about: Option<&SessionId>, reply: Reply) {
        match &mut self.phase {
            Phase::Greeting { hello, .. } if hello == id => return self.greeted(now, reply),
            Phase::Open(greeted) if greeted.probe.as_ref().is_some_and(|(probe, _)| probe == id) => {
                let asked = greeted.probe.take().and_then(|(_, asked)| asked);
                return self.probed(now, asked, &reply);
            }
            _ => {}
        }
        let opens = |known: &Subscription| match &known.phase {
            Subscribed::Opening(command) | Subscribed::Leaving(command) => command == id,
            _ => false,
        };
        if let Some(key) = self.sessions.iter().find(|(_, known)| opens(known)).map(|(key, _)| *key) {
            return self.open_replied(now, key, about, reply);
        }
        let refusal = if let Reply::Error(error) = &reply { Some(error) } else { None };
        let sessions = &self.sessions;
        let is_open = |session: Session| sessions.get(&session).is_some_and(Subscription::is_open);
        let replied = self.outbox.reply(now, id, refusal, is_open, &mut self.random);
        if matches!(replied, Replied::Stays | Replied::Unknown) {
            return;
        }
        let result = match reply {
            Reply::Error(error) => Err(Unanswered::Refused(error)),
            reply => Ok(reply),
        };
        self.over(id.clone(), result);
        if let Replied::Deleted(to) = replied {
            self.deleted(&to);
        }
    }

    pub(super) fn flush(&mut self) {
        if !matches!(self.phase, Phase::Open(_)) {
            return;
        }
        let sessions = &self.sessions;
        let place = |session: Session| match sessions.get(&session).map(|known| (known.id.clone(), known.is_open())) {
            Some((Some(id), true)) => Place::Open(id),
            Some((Some(id), false)) => Place::Known(id),
            _ => Place::Unknown,
        };
        self.out.extend(self.outbox.take(place).into_iter().map(Output::Send));
    }

    pub(super) fn refuse_too_large(&mut self) {
        let Phase::Open(greeted) = &self.phase else { return };
        for (id, why) in self.outbox.refuse_larger_than(greeted.bytes_max) {
            self.over(id, Err(why));
        }
    }

    pub(super) fn fail_all(&mut self, why: &Unanswered) {
        for id in self.outbox.fail_all() {
            self.over(id, Err(why.clone()));
        }
    }

    /// Fails the commands that need a session which has ended here.
    pub(super) fn fail_session(&mut self, session: Session) {
        let id = self.sessions.get(&session).and_then(|known| known.id.clone());
        for id in self.outbox.fail_session(session, id.as_ref()) {
            self.over(id, Err(Unanswered::SessionClosed));
        }
    }

    /// Reports the outcome of an accepted command.
    pub(super) fn over(&mut self, id: CommandId, result: Result<Reply, Unanswered>) {
        // If the reply was lost, the command may have been executed, so it remains the user's latest request.
        let stands = matches!(result, Ok(_) | Err(Unanswered::Lost));
        self.sessions.values_mut().for_each(|known| known.offered(&id, stands));
        self.tell(Update::Reply { id, result });
    }
}
