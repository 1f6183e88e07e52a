//! Messages of the server: `{ type, payload }`, also of a type that this version does not know.
//!
//! A newer server adds types. Each enum has `Unknown` for them, which keeps the message whole: a client passes over it,
//! and a copy of it stays as it is. A message of a known type is read strictly.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A message of a type that this version does not know.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unknown {
    /// Its type.
    #[serde(rename = "type")]
    pub name: String,
    /// Its payload.
    pub payload: Value,
}

/// A key of a message.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
pub(crate) enum Key {
    Type,
    Payload,
    #[serde(other)]
    Other,
}

/// Reads a payload that came before its type. It goes through text, although that is slower: with another deserializer
/// each type would be compiled once more.
pub(crate) fn early<T: DeserializeOwned, E: serde::de::Error>(payload: Option<Value>) -> Result<T, E> {
    let payload = payload.ok_or_else(|| E::missing_field("payload"))?.to_string();
    serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(&payload))
        .map_err(|error| E::custom(error.into_inner()))
}

/// Declares an enum of messages: the payload of each and its type on the wire.
macro_rules! messages {
    ($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$attr:meta])* $variant:ident($payload:ty) = $tag:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "codegen", schemars(tag = "type", content = "payload"))]
        #[cfg_attr(feature = "codegen", ts(tag = "type", content = "payload"))]
        pub enum $name {
            $(
                $(#[$attr])*
                #[cfg_attr(feature = "codegen", schemars(rename = $tag), ts(rename = $tag))]
                $variant($payload),
            )*
            /// A message of a newer version, kept as it came.
            #[cfg_attr(feature = "codegen", schemars(skip), ts(skip))]
            Unknown($crate::tagged::Unknown),
        }

        impl $name {
            /// The types that this version knows.
            pub const NAMES: &'static [&'static str] = &[$($tag,)*];

            /// Returns its type on the wire.
            #[must_use]
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $tag,)*
                    Self::Unknown(unknown) => &unknown.name,
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;

                let mut message = serializer.serialize_struct(stringify!($name), 2)?;
                message.serialize_field("type", self.name())?;
                match self {
                    $(Self::$variant(payload) => message.serialize_field("payload", payload)?,)*
                    Self::Unknown(unknown) => message.serialize_field("payload", &unknown.payload)?,
                }
                message.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                use $crate::tagged::{Key, Unknown, early};
                use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};

                #[derive(serde::Deserialize)]
                #[serde(field_identifier)]
                enum Kind {
                    $(#[serde(rename = $tag)] $variant,)*
                    Unknown(String),
                }

                struct Message;

                impl<'de> Visitor<'de> for Message {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object with `type` and `payload`")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let (mut kind, mut waiting, mut message) = (None, None, None);
                        while let Some(key) = map.next_key()? {
                            match (key, &mut kind) {
                                (Key::Type, Some(_)) => return Err(A::Error::duplicate_field("type")),
                                (Key::Type, None) => kind = Some(map.next_value()?),
                                (Key::Payload, _) if waiting.is_some() || message.is_some() => {
                                    return Err(A::Error::duplicate_field("payload"));
                                }
                                // Rare: the server writes the type first.
                                (Key::Payload, None) => waiting = Some(map.next_value()?),
                                (Key::Payload, Some(kind)) => {
                                    message = Some(match kind {
                                        $(Kind::$variant => $name::$variant(map.next_value()?),)*
                                        Kind::Unknown(name) => {
                                            let payload = map.next_value()?;
                                            $name::Unknown(Unknown { name: std::mem::take(name), payload })
                                        }
                                    });
                                }
                                (Key::Other, _) => {
                                    map.next_value::<IgnoredAny>()?;
                                }
                            }
                        }
                        let kind = kind.ok_or_else(|| A::Error::missing_field("type"))?;
                        match (message, kind) {
                            (Some(message), _) => Ok(message),
                            $((None, Kind::$variant) => early(waiting).map($name::$variant),)*
                            (None, Kind::Unknown(name)) => {
                                early(waiting).map(|payload| $name::Unknown(Unknown { name, payload }))
                            }
                        }
                    }
                }

                deserializer.deserialize_map(Message)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::{
        event::{EphemeralEvent, Event},
        reply::Reply,
    };
    use serde_json::{Value, json};

    #[test]
    fn a_message_is_read_in_any_order_and_written_as_it_was() {
        let known = r#"{"type":"queue_released","payload":{"commandId":"0123456789abcdef"}}"#;
        let surprise = r#"{"type":"surprise","payload":{"a":[1,null]}}"#;
        for text in [known, surprise] {
            let event: Event = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&event).unwrap(), text);
            assert_eq!(matches!(event, Event::Unknown(_)), text == surprise, "{text}");
            let Value::Object(fields) = serde_json::from_str(text).unwrap() else { panic!("{text}") };
            let (kind, payload) = (&fields["type"], &fields["payload"]);
            let turned = format!(r#"{{"seq":7,"payload":{payload},"sessionId":"s","type":{kind}}}"#);
            assert_eq!(serde_json::from_str::<Event>(&turned).unwrap(), event, "{turned}");
            assert_eq!(serde_json::from_value::<Event>(json!({"type": kind, "payload": payload})).unwrap(), event);
        }
    }

    #[test]
    fn what_is_unknown_to_a_version_has_a_name() {
        let text = r#"{"type":"surprise","payload":{}}"#;
        assert_eq!(serde_json::from_str::<EphemeralEvent>(text).unwrap().name(), "surprise");
        assert_eq!(serde_json::from_str::<Reply>(text).unwrap().name(), "surprise");
    }

    #[test]
    fn a_known_message_is_read_strictly() {
        let table = [
            (r#"{"type":"ok"}"#, "missing field `payload`"),
            (r#"{"payload":{}}"#, "missing field `type`"),
            (r#"{"type":"ok","type":"ok","payload":{}}"#, "duplicate field `type`"),
            (r#"{"type":"ok","payload":{},"payload":{}}"#, "duplicate field `payload`"),
            (r#"{"payload":{},"type":"ok","payload":{}}"#, "duplicate field `payload`"),
            (r#"{"type":7,"payload":{}}"#, "invalid type: integer `7`"),
            (r#"{"type":"ok","payload":7}"#, "invalid type: integer `7`"),
            (r#"{"payload":7,"type":"ok"}"#, "invalid type: integer `7`"),
            (r#"["ok",{}]"#, "invalid type: sequence"),
        ];
        for (text, expected) in table {
            let error = serde_json::from_str::<Reply>(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
