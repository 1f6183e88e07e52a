//! `truncate`: the oldest turns are left out whole. The model is never asked.

use crate::core::context::{
    ContextManager,
    strategy::{Options, Planning, Step},
};

/// Leaves out the oldest turns until the target is met, and no more. What must stay stays beside the rest; a summary
/// that another strategy made stays too.
#[derive(Debug, Clone)]
pub struct Truncate {
    options: Options,
}

impl Truncate {
    /// With these settings.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl ContextManager for Truncate {
    fn name(&self) -> &'static str {
        "truncate"
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn summarises(&self) -> bool {
        false
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<Step> {
        planning.oldest_out().map(Step::Truncate).into_iter().collect()
    }
}
