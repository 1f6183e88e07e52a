//! Hostile schemas, and schemas of real tools.

use super::{Arguments, Budget, UncheckedReason::*, *};
use serde_json::{Map, json};

/// Builds `count` definitions, each made of `width` references to the next.
fn chain(count: usize, width: usize) -> Value {
    let mut defs = Map::new();
    for at in 0..count {
        let next = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
        defs.insert(format!("d{at}"), json!({ "allOf": vec![next; width] }));
    }
    defs.insert(format!("d{count}"), json!({ "type": "string" }));
    json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/d0" } }, "$defs": defs })
}

/// Builds a schema in which each level allows two of the next.
fn alternatives(depth: usize) -> Value {
    let mut schema = json!({ "type": "string" });
    for _ in 0..depth {
        schema = json!({ "anyOf": [{ "type": "object", "properties": { "x": schema } }, schema] });
    }
    json!({ "type": "object", "properties": { "x": schema } })
}

fn text(pattern: &str) -> Value {
    json!({ "type": "object", "properties": { "x": { "type": "string", "pattern": pattern } } })
}

#[test]
fn a_schema_is_small_and_ends() {
    let table = [
        ("plain", json!({ "type": "object", "properties": { "at": { "type": "string" } } }), true),
        ("a short chain", chain(8, 1), true),
        ("a long chain", chain(40, 1), false),
        ("doubling", chain(16, 2), false),
        ("endless", json!({ "$defs": { "a": { "allOf": [{ "$ref": "#/$defs/a" }] } }, "$ref": "#/$defs/a" }), false),
        ("elsewhere", json!({ "$ref": "https://example.com/schema.json" }), false),
        ("nowhere", json!({ "$ref": "#/$defs/nothing" }), false),
        ("large", json!({ "description": "x".repeat(70_000) }), false),
        ("some alternatives", alternatives(4), true),
        ("alternatives of alternatives", alternatives(10), false),
    ];
    for (name, schema, fine) in table {
        let checked = Arguments::of(&schema, &mut Budget::default());
        assert_eq!(checked.is_ok(), fine, "{name}: {checked:?}");
    }
}

/// Nests a schema in itself.
fn nested(levels: usize, wrap: impl Fn(Value) -> Value) -> Value {
    let inside = (0..levels).fold(json!({ "type": "string" }), |inside, _| wrap(inside));
    json!({ "type": "object", "properties": { "x": inside } })
}

#[test]
fn schemas_that_cost_too_much_time_or_stack_are_refused() {
    let all_of = |inside: Value| json!({ "allOf": [inside] });
    let doubling = json!({ "a": { "allOf": [{ "$ref": "#/$defs/b" }, { "$ref": "#/$defs/b" }] }, "b": {} });
    let table = [
        ("unevaluated in unevaluated", {
            nested(10, |inside| json!({ "allOf": [inside], "unevaluatedProperties": {} }))
        }),
        ("hundreds of levels", nested(300, |inside| json!({ "not": inside }))),
        ("hundreds of levels of properties", nested(300, |inside| json!({ "additionalProperties": inside }))),
        ("levels behind references", {
            let deep = nested(30, all_of);
            let then = |next: &str| json!({ "allOf": [deep, { "properties": { "y": { "$ref": next } } }] });
            let chained = nested(30, |_| json!({ "$ref": "#/$defs/a" }));
            let mut chained = chained;
            chained["$defs"] = json!({ "a": { "not": then("#/$defs/b") }, "b": nested(60, all_of) });
            chained
        }),
        ("a name in percent-encoding", {
            let defs = json!({ "a%30": {}, "a0": {} });
            json!({ "type": "object", "$defs": defs, "properties": { "x": { "$ref": "#/$defs/a%30" } } })
        }),
        ("an id below the root", {
            let inner = json!({ "$id": "http://e/n", "$defs": doubling, "$ref": "#/$defs/a" });
            json!({ "properties": { "x": inner }, "$defs": { "a": {} } })
        }),
        ("a reference to data", json!({ "$ref": "#/default", "default": { "pattern": "a" } })),
        (
            "a reference to a list of names",
            json!({ "$ref": "#/x/properties", "x": { "properties": { "pattern": "a" } } }),
        ),
    ];
    for (name, schema) in table {
        let checked = Arguments::of(&schema, &mut Budget::default());
        assert!(checked.is_err(), "{name}");
    }
}

