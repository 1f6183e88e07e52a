//! Calls: what is sent, what is returned, and what is lost.

use super::{
    SOON, call, call_with, opened, played,
    script::{NEWEST, OLD, tool},
    tool as tool_of,
};
use crate::tools::{Output, Progress, mcp::MESSAGE_BYTES_MAX};
use serde_json::{Value, json};
use std::{
    future::pending,
    sync::{Arc, Mutex},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

#[tokio::test]
async fn a_call_is_made_and_answered_in_both_lifecycles() {
    for revision in [OLD, NEWEST] {
        let spec = played("s", move |mut wire, _| async move {
            let mut next = wire.up(revision, &[tool("echo")]).await;
            while let Some(call) = next {
                assert_eq!((&call["method"], &call["params"]["name"]), (&json!("tools/call"), &json!("echo")));
                let version = &call["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
                assert_eq!(*version, if revision == NEWEST { json!(NEWEST) } else { Value::Null });
                wire.text(&call, &call["params"]["arguments"].to_string()).await;
                next = wire.next().await;
            }
        });
        let mcp = opened(vec![spec]).await;
        for arguments in [json!({ "a": [1, "ü"] }), json!({})] {
            assert_eq!(call(&mcp, "s__echo", arguments.clone()).await, Output::text(arguments.to_string()));
        }
        let status = &mcp.status()[0];
        assert_eq!((status.protocol.as_deref(), status.software.as_deref()), (Some(revision), Some("scripted 1")));
        let no_object = call(&mcp, "s__echo", json!([1])).await;
        assert_eq!(no_object, Output::error("The arguments of a tool must be an object."));
        mcp.close().await;
    }
}

#[tokio::test]
async fn what_a_server_answers_becomes_an_output() {
    let spec = played("s", |mut wire, _| async move {
        let mut next = wire.up(OLD, &[tool("any")]).await;
        while let Some(call) = next {
            match call["params"]["arguments"]["answer"].clone() {
                Value::String(message) => wire.refuse(&call, -32602, &message).await,
                result => wire.answer(&call, result).await,
            }
            next = wire.next().await;
        }
    });
    let mcp = opened(vec![spec]).await;
    let not_mcp = "The MCP server `s` gave an answer that is not MCP's";
    for (answer, expected) in [
        (json!({ "content": [{ "type": "text", "text": "hi" }] }), Output::text("hi")),
        (json!({ "content": [{ "type": "text", "text": "no" }], "isError": true }), Output::error("no")),
        (json!({ "structuredContent": { "n": 1 } }), Output::text(r#"{"n":1}"#)),
        (json!("no such tool"), Output::error("The MCP server `s` answered: no such tool")),
        (json!({ "tools": [] }), Output::error(not_mcp)),
        (json!({ "what": "is this" }), Output::error(not_mcp)),
    ] {
        assert_eq!(call(&mcp, "s__any", json!({ "answer": answer })).await, expected, "{answer}");
    }
    mcp.close().await;
}

#[tokio::test]
async fn progress_is_passed_on_even_if_it_comes_at_once() {
    let (seen, release) = (Arc::new(Mutex::new(Vec::new())), Arc::new(tokio::sync::Notify::new()));
    let released = release.clone();
    let spec = played("s", move |mut wire, _| {
        let release = released.clone();
        async move {
            let Some(call) = wire.up(OLD, &[tool("long")]).await else { return };
            let token = call["params"]["_meta"]["progressToken"].clone();
            let long = "x".repeat(2_000);
            for (progress, total, message) in
                [(1, Some(4), Some("warming\nup")), (2, Some(4), None), (3, None, Some(long.as_str()))]
            {
                let mut params = json!({ "progressToken": token, "progress": progress });
                for (field, value) in [("total", total.map(Value::from)), ("message", message.map(Value::from))] {
                    if let Some(value) = value {
                        params[field] = value;
                    }
                }
                wire.say(json!({ "method": "notifications/progress", "params": params })).await;
                release.notified().await;
            }
            // This was not requested.
            wire.say(json!({ "method": "notifications/progress", "params": { "progressToken": "?", "progress": 1 } }))
                .await;
            // Its progress went back, so its message is outdated, but it is still a sign of life.
            wire.say(
                json!({ "method": "notifications/progress", "params": { "progressToken": token, "progress": 0 } }),
            )
            .await;
            release.notified().await;
            wire.text(&call, "done").await;
            pending::<()>().await;
        }
    });
    let mcp = opened(vec![spec]).await;
    let reported = seen.clone();
    let progress = Progress::new(move |message| {
        reported.lock().unwrap().push(message);
        release.notify_one();
    });
    assert_eq!(call_with(tool_of(&mcp, "s__long"), json!({}), progress).await, Output::text("done"));
    let seen = seen.lock().unwrap().clone();
    let expected = ["warming up".to_owned(), "2 of 4".to_owned(), "x".repeat(500)].map(Some);
    assert_eq!(seen, [&expected[..], &[None]].concat());
    mcp.close().await;
}

#[tokio::test]
async fn dropping_a_call_cancels_it_at_the_server() {
    for revision in [OLD, NEWEST] {
        let (told, mut heard) = mpsc::unbounded_channel();
        let spec = played("s", move |mut wire, _| {
            let told = told.clone();
            async move {
                let mut next = wire.up(revision, &[tool("slow"), tool("quick")]).await;
                while let Some(message) = next {
                    if message["params"]["name"] == "quick" {
                        wire.text(&message, "here").await;
                    }
                    told.send(message).unwrap();
                    next = wire.next().await;
                }
            }
        });
        let mcp = opened(vec![spec]).await;
        let slow = tokio::spawn(call_with(tool_of(&mcp, "s__slow"), json!({}), Progress::new(|_| {})));
        let called = heard.recv().await.unwrap();
        assert_eq!(called["params"]["name"], "slow");
        slow.abort();
        assert!(slow.await.unwrap_err().is_cancelled());
        let cancelled = timeout(SOON, heard.recv()).await.unwrap().unwrap();
        assert_eq!(cancelled["method"], "notifications/cancelled");
        let id = called["id"].as_u64().expect("a request has an id");
        assert_eq!(cancelled["params"]["requestId"], id, "{cancelled}");
        assert_eq!(call(&mcp, "s__quick", json!({})).await, Output::text("here"));
        mcp.close().await;
    }
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_restarted_and_the_call_is_not_repeated() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let made = calls.clone();
    let spec = played("s", move |mut wire, connection| {
        let made = made.clone();
        async move {
            let mut next = wire.up(OLD, &[tool("pay")]).await;
            while let Some(call) = next {
                made.lock().unwrap().push((connection, call["params"]["arguments"]["n"].as_i64()));
                if connection == 0 {
                    return;
                }
                wire.text(&call, "paid").await;
                next = wire.next().await;
            }
        }
    });
    let mcp = opened(vec![spec]).await;
    let changes = mcp.changed();
    let lost = call(&mcp, "s__pay", json!({ "n": 1 })).await;
    let expected = "The MCP server `s` closed the connection before it answered. The call may have been carried out, \
                    so check before you make it again.";
    assert_eq!(lost, Output::error(expected));
    // The next call waits for the restart.
    assert_eq!(call(&mcp, "s__pay", json!({ "n": 2 })).await, Output::text("paid"));
    assert_eq!(*calls.lock().unwrap(), [(0, Some(1)), (1, Some(2))]);
    assert!(!changes.has_changed().unwrap(), "the same tools are offered all the time");
    assert_eq!(mcp.status()[0].starts, 2);
    mcp.close().await;
}

#[tokio::test]
async fn noise_between_messages_is_passed_over() {
    let spec = played("s", |mut wire, _| async move {
        wire.line("Listening on nothing...").await;
        wire.line("{\"level\":\"info\",\"msg\":\"hello\"}").await;
        let mut next = wire.up(OLD, &[tool("echo")]).await;
        while let Some(call) = next {
            // An answer to noise must not be mistaken for a call.
            if call["method"] == "tools/call" {
                for noise in [
                    "",
                    "\r",
                    "Debugger attached.",
                    "[1,2,3]",
                    "{",
                    "\u{feff}",
                    "{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}",
                ] {
                    wire.line(noise).await;
                }
                wire.text(&call, "clear").await;
            }
            next = wire.next().await;
        }
    });
    let mcp = opened(vec![spec]).await;
    for _ in 0..3 {
        assert_eq!(call(&mcp, "s__echo", json!({})).await, Output::text("clear"));
    }
    assert_eq!(mcp.status()[0].starts, 1);
    mcp.close().await;
}

#[tokio::test]
async fn results_are_large_or_refused() {
    let spec = played("s", |mut wire, _| async move {
        let mut next = wire.up(OLD, &[tool("much")]).await;
        while let Some(call) = next {
            if let Some(bytes) = call["params"]["arguments"]["bytes"].as_u64() {
                wire.text(&call, &"a".repeat(usize::try_from(bytes).unwrap())).await;
            }
            next = wire.next().await;
        }
    });
    let mcp = opened(vec![spec]).await;
    let large = call(&mcp, "s__much", json!({ "bytes": MESSAGE_BYTES_MAX - 1_000 })).await;
    assert!(!large.is_error && large.text.len() == MESSAGE_BYTES_MAX - 1_000, "{} bytes", large.text.len());
    let larger = call(&mcp, "s__much", json!({ "bytes": MESSAGE_BYTES_MAX })).await;
    assert!(larger.is_error && larger.text.contains("may have been carried out"), "{}", larger.text);
    assert_eq!(call(&mcp, "s__much", json!({ "bytes": 3 })).await, Output::text("aaa"));
    assert_eq!(mcp.status()[0].starts, 2);
    mcp.close().await;
}

#[tokio::test]
async fn what_servers_ask_of_clients_is_refused() {
    let spec = played("s", |mut wire, _| async move {
        let Some(call) = wire.up(OLD, &[tool("ask")]).await else { return };
        let mut answers = Vec::new();
        let message = json!({ "role": "user", "content": { "type": "text", "text": "hi" } });
        let form = json!({ "message": "your card?", "requestedSchema": { "type": "object", "properties": {} } });
        for (id, method, params) in [
            (1, "sampling/createMessage", json!({ "messages": [message], "maxTokens": 5 })),
            (2, "roots/list", json!({})),
            (3, "elicitation/create", form),
            (4, "ping", json!({})),
            (5, "files/delete", json!({})),
        ] {
            wire.say(json!({ "id": id, "method": method, "params": params })).await;
            let answer = wire.next().await.unwrap();
            assert_eq!(answer["id"], id);
            let outcome = match (&answer["error"]["code"], &answer["result"]["action"]) {
                (Value::Number(code), _) => code.to_string(),
                (_, Value::String(action)) => action.clone(),
                _ => "ok".to_owned(),
            };
            answers.push(format!("{method} {outcome}"));
        }
        wire.text(&call, &answers.join(", ")).await;
        pending::<()>().await;
    });
    let mcp = opened(vec![spec]).await;
    let expected = "sampling/createMessage -32601, roots/list -32601, elicitation/create decline, ping ok, \
                    files/delete -32601";
    assert_eq!(call(&mcp, "s__ask", json!({})).await, Output::text(expected));
    mcp.close().await;
}

#[tokio::test]
async fn calls_run_in_parallel_and_fail_when_everything_ends() {
    let (arrived, all) = oneshot::channel();
    let arrived = Mutex::new(Some(arrived));
    let spec = played("s", move |mut wire, _| {
        let arrived = arrived.lock().unwrap().take();
        async move {
            let mut next = wire.up(OLD, &[tool("wait")]).await;
            let mut calls = 0;
            while next.is_some_and(|message| message["method"] == "tools/call") {
                calls += 1;
                if calls == 5 {
                    break;
                }
                next = wire.next().await;
            }
            arrived.unwrap().send(()).unwrap();
            while wire.next().await.is_some() {}
        }
    });
    let mcp = opened(vec![spec]).await;
    let calls: Vec<_> =
        (0..5).map(|_| tokio::spawn(call_with(tool_of(&mcp, "s__wait"), json!({}), Progress::new(|_| {})))).collect();
    all.await.unwrap();
    let wait = tool_of(&mcp, "s__wait");
    mcp.close().await;
    for call in calls {
        let output = call.await.unwrap();
        assert!(output.is_error && output.text.contains("may have been carried out"), "{output:?}");
    }
    let late = call_with(wait, json!({}), Progress::new(|_| {})).await;
    assert_eq!(late, Output::error("The MCP server `s` is stopping. The call was not made."));
}
