//! The connections that are subscribed to the session, and the presence that others see.

use crate::{
    core::{agent_loop::Origin, agent_loop::Tools, hook::HookSpec},
    runtime::{
        handle::{Attach, EVENT_BYTES_MAX, Identity},
        outbox::{Outbox, Outgoing, Private, REPLIES_MAX},
    },
    shares::Permit,
};
use reseed_protocol::{
    SessionId,
    event::EphemeralEvent,
    frame::encode_event,
    session::{Participant, SessionRole},
};
use std::sync::{Arc, LazyLock};
use tokio::sync::Semaphore;

/// Maximum number of a session's connections that others can see. Each sees all others, so the cost grows with the
/// square. Nobody has that many windows open.
pub(crate) const PRESENCE_MAX: usize = 100;

/// Maximum number of messages that wait for a connection before it is sent another event. The rest is for replies.
const WAITING_MAX: usize = REPLIES_MAX / 2 - 1;

/// A connected client.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) origin: Origin,
    pub(super) identity: Arc<Identity>,
}

impl Client {
    /// Returns true if this is the same client as another one: on the same connection, or with the same name.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let (own, others) = (&self.identity.client_id, &other.identity.client_id);
        self.is_at_same_socket(other) || (own.is_some() && own == others)
    }

    /// Returns true if both are the same socket of a client. A server that relays it may have connected twice.
    pub(super) fn is_at_same_socket(&self, other: &Self) -> bool {
        self.origin == other.origin || self.identity.connection_id == other.identity.connection_id
    }
}

/// The tools that a client offers, and their part of its user's share. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct OfferedTools {
    pub(super) tools: Tools,
    pub(super) share: Arc<Permit>,
}

impl OfferedTools {
    pub(super) fn new(tools: Tools, share: Permit) -> Self {
        Self { tools, share: Arc::new(share) }
    }
}

/// The tools and hooks that a client offers. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub(super) tools: OfferedTools,
    pub(super) hooks: Arc<[HookSpec]>,
}

/// An empty offer. It is shared, because most connections offer nothing.
static NOTHING: LazyLock<Offer> = LazyLock::new(|| Offer { tools: OfferedTools::default(), hooks: Arc::default() });

impl Default for Offer {
    fn default() -> Self {
        NOTHING.clone()
    }
}

impl Offer {
    /// Replaces the parts that are given.
    pub(super) fn replace(&mut self, tools: Option<OfferedTools>, hooks: Option<Arc<[HookSpec]>>) {
        if let Some(tools) = tools {
            self.tools = tools;
        }
        if let Some(hooks) = hooks {
            self.hooks = hooks;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tools.tools.is_empty() && self.hooks.is_empty()
    }
}

/// A connection that is subscribed to the session.
pub(super) struct Member {
    pub(super) client: Client,
    pub(super) role: SessionRole,
    operates: bool,
    pub(super) offer: Offer,
    outgoing: Outbox,
    /// Room for events that are only for this connection, in bytes. All of its sessions share it.
    event_room: Arc<Semaphore>,
    /// Bytes of a call that was not sent because the client did not read. The call is sent again once there is room.
    unsent_bytes: Option<u32>,
    /// True if others can see it, because it is one of the first [`PRESENCE_MAX`].
    is_named: bool,
}

impl Member {
    pub(super) fn new(attach: &Attach) -> Self {
        Self {
            client: Client { origin: attach.origin, identity: attach.shared.identity.clone() },
            role: attach.role,
            operates: attach.shared.operates,
            offer: Offer::default(),
            outgoing: attach.outgoing.clone(),
            event_room: attach.shared.event_room.clone(),
            unsent_bytes: None,
            is_named: false,
        }
    }

    /// Returns true if it may send commands that change the session.
    pub(super) fn may_write(&self) -> bool {
        self.role == SessionRole::Writer || self.operates
    }

