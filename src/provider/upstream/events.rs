//! Reads the events of an answer from the body of a response as they arrive, and enforces their deadlines.

use super::{
    framing::{EVENT_BYTES_MAX, Framing, TooLarge},
    halves::marked,
    transport::{Timeouts, silent},
};
use crate::{
    core::model::{FaultOrigin, ModelFault},
    provider::fault::{fault, request_id},
};
use reqwest::Response;
use reseed_protocol::ErrorCode;
use std::{borrow::Cow, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum bytes of one answer's stream. The longest known answers have 128,000 events of a few hundred bytes. A server
/// that sends more does not stop.
const STREAM_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The time limit for what may follow a complete answer (usage, `[DONE]`).
const TAIL_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for a finished body to end, so that its connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How much of the answer has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing has arrived.
    Before,
    /// A part has arrived.
    Within,
    /// The whole answer has arrived.
    Whole,
}

/// The events of one answer.
#[derive(Debug)]
pub(crate) struct Events {
    body: Response,
    framing: Framing,
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
    /// Starts reading a body, whose first event is due at `first_event_by`.
    pub(super) fn new(body: Response, first_event_by: Instant, timeouts: Timeouts) -> Self {
        Self {
            body,
            framing: Framing::default(),
            timeouts,
            bytes: 0,
            begun: false,
            ended: false,
            event_by: first_event_by,
            byte_by: first_event_by,
        }
    }

    /// Returns the status and id of this response, for the log of a fault in its middle.
    pub(crate) fn origin(&self) -> FaultOrigin {
        let http_status = Some(self.body.status().as_u16());
        FaultOrigin { http_status, request_id: request_id(self.body.headers()), ..FaultOrigin::default() }
    }

    /// Returns true if any event has arrived.
    pub(crate) fn begun(&self) -> bool {
        self.begun
    }

    /// Returns true if the body is JSON rather than an event stream.
    pub(crate) fn is_json(&self) -> bool {
        matches!(self.framing, Framing::Json { .. })
    }

    /// Waits for the next event. Returns `false` if the body ended properly.
    ///
    /// Two limits apply. Any byte, even of a comment, is a sign of life and extends the idle limit. But comments alone
    /// do not keep an answer alive beyond the time limit for a first event. Once the answer is complete, the wait for
    /// what may follow is short.
    pub(crate) async fn next(&mut self, stage: Stage) -> Result<bool, ModelFault> {
        loop {
            if self.framing.advance() || (self.ended && self.framing.end()) {
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
            let limit = if stage == Stage::Whole { limit.min(Instant::now() + TAIL_TIMEOUT) } else { limit };
            match timeout_at(limit, self.body.chunk()).await {
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
                    self.framing.push(&bytes).map_err(|TooLarge| {
                        let note = format!("an event exceeds {EVENT_BYTES_MAX} bytes");
                        fault(ErrorCode::UpstreamMalformed, &note)
                    })?;
                    if matches!(self.framing, Framing::Page) {
                        let note = "HTTP 200 with a web page instead of a stream";
                        return Err(fault(ErrorCode::UpstreamMalformed, note));
                    }
                }
                Ok(Ok(None)) => self.ended = true,
                Ok(Err(_)) if stage == Stage::Before => {
                    let note = "the connection broke before the answer started";
                    return Err(fault(ErrorCode::UpstreamUnreachable, note));
                }
                Ok(Err(_)) => return Err(fault(ErrorCode::UpstreamTruncated, "the connection broke")),
            }
        }
    }

    /// Returns the event that [`Events::next`] waited for, and whether it contains marks for halves of characters.
    pub(crate) fn data(&self) -> (Cow<'_, str>, bool) {
        marked(self.framing.data())
    }

    /// Reads the rest of the body in the background, so that its connection can be reused. The answer is complete. A
    /// server that still does not end is disconnected.
    pub(crate) fn finish(mut self) {
        if !self.ended {
            tokio::spawn(timeout(DRAIN_TIMEOUT, async move { while let Ok(Some(_)) = self.body.chunk().await {} }));
        }
    }
}
