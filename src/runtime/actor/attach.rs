//! Connections that join a session: one owner at a time, who may take over from another, any number of observers, and
//! where each resumes reading.

use super::{Actor, End};
use crate::{
    core::{
        agent_loop::{Input, Origin, Tools},
        hook::check_hooks,
    },
    runtime::{
        feed::{Cursor, Reader, Seen},
        handle::{Attach, Attached, LeftOff, Outgoing, owned_error},
    },
};
use reseed_protocol::{
    EntryId, ErrorBody, ErrorCode,
    command::{Command, SessionRole},
    event::SubscriptionEnd,
};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// Missed events that are replayed one by one; a client that missed more gets the whole state.
const REPLAY_EVENTS_MAX: u64 = 5_000;

/// Positions in running items that a client may resume from. Answers have a handful of parts; each position is looked
/// up in the answer's text.
const RESUME_PLACES_MAX: usize = 256;

/// The maximum number of these items that may have ended; each is looked up in the store. One or two are normal,
/// because only one answer is streamed at a time.
const RESUME_ENDED_MAX: usize = 16;

/// The identity of a connected client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) origin: Origin,
    pub(super) client_id: Option<String>,
}

/// The connection that may write.
pub(super) struct Owner {
    pub(super) client: Client,
    pub(super) outgoing: mpsc::Sender<Outgoing>,
    /// Room for events for this connection only, in bytes: all of its sessions share it.
    pub(super) event_room: Arc<Semaphore>,
    /// Bytes of a call that was not sent because the client did not read. The call is sent again once there is room.
    pub(super) unsent_bytes: Option<u32>,
}

impl Actor {
    /// Admits a connection, as the owner or an observer, and returns its position in the feed.
    pub(super) async fn attach(&mut self, attach: Attach) -> Result<Result<Attached, ErrorBody>, End> {
        let mut taken_over = None;
        if attach.role == SessionRole::Owner {
            if let Some(error) = self.shared.damage(&self.id) {
                return Ok(Err(error));
            }
            let here = self.owner.as_ref().filter(|owner| !owner.outgoing.is_closed()).map(|owner| &owner.client);
            if let Some(other) = here.filter(|other| other.origin != attach.origin) {
                // Origins number connections: a late request of an older connection of the same client does not replace
                // a newer one.
                let same_client =
                    attach.client_id.is_some() && attach.client_id == other.client_id && attach.origin > other.origin;
                if !(attach.takeover || same_client) {
                    return Ok(Err(owned_error()));
                }
                taken_over = (!same_client).then(Tools::default);
            }
        }
        if attach.tools.is_some() && attach.role != SessionRole::Owner {
            return Ok(Err(ErrorBody::new(ErrorCode::ReadOnly, "an observer cannot offer tools").with_field("tools")));
        }
        if let Some(hooks) = &attach.hooks {
            if attach.role != SessionRole::Owner {
                return Ok(Err(
                    ErrorBody::new(ErrorCode::ReadOnly, "an observer cannot offer hooks").with_field("hooks")
                ));
            }
            if let Err(error) = check_hooks(hooks.clone()) {
                return Ok(Err(error));
            }
        }
        if attach.role == SessionRole::Owner
            && let Some(other) = self.owner.take_if(|owner| owner.client.origin != attach.origin)
        {
            let _ = other.outgoing.try_send(Outgoing::Demoted(self.id.clone()));
        }
        // The tools of a client that was taken over from went with it.
        if let Some(tools) = attach.tools.or(taken_over) {
            self.tell(Input::ToolsOffered(tools), None).await?;
        }
        if attach.role == SessionRole::Owner {
            let client = Client { origin: attach.origin, client_id: attach.client_id };
            let event_room = attach.shared.event_room.clone();
            self.owner = Some(Owner { client, outgoing: attach.outgoing, event_room, unsent_bytes: None });
            self.offer_hooks(attach.hooks).await?;
            self.tell(Input::AskAgain { only_away: false }, None).await?;
        }
        // Queued inputs start with the tools and hooks of the client that is attached now. An observer brings none:
        // inputs that need those of the owner wait for the owner.
        let is_owner = attach.role == SessionRole::Owner;
        let may_begin = is_owner || self.agent.as_ref().is_some_and(|agent| !agent.needs_its_client());
        if (self.held || self.queue_waits) && may_begin && !self.stopping && !self.quarantined {
            (self.held, self.queue_waits) = (false, false);
            self.tell(Input::Go, None).await?;
        }
        let resumed = match &attach.resume {
            Some(left_off) => self.resumable(left_off).await,
            None => None,
        };
        let Some(agent) = &self.agent else { return Err(End::Close(SubscriptionEnd::Failed)) };
        let replay = resumed.is_some();
        let (joined, items) = self.feed.join();
        Ok(Ok(Attached {
            snapshot: agent.snapshot(),
            items,
            epoch: self.effects.epoch().to_owned(),
            cursor: resumed.unwrap_or(joined),
            replay,
            feed: Reader::new(&self.feed, attach.shared.bell),
        }))
    }

    /// Passes to the loop what a client offers when it opens the session.
    pub(super) async fn tell_of_coming(&mut self, origin: Origin, command: Command) -> Result<(), End> {
        let id = "open_session".parse().expect("a word is an id");
        let input = Input::Command { origin, id, fingerprint: 0, command: Box::new(command), lookup: None };
        self.tell(input, None).await
    }

    /// Returns the cursor from which a client can resume at its position. All or nothing: on another log, or after too
    /// many missed events, it needs the whole state.
    async fn resumable(&mut self, left_off: &LeftOff) -> Option<Cursor> {
        let missed = self.feed.seq().saturating_sub(left_off.seq);
        let same_log = left_off.epoch == self.effects.epoch();
        let readable = missed == 0 || self.shared.damage(&self.id).is_none();
        if !same_log || missed > REPLAY_EVENTS_MAX || left_off.items.len() > RESUME_PLACES_MAX || !readable {
            return None;
        }
        // Clients do not know how older versions stored the queue.
        if left_off.seq < self.agent.as_ref()?.session().state.whole_queue_seq {
            return None;
        }
        let mut cursor = self.feed.rejoin(left_off.seq, &left_off.items)?;
        // An answer that the client saw in part and that is neither being streamed nor in the log was aborted: the
        // process died, or the answer failed while the client was away. Nobody told it.
        let mut ended: Vec<&EntryId> = Vec::new();
        for Seen { item, .. } in &left_off.items {
            if !ended.contains(&item) && !self.feed.holds(item) {
                ended.push(item);
            }
        }
        if ended.len() > RESUME_ENDED_MAX {
            return None;
        }
        let mut void = Vec::new();
        for item in ended {
            if self.shared.store.entry_seq(&self.id, item).await.ok()?.is_none() {
                void.push(item.clone());
            }
        }
        cursor.tell_void(void);
        Some(cursor)
    }
}
