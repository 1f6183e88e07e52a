//! Hooks hosted by the owner's client: called over its own connection, and again when it reconnects.
//!
//! A call is only for the client that offered the hook: observers do not see it, and a client that takes over removes
//! its hooks. How the loop treats an absent client is up to the loop.

use super::{
    Actor, End,
    attach::{Client, Owner},
};
use crate::{
    core::{
        agent_loop::{Input, Origin},
        hook::HookFault,
    },
    metrics::{
        Outcome,
        hooks::{HookCallMeter, HookKind, hook_skipped},
    },
    runtime::handle::{EVENT_BYTES_MAX, Outgoing, Private, REPLIES_MAX},
};
use reseed_protocol::{
    CallId, ErrorCode, SessionId, Timestamp,
    command::{Command, RegisterHooks},
    event::{CallOutcome, EphemeralEvent, HookCancelled},
    frame::encode_event,
    hook::{HookCall, HookOffer, HookPoint},
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// Messages that may wait for a connection before it is sent an event: the rest is for replies, and for the message
/// that it is no longer the owner.
const WAITING_MAX: usize = REPLIES_MAX / 2 - 1;

/// The interval for checking whether a client reads again that was not sent a call because it did not read. Only while
/// a hook of such a client is awaited.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Calls measured at once: more than a client has open, because its hooks are called one after the other.
const ASKED_MAX: usize = 256;

/// The client that offered the session's hooks.
pub(super) struct Host {
    client: Client,
    /// Calls waiting for its answer, with their metrics and deadlines; at most [`ASKED_MAX`].
    asked: BTreeMap<CallId, (HookCallMeter, Option<Timestamp>)>,
}

impl Host {
    fn new(client: Client) -> Box<Self> {
        Box::new(Self { client, asked: BTreeMap::new() })
    }

    /// Records that a call is sent, or will be sent again when its client is back, which counts as one call.
    fn is_asked(&mut self, call_id: CallId, point: HookPoint, deadline: Option<Timestamp>) {
        if let Some((_, last)) = self.asked.get_mut(&call_id) {
            *last = deadline;
        } else if self.asked.len() < ASKED_MAX {
            self.asked.insert(call_id, (HookCallMeter::new(HookKind::Client, point), deadline));
        }
    }

    /// Records how a call ended. Without an outcome it was cancelled.
    fn ended(&mut self, call_id: &CallId, outcome: Option<Outcome>) {
        if let Some((asked, outcome)) = self.asked.remove(call_id).map(|(asked, _)| asked).zip(outcome) {
            asked.ended(outcome);
        }
    }
}

impl Owner {
    /// Sends an event to this connection only.
    fn tell(&mut self, session: &SessionId, event: &EphemeralEvent) -> Result<(), &'static str> {
        if self.outgoing.is_closed() {
            return Err("is not connected");
        }
        let frame = encode_event(Some(session), event);
        let bytes = u32::try_from(frame.len().min(EVENT_BYTES_MAX)).unwrap_or(u32::MAX);
        match self.event_room.clone().try_acquire_many_owned(bytes) {
            Ok(_room) if self.waiting() < WAITING_MAX => {
                let event = Private { session: session.clone(), frame, _room };
                self.outgoing.try_send(Outgoing::Event(Box::new(event))).map_err(|_| "is not connected")
            }
            _ => {
                self.unsent_bytes = Some(bytes);
                Err("does not read what it is sent")
            }
        }
    }

    /// Returns the number of messages that wait for the connection.
    fn waiting(&self) -> usize {
        self.outgoing.max_capacity() - self.outgoing.capacity()
    }

    /// Returns true if the connection reads again: what could not be sent would fit now.
    fn reads_again(&mut self) -> bool {
        let Some(bytes) = self.unsent_bytes else { return false };
        let fits = self.event_room.available_permits() >= bytes as usize && self.waiting() < WAITING_MAX;
        if fits || self.outgoing.is_closed() {
            self.unsent_bytes = None;
        }
        fits
    }
}

impl Actor {
    /// Sends a call to the client that hosts the hook.
    ///
    /// # Errors
    /// `hook_unavailable`: it is not connected, or does not read.
    fn send_call(&mut self, call: HookCall) -> Result<(), HookFault> {
        let sent = match (&mut self.owner, &self.host) {
            (Some(owner), Some(host)) if host.client == owner.client => {
                owner.tell(&self.id, &EphemeralEvent::HookCall(Box::new(call)))
            }
            _ => Err("is not connected"),
        };
        sent.map_err(|why| HookFault::unavailable(format!("its client {why}")))
    }

