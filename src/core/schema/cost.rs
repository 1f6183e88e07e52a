//! The cost of a schema: its size with every reference expanded, and the number of patterns that can apply to one
//! value.

use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum length of a chain of references.
const CHAIN_MAX: usize = 32;

/// Maximum nesting of a schema with every reference expanded. A validator is built and run by recursion, which takes
/// some kilobytes of stack per level. Schemas of real tools have less than 40 levels.
const DEPTH_MAX: usize = 64;

/// Maximum nesting of alternatives with every reference expanded. To describe an error, a validator tries the
/// alternatives of each level again.
const ALTERNATIVES_DEPTH_MAX: usize = 8;

/// Maximum nesting of schemas with `unevaluatedProperties` or `unevaluatedItems`. Each level queries the levels inside
/// it again.
const UNEVALUATED_DEPTH_MAX: usize = 2;

/// Keywords that read a whole text, or compare items; they cost as much as a pattern.
const READING: [&str; 6] = ["format", "minLength", "maxLength", "uniqueItems", "contentEncoding", "contentMediaType"];

/// Keywords that hold schemas by name.
pub(super) const BY_NAME: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// Keywords that hold one schema or a list of them.
pub(super) const WITH_SCHEMAS: [&str; 15] = [
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];

/// The cost of a schema with every reference expanded.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    /// Values of the schema. No more rules than these can apply to one value.
    pub values: u64,
    /// The patterns that apply to the value itself.
    here: u64,
    /// The most patterns that can apply to any one value inside it.
    below: u64,
    /// Levels of nesting.
    depth: usize,
    /// Levels of nested alternatives.
    alternatives: usize,
    /// Levels of nested schemas with unevaluated properties or items.
    unevaluated: usize,
}

impl Cost {
    /// Computes the cost of a schema.
    ///
    /// # Errors
    /// The error is a predicate whose subject is the parameters. It is for references that lead nowhere, in cycles or
    /// through too long a chain, and for nesting that is too deep.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        let cost = Unfolding { schema, costs: BTreeMap::new(), open: Vec::new(), depth: 0 }.cost(schema)?;
        if cost.depth > DEPTH_MAX {
            return Err(too_deep());
        }
        if cost.unevaluated > UNEVALUATED_DEPTH_MAX {
            let nested = cost.unevaluated;
            return Err(format!(
                "nest unevaluatedProperties or unevaluatedItems {nested} deep, more than {UNEVALUATED_DEPTH_MAX}"
            ));
        }
        if cost.alternatives > ALTERNATIVES_DEPTH_MAX {
            let nested = cost.alternatives;
            return Err(format!(
                "nest anyOf, oneOf, not and if {nested} deep with every reference expanded, more than \
                 {ALTERNATIVES_DEPTH_MAX}"
            ));
        }
        Ok(cost)
    }

    /// Returns the most patterns that can apply to one value of the arguments.
    pub(super) fn patterns(&self) -> u64 {
        self.here.max(self.below)
    }

    /// Includes the size and the nesting of a part.
    fn include(&mut self, part: &Self) {
        self.values = self.values.saturating_add(part.values);
        self.depth = self.depth.max(part.depth);
        self.alternatives = self.alternatives.max(part.alternatives);
        self.unevaluated = self.unevaluated.max(part.unevaluated);
    }

    /// Adds a keyword that reads a whole text.
    fn read_text(&mut self) {
        self.values = self.values.saturating_add(1);
        self.here = self.here.saturating_add(1);
    }

    /// Adds a schema for the same value.
    fn add(&mut self, part: &Self) {
        self.include(part);
        self.here = self.here.saturating_add(part.here);
        self.below = self.below.saturating_add(part.below);
    }
}

struct Unfolding<'a> {
    schema: &'a Value,
    /// Costs of the definitions expanded so far.
    costs: BTreeMap<&'a str, Cost>,
    /// References being expanded, outermost first.
    open: Vec<&'a str>,
    /// The depth of the walk, which is bounded as it goes.
    depth: usize,
}

fn too_deep() -> String {
    format!("are nested more than {DEPTH_MAX} deep with every reference expanded")
}

impl<'a> Unfolding<'a> {
    /// Computes the cost of a schema. If a keyword holds several schemas, computes the sum of their costs.
    fn cost(&mut self, value: &'a Value) -> Result<Cost, String> {
        if self.depth >= DEPTH_MAX {
            return Err(too_deep());
        }
        self.depth += 1;
        let cost = self.cost_of_parts(value);
        self.depth -= 1;
        cost
    }

