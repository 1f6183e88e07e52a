//! Two providers side by side. The beginning of a model's name says which one serves it.

use super::{AnswerFuture, DeltaSink, ModelsFuture, Provider, Slots};
use crate::core::model::ModelRequest;
use std::sync::Arc;

/// Sends each request to the provider of its model.
pub(crate) struct ByModel {
    first: Arc<dyn Provider>,
    other: Arc<dyn Provider>,
    prefix: &'static str,
}

impl ByModel {
    /// Creates the pair. `other` gets the requests to models whose names begin with `prefix`.
    pub(crate) fn new(first: Arc<dyn Provider>, other: Arc<dyn Provider>, prefix: &'static str) -> Self {
        Self { first, other, prefix }
    }
}

impl Provider for ByModel {
    fn name(&self) -> &'static str {
        self.first.name()
    }

    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
        let is_of_other = request.model.starts_with(self.prefix);
        if is_of_other { self.other.answer(request, sink) } else { self.first.answer(request, sink) }
    }

    /// Lists the models of both, each under the name by which it is reached. If only the other one cannot be read, the
    /// list lacks its models.
    fn models(&self) -> ModelsFuture<'_> {
        Box::pin(async move {
            let (first, other) = tokio::join!(self.first.models(), self.other.models());
            let mut models = first?;
            models.retain(|model| !model.id.starts_with(self.prefix));
            match other {
                Ok(mut other) => {
                    other.iter_mut().for_each(|model| model.id.insert_str(0, self.prefix));
                    models.append(&mut other);
                }
                Err(fault) => tracing::warn!(prefix = self.prefix, "the models cannot be listed: {}", fault.message),
            }
            Ok(models)
        })
    }

    fn slots(&self) -> Slots {
        self.first.slots()
    }
}
