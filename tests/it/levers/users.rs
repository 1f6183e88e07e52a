//! A user as a whole: shown, closed, and deleted with a proof.

use super::{ANN, BOB, READER, SETTINGS, WRITER, model, pull, pull_once, session_of};
use crate::support::{
    client::Client,
    http,
    json::{present, whole},
    server::Server,
    talk::words,
};
use reseed::store::{Append, Head, NewRecord, SessionStore as _, sqlite::SqliteStore};
use reseed_protocol::{SessionId, Timestamp};
use serde_json::{Value, json};
use std::{fs, path::Path, sync::Arc};

/// A name that is in no text of the conversations.
const NAME: &str = "ann-of-the-harbour";

const LONG_AGO: Timestamp = Timestamp(1_700_000_000_000);

/// Returns how often a text is in the database's files.
fn in_files(folder: &Path, text: &str) -> usize {
    let mut found = 0;
    for name in ["reseed.db", "reseed.db-wal"] {
        let bytes = fs::read(folder.join(name)).unwrap_or_default();
        found += bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count();
    }
    found
}

async fn total(server: &Server, query: &str) -> Value {
    let answered = http::get_as(&server.address(), &format!("/api/usage?{query}"), READER).await;
    present(&answered.json()["items"]).clone()
}

#[tokio::test]
async fn a_user_is_shown_closed_and_deleted_with_a_proof() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let budgets = folder.path().join("budgets.json");
    fs::write(
        &budgets,
        r#"{ "deployment": [{ "per": "month", "tokens": 1000000 }], "classes": { "default": [{ "per": "day", "tokens": 900000 }] } }"#,
    )
    .unwrap();
    let budgets = budgets.to_str().unwrap();
    let settings = [&SETTINGS[..], &[("BUDGETS_FILE", budgets), ("SERVICE_TOKENS", "shop:token-of-shop-0123456789")]];
    let server = Server::over(model(), store.clone(), &settings.concat()).await;
    let (address, ws) = (server.address(), server.ws());

    let (mut ann, first) = session_of(&ws, ANN, json!({})).await;
    ann.turn(&words(1, 60)).await;
    // One that only memory has, one that was deleted before, and a ticket that nobody has used.
    let (mut unstored, in_memory) = session_of(&ws, ANN, json!({ "store": false })).await;
    unstored.turn("Forget it.").await;
    let gone = ann.ask("open_session", json!({})).await["payload"]["sessionId"].as_str().unwrap().to_owned();
    ann.turn("An earlier one.").await;
    ann.ask("delete_session", json!({ "sessionId": gone })).await;
    ann.session = Some(first.clone());
    let ticket = http::send(&address, "POST", "/api/tickets", &[("Authorization", &format!("Bearer {ANN}"))], "").await;
    assert_eq!(ticket.status, 200, "{ticket:?}");
    let (mut bob, of_bob) = session_of(&ws, BOB, json!({})).await;
    bob.turn("I stay.").await;

    let shown = http::get_as(&address, &format!("/api/users/{NAME}"), READER).await;
    assert_eq!(shown.status, 200, "{shown:?}");
    let shown = shown.json();
    assert_eq!((&shown["user"], &shown["sockets"], &shown["class"]), (&json!(NAME), &json!(2), &json!("default")));
    assert_eq!((&shown["sessions"]["count"], &shown["sessions"]["open"]), (&json!(1), &json!(2)), "{shown}");
    assert_eq!((&shown["usage"]["requests"], &shown["budgets"][0]["per"]), (&json!(3), &json!("day")), "{shown}");
    let (all, spent) = (total(&server, "by=total").await, used(&server).await);
    assert!(spent > 0, "the deployment has a budget");
    assert!(in_files(folder.path(), NAME) > 0 && in_files(folder.path(), &first) > 0, "or the search finds nothing");

    let closed = pull(&address, "POST", &format!("/api/users/{NAME}/close"), "").await;
    assert_eq!((closed.status, &closed.json()["sockets"]), (200, &json!(2)), "{closed:?}");
    assert_eq!((ann.closed().await, unstored.closed().await), (4403, 4403));
    // The token still counts, as long as it is in the settings.
    let (mut ann, _) = session_of(&ws, ANN, json!({ "sessionId": first })).await;
    ann.turn("I am back.").await;
    let (mut watcher, _) = session_of(&ws, BOB, json!({ "sessionId": of_bob })).await;

    let path = format!("/api/users/{NAME}");
    let delete = async || pull_once(&address, "DELETE", &path, "", "delete-ann-for-good").await;
    let deleted = delete().await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    let proof = deleted.json();
    let counts = ["sessions", "usageRows", "tickets", "sockets"].map(|name| present(&proof[name]).clone());
    assert_eq!(counts, [json!(2), json!(4), json!(1), json!(1)], "{proof}");
    assert_eq!((&proof["search"]["found"], &proof["audit"]), (&json!(0), &json!("kept")), "{proof}");
    assert!(present(&proof["search"]["searched"]).as_array().unwrap().len() >= 5, "{proof}");
    assert_eq!(ann.closed().await, 4403);
    for text in [NAME, &*first, &*in_memory, &*gone] {
        assert_eq!(in_files(folder.path(), text), 0, "{text}");
    }
    assert!(in_files(folder.path(), &of_bob) > 0, "the others stay");
    assert_eq!(delete().await.json(), proof, "the same answer");
    let again = pull(&address, "DELETE", &path, "").await.json();
    let counts = ["sessions", "usageRows", "tickets", "sockets"].map(|name| present(&again[name]).clone());
    assert_eq!(counts, [0; 4].map(|zero| json!(zero)), "{again}");

    // What was spent stays, and nobody's name with it.
    let now = total(&server, "by=total").await;
    assert_eq!(whole(&now[0]["requests"]), whole(&all[0]["requests"]) + 1, "{now}");
    assert_eq!(total(&server, &format!("owner={NAME}")).await, json!([]));
    assert_eq!(total(&server, "by=user").await[0]["user"], "(deleted)");
    assert!(used(&server).await >= spent, "a budget gives nothing back");
    watcher.turn("Nothing is broken.").await;
    let ticket = json!({ "protocolVersion": 2, "ticket": ticket.json()["ticket"] });
    let refused = Client::connect(&ws).await.ask("hello", ticket).await;
    assert_eq!(refused["payload"]["code"], "unauthenticated", "{refused}");
    server.service.stop().await;
}

