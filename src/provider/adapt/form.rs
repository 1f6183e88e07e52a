//! The form in which a request is sent: the model's needs, and the images that are left out.

use crate::core::{
    fingerprint::{fingerprint, message_fingerprint},
    model::ModelRequest,
    need::{Need, Needs},
};
use reseed_protocol::{Message, Part, Role};
use std::collections::BTreeSet;

/// The form of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Form {
    /// The needs of its model.
    pub(crate) needs: Needs,
    /// The images that are left out, by [`picture_key`].
    pub(crate) hidden: BTreeSet<u64>,
}

/// A change of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The request is adapted to this need.
    Need(Need),
    /// These images are left out.
    Hide(BTreeSet<u64>),
}

impl Form {
    /// Returns a form with these needs and all images.
    pub(crate) fn of(needs: Needs) -> Self {
        Self { needs, hidden: BTreeSet::new() }
    }

    /// Returns the changed form.
    pub(crate) fn with(&self, change: &Change) -> Self {
        let mut form = self.clone();
        match change {
            Change::Need(need) => form.needs = form.needs.with(*need),
            Change::Hide(pictures) => form.hidden.extend(pictures),
        }
        form
    }

    /// Returns true if an image is left out.
    pub(crate) fn hides(&self, url: &str) -> bool {
        self.needs.has(Need::NoImages) || (!self.hidden.is_empty() && self.hidden.contains(&picture_key(url)))
    }
}

/// Identifies an image by its content.
pub(crate) fn picture_key(url: &str) -> u64 {
    fingerprint(url.as_bytes())
}

/// Identifies a session by the first message of its requests, which do not name it. A compaction changes the result.
pub(crate) fn session_key(request: &ModelRequest) -> u64 {
    request.messages().next().map_or(0, |first| match &first.entry_id {
        Some(entry) => fingerprint(entry.as_str().as_bytes()),
        None => message_fingerprint(&first.message),
    })
}

/// The images of a request.
#[derive(Debug, Default)]
pub(crate) struct Pictures {
    /// All of them, oldest first.
    all: Vec<u64>,
    /// The images since the last answer of the model.
    new: BTreeSet<u64>,
    /// True if images make up most of the request's bytes.
    pub(crate) are_most: bool,
}

impl Pictures {
    pub(crate) fn of(request: &ModelRequest) -> Self {
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

    pub(crate) fn keys(&self) -> impl Iterator<Item = u64> {
        self.all.iter().copied()
    }

    /// Returns true if there are images since the last answer of the model.
    pub(crate) fn has_new(&self) -> bool {
        !self.new.is_empty()
    }

    /// Returns the images to leave out, to be tried one after another. With more than `max` images, these are the older
    /// ones. Otherwise, they are the ones that no answer has shown to be accepted. All images come last.
    pub(crate) fn suspects(&self, max: Option<u16>) -> Vec<Change> {
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
    use crate::provider::adapt::needs::tests::asking;

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
