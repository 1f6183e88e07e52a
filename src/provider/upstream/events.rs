//! The events of an answer, read from the body of a response as they arrive, with their deadlines.

use super::{
    sse::{EVENT_BYTES_MAX, Sse, TooLarge},
    transport::{Timeouts, silent},
};
use crate::{
    core::model::{FaultOrigin, ModelFault},
    provider::fault::{fault, request_id},
};
use reqwest::Response;
use reseed_protocol::ErrorCode;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Most bytes of one answer's stream. The longest known answers are 128,000 events of a few hundred bytes; a server
/// that sends more will not end.
const STREAM_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The time limit for what may follow a complete answer (usage, `[DONE]`).
const TAIL_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for a finished body to end, so that its connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The events of one answer.
#[derive(Debug)]
pub(crate) struct Events {
    response: Response,
    sse: Sse,
    timeouts: Timeouts,
    bytes: usize,
    begun: bool,
    ended: bool,
    /// The deadline of the next event.
    event_by: Instant,
    /// The deadline of the next byte.
    byte_by: Instant,
}

impl Events {
    /// Starts reading a body; its first event is due at `first_event_by`.
    pub(super) fn new(response: Response, first_event_by: Instant, timeouts: Timeouts) -> Self {
        Self {
            response,
            sse: Sse::default(),
            timeouts,
            bytes: 0,
            begun: false,
            ended: false,
            event_by: first_event_by,
            byte_by: first_event_by,
        }
    }

    /// Returns the status and id of this response, for the log of a fault in the middle of it.
    pub(crate) fn origin(&self) -> FaultOrigin {
        let http_status = Some(self.response.status().as_u16());
        FaultOrigin { http_status, error_type: None, request_id: request_id(self.response.headers()) }
    }

    /// Returns true if any event has arrived.
    pub(crate) fn begun(&self) -> bool {
        self.begun
    }

    /// Waits for the next event; returns `false` if the body ended properly.
    ///
    /// Two limits apply: any byte, even of a comment, is a sign of life and extends the idle limit, but comments alone
    /// do not keep an answer alive beyond the time limit of a first event. With `whole`, the answer is complete, and
    /// the wait for what may follow is short.
    pub(crate) async fn next(&mut self, whole: bool) -> Result<bool, ModelFault> {
        loop {
            if self.sse.advance() || (self.ended && self.sse.end()) {
                self.begun = true;
                let now = Instant::now();
                self.event_by = now + self.timeouts.first_event;
                self.byte_by = now + self.timeouts.idle;
                return Ok(true);
            }
            if self.ended {
                return Ok(false);
            }
            let limit = self.event_by.min(self.byte_by);
            let limit = if whole { limit.min(Instant::now() + TAIL_TIMEOUT) } else { limit };
            match timeout_at(limit, self.response.chunk()).await {
                Err(_) if self.begun => return Err(silent(self.timeouts.idle, "in the middle of the answer")),
                Err(_) => return Err(silent(self.timeouts.first_event, "before the answer started")),
                Ok(Ok(Some(bytes))) => {
                    if self.begun {
                        self.byte_by = Instant::now() + self.timeouts.idle;
                    }
                    self.bytes += bytes.len();
                    if self.bytes > STREAM_BYTES_MAX {
                        return Err(fault(ErrorCode::UpstreamMalformed, "the stream does not end"));
                    }
                    self.sse.push(&bytes).map_err(|TooLarge| {
                        let note = format!("an event exceeds {EVENT_BYTES_MAX} bytes");
                        fault(ErrorCode::UpstreamMalformed, &note)
                    })?;
                }
                Ok(Ok(None)) => self.ended = true,
                Ok(Err(_)) if self.begun => return Err(fault(ErrorCode::UpstreamTruncated, "the connection broke")),
                Ok(Err(_)) => {
                    return Err(fault(
                        ErrorCode::UpstreamUnreachable,
                        "the connection broke before the answer started",
                    ));
                }
            }
        }
    }

    /// Returns the data of the event that [`Events::next`] waited for.
    pub(crate) fn data(&self) -> Result<&str, ModelFault> {
        std::str::from_utf8(self.sse.data()).map_err(|_| fault(ErrorCode::UpstreamMalformed, "an event is not UTF-8"))
    }

    /// Reads the rest of the body in the background, so that its connection can be reused. The answer is complete; a
    /// server that still does not end is disconnected.
    pub(crate) fn finish(mut self) {
        if !self.ended {
            tokio::spawn(timeout(DRAIN_TIMEOUT, async move { while let Ok(Some(_)) = self.response.chunk().await {} }));
        }
    }
}
