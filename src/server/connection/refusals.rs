//! Refuses frames, and ends a connection that sends only bad ones.

use super::Connection;
use crate::{
    metrics::{self, limits::Limit},
    server::{
        closing::{End, Flow},
        costs,
    },
    shares::rates::UsedUp,
};
use reseed_protocol::{
    CloseCode, CommandId, ErrorBody, ErrorCode, SessionId,
    frame::{peek_id, peek_session, peek_type},
};

impl Connection {
    /// Deducts a command's cost from the sender's allowance.
    pub(in crate::server) fn take_points(&self, text: &str) -> Result<(), UsedUp> {
        let shares = self.app.registry.shares();
        // A relayed command was already charged at the edge, and an operator's is not the user's.
        let Some(rate) = shares.commands().filter(|_| self.via.is_none() && !self.operates()) else { return Ok(()) };
        let name = peek_type(text).unwrap_or_default();
        let taken = rate.take(&self.credentials.sender, costs::points(&name));
        taken.inspect_err(|_| shares.refused(Limit::Commands, &self.credentials.sender))
    }

    /// Refuses a command that exceeds the sender's allowance.
    pub(in crate::server) async fn rate_limited(&mut self, text: &str, used_up: UsedUp) -> Flow {
        let UsedUp { per_minute, wait } = used_up;
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
        let message = format!(
            "your commands have cost {per_minute} points within a minute, the limit (RATE_LIMIT_PER_MINUTE); wait \
             {millis} ms"
        );
        let details = serde_json::json!({ "limit": Limit::Commands.as_str(), "max": per_minute });
        let error = ErrorBody::new(ErrorCode::RateLimited, message).with_details(details);
        let (session, id) = (peek_session(text), peek_id(text));
        let refused = self.refuse_about(session.as_ref(), id.as_ref(), error.with_retry_after_ms(millis)).await;
        refused.map_err(|end| match end {
            End::Close(CloseCode::BadFrames, _) => {
                End::Close(CloseCode::RateLimit, "too many commands despite rate_limited")
            }
            other => other,
        })?;
        self.flush().await
    }

    /// Answers a bad frame with an error; closes a connection that sends nothing else.
    pub(in crate::server) async fn refuse(&mut self, id: Option<&CommandId>, error: ErrorBody) -> Flow {
        self.refuse_about(None, id, error).await
    }

    /// Answers a bad frame that may name a session; closes a connection that sends nothing else.
    pub(in crate::server) async fn refuse_about(
        &mut self,
        session: Option<&SessionId>,
        id: Option<&CommandId>,
        error: ErrorBody,
    ) -> Flow {
        metrics::FRAMES_REFUSED_TOTAL.add([error.code.as_str()], 1);
        self.send(self.dialect.refusal(session, id, error)).await?;
        if self.wire.bad_frame() && self.via.is_none() {
            return Err(End::Close(CloseCode::BadFrames, "too many bad frames in a row"));
        }
        Ok(())
    }
}
