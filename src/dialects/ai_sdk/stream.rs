//! Streams one assistant's message: what the session has of it, and what comes.

use super::{
    Outcome,
    chat::Chat,
    chunks::{Chunk, Counted, FinishReason, Gauge, Metadata},
    frames::{OnAbort, ServerFrame},
    writer::Writer,
};
use crate::exchange::{Ended, Step};
use reseed_protocol::{Entry, EntryId, content::StopReason, turn::TurnStatus};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Where the frames of one request go.
pub(super) struct Out {
    pub(super) request: String,
    pub(super) sequence: u64,
    pub(super) frames: mpsc::Sender<String>,
}

/// Tells that the client no longer reads the answer. Dropped if the connection ends.
pub(super) type Aborted = oneshot::Receiver<()>;

impl Out {
    /// Sends a frame. Waits while the client does not read.
    pub(super) async fn frame(&self, frame: ServerFrame<'_>) -> Result<(), Outcome> {
        self.frames.send(frame.encode()).await.map_err(|_| Outcome::Left)
    }

    async fn chunk(&mut self, chunk: &Chunk) -> Result<(), Outcome> {
        let (request_id, sequence) = (self.request.as_str(), self.sequence);
        self.frame(ServerFrame::Chunk { request_id, sequence, chunk }).await?;
        self.sequence += 1;
        Ok(())
    }
}

/// The stream of a message.
pub(super) struct Stream<'a> {
    chat: &'a mut Chat,
    out: &'a mut Out,
    pub(super) writer: Writer,
    /// The size of the context that the page knows.
    gauge: Option<Gauge>,
    /// True once the message is complete, or waits for the page.
    is_over: bool,
}

impl<'a> Stream<'a> {
    /// Begins the message with this id, or goes on with it. Its turn is followed already, or is over.
    pub(super) fn new(chat: &'a mut Chat, out: &'a mut Out, mut writer: Writer, message_id: String) -> Self {
        writer.add(Chunk::Start { message_id });
        let mut stream = Self { chat, out, writer, gauge: None, is_over: false };
        stream.measure();
        stream
    }

    /// Shows the compactions since the last message before the input that is answered.
    pub(super) fn answering(mut self, input: &EntryId) -> Self {
        let before = self.chat.snapshot().path.iter().rev().skip_while(|entry| entry.entry_id != *input).skip(1);
        let between: Vec<Arc<Entry>> = before.take_while(|entry| entry.message().is_none()).cloned().collect();
        between.iter().rev().for_each(|entry| self.writer.entry(entry));
        self
    }

    /// Streams until the message is complete, or waits for the page.
    ///
    /// # Errors
    /// Why it ends early.
    pub(super) async fn run(mut self, mut aborted: Aborted, on_abort: OnAbort) -> Result<(), Outcome> {
        loop {
            while let Some(step) = self.chat.exchange.ready() {
                self.step(step)?;
            }
            self.wait_for_page();
            for chunk in self.writer.take() {
                self.out.chunk(&chunk).await?;
            }
            if self.is_over {
                return self.out.frame(ServerFrame::End { request_id: &self.out.request }).await;
            }
            tokio::select! {
                biased;
                left = &mut aborted => {
                    if left.is_ok() && on_abort == OnAbort::Cancel {
                        self.chat.cancel().await?;
                    }
                    return Err(Outcome::Left);
                }
                step = self.chat.exchange.next() => self.step(step)?,
            }
        }
    }

    fn step(&mut self, step: Step) -> Result<(), Outcome> {
        self.measure();
        match step {
            Step::Finished(ended) => self.end(*ended),
            Step::Failed(error) => return Err(Outcome::Failed(error)),
            step => self.writer.step(step),
        }
        Ok(())
    }

    /// Tells the page the size of the context, if it has changed.
    fn measure(&mut self) {
        let gauge = Gauge::of(&self.chat.snapshot().context_info);
        if self.gauge.as_ref() != Some(&gauge) {
            self.writer.add(gauge.clone().chunk());
            self.gauge = Some(gauge);
        }
    }

    /// Ends the stream if only the page can go on.
    fn wait_for_page(&mut self) {
        let snapshot = self.chat.snapshot();
        if self.is_over || !snapshot.pending.is_empty() || !self.writer.waits_for_page(&snapshot.approvals) {
            return;
        }
        snapshot.approvals.iter().for_each(|approval| self.writer.approval(approval));
        let finish_reason = Some(StopReason::ToolCalls);
        self.end(Ended { status: TurnStatus::Completed, finish_reason, error: None, usage: None });
    }

    fn end(&mut self, ended: Ended) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        self.writer.end_step();
        let snapshot = self.chat.snapshot();
        let message_metadata = Metadata {
            session_id: snapshot.session_id.to_string(),
            model: snapshot.model.clone(),
            usage: ended.usage.as_ref().map(Counted::from),
        };
        let finish_reason = match ended.status {
            TurnStatus::Failed => {
                let error_text = ended.error.map_or_else(|| "the turn failed".to_owned(), |error| error.message);
                return self.writer.add(Chunk::Error { error_text });
            }
            TurnStatus::Cancelled => {
                return self.writer.add(Chunk::Abort { reason: "the turn was cancelled".to_owned() });
            }
            TurnStatus::Interrupted => FinishReason::Interrupted,
            _ => ended.finish_reason.into(),
        };
        self.writer.add(Chunk::Finish { finish_reason, message_metadata });
    }
}
