//! What an ordered summary keeps verbatim, and when there is nothing to compact.

use super::{WAITED_FOR, whole};
use crate::support::{
    client::Client,
    json::present,
    server::Server,
    talk::{talker, words},
};
use serde_json::{Value, json};

/// The window; a quarter of it is the upper bound of `keepRecentTokens`.
const WINDOW: &str = "8000";
const KEPT_TOKENS: u64 = 2_000;

/// The outcome of an order.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    /// Refused at once: too little is older than the last turn.
    Refused,
    /// A summary would not be smaller.
    GainsNothing,
    /// Everything before the last turn is summarised.
    KeepsLastTurn,
    /// There is one turn, too long to be kept: the user's message is kept, what followed is summarised.
    KeepsInput,
    /// The newest part closest to the requested number of tokens is kept; the cut may be inside a turn.
    KeepsRecent,
}

/// Says this many words in each turn and orders a compaction; returns its outcome and the entries of the user messages.
async fn ordered(
    said: &[usize],
    answer: usize,
    strategy: &str,
    order: &Value,
    pin: bool,
) -> (Outcome, Value, Vec<Value>) {
    let model = talker(answer);
    let settings = [WAITED_FOR, ("CONTEXT_WINDOW", WINDOW), ("CONTEXT_STRATEGY", strategy)];
    let server = Server::start(model, &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for (at, count) in said.iter().enumerate() {
        let finished = client.turn(&words(at as u64, *count)).await;
        assert_eq!(finished["status"], "completed", "{finished}");
    }
    let is_said = |frame: &&Value| frame["type"] == "entry_appended" && frame["payload"]["entry"]["role"] == "user";
    let users: Vec<Value> = client
        .seen
        .iter()
        .filter(is_said)
        .map(|frame| present(&frame["payload"]["entry"]["entryId"]).clone())
        .collect();
    if pin {
        assert_eq!(client.ask("pin_entry", json!({ "entryId": users[0] })).await["type"], "ok");
    }
    let reply = client.ask("start_compaction", order.clone()).await;
    if reply["type"] == "error" {
        assert_eq!(reply["payload"]["code"], "nothing_to_compact", "{reply}");
        return (Outcome::Refused, Value::Null, users);
    }
    let ended =
        client.until(|frame| frame["type"] == "context_compacted" || frame["type"] == "compaction_failed").await;
    let payload = ended["payload"].clone();
    let outcome = match ended["type"].as_str().unwrap() {
        "compaction_failed" => {
            assert_eq!(payload["error"]["code"], "nothing_to_compact", "{payload}");
            Outcome::GainsNothing
        }
        _ if payload["firstKeptEntryId"] == *users.last().unwrap() => Outcome::KeepsLastTurn,
        _ if payload.get("firstKeptEntryId").is_none() => {
            assert_eq!(payload["keptEntryIds"], json!([users.last()]), "{payload}");
            Outcome::KeepsInput
        }
        _ => Outcome::KeepsRecent,
    };
    (outcome, payload, users)
}

#[tokio::test]
async fn an_order_keeps_what_the_readme_says_or_says_that_there_is_nothing_to_compact() {
    use Outcome::{GainsNothing, KeepsInput, KeepsLastTurn, KeepsRecent, Refused};
    let none = || json!({});
    let table: &[(&str, &[usize], usize, Value, Outcome)] = &[
        ("nothing was said", &[], 20, none(), Refused),
        ("one turn", &[1_000], 400, none(), Refused),
        ("one turn that is longer than what is kept", &[3_000], 400, none(), KeepsInput),
        ("too little before the last turn", &[10, 300], 10, none(), Refused),
        ("too little for a summary to be smaller", &[40, 300], 40, none(), GainsNothing),
        ("three turns within what is kept", &[200, 200, 200], 100, none(), KeepsLastTurn),
        (
            "the same with its own strategy named",
            &[200, 200, 200],
            100,
            json!({ "strategy": "threshold" }),
            KeepsLastTurn,
        ),
        (
            "the same with instructions",
            &[200, 200, 200],
            100,
            json!({ "instructions": "Mind the sea." }),
            KeepsLastTurn,
        ),
        ("more than what is kept", &[200; 12], 100, none(), KeepsRecent),
    ];
    for strategy in ["threshold", "manual"] {
        for (name, said, answer, order, expected) in table {
            let row = format!("{strategy}: {name}");
            let (outcome, payload, _) = ordered(said, *answer, strategy, order, false).await;
            assert_eq!(outcome, *expected, "{row}: {payload}");
            if outcome == KeepsRecent {
                let after = present(&payload["breakdown"]["after"]);
                let kept = whole(&after["user"]) + whole(&after["assistant"]);
                assert!(kept.abs_diff(KEPT_TOKENS) < 200, "{row}: {kept} tokens are kept");
            }
            if outcome == KeepsLastTurn {
                assert_eq!(payload["keptEntryIds"], json!([]), "{row}");
            }
        }
        let (outcome, payload, users) = ordered(&[200, 200, 200], 100, strategy, &none(), true).await;
        assert_eq!((outcome, &payload["keptEntryIds"]), (KeepsLastTurn, &json!([users[0]])), "{strategy}: {payload}");
    }
}

#[tokio::test]
async fn manual_compact_is_the_same_command() {
    let server = Server::start(talker(100), &[WAITED_FOR, ("CONTEXT_WINDOW", WINDOW)]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for number in 0..3 {
        client.turn(&words(number, 200)).await;
    }
    let id = "compacts-under-two-names";
    client.send_as(id, "manual_compact", json!({ "instructions": "Mind the sea." })).await;
    let first = client.until(|frame| frame["re"] == id).await;
    assert_eq!(first["type"], "ok", "{first}");
    let compacted = client.event("context_compacted").await;
    assert_eq!(compacted["payload"]["jobId"], *present(&first["payload"]["jobId"]), "{compacted}");
    client.send_as(id, "start_compaction", json!({ "instructions": "Mind the sea." })).await;
    let again = client.until(|frame| frame["re"] == id && frame["payload"]["duplicate"] == true).await;
    assert_eq!(again["payload"]["jobId"], *present(&first["payload"]["jobId"]), "{again}");
    let refused = client.ask("manual_compact", json!({ "focus": "the sea" })).await;
    assert_eq!(refused["payload"]["code"], "unknown_field", "{refused}");
}

#[tokio::test]
async fn an_ordered_truncate_within_its_target_is_refused_for_that_reason() {
    let server = Server::start(talker(100), &[WAITED_FOR, ("CONTEXT_WINDOW", WINDOW)]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for number in 0..3 {
        client.turn(&words(number, 200)).await;
    }
    for command in ["start_compaction", "preview_compaction"] {
        let refused = client.ask(command, json!({ "strategy": "truncate" })).await["payload"].clone();
        assert_eq!(refused["code"], "nothing_to_compact", "{refused}");
        let message = present(&refused["message"]).as_str().unwrap();
        assert!(message.contains("`truncate` removes nothing from a request within its target of"), "{message}");
    }
}
