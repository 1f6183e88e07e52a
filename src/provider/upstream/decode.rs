//! Reads an answer. Events go through an API's decoder into the assembly until the answer is complete.

use super::{
    assembly::{Assembly, Ending},
    events::{Events, Stage},
};
use crate::{
    core::{
        context::verdict::Diagnosis,
        model::{Answer, FaultOrigin, ModelFault},
    },
    provider::{DeltaSink, fault::fault, retry::Failed},
};
use reseed_protocol::{ErrorCode, receipt::ResponseId};

/// Maximum bytes of a server's id of an answer. Known ones have 60.
const ID_BYTES_MAX: usize = 256;

/// The effect of an event on the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More events follow.
    More,
    /// Nothing follows.
    Done,
}

/// Decodes the events of one answer. Each API has its own implementation.
pub(crate) trait Decoder: Send {
    /// Decodes one event.
    fn event(&mut self, data: &str, assembly: &mut Assembly<'_>) -> Result<Progress, ModelFault>;

    /// Returns how the answer ended, once its terminal event has arrived. A stream that stops before that is truncated.
    fn ending(&self) -> Option<Ending>;

    /// Takes what the server said about the answer besides its content.
    fn take_remarks(&mut self) -> Remarks {
        Remarks::default()
    }
}

/// What a server says about an answer.
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    /// Its id of the answer.
    pub(crate) id: Option<String>,
    /// Its comparison of the request with an earlier one.
    pub(crate) diagnosis: Option<Diagnosis>,
}

/// The reason why reading stopped before the stream did.
enum Stopped {
    /// The stream broke or fell silent.
    Stream(ModelFault),
    /// The stream reported an error.
    Said(ModelFault),
}

/// An answer that is being read. It may come in several streams, if a server continues what it has paused.
pub(crate) struct Reading<'s, D> {
    pub(crate) decoder: D,
    assembly: Assembly<'s>,
    /// The origin of the last stream, for the log.
    origin: FaultOrigin,
    /// True if there may be nothing in the answer.
    may_be_empty: bool,
}

impl<'s, D: Decoder> Reading<'s, D> {
    /// Starts with nothing.
    pub(crate) fn new(decoder: D, sink: &'s mut dyn DeltaSink) -> Self {
        Self { decoder, assembly: Assembly::new(sink), origin: FaultOrigin::default(), may_be_empty: false }
    }

    /// Sets whether there may be nothing in the answer.
    pub(crate) fn empty_if(self, may_be_empty: bool) -> Self {
        Self { may_be_empty, ..self }
    }

    /// Reads a stream to its end.
    pub(crate) async fn read(&mut self, mut events: Events) -> Result<(), Failed> {
        let read = read(&mut events, &mut self.decoder, &mut self.assembly).await;
        self.origin = events.origin();
        match (read, self.decoder.ending()) {
            // Once the answer is complete, the rest of the stream does not matter.
            (Ok(()) | Err(Stopped::Stream(_)), Some(_)) => {
                events.finish();
                Ok(())
            }
            (Ok(()), None) if events.is_json() && self.assembly.is_empty() => {
                Err(fault(ErrorCode::UpstreamMalformed, "HTTP 200 with a JSON value that is no answer"))
            }
            (Ok(()), None) if events.begun() => {
                Err(fault(ErrorCode::UpstreamTruncated, "the stream ended without its terminal event"))
            }
            // llama-cpp-python also does this if a request is larger than its window.
            (Ok(()), None) => Err(fault(ErrorCode::UpstreamEmpty, "the stream ended without any event")),
            (Err(Stopped::Stream(fault) | Stopped::Said(fault)), _) => Err(fault),
        }
        .map_err(|fault| self.failed(fault))
    }

    /// Returns the failure of this answer. What came before the first word, such as a role, is not part of it.
    pub(crate) fn failed(&self, fault: ModelFault) -> Failed {
        let (begun, shown) = (!self.assembly.is_empty(), self.assembly.shown());
        Failed { fault: ModelFault { shown, ..fault.at(self.origin.clone()) }, begun }
    }

    /// Returns the complete answer, once its terminal event has been read.
    pub(crate) fn finish(mut self) -> Result<Answer, Failed> {
        let (begun, shown) = (!self.assembly.is_empty(), self.assembly.shown());
        let Remarks { id, diagnosis } = self.decoder.take_remarks();
        let id = id.filter(|id| !id.is_empty() && id.len() <= ID_BYTES_MAX);
        // The server's name is added to it later.
        let response = id.map(|id| ResponseId { id, server: String::new() });
        let answer = match self.decoder.ending() {
            Some(Ending { stop_reason, usage, .. }) if self.may_be_empty => {
                Ok(Answer { usage, ..Answer::new(Vec::new(), stop_reason) })
            }
            Some(ending) => self.assembly.finish(ending).map(|answer| Answer { response, diagnosis, ..answer }),
            None => Err(fault(ErrorCode::UpstreamTruncated, "the stream ended without its terminal event")),
        };
        answer.map_err(|fault| Failed { fault: ModelFault { shown, ..fault.at(self.origin) }, begun })
    }
}

/// Reads events until the decoder or the stream is done.
async fn read(events: &mut Events, decoder: &mut impl Decoder, assembly: &mut Assembly<'_>) -> Result<(), Stopped> {
    loop {
        let stage = match (decoder.ending(), assembly.is_empty()) {
            (Some(_), _) => Stage::Whole,
            (None, true) => Stage::Before,
            (None, false) => Stage::Within,
        };
        if !events.next(stage).await.map_err(Stopped::Stream)? {
            return Ok(());
        }
        let (data, has_marks) = events.data();
        assembly.expect_marks(has_marks);
        if decoder.event(&data, assembly).map_err(Stopped::Said)? == Progress::Done {
            return Ok(());
        }
    }
}
