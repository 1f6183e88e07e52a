//! What a conversation costs if the provider's cache forgets it after a while, and if the cache is refreshed while the
//! user is away.
//!
//! The times are those of the recorded inputs and answers. Tools take no time. A client is taken to be connected
//! throughout, as refreshes need it. They are decided as the server does it, by the pauses so far.

use crate::core::{
    prewarm::{CacheTerms, Rhythm},
    prices::Price,
};
use reseed_protocol::Timestamp;
use serde::Serialize;

/// The lifetimes of Anthropic's cache, which each have a price of their own.
const TERMS: [CacheTerms; 2] = [
    CacheTerms { lifetime_ms: 5 * 60_000, for_an_hour: false },
    CacheTerms { lifetime_ms: 60 * 60_000, for_an_hour: true },
];

/// A request of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// When it was sent.
    pub(crate) at: Timestamp,
    /// When it was answered.
    pub(crate) until: Timestamp,
    pub(crate) tokens: u64,
    /// Those that a cache could serve which forgets nothing.
    pub(crate) cached_tokens: u64,
}

/// The cost of all requests' input with one lifetime, in billionths of a dollar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lifetime {
    pub(crate) input_nano_usd: u64,
    /// The cost with refreshes, including theirs.
    pub(crate) refreshed_nano_usd: u64,
    pub(crate) refreshes: u64,
}

/// The costs with five minutes, and with an hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Lifetimes {
    pub(crate) minutes: Lifetime,
    pub(crate) hour: Lifetime,
}

impl Lifetimes {
    /// Returns the costs of these requests, in order.
    pub(crate) fn of(asked: &[Asked], price: Price) -> Self {
        let [minutes, hour] = TERMS.map(|terms| {
            let (input_nano_usd, _) = cost(asked, price, terms, false);
            let (refreshed_nano_usd, refreshes) = cost(asked, price, terms, true);
            Lifetime { input_nano_usd, refreshed_nano_usd, refreshes }
        });
        Self { minutes, hour }
    }

    pub(crate) fn add(&mut self, more: &Self) {
        for (sum, more) in [(&mut self.minutes, &more.minutes), (&mut self.hour, &more.hour)] {
            sum.input_nano_usd += more.input_nano_usd;
            sum.refreshed_nano_usd += more.refreshed_nano_usd;
            sum.refreshes += more.refreshes;
        }
    }
}

/// Returns the cost, and the number of refreshes.
fn cost(asked: &[Asked], price: Price, terms: CacheTerms, refreshes: bool) -> (u64, u64) {
    let written = if terms.for_an_hour { price.written_hour } else { price.written };
    let of = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
    let (mut pico, mut made, mut before) = (0, 0, None::<Asked>);
    let mut pauses: Vec<u64> = Vec::new();
    for now in asked {
        let pause = before.map_or(0, |before| now.at.millis_since(before.until));
        let mut kept = 0;
        if let Some(before) = before.filter(|_| refreshes && pause > terms.period_ms()) {
            let rhythm = Rhythm::of(pauses.iter().copied(), terms.period_ms());
            while pause > (kept + 1) * terms.period_ms() && terms.refresh_pays(price, &rhythm, kept as usize) {
                kept += 1;
                pico += of(before.tokens, price.cached);
            }
        }
        made += kept;
        let is_alive = pause - kept * terms.period_ms() <= terms.lifetime_ms;
        let cached = if is_alive { now.cached_tokens } else { 0 };
        pico += of(cached, price.cached) + of(now.tokens - cached, written);
        if pause > 0 {
            pauses.push(pause);
        }
        before = Some(*now);
    }
    (u64::try_from((pico + 500) / 1_000).unwrap_or(u64::MAX), made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_cache_forgets_is_written_again_unless_it_was_refreshed() {
        let price = Price::parse("3/0.3/15/3.75/6").unwrap();
        let asked = |minutes: &[i64]| {
            let at = |(number, minutes): (usize, &i64)| {
                let (tokens, cached_tokens) = (1_000, if number == 0 { 0 } else { 1_000 });
                let at = Timestamp(minutes * 60_000);
                Asked { at, until: at, tokens, cached_tokens }
            };
            minutes.iter().enumerate().map(at).collect::<Vec<_>>()
        };
        let (written, hour, read) = (3_750_000, 6_000_000, 300_000);
        let of = |minutes: &[i64]| Lifetimes::of(&asked(minutes), price);
        // Short pauses: everything is read.
        let short = of(&[0, 1, 2]);
        assert_eq!(short.minutes.input_nano_usd, written + 2 * read);
        assert_eq!((short.hour.input_nano_usd, short.minutes.refreshes), (hour + 2 * read, 0));
        // The first pause of six minutes is unexpected. Before the second, one refresh is made.
        let long = of(&[0, 6, 12]).minutes;
        assert_eq!((long.input_nano_usd, long.refreshes), (3 * written, 1));
        assert_eq!(long.refreshed_nano_usd, 2 * written + 2 * read);
        // The hour covers them.
        assert_eq!(of(&[0, 6, 12]).hour.input_nano_usd, hour + 2 * read);
        // It refreshes in vain: the user stays away.
        let away = of(&[0, 6, 500]).minutes;
        assert_eq!(away.refreshed_nano_usd, away.input_nano_usd + away.refreshes * read);
        assert_eq!(away.refreshes, 1);
    }
}
