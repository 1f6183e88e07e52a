//! Decides which connection hosts the session's tools and hooks.
//!
//! The first connection that offers any is the host, and later ones are on standby. The first on standby becomes the
//! host when the host closes the session, withdraws its offer or is away too long. Any of them can become the host on
//! request (`take_over_host`). A client that returns under its `clientId` hosts what it hosted before. Hosting does not
//! restrict writing: every writer may send input.
//!
//! A tool call is offered to a new host once. It is not offered if an earlier host was asked to run it and running it
//! twice could do harm.

use super::{
    Actor, End,
    members::{Client, Offer, OfferedTools},
};
use crate::{
    core::{
        agent_loop::{Input, Origin, Tools, check_offers},
        hook::{HookSpec, check_hooks},
        tool::ToolPlace,
    },
    metrics::calls::HookCallMeter,
    runtime::blocking,
    shares::Share,
    trace::Span,
};
use reseed_protocol::{
    CallId, ErrorBody, ErrorCode, Timestamp,
    command::HostingCommand,
    event::EphemeralEvent,
    hooks::HookCancelled,
    reply::{Done, Reply},
    session::{self, HostChanged, Participant, PresenceChanged},
    tools::{CallOutcome, RunTool},
};
use std::{collections::BTreeMap, sync::Arc};
use tokio::time::Instant;

/// The client that hosts the session's tools and hooks.
pub(super) struct Host {
    pub(super) client: Client,
    offer: Offer,
    away: Option<Away>,
    /// The hook calls that wait for its answer, with their deadlines. Bounded by `hooks.rs`.
    pub(super) asked: BTreeMap<CallId, Asked>,
}

/// A hook call that waits for the host's answer.
pub(super) struct Asked {
    pub(super) meter: HookCallMeter,
    pub(super) span: Span,
    pub(super) deadline: Option<Timestamp>,
}

impl Host {
    /// Returns true if this is a newer connection of the same client, or the same connection after it had closed the
    /// session. Connections are numbered, so a late request of an older one does not replace a newer one.
    fn is_continued_by(&self, client: &Client) -> bool {
        let is_back = client.origin == self.client.origin && self.away.is_some();
        self.client.is_same(client) && (is_back || client.origin > self.client.origin)
    }
}

/// The absence of a host.
#[derive(Debug, Clone, Copy)]
struct Away {
    since: Instant,
    /// True if it has closed the session, so that nobody waits for it.
    has_closed: bool,
}

/// The state of the host, which determines who hosts next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// There is no host.
    Vacant,
    /// It is connected and offers something.
    Here,
    /// It is connected and has withdrawn its offer.
    Withdrawn,
    /// It is away, and may come back.
    Away,
    /// It has closed the session, or was away too long.
    Gone,
}

/// The decision about the next host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The host stays the same.
    Stays,
    /// This connection becomes the host.
    Passes(Origin),
    /// There is no host any more.
    Ends,
}

/// Decides who hosts. An absent host's offer stays in force while nobody else could use the session.
fn verdict(standing: Standing, standby: Option<Origin>, others_write: bool) -> Verdict {
    match (standing, standby) {
        (Standing::Here | Standing::Away, _) | (Standing::Vacant, None) => Verdict::Stays,
        (Standing::Vacant | Standing::Withdrawn | Standing::Gone, Some(next)) => Verdict::Passes(next),
        (Standing::Withdrawn, None) => Verdict::Ends,
        (Standing::Gone, None) if others_write => Verdict::Ends,
        (Standing::Gone, None) => Verdict::Stays,
    }
}

/// The client that was asked to run a tool call.
pub(super) struct Run {
    client: Client,
    /// True if the client has left since. The request counts even if it did not arrive, because the call may have run.
    has_left: bool,
}

/// A validated command about hosting.
pub(super) enum Order {
    /// Replaces the connection's offer. A part that is `None` stays unchanged.
    Offer { tools: Option<OfferedTools>, hooks: Option<Arc<[HookSpec]>> },
    /// Makes the connection the host.
    TakeOver,
}

