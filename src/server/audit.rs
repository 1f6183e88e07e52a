//! Who was refused, and which operator read what, in the log: never what was said, and never more than a bounded number
//! of lines.

use reseed_protocol::SessionId;
use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Lines of each kind in one interval. Whoever tries credentials without end would fill the disk otherwise.
const LINES_MAX: u32 = 30;

/// The interval.
const INTERVAL: Duration = Duration::from_secs(60);

const METRICS: &str = "metrics";

/// The audit log.
#[derive(Debug, Default)]
pub(super) struct Audit {
    refusals: Mutex<Lines>,
    reads: Mutex<Lines>,
}

/// The lines of one kind.
#[derive(Debug, Default)]
struct Lines {
    since: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl Lines {
    /// Returns how many lines were left out before this one, or `None` if this one is to be left out too.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= INTERVAL) {
            (self.since, self.written) = (Some(now), 0);
        }
        if self.written >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Audit {
    /// Logs that credentials were refused. `what` is what they were for.
    pub(super) fn refused(&self, address: Option<IpAddr>, what: &'static str) {
        let Some(left_out) = admit(&self.refusals) else { return };
        tracing::warn!(address = address.map(tracing::field::display), what, left_out, "refuse credentials");
    }

    /// Logs the outcome of a request that only operators may make. `operator` is `None` if it was refused. Reads of the
    /// metrics are not logged: they are polled.
    pub(super) fn asked(&self, operator: Option<&str>, address: Option<IpAddr>, read: Read, status: u16) {
        let (what, session) = read;
        let Some(operator) = operator else { return self.refused(address, what) };
        if what == METRICS {
            return;
        }
        let Some(left_out) = admit(&self.reads) else { return };
        // The id of a session that exists is the server's; any other is a client's text.
        let session = session.as_ref().filter(|_| status == 200).map(tracing::field::display);
        tracing::info!(operator, what, session, status, left_out, "an operator reads");
    }
}

fn admit(lines: &Mutex<Lines>) -> Option<u64> {
    lines.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now())
}

/// What an operator reads, and of which session.
pub(super) type Read = (&'static str, Option<SessionId>);

/// Returns what a path of operators reads; `None` for other paths. The path itself is a client's text.
pub(super) fn read(path: &str) -> Option<Read> {
    if path == "/metrics" {
        return Some((METRICS, None));
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

    #[test]
    fn lines_are_bounded_and_the_next_tells_how_many_are_missing() {
        let (mut lines, start) = (Lines::default(), Instant::now());
        let written = (0..100).filter(|_| lines.admit(start).is_some()).count();
        assert_eq!(written, LINES_MAX as usize);
        assert_eq!(lines.admit(start + INTERVAL), Some(70));
        assert_eq!(lines.admit(start + INTERVAL), Some(0));
    }
}
