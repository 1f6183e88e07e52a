//! Recognises which part of a request a server refused.
//!
//! Servers share no error codes for this, and each has its own sentences. They do share the names of the API:
//! `image_url`, `tools`, `messages[1].content[0].type`. So the tables ([`words`]) contain names. An API name counts
//! wherever it occurs. A plain word (`image`, `tools`) counts only next to a word of refusal. The names are only
//! guesses at what helps. The provider tries them, and keeps what did.
//!
//! A refusal is either about what the model accepts, or about this request alone: a damaged image, a tool's schema.
//! Nothing is learnt from the latter, because others share the model. If an error says neither, it counts as the
//! latter.

#[cfg(test)]
pub(super) mod tests;
mod words;

use super::said::{Said, joined};
use crate::core::need::{
    Need::{
        self, NewLimit, NoCompaction, NoFormat, NoImages, NoLimit, NoNative, NoOwnFields, NoSealed, NoStreamOptions,
        NoTools, OldLimit, ReasoningBack, ShortIds,
    },
    Needs, Refusal,
};
use reseed_protocol::ErrorCode;
use words::{
    CALLS, LACKING, LOOSE, MALFORMED, MANY_IMAGES, NAMES, NONE_TAKEN, OF_IMAGE, OF_SAMPLE, OF_TOOL, ONE_TOO_MANY,
    OUT_OF_RANGE, OUTPUTS, QUOTES, READINGS, REFUSES, SAYS_SO, WORDS, WRONG_TYPE,
};

/// The beginning of Anthropic's codes for what is wrong with a compaction, or with its result.
const OF_COMPACTION: &str = "compaction_";

/// The largest number that can be a number of images.
const IMAGES_MAX: u16 = 999;

/// Returns true if an error is about the form of a field, and therefore not about the size of the request.
#[must_use]
pub(super) fn is_of_form(said: &Said) -> bool {
    said.has(ONE_TOO_MANY) || said.has(WRONG_TYPE)
}

/// Returns true if a server could not read its model's output. This is not the request's fault, and the model may write
/// something else next time.
#[must_use]
pub(super) fn is_of_sample(said: &Said) -> bool {
    let names_message = said.has(&["messages[", "messages.", "message index"]);
    let is_read = said.names(CALLS) && said.names(READINGS) && said.names(QUOTES);
    let is_written = said.names(OUTPUTS) && said.names(MALFORMED);
    said.names(OF_SAMPLE) || ((is_read || is_written) && !names_message)
}

/// Returns the refusal for unreadable model output. If repeating the request does not help, it is sent without tools.
#[must_use]
pub(super) fn of_sample() -> Refusal {
    Refusal { needs: [NoTools].into(), of_request: Needs::of(&[NoTools]), of_sample: true, ..Refusal::default() }
}

/// Returns the refusal of a body with too many bytes. If there are images, they are most of them.
#[must_use]
pub(super) fn of_bytes() -> Refusal {
    let of_request = Needs::of(&[NoImages]);
    Refusal { needs: [NoImages].into(), of_request, images_max: Some(1), of_bytes: true, ..Refusal::default() }
}

