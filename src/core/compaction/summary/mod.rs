//! Requests for summaries, and the rules for accepting them.
//!
//! - [`prompt`](fn@prompt) builds the request; [`check`](fn@check) accepts the answer or explains why not
//! - file lists are appended once ([`file_lists`]), and removed by [`strip_files`] before a summary is merged
//! - neither input nor output contains invisible characters ([`clean`](fn@clean)) or secrets ([`mask_secrets`])

mod check;
mod copy;
mod kind;
mod prompt;
mod repetition;

pub use crate::text::{
    clean::clean,
    files::{FileTools, file_lists, file_operations, strip_files},
    secrets::{MASK, mask_secrets},
};
pub use check::{Unusable, check};
pub use kind::recognise;
pub use prompt::{
    INSTRUCTIONS_BYTES_MAX, InPlaceParts, InPlaceRequest, PromptParts, QuotedRequest, SECTIONS, in_place, prompt,
    read_in_place, read_prompt, says_words_are_kept, system_prompt,
};
pub use repetition::{Repetition, before_repetition};