    /// Sends an event to this connection only, once it has read all durable events up to `after`.
    ///
    /// # Errors
    /// The reason why it was not sent, as the end of a sentence about the client.
    pub(super) fn send_event(
        &mut self,
        session: &SessionId,
        after: u64,
        event: &EphemeralEvent,
    ) -> Result<(), &'static str> {
        if self.outgoing.is_closed() {
            return Err("is not connected");
        }
        let frame = encode_event(Some(session), event);
        let bytes = u32::try_from(frame.len().min(EVENT_BYTES_MAX)).unwrap_or(u32::MAX);
        match self.event_room.clone().try_acquire_many_owned(bytes) {
            Ok(_room) if self.waiting() < WAITING_MAX => {
                let event = Private { session: session.clone(), after, frame, _room };
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

    /// Returns true if a call could not be sent because the client did not read.
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent_bytes.is_some()
    }

    /// Returns true if the connection reads again, so that the unsent call would fit now.
    pub(super) fn reads_again(&mut self) -> bool {
        let Some(bytes) = self.unsent_bytes else { return false };
        let fits = self.event_room.available_permits() >= bytes as usize && self.waiting() < WAITING_MAX;
        if fits || self.outgoing.is_closed() {
            self.unsent_bytes = None;
        }
        fits
    }

    /// Returns its presence as others see it; `None` if they cannot see it.
    pub(super) fn presence(&self) -> Option<Participant> {
        self.is_named.then(|| Participant {
            connection_id: self.client.identity.connection_id.clone(),
            client_id: self.client.identity.client_id.clone(),
            client: self.client.identity.software.clone(),
            role: self.role,
            offers: !self.offer.is_empty(),
        })
    }
}

/// The session's connections, in order of arrival.
#[derive(Default)]
pub(super) struct Members(Vec<Member>);

impl Members {
    pub(super) fn get(&self, origin: Origin) -> Option<&Member> {
        self.0.iter().find(|member| member.client.origin == origin)
    }

    pub(super) fn get_mut(&mut self, origin: Origin) -> Option<&mut Member> {
        self.0.iter_mut().find(|member| member.client.origin == origin)
    }

    /// Returns true if the client's socket has a newer connection. Whatever this one still sends comes too late.
    pub(super) fn is_replaced(&self, client: &Client) -> bool {
        self.0.iter().any(|other| other.client.is_at_same_socket(client) && other.client.origin > client.origin)
    }

    /// Adds a connection. It replaces an earlier one of its client's socket. Returns its presence for the others.
    pub(super) fn add(&mut self, mut member: Member) -> Option<Participant> {
        if let Some(before) = self.0.iter_mut().find(|other| other.client.is_at_same_socket(&member.client)) {
            member.is_named = before.is_named;
            let (told, presence) = (before.presence(), member.presence());
            *before = member;
            return presence.filter(|now| told.as_ref() != Some(now));
        }
        member.is_named = self.0.iter().filter(|other| other.is_named).count() < PRESENCE_MAX;
        let presence = member.presence();
        // Most sessions have only one connection.
        self.0.reserve_exact(1);
        self.0.push(member);
        presence
    }

    /// Returns true if only one connection is subscribed.
    pub(super) fn is_alone(&self) -> bool {
        self.0.len() == 1
    }

    pub(super) fn remove(&mut self, origin: Origin) -> Option<Member> {
        let at = self.0.iter().position(|member| member.client.origin == origin)?;
        Some(self.0.remove(at))
    }

    /// Makes the next connection visible to others, if there is room. Returns its presence for them.
    pub(super) fn name_next(&mut self) -> Option<Participant> {
        let has_room = self.0.iter().filter(|member| member.is_named).count() < PRESENCE_MAX;
        let next = self.0.iter_mut().find(|member| has_room && !member.is_named)?;
        next.is_named = true;
        next.presence()
    }

    /// Returns the connections that have gone without notice. They left before they learned that they had joined.
    pub(super) fn gone(&self) -> Vec<Origin> {
        self.0.iter().filter(|member| member.outgoing.is_closed()).map(|member| member.client.origin).collect()
    }

    /// Returns the presence of all visible connections.
    pub(super) fn presence(&self) -> Vec<Participant> {
        self.0.iter().filter_map(Member::presence).collect()
    }

