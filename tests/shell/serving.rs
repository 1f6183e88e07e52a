//! The protocol, the sessions, and the end of the server.

use super::{
    SESSION, World,
    client::PATIENCE,
    params,
    processes::{gone, processes},
};
use serde_json::{Value, json};
use std::{fs, path::Path, time::Duration};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

/// Starts a command that sleeps for this time, also in a session of its own, and returns once it runs.
async fn sleeping(world: &World, session: &str, seconds: &str) -> (u64, oneshot::Receiver<Value>) {
    let command = ["sh", "-c", "setsid sleep $1 & sleep $1", "sh", seconds];
    let request = world.client.request("tools/call", params("shell", session, json!({ "command": command }))).await;
    let begun = async {
        while processes(seconds) < 2 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, begun).await.expect("the command begins");
    request
}

/// Returns a time to sleep that no other process of this machine has.
fn seconds(mark: &str) -> String {
    format!("{}{mark}", std::process::id())
}

/// Waits until a file or directory is gone.
async fn vanished(path: &Path) -> bool {
    let vanished = async {
        while path.exists() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, vanished).await.is_ok()
}

#[tokio::test]
async fn it_speaks_mcp() {
    let world = World::new(&[]).await;
    let client = &world.client;
    let about = client.initialize().await.unwrap();
    assert_eq!(about["protocolVersion"], "2025-03-26", "that of the client");
    assert_eq!(about["capabilities"], json!({ "tools": {}, "experimental": { "reseed/sessions": {} } }));
    for (asked, answered) in [
        (json!("2024-11-05"), "2024-11-05"),
        (json!("2025-11-25"), "2025-11-25"),
        (json!("2026-07-28"), "2025-11-25"),
        (json!("next"), "2025-11-25"),
        (json!(null), "2025-11-25"),
    ] {
        let about = client.ask("initialize", json!({ "protocolVersion": asked })).await;
        assert_eq!(about["protocolVersion"], answered, "{asked}");
    }
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
    for method in ["server/discover", "resources/list", "tools"] {
        assert_eq!(client.answer(method, json!({})).await["error"]["code"], -32_601, "{method}");
    }
    // None of these ends it, and none is taken for a request.
    for line in ["", "no JSON", "[]", "3", r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, r#"{"method":"notifications/x"}"#]
    {
        client.line(line).await;
    }
    let unknown = world.call("none", SESSION, json!({})).await;
    assert!(unknown.is_error && unknown.text.contains("no such tool"), "{unknown:?}");
    for session in [json!(""), json!(".."), json!(".staging"), json!("a/b"), json!(7), json!("x".repeat(65))] {
        let mut params = params("shell", "", json!({ "command": ["true"] }));
        params["_meta"]["reseed/session"] = session.clone();
        assert_eq!(client.answer("tools/call", params).await["error"]["code"], -32_602, "{session}");
    }
    assert_eq!(client.ended().await.0, Some(0));
}

#[tokio::test]
async fn a_call_without_a_session_is_refused_or_shares_one_folder() {
    let input = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch";
    let call = json!({ "name": "apply_patch", "arguments": { "input": input } });
    let world = World::new(&[]).await;
    let refused = world.client.answer("tools/call", call.clone()).await;
    assert_eq!(refused["error"]["code"], -32_602, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("--shared"), "{refused}");
    assert!(!world.folder(".shared").exists());
    let world = World::new(&["--shared"]).await;
    let result = world.client.ask("tools/call", call).await;
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(fs::read_to_string(world.folder(".shared").join("a")).unwrap(), "x\n");
}

#[tokio::test]
async fn a_session_that_was_deleted_leaves_nothing() {
    let world = World::new(&[]).await;
    for session in [SESSION, "session-2"] {
        let script = "mkdir -p a/b && echo x > a/b/c && mkfifo p && ln -s / l";
        world.run_in(session, json!({ "command": ["sh", "-c", script] })).await;
    }
    let listed = world.client.ask("reseed/sessions/list", json!({})).await;
    let mut listed: Vec<_> = listed["sessionIds"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    listed.sort_unstable();
    assert_eq!(listed, [SESSION, "session-2"]);
    let (other, seconds) = (seconds("11"), seconds("22"));
    let (_, running) = sleeping(&world, "session-2", &other).await;
    let (_, ended) = sleeping(&world, SESSION, &seconds).await;
    let deleted = json!({ "sessionId": SESSION });
    world.client.notify("notifications/reseed/session_deleted", deleted.clone()).await;
    assert!(vanished(&world.folder(SESSION)).await && gone(&seconds).await);
    assert!(processes(&other) > 0 && running.is_empty() && ended.is_empty());
    // And begins anew.
    let returned = world.run_in(SESSION, json!({ "command": ["ls"] })).await;
    assert_eq!(returned.output, "");
    for id in ["..", ".staging", "", "none"] {
        world.client.notify("notifications/reseed/session_deleted", json!({ "sessionId": id })).await;
    }
    // The end of the input does not overtake it.
    world.client.notify("notifications/reseed/session_deleted", deleted).await;
    assert_eq!(world.client.ended().await, (Some(0), String::new()));
    let folders = world.folder("");
    let mut left: Vec<_> = fs::read_dir(&folders).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".made", ".staging", "session-2"]);
    assert!(gone(&other).await);
}

#[tokio::test]
async fn a_call_that_is_cancelled_ends_at_once_and_is_not_answered() {
    for (flags, mark) in [(&[][..], "33"), (&["--no-sandbox"][..], "44")] {
        let world = World::new(flags).await;
        let seconds = seconds(mark);
        let (id, mut answer) = sleeping(&world, SESSION, &seconds).await;
        world.client.notify("notifications/cancelled", json!({ "requestId": id })).await;
        assert!(gone(&seconds).await, "{flags:?}");
        world.script("true", &[]).await;
        assert!(answer.try_recv().is_err(), "{flags:?}");
    }
}

#[tokio::test]
async fn no_command_outlives_the_server() {
    for (flags, mark) in [(&[][..], "55"), (&["--no-sandbox"][..], "66")] {
        for (is_killed, mark) in [(true, format!("{mark}1")), (false, format!("{mark}2"))] {
            let world = World::new(flags).await;
            let seconds = seconds(&mark);
            let running = sleeping(&world, SESSION, &seconds).await;
            match is_killed {
                true => world.client.kill().await,
                false => assert_eq!(world.client.ended().await.0, Some(0), "{flags:?}"),
            }
            assert!(gone(&seconds).await, "{flags:?}, killed: {is_killed}");
            drop(running);
        }
    }
}

#[tokio::test]
async fn a_message_without_end_is_not_taken() {
    let world = World::new(&[]).await;
    world.client.line(&"x".repeat(17 * 1024 * 1024)).await;
    let (code, told) = world.client.ended().await;
    assert!(code == Some(1) && told.contains("a message has more than 4194304 bytes"), "{code:?}: {told}");
}
