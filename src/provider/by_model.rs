//! Two providers side by side. The beginning of a model's name says which one serves it.

use super::{AnswerFuture, DeltaSink, ModelsFuture, Provider, Slots};
use crate::core::{model::ModelRequest, prewarm::CacheTerms};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

/// Sends each request to the provider of its model.
pub(crate) struct ByModel {
    first: Arc<dyn Provider>,
    other: Arc<dyn Provider>,
    prefix: &'static str,
    /// The models with the prefix that the first one has listed: routers name their models like this.
    own: Mutex<BTreeSet<String>>,
}

impl ByModel {
    /// Creates the pair. `other` gets the requests to models whose names begin with `prefix`, except for those that
    /// `first` lists itself.
    pub(crate) fn new(first: Arc<dyn Provider>, other: Arc<dyn Provider>, prefix: &'static str) -> Self {
        Self { first, other, prefix, own: Mutex::default() }
    }

    /// Returns the provider of a model.
    fn of(&self, model: &str) -> &dyn Provider {
        let is_own = || self.own.lock().unwrap_or_else(PoisonError::into_inner).contains(model);
        if model.starts_with(self.prefix) && !is_own() { &*self.other } else { &*self.first }
    }
}

impl Provider for ByModel {
    fn name(&self) -> &'static str {
        self.first.name()
    }

    fn name_of(&self, model: &str) -> &'static str {
        self.of(model).name()
    }

    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
        self.of(&request.model).answer(request, sink)
    }

    /// Lists the models of both, each under the name by which it is reached. If only the other one cannot be read, the
    /// list lacks its models.
    fn models(&self) -> ModelsFuture<'_> {
        Box::pin(async move {
            let (first, other) = tokio::join!(self.first.models(), self.other.models());
            let mut models = first?;
            let ids = models.iter().map(|model| &model.id);
            let own: BTreeSet<String> = ids.filter(|id| id.starts_with(self.prefix)).cloned().collect();
            match other {
                Ok(mut other) => {
                    other.iter_mut().for_each(|model| model.id.insert_str(0, self.prefix));
                    other.retain(|model| !own.contains(&model.id));
                    models.append(&mut other);
                }
                Err(fault) => tracing::warn!(prefix = self.prefix, "the models cannot be listed: {}", fault.message),
            }
            *self.own.lock().unwrap_or_else(PoisonError::into_inner) = own;
            Ok(models)
        })
    }

    fn cache(&self, model: &str) -> Option<CacheTerms> {
        self.of(model).cache(model)
    }

    fn slots(&self) -> Slots {
        self.first.slots()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{core::model::Takes, provider::ListedModel};

    /// A provider with a name and models.
    struct Listing(&'static str, &'static [&'static str]);

    impl Provider for Listing {
        fn name(&self) -> &'static str {
            self.0
        }

        fn answer<'a>(&'a self, _: &'a ModelRequest, _: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
            unreachable!("nothing is asked")
        }

        fn models(&self) -> ModelsFuture<'_> {
            let takes = Takes { tools: None, images: None };
            let listed = self.1.iter().map(|id| ListedModel { id: (*id).to_owned(), window_tokens: None, takes });
            let listed: Vec<ListedModel> = listed.collect();
            Box::pin(async move { Ok(listed) })
        }
    }

    #[tokio::test]
    async fn the_first_one_keeps_what_it_lists() {
        let first = Listing("router", &["gpt", "anthropic/claude-a"]);
        let pair = ByModel::new(Arc::new(first), Arc::new(Listing("other", &["claude-a", "claude-b"])), "anthropic/");
        assert_eq!(pair.of("anthropic/claude-a").name(), "other");
        let models = pair.models().await.unwrap();
        let ids: Vec<&str> = models.iter().map(|model| model.id.as_str()).collect();
        assert_eq!(ids, ["gpt", "anthropic/claude-a", "anthropic/claude-b"]);
        for (model, served_by) in [
            ("gpt", "router"),
            ("claude-b", "router"),
            ("anthropic/claude-a", "router"),
            ("anthropic/claude-b", "other"),
            ("anthropic/claude-c", "other"),
        ] {
            assert_eq!(pair.of(model).name(), served_by, "{model}");
        }
    }
}
