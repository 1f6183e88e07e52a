//! Reads numbers from JSON so that an absent one fails the test.
//!
//! `a.as_u64() < b.as_u64()` compares `Option`s, in which an absent left side is less than everything: such a test passes
//! when the field is gone. `tests/it/tidy.rs` refuses that form.

use serde_json::Value;

/// Returns this whole number.
///
/// # Panics
/// It is absent, or no whole number.
#[track_caller]
pub(crate) fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a whole number was expected, found {value}"))
}

/// Returns this number.
///
/// # Panics
/// It is absent, or no number.
#[track_caller]
pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number was expected, found {value}"))
}
