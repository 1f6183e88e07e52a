//! A lasting subscription to one session. Each connection reopens it exactly where it was.

use crate::{
    fold::{Applied, Snapshot},
    update::SessionEvent,
};
use reseed_protocol::{
    CommandId, ErrorBody, ErrorCode, SessionId,
    command::Command,
    event::{EphemeralEvent, Event},
    hooks::HookOffer,
    session::{OpenSession, SessionOpened, SessionRole},
    tools::ToolOffer,
};
use std::time::{Duration, Instant};

/// A second gap within this time requests a snapshot, because the resume did not close the first one.
const RESYNC: Duration = Duration::from_secs(2);

/// Maximum number of refusals because the session is already open. The earlier `close_session` arrives long before the
/// last.
const OPEN_ALREADY_MAX: u32 = 5;

/// A subscription that was open for this long counts as lasting, and earlier failures no longer count.
const LASTED: Duration = Duration::from_secs(10);

/// The options with which a session is opened on each connection.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Opening {
    /// Writer (the default) or observer.
    pub role: Option<SessionRole>,
    /// The number of newest entries in the first snapshot. If absent, 50.
    pub entries: Option<u32>,
    /// `false` omits the deltas of answers.
    pub deltas: Option<bool>,
    /// `false` keeps a new session in the server's memory only.
    pub store: Option<bool>,
    /// Tools to offer.
    pub tools: Option<Vec<ToolOffer>>,
    /// Hooks to offer.
    pub hooks: Option<Vec<HookOffer>>,
}

/// The state of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits for a connection.
    Waiting,
    /// This command has requested it.
    Opening(CommandId),
    /// Events arrive.
    Open,
    /// The server could not open it, or has ended it, temporarily. The next attempt is at this time.
    Retrying(Instant),
    /// It was closed while the command that creates it has no reply yet.
    Leaving(CommandId),
    /// It will not be opened again.
    Ended,
}

/// A subscription to one session.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) phase: Phase,
    pub(crate) opening: Opening,
    /// The session's id; `None` until the command that creates it has its reply.
    pub(crate) id: Option<SessionId>,
    /// The command that creates it. Sent again, it opens the session that it has created.
    pub(crate) creates: Option<CommandId>,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) failures: u32,
    /// The number of refusals in a row because the session is already open.
    open_already: u32,
    opened_at: Option<Instant>,
    resynced_at: Option<Instant>,
    /// True if the next attempt requests a snapshot instead of resuming.
    anew: bool,
    /// True if the session is damaged and can only be read.
    read_only: bool,
    /// The offers in commands that have no reply yet.
    offers: Vec<(CommandId, Offer)>,
}

#[derive(Debug)]
enum Offer {
    Tools(Vec<ToolOffer>),
    Hooks(Vec<HookOffer>),
}

/// The effect of an event on its subscription.
#[derive(Debug, PartialEq)]
pub(crate) enum Taken {
    /// It was applied and is passed on.
    Applied(SessionEvent),
    /// It changes nothing.
    Ignored,
    /// An event is missing, so the session must be opened again.
    Gap,
}

