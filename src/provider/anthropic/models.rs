//! Reads the model list: each model's window, its output limit, and what it accepts.

use crate::{core::model::Takes, provider::ListedModel};
use serde::Deserialize;
use serde_json::Value;

/// A model list. Only its first page is read, which has up to 1,000 models.
#[derive(Debug, Deserialize)]
struct List {
    data: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    id: String,
    #[serde(default)]
    max_input_tokens: Option<u64>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    capabilities: Value,
}

/// What a request to a model depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// The most tokens that it can answer with.
    pub(super) output_tokens: Option<u64>,
    /// True if it thinks only within a budget of tokens, and does not choose for itself how much to think.
    pub(super) needs_budget: bool,
    /// True if it is known not to take an effort.
    pub(super) lacks_effort: bool,
    /// True if it is known to have no compaction of its own.
    pub(super) lacks_compaction: bool,
}

/// Returns the models of a list, each with its limits; `None` if it is not a model list.
pub(super) fn read(body: &[u8]) -> Option<Vec<(ListedModel, Limits)>> {
    let list: List = serde_json::from_slice(body).ok()?;
    Some(list.data.into_iter().map(model).collect())
}

fn model(entry: Entry) -> (ListedModel, Limits) {
    let Entry { id, max_input_tokens, max_tokens, capabilities } = entry;
    let can = |place: &str| capabilities.pointer(&format!("{place}/supported"))?.as_bool();
    let takes = Takes { tools: None, images: can("/image_input") };
    let limits = Limits {
        output_tokens: max_tokens.filter(|tokens| *tokens > 0),
        needs_budget: can("/thinking/types/adaptive") == Some(false) && can("/thinking/types/enabled") == Some(true),
        lacks_effort: can("/effort") == Some(false),
        lacks_compaction: can("/compaction") == Some(false),
    };
    (ListedModel { id, window_tokens: max_input_tokens.filter(|tokens| *tokens > 0), takes }, limits)
}

/// Returns true if a listed name is the given one with a date: `claude-opus-4-5` is `claude-opus-4-5-20251101`.
pub(crate) fn is_dated(listed: &str, name: &str) -> bool {
    let date = listed.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    date.is_some_and(|date| date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_windows_limits_and_capabilities() {
        let body = br#"{"data":[
            {"type":"model","id":"claude-opus-5-5","display_name":"x","max_input_tokens":1000000,"max_tokens":128000,
             "capabilities":{"image_input":{"supported":true},"effort":{"supported":true},
             "thinking":{"supported":true,"types":{"adaptive":{"supported":true},"enabled":{"supported":false}}}}},
            {"type":"model","id":"claude-haiku-4-5-20251001","max_input_tokens":200000,"max_tokens":64000,
             "capabilities":{"compaction":{"supported":false},"image_input":{"supported":false},"effort":{"supported":false},
             "thinking":{"supported":true,"types":{"adaptive":{"supported":false},"enabled":{"supported":true}}}}},
            {"type":"model","id":"old","capabilities":null,"max_tokens":null}],"has_more":false}"#;
        let found = read(body).unwrap();
        let flat: Vec<_> = found
            .iter()
            .map(|(model, limits)| (model.id.as_str(), model.window_tokens, model.takes.images, *limits))
            .collect();
        let limits = |output_tokens, needs_budget, lacks_effort| Limits {
            output_tokens,
            needs_budget,
            lacks_effort,
            lacks_compaction: lacks_effort,
        };
        assert_eq!(
            flat,
            [
                ("claude-opus-5-5", Some(1_000_000), Some(true), limits(Some(128_000), false, false)),
                ("claude-haiku-4-5-20251001", Some(200_000), Some(false), limits(Some(64_000), true, true)),
                ("old", None, None, Limits::default()),
            ]
        );
        assert!(read(b"<html>").is_none() && read(br#"{"error":{}}"#).is_none());
    }

    #[test]
    fn a_name_without_its_date_is_the_same() {
        assert!(is_dated("claude-haiku-4-5-20251001", "claude-haiku-4-5"));
        assert!(
            !is_dated("claude-haiku-4-5-20251001", "claude-haiku-4") && !is_dated("claude-opus-5-5", "claude-opus-5")
        );
    }
}
