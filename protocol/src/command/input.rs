//! What users say.

use super::present;
use crate::EntryId;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{SeqAccess, Visitor},
};
use std::fmt;

payloads! {
    /// Payload of `user_input`.
    struct UserInput {
        /// What the user says.
        input: Input,
        /// What to do when a turn is running; absent: `queue`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        when_busy: Option<WhenBusy>,
        /// The entry to go on from, in the same durable step; `null` for the root, absent for the leaf.
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        parent_id: Option<Option<EntryId>>,
        /// Refuse with `leaf_moved` when a message was appended after this entry; `null` for before the first.
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        if_leaf: Option<Option<EntryId>>,
        /// With `parentId`: whether the branch that is left should be summarised where the session goes on, before what is
        /// said; `accepted` then comes once the summary is made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summarize: Option<bool>,
        /// What that summary should focus on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
        /// Whether `instructions` take the place of the server's own rather than being added to them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replace_instructions: Option<bool>,
    }
}

impl UserInput {
    /// Input without wishes: it is said at the leaf, and waits its turn.
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

/// What happens to input that comes while a turn is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum WhenBusy {
    /// It waits its turn.
    Queue,
    /// It is told to the model with the next request of the running turn; when that never comes, it waits its turn.
    Steer,
    /// It is refused with `turn_running`.
    Reject,
}

/// What the user says: a text, or OpenAI Responses input items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(untagged)]
pub enum Input {
    /// A text.
    Text(String),
    /// Input items; only messages of role `user` are taken.
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

/// A part of an input item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum InputPart {
    /// A text.
    #[serde(alias = "text", alias = "output_text")]
    InputText {
        /// The text.
        text: String,
    },
    /// A picture.
    InputImage {
        /// `https:` or `data:` URL.
        image_url: String,
        /// `low`, `high` or `auto`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        detail: Option<String>,
    },
}

/// A text or a list, told apart by what is there: serde's own untagged reading would not name the field that is wrong.
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