impl Subscription {
    /// Creates a subscription that waits for a connection.
    pub(crate) fn new(id: Option<SessionId>, creates: Option<CommandId>, opening: Opening) -> Self {
        Self {
            phase: Phase::Waiting,
            opening,
            id,
            creates,
            snapshot: None,
            failures: 0,
            open_already: 0,
            opened_at: None,
            resynced_at: None,
            anew: false,
            read_only: false,
            offers: Vec::new(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Returns the command that opens it now.
    pub(crate) fn command(&self) -> OpenSession {
        let Opening { role, entries, deltas, store, tools, hooks } = self.opening.clone();
        let role = if self.read_only { Some(SessionRole::Observer) } else { role };
        // An observer may not offer anything.
        let offers = role != Some(SessionRole::Observer);
        let known = self.snapshot.as_ref().filter(|_| !self.anew);
        OpenSession {
            role,
            resume: known.map(Snapshot::resume_point),
            entries,
            deltas,
            store,
            tools: tools.filter(|_| offers),
            hooks: hooks.filter(|_| offers),
        }
    }

    /// Records a command that may contain an offer.
    pub(crate) fn offers(&mut self, id: &CommandId, command: &Command) {
        let offer = match command {
            Command::RegisterTools(offer) => Offer::Tools(offer.tools.clone()),
            Command::RegisterHooks(offer) => Offer::Hooks(offer.hooks.clone()),
            _ => return,
        };
        self.offers.push((id.clone(), offer));
    }

    /// Handles the outcome of a command. Its offer is repeated on later connections, unless the server has refused it,
    /// in which case it would also refuse the session.
    pub(crate) fn offered(&mut self, id: &CommandId, stands: bool) {
        let Some(place) = self.offers.iter().position(|(command, _)| command == id) else { return };
        match self.offers.remove(place).1 {
            Offer::Tools(tools) if stands => self.opening.tools = Some(tools),
            Offer::Hooks(hooks) if stands => self.opening.hooks = Some(hooks),
            _ => {}
        }
    }

    /// Applies `session_opened`.
    pub(crate) fn opened(&mut self, now: Instant, opened: SessionOpened) {
        self.phase = Phase::Open;
        self.opened_at = Some(now);
        self.anew = false;
        self.open_already = 0;
        self.id = Some(opened.session_id.clone());
        self.creates = None;
        match &mut self.snapshot {
            Some(snapshot) => {
                snapshot.reopened(opened);
            }
            None => self.snapshot = Some(Snapshot::opened(opened)),
        }
    }

    /// Returns true if the session is temporarily refused as already open, because the command that closes it is on its
    /// way.
    pub(crate) fn is_closed_soon(&mut self, refusal: &ErrorBody) -> bool {
        let is_open_already = refusal.code == ErrorCode::SessionAlreadyOpen;
        self.open_already += u32::from(is_open_already);
        is_open_already && self.open_already <= OPEN_ALREADY_MAX
    }

    /// Returns true if the session can be opened as an observer, after it was refused as damaged.
    pub(crate) fn falls_back_to_reading(&mut self) -> bool {
        !std::mem::replace(&mut self.read_only, true)
    }

    /// Resets the count of failures, if the subscription that is ending has lasted.
    pub(crate) fn forgive(&mut self, now: Instant) {
        if self.is_open() && self.opened_at.is_some_and(|opened| now - opened >= LASTED) {
            self.failures = 0;
        }
    }

    /// Makes the next attempt request a snapshot, which skips stored events that cannot be read.
    pub(crate) fn forget_place(&mut self) {
        self.anew = true;
    }

    /// Handles a gap. The next attempt resumes, or requests a snapshot if resuming did not help just before.
    pub(crate) fn missed(&mut self, now: Instant) {
        self.forgive(now);
        self.anew |= self.resynced_at.is_some_and(|before| now - before < RESYNC);
        self.resynced_at = Some(now);
    }

    /// Handles a durable event.
    pub(crate) fn durable(&mut self, seq: u64, event: Event) -> Taken {
        let Some(snapshot) = self.snapshot.as_mut().filter(|_| self.phase == Phase::Open) else {
            return Taken::Ignored;
        };
        // The event has a known type but cannot be read. Its effect is unknown, so a snapshot is needed.
        let unreadable = matches!(&event, Event::Unknown(unknown) if Event::NAMES.contains(&unknown.name.as_str()));
        if unreadable && seq > snapshot.seq {
            self.anew = true;
            return Taken::Gap;
        }
        match snapshot.apply(seq, &event) {
            Applied::Next => Taken::Applied(SessionEvent::Durable(seq, event)),
            Applied::Seen => Taken::Ignored,
            Applied::Gap => Taken::Gap,
        }
    }

    /// Handles an ephemeral event.
    pub(crate) fn ephemeral(&mut self, event: EphemeralEvent) -> Taken {
        let Some(snapshot) = self.snapshot.as_mut().filter(|_| self.phase == Phase::Open) else {
            return Taken::Ignored;
        };
        snapshot.apply_ephemeral(&event);
        Taken::Applied(SessionEvent::Ephemeral(event))
    }
}
