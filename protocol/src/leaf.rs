//! The name of the root, the place before a session's first entry, where a frame would otherwise need a `null` that
//! means something.
//!
//! In Rust the root is `None`. On the wire it is [`ROOT`], so that `null` never means anything but absent. Older
//! versions stored it as `null`, which reads back as the root.

use crate::ids::EntryId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The root's name.
pub const ROOT: &str = "root";

/// Writes a place in the tree.
///
/// # Errors
/// The serializer's own.
pub(crate) fn serialize<S: Serializer>(leaf: &Option<EntryId>, serializer: S) -> Result<S::Ok, S::Error> {
    leaf.as_ref().map_or(ROOT, EntryId::as_str).serialize(serializer)
}

/// Reads a place in the tree. `null` is the root, as in older records.
///
/// # Errors
/// The text is not an id.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<EntryId>, D::Error> {
    let id = Option::<EntryId>::deserialize(deserializer)?;
    Ok(id.filter(|id| id.as_str() != ROOT))
}

/// For a place that a command requires: `null` is no place.
pub(crate) mod required {
    pub(crate) use super::serialize;
    use super::{Deserialize, Deserializer, EntryId, ROOT};

    /// Reads a place in the tree.
    ///
    /// # Errors
    /// The text is not an id.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<EntryId>, D::Error> {
        EntryId::deserialize(deserializer).map(|id| Some(id).filter(|id| id.as_str() != ROOT))
    }
}

/// For a place that a command may leave out: `null` counts as absent, as in all commands.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, EntryId, ROOT, Serializer};

    /// Writes a place in the tree. Call it only for one that is present.
    ///
    /// # Errors
    /// The serializer's own.
    pub(crate) fn serialize<S: Serializer>(leaf: &Option<Option<EntryId>>, serializer: S) -> Result<S::Ok, S::Error> {
        match leaf {
            Some(leaf) => super::serialize(leaf, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a place in the tree.
    ///
    /// # Errors
    /// The text is not an id.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<EntryId>>, D::Error> {
        let id = Option::<EntryId>::deserialize(deserializer)?;
        Ok(id.map(|id| Some(id).filter(|id| id.as_str() != ROOT)))
    }
}

/// For a place that a stored event may leave out: `null` is the root there, as older versions wrote it.
pub(crate) mod stored {
    pub(crate) use super::optional::serialize;
    use super::{Deserializer, EntryId};

    /// Reads a place in the tree.
    ///
    /// # Errors
    /// The text is not an id.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<EntryId>>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}

/// An entry's id, or `root` for the place before the first entry.
#[cfg(feature = "codegen")]
#[derive(schemars::JsonSchema, ts_rs::TS)]
#[ts(type = "EntryId | \"root\"")]
#[schemars(with = "String", extend("pattern" = "^[A-Za-z0-9._:-]{1,64}$"))]
pub struct LeafId(#[allow(dead_code, reason = "it only names the type in the generated files")] Option<EntryId>);

#[cfg(test)]
mod tests {
    use crate::{
        content::Input,
        session::SessionUpdated,
        tree::Navigate,
        turn::{UnansweredTurn, UserInput},
    };
    use serde_json::json;

    #[test]
    fn the_root_is_named_and_null_counts_as_absent_in_commands() {
        let input = |place: serde_json::Value| -> UserInput {
            serde_json::from_value(json!({"input": "hi", "parentId": place, "ifLeaf": place})).unwrap()
        };
        let plain = UserInput::plain(Input::Text("hi".into()));
        assert_eq!(input(json!(null)), plain);
        let at_root = UserInput { parent_id: Some(None), if_leaf: Some(None), ..plain.clone() };
        assert_eq!(input(json!("root")), at_root);
        let id = "k7m2q9xw4hfa".parse().ok();
        assert_eq!(input(json!("k7m2q9xw4hfa")), UserInput { parent_id: Some(id.clone()), if_leaf: Some(id), ..plain });
        assert_eq!(serde_json::to_value(at_root).unwrap()["ifLeaf"], "root");

        let navigate = |place| serde_json::from_value::<Navigate>(json!({ "entryId": place }));
        assert_eq!(navigate(json!("root")).unwrap().entry_id, None);
        assert!(navigate(json!(null)).is_err(), "a required field is not absent");
    }

    #[test]
    fn records_of_older_versions_have_null_for_the_root() {
        let updated = |text: &str| serde_json::from_str::<SessionUpdated>(text).unwrap();
        assert_eq!(updated("{}").leaf_id, None);
        for root in [r#"{"leafId":null}"#, r#"{"leafId":"root"}"#] {
            assert_eq!(updated(root).leaf_id, Some(None), "{root}");
            assert_eq!(serde_json::to_string(&updated(root)).unwrap(), r#"{"leafId":"root"}"#);
        }
        let turn = r#"{"turnId":"t","status":"failed","leafId":null}"#;
        assert_eq!(serde_json::from_str::<UnansweredTurn>(turn).unwrap().leaf_id, None);
    }
}
