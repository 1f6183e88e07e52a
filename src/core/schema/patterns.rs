//! The patterns of a schema: kept if a linear engine can run them within the budget, left out otherwise.
//!
//! Schemas of real tools use lookaheads (zod writes them for e-mail addresses), which no linear engine supports. Such a
//! pattern is left out of the schema against which arguments are checked. The rest accepts more, never less: keywords
//! for which accepting more inside means accepting less outside are left out as well.

use super::Unchecked;
use regex_automata::nfa::thompson::{self, NFA};
use reseed_protocol::tools::UncheckedReason;
use serde_json::{Map, Value};

/// Maximum bytes of one compiled pattern: some hundred states, each of which may cost a step per byte read.
const PATTERN_BYTES_MAX: usize = 32 * 1024;

/// Maximum bytes of a pattern, and of escapes in it: translating it to the engine's syntax parses it again for each
/// escape.
const PATTERN_TEXT_MAX: usize = 1024;
const ESCAPES_MAX: usize = 48;

/// Maximum unchecked patterns of a tool that are reported, and maximum characters of each location.
const REPORTED_MAX: usize = 32;
const PLACE_CHARS_MAX: usize = 256;

/// Maximum total bytes of the compiled patterns of one offer.
const OFFER_BYTES_MAX: usize = 1024 * 1024;

/// The minimum bytes charged per pattern, because the engine needs more than the automaton. So an offer has at most
/// 512.
const PATTERN_BYTES_MIN: usize = 2 * 1024;

/// Keywords for which accepting more inside means accepting less outside.
const TURNING: [&str; 8] =
    ["not", "if", "then", "else", "oneOf", "maxContains", "unevaluatedItems", "unevaluatedProperties"];

/// The remaining bytes for the patterns of one offer.
#[derive(Debug)]
pub(super) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(OFFER_BYTES_MAX)
    }
}

impl Budget {
    /// Subtracts a pattern from the budget.
    ///
    /// # Errors
    /// The reason why it is not checked.
    fn take(&mut self, pattern: &str) -> Result<(), UncheckedReason> {
        if self.0 < PATTERN_BYTES_MIN {
            return Err(UncheckedReason::TooLarge);
        }
        // A refused pattern was compiled too, so it is also charged.
        let (taken, outcome) = self.price(pattern);
        self.0 = self.0.saturating_sub(taken.max(PATTERN_BYTES_MIN));
        outcome
    }

    /// Returns the size of a pattern in bytes, and whether it is checked.
    fn price(&self, pattern: &str) -> (usize, Result<(), UncheckedReason>) {
        let escapes = pattern.bytes().filter(|byte| *byte == b'\\').count();
        if pattern.len() > PATTERN_TEXT_MAX || escapes > ESCAPES_MAX {
            return (0, Err(UncheckedReason::TooLarge));
        }
        let Ok(translated) = jsonschema_regex::to_rust_regex(pattern) else {
            return (0, Err(UncheckedReason::Unsupported));
        };
        let room = self.0.min(PATTERN_BYTES_MAX);
        let limits = thompson::Config::new().nfa_size_limit(Some(room));
        match NFA::compiler().configure(limits).build(&translated) {
            Ok(nfa) => (nfa.memory_usage(), Ok(())),
            Err(error) if error.size_limit().is_some() => (room, Err(UncheckedReason::TooLarge)),
            Err(_) => (0, Err(UncheckedReason::Unsupported)),
        }
    }
}

/// Returns the schema without the patterns that cannot be checked, and these patterns.
pub(super) fn compilable(schema: &Value, budget: &mut Budget) -> (Value, Vec<Unchecked>) {
    let mut schema = schema.clone();
    let mut walk = Walk { budget, unchecked: Vec::new(), at: String::new() };
    walk.schema(&mut schema);
    let unchecked = walk.unchecked;
    if !unchecked.is_empty() {
        loosen(&mut schema);
    }
    (schema, unchecked)
}

struct Walk<'a> {
    budget: &'a mut Budget,
    unchecked: Vec<Unchecked>,
    /// The current position of the walk, as a JSON Pointer.
    at: String,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &mut Value) {
        if let Value::Array(items) = schema {
            items.iter_mut().for_each(|item| self.schema(item));
            return;
        }
        if let Value::Object(fields) = schema {
            if let Some(Value::String(pattern)) = fields.get("pattern")
                && self.is_left_out("pattern", &pattern.clone())
            {
                fields.remove("pattern");
            }
            if let Some(Value::Object(patterns)) = fields.get_mut("patternProperties") {
                let before = patterns.len();
                patterns.retain(|pattern, _| !self.is_left_out(&step("patternProperties", pattern), pattern));
                if patterns.len() < before {
                    // The properties that the pattern would have matched are not additional ones.
                    fields.remove("additionalProperties");
                }
            }
        }
        each_schema(schema, &mut |name, schema| {
            let length = self.at.len();
            self.at.push('/');
            self.at.push_str(name);
            self.schema(schema);
            self.at.truncate(length);
        });
    }

    /// Subtracts a pattern from the budget. If it must be left out, records that and returns true.
    fn is_left_out(&mut self, name: &str, pattern: &str) -> bool {
        let Err(reason) = self.budget.take(pattern) else { return false };
        if self.unchecked.len() < REPORTED_MAX {
            let at = format!("{}/{name}", self.at).chars().take(PLACE_CHARS_MAX).collect();
            self.unchecked.push(Unchecked { at, reason });
        }
        true
    }
}

/// Removes the keywords for which accepting more inside means accepting less outside.
fn loosen(schema: &mut Value) {
    if let Value::Object(fields) = schema {
        TURNING.iter().for_each(|keyword| drop(fields.remove(*keyword)));
    }
    each_schema(schema, &mut |_, schema| loosen(schema));
}

/// Calls `visit` for each schema directly inside a schema, with the path to it as steps of a JSON Pointer.
fn each_schema(schema: &mut Value, visit: &mut dyn FnMut(&str, &mut Value)) {
    let Value::Object(fields) = schema else { return };
    for (keyword, field) in fields {
        match (keyword.as_str(), field) {
            // This is data, in which `pattern` may be any name.
            ("const" | "enum" | "default" | "example" | "examples" | "required" | "dependentRequired", _) => {}
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies",
                Value::Object(schemas),
            ) => named(keyword, schemas, visit),
            (_, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    visit(&format!("{}/{index}", escaped(keyword)), item);
                }
            }
            (_, field @ Value::Object(_)) => visit(&escaped(keyword), field),
            _ => {}
        }
    }
}

fn named(keyword: &str, schemas: &mut Map<String, Value>, visit: &mut dyn FnMut(&str, &mut Value)) {
    for (name, schema) in schemas {
        visit(&step(keyword, name), schema);
    }
}

/// Returns two steps of a JSON Pointer.
fn step(keyword: &str, name: &str) -> String {
    format!("{keyword}/{}", escaped(name))
}

/// Escapes a name as RFC 6901 says.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
