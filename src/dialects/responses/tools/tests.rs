//! The names of tools, and which are taken.

use super::*;

fn namespace(name: &str, tools: Value) -> Tool {
    let tool = json!({ "type": "namespace", "name": name, "description": "Of the sea.", "tools": tools });
    Tool::deserialize(tool).unwrap()
}

fn function(name: &str) -> Value {
    json!({ "type": "function", "name": name })
}

#[test]
fn every_name_is_one_that_every_provider_accepts() {
    let long = "x".repeat(70);
    let given = [
        namespace("a", json!([function("b"), function("d é"), function(&long)])),
        namespace("functions", json!([function("c"), { "type": "custom", "name": "run" }, { "type": "other" }])),
    ];
    let Tools { names, offers } = Tools::of(&given, &[]);
    let joined = names.joined();
    assert_eq!((&joined[..2], &joined[3..]), (&["a__b".into(), "a__d__".into()][..], &["c".into(), "run".into()][..]));
    assert_eq!(joined[2], format!("a__{}_{}", "x".repeat(52), &joined[2][56..]));
    assert_eq!(joined[2].len(), 64);
    assert_ne!(joined[2], join(Some("a"), &"x".repeat(71)));
    assert_eq!(offers.iter().map(|offer| offer.name.clone()).collect::<Vec<_>>(), joined);
    assert_eq!(offers[0].description, "The tools of `a`: Of the sea.\n\n");
    assert_eq!(offers[1].description, "", "what holds for all is said once");
    assert_eq!(Names::of_stored(&json!({ "functions": names.stored() })), names);
    assert_eq!(Names::of_stored(&json!({ "functions": ["look"] })).joined(), ["look"], "as older versions stored it");
    let named = names.get(&joined[2]).unwrap();
    assert_eq!((named.namespace.as_deref(), &named.name), (Some("a"), &long));
}

#[test]
fn a_tool_with_free_text_is_a_function_of_one_text() {
    let format = json!({ "type": "grammar", "syntax": "lark", "definition": "start: \"x\"" });
    let tool = json!({ "type": "custom", "name": "run", "description": "Runs it.", "format": format });
    let tool = Tool::deserialize(tool).unwrap();
    let tools = Tools::of(&[], std::slice::from_ref(&tool));
    let description = &tools.offers[0].description;
    assert!(description.starts_with("Runs it.") && description.ends_with("lark grammar:\nstart: \"x\""));
    assert_eq!(tools.offers[0].parameters["required"], json!(["input"]));
    assert_eq!(tool.shown(), Some(json!(tool)));
    let run = tools.names.get("run").unwrap();
    for text in ["", "a \"b\"\n", "{}"] {
        assert_eq!(run.given(&arguments_of(text)), text);
    }
    assert_eq!(run.given("no JSON"), "no JSON");
}

#[test]
fn later_tools_take_the_place_of_earlier_ones() {
    let earlier = vec![namespace("a", json!([function("b")])), namespace("c", json!([function("d")]))];
    let changed = json!({ "type": "function", "name": "b", "description": "Changed." });
    let all = added(&earlier, &[namespace("a", json!([function("e"), changed]))]);
    let tools = Tools::of(&all, &[]);
    assert_eq!(tools.names.joined(), ["a__b", "a__e", "c__d"]);
    assert!(tools.offers[0].description.ends_with("Changed."));
    assert_eq!(unpacked(&packed(&all).unwrap()), Some(all));
    assert_eq!(unpacked("?"), None);
}

fn tools(list: Value) -> Vec<Tool> {
    Vec::deserialize(list).unwrap()
}

/// Functions with numbers from `first` on.
fn numbered(first: usize, count: usize) -> Vec<Tool> {
    tools((first..first + count).map(|at| function(&format!("t{at}"))).collect())
}

#[test]
fn a_later_tool_replaces_whatever_has_the_models_name_of_it() {
    let custom = |name: &str| json!({ "type": "custom", "name": name });
    let of_a = namespace("a", json!([function("c")]));
    let earlier = tools(json!([function("run"), function("a__b"), of_a, function("a")]));
    let table = [
        (json!([custom("run")]), vec!["run", "a__b", "a__c", "a"], "run"),
        (json!([namespace("functions", json!([custom("run")]))]), vec!["a__b", "a__c", "a", "run"], "run"),
        (json!([namespace("a", json!([custom("b")]))]), vec!["run", "a__c", "a__b", "a"], "a__b"),
        (json!([custom("a__c")]), vec!["run", "a__b", "a", "a__c"], "a__c"),
    ];
    for (new, expected, replaced) in table {
        let all = added(&earlier, &tools(new));
        let names = Tools::of(&all, &[]).names;
        assert_eq!(names.joined(), expected);
        assert_eq!(names.get(replaced).map(|named| named.kind), Some(Kind::Custom));
        assert_eq!(added(&[], &all), all);
    }
}

#[test]
fn of_too_many_tools_the_last_are_kept() {
    let all = added(&numbered(0, 100), &[numbered(0, 1), numbered(100, 100)].concat());
    let mut expected = [numbered(0, 1), numbered(73, 127)].concat();
    assert_eq!(all, expected, "the first has come again");
    expected.drain(..2);
    let own = numbered(500, 2);
    let names = Tools::of(&all, &own).names.joined();
    let expected: Vec<String> = expected.into_iter().chain(own).map(|tool| tool.name).collect();
    assert_eq!(names, expected, "those of the request are kept");
}

#[test]
fn tools_of_other_servers_neither_count_nor_stay() {
    let others: Vec<Tool> = tools((0..60_000).map(|at| json!({ "type": "x", "name": at.to_string() })).collect());
    assert_eq!(check(&others, "tools"), Ok(()));
    assert!(added(&others, &others).is_empty());
}

#[test]
fn a_list_that_cannot_be_offered_is_refused() {
    let many = json!(numbered(0, 129));
    let long = "x".repeat(513);
    let table = [
        (many.clone(), "tools"),
        (json!([namespace("a", many)]), "tools"),
        (json!([function("a"), function("d e")]), "tools[1].name"),
        (json!([function("")]), "tools[0].name"),
        (json!([function(&"x".repeat(65))]), "tools[0].name"),
        (json!([namespace(&long, json!([function("a")]))]), "tools[0].tools[0].name"),
        (json!([function("a"), { "type": "custom", "name": "a" }]), "tools[1].name"),
        (json!([function("a__b"), namespace("a", json!([function("b")]))]), "tools[1].tools[0].name"),
    ];
    for (list, param) in table {
        let invalid = check(&tools(list), "tools").unwrap_err();
        assert_eq!(invalid.param, param, "{}", invalid.message);
    }
    let taken = json!([function("a"), function("a"), namespace("b", json!([function("c d"), { "type": "x" }]))]);
    assert_eq!(check(&tools(taken), "tools"), Ok(()));
}

#[test]
fn no_more_is_packed_than_is_unpacked() {
    let of_bytes = |bytes: usize| {
        let tool = json!({ "type": "function", "name": "x", "description": "x".repeat(bytes) });
        tools(json!([tool]))
    };
    let around = json!(of_bytes(0)).to_string().len();
    let most = of_bytes(usize::try_from(UNPACKED_BYTES_MAX).unwrap() - around);
    assert_eq!(unpacked(&packed(&most).unwrap()), Some(most));
    let more = of_bytes(usize::try_from(UNPACKED_BYTES_MAX).unwrap() - around + 1);
    assert_eq!(packed(&more).unwrap_err().param, "input");
}