impl Actor {
    /// Validates a command about hosting. Returns its reply, which is sent before anything that the command causes.
    ///
    /// # Errors
    /// `invalid_tools`, `invalid_hooks`, `nothing_offered`, `limit_reached`.
    pub(super) fn check_hosting(&self, origin: Origin, command: HostingCommand) -> Result<(Reply, Order), ErrorBody> {
        let own = self.members.get(origin).map(|member| member.offer.clone()).unwrap_or_default();
        let mut unchecked_patterns = Vec::new();
        let (order, offers) = match command {
            HostingCommand::TakeOverHost(_) if own.is_empty() => {
                let message =
                    "this connection has offered no tools and no hooks; send register_tools or register_hooks";
                return Err(ErrorBody::new(ErrorCode::NothingOffered, message));
            }
            HostingCommand::TakeOverHost(_) => return Ok((Reply::Ok(Done::default()), Order::TakeOver)),
            HostingCommand::RegisterTools(register) => {
                let tools = blocking::apart(|| check_offers(register.tools))?;
                unchecked_patterns = tools.unchecked_patterns();
                let offers = !(tools.is_empty() && own.hooks.is_empty());
                (Order::Offer { tools: Some(self.reserve(tools, &own.tools)?), hooks: None }, offers)
            }
            HostingCommand::RegisterHooks(register) => {
                let hooks = check_hooks(register.hooks)?;
                let offers = !(hooks.is_empty() && own.tools.tools.is_empty());
                (Order::Offer { tools: None, hooks: Some(hooks.into()) }, offers)
            }
        };
        let hosts = self.host.as_ref().is_some_and(|host| host.client.origin == origin);
        let is_free = matches!(self.standing(), Standing::Vacant | Standing::Gone);
        let standby = (offers && !hosts && !is_free).then_some(true);
        Ok((Reply::Ok(Done { standby, unchecked_patterns, ..Done::default() }), order))
    }

    /// Takes the room for tools from their user's share. The room of the tools that they replace counts towards it.
    ///
    /// # Errors
    /// `limit_reached`.
    pub(super) fn reserve(&self, tools: Tools, replaced: &OfferedTools) -> Result<OfferedTools, ErrorBody> {
        let (owner, bytes) = (self.row.owner(), tools.bytes());
        let share = self.shared.shares.exchange(Share::OfferedBytes, &owner, bytes, &replaced.share)?;
        Ok(OfferedTools::new(tools, share))
    }

    /// Executes a command about hosting.
    pub(super) async fn execute_hosting(&mut self, origin: Origin, order: Order) -> Result<(), End> {
        match order {
            Order::Offer { tools, hooks } => self.offer(origin, tools, hooks).await,
            Order::TakeOver => {
                if self.host.as_ref().is_none_or(|host| host.client.origin != origin) {
                    self.pass_to(origin).await?;
                    self.announce_host();
                }
                Ok(())
            }
        }
    }

    /// Replaces a connection's offer. A part that is `None` stays unchanged.
    async fn offer(
        &mut self,
        origin: Origin,
        tools: Option<OfferedTools>,
        hooks: Option<Arc<[HookSpec]>>,
    ) -> Result<(), End> {
        let Some(member) = self.members.get_mut(origin) else { return Ok(()) };
        let offered_before = !member.offer.is_empty();
        member.offer.replace(tools.clone(), hooks.clone());
        if offered_before == member.offer.is_empty() {
            let presence = member.presence();
            self.announce_presence(presence, false);
        }
        let has_hooks = hooks.is_some();
        if self.offer_to_loop(origin, tools, hooks).await? {
            self.run_open_calls();
            if has_hooks {
                self.tell(Input::AskAgain { only_away: true }, None).await?;
            }
        }
        self.settle_host().await
    }

    /// Passes an offer to the loop if this connection is the host. Returns true if it is.
    async fn offer_to_loop(
        &mut self,
        origin: Origin,
        tools: Option<OfferedTools>,
        hooks: Option<Arc<[HookSpec]>>,
    ) -> Result<bool, End> {
        let Some(host) = self.host.as_mut().filter(|host| host.client.origin == origin) else { return Ok(false) };
        host.offer.replace(tools.clone(), hooks.clone());
        if let Some(tools) = tools {
            self.tell(Input::ToolsOffered(tools.tools), None).await?;
        }
        if let Some(hooks) = hooks {
            self.tell(Input::HooksOffered(hooks), None).await?;
        }
        Ok(true)
    }

    /// Returns the offer of a connection that joins: what the command contains, or else what its client hosted before.
    pub(super) fn first_offer(
        &self,
        client: &Client,
        tools: Option<OfferedTools>,
        hooks: Option<Arc<[HookSpec]>>,
    ) -> Offer {
        let before = self.host.as_ref().filter(|host| host.is_continued_by(client)).map(|host| host.offer.clone());
        let mut offer = before.unwrap_or_default();
        offer.replace(tools, hooks);
        offer
    }

