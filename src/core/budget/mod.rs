//! Budgets: how much may be spent in a period, and what counts against it.
//!
//! A request is reserved before it is sent, by its estimate, and settled by what it cost. The reservation is stored
//! first: a server that is killed leaves it behind, so what its requests cost is never forgotten. [`Account`] decides
//! what is admitted; it is loaded from the stored rows, and follows those of its own server from then on.
//!
//! If several servers share the rows, each looks once more after it has stored a reservation.
//!
//! Invariant: what requests cost never passes a budget by more than the estimate of one request, if no request costs
//! more than its estimate.

mod account;
mod period;
#[cfg(test)]
mod random;

pub use account::{Account, Admission};
pub use period::Period;

use crate::usage_row::UsageRow;
use serde::{Deserialize, Serialize};

/// An amount spent or reserved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Billionths of a US dollar. Requests to models without prices add nothing.
    pub nano_usd: u64,
    /// Input and output tokens.
    pub tokens: u64,
}

impl Amount {
    /// Returns what a row counts for.
    #[must_use]
    pub fn of(row: &UsageRow) -> Self {
        Self { nano_usd: row.cost_nano_usd.unwrap_or(0), tokens: row.tokens.total() }
    }

    /// Returns the sum.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            nano_usd: self.nano_usd.saturating_add(other.nano_usd),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    /// Returns what remains of this amount without the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            nano_usd: self.nano_usd.saturating_sub(other.nano_usd),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }
}

/// The most that may be spent in a period; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limit {
    /// Billionths of a US dollar.
    pub nano_usd: Option<u64>,
    /// Tokens.
    pub tokens: Option<u64>,
}

impl Limit {
    /// Returns true if an amount reaches one of the limits.
    #[must_use]
    pub fn is_reached_by(&self, amount: Amount) -> bool {
        self.nano_usd.is_some_and(|most| amount.nano_usd >= most)
            || self.tokens.is_some_and(|most| amount.tokens >= most)
    }

    /// Returns the share of the limit that is used, in percent, of the one that is used most.
    #[must_use]
    pub fn used_percent(&self, amount: Amount) -> u64 {
        let share = |used: u64, most: u64| {
            let percent = u128::from(used) * 100 / u128::from(most.max(1));
            u64::try_from(percent).unwrap_or(u64::MAX)
        };
        let dollars = self.nano_usd.map(|most| share(amount.nano_usd, most));
        let tokens = self.tokens.map(|most| share(amount.tokens, most));
        dollars.max(tokens).unwrap_or(0)
    }
}

/// The shares of a budget, in percent, at which its users are told.
pub const TOLD_PERCENT: [u64; 2] = [80, 100];
