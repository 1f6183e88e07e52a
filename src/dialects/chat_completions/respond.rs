//! Writes the answer: as a stream of chunks, or as one object.

use super::{
    answer::{Answer, End, Piece},
    chunks::Head,
    open::{Asked, Live, Wish},
};
use crate::http::{Failure, sse};
use axum::{
    Json,
    http::{HeaderValue, header::HeaderName},
    response::{IntoResponse as _, Response},
};
use reseed_client::fold::Snapshot;
use reseed_protocol::ErrorBody;
use serde_json::json;
use std::time::{Duration, SystemTime};

/// How long a stream's head waits for the first piece. Until then, an error has a status that SDKs understand.
const HEAD_WAIT: Duration = Duration::from_secs(10);

const SESSION: HeaderName = HeaderName::from_static("x-reseed-session");
const CONTEXT: HeaderName = HeaderName::from_static("x-reseed-context");

/// An answer that is being made.
struct Making {
    live: Live,
    answer: Answer,
    pieces: Vec<Piece>,
    end: Option<End>,
}

impl Making {
    /// Goes on until there is a new piece, or the end.
    async fn advance(&mut self) -> Result<(), ErrorBody> {
        while self.pieces.is_empty() && self.end.is_none() {
            let step = self.live.exchange().next().await;
            self.end = self.answer.step(step, &mut self.pieces)?;
        }
        Ok(())
    }
}

/// Answers with one object.
pub(super) async fn whole(asked: Asked, wish: Wish) -> Result<Response, Failure> {
    let (head, headers, mut making) = begin(asked, &wish);
    let mut pieces = Vec::new();
    let end = loop {
        making.advance().await?;
        pieces.append(&mut making.pieces);
        if let Some(end) = making.end.take() {
            break end;
        }
    };
    making.live.end().await;
    let mut response = Json(head.whole(&pieces, &end)).into_response();
    response.headers_mut().extend(headers);
    Ok(response)
}

/// Answers with a stream.
pub(super) async fn stream(asked: Asked, wish: Wish) -> Result<Response, Failure> {
    let (head, headers, mut making) = begin(asked, &wish);
    if let Ok(first) = tokio::time::timeout(HEAD_WAIT, making.advance()).await {
        first?;
    }
    let mut response = sse::stream(move |events| async move {
        events.send(None, &head.first()).await;
        loop {
            for piece in making.pieces.drain(..) {
                events.send(None, &head.piece(&piece)).await;
            }
            if let Some(end) = making.end.take() {
                making.live.end().await;
                for chunk in head.last(&end) {
                    events.send(None, &chunk).await;
                }
                return events.done().await;
            }
            if let Err(error) = making.advance().await {
                return events.send(None, &json!({ "error": Failure::from(error).shown() })).await;
            }
        }
    });
    response.headers_mut().extend(headers);
    Ok(response)
}

/// Returns what all chunks have in common, the headers, and the answer that begins.
fn begin(asked: Asked, wish: &Wish) -> (Head, Vec<(HeaderName, HeaderValue)>, Making) {
    let Asked { input, mut live, .. } = asked;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let head = Head {
        id: format!("chatcmpl-{input}"),
        created: now.as_secs(),
        model: wish.request.model.clone(),
        include_usage: wish.request.include_usage,
    };
    let headers = headers(live.exchange().snapshot());
    let answer = Answer::new(wish.request.functions());
    (head, headers, Making { live, answer, pieces: Vec::new(), end: None })
}

/// Returns the headers about the session, as it is before the answer.
fn headers(snapshot: &Snapshot) -> Vec<(HeaderName, HeaderValue)> {
    let size = &snapshot.context_info;
    let context = format!("tokens={}, window={}, compactions={}", size.token_count, size.max_tokens, size.compactions);
    let texts = [(SESSION, snapshot.session_id.as_str().to_owned()), (CONTEXT, context)];
    texts.into_iter().filter_map(|(name, text)| Some((name, text.parse().ok()?))).collect()
}
