//! At least one example frame per message: each matches the schema, parses into the types, and serialises back
//! unchanged.
//!
//! `examples/VERSION/FOLDER/NAME.json`, or `NAME.what.json` for a further one. The frames in README.md are checked in
//! the same way.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use jsonschema::Validator;
use reseed_protocol::{
    CommandId, SessionId,
    command::Command,
    context::{Breakdown, ContextInfo, EnvelopeMeta, PatchOp},
    event::{EphemeralEvent, Event},
    frame,
    hooks::HookPoint,
    reply::Reply,
    v1,
};
use reseed_protocol_codegen::{self as codegen, Kind};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    rc::Rc,
};

/// A frame and its file.
struct Example {
    v2: bool,
    folder: String,
    name: String,
    place: String,
    frame: Value,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn examples() -> Vec<Example> {
    let mut found = Vec::new();
    for dialect in ["v1", "v2"] {
        for folder in fs::read_dir(root().join("examples").join(dialect)).unwrap() {
            let folder = folder.unwrap().path();
            for file in fs::read_dir(&folder).unwrap() {
                let path = file.unwrap().path();
                let file_name = path.file_name().unwrap().to_str().unwrap().to_owned();
                found.push(Example {
                    v2: dialect == "v2",
                    folder: folder.file_name().unwrap().to_str().unwrap().to_owned(),
                    name: file_name.split('.').next().unwrap().to_owned(),
                    place: format!("{dialect}/{}", path.strip_prefix(folder.parent().unwrap()).unwrap().display()),
                    frame: serde_json::from_str(&fs::read_to_string(&path).unwrap())
                        .unwrap_or_else(|error| panic!("{file_name}: {error}")),
                });
            }
        }
    }
    assert!(found.len() >= 60, "only {} examples were found", found.len());
    found
}

/// The schemas of both versions.
struct Schemas {
    v1: Value,
    v2: Value,
    /// Cached, because compiling one takes a while.
    validators: RefCell<BTreeMap<(bool, String), Rc<Validator>>>,
}

impl Schemas {
    fn new() -> Self {
        Self { v1: codegen::v1().schema, v2: codegen::v2().schema, validators: RefCell::default() }
    }

    /// Returns the validator of one definition.
    fn definition(&self, v2: bool, name: &str) -> Rc<Validator> {
        let schema = if v2 { &self.v2 } else { &self.v1 };
        let make = || {
            assert!(schema["$defs"].get(name).is_some(), "{name} is not defined");
            let schema = json!({ "$ref": format!("#/$defs/{name}"), "$defs": schema["$defs"] });
            Rc::new(jsonschema::validator_for(&schema).unwrap())
        };
        self.validators.borrow_mut().entry((v2, name.to_owned())).or_insert_with(make).clone()
    }
}

impl Example {
    /// Returns the name of its message: the one in the table, if a command has others.
    fn named(&self) -> &str {
        let written = self.frame["type"].as_str().unwrap();
        if self.v2 && self.folder == "commands" { Command::name_in_table(written) } else { written }
    }

