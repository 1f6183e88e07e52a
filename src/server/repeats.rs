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
    /// - `idempotency_conflict`: the key was used for another request.
    /// - `overloaded`: too many requests are being carried out.
    pub(super) fn place(&self, key: &CommandId, content: CommandId) -> Result<Answer, ErrorBody> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, before, answer)) = all.iter().find(|(known, ..)| known == key) {
            let error = || ErrorBody::new(ErrorCode::IdempotencyConflict, "the key was used for another request");
            return if *before == content { Ok(answer.clone()) } else { Err(error()) };
        }
        if all.len() >= ANSWERS_MAX {
            // Each request that is being carried out has a copy of its place.
            let finished = all.iter().position(|(.., answer)| Arc::strong_count(answer) == 1);
            let busy = || ErrorBody::new(ErrorCode::Overloaded, "too many requests of operators are being carried out");
            all.remove(finished.ok_or_else(busy)?);
        }
        let answer = Answer::default();
        all.push_back((key.clone(), content, answer.clone()));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_finished_request_makes_room() {
        let repeats = Repeats::default();
        let id = |text: &str| text.parse::<CommandId>().unwrap();
        let place = |key: usize| repeats.place(&id(&format!("key-{key}")), id("content"));
        let running = place(0).unwrap();
        for key in 1..=ANSWERS_MAX {
            drop(place(key).unwrap());
        }
        assert!(Arc::ptr_eq(&place(0).unwrap(), &running), "it would happen twice");
        assert_eq!(repeats.0.lock().unwrap().len(), ANSWERS_MAX);
        let copies: Vec<Answer> = repeats.0.lock().unwrap().iter().map(|(.., answer)| answer.clone()).collect();
        assert_eq!(place(ANSWERS_MAX + 1).unwrap_err().code, ErrorCode::Overloaded);
        drop(copies);
        place(ANSWERS_MAX + 1).unwrap();
    }
}
