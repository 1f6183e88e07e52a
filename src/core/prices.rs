//! Model prices as configured, and the cost of requests.
//!
//! A cost is computed only from provider-reported usage and only for models with a known price: a cost based on an
//! estimate would look like a bill. All amounts are integers: one dollar per million tokens is one million picodollars
//! (10⁻¹² dollars) per token, so six decimals of a price are exact.

use reseed_protocol::{FurtherUsage, Usage, UsageSource};
use std::{collections::BTreeMap, sync::Arc};

/// Picodollars per nanodollar.
const PICO_PER_NANO: u128 = 1_000;

/// Maximum decimals of a price.
const DECIMALS: usize = 6;

/// Maximum price in dollars per million tokens: one dollar per token.
const DOLLARS_MAX: u64 = 1_000_000;

/// The price of a model's tokens, in picodollars each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// An input token.
    pub input: u64,
    /// An input token read from the provider's cache.
    pub cached: u64,
    /// An input token written to the provider's cache.
    pub written: u64,
    /// An input token that the provider's cache keeps for an hour.
    pub written_hour: u64,
    /// An output token.
    pub output: u64,
}

/// The price of each model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    of: Arc<BTreeMap<String, Price>>,
}

impl Price {
    /// Parses `input/cached/output`, `input/cached/output/written` or `input/cached/output/written/hour`, each in
    /// dollars per million tokens. Without the fourth price, tokens written to the provider's cache cost as much as
    /// other input. Without the fifth, those that it keeps for an hour cost as much as those that it keeps for minutes.
    ///
    /// # Errors
    /// The reason the text is invalid.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const WANTED: &str = "a model has three to five prices: input/cached/output, then /written, then /hour";
        let mut numbers = text.split('/').map(|number| picodollars(number.trim()));
        let mut next = || numbers.next().ok_or(WANTED)?;
        let (input, cached, output) = (next()?, next()?, next()?);
        let written = numbers.next().transpose()?.unwrap_or(input);
        let written_hour = numbers.next().transpose()?.unwrap_or(written);
        if numbers.next().is_some() {
            return Err(WANTED);
        }
        Ok(Self { input, cached, written, written_hour, output })
    }
}

impl Price {
    /// Returns the cost of these passes in billionths of a dollar, rounded once, half up.
    pub(crate) fn nano_usd(self, passes: impl Iterator<Item = FurtherUsage>) -> u64 {
        let pico = passes.fold(0_u128, |sum, pass| sum.saturating_add(self.pico(pass)));
        u64::try_from(pico.saturating_add(PICO_PER_NANO / 2) / PICO_PER_NANO).unwrap_or(u64::MAX)
    }

    /// Returns the cost of these tokens in picodollars.
    fn pico(self, pass: FurtherUsage) -> u128 {
        let of = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let cached = pass.cached_tokens.min(pass.input_tokens);
        let written = pass.cache_write_tokens.min(pass.input_tokens - cached);
        let hour = pass.cache_write_hour_tokens.min(written);
        of(pass.input_tokens - cached - written, self.input)
            .saturating_add(of(cached, self.cached))
            .saturating_add(of(written - hour, self.written))
            .saturating_add(of(hour, self.written_hour))
            .saturating_add(of(pass.output_tokens, self.output))
    }
}

/// Converts a price in dollars per million tokens to picodollars per token.
fn picodollars(text: &str) -> Result<u64, &'static str> {
    const NO_PRICE: &str = "a price is in dollars per million tokens, from 0 to 1000000 with at most 6 decimals";
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > DECIMALS {
        return Err(NO_PRICE);
    }
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number <= DOLLARS_MAX);
    let whole = number(whole).ok_or(NO_PRICE)?;
    let decimals = number(&format!("{decimals:0<DECIMALS$}")).ok_or(NO_PRICE)?;
    Some(whole * 10_u64.pow(6) + decimals).filter(|pico| *pico <= DOLLARS_MAX * 10_u64.pow(6)).ok_or(NO_PRICE)
}

impl Prices {
    /// Creates the table from prices by model name, in the provider's spelling.
    #[must_use]
    pub fn new(of: impl IntoIterator<Item = (String, Price)>) -> Self {
        Self { of: Arc::new(of.into_iter().collect()) }
    }

    /// Returns true if no price is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Returns this model's price, if it is known.
    #[must_use]
    pub fn price(&self, model: &str) -> Option<Price> {
        self.of.get(model).copied()
    }

