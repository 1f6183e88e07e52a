//! A chat whose server is killed in the middle of an answer, on several real servers.

use super::{Page, text};
use crate::support::{
    cluster::{Node, database},
    http::send,
    json::present,
    polling::until,
};
use serde_json::json;

#[tokio::test]
async fn another_server_takes_the_chat_of_one_that_was_killed() {
    let address = database().await;
    // Its answers take as long as the test.
    let a = Node::start(&address, "a", &[("OFFLINE_WORD_MILLIS", "10000")]).await;
    let b = Node::start(&address, "b", &[]).await;
    let url = |node: &Node| format!("ws://{}/ai", node.server.address);
    let mut page = Page::open_at(&url(&a), &[], "chat").await;
    page.said("u1", "My cat is called Miso.");
    page.send("submit-message", None).await;
    page.chunk("start").await;
    a.server.kill().await;
    page.closed().await;
    let mut again = Page::open_at(&url(&b), &[], "chat").await;
    until("resume the chat", async || {
        again.request(json!({"type": "resume"})).await;
        let frame = again.frame().await;
        if frame["type"] == "no-active" { Ok(()) } else { Err(frame.to_string()) }
    })
    .await;
    let read = async || send(&b.server.address, "GET", "/ai/chats/chat", &[], "").await.json();
    let stored = read().await;
    assert_eq!((&stored[0], stored.as_array().unwrap().len()), (&page.messages[0], 1), "no answer was stored");
    again.messages = vec![stored[0].clone()];
    again.send("regenerate-message", None).await;
    let chunks = again.chunks().await;
    assert!(!text(&chunks).is_empty(), "{chunks:#?}");
    let stored = read().await;
    assert_eq!((&stored[0], stored.as_array().unwrap().len()), (&page.messages[0], 2), "said once, answered once");
    assert_eq!(stored[1]["id"], *present(&chunks[0]["messageId"]));
}
