//! The audit log: refused credentials, and what operators read. It never contains conversation text, and its rate is
//! bounded.

use crate::{shares::LINES_MAX, store::Spaced};
use reseed_protocol::{ErrorBody, SessionId};
use std::net::IpAddr;

const METRICS: &str = "metrics";

/// The audit log.
#[derive(Debug)]
pub(super) struct Audit {
    refusals: Spaced,
    reads: Spaced,
}

impl Default for Audit {
    fn default() -> Self {
        Self { refusals: Spaced::bursts(LINES_MAX), reads: Spaced::bursts(LINES_MAX) }
    }
}

/// An act that is traced: of an operator, of a service, or a deletion by a user.
#[derive(Debug, Clone, Copy)]
pub(super) struct Act<'a> {
    /// The name of the operator, service or user.
    pub(super) who: &'a str,
    pub(super) what: &'static str,
    /// The session that it concerns. An id that exists, not text from a client.
    pub(super) session: Option<&'a SessionId>,
    /// The user whom it concerns.
    pub(super) user: Option<&'a str>,
    pub(super) address: Option<IpAddr>,
    /// `asked` before the act, and its result after it. It must not contain text from a client.
    pub(super) outcome: &'a str,
}

impl Audit {
    /// Records an act. Returns when the record is durable.
    ///
    /// # Errors
    /// The record cannot be written. An act that has not happened must not happen then.
    #[expect(clippy::unused_async, reason = "it does not wait for a file yet")]
    pub(super) async fn act(&self, act: Act<'_>) -> Result<(), ErrorBody> {
        let Act { who, what, session, user, address, outcome } = act;
        let (session, address) = (session.map(tracing::field::display), address.map(tracing::field::display));
        tracing::info!(who, what, session, user, address, outcome, "audit");
        Ok(())
    }

    /// Logs that credentials were refused. `what` is what they were for. `why` must not contain any part of them.
    pub(super) fn refused(&self, address: Option<IpAddr>, what: &'static str, why: &'static str) {
        let Some(left_out) = self.refusals.admit() else { return };
        tracing::warn!(address = address.map(tracing::field::display), what, why, left_out, "refuse credentials");
    }

    /// Logs what an operator has read. Reads of the metrics are not logged, because they are polled.
    pub(super) fn read(&self, operator: &str, read: Read, status: u16) {
        let (what, session) = read;
        if what == METRICS {
            return;
        }
        let Some(left_out) = self.reads.admit() else { return };
        // A session that exists has an id made by the server. Any other id is text from a client.
        let session = session.as_ref().filter(|_| status == 200).map(tracing::field::display);
        tracing::info!(operator, what, session, status, left_out, "an operator reads");
    }
}

/// The endpoint that an operator reads, and the session it concerns.
pub(super) type Read = (&'static str, Option<SessionId>);

/// Returns what an operator's path reads; `None` for other paths. The path itself comes from the client, so it is not
/// logged.
pub(super) fn read(path: &str) -> Option<Read> {
    if path == "/metrics" {
        return Some((METRICS, None));
    }
    if path == "/api/mcp" {
        return Some(("mcp", None));
    }
    if path == "/api/nodes" {
        return Some(("nodes", None));
    }
    if path == "/api/minutes" {
        return Some(("minutes", None));
    }
    if path == "/api/budgets" {
        return Some(("budgets", None));
    }
    if path == "/api/usage" {
        return Some(("usage", None));
    }
    let rest = path.strip_prefix("/api/sessions")?;
    let mut steps = rest.split('/').skip(1);
    let session = steps.next().and_then(|id| id.parse().ok());
    match steps.next() {
        Some("context") => Some(("context", session)),
        Some("tree") => Some(("tree", session)),
        _ => Some(("sessions", None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_named_by_what_it_reads() {
        let table = [
            ("/metrics", Some(("metrics", None))),
            ("/api/mcp", Some(("mcp", None))),
            ("/api/nodes", Some(("nodes", None))),
            ("/api/budgets", Some(("budgets", None))),
            ("/api/usage", Some(("usage", None))),
            ("/api/minutes", Some(("minutes", None))),
            ("/api/sessions", Some(("sessions", None))),
            ("/api/sessions/k7m2q9xw4hfatz8n/context", Some(("context", Some("k7m2q9xw4hfatz8n")))),
            ("/api/sessions/k7m2q9xw4hfatz8n/tree", Some(("tree", Some("k7m2q9xw4hfatz8n")))),
            ("/api/sessions/%20what I said/tree", Some(("tree", None))),
            ("/healthz", None),
        ];
        for (path, expected) in table {
            let found = read(path).map(|(what, session)| (what, session.map(|id| id.to_string())));
            assert_eq!(found, expected.map(|(what, id)| (what, id.map(str::to_owned))), "{path}");
        }
    }
}
