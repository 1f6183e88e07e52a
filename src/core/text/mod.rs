//! Cleaning, masking, escaping and clipping of texts; the files that tool calls name.

pub mod clean;
pub mod clip;
pub mod escape;
pub mod files;
mod fold;
pub mod secrets;

use clean::clean;
use secrets::mask_secrets;
use std::borrow::Cow;

/// Prepares a text for a summary or a summariser: removes invisible characters and secrets.
pub(crate) fn presentable(text: &str) -> Cow<'_, str> {
    match clean(text) {
        Cow::Borrowed(text) => mask_secrets(text),
        Cow::Owned(text) => Cow::Owned(mask_secrets(&text).into_owned()),
    }
}
