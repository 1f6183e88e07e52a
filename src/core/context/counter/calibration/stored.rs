//! A calibration as bytes, to be stored with a session: 32-bit floats, little-endian. The covariance is symmetric, so
//! half of it is stored.

use super::{Calibration, Learnt, Method, ROWS, SCATTER, limits};
use std::sync::Arc;

/// Number of floats: the reports, the scatter, the factors, the recent mix, and the lower half of the covariance.
const FLOATS: usize = 2 + 2 * ROWS + ROWS * (ROWS + 1) / 2;

impl Calibration {
    /// Returns what was learned as bytes; `None` before the first report.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let learnt = &*self.learnt;
        if learnt.reports == 0 {
            return None;
        }
        let mut bytes = Vec::with_capacity(4 * FLOATS);
        let head = [learnt.reports as f64, learnt.scatter].into_iter();
        let half = learnt.covariance.iter().enumerate().flat_map(|(row, line)| line[..=row].iter().copied());
        for value in head.chain(learnt.factors).chain(learnt.recent).chain(half) {
            bytes.extend_from_slice(&single(value).to_le_bytes());
        }
        Some(bytes)
    }

    /// Reads what [`Self::to_bytes`] returned for a calibration of this method; `None` for anything else.
    #[must_use]
    pub fn from_bytes(method: Method, bytes: &[u8]) -> Option<Self> {
        let (floats, []) = bytes.as_chunks::<4>() else { return None };
        let floats: Vec<f64> = floats.iter().map(|float| f64::from(f32::from_le_bytes(*float))).collect();
        if floats.len() != FLOATS || !floats.iter().all(|value| value.is_finite()) {
            return None;
        }
        let mut floats = floats.into_iter();
        let mut next = || floats.next().unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
        let reports = next() as u64;
        let scatter = next();
        let factors = std::array::from_fn(|_| next());
        let recent = std::array::from_fn(|_| next());
        let mut covariance = [[0.0; ROWS]; ROWS];
        for (row, line) in covariance.iter_mut().enumerate() {
            line[..=row].fill_with(&mut next);
        }
        // `fit` fills the other half.
        let mut learnt = Learnt { factors, covariance, scatter, recent, reports };
        learnt.fit();
        Some(Self { method, learnt: Arc::new(learnt) })
    }
}

impl Learnt {
    /// Rounds the learned values to their stored precision, within the limits.
    pub(super) fn fit(&mut self) {
        let fitted = |value: f64| f64::from(single(value));
        for (row, factor) in self.factors.iter_mut().enumerate() {
            let (least, most) = limits(row);
            *factor = fitted(*factor).clamp(least, most);
        }
        self.scatter = fitted(self.scatter).clamp(SCATTER.0, SCATTER.1);
        self.recent = self.recent.map(fitted);
        for row in 0..ROWS {
            for column in 0..=row {
                self.covariance[row][column] = fitted(self.covariance[row][column]);
                self.covariance[column][row] = self.covariance[row][column];
            }
        }
        // Above 2^24, adding one report does not change a 32-bit float.
        self.reports = self.reports.min(REPORTS_MAX);
    }
}

/// The maximum number of reports that is counted: all whole numbers up to it fit into a 32-bit float.
const REPORTS_MAX: u64 = 1 << 24;

#[expect(clippy::cast_possible_truncation, reason = "what is learned is rounded to this")]
fn single(value: f64) -> f32 {
    (value as f32).clamp(f32::MIN, f32::MAX)
}
