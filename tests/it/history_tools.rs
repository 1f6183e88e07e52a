//! The tools that search a session's history, as the model sees them.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{
    client::Client,
    server::Server,
    talk::{summaries, talker, words},
};
use reseed::{core::model::ModelRequest, store::sqlite::SqliteStore};
use serde_json::json;
use std::sync::Arc;

const NAMED: &str = "history_search finds earlier messages by their words, and history_read reads them in full.";

/// Talks until the context was compacted once more. Returns the last request.
async fn past_a_compaction(client: &mut Client, model: &Scripted) -> ModelRequest {
    let before = summaries(&model.requests());
    for number in 0.. {
        assert_eq!(client.turn(&words(number, 300)).await["status"], "completed");
        if summaries(&model.requests()) > before {
            break;
        }
    }
    assert_eq!(client.turn("And now?").await["status"], "completed");
    model.requests().pop().unwrap()
}

/// Returns the first message of a request, which is the summary if there is one, and the names of its tools.
fn begins(request: &ModelRequest) -> (String, Vec<String>) {
    let first = request.messages().next().unwrap().message.text();
    (first, request.envelope.tools.iter().map(|tool| tool.name.clone()).collect())
}

#[tokio::test]
async fn the_summary_names_them_where_they_are_offered() {
    for (settings, named) in [
        (&[("CONTEXT_WINDOW", "16000")][..], true),
        // They would take too much of the window.
        (&[("CONTEXT_WINDOW", "4000")][..], false),
        (&[("CONTEXT_WINDOW", "4000"), ("HISTORY_TOOLS", "on")][..], true),
        (&[("CONTEXT_WINDOW", "16000"), ("HISTORY_TOOLS", "off")][..], false),
        (&[("CONTEXT_WINDOW", "16000"), ("TOOLS", "off")][..], false),
    ] {
        let model = talker(100);
        let settings = [settings, &[("strategy.background", "1")]].concat();
        let server = Server::start(model.clone(), &settings).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        let (summary, tools) = begins(&past_a_compaction(&mut client, &model).await);
        assert!(summary.contains("<summary>"), "{summary}");
        assert_eq!(summary.contains(NAMED), named, "{settings:?}: {summary}");
        assert_eq!(tools.contains(&"history_search".to_owned()), named, "{settings:?}: {tools:?}");
    }
}

#[tokio::test]
async fn a_model_that_writes_calls_as_text_is_offered_them_no_more() {
    let written = "```json\n{\"name\": \"history_search\", \"arguments\": {\"query\": \"boat\"}}\n```";
    for (answer, stay) in [(written, false), (r#"{"name": "Ada", "arguments": {"query": "boat"}}"#, true)] {
        let model = talker(100);
        let settings = [("CONTEXT_WINDOW", "16000"), ("strategy.background", "1")];
        let server = Server::start(model.clone(), &settings).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        past_a_compaction(&mut client, &model).await;
        model.push(Reply::text(answer));
        assert_eq!(client.turn("Where is my boat?").await["status"], "completed");
        client.turn("And now?").await;
        let offered = begins(&model.requests().pop().unwrap()).1;
        assert_eq!(!offered.is_empty(), stay, "{answer}: {offered:?}");
        // The server remembers this of the model, so no other session tries again.
        let (mut other, _) = Client::v2_session(&server.ws()).await;
        let (summary, offered) = begins(&past_a_compaction(&mut other, &model).await);
        assert_eq!(!offered.is_empty(), stay, "{answer}: {offered:?}");
        assert_eq!(summary.contains(NAMED), stay, "{summary}");
    }
}

#[tokio::test]
async fn the_summary_stays_as_it_is_until_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let model = talker(100);
    let settings = [("CONTEXT_WINDOW", "16000"), ("strategy.background", "1")];
    let server = Server::over(model.clone(), store(), &settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let (named, _) = begins(&past_a_compaction(&mut client, &model).await);
    assert!(named.contains(NAMED), "{named}");
    // If the session or the deployment switches them off, the tools are gone and the prefix is as it was.
    let off = json!({ "off": ["history_search", "history_read"] });
    assert_eq!(client.ask("set_tools", off).await["type"], "ok");
    client.turn("And now?").await;
    assert_eq!(begins(&model.requests().pop().unwrap()), (named.clone(), Vec::new()));
    assert_eq!(client.ask("set_tools", json!({ "off": [] })).await["type"], "ok");
    server.service.stop().await;
    drop(server);
    let settings = [&settings[..], &[("HISTORY_TOOLS", "off")]].concat();
    let server = Server::over(model.clone(), store(), &settings).await;
    let mut client = Client::v2(&server.ws()).await;
    client.ask("open_session", json!({ "sessionId": opened["sessionId"] })).await;
    client.turn("And now?").await;
    assert_eq!(begins(&model.requests().pop().unwrap()), (named, Vec::new()));
    let (summary, _) = begins(&past_a_compaction(&mut client, &model).await);
    assert!(!summary.contains("history_search"), "{summary}");
    server.service.stop().await;
}
