//! The difference between two JSON values, and how to apply it.
//!
//! A difference is itself JSON, in one of these forms:
//! - `{"set": value}`: replaces the value
//! - `{"fields": {name: difference, …}, "without": [name, …]}`: changes and removes fields of an object
//! - `{"items": {index: difference, …}}`: changes items of a list of the same length

use super::json::{Json, Object};

const SET: &str = "set";
const FIELDS: &str = "fields";
const WITHOUT: &str = "without";
const ITEMS: &str = "items";

/// Returns the difference that turns `from` into `to`; `None` if they are equal.
#[must_use]
pub(super) fn between(from: &Json, to: &Json) -> Option<Json> {
    match (from, to) {
        _ if from == to => None,
        (Json::Object(from), Json::Object(to)) => Some(of_objects(from, to).into()),
        (Json::List(from), Json::List(to)) if from.len() == to.len() => {
            let mut items = Object::default();
            for (at, (from, to)) in from.iter().zip(to).enumerate() {
                items.set_some(&at.to_string(), between(from, to));
            }
            Some(Json::object([(ITEMS, items.into())]))
        }
        _ => Some(Json::object([(SET, to.clone())])),
    }
}

/// Returns the difference that turns one object into another; empty if they are equal.
#[must_use]
pub(super) fn of_objects(from: &Object, to: &Object) -> Object {
    let mut fields = Object::default();
    for (name, value) in to.members() {
        let changed = match from.get(name) {
            None => Some(Json::object([(SET, value.clone())])),
            Some(before) => between(before, value),
        };
        fields.set_some(name, changed);
    }
    let without: Vec<Json> =
        from.members().filter(|(name, _)| to.get(name).is_none()).map(|(name, _)| name.into()).collect();
    let mut difference = Object::default();
    difference.set_some(FIELDS, (!fields.is_empty()).then_some(fields));
    difference.set_some(WITHOUT, (!without.is_empty()).then_some(without));
    difference
}

/// Applies a difference. Only a damaged difference has parts that do not fit the value; these are ignored.
pub(super) fn apply(value: &mut Json, difference: &Object) {
    if let Some(whole) = difference.get(SET) {
        *value = whole.clone();
        return;
    }
    match value {
        Json::Object(object) => apply_to_object(object, difference),
        Json::List(items) => {
            for (at, change) in difference.get(ITEMS).and_then(Json::as_object).iter().flat_map(|items| items.members())
            {
                let place = at.parse::<usize>().ok().and_then(|at| items.get_mut(at));
                if let (Some(place), Some(change)) = (place, change.as_object()) {
                    apply(place, change);
                }
            }
        }
        _ => {}
    }
}

/// Applies a difference to an object.
pub(super) fn apply_to_object(object: &mut Object, difference: &Object) {
    for name in difference.get(WITHOUT).and_then(Json::as_list).unwrap_or_default() {
        if let Some(name) = name.as_text() {
            object.remove(name);
        }
    }
    for (name, change) in difference.get(FIELDS).and_then(Json::as_object).iter().flat_map(|fields| fields.members()) {
        let Some(change) = change.as_object() else { continue };
        match (object.get_mut(name), change.get(SET)) {
            (_, Some(whole)) => object.set(name, whole.clone()),
            (Some(place), None) => apply(place, change),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_difference_contains_only_changes() {
        for (from, to, difference) in [
            (
                r#"{"a":1,"b":{"c":[{"d":1},2]}}"#,
                r#"{"a":1,"b":{"c":[{"d":1,"e":null},2]}}"#,
                r#"{"fields":{"b":{"fields":{"c":{"items":{"0":{"fields":{"e":{"set":null}}}}}}}}}"#,
            ),
            (r#"{"a":1,"b":2}"#, r#"{"b":2}"#, r#"{"without":["a"]}"#),
            ("[1]", "[1,2]", r#"{"set":[1,2]}"#),
            (r#""x""#, r#"{"set":1}"#, r#"{"set":{"set":1}}"#),
        ] {
            let found = between(&read(from), &read(to)).unwrap();
            assert_eq!(found.to_js_text(), difference);
        }
        assert_eq!(between(&read(r#"{"a":1,"b":2}"#), &read(r#"{"b":2.0,"a":1}"#)), None);
    }

    pub(crate) fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            (-3i64..3).prop_map(Json::from),
            "[a-c]{0,2}".prop_map(Json::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::List),
                prop::collection::vec(("(set|items|fields|without|[a-c])", inner), 0..4).prop_map(|members| {
                    let mut object = Object::default();
                    for (name, value) in members {
                        object.set(&name, value);
                    }
                    object.into()
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn applying_a_difference_gives_the_other_value(from in any_json(), to in any_json()) {
            let mut made = from.clone();
            if let Some(difference) = between(&from, &to) {
                apply(&mut made, difference.as_object().unwrap());
            }
            prop_assert_eq!(made, to);
        }
    }
}
