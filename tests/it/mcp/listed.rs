//! What users and operators see of MCP servers: names and states, and nothing of the entries in `MCP_FILE`.

use super::{reloading::server, servers};
use crate::support::{binary::Binary, client::Client, http, json::present};
use serde_json::{Value, json};

const OPERATOR: &str = "operator-token-of-some-length";

#[tokio::test]
async fn servers_are_listed_with_their_states_and_nothing_secret() {
    let folder = tempfile::tempdir().unwrap();
    let mut good = server("good", "here", "");
    good["env"]["KEY"] = json!("hunter2-in-env");
    let failing = json!({ "command": "sh", "args": ["-c", "echo hunter2-said >&2; exit 3", "hunter2-in-args"], "env": { "A": "hunter2-in-env" } });
    let away =
        json!({ "url": "http://127.0.0.1:1/mcp?key=hunter2-in-url", "headers": { "X-Key": "hunter2-in-header" } });
    let listed = json!({
        "away": away, "failing": failing, "good": good, "off": { "command": "hunter2-command", "disabled": true },
    });
    let path = std::env::var("PATH").unwrap();
    let settings = [
        servers(folder.path(), listed),
        ("MODEL", "offline"),
        ("DATABASE_URL", "sqlite://./r.db"),
        ("OPERATOR_TOKENS", &*format!("ops:{OPERATOR}")),
        ("PATH", &*path),
    ];
    let binary = Binary::start(folder.path(), &settings).await;
    let (mut client, _) = Client::v2_session(&binary.ws()).await;
    // What fails is retried repeatedly, so each state is waited for.
    let is_settled = |servers: &Value| {
        let of = |name: &str| servers.as_array().unwrap().iter().find(|server| server["name"] == name).unwrap().clone();
        of("good")["state"] == "ready" && ["away", "failing"].iter().all(|name| of(name)["state"] == "failing")
    };
    let tools = loop {
        let reply = client.ask("list_tools", json!({})).await["payload"].clone();
        if is_settled(&reply["servers"]) {
            break reply;
        }
    };
    assert_eq!(
        present(&tools["servers"]),
        &json!([
            { "name": "away", "prefix": "away", "state": "failing", "failure": "unreachable", "restarts": 0 },
            { "name": "failing", "prefix": "failing", "state": "failing", "failure": "ended", "restarts": 0 },
            { "name": "good", "prefix": "good", "state": "ready", "restarts": 0 },
            { "name": "off", "state": "disabled", "restarts": 0 },
        ])
    );
    assert!(!tools.to_string().contains("hunter2"), "{tools}");

    assert_eq!(http::get(&binary.address, "/api/mcp").await.status, 401);
    let shown = loop {
        let shown = http::get_as(&binary.address, "/api/mcp", OPERATOR).await.json();
        if is_settled(&shown["items"]) {
            break shown;
        }
    };
    let items = shown["items"].as_array().unwrap();
    let errors: Vec<&Value> = items.iter().map(|server| &server["error"]).collect();
    let expected = [
        json!("cannot be reached (connection refused)"),
        json!("ended with code 3 before it answered"),
        Value::Null,
        Value::Null,
    ];
    assert_eq!(errors, expected.iter().collect::<Vec<_>>());
    let tokens = items[2]["tokens"].as_u64().unwrap();
    assert!(tokens > 0, "{shown}");
    assert_eq!(
        present(&items[2]),
        &json!({
            "name": "good", "prefix": "good", "state": "ready", "restarts": 0, "transport": "stdio",
            "protocol": "2024-11-05", "software": "sh 1", "tools": [{ "name": "good__do", "tokens": tokens }],
            "tokens": tokens,
        })
    );
    assert_eq!(shown["tokens"].as_u64(), Some(tokens));
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    binary.stop().await;
}
