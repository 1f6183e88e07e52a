//! Which window each model has in this deployment.
//!
//! - The model that the deployment starts with: `MODEL_WINDOWS` where it names it, else `CONTEXT_WINDOW`, the provider's
//!   list, the table.
//! - Every other one: `MODEL_WINDOWS` where it names it, else the provider's list, the table. One that is named nowhere is
//!   taken to have `CONTEXT_WINDOW` too, which those who see it say: it may be wrong.

use crate::core::context::window::{Window, WindowSource, resolve};
use std::collections::BTreeMap;

/// No model worth the name has a smaller window, and no system prompt with a question fits into less.
pub const WINDOW_TOKENS_MIN: u64 = 512;

/// The window that is taken for a session whose model is no longer known, so that it can still be opened and given
/// another model.
const WINDOW_TOKENS_UNKNOWN: u64 = 8_192;

/// What is known of windows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Windows {
    context_window: Option<u64>,
    /// The model whose window `context_window` is.
    own: Option<String>,
    named: BTreeMap<String, u64>,
    listed: Vec<(String, Option<u64>)>,
}

impl Windows {
    /// `CONTEXT_WINDOW`, where it is set, and the provider's list.
    #[must_use]
    pub fn new(context_window: Option<u64>, listed: Vec<(String, Option<u64>)>) -> Self {
        Self { context_window, listed, ..Self::default() }
    }

    /// With the deployment's own model, whose window `CONTEXT_WINDOW` is whatever else names it.
    #[must_use]
    pub fn with_own(self, model: &str) -> Self {
        Self { own: Some(model.to_owned()), ..self }
    }

    /// With the windows that `MODEL_WINDOWS` gives to models by name.
    #[must_use]
    pub fn with_named(self, named: BTreeMap<String, u64>) -> Self {
        Self { named, ..self }
    }

    /// The window of this model, and where that comes from; `None` where nothing tells it.
    #[must_use]
    pub fn window(&self, model: &str) -> Option<Window> {
        let own = self.context_window.filter(|_| self.own.as_deref() == Some(model));
        let configured = self.named.get(model).copied().or(own);
        resolve(model, configured, &self.listed, self.context_window)
    }

    /// Whether the window of this model is known.
    #[must_use]
    pub fn knows(&self, model: &str) -> bool {
        self.window(model).is_some()
    }

    /// The window of this model, in tokens.
    #[must_use]
    pub fn tokens(&self, model: &str) -> u64 {
        self.window(model).map_or(WINDOW_TOKENS_UNKNOWN, |window| window.tokens).max(WINDOW_TOKENS_MIN)
    }

    /// A warning where nothing names this model, with the window that is taken for it.
    #[must_use]
    pub fn warning(&self, model: &str) -> Option<String> {
        let taken = match self.window(model) {
            Some(window) if window.source == WindowSource::Assumed => "CONTEXT_WINDOW is taken for it",
            Some(_) => return None,
            None => "one is taken for it",
        };
        let tokens = self.tokens(model);
        Some(format!("the window of `{model}` is not known; {taken}, {tokens} tokens; name it in MODEL_WINDOWS"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_its_own_window_and_only_one_that_is_named_nowhere_is_warned_about() {
        let listed = vec![("listed".to_owned(), Some(30_000)), ("main".to_owned(), Some(40_000))];
        let named = BTreeMap::from([("small".to_owned(), 2_000), ("gpt-4o".to_owned(), 60_000)]);
        let windows = |context_window| Windows::new(context_window, listed.clone()).with_own("main");
        let table = [
            // context window, named; model: window, warned
            (Some(9_000), true, "main", Some(9_000), false),
            (None, true, "main", Some(40_000), false),
            (Some(9_000), true, "small", Some(2_000), false),
            (Some(9_000), true, "gpt-4o", Some(60_000), false),
            (Some(9_000), false, "gpt-4o", Some(128_000), false),
            (Some(9_000), false, "listed", Some(30_000), false),
            (Some(9_000), false, "mystery", Some(9_000), true),
            (None, false, "mystery", None, true),
        ];
        for (context_window, is_named, model, tokens, is_warned) in table {
            let windows = windows(context_window).with_named(if is_named { named.clone() } else { BTreeMap::new() });
            let found = (windows.window(model).map(|window| window.tokens), windows.warning(model).is_some());
            assert_eq!(found, (tokens, is_warned), "{context_window:?} {is_named} {model}");
            assert_eq!(windows.tokens(model), tokens.unwrap_or(WINDOW_TOKENS_UNKNOWN));
        }
        let both = windows(Some(9_000)).with_named(BTreeMap::from([("main".to_owned(), 7_000)]));
        assert_eq!(both.tokens("main"), 7_000, "what names the model is surer");
        let warning = windows(Some(9_000)).warning("mystery").unwrap();
        assert!(warning.contains("`mystery`") && warning.contains("9000") && warning.contains("MODEL_WINDOWS"));
    }
}
