//! The end of a link: which commands go to another node, and which sessions end.
//!
//! The link's sessions end for the client with `session_closed`. The client opens them again and resumes exactly, as
//! after losing its own connection. Commands that any node can execute are sent again. The others get a retriable
//! error.

use super::{
    link::LinkEnd,
    routes::{Resend, Then},
};
use crate::{
    runtime::Place,
    server::{
        closing::Flow,
        socket::{Connection, Unanswered, count_reply},
        v2,
    },
    store::NodeId,
};
use reseed_protocol::{
    CloseCode,
    frame::{encode_event, encode_reply},
    reply::{Done, Reply},
    session::SubscriptionEnd,
};

/// Maximum number of times that a command is sent again after its session has moved.
const ATTEMPTS_MAX: u8 = 2;

impl Connection {
    /// Handles the end of a link. The client's connection continues.
    pub(super) async fn lost(&mut self, number: u64, end: &LinkEnd) -> Flow {
        let Some((link, routes)) = self.relays.as_mut().and_then(|relays| relays.remove(number)) else { return Ok(()) };
        let node = link.row.id;
        match end {
            LinkEnd::Unreachable(error) | LinkEnd::Absent(error) => {
                if let Some(left_out) = self.app.registry.keeper().and_then(|keeper| keeper.admit_unreachable(node)) {
                    tracing::warn!(%node, error, left_out, "another server cannot be reached");
                }
            }
            end => {
                tracing::info!(%node, ?end, subscriptions = routes.len(), "a connection to another server has ended");
            }
        }
        let is_of = |waiting: &mut Unanswered| waiting.link == Some(number);
        let unanswered: Vec<Unanswered> = self.unanswered.extract_if(.., is_of).collect();
        let mut again = Vec::new();
        for waiting in unanswered {
            if waiting.resend.is_some() {
                again.push(waiting);
                continue;
            }
            let reply = match waiting.name {
                "close_session" => Reply::Ok(Done::default()),
                // Its outcome is unknown.
                _ => Reply::Error(self.app.session_gone()),
            };
            count_reply(waiting.name, &reply);
            self.send(encode_reply(Some(&waiting.id), Some(&waiting.session), &reply)).await?;
        }
        for route in routes.into_iter().filter(|route| route.is_open && route.then == Then::Stays) {
            self.send(encode_event(Some(&route.session), &SubscriptionEnd::Moved.event())).await?;
        }
        // A node that closes a silent connection is alive.
        let may_be_there =
            matches!(end, LinkEnd::WrongNode | LinkEnd::Broken) || *end == LinkEnd::Closed(CloseCode::NoPong.code());
        for waiting in again {
            Box::pin(self.look_again(waiting, Some(node).filter(|_| !may_be_there))).await?;
        }
        Ok(())
    }

    /// Locates the session of a command again and sends the command there, because its node does not hold the session
    /// or cannot be reached.
    pub(super) async fn look_again(&mut self, waiting: Unanswered, not_at: Option<NodeId>) -> Flow {
        let Unanswered { id, session, name, resend, .. } = waiting;
        if let Some(relays) = self.relays.as_mut().filter(|_| name == "open_session") {
            relays.forget(&session);
        }
        let owner = v2::owner(self);
        let place = self.app.registry.locate(&session, &owner).await;
        let refused = match (place, resend) {
            (Err(error), _) => error,
            (Ok(Place::Elsewhere(row)), Some(resend)) if not_at != Some(row.id) && resend.attempts < ATTEMPTS_MAX => {
                let resend = Resend { attempts: resend.attempts + 1, ..*resend };
                match self.send_to_node(&row, &id, &session, name, resend) {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                }
            }
            (Ok(Place::Elsewhere(row)), _) => self.app.registry.held(&session, row.id),
            (Ok(Place::Here | Place::Free), Some(resend)) if resend.attempts < ATTEMPTS_MAX => {
                return v2::again(self, &resend.text, resend.attempts + 1).await;
            }
            (Ok(Place::Here | Place::Free), _) => self.app.session_gone(),
        };
        let reply = Reply::Error(refused);
        count_reply(name, &reply);
        self.send(encode_reply(Some(&id), Some(&session), &reply)).await
    }
}
