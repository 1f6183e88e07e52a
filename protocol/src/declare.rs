//! Declares payloads: the attributes that all of them have in common.
//!
//! A field `name?: Type` is optional: an `Option<Type>` in Rust, and absent on the wire when it is `None`.

/// Declares structs that a client sends: unknown fields are refused by name.
macro_rules! closed {
    ($($structs:tt)*) => { payloads! { #[serde(rename_all = "camelCase", deny_unknown_fields)] $($structs)* } };
}

/// Declares structs that the server sends or stores: unknown fields are ignored.
macro_rules! open {
    ($($structs:tt)*) => { payloads! { #[serde(rename_all = "camelCase")] $($structs)* } };
}

/// Declares structs with this attribute.
macro_rules! payloads {
    (
        #[$serde:meta]
        $($(#[$doc:meta])* struct $name:ident { $($(#[$attr:meta])* $field:ident $(?: $optional:ty)? $(: $ty:ty)?,)* })*
    ) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
            #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
            #[cfg_attr(feature = "codegen", ts(optional_fields))]
            #[$serde]
            pub struct $name {
                $(
                    $(#[$attr])*
                    $(#[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<$optional>,)?
                    $(pub $field: $ty,)?
                )*
            }
        )*
    };
}

/// Declares enums whose variants are words.
macro_rules! words {
    ($($(#[$doc:meta])* enum $name:ident { $($(#[$attr:meta])* $variant:ident,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
            #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
            #[serde(rename_all = "snake_case")]
            pub enum $name { $($(#[$attr])* $variant,)* }
        )*
    };
}
