//! What extracts and summaries need to know of texts: words and sentences, the sections of a summary, and how a text is
//! cleaned, masked, escaped and clipped. It imports nothing else of the context.

pub mod clean;
pub mod clip;
pub mod escape;
pub mod files;
mod fold;
pub mod headings;
pub mod secrets;
pub mod sections;
pub mod sentences;
pub mod slot;
pub mod words;

use clean::clean;
use secrets::mask_secrets;
use std::borrow::Cow;

/// Prepares a text for a summary or a summariser: nothing invisible, no secrets.
pub(crate) fn presentable(text: &str) -> Cow<'_, str> {
    match clean(text) {
        Cow::Borrowed(text) => mask_secrets(text),
        Cow::Owned(text) => Cow::Owned(mask_secrets(&text).into_owned()),
    }
}
