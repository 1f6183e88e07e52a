//! Learns how a model's reported usage differs from our estimate, for each script and for the framing of messages.
//!
//! Each report is one equation: the provider's count of one mix of estimated tokens. A Kalman filter tracks the factors
//! with their uncertainties and correlations. So a conversation in two scripts teaches both, a factor that was never
//! observed stays uncertain, and the bound of an estimate fits its mix.
//!
//! Invariants: every factor is finite and within its limits; one report, however wrong, moves an estimate by a bounded
//! share, and only slightly once several have agreed; reports of another method change nothing; what is learned fits
//! into 32-bit floats, so that a calibration that was stored and read back is identical to the bit.

mod stored;

use super::{
    estimate::Method,
    mix::{FRAME, IMAGES, Mix, ROWS, SCRIPTS, SEALED, TOOLS},
};
use std::sync::{Arc, LazyLock};

/// What a report counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportScope {
    /// A whole request, including whatever the provider adds unseen.
    Whole,
    /// The part that was added to a request since an earlier report; additions by the provider cancel out.
    Added,
    /// An answer as the model wrote it. Some servers include hidden reasoning, so an implausible size teaches nothing.
    Answer,
}

/// An estimate, and the provider's count of the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The method of the estimate. A calibration learns only from its own method.
    pub method: Method,
    /// What was counted.
    pub of: ReportScope,
    /// The estimate, uncorrected.
    pub mix: Mix,
    /// The provider's count. Providers report zero for unknown: it teaches nothing.
    pub tokens: u64,
}

/// The uncertainty before the first report, and the variation of texts around their factors.
struct Prior {
    /// Deviation of all scripts together, as a share (one standard deviation, like all that follow).
    together: f64,
    /// Deviation of each script by itself: the difference between vocabularies of different makers.
    scripts: [f64; SCRIPTS],
    /// Deviation of one stretch of text from its script's factor: some subjects use longer words than others. Does not
    /// shrink with the length.
    stretch: f64,
    /// Random variance per estimated token, in tokens: its share shrinks with the length.
    chance: f64,
}

/// Character weights are made for one vocabulary. These figures are the differences of other vocabularies, and the
/// scatter of windows of the samples.
const CHARACTERS: Prior = Prior {
    together: 0.08,
    scripts: [0.10, 0.30, 0.15, 0.25, 0.35, 0.35, 0.40, 0.35, 0.50, 0.60, 0.50, 0.40],
    stretch: 0.10,
    chance: 0.40,
};

/// A tokenizer is exact for the text it is given, but a server may run another model under a known name.
const TOKENIZER: Prior = Prior { together: 0.012, scripts: [0.008; SCRIPTS], stretch: 0.002, chance: 0.005 };

/// Framing, tools, images and opaque reasoning: guesses with either method. Row, deviation, minimum, maximum.
const GUESSES: [(usize, f64, f64, f64); 4] =
    [(FRAME, 0.60, 0.0, 8.0), (TOOLS, 0.40, 0.05, 8.0), (IMAGES, 0.60, 0.02, 40.0), (SEALED, 0.50, 0.05, 8.0)];

/// No tokenizer in use is four times coarser or finer than ours: anything beyond is a provider's mistake.
const FACTOR_MIN: f64 = 0.25;
/// The upper limit; see [`FACTOR_MIN`].
const FACTOR_MAX: f64 = 4.0;
/// Tokens by which any report may be off: boundary tokens, rounding.
const SEAM_TOKENS: f64 = 1.0;
/// Tokens that a provider may add unseen to a whole request, and the share by which it may render it differently.
const UNSEEN: (f64, f64) = (40.0, 0.03);
/// Minimum tokens of a whole request to learn from: in smaller ones the unseen part dominates.
const WHOLE_TOKENS_MIN: u64 = 200;
/// Maximum deviations from the expectation at which a report is believed in full.
const BELIEVED: f64 = 3.0;
/// Share of the initial uncertainty that returns with each report, because conversations change their subject.
const FORGOTTEN: f64 = 0.002;
/// The same after a report beyond the believed deviation: the faster a change is relearned.
const FORGOTTEN_SURPRISED: f64 = 0.15;
/// Weight of the first guess of the scatter, in reports, and the number of reports after which a miss has faded.
const SCATTER_REPORTS: (f64, f64) = (4.0, 24.0);
/// Limits of the scatter relative to the first guess, as a ratio of variances.
const SCATTER: (f64, f64) = (0.2, 16.0);
/// Deviations covered by an error bound.
const BOUND: f64 = 2.0;
/// Minimum error bound, as a share and in tokens.
const BOUND_MIN: (f64, u64) = (0.01, 8);
/// Share of the recent mix that remains after a new report.
const RECENT_KEPT: f64 = 0.8;

