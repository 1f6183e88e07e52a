//! Hooks that misbehave: each fails one request with an error that names it, or is reported and skipped. Its session
//! continues, and no other session notices.

mod hosts;

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, json::present, talk::text_of};
use hosts::{Act, Host, NAME, Scene};
use reseed_protocol::{Part, Role};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// One way in which a hook misbehaves, and the expected result.
struct Fault {
    what: &'static str,
    /// The event it is called for.
    event: Value,
    act: Act,
    /// The error's code: the session's if the turn fails, otherwise that of `hook_failed`.
    code: &'static str,
    /// A part of the error's message.
    says: &'static str,
    /// The turn continues without the hook.
    is_passed_over: bool,
}

/// Milliseconds given to a hook that never answers. The same limit holds for its correct answers, so it is far above
/// what these take on a busy machine.
const SLOW_MS: u64 = 3_000;

fn context(reason: &str) -> Value {
    json!({ "point": "context", "reasons": [reason], "timeoutMs": 60_000 })
}

fn at(event: &str) -> Value {
    json!({ "point": event, "timeoutMs": 60_000 })
}

fn says(what: &'static str, event: Value, answer: Value, code: &'static str, says: &'static str) -> Fault {
    Fault { what, event, act: Act::Says(answer), code, says, is_passed_over: false }
}

/// The result for a hook that is not required: the turn continues without it.
fn passed_over(fault: Fault) -> Fault {
    let mut event = fault.event;
    event["required"] = json!(false);
    Fault { is_passed_over: true, event, ..fault }
}

/// The result for a hook on tool calls: the turn continues without the call.
fn unmade(fault: Fault) -> Fault {
    Fault { is_passed_over: true, ..fault }
}

/// Returns the faults that any hook may have.
fn faults() -> Vec<Fault> {
    let patch = |op: Value| json!({ "patch": [op] });
    let message = |role: &str, content: Value| json!({ "role": role, "content": content });
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    let call = json!([{ "type": "tool_call", "toolCallId": "c1", "name": "look", "arguments": "{}" }]);
    let result = json!([{ "type": "tool_result", "toolCallId": "c1", "output": "x" }]);
    let part = |text: &str, reason: &str| json!({ "op": "system_part_set", "partName": "a", "text": text, "invalidateCacheReason": reason });
    let append = |message: Value| json!({ "op": "messages_uncached_append", "messages": [message] });
    let (before, once, end) = (|| context("before_request"), || context("ephemeral"), || context("turn_end"));
    let (long, huge) = ("It rains on the harbour. ".repeat(4_000), "x".repeat(300_000));
    let replaced = json!({
        "op": "messages_cached_replace", "messages": [{ "message": message("assistant", call.clone()) }],
        "invalidateCacheReason": "x",
    });
    let tools = json!({
        "op": "tools_replace", "tools": [{ "name": "fly", "description": "", "parameters": {} }],
        "invalidateCacheReason": "x",
    });
    let slow = |mut event: Value| {
        event["timeoutMs"] = json!(SLOW_MS);
        event
    };
    let late = "did not answer within its limit of 3000 ms";
    let hangs = |what, event, code| Fault { act: Act::Hangs, ..says(what, slow(event), Value::Null, code, late) };
    let invalid = "invalid_patch";
    vec![
        hangs("slow before a request", before(), "hook_timeout"),
        hangs("slow for one request", once(), "hook_timeout"),
        hangs("slow at the end of a turn", end(), "hook_timeout"),
        hangs("slow at the beginning of a turn", at("before_agent_start"), "hook_timeout"),
        passed_over(hangs("slow about a message", at("message"), "hook_timeout")),
        unmade(hangs("slow about a call", at("tool_call"), "hook_timeout")),
        hangs("slow about a result", at("tool_result"), "hook_timeout"),
        passed_over(hangs("slow about a result", at("tool_result"), "hook_timeout")),
        says("a patch that is none", before(), patch(json!("x")), invalid, "op 0 of the patch"),
        says("an unknown op", before(), patch(json!({ "op": "forget_all" })), invalid, "`forget_all`: unknown variant"),
        says(
            "an op for another reason",
            before(),
            patch(append(message("user", text("x")))),
            invalid,
            "`ephemeral` hook",
        ),
        says("a blank reason", once(), patch(part("x", "\n ")), invalid, "does not say why"),
        says("a huge patch", before(), patch(part(&huge, "x")), invalid, "more than 262144 bytes"),
        says("a call without its result", before(), patch(replaced), invalid, "a tool call without its result"),
        says(
            "a result without its call",
            once(),
            patch(append(message("tool", result))),
            invalid,
            "result without its call",
        ),
        says("a tool that nobody offers", end(), patch(tools), invalid, "nobody offers the tool `fly`"),
        says(
            "a request beyond the window",
            once(),
            patch(append(message("user", text(&long)))),
            "context_overflow",
            "must add less",
        ),
        says(
            "a patch that fills the window",
            before(),
            patch(part(&long, "x")),
            "hook_failed",
            "more than half of the model's window",
        ),
        says(
            "a field of another point",
            before(),
            json!({ "output": "x" }),
            "hook_failed",
            "does not take the field `output`",
        ),
        says("an error", once(), json!({ "error": "out of ink" }), "hook_failed", "it says: out of ink"),
        says(
            "a prompt beyond the window",
            at("before_agent_start"),
            json!({ "systemPrompt": long }),
            "hook_failed",
            "more than half",
        ),
        passed_over(says(
            "another role",
            at("message"),
            json!({ "message": message("tool", call.clone()) }),
            "hook_failed",
            "another role",
        )),
        passed_over(says(
            "calls that nobody made",
            at("message"),
            json!({ "message": message("assistant", call) }),
            "hook_failed",
            "its message has",
        )),
        unmade(says(
            "arguments that do not fit",
            at("tool_call"),
            json!({ "arguments": "{}" }),
            "hook_failed",
            "do not fit the tool's schema",
        )),
        passed_over(says(
            "a field too many",
            at("tool_call"),
            json!({ "output": "x", "block": true }),
            "hook_failed",
            "`output`",
        )),
        says("a field too many", at("tool_result"), json!({ "output": "x", "block": true }), "hook_failed", "`block`"),
    ]
}

