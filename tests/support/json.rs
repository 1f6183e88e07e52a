//! JSON accessors that fail the test if a field is absent.
//!
//! `a["x"] == b["x"]` holds if both fields are absent, and in `a.as_u64() < b.as_u64()` an absent left side is less
//! than everything. `tests/it/tidy/absent.rs` rejects such comparisons; one side of an equality that uses these
//! functions is enough.

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

/// Returns this integer.
///
/// # Panics
/// It is absent or not an integer.
#[track_caller]
pub(crate) fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a whole number was expected, found {value}"))
}

/// Returns this number.
///
/// # Panics
/// It is absent or not a number.
#[track_caller]
pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number was expected, found {value}"))
}
