//! The form in which a request is sent: what its model needs, and the images that are left out of it.

use crate::core::{
    fingerprint::{chained, fingerprint, message_fingerprint},
    model::ModelRequest,
    need::{Need, Needs},
};
use reseed_protocol::{Message, Part, Role};
use std::collections::BTreeSet;

/// The form of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// What its model needs.
    pub(super) needs: Needs,
    /// The images that are left out, by [`picture_key`].
    pub(super) hidden: BTreeSet<u64>,
}

/// A change of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// The request is sent as a model needs it.
    Need(Need),
    /// These images are left out.
    Hide(BTreeSet<u64>),
}

impl Form {
    /// Returns the form in which all images are sent.
    pub(super) fn of(needs: Needs) -> Self {
        Self { needs, hidden: BTreeSet::new() }
    }

    /// Returns the changed form.
    pub(super) fn with(&self, change: &Change) -> Self {
        let mut form = self.clone();
        match change {
            Change::Need(need) => form.needs = form.needs.with(*need),
            Change::Hide(pictures) => form.hidden.extend(pictures),
        }
        form
    }

    /// Returns true if an image is left out.
    pub(super) fn hides(&self, url: &str) -> bool {
        self.needs.has(Need::NoImages) || (!self.hidden.is_empty() && self.hidden.contains(&picture_key(url)))
    }
}

/// Identifies an image by what it shows.
pub(super) fn picture_key(url: &str) -> u64 {
    fingerprint(url.as_bytes())
}

/// Bytes at each end of a text without an entry that identify its session, with its length: those of a summary's
/// request hold its random mark.
const KEY_BYTES_MAX: usize = 1_024;

/// Identifies a session by what its requests begin with: requests do not name it. A compaction makes it another.
pub(super) fn session_key(request: &ModelRequest) -> u64 {
    request.messages().next().map_or(0, |first| match &first.entry_id {
        Some(entry) => fingerprint(entry.as_str().as_bytes()),
        None => match &first.message.content[..] {
            [Part::Text { text }] => {
                let (text, bytes) = (text.as_bytes(), text.len().min(KEY_BYTES_MAX));
                let ends = [fingerprint(&text[..bytes]), fingerprint(&text[text.len() - bytes..])];
                chained([ends[0], ends[1], text.len() as u64])
            }
            _ => message_fingerprint(&first.message),
        },
    })
}

/// The images of a request.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    /// All of them, oldest first.
    all: Vec<u64>,
    /// Those since the last answer of the model.
    new: BTreeSet<u64>,
    /// True if they are most of its bytes.
    pub(super) are_most: bool,
}

impl Pictures {
    pub(super) fn of(request: &ModelRequest) -> Self {
        let mut pictures = Self::default();
        let tools =
            request.envelope.tools.iter().map(|tool| tool.description.len() + tool.parameters.to_string().len());
        let (mut bytes, mut other) = (0, request.envelope.system.compiled.len() + tools.sum::<usize>());
        for message in request.messages() {
            if is_answer(&message.message, &request.model) {
                pictures.new.clear();
            }
            for part in &message.message.content {
                match part {
                    Part::Image { url, .. } => {
                        let key = picture_key(url);
                        bytes += url.len();
                        pictures.all.push(key);
                        pictures.new.insert(key);
                    }
                    Part::Text { text } | Part::Reasoning { text, .. } => other += text.len(),
                    Part::ToolCall { arguments, .. } => other += arguments.len(),
                    Part::ToolResult { output, .. } => other += output.len(),
                }
            }
        }
        pictures.are_most = bytes > other;
        pictures
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.all.iter().copied()
    }

    /// Returns true if some came since the last answer of the model.
    pub(super) fn has_new(&self) -> bool {
        !self.new.is_empty()
    }

    /// Returns what to leave out, one after another until it helps: the older ones if there are more than `max`, else
    /// those that no answer has shown to be accepted; then all.
    pub(super) fn suspects(&self, max: Option<u16>) -> Vec<Change> {
        let some: BTreeSet<u64> = match max {
            Some(max) => {
                let newest: BTreeSet<u64> = self.all.iter().rev().take(usize::from(max)).copied().collect();
                self.keys().filter(|key| !newest.contains(key)).collect()
            }
            None => self.new.clone(),
        };
        let suspects = [some, self.keys().collect()];
        suspects.into_iter().filter(|keys| !keys.is_empty()).map(Change::Hide).collect()
    }
}

fn is_answer(message: &Message, model: &str) -> bool {
    message.role == Role::Assistant && message.model.as_deref() == Some(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::openai::adapt::tests::asking;

    fn picture(name: &str) -> Part {
        Part::Image { url: format!("data:image/png;base64,{name}"), detail: None }
    }

    #[test]
    fn the_images_that_no_answer_followed_are_suspected_first() {
        let keys =
            |names: &[&str]| names.iter().map(|name| picture_key(&format!("data:image/png;base64,{name}"))).collect();
        let answer = |model: &str| Message { model: Some(model.into()), ..Message::new(Role::Assistant, Vec::new()) };
        let told = |model: &str| {
            Pictures::of(&asking(vec![
                Message::new(Role::User, vec![picture("a"), picture("b")]),
                answer(model),
                Message::new(Role::User, vec![picture("c")]),
            ]))
        };
        let (all, new) = (Change::Hide(keys(&["a", "b", "c"])), Change::Hide(keys(&["c"])));
        for (model, max, expected) in [
            ("m", None, vec![new, all.clone()]),
            ("another", None, vec![all.clone(), all.clone()]),
            ("m", Some(1), vec![Change::Hide(keys(&["a", "b"])), all.clone()]),
            ("m", Some(3), vec![all]),
        ] {
            assert_eq!(told(model).suspects(max), expected, "{model} {max:?}");
        }
        assert!(told("m").are_most && Pictures::of(&asking(Vec::new())).suspects(None).is_empty());
    }
}
