//! Learns how far a model's reported usage is from our estimate, for each script and for what surrounds the text.
//!
//! Each report is one equation: this mix of estimated tokens was counted as so many. The factors are followed by a
//! Kalman filter. It knows how sure it is of every factor and of how they hang together, so a conversation in two
//! scripts teaches both, a factor never seen stays loose, and the bound of an estimate is that of its own mix.
//!
//! Held at all times: every factor is finite and within its limits; one report, however wrong, moves an estimate by
//! a bounded share, by little once some have agreed; reports of another method change nothing.

use super::{
    Method,
    mix::{FRAME, IMAGES, Mix, ROWS, SCRIPTS, SEALED, TOOLS},
};

/// What a report counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// A whole request: with whatever the provider adds unseen.
    Whole,
    /// What was added to a request since an earlier report: what the provider adds to both cancels out.
    Added,
    /// An answer, as the model wrote it. Some servers count thoughts in it that nobody sees, so one of a size that
    /// is not believable teaches nothing.
    Answer,
}

/// What was estimated, and what the provider counted for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How it was estimated. A calibration learns only of its own method.
    pub method: Method,
    /// What was counted.
    pub of: Of,
    /// The estimate, not corrected.
    pub mix: Mix,
    /// What the provider counted. Zero is how providers say that they do not know: it teaches nothing.
    pub tokens: u64,
}

/// How much is known before the first report, and how well texts keep to their factors.
struct Prior {
    /// How far all scripts may be off together, as a share (one standard deviation, like all that follow).
    together: f64,
    /// How far each script may be off by itself: what vocabularies of different makers differ by.
    scripts: [f64; SCRIPTS],
    /// How far one stretch of text may be off although its script's factor is right: one subject is written in longer
    /// words than another. Does not shrink with the length.
    stretch: f64,
    /// What each estimated token adds to the variance by chance, in tokens: shrinks with the length.
    chance: f64,
}

/// Character weights are made for one vocabulary; the figures are what others differ from it by, and what windows of
/// the samples scatter by.
const CHARACTERS: Prior = Prior {
    together: 0.08,
    scripts: [0.10, 0.30, 0.20, 0.35, 0.35, 0.35, 0.40, 0.35, 0.50, 0.60, 0.50, 0.40],
    stretch: 0.05,
    chance: 0.30,
};

/// A tokenizer is exact for the text that it is given, but a server may call another model by a known name.
const TOKENIZER: Prior = Prior { together: 0.012, scripts: [0.008; SCRIPTS], stretch: 0.002, chance: 0.005 };

/// What surrounds text, tools, pictures, sealed thoughts: guesses by either method. Row, deviation, least and most.
const GUESSES: [(usize, f64, f64, f64); 4] =
    [(FRAME, 0.60, 0.0, 8.0), (TOOLS, 0.40, 0.05, 8.0), (IMAGES, 0.60, 0.02, 40.0), (SEALED, 0.50, 0.05, 8.0)];

/// No tokenizer in use is four times coarser or finer than ours: what is beyond is a provider's mistake.
const FACTOR_MIN: f64 = 0.25;
/// See [`FACTOR_MIN`].
const FACTOR_MAX: f64 = 4.0;
/// Tokens by which any report may be off: marks at the seams, roundings.
const SEAM_TOKENS: f64 = 1.0;
/// Tokens that a provider may add unseen to a whole request, and the share by which it may render it otherwise.
const UNSEEN: (f64, f64) = (40.0, 0.03);
/// A whole request is taken to teach only from so many tokens on: in smaller ones what is unseen drowns the rest.
const WHOLE_TOKENS_MIN: u64 = 200;
/// Deviations by which a report may miss what was expected and still be believed in full.
const BELIEVED: f64 = 3.0;
/// Share of the first uncertainty that comes back with each report: conversations change their subject, names their
/// model.
const FORGOTTEN: f64 = 0.002;
/// The same after a report that missed by all that is believed: the sooner what changed is learnt anew.
const FORGOTTEN_SURPRISED: f64 = 0.15;
/// Reports that the first guess of the scatter is worth, and after how many an older miss has faded.
const SCATTER_REPORTS: (f64, f64) = (4.0, 24.0);
/// Least and most by which the scatter may be taken to differ from the first guess, as a ratio of variances.
const SCATTER: (f64, f64) = (0.2, 16.0);
/// Deviations that a bound claims.
const BOUND: f64 = 2.0;
/// No estimate is claimed to be better than this share, nor than so many tokens.
const BOUND_MIN: (f64, u64) = (0.01, 8);
/// Share of what was estimated lately that a new report leaves of the older.
const RECENT_KEPT: f64 = 0.8;

type Row = [f64; ROWS];

/// Corrects the estimates for one model from each reported usage.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    method: Method,
    /// Reported tokens for each estimated one, by row.
    factors: Row,
    /// How unsure the factors are, and how they hang together.
    covariance: [Row; ROWS],
    /// Variance of the misses, as a ratio to what was expected.
    scatter: f64,
    /// What was estimated lately, by row; older reports fade.
    recent: Row,
    reports: u64,
}

impl Calibration {
    /// Knows nothing yet: factors of 1, as unsure as the method is on models it was not made for.
    #[must_use]
    pub fn new(method: Method) -> Self {
        Self {
            method,
            factors: [1.0; ROWS],
            covariance: first_covariance(method),
            scatter: 1.0,
            recent: [0.0; ROWS],
            reports: 0,
        }
    }

    /// Reports learnt from so far.
    #[must_use]
    pub fn reports(&self) -> u64 {
        self.reports
    }

