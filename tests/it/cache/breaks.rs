//! Requests that do not start with the previous one: each is detected by the check that the long conversation passes,
//! and named in its receipt.

use super::{answers, check_unbroken, kind, tools, turn, upstream};
use crate::support::scripted::{Reply, Scripted};
use crate::support::{binary::Binary, client::Client, http, server::Server, talk::words, upstream::Upstream};
use reseed::{
    core::hook::HookSpec,
    hooks::{Hook, HookFuture, on},
    provider::openai::{OpenAi, OpenAiOptions},
    store::sqlite::SqliteStore,
};
use reseed_protocol::{
    Message,
    context::PatchOp,
    hooks::{ContextReason, HookAnswer, HookCall, HookPoint},
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Returns the receipts of all answers so far.
fn receipts(client: &Client) -> Vec<Value> {
    answers(client).into_iter().map(|answer| answer["receipt"].clone()).collect()
}

/// Returns where, why, and the detail.
fn broke(receipt: &Value) -> (&str, &str, &str) {
    let broke = &receipt["broke"];
    let text = |name: &str| broke[name].as_str().unwrap_or_default();
    (text("part"), text("reason"), text("detail"))
}

async fn talking(upstream: &Upstream) -> (Server, Client) {
    let server = Server::facing(&upstream.base_url(), &[("CONTEXT_WINDOW", "100000"), ("HISTORY_TOOLS", "off")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.ask("register_tools", json!({ "tools": tools() })).await;
    (server, client)
}

#[tokio::test]
async fn a_clock_in_the_system_prompt_is_named_in_every_receipt() {
    let upstream = upstream().await;
    let (_server, mut client) = talking(&upstream).await;
    let rules = "You are a harbour master. ".repeat(20);
    for minute in 0..5 {
        let instructions = format!("{rules} It is 17:{minute:02}.");
        client.ask("set_instructions", json!({ "instructions": instructions })).await;
        turn(&mut client, "And now?").await;
    }
    let parted = check_unbroken(&upstream.requests()).expect_err("a clock is found");
    assert!(parted.contains("17:00") && parted.contains("17:01"), "{parted}");
    let receipts = receipts(&client);
    let of_turns: Vec<&Value> = receipts.iter().filter(|receipt| receipt["request"] == 1).collect();
    assert_eq!(of_turns.len(), 5);
    assert_eq!(of_turns[0].get("broke"), None);
    for receipt in &of_turns[1..] {
        assert_eq!(broke(receipt), ("system:base", "instructions", ""), "{receipt:#}");
        let (shared, lost) =
            (receipt["prefixTokens"].as_u64().unwrap(), receipt["broke"]["lostTokens"].as_u64().unwrap());
        // Only the tools precede the system prompt.
        assert!(shared > 0 && lost > 2 * shared, "{receipt:#}");
    }
}

/// A hook that adds the time, in one way or another.
struct Clock {
    once: bool,
    ticks: AtomicU64,
}

impl Hook for Clock {
    fn specs(&self) -> Vec<HookSpec> {
        let reason = if self.once { ContextReason::Ephemeral } else { ContextReason::BeforeRequest };
        vec![HookSpec::new("clock", HookPoint::Context).for_reasons(&[reason])]
    }

    fn call(&self, _: HookCall) -> HookFuture<'_> {
        let text = format!("It is 17:{:02}.", self.ticks.fetch_add(1, Ordering::Relaxed));
        let op = if self.once {
            PatchOp::MessagesUncachedAppend { messages: vec![Message::user(text)] }
        } else {
            let invalidate_cache_reason = "time flies".to_owned();
            PatchOp::SystemPartSet { part_name: "time".to_owned(), text, invalidate_cache_reason }
        };
        Box::pin(async move { Ok(HookAnswer::patch(vec![op])) })
    }
}

async fn with_clock(upstream: &Upstream, once: bool) -> Client {
    let options = OpenAiOptions { base_url: upstream.base_url(), ..OpenAiOptions::default() };
    let hook = Arc::new(Clock { once, ticks: AtomicU64::new(0) });
    let settings = [("CONTEXT_WINDOW", "100000")];
    let server = Server::with_hooks(OpenAi::new(options).unwrap(), vec![hook], &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for number in 0..4 {
        turn(&mut client, &words(number, 30)).await;
    }
    client
}

#[tokio::test]
async fn a_hook_that_patches_the_time_into_the_prompt_is_named_with_its_reason() {
    let upstream = upstream().await;
    let client = with_clock(&upstream, false).await;
    check_unbroken(&upstream.requests()).expect_err("a clock is found");
    for receipt in &receipts(&client)[1..] {
        assert_eq!(broke(receipt), ("system:time", "patch", "clock: time flies"), "{receipt:#}");
        assert_eq!(receipt["hooks"][0]["hook"], "clock");
        assert_eq!(receipt["hooks"][0]["outcome"], "changed");
    }
}

#[tokio::test]
async fn a_hook_that_adds_the_time_behind_everything_costs_only_that() {
    let upstream = upstream().await;
    let client = with_clock(&upstream, true).await;
    check_unbroken(&upstream.requests()).expect_err("what was sent once is not sent again");
    let receipts = receipts(&client);
    for receipt in &receipts[1..] {
        assert_eq!(broke(receipt), ("message", "uncached", ""), "{receipt:#}");
        assert!(receipt["broke"]["lostTokens"].as_u64().unwrap() < 30, "{receipt:#}");
    }
}

#[tokio::test]
async fn each_change_of_what_is_sent_is_named() {
    let upstream = upstream().await;
    let (server, mut client) = talking(&upstream).await;
    let first = turn(&mut client, &words(1, 200)).await;
    for number in 2..6 {
        turn(&mut client, &words(number, 200)).await;
    }
    let first_of_turn = |receipt: &Value| receipt["request"] == 1;
    let asked = |client: &Client| receipts(client).into_iter().rfind(first_of_turn).unwrap();
    let id = |entry: &Value| entry.as_str().unwrap().to_owned();

    // A change of options does not break the prefix.
    client.ask("set_options", json!({ "temperature": 0.5, "maxOutputTokens": 500 })).await;
    turn(&mut client, "And now?").await;
    assert_eq!(asked(&client).get("broke"), None);

    client.ask("register_tools", json!({ "tools": [tools()[0]] })).await;
    // What a request would share is known before it is sent.
    let would = client.ask("get_context", json!({})).await["payload"]["receipt"].clone();
    assert_eq!(broke(&would), ("tools", "tools", ""), "{would:#}");
    turn(&mut client, "And now?").await;
    assert_eq!(broke(&asked(&client)), ("tools", "tools", ""));

    client.ask("set_model", json!({ "model": "other" })).await;
    turn(&mut client, "And now?").await;
    assert_eq!(broke(&asked(&client)), ("model", "model", "test"));
    assert_eq!(asked(&client)["prefixTokens"], 0);

    client.ask("start_compaction", json!({})).await;
    let compacted = client.event("context_compacted").await["payload"].clone();
    turn(&mut client, "And now?").await;
    let part = format!("message:{}", id(&compacted["entryId"]));
    assert_eq!(broke(&asked(&client)), (part.as_str(), "compaction", ""));
    assert!(asked(&client)["prefixTokens"].as_u64().unwrap() > 0, "the tools and the instructions are shared");

    client.ask("undo_compaction", json!({})).await;
    turn(&mut client, "And now?").await;
    let undone = asked(&client);
    let (part, reason, _) = broke(&undone);
    assert!(part.starts_with("message:") && reason == "compaction_undone", "{undone:#}");

    let target = first["contextInfo"]["leafId"].clone();
    client.ask("user_input", json!({ "input": "Elsewhere", "parentId": target })).await;
    client.event("turn_finished").await;
    let elsewhere = client.seen.iter().rev().find(|frame| frame["payload"]["entry"]["role"] == "user").unwrap();
    let part = format!("message:{}", id(&elsewhere["payload"]["entry"]["entryId"]));
    assert_eq!(broke(&asked(&client)), (part.as_str(), "navigation", ""));
    assert!(client.seen.iter().all(|frame| kind(frame) != "error"));

    let text = http::get(&server.address(), "/metrics").await.body;
    for reason in ["tools", "model", "compaction", "compaction_undone", "navigation"] {
        assert!(text.contains(&format!(r#"reseed_prefix_breaks_total{{reason="{reason}"}}"#)), "{reason}");
    }
}

#[tokio::test]
async fn after_a_restart_the_part_is_named_all_the_same() {
    let upstream = upstream().await;
    let (folder, base_url) = (tempfile::tempdir().unwrap(), upstream.base_url());
    let usual = [
        ("OPENAI_BASE_URL", base_url.as_str()),
        ("MODEL", "test"),
        ("CONTEXT_WINDOW", "100000"),
        // These tools come with the first compaction, and would be the reason of its break.
        ("HISTORY_TOOLS", "off"),
        ("strategy.keepRecentTokens", "300"),
    ];
    // The instructions of the first server, and whether it compacts at the end; the instructions of the next one, how
    // many tools it is offered, and where its first request differs from the last one here.
    type Case = (&'static str, bool, &'static str, usize, (&'static str, &'static str));
    let table: [Case; 5] = [
        ("Be brief.", false, "Be brief.", 2, ("", "")),
        ("Be brief.", false, "Be kind.", 2, ("system:base", "instructions")),
        ("Be brief.", false, "Be brief.", 1, ("tools", "tools")),
        ("Be brief.", false, "Be kind.", 0, ("tools", "tools")),
        ("Be brief.", true, "Be brief.", 2, ("message:", "compaction")),
    ];
    for (before, compacts, after, offered, expected) in table {
        let settings = [&usual[..], &[("INSTRUCTIONS", before)]].concat();
        let server = Binary::start(folder.path(), &settings).await;
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        client.ask("register_tools", json!({ "tools": tools() })).await;
        for number in 0..4 {
            turn(&mut client, &words(number, 200)).await;
        }
        if compacts {
            client.ask("start_compaction", json!({})).await;
            client.event("context_compacted").await;
        }
        server.kill().await;

        let settings = [&usual[..], &[("INSTRUCTIONS", after)]].concat();
        let server = Binary::start(folder.path(), &settings).await;
        let mut client = Client::v2(&server.ws()).await;
        let tools: Vec<Value> = tools().as_array().unwrap().iter().take(offered).cloned().collect();
        client.ask("open_session", json!({ "sessionId": opened["sessionId"], "tools": tools })).await;
        let would = client.ask("get_context", json!({})).await["payload"]["receipt"].clone();
        turn(&mut client, "And now?").await;
        let receipt = receipts(&client)[0].clone();
        let (part, reason, _) = broke(&receipt);
        assert!(part.starts_with(expected.0) && part.is_empty() == expected.0.is_empty(), "{expected:?}: {receipt:#}");
        assert_eq!(reason, expected.1, "{expected:?}: {receipt:#}");
        assert_eq!(receipt["prefixTokens"] == 0, part == "tools", "{receipt:#}");
        // If the session lacks its tools, it is unknown whether they will be offered again.
        assert_eq!(broke(&would), if offered == 0 { ("", "", "") } else { broke(&receipt) }, "{would:#}");
        // This waits until it has ended, because the next server opens the same database.
        server.kill().await;
    }
}

#[tokio::test]
async fn a_patch_of_the_end_of_a_turn_is_named_also_after_a_restart() {
    let name = |part: &'static str, text: &'static str| PatchOp::SystemPartSet {
        part_name: part.into(),
        text: text.into(),
        invalidate_cache_reason: "the policy changed".into(),
    };
    let at_the_end = HookSpec::new("policy", HookPoint::Context).for_reasons(&[ContextReason::TurnEnd]);
    let hook = on([at_the_end], move |_| async move { Ok(HookAnswer::patch(vec![name("policy", "Be kind.")])) });
    let (folder, model) = (tempfile::tempdir().unwrap(), Scripted::answering(|_| Reply::text("It is calm.")));
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let server = Server::over_with_hooks(model.clone(), store(), vec![hook], &[]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    turn(&mut client, "How is the sea?").await;
    server.service.stop().await;

    let server = Server::over(model, store(), &[]).await;
    let mut client = Client::v2(&server.ws()).await;
    client.ask("open_session", json!({ "sessionId": opened["sessionId"] })).await;
    turn(&mut client, "And now?").await;
    let receipt = receipts(&client)[0].clone();
    assert_eq!(broke(&receipt), ("system:policy", "patch", "policy: the policy changed"), "{receipt:#}");
}
