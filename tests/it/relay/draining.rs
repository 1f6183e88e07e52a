//! A server that stops while others are available: its clients go to them, each when nothing of its own runs here any
//! more.

use super::{check_whole, faults::resumed, nodes, open};
use crate::support::scripted::Gate;
use crate::support::{
    binary::run,
    client::Client,
    cluster::{Node, SHORT_LEASE},
    http::get,
    polling::until,
    upstream::{Reply, Upstream},
};
use serde_json::{Value, json};

/// Polls until a server says that it is stopping.
async fn stopping(node: &Node) {
    until("the server says that it stops", async || match get(&node.server.address, "/readyz").await {
        answered if answered.status == 503 && answered.body == "stopping\n" => Ok(()),
        answered => Err(answered.body),
    })
    .await;
}

async fn closed_session(client: &mut Client, session: &Value) {
    let closed = client.event("session_closed").await;
    assert_eq!((&closed["sessionId"], &closed["payload"]["code"]), (session, &json!("moved")), "{closed}");
}

#[tokio::test]
async fn clients_go_to_another_server_as_soon_as_nothing_of_theirs_runs() {
    let held = Gate::new();
    let answers = [Reply::text("The harbour is quiet.").in_pieces(3).held_by(&held), Reply::text("It is Miso.")];
    let upstream = Upstream::replying(answers).await;
    let base_url = upstream.base_url();
    let settings = [
        ("OPENAI_BASE_URL", base_url.as_str()),
        ("OPENAI_API", "chat"),
        ("CONTEXT_WINDOW", "4000"),
        ("SHUTDOWN_GRACE_SECS", "600"),
    ];
    let [a, b] = nodes(&settings).await;
    let (mut busy, running) = a.session().await;
    let (mut idle, resting) = a.session().await;
    let (mut none, mut observer, mut visitor) = (a.client().await, b.client().await, b.client().await);
    let opened = open(&mut observer, &running).await;
    let before = open(&mut visitor, &resting).await;
    let (_owner, quiet) = a.session().await;
    // Each connection is notified at its own moment, within two seconds; the next one is nearly the last.
    for _ in 0..50 {
        a.client().await.hang_up();
    }
    let mut asking = b.client().await;
    open(&mut asking, &quiet).await;
    busy.ask("user_input", json!({ "input": "Tell me of the harbour." })).await;
    observer.event("item_delta").await;

    a.server.terminate().await;
    stopping(&a).await;
    // The turn is still running. A client that sends a command learns that its session has moved before the command is
    // refused, and not that its own server stops.
    until("only the session with the turn is left", async || match a.metric("reseed_sessions_open").await {
        1 => Ok(()),
        open => Err(format!("{open} are open")),
    })
    .await;
    let refused = asking.ask("user_input", json!({ "input": "Is anybody there?", "sessionId": quiet })).await;
    assert!(["no_session", "store_failed"].contains(&refused["payload"]["code"].as_str().unwrap()), "{refused}");
    let told = asking.seen.iter().find(|frame| frame["type"] == "session_closed");
    assert_eq!(told.map(|told| &told["payload"]["code"]), Some(&json!("moved")), "{:?}", asking.seen);
    assert_eq!((idle.closed().await, none.closed().await), (1012, 1012));
    closed_session(&mut visitor, &resting).await;
    let back = resumed(&mut visitor, &resting, &before).await;
    assert_eq!(back["resumed"], "replay", "{back}");
    let refused = get(&a.server.address, "/ws").await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(get(&a.server.address, "/healthz").await.status, 200, "it is there until it is not");
    held.open();
    for client in [&mut busy, &mut observer] {
        assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    }
    assert_eq!(busy.closed().await, 1012);
    closed_session(&mut observer, &running).await;
    let back = resumed(&mut observer, &running, &opened).await;
    assert_eq!(back["resumed"], "replay", "{back}");
    observer.turn("What is my cat called?").await;
    check_whole(&observer, &running, opened["asOfSeq"].as_u64().unwrap() + 1);
    assert_eq!(a.server.ended().await, Some(0));
    upstream.assert_clean();
}

#[tokio::test]
async fn clients_at_other_servers_do_not_learn_that_a_holder_stops() {
    let held = Gate::new();
    let upstream = Upstream::replying([Reply::text("It is Miso.").held_by(&held)]).await;
    let base_url = upstream.base_url();
    let settings = [("OPENAI_BASE_URL", base_url.as_str()), ("OPENAI_API", "chat"), ("SHUTDOWN_GRACE_SECS", "600")];
    let [a, b] = nodes(&settings).await;
    let ((mut at_a, session), mut at_b) = (a.session().await, b.client().await);
    open(&mut at_b, &session).await;
    let accepted = at_a.ask("user_input", json!({ "input": "What is my cat called?" })).await;
    a.server.terminate().await;
    stopping(&a).await;
    // Its sessions learn of it a moment later.
    until("the session takes no more commands", async || {
        let replied = at_a.ask("append_custom", json!({ "customType": "note", "data": 1 })).await;
        if replied["payload"]["code"] == "shutting_down" { Ok(()) } else { Err(replied.to_string()) }
    })
    .await;
    // The session refuses the first, and its server the second.
    for (kind, payload) in [
        ("user_input", json!({ "sessionId": session, "input": "Is anybody there?" })),
        ("fork_session", json!({ "sessionId": session, "entryId": accepted["payload"]["entryId"], "position": "at" })),
    ] {
        for (client, code) in [(&mut at_a, "shutting_down"), (&mut at_b, "store_failed")] {
            let refused = client.ask(kind, payload.clone()).await;
            let (shown, retriable) = (&refused["payload"]["code"], &refused["payload"]["retriable"]);
            assert_eq!((shown, retriable), (&json!(code), &json!(true)), "{kind}: {refused}");
        }
    }
    held.open();
    assert_eq!(at_a.closed().await, 1012);
    closed_session(&mut at_b, &session).await;
    upstream.assert_clean();
}

#[tokio::test]
async fn an_operator_drains_a_server_by_its_name() {
    let [a, b] = nodes(&[SHORT_LEASE]).await;
    let (mut client, session) = a.session().await;
    client.turn("My cat is called Miso.").await;
    let folder = a.folder.path();
    let environment = a.environment();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    let refused = run(folder, &["nodes", "--drain", "c"], &environment).await;
    assert_eq!(refused.code, Some(1), "{}", refused.printed);
    assert!(refused.faults.contains("no server is called `c`"), "{}", refused.faults);
    let drained = run(folder, &["nodes", "--drain", "a"], &environment).await;
    assert_eq!(drained.code, Some(0), "{}{}", drained.printed, drained.faults);
    let lines: Vec<&str> = drained.printed.lines().collect();
    let first = lines.first().is_some_and(|line| line.starts_with("a (node ") && line.contains(") drains: "));
    let last = lines.last().is_some_and(|line| line.starts_with("a (node ") && line.ends_with(") has stopped"));
    assert!(first && last, "{lines:?}");
    assert_eq!(client.closed().await, 1012);
    assert!(a.log().contains("an operator asked this server to drain"), "{}", a.log());
    assert_eq!(a.server.ended().await, Some(0));
    let mut client = b.client().await;
    let opened = open(&mut client, &session).await;
    assert!(opened["entries"].to_string().contains("Miso"), "{opened}");
    // No server is left for the last one's clients.
    let drained = run(folder, &["nodes", "--drain", "b"], &environment).await;
    assert!(drained.printed.contains("no other server is there"), "{}", drained.printed);
    assert_eq!((client.closed().await, b.server.ended().await), (1012, Some(0)));
}
