//! Learns how far a model's reported usage is from our estimate.
//!
//! Held at all times: the factor is finite and within [`FACTOR_MIN`] and [`FACTOR_MAX`]; one report, however wrong,
//! moves it by a bounded share; small requests hardly count, since in them what the provider adds of its own
//! (a hidden prompt, a template's preface) drowns what we estimate.

use super::Method;

/// No tokenizer in use is four times coarser or finer than ours: what is beyond is a provider's mistake.
const FACTOR_MIN: f64 = 0.25;
/// See [`FACTOR_MIN`].
const FACTOR_MAX: f64 = 4.0;
/// How many times larger or smaller than expected a report may be taken to be.
const SURPRISE_MAX: f64 = 2.0;
/// A request of this many tokens counts half as much as a very large one.
const HALF_WEIGHT_TOKENS: f64 = 400.0;
/// Reports remembered, in full weights: an older one fades with every new one, because what a conversation is made
/// of (prose, code, another language) changes.
const MEMORY: f64 = 8.0;
/// No estimate is claimed to be better than this share.
const BOUND_SHARE_MIN: f64 = 0.01;
/// Tokens by which the surroundings of messages may be wrong in any request.
const BOUND_TOKENS_MIN: u64 = 8;

/// Corrects the estimates for one model from each reported usage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Reported tokens for each estimated one.
    factor: f64,
    /// Mean share by which reports missed the corrected estimate.
    miss: f64,
    /// Weight of what was seen so far, the first guess included.
    weight: f64,
}

impl Calibration {
    /// Knows nothing yet: factor 1, and the error that the method shows on text it was not fitted to.
    #[must_use]
    pub fn new(method: Method) -> Self {
        // The miss is half of the bound that is claimed. A tokenizer's first guess is worth a report; that of
        // character weights, for a vocabulary we do not know, is worth less.
        match method {
            Method::Tokenizer(_) => Self { factor: 1.0, miss: 0.025, weight: 1.0 },
            Method::Characters | Method::Pi => Self { factor: 1.0, miss: 0.125, weight: 0.25 },
        }
    }

    /// Learns that a request estimated (before correction) at `estimated` tokens was reported as `reported`. Zeros are
    /// ignored: they are how providers say that they do not know.
    pub fn observe(&mut self, estimated: u64, reported: u64) {
        if estimated == 0 || reported == 0 {
            return;
        }
        let (estimated, reported) = (estimated as f64, reported as f64);
        let surprise = (reported / estimated / self.factor).clamp(1.0 / SURPRISE_MAX, SURPRISE_MAX);
        let weight = estimated / (estimated + HALF_WEIGHT_TOKENS);
        self.weight = (self.weight + weight).min(MEMORY);
        let share = weight / self.weight;
        self.miss += share * ((surprise - 1.0).abs() - self.miss);
        self.factor = (self.factor * (1.0 + share * (surprise - 1.0))).clamp(FACTOR_MIN, FACTOR_MAX);
    }

    /// The estimate as the provider would probably report it.
    #[must_use]
    pub fn apply(&self, estimated: u64) -> u64 {
        // Float to integer casts saturate.
        (estimated as f64 * self.factor).round() as u64
    }

    /// Tokens by which [`Self::apply`] of this estimate may be wrong, either way.
    #[must_use]
    pub fn error_bound(&self, estimated: u64) -> u64 {
        let share = (2.0 * self.miss).max(BOUND_SHARE_MIN);
        let tokens = (estimated as f64 * self.factor * share).ceil() as u64;
        if estimated == 0 { 0 } else { tokens.saturating_add(BOUND_TOKENS_MIN) }
    }

    /// Reported tokens for each estimated one, as learnt so far.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ops::RangeInclusive;

    /// Pairs of estimated and reported tokens.
    type Reports = Vec<(u64, u64)>;

    fn after(method: Method, reports: &[(u64, u64)]) -> Calibration {
        let mut calibration = Calibration::new(method);
        reports.iter().for_each(|&(estimated, reported)| calibration.observe(estimated, reported));
        calibration
    }

    #[test]
    fn the_factor_follows_the_reports() {
        let o200k = Method::Tokenizer("o200k");
        let cases: [(&str, Method, Reports, RangeInclusive<u64>); 9] = [
            ("knows nothing", Method::Characters, vec![], 1_000..=1_000),
            ("zeros say nothing", Method::Characters, vec![(0, 500), (500, 0), (0, 0)], 1_000..=1_000),
            ("a first report counts much for characters", Method::Characters, vec![(8_000, 10_400)], 1_230..=1_245),
            ("and less for a tokenizer", o200k, vec![(8_000, 10_400)], 1_140..=1_150),
            ("agreement settles", Method::Characters, vec![(8_000, 10_400); 20], 1_295..=1_301),
            ("a small request says little", Method::Characters, vec![(20, 90)], 1_000..=1_200),
            (
                "one outlier is bounded",
                o200k,
                [vec![(8_000, 8_000); 20], vec![(8_000, 80_000)]].concat(),
                1_000..=1_130,
            ),
            ("nonsense is bounded above", Method::Characters, vec![(1_000, u64::MAX); 200], 4_000..=4_000),
            ("nonsense is bounded below", Method::Characters, vec![(u64::MAX, 1); 200], 250..=250),
        ];
        for (name, method, reports, expected) in cases {
            let applied = after(method, &reports).apply(1_000);
            assert!(expected.contains(&applied), "{name}: {applied} is not in {expected:?}");
        }
    }

    #[test]
    fn the_bound_shrinks_while_reports_agree_and_grows_when_they_do_not() {
        for method in [Method::Characters, Method::Tokenizer("o200k")] {
            let fresh = after(method, &[]).error_bound(10_000);
            let agreed = after(method, &[(9_000, 9_000); 30]).error_bound(10_000);
            let disagreed = after(method, &[(9_000, 9_000), (9_000, 16_000)].repeat(15)).error_bound(10_000);
            assert!(agreed < fresh / 2 && fresh < disagreed, "{method:?}: {agreed} {fresh} {disagreed}");
        }
        assert_eq!(after(Method::Characters, &[]).error_bound(10_000), 2_508);
        assert_eq!(after(Method::Characters, &[]).error_bound(0), 0);
    }

    proptest! {
        #[test]
        fn any_reports_leave_it_usable(reports in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50)) {
            let calibration = after(Method::Characters, &reports);
            prop_assert!((FACTOR_MIN..=FACTOR_MAX).contains(&calibration.factor()));
            prop_assert_eq!(calibration.apply(0), 0);
            prop_assert!((250..=4_000).contains(&calibration.apply(1_000)));
            prop_assert!((10..=8_008).contains(&calibration.error_bound(1_000)));
            prop_assert!(calibration.error_bound(u64::MAX) > 0);
        }
    }
}
