//! Sums of usage.

use reseed_protocol::{FurtherUsage, Usage, UsageSource};

/// Adds two usages. A sum that includes an estimate is an estimate. The cost is known only if both costs are known,
/// because a partial cost would look like the whole.
#[must_use]
pub fn add_usage(sum: Option<Usage>, more: &Usage) -> Usage {
    let Some(sum) = sum else { return more.clone() };
    let both = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
    };
    Usage {
        input_tokens: sum.input_tokens + more.input_tokens,
        cached_tokens: sum.cached_tokens + more.cached_tokens,
        cache_write_tokens: both(sum.cache_write_tokens, more.cache_write_tokens),
        cache_write_hour_tokens: both(sum.cache_write_hour_tokens, more.cache_write_hour_tokens),
        output_tokens: sum.output_tokens + more.output_tokens,
        reasoning_tokens: both(sum.reasoning_tokens, more.reasoning_tokens),
        prefix_tokens: both(sum.prefix_tokens, more.prefix_tokens),
        further: sum.further.into_iter().chain(more.further).reduce(FurtherUsage::and),
        cost_nano_usd: sum.cost_nano_usd.zip(more.cost_nano_usd).map(|(a, b)| a.saturating_add(b)),
        source: if sum.source == UsageSource::Reported { more.source } else { sum.source },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn usage(cost_nano_usd: Option<u64>, source: UsageSource) -> Usage {
        Usage {
            input_tokens: 10,
            cached_tokens: 4,
            cache_write_tokens: None,
            cache_write_hour_tokens: None,
            output_tokens: 2,
            reasoning_tokens: None,
            prefix_tokens: Some(3),
            further: None,
            cost_nano_usd,
            source,
        }
    }

    #[test]
    fn a_sum_with_an_unknown_part_has_no_cost() {
        let reported = |cost| usage(cost, UsageSource::Reported);
        let table = [
            (Some(5), reported(Some(7)), Some(12)),
            (Some(5), reported(None), None),
            (None, reported(Some(7)), None),
            (Some(5), usage(None, UsageSource::Estimated), None),
            (Some(u64::MAX), reported(Some(7)), Some(u64::MAX)),
        ];
        for (sum, more, expected) in table {
            let sum = add_usage(Some(add_usage(None, &reported(sum))), &more);
            assert_eq!((sum.cost_nano_usd, sum.prefix_tokens, sum.input_tokens), (expected, Some(6), 20));
            assert_eq!(sum.source, more.source);
        }
    }
}
