//! Limits on tool schemas, so that building a validator and checking a call's arguments always end quickly.
//!
//! - A validator follows references wherever they occur: two in each of twenty definitions make a million steps, a long
//!   chain makes a deep stack, and a recursive definition may never end. [`cost`] computes the expanded size
//!   first.
//! - A regular expression of twenty characters can compile to gigabytes, and one that backtracks can run indefinitely.
//!   [`patterns`] keeps those that a linear engine can run within a budget, and leaves the others unchecked.
//! - Large arguments times many rules are slow even so: [`Arguments::check`] bounds the product.
//!
//! Before that, [`repair`] converts a schema to a form that model servers accept.

mod cost;
mod patterns;
mod repair;

use cost::Cost;
use jsonschema::{PatternOptions, Validator};
use reseed_protocol::tools::UncheckedReason;
use serde_json::Value;

/// Maximum values in a schema with every reference expanded. The largest published tool schemas have a few thousand.
const UNFOLDED_MAX: u64 = 20_000;

/// Maximum bytes of a schema, because it is sent with every request.
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// Maximum total bytes of the schemas in one offer: 1 MiB is a quarter of a million tokens in every request.
const OFFER_BYTES_MAX: usize = 1024 * 1024;

/// Maximum total values of the schemas in one offer, with every reference expanded. A validator needs some hundred
/// bytes per value.
const OFFER_UNFOLDED_MAX: u64 = 100_000;

/// Maximum product of a schema's rules and the values that are checked. A step takes some tens of nanoseconds, and only
/// a part of the rules applies to each value.
const STEPS_MAX: u64 = 40_000_000;

/// Maximum product of the arguments' bytes and the number of patterns, formats and lengths that can apply to one value.
/// A linear engine reads about 100 MB/s, and 1 MB/s at worst.
const PATTERN_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Maximum bytes of a pattern's transition cache. When the cache is full the engine is slower, but still linear.
const PATTERN_CACHE_BYTES: usize = 64 * 1024;

/// Maximum characters of an error description. It repeats the arguments, and the model reads it.
const MISFIT_CHARS_MAX: usize = 2_000;

/// Maximum characters of a location in an error.
const PLACE_CHARS_MAX: usize = 256;

/// The remaining budget that all schemas of one offer share.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: usize,
    unfolded: u64,
    patterns: patterns::Budget,
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: OFFER_BYTES_MAX, unfolded: OFFER_UNFOLDED_MAX, patterns: patterns::Budget::default() }
    }
}

/// A validator for the arguments of a tool's calls.
#[derive(Debug)]
pub(crate) struct Arguments {
    validator: Validator,
    cost: Cost,
    unchecked: Vec<Unchecked>,
    sent: Value,
}

/// A pattern that arguments are not checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unchecked {
    /// Its location in the schema, as a JSON Pointer.
    pub at: String,
    pub reason: UncheckedReason,
}

impl Arguments {
    /// Repairs a tool's schema, checks that it is a small object without endless references, and builds the validator.
    ///
    /// # Errors
    /// The reason that cannot be repaired, for the sender of the schema. It is a predicate whose subject, the
    /// parameters, the caller supplies.
    pub(crate) fn of(schema: &Value, budget: &mut Budget) -> Result<Self, String> {
        let sound = repair::sound(schema)?;
        let schema = &sound;
        let cost = check_schema(schema, budget)?;
        let (checked, unchecked) = patterns::compilable(schema, &mut budget.patterns);
        let build = |schema: &Value| {
            let engine = PatternOptions::regex().dfa_size_limit(PATTERN_CACHE_BYTES);
            jsonschema::options().with_pattern_options(engine).build(schema)
        };
        let validator = match build(&checked) {
            Ok(validator) => validator,
            // A reference may lead to something that was removed with a pattern. A pattern is no reason to refuse the
            // tool.
            Err(_) if !unchecked.is_empty() => {
                build(&serde_json::json!({ "type": "object" })).map_err(|error| error.to_string())?
            }
            Err(error) => {
                let place: String = error.instance_path().to_string().chars().take(PLACE_CHARS_MAX).collect();
                return Err(format!("are not a valid JSON Schema, at `{place}`"));
            }
        };
        let sent = match repair::flat(schema) {
            // References may lead to parts that were joined.
            Some(flat) => Cost::of(&flat).map(|_| flat)?,
            None => sound,
        };
        Ok(Self { validator, cost, unchecked, sent })
    }

    /// Returns the schema that is sent to models, once.
    pub(crate) fn take_sent(&mut self) -> Value {
        self.sent.take()
    }

    /// Returns the patterns that arguments are not checked against.
    pub(crate) fn unchecked(&self) -> &[Unchecked] {
        &self.unchecked
    }

    /// Checks the arguments of a call, which have this many bytes as text.
    ///
    /// # Errors
    /// The mismatch, for the model. It is a predicate whose subject, the arguments, the caller supplies.
    pub(crate) fn check(&self, arguments: &Value, bytes: usize) -> Result<(), String> {
        let (rules, patterns) = (self.cost.values, self.cost.patterns());
        let values = values_in(arguments);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if values.saturating_mul(rules) > STEPS_MAX || bytes.saturating_mul(patterns) > PATTERN_BYTES_MAX {
            return Err(format!(
                "are too large to be checked against its schema: {values} values in {bytes} bytes, where the schema has \
                 {rules} rules, and up to {patterns} patterns apply to one value; send less in one call"
            ));
        }
        self.validator.validate(arguments).map_err(|error| {
            let place: String = error.instance_path().to_string().chars().take(PLACE_CHARS_MAX).collect();
            let misfit: String = error.to_string().chars().take(MISFIT_CHARS_MAX).collect();
            format!("do not fit its schema: {misfit} at `{place}`")
        })
    }
}

/// Returns a schema in the form sent to models; unchanged if it cannot be repaired.
pub(crate) fn sent(schema: &Value) -> Value {
    let sound =
        repair::sound(schema).ok().filter(|sound| Cost::of(sound).is_ok_and(|cost| cost.values <= UNFOLDED_MAX));
    let Some(sound) = sound else { return schema.clone() };
    repair::flat(&sound).unwrap_or(sound)
}

/// Checks that a schema is small and that its references end, and subtracts it from the budget.
fn check_schema(schema: &Value, budget: &mut Budget) -> Result<Cost, String> {
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES_MAX {
        return Err(format!("have {bytes} bytes, more than the maximum of {SCHEMA_BYTES_MAX}"));
    }
    let cost = Cost::of(schema)?;
    if cost.values > UNFOLDED_MAX {
        let values = cost.values;
        return Err(format!(
            "have {values} values with every reference expanded, more than the maximum of {UNFOLDED_MAX}"
        ));
    }
    let (Some(bytes), Some(unfolded)) = (budget.bytes.checked_sub(bytes), budget.unfolded.checked_sub(cost.values))
    else {
        return Err(format!(
            "are too much together with those of the tools before: all schemas of an offer may have \
             {OFFER_BYTES_MAX} bytes and, with every reference expanded, {OFFER_UNFOLDED_MAX} values"
        ));
    };
    budget.bytes = bytes;
    budget.unfolded = unfolded;
    Ok(cost)
}

/// Counts the values in a JSON value, itself included.
fn values_in(value: &Value) -> u64 {
    1 + match value {
        Value::Array(items) => items.iter().map(values_in).sum::<u64>(),
        Value::Object(fields) => fields.values().map(values_in).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
