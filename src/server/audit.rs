//! The audit log: who signed in, whose credentials were refused, what operators read and did, and what users deleted.
//! It never contains conversation text, tokens or names of sessions, and the rate of refusals and reads is bounded.
//!
//! Acts, refusals and reads are lines of the server's log. With AUDIT_FILE, everything is also in a file as a
//! [hash chain](chain). If it cannot be written, acts are refused: nothing is done without a trace. Sign-ins, refusals,
//! reads and tickets continue, and the file says later how many lines it lacks.

pub(crate) mod chain;
mod writer;

use self::{chain::Line, writer::Writer};
use super::auth::Grant;
use crate::{shares::LINES_MAX, store::Spaced};
use reseed_protocol::{ErrorBody, ErrorCode, SessionId};
use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

const METRICS: &str = "metrics";

/// The outcome of an act that has not happened yet.
pub(super) const ASKED: &str = "asked";

/// The name under which the server's own acts are recorded.
const SERVER: &str = "server";

/// How long requests of a user from one address count as one sign-in, and how many such pairs are known. Beyond that,
/// all are forgotten.
const SIGN_IN_LASTS: Duration = Duration::from_secs(60 * 60);
const SIGN_INS_MAX: usize = 10_000;

/// The audit log.
#[derive(Debug)]
pub(crate) struct Audit {
    refusals: Spaced,
    reads: Spaced,
    /// `None` without AUDIT_FILE.
    writer: Option<Writer>,
    requests: Mutex<Requests>,
}

/// The users whose requests over HTTP were recorded, with their addresses and dialects.
#[derive(Debug)]
struct Requests {
    since: Instant,
    known: BTreeSet<(String, IpAddr, &'static str)>,
}

impl Requests {
    fn begin() -> Self {
        Self { since: Instant::now(), known: BTreeSet::new() }
    }

    /// Adds a request; returns false if it is known.
    fn add(&mut self, grant: &Grant, address: IpAddr, dialect: &'static str) -> bool {
        if self.since.elapsed() > SIGN_IN_LASTS || self.known.len() >= SIGN_INS_MAX {
            *self = Self::begin();
        }
        self.known.insert((grant.name().clone(), address, dialect))
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
    /// [`ASKED`] before the act, and its result after it. It must not contain text from a client.
    pub(super) outcome: &'a str,
}

impl Audit {
    /// Opens AUDIT_FILE, if there is one.
    ///
    /// # Errors
    /// It cannot be written, another process writes to it, or it does not end with a line of an audit log.
    pub(crate) fn open(file: Option<&Path>) -> io::Result<Self> {
        Ok(Self {
            refusals: Spaced::bursts(LINES_MAX),
            reads: Spaced::bursts(LINES_MAX),
            writer: file.map(Writer::start).transpose()?,
            requests: Mutex::new(Requests::begin()),
        })
    }

    /// Records something that has happened, or happens whether it can be recorded or not.
    pub(super) fn note(&self, what: &str, line: Line) {
        if let Some(writer) = &self.writer {
            writer.note(Line { what: what.to_owned(), ..line });
        }
    }

    /// Records an act. Returns when the record is durable.
    ///
    /// # Errors
    /// The record cannot be written. An act that has not happened must not happen then.
    pub(super) async fn act(&self, act: Act<'_>) -> Result<(), ErrorBody> {
        let Act { who, what, session, user, address, outcome } = act;
        let line = Line {
            what: what.to_owned(),
            who: who.to_owned(),
            session: session.map(ToString::to_string),
            user: user.map(str::to_owned),
            address: address.map(|address| address.to_string()),
            outcome: outcome.to_owned(),
            ..Line::default()
        };
        if outcome != ASKED {
            let (session, address) = (session.map(tracing::field::display), address.map(tracing::field::display));
            tracing::info!(who, what, session, user, address, outcome, "an act is recorded");
        }
        let Some(writer) = &self.writer else { return Ok(()) };
        writer.record(line).await.map_err(|why| {
            let message = format!("the audit log cannot be written, so this is not done: {why}");
            ErrorBody::new(ErrorCode::StoreFailed, message)
        })
    }

    /// Records that credentials were accepted. `on` is what they were for.
    pub(super) fn accepted(&self, address: Option<IpAddr>, on: &'static str, grant: &Grant) {
        let Some(credential) = grant.credential() else { return };
        let line = Line {
            who: grant.name().clone(),
            address: address.map(|address| address.to_string()),
            ticket: grant.ticket().map(str::to_owned),
            credential: credential.to_owned(),
            on: on.to_owned(),
            outcome: "accepted".to_owned(),
            ..Line::default()
        };
        self.note("sign_in", line);
    }

    /// Records that the credentials of a request over HTTP were accepted, once an hour for each user, address and
    /// dialect.
    pub(super) fn accepted_request(&self, address: Option<IpAddr>, on: &'static str, grant: &Grant) {
        let requests = || self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = address.is_none_or(|address| requests().add(grant, address, on));
        if is_new {
            self.accepted(address, on, grant);
        }
    }