    /// Learns from a report.
    pub fn observe(&mut self, report: &Report) {
        let estimated = report.mix.total();
        let too_small = report.of == Of::Whole && report.tokens < WHOLE_TOKENS_MIN;
        if report.method != self.method || estimated == 0 || report.tokens == 0 || too_small {
            return;
        }
        // As shares of the estimate: numbers near 1, whatever the size.
        let size = estimated as f64;
        let shares = report.mix.0.map(|tokens| tokens as f64 / size);
        let spread = times(&self.covariance, &shares);
        let variance = dot(&spread, &shares) + self.noise(&shares, size, report.of);
        let deviation = (variance * self.scatter.max(1.0)).sqrt();
        let missed = report.tokens as f64 / size - dot(&self.factors, &shares);
        if report.of == Of::Answer && missed.abs() > BELIEVED * deviation {
            return;
        }
        let miss = (missed / deviation).clamp(-BELIEVED, BELIEVED);
        for row in 0..ROWS {
            let (least, most) = limits(row);
            self.factors[row] = (self.factors[row] + spread[row] / variance * miss * deviation).clamp(least, most);
        }
        // The same miss in expected deviations: 1 on average when the scatter is as guessed.
        let surprise = (missed * missed / variance).min(BELIEVED * BELIEVED * self.scatter.max(1.0));
        let forgotten = if miss.abs() < BELIEVED { FORGOTTEN } else { FORGOTTEN_SURPRISED };
        let first = first_covariance(self.method);
        for row in 0..ROWS {
            for column in 0..ROWS {
                let learnt = self.covariance[row][column] - spread[row] * spread[column] / variance;
                self.covariance[row][column] = learnt + forgotten * (first[row][column] - learnt);
            }
        }
        let weight = 1.0 / (SCATTER_REPORTS.0 + self.reports as f64).min(SCATTER_REPORTS.1);
        self.scatter = (self.scatter + weight * (surprise - self.scatter)).clamp(SCATTER.0, SCATTER.1);
        for (recent, tokens) in self.recent.iter_mut().zip(report.mix.0) {
            *recent = RECENT_KEPT * *recent + tokens as f64;
        }
        self.reports = self.reports.saturating_add(1);
    }

    /// Whether the provider's count of an answer is one that this estimate can have, or too far from it.
    #[must_use]
    pub fn is_believable(&self, mix: &Mix, tokens: u64) -> bool {
        let estimated = mix.total();
        if estimated == 0 {
            return true;
        }
        let size = estimated as f64;
        let shares = mix.0.map(|tokens| tokens as f64 / size);
        let variance = dot(&times(&self.covariance, &shares), &shares) + self.noise(&shares, size, Of::Answer);
        let missed = tokens as f64 / size - dot(&self.factors, &shares);
        missed.abs() <= BELIEVED * (variance * self.scatter.max(1.0)).sqrt()
    }

    /// The estimate as the provider would probably report it.
    #[must_use]
    pub fn tokens(&self, mix: &Mix) -> u64 {
        // Float to integer casts saturate.
        dot(&self.factors, &mix.0.map(|tokens| tokens as f64)).round() as u64
    }

    /// Tokens by which [`Self::tokens`] of this estimate may be wrong, either way.
    #[must_use]
    pub fn error_bound(&self, mix: &Mix) -> u64 {
        let estimated = mix.total();
        if estimated == 0 {
            return 0;
        }
        let size = estimated as f64;
        let shares = mix.0.map(|tokens| tokens as f64 / size);
        let noise = self.noise(&shares, size, Of::Added);
        let variance = self.scatter * (dot(&times(&self.covariance, &shares), &shares).max(0.0) + noise);
        let share = (BOUND * variance.sqrt()).max(BOUND_MIN.0 * dot(&self.factors, &shares));
        ((share * size).ceil() as u64).max(BOUND_MIN.1)
    }

    /// Reported tokens for each estimated one of text like that of the reports so far: what turns a budget in the
    /// model's tokens into one in our estimates.
    #[must_use]
    pub fn factor(&self) -> f64 {
        let mut recent = self.recent;
        // Pictures and tools are not what budgets are cut from, and their factors may be far from those of text.
        (recent[IMAGES], recent[TOOLS]) = (0.0, 0.0);
        let all: f64 = recent.iter().sum();
        if all > 0.0 { (dot(&self.factors, &recent) / all).clamp(FACTOR_MIN, FACTOR_MAX) } else { 1.0 }
    }

    /// Variance of what one report of this mix misses by, as a share of the estimate, though all factors be right.
    fn noise(&self, shares: &Row, size: f64, of: Of) -> f64 {
        let Prior { stretch, chance, .. } = prior(self.method);
        let seam = (SEAM_TOKENS / size).powi(2);
        // Scripts stray each for itself.
        let strayed: f64 = shares.iter().map(|share| (stretch * share).powi(2)).sum();
        let unseen = match of {
            Of::Whole => (UNSEEN.0 / size).powi(2) + UNSEEN.1.powi(2),
            Of::Added | Of::Answer => 0.0,
        };
        seam + strayed + chance / size + unseen
    }
}

fn prior(method: Method) -> &'static Prior {
    match method {
        Method::Tokenizer(_) => &TOKENIZER,
        Method::Characters | Method::Pi => &CHARACTERS,
    }
}

fn first_covariance(method: Method) -> [Row; ROWS] {
    let prior = prior(method);
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
    GUESSES.into_iter().find(|guess| guess.0 == row).map_or((FACTOR_MIN, FACTOR_MAX), |(_, _, least, most)| (least, most))
}

fn dot(a: &Row, b: &Row) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn times(matrix: &[Row; ROWS], row: &Row) -> Row {
    matrix.map(|line| dot(&line, row))
}
