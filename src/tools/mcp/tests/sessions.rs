//! Servers that keep something for each session, and those that do not.

use super::{
    SOON, call, opened, played,
    script::{OLD, Wire, tool},
};
use crate::{
    config::Variables,
    store::{SessionStore as _, memory::MemoryStore},
    tools::mcp::{Mcp, McpFile, file::Listed},
};
use axum::{Json, Router, http::StatusCode, response::IntoResponse as _, routing::post};
use reseed_protocol::Timestamp;
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};

/// Answers everything up to the list of tools. Returns the first other message; `None` when the client has closed.
async fn up(wire: &mut Wire, experimental: &Value) -> Option<Value> {
    loop {
        let message = wire.next().await?;
        match message["method"].as_str().unwrap_or_default() {
            "server/discover" => wire.refuse(&message, -32601, "no such method").await,
            "initialize" => {
                let capabilities = json!({ "tools": {}, "experimental": experimental });
                let software = json!({ "name": "scripted", "version": "1" });
                let ready = json!({ "protocolVersion": OLD, "capabilities": capabilities, "serverInfo": software });
                wire.answer(&message, ready).await;
            }
            "notifications/initialized" => {}
            "tools/list" => {
                let mut tools = [tool("a"), tool("b")];
                tools[0]["_meta"] = json!({ "reseed/sequential": true });
                wire.answer(&message, json!({ "tools": tools })).await;
            }
            _ => return Some(message),
        }
    }
}

#[tokio::test]
async fn only_a_server_that_asks_for_it_learns_of_sessions() {
    for (experimental, asks) in [(json!({ "reseed/sessions": {} }), true), (json!({ "other": {} }), false)] {
        let (seen, mut messages) = mpsc::unbounded_channel();
        let server = played("s", move |mut wire, _| {
            let (experimental, seen) = (experimental.clone(), seen.clone());
            async move {
                while let Some(message) = up(&mut wire, &experimental).await {
                    if message["method"] == "tools/call" {
                        wire.text(&message, "done").await;
                    }
                    let _ = seen.send(message);
                }
            }
        });
        let mcp = opened(vec![server]).await;
        let sequential: Vec<_> = mcp.tools().iter().map(|tool| tool.offer().sequential).collect();
        assert_eq!(sequential, [Some(true), None]);
        call(&mcp, "s__a", json!({})).await;
        let called = messages.recv().await.unwrap();
        assert_eq!(called["params"]["_meta"].get("reseed/session"), asks.then(|| json!("ses_1")).as_ref(), "{called}");
        mcp.forget(&"ses_1".parse().unwrap()).await;
        call(&mcp, "s__b", json!({})).await;
        let mut methods = Vec::new();
        while methods.last().is_none_or(|last| last != "tools/call") {
            let message = timeout(SOON, messages.recv()).await.unwrap().unwrap();
            methods.push(message["method"].as_str().unwrap().to_owned());
            if methods[0] != "tools/call" && methods.len() == 1 {
                assert_eq!(message["params"], json!({ "sessionId": "ses_1" }));
            }
        }
        let expected = ["notifications/reseed/session_deleted", "tools/call"];
        assert_eq!(methods, expected[usize::from(!asks)..], "asks: {asks}");
        mcp.close().await;
    }
}

#[tokio::test]
async fn a_server_with_an_address_learns_nothing_of_sessions() {
    let (seen, mut messages) = mpsc::unbounded_channel();
    let answer = move |Json(message): Json<Value>| async move {
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": OLD, "serverInfo": { "name": "scripted", "version": "1" },
                "capabilities": { "tools": {}, "experimental": { "reseed/sessions": {} } },
            }),
            "tools/list" => json!({ "tools": [tool("a")] }),
            "tools/call" => json!({ "content": [] }),
            "server/discover" => {
                let error = json!({ "code": -32601, "message": "no such method" });
                return Json(json!({ "jsonrpc": "2.0", "id": message["id"], "error": error })).into_response();
            }
            _ => Value::Null,
        };
        let id = message["id"].clone();
        let _ = seen.send(message);
        if result.is_null() {
            return StatusCode::ACCEPTED.into_response();
        }
        Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/mcp", post(answer))).await });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mcp.json");
    std::fs::write(&file, json!({ "mcpServers": { "s": { "url": url } } }).to_string()).unwrap();
    let mcp = Mcp::open(&file, Path::new("."), &Variables::default()).unwrap();
    mcp.settled(SOON).await;
    assert!(!call(&mcp, "s__a", json!({})).await.is_error);
    mcp.forget(&"ses_1".parse().unwrap()).await;
    mcp.close().await;
    let mut told = String::new();
    while let Ok(message) = messages.try_recv() {
        told += &message.to_string();
    }
    assert!(told.contains("tools/call") && !told.contains("ses_1"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_stopped_and_offers_nothing_is_started_for_the_news() {
    let (seen, mut messages) = mpsc::unbounded_channel();
    let mut server = played("s", move |mut wire, connection| {
        let seen = seen.clone();
        async move {
            while let Some(message) = up(&mut wire, &json!({ "reseed/sessions": {} })).await {
                let _ = seen.send((connection, message));
            }
        }
    });
    server.idle = Some(SOON);
    server.only = Some(Default::default());
    let mcp = opened(vec![server]).await;
    assert_eq!(mcp.tools().len(), 0);
    tokio::time::sleep(SOON * 3).await;
    mcp.forget(&"ses_2".parse().unwrap()).await;
    let (connection, told) = timeout(SOON, messages.recv()).await.unwrap().unwrap();
    assert_eq!((connection, &told["params"]["sessionId"]), (1, &json!("ses_2")));
    mcp.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_up_is_told_which_of_its_sessions_are_gone() {
    for (kept, expected) in [
        (&["here", "gone", "no id", "here-too", "gone-too"][..], &["gone", "gone-too"][..]),
        (&["here"], &[]),
        // All of them are in another store.
        (&["gone", "gone-too"], &[]),
    ] {
        let (seen, mut messages) = mpsc::unbounded_channel();
        let server = played("s", move |mut wire, _| {
            let seen = seen.clone();
            async move {
                while let Some(message) = up(&mut wire, &json!({ "reseed/sessions": {} })).await {
                    match message["method"].as_str().unwrap() {
                        "reseed/sessions/list" => wire.answer(&message, json!({ "sessionIds": kept })).await,
                        method => {
                            assert_eq!(method, "notifications/reseed/session_deleted");
                            seen.send(message["params"]["sessionId"].as_str().unwrap().to_owned()).unwrap();
                        }
                    }
                }
            }
        });
        let store = MemoryStore::new();
        for session in ["here", "here-too"] {
            store.create(&session.parse().unwrap(), "ann", Timestamp(1)).await.unwrap();
        }
        let mcp = Mcp::none().with_store(Arc::new(store));
        mcp.take_up(McpFile(Listed { servers: vec![server], ..Listed::default() }));
        mcp.settled(SOON).await;
        for session in expected {
            assert_eq!(timeout(SOON, messages.recv()).await.unwrap().as_deref(), Some(*session), "{kept:?}");
        }
        // Time passes only once nothing is left to do.
        tokio::time::sleep(SOON).await;
        assert_eq!(messages.try_recv().ok(), None, "{kept:?}");
        mcp.close().await;
    }
}