    /// Records that credentials were refused, or that an operator may not do something. `what` is what they were for.
    /// `why` must not contain any part of them.
    pub(super) fn refused(&self, address: Option<IpAddr>, what: &'static str, why: &'static str) {
        let Some(left_out) = self.refusals.admit() else { return };
        let (on, outcome) = (what.to_owned(), why.to_owned());
        let line =
            Line { address: address.map(|address| address.to_string()), on, outcome, left_out, ..Line::default() };
        self.note("refusal", line);
        tracing::warn!(address = address.map(tracing::field::display), what, why, left_out, "refuse credentials");
    }

    /// Records what an operator has read. Reads of the metrics are not recorded, because they are polled.
    pub(super) fn read(&self, operator: &str, read: Read, status: u16, address: Option<IpAddr>) {
        let (what, session) = read;
        if what == METRICS {
            return;
        }
        let Some(left_out) = self.reads.admit() else { return };
        // A session that exists has an id made by the server. Any other id is text from a client.
        let session = session.as_ref().filter(|_| status == 200);
        let line = Line {
            who: operator.to_owned(),
            address: address.map(|address| address.to_string()),
            session: session.map(ToString::to_string),
            on: what.to_owned(),
            outcome: status.to_string(),
            left_out,
            ..Line::default()
        };
        self.note("read", line);
        let session = session.map(tracing::field::display);
        tracing::info!(operator, what, session, status, left_out, "an operator reads");
    }

    /// Records an act of the server itself.
    pub(crate) fn server(&self, what: &str, outcome: &str) {
        self.note(what, Line { who: SERVER.to_owned(), outcome: outcome.to_owned(), ..Line::default() });
    }

    /// Continues in a new file if the old one was moved away.
    ///
    /// # Errors
    /// The new file cannot be used. The old one stays in use.
    pub(crate) async fn rotate(&self) -> Result<(), String> {
        match &self.writer {
            Some(writer) => writer.rotate().await,
            None => Ok(()),
        }
    }

    /// Writes what is waiting, and closes the file.
    pub(crate) async fn close(&self) {
        if let Some(writer) = &self.writer {
            writer.close().await;
        }
    }
}

/// The endpoint that an operator uses, and the session it concerns.
pub(super) type Read = (&'static str, Option<SessionId>);

/// Returns what an operator's path is about; `None` for other paths. The path itself comes from the client, so it is
/// not logged.
pub(super) fn read(path: &str) -> Option<Read> {
    if path == "/metrics" {
        return Some((METRICS, None));
    }
    let mut steps = path.strip_prefix("/api/")?.split('/');
    let (first, id, part) = (steps.next()?, steps.next(), steps.next());
    let session = id.filter(|_| first == "sessions").and_then(|id| id.parse().ok());
    let what = match (first, id, part) {
        ("mcp", None, _) => "mcp",
        ("nodes", None, _) => "nodes",
        ("minutes", None, _) => "minutes",
        ("budgets", None, _) => "budgets",
        ("usage", None, _) => "usage",
        ("backup", None, _) => "backup",
        ("drain", None, _) => "drain",
        ("users", Some(_), _) => "user",
        ("sessions", _, Some("context")) => "context",
        ("sessions", _, Some("tree")) => "tree",
        ("sessions", _, Some("requests")) => "requests",
        ("sessions", ..) if session.is_some() => "session",
        ("sessions", ..) => "sessions",
        _ => return None,
    };
    Some((what, session))
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
            ("/api/backup", Some(("backup", None))),
            ("/api/sessions", Some(("sessions", None))),
            ("/api/sessions/k7m2q9xw4hfatz8n/context", Some(("context", Some("k7m2q9xw4hfatz8n")))),
            ("/api/sessions/k7m2q9xw4hfatz8n/tree", Some(("tree", Some("k7m2q9xw4hfatz8n")))),
            ("/api/sessions/k7m2q9xw4hfatz8n/requests", Some(("requests", Some("k7m2q9xw4hfatz8n")))),
            ("/api/sessions/%20what I said/tree", Some(("tree", None))),
            ("/api/sessions/k7m2q9xw4hfatz8n", Some(("session", Some("k7m2q9xw4hfatz8n")))),
            ("/api/sessions/k7m2q9xw4hfatz8n/close", Some(("session", Some("k7m2q9xw4hfatz8n")))),
            ("/api/users/ann", Some(("user", None))),
            ("/api/users/ann/close", Some(("user", None))),
            ("/api/drain", Some(("drain", None))),
            ("/healthz", None),
        ];
        for (path, expected) in table {
            let found = read(path).map(|(what, session)| (what, session.map(|id| id.to_string())));
            assert_eq!(found, expected.map(|(what, id)| (what, id.map(str::to_owned))), "{path}");
        }
    }
}