    /// Sends an awaited call as [`Self::send_call`] does. Returns the input for the loop if no answer will come.
    fn ask_client(&mut self, call: HookCall) -> Option<Input> {
        let (call_id, point, deadline) = (call.call_id.clone(), call.event.point(), call.deadline);
        let sent = self.send_call(call);
        if let Some(host) = &mut self.host {
            host.is_asked(call_id.clone(), point, deadline);
        }
        sent.err().map(|fault| Input::HookAnswered { call_id, answer: Box::new(Err(fault)) })
    }

    /// Calls a client's hook, awaited or observing. Returns an input for the loop, if there is one.
    pub(super) fn call_client(&mut self, call: HookCall, awaited: bool) -> Option<Input> {
        if awaited {
            return self.ask_client(call);
        }
        let point = call.event.point();
        match self.send_call(call) {
            Ok(()) => HookCallMeter::new(HookKind::Client, point).ended(Outcome::Ok),
            Err(_) => hook_skipped(HookKind::Client, point),
        }
        None
    }

    /// Records that the loop continues without a hook whose client is absent.
    pub(super) fn passed_over(&mut self, call_id: &CallId) {
        if let Some(host) = &mut self.host {
            host.ended(call_id, Some(Outcome::Error(ErrorCode::HookUnavailable)));
        }
    }

    /// Cancels a call that nobody waits for any more.
    pub(super) fn call_off(&mut self, now: Timestamp, call_id: &CallId) {
        let Some(host) = &mut self.host else { return };
        let Some((_, deadline)) = host.asked.get(call_id) else { return };
        let is_late = deadline.is_some_and(|deadline| deadline <= now);
        let is_here = self.owner.as_ref().is_some_and(|owner| owner.client == host.client);
        let code = if is_here { ErrorCode::HookTimeout } else { ErrorCode::HookUnavailable };
        host.ended(call_id, (is_late || !is_here).then_some(Outcome::Error(code)));
        if let Some(owner) = self.owner.as_mut().filter(|owner| owner.client == host.client) {
            let outcome = if is_late { CallOutcome::TimedOut } else { CallOutcome::Dropped };
            let (call_id, session_id) = (call_id.clone(), self.id.clone());
            let event = EphemeralEvent::HookCancelled(HookCancelled { call_id, session_id, outcome });
            // A client that reads too little to be told finds out by `too_late`.
            let _ = owner.tell(&self.id, &event);
        }
    }

    /// Records what an owner's command says about its hooks.
    pub(super) fn note_hooks(&mut self, command: &Command) {
        match (command, &mut self.host) {
            (Command::RegisterHooks(_), None) => {
                self.host = self.owner.as_ref().map(|owner| Host::new(owner.client.clone()));
            }
            (Command::HookResult(result), Some(host)) => {
                let outcome = match result.error {
                    Some(_) => Outcome::Error(ErrorCode::HookFailed),
                    None => Outcome::Ok,
                };
                host.ended(&result.call_id, Some(outcome));
            }
            _ => {}
        }
    }

    /// Applies the hooks that the owner offers when it joins, if any; those of another client went with it.
    pub(super) async fn offer_hooks(&mut self, offers: Option<Vec<HookOffer>>) -> Result<(), End> {
        let Some(client) = self.owner.as_ref().map(|owner| owner.client.clone()) else { return Ok(()) };
        let origin = client.origin;
        let is_another = self.host.as_ref().is_some_and(|host| !host.client.is_same(&client));
        if is_another {
            self.tell(Input::HostLeft, None).await?;
        }
        let hooks = match (&mut self.host, offers) {
            (host, Some(hooks)) => {
                // Calls that wait are sent again.
                let asked = host.take().map(|host| host.asked).unwrap_or_default();
                *host = Some(Box::new(Host { client, asked }));
                hooks
            }
            (Some(host), None) if host.client.is_same(&client) => {
                host.client = client;
                return Ok(());
            }
            (Some(_), None) => {
                self.host = None;
                Vec::new()
            }
            (None, None) => return Ok(()),
        };
        self.tell_of_coming(origin, Command::RegisterHooks(RegisterHooks { hooks })).await
    }