#[test]
fn schemas_at_the_limit_of_depth_are_built_and_checked_on_a_small_stack() {
    type Wrap = fn(Value) -> Value;
    let wraps: [(&str, Wrap); 4] = [
        ("additionalProperties", |inside| json!({ "additionalProperties": inside })),
        ("properties", |inside| json!({ "properties": { "x": inside } })),
        ("items", |inside| json!({ "items": inside })),
        ("allOf", |inside| json!({ "allOf": [inside] })),
    ];
    for (name, wrap) in wraps {
        let deepest =
            (1..100).take_while(|levels| Arguments::of(&nested(*levels, wrap), &mut Budget::default()).is_ok());
        let levels = deepest.last().expect("one level fits");
        let arguments = (0..levels + 1).fold(json!(1), |inside, _| json!({ "x": [inside] }));
        // Workers have stacks of this size.
        let small = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
        let checking = small.spawn(move || {
            let built = Arguments::of(&nested(levels, wrap), &mut Budget::default()).expect("it fits");
            built.check(&arguments, 1000).is_ok()
        });
        assert!(checking.expect("a thread").join().is_ok(), "{name}: {levels} levels");
    }
}

#[test]
fn patterns_are_refused_quickly_and_paid_for() {
    let long = r"\s".repeat(20_000);
    let many: Vec<Value> = (0..1_500).map(|at| json!({ "pattern": format!(r"\p{{L}}{{99}}x{at}") })).collect();
    let twins: Vec<Value> = (0..1_500).map(|_| json!({ "pattern": "(" })).collect();
    let table = [
        ("classes without end", text(&long)),
        ("many giants", json!({ "type": "object", "allOf": many })),
        (
            "many below a long name",
            json!({ "type": "object", "properties": { ("n".repeat(20_000)): { "allOf": twins } } }),
        ),
    ];
    for (name, schema) in table {
        let arguments = Arguments::of(&schema, &mut Budget::default()).expect(name);
        let unchecked = arguments.unchecked();
        assert!((1..=32).contains(&unchecked.len()), "{name}");
        assert!(unchecked.iter().all(|pattern| pattern.at.len() <= 256), "{name}");
    }
    let mut budget = Budget::default();
    let many: Vec<Value> = (0..600).map(|at| json!({ "pattern": format!("({at}") })).collect();
    Arguments::of(&json!({ "type": "object", "allOf": many }), &mut budget).unwrap();
    let late = Arguments::of(&text("^a$"), &mut budget).unwrap();
    assert_eq!(late.unchecked()[0].reason, TooLarge, "refused ones have used the budget up");
}

#[test]
fn a_reference_to_a_removed_part_does_not_refuse_the_tool() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a": { "oneOf": [{ "type": "string", "pattern": "^(?=a)" }, { "type": "number" }] },
            "b": { "$ref": "#/properties/a/oneOf/0" },
        },
    });
    let arguments = Arguments::of(&schema, &mut Budget::default()).unwrap();
    assert_eq!(arguments.unchecked().len(), 1);
    assert_eq!(arguments.check(&json!({ "b": "x" }), 9), Ok(()));
}

#[test]
fn the_schemas_of_an_offer_have_one_budget() {
    let mut budget = Budget::default();
    let large = json!({ "type": "object", "description": "x".repeat(60_000) });
    let taken = (0..30).take_while(|_| Arguments::of(&large, &mut budget).is_ok()).count();
    assert_eq!(taken, OFFER_BYTES_MAX / large.to_string().len());
}

#[test]
fn patterns_that_the_engine_does_not_take_are_left_out_and_reported() {
    let table = [
        ("of letters", "^[a-z]+$", None, "abc", "ABC"),
        (
            "an e-mail address of zod",
            r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@x$",
            Some(Unsupported),
            "?",
            "",
        ),
        ("a reference back", r"^(a+)\1$", Some(Unsupported), "b", ""),
        ("no pattern", "(", Some(Unsupported), "b", ""),
        ("of gigabytes", r"(?:(?:\p{L}{100}){100}){100}", Some(TooLarge), "b", ""),
    ];
    for (name, pattern, reason, fits, misfit) in table {
        let arguments = Arguments::of(&text(pattern), &mut Budget::default()).expect(name);
        let told: Vec<_> = arguments.unchecked().iter().map(|unchecked| (&*unchecked.at, unchecked.reason)).collect();
        let expected: Vec<_> = reason.map(|reason| ("/properties/x/pattern", reason)).into_iter().collect();
        assert_eq!(told, expected, "{name}");
        assert_eq!(arguments.check(&json!({ "x": fits }), 10), Ok(()), "{name}");
        if reason.is_none() {
            assert!(arguments.check(&json!({ "x": misfit }), 10).is_err(), "{name}");
        }
        assert!(arguments.check(&json!({ "x": 1 }), 10).is_err(), "{name}: the rest is checked");
    }
}

