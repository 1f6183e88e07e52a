//! Servers that keep something for each session, and those that do not.

use super::{
    SOON, call, opened, played,
    script::{OLD, Wire, tool},
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

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
