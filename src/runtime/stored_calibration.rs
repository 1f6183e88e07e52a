//! What a session's counter has learned of its model, as it is stored beside the session's state.
//!
//! It is no fold of the log: reports of other branches and other sessions are in it. Stored with the state, it makes a
//! count the same before and after a restart also where no report of the provider holds.

use crate::core::context::counter::{Calibration, Counter};
use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use serde::{Deserialize, Serialize};

/// A calibration in the head of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredCalibration {
    /// The model whose reports it learned from.
    model: String,
    /// The method of the estimates that it corrects.
    method: String,
    /// What it learned: about 900 characters.
    learnt: String,
}

impl StoredCalibration {
    /// Returns what to store; `None` if nothing was learned yet.
    pub(super) fn of(model: &str, calibration: &Calibration) -> Option<Self> {
        let learnt = BASE64_STANDARD_NO_PAD.encode(calibration.to_bytes()?);
        Some(Self { model: model.to_owned(), method: calibration.method().name().to_owned(), learnt })
    }

    /// Returns the calibration; `None` if it is of another model or method, or damaged.
    pub(super) fn read(&self, model: &str, counter: &Counter) -> Option<Calibration> {
        let method = counter.method();
        let is_its = self.model == model && self.method == method.name();
        let bytes = is_its.then(|| BASE64_STANDARD_NO_PAD.decode(&self.learnt).ok()).flatten()?;
        Calibration::from_bytes(method, &bytes)
    }

    /// Returns about how many bytes of the stored state it is.
    pub(super) fn bytes(&self) -> usize {
        self.model.len() + self.method.len() + self.learnt.len()
    }
}
