//! Repeated requests of operators: those with the same `Idempotency-Key` get the same answer.

use axum::http::StatusCode;
use reseed_protocol::{CommandId, ErrorBody, ErrorCode};
use serde_json::Value;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

/// Answers that are kept for repeated requests.
const ANSWERS_MAX: usize = 1_000;

/// The answer to a request with a key, once there is one. It is locked while the request is carried out.
pub(super) type Answer = Arc<tokio::sync::Mutex<Option<(StatusCode, Value)>>>;

/// The answers to the last requests with an `Idempotency-Key`, each with a hash of its request.
#[derive(Debug, Default)]
pub(crate) struct Repeats(Mutex<VecDeque<(CommandId, CommandId, Answer)>>);

impl Repeats {
    /// Returns the place for the answer to this request.
    ///
    /// # Errors
    /// `idempotency_conflict`: the key was used for another request.
    pub(super) fn place(&self, key: &CommandId, content: CommandId) -> Result<Answer, ErrorBody> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, before, answer)) = all.iter().find(|(known, ..)| known == key) {
            let error = || ErrorBody::new(ErrorCode::IdempotencyConflict, "the key was used for another request");
            return if *before == content { Ok(answer.clone()) } else { Err(error()) };
        }
        if all.len() >= ANSWERS_MAX {
            all.pop_front();
        }
        let answer = Answer::default();
        all.push_back((key.clone(), content, answer.clone()));
        Ok(answer)
    }
}
