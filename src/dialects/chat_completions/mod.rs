//! Chat Completions: `POST /v1/chat/completions`. Its clients keep nothing and send everything each time.
//!
//! The client's list of messages is found again in a session's tree by a hash of it ([`said`], [`tree`]). Only what is
//! new is appended there, and the model gets the session's compacted view of the path.

mod answer;
mod chunks;
mod keeping;
mod memory;
mod open;
mod request;
mod respond;
mod said;
mod tree;

use crate::{
    entrance::{Entrance, Name},
    exchange::Place,
    http::{Failure, body},
};
use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use keeping::Keeping;
use memory::Memory;
use open::Wish;
use std::sync::Arc;

/// The dialect's name.
const DIALECT: &str = "chat_completions";

/// Maximum bytes of a request's body, after decoding. A list may be much longer than what a session takes at once,
/// because most of it is known. It is held in memory while the request is read.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The door, which all requests share.
struct Door {
    entrance: Arc<dyn Entrance>,
    memory: Memory,
    keeping: Arc<Keeping>,
}

/// Returns the dialect's routes.
pub(crate) fn routes(entrance: Arc<dyn Entrance>) -> Router {
    let door = Arc::new(Door { entrance, memory: Memory::default(), keeping: Arc::default() });
    Router::new().route("/v1/chat/completions", post(create)).with_state(door)
}

async fn create(State(door): State<Arc<Door>>, request: Request) -> Response {
    match door.answer(request).await {
        Ok(response) => response,
        Err(failure) => failure.into_response(),
    }
}

impl Door {
    async fn answer(&self, request: Request) -> Result<Response, Failure> {
        let (parts, body) = request.into_parts();
        let connect = self.entrance.clone().enter(&parts, Name::ChatCompletions).await?;
        let body = body::read(body, &parts.headers, BODY_BYTES_MAX).await?;
        let request = request::read(&body)?;
        drop(body);
        let sessions_max = self.entrance.stateless_sessions();
        let wish = Wish::new(&parts.headers, request, sessions_max > 0);
        let asked = match self.ask(connect, wish.place(), &wish).await {
            // Two requests at once cannot both go on in one session.
            Err(failure) if open::is_busy(&failure) => {
                let connect = self.entrance.clone().enter(&parts, Name::ChatCompletions).await?;
                self.ask(connect, Place::New, &wish).await?
            }
            asked => asked?,
        };
        if asked.adds_session {
            let connect = self.entrance.clone().enter(&parts, Name::ChatCompletions).await?;
            let keeping = self.keeping.clone();
            // What this does not delete is deleted next time.
            tokio::spawn(async move { keeping.clear(connect, sessions_max).await });
        }
        if wish.request.stream { respond::stream(asked, wish).await } else { respond::whole(asked, wish).await }
    }
}
