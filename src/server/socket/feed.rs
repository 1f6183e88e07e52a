//! Writes to a connection what its session's feed and the session list have for it.

use super::{Connection, Speaks};
use crate::{
    runtime::{Frame, feed::TEXT_MAY_WAIT},
    server::{
        closing::{End, Flow},
        v2,
    },
    store::{Error, Part},
};
use reseed_protocol::{CloseCode, event::EphemeralEvent};

/// Bytes of events taken from the feed or the store at once, or one event if that is larger: what a stalled reader
/// holds besides its write buffer. In between, commands are handled.
const BATCH_BYTES: usize = 16 * 1024;

/// Events read from the store at once by a reader that is behind.
const BEHIND_PAGE: u32 = 64;

/// Id of the frames that report changes of the session list: none is ever answered.
const LIST_ID: &str = "s_l";

impl Connection {
    /// Writes what the session's feed has for this connection.
    pub(super) async fn pump(&mut self) -> Flow {
        loop {
            let Some(joined) = &mut self.joined else { return Ok(()) };
            let frames = joined.feed.next(&mut joined.cursor, joined.deltas, BATCH_BYTES);
            // A reply enters the channel before its events are published: send what is there first.
            while let Ok(outgoing) = self.incoming.try_recv() {
                self.outgoing(outgoing).await?;
            }
            if frames.is_empty() {
                return self.flush().await;
            }
            for frame in frames {
                match frame {
                    Frame::Durable(seq, body) => self.durable(seq, &body).await?,
                    Frame::Ephemeral(frame) => {
                        // v1 has none of them.
                        if let Speaks::V2 { .. } = self.speaks {
                            self.send(frame.to_string()).await?;
                        }
                    }
                    Frame::Delta(frame) => {
                        self.send(frame).await?;
                        self.alarm.look_in(TEXT_MAY_WAIT);
                    }
                    Frame::Behind { after, up_to } => Box::pin(self.catch_up(after, up_to)).await?,
                    Frame::Closed(CloseCode::NoSuchSession) => {
                        return Err(End::Close(CloseCode::NoSuchSession, "the session was deleted"));
                    }
                    Frame::Closed(code) => return Err(End::Close(code, "the session was closed; open it again")),
                }
            }
        }
    }

    /// Reports changes of the session list.
    pub(super) async fn tell_list(&mut self) -> Flow {
        let Some(watcher) = &mut self.watching else { return Ok(()) };
        let Ok(items) = watcher.take() else {
            return Err(End::Close(
                CloseCode::SlowReader,
                "too many sessions changed without being read; list them again",
            ));
        };
        for item in items {
            let event = EphemeralEvent::SessionChanged(item);
            self.send(reseed_protocol::frame::encode(LIST_ID, &event)).await?;
        }
        self.flush().await
    }

    /// Reads from the store what the feed no longer holds. The store may already hold more than was published, whose
    /// replies are still to come.
    async fn catch_up(&mut self, after: u64, up_to: u64) -> Flow {
        let Some(joined) = &self.joined else { return Ok(()) };
        let id = joined.handle.id.clone();
        let limit = BEHIND_PAGE.min(u32::try_from(up_to.saturating_sub(after)).unwrap_or(BEHIND_PAGE));
        let read = self.app.registry.store().read_page(&id, after, limit, BATCH_BYTES).await;
        // The feed has more, and logs have no gaps.
        let read = read.and_then(|page| match page.first() {
            Some(first) if first.seq == after + 1 => Ok(page),
            _ => Err(Error::Damaged { session: id.clone(), part: Part::Record(after + 1), reason: "it is missing" }),
        });
        let page = match read {
            Ok(page) => page,
            Err(error) => return self.unreadable(&error).await,
        };
        for record in page {
            if let Some(joined) = &mut self.joined {
                if record.seq != joined.cursor.seq + 1 || record.seq > up_to {
                    break;
                }
                joined.cursor.seq = record.seq;
            }
            self.durable(record.seq, &record.body).await?;
        }
        Ok(())
    }

    /// Reports that the store cannot return what the client has missed; it reconnects for what is available.
    async fn unreadable(&mut self, error: &Error) -> Flow {
        let body = self.app.registry.fault(error);
        if let Speaks::V2 { .. } = self.speaks {
            self.send(v2::error_frame(None, body)).await?;
        }
        Err(End::Close(CloseCode::Internal, "the store cannot be read; reconnect and resume"))
    }

    async fn durable(&mut self, seq: u64, body: &str) -> Flow {
        if let Speaks::V2 { .. } = self.speaks {
            return self.send(reseed_protocol::frame::encode_stored(seq, body)).await;
        }
        for frame in self.v1.durable(body) {
            self.send(frame).await?;
        }
        Ok(())
    }
}
