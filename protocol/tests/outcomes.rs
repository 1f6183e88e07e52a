//! The tables of commands, errors and limits agree with each other and with what they are about.

use reseed_protocol::{
    ErrorCode,
    command::{
        Address, Command,
        outcomes::{NEVER_REPLIED, OF_A_FRAME, OF_ANY, Work},
    },
};
use reseed_protocol_codegen::{self as codegen, Kind, LIMITS};
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_event_is_caused_by_a_command_and_every_cause_is_an_event() {
    let messages = codegen::v2().messages;
    let events = messages.iter().filter(|message| matches!(message.kind, Kind::Event | Kind::DurableEvent));
    let events: BTreeSet<&str> = events.map(|message| message.name.as_str()).collect();
    let work = |outcome: &'static [Work]| outcome.iter().flat_map(|work| work.events());
    let caused = Command::TABLE.iter().flat_map(|spec| spec.events.iter().chain(work(spec.work))).copied();
    assert_eq!(caused.collect::<BTreeSet<_>>(), events);
}

#[test]
fn an_error_code_refuses_a_command_or_says_where_else_it_occurs() {
    let elsewhere: Vec<ErrorCode> = NEVER_REPLIED.iter().map(|(code, _)| *code).collect();
    for code in ErrorCode::ALL {
        let of_all = OF_A_FRAME.contains(code) || OF_ANY.contains(code);
        let of_some = Command::TABLE.iter().any(|spec| spec.own_errors().contains(code));
        assert!(!(of_all && of_some), "{code} is an error of every command: no row repeats it");
        assert_eq!(of_all || of_some, !elsewhere.contains(code), "{code}");
    }
}

/// Codes that cannot happen are in no document: clients take an unknown one by its `retriable`.
#[test]
fn an_error_code_that_refuses_no_command_is_carried_by_an_event() {
    let messages = codegen::v2().messages;
    let events = messages.iter().filter(|message| matches!(message.kind, Kind::Event | Kind::DurableEvent));
    let events: BTreeSet<&str> = events.map(|message| message.name.as_str()).collect();
    for (code, place) in NEVER_REPLIED {
        let carried = place.split('`').filter_map(|word| word.split_once('.'));
        assert!(carried.clone().count() > 0, "{code}: {place}");
        for (event, field) in carried {
            assert!(events.contains(event), "{code}: there is no event `{event}` with a `{field}`");
        }
    }
}

#[test]
fn the_commands_that_need_no_subscription_are_those_that_the_page_names() {
    let free = Command::TABLE.iter().filter(|spec| spec.address != Address::None && !spec.needs_subscription());
    let free: Vec<&str> = free.map(|spec| spec.name).collect();
    assert_eq!(free, ["open_session", "rename_session", "delete_session", "get_entries", "search_history", "get_tree"]);
}

/// The defaults are those of the settings, and those that `welcome` shows.
#[test]
fn the_limits_are_those_of_welcome_and_of_the_settings() {
    let example = fs::read_to_string(root().join("examples/v2/replies/welcome.json")).unwrap();
    let example: Value = serde_json::from_str(&example).unwrap();
    let limits = &example["payload"]["limits"];
    let settings = fs::read_to_string(root().join("../.env.example")).unwrap();
    for limit in LIMITS {
        assert_eq!(limits[limit.field], limit.default, "{}", limit.field);
        if let Some(setting) = limit.setting {
            let line = format!("#{setting}={}", limit.default);
            assert!(settings.lines().any(|known| known == line), "{line}");
        }
    }
    let named: BTreeSet<&str> = LIMITS.iter().map(|limit| limit.field).collect();
    let schema = codegen::v2().schema;
    let fields = schema["$defs"]["Limits"]["properties"].as_object().unwrap().keys();
    assert_eq!(named, fields.map(String::as_str).collect());
}