type Row = [f64; ROWS];

/// Corrects the estimates for one model from reported usage.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    method: Method,
    /// More than 2 KB. It is shared with the calibration from which this was copied until one of them learns, since
    /// every open session has one and most have learned nothing themselves.
    learnt: Arc<Learnt>,
}

/// Holds what reports have taught.
#[derive(Debug, Clone, PartialEq)]
struct Learnt {
    /// Reported tokens per estimated token, by row.
    factors: Row,
    /// Uncertainty and correlation of the factors.
    covariance: [Row; ROWS],
    /// Variance of the misses relative to the expectation.
    scatter: f64,
    /// The recently estimated mix, by row; older reports fade.
    recent: Row,
    reports: u64,
}

impl Calibration {
    /// Starts with factors of 1, as uncertain as the method is for models for which it was not made.
    #[must_use]
    pub fn new(method: Method) -> Self {
        Self { method, learnt: Arc::clone(assumed(method).1) }
    }

    /// Returns the method whose estimates it corrects.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// Returns the number of reports learned from.
    #[must_use]
    pub fn reports(&self) -> u64 {
        self.learnt.reports
    }

    /// Learns from a report.
    pub fn observe(&mut self, report: &Report) {
        let estimated = report.mix.total();
        let too_small = report.of == ReportScope::Whole && report.tokens < WHOLE_TOKENS_MIN;
        if report.method != self.method || estimated == 0 || report.tokens == 0 || too_small {
            return;
        }
        // The values are normalised to the estimate, so that they are near 1 whatever the size.
        let size = estimated as f64;
        let shares = report.mix.0.map(|tokens| tokens as f64 / size);
        let spread = times(&self.learnt.covariance, &shares);
        let variance = dot(&spread, &shares) + self.noise(&shares, size, report.of);
        let deviation = (variance * self.learnt.scatter.max(1.0)).sqrt();
        let missed = report.tokens as f64 / size - dot(&self.learnt.factors, &shares);
        if report.of == ReportScope::Answer && missed.abs() > BELIEVED * deviation {
            return;
        }
        let miss = (missed / deviation).clamp(-BELIEVED, BELIEVED);
        let learnt = Arc::make_mut(&mut self.learnt);
        for (row, (factor, spread)) in learnt.factors.iter_mut().zip(&spread).enumerate() {
            let (least, most) = limits(row);
            *factor = (*factor + spread / variance * miss * deviation).clamp(least, most);
        }
        // The miss in expected deviations. It is 1 on average if the scatter is as guessed.
        let surprise = (missed * missed / variance).min(BELIEVED * BELIEVED * learnt.scatter.max(1.0));
        let forgotten = if miss.abs() < BELIEVED { FORGOTTEN } else { FORGOTTEN_SURPRISED };
        let first = first_covariance(prior(self.method));
        for (row, (known, first)) in learnt.covariance.iter_mut().zip(&first).enumerate() {
            for (column, (known, first)) in known.iter_mut().zip(first).enumerate() {
                let updated = *known - spread[row] * spread[column] / variance;
                *known = updated + forgotten * (first - updated);
            }
        }
        let weight = 1.0 / (SCATTER_REPORTS.0 + learnt.reports as f64).min(SCATTER_REPORTS.1);
        learnt.scatter = (learnt.scatter + weight * (surprise - learnt.scatter)).clamp(SCATTER.0, SCATTER.1);
        for (recent, tokens) in learnt.recent.iter_mut().zip(report.mix.0) {
            *recent = RECENT_KEPT * *recent + tokens as f64;
        }
        learnt.reports = learnt.reports.saturating_add(1);
        learnt.fit();
    }

    /// Returns true if the provider's count of an answer is plausible for this estimate.
    #[must_use]
    pub fn is_believable(&self, mix: &Mix, tokens: u64) -> bool {
        let estimated = mix.total();
        if estimated == 0 {
            return true;
        }
        let size = estimated as f64;
        let shares = mix.0.map(|tokens| tokens as f64 / size);
        let variance =
            dot(&times(&self.learnt.covariance, &shares), &shares) + self.noise(&shares, size, ReportScope::Answer);
        let missed = tokens as f64 / size - dot(&self.learnt.factors, &shares);
        missed.abs() <= BELIEVED * (variance * self.learnt.scatter.max(1.0)).sqrt()
    }

    /// Returns the estimate corrected to what the provider would probably report.
    #[must_use]
    pub fn tokens(&self, mix: &Mix) -> u64 {
        // Float to integer casts saturate.
        dot(&self.learnt.factors, &mix.0.map(|tokens| tokens as f64)).round() as u64
    }