    /// Sets the offer of a writer that joins. Makes it the host again if its client was the host.
    pub(super) async fn writer_joined(
        &mut self,
        origin: Origin,
        tools: Option<OfferedTools>,
        hooks: Option<Arc<[HookSpec]>>,
    ) -> Result<(), End> {
        let Some(client) = self.members.get(origin).map(|member| member.client.clone()) else { return Ok(()) };
        let Some(host) = self.host.as_mut().filter(|host| host.is_continued_by(&client)) else {
            return self.settle_host().await;
        };
        let older = std::mem::replace(&mut host.client, client).origin;
        host.away = None;
        // The older connection is probably dead, and should not be the next host.
        if let Some(member) = self.members.get_mut(older).filter(|_| older != origin) {
            member.offer = Offer::default();
            let presence = member.presence();
            self.announce_presence(presence, false);
        }
        self.offer_to_loop(origin, tools, hooks).await?;
        self.settle_host().await?;
        self.tell(Input::AskAgain { only_away: false }, None).await?;
        self.run_open_calls();
        Ok(())
    }

    /// Announces to everyone that a connection has joined, changed or left.
    pub(super) fn announce_presence(&mut self, presence: Option<Participant>, left: bool) {
        if let Some(connection) = presence {
            self.effects.emit(&EphemeralEvent::PresenceChanged(PresenceChanged { connection, left }));
        }
    }

    /// Handles a connection that has left. Hook calls that wait for its answer fail until it is back.
    pub(super) async fn member_left(&mut self, origin: Origin, has_closed: bool) -> Result<(), End> {
        let Some(member) = self.members.remove(origin) else { return Ok(()) };
        self.announce_presence(member.presence(), true);
        let next = self.members.name_next();
        self.announce_presence(next, false);
        for run in self.runs.values_mut().filter(|run| run.client.origin == origin) {
            run.has_left = true;
        }
        if let Some(host) = self.host.as_mut().filter(|host| host.client.origin == origin) {
            host.away = Some(Away { since: Instant::now(), has_closed });
            self.tell(Input::AskAgain { only_away: false }, None).await?;
        }
        self.settle_host().await
    }

    /// Notes that a host that is away will not be waited for. It is the host again if it comes back first.
    pub(super) fn host_has_left(&mut self) {
        if let Some(away) = self.host.as_mut().and_then(|host| host.away.as_mut()) {
            away.has_closed = true;
        }
    }

    /// Removes connections that have gone without notice.
    pub(super) async fn forget_gone(&mut self) -> Result<(), End> {
        for origin in self.members.gone() {
            self.member_left(origin, false).await?;
        }
        Ok(())
    }

    /// Decides who hosts, and announces a change.
    pub(super) async fn settle_host(&mut self) -> Result<(), End> {
        match verdict(self.standing(), self.standby(), self.others_write()) {
            Verdict::Stays => {}
            Verdict::Passes(origin) => self.pass_to(origin).await?,
            Verdict::Ends => {
                let host = self.host.take();
                self.dismiss(host.as_deref()).await?;
                self.tell(Input::ToolsOffered(Tools::default()), None).await?;
            }
        }
        self.announce_host();
        Ok(())
    }

    fn standing(&self) -> Standing {
        let Some(host) = &self.host else { return Standing::Vacant };
        match host.away {
            Some(Away { has_closed: true, .. }) => Standing::Gone,
            Some(Away { since, .. }) if since.elapsed() >= self.shared.host_away => Standing::Gone,
            Some(_) => Standing::Away,
            None if host.offer.is_empty() => Standing::Withdrawn,
            None => Standing::Here,
        }
    }

    /// Returns the first connection on standby.
    fn standby(&self) -> Option<Origin> {
        let host = self.host.as_ref().map(|host| host.client.origin);
        let mut others = self.members.writers().filter(|member| Some(member.client.origin) != host);
        others.find(|member| !member.offer.is_empty()).map(|member| member.client.origin)
    }

    /// Returns true if a connection other than the host may write.
    fn others_write(&self) -> bool {
        let host = self.host.as_ref().map(|host| host.client.origin);
        self.members.writers().any(|member| Some(member.client.origin) != host)
    }

    /// Makes a connection the host.
    async fn pass_to(&mut self, origin: Origin) -> Result<(), End> {
        let Some(member) = self.members.get(origin) else { return Ok(()) };
        let (client, offer) = (member.client.clone(), member.offer.clone());
        let old = self.host.take();
        self.dismiss(old.as_deref()).await?;
        let had_hooks = old.as_ref().is_some_and(|old| !old.offer.hooks.is_empty());
        // Pending hook calls are sent to the new host if it offers their hooks.
        let asked = old.map(|host| host.asked).unwrap_or_default();
        self.host = Some(Box::new(Host { client, offer: offer.clone(), away: None, asked }));
        self.tell(Input::ToolsOffered(offer.tools.tools), None).await?;
        // An empty offer is passed on too. Then the client of the pending calls counts as away.
        if had_hooks || !offer.hooks.is_empty() {
            self.tell(Input::HooksOffered(offer.hooks), None).await?;
        }
        self.tell(Input::AskAgain { only_away: false }, None).await?;
        self.run_open_calls();
        Ok(())
    }

