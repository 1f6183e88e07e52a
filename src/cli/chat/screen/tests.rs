//! Tests of the output for the protocol's example frames.

use super::*;
use reseed_client::incoming::{Body, Incoming};
use reseed_protocol::{
    ErrorCode,
    event::{EphemeralEvent, Event},
    reply::Reply,
};

const PLAIN: Screen = Screen { color: false };

fn example(path: &str) -> Body {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("protocol/examples/v2").join(path);
    Incoming::parse(&std::fs::read_to_string(file).unwrap()).unwrap().body
}

fn shown(screen: Screen, path: &str) -> String {
    match example(path) {
        Body::Reply(_, Reply::SessionOpened(opened)) => screen.opened(&opened),
        Body::Event(_, Event::TurnFinished(end)) => screen.turn_finished(&end),
        Body::Reply(_, Reply::Error(fault)) => screen.fault(&fault),
        Body::Reply(_, Reply::ContextInfo(info)) => screen.breakdown(&info),
        Body::Event(_, Event::ContextCompacted(event)) => screen.compacted(&event),
        Body::Event(_, Event::EntryAppended(event)) => screen.entry(&event.entry).unwrap_or_default(),
        Body::Ephemeral(EphemeralEvent::RequestDelayed(delayed)) => screen.delayed(&delayed),
        other => panic!("{path} is not shown by the screen: {other:?}"),
    }
}

#[test]
fn each_example_is_shown_as_plain_text() {
    let table = [
        ("replies/session_opened.json", "session k7m2q9xw4hfatz8n, model offline, strategy threshold"),
        (
            "replies/session_opened.replay.json",
            "session k7m2q9xw4hfatz8n `My ferry leaves at 17:40. When should I start for the harbo…`, model offline, \
             strategy threshold",
        ),
        ("events/turn_finished.json", "context: 1.0 %, 81 / 8,000 tokens"),
        (
            "events/turn_finished.failed.json",
            "error: the model's server answered 503; retry later (upstream_overloaded); /retry asks again\n\
             context: 2.9 %, 233 / 8,000 tokens",
        ),
        ("events/request_delayed.json", "the model server is busy; trying again in 12 s"),
        (
            "events/context_compacted.json",
            "context compacted: 5,312 -> 1,874 tokens (asked for, summarised by the model, 0.6 s)",
        ),
        (
            "events/context_compacted.background.json",
            "context compacted: 5,312 -> 1,874 tokens (window filling, extracted by rule, 0.6 s)",
        ),
        ("events/entry_appended.json", "> My ferry leaves at 17:40. When should I start for the harbour?"),
        ("events/entry_appended.tool_call.json", "calls weather {\"place\":\"harbour\"}"),
        ("events/entry_appended.tool_result.json", ""),
        ("events/entry_appended.compaction.json", "context compacted"),
        (
            "replies/error.rate_limited.json",
            "error: 120 commands came in the last minute, 60 are allowed; wait 8 seconds (rate_limited)",
        ),
        (
            "replies/context_info.json",
            "context: 66.4 %, 5,312 / 8,000 tokens (partly estimated)\n\
             \x20 system               42\n\
             \x20 tools                96\n\
             \x20 user              1,490\n\
             \x20 assistant         3,552\n\
             \x20 tool results        132\n\
             \x20 free              2,688\n\
             threshold: compacts above 6,400; compactions so far: 0",
        ),
    ];
    for (path, expected) in table {
        assert_eq!(shown(PLAIN, path), expected, "{path}");
    }
}

#[test]
fn no_text_of_the_server_steers_the_terminal() {
    let table = [
        ("plain\ntext\twith é and 漢", "plain\ntext\twith é and 漢"),
        ("\x1b[2Jwiped", "[2Jwiped"),
        ("\x1b]0;title\x07", "]0;title"),
        ("a\rb\u{8}c\u{9b}31m", "abc31m"),
        ("\u{202e}evil", "evil"),
    ];
    for (text, expected) in table {
        assert_eq!(clean(text), expected, "{text:?}");
        let fault = ErrorBody::new(ErrorCode::from(text), text);
        assert!(!PLAIN.fault(&fault).contains('\x1b'), "{text:?}");
    }
}

#[test]
fn numbers_are_grouped() {
    for (value, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(number(value), expected);
    }
}
