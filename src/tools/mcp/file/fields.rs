//! The fields of one server in `MCP_FILE`. They are taken one by one, and those that are left were not understood.

use super::super::variables::{Secrets, substitute};
use crate::config::listed::Variable;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, ops::RangeInclusive};

/// Maximum number of items in a list, such as `args`.
const ITEMS_MAX: usize = 1_000;

/// The fields that have not been taken yet.
pub(super) struct Fields<'a> {
    left: Map<String, Value>,
    variable: Variable<'a>,
    secrets: Secrets,
}

impl<'a> Fields<'a> {
    pub(super) fn new(fields: Map<String, Value>, variable: Variable<'a>) -> Self {
        Self { left: fields, variable, secrets: Secrets::default() }
    }

    /// Returns true if a field is present.
    pub(super) fn has(&self, field: &str) -> bool {
        self.left.contains_key(field)
    }

    /// Returns a string as it is written in the file.
    pub(super) fn raw(&self, field: &str) -> Option<String> {
        self.left.get(field)?.as_str().map(str::to_owned)
    }

    /// Takes a boolean.
    pub(super) fn flag(&mut self, field: &str) -> Result<Option<bool>, String> {
        match self.left.remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(format!("`{field}` is not true or false")),
        }
    }

    /// Takes a string, with its variables replaced.
    pub(super) fn text(&mut self, field: &str) -> Result<Option<String>, String> {
        match self.left.remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => self.replaced(field, &text).map(Some),
            Some(_) => Err(format!("`{field}` is not a string")),
        }
    }

    /// Takes a list of strings, under the first of these names that is present.
    pub(super) fn texts(&mut self, names: &[&str]) -> Result<Option<Vec<String>>, String> {
        let Some(field) = names.iter().find(|field| self.has(field)) else { return Ok(None) };
        let Some(Value::Array(items)) = self.left.remove(*field) else {
            return Err(format!("`{field}` is not a list"));
        };
        if items.len() > ITEMS_MAX {
            return Err(format!("`{field}` has {} items; at most {ITEMS_MAX} are allowed", items.len()));
        }
        let texts = items.into_iter().enumerate().map(|(at, item)| match item {
            Value::String(text) => self.replaced(&format!("{field}[{at}]"), &text),
            _ => Err(format!("`{field}[{at}]` is not a string")),
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// Takes an object of strings, whose values are secrets.
    pub(super) fn map(&mut self, field: &str) -> Result<BTreeMap<String, String>, String> {
        let items = match self.left.remove(field) {
            None | Some(Value::Null) => return Ok(BTreeMap::new()),
            Some(Value::Object(items)) => items,
            Some(_) => return Err(format!("`{field}` is not an object")),
        };
        if items.len() > ITEMS_MAX {
            return Err(format!("`{field}` has {} items; at most {ITEMS_MAX} are allowed", items.len()));
        }
        let mut texts = BTreeMap::new();
        for (name, item) in items {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
            let Value::String(text) = item else { return Err(format!("`{field}.{shown}` is not a string")) };
            let text = self.replaced(&format!("{field}.{shown}"), &text)?;
            self.secrets.add(&text);
            texts.insert(name, text);
        }
        Ok(texts)
    }

    /// Takes a time in milliseconds, under the first of these names that is present.
    pub(super) fn millis(&mut self, names: &[&str], allowed: RangeInclusive<u64>) -> Result<Option<u64>, String> {
        let Some(field) = names.iter().find(|field| self.has(field)) else { return Ok(None) };
        let value = self.left.remove(*field);
        match value.as_ref().and_then(Value::as_u64) {
            Some(millis) if allowed.contains(&millis) => Ok(Some(millis)),
            _ => {
                let (least, most) = allowed.into_inner();
                Err(format!("`{field}` is in milliseconds; allowed: a whole number from {least} to {most}"))
            }
        }
    }

    /// Returns the secrets found so far.
    pub(super) fn secrets(&self) -> Secrets {
        self.secrets.clone()
    }

    /// Returns the names of the fields that were not taken.
    pub(super) fn rest(&self) -> Vec<String> {
        let names = self.left.keys().take(16);
        names.map(|name| name.chars().filter(|c| !c.is_control()).take(64).collect()).collect()
    }

    fn replaced(&mut self, place: &str, text: &str) -> Result<String, String> {
        substitute(text, self.variable, &mut self.secrets).map_err(|wrong| format!("`{place}` {wrong}"))
    }
}
