//! Tools as the core sees them: who runs them, and what they answer. How they are reached is decided elsewhere.

use reseed_protocol::command::{ToolAnnotations, ToolOffer};

pub use reseed_protocol::event::ToolPlace;

/// The result of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Text for the model. What is too long is cut.
    pub text: String,
    /// Images, as `data:` URLs.
    pub images: Vec<String>,
    /// True if the tool failed.
    pub is_error: bool,
}

impl Output {
    /// Returns a result of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Returns a failure, with what went wrong for the model to read.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, ..Self::default() }
    }
}

/// The terms of a call: who runs it, for how long, and beside which others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Who runs it.
    pub place: ToolPlace,
    /// The tool's own time limit in milliseconds, if it has one.
    pub timeout_ms: Option<u64>,
    /// True if it runs only while no other sequential call does.
    pub sequential: bool,
    /// What the tool does to the world, by its own account.
    pub annotations: ToolAnnotations,
}

impl Terms {
    /// Returns the terms of a tool that is offered by whoever runs it there.
    #[must_use]
    pub fn of(offer: &ToolOffer, place: ToolPlace) -> Self {
        Self {
            place,
            timeout_ms: offer.timeout_ms,
            sequential: offer.sequential == Some(true),
            annotations: offer.annotations.unwrap_or_default(),
        }
    }
}
