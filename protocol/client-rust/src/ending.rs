//! Decides what to do when a connection ends: reconnect, renew the credentials, or stop.

use reseed_protocol::ErrorBody;
use std::time::Duration;

/// The maximum wait before the first attempt to reconnect.
const FIRST: Duration = Duration::from_millis(500);

/// The maximum wait before any attempt. A server that is back should not wait long for its clients.
const LONGEST: Duration = Duration::from_secs(30);

/// The maximum wait that a server may request. It bounds a nonsensical `retryAfterMs`, because no limit of the server
/// needs more.
const TOLD_MAX: Duration = Duration::from_secs(3_600);

/// The number of failures after which the wait no longer grows.
const DOUBLINGS_MAX: u32 = 6;

/// The reason why a connection ended or could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The server closed it with this code. Without a reason, the meaning of the code is used.
    #[error("{reason} (closed with {code})")]
    Closed {
        /// The close code.
        code: u16,
        /// The reason, for people.
        reason: String,
    },
    /// The connection broke, or the server did not answer.
    #[error("{0}")]
    Broken(String),
    /// The server answered that it is not ready, with HTTP status 503: it is starting or stopping.
    #[error("{0}")]
    Unready(String),
    /// The server refused it, and would refuse another one until something changes.
    #[error("{0}")]
    Refused(String),
}

/// The reaction to a lost connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Connect again after at least this wait, and resume.
    Reconnect(Duration),
    /// Connect again with new credentials.
    Renew,
    /// Stop, because another attempt changes nothing.
    Stop,
}

impl Lost {
    /// Returns the reason for a connection that was closed with this code and text.
    #[must_use]
    pub fn closed(code: u16, reason: &str) -> Self {
        let reason = if reason.is_empty() { meaning(code).0 } else { reason };
        Self::Closed { code, reason: reason.to_owned() }
    }

    /// Returns the close code, or 1006 if there was none, as RFC 6455 defines it.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::Closed { code, .. } => *code,
            Self::Broken(_) | Self::Unready(_) | Self::Refused(_) => 1006,
        }
    }

    /// Returns what to do next.
    #[must_use]
    pub fn then(&self) -> Then {
        match self {
            Self::Closed { code, .. } => meaning(*code).1,
            Self::Broken(_) | Self::Unready(_) => Then::Reconnect(Duration::ZERO),
            Self::Refused(_) => Then::Stop,
        }
    }
}

/// Returns the meaning of a close code and the reaction to it. Unknown codes are final if they are 44xx.
fn meaning(code: u16) -> (&'static str, Then) {
    const AGAIN: Then = Then::Reconnect(Duration::ZERO);
    match code {
        1000 => ("closed by either side", Then::Stop),
        1001 => ("the server or a proxy goes away", AGAIN),
        1002 => ("the client violated RFC 6455", Then::Stop),
        1003 => ("the client sent a kind of data that is not accepted", Then::Stop),
        1006 => ("the connection was lost, or refused before it was open", AGAIN),
        1007 => ("a frame was not UTF-8", Then::Stop),
        1008 => ("a proxy's policy refused the connection", Then::Stop),
        1009 => ("a frame was too large", AGAIN),
        1011 => ("an internal error of the server", AGAIN),
        1012 => ("the server restarts", AGAIN),
        1013 => ("the server is full", AGAIN),
        1014 => ("a gateway got a bad response", AGAIN),
        4400 => ("too many bad frames in a row", Then::Stop),
        4401 => ("the credentials are missing, wrong or expired", Then::Renew),
        4403 => ("the grant was revoked", Then::Stop),
        4408 => ("no hello arrived in time", AGAIN),
        4429 => ("the rate limit was far exceeded", Then::Reconnect(Duration::from_secs(60))),
        4504 => ("this client read too slowly", AGAIN),
        4508 => ("no pong was received", AGAIN),
        _ if code / 100 == 44 => ("the server will not take this connection", Then::Stop),
        _ => ("the connection was closed", AGAIN),
    }
}

/// Returns the wait that the server requested with an error, bounded by [`TOLD_MAX`].
pub(crate) fn told_wait(error: &ErrorBody) -> Duration {
    Duration::from_millis(error.retry_after_ms.unwrap_or_default()).min(TOLD_MAX)
}

/// Returns the wait before the next attempt. It is a random part of a limit that doubles with each failure ("full
/// jitter"), so that the clients of a returning server do not arrive together.
#[must_use]
pub fn backoff(failures: u32, random: &mut fastrand::Rng) -> Duration {
    let limit = LONGEST.min(FIRST * 2u32.pow(failures.min(DOUBLINGS_MAX)));
    limit.mul_f64(random.f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::CloseCode;

    #[test]
    fn a_close_is_answered_as_by_the_client_in_typescript() {
        let table = include_str!("../../client/src/connection/close-codes.ts");
        let mut rows = 0;
        for row in table.lines().map(str::trim).filter(|row| row.starts_with(|first: char| first.is_ascii_digit())) {
            rows += 1;
            let code: u16 = row[..4].parse().unwrap();
            let (meaning, then) = meaning(code);
            assert!(row.contains(&format!("meaning: \"{meaning}\"")), "{row} means {meaning}");
            let expected = match then {
                Then::Reconnect(wait) if wait.is_zero() => "then: \"reconnect\" }".to_owned(),
                Then::Reconnect(wait) => format!("then: \"reconnect\", waitMs: {}_000 }}", wait.as_secs()),
                Then::Renew => "then: \"renew\" }".to_owned(),
                Then::Stop => "then: \"stop\" }".to_owned(),
            };
            assert!(row.contains(&expected), "{row} says {then:?}");
        }
        assert_eq!(rows, 19, "every row was read");
    }

    #[test]
    fn every_code_of_the_server_has_a_meaning() {
        for code in CloseCode::ALL.iter().filter(|code| **code != CloseCode::NoSuchSession) {
            assert!(!meaning(code.code()).0.starts_with("the connection was closed"), "{code:?}");
        }
        assert_eq!(Lost::closed(4499, "").then(), Then::Stop);
        assert_eq!(Lost::closed(4999, "why").to_string(), "why (closed with 4999)");
        assert_eq!(Lost::closed(4999, "").then(), Then::Reconnect(Duration::ZERO));
        assert_eq!([Lost::closed(4999, ""), Lost::Broken("why".into())].map(|lost| lost.code()), [4999, 1006]);
    }

    #[test]
    fn waits_grow_to_a_limit_and_are_spread() {
        let mut random = fastrand::Rng::with_seed(1);
        for (failures, limit_ms) in [(0, 500), (1, 1_000), (5, 16_000), (6, 30_000), (u32::MAX, 30_000)] {
            let waits: Vec<_> = (0..200).map(|_| backoff(failures, &mut random)).collect();
            let limit = Duration::from_millis(limit_ms);
            assert!(waits.iter().all(|wait| *wait <= limit), "{failures}");
            assert!(waits.iter().any(|wait| *wait > limit / 2) && waits.iter().any(|wait| *wait < limit / 2));
        }
    }
}
