//! A WebSocket connection of either version: one task that reads commands, writes replies and events, and pings.
//!
//! Invariants:
//! - A reply precedes the events that its command causes.
//! - The connection holds a cursor into the feed of each subscribed session, not a queue of frames.
//! - The frames of one session are in order. Those of several sessions are interleaved.
//! - A bad frame is answered, and the connection continues. Where RFC 6455 requires closing, the connection closes with
//!   the required code, which tungstenite does not send by itself.

use super::{
    closing::{End, Flow},
    commands,
    connection::{Connection, Timer, ended, listed},
    relay::links::arrived,
    single,
};
use crate::trace::within;
use axum::extract::ws::Message;
use reseed_dialects::Speaks;
use reseed_protocol::{CloseCode, ErrorBody, ErrorCode, frame::peek_type};
use tokio::time::Instant;

impl Connection {
    /// Serves the connection until it ends. `self` is boxed, because a future stores its arguments twice.
    pub(super) async fn run(mut self: Box<Self>) {
        let end = loop {
            if let Err(end) = self.round().await {
                break end;
            }
        };
        self.let_go();
        if let End::Close(code, reason) = end {
            self.wire.close(code, reason, self.stopped.as_mut()).await;
        }
    }

    /// Waits for one event and handles it.
    async fn round(&mut self) -> Flow {
        self.credentials.still_granted()?;
        let may_read = self.may_read();
        tokio::select! {
            biased;
            () = self.stopped.as_mut() => {
                if !self.app.stopping.stop.is_cancelled() {
                    self.leave_soon();
                    return Ok(());
                }
                self.pump().await?;
                Err(End::Close(CloseCode::Restarting, "the server is restarting; reconnect and resume"))
            }
            Some(outgoing) = self.subscriptions.incoming.recv() => {
                self.outgoing(outgoing).await?;
                self.flush().await
            }
            ended = ended(&self.credentials.grant) => {
                let (code, why) = ended.close();
                Err(End::Close(code, why))
            }
            () = self.subscriptions.shared.bell.notified() => self.pump().await,
            () = listed(&self.subscriptions.watching) => Box::pin(self.tell_list()).await,
            // Boxed, because commands are rare and what they await would make every idle connection larger.
            received = self.wire.receive(), if may_read => Box::pin(self.received(received?)).await,
            // Polled after the client's commands, so that a holder that always has more frames cannot keep the client
            // from cancelling.
            told = arrived(&mut self.links) => match told {
                Some(told) => Box::pin(self.hear(told)).await,
                None => Ok(()),
            },
            timer = self.timers.ring() => match timer {
                Timer::Look => self.pump().await,
                Timer::Hello => Err(End::Close(CloseCode::NoHello, "hello did not arrive in time")),
                Timer::Leave => self.leave().await,
                Timer::Expiry => self.expiry().await,
                Timer::Beat => {
                    self.timers.set(Timer::Beat, Some(Instant::now() + self.app.patience.heartbeat));
                    // A v1 client does not reconnect, and would lose its session.
                    self.wire.beat(self.dialect.speaks != Speaks::V1).await
                }
            },
        }
    }

    async fn received(&mut self, message: Message) -> Flow {
        match message {
            // Another server executes the client's command.
            Message::Text(_) if self.may_leave() => {
                self.pump().await?;
                Err(self.left())
            }
            Message::Text(text) => {
                // A frame that is neither `hello` nor a v1 command does not decide the version. It is answered as in
                // v1.
                if self.dialect.speaks == Speaks::Undecided && peek_type(&text).as_deref() == Some("hello") {
                    self.speaks(Speaks::V2 { greeted: false });
                }
                if self.renewed(&text) {
                    return Ok(());
                }
                self.tell_gone_early(&text).await?;
                if let Err(used_up) = self.take_points(&text) {
                    return self.rate_limited(&text, used_up).await;
                }
                match self.dialect.speaks {
                    Speaks::V2 { greeted } => commands::received(self, &text, greeted).await?,
                    _ => {
                        let context = self.context.as_deref().cloned();
                        within(context, single::received(self, text.as_str())).await?;
                    }
                }
                self.flush().await
            }
            Message::Binary(_) => {
                let message = "send text frames; this one is binary";
                self.refuse(None, ErrorBody::new(ErrorCode::BinaryFrame, message)).await?;
                self.flush().await
            }
            // tungstenite answers pings by itself.
            Message::Ping(_) | Message::Pong(_) => Ok(()),
            Message::Close(_) => {
                // tungstenite has queued the answering close frame, but writes it only on a flush.
                let _ = self.flush().await;
                Err(End::Gone)
            }
        }
    }
}
