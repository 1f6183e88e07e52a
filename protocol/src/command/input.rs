//! The user's input.

use crate::EntryId;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{SeqAccess, Visitor},
};
use std::fmt;

payloads! {
    /// Payload of `user_input`.
    struct UserInput {
        /// The input.
        input: Input,
        /// The handling while a turn is running; absent: `queue`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        when_busy: Option<WhenBusy>,
        /// The entry to continue from, in the same durable append; absent for the leaf.
        #[serde(default, with = "crate::leaf::optional", skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", schemars(with = "Option<crate::leaf::LeafId>"))]
        #[cfg_attr(feature = "codegen", ts(as = "Option<crate::leaf::LeafId>"))]
        parent_id: Option<Option<EntryId>>,
        /// Refuses with `leaf_moved` if a message was appended after this entry.
        #[serde(default, with = "crate::leaf::optional", skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", schemars(with = "Option<crate::leaf::LeafId>"))]
        #[cfg_attr(feature = "codegen", ts(as = "Option<crate::leaf::LeafId>"))]
        if_leaf: Option<Option<EntryId>>,
        /// With `parentId`: summarises the abandoned branch at the new position, before the input; `accepted` then
        /// comes once the summary is ready.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summarize: Option<bool>,
        /// The focus of that summary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
        /// Replaces the server's own instructions with `instructions` instead of adding to them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replace_instructions: Option<bool>,
    }
}

impl UserInput {
    /// Returns input without options: it is added at the leaf, and queued.
    #[must_use]
    pub fn plain(input: Input) -> Self {
        Self {
            input,
            when_busy: None,
            parent_id: None,
            if_leaf: None,
            summarize: None,
            instructions: None,
            replace_instructions: None,
        }
    }
}

/// The handling of input that arrives while a turn is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum WhenBusy {
    /// Queues it.
    Queue,
    /// Sends it with the next request of the running turn; if there is none, queues it.
    Steer,
    /// Refuses it with `turn_running`.
    Reject,
}

/// The user's input: a text, or OpenAI Responses input items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(untagged)]
pub enum Input {
    /// A text.
    Text(String),
    /// Input items; only messages with the role `user` are accepted.
    Items(Vec<InputItem>),
}

/// One input item of OpenAI's Responses API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(deny_unknown_fields)]
pub struct InputItem {
    /// `message`; absent means the same.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The item's id elsewhere; ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The item's state elsewhere; ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// `user`.
    pub role: String,
    /// A text, or parts.
    pub content: InputContent,
}

/// The content of an input item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(untagged)]
pub enum InputContent {
    /// A text.
    Text(String),
    /// Parts.
    Parts(Vec<InputPart>),
}

/// A part of an input item: in the form that entries have, `text` and `image`, or in that of OpenAI's Responses API,
/// `input_text` and `input_image`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum InputPart {
    /// A text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// `https:` or `data:` URL.
        url: String,
        /// `low`, `high` or `auto`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        detail: Option<String>,
    },
    /// The same as `text`.
    #[serde(alias = "output_text")]
    InputText {
        /// The text.
        text: String,
    },
    /// The same as `image`.
    InputImage {
        /// `https:` or `data:` URL.
        image_url: String,
        /// `low`, `high` or `auto`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        detail: Option<String>,
    },
}

/// A text or a list, distinguished by its JSON type: serde's own untagged enums would not name an invalid field.
macro_rules! text_or_list {
    ($name:ident, $list:ident, $item:ty, $expecting:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct TextOrList;
                impl<'de> Visitor<'de> for TextOrList {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E>(self, text: &str) -> Result<$name, E> {
                        Ok($name::Text(text.to_owned()))
                    }
                    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<$name, A::Error> {
                        let mut items: Vec<$item> = Vec::new();
                        while let Some(item) = seq.next_element()? {
                            items.push(item);
                        }
                        Ok($name::$list(items))
                    }
                }
                deserializer.deserialize_any(TextOrList)
            }
        }
    };
}

text_or_list!(Input, Items, InputItem, "a text, or a list of input items");
text_or_list!(InputContent, Parts, InputPart, "a text, or a list of parts");