    /// Returns when to check whether the client reads again that hooks are waiting for.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let is_asked = self.owner.as_ref().is_some_and(|owner| owner.unsent_bytes.is_some());
        let waits = is_asked && self.agent.as_ref().is_some_and(|agent| agent.waits_for_client());
        waits.then(|| Instant::now() + LOOK_AGAIN)
    }

    /// Calls the client again once it reads again.
    pub(super) async fn look_again(&mut self) -> Result<(), End> {
        match self.owner.as_mut().is_some_and(Owner::reads_again) {
            true => self.tell(Input::AskAgain { only_away: true }, None).await,
            false => Ok(()),
        }
    }

    /// Handles that the owner has left: the calls that wait for its answer fail until it is back.
    pub(super) async fn owner_left(&mut self, origin: Origin) -> Result<(), End> {
        if self.owner.take_if(|owner| owner.client.origin == origin).is_none() {
            return Ok(());
        }
        self.tell(Input::AskAgain { only_away: false }, None).await
    }
}

impl Client {
    /// Returns true if this is the same client as before: on the same connection, or with the same name.
    fn is_same(&self, other: &Self) -> bool {
        self.origin == other.origin || (self.client_id.is_some() && self.client_id == other.client_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::hook::HookEvent;
    use std::sync::Arc;
    use tokio::sync::{Semaphore, mpsc};

    fn call(bytes: usize) -> EphemeralEvent {
        let event = HookEvent::BeforeAgentStart { system_prompt: "a".repeat(bytes), input: Vec::new() };
        EphemeralEvent::HookCall(Box::new(HookCall {
            call_id: "call".parse().unwrap(),
            hook: "hook".into(),
            session_id: "session".parse().unwrap(),
            turn_id: None,
            deadline: None,
            event,
        }))
    }

    fn owner() -> (Owner, mpsc::Receiver<Outgoing>) {
        let (outgoing, incoming) = mpsc::channel(REPLIES_MAX);
        let client = Client { origin: Origin(1), client_id: None };
        let event_room = Arc::new(Semaphore::new(EVENT_BYTES_MAX));
        (Owner { client, outgoing, event_room, unsent_bytes: None }, incoming)
    }

    #[test]
    fn calls_leave_room_for_replies_and_hold_little_of_a_client_that_does_not_read() {
        let session: SessionId = "session".parse().unwrap();
        for (bytes, fit) in [(10, REPLIES_MAX / 2 - 1), (EVENT_BYTES_MAX / 4, 3), (2 * EVENT_BYTES_MAX, 1)] {
            let (mut owner, mut incoming) = owner();
            let told = (0..REPLIES_MAX).take_while(|_| owner.tell(&session, &call(bytes)).is_ok()).count();
            assert_eq!(told, fit, "of {bytes} bytes");
            assert_eq!(owner.waiting(), told);
            // Once they are read there is room again.
            assert!(owner.unsent_bytes.is_some() && !owner.reads_again(), "of {bytes} bytes");
            for _ in 0..told {
                let Ok(Outgoing::Event(event)) = incoming.try_recv() else { panic!("calls were sent") };
                assert!(
                    event.frame.starts_with(r#"{"sessionId":"session","type":"hook_call""#),
                    "{}",
                    &event.frame[..20]
                );
            }
            assert!(owner.reads_again() && !owner.reads_again(), "it is asked again once");
            assert!(owner.tell(&session, &call(bytes)).is_ok(), "of {bytes} bytes");
            drop(incoming);
            assert_eq!(owner.tell(&session, &call(bytes)), Err("is not connected"));
        }
    }

    #[test]
    fn a_client_is_the_same_on_its_connection_and_under_its_name() {
        let client = |origin, name: Option<&str>| Client { origin: Origin(origin), client_id: name.map(str::to_owned) };
        let table = [
            (client(1, None), client(1, None), true),
            (client(1, Some("a")), client(2, Some("a")), true),
            (client(1, Some("a")), client(2, Some("b")), false),
            (client(1, None), client(2, None), false),
            (client(1, Some("a")), client(2, None), false),
        ];
        for (before, now, expected) in table {
            assert_eq!(before.is_same(&now), expected, "{before:?}, {now:?}");
        }
    }
}
