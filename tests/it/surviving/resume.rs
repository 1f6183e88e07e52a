//! Resuming from every kind of position: everything that was missed, or a snapshot, and never a gap.

use super::{fold::fresh, folder::Folder};
use crate::support::scripted::{Gate, Reply as Said, Scripted};
use crate::support::{
    binary::Binary,
    client::Client,
    server::Server,
    upstream::{Reply, Upstream},
};
use reseed::{
    core::model::{Delta, ModelFault, ModelRequest},
    provider::{AnswerFuture, DeltaSink, ModelsFuture, Provider},
};
use reseed_protocol::ErrorCode;
use serde_json::{Value, json};

/// Opens a session again, from this position.
async fn resumed(url: &str, session: &Value, resume: &Value) -> (Client, Value) {
    let mut client = Client::v2(url).await;
    let open = json!({ "sessionId": session, "resume": resume });
    let opened = client.ask("open_session", open).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    (client, opened["payload"].clone())
}

/// Returns the frames between the reply and the answer to the question after it, each by what identifies it.
async fn followed(client: &mut Client) -> Vec<String> {
    client.ask("get_context_info", json!({})).await;
    let opened = client.seen.iter().position(|frame| frame["type"] == "session_opened").unwrap();
    let after = client.seen[opened + 1..].iter().filter(|frame| frame.get("re").is_none());
    after
        .map(|frame| match frame["type"].as_str().unwrap() {
            "item_delta" => {
                let payload = &frame["payload"];
                format!("{}@{} {}", payload["part"], payload["offset"], payload["text"].as_str().unwrap())
            }
            kind => kind.to_owned(),
        })
        .collect()
}

