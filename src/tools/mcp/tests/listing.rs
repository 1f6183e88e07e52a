//! The list of tools: over several pages, when it changes, and when it never ends.

use super::{
    SOON, names, opened, played,
    script::{NEWEST, OLD, tool},
};
use crate::tools::mcp::{Mcp, ServerState};
use serde_json::json;
use std::sync::Arc;
use tokio::{sync::Notify, time::timeout};

/// Waits until the list changes.
async fn change(changed: &mut tokio::sync::watch::Receiver<u64>) {
    timeout(SOON, changed.changed()).await.expect("the list changes").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_is_read_again_in_both_lifecycles() {
    for revision in [OLD, NEWEST] {
        let go = Arc::new(Notify::new());
        let gone = go.clone();
        let spec = played("s", move |mut wire, _| {
            let go = gone.clone();
            async move {
                let mut list = vec![tool("b")];
                let mut subscription = None;
                loop {
                    tokio::select! {
                        message = wire.next() => {
                            let Some(message) = message else { return };
                            match message["method"].as_str().unwrap() {
                                "subscriptions/listen" => {
                                    subscription = Some(message["id"].clone());
                                    wire.listening(&message).await;
                                }
                                "tools/list" => wire.answer(&message, json!({
                                    "resultType": "complete", "tools": list, "ttlMs": 0, "cacheScope": "private",
                                })).await,
                                "server/discover" if revision == NEWEST => {
                                    let found = json!({
                                        "resultType": "complete", "supportedVersions": [NEWEST],
                                        "capabilities": { "tools": { "listChanged": true } }, "ttlMs": 0, "cacheScope": "private",
                                    });
                                    wire.answer(&message, found).await;
                                }
                                "server/discover" => wire.refuse(&message, -32601, "?").await,
                                "initialize" => {
                                    let ready = json!({
                                        "protocolVersion": OLD, "capabilities": { "tools": { "listChanged": true } },
                                        "serverInfo": { "name": "s", "version": "1" },
                                    });
                                    wire.answer(&message, ready).await;
                                }
                                _ => {}
                            }
                        }
                        () = go.notified() => {
                            // It changes, then has the same tools in another order, then changes again.
                            list = match list.len() {
                                1 => vec![tool("b"), tool("a")],
                                _ if list[0]["name"] == "b" => vec![tool("a"), tool("b")],
                                _ => vec![tool("c"), tool("a"), tool("b")],
                            };
                            wire.changed(subscription.as_ref()).await;
                        }
                    }
                }
            }
        });
        let mcp = opened(vec![spec]).await;
        let mut changed = mcp.changed();
        assert_eq!(names(&mcp), ["s__b"], "{revision}");
        go.notify_one();
        change(&mut changed).await;
        assert_eq!(names(&mcp), ["s__a", "s__b"], "{revision}");
        let before = *changed.borrow();
        go.notify_one();
        // The clock is paused, so this finishes when no task has anything left to do.
        tokio::time::advance(SOON).await;
        tokio::task::yield_now().await;
        go.notify_one();
        change(&mut changed).await;
        assert_eq!(names(&mcp), ["s__a", "s__b", "s__c"], "{revision}");
        assert_eq!(*changed.borrow(), before + 1, "{revision}: another order is no change");
        mcp.close().await;
    }
}

#[tokio::test]
async fn pages_are_read_up_to_a_bound() {
    let spec = played("s", |mut wire, _| async move {
        let mut next = wire.up_to_list().await;
        while let Some(request) = next {
            let page = request["params"]["cursor"].as_str().map_or(0, |cursor| cursor.parse::<usize>().unwrap());
            let tools: Vec<_> = (page * 100..(page + 1) * 100).map(|n| tool(&format!("t{n:05}"))).collect();
            // The list never ends.
            wire.answer(&request, json!({ "tools": tools, "nextCursor": (page + 1).to_string() })).await;
            next = wire.of("tools/list").await;
        }
    });
    let mcp = opened(vec![spec]).await;
    let names = names(&mcp);
    assert_eq!((names.len(), names[0].as_str(), names[127].as_str()), (128, "s__t00000", "s__t00127"));
    let left_out = &mcp.status()[0].left_out;
    assert_eq!(*left_out, ["it lists 2000 tools; the first 128 by name are offered: choose with `enabledTools`"]);
    mcp.close().await;
}

#[tokio::test]
async fn five_hundred_tools_are_cut_and_the_order_of_servers_is_that_of_their_names() {
    let many = |name: &str, count: usize| {
        played(name, move |mut wire, _| async move {
            let tools: Vec<_> = (0..count).rev().map(|n| tool(&format!("t{n:03}"))).collect();
            while wire.up(OLD, &tools).await.is_some() {}
        })
    };
    let mcp = opened(vec![many("a", 500), many("b", 2)]).await;
    let listed = names(&mcp);
    assert_eq!(listed.len(), 130);
    assert_eq!((listed[0].as_str(), listed[127].as_str(), listed[128].as_str()), ("a__t000", "a__t127", "b__t000"));
    mcp.close().await;

    let servers: Vec<_> = (0..5).map(|n| many(&format!("s{n}"), 128)).collect();
    let mcp: Mcp = opened(servers).await;
    assert_eq!(names(&mcp).len(), 512);
    mcp.close().await;
}

#[tokio::test]
async fn a_server_without_tools_is_up() {
    let spec = played("s", |mut wire, _| async move {
        while let Some(message) = wire.next().await {
            match message["method"].as_str() {
                Some("server/discover") => wire.refuse(&message, -32601, "?").await,
                Some("initialize") => {
                    let software = json!({ "name": "s", "version": "1" });
                    wire.answer(
                        &message,
                        json!({ "protocolVersion": OLD, "capabilities": {}, "serverInfo": software }),
                    )
                    .await;
                }
                method => assert_eq!(method, Some("notifications/initialized")),
            }
        }
    });
    let mcp = opened(vec![spec]).await;
    let status = &mcp.status()[0];
    assert_eq!((status.state, status.tools.len(), status.error.as_deref()), (ServerState::Ready, 0, None));
    mcp.close().await;
}