    /// Iterates over the models whose prices are known.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.of.keys().map(String::as_str)
    }

    /// Returns true if this model's price is known.
    #[must_use]
    pub fn knows(&self, model: &str) -> bool {
        self.of.contains_key(model)
    }

    /// Returns the cost of a request to this model in billionths of a dollar. Returns `None` if the price is unknown or
    /// the usage was not reported by the provider.
    #[must_use]
    pub fn cost_nano_usd(&self, model: &str, usage: &Usage) -> Option<u64> {
        let price = self.of.get(model).filter(|_| usage.source == UsageSource::Reported)?;
        let pass = FurtherUsage {
            input_tokens: usage.input_tokens,
            cached_tokens: usage.cached_tokens,
            cache_write_tokens: usage.cache_write_tokens.unwrap_or(0),
            cache_write_hour_tokens: usage.cache_write_hour_tokens.unwrap_or(0),
            output_tokens: usage.output_tokens,
        };
        Some(price.nano_usd([Some(pass), usage.further].into_iter().flatten()))
    }

    /// Returns the usage with its cost filled in.
    #[must_use]
    pub fn priced(&self, model: &str, usage: Usage) -> Usage {
        Usage { cost_nano_usd: self.cost_nano_usd(model, &usage), ..usage }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cached: u64, output: u64) -> Usage {
        Usage {
            input_tokens: input,
            cached_tokens: cached,
            cache_write_tokens: None,
            cache_write_hour_tokens: None,
            output_tokens: output,
            reasoning_tokens: Some(output),
            prefix_tokens: None,
            further: None,
            cost_nano_usd: None,
            source: UsageSource::Reported,
        }
    }

    fn written(input: u64, cached: u64, written: u64, output: u64) -> Usage {
        Usage { cache_write_tokens: Some(written), ..usage(input, cached, output) }
    }

    fn prices(text: &str) -> Prices {
        Prices::new([("m".to_owned(), Price::parse(text).unwrap())])
    }

    fn hour(tokens: u64, usage: Usage) -> Usage {
        Usage { cache_write_hour_tokens: Some(tokens), ..usage }
    }

    #[test]
    fn a_request_costs_its_tokens_the_cached_ones_apart() {
        let pass = FurtherUsage {
            input_tokens: 901,
            cached_tokens: 900,
            cache_write_tokens: 1,
            cache_write_hour_tokens: 1,
            output_tokens: 2,
        };
        let table = [
            // 1,000 × $0.40 + 500 × $1.60, both per million.
            ("0.4/0.1/1.6", usage(1_000, 0, 500), 400_000 + 800_000),
            ("0.4/0.1/1.6", usage(1_000, 1_000, 0), 100_000),
            ("0.4/0.1/1.6", usage(1_000, 400, 500), 240_000 + 40_000 + 800_000),
            // More cached than input tokens: the cached count is capped.
            ("0.4/0.1/1.6", usage(1_000, 5_000, 0), 100_000),
            ("0/0/0", usage(1_000_000, 10, 1_000_000), 0),
            // A millionth of a dollar per million tokens is a picodollar each: half a nanodollar rounds up to one.
            ("0.000001/0/0", usage(499, 0, 0), 0),
            ("0.000001/0/0", usage(500, 0, 0), 1),
            ("1000000/1000000/1000000", usage(u64::MAX, 7, u64::MAX), u64::MAX),
            ("0.075/0.01875/0.3", usage(3, 1, 1), 169 + 300),
            // $3 input, $0.30 cached, $15 output, $3.75 written, per million.
            ("3/0.3/15/3.75", written(1_000, 400, 500, 10), 300_000 + 120_000 + 1_875_000 + 150_000),
            ("3/0.3/15", written(1_000, 400, 500, 10), 300_000 + 120_000 + 1_500_000 + 150_000),
            // More written than input tokens: the written count is capped.
            ("3/0.3/15/3.75", written(1_000, 400, 5_000, 0), 120_000 + 2_250_000),
            ("3/0.3/15/0", written(1_000, 0, 1_000, 0), 0),
            // Half of what was written is kept for an hour, at $6.
            (
                "3/0.3/15/3.75/6",
                hour(250, written(1_000, 400, 500, 10)),
                300_000 + 120_000 + 937_500 + 1_500_000 + 150_000,
            ),
            ("3/0.3/15/3.75", hour(250, written(1_000, 400, 500, 10)), 300_000 + 120_000 + 1_875_000 + 150_000),
            ("3/0.3/15/3.75/6", hour(900, written(1_000, 400, 500, 0)), 300_000 + 120_000 + 3_000_000),
            // A further pass is billed too.
            (
                "3/0.3/15/3.75/6",
                Usage { further: Some(pass), ..usage(1_000, 0, 0) },
                3_000_000 + 270_000 + 6_000 + 30_000,
            ),
        ];
        for (price, usage, expected) in table {
            assert_eq!(prices(price).cost_nano_usd("m", &usage), Some(expected), "{price} {usage:?}");
        }
    }

    #[test]
    fn an_unknown_price_gives_no_cost() {
        let prices = prices("1/1/1");
        assert_eq!(prices.cost_nano_usd("m-mini", &usage(1, 0, 1)), None);
        let estimated = Usage { source: UsageSource::Estimated, ..usage(1, 0, 1) };
        assert_eq!(prices.cost_nano_usd("m", &estimated), None);
        assert_eq!(prices.priced("m", usage(1, 0, 1)).cost_nano_usd, Some(2_000));
        assert!(Prices::default().is_empty() && !prices.is_empty() && prices.knows("m"));
    }

    #[test]
    fn prices_are_read_to_the_last_decimal() {
        let price =
            |input, cached, output, written, written_hour| Price { input, cached, written, written_hour, output };
        assert_eq!(Price::parse("0.4/0.1/1.6"), Ok(price(400_000, 100_000, 1_600_000, 400_000, 400_000)));
        assert_eq!(Price::parse("3/0.3/15/3.75"), Ok(price(3_000_000, 300_000, 15_000_000, 3_750_000, 3_750_000)));
        assert_eq!(Price::parse("3/0.3/15/3.75/6"), Ok(price(3_000_000, 300_000, 15_000_000, 3_750_000, 6_000_000)));
        let spaced = price(2_000_000, 1, 1_000_000_000_000, 2_000_000, 2_000_000);
        assert_eq!(Price::parse(" 2 / 0.000001 / 1000000 "), Ok(spaced));
        for wrong in [
            "",
            "1",
            "1/2",
            "1/2/3/",
            "1/2/3/4/5/6",
            "1/2/3/x",
            "1//3",
            "-1/1/1",
            "1e3/1/1",
            "1./1/1",
            ".5/1/1",
            "1/1/0.1234567",
        ] {
            assert!(Price::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["1000001/1/1", "1000000.000001/1/1", "99999999999999999999/1/1", "NaN/1/1", "1/1/１"] {
            assert!(Price::parse(wrong).is_err(), "{wrong}");
        }
    }
}