    /// Iterates over the connections that write, and may host.
    pub(super) fn writers(&self) -> impl Iterator<Item = &Member> {
        self.0.iter().filter(|member| member.role == SessionRole::Writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::handle::ConnectionShare;
    use reseed_protocol::hooks::{HookCall, HookEvent};

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

    fn identity(origin: u64, client_id: Option<&str>) -> Identity {
        let client_id = client_id.map(str::to_owned);
        Identity { connection_id: format!("connection-{origin}").parse().unwrap(), client_id, software: None }
    }

    fn member(origin: u64) -> (Member, tokio::sync::mpsc::Receiver<Outgoing>) {
        let (outgoing, incoming) = Outbox::new(REPLIES_MAX);
        let attach = Attach {
            origin: Origin(origin),
            role: SessionRole::Writer,
            tools: None,
            hooks: None,
            outgoing,
            shared: ConnectionShare::new(identity(origin, None)),
            resume: None,
        };
        (Member::new(&attach), incoming)
    }

    #[test]
    fn calls_leave_room_for_replies_and_hold_little_of_a_client_that_does_not_read() {
        let session: SessionId = "session".parse().unwrap();
        for (bytes, fit) in [(10, REPLIES_MAX / 2 - 1), (EVENT_BYTES_MAX / 4, 3), (2 * EVENT_BYTES_MAX, 1)] {
            let (mut member, mut incoming) = member(1);
            let told = (0..REPLIES_MAX).take_while(|_| member.send_event(&session, 0, &call(bytes)).is_ok()).count();
            assert_eq!(told, fit, "of {bytes} bytes");
            assert_eq!(member.waiting(), told);
            // Reading them makes room again.
            assert!(member.has_unsent() && !member.reads_again(), "of {bytes} bytes");
            for _ in 0..told {
                let Ok(Outgoing::Event(event)) = incoming.try_recv() else { panic!("calls were sent") };
                let head = r#"{"sessionId":"session","type":"hook_call""#;
                assert!(event.frame.starts_with(head), "{}", &event.frame[..20]);
            }
            assert!(member.reads_again() && !member.reads_again(), "it is asked again once");
            assert!(member.send_event(&session, 0, &call(bytes)).is_ok(), "of {bytes} bytes");
            drop(incoming);
            assert_eq!(member.send_event(&session, 0, &call(bytes)), Err("is not connected"));
        }
    }

    #[test]
    fn a_client_is_the_same_on_its_connection_and_under_its_name() {
        let client =
            |origin, name: Option<&str>| Client { origin: Origin(origin), identity: Arc::new(identity(origin, name)) };
        let again = Client { origin: Origin(2), identity: Arc::new(identity(1, None)) };
        let table = [
            (client(1, None), again, true),
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

    #[test]
    fn an_older_connection_of_a_socket_comes_too_late() {
        let client = |origin, socket| Client { origin: Origin(origin), identity: Arc::new(identity(socket, None)) };
        let mut members = Members::default();
        let (member, _incoming) = member(2);
        members.add(member);
        let table = [(client(1, 2), true), (client(2, 2), false), (client(3, 2), false), (client(1, 1), false)];
        for (client, expected) in table {
            assert_eq!(members.is_replaced(&client), expected, "{client:?}");
        }
    }

    #[test]
    fn only_the_first_connections_are_named() {
        let mut members = Members::default();
        let mut incoming = Vec::new();
        for origin in 0..PRESENCE_MAX as u64 + 2 {
            let (member, receiver) = member(origin);
            incoming.push(receiver);
            assert_eq!(members.add(member).is_some(), origin < PRESENCE_MAX as u64, "{origin}");
        }
        assert_eq!(members.presence().len(), PRESENCE_MAX);
        assert!(members.name_next().is_none());
        // Its place is free for the next one.
        assert!(members.remove(Origin(3)).and_then(|member| member.presence()).is_some());
        assert!(members.name_next().is_some() && members.name_next().is_none());
        drop(incoming);
        assert_eq!(members.gone().len(), PRESENCE_MAX + 1);
    }
}