#[test]
fn leaving_out_a_pattern_never_makes_a_schema_stricter() {
    let ahead = "^(?=a)";
    let keyword = |schema: Value| json!({ "type": "object", "properties": { "x": schema } });
    let table = [
        ("not", keyword(json!({ "not": { "pattern": ahead } }))),
        ("oneOf", keyword(json!({ "oneOf": [{ "pattern": ahead }, { "type": "string" }] }))),
        ("if", keyword(json!({ "if": { "pattern": ahead }, "then": { "type": "number" } }))),
        ("far away", {
            json!({ "$defs": { "a": { "pattern": ahead } }, "properties": { "x": { "not": { "$ref": "#/$defs/a" } } } })
        }),
        (
            "additional",
            json!({ "patternProperties": { (ahead.replace("=a", "=x")): {} }, "additionalProperties": false }),
        ),
        (
            "unevaluated",
            json!({ "patternProperties": { (ahead.replace("=a", "=x")): {} }, "unevaluatedProperties": false }),
        ),
    ];
    for (name, schema) in table {
        let arguments = Arguments::of(&schema, &mut Budget::default()).expect(name);
        assert_eq!(arguments.unchecked().len(), 1, "{name}");
        assert_eq!(arguments.check(&json!({ "x": "b" }), 9), Ok(()), "{name}");
    }
}

#[test]
fn data_and_names_are_no_patterns() {
    let schema = json!({
        "type": "object",
        "properties": { "pattern": { "type": "string" }, "not": { "const": { "pattern": "(" } } },
        "default": { "pattern": "(" },
    });
    let arguments = Arguments::of(&schema, &mut Budget::default()).unwrap();
    assert_eq!(arguments.unchecked(), []);
    assert!(arguments.check(&json!({ "pattern": 1 }), 9).is_err());
    assert!(arguments.check(&json!({ "not": { "pattern": "x" } }), 9).is_err());
    assert_eq!(arguments.check(&json!({ "not": { "pattern": "(" } }), 9), Ok(()));
}

#[test]
fn the_patterns_of_an_offer_have_one_budget() {
    let mut budget = Budget::default();
    let mut checked = 0;
    for at in 0..300 {
        let arguments = Arguments::of(&text(&format!(r"^(?:[a-z0-9]{{100}}x{at}){{1,4}}$")), &mut budget).unwrap();
        checked += usize::from(arguments.unchecked().is_empty());
    }
    assert!((1..200).contains(&checked), "{checked} of 300 large patterns fit");
    assert!(Arguments::of(&text("^a$"), &mut Budget::default()).unwrap().unchecked().is_empty());
}

#[test]
fn large_arguments_for_many_rules_are_refused() {
    let patterns: Vec<Value> = (0..100).map(|at| json!({ "pattern": format!("^(a|b|ab)*(x{at})?$") })).collect();
    let many = json!({ "type": "object", "additionalProperties": { "items": { "allOf": patterns } } });
    let arguments = Arguments::of(&many, &mut Budget::default()).unwrap();
    let values = |count: usize| json!({ "x": vec!["ab"; count] });
    let bytes = |value: &Value| value.to_string().len();
    let (few, lots) = (values(100), values(200_000));
    assert_eq!(arguments.check(&few, bytes(&few)), Ok(()));
    let refused = arguments.check(&lots, bytes(&lots)).unwrap_err();
    assert!(refused.starts_with("are too large to be checked against its schema: 200002 values"), "{refused}");
    // This is one long text, as in calls of tools that write files.
    let writes =
        json!({ "type": "object", "properties": { "path": { "pattern": "^/" }, "text": { "type": "string" } } });
    let arguments = Arguments::of(&writes, &mut Budget::default()).unwrap();
    let text = json!({ "path": "/a", "text": "x".repeat(4_000_000) });
    assert_eq!(arguments.check(&text, 4_000_030), Ok(()));
}
