//! Stopping: turns may finish, or are interrupted and retried; a database has one server at a time.

use super::{QUICK, folder};
use crate::support::scripted::Gate;
use crate::support::{
    binary::{self, Binary},
    client::Client,
    http,
    upstream::{Reply, Upstream},
};
use serde_json::{Value, json};

/// Returns the settings of a server on this model.
fn asking<'a>(base_url: &'a str, grace: &'a str) -> [(&'a str, &'a str); 4] {
    [("OPENAI_BASE_URL", base_url), ("OPENAI_API", "chat"), ("CONTEXT_WINDOW", "4000"), ("SHUTDOWN_GRACE_SECS", grace)]
}

/// Opens a session and begins a turn; returns once a piece of the answer was shown.
async fn begun(server: &Binary) -> (Client, String) {
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    client.ask("user_input", json!({ "input": "Tell me of the harbour." })).await;
    client.event("item_delta").await;
    (client, opened["sessionId"].as_str().unwrap().to_owned())
}

/// The time that a signal may take on a machine that is busy with other tests.
const STOPPING_TIME: std::time::Duration = std::time::Duration::from_secs(30);

/// Polls until the server says that it is stopping; the signal has been sent.
async fn stopping(server: &Binary) {
    let asked = async {
        loop {
            let answered = http::get(&server.address, "/readyz").await;
            if answered.status != 200 {
                return answered;
            }
            tokio::task::yield_now().await;
        }
    };
    let answered = tokio::time::timeout(STOPPING_TIME, asked).await.expect("it does not say that it is stopping");
    assert_eq!((answered.status, answered.body.as_str()), (503, "stopping\n"));
}

/// Opens a session again and returns its client and `session_opened`. The previous client may have hung up so recently
/// that the server does not know it yet.
pub(super) async fn reopened(server: &Binary, session: &str) -> (Client, Value) {
    let mut client = Client::v2(&server.ws()).await;
    let opened = client.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    (client, opened["payload"].clone())
}

#[tokio::test]
async fn a_running_turn_may_finish_and_nothing_new_begins() {
    let (folder, gate) = (folder(), Gate::new());
    let upstream = Upstream::replying([Reply::text("The harbour is quiet.").in_pieces(3).held_by(&gate)]).await;
    let base_url = upstream.base_url();
    let server = Binary::start(folder.path(), &asking(&base_url, "600")).await;
    let (mut client, session) = begun(&server).await;
    let mut idle = Client::v2(&server.ws()).await;
    let mut silent = Client::connect(&server.ws()).await;

    server.terminate().await;
    stopping(&server).await;
    assert_eq!(http::get(&server.address, "/healthz").await.status, 200, "it is there until it is not");
    let refused = client.ask("user_input", json!({ "input": "One more thing." })).await;
    assert_eq!(refused["payload"]["code"], "shutting_down", "{refused}");
    let refused = idle.ask("open_session", json!({})).await;
    assert_eq!(refused["payload"]["code"], "shutting_down", "{refused}");

    gate.open();
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    for client in [&mut client, &mut idle, &mut silent] {
        assert_eq!(client.closed().await, 1012);
    }
    assert_eq!(server.ended().await, Some(0));

    let server = Binary::start(folder.path(), &asking(&base_url, "1")).await;
    let (_client, opened) = reopened(&server, &session).await;
    assert_eq!(opened["entries"][1]["content"][0]["text"], "The harbour is quiet.", "{opened}");
    assert_eq!(upstream.requests().len(), 1);
    upstream.assert_clean();
}

#[tokio::test]
async fn everybody_is_served_while_a_balancer_has_not_noticed() {
    let folder = folder();
    let settings: Vec<(&str, &str)> = QUICK.iter().copied().chain([("SHUTDOWN_NOTICE_SECS", "3600")]).collect();
    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    server.terminate().await;
    stopping(&server).await;
    assert_eq!(client.turn("Are you still there?").await["status"], "completed");
    let (mut late, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(late.turn("And for me?").await["status"], "completed");
    // A second signal waits for nothing.
    server.stop().await;
}

#[tokio::test]
async fn a_turn_that_takes_longer_is_interrupted_and_can_be_retried() {
    let (folder, never) = (folder(), Gate::new());
    let held = Reply::text("The harbour is never told of.").in_pieces(3).held_by(&never);
    let upstream = Upstream::replying([held, Reply::text("The harbour is quiet.")]).await;
    let base_url = upstream.base_url();
    let server = Binary::start(folder.path(), &asking(&base_url, "1")).await;
    let (mut client, session) = begun(&server).await;
    server.terminate().await;
    let finished = client.event("turn_finished").await["payload"].clone();
    assert_eq!((&finished["status"], &finished["error"]["retriable"]), (&json!("interrupted"), &json!(true)));
    assert_eq!(client.closed().await, 1012);
    assert_eq!(server.ended().await, Some(0));
    upstream.wait_for_hang_ups(1).await;

    let server = Binary::start(folder.path(), &asking(&base_url, "1")).await;
    let (mut client, opened) = reopened(&server, &session).await;
    assert_eq!(opened["lastTurn"]["status"], "interrupted", "{opened}");
    client.ask("retry_turn", json!({})).await;
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    let entries = client.ask("get_entries", json!({ "path": true })).await["payload"]["items"].clone();
    assert_eq!(entries.as_array().unwrap().len(), 2, "the question once, and its answer: {entries}");
    assert_eq!(entries[1]["content"][0]["text"], "The harbour is quiet.");
    upstream.assert_clean();
}

#[tokio::test]
async fn a_second_server_does_not_start_on_the_same_database() {
    let folder = folder();
    let server = Binary::start(folder.path(), &QUICK).await;
    let second = binary::run(folder.path(), &["serve"], &[]).await;
    assert_eq!((second.code, second.printed.as_str()), (Some(1), ""));
    let expected =
        format!("/data/reseed.db` is in use by process {}; only one server at a time can open it\n", server.pid());
    assert!(second.faults.starts_with("reseed: ") && second.faults.ends_with(&expected), "{}", second.faults);
    assert_eq!(second.faults.lines().count(), 1, "{}", second.faults);
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.turn("Are you still there?").await["status"], "completed");
    server.kill().await;
    Binary::start(folder.path(), &QUICK).await.stop().await;
}

#[tokio::test]
async fn the_start_line_says_where_what_and_with_which_model() {
    let folder = folder();
    let server = Binary::start(folder.path(), &QUICK).await;
    let expected =
        format!("reseed {} listens on http://{1} (WebSocket: ws://{1}/ws)", env!("CARGO_PKG_VERSION"), server.address);
    assert_eq!(server.start_line, expected);
    assert!(folder.path().join("data/reseed.db").exists());
    let port = server.address.rsplit_once(':').unwrap().1;
    let settings = [("WS_PORT", port), ("DATABASE_URL", "sqlite://./other.db")];
    let second = binary::run(folder.path(), &[], &settings).await;
    assert_eq!(second.code, Some(1));
    let expected = format!("listen on 127.0.0.1:{port}; another program may use it, set WS_PORT");
    assert!(second.faults.contains(&expected), "{}", second.faults);
}
