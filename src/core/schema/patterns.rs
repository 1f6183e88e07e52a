//! The patterns of a schema: kept where a linear engine takes them within the budget, left out otherwise.
//!
//! Schemas of real tools have lookaheads (zod writes them for e-mail addresses), which no linear engine has. Such a
//! pattern is left out of the schema that arguments are checked against, which then accepts more, never less: keywords
//! that turn a looser schema into a stricter one are left out with it.

use super::Unchecked;
use regex_automata::nfa::thompson::{self, NFA};
use reseed_protocol::reply::UncheckedReason;
use serde_json::{Map, Value};

/// Maximum bytes of one compiled pattern. `^[\\w.-]{1,64}$` takes 15 KB.
const PATTERN_BYTES_MAX: usize = 128 * 1024;

/// Maximum bytes that the compiled patterns of one offer take together.
const OFFER_BYTES_MAX: usize = 1024 * 1024;

/// What each pattern counts at least, in bytes: the engine needs more than the automaton. So an offer has at most 512.
const PATTERN_BYTES_MIN: usize = 2 * 1024;

/// Keywords that turn a looser schema into a stricter one.
const TURNING: [&str; 8] =
    ["not", "if", "then", "else", "oneOf", "maxContains", "unevaluatedItems", "unevaluatedProperties"];

/// What is left for the patterns of one offer, in bytes.
#[derive(Debug)]
pub(super) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(OFFER_BYTES_MAX)
    }
}

impl Budget {
    /// Takes a pattern from the budget.
    ///
    /// # Errors
    /// Why it is not checked.
    fn take(&mut self, pattern: &str) -> Result<(), UncheckedReason> {
        let translated = jsonschema_regex::to_rust_regex(pattern).map_err(|()| UncheckedReason::Unsupported)?;
        let room = self.0.min(PATTERN_BYTES_MAX);
        if room < PATTERN_BYTES_MIN {
            return Err(UncheckedReason::TooLarge);
        }
        let limits = thompson::Config::new().nfa_size_limit(Some(room));
        match NFA::compiler().configure(limits).build(&translated) {
            Ok(nfa) => {
                self.0 = self.0.saturating_sub(nfa.memory_usage().max(PATTERN_BYTES_MIN));
                Ok(())
            }
            Err(error) if error.size_limit().is_some() => Err(UncheckedReason::TooLarge),
            Err(_) => Err(UncheckedReason::Unsupported),
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
    /// Where the walk is: a JSON Pointer.
    at: String,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &mut Value) {
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

    /// Takes a pattern from the budget. Returns true if it is left out, and notes so.
    fn is_left_out(&mut self, name: &str, pattern: &str) -> bool {
        let Err(reason) = self.budget.take(pattern) else { return false };
        self.unchecked.push(Unchecked { at: format!("{}/{name}", self.at), reason });
        true
    }
}

/// Removes the keywords that turn a looser schema into a stricter one.
fn loosen(schema: &mut Value) {
    if let Value::Object(fields) = schema {
        TURNING.iter().for_each(|keyword| drop(fields.remove(*keyword)));
    }
    each_schema(schema, &mut |_, schema| loosen(schema));
}

/// Calls `visit` for each schema directly in a schema, with the way to it as steps of a JSON Pointer.
fn each_schema(schema: &mut Value, visit: &mut dyn FnMut(&str, &mut Value)) {
    let Value::Object(fields) = schema else { return };
    for (keyword, field) in fields {
        match (keyword.as_str(), field) {
            // Data, in which `pattern` is any name.
            ("const" | "enum" | "default" | "example" | "examples" | "required" | "dependentRequired", _) => {}
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies",
                Value::Object(schemas),
            ) => named(keyword, schemas, visit),
            (_, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    visit(&format!("{keyword}/{index}"), item);
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
