//! Relays of a connection, at its edge and at a holder: which commands go to a holder, and what the client receives
//! when a link ends.
//!
//! The sessions of a broken link end for the client with `session_closed`. It opens them again and resumes exactly, as
//! after losing its own connection. Its unanswered commands get a retriable error.

use super::{Connection, count_reply};
use crate::{
    runtime::{SUBSCRIPTIONS_MAX, encoded::FrameText},
    server::{
        closing::Flow,
        relay::{
            link::{Dial, LinkEnd, Told},
            links::{Ended, Forwarded},
            wire::{self, Greeting, Rights, ToHolder},
        },
    },
    store::NodeRow,
    trace::{self, KeyValue, Span, SpanBuilder, SpanKind},
};
use reseed_protocol::{
    CommandId, ErrorBody, SessionId,
    frame::{encode_event, encode_reply},
    reply::{Done, Reply},
    session::SubscriptionEnd,
};

impl Connection {
    /// Returns true if the session's commands go to another node.
    pub(in crate::server) fn is_routed(&self, session: &SessionId) -> bool {
        self.links.as_ref().is_some_and(|links| links.of(session).is_some())
    }

    /// Returns true if the connection may subscribe to one more session.
    pub(in crate::server) fn may_subscribe(&self) -> bool {
        self.subscriptions.len() + self.links.as_ref().map_or(0, |links| links.session_count()) < SUBSCRIPTIONS_MAX
    }

    /// Forwards a command about a routed session to its holder.
    pub(in crate::server) fn pass_to_holder(
        &mut self,
        id: &CommandId,
        session: &SessionId,
        name: &'static str,
        text: &FrameText,
    ) {
        let span = self.relay_span(session, name);
        let Some(links) = &mut self.links else { return };
        let Some(link) = links.of(session) else { return };
        links.forward(link, (id, session, name), text, span);
    }

    /// Sends a command to the node that holds its session, which is not routed yet. `open_session` routes it.
    ///
    /// # Errors
    /// `overloaded`: the node cannot be reached from here.
    pub(in crate::server) fn send_to_node(
        &mut self,
        row: &NodeRow,
        id: &CommandId,
        session: &SessionId,
        name: &'static str,
        text: &FrameText,
    ) -> Result<(), ErrorBody> {
        let link = match self.links.as_ref().and_then(|links| links.to(row.id)) {
            Some(link) => link,
            None => {
                let dial = self.dial(row).ok_or_else(|| self.app.registry.held_elsewhere(session, row.id))?;
                self.links.get_or_insert_default().dial(dial)
            }
        };
        let span = self.relay_span(session, name);
        self.links.get_or_insert_default().forward(link, (id, session, name), text, span);
        Ok(())
    }

    /// Starts the span of a command that a holder will answer.
    fn relay_span(&self, session: &SessionId, name: &'static str) -> Span {
        self.app.registry.traces().start(trace::current(), || {
            SpanBuilder::from_name(format!("relay {name}"))
                .with_kind(SpanKind::Client)
                .with_attributes([KeyValue::new("gen_ai.conversation.id", session.to_string())])
        })
    }

    /// Returns what is needed to reach a node; `None` if no nodes can be reached, or if this one has no address.
    fn dial(&self, row: &NodeRow) -> Option<Dial> {
        let keeper = self.app.registry.keeper()?.clone();
        let identity = &self.subscriptions.shared.identity;
        let greeting = Greeting {
            node: row.id.0,
            from: keeper.me().0,
            connection_id: identity.connection_id.clone(),
            client_id: identity.client_id.clone(),
            client: identity.software.clone(),
            name: self.credentials.owner(),
            rights: Rights::of(self.credentials.grant.as_ref()?),
        };
        Some(Dial {
            holder: row.id,
            address: row.node.address.clone()?,
            token: self.app.peers.token()?.clone(),
            greeting: wire::encoded(&ToHolder::Greeting(Box::new(greeting))),
            heartbeat: self.app.patience.heartbeat,
            keeper,
            context: self.context.clone(),
        })
    }

    /// Informs the holders that the client has renewed its credentials.
    pub(in crate::server) fn renew_links(&self) {
        if let (Some(links), Some(grant)) = (&self.links, &self.credentials.grant) {
            links.tell_all(&wire::encoded(&ToHolder::Renewal(Rights::of(grant))).into());
        }
    }

    /// Takes the client's new credentials from the edge. Returns false if the frame is the client's.
    pub(in crate::server) fn renewed(&mut self, text: &str) -> bool {
        if self.via.is_none() || !text.starts_with(r#"{"type":"relay_"#) {
            return false;
        }
        // An unknown frame of another version is ignored.
        if let Ok(ToHolder::Renewal(rights)) = serde_json::from_str(text) {
            self.renewed_by_edge(rights.grant(&self.app.auth, self.credentials.owner()));
        }
        true
    }

    /// Handles a message from a link.
    pub(in crate::server) async fn hear(&mut self, told: Told) -> Flow {
        let (link, told) = *told;
        self.credentials.still_granted()?;
        let Some(links) = &mut self.links else { return Ok(()) };
        match told {
            Ok(frame) => {
                if links.passes(link, &frame) {
                    self.send(frame).await?;
                }
            }
            Err(end) => {
                if let Some(ended) = links.lost(link) {
                    self.lost(ended, &end).await?;
                }
            }
        }
        if self.links.as_mut().is_some_and(|links| links.close_idle()) {
            self.links = None;
        }
        self.flush().await
    }

    /// Tells the client what has ended with a link.
    async fn lost(&mut self, ended: Ended, end: &LinkEnd) -> Flow {
        let Ended { node, mut sessions, unanswered } = ended;
        match end {
            LinkEnd::Unreachable(error) => {
                if let Some(left_out) = self.app.registry.keeper().and_then(|keeper| keeper.admit_unreachable()) {
                    tracing::warn!(%node, error, left_out, "another server cannot be reached");
                }
            }
            LinkEnd::Ended(why) => {
                tracing::info!(%node, why, subscriptions = sessions.len(), "a connection to another server has ended");
            }
        }
        for Forwarded { id, session, name, .. } in unanswered {
            let reply = match name {
                // The client has left the session, so it gets no `session_closed`.
                "close_session" => {
                    sessions.retain(|of| *of != session);
                    Reply::Ok(Done::default())
                }
                // Its outcome is unknown.
                _ if sessions.contains(&session) => Reply::Error(self.app.session_gone()),
                _ => Reply::Error(self.app.registry.held_elsewhere(&session, node)),
            };
            count_reply(name, &reply);
            self.send(encode_reply(Some(&id), Some(&session), &reply)).await?;
        }
        for session in sessions {
            self.send(encode_event(Some(&session), &SubscriptionEnd::Moved.event())).await?;
        }
        Ok(())
    }
}
