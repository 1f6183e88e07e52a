//! Sessions in memory only: what they can do, and that nothing of them is on the disk.

use crate::support::{
    client::Client,
    http,
    json::present,
    polling,
    scripted::{Reply, Scripted},
    server::Server,
    talk::text_of,
};
use reseed::store::sqlite::SqliteStore;
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};

/// What is said, and must not be found.
const SECRET: &str = "heron-74-lagoon";

/// Returns true if a file in the folder has the text.
pub(crate) fn is_on_disk(folder: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let mut found = files.filter(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()));
    found.next().is_some()
}

/// Waits until a session is deleted.
pub(crate) async fn gone(client: &mut Client, session: &str) {
    polling::until("the session is deleted", async || {
        let opened = client.ask("open_session", json!({ "sessionId": session, "role": "observer" })).await;
        match opened["payload"]["code"].as_str() {
            Some("session_not_found") => Ok(()),
            Some(_) => Err(opened.to_string()),
            None => {
                client.ask("close_session", json!({ "sessionId": session })).await;
                Err("it is there".to_owned())
            }
        }
    })
    .await;
}

fn model() -> Scripted {
    Scripted::answering(|_| Reply::text(format!("{SECRET} noted")))
}

fn store(folder: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(&folder.join("reseed.db")).unwrap())
}

async fn listed(client: &mut Client) -> Vec<Value> {
    let list = client.ask("list_sessions", json!({})).await;
    present(&list["payload"]["items"]).as_array().unwrap().clone()
}

/// Opens a session in memory, and says something in it.
async fn unstored(server: &Server) -> Client {
    let mut client = Client::v2(&server.ws()).await;
    let opened = client.ask("open_session", json!({ "store": false })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    client.session = Some(opened["sessionId"].as_str().unwrap().to_owned());
    client.turn(&format!("Remember {SECRET}.")).await;
    client
}

#[tokio::test]
async fn a_session_in_memory_does_what_others_do_and_nothing_of_it_is_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::over(model(), store(folder.path()), &[]).await;
    let mut watcher = Client::v2(&server.ws()).await;
    watcher.ask("list_sessions", json!({ "watch": true })).await;
    let mut client = unstored(&server).await;
    let session = client.session.clone().unwrap();
    let found = client.ask("search_history", json!({ "query": "remember", "sessionId": session })).await;
    assert_eq!(present(&found["payload"]["items"]).as_array().unwrap().len(), 1, "{found}");
    let entries = client.ask("get_entries", json!({})).await;
    let input = present(&entries["payload"]["items"][0]["entryId"]).clone();

    // A copy is kept where the session is.
    let forked = client.ask("fork_session", json!({ "entryId": input, "position": "at" })).await;
    let copy = forked["payload"]["sessionId"].as_str().unwrap().to_owned();
    client.ask("set_model", json!({ "model": "test", "reasoningEffort": "low" })).await;
    client.hang_up();

    // It leaves memory's open sessions with its last connection, and is found again.
    for id in [&session, &copy] {
        let mut again = Client::v2(&server.ws()).await;
        let opened = again.ask("open_session", json!({ "sessionId": id })).await;
        assert_eq!(*present(&opened["payload"]["entries"][0]["entryId"]), input, "{opened}");
        again.session = Some(id.clone());
        assert_eq!(again.turn("And now?").await["status"], "completed");
    }
    assert_eq!(listed(&mut watcher).await, Vec::<Value>::new());
    assert_eq!(watcher.forget("session_changed"), Vec::<Value>::new(), "lists do not hear of it either");
    let metrics = http::get(&server.address(), "/api/sessions").await;
    assert!(!metrics.body.contains(&session), "{metrics:?}");
    assert!(!is_on_disk(folder.path(), SECRET));

    // Another user does not see it, as any other session.
    let deleted = watcher.ask("delete_session", json!({ "sessionId": copy })).await;
    assert_eq!(deleted["type"], "ok", "{deleted}");
    gone(&mut watcher, &copy).await;

    // It ends with the server.
    server.service.stop().await;
    drop(server);
    assert!(!is_on_disk(folder.path(), SECRET));
    let server = Server::over(model(), store(folder.path()), &[]).await;
    gone(&mut Client::v2(&server.ws()).await, &session).await;
}

#[tokio::test]
async fn a_copy_of_a_stored_session_can_be_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let model = Scripted::answering(|_| Reply::text("Aye."));
    let server = Server::over(model.clone(), store(folder.path()), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.turn("I am Ann.").await;
    let entries = client.ask("get_entries", json!({})).await;
    let answer = present(&entries["payload"]["items"][1]["entryId"]).clone();
    let fork = json!({ "entryId": answer, "position": "at", "store": false });
    let forked = client.ask("fork_session", fork).await;
    let mut other = Client::v2(&server.ws()).await;
    let copy = forked["payload"]["sessionId"].as_str().unwrap().to_owned();
    other.ask("open_session", json!({ "sessionId": copy })).await;
    other.session = Some(copy);
    other.turn(SECRET).await;
    assert_eq!(text_of(model.requests().last().unwrap()), format!("I am Ann.\nAye.\n{SECRET}"));
    assert!(!is_on_disk(folder.path(), SECRET));
    assert_eq!(listed(&mut other).await.len(), 1);
}
