//! The calibration of a session's counter for its model, in the form in which it is stored beside the session's state.
//!
//! It is not a fold of the log, because it includes reports from other branches and other sessions. Storing it with the
//! state makes counts equal before and after a restart, even where no provider report applies.

use crate::core::context::counter::{Calibration, Counter};
use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use serde::{Deserialize, Serialize};

/// A calibration in the head of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredCalibration {
    /// The model whose reports it learned from.
    model: String,
    /// The estimation method that it corrects.
    method: String,
    /// The learned values, in about 900 characters.
    learnt: String,
}

impl StoredCalibration {
    /// Returns what to store; `None` if nothing has been learned yet.
    pub(super) fn of(model: &str, calibration: &Calibration) -> Option<Self> {
        let learnt = BASE64_STANDARD_NO_PAD.encode(calibration.to_bytes()?);
        Some(Self { model: model.to_owned(), method: calibration.method().name().to_owned(), learnt })
    }

    /// Returns the calibration; `None` if it belongs to another model or method, or is damaged.
    pub(super) fn read(&self, model: &str, counter: &Counter) -> Option<Calibration> {
        let method = counter.method();
        let is_its = self.model == model && self.method == method.name();
        let bytes = is_its.then(|| BASE64_STANDARD_NO_PAD.decode(&self.learnt).ok()).flatten()?;
        Calibration::from_bytes(method, &bytes)
    }

    /// Returns its approximate size within the stored state, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.model.len() + self.method.len() + self.learnt.len()
    }
}