    fn cost_of_parts(&mut self, value: &'a Value) -> Result<Cost, String> {
        let mut whole = Cost { values: 1, ..Cost::default() };
        match value {
            Value::Object(fields) => {
                for (keyword, field) in fields {
                    self.add_keyword(&mut whole, keyword, field)?;
                }
                let is_base = std::ptr::eq(value, self.schema);
                if !is_base && ["$id", "id"].iter().any(|id| fields.get(*id).is_some_and(Value::is_string)) {
                    return Err("have an `$id` below their root, which changes what references mean".to_owned());
                }
                whole.unevaluated += usize::from(fields.keys().any(|keyword| keyword.starts_with("unevaluated")));
            }
            Value::Array(items) => {
                for item in items {
                    whole.add(&self.cost(item)?);
                }
            }
            _ => {}
        }
        whole.depth += 1;
        Ok(whole)
    }

    fn add_keyword(&mut self, whole: &mut Cost, keyword: &str, field: &'a Value) -> Result<(), String> {
        match (keyword, field) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                whole.add(&self.reference(reference)?);
            }
            // Definitions are counted where they are referenced.
            ("$defs" | "definitions", _) => {}
            // A property's value is checked by one of these, and so is an item of a tuple.
            ("properties" | "prefixItems", _) => {
                let costs = self.each(field)?;
                costs.iter().for_each(|cost| whole.include(cost));
                let widest = costs.iter().map(Cost::patterns).max().unwrap_or_default();
                whole.below = whole.below.saturating_add(widest);
            }
            // All of them may apply to the same property, and its name is matched against each.
            ("patternProperties", _) => {
                for cost in self.each(field)? {
                    whole.include(&cost);
                    whole.below = whole.below.saturating_add(cost.patterns()).saturating_add(1);
                }
            }
            (
                "items"
                | "additionalItems"
                | "additionalProperties"
                | "propertyNames"
                | "contains"
                | "unevaluatedItems"
                | "unevaluatedProperties",
                _,
            ) => {
                let cost = self.cost(field)?;
                whole.include(&cost);
                whole.below = whole.below.saturating_add(cost.patterns());
            }
            // These are values to compare with.
            ("const" | "enum", _) => whole.values = whole.values.saturating_add(super::values_in(field)),
            ("pattern", Value::String(_)) => whole.read_text(),
            _ if READING.contains(&keyword) => whole.read_text(),
            ("dependentSchemas" | "dependencies", _) => {
                self.each(field)?.iter().for_each(|cost| whole.add(cost));
            }
            // These are schemas for the same value, and data that is no schema.
            _ => {
                let mut cost = self.cost(field)?;
                cost.alternatives += usize::from(matches!(keyword, "anyOf" | "oneOf" | "not" | "if"));
                whole.add(&cost);
            }
        }
        Ok(())
    }

    /// Computes the costs of the schemas in an object or array.
    fn each(&mut self, field: &'a Value) -> Result<Vec<Cost>, String> {
        match field {
            Value::Object(fields) => fields.values().map(|schema| self.cost(schema)).collect(),
            Value::Array(items) => items.iter().map(|schema| self.cost(schema)).collect(),
            _ => Ok(Vec::new()),
        }
    }

    fn reference(&mut self, reference: &'a str) -> Result<Cost, String> {
        if let Some(cost) = self.costs.get(reference) {
            return Ok(*cost);
        }
        let shown: String = reference.chars().take(80).collect();
        if self.open.contains(&reference) {
            return Err(format!("have a recursive definition, `{shown}`; expand it to the depth that you need"));
        }
        if self.open.len() >= CHAIN_MAX {
            return Err(format!("have a chain of more than {CHAIN_MAX} references, at `{shown}`"));
        }
        let place = reference.strip_prefix('#').and_then(|pointer| self.schema.pointer(pointer));
        let Some(definition) = place else {
            return Err(format!("reference `{shown}`, which they do not contain; put the definition below `$defs`"));
        };
        if !leads_to_a_schema(reference) {
            return Err(format!("reference `{shown}`, which is no place for a schema; put it below `$defs`"));
        }
        self.open.push(reference);
        let cost = self.cost(definition)?;
        self.open.pop();
        self.costs.insert(reference, cost);
        Ok(cost)
    }
}

/// Returns true if a reference leads only from schema to schema, without percent-encoding. Then every walk sees its
/// target as a schema, and every reader understands it in the same way.
fn leads_to_a_schema(reference: &str) -> bool {
    let mut steps = reference.strip_prefix('#').unwrap_or_default().split('/').skip(1).peekable();
    while let Some(keyword) = steps.next() {
        if BY_NAME.contains(&keyword) {
            if steps.next().is_none() {
                return false;
            }
        } else if WITH_SCHEMAS.contains(&keyword) {
            steps.next_if(|step| step.bytes().all(|byte| byte.is_ascii_digit()));
        } else {
            return false;
        }
    }
    !reference.contains('%')
}