/// Prepares a session in the middle of an answer, with this much of it shown. Returns the server, its client,
/// `session_opened`, the item and the newest event.
async fn in_an_answer(shown: &str, rest: &str, gate: &Gate) -> (Server, Client, Value, Value, u64) {
    let model = Scripted::new();
    assert_eq!(shown.chars().count(), rest.chars().count(), "pieces are cut evenly");
    model.push(Said::text(format!("{shown}{rest}")).in_pieces(2).held_by(gate));
    let server = Server::start(model, &[]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    client.ask("user_input", json!({ "input": "Tell me." })).await;
    let delta = client.event("item_delta").await;
    assert_eq!(delta["payload"]["text"], shown);
    let seq = client.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    (server, client, opened, delta["payload"]["itemId"].clone(), seq)
}

#[tokio::test]
async fn within_an_answer_what_was_seen_of_it_decides() {
    let gate = Gate::new();
    let (server, _client, opened, item, seq) = in_an_answer("ab🌍d", "efgh", &gate).await;
    let (epoch, session) = (&opened["epoch"], &opened["sessionId"]);
    let place = |item: &Value, part: u64, offset: u64| json!([{ "itemId": item, "part": part, "offset": offset }]);
    let many: Vec<Value> = (0..300).map(|part| json!({ "itemId": item, "part": part, "offset": 0 })).collect();
    let strangers: Vec<Value> =
        (0..30).map(|at| json!({ "itemId": format!("stranger{at}"), "part": 0, "offset": 1 })).collect();
    let whole = ["item_started", "0@0 ab🌍d"];
    // The client's position in the answer, and what follows a replay; `None` for a snapshot.
    let table: Vec<(Value, Option<&[&str]>)> = vec![
        (json!([]), Some(&whole)),
        (place(&item, 0, 0), Some(&["0@0 ab🌍d"])),
        (place(&item, 0, 2), Some(&["0@2 🌍d"])),
        (place(&item, 0, 4), Some(&["0@4 d"])),
        (place(&item, 0, 5), Some(&[])),
        // Between the two units of one character, beyond the end, in a part that does not exist.
        (place(&item, 0, 3), None),
        (place(&item, 0, 6), None),
        (place(&item, 0, u64::MAX >> 11), None),
        (place(&item, 1, 0), None),
        // Answers that this session never had are aborted; the one that runs is sent from its beginning.
        (place(&json!("stranger"), 0, 3), Some(&["item_aborted", "item_started", "0@0 ab🌍d"])),
        (json!(many), None),
        (json!(strangers), None),
    ];
    for (items, expected) in table {
        let resume = json!({ "epoch": epoch, "seq": seq, "items": items });
        let (mut client, back) = resumed(&server.ws(), session, &resume).await;
        assert_eq!(back["resumed"], if expected.is_some() { "replay" } else { "snapshot" }, "{resume}");
        match expected {
            Some(expected) => {
                assert!(back.get("entries").is_none(), "{back}");
                assert_eq!(followed(&mut client).await, expected, "{resume}");
            }
            None => {
                let running = json!([{ "itemId": item, "parts": [{ "type": "text", "text": "ab🌍d" }] }]);
                assert_eq!(back["turn"]["items"], running, "{resume}");
                assert!(followed(&mut client).await.is_empty(), "the state says all of it");
            }
        }
        client.ask("close_session", json!({})).await;
    }
    // The log decides before the answer does.
    for (epoch, seq) in [(&json!("0000000000000000"), seq), (epoch, seq + 1), (epoch, u64::MAX >> 11)] {
        let resume = json!({ "epoch": epoch, "seq": seq, "items": place(&item, 0, 2) });
        let (mut client, back) = resumed(&server.ws(), session, &resume).await;
        assert_eq!((&back["resumed"], back["entries"].as_array().unwrap().len()), (&json!("snapshot"), 1), "{resume}");
        client.ask("close_session", json!({})).await;
    }
    gate.open();
}

#[tokio::test]
async fn an_answer_that_ended_meanwhile_is_its_entry() {
    let gate = Gate::new();
    let (server, client, opened, item, seq) = in_an_answer("half", " all", &gate).await;
    let mut watch = Client::v2(&server.ws()).await;
    let (epoch, session) = (&opened["epoch"], &opened["sessionId"]);
    watch.ask("open_session", json!({ "sessionId": session, "role": "observer" })).await;
    client.hang_up();
    gate.open();
    watch.event("turn_finished").await;
    let end = ["entry_appended", "turn_finished"];
    let rest = ["0@4  all", "item_finished", "entry_appended", "turn_finished"];
    // What the client saw of it, and what follows: the rest if it is still known, the entry in any case.
    let table: [(Value, &[&str]); 3] = [
        (json!([]), &end),
        (json!([{ "itemId": item, "part": 0, "offset": 4 }]), &rest),
        (json!([{ "itemId": item, "part": 0, "offset": 8 }]), &rest[1..]),
    ];
    for (items, expected) in table {
        let resume = json!({ "epoch": epoch, "seq": seq, "items": items });
        let (mut client, back) = resumed(&server.ws(), session, &resume).await;
        assert_eq!(back["resumed"], "replay", "{resume}");
        assert_eq!(followed(&mut client).await, expected, "{resume}");
        client.ask("close_session", json!({})).await;
    }
    // A client that has its entry receives nothing more of it.
    let last = seq + 2;
    let resume = json!({ "epoch": epoch, "seq": last, "items": [{ "itemId": item, "part": 0, "offset": 4 }] });
    let (mut client, _) = resumed(&server.ws(), session, &resume).await;
    assert!(followed(&mut client).await.is_empty());
}

#[tokio::test]
async fn an_answer_that_failed_meanwhile_is_an_entry_as_far_as_it_was_shown() {
    // With some of its text, and with nothing but its start.
    for seen in ["item_delta", "item_started"] {
        failed_meanwhile(seen).await;
    }
}

/// Makes an answer fail while its client is away, which had received it up to this event.
async fn failed_meanwhile(seen: &str) {
    let (model, gate) = (Scripted::new(), Gate::new());
    let broken = ModelFault::new(ErrorCode::UpstreamTruncated, "it broke off");
    model.push(Said::text("first half").in_pieces(2).held_by(&gate).then_fault(broken));
    model.push(Said::text("second"));
    let server = Server::start(model, &[]).await;
    let mut client = Folder::new("owner-0000000000", json!({}));
    let mut watch = Folder::new("watch-0000000000", json!({ "role": "observer" }));
    client.connect(&server.ws()).await;
    client.opened().await;
    watch.opening["sessionId"] = json!(client.fold.session);
    watch.connect(&server.ws()).await;
    watch.opened().await;
    client.command("user_input", json!({ "input": "Tell me." })).await;
    while client.step().await.unwrap()["type"] != seen {}
    client.cut();
    gate.open();
    while watch.fold.count("turn_finished") == 0 {
        watch.step().await.unwrap();
    }
    client.connect(&server.ws()).await;
    while client.fold.count("turn_finished") == 0 {
        client.step().await.unwrap();
    }
    assert_eq!((client.fold.snapshots, client.fold.void.len(), watch.fold.void.len()), (1, 0, 0));
    let kept = client.fold.log.values().find(|event| event["payload"]["entry"]["role"] == "assistant").unwrap();
    let (kept, shown) = (&kept["payload"]["entry"], json!([{ "type": "text", "text": "first half" }]));
    assert_eq!((&kept["incomplete"], &kept["stopReason"], &kept["content"]), (&json!(true), &Value::Null, &shown));
    client.command("retry_turn", json!({})).await;
    while client.fold.count("turn_finished") == 1 {
        client.step().await.unwrap();
    }
    watch.reach(client.fold.seq).await;
    assert_eq!(client.fold, watch.fold);
    client.settled(&["contextInfo"]).await;
    watch.settled(&[]).await;
}

/// The connection is lost between `item_started` and the first text: the client holds an item without a position in any
/// part, and the process that knew of it is gone.
#[tokio::test]
async fn an_answer_that_only_began_is_void_after_a_kill() {
    let (folder, never) = (tempfile::tempdir().unwrap(), Gate::new());
    let upstream = Upstream::replying([Reply::text("some text").in_pieces(2).held_by(&never)]).await;
    let base_url = upstream.base_url();
    let settings = [("OPENAI_BASE_URL", base_url.as_str()), ("CONTEXT_WINDOW", "4000")];
    let server = Binary::start(folder.path(), &settings).await;
    let mut client = Folder::new("owner-0000000000", json!({}));
    client.connect(&server.ws()).await;
    client.command("user_input", json!({ "input": "Tell me." })).await;
    while client.step().await.unwrap()["type"] != "item_started" {}
    client.cut();
    server.kill().await;
    let server = Binary::start(folder.path(), &settings).await;
    client.connect(&server.ws()).await;
    // The end of the turn must come after it: the fold insists.
    while client.fold.count("turn_finished") == 0 {
        client.step().await.unwrap();
    }
    assert_eq!((client.fold.snapshots, client.fold.void.len()), (1, 1));
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_stopped_before_its_first_word_is_told_to_nobody() {
    let (model, never) = (Scripted::new(), Gate::new());
    model.push(Said::parts(Vec::new()).held_by(&never));
    let server = Server::start(model, &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.ask("user_input", json!({ "input": "Tell me." })).await;
    client.event("turn_started").await;
    client.ask("cancel_turn", json!({})).await;
    client.event("turn_finished").await;
    let of_items = |frame: &&Value| frame["type"].as_str().unwrap().starts_with("item_");
    assert_eq!(client.seen.iter().find(of_items), None);
}

/// A provider that panics in the middle of an answer.
struct Panicking;

impl Provider for Panicking {
    fn name(&self) -> &'static str {
        "panicking"
    }

    fn answer<'a>(&'a self, _: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
        Box::pin(async move {
            sink.delta(Delta::Text { part: 0, text: "half of" });
            tokio::task::yield_now().await;
            panic!("this provider breaks down, as the test wants it to");
        })
    }

    fn models(&self) -> ModelsFuture<'_> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[tokio::test]
async fn the_answer_of_a_provider_that_breaks_down_is_ended() {
    let server = Server::start(Panicking, &[]).await;
    let mut client = Folder::new("owner-0000000000", json!({}));
    client.connect(&server.ws()).await;
    client.command("user_input", json!({ "input": "Tell me." })).await;
    // The fold insists that whatever was shown is ended before the turn is over.
    while client.fold.count("turn_finished") == 0 {
        client.step().await.unwrap();
    }
    assert_eq!(client.fold.log[&client.fold.seq]["payload"]["status"], "failed");
}

#[tokio::test]
async fn beyond_the_limit_the_whole_state_is_given() {
    // The most events that are replayed, in `runtime/actor.rs`.
    const REPLAYED_MAX: u64 = 5_000;
    let server = Server::start(Scripted::new(), &[]).await;
    let mut client = Folder::new("owner-0000000000", json!({})).unwitnessed();
    client.connect(&server.ws()).await;
    client.opened().await;
    let begun = client.fold.clone();
    let mut number = 0;
    while client.fold.seq <= begun.seq + REPLAYED_MAX {
        number += 1;
        client.command("rename_session", json!({ "name": format!("name {number}") })).await;
        while client.unanswered() > 20 {
            client.step().await.unwrap();
        }
    }
    while client.unanswered() > 0 {
        client.step().await.unwrap();
    }
    let last = newest(&server, &client).await;
    client.reach(last).await;
    for (missed, replays) in [(REPLAYED_MAX + 1, false), (REPLAYED_MAX, true), (1, true), (0, true)] {
        client.cut();
        client.rewind(last - missed);
        let snapshots = client.fold.snapshots;
        client.connect(&server.ws()).await;
        client.opened().await;
        assert_eq!(client.fold.snapshots == snapshots, replays, "{missed}");
        client.reach(last).await;
        // The path is longer than what is sent at once.
        client.settled(&["path", "more"]).await;
    }
    assert_eq!(newest(&server, &client).await, last);
}

/// Returns the newest event that a new client sees.
async fn newest(server: &Server, client: &Folder) -> u64 {
    let mut reader = Folder::new("reader-000000000", json!({ "role": "observer", "sessionId": client.fold.session }));
    reader.connect(&server.ws()).await;
    reader.opened().await;
    reader.fold.seq
}

#[tokio::test]
async fn an_answer_of_a_killed_process_is_void_and_its_turn_can_be_retried() {
    let (folder, never) = (tempfile::tempdir().unwrap(), Gate::new());
    let held = |text: &str| Reply::text(text).in_pieces(2).held_by(&never);
    let upstream = Upstream::replying([held("half of it"), held("other half"), Reply::text("a whole answer")]).await;
    let base_url = upstream.base_url();
    let settings = [("OPENAI_BASE_URL", base_url.as_str()), ("CONTEXT_WINDOW", "4000")];
    let mut server = Binary::start(folder.path(), &settings).await;
    let mut client = Folder::new("owner-0000000000", json!({}));
    client.connect(&server.ws()).await;
    client.command("user_input", json!({ "input": "Tell me." })).await;
    // The server is killed twice in the middle of an answer. Each time, what was shown of it is declared void, and only
    // once.
    for kills in 1..=2 {
        while client.step().await.unwrap()["type"] != "item_delta" {}
        server.kill().await;
        assert_eq!(client.step().await, Err(1006));
        server = Binary::start(folder.path(), &settings).await;
        client.connect(&server.ws()).await;
        // The end of the turn must come after it: the fold insists.
        while client.fold.count("turn_finished") < kills {
            client.step().await.unwrap();
        }
        assert_eq!((client.fold.void.len(), client.fold.snapshots), (kills, 1));
        let finished = &client.fold.log[&client.fold.seq]["payload"];
        assert_eq!((&finished["status"], &finished["error"]["retriable"]), (&json!("interrupted"), &json!(true)));
        client.command("retry_turn", json!({})).await;
    }
    while client.fold.count("turn_finished") < 3 {
        client.step().await.unwrap();
    }
    assert_eq!(client.fold.log[&client.fold.seq]["payload"]["status"], "completed");
    let read = fresh(&server.ws(), &client.fold).await;
    assert_eq!(read.count("entry_appended"), 2, "the question once, and its answer");
    client.settled(&["contextInfo"]).await;
    assert_eq!(client.fold.log, read.log.clone().split_off(client.fold.log.keys().next().unwrap()));
    upstream.assert_clean();
}