/// Returns the tokens that the deployment's budget has counted.
async fn used(server: &Server) -> u64 {
    let answered = http::get_as(&server.address(), "/api/budgets", READER).await.json();
    answered["items"][0]["spentTokens"].as_u64().unwrap_or_else(|| panic!("{answered}"))
}

#[tokio::test]
async fn many_sessions_are_deleted_while_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let server = Server::over(model(), store.clone(), &SETTINGS).await;
    let (mut bob, _) = session_of(&server.ws(), BOB, json!({})).await;
    let ids = |number: usize| -> SessionId { format!("session-of-ann-{number:05}").parse().unwrap() };
    for number in 0..1_000 {
        let lease = store.create(&ids(number), NAME, LONG_AGO).await.unwrap();
        store.append(&lease, 1, remark(number, LONG_AGO)).await.unwrap();
    }
    assert!(in_files(folder.path(), "session-of-ann-00999") > 0, "or the search finds nothing");
    let bearer = format!("Bearer {WRITER}");
    let (address, path) = (server.address(), format!("/api/users/{NAME}"));
    let headers = [("Authorization", &*bearer)];
    let deleting = http::send(&address, "DELETE", &path, &headers, "");
    let writing = async {
        for _ in 0..5 {
            bob.turn("I go on.").await;
        }
    };
    let (deleted, ()) = tokio::join!(deleting, writing);
    let proof = deleted.json();
    assert_eq!((&proof["sessions"], &proof["search"]["found"]), (&json!(1_000), &json!(0)), "{proof}");
    assert_eq!(in_files(folder.path(), "session-of-ann"), 0);
    server.service.stop().await;
}

/// Returns an append of a record that is not empty.
pub(super) fn remark(number: usize, updated_at: Timestamp) -> Append {
    let body = json!({ "type": "session_updated", "payload": { "name": words(number as u64, 200) } }).to_string();
    let record = || NewRecord { body: body.as_str().into(), entry: None };
    let head = Head { updated_at, ..Head::default() };
    Append { records: vec![record(), record()], marks: Vec::new(), usage: Vec::new(), head }
}
