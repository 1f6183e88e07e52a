//! Tools in the core: where they run, and their results. Reaching them is handled elsewhere.

use reseed_protocol::tools::{ToolAnnotations, ToolOffer};

pub use reseed_protocol::tools::ToolPlace;

/// The result of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Text for the model; cut if it is too long.
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

    /// Returns a failure with a description for the model.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, ..Self::default() }
    }
}

/// The terms of a call: where it runs, for how long, and in parallel with which others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The side that runs it.
    pub place: ToolPlace,
    /// The tool's own time limit in milliseconds, if it has one.
    pub timeout_ms: Option<u64>,
    /// True if it runs only while no other sequential call does.
    pub sequential: bool,
    /// True if the call ends the turn, and the client gives its result with the next input.
    pub ends_turn: bool,
    /// The tool's effects according to its own description.
    pub annotations: ToolAnnotations,
}

impl Terms {
    /// Returns the terms of a tool that is offered at this place.
    #[must_use]
    pub fn of(offer: &ToolOffer, place: ToolPlace) -> Self {
        Self {
            place,
            timeout_ms: offer.timeout_ms,
            sequential: offer.sequential == Some(true),
            ends_turn: offer.ends_turn == Some(true) && place == ToolPlace::Client,
            annotations: offer.annotations.unwrap_or_default(),
        }
    }
}