    /// Returns the tokens by which [`Self::tokens`] may be wrong, either way.
    #[must_use]
    pub fn error_bound(&self, mix: &Mix) -> u64 {
        let estimated = mix.total();
        if estimated == 0 {
            return 0;
        }
        let size = estimated as f64;
        let shares = mix.0.map(|tokens| tokens as f64 / size);
        let noise = self.noise(&shares, size, ReportScope::Added);
        let variance = self.learnt.scatter * (dot(&times(&self.learnt.covariance, &shares), &shares).max(0.0) + noise);
        let share = (BOUND * variance.sqrt()).max(BOUND_MIN.0 * dot(&self.learnt.factors, &shares));
        ((share * size).ceil() as u64).max(BOUND_MIN.1)
    }

    /// Returns the reported tokens per estimated token for text like that of recent reports; converts a budget in the
    /// model's tokens to one in estimated tokens.
    #[must_use]
    pub fn factor(&self) -> f64 {
        let mut recent = self.learnt.recent;
        // Budgets do not consist of images and tools, whose factors may be far from those of text.
        (recent[IMAGES], recent[TOOLS]) = (0.0, 0.0);
        let all: f64 = recent.iter().sum();
        if all > 0.0 { (dot(&self.learnt.factors, &recent) / all).clamp(FACTOR_MIN, FACTOR_MAX) } else { 1.0 }
    }

    /// Converts the model's tokens to estimated tokens, the unit of message counts; at least 1.
    #[must_use]
    pub fn in_estimates(&self, tokens: u64) -> u64 {
        scaled(tokens, 1.0 / self.factor()).max(1)
    }

    /// Converts estimated tokens to the model's tokens.
    #[must_use]
    pub fn in_tokens(&self, estimated: u64) -> u64 {
        scaled(estimated, self.factor())
    }

    /// Returns the variance of one report of this mix around correct factors, relative to the estimate.
    fn noise(&self, shares: &Row, size: f64, of: ReportScope) -> f64 {
        let Prior { stretch, chance, .. } = prior(self.method);
        let seam = (SEAM_TOKENS / size).powi(2);
        // Scripts vary independently.
        let strayed: f64 = shares.iter().map(|share| (stretch * share).powi(2)).sum();
        let unseen = match of {
            ReportScope::Whole => (UNSEEN.0 / size).powi(2) + UNSEEN.1.powi(2),
            ReportScope::Added | ReportScope::Answer => 0.0,
        };
        seam + strayed + chance / size + unseen
    }
}

fn scaled(tokens: u64, factor: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "tokens of a window, far below 2^53"
    )]
    let scaled = (tokens as f64 * factor) as u64;
    scaled
}

/// Returns the assumptions about a method before the first report: its prior, and the start of its calibrations.
fn assumed(method: Method) -> (&'static Prior, &'static LazyLock<Arc<Learnt>>) {
    static OF_CHARACTERS: LazyLock<Arc<Learnt>> = LazyLock::new(|| Arc::new(Learnt::nothing(&CHARACTERS)));
    static OF_TOKENIZER: LazyLock<Arc<Learnt>> = LazyLock::new(|| Arc::new(Learnt::nothing(&TOKENIZER)));
    match method {
        Method::Tokenizer(_) => (&TOKENIZER, &OF_TOKENIZER),
        Method::Characters | Method::Named(_) => (&CHARACTERS, &OF_CHARACTERS),
    }
}

fn prior(method: Method) -> &'static Prior {
    assumed(method).0
}

impl Learnt {
    /// Returns the assumptions before the first report.
    fn nothing(prior: &Prior) -> Self {
        Self {
            factors: [1.0; ROWS],
            covariance: first_covariance(prior),
            scatter: 1.0,
            recent: [0.0; ROWS],
            reports: 0,
        }
    }
}

fn first_covariance(prior: &Prior) -> [Row; ROWS] {
    let mut covariance = [[0.0; ROWS]; ROWS];
    for (row, own) in prior.scripts.iter().enumerate() {
        covariance[row][..SCRIPTS].fill(prior.together.powi(2));
        covariance[row][row] += own.powi(2);
    }
    for (row, deviation, ..) in GUESSES {
        covariance[row][row] = deviation.powi(2);
    }
    covariance
}

fn limits(row: usize) -> (f64, f64) {
    GUESSES
        .into_iter()
        .find(|guess| guess.0 == row)
        .map_or((FACTOR_MIN, FACTOR_MAX), |(_, _, least, most)| (least, most))
}

fn dot(a: &Row, b: &Row) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn times(matrix: &[Row; ROWS], row: &Row) -> Row {
    matrix.map(|line| dot(&line, row))
}

#[cfg(test)]
mod tests;
