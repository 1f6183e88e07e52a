//! The window of each model in this deployment.
//!
//! - The deployment's own model: `MODEL_WINDOWS` if it names the model, otherwise `CONTEXT_WINDOW`, the provider's
//!   list, the table.
//! - Any other model: `MODEL_WINDOWS` if it names the model, otherwise the provider's list, the table. A model that
//!   none of these names is assumed to have `CONTEXT_WINDOW` too, with a warning, because that may be wrong.

use crate::context::window::{Window, WindowSource, base_model, resolve};
use std::collections::BTreeMap;

/// Minimum window: no useful model has a smaller one, and no system prompt with a question fits into less.
pub const WINDOW_TOKENS_MIN: u64 = 512;

/// The window assumed for a model that no source names. It is small, so that a server with a usual window accepts what
/// is sent. The server may still reveal a smaller one.
const WINDOW_TOKENS_UNKNOWN: u64 = 8_192;

/// The known windows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Windows {
    context_window: Option<u64>,
    /// The model that `context_window` applies to.
    own: Option<String>,
    named: BTreeMap<String, u64>,
    listed: Vec<(String, Option<u64>)>,
}

impl Windows {
    /// Creates the table from `CONTEXT_WINDOW`, if set, and the provider's list.
    #[must_use]
    pub fn new(context_window: Option<u64>, listed: Vec<(String, Option<u64>)>) -> Self {
        Self { context_window, listed, ..Self::default() }
    }

    /// Sets the deployment's own model, for which `CONTEXT_WINDOW` takes precedence over the list.
    #[must_use]
    pub fn with_own(self, model: &str) -> Self {
        Self { own: Some(model.to_owned()), ..self }
    }

    /// Sets the windows that `MODEL_WINDOWS` configures by model name.
    #[must_use]
    pub fn with_named(self, named: BTreeMap<String, u64>) -> Self {
        Self { named, ..self }
    }

    /// Returns the window of a model with its source; `None` if no source names it.
    #[must_use]
    pub fn window(&self, model: &str) -> Option<Window> {
        let own = self.context_window.filter(|_| self.own.as_deref() == Some(model));
        let named = |model: &str| self.named.get(model).copied();
        let configured = named(model).or(own).or_else(|| named(base_model(model)?));
        resolve(model, configured, &self.listed, self.context_window)
    }

    /// Returns the models that are named: in `MODEL_WINDOWS`, then in the provider's list.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str).chain(self.listed.iter().map(|(model, _)| model.as_str()))
    }

    /// Returns true if the window of this model is known.
    #[must_use]
    pub fn knows(&self, model: &str) -> bool {
        self.window(model).is_some()
    }

    /// Returns the window of this model in tokens.
    #[must_use]
    pub fn tokens(&self, model: &str) -> u64 {
        self.window(model).map_or(WINDOW_TOKENS_UNKNOWN, |window| window.tokens).max(WINDOW_TOKENS_MIN)
    }

    /// Returns a warning if no source names this model, with the window assumed for it.
    #[must_use]
    pub fn warning(&self, model: &str) -> Option<String> {
        let taken = match self.window(model) {
            Some(window) if window.source == WindowSource::Assumed => "CONTEXT_WINDOW is assumed",
            Some(_) => return None,
            None => "a default is assumed",
        };
        let tokens = self.tokens(model);
        Some(format!("the window of `{model}` is unknown; {taken}, {tokens} tokens; set it in MODEL_WINDOWS"))
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
            // The columns are `CONTEXT_WINDOW`, whether the model is named, and the model; then the window and the
            // warning.
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
