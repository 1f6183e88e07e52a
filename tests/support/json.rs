//! Reads JSON so that an absent field fails the test.
//!
//! `a["x"] == b["x"]` holds when both fields are gone, and in `a.as_u64() < b.as_u64()` an absent left side is less
//! than everything. `tests/it/tidy/absent.rs` refuses such comparisons; one side of an equality that goes through here
//! is enough.

use serde_json::Value;

/// Returns this value.
///
/// # Panics
/// It is absent.
#[track_caller]
pub(crate) fn present(value: &Value) -> &Value {
    assert!(!value.is_null(), "a field is absent");
    value
}

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
