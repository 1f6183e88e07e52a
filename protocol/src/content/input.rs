//! The content of input, as a client or a hook sends it.

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{SeqAccess, Visitor},
};
use std::fmt;

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
