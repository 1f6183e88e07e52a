//! Server-sent events. What writes them runs within the response's body, and so ends when the client is gone. A comment
//! keeps a quiet connection open.

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_core::Stream;
use serde::Serialize;
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{Interval, MissedTickBehavior, interval},
};

/// Events that wait for the client. Beyond this, what writes them waits.
const EVENTS_MAX: usize = 64;

/// The time after which a quiet stream gets a comment. Proxies often close a connection that is quiet for a minute.
const QUIET: Duration = Duration::from_secs(15);

/// Takes the events of a stream.
#[derive(Debug, Clone)]
pub struct Events(mpsc::Sender<Bytes>);

impl Events {
    /// Sends an event. If the client does not read, this waits.
    pub async fn send(&self, name: Option<&str>, data: &impl Serialize) {
        let mut text = BytesMut::with_capacity(256);
        if let Some(name) = name {
            text.extend_from_slice(b"event: ");
            text.extend_from_slice(name.as_bytes());
            text.put_u8(b'\n');
        }
        text.extend_from_slice(b"data: ");
        // JSON text has no line breaks of its own.
        serde_json::to_writer((&mut text).writer(), data).expect("events are plain data");
        text.extend_from_slice(b"\n\n");
        self.put(text.freeze()).await;
    }

    /// Sends `[DONE]`, after which OpenAI's clients stop reading.
    pub async fn done(&self) {
        self.put(Bytes::from_static(b"data: [DONE]\n\n")).await;
    }

    async fn put(&self, text: Bytes) {
        // The receiver belongs to the body, as does the caller: both end together.
        let _ = self.0.send(text).await;
    }
}

/// Returns the response whose body is what this writes.
pub fn stream<F, W>(write: F) -> Response
where
    F: FnOnce(Events) -> W,
    W: Future<Output = ()> + Send + 'static,
{
    let (events, ready) = mpsc::channel(EVENTS_MAX);
    let mut quiet = interval(QUIET);
    quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
    quiet.reset();
    let written = Written { write: Some(Box::pin(write(Events(events)))), ready, quiet };
    let mut response = Response::new(Body::from_stream(written));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Some proxies otherwise wait until the answer is complete.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A stream with what writes it.
struct Written {
    write: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    ready: mpsc::Receiver<Bytes>,
    quiet: Interval,
}

impl Stream for Written {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(write) = &mut this.write
            && write.as_mut().poll(cx).is_ready()
        {
            this.write = None;
        }
        match this.ready.poll_recv(cx) {
            Poll::Ready(Some(first)) => {
                this.quiet.reset();
                // Events that are ready together go out together.
                let Ok(second) = this.ready.try_recv() else { return Poll::Ready(Some(Ok(first))) };
                let mut together = BytesMut::from(first);
                together.extend_from_slice(&second);
                while let Ok(next) = this.ready.try_recv() {
                    together.extend_from_slice(&next);
                }
                Poll::Ready(Some(Ok(together.freeze())))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => this.quiet.poll_tick(cx).map(|_| Some(Ok(Bytes::from_static(b": waiting\n\n")))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use serde_json::json;

    #[tokio::test]
    async fn events_are_written_in_order_and_the_stream_ends() {
        let response = stream(|events| async move {
            for number in 0..200 {
                events.send(Some("count"), &json!({ "number": number, "text": "two\nlines" })).await;
            }
            events.done().await;
        });
        let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        let events: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(events.len(), 201);
        assert_eq!(
            events[7],
            r#"event: count
data: {"number":7,"text":"two\nlines"}"#
        );
        assert_eq!(events[200], "data: [DONE]");
    }
}