/// Returns the faults that only a hook of this kind may have.
fn faults_of(host: Host) -> Vec<Fault> {
    let breaks = |event, code, why| Fault { act: Act::Breaks, ..says("it breaks down", event, Value::Null, code, why) };
    let slow = |mut event: Value| {
        event["timeoutMs"] = json!(SLOW_MS);
        event
    };
    match host {
        Host::Rust => vec![
            breaks(context("before_request"), "hook_failed", "it panicked"),
            breaks(context("turn_end"), "hook_failed", "it panicked"),
            passed_over(breaks(at("message"), "hook_failed", "it panicked")),
            unmade(breaks(at("tool_call"), "hook_failed", "it panicked")),
        ],
        Host::Webhook => {
            let sends = |what, text, why| Fault {
                act: Act::Sends(text),
                ..says(what, context("before_request"), Value::Null, "hook_failed", why)
            };
            vec![
                breaks(context("before_request"), "hook_failed", "HTTP 500"),
                breaks(at("tool_result"), "hook_failed", "HTTP 500"),
                passed_over(breaks(at("tool_result"), "hook_failed", "HTTP 500")),
                sends("no JSON", "certainly not", "not a JSON object"),
                sends("broken JSON", r#"{"patch":[{"op""#, "it is not JSON"),
                sends("an unknown field", r#"{"patsh":[]}"#, "it has an unknown field (line 1, column 8)"),
                says(
                    "an answer without end",
                    context("ephemeral"),
                    json!({ "error": "x".repeat(1_100_000) }),
                    "hook_failed",
                    "more than 1048576 bytes",
                ),
            ]
        }
        Host::Client => vec![
            breaks(context("before_request"), "hook_unavailable", "did not come back in time"),
            breaks(at("tool_call"), "hook_unavailable", "did not come back in time"),
            breaks(at("tool_result"), "hook_unavailable", "did not come back in time"),
            // Refused when it arrives; the call waits for a better answer, which does not come.
            says(
                "an answer of no form",
                slow(context("ephemeral")),
                json!({ "patch": 7 }),
                "hook_timeout",
                "did not answer",
            ),
        ],
    }
}

/// A model that calls the tool once in each turn, then says what it saw.
fn looker() -> Scripted {
    Scripted::answering(|request| {
        let last = request.messages().filter(|message| message.entry_id.is_some()).last().unwrap();
        if last.message.role == Role::Tool {
            return Reply::text("It is a cat.");
        }
        let arguments = r#"{"where":"left"}"#.to_owned();
        Reply::parts(vec![Part::ToolCall { call_id: "call_0".parse().unwrap(), name: "look".into(), arguments }])
    })
}

async fn offers_tool(client: &mut Client) {
    let parameters =
        json!({ "type": "object", "properties": { "where": { "type": "string" } }, "required": ["where"] });
    let look = json!({ "name": "look", "description": "Looks.", "parameters": parameters });
    assert_eq!(client.ask("register_tools", json!({ "tools": [look] })).await["type"], "ok");
}

async fn other_turn(client: &mut Client) {
    let turn = client.turn("How is the sea?").await;
    assert_eq!(turn["status"], "completed", "another session is none the worse: {turn}");
}

async fn check(host: Host, fault: Fault) {
    let Fault { what, event, act, code, says, is_passed_over } = fault;
    let what = format!("{host:?}: {what}");
    // At the end of a turn the answer is there already.
    let ended_late = event["reasons"] == json!(["turn_end"]);
    let mut scene = Scene::set(host, std::slice::from_ref(&event), act.clone(), &looker()).await;
    // The other session has no tool. The model learns that, and continues.
    offers_tool(&mut scene.client).await;
    scene.begin("What is there?").await;
    other_turn(&mut scene.other).await;
    let ended = scene.end().await;
    if is_passed_over {
        assert_eq!(ended["status"], "completed", "{what}: {ended}");
    } else {
        assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!(code)), "{what}: {ended}");
        let message = ended["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("`{NAME}`")) && message.contains(says), "{what}: {message}");
    }
    // The hook did nothing forbidden: only the sum is too large.
    if code != "context_overflow" {
        let failed = scene.watcher.event("hook_failed").await["payload"].clone();
        let expected = json!({ "hook": NAME, "point": event["point"] });
        for field in ["hook", "point"] {
            assert_eq!(*present(&failed[field]), expected[field], "{what}: {failed}");
        }
        assert_eq!(failed["error"]["code"], code, "{what}: {failed}");
        assert!(failed["error"]["message"].as_str().unwrap().contains(says), "{what}: {failed}");
    }
    assert!(scene.asked() > 0, "{what}");

    // Without the fault everything works as if it had never happened.
    scene.now(Act::Says(json!({})));
    scene.back().await;
    offers_tool(&mut scene.client).await;
    let ended = scene.turn("And now?").await;
    assert_eq!(ended["status"], "completed", "{what}: {ended}");
    let requests = scene.model.requests();
    let last = text_of(requests.last().unwrap());
    assert!(
        last.starts_with("What is there?") && last.contains("And now?") && last.ends_with("a cat"),
        "{what}: {last}"
    );
    assert_eq!(
        last.contains("It is a cat."),
        is_passed_over || ended_late,
        "{what}: what the model said is there: {last}"
    );
    assert!(requests.iter().all(|request| text_of(request).len() < 1_000), "{what}: nothing of it was sent");
    other_turn(&mut scene.other).await;
}

async fn check_all(host: Host) {
    let waits = |fault: &Fault| fault.event["timeoutMs"] == SLOW_MS;
    let (slow, others): (Vec<Fault>, Vec<Fault>) = faults().into_iter().chain(faults_of(host)).partition(waits);
    // Each has a server of its own, so their time limits run in parallel.
    let mut checks: JoinSet<()> = slow.into_iter().map(|fault| check(host, fault)).collect();
    while let Some(checked) = checks.join_next().await {
        checked.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
    for fault in others {
        check(host, fault).await;
    }
}

#[tokio::test]
async fn a_hook_in_rust_that_does_wrong_spoils_one_request() {
    check_all(Host::Rust).await;
}

#[tokio::test]
async fn a_webhook_that_does_wrong_spoils_one_request() {
    check_all(Host::Webhook).await;
}

#[tokio::test]
async fn a_hook_of_a_clients_that_does_wrong_spoils_one_request() {
    check_all(Host::Client).await;
}
