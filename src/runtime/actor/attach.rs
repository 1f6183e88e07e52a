//! Connections that join a session as writers or observers, and the position from which each resumes.

use super::{
    Actor, End,
    members::{Member, OfferedTools},
};
use crate::{
    core::agent_loop::Input,
    runtime::{
        feed::{Cursor, Reader},
        handle::{Attach, Attached, LeftOff},
        live::ItemPosition,
    },
};
use reseed_protocol::{
    EntryId, ErrorBody, ErrorCode,
    session::{SessionRole, SubscriptionEnd},
};

/// Maximum number of missed events that are replayed one by one. A client that missed more gets the whole state.
pub(crate) const REPLAY_EVENTS_MAX: u64 = 5_000;

/// Maximum number of positions in running items from which a client may resume. Answers have a handful of parts, and
/// each position is looked up in the answer's text.
const RESUME_PLACES_MAX: usize = 256;

/// Maximum number of ended items among them. Each is looked up in the store. One or two are normal, because only one
/// answer is streamed at a time.
const RESUME_ENDED_MAX: usize = 16;

impl Actor {
    /// Admits a connection, as a writer or an observer, and returns its position in the feed.
    pub(super) async fn attach(&mut self, mut attach: Attach) -> Result<Result<Attached, ErrorBody>, End> {
        let writes = attach.role == SessionRole::Writer;
        if writes && let Some(error) = self.shared.damage(&self.id) {
            return Ok(Err(error));
        }
        self.forget_gone().await?;
        let mut member = Member::new(&attach);
        if self.members.is_replaced(&member.client) {
            // Nobody reads the reply, because the socket's frames go over the newer connection.
            let message = "the client has a newer connection";
            return Ok(Err(ErrorBody::new(ErrorCode::StoreFailed, message)));
        }
        // If a host's socket returns as an observer, the host has left.
        let was_host = self.host.as_ref().map(|host| &host.client).filter(|_| !writes);
        if let Some(host) = was_host.filter(|host| host.is_at_same_socket(&member.client)) {
            let origin = host.origin;
            self.member_left(origin, true).await?;
        }
        // If the client hosted the session before, it takes over from its earlier connection.
        let replaced =
            if writes { self.first_offer(&member.client, None, None).tools } else { OfferedTools::default() };
        let tools = match attach.tools.take().map(|tools| self.reserve(tools, &replaced)).transpose() {
            Ok(tools) => tools,
            Err(refused) => return Ok(Err(refused)),
        };
        let hooks = attach.hooks.take();
        if writes {
            member.offer = self.first_offer(&member.client, tools.clone(), hooks.clone());
        }
        let presence = self.members.add(member);
        // The snapshot tells the connection itself about all members.
        if !self.members.is_alone() {
            self.announce_presence(presence, false);
        }
        if writes {
            self.writer_joined(attach.origin, tools, hooks).await?;
        }
        // Queued inputs start with the tools and hooks of the client that is now attached. An observer brings none, so
        // inputs that need a host's tools or hooks wait for the host.
        let needs_none = self.agent.as_ref().is_some_and(|agent| !agent.needs_its_client());
        let may_begin = !attach.shared.operates && (writes || needs_none);
        if (self.queue_held || self.queue_waits) && may_begin && !self.stopping && !self.quarantined {
            (self.queue_held, self.queue_waits) = (false, false);
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
            host: self.host_for_clients(),
            presence: self.members.presence(),
            feed: Reader::new(&self.feed, attach.shared.bell),
        }))
    }

    /// Returns the cursor from which a client can resume at its position. `None` if the log is a different one or too
    /// many events were missed. The client then needs the whole state.
    async fn resumable(&mut self, left_off: &LeftOff) -> Option<Cursor> {
        let missed = self.feed.seq().saturating_sub(left_off.seq);
        let same_log = left_off.epoch == self.effects.epoch();
        let readable = missed == 0 || self.shared.damage(&self.id).is_none();
        if !same_log || missed > REPLAY_EVENTS_MAX || left_off.items.len() > RESUME_PLACES_MAX || !readable {
            return None;
        }
        // Clients cannot interpret the queue as older versions stored it.
        if left_off.seq < self.agent.as_ref()?.session().state.whole_queue_seq {
            return None;
        }
        let mut cursor = self.feed.rejoin(left_off.seq, &left_off.items)?;
        // If the client saw a part of an answer that is neither being streamed nor in the log, the answer was aborted.
        // Either the process died, or the answer failed while the client was away. The client does not know that yet.
        let mut ended: Vec<&EntryId> = Vec::new();
        for ItemPosition { item, .. } in &left_off.items {
            if !ended.contains(&item) && !self.feed.holds(item) {
                ended.push(item);
            }
        }
        if ended.len() > RESUME_ENDED_MAX || !ended.is_empty() && self.away().is_some() {
            return None;
        }
        let mut void = Vec::new();
        for item in ended {
            match self.shared.store.entry_seq(&self.id, item).await {
                Ok(Some(_)) => {}
                Ok(None) => void.push(item.clone()),
                Err(error) => {
                    let error = self.shared.fault(&error);
                    self.note_failed_read(&error);
                    return None;
                }
            }
        }
        cursor.report_aborted(void);
        Some(cursor)
    }
}