    /// Tells the loop that a client no longer hosts its hooks, and tells the client that its answers are no longer
    /// awaited.
    async fn dismiss(&mut self, host: Option<&Host>) -> Result<(), End> {
        let Some(host) = host.filter(|host| !host.offer.hooks.is_empty()) else { return Ok(()) };
        let (session, after) = (self.id.clone(), self.feed.seq());
        if let Some(member) = self.members.get_mut(host.client.origin) {
            for call_id in host.asked.keys() {
                let cancelled = HookCancelled { call_id: call_id.clone(), outcome: CallOutcome::Dropped };
                // If the event does not fit because the client does not read, the client learns of the cancellation by
                // `too_late`.
                let _ = member.send_event(&session, after, &EphemeralEvent::HookCancelled(cancelled));
            }
        }
        self.tell(Input::HostLeft, None).await
    }

    /// Returns the host in the form that clients see.
    pub(super) fn host_for_clients(&self) -> Option<session::Host> {
        self.host.as_ref().map(|host| session::Host {
            connection_id: host.client.identity.connection_id.clone(),
            client_id: host.client.identity.client_id.clone(),
            away: host.away.is_some(),
        })
    }

    /// Announces the host to everyone, if it has changed.
    fn announce_host(&mut self) {
        let host = self.host_for_clients();
        if host != self.announced_host {
            self.announced_host.clone_from(&host);
            self.effects.emit(&EphemeralEvent::HostChanged(HostChanged { host }));
        }
    }

    /// Asks the host to run the open calls that it may run and was not asked to run yet.
    pub(super) fn run_open_calls(&mut self) {
        let (Some(agent), Some(host)) = (&self.agent, &self.host) else { return };
        let pending = &agent.session().state.pending;
        self.runs.retain(|call_id, _| pending.iter().any(|call| call.call_id == *call_id));
        let Some(member) = self.members.get_mut(host.client.origin) else { return };
        for call in pending {
            let again = match self.runs.get(&call.call_id) {
                _ if call.place != ToolPlace::Client || !agent.runs_call(&call.call_id) => continue,
                _ if !host.offer.tools.tools.has(&call.name) => continue,
                None => false,
                Some(run) if run.client.origin == host.client.origin && !run.has_left => continue,
                Some(run) if run.client.is_same(&host.client) => true,
                Some(_) if host.offer.tools.tools.is_idempotent(&call.name) => false,
                Some(_) => continue,
            };
            let run = EphemeralEvent::RunTool(RunTool { tool_call_id: call.call_id.clone(), again });
            if member.send_event(&self.id, self.feed.seq(), &run).is_ok() {
                let run = Run { client: host.client.clone(), has_left: false };
                self.runs.insert(call.call_id.clone(), run);
            }
        }
    }

    /// Returns when the host's absence becomes too long, if that changes anything.
    pub(super) fn next_host_change(&self) -> Option<Instant> {
        let away = self.host.as_ref()?.away.filter(|away| !away.has_closed)?;
        let changes = self.standing() == Standing::Away && (self.standby().is_some() || self.others_write());
        changes.then(|| away.since + self.shared.host_away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_passes_to_the_first_on_standby_and_ends_when_others_would_use_what_nobody_hosts() {
        let next = Some(Origin(2));
        let table = [
            (Standing::Vacant, None, true, Verdict::Stays),
            (Standing::Vacant, next, true, Verdict::Passes(Origin(2))),
            (Standing::Here, next, true, Verdict::Stays),
            (Standing::Here, None, false, Verdict::Stays),
            (Standing::Withdrawn, next, true, Verdict::Passes(Origin(2))),
            (Standing::Withdrawn, None, false, Verdict::Ends),
            (Standing::Away, next, true, Verdict::Stays),
            (Standing::Away, None, true, Verdict::Stays),
            (Standing::Gone, next, true, Verdict::Passes(Origin(2))),
            (Standing::Gone, None, true, Verdict::Ends),
            (Standing::Gone, None, false, Verdict::Stays),
        ];
        for (standing, standby, others_write, expected) in table {
            assert_eq!(verdict(standing, standby, others_write), expected, "{standing:?} {standby:?} {others_write}");
        }
    }
}