    fn definition(&self) -> String {
        let kind = match self.folder.as_str() {
            "commands" => "command",
            "replies" => "reply",
            "events" => "event",
            other => panic!("{}: no message is kept in {other}", self.place),
        };
        format!("{kind}.{}", self.name)
    }
}

/// Returns the message without the fields of the envelope.
fn body(frame: &Value) -> Value {
    let mut body = frame.clone();
    body.as_object_mut().unwrap().retain(|key, _| key == "type" || key == "payload");
    body
}

fn read<T: DeserializeOwned>(frame: &Value) -> Result<T, String> {
    serde_json::from_value(body(frame)).map_err(|error| error.to_string())
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Parses a frame with the types that a client or the server uses, and serialises it again.
fn through_the_types(v2: bool, command: bool, frame: &Value) -> Result<Value, String> {
    let text = frame.to_string();
    if command && v2 {
        let received = frame::parse_v2(&text).map_err(|refused| refused.error.message)?;
        let mut sent = parsed(&frame::encode_command(&received.id, received.session.as_ref(), &received.command));
        received.traceparent.into_iter().for_each(|traceparent| sent["traceparent"] = traceparent.into());
        return Ok(sent);
    }
    if command {
        let (id, command) = frame::parse_v1(&text).map_err(|refused| refused.error.message)?;
        return Ok(parsed(&frame::encode_v1(id.as_str(), &command)));
    }
    if !v2 {
        let id = frame["id"].as_str().unwrap_or_default();
        return read::<v1::Event>(frame).map(|event| parsed(&frame::encode_v1(id, &event)));
    }
    let session: Option<SessionId> = serde_json::from_value(frame["sessionId"].clone()).map_err(|e| e.to_string())?;
    if let Some(seq) = frame["seq"].as_u64() {
        let event: Event = read(frame)?;
        let stored = serde_json::to_string(&event).unwrap();
        return Ok(parsed(&frame::encode_stored(&session.ok_or("without `sessionId`")?, seq, &stored)));
    }
    let re: Option<CommandId> = serde_json::from_value(frame["re"].clone()).map_err(|error| error.to_string())?;
    if re.is_none() && frame["type"] != "error" {
        return read::<EphemeralEvent>(frame).map(|event| parsed(&frame::encode_event(session.as_ref(), &event)));
    }
    read::<Reply>(frame).map(|reply| parsed(&frame::encode_reply(re.as_ref(), session.as_ref(), &reply)))
}

#[test]
fn no_message_lacks_an_example_and_no_example_lacks_a_message() {
    for (v2, dialect) in [(false, codegen::v1()), (true, codegen::v2())] {
        let messages: BTreeSet<(&str, String)> = dialect
            .messages
            .into_iter()
            .map(|message| match message.kind {
                Kind::Command => ("commands", message.name),
                Kind::Reply => ("replies", message.name),
                Kind::DurableEvent | Kind::Event => ("events", message.name),
            })
            .collect();
        let examples = examples();
        let shown: BTreeSet<(&str, String)> =
            examples.iter().filter(|e| e.v2 == v2).map(|e| (e.folder.as_str(), e.name.clone())).collect();
        assert_eq!(shown, messages);
    }
}

#[test]
fn every_example_fits_its_schema_and_comes_through_the_types_unchanged() {
    let schemas = Schemas::new();
    for example in examples() {
        assert_eq!(example.named(), example.name, "{}", example.place);
        if let Err(error) = schemas.definition(example.v2, &example.definition()).validate(&example.frame) {
            panic!("{} does not fit at {}: {error}", example.place, error.instance_path());
        }
        let again = through_the_types(example.v2, example.folder == "commands", &example.frame)
            .unwrap_or_else(|error| panic!("{}: {error}", example.place));
        // A command without payload is serialised with an empty one.
        let mut expected = example.frame.clone();
        if example.v2 && expected.get("payload").is_none() {
            expected["payload"] = json!({});
        }
        expected["type"] = json!(example.named());
        assert_eq!(again, expected, "{}", example.place);
    }
}

#[test]
fn every_frame_fits_exactly_one_message() {
    let schemas = Schemas::new();
    let [v1, v2] = [&schemas.v1, &schemas.v2].map(|schema| jsonschema::validator_for(schema).unwrap());
    for example in examples() {
        let union = if example.folder == "commands" { "CommandFrame" } else { "ServerFrame" };
        assert!(schemas.definition(example.v2, union).is_valid(&example.frame), "{} is no {union}", example.place);
        assert!(if example.v2 { &v2 } else { &v1 }.is_valid(&example.frame), "{}", example.place);
    }
}

/// Returns variants of a frame with an unknown field, and with each field missing.
fn spoilt(frame: &Value) -> Vec<(String, Value)> {
    let mut spoilt = vec![];
    let mut more = frame.clone();
    more["surprise"] = json!(1);
    spoilt.push(("with `surprise`".to_owned(), more));
    let Some(payload) = frame["payload"].as_object() else { return spoilt };
    let mut more = frame.clone();
    more["payload"]["surprise"] = json!(1);
    spoilt.push(("with `payload.surprise`".to_owned(), more));
    for key in payload.keys() {
        let mut less = frame.clone();
        less["payload"].as_object_mut().unwrap().remove(key);
        spoilt.push((format!("without `{key}`"), less));
        let mut other = frame.clone();
        other["payload"][key] = json!([[7]]);
        spoilt.push((format!("with another `{key}`"), other));
    }
    spoilt
}

#[test]
fn schema_and_server_refuse_the_same_commands() {
    let schemas = Schemas::new();
    let mut refused = 0;
    for example in examples().into_iter().filter(|example| example.folder == "commands") {
        let validator = schemas.definition(example.v2, &example.definition());
        for (what, frame) in spoilt(&example.frame) {
            let by_types = through_the_types(example.v2, true, &frame);
            if example.name == "hook_result" && what == "with another `patch`" {
                // Its ops are parsed when applied, and refused by index and name; the schema refuses them at once.
                assert!(!validator.is_valid(&frame) && by_types.is_ok(), "{} {what}: {by_types:?}", example.place);
                continue;
            }
            assert_eq!(validator.is_valid(&frame), by_types.is_ok(), "{} {what}: {by_types:?}", example.place);
            refused += u32::from(by_types.is_err());
        }
    }
    assert!(refused > 80, "only {refused} spoilt commands were refused");
}

/// Returns the names of the optional fields of every command's payload, from the schema.
fn optional_fields(schema: &Value) -> BTreeMap<String, Vec<String>> {
    let defs = schema["$defs"].as_object().unwrap();
    let payload = |frame: &Value| {
        let payload = &frame["properties"]["payload"];
        let name = payload["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
        name.map_or(payload.clone(), |name| defs[name].clone())
    };
    let optional = |payload: &Value| {
        let required: Vec<&str> =
            payload["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let fields = payload["properties"].as_object().into_iter().flatten().map(|(field, _)| field.clone());
        fields.filter(|field| !required.contains(&field.as_str())).collect()
    };
    let commands = defs.iter().filter_map(|(key, frame)| Some((key.strip_prefix("command.")?.to_owned(), frame)));
    commands.map(|(name, frame)| (name, optional(&payload(frame)))).collect()
}

#[test]
fn an_optional_field_that_is_null_counts_as_absent_in_every_command() {
    let schemas = Schemas::new();
    let optional = optional_fields(&schemas.v2);
    let mut tried = 0;
    for example in examples().into_iter().filter(|example| example.v2 && example.folder == "commands") {
        let validator = schemas.definition(true, &example.definition());
        for field in &optional[&example.name] {
            let (mut absent, mut null) = (example.frame.clone(), example.frame.clone());
            if absent["payload"].as_object_mut().is_none_or(|payload| payload.remove(field).is_none()) {
                absent = example.frame.clone();
            }
            null["payload"][field] = Value::Null;
            let place = format!("{} with `{field}: null`", example.place);
            let parsed = |frame: &Value| frame::parse_v2(&frame.to_string()).map(|received| received.command);
            let (absent, read) = (parsed(&absent), parsed(&null));
            assert_eq!(read.ok(), absent.ok(), "{place}");
            assert!(validator.is_valid(&null), "{place} does not fit the schema");
            tried += 1;
        }
    }
    assert!(tried > 60, "only {tried} fields were tried");
}

#[test]
fn clients_may_be_sent_fields_that_they_do_not_know() {
    let schemas = Schemas::new();
    for example in examples().into_iter().filter(|example| example.folder != "commands") {
        let validator = schemas.definition(example.v2, &example.definition());
        for (what, frame) in spoilt(&example.frame).into_iter().filter(|(what, _)| what.contains("surprise")) {
            assert!(validator.is_valid(&frame), "{} {what}", example.place);
            through_the_types(example.v2, false, &frame).unwrap_or_else(|e| panic!("{} {what}: {e}", example.place));
        }
    }
}

#[test]
fn what_the_schema_takes_from_the_server_the_types_take_too() {
    let schemas = Schemas::new();
    let mut taken = 0;
    for example in examples().into_iter().filter(|example| example.folder != "commands") {
        let validator = schemas.definition(example.v2, &example.definition());
        for (what, frame) in spoilt(&example.frame).into_iter().filter(|(_, frame)| validator.is_valid(frame)) {
            through_the_types(example.v2, false, &frame).unwrap_or_else(|e| panic!("{} {what}: {e}", example.place));
            taken += 1;
        }
    }
    assert!(taken > 80, "only {taken} frames were tried");
}

#[test]
fn the_numbers_in_the_examples_add_up() {
    fn walk(place: &str, value: &Value, seen: &mut u32) {
        if value.get("usageRatio").is_some() && value.get("breakdown").is_some() {
            let info: ContextInfo = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(info.breakdown.total(), info.token_count, "{place}");
            assert_eq!(info.usage_tokens + info.trailing_tokens, info.token_count, "{place}");
            let ratio = info.token_count as f64 / info.max_tokens as f64;
            assert!((info.usage_ratio - ratio).abs() < 0.001, "{place}: {ratio}");
            *seen += 1;
        }
        if let Some(change) = value.get("breakdown").filter(|b| b.get("before").is_some()) {
            let total = |side: &str| serde_json::from_value::<Breakdown>(change[side].clone()).unwrap().total();
            let [before, after] = if place.starts_with("v1") {
                ["oldTokenCount", "newTokenCount"]
            } else {
                ["tokensBefore", "tokensAfter"]
            };
            assert_eq!(Some(total("before")), value[before].as_u64(), "{place}");
            assert_eq!(Some(total("after")), value[after].as_u64(), "{place}");
            *seen += 1;
        }
        if let Some(meta) = value.get("meta").filter(|meta| meta.get("parts").is_some()) {
            let EnvelopeMeta { tokens, parts, .. } = serde_json::from_value(meta.clone()).unwrap();
            let parts = parts.unwrap();
            let each = [&parts.system, &parts.tools, &parts.cached, &parts.uncached];
            assert_eq!(parts.frame + each.into_iter().flatten().sum::<u64>(), tokens, "{place}");
            let messages = &value["messages"];
            let listed = [&value["system"]["parts"], &value["tools"], &messages["cached"], &messages["uncached"]];
            assert_eq!(each.map(Vec::len), listed.map(|list| list.as_array().unwrap().len()), "{place}");
            *seen += 1;
        }
        match value {
            Value::Array(items) => items.iter().for_each(|item| walk(place, item, seen)),
            Value::Object(object) => object.values().for_each(|item| walk(place, item, seen)),
            _ => {}
        }
    }
    let mut seen = 0;
    for example in examples() {
        walk(&example.place, &example.frame, &mut seen);
    }
    assert!(seen >= 12, "only {seen} counts were found");
}

#[test]
fn every_op_of_a_patch_is_shown() {
    fn walk(place: &str, value: &Value, shown: &mut BTreeSet<String>) {
        if let Some(op) = value["op"].as_str() {
            let read: PatchOp = serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(read.invalidate_cache_reason().is_none_or(|reason| !reason.trim().is_empty()), "{place}");
            assert_eq!(serde_json::to_value(&read).unwrap(), *value, "{place}");
            shown.insert(op.to_owned());
        }
        match value {
            Value::Array(items) => items.iter().for_each(|item| walk(place, item, shown)),
            Value::Object(object) => object.values().for_each(|item| walk(place, item, shown)),
            _ => {}
        }
    }
    let mut shown = BTreeSet::new();
    // The proposal's forms are converted to ours, so they do not come back unchanged.
    for example in examples().iter().filter(|example| !example.place.ends_with(".proposed.json")) {
        walk(&example.place, &example.frame, &mut shown);
    }
    let schema = codegen::v2().schema;
    let ops = schema["$defs"]["PatchOp"]["oneOf"].as_array().unwrap().iter();
    let ops: BTreeSet<String> = ops.map(|op| op["properties"]["op"]["const"].as_str().unwrap().to_owned()).collect();
    assert_eq!(shown, ops);

    // Each op has a row in the readme, and so has each reason for a broken prefix.
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let rows: String = readme.lines().filter(|line| line.starts_with("| `")).collect();
    let reasons = schema["$defs"]["BreakReason"]["oneOf"].as_array().unwrap().iter();
    let reasons = reasons.map(|reason| reason["const"].as_str().unwrap().to_owned());
    for word in ops.into_iter().chain(reasons) {
        assert!(rows.contains(&format!("`{word}`")), "README.md has no row for {word}");
    }
}

/// `hook_call.POINT.json` is a call there, `hook_result.POINT.json` an answer with fields that this point accepts.
#[test]
fn every_hook_point_is_shown_with_its_answer() {
    let (mut asked, mut answered) = (BTreeSet::new(), BTreeSet::new());
    for example in examples() {
        let file = example.place.rsplit('/').next().unwrap();
        let of = file.split('.').nth(1).unwrap();
        let Some(point) = HookPoint::ALL.iter().find(|point| point.as_str() == of) else { continue };
        let payload = example.frame["payload"].as_object().unwrap();
        match example.name.as_str() {
            "hook_call" => {
                assert_eq!(payload["point"], point.as_str(), "{}", example.place);
                asked.insert(*point);
            }
            "hook_result" => {
                let other =
                    payload.keys().find(|key| *key != "hookCallId" && !point.answer_fields().contains(&key.as_str()));
                assert_eq!(other, None, "{}", example.place);
                answered.insert(*point);
            }
            _ => {}
        }
    }
    let all: BTreeSet<HookPoint> = HookPoint::ALL.iter().copied().collect();
    assert_eq!((&asked, &answered), (&all, &all));
}

/// A held compaction is shown as the event that announced it, in a state that can hold one.
#[test]
fn what_a_snapshot_holds_is_shown_as_its_event() {
    let example = |place: &str| examples().into_iter().find(|example| example.place == place).unwrap().frame;
    let opened = example("v2/replies/session_opened.held.json");
    let (held, info) = (&opened["payload"]["held"], &opened["payload"]["contextInfo"]);
    let prepared = &example("v2/events/compaction_prepared.json")["payload"];
    let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(held), fields(prepared));
    // Its counts are current, and it is not due yet.
    assert_eq!((&held["tokensBefore"], &held["compactAtTokens"]), (&info["tokenCount"], &info["compactAtTokens"]));
    let tokens = held["tokensBefore"].as_u64().unwrap();
    assert!(info["prepareAtTokens"].as_u64().unwrap() < tokens && tokens < info["compactAtTokens"].as_u64().unwrap());
    let saved = |frame: &Value| frame["tokensBefore"].as_u64().unwrap() - frame["tokensAfter"].as_u64().unwrap();
    assert_eq!(saved(held), saved(prepared), "what was said since stays behind the summary");
}

/// Parses a frame of README.md. `{…}` and `[…]` stand for a value that is left out: it is that of the first example of
/// this message that has one at this place.
fn unabridged(place: &str, command: bool, text: &str, examples: &[Example]) -> Value {
    let text = text.replace("{…}", r#"{"…":0}"#).replace("[…]", r#"["…"]"#);
    let mut frame: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{place}: {error}"));
    let name = frame["type"].as_str().unwrap().to_owned();
    let of_message = |example: &&Example| (example.folder == "commands") == command && example.name == name;
    let examples: Vec<&Value> = examples.iter().filter(of_message).map(|example| &example.frame).collect();
    fill(&mut frame, &examples, String::new(), place);
    frame
}

fn fill(value: &mut Value, examples: &[&Value], pointer: String, place: &str) {
    if *value == json!({ "…": 0 }) || *value == json!(["…"]) {
        let found = examples.iter().find_map(|example| example.pointer(&pointer));
        *value = found.unwrap_or_else(|| panic!("{place}: no example has {pointer}")).clone();
        return;
    }
    match value {
        Value::Object(object) => {
            object.iter_mut().for_each(|(key, value)| fill(value, examples, format!("{pointer}/{key}"), place));
        }
        Value::Array(items) => {
            let items = items.iter_mut().enumerate();
            items.for_each(|(at, value)| fill(value, examples, format!("{pointer}/{at}"), place));
        }
        _ => {}
    }
}

/// Frames in README.md are on single lines after `→` (to the server) or `←` (from it).
#[test]
fn every_frame_in_the_readme_fits_its_schema_and_the_types() {
    let schemas = Schemas::new();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut examples = examples();
    examples.sort_by(|one, other| one.place.cmp(&other.place));
    let (v1, v2_examples): (Vec<_>, Vec<_>) = examples.into_iter().partition(|example| !example.v2);
    let mut v2 = false;
    let mut count = 0;
    for (at, line) in readme.lines().enumerate() {
        if let Some(title) = line.strip_prefix("## ") {
            v2 = !title.contains("v1");
        }
        let (command, text) = match (line.strip_prefix("→ "), line.strip_prefix("← ")) {
            (Some(text), _) => (true, text),
            (_, Some(text)) => (false, text),
            _ => continue,
        };
        let place = format!("README.md line {}", at + 1);
        let frame = unabridged(&place, command, text, if v2 { &v2_examples } else { &v1 });
        let union = if command { "CommandFrame" } else { "ServerFrame" };
        assert!(schemas.definition(v2, union).is_valid(&frame), "{place} is no {union}");
        through_the_types(v2, command, &frame).unwrap_or_else(|error| panic!("{place}: {error}"));
        count += 1;
    }
    assert!(count >= 70, "only {count} frames were found");
    let resumes = |line: &&str| line.starts_with("→ ") && line.contains(r#""resume":"#);
    let resuming: Vec<&str> = readme.lines().filter(resumes).collect();
    assert!(!resuming.is_empty() && resuming.iter().all(|line| line.contains(r#""hooks":"#)), "{resuming:?}");
}
