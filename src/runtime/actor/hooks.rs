//! Hooks that the owner's client hosts: asked over its own connection, and again when it comes back.
//!
//! A call is for the client that offered the hook and for no other: observers are not told, and whoever comes in its
//! place takes its hooks away. What the loop does about a client that is away is the loop's business.

use super::{
    Actor, End,
    attach::{Client, Owner},
};
use crate::{
    core::{
        agent_loop::{Input, Origin, io::CallHook},
        hook::HookFault,
    },
    runtime::handle::{Outgoing, Private, REPLIES_MAX},
};
use reseed_protocol::{
    SessionId,
    command::{Command, RegisterHooks},
    event::EphemeralEvent,
    frame::encode,
    hook::{HookCall, HookOffer},
};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Id of the frames that ask a client's hooks: none is ever answered.
const HOOK_ID: &str = "s_h";

/// Bytes of events that may wait for one connection, or one event if that is larger. Each call of a `context` hook
/// carries all that would be sent, so a client that does not read would otherwise hold that as often as there are hooks.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Owner {
    /// Tells this connection alone.
    fn tell(&mut self, session: &SessionId, event: &EphemeralEvent) -> Result<(), &'static str> {
        if self.outgoing.is_closed() {
            return Err("is not connected");
        }
        let frame = encode(HOOK_ID, event);
        let room = self.event_room.get_or_insert_with(|| Arc::new(Semaphore::new(EVENT_BYTES_MAX)));
        let bytes = u32::try_from(frame.len().min(EVENT_BYTES_MAX)).unwrap_or(u32::MAX);
        // Half for replies, one for the word that it is no longer the owner.
        let for_others = REPLIES_MAX / 2 + 1;
        match room.clone().try_acquire_many_owned(bytes) {
            Ok(_room) if self.outgoing.capacity() > for_others => {
                let event = Private { session: session.clone(), frame, _room };
                self.outgoing.try_send(Outgoing::Event(Box::new(event))).map_err(|_| "is not connected")
            }
            _ => Err("does not read what it is sent"),
        }
    }
}

impl Actor {
    /// Sends a call to the client that hosts the hook.
    ///
    /// # Errors
    /// `hook_unavailable`: it is not here, or reads nothing.
    fn send_call(&mut self, call: HookCall) -> Result<(), HookFault> {
        let hook = call.hook.clone();
        let away = |why| HookFault::unavailable(format!("the client of the hook `{hook}` {why}"));
        let Some(owner) = self.owner.as_mut().filter(|owner| self.host.as_ref() == Some(&owner.client)) else {
            return Err(away("is not connected"));
        };
        owner.tell(&self.id, &EphemeralEvent::HookCall(Box::new(call))).map_err(away)
    }

    /// Asks a hook of the client's. What the loop must be told at once, where it waits for an answer that will not come.
    pub(super) fn call_client(&mut self, call: CallHook) -> Option<Input> {
        let CallHook { call, awaited, place: _ } = call;
        let call_id = call.call_id.clone();
        let fault = self.send_call(call).err()?;
        awaited.then(|| Input::HookAnswered { call_id, answer: Box::new(Err(fault)) })
    }

    /// The owner offers these hooks with its coming, or offers none; those of another client went with it.
    pub(super) async fn offer_hooks(&mut self, offers: Option<Vec<HookOffer>>) -> Result<(), End> {
        let Some(client) = self.owner.as_ref().map(|owner| owner.client.clone()) else { return Ok(()) };
        match (&mut self.host, offers) {
            (_, Some(hooks)) => {
                self.host = Some(client.clone());
                self.register_hooks(client.origin, hooks).await
            }
            (Some(host), None) if host.is_same(&client) => {
                *host = client;
                Ok(())
            }
            (Some(_), None) => {
                self.host = None;
                self.register_hooks(client.origin, Vec::new()).await
            }
            (None, None) => Ok(()),
        }
    }

    async fn register_hooks(&mut self, origin: Origin, hooks: Vec<HookOffer>) -> Result<(), End> {
        self.tell_of_coming(origin, Command::RegisterHooks(RegisterHooks { hooks })).await
    }

    /// Sends the client that is back the calls that still wait for its answer.
    pub(super) async fn call_again(&mut self) -> Result<(), End> {
        for call in self.open_calls() {
            self.call_or_tell(call).await?;
        }
        Ok(())
    }

    /// The owner has left: nothing comes of the calls that wait for its answer, until it is back.
    pub(super) async fn owner_left(&mut self, origin: Origin) -> Result<(), End> {
        if self.owner.take_if(|owner| owner.client.origin == origin).is_none() {
            return Ok(());
        }
        for call in self.open_calls() {
            self.call_or_tell(call).await?;
        }
        Ok(())
    }

    fn open_calls(&self) -> Vec<HookCall> {
        self.agent.as_ref().map(|agent| agent.open_client_calls()).unwrap_or_default()
    }

    async fn call_or_tell(&mut self, call: HookCall) -> Result<(), End> {
        let call_id = call.call_id.clone();
        match self.send_call(call) {
            Ok(()) => Ok(()),
            Err(fault) => self.tell(Input::HookAnswered { call_id, answer: Box::new(Err(fault)) }, None).await,
        }
    }
}

impl Client {
    /// Whether this is the client that was here before: on the same connection, or under the same name.
    fn is_same(&self, other: &Self) -> bool {
        self.origin == other.origin || (self.client_id.is_some() && self.client_id == other.client_id)
    }
}
