//! The operator's account of model requests: one row for each request that cost something.
//!
//! A row counts what the provider reported. If a request ends without a report (it was cancelled, or its answer broke
//! off), the row holds an estimate and says so. Rows contain names and numbers, never text.

use crate::{
    model::ReportedUsage,
    prices::{Price, Prices},
};
use reseed_protocol::{FurtherUsage, SessionId, Timestamp, UsageSource};

/// What a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsagePurpose {
    /// The answer to the user.
    Turn,
    /// A summary for a compaction.
    Summary,
    /// A summary for the preview of a compaction.
    Preview,
    /// The summary of an abandoned branch.
    Branch,
    /// A request that only fills the provider's cache.
    Prewarm,
}

impl UsagePurpose {
    /// Every purpose.
    pub const ALL: [Self; 5] = [Self::Turn, Self::Summary, Self::Preview, Self::Branch, Self::Prewarm];

    /// Returns the name that is stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Summary => "summary",
            Self::Preview => "preview",
            Self::Branch => "branch",
            Self::Prewarm => "prewarm",
        }
    }

    /// Returns the purpose with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.as_str() == name)
    }
}

/// Tokens by class, those of the provider's further passes included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTokens {
    /// Input tokens, including cached ones.
    pub input: u64,
    /// Input tokens read from the provider's cache.
    pub cached: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write: u64,
    /// Those of them that the cache keeps for an hour.
    pub cache_write_hour: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// Output tokens used for reasoning.
    pub reasoning: u64,
}

impl UsageTokens {
    /// Returns the tokens of a report.
    #[must_use]
    pub fn of(usage: &ReportedUsage) -> Self {
        let further = usage.further.unwrap_or_default();
        let sum = |own: Option<u64>, further: u64| own.unwrap_or(0).saturating_add(further);
        Self {
            input: usage.input_tokens.saturating_add(further.input_tokens),
            cached: sum(usage.cached_tokens, further.cached_tokens),
            cache_write: sum(usage.cache_write_tokens, further.cache_write_tokens),
            cache_write_hour: sum(usage.cache_write_hour_tokens, further.cache_write_hour_tokens),
            output: usage.output_tokens.saturating_add(further.output_tokens),
            reasoning: usage.reasoning_tokens.unwrap_or(0),
        }
    }

    /// Returns the tokens of a request that is known only by an estimate.
    #[must_use]
    pub fn estimated(input: u64, output: u64) -> Self {
        Self { input, output, ..Self::default() }
    }

    /// Returns the tokens that are billed: input and output.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl Prices {
    /// Returns the cost of these estimated tokens in billionths of a dollar; `None` if the price is unknown. Cached
    /// tokens cannot be foreseen, so all input counts in full.
    #[must_use]
    pub fn estimate_nano_usd(&self, model: &str, input: u64, output: u64) -> Option<u64> {
        let pass = FurtherUsage { input_tokens: input, output_tokens: output, ..FurtherUsage::default() };
        self.price(model).map(|price| price.nano_usd([pass].into_iter()))
    }
}

/// One request to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// The request's id, unique among all sessions.
    pub id: String,
    /// When the request ended.
    pub at: Timestamp,
    /// The owner of the session; empty if no tokens are configured.
    pub owner: String,
    /// The session.
    pub session: SessionId,
    /// The model.
    pub model: String,
    /// What the request was for.
    pub purpose: UsagePurpose,
    /// Its tokens.
    pub tokens: UsageTokens,
    /// Whether the provider reported the tokens.
    pub source: UsageSource,
    /// The cost of these tokens in billionths of a US dollar; `None` if the price is unknown.
    pub cost_nano_usd: Option<u64>,
}

impl UsageRow {
    /// Returns the row with what the provider reported.
    #[must_use]
    pub fn reported(self, usage: &ReportedUsage, prices: &Prices) -> Self {
        let priced = usage.usage(UsageSource::Reported);
        Self {
            tokens: UsageTokens::of(usage),
            source: UsageSource::Reported,
            cost_nano_usd: prices.cost_nano_usd(&self.model, &priced),
            ..self
        }
    }

    /// Returns the row with an estimate.
    #[must_use]
    pub fn estimated(self, input: u64, output: u64, prices: &Prices) -> Self {
        Self {
            tokens: UsageTokens::estimated(input, output),
            source: UsageSource::Estimated,
            cost_nano_usd: prices.estimate_nano_usd(&self.model, input, output),
            ..self
        }
    }

    /// Returns the row with an estimate whose input has the highest price that it may have: the request may write all
    /// of it to the provider's cache.
    #[must_use]
    pub fn reserved(self, input: u64, output: u64, prices: &Prices) -> Self {
        let dearest = prices.price(&self.model).map(|price| {
            let input = price.input.max(price.written).max(price.written_hour);
            (self.model.clone(), Price { input, ..price })
        });
        self.estimated(input, output, &Prices::new(dearest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> UsageRow {
        UsageRow {
            id: "e-1-0".into(),
            at: Timestamp(5),
            owner: "ann".into(),
            session: "k7m2q9xw4hfatz8n".parse().unwrap(),
            model: "m".into(),
            purpose: UsagePurpose::Turn,
            tokens: UsageTokens::default(),
            source: UsageSource::Reported,
            cost_nano_usd: None,
        }
    }

    #[test]
    fn a_row_costs_what_the_prices_say_further_passes_included() {
        let prices = Prices::new([("m".to_owned(), Price::parse("3/0.3/15/3.75/6").unwrap())]);
        let pass = FurtherUsage {
            input_tokens: 100,
            cached_tokens: 60,
            cache_write_tokens: 40,
            cache_write_hour_tokens: 40,
            output_tokens: 7,
        };
        let usage = ReportedUsage {
            input_tokens: 1_000,
            cached_tokens: Some(400),
            cache_write_tokens: Some(500),
            cache_write_hour_tokens: Some(250),
            output_tokens: 10,
            reasoning_tokens: Some(4),
            further: Some(pass),
        };
        let reported = row().reported(&usage, &prices);
        let tokens = UsageTokens {
            input: 1_100,
            cached: 460,
            cache_write: 540,
            cache_write_hour: 290,
            output: 17,
            reasoning: 4,
        };
        assert_eq!((reported.tokens, reported.source), (tokens, UsageSource::Reported));
        let wire = usage.usage(UsageSource::Reported);
        assert_eq!(reported.cost_nano_usd, prices.cost_nano_usd("m", &wire));
        assert!(reported.cost_nano_usd.is_some_and(|cost| cost > 0));

        let estimated = row().estimated(1_000, 10, &prices);
        assert_eq!(estimated.source, UsageSource::Estimated);
        assert_eq!((estimated.tokens.total(), estimated.cost_nano_usd), (1_010, Some(3_000_000 + 150_000)));
        assert_eq!(row().estimated(1_000, 10, &Prices::default()).cost_nano_usd, None);

        // All input may be written for an hour.
        let reserved = row().reserved(1_000, 10, &prices);
        assert_eq!((reserved.tokens, reserved.cost_nano_usd), (estimated.tokens, Some(6_000_000 + 150_000)));
        assert_eq!(row().reserved(1_000, 10, &Prices::default()).cost_nano_usd, None);
    }

    #[test]
    fn a_purpose_is_found_by_its_name() {
        for purpose in UsagePurpose::ALL {
            assert_eq!(UsagePurpose::named(purpose.as_str()), Some(purpose));
        }
        assert_eq!(UsagePurpose::named("Turn"), None);
    }
}