/// Returns the parts of the request that an error with this code may be about.
#[must_use]
pub(super) fn read(said: &Said, code: ErrorCode) -> Refusal {
    let is_whole = code == ErrorCode::UpstreamRejected;
    // Proxies and failing servers answer with any text.
    if code == ErrorCode::UpstreamError && !said.is_json() {
        return Refusal::default();
    }
    let mut needs: Vec<Need> = Vec::new();
    let mut add = |found: &[Need]| {
        for need in found {
            if !needs.contains(need) {
                needs.push(*need);
            }
        }
    };
    // Only images make a content consist of parts.
    let names_type = |text: &str| is_path(text, ".type") && text.contains("content");
    // The field that the server names comes first, followed by the names in the order of the text.
    for text in [&said.param, &said.text] {
        if names_type(text) {
            add(&[NoImages]);
        }
        if is_path(text, ".id") {
            add(&[ShortIds]);
        }
        names_in(text).for_each(&mut add);
        if names_one_tool(text) {
            add(&[NoTools]);
        }
    }
    if said.has(REFUSES) {
        let loose = if is_whole { LOOSE } else { &[] };
        WORDS.iter().chain(loose).filter(|(word, _)| said.names(&[word])).for_each(|(_, found)| add(found));
    }
    if said.has(ONE_TOO_MANY) {
        add(&[NoOwnFields, NoStreamOptions]);
    }
    // The code says why this conversation cannot be compacted.
    if said.codes.contains(OF_COMPACTION) {
        add(&[NoCompaction]);
    }
    // A value that is out of range is so under either name.
    if said.has(OUT_OF_RANGE) && needs.contains(&NoLimit) {
        needs.retain(|need| !matches!(need, NewLimit | OldLimit));
    }
    if said.has(LACKING)
        && let Some(at) = needs.iter().position(|need| *need == ReasoningBack)
    {
        needs[..=at].rotate_right(1);
    }
    // A failing server may name anything. Nothing is learnt for other sessions from a transient failure.
    let is_passing = code == ErrorCode::UpstreamError && !said.has(SAYS_SO);
    let is_of_request = |need: &Need| is_passing || is_of_request(*need, said, names_type(&said.text));
    let of_request = needs.iter().copied().filter(is_of_request).fold(Needs::default(), Needs::with);
    let images_max = images_max(said).filter(|max| *max > 0 && of_request.has(NoImages));
    Refusal { needs: needs.into(), of_request, images_max, ..Refusal::default() }
}

/// Returns true if an error that names a part is about this request's content, and not about what the model accepts.
fn is_of_request(need: Need, said: &Said, names_type: bool) -> bool {
    match need {
        NoImages => {
            let wants_text = said.text.contains("content")
                && said.has(&["must be a string", "be a string", "valid string", "str type", "expected a string"]);
            let mut words = WORDS.iter().chain(NAMES);
            let names_images = words.any(|(word, needs)| needs.first() == Some(&NoImages) && said.names(&[word]));
            let takes_none = match images_max(said) {
                Some(max) => max == 0,
                None => names_images && said.has(NONE_TAKEN) && !said.has(OF_IMAGE),
            };
            !wants_text && !names_type && !takes_none
        }
        NoTools => !said.has(NONE_TAKEN) || said.has(OF_TOOL) || names_one_tool(&said.text),
        // Keys change, and reasoning sealed with old keys stays in the history.
        NoSealed => {
            said.names(&["invalidencryptedcontent", "invalidsignature", "redactedthinking", "verif", "decrypt"])
        }
        // Another schema may be accepted.
        NoFormat => said.names(&["schema"]),
        NoNative | NoCompaction => true,
        _ => false,
    }
}

/// Returns true if a text names a tool by its position: `tools[0].function`, `tools.0.custom`.
fn names_one_tool(text: &str) -> bool {
    text.match_indices("tools").any(|(at, word)| {
        let rest = &text[at + word.len()..];
        rest.strip_prefix(['[', '.']).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// Returns how many images a server accepts in one request, if it says that there are too many; 1 if it gives no
/// number.
fn images_max(said: &Said) -> Option<u16> {
    let is_of_size = said.has(&["byte", " mb", " kb", "mib", "size", "pixel", "dimension", "resolution"]);
    if !said.text.contains("image") || !said.has(MANY_IMAGES) || is_of_size {
        return None;
    }
    let line = said.text.lines().find(|line| line.contains("image")).unwrap_or_default();
    let numbers = line.split(|c: char| !c.is_alphanumeric()).filter_map(|word| word.parse::<u16>().ok());
    Some(numbers.filter(|number| *number <= IMAGES_MAX).min().unwrap_or(1))
}

/// Returns the needs of the names that occur, in the order of their positions.
fn names_in(text: &str) -> impl Iterator<Item = &'static [Need]> {
    let text = joined(text);
    let mut found: Vec<(usize, &'static [Need])> =
        NAMES.iter().filter_map(|(name, needs)| Some((text.find(name)?, *needs))).collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, needs)| needs)
}

/// Returns true if the text contains the path of a message's field, such as `messages[1].content[0].type`.
fn is_path(text: &str, field: &str) -> bool {
    text.split(|c: char| c.is_whitespace() || "'`\",()".contains(c)).any(|path| {
        let path = path.trim_end_matches(['.', ':']);
        path.starts_with("messages") && path.ends_with(field)
    })
}
